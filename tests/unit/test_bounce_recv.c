/*
 * test_bounce_recv.c - the receiver's half of the bounce alone; writers and the copy worker are
 * played by the test. A test whose name begins with r_NN is that scenario of the specification.
 */
#include "testing.h"

#include <string.h>

#include "clock.h"
#include "fail_heap.h"
#include "wire.h"
#include "xfer/bounce_pack.h"
#include "xfer/bounce_recv.h"

#define KIB UINT64_C(1024)
#define MIB (KIB << 10)
#define SECOND CLOCK_NS_PER_S
#define ACTIONS_MAX 8192u
#define JOBS_MAX 64u
#define BASE UINT64_C(0x600000000000)
#define PAGES UINT64_C(0x10000) /* what (7, 3) has lent: PAGES_BYTES from here */
#define PAGES_BYTES (256 * MIB)

struct bench {
    struct arena *arena;
    struct bounce_recv *recv;
    uint64_t now_ns;
    struct bounce_recv_action actions[ACTIONS_MAX];
    struct msg_credit credits[256]; /* of all GRANTs, in order */
    uint64_t credit_flows[256];
    uint32_t credit_count;
    uint32_t count;
    struct bounce_job *jobs[JOBS_MAX]; /* given to the worker and not back */
    uint32_t job_count;
};

static bool inside(void *self, uint64_t rid, uint32_t tag, const struct msg_run *run)
{
    (void)self;
    if (rid != 7 || tag != 3)
        return false;
    for (uint32_t i = 0; i < run->pieces; i++) {
        uint64_t at = run->dst + i * run->dst_stride - PAGES;

        if (at > PAGES_BYTES || run->piece_bytes > PAGES_BYTES - at)
            return false;
    }
    return true;
}

static void emit(void *self, const struct bounce_recv_action *action)
{
    struct bench *bench = self;

    assert_true(bench->count < ACTIONS_MAX);
    bench->actions[bench->count++] = *action;
    if (action->kind == BOUNCE_RECV_ACT_SCATTER) {
        assert_true(bench->job_count < JOBS_MAX);
        bench->jobs[bench->job_count++] = action->u.job;
    }
    if (action->kind == BOUNCE_RECV_ACT_MESSAGE && action->u.msg.header.type == MSG_GRANT)
        for (uint32_t c = 0; c < action->u.msg.u.grant.count; c++) {
            assert_true(bench->credit_count < 256);
            bench->credit_flows[bench->credit_count] = action->u.msg.u.grant.flow;
            bench->credits[bench->credit_count++] = action->u.msg.u.grant.credits[c];
        }
}

static void step(struct bench *bench, struct bounce_recv_event *event)
{
    struct bounce_recv_out out = {.self = bench, .emit = emit};

    event->now_ns = bench->now_ns;
    bounce_recv_step(bench->recv, event, &out);
    bounce_recv_check(bench->recv);
    assert_int_equal(bounce_recv_counts(bench->recv)->unexpected_events, 0);
}

static struct bounce_recv_params base_params(void)
{
    return (struct bounce_recv_params){
        .world_size = 16,
        .flows_max = 32,
        .sizes_max = 1024,
        .jobs_max = 64,
        .chunk_bytes = MIB,
        .window = 8,
        .timeout_ns = 30 * SECOND,
        .runs_bytes = 16 * MIB,
        .arena_base = BASE,
        .pages = {.inside = inside},
    };
}

static void open_with(struct bench *bench, struct bounce_recv_params *params, uint64_t arena_kib)
{
    memset(bench, 0, sizeof(*bench));
    bench->now_ns = 1;
    assert_int_equal(arena_open(kvf_heap_system(), arena_kib * KIB, KIB, &bench->arena), KVF_OK);
    params->arena = bench->arena;
    assert_int_equal(bounce_recv_open(kvf_heap_system(), params, &bench->recv), KVF_OK);
}

static void open_bench(struct bench *bench)
{
    struct bounce_recv_params params = base_params();

    open_with(bench, &params, 64 * KIB);
}

static void close_bench(struct bench *bench)
{
    bounce_recv_close(bench->recv);
    arena_close(bench->arena);
}

