/*
 * bounce_send_chunk.c - one chunk of a flow from its gather to its answer, and what is begun next.
 */
#include "check.h"
#include "xfer/bounce_send_internal.h"

static void give(struct send_step *step, struct send_flow *flow, uint32_t index,
                 enum bounce_send_action_kind kind)
{
    const struct send_chunk *chunk = send_chunk(flow, index);
    struct bounce_send_action action = {.kind = kind};

    action.u.chunk.chunk = index;
    action.u.chunk.len_bytes = chunk->len_bytes;
    if (chunk->staged)
        action.u.chunk.staging = arena_handle(step->send->params.arena, chunk->staging).offset;
    action.u.chunk.region = chunk->region;
    action.u.chunk.address = chunk->address;
    send_emit(step, &action, flow);
}

static void free_staging(struct send_step *step, struct send_flow *flow, struct send_chunk *chunk)
{
    struct arena *arena = step->send->params.arena;

    if (!chunk->staged)
        return;
    flow->staged_bytes -= arena_block_bytes(arena, arena_len(arena, chunk->staging));
    arena_free(arena, chunk->staging);
    chunk->staged = false;
}

/* ---- credits -------------------------------------------------------------------------------- */

static void post_put(struct send_step *step, struct send_flow *flow, uint32_t index)
{
    struct send_chunk *chunk = send_chunk(flow, index);

    arena_set_state(step->send->params.arena, chunk->staging, ARENA_STAGING);
    chunk->state = SEND_CHUNK_WRITING;
    flow->progress_ns = step->now_ns;
    step->send->counts.puts++;
    give(step, flow, index, BOUNCE_SEND_ACT_PUT);
}

static void log_credit(struct send_step *step, struct send_flow *flow,
                       const struct msg_credit *credit, const char *what)
{
    bounce_send_log(
        step, flow,
        &(struct bounce_log){.level = KVF_LOG_WARN,
                             .event = "W13",
                             .text = "a credit that does not fit: chunk, bytes, of chunks",
                             .what = what,
                             .numbers = {credit->chunk, credit->len_bytes, flow->chunk_count},
                             .number_count = 3});
}

/* Where the credit points to, and whether the chunk fits there. */
static const char *credit_wrong(const struct send_flow *flow, const struct send_chunk *chunk,
                                const struct msg_credit *credit)
{
    uint64_t offset = credit->address - flow->arena_base;

    if (credit->len_bytes < chunk->len_bytes)
        return "shorter than its chunk";
    if (credit->address < flow->arena_base || offset > flow->arena_bytes ||
        credit->len_bytes > flow->arena_bytes - offset || offset != credit->region.offset)
        return "outside the receiver's arena";
    if (credit->device != 0 || credit->medium != MSG_MEDIUM_RKEY)
        return "device or medium not known";
    return NULL;
}

void send_chunk_credit(struct send_step *step, struct send_flow *flow,
                       const struct msg_credit *credit)
{
    struct send_chunk *chunk;
    const char *wrong;

    if (credit->chunk >= flow->chunk_count || send_chunk(flow, credit->chunk)->credited) {
        step->send->counts.overgrants++;
        log_credit(step, flow, credit, "not wanted");
        return;
    }
    chunk = send_chunk(flow, credit->chunk);
    wrong = credit_wrong(flow, chunk, credit);
    if (wrong != NULL) {
        log_credit(step, flow, credit, wrong);
        send_fail(step, flow, BOUNCE_FAIL_PROTOCOL, KVF_OK);
        return;
    }
    chunk->credited = true;
    chunk->region = credit->region;
    chunk->address = credit->address;
    flow->progress_ns = step->now_ns;
    if (chunk->state == SEND_CHUNK_GATHERED)
        post_put(step, flow, credit->chunk);
    else if (chunk->staged)
        arena_set_state(step->send->params.arena, chunk->staging, ARENA_STAGING);
}

/* ---- begin ---------------------------------------------------------------------------------- */

/* A peer that is slow holds at most half of the arena. */
static bool within_share(const struct send_step *step, const struct send_flow *flow,
                         uint32_t len_bytes)
{
    const struct bounce_send *send = step->send;
    const struct arena *arena = send->params.arena;
    uint64_t share = arena_counts(arena)->usable_bytes / 2;
    uint64_t held = arena_block_bytes(arena, len_bytes);

    if (share < arena_block_bytes(arena, send->params.chunk_bytes))
        return true; /* one chunk at a time is all there is */
    for (struct list *node = list_first(&send->live); node != NULL;
         node = list_after(&send->live, node)) {
        const struct send_flow *other = list_object(node, struct send_flow, link);

        if (other->peer == flow->peer)
            held += other->staged_bytes;
    }
    return held <= share;
}

