/*
 * recv_session.h - the generation side of one rank: sessions and writer entries of all its requests
 * (docs/protocol.md). Pure: no clock, no library, no allocation after open.
 *
 * Use as send_session.h: one event a step, carry out the actions in order, RECV_POLL while
 * out->more. Messages of one pass are stepped before RECV_TICK, which alone fires timers.
 *
 * W is the set of writers to which REQUEST_DATA was given out; E, inside W, the ones whose success
 * is needed. May include base and msg.h.
 */
#ifndef KVF_RECV_SESSION_H
#define KVF_RECV_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "heap.h"
#include "msg.h"
#include "session.h"

enum recv_silence {
    RECV_STRAND,  /* pages stay without proof */
    RECV_RELEASE, /* pages go T after the end (upstream) */
};

struct recv_params {
    struct session_times times;
    struct session_self self;
    enum kvf_log_level log_level; /* entries beyond it are not made */
    enum recv_silence silence;
    uint32_t world_size;     /* peers are world ranks below it */
    uint32_t requests_max;   /* live sessions; more: BUSY */
    uint32_t remembered_max; /* ended requests that are remembered */
    uint32_t writers_max;    /* writer entries of all live sessions */
    uint32_t slices_max;     /* slices of one writer and request; more is a protocol error */
    uint32_t blocks_max;     /* slots of all block lists */
    uint32_t lists_max;      /* block lists of one request */
    uint32_t aux_bytes;      /* of each request */
    uint32_t first_tag;      /* 0 = 1; tests start near the end */
};

/*
 * All requests of one generation rank. Invariants, checked by recv_session_check():
 *  Y1. a session is in the map, and in exactly one of the lists live, remembered.
 *  Y2. ASKED, RECEIVING, OK: no writer of E has failed. OK: all of E succeeded, attested bytes
 *      are the plan's, own scatters were 0.
 *  Y3. BAD_*, STRANDED: fenced; outcome is FAILED or CANCELLED.
 *  Y4. BAD_DRAINED: all of W is marked and own scatters are 0. STRANDED: one is not marked.
 *  Y5. vote DRAINED was given out only when every writer of W is marked and own scatters are 0.
 *  Y6. RETIRED only from OK or BAD_DRAINED with that vote.
 *  Y7. a writer never asked counts as marked once the session is bad, and is never asked then.
 *  Y8. numbers taken from each pool are those counted by walking the sessions.
 *  Y9. retained and stranded blocks are the sums over sessions in BAD_* and STRANDED.
 */
struct recv_side;

/* Copies `params`. Gives: recv_session_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status recv_session_open(const struct kvf_heap *heap, const struct recv_params *params,
                                  struct recv_side **side_out);
/* NULL is fine. */
void recv_session_close(struct recv_side *side);

/* ---- events --------------------------------------------------------------------------------- */

enum recv_event_kind {
    RECV_POLL,
    RECV_TICK,           /* timers */
    RECV_OPEN,           /* u.open: out->tag is the tag drawn */
    RECV_CANCEL,         /* u.cancel: engine gives up; E_TIMEOUT: a synchronous receive did */
    RECV_CANCEL_ALL,     /* u.cancel.code: E_SHUTDOWN; new opens give E_CLOSED from now on */
    RECV_MESSAGE,        /* u.message: REPORT, SETTLED, QUIESCED, SESSION_CANCELLED */
    RECV_PUBLISH_FAILED, /* u.publish: a REQUEST_DATA could not be handed over */
    RECV_WRITER_ACTIVE,  /* u.active: WANT or DATA of a writer, by the bounce; or a PATH_NOTE */
    RECV_SCATTER_BEGAN,  /* u.scatter: an own copy into the pages was queued */
    RECV_SCATTER_ENDED,  /* u.scatter: ended well, or was revoked */
    RECV_SCATTER_FAILED, /* u.scatter */
    RECV_PEER_UP,        /* u.peer: a new epoch ends the old life (with proof: its rank is taken) */
    RECV_PEER_LOST,      /* u.peer */
    RECV_PEER_CLOSED,    /* u.peer: BYE without access left: proof */
    RECV_PEER_PROOF,     /* u.peer: that life (epoch) can touch none of our pages any more */
    RECV_DECISION,       /* u.decision: the group */
    RECV_FORCE_RELEASE,  /* u.cancel.rid: the engine takes stranded pages back, unsafe (W42) */
};
#define RECV_EVENT_KIND_COUNT 17

/* One rank to be asked. */
struct recv_writer_params {
    uint32_t rank;       /* world rank */
    uint32_t group;      /* its dp group; all equal when the source is known */
    uint64_t plan_bytes; /* bytes of pages that the plan says it writes */
    bool aux;            /* elected to send aux */
};

