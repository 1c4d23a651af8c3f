/*
 * geometry_encode.c - writes the wire form of a record (geometry_wire.h). May not do I/O.
 */
#include <string.h>

#include "geometry_internal.h"
#include "geometry_wire.h"

static void put_identity(struct wire_writer *writer, const struct geo_record *record)
{
    size_t name_bytes = strnlen(record->instance_name, GEO_NAME_MAX);
    size_t begin = wire_put_field_begin(writer, TAG_IDENTITY);

    wire_put_u32(writer, record->instance);
    wire_put_u8(writer, (uint8_t)record->side);
    wire_put_u32(writer, record->rank);
    wire_put_u8(writer, (uint8_t)name_bytes);
    wire_put_bytes(writer, record->instance_name, name_bytes);
    wire_put_field_end(writer, begin);
}

static void put_counts(struct wire_writer *writer, const struct geo_record *record)
{
    const struct kvf_layout *layout = &record->layout;
    struct geo_wire_counts counts = {.stages = record->place.pp_size,
                                     .pools = layout->pool_count,
                                     .aux = layout->aux_count,
                                     .groups = layout->group_count};
    size_t begin = wire_put_field_begin(writer, TAG_COUNTS);

    for (uint32_t g = 0; g < layout->group_count; g++) {
        counts.layers += layout->groups[g].layer_count;
        counts.views += layout->groups[g].view_count;
        for (uint32_t v = 0; v < layout->groups[g].view_count; v++) {
            counts.entries += layout->groups[g].views[v].entry_count;
        }
    }
    wire_put_u32(writer, counts.stages);
    wire_put_u32(writer, counts.pools);
    wire_put_u32(writer, counts.aux);
    wire_put_u32(writer, counts.groups);
    wire_put_u32(writer, counts.layers);
    wire_put_u32(writer, counts.views);
    wire_put_u32(writer, counts.entries);
    wire_put_field_end(writer, begin);
}

static void put_place(struct wire_writer *writer, const struct kvf_place *place)
{
    size_t begin = wire_put_field_begin(writer, TAG_PLACE);

    wire_put_u32(writer, place->tp_size);
    wire_put_u32(writer, place->tp_rank);
    wire_put_u32(writer, place->pp_rank);
    wire_put_u32(writer, place->cp_size);
    wire_put_u32(writer, place->cp_rank);
    wire_put_u8(writer, place->attention_dp);
    wire_put_u32(writer, place->dp_size);
    wire_put_u32(writer, place->dp_rank);
    for (uint32_t p = 0; p < place->pp_size; p++) {
        wire_put_u32(writer, place->layers_per_pp[p]);
    }
    wire_put_field_end(writer, begin);
}

static void put_model(struct wire_writer *writer, const struct kvf_layout *layout)
{
    size_t begin = wire_put_field_begin(writer, TAG_MODEL);

    wire_put_u32(writer, layout->tokens_per_block);
    wire_put_u32(writer, layout->draft_layers);
    wire_put_u32(writer, layout->kv_heads);
    wire_put_u32(writer, layout->head_dim);
    wire_put_u8(writer, (uint8_t)layout->dtype);
    wire_put_u32(writer, layout->elem_bits);
    wire_put_u8(writer, layout->mla);
    wire_put_u8(writer, layout->ownership_bridge);
    wire_put_field_end(writer, begin);
}

static void put_pools(struct wire_writer *writer, const struct geo_record *record)
{
    size_t begin = wire_put_field_begin(writer, TAG_POOLS);

    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        const struct kvf_pool_shape *shape = &record->layout.pools[p];
        const struct geo_pool *pool = &record->pools[p];

        wire_put_u64(writer, pool->base);
        wire_put_u64(writer, pool->bytes);
        wire_put_u32(writer, pool->slots);
        wire_put_u8(writer, (uint8_t)pool->memory);
        wire_put_u64(writer, shape->slot_bytes);
        wire_put_u64(writer, shape->slot_stride);
        wire_put_u8(writer, shape->is_state);
        wire_put_u32(writer, shape->group);
    }
    wire_put_field_end(writer, begin);
    begin = wire_put_field_begin(writer, TAG_AUX);
    for (uint32_t a = 0; a < record->layout.aux_count; a++) {
        wire_put_u64(writer, record->aux[a].base);
        wire_put_u32(writer, record->aux[a].item_bytes);
        wire_put_u32(writer, record->aux[a].slots);
    }
    wire_put_field_end(writer, begin);
}

static void put_u32_field(struct wire_writer *writer, uint16_t tag, uint32_t value)
{
    size_t begin = wire_put_field_begin(writer, tag);

    wire_put_u32(writer, value);
    wire_put_field_end(writer, begin);
}

