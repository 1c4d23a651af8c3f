/* Unit tests of launch/trace.c and trace_make.c: reading and making request traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "scratch.h"
#include "trace.h"

static bool load(const char *text, const struct trace_take *take, struct trace *trace, char *reason)
{
    char path[SCRATCH_PATH_BYTES];
    bool fine;

    scratch_write(".jsonl", text, path);
    reason[0] = '\0';
    fine = trace_load(path, take, trace, reason);
    scratch_remove(path);
    return fine;
}

static void trace_reads_lines(void **state)
{
    static const char text[] =
        "{\"timestamp\": 0, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [7, 8, "
        "9]}\n"
        "\n"
        "{\"timestamp\": 2.5, \"input_length\": 3, \"output_length\": 0}\n"
        "{\"timestamp\": 3, \"input_length\": 1024, \"output_length\": 1, \"hash_ids\": [7, 1]}";
    struct trace_take take = {0, 0};
    char reason[TRACE_TEXT_BYTES];
    struct trace trace;

    (void)state;
    assert_true(load(text, &take, &trace, reason));
    assert_int_equal(trace.request_count, 3);
    assert_int_equal(trace.requests[0].input_length, 1500);
    assert_int_equal(trace.requests[0].hash_count, 2);
    assert_int_equal(trace.hashes[trace.requests[0].hash_first + 1], 8);
    assert_true(trace.requests[1].timestamp_ms == 2.5);
    assert_int_equal(trace.requests[1].hash_count, 0);
    assert_int_equal(trace.requests[2].hash_count, 2);
    assert_int_equal(trace.hashes[trace.requests[2].hash_first + 1], 1);
    trace_free(&trace);
}

static void trace_takes_what_was_asked(void **state)
{
    static const char text[] =
        "{\"timestamp\":0,\"input_length\":1500,\"output_length\":5,\"hash_ids\":[7,8,9]}\n"
        "{\"timestamp\":1,\"input_length\":600,\"output_length\":5,\"hash_ids\":[7,8]}\n"
        "broken, but beyond what was asked for\n";
    struct trace_take take = {2, 700};
    char reason[TRACE_TEXT_BYTES];
    struct trace trace;

    (void)state;
    assert_true(load(text, &take, &trace, reason));
    assert_int_equal(trace.request_count, 2);
    assert_int_equal(trace.requests[0].input_length, 700);
    assert_int_equal(trace.requests[0].hash_count, 1);
    assert_int_equal(trace.requests[1].input_length, 600);
    trace_free(&trace);
}

static void trace_names_file_and_line_of_what_is_wrong(void **state)
{
    static const char good[] = "{\"timestamp\":5,\"input_length\":1,\"output_length\":5}\n";
    static const struct {
        const char *line, *says;
    } wrong[] = {
        {"{\"timestamp\":5,\"input_length\":1,", "line 2: column"},
        {"[1]", "line 2: not an object"},
        {"7", "line 2: not an object"},
        {"{\"input_length\":1,\"output_length\":5}", "line 2: timestamp is missing"},
        {"{\"timestamp\":6,\"output_length\":5}", "line 2: input_length is missing"},
        {"{\"timestamp\":6,\"input_length\":1}", "line 2: output_length is missing"},
        {"{\"timestamp\":\"6\",\"input_length\":1,\"output_length\":5}", "timestamp is wrong"},
        {"{\"timestamp\":-1,\"input_length\":1,\"output_length\":5}", "timestamp is wrong"},
        {"{\"timestamp\":4,\"input_length\":1,\"output_length\":5}", "timestamp 4 is before"},
        {"{\"timestamp\":6,\"input_length\":0,\"output_length\":5}",
         "input_length is wrong; want a whole number from 1 to"},
        {"{\"timestamp\":6,\"input_length\":1.5,\"output_length\":5}", "input_length is wrong"},
        {"{\"timestamp\":6,\"input_length\":99999999,\"output_length\":5}",
         "input_length is wrong"},
        {"{\"timestamp\":6,\"input_length\":1,\"output_length\":-5}", "output_length is wrong"},
        {"{\"timestamp\":6,\"input_length\":1,\"output_length\":5,\"hash_id\":[]}",
         "unknown key \"hash_id\"; the nearest is hash_ids"},
        {"{\"timestamp\":6,\"input_length\":1,\"output_length\":5,\"hash_ids\":3}",
         "hash_ids is wrong; want a list"},
        {"{\"timestamp\":6,\"input_length\":600,\"output_length\":5,\"hash_ids\":[1,2,3]}",
         "hash_ids has 3 ids; want 2"},
        {"{\"timestamp\":6,\"input_length\":600,\"output_length\":5,\"hash_ids\":[1,\"2\"]}",
         "hash_ids[1] is wrong"},
        {"{\"timestamp\":6,\"timestamp\":6,\"input_length\":1,\"output_length\":5}", "duplicate"},
    };
    struct trace_take take = {0, 0};
    char reason[TRACE_TEXT_BYTES];
    char text[512];
    struct trace trace = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(text, sizeof(text), "%s%s\n", good, wrong[i].line);
        if (load(text, &take, &trace, reason) || strstr(reason, wrong[i].says) == NULL ||
            strstr(reason, ".jsonl, line 2: ") == NULL) {
            fail_msg("%s: \"%s\", want \"%s\"", wrong[i].line, reason, wrong[i].says);
        }
    }
    assert_false(load("\n\n", &take, &trace, reason));
    assert_non_null(strstr(reason, "no requests in it"));
    assert_false(trace_load("/nowhere/at.jsonl", &take, &trace, reason));
    assert_non_null(strstr(reason, "/nowhere/at.jsonl: No such file"));
}

static int by_length(const void *a, const void *b)
{
    const struct trace_request *x = a, *y = b;

    return (x->input_length > y->input_length) - (x->input_length < y->input_length);
}

static void made_trace_has_the_stated_distribution(void **state)
{
    struct trace_take take = {20000, 0};
    struct trace trace;
    uint64_t highest = 0;
    double mean = 0, shared = 0;

    (void)state;
    assert_true(trace_make(3, &take, &trace));
    assert_int_equal(trace.request_count, 20000);
    for (uint32_t i = 0; i < trace.request_count; i++) {
        const struct trace_request *request = &trace.requests[i];

        assert_in_range(request->input_length, 891, 126195);
        assert_int_equal(request->hash_count, request->input_length / TRACE_HASH_TOKENS);
        assert_int_equal(trace.hashes[request->hash_first], 0);
        assert_true(i == 0 || request->timestamp_ms >= trace.requests[i - 1].timestamp_ms);
        mean += request->input_length / 20000.0;
    }
    for (uint32_t i = 0; i < trace.request_count; i++) {
        const struct trace_request *request = &trace.requests[i];

        shared += request->hash_count > 1 && trace.hashes[request->hash_first + 1] <= highest;
        for (uint32_t k = 0; k < request->hash_count; k++) {
            uint64_t id = trace.hashes[request->hash_first + k];

            highest = id > highest ? id : highest; /* new ids count up */
        }
    }
    assert_in_range((int)mean, 11000, 13500);
    assert_in_range((int)(shared / 200), 33, 45); /* percent that continue an earlier one */
    assert_in_range((int)(trace.requests[19999].timestamp_ms / 1000), 5000, 7000);
    qsort(trace.requests, trace.request_count, sizeof(*trace.requests), by_length);
    assert_in_range(trace.requests[10000].input_length, 6400, 7400);
    assert_in_range(trace.requests[18000].input_length, 25500, 29500);
    trace_free(&trace);
}

static void made_trace_follows_from_the_seed(void **state)
{
    struct trace_take take = {300, 4096};
    struct trace a, b, c;

    (void)state;
    assert_true(trace_make(3, &take, &a));
    assert_true(trace_make(3, &take, &b));
    assert_true(trace_make(4, &take, &c));
    assert_int_equal(a.hash_count, b.hash_count);
    assert_memory_equal(a.requests, b.requests, 300 * sizeof(*a.requests));
    assert_memory_equal(a.hashes, b.hashes, a.hash_count * sizeof(*a.hashes));
    assert_memory_not_equal(a.requests, c.requests, 300 * sizeof(*a.requests));
    for (uint32_t i = 0; i < 300; i++) {
        assert_in_range(a.requests[i].input_length, 1, 4096);
        assert_in_range(a.requests[i].hash_count, 0, 8);
    }
    trace_free(&a);
    trace_free(&b);
    trace_free(&c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(trace_reads_lines),
        cmocka_unit_test(trace_takes_what_was_asked),
        cmocka_unit_test(trace_names_file_and_line_of_what_is_wrong),
        cmocka_unit_test(made_trace_has_the_stated_distribution),
        cmocka_unit_test(made_trace_follows_from_the_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
