/*
 * test_copy_host.c - every variant of the host copy moves exactly the bytes that the stripes name.
 *
 * Each test runs over all variants of this CPU. An optional argument is the seed of the random
 * plans, which is printed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/kernels.h"

enum {
    CANARY = 0xa5,
    CANARY_BYTES = 192,
    OFFSET_MAX = 64,
    SMALL_BYTES_MAX = 300,
    ARENA_BYTES = 1 << 20,
    STRIPES_MAX = 4,
    BASES_MAX = 5,
    PAIRS_MAX = 9,
};

static uint64_t seed = 20240229;

static uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;

    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

/* From low to high, both included. */
static uint64_t random_range(uint64_t *state, uint64_t low, uint64_t high)
{
    return low + random_next(state) % (high - low + 1);
}

static char *memory_take(size_t bytes)
{
    char *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    assert_non_null(memory);
    return memory;
}

static void fill_source(char *src, size_t bytes)
{
    uint64_t state = 77;

    for (size_t i = 0; i < bytes; i++) {
        src[i] = (char)random_next(&state);
    }
}

/* What stripes mean, byte by byte, straight from the definition; the first bytes_max of them. */
static void naive_copy(const struct stripe *stripes, uint32_t count, uint64_t bytes_max)
{
    for (uint32_t k = 0; k < count; k++) {
        const struct stripe *s = &stripes[k];
        uint64_t fragments = stripe_fragments(s);
        for (uint64_t f = 0; f < fragments; f++) {
            uint64_t i = f % s->piece_count;
            uint64_t b = f / s->piece_count % s->base_count;
            uint64_t p = f / s->piece_count / s->base_count;
            const char *from = (const char *)(uintptr_t)(s->src + s->bases[b].src +
                                                         s->pairs[p].src * s->src_stride +
                                                         i * s->src_piece_stride);
            char *to =
                (char *)(uintptr_t)(s->dst + s->bases[b].dst + s->pairs[p].dst * s->dst_stride +
                                    i * s->dst_piece_stride);
            for (uint64_t at = 0; at < s->piece_bytes; at++) {
                if (bytes_max-- == 0) {
                    return;
                }
                to[at] = from[at];
            }
        }
    }
}

/* The same plan, written to another arena. */
static void move_dst(struct stripe *stripes, uint32_t count, const char *from, const char *to)
{
    for (uint32_t i = 0; i < count; i++) {
        stripes[i].dst += (uint64_t)(uintptr_t)to - (uint64_t)(uintptr_t)from;
    }
}

static uint64_t plan_bytes(const struct stripe *stripes, uint32_t count)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < count; i++) {
        bytes += stripe_bytes(&stripes[i]);
    }
    return bytes;
}

static const struct stripe_base base_zero = {0, 0};
static const struct stripe_pair pair_zero = {0, 0};

static struct stripe stripe_one(const char *src, char *dst, size_t bytes)
{
    return (struct stripe){
        .src = (uint64_t)(uintptr_t)src,
        .dst = (uint64_t)(uintptr_t)dst,
        .bases = &base_zero,
        .pairs = &pair_zero,
        .base_count = 1,
        .pair_count = 1,
        .piece_count = 1,
        .piece_bytes = bytes,
    };
}

static void assert_same(const char *got, const char *want, size_t bytes, const char *what)
{
    if (memcmp(got, want, bytes) == 0) {
        return;
    }
    size_t at = 0;
    while (got[at] == want[at]) {
        at++;
    }
    fail_msg("%s, %s: byte %zu is %02x, want %02x", copy_host_isa_name(copy_host_isa_get()), what,
             at, (unsigned char)got[at], (unsigned char)want[at]);
}

/* Runs a test body once for each variant of this CPU, with and without prefetch. */
static void each_isa(void (*body)(void))
{
    enum copy_host_isa before = copy_host_isa_get();
    bool ahead = copy_host_ahead_get();
    int ran = 0;

    for (int isa = 0; isa < COPY_HOST_ISA_COUNT; isa++) {
        if (copy_host_isa_set((enum copy_host_isa)isa) == KVF_OK) {
            copy_host_ahead_set(true);
            body();
            copy_host_ahead_set(false);
            body();
            ran++;
        }
    }
    copy_host_ahead_set(ahead);
    assert_true(ran >= 1);
    assert_int_equal(copy_host_isa_set(before), KVF_OK);
}

