/*
 * send_internal.h - the objects of the context side and what its files call of each other.
 *
 * One machine over several files: send_session.c (open, dispatch, giving out actions),
 * send_record.c (what is remembered of a request), send_live.c (a request the engine has
 * opened), send_task.c (running writes), send_results.c (answers to one peer, in order),
 * send_look.c (counts, descriptions, invariants), send_text.c (trace lines).
 *
 * Actions are not stored: an object that has something to give out stands in the side's list `due`,
 * in the order in which it became due, and the action is made from its state when its turn comes.
 * Nothing outside these files may include this, tests excepted.
 */
#ifndef KVF_SEND_INTERNAL_H
#define KVF_SEND_INTERNAL_H

#include "list.h"
#include "rid_map.h"
#include "send_session.h"
#include "store.h"

#define SEND_LOGS_MAX 256u
#define SEND_WRONG_PEER_LOG_NS UINT64_C(1000000000) /* W08: once a second a peer */

enum send_due_kind {
    SEND_DUE_RESULTS, /* a peer's result queue */
    SEND_DUE_LOSE,    /* a peer whose answers overflow */
    SEND_DUE_START,   /* a receiver with windows to begin */
    SEND_DUE_ABORT,   /* a task */
    SEND_DUE_VOTE,    /* a session */
    SEND_DUE_LOGS,    /* the side */
};

struct send_due {
    struct list node; /* in side->due (START: or in side->starved) */
    enum send_due_kind kind;
};

/* Member of a peer's result queue, inside the object that it is made from. */
enum send_result_kind {
    SEND_RESULT_SLICE,     /* a task that ended well: REPORT SUCCESS */
    SEND_RESULT_CANCELLED, /* a receiver: SESSION_CANCELLED */
    SEND_RESULT_DOUBT,     /* a receiver: REPORT IN_DOUBT */
    SEND_RESULT_FINAL,     /* a receiver: its final answer */
    SEND_RESULT_ANSWER,    /* an answer of its own */
};

struct send_result {
    struct list node;
    enum send_result_kind kind;
};

/* The final answer to (rid, receiver, tag), claimed once. */
enum send_final_kind {
    SEND_FINAL_NONE,
    SEND_FINAL_SUCCESS, /* the report of the last slice */
    SEND_FINAL_FAILED,
    SEND_FINAL_SETTLED,
    SEND_FINAL_QUIESCED,
};

struct send_final {
    enum send_final_kind kind;
    enum kvf_status code;
    uint32_t slice;
    uint32_t cancel_id; /* QUIESCED */
    uint64_t bytes;
    uint64_t report_id;
    enum kvf_path path;
    bool unanswered;
};

struct send_peer {
    struct list results; /* the result queue */
    uint32_t queued;     /* its length */
    struct send_due due; /* RESULTS */
    struct send_due lose;
    struct list receivers; /* of all records */
    struct list served;
    uint64_t epoch;
    enum kvf_status verdict;
    bool up;
    bool overflowed;
    bool refusal_logged; /* W27, this life */
    bool legacy_logged;  /* W25 */
    uint64_t wrong_log_ns;
};

/* An answer that belongs to no live object. */
struct send_answer {
    struct list node; /* free list */
    struct send_result result;
    uint64_t rid;
    uint32_t tag;
    struct send_final final;
};

struct send_part {
    struct list node; /* in session->parts, by slice; or free */
    struct session_window window;
    uint32_t slice;
    bool ready;
};

struct send_receiver {
    struct list of_record; /* or free */
    struct list of_peer;
    struct list tasks;
    struct send_due start;
    struct send_result cancelled, doubt, result;
    struct send_record *record;
    uint32_t rank; /* world rank */
    uint64_t epoch;
    uint32_t tag;
    uint32_t prompt_tokens;
    uint16_t flags;
    bool aux_wanted;
    bool queued;  /* a task of it was ever due */
    bool doubted; /* IN_DOUBT was answered */
    bool failed;  /* a begun slice has ended without success */
    uint32_t failed_slice;
    bool unanswered;
    uint32_t doubt_slice;
    enum kvf_status doubt_code;
    uint32_t list_count;
    struct kvf_block_list *lists; /* [params.lists_max], this receiver's part of side->lists */
    uint32_t *run;                /* in the store; NULL when given back */
    struct send_part *begun;      /* the last one begun; NULL = none */
    uint32_t begun_count;
    uint32_t done_count;
    uint32_t access; /* tasks running or in doubt */
    struct send_final final;
};

