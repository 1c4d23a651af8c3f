/*
 * test_bench.c - the workloads, loops and report of `kvferry bench copy`. Times nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "launch/bench.h"
#include "launch/bench_limit.h"

enum { SMALL_BYTES = 3 << 20, SEED = 7 };

static void shapes_have_the_size_that_they_name(void **state)
{
    static const struct {
        const char *name;
        uint64_t fragments;
        uint64_t fragment_bytes;
    } want[BENCH_SHAPE_COUNT] = {
        {"u512", 524288, 512}, {"u4k", 65536, 4096},  {"u36k", 7281, 36864},
        {"u1m", 256, 1048576}, {"mla", 15616, 36864}, {"tp512", 131072, 512},
    };

    (void)state;
    for (int i = 0; i < BENCH_SHAPE_COUNT; i++) {
        struct bench_work work;
        enum bench_shape shape;
        assert_true(bench_shape_find(want[i].name, &shape));
        assert_int_equal(shape, i);
        assert_string_equal(bench_shape_name(shape), want[i].name);
        assert_int_equal(bench_work_open(shape, 0, SEED, &work), KVF_OK);
        assert_int_equal(stripe_fragments(&work.stripe), want[i].fragments);
        assert_int_equal(work.stripe.piece_bytes, want[i].fragment_bytes);
        bench_work_close(&work);
    }
    enum bench_shape none = BENCH_MLA;
    assert_false(bench_shape_find("u513", &none));
    assert_int_equal(none, BENCH_MLA);
}

/* Fragments of a workload bound to addresses that stand for offsets; none is loaded or stored. */
static void check_inside_and_apart(enum bench_shape shape)
{
    const uint64_t origin = 1 << 20;
    struct bench_work work;
    uint64_t joined = 0;

    assert_int_equal(bench_work_open(shape, 0, SEED, &work), KVF_OK);
    bench_work_bind(&work, (const void *)(uintptr_t)origin, (void *)(uintptr_t)origin);
    uint64_t count = stripe_fragments(&work.stripe);
    uint64_t bytes = work.stripe.piece_bytes;
    struct bench_fragment *list = calloc(count, sizeof(*list));
    unsigned char *taken = calloc(work.dst_bytes / bytes, 1);
    assert_non_null(list);
    assert_non_null(taken);
    bench_work_list(&work, list);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t src = (uint64_t)(uintptr_t)list[i].src - origin;
        uint64_t dst = (uint64_t)(uintptr_t)list[i].dst - origin;
        assert_true(src <= work.src_bytes - bytes);
        assert_true(dst <= work.dst_bytes - bytes);
        assert_int_equal(dst % bytes, 0);
        assert_int_equal(taken[dst / bytes]++, 0);
        joined += i > 0 && list[i].src - list[i - 1].src == (ptrdiff_t)bytes &&
                  list[i].dst - list[i - 1].dst == (ptrdiff_t)bytes;
    }
    assert_int_equal(joined * 1000 / count, 0);
    free(list);
    free(taken);
    bench_work_close(&work);
}

static void fragments_lie_in_the_pools_apart_and_in_random_order(void **state)
{
    (void)state;
    for (int i = 0; i < BENCH_SHAPE_COUNT; i++) {
        check_inside_and_apart((enum bench_shape)i);
    }
}

static void every_loop_of_the_limit_copies_every_byte(void **state)
{
    (void)state;
    assert_true(bench_limit_loops() <= BENCH_LIMIT_LOOPS_MAX);
    for (int i = 0; i < BENCH_SHAPE_COUNT; i++) {
        struct bench_work work;
        assert_int_equal(bench_work_open((enum bench_shape)i, SMALL_BYTES, SEED, &work), KVF_OK);
        char *src = aligned_alloc(64, work.src_bytes);
        char *dst = aligned_alloc(64, work.dst_bytes);
        uint64_t count = stripe_fragments(&work.stripe);
        struct bench_fragment *list = calloc(count + BENCH_LIST_BEYOND, sizeof(*list));
        assert_true(src != NULL && dst != NULL && list != NULL);
        for (uint64_t at = 0; at < work.src_bytes; at++) {
            src[at] = (char)(at * 31 + at / 251 + 1);
        }
        bench_work_bind(&work, src, dst);
        bench_work_list(&work, list);
        for (int k = 0; k < BENCH_LIST_BEYOND; k++) {
            list[count + (uint64_t)k] = list[count - 1];
        }
        for (uint32_t loop = 0; loop < bench_limit_loops(); loop++) {
            struct bench_list all = {list, count, work.stripe.piece_bytes};
            memset(dst, 0, work.dst_bytes);
            assert_true(bench_work_wrong(&work) > 0);
            if (bench_limit_usable(loop)) {
                bench_limit_run(loop, &all);
                assert_int_equal(bench_work_wrong(&work), 0);
            }
        }
        dst[work.dst_bytes / 2] ^= 1;
        assert_int_equal(bench_work_wrong(&work), 1);
        free(src);
        free(dst);
        free(list);
        bench_work_close(&work);
    }
}

