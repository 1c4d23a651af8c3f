/*
 * fail_heap.h - a heap that counts, and that can refuse any one allocation.
 *
 * For every x_open:
 *   for (uint64_t n = 1;; n++) {
 *       fail_heap_init(&heap, n);
 *       status = x_open(&heap.heap, ..., &x);
 *       if (!fail_heap_failed(&heap)) break;   (all allocations were tried: x is open)
 *       assert_int_equal(status, KVF_E_NOMEM);
 *       fail_heap_fini(&heap);                 (nothing was left behind)
 *   }
 */
#ifndef KVF_TEST_FAIL_HEAP_H
#define KVF_TEST_FAIL_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "heap.h"

struct fail_heap {
    struct kvf_heap heap; /* give its address to the code under test */
    uint64_t calls;       /* allocations asked for */
    uint64_t fail_at;     /* this one is refused, from 1; 0 = none */
    uint64_t live;        /* allocations not released */
    uint64_t bytes;       /* taken in all, also what was released since */
};

/* `fail_at` as above. The struct must not move afterwards. */
void fail_heap_init(struct fail_heap *heap, uint64_t fail_at);
/* The allocation that was to be refused has been asked for. */
bool fail_heap_failed(const struct fail_heap *heap);
/* Fails the test when something was not released. */
void fail_heap_fini(const struct fail_heap *heap);

#endif /* KVF_TEST_FAIL_HEAP_H */
