/*
 * bounce_send.h - the writer's half of the bounce: flows, their chunks, and failures that are held
 * back until the receiver has answered (docs/protocol.md, "Bounce"). Pure: no clock, no library, no
 * allocation after open.
 *
 * A flow is one submitted write. Each of its chunks is gathered into a region of this rank's arena
 * and put into the region that a credit names, or, where the receiver's arena is mapped, stored
 * there at once; then its DATA leaves, and it waits for its answer.
 *
 * Use: one event a step. Actions are given to out->emit in their order; it must not step the
 * machine. Messages of one pass are stepped before BOUNCE_SEND_TICK, which alone fires timers.
 *
 * May include base, msg.h and the other pure parts of the bounce.
 */
#ifndef XFER_BOUNCE_SEND_H
#define XFER_BOUNCE_SEND_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "heap.h"
#include "msg.h"
#include "xfer/arena.h"

#define BOUNCE_FLOWS_MAX 65535u

/* Why a flow failed; the first reason stands. */
enum bounce_fail {
    BOUNCE_FAIL_NONE,
    BOUNCE_FAIL_PROTOCOL,    /* a credit that cannot be used */
    BOUNCE_FAIL_GATHER,      /* own gather */
    BOUNCE_FAIL_WRITE,       /* a put or its flush */
    BOUNCE_FAIL_PEER_NACK,   /* the receiver refused */
    BOUNCE_FAIL_CANCELLED,   /* here */
    BOUNCE_FAIL_NO_PROGRESS, /* for R */
    BOUNCE_FAIL_PEER_DROPPED,
    BOUNCE_FAIL_SHUTDOWN,
};
#define BOUNCE_FAIL_COUNT 9

const char *bounce_fail_name(enum bounce_fail reason); /* "NO_PROGRESS", ... */

struct bounce_send_params {
    uint32_t flows_max;   /* 1..BOUNCE_FLOWS_MAX, those that only wait for orphans included */
    uint32_t chunks_max;  /* of all flows together; one flow of so many always fits */
    uint64_t chunk_bytes; /* effective chunk */
    uint32_t window;      /* chunks of one flow that are begun and not yet sent */
    uint32_t gathers_max; /* gathers and stores at once, of all flows */
    bool eager;           /* gather before the credit has come */
    uint64_t timeout_ns;  /* R; 0 = never, and no hold: for tests */
    uint64_t hold_cap_ns; /* a failure is held for min(R, this) */
    struct arena *arena;  /* borrows: staging is taken here, and nobody else uses it */
};

/*
 * Invariants, checked by bounce_send_check():
 *  S1. a flow in the table is ACTIVE, HELD or waits for orphans; else its slot is free.
 *  S2. unanswered = chunks in state SENT, of flows not resolved.
 *  S3. a chunk has staging exactly while gathering, gathered or being written (not mapped).
 *  S4. regions of the arena are those of chunks, none twice.
 *  S5. running gathers are those counted, and at most gathers_max.
 *  S6. a failed flow has no gathered chunk, and none that is unposted is begun.
 *  S7. a flow whose cancel is due has an orphan write.
 *  S8. eager regions are at most half of the arena.
 */
struct bounce_send;

/* Copies `params`. Gives: bounce_send_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status bounce_send_open(const struct kvf_heap *heap,
                                 const struct bounce_send_params *params,
                                 struct bounce_send **send_out);
/* NULL is fine. */
void bounce_send_close(struct bounce_send *send);

/* ---- events --------------------------------------------------------------------------------- */

enum bounce_send_event_kind {
    BOUNCE_SEND_TICK,        /* timers */
    BOUNCE_SEND_SUBMIT,      /* u.submit: a write */
    BOUNCE_SEND_MESSAGE,     /* u.message: GRANT, ACK, NACK */
    BOUNCE_SEND_GATHERED,    /* u.chunk: a gather ended; idle: nothing of it runs any more */
    BOUNCE_SEND_GATHER_IDLE, /* u.chunk: a gather that failed runs no more */
    BOUNCE_SEND_WRITTEN,     /* u.chunk: a put and its flush, or a store, are over, well or not */
    BOUNCE_SEND_ABORT,       /* u.abort: the task gives up */
    BOUNCE_SEND_PEER_LOST,   /* u.peer */
    BOUNCE_SEND_SHUTDOWN,    /* no failure is held from now on, no cancel is deferred */
};

