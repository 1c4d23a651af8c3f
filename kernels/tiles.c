/*
 * tiles.c - see tiles.h: limits, shapes of tiles, tables.
 *
 * May not know what a device is, allocate, or look at the bytes that are to be moved.
 */
#include "tiles.h"

#include <string.h>

#include "tiles_walk.h"

#define FRAGMENTS_MAX ((uint64_t)1 << 30) /* of a part, with those before `first` */
#define FRAGMENT_BYTES_MAX ((uint64_t)1 << TILES_FRAGMENT_LOG2_MAX)
#define TILES_MAX ((uint64_t)1 << 30) /* of a part; a launch has less than 2^31 */

/* ---- the list ------------------------------------------------------------------------------- */

/* Item `at` of the list as a span. */
static struct stage_span item_at(const struct tiles_cursor *cursor, uint32_t at)
{
    if (cursor->stripes == NULL) {
        return cursor->spans[at];
    }
    return (struct stage_span){.stripe = &cursor->stripes[at],
                               .count = stripe_fragments(&cursor->stripes[at])};
}

static void skip_empty(struct tiles_cursor *cursor)
{
    while (cursor->at < cursor->count && item_at(cursor, cursor->at).count == 0) {
        cursor->at++;
    }
}

void tiles_init_stripes(struct tiles_cursor *cursor, enum tiles_kind kind,
                        const struct stripe *stripes, uint32_t count)
{
    *cursor = (struct tiles_cursor){.kind = kind, .stripes = stripes, .count = count};
    skip_empty(cursor);
}

void tiles_init_spans(struct tiles_cursor *cursor, enum tiles_kind kind,
                      const struct stage_span *spans, uint32_t count)
{
    *cursor = (struct tiles_cursor){.kind = kind, .spans = spans, .count = count};
    skip_empty(cursor);
}

bool tiles_ended(const struct tiles_cursor *cursor)
{
    return cursor->at == cursor->count;
}

static uint64_t bytes_left(const struct tiles_cursor *cursor)
{
    uint64_t bytes = 0;

    for (uint32_t i = cursor->at; i < cursor->count; i++) {
        struct stage_span span = item_at(cursor, i);
        uint64_t done = i == cursor->at ? cursor->done : 0;
        bytes += (span.count - done) * span.stripe->piece_bytes;
    }
    return bytes;
}

static void advance(struct tiles_cursor *cursor, uint64_t fragments)
{
    cursor->done += fragments;
    cursor->ordinal += fragments;
    if (cursor->done == item_at(cursor, cursor->at).count) {
        cursor->done = 0;
        cursor->at++;
        skip_empty(cursor);
    }
}

/* ---- shapes --------------------------------------------------------------------------------- */

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static uint64_t align_up(uint64_t a, uint64_t to)
{
    return divide_up(a, to) * to;
}

struct tiles_div tiles_div_make(uint32_t divisor)
{
    uint32_t log2_up = 0;

    if (divisor == 1) {
        return (struct tiles_div){0, 0};
    }
    while (((uint64_t)1 << log2_up) < divisor) {
        log2_up++;
    }
    return (struct tiles_div){
        .mul = (uint32_t)((((uint64_t)1 << (31 + log2_up)) + divisor - 1) / divisor),
        .shift = log2_up - 1,
    };
}

/* Bytes of a tile, so that every warp finds some and none finds few large ones. */
static uint64_t tile_bytes(uint64_t total_bytes, uint32_t sms)
{
    uint64_t bytes = total_bytes / ((uint64_t)sms * TILES_WARPS_A_SM * TILES_A_WARP);

    if (bytes < TILES_BYTES_MIN) {
        return TILES_BYTES_MIN;
    }
    return bytes > TILES_BYTES_MAX ? TILES_BYTES_MAX : bytes;
}

/* The widest vector that all fragments of the part are made of. */
static uint8_t common_width_log2(const struct tiles_part *part, const uint64_t *bases)
{
    uint64_t bits = part->src | part->dst | part->src_stride | part->dst_stride | part->bytes;
    uint8_t log2 = 0;

    if (part->piece_count > 1) {
        bits |= part->src_step | part->dst_step;
    }
    for (uint32_t i = 0; i < part->base_count; i++) {
        bits |= part->src_staged ? 0 : bases[(size_t)2 * i];
        bits |= part->dst_staged ? 0 : bases[(size_t)2 * i + 1];
    }
    while (log2 < 4 && (bits >> log2 & 1) == 0) {
        log2++;
    }
    return log2;
}

