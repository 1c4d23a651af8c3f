/*
 * trace.h - request traces: JSON Lines with timestamp (ms), input_length, output_length and
 * hash_ids, and the built-in generator of traces of the same form.
 *
 * trace.c reads files (jansson); trace_make.c is pure. No MPI.
 */
#ifndef LAUNCH_TRACE_H
#define LAUNCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A hash id stands for this many tokens of a prompt, and for all tokens before them. */
#define TRACE_HASH_TOKENS 512u
#define TRACE_REQUESTS_MAX 1000000u
#define TRACE_TOKENS_MAX 16777216u
#define TRACE_TEXT_BYTES 512

struct trace_request {
    double timestamp_ms;
    uint32_t input_length; /* tokens, 1 or more */
    uint32_t output_length;
    uint32_t hash_count; /* whole hash blocks of the prompt that have an id */
    uint32_t reserved;
    uint64_t hash_first; /* into struct trace.hashes */
};

struct trace {
    uint32_t request_count;
    uint64_t hash_count;
    struct trace_request *requests; /* owns */
    uint64_t *hashes;               /* owns */
};

/* What is taken of a trace. */
struct trace_take {
    uint32_t requests;   /* at most so many; 0 = all */
    uint32_t max_tokens; /* longer prompts are cut to this; 0 = never */
};

/*
 * Reads a file. False: text_out (TRACE_TEXT_BYTES long) has the file, the line and the reason. A
 * file without requests is an error. `trace_out` gives: trace_free().
 */
bool trace_load(const char *path, const struct trace_take *take, struct trace *trace_out,
                char *text_out);

/*
 * Makes a trace: lengths by the quantiles, bursts every 3 s and prefix sharing of a trace of a
 * conversation service (docs/run.md, "Without a trace"). Alike for the same seed. take->requests
 * must not be 0. False: no memory.
 */
bool trace_make(uint64_t seed, const struct trace_take *take, struct trace *trace_out);

/* Adds a request, cut to take->max_tokens; its ids are copied. False: no memory. */
bool trace_append(struct trace *trace, const struct trace_take *take,
                  const struct trace_request *request, const uint64_t *hashes);

/* Frees what the trace owns; an empty one is fine. */
void trace_free(struct trace *trace);

#endif /* LAUNCH_TRACE_H */
