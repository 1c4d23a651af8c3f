/*
 * pages_build.c - makes a rank's layout from a model (docs/geometry.md, section 3). Works in one
 * scratch allocation of worst-case size, then copies the exact result. May not do I/O.
 */
#include <string.h>

#include "bump.h"
#include "check.h"
#include "geometry.h"
#include "pages_internal.h"

enum { BUFFERS_PER_LAYER_MAX = 7 };

/* One buffer of one layer of the group that is being built. */
struct buffer {
    uint32_t layer;
    uint32_t role;
    uint32_t pool;
    uint32_t view; /* in its group */
    uint64_t offset;
    uint64_t size;
};

struct build {
    struct pages_facts facts;
    struct kvf_layout layout; /* counts; its pointers are the arrays below */
    struct kvf_pool_shape *pools;
    uint64_t *pool_buffer_bytes; /* size of the buffers that share the pool */
    struct kvf_group *groups;
    uint32_t *layers; /* of all groups */
    struct kvf_view *views;
    struct kvf_entry *entries;
    struct buffer *buffers; /* of the current group */
    uint32_t buffer_count;
    uint32_t layers_used;
    uint32_t views_used;
    uint32_t entries_used;
};

/* Heads a rank of this width holds of a layer; the spread was checked. */
static uint32_t heads_held(const struct build *build, uint32_t heads_total)
{
    return heads_total > build->facts.width ? heads_total / build->facts.width
           : heads_total > 0                ? 1
                                            : 0;
}

/* Bytes of one role's buffer of a layer in one slot, 0 = the layer has no such buffer. */
static enum kvf_status buffer_bytes(const struct build *build, uint32_t index, uint32_t role,
                                    uint64_t *bytes_out)
{
    const struct kvf_model_layer *layer = &build->facts.model->layers[index];
    uint64_t tokens = build->facts.model->tokens_per_block;
    /* Each factor is at most 2^20, bits at most 64: two products before a bound are safe. */
    uint64_t elements = heads_held(build, layer->kv_heads) * tokens;
    uint64_t bits = 0;
    uint64_t bytes = 0;

    *bytes_out = 0;
    switch ((enum kvf_role_kind)role) {
    case KVF_KEY:
    case KVF_VALUE:
        if (elements > 0 && (role == KVF_KEY || !layer->k_only)) {
            bits = (uint64_t)layer->head_dim * pages_layer_bits(layer);
        }
        break;
    case KVF_KEY_SCALE:
    case KVF_VALUE_SCALE:
        if (elements > 0 && layer->scale_per > 0 && (role == KVF_KEY_SCALE || !layer->k_only)) {
            bits = (uint64_t)(layer->head_dim / layer->scale_per) * layer->scale_bits;
        }
        break;
    case KVF_INDEX_KEY:
        bytes = layer->index_bytes * tokens;
        break;
    case KVF_CONV_STATE:
        for (uint32_t s = 0; s < layer->section_count; s++) {
            bytes += layer->section_bytes[s] / build->facts.width;
        }
        break;
    case KVF_SSM_STATE:
        bytes = layer->state_units / build->facts.width * layer->state_unit_bytes;
        break;
    case KVF_SIDE_STATE:
        break;
    }
    if (bits > 0) {
        if (elements > 8 * GEO_SIZE_MAX / bits || elements * bits % 8 != 0) {
            pages_say(&build->facts,
                      "layer %u: %s of %llu bits is no whole number of bytes or too large", index,
                      geo_role_name(role), (unsigned long long)elements * bits);
            return KVF_E_INVAL;
        }
        bytes = elements * bits / 8;
    }
    if (bytes > GEO_SIZE_MAX) {
        pages_say(&build->facts, "layer %u: %s of %llu bytes is too large", index,
                  geo_role_name(role), (unsigned long long)bytes);
        return KVF_E_INVAL;
    }
    *bytes_out = bytes;
    return KVF_OK;
}

