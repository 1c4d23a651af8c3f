/*
 * test_copy_cuda.c - the kernels do to device memory what their host twins do to host memory.
 *
 * Skipped without a GPU. Everything lies between canaries: bytes round a fragment must stay.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "device.h"
#include "fail_heap.h"
#include "kernels/tiles.h"
#include "skip.h"
#include "stripe_make.h"

enum {
    CANARY = 0xa5,
    SPANS_MAX = 200,
    STAGING_BYTES = 2 * STRIPE_MAKE_ARENA_BYTES,
    ONE_BYTES_MAX = 40000,
};

/* Arenas on both sides; the host's are what the device's must become. */
struct bed {
    struct device *device;
    unsigned char *host_src, *host_dst, *host_staging, *back;
    unsigned char *src, *dst, *staging;
    uint64_t *sum; /* pinned */
    struct stripe_plan plan;
    struct test_random random;
};

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static unsigned char *host_take(size_t bytes)
{
    unsigned char *memory = aligned_alloc(256, bytes);

    assert_non_null(memory);
    return memory;
}

static int bed_open(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));
    char text[DEVICE_TEXT_BYTES];

    assert_non_null(bed);
    bed->random = test_random_make(test_seed());
    assert_int_equal(device_open(kvf_heap_system(), 0, 2, &bed->device, text), KVF_OK);
    bed->host_src = host_take(STRIPE_MAKE_ARENA_BYTES);
    bed->host_dst = host_take(STRIPE_MAKE_ARENA_BYTES);
    bed->host_staging = host_take(STAGING_BYTES);
    bed->back = host_take(STAGING_BYTES);
    assert_int_equal(device_alloc(bed->device, STRIPE_MAKE_ARENA_BYTES, (void **)&bed->src), 0);
    assert_int_equal(device_alloc(bed->device, STRIPE_MAKE_ARENA_BYTES, (void **)&bed->dst), 0);
    assert_int_equal(device_alloc(bed->device, STAGING_BYTES, (void **)&bed->staging), 0);
    assert_int_equal(device_pin(bed->device, sizeof(*bed->sum), (void **)&bed->sum), 0);
    test_random_fill(&bed->random, bed->host_src, STRIPE_MAKE_ARENA_BYTES);
    assert_int_equal(device_copy_now(bed->device, bed->src, bed->host_src, STRIPE_MAKE_ARENA_BYTES),
                     0);
    *state = bed;
    return 0;
}

static int bed_close(void **state)
{
    struct bed *bed = *state;

    assert_null(device_error_once(bed->device));
    assert_int_equal(device_look(bed->device), DEVICE_WELL);
    assert_int_equal(device_free(bed->device, bed->src), KVF_OK);
    assert_int_equal(device_free(bed->device, bed->dst), KVF_OK);
    assert_int_equal(device_free(bed->device, bed->staging), KVF_OK);
    assert_int_equal(device_unpin(bed->device, bed->sum), KVF_OK);
    device_close(bed->device);
    free(bed->host_src);
    free(bed->host_dst);
    free(bed->host_staging);
    free(bed->back);
    free(bed);
    return 0;
}

/* ---- helpers -------------------------------------------------------------------------------- */

static void fill(struct bed *bed, unsigned char *host, unsigned char *memory, size_t bytes)
{
    memset(host, CANARY, bytes);
    assert_int_equal(device_copy_now(bed->device, memory, host, bytes), KVF_OK);
}

static void assert_device_equal(struct bed *bed, const unsigned char *memory,
                                const unsigned char *want, size_t bytes)
{
    assert_int_equal(device_copy_now(bed->device, bed->back, memory, bytes), KVF_OK);
    if (memcmp(bed->back, want, bytes) != 0) {
        size_t at = 0;
        while (bed->back[at] == want[at]) {
            at++;
        }
        fail_msg("byte %zu is %02x, want %02x", at, bed->back[at], want[at]);
    }
}

static uint32_t random_sms(struct bed *bed)
{
    static const uint32_t sms[] = {1, 2, 8, 16, 32, 4000};

    return sms[test_random_below(&bed->random, 6)];
}

