/*
 * geometry.h - who owns which bytes: one rank's record, its wire form, who meets whom, and whether
 * two ranks fit each other. The rules are docs/geometry.md, sections 1 to 7.
 *
 * Pure: no I/O, no clock; memory is taken in x_open and geo_record_decode alone. May include base
 * and pages.h.
 */
#ifndef KVF_GEOMETRY_H
#define KVF_GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>
#include <kvferry/kvf_status.h>

#include "check.h"
#include "heap.h"

#define GEO_WIRE_VERSION KVF_GEOMETRY_VERSION

/*
 * Limits of a record: what a decoder accepts. A rank beyond one is refused at start (E_TOO_LARGE).
 */
#define GEO_NAME_MAX 63u            /* bytes of an instance name, without the end mark */
#define GEO_TP_MAX 65536u           /* ranks of one stage */
#define GEO_PP_MAX 1024u            /* stages */
#define GEO_LAYERS_MAX 4096u        /* layers of a model, drafts included */
#define GEO_POOLS_MAX 256u          /* pools of one rank */
#define GEO_GROUPS_MAX 64u          /* layer groups of one rank */
#define GEO_GROUP_LAYERS_MAX 16384u /* layers of all groups of one rank together */
#define GEO_VIEWS_MAX 1024u         /* views of one rank */
#define GEO_ENTRIES_MAX 65536u      /* entries of one rank */
#define GEO_AUX_MAX 64u             /* auxiliary buffers */
#define GEO_TOKENS_MAX 1048576u     /* tokens of one block */
#define GEO_HEADS_MAX 1048576u      /* heads of one layer */
#define GEO_SIZE_MAX (1ull << 40)   /* bytes of one entry, one slot or one stride */
#define GEO_POOL_MAX (1ull << 56)   /* bytes of one pool */
#define GEO_RECORD_BYTES_MAX (8u << 20)

#define GEO_TEXT_BYTES 512u

/* Why something was refused, in one line, always ended. */
struct geo_text {
    char s[GEO_TEXT_BYTES];
};

/* The two sides of a transfer. */
enum geo_side {
    GEO_CONTEXT,    /* sender, writer */
    GEO_GENERATION, /* receiver, reader */
};

enum geo_memory { GEO_HOST, GEO_CUDA };

/* Where a pool of kvf_layout.pools lies. */
struct geo_pool {
    uint64_t base;  /* address of slot 0 in the owner's process */
    uint64_t bytes; /* registered bytes from base on */
    uint32_t slots;
    enum geo_memory memory;
};

/* One small per-request buffer. slots 0: it has no address and travels inside the report. */
struct geo_aux {
    uint64_t base;
    uint32_t item_bytes; /* 0 is legal: nothing moves */
    uint32_t slots;
};

/*
 * Bounce handshake (docs/geometry.md, section 11). Not enabled: the other fields count for nothing.
 */
struct geo_bounce {
    bool enabled;
    uint32_t wire_version;
    uint64_t arena_bytes;
    uint64_t granularity_bytes;
    uint64_t max_chunk_bytes;
    uint32_t min_descriptor_count;
    uint64_t max_average_bytes;
    uint32_t request_timeout_ms;
    enum geo_memory memory;
};

/*
 * All that one rank tells the others about its cache. As a parameter of geo_record_open() its
 * pointers borrow until the call returns; a record that open or decode gave owns all it points to.
 *
 * Invariants of a record that passed geo_check_local():
 *  1. place: t = tp_size / dp_size is whole, dp_rank = tp_rank / t, rank follows from the place.
 *  2. every group layer lies on the rank's stage, ascending; every entry's layer is in its group.
 *  3. every region is back to back, in role order, of one size in its view, inside its pool.
 *  4. effective heads of an HND or NHD view are >= 1 and fit heads_total where that is stated.
 *  5. all counts and sizes are within the limits above, so that products of two sizes and heads
 *     and addresses of entries do not overflow 64 bits.
 */
struct geo_record {
    uint32_t wire_version;
    char instance_name[GEO_NAME_MAX + 1];
    uint32_t instance; /* number of the instance in its world */
    enum geo_side side;
    uint32_t rank; /* inside the instance: pp_rank*(tp*cp) + cp_rank*tp + tp_rank */
    struct kvf_place place;
    struct kvf_layout layout;
    const struct geo_pool *pools; /* [layout.pool_count] */
    const struct geo_aux *aux;    /* [layout.aux_count] */
    struct geo_bounce bounce;
    const struct kvf_heap *heap; /* the owner's; ignored as a parameter */
};

/*
 * Deep copy of `facts` (one allocation). It checks nothing but counts: geo_check_local() is the
 * caller's next step. `record_out` gives: geo_record_close(). E_TOO_LARGE, E_NOMEM.
 */
enum kvf_status geo_record_open(const struct kvf_heap *heap, const struct geo_record *facts,
                                struct geo_record **record_out);

/* NULL is fine. */
void geo_record_close(struct geo_record *record);

/*
 * Writes the wire form. With bytes_max 0 (bytes may be NULL) it only sets len_out, the size needed;
 * a buffer that is too small gives E_TOO_LARGE, sets len_out and leaves the buffer undefined.
 */
enum kvf_status geo_record_encode(const struct geo_record *record, void *bytes, size_t bytes_max,
                                  size_t *len_out);

