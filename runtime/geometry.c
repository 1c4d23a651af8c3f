/*
 * geometry.c - a rank's record, its grid, and which ranks meet (docs/geometry.md, sections 1, 2,
 * 5).
 * Checks are in geometry_check.c and geometry_peer.c, the wire form in geometry_wire.c. May not do
 * I/O or read a clock.
 */
#include "geometry.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "bump.h"
#include "geometry_internal.h"
#include "pages.h"

void geo_text_set(struct geo_text *text_out, const char *format, ...)
{
    va_list args;

    if (text_out == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text_out->s, sizeof(text_out->s), format, args);
    va_end(args);
}

const char *geo_role_name(uint32_t role)
{
    static const char *const names[KVF_ROLE_KIND_COUNT] = {"key",         "value",     "key_scale",
                                                           "value_scale", "index_key", "conv_state",
                                                           "ssm_state",   "side_state"};

    return role < KVF_ROLE_KIND_COUNT ? names[role] : "?";
}

const char *geo_kind_name(enum kvf_view_kind kind)
{
    switch (kind) {
    case KVF_VIEW_HND:
        return "HND";
    case KVF_VIEW_NHD:
        return "NHD";
    case KVF_VIEW_REPLICATED:
        return "REPLICATED";
    case KVF_VIEW_UNITS:
        return "UNITS";
    case KVF_VIEW_SECTIONS:
        return "SECTIONS";
    }
    return "?";
}

const char *geo_owner_name(enum kvf_owner owner)
{
    return owner == KVF_OWNER_DRAFT ? "draft" : "target";
}

const char *geo_dtype_name(enum kvf_dtype dtype)
{
    switch (dtype) {
    case KVF_DTYPE_NONE:
        return "none";
    case KVF_DTYPE_BF16:
        return "bf16";
    case KVF_DTYPE_FP16:
        return "fp16";
    case KVF_DTYPE_FP8_E4M3:
        return "fp8_e4m3";
    case KVF_DTYPE_FP4_E2M1:
        return "fp4_e2m1";
    case KVF_DTYPE_F32:
        return "f32";
    }
    return "?";
}

const char *geo_memory_name(enum geo_memory memory)
{
    return memory == GEO_CUDA ? "cuda" : "host";
}

/* Cuts a record's memory; with bump->base NULL it only counts and changes nothing. */
static void cut_record(struct bump *bump, const struct geo_record *facts, struct geo_record *to)
{
    uint32_t *stages = bump_take(bump, facts->place.pp_size, sizeof(*stages));
    struct geo_pool *pools = bump_take(bump, facts->layout.pool_count, sizeof(*pools));
    struct geo_aux *aux = bump_take(bump, facts->layout.aux_count, sizeof(*aux));
    void *layout = bump_take(bump, pages_layout_bytes(&facts->layout), 1);

    if (bump->base == NULL) {
        return;
    }
    memcpy(stages, facts->place.layers_per_pp, facts->place.pp_size * sizeof(*stages));
    if (facts->layout.pool_count > 0) {
        memcpy(pools, facts->pools, facts->layout.pool_count * sizeof(*pools));
    }
    if (facts->layout.aux_count > 0) {
        memcpy(aux, facts->aux, facts->layout.aux_count * sizeof(*aux));
    }
    pages_layout_copy(&facts->layout, layout, &to->layout);
    to->place.layers_per_pp = stages;
    to->pools = pools;
    to->aux = aux;
}

enum kvf_status geo_record_open(const struct kvf_heap *heap, const struct geo_record *facts,
                                struct geo_record **record_out)
{
    struct bump bump = {0};
    struct geo_record *record;
    enum kvf_status status = geo_check_counts(facts, NULL);

    if (status != KVF_OK) {
        return status;
    }
    bump_take(&bump, 1, sizeof(*record));
    cut_record(&bump, facts, NULL);
    record = kvf_alloc(heap, bump.used_bytes, 1);
    if (record == NULL) {
        return KVF_E_NOMEM;
    }
    *record = *facts;
    bump = (struct bump){.base = (unsigned char *)record};
    bump_take(&bump, 1, sizeof(*record));
    cut_record(&bump, facts, record);
    record->instance_name[GEO_NAME_MAX] = '\0';
    record->heap = heap;
    *record_out = record;
    return KVF_OK;
}

