/* schedule.c - see schedule.h. */
#include "schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "prefix_model.h"
#include "rng.h"

#define SCHEDULE_SHUFFLE_MAX 8u /* jobs of a window */

uint32_t schedule_blocks(uint32_t prompt_tokens, uint32_t block)
{
    return (prompt_tokens + block - 1) / block;
}

uint32_t schedule_stale(uint32_t prompt_tokens, uint32_t window, uint32_t block)
{
    uint32_t blocks = schedule_blocks(prompt_tokens, block);
    uint32_t stale;

    if (window == 0 || prompt_tokens + 1 <= window) {
        return 0;
    }
    stale = (prompt_tokens + 1 - window) / block;
    return stale < blocks ? stale : blocks;
}

/* Pages that a job needs in the paged group that needs most. */
static uint32_t schedule_pages(const struct schedule_side *side, uint32_t prompt_tokens)
{
    uint32_t blocks = schedule_blocks(prompt_tokens, side->block);
    uint32_t most = 0;

    for (uint32_t i = 0; i < side->window_count; i++) {
        uint32_t pages = blocks - schedule_stale(prompt_tokens, side->windows[i], side->block);

        most = pages > most ? pages : most;
    }
    return most;
}

/* The instances of one side, in the order of the topology. */
static uint32_t schedule_instances(const struct kvf_topology *topology, enum kvf_side side,
                                   uint32_t *instances_out)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < topology->instance_count; i++) {
        if (topology->instances[i].side == side) {
            instances_out[count++] = i;
        }
    }
    return count;
}

/* Request i goes to instance i mod C, its dp group (i / C) mod DP. */
static void schedule_route(struct schedule *schedule, enum kvf_side side)
{
    const struct kvf_topology *topology = schedule->params.topology;
    uint32_t instances[KVF_INSTANCES_MAX];
    uint32_t count = schedule_instances(topology, side, instances);

    for (uint32_t i = 0; i < schedule->job_count && count > 0; i++) {
        struct schedule_group *end = &schedule->jobs[i].ends[side];

        end->instance = instances[i % count];
        end->dp = i / count % topology->instances[end->instance].dp_size;
    }
}

static void schedule_facts(struct schedule *schedule, uint32_t index)
{
    const struct trace_request *request = &schedule->params.trace->requests[index];
    struct schedule_job *job = &schedule->jobs[index];
    double start_ns = (request->timestamp_ms - schedule->params.trace->requests[0].timestamp_ms) *
                      schedule->params.time_scale * 1e6;

    job->rid = (uint64_t)index + 1;
    job->trace_index = index;
    job->prompt_tokens = request->input_length;
    job->output_tokens = request->output_length;
    job->start_ns = start_ns < 9e18 ? (uint64_t)start_ns : (uint64_t)9e18;
    for (int s = 0; s < 2; s++) {
        const struct schedule_side *side = &schedule->params.sides[s];

        job->refused = job->refused || schedule_pages(side, job->prompt_tokens) > side->pool_pages;
    }
}

/* What grows while the prefixes are worked out. */
struct schedule_build {
    struct schedule *schedule;
    uint64_t entry_count, entry_room;
    uint64_t drop_count, drop_room;
};

static bool schedule_copy(uint32_t **array, uint64_t *count, uint64_t *room, const uint32_t *from,
                          uint32_t more)
{
    while (*count + more > *room) {
        uint64_t larger = *room == 0 ? 1024 : *room * 2;
        uint32_t *moved = realloc(*array, larger * sizeof(*moved));

        if (moved == NULL) {
            return false;
        }
        *array = moved;
        *room = larger;
    }
    if (more > 0) {
        memcpy(*array + *count, from, more * sizeof(*from));
    }
    *count += more;
    return true;
}

static bool schedule_same(struct schedule_group a, struct schedule_group b)
{
    return a.instance == b.instance && a.dp == b.dp;
}

/* Hash blocks that may be reused: at least one token of a prompt is always computed anew. */
static uint32_t schedule_hash_count(const struct trace_request *request)
{
    uint32_t most = (request->input_length - 1) / TRACE_HASH_TOKENS;

    return request->hash_count < most ? request->hash_count : most;
}

