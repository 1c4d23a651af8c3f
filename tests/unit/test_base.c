/* test_base.c - status, version, heap, assertions, clocks. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include <kvferry/kvferry.h>

#include "check.h"
#include "clock.h"
#include "fail_heap.h"
#include "heap.h"

/* ---- status --------------------------------------------------------------------------------- */

static const int status_numbers[] = {
#define STATUS_X(name, number, scope, text) number,
    KVF_STATUS_LIST(STATUS_X)
#undef STATUS_X
};
#define STATUS_COUNT (sizeof(status_numbers) / sizeof(status_numbers[0]))

static void status_numbers_differ_and_errors_are_negative(void **state)
{
    (void)state;
    for (size_t i = 0; i < STATUS_COUNT; i++) {
        enum kvf_status status = (enum kvf_status)status_numbers[i];
        bool is_error = strncmp(kvf_status_name(status), "E_", 2) == 0;

        assert_true(is_error == (status_numbers[i] < 0));
        assert_true((kvf_status_scope(status) == KVF_SCOPE_NONE) == !is_error);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(status_numbers[i], status_numbers[j]);
            assert_string_not_equal(kvf_status_name(status),
                                    kvf_status_name((enum kvf_status)status_numbers[j]));
        }
    }
}

static void status_text_and_scope_come_from_the_list(void **state)
{
    (void)state;
    assert_string_equal(kvf_status_text(KVF_E_PEER_LOST), "peer rank no longer answers");
    assert_string_equal(kvf_status_name(KVF_E_PEER_LOST), "E_PEER_LOST");
    assert_int_equal(kvf_status_scope(KVF_E_PEER_LOST), KVF_SCOPE_PEER);
    assert_int_equal(kvf_status_scope(KVF_E_REQ_AUX), KVF_SCOPE_REQUEST);
}

static void status_unknown_number_has_a_text(void **state)
{
    (void)state;
    assert_string_equal(kvf_status_text((enum kvf_status) - 9999), "unknown status");
    assert_string_equal(kvf_status_name((enum kvf_status)77), "unknown");
    assert_int_equal(kvf_status_scope((enum kvf_status) - 9999), KVF_SCOPE_CALL);
}

static void version_is_that_of_the_header(void **state)
{
    char *end;

    (void)state;
    assert_int_equal(strtol(kvf_version(), &end, 10), KVF_VERSION_MAJOR);
    assert_int_equal(strtol(end + 1, &end, 10), KVF_VERSION_MINOR);
    assert_int_equal(strtol(end + 1, &end, 10), KVF_VERSION_PATCH);
    assert_int_equal(*end, 0);
}

/* ---- heap ----------------------------------------------------------------------------------- */

static void heap_gives_aligned_zeroed_memory(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 8, 63, 64, 65, 4095, 4096, 1 << 20};
    const struct kvf_heap *heap = kvf_heap_system();

    (void)state;
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            uint8_t *memory = kvf_alloc(heap, sizes[i], 1);

            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            for (size_t at = 0; at < sizes[i]; at++)
                assert_int_equal(memory[at], 0);
            memset(memory, 0xa5, sizes[i]);
            kvf_release(heap, memory);
        }
    }
    kvf_release(heap, NULL);
}

static void heap_refuses_a_product_that_overflows(void **state)
{
    const struct kvf_heap *heap = kvf_heap_system();

    (void)state;
    assert_null(kvf_alloc(heap, SIZE_MAX, 2));
    assert_null(kvf_alloc(heap, SIZE_MAX / 2 + 1, 2));
    assert_null(kvf_alloc(heap, SIZE_MAX, 1));
    assert_null(kvf_alloc(heap, SIZE_MAX - 70, 1));
}

static void heap_of_tests_fails_the_named_allocation(void **state)
{
    struct fail_heap heap;
    void *first;

    (void)state;
    fail_heap_init(&heap, 2);
    first = kvf_alloc(&heap.heap, 1, 1);
    assert_non_null(first);
    assert_false(fail_heap_failed(&heap));
    assert_null(kvf_alloc(&heap.heap, 1, 1));
    assert_true(fail_heap_failed(&heap));
    kvf_release(&heap.heap, first);
    fail_heap_fini(&heap);
}

/* ---- assertions ----------------------------------------------------------------------------- */

