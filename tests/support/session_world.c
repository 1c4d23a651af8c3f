/* session_world.c - see session_world.h. */
#include "session_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"
#include "list.h"

#define TOKENS 64u
#define SLICES_MAX 3u
#define MESSAGE_BYTES_MAX 4096u
#define OUT_MAX 16u
#define TASKS_MAX 512u
#define STEPS_MAX 200000u

struct parcel {
    struct parcel *next;
    size_t len_bytes;
    uint8_t bytes[];
};

struct queue {
    struct parcel *first;
    struct parcel **last;
};

enum task_state { TASK_NONE, TASK_RUNNING, TASK_DOUBT };

struct running_task {
    enum task_state state;
    uint32_t rank; /* of the context */
    uint64_t id;
    uint64_t rid;
    uint32_t receiver;
    uint32_t slice;
    bool aborted;
    bool landed;
};

/* One request on one rank. */
struct seat {
    bool opened;
    bool last_window;
    uint32_t windows; /* given */
    unsigned vote;
    bool decided;
    enum session_decision decision;
    bool released;
    bool absent; /* never opened, and will not be */
};

struct world_rank {
    bool alive;
    bool generation;
    uint64_t epoch;
    struct send_side *send;
    struct recv_side *recv;
    struct seat seats[WORLD_REQUESTS_MAX];
};

struct world {
    struct world_params params;
    struct test_random random;
    struct world_tally tally;
    uint32_t ranks_count;
    uint64_t now_ns;
    bool draining;   /* no new trouble */
    uint32_t victim; /* rank that dies, or ranks_count */
    bool proof_due;
    struct world_rank ranks[WORLD_RANKS_MAX];
    struct queue queues[WORLD_RANKS_MAX][WORLD_RANKS_MAX];
    struct running_task tasks[TASKS_MAX];
    bool withheld[WORLD_REQUESTS_MAX]; /* contexts never open it */
    /* slices that are in the pages, by request, writer, reader */
    uint32_t landed[WORLD_REQUESTS_MAX][WORLD_RANKS_MAX][WORLD_RANKS_MAX];
};

static uint64_t below(struct world *world, uint64_t limit)
{
    return test_random_below(&world->random, limit);
}

static bool chance(struct world *world, unsigned percent)
{
    return below(world, 100) < percent;
}

static uint32_t slice_count(uint64_t rid)
{
    return 1 + (uint32_t)(rid % SLICES_MAX);
}

/* Bytes of one write; some move nothing. */
static uint64_t slice_bytes(uint64_t rid, uint32_t writer, uint32_t reader, uint32_t slice)
{
    return (rid * 7 + writer * 5 + reader * 3 + slice) % 4 * 4096;
}

static uint32_t group_of(const struct world *world, uint32_t context)
{
    return context / (world->params.contexts / world->params.context_groups);
}

/* The context group that ran the prefill. */
static uint32_t assigned(const struct world *world, uint64_t rid)
{
    return (uint32_t)(rid % world->params.context_groups);
}

static bool takes_part(const struct world *world, uint32_t rank, uint64_t rid)
{
    return world->ranks[rank].generation || group_of(world, rank) == assigned(world, rid);
}

static struct running_task *task_find(struct world *world, uint32_t rank, uint64_t id)
{
    for (uint32_t i = 0; i < TASKS_MAX; i++) {
        struct running_task *task = &world->tasks[i];

        if (task->state != TASK_NONE && task->rank == rank && task->id == id)
            return task;
    }
    return NULL;
}

/* ---- messages ------------------------------------------------------------------------------- */

static void post(struct world *world, uint32_t from, uint32_t to, const struct msg *msg)
{
    struct queue *queue = &world->queues[from][to];
    struct parcel *parcel = malloc(sizeof(*parcel) + MESSAGE_BYTES_MAX);

    assert_non_null(parcel);
    assert_int_equal(msg_encode(msg, parcel->bytes, MESSAGE_BYTES_MAX, &parcel->len_bytes), KVF_OK);
    msg_seal(parcel->bytes, parcel->len_bytes, 1);
    parcel->next = NULL;
    *queue->last = parcel;
    queue->last = &parcel->next;
}

