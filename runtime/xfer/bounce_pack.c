/*
 * bounce_pack.c - see bounce_pack.h.
 *
 * Fragments come in rows: the pieces of one (stripe, pair, base). A row is taken as far as it fits
 * in one step, whatever its length. The last piece taken stays open, since the fragment after it
 * may continue it on both sides; all before it is in the run.
 */
#include "xfer/bounce_pack.h"

#include "check.h"

void bounce_pack_init(struct bounce_pack *pack, const struct stripe *stripes, uint32_t stripe_count,
                      uint64_t chunk_bytes)
{
    KVF_REQUIRE(chunk_bytes >= BOUNCE_PACK_ALIGN);
    *pack = (struct bounce_pack){
        .stripes = stripes, .stripe_count = stripe_count, .chunk_bytes = chunk_bytes};
}

void bounce_pack_seek(struct bounce_pack *pack, struct bounce_place place)
{
    pack->at = place;
    pack->open.pieces = pack->run.pieces = 0;
}

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + BOUNCE_PACK_ALIGN - 1) / BOUNCE_PACK_ALIGN * BOUNCE_PACK_ALIGN;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What is left of the row at the walk's place. */
struct row {
    uint64_t src, dst;
    uint64_t src_stride, dst_stride;
    uint64_t bytes; /* of a piece */
    uint32_t count;
    bool cut; /* one part of a fragment that is larger than a chunk */
};

/* To the next row. */
static void advance_row(struct bounce_pack *pack)
{
    const struct stripe *stripe = &pack->stripes[pack->at.stripe];

    pack->at.piece = 0;
    pack->at.offset = 0;
    if (++pack->at.base < stripe->base_count)
        return;
    pack->at.base = 0;
    if (++pack->at.pair < stripe->pair_count)
        return;
    pack->at.pair = 0;
    pack->at.stripe++;
}

static void advance(struct bounce_pack *pack, const struct row *row, uint32_t pieces)
{
    const struct stripe *stripe = &pack->stripes[pack->at.stripe];

    if (row->cut) {
        pack->at.offset += row->bytes;
        if (pack->at.offset < stripe->piece_bytes)
            return;
        pack->at.offset = 0;
    }
    pack->at.piece += pieces;
    if (pack->at.piece == stripe->piece_count)
        advance_row(pack);
}

/* False at the end of the write. */
static bool row_here(struct bounce_pack *pack, struct row *row_out)
{
    const struct bounce_place *at = &pack->at;
    const struct stripe *stripe;
    uint64_t part = pack->chunk_bytes / BOUNCE_PACK_ALIGN * BOUNCE_PACK_ALIGN;

    while (at->stripe < pack->stripe_count && stripe_fragments(&pack->stripes[at->stripe]) == 0)
        pack->at.stripe++;
    if (at->stripe == pack->stripe_count)
        return false;
    stripe = &pack->stripes[at->stripe];
    *row_out = (struct row){
        .src = stripe->src + stripe->bases[at->base].src +
               stripe->pairs[at->pair].src * stripe->src_stride +
               at->piece * stripe->src_piece_stride,
        .dst = stripe->dst + stripe->bases[at->base].dst +
               stripe->pairs[at->pair].dst * stripe->dst_stride +
               at->piece * stripe->dst_piece_stride,
        .src_stride = stripe->src_piece_stride,
        .dst_stride = stripe->dst_piece_stride,
        .bytes = stripe->piece_bytes,
        .count = stripe->piece_count - at->piece,
    };
    if (stripe->piece_bytes > pack->chunk_bytes) {
        row_out->src += at->offset;
        row_out->dst += at->offset;
        row_out->bytes = min_u64(part, stripe->piece_bytes - at->offset);
        row_out->count = 1;
        row_out->cut = true;
    }
    return true;
}

bool bounce_pack_chunk(struct bounce_pack *pack)
{
    struct row row;

    KVF_REQUIRE(pack->run.pieces == 0 && pack->open.pieces == 0);
    pack->fill_bytes = pack->payload_bytes = 0;
    pack->entries = 0;
    return row_here(pack, &row);
}

/* Adds a series to the run; false: it does not go on with it, and the run is as before. */
static bool extend(struct bounce_run *run, const struct bounce_run *more)
{
    struct bounce_run made = *run;

    if (run->pieces == 0) {
        *run = *more;
        return true;
    }
    if (run->piece_bytes != more->piece_bytes || more->pieces > UINT32_MAX - run->pieces)
        return false;
    if (run->pieces == 1) {
        if (more->dst <= run->dst)
            return false;
        made.src_stride = more->src - run->src;
        made.dst_stride = more->dst - run->dst;
        made.chunk_stride = (uint32_t)(more->chunk_offset - run->chunk_offset);
    }
    if (more->src != run->src + run->pieces * made.src_stride ||
        more->dst != run->dst + run->pieces * made.dst_stride ||
        more->chunk_offset != run->chunk_offset + (uint64_t)run->pieces * made.chunk_stride)
        return false;
    if (more->pieces > 1 &&
        (more->src_stride != made.src_stride || more->dst_stride != made.dst_stride ||
         more->chunk_stride != made.chunk_stride))
        return false;
    made.pieces += more->pieces;
    *run = made;
    return true;
}

