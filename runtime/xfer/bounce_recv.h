/*
 * bounce_recv.h - the receiver's half of the bounce: flows, the regions granted to them, scatter
 * jobs, leases and quarantine (docs/protocol.md, "Bounce"). Pure but for one atomic word a job,
 * which decides between the worker that wants to start it and the machine that takes it back.
 *
 * Use: one event a step; actions are given to out->emit in their order, and it must not step the
 * machine. Messages of one pass are stepped before BOUNCE_RECV_TICK, which alone fires timers.
 *
 * May include base, msg.h and the other pure parts of the bounce.
 */
#ifndef XFER_BOUNCE_RECV_H
#define XFER_BOUNCE_RECV_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "heap.h"
#include "list.h"
#include "msg.h"
#include "xfer/arena.h"
#include "xfer/bounce_send.h"

/* Whether pieces lie in pages that (rid, tag) has lent to transfers. Called from inside a step. */
struct bounce_pages {
    void *self;
    bool (*inside)(void *self, uint64_t rid, uint32_t tag, const struct msg_run *run);
};

struct bounce_recv_params {
    uint32_t world_size;  /* peers are world ranks below it */
    uint32_t flows_max;   /* more: refused */
    uint32_t sizes_max;   /* chunks of all flows that have no region yet; one flow always fits */
    uint32_t jobs_max;    /* regions granted, and jobs that the worker still holds */
    uint64_t chunk_bytes; /* effective chunk */
    uint32_t window;      /* regions of one flow at once */
    bool share;           /* one peer holds at most half of the arena */
    uint64_t timeout_ns;  /* R: lease is 2 R, quarantine R */
    uint64_t runs_bytes;  /* memory for the runs of all jobs: a power of two, 4 KiB or more, and
                             enough for one chunk: bounce_recv_runs_bytes() */
    struct arena *arena;  /* borrows: regions are taken here, and nobody else uses it */
    uint64_t arena_base;  /* its address in this rank's space, for credits */
    struct bounce_pages pages;
};

/* Least runs_bytes for chunks of this size. */
uint64_t bounce_recv_runs_bytes(uint64_t chunk_bytes);

/*
 * Invariants, checked by bounce_recv_check():
 *  R1. a region of the arena belongs to one job that is granted, queued, busy or an orphan.
 *  R2. a flow's regions are those of its jobs, at most `window`.
 *  R3. a flow is in the ring exactly while chunks wait for a region.
 *  R4. a queued or running job was told BEGAN and not ENDED.
 *  R5. what a peer holds is the sum over its jobs.
 *  R6. runs that are taken are those of jobs.
 *  R7. flows of the table, of the list by progress and of the count are the same.
 */
struct bounce_recv;

/* Copies `params`. Gives: bounce_recv_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status bounce_recv_open(const struct kvf_heap *heap,
                                 const struct bounce_recv_params *params,
                                 struct bounce_recv **recv_out);
/* NULL is fine. No worker may hold a job any more. */
void bounce_recv_close(struct bounce_recv *recv);

/* ---- jobs ----------------------------------------------------------------------------------- */

enum bounce_job_word {
    BOUNCE_JOB_IDLE,    /* region granted, no DATA yet; or the slot is unused */
    BOUNCE_JOB_QUEUED,  /* given out, not taken */
    BOUNCE_JOB_TAKEN,   /* a worker prepares it */
    BOUNCE_JOB_RUNNING, /* it touches pages: nothing takes it back */
    BOUNCE_JOB_REVOKED, /* it never will */
};

/*
 * One chunk to be scattered. Between BOUNCE_RECV_ACT_SCATTER and JOB_DONE the worker may read all
 * of it that is above the line, once bounce_job_take() was true.
 */
struct bounce_job {
    atomic_uint word; /* enum bounce_job_word */
    uint64_t offset;  /* of the region in the arena */
    const uint8_t *runs;
    uint32_t run_count; /* MSG_RUN_BYTES each, checked */
    uint64_t rid;
    uint32_t tag;
    /* ---- the machine's */
    struct list link;              /* of the flow, of the flowless, or unused */
    struct bounce_recv_flow *flow; /* NULL: gone */
    uint32_t peer;
    uint64_t flow_id;
    uint32_t chunk;
    uint32_t region;          /* of the arena; ARENA_NONE = given back */
    struct msg_region handle; /* as the peer knows it */
    uint32_t runs_region;     /* of the runs' arena */
    uint64_t block_bytes;
    uint8_t reason; /* enum msg_nack_reason: why it was revoked */
    bool answered;  /* an answer was given out */
    bool mute;      /* the peer is gone: no answer */
};

