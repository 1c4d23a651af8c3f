/* trace.c - reads traces: see trace.h. */
#include "trace.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "options.h"
#include "say.h"

#define TRACE_LINE_MAX (4u << 20)

static const char *const trace_keys[] = {"timestamp", "input_length", "output_length", "hash_ids"};
#define TRACE_KEY_COUNT (sizeof(trace_keys) / sizeof(trace_keys[0]))

struct trace_reader {
    const char *path;
    uint64_t line;
    char *text_out;
};

SAY_PRINTF(2, 3)
static bool trace_refuse(const struct trace_reader *reader, const char *format, ...)
{
    int len = snprintf(reader->text_out, TRACE_TEXT_BYTES,
                       "trace %.200s, line %llu: ", reader->path, (unsigned long long)reader->line);
    va_list args;

    va_start(args, format);
    vsnprintf(reader->text_out + len, TRACE_TEXT_BYTES - (size_t)len, format, args);
    va_end(args);
    return false;
}

/* Room for one more: capacities are the powers of two, so the count alone tells when to grow. */
static bool trace_grow(void **array, uint64_t count, uint64_t more, size_t size)
{
    uint64_t room = 16;
    void *larger;

    while (room < count) {
        room *= 2;
    }
    if (*array != NULL && count + more <= room) {
        return true;
    }
    while (room < count + more) {
        room *= 2;
    }
    larger = realloc(*array, room * size);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    return true;
}

bool trace_append(struct trace *trace, const struct trace_take *take,
                  const struct trace_request *request, const uint64_t *hashes)
{
    struct trace_request cut = *request;
    void *requests = trace->requests;
    void *ids = trace->hashes;
    bool fine;

    if (take->max_tokens != 0 && cut.input_length > take->max_tokens) {
        cut.input_length = take->max_tokens;
    }
    if (cut.hash_count > cut.input_length / TRACE_HASH_TOKENS) {
        cut.hash_count = cut.input_length / TRACE_HASH_TOKENS;
    }
    cut.hash_first = trace->hash_count;
    fine = trace_grow(&requests, trace->request_count, 1, sizeof(*trace->requests));
    trace->requests = requests;
    fine = fine && trace_grow(&ids, trace->hash_count, cut.hash_count, sizeof(*trace->hashes));
    trace->hashes = ids;
    if (!fine) {
        return false;
    }
    if (cut.hash_count > 0) {
        memcpy(trace->hashes + trace->hash_count, hashes, cut.hash_count * sizeof(*hashes));
    }
    trace->hash_count += cut.hash_count;
    trace->requests[trace->request_count++] = cut;
    return true;
}

void trace_free(struct trace *trace)
{
    free(trace->requests);
    free(trace->hashes);
    memset(trace, 0, sizeof(*trace));
}

/* A whole number of the object; a missing one is an error. */
static bool trace_whole(const struct trace_reader *reader, const json_t *object, const char *key,
                        uint32_t low, uint32_t *value_out)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL) {
        return trace_refuse(reader, "%s is missing", key);
    }
    if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)low ||
        json_integer_value(value) > (json_int_t)TRACE_TOKENS_MAX) {
        return trace_refuse(reader, "%s is wrong; want a whole number from %u to %u", key, low,
                            TRACE_TOKENS_MAX);
    }
    *value_out = (uint32_t)json_integer_value(value);
    return true;
}

static bool trace_keys_known(const struct trace_reader *reader, json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value)
    {
        bool known = false;
        const char *near;

        for (size_t i = 0; i < TRACE_KEY_COUNT; i++) {
            known = known || strcmp(key, trace_keys[i]) == 0;
        }
        if (known) {
            continue;
        }
        near = options_nearest(key, trace_keys, TRACE_KEY_COUNT);
        return trace_refuse(reader, "unknown key \"%.60s\"%s%s", key,
                            near != NULL ? "; the nearest is " : "", near != NULL ? near : "");
    }
    return true;
}

/* The ids of whole hash blocks; `ids_out` is freed by the caller. */
static bool trace_hash_ids(const struct trace_reader *reader, const json_t *object,
                           struct trace_request *request, uint64_t **ids_out)
{
    const json_t *list = json_object_get(object, "hash_ids");
    uint32_t whole = request->input_length / TRACE_HASH_TOKENS;
    uint32_t all = (request->input_length + TRACE_HASH_TOKENS - 1) / TRACE_HASH_TOKENS;
    size_t count;

