/*
 * sim_world.c - the ranks of a simulated world: their machines, one step of each, and what becomes
 * of the actions. Memory comes from an arena that is emptied before each schedule.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ARENA_BYTES (8u << 20)
#define OUT_MAX 16u

static struct {
    _Alignas(64) uint8_t bytes[ARENA_BYTES];
    size_t used;
} arena;

static void *arena_alloc(void *self, size_t count, size_t size)
{
    size_t len_bytes = (count * size + 63) / 64 * 64;
    uint8_t *at = arena.bytes + arena.used;

    (void)self;
    if (len_bytes > ARENA_BYTES - arena.used)
        return NULL;
    arena.used += len_bytes;
    return memset(at, 0, len_bytes);
}

static void arena_release(void *self, void *memory)
{
    (void)self;
    (void)memory;
}

const struct kvf_heap sim_heap = {.alloc = arena_alloc, .release = arena_release};

/* ---- facts ---------------------------------------------------------------------------------- */

bool sim_fact(const struct sim_world *world, unsigned percent, uint64_t what, uint64_t a,
              uint64_t b)
{
    struct test_random random = test_random_make(world->salt ^ (what << 48 | a << 24 | b));

    return percent > 0 && test_random_below(&random, 100) < percent;
}

enum kvf_status sim_verdict(const struct sim_world *world, uint32_t rank, uint32_t other)
{
    return sim_fact(world, world->knobs.unfit_percent, 1, rank, world->ranks[other].epoch)
               ? KVF_E_INCOMPATIBLE
               : KVF_OK;
}

uint32_t sim_slice_count(uint64_t rid)
{
    return 1 + (uint32_t)(rid % SIM_SLICES_MAX);
}

uint64_t sim_slice_bytes(uint64_t rid, uint32_t writer, uint32_t reader, uint32_t slice)
{
    return (rid * 7 + writer * 5 + reader * 3 + slice) % 4 * 4096;
}

uint32_t sim_group_of(const struct sim_world *world, uint32_t rank)
{
    const struct sim_topology *topology = world->topology;

    if (rank < topology->contexts)
        return rank * topology->context_groups / topology->contexts;
    return (rank - topology->contexts) * topology->generation_groups / topology->generations;
}

bool sim_takes_part(const struct sim_world *world, uint32_t rank, uint64_t rid)
{
    uint32_t groups = world->ranks[rank].generation ? world->topology->generation_groups
                                                    : world->topology->context_groups;

    return groups == 1 || sim_group_of(world, rank) == rid % groups;
}

struct sim_seat *sim_seat(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    if (rid == 0 || rid > SIM_REQUESTS_MAX)
        sim_fail(world, "a machine speaks of request %llu", (unsigned long long)rid);
    return &world->ranks[rank].seats[rid - 1];
}

bool sim_runs(const struct sim_world *world, uint32_t rank)
{
    return rank < world->ranks_count && world->ranks[rank].alive && !world->ranks[rank].stopped;
}

uint64_t sim_awake_ns(const struct sim_world *world, uint32_t rank)
{
    return world->now_ns - world->ranks[rank].slept_ns;
}

/* ---- saying --------------------------------------------------------------------------------- */

void sim_fail(struct sim_world *world, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(world->failure, sizeof(world->failure), format, args);
    va_end(args);
    sim_say(world, "FAILS: %s\n", world->failure);
    longjmp(*world->out, 1);
}

void sim_say(struct sim_world *world, const char *format, ...)
{
    va_list args;

    if (!world->trace)
        return;
    if (world->pending[0] != '\0')
        printf("%s\n", world->pending);
    world->pending[0] = '\0';
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
}

/* ---- opening -------------------------------------------------------------------------------- */

static const struct session_times sim_times = {SIM_T_NS, SIM_TTL_NS, UINT64_C(1000000000),
                                               UINT64_C(5000000000)};

