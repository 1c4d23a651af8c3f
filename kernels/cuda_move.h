/*
 * cuda_move.h - how a warp moves the bytes of a tile: device code of copy_cuda.cu.
 *
 * All lanes of a warp call each function together. Loads and stores are of 16 bytes where both
 * sides allow it, and stream past the caches: no byte is read twice. No access leaves the fragment.
 */
#ifndef KVF_CUDA_MOVE_H
#define KVF_CUDA_MOVE_H

#include <cuda_runtime.h>
#include <stdint.h>

#include "tiles_walk.h"

#define MOVE_FN static __device__ __forceinline__

enum { MOVE_UNROLL = 4 }; /* vectors that each lane has under way */

/* Types that __ldcs and __stcs have, by width. */
template <int WIDTH_LOG2> struct move_vector;
template <> struct move_vector<0> {
    typedef unsigned char type;
};
template <> struct move_vector<1> {
    typedef unsigned short type;
};
template <> struct move_vector<2> {
    typedef unsigned int type;
};
template <> struct move_vector<3> {
    typedef unsigned long long type;
};
template <> struct move_vector<4> {
    typedef uint4 type;
};

MOVE_FN uint64_t move_shuffle(uint64_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, (unsigned long long)value, (int)lane);
}

/* Bytes that no vector covers: fewer than 16. */
MOVE_FN void move_bytes(uint64_t dst, uint64_t src, uint32_t bytes, uint32_t lane)
{
    if (lane < bytes) {
        ((unsigned char *)dst)[lane] = __ldcs((const unsigned char *)src + lane);
    }
}

template <int WIDTH_LOG2>
MOVE_FN void move_vectors(uint64_t dst, uint64_t src, uint32_t count, uint32_t lane)
{
    typedef typename move_vector<WIDTH_LOG2>::type vector;
    const vector *from = (const vector *)src;
    vector *to = (vector *)dst;
    uint32_t at = lane;

    for (; at + (MOVE_UNROLL - 1) * TILES_LANES < count; at += MOVE_UNROLL * TILES_LANES) {
        vector value[MOVE_UNROLL];
#pragma unroll
        for (int i = 0; i < MOVE_UNROLL; i++) {
            value[i] = __ldcs(from + at + i * TILES_LANES);
        }
#pragma unroll
        for (int i = 0; i < MOVE_UNROLL; i++) {
            __stcs(to + at + i * TILES_LANES, value[i]);
        }
    }
    for (; at < count; at += TILES_LANES) {
        __stcs(to + at, __ldcs(from + at));
    }
}

/* Head and tail by bytes, the body by the widest vector that both sides share. */
template <int WIDTH_LOG2>
MOVE_FN void move_wide(uint64_t dst, uint64_t src, uint32_t bytes, uint32_t lane)
{
    uint32_t head = (0u - (uint32_t)dst) & ((1u << WIDTH_LOG2) - 1);
    uint32_t vectors, done;

    if (head > bytes) {
        head = bytes;
    }
    vectors = (bytes - head) >> WIDTH_LOG2;
    done = head + (vectors << WIDTH_LOG2);
    move_bytes(dst, src, head, lane);
    move_vectors<WIDTH_LOG2>(dst + head, src + head, vectors, lane);
    move_bytes(dst + done, src + done, bytes - done, lane);
}

/* One fragment or cut, any size and alignment, by the whole warp. */
MOVE_FN void move_fragment(uint64_t dst, uint64_t src, uint32_t bytes, uint32_t lane)
{
    uint32_t apart = (uint32_t)(dst ^ src) & 15;

    if (apart == 0) {
        move_wide<4>(dst, src, bytes, lane);
    } else if ((apart & 7) == 0) {
        move_wide<3>(dst, src, bytes, lane);
    } else if ((apart & 3) == 0) {
        move_wide<2>(dst, src, bytes, lane);
    } else if ((apart & 1) == 0) {
        move_wide<1>(dst, src, bytes, lane);
    } else {
        move_wide<0>(dst, src, bytes, lane);
    }
}

/* Addresses of the blocks of a tile: of block `lane`, in each lane. */
struct move_blocks {
    uint64_t src;
    uint64_t dst;
};

/* Where fragment i of the tile lies; `i` may differ by lane. */
MOVE_FN struct move_blocks move_at(const struct tiles_part *part, const struct tiles_place *place,
                                   const struct move_blocks *blocks, uint32_t i)
{
    uint32_t piece = place->piece + i;
    uint32_t block = tiles_divide(piece, part->by_piece);
    struct move_blocks at;

    piece -= block * part->piece_count;
    at.src = move_shuffle(blocks->src, block) + piece * part->src_step;
    at.dst = move_shuffle(blocks->dst, block) + piece * part->dst_step;
    return at;
}

