/*
 * sim.h - the simulator: the machines of all ranks of a small world in one process, in virtual
 * time, against a model of memory in which every write has its author (docs/testing.md,
 * "Simulator").
 *
 * A schedule is a list of ops, each drawn from the seed among what may happen; then the world is
 * drained: all that is under way is delivered, proven or timed out, in one fixed order. A schedule
 * that breaks a rule is run again with fewer ops until none can be left out.
 *
 * Files: sim_world.c (ranks, steps, actions), sim_net.c (messages), sim_memory.c (pages, writes and
 * what may be claimed of them), sim_group.c (votes and decisions), sim_ops.c (what happens when an
 * op is applied, and its text), sim_pick.c (what to do next), sim_drain.c (the end and its
 * judgement), sim_main.c (command line, seeds, shrinking).
 */
#ifndef KVF_SIM_H
#define KVF_SIM_H

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#include "channel.h"
#include "check.h"
#include "consensus/sweep.h"
#include "recv_session.h"
#include "send_session.h"
#include "testing.h"

#define SIM_RANKS_MAX 6u
#define SIM_REQUESTS_MAX 6u
#define SIM_SLICES_MAX 3u
#define SIM_PAGES_MAX 8u
#define SIM_WRITES_MAX 64u
#define SIM_PARCELS_MAX 1024u
#define SIM_PARCEL_BYTES 192u
#define SIM_OPS_MAX 512u
#define SIM_FOLLOWS_MAX 16u
#define SIM_DECISIONS_MAX 32u
#define SIM_AUX_BYTES 8u
#define SIM_T_NS UINT64_C(60000000000)
#define SIM_TTL_NS UINT64_C(130000000000)
#define SIM_NONE UINT32_MAX
#define SIM_LAG_MAX 2u
#define SIM_SWEEPS (2 * SIM_LAG_MAX + 1) /* of one rank that others may still look at */
#define SIM_SWEEP_BYTES 1024u            /* 63 votes */
#define SIM_SAID_MAX 64u

/* ---- what is run ---------------------------------------------------------------------------- */

struct sim_topology {
    uint32_t contexts, generations;
    uint32_t context_groups;    /* > 1: attention DP, receivers ask all groups */
    uint32_t generation_groups; /* > 1: a request is received by one of them */
    bool context_alone;         /* each rank is an instance: a group of one */
    bool generation_alone;
};

/* Weights of kinds of ops are out of 256 together with the ordinary ones. */
struct sim_knobs {
    uint32_t requests;
    uint32_t ops; /* drawn before the drain */
    uint32_t out_max;
    uint32_t pages; /* of a generation rank */
    uint32_t lag;   /* of sweeps */
    unsigned cancel, fail, time, stop, lose, kill, again, trouble, absent, shut;
    unsigned bounce_percent, withheld_percent, unfit_percent;
    bool wire;    /* messages are bytes, reordered below the channel */
    bool garble;  /* bytes of messages are changed, under a right checksum */
    bool tight;   /* stores for one request or two */
    bool release; /* writer_silence: release */
    bool checked; /* x_check() after every step */
    bool broadcast_only;
    bool dozy; /* timers go off only when time was moved */
};

enum sim_op_kind {
    OP_DELIVER,  /* a: from, b: to, c: which of the waiting ones */
    OP_LAND,     /* c: write; bounce: its data arrives */
    OP_SCATTER,  /* c: write; the own copy runs */
    OP_END,      /* c: write, well */
    OP_FAIL,     /* c: write, with proof */
    OP_DOUBT,    /* c: write */
    OP_SETTLE,   /* c: write */
    OP_OPEN,     /* a: rank: the next request in its order */
    OP_WINDOW,   /* a: rank, b: request */
    OP_READY,    /* a: rank, b: request: a window that was not ready */
    OP_CANCEL,   /* a: rank, b: request */
    OP_AGAIN,    /* a: rank, b: request: opened a second time */
    OP_COLLECT,  /* a: rank: its engine sweeps; c: it also looks whether members are dead */
    OP_DECIDE,   /* a: rank: its next decision */
    OP_TICK,     /* a: rank */
    OP_TIME,     /* c: ms */
    OP_STOP,     /* a: rank */
    OP_CONT,     /* a: rank */
    OP_LOSE,     /* a: rank, b: the one it calls lost */
    OP_HELLO,    /* a, b: ranks that have lost each other */
    OP_KILL,     /* a: rank */
    OP_PROOF,    /* a: rank, b: the dead one */
    OP_RESTART,  /* a: rank */
    OP_DUP,      /* a: from, b: to: one more copy */
    OP_CORRUPT,  /* a: from, b: to, c: byte */
    OP_ABSENT,   /* a: rank, b: request: never to be opened */
    OP_SHUTDOWN, /* a: rank */
    OP_BYE,      /* a: rank */
};
#define SIM_OP_KINDS 28u