struct bounce_send_event {
    enum bounce_send_event_kind kind;
    uint64_t now_ns; /* awake; never goes back */
    union {
        struct {
            uint64_t task; /* the caller's, echoed */
            uint32_t peer; /* world rank */
            uint64_t rid;
            uint32_t tag;
            uint32_t slice;
            uint32_t chunk_count;  /* 0: ends well at once */
            const uint32_t *sizes; /* [chunk_count], each 1..chunk_bytes; copies */
            bool mapped;           /* the receiver's arena is mapped here: stores, no staging */
            uint64_t arena_base;   /* the receiver's arena in its own space */
            uint64_t arena_bytes;
        } submit;
        struct {
            uint32_t peer; /* world rank of the header's source */
            const struct msg *msg;
        } message;
        struct {
            uint64_t flow;
            uint32_t chunk;
            enum kvf_status status;
            bool idle;
        } chunk;
        uint64_t abort; /* flow */
        uint32_t peer;
    } u;
};

/* ---- actions -------------------------------------------------------------------------------- */

enum bounce_send_action_kind {
    BOUNCE_SEND_ACT_MESSAGE,  /* WANT, FLOW_CANCEL to the peer; header.type alone is set */
    BOUNCE_SEND_ACT_GATHER,   /* pages into the arena at `staging`: GATHERED follows */
    BOUNCE_SEND_ACT_STORE,    /* pages into the peer's region: WRITTEN follows */
    BOUNCE_SEND_ACT_STOP,     /* a gather or store may end early, its event all the same */
    BOUNCE_SEND_ACT_PUT,      /* `staging` into the peer's region, then a flush: WRITTEN follows */
    BOUNCE_SEND_ACT_DATA,     /* send DATA with the chunk's runs */
    BOUNCE_SEND_ACT_RESOLVED, /* once a flow: its verdict. Gathers of it may still run */
    BOUNCE_SEND_ACT_LOG,
};

/* One line to be logged; the glue adds the peer's name. */
struct bounce_log {
    enum kvf_log_level level;
    const char *event; /* "W06", or "" */
    const char *text;  /* constant */
    const char *what;  /* constant, "" = nothing */
    uint64_t flow;
    uint64_t rid;
    uint64_t numbers[3]; /* what the text counts; as many as number_count */
    uint32_t number_count;
};

struct bounce_send_action {
    enum bounce_send_action_kind kind;
    uint32_t peer; /* world rank */
    uint64_t task; /* of the submit */
    uint64_t flow;
    union {
        struct msg msg; /* borrows until emit returns */
        struct {
            uint32_t chunk;
            uint32_t len_bytes;       /* packed */
            uint64_t staging;         /* offset in the arena: GATHER, PUT */
            struct msg_region region; /* of the peer: STORE, PUT, DATA */
            uint64_t address;         /* of that region in the peer's space */
        } chunk;
        struct {
            enum kvf_status status;
            enum bounce_fail reason;
            bool unanswered; /* the hold ended without all answers */
        } resolved;
        struct bounce_log log;
    } u;
};

struct bounce_send_out {
    void *self;
    void (*emit)(void *self, const struct bounce_send_action *action);
    uint64_t flow; /* SUBMIT: its number; 0 = already resolved */
};

/*
 * Applies one event. Errors, of SUBMIT alone, leave the machine unchanged: BUSY (no room at
 * present), E_TOO_LARGE (more chunks than one flow may have, or one longer than chunk_bytes or
 * empty), E_CLOSED (after SHUTDOWN). What peers send is used, dropped or counted.
 */
enum kvf_status bounce_send_step(struct bounce_send *send, const struct bounce_send_event *event,
                                 struct bounce_send_out *out);

/* Awake time at which TICK would act; UINT64_MAX = none. */
uint64_t bounce_send_deadline_ns(const struct bounce_send *send);

struct bounce_send_counts {
    uint64_t submitted, resolved_ok, resolved_failed;
    uint64_t flows;                        /* now: in the table */
    uint64_t held;                         /* now: failures held back */
    uint64_t held_total;                   /* that were */
    uint64_t held_expired;                 /* ended by time */
    uint64_t orphans;                      /* now: puts, stores and gathers of failed flows */
    uint64_t gathers, puts, stores, datas; /* begun or sent */
    uint64_t chunks_acked;
    uint64_t wrong_peer, stale, late, overgrants;
    uint64_t unexpected_events; /* an event no table lists; a bug if not 0 */
};

const struct bounce_send_counts *bounce_send_counts(const struct bounce_send *send);

/* What a flow waits for: "a credit", ...; NULL = no such flow. */
const char *bounce_send_waits(const struct bounce_send *send, uint64_t flow);

/* Aborts when an invariant does not hold; for tests. */
void bounce_send_check(const struct bounce_send *send);

#endif /* XFER_BOUNCE_SEND_H */
