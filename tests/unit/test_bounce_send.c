/*
 * test_bounce_send.c - the writer's half of the bounce alone; the receiver is played by the test.
 * A test whose name begins with b_NN is that scenario of the specification.
 */
#include "testing.h"

#include <string.h>

#include "clock.h"
#include "fail_heap.h"
#include "xfer/bounce_send.h"

#define MIB (UINT64_C(1) << 20)
#define SECOND CLOCK_NS_PER_S
#define ACTIONS_MAX 4096u
#define PEER_BASE UINT64_C(0x500000000000)

struct bench {
    struct arena *arena;
    struct bounce_send *send;
    uint64_t now_ns;
    uint64_t flow; /* of the last submit */
    struct bounce_send_action actions[ACTIONS_MAX];
    uint32_t count;
    uint32_t seen; /* actions before this one were looked at */
};

static void emit(void *self, const struct bounce_send_action *action)
{
    struct bench *bench = self;

    assert_true(bench->count < ACTIONS_MAX);
    bench->actions[bench->count++] = *action;
}

static enum kvf_status step(struct bench *bench, struct bounce_send_event *event)
{
    struct bounce_send_out out = {.self = bench, .emit = emit};
    enum kvf_status status;

    event->now_ns = bench->now_ns;
    bench->seen = bench->count;
    status = bounce_send_step(bench->send, event, &out);
    bounce_send_check(bench->send);
    assert_int_equal(bounce_send_counts(bench->send)->unexpected_events, 0);
    if (event->kind == BOUNCE_SEND_SUBMIT && status == KVF_OK)
        bench->flow = out.flow;
    return status;
}

static struct bounce_send_params base_params(struct arena *arena)
{
    return (struct bounce_send_params){
        .flows_max = 32,
        .chunks_max = 256,
        .chunk_bytes = MIB,
        .window = 8,
        .gathers_max = 8,
        .timeout_ns = 30 * SECOND,
        .hold_cap_ns = 5 * SECOND,
        .arena = arena,
    };
}

static void open_with(struct bench *bench, struct bounce_send_params *params, uint64_t arena_mib)
{
    memset(bench, 0, sizeof(*bench));
    bench->now_ns = 1;
    assert_int_equal(arena_open(kvf_heap_system(), arena_mib * MIB, MIB, &bench->arena), KVF_OK);
    params->arena = bench->arena;
    assert_int_equal(bounce_send_open(kvf_heap_system(), params, &bench->send), KVF_OK);
}

static void open_bench(struct bench *bench)
{
    struct bounce_send_params params = base_params(NULL);

    open_with(bench, &params, 64);
}

/* Nothing is left behind. */
static void end_bench(struct bench *bench)
{
    assert_true(bounce_send_counts(bench->send)->flows == 0);
    assert_true(arena_counts(bench->arena)->state_bytes[ARENA_FREE] ==
                arena_counts(bench->arena)->usable_bytes);
    bounce_send_close(bench->send);
    arena_close(bench->arena);
}

static void close_bench(struct bench *bench)
{
    bounce_send_close(bench->send);
    arena_close(bench->arena);
}

/* ---- what is done --------------------------------------------------------------------------- */

static enum kvf_status submit_to(struct bench *bench, uint32_t peer, uint32_t chunks, bool mapped)
{
    static uint32_t sizes[256];
    struct bounce_send_event event = {
        .kind = BOUNCE_SEND_SUBMIT,
        .u.submit = {.task = 100 + peer,
                     .peer = peer,
                     .rid = 7,
                     .tag = 3,
                     .chunk_count = chunks,
                     .sizes = sizes,
                     .mapped = mapped,
                     .arena_base = PEER_BASE,
                     .arena_bytes = 64 * MIB},
    };

    for (uint32_t c = 0; c < 256; c++)
        sizes[c] = (uint32_t)MIB;
    return step(bench, &event);
}

static void submit(struct bench *bench, uint32_t chunks)
{
    assert_int_equal(submit_to(bench, 1, chunks, false), KVF_OK);
}

static void message(struct bench *bench, uint32_t peer, struct msg *msg)
{
    struct bounce_send_event event = {
        .kind = BOUNCE_SEND_MESSAGE,
        .u.message = {.peer = peer, .msg = msg},
    };

    step(bench, &event);
}

