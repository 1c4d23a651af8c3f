/*
 * pages.c - look-ups in a layout, deep copies, and the public calls of kvf_layout.h. The builder is
 * in pages_build.c. May not do I/O or read a clock.
 */
#include "pages.h"

#include <stdio.h>
#include <string.h>

#include "bump.h"
#include "check.h"

uint32_t kvf_dtype_bits(enum kvf_dtype dtype)
{
    switch (dtype) {
    case KVF_DTYPE_NONE:
        return 0;
    case KVF_DTYPE_BF16:
    case KVF_DTYPE_FP16:
        return 16;
    case KVF_DTYPE_FP8_E4M3:
        return 8;
    case KVF_DTYPE_FP4_E2M1:
        return 4;
    case KVF_DTYPE_F32:
        return 32;
    }
    return 0;
}

enum kvf_status kvf_layout_from_model(const struct kvf_model *model, const struct kvf_place *place,
                                      struct kvf_layout **layout_out, char *text_out,
                                      size_t text_bytes)
{
    struct pages_params params = {.model = model, .place = place, .form = PAGES_PARTITIONED};

    if (model == NULL || place == NULL || layout_out == NULL) {
        return KVF_E_INVAL;
    }
    return pages_layout_open(kvf_heap_system(), &params, layout_out, text_out, text_bytes);
}

void kvf_layout_free(struct kvf_layout *layout)
{
    pages_layout_close(kvf_heap_system(), layout);
}

void pages_layout_close(const struct kvf_heap *heap, struct kvf_layout *layout)
{
    kvf_release(heap, layout);
}

static void *copy_array(struct bump *bump, const void *from, size_t count, size_t size)
{
    void *to = bump_take(bump, count, size);

    if (to != NULL && count > 0) {
        memcpy(to, from, count * size);
    }
    return to;
}

/* Copies what `from` points to; with bump->base NULL it only counts and leaves `to` alone. */
static void copy_groups(struct bump *bump, const struct kvf_layout *from, struct kvf_layout *to)
{
    struct kvf_group *groups = copy_array(bump, from->groups, from->group_count, sizeof(*groups));

    for (uint32_t g = 0; g < from->group_count; g++) {
        const struct kvf_group *group = &from->groups[g];
        uint32_t *layers =
            copy_array(bump, group->layers, group->layer_count, sizeof(*group->layers));
        struct kvf_view *views =
            copy_array(bump, group->views, group->view_count, sizeof(*group->views));

        for (uint32_t v = 0; v < group->view_count; v++) {
            const struct kvf_view *view = &group->views[v];
            struct kvf_entry *entries =
                copy_array(bump, view->entries, view->entry_count, sizeof(*view->entries));

            if (views != NULL) {
                views[v].entries = entries;
            }
        }
        if (groups != NULL) {
            groups[g].layers = layers;
            groups[g].views = views;
        }
    }
    if (to != NULL) {
        to->groups = groups;
    }
}

static void copy_layout(struct bump *bump, const struct kvf_layout *from, struct kvf_layout *to)
{
    void *pools = copy_array(bump, from->pools, from->pool_count, sizeof(*from->pools));
    void *aux = copy_array(bump, from->aux_bytes, from->aux_count, sizeof(*from->aux_bytes));

    if (to != NULL) {
        *to = *from;
        to->pools = pools;
        to->aux_bytes = aux;
    }
    copy_groups(bump, from, to);
}

size_t pages_layout_bytes(const struct kvf_layout *layout)
{
    struct bump bump = {0};

    copy_layout(&bump, layout, NULL);
    return bump.used_bytes;
}

void pages_layout_copy(const struct kvf_layout *from, void *memory, struct kvf_layout *layout_out)
{
    struct bump bump = {.base = memory};

    copy_layout(&bump, from, layout_out);
}

static void say(char *text, size_t text_bytes, const char *what, uint32_t a, uint32_t b)
{
    if (text != NULL && text_bytes > 0) {
        snprintf(text, text_bytes, "%s (%u, %u)", what, a, b);
    }
}

enum kvf_status pages_check_place(const struct kvf_place *place, char *text, size_t text_bytes)
{
    uint32_t width;

    if (place->tp_size == 0 || place->tp_rank >= place->tp_size) {
        say(text, text_bytes, "tp rank is outside tp size", place->tp_rank, place->tp_size);
        return KVF_E_INVAL;
    }
    if (place->pp_size == 0 || place->pp_rank >= place->pp_size) {
        say(text, text_bytes, "pp rank is outside pp size", place->pp_rank, place->pp_size);
        return KVF_E_INVAL;
    }
    if (place->cp_size == 0 || place->cp_rank >= place->cp_size) {
        say(text, text_bytes, "cp rank is outside cp size", place->cp_rank, place->cp_size);
        return KVF_E_INVAL;
    }
    if (place->layers_per_pp == NULL) {
        say(text, text_bytes, "layers per stage are not stated", place->pp_rank, place->pp_size);
        return KVF_E_INVAL;
    }
    if (!place->attention_dp && (place->dp_size != 1 || place->dp_rank != 0)) {
        say(text, text_bytes, "without attention DP the dp size is 1 and the dp rank 0",
            place->dp_size, place->dp_rank);
        return KVF_E_INVAL;
    }
    if (place->dp_size == 0 || place->tp_size % place->dp_size != 0) {
        if (text != NULL && text_bytes > 0) {
            snprintf(text, text_bytes, "attention DP: %u groups do not divide tp %u",
                     place->dp_size, place->tp_size);
        }
        return KVF_E_DP_SHAPE;
    }
    width = place->tp_size / place->dp_size;
    if (place->dp_rank != place->tp_rank / width) {
        say(text, text_bytes, "dp rank is not the tp rank's group", place->dp_rank,
            place->tp_rank / width);
        return KVF_E_INVAL;
    }
    return KVF_OK;
}

bool pages_group_has(const struct kvf_group *group, uint32_t layer)
{
    uint32_t low = 0;
    uint32_t high = group->layer_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (group->layers[middle] < layer) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < group->layer_count && group->layers[low] == layer;
}

bool pages_region(const struct kvf_view *view, uint32_t layer, uint64_t *offset_out)
{
    /* Regions are back to back in one order, so the first entry of the layer is where it starts. */
    for (uint32_t e = 0; e < view->entry_count; e += view->role_count) {
        if (view->entries[e].layer == layer) {
            *offset_out = view->entries[e].offset;
            return true;
        }
    }
    return false;
}

bool pages_find(const struct kvf_layout *layout, uint32_t layer, enum kvf_role_kind role,
                struct pages_place *place_out)
{
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_group *group = &layout->groups[g];

        if (!pages_group_has(group, layer)) {
            continue;
        }
        for (uint32_t v = 0; v < group->view_count; v++) {
            const struct kvf_view *view = &group->views[v];

            for (uint32_t e = 0; e < view->entry_count; e++) {
                const struct kvf_entry *entry = &view->entries[e];

                if (entry->layer == layer && entry->role == (uint32_t)role) {
                    *place_out = (struct pages_place){
                        .group = g, .view = v, .pool = view->pool, .entry = entry};
                    return true;
                }
            }
        }
    }
    return false;
}