/* One fragment: canary, bytes, canary. */
static void check_one(const char *src, char *dst, size_t dst_offset, size_t bytes)
{
    struct stripe stripe = stripe_one(src, dst + CANARY_BYTES + dst_offset, bytes);
    size_t arena = dst_offset + bytes + (size_t)2 * CANARY_BYTES;
    static char want[CANARY_BYTES * 2 + OFFSET_MAX + 70000];
    char what[96];

    memset(dst, CANARY, arena);
    memset(want, CANARY, arena);
    memcpy(want + CANARY_BYTES + dst_offset, src, bytes);
    copy_host_run(&stripe, 1);
    if (memcmp(dst, want, arena) != 0) {
        snprintf(what, sizeof(what), "%zu bytes at offset %zu", bytes, dst_offset);
        assert_same(dst, want, arena, what);
    }
}

static void body_small_any_offsets(void)
{
    char *src = memory_take(SMALL_BYTES_MAX + OFFSET_MAX);
    char *dst = memory_take(SMALL_BYTES_MAX + OFFSET_MAX + 2 * CANARY_BYTES);

    fill_source(src, SMALL_BYTES_MAX + OFFSET_MAX);
    for (size_t bytes = 1; bytes <= SMALL_BYTES_MAX; bytes++) {
        for (size_t at = 0; at <= OFFSET_MAX; at++) {
            for (size_t from = 0; from <= OFFSET_MAX; from++) {
                check_one(src + from, dst, at, bytes);
            }
        }
    }
    free(src);
    free(dst);
}

static void copies_small_sizes_at_any_offset_of_both_sides(void **state)
{
    (void)state;
    each_isa(body_small_any_offsets);
}

static void body_sizes_around_thresholds(void)
{
    static const size_t around[] = {256, 320, 512, 1024, 4096, 8192, 8448, 16384, 65536};
    static const size_t offsets[] = {0, 1, 8, 16, 31, 32, 33, 48, 63, 64};
    size_t bytes_max = 65536 + 65;
    char *src = memory_take(bytes_max + OFFSET_MAX);
    char *dst = memory_take(bytes_max + OFFSET_MAX + 2 * CANARY_BYTES);

    fill_source(src, bytes_max + OFFSET_MAX);
    for (size_t k = 0; k < sizeof(around) / sizeof(around[0]); k++) {
        size_t by = around[k] > 10000 ? 13 : 1;
        for (size_t bytes = around[k] - 65; bytes <= around[k] + 65; bytes += by) {
            for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
                check_one(src + offsets[(i * 3 + bytes) % 10], dst, offsets[i], bytes);
            }
        }
    }
    free(src);
    free(dst);
}

static void copies_sizes_around_thresholds(void **state)
{
    (void)state;
    each_isa(body_sizes_around_thresholds);
}

/* Compares the run of a plan with the naive one; both arenas are ARENA_BYTES of the same canary. */
static void check_plan(struct stripe *stripes, uint32_t count, char *dst, char *want)
{
    memset(dst, CANARY, ARENA_BYTES);
    memset(want, CANARY, ARENA_BYTES);
    move_dst(stripes, count, dst, want);
    naive_copy(stripes, count, UINT64_MAX);
    move_dst(stripes, count, want, dst);
    copy_host_run(stripes, count);
    assert_same(dst, want, ARENA_BYTES, "a plan");
}

