/*
 * copy_host.c - the host copy of stripes: cursor, expansion into small batches, choice of variant.
 *
 * Fragments are named in batches that stay in the first cache level, so the plan is never expanded
 * as a whole. Variants are in copy_host_*.c. May not allocate, fail or decide what is copied.
 */
#include "kernels.h"

#include <stdatomic.h>

#include "copy_host_isa.h"

#if COPY_HOST_X86
#include <emmintrin.h>
#endif

enum {
    /* Fragments copied in one call of a variant, and those known beyond them to be prefetched. */
    BATCH_FRAGMENTS = 32,
    WINDOW_FRAGMENTS = BATCH_FRAGMENTS + COPY_AHEAD_FRAGMENTS_MAX,
};

struct window {
    uint32_t count;
    struct copy_fragment fragments[WINDOW_FRAGMENTS];
};

struct variant {
    const char *name;
    copy_batch_fn batch; /* NULL: not in this build */
};

static const struct variant variants[COPY_HOST_ISA_COUNT] = {
    [COPY_HOST_PORTABLE] = {"portable", copy_host_batch_portable},
#if COPY_HOST_X86
    [COPY_HOST_SSE2] = {"sse2", copy_host_batch_sse2},
    [COPY_HOST_AVX2] = {"avx2", copy_host_batch_avx2},
    [COPY_HOST_AVX512] = {"avx512", copy_host_batch_avx512},
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
void copy_host_batch_portable(const struct copy_fragment *fragments, uint32_t count, uint32_t known)
{
    uint32_t ahead = copy_ahead(fragments[0].bytes);

    for (uint32_t i = 0; i < count; i++) {
        if (i + ahead < known) {
            copy_prefetch(fragments[i + ahead].src);
        }
        memcpy(fragments[i].dst, fragments[i].src, fragments[i].bytes);
    }
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
    uint64_t block = (uint64_t)cursor->pair_at * stripe->base_count + cursor->base_at;
    uint64_t fragment = block * stripe->piece_count + cursor->piece_at;
    left_bytes -= fragment * stripe->piece_bytes + cursor->offset_bytes;
    return cursor->left_bytes == left_bytes;
}

/* To the first byte of the next fragment. */
static void cursor_next(struct copy_cursor *cursor)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];

    cursor->offset_bytes = 0;
    if (++cursor->piece_at < stripe->piece_count) {
        return;
    }
    cursor->piece_at = 0;
    if (++cursor->base_at < stripe->base_count) {
        return;
    }
    cursor->base_at = 0;
    if (++cursor->pair_at < stripe->pair_count) {
        return;
    }
    cursor->pair_at = 0;
    cursor->stripe_at++;
    cursor_skip_empty(cursor);
}

/* What is left of the fragment that the cursor names; the cursor is not at the end. */
static struct copy_fragment cursor_fragment(const struct copy_cursor *cursor)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    const struct stripe_base *base = &stripe->bases[cursor->base_at];
    const struct stripe_pair *pair = &stripe->pairs[cursor->pair_at];
    uint64_t src = stripe->src + base->src + pair->src * stripe->src_stride +
                   cursor->piece_at * stripe->src_piece_stride + cursor->offset_bytes;
    uint64_t dst = stripe->dst + base->dst + pair->dst * stripe->dst_stride +
                   cursor->piece_at * stripe->dst_piece_stride + cursor->offset_bytes;

    return (struct copy_fragment){
        .src = (const char *)(uintptr_t)src,
        .dst = (char *)(uintptr_t)dst,
        .bytes = stripe->piece_bytes - cursor->offset_bytes,
    };
}

/* Adds a fragment, of which there is room; joins it to the last one where both sides go on. */
static void window_add(struct window *window, struct copy_fragment fragment)
{
    if (window->count > 0) {
        struct copy_fragment *last = &window->fragments[window->count - 1];
        if (last->src + last->bytes == fragment.src && last->dst + last->bytes == fragment.dst) {
            last->bytes += fragment.bytes;
            return;
        }
    }
    window->fragments[window->count++] = fragment;
}

static bool pieces_join(const struct stripe *stripe)
{
    return stripe->src_piece_stride == stripe->piece_bytes &&
           stripe->dst_piece_stride == stripe->piece_bytes;
}

