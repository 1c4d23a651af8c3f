/*
 * run_report.c - what `kvferry run` says at the end: sums over all ranks, the table, and JSON. The
 * meaning of every figure is in docs/run.md, "Figures".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "json_file.h"
#include "launched.h"
#include "run.h"
#include "say.h"

/* Summed over the ranks; order is that of the enum. */
enum run_sum {
    SUM_BAD_BYTES,
    SUM_PAYLOAD,
    SUM_SENT,
    SUM_CHECKED,
    SUM_LEAKED,
    SUM_WIRE,
    SUM_MESSAGES,
    SUM_RETAINED,
    SUM_STRANDED,
    SUM_UNEXPECTED,
    SUM_ALLOCATIONS,
    SUM_FRAGMENTS,
    SUM_DUMP,
    SUM_PATHS, /* KVF_PATH_COUNT of them */
    SUM_COUNT = SUM_PATHS + KVF_PATH_COUNT,
};

enum run_figure {
    FIGURE_LATENCY,
    FIGURE_PAGES,
    FIGURE_PREPARE,
    FIGURE_WAIT,
    FIGURE_MOVE,
    FIGURE_AGREE
};
#define FIGURE_COUNT 6

struct run_quantiles {
    double p50, p90, p99, max;
};

struct run_totals {
    uint64_t sums[SUM_COUNT];
    uint32_t ok, failed, cancelled, refused, geometry;
    double seconds;          /* wall, checks and all */
    double transfer_seconds; /* longest time a generation rank had transfers under way */
    double connect_seconds;
    double used_mean, used_max; /* of the rank with the fullest pools */
    struct run_quantiles figures[FIGURE_COUNT];
};

static const char *const figure_names[FIGURE_COUNT] = {
    "latency_ms", "pages_ms", "prepare_ms", "wait_ms", "move_ms", "agree_ms",
};

/* Pages that are neither free nor with the prefix cache. */
static uint64_t run_leaked(const struct run *run)
{
    uint64_t leaked = 0;
    uint64_t cached = 0;

    for (uint32_t i = 0; i < run->entry_count; i++) {
        const struct run_entry *entry = &run->entries[i];

        if (entry->slots != NULL && !(entry->dropped && entry->users == 0)) {
            cached += TRACE_HASH_TOKENS / run->layout.tokens_per_block;
        }
    }
    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        leaked += run->free[g].room - run->free[g].count;
    }
    return leaked - cached;
}

static void run_own_sums(const struct run *run, uint64_t *sums, double *connect_s)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    kvf_counters(run->kvf, &counters);
    sums[SUM_BAD_BYTES] = run->sums.bad_bytes;
    sums[SUM_PAYLOAD] = run->sums.payload_bytes;
    sums[SUM_SENT] = run->sums.sent_bytes;
    sums[SUM_CHECKED] = run->sums.checked_bytes;
    sums[SUM_LEAKED] = run_leaked(run);
    sums[SUM_WIRE] = counters.wire_bytes;
    sums[SUM_MESSAGES] = counters.control_messages;
    sums[SUM_RETAINED] = counters.retained_blocks;
    sums[SUM_STRANDED] = counters.stranded_blocks;
    sums[SUM_UNEXPECTED] = counters.unexpected_events + counters.messages_dropped;
    sums[SUM_ALLOCATIONS] = counters.allocations_after_ready;
    sums[SUM_FRAGMENTS] = run->side == KVF_CONTEXT ? counters.fragments : 0;
    sums[SUM_DUMP] = run->sums.dump_bytes;
    for (uint32_t p = 0; p < KVF_PATH_COUNT; p++) {
        sums[SUM_PATHS + p] = run->side == KVF_CONTEXT ? counters.path_writes[p] : 0;
    }
    *connect_s = (double)counters.connect_ns / 1e9;
}

static int run_double_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Nearest rank: the smallest value that at least the share of all values does not exceed. */
static double run_quantile(const double *sorted, size_t count, double share)
{
    size_t rank = (size_t)(share * (double)count);

    rank += (double)rank < share * (double)count;
    return count == 0 ? 0 : sorted[rank == 0 ? 0 : rank - 1];
}

