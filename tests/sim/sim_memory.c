/*
 * sim_memory.c - pages as words that say who wrote them, the writes under way, and what the
 * machines claim about them. Each claim is looked at when it is made, against the writes
 * themselves.
 */
#include "sim.h"

#include <string.h>

static struct sim_ask *ask_of(struct sim_world *world, uint32_t writer, uint32_t receiver,
                              uint64_t rid)
{
    (void)sim_seat(world, receiver, rid); /* is it a request at all? */
    return &world->asks[writer][receiver][rid - 1];
}

/* ---- pages ---------------------------------------------------------------------------------- */

uint32_t memory_free_page(const struct sim_world *world, uint32_t rank)
{
    uint32_t count = world->ranks[rank].generation ? world->knobs.pages : SIM_PAGES_MAX;

    for (uint32_t page = 0; page < count; page++)
        if (world->ranks[rank].pages[page].rid == 0)
            return page;
    return SIM_NONE;
}

/* I28: what a machine counts as retained is what it holds for requests that ended badly. */
void memory_check_counts(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    const struct recv_counts *counts = recv_session_counts(self->recv);
    uint64_t at_least = 0;
    uint64_t at_most = 0;

    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++) {
        struct sim_seat *seat = &self->seats[i];
        bool held = seat->opened && !seat->released && seat->tag != 0;
        bool ended = seat->decided && seat->decision != SESSION_DECIDED_OK;

        at_least += held && ended;
        at_most += held && (ended || SESSION_VOTE_BASE(seat->vote) >= SESSION_VOTE_DOOMED_FAILED);
    }
    if (counts->retained_blocks < at_least || counts->retained_blocks > at_most)
        sim_fail(world, "I28: rank %u counts %u retained blocks, holds %u to %u", rank,
                 (unsigned)counts->retained_blocks, (unsigned)at_least, (unsigned)at_most);
    if (counts->contradictions != 0 && !world->knobs.garble)
        sim_fail(world, "W26: rank %u heard a contradiction", rank);
    if (counts->stranded_blocks > counts->retained_blocks)
        sim_fail(world, "I28: rank %u has more stranded than retained blocks", rank);
}

void memory_release(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sim_seat *seat = sim_seat(world, rank, rid);

    memory_check_drained(world, rank, rid, "I1");
    if (memcmp(seat->aux, seat->aux_kept, SIM_AUX_BYTES) != 0 && seat->bad_seen)
        sim_fail(world, "I1: aux of request %u was written after its end", (unsigned)rid);
    self->pages[seat->page].rid = 0;
}

/* ---- writes --------------------------------------------------------------------------------- */

struct sim_write *memory_find(struct sim_world *world, uint32_t rank, uint64_t task)
{
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->rank == rank && write->task == task && write->state != WRITE_GHOST)
            return write;
    }
    return NULL;
}

void memory_end(struct sim_world *world, struct sim_write *write)
{
    write->state = WRITE_NONE;
    world->busy_writes &= ~(UINT64_C(1) << (write - world->writes));
}

/* A write that may still touch memory for (rid, tag) of a receiver. */
static const struct sim_write *write_for(const struct sim_world *world, uint32_t rank,
                                         uint32_t receiver, uint64_t rid)
{
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        const struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->state != WRITE_GHOST && write->rank == rank && write->rid == rid &&
            (receiver == SIM_NONE || write->receiver == receiver))
            return write;
    }
    return NULL;
}

