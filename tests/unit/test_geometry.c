/* test_geometry.c - records, grids and who meets whom (docs/geometry.md, sections 1 and 5). */
#include <stdio.h>
#include <string.h>

#include "fail_heap.h"
#include "geo_make.h"

enum { RANKS_MAX = 256 };

static struct geo_record *record_of(const struct geo_make_grid *grid, enum geo_side side,
                                    uint32_t rank)
{
    struct geo_make_model model;
    struct geo_make_params params = {.model = &model, .grid = grid, .side = side, .slots = 4};
    uint32_t layers = 0;

    for (uint32_t p = 0; p < grid->pp; p++) {
        layers += grid->layers[p];
    }
    geo_make_model(&model, layers, 1, 8, 4);
    return geo_make_record(&params, rank);
}

/* What reader `rank` of `gen` asks of dp group `group` of `ctx`, as text: "2 3". */
static void asked_is(const struct geo_make_grid *ctx, const struct geo_make_grid *gen,
                     uint32_t rank, uint32_t group, const char *wanted)
{
    struct geo_record *reader = record_of(gen, GEO_GENERATION, rank);
    struct kvf_place grid = geo_make_place(ctx, 0);
    uint32_t ranks[RANKS_MAX];
    uint32_t count = 0;
    char text[1024] = "";

    assert_int_equal(geo_asked(reader, &grid, group, ranks, RANKS_MAX, &count), KVF_OK);
    for (uint32_t i = 0; i < count; i++) {
        size_t used = strlen(text);

        snprintf(text + used, sizeof(text) - used, "%s%u", i > 0 ? " " : "", ranks[i]);
    }
    assert_string_equal(text, wanted);
    geo_record_close(reader);
}

static void readers_ask_the_ranks_that_hold_their_layers_and_heads(void **state)
{
    struct geo_make_grid tp1 = geo_make_grid(1, 0, 32), tp2 = geo_make_grid(2, 0, 32),
                         tp4 = geo_make_grid(4, 0, 32), tp8 = geo_make_grid(8, 0, 32);
    struct geo_make_grid pp2 = {.tp = 1, .pp = 2, .layers = {16, 16}};
    struct geo_make_grid tp4pp2 = {.tp = 4, .pp = 2, .layers = {16, 16}};

    (void)state;
    asked_is(&tp1, &tp1, 0, 0, "0");
    asked_is(&tp4, &tp2, 1, 0, "2 3");
    asked_is(&tp8, &tp2, 1, 0, "4 5 6 7");
    asked_is(&tp8, &tp8, 5, 0, "5");
    asked_is(&tp4, &tp8, 7, 0, "3");
    asked_is(&pp2, &tp1, 0, 0, "0 1");
    asked_is(&tp4pp2, &tp2, 1, 0, "2 3 6 7");
}

static void readers_of_a_stage_ask_stages_with_common_layers_alone(void **state)
{
    struct geo_make_grid even = {.tp = 1, .pp = 2, .layers = {20, 20}};
    struct geo_make_grid uneven = {.tp = 1, .pp = 2, .layers = {30, 10}};
    struct geo_make_grid empty = {.tp = 1, .pp = 3, .layers = {20, 0, 20}};

    (void)state;
    asked_is(&even, &uneven, 0, 0, "0 1");
    asked_is(&even, &uneven, 1, 0, "1");
    asked_is(&even, &empty, 1, 0, "");
    asked_is(&empty, &even, 0, 0, "0");
    asked_is(&empty, &even, 1, 0, "2");
}

static void attention_dp_names_one_group_or_all_of_them(void **state)
{
    struct geo_make_grid plain = geo_make_grid(8, 0, 4), adp4 = geo_make_grid(4, 4, 4),
                         adp8 = geo_make_grid(8, 8, 4), dp2 = geo_make_grid(8, 2, 4);

    (void)state;
    asked_is(&plain, &adp8, 3, 0, "0 1 2 3 4 5 6 7");
    asked_is(&adp4, &adp8, 6, 3, "3");
    asked_is(&adp4, &adp8, 6, GEO_GROUP_UNKNOWN, "0 1 2 3");
    asked_is(&dp2, &adp4, 1, 1, "4 5 6 7");
    asked_is(&dp2, &dp2, 5, 0, "1");
    asked_is(&dp2, &dp2, 5, GEO_GROUP_UNKNOWN, "1 5");
}

static void finals_are_the_ranks_of_one_group(void **state)
{
    struct geo_make_grid adp4 = geo_make_grid(4, 4, 4), gen = geo_make_grid(2, 0, 4);
    struct kvf_place grid = geo_make_place(&adp4, 0);
    struct geo_record *reader = record_of(&gen, GEO_GENERATION, 0);
    uint32_t count = 0;

    (void)state;
    assert_int_equal(geo_finals(reader, &grid, &count), KVF_OK);
    assert_int_equal(count, 1);
    assert_int_equal(geo_asked(reader, &grid, GEO_GROUP_UNKNOWN, NULL, 0, &count), KVF_OK);
    assert_int_equal(count, 4);
    geo_record_close(reader);
}

