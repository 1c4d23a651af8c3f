/* geometry_json_write.c - writes a geometry dump. See geometry_json.h. */
#include "geometry_json.h"

#include "layout_json.h"

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *memory_name(enum geo_memory memory)
{
    return json_string(memory == GEO_CUDA ? "device" : "host");
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

json_t *geometry_record_write(const struct geo_record *record)
{
    json_t *json =
        layout_json_record(record->instance_name, record->rank, &record->place, &record->layout);

    json_object_set_new(json, "pools", write_pools(record));
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

static json_t *write_request(const struct geometry_dump *dump)
{
    json_t *json = json_object();
    json_t *src = json_object();
    json_t *src_state = json_object();
    json_t *dst = json_object();
    json_t *dst_state = json_object();
    json_t *pieces = json_array();

    for (uint32_t r = 0; r < dump->sender_count; r++) {
        layout_json_lists(src, src_state, dump->senders[r]->rank, &dump->senders[r]->layout,
                          dump->src[r].lists);
    }
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        layout_json_lists(dst, dst_state, dump->receivers[r]->rank, &dump->receivers[r]->layout,
                          dump->dst[r].lists);
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
