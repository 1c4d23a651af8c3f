/* content.c - see content.h. Words are little-endian in memory, on every machine we build for. */
#include "content.h"

#include <string.h>

#include "rng.h"

#define CONTENT_ODD 0x9e3779b97f4a7c15ull
#define CONTENT_BASES 64u

uint64_t content_key(enum content_kind kind, uint64_t id)
{
    return rng_mix(rng_mix(id + CONTENT_ODD) + (uint64_t)kind);
}

/* Word `index` of a run: one multiplication, since `base` is mixed well. */
static inline uint64_t content_word(uint64_t base, uint64_t index)
{
    uint64_t word = base + index * CONTENT_ODD;

    word ^= word >> 32;
    word *= 0xd6e8feb86659fd93ull;
    return word ^ (word >> 29);
}

uint8_t content_run_byte(uint64_t base, uint64_t offset)
{
    return (uint8_t)(content_word(base, offset / 8) >> (offset % 8 * 8));
}

/* Bytes before the first whole word of a run, at most `count`. */
static uint64_t content_run_head(uint64_t first, uint64_t count)
{
    uint64_t head = (8 - first % 8) % 8;

    return head < count ? head : count;
}

void content_run_fill(uint64_t base, uint64_t first, uint64_t count, void *bytes)
{
    uint64_t head = content_run_head(first, count);
    uint64_t words = (count - head) / 8;
    uint64_t at = (first + head) / 8;
    uint8_t *to = bytes;

    for (uint64_t i = 0; i < head; i++) {
        to[i] = content_run_byte(base, first + i);
    }
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = content_word(base, at + i);

        memcpy(to + head + i * 8, &word, 8);
    }
    for (uint64_t i = head + words * 8; i < count; i++) {
        to[i] = content_run_byte(base, first + i);
    }
}

/* Bytes of the run that differ, one at a time. */
static uint64_t content_run_count(uint64_t base, uint64_t first, uint64_t count,
                                  const uint8_t *from)
{
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < count; i++) {
        wrong += from[i] != content_run_byte(base, first + i);
    }
    return wrong;
}

uint64_t content_run_check(uint64_t base, uint64_t first, uint64_t count, const void *bytes)
{
    const uint8_t *from = bytes;
    uint64_t head = content_run_head(first, count);
    uint64_t words = (count - head) / 8;
    uint64_t differ = 0;

    for (uint64_t i = 0; i < words; i++) {
        uint64_t word;

        memcpy(&word, from + head + i * 8, 8);
        differ |= word ^ content_word(base, (first + head) / 8 + i);
    }
    if (differ != 0) {
        return content_run_count(base, first, count, from);
    }
    return content_run_count(base, first, head, from) +
           content_run_count(base, first + head + words * 8, count - head - words * 8,
                             from + head + words * 8);
}

struct content_place content_place_of(const struct kvf_place *place)
{
    struct content_place at;

    at.width = place->tp_size / place->dp_size;
    at.index = place->tp_rank % at.width;
    return at;
}

/* Heads of a layer of `total` heads at index i of t; false when they cannot be spread. */
static bool content_heads(uint32_t total, struct content_place place, struct content_shape *shape)
{
    if (total == 0 || place.width == 0) {
        return false;
    }
    if (total >= place.width) {
        shape->heads = total / place.width;
        shape->head_first = place.index * shape->heads;
        return total % place.width == 0;
    }
    shape->heads = 1;
    shape->head_first = place.index / (place.width / total);
    return place.width % total == 0;
}

/* Keys, values and their scales: `bits` a token and head. */
static bool content_kv(const struct kvf_model *model, const struct kvf_model_layer *layer,
                       uint64_t bits, struct content_place place, struct content_shape *shape)
{
    uint64_t all;

    shape->kind = model->nhd ? KVF_VIEW_NHD : KVF_VIEW_HND;
    if (bits == 0 || !content_heads(layer->kv_heads, place, shape)) {
        return false;
    }
    all = bits * shape->heads * model->tokens_per_block;
    if (all % 8 != 0) {
        return false;
    }
    shape->bytes = all / 8;
    shape->tokens = model->tokens_per_block;
    shape->row_bytes = bits / 8;
    if (bits % 8 != 0) {
        /*
         * A token of a head ends inside a byte: the head's block, or the whole buffer, is one row.
         */
        shape->tokens = 1;
        shape->heads = model->nhd || bits * model->tokens_per_block % 8 != 0 ? 1 : shape->heads;
        shape->row_bytes = shape->bytes / shape->heads;
    }
    return true;
}