static void clear_queue(struct queue *queue)
{
    struct parcel *parcel;

    while ((parcel = queue->first) != NULL) {
        queue->first = parcel->next;
        free(parcel);
    }
    queue->last = &queue->first;
}

/* ---- carrying out --------------------------------------------------------------------------- */

static void send_step(struct world *world, uint32_t rank, struct send_event *event);
static void recv_step(struct world *world, uint32_t rank, struct recv_event *event);

static void take_vote(struct world *world, uint32_t rank, uint64_t rid, unsigned vote)
{
    struct seat *seat = &world->ranks[rank].seats[rid - 1];

    assert_true(SESSION_VOTE_BASE(vote) >= SESSION_VOTE_BASE(seat->vote));
    assert_true((vote & SESSION_VOTE_DRAINED) || !(seat->vote & SESSION_VOTE_DRAINED));
    assert_int_not_equal(vote, seat->vote);
    seat->vote = vote;
}

static void begin_task(struct world *world, uint32_t rank, const struct send_start *start)
{
    assert_int_equal(start->prompt_tokens, TOKENS);
    assert_int_equal(start->src_count, 1);
    assert_int_equal(start->dst_count, 1);
    assert_int_equal(start->src[0].slots[0], start->rid);
    assert_int_equal(start->dst[0].slots[0], 100 + start->rid);
    assert_int_equal(start->window.last, start->slice + 1 == slice_count(start->rid));
    for (uint32_t i = 0; i < TASKS_MAX; i++) {
        struct running_task *task = &world->tasks[i];

        if (task->state != TASK_NONE)
            continue;
        *task = (struct running_task){.state = TASK_RUNNING,
                                      .rank = rank,
                                      .id = start->task,
                                      .rid = start->rid,
                                      .receiver = start->receiver,
                                      .slice = start->slice};
        return;
    }
    fail_msg("more tasks than the test holds");
}

static void print_line(const struct world *world, uint32_t rank, const char *mark, const char *text)
{
    if (world->params.print)
        printf("%u %s %s\n", (unsigned)rank, mark, text);
}

static void do_send_action(struct world *world, uint32_t rank, const struct send_action *action)
{
    struct running_task *task;
    char text[256];

    send_action_text(action, text, sizeof(text));
    print_line(world, rank, "   ", text);
    switch (action->kind) {
    case SEND_ACT_MESSAGE:
        post(world, rank, action->peer, &action->u.msg);
        break;
    case SEND_ACT_TASK_START:
        begin_task(world, rank, &action->u.start);
        break;
    case SEND_ACT_TASK_ABORT:
        task = task_find(world, rank, action->u.abort);
        assert_non_null(task);
        task->aborted = true;
        break;
    case SEND_ACT_VOTE:
        take_vote(world, rank, action->u.vote.rid, action->u.vote.vote);
        break;
    case SEND_ACT_LOSE_PEER:
        fail_msg("a peer overflowed");
        break;
    case SEND_ACT_LOG:
        break;
    }
}

static void do_recv_action(struct world *world, uint32_t rank, const struct recv_action *action)
{
    char text[256];

    recv_action_text(action, text, sizeof(text));
    print_line(world, rank, "   ", text);
    switch (action->kind) {
    case RECV_ACT_MESSAGE:
        post(world, rank, action->peer, &action->u.msg);
        break;
    case RECV_ACT_VOTE:
        take_vote(world, rank, action->u.vote.rid, action->u.vote.vote);
        break;
    case RECV_ACT_FENCE:
    case RECV_ACT_LOG:
        break;
    }
}