/* Nothing is left behind. */
static void end_bench(struct bench *bench)
{
    assert_true(bounce_recv_counts(bench->recv)->flows == 0);
    assert_true(bounce_recv_counts(bench->recv)->jobs == 0);
    assert_true(arena_counts(bench->arena)->state_bytes[ARENA_FREE] ==
                arena_counts(bench->arena)->usable_bytes);
    close_bench(bench);
}

/* ---- what is done --------------------------------------------------------------------------- */

static void message(struct bench *bench, uint32_t peer, struct msg *msg, bool is_open)
{
    static uint8_t wire[1u << 20];
    struct bounce_recv_event event = {.kind = BOUNCE_RECV_MESSAGE};
    struct msg decoded;
    size_t len;

    msg->header.source_instance = 1;
    msg->header.epoch = 9;
    assert_int_equal(msg_encode(msg, wire, sizeof(wire), &len), KVF_OK);
    msg_seal(wire, len, 1);
    assert_int_equal(msg_decode(wire, len, &decoded, NULL), KVF_OK);
    event.u.message.peer = peer;
    event.u.message.msg = &decoded;
    event.u.message.open = is_open;
    step(bench, &event);
}

static void want_sizes(struct bench *bench, uint32_t peer, uint64_t flow, uint32_t chunks,
                       const uint32_t *sizes)
{
    struct msg msg = {
        .header = {.type = MSG_WANT},
        .u.want = {.flow = flow, .rid = 7, .tag = 3, .chunk_count = chunks, .sizes = sizes},
    };

    message(bench, peer, &msg, true);
}

static void want(struct bench *bench, uint32_t peer, uint64_t flow, uint32_t chunks, uint32_t size)
{
    uint32_t sizes[1000];

    for (uint32_t c = 0; c < chunks; c++)
        sizes[c] = size;
    want_sizes(bench, peer, flow, chunks, sizes);
}

/* The credit of a chunk. */
static struct msg_credit credit_of(const struct bench *bench, uint64_t flow, uint32_t chunk)
{
    for (uint32_t c = bench->credit_count; c > 0; c--)
        if (bench->credit_flows[c - 1] == flow && bench->credits[c - 1].chunk == chunk)
            return bench->credits[c - 1];
    fail_msg("no credit for chunk %u", chunk);
    return (struct msg_credit){0};
}

static struct msg data_of(const struct bench *bench, uint64_t flow, uint32_t chunk, uint8_t *wire)
{
    struct msg_credit credit = credit_of(bench, flow, chunk);
    const struct msg_run run = {
        .dst = PAGES + chunk * MIB, .piece_bytes = credit.len_bytes, .pieces = 1};

    msg_run_put(wire, &run);
    return (struct msg){
        .header = {.type = MSG_DATA},
        .u.data = {.flow = flow,
                   .chunk = chunk,
                   .region = credit.region,
                   .chunk_bytes = credit.len_bytes,
                   .run_count = 1,
                   .runs_wire = wire},
    };
}

static void data(struct bench *bench, uint32_t peer, uint64_t flow, uint32_t chunk)
{
    uint8_t wire[MSG_RUN_BYTES];
    struct msg msg = data_of(bench, flow, chunk, wire);

    message(bench, peer, &msg, true);
}

static void cancel(struct bench *bench, uint32_t peer, uint64_t flow, bool clean)
{
    struct msg msg = {
        .header = {.type = MSG_FLOW_CANCEL},
        .u.flow_cancel = {.flow = flow, .clean = clean, .code = KVF_E_TRANSFER},
    };

    message(bench, peer, &msg, true);
}

static void plain_event(struct bench *bench, enum bounce_recv_event_kind kind, uint32_t peer)
{
    struct bounce_recv_event event = {.kind = kind, .u.peer = peer};

    step(bench, &event);
}

static void fence(struct bench *bench)
{
    struct bounce_recv_event event = {.kind = BOUNCE_RECV_FENCE, .u.fence = {7, 3}};

    step(bench, &event);
}

static void tick_at(struct bench *bench, uint64_t now_ns)
{
    bench->now_ns = now_ns;
    plain_event(bench, BOUNCE_RECV_TICK, 0);
}

/* The worker gives its first job back. */
static void give_back(struct bench *bench, enum bounce_job_end end)
{
    struct bounce_recv_event event = {.kind = BOUNCE_RECV_JOB_DONE};

    assert_true(bench->job_count > 0);
    event.u.job.job = bench->jobs[0];
    event.u.job.end = end;
    memmove(bench->jobs, bench->jobs + 1, --bench->job_count * sizeof(*bench->jobs));
    step(bench, &event);
}

