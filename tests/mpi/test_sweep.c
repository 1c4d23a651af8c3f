/*
 * test_sweep.c - the sweep machine of consensus/sweep.h over MPI's collectives, on all ranks of the
 * world as one group: skew, collectives of the engine under way at the same time, a rank that does
 * not call, a rank that dies.
 *
 * usage: mpi_sweep [alike|thousand|pause|dies]...; the first three without a word. Failures are
 * recorded on their rank and reduced at the end. KVFTEST_LONG=1: the long form.
 */
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "clock.h"
#include "consensus/collective_mpi.h"
#include "consensus/sweep.h"
#include "testing.h"
#include "wire.h"

#define RIDS 200u
#define GOOD (RETIRE_DONE | RETIRE_DRAINED)

static bool long_form;

struct rank {
    struct sweep *sweep;
    MPI_Comm comm;
    struct collective *collective;
    uint32_t iteration;
    uint64_t log;     /* hash of all events with their iterations */
    uint32_t told[2]; /* outcomes, releases */
    uint64_t again;   /* looks that found a sweep not complete */
    uint32_t again_now;
    struct test_random random; /* this rank's own */
};

static void nap_us(uint64_t us)
{
    const struct timespec nap = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};

    nanosleep(&nap, NULL);
}

static void open_rank(struct rank *rank, uint64_t timeout_ms)
{
    struct sweep_params params = {
        .retire =
            {
                .side = KVF_GENERATION,
                .rank_count = (uint32_t)world_size,
                .self = (uint32_t)world_rank,
                .entries_max = RIDS * 2,
                .timeout_ns = timeout_ms * CLOCK_NS_PER_MS,
            },
        .votes_max = RIDS * 8,
        .lag = 1,
        .warn_ns = 100 * CLOCK_NS_PER_S,
        .deadline_ns = 100 * CLOCK_NS_PER_S,
    };
    struct collective_mpi_params mpi = {
        .heap = kvf_heap_system(),
        .slots = sweep_slots(params.lag),
        .len_max_bytes = SWEEP_MESSAGE_MAX,
        .crowded = true,
    };

    *rank = (struct rank){.random = test_random_make(77 + (uint64_t)world_rank)};
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &rank->comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(rank->comm, MPI_ERRORS_RETURN);
    mpi.comm = rank->comm;
    CHECK(collective_mpi_open(&mpi, &rank->collective) == KVF_OK);
    CHECK(sweep_open(kvf_heap_system(), &params, &rank->sweep) == KVF_OK);
}

static void act(struct rank *rank, const struct sweep_action *action)
{
    struct collective *collective = rank->collective;
    uint8_t word[COLLECTIVE_WORD_BYTES] = {0};
    uint64_t facts[4];

    switch (action->kind) {
    case SWEEP_ACT_POST:
        CHECK(collective->start(collective->self, action->u.post.slot, action->u.post.bytes,
                                action->u.post.len_bytes) == KVF_OK);
        break;
    case SWEEP_ACT_EVENT:
        facts[0] = action->u.event.event.rid;
        facts[1] = (uint64_t)action->u.event.event.kind;
        facts[2] = (uint64_t)action->u.event.event.status;
        facts[3] = rank->iteration;
        rank->log = wire_hash64(facts, sizeof(facts), rank->log);
        rank->told[action->u.event.event.kind == KVF_EVENT_RELEASED]++;
        break;
    case SWEEP_ACT_TELL:
        wire_store_u32(word, action->u.loss.cause);
        wire_store_u32(word + 4, action->u.loss.culprit);
        collective->tell(collective->self, word);
        collective->abandon(collective->self);
        break;
    case SWEEP_ACT_DECIDE:
    case SWEEP_ACT_ABSENT:
    case SWEEP_ACT_END_ALL:
    case SWEEP_ACT_LOG:
        break;
    }
}

