/*
 * test_bounce_pack.c - chunks and runs against the fragments themselves: the counts of
 * plan_packer, which walks them one by one, and the bytes that gather and scatter move.
 */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "xfer/bounce_pack.h"

#define BASES 6u
#define PAIRS 6u
#define STRIPES 3u

/* Stripes over two memories of their own, in which no byte of the destination is named twice. */
struct world {
    struct stripe stripes[STRIPES];
    struct stripe_base bases[STRIPES][BASES];
    struct stripe_pair pairs[STRIPES][PAIRS];
    uint32_t count;
    uint8_t *src, *dst, *model;
    uint64_t len_bytes;
    uint64_t largest_bytes;
};

static void shuffle(struct test_random *random, uint32_t *slots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        slots[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        uint32_t other = (uint32_t)test_random_below(random, i);
        uint32_t kept = slots[i - 1];

        slots[i - 1] = slots[other];
        slots[other] = kept;
    }
}

static void make_stripe(struct test_random *random, struct world *world, uint32_t at)
{
    static const uint64_t sizes[] = {1, 8, 16, 32, 48, 64, 96, 512, 1000, 4096};
    struct stripe *stripe = &world->stripes[at];
    uint64_t bytes = sizes[test_random_below(random, 10)];
    uint64_t gap = test_random_below(random, 2) ? 0 : test_random_below(random, 3) * 32;
    uint32_t src_slots[PAIRS], dst_slots[PAIRS];
    uint64_t row, slot;
    bool ordered = test_random_below(random, 2) == 0;

    *stripe = (struct stripe){
        .bases = world->bases[at],
        .pairs = world->pairs[at],
        .base_count = (uint32_t)test_random_below(random, BASES) + 1,
        .pair_count = (uint32_t)test_random_below(random, PAIRS + 1),
        .piece_count =
            test_random_below(random, 2) ? 1 : (uint32_t)test_random_below(random, 40) + 1,
        .piece_bytes = bytes,
        .src_piece_stride = bytes + (test_random_below(random, 2) ? 0 : 32),
        .dst_piece_stride = bytes + gap,
    };
    row = stripe->piece_count * (bytes + 64);
    for (uint32_t b = 0; b < stripe->base_count; b++)
        world->bases[at][b] = (struct stripe_base){b * row, b * row};
    if (test_random_below(random, 2) == 0) { /* layers side by side, or less than a stride apart */
        uint64_t less = test_random_below(random, 2);

        for (uint32_t b = 0; b < stripe->base_count; b++)
            world->bases[at][b] =
                (struct stripe_base){b * (stripe->piece_count * stripe->src_piece_stride -
                                          less * (stripe->src_piece_stride - bytes)),
                                     b * (stripe->piece_count * stripe->dst_piece_stride -
                                          less * (stripe->dst_piece_stride - bytes))};
    }
    slot = BASES * row;
    if (test_random_below(random, 4) == 0) /* blocks side by side as well */
        slot = stripe->base_count * stripe->piece_count *
               (stripe->src_piece_stride > stripe->dst_piece_stride ? stripe->src_piece_stride
                                                                    : stripe->dst_piece_stride);
    if (slot < world->bases[at][stripe->base_count - 1].src + row)
        slot = world->bases[at][stripe->base_count - 1].src + row;
    stripe->src_stride = stripe->dst_stride = slot;
    shuffle(random, src_slots, PAIRS);
    shuffle(random, dst_slots, PAIRS);
    for (uint32_t p = 0; p < stripe->pair_count; p++)
        world->pairs[at][p] =
            (struct stripe_pair){ordered ? p : src_slots[p], ordered ? p : dst_slots[p]};
    stripe->src = stripe->dst = world->len_bytes;
    world->len_bytes += slot * PAIRS;
    if (stripe->pair_count > 0 && bytes > world->largest_bytes)
        world->largest_bytes = bytes;
}