/* Every pair of small grids: a writer serves exactly those readers that ask it. */
static void check_relation(const struct geo_make_grid *ctx, const struct geo_make_grid *gen)
{
    struct kvf_place ctx_grid = geo_make_place(ctx, 0), gen_grid = geo_make_place(gen, 0);
    uint32_t gen_groups = gen->dp == 0 ? 1 : gen->dp;

    for (uint32_t w = 0; w < ctx->tp * ctx->pp; w++) {
        struct kvf_place writer = geo_make_place(ctx, w);

        for (uint32_t r = 0; r < gen->tp * gen->pp; r++) {
            struct kvf_place reader = geo_make_place(gen, r);
            uint32_t asked[RANKS_MAX], served[RANKS_MAX];
            uint32_t asked_count = 0, served_count = 0;
            bool asks = false, serves = false;

            assert_int_equal(
                geo_meets(&reader, &ctx_grid, writer.dp_rank, asked, RANKS_MAX, &asked_count),
                KVF_OK);
            assert_int_equal(
                geo_meets(&writer, &gen_grid, reader.dp_rank, served, RANKS_MAX, &served_count),
                KVF_OK);
            for (uint32_t i = 0; i < asked_count; i++) {
                asks = asks || asked[i] == w;
            }
            for (uint32_t i = 0; i < served_count; i++) {
                serves = serves || served[i] == r;
            }
            assert_int_equal(asks, serves);
            assert_int_equal(asks, geo_is_asked(&reader, &writer));
            assert_int_equal(geo_rank_dp(&gen_grid, r), reader.dp_rank);
            assert_true(reader.dp_rank < gen_groups);
        }
    }
}

static void asking_and_serving_are_one_relation(void **state)
{
    static const struct geo_make_grid grids[] = {
        {.tp = 1, .pp = 1, .layers = {6}},
        {.tp = 2, .pp = 2, .layers = {4, 2}},
        {.tp = 4, .pp = 1, .layers = {6}},
        {.tp = 4, .dp = 2, .pp = 2, .layers = {3, 3}},
        {.tp = 4, .dp = 4, .pp = 1, .layers = {6}},
        {.tp = 8, .pp = 3, .layers = {1, 0, 5}},
        {.tp = 8, .dp = 4, .pp = 2, .layers = {5, 1}},
    };
    enum { GRIDS = sizeof(grids) / sizeof(grids[0]) };

    (void)state;
    for (int a = 0; a < GRIDS; a++) {
        for (int b = 0; b < GRIDS; b++) {
            check_relation(&grids[a], &grids[b]);
        }
    }
}

static void widths_that_do_not_divide_meet_nobody(void **state)
{
    struct geo_make_grid three = geo_make_grid(3, 0, 4), two = geo_make_grid(2, 0, 4);
    struct kvf_place a = geo_make_place(&three, 0), b = geo_make_place(&two, 0);
    uint32_t count = 77;

    (void)state;
    assert_int_equal(geo_meets(&a, &b, 0, NULL, 0, &count), KVF_E_TP_RATIO);
    assert_int_equal(count, 77);
    assert_false(geo_is_asked(&a, &b));
}

static void a_group_that_is_not_there_is_an_error(void **state)
{
    struct geo_make_grid adp = geo_make_grid(4, 4, 4);
    struct kvf_place place = geo_make_place(&adp, 0);
    uint32_t count;

    (void)state;
    assert_int_equal(geo_meets(&place, &place, 4, NULL, 0, &count), KVF_E_INVAL);
    assert_int_equal(geo_meets(&place, &place, 3, NULL, 0, &count), KVF_OK);
}

static void a_list_that_is_too_small_still_tells_the_count(void **state)
{
    struct geo_make_grid eight = geo_make_grid(8, 0, 4), one = geo_make_grid(1, 0, 4);
    struct kvf_place writer = geo_make_place(&eight, 0), reader = geo_make_place(&one, 0);
    uint32_t ranks[4] = {9, 9, 9, 9};
    uint32_t count = 0;

    (void)state;
    assert_int_equal(geo_meets(&reader, &writer, 0, ranks, 3, &count), KVF_E_TOO_LARGE);
    assert_int_equal(count, 8);
    assert_int_equal(ranks[2], 2);
    assert_int_equal(ranks[3], 9);
}

static void heads_are_spread_or_shared_evenly(void **state)
{
    struct geo_make_grid tp8 = geo_make_grid(8, 0, 4), dp2 = geo_make_grid(8, 2, 4);
    struct kvf_place place = geo_make_place(&tp8, 5);
    uint32_t first, count;

    (void)state;
    geo_heads_held(&place, 16, &first, &count);
    assert_int_equal(first, 10);
    assert_int_equal(count, 2);
    geo_heads_held(&place, 4, &first, &count);
    assert_int_equal(first, 2);
    assert_int_equal(count, 1);
    geo_heads_held(&place, 12, &first, &count);
    assert_int_equal(count, 0);
    geo_heads_held(&place, 0, &first, &count);
    assert_int_equal(count, 0);
    place = geo_make_place(&dp2, 5); /* index 1 of 4 in its group */
    geo_heads_held(&place, 8, &first, &count);
    assert_int_equal(first, 2);
    assert_int_equal(count, 2);
}

