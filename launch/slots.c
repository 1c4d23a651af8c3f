/* slots.c - see slots.h. */
#include "slots.h"

#include <stdlib.h>
#include <string.h>

bool slots_init(struct slots *slots, uint32_t first, uint32_t room, uint64_t seed)
{
    memset(slots, 0, sizeof(*slots));
    slots->free = calloc((size_t)room + 1, sizeof(*slots->free));
    if (slots->free == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < room; i++) {
        slots->free[i] = first + i;
    }
    slots->count = room;
    slots->room = room;
    slots->rng.state = seed;
    return true;
}

void slots_fini(struct slots *slots)
{
    free(slots->free);
    memset(slots, 0, sizeof(*slots));
}

bool slots_take(struct slots *slots, uint32_t count, uint32_t *slots_out)
{
    if (count > slots->count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t pick = rng_below(&slots->rng, slots->count);

        slots_out[i] = slots->free[pick];
        slots->free[pick] = slots->free[--slots->count];
    }
    return true;
}

void slots_give(struct slots *slots, const uint32_t *given, uint32_t count)
{
    for (uint32_t i = 0; i < count && slots->count < slots->room; i++) {
        slots->free[slots->count++] = given[i];
    }
}
