/*
 * bench_sweep.c - `kvferry bench sweep`: what one sweep of consensus/sweep.h costs over MPI, with
 * so many live requests and so many changes, beside the bare collective of the same size and beside
 * what it replaces: an all-gather of all ids and their intersection. All ranks are one group.
 *
 * A round measures each of them once, right after a barrier, so that all figures are of one run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <mpi.h>

#include "bench_commands.h"
#include "consensus/collective_mpi.h"
#include "consensus/sweep.h"
#include "json_file.h"
#include "launched.h"
#include "options.h"
#include "say.h"

#define SWEEP_BENCH_ROUNDS_MAX 100000u
#define SWEEP_BENCH_RIDS_OWN 64u /* requests that change, beside the live ones */
#define SWEEP_BENCH_SETTLE 64u   /* sweeps until the messages have their size */
#define SWEEP_BENCH_WARM 20u

struct bench_sweep_options {
    uint64_t rounds;
    uint64_t gather_every;
    const char *json;
    bool help;
};

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct bench_sweep_options, member)

static const struct option_row bench_sweep_rows[] = {
    {ROW("rounds", OPTION_WHOLE, rounds), "1000", 1, SWEEP_BENCH_ROUNDS_MAX, NULL, "N",
     "sweeps that are measured for each row"},
    {ROW("gather-every", OPTION_WHOLE, gather_every), "10", 1, SWEEP_BENCH_ROUNDS_MAX, NULL, "N",
     "rounds from one all-gather of all ids to the next: it is slow"},
    {ROW("json", OPTION_TEXT, json), NULL, 0, 0, NULL, "FILE", "write the figures to a file"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void bench_sweep_help(void)
{
    options_help(bench_sweep_rows, stdout);
}

struct sweep_bench {
    int rank, ranks;
    MPI_Comm comm, bare;
    struct collective *collective;
    struct sweep *sweep;
    uint32_t iteration;
    uint64_t next_rid;
    bool lost;
    uint8_t *sent, *gathered; /* bare */
    uint64_t *ids, *all_ids;  /* of the baseline */
    int *counts, *places;
};

static double sweep_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Steps one event and all that is left of it; only messages have to leave. */
static struct sweep_out sweep_bench_step(struct sweep_bench *bench, struct sweep_event *event)
{
    struct collective *collective = bench->collective;
    struct sweep_action actions[16];
    struct sweep_event next = {.kind = SWEEP_POLL};
    struct sweep_out out = {.actions = actions, .max = 16};

    sweep_step(bench->sweep, event, &out);
    for (;;) {
        for (uint32_t a = 0; a < out.count; a++) {
            bench->lost = bench->lost || actions[a].kind == SWEEP_ACT_TELL;
            if (actions[a].kind == SWEEP_ACT_POST) {
                bench->lost = collective->start(collective->self, actions[a].u.post.slot,
                                                actions[a].u.post.bytes,
                                                actions[a].u.post.len_bytes) != KVF_OK ||
                              bench->lost;
            }
        }
        if (!out.more) {
            return out;
        }
        out.count = 0;
        sweep_step(bench->sweep, &next, &out);
    }
}

static void sweep_bench_vote(struct sweep_bench *bench, uint64_t rid, unsigned vote)
{
    struct sweep_event event = {.kind = SWEEP_VOTE,
                                .u.vote = {.rid = rid, .vote = vote, .first = true}};

    sweep_bench_step(bench, &event);
}

/* One whole sweep, as kvf_sweep() does it with lag 0, until it is complete and applied. */
static void sweep_bench_call(struct sweep_bench *bench)
{
    struct collective *collective = bench->collective;
    struct sweep_event event = {.kind = SWEEP_CALL, .u.call = {bench->iteration++, 0}};
    uint8_t word[COLLECTIVE_WORD_BYTES];
    struct sweep_out out;
    uint32_t times = 0;

    collective->hear(collective->self, word);
    out = sweep_bench_step(bench, &event);
    while (!bench->lost && !out.done) {
        if (collective->test(collective->self, out.slot) == KVF_OK) {
            event.kind = SWEEP_GATHERED;
            event.u.gathered.bytes = collective->result(collective->self, out.slot);
            out = sweep_bench_step(bench, &event);
        } else {
            collective->rest(collective->self, times++);
        }
    }
}

/* ---- what it is compared with ---------------------------------------------------------------- */

static void sweep_bench_bare(struct sweep_bench *bench, uint32_t len_bytes)
{
    MPI_Request request;
    uint32_t times = 0;
    int done = 0;

    MPI_Iallgather(bench->sent, (int)len_bytes, MPI_BYTE, bench->gathered, (int)len_bytes, MPI_BYTE,
                   bench->bare, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) {
            return;
        }
        bench->collective->rest(bench->collective->self, times++);
    }
}

/* Ids of all live requests of all ranks, then those that every rank has. Lists are sorted. */
static uint32_t sweep_bench_gather_ids(struct sweep_bench *bench, uint32_t live)
{
    int count = (int)live;
    uint32_t common = live;

    MPI_Allgather(&count, 1, MPI_INT, bench->counts, 1, MPI_INT, bench->bare);
    for (int r = 0, at = 0; r < bench->ranks; at += bench->counts[r], r++) {
        bench->places[r] = at;
    }
    MPI_Allgatherv(bench->ids, count, MPI_UINT64_T, bench->all_ids, bench->counts, bench->places,
                   MPI_UINT64_T, bench->bare);
    for (int r = 1; r < bench->ranks; r++) {
        const uint64_t *other = bench->all_ids + bench->places[r];
        uint32_t kept = 0;

        for (uint32_t i = 0, j = 0; i < common && j < (uint32_t)bench->counts[r];) {
            if (bench->all_ids[i] == other[j]) {
                bench->all_ids[kept++] = bench->all_ids[i];
                i++;
                j++;
            } else if (bench->all_ids[i] < other[j]) {
                i++;
            } else {
                j++;
            }
        }
        common = kept;
    }
    return common;
}

/* ---- one row --------------------------------------------------------------------------------- */

struct sweep_row {
    uint32_t live, changes, bytes;
    double sweep[2], bare[2], ids[2]; /* p50, p99 in us */
};

static int compare_us(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void sweep_quantiles(double *us, size_t count, double quantiles_out[2])
{
    qsort(us, count, sizeof(*us), compare_us);
    quantiles_out[0] = us[(count - 1) / 2];
    quantiles_out[1] = us[(size_t)((double)(count - 1) * 0.99)];
}

static void sweep_bench_changes(struct sweep_bench *bench, uint32_t changes)
{
    for (uint32_t c = 0; c < changes; c++) {
        sweep_bench_vote(bench, bench->next_rid++, RETIRE_DONE | RETIRE_DRAINED);
    }
}

static bool sweep_bench_row(struct sweep_bench *bench, const struct bench_sweep_options *options,
                            struct sweep_row *row, double *us)
{
    double *sweep_us = us, *bare_us = us + options->rounds, *ids_us = us + 2 * options->rounds;
    size_t ids = 0;
    struct sweep_state look;

    for (uint32_t s = 0; s < SWEEP_BENCH_SETTLE; s++) {
        sweep_bench_changes(bench, row->changes);
        sweep_bench_call(bench);
    }
    sweep_look(bench->sweep, &look);
    row->bytes = look.len_bytes;
    for (uint64_t round = 0; round < SWEEP_BENCH_WARM + options->rounds; round++) {
        uint64_t at = round < SWEEP_BENCH_WARM ? 0 : round - SWEEP_BENCH_WARM;
        double start_us;

        sweep_bench_changes(bench, row->changes);
        MPI_Barrier(bench->bare);
        start_us = sweep_now_us();
        sweep_bench_call(bench);
        sweep_us[at] = sweep_now_us() - start_us;
        MPI_Barrier(bench->bare);
        start_us = sweep_now_us();
        sweep_bench_bare(bench, row->bytes);
        bare_us[at] = sweep_now_us() - start_us;
        if (at % options->gather_every == 0 && row->live > 0) {
            MPI_Barrier(bench->bare);
            start_us = sweep_now_us();
            if (sweep_bench_gather_ids(bench, row->live) != row->live) {
                return false;
            }
            ids_us[at / options->gather_every] = sweep_now_us() - start_us;
            ids = at / options->gather_every + 1;
        }
    }
    sweep_quantiles(sweep_us, options->rounds, row->sweep);
    sweep_quantiles(bare_us, options->rounds, row->bare);
    if (ids > 0) {
        sweep_quantiles(ids_us, ids, row->ids);
    }
    return !bench->lost;
}

/* ---- open and close -------------------------------------------------------------------------- */

static const uint32_t sweep_live[] = {16, 256, 2048, 4096};
static const uint32_t sweep_changes[] = {0, 1, 30};
enum {
    SWEEP_LIVES = sizeof(sweep_live) / sizeof(sweep_live[0]),
    SWEEP_CHANGES = sizeof(sweep_changes) / sizeof(sweep_changes[0]),
    SWEEP_LIVE_MAX = 4096,
};

static bool sweep_bench_open(struct sweep_bench *bench)
{
    size_t ranks = (size_t)bench->ranks;
    const struct sweep_params params = {
        .retire = {.side = KVF_GENERATION,
                   .rank_count = (uint32_t)bench->ranks,
                   .self = (uint32_t)bench->rank,
                   .entries_max = SWEEP_LIVE_MAX + SWEEP_BENCH_RIDS_OWN},
        .votes_max = SWEEP_LIVE_MAX,
    };
    struct collective_mpi_params mpi = {
        .heap = kvf_heap_system(), .slots = 1, .len_max_bytes = SWEEP_MESSAGE_MAX, .crowded = true};

    MPI_Comm_dup(MPI_COMM_WORLD, &bench->comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &bench->bare);
    mpi.comm = bench->comm;
    bench->sent = calloc(1, SWEEP_MESSAGE_MAX);
    bench->gathered = calloc(ranks, SWEEP_MESSAGE_MAX);
    bench->ids = calloc(SWEEP_LIVE_MAX, sizeof(*bench->ids));
    bench->all_ids = calloc(ranks * SWEEP_LIVE_MAX, sizeof(*bench->all_ids));
    bench->counts = calloc(ranks, sizeof(*bench->counts));
    bench->places = calloc(ranks, sizeof(*bench->places));
    for (uint64_t i = 0; i < SWEEP_LIVE_MAX && bench->ids != NULL; i++) {
        bench->ids[i] = 1000 + 7 * i;
    }
    bench->next_rid = UINT64_C(1) << 40;
    return bench->sent != NULL && bench->gathered != NULL && bench->ids != NULL &&
           bench->all_ids != NULL && bench->counts != NULL && bench->places != NULL &&
           collective_mpi_open(&mpi, &bench->collective) == KVF_OK &&
           sweep_open(kvf_heap_system(), &params, &bench->sweep) == KVF_OK;
}

static void sweep_bench_close(struct sweep_bench *bench)
{
    if (bench->collective != NULL) {
        bench->collective->close(bench->collective->self);
    }
    sweep_close(bench->sweep);
    free(bench->places);
    free(bench->counts);
    free(bench->all_ids);
    free(bench->ids);
    free(bench->gathered);
    free(bench->sent);
    MPI_Comm_free(&bench->bare);
    MPI_Comm_free(&bench->comm);
}

/* Rank 0 votes on so many requests that they are live: nobody else has done its part. */
static void sweep_bench_live(struct sweep_bench *bench, uint32_t *live, uint32_t want)
{
    for (; *live < want; (*live)++) {
        if (bench->rank == 0) {
            sweep_bench_vote(bench, 1000 + 7 * (uint64_t)*live, RETIRE_DONE);
        }
    }
}

/* ---- report ---------------------------------------------------------------------------------- */

static double sweep_ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static json_t *sweep_print(const struct sweep_row *row)
{
    printf("%6u %7u %6u %9.2f %9.2f %9.2f %9.2f %6.2f %10.1f %7.1f\n", row->live, row->changes,
           row->bytes, row->sweep[0], row->sweep[1], row->bare[0], row->bare[1],
           sweep_ratio(row->sweep[0], row->bare[0]), row->ids[0],
           sweep_ratio(row->ids[0], row->sweep[0]));
    return json_pack("{s:i, s:i, s:i, s:{s:f, s:f}, s:{s:f, s:f}, s:{s:f, s:f}, s:f, s:f}", "live",
                     (int)row->live, "changes", (int)row->changes, "bytes", (int)row->bytes,
                     "sweep", "p50", row->sweep[0], "p99", row->sweep[1], "bare", "p50",
                     row->bare[0], "p99", row->bare[1], "gather_ids", "p50", row->ids[0], "p99",
                     row->ids[1], "sweep_to_bare", sweep_ratio(row->sweep[0], row->bare[0]),
                     "gather_ids_to_sweep", sweep_ratio(row->ids[0], row->sweep[0]));
}

static int sweep_write(const char *path, int ranks, json_t *rows)
{
    json_t *object = json_pack("{s:s, s:i, s:O}", "unit", "us", "ranks", ranks, "rows", rows);
    bool fine = json_file_write("--json", path, object, 2);

    json_decref(object);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

static bool sweep_bench_all(struct sweep_bench *bench, const struct bench_sweep_options *options,
                            double *us, json_t *rows)
{
    uint32_t live = 0;

    if (bench->rank == 0) {
        printf(
            "%d ranks, us (p50 and p99 of %llu rounds)\n  live changes  bytes  sweep50   sweep99 "
            "   bare50    bare99  ratio  gather_ids  faster\n",
            bench->ranks, (unsigned long long)options->rounds);
    }
    for (unsigned l = 0; l < SWEEP_LIVES; l++) {
        sweep_bench_live(bench, &live, sweep_live[l]);
        for (unsigned c = 0; c < SWEEP_CHANGES; c++) {
            struct sweep_row row = {.live = sweep_live[l], .changes = sweep_changes[c]};

            if (!sweep_bench_row(bench, options, &row, us)) {
                say("bench sweep: rank %d: the group is lost, or ids are", bench->rank);
                return false;
            }
            if (bench->rank == 0) {
                json_array_append_new(rows, sweep_print(&row));
            }
        }
    }
    return true;
}

static int sweep_bench_run(const struct bench_sweep_options *options)
{
    struct sweep_bench bench = {0};
    json_t *rows = json_array();
    double *us = calloc(options->rounds * 3, sizeof(*us));
    int code = EXIT_RIGHT;

    MPI_Comm_rank(MPI_COMM_WORLD, &bench.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &bench.ranks);
    if (us == NULL || rows == NULL || !sweep_bench_open(&bench)) {
        say("bench sweep: out of memory");
        MPI_Abort(MPI_COMM_WORLD, EXIT_USAGE);
    }
    if (!sweep_bench_all(&bench, options, us, rows)) {
        MPI_Abort(MPI_COMM_WORLD, EXIT_WRONG); /* the others are inside a collective */
    }
    if (bench.rank == 0 && options->json != NULL) {
        code = sweep_write(options->json, bench.ranks, rows);
    }
    sweep_bench_close(&bench);
    free(us);
    json_decref(rows);
    return code;
}

int bench_sweep(int argc, char **argv)
{
    struct bench_sweep_options options;
    struct launched launched;
    char text[OPTIONS_TEXT_BYTES] = "";
    bool parsed = options_parse(bench_sweep_rows, argc, argv, &options, text) &&
                  json_file_fits("--json", options.json, text, sizeof(text));
    int code;

    if (parsed && options.help) {
        bench_sweep_help();
        return EXIT_RIGHT;
    }
    if (!parsed) {
        return launched_refuse(EXIT_USAGE, text);
    }
    if (!launched_start(&launched)) {
        return EXIT_USAGE;
    }
    code = sweep_bench_run(&options);
    return launched_end(code);
}
