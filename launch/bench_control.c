/*
 * bench_control.c - `kvferry bench control`: what a request costs beside its bytes. Two ranks, one
 * block a request: time of one from the receiver's call to READY, requests a second with
 * several under way, messages a request; beside them the bare active message there and back.
 * Public headers, MPI and bench_ping_ucx.h.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>
#include <kvferry/kvferry_mpi.h>
#include <mpi.h>

#include "bench_commands.h"
#include "bench_ping_ucx.h"
#include "json_file.h"
#include "launched.h"
#include "options.h"
#include "say.h"

#define CONTROL_EVENTS 64u /* taken by one sweep */
#define CONTROL_WARM 2u    /* batches that do not count */
#define CONTROL_DEADLINE_MS 60000u
#define CONTROL_NAP_NS 100000 /* engines with a progress thread, while they wait */

struct bench_control_options {
    uint64_t requests;
    uint64_t at_once;
    uint64_t block_kib;
    const char *progress;
    const char *json;
    bool help;
};

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct bench_control_options, member)

static const struct option_row bench_control_rows[] = {
    {ROW("requests", OPTION_WHOLE, requests), "6400", 1, 10000000, NULL, "N",
     "measured of each kind, in whole batches"},
    {ROW("at-once", OPTION_WHOLE, at_once), "64", 1, 4096, NULL, "N",
     "requests of a batch: the sender opens them before the receiver's clock starts"},
    {ROW("block-kib", OPTION_WHOLE, block_kib), "4", 1, 65536, NULL, "KIB", "bytes of a request"},
    {ROW("progress", OPTION_CHOICE, progress), "both", 0, 0, "both|thread|caller", NULL,
     "who steps the library"},
    {ROW("json", OPTION_TEXT, json), NULL, 0, 0, NULL, "FILE", "write the figures to a file"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void bench_control_help(void)
{
    options_help(bench_control_rows, stdout);
}

/* Figures of one way of progress; rank 1 measures, both have them. */
struct control_result {
    double p50_us, p99_us, max_us;
    double first_us; /* the first request after kvf_publish() */
    double requests_per_s;
    double messages; /* of both ranks, a request */
};

struct control {
    int rank;
    const char *progress;
    uint32_t batches;
    uint32_t batch;       /* requests */
    uint32_t block_bytes; /* a multiple of 8 */
    bool caller;
    struct kvf *kvf;
    struct kvf_pool *pool;
    struct kvf_topology *topology;
    uint64_t iteration;
    uint64_t next_rid;
};

static double control_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Once an iteration: the library's step, or the core for those who make it. */
static void control_rest(const struct control *control)
{
    const struct timespec nap = {0, CONTROL_NAP_NS};

    if (!control->caller) {
        nanosleep(&nap, NULL);
    } else if (kvf_progress(control->kvf) != KVF_OK) {
        sched_yield();
    }
}

static void control_barrier(const struct control *control)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done) {
        control_rest(control);
    }
}

static bool control_publish(struct control *control)
{
    static uint32_t layer;
    const uint32_t block_bytes = control->block_bytes;
    struct kvf_entry entry = {.role = KVF_KEY, .size = block_bytes};
    struct kvf_pool_shape shape = {.slot_bytes = block_bytes, .slot_stride = block_bytes};
    struct kvf_view view = {
        .kind = KVF_VIEW_HND,
        .has_heads = true,
        .has_heads_total = true,
        .heads = 1,
        .heads_total = 1,
        .role_count = 1,
        .roles = {KVF_KEY},
        .entry_count = 1,
        .entries = &entry,
    };
    struct kvf_group group = {
        .group_class = KVF_GROUP_PAGED,
        .layer_count = 1,
        .layers = &layer,
        .view_count = 1,
        .views = &view,
    };
    const struct kvf_layout layout = {
        .tokens_per_block = 1,
        .kv_heads = 1,
        .head_dim = block_bytes,
        .elem_bits = 8,
        .pool_count = 1,
        .pools = &shape,
        .group_count = 1,
        .groups = &group,
    };
    enum kvf_status status = kvf_publish(control->kvf, &layout, &control->pool);

    if (status != KVF_OK) {
        say("bench control: cannot connect: %s", kvf_status_text(status));
    }
    return status == KVF_OK;
}