static void send_step(struct world *world, uint32_t rank, struct send_event *event)
{
    struct send_side *side = world->ranks[rank].send;
    struct send_action actions[OUT_MAX];
    struct send_out out = {.actions = actions, .max = world->params.out_max};
    char text[256];

    event->now_ns = event->real_ns = world->now_ns;
    send_event_text(event, text, sizeof(text));
    print_line(world, rank, ">", text);
    do {
        enum kvf_status status = send_session_step(side, event, &out);

        assert_true(status == KVF_OK || status == KVF_E_STATE);
        send_session_check(side);
        world->tally.steps++;
        for (uint32_t i = 0; i < out.count; i++)
            do_send_action(world, rank, &out.actions[i]);
        event->kind = SEND_POLL;
    } while (out.more);
}

static void recv_step(struct world *world, uint32_t rank, struct recv_event *event)
{
    struct recv_side *side = world->ranks[rank].recv;
    struct recv_action actions[OUT_MAX];
    struct recv_out out = {.actions = actions, .max = world->params.out_max};
    char text[256];

    event->now_ns = event->real_ns = world->now_ns;
    recv_event_text(event, text, sizeof(text));
    print_line(world, rank, ">", text);
    do {
        enum kvf_status status = recv_session_step(side, event, &out);

        assert_true(status == KVF_OK || status == KVF_E_STATE);
        recv_session_check(side);
        world->tally.steps++;
        for (uint32_t i = 0; i < out.count; i++)
            do_recv_action(world, rank, &out.actions[i]);
        event->kind = RECV_POLL;
    } while (out.more);
}

/* ---- what may happen ------------------------------------------------------------------------ */

static bool deliver(struct world *world)
{
    uint32_t pairs = world->ranks_count * world->ranks_count;
    uint32_t first = (uint32_t)below(world, pairs);

    for (uint32_t i = 0; i < pairs; i++) {
        uint32_t from = (first + i) % pairs / world->ranks_count;
        uint32_t to = (first + i) % pairs % world->ranks_count;
        struct queue *queue = &world->queues[from][to];
        struct parcel *parcel = queue->first;
        struct msg msg;

        if (parcel == NULL)
            continue;
        queue->first = parcel->next;
        if (queue->first == NULL)
            queue->last = &queue->first;
        assert_int_equal(msg_decode(parcel->bytes, parcel->len_bytes, &msg, NULL), KVF_OK);
        if (world->ranks[to].generation)
            recv_step(world, to,
                      &(struct recv_event){.kind = RECV_MESSAGE,
                                           .u.message = {.peer = from, .msg = &msg}});
        else
            send_step(world, to,
                      &(struct send_event){.kind = SEND_MESSAGE,
                                           .u.message = {.peer = from, .msg = &msg}});
        free(parcel);
        return true;
    }
    return false;
}

/* The bytes arrive: the pages must still be lent, or their rank dead. */
static void land(struct world *world, struct running_task *task)
{
    const struct world_rank *reader = &world->ranks[task->receiver];
    const struct seat *seat = &reader->seats[task->rid - 1];

    task->landed = true;
    world->landed[task->rid - 1][task->rank][task->receiver]++;
    world->tally.lands++;
    if (reader->alive && (!seat->opened || seat->released)) {
        printf("rid %u slice %u of %u landed in pages of %u that were given back\n",
               (unsigned)task->rid, task->slice, task->rank, task->receiver);
        fail();
    }
}

static void end_task(struct world *world, struct running_task *task)
{
    struct send_event event = {
        .kind = SEND_TASK_ENDED,
        .u.task = {.task = task->id,
                   .bytes = slice_bytes(task->rid, task->rank, task->receiver, task->slice),
                   .path = KVF_PATH_MAPPED}};

    if (!task->landed && !task->aborted)
        land(world, task);
    if (task->aborted)
        event.u.task.status = KVF_E_CANCELLED;
    task->state = TASK_NONE;
    send_step(world, task->rank, &event);
}

