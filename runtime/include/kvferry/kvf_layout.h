/*
 * kvf_layout.h - what a KV cache looks like: the model, one rank's place, and the rank's layout.
 *
 * Plain data, no calls that do I/O. A layout says which pools a rank has, which bytes of a pool
 * slot belong to which (layer, role), and how each view is split over ranks. An engine writes its
 * own layout, or has kvf_layout_from_model() make the one that its allocator would make.
 *
 * Words: a block is tokens_per_block tokens of one layer group; a slot is the storage of one block
 * in one pool; a view is the bytes of one role class of one group inside one pool. The complete
 * description is docs/geometry.md.
 */
#ifndef KVF_LAYOUT_H
#define KVF_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Version of the records that ranks tell each other of their caches; peers of another one are
 * refused.
 */
#define KVF_GEOMETRY_VERSION 1u

/* Buffer roles, in the order they take inside a layer. */
enum kvf_role_kind {
    KVF_KEY,
    KVF_VALUE,
    KVF_KEY_SCALE,
    KVF_VALUE_SCALE,
    KVF_INDEX_KEY,
    KVF_CONV_STATE,
    KVF_SSM_STATE,
    KVF_SIDE_STATE,
};
#define KVF_ROLE_KIND_COUNT 8

enum kvf_view_kind {
    KVF_VIEW_HND,        /* per buffer [head][token][dim], split by head */
    KVF_VIEW_NHD,        /* per buffer [token][head][dim], split by head */
    KVF_VIEW_REPLICATED, /* opaque, every rank of a dp group holds the same bytes */
    KVF_VIEW_UNITS,      /* [unit], split evenly, never duplicated */
    KVF_VIEW_SECTIONS,   /* [section 0][section 1]..., each split evenly on its own */
};

enum kvf_owner { KVF_OWNER_TARGET, KVF_OWNER_DRAFT };

enum kvf_group_class {
    KVF_GROUP_PAGED, /* block list grows with the prompt */
    KVF_GROUP_STATE, /* one slot a request, recurrent */
};

/* Element types; KVF_DTYPE_NONE = not stated. */
enum kvf_dtype {
    KVF_DTYPE_NONE,
    KVF_DTYPE_BF16,
    KVF_DTYPE_FP16,
    KVF_DTYPE_FP8_E4M3,
    KVF_DTYPE_FP4_E2M1,
    KVF_DTYPE_F32,
};

/* Bits of one element, 0 for KVF_DTYPE_NONE. */
KVF_API uint32_t kvf_dtype_bits(enum kvf_dtype dtype);

/* One buffer: `size` bytes at `offset` of a slot. Address in slot s: base + s*stride + offset. */
struct kvf_entry {
    uint32_t layer; /* global layer */
    uint32_t role;  /* enum kvf_role_kind */
    uint64_t offset;
    uint64_t size;
};

#define KVF_VIEW_ROLES_MAX 2
#define KVF_VIEW_SECTIONS_MAX 16

struct kvf_view {
    uint32_t pool; /* index into kvf_layout.pools */
    enum kvf_view_kind kind;
    enum kvf_owner owner;
    enum kvf_dtype dtype; /* KVF_DTYPE_NONE = not stated */
    bool has_heads;       /* heads was stated (HND and NHD only) */
    bool has_heads_total;
    uint32_t heads;       /* KV heads this rank holds in each layer of the view */
    uint32_t heads_total; /* KV heads of the model in each layer of the view */
    uint64_t unit_bytes;  /* KVF_VIEW_UNITS */
    uint32_t section_count;
    uint64_t section_bytes[KVF_VIEW_SECTIONS_MAX]; /* KVF_VIEW_SECTIONS, this rank's share */
    uint32_t role_count;
    uint32_t roles[KVF_VIEW_ROLES_MAX]; /* enum kvf_role_kind, in role order */
    uint32_t entry_count;
    const struct kvf_entry *entries; /* sorted by offset */
};

#define KVF_WINDOW_NONE 0u

struct kvf_group {
    enum kvf_group_class group_class;
    uint32_t window; /* sliding window in tokens, KVF_WINDOW_NONE = none; paged groups only */
    uint32_t layer_count;
    const uint32_t *layers; /* global layers, ascending */
    uint32_t view_count;
    const struct kvf_view *views;
};

