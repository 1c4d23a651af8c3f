/*
 * testing.h - CMocka with the headers it wants, and small helpers that many tests share.
 *
 * May be included by any test.
 */
#ifndef KVF_TEST_TESTING_H
#define KVF_TEST_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A seeded sequence of numbers (splitmix64): the same seed gives the same numbers everywhere. */
struct test_random {
    uint64_t state;
};

/* Seed of this run: the variable TEST_SEED, or the clock. Prints it once: "seed N". */
uint64_t test_seed(void);
struct test_random test_random_make(uint64_t seed);
uint64_t test_random_next(struct test_random *random);
/* Uniform in 0 .. limit - 1; `limit` > 0. */
uint64_t test_random_below(struct test_random *random, uint64_t limit);
void test_random_fill(struct test_random *random, void *bytes, size_t len_bytes);

/* True when the call ends its process by abort(). Run in a child, without standard error. */
bool test_aborts(void (*call)(void *argument), void *argument);

#endif /* KVF_TEST_TESTING_H */
