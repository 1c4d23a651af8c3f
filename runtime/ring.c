/*
 * ring.c - see ring.h. Glue, for the sake of libck's header.
 *
 * The thread sanitizer does not see the fences that libck's ring orders its entries by and reports
 * races that are none. Its builds use the second implementation here: one sequence number a slot.
 */
#include "ring.h"

#include <stdatomic.h>
#include <string.h>

#include "check.h"

#define RING_ENTRIES_MAX (1u << 24)

#if defined(__SANITIZE_THREAD__)
#define RING_USES_CK 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RING_USES_CK 0
#endif
#endif
#ifndef RING_USES_CK
#define RING_USES_CK 1
#endif

/* The power of two that holds `entries_max` entries; libck's ring leaves one slot empty. */
static uint32_t ring_slots(uint32_t entries_max)
{
    uint32_t slots = 2;

    while (slots - 1 < entries_max)
        slots *= 2;
    return slots;
}

#if RING_USES_CK

#include <ck_ring.h>

CK_RING_PROTOTYPE(entry, ring_entry)

struct ring {
    const struct kvf_heap *heap;
    struct ring_entry *slots;
    struct ck_ring ck;
};

enum kvf_status ring_open(const struct kvf_heap *heap, uint32_t entries_max, struct ring **ring_out)
{
    struct ring *ring;
    uint32_t slots;

    if (entries_max == 0 || entries_max > RING_ENTRIES_MAX)
        return KVF_E_INVAL;
    slots = ring_slots(entries_max);
    ring = kvf_alloc(heap, 1, sizeof(*ring));
    if (ring == NULL)
        return KVF_E_NOMEM;
    ring->heap = heap;
    ring->slots = kvf_alloc(heap, slots, sizeof(*ring->slots));
    if (ring->slots == NULL)
        goto free_ring;
    ck_ring_init(&ring->ck, slots);
    *ring_out = ring;
    return KVF_OK;

free_ring:
    kvf_release(heap, ring);
    return KVF_E_NOMEM;
}

bool ring_put(struct ring *ring, const struct ring_entry *entry)
{
    struct ring_entry copy = *entry; /* libck's call takes no const */

    return CK_RING_ENQUEUE_MPSC(entry, &ring->ck, ring->slots, &copy);
}

bool ring_take(struct ring *ring, struct ring_entry *entry_out)
{
    return CK_RING_DEQUEUE_MPSC(entry, &ring->ck, ring->slots, entry_out);
}

uint32_t ring_count(const struct ring *ring)
{
    return ck_ring_size(&ring->ck);
}

#else /* !RING_USES_CK */

/* `turn` of slot i: i + n * slots = free for put number that, one more = filled by it. */
struct ring_slot {
    _Atomic uint64_t turn;
    struct ring_entry entry;
};

struct ring {
    const struct kvf_heap *heap;
    struct ring_slot *slots;
    uint64_t mask;
    _Atomic uint64_t put_next;
    _Atomic uint64_t take_next; /* written by the consumer alone */
};

enum kvf_status ring_open(const struct kvf_heap *heap, uint32_t entries_max, struct ring **ring_out)
{
    struct ring *ring;
    uint32_t slots;

    if (entries_max == 0 || entries_max > RING_ENTRIES_MAX)
        return KVF_E_INVAL;
    slots = ring_slots(entries_max);
    ring = kvf_alloc(heap, 1, sizeof(*ring));
    if (ring == NULL)
        return KVF_E_NOMEM;
    ring->heap = heap;
    ring->slots = kvf_alloc(heap, slots, sizeof(*ring->slots));
    if (ring->slots == NULL)
        goto free_ring;
    ring->mask = slots - 1;
    for (uint32_t i = 0; i < slots; i++)
        atomic_init(&ring->slots[i].turn, i);
    *ring_out = ring;
    return KVF_OK;

free_ring:
    kvf_release(heap, ring);
    return KVF_E_NOMEM;
}

bool ring_put(struct ring *ring, const struct ring_entry *entry)
{
    uint64_t at = atomic_load_explicit(&ring->put_next, memory_order_relaxed);

    for (;;) {
        struct ring_slot *slot = &ring->slots[at & ring->mask];
        uint64_t turn = atomic_load_explicit(&slot->turn, memory_order_acquire);

        if (turn < at)
            return false;
        if (turn > at) {
            at = atomic_load_explicit(&ring->put_next, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(
                       &ring->put_next, &at, at + 1, memory_order_relaxed, memory_order_relaxed)) {
            slot->entry = *entry;
            atomic_store_explicit(&slot->turn, at + 1, memory_order_release);
            return true;
        }
    }
}

bool ring_take(struct ring *ring, struct ring_entry *entry_out)
{
    uint64_t at = atomic_load_explicit(&ring->take_next, memory_order_relaxed);
    struct ring_slot *slot = &ring->slots[at & ring->mask];

    if (atomic_load_explicit(&slot->turn, memory_order_acquire) != at + 1)
        return false;
    *entry_out = slot->entry;
    atomic_store_explicit(&slot->turn, at + ring->mask + 1, memory_order_release);
    atomic_store_explicit(&ring->take_next, at + 1, memory_order_relaxed);
    return true;
}

uint32_t ring_count(const struct ring *ring)
{
    uint64_t put = atomic_load_explicit(&ring->put_next, memory_order_relaxed);
    uint64_t take = atomic_load_explicit(&ring->take_next, memory_order_relaxed);

    return put > take ? (uint32_t)(put - take) : 0;
}

#endif /* RING_USES_CK */

void ring_close(struct ring *ring)
{
    const struct kvf_heap *heap;

    if (ring == NULL)
        return;
    heap = ring->heap;
    kvf_release(heap, ring->slots);
    kvf_release(heap, ring);
}
