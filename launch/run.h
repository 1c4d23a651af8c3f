/*
 * run.h - what the parts of `kvferry run` share. They use the library through its public headers
 * alone.
 *
 *   run.c          options, and the order of things
 *   run_share.c    files: read by rank 0, sent to all
 *   run_world.c    pools, memory, opening: everything before the first request
 *   run_engine.c   the loop of a rank: admit, fill or receive, check, give back
 *   run_work.c     page work in small steps: hand-out checks, fills, compares
 *   run_pieces.c   context: prompts sent in pieces, each filled only when its turn comes
 *   run_order.c    which side opens first, and how the other side learns of it
 *   run_faults.c   planted faults, and the judgement of how all requests ended
 *   run_dump.c     records and block lists of one request, as `kvferry plan --geometry` reads them
 *   run_report.c   sums over the ranks, the table, JSON
 */
#ifndef LAUNCH_RUN_H
#define LAUNCH_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

#include <kvferry/kvferry_mpi.h>

#include "faults.h"
#include "model.h"
#include "options.h"
#include "oracle.h"
#include "schedule.h"
#include "slots.h"
#include "trace.h"

struct run_options {
    const char *topology;
    const char *model;
    const char *models[2]; /* --ctx-model, --gen-model; NULL = --model */
    uint64_t scale_layers;
    const char *trace;
    uint64_t requests;
    uint64_t max_tokens;
    double time_scale;
    uint64_t concurrency;
    uint64_t seed;
    uint64_t pool_blocks;
    uint64_t pool_mb;
    uint64_t decode_us;
    bool no_reuse;
    uint64_t piece_tokens;
    bool piece_shuffle;
    const char *order;
    bool sync;
    const char *faults;
    const char *path;
    const char *settings;
    const char *progress;
    const char *json;
    const char *dump;
    uint64_t dump_request;
    bool help;
    bool show; /* progress line: standard error is a terminal */
};

#define RUN_NO_JOB UINT32_MAX
#define RUN_REFUSED_BYTES 384

/* Bits of a request's outcome, or-ed over the ranks. */
enum run_outcome {
    RUN_READY = 1,  /* generation: all bytes in, as the library says */
    RUN_SENT = 2,   /* context */
    RUN_FAILED = 4, /* on some rank */
    RUN_CANCELLED = 8,
    RUN_BAD = 16,      /* a byte was wrong */
    RUN_REFUSED = 32,  /* larger than a pool */
    RUN_GEOMETRY = 64, /* failed with a code of the geometry */
};

/* Which side opens a request first. */
enum run_first { RUN_ANY_FIRST, RUN_CONTEXT_FIRST, RUN_GENERATION_FIRST };

enum run_step {
    RUN_CHECK_OUT, /* pages taken: compare what their last owners left */
    RUN_FILL,      /* context: write the request's bytes */
    RUN_OPEN,      /* to be opened */
    RUN_PIECES,    /* context: opened, fill and send piece after piece */
    RUN_MOVE,      /* opened: until READY, SENT, FAILED or CANCELLED */
    RUN_COMPARE,   /* generation: compare every byte that arrived */
    RUN_HOLD,      /* pages in use by the engine, or lent until RELEASED */
    RUN_RESTORE,   /* after a failure: give the pages known bytes again */
    RUN_DONE,
};

/* Pages of one group of a live request. */
struct run_pages {
    uint32_t first; /* ordinal of slots[0] */
    uint32_t count;
    uint32_t shared; /* leading slots that belong to the prefix cache */
    uint32_t *slots; /* [count], owns */
};