struct recv_event {
    enum recv_event_kind kind;
    uint64_t now_ns;  /* awake; never goes back */
    uint64_t real_ns; /* real */
    union {
        struct {
            uint64_t rid;
            uint64_t called_ns; /* real: of the engine's call; 0 = now. For the result's times */
            uint32_t prompt_tokens;
            uint32_t list_count;
            const struct kvf_block_list *lists;       /* copies */
            uint32_t writer_count;                    /* 0: complete at once */
            const struct recv_writer_params *writers; /* copies; ranks differ */
            void *aux;        /* takes params.aux_bytes; borrows until READY or the end; or NULL */
            bool synchronous; /* kept for the result */
            bool
                bounce_only; /* MSG_REQUEST_BOUNCE_ONLY: own scatters are all the access there is */
        } open;
        struct {
            uint64_t rid;
            enum kvf_status code; /* E_CANCELLED; E_TIMEOUT, E_SHUTDOWN: a failure */
        } cancel;
        struct {
            uint32_t peer;         /* world rank of the header's source */
            const struct msg *msg; /* decoded; borrows until the step returns */
        } message;
        struct {
            uint64_t rid;
            uint32_t peer;
            bool may_have_left; /* some of its bytes may have gone out */
            enum kvf_status code;
        } publish;
        struct {
            uint64_t rid;
            uint32_t tag;
            uint32_t peer;
            enum kvf_path path;
        } active;
        struct {
            uint64_t rid;
            uint32_t tag;
            enum kvf_status code; /* FAILED */
        } scatter;
        struct {
            uint32_t peer;
            uint64_t epoch;          /* UP, PROOF */
            enum kvf_status verdict; /* UP: geo_check_peer(); OK = may be asked */
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

enum recv_action_kind {
    RECV_ACT_MESSAGE, /* hand to the peer's channel; a REQUEST_DATA that is refused there: step
                         RECV_PUBLISH_FAILED at once; any other: RECV_PEER_LOST */
    RECV_ACT_FENCE,   /* before what follows: nothing may start to touch (rid, tag); queued scatters
                         are revoked (each RECV_SCATTER_ENDED) */
    RECV_ACT_VOTE,    /* tell the group; carried out before any later action of this request */
    RECV_ACT_LOG,
};

struct recv_action {
    enum recv_action_kind kind;
    uint32_t peer; /* MESSAGE: world rank */
    union {
        struct msg msg; /* header.type, source and epoch set; lists borrow until the next step */
        struct {
            uint64_t rid;
            uint32_t tag;
        } fence;
        struct {
            uint64_t rid;
            unsigned vote; /* enum session_vote, + SESSION_VOTE_DRAINED */
            struct session_result result;
        } vote;
        struct session_log log;
    } u;
};

/* The caller's. `max` >= 1; 16 is a good size. */
struct recv_out {
    struct recv_action *actions;
    uint32_t max;
    uint32_t count;
    bool more;
    uint32_t tag; /* RECV_OPEN */
};

/*
 * Applies one event and gives out actions. Errors leave the machine unchanged (actions that were
 * due are given out all the same):
 *  RECV_OPEN      BUSY, E_EXISTS (live, or ended and remembered), E_CLOSED, E_TOO_LARGE, E_INVAL,
 *                 E_STATE (tags are used up)
 *  RECV_CANCEL    E_NOTFOUND (never opened here, or forgotten)
 *  RECV_DECISION  E_NOTFOUND; E_STATE: RELEASED of a request that is not drained here, refused
 *  RECV_FORCE_RELEASE  E_NOTFOUND, E_STATE (not stranded)
 * All else is OK: what a peer sends is used, dropped or counted.
 */
enum kvf_status recv_session_step(struct recv_side *side, const struct recv_event *event,
                                  struct recv_out *out);

/* Awake time at which RECV_TICK would act; UINT64_MAX = none. */
uint64_t recv_session_deadline_ns(const struct recv_side *side);

/* ---- looking in ----------------------------------------------------------------------------- */

struct recv_counts {
    uint64_t live, remembered;   /* now */
    uint64_t retained_blocks;    /* now: of sessions that ended badly, stranded ones included */
    uint64_t stranded_blocks;    /* now */
    uint64_t unanswered_cancels; /* now: cancels out without an answer */
    uint64_t payload_bytes;      /* attested, of requests that ended well */
    uint64_t duplicates, late;   /* messages without effect */
    uint64_t contradictions;     /* W26 */
    uint64_t wrong_peer;         /* W08 */
    uint64_t cancels_resent;
    uint64_t silent_writers; /* that T ran out on */
    uint64_t forced;
    uint64_t unexpected_events; /* an event no table lists; a bug if not 0 */
    uint64_t logs_lost;
    uint64_t words_used; /* now: of the block store */
};

const struct recv_counts *recv_session_counts(const struct recv_side *side);

/*
 * Block lists of a live request whose outcome is open; borrows until the next step. False: there is
 * none such.
 */
bool recv_session_lists(const struct recv_side *side, uint64_t rid, uint32_t tag,
                        const struct kvf_block_list **lists_out, uint32_t *prompt_tokens_out);

/* Result of a request that is open here, as it stands. Errors: E_NOTFOUND (not live). */
enum kvf_status recv_session_result(const struct recv_side *side, uint64_t rid,
                                    struct session_result *result_out);

#define RECV_DESCRIPTION_WRITERS 8u

/* For kvf_dump: what a live request waits for. */
struct recv_description {
    uint64_t rid;
    uint32_t tag;
    const char *state;   /* "RECEIVING" */
    const char *waiting; /* "reports", "final reports", "own scatters", "the group", "proof" */
    enum kvf_status code;
    unsigned vote;
    uint32_t scatters, blocks, unmarked;
    struct {
        uint32_t rank;
        const char *state; /* "ASKED", "DOUBT", ... */
    } writer[RECV_DESCRIPTION_WRITERS];
    uint32_t writer_count; /* filled: unmarked ones */
};

/* The live request after `*cursor` (NULL = start); false at the end. No step in between. */
bool recv_session_describe(const struct recv_side *side, const void **cursor,
                           struct recv_description *description_out);

/* One line an event or action, the same for the same input: for traces compared word for word. */
size_t recv_event_text(const struct recv_event *event, char *text_out, size_t text_bytes);
size_t recv_action_text(const struct recv_action *action, char *text_out, size_t text_bytes);

/* Aborts when an invariant does not hold; for tests. */
void recv_session_check(const struct recv_side *side);

#endif /* KVF_RECV_SESSION_H */
