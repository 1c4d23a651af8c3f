/*
 * copy_host.c - the host copy of stripes: cursor, steps, choice of variant.
 *
 * The plan is never expanded into fragments: variants (copy_host_*.c) walk over a stripe. May not
 * allocate, fail or decide what is copied.
 */
#include "kernels.h"

#include <stdatomic.h>
#include <string.h>

#include "copy_host_isa.h"

#if COPY_HOST_X86
#include <emmintrin.h>
#endif

struct variant {
    const char *name;
    copy_run_fn run; /* NULL: not in this build */
};

static const struct variant variants[COPY_HOST_ISA_COUNT] = {
    [COPY_HOST_PORTABLE] = {"portable", copy_host_run_portable},
#if COPY_HOST_X86
    [COPY_HOST_SSE2] = {"sse2", copy_host_run_sse2},
    [COPY_HOST_AVX2] = {"avx2", copy_host_run_avx2},
    [COPY_HOST_AVX512] = {"avx512", copy_host_run_avx512},
#else
    [COPY_HOST_SSE2] = {"sse2", NULL},
    [COPY_HOST_AVX2] = {"avx2", NULL},
    [COPY_HOST_AVX512] = {"avx512", NULL},
#endif
};

/* -1: not looked for yet. Two threads that look at the same time find the same. */
static _Atomic int isa_in_use = -1;

static bool isa_on_this_cpu(enum copy_host_isa isa)
{
#if COPY_HOST_X86
    switch (isa) {
    case COPY_HOST_PORTABLE:
    case COPY_HOST_SSE2:
        return true;
    case COPY_HOST_AVX2:
        return __builtin_cpu_supports("avx2");
    case COPY_HOST_AVX512:
        return __builtin_cpu_supports("avx512f");
    }
    return false;
#else
    return isa == COPY_HOST_PORTABLE;
#endif
}

enum copy_host_isa copy_host_isa_get(void)
{
    int isa = atomic_load_explicit(&isa_in_use, memory_order_relaxed);
    if (isa >= 0) {
        return (enum copy_host_isa)isa;
    }
    isa = COPY_HOST_AVX512;
    while (!isa_on_this_cpu((enum copy_host_isa)isa)) {
        isa--;
    }
    atomic_store_explicit(&isa_in_use, isa, memory_order_relaxed);
    return (enum copy_host_isa)isa;
}

/*
 * -1: not looked for yet. Prefetching the fragments to come gains a third on AMD; on Intel the
 * prefetches take the fill buffers that streaming stores need, and cost as much
 * (docs/benchmarks.md).
 */
static _Atomic int ahead_in_use = -1;

bool copy_host_ahead_get(void)
{
    int ahead = atomic_load_explicit(&ahead_in_use, memory_order_relaxed);
    if (ahead < 0) {
#if COPY_HOST_X86
        ahead = !__builtin_cpu_is("intel");
#else
        ahead = 1;
#endif
        atomic_store_explicit(&ahead_in_use, ahead, memory_order_relaxed);
    }
    return ahead != 0;
}

void copy_host_ahead_set(bool ahead)
{
    atomic_store_explicit(&ahead_in_use, ahead, memory_order_relaxed);
}

enum kvf_status copy_host_isa_set(enum copy_host_isa isa)
{
    if (!isa_on_this_cpu(isa)) {
        return KVF_E_UNSUPPORTED;
    }
    atomic_store_explicit(&isa_in_use, (int)isa, memory_order_relaxed);
    return KVF_OK;
}

const char *copy_host_isa_name(enum copy_host_isa isa)
{
    return variants[isa].name;
}

/* Plain stores; memcpy is the best that a machine we know nothing of has. */
COPY_INLINE void copy_one_plain(const struct copy_fragment *fragment,
                                const struct copy_fragment *ahead, copy_lines_fn lines)
{
    (void)lines;
    if (ahead->bytes > 0) {
        copy_prefetch(ahead->src);
    }
    memcpy(fragment->dst, fragment->src, fragment->bytes);
}

void copy_host_run_portable(const struct copy_run *run)
{
    copy_walk(run, copy_one_plain, NULL);
}

/* All stores so far before all that follow; streaming stores need more than the order of x86. */
static void fence_stores(void)
{
#if COPY_HOST_X86
    _mm_sfence();
#else
    atomic_thread_fence(memory_order_release);
#endif
}

/* Moves on from stripes without fragments, so that the cursor names a byte or the end. */
static void cursor_skip_empty(struct copy_cursor *cursor)
{
    while (cursor->stripe_at < cursor->stripe_count &&
           stripe_bytes(&cursor->stripes[cursor->stripe_at]) == 0) {
        cursor->stripe_at++;
    }
}