enum send_task_state {
    SEND_TASK_FREE,
    SEND_TASK_RUNNING,
    SEND_TASK_DOUBT,
    SEND_TASK_REPORTING, /* ended well; its report waits in the result queue */
};

struct send_task {
    struct list of_receiver; /* or free */
    struct list waiting;     /* in side->running, by due_ns: W24 */
    struct send_due abort;
    struct send_result result;
    struct send_receiver *receiver;
    enum send_task_state state;
    uint32_t generation;
    uint32_t slice;
    bool last;
    uint64_t due_ns;
    uint64_t bytes;
    uint64_t report_id;
    enum kvf_path path;
};

/* A receiver of an ended request. */
struct send_served {
    struct list of_record; /* or free */
    struct list of_peer;
    struct send_record *record;
    uint32_t rank;
    uint32_t tag;
    struct send_final final;
};

enum send_state {
    SEND_ASKED,
    SEND_FENCED,
    SEND_LIVE,
    SEND_TOMB_OK,
    SEND_TOMB_BAD,
};

struct send_record {
    struct list node; /* in side->asked, fenced, live or tombs, oldest first; or free */
    struct list receivers;
    struct list served;
    uint64_t rid;
    uint64_t due_ns; /* ASKED, FENCED, TOMB: forgotten then */
    enum send_state state;
    enum kvf_status code; /* TOMB_BAD */
    bool opened;          /* the engine knows it */
    struct send_session *session;
};

enum send_session_state {
    SEND_SESSION_OPEN,
    SEND_SESSION_SENDING,
    SEND_SESSION_SENT,
    SEND_SESSION_BAD_DRAINING,
    SEND_SESSION_BAD_DRAINED,
};

enum send_timer { SEND_TIMER_NONE, SEND_TIMER_UNASKED, SEND_TIMER_SENDING };

struct send_session {
    struct list node;  /* free list */
    struct list timer; /* in side->timers, by due_ns */
    struct send_due vote;
    struct send_record *record;
    enum send_session_state state;
    enum session_outcome outcome;
    enum kvf_status code;
    uint32_t culprit;
    bool decided;
    uint32_t group;
    uint32_t prompt_tokens;
    uint32_t list_count;
    struct kvf_block_list *lists; /* [params.lists_max], this session's part of side->lists */
    uint32_t *run;
    uint32_t blocks;
    uint8_t *aux; /* [params.aux_bytes] */
    bool has_aux;
    struct list parts;
    uint32_t part_count;
    bool last;      /* the last window was added */
    uint32_t asked; /* expected receivers that are stored */
    uint32_t done;  /* expected receivers that have all slices */
    uint32_t access;
    bool sent_any; /* a task was begun */
    bool retained;
    unsigned vote_given;
    unsigned vote_wanted;
    enum send_timer timer_kind;
    uint64_t due_ns;
    uint64_t opened_ns, ready_ns, asked_ns, done_ns; /* real; 0 = not yet */
    uint64_t payload_bytes;
    uint32_t path_mask;
};

struct send_side {
    const struct kvf_heap *heap; /* borrows */
    struct send_params params;   /* groups and group_of point to own copies */
    struct send_counts counts;
    uint64_t now_ns, real_ns; /* of the running step */
    uint64_t report_next;
    bool closing;
    enum kvf_status closing_code;

    struct list due;
    struct list starved; /* receivers whose next task waits for a free one */
    struct list asked, fenced, live, tombs;
    struct list timers;  /* of sessions */
    struct list running; /* tasks */

