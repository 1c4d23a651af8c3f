/*
 * test_arena.c - the arena against a model that knows which bytes are whose, and the credits'
 * order.
 */
#include "testing.h"

#include <string.h>

#include "fail_heap.h"
#include "xfer/arena.h"
#include "xfer/credit.h"

#define KIB 1024ull

static struct arena *open_arena(uint64_t usable, uint64_t granularity)
{
    struct arena *arena;

    assert_int_equal(arena_open(kvf_heap_system(), usable, granularity, &arena), KVF_OK);
    return arena;
}

static enum kvf_status take(struct arena *arena, uint64_t len_bytes, uint32_t *region_out)
{
    const struct arena_want want = {.len_bytes = len_bytes, .state = ARENA_GRANTED};

    return arena_take(arena, &want, region_out);
}

static void open_wants_powers_of_two(void **state)
{
    struct arena *arena;

    (void)state;
    assert_int_equal(arena_open(kvf_heap_system(), 3 * KIB, KIB, &arena), KVF_E_INVAL);
    assert_int_equal(arena_open(kvf_heap_system(), 4 * KIB, 3, &arena), KVF_E_INVAL);
    assert_int_equal(arena_open(kvf_heap_system(), KIB, 2 * KIB, &arena), KVF_E_INVAL);
    assert_int_equal(arena_open(kvf_heap_system(), 0, KIB, &arena), KVF_E_INVAL);
    assert_int_equal(arena_open(kvf_heap_system(), KIB, 0, &arena), KVF_E_INVAL);
    assert_int_equal(arena_open(kvf_heap_system(), KIB << 25, KIB, &arena), KVF_E_INVAL);
    arena_close(NULL);
}

static void open_gives_back_what_it_took_when_memory_ends(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct fail_heap heap;
        struct arena *arena = NULL;
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = arena_open(&heap.heap, 64 * KIB, KIB, &arena);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            arena_close(arena);
            fail_heap_fini(&heap);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        fail_heap_fini(&heap);
    }
}

static void one_block_serves_one_after_the_other(void **state)
{
    struct arena *arena = open_arena(KIB, KIB);
    struct arena_want eager = {.len_bytes = 1, .state = ARENA_EAGER, .place = ARENA_UPPER_HALF};
    uint32_t region, other;

    (void)state;
    assert_int_equal(take(arena, KIB + 1, &region), KVF_E_TOO_LARGE);
    assert_int_equal(arena_take(arena, &eager, &region), KVF_E_TOO_LARGE);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(take(arena, 1, &region), KVF_OK);
        assert_int_equal(take(arena, 1, &other), KVF_BUSY);
        assert_int_equal(arena_handle(arena, region).generation, i);
        arena_check(arena);
        arena_free(arena, region);
    }
    arena_check(arena);
    arena_close(arena);
}

static void eager_keeps_to_one_half(void **state)
{
    struct arena *arena = open_arena(64 * KIB, KIB);
    struct arena_want eager = {.len_bytes = KIB, .state = ARENA_EAGER, .place = ARENA_UPPER_HALF};
    uint32_t region;

    (void)state;
    for (unsigned i = 0; i < 32; i++)
        assert_int_equal(arena_take(arena, &eager, &region), KVF_OK);
    assert_int_equal(arena_take(arena, &eager, &region), KVF_BUSY);
    assert_true(arena_counts(arena)->state_bytes[ARENA_EAGER] == 32 * KIB);
    assert_int_equal(take(arena, 32 * KIB, &region), KVF_OK); /* the other half is whole */
    arena_check(arena);
    arena_close(arena);
}