void geo_record_close(struct geo_record *record)
{
    if (record != NULL) {
        kvf_release(record->heap, record);
    }
}

uint32_t geo_group_width(const struct kvf_place *place)
{
    if (!place->attention_dp) {
        return place->tp_size;
    }
    if (place->dp_size == 0 || place->tp_size % place->dp_size != 0) {
        return 0;
    }
    return place->tp_size / place->dp_size;
}

uint32_t geo_group_index(const struct kvf_place *place)
{
    uint32_t width = geo_group_width(place);

    return width == 0 ? 0 : place->tp_rank % width;
}

uint32_t geo_rank_count(const struct kvf_place *grid)
{
    return grid->tp_size * grid->cp_size * grid->pp_size;
}

uint32_t geo_rank_dp(const struct kvf_place *grid, uint32_t rank)
{
    uint32_t width = geo_group_width(grid);

    return width == 0 ? 0 : rank % grid->tp_size / width;
}

void geo_stage_layers(const struct kvf_place *grid, uint32_t pp_rank, uint32_t *first_out,
                      uint32_t *end_out)
{
    uint32_t first = 0;

    for (uint32_t p = 0; p < pp_rank; p++) {
        first += grid->layers_per_pp[p];
    }
    *first_out = first;
    *end_out = first + grid->layers_per_pp[pp_rank];
}

void geo_heads_held(const struct kvf_place *place, uint32_t heads_total, uint32_t *first_out,
                    uint32_t *count_out)
{
    uint32_t width = geo_group_width(place);
    uint32_t index = geo_group_index(place);

    *first_out = 0;
    *count_out = 0;
    if (width == 0 || heads_total == 0) {
        return;
    }
    if (heads_total >= width && heads_total % width == 0) {
        *count_out = heads_total / width;
        *first_out = index * *count_out;
    } else if (heads_total < width && width % heads_total == 0) {
        *count_out = 1;
        *first_out = index / (width / heads_total);
    }
}

uint32_t geo_view_heads(const struct geo_record *record, const struct kvf_view *view)
{
    if (view->kind != KVF_VIEW_HND && view->kind != KVF_VIEW_NHD) {
        return 0;
    }
    return view->has_heads && view->heads > 0 ? view->heads : record->layout.kv_heads;
}

uint64_t geo_view_region(const struct kvf_view *view)
{
    uint64_t bytes = 0;

    for (uint32_t e = 0; e < view->role_count && e < view->entry_count; e++) {
        bytes += view->entries[e].size;
    }
    return bytes;
}

/*
 * TP indices [first_out, first_out + count_out) of dp group `group` that `self` meets on a stage.
 */
static void meet_indices(const struct kvf_place *self, uint32_t grid_width, uint32_t group,
                         uint32_t *first_out, uint32_t *count_out)
{
    uint32_t width = geo_group_width(self);
    uint32_t index = geo_group_index(self);

    if (width <= grid_width) {
        *count_out = grid_width / width;
        *first_out = group * grid_width + index * *count_out;
    } else {
        *count_out = 1;
        *first_out = group * grid_width + index / (width / grid_width);
    }
}

/* One dp group; ranks beyond ranks_max are counted only. Returns the whole count so far. */
static uint32_t meet_group(const struct kvf_place *self, const struct kvf_place *grid,
                           uint32_t group, uint32_t *ranks_out, uint32_t ranks_max)
{
    uint32_t self_first, self_end, index_first, index_count;
    uint32_t stage_first = 0;
    uint32_t count = 0;

    geo_stage_layers(self, self->pp_rank, &self_first, &self_end);
    meet_indices(self, geo_group_width(grid), group, &index_first, &index_count);
    for (uint32_t p = 0; p < grid->pp_size; p++) {
        uint32_t stage_end = stage_first + grid->layers_per_pp[p];
        bool meets = (self_first > stage_first ? self_first : stage_first) <
                     (self_end < stage_end ? self_end : stage_end);

        for (uint32_t i = 0; meets && i < index_count; i++) {
            if (count < ranks_max) {
                ranks_out[count] = p * (grid->tp_size * grid->cp_size) + index_first + i;
            }
            count++;
        }
        stage_first = stage_end;
    }
    return count;
}