static void make_world(struct test_random *random, struct world *world)
{
    memset(world, 0, sizeof(*world));
    world->count = (uint32_t)test_random_below(random, STRIPES + 1);
    for (uint32_t s = 0; s < world->count; s++)
        make_stripe(random, world, s);
    world->src = malloc(world->len_bytes + 1);
    world->dst = calloc(1, world->len_bytes + 1);
    world->model = calloc(1, world->len_bytes + 1);
    test_random_fill(random, world->src, world->len_bytes);
    for (uint32_t s = 0; s < world->count; s++) {
        world->stripes[s].src += (uint64_t)(uintptr_t)world->src;
        world->stripes[s].dst += (uint64_t)(uintptr_t)world->dst;
    }
}

static void end_world(struct world *world)
{
    free(world->src);
    free(world->dst);
    free(world->model);
}

/* What each of the runs moves: gather, then scatter, through a chunk that is full of rubbish. */
static void move_run(const struct bounce_run *run, uint8_t *chunk, uint64_t chunk_bytes)
{
    for (uint32_t i = 0; i < run->pieces; i++) {
        uint64_t at = run->chunk_offset + (uint64_t)i * run->chunk_stride;

        assert_true(at % BOUNCE_PACK_ALIGN == 0);
        assert_true(at + run->piece_bytes <= chunk_bytes);
        memcpy(chunk + at, (uint8_t *)(uintptr_t)(run->src + i * run->src_stride),
               run->piece_bytes);
        memcpy((uint8_t *)(uintptr_t)(run->dst + i * run->dst_stride), chunk + at,
               run->piece_bytes);
    }
}

struct sums {
    uint64_t chunks, packed_bytes, payload_bytes, entries_last, runs;
};

static void move_all(struct world *world, uint64_t chunk_bytes, struct sums *sums)
{
    uint8_t *chunk = malloc(chunk_bytes);
    struct bounce_pack pack, again;

    memset(sums, 0, sizeof(*sums));
    bounce_pack_init(&pack, world->stripes, world->count, chunk_bytes);
    bounce_pack_init(&again, world->stripes, world->count, chunk_bytes);
    for (;;) {
        struct bounce_place begin = pack.at;
        struct bounce_run run, same;
        uint64_t pieces = 0;

        if (!bounce_pack_chunk(&pack))
            break;
        bounce_pack_seek(&again, begin);
        assert_true(bounce_pack_chunk(&again));
        memset(chunk, 0xee, chunk_bytes);
        while (bounce_pack_run(&pack, &run)) {
            move_run(&run, chunk, chunk_bytes);
            assert_true(bounce_pack_run(&again, &same));
            assert_memory_equal(&run, &same, sizeof(run));
            pieces += run.pieces;
            sums->runs++;
        }
        assert_false(bounce_pack_run(&again, &same));
        assert_true(again.fill_bytes == pack.fill_bytes);
        assert_true(pack.fill_bytes > 0 && pack.fill_bytes <= chunk_bytes);
        assert_true(pieces == pack.entries && pieces <= bounce_pieces_max(chunk_bytes));
        sums->chunks++;
        sums->packed_bytes += pack.fill_bytes;
        sums->payload_bytes += pack.payload_bytes;
        sums->entries_last = pieces;
    }
    free(chunk);
}

/* The fragments one by one: into the model of the destination and, when told, the packer. */
static void walk_all(struct world *world, struct plan_packer *packer)
{
    struct plan_fragment fragment;
    struct plan_walk walk;

    plan_walk_init(&walk, world->stripes, world->count);
    /* plan_walk wants stripes that have fragments */
    while (walk.stripe < walk.stripe_count) {
        if (stripe_fragments(&world->stripes[walk.stripe]) == 0) {
            walk.stripe++;
            continue;
        }
        assert_true(plan_walk_next(&walk, &fragment));
        memcpy(world->model + (fragment.dst - (uint64_t)(uintptr_t)world->dst),
               (uint8_t *)(uintptr_t)fragment.src, fragment.bytes);
        if (packer != NULL)
            plan_packer_add(packer, &fragment);
    }
}

