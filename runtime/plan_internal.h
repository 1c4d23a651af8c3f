/*
 * plan_internal.h - the template, shared by the plan files. Others include plan.h.
 *
 * Invariants:
 *  1. bases of a class are in order of their layers; runs of a view pair do not overlap.
 *  2. a base of a class covers run_layers layers; every common layer of an elected paged pair lies
 *     in exactly one run.
 *  3. pair_order lists the elected pairs, those of one pair of lists next to each other.
 */
#ifndef KVF_PLAN_INTERNAL_H
#define KVF_PLAN_INTERNAL_H

#include "plan.h"

/* Fragments of one shape of one view pair: one stripe, without slots and addresses. */
struct plan_class {
    uint32_t base_first; /* in plan_template.bases and base_layers */
    uint32_t base_count;
    uint32_t run_layers;  /* layers that one base covers, contiguous in its one piece when > 1 */
    uint32_t piece_count; /* > 1 only with run_layers 1 */
    uint64_t piece_bytes;
    uint64_t src_piece_stride;
    uint64_t dst_piece_stride;
};

/* A view pair and its classes. */
struct plan_pair {
    struct plan_view_pair view;
    uint32_t class_first;
    uint32_t class_count; /* 0 when not elected */
    uint64_t src_stride;  /* slot to slot */
    uint64_t dst_stride;
};

/* A pair of groups with matched views: one pair of block lists. */
struct plan_lists {
    uint32_t src_group;
    uint32_t dst_group;
    uint32_t window;
    bool is_state;
    uint32_t order_first; /* its elected pairs in pair_order */
    uint32_t order_count;
};

struct plan_template {
    const struct kvf_heap *heap;
    uint32_t tokens_per_block;
    uint32_t src_groups;
    uint32_t dst_groups;
    uint32_t pair_count;
    uint32_t class_count;
    uint32_t base_count;
    uint32_t lists_count;
    uint32_t stripes_max;
    struct plan_pair *pairs;
    struct plan_class *classes;
    struct stripe_base *bases;
    uint32_t *base_layers; /* index in the pair's layers of the first layer of a base */
    uint32_t *layers;      /* of all pairs */
    struct plan_lists *lists;
    uint32_t *pair_order;
    /* aux, section 9 */
    bool aux_elected;
    uint32_t aux_count;
    struct geo_aux *src_aux;
    struct geo_aux *dst_aux;
    /* gates, section 11 */
    struct geo_bounce src_bounce;
    struct geo_bounce dst_bounce;
    bool memory_fits; /* pools of all elected pairs are of their arena's kind */
    bool replicated;  /* some matched view is REPLICATED */
    bool view_dup;    /* a factor of some matched head view is not 1 */
    bool rank_dup;    /* a rank-wide factor is not 1 */
    bool cp;          /* context parallelism on either side */
    bool src_pp;      /* the writer's instance has several stages */
};

/* Moved ordinals [first_out, first_out + count) of a pair of lists; a state slot is ordinal 0. */
uint32_t plan_moved(const struct plan_template *template, const struct plan_lists *lists,
                    const struct plan_request *request, const struct plan_piece *piece,
                    uint32_t *first_out);

/* Part of a class that a range of layers leaves: at most three of them. */
struct plan_clip {
    uint32_t base_first; /* in plan_template.bases */
    uint32_t base_count;
    uint64_t shift_bytes; /* to be added to both sides' bases */
    uint64_t piece_bytes;
};
#define PLAN_CLIPS_MAX 3u

uint32_t plan_clip_class(const struct plan_template *template, const struct plan_pair *pair,
                         const struct plan_class *class, const struct plan_piece *piece,
                         struct plan_clip clips_out[PLAN_CLIPS_MAX]);

#endif /* KVF_PLAN_INTERNAL_H */