/* A request that this rank has admitted. */
struct run_live {
    uint32_t job;
    enum run_step step;
    bool released;
    bool good;                  /* READY, or context */
    uint32_t group_at, page_at; /* where the page work is */
    uint32_t piece_count;       /* 0 = sent whole */
    uint32_t piece_at;
    bool piece_filled;
    uint64_t piece_tokens; /* of a piece; 0 = sent whole */
    uint64_t piece_due_ns; /* a slow writer's next piece */
    struct fault fault;
    bool fault_done;
    bool stood;            /* still, once */
    uint32_t fault_passes; /* turns of the loop since it was opened */
    uint32_t stand_passes; /* since its first bytes could be read */
    uint8_t piece_order[KVF_WINDOWS_MAX];
    struct run_pages *pages; /* [groups], owns */
    uint8_t *aux;            /* owns; NULL = none */
    uint64_t due_ns;         /* when it could have started */
    uint64_t open_ns;
    uint64_t hold_until_ns;
    struct run_live *next;
};

/* Pages of one hash block that the prefix cache holds or held. */
struct run_entry {
    uint32_t *slots; /* [pages_per_hash], owns; NULL = not made yet */
    uint32_t users;  /* live requests */
    bool dropped;
    bool ready; /* its bytes are there */
};

/* One request on this rank, for percentiles. */
struct run_sample {
    double latency_ms; /* recv_open to READY */
    double pages_ms;   /* waiting for pages and for a slot of concurrency */
    double prepare_ms, wait_ms, move_ms, agree_ms;
};

/* Sums of this rank. */
struct run_sums {
    uint64_t bad_bytes;
    uint64_t payload_bytes; /* generation: received */
    uint64_t sent_bytes;
    uint64_t busy_ns; /* generation: at least one request between open and READY */
    uint64_t checked_bytes;
    uint64_t blocks_leaked; /* pages that never came back */
    uint64_t bad_calls;     /* calls that answered otherwise than they must */
    uint64_t idle_ns;
    uint64_t sweeps;
    uint64_t dump_bytes;       /* generation: received for the request that is dumped */
    double used_sum, used_max; /* share of the fullest group's pages in use, at each admission */
};

/* How a request ended on this rank. */
struct fault_seen {
    uint8_t outcomes, released; /* how many events of each; 1 is right */
    int16_t status;             /* of the first outcome */
    uint32_t at[2];             /* iterations that returned the outcome and the release */
};

/* What all ranks of a group must have alike. */
enum run_alike { RUN_ALIKE_STATUS, RUN_ALIKE_OUTCOME_AT, RUN_ALIKE_RELEASE_AT, RUN_ALIKES };

#define RUN_REASONS_MAX 16u
#define RUN_NEVER (-2147483647) /* in place of a value: no outcome */
#define RUN_FAULT_LINES_MAX 16u /* requests that ended otherwise than planted are named so often */

/* The judgement over all requests and ranks; alike on all ranks. */
struct run_verdicts {
    uint32_t planted[FAULT_FATES], extras[FAULT_EXTRAS];
    uint32_t unplanned; /* (request, side) that ended otherwise than planted */
    uint32_t missing;   /* a certain fault that did not show */
    uint32_t unlike;    /* ended differently on ranks of one group, or at different iterations */
    uint64_t twice;     /* (request, rank) without exactly one outcome and one release */
    uint64_t bad_calls;
    uint32_t reason_count;
    struct {
        int status; /* KVF_OK, or why the generation side (else the context side) says it ended */
        uint32_t count;
    } reasons[RUN_REASONS_MAX];
};

struct run {
    struct run_options options;
    struct fault_spec faults;
    int world_rank, world_size;
    int node_rank, node_size; /* among the ranks of this node */
    struct kvf_topology *topology;
    const struct kvf_instance *instance;
    enum kvf_side side;
    struct kvf_place place;
    uint32_t place_layers[KVF_PP_MAX];
    struct schedule_group group;
    struct model models[2];
    struct trace trace;
    struct schedule schedule;

    struct kvf *kvf;
    struct kvf_layout *made;       /* from the library */
    struct kvf_layout layout;      /* the same with our strides */
    struct kvf_pool_shape *shapes; /* of layout.pools */
    struct kvf_pool **pools;
    uint8_t **bases;
    uint64_t *group_slots; /* guards included */
    struct slots *free;    /* [groups] */
    struct oracle *oracle;
    bool crowded; /* more ranks than cores on this machine */
    bool caller;  /* this rank steps the library */