/* All launches of a list; waits for the end. */
static void run(struct bed *bed, struct tiles_cursor *cursor, uint64_t *sum)
{
    uint32_t sms = random_sms(bed);
    struct device_ticket ticket;
    enum kvf_status status;

    do {
        status = device_tiles_queue(bed->device, 1, cursor, sms, sum, &ticket);
        assert_true(status == KVF_OK || status == KVF_BUSY);
        assert_int_equal(device_wait(bed->device, &ticket), KVF_OK);
        assert_true(device_ended(bed->device, &ticket));
    } while (status == KVF_BUSY);
    assert_true(tiles_ended(cursor));
}

static void run_stripes(struct bed *bed, const struct stripe *stripes, uint32_t count)
{
    struct tiles_cursor cursor;

    tiles_init_stripes(&cursor, TILES_COPY, stripes, count);
    run(bed, &cursor, NULL);
}

/* The plan with its arenas on the device. */
static struct stripe_plan plan_on_device(const struct bed *bed)
{
    struct stripe_plan plan = bed->plan;

    stripe_plan_move(&plan, address(bed->src) - address(bed->host_src),
                     address(bed->dst) - address(bed->host_dst));
    return plan;
}

/* Runs the plan of the bed on both sides and compares the whole of the destinations. */
static void check_plan(struct bed *bed)
{
    struct stripe_plan plan = plan_on_device(bed);

    fill(bed, bed->host_dst, bed->dst, STRIPE_MAKE_ARENA_BYTES);
    copy_host_run(bed->plan.stripes, bed->plan.count);
    run_stripes(bed, plan.stripes, plan.count);
    assert_device_equal(bed, bed->dst, bed->host_dst, STRIPE_MAKE_ARENA_BYTES);
}

/* `pieces` fragments of one size with gaps between them. */
static void plan_one(struct bed *bed, uint64_t bytes, uint64_t src_offset, uint64_t dst_offset,
                     uint64_t gap)
{
    static const struct stripe_base base = {0, 0};
    static const struct stripe_pair pair = {0, 0};
    uint32_t pieces = bytes < 3000 ? 37 : 3;

    bed->plan.count = 1;
    bed->plan.stripes[0] = (struct stripe){.src = address(bed->host_src) + src_offset,
                                           .dst = address(bed->host_dst) + dst_offset,
                                           .bases = &base,
                                           .pairs = &pair,
                                           .base_count = 1,
                                           .pair_count = 1,
                                           .piece_count = pieces,
                                           .piece_bytes = bytes,
                                           .src_piece_stride = bytes + gap,
                                           .dst_piece_stride = bytes + gap};
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void copies_sizes_at_any_offset_of_both_sides(void **state)
{
    struct bed *bed = *state;
    static const uint64_t sizes[] = {1,    2,    3,    4,    7,    8,    15,   16,    17,
                                     31,   48,   63,   64,   65,   127,  512,  513,   1000,
                                     1024, 2032, 2047, 2048, 2049, 4096, 4111, 36864, 36871};
    static const uint64_t gaps[] = {0, 1, 2, 4, 8, 16, 48};

    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t k = 0; k < 14; k++) {
            uint64_t src_offset = test_random_below(&bed->random, 34);
            uint64_t dst_offset = 64 + test_random_below(&bed->random, 34);
            if (k % 2 == 0) { /* aligned alike: by 1, 2, 4, ... 16 bytes */
                dst_offset = 64 + src_offset;
            }
            plan_one(bed, sizes[i], src_offset, dst_offset, gaps[k % 7]);
            check_plan(bed);
        }
    }
}

static void random_plans_are_copied_as_the_host_does(void **state)
{
    struct bed *bed = *state;

    for (int i = 0; i < 150; i++) {
        stripe_plan_random(&bed->plan, &bed->random, address(bed->host_src),
                           address(bed->host_dst));
        check_plan(bed);
    }
}

