/*
 * bench_report.c - rates, ratios, the table and the JSON of `kvferry bench copy`; see bench.h.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kernels/kernels.h"

static const char *const method_names[BENCH_METHOD_COUNT] = {
    [BENCH_MEMCPY] = "memcpy",       [BENCH_LIMIT] = "limit",
    [BENCH_COPY_HOST] = "copy_host", [BENCH_COPY_HOST_STEPS] = "copy_host_steps",
    [BENCH_MAPPED] = "mapped",       [BENCH_DIRECT] = "direct",
};

/* What the table and JSON compare: those with a goal, then those one wants to see. */
struct ratio_row {
    enum bench_method method;
    enum bench_method to;
    const char *name;  /* in JSON */
    const char *title; /* in the table */
};

static const struct ratio_row ratios[] = {
    {BENCH_COPY_HOST, BENCH_LIMIT, "copy_host_to_limit", "copy/lim"},
    {BENCH_MAPPED, BENCH_LIMIT, "mapped_to_limit", "map/lim"},
    {BENCH_MAPPED, BENCH_MEMCPY, "mapped_to_memcpy", "map/mem"},
    {BENCH_MAPPED, BENCH_DIRECT, "mapped_to_direct", "map/dir"},
};
enum { RATIO_COUNT = sizeof(ratios) / sizeof(ratios[0]) };

const char *bench_method_name(enum bench_method method)
{
    return method_names[method];
}

static int compare_seconds(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;

    return (a > b) - (a < b);
}

struct bench_rate bench_rate_make(const double *seconds, uint32_t rounds, uint64_t bytes)
{
    double sorted[BENCH_ROUNDS_MAX];
    double gigabytes = (double)bytes * 1e-9;

    if (rounds == 0 || rounds > BENCH_ROUNDS_MAX) {
        return (struct bench_rate){0};
    }
    memcpy(sorted, seconds, rounds * sizeof(*seconds));
    qsort(sorted, rounds, sizeof(*sorted), compare_seconds);
    if (sorted[0] <= 0) {
        return (struct bench_rate){0};
    }
    return (struct bench_rate){
        .best = gigabytes / sorted[0],
        .median = gigabytes / sorted[rounds / 2],
    };
}

double bench_ratio(const struct bench_result *result, enum bench_method method,
                   enum bench_method to)
{
    double base = result->rates[to].best;

    return base > 0 ? result->rates[method].best / base : 0;
}

static void print_number(FILE *file, double number, int width)
{
    if (number > 0) {
        fprintf(file, " %*.2f", width, number);
    } else {
        fprintf(file, " %*s", width, "-");
    }
}

void bench_print(FILE *file, const struct bench_result *results, uint32_t count)
{
    fprintf(file, "GB/s, the best round (in brackets the median); host copy: %s\n",
            copy_host_isa_name(copy_host_isa_get()));
    fprintf(file, "%-6s %9s %9s", "shape", "MB", "fragments");
    for (int method = 0; method < BENCH_METHOD_COUNT; method++) {
        fprintf(file, " %15s", method_names[method]);
    }
    for (int i = 0; i < RATIO_COUNT; i++) {
        fprintf(file, " %8s", ratios[i].title);
    }
    fprintf(file, "  limit's loop\n");
    for (uint32_t k = 0; k < count; k++) {
        const struct bench_result *result = &results[k];
        fprintf(file, "%-6s %9.1f %9" PRIu64, bench_shape_name(result->shape),
                (double)result->bytes * 1e-6, result->fragments);
        for (int method = 0; method < BENCH_METHOD_COUNT; method++) {
            const struct bench_rate *rate = &result->rates[method];
            char median[16] = "";
            if (rate->median > 0) {
                snprintf(median, sizeof(median), "(%.2f)", rate->median);
            }
            print_number(file, rate->best, 6);
            fprintf(file, " %8s", median);
        }
        for (int i = 0; i < RATIO_COUNT; i++) {
            print_number(file, bench_ratio(result, ratios[i].method, ratios[i].to), 8);
        }
        fprintf(file, "  %s\n", result->limit_loop);
    }
}

static json_t *json_number(double number)
{
    return number > 0 ? json_real(number) : json_null();
}

static json_t *json_rate(const struct bench_rate *rate)
{
    if (rate->best <= 0) {
        return json_null();
    }
    return json_pack("{s:f, s:f}", "best", rate->best, "median", rate->median);
}

static json_t *json_result(const struct bench_result *result)
{
    json_t *ratio = json_object();
    json_t *shape =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "shape", bench_shape_name(result->shape),
                  "bytes", (json_int_t)result->bytes, "fragments", (json_int_t)result->fragments,
                  "fragment_bytes", (json_int_t)result->fragment_bytes, "rounds",
                  (json_int_t)result->rounds, "limit_loop", result->limit_loop);
    int failed = ratio == NULL || shape == NULL;

    for (int method = 0; method < BENCH_METHOD_COUNT && !failed; method++) {
        failed |=
            json_object_set_new(shape, method_names[method], json_rate(&result->rates[method]));
    }
    for (int i = 0; i < RATIO_COUNT && !failed; i++) {
        failed |=
            json_object_set_new(ratio, ratios[i].name,
                                json_number(bench_ratio(result, ratios[i].method, ratios[i].to)));
    }
    if (failed || json_object_set(shape, "ratios", ratio) != 0) {
        json_decref(shape);
        shape = NULL;
    }
    json_decref(ratio);
    return shape;
}

json_t *bench_json(const struct bench_result *results, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        if (json_array_append_new(list, json_result(&results[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return json_pack("{s:s, s:s, s:o}", "unit", "GB/s", "isa",
                     copy_host_isa_name(copy_host_isa_get()), "shapes", list);
}