static bool schedule_admit(struct schedule_build *build, struct prefix_model *model,
                           struct schedule_job *job)
{
    struct schedule *schedule = build->schedule;
    const struct trace *trace = schedule->params.trace;
    const struct trace_request *request = &trace->requests[job->trace_index];
    struct prefix_answer answer;
    struct prefix_ask ask = {
        .user = job->trace_index,
        .pages = schedule_blocks(job->prompt_tokens, schedule->params.sides[KVF_GENERATION].block),
        .hash_count = schedule_hash_count(request),
        .hashes = trace->hashes + request->hash_first,
    };

    if (!prefix_admit(model, &ask, &answer)) {
        return false;
    }
    job->cached_tokens = answer.reused * TRACE_HASH_TOKENS;
    job->entry_count = ask.hash_count;
    job->entry_first = build->entry_count;
    job->drop_count = answer.dropped_count;
    job->drop_first = build->drop_count;
    return schedule_copy(&schedule->entries, &build->entry_count, &build->entry_room,
                         answer.entries, ask.hash_count) &&
           schedule_copy(&schedule->drops, &build->drop_count, &build->drop_room, answer.dropped,
                         answer.dropped_count);
}

/* Leading blocks that are shared at some time are made from their hash ids, on both sides. */
static void schedule_keyed(struct schedule *schedule, const struct prefix_model *model,
                           struct schedule_group group)
{
    for (uint32_t e = 0; e < prefix_entry_count(model); e++) {
        struct schedule_job *job = &schedule->jobs[prefix_entry_maker(model, e)];
        uint32_t tokens = (prefix_entry_ordinal(model, e) + 1) * TRACE_HASH_TOKENS;

        if (prefix_entry_reused(model, e) && tokens > job->keyed_tokens) {
            job->keyed_tokens = tokens;
        }
    }
    for (uint32_t i = 0; i < schedule->job_count; i++) {
        struct schedule_job *job = &schedule->jobs[i];

        if (schedule_same(job->ends[KVF_GENERATION], group) &&
            job->cached_tokens > job->keyed_tokens) {
            job->keyed_tokens = job->cached_tokens;
        }
    }
}

/* The cache of one generation group over the whole trace. */
static bool schedule_prefixes(struct schedule_build *build, struct schedule_group group)
{
    struct schedule *schedule = build->schedule;
    const struct schedule_side *side = &schedule->params.sides[KVF_GENERATION];
    struct prefix_params params = {
        .pool_pages = side->pool_pages,
        .pages_per_hash = TRACE_HASH_TOKENS / side->block,
    };
    struct prefix_model *model = prefix_open(&params);
    bool fine = model != NULL;

    for (uint32_t i = 0; fine && i < schedule->job_count; i++) {
        struct schedule_job *job = &schedule->jobs[i];

        if (!job->refused && schedule_same(job->ends[KVF_GENERATION], group)) {
            fine = schedule_admit(build, model, job);
        }
    }
    if (fine) {
        schedule_keyed(schedule, model, group);
    }
    prefix_close(model);
    return fine;
}

static bool schedule_reuse(struct schedule *schedule)
{
    const struct kvf_topology *topology = schedule->params.topology;
    struct schedule_build build = {.schedule = schedule};

    for (uint32_t i = 0; i < topology->instance_count; i++) {
        const struct kvf_instance *instance = &topology->instances[i];

        for (uint32_t dp = 0; instance->side == KVF_GENERATION && dp < instance->dp_size; dp++) {
            struct schedule_group group = {i, dp};

            if (!schedule_prefixes(&build, group)) {
                return false;
            }
        }
    }
    return true;
}

bool schedule_make(const struct schedule_params *params, struct schedule *schedule_out)
{
    struct schedule schedule = {.params = *params};
    bool fine;

    schedule.job_count = params->trace->request_count;
    schedule.jobs = calloc((size_t)schedule.job_count + 1, sizeof(*schedule.jobs));
    if (schedule.jobs == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schedule.job_count; i++) {
        schedule_facts(&schedule, i);
    }
    schedule_route(&schedule, KVF_CONTEXT);
    schedule_route(&schedule, KVF_GENERATION);
    fine = !params->reuse || schedule_reuse(&schedule);
    if (!fine) {
        schedule_free(&schedule);
        return false;
    }
    *schedule_out = schedule;
    return true;
}

