/*
 * test_tiles.c - launches name each byte of their list once, within their limits; the host twins of
 * staging and sums do what they say. No device needed: tiles_twin.c walks as the kernels do.
 */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/tiles.h"
#include "kernels/tiles_walk.h"
#include "stripe_make.h"
#include "tiles_twin.h"

enum { CANARY = 0xa5, SPANS_MAX = 300, STAGING_BYTES = 3 * STRIPE_MAKE_ARENA_BYTES };

struct bed {
    unsigned char *src;
    unsigned char *dst;
    unsigned char *want;
    unsigned char *staging;
    uint64_t *table;
    struct tiles_args *args;
    struct stripe_plan plan;
    struct test_random random;
};

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static int bed_open(void **state)
{
    struct bed *bed = calloc(1, sizeof(*bed));

    assert_non_null(bed);
    bed->random = test_random_make(test_seed());
    bed->src = aligned_alloc(256, STRIPE_MAKE_ARENA_BYTES);
    bed->dst = aligned_alloc(256, STRIPE_MAKE_ARENA_BYTES);
    bed->want = aligned_alloc(256, STRIPE_MAKE_ARENA_BYTES);
    bed->staging = aligned_alloc(256, STAGING_BYTES);
    bed->table = calloc(TILES_TABLE_WORDS, sizeof(uint64_t));
    bed->args = calloc(1, sizeof(*bed->args));
    assert_true(bed->src && bed->dst && bed->want && bed->staging && bed->table && bed->args);
    test_random_fill(&bed->random, bed->src, STRIPE_MAKE_ARENA_BYTES);
    *state = bed;
    return 0;
}

static int bed_close(void **state)
{
    struct bed *bed = *state;

    free(bed->args);
    free(bed->table);
    free(bed->staging);
    free(bed->want);
    free(bed->dst);
    free(bed->src);
    free(bed);
    return 0;
}

static uint32_t random_sms(struct bed *bed)
{
    static const uint32_t sms[] = {1, 2, 8, 16, 132, TILES_SMS_MAX};

    return sms[test_random_below(&bed->random, 6)];
}

/* All launches of a list: how many. `bytes_out`: what they say that they move. */
static uint32_t run_all(struct bed *bed, struct tiles_cursor *cursor, bool table, uint64_t *sum,
                        uint64_t *bytes_out)
{
    uint32_t sms = random_sms(bed);
    uint32_t launches = 0;

    *bytes_out = 0;
    while (!tiles_ended(cursor)) {
        memset(bed->table, 0xee, TILES_TABLE_WORDS * sizeof(uint64_t));
        memset(bed->args, 0xee, sizeof(*bed->args));
        assert_int_equal(tiles_pack(cursor, sms, table ? bed->table : NULL, bed->args), KVF_OK);
        assert_in_range(bed->args->block_count, 1, sms);
        tiles_twin_run(bed->args, NULL, NULL, sum);
        *bytes_out += bed->args->bytes;
        launches++;
    }
    return launches;
}

/* Runs the plan of the bed as launches, compares all destinations with the definition's. */
static void check_copy(struct bed *bed, bool table)
{
    struct stripe_plan plan = bed->plan;
    struct tiles_cursor cursor;
    uint64_t bytes;

    memset(bed->dst, CANARY, STRIPE_MAKE_ARENA_BYTES);
    memset(bed->want, CANARY, STRIPE_MAKE_ARENA_BYTES);
    tiles_init_stripes(&cursor, TILES_COPY, plan.stripes, plan.count);
    run_all(bed, &cursor, table, NULL, &bytes);
    assert_int_equal(bytes, stripe_plan_bytes(&plan));
    stripe_plan_move(&plan, 0, address(bed->want) - address(bed->dst));
    stripe_copy_naive(plan.stripes, plan.count);
    assert_memory_equal(bed->dst, bed->want, STRIPE_MAKE_ARENA_BYTES);
}

static void copies_name_every_byte_once(void **state)
{
    struct bed *bed = *state;

    for (int i = 0; i < 150; i++) {
        stripe_plan_random(&bed->plan, &bed->random, address(bed->src), address(bed->dst));
        check_copy(bed, i % 2);
    }
}

/* Cuts the stripes of the plan into spans anywhere, one after the other in staging. */
static uint32_t make_spans(struct bed *bed, struct stage_span *spans)
{
    uint64_t at = address(bed->staging);
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
            at += (stage_bytes(&spans[count]) + 31) / 32 * 32;
            at += test_random_below(&bed->random, 3) == 0 ? test_random_below(&bed->random, 50) : 0;
            first += some;
            left -= some;
            count++;
        }
    }
    assert_true(at < address(bed->staging) + STAGING_BYTES);
    return count;
}

