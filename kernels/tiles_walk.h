/*
 * tiles_walk.h - from the number of a tile to its fragments; the same code in the kernels and, in
 * tests, on the host.
 *
 * C and CUDA C++. A warp that has tile t: tiles_find() its part, tiles_place() where it begins, one
 * tiles_block() a lane for the addresses of the blocks that it touches. No loop over fragments
 * reads a table.
 */
#ifndef KVF_TILES_WALK_H
#define KVF_TILES_WALK_H

#include "tiles.h"

#ifdef __CUDACC__
#define TILES_FN static __host__ __device__ __forceinline__
#else
#define TILES_FN static inline
#endif

TILES_FN uint32_t tiles_divide(uint32_t n, struct tiles_div div)
{
    return div.mul == 0 ? n : (uint32_t)((uint64_t)n * div.mul >> 32) >> div.shift;
}

/* Where a tile begins. */
struct tiles_place {
    uint32_t fragment;    /* of the part */
    uint32_t count;       /* fragments, >= 1 */
    uint32_t block;       /* first one touched: pair x base_count + base */
    uint32_t block_count; /* <= TILES_LANES */
    uint32_t piece;       /* of that block */
    uint64_t skip;        /* bytes of the fragment before this cut */
    uint32_t bytes;       /* of the cut; of each fragment where there are no cuts */
};

/* The part of tile `tile`: the last one that begins at or before it. */
TILES_FN uint32_t tiles_find(const uint32_t *first_tile, uint32_t part_count, uint32_t tile)
{
    uint32_t low = 0;
    uint32_t high = part_count;

    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (first_tile[middle] <= tile) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* `local`: number of the tile inside its part. */
TILES_FN struct tiles_place tiles_place(const struct tiles_part *part, uint32_t local)
{
    struct tiles_place place;
    uint32_t from, last;

    if (part->cuts > 1) {
        place.fragment = tiles_divide(local, part->by_cuts);
        place.count = 1;
        place.skip = (uint64_t)(local - place.fragment * part->cuts) * part->cut_bytes;
        place.bytes = part->cut_bytes;
        if (place.bytes > part->bytes - place.skip) {
            place.bytes = (uint32_t)(part->bytes - place.skip);
        }
    } else {
        place.fragment = local * part->a_tile;
        place.count = part->count - place.fragment;
        if (place.count > part->a_tile) {
            place.count = part->a_tile;
        }
        place.skip = 0;
        place.bytes = (uint32_t)part->bytes;
    }
    from = part->first + place.fragment;
    last = from + place.count - 1;
    place.block = tiles_divide(from, part->by_piece);
    place.piece = from - place.block * part->piece_count;
    place.block_count = tiles_divide(last, part->by_piece) - place.block + 1;
    return place;
}

/* Address of piece 0 of a block; staged: in staging. */
TILES_FN uint64_t tiles_block_address(uint64_t start, uint64_t stride, uint64_t base,
                                      uint64_t index)
{
    return start + base + index * stride;
}

/* Words of the tables that hold a block's base (two words) and pair (one). */
struct tiles_entry {
    uint32_t base_at;
    uint32_t pair_at;
};

TILES_FN struct tiles_entry tiles_entry(const struct tiles_part *part, uint32_t block)
{
    uint32_t pair = tiles_divide(block, part->by_base);
    struct tiles_entry entry;

    entry.base_at = part->bases_at + 2 * (block - pair * part->base_count);
    entry.pair_at = part->pairs_at + pair;
    return entry;
}

/* A pair as one word of the tables: the source's slot is the low half. */
TILES_FN uint64_t tiles_pair_word(uint32_t src, uint32_t dst)
{
    return (uint64_t)dst << 32 | src;
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* What word `word` of fragment `ordinal` adds to a sum; `value` is padded with zeros. */
TILES_FN uint64_t tiles_sum_word(uint64_t value, uint64_t ordinal, uint64_t word)
{
    uint64_t x = value + (ordinal + 1) * 0x9e3779b97f4a7c15u + (word + 1) * 0xc2b2ae3d27d4eb4fu;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

#endif /* KVF_TILES_WALK_H */
