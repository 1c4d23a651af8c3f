/*
 * slots.h - which slots of a group are free; handed out in a random order, the same for the same
 * seed.
 *
 * Pure.
 */
#ifndef LAUNCH_SLOTS_H
#define LAUNCH_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "rng.h"

struct slots {
    uint32_t *free; /* [room]; the first `count` are free */
    uint32_t count;
    uint32_t room;
    struct rng rng;
};

/* Slots [first, first + room) are free. False: no memory. */
bool slots_init(struct slots *slots, uint32_t first, uint32_t room, uint64_t seed);

void slots_fini(struct slots *slots);

/* Takes `count` slots, or none: false when there are not so many. */
bool slots_take(struct slots *slots, uint32_t count, uint32_t *slots_out);

/* Gives slots back. */
void slots_give(struct slots *slots, const uint32_t *given, uint32_t count);

#endif /* LAUNCH_SLOTS_H */
