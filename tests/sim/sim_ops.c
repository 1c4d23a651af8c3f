/*
 * sim_ops.c - what happens when an op is applied to a world, and ops as text. An op that can't
 * happen where it stands is left out: so that a schedule stays one when others are taken out of it.
 */
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 64u

static const char *const names[SIM_OP_KINDS] = {
    [OP_DELIVER] = "deliver", [OP_LAND] = "land",       [OP_SCATTER] = "scatter",
    [OP_END] = "end",         [OP_FAIL] = "fail",       [OP_DOUBT] = "doubt",
    [OP_SETTLE] = "settle",   [OP_OPEN] = "open",       [OP_WINDOW] = "window",
    [OP_READY] = "ready",     [OP_CANCEL] = "cancel",   [OP_AGAIN] = "again",
    [OP_COLLECT] = "collect", [OP_DECIDE] = "decide",   [OP_TICK] = "tick",
    [OP_TIME] = "time",       [OP_STOP] = "stop",       [OP_CONT] = "cont",
    [OP_LOSE] = "lose",       [OP_HELLO] = "hello",     [OP_KILL] = "kill",
    [OP_PROOF] = "proof",     [OP_RESTART] = "restart", [OP_DUP] = "dup",
    [OP_CORRUPT] = "corrupt", [OP_ABSENT] = "absent",   [OP_SHUTDOWN] = "shutdown",
    [OP_BYE] = "bye",
};

size_t ops_text(const struct sim_op *op, char *text_out, size_t text_bytes)
{
    int len = snprintf(text_out, text_bytes, "%s %u %u %u", names[op->kind], op->a, op->b, op->c);

    return len < 0 ? 0 : (size_t)len;
}

const char *ops_parse(const char *text, struct sim_op *op_out)
{
    unsigned a, b, c;
    char name[16];
    int used = 0;

    if (sscanf(text, " %15[a-z] %u %u %u%n", name, &a, &b, &c, &used) != 4)
        return NULL;
    for (unsigned kind = 0; kind < SIM_OP_KINDS; kind++)
        if (strcmp(names[kind], name) == 0) {
            *op_out = (struct sim_op){(uint8_t)kind, (uint8_t)a, (uint8_t)b, c};
            return text + used + strspn(text + used, "; \n");
        }
    return NULL;
}

/* ---- the engine ----------------------------------------------------------------------------- */

uint64_t ops_next_open(const struct sim_world *world, uint32_t rank)
{
    const struct sim_rank *self = &world->ranks[rank];

    for (uint32_t i = 0; i < world->knobs.requests; i++) {
        uint64_t rid = world->order[i];
        const struct sim_seat *seat = &self->seats[rid - 1];

        if (seat->opened || seat->absent || seat->withheld || !sim_takes_part(world, rank, rid))
            continue;
        return memory_free_page(world, rank) == SIM_NONE ? 0 : rid;
    }
    return 0;
}

static enum kvf_status open_send(struct sim_world *world, uint32_t rank, uint64_t rid,
                                 uint32_t page)
{
    struct kvf_block_list list = {0, 1, &page};
    struct send_event event = {
        .kind = SEND_OPEN,
        .u.open = {
            .rid = rid, .prompt_tokens = TOKENS, .list_count = 1, .lists = &list, .aux = &rid}};

    _Static_assert(sizeof(rid) == SIM_AUX_BYTES, "aux is the request's number");
    event.u.open.group = sim_fact(world, 50, 20, rank, rid)
                             ? (uint32_t)(rid % world->topology->generation_groups)
                             : SESSION_GROUP_UNKNOWN;
    return sim_send(world, rank, &event);
}