struct sim_op {
    uint8_t kind, a, b;
    uint32_t c;
};

/* ---- the world ------------------------------------------------------------------------------ */

struct sim_parcel {
    struct sim_parcel *next;
    struct msg msg; /* not wire: as decoded, pointing into bytes */
    uint32_t len_bytes;
    bool hello;
    uint64_t epoch; /* of the sender */
    uint8_t bytes[SIM_PARCEL_BYTES];
};

struct sim_queue {
    struct sim_parcel *first, *last;
};

/* One word a page, slice and writer. */
struct sim_cell {
    uint64_t rid;
    uint32_t tag;
};

struct sim_page {
    uint64_t rid; /* 0 = free */
    uint32_t tag;
    struct sim_cell cells[SIM_RANKS_MAX][SIM_SLICES_MAX];
};

enum sim_write_state { WRITE_NONE, WRITE_RUNNING, WRITE_DOUBT, WRITE_GHOST };
enum sim_bounce {
    BOUNCE_NONE,
    BOUNCE_WAITS,
    BOUNCE_QUEUED,
    BOUNCE_RUNNING,
    BOUNCE_COPIED,
    BOUNCE_REFUSED
};

struct sim_write {
    enum sim_write_state state; /* GHOST: its process is dead, its bytes may be under way */
    enum sim_bounce bounce;
    bool aborted, landed;
    uint32_t rank, receiver, slice, page, source_page, tag;
    uint64_t task, rid, epoch, receiver_epoch;
};

/* One request on one rank. */
struct sim_seat {
    bool opened, last_window, decided, released, absent, shut, window_waits;
    bool told, told_release; /* the engine, by the group: the outcome, the release */
    bool learnt;             /* the machine, or soon: the outcome */
    bool refused;            /* for good */
    bool withheld;           /* the engine does not mean to open it */
    bool bounce_only, bad_seen, done_seen, fenced;
    uint32_t windows, page, tag;
    uint64_t fenced_ns;     /* context: when a cancel came before it was opened */
    uint32_t waiting_slice; /* window that is not ready */
    unsigned vote;
    enum session_decision decision;
    uint8_t aux[SIM_AUX_BYTES], aux_kept[SIM_AUX_BYTES];
};

/* What one writer was asked by one receiver, and what it has claimed. */
struct sim_ask {
    uint32_t tag; /* 0 = none */
    uint64_t writer_epoch, receiver_epoch;
    uint32_t deliveries, cancels, finals;
    uint32_t ended; /* slices whose write ended well, as bits */
    uint32_t told, heard;
    bool told_last, heard_last; /* is_last was among them */
    bool doubt, claimed, answered, proven, broken, bounced, unsent, waived;
};

struct sim_decision {
    uint64_t rid;
    enum session_decision decision;
    enum kvf_status code;
};

/* What the ranks of a group were told, in the order of the first that was. */
struct sim_said {
    uint64_t rid;
    uint32_t kind; /* enum kvf_event_kind */
    enum kvf_status status;
    uint32_t iteration;
};

/* One group: what its members have given to each sweep. */
struct sim_board {
    uint32_t count;
    uint32_t members[SIM_RANKS_MAX]; /* ranks */
    uint32_t news;          /* sweeps up to the last one in which somebody said something */
    bool escaped;           /* a rank has closed a request alone: releases differ from then on */
    uint32_t said_count[2]; /* outcomes; releases */
    struct sim_said said[2][SIM_SAID_MAX];
};

struct sim_rank {
    bool alive, generation, stopped, alone, idle; /* idle: in no group any more */
    bool shut, bye, ended; /* ended: its group is lost, and its machine has heard of it */
    uint32_t tag_last;
    uint64_t epoch, stopped_ns, slept_ns;
    struct send_side *send;
    struct recv_side *recv;
    struct sweep *sweep; /* NULL: in no group any more */
    uint32_t board, member;
    uint32_t iteration, started, seen; /* its calls and sweeps so far */
    uint32_t said[2];                  /* events it was told: outcomes; releases */
    uint32_t dead_due;                 /* members, as bits, that are dead and not known to be */
    bool word_due;                     /* a member has told it that the group is lost */
    struct sweep_loss word;
    struct channel_store *store;
    struct channel channels[SIM_RANKS_MAX];
    uint64_t hello_epoch[SIM_RANKS_MAX]; /* life of the other that was greeted */
    bool proof_due[SIM_RANKS_MAX];
    uint64_t
        old_epoch[SIM_RANKS_MAX]; /* a life whose end is proven by the next one, and again later */
    uint32_t lose_due;            /* bits */
    struct sim_seat seats[SIM_REQUESTS_MAX];
    struct sim_page pages[SIM_PAGES_MAX];
    struct recv_event follows[SIM_FOLLOWS_MAX];
    uint32_t follow_first, follow_count;
    struct sim_decision decisions[SIM_DECISIONS_MAX];
    uint32_t decision_first, decision_count;
};

