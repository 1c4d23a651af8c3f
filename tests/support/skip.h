/*
 * skip.h - how a test program says that it cannot run here.
 *
 * May be included by any test.
 */
#ifndef KVF_TEST_SKIP_H
#define KVF_TEST_SKIP_H

/* Prints "skipped: REASON", ends the process with 77 (ctest: skipped). Before MPI_Init only. */
_Noreturn void test_skip(const char *reason);

#endif /* KVF_TEST_SKIP_H */