/* Worker: false = it was taken back; give it back as NOT_RUN, untouched. */
bool bounce_job_take(struct bounce_job *job);
/* Worker, right before the first byte is written: false = as above. */
bool bounce_job_start(struct bounce_job *job);

/* ---- events --------------------------------------------------------------------------------- */

enum bounce_recv_event_kind {
    BOUNCE_RECV_TICK,       /* timers */
    BOUNCE_RECV_MESSAGE,    /* u.message: WANT, DATA, FLOW_CANCEL */
    BOUNCE_RECV_JOB_DONE,   /* u.job: what the worker gives back, once for each SCATTER */
    BOUNCE_RECV_FENCE,      /* u.fence: nothing may start to touch the pages of (rid, tag) */
    BOUNCE_RECV_PEER_LOST,  /* u.peer: its life is over for us, not proven */
    BOUNCE_RECV_PEER_PROOF, /* u.peer: nothing of that life can write any more */
    BOUNCE_RECV_SHUTDOWN,
};

enum bounce_job_end {
    BOUNCE_JOB_RAN,
    BOUNCE_JOB_FAILED,  /* started, and the device said no */
    BOUNCE_JOB_NOT_RUN, /* taken back before it started */
};

struct bounce_recv_event {
    enum bounce_recv_event_kind kind;
    uint64_t now_ns; /* awake; never goes back */
    union {
        struct {
            uint32_t peer; /* world rank of the header's source */
            const struct msg *msg;
            bool open; /* WANT: (rid, tag) may be written to; DATA is judged by FENCE events */
        } message;
        struct {
            struct bounce_job *job;
            enum bounce_job_end end;
        } job;
        struct {
            uint64_t rid;
            uint32_t tag;
        } fence;
        uint32_t peer;
    } u;
};

/* ---- actions -------------------------------------------------------------------------------- */

enum bounce_recv_action_kind {
    BOUNCE_RECV_ACT_MESSAGE, /* GRANT, ACK, NACK to the peer; header.type alone is set */
    BOUNCE_RECV_ACT_SCATTER, /* give the job to a worker; JOB_DONE follows */
    BOUNCE_RECV_ACT_ACTIVE,  /* the writer has begun to send (rid, tag) by the bounce */
    BOUNCE_RECV_ACT_BEGAN,   /* one more job may touch the pages of (rid, tag) */
    BOUNCE_RECV_ACT_ENDED,   /* it will not, or no longer does */
    BOUNCE_RECV_ACT_FAILED,  /* the same, and its bytes are not in the pages */
    BOUNCE_RECV_ACT_LOG,
};

struct bounce_recv_action {
    enum bounce_recv_action_kind kind;
    uint32_t peer; /* world rank */
    uint64_t rid;
    uint32_t tag;
    union {
        struct msg msg; /* borrows until emit returns */
        struct bounce_job *job;
        struct bounce_log log;
    } u;
};

struct bounce_recv_out {
    void *self;
    void (*emit)(void *self, const struct bounce_recv_action *action);
};

/* Applies one event; there is nothing that could be refused. */
void bounce_recv_step(struct bounce_recv *recv, const struct bounce_recv_event *event,
                      struct bounce_recv_out *out);

/* Awake time at which TICK would act; UINT64_MAX = none. */
uint64_t bounce_recv_deadline_ns(const struct bounce_recv *recv);

struct bounce_recv_counts {
    uint64_t flows; /* now */
    uint64_t jobs;  /* now: queued or running */
    uint64_t wants, grants, datas, acks, nacks, cancels;
    uint64_t scatters;    /* jobs given out */
    uint64_t leases;      /* that ran out */
    uint64_t quarantined; /* regions, in all */
    uint64_t wrong_peer, stale, duplicates, refused_plans, refused_wants;
    uint64_t unexpected_events; /* an event no table lists; a bug if not 0 */
};

const struct bounce_recv_counts *bounce_recv_counts(const struct bounce_recv *recv);

/* Jobs of (rid, tag) that may touch its pages. */
uint32_t bounce_recv_running(const struct bounce_recv *recv, uint64_t rid, uint32_t tag);

/* Aborts when an invariant does not hold; for tests. */
void bounce_recv_check(const struct bounce_recv *recv);

#endif /* XFER_BOUNCE_RECV_H */