struct sim_tally {
    uint64_t schedules, ops, steps, messages, writes;
    uint64_t ready, failed, cancelled, released, silent, stranded, killed, busy;
    uint64_t sweeps, lost, escaped;
};

struct sim_world {
    const struct sim_topology *topology;
    struct sim_knobs knobs;
    struct test_random random;
    struct sim_tally *tally;
    jmp_buf *out;
    bool trace, draining;
    uint64_t salt; /* facts that are drawn once a schedule */
    uint32_t ranks_count;
    uint32_t slice_given; /* by the last step of a send side */
    uint64_t now_ns;
    bool silence;   /* time went by long enough for pages to be given back without proof */
    bool swept;     /* by the last sweep of some rank */
    bool disturbed; /* links were lost: an answer may be missing */
    uint8_t order[SIM_REQUESTS_MAX];
    struct sim_rank ranks[SIM_RANKS_MAX];
    struct sim_board boards[SIM_RANKS_MAX];
    struct sim_queue queues[SIM_RANKS_MAX][SIM_RANKS_MAX];
    uint64_t busy_pairs; /* bits from * SIM_RANKS_MAX + to */
    struct sim_write writes[SIM_WRITES_MAX];
    uint64_t busy_writes;
    struct sim_ask asks[SIM_RANKS_MAX][SIM_RANKS_MAX][SIM_REQUESTS_MAX]; /* writer, receiver */
    struct sim_op ops[SIM_OPS_MAX];
    uint32_t op_count;
    struct sim_parcel *free_parcels;
    uint32_t parcels_used;
    char pending[64]; /* op under way, not yet said */
    char failure[256];
};

/* ---- sim_world.c ---------------------------------------------------------------------------- */

/* Emptied before each schedule. */
extern const struct kvf_heap sim_heap;
void sim_world_open(struct sim_world *world);
void sim_world_restart(struct sim_world *world, uint32_t rank);
/* One event, and all that follows. What only the engine may be told is given back. */
enum kvf_status sim_send(struct sim_world *world, uint32_t rank, struct send_event *event);
enum kvf_status sim_recv(struct sim_world *world, uint32_t rank, struct recv_event *event);
void sim_tick(struct sim_world *world, uint32_t rank);
/* To be stepped after the actions of the step under way. */
void sim_follow(struct sim_world *world, uint32_t rank, const struct recv_event *event);
/* Gives the schedule up: "I1: ...". */
KVF_NORETURN void sim_fail(struct sim_world *world, const char *format, ...) KVF_PRINTF(2, 3);
/* True in `percent` of all (what, a, b): the same all through a schedule. */
bool sim_fact(const struct sim_world *world, unsigned percent, uint64_t what, uint64_t a,
              uint64_t b);
enum kvf_status sim_verdict(const struct sim_world *world, uint32_t rank, uint32_t other);
void sim_peer(struct sim_world *world, uint32_t rank, uint32_t other,
              enum recv_event_kind recv_kind, enum send_event_kind send_kind);
void sim_say(struct sim_world *world, const char *format, ...) KVF_PRINTF(2, 3);
/* The rank runs and has a machine. */
bool sim_runs(const struct sim_world *world, uint32_t rank);
/* The awake clock of a rank. */
uint64_t sim_awake_ns(const struct sim_world *world, uint32_t rank);
uint32_t sim_slice_count(uint64_t rid);
uint64_t sim_slice_bytes(uint64_t rid, uint32_t writer, uint32_t reader, uint32_t slice);
/* The dp group of a rank, inside its side. */
uint32_t sim_group_of(const struct sim_world *world, uint32_t rank);
/* The rank has a part in the request. */
bool sim_takes_part(const struct sim_world *world, uint32_t rank, uint64_t rid);
struct sim_seat *sim_seat(struct sim_world *world, uint32_t rank, uint64_t rid);

/* ---- sim_net.c ------------------------------------------------------------------------------ */

enum kvf_status net_post(struct sim_world *world, uint32_t from, uint32_t to,
                         const struct msg *msg);