static void rate_is_of_the_fastest_and_of_the_middle_round(void **state)
{
    const double seconds[] = {4, 1, 2};
    struct bench_rate rate = bench_rate_make(seconds, 3, 8000000000u);

    (void)state;
    assert_true(rate.best > 7.99 && rate.best < 8.01);
    assert_true(rate.median > 3.99 && rate.median < 4.01);
    rate = bench_rate_make(seconds, 0, 1);
    assert_true(rate.best == 0 && rate.median == 0);
    rate = bench_rate_make(seconds, BENCH_ROUNDS_MAX + 1, 1);
    assert_true(rate.best == 0 && rate.median == 0);
}

static void check_json(const struct bench_result *result)
{
    static const char *const keys[] = {
        "shape", "bytes",     "fragments",       "fragment_bytes", "rounds", "limit_loop", "memcpy",
        "limit", "copy_host", "copy_host_steps", "mapped",         "direct", "ratios"};
    json_t *json = bench_json(result, 1);
    json_t *shape = json_array_get(json_object_get(json, "shapes"), 0);

    assert_non_null(json);
    assert_string_equal(json_string_value(json_object_get(json, "unit")), "GB/s");
    assert_non_null(json_string_value(json_object_get(json, "isa")));
    assert_int_equal(json_object_size(shape), sizeof(keys) / sizeof(keys[0]));
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_non_null(json_object_get(shape, keys[i]));
    }
    assert_true(json_is_null(json_object_get(shape, "direct")));
    assert_true(json_number_value(json_object_get(json_object_get(shape, "mapped"), "best")) > 0);
    json_t *ratios = json_object_get(shape, "ratios");
    assert_true(json_is_real(json_object_get(ratios, "copy_host_to_limit")));
    assert_true(json_is_real(json_object_get(ratios, "mapped_to_limit")));
    assert_true(json_is_real(json_object_get(ratios, "mapped_to_memcpy")));
    assert_true(json_is_null(json_object_get(ratios, "mapped_to_direct")));
    json_decref(json);
}

static void baseline_measures_all_but_the_rungs(void **state)
{
    (void)state;
    for (int i = 0; i < BENCH_SHAPE_COUNT; i++) {
        struct bench_baseline *baseline;
        struct bench_result result;
        assert_int_equal(bench_baseline_open((enum bench_shape)i, SMALL_BYTES, SEED, &baseline),
                         KVF_OK);
        for (int round = 0; round < BENCH_ROUNDS_MAX + 1; round++) {
            bench_baseline_round(baseline);
        }
        bench_baseline_result(baseline, &result);
        bench_baseline_close(baseline);
        assert_int_equal(result.shape, i);
        assert_int_equal(result.rounds, BENCH_ROUNDS_MAX);
        for (int method = BENCH_MEMCPY; method <= BENCH_COPY_HOST_STEPS; method++) {
            assert_true(result.rates[method].median > 0);
            assert_true(result.rates[method].best >= result.rates[method].median);
        }
        assert_true(result.rates[BENCH_LIMIT].best >= result.rates[BENCH_MEMCPY].best);
        assert_true(bench_ratio(&result, BENCH_MAPPED, BENCH_LIMIT) == 0);
        assert_true(bench_ratio(&result, BENCH_LIMIT, BENCH_MAPPED) == 0);
        result.rates[BENCH_MAPPED] = result.rates[BENCH_COPY_HOST];
        check_json(&result);
    }
    bench_baseline_close(NULL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_have_the_size_that_they_name),
        cmocka_unit_test(fragments_lie_in_the_pools_apart_and_in_random_order),
        cmocka_unit_test(every_loop_of_the_limit_copies_every_byte),
        cmocka_unit_test(rate_is_of_the_fastest_and_of_the_middle_round),
        cmocka_unit_test(baseline_measures_all_but_the_rungs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