/* Gathered and scattered is copied, and fragments begin in staging where stage_span says. */
static void check_host_staging(struct bed *bed, const struct stage_span *spans, uint32_t count)
{
    memset(bed->staging, CANARY, STAGING_BYTES);
    memset(bed->dst, CANARY, STRIPE_MAKE_ARENA_BYTES);
    stage_host_gather(spans, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct stripe *s = spans[i].stripe;
        uint64_t f = spans[i].first + spans[i].count - 1;
        uint64_t block = f / s->piece_count;
        uint64_t src = s->src + s->bases[block % s->base_count].src +
                       s->pairs[block / s->base_count].src * s->src_stride +
                       f % s->piece_count * s->src_piece_stride;
        uint64_t at = spans[i].staging + (spans[i].count - 1) * ((s->piece_bytes + 31) / 32 * 32);
        assert_memory_equal((void *)(uintptr_t)at, (void *)(uintptr_t)src, s->piece_bytes);
    }
    stage_host_scatter(spans, count);
}

static void check_staging(struct bed *bed, bool table)
{
    static struct stage_span spans[SPANS_MAX];
    unsigned char *staged = malloc(STAGING_BYTES);
    struct tiles_cursor cursor;
    uint32_t count;
    uint64_t bytes;

    assert_non_null(staged);
    stripe_plan_random(&bed->plan, &bed->random, address(bed->src), address(bed->dst));
    count = make_spans(bed, spans);
    check_host_staging(bed, spans, count);
    memcpy(staged, bed->staging, STAGING_BYTES);
    memcpy(bed->want, bed->dst, STRIPE_MAKE_ARENA_BYTES);

    memset(bed->staging, CANARY, STAGING_BYTES);
    tiles_init_spans(&cursor, TILES_GATHER, spans, count);
    run_all(bed, &cursor, table, NULL, &bytes);
    assert_memory_equal(bed->staging, staged, STAGING_BYTES);
    assert_int_equal(bytes, stripe_plan_bytes(&bed->plan));

    memset(bed->dst, CANARY, STRIPE_MAKE_ARENA_BYTES);
    tiles_init_spans(&cursor, TILES_SCATTER, spans, count);
    run_all(bed, &cursor, table, NULL, &bytes);
    assert_memory_equal(bed->dst, bed->want, STRIPE_MAKE_ARENA_BYTES);

    memset(bed->want, CANARY, STRIPE_MAKE_ARENA_BYTES);
    stripe_plan_move(&bed->plan, 0, address(bed->want) - address(bed->dst));
    stripe_copy_naive(bed->plan.stripes, bed->plan.count);
    assert_memory_equal(bed->dst, bed->want, STRIPE_MAKE_ARENA_BYTES);
    free(staged);
}

static void gathers_and_scatters_meet_in_staging(void **state)
{
    for (int i = 0; i < 40; i++) {
        check_staging(*state, i % 2);
    }
}

static uint64_t tile_sum(struct bed *bed, enum tiles_kind kind)
{
    struct tiles_cursor cursor;
    uint64_t sum = 0;
    uint64_t bytes;

    tiles_init_stripes(&cursor, kind, bed->plan.stripes, bed->plan.count);
    run_all(bed, &cursor, false, &sum, &bytes);
    return sum;
}

static void sums_are_equal_where_bytes_are(void **state)
{
    struct bed *bed = *state;

    for (int i = 0; i < 40; i++) {
        const struct stripe_plan *plan = &bed->plan;
        uint64_t sum, total;

        stripe_plan_random(&bed->plan, &bed->random, address(bed->src), address(bed->dst));
        stripe_copy_naive(plan->stripes, plan->count);
        sum = stage_host_sum(plan->stripes, plan->count, true);
        assert_int_equal(stage_host_sum(plan->stripes, plan->count, false), sum);
        assert_int_equal(tile_sum(bed, TILES_SUM_SRC), sum);
        assert_int_equal(tile_sum(bed, TILES_SUM_DST), sum);
        total = stripe_plan_bytes(plan);
        if (total > 0) { /* one wrong bit of the first fragment there is */
            const struct stripe *s = plan->stripes;
            while (stripe_bytes(s) == 0) {
                s++;
            }
            unsigned char *at = (unsigned char *)(uintptr_t)(s->dst + s->bases[0].dst +
                                                             s->pairs[0].dst * s->dst_stride);
            at[test_random_below(&bed->random, s->piece_bytes)] ^= 4;
            assert_int_not_equal(stage_host_sum(plan->stripes, plan->count, false), sum);
            assert_int_not_equal(tile_sum(bed, TILES_SUM_DST), sum);
        }
    }
}