static void body_pieces_any_stride(void)
{
    static const size_t gaps[] = {0, 1, 13, 64, 100, 4096};
    static const size_t offsets[] = {0, 5, 32, 64};
    enum { PIECES = 5, SPAN_MAX = PIECES * (SMALL_BYTES_MAX + 4096) + OFFSET_MAX };
    char *src = memory_take(SPAN_MAX);
    char *dst = memory_take(SPAN_MAX + 2 * CANARY_BYTES);
    char *want = memory_take(SPAN_MAX + 2 * CANARY_BYTES);

    fill_source(src, SPAN_MAX);
    for (size_t bytes = 1; bytes <= SMALL_BYTES_MAX; bytes++) {
        for (size_t k = 0; k < 6 * 6 * 4; k++) {
            struct stripe s = stripe_one(src + offsets[(k + bytes) % 4],
                                         dst + CANARY_BYTES + offsets[k / 36], bytes);
            s.piece_count = PIECES;
            s.src_piece_stride = bytes + gaps[k % 6];
            s.dst_piece_stride = bytes + gaps[k / 6 % 6];
            size_t arena = PIECES * s.dst_piece_stride + OFFSET_MAX + 2 * CANARY_BYTES;
            memset(dst, CANARY, arena);
            memset(want, CANARY, arena);
            move_dst(&s, 1, dst, want);
            naive_copy(&s, 1, UINT64_MAX);
            move_dst(&s, 1, want, dst);
            copy_host_run(&s, 1);
            assert_same(dst, want, arena, "pieces");
        }
    }
    free(src);
    free(dst);
    free(want);
}

static void copies_pieces_of_any_stride(void **state)
{
    (void)state;
    each_isa(body_pieces_any_stride);
}

struct plan {
    uint32_t count;
    struct stripe stripes[STRIPES_MAX];
    struct stripe_base bases[STRIPES_MAX][BASES_MAX];
    struct stripe_pair pairs[STRIPES_MAX][PAIRS_MAX];
};

static void shuffle_pairs(struct stripe_pair *pairs, uint32_t count, uint64_t *state)
{
    for (uint32_t i = count; i > 1; i--) {
        uint32_t j = (uint32_t)random_range(state, 0, i - 1);
        uint32_t slot = pairs[i - 1].dst;
        pairs[i - 1].dst = pairs[j].dst;
        pairs[j].dst = slot;
    }
}

/* A stripe whose destination stays in room_bytes at dst and whose source stays in the arena src. */
static void plan_random_stripe(struct plan *plan, uint32_t at, uint64_t *state)
{
    static const uint64_t sizes_max[] = {4, 70, 300, 700, 1500};
    struct stripe *s = &plan->stripes[at];
    bool tight = random_range(state, 0, 2) == 0;

    s->piece_bytes = random_range(state, 1, sizes_max[random_range(state, 0, 4)]);
    if (random_range(state, 0, 1) == 0) {
        s->piece_bytes = (s->piece_bytes + 63) / 64 * 64;
    }
    /* sometimes more pieces than the copier looks at in one go */
    s->piece_count = (uint32_t)random_range(state, 1, s->piece_bytes <= 64 ? 120 : 4);
    s->base_count = (uint32_t)random_range(state, random_range(state, 0, 9) > 0, BASES_MAX);
    s->pair_count = (uint32_t)random_range(state, random_range(state, 0, 9) > 0, PAIRS_MAX);
    s->src_piece_stride = s->piece_bytes + (tight ? 0 : random_range(state, 0, 100));
    s->dst_piece_stride = s->piece_bytes + (tight ? 0 : random_range(state, 0, 100));
    uint64_t src_run = s->src_piece_stride * s->piece_count;
    uint64_t dst_run = s->dst_piece_stride * s->piece_count + (tight ? 0 : 3);
    bool upwards = random_range(state, 0, 1) == 0;
    for (uint32_t b = 0; b < s->base_count; b++) {
        plan->bases[at][b].src = src_run * b;
        plan->bases[at][b].dst = dst_run * (upwards ? b : s->base_count - 1 - b);
    }
    s->src_stride = src_run * BASES_MAX + (tight ? 0 : random_range(state, 0, 300));
    s->dst_stride = dst_run * BASES_MAX + (tight ? 0 : random_range(state, 0, 300));
    for (uint32_t p = 0; p < s->pair_count; p++) {
        plan->pairs[at][p] = (struct stripe_pair){.src = p, .dst = p};
    }
    if (random_range(state, 0, 2) > 0) {
        shuffle_pairs(plan->pairs[at], s->pair_count, state);
    }
    s->bases = plan->bases[at];
    s->pairs = plan->pairs[at];
}

