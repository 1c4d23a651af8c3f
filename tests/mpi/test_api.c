/*
 * test_api.c - the public calls over MPI and UCX, driven by a small engine that has MPI traffic of
 * its own on the same communicator. Every rank notes what goes wrong on it; one reduction at the
 * end.
 *
 *   test_api [SCENARIO]    all scenarios, or the one named
 */
#include <malloc.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvferry/kvferry_mpi.h>

#include "checks.h"
#include "tiny_engine.h"

#define REQUESTS 24u
#define DEADLINE_S 60.0

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- open and close ------------------------------------------------------------------------- */

static const char *topology_text(void)
{
    switch (world_size) {
    case 2:
        return "ctx tp=1; gen tp=1";
    case 4:
        return "ctx tp=1 pp=2; gen tp=2";
    case 8:
        return "ctx tp=2 pp=2; gen tp=4";
    default:
        return NULL;
    }
}

struct world_of_test {
    struct kvf_topology *topology;
    struct kvf *kvf;
    struct tiny_engine engine;
    struct kvf_end other;
};

struct setup {
    const char *settings;
    struct tiny_params tiny;
    uint32_t requests_max;
};

static bool setup(struct world_of_test *w, const struct setup *want)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    char text[256] = "";
    enum kvf_status status = kvf_topology_parse(topology_text(), &w->topology, text, sizeof(text));

    CHECK(status == KVF_OK);
    params.topology = w->topology;
    params.settings_text = want->settings;
    params.requests_max = want->requests_max;
    status = kvf_open_mpi(MPI_COMM_WORLD, &params, &w->kvf);
    CHECK(status == KVF_OK);
    if (status != KVF_OK)
        return false;
    status = tiny_open(&w->engine, w->kvf, w->topology, &want->tiny);
    CHECK(status == KVF_OK);
    w->other = (struct kvf_end){w->engine.rank.side == KVF_CONTEXT ? 1 : 0, 0};
    return status == KVF_OK;
}

static void teardown(struct world_of_test *w)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    CHECK(kvf_counters(w->kvf, &counters) == KVF_OK);
    CHECK(counters.unexpected_events == 0);
    CHECK(counters.messages_dropped == 0);
    CHECK(counters.allocations_after_ready == 0);
    CHECK(kvf_close(w->kvf, 5000) == KVF_OK);
    tiny_close(&w->engine);
    kvf_topology_free(w->topology);
}

/* ---- running requests ------------------------------------------------------------------------ */

static struct tiny_request request_of(uint64_t base, uint32_t index)
{
    return (struct tiny_request){
        .rid = base + index,
        .prompt_tokens = 5 + index % 7 * 3,
        .cached_tokens = index % 3 == 0 ? 4 : 0,
        .slot_first = index * 8,
    };
}

/* The engine's own MPI traffic on the communicator it gave to kvferry. */
static void own_traffic(uint32_t round)
{
    int to = (world_rank + 1) % world_size, from = (world_rank + world_size - 1) % world_size;
    int out = world_rank * 1000 + (int)round, in = -1, sum = 0, one = 1;
    MPI_Request sends;

    MPI_Isend(&out, 1, MPI_INT, to, (int)round, MPI_COMM_WORLD, &sends);
    MPI_Recv(&in, 1, MPI_INT, from, (int)round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sends, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(in == from * 1000 + (int)round);
    CHECK(sum == world_size);
}

struct tally {
    uint32_t ready, sent, asked, failed, cancelled, released;
    enum kvf_status last;
};

static void tally_events(struct world_of_test *w, struct tally *tally)
{
    struct kvf_event events[16];
    uint32_t count = tiny_sweep(&w->engine, events, 16);

    for (uint32_t e = 0; e < count; e++) {
        switch (events[e].kind) {
        case KVF_EVENT_ASKED:
            tally->asked++;
            break;
        case KVF_EVENT_SENT:
            tally->sent++;
            break;
        case KVF_EVENT_READY:
            tally->ready++;
            break;
        case KVF_EVENT_FAILED:
            tally->failed++;
            tally->last = events[e].status;
            break;
        case KVF_EVENT_CANCELLED:
            tally->cancelled++;
            tally->last = events[e].status;
            break;
        case KVF_EVENT_RELEASED:
        case KVF_EVENT_RELEASED_LOCAL:
            tally->released++;
            break;
        }
    }
    kvf_progress(w->kvf); /* E_STATE with a thread */
}

static bool run_until_released(struct world_of_test *w, struct tally *tally, uint32_t count)
{
    double end = now_s() + DEADLINE_S;

    while (tally->released < count) {
        tally_events(w, tally);
        if (now_s() > end) {
            kvf_dump(w->kvf, stderr);
            return false;
        }
    }
    return true;
}

/* REQUESTS transfers, all open at once, bytes compared. */
static void transfers(struct world_of_test *w, uint64_t base, bool traffic)
{
    struct tally tally = {0};

    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct tiny_request request = request_of(base, i);

        CHECK(tiny_request_open(&w->engine, &request, w->other) == KVF_OK);
        if (w->engine.rank.side == KVF_CONTEXT)
            CHECK(tiny_request_ready(&w->engine, request.rid) == KVF_OK);
        if (traffic)
            own_traffic(i);
    }
    CHECK(run_until_released(w, &tally, REQUESTS));
    CHECK(tally.failed == 0 && tally.cancelled == 0);
    CHECK(w->engine.rank.side == KVF_CONTEXT ? tally.sent == REQUESTS : tally.ready == REQUESTS);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct tiny_request request = request_of(base, i);

        CHECK(tiny_request_bad(&w->engine, &request) == 0);
    }
}