/* Sums go by words of 8 bytes, the last one padded, whatever the width. */
static void shape_part(struct tiles_part *part, const uint64_t *bases, uint64_t target_bytes,
                       bool sums)
{
    uint64_t most = (uint64_t)(TILES_LANES - 1) * part->piece_count + 1;
    uint64_t vectors;

    part->width_log2 = common_width_log2(part, bases);
    vectors = part->bytes >> part->width_log2;
    part->flat = part->width_log2 == 4 ? part->bytes < TILES_WIDE_BYTES_MIN
                                       : vectors <= TILES_WIDE_VECTORS_MIN;
    part->a_tile = 1;
    part->cuts = 1;
    part->cut_bytes = 0;
    if (!part->flat && part->bytes > target_bytes) {
        uint64_t cuts = divide_up(part->bytes, target_bytes);
        part->cut_bytes = (uint32_t)align_up(divide_up(part->bytes, cuts), TILES_CUT_ALIGN);
        part->cuts = (uint32_t)divide_up(part->bytes, part->cut_bytes);
    } else if (part->bytes < target_bytes) {
        uint64_t a_tile = target_bytes / part->bytes;
        part->a_tile = (uint32_t)(a_tile < most ? a_tile : most);
    }
    if (sums) {
        part->flat = true;
        vectors = divide_up(part->bytes, sizeof(uint64_t));
    }
    part->by_base = tiles_div_make(part->base_count);
    part->by_piece = tiles_div_make(part->piece_count);
    part->by_cuts = tiles_div_make(part->cuts);
    part->by_vectors = tiles_div_make(part->flat && part->cuts == 1 ? (uint32_t)vectors : 1);
}

static uint64_t part_tiles(const struct tiles_part *part)
{
    return part->cuts > 1 ? (uint64_t)part->count * part->cuts
                          : divide_up(part->count, part->a_tile);
}

/* ---- packing -------------------------------------------------------------------------------- */

/* The launch that is being packed. */
struct pack {
    struct tiles_args *args;
    uint64_t *words;
    uint32_t words_used;
    uint32_t words_max;
    uint32_t parts_max;
    uint64_t target_bytes;
    const struct stripe_base *bases; /* of the last part: the same ones are not copied again */
    const struct stripe_pair *pairs;
    uint32_t base_count;
    uint32_t pair_count;
    uint32_t bases_at; /* words */
    uint32_t pairs_at;
};

/* One piece of the list on its way into a part. */
struct cut {
    const struct stripe *stripe;
    uint64_t first; /* fragments of the stripe */
    uint64_t count;
    uint64_t staging; /* of fragment `first` */
    uint64_t ordinal;
};

static bool is_sum(enum tiles_kind kind)
{
    return kind == TILES_SUM_SRC || kind == TILES_SUM_DST;
}

static bool pieces_join(enum tiles_kind kind, const struct stripe *stripe, const struct cut *cut)
{
    uint64_t staging_step = stage_step(stripe);
    uint64_t src_step = kind == TILES_SCATTER ? staging_step : stripe->src_piece_stride;
    uint64_t dst_step = kind == TILES_GATHER ? staging_step : stripe->dst_piece_stride;

    /* Sums name fragments by their number, so they count them as they are. */
    return !is_sum(kind) && src_step == stripe->piece_bytes && dst_step == stripe->piece_bytes &&
           cut->first % stripe->piece_count == 0 && cut->count % stripe->piece_count == 0;
}

/* Staging addresses count from the block of fragment `first`; sums read where copies would. */
static void place_sides(struct tiles_part *part, enum tiles_kind kind, const struct stripe *stripe,
                        const struct cut *cut)
{
    uint64_t step = align_up(part->bytes, STAGE_ALIGN);
    uint64_t staging = cut->staging - part->first * step;

    part->src = stripe->src;
    part->dst = stripe->dst;
    part->src_stride = stripe->src_stride;
    part->dst_stride = stripe->dst_stride;
    part->src_step = stripe->src_piece_stride;
    part->dst_step = stripe->dst_piece_stride;
    if (kind == TILES_GATHER) {
        part->dst = staging;
        part->dst_stride = step * part->piece_count;
        part->dst_step = step;
        part->dst_staged = true;
    } else if (kind == TILES_SCATTER) {
        part->src = staging;
        part->src_stride = step * part->piece_count;
        part->src_step = step;
        part->src_staged = true;
    } else if (kind == TILES_SUM_SRC) {
        part->dst = part->src;
        part->dst_stride = part->src_stride;
        part->dst_step = part->src_step;
    } else if (kind == TILES_SUM_DST) {
        part->src = part->dst;
        part->src_stride = part->dst_stride;
        part->src_step = part->dst_step;
    }
}

