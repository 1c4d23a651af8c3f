/*
 * geometry_check.c - what makes one rank unfit by itself (docs/geometry.md, section 7, second
 * table). Runs on own records and on decoded ones: any content gets a status. May not do I/O.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "geometry_internal.h"
#include "pages.h"

void geo_name_view(const struct geo_record *record, uint32_t group, uint32_t view,
                   struct geo_view_name *name_out)
{
    const struct kvf_view *which = &record->layout.groups[group].views[view];

    snprintf(
        name_out->s, sizeof(name_out->s), "%.63s/%u view(%u,%u) %s%s%s %s", record->instance_name,
        record->rank, group, view, geo_role_name(which->roles[0]), which->role_count > 1 ? "+" : "",
        which->role_count > 1 ? geo_role_name(which->roles[1]) : "", geo_kind_name(which->kind));
}

static enum kvf_status too_large(struct geo_text *text_out, const char *what, uint64_t count,
                                 uint64_t max)
{
    geo_text_set(text_out, "%" PRIu64 " %s, at most %" PRIu64, count, what, max);
    return KVF_E_TOO_LARGE;
}

static enum kvf_status check_group_counts(const struct kvf_layout *layout,
                                          struct geo_text *text_out)
{
    uint64_t layers = 0;
    uint64_t views = 0;
    uint64_t entries = 0;

    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_group *group = &layout->groups[g];

        layers += group->layer_count;
        views += group->view_count;
        if (layers > GEO_GROUP_LAYERS_MAX) {
            return too_large(text_out, "layers in groups", layers, GEO_GROUP_LAYERS_MAX);
        }
        if (views > GEO_VIEWS_MAX) {
            return too_large(text_out, "views", views, GEO_VIEWS_MAX);
        }
        for (uint32_t v = 0; v < group->view_count; v++) {
            entries += group->views[v].entry_count;
            if (entries > GEO_ENTRIES_MAX) {
                return too_large(text_out, "entries", entries, GEO_ENTRIES_MAX);
            }
        }
    }
    return KVF_OK;
}

enum kvf_status geo_check_counts(const struct geo_record *record, struct geo_text *text_out)
{
    const struct kvf_layout *layout = &record->layout;
    const struct kvf_place *place = &record->place;

    if (place->pp_size == 0 || place->layers_per_pp == NULL) {
        geo_text_set(text_out, "no pipeline stages");
        return KVF_E_INVAL;
    }
    if (place->pp_size > GEO_PP_MAX) {
        return too_large(text_out, "pp stages", place->pp_size, GEO_PP_MAX);
    }
    if (place->tp_size > GEO_TP_MAX) {
        return too_large(text_out, "tp ranks", place->tp_size, GEO_TP_MAX);
    }
    if (place->cp_size > GEO_TP_MAX) {
        return too_large(text_out, "cp ranks", place->cp_size, GEO_TP_MAX);
    }
    if (layout->pool_count > GEO_POOLS_MAX) {
        return too_large(text_out, "pools", layout->pool_count, GEO_POOLS_MAX);
    }
    if (layout->group_count > GEO_GROUPS_MAX) {
        return too_large(text_out, "layer groups", layout->group_count, GEO_GROUPS_MAX);
    }
    if (layout->aux_count > GEO_AUX_MAX) {
        return too_large(text_out, "auxiliary buffers", layout->aux_count, GEO_AUX_MAX);
    }
    if (layout->tokens_per_block > GEO_TOKENS_MAX) {
        return too_large(text_out, "tokens per block", layout->tokens_per_block, GEO_TOKENS_MAX);
    }
    if (layout->kv_heads > GEO_HEADS_MAX) {
        return too_large(text_out, "KV heads", layout->kv_heads, GEO_HEADS_MAX);
    }
    return check_group_counts(layout, text_out);
}

static enum kvf_status check_place(const struct geo_record *record, struct geo_text *text_out)
{
    const struct kvf_place *place = &record->place;
    uint64_t layers = 0;
    enum kvf_status status = pages_check_place(place, text_out == NULL ? NULL : text_out->s,
                                               text_out == NULL ? 0 : sizeof(text_out->s));

    if (status != KVF_OK) {
        return status;
    }
    if ((uint64_t)place->tp_size * place->cp_size * place->pp_size > UINT32_MAX) {
        geo_text_set(text_out, "tp %u x cp %u x pp %u ranks are too many", place->tp_size,
                     place->cp_size, place->pp_size);
        return KVF_E_TOO_LARGE;
    }
    if (record->rank != place->pp_rank * (place->tp_size * place->cp_size) +
                            place->cp_rank * place->tp_size + place->tp_rank) {
        geo_text_set(text_out, "rank %u is not at tp %u, cp %u, pp %u of its grid", record->rank,
                     place->tp_rank, place->cp_rank, place->pp_rank);
        return KVF_E_INVAL;
    }
    for (uint32_t p = 0; p < place->pp_size; p++) {
        layers += place->layers_per_pp[p];
    }
    if (layers > GEO_LAYERS_MAX) {
        return too_large(text_out, "layers", layers, GEO_LAYERS_MAX);
    }
    if (record->layout.layer_count != 0 && record->layout.layer_count != layers) {
        geo_text_set(text_out, "the pp stages hold %" PRIu64 " layers, the layout has %u", layers,
                     record->layout.layer_count);
        return KVF_E_INVAL;
    }
    if (record->layout.draft_layers > layers) {
        geo_text_set(text_out, "%u draft layers of %" PRIu64 " layers", record->layout.draft_layers,
                     layers);
        return KVF_E_INVAL;
    }
    if (record->layout.ownership_bridge && record->bounce.enabled) {
        geo_text_set(text_out, "an ownership bridge with a bounce of %" PRIu64 " bytes; want 0",
                     record->bounce.arena_bytes);
        return KVF_E_INVAL;
    }
    if (record->layout.tokens_per_block == 0) {
        geo_text_set(text_out, "0 tokens per block");
        return KVF_E_INVAL;
    }
    return KVF_OK;
}

static enum kvf_status check_pools(const struct geo_record *record, struct geo_text *text_out)
{
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        const struct kvf_pool_shape *shape = &record->layout.pools[p];
        const struct geo_pool *pool = &record->pools[p];

        if (shape->slot_bytes == 0 || shape->slot_stride < shape->slot_bytes ||
            shape->slot_stride > GEO_SIZE_MAX || pool->bytes > GEO_POOL_MAX ||
            pool->base > UINT64_MAX - GEO_POOL_MAX) {
            geo_text_set(text_out,
                         "pool %u: slots of %" PRIu64 " bytes every %" PRIu64 ", %" PRIu64
                         " bytes at %" PRIu64 ": impossible or outside the limits",
                         p, shape->slot_bytes, shape->slot_stride, pool->bytes, pool->base);
            return KVF_E_INVAL;
        }
    }
    for (uint32_t a = 0; a < record->layout.aux_count; a++) {
        const struct geo_aux *aux = &record->aux[a];

        if (aux->item_bytes != record->layout.aux_bytes[a] ||
            aux->base > UINT64_MAX - (uint64_t)aux->item_bytes * aux->slots) {
            geo_text_set(text_out, "auxiliary buffer %u: items of %u bytes, layout says %u", a,
                         aux->item_bytes, record->layout.aux_bytes[a]);
            return KVF_E_INVAL;
        }
    }
    return KVF_OK;
}

/* One view under check. */
struct subject {
    const struct geo_record *record;
    const struct kvf_group *group;
    const struct kvf_view *view;
    struct geo_view_name name;
    struct geo_text *text_out;
};

