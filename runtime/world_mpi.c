/*
 * world_mpi.c - the world over MPI: duplicates of the caller's communicator and bounded
 * collectives, and the public call that opens over them.
 *
 * Every wait is a nonblocking collective with a deadline. MPI has no nonblocking split and no
 * nonblocking shared window: a bounded barrier right before them proves that all ranks are there.
 * The caller's communicator is read by one MPI_Comm_idup and never used again. Calls MPI from the
 * caller's thread alone; never initialises, finalises or aborts.
 */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

#include <kvferry/kvferry_mpi.h>

#include "clock.h"
#include "consensus/collective_mpi.h"
#include "context.h"
#include "log.h"
#include "world.h"
#include "xfer/transport_open.h"

#define WORLD_SPINS 200     /* passes before a waiting rank yields its core for longer */
#define WORLD_NAP_NS 50000L /* ranks may be more than cores */
#define WORLD_ROLL_TAG 1    /* of the only messages on this communicator */
#define WORLD_ROLL_NS (500 * CLOCK_NS_PER_MS) /* all that came have told each other by then */

struct world_mpi {
    struct world table;
    const struct kvf_heap *heap;
    MPI_Comm parts[WORLD_PART_COUNT];
    MPI_Comm agreement; /* of the sweep alone: the group's ranks */
    MPI_Win node_window;
    uint32_t timeout_ms;
    bool (*idle)(void *idle_self);
    void *idle_self;
    bool damaged; /* a collective did not end: its communicator must not be freed */
    bool rolling; /* inside a collective of the start: who gives up tells the others */
    bool *came;   /* [rank_count] of the roll call; stays when MPI is left behind */
};

static enum kvf_status world_mpi_status(int code)
{
    return code == MPI_SUCCESS ? KVF_OK : KVF_E_MPI;
}

static uint64_t world_deadline(const struct world_mpi *world)
{
    return clock_now_ns() + world->timeout_ms * CLOCK_NS_PER_MS;
}

