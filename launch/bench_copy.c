/*
 * bench_copy.c - `kvferry bench copy`: plain loops, the limit of one core, and the rungs of the
 * ladder, side by side in one run on two ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "bench_commands.h"
#include "bench_rung.h"
#include "json_file.h"
#include "launched.h"
#include "options.h"
#include "say.h"

struct bench_copy_options {
    const char *shape;
    uint64_t rounds;
    uint64_t mib;
    uint64_t seed;
    const char *progress;
    const char *json;
    bool help;
};

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct bench_copy_options, member)

static const struct option_row bench_copy_rows[] = {
    {ROW("shape", OPTION_CHOICE, shape), "all", 0, 0, "all|u512|u4k|u36k|u1m|mla|tp512", NULL,
     "what to move"},
    {ROW("rounds", OPTION_WHOLE, rounds), "7", 1, BENCH_ROUNDS_MAX / 2, NULL, "N",
     "requests of each rung, and rounds of the loops between them"},
    {ROW("mib", OPTION_WHOLE, mib), "0", 0, 65536, NULL, "MIB",
     "most MiB a request; 0 = as the shape says"},
    {ROW("seed", OPTION_WHOLE, seed), "1", 0, UINT64_MAX, NULL, "N", "of the order of the pages"},
    {ROW("progress", OPTION_CHOICE, progress), "thread", 0, 0, "thread|caller", NULL,
     "who steps the library"},
    {ROW("json", OPTION_TEXT, json), NULL, 0, 0, NULL, "FILE", "write the figures to a file"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void bench_copy_help(void)
{
    options_help(bench_copy_rows, stdout);
}

struct bench_copy {
    struct bench_copy_options options;
    int rank;
    uint64_t next_rid;
};

/* Both rungs of one shape, rounds of the loops in between; the result is rank 0's. */
static bool bench_copy_rungs(struct bench_copy *copy, const struct bench_work *work,
                             struct bench_baseline *baseline, struct bench_result *result_out)
{
    static const enum bench_method methods[] = {BENCH_MAPPED, BENCH_DIRECT};
    uint32_t rounds = (uint32_t)copy->options.rounds;
    double seconds[2][BENCH_ROUNDS_MAX];
    bool fine = true;

    for (size_t m = 0; fine && m < 2; m++) {
        struct bench_rung_params params = {
            .path = bench_method_name(methods[m]),
            .progress = copy->options.progress,
            .rounds = rounds,
            .first_rid = copy->next_rid,
            .work = work,
            .baseline = baseline,
        };

        copy->next_rid += 2 * (rounds + 1);
        fine = bench_rung_measure(&params, seconds[m]);
    }
    if (fine && baseline != NULL) {
        bench_baseline_result(baseline, result_out);
        for (size_t m = 0; m < 2; m++) {
            result_out->rates[methods[m]] = bench_rate_make(seconds[m], rounds, result_out->bytes);
        }
    }
    return fine;
}

static bool bench_copy_shape(struct bench_copy *copy, enum bench_shape shape,
                             struct bench_result *result_out)
{
    uint64_t bytes_max = copy->options.mib << 20;
    struct bench_baseline *baseline = NULL;
    struct bench_work work = {0};
    enum kvf_status status = bench_work_open(shape, bytes_max, copy->options.seed, &work);
    bool fine;

    if (status == KVF_OK && copy->rank == 0) {
        status = bench_baseline_open(shape, bytes_max, copy->options.seed, &baseline);
    }
    if (status != KVF_OK) {
        say("bench copy: %s: %s", bench_shape_name(shape), kvf_status_text(status));
    }
    fine = launched_all(status == KVF_OK) && bench_copy_rungs(copy, &work, baseline, result_out);
    if (baseline != NULL) {
        bench_baseline_close(baseline);
    }
    bench_work_close(&work);
    return fine;
}

static int bench_copy_write(const char *path, const struct bench_result *results, uint32_t count)
{
    json_t *object = bench_json(results, count);
    bool fine = json_file_write("--json", path, object, 2);

    json_decref(object);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

static int bench_copy_all(struct bench_copy *copy)
{
    struct bench_result results[BENCH_SHAPE_COUNT];
    uint32_t count = 0;

    memset(results, 0, sizeof(results));
    for (int s = 0; s < BENCH_SHAPE_COUNT; s++) {
        const char *name = bench_shape_name((enum bench_shape)s);

        if (strcmp(copy->options.shape, "all") != 0 && strcmp(copy->options.shape, name) != 0) {
            continue;
        }
        if (!bench_copy_shape(copy, (enum bench_shape)s, &results[count])) {
            return EXIT_WRONG;
        }
        count++;
    }
    if (copy->rank != 0) {
        return EXIT_RIGHT;
    }
    bench_print(stdout, results, count);
    return copy->options.json == NULL ? EXIT_RIGHT
                                      : bench_copy_write(copy->options.json, results, count);
}

int bench_copy(int argc, char **argv)
{
    struct bench_copy copy = {.next_rid = 1};
    char text[OPTIONS_TEXT_BYTES] = "";
    bool parsed = options_parse(bench_copy_rows, argc, argv, &copy.options, text) &&
                  json_file_fits("--json", copy.options.json, text, sizeof(text));
    int code;

    if (parsed && copy.options.help) {
        bench_copy_help();
        return EXIT_RIGHT;
    }
    return launched_start_pair("bench copy", parsed, text, &copy.rank, &code)
               ? launched_end(bench_copy_all(&copy))
               : code;
}