static void plan_random(struct plan *plan, char *src, char *dst, uint64_t *state)
{
    uint64_t src_at = 0;
    uint64_t dst_at = CANARY_BYTES;

    plan->count = 0;
    while (plan->count < random_range(state, 1, STRIPES_MAX)) {
        struct stripe *s = &plan->stripes[plan->count];
        plan_random_stripe(plan, plan->count, state);
        src_at += random_range(state, 0, 65);
        dst_at += random_range(state, 0, 65);
        s->src = (uint64_t)(uintptr_t)src + src_at;
        s->dst = (uint64_t)(uintptr_t)dst + dst_at;
        if (dst_at + s->dst_stride * PAIRS_MAX > ARENA_BYTES - CANARY_BYTES ||
            src_at + s->src_stride * PAIRS_MAX > ARENA_BYTES) {
            break;
        }
        src_at += s->src_stride * PAIRS_MAX;
        dst_at += s->dst_stride * PAIRS_MAX;
        plan->count++;
    }
}

static void body_random_plans(void)
{
    char *src = memory_take(ARENA_BYTES);
    char *dst = memory_take(ARENA_BYTES);
    char *want = memory_take(ARENA_BYTES);
    uint64_t state = seed;
    static struct plan plan;

    fill_source(src, ARENA_BYTES);
    for (int i = 0; i < 300; i++) {
        plan_random(&plan, src, dst, &state);
        check_plan(plan.stripes, plan.count, dst, want);
    }
    free(src);
    free(dst);
    free(want);
}

static void random_plans_copy_what_the_definition_says(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    each_isa(body_random_plans);
}

/* A plan in steps: after each one exactly the first so many bytes of the list are there. */
static void check_steps(const struct plan *plan, uint64_t step, char *dst, char *want)
{
    uint64_t total = plan_bytes(plan->stripes, plan->count);
    struct copy_cursor cursor;
    uint64_t done = 0;
    bool ended = false;
    uint64_t dropped_at = total / 2;

    memset(dst, CANARY, ARENA_BYTES);
    copy_cursor_init(&cursor, plan->stripes, plan->count);
    assert_true(copy_cursor_check(&cursor));
    while (!ended) {
        ended = copy_host_step(&cursor, step);
        done += total - done < step ? total - done : step;
        assert_true(copy_cursor_check(&cursor));
        assert_int_equal(cursor.left_bytes, total - done);
        assert_int_equal(ended, done == total);
        if (done >= dropped_at && (done - dropped_at < step || ended)) {
            struct plan shadow = *plan;
            memset(want, CANARY, ARENA_BYTES);
            move_dst(shadow.stripes, shadow.count, dst, want);
            naive_copy(shadow.stripes, shadow.count, done);
            assert_same(dst, want, ARENA_BYTES, "a step");
        }
    }
    assert_true(copy_host_step(&cursor, step));
    assert_same(dst, want, ARENA_BYTES, "a step after the end");
}

static void body_any_step(void)
{
    static const uint64_t steps[] = {509, 512, 1000, 4096, 4099, COPY_STEP_BYTES, UINT64_MAX};
    char *src = memory_take(ARENA_BYTES);
    char *dst = memory_take(ARENA_BYTES);
    char *want = memory_take(ARENA_BYTES);
    uint64_t state = seed;
    static struct plan plan;

    fill_source(src, ARENA_BYTES);
    for (uint64_t step = 1; step <= 257; step++) {
        plan_random(&plan, src, dst, &state);
        check_steps(&plan, step, dst, want);
    }
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        for (int k = 0; k < 8; k++) {
            plan_random(&plan, src, dst, &state);
            check_steps(&plan, steps[i], dst, want);
        }
    }
    free(src);
    free(dst);
    free(want);
}

static void steps_of_any_size_copy_a_prefix_and_then_the_whole(void **state)
{
    (void)state;
    print_message("seed %llu\n", (unsigned long long)seed);
    each_isa(body_any_step);
}

