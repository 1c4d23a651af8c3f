/*
 * geometry_pair.c - finds the partner of a view on another rank (docs/geometry.md, section 7,
 * checks 11 to 15). May not do I/O.
 */
#include <stdio.h>
#include <string.h>

#include "geometry_internal.h"
#include "pages.h"

#define LAYER_LIST_BYTES 96u

/* Layers of a set as "0-3,7,9-11", cut with "..." when it is long. */
struct layer_list {
    char s[LAYER_LIST_BYTES];
};

/* One view under pairing. */
struct search {
    const struct geo_record *own;
    const struct geo_record *other;
    uint32_t group;
    uint32_t view;
    const struct kvf_view *which;
    struct geo_layer_set shared;
    uint32_t partner_count;
    uint32_t partner_group; /* the first partner */
    uint32_t partner_view;
    uint32_t second_group; /* the second, when there are several */
    uint32_t second_view;
    bool several_groups;
    struct geo_text *text_out;
};

static void list_layers(const struct geo_layer_set *set, struct layer_list *list_out)
{
    size_t used = 0;

    list_out->s[0] = '\0';
    for (uint32_t first = 0; first < GEO_LAYERS_MAX; first++) {
        uint32_t last = first;
        int wrote;

        if (!geo_layer_set_has(set, first)) {
            continue;
        }
        while (last + 1 < GEO_LAYERS_MAX && geo_layer_set_has(set, last + 1)) {
            last++;
        }
        if (used > sizeof(list_out->s) - 20) {
            snprintf(list_out->s + used, sizeof(list_out->s) - used, ",...");
            return;
        }
        wrote = first == last ? snprintf(list_out->s + used, sizeof(list_out->s) - used, "%s%u",
                                         used > 0 ? "," : "", first)
                              : snprintf(list_out->s + used, sizeof(list_out->s) - used, "%s%u-%u",
                                         used > 0 ? "," : "", first, last);
        used += (size_t)wrote;
        first = last;
    }
}

static void find_shared(struct search *search)
{
    const struct kvf_place *place = &search->other->place;
    uint32_t first, end;

    geo_stage_layers(place, place->pp_rank, &first, &end);
    for (uint32_t e = 0; e < search->which->entry_count; e++) {
        uint32_t layer = search->which->entries[e].layer;

        if (layer >= first && layer < end) {
            geo_layer_set_add(&search->shared, layer);
        }
    }
}

static bool meets(const struct search *search, const struct kvf_view *candidate)
{
    for (uint32_t e = 0; e < candidate->entry_count; e++) {
        if (geo_layer_set_has(&search->shared, candidate->entries[e].layer)) {
            return true;
        }
    }
    return false;
}

/* How many of the view's roles the candidate has too. */
static uint32_t common_roles(const struct kvf_view *view, const struct kvf_view *candidate)
{
    uint32_t common = 0;

    for (uint32_t a = 0; a < view->role_count; a++) {
        for (uint32_t b = 0; b < candidate->role_count; b++) {
            common += view->roles[a] == candidate->roles[b];
        }
    }
    return common;
}

static void add_partner(struct search *search, uint32_t group, uint32_t view)
{
    if (search->partner_count == 0) {
        search->partner_group = group;
        search->partner_view = view;
    } else if (search->partner_count == 1) {
        search->second_group = group;
        search->second_view = view;
    }
    search->several_groups =
        search->several_groups || (search->partner_count > 0 && group != search->partner_group);
    search->partner_count++;
}

/* Collects the partners; a candidate of other roles that overlap refuses (check 11). */
static enum kvf_status find_partners(struct search *search)
{
    enum kvf_group_class wanted = search->own->layout.groups[search->group].group_class;

    for (uint32_t g = 0; g < search->other->layout.group_count; g++) {
        const struct kvf_group *group = &search->other->layout.groups[g];

        for (uint32_t v = 0; group->group_class == wanted && v < group->view_count; v++) {
            const struct kvf_view *candidate = &group->views[v];
            uint32_t common = common_roles(search->which, candidate);
            struct geo_view_name own, other;

            if (common == 0 || !meets(search, candidate)) {
                continue;
            }
            if (common == search->which->role_count && common == candidate->role_count) {
                add_partner(search, g, v);
                continue;
            }
            geo_name_view(search->own, search->group, search->view, &own);
            geo_name_view(search->other, g, v, &other);
            geo_text_set(search->text_out, "%s meets %s: buffer roles differ (%u, %u of them)",
                         own.s, other.s, search->which->role_count, candidate->role_count);
            return KVF_E_VIEW_ROLES;
        }
    }
    return KVF_OK;
}

