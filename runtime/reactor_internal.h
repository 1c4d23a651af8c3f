/*
 * reactor_internal.h - what the files of the reactor share. Only reactor*.c may include it.
 */
#ifndef KVF_REACTOR_INTERNAL_H
#define KVF_REACTOR_INTERNAL_H

#include <pthread.h>

#include "clock.h"
#include "copy_worker.h"
#include "list.h"
#include "outbox.h"
#include "reactor.h"
#include "recv_session.h"
#include "ring.h"
#include "send_session.h"
#include "store.h"
#include "sweeper.h"
#include "waker.h"

#define REACTOR_TASKS 64u      /* writes at work; more wait inside the machine */
#define REACTOR_TASK_PUTS 256u /* puts of one task in one pass */
#define REACTOR_COMMANDS 4096u /* queued calls of the engine; more: BUSY */
#define REACTOR_COMMANDS_PASS 256u
#define REACTOR_POLLS_STALL 100000u             /* network passes after this process stood still */
#define REACTOR_CHECK_NS (20 * CLOCK_NS_PER_MS) /* between two looks at the peers */
#define REACTOR_IDLE_NS (500 * CLOCK_NS_PER_MS) /* longest sleep without any timer */
#define REACTOR_FDS_MAX 1024u
#define REACTOR_MESSAGES_MAX (1u << 22) /* queued or borrowed by the transport, all peers */

/* Kinds of tokens, in the top byte. */
enum reactor_token {
    TOKEN_SEND = 1,  /* + index of the outbox */
    TOKEN_PUT = 2,   /* + task */
    TOKEN_FLUSH = 3, /* + task */
    TOKEN_WARM = 4,
    TOKEN_CLOSE = 5, /* + peer */
};
#define REACTOR_TOKEN(kind) ((transport_token)(kind) << 56)
#define REACTOR_TOKEN_KIND(token) ((unsigned)((token) >> 56))
#define REACTOR_TOKEN_INDEX(token) ((uint32_t)(token))

enum task_state {
    TASK_UNUSED,
    TASK_WAITING, /* not planned yet */
    TASK_COPY,    /* copied by this thread, step by step */
    TASK_WORKER,  /* at the copy worker */
    TASK_PUTS,    /* puts to be posted or under way */
    TASK_FLUSH,   /* a flush under way */
    TASK_CHECK,   /* in place; the self check reads the source, step by step */
    TASK_DOUBT,   /* failed without proof that the access is over */
};

/* One write of the send machine, from TASK_START to its end. */
struct reactor_task {
    struct list link; /* unused or active */
    enum task_state state;
    struct send_start start;
    struct peer *peer;
    bool abort;
    enum kvf_status failed; /* first failure of a put or flush */
    enum kvf_path path;
    struct plan_totals totals;
    uint32_t *pairs; /* store run */
    struct stripe *stripes;
    uint32_t stripe_count;
    struct copy_job job;
    struct plan_walk walk;
    struct plan_fragment fragment; /* next to be put; bytes 0 = take one from the walk */
    uint32_t stripe_at;            /* of which source and remote below are */
    const struct transport_memory *source;
    struct transport_remote *remote;
    uint32_t inflight; /* puts */
    bool posted;       /* a put was handed over */
    bool walked;       /* all were */
    bool flushing;     /* the flush has not ended */
};

enum command_kind {
    COMMAND_OPEN,
    COMMAND_WINDOW,
    COMMAND_CANCEL,
    COMMAND_GIVE_UP,
    COMMAND_CANCEL_ALL,
    COMMAND_GROUP_LOST,
    COMMAND_GOODBYE,
    COMMAND_DECISION,
};

/* One entry of the rings. */
struct command {
    uint32_t kind; /* enum command_kind */
    uint32_t culprit;
    uint64_t rid;
    union {
        struct admission_request *request; /* OPEN; borrows until its last event */
        struct session_window window;
        struct {
            int32_t code;
            uint32_t decision; /* enum session_decision */
        } decision;
        bool no_access; /* GOODBYE */
    } u;
};
_Static_assert(sizeof(struct command) <= RING_ENTRY_BYTES, "a command fits an entry");

struct reactor_check; /* reactor_check.c */

struct reactor {
    struct kvf *kvf;
    struct transport *transport;
    pthread_mutex_t lock; /* held by each pass */
    atomic_uint guests;   /* threads that want the lock */
    pthread_t thread;
    bool threaded; /* the thread runs */
    atomic_bool quit;
    atomic_bool said_goodbye;
    bool closing; /* peers' errors are expected */
    struct waker waker;
    struct ring *commands;
    struct ring *decisions;

    struct awake_clock clock;
    uint64_t now_ns;   /* awake, of this pass */
    uint64_t real_ns;  /* of this pass */
    uint64_t check_ns; /* awake: next look at the peers */
    bool had_work;     /* live requests at the last look */
    bool asking;       /* a sweep was slow at the last look: members are asked for a sign of life */

    struct send_side *send; /* on context ranks */
    struct recv_side *recv; /* on generation ranks */
    struct outbox *outbox;

