/*
 * recv_internal.h - the objects of the generation side and what its files call of each other.
 *
 * One machine over several files: recv_session.c (open, dispatch, giving out actions), recv_live.c
 * (the life of a request), recv_writer.c (the writers of a request and their answers), recv_peer.c
 * (peers that come and go), recv_look.c (counts, descriptions, invariants), recv_text.c (trace
 * lines).
 *
 * Actions are not stored: an object that has something to give out stands in the side's list `due`,
 * in the order in which it became due, and the action is made from its state when its turn comes.
 * Nothing outside these files may include this, tests excepted.
 */
#ifndef KVF_RECV_INTERNAL_H
#define KVF_RECV_INTERNAL_H

#include "list.h"
#include "recv_session.h"
#include "rid_map.h"
#include "store.h"

#define RECV_LOGS_MAX 256u
#define RECV_WRONG_PEER_LOG_NS UINT64_C(1000000000) /* W08: once a second a peer */

enum recv_due_kind {
    RECV_DUE_PUBLISH, /* a writer: REQUEST_DATA */
    RECV_DUE_CANCEL,  /* a writer: CANCEL_SESSION */
    RECV_DUE_FENCE,   /* a session */
    RECV_DUE_VOTE,    /* a session */
    RECV_DUE_LOGS,    /* the side */
};

struct recv_due {
    struct list node; /* in side->due */
    enum recv_due_kind kind;
};

struct recv_peer {
    struct list writers; /* of all sessions, of all lives */
    uint64_t epoch;
    enum kvf_status verdict;
    bool up;
    bool refusal_logged; /* W27, this life */
    uint64_t wrong_log_ns;
};

enum recv_writer_state {
    RECV_WRITER_UNASKED,       /* REQUEST_DATA was not given out */
    RECV_WRITER_ASKED,         /* member of W from here on */
    RECV_WRITER_DOUBT,         /* IN_DOUBT, access not over */
    RECV_WRITER_GONE_UNPROVEN, /* peer lost, no proof */
    RECV_WRITER_DONE,          /* marked: no access, and none will be */
};

struct recv_writer {
    struct list of_session; /* or free */
    struct list of_peer;
    struct list resend; /* in side->resends, by due_ns */
    struct recv_due publish;
    struct recv_due cancel;
    struct recv_session *session;
    uint32_t rank;
    uint64_t epoch;
    uint32_t group;
    bool aux;
    enum recv_writer_state state;
    bool succeeded; /* all slices */
    bool failed;    /* FAILED or SETTLED was its final */
    bool cancelled; /* a CANCEL was given out */
    bool answered;  /* its final answer came; DONE without one: given up, or proven gone */
    enum kvf_status code;
    uint8_t reason; /* of the cancel */
    uint32_t cancel_id;
    uint64_t due_ns;
    uint64_t plan_bytes;
    uint64_t bytes;     /* attested */
    uint32_t path_mask; /* seen */
    uint32_t slices_done;
    uint32_t last_slice; /* KVF_UNKNOWN = not yet */
    uint64_t *slices;    /* bitmap of params.slices_max */
};

enum recv_state {
    RECV_NEW,
    RECV_ASKED,
    RECV_RECEIVING,
    RECV_OK,
    RECV_BAD_WAIT,
    RECV_BAD_DRAINED,
    RECV_STRANDED,
};

/* Everything remembered of a rid. */
struct recv_request {
    struct list node; /* in side->live or side->ended, oldest first; or free */
    uint64_t rid;
    uint64_t due_ns; /* ended: forgotten then */
    struct recv_session *session;
};

struct recv_session {
    struct list node;    /* free list */
    struct list timer;   /* in side->timers, by due_ns */
    struct list scatter; /* in side->scatter_first or side->scatter_later, by scatter_due_ns */
    struct recv_due fence;
    struct recv_due vote;
    struct recv_request *request;
    uint32_t tag;
    enum recv_state state;
    enum session_outcome outcome;
    enum kvf_status code;
    struct {
        enum session_outcome outcome;
        enum kvf_status code;
    } doom; /* of a doomed vote while the own part is done: why the group is asked to give up */
    uint32_t culprit;
    bool decided;
    bool published; /* at least one REQUEST_DATA was given out */
    bool broadcast;
    bool bounce_only;
    bool synchronous;
    struct list writers;
    uint32_t writer_count;
    uint32_t unmarked;       /* of W */
    uint32_t expected_group; /* E; SESSION_GROUP_UNKNOWN = not known yet */
    uint32_t prompt_tokens;
    uint32_t list_count;
    struct kvf_block_list *lists; /* [params.lists_max], this session's part of side->lists */
    uint32_t *run;
    uint32_t blocks;
    void *aux; /* the engine's; borrows until the outcome */
    uint32_t scatters;
    bool scatter_warned;
    unsigned vote_given;
    unsigned vote_wanted;
    uint64_t due_ns, scatter_due_ns;
    uint64_t opened_ns, published_ns, started_ns, done_ns; /* real; 0 = not yet */
    uint32_t path_mask;
};