/*
 * Reads a peer's record and runs geo_check_local() on it. `bytes` may be anything at all. On an
 * error nothing is kept, text_out (may be NULL) says why. `record_out` gives: geo_record_close().
 * E_WIRE_VERSION (nothing else was read), E_TRUNCATED, E_DECODE, E_TOO_LARGE, E_NOMEM, and what
 * geo_check_local() gives. All but E_NOMEM mean: this peer is refused.
 */
enum kvf_status geo_record_decode(const struct kvf_heap *heap, const void *bytes, size_t len,
                                  struct geo_record **record_out, struct geo_text *text_out);

/*
 * What makes a rank unfit by itself: limits (E_TOO_LARGE, E_INVAL), then E_DP_SHAPE, and view by
 * view E_LAYER_RANGE ... E_HEADS_UNKNOWN, E_TP_HEADS, E_STATE_*. Context parallelism and the wire
 * version are not its business. text_out may be NULL.
 */
enum kvf_status geo_check_local(const struct geo_record *record, struct geo_text *text_out);

/*
 * The 26 checks of docs/geometry.md, section 7, in their order; the first that fails is returned.
 * Both records passed geo_check_local(). `self` says which of the two is "local" in the text; the
 * status is the same from either side. Run it before anything of the peer is stored: the sender
 * when a reader's record arrives, the reader for every rank that it would ask. text_out may be
 * NULL.
 */
enum kvf_status geo_check_peer(const struct geo_record *sender, const struct geo_record *receiver,
                               enum geo_side self, struct geo_text *text_out);

/* Width of a rank's dp group, t; 0 when dp_size does not divide tp_size. */
uint32_t geo_group_width(const struct kvf_place *place);

/* Rank inside its dp group, i = tp_rank mod t. */
uint32_t geo_group_index(const struct kvf_place *place);

/* dp group of rank `rank` of an instance of this grid (only the grid fields are read). */
uint32_t geo_rank_dp(const struct kvf_place *grid, uint32_t rank);

/* Ranks of an instance of this grid. */
uint32_t geo_rank_count(const struct kvf_place *grid);

/* Global layers [first_out, end_out) of stage `pp_rank`. */
void geo_stage_layers(const struct kvf_place *grid, uint32_t pp_rank, uint32_t *first_out,
                      uint32_t *end_out);

/* Heads of a layer of `heads_total` heads that a rank holds; count 0 when they cannot be spread. */
void geo_heads_held(const struct kvf_place *place, uint32_t heads_total, uint32_t *first_out,
                    uint32_t *count_out);

/* Heads of an HND or NHD view, the rank-wide count where the view states none; 0 = unknown. */
uint32_t geo_view_heads(const struct geo_record *record, const struct kvf_view *view);

/* Bytes of one layer's region in a view (entries of one layer, all alike); 0 for an empty view. */
uint64_t geo_view_region(const struct kvf_view *view);

#define GEO_GROUP_UNKNOWN UINT32_MAX

/*
 * Ranks of another instance that `self` meets: dp group `group` of an instance with this grid, or
 * the union over its groups (GEO_GROUP_UNKNOWN), group by group, stages ascending, then TP index.
 * Reads only grid fields of `grid` (tp, pp, cp, attention_dp, dp_size, layers_per_pp). `count_out`
 * is always the whole count, also when ranks_max is too small (E_TOO_LARGE; with ranks_max 0 a
 * plain query, OK). 0 ranks is a legal answer. E_TP_RATIO, E_DP_SHAPE, E_INVAL (no such group).
 */
enum kvf_status geo_meets(const struct kvf_place *self, const struct kvf_place *grid,
                          uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                          uint32_t *count_out);

/* Ranks that a reader asks; `group` is the writer's dp group or GEO_GROUP_UNKNOWN. */
enum kvf_status geo_asked(const struct geo_record *reader, const struct kvf_place *writer_grid,
                          uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                          uint32_t *count_out);

/* Ranks that a writer serves: those of the reader's dp group whose geo_asked() names the writer. */
enum kvf_status geo_serves(const struct geo_record *writer, const struct kvf_place *reader_grid,
                           uint32_t group, uint32_t *ranks_out, uint32_t ranks_max,
                           uint32_t *count_out);

/*
 * Finals that a reader waits for to succeed: the ranks of one writer group. Statuses of geo_meets.
 */
enum kvf_status geo_finals(const struct geo_record *reader, const struct kvf_place *writer_grid,
                           uint32_t *count_out);

/* True when `reader` asks `writer` for requests of the writer's dp group. */
bool geo_is_asked(const struct kvf_place *reader, const struct kvf_place *writer);

/*
 * Usable arena: the largest granularity * 2^k <= arena, granularity rounded up to a power of two.
 */
uint64_t geo_bounce_arena(const struct geo_bounce *bounce);

/* Effective chunk: min(max chunk, usable arena), at most 4 GiB - 1; 0 when bounce is off. */
uint64_t geo_bounce_chunk(const struct geo_bounce *bounce);

/* Writes a text; NULL is fine. */
void geo_text_set(struct geo_text *text_out, const char *format, ...) KVF_PRINTF(2, 3);

const char *geo_role_name(uint32_t role);            /* "key", ...; "?" for an unknown number */
const char *geo_kind_name(enum kvf_view_kind kind);  /* "HND", ... */
const char *geo_owner_name(enum kvf_owner owner);    /* "target", "draft" */
const char *geo_dtype_name(enum kvf_dtype dtype);    /* "bf16", ...; "none" */
const char *geo_memory_name(enum geo_memory memory); /* "host", "cuda" */

#endif /* KVF_GEOMETRY_H */