    struct copy_worker *worker; /* NULL in caller mode */
    struct reactor_task *tasks; /* [REACTOR_TASKS] */
    struct stripe *stripes;     /* storage of all tasks */
    uint32_t stripes_max;       /* of one task */
    struct list unused;
    struct list active;
    struct store *pairs;
    bool pairs_short;        /* of this pass: the oldest waiting task found no room */
    uint64_t *own_addresses; /* slot 0 of this rank's pools */
    uint64_t puts_inflight;
    struct reactor_check *check; /* NULL unless self_check */

    /* Scratch for one REQUEST_DATA. */
    struct kvf_block_list *asked_lists;
    uint32_t *asked_slots;
    uint32_t asked_lists_max, asked_slots_max;
    uint64_t *bitmap;
    struct recv_writer_params *writers;

    uint32_t warm_pending;  /* flushes of the warm-up */
    uint32_t close_pending; /* disconnects */
    uint32_t losing;        /* peers to be lost at the end of this pass */
};

/* ---- reactor_peer.c -------------------------------------------------------------------------- */

void peers_sink(struct reactor *reactor, struct transport_sink *sink_out);
/* Heartbeats, silence, gaps, ended processes. True when something was done. */
bool peers_check(struct reactor *reactor);
/* Carries out what was noted in peer->losing. */
void peers_lose_noted(struct reactor *reactor);
/* Notes that the peer is to be lost at the end of this pass. */
void peer_note_loss(struct reactor *reactor, struct peer *peer, const char *why);
/* Awake time of the next thing that peers_check() would do. */
uint64_t peers_deadline_ns(const struct reactor *reactor);
/* Sends; a channel that overflows is noted as lost. */
enum kvf_status peer_send(struct reactor *reactor, struct peer *peer, const struct msg *msg);
/* One message in its order, whose frame was checked. */
void peer_take(struct reactor *reactor, struct peer *peer, const uint8_t *bytes, size_t len_bytes);
void peer_ping(struct reactor *reactor, struct peer *peer);
void peers_goodbye(struct reactor *reactor, bool no_access);
/* Opens the channels and the pidfds. */
enum kvf_status peers_open(struct reactor *reactor);
void peers_close(struct reactor *reactor);

/* ---- reactor_send.c, reactor_recv.c --------------------------------------------------------- */

enum kvf_status send_glue_open(struct reactor *reactor, struct geo_text *text_out);
enum kvf_status send_glue_step(struct reactor *reactor, struct send_event *event);
void send_glue_request(struct reactor *reactor, const struct admission_request *request);
void send_glue_message(struct reactor *reactor, struct peer *peer, const struct msg *msg,
                       enum kvf_status check);
enum kvf_status recv_glue_open(struct reactor *reactor, struct geo_text *text_out);
/* Most writers of one request. */
uint32_t recv_glue_writers_max(const struct reactor *reactor);
enum kvf_status recv_glue_step(struct reactor *reactor, struct recv_event *event);
void recv_glue_message(struct reactor *reactor, struct peer *peer, const struct msg *msg);
void recv_glue_request(struct reactor *reactor, const struct admission_request *request);

/* A request that the machine refused ends at once. */
void reactor_refuse(struct reactor *reactor, uint64_t rid, enum kvf_status status);
void reactor_log(struct reactor *reactor, const struct session_log *log);

/* ---- reactor_task.c -------------------------------------------------------------------------- */

enum kvf_status tasks_open(struct reactor *reactor);
void tasks_close(struct reactor *reactor);
void task_add(struct reactor *reactor, const struct send_start *start);
void task_abort(struct reactor *reactor, uint64_t id);
/* Moves all tasks on. True when something was done. */
bool tasks_pump(struct reactor *reactor);
/* Work that needs no outside event. */
bool tasks_ready(const struct reactor *reactor);
void task_put_done(struct reactor *reactor, uint32_t index, enum kvf_status status);
void task_flush_done(struct reactor *reactor, uint32_t index, enum kvf_status status);

/* ---- reactor_check.c ------------------------------------------------------------------------- */

/* Nothing unless the setting self_check is on. */
enum kvf_status check_open(struct reactor *reactor);
void check_close(struct reactor *reactor);
/* Writer: begins the digest of what a write that ended well has read; false: there is none. */
bool check_begin(struct reactor *reactor, const struct reactor_task *task);
/* Reads on; true at the end: the task's report takes the digest along if it leaves at once. */
bool check_step(struct reactor *reactor, const struct reactor_task *task, uint64_t *budget_bytes);
/* Writer: adds the digest to the report of that write; nothing for other messages. */
void check_attach(struct reactor *reactor, uint32_t receiver, struct msg *msg);
/*
 * Reader: true when the message is kept, because the pages of a report are read first, or because
 * such a report of the same peer waits. Copies.
 */
bool check_holds(struct reactor *reactor, struct peer *peer, const uint8_t *bytes,
                 size_t len_bytes);
/* Reads on, and hands on what was kept; a report whose pages differ fails its request first. */
bool check_pump(struct reactor *reactor, uint64_t *budget_bytes);
/* Something is kept. */
bool check_ready(const struct reactor *reactor);
/* To the end, for a peer that is about to be lost: what it said comes before its loss. */
void check_finish(struct reactor *reactor, const struct peer *peer);

#endif /* KVF_REACTOR_INTERNAL_H */