static void one_random_write(struct test_random *random, uint64_t chunk_bytes)
{
    struct plan_packer packer;
    struct world world;
    struct sums sums;
    bool whole;

    make_world(random, &world);
    whole = world.largest_bytes <= chunk_bytes;
    plan_packer_init(&packer, chunk_bytes);
    walk_all(&world, whole ? &packer : NULL);
    move_all(&world, chunk_bytes, &sums);
    assert_memory_equal(world.dst, world.model, world.len_bytes);
    if (whole) {
        assert_true(sums.chunks == packer.chunks);
        assert_true(sums.packed_bytes == packer.packed_bytes);
        assert_true(sums.entries_last == packer.entries);
    }
    end_world(&world);
}

static void chunks_are_those_of_the_fragments_one_by_one(void **state)
{
    static const uint64_t chunks[] = {32, 100, 640, 4096, 70000, 1 << 20};
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (unsigned trial = 0; trial < 1000; trial++)
        one_random_write(&random, chunks[test_random_below(&random, 6)]);
}

/* T tokens of a head slice for each of the layers: a run a (block, layer), whatever T is. */
static void rows_are_written_as_strides(void **state)
{
    enum { LAYERS = 8, BLOCKS = 16, TOKENS = 32, PIECE = 512 };
    struct stripe_base bases[LAYERS];
    struct stripe_pair pairs[BLOCKS];
    struct stripe stripe = {
        .src = 1 << 20,
        .dst = 1 << 30,
        .bases = bases,
        .pairs = pairs,
        .base_count = LAYERS,
        .pair_count = BLOCKS,
        .src_stride = LAYERS * TOKENS * 2 * PIECE,
        .dst_stride = LAYERS * TOKENS * 4 * PIECE,
        .piece_count = TOKENS,
        .piece_bytes = PIECE,
        .src_piece_stride = 2 * PIECE,
        .dst_piece_stride = 4 * PIECE,
    };
    struct bounce_pack pack;
    struct bounce_run run;
    uint64_t runs = 0, pieces = 0;

    (void)state;
    for (uint32_t l = 0; l < LAYERS; l++)
        bases[l] = (struct stripe_base){l * TOKENS * 2 * PIECE + 7 * l, l * TOKENS * 4 * PIECE};
    for (uint32_t p = 0; p < BLOCKS; p++)
        pairs[p] = (struct stripe_pair){p, BLOCKS - 1 - p};
    bounce_pack_init(&pack, &stripe, 1, 32 << 20);
    assert_true(bounce_pack_chunk(&pack));
    while (bounce_pack_run(&pack, &run)) {
        runs++;
        pieces += run.pieces;
    }
    assert_true(pieces == LAYERS * BLOCKS * TOKENS);
    assert_true(runs <= LAYERS * BLOCKS);
    assert_true(pack.fill_bytes == LAYERS * BLOCKS * TOKENS * PIECE);
    assert_false(bounce_pack_chunk(&pack));
}

static void a_chunk_closes_at_its_limit_of_pieces(void **state)
{
    struct stripe_base base = {0, 0};
    struct stripe_pair pair = {0, 0};
    struct stripe stripe = {
        .src = 1 << 20,
        .dst = 1 << 30,
        .bases = &base,
        .pairs = &pair,
        .base_count = 1,
        .pair_count = 1,
        .piece_count = 3000,
        .piece_bytes = 8,
        .src_piece_stride = 8,
        .dst_piece_stride = 16,
    };
    struct bounce_pack pack;
    struct bounce_run run;
    uint32_t chunks = 0;

    (void)state;
    bounce_pack_init(&pack, &stripe, 1, 256 << 10); /* 1,024 pieces; 8,192 would fit */
    while (bounce_pack_chunk(&pack)) {
        while (bounce_pack_run(&pack, &run))
            ;
        assert_true(pack.entries == (chunks < 2 ? 1024 : 952));
        chunks++;
    }
    assert_true(chunks == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_those_of_the_fragments_one_by_one),
        cmocka_unit_test(rows_are_written_as_strides),
        cmocka_unit_test(a_chunk_closes_at_its_limit_of_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