    const char *no_reuse_why; /* static; NULL = prefixes are reused */
    uint32_t *order;
    uint32_t order_count;
    uint32_t order_at;
    struct run_live *live; /* in order of admission */
    uint32_t live_count;
    struct run_entry *entries; /* generation with reuse */
    uint32_t entry_count;
    uint64_t start_ns;
    uint64_t moving, moving_since_ns;
    uint64_t iteration;
    uint32_t ended; /* requests whose last event came: the same on all ranks of the group */
    struct kvf_block_list *lists; /* [groups], scratch */
    bool damaged;
    uint64_t moved_ns; /* when a request last ended here */

    uint32_t dump_job;               /* its geometry is dumped; RUN_NO_JOB = none */
    struct json_t *dump_own;         /* this rank's part, owns; NULL = not opened here */
    char refused[RUN_REFUSED_BYTES]; /* "CODE: text" of the first peer that does not fit */
    enum kvf_status refused_code;    /* of the first request that failed so */

    uint32_t *dp_of;         /* [world] dp group of each rank in its instance */
    uint32_t *heard;         /* [jobs] ranks of the first side that have told us */
    uint32_t *notes;         /* [jobs] what we tell; stays until the end */
    int *note_ranks;         /* [world] scratch */
    uint64_t heard_count;    /* sum of `heard` */
    int waker;               /* process that ends our standing still */
    int waker_pipe;          /* 0 = none */
    struct fault_seen *seen; /* [jobs] */
    struct run_verdicts verdicts;
    uint32_t fault_lines;

    uint8_t *outcomes;       /* [jobs] */
    struct kvf_event *early; /* [jobs] outcome that the group gave before this rank opened it */
    struct run_sample *samples;
    uint32_t sample_count;
    struct run_sums sums;
    uint32_t lines; /* bad bytes that were named */
    double wall_s;
};

/* Nanoseconds of a clock that only goes forward. */
uint64_t run_now(void);

/* run_share.c: topology and models; no MPI. False: text_out (OPTIONS_TEXT_BYTES) says why. */
bool run_read_files(struct run *run, char *text_out);

/* What rank 0 has read of them to all ranks; the trace likewise, which rank 0 reads here. */
int run_share_files(struct run *run);
int run_share_trace(struct run *run);

/* run_world.c: each says what is wrong on one rank, and gives the same exit code on all of them. */
int run_world_check(struct run *run);  /* world size, layouts of all ranks */
int run_world_trace(struct run *run);  /* trace, schedule, pool sizes */
int run_world_open(struct run *run);   /* kvf_open_mpi, pools, oracle, publish */
void run_world_close(struct run *run); /* frees all that the above made, not the context */

/* Highest exit code over the ranks. Collective. */
int run_agree(int code);

/* MPI_Allreduce over the world that a lost rank ends. */
void run_reduce(const void *own, void *all, int count, MPI_Datatype type, MPI_Op op);

/* run_engine.c */
int run_engine(struct run *run);

/* The library's open call for this side, with the lists of the request. */
enum kvf_status run_open_call(struct run *run, struct run_live *live);

/* run_order.c: what each rank knows of the order. False: no memory. */
bool run_order_open(struct run *run);
void run_order_close(struct run *run);
enum run_first run_order_of(const struct run *run, const struct schedule_job *job);
uint32_t run_group_size(const struct run *run, struct schedule_group group);

/* Tells the other side that this rank has opened the request, where it waits for that. */
void run_order_tell(struct run *run, uint32_t job);

/* Takes what the other side has told. True when something was there. */
bool run_order_listen(struct run *run);
bool run_order_may_open(const struct run *run, uint32_t job);
bool run_order_all_heard(const struct run *run);