static bool take_staging(struct send_step *step, struct send_flow *flow, struct send_chunk *chunk)
{
    struct arena *arena = step->send->params.arena;
    const struct arena_want want = {
        .len_bytes = chunk->len_bytes,
        .state = chunk->credited ? ARENA_STAGING : ARENA_EAGER,
        .place = chunk->credited ? ARENA_ANYWHERE : ARENA_UPPER_HALF,
        .owner = flow->id,
    };

    if (!chunk->credited && !step->send->params.eager)
        return false;
    if (!within_share(step, flow, chunk->len_bytes) ||
        arena_take(arena, &want, &chunk->staging) != KVF_OK)
        return false;
    chunk->staged = true;
    flow->staged_bytes += arena_block_bytes(arena, chunk->len_bytes);
    return true;
}

/* The flow's next chunk, when there is all that it needs. */
static bool begin(struct send_step *step, struct send_flow *flow)
{
    struct bounce_send *send = step->send;
    struct send_chunk *chunk;
    uint32_t index = flow->next;

    if (flow->reason != BOUNCE_FAIL_NONE || flow->resolved || index == flow->chunk_count ||
        flow->inflight >= send->params.window || send->gathering >= send->params.gathers_max)
        return false;
    chunk = send_chunk(flow, index);
    if (flow->mapped ? !chunk->credited : !take_staging(step, flow, chunk))
        return false;
    flow->next++;
    flow->inflight++;
    flow->progress_ns = step->now_ns;
    send->gathering++;
    if (flow->mapped) {
        chunk->state = SEND_CHUNK_WRITING;
        send->counts.stores++;
        give(step, flow, index, BOUNCE_SEND_ACT_STORE);
    } else {
        chunk->state = SEND_CHUNK_GATHERING;
        send->counts.gathers++;
        give(step, flow, index, BOUNCE_SEND_ACT_GATHER);
    }
    return true;
}

void send_pump(struct send_step *step)
{
    struct bounce_send *send = step->send;
    bool again = !send->shutdown;

    while (again && send->gathering < send->params.gathers_max) {
        uint64_t flows = send->counts.flows;
        struct list *node = list_first(&send->live);

        again = false;
        for (; flows > 0; flows--) {
            struct list *next = list_after(&send->live, node);

            if (begin(step, list_object(node, struct send_flow, link))) {
                list_remove(node); /* whoever had a turn stands last */
                list_push(&send->live, node);
                again = true;
            }
            node = next;
        }
    }
}

/* ---- what ended ----------------------------------------------------------------------------- */

static void gather_over(struct send_step *step, struct send_flow *flow, struct send_chunk *chunk)
{
    KVF_ASSERT(step->send->gathering > 0);
    step->send->gathering--;
    if (chunk->state != SEND_CHUNK_ORPHAN_GATHER)
        return;
    free_staging(step, flow, chunk);
    chunk->state = SEND_CHUNK_DROPPED;
    flow->orphan_gathers--;
    step->send->counts.orphans--;
    send_orphan_ended(step, flow);
}

void send_chunk_gathered(struct send_step *step, struct send_flow *flow,
                         const struct bounce_send_event *event)
{
    struct send_chunk *chunk = send_chunk(flow, event->u.chunk.chunk);

    if (chunk->state == SEND_CHUNK_ORPHAN_GATHER) {
        if (event->u.chunk.idle)
            gather_over(step, flow, chunk);
        return;
    }
    if (chunk->state != SEND_CHUNK_GATHERING) {
        step->send->counts.unexpected_events++;
        return;
    }
    if (event->u.chunk.status != KVF_OK) {
        chunk->state = event->u.chunk.idle ? SEND_CHUNK_GATHERED : SEND_CHUNK_GATHER_FAILED;
        if (event->u.chunk.idle)
            gather_over(step, flow, chunk);
        send_fail(step, flow, BOUNCE_FAIL_GATHER, KVF_OK);
        return;
    }
    gather_over(step, flow, chunk);
    chunk->state = SEND_CHUNK_GATHERED;
    if (chunk->credited)
        post_put(step, flow, event->u.chunk.chunk);
}