/* Gives the run out and begins the next with `more`. */
static void give(struct bounce_pack *pack, const struct bounce_run *more,
                 struct bounce_run *run_out)
{
    *run_out = pack->run;
    pack->run = *more;
}

/* The fragment continues the open piece on both sides, with no padding between. */
static bool joins(const struct bounce_pack *pack, const struct row *row)
{
    const struct bounce_run *open = &pack->open;

    return open->pieces == 1 && pack->fill_bytes % BOUNCE_PACK_ALIGN == 0 &&
           row->src == open->src + open->piece_bytes && row->dst == open->dst + open->piece_bytes;
}

/* Its pieces continue each other. */
static bool row_is_solid(const struct row *row)
{
    return row->src_stride == row->bytes && row->dst_stride == row->bytes &&
           row->bytes % BOUNCE_PACK_ALIGN == 0;
}

/* Grows the open piece by what fits; false when nothing does. */
static bool grow(struct bounce_pack *pack, const struct row *row)
{
    uint64_t count = (pack->chunk_bytes - pack->fill_bytes) / row->bytes;

    count = min_u64(count, row_is_solid(row) ? row->count : 1);
    if (count == 0)
        return false;
    pack->open.piece_bytes += (uint32_t)(count * row->bytes);
    pack->fill_bytes += count * row->bytes;
    pack->payload_bytes += count * row->bytes;
    advance(pack, row, (uint32_t)count);
    return true;
}

/* One new piece, of as many fragments as continue each other; it becomes the open one. */
static bool take_one(struct bounce_pack *pack, const struct row *row)
{
    uint64_t at = align_up(pack->fill_bytes);
    uint64_t count;

    if (at > pack->chunk_bytes || pack->entries == bounce_pieces_max(pack->chunk_bytes))
        return false;
    count = min_u64((pack->chunk_bytes - at) / row->bytes, row_is_solid(row) ? row->count : 1);
    if (count == 0)
        return false;
    pack->open = (struct bounce_run){
        .src = row->src,
        .dst = row->dst,
        .chunk_offset = at,
        .piece_bytes = (uint32_t)(count * row->bytes),
        .pieces = 1,
    };
    pack->entries++;
    pack->fill_bytes = at + count * row->bytes;
    pack->payload_bytes += count * row->bytes;
    advance(pack, row, (uint32_t)count);
    return true;
}

/* A strided row: all that fits but its last piece, as one series; false: too few fit. */
static bool take_series(struct bounce_pack *pack, const struct row *row,
                        struct bounce_run *series_out)
{
    uint64_t stride = align_up(row->bytes);
    uint64_t at = align_up(pack->fill_bytes);
    uint64_t count = row->count;

    if (row_is_solid(row) || row->count < 3 || at + row->bytes > pack->chunk_bytes ||
        stride > UINT32_MAX || row->dst_stride == 0 || row->dst_stride > UINT64_MAX / 2)
        return false;
    count = min_u64(count, (pack->chunk_bytes - at - row->bytes) / stride + 1);
    count = min_u64(count, bounce_pieces_max(pack->chunk_bytes) - pack->entries);
    if (count < 3)
        return false;
    count--; /* the last one may be continued by the next row */
    *series_out = (struct bounce_run){
        .src = row->src,
        .src_stride = row->src_stride,
        .dst = row->dst,
        .dst_stride = row->dst_stride,
        .chunk_offset = at,
        .chunk_stride = (uint32_t)stride,
        .piece_bytes = (uint32_t)row->bytes,
        .pieces = (uint32_t)count,
    };
    pack->entries += (uint32_t)count;
    pack->fill_bytes = at + (count - 1) * stride + row->bytes;
    pack->payload_bytes += count * row->bytes;
    advance(pack, row, (uint32_t)count);
    return true;
}

/* The open piece will not grow; true: `run_out` was given out instead of its run. */
static bool settle_open(struct bounce_pack *pack, struct bounce_run *run_out)
{
    struct bounce_run open = pack->open;

    pack->open.pieces = 0;
    if (open.pieces == 0 || extend(&pack->run, &open))
        return false;
    give(pack, &open, run_out);
    return true;
}

bool bounce_pack_run(struct bounce_pack *pack, struct bounce_run *run_out)
{
    struct bounce_run series;
    struct row row;

    while (row_here(pack, &row)) {
        if (joins(pack, &row)) {
            if (!grow(pack, &row))
                break;
            continue;
        }
        if (settle_open(pack, run_out))
            return true;
        if (take_series(pack, &row, &series)) {
            if (!extend(&pack->run, &series)) {
                give(pack, &series, run_out);
                return true;
            }
        } else if (!take_one(pack, &row)) {
            break;
        }
    }
    /* The chunk is closed: what is left of it. */
    if (settle_open(pack, run_out))
        return true;
    if (pack->run.pieces == 0)
        return false;
    *run_out = pack->run;
    pack->run.pieces = 0;
    return true;
}
