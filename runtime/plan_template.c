/*
 * plan_template.c - pairs the views of a writer and a reader, elects, and makes the strided shapes
 * of every pair (docs/geometry.md, sections 6 and 8.2). Runs once per peer. May not do I/O.
 */
#include <string.h>

#include "bump.h"
#include "geometry_internal.h"
#include "pages.h"
#include "plan_internal.h"

/* What the template is made from. */
struct making {
    struct plan_template *template;
    const struct geo_record *writer;
    const struct geo_record *reader;
    uint64_t *src_offsets; /* of the regions of the current pair's layers */
    uint64_t *dst_offsets;
    uint32_t layers_used;
};

/* Upper bounds of the template's arrays. */
struct sizes {
    uint32_t pairs;
    uint32_t layers; /* of all pairs */
    uint32_t bases;
    uint32_t layers_max; /* of one pair */
};

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* ---- counting and cutting ------------------------------------------------------------------- */

static enum kvf_status count_sizes(const struct geo_record *writer, const struct geo_record *reader,
                                   struct sizes *sizes_out)
{
    for (uint32_t g = 0; g < writer->layout.group_count; g++) {
        const struct kvf_group *group = &writer->layout.groups[g];

        for (uint32_t v = 0; v < group->view_count; v++) {
            struct geo_partner partner;
            uint32_t sections = max_u32(group->views[v].section_count, 1);

            if (geo_pair_view(writer, g, v, reader, &partner, NULL) != KVF_OK) {
                return KVF_E_INCOMPATIBLE;
            }
            if (partner.found) {
                sizes_out->pairs++;
                sizes_out->layers += partner.shared.count;
                sizes_out->bases += partner.shared.count * sections;
                sizes_out->layers_max = max_u32(sizes_out->layers_max, partner.shared.count);
            }
        }
    }
    return KVF_OK;
}

/* Cuts the template's memory; with bump->base NULL it only counts. */
static void cut_template(struct making *making, const struct sizes *sizes, struct bump *bump)
{
    struct plan_template unused;
    struct plan_template *template = bump_take(bump, 1, sizeof(*template));
    struct plan_template *to = template == NULL ? &unused : template;

    to->pairs = bump_take(bump, sizes->pairs, sizeof(*to->pairs));
    to->classes = bump_take(bump, sizes->bases, sizeof(*to->classes));
    to->bases = bump_take(bump, sizes->bases, sizeof(*to->bases));
    to->base_layers = bump_take(bump, sizes->bases, sizeof(*to->base_layers));
    to->layers = bump_take(bump, sizes->layers, sizeof(*to->layers));
    to->lists = bump_take(bump, sizes->pairs, sizeof(*to->lists));
    to->pair_order = bump_take(bump, sizes->pairs, sizeof(*to->pair_order));
    to->src_aux = bump_take(bump, making->writer->layout.aux_count, sizeof(*to->src_aux));
    to->dst_aux = bump_take(bump, making->writer->layout.aux_count, sizeof(*to->dst_aux));
    making->src_offsets = bump_take(bump, sizes->layers_max, sizeof(*making->src_offsets));
    making->dst_offsets = bump_take(bump, sizes->layers_max, sizeof(*making->dst_offsets));
    making->template = template;
}

/* ---- shapes --------------------------------------------------------------------------------- */

static struct plan_class *add_class(struct plan_template *template, struct plan_pair *pair)
{
    struct plan_class *class = &template->classes[template->class_count++];

    pair->class_count++;
    *class =
        (struct plan_class){.base_first = template->base_count, .run_layers = 1, .piece_count = 1};
    return class;
}

static void add_base(struct plan_template *template, struct plan_class *class, uint32_t layer_index,
                     struct stripe_base base)
{
    template->bases[template->base_count] = base;
    template->base_layers[template->base_count] = layer_index;
    template->base_count++;
    class->base_count++;
}

/* Layers from `first` on that continue one another on both sides. */
static uint32_t run_length(const struct making *making, const struct plan_pair *pair,
                           uint32_t first)
{
    uint64_t region = pair->view.src_region_bytes;
    uint32_t length = 1;

    while (
        first + length < pair->view.layer_count &&
        making->src_offsets[first + length] == making->src_offsets[first + length - 1] + region &&
        making->dst_offsets[first + length] == making->dst_offsets[first + length - 1] + region) {
        length++;
    }
    return length;
}