/* Spans of the bed's plan in host staging. */
static uint32_t make_spans(struct bed *bed, struct stage_span *spans)
{
    uint64_t at = address(bed->host_staging) + 64;
    uint32_t count = 0;

    for (uint32_t i = 0; i < bed->plan.count; i++) {
        uint64_t left = stripe_fragments(&bed->plan.stripes[i]);
        uint64_t first = 0;
        uint64_t some_max = left / 9 + 9;
        while (left > 0) {
            uint64_t some = 1 + test_random_below(&bed->random, some_max);
            assert_true(count < SPANS_MAX);
            some = some < left ? some : left;
            spans[count] = (struct stage_span){&bed->plan.stripes[i], first, some, at};
            at += (stage_bytes(&spans[count]) + 31) / 32 * 32 + test_random_below(&bed->random, 40);
            first += some;
            left -= some;
            count++;
        }
    }
    assert_true(at < address(bed->host_staging) + STAGING_BYTES);
    return count;
}

static void spans_to_device(const struct bed *bed, const struct stripe_plan *plan,
                            const struct stage_span *spans, uint32_t count,
                            struct stage_span *spans_out)
{
    for (uint32_t i = 0; i < count; i++) {
        spans_out[i] = spans[i];
        spans_out[i].stripe = plan->stripes + (spans[i].stripe - bed->plan.stripes);
        spans_out[i].staging += address(bed->staging) - address(bed->host_staging);
    }
}

static void gathers_and_scatters_as_the_host_does(void **state)
{
    static struct stage_span spans[SPANS_MAX], moved[SPANS_MAX];
    struct bed *bed = *state;

    for (int i = 0; i < 40; i++) {
        struct tiles_cursor cursor;
        struct stripe_plan plan;
        uint32_t count;

        stripe_plan_random(&bed->plan, &bed->random, address(bed->host_src),
                           address(bed->host_dst));
        plan = plan_on_device(bed);
        count = make_spans(bed, spans);
        spans_to_device(bed, &plan, spans, count, moved);
        fill(bed, bed->host_staging, bed->staging, STAGING_BYTES);
        fill(bed, bed->host_dst, bed->dst, STRIPE_MAKE_ARENA_BYTES);
        stage_host_gather(spans, count);
        tiles_init_spans(&cursor, TILES_GATHER, moved, count);
        run(bed, &cursor, NULL);
        assert_device_equal(bed, bed->staging, bed->host_staging, STAGING_BYTES);
        stage_host_scatter(spans, count);
        tiles_init_spans(&cursor, TILES_SCATTER, moved, count);
        run(bed, &cursor, NULL);
        assert_device_equal(bed, bed->dst, bed->host_dst, STRIPE_MAKE_ARENA_BYTES);
    }
}

static uint64_t device_sum(struct bed *bed, const struct stripe_plan *plan, enum tiles_kind kind)
{
    struct tiles_cursor cursor;

    *bed->sum = 0;
    tiles_init_stripes(&cursor, kind, plan->stripes, plan->count);
    run(bed, &cursor, bed->sum);
    return *bed->sum;
}

static void sums_are_those_of_the_host(void **state)
{
    struct bed *bed = *state;

    for (int i = 0; i < 40; i++) {
        struct stripe_plan plan;

        stripe_plan_random(&bed->plan, &bed->random, address(bed->host_src),
                           address(bed->host_dst));
        plan = plan_on_device(bed);
        fill(bed, bed->host_dst, bed->dst, STRIPE_MAKE_ARENA_BYTES);
        assert_int_equal(device_sum(bed, &plan, TILES_SUM_SRC),
                         stage_host_sum(bed->plan.stripes, bed->plan.count, true));
        assert_int_equal(device_sum(bed, &plan, TILES_SUM_DST),
                         stage_host_sum(bed->plan.stripes, bed->plan.count, false));
        copy_host_run(bed->plan.stripes, bed->plan.count);
        run_stripes(bed, plan.stripes, plan.count);
        assert_int_equal(device_sum(bed, &plan, TILES_SUM_DST),
                         stage_host_sum(bed->plan.stripes, bed->plan.count, true));
    }
}