/* A credit as a receiver would make it, changed by `change`. */
static void grant_as(struct bench *bench, uint32_t peer, uint32_t chunk,
                     void (*change)(struct msg_credit *))
{
    static uint8_t wire[512];
    struct msg_credit credit = {.chunk = chunk,
                                .region = {chunk * MIB, 5},
                                .address = PEER_BASE + chunk * MIB,
                                .len_bytes = (uint32_t)MIB};
    struct msg msg = {.header = {.type = MSG_GRANT, .source_instance = 1, .epoch = 9}};
    struct msg decoded;
    size_t len;

    if (change != NULL)
        change(&credit);
    msg.u.grant = (struct msg_grant){.flow = bench->flow, .count = 1, .credits = &credit};
    assert_int_equal(msg_encode(&msg, wire, sizeof(wire), &len), KVF_OK);
    msg_seal(wire, len, 1);
    assert_int_equal(msg_decode(wire, len, &decoded, NULL), KVF_OK);
    message(bench, peer, &decoded);
}

static void grant(struct bench *bench, uint32_t chunk)
{
    grant_as(bench, 1, chunk, NULL);
}

static void ack_from(struct bench *bench, uint32_t peer, uint32_t chunk, uint32_t generation)
{
    struct msg msg = {
        .header = {.type = MSG_ACK},
        .u.ack = {.flow = bench->flow, .chunk = chunk, .region = {chunk * MIB, generation}},
    };

    message(bench, peer, &msg);
}

static void ack(struct bench *bench, uint32_t chunk)
{
    ack_from(bench, 1, chunk, 5);
}

static void nack(struct bench *bench, uint32_t chunk, enum msg_nack_reason reason)
{
    struct msg msg = {
        .header = {.type = MSG_NACK},
        .u.nack = {.flow = bench->flow,
                   .scope = MSG_NACK_CHUNK,
                   .chunk = chunk,
                   .region = {chunk * MIB, 5},
                   .reason = (uint8_t)reason},
    };

    message(bench, 1, &msg);
}

static void nack_flow(struct bench *bench, enum msg_nack_reason reason)
{
    struct msg msg = {
        .header = {.type = MSG_NACK},
        .u.nack = {.flow = bench->flow, .scope = MSG_NACK_FLOW, .reason = (uint8_t)reason},
    };

    message(bench, 1, &msg);
}

static void chunk_event(struct bench *bench, enum bounce_send_event_kind kind, uint32_t chunk,
                        enum kvf_status status, bool idle)
{
    struct bounce_send_event event = {
        .kind = kind,
        .u.chunk = {.flow = bench->flow, .chunk = chunk, .status = status, .idle = idle},
    };

    step(bench, &event);
}

static void gathered(struct bench *bench, uint32_t chunk)
{
    chunk_event(bench, BOUNCE_SEND_GATHERED, chunk, KVF_OK, true);
}

static void written(struct bench *bench, uint32_t chunk)
{
    chunk_event(bench, BOUNCE_SEND_WRITTEN, chunk, KVF_OK, true);
}

static void put_fails(struct bench *bench, uint32_t chunk)
{
    chunk_event(bench, BOUNCE_SEND_WRITTEN, chunk, KVF_E_TRANSFER, true);
}

/* Credit, gather, put: until its DATA is out. */
static void send_chunk(struct bench *bench, uint32_t chunk)
{
    grant(bench, chunk);
    gathered(bench, chunk);
    written(bench, chunk);
}

static void tick_at(struct bench *bench, uint64_t now_ns)
{
    struct bounce_send_event event = {.kind = BOUNCE_SEND_TICK};

    bench->now_ns = now_ns;
    step(bench, &event);
}

static void plain_event(struct bench *bench, enum bounce_send_event_kind kind, uint32_t peer)
{
    struct bounce_send_event event = {.kind = kind, .u.peer = peer};

    step(bench, &event);
}

/* ---- what is seen --------------------------------------------------------------------------- */

static uint32_t count_of(const struct bench *bench, enum bounce_send_action_kind kind)
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
        count += bench->actions[a].kind == BOUNCE_SEND_ACT_MESSAGE &&
                 bench->actions[a].u.msg.header.type == type;
    return count;
}

static uint32_t count_logs(const struct bench *bench, const char *event)
{
    uint32_t count = 0;

    for (uint32_t a = 0; a < bench->count; a++)
        count += bench->actions[a].kind == BOUNCE_SEND_ACT_LOG &&
                 strcmp(bench->actions[a].u.log.event, event) == 0;
    return count;
}

static const struct bounce_send_action *last_of(const struct bench *bench,
                                                enum bounce_send_action_kind kind)
{
    for (uint32_t a = bench->count; a > 0; a--)
        if (bench->actions[a - 1].kind == kind)
            return &bench->actions[a - 1];
    fail_msg("no action of kind %d", (int)kind);
    return NULL;
}