static double run_sample_figure(const struct run_sample *sample, enum run_figure figure)
{
    switch (figure) {
    case FIGURE_LATENCY:
        return sample->latency_ms;
    case FIGURE_PAGES:
        return sample->pages_ms;
    case FIGURE_PREPARE:
        return sample->prepare_ms;
    case FIGURE_WAIT:
        return sample->wait_ms;
    case FIGURE_MOVE:
        return sample->move_ms;
    case FIGURE_AGREE:
        return sample->agree_ms;
    }
    return 0;
}

static void run_rank_figures(const struct run_sample *samples, size_t count, double *values,
                             struct run_quantiles *figures)
{
    for (int f = 0; f < FIGURE_COUNT; f++) {
        for (size_t i = 0; i < count; i++) {
            values[i] = run_sample_figure(&samples[i], (enum run_figure)f);
        }
        qsort(values, count, sizeof(*values), run_double_order);
        figures[f].p50 = run_quantile(values, count, 0.50);
        figures[f].p90 = run_quantile(values, count, 0.90);
        figures[f].p99 = run_quantile(values, count, 0.99);
        figures[f].max = count == 0 ? 0 : values[count - 1];
    }
}

/* All samples to rank 0, which makes the percentiles. */
static bool run_gather_samples(const struct run *run, struct run_totals *totals)
{
    int bytes = (int)(run->sample_count * sizeof(*run->samples));
    int *counts = calloc((size_t)run->world_size * 2, sizeof(*counts));
    struct run_sample *all = NULL;
    double *values = NULL;
    MPI_Request request;
    size_t sum = 0;
    bool fine = counts != NULL;

    fine = run_agree(fine ? 0 : 1) == 0;
    if (fine) {
        MPI_Igather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
        launched_wait(&request);
        for (int r = 0; run->world_rank == 0 && r < run->world_size; r++) {
            counts[run->world_size + r] = (int)sum;
            sum += (size_t)counts[r];
        }
        all = calloc(1, sum + sizeof(*all));
        values = calloc(sum / sizeof(*all) + 1, sizeof(*values));
        fine = run_agree(all != NULL && values != NULL ? 0 : 1) == 0;
    }
    if (fine) {
        MPI_Igatherv(run->samples, bytes, MPI_BYTE, all, counts, counts + run->world_size, MPI_BYTE,
                     0, MPI_COMM_WORLD, &request);
        launched_wait(&request);
        run_rank_figures(all, sum / sizeof(*all), values, totals->figures);
    }
    free(values);
    free(all);
    free(counts);
    return fine;
}

/* What became of each request, from what all ranks saw of it. */
static void run_count_outcomes(const struct run *run, const uint8_t *outcomes,
                               struct run_totals *totals)
{
    for (uint32_t i = 0; i < run->schedule.job_count; i++) {
        uint8_t outcome = outcomes[i];

        totals->refused += (outcome & RUN_REFUSED) != 0;
        totals->geometry += (outcome & RUN_GEOMETRY) != 0;
        if ((outcome & (RUN_FAILED | RUN_BAD)) != 0) {
            totals->failed++;
        } else if ((outcome & RUN_CANCELLED) != 0) {
            totals->cancelled++;
        } else if ((outcome & RUN_READY) != 0 && (outcome & RUN_SENT) != 0) {
            totals->ok++;
        } else {
            totals->failed++;
        }
    }
}

static bool run_total(struct run *run, struct run_totals *totals)
{
    uint64_t sums[SUM_COUNT] = {0};
    double times[5] = {run->wall_s, (double)run->sums.busy_ns / 1e9, 0,
                       run->order_at == 0 ? 0 : run->sums.used_sum / run->order_at,
                       run->sums.used_max};
    double most[5] = {0};
    uint8_t *outcomes = calloc((size_t)run->schedule.job_count + 1, 1);

    if (run_agree(outcomes != NULL ? 0 : 1) != 0) {
        free(outcomes);
        return false;
    }
    run_own_sums(run, sums, &times[2]);
    run_reduce(sums, totals->sums, SUM_COUNT, MPI_UINT64_T, MPI_SUM);
    run_reduce(times, most, 5, MPI_DOUBLE, MPI_MAX);
    run_reduce(run->outcomes, outcomes, (int)run->schedule.job_count, MPI_UINT8_T, MPI_BOR);
    totals->seconds = most[0];
    totals->transfer_seconds = most[1];
    totals->connect_seconds = most[2];
    totals->used_mean = most[3];
    totals->used_max = most[4];
    run_count_outcomes(run, outcomes, totals);
    free(outcomes);
    return run_gather_samples(run, totals);
}