void schedule_free(struct schedule *schedule)
{
    free(schedule->jobs);
    free(schedule->entries);
    free(schedule->drops);
    memset(schedule, 0, sizeof(*schedule));
}

void schedule_refusal(const struct schedule *schedule, const struct schedule_job *job,
                      char *text_out)
{
    for (int s = 0; s < 2; s++) {
        const struct schedule_side *side = &schedule->params.sides[s];
        uint32_t pages = schedule_pages(side, job->prompt_tokens);

        if (pages > side->pool_pages) {
            snprintf(text_out, SCHEDULE_TEXT_BYTES,
                     "request %llu refused: %u tokens need %u pages, the %s pool has %u",
                     (unsigned long long)job->rid, job->prompt_tokens, pages,
                     s == KVF_CONTEXT ? "context" : "generation", side->pool_pages);
            return;
        }
    }
    text_out[0] = '\0';
}

/* End of the window that begins at `first`: jobs that fit the pool and the slots all at once. */
static uint32_t schedule_window(const struct schedule *schedule, enum kvf_side side,
                                const uint32_t *order, uint32_t count, uint32_t first)
{
    const struct schedule_side *facts = &schedule->params.sides[side];
    uint32_t most = schedule->params.concurrency < SCHEDULE_SHUFFLE_MAX
                        ? schedule->params.concurrency
                        : SCHEDULE_SHUFFLE_MAX;
    uint64_t pages = 0;
    uint32_t end = first;

    while (end < count && end - first < most) {
        pages += schedule_pages(facts, schedule->jobs[order[end]].prompt_tokens);
        if (pages > facts->pool_pages) {
            break;
        }
        end++;
    }
    return end > first ? end : first + 1;
}

static void schedule_shuffle(const struct schedule *schedule, enum kvf_side side, uint32_t *order,
                             uint32_t count)
{
    struct rng rng = {rng_mix(schedule->params.seed + 1) + (uint64_t)side};

    for (uint32_t first = 0; first < count;) {
        uint32_t end = schedule_window(schedule, side, order, count, first);

        for (uint32_t i = end - 1; i > first; i--) {
            uint32_t pick = first + rng_below(&rng, i - first + 1);
            uint32_t swap = order[i];

            order[i] = order[pick];
            order[pick] = swap;
        }
        first = end;
    }
}

bool schedule_order(const struct schedule *schedule, enum kvf_side side,
                    struct schedule_group group, uint32_t **order_out, uint32_t *count_out)
{
    uint32_t *order = calloc((size_t)schedule->job_count + 1, sizeof(*order));
    uint32_t count = 0;

    if (order == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schedule->job_count; i++) {
        const struct schedule_job *job = &schedule->jobs[i];

        if (!job->refused && schedule_same(job->ends[side], group)) {
            order[count++] = i;
        }
    }
    if (!schedule->params.in_order && (side == KVF_CONTEXT || !schedule->params.reuse)) {
        schedule_shuffle(schedule, side, order, count);
    }
    *order_out = order;
    *count_out = count;
    return true;
}

uint32_t schedule_entry_count(const struct schedule *schedule, struct schedule_group group)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < schedule->job_count; i++) {
        const struct schedule_job *job = &schedule->jobs[i];

        for (uint32_t k = 0;
             schedule_same(job->ends[KVF_GENERATION], group) && k < job->entry_count; k++) {
            uint32_t number = schedule->entries[job->entry_first + k];

            most = number + 1 > most ? number + 1 : most;
        }
    }
    return most;
}

uint64_t schedule_key(const struct schedule *schedule, const struct schedule_job *job,
                      uint32_t token)
{
    const struct trace *trace = schedule->params.trace;
    const struct trace_request *request = &trace->requests[job->trace_index];

    if (token < job->keyed_tokens) {
        return content_key(CONTENT_HASH,
                           trace->hashes[request->hash_first + token / TRACE_HASH_TOKENS]);
    }
    return content_key(CONTENT_REQUEST, job->rid);
}
