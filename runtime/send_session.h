/*
 * send_session.h - the context side of one rank: records, sessions, send tasks and result queues of
 * all its requests (docs/protocol.md). Pure: no clock, no library, no allocation after open.
 *
 * Use: one event a call of send_session_step(), which also fills out->actions. Carry the actions
 * out in their order. While out->more is set, step again with SEND_POLL (and the same times) for
 * the rest; pending actions are never lost, and an action that has become void is not emitted.
 * Messages of one pass are stepped before SEND_TICK, which alone fires timers.
 *
 * What the machine never checks is the caller's: that block lists fit the pools (kvf_send_open),
 * and that a REQUEST_DATA fits its sender's record (`check` of the event).
 *
 * May include base and msg.h.
 */
#ifndef KVF_SEND_SESSION_H
#define KVF_SEND_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "heap.h"
#include "msg.h"
#include "session.h"

/* ---- open ----------------------------------------------------------------------------------- */

/*
 * Receivers that share a request and that this rank serves: geo_serves() of one (instance, dp
 * group).
 */
struct send_group {
    const uint32_t *ranks; /* world ranks; copied at open */
    uint32_t count;        /* may be 0 */
};

struct send_params {
    struct session_times times;
    struct session_self self;
    enum kvf_log_level log_level; /* entries beyond it are not made */
    uint32_t world_size;          /* peers are world ranks below it */
    uint32_t requests_max;        /* live sessions; more: BUSY */
    uint32_t asks_max;            /* requests asked for without a session */
    uint32_t fences_max;          /* cancelled without a session; beyond it the oldest goes */
    uint32_t tombstones_max;      /* ended requests that are remembered */
    uint32_t receivers_max;       /* stored REQUEST_DATA of all requests */
    uint32_t served_max;          /* (request, receiver) pairs remembered with the ended ones */
    uint32_t windows_max;         /* windows of all live sessions */
    uint32_t tasks_max;           /* running tasks; more wait */
    uint32_t answers_max;         /* answers that belong to no live object; more: peer overflow */
    uint32_t blocks_max;          /* slots of all block lists, own and asked */
    uint32_t lists_max;           /* block lists of one request, own or a receiver's */
    uint32_t aux_bytes;           /* of each request */
    const struct send_group *groups; /* copied */
    uint32_t group_count;
    const uint32_t *group_of; /* [world_size] the group a receiver belongs to; copied */
};

/*
 * All requests of one context rank. Invariants, checked by send_session_check():
 *  X1. a record is in exactly one of the lists asked, fenced, live, tombs, and in the map.
 *  X2. LIVE has a session, no other state has; ASKED has at least one receiver; FENCED has none.
 *  X3. a receiver's `access` counts its running and doubtful tasks; a session has their sum.
 *  X4. OPEN: no task was posted. SENT: outcome was OK, access 0, every expected receiver has its
 *      slices. BAD_DRAINING: access > 0. BAD_DRAINED: access 0 and every receiver has its final.
 *  X5. a fenced record starts no task.
 *  X6. a receiver whose final is claimed has no running task; at most one final is ever claimed.
 *  X7. numbers taken from each pool are those counted by walking the records.
 *  X8. the vote that was given out never goes back; DRAINED only when access is 0.
 */
struct send_side;

/* Bytes that such a side takes; all of its ceilings may be beyond their ranges. */
uint64_t send_session_bytes(const struct send_params *params);

/* Copies `params`. Gives: send_session_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status send_session_open(const struct kvf_heap *heap, const struct send_params *params,
                                  struct send_side **side_out);
/* NULL is fine. */
void send_session_close(struct send_side *side);

/* ---- events --------------------------------------------------------------------------------- */

