/*
 * transport_ucx.h - what the files of the UCX transport share. Private to *_ucx.c of this folder.
 *
 *   transport_ucx.c  the table, open and close
 *   contexts_ucx.c   version, configuration, contexts and workers
 *   memory_ucx.c     pools, keys, mapping
 *   peers_ucx.c      addresses, endpoints
 *   posts_ucx.c      messages, puts, flushes, poll
 *
 * Invariants:
 *  1. An operation that returned AGAIN is told once. It is in UCX's hands, in the done list, or
 *     free. One whose peer was given up (near: no error mode) is told while UCX still has it: an
 *     orphan. With orphans the near worker makes no progress in close.
 *  2. UCX's callbacks only fill the done list and the error list; the sink is called from poll()
 *     alone. The exception is a message, which is told from inside the control worker's progress.
 *  3. A key is destroyed only when none of its puts is in UCX's hands, and never from a callback.
 *  4. send, put, flush, disconnect and poll take nothing from the heap.
 */
#ifndef XFER_TRANSPORT_UCX_H
#define XFER_TRANSPORT_UCX_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <ucp/api/ucp.h>

#include "log.h"
#include "xfer/room.h"
#include "xfer/tls.h"
#include "xfer/transport_open.h"

/* Order of enum tls_context: near, far (as enum transport_plane), control. */
#define UCX_CONTEXTS TLS_CONTEXT_COUNT
_Static_assert((int)TLS_NEAR == (int)TRANSPORT_NEAR, "a plane is the index of its context");
_Static_assert((int)TLS_FAR == (int)TRANSPORT_FAR, "a plane is the index of its context");

#define UCX_OPERATIONS_DEFAULT 4096u
#define UCX_AM_ID 0x4bu /* of control messages */

/* One context and its worker. */
struct ucx_context {
    ucp_context_h context;
    ucp_worker_h worker;
    int fd;                   /* readable: progress is due; >= 0 after open */
    char tls[TLS_LIST_BYTES]; /* as given to UCX, for texts */
};

enum ucx_op_kind { UCX_OP_SEND, UCX_OP_PUT, UCX_OP_FLUSH, UCX_OP_DISCONNECT };

/* One operation. Free again when it was told and UCX's hands are off. */
struct ucx_op {
    struct ucx *ucx;
    struct ucx_op *next;                    /* free list or done list */
    struct ucx_op *peer_next, *peer_before; /* of its peer's posted ones */
    struct transport_remote *remote;        /* put: counted in remote->puts */
    void *request;                          /* UCX's, while its hands are on */
    transport_token token;
    enum kvf_status status;
    enum ucx_op_kind kind;
    enum tls_context context;
    uint32_t peer;
    uint32_t parts; /* disconnect: closings that it waits for */
    bool posted;    /* in its peer's list */
    bool queued;    /* in the done list */
    bool told;
    bool ended; /* UCX's hands are off */
};

struct ucx_peer {
    struct ucx *ucx;
    uint32_t index;
    uint32_t pid;
    bool known;
    bool near;
    bool closing;
    bool failed; /* an endpoint reported an error; it is told once */
    bool used;   /* something was posted on control or far: there is something to flush */
    ucp_ep_h endpoint[UCX_CONTEXTS]; /* NULL = none */
    struct ucx_op *posted;           /* operations in UCX's hands, without disconnects */
    struct ucx_op *disconnect;       /* not NULL while closing */
    void *leaving[UCX_CONTEXTS];     /* closings of ucx_peers_close(), until they end */
};

struct transport_memory {
    struct ucx *ucx;
    void *base;
    uint64_t len_bytes;
    uint64_t proof; /* random; also stands right behind the memory, if shared */
    bool shared;    /* from memory_alloc: peers of this node can map it */
    uint64_t cost_ns;
    ucp_mem_h handle[2]; /* by plane */
};

struct transport_remote {
    struct ucx *ucx;
    struct transport_remote *next; /* in the list of released ones that still have puts */
    uint32_t peer;
    enum transport_plane plane;
    uint64_t base, len_bytes;
    void *mapped; /* NULL = not */
    ucp_rkey_h key;
    uint32_t puts; /* in UCX's hands */
    bool released;
};

struct ucx {
    struct transport table; /* table.self is this struct */
    struct log_once once;
    const struct kvf_heap *heap;
    const struct logger *logger;
    uint32_t rank;
    uint32_t peers_max;
    uint64_t host;              /* identity of this host, hashed */
    const char *root;           /* of /proc and /sys */
    enum room_kind shared_kind; /* which allocator near takes */
    uint64_t shared_bytes_max;
    atomic_uint_fast64_t shared_bytes; /* allocated now */
    struct ucx_context contexts[UCX_CONTEXTS];
    struct transport_sink sink;
    struct ucx_peer *peers; /* peers_max */
    struct ucx_op *ops;     /* operations_max */
    uint32_t operations_max;
    struct ucx_op *ops_free;
    struct ucx_op *done_first, *done_last;
    uint64_t orphans; /* told while UCX had them, and still has */
    uint32_t *errors; /* peers_max: a queue of peers whose error was not told */
    uint32_t errors_count;
    struct transport_remote *dying; /* released, with puts in UCX's hands */
    bool owner_known;
    pthread_t owner; /* the thread that connects */
};