static void put_view_fields(struct wire_writer *writer, const struct kvf_view *view)
{
    size_t begin;

    if (view->has_heads) {
        put_u32_field(writer, TAG_VIEW_HEADS, view->heads);
    }
    if (view->has_heads_total) {
        put_u32_field(writer, TAG_VIEW_HEADS_TOTAL, view->heads_total);
    }
    if (view->dtype != KVF_DTYPE_NONE) {
        put_u32_field(writer, TAG_VIEW_DTYPE, view->dtype);
    }
    if (view->unit_bytes != 0) {
        begin = wire_put_field_begin(writer, TAG_VIEW_UNIT);
        wire_put_u64(writer, view->unit_bytes);
        wire_put_field_end(writer, begin);
    }
    if (view->section_count != 0) {
        begin = wire_put_field_begin(writer, TAG_VIEW_SECTIONS);
        for (uint32_t s = 0; s < view->section_count && s < KVF_VIEW_SECTIONS_MAX; s++) {
            wire_put_u64(writer, view->section_bytes[s]);
        }
        wire_put_field_end(writer, begin);
    }
}

static void put_view(struct wire_writer *writer, const struct kvf_view *view)
{
    size_t begin = wire_put_field_begin(writer, TAG_VIEW);

    wire_put_u32(writer, view->pool);
    wire_put_u8(writer, (uint8_t)view->kind);
    wire_put_u8(writer, (uint8_t)view->owner);
    wire_put_u8(writer, (uint8_t)view->role_count);
    for (uint32_t r = 0; r < view->role_count && r < KVF_VIEW_ROLES_MAX; r++) {
        wire_put_u8(writer, (uint8_t)view->roles[r]);
    }
    wire_put_u32(writer, view->entry_count);
    for (uint32_t e = 0; e < view->entry_count; e++) {
        wire_put_u32(writer, view->entries[e].layer);
        wire_put_u8(writer, (uint8_t)view->entries[e].role);
        wire_put_u64(writer, view->entries[e].offset);
        wire_put_u64(writer, view->entries[e].size);
    }
    put_view_fields(writer, view);
    wire_put_field_end(writer, begin);
}

static void put_group(struct wire_writer *writer, const struct kvf_group *group)
{
    size_t begin = wire_put_field_begin(writer, TAG_GROUP);

    wire_put_u8(writer, (uint8_t)group->group_class);
    wire_put_u32(writer, group->window);
    wire_put_u32(writer, group->layer_count);
    for (uint32_t l = 0; l < group->layer_count; l++) {
        wire_put_u32(writer, group->layers[l]);
    }
    wire_put_u32(writer, group->view_count);
    for (uint32_t v = 0; v < group->view_count; v++) {
        put_view(writer, &group->views[v]);
    }
    wire_put_field_end(writer, begin);
}

static void put_bounce(struct wire_writer *writer, const struct geo_bounce *bounce)
{
    size_t begin = wire_put_field_begin(writer, TAG_BOUNCE);

    wire_put_u32(writer, bounce->wire_version);
    wire_put_u64(writer, bounce->arena_bytes);
    wire_put_u64(writer, bounce->granularity_bytes);
    wire_put_u64(writer, bounce->max_chunk_bytes);
    wire_put_u32(writer, bounce->min_descriptor_count);
    wire_put_u64(writer, bounce->max_average_bytes);
    wire_put_u32(writer, bounce->request_timeout_ms);
    wire_put_u8(writer, (uint8_t)bounce->memory);
    wire_put_field_end(writer, begin);
}

enum kvf_status geo_record_encode(const struct geo_record *record, void *bytes, size_t bytes_max,
                                  size_t *len_out)
{
    struct wire_writer writer = wire_writer_count();
    bool counting = true;

    for (;;) {
        wire_put_u32(&writer, record->wire_version);
        wire_put_u32(&writer, counting ? 0 : (uint32_t)*len_out);
        put_counts(&writer, record);
        put_identity(&writer, record);
        put_place(&writer, &record->place);
        put_model(&writer, &record->layout);
        put_pools(&writer, record);
        for (uint32_t g = 0; g < record->layout.group_count; g++) {
            put_group(&writer, &record->layout.groups[g]);
        }
        if (record->bounce.enabled) {
            put_bounce(&writer, &record->bounce);
        }
        if (!counting) {
            KVF_ASSERT(!writer.failed && writer.len_bytes == *len_out);
            return KVF_OK;
        }
        *len_out = writer.len_bytes;
        if (writer.len_bytes > GEO_RECORD_BYTES_MAX ||
            (bytes_max != 0 && bytes_max < writer.len_bytes)) {
            return KVF_E_TOO_LARGE;
        }
        if (bytes_max == 0) {
            return KVF_OK;
        }
        writer = wire_writer_make(bytes, bytes_max);
        counting = false;
    }
}