void net_hello(struct sim_world *world, uint32_t from, uint32_t to);
void net_bye(struct sim_world *world, uint32_t from, uint32_t to);
/* The message at `index` of the queue arrives; true when there was one. */
bool net_deliver(struct sim_world *world, uint32_t from, uint32_t to, uint32_t index);
bool net_duplicate(struct sim_world *world, uint32_t from, uint32_t to);
bool net_corrupt(struct sim_world *world, uint32_t from, uint32_t to, uint32_t at);
/* `rank` ends its link to `other`. */
void net_lose(struct sim_world *world, uint32_t rank, uint32_t other, enum channel_cause cause);
void net_tick(struct sim_world *world, uint32_t rank);
void net_lose_due(struct sim_world *world, uint32_t rank);
bool net_up(const struct sim_world *world, uint32_t rank, uint32_t other);

/* ---- sim_memory.c --------------------------------------------------------------------------- */

void memory_begin(struct sim_world *world, uint32_t rank, const struct send_start *start);
void memory_land(struct sim_world *world, struct sim_write *write);
void memory_arrive(struct sim_world *world, struct sim_write *write);
void memory_scatter(struct sim_world *world, struct sim_write *write, bool well);
void memory_end(struct sim_world *world, struct sim_write *write);
/* What a message claims, looked at when it is given out. */
void memory_context_says(struct sim_world *world, uint32_t rank, uint32_t to,
                         const struct msg *msg);
void memory_generation_says(struct sim_world *world, uint32_t rank, uint32_t to,
                            const struct msg *msg);
/* ... and when it arrives in a life that it was sent to. */
void memory_heard(struct sim_world *world, uint32_t rank, uint32_t from, const struct msg *msg);
/* Pages of a request may go: nobody can write or read them any more. */
void memory_check_drained(struct sim_world *world, uint32_t rank, uint64_t rid, const char *rule);
void memory_check_complete(struct sim_world *world, uint32_t rank, uint64_t rid);
void memory_release(struct sim_world *world, uint32_t rank, uint64_t rid);
uint32_t memory_free_page(const struct sim_world *world, uint32_t rank);
struct sim_write *memory_find(struct sim_world *world, uint32_t rank, uint64_t task);
/* Own copies of (rid, tag) that have not begun are taken back. */
void memory_revoke(struct sim_world *world, uint32_t rank, uint64_t rid, uint32_t tag);
/* The process behind the writes is gone. */
void memory_ghosts(struct sim_world *world, uint32_t rank);
void memory_ghosts_land(struct sim_world *world, uint32_t rank);
void memory_check_refused(struct sim_world *world, uint32_t rank, uint32_t from,
                          const struct msg_request_data *data, enum kvf_status check);
void memory_check_counts(struct sim_world *world, uint32_t rank);

/* ---- sim_group.c ---------------------------------------------------------------------------- */

/* Groups of all ranks, and the sweep machine of each; a rank that came later has one alone. */
void group_open_all(struct sim_world *world);
void group_open(struct sim_world *world, uint32_t rank);
void group_vote(struct sim_world *world, uint32_t rank, uint64_t rid, unsigned vote,
                unsigned before);
/* The machine has the request. */
void group_opened(struct sim_world *world, uint32_t rank, uint64_t rid);
/* The engine will never open it. */
void group_absent(struct sim_world *world, uint32_t rank, uint64_t rid);
/* The rank's engine sweeps; world->swept: something came of it or is under way. False: no group. */
bool group_sweep(struct sim_world *world, uint32_t rank, bool look);
/* The rank learns its next decision; false: there is none. */
bool group_decide(struct sim_world *world, uint32_t rank);
void group_lost(struct sim_world *world, uint32_t rank);
/* There is something that it has not seen, in a sweep to come or in one that others have seen. */
bool group_waits(const struct sim_world *world, uint32_t rank);
/* No other rank needs this one's sweeps any more. */
bool group_left(const struct sim_world *world, uint32_t rank);

/* ---- sim_ops.c ------------------------------------------------------------------------------ */

/* False: nothing of the kind can happen now. */
bool ops_apply(struct sim_world *world, const struct sim_op *op);
size_t ops_text(const struct sim_op *op, char *text_out, size_t text_bytes);
/* NULL: not an op; otherwise behind it. */
const char *ops_parse(const char *text, struct sim_op *op_out);
/* The next request that the rank's engine would open, or 0. */
uint64_t ops_next_open(const struct sim_world *world, uint32_t rank);

/* ---- sim_pick.c ----------------------------------------------------------------------------- */

/* Sets the knobs that a seed has in a profile; false: no such profile. */
bool pick_knobs(struct sim_world *world, const char *profile, uint64_t seed, bool check);
/* Draws and applies one op. */
void pick_one(struct sim_world *world);
const char *pick_profiles(void);

/* ---- sim_drain.c ---------------------------------------------------------------------------- */

void drain_all(struct sim_world *world);
void drain_judge(struct sim_world *world);

#endif /* KVF_SIM_H */
