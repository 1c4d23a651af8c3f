/*
 * bounce_pack.h - cuts the fragments of a write into chunks and writes each chunk down as runs:
 * regular series of pieces, not one entry a fragment (docs/geometry.md, section 11.1). Pure.
 *
 * The chunks of a write are always the same, so they are never stored: sizes, gather and the runs
 * of a DATA message each walk over them again from the place where a chunk begins.
 *
 * May include base only.
 */
#ifndef XFER_BOUNCE_PACK_H
#define XFER_BOUNCE_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "stripe.h"

#define BOUNCE_PACK_ALIGN 32u

/* Most pieces of one chunk, for this effective chunk size. */
static inline uint64_t bounce_pieces_max(uint64_t chunk_bytes)
{
    return chunk_bytes / 256 > 1024 ? chunk_bytes / 256 : 1024;
}

/* Where a chunk begins. */
struct bounce_place {
    uint32_t stripe, pair, base, piece;
    uint64_t offset; /* inside a fragment that is larger than a chunk */
};

/*
 * A series of `pieces` pieces: piece i lies at src + i * src_stride, at dst + i * dst_stride, and
 * in the chunk at chunk_offset + i * chunk_stride. Strides are 0 for a single piece.
 */
struct bounce_run {
    uint64_t src;
    uint64_t src_stride; /* modulo 2^64: pages may lie in any order */
    uint64_t dst;
    uint64_t dst_stride; /* > 0 */
    uint64_t chunk_offset;
    uint32_t chunk_stride;
    uint32_t piece_bytes; /* > 0 */
    uint32_t pieces;      /* > 0 */
};

/* A walk over the chunks of a write. The caller's storage. */
struct bounce_pack {
    const struct stripe *stripes; /* borrows: until the walk ends */
    uint32_t stripe_count;
    uint64_t chunk_bytes;   /* effective chunk, >= BOUNCE_PACK_ALIGN */
    struct bounce_place at; /* next fragment */
    uint64_t fill_bytes;    /* of the chunk so far */
    uint64_t payload_bytes; /* the same without padding */
    uint32_t entries;       /* pieces of it, the open one included */
    struct bounce_run open; /* one piece that may still grow; pieces 0 = none */
    struct bounce_run run;  /* to be given out when it cannot grow; pieces 0 = none */
};

void bounce_pack_init(struct bounce_pack *pack, const struct stripe *stripes, uint32_t stripe_count,
                      uint64_t chunk_bytes);

/* The same, from where some chunk begins (pack->at before its bounce_pack_chunk()). */
void bounce_pack_seek(struct bounce_pack *pack, struct bounce_place place);

/* Begins the next chunk; false when no fragment is left. The last one's runs must all be taken. */
bool bounce_pack_chunk(struct bounce_pack *pack);

/* The next run of this chunk; false at its end: fill_bytes is then its length. */
bool bounce_pack_run(struct bounce_pack *pack, struct bounce_run *run_out);

#endif /* XFER_BOUNCE_PACK_H */