static void sums_see_words_and_fragments_that_changed_places(void **state)
{
    uint64_t words[] = {1, 2, 3, 4};
    struct stripe_base base = {0, 0};
    struct stripe_pair pairs[] = {{0, 0}, {1, 1}};
    struct stripe s = {.src = address(words),
                       .dst = address(words),
                       .bases = &base,
                       .pairs = pairs,
                       .base_count = 1,
                       .pair_count = 2,
                       .src_stride = 16,
                       .dst_stride = 16,
                       .piece_count = 1,
                       .piece_bytes = 16};
    uint64_t sum = stage_host_sum(&s, 1, true);
    struct stripe_pair swapped[] = {{1, 0}, {0, 1}};

    (void)state;
    s.pairs = swapped;
    assert_int_not_equal(stage_host_sum(&s, 1, true), sum);
    assert_int_equal(stage_host_sum(&s, 1, false), sum);
    s.pairs = pairs;
    words[0] = 2;
    words[1] = 1;
    assert_int_not_equal(stage_host_sum(&s, 1, true), sum);
}

static void divisions_are_exact(void **state)
{
    struct bed *bed = *state;
    static const uint32_t edges[] = {1,
                                     2,
                                     3,
                                     5,
                                     7,
                                     31,
                                     32,
                                     33,
                                     61,
                                     255,
                                     65535,
                                     65536,
                                     65537,
                                     (1u << 30) - 1,
                                     1u << 30,
                                     (1u << 30) + 1,
                                     (1u << 31) - 1};

    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t below = (1u << 31 >> i % 30) - 1; /* divisors of all lengths */
        uint32_t divisor = i < 17 ? edges[i] : 1 + (uint32_t)test_random_below(&bed->random, below);
        struct tiles_div div = tiles_div_make(divisor);
        for (int k = 0; k < 20; k++) {
            uint32_t n = (uint32_t)test_random_below(&bed->random, 1u << 31);
            uint32_t multiple = n / divisor * divisor;
            assert_int_equal(tiles_divide(n, div), n / divisor);
            assert_int_equal(tiles_divide(multiple, div), multiple / divisor);
            if (multiple > 0) {
                assert_int_equal(tiles_divide(multiple - 1, div), (multiple - 1) / divisor);
            }
        }
        assert_int_equal(tiles_divide((1u << 31) - 1, div), ((1u << 31) - 1) / divisor);
        assert_int_equal(tiles_divide(0, div), 0);
    }
}

/* Stripes of no memory: what is packed is looked at, not run. */
static struct stripe shape(uint32_t pairs, uint32_t bases, uint32_t pieces, uint64_t piece_bytes)
{
    static const struct stripe_pair no_pairs[1 << 18];
    static const struct stripe_base no_bases[TILES_BASES_MAX + 1];

    return (struct stripe){.bases = no_bases,
                           .pairs = no_pairs,
                           .base_count = bases,
                           .pair_count = pairs,
                           .src_stride = bases * pieces * piece_bytes,
                           .dst_stride = bases * pieces * piece_bytes,
                           .piece_count = pieces,
                           .piece_bytes = piece_bytes,
                           .src_piece_stride = 2 * piece_bytes,
                           .dst_piece_stride = piece_bytes};
}

static uint32_t launches_of(struct bed *bed, const struct stripe *stripes, uint32_t count,
                            bool *inside_out)
{
    struct tiles_cursor cursor;
    uint64_t bytes = 0;
    uint64_t want = 0;
    uint32_t launches = 0;

    for (uint32_t i = 0; i < count; i++) {
        want += stripe_bytes(&stripes[i]);
    }
    tiles_init_stripes(&cursor, TILES_COPY, stripes, count);
    while (!tiles_ended(&cursor)) {
        assert_int_equal(tiles_pack(&cursor, 16, bed->table, bed->args), KVF_OK);
        assert_true(tiles_check(bed->args));
        bytes += bed->args->bytes;
        launches++;
    }
    assert_int_equal(bytes, want);
    *inside_out = bed->args->table == NULL;
    return launches;
}

