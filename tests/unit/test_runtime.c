/*
 * test_runtime.c - the whole library, several ranks in one process, over a fake transport: success
 * and plain failures, with every byte compared and nothing left over.
 */
#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "reactor_internal.h"
#include "runtime_sim.h"

#define STEPS 20000u

static const struct fake_params network = {.seed = 7, .delay_max = 5, .messages_reorder = true};

/* All of the library takes the time from here. */
static uint64_t clock_ahead_ns;

uint64_t __real_clock_now_ns(void);
uint64_t __wrap_clock_now_ns(void);

uint64_t __wrap_clock_now_ns(void)
{
    return __real_clock_now_ns() + clock_ahead_ns;
}

/* Dead ranks are never closed; a leak checker finds them here. */
static struct kvf *dead_ranks[512];
static uint32_t dead_rank_count;

/* Every promise that holds at the end of any run. */
static void end(struct sim *sim, bool close_clean)
{
    for (uint32_t r = 0; r < sim->count; r++) {
        struct kvf_counters counters = KVF_COUNTERS_INIT;

        assert_int_equal(kvf_counters(sim->ranks[r].kvf, &counters), KVF_OK);
        assert_int_equal(counters.unexpected_events, 0);
        assert_int_equal(counters.live_requests, 0);
        assert_int_equal(counters.retained_blocks, 0);
        assert_int_equal(counters.allocations_after_ready, 0);
    }
    sim_close(sim, 200);
    for (uint32_t r = 0; r < sim->count && close_clean; r++)
        assert_int_equal(sim->ranks[r].status, KVF_OK);
    assert_int_equal(fake_net_counts(sim->net).late_writes, 0);
    assert_int_equal(fake_net_counts(sim->net).source_changes, 0);
    sim_free(sim);
}

static bool is_context(const struct sim *sim, uint32_t rank)
{
    return sim->ranks[rank].engine.rank.side == KVF_CONTEXT;
}

static void open_on(struct sim *sim, uint32_t rank, const struct tiny_request *request)
{
    const struct kvf_end other = {is_context(sim, rank) ? 1 : 0, 0};

    assert_int_equal(tiny_request_open(&sim->ranks[rank].engine, request, other), KVF_OK);
}

static void open_all(struct sim *sim, const struct tiny_request *request, bool ready)
{
    for (uint32_t r = 0; r < sim->count; r++) {
        open_on(sim, r, request);
        if (ready && is_context(sim, r))
            assert_int_equal(tiny_request_ready(&sim->ranks[r].engine, request->rid), KVF_OK);
    }
}

static void all_released(struct sim *sim, uint64_t rid)
{
    for (uint32_t r = 0; r < sim->count; r++)
        assert_true(sim_until(sim, r, rid, KVF_EVENT_RELEASED, STEPS));
}

/* ---- success -------------------------------------------------------------------------------- */

static void succeed(const char *topology, const char *settings, bool aux)
{
    struct sim *sim = sim_new(topology, &network);

    for (uint32_t r = 0; r < sim->count; r++) {
        sim->ranks[r].tiny.aux = aux;
        if (settings != NULL)
            sim->ranks[r].settings = settings;
    }
    assert_true(sim_open(sim));
    for (uint32_t i = 0; i < 5; i++) {
        struct tiny_request request = {
            .rid = 10 + i,
            .prompt_tokens = 3 + i * 5,
            .cached_tokens = i == 3 ? 9 : 0,
            .slot_first = i * 8,
        };

        open_all(sim, &request, true);
    }
    for (uint32_t i = 0; i < 5; i++) {
        struct tiny_request request = {
            .rid = 10 + i,
            .prompt_tokens = 3 + i * 5,
            .cached_tokens = i == 3 ? 9 : 0,
            .slot_first = i * 8,
        };

        all_released(sim, request.rid);
        for (uint32_t r = 0; r < sim->count; r++) {
            assert_non_null(sim_event(sim, r, request.rid,
                                      is_context(sim, r) ? KVF_EVENT_SENT : KVF_EVENT_READY));
            assert_int_equal(tiny_request_bad(&sim->ranks[r].engine, &request), 0);
        }
    }
    end(sim, true);
}