static void a_record_is_a_deep_copy(void **state)
{
    struct geo_make_grid grid = {.tp = 2, .pp = 2, .layers = {2, 2}};
    struct geo_record *first = record_of(&grid, GEO_CONTEXT, 3);
    struct geo_record *copy = NULL;

    (void)state;
    assert_int_equal(geo_record_open(kvf_heap_system(), first, &copy), KVF_OK);
    assert_ptr_not_equal(copy->place.layers_per_pp, first->place.layers_per_pp);
    assert_ptr_not_equal(copy->layout.groups[0].views[0].entries,
                         first->layout.groups[0].views[0].entries);
    geo_record_close(first);
    assert_int_equal(copy->place.layers_per_pp[1], 2);
    assert_int_equal(copy->layout.groups[0].layers[0], 2);
    assert_string_equal(copy->instance_name, "ctx");
    assert_int_equal(geo_check_local(copy, NULL), KVF_OK);
    geo_record_close(copy);
    geo_record_close(NULL);
}

static void open_survives_a_failing_allocation(void **state)
{
    struct geo_make_grid grid = geo_make_grid(2, 0, 4);
    struct geo_record *record = record_of(&grid, GEO_CONTEXT, 1);
    struct geo_record *copy = NULL;
    struct fail_heap heap;

    (void)state;
    fail_heap_init(&heap, 1);
    assert_int_equal(geo_record_open(&heap.heap, record, &copy), KVF_E_NOMEM);
    assert_null(copy);
    fail_heap_fini(&heap);
    fail_heap_init(&heap, 2);
    assert_int_equal(geo_record_open(&heap.heap, record, &copy), KVF_OK);
    assert_int_equal(heap.calls, 1);
    geo_record_close(copy);
    fail_heap_fini(&heap);
    geo_record_close(record);
}

static void usable_arena_is_granularity_times_a_power_of_two(void **state)
{
    static const struct {
        uint64_t arena, granularity, wanted;
    } rows[] = {
        {3u << 20, 256, 2u << 20},
        {3u << 20, 1u << 20, 2u << 20},
        {96u << 20, 1u << 20, 64u << 20},
        {256u << 20, 1u << 20, 256u << 20},
        {12u << 20, 3u << 20, 8u << 20},
        {1u << 20, 2u << 20, 0},
        {3u << 20, 3u << 20, 0},
        {0, 1u << 20, 0},
        {1u << 20, 0, 0},
        {UINT64_MAX, UINT64_MAX, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct geo_bounce bounce = {.enabled = true,
                                    .arena_bytes = rows[i].arena,
                                    .granularity_bytes = rows[i].granularity,
                                    .max_chunk_bytes = UINT64_MAX};

        assert_int_equal(geo_bounce_arena(&bounce), rows[i].wanted);
        bounce.enabled = false;
        assert_int_equal(geo_bounce_chunk(&bounce), 0);
    }
}

static void effective_chunk_is_below_4_gib(void **state)
{
    struct geo_bounce bounce = {.enabled = true,
                                .arena_bytes = UINT64_C(1) << 36,
                                .granularity_bytes = 1u << 20,
                                .max_chunk_bytes = UINT64_C(1) << 34};

    (void)state;
    assert_int_equal(geo_bounce_chunk(&bounce), UINT32_MAX);
    bounce.max_chunk_bytes = 32u << 20;
    assert_int_equal(geo_bounce_chunk(&bounce), 32u << 20);
    bounce.arena_bytes = 3u << 20;
    assert_int_equal(geo_bounce_chunk(&bounce), 2u << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_ask_the_ranks_that_hold_their_layers_and_heads),
        cmocka_unit_test(readers_of_a_stage_ask_stages_with_common_layers_alone),
        cmocka_unit_test(attention_dp_names_one_group_or_all_of_them),
        cmocka_unit_test(finals_are_the_ranks_of_one_group),
        cmocka_unit_test(asking_and_serving_are_one_relation),
        cmocka_unit_test(widths_that_do_not_divide_meet_nobody),
        cmocka_unit_test(a_group_that_is_not_there_is_an_error),
        cmocka_unit_test(a_list_that_is_too_small_still_tells_the_count),
        cmocka_unit_test(heads_are_spread_or_shared_evenly),
        cmocka_unit_test(a_record_is_a_deep_copy),
        cmocka_unit_test(open_survives_a_failing_allocation),
        cmocka_unit_test(usable_arena_is_granularity_times_a_power_of_two),
        cmocka_unit_test(effective_chunk_is_below_4_gib),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