static bool role_is_state(uint32_t role)
{
    return role >= KVF_CONV_STATE;
}

/* Roles that share a view: key with value, key scale with value scale, the others alone. */
static uint32_t role_class(uint32_t role)
{
    return role == KVF_VALUE ? KVF_KEY : role == KVF_VALUE_SCALE ? KVF_KEY_SCALE : role;
}

static bool has_paged(const struct kvf_model_layer *layer)
{
    return layer->kv_heads > 0 || layer->index_bytes > 0;
}

static bool has_state(const struct kvf_model_layer *layer)
{
    return layer->state_units > 0 || layer->section_count > 0;
}

/* The pool of buffers of this size in this group; a new one when there is none. */
static uint32_t pool_for(struct build *build, uint32_t pool_first, uint64_t size, bool is_state)
{
    uint32_t pool = pool_first;

    while (pool < build->layout.pool_count && build->pool_buffer_bytes[pool] != size) {
        pool++;
    }
    if (pool == build->layout.pool_count) {
        build->layout.pool_count++;
        build->pool_buffer_bytes[pool] = size;
        build->pools[pool] =
            (struct kvf_pool_shape){.is_state = is_state, .group = build->layout.group_count};
    }
    return pool;
}

static enum kvf_status place_buffers(struct build *build, const struct kvf_group *group)
{
    bool is_state = group->group_class == KVF_GROUP_STATE;
    uint32_t pool_first = build->layout.pool_count;

    build->buffer_count = 0;
    for (uint32_t i = 0; i < group->layer_count; i++) {
        for (uint32_t role = 0; role < KVF_ROLE_KIND_COUNT; role++) {
            struct buffer *buffer = &build->buffers[build->buffer_count];
            uint64_t size = 0;
            enum kvf_status status = KVF_OK;

            if (role_is_state(role) == is_state) {
                status = buffer_bytes(build, group->layers[i], role, &size);
            }
            if (status != KVF_OK) {
                return status;
            }
            if (size == 0) {
                continue;
            }
            *buffer = (struct buffer){.layer = group->layers[i], .role = role, .size = size};
            buffer->pool = pool_for(build, pool_first, size, is_state);
            buffer->offset = build->pools[buffer->pool].slot_bytes;
            build->pools[buffer->pool].slot_bytes += size;
            build->buffer_count++;
        }
    }
    return KVF_OK;
}

static enum kvf_view_kind kind_of(const struct build *build, uint32_t role)
{
    switch ((enum kvf_role_kind)role) {
    case KVF_KEY:
    case KVF_VALUE:
    case KVF_KEY_SCALE:
    case KVF_VALUE_SCALE:
        return build->facts.model->nhd ? KVF_VIEW_NHD : KVF_VIEW_HND;
    case KVF_CONV_STATE:
        return KVF_VIEW_SECTIONS;
    case KVF_SSM_STATE:
        return KVF_VIEW_UNITS;
    case KVF_INDEX_KEY:
    case KVF_SIDE_STATE:
        break;
    }
    return KVF_VIEW_REPLICATED;
}

/* The view that a layer's buffers [first, first + count) would have if it were the only layer. */
static struct kvf_view view_of(const struct build *build, uint32_t first, uint32_t count)
{
    const struct buffer *buffer = &build->buffers[first];
    const struct kvf_model_layer *layer = &build->facts.model->layers[buffer->layer];
    struct kvf_view view = {.pool = buffer->pool,
                            .kind = kind_of(build, buffer->role),
                            .owner = layer->owner,
                            .role_count = count};

