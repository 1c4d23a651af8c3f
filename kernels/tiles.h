/*
 * tiles.h - one launch of a copy: lists of stripes cut into tiles, in an argument block of fixed
 * size.
 *
 * A tile is what one warp copies in one go: several whole fragments of a part, or a cut of a large
 * one. A part is a stripe, or a range of its fragments. Neither is a list: a tile's number is all
 * that a warp needs (tiles_walk.h). What grows with a request are its tables, the bases and the
 * block pairs of the stripes; they lie in the block itself while they fit, else in memory that the
 * caller gives and the device can read.
 *
 * Pure: nothing here knows CUDA, allocates or fails but by its limits. May include what kernels.h
 * may.
 */
#ifndef KVF_TILES_H
#define KVF_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TILES_LANES = 32, /* threads of a warp; also the most blocks that a tile touches */
    TILES_WARPS_A_SM = 32,
    TILES_SMS_MAX = 4096,

    TILES_PARTS_MAX = 64, /* of one launch whose tables lie outside */
    TILES_PARTS_INSIDE_MAX = 8,
    TILES_WORDS_INSIDE_MAX = 384,
    TILES_BASES_MAX = 4096,    /* of one stripe */
    TILES_TABLE_WORDS = 16384, /* outside tables: 128 KiB */

    /* Chosen for balance; docs/benchmarks.md has what was measured. */
    TILES_BYTES_MIN = 2048,
    TILES_BYTES_MAX = 32768,
    TILES_CUT_ALIGN = 128,
    TILES_FRAGMENT_LOG2_MAX = 44, /* bytes of a fragment: its cuts can be counted */
    TILES_A_WARP = 4, /* tiles that each warp should find, where there are bytes enough */

    /* Larger fragments are copied by a warp each, smaller ones vector by vector. */
    TILES_WIDE_BYTES_MIN = 2048,
    TILES_WIDE_VECTORS_MIN = 64, /* the same for vectors of less than 16 bytes */
};

/* What is done with the fragments. */
enum tiles_kind {
    TILES_COPY,    /* from the source pages to the destination pages */
    TILES_GATHER,  /* from the source pages to staging */
    TILES_SCATTER, /* from staging to the destination pages */
    TILES_SUM_SRC, /* stage_host_sum() of the source pages */
    TILES_SUM_DST, /* of the destination pages */
};

/* n / d for n < 2^31 by one multiplication; mul 0 stands for d = 1. */
struct tiles_div {
    uint32_t mul;
    uint32_t shift;
};

/*
 * Fragments [first, first + count) of a grid of pairs x bases x pieces.
 *
 * Invariants:
 *   1. count >= 1, first < base_count x piece_count, first + count <= 2^30.
 *   2. A tile of several fragments (cuts = 1) touches at most TILES_LANES blocks.
 *   3. All addresses, strides and `bytes` are multiples of 2^width_log2.
 */
struct tiles_part {
    uint64_t src; /* address of slot 0, or of staging */
    uint64_t dst;
    uint64_t src_stride; /* from slot to slot; in staging from block to block */
    uint64_t dst_stride;
    uint64_t src_step; /* from piece to piece */
    uint64_t dst_step;
    uint64_t bytes;   /* of a fragment */
    uint64_t ordinal; /* of fragment `first` in the whole list: sums need it */
    uint32_t first;
    uint32_t count;
    uint32_t base_count;
    uint32_t piece_count;
    uint32_t a_tile;    /* fragments of a tile, 1 where cuts > 1 */
    uint32_t cuts;      /* tiles of a fragment */
    uint32_t cut_bytes; /* of all cuts of a fragment but the last */
    uint32_t bases_at;  /* words of the tables */
    uint32_t pairs_at;
    struct tiles_div by_base;
    struct tiles_div by_piece;
    struct tiles_div by_cuts;
    struct tiles_div by_vectors; /* of a fragment, where flat and not cut; sums: words of 8 bytes */
    uint8_t width_log2;
    bool flat;
    bool src_staged; /* addresses by block, not by the tables */
    bool dst_staged;
};

/* What one launch is told. Plain data, passed by value (copy_cuda.cu takes what it needs). */
struct tiles_args {
    enum tiles_kind kind;
    uint32_t part_count;
    uint32_t tile_count;   /* < 2^31 */
    uint32_t block_count;  /* thread blocks that have work, <= SMs allowed */
    uint64_t bytes;        /* that it moves */
    const uint64_t *table; /* borrows: until the launch has ended; NULL = words */
    uint32_t first_tile[TILES_PARTS_MAX];
    struct tiles_part parts[TILES_PARTS_MAX];
    uint64_t words[TILES_WORDS_INSIDE_MAX];
};

/*
 * A position in a list: either stripes (copies and sums) or spans. The caller's storage, no fini.
 *
 * Invariants:
 *   1. at <= count, and at `count` done is 0.
 *   2. Else done is below the fragments of item `at`.
 */
struct tiles_cursor {
    enum tiles_kind kind;
    const struct stripe *stripes;   /* borrows: until packed; NULL = spans */
    const struct stage_span *spans; /* borrows: until packed */
    uint32_t count;
    uint32_t at;
    uint64_t done;    /* fragments of item `at` */
    uint64_t ordinal; /* fragments of all items before */
};

/* Copies and sums of whole stripes. Count 0 with NULL is fine, and so are empty stripes. */
void tiles_init_stripes(struct tiles_cursor *cursor, enum tiles_kind kind,
                        const struct stripe *stripes, uint32_t count);

/* Gathers and scatters. */
void tiles_init_spans(struct tiles_cursor *cursor, enum tiles_kind kind,
                      const struct stage_span *spans, uint32_t count);

/* Nothing left to pack? */
bool tiles_ended(const struct tiles_cursor *cursor);

/*
 * Packs the next launch: as much of the list as fits, and moves the cursor behind it. `sms` (1 to
 * TILES_SMS_MAX) is the number of SMs that the launch may take. `table` is room for
 * TILES_TABLE_WORDS words that the device can read, used (args_out->table) only when the tables do
 * not fit into the block; NULL = none: then what is packed ends where the block is full.
 *
 * Copies bases and pairs: the list may go when the last launch is packed. E_INVAL: the cursor has
 * ended or sms is out of range. E_TOO_LARGE: a stripe has more than TILES_BASES_MAX bases, more
 * than 2^29 fragments for a pair, or fragments of more than 2^TILES_FRAGMENT_LOG2_MAX bytes, or
 * `table` is
 * NULL and the block has no room; nothing is changed.
 */
enum kvf_status tiles_pack(struct tiles_cursor *cursor, uint32_t sms, uint64_t *table,
                           struct tiles_args *args_out);

struct tiles_div tiles_div_make(uint32_t divisor); /* >= 1, < 2^31 */

/* True when the invariants of all parts hold. For tests. */
bool tiles_check(const struct tiles_args *args);

#ifdef __cplusplus
}
#endif

#endif /* KVF_TILES_H */
