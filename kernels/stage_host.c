/*
 * stage_host.c - the host twins of the kernels that gather, scatter and sum.
 *
 * Plain copies, fragment by fragment: what they do is easy to see, and the kernels are compared
 * with them. May not allocate, fail or decide what is copied.
 */
#include "kernels.h"

#include <stdatomic.h>
#include <string.h>

#include "tiles_walk.h"

/* Walks over the fragments of a span without a division each. */
struct walk {
    const struct stripe *stripe;
    uint32_t pair;
    uint32_t base;
    uint32_t piece;
};

static void walk_init(struct walk *walk, const struct stripe *stripe, uint64_t first)
{
    uint64_t block = first / stripe->piece_count;

    walk->stripe = stripe;
    walk->piece = (uint32_t)(first % stripe->piece_count);
    walk->base = (uint32_t)(block % stripe->base_count);
    walk->pair = (uint32_t)(block / stripe->base_count);
}

static uint64_t walk_src(const struct walk *walk)
{
    const struct stripe *stripe = walk->stripe;

    return stripe->src + stripe->bases[walk->base].src +
           stripe->pairs[walk->pair].src * stripe->src_stride +
           walk->piece * stripe->src_piece_stride;
}

static uint64_t walk_dst(const struct walk *walk)
{
    const struct stripe *stripe = walk->stripe;

    return stripe->dst + stripe->bases[walk->base].dst +
           stripe->pairs[walk->pair].dst * stripe->dst_stride +
           walk->piece * stripe->dst_piece_stride;
}

static void walk_next(struct walk *walk)
{
    if (++walk->piece < walk->stripe->piece_count) {
        return;
    }
    walk->piece = 0;
    if (++walk->base < walk->stripe->base_count) {
        return;
    }
    walk->base = 0;
    walk->pair++;
}

uint64_t stage_step(const struct stripe *stripe)
{
    return (stripe->piece_bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
}

uint64_t stage_bytes(const struct stage_span *span)
{
    if (span->count == 0) {
        return 0;
    }
    return (span->count - 1) * stage_step(span->stripe) + span->stripe->piece_bytes;
}

static void move_spans(const struct stage_span *spans, uint32_t count, bool gather)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct stage_span *span = &spans[i];
        uint64_t step = stage_step(span->stripe);
        uint64_t staging = span->staging;
        struct walk walk;

        if (span->count == 0) {
            continue;
        }
        walk_init(&walk, span->stripe, span->first);
        for (uint64_t k = 0; k < span->count; k++) {
            uint64_t src = gather ? walk_src(&walk) : staging;
            uint64_t dst = gather ? staging : walk_dst(&walk);
            memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, span->stripe->piece_bytes);
            staging += step;
            walk_next(&walk);
        }
    }
    atomic_thread_fence(memory_order_seq_cst); /* memcpy may stream: a full fence orders that too */
}

void stage_host_gather(const struct stage_span *spans, uint32_t count)
{
    move_spans(spans, count, true);
}

void stage_host_scatter(const struct stage_span *spans, uint32_t count)
{
    move_spans(spans, count, false);
}

static uint64_t fragment_sum(const unsigned char *bytes, uint64_t len_bytes, uint64_t ordinal)
{
    uint64_t sum = 0;

    for (uint64_t word = 0; word * 8 < len_bytes; word++) {
        uint64_t left = len_bytes - word * 8;
        uint64_t value = 0;
        memcpy(&value, bytes + word * 8, left < 8 ? left : 8);
        sum += tiles_sum_word(value, ordinal, word);
    }
    return sum;
}

uint64_t stage_host_sum(const struct stripe *stripes, uint32_t count, bool sources)
{
    uint64_t ordinal = 0;
    uint64_t sum = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct stripe *stripe = &stripes[i];
        uint64_t fragments = stripe_fragments(stripe);
        struct walk walk;

        if (fragments == 0) {
            continue;
        }
        walk_init(&walk, stripe, 0);
        for (uint64_t k = 0; k < fragments; k++) {
            uint64_t at = sources ? walk_src(&walk) : walk_dst(&walk);
            sum += fragment_sum((const unsigned char *)(uintptr_t)at, stripe->piece_bytes, ordinal);
            ordinal++;
            walk_next(&walk);
        }
    }
    return sum;
}
