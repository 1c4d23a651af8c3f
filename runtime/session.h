/*
 * session.h - what the two session machines share: votes, decisions, results, log entries, windows.
 *
 * Plain data. Peers are named by world rank. Times end in _ns: `now_ns` is the awake clock that the
 * machines live by, `real_ns` the real clock that only ends up in results. May include base.
 */
#ifndef KVF_SESSION_H
#define KVF_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

/* Votes of a rank for a request (docs/protocol.md); a rank never goes back. */
enum session_vote {
    SESSION_VOTE_NONE = 0,
    SESSION_VOTE_ASKED = 1,
    SESSION_VOTE_WITHDRAWN = 2,
    SESSION_VOTE_DONE = 3,
    SESSION_VOTE_DOOMED_FAILED = 4,
    SESSION_VOTE_DOOMED_PEER = 5,
    SESSION_VOTE_DOOMED_USER = 6,
    SESSION_VOTE_ABSENT = 7, /* never made by a machine: the group's */
};
#define SESSION_VOTE_DRAINED 8u /* bit: nothing can touch this rank's pages any more */
#define SESSION_VOTE_BASE(vote) ((vote)&7u)

/* What the group decided. A group of one answers each vote at once. */
enum session_decision {
    SESSION_DECIDED_OK,        /* all DONE: engine event READY or SENT */
    SESSION_DECIDED_FAILED,    /* with a code */
    SESSION_DECIDED_CANCELLED, /* with E_CANCELLED or E_PEER_CANCELLED */
    SESSION_DECIDED_RELEASED,  /* all DRAINED, after one of the others */
};

enum session_outcome {
    SESSION_PENDING,
    SESSION_OK,
    SESSION_FAILED,
    SESSION_CANCELLED, /* E_CANCELLED: by the engine; E_PEER_CANCELLED: by the other side */
};

/* What became of a request on this rank: for kvf_event. */
struct session_result {
    enum session_outcome outcome;
    enum kvf_status status;
    uint32_t culprit; /* world rank, or KVF_UNKNOWN */
    uint64_t payload_bytes;
    uint32_t path_mask;       /* bit 1 << enum kvf_path */
    bool synchronous;         /* generation: the caller will kvf_wait() for it */
    unsigned voted;           /* with a vote: the one given out before it */
    struct kvf_timing timing; /* agree_ns is 0: the group's */
};

/* A part of a request, as decoded from kvf_window by the glue: token_end and layer_end are set. */
struct session_window {
    uint32_t token_first;
    uint32_t token_end;
    uint32_t layer_first;
    uint32_t layer_end;
    bool last;
};

/* What is said, whatever it is about. */
struct session_note {
    enum kvf_log_level level;
    const char *event; /* "W19", or "" */
    const char *text;  /* constant */
};

#define SESSION_LOG_RANKS 8u

/* One line to be logged. Machines do not log: the glue adds names and writes it. */
struct session_log {
    enum kvf_log_level level;
    const char *event; /* "W19", or "" */
    const char *text;  /* constant */
    uint64_t rid;
    enum kvf_status code;
    uint64_t number;                   /* what the text counts; 0 = nothing */
    uint32_t ranks[SESSION_LOG_RANKS]; /* the first world ranks that it is about */
    uint32_t rank_count;               /* all of them, also beyond SESSION_LOG_RANKS */
};

/* Settings that both machines live by; from the settings table. */
struct session_times {
    uint64_t transfer_timeout_ns; /* T */
    uint64_t remember_ns;         /* TTL of asks, fences and ended requests */
    uint64_t cancel_resend_ns;    /* 1 s */
    uint64_t scatter_warn_ns;     /* 5 s */
};

/* This rank, as it stands in the headers of its messages. */
struct session_self {
    uint16_t instance;
    uint16_t rank;
    uint64_t epoch;
};

#define SESSION_GROUP_UNKNOWN UINT32_MAX

/* The slots of all lists, which lie one after the other, lie at `run` now. */
void session_lists_moved(struct kvf_block_list *lists, uint32_t count, const uint32_t *run);

/* Short constant names: "FAILED", "DOOMED_PEER", "DONE+DRAINED". */
const char *session_vote_name(unsigned vote);
const char *session_outcome_name(enum session_outcome outcome);

#endif /* KVF_SESSION_H */
