/*
 * copy_host_avx512.c - streaming stores of one line each. Called only where the CPU has AVX-512F.
 */
#include "copy_host_isa.h"

#if COPY_HOST_X86

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f")))

enum { GROUP_BYTES = 4 * COPY_LINE_BYTES };

TARGET COPY_INLINE void copy_line(char *dst, const char *src)
{
    _mm512_stream_si512((void *)dst, _mm512_loadu_si512(src));
}

TARGET COPY_INLINE void copy_group(char *dst, const char *src)
{
    __m512i a = _mm512_loadu_si512(src);
    __m512i b = _mm512_loadu_si512(src + 64);
    __m512i c = _mm512_loadu_si512(src + 128);
    __m512i d = _mm512_loadu_si512(src + 192);
    _mm512_stream_si512((void *)dst, a);
    _mm512_stream_si512((void *)(dst + 64), b);
    _mm512_stream_si512((void *)(dst + 128), c);
    _mm512_stream_si512((void *)(dst + 192), d);
}

TARGET static inline void copy_lines(char *dst, const char *src, size_t bytes, const char *ahead,
                                     size_t ahead_bytes)
{
    size_t at = 0;

    for (; at < bytes && at < ahead_bytes; at += COPY_LINE_BYTES) {
        copy_prefetch(ahead + at);
        copy_line(dst + at, src + at);
    }
    for (; at + GROUP_BYTES <= bytes; at += GROUP_BYTES) {
        copy_group(dst + at, src + at);
    }
    for (; at < bytes; at += COPY_LINE_BYTES) {
        copy_line(dst + at, src + at);
    }
}

TARGET void copy_host_run_avx512(const struct copy_run *run)
{
    copy_walk(run, copy_one, copy_lines);
}

#endif /* COPY_HOST_X86 */