/* What a worker does with its first job. */
static void work(struct bench *bench)
{
    if (bounce_job_take(bench->jobs[0]) && bounce_job_start(bench->jobs[0]))
        give_back(bench, BOUNCE_JOB_RAN);
    else
        give_back(bench, BOUNCE_JOB_NOT_RUN);
}

/* ---- what is seen --------------------------------------------------------------------------- */

static uint32_t count_of(const struct bench *bench, enum bounce_recv_action_kind kind)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < bench->count; a++)
        count += bench->actions[a].kind == kind;
    return count;
}

static uint32_t count_messages(const struct bench *bench, enum msg_type type)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < bench->count; a++)
        count += bench->actions[a].kind == BOUNCE_RECV_ACT_MESSAGE &&
                 bench->actions[a].u.msg.header.type == type;
    return count;
}

static uint32_t count_nacks(const struct bench *bench, enum msg_nack_scope scope,
                            enum msg_nack_reason reason)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < bench->count; a++) {
        const struct msg *msg = &bench->actions[a].u.msg;

        count += bench->actions[a].kind == BOUNCE_RECV_ACT_MESSAGE &&
                 msg->header.type == MSG_NACK && msg->u.nack.scope == scope &&
                 msg->u.nack.reason == reason;
    }
    return count;
}

static uint32_t count_logs(const struct bench *bench, const char *event)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < bench->count; a++)
        count += bench->actions[a].kind == BOUNCE_RECV_ACT_LOG &&
                 strcmp(bench->actions[a].u.log.event, event) == 0;
    return count;
}

static uint64_t bytes_of(const struct bench *bench, enum arena_state state)
{
    return arena_counts(bench->arena)->state_bytes[state];
}

/* Credits that a flow was given. */
static uint32_t granted(const struct bench *bench, uint64_t flow)
{
    uint32_t count = 0;

    for (uint32_t c = 0; c < bench->credit_count; c++)
        count += bench->credit_flows[c] == flow;
    return count;
}

/* ---- scenarios ------------------------------------------------------------------------------ */

static void a_flow_goes_from_want_to_its_last_ack(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 200, (uint32_t)MIB);
    assert_int_equal(granted(&bench, 1), 8); /* the window */
    assert_int_equal(count_messages(&bench, MSG_GRANT), 1);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ACTIVE), 1);
    for (uint32_t c = 0; c < 200; c++) {
        data(&bench, 1, 1, c);
        assert_int_equal(bounce_recv_running(bench.recv, 7, 3), 1);
        work(&bench);
        assert_int_equal(granted(&bench, 1), c + 9 < 200 ? c + 9 : 200);
    }
    assert_int_equal(count_messages(&bench, MSG_ACK), 200);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_BEGAN), 200);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ENDED), 200);
    end_bench(&bench);
}

static void r_01_cancel_drops_and_nacks_queued_jobs(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    data(&bench, 1, 1, 1);
    cancel(&bench, 1, 1, true);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_CANCELLED), 2);
    assert_true(bytes_of(&bench, ARENA_FREE) == 64 * MIB); /* in the same step */
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ENDED), 2);
    assert_false(bounce_job_take(bench.jobs[0])); /* nothing is launched */
    work(&bench);
    work(&bench);
    assert_int_equal(count_messages(&bench, MSG_NACK), 2);
    end_bench(&bench);
}

static void r_02_a_taken_job_that_has_not_started_is_nacked_when_it_comes_back(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]));
    cancel(&bench, 1, 1, true);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0);
    assert_true(bytes_of(&bench, ARENA_ORPHAN_SCATTER) == MIB);
    assert_int_equal(bounce_recv_running(bench.recv, 7, 3), 1);
    assert_false(bounce_job_start(bench.jobs[0]));
    give_back(&bench, BOUNCE_JOB_NOT_RUN);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_CANCELLED), 1);
    assert_int_equal(count_messages(&bench, MSG_ACK), 0);
    end_bench(&bench);
}

static void r_03_a_running_job_finishes_after_the_cancel(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]) && bounce_job_start(bench.jobs[0]));
    cancel(&bench, 1, 1, true);
    assert_true(bytes_of(&bench, ARENA_ORPHAN_SCATTER) == MIB);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ENDED), 0);
    give_back(&bench, BOUNCE_JOB_RAN);
    assert_int_equal(count_messages(&bench, MSG_ACK), 1);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0);
    end_bench(&bench);
}

