/* Unit tests of launch/prefix_model.c: the cache over the trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "prefix_model.h"
#include "rng.h"

static struct prefix_answer admit(struct prefix_model *model, uint32_t user, uint32_t pages,
                                  const uint64_t *hashes, uint32_t count)
{
    struct prefix_ask ask = {user, pages, count, hashes};
    struct prefix_answer answer;

    assert_true(prefix_admit(model, &ask, &answer));
    assert_true(prefix_check(model));
    return answer;
}

static void prefix_reuses_the_longest_common_start(void **state)
{
    static const uint64_t first[] = {1, 2, 3}, second[] = {1, 2, 9, 10};
    struct prefix_params params = {100, 2};
    struct prefix_model *model = prefix_open(&params);
    struct prefix_answer answer = admit(model, 7, 7, first, 3);
    uint32_t made[3];

    (void)state;
    assert_int_equal(answer.reused, 0);
    memcpy(made, answer.entries, sizeof(made));
    answer = admit(model, 8, 9, second, 4);
    assert_int_equal(answer.reused, 2);
    assert_int_equal(answer.entries[0], made[0]);
    assert_int_equal(answer.entries[1], made[1]);
    assert_int_equal(answer.dropped_count, 0);
    assert_int_equal(prefix_entry_count(model), 5);
    assert_int_equal(prefix_entry_maker(model, made[1]), 7);
    assert_int_equal(prefix_entry_ordinal(model, made[1]), 1);
    assert_true(prefix_entry_reused(model, made[1]));
    assert_false(prefix_entry_reused(model, made[2]));
    assert_int_equal(prefix_entry_maker(model, answer.entries[3]), 8);
    prefix_close(model);
}

static void prefix_stops_at_the_first_difference(void **state)
{
    static const uint64_t first[] = {1, 2, 3}, second[] = {5, 2, 3};
    struct prefix_params params = {100, 1};
    struct prefix_model *model = prefix_open(&params);

    (void)state;
    admit(model, 0, 3, first, 3);
    assert_int_equal(admit(model, 1, 3, second, 3).reused, 0);
    prefix_close(model);
}

static void prefix_drops_the_least_recent_ends_first(void **state)
{
    static const uint64_t a[] = {1, 2}, b[] = {11, 12}, c[] = {21, 22};
    struct prefix_params params = {5, 1};
    struct prefix_model *model = prefix_open(&params);
    struct prefix_answer answer;
    uint32_t deep;

    (void)state;
    deep = admit(model, 0, 2, a, 2).entries[1];
    admit(model, 1, 2, b, 2);
    answer = admit(model, 2, 2, c, 2);
    assert_int_equal(answer.dropped_count, 1);
    assert_int_equal(answer.dropped[0], deep);
    answer = admit(model, 3, 2, a, 2); /* its first block is still there */
    assert_int_equal(answer.reused, 1);
    prefix_close(model);
}

static void prefix_gives_way_to_a_request_as_large_as_the_pool(void **state)
{
    static const uint64_t a[] = {1, 2, 3}, whole[] = {9};
    struct prefix_params params = {4, 1};
    struct prefix_model *model = prefix_open(&params);
    struct prefix_answer answer;

    (void)state;
    admit(model, 0, 3, a, 3);
    answer = admit(model, 1, 4, whole, 1);
    assert_int_equal(answer.dropped_count, 3);
    assert_int_equal(admit(model, 2, 1, NULL, 0).dropped_count, 0);
    prefix_close(model);
}

/* Random trees of prompts through small pools: the invariant holds, and equal runs are equal. */
static void prefix_invariant_holds_over_random_traces(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct rng rng = {seed};
        struct prefix_params params = {8 + rng_below(&rng, 40), 1 + rng_below(&rng, 4)};
        struct prefix_model *model = prefix_open(&params);

        for (uint32_t user = 0; user < 120; user++) {
            uint32_t room = (uint32_t)params.pool_pages;
            uint32_t count = rng_below(&rng, room / params.pages_per_hash + 1);
            uint32_t tail = room - count * params.pages_per_hash;
            uint64_t hashes[64];
            struct prefix_answer answer;

            for (uint32_t i = 0; i < count; i++) {
                hashes[i] = i == 0 ? rng_below(&rng, 3) : hashes[i - 1] * 3 + rng_below(&rng, 2);
            }
            answer = admit(model, user,
                           count * params.pages_per_hash + (tail > 0 ? rng_below(&rng, tail) : 0),
                           hashes, count);
            assert_true(answer.reused <= count);
            for (uint32_t i = 0; i < count; i++) {
                assert_int_equal(prefix_entry_ordinal(model, answer.entries[i]), i);
                assert_true(i < answer.reused
                                ? prefix_entry_maker(model, answer.entries[i]) < user
                                : prefix_entry_maker(model, answer.entries[i]) == user);
            }
        }
        prefix_close(model);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefix_reuses_the_longest_common_start),
        cmocka_unit_test(prefix_stops_at_the_first_difference),
        cmocka_unit_test(prefix_drops_the_least_recent_ends_first),
        cmocka_unit_test(prefix_gives_way_to_a_request_as_large_as_the_pool),
        cmocka_unit_test(prefix_invariant_holds_over_random_traces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
