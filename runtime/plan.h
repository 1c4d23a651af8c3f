/*
 * plan.h - which bytes move for a request: stripes made from a template of a (writer, reader) pair
 * of ranks and the block lists of the request. The rules are docs/geometry.md, sections 6 and 8 to
 * 11.
 *
 * Pure: no I/O, no clock; memory is taken in plan_template_open() alone. Filling costs time per
 * block, never per fragment. May include base, pages.h and geometry.h.
 *
 * Order of calls, on either side:
 *   once per peer     geo_check_peer(), plan_template_open()
 *   once per request  plan_check_lists() for each side's lists, plan_check_request()
 *   once per piece    plan_check_request(), plan_count(), plan_fill()
 */
#ifndef KVF_PLAN_H
#define KVF_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>
#include <kvferry/kvf_status.h>

#include "geometry.h"
#include "heap.h"
#include "stripe.h"

#define PLAN_NO_SLOT UINT32_MAX

/*
 * Opaque; one for each (writer rank, reader rank). Unchanged by all calls: any thread may read it.
 */
struct plan_template;

/*
 * One pair of matched views, in the writer's (group, view) order. Counts of heads are effective
 * counts; for views that are not split by head all five and the factors are 0.
 */
struct plan_view_pair {
    uint32_t src_group, src_view; /* at the writer */
    uint32_t dst_group, dst_view; /* at the reader */
    uint32_t src_pool, dst_pool;
    uint32_t lists; /* which pair of (writer group, reader group), see plan_lists_count() */
    enum kvf_view_kind kind;
    enum kvf_owner owner;
    uint32_t role_count;
    uint32_t roles[KVF_VIEW_ROLES_MAX];
    bool is_state;
    bool elected; /* this writer sends it to this reader */
    uint32_t src_heads, dst_heads;
    uint32_t src_head_first, dst_head_first, head_count;
    uint32_t src_factor, dst_factor; /* docs/geometry.md, section 6 */
    uint64_t src_region_bytes, dst_region_bytes;
    uint32_t layer_count;
    const uint32_t *layers; /* common layers, ascending; borrows: as long as the template */
};

/* One request as the two ranks see it. Arrays borrow until the call returns. */
struct plan_request {
    uint32_t prompt_tokens;
    uint32_t src_count; /* lists of the writer = groups of its record */
    uint32_t dst_count; /* lists of the reader = groups of its record */
    const struct kvf_block_list *src;
    const struct kvf_block_list *dst;
    uint32_t src_aux_slot; /* PLAN_NO_SLOT = none */
    uint32_t dst_aux_slot;
};

/* One write: a range of tokens and of layers. State and aux go with the last, layers or not. */
struct plan_piece {
    uint32_t token_first; /* on a block */
    uint32_t token_end;   /* on a block, or the prompt's end */
    uint32_t layer_first; /* global layers [layer_first, layer_end); all: 0, PLAN_LAYERS_ALL */
    uint32_t layer_end;
    bool last;
};
#define PLAN_LAYERS_ALL UINT32_MAX

/* Addresses of slot 0 of every pool as the copier sees them. Borrows until the call returns. */
struct plan_addresses {
    const uint64_t *src; /* [pools of the writer] */
    const uint64_t *dst; /* [pools of the reader] */
};

/* The caller's arrays that plan_fill() writes; both stay in use as long as the stripes. */
struct plan_scratch {
    struct stripe *stripes;
    struct stripe_pair *pairs;
    uint32_t stripes_max; /* enough: plan_stripes_max() */
    uint32_t pairs_max;   /* enough: plan_pairs_max() */
};

/* Sums over the fragments of a write, before any joining across runs or blocks. */
struct plan_totals {
    uint64_t fragments;
    uint64_t bytes;
    uint64_t largest_bytes; /* of one fragment */
    uint32_t blocks;        /* moved block pairs, over all pairs of lists; a state slot counts 1 */
};

/* What plan_fill() made. */
struct plan_filled {
    uint32_t stripe_count;
    uint32_t pair_count;
    struct plan_totals totals;
};

struct plan_fragment {
    uint64_t src;
    uint64_t dst;
    uint64_t bytes;
};

/*
 * Pairs the views of two ranks that passed geo_check_peer() and of which the reader asks the
 * writer.
 * Copies what it needs of the records; one allocation. `template_out` gives: plan_template_close().
 * E_INVAL when the reader does not ask this writer, E_INCOMPATIBLE when the records do not fit,
 * E_NOMEM.
 */