static bool progress_task(struct world *world)
{
    uint32_t first = (uint32_t)below(world, TASKS_MAX);

    for (uint32_t i = 0; i < TASKS_MAX; i++) {
        struct running_task *task = &world->tasks[(first + i) % TASKS_MAX];
        struct send_event event = {.kind = SEND_TASK_ENDED,
                                   .u.task = {.task = task->id, .status = KVF_E_TRANSFER}};

        if (task->state == TASK_NONE)
            continue;
        if (!task->landed && chance(world, 40)) {
            land(world, task);
            return true;
        }
        if (task->state == TASK_DOUBT) {
            task->state = TASK_NONE;
            event.kind = SEND_TASK_SETTLED;
            send_step(world, task->rank, &event);
        } else if (!world->draining && chance(world, world->params.doubt_percent)) {
            task->state = TASK_DOUBT;
            event.kind = SEND_TASK_IN_DOUBT;
            send_step(world, task->rank, &event);
        } else if (!world->draining && chance(world, world->params.fail_percent)) {
            task->state = TASK_NONE;
            send_step(world, task->rank, &event);
        } else {
            end_task(world, task);
        }
        return true;
    }
    return false;
}

static void open_send(struct world *world, uint32_t rank, uint64_t rid)
{
    uint32_t slots[1] = {(uint32_t)rid};
    struct kvf_block_list list = {0, 1, slots};
    struct send_event event = {.kind = SEND_OPEN,
                               .u.open = {.rid = rid,
                                          .prompt_tokens = TOKENS,
                                          .group = chance(world, 50) ? 0 : SESSION_GROUP_UNKNOWN,
                                          .list_count = 1,
                                          .lists = &list}};

    world->ranks[rank].seats[rid - 1].opened = true;
    send_step(world, rank, &event);
}

static void open_recv(struct world *world, uint32_t rank, uint64_t rid)
{
    struct recv_writer_params writers[WORLD_RANKS_MAX] = {{0}};
    uint32_t slots[1] = {(uint32_t)(100 + rid)};
    struct kvf_block_list list = {0, 1, slots};
    struct recv_event event = {.kind = RECV_OPEN,
                               .u.open = {.rid = rid,
                                          .prompt_tokens = TOKENS,
                                          .list_count = 1,
                                          .lists = &list,
                                          .writers = writers}};
    bool known = chance(world, 50);

    for (uint32_t context = 0; context < world->params.contexts; context++) {
        struct recv_writer_params *writer = &writers[event.u.open.writer_count];

        if (known && group_of(world, context) != assigned(world, rid))
            continue;
        writer->rank = context;
        writer->group = group_of(world, context);
        for (uint32_t slice = 0; slice < slice_count(rid); slice++)
            writer->plan_bytes += slice_bytes(rid, context, rank, slice);
        event.u.open.writer_count++;
    }
    world->ranks[rank].seats[rid - 1].opened = true;
    recv_step(world, rank, &event);
}

static void add_window(struct world *world, uint32_t rank, uint64_t rid)
{
    struct seat *seat = &world->ranks[rank].seats[rid - 1];
    struct send_event event = {.kind = SEND_WINDOW, .u.window = {.rid = rid, .ready = true}};

    seat->windows++;
    seat->last_window = seat->windows == slice_count(rid);
    event.u.window.window = (struct session_window){
        .token_first = seat->windows - 1, .token_end = seat->windows, .last = seat->last_window};
    send_step(world, rank, &event);
}

/* The engine does the next thing for a random request on a random rank; false: nothing to do. */
static bool engine(struct world *world)
{
    uint32_t places = world->ranks_count * world->params.requests;
    uint32_t first = (uint32_t)below(world, places);

    for (uint32_t i = 0; i < places; i++) {
        uint32_t rank = (first + i) % places / world->params.requests;
        uint64_t rid = (first + i) % places % world->params.requests + 1;
        struct seat *seat = &world->ranks[rank].seats[rid - 1];
        bool generation = world->ranks[rank].generation;

        if (!world->ranks[rank].alive || !takes_part(world, rank, rid) || seat->released)
            continue;
        if (!generation && world->withheld[rid - 1] && !world->draining)
            continue;
        if (!seat->opened) {
            if (generation)
                open_recv(world, rank, rid);
            else
                open_send(world, rank, rid);
            return true;
        }
        if (!generation && !seat->last_window) {
            add_window(world, rank, rid);
            return true;
        }
    }
    return false;
}