    struct rid_map *map;
    struct store *store;
    struct send_peer *peers;         /* [world_size] */
    struct send_record *records;     /* [requests_max + asks_max + fences_max + tombstones_max] */
    struct send_session *sessions;   /* [requests_max] */
    struct send_receiver *receivers; /* [receivers_max] */
    struct send_served *served;      /* [served_max] */
    struct send_part *parts;         /* [windows_max] */
    struct send_task *tasks;         /* [tasks_max] */
    struct send_answer *answers;     /* [answers_max] */
    struct kvf_block_list *lists;    /* [(requests_max + receivers_max) * lists_max] */
    uint8_t *aux;                    /* [requests_max * aux_bytes] */
    struct send_group *groups;
    uint32_t *group_ranks;
    uint32_t *group_of;
    struct list free_records, free_sessions, free_receivers, free_served, free_parts, free_tasks,
        free_answers;

    struct send_due logs_due;
    struct session_log *logs; /* [SEND_LOGS_MAX] */
    uint32_t log_first, log_count;
};

/* ---- send_session.c ------------------------------------------------------------------------- */

/* Moves `due` to the end of the list, once. */
void send_due_push(struct send_side *side, struct send_due *due);

/* Keeps a log entry for SEND_ACT_LOG; `rank` KVF_UNKNOWN = none. Entries beyond the level go. */
void send_log(struct send_side *side, const struct session_log *entry, uint32_t rank);

/* A log entry about one request. */
void send_log_request(struct send_side *side, const struct session_note *note,
                      const struct send_record *record, enum kvf_status code, uint32_t rank);

/* Counts a message of a rank that has no say in the request; W08. */
void send_wrong_peer(struct send_side *side, uint64_t rid, uint32_t rank);

/* ---- send_record.c ----------------------------------------------------------------------- */

struct send_record *send_record_find(const struct send_side *side, uint64_t rid);
void send_record_request_data(struct send_side *side, const struct send_event *event);
void send_record_cancel_session(struct send_side *side, const struct send_event *event);
enum kvf_status send_record_open(struct send_side *side, const struct send_event *event);
/* LIVE -> TOMB_*: session and receivers go together. */
void send_record_end(struct send_side *side, struct send_record *record);
void send_record_peer_up(struct send_side *side, const struct send_event *event);
void send_record_peer_lost(struct send_side *side, uint32_t rank, enum kvf_status code);
/* Timers of asks, fences and tombstones. */
void send_record_tick(struct send_side *side);

/* The receiver of this life of peer `rank`, or NULL. */
struct send_receiver *send_record_receiver(const struct send_side *side,
                                           const struct send_record *record, uint32_t rank);
/* Stores a REQUEST_DATA. BUSY: no room: more than the receivers said they would ask for. */
enum kvf_status send_receiver_add(struct send_side *side, struct send_record *record, uint32_t rank,
                                  const struct msg_request_data *data);
/* store_moved_fn: block lists point into their runs. `self` is the side. */
void send_record_run_moved(void *self, uint32_t owner, uint32_t *run);
/* It has no task and nothing in a result queue that is needed. */
void send_receiver_free(struct send_side *side, struct send_receiver *receiver);
/* Gives its block lists back; its tasks have ended. */
void send_receiver_drop_lists(struct send_side *side, struct send_receiver *receiver);
/* Answers FAILED(code) to a REQUEST_DATA at once, and logs it. */
void send_record_refuse(struct send_side *side, uint32_t rank, const struct msg_request_data *data,
                        enum kvf_status code);

/* ---- send_live.c ---------------------------------------------------------------------- */

/* Checked by send_record_open(); `fenced`: starts cancelled by the peer. */
void send_live_open(struct send_side *side, struct send_record *record,
                    const struct send_event *event, bool fenced);
void send_live_free(struct send_side *side, struct send_session *session);
enum kvf_status send_live_window(struct send_side *side, const struct send_event *event,
                                 uint32_t *slice_out);
enum kvf_status send_live_window_ready(struct send_side *side, const struct send_event *event);
enum kvf_status send_live_cancel(struct send_side *side, uint64_t rid, enum kvf_status code);
enum kvf_status send_live_decide(struct send_side *side, const struct send_event *event);
void send_live_peer_lost(struct send_side *side, struct send_session *session, uint32_t rank,
                         enum kvf_status code);