static void assert_cancel(const struct bench *bench, bool clean)
{
    const struct bounce_send_action *action = last_of(bench, BOUNCE_SEND_ACT_MESSAGE);

    assert_int_equal(action->u.msg.header.type, MSG_FLOW_CANCEL);
    assert_true(action->u.msg.u.flow_cancel.clean == clean);
    assert_int_equal(count_messages(bench, MSG_FLOW_CANCEL), 1);
}

static void assert_unresolved(const struct bench *bench)
{
    assert_int_equal(count_of(bench, BOUNCE_SEND_ACT_RESOLVED), 0);
}

static void assert_failed(const struct bench *bench, enum bounce_fail reason, bool unanswered)
{
    const struct bounce_send_action *action = last_of(bench, BOUNCE_SEND_ACT_RESOLVED);

    assert_int_equal(count_of(bench, BOUNCE_SEND_ACT_RESOLVED), 1);
    assert_int_equal(action->u.resolved.reason, reason);
    assert_true(action->u.resolved.status < 0);
    assert_true(action->u.resolved.unanswered == unanswered);
    assert_int_equal(count_logs(bench, "W06"), 1);
}

static void assert_success(const struct bench *bench)
{
    assert_int_equal(count_of(bench, BOUNCE_SEND_ACT_RESOLVED), 1);
    assert_int_equal(last_of(bench, BOUNCE_SEND_ACT_RESOLVED)->u.resolved.status, KVF_OK);
}

/* ---- scenarios ------------------------------------------------------------------------------ */

static void b_01_flow_succeeds_once_when_all_chunks_are_acked(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    assert_int_equal(count_messages(&bench, MSG_WANT), 1);
    for (uint32_t c = 0; c < 3; c++)
        send_chunk(&bench, c);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 3);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 3);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_DATA), 3);
    ack(&bench, 2);
    ack(&bench, 0);
    assert_unresolved(&bench);
    ack(&bench, 1);
    assert_success(&bench);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    end_bench(&bench);
}

static void b_02_empty_plan_succeeds_without_traffic(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 0);
    assert_success(&bench);
    assert_int_equal(bench.count, 1);
    assert_true(bench.flow == 0);
    end_bench(&bench);
}

static void b_03_sizes_that_cannot_be_are_refused_at_submit(void **state)
{
    uint32_t sizes[2] = {1, 0};
    struct bounce_send_event event = {.kind = BOUNCE_SEND_SUBMIT,
                                      .u.submit = {.peer = 1, .chunk_count = 2, .sizes = sizes}};
    struct bench bench;

    (void)state;
    open_bench(&bench);
    assert_int_equal(step(&bench, &event), KVF_E_TOO_LARGE);
    sizes[1] = (uint32_t)MIB + 1;
    assert_int_equal(step(&bench, &event), KVF_E_TOO_LARGE);
    event.u.submit.chunk_count = MSG_FLOW_CHUNKS_MAX + 1;
    assert_int_equal(step(&bench, &event), KVF_E_TOO_LARGE);
    assert_int_equal(bench.count, 0);
    end_bench(&bench);
}

/* Chunk 0 is sent; the put of chunk 1 fails at t = 10 s. */
static void sent_and_failed(struct bench *bench, uint64_t timeout_ns)
{
    struct bounce_send_params params = base_params(NULL);

    params.timeout_ns = timeout_ns;
    open_with(bench, &params, 64);
    submit(bench, 3);
    send_chunk(bench, 0);
    grant(bench, 1);
    gathered(bench, 1);
    bench->now_ns = 10 * SECOND;
    put_fails(bench, 1);
}

static void b_04_held_failure_ends_on_ack_of_the_sent_chunk(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    assert_unresolved(&bench);
    assert_cancel(&bench, false);
    tick_at(&bench, 10 * SECOND + SECOND / 5 - 1);
    assert_unresolved(&bench);
    bench.now_ns = 10 * SECOND + SECOND / 5;
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    assert_int_equal(count_logs(&bench, "W07"), 0);
    end_bench(&bench);
}

static void b_05_held_failure_ends_on_nack_of_the_sent_chunk(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    nack(&bench, 0, MSG_NACK_CANCELLED);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    end_bench(&bench);
}

static void b_06_answer_for_another_chunk_does_not_end_the_hold(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    ack(&bench, 2);
    assert_int_equal(count_logs(&bench, "W09"), 1);
    nack_flow(&bench, MSG_NACK_CANCELLED); /* answers no chunk */
    assert_unresolved(&bench);
    bench.now_ns = 11 * SECOND;
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    end_bench(&bench);
}