/* What UCX says, as a status of ours. */
enum kvf_status ucx_status(ucs_status_t status);

/* ---- contexts_ucx.c ---- */

/* Version, lists, three contexts and workers. Undoes all on an error. */
enum kvf_status ucx_contexts_open(struct ucx *ucx, char *reason_out);
void ucx_contexts_close(struct ucx *ucx);
/* Boot id, node name, IPC and PID namespace, hashed. */
uint64_t ucx_host_identity(const char *root);

/* ---- memory_ucx.c ---- */

enum kvf_status ucx_memory_alloc(void *self, uint64_t len_bytes,
                                 struct transport_memory **memory_out, char *reason_out);
enum kvf_status ucx_memory_register(void *self, void *base, uint64_t len_bytes,
                                    struct transport_memory **memory_out, char *reason_out);
void *ucx_memory_base(const struct transport_memory *memory);
uint64_t ucx_memory_cost_ns(const struct transport_memory *memory);
enum kvf_status ucx_memory_pack(void *self, const struct transport_memory *memory, void *key_out,
                                size_t cap_bytes, size_t *len_out);
void ucx_memory_release(void *self, struct transport_memory *memory);
enum kvf_status ucx_remote_open(void *self, uint32_t peer, const void *key, size_t len_bytes,
                                struct transport_remote **remote_out, char *reason_out);
uint64_t ucx_remote_base(const struct transport_remote *remote);
uint64_t ucx_remote_len(const struct transport_remote *remote);
void *ucx_remote_mapped(const struct transport_remote *remote);
enum transport_plane ucx_remote_plane(const struct transport_remote *remote);
void ucx_remote_release(void *self, struct transport_remote *remote);
/* A put of it has ended. Not from inside UCX's callbacks. */
void ucx_remote_put_ended(struct transport_remote *remote);
/* At close: destroys the keys of released remotes that still have puts. No progress may follow. */
void ucx_remotes_drop(struct ucx *ucx);

/* ---- peers_ucx.c ---- */

enum kvf_status ucx_address(void *self, void *address_out, size_t cap_bytes, size_t *len_out);
enum kvf_status ucx_connect(void *self, uint32_t peer, const void *address, size_t len_bytes);
bool ucx_is_near(void *self, uint32_t peer);
uint32_t ucx_peer_pid(void *self, uint32_t peer);
enum kvf_status ucx_disconnect(void *self, uint32_t peer, bool force, transport_token token);
/* Ends the disconnect of a peer when nothing of it is left. */
void ucx_disconnect_step(struct ucx_peer *peer);
/*
 * Closes all endpoints until the deadline, then lets go of every request: a worker that is
 * destroyed with a live one is a failed assertion of UCX 1.13. Nothing is told.
 */
void ucx_peers_close(struct ucx *ucx, uint64_t deadline_ns);

/* ---- posts_ucx.c ---- */

/* NULL = none free. */
struct ucx_op *ucx_op_take(struct ucx *ucx, enum ucx_op_kind kind, enum tls_context context,
                           uint32_t peer, transport_token token);
/* Back to the free list; was never handed to UCX. */
void ucx_op_drop(struct ucx_op *op);
/* UCX's hands are off. Told at the next poll, if it was not. */
void ucx_op_ended(struct ucx_op *op, enum kvf_status status);
/* Tells it at the next poll although UCX still has it. */
void ucx_op_orphan(struct ucx_op *op, enum kvf_status status);
/* Receives control messages from now on. */
ucs_status_t ucx_listen(struct ucx *ucx);
/* UCX's report of a broken endpoint; `peer` is a struct ucx_peer. */
void ucx_endpoint_failed(void *peer, ucp_ep_h endpoint, ucs_status_t status);
enum kvf_status ucx_send(void *self, uint32_t peer, const void *bytes, size_t len_bytes,
                         transport_token token);
enum kvf_status ucx_put(void *self, const struct transport_put *put);
enum kvf_status ucx_flush(void *self, uint32_t peer, enum transport_plane plane,
                          transport_token token);
uint32_t ucx_poll(void *self);
void ucx_descriptors(void *self, int fds_out[3]);
enum kvf_status ucx_arm(void *self);

#endif /* XFER_TRANSPORT_UCX_H */
