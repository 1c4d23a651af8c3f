/*
 * test_lifecycle.c - what an engine sees of requests that end badly, on real ranks: the order of
 * events, pages that stay lent, cancels at every moment, pieces, caps, and writers that are silent
 * because their process stands still. Every rank notes what goes wrong on it; one reduction at the
 * end.
 *
 *   test_lifecycle [SCENARIO]    all scenarios, or the one named
 */
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

#define DEADLINE_S 60.0
#define SEEN_MAX 512u /* never reset: a group may end a request before this rank opens it */
#define PIECE_TOKENS (4 * TINY_BLOCK)

static pid_t pids[64];

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- a world -------------------------------------------------------------------------------- */

/* Log lines that some scenario counts. */
static const char *const counted_lines[] = {"W19", "W36"};
enum { W19, W36, LINES };

static uint32_t cap_lines; /* W40 that names max_tokens_in_buffer */

struct seen {
    uint64_t rid;
    enum kvf_event_kind kind;
    enum kvf_status status;
};

struct world {
    struct kvf_topology *topology;
    struct kvf *kvf;
    struct tiny_engine engine;
    struct kvf_end other;
    bool is_context;
    struct seen seen[SEEN_MAX];
    uint32_t seen_count;
};

static uint32_t lines[LINES];

static void count_line(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    (void)self;
    for (int i = 0; i < LINES; i++)
        lines[i] += strcmp(event, counted_lines[i]) == 0;
    cap_lines += strcmp(event, "W40") == 0 && strstr(text, "max_tokens_in_buffer") != NULL;
    if (level == KVF_LOG_ERROR)
        fprintf(stderr, "[%d] %s %s\n", world_rank, event, text);
}

static bool world_open(struct world *w, const char *form, const char *settings,
                       const struct tiny_params *tiny)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    char text[256] = "";

    memset(w, 0, sizeof(*w));
    memset(lines, 0, sizeof(lines));
    cap_lines = 0;
    CHECK(kvf_topology_parse(form, &w->topology, text, sizeof(text)) == KVF_OK);
    params.topology = w->topology;
    params.settings_text = settings;
    params.log = count_line;
    CHECK(kvf_open_mpi(MPI_COMM_WORLD, &params, &w->kvf) == KVF_OK);
    if (w->kvf == NULL || tiny_open(&w->engine, w->kvf, w->topology, tiny) != KVF_OK) {
        failures++;
        return false;
    }
    w->is_context = w->engine.rank.side == KVF_CONTEXT;
    w->other = (struct kvf_end){w->is_context ? 1 : 0, 0};
    return true;
}

/* All writers of a reader, and all readers of a writer, in each pair of ranks. */
static const char *usual_form(void)
{
    return world_size == 2 ? "ctx; gen" : "ctx pp=2; gen tp=2";
}

/*
 * Readers that are groups of their own, of which world rank world_size / 2 is the one that is used:
 * a short kv_transfer_timeout_ms ends a group of several whose sweep is late by as much.
 */
static const char *lone_form(void)
{
    return world_size == 2 ? "ctx; gen" : "ctx pp=2; gen tp=2 adp";
}

/* One sweep; its events are remembered. */
static void world_step(struct world *w)
{
    struct kvf_event events[16];
    uint32_t count = tiny_sweep(&w->engine, events, 16);

    CHECK(w->seen_count + count <= SEEN_MAX);
    for (uint32_t e = 0; e < count && w->seen_count < SEEN_MAX; e++)
        w->seen[w->seen_count++] = (struct seen){events[e].rid, events[e].kind, events[e].status};
    kvf_progress(w->kvf); /* E_STATE with a thread */
}

/* A barrier that steps the library: in caller mode nobody else does. */
static void gather_here(struct world *w)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
        world_step(w);
}

