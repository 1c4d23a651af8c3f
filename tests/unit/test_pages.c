/* test_pages.c - the layout that a model gives a rank (docs/geometry.md, sections 2 and 3). */
#include <string.h>

#include "fail_heap.h"
#include "geo_make.h"

static struct kvf_layout *layout_of(const struct geo_make_model *model,
                                    const struct geo_make_grid *grid, uint32_t rank)
{
    struct geo_make_params params = {.model = model, .grid = grid};
    struct kvf_layout *layout = NULL;
    char text[256] = "";

    if (geo_make_layout(&params, rank, &layout, text, sizeof(text)) != KVF_OK) {
        fail_msg("%s", text);
    }
    return layout;
}

static enum kvf_status refusal(const struct geo_make_model *model, const struct geo_make_grid *grid,
                               enum pages_form form)
{
    struct geo_make_params params = {.model = model, .grid = grid, .form = form};
    struct kvf_layout *layout = NULL;
    char text[256] = "";
    enum kvf_status status = geo_make_layout(&params, 0, &layout, text, sizeof(text));

    if (status != KVF_OK) {
        assert_null(layout);
        assert_true(strlen(text) > 10);
    }
    pages_layout_close(kvf_heap_system(), layout);
    return status;
}

static void keys_and_values_share_one_pool_layer_major(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(4, 0, 32);
    struct kvf_layout *layout;
    struct pages_place place;

    (void)state;
    geo_make_model(&model, 32, 8, 128, 32);
    layout = layout_of(&model, &grid, 3);
    assert_int_equal(layout->pool_count, 1);
    assert_int_equal(layout->pools[0].slot_bytes, 1048576);
    assert_int_equal(layout->group_count, 1);
    assert_int_equal(layout->groups[0].view_count, 1);
    assert_int_equal(layout->layer_count, 32);
    assert_int_equal(layout->kv_heads, 2);
    assert_int_equal(layout->groups[0].views[0].heads, 2);
    assert_int_equal(layout->groups[0].views[0].heads_total, 8);
    assert_true(pages_find(layout, 5, KVF_VALUE, &place));
    assert_int_equal(place.entry->offset, 5 * 32768 + 16384);
    assert_int_equal(place.entry->size, 16384);
    assert_false(pages_find(layout, 5, KVF_INDEX_KEY, &place));
    assert_false(pages_find(layout, 32, KVF_KEY, &place));
    pages_layout_close(kvf_heap_system(), layout);
}

static void buffers_of_other_sizes_get_their_own_pool(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(4, 0, 4);
    struct kvf_layout *layout;

    (void)state;
    geo_make_model(&model, 4, 4, 128, 64);
    for (uint32_t l = 0; l < 4; l++) {
        model.layers[l].index_bytes = 132;
    }
    layout = layout_of(&model, &grid, 0);
    assert_int_equal(layout->pool_count, 2);
    assert_int_equal(layout->pools[1].slot_bytes, 4 * 132 * 64);
    assert_int_equal(layout->groups[0].view_count, 2);
    assert_int_equal(layout->groups[0].views[1].kind, KVF_VIEW_REPLICATED);
    assert_false(layout->groups[0].views[1].has_heads);
    assert_false(layout->groups[0].views[1].has_heads_total);
    pages_layout_close(kvf_heap_system(), layout);
}

static void target_and_draft_of_one_size_share_a_pool_in_two_views(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(2, 0, 33);
    struct kvf_layout *layout;
    const struct kvf_group *group;

    (void)state;
    geo_make_model(&model, 33, 8, 64, 32);
    model.layers[32].owner = KVF_OWNER_DRAFT;
    model.layers[32].kv_heads = 4;
    model.layers[32].head_dim = 128;
    layout = layout_of(&model, &grid, 0);
    group = &layout->groups[0];
    assert_int_equal(layout->draft_layers, 1);
    assert_int_equal(layout->pool_count, 1);
    assert_int_equal(group->view_count, 2);
    assert_int_equal(group->views[0].owner, KVF_OWNER_TARGET);
    assert_int_equal(group->views[0].heads, 4);
    assert_int_equal(group->views[1].owner, KVF_OWNER_DRAFT);
    assert_int_equal(group->views[1].heads, 2);
    assert_int_equal(group->views[1].entries[0].offset, 32 * 32768);
    pages_layout_close(kvf_heap_system(), layout);
}