static enum kvf_status check_view_head(const struct subject *s)
{
    const struct kvf_view *view = s->view;
    bool ordered = view->role_count == 1 || view->roles[0] < view->roles[1];

    if (view->entry_count == 0) {
        geo_text_set(s->text_out, "view %s has no buffers", s->name.s);
        return KVF_E_VIEW_EMPTY;
    }
    if (!ordered || view->roles[view->role_count - 1] >= KVF_ROLE_KIND_COUNT) {
        geo_text_set(s->text_out, "view %s: its roles are not in role order", s->name.s);
        return KVF_E_VIEW_ROLE_ORDER;
    }
    if (view->pool >= s->record->layout.pool_count) {
        geo_text_set(s->text_out, "view %s names pool %u of %u", s->name.s, view->pool,
                     s->record->layout.pool_count);
        return KVF_E_VIEW_BOUNDS;
    }
    return KVF_OK;
}

static enum kvf_status check_entry_layers(const struct subject *s)
{
    uint8_t seen[GEO_LAYERS_MAX / 8] = {0};
    const struct kvf_view *view = s->view;

    for (uint32_t e = 0; e < view->entry_count; e++) {
        uint32_t layer = view->entries[e].layer;

        if (layer >= GEO_LAYERS_MAX || !pages_group_has(s->group, layer)) {
            geo_text_set(s->text_out, "layer %u is not in the group of view %s", layer, s->name.s);
            return KVF_E_LAYER_RANGE;
        }
        /* Where a layer begins it must be new: its buffers are one region. */
        if (e == 0 || view->entries[e - 1].layer != layer) {
            if (seen[layer / 8] & 1u << layer % 8) {
                geo_text_set(s->text_out, "view %s layer %u: buffers are not back to back",
                             s->name.s, layer);
                return KVF_E_VIEW_GAP;
            }
            seen[layer / 8] |= (uint8_t)(1u << layer % 8);
        }
    }
    return KVF_OK;
}