struct recv_side {
    const struct kvf_heap *heap; /* borrows */
    struct recv_params params;
    struct recv_counts counts;
    uint64_t now_ns, real_ns; /* of the running step */
    uint32_t next_tag;        /* 0 = used up */
    uint32_t cancel_next;
    bool closing;

    struct list due;
    struct list live, ended;
    struct list timers;
    struct list scatter_first, scatter_later;
    struct list resends;

    struct rid_map *map;
    struct store *store;
    struct recv_peer *peers;       /* [world_size] */
    struct recv_request *requests; /* [requests_max + remembered_max] */
    struct recv_session *sessions; /* [requests_max] */
    struct recv_writer *writers;   /* [writers_max] */
    uint64_t *slices;              /* [writers_max * slice_words] */
    uint32_t slice_words;
    uint32_t free_writer_count;
    struct kvf_block_list *lists; /* [requests_max * lists_max] */
    struct list free_requests, free_sessions, free_writers;

    struct recv_due logs_due;
    struct session_log *logs; /* [RECV_LOGS_MAX] */
    uint32_t log_first, log_count;
};

/* ---- recv_session.c ------------------------------------------------------------------------- */

/* Moves `due` to the end of the list, once. */
void recv_due_push(struct recv_side *side, struct recv_due *due);

/* Keeps a log entry for RECV_ACT_LOG. Entries beyond the level go. */
void recv_log(struct recv_side *side, const struct session_log *entry);

/* A log entry about one request; `rank` KVF_UNKNOWN = none. */
void recv_log_request(struct recv_side *side, const struct session_note *note,
                      const struct recv_session *session, enum kvf_status code, uint32_t rank);

/* ---- recv_live.c ---------------------------------------------------------------------------- */

struct recv_session *recv_live_find(const struct recv_side *side, uint64_t rid);
/* store_moved_fn: block lists point into their runs. `self` is the side. */
void recv_live_run_moved(void *self, uint32_t owner, uint32_t *run);
enum kvf_status recv_live_open(struct recv_side *side, const struct recv_event *event,
                               uint32_t *tag_out);
enum kvf_status recv_live_cancel(struct recv_side *side, uint64_t rid, enum kvf_status code);
enum kvf_status recv_live_decide(struct recv_side *side, const struct recv_event *event);
enum kvf_status recv_live_force(struct recv_side *side, uint64_t rid);
void recv_live_scatter(struct recv_side *side, const struct recv_event *event);
void recv_live_tick(struct recv_side *side);
/* NEW, ASKED or RECEIVING. */
bool recv_live_pending(const struct recv_session *session);
bool recv_live_is_bad(const struct recv_session *session);
void recv_live_vote(struct recv_side *side, struct recv_session *session, unsigned vote);
void recv_live_arm(struct recv_side *side, struct recv_session *session);
void recv_live_fill_result(const struct recv_session *session, struct session_result *result_out);

struct recv_end {
    enum session_outcome outcome;
    enum kvf_status code;
    uint32_t culprit;
    enum msg_cancel_reason reason;
};
void recv_live_turn_bad(struct recv_side *side, struct recv_session *session,
                        const struct recv_end *end);
/* Completes the request when all of E has succeeded and nothing is scattered any more. */
void recv_live_check_complete(struct recv_side *side, struct recv_session *session);
/* States and votes that follow from one writer marked, or one scatter less. */
void recv_live_check_drained(struct recv_side *side, struct recv_session *session);

/* ---- recv_writer.c -------------------------------------------------------------------------- */

void recv_writer_add(struct recv_side *side, struct recv_session *session,
                     const struct recv_writer_params *params);
void recv_writer_free(struct recv_side *side, struct recv_writer *writer);
/* The entry of this life of peer `rank`, or NULL. */
struct recv_writer *recv_writer_find(const struct recv_side *side,
                                     const struct recv_session *session, uint32_t rank);
void recv_writer_message(struct recv_side *side, const struct recv_event *event);
void recv_writer_active(struct recv_side *side, const struct recv_event *event);
void recv_writer_publish_failed(struct recv_side *side, const struct recv_event *event);
/* It has no access, and will have none. */
void recv_writer_mark(struct recv_side *side, struct recv_writer *writer);
/* Makes a CANCEL due. */
void recv_writer_cancel(struct recv_side *side, struct recv_writer *writer,
                        enum msg_cancel_reason reason);
/* False: void by now. */
bool recv_writer_give_publish(struct recv_side *side, struct recv_writer *writer,
                              struct recv_action *action_out);
bool recv_writer_give_cancel(struct recv_side *side, struct recv_writer *writer,
                             struct recv_action *action_out);
void recv_writer_tick(struct recv_side *side);

/* ---- recv_peer.c ---------------------------------------------------------------------------- */

void recv_peer_event(struct recv_side *side, const struct recv_event *event);

#endif /* KVF_RECV_INTERNAL_H */