/* A tile of large fragments, or a cut of one. */
MOVE_FN void move_tile_wide(const struct tiles_part *part, const struct tiles_place *place,
                            const struct move_blocks *blocks, uint32_t lane)
{
    for (uint32_t i = 0; i < place->count; i++) {
        struct move_blocks at = move_at(part, place, blocks, i);
        move_fragment(at.dst + place->skip, at.src + place->skip, place->bytes, lane);
    }
}

/* A tile of small fragments: each lane takes vectors of any of them. */
template <int WIDTH_LOG2>
MOVE_FN void move_tile_flat(const struct tiles_part *part, const struct tiles_place *place,
                            const struct move_blocks *blocks, uint32_t lane)
{
    typedef typename move_vector<WIDTH_LOG2>::type vector;
    uint32_t vectors = (uint32_t)(part->bytes >> WIDTH_LOG2);
    uint32_t all = vectors * place->count;

    /* All lanes go round equally often: they shuffle together. */
    for (uint32_t first = lane; first < all + lane; first += MOVE_UNROLL * TILES_LANES) {
        vector value[MOVE_UNROLL];
        uint64_t to[MOVE_UNROLL];
#pragma unroll
        for (int i = 0; i < MOVE_UNROLL; i++) {
            uint32_t at = first + i * TILES_LANES;
            uint32_t mine = at < all ? at : 0;
            uint32_t fragment = tiles_divide(mine, part->by_vectors);
            uint32_t offset = (mine - fragment * vectors) << WIDTH_LOG2;
            struct move_blocks where = move_at(part, place, blocks, fragment);
            to[i] = where.dst + offset;
            if (at < all) {
                value[i] = __ldcs((const vector *)(where.src + offset));
            }
        }
#pragma unroll
        for (int i = 0; i < MOVE_UNROLL; i++) {
            if (first + i * TILES_LANES < all) {
                __stcs((vector *)to[i], value[i]);
            }
        }
    }
}

MOVE_FN void move_tile(const struct tiles_part *part, const struct tiles_place *place,
                       const struct move_blocks *blocks, uint32_t lane)
{
    if (!part->flat) {
        move_tile_wide(part, place, blocks, lane);
        return;
    }
    switch (part->width_log2) {
    case 4:
        move_tile_flat<4>(part, place, blocks, lane);
        return;
    case 3:
        move_tile_flat<3>(part, place, blocks, lane);
        return;
    case 2:
        move_tile_flat<2>(part, place, blocks, lane);
        return;
    case 1:
        move_tile_flat<1>(part, place, blocks, lane);
        return;
    default:
        move_tile_flat<0>(part, place, blocks, lane);
        return;
    }
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Word `word` of a fragment, its bytes past the end zero. */
MOVE_FN uint64_t move_word(uint64_t fragment, uint64_t bytes, uint64_t word, bool aligned)
{
    uint64_t left = bytes - word * 8;
    const unsigned char *at = (const unsigned char *)fragment + word * 8;
    uint64_t value = 0;

    if (aligned && left >= 8) {
        return *(const uint64_t *)at;
    }
    for (uint32_t i = 0; i < 8 && i < left; i++) {
        value |= (uint64_t)at[i] << 8 * i;
    }
    return value;
}

/* This lane's share of the sum of a tile. */
MOVE_FN uint64_t move_tile_sum(const struct tiles_part *part, const struct tiles_place *place,
                               const struct move_blocks *blocks, uint32_t lane)
{
    uint32_t words = (place->bytes + 7) / 8;
    uint32_t all = words * place->count;
    bool aligned = part->width_log2 >= 3;
    uint64_t sum = 0;

    for (uint32_t first = 0; first < all; first += TILES_LANES) {
        uint32_t at = first + lane;
        uint32_t mine = at < all ? at : all - 1;
        uint32_t fragment = place->count == 1 ? 0 : tiles_divide(mine, part->by_vectors);
        struct move_blocks where = move_at(part, place, blocks, fragment);
        uint64_t word = mine - fragment * words + place->skip / 8;
        if (at < all) {
            uint64_t value = move_word(where.src, part->bytes, word, aligned);
            sum += tiles_sum_word(value, part->ordinal + place->fragment + fragment, word);
        }
    }
    return sum;
}

#endif /* KVF_CUDA_MOVE_H */
