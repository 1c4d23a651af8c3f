/*
 * bounce_send_internal.h - what the files of bounce_send share. Only they may include it.
 */
#ifndef XFER_BOUNCE_SEND_INTERNAL_H
#define XFER_BOUNCE_SEND_INTERNAL_H

#include "list.h"
#include "xfer/bounce_send.h"

#define SEND_PAGE_CHUNKS 64u
#define SEND_FLOW_PAGES (MSG_FLOW_CHUNKS_MAX / SEND_PAGE_CHUNKS)
#define SEND_SLOT_BITS 16u /* a flow's number ends in its slot */

enum send_chunk_state {
    SEND_CHUNK_UNPOSTED,
    SEND_CHUNK_GATHERING,
    SEND_CHUNK_GATHER_FAILED, /* its kernel may still write */
    SEND_CHUNK_GATHERED,      /* waits for its credit */
    SEND_CHUNK_WRITING,       /* put and flush, or store */
    SEND_CHUNK_SENT,          /* DATA is out */
    SEND_CHUNK_ANSWERED,
    SEND_CHUNK_ORPHAN_GATHER, /* of a failed flow */
    SEND_CHUNK_ORPHAN_WRITE,
    SEND_CHUNK_DROPPED, /* of a failed flow, over or never begun */
};

struct send_chunk {
    uint32_t len_bytes;
    uint8_t state; /* enum send_chunk_state */
    bool credited;
    bool staged;              /* has a staging region */
    uint32_t staging;         /* region of the arena */
    struct msg_region region; /* the credit's */
    uint64_t address;
};

struct send_page {
    struct list link;
    struct send_chunk chunks[SEND_PAGE_CHUNKS];
};

struct send_flow {
    struct list link;     /* unused, or live */
    uint64_t id;          /* 0 = unused */
    uint64_t answered_id; /* a flow that is gone, and whose late grant was answered */
    uint64_t task;
    uint32_t peer;
    uint64_t rid;
    bool mapped;
    uint64_t arena_base, arena_bytes; /* the receiver's */
    uint32_t chunk_count;
    uint32_t next;     /* first chunk not begun */
    uint32_t inflight; /* begun and not yet sent */
    uint32_t acked;
    uint32_t unanswered; /* sent and not answered */
    uint64_t progress_ns;
    enum bounce_fail reason;
    enum kvf_status status;
    uint64_t failed_ns;
    bool held;
    uint64_t hold_ns;
    bool resolved;
    bool dirty;      /* a put ended with an error: it may still land */
    bool cancel_due; /* FLOW_CANCEL waits for the orphan writes */
    bool orphans_told;
    uint32_t orphan_writes, orphan_gathers;
    uint64_t staged_bytes; /* of the arena */
    struct list page_list;
    struct send_page *pages[SEND_FLOW_PAGES];
};

struct bounce_send {
    const struct kvf_heap *heap;
    struct bounce_send_params params;
    struct send_flow *flows;
    struct send_page *pages;
    uint32_t page_count, free_page_count;
    struct list unused, live, free_pages;
    uint64_t flow_next;
    uint32_t gathering; /* gathers and stores that run */
    bool shutdown;
    struct bounce_send_counts counts;
};

/* One call of bounce_send_step(). */
struct send_step {
    struct bounce_send *send;
    struct bounce_send_out *out;
    uint64_t now_ns;
    uint32_t peer; /* PEER_LOST */
};

static inline struct send_chunk *send_chunk(const struct send_flow *flow, uint32_t index)
{
    return &flow->pages[index / SEND_PAGE_CHUNKS]->chunks[index % SEND_PAGE_CHUNKS];
}

/* ---- bounce_send.c -------------------------------------------------------------------------- */

void send_emit(const struct send_step *step, struct bounce_send_action *action,
               const struct send_flow *flow);
void bounce_send_log(const struct send_step *step, const struct send_flow *flow,
                     const struct bounce_log *log);
/* The first reason stands; `status` OK = the reason's. */
void send_fail(struct send_step *step, struct send_flow *flow, enum bounce_fail reason,
               enum kvf_status status);
/* An orphan is over and uncounted. May free the flow. */
void send_orphan_ended(struct send_step *step, struct send_flow *flow);
void send_maybe_gone(struct send_step *step, struct send_flow *flow);

/* ---- bounce_send_chunk.c -------------------------------------------------------------------- */

void send_chunk_credit(struct send_step *step, struct send_flow *flow,
                       const struct msg_credit *credit);
void send_chunk_gathered(struct send_step *step, struct send_flow *flow,
                         const struct bounce_send_event *event);
void send_chunk_idle(struct send_step *step, struct send_flow *flow, uint32_t index);
void send_chunk_written(struct send_step *step, struct send_flow *flow,
                        const struct bounce_send_event *event);
/* The flow has failed: what runs becomes an orphan, all else is over. */
void send_chunks_give_up(struct send_step *step, struct send_flow *flow);
void send_tell_orphans(struct send_step *step, struct send_flow *flow);
/* Begins what can be begun, one chunk a flow and turn. */
void send_pump(struct send_step *step);

#endif /* XFER_BOUNCE_SEND_INTERNAL_H */