enum send_event_kind {
    SEND_POLL,          /* nothing happened: the rest of the actions */
    SEND_TICK,          /* timers */
    SEND_OPEN,          /* u.open: the engine opens a request */
    SEND_WINDOW,        /* u.window: the engine adds a part; out->slice is its number */
    SEND_WINDOW_READY,  /* u.ready: a part that was not ready now is */
    SEND_CANCEL,        /* u.cancel: the engine gives up */
    SEND_CANCEL_ALL,    /* u.cancel.code: E_SHUTDOWN; new opens give E_CLOSED from now on */
    SEND_MESSAGE,       /* u.message: REQUEST_DATA or CANCEL_SESSION */
    SEND_TASK_ENDED,    /* u.task: verdict and proof: no access any more */
    SEND_TASK_IN_DOUBT, /* u.task: failed, access not proven over */
    SEND_TASK_SETTLED,  /* u.task: proof for a task in doubt */
    SEND_PEER_UP,       /* u.peer: handshake judged; a new epoch ends the old life */
    SEND_PEER_LOST,     /* u.peer */
    SEND_PEER_CLOSED,   /* u.peer: BYE without access left */
    SEND_DECISION,      /* u.decision: the group */
};
#define SEND_EVENT_KIND_COUNT 15

struct send_event {
    enum send_event_kind kind;
    uint64_t now_ns;  /* awake; never goes back */
    uint64_t real_ns; /* real */
    union {
        struct {
            uint64_t rid;
            uint64_t called_ns; /* real: of the engine's call; 0 = now. For the result's times */
            uint32_t prompt_tokens;
            uint32_t
                group; /* index into params.groups; SESSION_GROUP_UNKNOWN: from the first ask */
            uint32_t list_count;
            const struct kvf_block_list *lists; /* copies */
            const void *aux;                    /* copies params.aux_bytes; NULL = none */
        } open;
        struct {
            uint64_t rid;
            struct session_window window;
            bool ready; /* false: SEND_WINDOW_READY follows (a device event has not passed) */
        } window;
        struct {
            uint64_t rid;
            uint32_t slice;
        } ready;
        struct {
            uint64_t rid;
            enum kvf_status code; /* E_CANCELLED, or E_SHUTDOWN: a failure */
        } cancel;
        struct {
            uint32_t peer;         /* world rank of the header's source */
            const struct msg *msg; /* decoded; borrows until the step returns */
            enum kvf_status check; /* REQUEST_DATA: OK, or why it can't be served (decoder's
                                      E_LEGACY_REQUEST, E_PROTOCOL; plan_check_lists()) */
        } message;
        struct {
            uint64_t task;
            enum kvf_status status; /* ENDED: OK or why not; IN_DOUBT: why */
            uint64_t bytes;         /* of pages written by this task */
            enum kvf_path path;
            bool unanswered; /* a hold expired */
        } task;
        struct {
            uint32_t peer;
            uint64_t epoch;          /* UP */
            enum kvf_status verdict; /* UP: geo_check_peer(); OK = may be served */
        } peer;
        struct {
            uint64_t rid;
            enum session_decision decision;
            enum kvf_status code; /* FAILED, CANCELLED */
            uint32_t culprit;     /* world rank, or KVF_UNKNOWN */
        } decision;
    } u;
};

/* ---- actions -------------------------------------------------------------------------------- */

enum send_action_kind {
    SEND_ACT_MESSAGE,    /* hand to the peer's channel; on overflow step SEND_PEER_LOST */
    SEND_ACT_TASK_START, /* begin; answered by exactly one TASK_ENDED, or IN_DOUBT and SETTLED.
                            Also a piece that moves nothing must be answered (bytes 0, PATH_NONE);
                            a plan that can't be built: ENDED with the plan's status (log W38) */
    SEND_ACT_TASK_ABORT, /* post no more; TASK_ENDED or IN_DOUBT follows all the same */
    SEND_ACT_VOTE,       /* tell the group; carried out before any later action of this request */
    SEND_ACT_LOSE_PEER,  /* the peer's answers overflow: end its life (W31), step SEND_PEER_LOST */
    SEND_ACT_LOG,
};

/* One write: (request, receiver, slice). */
struct send_start {
    uint64_t task; /* names it in the events; never repeated */
    uint64_t rid;
    uint32_t receiver; /* world rank */
    uint32_t tag;
    uint32_t slice;
    uint32_t prompt_tokens;
    uint16_t flags; /* MSG_REQUEST_* of the receiver */
    struct session_window window;
    const struct kvf_block_list
        *src; /* own lists; both borrow until the task has ended or settled */
    uint32_t src_count;
    const struct kvf_block_list *dst; /* the receiver's lists */
    uint32_t dst_count;
};