/*
 * More pairs than one table holds, and more launches than the ring: 200,000 fragments of 8 bytes.
 */
static void lists_of_many_launches_are_whole(void **state)
{
    enum { PAIRS = 200000 };
    struct bed *bed = *state;
    static const struct stripe_base base = {0, 0};
    struct stripe_pair *pairs = malloc(PAIRS * sizeof(*pairs));
    struct stripe *stripe = &bed->plan.stripes[0];

    assert_non_null(pairs);
    for (uint32_t i = 0; i < PAIRS; i++) {
        pairs[i] = (struct stripe_pair){i, PAIRS - 1 - i};
    }
    plan_one(bed, 8, 0, 64, 0);
    stripe->piece_count = 1;
    stripe->bases = &base;
    stripe->pairs = pairs;
    stripe->pair_count = PAIRS;
    stripe->src_stride = 8;
    stripe->dst_stride = 16;
    check_plan(bed);
    free(pairs);
}

static void an_empty_list_has_ended(void **state)
{
    struct bed *bed = *state;
    struct device_ticket ticket = {7, 7};
    struct tiles_cursor cursor;

    tiles_init_stripes(&cursor, TILES_COPY, NULL, 0);
    assert_int_equal(device_tiles_queue(bed->device, 0, &cursor, 16, NULL, &ticket), KVF_OK);
    assert_true(device_ended(bed->device, &ticket));
}