static void r_05_r_06_data_after_the_lease_is_nacked_and_touches_nothing(void **state)
{
    struct bench bench;
    uint8_t wire[MSG_RUN_BYTES];
    struct msg late;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    late = data_of(&bench, 1, 0, wire);
    tick_at(&bench, 60 * SECOND);
    assert_int_equal(count_logs(&bench, "W16"), 0);
    tick_at(&bench, 60 * SECOND + 1);
    assert_int_equal(count_logs(&bench, "W16"), 1);
    assert_true(bytes_of(&bench, ARENA_QUARANTINE) == MIB);
    message(&bench, 1, &late, true);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_STALE_REGION), 1);
    tick_at(&bench, 90 * SECOND + 1);
    assert_true(bytes_of(&bench, ARENA_FREE) == 64 * MIB);
    want(&bench, 1, 2, 1, (uint32_t)MIB);
    assert_true(credit_of(&bench, 2, 0).region.offset == late.u.data.region.offset);
    message(&bench, 1, &late, true);
    late.u.data.flow = 2; /* right flow, old generation */
    message(&bench, 1, &late, true);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_STALE_REGION), 3);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_SCATTER), 0);
    data(&bench, 1, 2, 0);
    work(&bench);
    end_bench(&bench);
}

static void r_07_forget_with_an_orphaned_job(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]));
    cancel(&bench, 1, 1, true); /* its region is an orphan now */
    plain_event(&bench, BOUNCE_RECV_PEER_LOST, 1);
    assert_true(bytes_of(&bench, ARENA_ORPHAN_SCATTER) == MIB);
    assert_false(bounce_job_start(bench.jobs[0]));
    give_back(&bench, BOUNCE_JOB_NOT_RUN);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0); /* there is nobody to read it */
    end_bench(&bench);
}

static void r_08_forget_does_not_feed_the_forgotten_peer(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    params.window = 1;
    open_with(&bench, &params, KIB); /* one chunk */
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    want(&bench, 1, 2, 1, (uint32_t)MIB); /* waits for that space */
    want(&bench, 2, 1, 1, (uint32_t)MIB);
    plain_event(&bench, BOUNCE_RECV_PEER_LOST, 1);
    assert_int_equal(granted(&bench, 2), 0);
    assert_int_equal(bench.credit_count, 2);
    assert_int_equal(bench.actions[bench.count - 1].peer, 2);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0);
    work(&bench);
    data(&bench, 2, 1, 0);
    work(&bench);
    end_bench(&bench);
}

static void r_09_r_10_a_lease_does_not_end_under_work_or_while_there_is_progress(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 4, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]) && bounce_job_start(bench.jobs[0]));
    tick_at(&bench, 100 * SECOND);
    tick_at(&bench, 200 * SECOND);
    assert_int_equal(count_logs(&bench, "W16"), 0);
    give_back(&bench, BOUNCE_JOB_RAN);
    for (uint32_t c = 1; c < 4; c++) {
        tick_at(&bench, bench.now_ns + 59 * SECOND);
        data(&bench, 1, 1, c);
        work(&bench);
    }
    assert_int_equal(count_logs(&bench, "W16"), 0);
    end_bench(&bench);
}

static void r_11_r_13_dirty_cancel_gives_the_region_to_others_after_quarantine(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    open_with(&bench, &params, 2 * KIB);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    want(&bench, 2, 1, 1, (uint32_t)MIB);
    bench.now_ns = 10 * SECOND;
    cancel(&bench, 1, 1, false);
    assert_int_equal(bench.credit_count, 2);
    assert_true(bytes_of(&bench, ARENA_QUARANTINE) == 2 * MIB);
    tick_at(&bench, 40 * SECOND - 1);
    assert_int_equal(bench.credit_count, 2);
    assert_true(bounce_recv_deadline_ns(bench.recv) == 40 * SECOND);
    tick_at(&bench, 40 * SECOND);
    assert_int_equal(bench.credit_count, 3);
    close_bench(&bench);
}