/* With per-rank counts H = 8 and H = 4 would be one bucket at tp 8 and two at tp 4. */
static void layers_are_cut_by_model_wide_heads_at_every_width(void **state)
{
    struct geo_make_model model;

    (void)state;
    geo_make_model(&model, 4, 8, 64, 32);
    model.layers[1].kv_heads = model.layers[3].kv_heads = 4;
    for (uint32_t tp = 1; tp <= 8; tp *= 2) {
        struct geo_make_grid grid = geo_make_grid(tp, 0, 4);
        struct kvf_layout *layout = layout_of(&model, &grid, 0);

        assert_int_equal(layout->groups[0].view_count, 2);
        assert_int_equal(layout->groups[0].views[0].heads_total, 8);
        assert_int_equal(layout->groups[0].views[1].heads_total, 4);
        pages_layout_close(kvf_heap_system(), layout);
    }
}

static void k_only_layers_have_a_view_of_their_own(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(2, 0, 4);
    struct kvf_layout *layout;

    (void)state;
    geo_make_model(&model, 4, 8, 128, 32);
    model.layers[1].k_only = model.layers[3].k_only = true;
    layout = layout_of(&model, &grid, 0);
    assert_int_equal(layout->pool_count, 1);
    assert_int_equal(layout->groups[0].view_count, 2);
    assert_int_equal(layout->groups[0].views[0].role_count, 2);
    assert_int_equal(layout->groups[0].views[1].role_count, 1);
    assert_int_equal(layout->groups[0].views[1].entries[1].layer, 3);
    pages_layout_close(kvf_heap_system(), layout);
}

static void scales_of_fp4_are_a_view_split_like_keys(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(2, 0, 2);
    struct kvf_layout *layout;
    const struct kvf_view *scales;

    (void)state;
    geo_make_model(&model, 2, 8, 128, 32);
    for (uint32_t l = 0; l < 2; l++) {
        model.layers[l].dtype = KVF_DTYPE_FP4_E2M1;
        model.layers[l].elem_bits = 4;
        model.layers[l].scale_per = 16;
        model.layers[l].scale_bits = 8;
    }
    layout = layout_of(&model, &grid, 1);
    assert_int_equal(layout->groups[0].view_count, 2);
    assert_int_equal(layout->groups[0].views[0].entries[0].size, 4 * 32 * 64);
    scales = &layout->groups[0].views[1];
    assert_int_equal(scales->roles[0], KVF_KEY_SCALE);
    assert_int_equal(scales->heads, 4);
    assert_int_equal(scales->entries[0].size, 4 * 32 * 8);
    pages_layout_close(kvf_heap_system(), layout);
}

static void each_window_has_a_group_in_the_order_of_its_first_layer(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(1, 0, 5);
    struct kvf_layout *layout;

    (void)state;
    geo_make_model(&model, 5, 8, 128, 16);
    model.layers[0].window = model.layers[3].window = 64;
    model.layers[2].kv_heads = 0;
    model.layers[2].state_units = 16;
    model.layers[2].state_unit_bytes = 4096;
    layout = layout_of(&model, &grid, 0);
    assert_int_equal(layout->group_count, 3);
    assert_int_equal(layout->groups[0].window, 64);
    assert_int_equal(layout->groups[0].layer_count, 2);
    assert_int_equal(layout->groups[1].window, KVF_WINDOW_NONE);
    assert_int_equal(layout->groups[1].layers[1], 4);
    assert_int_equal(layout->groups[2].group_class, KVF_GROUP_STATE);
    assert_int_equal(layout->groups[2].layers[0], 2);
    assert_true(layout->pools[layout->groups[2].views[0].pool].is_state);
    pages_layout_close(kvf_heap_system(), layout);
}