enum kvf_status geo_meets(const struct kvf_place *self, const struct kvf_place *grid,
                          uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                          uint32_t *count_out)
{
    uint32_t width = geo_group_width(self);
    uint32_t grid_width = geo_group_width(grid);
    uint32_t groups = grid->attention_dp ? grid->dp_size : 1;
    uint32_t first = group == GEO_GROUP_UNKNOWN ? 0 : group;
    uint32_t end = group == GEO_GROUP_UNKNOWN ? groups : group + 1;
    uint32_t count = 0;

    if (width == 0 || grid_width == 0) {
        return KVF_E_DP_SHAPE;
    }
    if (width % grid_width != 0 && grid_width % width != 0) {
        return KVF_E_TP_RATIO;
    }
    if (end > groups) {
        return KVF_E_INVAL;
    }
    for (uint32_t g = first; g < end; g++) {
        uint32_t done = count < ranks_max ? count : ranks_max;

        count +=
            meet_group(self, grid, g, ranks_max == 0 ? NULL : ranks_out + done, ranks_max - done);
    }
    *count_out = count;
    return ranks_max > 0 && count > ranks_max ? KVF_E_TOO_LARGE : KVF_OK;
}

enum kvf_status geo_asked(const struct geo_record *reader, const struct kvf_place *writer_grid,
                          uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                          uint32_t *count_out)
{
    return geo_meets(&reader->place, writer_grid, group, ranks_out, ranks_max, count_out);
}

enum kvf_status geo_serves(const struct geo_record *writer, const struct kvf_place *reader_grid,
                           uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                           uint32_t *count_out)
{
    return geo_meets(&writer->place, reader_grid, group, ranks_out, ranks_max, count_out);
}

enum kvf_status geo_finals(const struct geo_record *reader, const struct kvf_place *writer_grid,
                           uint32_t *count_out)
{
    return geo_meets(&reader->place, writer_grid, 0, NULL, 0, count_out);
}

bool geo_is_asked(const struct kvf_place *reader, const struct kvf_place *writer)
{
    uint32_t width = geo_group_width(reader);
    uint32_t writer_width = geo_group_width(writer);
    uint32_t reader_first, reader_end, writer_first, writer_end, first, count;

    if (width == 0 || writer_width == 0 ||
        (width % writer_width != 0 && writer_width % width != 0) || writer->cp_rank != 0) {
        return false;
    }
    geo_stage_layers(reader, reader->pp_rank, &reader_first, &reader_end);
    geo_stage_layers(writer, writer->pp_rank, &writer_first, &writer_end);
    if ((reader_first > writer_first ? reader_first : writer_first) >=
        (reader_end < writer_end ? reader_end : writer_end)) {
        return false;
    }
    meet_indices(reader, writer_width, writer->tp_rank / writer_width, &first, &count);
    return writer->tp_rank >= first && writer->tp_rank - first < count;
}

uint64_t geo_bounce_arena(const struct geo_bounce *bounce)
{
    uint64_t usable = 1;

    if (!bounce->enabled || bounce->granularity_bytes == 0 ||
        bounce->granularity_bytes > bounce->arena_bytes) {
        return 0;
    }
    while (usable < bounce->granularity_bytes && usable <= UINT64_MAX / 2) {
        usable *= 2;
    }
    if (usable < bounce->granularity_bytes || usable > bounce->arena_bytes) {
        return 0;
    }
    while (usable <= bounce->arena_bytes / 2) {
        usable *= 2;
    }
    return usable;
}

uint64_t geo_bounce_chunk(const struct geo_bounce *bounce)
{
    uint64_t chunk = geo_bounce_arena(bounce);

    if (bounce->max_chunk_bytes < chunk) {
        chunk = bounce->max_chunk_bytes;
    }
    return chunk < UINT32_MAX ? chunk : UINT32_MAX;
}