static void proof_of_the_peers_end_ends_its_quarantine(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    plain_event(&bench, BOUNCE_RECV_PEER_LOST, 1);
    assert_true(bytes_of(&bench, ARENA_QUARANTINE) == 2 * MIB);
    plain_event(&bench, BOUNCE_RECV_PEER_PROOF, 2);
    assert_true(bytes_of(&bench, ARENA_QUARANTINE) == 2 * MIB);
    plain_event(&bench, BOUNCE_RECV_PEER_PROOF, 1);
    end_bench(&bench);
}

static void r_12_clean_cancel_frees_at_once(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    open_with(&bench, &params, 2 * KIB);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    want(&bench, 2, 1, 1, (uint32_t)MIB);
    cancel(&bench, 1, 1, true);
    assert_int_equal(bench.credit_count, 3); /* in the same step */
    data(&bench, 2, 1, 0);
    work(&bench);
    end_bench(&bench);
}

static void r_14_duplicate_want(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 5, 1, (uint32_t)MIB);
    bench.now_ns = 30 * SECOND;
    want(&bench, 1, 5, 1, (uint32_t)MIB);
    want(&bench, 1, 4, 0 + 1, 0); /* an older one, of a size that cannot be: not even looked at */
    assert_int_equal(count_logs(&bench, "W10"), 2);
    assert_int_equal(bench.credit_count, 1);
    assert_int_equal(count_messages(&bench, MSG_NACK), 0);
    tick_at(&bench, 60 * SECOND + 1); /* it has not refreshed the lease */
    assert_int_equal(count_logs(&bench, "W16"), 1);
    close_bench(&bench);
}

static void r_15_impossible_sizes_never_reach_the_scheduler(void **state)
{
    uint32_t sizes[2] = {(uint32_t)MIB, 0};
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want_sizes(&bench, 1, 1, 2, sizes);
    sizes[1] = (uint32_t)MIB + 1;
    want_sizes(&bench, 1, 2, 2, sizes);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_BAD_SIZE), 2);
    assert_int_equal(count_logs(&bench, "W12"), 2);
    want(&bench, 2, 1, 1, (uint32_t)MIB); /* the drain is not latched */
    data(&bench, 2, 1, 0);
    work(&bench);
    end_bench(&bench);
}

/* One DATA of these runs for a chunk of 64 KiB; true: refused as BAD_PLAN. */
static bool refused(const struct msg_run *runs, uint32_t count, uint32_t chunk_bytes)
{
    static uint8_t wire[4096 * MSG_RUN_BYTES];
    struct bench bench;
    struct msg msg;
    bool bad;

    open_bench(&bench);
    want(&bench, 1, 1, 1, 64 * KIB);
    msg = data_of(&bench, 1, 0, wire);
    for (uint32_t r = 0; r < count; r++)
        msg_run_put(wire + (size_t)r * MSG_RUN_BYTES, &runs[r]);
    msg.u.data.run_count = count;
    msg.u.data.chunk_bytes = chunk_bytes;
    message(&bench, 1, &msg, true);
    bad = count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_BAD_PLAN) == 1;
    assert_int_equal(count_logs(&bench, "W14"), bad);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_SCATTER), !bad);
    if (!bad)
        work(&bench);
    end_bench(&bench);
    return bad;
}