void memory_begin(struct sim_world *world, uint32_t rank, const struct send_start *start)
{
    struct sim_seat *seat = sim_seat(world, rank, start->rid);
    struct sim_ask *ask = ask_of(world, rank, start->receiver, start->rid);
    struct sim_write *write;

    if (world->busy_writes == UINT64_MAX)
        sim_fail(world, "I33: more writes run than any schedule needs");
    write = &world->writes[__builtin_ctzll(~world->busy_writes)];
    if (!seat->opened || seat->released)
        sim_fail(world, "I21: rank %u writes request %u, which is not open", rank,
                 (unsigned)start->rid);
    if (world->knobs.garble && start->dst_count != 1)
        return;
    if (start->src_count != 1 || start->dst_count != 1 || start->src[0].slots[0] != seat->page)
        sim_fail(world, "4.2: a write does not have the lists of its request");
    if (seat->fenced && sim_awake_ns(world, rank) < seat->fenced_ns + SIM_TTL_NS)
        sim_fail(world, "I19: rank %u writes request %u, which was cancelled before", rank,
                 (unsigned)start->rid);
    if (ask->tag == start->tag && ask->claimed && !world->knobs.garble)
        sim_fail(world, "I19: rank %u has said that it writes nothing of request %u to %u", rank,
                 (unsigned)start->rid, start->receiver);
    *write = (struct sim_write){
        .state = WRITE_RUNNING,
        .bounce = BOUNCE_NONE,
        .rank = rank,
        .receiver = start->receiver,
        .slice = start->slice,
        .page = start->dst[0].slots[0],
        .source_page = seat->page,
        .tag = start->tag,
        .task = start->task,
        .rid = start->rid,
        .epoch = world->ranks[rank].epoch,
        .receiver_epoch = world->ranks[rank].channels[start->receiver].epoch,
    };
    if ((start->flags & MSG_REQUEST_BOUNCE_ONLY) != 0 ||
        sim_fact(world, world->knobs.bounce_percent, 2 + rank, start->rid, start->receiver))
        write->bounce = BOUNCE_WAITS;
    if (start->slice >= SIM_SLICES_MAX || (write->page >= SIM_PAGES_MAX && !world->knobs.garble))
        sim_fail(world, "4.2: slice %u, page %u of a write do not exist", start->slice,
                 write->page);
    world->busy_writes |= UINT64_C(1) << (write - world->writes);
    world->tally->writes++;
}

static bool reader_lives(const struct sim_world *world, const struct sim_write *write)
{
    const struct sim_rank *reader = &world->ranks[write->receiver];

    return reader->alive && reader->epoch == write->receiver_epoch;
}

/* The bytes are in the pages. */
static void put_words(struct sim_world *world, struct sim_write *write, const char *rule)
{
    struct sim_seat *seat = sim_seat(world, write->receiver, write->rid);
    struct sim_page *page = &world->ranks[write->receiver].pages[write->page % SIM_PAGES_MAX];

    write->landed = true;
    if (!reader_lives(world, write))
        return;
    if (page->rid != write->rid || seat->tag != write->tag || seat->released || !seat->opened) {
        if (world->knobs.garble || world->silence)
            return;
        sim_fail(world,
                 "%s: slice %u of request %u from %u is written to page %u of %u, given back", rule,
                 write->slice, (unsigned)write->rid, write->rank, write->page, write->receiver);
    }
    if (SESSION_VOTE_BASE(seat->vote) == SESSION_VOTE_DONE && !world->knobs.garble)
        sim_fail(world, "I23: request %u of %u is written to after it was done",
                 (unsigned)write->rid, write->receiver);
    page->cells[write->rank][write->slice] = (struct sim_cell){write->rid, write->tag};
}

void memory_land(struct sim_world *world, struct sim_write *write)
{
    const struct sim_rank *self = &world->ranks[write->rank];

    if (write->landed || write->bounce != BOUNCE_NONE)
        return;
    if (self->alive && self->epoch == write->epoch &&
        self->pages[write->source_page].rid != write->rid)
        sim_fail(world, "I21: request %u of %u is read after its pages were given back",
                 (unsigned)write->rid, write->rank);
    put_words(world, write, "I1");
}

/* ---- own copies ----------------------------------------------------------------------------- */

static struct recv_event scatter_event(const struct sim_write *write, enum recv_event_kind kind)
{
    return (struct recv_event){
        .kind = kind, .u.scatter = {.rid = write->rid, .tag = write->tag, .code = KVF_E_TRANSFER}};
}

static void revoke(struct sim_world *world, struct sim_write *write)
{
    struct recv_event event = scatter_event(write, RECV_SCATTER_ENDED);

    write->bounce = BOUNCE_REFUSED;
    sim_follow(world, write->receiver, &event);
}

/* Data of a bounce arrives at its receiver, which queues a copy unless it is fenced. */
void memory_arrive(struct sim_world *world, struct sim_write *write)
{
    struct sim_seat *seat = sim_seat(world, write->receiver, write->rid);
    struct recv_event active = {.kind = RECV_WRITER_ACTIVE,
                                .u.active = {write->rid, write->tag, write->rank, KVF_PATH_BOUNCE}};
    struct recv_event began = scatter_event(write, RECV_SCATTER_BEGAN);

    if (!reader_lives(world, write) || seat->tag != write->tag || seat->released || seat->fenced ||
        !net_up(world, write->receiver, write->rank)) {
        write->bounce = BOUNCE_REFUSED;
        return;
    }
    ask_of(world, write->rank, write->receiver, write->rid)->bounced = true;
    (void)sim_recv(world, write->receiver, &active);
    if (write->bounce != BOUNCE_WAITS)
        return;
    write->bounce = BOUNCE_QUEUED;
    (void)sim_recv(world, write->receiver, &began);
}

