/*
 * test_agree.c - the whole library: 500 requests that arrive in another order on each rank, some
 * cancelled by one of them. All ranks of a group get the same events, in the same order, in the
 * same iterations, and the bytes of what is READY are right.
 *
 * 8 ranks: TP x PP on both sides; 10 ranks: attention DP and PP on the generation side.
 */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvferry/kvferry_mpi.h>

#include "checks.h"
#include "testing.h"
#include "tiny_engine.h"
#include "wire.h"

#define REQUESTS 500u
#define BLOCKS 3u
#define EVENTS 128u
#define LOOKS_MAX 2000000u

static const char *const settings =
    "all:\n  requests_max: 512\n  tombstones_max: 1024\n  blocks_max: 8192\n  log_level: warn\n";

struct run {
    struct tiny_engine engine;
    const struct kvf_topology *topology;
    uint32_t mine, opened, released, cancelled;
    uint32_t order[REQUESTS]; /* of opening on this rank; rids are one more */
    bool ready[REQUESTS + 1];
    uint64_t log;
    MPI_Comm group;
};

static uint32_t group_of(uint32_t rid, const struct kvf_instance *generation)
{
    return rid % generation->dp_size;
}

static struct tiny_request request_of(uint32_t rid)
{
    return (struct tiny_request){
        .rid = rid,
        .prompt_tokens = 1 + rid % (BLOCKS * TINY_BLOCK),
        .slot_first = rid * BLOCKS,
    };
}

/* The requests of this rank's group, shuffled. */
static void plan_order(struct run *run)
{
    struct test_random random = test_random_make(5 + (uint64_t)world_rank);
    const struct kvf_instance *generation = &run->topology->instances[1];

    for (uint32_t rid = 1; rid <= REQUESTS; rid++)
        if (run->engine.rank.side == KVF_CONTEXT ||
            group_of(rid, generation) == run->engine.rank.dp_rank)
            run->order[run->mine++] = rid;
    for (uint32_t i = run->mine; i > 1; i--) {
        uint32_t at = (uint32_t)test_random_below(&random, i), kept = run->order[i - 1];

        run->order[i - 1] = run->order[at];
        run->order[at] = kept;
    }
}

static void open_some(struct run *run)
{
    bool context = run->engine.rank.side == KVF_CONTEXT;

    for (uint32_t n = 0; n < 8 && run->opened < run->mine; n++) {
        uint32_t rid = run->order[run->opened++];
        struct tiny_request request = request_of(rid);
        struct kvf_end other = {context ? 1 : 0,
                                context ? group_of(rid, &run->topology->instances[1]) : 0};

        CHECK(tiny_request_open(&run->engine, &request, other) == KVF_OK);
        if (context)
            CHECK(tiny_request_ready(&run->engine, rid) == KVF_OK);
        else if (rid % 25 == 0 && run->engine.rank.tp_rank % 2 == 1)
            CHECK(kvf_cancel(run->engine.kvf, rid) == KVF_OK);
    }
}

static void hear(struct run *run, const struct kvf_event *event)
{
    const uint64_t facts[] = {event->rid, (uint64_t)event->kind, (uint64_t)event->status,
                              event->culprit, run->engine.iteration};

    run->log = wire_hash64(facts, sizeof(facts), run->log);
    run->released += event->kind == KVF_EVENT_RELEASED;
    run->cancelled += event->kind == KVF_EVENT_CANCELLED;
    CHECK(event->kind != KVF_EVENT_FAILED && event->kind != KVF_EVENT_RELEASED_LOCAL);
    if (event->kind == KVF_EVENT_READY)
        run->ready[event->rid] = true;
}

static void run_all(struct run *run)
{
    const struct timespec nap = {.tv_nsec = 20000};
    struct kvf_event events[EVENTS];
    uint64_t seen = UINT64_MAX;

    for (uint32_t looks = 0; run->released < run->mine && looks < LOOKS_MAX; looks++) {
        uint64_t iteration = run->engine.iteration;
        uint32_t count;

        if (iteration != seen)
            open_some(run);
        seen = iteration;
        count = tiny_sweep(&run->engine, events, EVENTS);
        /* tiny_sweep() has counted the iteration up; events are those of the one before */
        for (uint32_t e = 0; e < count; e++)
            hear(run, &events[e]);
        if (count == 0)
            nanosleep(&nap, NULL);
    }
    CHECK(run->released == run->mine);
}

static void judge(struct run *run)
{
    uint64_t logs[64];
    int ranks;

    MPI_Comm_size(run->group, &ranks);
    MPI_Allgather(&run->log, 1, MPI_UINT64_T, logs, 1, MPI_UINT64_T, run->group);
    for (int r = 0; r < ranks; r++)
        CHECK(logs[r] == run->log);
    for (uint32_t rid = 1; rid <= REQUESTS; rid++) {
        struct tiny_request request = request_of(rid);

        if (run->ready[rid])
            CHECK(tiny_request_bad(&run->engine, &request) == 0);
    }
    if (run->engine.rank.rank == 0)
        printf("%s: %u requests, %u cancelled, %llu iterations, log %016llx\n",
               run->engine.rank.side == KVF_CONTEXT ? "context" : "generation", run->mine,
               run->cancelled, (unsigned long long)run->engine.iteration,
               (unsigned long long)run->log);
}

static void run_world(void)
{
    const struct tiny_params tiny = {.slots = (REQUESTS + 2) * BLOCKS, .heads = 4};
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    static struct run run;
    struct kvf_topology *topology = NULL;
    struct kvf *kvf = NULL;

    CHECK(kvf_topology_parse(world_size == 8 ? "ctx tp=2 pp=2; gen tp=2 pp=2"
                                             : "ctx tp=2; gen tp=4 dp=2 pp=2",
                             &topology, NULL, 0) == KVF_OK);
    params.topology = run.topology = topology;
    params.settings_text = settings;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_OK);
    CHECK(tiny_open(&run.engine, kvf, topology, &tiny) == KVF_OK);
    if (failures > 0)
        MPI_Abort(MPI_COMM_WORLD, 1);
    plan_order(&run);
    MPI_Comm_split(MPI_COMM_WORLD, (int)(run.engine.rank.instance * 64 + run.engine.rank.dp_rank),
                   world_rank, &run.group);
    run_all(&run);
    judge(&run);
    CHECK(kvf_close(kvf, 5000) == KVF_OK);
    tiny_close(&run.engine);
    kvf_topology_free(topology);
    MPI_Comm_free(&run.group);
}

int main(int argc, char **argv)
{
    int level, all = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size != 8 && world_size != 10) {
        if (world_rank == 0)
            printf("test_agree wants 8 or 10 ranks\n");
        MPI_Finalize();
        return 2;
    }
    run_world();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
