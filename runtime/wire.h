/*
 * wire.h - bounded little-endian cursors for everything that leaves the process.
 *
 * Errors stick: after the first overrun all reads give 0 and all writes do nothing, so that a
 * decoder checks once at its end. The bytes need no alignment. Nothing here allocates.
 *
 * Optional fields are {tag u16, length u32, bytes}; the tag's top bit says "refuse the whole if you
 * do not know me".
 */
#ifndef KVF_WIRE_H
#define KVF_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- reading -------------------------------------------------------------------------------- */

struct wire_reader {
    const uint8_t *at; /* borrows */
    size_t left_bytes;
    bool failed; /* sticks */
};

static inline struct wire_reader wire_reader_make(const void *bytes, size_t len_bytes)
{
    return (struct wire_reader){.at = bytes, .left_bytes = len_bytes, .failed = false};
}

/*
 * The next `len_bytes` bytes in place, or NULL past the end. With length 0 never NULL unless the
 * reader has failed or reads NULL.
 */
static inline const uint8_t *wire_get_bytes(struct wire_reader *reader, size_t len_bytes)
{
    const uint8_t *at = reader->at;

    if (reader->failed || len_bytes > reader->left_bytes) {
        reader->failed = true;
        return NULL;
    }
    if (len_bytes > 0) {
        reader->at += len_bytes;
        reader->left_bytes -= len_bytes;
    }
    return at;
}

static inline uint16_t wire_load_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | (unsigned)at[1] << 8);
}

static inline uint32_t wire_load_u32(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Many u32: one copy where the machine has the wire's byte order. */
static inline void wire_load_words(uint32_t *words_out, const uint8_t *at, size_t count)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (count > 0)
        memcpy(words_out, at, count * 4);
#else
    for (size_t i = 0; i < count; i++)
        words_out[i] = wire_load_u32(at + i * 4);
#endif
}

static inline uint64_t wire_load_u64(const uint8_t *at)
{
    return wire_load_u32(at) | (uint64_t)wire_load_u32(at + 4) << 32;
}

static inline uint8_t wire_get_u8(struct wire_reader *reader)
{
    const uint8_t *at = wire_get_bytes(reader, 1);

    return at == NULL ? 0 : at[0];
}

static inline uint16_t wire_get_u16(struct wire_reader *reader)
{
    const uint8_t *at = wire_get_bytes(reader, 2);

    return at == NULL ? 0 : wire_load_u16(at);
}

static inline uint32_t wire_get_u32(struct wire_reader *reader)
{
    const uint8_t *at = wire_get_bytes(reader, 4);

    return at == NULL ? 0 : wire_load_u32(at);
}

static inline uint64_t wire_get_u64(struct wire_reader *reader)
{
    const uint8_t *at = wire_get_bytes(reader, 8);

    return at == NULL ? 0 : wire_load_u64(at);
}

/* A reader of the next `len_bytes` bytes; a failed one past the end. */
static inline struct wire_reader wire_get_part(struct wire_reader *reader, size_t len_bytes)
{
    const uint8_t *at = wire_get_bytes(reader, len_bytes);

    return (struct wire_reader){
        .at = at, .left_bytes = reader->failed ? 0 : len_bytes, .failed = reader->failed};
}

/* True when all was read and nothing was wrong. */
static inline bool wire_reader_ended(const struct wire_reader *reader)
{
    return !reader->failed && reader->left_bytes == 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

/* `bytes` NULL with any capacity only counts: a first pass that finds the size. */
struct wire_writer {
    uint8_t *bytes; /* borrows */
    size_t len_bytes;
    size_t max_bytes;
    bool failed; /* did not fit; sticks */
};

static inline struct wire_writer wire_writer_make(void *bytes, size_t max_bytes)
{
    return (struct wire_writer){.bytes = bytes, .max_bytes = max_bytes};
}

static inline struct wire_writer wire_writer_count(void)
{
    return (struct wire_writer){.max_bytes = SIZE_MAX};
}

/* Room for `len_bytes` bytes, to be filled by the caller; NULL when only counting or failed. */
static inline uint8_t *wire_put_room(struct wire_writer *writer, size_t len_bytes)
{
    uint8_t *at;

    if (writer->failed || len_bytes > writer->max_bytes - writer->len_bytes) {
        writer->failed = true;
        return NULL;
    }
    at = writer->bytes == NULL ? NULL : writer->bytes + writer->len_bytes;
    writer->len_bytes += len_bytes;
    return at;
}

static inline void wire_store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
}