void send_live_tick(struct send_side *side);
bool send_live_under_way(const struct send_session *session);
bool send_live_is_bad(const struct send_session *session);
/* True when `rank` belongs to the session's group. */
bool send_live_expects(const struct send_side *side, const struct send_session *session,
                       uint32_t rank);
void send_live_arm(struct send_side *side, struct send_session *session, enum send_timer kind);
void send_live_vote(struct send_side *side, struct send_session *session, unsigned vote);
void send_live_fill_result(const struct send_session *session, struct session_result *result_out);

/* Why a session turns bad, and who knows already. */
struct send_end {
    enum session_outcome outcome;
    enum kvf_status code;
    uint32_t culprit;
    struct send_receiver *told; /* gets no SESSION_CANCELLED: it cancelled, or its task was first */
    bool quiesce;               /* `told` sent CANCEL: QUIESCED when no task of it was ever due */
    uint32_t cancel_id;
};
void send_live_turn_bad(struct send_side *side, struct send_session *session,
                        const struct send_end *end);
/* A task of `receiver` has ended for good: final answers and states that follow from it. */
void send_live_task_gone(struct send_side *side, struct send_receiver *receiver);
/* A slice is in the receiver's pages. */
void send_live_slice_done(struct send_side *side, struct send_task *task);

/* The first expected receiver that does not live or does not fit; its code, or OK. */
enum kvf_status send_live_missing_receiver(const struct send_side *side,
                                           const struct send_session *session, uint32_t *rank_out);

/* ---- send_ask.c -------------------------------------------------------------------------- */

/* `code`: OK, or why the message alone is refused. */
void send_live_request_data(struct send_side *side, struct send_session *session,
                            const struct send_event *event, enum kvf_status code);
void send_live_cancel_message(struct send_side *side, struct send_session *session,
                              const struct send_event *event);
/* Votes ASKED when everyone has asked, and takes it back when that is no longer so. */
void send_live_count_asked(struct send_side *side, struct send_session *session);
/* Drops stored receivers that do not belong to the request; true when a needed one was refused. */
bool send_live_sort_receivers(struct send_side *side, struct send_session *session);

/* ---- send_task.c ---------------------------------------------------------------------------- */

void send_task_event(struct send_side *side, const struct send_event *event);
/* Makes a start due when a ready window waits for it. */
void send_task_schedule(struct send_side *side, struct send_receiver *receiver);
/* One start for `out`; false: nothing to begin now, and `receiver` is not due any more. */
bool send_task_start(struct send_side *side, struct send_receiver *receiver,
                     struct send_action *action_out);
void send_task_abort_all(struct send_side *side, struct send_receiver *receiver);
void send_task_free(struct send_side *side, struct send_task *task);
/* W24. */
void send_task_tick(struct send_side *side);
uint64_t send_task_id(const struct send_side *side, const struct send_task *task);

/* ---- send_results.c ------------------------------------------------------------------------- */

/* False: that life of the peer is over; nothing was queued. */
bool send_result_push(struct send_side *side, uint32_t rank, uint64_t epoch,
                      struct send_result *result);
/* Answers that belong to no receiver entry. No room: the peer is to be lost. */
void send_result_answer(struct send_side *side, uint32_t rank, uint64_t rid, uint32_t tag,
                        const struct send_final *final);
void send_result_quiesced(struct send_side *side, uint32_t rank,
                          const struct msg_cancel_session *cancel);
/* Claims the final answer of a receiver and queues it; nothing when it was claimed before. */
void send_result_final(struct send_side *side, struct send_receiver *receiver,
                       const struct send_final *final);
/* Drops all that waits for a peer. */
void send_result_purge(struct send_side *side, struct send_peer *peer);
/* The head of the peer's queue as a message; false when the queue is empty. */
bool send_result_pop(struct send_side *side, struct send_peer *peer,
                     struct send_action *action_out);

#endif /* KVF_SEND_INTERNAL_H */