static void world_close(struct world *w)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;
    uint64_t retained = 1;

    gather_here(w);
    CHECK(kvf_retained_blocks(w->kvf, &retained) == KVF_OK && retained == 0);
    CHECK(kvf_counters(w->kvf, &counters) == KVF_OK);
    CHECK(counters.unexpected_events == 0);
    CHECK(counters.messages_dropped == 0);
    CHECK(counters.stranded_blocks == 0);
    CHECK(counters.live_requests == 0);
    CHECK(kvf_close(w->kvf, 5000) == KVF_OK);
    tiny_close(&w->engine);
    kvf_topology_free(w->topology);
}

static uint32_t count_of(const struct world *w, uint64_t rid, enum kvf_event_kind kind)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < w->seen_count; i++)
        count += w->seen[i].rid == rid && w->seen[i].kind == kind;
    return count;
}

static const struct seen *outcome_of(const struct world *w, uint64_t rid)
{
    for (uint32_t i = 0; i < w->seen_count; i++)
        if (w->seen[i].rid == rid && w->seen[i].kind != KVF_EVENT_ASKED &&
            w->seen[i].kind != KVF_EVENT_RELEASED)
            return &w->seen[i];
    return NULL;
}

/* Sweeps until the request has this event. */
static bool await(struct world *w, uint64_t rid, enum kvf_event_kind kind)
{
    double end = now_s() + DEADLINE_S;

    while (count_of(w, rid, kind) == 0) {
        world_step(w);
        if (now_s() > end) {
            kvf_dump(w->kvf, stderr);
            failures++;
            return false;
        }
    }
    return true;
}

static bool await_outcome(struct world *w, uint64_t rid)
{
    double end = now_s() + DEADLINE_S;

    while (outcome_of(w, rid) == NULL && now_s() < end)
        world_step(w);
    CHECK(outcome_of(w, rid) != NULL);
    return outcome_of(w, rid) != NULL;
}

/* One outcome, then one release, and nothing after it. */
static void check_once(const struct world *w, uint64_t rid)
{
    uint32_t outcomes = 0, released = 0;

    for (uint32_t i = 0; i < w->seen_count; i++) {
        if (w->seen[i].rid != rid || w->seen[i].kind == KVF_EVENT_ASKED)
            continue;
        if (w->seen[i].kind == KVF_EVENT_RELEASED) {
            CHECK(outcomes == 1);
            released++;
        } else {
            CHECK(released == 0);
            outcomes++;
        }
    }
    CHECK(outcomes == 1 && released == 1);
}

static uint64_t retained_of(const struct world *w)
{
    uint64_t blocks = UINT64_MAX;

    CHECK(kvf_retained_blocks(w->kvf, &blocks) == KVF_OK);
    return blocks;
}

static uint64_t stranded_of(const struct world *w)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    CHECK(kvf_counters(w->kvf, &counters) == KVF_OK);
    return counters.stranded_blocks;
}

static struct tiny_request request_of(uint64_t rid, uint32_t tokens, uint32_t slot)
{
    return (struct tiny_request){.rid = rid, .prompt_tokens = tokens, .slot_first = slot};
}

static uint64_t blocks_of(const struct world *w, const struct tiny_request *request)
{
    return (uint64_t)w->engine.layout->group_count *
           ((request->prompt_tokens + TINY_BLOCK - 1) / TINY_BLOCK);
}

/* One request to its end; whether it went well. */
static bool transfer_goes_well(struct world *w, uint64_t rid, uint32_t slot)
{
    struct tiny_request request = request_of(rid, 17, slot);

    CHECK(tiny_request_open(&w->engine, &request, w->other) == KVF_OK);
    if (w->is_context)
        CHECK(tiny_request_ready(&w->engine, rid) == KVF_OK);
    if (!await(w, rid, KVF_EVENT_RELEASED))
        return false;
    check_once(w, rid);
    CHECK(outcome_of(w, rid)->status != KVF_OK || tiny_request_bad(&w->engine, &request) == 0);
    return outcome_of(w, rid)->status == KVF_OK;
}

/* A request that must go well, to its end. */
static void transfer(struct world *w, uint64_t rid, uint32_t slot)
{
    CHECK(transfer_goes_well(w, rid, slot));
}