/* Notes who has told that it gave up; true when somebody has. */
static bool world_hear(struct world_mpi *world)
{
    int there = 1;
    bool heard = false;

    while (there) {
        MPI_Status status;

        there = 0;
        if (MPI_Iprobe(MPI_ANY_SOURCE, WORLD_ROLL_TAG, world->parts[WORLD_ALL], &there, &status) !=
                MPI_SUCCESS ||
            !there)
            break;
        if (MPI_Recv(NULL, 0, MPI_BYTE, status.MPI_SOURCE, WORLD_ROLL_TAG, world->parts[WORLD_ALL],
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            break;
        world->came[status.MPI_SOURCE] = true;
        heard = true;
    }
    return heard;
}

static void world_missing(struct world_mpi *world)
{
    struct world *table = &world->table;
    size_t at = 0;
    uint32_t missing = 0;

    for (uint32_t r = 0; r < table->rank_count; r++) {
        if (world->came[r])
            continue;
        missing++;
        if (at + 32 < sizeof(table->missing_text))
            at += (size_t)snprintf(table->missing_text + at, sizeof(table->missing_text) - at,
                                   "%s%u", missing == 1 ? "did not come: world ranks " : ", ", r);
        else if (at + 4 < sizeof(table->missing_text))
            at += (size_t)snprintf(table->missing_text + at, sizeof(table->missing_text) - at,
                                   ", ...");
    }
}

/*
 * A collective does not say who is missing. Every rank that gives up tells all others by an empty
 * message, which needs nobody to wait for it, and gives up too when it is told: who is not heard of
 * did not come.
 */
static void world_roll_call(struct world_mpi *world)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    uint64_t end_ns = clock_now_ns() + WORLD_ROLL_NS;

    if (!world->rolling)
        return;
    world->came[world->table.rank] = true;
    for (uint32_t r = 0; r < world->table.rank_count; r++) {
        MPI_Request request;

        if (r != world->table.rank && MPI_Isend(NULL, 0, MPI_BYTE, (int)r, WORLD_ROLL_TAG,
                                                world->parts[WORLD_ALL], &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
    while (clock_now_ns() < end_ns) {
        world_hear(world);
        nanosleep(&nap, NULL);
    }
    world_missing(world);
}

/* Tests until the request is done. On an error or the deadline the world is damaged. */
static enum kvf_status world_wait(struct world_mpi *world, MPI_Request *request,
                                  uint64_t deadline_ns)
{
    const struct timespec nap = {.tv_sec = 0, .tv_nsec = WORLD_NAP_NS};
    unsigned spins = 0;

    for (;;) {
        int done = 0;

        if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
            world->damaged = true;
            return KVF_E_MPI;
        }
        if (done)
            return KVF_OK;
        if (clock_now_ns() >= deadline_ns ||
            (world->rolling && spins >= WORLD_SPINS && world_hear(world))) {
            world->damaged = true;
            world_roll_call(world);
            return KVF_E_WORLD;
        }
        if (world->idle != NULL && world->idle(world->idle_self))
            spins = 0;
        if (++spins < WORLD_SPINS)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

static enum kvf_status world_mpi_barrier(void *self, uint64_t deadline_ns)
{
    struct world_mpi *world = self;
    MPI_Request request;

    if (world->damaged)
        return KVF_E_WORLD;
    if (MPI_Ibarrier(world->parts[WORLD_ALL], &request) != MPI_SUCCESS)
        return KVF_E_MPI;
    return world_wait(world, &request, deadline_ns);
}

static void world_mpi_set_timeout(void *self, uint32_t timeout_ms)
{
    struct world_mpi *world = self;

    world->timeout_ms = timeout_ms;
}

static void world_mpi_set_idle(void *self, bool (*idle)(void *idle_self), void *idle_self)
{
    struct world_mpi *world = self;

    world->idle = idle;
    world->idle_self = idle_self;
}

/* ---- gather --------------------------------------------------------------------------------- */

/* Scratch of one gather; leaked on purpose when the collective did not end. */
struct world_gather {
    uint64_t len;
    uint64_t *lens;
    int *counts;
    int *displacements;
};

static enum kvf_status world_gather_lens(struct world_mpi *world, MPI_Comm comm, uint32_t count,
                                         struct world_gather *gather, struct world_gathered *out)
{
    MPI_Request request;
    enum kvf_status status;

    if (MPI_Iallgather(&gather->len, 1, MPI_UINT64_T, gather->lens, 1, MPI_UINT64_T, comm,
                       &request) != MPI_SUCCESS)
        return KVF_E_MPI;
    status = world_wait(world, &request, world_deadline(world));
    if (status != KVF_OK)
        return status;
    for (uint32_t r = 0; r < count; r++) {
        if (gather->lens[r] > INT_MAX || out->offsets[r] + gather->lens[r] > INT_MAX)
            return KVF_E_TOO_LARGE;
        gather->counts[r] = (int)gather->lens[r];
        gather->displacements[r] = (int)out->offsets[r];
        out->offsets[r + 1] = out->offsets[r] + (size_t)gather->lens[r];
    }
    return KVF_OK;
}

static enum kvf_status world_gather_bytes(struct world_mpi *world, MPI_Comm comm, const void *bytes,
                                          const struct world_gather *gather,
                                          struct world_gathered *out)
{
    MPI_Request request;

    if (MPI_Iallgatherv(bytes, (int)gather->len, MPI_BYTE, out->bytes, gather->counts,
                        gather->displacements, MPI_BYTE, comm, &request) != MPI_SUCCESS)
        return KVF_E_MPI;
    return world_wait(world, &request, world_deadline(world));
}

static enum kvf_status world_mpi_gather(void *self, enum world_part part, const void *bytes,
                                        size_t len_bytes, struct world_gathered *out)
{
    struct world_mpi *world = self;
    MPI_Comm comm = world->parts[part];
    struct world_gathered got = {.heap = world->heap};
    struct world_gather *gather;
    enum kvf_status status = KVF_E_NOMEM;
    int ranks;

    if (world->damaged || comm == MPI_COMM_NULL)
        return KVF_E_WORLD;
    if (MPI_Comm_size(comm, &ranks) != MPI_SUCCESS)
        return KVF_E_MPI;
    got.count = (uint32_t)ranks;
    gather = kvf_alloc(world->heap, 1, sizeof(*gather));
    if (gather == NULL)
        return KVF_E_NOMEM;
    world->rolling = true;
    gather->len = len_bytes;
    gather->lens = kvf_alloc(world->heap, got.count, sizeof(*gather->lens));
    gather->counts = kvf_alloc(world->heap, got.count, sizeof(*gather->counts));
    gather->displacements = kvf_alloc(world->heap, got.count, sizeof(*gather->displacements));
    got.offsets = kvf_alloc(world->heap, (size_t)got.count + 1, sizeof(*got.offsets));
    if (gather->lens != NULL && gather->counts != NULL && gather->displacements != NULL &&
        got.offsets != NULL)
        status = world_gather_lens(world, comm, got.count, gather, &got);
    if (status == KVF_OK) {
        got.bytes = kvf_alloc(world->heap, got.offsets[got.count] + 1, 1);
        status =
            got.bytes == NULL ? KVF_E_NOMEM : world_gather_bytes(world, comm, bytes, gather, &got);
    }
    world->rolling = false;
    if (world->damaged)
        return status; /* MPI may still write into all of it */
    kvf_release(world->heap, gather->displacements);
    kvf_release(world->heap, gather->counts);
    kvf_release(world->heap, gather->lens);
    kvf_release(world->heap, gather);
    if (status != KVF_OK) {
        world_gathered_free(&got);
        return status;
    }
    *out = got;
    return KVF_OK;
}

/* ---- parts ---------------------------------------------------------------------------------- */

static enum kvf_status world_mpi_split(void *self, const struct world_colours *colours)
{
    struct world_mpi *world = self;

    for (unsigned part = WORLD_SIDE; part <= WORLD_PP; part++) {
        enum kvf_status status;

        world->rolling = true;
        status = world_mpi_barrier(world, world_deadline(world));
        world->rolling = false;
        if (status != KVF_OK)
            return status;
        if (MPI_Comm_split(world->parts[WORLD_ALL], (int)colours->of[part], (int)world->table.rank,
                           &world->parts[part]) != MPI_SUCCESS) {
            world->parts[part] = MPI_COMM_NULL;
            return KVF_E_MPI;
        }
        status = world_mpi_status(MPI_Comm_set_errhandler(world->parts[part], MPI_ERRORS_RETURN));
        if (status != KVF_OK)
            return status;
    }
    return KVF_OK;
}

/* The node's communicator and the word in which its ranks count their pools together. */
static enum kvf_status world_open_node(struct world_mpi *world)
{
    void *base = NULL;
    MPI_Aint bytes;
    int rank, ranks, unit;

    if (MPI_Comm_split_type(world->parts[WORLD_ALL], MPI_COMM_TYPE_SHARED, (int)world->table.rank,
                            MPI_INFO_NULL, &world->parts[WORLD_NODE]) != MPI_SUCCESS) {
        world->parts[WORLD_NODE] = MPI_COMM_NULL;
        return KVF_E_MPI;
    }
    if (MPI_Comm_set_errhandler(world->parts[WORLD_NODE], MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        MPI_Comm_rank(world->parts[WORLD_NODE], &rank) != MPI_SUCCESS ||
        MPI_Comm_size(world->parts[WORLD_NODE], &ranks) != MPI_SUCCESS)
        return KVF_E_MPI;
    world->table.node_rank = (uint32_t)rank;
    world->table.node_rank_count = (uint32_t)ranks;
    if (MPI_Win_allocate_shared(rank == 0 ? (MPI_Aint)sizeof(uint64_t) : 0, 1, MPI_INFO_NULL,
                                world->parts[WORLD_NODE], (void *)&base,
                                &world->node_window) != MPI_SUCCESS) {
        world->node_window = MPI_WIN_NULL;
        return KVF_OK; /* each rank counts alone */
    }
    if (MPI_Win_shared_query(world->node_window, 0, &bytes, &unit, (void *)&base) != MPI_SUCCESS ||
        bytes < (MPI_Aint)sizeof(uint64_t) || base == NULL)
        return KVF_OK;
    world->table.node_bytes = base;
    if (rank == 0)
        atomic_store(world->table.node_bytes, 0);
    return KVF_OK;
}

/* More ranks of this world on this node than cores that this one may use. */
static bool world_crowded(const struct world_mpi *world)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof(cores), &cores) == 0 &&
           world->table.node_rank_count > (uint32_t)CPU_COUNT(&cores);
}

/* A duplicate, so that no other collective of this program can ever match one of the sweep's. */
static enum kvf_status world_mpi_open_collective(void *self, enum world_part part, uint32_t slots,
                                                 size_t len_max_bytes, struct collective **out)
{
    struct world_mpi *world = self;
    struct collective_mpi_params params = {
        .heap = world->heap,
        .slots = slots,
        .len_max_bytes = len_max_bytes,
        .crowded = world_crowded(world),
    };
    MPI_Request request;
    enum kvf_status status;

    if (world->damaged || world->parts[part] == MPI_COMM_NULL || world->agreement != MPI_COMM_NULL)
        return KVF_E_WORLD;
    if (MPI_Comm_idup(world->parts[part], &world->agreement, &request) != MPI_SUCCESS)
        return KVF_E_MPI;
    world->rolling = true;
    status = world_wait(world, &request, world_deadline(world));
    world->rolling = false;
    if (status == KVF_OK)
        status = world_mpi_status(MPI_Comm_set_errhandler(world->agreement, MPI_ERRORS_RETURN));
    params.comm = world->agreement;
    return status == KVF_OK ? collective_mpi_open(&params, out) : status;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void world_mpi_close(void *self, bool clean)
{
    struct world_mpi *world = self;

    if (!clean || world->damaged)
        return; /* MPI may still write into what we hold, and freeing may wait for a dead rank */
    if (world->node_window != MPI_WIN_NULL)
        MPI_Win_free(&world->node_window);
    if (world->agreement != MPI_COMM_NULL)
        MPI_Comm_free(&world->agreement);
    for (unsigned part = WORLD_PART_COUNT; part-- > 0;)
        if (world->parts[part] != MPI_COMM_NULL)
            MPI_Comm_free(&world->parts[part]);
    kvf_release(world->heap, world->came);
    kvf_release(world->heap, world);
}

/* What the MPI library must grant, found on this rank; all ranks then agree on it. */
static void world_check_threads(struct world *table)
{
    int level = MPI_THREAD_SINGLE, is_main = 0;

    if (MPI_Query_thread(&level) != MPI_SUCCESS || MPI_Is_thread_main(&is_main) != MPI_SUCCESS) {
        table->trouble = KVF_E_MPI;
        snprintf(table->trouble_text, sizeof(table->trouble_text), "MPI_Query_thread failed");
    } else if (level < MPI_THREAD_FUNNELED) {
        table->trouble = KVF_E_THREAD_LEVEL;
        snprintf(table->trouble_text, sizeof(table->trouble_text),
                 "MPI was initialised with MPI_THREAD_SINGLE; want MPI_THREAD_FUNNELED or more: "
                 "call MPI_Init_thread");
    } else if (!is_main && level < MPI_THREAD_SERIALIZED) {
        table->trouble = KVF_E_THREAD_LEVEL;
        snprintf(table->trouble_text, sizeof(table->trouble_text),
                 "with MPI_THREAD_FUNNELED the thread that initialised MPI must open kvferry");
    }
}

static enum kvf_status world_dup(struct world_mpi *world, MPI_Comm comm)
{
    MPI_Request request;
    enum kvf_status status;
    int rank, ranks;

    if (MPI_Comm_idup(comm, &world->parts[WORLD_ALL], &request) != MPI_SUCCESS)
        return KVF_E_MPI;
    status = world_wait(world, &request, world_deadline(world));
    if (status != KVF_OK)
        return status;
    if (MPI_Comm_set_errhandler(world->parts[WORLD_ALL], MPI_ERRORS_RETURN) != MPI_SUCCESS ||
        MPI_Comm_rank(world->parts[WORLD_ALL], &rank) != MPI_SUCCESS ||
        MPI_Comm_size(world->parts[WORLD_ALL], &ranks) != MPI_SUCCESS)
        return KVF_E_MPI;
    world->table.rank = (uint32_t)rank;
    world->table.rank_count = (uint32_t)ranks;
    world->came = kvf_alloc(world->heap, (size_t)ranks, sizeof(*world->came));
    return world->came == NULL ? KVF_E_NOMEM : KVF_OK;
}

static enum kvf_status world_mpi_open(MPI_Comm comm, struct world **world_out)
{
    const struct kvf_heap *heap = kvf_heap_system();
    struct world_mpi *world = kvf_alloc(heap, 1, sizeof(*world));
    enum kvf_status status;

    if (world == NULL)
        return KVF_E_NOMEM;
    world->heap = heap;
    world->timeout_ms = WORLD_TIMEOUT_MS;
    world->node_window = MPI_WIN_NULL;
    world->agreement = MPI_COMM_NULL;
    for (unsigned part = 0; part < WORLD_PART_COUNT; part++)
        world->parts[part] = MPI_COMM_NULL;
    world->table = (struct world){
        .size = sizeof(world->table),
        .self = world,
        .set_timeout = world_mpi_set_timeout,
        .set_idle = world_mpi_set_idle,
        .split = world_mpi_split,
        .gather = world_mpi_gather,
        .open_collective = world_mpi_open_collective,
        .barrier = world_mpi_barrier,
        .close = world_mpi_close,
    };
    status = world_dup(world, comm);
    if (status == KVF_OK)
        status = world_mpi_barrier(world, world_deadline(world));
    if (status == KVF_OK)
        status = world_open_node(world);
    if (status != KVF_OK) {
        log_error(NULL, "", "cannot duplicate the communicator within %u ms: %s",
                  (unsigned)WORLD_TIMEOUT_MS, kvf_status_text(status));
        world_mpi_close(world, status != KVF_E_WORLD);
        return status;
    }
    world_check_threads(&world->table);
    *world_out = &world->table;
    return KVF_OK;
}

static enum kvf_status world_open_transport(void *self, const struct context_transport *want,
                                            struct transport **transport_out, char *reason_out)
{
    const struct transport_ucx_params params = {
        .heap = want->heap,
        .logger = want->logger,
        .rank = want->rank,
        .peers_max = want->rank_count,
    };

    (void)self;
    return transport_ucx_open(&params, transport_out, reason_out);
}

enum kvf_status kvf_open_mpi(MPI_Comm comm, const struct kvf_open_params *params,
                             struct kvf **kvf_out)
{
    struct context_outside outside = {
        .open_transport = world_open_transport,
        .refine_topo = topo_hwloc,
    };
    int initialized = 0, finalized = 0;
    enum kvf_status status;

    if (comm == MPI_COMM_NULL || params == NULL || kvf_out == NULL)
        return KVF_E_INVAL;
    if (MPI_Initialized(&initialized) != MPI_SUCCESS || MPI_Finalized(&finalized) != MPI_SUCCESS ||
        !initialized || finalized) {
        log_error(NULL, "", "MPI is not initialised, or has ended");
        return KVF_E_MPI;
    }
    status = world_mpi_open(comm, &outside.world);
    if (status != KVF_OK)
        return status;
    return context_open(&outside, params, kvf_out); /* takes the world */
}
