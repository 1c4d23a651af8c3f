/*
 * bench.h - what `kvferry bench copy` measures without a world: workloads as stripes, the plain
 * loops, the limit of one core, and the host copy; and the report that the rungs are added to.
 *
 * A round measures every loop once, in a rotating order. The rungs mapped and direct are whole
 * requests between two ranks: whoever runs them calls bench_baseline_round() between two of their
 * requests, on the rank and core that also pushes, so that all numbers are of one run.
 * One thread. Rates are 1e9 bytes a second.
 */
#ifndef LAUNCH_BENCH_H
#define LAUNCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#include <kvferry/kvf_status.h>

#include "stripe.h"

/* Fragments of one size in random order on both sides (u...), and the shapes of two real models. */
enum bench_shape {
    BENCH_U512,  /* 256 MiB in 512 B */
    BENCH_U4K,   /* 256 MiB in 4 KiB */
    BENCH_U36K,  /* 256 MiB in 36 KiB */
    BENCH_U1M,   /* 256 MiB in 1 MiB */
    BENCH_MLA,   /* 61 layers x 256 blocks x 36,864 B */
    BENCH_TP512, /* 64 MiB: 512 B a token out of 2 KiB (a head split), whole pages at the reader */
};
enum { BENCH_SHAPE_COUNT = 6 };

enum bench_method {
    BENCH_MEMCPY,          /* one memcpy a fragment, pointer list prepared */
    BENCH_LIMIT,           /* the best of several streaming loops, pointer list prepared */
    BENCH_COPY_HOST,       /* the host copy over stripes */
    BENCH_COPY_HOST_STEPS, /* the same in steps of COPY_STEP_BYTES, as in caller mode */
    BENCH_MAPPED,          /* whole requests, call to READY: measured by others */
    BENCH_DIRECT,
};
enum { BENCH_METHOD_COUNT = 6, BENCH_ROUNDS_MAX = 64 };

/* Names as in the table and in JSON. */
const char *bench_shape_name(enum bench_shape shape);
const char *bench_method_name(enum bench_method method);

/* False: no such shape. */
bool bench_shape_find(const char *name, enum bench_shape *shape_out);

/* A request as one stripe. Fragments never join; no two share a byte of the destination. */
struct bench_work {
    enum bench_shape shape;
    struct stripe stripe; /* src and dst are 0 until bench_work_bind; borrows bases and pairs */
    struct stripe_base *bases;
    struct stripe_pair *pairs;
    uint64_t src_bytes; /* of the pool on either side */
    uint64_t dst_bytes;
};

/*
 * bytes_max cuts the number of blocks so that the payload is no more (at least one block); 0 = the
 * shape as named. KVF_E_NOMEM. Gives: bench_work_close.
 */
enum kvf_status bench_work_open(enum bench_shape shape, uint64_t bytes_max, uint64_t seed,
                                struct bench_work *work_out);
void bench_work_close(struct bench_work *work);

/* Sets the addresses of the two pools: src_bytes and dst_bytes long, on a line (64 bytes). */
void bench_work_bind(struct bench_work *work, const void *src, void *dst);

/* Bytes of the destination that are not what the stripe should have brought. */
uint64_t bench_work_wrong(const struct bench_work *work);

/* best is the fastest round, median the one in the middle; both 0: not measured. */
struct bench_rate {
    double best;
    double median;
};

/* From the seconds of `rounds` runs (1 to BENCH_ROUNDS_MAX) over `bytes` each. */
struct bench_rate bench_rate_make(const double *seconds, uint32_t rounds, uint64_t bytes);

struct bench_result {
    enum bench_shape shape;
    uint64_t bytes;
    uint64_t fragments;
    uint64_t fragment_bytes;
    uint32_t rounds;
    const char *limit_loop; /* the loop that won, e.g. "avx2, 8192 B ahead"; static */
    struct bench_rate rates[BENCH_METHOD_COUNT];
};

/* Memory of both sides, touched: two shared mappings of ordinary pages, as kvf_pool_alloc()'s. */
struct bench_baseline;

/*
 * Also copies once and compares every byte. KVF_E_MEM_SPACE: the machine has not so much memory to
 * give; KVF_E_NOMEM; KVF_E_SYSTEM: no shared memory; KVF_E_TRANSFER: bytes were wrong.
 * Gives: bench_baseline_close.
 */
enum kvf_status bench_baseline_open(enum bench_shape shape, uint64_t bytes_max, uint64_t seed,
                                    struct bench_baseline **baseline_out);
void bench_baseline_close(struct bench_baseline *baseline);

/* One run of every loop. At most BENCH_ROUNDS_MAX; more are ignored. */
void bench_baseline_round(struct bench_baseline *baseline);

/* After at least one round. Fills all but the rungs, whose rates it leaves 0. */
void bench_baseline_result(const struct bench_baseline *baseline, struct bench_result *result_out);

/* Rate of one method to that of another (best to best); 0 where one was not measured. */
double bench_ratio(const struct bench_result *result, enum bench_method method,
                   enum bench_method to);

/* One line a shape, in columns; "-" where nothing was measured. */
void bench_print(FILE *file, const struct bench_result *results, uint32_t count);

/*
 * {"unit", "isa", "shapes": [{"shape", "bytes", "fragments", "fragment_bytes", "rounds",
 * "limit_loop", METHOD: {"best", "median"} or null, "ratios": {...}}]}. Gives a new reference, or
 * NULL when out of memory.
 */
json_t *bench_json(const struct bench_result *results, uint32_t count);

#endif /* LAUNCH_BENCH_H */
