/*
 * kvferry.h - the public calls.
 *
 * kvferry moves the KV cache of a request from the ranks that ran its prefill (context) into the
 * pages of the ranks that generate its tokens (generation). Three promises: nothing is written late
 * and every request ends once, alike on all ranks; small fragments cost nothing; you can see why.
 *
 * Order of use, on every rank of the world:
 *   kvf_open_mpi (kvferry_mpi.h) -> kvf_pool_alloc or kvf_pool_register -> kvf_publish
 *   -> kvf_send_open / kvf_recv_open, kvf_sweep once an iteration -> kvf_close
 *
 * Threads: kvf_open_mpi, kvf_pool_*, kvf_publish, kvf_sweep, kvf_wait, kvf_progress and kvf_close
 * are called by the one thread that may call MPI; all other calls by any thread. No call blocks
 * except kvf_open_mpi, kvf_publish, kvf_wait and kvf_close, which are bounded.
 *
 * Parameter structs begin with `size`; start from the _INIT value. A zero field means "from the
 * settings". A field this release does not know must be zero.
 *
 * May not include mpi.h.
 */
#ifndef KVFERRY_H
#define KVFERRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvferry/kvf_layout.h>
#include <kvferry/kvf_status.h>
#include <kvferry/kvf_topology.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_VERSION_MAJOR 0
#define KVF_VERSION_MINOR 1
#define KVF_VERSION_PATCH 0

/* "0.1.0". Any thread. */
KVF_API const char *kvf_version(void);

/* One rank's end of the ferry. Opaque. */
struct kvf;

/*
 * Names a request. Given by the engine, the same on both sides, unique over the world for as long
 * as any rank remembers it (see request_info_ttl_ms in docs/settings.md).
 */
typedef uint64_t kvf_req_id;

enum kvf_log_level { KVF_LOG_ERROR, KVF_LOG_WARN, KVF_LOG_INFO, KVF_LOG_DEBUG };

/*
 * Receives each log line. `event` is the stable id ("W30") or "" ; `text` is one line without an
 * end-of-line, valid during the call. Called from any thread; may not call kvferry.
 */
typedef void (*kvf_log_fn)(void *self, enum kvf_log_level level, const char *event,
                           const char *text);

/* What the engine says of itself, all zero by default. Sizes are ceilings, taken at open. */
struct kvf_open_params {
    size_t size;
    const struct kvf_topology *topology; /* required, alike on all ranks; borrows during the call */
    const char *settings_path; /* YAML, read on rank 0 alone; NULL = defaults and KVF_ variables */
    const char *settings_text; /* YAML text, rank 0 alone; wins over the path */
    uint32_t requests_max;     /* live requests; 0 = setting. More: KVF_BUSY */
    uint32_t blocks_max;       /* blocks of all live requests' lists; 0 = setting */
    uint32_t beam_width;       /* 0 = 1. More than 1 is refused */
    bool reuse_partial;        /* engine reuses blocks that are not full (a fact, see settings) */
    kvf_log_fn log;            /* NULL = standard error */
    void *log_self;
};
#define KVF_OPEN_PARAMS_INIT \
    { \
        .size = sizeof(struct kvf_open_params) \
    }

/* Where this rank is. */
struct kvf_rank {
    size_t size;
    uint32_t world_rank;
    uint32_t world_size;
    uint32_t instance; /* index into the topology */
    uint32_t rank;     /* inside the instance */
    enum kvf_side side;
    uint32_t tp_rank, pp_rank, dp_rank;
};
#define KVF_RANK_INIT \
    { \
        .size = sizeof(struct kvf_rank) \
    }

/* Errors: E_INVAL. Any thread. */
KVF_API enum kvf_status kvf_rank(const struct kvf *kvf, struct kvf_rank *rank_out);

/* ---- pools ---------------------------------------------------------------------------------- */

enum kvf_memory { KVF_MEMORY_HOST, KVF_MEMORY_CUDA };

/* Memory that holds pages. Opaque; belongs to the context and goes with it. */
struct kvf_pool;

struct kvf_pool_params {
    size_t size;
    enum kvf_memory memory;
    void *base;           /* kvf_pool_register: the engine's memory; kvf_pool_alloc: must be NULL */
    uint64_t slot_bytes;  /* bytes of a slot in use, > 0 */
    uint64_t slot_stride; /* 0 = slot_bytes */
    uint64_t slots;       /* > 0 */
};
#define KVF_POOL_PARAMS_INIT \
    { \
        .size = sizeof(struct kvf_pool_params) \
    }

