/*
 * ranks.h - a few processes of one test, connected by socket pairs, without a launcher.
 *
 * The process that forks must not have opened UCX. A rank that does not end by the deadline is
 * killed and counts as failed.
 */
#ifndef TEST_UCX_RANKS_H
#define TEST_UCX_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANKS_MAX 4

struct ranks {
    uint32_t rank, count;
    int sockets[RANKS_MAX]; /* to each other rank */
    const void *argument;
};

/* What a rank does; returns the number of things that were wrong. */
typedef int (*ranks_fn)(struct ranks *ranks);

#define RANKS_ENDED 0
#define RANKS_LATE (-1000)

/*
 * Runs `function` on `count` ranks. results_out[rank]: what it returned, -SIGNAL if it was killed,
 * RANKS_LATE if it had to be.
 */
void ranks_run(uint32_t count, ranks_fn function, const void *argument, uint32_t seconds,
               int *results_out);

/* As ranks_run, asserts that all returned 0. */
void ranks_pass(uint32_t count, ranks_fn function, const void *argument);

/* Sends bytes to one rank; receives what it sent, bounded. -1 = the other end is gone. */
void ranks_give(struct ranks *ranks, uint32_t to, const void *bytes, size_t len);
long ranks_take(struct ranks *ranks, uint32_t from, void *bytes_out, size_t cap);
/* Returns when every rank is there. */
void ranks_barrier(struct ranks *ranks);

/* In a rank: prints and counts what does not hold. */
#define RANK_CHECK(wrong, condition) \
    do { \
        if (!(condition)) { \
            ++(wrong); \
            ranks_complain(__FILE__, __LINE__, #condition); \
        } \
    } while (0)
void ranks_complain(const char *file, int line, const char *condition);

#endif /* TEST_UCX_RANKS_H */