static void body_nothing(void)
{
    char byte = 'x';
    struct stripe stripes[3] = {stripe_one(&byte, &byte, 1), stripe_one(&byte, &byte, 1),
                                stripe_one(&byte, &byte, 1)};
    struct copy_cursor cursor;

    stripes[0].base_count = 0;
    stripes[0].bases = NULL;
    stripes[1].pair_count = 0;
    stripes[1].pairs = NULL;
    stripes[2].piece_count = 0;
    for (uint32_t count = 0; count <= 3; count++) {
        copy_cursor_init(&cursor, count == 0 ? NULL : stripes, count);
        assert_true(copy_cursor_check(&cursor));
        assert_true(copy_host_step(&cursor, 0));
        assert_true(copy_host_step(&cursor, UINT64_MAX));
        copy_host_run(count == 0 ? NULL : stripes, count);
    }
    char to = 'y';
    struct stripe one = stripe_one(&byte, &to, 1);
    copy_cursor_init(&cursor, &one, 1);
    assert_false(copy_host_step(&cursor, 0));
    assert_int_equal(to, 'y');
    assert_true(copy_host_step(&cursor, 1));
    assert_int_equal(to, 'x');
}

static void nothing_to_copy_is_done_at_once(void **state)
{
    (void)state;
    each_isa(body_nothing);
}

/* Two pages with one between, above and below that must not be touched. */
static char *guarded_page(size_t page)
{
    char *memory = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_int_equal(mprotect(memory, page, PROT_NONE), 0);
    assert_int_equal(mprotect(memory + 2 * page, page, PROT_NONE), 0);
    return memory + page;
}

static void body_guard_pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *src = guarded_page(page);
    char *dst = guarded_page(page);

    fill_source(src, page);
    for (size_t bytes = 1; bytes <= page; bytes += bytes < 600 ? 1 : 61) {
        size_t last = page - bytes;
        struct stripe starts = stripe_one(src, dst, bytes);
        struct stripe ends = stripe_one(src + last, dst + last, bytes);
        memset(dst, CANARY, page);
        copy_host_run(&starts, 1);
        assert_same(dst, src, bytes, "at the start of a page");
        memset(dst, CANARY, page);
        copy_host_run(&ends, 1);
        assert_same(dst + last, src + last, bytes, "at the end of a page");
    }
    munmap(src - page, 3 * page);
    munmap(dst - page, 3 * page);
}

static void no_access_leaves_the_fragment(void **state)
{
    (void)state;
    each_isa(body_guard_pages);
}

/* Slots, bases and pieces more than 4 GiB apart, in mappings that are mostly never touched. */
static void body_far_apart(void)
{
    const uint64_t far = (UINT64_C(9) << 29) + 4096;
    const size_t span = (size_t)(far * 8);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *src = mmap(NULL, span, PROT_READ | PROT_WRITE, flags, -1, 0);
    char *dst = mmap(NULL, span, PROT_READ | PROT_WRITE, flags, -1, 0);
    struct stripe_base bases[2] = {{0, 2 * far}, {2 * far, 0}};
    struct stripe_pair pairs[2] = {{0, 1}, {1, 0}};

    assert_ptr_not_equal(src, MAP_FAILED);
    assert_ptr_not_equal(dst, MAP_FAILED);
    struct stripe s = stripe_one(src, dst, 700);
    s.bases = bases;
    s.pairs = pairs;
    s.base_count = s.pair_count = s.piece_count = 2;
    s.src_stride = s.dst_stride = 4 * far;
    s.src_piece_stride = s.dst_piece_stride = far;
    for (uint64_t i = 0; i < 8; i++) {
        memset(src + i * far, (int)('a' + i), 700);
    }
    for (uint64_t step = 500; step < 10000; step += 9000) {
        struct copy_cursor cursor;
        copy_cursor_init(&cursor, &s, 1);
        while (!copy_host_step(&cursor, step)) {
        }
        for (uint64_t i = 0; i < 8; i++) {
            uint64_t from = (i ^ 4) ^ 2;
            assert_same(dst + i * far, src + from * far, 700, "far apart");
            memset(dst + i * far, CANARY, 700);
        }
    }
    munmap(src, span);
    munmap(dst, span);
}

/* Slot numbers with the high bit: the sums wrap as addresses do. */
static void body_high_slots(void)
{
    char src[64];
    char dst[64] = {0};
    struct stripe_pair pair = {4000000000u, 4294967295u};
    struct stripe s = stripe_one(src, dst, sizeof(src));

    fill_source(src, sizeof(src));
    s.pairs = &pair;
    s.src_stride = UINT64_C(5) << 30;
    s.dst_stride = UINT64_C(3) << 30;
    s.src -= pair.src * s.src_stride;
    s.dst -= pair.dst * s.dst_stride;
    copy_host_run(&s, 1);
    assert_same(dst, src, sizeof(src), "high slots");
}

