/*
 * arena.h - who has which part of the bounce's staging memory: a buddy allocator whose regions have
 * a generation, a state and, where a remote put may still land in them, a time in quarantine. Pure:
 * it hands out offsets and never looks at the memory.
 *
 * Every way out of a region ends in arena_free() or in a quarantine that has run out, and each of
 * them changes the generation of its offset, so that a handle which is older is known as stale.
 *
 * May include base only.
 */
#ifndef XFER_ARENA_H
#define XFER_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define ARENA_BLOCKS_MAX (1u << 24) /* usable / granularity */
#define ARENA_NONE UINT32_MAX

/* Who may touch a region: docs/protocol.md, "Regions". */
enum arena_state {
    ARENA_FREE,           /* nobody */
    ARENA_EAGER,          /* own gather, no credit yet */
    ARENA_STAGING,        /* own gather, then the transport reading */
    ARENA_ORPHAN_WRITE,   /* the transport reading; its flow has failed */
    ARENA_ORPHAN_GATHER,  /* own gather writing; its flow has failed */
    ARENA_GRANTED,        /* the one peer named in the credit, writing */
    ARENA_QUEUED,         /* nobody: the bytes have landed */
    ARENA_BUSY,           /* own scatter, reading */
    ARENA_ORPHAN_SCATTER, /* own scatter, reading; its flow is gone */
    ARENA_QUARANTINE,     /* perhaps a late put */
    ARENA_POISONED,       /* unknown: never used again */
};
#define ARENA_STATE_COUNT 11

/* What names a region, also to a peer. */
struct arena_handle {
    uint64_t offset; /* from the arena's first byte */
    uint32_t generation;
};

/* Where a region may lie. Eager gathers keep to one half, so that the other serves all else. */
enum arena_place {
    ARENA_ANYWHERE,
    ARENA_UPPER_HALF,
};

/*
 * Invariants, checked by arena_check():
 *  A1. blocks do not overlap and cover the arena; each is aligned to its size.
 *  A2. a free block's buddy of the same size is not free (they were joined).
 *  A3. bytes of each state are those counted by walking the blocks.
 *  A4. quarantined blocks, and no others, are in the quarantine list, in order of their end.
 *  A5. high water is at least what is taken now.
 */
struct arena;

/*
 * `usable_bytes` is a power of two times `granularity_bytes`, which is a power of two
 * (geo_bounce_arena()). Gives: arena_close(). Errors: E_NOMEM, E_INVAL.
 */
enum kvf_status arena_open(const struct kvf_heap *heap, uint64_t usable_bytes,
                           uint64_t granularity_bytes, struct arena **arena_out);
/* NULL is fine. */
void arena_close(struct arena *arena);

/* Takes a region, which is named here by a number until it is free. */
struct arena_want {
    uint64_t len_bytes;     /* > 0 */
    enum arena_state state; /* not FREE */
    enum arena_place place;
    uint64_t owner; /* the caller's; see arena_owner() */
};

/* OK; BUSY: no room at present; E_TOO_LARGE: there never is. */
enum kvf_status arena_take(struct arena *arena, const struct arena_want *want,
                           uint32_t *region_out);

/* The same question without taking. */
enum kvf_status arena_has_room(const struct arena *arena, const struct arena_want *want);

/* The region's bytes are nobody's any more. Not for a quarantined or poisoned one. */
void arena_free(struct arena *arena, uint32_t region);

/* Not to or from FREE, QUARANTINE, POISONED. */
void arena_set_state(struct arena *arena, uint32_t region, enum arena_state state);

/*
 * A put of `peer` may still land: free at `until_ns`, or when arena_proof() says that the peer can
 * write no more. `until_ns` must not be before that of an earlier call.
 */
void arena_quarantine(struct arena *arena, uint32_t region, uint32_t peer, uint64_t until_ns);

/* Nothing is known about who may touch it, and never will be. */
void arena_poison(struct arena *arena, uint32_t region);

/* Frees what has been long enough in quarantine; returns how many. */
uint32_t arena_tick(struct arena *arena, uint64_t now_ns);

/* `peer` can write no more: frees what it may have written to; returns how many. */
uint32_t arena_proof(struct arena *arena, uint32_t peer);

/* Time of the next arena_tick() that frees something; UINT64_MAX = none. */
uint64_t arena_deadline_ns(const struct arena *arena);

/* The region that a handle names, or ARENA_NONE: stale, or never was one. `offset` is anything. */
uint32_t arena_find(const struct arena *arena, struct arena_handle handle);

struct arena_handle arena_handle(const struct arena *arena, uint32_t region);
enum arena_state arena_state(const struct arena *arena, uint32_t region);
uint64_t arena_owner(const struct arena *arena, uint32_t region);
void arena_set_owner(struct arena *arena, uint32_t region, uint64_t owner);

/* What was asked for with arena_take(); the block may be larger. */
uint64_t arena_len(const struct arena *arena, uint32_t region);

/* Bytes that a region of this length takes; 0: beyond the arena. */
uint64_t arena_block_bytes(const struct arena *arena, uint64_t len_bytes);

/*
 * True when so long a region could be had if all were given back but what is quarantined or
 * poisoned.
 */
bool arena_could_hold(const struct arena *arena, uint64_t len_bytes);

struct arena_counts {
    uint64_t usable_bytes;
    uint64_t state_bytes[ARENA_STATE_COUNT];
    uint64_t high_water_bytes; /* most that was not free at once */
    uint64_t frees;            /* regions that became free since open: more room */
};

const struct arena_counts *arena_counts(const struct arena *arena);

/* "quarantine", ... */
const char *arena_state_name(enum arena_state state);

/* Aborts when an invariant does not hold; for tests. */
void arena_check(const struct arena *arena);

#endif /* XFER_ARENA_H */
