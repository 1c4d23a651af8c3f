/* geometry_json_write.c - writes a geometry dump. See geometry_json.h. */
#include <stdio.h>

#include "geometry_json.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *number_or_null(bool there, uint64_t value)
{
    return there ? number(value) : json_null();
}

static json_t *list_u32(const uint32_t *values, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(array, number(values[i]));
    }
    return array;
}

static json_t *memory_name(enum geo_memory memory)
{
    return json_string(memory == GEO_CUDA ? "device" : "host");
}

static json_t *write_view(const struct kvf_view *view)
{
    json_t *json = json_object();
    json_t *roles = json_array();
    json_t *sections = view->section_count > 0 ? json_array() : json_null();
    json_t *entries = json_array();

    for (uint32_t r = 0; r < view->role_count; r++) {
        json_array_append_new(roles, json_string(geo_role_name(view->roles[r])));
    }
    for (uint32_t s = 0; s < view->section_count; s++) {
        json_array_append_new(sections, number(view->section_bytes[s]));
    }
    for (uint32_t e = 0; e < view->entry_count; e++) {
        const struct kvf_entry *entry = &view->entries[e];
        json_t *one = json_array();

        json_array_append_new(one, number(entry->layer));
        json_array_append_new(one, json_string(geo_role_name(entry->role)));
        json_array_append_new(one, number(entry->offset));
        json_array_append_new(one, number(entry->size));
        json_array_append_new(entries, one);
    }
    json_object_set_new(json, "pool", number(view->pool));
    json_object_set_new(json, "kind", json_string(geo_kind_name(view->kind)));
    json_object_set_new(json, "heads", number_or_null(view->has_heads, view->heads));
    json_object_set_new(json, "heads_total",
                        number_or_null(view->has_heads_total, view->heads_total));
    json_object_set_new(json, "roles", roles);
    json_object_set_new(json, "owner", json_string(geo_owner_name(view->owner)));
    if (view->dtype != KVF_DTYPE_NONE) {
        json_object_set_new(json, "dtype", json_string(geo_dtype_name(view->dtype)));
    }
    json_object_set_new(json, "unit", number_or_null(view->unit_bytes > 0, view->unit_bytes));
    json_object_set_new(json, "sections", sections);
    json_object_set_new(json, "entries", entries);
    return json;
}

static json_t *write_groups(const struct kvf_layout *layout)
{
    json_t *groups = json_array();

    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_group *group = &layout->groups[g];
        json_t *json = json_object();
        json_t *views = json_array();

        for (uint32_t v = 0; v < group->view_count; v++) {
            json_array_append_new(views, write_view(&group->views[v]));
        }
        json_object_set_new(json, "state", json_boolean(group->group_class == KVF_GROUP_STATE));
        json_object_set_new(json, "window",
                            number_or_null(group->window != KVF_WINDOW_NONE, group->window));
        json_object_set_new(json, "layers", list_u32(group->layers, group->layer_count));
        json_object_set_new(json, "views", views);
        json_array_append_new(groups, json);
    }
    return groups;
}

static json_t *write_pools(const struct geo_record *record)
{
    json_t *pools = json_array();

    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        json_t *json = json_object();

        json_object_set_new(json, "base", number(record->pools[p].base));
        json_object_set_new(json, "slot_bytes", number(record->layout.pools[p].slot_bytes));
        json_object_set_new(json, "stride", number(record->layout.pools[p].slot_stride));
        json_object_set_new(json, "slots", number(record->pools[p].slots));
        json_object_set_new(json, "bytes", number(record->pools[p].bytes));
        json_object_set_new(json, "memory", memory_name(record->pools[p].memory));
        json_array_append_new(pools, json);
    }
    return pools;
}

static json_t *write_aux(const struct geo_record *record)
{
    json_t *aux = json_array();

    for (uint32_t a = 0; a < record->layout.aux_count; a++) {
        json_t *json = json_object();

        json_object_set_new(json, "base", number(record->aux[a].base));
        json_object_set_new(json, "item", number(record->aux[a].item_bytes));
        json_object_set_new(json, "slots", number(record->aux[a].slots));
        json_array_append_new(aux, json);
    }
    return aux;
}

static json_t *write_bounce(const struct geo_bounce *bounce)
{
    json_t *json = json_object();

    json_object_set_new(json, "enabled", json_boolean(bounce->enabled));
    json_object_set_new(json, "arena_bytes", number(bounce->arena_bytes));
    json_object_set_new(json, "granularity", number(bounce->granularity_bytes));
    json_object_set_new(json, "max_chunk", number(bounce->max_chunk_bytes));
    json_object_set_new(json, "min_descriptor_count", number(bounce->min_descriptor_count));
    json_object_set_new(json, "max_average_descriptor_size", number(bounce->max_average_bytes));
    json_object_set_new(json, "request_timeout_ms", number(bounce->request_timeout_ms));
    json_object_set_new(json, "wire_version", number(bounce->wire_version));
    json_object_set_new(json, "memory", memory_name(bounce->memory));
    return json;
}

