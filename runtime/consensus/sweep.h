/*
 * sweep.h - the agreement of one group, as one of its ranks: votes into fixed-size messages, what
 * all ranks gave into the table of retire.h, events and decisions out (docs/consensus.md). Pure: no
 * clock, no library, no allocation after open.
 *
 * Use: step one event with a fresh `out`, carry its actions out in order, step SWEEP_POLL while
 * out->more. `lag` sweeps are under way at once (one with lag 0); each has a slot of its own.
 *
 *   SWEEP_CALL          the engine's call of one iteration. With out->due the outside looks whether
 *                       the sweep in out->slot is complete and steps SWEEP_GATHERED or
 *                       SWEEP_WAITING; out->done: the iteration is through.
 *
 * Whether a sweep is started depends on the number of calls alone, which is the same on all ranks,
 * never on what a rank has to say. May include base only.
 */
#ifndef CONSENSUS_SWEEP_H
#define CONSENSUS_SWEEP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "consensus/retire.h"
#include "heap.h"

/* Message of a rank: a head, then `count` deltas; its size is the class, alike on all ranks. */
#define SWEEP_HEAD_BYTES 16u
#define SWEEP_DELTA_BYTES 16u
#define SWEEP_DELTAS_MAX 255u
#define SWEEP_MESSAGE_MAX (SWEEP_HEAD_BYTES + SWEEP_DELTAS_MAX * SWEEP_DELTA_BYTES)
#define SWEEP_CLASSES 4u      /* 3, 15, 63, 255 deltas: 64 B, 256 B, 1 KiB, 4 KiB */
#define SWEEP_SHRINK_AFTER 8u /* sweeps without need, then one class less */
#define SWEEP_LAG_MAX 64u

/* Iteration numbers of sweeps that are not the engine's. */
#define SWEEP_ITERATION_OWN 0x80000000u

/* What a rank says of itself with a call; in the head. */
#define SWEEP_LEAVING \
    1u /* closing, and nothing is live here: no sweep after the one in which all say so */
#define SWEEP_STALLED 2u   /* this process stood still just now */
#define SWEEP_GIVING_UP 4u /* the bound of a synchronous receive is over here */
#define SWEEP_CLOSING 8u   /* its iteration number is not the engine's: not compared */

enum sweep_cause {
    SWEEP_HEALTHY,
    SWEEP_LOST_MEMBER,   /* a member's process has ended, or it is silent */
    SWEEP_LOST_STUCK,    /* a sweep was not complete after T, nobody is known to be lost */
    SWEEP_LOST_DIVERGED, /* heads differ */
    SWEEP_LOST_MPI,      /* the collective failed */
    SWEEP_LOST_FULL,     /* more requests are voted on than the group has room for */
    SWEEP_LOST_TOLD,     /* another member said so */
};

/* What is told to all members when a group is lost; also kept. */
struct sweep_loss {
    uint32_t cause;   /* enum sweep_cause: of the member that found it */
    uint32_t culprit; /* world rank, or KVF_UNKNOWN */
    uint32_t sweep;   /* last one that was applied */
};

struct sweep_params {
    struct retire_params retire; /* side, members, entries, T */
    uint32_t votes_max;          /* votes of this rank that wait, at least 1 */
    uint32_t lag;                /* 0 .. SWEEP_LAG_MAX */
    uint64_t warn_ns;            /* W28 */
    uint64_t deadline_ns;        /* a sweep slower than this ends the group if a member is silent */
};

enum sweep_event_kind {
    SWEEP_POLL, /* the rest of the step before */
    SWEEP_VOTE, /* u.vote: of this rank's machine. `rank` is not looked at. RETIRE_NONE: opened */
    SWEEP_CALL, /* u.call */
    SWEEP_GATHERED, /* u.gathered: the sweep in out->slot; borrows until out->more is false */
    SWEEP_WAITING,  /* it is not complete */
    SWEEP_MEMBER,   /* u.member: what is known of a member from elsewhere */
    SWEEP_FAILED,   /* the collective failed */
    SWEEP_TOLD,     /* u.told: a member said that the group is lost */
};

struct sweep_event {
    enum sweep_event_kind kind;
    uint64_t now_ns; /* awake; never goes back */
    union {
        struct retire_vote vote;
        struct {
            uint32_t iteration; /* low bits of the engine's, or with SWEEP_ITERATION_OWN */
            unsigned flags;     /* SWEEP_LEAVING ... */
        } call;
        struct {
            const uint8_t *bytes; /* one message a member, in their order */
        } gathered;
        struct {
            uint32_t rank;
            bool dead;       /* its process has ended, or it is lost: ends the group */
            bool silent;     /* it was asked and has not answered for a while */
            bool answers;    /* it was asked and has answered: `posted` is known */
            uint32_t posted; /* sweeps that it has started */
        } member;
        struct sweep_loss told;
    } u;
};

