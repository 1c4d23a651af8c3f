/*
 * bench_limit.h - the loops that `kvferry bench copy` takes for the limit of one core: streaming
 * stores over a list of pointers prepared in advance, fragments of one size, all on lines.
 *
 * They share no code with kernels/: what is measured and what it is measured by stay apart.
 * Inside launch/bench_*.c only.
 */
#ifndef LAUNCH_BENCH_LIMIT_H
#define LAUNCH_BENCH_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BENCH_LIST_BEYOND = 64,    /* entries after the last that loops may prefetch from */
    BENCH_FRAGMENT_UNIT = 256, /* sizes are multiples of it */
    BENCH_LIMIT_LOOPS_MAX = 9,
};

struct bench_fragment {
    char *dst;
    const char *src;
};

struct bench_list {
    struct bench_fragment *fragments; /* count + BENCH_LIST_BEYOND entries */
    uint64_t count;
    uint64_t bytes; /* of each */
};

struct bench_work;

/* Names every fragment of the workload, in the order of the host copy. */
void bench_work_list(const struct bench_work *work, struct bench_fragment *fragments_out);

/* How many loops this build has; 0 where nothing better than memcpy is known. */
uint32_t bench_limit_loops(void);

/* Whether this CPU can run it. */
bool bench_limit_usable(uint32_t loop);

/* "avx2, 8192 B ahead"; static. */
const char *bench_limit_name(uint32_t loop);

/* Copies the whole list and ends with a store fence. */
void bench_limit_run(uint32_t loop, const struct bench_list *list);

#endif /* LAUNCH_BENCH_LIMIT_H */