/* One region, its buffers and its place in the pool. `e` is its first entry. */
static enum kvf_status check_region(const struct subject *s, uint32_t e)
{
    const struct kvf_view *view = s->view;
    const struct kvf_entry *entries = &view->entries[e];
    uint32_t layer = entries[0].layer;
    uint32_t count = 1;

    while (e + count < view->entry_count && entries[count].layer == layer) {
        count++;
    }
    for (uint32_t r = 0; r < count && r < view->role_count; r++) {
        if (entries[r].role != view->roles[r]) {
            geo_text_set(s->text_out, "view %s layer %u: buffers are not in role order", s->name.s,
                         layer);
            return KVF_E_VIEW_ROLE_ORDER;
        }
    }
    if (count != view->role_count) {
        geo_text_set(s->text_out, "view %s layer %u: buffers are not %u but %u", s->name.s, layer,
                     view->role_count, count);
        return KVF_E_VIEW_ROLE_ORDER;
    }
    for (uint32_t r = 0; r < count; r++) {
        if (entries[r].size == 0 || entries[r].size > GEO_SIZE_MAX ||
            entries[r].offset > GEO_POOL_MAX) {
            geo_text_set(s->text_out, "view %s layer %u: %" PRIu64 " bytes at %" PRIu64, s->name.s,
                         layer, entries[r].size, entries[r].offset);
            return entries[r].size == 0 ? KVF_E_VIEW_EMPTY : KVF_E_VIEW_BOUNDS;
        }
        if (r > 0 && entries[r].offset != entries[r - 1].offset + entries[r - 1].size) {
            geo_text_set(s->text_out, "view %s layer %u: buffers are not back to back", s->name.s,
                         layer);
            return KVF_E_VIEW_GAP;
        }
        if (entries[r].size != view->entries[0].size) {
            geo_text_set(s->text_out, "view %s: layers %u and %u differ in size", s->name.s,
                         view->entries[0].layer, layer);
            return KVF_E_VIEW_NONUNIFORM;
        }
    }
    return KVF_OK;
}

static enum kvf_status check_bounds(const struct subject *s)
{
    const struct kvf_view *view = s->view;
    const struct kvf_pool_shape *shape = &s->record->layout.pools[view->pool];
    const struct geo_pool *pool = &s->record->pools[view->pool];
    uint64_t last; /* start of the last slot */

    if (pool->slots > 0 && shape->slot_stride > GEO_POOL_MAX / pool->slots) {
        geo_text_set(s->text_out, "pool %u: %u slots of %" PRIu64 " bytes are too large",
                     view->pool, pool->slots, shape->slot_stride);
        return KVF_E_VIEW_BOUNDS;
    }
    last = pool->slots == 0 ? 0 : (pool->slots - 1) * shape->slot_stride;
    for (uint32_t e = 0; e < view->entry_count; e++) {
        uint64_t end = last + view->entries[e].offset + view->entries[e].size;

        if (end > pool->bytes) {
            geo_text_set(s->text_out, "view %s layer %u ends %" PRIu64 " bytes past its pool",
                         s->name.s, view->entries[e].layer, end - pool->bytes);
            return KVF_E_VIEW_BOUNDS;
        }
        if (e > 0 &&
            view->entries[e].offset < view->entries[e - 1].offset + view->entries[e - 1].size) {
            geo_text_set(s->text_out, "view %s layer %u: buffers are not in order of offset",
                         s->name.s, view->entries[e].layer);
            return KVF_E_VIEW_GAP;
        }
    }
    return KVF_OK;
}

static enum kvf_status check_heads(const struct subject *s)
{
    const struct kvf_view *view = s->view;
    uint32_t width = geo_group_width(&s->record->place);
    uint32_t heads = geo_view_heads(s->record, view);
    uint32_t total = view->has_heads_total ? view->heads_total : 0;
    uint32_t first, held;