/* True when an earlier class of the pair has runs of this length. */
static bool has_run_class(const struct plan_template *template, const struct plan_pair *pair,
                          uint32_t length)
{
    for (uint32_t c = 0; c < pair->class_count; c++) {
        if (template->classes[pair->class_first + c].run_layers == length) {
            return true;
        }
    }
    return false;
}

/* Both sides hold the same bytes of a layer: one run for neighbours, a class for each length. */
static void make_whole(struct making *making, struct plan_pair *pair)
{
    struct plan_template *template = making->template;
    uint32_t length;

    for (uint32_t first = 0; first < pair->view.layer_count; first += length) {
        struct plan_class *class;
        uint32_t other;

        length = run_length(making, pair, first);
        if (has_run_class(template, pair, length)) {
            continue;
        }
        class = add_class(template, pair);
        class->run_layers = length;
        class->piece_bytes = length * pair->view.src_region_bytes;
        for (uint32_t at = first; at < pair->view.layer_count; at += other) {
            other = run_length(making, pair, at);
            if (other == length) {
                add_base(template, class, at,
                         (struct stripe_base){.src = making->src_offsets[at],
                                              .dst = making->dst_offsets[at]});
            }
        }
    }
}

/* The heads of one side are a slice of the other's: uniform strides inside a layer. */
static void make_slice(struct making *making, struct plan_pair *pair)
{
    const struct plan_view_pair *view = &pair->view;
    struct plan_class *class = add_class(making->template, pair);
    uint32_t pieces = view->role_count;
    uint64_t unit; /* one head of one buffer (HND) or of one token of one buffer (NHD) */

    if (view->kind == KVF_VIEW_NHD) {
        pieces *= making->template->tokens_per_block;
    }
    unit = view->src_region_bytes / ((uint64_t)pieces * view->src_heads);
    class->piece_count = pieces;
    class->piece_bytes = view->head_count * unit;
    class->src_piece_stride = view->src_heads * unit;
    class->dst_piece_stride = view->dst_heads * unit;
    for (uint32_t l = 0; l < view->layer_count; l++) {
        add_base(making->template, class, l,
                 (struct stripe_base){.src = making->src_offsets[l] + view->src_head_first * unit,
                                      .dst = making->dst_offsets[l] + view->dst_head_first * unit});
    }
}

/* Where the common part of a state begins on the two sides, and its size. */
struct part {
    uint64_t src;
    uint64_t dst;
    uint64_t bytes;
};

/* Part of a region or section that the two ranks share; the coarser side holds several parts. */
static struct part state_part(const struct making *making, uint64_t src_bytes, uint64_t dst_bytes)
{
    uint32_t src_index = geo_group_index(&making->writer->place);
    uint32_t dst_index = geo_group_index(&making->reader->place);

    if (src_bytes >= dst_bytes) {
        return (struct part){.src = dst_index % (src_bytes / dst_bytes) * dst_bytes,
                             .bytes = dst_bytes};
    }
    return (struct part){.dst = src_index % (dst_bytes / src_bytes) * src_bytes,
                         .bytes = src_bytes};
}

static void make_units(struct making *making, struct plan_pair *pair)
{
    struct plan_class *class = add_class(making->template, pair);
    struct part part = state_part(making, pair->view.src_region_bytes, pair->view.dst_region_bytes);

    class->piece_bytes = part.bytes;
    for (uint32_t l = 0; l < pair->view.layer_count; l++) {
        add_base(making->template, class, l,
                 (struct stripe_base){.src = making->src_offsets[l] + part.src,
                                      .dst = making->dst_offsets[l] + part.dst});
    }
}

/* One base a layer for section `index`. */
static void add_section(struct making *making, struct plan_pair *pair, struct plan_class *class,
                        const struct part *part)
{
    for (uint32_t l = 0; l < pair->view.layer_count; l++) {
        add_base(making->template, class, l,
                 (struct stripe_base){.src = making->src_offsets[l] + part->src,
                                      .dst = making->dst_offsets[l] + part->dst});
    }
}