static bool content_sections(const struct kvf_model_layer *layer, struct content_place place,
                             struct content_shape *shape)
{
    shape->kind = KVF_VIEW_SECTIONS;
    shape->sections = layer->section_count;
    for (uint32_t i = 0; i < layer->section_count; i++) {
        if (layer->section_bytes[i] % place.width != 0) {
            return false;
        }
        shape->section_bytes[i] = layer->section_bytes[i] / place.width;
        shape->section_first[i] = shape->section_bytes[i] * place.index;
        shape->bytes += shape->section_bytes[i];
    }
    return shape->bytes > 0;
}

static bool content_units(const struct kvf_model_layer *layer, struct content_place place,
                          struct content_shape *shape)
{
    shape->kind = KVF_VIEW_UNITS;
    shape->tokens = 1;
    shape->heads = layer->state_units / place.width;
    shape->head_first = shape->heads * place.index;
    shape->row_bytes = layer->state_unit_bytes;
    shape->bytes = shape->row_bytes * shape->heads;
    return layer->state_units > 0 && layer->state_units % place.width == 0;
}

static bool content_replicated(const struct kvf_model *model, const struct kvf_model_layer *layer,
                               struct content_shape *shape)
{
    shape->kind = KVF_VIEW_REPLICATED;
    shape->tokens = model->tokens_per_block;
    shape->heads = 1;
    shape->row_bytes = layer->index_bytes;
    shape->bytes = shape->row_bytes * shape->tokens;
    return layer->index_bytes > 0;
}

bool content_shape_make(const struct kvf_model *model, uint32_t layer, enum kvf_role_kind role,
                        struct content_place place, struct content_shape *shape_out)
{
    const struct kvf_model_layer *facts;
    struct content_shape shape = {.layer = layer, .role = role, .block = model->tokens_per_block};
    uint64_t bits, scale_bits;
    bool has = false;

    if (layer >= model->layer_count || place.width == 0) {
        return false;
    }
    facts = &model->layers[layer];
    bits = (uint64_t)facts->head_dim * facts->elem_bits;
    scale_bits = facts->scale_per == 0
                     ? 0
                     : (uint64_t)facts->head_dim / facts->scale_per * facts->scale_bits;
    switch (role) {
    case KVF_KEY:
        has = content_kv(model, facts, bits, place, &shape);
        break;
    case KVF_VALUE:
        has = !facts->k_only && content_kv(model, facts, bits, place, &shape);
        break;
    case KVF_KEY_SCALE:
        has = content_kv(model, facts, scale_bits, place, &shape);
        break;
    case KVF_VALUE_SCALE:
        has = !facts->k_only && content_kv(model, facts, scale_bits, place, &shape);
        break;
    case KVF_INDEX_KEY:
        has = content_replicated(model, facts, &shape);
        break;
    case KVF_CONV_STATE:
        has = content_sections(facts, place, &shape);
        break;
    case KVF_SSM_STATE:
        has = content_units(facts, place, &shape);
        break;
    case KVF_SIDE_STATE:
        break;
    }
    if (has) {
        *shape_out = shape;
    }
    return has;
}

/* One row: where it lies in the buffer, and the run that it holds a part of. */
struct content_row {
    uint64_t base;
    uint64_t first; /* its first byte in the run */
    uint64_t bytes;
    uint64_t offset; /* in the buffer */
    uint32_t head;
    uint32_t token;
};

static uint64_t content_head_base(const struct content_shape *shape, uint64_t key, uint32_t head)
{
    return rng_mix(
        key ^ rng_mix(((uint64_t)shape->layer << 40) + ((uint64_t)shape->role << 32) + head + 1));
}

static uint32_t content_rows(const struct content_shape *shape)
{
    return shape->kind == KVF_VIEW_SECTIONS ? shape->sections : shape->heads * shape->tokens;
}