static void mapped_requests_arrive_whole(void **state)
{
    (void)state;
    succeed("ctx tp=1; gen tp=1", NULL, true);
    succeed("ctx tp=2; gen tp=1", NULL, false);
    succeed("ctx tp=1 pp=2; gen tp=2", NULL, true);
}

static void direct_requests_arrive_whole(void **state)
{
    const char *settings = "all:\n  progress: caller\n  path: direct\n  direct_window: 3\n"
                           "  tombstones_max: 1024\n  requests_max: 64\n  blocks_max: 4096\n";

    (void)state;
    succeed("ctx tp=1; gen tp=1", settings, true);
    succeed("ctx tp=2; gen tp=1 pp=2", settings, true);
}

static void far_requests_arrive_whole(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    enum kvf_path path;
    char text[200];

    (void)state;
    sim->ranks[1].host = 1;
    assert_true(sim_open(sim));
    assert_int_equal(kvf_path_to(sim->ranks[0].kvf, 1, &path, text, sizeof(text)), KVF_OK);
    assert_int_equal(path, KVF_PATH_DIRECT);
    assert_int_equal(kvf_path_to(sim->ranks[0].kvf, 0, &path, text, sizeof(text)), KVF_E_NOTFOUND);
    open_all(sim, &request, true);
    all_released(sim, 5);
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    assert_true(sim_event(sim, 1, 5, KVF_EVENT_READY)->path_mask == 1u << KVF_PATH_DIRECT);
    end(sim, true);
}

/* Lines of failures are expected; the test asserts events. */
static void quiet(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    (void)self;
    (void)level;
    (void)event;
    (void)text;
}

/* ---- self check ----------------------------------------------------------------------------- */

#define SELF_CHECK \
    "all:\n  progress: caller\n  self_check: true\n  tombstones_max: 1024\n  requests_max: 64\n" \
    "  blocks_max: 4096\n"

static void self_check_finds_nothing_wrong_in_what_is_right(void **state)
{
    (void)state;
    succeed("ctx tp=1; gen tp=1", SELF_CHECK, true);
    succeed("ctx tp=2; gen tp=1 pp=2", SELF_CHECK, true);
    succeed("ctx tp=1 pp=2; gen tp=2", SELF_CHECK "  path: direct\n", false);
    /* Reports wait for each other, and for their pages, over many passes. */
    succeed("ctx tp=2 pp=2; gen tp=1", SELF_CHECK "  copy_step_bytes: 4096\n", true);
}

/* Steps until the request is READY, and its bytes. */
static uint32_t steps_to_ready(const char *settings, uint64_t *bytes_out)
{
    const struct tiny_request request = {.rid = 9, .prompt_tokens = 400};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    uint32_t steps = 0;

    sim->ranks[0].settings = sim->ranks[1].settings = settings;
    assert_true(sim_open(sim));
    open_all(sim, &request, true);
    for (; sim_event(sim, 1, 9, KVF_EVENT_READY) == NULL && steps < STEPS; steps++)
        sim_step(sim);
    assert_true(steps < STEPS);
    *bytes_out = sim_event(sim, 1, 9, KVF_EVENT_READY)->payload_bytes;
    all_released(sim, 9);
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    end(sim, true);
    return steps;
}

/* A step of the simulation is a pass: each side needs as many more as it has bytes to read. */
static void self_check_reads_a_bounded_number_of_bytes_a_pass(void **state)
{
    const uint32_t step_bytes = 4096, network_steps = 8;
    uint64_t bytes, same;
    uint32_t without, with;

    (void)state;
    without = steps_to_ready("all:\n  progress: caller\n  copy_step_bytes: 4096\n", &bytes);
    with = steps_to_ready(SELF_CHECK "  copy_step_bytes: 4096\n", &same);
    assert_int_equal(same, bytes);
    assert_true(bytes > 40 * step_bytes);
    assert_in_range(with + network_steps, without + 2 * bytes / step_bytes,
                    without + 2 * bytes / step_bytes + 4 * network_steps);
}

static char self_check_line[512];

static void keep_error(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    (void)self;
    (void)event;
    if (level == KVF_LOG_ERROR && strstr(text, "is not what lies in the pages") != NULL)
        snprintf(self_check_line, sizeof(self_check_line), "%s", text);
}