static void r_16_r_17_hostile_plans_are_refused(void **state)
{
    static struct msg_run many[2049];
    const uint32_t all = 64 * KIB;
    struct msg_run good = {.dst = PAGES, .piece_bytes = all, .pieces = 1};
    struct msg_run rows = {
        .dst = PAGES, .dst_stride = 128, .bounce_stride = 64, .piece_bytes = 64, .pieces = 1024};
    struct msg_run bad;

    (void)state;
    assert_false(refused(&good, 1, all));
    assert_false(refused(&rows, 1, all));
    assert_true(refused(&good, 1, all - 1)); /* total is not the chunk's */
    bad = good, bad.piece_bytes = all - 1;
    assert_true(refused(&bad, 1, all)); /* bytes are missing */
    bad = good, bad.piece_bytes = all + 1;
    assert_true(refused(&bad, 1, all)); /* over the region */
    bad = good, bad.bounce = 32;
    assert_true(refused(&bad, 1, all));
    bad = good, bad.bounce = UINT64_MAX - 31;
    assert_true(refused(&bad, 1, all));
    bad = good, bad.pieces = 0;
    assert_true(refused(&bad, 1, all));
    bad = good, bad.piece_bytes = 0;
    assert_true(refused(&bad, 1, all));
    bad = rows, bad.pieces = UINT32_MAX, bad.bounce_stride = 0, bad.dst_stride = 0;
    assert_true(refused(&bad, 1, all));
    bad = rows, bad.bounce_stride = 96; /* not packed */
    assert_true(refused(&bad, 1, all));
    bad = rows, bad.dst_stride = PAGES_BYTES; /* leaves the pages */
    assert_true(refused(&bad, 1, all));
    bad = good, bad.dst = PAGES + PAGES_BYTES - all + 1;
    assert_true(refused(&bad, 1, all));
    bad = good, bad.dst = PAGES - 1;
    assert_true(refused(&bad, 1, all));
    bad = rows, bad.dst_stride = UINT64_MAX; /* walks down, out of them */
    assert_true(refused(&bad, 1, all));
    for (uint32_t r = 0; r < 2049; r++)
        many[r] = (struct msg_run){
            .bounce = r * 32, .dst = PAGES + r * 32, .piece_bytes = 32, .pieces = 1};
    assert_false(refused(many, 2048, all));
    assert_true(refused(many, 2049, all)); /* one more than it can hold */
}

static void r_18_device_error_is_a_nack(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]) && bounce_job_start(bench.jobs[0]));
    give_back(&bench, BOUNCE_JOB_FAILED);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_SCATTER_FAILED), 1);
    assert_int_equal(count_messages(&bench, MSG_ACK), 0);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_FAILED), 1);
    assert_int_equal(count_logs(&bench, "W15"), 1);
    end_bench(&bench);
}

/*
 * All interleavings of the worker's steps with a fence and the look at what runs: never does
 * something run that the reactor was told had ended.
 */
static void r_20_fence_against_worker(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 4; at++) { /* worker steps done before the fence */
        struct bench bench;
        bool taken = false, started = false;

        open_bench(&bench);
        want(&bench, 1, 1, 1, (uint32_t)MIB);
        data(&bench, 1, 1, 0);
        if (at >= 1)
            taken = bounce_job_take(bench.jobs[0]);
        if (at >= 2)
            started = bounce_job_start(bench.jobs[0]);
        if (at < 3)
            fence(&bench);
        if (at == 0) { /* taken back: the reactor sees none, and none starts */
            assert_int_equal(bounce_recv_running(bench.recv, 7, 3), 0);
            assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ENDED), 1);
        } else {
            assert_int_equal(bounce_recv_running(bench.recv, 7, 3), 1);
        }
        if (!taken)
            taken = bounce_job_take(bench.jobs[0]);
        if (taken && !started)
            started = bounce_job_start(bench.jobs[0]);
        assert_true(started == (at >= 2));
        give_back(&bench, started ? BOUNCE_JOB_RAN : BOUNCE_JOB_NOT_RUN);
        if (at == 3)
            fence(&bench);
        assert_int_equal(bounce_recv_running(bench.recv, 7, 3), 0);
        assert_int_equal(count_messages(&bench, MSG_ACK), started);
        assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_FENCED), !started);
        assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_ENDED), 1);
        end_bench(&bench);
    }
}

static void r_21_want_for_a_fenced_session(void **state)
{
    struct msg msg = {
        .header = {.type = MSG_WANT},
        .u.want = {.flow = 1, .rid = 7, .tag = 3, .chunk_count = 1, .sizes = (uint32_t[]){64}},
    };
    struct bench bench;

    (void)state;
    open_bench(&bench);
    message(&bench, 1, &msg, false);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_FENCED), 1);
    assert_int_equal(bench.credit_count, 0);
    end_bench(&bench);
}

static void fence_nacks_what_is_pending_and_what_still_comes(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 20, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    fence(&bench);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_FENCED), 1);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_FENCED), 1);
    assert_true(bytes_of(&bench, ARENA_GRANTED) == 7 * MIB); /* a put may be under way */
    data(&bench, 1, 1, 1);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_FENCED), 2);
    assert_int_equal(count_of(&bench, BOUNCE_RECV_ACT_SCATTER), 1);
    cancel(&bench, 1, 1, true);
    work(&bench);
    end_bench(&bench);
}