static double run_rate(uint64_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / seconds / 1e9 : 0;
}

/* ---- table ----------------------------------------------------------------------------------- */

/* "E_TIMEOUT 3, E_CANCELLED 2" of how requests ended otherwise than well. */
static void run_print_faults(const struct run *run)
{
    const struct run_verdicts *verdicts = &run->verdicts;
    const char *gap = "";

    printf("planted    ");
    for (int f = 1; f < FAULT_FATES; f++) {
        if (verdicts->planted[f] > 0) {
            printf("%s%s %u", gap, fault_fate_word((enum fault_fate)f), verdicts->planted[f]);
            gap = ", ";
        }
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        if (verdicts->extras[e] > 0) {
            printf("%s%s %u", gap, fault_extra_word((enum fault_extra)e), verdicts->extras[e]);
            gap = ", ";
        }
    }
    printf("%s\nended      ", gap[0] == '\0' ? "nothing" : "");
    gap = "";
    for (uint32_t i = 0; i < verdicts->reason_count; i++) {
        printf("%s%s %u", gap, kvf_status_name((enum kvf_status)verdicts->reasons[i].status),
               verdicts->reasons[i].count);
        gap = ", ";
    }
    printf(
        "\njudged     otherwise than planted %u, not as planted %u, unlike in a group %u, not once "
        "%llu, wrong answers %llu\n",
        verdicts->unplanned, verdicts->missing, verdicts->unlike,
        (unsigned long long)verdicts->twice, (unsigned long long)verdicts->bad_calls);
}