/*
 * One bit of a page of the reader is turned whenever something has been written there, so that it
 * is wrong when the report arrives. `bad` is a byte of slot 5's last layer.
 */
static void self_check_names_a_byte_that_was_turned(void **state)
{
    const struct tiny_request request = {.rid = 77, .prompt_tokens = 30, .slot_first = 3};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    const struct kvf_event *event;
    struct tiny_engine *reader;
    uint64_t stride;
    uint8_t *bad;
    uint8_t turned;

    (void)state;
    sim->log = keep_error;
    self_check_line[0] = 0;
    sim->ranks[0].settings = sim->ranks[1].settings = SELF_CHECK;
    assert_true(sim_open(sim));
    open_all(sim, &request, true);
    reader = &sim->ranks[1].engine;
    stride = reader->layout->pools[0].slot_stride;
    bad = (uint8_t *)kvf_pool_base(reader->pools[0]) + 5 * stride +
          reader->layout->pools[0].slot_bytes - 3;
    turned = *bad;
    for (uint32_t s = 0; s < STEPS && sim_event(sim, 1, 77, KVF_EVENT_RELEASED) == NULL; s++) {
        sim_step(sim);
        if (*bad != turned)
            turned = *bad ^= 4;
    }
    event = sim_event(sim, 1, 77, KVF_EVENT_FAILED);
    assert_non_null(event);
    assert_int_equal(event->status, KVF_E_TRANSFER);
    assert_null(sim_event(sim, 1, 77, KVF_EVENT_READY));
    assert_non_null(strstr(self_check_line, "request 77: "));
    assert_non_null(strstr(self_check_line, "ctx0/0"));
    assert_non_null(strstr(self_check_line, "layers 0 to 3, slot 5 of pool 0"));
    all_released(sim, 77);
    end(sim, true);
}

/* Rank 0 has done its part and is told so; rank 1 keeps its report and reads its pages. */
static struct sim *sim_while_report_is_kept(const struct tiny_request *request, bool far)
{
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

    sim->log = quiet;
    sim->ranks[1].host = far ? 1 : 0;
    sim->ranks[0].settings = sim->ranks[1].settings = SELF_CHECK "  copy_step_bytes: 4096\n";
    assert_true(sim_open(sim));
    open_all(sim, request, true);
    assert_true(sim_until(sim, 0, request->rid, KVF_EVENT_RELEASED, STEPS));
    for (uint32_t s = 0; s < 10; s++) /* the report arrives */
        sim_step(sim);
    assert_int_equal(sim->ranks[1].kvf->peers.list[0].held, 1);
    assert_null(sim_event(sim, 1, request->rid, KVF_EVENT_READY));
    return sim;
}

static void a_goodbye_waits_behind_a_report_that_is_kept(void **state)
{
    const struct tiny_request request = {.rid = 9, .prompt_tokens = 400};
    struct sim *sim = sim_while_report_is_kept(&request, false);

    (void)state;
    peers_goodbye(sim->ranks[0].kvf->reactor, true);
    assert_true(sim_until(sim, 1, 9, KVF_EVENT_RELEASED, STEPS));
    assert_non_null(sim_event(sim, 1, 9, KVF_EVENT_READY));
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    end(sim, false);
}

static void a_report_that_is_kept_counts_before_the_loss_of_its_peer(void **state)
{
    const struct tiny_request request = {.rid = 9, .prompt_tokens = 400};
    struct sim *sim = sim_while_report_is_kept(&request, true);

    (void)state;
    fake_net_kill(sim->net, 0);
    sim->ranks[0].deaf = true;
    dead_ranks[dead_rank_count++] = sim->ranks[0].kvf;
    assert_true(sim_until(sim, 1, 9, KVF_EVENT_RELEASED, STEPS));
    assert_non_null(sim_event(sim, 1, 9, KVF_EVENT_READY));
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    sim_close_one(sim, 1);
    sim_free(sim);
}

/* ---- ceilings ------------------------------------------------------------------------------- */