/* Takes the rest of the piece, or of all pieces of the block where they join; gives its bytes. */
static uint64_t take_one(struct window *window, struct copy_cursor *cursor, uint64_t bytes_max)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    struct copy_fragment fragment = cursor_fragment(cursor);
    uint32_t last_piece = pieces_join(stripe) ? stripe->piece_count - 1 : cursor->piece_at;

    fragment.bytes += (last_piece - cursor->piece_at) * stripe->piece_bytes;
    if (fragment.bytes <= bytes_max) {
        cursor->piece_at = last_piece;
        cursor_next(cursor);
    } else {
        fragment.bytes = bytes_max;
        cursor->offset_bytes += bytes_max;
        cursor->piece_at += (uint32_t)(cursor->offset_bytes / stripe->piece_bytes);
        cursor->offset_bytes %= stripe->piece_bytes;
    }
    window_add(window, fragment);
    return fragment.bytes;
}

/* Takes whole pieces of one block that do not join; gives their bytes, 0 when none fits. */
static uint64_t take_pieces(struct window *window, struct copy_cursor *cursor, uint64_t bytes_max)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    struct copy_fragment fragment = cursor_fragment(cursor);
    uint64_t count = stripe->piece_count - cursor->piece_at;
    uint64_t room = WINDOW_FRAGMENTS - window->count;

    if (count > room) {
        count = room;
    }
    if (count > bytes_max / stripe->piece_bytes) {
        count = bytes_max / stripe->piece_bytes;
    }
    if (count == 0) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        window->fragments[window->count++] = fragment;
        fragment.src += stripe->src_piece_stride;
        fragment.dst += stripe->dst_piece_stride;
    }
    cursor->piece_at += (uint32_t)count - 1;
    cursor_next(cursor);
    return count * stripe->piece_bytes;
}

/* Takes whole layers of one block of one piece each; gives their bytes, 0 when none fits. */
static uint64_t take_bases(struct window *window, struct copy_cursor *cursor, uint64_t bytes_max)
{
    const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
    const struct stripe_base *base = &stripe->bases[cursor->base_at];
    const struct stripe_pair *pair = &stripe->pairs[cursor->pair_at];
    uint64_t src = stripe->src + pair->src * stripe->src_stride;
    uint64_t dst = stripe->dst + pair->dst * stripe->dst_stride;
    uint64_t count = stripe->base_count - cursor->base_at;
    uint64_t room = WINDOW_FRAGMENTS - window->count;

    if (count > room) {
        count = room;
    }
    if (count > bytes_max / stripe->piece_bytes) {
        count = bytes_max / stripe->piece_bytes;
    }
    if (count == 0) {
        return 0;
    }
    for (uint64_t i = 0; i < count; i++) {
        window_add(window, (struct copy_fragment){
                               .src = (const char *)(uintptr_t)(src + base[i].src),
                               .dst = (char *)(uintptr_t)(dst + base[i].dst),
                               .bytes = stripe->piece_bytes,
                           });
    }
    cursor->base_at += (uint32_t)count - 1;
    cursor_next(cursor);
    return count * stripe->piece_bytes;
}

/* Takes fragments from the cursor while there is room; gives what is left of bytes_max. */
static uint64_t window_fill(struct window *window, struct copy_cursor *cursor, uint64_t bytes_max)
{
    while (bytes_max > 0 && cursor->stripe_at < cursor->stripe_count &&
           window->count < WINDOW_FRAGMENTS) {
        const struct stripe *stripe = &cursor->stripes[cursor->stripe_at];
        uint64_t taken = 0;
        if (cursor->offset_bytes != 0) {
            taken = 0; /* the rest of the fragment first */
        } else if (stripe->piece_count == 1 && stripe->base_count > 1) {
            taken = take_bases(window, cursor, bytes_max);
        } else if (!pieces_join(stripe)) {
            taken = take_pieces(window, cursor, bytes_max);
        }
        if (taken == 0) {
            taken = take_one(window, cursor, bytes_max);
        }
        bytes_max -= taken;
        cursor->left_bytes -= taken;
    }
    return bytes_max;
}

static void window_drop(struct window *window, uint32_t count)
{
    window->count -= count;
    memmove(window->fragments, window->fragments + count,
            window->count * sizeof(window->fragments[0]));
}

bool copy_host_step(struct copy_cursor *cursor, uint64_t bytes_max)
{
    copy_batch_fn batch = variants[copy_host_isa_get()].batch;
    bool ahead = copy_host_ahead_get();
    struct window window;

    window.count = 0;
    for (;;) {
        bytes_max = window_fill(&window, cursor, bytes_max);
        if (window.count == 0) {
            break;
        }
        uint32_t count = window.count < BATCH_FRAGMENTS ? window.count : BATCH_FRAGMENTS;
        batch(window.fragments, count, ahead ? window.count : 0);
        window_drop(&window, count);
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
