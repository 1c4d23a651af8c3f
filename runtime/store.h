/*
 * store.h - runs of u32 of any length in one array: the block lists of live requests. Pure.
 *
 * Free runs are kept by size class, neighbours join when freed: taking and freeing cost O(1). Runs
 * are rounded up to a multiple of 4 words, headers included. Where the owners allow it, runs move
 * together when the free room is in pieces, so that room which is there can always be had.
 *
 * May include base only.
 */
#ifndef KVF_STORE_H
#define KVF_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define STORE_WORDS_MAX (1u << 30)
#define STORE_RUNS_MAX (1u << 26)

/*
 * Invariants (store_check): S1 the runs tile the array; S2 no two neighbours are free; S3 a run is
 * in the list of its class exactly when it is free; S4 used_words is the sum of the taken runs.
 */
struct store;

/*
 * Room for `runs_max` runs (1..STORE_RUNS_MAX) of `words_max` words in all (1..STORE_WORDS_MAX); an
 * eighth more is taken: against fragmentation, or, where runs may move, so that eight words are
 * taken for each that moves. Gives: store_close(). Errors: E_NOMEM, E_INVAL.
 */
enum kvf_status store_open(const struct kvf_heap *heap, uint32_t words_max, uint32_t runs_max,
                           struct store **store_out);
/* Runs inside go with it. NULL is fine. */
void store_close(struct store *store);

/* Bytes that such a store takes. */
uint64_t store_bytes(uint64_t words_max, uint64_t runs_max);

/* Told for each run that has moved: `owner` is that of store_take_for(). May not call the store. */
typedef void (*store_moved_fn)(void *self, uint32_t owner, uint32_t *run);

/*
 * From now on runs may move, inside store_take_for(). Then a run is had whenever the runs taken fit
 * `words_max` and `runs_max` with it.
 */
void store_may_move(struct store *store, store_moved_fn moved, void *self);

/*
 * A run of `count` words, not zeroed; with 0 a NULL run. `run_out` gives: store_free().
 * Errors: BUSY (no room at present), E_TOO_LARGE (more than the whole store).
 */
enum kvf_status store_take(struct store *store, uint32_t count, uint32_t **run_out);
enum kvf_status store_take_for(struct store *store, uint32_t count, uint32_t owner,
                               uint32_t **run_out);

/* A run that store_take() gave; NULL is fine. */
void store_free(struct store *store, uint32_t *run);

/* Words taken, rounding and headers included. */
uint32_t store_used_words(const struct store *store);

/* Aborts when an invariant does not hold; for tests. */
void store_check(const struct store *store);

#endif /* KVF_STORE_H */