/* Takes the events of all ranks out; adds up what came of them. */
static void many_collect(struct sim *sim, uint32_t *released, uint32_t *ended_badly)
{
    sim_step(sim);
    for (uint32_t r = 0; r < sim->count; r++) {
        for (uint32_t e = 0; e < sim->ranks[r].event_count; e++) {
            enum kvf_event_kind kind = sim->ranks[r].events[e].kind;

            released[r] += kind == KVF_EVENT_RELEASED;
            *ended_badly += kind == KVF_EVENT_FAILED || kind == KVF_EVENT_CANCELLED;
        }
        sim->ranks[r].event_count = 0;
    }
}

static struct tiny_request many_request(uint32_t index, uint32_t tokens)
{
    return (struct tiny_request){
        .rid = 1 + index,
        .prompt_tokens = tokens,
        .slot_first = index / 2 * ((tokens + TINY_BLOCK - 1) / TINY_BLOCK),
    };
}

/*
 * Two receivers ask for all their requests at once, before the context rank opens the first; it has
 * room for far fewer of its own.
 */
static void many(uint32_t count, uint32_t tokens, const char *settings)
{
    struct sim *sim = sim_new("ctx tp=1; gen tp=2 adp", &network);
    uint32_t released[3] = {0}, bad = 0, opened = 0;

    for (uint32_t r = 0; r < sim->count; r++) {
        sim->ranks[r].settings = settings;
        sim->ranks[r].tiny.slots = count / 2 * ((tokens + TINY_BLOCK - 1) / TINY_BLOCK);
    }
    sim->ranks[0].tiny.slots *= 2;
    assert_true(sim_open(sim));
    for (uint32_t i = 0; i < count; i++) {
        struct tiny_request request = many_request(i, tokens);

        assert_int_equal(
            tiny_request_open(&sim->ranks[1 + i % 2].engine, &request, (struct kvf_end){0, 0}),
            KVF_OK);
    }
    for (uint32_t s = 0; s < STEPS && (released[0] < count || released[1] + released[2] < count);
         s++) {
        struct tiny_request request = many_request(opened, tokens);
        enum kvf_status status = KVF_BUSY;

        request.slot_first = opened * ((tokens + TINY_BLOCK - 1) / TINY_BLOCK);
        if (opened < count && s > 100)
            status =
                tiny_request_open(&sim->ranks[0].engine, &request, (struct kvf_end){1, opened % 2});
        assert_true(status == KVF_OK || status == KVF_BUSY);
        if (status == KVF_OK) {
            assert_int_equal(tiny_request_ready(&sim->ranks[0].engine, request.rid), KVF_OK);
            opened++;
        }
        many_collect(sim, released, &bad);
    }
    assert_int_equal(bad, 0);
    assert_int_equal(released[0], count);
    assert_int_equal(released[1] + released[2], count);
    for (uint32_t i = 0; i < count; i++) {
        struct tiny_request request = many_request(i, tokens);

        assert_int_equal(tiny_request_bad(&sim->ranks[1 + i % 2].engine, &request), 0);
    }
    end(sim, true);
}

static void what_receivers_may_open_is_never_refused_for_room(void **state)
{
    (void)state;
    many(1000, 3,
         "all:\n  progress: caller\n  tombstones_max: 1024\n"
         "context:\n  requests_max: 4\n  blocks_max: 16\n"
         "generation:\n  requests_max: 500\n  blocks_max: 500\n");
    many(8, 300,
         "all:\n  progress: caller\n  tombstones_max: 1024\n"
         "context:\n  requests_max: 2\n  blocks_max: 150\n"
         "generation:\n  requests_max: 4\n  blocks_max: 300\n");
}

static void ceilings_that_take_too_much_memory_fail_the_start(void **state)
{
    struct sim *sim = sim_new("ctx tp=1; gen tp=2 adp", &network);

    (void)state;
    sim->log = quiet;
    for (uint32_t r = 0; r < sim->count; r++)
        sim->ranks[r].settings = "all:\n  progress: caller\n  tombstones_max: 1024\n"
                                 "  requests_max: 64\n  blocks_max: 4096\n"
                                 "context:\n  asks_bytes_max: 1MiB\n"
                                 "generation:\n  blocks_max: 1000000\n";
    assert_false(sim_open(sim));
    for (uint32_t r = 0; r < sim->count; r++)
        assert_int_equal(sim->ranks[r].status, KVF_E_TOO_LARGE);
    sim_close(sim, 20);
    sim_free(sim);
}