/* A sum reads one side: the tables name it twice. */
static void put_bases(struct pack *pack, const struct stripe *stripe, enum tiles_kind kind)
{
    for (uint32_t i = 0; i < stripe->base_count; i++) {
        struct stripe_base base = stripe->bases[i];
        pack->words[pack->words_used++] = kind == TILES_SUM_DST ? base.dst : base.src;
        pack->words[pack->words_used++] = kind == TILES_SUM_SRC ? base.src : base.dst;
    }
}

static void put_pairs(struct pack *pack, const struct stripe_pair *pairs, uint32_t count,
                      enum tiles_kind kind)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t src = kind == TILES_SUM_DST ? pairs[i].dst : pairs[i].src;
        uint32_t dst = kind == TILES_SUM_SRC ? pairs[i].src : pairs[i].dst;
        pack->words[pack->words_used++] = tiles_pair_word(src, dst);
    }
}

/*
 * How many fragments of the cut have room in the tables: all, or up to the end of a pair. 0: none.
 */
static uint64_t fits(const struct pack *pack, const struct cut *cut)
{
    const struct stripe *stripe = cut->stripe;
    uint64_t a_pair = (uint64_t)stripe->base_count * stripe->piece_count;
    uint64_t in_first = cut->first % a_pair;
    uint64_t pairs = divide_up(in_first + cut->count, a_pair);
    uint64_t room = pack->words_max - pack->words_used;
    uint64_t most;

    if (pack->bases != stripe->bases || pack->base_count != stripe->base_count) {
        if (room < 2 * (uint64_t)stripe->base_count) {
            return 0;
        }
        room -= 2 * (uint64_t)stripe->base_count;
    }
    if (pairs > FRAGMENTS_MAX / a_pair) {
        pairs = FRAGMENTS_MAX / a_pair;
    }
    if (pack->pairs != stripe->pairs + cut->first / a_pair || pack->pair_count < pairs) {
        pairs = pairs < room ? pairs : room;
    }
    most = pairs * a_pair;
    if (most <= in_first) {
        return 0;
    }
    return cut->count < most - in_first ? cut->count : most - in_first;
}

/* Tables of the part: those of the one before where they are the same arrays. */
static void part_tables(struct pack *pack, struct tiles_part *part, const struct cut *cut)
{
    const struct stripe *stripe = cut->stripe;
    uint64_t a_pair = (uint64_t)stripe->base_count * stripe->piece_count;
    const struct stripe_pair *pairs = stripe->pairs + cut->first / a_pair;
    uint32_t pair_count = (uint32_t)divide_up(cut->first % a_pair + cut->count, a_pair);

    if (pack->bases == stripe->bases && pack->base_count == stripe->base_count) {
        part->bases_at = pack->bases_at;
    } else {
        part->bases_at = pack->bases_at = pack->words_used;
        put_bases(pack, stripe, pack->args->kind);
        pack->bases = stripe->bases;
        pack->base_count = stripe->base_count;
    }
    if (pack->pairs == pairs && pack->pair_count >= pair_count) {
        part->pairs_at = pack->pairs_at;
    } else {
        part->pairs_at = pack->pairs_at = pack->words_used;
        put_pairs(pack, pairs, pair_count, pack->args->kind);
        pack->pairs = pairs;
        pack->pair_count = pair_count;
    }
}

/* Adds the cut as a part; less than the cut where the launch would have too many tiles. */
static uint64_t add_part(struct pack *pack, struct cut *cut)
{
    struct tiles_args *args = pack->args;
    struct tiles_part *part = &args->parts[args->part_count];
    const struct stripe *stripe = cut->stripe;
    bool joined = pieces_join(args->kind, stripe, cut);
    uint64_t a_fragment = joined ? stripe->piece_count : 1;
    uint64_t a_pair = (uint64_t)stripe->base_count * stripe->piece_count;

    *part = (struct tiles_part){
        .bytes = stripe->piece_bytes * a_fragment,
        .ordinal = cut->ordinal,
        .first = (uint32_t)(cut->first % a_pair / a_fragment),
        .count = (uint32_t)(cut->count / a_fragment),
        .base_count = stripe->base_count,
        .piece_count = joined ? 1 : stripe->piece_count,
    };
    place_sides(part, args->kind, stripe, cut);
    part_tables(pack, part, cut);
    shape_part(part, &pack->words[part->bases_at], pack->target_bytes, is_sum(args->kind));
    if (part_tiles(part) > TILES_MAX) {
        part->count = (uint32_t)(TILES_MAX / part->cuts);
    }
    args->first_tile[args->part_count++] = args->tile_count;
    args->tile_count += (uint32_t)part_tiles(part);
    args->bytes += part->count * part->bytes;
    return part->count * a_fragment;
}