/*
 * Takes memory that peers of this node can map. Needed and found are compared first: E_SHM_SPACE or
 * E_MEM_SPACE before anything is taken, never a SIGBUS later. Contents are zero.
 * An error is this rank's alone, and nothing is kept of the call: take another pool instead, or
 * call kvf_publish() with NULL in its place, or with a layout without pools, which then returns the
 * code on all ranks. Blocks while pages are touched. MPI thread, before kvf_publish().
 */
KVF_API enum kvf_status kvf_pool_alloc(struct kvf *kvf, const struct kvf_pool_params *params,
                                       struct kvf_pool **pool_out);

/*
 * Registers memory that the engine owns; it must stay until kvf_close() returned. Peers reach it by
 * puts; host memory registered so cannot be mapped. Errors as with kvf_pool_alloc(); E_REGISTER
 * when the system refuses: the log has the size and the limit on locked memory. MPI thread,
 * before kvf_publish().
 */
KVF_API enum kvf_status kvf_pool_register(struct kvf *kvf, const struct kvf_pool_params *params,
                                          struct kvf_pool **pool_out);

/* Address of slot 0. Any thread. */
KVF_API void *kvf_pool_base(const struct kvf_pool *pool);

/*
 * Tells all ranks what this one's cache looks like, and learns theirs: collective over the world,
 * blocking, bounded by connect_timeout_ms. `pools` has layout->pool_count members, in the layout's
 * order; NULL stands for one that could not be taken. `layout` and `pools` are copied. After it
 * every pair of ranks that can meet is connected.
 * Errors, alike on all ranks: a local refusal of any rank (its code; the rank is named in the log),
 * E_NO_PATH (the setting `path` forces a rung that some pair of ranks cannot have),
 * E_WORLD, E_NOMEM, E_MPI, E_UCX. MPI thread, once.
 */
KVF_API enum kvf_status kvf_publish(struct kvf *kvf, const struct kvf_layout *layout,
                                    struct kvf_pool *const *pools);

/* ---- requests ------------------------------------------------------------------------------- */

#define KVF_UNKNOWN UINT32_MAX

/* Largest sum of aux bytes of one request: they travel inside the report. */
#define KVF_AUX_BYTES_MAX 65535u

/* The other side of a request: an instance of the topology and, with attention DP, a dp group. */
struct kvf_end {
    uint32_t instance; /* index into the topology */
    uint32_t dp_group; /* KVF_UNKNOWN: not known (yet); 0 without attention DP */
};

struct kvf_send_params {
    size_t size;
    kvf_req_id rid;
    uint32_t prompt_tokens;
    struct kvf_end destination;         /* instance KVF_UNKNOWN: taken from the first ask */
    uint32_t list_count;                /* = the layout's group_count */
    const struct kvf_block_list *lists; /* copies */
    const void *aux;                    /* copies: the layout's aux buffers back to back, or NULL */
};
#define KVF_SEND_PARAMS_INIT \
    { \
        .size = sizeof(struct kvf_send_params), .destination = { KVF_UNKNOWN, KVF_UNKNOWN } \
    }

/*
 * Context: opens a request for sending. Nothing is sent before kvf_send_blocks(). The blocks are
 * lent until the request's KVF_EVENT_RELEASED.
 * Errors: BUSY (requests_max or blocks_max reached), E_EXISTS, E_REQ_*, E_INVAL, E_STATE, E_CLOSED.
 */
KVF_API enum kvf_status kvf_send_open(struct kvf *kvf, const struct kvf_send_params *params);

#define KVF_WINDOWS_MAX 64u /* windows of one request */

/*
 * A part of a request that is ready to be read. More than one needs the setting
 * enable_pipelined_transfer.
 */
struct kvf_window {
    size_t size;
    uint32_t token_first; /* on a block */
    uint32_t token_end;   /* 0 = the prompt's end; on a block, or the prompt's end */
    uint32_t layer_first; /* global */
    uint32_t layer_end;   /* 0 = all layers */
    bool last;            /* no more windows follow; state and aux go with it */
    void *cuda_event;     /* cudaEvent_t that must have passed; NULL = ready now */
};
#define KVF_WINDOW_INIT \
    { \
        .size = sizeof(struct kvf_window), .last = true \
    }

/*
 * Context: the window's source bytes are final and may be read from now on. Windows of a request
 * must not overlap and must cover the prompt by the time `last` is set; their order is free.
 * Errors: E_NOTFOUND, E_REQ_PIECE (also a first window that is not the last, without the setting),
 * E_TOO_LARGE (more than KVF_WINDOWS_MAX), E_STATE (after `last`), BUSY.
 */