static enum kvf_status open_recv(struct sim_world *world, uint32_t rank, uint64_t rid,
                                 uint32_t page)
{
    const struct sim_topology *topology = world->topology;
    struct sim_seat *seat = sim_seat(world, rank, rid);
    struct recv_writer_params writers[SIM_RANKS_MAX] = {{0}};
    struct kvf_block_list list = {0, 1, &page};
    struct recv_event event = {.kind = RECV_OPEN,
                               .u.open = {.rid = rid,
                                          .prompt_tokens = TOKENS,
                                          .list_count = 1,
                                          .lists = &list,
                                          .writers = writers,
                                          .aux = seat->aux,
                                          .bounce_only = seat->bounce_only}};
    bool known = !world->knobs.broadcast_only && sim_fact(world, 50, 21, rank, rid);
    uint32_t count = 0;

    for (uint32_t context = 0; context < topology->contexts; context++) {
        uint32_t group = sim_group_of(world, context);

        if (known && !sim_takes_part(world, context, rid))
            continue;
        writers[count].rank = context;
        writers[count].group = group;
        writers[count].aux = count == 0 || writers[count - 1].group != group;
        for (uint32_t slice = 0; slice < sim_slice_count(rid); slice++)
            writers[count].plan_bytes += sim_slice_bytes(rid, context, rank, slice);
        count++;
    }
    event.u.open.writer_count = count;
    return sim_recv(world, rank, &event);
}

static bool apply_open(struct sim_world *world, uint32_t rank)
{
    uint64_t rid = ops_next_open(world, rank);
    bool generation = world->ranks[rank].generation;
    struct sim_seat *seat;
    struct sim_page *page;
    enum kvf_status status;

    if (rid == 0)
        return false;
    seat = sim_seat(world, rank, rid);
    seat->page = memory_free_page(world, rank);
    page = &world->ranks[rank].pages[seat->page];
    *page = (struct sim_page){.rid = rid};
    seat->opened = true;
    seat->bounce_only = generation && sim_fact(world, world->knobs.bounce_percent, 22, rank, rid);
    status = generation ? open_recv(world, rank, rid, seat->page)
                        : open_send(world, rank, rid, seat->page);
    if (status == KVF_OK) {
        group_opened(world, rank, rid);
        return true;
    }
    page->rid = 0;
    seat->opened = false;
    if (status != KVF_BUSY)
        group_absent(world, rank, rid);
    return status != KVF_BUSY || !world->draining;
}

static bool live(const struct sim_world *world, uint32_t rank, uint32_t rid)
{
    const struct sim_seat *seat;

    if (rid == 0 || rid > SIM_REQUESTS_MAX || !sim_runs(world, rank))
        return false;
    seat = &world->ranks[rank].seats[rid - 1];
    return seat->opened && !seat->released;
}

static bool apply_window(struct sim_world *world, uint32_t rank, uint32_t rid)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    struct send_event event = {.kind = SEND_WINDOW, .u.window = {.rid = rid}};
    bool last = seat->windows + 1 == sim_slice_count(rid);

    if (!live(world, rank, rid) || seat->last_window || world->ranks[rank].generation)
        return false;
    event.u.window.ready =
        seat->window_waits || !sim_fact(world, 30, 23 + rank, rid, seat->windows);
    event.u.window.window = (struct session_window){
        .token_first = seat->windows, .token_end = seat->windows + 1, .last = last};
    if (sim_send(world, rank, &event) == KVF_BUSY)
        return !world->draining;
    seat->windows++;
    seat->last_window = last;
    if (!event.u.window.ready && world->slice_given != KVF_UNKNOWN) {
        seat->window_waits = true;
        seat->waiting_slice = world->slice_given;
    }
    return true;
}

static bool apply_ready(struct sim_world *world, uint32_t rank, uint32_t rid)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    struct send_event event = {.kind = SEND_WINDOW_READY,
                               .u.ready = {.rid = rid, .slice = seat->waiting_slice}};

    if (!live(world, rank, rid) || !seat->window_waits)
        return false;
    seat->window_waits = false;
    (void)sim_send(world, rank, &event);
    return true;
}

static bool apply_cancel(struct sim_world *world, uint32_t rank, uint32_t rid)
{
    struct send_event send = {.kind = SEND_CANCEL, .u.cancel = {rid, KVF_E_CANCELLED}};
    struct recv_event recv = {.kind = RECV_CANCEL, .u.cancel = {rid, KVF_E_CANCELLED}};

    if (!sim_runs(world, rank) || !sim_seat(world, rank, rid)->opened)
        return false;
    if (world->ranks[rank].generation)
        (void)sim_recv(world, rank, &recv);
    else
        (void)sim_send(world, rank, &send);
    return true;
}