enum sweep_action_kind {
    SWEEP_ACT_POST,    /* start the collective in `slot`; the bytes borrow until the next step */
    SWEEP_ACT_EVENT,   /* for the engine */
    SWEEP_ACT_DECIDE,  /* for this rank's machine */
    SWEEP_ACT_ABSENT,  /* unless u.rid is open here, make it impossible to open and vote ABSENT */
    SWEEP_ACT_TELL,    /* u.loss: tell all members; then abandon the collectives under way */
    SWEEP_ACT_END_ALL, /* the group is lost: this rank's machine ends all it has; no new requests */
    SWEEP_ACT_LOG,
};

#define SWEEP_TEXT_BYTES 224u

struct sweep_action {
    enum sweep_action_kind kind;
    union {
        struct {
            uint32_t slot;
            const uint8_t *bytes;
            size_t len_bytes;
        } post;
        struct {
            struct kvf_event event;
            uint64_t voted_ns; /* real time of this rank's vote; 0 = it has not voted */
        } event;
        struct {
            uint64_t rid;
            enum retire_decision decision;
            enum kvf_status status;
            uint32_t culprit;
        } decide;
        uint64_t rid;
        struct sweep_loss loss;
        struct {
            enum kvf_log_level level;
            const char *event; /* "W28" */
            char text[SWEEP_TEXT_BYTES];
        } log;
    } u;
};

#define SWEEP_ACTIONS_MIN 6u

/* The caller's. `max` >= SWEEP_ACTIONS_MIN. Zero `count` before each step. */
struct sweep_out {
    struct sweep_action *actions;
    uint32_t max;
    uint32_t count;
    bool more;
    bool due; /* the sweep in `slot` must be complete before the call is done */
    uint32_t slot;
    bool done; /* the call is through */
};

/*
 * One rank's side. Invariants (sweep_check):
 *  S1 sweeps under way are at most max(lag, 1), numbered without a gap, the oldest first.
 *  S2 votes that wait = votes in messages under way + votes not sent yet, in the order given.
 *  S3 a lost group never applies a sweep and never starts one.
 *  and those of its table.
 */
struct sweep;

/* Slots that the collective needs for a lag. */
uint32_t sweep_slots(uint32_t lag);

/* Gives: sweep_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status sweep_open(const struct kvf_heap *heap, const struct sweep_params *params,
                           struct sweep **sweep_out);
/* NULL is fine. */
void sweep_close(struct sweep *sweep);

/*
 * Errors leave all as it was: BUSY (VOTE: votes_max wait), E_GROUP_LOST (CALL; what the loss left
 * to say is given out all the same), E_STATE (CALL before the one before is done, or after all have
 * left; GATHERED or WAITING when none is due), E_PROTOCOL (VOTE goes back).
 */
enum kvf_status sweep_step(struct sweep *sweep, const struct sweep_event *event,
                           struct sweep_out *out);

/* ---- looking in ----------------------------------------------------------------------------- */

struct sweep_state {
    enum sweep_cause cause; /* SWEEP_HEALTHY, or why the group is lost */
    struct sweep_loss loss;
    uint32_t posted;  /* sweeps started */
    uint32_t applied; /* sweeps applied */
    uint32_t under_way;
    uint32_t backlog;   /* own votes not in any message yet */
    uint32_t waiting;   /* own votes not applied yet, those ones included */
    bool left;          /* all said LEAVING: no more sweeps */
    bool giving_up;     /* in the last sweep applied some member said so */
    uint64_t deltas;    /* own votes that were sent, since open */
    uint64_t carried;   /* sweeps in which own votes had to wait for the next one */
    uint64_t bytes;     /* own bytes sent */
    uint32_t len_bytes; /* message size now */
};
void sweep_look(const struct sweep *sweep, struct sweep_state *state_out);
/* The table, for tests and dumps; borrows until the next step. */
struct retire *sweep_table(struct sweep *sweep);
/* Short constant text. */
const char *sweep_cause_text(enum sweep_cause cause);
/* Aborts when an invariant does not hold; for tests. */
void sweep_check(const struct sweep *sweep);

#endif /* CONSENSUS_SWEEP_H */
