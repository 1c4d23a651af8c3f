/*
 * smpi_sweep.c - the real sweep and collective_mpi.c as one rank of a simulated cluster (SimGrid's
 * SMPI; tests/scale/smpi builds and runs it): simulated time and bytes of a sweep.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "consensus/collective_mpi.h"
#include "consensus/sweep.h"

#define SWEEPS 10u

struct rank {
    struct sweep *sweep;
    struct collective *collective;
    uint32_t iteration, events;
};

static struct sweep_out step(struct rank *rank, struct sweep_event *event)
{
    struct sweep_action actions[16];
    struct sweep_event next = {.kind = SWEEP_POLL};
    struct sweep_out out = {.actions = actions, .max = 16};

    sweep_step(rank->sweep, event, &out);
    for (;;) {
        for (uint32_t a = 0; a < out.count; a++) {
            rank->events += actions[a].kind == SWEEP_ACT_EVENT;
            if (actions[a].kind == SWEEP_ACT_POST)
                rank->collective->start(rank->collective->self, actions[a].u.post.slot,
                                        actions[a].u.post.bytes, actions[a].u.post.len_bytes);
        }
        if (!out.more)
            return out;
        out.count = 0;
        sweep_step(rank->sweep, &next, &out);
    }
}

static void call(struct rank *rank)
{
    struct sweep_event event = {.kind = SWEEP_CALL, .u.call = {rank->iteration++, 0}};
    struct sweep_out out = step(rank, &event);

    while (!out.done) {
        if (rank->collective->test(rank->collective->self, out.slot) != KVF_OK)
            continue;
        event.kind = SWEEP_GATHERED;
        event.u.gathered.bytes = rank->collective->result(rank->collective->self, out.slot);
        out = step(rank, &event);
    }
}

static void vote(struct rank *rank, uint64_t rid)
{
    struct sweep_event event = {
        .kind = SWEEP_VOTE,
        .u.vote = {.rid = rid, .vote = RETIRE_DONE | RETIRE_DRAINED, .first = true}};

    step(rank, &event);
}

int main(int argc, char **argv)
{
    struct sweep_params params = {.retire = {.side = KVF_GENERATION, .entries_max = 64},
                                  .votes_max = 64};
    struct collective_mpi_params mpi = {
        .heap = kvf_heap_system(), .slots = 1, .len_max_bytes = 256};
    struct rank rank = {0};
    struct sweep_state look;
    int me, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    params.retire.rank_count = (uint32_t)ranks;
    params.retire.self = (uint32_t)me;
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi.comm);
    if (collective_mpi_open(&mpi, &rank.collective) != KVF_OK ||
        sweep_open(kvf_heap_system(), &params, &rank.sweep) != KVF_OK)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (uint32_t changes = 0; changes < 2; changes++) {
        double start_s;

        MPI_Barrier(MPI_COMM_WORLD);
        start_s = MPI_Wtime();
        for (uint32_t s = 0; s < SWEEPS; s++) {
            if (changes > 0)
                vote(&rank, 1 + s);
            call(&rank);
        }
        sweep_look(rank.sweep, &look);
        if (me == 0)
            printf("smpi ranks %d changes %u us %.2f bytes %u events %u\n", ranks, changes,
                   (MPI_Wtime() - start_s) * 1e6 / SWEEPS, look.len_bytes, rank.events);
    }
    MPI_Finalize();
    return rank.events == 2 * SWEEPS ? 0 : 1;
}