    for (uint32_t r = 0; r < count; r++) {
        view.roles[r] = build->buffers[first + r].role;
    }
    if (view.kind == KVF_VIEW_HND || view.kind == KVF_VIEW_NHD) {
        view.heads = heads_held(build, layer->kv_heads);
        view.heads_total = layer->kv_heads;
        view.has_heads = view.has_heads_total = build->facts.form != PAGES_LEGACY;
        view.dtype = buffer->role <= KVF_VALUE ? layer->dtype : KVF_DTYPE_NONE;
    } else if (view.kind == KVF_VIEW_UNITS) {
        view.unit_bytes = layer->state_unit_bytes;
    } else if (view.kind == KVF_VIEW_SECTIONS) {
        view.section_count = layer->section_count;
        for (uint32_t s = 0; s < layer->section_count; s++) {
            view.section_bytes[s] = layer->section_bytes[s] / build->facts.width;
        }
    }
    return view;
}

/* True when a layer with heads `heads_total` of view `wanted` goes into `view`'s bucket. */
static bool same_bucket(const struct build *build, const struct kvf_view *view,
                        uint32_t heads_total, const struct kvf_view *wanted)
{
    const struct kvf_model_layer *first = &build->facts.model->layers[view->entries[0].layer];

    return view->pool == wanted->pool && view->kind == wanted->kind &&
           view->role_count == wanted->role_count &&
           memcmp(view->roles, wanted->roles, sizeof(view->roles)) == 0 &&
           view->unit_bytes == wanted->unit_bytes && view->section_count == wanted->section_count &&
           memcmp(view->section_bytes, wanted->section_bytes, sizeof(view->section_bytes)) == 0 &&
           (!build->facts.partitioned ||
            (view->owner == wanted->owner && first->kv_heads == heads_total));
}

/* Takes one more layer into a view of its bucket. */
static enum kvf_status join_view(const struct build *build, struct kvf_view *view,
                                 const struct kvf_view *wanted)
{
    if (view->heads != wanted->heads && view->has_heads) {
        pages_say(
            &build->facts,
            "view of layer %u mixes layers of %u and %u heads per rank; state the layer specs",
            view->entries[0].layer, view->heads, wanted->heads);
        return KVF_E_VIEW_MIXED_HEADS;
    }
    if (view->heads_total != wanted->heads_total) {
        view->has_heads_total = false;
    }
    if (view->dtype != wanted->dtype) {
        view->dtype = KVF_DTYPE_NONE;
    }
    view->entry_count += wanted->role_count;
    return KVF_OK;
}

/*
 * Buckets the group's buffers into views (docs/geometry.md, section 3, rule 2). While buckets grow,
 * a view's `entries` points to its first entry alone, in the scratch that holds the final ones.
 */
static enum kvf_status bucket_views(struct build *build, struct kvf_group *group,
                                    struct kvf_view *views)
{
    uint32_t count;

    for (uint32_t b = 0; b < build->buffer_count; b += count) {
        const struct buffer *buffer = &build->buffers[b];
        uint32_t heads_total = build->facts.model->layers[buffer->layer].kv_heads;
        struct kvf_view wanted;
        uint32_t v = 0;

        count = 1;
        while (b + count < build->buffer_count && buffer[count].layer == buffer->layer &&
               role_class(buffer[count].role) == role_class(buffer->role) &&
               buffer[count].pool == buffer->pool) {
            count++;
        }
        wanted = view_of(build, b, count);
        while (v < group->view_count && !same_bucket(build, &views[v], heads_total, &wanted)) {
            v++;
        }
        if (v == group->view_count) {
            struct kvf_entry *entry = &build->entries[build->entries_used + v];

            *entry = (struct kvf_entry){.layer = buffer->layer};
            wanted.entries = entry;
            wanted.entry_count = count;
            views[v] = wanted;
            group->view_count++;
        } else if (join_view(build, &views[v], &wanted) != KVF_OK) {
            return KVF_E_VIEW_MIXED_HEADS;
        }
        for (uint32_t r = 0; r < count; r++) {
            build->buffers[b + r].view = v;
        }
    }
    return KVF_OK;
}