/* Two threads add windows; the first one's finds the queue full. */
static void window_that_is_taken_back_is_the_one_that_was_given(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct kvf_window first = KVF_WINDOW_INIT, second = KVF_WINDOW_INIT;
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    struct admission *admission;

    (void)state;
    assert_true(sim_open(sim));
    admission = &sim->ranks[0].kvf->admission;
    open_all(sim, &request, false);
    first.token_end = second.token_first = 8;
    first.last = false;
    second.last = true;
    assert_int_equal(admission_window(admission, 5, &first, TINY_LAYERS, true), KVF_OK);
    assert_int_equal(admission_window(admission, 5, &second, TINY_LAYERS, true), KVF_OK);
    admission_window_undo(admission, 5, &first);
    assert_int_equal(admission_window(admission, 5, &first, TINY_LAYERS, true), KVF_E_STATE);
    admission_window_undo(admission, 5, &second);
    assert_int_equal(admission_window(admission, 5, &first, TINY_LAYERS, true), KVF_OK);
    assert_int_equal(admission_window(admission, 5, &second, TINY_LAYERS, true), KVF_OK);
    sim_close(sim, 20);
    sim_free(sim);
}

/* ---- times ---------------------------------------------------------------------------------- */

/* What lies between a call and the pass that takes it up is time of the request. */
static void preparing_counts_from_the_call(void **state)
{
    const uint64_t late_ns = 40 * CLOCK_NS_PER_MS; /* less than a stall */
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    const struct kvf_event *sent, *ready;
    uint64_t start_ns, whole_ns;

    (void)state;
    assert_true(sim_open(sim));
    start_ns = __wrap_clock_now_ns();
    open_all(sim, &request, true);
    clock_ahead_ns += late_ns;
    all_released(sim, 5);
    whole_ns = __wrap_clock_now_ns() - start_ns;
    sent = sim_event(sim, 0, 5, KVF_EVENT_SENT);
    ready = sim_event(sim, 1, 5, KVF_EVENT_READY);
    assert_in_range(sent->timing.prepare_ns, late_ns, whole_ns);
    assert_in_range(ready->timing.prepare_ns, late_ns, whole_ns);
    assert_true(ready->timing.prepare_ns + ready->timing.wait_ns + ready->timing.move_ns +
                    ready->timing.agree_ns <=
                whole_ns);
    end(sim, true);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void failing_put_fails_the_request_on_both_sides(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    const struct kvf_event *event;

    (void)state;
    sim->log = quiet;
    sim->ranks[1].host = 1;
    sim->ranks[0].plan.put_error_at = 3;
    assert_true(sim_open(sim));
    open_all(sim, &request, true);
    all_released(sim, 5);
    event = sim_event(sim, 1, 5, KVF_EVENT_FAILED);
    assert_non_null(event);
    assert_int_equal(event->status, KVF_E_TRANSFER);
    assert_int_equal(event->culprit, 0);
    assert_non_null(sim_event(sim, 0, 5, KVF_EVENT_FAILED));
    end(sim, true);
}

static void incompatible_peer_is_refused_by_code(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 12};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
    enum kvf_path path;
    char text[200];

    (void)state;
    sim->log = quiet;
    sim->ranks[1].tiny.head_dim = 16;
    assert_true(sim_open(sim));
    open_on(sim, 1, &request);
    assert_true(sim_until(sim, 1, 5, KVF_EVENT_RELEASED, STEPS));
    assert_int_equal(sim_event(sim, 1, 5, KVF_EVENT_FAILED)->status, KVF_E_HEAD_DIM);
    assert_int_equal(kvf_path_to(sim->ranks[0].kvf, 1, &path, text, sizeof(text)), KVF_OK);
    assert_non_null(strstr(text, "refused"));
    end(sim, true);
}

static void no_path_fails_the_request_by_name(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 12};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

    (void)state;
    sim->log = quiet;
    for (uint32_t r = 0; r < 2; r++) {
        sim->ranks[r].host = r;
        sim->ranks[r].settings = "all:\n  progress: caller\n  paths: [mapped]\n";
    }
    assert_true(sim_open(sim));
    open_all(sim, &request, true);
    all_released(sim, 5);
    assert_int_equal(sim_event(sim, 1, 5, KVF_EVENT_FAILED)->status, KVF_E_NO_PATH);
    end(sim, true);
}

