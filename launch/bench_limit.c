/*
 * bench_limit.c - see bench_limit.h. Three widths of stores, each with and without prefetch of the
 * fragments to come; the best of them on the machine at hand is the limit.
 */
#include "bench_limit.h"

#include <stddef.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f")))

enum {
    LINE_BYTES = 64,
    /* Further inside a fragment the hardware's own prefetch is ahead. */
    PREFETCH_BYTES_MAX = 8192,
};

typedef void (*line_fn)(char *dst, const char *src);

INLINE void line_sse2(char *dst, const char *src)
{
    for (int at = 0; at < LINE_BYTES; at += 16) {
        __m128i part = _mm_load_si128((const __m128i *)(const void *)(src + at));
        _mm_stream_si128((__m128i *)(void *)(dst + at), part);
    }
}

AVX2 INLINE void line_avx2(char *dst, const char *src)
{
    __m256i low = _mm256_load_si256((const __m256i *)(const void *)src);
    __m256i high = _mm256_load_si256((const __m256i *)(const void *)(src + 32));
    _mm256_stream_si256((__m256i *)(void *)dst, low);
    _mm256_stream_si256((__m256i *)(void *)(dst + 32), high);
}

AVX512 INLINE void line_avx512(char *dst, const char *src)
{
    _mm512_stream_si512((void *)dst, _mm512_load_si512(src));
}

/* ahead_bytes 0: no prefetch. */
INLINE void run_list(const struct bench_list *list, uint64_t ahead_bytes, line_fn line)
{
    uint64_t ahead = ahead_bytes / list->bytes;
    uint64_t prefetched = list->bytes < PREFETCH_BYTES_MAX ? list->bytes : PREFETCH_BYTES_MAX;

    if (ahead == 0) {
        ahead = 1;
    }
    if (ahead_bytes == 0) {
        prefetched = 0;
    }
    for (uint64_t i = 0; i < list->count; i++) {
        char *dst = list->fragments[i].dst;
        const char *src = list->fragments[i].src;
        const char *next = list->fragments[i + ahead].src;
        uint64_t at = 0;
        for (; at < prefetched; at += LINE_BYTES) {
            __builtin_prefetch(next + at, 0, 0);
            line(dst + at, src + at);
        }
        for (; at < list->bytes; at += BENCH_FRAGMENT_UNIT) {
            line(dst + at, src + at);
            line(dst + at + 64, src + at + 64);
            line(dst + at + 128, src + at + 128);
            line(dst + at + 192, src + at + 192);
        }
    }
    _mm_sfence();
}

static void run_sse2(const struct bench_list *list, uint64_t ahead_bytes)
{
    run_list(list, ahead_bytes, line_sse2);
}

AVX2 static void run_avx2(const struct bench_list *list, uint64_t ahead_bytes)
{
    run_list(list, ahead_bytes, line_avx2);
}

AVX512 static void run_avx512(const struct bench_list *list, uint64_t ahead_bytes)
{
    run_list(list, ahead_bytes, line_avx512);
}

struct loop {
    const char *name;
    void (*run)(const struct bench_list *list, uint64_t ahead_bytes);
    uint64_t ahead_bytes;
};

static const struct loop loops[] = {
    {"sse2", run_sse2, 0},
    {"sse2, 4096 B ahead", run_sse2, 4096},
    {"sse2, 8192 B ahead", run_sse2, 8192},
    {"avx2", run_avx2, 0},
    {"avx2, 4096 B ahead", run_avx2, 4096},
    {"avx2, 8192 B ahead", run_avx2, 8192},
    {"avx512", run_avx512, 0},
    {"avx512, 4096 B ahead", run_avx512, 4096},
    {"avx512, 8192 B ahead", run_avx512, 8192},
};
enum { LOOP_COUNT = sizeof(loops) / sizeof(loops[0]) };
_Static_assert(sizeof(loops) / sizeof(loops[0]) <= BENCH_LIMIT_LOOPS_MAX, "loops");
_Static_assert(8192 / BENCH_FRAGMENT_UNIT <= BENCH_LIST_BEYOND, "entries beyond the list");

uint32_t bench_limit_loops(void)
{
    return LOOP_COUNT;
}

bool bench_limit_usable(uint32_t loop)
{
    if (loops[loop].run == run_avx2) {
        return __builtin_cpu_supports("avx2");
    }
    if (loops[loop].run == run_avx512) {
        return __builtin_cpu_supports("avx512f");
    }
    return true;
}

const char *bench_limit_name(uint32_t loop)
{
    return loops[loop].name;
}

void bench_limit_run(uint32_t loop, const struct bench_list *list)
{
    loops[loop].run(list, loops[loop].ahead_bytes);
}

#else

uint32_t bench_limit_loops(void)
{
    return 0;
}

bool bench_limit_usable(uint32_t loop)
{
    (void)loop;
    return false;
}

const char *bench_limit_name(uint32_t loop)
{
    (void)loop;
    return "";
}

void bench_limit_run(uint32_t loop, const struct bench_list *list)
{
    (void)loop;
    (void)list;
}

#endif
