/*
 * schedule.h - what every rank does with a trace, computed alike on all of them: routing, refusals,
 * what is reused, what the bytes are made from, and the order of each group.
 *
 * Why it cannot block for ever: a group (the ranks of one instance and dp group) admits its
 * requests in its order, one after the other, and takes pages only from requests that have ended.
 * Its order is the order of the trace, shuffled only inside windows that fit the pool and the slots
 * of concurrency all at once. Take the oldest unfinished request of the trace. On either side all
 * windows before its own hold only older requests, which have ended; its window fits. So it is
 * admitted on both sides and ends.
 * A reused prefix adds nothing: its maker is older, and the cache model keeps room
 * (prefix_model.h).
 *
 * Pure. May include public headers.
 */
#ifndef LAUNCH_SCHEDULE_H
#define LAUNCH_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_topology.h>

#include "trace.h"

#define SCHEDULE_TEXT_BYTES 256
#define SCHEDULE_WINDOWS_MAX 64

/* What the pools of one side hold. */
struct schedule_side {
    uint32_t block;      /* tokens */
    uint32_t pool_pages; /* slots of each paged group without window that may be handed out */
    uint32_t window_count;
    uint32_t windows[SCHEDULE_WINDOWS_MAX]; /* distinct, of the paged groups; 0 = full attention */
};

struct schedule_params {
    const struct kvf_topology *topology; /* borrows: until the call returns */
    const struct trace *trace;           /* borrows: as long as the schedule */
    struct schedule_side sides[2];       /* by enum kvf_side */
    bool reuse;                          /* the generation side reuses prefixes */
    uint32_t concurrency;
    uint64_t seed;
    double time_scale;
    bool in_order; /* nothing is shuffled: a group that waits for one request at a time may do so */
};

/* A group: one dp group of one instance. */
struct schedule_group {
    uint32_t instance; /* index into the topology */
    uint32_t dp;
};

struct schedule_job {
    uint64_t rid;
    uint32_t trace_index;
    uint32_t prompt_tokens;
    uint32_t output_tokens;
    uint64_t start_ns;             /* since the start of the run */
    struct schedule_group ends[2]; /* by enum kvf_side */
    bool refused;
    uint32_t cached_tokens; /* generation: reused, a multiple of TRACE_HASH_TOKENS */
    uint32_t keyed_tokens;  /* leading tokens whose bytes are made from the hash ids */
    uint32_t entry_count;   /* cache entries that it reuses or makes, in order of ordinals */
    uint32_t drop_count;    /* entries dropped before it is admitted */
    uint64_t entry_first;   /* into schedule.entries */
    uint64_t drop_first;    /* into schedule.drops */
};

struct schedule {
    struct schedule_params params;
    uint32_t job_count;
    struct schedule_job *jobs; /* in trace order */
    uint32_t *entries;         /* numbers count from 0 in each generation group */
    uint32_t *drops;
};

/* False: no memory. `schedule_out` gives: schedule_free(). */
bool schedule_make(const struct schedule_params *params, struct schedule *schedule_out);

void schedule_free(struct schedule *schedule);

/* Text for a refused job: which side lacks what. */
void schedule_refusal(const struct schedule *schedule, const struct schedule_job *job,
                      char *text_out);

/* Leading blocks that a group of this window does not hold for this prompt. */
uint32_t schedule_stale(uint32_t prompt_tokens, uint32_t window, uint32_t block);

/* Blocks of a prompt. */
uint32_t schedule_blocks(uint32_t prompt_tokens, uint32_t block);

/*
 * The jobs of one group in the order in which it opens them, refused ones left out. `order_out`
 * gives: free(). False: no memory.
 */
bool schedule_order(const struct schedule *schedule, enum kvf_side side,
                    struct schedule_group group, uint32_t **order_out, uint32_t *count_out);

/* Entries of one generation group over the whole run. */
uint32_t schedule_entry_count(const struct schedule *schedule, struct schedule_group group);

/* Key of the bytes of a token (content.h). */
uint64_t schedule_key(const struct schedule *schedule, const struct schedule_job *job,
                      uint32_t token);

#endif /* LAUNCH_SCHEDULE_H */