static void cancel_some(struct world *world)
{
    uint32_t rank = (uint32_t)below(world, world->ranks_count);
    uint64_t rid = below(world, world->params.requests) + 1;
    struct seat *seat = &world->ranks[rank].seats[rid - 1];

    if (!world->ranks[rank].alive || !seat->opened || seat->absent)
        return;
    if (world->ranks[rank].generation)
        recv_step(world, rank,
                  &(struct recv_event){.kind = RECV_CANCEL,
                                       .u.cancel = {.rid = rid, .code = KVF_E_CANCELLED}});
    else
        send_step(world, rank,
                  &(struct send_event){.kind = SEND_CANCEL,
                                       .u.cancel = {.rid = rid, .code = KVF_E_CANCELLED}});
}

static void tick(struct world *world, uint64_t step_ns)
{
    world->now_ns += step_ns;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        if (!world->ranks[rank].alive)
            continue;
        if (world->ranks[rank].generation)
            recv_step(world, rank, &(struct recv_event){.kind = RECV_TICK});
        else
            send_step(world, rank, &(struct send_event){.kind = SEND_TICK});
    }
}

/* ---- the group ------------------------------------------------------------------------------ */

/* READY or SENT: every slice of every writer of the assigned group is in the pages. */
static void check_landed(const struct world *world, uint32_t rank, uint64_t rid)
{
    bool generation = world->ranks[rank].generation;

    for (uint32_t other = 0; other < world->ranks_count; other++) {
        uint32_t writer = generation ? other : rank;
        uint32_t reader = generation ? rank : other;

        if (world->ranks[other].generation == generation || !takes_part(world, other, rid))
            continue;
        assert_int_equal(world->landed[rid - 1][writer][reader], slice_count(rid));
    }
}

static void decide(struct world *world, uint32_t rank, uint64_t rid, enum session_decision decision,
                   enum kvf_status code)
{
    struct seat *seat = &world->ranks[rank].seats[rid - 1];

    if (decision == SESSION_DECIDED_RELEASED) {
        assert_true(seat->decided && !seat->released);
        for (uint32_t i = 0; i < TASKS_MAX; i++) {
            const struct running_task *task = &world->tasks[i];

            if (task->state == TASK_NONE || task->rid != rid)
                continue;
            assert_true(task->rank != rank); /* source pages are still read */
            assert_true(task->receiver != rank);
        }
        seat->released = true;
        world->tally.released++;
    } else {
        assert_false(seat->decided);
        seat->decided = true;
        seat->decision = decision;
        if (decision == SESSION_DECIDED_OK)
            check_landed(world, rank, rid);
    }
    if (world->ranks[rank].generation)
        recv_step(world, rank,
                  &(struct recv_event){.kind = RECV_DECISION,
                                       .u.decision = {rid, decision, code, KVF_UNKNOWN}});
    else
        send_step(world, rank,
                  &(struct send_event){.kind = SEND_DECISION,
                                       .u.decision = {rid, decision, code, KVF_UNKNOWN}});
}

struct poll_result {
    bool all_done, all_drained, lost;
    unsigned worst;
    uint32_t members;
};

static struct poll_result poll_votes(const struct world *world, bool generation, uint64_t rid)
{
    struct poll_result result = {.all_done = true, .all_drained = true};

    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct world_rank *member = &world->ranks[rank];
        unsigned vote = member->seats[rid - 1].vote;

        if (member->generation != generation || !takes_part(world, rank, rid))
            continue;
        if (!member->alive) {
            result.lost = true;
            continue;
        }
        result.members++;
        result.all_done = result.all_done && SESSION_VOTE_BASE(vote) == SESSION_VOTE_DONE;
        result.all_drained = result.all_drained && (vote & SESSION_VOTE_DRAINED);
        if (SESSION_VOTE_BASE(vote) > result.worst)
            result.worst = SESSION_VOTE_BASE(vote);
    }
    return result;
}

