/*
 * copy_host_sse2.c - streaming stores of a quarter line each: what every x86-64 CPU has.
 */
#include "copy_host_isa.h"

#if COPY_HOST_X86

#include <emmintrin.h>

COPY_INLINE void copy_line(char *dst, const char *src)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)src);
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(src + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(src + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(src + 48));
    _mm_stream_si128((__m128i *)(void *)dst, a);
    _mm_stream_si128((__m128i *)(void *)(dst + 16), b);
    _mm_stream_si128((__m128i *)(void *)(dst + 32), c);
    _mm_stream_si128((__m128i *)(void *)(dst + 48), d);
}

COPY_INLINE void copy_lines(char *dst, const char *src, size_t bytes, const char *ahead,
                            size_t ahead_bytes)
{
    size_t at = 0;

    for (; at < bytes && at < ahead_bytes; at += COPY_LINE_BYTES) {
        copy_prefetch(ahead + at);
        copy_line(dst + at, src + at);
    }
    for (; at < bytes; at += COPY_LINE_BYTES) {
        copy_line(dst + at, src + at);
    }
}

void copy_host_run_sse2(const struct copy_run *run)
{
    copy_walk(run, copy_one, copy_lines);
}

#endif /* COPY_HOST_X86 */