static void a_request_is_one_launch(void **state)
{
    struct bed *bed = *state;
    struct stripe mla = shape(256, 61, 1, 36864);
    struct stripe heads = shape(256, 16, 32, 512);
    struct stripe many = shape(14000, 8, 1, 1024);
    struct stripe longest = shape(4096, 61, 1, 36864);
    struct stripe both[40];
    bool inside;

    for (uint32_t i = 0; i < 40; i++) {
        both[i] = shape(20 + i, 61, 1, 36864); /* forty requests with the bases of one peer */
    }
    assert_int_equal(launches_of(bed, &mla, 1, &inside), 1);
    assert_true(inside);
    assert_int_equal(launches_of(bed, &heads, 1, &inside), 1);
    assert_true(inside);
    assert_int_equal(launches_of(bed, &many, 1, &inside), 1);
    assert_false(inside);
    assert_int_equal(launches_of(bed, &longest, 1, &inside), 1);
    assert_int_equal(launches_of(bed, both, 40, &inside), 1);
    assert_false(inside);
}

static void lists_beyond_the_tables_take_more_launches(void **state)
{
    struct bed *bed = *state;
    struct stripe large = shape(112000, 1, 1, 1024);
    struct stripe bases = shape(30000, TILES_BASES_MAX, 1, 4096);
    struct stripe huge = shape(1, 1, 1, (uint64_t)1 << TILES_FRAGMENT_LOG2_MAX);
    struct stripe grains = shape(1, 4096, 1 << 17, 1);
    struct stripe many_grains = shape(8, 4096, 1 << 17, 1); /* 2^32 fragments */
    struct stripe list[200];
    bool inside;

    assert_int_equal(launches_of(bed, &large, 1, &inside), 7);
    assert_int_equal(launches_of(bed, &bases, 1, &inside), 4);
    assert_int_equal(launches_of(bed, &huge, 1, &inside), 1);
    assert_int_equal(launches_of(bed, &grains, 1, &inside), 1);
    assert_int_equal(launches_of(bed, &many_grains, 1, &inside), 1);
    for (uint32_t i = 0; i < 200; i++) {
        list[i] = shape(i % 3, 1, 1, 64); /* a third of them empty */
    }
    assert_int_equal(launches_of(bed, list, 200, &inside), 3); /* 133 parts: 64, 64, the rest */
}

static void what_no_launch_can_hold_is_refused(void **state)
{
    struct bed *bed = *state;
    struct stripe list[] = {shape(1, 1, 1, 64), shape(1, TILES_BASES_MAX + 1, 1, 8)};
    struct stripe grains = shape(1, 4096, (1 << 17) + 1, 1);
    struct stripe huge = shape(1, 1, 1, ((uint64_t)1 << TILES_FRAGMENT_LOG2_MAX) + 1);
    struct stripe wide = shape(1, 1000, 1, 8);
    struct tiles_cursor cursor;

    tiles_init_stripes(&cursor, TILES_COPY, list, 2);
    assert_int_equal(tiles_pack(&cursor, 0, bed->table, bed->args), KVF_E_INVAL);
    assert_int_equal(tiles_pack(&cursor, TILES_SMS_MAX + 1, bed->table, bed->args), KVF_E_INVAL);
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_OK);
    assert_int_equal(bed->args->bytes, 64);
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_E_TOO_LARGE);
    assert_int_equal(cursor.at, 1);
    tiles_init_stripes(&cursor, TILES_COPY, &grains, 1);
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_E_TOO_LARGE);
    tiles_init_stripes(&cursor, TILES_COPY, &huge, 1);
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_E_TOO_LARGE);
    tiles_init_stripes(&cursor, TILES_COPY, &wide, 1);
    assert_int_equal(tiles_pack(&cursor, 1, NULL, bed->args), KVF_E_TOO_LARGE);
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_OK);
    assert_true(tiles_ended(&cursor));
    assert_int_equal(tiles_pack(&cursor, 1, bed->table, bed->args), KVF_E_INVAL);
    tiles_init_stripes(&cursor, TILES_COPY, NULL, 0);
    assert_true(tiles_ended(&cursor));
}

