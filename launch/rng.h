/*
 * rng.h - a small seeded generator of numbers (splitmix64): the same everywhere for the same seed.
 *
 * May not include anything but C headers.
 */
#ifndef LAUNCH_RNG_H
#define LAUNCH_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

/* Mixes the bits of a word so that every bit depends on every other. */
static inline uint64_t rng_mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
}

static inline uint64_t rng_next(struct rng *rng)
{
    rng->state += 0x9e3779b97f4a7c15ull;
    return rng_mix(rng->state);
}

/* A number in [0, below); below > 0. The bias is under 2^-32 for what the program asks. */
static inline uint32_t rng_below(struct rng *rng, uint32_t below)
{
    return (uint32_t)(((rng_next(rng) >> 32) * below) >> 32);
}

/* A number in [0, 1). */
static inline double rng_unit(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

#endif /* LAUNCH_RNG_H */