static void a_handle_is_stale_once_its_region_was_free(void **state)
{
    struct arena *arena = open_arena(8 * KIB, KIB);
    struct arena_handle old;
    uint32_t region;

    (void)state;
    assert_int_equal(take(arena, 2 * KIB, &region), KVF_OK);
    old = arena_handle(arena, region);
    assert_int_equal(arena_find(arena, old), region);
    arena_free(arena, region);
    assert_int_equal(arena_find(arena, old), ARENA_NONE);
    assert_int_equal(take(arena, 2 * KIB, &region), KVF_OK);
    assert_true(arena_handle(arena, region).offset == old.offset);
    assert_int_equal(arena_find(arena, old), ARENA_NONE);
    old.offset = 7; /* inside a granule, beyond, at no block's begin */
    assert_int_equal(arena_find(arena, old), ARENA_NONE);
    old.offset = UINT64_MAX - 1023;
    assert_int_equal(arena_find(arena, old), ARENA_NONE);
    old = (struct arena_handle){KIB, 0};
    assert_int_equal(arena_find(arena, old), ARENA_NONE);
    arena_close(arena);
}

static void quarantine_ends_by_time_or_by_proof(void **state)
{
    struct arena *arena = open_arena(8 * KIB, KIB);
    uint32_t first, second, third;

    (void)state;
    assert_int_equal(take(arena, 4 * KIB, &first), KVF_OK);
    assert_int_equal(take(arena, 2 * KIB, &second), KVF_OK);
    assert_int_equal(take(arena, 2 * KIB, &third), KVF_OK);
    arena_quarantine(arena, first, 1, 100);
    arena_quarantine(arena, second, 2, 100);
    arena_quarantine(arena, third, 1, 200);
    arena_check(arena);
    assert_true(arena_counts(arena)->state_bytes[ARENA_QUARANTINE] == 8 * KIB);
    assert_false(arena_could_hold(arena, KIB));
    assert_true(arena_deadline_ns(arena) == 100);
    assert_int_equal(arena_tick(arena, 99), 0);
    assert_int_equal(take(arena, 1, &first), KVF_BUSY);
    assert_int_equal(arena_proof(arena, 2), 1);
    assert_true(arena_could_hold(arena, 2 * KIB));
    assert_false(arena_could_hold(arena, 4 * KIB));
    assert_int_equal(arena_tick(arena, 100), 1);
    assert_true(arena_deadline_ns(arena) == 200);
    assert_int_equal(arena_tick(arena, 200), 1);
    assert_int_equal(take(arena, 8 * KIB, &first), KVF_OK);
    arena_poison(arena, first);
    assert_false(arena_could_hold(arena, 1));
    assert_int_equal(take(arena, 1, &second), KVF_BUSY);
    arena_check(arena);
    arena_close(arena);
}

/* ---- against a model ------------------------------------------------------------------------ */

#define GRANULES 64u
#define LIVE_MAX 64u

struct model {
    struct arena *arena;
    uint32_t owner[GRANULES]; /* 0 = free; else a number never used twice */
    struct {
        uint32_t region, owner;
        uint64_t len;
        struct arena_handle handle;
        bool quarantined;
        uint64_t until_ns;
    } live[LIVE_MAX];
    uint32_t live_count, next_owner;
    struct arena_handle stale[256];
    uint32_t stale_count;
    uint64_t now_ns, high;
};

static void model_mark(struct model *model, uint32_t index, bool take_it)
{
    uint64_t block = arena_block_bytes(model->arena, model->live[index].len);
    uint32_t first = (uint32_t)(model->live[index].handle.offset / KIB);

    assert_true(model->live[index].handle.offset % block == 0);
    for (uint32_t g = first; g < first + block / KIB; g++) {
        assert_int_equal(model->owner[g], take_it ? 0 : model->live[index].owner);
        model->owner[g] = take_it ? model->live[index].owner : 0;
    }
}

/* The arena says BUSY only when no aligned run of free granules is there. */
static bool model_room(const struct model *model, uint64_t granules, uint32_t first)
{
    for (uint32_t at = first; at < GRANULES; at += (uint32_t)granules) {
        uint32_t free = 0;

        while (free < granules && model->owner[at + free] == 0)
            free++;
        if (free == granules)
            return true;
    }
    return false;
}