/* The copy begins, which no fence stops any more; or it ends. */
void memory_scatter(struct sim_world *world, struct sim_write *write, bool well)
{
    struct recv_event event = scatter_event(write, well ? RECV_SCATTER_ENDED : RECV_SCATTER_FAILED);

    if (write->bounce == BOUNCE_QUEUED) {
        write->bounce = BOUNCE_RUNNING;
        return;
    }
    put_words(world, write, "I2");
    write->bounce = well ? BOUNCE_COPIED : BOUNCE_REFUSED;
    (void)sim_recv(world, write->receiver, &event);
    if (write->state == WRITE_GHOST)
        memory_end(world, write);
}

void memory_revoke(struct sim_world *world, uint32_t rank, uint64_t rid, uint32_t tag)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);

    if (seat->tag != tag)
        sim_fail(world, "I8: a fence for a tag that is not in use");
    seat->fenced = true;
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->receiver != rank || write->rid != rid || write->tag != tag)
            continue;
        if (write->bounce == BOUNCE_WAITS)
            write->bounce = BOUNCE_REFUSED;
        if (write->bounce == BOUNCE_QUEUED)
            revoke(world, write);
    }
}

/* ---- dead processes ------------------------------------------------------------------------- */

void memory_ghosts(struct sim_world *world, uint32_t rank)
{
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->rank == rank && write->state != WRITE_GHOST)
            write->state = WRITE_GHOST;
        if (write->receiver == rank && write->bounce != BOUNCE_NONE)
            write->bounce = BOUNCE_REFUSED;
    }
}

void memory_ghosts_land(struct sim_world *world, uint32_t rank)
{
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->rank != rank || write->state != WRITE_GHOST)
            continue;
        memory_land(world, write); /* the latest moment at which it may */
        if (write->bounce != BOUNCE_QUEUED && write->bounce != BOUNCE_RUNNING)
            memory_end(world, write);
    }
}

/* ---- claims --------------------------------------------------------------------------------- */

/* I1, I2, I21: nobody can touch the pages that `rank` has for the request. */
void memory_check_drained(struct sim_world *world, uint32_t rank, uint64_t rid, const char *rule)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);

    if (world->knobs.garble)
        return;
    if (!world->ranks[rank].generation) {
        if (write_for(world, rank, SIM_NONE, rid) != NULL)
            sim_fail(world, "I21: rank %u is drained of request %u while it writes", rank,
                     (unsigned)rid);
        return;
    }
    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        const struct sim_write *write = &world->writes[__builtin_ctzll(left)];

        if (write->receiver == rank && write->rid == rid && write->tag == seat->tag &&
            (write->bounce == BOUNCE_QUEUED || write->bounce == BOUNCE_RUNNING))
            sim_fail(world, "I2: an own copy for request %u of %u has not ended", (unsigned)rid,
                     rank);
    }
    if (seat->bounce_only || world->silence)
        return;
    for (uint32_t writer = 0; writer < world->topology->contexts; writer++) {
        struct sim_ask *ask = ask_of(world, writer, rank, rid);

        if (ask->tag != seat->tag || ask->tag == 0 || ask->unsent)
            continue;
        if (seat->done_seen && (!seat->decided || seat->decision == SESSION_DECIDED_OK) &&
            !sim_takes_part(world, writer, rid))
            ask->waived = true; /* END may stay unanswered: it had nothing to send */
        if (!ask->waived && !ask->answered && !ask->proven && !ask->bounced)
            sim_fail(world, "%s: rank %u is drained of request %u, writer %u has not reported",
                     rule, rank, (unsigned)rid, writer);
    }
}

static void check_sent(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    for (uint32_t to = world->topology->contexts; to < world->ranks_count; to++)
        if (sim_takes_part(world, to, rid) &&
            ask_of(world, rank, to, rid)->ended != (1u << sim_slice_count(rid)) - 1)
            sim_fail(world, "I23: request %u of %u is done without a slice to %u", (unsigned)rid,
                     rank, to);
}