static void b_07_answer_from_another_peer_does_not_end_the_hold(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    ack_from(&bench, 2, 0, 5);
    assert_int_equal(count_logs(&bench, "W08"), 1);
    assert_unresolved(&bench);
    tick_at(&bench, 15 * SECOND);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, true);
    end_bench(&bench);
}

static void b_08_answer_with_an_old_generation_does_not_end_the_hold(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    ack_from(&bench, 1, 0, 4);
    assert_int_equal(count_logs(&bench, "W09"), 1);
    assert_unresolved(&bench);
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    end_bench(&bench);
}

static void b_09_silent_receiver_below_the_cap(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 2 * SECOND);
    tick_at(&bench, 12 * SECOND - 1);
    assert_unresolved(&bench);
    assert_true(bounce_send_deadline_ns(bench.send) == 12 * SECOND);
    tick_at(&bench, 12 * SECOND);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, true);
    assert_int_equal(count_logs(&bench, "W07"), 1);
    assert_true(last_of(&bench, BOUNCE_SEND_ACT_LOG)->u.log.numbers[0] == 1);
    end_bench(&bench);
}

static void b_10_b_17_silent_receiver_at_the_cap_and_its_late_answers(void **state)
{
    struct bench bench;
    uint32_t before;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    tick_at(&bench, 15 * SECOND - 1);
    assert_unresolved(&bench);
    tick_at(&bench, 15 * SECOND);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, true);
    assert_int_equal(count_logs(&bench, "W07"), 1);
    before = bench.count;
    bench.now_ns = 16 * SECOND;
    ack(&bench, 0);
    nack(&bench, 0, MSG_NACK_CANCELLED);
    assert_int_equal(bench.count, before);
    assert_true(bounce_send_counts(bench.send)->late == 2);
    end_bench(&bench);
}

static void b_11_nack_while_another_chunk_is_unanswered_keeps_holding(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    send_chunk(&bench, 0);
    send_chunk(&bench, 1);
    nack(&bench, 0, MSG_NACK_SCATTER_FAILED);
    assert_unresolved(&bench);
    assert_cancel(&bench, true);
    bench.now_ns += 3 * SECOND;
    ack(&bench, 1);
    assert_failed(&bench, BOUNCE_FAIL_PEER_NACK, false);
    end_bench(&bench);
}

static void b_12_shutdown_ends_the_hold(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    bench.now_ns = 11 * SECOND;
    plain_event(&bench, BOUNCE_SEND_SHUTDOWN, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, true);
    assert_int_equal(count_logs(&bench, "W07"), 0);
    assert_int_equal(submit_to(&bench, 1, 1, false), KVF_E_CLOSED);
    end_bench(&bench);
}

static void b_13_no_hold_with_the_timeout_disabled(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, true);
    assert_true(bounce_send_deadline_ns(bench.send) == UINT64_MAX);
    end_bench(&bench);
}

static void b_15_cancel_waits_for_running_puts_the_hold_does_not(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    send_chunk(&bench, 0);
    grant(&bench, 1);
    gathered(&bench, 1); /* its put runs on */
    grant(&bench, 2);
    gathered(&bench, 2);
    bench.now_ns = 10 * SECOND;
    put_fails(&bench, 2);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    bench.now_ns += SECOND / 10;
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_WRITE] == MIB);
    tick_at(&bench, 18 * SECOND);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    bench.now_ns = 19 * SECOND;
    written(&bench, 1);
    assert_cancel(&bench, false);
    end_bench(&bench);
}

static void b_16_forgetting_the_peer_does_not_end_a_hold(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 2);
    send_chunk(&bench, 0);
    bench.now_ns = 10 * SECOND;
    plain_event(&bench, BOUNCE_SEND_PEER_LOST, 2);
    assert_int_equal(count_logs(&bench, "W06"), 0);
    plain_event(&bench, BOUNCE_SEND_PEER_LOST, 1);
    assert_unresolved(&bench);
    tick_at(&bench, 15 * SECOND);
    assert_failed(&bench, BOUNCE_FAIL_PEER_DROPPED, true);
    assert_int_equal(count_logs(&bench, "W07"), 1);
    end_bench(&bench);
}

static void b_18_duplicate_ack_is_not_counted(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    for (uint32_t c = 0; c < 3; c++)
        send_chunk(&bench, c);
    ack(&bench, 0);
    ack(&bench, 0);
    ack(&bench, 1);
    assert_unresolved(&bench);
    assert_int_equal(count_logs(&bench, "W09"), 1);
    ack(&bench, 2);
    assert_success(&bench);
    end_bench(&bench);
}

