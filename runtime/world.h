/*
 * world.h - the ranks as glue sees them: a table of bounded collectives. One implementation over
 * MPI (world_mpi.c), one fake in tests/support.
 *
 * Used at open, publish and close alone; between them nobody calls it. One thread, the one that may
 * call MPI. May not include mpi.h.
 */
#ifndef KVF_WORLD_H
#define KVF_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define WORLD_TEXT_BYTES 256u
#define WORLD_TIMEOUT_MS 60000u /* until the settings are known */

/* The communicators of a rank. */
enum world_part {
    WORLD_ALL,
    WORLD_SIDE,     /* all context, or all generation ranks */
    WORLD_INSTANCE, /* one replica of the model */
    WORLD_GROUP,    /* dp group: ranks that share a request */
    WORLD_TP,       /* one stage of the group's instance */
    WORLD_PP,       /* same TP rank, all stages */
    WORLD_NODE,     /* ranks that share memory */
};
#define WORLD_PART_COUNT 7

/* One number for each part: equal numbers are together. ALL and NODE are not looked at. */
struct world_colours {
    uint32_t of[WORLD_PART_COUNT];
};

/* What all ranks of a part gave, in rank order. */
struct world_gathered {
    uint32_t count;
    uint8_t *bytes;
    size_t *offsets; /* [count + 1] into bytes */
    const struct kvf_heap *heap;
};

/* Zeroed is fine. */
void world_gathered_free(struct world_gathered *gathered);

struct collective;

struct world {
    size_t size;
    void *self;
    uint32_t rank;
    uint32_t rank_count;
    uint32_t node_rank; /* the node's numbers are known after open */
    uint32_t node_rank_count;
    /* Bytes of pools that the ranks of this node have taken; NULL = this rank counts alone. */
    _Atomic uint64_t *node_bytes;

    /* What opening found wrong on this rank alone: the caller has all ranks agree on it. */
    enum kvf_status trouble;
    char trouble_text[WORLD_TEXT_BYTES];
    /* After a gather or split that gave E_WORLD: "did not come: world ranks 3, 5", or "". */
    char missing_text[WORLD_TEXT_BYTES];

    /* Bound of each of the calls below. */
    void (*set_timeout)(void *self, uint32_t timeout_ms);
    /* Called again and again while a call waits; NULL = nothing. Returns true when it did work. */
    void (*set_idle)(void *self, bool (*idle)(void *idle_self), void *idle_self);

    /* Makes the parts. Collective over all. Errors: E_MPI, E_WORLD. */
    enum kvf_status (*split)(void *self, const struct world_colours *colours);

    /*
     * Every rank of the part gives some bytes (0 is fine) and gets all. `out` gives:
     * world_gathered_free(). Errors: E_WORLD (a rank did not come in time), E_MPI, E_NOMEM,
     * E_TOO_LARGE (alike on all ranks of the part).
     */
    enum kvf_status (*gather)(void *self, enum world_part part, const void *bytes, size_t len_bytes,
                              struct world_gathered *out);

    /*
     * Collectives among the ranks of the part that never wait, on a communicator of their own
     * (consensus/collective.h). `out` is closed before the world is. Errors: E_WORLD, E_MPI,
     * E_NOMEM.
     */
    enum kvf_status (*open_collective)(void *self, enum world_part part, uint32_t slots,
                                       size_t len_max_bytes, struct collective **out);

    /* All ranks, until `deadline_ns` (monotonic clock). Errors: E_WORLD, E_MPI. */
    enum kvf_status (*barrier)(void *self, uint64_t deadline_ns);

    /* `clean` false: a rank is lost, so leave the communicators behind rather than wait for it. */
    void (*close)(void *self, bool clean);
};

#endif /* KVF_WORLD_H */
