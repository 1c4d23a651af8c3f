/*
 * retire.h - what the ranks of a group decide about their requests: one table that every rank fills
 * with the same votes in the same order (docs/consensus.md). Pure: no clock, no library, no
 * allocation after open.
 *
 * Votes of one sweep are given in first, all of them; then the requests that they touched are
 * decided one by one, in the order in which they were first touched. So what comes out depends on
 * the votes and not on who spoke first. A group of one is the same with one rank.
 *
 * May include base only.
 */
#ifndef CONSENSUS_RETIRE_H
#define CONSENSUS_RETIRE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "heap.h"

/* Votes of a rank, in order; a rank never goes back. The numbers are those of the machines. */
enum retire_vote_kind {
    RETIRE_NONE = 0, /* RETIRE_VOTE of this rank alone: the request was opened here, no vote yet */
    RETIRE_ASKED = 1,
    RETIRE_WITHDRAWN = 2,
    RETIRE_DONE = 3,
    RETIRE_DOOMED_FAILED = 4,
    RETIRE_DOOMED_PEER = 5,
    RETIRE_DOOMED_USER = 6,
    RETIRE_ABSENT = 7, /* never opened here, and never will be; always with DRAINED */
};
#define RETIRE_DRAINED 8u
#define RETIRE_BASE(vote) ((vote)&7u)

/* What the engine of this rank is told of its own part; never leaves the rank. */
struct retire_facts {
    uint64_t payload_bytes;
    uint32_t path_mask;
    struct kvf_timing timing;
    uint64_t voted_ns; /* real time of this rank's vote */
};

struct retire_vote {
    uint64_t rid;
    uint32_t rank;           /* member, 0 .. rank_count - 1 */
    unsigned vote;           /* enum retire_vote_kind, + RETIRE_DRAINED */
    bool first;              /* that rank's first vote in this life of the request */
    enum kvf_status status;  /* with DOOMED and ABSENT: why */
    uint32_t culprit;        /* world rank that caused it, or KVF_UNKNOWN */
    struct retire_facts own; /* of this rank's votes alone */
};

enum retire_decision {
    RETIRE_DECIDED_OK,
    RETIRE_DECIDED_FAILED,
    RETIRE_DECIDED_CANCELLED,
    RETIRE_DECIDED_RELEASED,
};

enum retire_event_kind {
    RETIRE_VOTE,   /* u.vote */
    RETIRE_DECIDE, /* the next request that was touched; again while out->more */
    RETIRE_TIME,   /* u.now_ns: the next request whose time is over; again while out->more */
    RETIRE_LOSE,   /* u.lost: the group is lost; then RETIRE_DECIDE while out->more */
};

struct retire_event {
    enum retire_event_kind kind;
    union {
        struct retire_vote vote;
        uint64_t now_ns; /* awake; DECIDE and TIME */
        struct {
            uint32_t culprit; /* world rank, or KVF_UNKNOWN */
        } lost;
    } u;
};

#define RETIRE_EVENTS_MAX 3u
#define RETIRE_DECISIONS_MAX 2u

/*
 * What became of one request. Events and decisions are to be given on in this order, events first.
 * Decisions are for this rank's own machine; one that never had the request knows nothing of it.
 */
struct retire_out {
    bool more;
    bool absent;  /* TIME: nobody here has voted on `rid` for T: vote ABSENT unless it is open */
    bool escaped; /* TIME: `rid` was closed alone, W20 */
    bool absence; /* the outcome is that a rank never opened it, W37: the culprit */
    uint64_t rid;
    uint32_t event_count;
    struct kvf_event events[RETIRE_EVENTS_MAX];
    uint64_t voted_ns; /* of this rank's vote; 0 = none */
    uint32_t decision_count;
    enum retire_decision decisions[RETIRE_DECISIONS_MAX];
    enum kvf_status status; /* of the outcome, with decisions */
    uint32_t culprit;
};

#define RETIRE_RANKS_MAX 4096u

struct retire_params {
    enum kvf_side side;
    uint32_t rank_count;  /* 1 .. RETIRE_RANKS_MAX */
    uint32_t self;        /* member number of this rank */
    uint32_t entries_max; /* requests that may be voted on at once, of all ranks together */
    uint64_t timeout_ns;  /* T; 0 = no request is ever called absent or closed alone */
    /* [rank_count]; borrows during open. NULL: member numbers are world ranks. */
    const uint32_t *world_ranks;
};

/*
 * The table. Invariants (retire_check):
 *  R1 an entry is in the map or unused, never both.
 *  R2 its counts are those of its votes.
 *  R3 undecided: nobody is doomed or absent, and not all are done; unless it waits to be decided.
 *  R4 decided: not all are drained; unless it waits to be decided. Never undecided again.
 *  R5 what is in the list of absence has no vote of this rank; what is in the list of escape is
 *     decided and not closed.
 */
struct retire;

/* Gives: retire_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status retire_open(const struct kvf_heap *heap, const struct retire_params *params,
                            struct retire **retire_out);
/* NULL is fine. */
void retire_close(struct retire *retire);

/*
 * A late vote of a request that is retired already does nothing: its rank had not yet heard of the
 * decision. Errors leave all as it was, with nothing in `out`: E_TOO_LARGE (more than entries_max
 * requests), E_PROTOCOL (the vote goes back, is of no member, or ABSENT without DRAINED).
 */
enum kvf_status retire_step(struct retire *retire, const struct retire_event *event,
                            struct retire_out *out);

/*
 * The same number on all ranks whose tables have had the same votes and hold the same: all that was
 * ever applied, and the contents of a few entries, other ones at each call, so that its cost does
 * not grow with the table. Call it equally often on all ranks.
 */
uint32_t retire_digest(struct retire *retire);

/* Requests that were voted on and are not retired. */
uint32_t retire_live(const struct retire *retire);
/* Requests, or votes, since open. */
struct retire_counts {
    uint64_t late;      /* votes of retired requests */
    uint64_t overruled; /* votes stronger than the outcome that stood */
    uint64_t repeated;  /* votes that said nothing new */
    uint64_t escaped;
    uint64_t absent; /* this rank's ABSENT votes */
};
const struct retire_counts *retire_counts(const struct retire *retire);

/* True when awake time `now_ns` makes RETIRE_TIME act. */
bool retire_due(const struct retire *retire, uint64_t now_ns);

/* The votes of all members on a request, or NULL when it is not in the table. */
const uint8_t *retire_votes(const struct retire *retire, uint64_t rid);

/* Changes one bit of the table, as a fault would: for tests of the digest alone. */
void retire_damage(struct retire *retire, uint32_t entry, unsigned bit);

/* Aborts when an invariant does not hold; for tests. */
void retire_check(const struct retire *retire);

#endif /* CONSENSUS_RETIRE_H */