    if (list == NULL) {
        return true;
    }
    if (!json_is_array(list)) {
        return trace_refuse(reader, "hash_ids is wrong; want a list of whole numbers");
    }
    count = json_array_size(list);
    if (count != whole && count != all) {
        return trace_refuse(reader, "hash_ids has %zu ids; want %u, one for each %u tokens", count,
                            all, TRACE_HASH_TOKENS);
    }
    *ids_out = malloc((count + 1) * sizeof(**ids_out));
    if (*ids_out == NULL) {
        return trace_refuse(reader, "no memory");
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(list, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0) {
            return trace_refuse(reader, "hash_ids[%zu] is wrong; want a whole number of 0 or more",
                                i);
        }
        (*ids_out)[i] = (uint64_t)json_integer_value(id);
    }
    request->hash_count = whole;
    return true;
}

/* One object of the trace into the list. */
static bool trace_object(const struct trace_reader *reader, json_t *object,
                         const struct trace_take *take, struct trace *trace)
{
    const json_t *timestamp = json_object_get(object, "timestamp");
    struct trace_request request = {0};
    uint64_t *ids = NULL;
    bool fine;

    if (!json_is_object(object)) {
        return trace_refuse(reader, "not an object");
    }
    if (!trace_keys_known(reader, object)) {
        return false;
    }
    if (timestamp == NULL) {
        return trace_refuse(reader, "timestamp is missing");
    }
    request.timestamp_ms = json_number_value(timestamp);
    if (!json_is_number(timestamp) || request.timestamp_ms < 0 || request.timestamp_ms > 1e15) {
        return trace_refuse(reader, "timestamp is wrong; want milliseconds of 0 or more");
    }
    if (trace->request_count > 0 &&
        request.timestamp_ms < trace->requests[trace->request_count - 1].timestamp_ms) {
        return trace_refuse(reader, "timestamp %.0f is before the one of the line above",
                            request.timestamp_ms);
    }
    fine = trace_whole(reader, object, "input_length", 1, &request.input_length) &&
           trace_whole(reader, object, "output_length", 0, &request.output_length) &&
           trace_hash_ids(reader, object, &request, &ids);
    if (fine && !trace_append(trace, take, &request, ids)) {
        fine = trace_refuse(reader, "no memory");
    }
    free(ids);
    return fine;
}

static bool trace_line(const struct trace_reader *reader, const char *line, size_t len,
                       const struct trace_take *take, struct trace *trace)
{
    json_error_t error;
    json_t *object;
    bool fine;

    if (len > TRACE_LINE_MAX) {
        return trace_refuse(reader, "longer than %u bytes", TRACE_LINE_MAX);
    }
    object = json_loadb(line, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (object == NULL) {
        return trace_refuse(reader, "column %d: %.150s", error.column, error.text);
    }
    fine = trace_object(reader, object, take, trace);
    json_decref(object);
    return fine;
}

bool trace_load(const char *path, const struct trace_take *take, struct trace *trace_out,
                char *text_out)
{
    struct trace_reader reader = {path, 0, text_out};
    struct trace trace = {0};
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    bool fine = true;

    if (file == NULL) {
        snprintf(text_out, TRACE_TEXT_BYTES, "trace %.200s: %s", path, strerror(errno));
        return false;
    }
    while (fine && (take->requests == 0 || trace.request_count < take->requests) &&
           (len = getline(&line, &room, file)) >= 0) {
        reader.line++;
        if (line[strspn(line, " \t\r\n")] == '\0' && strlen(line) == (size_t)len) {
            continue;
        }
        if (trace.request_count == TRACE_REQUESTS_MAX) {
            fine = trace_refuse(&reader, "more than %u requests", TRACE_REQUESTS_MAX);
        } else {
            fine = trace_line(&reader, line, (size_t)len, take, &trace);
        }
    }
    if (fine && (ferror(file) || trace.request_count == 0)) {
        snprintf(text_out, TRACE_TEXT_BYTES, "trace %.200s: %s", path,
                 ferror(file) ? "cannot be read" : "no requests in it");
        fine = false;
    }
    free(line);
    fclose(file);
    if (!fine) {
        trace_free(&trace);
        return false;
    }
    *trace_out = trace;
    return true;
}