static void check_path(struct world_of_test *w, enum kvf_path path)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    if (w->engine.rank.side != KVF_CONTEXT)
        return;
    CHECK(kvf_counters(w->kvf, &counters) == KVF_OK);
    for (unsigned p = KVF_PATH_MAPPED; p < KVF_PATH_COUNT; p++)
        CHECK((counters.path_writes[p] > 0) == (p == (unsigned)path));
}

static void success(const char *settings, bool registered, enum kvf_path path)
{
    struct world_of_test w = {0};
    const struct setup want = {settings, {.slots = 256, .registered = registered, .aux = true}, 0};

    if (!setup(&w, &want))
        return;
    transfers(&w, 1000, true);
    MPI_Barrier(MPI_COMM_WORLD);
    transfers(&w, 2000, false);
    check_path(&w, path);
    teardown(&w);
}

static void scenario_thread(void)
{
    success("all:\n  progress: thread\n", false, KVF_PATH_MAPPED);
}

static void scenario_caller(void)
{
    success("all:\n  progress: caller\n", false, KVF_PATH_MAPPED);
}

static void scenario_direct(void)
{
    success("all:\n  path: direct\n", false, KVF_PATH_DIRECT);
}

static void scenario_self_check(void)
{
    success("all:\n  self_check: true\n", false, KVF_PATH_MAPPED);
    success("all:\n  self_check: true\n  path: direct\n", false, KVF_PATH_DIRECT);
}

static void scenario_registered(void)
{
    success(NULL, true, KVF_PATH_DIRECT);
}

/* ---- answers of the calls themselves -------------------------------------------------------- */

static void scenario_answers(void)
{
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 4};
    struct tally tally = {0};

    if (!setup(&w, &want))
        return;
    CHECK(kvf_cancel(w.kvf, 77) == KVF_E_NOTFOUND);
    CHECK(tiny_request_ready(&w.engine, 77) ==
          (w.engine.rank.side == KVF_CONTEXT ? KVF_E_NOTFOUND : KVF_E_STATE));
    for (uint32_t i = 0; i < 4; i++) {
        struct tiny_request request = request_of(100, i);

        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_E_EXISTS);
    }
    {
        struct tiny_request request = request_of(100, 4);

        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_BUSY);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (w.engine.rank.side == KVF_CONTEXT)
        for (uint32_t i = 0; i < 4; i++)
            CHECK(tiny_request_ready(&w.engine, 100 + i) == KVF_OK);
    CHECK(run_until_released(&w, &tally, 4));
    CHECK(tally.ready + tally.sent == 4);
    CHECK(kvf_cancel(w.kvf, 100) == KVF_OK); /* it has ended */
    {
        struct tiny_request request = request_of(100, 0);

        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_E_EXISTS);
    }
    teardown(&w);
}

static enum kvf_status open_with(struct world_of_test *w, const struct kvf_block_list *list)
{
    struct kvf_block_list lists[8];

    for (uint32_t g = 0; g < w->engine.layout->group_count; g++)
        lists[g] = *list;
    if (w->engine.rank.side == KVF_CONTEXT) {
        struct kvf_send_params params = KVF_SEND_PARAMS_INIT;

        params.rid = 300;
        params.prompt_tokens = 3 * TINY_BLOCK - 2;
        params.destination = w->other;
        params.list_count = w->engine.layout->group_count;
        params.lists = lists;
        return kvf_send_open(w->kvf, &params);
    }
    struct kvf_recv_params params = KVF_RECV_PARAMS_INIT;