static void decide_all(struct world *world, bool generation, uint64_t rid,
                       enum session_decision decision, enum kvf_status code)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        struct world_rank *member = &world->ranks[rank];
        struct seat *seat = &member->seats[rid - 1];

        if (!member->alive || member->generation != generation || !takes_part(world, rank, rid))
            continue;
        if (!seat->opened) { /* stands for ABSENT: it will not be opened any more */
            seat->opened = seat->last_window = seat->decided = seat->released = true;
            seat->absent = true;
            seat->decision = decision;
            seat->vote = SESSION_VOTE_ABSENT | SESSION_VOTE_DRAINED;
            continue;
        }
        if (decision == SESSION_DECIDED_RELEASED ? !seat->released : !seat->decided)
            decide(world, rank, rid, decision, code);
    }
}

static bool any_decided(const struct world *world, bool generation, uint64_t rid)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        if (world->ranks[rank].alive && world->ranks[rank].generation == generation &&
            world->ranks[rank].seats[rid - 1].decided)
            return true;
    return false;
}

/*
 * One sweep of one group for one request, docs/consensus.md. A lost group fails, then frees alone.
 */
static void sweep(struct world *world, bool generation, uint64_t rid)
{
    struct poll_result poll = poll_votes(world, generation, rid);
    bool decided = any_decided(world, generation, rid);

    if (poll.members == 0)
        return;
    if (!decided && poll.worst >= SESSION_VOTE_DOOMED_FAILED)
        decide_all(world, generation, rid,
                   poll.worst == SESSION_VOTE_DOOMED_FAILED ? SESSION_DECIDED_FAILED
                                                            : SESSION_DECIDED_CANCELLED,
                   poll.worst == SESSION_VOTE_DOOMED_FAILED ? KVF_E_TRANSFER
                   : poll.worst == SESSION_VOTE_DOOMED_PEER ? KVF_E_PEER_CANCELLED
                                                            : KVF_E_CANCELLED);
    else if (!decided && poll.lost)
        decide_all(world, generation, rid, SESSION_DECIDED_FAILED, KVF_E_GROUP_LOST);
    else if (!decided && poll.all_done)
        decide_all(world, generation, rid, SESSION_DECIDED_OK, KVF_OK);
    if (!any_decided(world, generation, rid))
        return;
    poll = poll_votes(world, generation, rid);
    if (!poll.lost) {
        if (poll.all_drained)
            decide_all(world, generation, rid, SESSION_DECIDED_RELEASED, KVF_OK);
        return;
    }
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct seat *seat = &world->ranks[rank].seats[rid - 1];

        if (world->ranks[rank].alive && world->ranks[rank].generation == generation &&
            seat->decided && !seat->released && (seat->vote & SESSION_VOTE_DRAINED))
            decide(world, rank, rid, SESSION_DECIDED_RELEASED, KVF_OK);
    }
}

static void sweep_all(struct world *world)
{
    for (uint64_t rid = 1; rid <= world->params.requests; rid++) {
        sweep(world, false, rid);
        sweep(world, true, rid);
    }
}

/* ---- death ---------------------------------------------------------------------------------- */

static void tell(struct world *world, uint32_t rank, enum recv_event_kind recv_kind,
                 enum send_event_kind send_kind)
{
    for (uint32_t other = 0; other < world->ranks_count; other++) {
        if (!world->ranks[other].alive || other == rank)
            continue;
        if (world->ranks[other].generation)
            recv_step(world, other,
                      &(struct recv_event){.kind = recv_kind,
                                           .u.peer = {rank, world->ranks[rank].epoch, KVF_OK}});
        else if (recv_kind != RECV_PEER_PROOF)
            send_step(world, other,
                      &(struct send_event){.kind = send_kind,
                                           .u.peer = {rank, world->ranks[rank].epoch, KVF_OK}});
    }
}

