/*
 * bench_work.c - the workloads of `kvferry bench copy` as stripes; see bench.h.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_limit.h"

struct shape_row {
    const char *name;
    uint32_t base_count; /* layers, one after the other in the pool */
    uint32_t pair_count; /* blocks */
    uint32_t piece_count;
    uint64_t piece_bytes;
    uint64_t src_piece_stride;
    uint64_t dst_piece_stride;
};

static const struct shape_row shapes[BENCH_SHAPE_COUNT] = {
    [BENCH_U512] = {"u512", 1, 524288, 1, 512, 512, 512},
    [BENCH_U4K] = {"u4k", 1, 65536, 1, 4096, 4096, 4096},
    [BENCH_U36K] = {"u36k", 1, 7281, 1, 36864, 36864, 36864},
    [BENCH_U1M] = {"u1m", 1, 256, 1, 1048576, 1048576, 1048576},
    [BENCH_MLA] = {"mla", 61, 256, 1, 36864, 36864, 36864},
    [BENCH_TP512] = {"tp512", 1, 4096, 32, 512, 2048, 512},
};

const char *bench_shape_name(enum bench_shape shape)
{
    return shapes[shape].name;
}

bool bench_shape_find(const char *name, enum bench_shape *shape_out)
{
    for (int i = 0; i < BENCH_SHAPE_COUNT; i++) {
        if (strcmp(name, shapes[i].name) == 0) {
            *shape_out = (enum bench_shape)i;
            return true;
        }
    }
    return false;
}

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

/* Two orders of the slots, independent of each other. */
static void fill_pairs(struct stripe_pair *pairs, uint32_t count, uint64_t seed)
{
    uint64_t state = seed != 0 ? seed : 1;

    for (uint32_t i = 0; i < count; i++) {
        pairs[i] = (struct stripe_pair){.src = i, .dst = i};
    }
    for (uint32_t i = count; i > 1; i--) {
        struct stripe_pair *last = &pairs[i - 1];
        struct stripe_pair *other = &pairs[random_next(&state) % i];
        uint32_t slot = last->src;
        last->src = other->src;
        other->src = slot;
        other = &pairs[random_next(&state) % i];
        slot = last->dst;
        last->dst = other->dst;
        other->dst = slot;
    }
}

static uint32_t blocks_of(const struct shape_row *row, uint64_t bytes_max)
{
    uint64_t block_bytes = row->piece_bytes * row->piece_count * row->base_count;
    uint64_t blocks = bytes_max / block_bytes;

    if (bytes_max == 0 || blocks > row->pair_count) {
        return row->pair_count;
    }
    return blocks > 0 ? (uint32_t)blocks : 1;
}

enum kvf_status bench_work_open(enum bench_shape shape, uint64_t bytes_max, uint64_t seed,
                                struct bench_work *work_out)
{
    const struct shape_row *row = &shapes[shape];
    uint32_t blocks = blocks_of(row, bytes_max);
    uint64_t src_slot = row->src_piece_stride * row->piece_count;
    uint64_t dst_slot = row->dst_piece_stride * row->piece_count;
    struct stripe_base *bases = calloc(row->base_count, sizeof(*bases));
    struct stripe_pair *pairs = calloc(blocks, sizeof(*pairs));

    if (bases == NULL || pairs == NULL) {
        free(bases);
        free(pairs);
        return KVF_E_NOMEM;
    }
    for (uint32_t i = 0; i < row->base_count; i++) {
        bases[i].src = src_slot * blocks * i;
        bases[i].dst = dst_slot * blocks * i;
    }
    fill_pairs(pairs, blocks, seed);
    *work_out = (struct bench_work){
        .shape = shape,
        .stripe =
            {
                .bases = bases,
                .pairs = pairs,
                .base_count = row->base_count,
                .pair_count = blocks,
                .src_stride = src_slot,
                .dst_stride = dst_slot,
                .piece_count = row->piece_count,
                .piece_bytes = row->piece_bytes,
                .src_piece_stride = row->src_piece_stride,
                .dst_piece_stride = row->dst_piece_stride,
            },
        .bases = bases,
        .pairs = pairs,
        .src_bytes = src_slot * blocks * row->base_count,
        .dst_bytes = dst_slot * blocks * row->base_count,
    };
    return KVF_OK;
}

void bench_work_close(struct bench_work *work)
{
    free(work->bases);
    free(work->pairs);
    *work = (struct bench_work){0};
}

void bench_work_bind(struct bench_work *work, const void *src, void *dst)
{
    work->stripe.src = (uint64_t)(uintptr_t)src;
    work->stripe.dst = (uint64_t)(uintptr_t)dst;
}

void bench_work_list(const struct bench_work *work, struct bench_fragment *fragments_out)
{
    const struct stripe *s = &work->stripe;
    uint64_t at = 0;

    for (uint32_t p = 0; p < s->pair_count; p++) {
        for (uint32_t b = 0; b < s->base_count; b++) {
            uint64_t src = s->src + s->bases[b].src + s->pairs[p].src * s->src_stride;
            uint64_t dst = s->dst + s->bases[b].dst + s->pairs[p].dst * s->dst_stride;
            for (uint32_t i = 0; i < s->piece_count; i++) {
                fragments_out[at++] = (struct bench_fragment){
                    .dst = (char *)(uintptr_t)(dst + i * s->dst_piece_stride),
                    .src = (const char *)(uintptr_t)(src + i * s->src_piece_stride),
                };
            }
        }
    }
}

uint64_t bench_work_wrong(const struct bench_work *work)
{
    uint64_t count = stripe_fragments(&work->stripe);
    uint64_t bytes = work->stripe.piece_bytes;
    struct bench_fragment *fragments = calloc(count, sizeof(*fragments));
    uint64_t wrong = 0;

    if (fragments == NULL) {
        return stripe_bytes(&work->stripe);
    }
    bench_work_list(work, fragments);
    for (uint64_t i = 0; i < count; i++) {
        if (memcmp(fragments[i].dst, fragments[i].src, bytes) == 0) {
            continue;
        }
        for (uint64_t at = 0; at < bytes; at++) {
            wrong += fragments[i].dst[at] != fragments[i].src[at];
        }
    }
    free(fragments);
    return wrong;
}