    params.rid = 300;
    params.prompt_tokens = 3 * TINY_BLOCK - 2;
    params.source = w->other;
    params.list_count = w->engine.layout->group_count;
    params.lists = lists;
    return kvf_recv_open(w->kvf, &params);
}

/* Lists that cannot be meant: answered by the call, and nothing is left behind. */
static void scenario_lists(void)
{
    static const uint32_t slots[3] = {5, 6, 7}, twice[3] = {5, 6, 5}, far[3] = {5, 6, 9999};
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 0};

    if (!setup(&w, &want))
        return;
    CHECK(open_with(&w, &(struct kvf_block_list){0, 3, NULL}) == KVF_E_INVAL);
    CHECK(open_with(&w, &(struct kvf_block_list){UINT32_MAX, 3, slots}) == KVF_E_REQ_PIECE);
    CHECK(open_with(&w, &(struct kvf_block_list){0, 3, far}) == KVF_E_REQ_SLOT);
    if (w.engine.rank.side == KVF_GENERATION) {
        CHECK(open_with(&w, &(struct kvf_block_list){0, 3, twice}) == KVF_E_REQ_SLOT_TWICE);
        CHECK(open_with(&w, &(struct kvf_block_list){0, 2, slots}) == KVF_E_REQ_PIECE);
        CHECK(open_with(&w, &(struct kvf_block_list){1, 2, slots}) == KVF_E_REQ_PIECE);
        CHECK(open_with(&w, &(struct kvf_block_list){7, 3, slots}) == KVF_E_REQ_PIECE);
        CHECK(open_with(&w, &(struct kvf_block_list){0, 0, NULL}) == KVF_E_REQ_PIECE);
    }
    transfers(&w, 9100, false);
    teardown(&w);
}

/* A cancel of either side ends a request on both. */
static void scenario_cancel(void)
{
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 0};

    if (!setup(&w, &want))
        return;
    for (uint32_t side = 0; side < 2; side++) {
        struct tiny_request request = request_of(500 + side, 0);
        struct tally tally = {0};

        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
        MPI_Barrier(MPI_COMM_WORLD);
        if ((uint32_t)w.engine.rank.side == side)
            CHECK(kvf_cancel(w.kvf, request.rid) == KVF_OK);
        CHECK(run_until_released(&w, &tally, 1));
        CHECK(tally.cancelled + tally.failed == 1);
        CHECK(tally.last == KVF_E_CANCELLED || tally.last == KVF_E_PEER_CANCELLED);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    transfers(&w, 9000, false);
    teardown(&w);
}

static void scenario_wait(void)
{
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 0};
    struct tiny_request request = request_of(600, 1), late = request_of(610, 2);
    struct tally tally = {0};
    struct kvf_event event;

    if (!setup(&w, &want))
        return;
    request.synchronous = late.synchronous = true;
    CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
    if (w.engine.rank.side == KVF_CONTEXT) {
        CHECK(tiny_request_ready(&w.engine, request.rid) == KVF_OK);
        CHECK(run_until_released(&w, &tally, 1));
    } else {
        CHECK(kvf_wait(w.kvf, 12345, 10, &event) == KVF_E_NOTFOUND);
        CHECK(kvf_wait(w.kvf, request.rid, 20000, &event) == KVF_OK);
        CHECK(event.kind == KVF_EVENT_READY && event.rid == request.rid);
        CHECK(tiny_request_bad(&w.engine, &request) == 0);
        CHECK(tiny_request_open(&w.engine, &late, w.other) == KVF_OK);
        CHECK(kvf_wait(w.kvf, late.rid, 100, &event) == KVF_OK); /* nobody sends it */
        /* Or the cancel of another rank that gave up first. */
        CHECK((event.kind == KVF_EVENT_FAILED && event.status == KVF_E_TIMEOUT) ||
              (world_size > 2 && event.status == KVF_E_PEER_CANCELLED));
        CHECK(run_until_released(&w, &tally, 2));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    teardown(&w);
}

/* Live requests at close are ended by it. */
static void scenario_close_live(void)
{
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 0};
    struct tiny_request request = request_of(700, 3);

    if (!setup(&w, &want))
        return;
    CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
    CHECK(kvf_close(w.kvf, 50) == KVF_OK);
    tiny_close(&w.engine);
    kvf_topology_free(w.topology);
}

/* ---- starts that fail ----------------------------------------------------------------------- */