void send_chunk_idle(struct send_step *step, struct send_flow *flow, uint32_t index)
{
    struct send_chunk *chunk = send_chunk(flow, index);

    if (chunk->state == SEND_CHUNK_ORPHAN_GATHER)
        gather_over(step, flow, chunk);
    else
        step->send->counts.unexpected_events++;
}

static void orphan_written(struct send_step *step, struct send_flow *flow, struct send_chunk *chunk)
{
    free_staging(step, flow, chunk);
    chunk->state = SEND_CHUNK_DROPPED;
    flow->orphan_writes--;
    step->send->counts.orphans--;
    send_orphan_ended(step, flow);
}

void send_chunk_written(struct send_step *step, struct send_flow *flow,
                        const struct bounce_send_event *event)
{
    struct send_chunk *chunk = send_chunk(flow, event->u.chunk.chunk);
    bool well = event->u.chunk.status == KVF_OK;

    if (chunk->state != SEND_CHUNK_WRITING && chunk->state != SEND_CHUNK_ORPHAN_WRITE) {
        step->send->counts.unexpected_events++;
        return;
    }
    if (flow->mapped)
        step->send->gathering--;
    else if (!well)
        flow->dirty = true; /* a store that ended writes nothing late; a put may */
    if (chunk->state == SEND_CHUNK_ORPHAN_WRITE) {
        orphan_written(step, flow, chunk);
        return;
    }
    flow->inflight--;
    free_staging(step, flow, chunk); /* it is read no more */
    if (!well) {
        chunk->state = SEND_CHUNK_DROPPED;
        send_fail(step, flow, BOUNCE_FAIL_WRITE, KVF_OK);
        return;
    }
    chunk->state = SEND_CHUNK_SENT;
    flow->unanswered++;
    step->send->counts.datas++;
    give(step, flow, event->u.chunk.chunk, BOUNCE_SEND_ACT_DATA);
}

/* ---- failure -------------------------------------------------------------------------------- */

static void give_up(struct send_step *step, struct send_flow *flow, uint32_t index)
{
    struct arena *arena = step->send->params.arena;
    struct send_chunk *chunk = send_chunk(flow, index);

    switch ((enum send_chunk_state)chunk->state) {
    case SEND_CHUNK_WRITING:
        chunk->state = SEND_CHUNK_ORPHAN_WRITE;
        flow->orphan_writes++;
        step->send->counts.orphans++;
        if (chunk->staged)
            arena_set_state(arena, chunk->staging, ARENA_ORPHAN_WRITE);
        if (flow->mapped)
            give(step, flow, index, BOUNCE_SEND_ACT_STOP);
        return;
    case SEND_CHUNK_GATHERING:
    case SEND_CHUNK_GATHER_FAILED:
        if (chunk->state == SEND_CHUNK_GATHERING)
            give(step, flow, index, BOUNCE_SEND_ACT_STOP);
        chunk->state = SEND_CHUNK_ORPHAN_GATHER;
        flow->orphan_gathers++;
        step->send->counts.orphans++;
        arena_set_state(arena, chunk->staging, ARENA_ORPHAN_GATHER);
        return;
    case SEND_CHUNK_GATHERED:
        free_staging(step, flow, chunk);
        chunk->state = SEND_CHUNK_DROPPED;
        return;
    case SEND_CHUNK_UNPOSTED:
    case SEND_CHUNK_SENT: /* stays unanswered */
    case SEND_CHUNK_ANSWERED:
    case SEND_CHUNK_ORPHAN_GATHER:
    case SEND_CHUNK_ORPHAN_WRITE:
    case SEND_CHUNK_DROPPED:
        return;
    }
}

void send_chunks_give_up(struct send_step *step, struct send_flow *flow)
{
    for (uint32_t c = 0; c < flow->next; c++)
        give_up(step, flow, c);
    flow->inflight = 0;
}

void send_tell_orphans(struct send_step *step, struct send_flow *flow)
{
    struct bounce_log log = {.level = KVF_LOG_WARN, .what = "", .number_count = 1};

    flow->orphans_told = true;
    log.event = "W17";
    log.text = "puts of a failed flow do not end";
    log.numbers[0] = flow->orphan_writes;
    if (flow->orphan_writes > 0)
        bounce_send_log(step, flow, &log);
    log.event = "W18";
    log.text = "gathers of a failed flow do not end";
    log.numbers[0] = flow->orphan_gathers;
    if (flow->orphan_gathers > 0)
        bounce_send_log(step, flow, &log);
}