/* The process dies; what it has sent is delivered or lost, its running writes may still land. */
static void kill_rank(struct world *world)
{
    uint32_t rank = world->victim;

    world->victim = world->ranks_count;
    for (uint32_t other = 0; other < world->ranks_count; other++) {
        clear_queue(&world->queues[rank][other]);
        clear_queue(&world->queues[other][rank]);
    }
    world->ranks[rank].alive = false;
    send_session_close(world->ranks[rank].send);
    recv_session_close(world->ranks[rank].recv);
    world->ranks[rank].send = NULL;
    world->ranks[rank].recv = NULL;
    tell(world, rank, RECV_PEER_LOST, SEND_PEER_LOST);
    world->proof_due = true;
}

/* Its stores are over, then the others learn so. */
static void prove_gone(struct world *world)
{
    world->proof_due = false;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        if (world->ranks[rank].alive)
            continue;
        for (uint32_t i = 0; i < TASKS_MAX; i++) {
            struct running_task *task = &world->tasks[i];

            if (task->state == TASK_NONE || task->rank != rank)
                continue;
            land(world, task); /* the latest moment at which it may */
            task->state = TASK_NONE;
        }
        tell(world, rank, RECV_PEER_PROOF, SEND_PEER_LOST);
    }
}

/* Tasks of a dead context are not stepped; only their stores go on. */
static bool progress_living(struct world *world)
{
    for (uint32_t i = 0; i < TASKS_MAX; i++) {
        struct running_task *task = &world->tasks[i];

        if (task->state != TASK_NONE && !world->ranks[task->rank].alive)
            return false;
    }
    return progress_task(world);
}

/* ---- a schedule ----------------------------------------------------------------------------- */

static void open_rank(struct world *world, uint32_t rank)
{
    static const struct session_times times = {WORLD_T_NS, 2 * WORLD_T_NS + UINT64_C(10000000000),
                                               UINT64_C(1000000000), UINT64_C(5000000000)};
    uint32_t generations[WORLD_RANKS_MAX];
    uint32_t groups[WORLD_RANKS_MAX];
    struct send_group group = {generations, world->params.generations};
    struct world_rank *self = &world->ranks[rank];
    struct session_self name = {0, (uint16_t)rank, 1000 + rank};
    struct send_params send = {.times = times,
                               .self = name,
                               .log_level = KVF_LOG_WARN,
                               .world_size = world->ranks_count,
                               .requests_max = WORLD_REQUESTS_MAX,
                               .asks_max = 16,
                               .fences_max = 16,
                               .tombstones_max = 16,
                               .receivers_max = 64,
                               .served_max = 64,
                               .windows_max = 64,
                               .tasks_max = 5,
                               .answers_max = 64,
                               .blocks_max = 256,
                               .lists_max = 1,
                               .groups = &group,
                               .group_count = 1,
                               .group_of = groups};
    struct recv_params recv = {.times = times,
                               .self = name,
                               .log_level = KVF_LOG_WARN,
                               .world_size = world->ranks_count,
                               .requests_max = WORLD_REQUESTS_MAX,
                               .remembered_max = 16,
                               .writers_max = 64,
                               .slices_max = 64,
                               .blocks_max = 64,
                               .lists_max = 1};

    for (uint32_t i = 0; i < world->ranks_count; i++)
        groups[i] = i < world->params.contexts ? SESSION_GROUP_UNKNOWN : 0;
    for (uint32_t i = 0; i < world->params.generations; i++)
        generations[i] = world->params.contexts + i;
    self->alive = true;
    self->generation = rank >= world->params.contexts;
    self->epoch = name.epoch;
    if (self->generation)
        assert_int_equal(recv_session_open(kvf_heap_system(), &recv, &self->recv), KVF_OK);
    else
        assert_int_equal(send_session_open(kvf_heap_system(), &send, &self->send), KVF_OK);
}

