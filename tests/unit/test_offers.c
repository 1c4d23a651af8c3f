/*
 * test_offers.c - what an engine may offer the library: caches that do not fit the other side's,
 * and prompts in parts. The whole library in one process, over a fake transport.
 */
#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "runtime_sim.h"

#define STEPS 20000u
#define PIPELINED "all:\n  progress: caller\n  enable_pipelined_transfer: true\n"

static const struct fake_params network = {.seed = 11, .delay_max = 5, .messages_reorder = true};

/* Lines of one run, all ranks. */
struct lines {
    unsigned misfits; /* W27 as a warning */
    unsigned warnings;
    unsigned errors;
    char last[512]; /* misfit or error */
};

static void note(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    struct lines *lines = self;

    if (level > KVF_LOG_WARN)
        return;
    lines->errors += level == KVF_LOG_ERROR;
    lines->warnings += level == KVF_LOG_WARN;
    lines->misfits += strcmp(event, "W27") == 0;
    if (level == KVF_LOG_ERROR || strcmp(event, "W27") == 0)
        snprintf(lines->last, sizeof(lines->last), "%s", text);
}

static struct sim *world(const char *topology, const char *settings, struct lines *lines)
{
    struct sim *sim = sim_new(topology, &network);

    *lines = (struct lines){0};
    sim->log = note;
    sim->log_self = lines;
    for (uint32_t r = 0; r < sim->count; r++) {
        sim->ranks[r].settings = settings;
        sim->ranks[r].tiny.slots = 2048;
    }
    return sim;
}

