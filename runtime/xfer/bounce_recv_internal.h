/*
 * bounce_recv_internal.h - what the files of bounce_recv share. Only they may include it.
 */
#ifndef XFER_BOUNCE_RECV_INTERNAL_H
#define XFER_BOUNCE_RECV_INTERNAL_H

#include "xfer/bounce_recv.h"
#include "xfer/credit.h"

#define RECV_PAGE_SIZES 64u
#define RECV_RUNS_GRANULE 4096u
#define RECV_GRANT_CREDITS 64u

/* Sizes of some of a flow's chunks. */
struct recv_page {
    struct list link;
    uint32_t sizes[RECV_PAGE_SIZES];
};

struct bounce_recv_flow {
    struct list bucket;  /* or unused */
    struct list by_time; /* of all flows, by progress_ns */
    struct credit_flow credit;
    uint64_t id;
    uint32_t peer;
    uint64_t rid;
    uint32_t tag;
    uint32_t chunk_count;
    uint32_t next; /* first chunk without a region */
    uint32_t answered;
    bool fenced;
    uint64_t progress_ns;
    uint32_t jobs_out; /* jobs that are queued or running */
    struct list jobs;  /* of its regions */
    struct list pages; /* sizes from chunk next on, and some before */
};

struct recv_peer {
    uint64_t last_id;    /* of its flows: only grows in one life */
    uint64_t held_bytes; /* of the arena, by its jobs */
};

struct bounce_recv {
    const struct kvf_heap *heap;
    struct bounce_recv_params params;
    struct bounce_recv_flow *flows;
    struct bounce_job *jobs;
    struct recv_page *pages;
    struct recv_peer *peers;
    struct list *buckets;
    uint32_t bucket_count;
    struct list unused_flows, unused_jobs, unused_pages;
    struct list by_time;
    struct list flowless; /* jobs whose flow is gone */
    uint32_t unused_page_count;
    struct arena *runs_arena;
    uint8_t *runs;
    struct credit credit;
    bool shutdown;
    struct bounce_recv_counts counts;
};

/* One call of bounce_recv_step(). */
struct recv_step {
    struct bounce_recv *recv;
    struct bounce_recv_out *out;
    uint64_t now_ns;
    struct msg_credit credits[RECV_GRANT_CREDITS]; /* one GRANT in the making */
    uint32_t credit_count;
    struct bounce_recv_flow *credit_flow;
};

/* ---- bounce_recv.c -------------------------------------------------------------------------- */

void bounce_recv_log(struct recv_step *step, uint32_t peer, const struct bounce_log *log);
void recv_nack(struct recv_step *step, uint32_t peer, const struct msg_nack *nack);
void recv_flow_progress(struct recv_step *step, struct bounce_recv_flow *flow);
/* Its jobs must be over or flowless. */
void recv_flow_drop(struct recv_step *step, struct bounce_recv_flow *flow);
/* Drops it when nothing is left to be done for it. */
void recv_flow_maybe_over(struct recv_step *step, struct bounce_recv_flow *flow);
uint32_t recv_flow_size(const struct bounce_recv_flow *flow, uint32_t chunk);

/* ---- bounce_recv_job.c ---------------------------------------------------------------------- */

/* A region for the flow's next chunk, if there is all that it takes. */
enum credit_fit recv_job_fits(void *self, const struct credit_flow *flow);
struct bounce_job *recv_job_grant(struct recv_step *step, struct bounce_recv_flow *flow);
void recv_job_data(struct recv_step *step, uint32_t peer, const struct msg_data *data);
void recv_job_done(struct recv_step *step, struct bounce_job *job, enum bounce_job_end end);
/* Takes a job back that has not started; it is answered with `reason`, unless mute. */
void recv_job_revoke(struct recv_step *step, struct bounce_job *job, enum msg_nack_reason reason);
/*
 * All jobs of a flow that goes: revoked where they have not started, else on their own; regions
 * without DATA are given back, or put in quarantine.
 */
void recv_jobs_leave(struct recv_step *step, struct bounce_recv_flow *flow,
                     enum msg_nack_reason reason, bool clean);

#endif /* XFER_BOUNCE_RECV_INTERNAL_H */