static void open_world(struct world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        open_rank(world, rank);
    for (uint32_t from = 0; from < world->ranks_count; from++)
        for (uint32_t to = 0; to < world->ranks_count; to++)
            world->queues[from][to].last = &world->queues[from][to].first;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        tell(world, rank, RECV_PEER_UP, SEND_PEER_UP);
}

/* One random thing; false: nothing but time can help. */
static bool happen(struct world *world)
{
    uint64_t dice = below(world, 100);

    if (dice < 45 && deliver(world))
        return true;
    if (dice < 65 && progress_living(world))
        return true;
    if (dice < 78 && engine(world))
        return true;
    if (dice < 92) {
        sweep_all(world);
        return true;
    }
    if (dice < 95)
        tick(world, below(world, WORLD_T_NS / 200));
    else if (dice < 97 && !world->draining && chance(world, world->params.cancel_percent))
        cancel_some(world);
    else if (dice < 98 && world->victim < world->ranks_count && chance(world, 10))
        kill_rank(world);
    else if (dice < 99 && world->proof_due && chance(world, 10))
        prove_gone(world);
    return deliver(world) || progress_living(world) || engine(world);
}

static bool all_ended(const struct world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        for (uint64_t rid = 1; rid <= world->params.requests; rid++)
            if (world->ranks[rank].alive && takes_part(world, rank, rid) &&
                !world->ranks[rank].seats[rid - 1].released)
                return false;
    return true;
}

/* What must hold at the end on each rank. */
static void judge(struct world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        struct world_rank *self = &world->ranks[rank];

        if (!self->alive)
            continue;
        for (uint64_t rid = 1; rid <= world->params.requests; rid++) {
            const struct seat *seat = &self->seats[rid - 1];

            if (!takes_part(world, rank, rid))
                continue;
            assert_true(seat->decided && seat->released);
            world->tally.ready += seat->decision == SESSION_DECIDED_OK;
            world->tally.failed += seat->decision == SESSION_DECIDED_FAILED;
            world->tally.cancelled += seat->decision == SESSION_DECIDED_CANCELLED;
        }
        if (self->generation) {
            const struct recv_counts *counts = recv_session_counts(self->recv);

            assert_int_equal(counts->live + counts->retained_blocks + counts->stranded_blocks, 0);
            assert_int_equal(counts->unexpected_events + counts->contradictions, 0);
            world->tally.silent += counts->silent_writers;
        } else {
            const struct send_counts *counts = send_session_counts(self->send);

            assert_int_equal(counts->live + counts->tasks + counts->doubts, 0);
            assert_int_equal(counts->unexpected_events + counts->retained_blocks, 0);
        }
    }
}

static void close_world(struct world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        send_session_close(world->ranks[rank].send);
        recv_session_close(world->ranks[rank].recv);
        for (uint32_t to = 0; to < world->ranks_count; to++)
            clear_queue(&world->queues[rank][to]);
    }
}

void session_world_run(const struct world_params *params, uint64_t seed,
                       struct world_tally *tally_out)
{
    struct world *world = calloc(1, sizeof(*world));
    uint32_t idle = 0;

    assert_non_null(world);
    world->params = *params;
    world->random = test_random_make(seed);
    world->ranks_count = params->contexts + params->generations;
    world->now_ns = 1;
    world->victim = chance(world, params->kill_percent) ? (uint32_t)below(world, world->ranks_count)
                                                        : world->ranks_count;
    for (uint32_t i = 0; i < params->requests; i++)
        world->withheld[i] = chance(world, params->refuse_percent);
    open_world(world);
    for (uint32_t step = 0; !all_ended(world); step++) {
        if (step > STEPS_MAX)
            fail_msg("requests do not end");
        if (step == 400)
            world->draining = true;
        idle = happen(world) ? 0 : idle + 1;
        if (idle < 50)
            continue;
        idle = 0;
        if (world->proof_due)
            prove_gone(world);
        else
            tick(world, WORLD_T_NS / 3);
    }
    judge(world);
    close_world(world);
    *tally_out = world->tally;
    free(world);
}