static void states_split_over_the_ranks(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(4, 0, 4);
    struct kvf_layout *layout;
    const struct kvf_group *group;

    (void)state;
    geo_make_model(&model, 4, 4, 128, 32);
    for (uint32_t l = 1; l <= 2; l++) {
        model.layers[l] = (struct kvf_model_layer){.state_units = 16,
                                                   .state_unit_bytes = 4096,
                                                   .section_count = 3,
                                                   .section_bytes = {512, 512, 2048}};
    }
    layout = layout_of(&model, &grid, 3);
    assert_int_equal(layout->group_count, 2);
    group = &layout->groups[1];
    assert_int_equal(group->views[0].kind, KVF_VIEW_SECTIONS);
    assert_int_equal(group->views[0].section_bytes[2], 512);
    assert_int_equal(group->views[0].entries[1].offset, 768);
    assert_int_equal(group->views[1].kind, KVF_VIEW_UNITS);
    assert_int_equal(group->views[1].entries[0].size, 4 * 4096);
    pages_layout_close(kvf_heap_system(), layout);
}

static void a_stage_has_its_own_layers_alone(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = {.tp = 1, .pp = 3, .layers = {3, 0, 2}};
    struct kvf_layout *layout;

    (void)state;
    geo_make_model(&model, 5, 8, 64, 16);
    layout = layout_of(&model, &grid, 2);
    assert_int_equal(layout->groups[0].layers[0], 3);
    assert_int_equal(layout->groups[0].layer_count, 2);
    pages_layout_close(kvf_heap_system(), layout);
    layout = layout_of(&model, &grid, 1);
    assert_int_equal(layout->group_count, 0);
    assert_int_equal(layout->pool_count, 0);
    assert_int_equal(layout->kv_heads, 0);
    assert_int_equal(layout->head_dim, 64);
    pages_layout_close(kvf_heap_system(), layout);
}

static void layers_without_heads_have_no_buffers_and_do_not_count(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(2, 0, 4);
    struct kvf_layout *layout;

    (void)state;
    geo_make_model(&model, 4, 8, 128, 32);
    model.layers[0].kv_heads = 0;
    layout = layout_of(&model, &grid, 0);
    assert_int_equal(layout->kv_heads, 4);
    assert_int_equal(layout->groups[0].view_count, 1);
    assert_int_equal(layout->groups[0].views[0].entry_count, 6);
    assert_int_equal(layout->groups[0].views[0].heads_total, 8);
    pages_layout_close(kvf_heap_system(), layout);
}

static void heads_that_do_not_divide_are_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(8, 0, 4);

    (void)state;
    geo_make_model(&model, 4, 12, 128, 32);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_TP_HEADS);
    geo_make_model(&model, 4, 3, 128, 32);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_TP_HEADS);
    geo_make_model(&model, 4, 2, 128, 32);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_OK);
}

static void groups_that_do_not_divide_tp_are_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(4, 3, 4);

    (void)state;
    geo_make_model(&model, 4, 12, 128, 32);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_DP_SHAPE);
}

static void two_head_counts_in_one_whole_view_are_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(1, 0, 4);

    (void)state;
    geo_make_model(&model, 4, 8, 64, 32);
    model.layers[1].kv_heads = model.layers[3].kv_heads = 4;
    model.layers[1].head_dim = model.layers[3].head_dim = 128;
    assert_int_equal(refusal(&model, &grid, PAGES_WHOLE), KVF_E_VIEW_MIXED_HEADS);
    assert_int_equal(refusal(&model, &grid, PAGES_LEGACY), KVF_OK);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_OK);
}

static void states_that_do_not_divide_are_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(4, 0, 1);

    (void)state;
    geo_make_model(&model, 1, 0, 1, 32);
    model.layers[0].state_units = 6;
    model.layers[0].state_unit_bytes = 8;
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_STATE_UNIT);
    model.layers[0].state_units = 8;
    model.layers[0].section_count = 1;
    model.layers[0].section_bytes[0] = 6;
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_STATE_SECTIONS);
}

