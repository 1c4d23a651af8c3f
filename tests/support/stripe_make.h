/*
 * stripe_make.h - random stripes inside two arenas, and what they mean, byte by byte.
 *
 * May be included by any test. The arenas are given by address alone: they may be of a device.
 */
#ifndef KVF_TEST_STRIPE_MAKE_H
#define KVF_TEST_STRIPE_MAKE_H

#include "testing.h"

#include "stripe.h"

enum {
    STRIPE_MAKE_STRIPES_MAX = 6,
    STRIPE_MAKE_BASES_MAX = 5,
    STRIPE_MAKE_PAIRS_MAX = 40,
    STRIPE_MAKE_ARENA_BYTES = 4 << 20,
};

struct stripe_plan {
    uint32_t count;
    struct stripe stripes[STRIPE_MAKE_STRIPES_MAX];
    struct stripe_base bases[STRIPE_MAKE_STRIPES_MAX][STRIPE_MAKE_BASES_MAX];
    struct stripe_pair pairs[STRIPE_MAKE_STRIPES_MAX][STRIPE_MAKE_PAIRS_MAX];
};

/*
 * At least one stripe; sources in the arena at src, destinations in the one at dst, both
 * STRIPE_MAKE_ARENA_BYTES long; no destination byte twice. Sizes from 1 byte to some KiB, any
 * alignment and stride, some stripes empty.
 */
void stripe_plan_random(struct stripe_plan *plan, struct test_random *random, uint64_t src,
                        uint64_t dst);

/* The same plan, its arenas moved by so many bytes (modulo 2^64). */
void stripe_plan_move(struct stripe_plan *plan, uint64_t src_by, uint64_t dst_by);

uint64_t stripe_plan_bytes(const struct stripe_plan *plan);

/* The definition of stripe.h, fragment by fragment. Host addresses. */
void stripe_copy_naive(const struct stripe *stripes, uint32_t count);

#endif /* KVF_TEST_STRIPE_MAKE_H */