/* I23: all that was to be written is there. */
void memory_check_complete(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    uint64_t kept = 0;

    if (world->knobs.garble)
        return;
    if (!world->ranks[rank].generation) {
        check_sent(world, rank, rid);
        return;
    }
    for (uint32_t writer = 0; writer < world->topology->contexts; writer++) {
        if (!sim_takes_part(world, writer, rid))
            continue;
        for (uint32_t slice = 0; slice < sim_slice_count(rid); slice++) {
            const struct sim_cell *cell =
                &world->ranks[rank].pages[seat->page].cells[writer][slice];

            if (cell->rid != rid || cell->tag != seat->tag)
                sim_fail(world, "I23: request %u of %u is done without slice %u of %u",
                         (unsigned)rid, rank, slice, writer);
        }
    }
    memcpy(&kept, seat->aux, sizeof(kept));
    if (kept != rid)
        sim_fail(world, "I23: request %u of %u is done without its aux", (unsigned)rid, rank);
}

/* True when it is the final one: all slices are reported. */
static bool claim_slice(struct sim_world *world, struct sim_ask *ask,
                        const struct msg_report *report)
{
    if (report->slice >= SIM_SLICES_MAX || (ask->ended >> report->slice & 1u) == 0)
        sim_fail(world, "2.2: slice %u of request %u is reported before it is in the pages",
                 report->slice, (unsigned)report->rid);
    if (ask->claimed)
        sim_fail(world, "I5: success of request %u after its failure", (unsigned)report->rid);
    ask->told |= 1u << report->slice;
    ask->told_last = ask->told_last || report->is_last;
    return ask->told_last && ask->told == (1u << sim_slice_count(report->rid)) - 1;
}

/* FAILED, SETTLED, QUIESCED: no access, and none will be. */
static void claim_final(struct sim_world *world, struct sim_ask *ask, uint32_t rank, uint32_t to,
                        const struct msg *msg)
{
    uint64_t rid = msg->u.report.rid; /* the first field of all three */
    const struct sim_write *write = write_for(world, rank, to, rid);

    if (write != NULL && write->tag == ask->tag)
        sim_fail(world, "I20: rank %u says %s of request %u to %u while it writes", rank,
                 msg_type_name(msg->header.type), (unsigned)rid, to);
    if (msg->header.type != MSG_QUIESCED && ask->told_last &&
        ask->told == (1u << sim_slice_count(rid)) - 1)
        sim_fail(world, "I5: failure of request %u after its success", (unsigned)rid);
    if (msg->header.type == MSG_SETTLED && !ask->doubt && !ask->broken)
        sim_fail(world, "2.2: SETTLED of request %u without a doubt", (unsigned)rid);
    ask->claimed = true;
}

void memory_context_says(struct sim_world *world, uint32_t rank, uint32_t to, const struct msg *msg)
{
    _Static_assert(offsetof(struct msg, u.report.rid) == offsetof(struct msg, u.quiesced.rid) &&
                       offsetof(struct msg, u.report.tag) == offsetof(struct msg, u.quiesced.tag) &&
                       offsetof(struct msg, u.report.tag) == offsetof(struct msg, u.settled.tag) &&
                       offsetof(struct msg, u.report.tag) ==
                           offsetof(struct msg, u.session_cancelled.tag),
                   "all answers begin with rid and tag");
    struct sim_ask *ask;
    bool report = msg->header.type == MSG_REPORT;

    if (world->knobs.garble)
        return;
    ask = ask_of(world, rank, to, msg->u.report.rid);
    if (ask->tag != msg->u.report.tag ||
        ask->receiver_epoch != world->ranks[rank].channels[to].epoch)
        return; /* of an earlier life of the request */
    if (report && msg->u.report.status == MSG_REPORT_IN_DOUBT) {
        if (write_for(world, rank, to, msg->u.report.rid) == NULL)
            sim_fail(world, "2.2: a doubt without a write");
        ask->doubt = true;
        return;
    }
    if (msg->header.type == MSG_SESSION_CANCELLED)
        return;
    if (report && msg->u.report.status == MSG_REPORT_SUCCESS) {
        if (!claim_slice(world, ask, &msg->u.report))
            return;
    } else {
        claim_final(world, ask, rank, to, msg);
    }
    if (++ask->finals > ask->deliveries + ask->cancels)
        sim_fail(world, "I5: rank %u answers request %u of %u more often than it was asked", rank,
                 (unsigned)msg->u.report.rid, to);
}

