/*
 * bench_rung.h - a rung of the ladder measured for `kvferry bench copy`: whole requests between two
 * ranks, from the receiver's call to READY. Public headers and MPI.
 */
#ifndef LAUNCH_BENCH_RUNG_H
#define LAUNCH_BENCH_RUNG_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry_mpi.h>

#include "bench.h"

struct bench_rung_params {
    const char *path;     /* as the setting `path` */
    const char *progress; /* as the setting `progress` */
    uint32_t rounds;      /* at most BENCH_ROUNDS_MAX; one more goes before, not counted */
    uint64_t first_rid;   /* 2 * (rounds + 1) request ids from here are used */
    const struct bench_work *work;
    struct bench_baseline *baseline; /* rank 0: a round of it before two requests; or NULL */
};

/*
 * Collective over the two ranks of MPI_COMM_WORLD: rank 0 sends, rank 1 receives and compares every
 * byte of the first and the last request. seconds_out has the rounds' times on both ranks. False:
 * some rank said why.
 */
bool bench_rung_measure(const struct bench_rung_params *params, double *seconds_out);

#endif /* LAUNCH_BENCH_RUNG_H */