static void call_require(void *argument)
{
    KVF_REQUIRE(*(bool *)argument);
}

static void call_assert(void *argument)
{
    KVF_ASSERT(*(bool *)argument);
}

static void check_aborts_only_when_the_condition_is_false(void **state)
{
    bool holds = true;
    bool broken = false;

    (void)state;
    assert_false(test_aborts(call_require, &holds));
    assert_false(test_aborts(call_assert, &holds));
    assert_true(test_aborts(call_require, &broken));
    assert_true(test_aborts(call_assert, &broken));
}

/* ---- clocks --------------------------------------------------------------------------------- */

#define MS CLOCK_NS_PER_MS

static void clock_real_does_not_go_back(void **state)
{
    uint64_t before = clock_now_ns();

    (void)state;
    assert_true(before > 0);
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t now = clock_now_ns();

        assert_true(now >= before);
        before = now;
    }
}

static void awake_clock_counts_short_passes_in_full(void **state)
{
    struct awake_clock clock;
    uint64_t stall;

    (void)state;
    awake_init(&clock, 5000 * MS, 250 * MS, false);
    assert_int_equal(awake_step(&clock, 5010 * MS, &stall), 1 + 10 * MS);
    assert_int_equal(stall, 0);
    assert_int_equal(awake_step(&clock, 5260 * MS, &stall), 1 + 260 * MS);
    assert_int_equal(stall, 0);
}

static void awake_clock_caps_a_long_pass_and_reports_a_stall_over_one_second(void **state)
{
    struct awake_clock clock;
    uint64_t stall;

    (void)state;
    awake_init(&clock, 1, 250 * MS, false);
    assert_int_equal(awake_step(&clock, 1 + 1000 * MS, &stall), 1 + 250 * MS);
    assert_int_equal(stall, 0); /* one second exactly is none yet */
    assert_int_equal(awake_step(&clock, 3 + 2000 * MS, &stall), 1 + 500 * MS);
    assert_int_equal(stall, 1000 * MS + 2);
    assert_int_equal(awake_step(&clock, 3 + 3602000 * MS, &stall), 1 + 750 * MS);
    assert_int_equal(stall, 3600000 * MS);
}

static void awake_clock_stands_when_the_real_one_goes_back(void **state)
{
    struct awake_clock clock;
    uint64_t stall;

    (void)state;
    awake_init(&clock, 5000 * MS, 250 * MS, false);
    assert_int_equal(awake_step(&clock, 4000 * MS, &stall), 1);
    assert_int_equal(stall, 0);
    assert_int_equal(awake_step(&clock, 4001 * MS, &stall), 1 + MS);
}

static void awake_clock_of_a_caller_counts_up_to_one_second(void **state)
{
    struct awake_clock clock;
    uint64_t stall;

    (void)state;
    awake_init(&clock, 1, 250 * MS, true);
    assert_int_equal(awake_step(&clock, 1 + 900 * MS, &stall), 1 + 900 * MS);
    assert_int_equal(awake_step(&clock, 1 + 5900 * MS, &stall), 1 + 1900 * MS);
    assert_int_equal(stall, 5000 * MS);
    awake_init(&clock, 1, 2000 * MS, true);
    assert_int_equal(awake_step(&clock, 1 + 1500 * MS, &stall), 1 + 1500 * MS);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(status_numbers_differ_and_errors_are_negative),
        cmocka_unit_test(status_text_and_scope_come_from_the_list),
        cmocka_unit_test(status_unknown_number_has_a_text),
        cmocka_unit_test(version_is_that_of_the_header),
        cmocka_unit_test(heap_gives_aligned_zeroed_memory),
        cmocka_unit_test(heap_refuses_a_product_that_overflows),
        cmocka_unit_test(heap_of_tests_fails_the_named_allocation),
        cmocka_unit_test(check_aborts_only_when_the_condition_is_false),
        cmocka_unit_test(clock_real_does_not_go_back),
        cmocka_unit_test(awake_clock_counts_short_passes_in_full),
        cmocka_unit_test(awake_clock_caps_a_long_pass_and_reports_a_stall_over_one_second),
        cmocka_unit_test(awake_clock_stands_when_the_real_one_goes_back),
        cmocka_unit_test(awake_clock_of_a_caller_counts_up_to_one_second),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
