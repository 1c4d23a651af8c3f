/*
 * copy_host_isa.h - what copy_host.c and its instruction set variants share. Inside kernels/ only.
 *
 * A variant is one function that copies whole lines with streaming stores; the rest (heads, tails,
 * tiny fragments, prefetch of fragments to come) is the same for all and is inlined into each, so
 * that the call through the table is paid once a batch.
 */
#ifndef KVF_COPY_HOST_ISA_H
#define KVF_COPY_HOST_ISA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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

struct copy_fragment {
    const char *src;
    char *dst;
    size_t bytes; /* >= 1 */
};

/*
 * Copies the first `count` (>= 1) of `known` (>= count) fragments; the others are prefetched only.
 * `known` 0: no prefetch at all.
 */
typedef void (*copy_batch_fn)(const struct copy_fragment *fragments, uint32_t count,
                              uint32_t known);

/*
 * Copies whole lines: dst on a line, bytes a multiple of the line, any src. Meanwhile prefetches
 * ahead_bytes from ahead (only as far as it copies itself).
 */
typedef void (*copy_lines_fn)(char *dst, const char *src, size_t bytes, const char *ahead,
                              size_t ahead_bytes);

void copy_host_batch_portable(const struct copy_fragment *fragments, uint32_t count,
                              uint32_t known);
#if COPY_HOST_X86
void copy_host_batch_sse2(const struct copy_fragment *fragments, uint32_t count, uint32_t known);
void copy_host_batch_avx2(const struct copy_fragment *fragments, uint32_t count, uint32_t known);
void copy_host_batch_avx512(const struct copy_fragment *fragments, uint32_t count, uint32_t known);
#endif

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

/* How many fragments ahead to prefetch: enough to cover COPY_AHEAD_BYTES of fragments like this. */
COPY_INLINE uint32_t copy_ahead(size_t bytes)
{
    size_t ahead = COPY_AHEAD_BYTES / bytes;
    if (ahead < 1) {
        ahead = 1;
    }
    return ahead < COPY_AHEAD_FRAGMENTS_MAX ? (uint32_t)ahead : COPY_AHEAD_FRAGMENTS_MAX;
}

/* The body of each variant's copy_batch_fn. */
COPY_INLINE void copy_batch(const struct copy_fragment *fragments, uint32_t count, uint32_t known,
                            copy_lines_fn lines)
{
    static const struct copy_fragment none;
    uint32_t ahead = copy_ahead(fragments[0].bytes);

    for (uint32_t i = 0; i < count; i++) {
        const struct copy_fragment *fragment = &fragments[i];
        const struct copy_fragment *next = i + ahead < known ? fragment + ahead : fragment;
        if (known == 0) {
            next = &none;
        }
        if (fragment->bytes >= COPY_STREAM_BYTES_MIN || copy_is_lines(fragment)) {
            copy_streaming(fragment, next, lines);
        } else {
            copy_tiny(fragment, next);
        }
    }
}

#endif /* KVF_COPY_HOST_ISA_H */