static void open_send(struct sim_world *world, uint32_t rank, const struct session_self *self)
{
    const struct sim_topology *topology = world->topology;
    bool tight = world->knobs.tight;
    uint32_t generations[SIM_RANKS_MAX];
    uint32_t groups[SIM_RANKS_MAX];
    struct send_group by_index[SIM_RANKS_MAX];
    struct send_params params = {.times = sim_times,
                                 .self = *self,
                                 .log_level = KVF_LOG_WARN,
                                 .world_size = world->ranks_count,
                                 .requests_max = tight ? 2 : 6,
                                 .asks_max = tight ? 2 : 8,
                                 .fences_max = tight ? 1 : 8,
                                 .tombstones_max = tight ? 1 : 8,
                                 .receivers_max = tight ? 5 : 32,
                                 .served_max = tight ? 2 : 32,
                                 .windows_max = tight ? 4 : 24,
                                 .tasks_max = tight ? 1 : 4,
                                 .answers_max = tight ? 3 : 32,
                                 .blocks_max = tight ? 8 : 64,
                                 .lists_max = 1,
                                 .aux_bytes = SIM_AUX_BYTES,
                                 .groups = by_index,
                                 .group_count = topology->generation_groups,
                                 .group_of = groups};

    for (uint32_t i = 0; i < world->ranks_count; i++)
        groups[i] = i < topology->contexts ? SESSION_GROUP_UNKNOWN : sim_group_of(world, i);
    for (uint32_t i = 0; i < topology->generations; i++)
        generations[i] = topology->contexts + i;
    for (uint32_t i = 0; i < topology->generation_groups; i++) {
        uint32_t count = topology->generations / topology->generation_groups;

        by_index[i] = (struct send_group){generations + (size_t)i * count, count};
    }
    if (send_session_open(&sim_heap, &params, &world->ranks[rank].send) != KVF_OK)
        sim_fail(world, "a send side does not open");
}

static void open_recv(struct sim_world *world, uint32_t rank, const struct session_self *self)
{
    bool tight = world->knobs.tight;
    struct recv_params params = {.times = sim_times,
                                 .self = *self,
                                 .log_level = KVF_LOG_WARN,
                                 .silence = world->knobs.release ? RECV_RELEASE : RECV_STRAND,
                                 .world_size = world->ranks_count,
                                 .requests_max = tight ? 2 : 6,
                                 .remembered_max = tight ? 1 : 8,
                                 .writers_max = tight ? world->topology->contexts : 24,
                                 .slices_max = SIM_SLICES_MAX,
                                 .blocks_max = tight ? 2 : 16,
                                 .lists_max = 1,
                                 .aux_bytes = SIM_AUX_BYTES};

    if (recv_session_open(&sim_heap, &params, &world->ranks[rank].recv) != KVF_OK)
        sim_fail(world, "a receive side does not open");
}

static void open_rank(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    struct session_self name = {(uint16_t)(self->generation ? 1 : 0), (uint16_t)rank, self->epoch};

    self->alive = true;
    if (self->generation)
        open_recv(world, rank, &name);
    else
        open_send(world, rank, &name);
    self->store = NULL;
    if (world->knobs.wire && channel_store_open(&sim_heap, 16u << 10, &self->store) != KVF_OK)
        sim_fail(world, "a store of early messages does not open");
    for (uint32_t other = 0; other < world->ranks_count; other++)
        channel_init(&self->channels[other], self->store);
}

void sim_peer(struct sim_world *world, uint32_t rank, uint32_t other,
              enum recv_event_kind recv_kind, enum send_event_kind send_kind)
{
    uint64_t epoch = world->ranks[rank].hello_epoch[other];
    enum kvf_status verdict = sim_verdict(world, rank, other);

    if (world->ranks[rank].generation)
        (void)sim_recv(world, rank,
                       &(struct recv_event){.kind = recv_kind, .u.peer = {other, epoch, verdict}});
    else
        (void)sim_send(world, rank,
                       &(struct send_event){.kind = send_kind, .u.peer = {other, epoch, verdict}});
}

void sim_world_open(struct sim_world *world)
{
    arena.used = 0;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        struct sim_rank *self = &world->ranks[rank];

        self->generation = rank >= world->topology->contexts;
        self->alone =
            self->generation ? world->topology->generation_alone : world->topology->context_alone;
        self->epoch = 1000 + 10 * rank;
        open_rank(world, rank);
    }
    group_open_all(world);
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        for (uint32_t other = 0; other < world->ranks_count; other++) {
            if (world->ranks[rank].generation == world->ranks[other].generation)
                continue;
            channel_open(&world->ranks[rank].channels[other], world->ranks[other].epoch, 1);
            world->ranks[rank].hello_epoch[other] = world->ranks[other].epoch;
            sim_peer(world, rank, other, RECV_PEER_UP, SEND_PEER_UP);
        }
}

/* A new process takes the rank; it knows nobody before they have greeted it. */
void sim_world_restart(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];

    memory_ghosts_land(world, rank);
    self->epoch++;
    self->stopped = self->shut = self->bye = self->ended = false;
    self->idle = !self->alone;
    self->slept_ns = 0;
    self->lose_due = 0;
    self->follow_count = self->decision_count = 0;
    self->tag_last = 0;
    memset(self->pages, 0, sizeof(self->pages));
    memset(self->hello_epoch, 0, sizeof(self->hello_epoch));
    memset(self->old_epoch, 0, sizeof(self->old_epoch));
    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++) {
        bool opened = self->seats[i].opened || self->seats[i].absent;

        opened = opened || self->idle;
        self->seats[i] = (struct sim_seat){.absent = opened, .decided = opened, .released = opened};
    }
    open_rank(world, rank);
    self->sweep = NULL;
    if (self->alone)
        group_open(world, rank);
    for (uint32_t other = 0; other < world->ranks_count; other++)
        if (world->ranks[other].generation != self->generation)
            net_hello(world, rank, other);
}