static void model_take(struct model *model, struct test_random *random)
{
    struct arena_want want = {
        .len_bytes = test_random_below(random, 20 * KIB) + 1,
        .state = ARENA_STAGING,
        .place = test_random_below(random, 4) == 0 ? ARENA_UPPER_HALF : ARENA_ANYWHERE,
        .owner = model->next_owner,
    };
    uint64_t granules = arena_block_bytes(model->arena, want.len_bytes) / KIB;
    uint32_t first = want.place == ARENA_UPPER_HALF ? GRANULES / 2 : 0;
    bool room = model_room(model, granules, first);
    uint32_t index = model->live_count;

    if (index == LIVE_MAX)
        return;
    assert_int_equal(arena_has_room(model->arena, &want), room ? KVF_OK : KVF_BUSY);
    if (!room) {
        assert_int_equal(arena_take(model->arena, &want, &model->live[index].region), KVF_BUSY);
        return;
    }
    assert_int_equal(arena_take(model->arena, &want, &model->live[index].region), KVF_OK);
    model->live[index].owner = model->next_owner++;
    model->live[index].len = want.len_bytes;
    model->live[index].handle = arena_handle(model->arena, model->live[index].region);
    model->live[index].quarantined = false;
    if (want.place == ARENA_UPPER_HALF)
        assert_true(model->live[index].handle.offset >= GRANULES / 2 * KIB);
    model_mark(model, index, true);
    model->live_count++;
}

static void model_drop(struct model *model, uint32_t index)
{
    model_mark(model, index, false);
    model->stale[model->stale_count++ % 256] = model->live[index].handle;
    model->live[index] = model->live[--model->live_count];
}

static void model_end(struct model *model, struct test_random *random)
{
    uint32_t index;

    if (model->live_count == 0)
        return;
    index = (uint32_t)test_random_below(random, model->live_count);
    if (model->live[index].quarantined)
        return;
    if (test_random_below(random, 4) == 0) {
        model->live[index].quarantined = true;
        model->live[index].until_ns = model->now_ns + 50;
        arena_quarantine(model->arena, model->live[index].region, 3, model->now_ns + 50);
        return;
    }
    arena_free(model->arena, model->live[index].region);
    model_drop(model, index);
}

static void model_tick(struct model *model)
{
    arena_tick(model->arena, ++model->now_ns);
    for (uint32_t i = model->live_count; i > 0; i--)
        if (model->live[i - 1].quarantined && model->live[i - 1].until_ns <= model->now_ns)
            model_drop(model, i - 1);
}

static void model_compare(struct model *model)
{
    uint64_t taken = 0;

    arena_check(model->arena);
    for (uint32_t g = 0; g < GRANULES; g++)
        taken += model->owner[g] != 0 ? KIB : 0;
    assert_true(arena_counts(model->arena)->state_bytes[ARENA_FREE] == GRANULES * KIB - taken);
    model->high = taken > model->high ? taken : model->high;
    assert_true(arena_counts(model->arena)->high_water_bytes == model->high);
    for (uint32_t i = 0; i < model->live_count; i++) {
        assert_int_equal(arena_find(model->arena, model->live[i].handle), model->live[i].region);
        assert_true(arena_len(model->arena, model->live[i].region) == model->live[i].len);
    }
    for (uint32_t i = 0; i < model->stale_count && i < 256; i++)
        assert_int_equal(arena_find(model->arena, model->stale[i]), ARENA_NONE);
}

static void any_order_of_takes_and_frees_is_that_of_the_model(void **state)
{
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (unsigned run = 0; run < 20; run++) {
        struct model model = {.arena = open_arena(GRANULES * KIB, KIB), .next_owner = 1};

        for (unsigned step = 0; step < 1500; step++) {
            uint64_t what = test_random_below(&random, 8);

            if (what < 4)
                model_take(&model, &random);
            else if (what < 7)
                model_end(&model, &random);
            else
                model_tick(&model);
            model_compare(&model);
        }
        while (model.live_count > 0) {
            model_end(&model, &random);
            model_tick(&model);
        }
        assert_true(arena_counts(model.arena)->state_bytes[ARENA_FREE] == GRANULES * KIB);
        arena_check(model.arena);
        arena_close(model.arena);
    }
}

