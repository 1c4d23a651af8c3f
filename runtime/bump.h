/*
 * bump.h - cuts one allocation into arrays: a first pass with no memory counts, a second one cuts.
 *
 * Header only. May include nothing but the C headers.
 */
#ifndef KVF_BUMP_H
#define KVF_BUMP_H

#include <stddef.h>
#include <stdint.h>

#define BUMP_ALIGN 16u

/* base NULL: only counts. Sizes are bounded by the limits of callers: sums do not overflow. */
struct bump {
    unsigned char *base; /* borrows */
    size_t used_bytes;
};

/* count * size bytes aligned to 16, or NULL in the counting pass. */
static inline void *bump_take(struct bump *bump, size_t count, size_t size)
{
    size_t at = bump->used_bytes;

    bump->used_bytes = at + (count * size + BUMP_ALIGN - 1) / BUMP_ALIGN * BUMP_ALIGN;
    return bump->base == NULL ? NULL : bump->base + at;
}

#endif /* KVF_BUMP_H */