/* ---- actions -------------------------------------------------------------------------------- */

void sim_follow(struct sim_world *world, uint32_t rank, const struct recv_event *event)
{
    struct sim_rank *self = &world->ranks[rank];

    if (self->follow_count == SIM_FOLLOWS_MAX)
        sim_fail(world, "more events follow one step than the simulator holds");
    self->follows[(self->follow_first + self->follow_count++) % SIM_FOLLOWS_MAX] = *event;
}

static void say_send(struct sim_world *world, uint32_t rank, const struct send_action *action)
{
    char text[256];

    if (!world->trace)
        return;
    send_action_text(action, text, sizeof(text));
    sim_say(world, "  %u    %s\n", rank, text);
}

static void carry_send(struct sim_world *world, uint32_t rank, const struct send_action *action)
{
    struct sim_write *write;

    say_send(world, rank, action);
    switch (action->kind) {
    case SEND_ACT_MESSAGE:
        if (net_post(world, rank, action->peer, &action->u.msg) == KVF_OK)
            memory_context_says(world, rank, action->peer, &action->u.msg);
        break;
    case SEND_ACT_TASK_START:
        memory_begin(world, rank, &action->u.start);
        break;
    case SEND_ACT_TASK_ABORT:
        write = memory_find(world, rank, action->u.abort);
        if (write == NULL || write->state != WRITE_RUNNING)
            sim_fail(world, "4.3: a write that does not run is aborted");
        write->aborted = true;
        break;
    case SEND_ACT_VOTE:
        group_vote(world, rank, action->u.vote.rid, action->u.vote.vote,
                   action->u.vote.result.voted);
        break;
    case SEND_ACT_LOSE_PEER:
        world->ranks[rank].lose_due |= 1u << action->peer;
        break;
    case SEND_ACT_LOG:
        break;
    }
}

static void carry_recv(struct sim_world *world, uint32_t rank, const struct recv_action *action)
{
    struct recv_event failed = {.kind = RECV_PUBLISH_FAILED};
    enum kvf_status status;
    char text[256];

    if (world->trace) {
        recv_action_text(action, text, sizeof(text));
        sim_say(world, "  %u    %s\n", rank, text);
    }
    switch (action->kind) {
    case RECV_ACT_MESSAGE:
        memory_generation_says(world, rank, action->peer, &action->u.msg);
        status = net_post(world, rank, action->peer, &action->u.msg);
        if (status == KVF_OK || action->u.msg.header.type != MSG_REQUEST_DATA)
            break;
        failed.u.publish.rid = action->u.msg.u.request_data.rid;
        failed.u.publish.peer = action->peer;
        failed.u.publish.code = status;
        world->asks[action->peer][rank][failed.u.publish.rid - 1].unsent = true;
        sim_follow(world, rank, &failed);
        break;
    case RECV_ACT_FENCE:
        memory_revoke(world, rank, action->u.fence.rid, action->u.fence.tag);
        break;
    case RECV_ACT_VOTE:
        group_vote(world, rank, action->u.vote.rid, action->u.vote.vote,
                   action->u.vote.result.voted);
        break;
    case RECV_ACT_LOG:
        break;
    }
}

/* ---- one step ------------------------------------------------------------------------------- */

static enum kvf_status step_send(struct sim_world *world, uint32_t rank, struct send_event *event)
{
    struct sim_rank *self = &world->ranks[rank];
    struct send_action actions[OUT_MAX];
    struct send_out out = {.actions = actions, .max = world->knobs.out_max};
    enum kvf_status status = KVF_OK;
    bool first = true;

    do {
        enum kvf_status step = send_session_step(self->send, event, &out);

        if (world->knobs.checked)
            send_session_check(self->send);
        world->tally->steps++;
        if (first) {
            status = step;
            world->slice_given = out.slice;
        }
        first = false;
        for (uint32_t i = 0; i < out.count; i++)
            carry_send(world, rank, &out.actions[i]);
        event->kind = SEND_POLL;
    } while (out.more);
    return status;
}

