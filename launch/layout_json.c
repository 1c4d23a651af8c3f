/* layout_json.c - see layout_json.h. */
#include "layout_json.h"

#include <stdio.h>

const char *layout_json_role(uint32_t role)
{
    static const char *const names[KVF_ROLE_KIND_COUNT] = {
        "key",       "value",      "key_scale", "value_scale",
        "index_key", "conv_state", "ssm_state", "side_state",
    };

    return role < KVF_ROLE_KIND_COUNT ? names[role] : "?";
}

static const char *kind_name(enum kvf_view_kind kind)
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

static const char *dtype_name(enum kvf_dtype dtype)
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

/* ---- views ---------------------------------------------------------------------------------- */

static json_t *view_entries(const struct kvf_view *view)
{
    json_t *entries = json_array();

    for (uint32_t e = 0; e < view->entry_count; e++) {
        const struct kvf_entry *entry = &view->entries[e];
        json_t *one = json_array();

        json_array_append_new(one, number(entry->layer));
        json_array_append_new(one, json_string(layout_json_role(entry->role)));
        json_array_append_new(one, number(entry->offset));
        json_array_append_new(one, number(entry->size));
        json_array_append_new(entries, one);
    }
    return entries;
}

static json_t *view_json(const struct kvf_view *view)
{
    json_t *json = json_object();
    json_t *roles = json_array();
    json_t *sections = view->section_count > 0 ? json_array() : json_null();

    for (uint32_t r = 0; r < view->role_count; r++) {
        json_array_append_new(roles, json_string(layout_json_role(view->roles[r])));
    }
    for (uint32_t s = 0; s < view->section_count; s++) {
        json_array_append_new(sections, number(view->section_bytes[s]));
    }
    json_object_set_new(json, "pool", number(view->pool));
    json_object_set_new(json, "kind", json_string(kind_name(view->kind)));
    json_object_set_new(json, "heads", number_or_null(view->has_heads, view->heads));
    json_object_set_new(json, "heads_total",
                        number_or_null(view->has_heads_total, view->heads_total));
    json_object_set_new(json, "roles", roles);
    json_object_set_new(json, "owner",
                        json_string(view->owner == KVF_OWNER_DRAFT ? "draft" : "target"));
    if (view->dtype != KVF_DTYPE_NONE) {
        json_object_set_new(json, "dtype", json_string(dtype_name(view->dtype)));
    }
    json_object_set_new(json, "unit", number_or_null(view->unit_bytes > 0, view->unit_bytes));
    json_object_set_new(json, "sections", sections);
    json_object_set_new(json, "entries", view_entries(view));
    return json;
}

static json_t *groups_json(const struct kvf_layout *layout)
{
    json_t *groups = json_array();

    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_group *group = &layout->groups[g];
        json_t *json = json_object();
        json_t *views = json_array();

        for (uint32_t v = 0; v < group->view_count; v++) {
            json_array_append_new(views, view_json(&group->views[v]));
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

/* ---- records and lists ---------------------------------------------------------------------- */

static void place_json(json_t *json, const struct kvf_place *place)
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

json_t *layout_json_record(const char *instance, uint32_t rank, const struct kvf_place *place,
                           const struct kvf_layout *layout)
{
    json_t *json = json_object();

    json_object_set_new(json, "instance", json_string(instance));
    json_object_set_new(json, "rank", number(rank));
    place_json(json, place);
    json_object_set_new(json, "draft_layers", number(layout->draft_layers));
    json_object_set_new(json, "tokens_per_block", number(layout->tokens_per_block));
    json_object_set_new(json, "kv_heads", number(layout->kv_heads));
    json_object_set_new(json, "head_dim", number(layout->head_dim));
    json_object_set_new(json, "dtype", json_string(dtype_name(layout->dtype)));
    json_object_set_new(json, "elem_bits", number(layout->elem_bits));
    json_object_set_new(json, "mla", json_boolean(layout->mla));
    if (layout->ownership_bridge) {
        json_object_set_new(json, "ownership_bridge", json_true());
    }
    json_object_set_new(json, "groups", groups_json(layout));
    return json;
}

void layout_json_lists(json_t *paged, json_t *state, uint32_t rank, const struct kvf_layout *layout,
                       const struct kvf_block_list *lists)
{
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_block_list *list = &lists[g];
        char key[32];

        snprintf(key, sizeof(key), "%u:%u", rank, g);
        if (layout->groups[g].group_class == KVF_GROUP_PAGED) {
            json_t *one = json_object();

            json_object_set_new(one, "first", number(list->first));
            json_object_set_new(one, "slots", list_u32(list->slots, list->count));
            json_object_set_new(paged, key, one);
        } else if (list->count > 0) {
            json_object_set_new(state, key, number(list->slots[0]));
        }
    }
}
