/* fail_heap.c - see fail_heap.h. */
#include "fail_heap.h"

#include "testing.h"

static void *fail_heap_alloc(void *self, size_t count, size_t size)
{
    struct fail_heap *heap = self;
    void *memory;

    if (++heap->calls == heap->fail_at)
        return NULL;
    memory = kvf_alloc(kvf_heap_system(), count, size);
    heap->live += memory != NULL;
    heap->bytes += memory != NULL ? count * size : 0;
    return memory;
}

static void fail_heap_release(void *self, void *memory)
{
    struct fail_heap *heap = self;

    assert_true(heap->live > 0);
    heap->live--;
    kvf_release(kvf_heap_system(), memory);
}

void fail_heap_init(struct fail_heap *heap, uint64_t fail_at)
{
    *heap =
        (struct fail_heap){.heap = {heap, fail_heap_alloc, fail_heap_release}, .fail_at = fail_at};
}

bool fail_heap_failed(const struct fail_heap *heap)
{
    return heap->fail_at != 0 && heap->calls >= heap->fail_at;
}

void fail_heap_fini(const struct fail_heap *heap)
{
    assert_int_equal(heap->live, 0);
}