/* Statuses that only tell the engine something. */
static bool for_engine(bool open, bool cancel, const struct sim_seat *seat, enum kvf_status status)
{
    if (open)
        return status == KVF_BUSY || status == KVF_E_EXISTS || status == KVF_E_CLOSED;
    return cancel && status == KVF_E_NOTFOUND && seat->released;
}

enum kvf_status sim_send(struct sim_world *world, uint32_t rank, struct send_event *event)
{
    enum send_event_kind kind = event->kind;
    uint64_t rid = kind == SEND_OPEN || kind == SEND_CANCEL ? event->u.cancel.rid : 1;
    enum kvf_status status;
    char text[256];

    _Static_assert(offsetof(struct send_event, u.open.rid) ==
                       offsetof(struct send_event, u.cancel.rid),
                   "the request comes first");
    event->now_ns = event->real_ns = sim_awake_ns(world, rank);
    if (world->trace) {
        send_event_text(event, text, sizeof(text));
        sim_say(world, "  %u > %s\n", rank, text);
    }
    status = step_send(world, rank, event);
    if (status == KVF_OK)
        return KVF_OK;
    sim_say(world, "  %u    -> %s\n", rank, kvf_status_name(status));
    world->tally->busy += status == KVF_BUSY;
    if (!for_engine(kind == SEND_OPEN, kind == SEND_CANCEL, sim_seat(world, rank, rid), status) &&
        (kind != SEND_WINDOW || status != KVF_BUSY))
        sim_fail(world, "I27: the send side refuses event %u: %s", (unsigned)kind,
                 kvf_status_name(status));
    return status;
}

static enum kvf_status step_recv(struct sim_world *world, uint32_t rank, struct recv_event *event,
                                 uint32_t *tag_out)
{
    struct sim_rank *self = &world->ranks[rank];
    struct recv_action actions[OUT_MAX];
    struct recv_out out = {.actions = actions, .max = world->knobs.out_max};
    enum kvf_status status = KVF_OK;
    bool first = true;
    bool more;

    do {
        enum kvf_status step = recv_session_step(self->recv, event, &out);

        if (world->knobs.checked)
            recv_session_check(self->recv);
        world->tally->steps++;
        if (first) {
            status = step;
            if (event->kind == RECV_OPEN && step == KVF_OK)
                sim_seat(world, rank, event->u.open.rid)->tag = out.tag;
            *tag_out = out.tag;
        }
        first = false;
        for (uint32_t i = 0; i < out.count; i++)
            carry_recv(world, rank, &out.actions[i]);
        more = out.more;
        *event = (struct recv_event){.kind = RECV_POLL};
        if (self->follow_count > 0) {
            *event = self->follows[self->follow_first];
            self->follow_first = (self->follow_first + 1) % SIM_FOLLOWS_MAX;
            self->follow_count--;
            more = true;
        }
        event->now_ns = event->real_ns = sim_awake_ns(world, rank);
    } while (more);
    return status;
}

enum kvf_status sim_recv(struct sim_world *world, uint32_t rank, struct recv_event *event)
{
    enum recv_event_kind kind = event->kind;
    uint64_t rid = kind == RECV_OPEN || kind == RECV_CANCEL ? event->u.cancel.rid : 1;
    enum kvf_status status;
    uint32_t tag = 0;
    char text[256];

    _Static_assert(offsetof(struct recv_event, u.open.rid) ==
                       offsetof(struct recv_event, u.cancel.rid),
                   "the request comes first");
    event->now_ns = event->real_ns = sim_awake_ns(world, rank);
    if (world->trace) {
        recv_event_text(event, text, sizeof(text));
        sim_say(world, "  %u > %s\n", rank, text);
    }
    status = step_recv(world, rank, event, &tag);
    if (status != KVF_OK) {
        sim_say(world, "  %u    -> %s\n", rank, kvf_status_name(status));
        world->tally->busy += status == KVF_BUSY;
        if (!for_engine(kind == RECV_OPEN, kind == RECV_CANCEL, sim_seat(world, rank, rid), status))
            sim_fail(world, "I27: the receive side refuses event %u: %s", (unsigned)kind,
                     kvf_status_name(status));
    } else if (kind == RECV_OPEN) {
        if (tag <= world->ranks[rank].tag_last)
            sim_fail(world, "I8: tag %u is given out again", tag);
        world->ranks[rank].tag_last = tag;
    }
    memory_check_counts(world, rank);
    return status;
}

void sim_tick(struct sim_world *world, uint32_t rank)
{
    if (world->ranks[rank].generation)
        sim_recv(world, rank, &(struct recv_event){.kind = RECV_TICK});
    else
        sim_send(world, rank, &(struct send_event){.kind = SEND_TICK});
}