/* Nobody gets as far as a request. */
static void a_forced_path_that_cannot_be_had_stops_all_ranks(void **state)
{
    struct sim *sim = sim_new("ctx tp=2; gen tp=1", &network);

    (void)state;
    sim->log = quiet;
    for (uint32_t r = 0; r < 3; r++) {
        sim->ranks[r].host = r == 0 ? 0 : 1;
        sim->ranks[r].settings = "all:\n  progress: caller\n  path: mapped\n";
    }
    assert_false(sim_open(sim));
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(sim->ranks[r].status, KVF_E_NO_PATH);
    sim_close(sim, 20);
    sim_free(sim);
}

static void cancel_at_steps(const char *settings, uint32_t tokens, uint32_t steps, uint32_t stride)
{
    for (uint32_t at = 0; at < steps; at += stride)
        for (uint32_t who = 0; who < 3; who += 2) {
            const struct tiny_request request = {.rid = 5, .prompt_tokens = tokens};
            struct sim *sim = sim_new("ctx tp=2; gen tp=1", &network);

            sim->log = quiet;
            sim->ranks[2].host = 1;
            for (uint32_t r = 0; r < 3 && settings != NULL; r++)
                sim->ranks[r].settings = settings;
            assert_true(sim_open(sim));
            open_all(sim, &request, true);
            for (uint32_t s = 0; s < at; s++)
                sim_step(sim);
            assert_int_equal(kvf_cancel(sim->ranks[who].kvf, 5), KVF_OK);
            all_released(sim, 5);
            end(sim, true);
        }
}

static void cancel_at_any_step_ends_on_all_ranks(void **state)
{
    (void)state;
    cancel_at_steps(NULL, 30, 40, 1);
    cancel_at_steps(SELF_CHECK "  copy_step_bytes: 4096\n", 100, 80, 5);
}

/* The dead rank is far: its peers learn of it by their endpoints alone. */
static void kill_far_rank(const char *settings, uint32_t steps, uint32_t stride)
{
    for (uint32_t at = 0; at < steps; at += stride)
        for (uint32_t dead = 0; dead < 2; dead++) {
            const struct tiny_request request = {.rid = 5, .prompt_tokens = 60};
            struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);
            uint32_t other = 1 - dead;
            const struct kvf_event *event;

            sim->log = quiet;
            sim->ranks[1].host = 1;
            if (settings != NULL)
                sim->ranks[0].settings = sim->ranks[1].settings = settings;
            assert_true(sim_open(sim));
            open_all(sim, &request, true);
            for (uint32_t s = 0; s < at; s++)
                sim_step(sim);
            fake_net_kill(sim->net, dead);
            sim->ranks[dead].deaf = true;
            dead_ranks[dead_rank_count++] = sim->ranks[dead].kvf;
            if (!sim_until(sim, other, 5, KVF_EVENT_RELEASED, STEPS)) {
                kvf_dump(sim->ranks[other].kvf, stderr);
                fail_msg("rank %u dead at step %u: rank %u does not release", dead, at, other);
            }
            event = sim_event(sim, other, 5, KVF_EVENT_FAILED);
            assert_true(event == NULL || event->status == KVF_E_PEER_LOST ||
                        (other == 0 && event->status == KVF_E_TRANSFER)); /* its puts failed */
            assert_int_equal(fake_net_counts(sim->net).late_writes, 0);
            sim_close_one(sim, other);
            sim_free(sim);
        }
}

static void killed_far_rank_ends_the_request_at_any_step(void **state)
{
    (void)state;
    kill_far_rank(NULL, 60, 1);
    /* Also with its report kept back, while the pages are read. */
    kill_far_rank(SELF_CHECK "  copy_step_bytes: 4096\n", 90, 6);
}

static void close_ends_live_requests(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

    (void)state;
    sim->log = quiet;
    assert_true(sim_open(sim));
    open_all(sim, &request, false);
    for (uint32_t s = 0; s < 50; s++)
        sim_step(sim);
    sim_close(sim, 20);
    assert_int_equal(sim->ranks[0].status, KVF_OK);
    assert_int_equal(sim->ranks[1].status, KVF_OK);
    assert_int_equal(fake_net_counts(sim->net).late_writes, 0);
    sim_free(sim);
}