/* A second open of a live request disturbs nothing. */
static bool apply_again(struct sim_world *world, uint32_t rank, uint32_t rid)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    enum kvf_status status;

    if (!live(world, rank, rid) || world->ranks[rank].shut || world->ranks[rank].ended)
        return false;
    status = world->ranks[rank].generation ? open_recv(world, rank, rid, seat->page)
                                           : open_send(world, rank, rid, seat->page);
    if (status != KVF_E_EXISTS)
        sim_fail(world, "4.1: request %u of %u is opened twice: %s", rid, rank,
                 kvf_status_name(status));
    return true;
}

static bool apply_shutdown(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    struct send_event send = {.kind = SEND_CANCEL_ALL, .u.cancel.code = KVF_E_SHUTDOWN};
    struct recv_event recv = {.kind = RECV_CANCEL_ALL, .u.cancel.code = KVF_E_SHUTDOWN};

    if (!sim_runs(world, rank) || self->shut)
        return false;
    self->shut = true;
    if (self->generation)
        (void)sim_recv(world, rank, &recv);
    else
        (void)sim_send(world, rank, &send);
    return true;
}

/* It leaves with nothing running: nobody has to wait for proof. */
static bool apply_bye(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];

    if (!sim_runs(world, rank) || !self->shut || self->bye)
        return false;
    for (uint32_t i = 0; i < world->knobs.requests; i++)
        if (self->seats[i].opened && !self->seats[i].released)
            return false;
    if (!group_left(world, rank))
        return false;
    self->bye = true;
    for (uint32_t other = 0; other < world->ranks_count; other++) {
        if (net_up(world, rank, other))
            net_bye(world, rank, other);
        if (world->ranks[other].generation != self->generation && !net_up(world, other, rank))
            world->ranks[other].proof_due[rank] = true;
    }
    self->alive = false;
    return true;
}

/* ---- writes --------------------------------------------------------------------------------- */

static bool apply_end(struct sim_world *world, struct sim_write *write)
{
    struct sim_ask *ask = &world->asks[write->rank][write->receiver][write->rid - 1];
    struct send_event event = {.kind = SEND_TASK_ENDED,
                               .u.task = {.task = write->task, .path = KVF_PATH_MAPPED}};

    if (write->bounce == BOUNCE_QUEUED || write->bounce == BOUNCE_RUNNING ||
        (write->bounce == BOUNCE_WAITS && !write->aborted))
        return false;
    if (write->bounce == BOUNCE_NONE && !write->aborted)
        memory_land(world, write);
    if (write->bounce != BOUNCE_NONE)
        event.u.task.path = KVF_PATH_BOUNCE;
    if (!write->landed || write->bounce == BOUNCE_REFUSED ||
        (write->aborted && (write->task & 1u) != 0)) {
        event.u.task.status = KVF_E_CANCELLED;
    } else {
        event.u.task.bytes =
            sim_slice_bytes(write->rid, write->rank, write->receiver, write->slice);
        if (ask->tag == write->tag)
            ask->ended |= 1u << write->slice;
    }
    memory_end(world, write);
    (void)sim_send(world, write->rank, &event);
    return true;
}

static bool apply_trouble(struct sim_world *world, struct sim_write *write, enum sim_op_kind kind)
{
    struct send_event event = {.kind = SEND_TASK_ENDED,
                               .u.task = {.task = write->task, .status = KVF_E_TRANSFER}};
    bool waits = write->bounce == BOUNCE_WAITS && kind == OP_FAIL;

    if (write->bounce != BOUNCE_NONE && !waits)
        return false;
    if (write->state != (kind == OP_SETTLE ? WRITE_DOUBT : WRITE_RUNNING))
        return false;
    if (kind == OP_DOUBT) {
        event.kind = SEND_TASK_IN_DOUBT;
        write->state = WRITE_DOUBT;
    } else {
        event.kind = kind == OP_SETTLE ? SEND_TASK_SETTLED : SEND_TASK_ENDED;
        memory_end(world, write);
    }
    (void)sim_send(world, write->rank, &event);
    return true;
}