/* ---- for tests ------------------------------------------------------------------------------ */

struct sums {
    uint64_t staged_bytes;
    uint32_t gathering, writes, gathers, sent, acked, inflight, begun;
};

static void check_chunk(const struct bounce_send *send, const struct send_flow *flow,
                        const struct send_chunk *chunk, struct sums *sums)
{
    bool gathers = chunk->state == SEND_CHUNK_GATHERING ||
                   chunk->state == SEND_CHUNK_GATHER_FAILED ||
                   chunk->state == SEND_CHUNK_ORPHAN_GATHER;
    bool writes = chunk->state == SEND_CHUNK_WRITING || chunk->state == SEND_CHUNK_ORPHAN_WRITE;

    KVF_ASSERT(chunk->staged ==
               (!flow->mapped && (gathers || writes || chunk->state == SEND_CHUNK_GATHERED)));
    if (chunk->staged) {
        KVF_ASSERT(arena_owner(send->params.arena, chunk->staging) == flow->id);
        sums->staged_bytes += arena_block_bytes(send->params.arena, chunk->len_bytes);
    }
    KVF_ASSERT(!writes || chunk->credited);
    sums->gathering += gathers || (writes && flow->mapped);
    sums->writes += chunk->state == SEND_CHUNK_ORPHAN_WRITE;
    sums->gathers += chunk->state == SEND_CHUNK_ORPHAN_GATHER;
    sums->sent += chunk->state == SEND_CHUNK_SENT;
    sums->inflight += chunk->state == SEND_CHUNK_GATHERING || chunk->state == SEND_CHUNK_GATHERED ||
                      chunk->state == SEND_CHUNK_WRITING;
    sums->begun += chunk->state != SEND_CHUNK_UNPOSTED;
    if (flow->reason != BOUNCE_FAIL_NONE)
        KVF_ASSERT(chunk->state == SEND_CHUNK_UNPOSTED || chunk->state >= SEND_CHUNK_SENT);
}

static void check_flow(const struct bounce_send *send, const struct send_flow *flow,
                       struct sums *all)
{
    struct sums sums = {0};

    for (uint32_t c = 0; c < flow->chunk_count; c++)
        check_chunk(send, flow, send_chunk(flow, c), &sums);
    KVF_ASSERT(flow->id != 0);
    KVF_ASSERT(sums.begun == flow->next);
    KVF_ASSERT(sums.inflight == flow->inflight);
    KVF_ASSERT(sums.writes == flow->orphan_writes && sums.gathers == flow->orphan_gathers);
    KVF_ASSERT(sums.staged_bytes == flow->staged_bytes);
    KVF_ASSERT(flow->resolved || sums.sent == flow->unanswered);
    KVF_ASSERT(!flow->resolved || flow->orphan_writes + flow->orphan_gathers > 0);
    KVF_ASSERT(!flow->cancel_due || flow->orphan_writes > 0 || send->shutdown);
    KVF_ASSERT(!flow->held || (flow->reason != BOUNCE_FAIL_NONE && flow->unanswered > 0));
    KVF_ASSERT(flow->held || flow->resolved || flow->reason == BOUNCE_FAIL_NONE);
    all->staged_bytes += sums.staged_bytes;
    all->gathering += sums.gathering;
    all->writes += flow->held;
    all->gathers += sums.writes + sums.gathers;
}

void bounce_send_check(const struct bounce_send *send)
{
    const struct arena_counts *counts = arena_counts(send->params.arena);
    struct sums all = {0};
    uint64_t flows = 0;

    for (struct list *node = list_first(&send->live); node != NULL;
         node = list_after(&send->live, node)) {
        check_flow(send, list_object(node, struct send_flow, link), &all);
        flows++;
    }
    KVF_ASSERT(flows == send->counts.flows);
    KVF_ASSERT(all.writes == send->counts.held && all.gathers == send->counts.orphans);
    KVF_ASSERT(all.gathering == send->gathering && send->gathering <= send->params.gathers_max);
    KVF_ASSERT(all.staged_bytes == counts->state_bytes[ARENA_EAGER] +
                                       counts->state_bytes[ARENA_STAGING] +
                                       counts->state_bytes[ARENA_ORPHAN_WRITE] +
                                       counts->state_bytes[ARENA_ORPHAN_GATHER]);
    KVF_ASSERT(counts->state_bytes[ARENA_EAGER] <= counts->usable_bytes / 2);
    arena_check(send->params.arena);
}