static void scenario_refusals(void)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    struct kvf_topology *topology = NULL;
    struct kvf *kvf = NULL;
    char text[64];
    double start = now_s();

    snprintf(text, sizeof(text), "ctx tp=%d; gen tp=1", world_size);
    CHECK(kvf_topology_parse(text, &topology, NULL, 0) == KVF_OK);
    params.topology = topology;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_E_TOPOLOGY);
    CHECK(now_s() - start < 2.0);
    kvf_topology_free(topology);
    CHECK(kvf_topology_parse(topology_text(), &topology, NULL, 0) == KVF_OK);
    params.topology = topology;
    params.settings_text = "all:\n  direct_widow: 3\n";
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_E_CONFIG);
    params.settings_text = NULL;
    if (world_rank == world_size - 1)
        setenv("KVF_DIRECT_WINDOW", "3", 1);
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_E_CONFIG);
    unsetenv("KVF_DIRECT_WINDOW");
    params.beam_width = 2;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_E_UNSUPPORTED);
    kvf_topology_free(topology);
}

static char missing_line[512];

static void keep_missing(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    (void)self;
    (void)level;
    (void)event;
    if (strstr(text, "did not come") != NULL)
        snprintf(missing_line, sizeof(missing_line), "%s", text);
}

/* Only when named: the last rank stays away from publishing; all others name it. */
static void scenario_missing(void)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    struct kvf_topology *topology = NULL;
    const struct tiny_params tiny = {.slots = 16};
    struct tiny_engine engine;
    struct kvf *kvf = NULL;
    char want[64];

    CHECK(kvf_topology_parse(topology_text(), &topology, NULL, 0) == KVF_OK);
    params.topology = topology;
    params.settings_text = "all:\n  connect_timeout_ms: 500\n  finalize_step_ms: 100\n";
    params.log = keep_missing;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_OK);
    if (world_rank != world_size - 1 && kvf != NULL) {
        CHECK(tiny_open(&engine, kvf, topology, &tiny) == KVF_E_WORLD);
        snprintf(want, sizeof(want), "did not come: world ranks %d", world_size - 1);
        CHECK(strstr(missing_line, want) != NULL);
        printf("[%d] %s\n", world_rank, missing_line);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("%s\n", failures == 0 ? "named the missing rank" : "FAILED");
    fflush(stdout);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Abort(MPI_COMM_WORLD, failures == 0 ? 42 : 1); /* the library's collective cannot end */
}

/* A rank whose geometry does not fit the others: its requests fail, and say why. */
static void scenario_incompatible(void)
{
    struct world_of_test w = {0};
    struct setup want = {NULL, {.slots = 64}, 0};
    struct tiny_request request = request_of(800, 0);
    struct tally tally = {0};

    if (world_rank >= world_size / 2)
        want.tiny.head_dim = 16;
    if (!setup(&w, &want))
        return;
    if (w.engine.rank.side == KVF_GENERATION) {
        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
        CHECK(run_until_released(&w, &tally, 1));
        CHECK(tally.failed == 1 && tally.last == KVF_E_HEAD_DIM);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    teardown(&w);
}

static void scenario_pool_too_big(void)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    struct kvf_pool_params pool = KVF_POOL_PARAMS_INIT;
    struct kvf_topology *topology = NULL;
    struct kvf_pool *pools[1] = {NULL};
    struct kvf_layout layout = {.tokens_per_block = 4};
    struct kvf *kvf = NULL;
    enum kvf_status status;

    CHECK(kvf_topology_parse(topology_text(), &topology, NULL, 0) == KVF_OK);
    params.topology = topology;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_OK);
    pool.slot_bytes = 1ull << 30;
    pool.slots = 1u << 20;
    if (world_rank == world_size - 1) {
        status = kvf_pool_alloc(kvf, &pool, &pools[0]);
        CHECK(status == KVF_E_MEM_SPACE || status == KVF_E_SHM_SPACE);
    }
    status = kvf_publish(kvf, &layout, pools); /* all ranks learn of it */
    CHECK(status == KVF_E_MEM_SPACE || status == KVF_E_SHM_SPACE);
    CHECK(kvf_close(kvf, 1000) == KVF_OK);
    kvf_topology_free(topology);
}

/* ---- leaks and levels ----------------------------------------------------------------------- */

