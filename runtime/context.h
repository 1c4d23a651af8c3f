/*
 * context.h - one rank's end of the ferry: what its parts share. Private to glue.
 *
 * Who touches what: fields marked "open" are written by the MPI thread before the progress thread
 * starts and then only read; `admission` has a lock; the rest belongs to the reactor (reactor.h) or
 * to the MPI thread, as marked.
 */
#ifndef KVF_CONTEXT_H
#define KVF_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "admission.h"
#include "channel.h"
#include "config.h"
#include "geometry.h"
#include "heap.h"
#include "log.h"
#include "metrics.h"
#include "peer.h"
#include "plan.h"
#include "topo.h"
#include "waker.h"
#include "world.h"
#include "xfer/path.h"
#include "xfer/transport.h"

#define CONTEXT_TEXT_BYTES 1024u

/* What a transport is opened for. */
struct context_transport {
    const struct kvf_heap *heap; /* borrows until the transport is closed */
    const struct logger *logger; /* same */
    uint32_t rank;
    uint32_t rank_count;
};

/* The outside: over MPI and UCX, or fakes. */
struct context_outside {
    struct world *world; /* takes */
    enum kvf_status (*open_transport)(void *self, const struct context_transport *want,
                                      struct transport **transport_out, char *reason_out);
    void *self;
    topo_refine_fn refine_topo; /* NULL: what the kernel says */
};

/* The public open, over any world; takes the world in any case. */
enum kvf_status context_open(const struct context_outside *outside,
                             const struct kvf_open_params *params, struct kvf **kvf_out);

/* Counts what is taken; the table handed to all parts. */
struct context_heap {
    struct kvf_heap table;
    _Atomic uint64_t taken;
};

struct kvf_pool {
    struct kvf *kvf;
    struct transport_memory *memory;
    uint8_t *base;
    uint64_t slot_bytes, slot_stride, slots;
    struct kvf_pool *next;
};

enum context_state {
    CONTEXT_OPEN,   /* pools may be made */
    CONTEXT_READY,  /* published */
    CONTEXT_FAILED, /* publishing failed: only close */
    CONTEXT_CLOSING,
};

struct reactor;
struct sweeper;

struct kvf {
    struct context_heap heap;
    struct logger logger;         /* open */
    struct kvf_settings settings; /* open */
    struct world *world;          /* MPI thread */
    struct transport *transport;  /* reactor, once it runs */
    struct kvf_topology *topology;
    struct kvf_rank place;     /* open */
    uint64_t epoch;            /* open: this life of the rank */
    char name[LOG_NAME_BYTES]; /* open: "ctx0/3" */

    _Atomic int state; /* enum context_state */
    struct kvf_pool *pools;
    enum kvf_status pool_status; /* first failed pool call: what a pool is missing for */
    uint64_t memory_bytes;       /* open: what the node had for pools */
    topo_refine_fn refine_topo;  /* open */
    struct topo topo;            /* publish */

    struct geo_record *record; /* publish: this rank's */
    uint32_t layer_count;      /* publish: global layers of the model */
    struct peers peers;        /* publish */
    atomic_bool damaged;       /* a peer was lost, or something is left over */
    atomic_bool group_lost;    /* a rank of this one's group is lost: nothing is opened any more */

    struct admission admission;
    struct metrics metrics;
    uint64_t taken_ready; /* heap.taken when published */

    struct reactor *reactor;
    struct sweeper *sweeper; /* MPI thread */
};

/*
 * All ranks learn the lowest failing rank's status: returned alike everywhere. That rank logs
 * `text`, or, where nobody knew more (out of memory, a collective), `step`: what could not be done.
 * `text` may be empty or NULL, `step` not. Collective. A collective that fails gives its own
 * status.
 */
enum kvf_status context_agree(struct kvf *kvf, enum kvf_status status, const char *step,
                              const char *text);

/* context_pool.c: releases all pools. Reactor stopped. */
void context_pools_close(struct kvf *kvf);

/* publish.c: undoes what publishing made, except the reactor. */
void publish_close(struct kvf *kvf);

static inline enum context_state context_state(struct kvf *kvf)
{
    return (enum context_state)atomic_load_explicit(&kvf->state, memory_order_acquire);
}

#endif /* KVF_CONTEXT_H */
