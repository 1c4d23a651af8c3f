/*
 * trace_make.c - the built-in generator of traces: trace.h. The figures are quantiles and rates of
 * a published trace of a conversation service (12,031 requests in an hour, mean prompt 12,035
 * tokens). Pure.
 */
#include <math.h>
#include <stdlib.h>

#include "rng.h"
#include "trace.h"

#define MAKE_BURST_MS 3000.0
#define MAKE_BURST_MEAN 10.2    /* requests a burst */
#define MAKE_FOLLOW_SHARE 0.45  /* continue an earlier one; a few are too short to */
#define MAKE_FOLLOW_WINDOW 512u /* which is at most so many requests back */
#define MAKE_PICKS 3u
#define MAKE_SHARED_LOW 0.42 /* of its hash blocks; evenly up to 1, mean 0.71 */

struct make_quantile {
    double share;
    double tokens;
};

static const struct make_quantile make_input[] = {
    {0, 891},      {0.05, 901},   {0.10, 964},   {0.25, 2306},  {0.50, 6909},
    {0.75, 15366}, {0.90, 27367}, {0.95, 39549}, {0.99, 85399}, {1, 126195},
};
static const struct make_quantile make_output[] = {
    {0, 1},      {0.05, 10},  {0.10, 24},  {0.25, 156},  {0.50, 350},
    {0.75, 472}, {0.90, 597}, {0.95, 698}, {0.99, 1115}, {1, 2000},
};

/* Inverse of the distribution: straight lines between the quantiles. */
static uint32_t make_length(const struct make_quantile *quantiles, double share)
{
    while (share > quantiles[1].share) {
        quantiles++;
    }
    return (uint32_t)(quantiles[0].tokens + (quantiles[1].tokens - quantiles[0].tokens) *
                                                (share - quantiles[0].share) /
                                                (quantiles[1].share - quantiles[0].share));
}

/* Poisson, by multiplying until the product is small. */
static uint32_t make_poisson(struct rng *rng, double mean)
{
    double limit = exp(-mean);
    double product = rng_unit(rng);
    uint32_t count = 0;

    while (product > limit) {
        product *= rng_unit(rng);
        count++;
    }
    return count;
}

/* One of the last `window` requests: the longest of a few picks, since long ones are continued. */
static const struct trace_request *make_source(struct rng *rng, const struct trace *trace,
                                               uint32_t window)
{
    const struct trace_request *best = NULL;

    for (uint32_t i = 0; i < MAKE_PICKS; i++) {
        const struct trace_request *pick =
            &trace->requests[trace->request_count - 1 - rng_below(rng, window)];

        if (best == NULL || pick->hash_count > best->hash_count) {
            best = pick;
        }
    }
    return best;
}

/* Leading ids taken from an earlier request; the first one is common to all. */
static uint32_t make_shared(struct rng *rng, const struct trace *trace, uint32_t count,
                            uint64_t *ids)
{
    const struct trace_request *source;
    uint32_t shared;

    ids[0] = 0;
    if (trace->request_count == 0 || rng_unit(rng) >= MAKE_FOLLOW_SHARE) {
        return 1;
    }
    shared = trace->request_count < MAKE_FOLLOW_WINDOW ? trace->request_count : MAKE_FOLLOW_WINDOW;
    source = make_source(rng, trace, shared);
    shared = (uint32_t)(count * (MAKE_SHARED_LOW + (1 - MAKE_SHARED_LOW) * rng_unit(rng)));
    shared = shared > source->hash_count ? source->hash_count : shared;
    for (uint32_t i = 1; i < shared; i++) {
        ids[i] = trace->hashes[source->hash_first + i];
    }
    return shared > 1 ? shared : 1;
}

bool trace_make(uint64_t seed, const struct trace_take *take, struct trace *trace_out)
{
    static const uint32_t ids_max = 126195u / TRACE_HASH_TOKENS + 1;
    uint64_t *ids = malloc(ids_max * sizeof(*ids));
    struct rng rng = {seed};
    struct trace trace = {0};
    uint64_t next_id = 1;
    double now_ms = 0;
    uint32_t left = 0;
    bool fine = ids != NULL;

    while (fine && trace.request_count < take->requests) {
        struct trace_request request = {0};

        if (trace.request_count > 0) {
            for (; left == 0; now_ms += MAKE_BURST_MS) {
                left = make_poisson(&rng, MAKE_BURST_MEAN);
            }
            left--;
        }
        request.timestamp_ms = now_ms;
        request.input_length = make_length(make_input, rng_unit(&rng));
        request.output_length = make_length(make_output, rng_unit(&rng));
        request.hash_count = request.input_length / TRACE_HASH_TOKENS;
        for (uint32_t i = make_shared(&rng, &trace, request.hash_count, ids);
             i < request.hash_count; i++) {
            ids[i] = next_id++;
        }
        fine = trace_append(&trace, take, &request, ids);
    }
    free(ids);
    if (!fine) {
        trace_free(&trace);
        return false;
    }
    *trace_out = trace;
    return true;
}
