/* test_store.c - runs of words in one array, objects by request id, and lists. */
#include "testing.h"

#include <string.h>

#include "fail_heap.h"
#include "list.h"
#include "rid_map.h"
#include "store.h"

#define RUNS_MAX 64u

struct run {
    uint32_t *words;
    uint32_t count;
    uint32_t mark;
};

static void fill(struct run *run, uint32_t mark)
{
    run->mark = mark;
    for (uint32_t i = 0; i < run->count; i++)
        run->words[i] = mark + i;
}

static void check_fill(const struct run *run)
{
    for (uint32_t i = 0; i < run->count; i++)
        assert_int_equal(run->words[i], run->mark + i);
}

static void store_holds_what_it_promises_however_it_is_cut(void **state)
{
    static const uint32_t cuts[][2] = {{64, 1}, {1, 64}, {1000, 3}, {4, 16}, {31, 2}, {100000, 1}};

    (void)state;
    for (unsigned i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        uint32_t runs = cuts[i][0];
        uint32_t length = cuts[i][1];
        struct store *store;

        assert_int_equal(store_open(kvf_heap_system(), runs * length, runs, &store), KVF_OK);
        for (uint32_t run = 0; run < runs; run++) {
            uint32_t *words;

            assert_int_equal(store_take(store, length, &words), KVF_OK);
            memset(words, 0xa5, length * sizeof(*words));
        }
        store_check(store);
        store_close(store);
    }
}

static void store_says_busy_when_full_and_recovers(void **state)
{
    uint32_t *first;
    uint32_t *second;
    uint32_t *third;
    struct store *store;

    (void)state;
    assert_int_equal(store_open(kvf_heap_system(), 100, 2, &store), KVF_OK);
    assert_int_equal(store_take(store, 60, &first), KVF_OK);
    assert_int_equal(store_take(store, 40, &second), KVF_OK);
    assert_int_equal(store_take(store, 60, &third), KVF_BUSY);
    assert_int_equal(store_take(store, 100000, &third), KVF_E_TOO_LARGE);
    store_free(store, first);
    assert_int_equal(store_take(store, 60, &third), KVF_OK);
    store_free(store, third);
    store_free(store, second);
    store_check(store);
    assert_int_equal(store_used_words(store), 0);
    assert_int_equal(store_take(store, 100, &first), KVF_OK); /* all has joined again */
    store_close(store);
}

static void store_gives_a_null_run_for_nothing(void **state)
{
    uint32_t word;
    uint32_t *run = &word;
    struct store *store;

    (void)state;
    assert_int_equal(store_open(kvf_heap_system(), 10, 1, &store), KVF_OK);
    assert_int_equal(store_take(store, 0, &run), KVF_OK);
    assert_null(run);
    store_free(store, NULL);
    store_close(store);
    store_close(NULL);
    assert_int_equal(store_open(kvf_heap_system(), 0, 1, &store), KVF_E_INVAL);
    assert_int_equal(store_open(kvf_heap_system(), 1, 0, &store), KVF_E_INVAL);
}

static void store_keeps_runs_apart_under_random_use(void **state)
{
    struct test_random random = test_random_make(test_seed());
    struct run runs[RUNS_MAX] = {{0}};
    uint32_t taken = 0;
    struct store *store;

    (void)state;
    assert_int_equal(store_open(kvf_heap_system(), 2000, RUNS_MAX, &store), KVF_OK);
    for (uint32_t step = 0; step < 50000; step++) {
        struct run *run = &runs[test_random_below(&random, RUNS_MAX)];

        if (run->words != NULL) {
            check_fill(run);
            store_free(store, run->words);
            run->words = NULL;
            continue;
        }
        run->count = 1 + (uint32_t)test_random_below(&random, 1 + test_random_below(&random, 400));
        if (store_take(store, run->count, &run->words) != KVF_OK)
            run->words = NULL;
        else
            taken++;
        if (run->words != NULL)
            fill(run, step);
        store_check(store);
    }
    assert_true(taken > 1000);
    for (uint32_t i = 0; i < RUNS_MAX; i++) {
        if (runs[i].words == NULL)
            continue;
        check_fill(&runs[i]);
        store_free(store, runs[i].words);
    }
    assert_int_equal(store_used_words(store), 0);
    store_check(store);
    store_close(store);
}

static void run_has_moved(void *self, uint32_t owner, uint32_t *words)
{
    struct run *run = (struct run *)self + owner;

    assert_non_null(run->words);
    run->words = words;
    check_fill(run);
}