static struct cut next_cut(const struct tiles_cursor *cursor)
{
    struct stage_span span = item_at(cursor, cursor->at);
    uint64_t step = stage_step(span.stripe);

    return (struct cut){
        .stripe = span.stripe,
        .first = span.first + cursor->done,
        .count = span.count - cursor->done,
        .staging = span.staging + cursor->done * step,
        .ordinal = cursor->ordinal,
    };
}

static enum kvf_status check_next(const struct tiles_cursor *cursor)
{
    const struct stripe *stripe = item_at(cursor, cursor->at).stripe;

    if (stripe->base_count > TILES_BASES_MAX || stripe->piece_bytes > FRAGMENT_BYTES_MAX ||
        (uint64_t)stripe->base_count * stripe->piece_count > FRAGMENTS_MAX / 2) {
        return KVF_E_TOO_LARGE;
    }
    return KVF_OK;
}

/* As much of the list as has room; the last part may end inside an item. */
static void fill(struct pack *pack, struct tiles_cursor *cursor)
{
    struct tiles_args *args = pack->args;

    while (!tiles_ended(cursor) && args->part_count < pack->parts_max &&
           args->tile_count < TILES_MAX) {
        struct cut cut = next_cut(cursor);

        if (check_next(cursor) != KVF_OK) {
            return;
        }
        cut.count = fits(pack, &cut);
        if (cut.count == 0) {
            return;
        }
        advance(cursor, add_part(pack, &cut));
    }
}

static void pack_into(struct pack *pack, struct tiles_cursor *cursor, struct tiles_args *args)
{
    args->kind = cursor->kind;
    args->part_count = 0;
    args->tile_count = 0;
    args->bytes = 0;
    pack->args = args;
    fill(pack, cursor);
}

enum kvf_status tiles_pack(struct tiles_cursor *cursor, uint32_t sms, uint64_t *table,
                           struct tiles_args *args_out)
{
    struct tiles_cursor next = *cursor;
    struct pack inside = {.words = args_out->words,
                          .words_max = TILES_WORDS_INSIDE_MAX,
                          .parts_max = TILES_PARTS_INSIDE_MAX};
    uint64_t blocks;

    if (tiles_ended(cursor) || sms == 0 || sms > TILES_SMS_MAX) {
        return KVF_E_INVAL;
    }
    if (check_next(cursor) != KVF_OK) {
        return KVF_E_TOO_LARGE;
    }
    inside.target_bytes = tile_bytes(bytes_left(cursor), sms);
    args_out->table = NULL;
    pack_into(&inside, &next, args_out);
    if (!tiles_ended(&next) && table != NULL) {
        struct pack outside = {.words = table,
                               .words_max = TILES_TABLE_WORDS,
                               .parts_max = TILES_PARTS_MAX,
                               .target_bytes = inside.target_bytes};
        next = *cursor;
        args_out->table = table;
        pack_into(&outside, &next, args_out);
    }
    if (args_out->part_count == 0) {
        return KVF_E_TOO_LARGE;
    }
    blocks = divide_up(args_out->tile_count, TILES_WARPS_A_SM);
    args_out->block_count = (uint32_t)(blocks < sms ? blocks : sms);
    *cursor = next;
    return KVF_OK;
}

bool tiles_check(const struct tiles_args *args)
{
    uint32_t words = args->table == NULL ? TILES_WORDS_INSIDE_MAX : TILES_TABLE_WORDS;
    uint32_t tiles = 0;

    for (uint32_t i = 0; i < args->part_count; i++) {
        const struct tiles_part *part = &args->parts[i];
        uint64_t in_block = (uint64_t)part->base_count * part->piece_count;
        uint64_t pairs = divide_up(part->first + (uint64_t)part->count, in_block);

        if (part->count == 0 || part->first >= in_block ||
            part->first + (uint64_t)part->count > FRAGMENTS_MAX || part->a_tile == 0 ||
            part->cuts == 0 || (part->cuts > 1 && part->a_tile > 1) ||
            args->first_tile[i] != tiles || part->pairs_at + pairs > words ||
            part->bases_at + 2 * (uint64_t)part->base_count > words) {
            return false;
        }
        tiles += (uint32_t)part_tiles(part);
        if (part->a_tile > (uint64_t)(TILES_LANES - 1) * part->piece_count + 1) {
            return false;
        }
    }
    return tiles == args->tile_count;
}