static void write_place(json_t *json, const struct kvf_place *place)
{
    json_object_set_new(json, "tp_size", number(place->tp_size));
    json_object_set_new(json, "tp_rank", number(place->tp_rank));
    json_object_set_new(json, "pp_size", number(place->pp_size));
    json_object_set_new(json, "pp_rank", number(place->pp_rank));
    json_object_set_new(json, "cp_size", number(place->cp_size));
    json_object_set_new(json, "cp_rank", number(place->cp_rank));
    json_object_set_new(json, "adp", json_boolean(place->attention_dp));
    json_object_set_new(json, "dp_size", number(place->dp_size));
    json_object_set_new(json, "dp_rank", number(place->dp_rank));
    json_object_set_new(json, "layers_per_pp", list_u32(place->layers_per_pp, place->pp_size));
}

json_t *geometry_record_write(const struct geo_record *record)
{
    const struct kvf_layout *layout = &record->layout;
    json_t *json = json_object();

    json_object_set_new(json, "instance", json_string(record->instance_name));
    json_object_set_new(json, "rank", number(record->rank));
    write_place(json, &record->place);
    json_object_set_new(json, "draft_layers", number(layout->draft_layers));
    json_object_set_new(json, "tokens_per_block", number(layout->tokens_per_block));
    json_object_set_new(json, "kv_heads", number(layout->kv_heads));
    json_object_set_new(json, "head_dim", number(layout->head_dim));
    json_object_set_new(json, "dtype", json_string(geo_dtype_name(layout->dtype)));
    json_object_set_new(json, "elem_bits", number(layout->elem_bits));
    json_object_set_new(json, "mla", json_boolean(layout->mla));
    if (layout->ownership_bridge) {
        json_object_set_new(json, "ownership_bridge", json_true());
    }
    json_object_set_new(json, "pools", write_pools(record));
    json_object_set_new(json, "groups", write_groups(layout));
    json_object_set_new(json, "aux", write_aux(record));
    json_object_set_new(json, "wire_version", number(record->wire_version));
    json_object_set_new(json, "bounce", write_bounce(&record->bounce));
    return json;
}

static json_t *write_side(struct geo_record *const *records, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t r = 0; r < count; r++) {
        json_array_append_new(array, geometry_record_write(records[r]));
    }
    return array;
}

static void write_lists(json_t *paged, json_t *state, const struct geo_record *record,
                        const struct geometry_lists *lists)
{
    for (uint32_t g = 0; g < lists->count; g++) {
        const struct kvf_block_list *list = &lists->lists[g];
        char key[32];

        snprintf(key, sizeof(key), "%u:%u", record->rank, g);
        if (record->layout.groups[g].group_class == KVF_GROUP_PAGED) {
            json_t *one = json_object();

            json_object_set_new(one, "first", number(list->first));
            json_object_set_new(one, "slots", list_u32(list->slots, list->count));
            json_object_set_new(paged, key, one);
        } else if (list->count > 0) {
            json_object_set_new(state, key, number(list->slots[0]));
        }
    }
}

static json_t *write_request(const struct geometry_dump *dump)
{
    json_t *json = json_object();
    json_t *src = json_object();
    json_t *src_state = json_object();
    json_t *dst = json_object();
    json_t *dst_state = json_object();
    json_t *pieces = json_array();

    for (uint32_t r = 0; r < dump->sender_count; r++) {
        write_lists(src, src_state, dump->senders[r], &dump->src[r]);
    }
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        write_lists(dst, dst_state, dump->receivers[r], &dump->dst[r]);
    }
    for (uint32_t p = 0; p < dump->piece_count; p++) {
        json_array_append_new(pieces, json_pack("[I,I]", (json_int_t)dump->pieces[p].token_first,
                                                (json_int_t)dump->pieces[p].token_end));
    }
    json_object_set_new(json, "prompt_len", number(dump->prompt_tokens));
    json_object_set_new(json, "cached", number(dump->cached_tokens));
    json_object_set_new(json, "sender_dp", number(dump->sender_group));
    json_object_set_new(json, "dp_known", json_boolean(dump->group_known));
    json_object_set_new(json, "receiver", number(dump->receiver));
    json_object_set_new(json, "pieces", pieces);
    if (dump->src_aux_slot != PLAN_NO_SLOT) {
        json_object_set_new(json, "aux_src", number(dump->src_aux_slot));
    }
    if (dump->dst_aux_slot != PLAN_NO_SLOT) {
        json_object_set_new(json, "aux_dst", number(dump->dst_aux_slot));
    }
    json_object_set_new(json, "src", src);
    json_object_set_new(json, "src_state", src_state);
    json_object_set_new(json, "dst", dst);
    json_object_set_new(json, "dst_state", dst_state);
    return json;
}

json_t *geometry_dump_write(const struct geometry_dump *dump)
{
    json_t *json = json_object();

    json_object_set_new(json, "senders", write_side(dump->senders, dump->sender_count));
    json_object_set_new(json, "receivers", write_side(dump->receivers, dump->receiver_count));
    json_object_set_new(json, "request", write_request(dump));
    return json;
}
