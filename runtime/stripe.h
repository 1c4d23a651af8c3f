/*
 * stripe.h - the unit of a plan: a regular copy over block pairs.
 *
 * One stripe stands for base_count x pair_count x piece_count fragments without listing them:
 *
 *   fragment (b, p, i):
 *     from  src + bases[b].src + pairs[p].src * src_stride + i * src_piece_stride
 *     to    dst + bases[b].dst + pairs[p].dst * dst_stride + i * dst_piece_stride
 *     piece_bytes long
 *
 * `src` and `dst` are the addresses of slot 0 of the two pools as the copier sees them, so that one
 * template serves a mapped pool, a staging region and a remote address alike.
 *
 * Plain data, may be included by kernels. May include nothing but the C headers for integers.
 */
#ifndef KVF_STRIPE_H
#define KVF_STRIPE_H

#include <stdint.h>

/* Offsets of one run (a layer, or several that join on both sides) inside a slot. */
struct stripe_base {
    uint64_t src;
    uint64_t dst;
};

/* Slot numbers of one block on the two sides. */
struct stripe_pair {
    uint32_t src;
    uint32_t dst;
};

struct stripe {
    uint64_t src;                    /* address of slot 0 of the source pool */
    uint64_t dst;                    /* address of slot 0 of the destination pool */
    const struct stripe_base *bases; /* borrows: until the copy has ended */
    const struct stripe_pair *pairs; /* borrows: until the copy has ended */
    uint32_t base_count;
    uint32_t pair_count;
    uint64_t src_stride; /* bytes from slot to slot */
    uint64_t dst_stride;
    uint32_t piece_count; /* >= 1 */
    uint64_t piece_bytes; /* >= 1 */
    uint64_t src_piece_stride;
    uint64_t dst_piece_stride;
};

static inline uint64_t stripe_fragments(const struct stripe *stripe)
{
    return (uint64_t)stripe->base_count * stripe->pair_count * stripe->piece_count;
}

static inline uint64_t stripe_bytes(const struct stripe *stripe)
{
    return stripe_fragments(stripe) * stripe->piece_bytes;
}

#endif /* KVF_STRIPE_H */