/* Sections split each on its own; those of one size share a class. */
static void make_sections(struct making *making, struct plan_pair *pair, const struct kvf_view *src,
                          const struct kvf_view *dst)
{
    struct part parts[KVF_VIEW_SECTIONS_MAX];
    uint64_t src_start = 0;
    uint64_t dst_start = 0;

    for (uint32_t s = 0; s < src->section_count; s++) {
        parts[s] = state_part(making, src->section_bytes[s], dst->section_bytes[s]);
        parts[s].src += src_start;
        parts[s].dst += dst_start;
        src_start += src->section_bytes[s];
        dst_start += dst->section_bytes[s];
    }
    for (uint32_t s = 0; s < src->section_count; s++) {
        struct plan_class *class;
        uint32_t before = 0;

        while (parts[before].bytes != parts[s].bytes) {
            before++;
        }
        if (before < s) {
            continue;
        }
        class = add_class(making->template, pair);
        class->piece_bytes = parts[s].bytes;
        for (uint32_t same = s; same < src->section_count; same++) {
            if (parts[same].bytes == parts[s].bytes) {
                add_section(making, pair, class, &parts[same]);
            }
        }
    }
}

static void make_shapes(struct making *making, struct plan_pair *pair, const struct kvf_view *src,
                        const struct kvf_view *dst)
{
    bool same_width =
        geo_group_width(&making->writer->place) == geo_group_width(&making->reader->place);

    switch (pair->view.kind) {
    case KVF_VIEW_HND:
    case KVF_VIEW_NHD:
        if (pair->view.src_heads == pair->view.dst_heads) {
            make_whole(making, pair);
        } else {
            make_slice(making, pair);
        }
        break;
    case KVF_VIEW_REPLICATED:
        make_whole(making, pair);
        break;
    case KVF_VIEW_UNITS:
        if (same_width) {
            make_whole(making, pair);
        } else {
            make_units(making, pair);
        }
        break;
    case KVF_VIEW_SECTIONS:
        if (same_width) {
            make_whole(making, pair);
        } else {
            make_sections(making, pair, src, dst);
        }
        break;
    }
}

/* ---- election and heads --------------------------------------------------------------------- */

static uint32_t factor(uint64_t a, uint64_t b)
{
    return a == 0 || b == 0 || a < b ? 1 : (uint32_t)(a / b);
}

/* Among `q` writers that hold the same bytes one sends; the reader's dp rank turns which. */
static bool elected_of(const struct making *making, uint32_t q)
{
    return q <= 1 ||
           geo_group_index(&making->writer->place) % q == making->reader->place.dp_rank % q;
}