static void failed_open_steps_fail_alike_everywhere(void **state)
{
    (void)state;
    for (uint32_t step = 0; step < 2; step++) {
        struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

        sim->log = quiet;
        if (step == 0)
            sim->ranks[1].plan.connect_fail_at = 1;
        else
            sim->ranks[1].settings = NULL; /* only rank 0's are read */
        if (step == 0) {
            assert_false(sim_open(sim));
            assert_int_equal(sim->ranks[0].status, KVF_E_UCX);
            assert_int_equal(sim->ranks[1].status, KVF_E_UCX);
        } else {
            assert_true(sim_open(sim));
        }
        sim_close(sim, 20);
        sim_free(sim);
    }
}

static char error_line[512];

static void keep_first_error(void *self, enum kvf_log_level level, const char *event,
                             const char *text)
{
    (void)self;
    (void)event;
    if (level == KVF_LOG_ERROR)
        snprintf(error_line, sizeof(error_line), "%s", text);
}

static void pool_that_is_taken_the_second_time_is_published(void **state)
{
    const struct tiny_request request = {.rid = 5, .prompt_tokens = 30};
    struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

    (void)state;
    sim->log = quiet;
    sim->ranks[1].plan.alloc_fail_at = 1;
    sim->ranks[1].tiny.again = true;
    assert_true(sim_open(sim));
    open_all(sim, &request, true);
    all_released(sim, 5);
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    end(sim, true);
}

static void spoil_pools(struct kvf_layout *layout)
{
    *layout = (struct kvf_layout){.tokens_per_block = layout->tokens_per_block};
}

static void pool_that_stays_missing_fails_the_start_of_all(void **state)
{
    (void)state;
    for (uint32_t none = 0; none < 2; none++) { /* also where the layout has no pools at all */
        struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

        sim->log = keep_first_error;
        sim->ranks[1].plan.alloc_fail_at = 1;
        sim->ranks[1].tiny.spoil = none == 1 ? spoil_pools : NULL;
        assert_false(sim_open(sim));
        assert_int_equal(sim->ranks[0].status, KVF_E_SHM_SPACE);
        assert_int_equal(sim->ranks[1].status, KVF_E_SHM_SPACE);
        assert_non_null(
            strstr(error_line, none == 1 ? "has none in its place" : "pool 0 of the layout's"));
        sim_close(sim, 20);
        sim_free(sim);
    }
}

static void spoil_tokens(struct kvf_layout *layout)
{
    layout->tokens_per_block = 0;
}

static void spoil_shapes(struct kvf_layout *layout)
{
    layout->pools = NULL;
}

static void spoil_groups(struct kvf_layout *layout)
{
    layout->groups = NULL;
}

static void spoil_aux(struct kvf_layout *layout)
{
    layout->aux_count = 1;
    layout->aux_bytes = NULL;
}

static struct kvf_group spoiled_group;
static struct kvf_view spoiled_view;

static void spoil_layers(struct kvf_layout *layout)
{
    spoiled_group = layout->groups[0];
    spoiled_group.layers = NULL;
    layout->group_count = 1;
    layout->groups = &spoiled_group;
}

static void spoil_views(struct kvf_layout *layout)
{
    spoil_layers(layout);
    spoiled_group.layer_count = 0;
    spoiled_group.views = NULL;
}

static void spoil_entries(struct kvf_layout *layout)
{
    spoiled_group = layout->groups[0];
    spoiled_view = layout->groups[0].views[0];
    spoiled_view.entries = NULL;
    spoiled_group.views = &spoiled_view;
    spoiled_group.view_count = 1;
    layout->group_count = 1;
    layout->groups = &spoiled_group;
}

static void spoil_heads(struct kvf_layout *layout)
{
    layout->kv_heads = UINT32_MAX;
}