    if (view->kind != KVF_VIEW_HND && view->kind != KVF_VIEW_NHD) {
        if (view->has_heads || view->has_heads_total) {
            geo_text_set(s->text_out, "view %s is %s and cannot have a head count", s->name.s,
                         view->kind == KVF_VIEW_REPLICATED ? "replicated" : "a state");
            return KVF_E_REPLICATED_HEADS;
        }
        return KVF_OK;
    }
    if (heads == 0) {
        geo_text_set(s->text_out, "view %s: head count unknown", s->name.s);
        return KVF_E_HEADS_UNKNOWN;
    }
    if (heads > GEO_HEADS_MAX || total > GEO_HEADS_MAX) {
        return too_large(s->text_out, "heads", heads > total ? heads : total, GEO_HEADS_MAX);
    }
    geo_heads_held(&s->record->place, total, &first, &held);
    if (total != 0 && held != heads) {
        geo_text_set(s->text_out, "layer %u: %u KV heads cannot be spread over tp %u%s",
                     view->entries[0].layer, total, width,
                     held == 0 ? "" : " as the view's own head count says");
        return KVF_E_TP_HEADS;
    }
    return KVF_OK;
}

static enum kvf_status check_state(const struct subject *s)
{
    const struct kvf_view *view = s->view;
    uint64_t region = geo_view_region(view);
    uint64_t sum = 0;

    if (view->kind == KVF_VIEW_UNITS && (view->unit_bytes == 0 || region % view->unit_bytes != 0)) {
        geo_text_set(s->text_out,
                     "view %s: %" PRIu64 " bytes a layer are no multiple of units of %" PRIu64,
                     s->name.s, region, view->unit_bytes);
        return KVF_E_STATE_UNIT;
    }
    if (view->kind != KVF_VIEW_SECTIONS) {
        return KVF_OK;
    }
    for (uint32_t i = 0; i < view->section_count && i < KVF_VIEW_SECTIONS_MAX; i++) {
        if (view->section_bytes[i] == 0 || view->section_bytes[i] > region - sum) {
            sum = UINT64_MAX;
            break;
        }
        sum += view->section_bytes[i];
    }
    if (view->section_count > KVF_VIEW_SECTIONS_MAX || sum != region || view->role_count != 1) {
        geo_text_set(s->text_out, "view %s: its %u sections do not sum to %" PRIu64 " bytes",
                     s->name.s, view->section_count, region);
        return KVF_E_STATE_SECTIONS;
    }
    return KVF_OK;
}

static enum kvf_status check_view(const struct subject *s)
{
    enum kvf_status status = check_view_head(s);

    if (status == KVF_OK) {
        status = check_entry_layers(s);
    }
    for (uint32_t e = 0; status == KVF_OK && e < s->view->entry_count; e += s->view->role_count) {
        status = check_region(s, e);
    }
    if (status == KVF_OK) {
        status = check_bounds(s);
    }
    if (status == KVF_OK) {
        status = check_heads(s);
    }
    return status == KVF_OK ? check_state(s) : status;
}

static enum kvf_status check_group(const struct geo_record *record, const struct kvf_group *group,
                                   struct geo_text *text_out)
{
    uint32_t first, end;

    geo_stage_layers(&record->place, record->place.pp_rank, &first, &end);
    for (uint32_t l = 0; l < group->layer_count; l++) {
        uint32_t layer = group->layers[l];

        if (layer < first || layer >= end) {
            geo_text_set(text_out, "layer %u is not on pp stage %u", layer, record->place.pp_rank);
            return KVF_E_LAYER_RANGE;
        }
        if (l > 0 && layer <= group->layers[l - 1]) {
            geo_text_set(text_out, "layer %u is out of order in its group", layer);
            return KVF_E_LAYER_RANGE;
        }
    }
    if (group->group_class == KVF_GROUP_STATE && group->window != KVF_WINDOW_NONE) {
        geo_text_set(text_out, "a state group cannot have a window (%u)", group->window);
        return KVF_E_INVAL;
    }
    return KVF_OK;
}

enum kvf_status geo_check_local(const struct geo_record *record, struct geo_text *text_out)
{
    enum kvf_status status = geo_check_counts(record, text_out);

    if (status == KVF_OK) {
        status = check_place(record, text_out);
    }
    if (status == KVF_OK) {
        status = check_pools(record, text_out);
    }
    for (uint32_t g = 0; status == KVF_OK && g < record->layout.group_count; g++) {
        const struct kvf_group *group = &record->layout.groups[g];

        status = check_group(record, group, text_out);
        for (uint32_t v = 0; status == KVF_OK && v < group->view_count; v++) {
            struct subject s = {
                .record = record, .group = group, .view = &group->views[v], .text_out = text_out};

            if (s.view->role_count < 1 || s.view->role_count > KVF_VIEW_ROLES_MAX) {
                geo_text_set(text_out, "view (%u,%u) has %u roles", g, v, s.view->role_count);
                return KVF_E_VIEW_ROLE_ORDER;
            }
            geo_name_view(record, g, v, &s.name);
            status = check_view(&s);
        }
    }
    return status;
}