/* Effective heads, factors and the slice; false when the slice does not fit. */
static bool set_heads(const struct making *making, struct plan_view_pair *view,
                      const struct kvf_view *src, const struct kvf_view *dst)
{
    const struct kvf_place *writer = &making->writer->place;
    const struct kvf_place *reader = &making->reader->place;
    uint64_t src_all, dst_all, big, small, heads_total, big_width, small_width, first, start;
    bool src_is_big;

    view->src_heads = geo_view_heads(making->writer, src);
    view->dst_heads = geo_view_heads(making->reader, dst);
    src_all = (uint64_t)view->src_heads * geo_group_width(writer);
    dst_all = (uint64_t)view->dst_heads * geo_group_width(reader);
    view->src_factor = factor(src_all, dst_all);
    view->dst_factor = factor(dst_all, src_all);
    view->elected = elected_of(making, view->src_factor);
    view->head_count = view->src_heads;
    if (view->src_heads == view->dst_heads) {
        return true;
    }
    /* The side with more heads never duplicates, so it tells the model's count. */
    src_is_big = view->src_heads > view->dst_heads;
    big = src_is_big ? view->src_heads : view->dst_heads;
    small = src_is_big ? view->dst_heads : view->src_heads;
    heads_total = src_is_big ? src_all : dst_all;
    big_width = geo_group_width(src_is_big ? writer : reader);
    small_width = geo_group_width(src_is_big ? reader : writer);
    first = geo_group_index(src_is_big ? reader : writer) * heads_total / small_width;
    start = heads_total / big_width * geo_group_index(src_is_big ? writer : reader);
    if (first < start || first - start + small > big) {
        return false;
    }
    view->head_count = (uint32_t)small;
    view->src_head_first = src_is_big ? (uint32_t)(first - start) : 0;
    view->dst_head_first = src_is_big ? 0 : (uint32_t)(first - start);
    return true;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

static uint32_t lists_for(struct plan_template *template, const struct plan_view_pair *view,
                          const struct kvf_group *group)
{
    uint32_t l = 0;

    while (l < template->lists_count && (template->lists[l].src_group != view->src_group ||
                                         template->lists[l].dst_group != view->dst_group)) {
        l++;
    }
    if (l == template->lists_count) {
        template->lists_count++;
        template->lists[l] = (struct plan_lists){.src_group = view->src_group,
                                                 .dst_group = view->dst_group,
                                                 .window = group->window,
                                                 .is_state = group->group_class == KVF_GROUP_STATE};
    }
    return l;
}

/* Common layers, ascending, and where their regions start. */
static void set_layers(struct making *making, struct plan_view_pair *view,
                       const struct geo_partner *partner, const struct kvf_view *src,
                       const struct kvf_view *dst)
{
    uint32_t *layers = &making->template->layers[making->layers_used];

    for (uint32_t layer = 0; view->layer_count < partner->shared.count; layer++) {
        if (geo_layer_set_has(&partner->shared, layer)) {
            uint32_t at = view->layer_count++;

            layers[at] = layer;
            pages_region(src, layer, &making->src_offsets[at]);
            pages_region(dst, layer, &making->dst_offsets[at]);
        }
    }
    view->layers = layers;
    making->layers_used += view->layer_count;
}

/* Gate facts of one matched pair (docs/geometry.md, section 11). */
static void note_gates(struct making *making, const struct plan_view_pair *view)
{
    struct plan_template *template = making->template;

    if (view->kind == KVF_VIEW_REPLICATED) {
        template->replicated = true;
    }
    if (view->src_factor > 1 || view->dst_factor > 1) {
        template->view_dup = true;
    }
    if (view->elected &&
        (making->writer->pools[view->src_pool].memory != making->writer->bounce.memory ||
         making->reader->pools[view->dst_pool].memory != making->reader->bounce.memory)) {
        template->memory_fits = false;
    }
}

static enum kvf_status add_pair(struct making *making, uint32_t g, uint32_t v,
                                const struct geo_partner *partner)
{
    struct plan_template *template = making->template;
    const struct kvf_group *group = &making->writer->layout.groups[g];
    const struct kvf_view *src = &group->views[v];
    const struct kvf_view *dst =
        &making->reader->layout.groups[partner->group].views[partner->view];
    struct plan_pair *pair = &template->pairs[template->pair_count];
    struct plan_view_pair *view = &pair->view;

    *view = (struct plan_view_pair){.src_group = g,
                                    .src_view = v,
                                    .dst_group = partner->group,
                                    .dst_view = partner->view,
                                    .src_pool = src->pool,
                                    .dst_pool = dst->pool,
                                    .kind = src->kind,
                                    .owner = src->owner,
                                    .role_count = src->role_count,
                                    .is_state = group->group_class == KVF_GROUP_STATE,
                                    .elected = true,
                                    .src_region_bytes = geo_view_region(src),
                                    .dst_region_bytes = geo_view_region(dst)};
    memcpy(view->roles, src->roles, sizeof(view->roles));
    view->lists = lists_for(template, view, group);
    pair->class_first = template->class_count;
    pair->src_stride = making->writer->layout.pools[src->pool].slot_stride;
    pair->dst_stride = making->reader->layout.pools[dst->pool].slot_stride;
    set_layers(making, view, partner, src, dst);
    if (src->kind == KVF_VIEW_HND || src->kind == KVF_VIEW_NHD) {
        if (!set_heads(making, view, src, dst)) {
            return KVF_E_INCOMPATIBLE;
        }
    } else if (src->kind == KVF_VIEW_REPLICATED) {
        view->elected = elected_of(making, factor(geo_group_width(&making->writer->place),
                                                  geo_group_width(&making->reader->place)));
    }
    template->pair_count++;
    note_gates(making, view);
    if (view->elected) {
        make_shapes(making, pair, src, dst);
        template->stripes_max += pair->class_count + PLAN_CLIPS_MAX - 1;
    }
    return KVF_OK;
}

static enum kvf_status add_pairs(struct making *making)
{
    for (uint32_t g = 0; g < making->writer->layout.group_count; g++) {
        for (uint32_t v = 0; v < making->writer->layout.groups[g].view_count; v++) {
            struct geo_partner partner;
            enum kvf_status status;

            if (geo_pair_view(making->writer, g, v, making->reader, &partner, NULL) != KVF_OK) {
                return KVF_E_INCOMPATIBLE;
            }
            status = partner.found ? add_pair(making, g, v, &partner) : KVF_OK;
            if (status != KVF_OK) {
                return status;
            }
        }
    }
    return KVF_OK;
}

static void order_pairs(struct plan_template *template)
{
    uint32_t used = 0;

    for (uint32_t l = 0; l < template->lists_count; l++) {
        template->lists[l].order_first = used;
        for (uint32_t p = 0; p < template->pair_count; p++) {
            if (template->pairs[p].view.lists == l && template->pairs[p].view.elected) {
                template->pair_order[used++] = p;
            }
        }
        template->lists[l].order_count = used - template->lists[l].order_first;
    }
}

/* ---- the rest of the facts ------------------------------------------------------------------ */

/* True when no earlier stage of the writer's instance has layers in common with the reader. */
static bool is_first_stage(const struct kvf_place *writer, const struct kvf_place *reader)
{
    uint32_t reader_first, reader_end;

    geo_stage_layers(reader, reader->pp_rank, &reader_first, &reader_end);
    for (uint32_t p = 0; p < writer->pp_rank; p++) {
        uint32_t first, end;

        geo_stage_layers(writer, p, &first, &end);
        if ((first > reader_first ? first : reader_first) < (end < reader_end ? end : reader_end)) {
            return false;
        }
    }
    return true;
}

static void set_aux(struct making *making)
{
    struct plan_template *template = making->template;
    uint32_t q =
        factor(geo_group_width(&making->writer->place), geo_group_width(&making->reader->place));
    bool any = false;
    bool turn;

    template->aux_count = making->writer->layout.aux_count;
    for (uint32_t a = 0; a < template->aux_count; a++) {
        template->src_aux[a] = making->writer->aux[a];
        template->dst_aux[a] = making->reader->aux[a];
        any = any || making->writer->aux[a].item_bytes > 0;
    }
    turn = geo_group_index(&making->writer->place) % q == 0;
    template->aux_elected =
        any &&turn &&is_first_stage(&making->writer->place, &making->reader->place);
}

static void set_facts(struct making *making)
{
    struct plan_template *template = making->template;
    const struct geo_record *writer = making->writer;
    const struct geo_record *reader = making->reader;
    uint64_t src_all = (uint64_t)writer->layout.kv_heads * geo_group_width(&writer->place);
    uint64_t dst_all = (uint64_t)reader->layout.kv_heads * geo_group_width(&reader->place);

    template->tokens_per_block = writer->layout.tokens_per_block;
    template->src_groups = writer->layout.group_count;
    template->dst_groups = reader->layout.group_count;
    template->src_bounce = writer->bounce;
    template->dst_bounce = reader->bounce;
    template->memory_fits = true;
    template->rank_dup = factor(src_all, dst_all) != 1 || factor(dst_all, src_all) != 1;
    template->cp = writer->place.cp_size != 1 || reader->place.cp_size != 1;
    template->src_pp = writer->place.pp_size > 1;
    set_aux(making);
}

enum kvf_status plan_template_open(const struct kvf_heap *heap, const struct geo_record *writer,
                                   const struct geo_record *reader,
                                   struct plan_template **template_out)
{
    struct making making = {.writer = writer, .reader = reader};
    struct sizes sizes = {0};
    struct bump bump = {0};
    enum kvf_status status;

    if (!geo_is_asked(&reader->place, &writer->place)) {
        return KVF_E_INVAL;
    }
    /*
     * The one gate that makes the arithmetic below safe; cheap beside the rest of a first contact.
     */
    if (geo_check_peer(writer, reader, GEO_CONTEXT, NULL) != KVF_OK) {
        return KVF_E_INCOMPATIBLE;
    }
    status = count_sizes(writer, reader, &sizes);
    if (status != KVF_OK) {
        return status;
    }
    cut_template(&making, &sizes, &bump);
    bump.base = kvf_alloc(heap, bump.used_bytes, 1);
    if (bump.base == NULL) {
        return KVF_E_NOMEM;
    }
    bump.used_bytes = 0;
    cut_template(&making, &sizes, &bump);
    making.template->heap = heap;
    set_facts(&making);
    status = add_pairs(&making);
    if (status != KVF_OK) {
        goto free_template;
    }
    order_pairs(making.template);
    KVF_ASSERT(making.template->base_count <= sizes.bases);
    *template_out = making.template;
    return KVF_OK;

free_template:
    kvf_release(heap, making.template);
    return status;
}

void plan_template_close(struct plan_template *template)
{
    if (template != NULL) {
        kvf_release(template->heap, template);
    }
}