static inline void wire_store_u32(uint8_t *at, uint32_t value)
{
    wire_store_u16(at, (uint16_t)value);
    wire_store_u16(at + 2, (uint16_t)(value >> 16));
}

static inline void wire_store_u64(uint8_t *at, uint64_t value)
{
    wire_store_u32(at, (uint32_t)value);
    wire_store_u32(at + 4, (uint32_t)(value >> 32));
}

static inline void wire_put_bytes(struct wire_writer *writer, const void *bytes, size_t len_bytes)
{
    uint8_t *at = wire_put_room(writer, len_bytes);

    if (at != NULL && len_bytes > 0)
        memcpy(at, bytes, len_bytes);
}

static inline void wire_put_u8(struct wire_writer *writer, uint8_t value)
{
    wire_put_bytes(writer, &value, 1);
}

static inline void wire_put_u16(struct wire_writer *writer, uint16_t value)
{
    uint8_t *at = wire_put_room(writer, 2);

    if (at != NULL)
        wire_store_u16(at, value);
}

static inline void wire_put_u32(struct wire_writer *writer, uint32_t value)
{
    uint8_t *at = wire_put_room(writer, 4);

    if (at != NULL)
        wire_store_u32(at, value);
}

/* Many u32: one copy where the machine has the wire's byte order. */
static inline void wire_put_words(struct wire_writer *writer, const uint32_t *words, size_t count)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    wire_put_bytes(writer, words, count * 4);
#else
    uint8_t *at = wire_put_room(writer, count * 4);

    for (size_t i = 0; at != NULL && i < count; i++)
        wire_store_u32(at + i * 4, words[i]);
#endif
}

static inline void wire_put_u64(struct wire_writer *writer, uint64_t value)
{
    uint8_t *at = wire_put_room(writer, 8);

    if (at != NULL)
        wire_store_u64(at, value);
}

/* ---- optional fields ------------------------------------------------------------------------ */

#define WIRE_FIELD_REQUIRED 0x8000u /* bit of a tag: who does not know it refuses the whole */
#define WIRE_FIELD_HEAD_BYTES 6u

struct wire_field {
    uint16_t tag; /* with the required bit */
    struct wire_reader value;
};

static inline bool wire_field_is_required(const struct wire_field *field)
{
    return (field->tag & WIRE_FIELD_REQUIRED) != 0;
}

/*
 * The next optional field. False at the end and when the field is cut short (the reader has then
 * failed): loop, then ask wire_reader_ended().
 */
static inline bool wire_get_field(struct wire_reader *reader, struct wire_field *field_out)
{
    if (reader->failed || reader->left_bytes == 0)
        return false;
    field_out->tag = wire_get_u16(reader);
    field_out->value = wire_get_part(reader, wire_get_u32(reader));
    return !reader->failed;
}

/* Starts a field; returns what wire_put_field_end() needs. Fields may nest. */
static inline size_t wire_put_field_begin(struct wire_writer *writer, uint16_t tag)
{
    wire_put_u16(writer, tag);
    wire_put_u32(writer, 0);
    return writer->len_bytes;
}

/* Ends the field that `begin` started: writes its length. Fails beyond UINT32_MAX bytes. */
static inline void wire_put_field_end(struct wire_writer *writer, size_t begin)
{
    size_t len_bytes = writer->len_bytes - begin;

    if (writer->failed)
        return;
    if (len_bytes > UINT32_MAX)
        writer->failed = true;
    else if (writer->bytes != NULL)
        wire_store_u32(writer->bytes + begin - 4, (uint32_t)len_bytes);
}

/* ---- checksums (xxHash) --------------------------------------------------------------------- */

/* 32 bits over one piece of memory. */
uint32_t wire_checksum(const void *bytes, size_t len_bytes);

/*
 * 32 bits over `len_bytes` bytes, of which the u32 at `hole_at` counts as 0 (the checksum itself).
 */
uint32_t wire_checksum_but(const void *bytes, size_t len_bytes, size_t hole_at);

/* 64 bits, for comparing what ranks hold. */
uint64_t wire_hash64(const void *bytes, size_t len_bytes, uint64_t seed);

/* The same over pieces that follow each other: begin, add any number of times, end. */
struct wire_hash {
    uint64_t words[11]; /* of the hash's own code */
};
void wire_hash_begin(struct wire_hash *hash, uint64_t seed);
void wire_hash_add(struct wire_hash *hash, const void *bytes, size_t len_bytes);
uint64_t wire_hash_end(const struct wire_hash *hash);

#endif /* KVF_WIRE_H */