static void run_print(const struct run *run, const struct run_totals *totals)
{
    const uint64_t *sums = totals->sums;
    char form[512] = "?";

    kvf_topology_format(run->topology, form, sizeof(form));
    printf("\ntopology   %s\n", form);
    printf("models     context %s (%u layers), generation %s (%u layers)\n", run->models[0].name,
           run->models[0].facts.layer_count, run->models[1].name, run->models[1].facts.layer_count);
    printf("requests   %u: ok %u, failed %u (refused %u), cancelled %u\n", run->schedule.job_count,
           totals->ok, totals->failed, totals->refused, totals->cancelled);
    if (run->faults.any) {
        run_print_faults(run);
    }
    printf("reuse      %s%s\n", run->no_reuse_why != NULL ? "none: " : "prefixes by hash_ids",
           run->no_reuse_why != NULL ? run->no_reuse_why : "");
    printf("bytes      payload %llu, on the wire %llu, compared %llu, wrong %llu\n",
           (unsigned long long)sums[SUM_PAYLOAD], (unsigned long long)sums[SUM_WIRE],
           (unsigned long long)sums[SUM_CHECKED], (unsigned long long)sums[SUM_BAD_BYTES]);
    printf("time       %.3f s with all checks, %.3f s of transfers, connecting %.3f s\n",
           totals->seconds, totals->transfer_seconds, totals->connect_seconds);
    printf("rate       %.3f GB/s while transfers were under way, %.3f GB/s with all checks\n",
           run_rate(sums[SUM_PAYLOAD], totals->transfer_seconds),
           run_rate(sums[SUM_PAYLOAD], totals->seconds));
    printf("           %10s %10s %10s %10s\n", "p50", "p90", "p99", "max");
    for (int f = 0; f < FIGURE_COUNT; f++) {
        const struct run_quantiles *figure = &totals->figures[f];

        printf("%-10s %10.3f %10.3f %10.3f %10.3f\n", figure_names[f], figure->p50, figure->p90,
               figure->p99, figure->max);
    }
    printf(
        "paths      mapped %llu, direct %llu, bounce %llu, two-sided %llu, nothing to move %llu\n",
        (unsigned long long)sums[SUM_PATHS + KVF_PATH_MAPPED],
        (unsigned long long)sums[SUM_PATHS + KVF_PATH_DIRECT],
        (unsigned long long)sums[SUM_PATHS + KVF_PATH_BOUNCE],
        (unsigned long long)sums[SUM_PATHS + KVF_PATH_TWOSIDED],
        (unsigned long long)sums[SUM_PATHS + KVF_PATH_NONE]);
    printf(
        "pages      retained %llu, stranded %llu, leaked %llu; in use %.0f %% on average, %.0f %% "
        "at most\n",
        (unsigned long long)sums[SUM_RETAINED], (unsigned long long)sums[SUM_STRANDED],
        (unsigned long long)sums[SUM_LEAKED], totals->used_mean * 100, totals->used_max * 100);
    printf("longest wait for the other side %.3f ms\n", totals->figures[FIGURE_WAIT].max);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *run_json_quantiles(const struct run_quantiles *figure)
{
    return json_pack("{s:f, s:f, s:f, s:f}", "p50", figure->p50, "p90", figure->p90, "p99",
                     figure->p99, "max", figure->max);
}

static void run_json_whole(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static json_t *run_json_paths(const uint64_t *sums)
{
    json_t *paths = json_object();

    run_json_whole(paths, "mapped", sums[SUM_PATHS + KVF_PATH_MAPPED]);
    run_json_whole(paths, "direct", sums[SUM_PATHS + KVF_PATH_DIRECT]);
    run_json_whole(paths, "bounce", sums[SUM_PATHS + KVF_PATH_BOUNCE]);
    run_json_whole(paths, "twosided", sums[SUM_PATHS + KVF_PATH_TWOSIDED]);
    run_json_whole(paths, "none", sums[SUM_PATHS + KVF_PATH_NONE]);
    return paths;
}

static json_t *run_json_planted(const struct run_verdicts *verdicts)
{
    json_t *planted = json_object();

    for (int f = 1; f < FAULT_FATES; f++) {
        run_json_whole(planted, fault_fate_word((enum fault_fate)f), verdicts->planted[f]);
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        run_json_whole(planted, fault_extra_word((enum fault_extra)e), verdicts->extras[e]);
    }
    return planted;
}

static void run_json_verdicts(const struct run_verdicts *verdicts, json_t *object)
{
    json_t *ends = json_object();

    for (uint32_t i = 0; i < verdicts->reason_count; i++) {
        run_json_whole(ends, kvf_status_name((enum kvf_status)verdicts->reasons[i].status),
                       verdicts->reasons[i].count);
    }
    json_object_set_new(object, "ends", ends);
    json_object_set_new(object, "planted", run_json_planted(verdicts));
    run_json_whole(object, "unplanned", verdicts->unplanned);
    run_json_whole(object, "missing", verdicts->missing);
    run_json_whole(object, "unlike", verdicts->unlike);
    run_json_whole(object, "not_once", verdicts->twice);
    run_json_whole(object, "bad_calls", verdicts->bad_calls);
}

static json_t *run_json(const struct run *run, const struct run_totals *totals)
{
    const uint64_t *sums = totals->sums;
    json_t *object = json_object();

    run_json_whole(object, "requests", run->schedule.job_count);
    run_json_whole(object, "ok", totals->ok);
    run_json_whole(object, "failed", totals->failed);
    run_json_whole(object, "cancelled", totals->cancelled);
    run_json_whole(object, "refused", totals->refused);
    run_json_whole(object, "bad_bytes", sums[SUM_BAD_BYTES]);
    run_json_whole(object, "payload_bytes", sums[SUM_PAYLOAD]);
    run_json_whole(object, "wire_bytes", sums[SUM_WIRE]);
    run_json_whole(object, "sent_bytes", sums[SUM_SENT]);
    run_json_whole(object, "checked_bytes", sums[SUM_CHECKED]);
    json_object_set_new(object, "seconds", json_real(totals->seconds));
    json_object_set_new(object, "transfer_seconds", json_real(totals->transfer_seconds));
    json_object_set_new(object, "connect_seconds", json_real(totals->connect_seconds));
    json_object_set_new(object, "gbytes_per_s",
                        json_real(run_rate(sums[SUM_PAYLOAD], totals->transfer_seconds)));
    json_object_set_new(object, "gbytes_per_s_wall",
                        json_real(run_rate(sums[SUM_PAYLOAD], totals->seconds)));
    for (int f = 0; f < FIGURE_COUNT; f++) {
        json_object_set_new(object, figure_names[f], run_json_quantiles(&totals->figures[f]));
    }
    json_object_set_new(object, "paths", run_json_paths(sums));
    run_json_whole(object, "retained_blocks_end", sums[SUM_RETAINED]);
    run_json_whole(object, "stranded_blocks_end", sums[SUM_STRANDED]);
    run_json_whole(object, "blocks_leaked", sums[SUM_LEAKED]);
    run_json_whole(object, "control_messages", sums[SUM_MESSAGES]);
    run_json_whole(object, "unexpected", sums[SUM_UNEXPECTED]);
    run_json_whole(object, "allocations_after_ready", sums[SUM_ALLOCATIONS]);
    run_json_whole(object, "fragments", sums[SUM_FRAGMENTS]);
    json_object_set_new(object, "pages_used_mean", json_real(totals->used_mean));
    json_object_set_new(object, "pages_used_max", json_real(totals->used_max));
    run_json_verdicts(&run->verdicts, object);
    if (run->dump_job != RUN_NO_JOB) {
        run_json_whole(object, "dump_payload_bytes", sums[SUM_DUMP]);
    }
    return object;
}

static int run_write_json(const struct run *run, const struct run_totals *totals)
{
    json_t *object = run_json(run, totals);
    bool fine = json_file_write("--json", run->options.json, object, 2);

    json_decref(object);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

/* The lowest rank's text of a refusal to rank 0; a rank that has none has at most the code. */
static void run_share_refusal(struct run *run)
{
    int lowest = run->refused[0] != 0 ? run->world_rank : run->world_size;
    int code = run->refused_code, any = code;
    MPI_Request request;

    run_reduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN);
    run_reduce(&code, &any, 1, MPI_INT, MPI_MIN);
    if (lowest < run->world_size) {
        MPI_Ibcast(run->refused, sizeof(run->refused), MPI_CHAR, lowest, MPI_COMM_WORLD, &request);
        launched_wait(&request);
    } else {
        snprintf(run->refused, sizeof(run->refused), "%s: %s",
                 kvf_status_name((enum kvf_status)any), kvf_status_text((enum kvf_status)any));
    }
}

/* Exit code of what was counted. With planted faults just these must have happened. */
static int run_verdict(const struct run *run, const struct run_totals *totals)
{
    const uint64_t *sums = totals->sums;
    bool clean = sums[SUM_BAD_BYTES] == 0 && sums[SUM_LEAKED] == 0 && sums[SUM_RETAINED] == 0;

    if (run->faults.any) {
        clean =
            clean && totals->refused == 0 && sums[SUM_STRANDED] == 0 && sums[SUM_UNEXPECTED] == 0;
        return clean && run_judged_well(run) ? EXIT_RIGHT : EXIT_WRONG;
    }
    if (clean && totals->ok == run->schedule.job_count && run_judged_well(run)) {
        return EXIT_RIGHT;
    }
    return totals->geometry > 0 && sums[SUM_BAD_BYTES] == 0 ? EXIT_REFUSED : EXIT_WRONG;
}

int run_report(struct run *run)
{
    struct run_totals totals;
    int code = EXIT_RIGHT;

    memset(&totals, 0, sizeof(totals));
    if (!run_total(run, &totals) || !run_judge(run)) {
        return EXIT_USAGE;
    }
    code = run_verdict(run, &totals);
    run_share_refusal(run);
    if (run->world_rank == 0) {
        if (totals.geometry > 0) {
            say("%s", run->refused);
        }
        run_print(run, &totals);
        if (run->options.json != NULL && run_write_json(run, &totals) != EXIT_RIGHT) {
            code = EXIT_USAGE;
        }
    }
    return run_agree(code);
}