void memory_generation_says(struct sim_world *world, uint32_t rank, uint32_t to,
                            const struct msg *msg)
{
    const struct msg_request_data *data = &msg->u.request_data;
    struct sim_seat *seat;
    struct sim_ask *ask;

    if (msg->header.type != MSG_REQUEST_DATA)
        return;
    seat = sim_seat(world, rank, data->rid);
    ask = ask_of(world, to, rank, data->rid);
    if (!seat->opened || seat->released || data->tag != seat->tag)
        sim_fail(world, "I37: request %u of %u is asked for without a session", (unsigned)data->rid,
                 rank);
    if (SESSION_VOTE_BASE(seat->vote) >= SESSION_VOTE_DOOMED_FAILED)
        sim_fail(world, "4.5: request %u of %u is asked for after its end", (unsigned)data->rid,
                 rank);
    *ask = (struct sim_ask){.tag = data->tag,
                            .writer_epoch = world->ranks[rank].channels[to].epoch,
                            .receiver_epoch = world->ranks[rank].epoch};
}

/* An ask that can't be served is answered at once, not at the end of some timer. */
void memory_check_refused(struct sim_world *world, uint32_t rank, uint32_t from,
                          const struct msg_request_data *data, enum kvf_status check)
{
    const struct sim_seat *seat;
    const struct sim_ask *ask;
    bool fenced;

    if (world->knobs.garble || world->knobs.tight || !net_up(world, rank, from))
        return;
    seat = sim_seat(world, rank, data->rid);
    ask = ask_of(world, rank, from, data->rid);
    fenced = seat->fenced && sim_awake_ns(world, rank) < seat->fenced_ns + SIM_TTL_NS;
    if (ask->tag == data->tag && ask->finals == 0 && (check != KVF_OK || fenced))
        sim_fail(world, "I5: rank %u does not answer request %u of %u at once", rank,
                 (unsigned)data->rid, from);
}

/* ---- what has arrived ----------------------------------------------------------------------- */

/* A cancel without a session fences the request for as long as the rank remembers it. */
static void hear_fence(struct sim_world *world, uint32_t rank, const struct msg *msg)
{
    struct sim_seat *seat = sim_seat(world, rank, msg->u.cancel_session.rid);

    if (seat->opened || seat->released || msg->u.cancel_session.reason == MSG_CANCEL_END)
        return;
    seat->fenced = !world->knobs.tight; /* a store with room for one fence forgets */
    seat->fenced_ns = sim_awake_ns(world, rank);
}

static void heard_at_context(struct sim_ask *ask, const struct msg *msg)
{
    if (msg->header.type == MSG_REQUEST_DATA && ask->tag == msg->u.request_data.tag)
        ask->deliveries++;
    if (msg->header.type == MSG_CANCEL_SESSION && ask->tag == msg->u.cancel_session.tag)
        ask->cancels++;
}

static void heard_report(struct sim_ask *ask, const struct msg_report *report)
{
    if (report->status == MSG_REPORT_FAILED)
        ask->answered = true;
    if (report->status != MSG_REPORT_SUCCESS || report->slice >= SIM_SLICES_MAX)
        return;
    ask->heard |= 1u << report->slice;
    ask->heard_last = ask->heard_last || report->is_last;
    if (ask->heard_last && ask->heard == (1u << sim_slice_count(report->rid)) - 1)
        ask->answered = true;
}

void memory_heard(struct sim_world *world, uint32_t rank, uint32_t from, const struct msg *msg)
{
    uint64_t rid = msg->u.report.rid;
    struct sim_ask *ask;

    if (world->knobs.garble)
        return;
    if (!world->ranks[rank].generation) {
        if (msg->header.type == MSG_CANCEL_SESSION)
            hear_fence(world, rank, msg);
        heard_at_context(ask_of(world, rank, from, rid), msg);
        return;
    }
    ask = ask_of(world, from, rank, rid);
    if (ask->tag != msg->u.report.tag)
        return;
    if (msg->header.type == MSG_REPORT)
        heard_report(ask, &msg->u.report);
    if (msg->header.type == MSG_SETTLED || msg->header.type == MSG_QUIESCED)
        ask->answered = true;
}
