/* stripe_make.c - see stripe_make.h. */
#include "stripe_make.h"

#include <string.h>

static uint64_t range(struct test_random *random, uint64_t low, uint64_t high)
{
    return low + test_random_below(random, high - low + 1);
}

/* A size of each kind that a copier may treat alike. */
static uint64_t random_bytes(struct test_random *random)
{
    static const uint64_t sizes_max[] = {4, 70, 300, 1100, 2100, 9000};
    static const uint64_t multiples[] = {1, 1, 2, 4, 8, 16, 16, 64};
    uint64_t of = multiples[test_random_below(random, 8)];
    uint64_t bytes = range(random, 1, sizes_max[test_random_below(random, 6)]);

    return (bytes + of - 1) / of * of;
}

static void random_pairs(struct stripe_pair *pairs, uint32_t count, struct test_random *random)
{
    for (uint32_t p = 0; p < count; p++) {
        pairs[p] = (struct stripe_pair){.src = p, .dst = p};
    }
    if (test_random_below(random, 3) == 0) {
        return;
    }
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)test_random_below(random, i);
        uint32_t slot = pairs[i - 1].dst;
        pairs[i - 1].dst = pairs[j].dst;
        pairs[j].dst = slot;
    }
}

/* Strides are multiples of the size's own alignment, or of anything. */
static uint64_t random_gap(struct test_random *random, uint64_t of)
{
    return test_random_below(random, 3) == 0 ? 0 : test_random_below(random, 7) * of;
}

static void random_stripe(struct stripe_plan *plan, uint32_t at, struct test_random *random)
{
    struct stripe *s = &plan->stripes[at];
    uint64_t of = (uint64_t)1 << test_random_below(random, 5);
    bool upwards = test_random_below(random, 2) == 0;
    uint64_t src_run, dst_run;

    s->piece_bytes = random_bytes(random);
    s->piece_count = (uint32_t)range(random, 1, s->piece_bytes <= 64 ? 120 : 4);
    s->base_count =
        (uint32_t)range(random, test_random_below(random, 9) > 0, STRIPE_MAKE_BASES_MAX);
    s->pair_count = (uint32_t)range(random, test_random_below(random, 9) > 0,
                                    s->piece_bytes < 1000 ? STRIPE_MAKE_PAIRS_MAX : 6);
    s->src_piece_stride = s->piece_bytes + random_gap(random, of);
    s->dst_piece_stride = s->piece_bytes + random_gap(random, of);
    src_run = s->src_piece_stride * s->piece_count;
    dst_run = s->dst_piece_stride * s->piece_count + random_gap(random, of);
    for (uint32_t b = 0; b < s->base_count; b++) {
        plan->bases[at][b].src = src_run * b;
        plan->bases[at][b].dst = dst_run * (upwards ? b : s->base_count - 1 - b);
    }
    s->src_stride = src_run * STRIPE_MAKE_BASES_MAX + random_gap(random, of);
    s->dst_stride = dst_run * STRIPE_MAKE_BASES_MAX + random_gap(random, of);
    random_pairs(plan->pairs[at], s->pair_count, random);
    s->bases = plan->bases[at];
    s->pairs = plan->pairs[at];
}

void stripe_plan_random(struct stripe_plan *plan, struct test_random *random, uint64_t src,
                        uint64_t dst)
{
    uint32_t want = (uint32_t)range(random, 1, STRIPE_MAKE_STRIPES_MAX);
    uint64_t src_at = 64;
    uint64_t dst_at = 64;

    memset(plan, 0, sizeof(*plan));
    while (plan->count < want) {
        struct stripe *s = &plan->stripes[plan->count];
        uint64_t of = (uint64_t)1 << test_random_below(random, 5);

        random_stripe(plan, plan->count, random);
        src_at = (src_at + of - 1) / of * of;
        dst_at = (dst_at + of - 1) / of * of;
        if (src_at + s->src_stride * (s->pair_count + 1) > STRIPE_MAKE_ARENA_BYTES - 64 ||
            dst_at + s->dst_stride * (s->pair_count + 1) > STRIPE_MAKE_ARENA_BYTES - 64) {
            if (plan->count > 0) {
                break;
            }
            continue; /* another one; small ones are frequent */
        }
        s->src = src + src_at;
        s->dst = dst + dst_at;
        src_at += s->src_stride * s->pair_count + test_random_below(random, 66);
        dst_at += s->dst_stride * s->pair_count + test_random_below(random, 66);
        plan->count++;
    }
}

void stripe_plan_move(struct stripe_plan *plan, uint64_t src_by, uint64_t dst_by)
{
    for (uint32_t i = 0; i < plan->count; i++) {
        plan->stripes[i].src += src_by;
        plan->stripes[i].dst += dst_by;
    }
}

uint64_t stripe_plan_bytes(const struct stripe_plan *plan)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < plan->count; i++) {
        bytes += stripe_bytes(&plan->stripes[i]);
    }
    return bytes;
}

void stripe_copy_naive(const struct stripe *stripes, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++) {
        const struct stripe *s = &stripes[k];
        for (uint64_t f = 0; f < stripe_fragments(s); f++) {
            uint64_t i = f % s->piece_count;
            uint64_t b = f / s->piece_count % s->base_count;
            uint64_t p = f / s->piece_count / s->base_count;
            uint64_t from = s->src + s->bases[b].src + s->pairs[p].src * s->src_stride +
                            i * s->src_piece_stride;
            uint64_t to = s->dst + s->bases[b].dst + s->pairs[p].dst * s->dst_stride +
                          i * s->dst_piece_stride;
            memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, s->piece_bytes);
        }
    }
}