static enum kvf_status step(struct rank *rank, struct sweep_event *event, struct sweep_out *out)
{
    struct sweep_action actions[SWEEP_ACTIONS_MIN * 4];
    struct sweep_event next = {.kind = SWEEP_POLL, .now_ns = clock_now_ns()};
    enum kvf_status status;

    *out = (struct sweep_out){.actions = actions, .max = SWEEP_ACTIONS_MIN * 4};
    event->now_ns = next.now_ns;
    status = sweep_step(rank->sweep, event, out);
    for (;;) {
        for (uint32_t a = 0; a < out->count; a++)
            act(rank, &actions[a]);
        if (!out->more)
            return status;
        out->count = 0;
        sweep_step(rank->sweep, &next, out);
    }
}

/* One look; OK: the iteration is through. */
static enum kvf_status look(struct rank *rank)
{
    struct collective *collective = rank->collective;
    struct sweep_event event = {.kind = SWEEP_CALL, .u.call = {rank->iteration, 0}};
    uint8_t word[COLLECTIVE_WORD_BYTES];
    struct sweep_out out;
    enum kvf_status status;

    while (collective->hear(collective->self, word)) {
        struct sweep_event told = {.kind = SWEEP_TOLD,
                                   .u.told = {wire_load_u32(word), wire_load_u32(word + 4), 0}};

        step(rank, &told, &out);
    }
    status = step(rank, &event, &out);
    if (status == KVF_OK && out.due) {
        status = collective->test(collective->self, out.slot);
        event.kind = status == KVF_OK      ? SWEEP_GATHERED
                     : status == KVF_AGAIN ? SWEEP_WAITING
                                           : SWEEP_FAILED;
        if (status == KVF_OK)
            event.u.gathered.bytes = collective->result(collective->self, out.slot);
        step(rank, &event, &out);
    }
    if (out.done) {
        rank->iteration++;
        rank->again_now = 0;
        return KVF_OK;
    }
    if (!out.due)
        return KVF_E_GROUP_LOST;
    rank->again++;
    collective->rest(collective->self, rank->again_now++);
    return KVF_AGAIN;
}

static enum kvf_status call(struct rank *rank)
{
    enum kvf_status status;

    do {
        status = look(rank);
    } while (status == KVF_AGAIN);
    return status;
}

static void vote(struct rank *rank, uint64_t rid, unsigned kind)
{
    struct sweep_event event = {
        .kind = SWEEP_VOTE,
        .u.vote = {.rid = rid,
                   .vote = kind,
                   .first = true,
                   .status = kind == GOOD ? KVF_OK : KVF_E_CANCELLED,
                   .culprit = KVF_UNKNOWN},
    };
    struct sweep_out out;

    CHECK(step(rank, &event, &out) == KVF_OK);
}

/* All ranks have heard the same, in the same order and iterations. */
static void close_alike(struct rank *rank)
{
    uint64_t all[64];
    struct sweep_state state;

    sweep_look(rank->sweep, &state);
    while (state.under_way > 0 && /* the last one, which nobody waits for */
           rank->collective->test(rank->collective->self, state.applied % sweep_slots(1)) ==
               KVF_AGAIN)
        rank->collective->rest(rank->collective->self, 1000000);
    MPI_Allgather(&rank->log, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int r = 0; r < world_size; r++)
        CHECK(all[r] == rank->log);
    rank->collective->close(rank->collective->self);
    sweep_close(rank->sweep);
    MPI_Comm_free(&rank->comm);
}

/* ---- scenarios ------------------------------------------------------------------------------ */

/* Collectives of the engine on its own communicator while a sweep is under way: none may clash. */
static void engine_collectives(uint32_t iteration)
{
    int sum = 0, one = 1;
    MPI_Request barrier;
    MPI_Comm dup;

    if (iteration % 8 != 3)
        return;
    MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == world_size);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    MPI_Wait(&barrier, MPI_STATUS_IGNORE);
    MPI_Barrier(dup);
    MPI_Comm_free(&dup);
}

