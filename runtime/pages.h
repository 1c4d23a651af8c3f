/*
 * pages.h - the pools, groups and views of one rank, made from a model, and look-ups in a layout.
 * kvf_layout_from_model(), kvf_layout_free() and kvf_dtype_bits() are declared in kvf_layout.h.
 * The rules are docs/geometry.md, sections 2 and 3.
 *
 * Pure: no I/O, no clock; memory is taken at open alone. May include base.
 */
#ifndef KVF_PAGES_H
#define KVF_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>
#include <kvferry/kvf_status.h>

#include "heap.h"

/* How views are cut. The last two are the forms of older releases. */
enum pages_form {
    PAGES_PARTITIONED, /* by (owner, model-wide heads) where the model states per-layer facts */
    PAGES_WHOLE,       /* never; two head counts in one view give E_VIEW_MIXED_HEADS */
    PAGES_LEGACY,      /* never, and no view states its heads */
};

struct pages_params {
    const struct kvf_model *model; /* borrows: until the call returns */
    const struct kvf_place *place; /* borrows: until the call returns */
    enum pages_form form;
};

/*
 * kvf_layout_from_model() with a heap of the caller. `layout_out` gives: pages_layout_close().
 * text_out may be NULL. Also E_VIEW_MIXED_HEADS with PAGES_WHOLE, E_TOO_LARGE.
 */
enum kvf_status pages_layout_open(const struct kvf_heap *heap, const struct pages_params *params,
                                  struct kvf_layout **layout_out, char *text_out,
                                  size_t text_bytes);

/* NULL is fine. */
void pages_layout_close(const struct kvf_heap *heap, struct kvf_layout *layout);

/* Bytes that pages_layout_copy() needs behind a struct kvf_layout; a multiple of 16. */
size_t pages_layout_bytes(const struct kvf_layout *layout);

/*
 * Deep copy: all that `from` points to goes into `memory` (pages_layout_bytes() long, aligned to
 * 16, borrowed by `layout_out` for as long as it is used).
 */
void pages_layout_copy(const struct kvf_layout *from, void *memory, struct kvf_layout *layout_out);

/*
 * E_INVAL, E_DP_SHAPE: a place that contradicts itself. text may be NULL. Context parallelism is
 * not its business.
 */
enum kvf_status pages_check_place(const struct kvf_place *place, char *text, size_t text_bytes);

/* Where one buffer lies. */
struct pages_place {
    uint32_t group;
    uint32_t view; /* in its group */
    uint32_t pool;
    const struct kvf_entry *entry; /* borrows: as long as the layout */
};

/* Finds the buffer of (global layer, role); false when this rank has none. */
bool pages_find(const struct kvf_layout *layout, uint32_t layer, enum kvf_role_kind role,
                struct pages_place *place_out);

/* Offset of a layer's region in a view's slot; false when the view has no such layer. */
bool pages_region(const struct kvf_view *view, uint32_t layer, uint64_t *offset_out);

/* True when the group lists the layer. */
bool pages_group_has(const struct kvf_group *group, uint32_t layer);

#endif /* KVF_PAGES_H */