KVF_API enum kvf_status kvf_send_blocks(struct kvf *kvf, kvf_req_id rid,
                                        const struct kvf_window *window);

struct kvf_recv_params {
    size_t size;
    kvf_req_id rid;
    uint32_t prompt_tokens;
    uint32_t cached_tokens; /* leading tokens this side already has: their whole blocks stay out */
    struct kvf_end source;  /* dp_group KVF_UNKNOWN: all groups are asked */
    uint32_t list_count;    /* = the layout's group_count */
    const struct kvf_block_list *lists; /* copies */
    void *aux; /* takes the aux buffers back to back; borrows until the request ended; or NULL */
    bool synchronous; /* the caller will kvf_wait() for it */
};
#define KVF_RECV_PARAMS_INIT \
    { \
        .size = sizeof(struct kvf_recv_params), .source = { 0, KVF_UNKNOWN } \
    }

/*
 * Generation: asks the context ranks that geometry names. The blocks belong to the transfer until
 * the request's KVF_EVENT_RELEASED: nobody else may write or rely on them before.
 * Errors: as kvf_send_open(), and E_REQ_SLOT_TWICE. A peer that does not fit is not an error of the
 * call: the request ends KVF_EVENT_FAILED with the geometry code.
 */
KVF_API enum kvf_status kvf_recv_open(struct kvf *kvf, const struct kvf_recv_params *params);

/*
 * Either side: gives the request up. The pages stay lent until KVF_EVENT_RELEASED. Cancelling a
 * request that has ended, or was cancelled before, changes nothing and is KVF_OK.
 * Errors: E_NOTFOUND (never opened here, or forgotten).
 */
KVF_API enum kvf_status kvf_cancel(struct kvf *kvf, kvf_req_id rid);

/* ---- results -------------------------------------------------------------------------------- */

enum kvf_event_kind {
    KVF_EVENT_ASKED,          /* context: every rank has been asked for this request */
    KVF_EVENT_SENT,           /* context: every receiver has its bytes */
    KVF_EVENT_READY,          /* generation: all bytes are in the pages: generate */
    KVF_EVENT_FAILED,         /* it will not complete; pages still lent */
    KVF_EVENT_CANCELLED,      /* as FAILED, by the engine or the other side */
    KVF_EVENT_RELEASED,       /* the pages are yours again; the last event of a request */
    KVF_EVENT_RELEASED_LOCAL, /* as RELEASED, by this rank's own proof after its group was lost */
};

enum kvf_path {
    KVF_PATH_NONE,     /* no bytes had to move */
    KVF_PATH_MAPPED,   /* stores into the reader's mapped pages */
    KVF_PATH_DIRECT,   /* a put a fragment */
    KVF_PATH_BOUNCE,   /* gathered, put in large chunks, scattered */
    KVF_PATH_TWOSIDED, /* send and receive */
};
#define KVF_PATH_COUNT 5

/* Where the time of a request went on this rank, in ns of the real clock. */
struct kvf_timing {
    uint64_t prepare_ns; /* call to first REQUEST_DATA handed over (receive), to ready (send) */
    uint64_t wait_ns;    /* until the first writer started (receive), until asked (send) */
    uint64_t move_ns;    /* until the last byte was known to be in place */
    uint64_t agree_ns;   /* until this event was returned */
};

struct kvf_event {
    kvf_req_id rid;
    enum kvf_event_kind kind;
    enum kvf_status status;   /* KVF_OK, or why it ended so */
    uint32_t culprit;         /* world rank that caused a failure, KVF_UNKNOWN = none or this one */
    uint64_t payload_bytes;   /* bytes of pages that this rank received or sent */
    uint32_t path_mask;       /* bit 1 << enum kvf_path for each path that was used */
    struct kvf_timing timing; /* set with SENT, READY, FAILED and CANCELLED */
};

/*
 * Once an iteration, on every rank of the group (the instance, or with attention DP the dp group):
 * returns the events that all ranks agree on, at most `max`, the same ones in the same order in the
 * same iteration everywhere. `iteration` counts up by one a call that did not return AGAIN or MORE;
 * `max` is equal on all ranks. Never blocks: one small collective is under way between two calls.
 * An event may name a request that this rank has not opened yet: the group has ended it. It is
 * opened all the same, and then released; not opened at all it is called absent after
 * kv_transfer_timeout_ms, and opening it gives E_EXISTS from then on.
 * Returns OK; AGAIN: another rank has not called yet, call again with the same iteration and do not
 * begin it; MORE: more events of this iteration are waiting, call again with the same iteration.
 * Errors: E_STATE, E_INVAL; E_GROUP_LOST for ever, once a rank of the group is lost or ranks
 * disagree: `count_out` is set all the same, to events of this rank's own proof, RELEASED_LOCAL
 * among them. MPI thread.
 */