static bool apply_write(struct sim_world *world, const struct sim_op *op)
{
    enum sim_op_kind kind = (enum sim_op_kind)op->kind;
    struct sim_write *write = &world->writes[op->c / 2 % SIM_WRITES_MAX];

    if (write->state == WRITE_NONE)
        return false;
    if (kind == OP_LAND && write->bounce == BOUNCE_WAITS) {
        if (write->state != WRITE_RUNNING || !sim_runs(world, write->receiver))
            return false;
        memory_arrive(world, write);
        return true;
    }
    if (kind == OP_LAND) {
        if (write->landed || write->bounce != BOUNCE_NONE)
            return false;
        memory_land(world, write);
        return true;
    }
    if (kind == OP_SCATTER) {
        if ((write->bounce != BOUNCE_QUEUED && write->bounce != BOUNCE_RUNNING) ||
            !sim_runs(world, write->receiver))
            return false;
        memory_scatter(world, write, (op->c & 1u) == 0);
        return true;
    }
    if (!sim_runs(world, write->rank) || write->state == WRITE_GHOST)
        return false;
    if (kind == OP_END)
        return write->state == WRITE_RUNNING && apply_end(world, write);
    return apply_trouble(world, write, kind);
}

/* ---- lives ---------------------------------------------------------------------------------- */

static bool apply_cont(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];

    if (!self->alive || !self->stopped)
        return false;
    self->stopped = false;
    self->slept_ns += world->now_ns - self->stopped_ns; /* I30: the awake clock stood still, */
    for (uint32_t from = 0; from < world->ranks_count; from++)
        while (net_deliver(world, from, rank, 0)) /* messages come first, */
            ;
    net_tick(world, rank); /* then timers */
    sim_tick(world, rank);
    return true;
}

static bool apply_kill(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];

    if (!self->alive)
        return false;
    self->alive = self->stopped = false;
    self->follow_count = self->decision_count = 0;
    memory_ghosts(world, rank);
    group_lost(world, rank);
    for (uint32_t other = 0; other < world->ranks_count; other++)
        if (world->ranks[other].generation != self->generation && !net_up(world, other, rank))
            world->ranks[other].proof_due[rank] = true;
    world->disturbed = true;
    world->tally->killed++;
    return true;
}

static bool apply_proof(struct sim_world *world, uint32_t rank, uint32_t dead)
{
    struct sim_rank *self = &world->ranks[rank];
    struct recv_event late = {.kind = RECV_PEER_PROOF};

    if (!sim_runs(world, rank) || dead >= world->ranks_count)
        return false;
    if (self->generation && self->old_epoch[dead] != 0) { /* the next life was faster */
        late.u.peer.peer = dead;
        late.u.peer.epoch = self->old_epoch[dead];
        self->old_epoch[dead] = 0;
        (void)sim_recv(world, rank, &late);
        return true;
    }
    if (!self->proof_due[dead] || world->ranks[dead].alive)
        return false;
    self->proof_due[dead] = false;
    memory_ghosts_land(world, dead);
    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++)
        world->asks[dead][rank][i].proven = true;
    if (self->generation)
        sim_peer(world, rank, dead, RECV_PEER_PROOF, SEND_PEER_LOST);
    return true;
}

static bool apply_hello(struct sim_world *world, uint32_t a, uint32_t b)
{
    if (!sim_runs(world, a) || !sim_runs(world, b) || net_up(world, a, b) || net_up(world, b, a) ||
        world->ranks[a].generation == world->ranks[b].generation)
        return false;
    net_hello(world, a, b);
    net_hello(world, b, a);
    return true;
}