/* What is queued after an event waits for it on the device, and the host does not. */
static void a_copy_waits_for_the_engines_event(void **state)
{
    struct bed *bed = *state;
    struct stripe_plan plan;
    struct device_ticket ticket;
    struct tiles_cursor cursor;
    cudaStream_t engine;
    cudaEvent_t ready;

    assert_int_equal(cudaStreamCreateWithFlags(&engine, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaEventCreateWithFlags(&ready, cudaEventDisableTiming), 0);
    for (int round = 0; round < 20; round++) {
        plan_one(bed, ONE_BYTES_MAX, 0, 64, 0);
        plan = plan_on_device(bed);
        fill(bed, bed->host_dst, bed->dst, STRIPE_MAKE_ARENA_BYTES);
        /* The engine's work: it writes the pages late, behind 256 MiB of other writes. */
        for (int i = 0; i < 32; i++) {
            assert_int_equal(cudaMemsetAsync(bed->staging, i, STAGING_BYTES, engine), 0);
        }
        assert_int_equal(cudaMemsetAsync(bed->src, round, 3 * ONE_BYTES_MAX, engine), 0);
        assert_int_equal(cudaEventRecord(ready, engine), 0);
        assert_int_equal(device_wait_event_queue(bed->device, 1, ready), KVF_OK);
        tiles_init_stripes(&cursor, TILES_COPY, plan.stripes, plan.count);
        assert_int_equal(device_tiles_queue(bed->device, 1, &cursor, 16, NULL, &ticket), KVF_OK);
        assert_int_equal(device_wait(bed->device, &ticket), KVF_OK);
        memset(bed->host_dst + 64, round, 3 * ONE_BYTES_MAX);
        assert_device_equal(bed, bed->dst, bed->host_dst, STRIPE_MAKE_ARENA_BYTES);
    }
    cudaEventDestroy(ready);
    cudaStreamDestroy(engine);
    assert_int_equal(device_copy_now(bed->device, bed->src, bed->host_src, STRIPE_MAKE_ARENA_BYTES),
                     KVF_OK);
}

static void small_launches_end_in_order(void **state)
{
    struct bed *bed = *state;
    uint64_t number = 0;

    for (int i = 0; i < 300; i++) {
        struct stripe_plan plan;
        struct device_ticket ticket;
        struct tiles_cursor cursor;
        enum kvf_status status;

        plan_one(bed, 1 + test_random_below(&bed->random, 600), 0, 64, 0);
        plan = plan_on_device(bed);
        tiles_init_stripes(&cursor, TILES_COPY, plan.stripes, plan.count);
        status = device_tiles_queue(bed->device, 0, &cursor, 2, NULL, &ticket);
        if (status == KVF_BUSY) {
            struct device_ticket before = {0, number};
            assert_int_equal(ticket.number, 0);
            assert_int_equal(device_wait(bed->device, &before), KVF_OK);
            continue;
        }
        assert_int_equal(status, KVF_OK);
        assert_true(ticket.number > number);
        number = ticket.number;
    }
    struct device_ticket last = {0, number};
    assert_int_equal(device_wait(bed->device, &last), KVF_OK);
}

static void the_callers_device_and_errors_stay(void **state)
{
    struct bed *bed = *state;
    void *memory = bed;
    int device = -1;

    assert_int_equal(cudaSetDevice(0), 0);
    assert_int_equal(device_alloc(bed->device, (size_t)1 << 60, &memory), KVF_E_NOMEM);
    assert_ptr_equal(memory, bed);
    assert_null(device_error_once(bed->device)); /* no memory is no broken device */
    assert_int_equal(cudaPeekAtLastError(), 0);
    assert_int_equal(cudaGetDevice(&device), 0);
    assert_int_equal(device, 0);
    assert_int_equal(device_look(bed->device), DEVICE_WELL);
}

static void open_refuses_what_is_not_there_and_survives_no_memory(void **state)
{
    struct device *device = NULL;
    struct fail_heap heap;
    char text[DEVICE_TEXT_BYTES];

    (void)state;
    assert_int_equal(device_open(kvf_heap_system(), 1000, 1, &device, text), KVF_E_INVAL);
    assert_non_null(strstr(text, "GPU 1000"));
    assert_int_equal(device_open(kvf_heap_system(), 0, 0, &device, text), KVF_E_INVAL);
    assert_int_equal(device_open(kvf_heap_system(), 0, DEVICE_STREAMS_MAX + 1, &device, text),
                     KVF_E_INVAL);
    fail_heap_init(&heap, 1);
    assert_int_equal(device_open(&heap.heap, 0, 1, &device, text), KVF_E_NOMEM);
    assert_null(device);
    device_close(NULL);
}

/* Memory of the device is back where it was after many lives. */
static void opening_and_closing_leaves_nothing(void **state)
{
    size_t before = 0, after = 0, total;
    char text[DEVICE_TEXT_BYTES];

    (void)state;
    if (getenv("KVFTEST_TOOL") != NULL) {
        skip(); /* a checker takes memory of its own */
    }
    for (int i = 0; i < 20; i++) {
        struct device *device;
        assert_int_equal(device_open(kvf_heap_system(), 0, 3, &device, text), KVF_OK);
        assert_true(device_sm_count(device) >= 1);
        device_close(device);
        assert_int_equal(cudaMemGetInfo(i == 0 ? &before : &after, &total), 0);
    }
    assert_int_equal(before, after);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_refuses_what_is_not_there_and_survives_no_memory),
        cmocka_unit_test(an_empty_list_has_ended),
        cmocka_unit_test(copies_sizes_at_any_offset_of_both_sides),
        cmocka_unit_test(random_plans_are_copied_as_the_host_does),
        cmocka_unit_test(gathers_and_scatters_as_the_host_does),
        cmocka_unit_test(sums_are_those_of_the_host),
        cmocka_unit_test(lists_of_many_launches_are_whole),
        cmocka_unit_test(a_copy_waits_for_the_engines_event),
        cmocka_unit_test(small_launches_end_in_order),
        cmocka_unit_test(the_callers_device_and_errors_stay),
        cmocka_unit_test(opening_and_closing_leaves_nothing),
    };
    char text[DEVICE_TEXT_BYTES];
    char reason[DEVICE_TEXT_BYTES + 20];
    uint32_t count;

    device_count(&count, text);
    if (count == 0) {
        snprintf(reason, sizeof(reason), "no device (%s)", text);
        test_skip(reason);
    }
    return cmocka_run_group_tests(tests, bed_open, bed_close);
}
