/*
 * copy_host_avx2.c - streaming stores of half a line each. Called only where the CPU has AVX2.
 */
#include "copy_host_isa.h"

#if COPY_HOST_X86

#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))

TARGET COPY_INLINE void copy_line(char *dst, const char *src)
{
    __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)src);
    __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(src + 32));
    _mm256_stream_si256((__m256i *)(void *)dst, a);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), b);
}

TARGET static inline void copy_lines(char *dst, const char *src, size_t bytes, const char *ahead,
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

TARGET void copy_host_run_avx2(const struct copy_run *run)
{
    copy_walk(run, copy_one, copy_lines);
}

#endif /* COPY_HOST_X86 */
