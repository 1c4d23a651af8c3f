/*
 * bench_ping_ucx.h - what `kvferry bench control` compares with: an active message of UCX there and
 * back between two ranks, with nothing of the library in between. Plain C; needs MPI to be up.
 */
#ifndef LAUNCH_BENCH_PING_UCX_H
#define LAUNCH_BENCH_PING_UCX_H

#include <stdbool.h>
#include <stdint.h>

/* Of a ping and of a pong. */
#define BENCH_PING_BYTES 128u

/*
 * Collective over the two ranks of MPI_COMM_WORLD: `rounds` pings of rank 0, each answered by rank
 * 1, after a few that do not count. seconds_out [rounds] is rank 0's, from before the send until
 * the answer was taken. Peer error mode and shared memory, as the library's own messages. False:
 * some rank said why.
 */
bool bench_ping_measure(uint32_t rounds, double *seconds_out);

#endif /* LAUNCH_BENCH_PING_UCX_H */