/* Shared layers that are in another group of the class and not in the partner's. */
static void find_misplaced(const struct search *search, struct geo_layer_set *misplaced_out)
{
    const struct kvf_layout *other = &search->other->layout;
    enum kvf_group_class wanted = search->own->layout.groups[search->group].group_class;

    for (uint32_t g = 0; g < other->group_count; g++) {
        const struct kvf_group *group = &other->groups[g];

        if (g == search->partner_group || group->group_class != wanted) {
            continue;
        }
        for (uint32_t l = 0; l < group->layer_count; l++) {
            uint32_t layer = group->layers[l];

            if (geo_layer_set_has(&search->shared, layer) &&
                !pages_group_has(&other->groups[search->partner_group], layer)) {
                geo_layer_set_add(misplaced_out, layer);
            }
        }
    }
}

/* Shared layers that the partner has no buffers for. */
static void find_lacking(const struct search *search, struct geo_layer_set *lacking_out)
{
    const struct kvf_view *partner =
        &search->other->layout.groups[search->partner_group].views[search->partner_view];

    *lacking_out = search->shared;
    for (uint32_t e = 0; e < partner->entry_count; e++) {
        uint32_t layer = partner->entries[e].layer;

        if (geo_layer_set_has(lacking_out, layer)) {
            lacking_out->bits[layer / 8] &= (uint8_t) ~(1u << layer % 8);
            lacking_out->count--;
        }
    }
}

/* Checks 13 to 15, with at least one partner found. */
static enum kvf_status judge_partner(const struct search *search)
{
    struct geo_layer_set odd = {0};
    struct layer_list layers;
    struct geo_view_name own, other;

    geo_name_view(search->own, search->group, search->view, &own);
    find_misplaced(search, &odd);
    if (search->several_groups || odd.count > 0) {
        list_layers(odd.count > 0 ? &odd : &search->shared, &layers);
        geo_text_set(search->text_out, "%s: peer %s/%u keeps layers %s in another layer group",
                     own.s, search->other->instance_name, search->other->rank, layers.s);
        return KVF_E_VIEW_MISPLACED;
    }
    if (search->partner_count > 1) {
        geo_text_set(search->text_out,
                     "%s overlaps %u peer views (%s/%u: view(%u,%u), view(%u,%u)%s)", own.s,
                     search->partner_count, search->other->instance_name, search->other->rank,
                     search->partner_group, search->partner_view, search->second_group,
                     search->second_view, search->partner_count > 2 ? ", ..." : "");
        return KVF_E_VIEW_AMBIGUOUS;
    }
    find_lacking(search, &odd);
    if (odd.count > 0) {
        list_layers(&odd, &layers);
        geo_name_view(search->other, search->partner_group, search->partner_view, &other);
        geo_text_set(search->text_out, "%s: %s lacks layers %s", own.s, other.s, layers.s);
        return KVF_E_VIEW_LAYERS;
    }
    return KVF_OK;
}

enum kvf_status geo_pair_view(const struct geo_record *own, uint32_t group, uint32_t view,
                              const struct geo_record *other, struct geo_partner *partner_out,
                              struct geo_text *text_out)
{
    struct search search = {.own = own,
                            .other = other,
                            .group = group,
                            .view = view,
                            .which = &own->layout.groups[group].views[view],
                            .text_out = text_out};
    enum kvf_status status;

    find_shared(&search);
    if (search.shared.count == 0) {
        partner_out->found = false;
        return KVF_OK;
    }
    status = find_partners(&search);
    if (status != KVF_OK) {
        return status;
    }
    if (search.partner_count == 0) {
        struct geo_view_name name;
        struct layer_list layers;

        geo_name_view(own, group, view, &name);
        list_layers(&search.shared, &layers);
        geo_text_set(text_out, "%s has no counterpart on peer %s/%u for layers %s", name.s,
                     other->instance_name, other->rank, layers.s);
        return KVF_E_VIEW_MISSING;
    }
    status = judge_partner(&search);
    if (status != KVF_OK) {
        return status;
    }
    partner_out->found = true;
    partner_out->group = search.partner_group;
    partner_out->view = search.partner_view;
    partner_out->shared = search.shared;
    return KVF_OK;
}