/* Runs of all lengths come and go; what the ceilings allow is had each time. */
static void store_that_may_move_runs_is_never_busy_within_its_ceilings(void **state)
{
    enum { WORDS = 3000 };
    struct test_random random = test_random_make(test_seed());
    struct run runs[RUNS_MAX] = {{0}};
    uint32_t words = 0;
    struct store *store;

    (void)state;
    assert_int_equal(store_open(kvf_heap_system(), WORDS, RUNS_MAX, &store), KVF_OK);
    store_may_move(store, run_has_moved, runs);
    for (uint32_t step = 0; step < 50000; step++) {
        uint32_t owner = (uint32_t)test_random_below(&random, RUNS_MAX);
        struct run *run = &runs[owner];

        if (run->words != NULL) {
            check_fill(run);
            store_free(store, run->words);
            run->words = NULL;
            words -= run->count;
            continue;
        }
        run->count =
            1 + (uint32_t)test_random_below(&random, 1 + test_random_below(&random, WORDS));
        if (words + run->count > WORDS)
            run->count = WORDS - words;
        assert_int_equal(store_take_for(store, run->count, owner, &run->words), KVF_OK);
        words += run->count;
        if (run->words != NULL)
            fill(run, step);
        store_check(store);
    }
    for (uint32_t i = 0; i < RUNS_MAX; i++)
        if (runs[i].words != NULL) {
            check_fill(&runs[i]);
            store_free(store, runs[i].words);
        }
    assert_int_equal(store_used_words(store), 0);
    store_check(store);
    store_close(store);
}

static void free_twice(void *argument)
{
    struct store *store;
    uint32_t *run;

    (void)argument;
    if (store_open(kvf_heap_system(), 100, 4, &store) != KVF_OK)
        return;
    if (store_take(store, 10, &run) != KVF_OK)
        return;
    store_free(store, run);
    store_free(store, run);
}

static void store_refuses_to_free_a_run_twice(void **state)
{
    (void)state;
    assert_true(test_aborts(free_twice, NULL));
}

static void map_finds_what_was_added_under_random_use(void **state)
{
    struct test_random random = test_random_make(test_seed());
    bool there[200] = {false};
    uint32_t count = 0;
    struct rid_map *map;

    (void)state;
    assert_int_equal(rid_map_open(kvf_heap_system(), 100, &map), KVF_OK);
    for (uint32_t step = 0; step < 100000; step++) {
        uint64_t rid = test_random_below(&random, 200);

        /* ids that follow each other, and ids that differ only at the top */
        uint64_t key = rid < 100 ? rid : rid << 56;

        assert_int_equal(rid_map_find(map, key) != NULL, there[rid]);
        if (there[rid]) {
            assert_ptr_equal(rid_map_find(map, key), &there[rid]);
            rid_map_remove(map, key);
            there[rid] = false;
            count--;
        } else if (count < 100) {
            there[rid] = true;
            rid_map_add(map, key, &there[rid]);
            count++;
        }
        assert_int_equal(rid_map_count(map), count);
    }
    for (uint64_t rid = 0; rid < 200; rid++)
        assert_int_equal(rid_map_find(map, rid < 100 ? rid : rid << 56) != NULL, there[rid]);
    rid_map_remove(map, 12345); /* nothing */
    assert_int_equal(rid_map_count(map), count);
    rid_map_close(map);
    rid_map_close(NULL);
}

struct item {
    int value;
    struct list node;
};

static void list_keeps_its_order_when_members_leave(void **state)
{
    struct item items[4];
    struct list head;
    int sum = 0;

    (void)state;
    list_init(&head);
    assert_null(list_first(&head));
    for (int i = 0; i < 4; i++) {
        items[i].value = i;
        list_init(&items[i].node);
        list_push(&head, &items[i].node);
    }
    list_remove(&items[1].node);
    list_remove(&items[1].node); /* in no list: nothing */
    assert_true(list_empty(&items[1].node));
    for (struct list *node = list_first(&head); node != NULL; node = list_after(&head, node))
        sum = sum * 10 + list_object(node, struct item, node)->value;
    assert_int_equal(sum, 23);
    assert_ptr_equal(list_pop(&head), &items[0].node);
    assert_ptr_equal(list_pop(&head), &items[2].node);
    assert_ptr_equal(list_pop(&head), &items[3].node);
    assert_null(list_pop(&head));
}

static void open_survives_every_failing_allocation(void **state)
{
    struct fail_heap heap;

    (void)state;
    for (uint64_t n = 1; n <= 2; n++) {
        struct store *store = NULL;
        struct rid_map *map = NULL;

        fail_heap_init(&heap, n);
        assert_int_equal(store_open(&heap.heap, 10, 1, &store), KVF_E_NOMEM);
        assert_null(store);
        fail_heap_fini(&heap);
        fail_heap_init(&heap, n);
        assert_int_equal(rid_map_open(&heap.heap, 10, &map), KVF_E_NOMEM);
        assert_null(map);
        fail_heap_fini(&heap);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(store_holds_what_it_promises_however_it_is_cut),
        cmocka_unit_test(store_says_busy_when_full_and_recovers),
        cmocka_unit_test(store_gives_a_null_run_for_nothing),
        cmocka_unit_test(store_keeps_runs_apart_under_random_use),
        cmocka_unit_test(store_that_may_move_runs_is_never_busy_within_its_ceilings),
        cmocka_unit_test(store_refuses_to_free_a_run_twice),
        cmocka_unit_test(map_finds_what_was_added_under_random_use),
        cmocka_unit_test(list_keeps_its_order_when_members_leave),
        cmocka_unit_test(open_survives_every_failing_allocation),
    };

    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
