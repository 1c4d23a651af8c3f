/*
 * retire.h - what a group of one rank decides about its requests: each vote is answered at once.
 * Pure. Votes in, engine events and decisions out (docs/protocol.md, "vote and entry").
 *
 * A group of several ranks agrees by sweeps; it has the same votes, events and decisions.
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
    RETIRE_NONE = 0,
    RETIRE_ASKED = 1,
    RETIRE_WITHDRAWN = 2,
    RETIRE_DONE = 3,
    RETIRE_DOOMED_FAILED = 4,
    RETIRE_DOOMED_PEER = 5,
    RETIRE_DOOMED_USER = 6,
    RETIRE_ABSENT = 7,
};
#define RETIRE_DRAINED 8u

struct retire_vote {
    uint64_t rid;
    unsigned vote;          /* enum retire_vote_kind, + RETIRE_DRAINED */
    unsigned before;        /* the rank's vote before it; RETIRE_NONE: its first in this life */
    struct kvf_event facts; /* status, culprit, payload_bytes, path_mask, timing of this rank */
};

enum retire_decision {
    RETIRE_DECIDED_OK,
    RETIRE_DECIDED_FAILED,
    RETIRE_DECIDED_CANCELLED,
    RETIRE_DECIDED_RELEASED,
};

#define RETIRE_EVENTS_MAX 2u

/* What a vote came to. Decisions go back to the rank's machine, in this order, after the events. */
struct retire_out {
    uint32_t event_count;
    struct kvf_event events[RETIRE_EVENTS_MAX];
    uint32_t decision_count;
    enum retire_decision decisions[RETIRE_EVENTS_MAX];
};

struct retire_params {
    enum kvf_side side;
    uint32_t requests_max;
};

/*
 * Entries of the requests that are not retired. Invariants (retire_check): R1 an entry is in the
 * map or unused, never both; R2 a decided entry has had its outcome event once; R3 DRAINED of a
 * decided entry retires it at once, so that no decided and drained entry exists.
 */
struct retire;

/* Gives: retire_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status retire_open(const struct kvf_heap *heap, const struct retire_params *params,
                            struct retire **retire_out);
/* NULL is fine. */
void retire_close(struct retire *retire);

/*
 * Applies one vote. A later vote of a request that is retired already does nothing: its rank has
 * not yet heard of the decision. Errors leave all as it was, with nothing in `out`: BUSY (more than
 * requests_max undecided requests), E_PROTOCOL (the vote goes back, or ABSENT).
 */
enum kvf_status retire_step(struct retire *retire, const struct retire_vote *vote,
                            struct retire_out *out);

/* Requests that were voted on and are not retired. */
uint32_t retire_live(const struct retire *retire);

/* Aborts when an invariant does not hold; for tests. */
void retire_check(const struct retire *retire);

#endif /* CONSENSUS_RETIRE_H */