enum kvf_status plan_template_open(const struct kvf_heap *heap, const struct geo_record *writer,
                                   const struct geo_record *reader,
                                   struct plan_template **template_out);

/* NULL is fine. */
void plan_template_close(struct plan_template *template);

/* Matched view pairs, elected or not, in the writer's order. */
uint32_t plan_view_pairs(const struct plan_template *template);
const struct plan_view_pair *plan_view_pair(const struct plan_template *template, uint32_t index);

/* True when the writer sends at least one view to this reader (else its writes are all empty). */
bool plan_elected(const struct plan_template *template);

/* Pairs of (writer group, reader group) that have matched views. */
uint32_t plan_lists_count(const struct plan_template *template);

/* Upper bounds for plan_scratch, for requests of at most `blocks` blocks in every list. */
uint32_t plan_stripes_max(const struct plan_template *template);
uint32_t plan_pairs_max(const struct plan_template *template, uint32_t blocks);

/* Blocks of a prompt: ceil(P / T). */
uint32_t plan_blocks(uint32_t prompt_tokens, uint32_t tokens_per_block);

/* Leading blocks that a group of this window no longer needs: from the prompt's length alone. */
uint32_t plan_stale(uint32_t prompt_tokens, uint32_t window, uint32_t tokens_per_block);

/* First ordinal that a reader publishes: max(stale, cached / T), at most plan_blocks(). */
uint32_t plan_first_ordinal(uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t window,
                            uint32_t tokens_per_block);

/* The piece that is the whole request. */
struct plan_piece plan_whole(uint32_t prompt_tokens);

/* 64-bit words of the bitmap that plan_check_lists() wants for this record. */
uint32_t plan_check_words(const struct geo_record *record);

/*
 * One side's lists against its record: E_REQ_GROUPS, E_INVAL (a count without slots), E_REQ_PIECE
 * (ordinals beyond 32 bits), E_REQ_SLOT, E_REQ_STATE (a state list that is not one slot or none),
 * and with a bitmap (the reader's lists) E_REQ_SLOT_TWICE. The bitmap is all zero before and after.
 * O(blocks). text_out may be NULL.
 */
enum kvf_status plan_check_lists(const struct geo_record *record,
                                 const struct kvf_block_list *lists, uint32_t list_count,
                                 uint64_t *bitmap, struct geo_text *text_out);

/*
 * A reader's lists, checked by plan_check_lists(), take in every block that the prompt needs and
 * the reader does not have: E_REQ_PIECE, E_REQ_STATE. Blocks beyond the prompt do no harm. A list
 * that falls short would make a request READY with bytes missing. text_out may be NULL.
 */
enum kvf_status plan_check_cover(const struct geo_record *reader,
                                 const struct kvf_block_list *lists, uint32_t prompt_tokens,
                                 uint32_t cached_tokens, struct geo_text *text_out);

/*
 * The two sides' lists, checked by plan_check_lists(), against each other and the piece:
 * E_REQ_GROUPS, E_REQ_PIECE, E_REQ_BLOCKS, and with the last piece E_REQ_STATE and E_REQ_AUX.
 * O(groups). text_out may be NULL.
 */
enum kvf_status plan_check_request(const struct plan_template *template,
                                   const struct plan_request *request,
                                   const struct plan_piece *piece, struct geo_text *text_out);

/*
 * Totals of a write without making it; needs the reader's lists alone (src may be NULL), so that
 * the reader can foresee what each writer sends. O(runs).
 */
void plan_count(const struct plan_template *template, const struct plan_request *request,
                const struct plan_piece *piece, struct plan_totals *totals_out);

/* The same for one view pair. */
void plan_count_pair(const struct plan_template *template, uint32_t index,
                     const struct plan_request *request, const struct plan_piece *piece,
                     struct plan_totals *totals_out);

/*
 * Makes the stripes of a write that passed plan_check_request(). Stripes of one pair of lists share
 * their slot pairs. Pairs point into the scratch, bases into the template. A write with nothing to
 * send gives 0 stripes. E_TOO_LARGE when the scratch is too small, E_REQ_BLOCKS.
 */
enum kvf_status plan_fill(const struct plan_template *template, const struct plan_request *request,
                          const struct plan_piece *piece, const struct plan_addresses *addresses,
                          const struct plan_scratch *scratch, struct plan_filled *filled_out);

/*
 * Walks the fragments of stripes: stripe by stripe, block by block, base by base, piece by piece.
 */
struct plan_walk {
    const struct stripe *stripes; /* borrows: until the walk ends */
    uint32_t stripe_count;
    uint32_t stripe;
    uint32_t pair;
    uint32_t base;
    uint32_t piece;
};