/* A span that begins inside a pair, and more pairs than the table holds. */
static void a_span_cut_by_the_table_ends_with_a_pair(void **state)
{
    struct bed *bed = *state;
    struct stripe s = shape(40000, 1, 4, 2);
    struct stage_span span = {&s, 6, 4 * 40000 - 7, 0};
    struct tiles_cursor cursor;
    uint64_t fragments = 0;

    tiles_init_spans(&cursor, TILES_GATHER, &span, 1);
    while (!tiles_ended(&cursor)) {
        assert_int_equal(tiles_pack(&cursor, 16, bed->table, bed->args), KVF_OK);
        assert_true(tiles_check(bed->args));
        assert_int_equal(bed->args->part_count, 1);
        fragments += bed->args->parts[0].count;
        assert_true(tiles_ended(&cursor) || (span.first + fragments) % 4 == 0);
    }
    assert_int_equal(fragments, span.count);
}

/* Parts share tables where the stripes share arrays, and only what they share. */
static void stripes_of_shared_arrays_are_copied_right(void **state)
{
    struct bed *bed = *state;
    struct stripe_base bases[] = {{0, 900}, {300, 600}, {600, 0}, {900, 300}};
    struct stripe_pair pairs[] = {{0, 3}, {1, 2}, {2, 0}, {3, 1}, {4, 5}, {5, 4}};
    static const uint32_t shapes[][3] = {/* bases, pairs from, pairs */
                                         {2, 0, 3},
                                         {4, 0, 3},
                                         {4, 0, 6},
                                         {2, 0, 2},
                                         {2, 1, 4}};

    bed->plan.count = 5;
    for (uint32_t i = 0; i < 5; i++) {
        bed->plan.stripes[i] = (struct stripe){.src = address(bed->src) + i * 100000,
                                               .dst = address(bed->dst) + i * 100000,
                                               .bases = bases,
                                               .pairs = pairs + shapes[i][1],
                                               .base_count = shapes[i][0],
                                               .pair_count = shapes[i][2],
                                               .src_stride = 1200,
                                               .dst_stride = 1204,
                                               .piece_count = 1,
                                               .piece_bytes = 290};
    }
    check_copy(bed, false);
    check_copy(bed, true);
}

/* One small block must not be left to one SM, nor a large request end on one straggler. */
static void tiles_spread_the_bytes_over_the_warps(void **state)
{
    struct bed *bed = *state;
    static const struct {
        uint32_t pairs, bases, pieces;
        uint64_t bytes;
    } shapes[] = {{1, 1, 1, 36864}, {256, 61, 1, 36864}, {4096, 1, 32, 512}, {1, 1, 1, 575 << 20}};

    for (uint32_t i = 0; i < 4; i++) {
        struct stripe s =
            shape(shapes[i].pairs, shapes[i].bases, shapes[i].pieces, shapes[i].bytes);
        uint64_t warps = 16 * TILES_WARPS_A_SM;
        uint64_t even = stripe_bytes(&s) / warps;
        struct tiles_cursor cursor;

        tiles_init_stripes(&cursor, TILES_COPY, &s, 1);
        assert_int_equal(tiles_pack(&cursor, 16, bed->table, bed->args), KVF_OK);
        for (uint32_t t = 0; t < bed->args->tile_count; t++) {
            struct tiles_place place = tiles_place(&bed->args->parts[0], t);
            uint64_t bytes = (uint64_t)place.count * place.bytes;
            assert_true(bytes <= TILES_BYTES_MAX);
            assert_true(bytes <= TILES_BYTES_MIN || bytes <= even);
        }
        assert_true(even < TILES_A_WARP * TILES_BYTES_MAX ||
                    stripe_bytes(&s) / bed->args->tile_count >= TILES_BYTES_MAX / 2);
        assert_true(bed->args->tile_count >= warps || even <= TILES_BYTES_MIN);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_name_every_byte_once),
        cmocka_unit_test(gathers_and_scatters_meet_in_staging),
        cmocka_unit_test(sums_are_equal_where_bytes_are),
        cmocka_unit_test(sums_see_words_and_fragments_that_changed_places),
        cmocka_unit_test(divisions_are_exact),
        cmocka_unit_test(a_request_is_one_launch),
        cmocka_unit_test(lists_beyond_the_tables_take_more_launches),
        cmocka_unit_test(a_span_cut_by_the_table_ends_with_a_pair),
        cmocka_unit_test(stripes_of_shared_arrays_are_copied_right),
        cmocka_unit_test(what_no_launch_can_hold_is_refused),
        cmocka_unit_test(tiles_spread_the_bytes_over_the_warps),
    };

    return cmocka_run_group_tests(tests, bed_open, bed_close);
}