static void r_22_duplicate_data(void **state)
{
    struct bench bench;
    uint8_t wire[MSG_RUN_BYTES];
    struct msg msg;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    msg = data_of(&bench, 1, 0, wire);
    message(&bench, 1, &msg, true);
    message(&bench, 1, &msg, true);
    assert_int_equal(count_logs(&bench, "W11"), 1);
    assert_int_equal(bench.job_count, 1);
    work(&bench);
    message(&bench, 1, &msg, true);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_STALE_REGION), 1);
    assert_int_equal(count_messages(&bench, MSG_ACK), 1);
    data(&bench, 1, 1, 1);
    work(&bench);
    end_bench(&bench);
}

static void another_peers_ids_move_nothing(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    data(&bench, 2, 1, 0);
    cancel(&bench, 2, 1, true);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_STALE_REGION), 1);
    assert_int_equal(bench.actions[bench.count - 1].peer, 2);
    assert_int_equal(bench.job_count, 0);
    assert_true(bytes_of(&bench, ARENA_GRANTED) == MIB);
    data(&bench, 1, 1, 0);
    work(&bench);
    end_bench(&bench);
}

static void r_23_a_big_chunk_is_not_starved(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;
    uint32_t next[3] = {0};
    uint32_t rounds = 0;

    (void)state;
    params.chunk_bytes = 2 * MIB;
    open_with(&bench, &params, 4 * KIB);
    for (uint32_t f = 0; f < 2; f++) /* a flood of small ones */
        want(&bench, f, 1 + f, 100, 512 * KIB);
    want(&bench, 2, 3, 1, (uint32_t)(2 * MIB));
    while (granted(&bench, 3) == 0) {
        uint32_t f = rounds % 2;

        assert_true(rounds++ < 24);
        if (next[f] < granted(&bench, 1 + f)) {
            data(&bench, f, 1 + f, next[f]++);
            work(&bench);
        }
    }
    close_bench(&bench);
}

static void a_slow_writer_leaves_room_for_the_others(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    params.share = true;
    open_with(&bench, &params, 4 * KIB);
    want(&bench, 1, 1, 8, (uint32_t)MIB); /* and says no more */
    assert_int_equal(granted(&bench, 1), 2);
    want(&bench, 2, 9, 1, (uint32_t)MIB);
    data(&bench, 2, 9, 0);
    work(&bench);
    assert_int_equal(granted(&bench, 1), 2);
    close_bench(&bench);
}

static void r_26_cancel_without_a_known_flow(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    cancel(&bench, 1, 77, true);
    assert_int_equal(bench.count, 0);
    end_bench(&bench);
}

static void r_27_lease_of_a_flow_that_only_waits(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    open_with(&bench, &params, KIB);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    want(&bench, 2, 2, 1, (uint32_t)MIB); /* no room for it */
    data(&bench, 1, 1, 0);
    assert_true(bounce_job_take(bench.jobs[0]) && bounce_job_start(bench.jobs[0]));
    tick_at(&bench, 61 * SECOND);
    tick_at(&bench, 200 * SECOND);
    assert_int_equal(count_logs(&bench, "W16"), 0);
    assert_true(bounce_recv_counts(bench.recv)->flows == 2);
    plain_event(&bench, BOUNCE_RECV_PEER_LOST, 2);
    assert_true(bounce_recv_counts(bench.recv)->flows == 1);
    give_back(&bench, BOUNCE_JOB_RAN);
    end_bench(&bench);
}

static void when_all_is_in_quarantine_new_flows_are_refused_with_a_reason(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    open_with(&bench, &params, 2 * KIB);
    want(&bench, 1, 1, 2, (uint32_t)MIB);
    cancel(&bench, 1, 1, false);
    want(&bench, 2, 1, 1, (uint32_t)MIB);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_NO_CAPACITY), 1);
    assert_int_equal(count_logs(&bench, "W33"), 1);
    tick_at(&bench, 31 * SECOND);
    want(&bench, 2, 2, 1, (uint32_t)MIB);
    assert_int_equal(granted(&bench, 2), 1);
    close_bench(&bench);
}

static void full_tables_refuse_and_recover(void **state)
{
    struct bounce_recv_params params = base_params();
    struct bench bench;

    (void)state;
    params.flows_max = 1;
    params.sizes_max = 64;
    open_with(&bench, &params, 64 * KIB);
    want(&bench, 1, 1, 1, (uint32_t)MIB);
    want(&bench, 1, 2, 1, (uint32_t)MIB);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_NO_CAPACITY), 1);
    data(&bench, 1, 1, 0);
    work(&bench);
    want(&bench, 1, 3, 1, (uint32_t)MIB);
    data(&bench, 1, 3, 0);
    work(&bench);
    end_bench(&bench);
}