static bool apply_link(struct sim_world *world, const struct sim_op *op)
{
    switch ((enum sim_op_kind)op->kind) {
    case OP_LOSE:
        if (!sim_runs(world, op->a) || op->b >= world->ranks_count || !net_up(world, op->a, op->b))
            return false;
        net_lose(world, op->a, op->b, CHANNEL_CAUSE_OUTSIDE);
        return true;
    case OP_HELLO:
        return apply_hello(world, op->a, op->b);
    case OP_STOP:
        if (!sim_runs(world, op->a))
            return false;
        world->ranks[op->a].stopped = true;
        world->ranks[op->a].stopped_ns = world->now_ns;
        return true;
    case OP_CONT:
        return apply_cont(world, op->a);
    case OP_KILL:
        return apply_kill(world, op->a);
    case OP_PROOF:
        return apply_proof(world, op->a, op->b);
    case OP_RESTART:
        if (world->ranks[op->a].alive || world->ranks[op->a].bye)
            return false;
        sim_world_restart(world, op->a);
        return true;
    case OP_DELIVER:
    case OP_LAND:
    case OP_SCATTER:
    case OP_END:
    case OP_FAIL:
    case OP_DOUBT:
    case OP_SETTLE:
    case OP_OPEN:
    case OP_WINDOW:
    case OP_READY:
    case OP_CANCEL:
    case OP_AGAIN:
    case OP_COLLECT:
    case OP_DECIDE:
    case OP_TICK:
    case OP_TIME:
    case OP_DUP:
    case OP_CORRUPT:
    case OP_ABSENT:
    case OP_SHUTDOWN:
    case OP_BYE:
        break;
    }
    return false;
}

/* ---- all ------------------------------------------------------------------------------------ */

static bool apply_absent(struct sim_world *world, uint32_t rank, uint32_t rid)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);

    if (seat->opened || seat->absent || !sim_runs(world, rank))
        return false;
    group_absent(world, rank, rid);
    return true;
}

static bool apply_tick(struct sim_world *world, uint32_t rank)
{
    if (!sim_runs(world, rank))
        return false;
    net_tick(world, rank);
    sim_tick(world, rank);
    return true;
}

static bool apply(struct sim_world *world, const struct sim_op *op)
{
    switch ((enum sim_op_kind)op->kind) {
    case OP_DELIVER:
        return op->b < world->ranks_count && !world->ranks[op->b].stopped &&
               net_deliver(world, op->a, op->b, op->c);
    case OP_LAND:
    case OP_SCATTER:
    case OP_END:
    case OP_FAIL:
    case OP_DOUBT:
    case OP_SETTLE:
        return apply_write(world, op);
    case OP_OPEN:
        return sim_runs(world, op->a) && apply_open(world, op->a);
    case OP_WINDOW:
        return apply_window(world, op->a, op->b);
    case OP_READY:
        return apply_ready(world, op->a, op->b);
    case OP_CANCEL:
        return apply_cancel(world, op->a, op->b);
    case OP_AGAIN:
        return apply_again(world, op->a, op->b);
    case OP_COLLECT:
        return sim_runs(world, op->a) && group_sweep(world, op->a, op->c != 0);
    case OP_DECIDE:
        return sim_runs(world, op->a) && group_decide(world, op->a);
    case OP_TICK:
        return apply_tick(world, op->a);
    case OP_TIME:
        world->now_ns += op->c * UINT64_C(1000000);
        return true;
    case OP_DUP:
        return net_duplicate(world, op->a, op->b);
    case OP_CORRUPT:
        return net_corrupt(world, op->a, op->b, op->c);
    case OP_ABSENT:
        return apply_absent(world, op->a, op->b);
    case OP_SHUTDOWN:
        return apply_shutdown(world, op->a);
    case OP_BYE:
        return apply_bye(world, op->a);
    case OP_STOP:
    case OP_CONT:
    case OP_LOSE:
    case OP_HELLO:
    case OP_KILL:
    case OP_PROOF:
    case OP_RESTART:
        break;
    }
    return apply_link(world, op);
}

bool ops_apply(struct sim_world *world, const struct sim_op *op)
{
    bool done;

    if (op->a >= world->ranks_count || op->b >= SIM_RANKS_MAX + 1)
        return false;
    if (world->trace)
        (void)ops_text(op, world->pending, sizeof(world->pending));
    done = apply(world, op);
    if (done && world->pending[0] != '\0')
        sim_say(world, "%s", "");
    world->pending[0] = '\0';
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        if (world->ranks[rank].lose_due != 0)
            net_lose_due(world, rank);
    return done;
}