/* Every page of the sender differs in every word; the receiver's are 0. */
static uint64_t control_word(uint64_t slot, uint64_t word)
{
    return ((slot << 32) + word + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void control_fill(const struct control *control)
{
    uint64_t *words = kvf_pool_base(control->pool);
    uint64_t page = control->block_bytes / sizeof(*words);

    for (uint64_t i = 0; i < control->batch * page; i++) {
        words[i] = control->rank == 0 ? control_word(i / page, i % page) : 0;
    }
}

static bool control_content_right(const struct control *control)
{
    const uint64_t *words = kvf_pool_base(control->pool);
    uint64_t page = control->block_bytes / sizeof(*words);
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < control->batch * page; i++) {
        wrong += words[i] != control_word(i / page, i % page);
    }
    if (wrong > 0) {
        say("bench control: %llu words are wrong", (unsigned long long)wrong);
    }
    return wrong == 0;
}

static bool control_open(struct control *control)
{
    struct kvf_open_params open = KVF_OPEN_PARAMS_INIT;
    struct kvf_pool_params pool = KVF_POOL_PARAMS_INIT;
    enum kvf_status status;
    char text[256];

    if (kvf_topology_parse("ctx layers=1; gen layers=1", &control->topology, text, sizeof(text)) !=
        KVF_OK) {
        say("bench control: %s", text);
        return false;
    }
    snprintf(text, sizeof(text), "all:\n  progress: %s\n  log_level: warn\n", control->progress);
    open.topology = control->topology;
    open.settings_text = text;
    open.requests_max = control->batch;
    open.blocks_max = control->batch;
    status = kvf_open_mpi(MPI_COMM_WORLD, &open, &control->kvf);
    if (status != KVF_OK) {
        say("bench control: cannot open: %s", kvf_status_text(status));
        return false;
    }
    pool.slot_bytes = control->block_bytes;
    pool.slots = control->batch;
    status = kvf_pool_alloc(control->kvf, &pool, &control->pool);
    if (!launched_all(status == KVF_OK)) {
        say("bench control: no pool: %s", kvf_status_text(status));
        return false;
    }
    control_fill(control);
    return control_publish(control);
}

/* Sweeps once; counts what was released. False: a request failed. */
static bool control_sweep(struct control *control, uint32_t *released)
{
    struct kvf_event events[CONTROL_EVENTS];
    size_t count = 0;
    enum kvf_status status =
        kvf_sweep(control->kvf, control->iteration, events, CONTROL_EVENTS, &count);

    if (status < 0) {
        say("bench control: rank %d: %s", control->rank, kvf_status_text(status));
        return false;
    }
    control->iteration += status == KVF_OK;
    for (size_t i = 0; i < count; i++) {
        if (events[i].kind == KVF_EVENT_FAILED || events[i].kind == KVF_EVENT_CANCELLED) {
            say("bench control: rank %d: request %llu failed: %s", control->rank,
                (unsigned long long)events[i].rid, kvf_status_text(events[i].status));
            return false;
        }
        *released += events[i].kind == KVF_EVENT_RELEASED;
    }
    return true;
}

static bool control_drain(struct control *control)
{
    double end_s = control_now_s() + CONTROL_DEADLINE_MS / 1e3;
    uint32_t released = 0;

    while (released < control->batch) {
        uint32_t before = released;

        if (!control_sweep(control, &released)) {
            return false;
        }
        if (control_now_s() > end_s) {
            say("bench control: rank %d: %u requests do not end", control->rank,
                control->batch - released);
            return false;
        }
        if (released == before) {
            control_rest(control);
        }
    }
    return true;
}

static enum kvf_status control_send_one(struct control *control, uint32_t slot)
{
    struct kvf_send_params send = KVF_SEND_PARAMS_INIT;
    struct kvf_window window = KVF_WINDOW_INIT;
    struct kvf_block_list list = {0, 1, &slot};
    enum kvf_status status;

    send.rid = control->next_rid + slot;
    send.prompt_tokens = 1;
    send.destination.instance = 1;
    send.destination.dp_group = 0;
    send.list_count = 1;
    send.lists = &list;
    status = kvf_send_open(control->kvf, &send);
    return status == KVF_OK ? kvf_send_blocks(control->kvf, send.rid, &window) : status;
}

static enum kvf_status control_receive_one(struct control *control, uint32_t slot, bool alone)
{
    struct kvf_recv_params recv = KVF_RECV_PARAMS_INIT;
    struct kvf_block_list list = {0, 1, &slot};
    struct kvf_event event = {0};
    enum kvf_status status;

    recv.rid = control->next_rid + slot;
    recv.prompt_tokens = 1;
    recv.source.instance = 0;
    recv.source.dp_group = 0;
    recv.list_count = 1;
    recv.lists = &list;
    recv.synchronous = alone;
    status = kvf_recv_open(control->kvf, &recv);
    if (status != KVF_OK || !alone) {
        return status;
    }
    status = kvf_wait(control->kvf, recv.rid, CONTROL_DEADLINE_MS, &event);
    return status == KVF_OK && event.kind != KVF_EVENT_READY ? event.status : status;
}

/*
 * One batch: the sender opens its requests, then the receiver's clock starts. `alone`: one after
 * the other, the seconds of each; else all at once, and seconds_out[0] is until the last was
 * released.
 */
static bool control_batch(struct control *control, bool alone, double *seconds_out)
{
    enum kvf_status status = KVF_OK;
    double start_s = 0;
    bool fine;

    control_barrier(control);
    for (uint32_t slot = 0; control->rank == 0 && slot < control->batch && status == KVF_OK;
         slot++) {
        status = control_send_one(control, slot);
    }
    while (control->caller && kvf_progress(control->kvf) == KVF_OK) {
    }
    control_barrier(control);
    start_s = control_now_s();
    for (uint32_t slot = 0; control->rank == 1 && slot < control->batch && status == KVF_OK;
         slot++) {
        double one_s = control_now_s();

        status = control_receive_one(control, slot, alone);
        if (alone) {
            seconds_out[slot] = control_now_s() - one_s;
        }
    }
    if (status != KVF_OK) {
        say("bench control: rank %d: a request fails: %s", control->rank, kvf_status_text(status));
    }
    fine = status == KVF_OK && control_drain(control);
    if (!alone) {
        seconds_out[0] = control_now_s() - start_s;
    }
    control->next_rid += control->batch;
    return launched_all(fine);
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* In us; sorts. */
static double control_quantile(double *seconds, size_t count, double part)
{
    qsort(seconds, count, sizeof(*seconds), compare_seconds);
    return seconds[(size_t)((double)(count - 1) * part)] * 1e6;
}

static uint64_t control_messages(const struct control *control)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;
    uint64_t sum = 0;

    kvf_counters(control->kvf, &counters);
    MPI_Allreduce(&counters.control_messages, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum;
}

/* Both kinds; seconds has room for all requests. */
static bool control_batches(struct control *control, double *seconds, struct control_result *result)
{
    uint32_t batches = control->batches;
    uint64_t messages = 0;
    double total_s = 0;

    for (uint32_t b = 0; b < CONTROL_WARM + batches; b++) {
        uint32_t at = b < CONTROL_WARM ? 0 : b - CONTROL_WARM;

        if (b == CONTROL_WARM) {
            messages = control_messages(control);
        }
        if (!control_batch(control, true, seconds + (size_t)at * control->batch)) {
            return false;
        }
        if (b == 0) {
            result->first_us = seconds[0] * 1e6;
        }
    }
    messages = control_messages(control) - messages;
    for (uint32_t b = 0; b < CONTROL_WARM + batches; b++) {
        double batch_s = 0;

        if (!control_batch(control, false, &batch_s)) {
            return false;
        }
        total_s += b < CONTROL_WARM ? 0 : batch_s;
    }
    size_t count = (size_t)batches * control->batch;
    result->p50_us = control_quantile(seconds, count, 0.5);
    result->p99_us = control_quantile(seconds, count, 0.99);
    result->max_us = control_quantile(seconds, count, 1);
    result->requests_per_s = (double)count / total_s;
    result->messages = (double)messages / (double)count;
    MPI_Bcast(result, sizeof(*result), MPI_BYTE, 1, MPI_COMM_WORLD);
    return launched_all(control->rank == 0 || control_content_right(control));
}

static bool control_measure(struct control *control, double *seconds, struct control_result *result)
{
    bool fine = launched_all(control_open(control));

    if (fine) {
        control->caller = strcmp(control->progress, "caller") == 0;
        fine = control_batches(control, seconds, result);
    }
    if (kvf_close(control->kvf, CONTROL_DEADLINE_MS) != KVF_OK) {
        say("bench control: rank %d: closed with something left over", control->rank);
        fine = false;
    }
    kvf_topology_free(control->topology);
    return launched_all(fine);
}

static int control_write(const struct bench_control_options *options, const double *ping_us,
                         uint64_t requests, json_t *modes)
{
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:I, s:{s:i, s:f, s:f}, s:O}", "unit", "us", "block_bytes",
                  (json_int_t)options->block_kib * 1024, "at_once", (json_int_t)options->at_once,
                  "requests", (json_int_t)requests, "ping_pong", "bytes", (int)BENCH_PING_BYTES,
                  "p50", ping_us[0], "p99", ping_us[1], "modes", modes);
    bool fine = json_file_write("--json", options->json, object, 2);

    json_decref(object);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

static json_t *control_print(const char *progress, const struct control_result *result,
                             double ping_us)
{
    printf("%-9s %9.2f %9.2f %9.2f %9.2f %11.0f %9.2f %10.1f\n", progress, result->p50_us,
           result->p99_us, result->max_us, result->first_us, result->requests_per_s,
           result->messages, result->p50_us / ping_us);
    return json_pack("{s:s, s:{s:f, s:f, s:f, s:f}, s:f, s:f, s:f}", "progress", progress,
                     "latency", "p50", result->p50_us, "p99", result->p99_us, "max", result->max_us,
                     "first", result->first_us, "requests_per_s", result->requests_per_s,
                     "messages_per_request", result->messages, "p50_to_ping_pong",
                     result->p50_us / ping_us);
}

static int control_all(const struct bench_control_options *options, int rank)
{
    static const char *const modes[] = {"caller", "thread"};
    uint32_t batch = (uint32_t)options->at_once;
    uint32_t batches = (uint32_t)((options->requests + batch - 1) / batch);
    uint32_t requests = batches * batch;
    double *seconds = calloc(requests, sizeof(*seconds));
    json_t *rows = json_array();
    uint64_t next_rid = 1;
    double ping_us[2];
    int code = EXIT_WRONG;

    if (!launched_all(seconds != NULL && rows != NULL) || !bench_ping_measure(requests, seconds)) {
        goto free_rows;
    }
    ping_us[0] = control_quantile(seconds, requests, 0.5);
    ping_us[1] = control_quantile(seconds, requests, 0.99);
    if (rank == 0) {
        printf("%u B there and back by an active message: p50 %.2f us, p99 %.2f us\n",
               BENCH_PING_BYTES, ping_us[0], ping_us[1]);
        printf("one block of %u KiB, from call to READY, us; and %u requests at once\n",
               (unsigned)options->block_kib, batch);
        printf("%-9s %9s %9s %9s %9s %11s %9s %10s\n", "progress", "p50", "p99", "max", "first",
               "requests/s", "messages", "p50/ping");
    }
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        struct control control = {.rank = rank,
                                  .progress = modes[m],
                                  .batches = batches,
                                  .batch = batch,
                                  .block_bytes = (uint32_t)options->block_kib * 1024,
                                  .next_rid = next_rid};
        struct control_result result;

        if (strcmp(options->progress, "both") != 0 && strcmp(options->progress, modes[m]) != 0) {
            continue;
        }
        if (!control_measure(&control, seconds, &result)) {
            goto free_rows;
        }
        next_rid = control.next_rid;
        if (rank == 0) {
            json_array_append_new(rows, control_print(modes[m], &result, ping_us[0]));
        }
    }
    code = rank == 0 && options->json != NULL ? control_write(options, ping_us, requests, rows)
                                              : EXIT_RIGHT;

free_rows:
    json_decref(rows);
    free(seconds);
    return code;
}

int bench_control(int argc, char **argv)
{
    struct bench_control_options options;
    char text[OPTIONS_TEXT_BYTES] = "";
    bool parsed = options_parse(bench_control_rows, argc, argv, &options, text) &&
                  json_file_fits("--json", options.json, text, sizeof(text));
    int rank, code;

    if (parsed && options.help) {
        bench_control_help();
        return EXIT_RIGHT;
    }
    return launched_start_pair("bench control", parsed, text, &rank, &code)
               ? launched_end(control_all(&options, rank))
               : code;
}