static void no_grant_goes_out_after_shutdown(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    want(&bench, 1, 1, 10, (uint32_t)MIB);
    data(&bench, 1, 1, 0);
    data(&bench, 1, 1, 1);
    assert_true(bounce_job_take(bench.jobs[0]) && bounce_job_start(bench.jobs[0]));
    plain_event(&bench, BOUNCE_RECV_SHUTDOWN, 0);
    assert_int_equal(count_nacks(&bench, MSG_NACK_CHUNK, MSG_NACK_CLOSING), 1);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_CLOSING), 1);
    give_back(&bench, BOUNCE_JOB_RAN);
    assert_int_equal(count_messages(&bench, MSG_ACK), 1);
    work(&bench);
    assert_int_equal(granted(&bench, 1), 8);
    want(&bench, 1, 2, 1, 64);
    assert_int_equal(count_nacks(&bench, MSG_NACK_FLOW, MSG_NACK_CLOSING), 2);
    close_bench(&bench);
}

static void open_gives_back_what_it_took_when_memory_ends(void **state)
{
    struct bounce_recv_params params = base_params();

    (void)state;
    assert_int_equal(arena_open(kvf_heap_system(), 4 * MIB, MIB, &params.arena), KVF_OK);
    for (uint64_t n = 1;; n++) {
        struct bounce_recv *recv = NULL;
        struct fail_heap heap;
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = bounce_recv_open(&heap.heap, &params, &recv);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            bounce_recv_close(recv);
            fail_heap_fini(&heap);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        fail_heap_fini(&heap);
    }
    params.runs_bytes = 4096;
    assert_int_equal(bounce_recv_open(kvf_heap_system(), &params, NULL), KVF_E_INVAL);
    arena_close(params.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_goes_from_want_to_its_last_ack),
        cmocka_unit_test(r_01_cancel_drops_and_nacks_queued_jobs),
        cmocka_unit_test(r_02_a_taken_job_that_has_not_started_is_nacked_when_it_comes_back),
        cmocka_unit_test(r_03_a_running_job_finishes_after_the_cancel),
        cmocka_unit_test(r_05_r_06_data_after_the_lease_is_nacked_and_touches_nothing),
        cmocka_unit_test(r_07_forget_with_an_orphaned_job),
        cmocka_unit_test(r_08_forget_does_not_feed_the_forgotten_peer),
        cmocka_unit_test(r_09_r_10_a_lease_does_not_end_under_work_or_while_there_is_progress),
        cmocka_unit_test(r_11_r_13_dirty_cancel_gives_the_region_to_others_after_quarantine),
        cmocka_unit_test(proof_of_the_peers_end_ends_its_quarantine),
        cmocka_unit_test(r_12_clean_cancel_frees_at_once),
        cmocka_unit_test(r_14_duplicate_want),
        cmocka_unit_test(r_15_impossible_sizes_never_reach_the_scheduler),
        cmocka_unit_test(r_16_r_17_hostile_plans_are_refused),
        cmocka_unit_test(r_18_device_error_is_a_nack),
        cmocka_unit_test(r_20_fence_against_worker),
        cmocka_unit_test(r_21_want_for_a_fenced_session),
        cmocka_unit_test(fence_nacks_what_is_pending_and_what_still_comes),
        cmocka_unit_test(r_22_duplicate_data),
        cmocka_unit_test(another_peers_ids_move_nothing),
        cmocka_unit_test(r_23_a_big_chunk_is_not_starved),
        cmocka_unit_test(a_slow_writer_leaves_room_for_the_others),
        cmocka_unit_test(r_26_cancel_without_a_known_flow),
        cmocka_unit_test(r_27_lease_of_a_flow_that_only_waits),
        cmocka_unit_test(when_all_is_in_quarantine_new_flows_are_refused_with_a_reason),
        cmocka_unit_test(full_tables_refuse_and_recover),
        cmocka_unit_test(no_grant_goes_out_after_shutdown),
        cmocka_unit_test(open_gives_back_what_it_took_when_memory_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
