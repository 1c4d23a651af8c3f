/* test_ring.c - the queue to the reactor: order, fullness, many producers. */
#include "testing.h"

#include <pthread.h>
#include <sched.h>

#include "fail_heap.h"
#include "ring.h"

#define PRODUCERS 4
#define PER_PRODUCER 20000

static struct ring_entry entry_of(uint64_t producer, uint64_t number)
{
    struct ring_entry entry;

    for (unsigned i = 0; i < RING_ENTRY_BYTES / 8; i++)
        entry.words[i] = producer << 32 | number;
    return entry;
}

static void ring_gives_entries_back_in_order(void **state)
{
    struct ring_entry entry;
    struct ring *ring;

    (void)state;
    assert_int_equal(ring_open(kvf_heap_system(), 5, &ring), KVF_OK);
    assert_false(ring_take(ring, &entry));
    for (uint64_t round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < 5; i++) {
            entry = entry_of(1, round * 5 + i);
            assert_true(ring_put(ring, &entry));
            assert_int_equal(ring_count(ring), i + 1);
        }
        for (uint64_t i = 0; i < 5; i++) {
            struct ring_entry want = entry_of(1, round * 5 + i);

            assert_true(ring_take(ring, &entry));
            assert_memory_equal(&entry, &want, sizeof(want));
        }
        assert_false(ring_take(ring, &entry));
        assert_int_equal(ring_count(ring), 0);
    }
    ring_close(ring);
}

static void ring_holds_what_it_was_opened_for_and_then_refuses(void **state)
{
    (void)state;
    for (uint32_t max = 1; max <= 20; max++) {
        struct ring_entry entry = entry_of(0, 0);
        struct ring *ring;
        uint32_t count = 0;

        assert_int_equal(ring_open(kvf_heap_system(), max, &ring), KVF_OK);
        while (ring_put(ring, &entry))
            count++;
        assert_true(count >= max && count <= 2 * max + 1);
        assert_true(ring_take(ring, &entry));
        assert_true(ring_put(ring, &entry));
        assert_false(ring_put(ring, &entry));
        ring_close(ring);
    }
}

static void ring_size_out_of_range_is_refused(void **state)
{
    struct ring *ring;

    (void)state;
    assert_int_equal(ring_open(kvf_heap_system(), 0, &ring), KVF_E_INVAL);
    assert_int_equal(ring_open(kvf_heap_system(), (1u << 24) + 1, &ring), KVF_E_INVAL);
    ring_close(NULL);
}

static void ring_open_survives_every_failing_allocation(void **state)
{
    struct fail_heap heap;
    struct ring *ring;
    uint64_t n = 1;

    (void)state;
    for (;; n++) {
        fail_heap_init(&heap, n);
        if (ring_open(&heap.heap, 8, &ring) == KVF_OK)
            break;
        assert_true(fail_heap_failed(&heap));
        fail_heap_fini(&heap);
    }
    assert_true(n > 1 && !fail_heap_failed(&heap));
    ring_close(ring);
    fail_heap_fini(&heap);
}

struct producer {
    struct ring *ring;
    uint64_t number;
};

static void *produce(void *argument)
{
    struct producer *producer = argument;

    for (uint64_t i = 0; i < PER_PRODUCER; i++) {
        struct ring_entry entry = entry_of(producer->number, i);

        while (!ring_put(producer->ring, &entry))
            (void)sched_yield();
    }
    return NULL;
}

static void ring_loses_nothing_of_many_producers_and_keeps_each_ones_order(void **state)
{
    struct producer producers[PRODUCERS];
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS] = {0};
    struct ring_entry entry;
    struct ring *ring;
    uint64_t left = (uint64_t)PRODUCERS * PER_PRODUCER;

    (void)state;
    assert_int_equal(ring_open(kvf_heap_system(), 64, &ring), KVF_OK);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){ring, i};
        assert_int_equal(pthread_create(&threads[i], NULL, produce, &producers[i]), 0);
    }
    while (left > 0) {
        uint64_t who;

        if (!ring_take(ring, &entry)) {
            (void)sched_yield();
            continue;
        }
        who = entry.words[0] >> 32;
        assert_true(who < PRODUCERS);
        for (unsigned i = 0; i < RING_ENTRY_BYTES / 8; i++)
            assert_true(entry.words[i] == (who << 32 | next[who]));
        next[who]++;
        left--;
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_false(ring_take(ring, &entry));
    ring_close(ring);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_gives_entries_back_in_order),
        cmocka_unit_test(ring_holds_what_it_was_opened_for_and_then_refuses),
        cmocka_unit_test(ring_size_out_of_range_is_refused),
        cmocka_unit_test(ring_open_survives_every_failing_allocation),
        cmocka_unit_test(ring_loses_nothing_of_many_producers_and_keeps_each_ones_order),
    };

    return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