static long resident_kib(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long size = 0, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld %ld", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What so many opens and closes add to this process. */
static long reopen_growth_kib(int opens)
{
    const struct setup want = {
        "all:\n  requests_max: 64\n  tombstones_max: 64\n  log_level: warn\n", {.slots = 256}, 0};
    long before = 0;

    for (int i = 0; i < opens; i++) {
        struct world_of_test w = {0};

        if (i == opens / 2)
            before = resident_kib();
        if (!setup(&w, &want))
            return 0; /* noted there */
        if (i % 5 == 0)
            transfers(&w, 1000, false);
        MPI_Barrier(MPI_COMM_WORLD);
        teardown(&w);
    }
    if (world_rank == 0)
        printf("%d opens: resident %ld KiB after half of them, %ld at the end\n", opens, before,
               resident_kib());
    return resident_kib() - before;
}

/* Memory that an allocator keeps for later grows once; what is lost grows every time. */
static void scenario_reopen(void)
{
    const char *text = getenv("TEST_API_OPENS");
    int opens = text == NULL ? 10 : atoi(text);
    int grew = 1, anywhere = 1;

    for (int turn = 0; turn < 3 && anywhere != 0; turn++) {
        long growth = reopen_growth_kib(opens);

        grew = growth >= 8 * 1024;
        if (grew != 0)
            printf("rank %d: %ld KiB more after %d opens\n", world_rank, growth, opens / 2);
        MPI_Allreduce(&grew, &anywhere, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    CHECK(grew == 0);
}

static void scenario_single(void)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    struct kvf_topology *topology = NULL;
    struct kvf *kvf = NULL;

    CHECK(kvf_topology_parse(topology_text(), &topology, NULL, 0) == KVF_OK);
    params.topology = topology;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &kvf) == KVF_E_THREAD_LEVEL);
    kvf_topology_free(topology);
}

/*
 * Only when named, and under a launcher that lets the others live: the last generation rank dies
 * while a request waits. The context ranks end theirs within the time of a heartbeat or two.
 */
static void scenario_killed(void)
{
    struct world_of_test w = {0};
    const struct setup want = {NULL, {.slots = 256}, 0};
    struct tiny_request request = request_of(700, 3);
    struct tally tally = {0};
    double start;

    if (!setup(&w, &want))
        return;
    CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank == world_size - 1)
        raise(SIGKILL);
    start = now_s();
    if (w.engine.rank.side == KVF_CONTEXT)
        CHECK(run_until_released(&w, &tally, 1));
    printf("[%d] ended after %.3f s: %s\n", world_rank, now_s() - start,
           kvf_status_text(tally.last));
    start = now_s();
    CHECK(kvf_close(w.kvf, 500) == KVF_E_WORLD);
    printf("[%d] closed after %.3f s\n", world_rank, now_s() - start);
    fflush(stdout);
    _exit(failures == 0 ? 0 : 1); /* MPI cannot end without the dead rank */
}

/* ---- main ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
    bool named; /* only when named */
} scenarios[] = {
    {"thread", scenario_thread, false},
    {"caller", scenario_caller, false},
    {"direct", scenario_direct, false},
    {"registered", scenario_registered, false},
    {"self_check", scenario_self_check, false},
    {"answers", scenario_answers, false},
    {"lists", scenario_lists, false},
    {"cancel", scenario_cancel, false},
    {"wait", scenario_wait, false},
    {"close_live", scenario_close_live, false},
    {"refusals", scenario_refusals, false},
    {"incompatible", scenario_incompatible, false},
    {"pool_too_big", scenario_pool_too_big, false},
    {"reopen", scenario_reopen, false},
    {"single", scenario_single, true},
    {"killed", scenario_killed, true},
    {"missing", scenario_missing, true},
};
#define SCENARIO_COUNT (sizeof(scenarios) / sizeof(scenarios[0]))

int main(int argc, char **argv)
{
    bool single = argc > 1 && strcmp(argv[1], "single") == 0;
    int provided, all = 0, ran = 0;

    /*
     * Each open has threads of its own, which would take turns on arenas and blur what is resident.
     */
    mallopt(M_ARENA_MAX, 1);
    MPI_Init_thread(&argc, &argv, single ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (topology_text() == NULL) {
        fprintf(stderr, "test_api wants 2, 4 or 8 ranks\n");
        MPI_Finalize();
        return 2;
    }
    for (unsigned s = 0; s < SCENARIO_COUNT; s++) {
        double start = now_s();
        int before = failures;

        if (argc > 1 ? strcmp(argv[1], scenarios[s].name) != 0 : scenarios[s].named)
            continue;
        scenarios[s].run();
        MPI_Barrier(MPI_COMM_WORLD);
        ran++;
        if (world_rank == 0)
            printf("%s %s %.2f s\n", failures == before ? "ok    " : "FAILED", scenarios[s].name,
                   now_s() - start);
        fflush(stdout);
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world_rank == 0)
        printf("%d scenarios, %d failures on all ranks\n", ran, all);
    MPI_Finalize();
    return all == 0 && ran > 0 ? 0 : 1;
}
