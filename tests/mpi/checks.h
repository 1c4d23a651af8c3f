/*
 * checks.h - what each test program of this folder notes on its rank: what does not hold is said
 * and counted, and the test goes on, since the others wait for this rank. One program includes it
 * once; the sum over the ranks is the program's own.
 */
#ifndef MPI_CHECKS_H
#define MPI_CHECKS_H

#include <stdio.h>

static int world_rank, world_size, failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            failures++; \
            fprintf(stderr, "[%d] %s:%d: %s\n", world_rank, __FILE__, __LINE__, #condition); \
        } \
    } while (0)

#endif /* MPI_CHECKS_H */
