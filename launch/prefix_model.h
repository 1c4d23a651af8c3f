/*
 * prefix_model.h - which leading tokens of each request a generation group already holds: a pure
 * cache over the order of the trace, so that all ranks compute the same.
 *
 * The cache keeps hash blocks (TRACE_HASH_TOKENS tokens each) in pages of the group's pool. An
 * entry is made by the first request that brings a hash block and reused by later ones with the
 * same leading ids. Before a request is admitted the least recently used entries are dropped until
 *
 *     pages of all entries + pages of the request that no entry holds <= pages of the pool
 *
 * so that the oldest unfinished request always finds its pages once all older ones have ended,
 * however late those end: entries dropped here give their pages back when their last user ends.
 */
#ifndef LAUNCH_PREFIX_MODEL_H
#define LAUNCH_PREFIX_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PREFIX_NONE UINT32_MAX

struct prefix_model;

struct prefix_params {
    uint64_t pool_pages;
    uint32_t pages_per_hash; /* pages of one hash block, at least 1 */
};

/* A request in trace order. */
struct prefix_ask {
    uint32_t user;          /* the caller's number of the request */
    uint32_t pages;         /* of the whole prompt; at most pool_pages */
    uint32_t hash_count;    /* whole hash blocks with an id */
    const uint64_t *hashes; /* borrows: until the call returns */
};

/*
 * What happens as a request is admitted. Entry numbers count up from 0 over the life of the model.
 */
struct prefix_answer {
    uint32_t reused;         /* leading hash blocks that are reused */
    const uint32_t *entries; /* [hash_count]: reused ones, then the new ones; borrows: next call */
    uint32_t dropped_count;  /* entries dropped before it */
    const uint32_t *dropped; /* borrows: until the next call */
};

/* NULL: no memory. Gives: prefix_close(). */
struct prefix_model *prefix_open(const struct prefix_params *params);

/* NULL is fine. */
void prefix_close(struct prefix_model *model);

/* False: no memory (the model is then of no more use). */
bool prefix_admit(struct prefix_model *model, const struct prefix_ask *ask,
                  struct prefix_answer *answer_out);

/* Entries made so far. */
uint32_t prefix_entry_count(const struct prefix_model *model);

/* Who made an entry, and its place among the hash blocks of the prompt. */
uint32_t prefix_entry_maker(const struct prefix_model *model, uint32_t entry);
uint32_t prefix_entry_ordinal(const struct prefix_model *model, uint32_t entry);

/* True when a later request reused the entry. */
bool prefix_entry_reused(const struct prefix_model *model, uint32_t entry);

/* Checks the invariant above and that the lists agree; for tests. */
bool prefix_check(const struct prefix_model *model);

#endif /* LAUNCH_PREFIX_MODEL_H */