/*
 * One of some requests goes well: with a short kv_transfer_timeout_ms a loaded machine may be too
 * slow for one. Ranks above `last` have no part in it. Thread mode.
 */
static void transfer_at_last(struct world *w, uint64_t rid, uint32_t slot, int last)
{
    int good = 0, all = 0;

    for (uint32_t attempt = 0; attempt < 10 && !all; attempt++) {
        good = world_rank > last || transfer_goes_well(w, rid + attempt, slot);
        MPI_Allreduce(&good, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    }
    CHECK(all);
}

/* ---- cancels at every moment ----------------------------------------------------------------- */

enum moment { AT_OPEN, WHEN_OTHER_OPEN, WHEN_READY_TO_SEND, AFTER_OUTCOME, AFTER_RELEASE, MOMENTS };

static void cancel_twice(struct world *w, uint64_t rid)
{
    CHECK(kvf_cancel(w->kvf, rid) == KVF_OK);
    CHECK(kvf_cancel(w->kvf, rid) == KVF_OK);
}

static void cancel_at(struct world *w, uint64_t rid, enum moment moment, bool mine)
{
    struct tiny_request request = request_of(rid, 30, (uint32_t)rid % 8 * 8);

    CHECK(kvf_cancel(w->kvf, rid) == KVF_E_NOTFOUND);
    if (moment == WHEN_OTHER_OPEN && mine)
        gather_here(w);
    CHECK(tiny_request_open(&w->engine, &request, w->other) == KVF_OK);
    CHECK(tiny_request_open(&w->engine, &request, w->other) == KVF_E_EXISTS);
    if (mine && (moment == AT_OPEN || moment == WHEN_OTHER_OPEN))
        cancel_twice(w, rid);
    if (moment == WHEN_OTHER_OPEN && !mine)
        gather_here(w);
    gather_here(w);      /* nothing is given to be read before both sides have opened it */
    if (w->is_context) { /* it may be over already */
        enum kvf_status status = tiny_request_ready(&w->engine, rid);

        CHECK(status == (count_of(w, rid, KVF_EVENT_RELEASED) > 0 ? KVF_E_NOTFOUND : KVF_OK));
    }
    if (mine && moment == WHEN_READY_TO_SEND)
        cancel_twice(w, rid);
    if (await_outcome(w, rid) && mine && moment == AFTER_OUTCOME)
        cancel_twice(w, rid);
    if (!await(w, rid, KVF_EVENT_RELEASED))
        return;
    if (mine && moment == AFTER_RELEASE)
        cancel_twice(w, rid);
    check_once(w, rid);
    switch (moment) {
    case AT_OPEN:
    case WHEN_OTHER_OPEN:
        /* The other side may have been done with it before it heard of the cancel. */
        if (!mine && outcome_of(w, rid)->status == KVF_OK)
            break;
        CHECK(outcome_of(w, rid)->kind == KVF_EVENT_CANCELLED);
        CHECK(outcome_of(w, rid)->status == KVF_E_CANCELLED ||
              outcome_of(w, rid)->status == KVF_E_PEER_CANCELLED);
        break;
    case WHEN_READY_TO_SEND: /* whichever came first */
        break;
    case AFTER_OUTCOME:
    case AFTER_RELEASE:
        CHECK(outcome_of(w, rid)->status == KVF_OK);
        CHECK(tiny_request_bad(&w->engine, &request) == 0);
        break;
    case MOMENTS:
        break;
    }
}

static void scenario_cancel(void)
{
    static const char *const settings[] = {"all:\n  progress: thread\n",
                                           "all:\n  progress: caller\n  path: direct\n"};
    const struct tiny_params tiny = {.slots = 128, .aux = true};

    for (int s = 0; s < 2; s++) {
        struct world w;

        if (!world_open(&w, usual_form(), settings[s], &tiny))
            return;
        for (uint32_t moment = 0; moment < MOMENTS; moment++)
            for (uint32_t side = 0; side < 2; side++) {
                cancel_at(&w, 100 + moment * 2 + side, (enum moment)moment,
                          (uint32_t)w.engine.rank.side == side);
                gather_here(&w);
            }
        CHECK(kvf_cancel(w.kvf, 999) == KVF_E_NOTFOUND);
        transfer(&w, 500, 100);
        world_close(&w);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

struct piece {
    uint32_t token_first, token_end, layer_first, layer_end;
};

static enum kvf_status send_piece(struct world *w, uint64_t rid, const struct piece *piece,
                                  bool last)
{
    struct kvf_window window = KVF_WINDOW_INIT;

    window.token_first = piece->token_first;
    window.token_end = piece->token_end;
    window.layer_first = piece->layer_first;
    window.layer_end = piece->layer_end;
    window.last = last;
    return kvf_send_blocks(w->kvf, rid, &window);
}

/* Parts of tokens and of layers, in any order; the calls refuse what does not fit. */
static void scenario_pieces(void)
{
    static const struct piece pieces[] = {{PIECE_TOKENS, 0, 2, 4},
                                          {0, PIECE_TOKENS, 0, 4},
                                          {PIECE_TOKENS, 2 * PIECE_TOKENS, 0, 2},
                                          {2 * PIECE_TOKENS, 0, 0, 2}};
    static const uint8_t orders[][4] = {{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}};
    const struct tiny_params tiny = {.slots = 128, .aux = true};
    struct world w;

    if (!world_open(&w, usual_form(), "all:\n  enable_pipelined_transfer: true\n", &tiny))
        return;
    for (uint32_t o = 0; o < 3; o++) {
        struct tiny_request request = request_of(200 + o, 2 * PIECE_TOKENS + 5, o * 16);

        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
        for (uint32_t p = 0; w.is_context && p < 4; p++) {
            CHECK(send_piece(&w, request.rid, &pieces[orders[o][p]], p == 3) == KVF_OK);
            CHECK(p == 3 || send_piece(&w, request.rid, &pieces[orders[o][p]], false) ==
                                KVF_E_REQ_PIECE); /* twice */
            CHECK(p >= 2 || send_piece(&w, request.rid, &pieces[orders[o][p + 1]], true) ==
                                KVF_E_REQ_PIECE); /* not the whole */
        }
        if (w.is_context)
            CHECK(send_piece(&w, request.rid, &pieces[0], true) == KVF_E_STATE);
        if (await(&w, request.rid, KVF_EVENT_RELEASED)) {
            CHECK(outcome_of(&w, request.rid)->status == KVF_OK);
            CHECK(tiny_request_bad(&w.engine, &request) == 0);
            check_once(&w, request.rid);
        }
    }
    world_close(&w);
}

/* ---- max_tokens_in_buffer -------------------------------------------------------------------- */

static enum kvf_status open_sized(struct world *w, uint64_t rid, uint32_t tokens, bool synchronous)
{
    struct tiny_request request = request_of(rid, tokens, (uint32_t)rid % 8 * 16);

    request.synchronous = synchronous;
    return tiny_request_open(&w->engine, &request, w->other);
}

/* Ends a request that both sides have open. */
static void finish(struct world *w, uint64_t rid, bool synchronous)
{
    struct kvf_event event;

    if (w->is_context)
        CHECK(tiny_request_ready(&w->engine, rid) == KVF_OK);
    /* A sweep for an earlier one may have brought it already. */
    if (!w->is_context && synchronous && outcome_of(w, rid) == NULL) {
        CHECK(kvf_wait(w->kvf, rid, 30000, &event) == KVF_OK);
        CHECK(event.kind == KVF_EVENT_READY);
    }
    await(w, rid, KVF_EVENT_RELEASED);
}

/* Receives beyond the cap are answered BUSY, and admitted when an earlier one has ended. */
static void cap_holds(const char *form, bool synchronous, bool capped)
{
    const struct tiny_params tiny = {.slots = 160};
    struct world w;

    if (!world_open(&w, form, "generation:\n  max_tokens_in_buffer: 40\n", &tiny))
        return;
    /* Said once, by rank 0, where it does nothing for asynchronous receives. */
    CHECK(cap_lines == (world_rank == 0 && strstr(form, "gen pp") == NULL));
    /* 30 + 20 is beyond it. */
    CHECK(open_sized(&w, 1, 30, synchronous) == KVF_OK);
    CHECK(open_sized(&w, 2, 20, synchronous) == (w.is_context || !capped ? KVF_OK : KVF_BUSY));
    CHECK(open_sized(&w, 3, 10, synchronous) == KVF_OK); /* just the rest */
    finish(&w, 1, synchronous);
    if (!w.is_context && capped)
        CHECK(open_sized(&w, 2, 20, synchronous) == KVF_OK);
    finish(&w, 2, synchronous);
    finish(&w, 3, synchronous);
    /* Larger than the cap: alone it is admitted. */
    CHECK(open_sized(&w, 4, 60, synchronous) == KVF_OK);
    CHECK(open_sized(&w, 5, 4, synchronous) == (w.is_context || !capped ? KVF_OK : KVF_BUSY));
    finish(&w, 4, synchronous);
    if (!w.is_context && capped)
        CHECK(open_sized(&w, 5, 4, synchronous) == KVF_OK);
    finish(&w, 5, synchronous);
    world_close(&w);
}

static void scenario_cap(void)
{
    cap_holds(usual_form(), true, true);
    cap_holds(usual_form(), false, false);
    cap_holds(world_size == 2 ? "ctx; gen" : "ctx pp=2; gen pp=2", false, world_size != 2);
}

/* ---- processes that stand still -------------------------------------------------------------- */

static void share_pids(void)
{
    pid_t mine = getpid();

    MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, pids, sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
}

static bool stands_still(pid_t pid)
{
    char name[64], text[512] = "";
    const char *state;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%d/stat", (int)pid);
    file = fopen(name, "r");
    if (file == NULL)
        return false;
    if (fgets(text, sizeof(text), file) == NULL)
        text[0] = 0;
    fclose(file);
    state = strrchr(text, ')');
    return state != NULL && state[1] == ' ' && state[2] == 'T';
}

/* The caller goes on when the process stands still. */
static void await_stop(struct world *w, pid_t pid)
{
    double end = now_s() + DEADLINE_S;

    while (!stands_still(pid) && now_s() < end)
        world_step(w);
    CHECK(stands_still(pid));
}

/* World rank 0, a context rank, stands still; rank `waker` lets it go on later. */
#define SILENT_RANK 0

#define SILENT_REQUESTS 3u
#define SILENT_SETTINGS \
    "all:\n  peer_lost_ms: 50000\n  sweep_deadline_ms: 50000\n" \
    "generation:\n  kv_transfer_timeout_ms: 1000\n  writer_silence: "

/* Generation: all that a silent writer may do to receives. */
static void meet_silence(struct world *w, struct tiny_request *requests, bool strand)
{
    uint64_t blocks = 0;
    double end = now_s() + DEADLINE_S;

    for (uint32_t i = 0; i < SILENT_REQUESTS; i++) {
        blocks += blocks_of(w, &requests[i]);
        CHECK(tiny_request_open(&w->engine, &requests[i], w->other) == KVF_OK);
    }
    for (uint32_t i = 0; i < SILENT_REQUESTS; i++) {
        if (!await_outcome(w, requests[i].rid))
            return;
        CHECK(outcome_of(w, requests[i].rid)->kind == KVF_EVENT_FAILED ||
              outcome_of(w, requests[i].rid)->status == KVF_E_PEER_CANCELLED);
    }
    /* Pages are still lent, and counted so, until the writer was silent for as long again. */
    CHECK(!strand || retained_of(w) == blocks);
    if (!strand) {
        for (uint32_t i = 0; i < SILENT_REQUESTS; i++)
            await(w, requests[i].rid, KVF_EVENT_RELEASED);
        CHECK(retained_of(w) == 0 && lines[W19] == SILENT_REQUESTS);
        return;
    }
    while (stranded_of(w) < blocks && now_s() < end)
        world_step(w);
    CHECK(stranded_of(w) == blocks && retained_of(w) == blocks);
    CHECK(lines[W19] == SILENT_REQUESTS); /* once each */
    for (uint32_t i = 0; i < SILENT_REQUESTS; i++)
        CHECK(count_of(w, requests[i].rid, KVF_EVENT_RELEASED) == 0);
}

static void silence(bool strand)
{
    const struct tiny_params tiny = {.slots = 128};
    struct tiny_request requests[SILENT_REQUESTS];
    char settings[256];
    int reader = world_size / 2;
    struct world w;
    double end;

    snprintf(settings, sizeof(settings), "%s%s\n", SILENT_SETTINGS, strand ? "strand" : "release");
    if (!world_open(&w, lone_form(), settings, &tiny))
        return;
    for (uint32_t i = 0; i < SILENT_REQUESTS; i++)
        requests[i] = request_of(300 + i, 20, i * 8);
    for (uint32_t i = 0; w.is_context && i < SILENT_REQUESTS; i++) {
        CHECK(tiny_request_open(&w.engine, &requests[i], w.other) == KVF_OK);
        CHECK(tiny_request_ready(&w.engine, requests[i].rid) == KVF_OK);
    }
    gather_here(&w);
    if (world_rank == SILENT_RANK) {
        raise(SIGSTOP);
    } else if (world_rank == reader) {
        await_stop(&w, pids[SILENT_RANK]);
        meet_silence(&w, requests, strand);
    }
    /* All generation ranks have seen what they must before it goes on. */
    if (world_rank == world_size - 1) {
        char word = 0;

        for (int r = world_size / 2; r < world_size - 1; r++)
            MPI_Recv(&word, 1, MPI_CHAR, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        kill(pids[SILENT_RANK], SIGCONT);
    } else if (!w.is_context) {
        MPI_Send("", 1, MPI_CHAR, world_size - 1, 9, MPI_COMM_WORLD);
    }
    gather_here(&w);
    for (uint32_t i = 0; world_rank <= reader && i < SILENT_REQUESTS; i++) {
        await(&w, requests[i].rid, KVF_EVENT_RELEASED);
        check_once(&w, requests[i].rid);
    }
    CHECK(retained_of(&w) == 0);
    for (end = now_s() + DEADLINE_S; stranded_of(&w) > 0 && now_s() < end;)
        world_step(&w); /* counted by the reactor, a moment later */
    CHECK(stranded_of(&w) == 0);
    transfer_at_last(&w, 400, 96, reader); /* its return does no harm */
    world_close(&w);
}

static void scenario_silence_strand(void)
{
    silence(true);
}

static void scenario_silence_release(void)
{
    silence(false);
}

/*
 * A reader that stood still for longer than its own deadline finds the writer's report first, and
 * no deadline has passed for it. It is a group of its own: other ranks of a group would rightly
 * give it up after that deadline.
 */
static void scenario_stopped_reader(void)
{
    const struct tiny_params tiny = {.slots = 128};
    struct tiny_request request = request_of(600, 40, 8);
    int stopped = world_size / 2; /* the first generation rank, dp group 0; the last one rests */
    struct world w;

    if (!world_open(&w, lone_form(),
                    "all:\n  peer_lost_ms: 50000\n  sweep_deadline_ms: 50000\n"
                    "generation:\n  kv_transfer_timeout_ms: 1500\n  stall_step_max_ms: 50\n",
                    &tiny))
        return;
    if (world_rank <= stopped)
        CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
    gather_here(&w);
    if (world_rank == stopped)
        raise(SIGSTOP);
    if (w.is_context) {
        double until;

        await_stop(&w, pids[stopped]);
        CHECK(tiny_request_ready(&w.engine, request.rid) == KVF_OK);
        for (until = now_s() + 2.5; world_rank == 0 && now_s() < until;)
            world_step(&w);
        if (world_rank == 0)
            kill(pids[stopped], SIGCONT);
    }
    if (world_rank <= stopped && await(&w, request.rid, KVF_EVENT_RELEASED)) {
        CHECK(outcome_of(&w, request.rid)->status == KVF_OK);
        CHECK(lines[W36] == 0);
        CHECK(tiny_request_bad(&w.engine, &request) == 0);
    }
    world_close(&w);
}

/* ---- synchronous receives -------------------------------------------------------------------- */

/* kvf_wait() gives up, and returns only when the writers have answered: the pages are free. */
static void scenario_give_up(void)
{
    const struct tiny_params tiny = {.slots = 128};
    struct tiny_request request = request_of(700, 25, 8);
    struct kvf_event event;
    struct world w;

    request.synchronous = true;
    if (!world_open(&w, usual_form(), NULL, &tiny))
        return;
    CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
    MPI_Barrier(MPI_COMM_WORLD); /* without sweeps: a group calls all of them alike */
    if (!w.is_context) {
        CHECK(kvf_wait(w.kvf, request.rid, 20, &event) == KVF_OK);
        CHECK(event.kind == KVF_EVENT_FAILED || event.kind == KVF_EVENT_CANCELLED);
        CHECK(event.status == KVF_E_TIMEOUT || event.status == KVF_E_PEER_CANCELLED);
        await(&w, request.rid, KVF_EVENT_RELEASED); /* the next sweep, when all have called it */
        CHECK(count_of(&w, request.rid, KVF_EVENT_RELEASED) == 1);
        CHECK(retained_of(&w) == 0);
    } else if (await(&w, request.rid, KVF_EVENT_RELEASED)) {
        CHECK(outcome_of(&w, request.rid)->status == KVF_E_PEER_CANCELLED);
        CHECK(kvf_wait(w.kvf, request.rid, 0, &event) == KVF_E_STATE);
    }
    world_close(&w);
}

/* Memory of the engine's own may go as soon as kvf_close() has returned, whatever was under way. */
static void scenario_close_under_way(void)
{
    const struct tiny_params tiny = {.slots = 256, .registered = true};

    for (uint32_t round = 0; round < 3; round++) {
        struct world w;

        if (!world_open(&w, usual_form(), NULL, &tiny))
            return;
        for (uint32_t i = 0; i < 8; i++) {
            struct tiny_request request = request_of(800 + i, 100, i * 32);

            CHECK(tiny_request_open(&w.engine, &request, w.other) == KVF_OK);
            if (w.is_context)
                CHECK(tiny_request_ready(&w.engine, request.rid) == KVF_OK);
            if ((i + round) % 2 == 0 && w.is_context == (round == 1))
                CHECK(kvf_cancel(w.kvf, request.rid) == KVF_OK);
        }
        CHECK(kvf_close(w.kvf, 0) == KVF_OK);
        tiny_close(&w.engine); /* frees the pages */
        kvf_topology_free(w.topology);
    }
}

/* ---- main ----------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    {"cancel", scenario_cancel},
    {"pieces", scenario_pieces},
    {"cap", scenario_cap},
    {"silence_strand", scenario_silence_strand},
    {"silence_release", scenario_silence_release},
    {"stopped_reader", scenario_stopped_reader},
    {"give_up", scenario_give_up},
    {"close_under_way", scenario_close_under_way},
};
#define SCENARIO_COUNT (sizeof(scenarios) / sizeof(scenarios[0]))

int main(int argc, char **argv)
{
    int provided, all = 0, ran = 0;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (world_size != 2 && world_size != 4) {
        fprintf(stderr, "test_lifecycle wants 2 or 4 ranks\n");
        MPI_Finalize();
        return 2;
    }
    share_pids();
    for (unsigned s = 0; s < SCENARIO_COUNT; s++) {
        double start = now_s();
        int before = failures;

        if (argc > 1 && strcmp(argv[1], scenarios[s].name) != 0)
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