void plan_walk_init(struct plan_walk *walk, const struct stripe *stripes, uint32_t stripe_count);

/* The next fragment; false at the end. */
bool plan_walk_next(struct plan_walk *walk, struct plan_fragment *fragment_out);

/*
 * Bytes that all writers together send to a reader for one whole request: its own views times its
 * published blocks that are neither stale nor past the prompt (docs/geometry.md, section 10). What
 * one writer sends is plan_count() of the whole piece.
 */
uint64_t plan_expected_bytes(const struct geo_record *reader, const struct plan_request *request);

/* True when this writer sends the auxiliary buffers to this reader (some buffer is not empty). */
bool plan_aux_elected(const struct plan_template *template);

/*
 * Aux fragment `index` of a request, 0 <= index < aux buffers: addresses of the owners' processes.
 * False for one that does not move: not elected, empty, without slots, or no slot in the request.
 */
bool plan_aux_fragment(const struct plan_template *template, const struct plan_request *request,
                       uint32_t index, struct plan_fragment *fragment_out);
uint32_t plan_aux_count(const struct plan_template *template);

/* Verdict of the per-write bounce gate; PLAN_BOUNCE_OK admits. In the order of the tests. */
enum plan_bounce {
    PLAN_BOUNCE_OK,
    PLAN_BOUNCE_OFF,
    PLAN_BOUNCE_VERSION,
    PLAN_BOUNCE_CHUNK,
    PLAN_BOUNCE_TIMEOUT,
    PLAN_BOUNCE_MEMORY,
    PLAN_BOUNCE_EMPTY,
    PLAN_BOUNCE_COUNT,
    PLAN_BOUNCE_FRAGMENT_SIZE,
    PLAN_BOUNCE_AVERAGE,
};

/* The handshake part alone: OK, OFF, VERSION, CHUNK, TIMEOUT or MEMORY (of the arenas). */
enum plan_bounce plan_bounce_handshake(const struct geo_bounce *writer,
                                       const struct geo_bounce *reader);

/* The whole gate for one write with these totals. */
enum plan_bounce plan_bounce_gate(const struct plan_template *template,
                                  const struct plan_totals *totals);
const char *plan_bounce_name(enum plan_bounce verdict); /* "ok", "off", ... as in the docs */

/* Verdict of the equal-split gate; SINGLE and EQUAL allow. In the order of the tests. */
enum plan_split {
    PLAN_SPLIT_SINGLE,
    PLAN_SPLIT_EMPTY,
    PLAN_SPLIT_DP_UNKNOWN,
    PLAN_SPLIT_CP,
    PLAN_SPLIT_PP,
    PLAN_SPLIT_DUP,
    PLAN_SPLIT_VIEW_DUP,
    PLAN_SPLIT_REPLICATED,
    PLAN_SPLIT_EQUAL,
};

/*
 * What the equal-split gate looks at. Zero it, set the first two, add the template of every asked
 * rank.
 */
struct plan_split_facts {
    uint32_t finals;  /* geo_finals() */
    bool group_known; /* the writer's dp group */
    bool cp;          /* context parallelism on either side */
    bool pp;          /* the writer's instance has several stages */
    bool dup;         /* a rank-wide factor, either direction, is not 1 */
    bool view_dup;    /* a factor of a matched head view, either direction, is not 1 */
    bool replicated;  /* a matched REPLICATED view */
};

void plan_split_add(struct plan_split_facts *facts, const struct plan_template *template);
enum plan_split plan_split_gate(const struct plan_split_facts *facts);
bool plan_split_allowed(enum plan_split verdict);
const char *plan_split_name(enum plan_split verdict); /* "single", "dp-unknown", ... */

/*
 * Counts chunks as the bounce packs them (docs/geometry.md, section 11.1); fragments stream
 * through.
 */
struct plan_packer {
    uint64_t chunk_bytes;  /* effective chunk */
    uint64_t entries_max;  /* max(1024, chunk / 256) */
    uint64_t fill_bytes;   /* of the open chunk */
    uint64_t entries;      /* of the open chunk, after joining */
    uint64_t chunks;       /* the open one included */
    uint64_t packed_bytes; /* padding included, of all chunks */
    struct plan_fragment previous;
};
#define PLAN_PACK_ALIGN 32u

void plan_packer_init(struct plan_packer *packer, uint64_t chunk_bytes);
/* fragment->bytes <= chunk_bytes. */
void plan_packer_add(struct plan_packer *packer, const struct plan_fragment *fragment);

#endif /* KVF_PLAN_H */
