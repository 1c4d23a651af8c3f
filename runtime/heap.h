/*
 * heap.h - where all memory of the library comes from.
 *
 * A table of calls, so that tests can make any one allocation fail and can count. Memory is taken
 * at open; steps and posts allocate nothing. The heap outlives all that was taken from it.
 */
#ifndef KVF_HEAP_H
#define KVF_HEAP_H

#include <stddef.h>

struct kvf_heap {
    void *self;
    /* Zeroed memory for count * size bytes, 64-byte aligned, or NULL (also when it overflows). */
    void *(*alloc)(void *self, size_t count, size_t size);
    void (*release)(void *self, void *memory);
};

/* The C library's heap. Any thread. */
const struct kvf_heap *kvf_heap_system(void);

/* Zeroed memory, or NULL. Gives: release it to the same heap. */
void *kvf_alloc(const struct kvf_heap *heap, size_t count, size_t size);

/* NULL is fine. */
void kvf_release(const struct kvf_heap *heap, void *memory);

#endif /* KVF_HEAP_H */
