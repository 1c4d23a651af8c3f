/*
 * ring.h - the one queue by which other threads reach the reactor: many producers, one consumer.
 *
 * Bounded, entries by value, no lock and no allocation after open. Built on libck's ring; under the
 * thread sanitizer, which does not understand that one, on C11 atomics.
 */
#ifndef KVF_RING_H
#define KVF_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define RING_ENTRY_BYTES 64u

/* The caller's struct is copied in and out; _Static_assert that it fits. */
struct ring_entry {
    uint64_t words[RING_ENTRY_BYTES / 8];
};

struct ring;

/*
 * Room for at least `entries_max` (1..2^24) entries. Gives: ring_close().
 * Errors: E_NOMEM, E_INVAL.
 */
enum kvf_status ring_open(const struct kvf_heap *heap, uint32_t entries_max,
                          struct ring **ring_out);
/* No thread may use it any more; entries inside are dropped. NULL is fine. */
void ring_close(struct ring *ring);

/* Copies; false when full. Any thread. */
bool ring_put(struct ring *ring, const struct ring_entry *entry);

/* False when empty. The consumer's thread. Entries of one producer come in its order. */
bool ring_take(struct ring *ring, struct ring_entry *entry_out);

/* Entries inside, about. Any thread. */
uint32_t ring_count(const struct ring *ring);

#endif /* KVF_RING_H */
