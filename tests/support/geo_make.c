/* geo_make.c - see geo_make.h. */
#include "geo_make.h"

#include <stdio.h>
#include <string.h>

void geo_make_model(struct geo_make_model *to, uint32_t count, uint32_t heads, uint32_t dim,
                    uint32_t tokens)
{
    assert_true(count <= GEO_MAKE_LAYERS_MAX);
    memset(to, 0, sizeof(*to));
    to->model = (struct kvf_model){.layer_count = count,
                                   .layers = to->layers,
                                   .tokens_per_block = tokens,
                                   .aux_bytes = to->aux_bytes};
    for (uint32_t l = 0; l < count; l++) {
        to->layers[l] = (struct kvf_model_layer){
            .kv_heads = heads, .head_dim = dim, .dtype = KVF_DTYPE_BF16, .elem_bits = 16};
    }
}

void geo_make_copy(const struct geo_make_model *from, struct geo_make_model *to)
{
    *to = *from;
    to->model.layers = to->layers;
    to->model.aux_bytes = to->aux_bytes;
}

struct geo_make_grid geo_make_grid(uint32_t tp, uint32_t dp, uint32_t layers)
{
    return (struct geo_make_grid){.tp = tp, .dp = dp, .pp = 1, .layers = {layers}};
}

struct kvf_place geo_make_place(const struct geo_make_grid *grid, uint32_t rank)
{
    uint32_t dp = grid->dp == 0 ? 1 : grid->dp;
    uint32_t tp_rank = rank % grid->tp;

    return (struct kvf_place){.tp_size = grid->tp,
                              .tp_rank = tp_rank,
                              .pp_size = grid->pp,
                              .pp_rank = rank / grid->tp,
                              .cp_size = 1,
                              .attention_dp = grid->dp != 0,
                              .dp_size = dp,
                              .dp_rank = grid->tp % dp == 0 ? tp_rank / (grid->tp / dp) : 0,
                              .layers_per_pp = grid->layers};
}

enum kvf_status geo_make_layout(const struct geo_make_params *params, uint32_t rank,
                                struct kvf_layout **layout_out, char *text, size_t text_bytes)
{
    struct kvf_place place = geo_make_place(params->grid, rank);
    struct pages_params pages = {
        .model = &params->model->model, .place = &place, .form = params->form};

    return pages_layout_open(kvf_heap_system(), &pages, layout_out, text, text_bytes);
}

struct geo_record *geo_make_record(const struct geo_make_params *params, uint32_t rank)
{
    const uint64_t tib = UINT64_C(1) << 40;
    struct geo_pool pools[GEO_POOLS_MAX];
    struct geo_aux aux[4];
    struct geo_record facts = {.wire_version = GEO_WIRE_VERSION,
                               .instance = params->side,
                               .side = params->side,
                               .rank = rank,
                               .place = geo_make_place(params->grid, rank),
                               .pools = pools,
                               .aux = aux};
    uint64_t base = (params->side * UINT64_C(4096) + rank + 1) * tib;
    struct kvf_layout *layout = NULL;
    struct geo_record *record = NULL;
    char text[256] = "";

    if (geo_make_layout(params, rank, &layout, text, sizeof(text)) != KVF_OK) {
        fail_msg("no layout: %s", text);
    }
    facts.layout = *layout;
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        pools[p] = (struct geo_pool){.base = base,
                                     .bytes = params->slots * layout->pools[p].slot_stride,
                                     .slots = params->slots};
        base += pools[p].bytes + 4096;
    }
    for (uint32_t a = 0; a < layout->aux_count; a++) {
        aux[a] = (struct geo_aux){.base = base, .item_bytes = layout->aux_bytes[a], .slots = 4};
        base += 4096;
    }
    facts.bounce = (struct geo_bounce){.enabled = true,
                                       .wire_version = 1,
                                       .arena_bytes = 256u << 20,
                                       .granularity_bytes = 1u << 20,
                                       .max_chunk_bytes = 32u << 20,
                                       .min_descriptor_count = 1024,
                                       .max_average_bytes = 16384,
                                       .request_timeout_ms = 30000};
    snprintf(facts.instance_name, sizeof(facts.instance_name), "%s",
             params->side == GEO_CONTEXT ? "ctx" : "gen");
    assert_int_equal(geo_record_open(kvf_heap_system(), &facts, &record), KVF_OK);
    pages_layout_close(kvf_heap_system(), layout);
    return record;
}

struct kvf_group *geo_edit_group(struct geo_record *record, uint32_t group)
{
    return (struct kvf_group *)&record->layout.groups[group];
}

struct kvf_view *geo_edit_view(struct geo_record *record, uint32_t group, uint32_t view)
{
    return (struct kvf_view *)&record->layout.groups[group].views[view];
}

struct kvf_entry *geo_edit_entry(struct geo_record *record, uint32_t group, uint32_t view,
                                 uint32_t entry)
{
    return (struct kvf_entry *)&record->layout.groups[group].views[view].entries[entry];
}

struct geo_pool *geo_edit_pool(struct geo_record *record, uint32_t pool)
{
    return (struct geo_pool *)&record->pools[pool];
}

struct kvf_pool_shape *geo_edit_shape(struct geo_record *record, uint32_t pool)
{
    return (struct kvf_pool_shape *)&record->layout.pools[pool];
}

void geo_assert_totals_equal(const struct plan_totals *got, const struct plan_totals *want)
{
    assert_int_equal(got->fragments, want->fragments);
    assert_int_equal(got->bytes, want->bytes);
    assert_int_equal(got->largest_bytes, want->largest_bytes);
    assert_int_equal(got->blocks, want->blocks);
}
