/* heap.c - the C library's heap behind the table of heap.h. */
#include "heap.h"

#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define HEAP_ALIGN_BYTES 64u

/*
 * calloc() with room to align, since it leaves fresh pages untouched where a memset would not. The
 * word before the memory says where the block begins.
 */
static void *heap_system_alloc(void *self, size_t count, size_t size)
{
    size_t len_bytes;
    char *block;
    uintptr_t at;

    (void)self;
    if (size != 0 && count > (SIZE_MAX - HEAP_ALIGN_BYTES - sizeof(void *)) / size)
        return NULL;
    len_bytes = count * size;
    block = calloc(1, len_bytes + HEAP_ALIGN_BYTES + sizeof(void *));
    if (block == NULL)
        return NULL;
    at = ((uintptr_t)block + sizeof(void *) + HEAP_ALIGN_BYTES - 1) &
         ~(uintptr_t)(HEAP_ALIGN_BYTES - 1);
    ((void **)at)[-1] = block;
    return (void *)at;
}

static void heap_system_release(void *self, void *memory)
{
    (void)self;
    free(((void **)memory)[-1]);
}

const struct kvf_heap *kvf_heap_system(void)
{
    static const struct kvf_heap heap = {
        .alloc = heap_system_alloc,
        .release = heap_system_release,
    };

    return &heap;
}

void *kvf_alloc(const struct kvf_heap *heap, size_t count, size_t size)
{
    KVF_REQUIRE(heap != NULL);
    return heap->alloc(heap->self, count, size);
}

void kvf_release(const struct kvf_heap *heap, void *memory)
{
    KVF_REQUIRE(heap != NULL);
    if (memory != NULL)
        heap->release(heap->self, memory);
}