KVF_API enum kvf_status kvf_sweep(struct kvf *kvf, uint64_t iteration, struct kvf_event *events_out,
                                  size_t max, size_t *count_out);

/*
 * Synchronous receive: waits until `rid` has ended, running sweeps inside. On the deadline it
 * cancels and waits until nobody writes any more, bounded by kv_transfer_timeout_ms. `event_out` is
 * READY, FAILED or CANCELLED; events of other requests are kept for kvf_sweep(). In a group of
 * several ranks all call it for the same requests in the same order, and return after the same
 * sweep. MPI thread.
 * Errors: E_NOTFOUND, E_STATE (opened without `synchronous`), E_TIMEOUT.
 */
KVF_API enum kvf_status kvf_wait(struct kvf *kvf, kvf_req_id rid, uint32_t deadline_ms,
                                 struct kvf_event *event_out);

/*
 * Steps the library once, for engines that set progress: caller. Does nothing else than what the
 * progress thread would do; never blocks. Returns OK when something was done, AGAIN when not;
 * E_STATE with a progress thread, and before kvf_publish() has returned: until then there is
 * nothing to step. MPI thread.
 */
KVF_API enum kvf_status kvf_progress(struct kvf *kvf);

/* ---- seeing why ----------------------------------------------------------------------------- */

/* Counters since open. All monotone except the ones marked "now". */
struct kvf_counters {
    size_t size;
    uint64_t requests_opened, requests_ok, requests_failed, requests_cancelled;
    uint64_t failed_timeout, failed_refused, failed_transfer, failed_peer_lost, failed_protocol;
    uint64_t payload_bytes; /* bytes of pages sent (context) or received (generation) */
    uint64_t wire_bytes;    /* payload bytes that went through a put, and control bytes */
    uint64_t control_messages, control_bytes;
    uint64_t fragments;                   /* as planned, before joining */
    uint64_t path_writes[KVF_PATH_COUNT]; /* slices written per path; one a (writer, reader) */
    uint64_t puts_posted, puts_inflight_max;
    uint64_t messages_dropped;  /* wrong magic, checksum, epoch, session: counted, never acted on */
    uint64_t unexpected_events; /* an event no table lists; a bug if not 0 */
    uint64_t retained_blocks;   /* now: lent to transfers that have ended badly */
    uint64_t stranded_blocks;   /* now: kept without proof that nobody writes */
    uint64_t live_requests;     /* now */
    uint64_t connect_ns;        /* time kvf_publish() took to connect */
    uint64_t allocations_after_ready; /* memory taken after kvf_publish(); 0 is the aim */
};
#define KVF_COUNTERS_INIT \
    { \
        .size = sizeof(struct kvf_counters) \
    }

/* Any thread; values of one moment each, not of one moment all. */
KVF_API enum kvf_status kvf_counters(struct kvf *kvf, struct kvf_counters *counters_out);

/* Pages still lent to transfers that have ended badly: count them against free KV. Any thread. */
KVF_API enum kvf_status kvf_retained_blocks(struct kvf *kvf, uint64_t *blocks_out);

/*
 * Path that a write of this rank to (or from) world rank `peer` takes for a whole prompt, and why,
 * as text ("mapped: peer's pools are mapped"). Of a peer whose cache does not fit the text is
 * "refused: CODE: " and both sides' values. Errors: E_NOTFOUND (the two never meet). Any thread.
 */
KVF_API enum kvf_status kvf_path_to(struct kvf *kvf, uint32_t peer, enum kvf_path *path_out,
                                    char *text_out, size_t text_bytes);

/* Writes what each live request waits for, by name of rank. Any thread, also while others block. */
KVF_API enum kvf_status kvf_dump(struct kvf *kvf, FILE *file);

/*
 * Ends: refuses new requests, waits for the live ones up to `deadline_ms`, cancels the rest, says
 * goodbye and gives everything back; frees `kvf` in every case. Collective over the world, bounded.
 * Returns OK, or E_WORLD when something was left over (a peer was lost, pages are stranded): then
 * MPI_Finalize may hang and must be bounded by the caller. NULL is fine. MPI thread.
 */
KVF_API enum kvf_status kvf_close(struct kvf *kvf, uint32_t deadline_ms);

#ifdef __cplusplus
}
#endif

#endif /* KVFERRY_H */
