/*
 * copy_host_isa.h - what copy_host.c and its instruction set variants share. Inside kernels/ only.
 *
 * A variant is one function that copies whole lines with streaming stores; the rest (the walk over
 * the fragments of a stripe, heads, tails, tiny fragments, prefetch of fragments to come) is the
 * same for all and is inlined into each. Addresses are made as they are needed, between two
 * fragments, while stores still drain: a list made beforehand costs a tenth at 512 B.
 */
#ifndef KVF_COPY_HOST_ISA_H
#define KVF_COPY_HOST_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "stripe.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define COPY_HOST_X86 1
#else
#define COPY_HOST_X86 0
#endif

#define COPY_INLINE static inline __attribute__((always_inline))

/* Chosen by measuring: random fragments of 64 B to 1 MiB, all variants. */
enum {
    COPY_LINE_BYTES = 64,
    /*
     * Below it a fragment with partial lines is stored plainly; one of whole lines always streams.
     */
    COPY_STREAM_BYTES_MIN = 256,
    /* How far ahead fragments are prefetched: in bytes of the copy, and at most so many of them. */
    COPY_AHEAD_BYTES = 6144,
    COPY_AHEAD_FRAGMENTS_MAX = 32,
    /* Of one fragment; what lies further is found by the hardware's own prefetch. */
    COPY_AHEAD_FRAGMENT_BYTES = 8192,
};

/* Fragments of one size: a stripe whose pieces do not join, or one whose pieces were joined. */
struct copy_run {
    uint64_t src; /* addresses of slot 0 */
    uint64_t dst;
    const struct stripe_base *bases;
    const struct stripe_pair *pairs;
    uint64_t src_stride;
    uint64_t dst_stride;
    uint64_t src_piece_stride;
    uint64_t dst_piece_stride;
    uint64_t bytes; /* of a fragment, >= 1 */
    uint32_t pair_count;
    uint32_t base_count;
    uint32_t piece_count;
    uint32_t pair_at; /* where the copy begins */
    uint32_t base_at;
    uint32_t piece_at;
    uint64_t skip; /* bytes of the first fragment that were copied before */
    uint64_t left; /* bytes to copy, >= 1; the last fragment may be cut */
    bool ahead;    /* prefetch fragments to come, also those behind `left` */
};

typedef void (*copy_run_fn)(const struct copy_run *run);

/*
 * Copies whole lines: dst on a line, bytes a multiple of the line, any src. Meanwhile prefetches
 * ahead_bytes from ahead (only as far as it copies itself).
 */
typedef void (*copy_lines_fn)(char *dst, const char *src, size_t bytes, const char *ahead,
                              size_t ahead_bytes);

void copy_host_run_portable(const struct copy_run *run);
#if COPY_HOST_X86
void copy_host_run_sse2(const struct copy_run *run);
void copy_host_run_avx2(const struct copy_run *run);
void copy_host_run_avx512(const struct copy_run *run);
#endif

/* ---- the walk ------------------------------------------------------------------------------- */

/* One fragment of a run. */
struct copy_place {
    uint64_t src;
    uint64_t dst;
    uint64_t src_slot;
    uint64_t dst_slot;
    uint32_t pair;
    uint32_t base;
    uint32_t piece;
};

/* Addresses of the first piece of the base that the place names. */
COPY_INLINE void copy_place_base(const struct copy_run *run, struct copy_place *place)
{
    place->src = place->src_slot + run->bases[place->base].src;
    place->dst = place->dst_slot + run->bases[place->base].dst;
}

COPY_INLINE void copy_place_pair(const struct copy_run *run, struct copy_place *place)
{
    place->src_slot = run->src + run->pairs[place->pair].src * run->src_stride;
    place->dst_slot = run->dst + run->pairs[place->pair].dst * run->dst_stride;
    copy_place_base(run, place);
}

COPY_INLINE void copy_place_first(const struct copy_run *run, struct copy_place *place)
{
    place->pair = run->pair_at;
    place->base = run->base_at;
    place->piece = run->piece_at;
    copy_place_pair(run, place);
    place->src += place->piece * run->src_piece_stride;
    place->dst += place->piece * run->dst_piece_stride;
}