/* ---- credits -------------------------------------------------------------------------------- */

struct wanting {
    struct credit_flow flow;
    uint64_t len_bytes;
};

static enum credit_fit fits(void *self, const struct credit_flow *flow)
{
    const struct wanting *wanting = list_object(flow, struct wanting, flow);
    const struct arena_want want = {.len_bytes = wanting->len_bytes, .state = ARENA_GRANTED};

    return arena_has_room(self, &want) == KVF_OK ? CREDIT_FITS : CREDIT_NO_ROOM;
}

static void credits_go_round(void **state)
{
    struct arena *arena = open_arena(8 * KIB, KIB);
    struct wanting flows[3];
    struct credit credit;

    (void)state;
    credit_init(&credit, 2);
    for (unsigned f = 0; f < 3; f++) {
        credit_flow_init(&flows[f].flow);
        flows[f].len_bytes = KIB;
        credit_add(&credit, &flows[f].flow);
        credit_add(&credit, &flows[f].flow); /* once is enough */
    }
    for (unsigned g = 0; g < 6; g++) {
        assert_ptr_equal(credit_next(&credit, fits, arena), &flows[g % 3].flow);
        credit_check(&credit);
    }
    assert_null(credit_next(&credit, fits, arena)); /* two each */
    flows[1].flow.held--;
    assert_ptr_equal(credit_next(&credit, fits, arena), &flows[1].flow);
    credit_remove(&credit, &flows[0].flow);
    credit_remove(&credit, &flows[0].flow);
    credit_check(&credit);
    arena_close(arena);
}

/* a flood of small chunks, one chunk of half the arena. */
static void a_large_chunk_is_served_in_the_end(void **state)
{
    struct arena *arena = open_arena(64 * KIB, KIB);
    struct wanting flows[6];
    uint32_t held[64], held_count = 0, grants = 0;
    struct credit credit;
    bool served = false;

    (void)state;
    credit_init(&credit, 64);
    for (unsigned f = 0; f < 6; f++) {
        credit_flow_init(&flows[f].flow);
        flows[f].len_bytes = KIB;
        credit_add(&credit, &flows[f].flow);
    }
    for (; held_count < 64; held_count++) {
        assert_non_null(credit_next(&credit, fits, arena));
        assert_int_equal(take(arena, KIB, &held[held_count]), KVF_OK);
    }
    flows[0].len_bytes = 32 * KIB;
    flows[0].flow.held = 0;
    while (!served && held_count > 0) {
        struct credit_flow *next;

        /* The oldest comes back; whoever is next takes its place: never 32 in a row. */
        arena_free(arena, held[0]);
        memmove(held, held + 1, --held_count * sizeof(*held));
        flows[1].flow.held = flows[2].flow.held = flows[3].flow.held = 0;
        flows[4].flow.held = flows[5].flow.held = 0;
        next = credit_next(&credit, fits, arena);
        credit_check(&credit);
        if (next == &flows[0].flow) {
            served = true;
        } else if (next != NULL) {
            assert_int_equal(take(arena, KIB, &held[held_count++]), KVF_OK);
            grants++;
        }
    }
    assert_true(served);
    assert_true(grants <= 12 + 6); /* max(8, 2 * 6), once it was looked at */
    arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_wants_powers_of_two),
        cmocka_unit_test(open_gives_back_what_it_took_when_memory_ends),
        cmocka_unit_test(one_block_serves_one_after_the_other),
        cmocka_unit_test(eager_keeps_to_one_half),
        cmocka_unit_test(a_handle_is_stale_once_its_region_was_free),
        cmocka_unit_test(quarantine_ends_by_time_or_by_proof),
        cmocka_unit_test(any_order_of_takes_and_frees_is_that_of_the_model),
        cmocka_unit_test(credits_go_round),
        cmocka_unit_test(a_large_chunk_is_served_in_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