static void b_19_ack_for_a_chunk_still_writing_is_refused(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant(&bench, 0);
    gathered(&bench, 0);
    ack(&bench, 0);
    assert_int_equal(count_logs(&bench, "W09"), 1);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_STAGING] == MIB);
    assert_unresolved(&bench);
    written(&bench, 0);
    ack(&bench, 0);
    assert_success(&bench);
    end_bench(&bench);
}

static void b_20_a_held_failure_delays_nobody_else(void **state)
{
    struct bench bench;
    uint64_t held;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    held = bench.flow;
    for (unsigned n = 0; n < 10; n++) {
        bench.count = 0;
        assert_int_equal(submit_to(&bench, 0, 2, false), KVF_OK);
        for (uint32_t c = 0; c < 2; c++) {
            grant_as(&bench, 0, c, NULL);
            gathered(&bench, c);
            written(&bench, c);
            ack_from(&bench, 0, c, 5);
        }
        assert_success(&bench);
    }
    bench.count = 0;
    bench.flow = held;
    ack(&bench, 0);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_RESOLVED), 1);
    end_bench(&bench);
}

/* A put that never ends holds at most half of the arena: others have the rest. */
static void a_slow_peer_leaves_room_for_the_others(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct bench bench;

    (void)state;
    open_with(&bench, &params, 8);
    submit(&bench, 8);
    for (uint32_t c = 0; c < 8; c++)
        grant(&bench, c);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 4);
    for (uint32_t c = 0; c < 4; c++)
        gathered(&bench, c); /* and their puts hang */
    bench.count = 0;
    assert_int_equal(submit_to(&bench, 0, 1, false), KVF_OK);
    grant_as(&bench, 0, 0, NULL);
    gathered(&bench, 0);
    written(&bench, 0);
    ack_from(&bench, 0, 0, 5);
    assert_success(&bench);
    close_bench(&bench);
}

static void b_21_gather_that_fails_keeps_its_region_until_its_stream_is_idle(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 2);
    send_chunk(&bench, 0);
    grant(&bench, 1);
    chunk_event(&bench, BOUNCE_SEND_GATHERED, 1, KVF_E_TRANSFER, false);
    assert_unresolved(&bench);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_GATHER] == MIB);
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_GATHER, false);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_GATHER] == MIB);
    chunk_event(&bench, BOUNCE_SEND_GATHER_IDLE, 1, KVF_OK, true);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 1);
    end_bench(&bench);
}

static void b_22_no_put_of_a_chunk_whose_gather_was_not_seen_to_end(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant(&bench, 0);
    chunk_event(&bench, BOUNCE_SEND_GATHERED, 0, KVF_E_TRANSFER, false);
    assert_failed(&bench, BOUNCE_FAIL_GATHER, false);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 0);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_GATHER] == MIB);
    bench.now_ns += 2 * SECOND;
    chunk_event(&bench, BOUNCE_SEND_GATHER_IDLE, 0, KVF_OK, true);
    end_bench(&bench);
}

static void b_23_gather_that_never_ends_is_told_once(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant(&bench, 0);
    plain_event(&bench, BOUNCE_SEND_PEER_LOST, 1);
    assert_failed(&bench, BOUNCE_FAIL_PEER_DROPPED, false);
    tick_at(&bench, bench.now_ns + 30 * SECOND - 1);
    assert_int_equal(count_logs(&bench, "W18"), 0);
    tick_at(&bench, bench.now_ns + 1);
    tick_at(&bench, bench.now_ns + 100 * SECOND);
    assert_int_equal(count_logs(&bench, "W18"), 1);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_GATHER] == MIB);
    close_bench(&bench);
}

static void b_24_no_grant_ever(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    tick_at(&bench, 30 * SECOND);
    assert_unresolved(&bench);
    tick_at(&bench, 30 * SECOND + 1);
    assert_failed(&bench, BOUNCE_FAIL_NO_PROGRESS, false);
    assert_cancel(&bench, true);
    end_bench(&bench);
}

static void shorter(struct msg_credit *credit)
{
    credit->len_bytes--;
}

static void outside(struct msg_credit *credit)
{
    credit->address = PEER_BASE + 64 * MIB - 1;
    credit->region.offset = 64 * MIB - 1;
}

static void below(struct msg_credit *credit)
{
    credit->address = PEER_BASE - MIB;
    credit->region.offset = -MIB;
}