/* Gives each view its entries, in offset order, and puts the views in order of their pools. */
static void fill_views(struct build *build, struct kvf_group *group, struct kvf_view *views)
{
    for (uint32_t v = 0; v < group->view_count; v++) {
        struct kvf_entry *entries = &build->entries[build->entries_used];
        uint32_t count = 0;

        for (uint32_t b = 0; b < build->buffer_count; b++) {
            const struct buffer *buffer = &build->buffers[b];

            if (buffer->view == v) {
                entries[count++] = (struct kvf_entry){.layer = buffer->layer,
                                                      .role = buffer->role,
                                                      .offset = buffer->offset,
                                                      .size = buffer->size};
            }
        }
        KVF_ASSERT(count == views[v].entry_count);
        views[v].entries = entries;
        build->entries_used += count;
    }
    /* Views of one pool are already in order of their lowest offset: a stable sort by pool. */
    for (uint32_t i = 1; i < group->view_count; i++) {
        struct kvf_view moving = views[i];
        uint32_t at = i;

        for (; at > 0 && views[at - 1].pool > moving.pool; at--) {
            views[at] = views[at - 1];
        }
        views[at] = moving;
    }
    group->views = views;
    build->views_used += group->view_count;
}

/*
 * Adds the group of the layers that are recurrent, or paged with this window; no layers: no group
 */
static enum kvf_status add_group(struct build *build, enum kvf_group_class group_class,
                                 uint32_t window)
{
    struct kvf_group *group = &build->groups[build->layout.group_count];
    struct kvf_view *views = &build->views[build->views_used];
    uint32_t *layers = &build->layers[build->layers_used];
    enum kvf_status status;

    *group = (struct kvf_group){.group_class = group_class, .window = window, .layers = layers};
    for (uint32_t l = build->facts.layer_first; l < build->facts.layer_end; l++) {
        const struct kvf_model_layer *layer = &build->facts.model->layers[l];
        bool belongs = group_class == KVF_GROUP_STATE ? has_state(layer)
                                                      : has_paged(layer) && layer->window == window;

        if (belongs) {
            layers[group->layer_count++] = l;
        }
    }
    if (group->layer_count == 0) {
        return KVF_OK;
    }
    build->layers_used += group->layer_count;
    status = place_buffers(build, group);
    if (status == KVF_OK) {
        status = bucket_views(build, group, views);
    }
    if (status != KVF_OK) {
        return status;
    }
    fill_views(build, group, views);
    build->layout.group_count++;
    return KVF_OK;
}

/* One paged group for each distinct window, in the order of their first layers, then the states. */
static enum kvf_status add_groups(struct build *build)
{
    for (uint32_t l = build->facts.layer_first; l < build->facts.layer_end; l++) {
        const struct kvf_model_layer *layer = &build->facts.model->layers[l];
        uint32_t g = 0;
        enum kvf_status status;

        while (g < build->layout.group_count && build->groups[g].window != layer->window) {
            g++;
        }
        if (!has_paged(layer) || g < build->layout.group_count) {
            continue;
        }
        if (build->layout.group_count + 2 > GEO_GROUPS_MAX) {
            pages_say(&build->facts, "more than %u sliding windows", GEO_GROUPS_MAX - 1);
            return KVF_E_TOO_LARGE;
        }
        status = add_group(build, KVF_GROUP_PAGED, layer->window);
        if (status != KVF_OK) {
            return status;
        }
    }
    return add_group(build, KVF_GROUP_STATE, KVF_WINDOW_NONE);
}

/* The facts of the rank as a whole. */
static void set_facts(struct build *build)
{
    const struct kvf_model *model = build->facts.model;
    struct kvf_layout *layout = &build->layout;

    layout->tokens_per_block = model->tokens_per_block;
    layout->layer_count = model->layer_count;
    layout->draft_layers = build->facts.draft_layers;
    layout->mla = model->mla;
    layout->ownership_bridge = model->ownership_bridge;
    layout->aux_count = model->aux_count;
    layout->aux_bytes = model->aux_bytes;
    for (uint32_t l = build->facts.layer_first; l < build->facts.layer_end && layout->kv_heads == 0;
         l++) {
        layout->kv_heads = heads_held(build, model->layers[l].kv_heads);
    }
    for (uint32_t l = 0; l < model->layer_count; l++) {
        const struct kvf_model_layer *layer = &model->layers[l];

        if (layer->owner == KVF_OWNER_TARGET && layer->kv_heads > 0) {
            layout->head_dim = layer->head_dim;
            layout->dtype = layer->dtype;
            layout->elem_bits = pages_layer_bits(layer);
            break;
        }
    }
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        build->pools[p].slot_stride = build->pools[p].slot_bytes;
    }
    layout->pools = build->pools;
    layout->groups = build->groups;
}