static void layouts_that_are_not_whole_are_refused_with_the_reason(void **state)
{
    static const struct {
        void (*spoil)(struct kvf_layout *layout);
        const char *says;
    } cases[] = {
        {spoil_tokens, "tokens_per_block is 0"},
        {spoil_shapes, "does not give the shapes of its pools"},
        {spoil_groups, "does not give its groups"},
        {spoil_aux, "the sizes of its aux buffers"},
        {spoil_layers, "group 0 of the layout does not give its layers"},
        {spoil_views, "group 0 of the layout does not give its views"},
        {spoil_entries, "group 0 of the layout does not give the entries of a view"},
        {spoil_heads, "KV heads"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sim *sim = sim_new("ctx tp=1; gen tp=1", &network);

        error_line[0] = '\0';
        sim->log = keep_first_error;
        sim->ranks[1].tiny.spoil = cases[i].spoil;
        assert_false(sim_open(sim));
        assert_true(sim->ranks[0].status < 0);
        assert_int_equal(sim->ranks[1].status, sim->ranks[0].status);
        if (strstr(error_line, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error_line, cases[i].says);
        sim_close(sim, 20);
        sim_free(sim);
    }
}

/* Each seed is another order of landings and messages. */
static void many_seeds_with_windows_of_work(void **state)
{
    uint64_t seed = test_seed();

    (void)state;
    for (uint32_t run = 0; run < 10; run++) {
        const struct fake_params params = {.seed = seed + run,
                                           .delay_max = 1 + run * 3,
                                           .messages_reorder = true,
                                           .immediate_of_8 = run % 8};
        struct sim *sim = sim_new("ctx tp=2; gen tp=2", &params);

        for (uint32_t r = 0; r < sim->count; r++)
            sim->ranks[r].host = run % 2 == 0 ? r / 2 : 0;
        assert_true(sim_open(sim));
        for (uint64_t rid = 1; rid <= 12; rid++) {
            struct tiny_request request = {.rid = rid,
                                           .prompt_tokens = 1 + (uint32_t)rid * 2,
                                           .slot_first = (uint32_t)rid * 8};

            open_all(sim, &request, true);
            sim_step(sim);
        }
        for (uint64_t rid = 1; rid <= 12; rid++) {
            struct tiny_request request = {.rid = rid,
                                           .prompt_tokens = 1 + (uint32_t)rid * 2,
                                           .slot_first = (uint32_t)rid * 8};

            all_released(sim, rid);
            for (uint32_t r = 0; r < sim->count; r++)
                assert_int_equal(tiny_request_bad(&sim->ranks[r].engine, &request), 0);
        }
        end(sim, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapped_requests_arrive_whole),
        cmocka_unit_test(direct_requests_arrive_whole),
        cmocka_unit_test(far_requests_arrive_whole),
        cmocka_unit_test(self_check_finds_nothing_wrong_in_what_is_right),
        cmocka_unit_test(self_check_names_a_byte_that_was_turned),
        cmocka_unit_test(self_check_reads_a_bounded_number_of_bytes_a_pass),
        cmocka_unit_test(a_goodbye_waits_behind_a_report_that_is_kept),
        cmocka_unit_test(a_report_that_is_kept_counts_before_the_loss_of_its_peer),
        cmocka_unit_test(what_receivers_may_open_is_never_refused_for_room),
        cmocka_unit_test(ceilings_that_take_too_much_memory_fail_the_start),
        cmocka_unit_test(window_that_is_taken_back_is_the_one_that_was_given),
        cmocka_unit_test(preparing_counts_from_the_call),
        cmocka_unit_test(failing_put_fails_the_request_on_both_sides),
        cmocka_unit_test(incompatible_peer_is_refused_by_code),
        cmocka_unit_test(no_path_fails_the_request_by_name),
        cmocka_unit_test(a_forced_path_that_cannot_be_had_stops_all_ranks),
        cmocka_unit_test(cancel_at_any_step_ends_on_all_ranks),
        cmocka_unit_test(killed_far_rank_ends_the_request_at_any_step),
        cmocka_unit_test(close_ends_live_requests),
        cmocka_unit_test(failed_open_steps_fail_alike_everywhere),
        cmocka_unit_test(pool_that_is_taken_the_second_time_is_published),
        cmocka_unit_test(pool_that_stays_missing_fails_the_start_of_all),
        cmocka_unit_test(layouts_that_are_not_whole_are_refused_with_the_reason),
        cmocka_unit_test(many_seeds_with_windows_of_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