static void elsewhere(struct msg_credit *credit)
{
    credit->address += MIB;
}

static void other_device(struct msg_credit *credit)
{
    credit->device = 1;
}

static void other_medium(struct msg_credit *credit)
{
    credit->medium = MSG_MEDIUM_TWOSIDED;
}

static void b_25_grant_that_cannot_be_used_fails_the_flow_at_once(void **state)
{
    void (*const changes[])(struct msg_credit *) = {shorter,   outside,      below,
                                                    elsewhere, other_device, other_medium};

    (void)state;
    for (unsigned i = 0; i < 6; i++) {
        struct bench bench;

        open_bench(&bench);
        submit(&bench, 2);
        grant_as(&bench, 1, 1, changes[i]);
        assert_failed(&bench, BOUNCE_FAIL_PROTOCOL, false);
        assert_int_equal(count_logs(&bench, "W13"), 1);
        assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 0);
        end_bench(&bench);
    }
}

static void b_26_over_grant_and_repeated_grant_change_nothing(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    grant(&bench, 0);
    grant(&bench, 0);
    grant(&bench, 7);
    assert_int_equal(count_logs(&bench, "W13"), 2);
    gathered(&bench, 0);
    written(&bench, 0);
    send_chunk(&bench, 1);
    send_chunk(&bench, 2);
    for (uint32_t c = 0; c < 3; c++)
        ack(&bench, c);
    assert_success(&bench);
    end_bench(&bench);
}

static void b_27_grant_from_another_peer_redirects_nothing(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant_as(&bench, 2, 0, NULL);
    assert_int_equal(count_logs(&bench, "W08"), 1);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 0);
    send_chunk(&bench, 0);
    ack(&bench, 0);
    assert_success(&bench);
    end_bench(&bench);
}

static void b_28_grants_in_any_order(void **state)
{
    static const uint32_t order[] = {2, 0, 1};
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    for (unsigned i = 0; i < 3; i++)
        grant(&bench, order[i]);
    for (uint32_t c = 0; c < 3; c++) {
        const struct bounce_send_action *put;

        gathered(&bench, c);
        put = last_of(&bench, BOUNCE_SEND_ACT_PUT);
        assert_int_equal(put->u.chunk.chunk, c);
        assert_true(put->u.chunk.address == PEER_BASE + c * MIB);
        written(&bench, c);
        ack(&bench, c);
    }
    assert_success(&bench);
    end_bench(&bench);
}

static void b_30_put_that_never_ends(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant(&bench, 0);
    gathered(&bench, 0);
    bench.now_ns = 40 * SECOND;
    tick_at(&bench, bench.now_ns);
    assert_failed(&bench, BOUNCE_FAIL_NO_PROGRESS, false);
    tick_at(&bench, 70 * SECOND);
    tick_at(&bench, 700 * SECOND);
    assert_int_equal(count_logs(&bench, "W17"), 1);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_ORPHAN_WRITE] == MIB);
    close_bench(&bench);
}

static void b_31_eager_gathers_stay_within_half_the_arena(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct bench bench;
    uint32_t region;
    const struct arena_want want = {.len_bytes = 32 * MIB, .state = ARENA_STAGING};

    (void)state;
    params.eager = true;
    params.gathers_max = 1000;
    open_with(&bench, &params, 64);
    for (uint32_t f = 0; f < 20; f++)
        assert_int_equal(submit_to(&bench, f, 8, false), KVF_OK);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_EAGER] == 32 * MIB);
    assert_int_equal(arena_has_room(bench.arena, &want), KVF_OK);
    (void)region;
    close_bench(&bench);
}

static void eager_gather_waits_for_its_credit_and_is_put_at_once(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct bench bench;

    (void)state;
    params.eager = true;
    open_with(&bench, &params, 64);
    submit(&bench, 1);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 1);
    gathered(&bench, 0);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 0);
    grant(&bench, 0);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 1);
    written(&bench, 0);
    ack(&bench, 0);
    assert_success(&bench);
    end_bench(&bench);
}

static void b_32_grant_that_crosses_the_failure_is_dropped(void **state)
{
    struct bench bench;
    struct bounce_send_event abort = {.kind = BOUNCE_SEND_ABORT};

    (void)state;
    open_bench(&bench);
    submit(&bench, 2);
    send_chunk(&bench, 0);
    abort.u.abort = bench.flow;
    step(&bench, &abort);
    assert_cancel(&bench, true);
    grant(&bench, 1); /* held: its cancel is on its way */
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 1);
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_CANCELLED, false);
    grant(&bench, 1); /* gone: given back, once */
    grant(&bench, 1);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 2);
    bench.flow += 1 << 20; /* never was one */
    grant(&bench, 1);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 2);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 1);
    end_bench(&bench);
}