/* Cuts the scratch of worst-case size for `layers` layers on this stage. */
static void cut_scratch(struct build *build, struct bump *bump, uint32_t layers)
{
    size_t buffers = (size_t)layers * BUFFERS_PER_LAYER_MAX;

    build->pools = bump_take(bump, buffers, sizeof(*build->pools));
    build->pool_buffer_bytes = bump_take(bump, buffers, sizeof(*build->pool_buffer_bytes));
    build->groups = bump_take(bump, (size_t)layers + 1, sizeof(*build->groups));
    build->layers = bump_take(bump, 2 * (size_t)layers, sizeof(*build->layers));
    build->views = bump_take(bump, buffers, sizeof(*build->views));
    build->entries = bump_take(bump, buffers, sizeof(*build->entries));
    build->buffers = bump_take(bump, buffers + 1, sizeof(*build->buffers));
}

static enum kvf_status check_limits(const struct build *build)
{
    if (build->layout.pool_count > GEO_POOLS_MAX || build->views_used > GEO_VIEWS_MAX) {
        pages_say(&build->facts, "%u pools and %u views, at most %u and %u",
                  build->layout.pool_count, build->views_used, GEO_POOLS_MAX, GEO_VIEWS_MAX);
        return KVF_E_TOO_LARGE;
    }
    for (uint32_t p = 0; p < build->layout.pool_count; p++) {
        if (build->pools[p].slot_bytes > GEO_SIZE_MAX) {
            pages_say(&build->facts, "a slot of pool %u has %llu bytes, at most %llu", p,
                      (unsigned long long)build->pools[p].slot_bytes, GEO_SIZE_MAX);
            return KVF_E_TOO_LARGE;
        }
    }
    return KVF_OK;
}

enum kvf_status pages_layout_open(const struct kvf_heap *heap, const struct pages_params *params,
                                  struct kvf_layout **layout_out, char *text_out, size_t text_bytes)
{
    struct build build = {.facts = {.model = params->model,
                                    .place = params->place,
                                    .form = params->form,
                                    .text = text_out,
                                    .text_bytes = text_bytes}};
    struct bump bump = {0};
    struct kvf_layout *layout = NULL;
    size_t head = (sizeof(*layout) + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    void *scratch = NULL;
    enum kvf_status status = pages_check_model(&build.facts);

    if (status != KVF_OK) {
        return status;
    }
    cut_scratch(&build, &bump, build.facts.layer_end - build.facts.layer_first);
    scratch = kvf_alloc(heap, bump.used_bytes, 1);
    if (scratch == NULL) {
        return KVF_E_NOMEM;
    }
    bump = (struct bump){.base = scratch};
    cut_scratch(&build, &bump, build.facts.layer_end - build.facts.layer_first);
    status = add_groups(&build);
    if (status == KVF_OK) {
        status = check_limits(&build);
    }
    if (status != KVF_OK) {
        goto free_scratch;
    }
    set_facts(&build);
    layout = kvf_alloc(heap, head + pages_layout_bytes(&build.layout), 1);
    if (layout == NULL) {
        status = KVF_E_NOMEM;
        goto free_scratch;
    }
    pages_layout_copy(&build.layout, (unsigned char *)layout + head, layout);
    *layout_out = layout;

free_scratch:
    kvf_release(heap, scratch);
    return status;
}
