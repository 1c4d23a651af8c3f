/*
 * test_plan_digest.c - the digest of a write: what it is of, and that no step reads more than it
 * may.
 */
#include "testing.h"

#include <string.h>

#include "plan_digest.h"

enum { SLOTS = 7, STRIDE = 4096, PIECE = 700, FRAGMENTS = 2 * 3 * 4 };

/* Two layers of four pieces in three blocks, and another stripe of one large piece. */
struct bed {
    uint8_t src[SLOTS * STRIDE];
    uint8_t dst[SLOTS * STRIDE];
    struct stripe_base bases[2];
    struct stripe_pair pairs[3];
    struct stripe_pair last;
    struct stripe stripes[2];
};

static void bed_init(struct bed *bed)
{
    *bed = (struct bed){
        .bases = {{0, 1024}, {2048, 0}},
        .pairs = {{5, 0}, {2, 1}, {0, 3}},
        .last = {6, 6},
    };
    for (uint32_t i = 0; i < sizeof(bed->src); i++) {
        bed->src[i] = (uint8_t)(i * 7 + i / 251);
        bed->dst[i] = (uint8_t)(i * 3 + i / 13);
    }
    bed->stripes[0] = (struct stripe){
        .src = (uint64_t)(uintptr_t)bed->src,
        .dst = (uint64_t)(uintptr_t)bed->dst,
        .bases = bed->bases,
        .pairs = bed->pairs,
        .base_count = 2,
        .pair_count = 3,
        .src_stride = STRIDE,
        .dst_stride = STRIDE,
        .piece_count = 4,
        .piece_bytes = PIECE / 4,
        .src_piece_stride = PIECE / 2,
        .dst_piece_stride = PIECE / 4,
    };
    bed->stripes[1] = bed->stripes[0];
    bed->stripes[1].pairs = &bed->last;
    bed->stripes[1].base_count = bed->stripes[1].pair_count = bed->stripes[1].piece_count = 1;
    bed->stripes[1].piece_bytes = 3000;
}

/* The definition of docs/protocol.md, all at once. */
static void defined(const struct bed *bed, bool sources, uint32_t count, uint64_t *parts_out,
                    uint64_t fragments)
{
    uint64_t part_count = fragments < MSG_CHECK_PARTS_MAX ? fragments : MSG_CHECK_PARTS_MAX;
    struct plan_fragment fragment;
    struct plan_walk walk;

    memset(parts_out, 0, sizeof(uint64_t) * MSG_CHECK_PARTS_MAX);
    plan_walk_init(&walk, bed->stripes, count);
    for (uint64_t i = 0; plan_walk_next(&walk, &fragment); i++) {
        const void *bytes = (const void *)(uintptr_t)(sources ? fragment.src : fragment.dst);

        parts_out[i * part_count / fragments] += wire_hash64(bytes, fragment.bytes, i);
    }
}

static void any_steps_give_the_defined_parts(void **state)
{
    static const uint64_t steps[] = {1, 13, 175, 176, 1000, 2999, 3000, 100000};
    uint64_t want[MSG_CHECK_PARTS_MAX];
    struct bed bed;

    (void)state;
    bed_init(&bed);
    for (uint32_t side = 0; side < 2; side++) {
        defined(&bed, side == 0, 2, want, FRAGMENTS + 1);
        for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++) {
            struct plan_digest digest;
            uint64_t total = 0, budget, calls = 0;
            bool done = false;

            plan_digest_init(&digest, bed.stripes, 2, side == 0);
            assert_int_equal(digest.part_count, FRAGMENTS + 1);
            while (!done) {
                budget = steps[s];
                done = plan_digest_step(&digest, &budget);
                assert_true(budget <= steps[s]);
                assert_true(done || budget == 0);
                total += steps[s] - budget;
                calls++;
            }
            assert_int_equal(total, FRAGMENTS * (PIECE / 4) + 3000);
            assert_int_equal(calls, (total + steps[s] - 1) / steps[s]);
            assert_memory_equal(digest.parts, want, sizeof(want));
        }
    }
}

static void a_step_reads_no_byte_beyond_its_budget(void **state)
{
    uint8_t want[3000];
    struct plan_digest digest;
    struct bed bed;

    (void)state;
    bed_init(&bed);
    memcpy(want, bed.src + 6 * STRIDE, 100);
    plan_digest_init(&digest, &bed.stripes[1], 1, true);
    for (uint64_t at = 0; at < 3000; at += 100) {
        uint64_t budget = 100;
        const uint8_t *from = digest.bytes;

        /* What lies behind the step may change until the step that reads it. */
        memset(bed.src + 6 * STRIDE + at + 100, (int)(at & 0xff), 3000 - at - 100);
        memset(want + at + 100, (int)(at & 0xff), 3000 - at - 100);
        plan_digest_step(&digest, &budget);
        assert_true(at + 100 == 3000 || digest.bytes == from + 100);
        memset(bed.src + 6 * STRIDE + at, 0x55, 100);
    }
    assert_int_equal(digest.left_bytes, 0);
    assert_true(digest.parts[0] == wire_hash64(want, sizeof(want), 0));
}

static void nothing_to_read_ends_at_once(void **state)
{
    struct plan_digest digest;
    uint64_t budget = 5;

    (void)state;
    plan_digest_init(&digest, NULL, 0, true);
    assert_true(plan_digest_step(&digest, &budget));
    assert_int_equal(budget, 5);
    assert_int_equal(digest.part_count, 0);
}

static void many_fragments_share_the_parts(void **state)
{
    uint64_t want[MSG_CHECK_PARTS_MAX];
    struct plan_digest digest;
    struct bed bed;
    uint64_t budget = UINT64_MAX;

    (void)state;
    bed_init(&bed);
    bed.stripes[0].piece_count = 100;
    bed.stripes[0].piece_bytes = 7;
    bed.stripes[0].src_piece_stride = bed.stripes[0].dst_piece_stride = 7;
    defined(&bed, true, 1, want, 600);
    plan_digest_init(&digest, bed.stripes, 1, true);
    assert_int_equal(digest.part_count, MSG_CHECK_PARTS_MAX);
    assert_true(plan_digest_step(&digest, &budget));
    assert_memory_equal(digest.parts, want, sizeof(want));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_steps_give_the_defined_parts),
        cmocka_unit_test(a_step_reads_no_byte_beyond_its_budget),
        cmocka_unit_test(nothing_to_read_ends_at_once),
        cmocka_unit_test(many_fragments_share_the_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