static void b_33_closing_reader_refuses_politely(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 2);
    nack_flow(&bench, MSG_NACK_CLOSING);
    assert_failed(&bench, BOUNCE_FAIL_PEER_NACK, false);
    assert_int_equal(last_of(&bench, BOUNCE_SEND_ACT_RESOLVED)->u.resolved.status,
                     KVF_E_PEER_CLOSED);
    end_bench(&bench);
}

static void b_35_lost_ack(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 3);
    for (uint32_t c = 0; c < 3; c++)
        send_chunk(&bench, c);
    bench.now_ns = 4 * SECOND;
    ack(&bench, 0);
    ack(&bench, 1);
    tick_at(&bench, 34 * SECOND - 1);
    assert_int_equal(count_logs(&bench, "W06"), 0);
    tick_at(&bench, 34 * SECOND);
    assert_unresolved(&bench);
    tick_at(&bench, 39 * SECOND);
    assert_failed(&bench, BOUNCE_FAIL_NO_PROGRESS, true);
    end_bench(&bench);
}

static void second_failure_does_not_change_the_reason(void **state)
{
    struct bench bench;

    (void)state;
    sent_and_failed(&bench, 30 * SECOND);
    plain_event(&bench, BOUNCE_SEND_PEER_LOST, 1);
    nack_flow(&bench, MSG_NACK_CLOSING);
    assert_unresolved(&bench);
    ack(&bench, 0);
    assert_failed(&bench, BOUNCE_FAIL_WRITE, false);
    end_bench(&bench);
}

static void stores_into_a_mapped_arena_take_no_staging(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    assert_int_equal(submit_to(&bench, 1, 2, true), KVF_OK);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_STORE), 0); /* the credit first */
    grant(&bench, 0);
    grant(&bench, 1);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_STORE), 2);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_PUT), 0);
    assert_true(arena_counts(bench.arena)->state_bytes[ARENA_FREE] == 64 * MIB);
    written(&bench, 0);
    written(&bench, 1);
    ack(&bench, 0);
    ack(&bench, 1);
    assert_success(&bench);
    end_bench(&bench);
}

/* A store that was stopped has ended: nothing of it lands late, the cancel is clean. */
static void a_stopped_store_makes_a_clean_cancel_once_it_is_over(void **state)
{
    struct bounce_send_event abort = {.kind = BOUNCE_SEND_ABORT};
    struct bench bench;

    (void)state;
    open_bench(&bench);
    assert_int_equal(submit_to(&bench, 1, 2, true), KVF_OK);
    grant(&bench, 0);
    abort.u.abort = bench.flow;
    step(&bench, &abort);
    assert_failed(&bench, BOUNCE_FAIL_CANCELLED, false);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_STOP), 1);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    chunk_event(&bench, BOUNCE_SEND_WRITTEN, 0, KVF_E_CANCELLED, true);
    assert_cancel(&bench, true);
    end_bench(&bench);
}

static void deferred_cancels_are_not_sent_at_shutdown(void **state)
{
    struct bench bench;

    (void)state;
    open_bench(&bench);
    submit(&bench, 1);
    grant(&bench, 0);
    gathered(&bench, 0);
    plain_event(&bench, BOUNCE_SEND_SHUTDOWN, 0);
    assert_failed(&bench, BOUNCE_FAIL_SHUTDOWN, false);
    written(&bench, 0);
    assert_int_equal(count_messages(&bench, MSG_FLOW_CANCEL), 0);
    end_bench(&bench);
}

static void no_more_than_the_window_is_begun(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct bench bench;

    (void)state;
    params.window = 2;
    open_with(&bench, &params, 64);
    submit(&bench, 5);
    for (uint32_t c = 0; c < 5; c++)
        grant(&bench, c);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 2);
    gathered(&bench, 0);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 2);
    written(&bench, 0);
    assert_int_equal(count_of(&bench, BOUNCE_SEND_ACT_GATHER), 3);
    close_bench(&bench);
}