/* Every rank votes on all requests in an order of its own; some are cancelled by one rank. */
static void scenario_alike(void)
{
    uint32_t order[RIDS], given = 0;
    uint64_t delay_us = long_form ? 500000 : 4000;
    struct rank rank;

    open_rank(&rank, 0);
    for (uint32_t i = 0; i < RIDS; i++)
        order[i] = i;
    for (uint32_t i = RIDS; i > 1; i--) {
        uint32_t at = (uint32_t)test_random_below(&rank.random, i), kept = order[i - 1];

        order[i - 1] = order[at];
        order[at] = kept;
    }
    while (rank.told[1] < RIDS) {
        uint64_t votes = test_random_below(&rank.random, 12);

        for (; votes > 0 && given < RIDS; votes--, given++) {
            uint32_t rid = order[given];
            bool doomed = rid % 7 == 0 && rid % (uint32_t)world_size == (uint32_t)world_rank;

            vote(&rank, rid, doomed ? RETIRE_DOOMED_USER | RETIRE_DRAINED : GOOD);
        }
        if (test_random_below(&rank.random, 4) == 0)
            nap_us(test_random_below(&rank.random, delay_us));
        if (call(&rank) != KVF_OK) {
            CHECK(!"the group is lost");
            return;
        }
        engine_collectives(rank.iteration);
    }
    CHECK(rank.told[0] == RIDS);
    close_alike(&rank);
}

static void scenario_thousand(void)
{
    uint64_t start_ns = clock_now_ns();
    struct rank rank;

    open_rank(&rank, 0);
    for (uint32_t i = 0; i < 1000; i++)
        CHECK(call(&rank) == KVF_OK);
    if (world_rank == 0)
        printf("1000 sweeps of %d ranks: %.2f s\n", world_size,
               (double)(clock_now_ns() - start_ns) / 1e9);
    close_alike(&rank);
}

/* One rank does nothing for a while; the others never block in a call, and all go on afterwards. */
static void scenario_pause(void)
{
    struct rank rank;

    open_rank(&rank, 60000);
    for (uint32_t i = 0; i < 50; i++) {
        if (i == 20 && world_rank == world_size - 1)
            nap_us(long_form ? 5000000 : 300000);
        CHECK(call(&rank) == KVF_OK);
        if (i == 20)
            vote(&rank, 5, GOOD);
    }
    CHECK(rank.told[0] == 1 && rank.told[1] == 1);
    CHECK(world_rank == world_size - 1 || rank.again > 0);
    close_alike(&rank);
}

/* The last rank is killed between two sweeps; the others end by their own deadline. */
static void scenario_dies(void)
{
    struct sweep_state state;
    enum kvf_status status = KVF_OK;
    struct rank rank;

    open_rank(&rank, 500);
    MPI_Barrier(MPI_COMM_WORLD);
    for (uint32_t i = 0; status == KVF_OK; i++) {
        if (i == 30 && world_rank == world_size - 1)
            raise(SIGKILL);
        status = call(&rank);
    }
    sweep_look(rank.sweep, &state);
    printf("rank %d: group lost after %u sweeps: %s\n", world_rank, state.applied,
           sweep_cause_text(state.cause));
    fflush(stdout);
    _exit(status == KVF_E_GROUP_LOST && state.applied >= 28 && state.applied <= 31 ? 0 : 1);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {{"alike", scenario_alike},
                     {"thousand", scenario_thousand},
                     {"pause", scenario_pause},
                     {"dies", scenario_dies}};
    int level, all = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    long_form = getenv("KVFTEST_LONG") != NULL;
    for (unsigned s = 0; s < 4; s++) {
        bool wanted = argc < 2 && s < 3;

        for (int a = 1; a < argc; a++)
            wanted = wanted || strcmp(argv[a], scenarios[s].name) == 0;
        if (wanted)
            scenarios[s].run();
        if (wanted && world_rank == 0)
            printf("ok     %s\n", scenarios[s].name);
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}