struct send_action {
    enum send_action_kind kind;
    uint32_t peer; /* MESSAGE, LOSE_PEER: world rank */
    union {
        struct msg msg; /* header.type, source and epoch set; aux borrows until the next step */
        struct send_start start;
        uint64_t abort; /* task */
        struct {
            uint64_t rid;
            unsigned vote; /* enum session_vote, + SESSION_VOTE_DRAINED */
            struct session_result result;
        } vote;
        struct session_log log;
    } u;
};

/* The caller's. `max` >= 1; 16 is a good size. */
struct send_out {
    struct send_action *actions;
    uint32_t max;
    uint32_t count;
    bool more;
    uint32_t slice; /* SEND_WINDOW */
};

/*
 * Applies one event and gives out actions. Errors leave the machine unchanged (actions that were
 * due are given out all the same):
 *  SEND_OPEN      BUSY, E_EXISTS (live, or ended and remembered), E_CLOSED, E_TOO_LARGE, E_INVAL
 *  SEND_WINDOW    BUSY, E_NOTFOUND, E_STATE (after the last); OK and no slice for an ended request
 *  SEND_WINDOW_READY, SEND_CANCEL   E_NOTFOUND (never opened here, or forgotten)
 *  SEND_DECISION  E_NOTFOUND; E_STATE: RELEASED of a request that is not drained here, refused
 * All else is OK: what a peer sends is answered, dropped or counted.
 */
enum kvf_status send_session_step(struct send_side *side, const struct send_event *event,
                                  struct send_out *out);

/* Awake time at which SEND_TICK would act; UINT64_MAX = none. */
uint64_t send_session_deadline_ns(const struct send_side *side);

/* ---- looking in ----------------------------------------------------------------------------- */

struct send_counts {
    uint64_t live, asked, fenced, tombstones; /* now */
    uint64_t tasks;                           /* now: running or in doubt */
    uint64_t doubts;                          /* now */
    uint64_t retained_blocks;                 /* now: of sessions that ended badly */
    uint64_t payload_bytes;                   /* of ended tasks */
    uint64_t path_writes[KVF_PATH_COUNT];     /* tasks that ended well */
    uint64_t duplicates, late;                /* messages without effect */
    uint64_t wrong_peer;                      /* W08 */
    uint64_t refused_asks;                    /* answered FAILED at once */
    uint64_t superseded, swept, evicted;
    uint64_t unexpected_events; /* an event no table lists; a bug if not 0 */
    uint64_t logs_lost;
    uint64_t words_used; /* now: of the block store */
};

const struct send_counts *send_session_counts(const struct send_side *side);

/* Result of a request that is open here, as it stands. Errors: E_NOTFOUND (not live). */
enum kvf_status send_session_result(const struct send_side *side, uint64_t rid,
                                    struct session_result *result_out);

#define SEND_DESCRIPTION_RECEIVERS 8u

/* For kvf_dump: what a live request waits for. */
struct send_description {
    uint64_t rid;
    const char *state;   /* "SENDING" */
    const char *waiting; /* "an ask", "its blocks", "running writes", "the group" */
    enum kvf_status code;
    unsigned vote;
    uint32_t slices, access, receivers;
    bool last_window;
    struct {
        uint32_t rank;
        const char *state; /* "not asked", "sending", "done", "failed", "in doubt" */
        uint32_t slices_done;
    } receiver[SEND_DESCRIPTION_RECEIVERS];
    uint32_t receiver_count; /* filled */
};

/* The live request after `*cursor` (NULL = start); false at the end. No step in between. */
bool send_session_describe(const struct send_side *side, const void **cursor,
                           struct send_description *description_out);

/* One line an event or action, the same for the same input: for traces compared word for word. */
size_t send_event_text(const struct send_event *event, char *text_out, size_t text_bytes);
size_t send_action_text(const struct send_action *action, char *text_out, size_t text_bytes);

/* Aborts when an invariant does not hold; for tests. */
void send_session_check(const struct send_side *side);

#endif /* KVF_SEND_SESSION_H */