static void full_tables_say_busy_and_recover(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct bench bench;

    (void)state;
    params.flows_max = 2;
    params.chunks_max = 64;
    open_with(&bench, &params, 64);
    submit(&bench, 64);
    assert_int_equal(submit_to(&bench, 1, 65, false), KVF_E_TOO_LARGE);
    submit(&bench, 64);
    assert_int_equal(submit_to(&bench, 1, 1, false), KVF_BUSY);
    nack_flow(&bench, MSG_NACK_CLOSING);
    assert_int_equal(submit_to(&bench, 1, 64, false), KVF_OK);
    close_bench(&bench);
}

static void open_gives_back_what_it_took_when_memory_ends(void **state)
{
    struct bounce_send_params params = base_params(NULL);
    struct arena *arena;

    (void)state;
    assert_int_equal(arena_open(kvf_heap_system(), 4 * MIB, MIB, &arena), KVF_OK);
    params.arena = arena;
    for (uint64_t n = 1;; n++) {
        struct bounce_send *send = NULL;
        struct fail_heap heap;
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = bounce_send_open(&heap.heap, &params, &send);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            bounce_send_close(send);
            fail_heap_fini(&heap);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        fail_heap_fini(&heap);
    }
    params.chunk_bytes = 5 * MIB;
    assert_int_equal(bounce_send_open(kvf_heap_system(), &params, NULL), KVF_E_INVAL);
    arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b_01_flow_succeeds_once_when_all_chunks_are_acked),
        cmocka_unit_test(b_02_empty_plan_succeeds_without_traffic),
        cmocka_unit_test(b_03_sizes_that_cannot_be_are_refused_at_submit),
        cmocka_unit_test(b_04_held_failure_ends_on_ack_of_the_sent_chunk),
        cmocka_unit_test(b_05_held_failure_ends_on_nack_of_the_sent_chunk),
        cmocka_unit_test(b_06_answer_for_another_chunk_does_not_end_the_hold),
        cmocka_unit_test(b_07_answer_from_another_peer_does_not_end_the_hold),
        cmocka_unit_test(b_08_answer_with_an_old_generation_does_not_end_the_hold),
        cmocka_unit_test(b_09_silent_receiver_below_the_cap),
        cmocka_unit_test(b_10_b_17_silent_receiver_at_the_cap_and_its_late_answers),
        cmocka_unit_test(b_11_nack_while_another_chunk_is_unanswered_keeps_holding),
        cmocka_unit_test(b_12_shutdown_ends_the_hold),
        cmocka_unit_test(b_13_no_hold_with_the_timeout_disabled),
        cmocka_unit_test(b_15_cancel_waits_for_running_puts_the_hold_does_not),
        cmocka_unit_test(b_16_forgetting_the_peer_does_not_end_a_hold),
        cmocka_unit_test(b_18_duplicate_ack_is_not_counted),
        cmocka_unit_test(b_19_ack_for_a_chunk_still_writing_is_refused),
        cmocka_unit_test(b_20_a_held_failure_delays_nobody_else),
        cmocka_unit_test(a_slow_peer_leaves_room_for_the_others),
        cmocka_unit_test(b_21_gather_that_fails_keeps_its_region_until_its_stream_is_idle),
        cmocka_unit_test(b_22_no_put_of_a_chunk_whose_gather_was_not_seen_to_end),
        cmocka_unit_test(b_23_gather_that_never_ends_is_told_once),
        cmocka_unit_test(b_24_no_grant_ever),
        cmocka_unit_test(b_25_grant_that_cannot_be_used_fails_the_flow_at_once),
        cmocka_unit_test(b_26_over_grant_and_repeated_grant_change_nothing),
        cmocka_unit_test(b_27_grant_from_another_peer_redirects_nothing),
        cmocka_unit_test(b_28_grants_in_any_order),
        cmocka_unit_test(b_30_put_that_never_ends),
        cmocka_unit_test(b_31_eager_gathers_stay_within_half_the_arena),
        cmocka_unit_test(eager_gather_waits_for_its_credit_and_is_put_at_once),
        cmocka_unit_test(b_32_grant_that_crosses_the_failure_is_dropped),
        cmocka_unit_test(b_33_closing_reader_refuses_politely),
        cmocka_unit_test(b_35_lost_ack),
        cmocka_unit_test(second_failure_does_not_change_the_reason),
        cmocka_unit_test(stores_into_a_mapped_arena_take_no_staging),
        cmocka_unit_test(a_stopped_store_makes_a_clean_cancel_once_it_is_over),
        cmocka_unit_test(deferred_cancels_are_not_sent_at_shutdown),
        cmocka_unit_test(no_more_than_the_window_is_begun),
        cmocka_unit_test(full_tables_say_busy_and_recover),
        cmocka_unit_test(open_gives_back_what_it_took_when_memory_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