/* False: that was the last one. */
COPY_INLINE bool copy_place_next(const struct copy_run *run, struct copy_place *place)
{
    if (++place->piece < run->piece_count) {
        place->src += run->src_piece_stride;
        place->dst += run->dst_piece_stride;
        return true;
    }
    place->piece = 0;
    if (++place->base < run->base_count) {
        copy_place_base(run, place);
        return true;
    }
    place->base = 0;
    if (++place->pair < run->pair_count) {
        copy_place_pair(run, place);
        return true;
    }
    return false;
}

/* ---- one fragment --------------------------------------------------------------------------- */

struct copy_fragment {
    const char *src;
    char *dst;
    size_t bytes; /* of one to be prefetched: 0 = none */
};

COPY_INLINE void copy_prefetch(const char *address)
{
    __builtin_prefetch(address, 0, 0);
}

/* Less than a line, plain stores; constant sizes, so that each becomes one load and one store. */
COPY_INLINE void copy_short(char *dst, const char *src, size_t bytes)
{
    if (bytes >= 16) {
        size_t last = bytes - 16;
        size_t second = last < 16 ? last : 16;
        size_t third = last < 32 ? last : 32;
        memcpy(dst, src, 16);
        memcpy(dst + second, src + second, 16);
        memcpy(dst + third, src + third, 16);
        memcpy(dst + last, src + last, 16);
    } else if (bytes >= 8) {
        memcpy(dst, src, 8);
        memcpy(dst + bytes - 8, src + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(dst, src, 4);
        memcpy(dst + bytes - 4, src + bytes - 4, 4);
    } else if (bytes >= 1) {
        dst[0] = src[0];
        dst[bytes / 2] = src[bytes / 2];
        dst[bytes - 1] = src[bytes - 1];
    }
}

/* Plain stores, less than COPY_STREAM_BYTES_MIN: whole lines, then one that overlaps the last. */
COPY_INLINE void copy_plain(char *dst, const char *src, size_t bytes)
{
    if (bytes < COPY_LINE_BYTES) {
        copy_short(dst, src, bytes);
        return;
    }
    for (size_t at = 0; at + COPY_LINE_BYTES <= bytes; at += COPY_LINE_BYTES) {
        memcpy(dst + at, src + at, COPY_LINE_BYTES);
    }
    size_t last = bytes - COPY_LINE_BYTES;
    memcpy(dst + last, src + last, COPY_LINE_BYTES);
}

/* A fragment that begins and ends on a line leaves no partial line to plain stores. */
COPY_INLINE bool copy_is_lines(const struct copy_fragment *fragment)
{
    return ((uintptr_t)fragment->dst | fragment->bytes) % COPY_LINE_BYTES == 0;
}

/*
 * Streams the whole lines; a head and a tail that share their line with others are stored plainly.
 */
COPY_INLINE void copy_streaming(const struct copy_fragment *fragment,
                                const struct copy_fragment *ahead, copy_lines_fn lines)
{
    char *dst = fragment->dst;
    const char *src = fragment->src;
    size_t ahead_bytes = ahead->bytes;

    if (ahead_bytes > COPY_AHEAD_FRAGMENT_BYTES) {
        ahead_bytes = COPY_AHEAD_FRAGMENT_BYTES;
    }
    if (copy_is_lines(fragment)) {
        lines(dst, src, fragment->bytes, ahead->src, ahead_bytes);
        return;
    }
    if (ahead_bytes > 0) {
        copy_prefetch(ahead->dst);
        copy_prefetch(ahead->dst + ahead->bytes - 1);
        copy_prefetch(ahead->src + ahead_bytes - 1);
    }
    size_t head = (size_t)(0 - (uintptr_t)dst) % COPY_LINE_BYTES;
    copy_short(dst, src, head);
    size_t body = (fragment->bytes - head) / COPY_LINE_BYTES * COPY_LINE_BYTES;
    lines(dst + head, src + head, body, ahead->src, ahead_bytes);
    size_t done = head + body;
    copy_short(dst + done, src + done, fragment->bytes - done);
}

/*
 * Tiny and not of whole lines: the lines of the destination are read too, so they are prefetched.
 */
COPY_INLINE void copy_tiny(const struct copy_fragment *fragment, const struct copy_fragment *ahead)
{
    size_t ahead_bytes = ahead->bytes;

    if (ahead_bytes > COPY_STREAM_BYTES_MIN) {
        ahead_bytes = COPY_STREAM_BYTES_MIN;
    }
    for (size_t at = 0; at < ahead_bytes; at += COPY_LINE_BYTES) {
        copy_prefetch(ahead->src + at);
        copy_prefetch(ahead->dst + at);
    }
    copy_plain(fragment->dst, fragment->src, fragment->bytes);
}

/* ---- all ------------------------------------------------------------------------------------ */

/* How many fragments ahead to prefetch: enough to cover COPY_AHEAD_BYTES of fragments like this. */
COPY_INLINE uint32_t copy_ahead(size_t bytes)
{
    size_t ahead = COPY_AHEAD_BYTES / bytes;
    if (ahead < 1) {
        ahead = 1;
    }
    return ahead < COPY_AHEAD_FRAGMENTS_MAX ? (uint32_t)ahead : COPY_AHEAD_FRAGMENTS_MAX;
}

/* The body of each variant's copy_run_fn: `one` copies a fragment and prefetches another. */
typedef void (*copy_one_fn)(const struct copy_fragment *fragment, const struct copy_fragment *ahead,
                            copy_lines_fn lines);

/* Does the second fragment go on where the first ends, on both sides? */
COPY_INLINE bool copy_goes_on(const struct copy_fragment *fragment,
                              const struct copy_fragment *ahead)
{
    return fragment->src + fragment->bytes == ahead->src &&
           fragment->dst + fragment->bytes == ahead->dst;
}

COPY_INLINE struct copy_fragment copy_fragment_make(const struct copy_place *place, uint64_t skip,
                                                    uint64_t bytes)
{
    return (struct copy_fragment){
        .src = (const char *)(uintptr_t)(place->src + skip),
        .dst = (char *)(uintptr_t)(place->dst + skip),
        .bytes = bytes,
    };
}

COPY_INLINE void copy_walk(const struct copy_run *run, copy_one_fn one, copy_lines_fn lines)
{
    uint32_t distance = copy_ahead(run->bytes);
    uint64_t skip = run->skip;
    uint64_t left = run->left;
    struct copy_place place, next;
    bool more = true;

    copy_place_first(run, &place);
    next = place;
    for (uint32_t i = 0; more && i < distance; i++) {
        more = copy_place_next(run, &next);
    }
    for (;;) {
        struct copy_fragment fragment = copy_fragment_make(&place, skip, run->bytes - skip);
        struct copy_fragment ahead = copy_fragment_make(&next, 0, more ? run->bytes : 0);

        /* Large ones are joined: prefetching what follows anyway costs a fifth. */
        while (distance == 1 && more && fragment.bytes < left && copy_goes_on(&fragment, &ahead)) {
            fragment.bytes += run->bytes;
            place = next;
            more = copy_place_next(run, &next);
            ahead = copy_fragment_make(&next, 0, more ? run->bytes : 0);
        }
        if (!run->ahead) {
            ahead.bytes = 0;
        }
        if (fragment.bytes >= left) {
            fragment.bytes = left;
            one(&fragment, &ahead, lines);
            return;
        }
        one(&fragment, &ahead, lines);
        left -= fragment.bytes;
        skip = 0;
        copy_place_next(run, &place);
        more = more && copy_place_next(run, &next);
    }
}

COPY_INLINE void copy_one(const struct copy_fragment *fragment, const struct copy_fragment *ahead,
                          copy_lines_fn lines)
{
    if (fragment->bytes >= COPY_STREAM_BYTES_MIN || copy_is_lines(fragment)) {
        copy_streaming(fragment, ahead, lines);
    } else {
        copy_tiny(fragment, ahead);
    }
}

#endif /* KVF_COPY_HOST_ISA_H */