static void offsets_above_4_gib_are_not_cut(void **state)
{
    (void)state;
    each_isa(body_far_apart);
    each_isa(body_high_slots);
}

/* Fragments large enough to be joined: runs of slots on both sides, on one side, and none. */
static void body_neighbours(void)
{
    enum { SLOTS = 12, BYTES_MAX = 5000 };
    static const size_t sizes[] = {3000, 3072, 3073, 4096, BYTES_MAX};
    static const struct stripe_pair pairs[] = {{0, 3}, {1, 4}, {2, 5}, {3, 7}, {5, 8},
                                               {6, 0}, {7, 1}, {4, 2}, {8, 9}};
    const uint32_t count = sizeof(pairs) / sizeof(pairs[0]);
    char *src = memory_take((size_t)SLOTS * BYTES_MAX);
    char *dst = memory_take((size_t)SLOTS * BYTES_MAX);
    char *want = memory_take((size_t)SLOTS * BYTES_MAX);

    fill_source(src, (size_t)SLOTS * BYTES_MAX);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t bytes = sizes[i];
        struct stripe s = stripe_one(src, dst, bytes);

        s.pairs = pairs;
        s.pair_count = count;
        s.src_stride = s.dst_stride = bytes;
        memset(want, CANARY, SLOTS * bytes);
        for (uint32_t p = 0; p < count; p++) {
            memcpy(want + pairs[p].dst * bytes, src + pairs[p].src * bytes, bytes);
        }
        for (uint64_t step = 700; step < 40000; step = step * 2 + 77) {
            struct copy_cursor cursor;
            uint64_t done = 0;

            memset(dst, CANARY, SLOTS * bytes);
            copy_cursor_init(&cursor, &s, 1);
            while (!copy_host_step(&cursor, step)) {
                done += step;
                assert_int_equal(cursor.left_bytes, count * bytes - done);
                assert_true(copy_cursor_check(&cursor));
            }
            assert_same(dst, want, SLOTS * bytes, "neighbours");
        }
    }
    free(src);
    free(dst);
    free(want);
}

static void neighbours_are_joined_on_both_sides_only(void **state)
{
    (void)state;
    each_isa(body_neighbours);
}

static void variant_that_the_cpu_lacks_is_refused(void **state)
{
    enum copy_host_isa before = copy_host_isa_get();

    (void)state;
    for (int isa = 0; isa < COPY_HOST_ISA_COUNT; isa++) {
        enum kvf_status status = copy_host_isa_set((enum copy_host_isa)isa);
        assert_true(status == KVF_OK || status == KVF_E_UNSUPPORTED);
        if (status == KVF_OK) {
            assert_int_equal(copy_host_isa_get(), isa);
            assert_true(isa <= (int)before);
        }
        print_message("%s: %s\n", copy_host_isa_name((enum copy_host_isa)isa),
                      status == KVF_OK ? "tested" : "not on this CPU");
    }
    assert_int_equal(copy_host_isa_set(before), KVF_OK);
    assert_int_equal(copy_host_isa_set((enum copy_host_isa)COPY_HOST_ISA_COUNT), KVF_E_UNSUPPORTED);
    assert_int_equal(copy_host_isa_get(), before);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(variant_that_the_cpu_lacks_is_refused),
        cmocka_unit_test(nothing_to_copy_is_done_at_once),
        cmocka_unit_test(copies_small_sizes_at_any_offset_of_both_sides),
        cmocka_unit_test(copies_sizes_around_thresholds),
        cmocka_unit_test(copies_pieces_of_any_stride),
        cmocka_unit_test(no_access_leaves_the_fragment),
        cmocka_unit_test(offsets_above_4_gib_are_not_cut),
        cmocka_unit_test(neighbours_are_joined_on_both_sides_only),
        cmocka_unit_test(random_plans_copy_what_the_definition_says),
        cmocka_unit_test(steps_of_any_size_copy_a_prefix_and_then_the_whole),
    };

    if (argc > 1) {
        seed = strtoull(argv[1], NULL, 10) | 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