void copy_cursor_init(struct copy_cursor *cursor, const struct stripe *stripes, uint32_t count)
{
    *cursor = (struct copy_cursor){.stripes = stripes, .stripe_count = count};
    for (uint32_t i = 0; i < count; i++) {
        cursor->left_bytes += stripe_bytes(&stripes[i]);
    }
    cursor_skip_empty(cursor);
}

/* Bytes of the cursor's stripe before it. */
static uint64_t cursor_done(const struct copy_cursor *cursor)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    uint64_t block = (uint64_t)cursor->pair_at * stripe->base_count + cursor->base_at;
    uint64_t fragment = block * stripe->piece_count + cursor->piece_at;

    return fragment * stripe->piece_bytes + cursor->offset_bytes;
}

bool copy_cursor_check(const struct copy_cursor *cursor)
{
    uint64_t left_bytes = 0;

    if (cursor->stripe_at >= cursor->stripe_count) {
        return cursor->stripe_at == cursor->stripe_count && cursor->pair_at == 0 &&
               cursor->base_at == 0 && cursor->piece_at == 0 && cursor->offset_bytes == 0 &&
               cursor->left_bytes == 0;
    }
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    if (cursor->pair_at >= stripe->pair_count || cursor->base_at >= stripe->base_count ||
        cursor->piece_at >= stripe->piece_count || cursor->offset_bytes >= stripe->piece_bytes) {
        return false;
    }
    for (uint32_t i = cursor->stripe_at; i < cursor->stripe_count; i++) {
        left_bytes += stripe_bytes(&cursor->stripes[i]);
    }
    return cursor->left_bytes == left_bytes - cursor_done(cursor);
}

static bool pieces_join(const struct stripe *stripe)
{
    return stripe->src_piece_stride == stripe->piece_bytes &&
           stripe->dst_piece_stride == stripe->piece_bytes;
}

/* The stripe from the cursor on; pieces that join are one fragment. */
static struct copy_run cursor_run(const struct copy_cursor *cursor, uint64_t bytes, bool ahead)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    struct copy_run run = {
        .src = stripe->src,
        .dst = stripe->dst,
        .bases = stripe->bases,
        .pairs = stripe->pairs,
        .src_stride = stripe->src_stride,
        .dst_stride = stripe->dst_stride,
        .src_piece_stride = stripe->src_piece_stride,
        .dst_piece_stride = stripe->dst_piece_stride,
        .bytes = stripe->piece_bytes,
        .pair_count = stripe->pair_count,
        .base_count = stripe->base_count,
        .piece_count = stripe->piece_count,
        .pair_at = cursor->pair_at,
        .base_at = cursor->base_at,
        .piece_at = cursor->piece_at,
        .skip = cursor->offset_bytes,
        .left = bytes,
        .ahead = ahead,
    };

    if (pieces_join(stripe)) {
        run.bytes = stripe->piece_count * stripe->piece_bytes;
        run.skip += cursor->piece_at * stripe->piece_bytes;
        run.piece_count = 1;
        run.piece_at = 0;
    }
    return run;
}

/* `bytes` further, at most to the end of the stripe. */
static void cursor_advance(struct copy_cursor *cursor, uint64_t bytes)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    uint64_t at = cursor_done(cursor) + bytes;
    uint64_t fragment = at / stripe->piece_bytes;
    uint64_t block = fragment / stripe->piece_count;

    cursor->left_bytes -= bytes;
    cursor->offset_bytes = at % stripe->piece_bytes;
    cursor->piece_at = (uint32_t)(fragment % stripe->piece_count);
    cursor->base_at = (uint32_t)(block % stripe->base_count);
    cursor->pair_at = (uint32_t)(block / stripe->base_count);
    if (cursor->pair_at == stripe->pair_count) {
        cursor->pair_at = 0;
        cursor->stripe_at++;
        cursor_skip_empty(cursor);
    }
}

bool copy_host_step(struct copy_cursor *cursor, uint64_t bytes_max)
{
    copy_run_fn copy = variants[copy_host_isa_get()].run;
    bool ahead = copy_host_ahead_get();

    while (bytes_max > 0 && cursor->stripe_at < cursor->stripe_count) {
        uint64_t bytes = stripe_bytes(&cursor->stripes[cursor->stripe_at]) - cursor_done(cursor);
        struct copy_run run;

        if (bytes > bytes_max) {
            bytes = bytes_max;
        }
        run = cursor_run(cursor, bytes, ahead);
        copy(&run);
        cursor_advance(cursor, bytes);
        bytes_max -= bytes;
    }
    fence_stores();
    return cursor->stripe_at == cursor->stripe_count;
}

void copy_host_run(const struct stripe *stripes, uint32_t count)
{
    struct copy_cursor cursor;

    copy_cursor_init(&cursor, stripes, count);
    copy_host_step(&cursor, cursor.left_bytes);
}
