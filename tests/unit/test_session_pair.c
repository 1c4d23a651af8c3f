/*
 * test_session_pair.c - both session machines against each other over seeded schedules: order
 * between pairs, outcomes of writes, cancels, refusals and deaths are random. In every schedule
 * each request ends exactly once on every rank, no write lands in pages that were given back,
 * nothing is left over, and the invariants hold after every step (session_world.c).
 */
#include "testing.h"

#include "session_world.h"

static uint64_t running; /* schedule under way; 0 = none */

static int name_schedule(void **state)
{
    (void)state;
    if (running != 0)
        print_message("failed in schedule %llu: repeat with TEST_SEED=%llu\n",
                      (unsigned long long)running, (unsigned long long)running);
    running = 0;
    return 0;
}

/* Runs `count` schedules, of seeds that follow each other. */
static struct world_tally run(const struct world_params *params, unsigned count)
{
    struct world_tally sum = {0};
    uint64_t first = test_seed();

    for (unsigned i = 0; i < count; i++) {
        struct world_tally tally;
        struct test_random random = test_random_make(first + i);

        running = first + i;
        session_world_run(params, test_random_next(&random), &tally);
        sum.ready += tally.ready;
        sum.failed += tally.failed;
        sum.cancelled += tally.cancelled;
        sum.released += tally.released;
        sum.steps += tally.steps;
        sum.silent += tally.silent;
        sum.lands += tally.lands;
    }
    print_message("%u schedules, %llu steps: %llu ok, %llu failed, %llu cancelled, %llu writes\n",
                  count, (unsigned long long)sum.steps, (unsigned long long)sum.ready,
                  (unsigned long long)sum.failed, (unsigned long long)sum.cancelled,
                  (unsigned long long)sum.lands);
    running = 0;
    assert_int_equal(sum.silent, 0); /* everyone who was asked has answered or was proven gone */
    return sum;
}

static void every_request_is_ready_when_nothing_goes_wrong(void **state)
{
    struct world_params params = {
        .contexts = 2, .generations = 2, .context_groups = 1, .requests = 4, .out_max = 16};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 300);
    assert_int_equal(sum.failed + sum.cancelled, 0);
    assert_int_equal(sum.ready, 300 * 4 * 4);
}

static void every_broadcast_request_is_ready_when_nothing_goes_wrong(void **state)
{
    struct world_params params = {
        .contexts = 4, .generations = 2, .context_groups = 2, .requests = 4, .out_max = 3};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 300);
    assert_int_equal(sum.failed + sum.cancelled, 0);
    assert_int_equal(sum.ready, 300 * 4 * 4);
}

static void every_request_ends_once_with_failing_writes(void **state)
{
    struct world_params params = {.contexts = 2,
                                  .generations = 2,
                                  .context_groups = 1,
                                  .requests = 4,
                                  .out_max = 1,
                                  .fail_percent = 10,
                                  .doubt_percent = 10};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 500);
    assert_true(sum.ready > 0 && sum.failed > 0);
}

static void every_request_ends_once_with_cancels(void **state)
{
    struct world_params params = {.contexts = 2,
                                  .generations = 3,
                                  .context_groups = 1,
                                  .requests = 5,
                                  .out_max = 4,
                                  .fail_percent = 2,
                                  .doubt_percent = 2,
                                  .cancel_percent = 60};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 500);
    assert_true(sum.ready > 0 && sum.cancelled > 0);
}

static void every_broadcast_request_ends_once_with_cancels_and_failures(void **state)
{
    struct world_params params = {.contexts = 4,
                                  .generations = 2,
                                  .context_groups = 2,
                                  .requests = 5,
                                  .out_max = 2,
                                  .fail_percent = 4,
                                  .doubt_percent = 3,
                                  .cancel_percent = 40,
                                  .refuse_percent = 20};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 500);
    assert_true(sum.ready > 0 && sum.cancelled > 0 && sum.failed > 0);
}

static void every_request_ends_once_when_a_rank_dies(void **state)
{
    struct world_params params = {.contexts = 3,
                                  .generations = 2,
                                  .context_groups = 1,
                                  .requests = 5,
                                  .out_max = 8,
                                  .fail_percent = 2,
                                  .doubt_percent = 2,
                                  .cancel_percent = 20,
                                  .kill_percent = 100};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 500);
    assert_true(sum.failed > 0);
}

static void every_broadcast_request_ends_once_when_a_rank_dies(void **state)
{
    struct world_params params = {.contexts = 4,
                                  .generations = 2,
                                  .context_groups = 2,
                                  .requests = 5,
                                  .out_max = 8,
                                  .cancel_percent = 10,
                                  .kill_percent = 100};
    struct world_tally sum;

    (void)state;
    sum = run(&params, 500);
    assert_true(sum.failed > 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_request_is_ready_when_nothing_goes_wrong, name_schedule),
        cmocka_unit_test_teardown(every_broadcast_request_is_ready_when_nothing_goes_wrong,
                                  name_schedule),
        cmocka_unit_test_teardown(every_request_ends_once_with_failing_writes, name_schedule),
        cmocka_unit_test_teardown(every_request_ends_once_with_cancels, name_schedule),
        cmocka_unit_test_teardown(every_broadcast_request_ends_once_with_cancels_and_failures,
                                  name_schedule),
        cmocka_unit_test_teardown(every_request_ends_once_when_a_rank_dies, name_schedule),
        cmocka_unit_test_teardown(every_broadcast_request_ends_once_when_a_rank_dies,
                                  name_schedule),
    };

    return cmocka_run_group_tests_name("session_pair", tests, NULL, NULL);
}