/* Walks the rows of a buffer in the order of memory. */
struct content_walk {
    const struct content_shape *shape;
    uint64_t key;
    uint32_t ordinal;
    uint32_t rows_left;
    uint32_t head; /* of the next row, from 0 on this rank; the section's number */
    uint32_t token;
    uint64_t offset;
    uint64_t bases[CONTENT_BASES]; /* of the first heads, so that they are mixed once */
};

static void content_walk_init(struct content_walk *walk, const struct content_shape *shape,
                              uint64_t key, uint32_t ordinal)
{
    uint32_t heads = shape->heads < CONTENT_BASES ? shape->heads : CONTENT_BASES;

    walk->shape = shape;
    walk->key = key;
    walk->ordinal = ordinal;
    walk->rows_left = content_rows(shape);
    walk->head = walk->token = 0;
    walk->offset = 0;
    for (uint32_t h = 0; h < heads; h++) {
        walk->bases[h] = content_head_base(shape, key, shape->head_first + h);
    }
}

static void content_section_next(struct content_walk *walk, struct content_row *row_out)
{
    uint32_t section = walk->head++;

    row_out->head = section;
    row_out->token = 0;
    row_out->first = walk->shape->section_first[section];
    row_out->bytes = walk->shape->section_bytes[section];
    row_out->base = rng_mix(content_head_base(walk->shape, walk->key, section));
}

/* The next row; false at the end. */
static bool content_walk_next(struct content_walk *walk, struct content_row *row_out)
{
    const struct content_shape *shape = walk->shape;

    if (walk->rows_left == 0) {
        return false;
    }
    walk->rows_left--;
    row_out->offset = walk->offset;
    if (shape->kind == KVF_VIEW_SECTIONS) {
        content_section_next(walk, row_out);
        walk->offset += row_out->bytes;
        return true;
    }
    row_out->head = shape->head_first + walk->head;
    row_out->token = walk->ordinal * shape->block + walk->token;
    row_out->first = 0;
    row_out->bytes = shape->row_bytes;
    row_out->base = walk->head < CONTENT_BASES ? walk->bases[walk->head]
                                               : content_head_base(shape, walk->key, row_out->head);
    row_out->base = rng_mix(row_out->base + row_out->token * CONTENT_ODD);
    walk->offset += shape->row_bytes;
    if (shape->kind == KVF_VIEW_NHD) {
        walk->head = walk->head + 1 == shape->heads ? 0 : walk->head + 1;
        walk->token += walk->head == 0;
    } else {
        walk->token = walk->token + 1 == shape->tokens ? 0 : walk->token + 1;
        walk->head += walk->token == 0;
    }
    return true;
}

void content_fill(const struct content_shape *shape, uint64_t key, uint32_t ordinal, void *buffer)
{
    struct content_walk walk;
    struct content_row row;

    content_walk_init(&walk, shape, key, ordinal);
    while (content_walk_next(&walk, &row)) {
        content_run_fill(row.base, row.first, row.bytes, (uint8_t *)buffer + row.offset);
    }
}

/* The first wrong byte of a row that has some. */
static void content_find_bad(const struct content_row *row, const uint8_t *bytes,
                             struct content_bad *bad_out)
{
    for (uint64_t k = 0; k < row->bytes; k++) {
        uint8_t want = content_run_byte(row->base, row->first + k);

        if (bytes[row->offset + k] != want) {
            bad_out->offset = row->offset + k;
            bad_out->head = row->head;
            bad_out->token = row->token;
            bad_out->want = want;
            bad_out->got = bytes[row->offset + k];
            return;
        }
    }
}

uint64_t content_check(const struct content_shape *shape, uint64_t key, uint32_t ordinal,
                       const void *buffer, struct content_bad *bad_out)
{
    const uint8_t *bytes = buffer;
    struct content_walk walk;
    struct content_row row;
    uint64_t wrong = 0;

    content_walk_init(&walk, shape, key, ordinal);
    while (content_walk_next(&walk, &row)) {
        uint64_t differ = content_run_check(row.base, row.first, row.bytes, bytes + row.offset);

        if (differ > 0 && wrong == 0) {
            content_find_bad(&row, bytes, bad_out);
        }
        wrong += differ;
    }
    return wrong;
}