struct kvf_pool_shape {
    uint64_t slot_bytes;  /* bytes of a slot that are in use */
    uint64_t slot_stride; /* distance of slots, >= slot_bytes */
    bool is_state;        /* slots hold state groups: one slot a request */
    uint32_t group;       /* the group that uses it (the first, when several share it) */
};

/* Place of one rank in its instance. Filled by kvf_place() or by the engine. */
struct kvf_place {
    uint32_t tp_size, tp_rank;
    uint32_t pp_size, pp_rank;
    uint32_t cp_size, cp_rank; /* 1, 0: context parallelism is refused */
    bool attention_dp;
    uint32_t dp_size, dp_rank;     /* without attention DP 1, 0 */
    const uint32_t *layers_per_pp; /* [pp_size], drafts included; borrows */
};

/* One rank's cache. */
struct kvf_layout {
    uint32_t tokens_per_block;
    uint32_t layer_count;  /* of the model, drafts included; 0 = the highest named + 1 */
    uint32_t draft_layers; /* how many of the last global layers are draft-owned */
    uint32_t kv_heads;     /* first non-zero per-rank head count in layer order, 0 = none */
    uint32_t head_dim;
    enum kvf_dtype dtype;
    uint32_t elem_bits; /* may be 4 */
    bool mla;
    bool ownership_bridge;
    uint32_t pool_count;
    const struct kvf_pool_shape *pools;
    uint32_t group_count;
    const struct kvf_group *groups;
    uint32_t aux_count;
    const uint32_t *aux_bytes; /* [aux_count]; carried inside the report */
};

/*
 * Slots of consecutive block ordinals [first, first + count) of one group of one request. A state
 * group has one slot: first 0, count 1 (count 0 = none). Ordinal b covers tokens
 * [b * tokens_per_block, (b + 1) * tokens_per_block) of the prompt.
 */
struct kvf_block_list {
    uint32_t first;
    uint32_t count;
    const uint32_t *slots; /* [count] */
};

/* One layer of a model; layers are numbered from 0, targets first, then drafts. */
struct kvf_model_layer {
    enum kvf_owner owner;
    uint32_t kv_heads; /* model-wide, 0 = no KV buffers */
    uint32_t head_dim;
    enum kvf_dtype dtype;
    uint32_t elem_bits;
    bool k_only;
    uint32_t window;           /* KVF_WINDOW_NONE = full attention */
    uint32_t scale_per;        /* elements that share one scale, 0 = no scales */
    uint32_t scale_bits;       /* bits of one scale */
    uint32_t index_bytes;      /* index-key bytes a token, 0 = none */
    uint32_t state_units;      /* recurrent layer: model-wide units (heads), 0 = not recurrent */
    uint64_t state_unit_bytes; /* bytes of one unit */
    uint32_t section_count;    /* recurrent layer: convolution sections */
    uint64_t section_bytes[KVF_VIEW_SECTIONS_MAX]; /* model-wide, divided by the TP width */
};

struct kvf_model {
    uint32_t layer_count;
    const struct kvf_model_layer *layers; /* borrows */
    uint32_t tokens_per_block;
    bool nhd; /* token-major pages */
    bool mla;
    bool ownership_bridge;
    uint32_t aux_count;
    const uint32_t *aux_bytes; /* borrows */
};

/*
 * Makes the layout that rank `place` has of `model`: buffers of one group with the same size share
 * one pool, layer-major, then in role order (docs/geometry.md, section 3). `layout_out` gives: free
 * it with kvf_layout_free(). On an error `text_out` (may be NULL, text_bytes long) says which layer
 * and which numbers. Any thread; allocates; does not block.
 * Errors: E_TP_HEADS, E_DP_SHAPE, E_CP, E_STATE_UNIT, E_STATE_SECTIONS, E_INVAL, E_NOMEM.
 */
KVF_API enum kvf_status kvf_layout_from_model(const struct kvf_model *model,
                                              const struct kvf_place *place,
                                              struct kvf_layout **layout_out, char *text_out,
                                              size_t text_bytes);

/* Frees a layout made by kvf_layout_from_model(); NULL is fine. */
KVF_API void kvf_layout_free(struct kvf_layout *layout);

#ifdef __cplusplus
}
#endif

#endif /* KVF_LAYOUT_H */
