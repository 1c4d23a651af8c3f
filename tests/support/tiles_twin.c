/* tiles_twin.c - see tiles_twin.h. */
#include "tiles_twin.h"

#include <string.h>

#include "kernels/tiles_walk.h"

struct twin {
    const struct tiles_args *args;
    const uint64_t *words;
    tiles_twin_fn visit;
    void *self;
    uint64_t *sum;
    uint64_t bytes; /* of all tiles so far */
};

/* What lane `lane` finds. */
static void block_find(const struct twin *twin, const struct tiles_part *part, uint32_t block,
                       uint64_t *src_out, uint64_t *dst_out)
{
    struct tiles_entry entry = tiles_entry(part, block);
    uint64_t pair = twin->words[entry.pair_at];

    *src_out = part->src_staged ? tiles_block_address(part->src, part->src_stride, 0, block)
                                : tiles_block_address(part->src, part->src_stride,
                                                      twin->words[entry.base_at], (uint32_t)pair);
    *dst_out = part->dst_staged ? tiles_block_address(part->dst, part->dst_stride, 0, block)
                                : tiles_block_address(part->dst, part->dst_stride,
                                                      twin->words[entry.base_at + 1], pair >> 32);
}

static void sum_words(const struct twin *twin, const struct tiles_part *part, uint64_t src,
                      uint64_t skip, uint32_t bytes, uint64_t ordinal)
{
    for (uint64_t at = skip; at < skip + bytes; at += 8) {
        uint64_t left = part->bytes - at;
        uint64_t value = 0;
        memcpy(&value, (const char *)(uintptr_t)src + at, left < 8 ? left : 8);
        *twin->sum += tiles_sum_word(value, ordinal, at / 8);
    }
}

static void tile_run(struct twin *twin, const struct tiles_part *part, uint32_t local)
{
    struct tiles_place place = tiles_place(part, local);
    uint64_t src[TILES_LANES], dst[TILES_LANES];

    assert_in_range(place.count, 1, part->count);
    assert_in_range(place.block_count, 1, TILES_LANES);
    assert_in_range(place.bytes, 1, part->bytes);
    twin->bytes += (uint64_t)place.count * place.bytes;
    for (uint32_t i = 0; i < place.block_count; i++) {
        block_find(twin, part, place.block + i, &src[i], &dst[i]);
    }
    for (uint32_t i = 0; i < place.count; i++) {
        uint32_t piece = place.piece + i;
        uint32_t block = tiles_divide(piece, part->by_piece);
        uint64_t from, to;

        assert_true(block < place.block_count);
        piece -= block * part->piece_count;
        from = src[block] + piece * part->src_step;
        to = dst[block] + piece * part->dst_step;
        assert_int_equal((from | to | part->bytes) & (((uint64_t)1 << part->width_log2) - 1), 0);
        if (twin->args->kind == TILES_SUM_SRC || twin->args->kind == TILES_SUM_DST) {
            assert_int_equal(from, to);
            sum_words(twin, part, from, place.skip, place.bytes,
                      part->ordinal + place.fragment + i);
        } else if (twin->visit != NULL) {
            twin->visit(twin->self, to + place.skip, from + place.skip, place.bytes);
        } else {
            memcpy((void *)(uintptr_t)(to + place.skip),
                   (const void *)(uintptr_t)(from + place.skip), place.bytes);
        }
    }
}

void tiles_twin_run(const struct tiles_args *args, tiles_twin_fn visit, void *self, uint64_t *sum)
{
    struct twin twin = {args, args->table != NULL ? args->table : args->words, visit, self, sum, 0};

    assert_true(tiles_check(args));
    assert_in_range(args->tile_count, 1, UINT32_MAX >> 1);
    for (uint32_t tile = args->tile_count; tile > 0; tile--) {
        uint32_t at = tiles_find(args->first_tile, args->part_count, tile - 1);
        tile_run(&twin, &args->parts[at], tile - 1 - args->first_tile[at]);
    }
    assert_int_equal(twin.bytes, args->bytes);
}