/* The other end of a request, as far as this side knows it when it opens it. */
struct kvf_end run_order_end(const struct run *run, const struct schedule_job *job);

/* run_faults.c: this side never opens it. */
bool run_fault_skips(const struct run *run, const struct run_live *live);

/* Prompt tokens that a receive asks for, and blocks that a send has: not all as they should be. */
uint32_t run_fault_tokens(const struct run *run, const struct run_live *live);
void run_fault_lists(const struct run *run, const struct run_live *live);

/* Called right after the open, at each turn of the loop while it is open, after each piece. */
void run_fault_opened(struct run *run, struct run_live *live);
void run_fault_pass(struct run *run, struct run_live *live);
void run_fault_piece(struct run *run, struct run_live *live);

/* How long to wait before the next piece. */
uint64_t run_fault_wait_ns(const struct run *run, const struct run_live *live);

/* Deadline of a synchronous receive. */
uint32_t run_fault_deadline_ms(const struct run *run, const struct run_live *live);

/* An event of a sweep: at which iteration. A wait has none. */
void run_fault_note(struct run *run, const struct kvf_event *event);
void run_fault_outcome(struct run *run, struct run_live *live, const struct kvf_event *event);
void run_fault_released(struct run *run, struct run_live *live);

/* An outcome that was planted: not worth a line. */
bool run_fault_expects(const struct run *run, const struct run_live *live, enum kvf_status status);

/* Judges all requests; collective. False: no memory. */
bool run_judge(struct run *run);
bool run_judged_well(const struct run *run);

/* Ends this rank as planted, when it is time; `end`: after the last request. */
void run_fault_kill(const struct run *run, bool end);

/* Before MPI is started: a child that lets this process go on after it stood still. */
void run_waker_open(struct run *run);
void run_waker_close(struct run *run);

/*
 * Waits until all ranks are here, stepping the library meanwhile. When a rank is lost, the wait
 * ends this process.
 */
void run_barrier(struct run *run);

/* run_work.c: page work of one live request; true when its step is over. */
bool run_work(struct run *run, struct run_live *live, uint64_t bytes_max);

/* Takes the pages of a job, or none: false. */
bool run_pages_take(struct run *run, struct run_live *live);
void run_pages_give(struct run *run, struct run_live *live);
void run_live_free(struct run *run, struct run_live *live);

/* Compares all pages once more. */
void run_check_all(struct run *run);

/* run_pieces.c: alike on all ranks; says what does not fit. */
bool run_pieces_check(const struct run *run, char *text_out, size_t text_bytes);

/* Tokens of a piece of a request that --faults cuts; 0 = it stays whole. */
uint64_t run_pieces_of_fault(const struct run *run, const struct run_live *live);

/* Context: cuts a request. */
void run_pieces_make(const struct run *run, struct run_live *live);

/* The piece at a place of the order, as the library is told it. */
struct kvf_window run_piece_window(const struct run *run, const struct run_live *live, uint32_t at);

/* Fills some of the current piece, or sends it. False: nothing could be done. */
bool run_pieces_step(struct run *run, struct run_live *live, uint64_t *work_left);

/* run_dump.c: picks the request; alike on all ranks. False: rank 0 said why there is none. */
bool run_dump_pick(struct run *run);

/* Notes this rank's lists of the request, which has just been opened. */
void run_dump_note(struct run *run, const struct run_live *live);

/* Collective; rank 0 writes the file. Exit code, alike on all ranks. */
int run_dump_write(struct run *run);

/* Fills or checks the aux buffers of a request. */
uint32_t run_aux_bytes(const struct run *run);
void run_aux_fill(const struct run *run, const struct schedule_job *job, uint8_t *aux);
void run_aux_check(struct run *run, const struct schedule_job *job, const uint8_t *aux);

/* run_report.c: collective; rank 0 prints. Returns the exit code, alike on all ranks. */
int run_report(struct run *run);

#endif /* LAUNCH_RUN_H */