static void leave(struct sim *sim)
{
    for (uint32_t r = 0; r < sim->count; r++) {
        struct kvf_counters counters = KVF_COUNTERS_INIT;

        assert_int_equal(kvf_counters(sim->ranks[r].kvf, &counters), KVF_OK);
        assert_int_equal(counters.unexpected_events, 0);
        assert_int_equal(counters.live_requests, 0);
        assert_int_equal(counters.retained_blocks, 0);
    }
    sim_close(sim, 200);
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

/* ---- caches that do not fit ----------------------------------------------------------------- */

static void every_request_of_a_misfit_fails_at_once_and_one_line_is_said(void **state)
{
    struct lines lines;
    struct sim *sim = world("ctx tp=1; gen tp=1", "all:\n  progress: caller\n", &lines);

    (void)state;
    sim->ranks[1].tiny.head_dim = 16;
    assert_true(sim_open(sim));
    for (uint64_t rid = 1; rid <= 5; rid++) {
        const struct tiny_request request = {.rid = rid, .prompt_tokens = 12};

        for (uint32_t r = 0; r < 2; r++)
            open_on(sim, r, &request);
        for (uint32_t r = 0; r < 2; r++) {
            /* Far below any deadline: a step is a millisecond of the fake clock or less. */
            assert_true(sim_until(sim, r, rid, KVF_EVENT_RELEASED, 200));
            assert_int_equal(sim_event(sim, r, rid, KVF_EVENT_FAILED)->status, KVF_E_HEAD_DIM);
        }
    }
    assert_int_equal(lines.misfits, 2); /* one a rank: each has one peer */
    assert_int_equal(lines.warnings, 2);
    leave(sim);
}

static void a_misfit_is_named_with_both_values(void **state)
{
    struct lines lines;
    struct sim *sim = world("ctx tp=1; gen tp=1", "all:\n  progress: caller\n", &lines);

    (void)state;
    sim->ranks[1].tiny.head_dim = 16;
    assert_true(sim_open(sim));
    for (uint32_t r = 0; r < 2; r++) {
        const char *want = r == 0
                               ? "refused: E_HEAD_DIM: head size differs: local 8, peer gen0/0 16"
                               : "refused: E_HEAD_DIM: head size differs: local 16, peer ctx0/0 8";
        enum kvf_path path;
        char text[200];

        assert_int_equal(kvf_path_to(sim->ranks[r].kvf, 1 - r, &path, text, sizeof(text)), KVF_OK);
        assert_string_equal(text, want);
        assert_int_equal(path, KVF_PATH_NONE);
    }
    leave(sim);
}

/* Widths of which none divides the other: no rank has a peer, and none waits for one. */
static void grids_that_do_not_divide_fail_both_sides_at_once(void **state)
{
    const struct tiny_request request = {.rid = 1, .prompt_tokens = 12};
    struct lines lines;
    struct sim *sim = world("ctx tp=3; gen tp=2", "all:\n  progress: caller\n", &lines);

    (void)state;
    for (uint32_t r = 0; r < sim->count; r++)
        sim->ranks[r].tiny.heads = 6;
    assert_true(sim_open(sim));
    for (uint32_t r = 0; r < sim->count; r++) /* a group decides for all its ranks */
        open_on(sim, r, &request);
    for (uint32_t r = 0; r < sim->count; r++) {
        const char *want =
            r < 3 ? "refused: E_TP_RATIO: TP inside a dp group: local 3, peer gen0/0 2;"
                  : "refused: E_TP_RATIO: TP inside a dp group: local 2, peer ctx0/0 3;";
        enum kvf_path path;
        char text[200];

        assert_true(sim_until(sim, r, 1, KVF_EVENT_RELEASED, 200));
        assert_int_equal(sim_event(sim, r, 1, KVF_EVENT_FAILED)->status, KVF_E_TP_RATIO);
        assert_int_equal(kvf_path_to(sim->ranks[r].kvf, r < 3 ? 4 : 1, &path, text, sizeof(text)),
                         KVF_OK);
        assert_memory_equal(text, want, strlen(want));
    }
    assert_int_equal(lines.misfits, sim->count);
    assert_int_equal(lines.warnings, sim->count);
    leave(sim);
}

/* One rank has the bridge: the start fails on all, the cure is named once. */
static void an_ownership_bridge_never_starts_with_a_bounce(void **state)
{
    (void)state;
    for (uint32_t bounce_mb = 0; bounce_mb <= 64; bounce_mb += 64) {
        struct lines lines;
        struct sim *sim = world("ctx tp=1; gen tp=2", "all:\n  progress: caller\n", &lines);

        for (uint32_t r = 0; r < sim->count; r++)
            sim->ranks[r].bounce_mb = bounce_mb;
        sim->ranks[2].tiny.bridge = true;
        assert_int_equal(sim_open(sim), bounce_mb == 0);
        for (uint32_t r = 0; r < sim->count; r++)
            assert_int_equal(sim->ranks[r].status, bounce_mb == 0 ? KVF_OK : KVF_E_CONFIG);
        assert_int_equal(lines.errors, bounce_mb == 0 ? 0 : 1);
        if (bounce_mb > 0)
            assert_non_null(strstr(lines.last, "kv_cache_bounce_size_mb is 64 but the model has an "
                                               "ownership bridge; want 0"));
        sim_close(sim, 200);
        sim_free(sim);
    }
}

/* ---- prompts in parts ----------------------------------------------------------------------- */

static struct kvf_window part(uint32_t block, uint32_t blocks, bool last)
{
    struct kvf_window window = KVF_WINDOW_INIT;

    window.token_first = block * TINY_BLOCK;
    window.token_end = (block + blocks) * TINY_BLOCK;
    window.last = last;
    return window;
}

static void parts_need_the_setting(void **state)
{
    const struct tiny_request request = {.rid = 1, .prompt_tokens = 4 * TINY_BLOCK};
    struct kvf_window first = part(0, 2, false), whole = part(0, 4, true);
    struct lines lines;
    struct sim *sim = world("ctx tp=1; gen tp=1", "all:\n  progress: caller\n", &lines);

    (void)state;
    assert_true(sim_open(sim));
    for (uint32_t r = 0; r < 2; r++)
        open_on(sim, r, &request);
    assert_int_equal(kvf_send_blocks(sim->ranks[0].kvf, 1, &first), KVF_E_REQ_PIECE);
    assert_int_equal(kvf_send_blocks(sim->ranks[0].kvf, 1, &whole), KVF_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_true(sim_until(sim, r, 1, KVF_EVENT_RELEASED, STEPS));
    assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    leave(sim);
}

/*
 * As many requests as may live, each in as many parts as it may have, from the last to the first.
 */
static void all_requests_may_have_all_their_parts(void **state)
{
    enum { REQUESTS = 24 };
    struct kvf_window more = part(0, 1, true);
    struct lines lines;
    struct sim *sim = world("ctx tp=1; gen tp=1", PIPELINED "  requests_max: 24\n", &lines);
    struct kvf *kvf;

    (void)state;
    assert_true(sim_open(sim));
    kvf = sim->ranks[0].kvf;
    for (uint64_t rid = 1; rid <= REQUESTS; rid++) {
        const struct tiny_request request = {.rid = rid,
                                             .prompt_tokens = KVF_WINDOWS_MAX * TINY_BLOCK,
                                             .slot_first = (uint32_t)rid * KVF_WINDOWS_MAX};

        open_on(sim, 0, &request);
        for (uint32_t p = KVF_WINDOWS_MAX; p > 0; p--) {
            struct kvf_window window = part(p - 1, 1, p == 1);
            enum kvf_status status = kvf_send_blocks(kvf, rid, &window);

            for (uint32_t s = 0; status == KVF_BUSY && s < STEPS; s++) {
                sim_step(sim); /* the queue of the reactor is shorter than that */
                status = kvf_send_blocks(kvf, rid, &window);
            }
            assert_int_equal(status, KVF_OK);
        }
        assert_int_equal(kvf_send_blocks(kvf, rid, &more), KVF_E_STATE);
    }
    for (uint64_t rid = 1; rid <= REQUESTS; rid++) {
        const struct tiny_request request = {.rid = rid,
                                             .prompt_tokens = KVF_WINDOWS_MAX * TINY_BLOCK,
                                             .slot_first = (uint32_t)rid * KVF_WINDOWS_MAX};

        open_on(sim, 1, &request);
        for (uint32_t r = 0; r < 2; r++)
            assert_true(sim_until(sim, r, rid, KVF_EVENT_RELEASED, STEPS));
        assert_non_null(sim_event(sim, 1, rid, KVF_EVENT_READY));
        assert_int_equal(tiny_request_bad(&sim->ranks[1].engine, &request), 0);
    }
    leave(sim);
}

static void one_part_too_many_is_refused_and_harms_nothing(void **state)
{
    const struct tiny_request request = {.rid = 1,
                                         .prompt_tokens = (KVF_WINDOWS_MAX + 1) * TINY_BLOCK};
    struct kvf_window last = part(KVF_WINDOWS_MAX, 1, true);
    struct lines lines;
    struct sim *sim = world("ctx tp=1; gen tp=1", PIPELINED, &lines);

    (void)state;
    assert_true(sim_open(sim));
    for (uint32_t r = 0; r < 2; r++)
        open_on(sim, r, &request);
    for (uint32_t p = 0; p < KVF_WINDOWS_MAX; p++) {
        struct kvf_window window = part(p, 1, false);

        assert_int_equal(kvf_send_blocks(sim->ranks[0].kvf, 1, &window), KVF_OK);
    }
    assert_int_equal(kvf_send_blocks(sim->ranks[0].kvf, 1, &last), KVF_E_TOO_LARGE);
    assert_int_equal(kvf_cancel(sim->ranks[0].kvf, 1), KVF_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_true(sim_until(sim, r, 1, KVF_EVENT_RELEASED, STEPS));
    leave(sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_of_a_misfit_fails_at_once_and_one_line_is_said),
        cmocka_unit_test(a_misfit_is_named_with_both_values),
        cmocka_unit_test(grids_that_do_not_divide_fail_both_sides_at_once),
        cmocka_unit_test(an_ownership_bridge_never_starts_with_a_bounce),
        cmocka_unit_test(parts_need_the_setting),
        cmocka_unit_test(all_requests_may_have_all_their_parts),
        cmocka_unit_test(one_part_too_many_is_refused_and_harms_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