static void contradictions_of_a_model_are_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(1, 0, 3);
    struct geo_make_grid short_grid = {.tp = 1, .pp = 2, .layers = {2, 0}};

    (void)state;
    geo_make_model(&model, 3, 8, 128, 32);
    assert_int_equal(refusal(&model, &short_grid, PAGES_PARTITIONED), KVF_E_INVAL);
    model.layers[0].owner = KVF_OWNER_DRAFT;
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_INVAL);
    geo_make_model(&model, 3, 8, 128, 32);
    model.layers[2].elem_bits = 8;
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_INVAL);
    geo_make_model(&model, 3, 1, 3, 1);
    for (uint32_t l = 0; l < 3; l++) {
        model.layers[l].dtype = KVF_DTYPE_FP4_E2M1;
        model.layers[l].elem_bits = 4;
    }
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_INVAL); /* 1.5 bytes */
    geo_make_model(&model, 3, 8, 128, 32);
    model.layers[2].owner = KVF_OWNER_DRAFT;
    short_grid = (struct geo_make_grid){.tp = 1, .pp = 2, .layers = {3, 0}};
    assert_int_equal(refusal(&model, &short_grid, PAGES_PARTITIONED), KVF_E_INVAL);
    geo_make_model(&model, 3, 2, 128, 32);
    model.model.mla = true;
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_INVAL);
    geo_make_model(&model, 3, 8, 128, 0);
    assert_int_equal(refusal(&model, &grid, PAGES_PARTITIONED), KVF_E_INVAL);
}

static void context_parallelism_is_refused(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(1, 0, 2);
    struct kvf_place place = geo_make_place(&grid, 0);
    struct kvf_layout *layout = NULL;
    char text[128];

    (void)state;
    geo_make_model(&model, 2, 8, 128, 32);
    place.cp_size = 2;
    assert_int_equal(kvf_layout_from_model(&model.model, &place, &layout, text, sizeof(text)),
                     KVF_E_CP);
    place.cp_size = 1;
    assert_int_equal(kvf_layout_from_model(&model.model, &place, &layout, NULL, 0), KVF_OK);
    kvf_layout_free(layout);
    kvf_layout_free(NULL);
}

static void open_survives_each_failing_allocation(void **state)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(2, 0, 4);
    struct kvf_place place = geo_make_place(&grid, 0);
    struct pages_params params = {.model = &model.model, .place = &place};
    struct kvf_layout *layout = NULL;
    struct fail_heap heap;
    uint64_t failures = 0;

    (void)state;
    geo_make_model(&model, 4, 8, 128, 32);
    for (uint64_t n = 1;; n++) {
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = pages_layout_open(&heap.heap, &params, &layout, NULL, 0);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        fail_heap_fini(&heap);
        failures++;
    }
    assert_int_equal(failures, 2);
    pages_layout_close(&heap.heap, layout);
    fail_heap_fini(&heap);
}

static void element_types_have_their_bits(void **state)
{
    (void)state;
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_NONE), 0);
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_BF16), 16);
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_FP16), 16);
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_FP8_E4M3), 8);
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_FP4_E2M1), 4);
    assert_int_equal(kvf_dtype_bits(KVF_DTYPE_F32), 32);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_values_share_one_pool_layer_major),
        cmocka_unit_test(buffers_of_other_sizes_get_their_own_pool),
        cmocka_unit_test(target_and_draft_of_one_size_share_a_pool_in_two_views),
        cmocka_unit_test(layers_are_cut_by_model_wide_heads_at_every_width),
        cmocka_unit_test(k_only_layers_have_a_view_of_their_own),
        cmocka_unit_test(scales_of_fp4_are_a_view_split_like_keys),
        cmocka_unit_test(each_window_has_a_group_in_the_order_of_its_first_layer),
        cmocka_unit_test(states_split_over_the_ranks),
        cmocka_unit_test(a_stage_has_its_own_layers_alone),
        cmocka_unit_test(layers_without_heads_have_no_buffers_and_do_not_count),
        cmocka_unit_test(heads_that_do_not_divide_are_refused),
        cmocka_unit_test(groups_that_do_not_divide_tp_are_refused),
        cmocka_unit_test(two_head_counts_in_one_whole_view_are_refused),
        cmocka_unit_test(states_that_do_not_divide_are_refused),
        cmocka_unit_test(contradictions_of_a_model_are_refused),
        cmocka_unit_test(context_parallelism_is_refused),
        cmocka_unit_test(open_survives_each_failing_allocation),
        cmocka_unit_test(element_types_have_their_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
