/*
 * run_order.c - `kvferry run --order`: which side opens a request first, and how the other side
 * learns of it. Here MPI messages stand for the router between two engines; the library knows
 * nothing of them.
 *
 * Each rank of the first side tells each rank of the second side that it has opened a request (or
 * never will, --faults no-ctx and no-gen); the second side opens it when all have said so. That
 * cannot block: a request that was admitted opens at once on its first side, and admission waits
 * for nothing that is not older (schedule.h).
 */
#include <stdlib.h>

#include "rng.h"
#include "run.h"
#include "say.h"

#define RUN_ORDER_TAG 0x5a1

/* World ranks of a group, in order. Returns how many. */
static uint32_t run_group_ranks(const struct run *run, struct schedule_group group, int *ranks_out)
{
    const struct kvf_instance *instance = &run->topology->instances[group.instance];
    uint32_t count = 0;

    for (uint32_t r = 0; r < instance->tp_size * instance->pp_size; r++) {
        uint32_t rank = instance->first_rank + r;

        if (run->dp_of[rank] == group.dp) {
            ranks_out[count++] = (int)rank;
        }
    }
    return count;
}

uint32_t run_group_size(const struct run *run, struct schedule_group group)
{
    const struct kvf_instance *instance = &run->topology->instances[group.instance];

    return instance->tp_size * instance->pp_size / instance->dp_size;
}

bool run_order_open(struct run *run)
{
    uint32_t ranks = run->topology->rank_count;
    uint32_t *layers = calloc(KVF_PP_MAX, sizeof(*layers));
    bool fine;

    run->dp_of = calloc(ranks, sizeof(*run->dp_of));
    run->heard = calloc((size_t)run->schedule.job_count + 1, sizeof(*run->heard));
    run->notes = calloc((size_t)run->schedule.job_count + 1, sizeof(*run->notes));
    run->note_ranks = calloc(ranks, sizeof(*run->note_ranks));
    fine = layers != NULL && run->dp_of != NULL && run->heard != NULL && run->notes != NULL &&
           run->note_ranks != NULL;
    for (uint32_t r = 0; fine && r < ranks; r++) {
        enum kvf_side side =
            run->topology->instances[kvf_topology_instance_of(run->topology, r)].side;
        struct kvf_place place;

        fine = kvf_place(run->topology, r, run->models[side].facts.layer_count, layers, &place) ==
               KVF_OK;
        run->dp_of[r] = fine ? place.dp_rank : 0;
    }
    free(layers);
    return fine;
}

void run_order_close(struct run *run)
{
    free(run->dp_of);
    free(run->heard);
    free(run->notes);
    free(run->note_ranks);
}

enum run_first run_order_of(const struct run *run, const struct schedule_job *job)
{
    switch (run->options.order[0]) {
    case 'c':
        return RUN_CONTEXT_FIRST;
    case 'g':
        return RUN_GENERATION_FIRST;
    case 'm':
        return rng_mix(run->options.seed * 77u + rng_mix(job->rid)) % 2 == 0 ? RUN_CONTEXT_FIRST
                                                                             : RUN_GENERATION_FIRST;
    default:
        return RUN_ANY_FIRST;
    }
}

static bool run_is_first(const struct run *run, const struct schedule_job *job)
{
    return run_order_of(run, job) ==
           (run->side == KVF_CONTEXT ? RUN_CONTEXT_FIRST : RUN_GENERATION_FIRST);
}

static struct schedule_group run_others(const struct run *run, const struct schedule_job *job)
{
    return job->ends[run->side == KVF_CONTEXT ? KVF_GENERATION : KVF_CONTEXT];
}

void run_order_tell(struct run *run, uint32_t index)
{
    const struct schedule_job *job = &run->schedule.jobs[index];
    uint32_t count;

    if (!run_is_first(run, job)) {
        return;
    }
    count = run_group_ranks(run, run_others(run, job), run->note_ranks);
    run->notes[index] = index;
    for (uint32_t i = 0; i < count; i++) {
        MPI_Request request;

        /* Four bytes leave at once; `notes` stays until the end all the same. */
        MPI_Isend(&run->notes[index], 1, MPI_UINT32_T, run->note_ranks[i], RUN_ORDER_TAG,
                  MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    }
}

bool run_order_listen(struct run *run)
{
    bool any = false;

    if (run->options.order[0] == 'a') {
        return false;
    }
    for (;;) {
        MPI_Status status;
        uint32_t job = 0;
        int there = 0;

        MPI_Iprobe(MPI_ANY_SOURCE, RUN_ORDER_TAG, MPI_COMM_WORLD, &there, &status);
        if (!there) {
            return any;
        }
        MPI_Recv(&job, 1, MPI_UINT32_T, status.MPI_SOURCE, RUN_ORDER_TAG, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
        run->heard[job]++;
        run->heard_count++;
        any = true;
    }
}

bool run_order_may_open(const struct run *run, uint32_t index)
{
    const struct schedule_job *job = &run->schedule.jobs[index];

    return run_order_of(run, job) == RUN_ANY_FIRST || run_is_first(run, job) ||
           run->heard[index] == run_group_size(run, run_others(run, job));
}

bool run_order_all_heard(const struct run *run)
{
    uint64_t wanted = 0;

    for (uint32_t i = 0; i < run->order_count; i++) {
        const struct schedule_job *job = &run->schedule.jobs[run->order[i]];

        if (run_order_of(run, job) != RUN_ANY_FIRST && !run_is_first(run, job)) {
            wanted += run_group_size(run, run_others(run, job));
        }
    }
    return run->heard_count == wanted;
}

struct kvf_end run_order_end(const struct run *run, const struct schedule_job *job)
{
    struct schedule_group others = run_others(run, job);
    struct kvf_end end = {others.instance, others.dp};

    if (run_order_of(run, job) != RUN_GENERATION_FIRST) {
        return end;
    }
    if (run->side == KVF_GENERATION) {
        end.dp_group = KVF_UNKNOWN; /* all groups are asked */
    } else if (rng_mix(run->options.seed + job->rid * 31u) % 2 == 0) {
        end = (struct kvf_end){KVF_UNKNOWN, KVF_UNKNOWN}; /* as the first ask says */
    }
    return end;
}
