/*
 * store.c - runs of u32 in one array: segregated fit with boundary tags.
 *
 * The array is tiled by runs, measured in granules of 4 words. Word 0 of a run is its length in
 * granules, shifted, with the taken bit; word 1 the length of the run before it (0 = first); word 2
 * the owner. The user's words follow; a free run has its links there. Nothing here may log.
 */
#include "store.h"

#include <string.h>

#include "check.h"

#define GRANULE_WORDS 4u
#define OWNER_WORD 2u
#define HEADER_WORDS 3u
#define NO_RUN UINT32_MAX
#define SPLIT_BITS 3u /* classes of one power of two: 8 */
#define SPLITS (1u << SPLIT_BITS)
#define POWERS 31u

struct store {
    const struct kvf_heap *heap; /* borrows */
    uint32_t *words;
    uint32_t granules;
    uint32_t used_granules;
    uint32_t power_map; /* bit p: a class of power p has a run */
    uint8_t split_map[POWERS];
    uint32_t first[POWERS][SPLITS]; /* granule of the first free run */
    store_moved_fn moved;           /* NULL: runs stay where they are */
    void *moved_self;
};

struct size_class {
    uint32_t power;
    uint32_t split;
};

static uint32_t top_bit(uint32_t value)
{
    return 31u - (uint32_t)__builtin_clz(value);
}

/* Class of a free run of `granules`. */
static struct size_class class_of(uint32_t granules)
{
    struct size_class found;

    if (granules < SPLITS)
        return (struct size_class){.power = 0, .split = granules};
    found.power = top_bit(granules) - SPLIT_BITS + 1;
    found.split = (granules >> (top_bit(granules) - SPLIT_BITS)) - SPLITS;
    return found;
}

static uint32_t *run_at(const struct store *store, uint32_t granule)
{
    return store->words + (size_t)granule * GRANULE_WORDS;
}

static uint32_t run_granules(const uint32_t *run)
{
    return run[0] >> 1;
}

static bool run_taken(const uint32_t *run)
{
    return (run[0] & 1u) != 0;
}

/* Writes the header, and the length into the run after it. */
static void run_set(struct store *store, uint32_t granule, uint32_t granules, bool taken)
{
    run_at(store, granule)[0] = granules << 1 | (taken ? 1u : 0u);
    if (granule + granules < store->granules)
        run_at(store, granule + granules)[1] = granules;
}

static void link_run(struct store *store, uint32_t granule)
{
    uint32_t *run = run_at(store, granule);
    struct size_class size = class_of(run_granules(run));
    uint32_t next = store->first[size.power][size.split];

    run[2] = next;
    run[3] = NO_RUN;
    if (next != NO_RUN)
        run_at(store, next)[3] = granule;
    store->first[size.power][size.split] = granule;
    store->split_map[size.power] |= (uint8_t)(1u << size.split);
    store->power_map |= 1u << size.power;
}

static void unlink_run(struct store *store, uint32_t granule)
{
    uint32_t *run = run_at(store, granule);
    struct size_class size = class_of(run_granules(run));

    if (run[2] != NO_RUN)
        run_at(store, run[2])[3] = run[3];
    if (run[3] != NO_RUN) {
        run_at(store, run[3])[2] = run[2];
        return;
    }
    store->first[size.power][size.split] = run[2];
    if (run[2] == NO_RUN) {
        store->split_map[size.power] &= (uint8_t) ~(1u << size.split);
        if (store->split_map[size.power] == 0)
            store->power_map &= ~(1u << size.power);
    }
}

static void forget_free_runs(struct store *store)
{
    store->power_map = 0;
    memset(store->split_map, 0, sizeof(store->split_map));
    for (uint32_t power = 0; power < POWERS; power++)
        for (uint32_t split = 0; split < SPLITS; split++)
            store->first[power][split] = NO_RUN;
}

/*
 * Enough for all runs within the ceilings: a run of c words has at most (c + 6) / 4 granules.
 */
static uint64_t store_granules(uint64_t words_max, uint64_t runs_max)
{
    return (words_max + words_max / 8) / GRANULE_WORDS + runs_max * 2 + 1;
}

uint64_t store_bytes(uint64_t words_max, uint64_t runs_max)
{
    return store_granules(words_max, runs_max) * GRANULE_WORDS * sizeof(uint32_t);
}

enum kvf_status store_open(const struct kvf_heap *heap, uint32_t words_max, uint32_t runs_max,
                           struct store **store_out)
{
    struct store *store;
    uint64_t granules;

    if (words_max == 0 || words_max > STORE_WORDS_MAX || runs_max == 0 || runs_max > STORE_RUNS_MAX)
        return KVF_E_INVAL;
    granules = store_granules(words_max, runs_max);
    store = kvf_alloc(heap, 1, sizeof(*store));
    if (store == NULL)
        return KVF_E_NOMEM;
    store->words = kvf_alloc(heap, granules * GRANULE_WORDS, sizeof(*store->words));
    if (store->words == NULL) {
        kvf_release(heap, store);
        return KVF_E_NOMEM;
    }
    store->heap = heap;
    store->granules = (uint32_t)granules;
    forget_free_runs(store);
    run_set(store, 0, store->granules, false);
    link_run(store, 0);
    *store_out = store;
    return KVF_OK;
}

void store_close(struct store *store)
{
    if (store == NULL)
        return;
    kvf_release(store->heap, store->words);
    kvf_release(store->heap, store);
}

/* A free run of at least `granules`, or NO_RUN. */
static uint32_t find_run(const struct store *store, uint32_t granules)
{
    struct size_class size = class_of(granules);
    uint32_t above;

    /* Any run of a class above fits; of its own class the first ones are tried. */
    for (uint32_t granule = store->first[size.power][size.split], tries = 0;
         granule != NO_RUN && tries < SPLITS; tries++) {
        if (run_granules(run_at(store, granule)) >= granules)
            return granule;
        granule = run_at(store, granule)[2];
    }
    above = store->split_map[size.power] & (~0u << (size.split + 1));
    if (above != 0)
        return store->first[size.power][(uint32_t)__builtin_ctz(above)];
    above = store->power_map & (~0u << (size.power + 1));
    if (above == 0)
        return NO_RUN;
    size.power = (uint32_t)__builtin_ctz(above);
    return store->first[size.power][(uint32_t)__builtin_ctz(store->split_map[size.power])];
}

void store_may_move(struct store *store, store_moved_fn moved, void *self)
{
    store->moved = moved;
    store->moved_self = self;
}

/* All runs move to the front; one free run is left behind them. */
static void pack(struct store *store)
{
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t before = 0;

    forget_free_runs(store);
    while (from < store->granules) {
        const uint32_t *run = run_at(store, from);
        uint32_t granules = run_granules(run);

        if (run_taken(run)) {
            uint32_t *at = run_at(store, to);

            if (from != to) {
                memmove(at, run, (size_t)granules * GRANULE_WORDS * sizeof(*at));
                store->moved(store->moved_self, at[OWNER_WORD], at + HEADER_WORDS);
            }
            at[1] = before;
            before = granules;
            to += granules;
        }
        from += granules;
    }
    if (to == store->granules)
        return;
    run_at(store, to)[1] = before;
    run_set(store, to, store->granules - to, false);
    link_run(store, to);
}

enum kvf_status store_take(struct store *store, uint32_t count, uint32_t **run_out)
{
    return store_take_for(store, count, 0, run_out);
}

enum kvf_status store_take_for(struct store *store, uint32_t count, uint32_t owner,
                               uint32_t **run_out)
{
    uint64_t wanted = ((uint64_t)count + HEADER_WORDS + GRANULE_WORDS - 1) / GRANULE_WORDS;
    uint32_t granules;
    uint32_t granule;
    uint32_t whole;

    if (count == 0) {
        *run_out = NULL;
        return KVF_OK;
    }
    if (wanted > store->granules)
        return KVF_E_TOO_LARGE;
    granules = (uint32_t)wanted;
    granule = find_run(store, granules);
    if (granule == NO_RUN && store->moved != NULL &&
        granules <= store->granules - store->used_granules) {
        pack(store);
        granule = find_run(store, granules);
    }
    if (granule == NO_RUN)
        return KVF_BUSY;
    unlink_run(store, granule);
    whole = run_granules(run_at(store, granule));
    run_set(store, granule, granules, true);
    if (whole > granules) {
        run_set(store, granule + granules, whole - granules, false);
        link_run(store, granule + granules);
    }
    store->used_granules += granules;
    run_at(store, granule)[OWNER_WORD] = owner;
    *run_out = run_at(store, granule) + HEADER_WORDS;
    return KVF_OK;
}

void store_free(struct store *store, uint32_t *run)
{
    uint32_t granule;
    uint32_t granules;
    uint32_t before;

    if (run == NULL)
        return;
    run -= HEADER_WORDS;
    KVF_REQUIRE(run >= store->words && run_taken(run));
    granule = (uint32_t)((size_t)(run - store->words) / GRANULE_WORDS);
    granules = run_granules(run);
    store->used_granules -= granules;
    if (granule + granules < store->granules && !run_taken(run_at(store, granule + granules))) {
        unlink_run(store, granule + granules);
        granules += run_granules(run_at(store, granule + granules));
    }
    before = granule > 0 ? run[1] : 0;
    if (before > 0 && !run_taken(run_at(store, granule - before))) {
        unlink_run(store, granule - before);
        granule -= before;
        granules += before;
    }
    run_set(store, granule, granules, false);
    link_run(store, granule);
}

uint32_t store_used_words(const struct store *store)
{
    return store->used_granules * GRANULE_WORDS;
}

/* Free runs that the class lists hold; each must be free and of that class. */
static uint32_t check_classes(const struct store *store)
{
    uint32_t listed = 0;

    for (uint32_t power = 0; power < POWERS; power++) {
        for (uint32_t split = 0; split < SPLITS; split++) {
            uint32_t granule = store->first[power][split];
            bool marked = (store->split_map[power] >> split & 1u) != 0;

            KVF_ASSERT(marked == (granule != NO_RUN));
            for (; granule != NO_RUN; granule = run_at(store, granule)[2]) {
                struct size_class size = class_of(run_granules(run_at(store, granule)));

                KVF_ASSERT(!run_taken(run_at(store, granule)));
                KVF_ASSERT(size.power == power && size.split == split);
                listed++;
            }
        }
        KVF_ASSERT((store->power_map >> power & 1u) == (store->split_map[power] != 0 ? 1u : 0u));
    }
    return listed;
}

void store_check(const struct store *store)
{
    uint32_t granule = 0;
    uint32_t before = 0;
    uint32_t used = 0;
    uint32_t free_runs = 0;
    bool free_before = false;

    while (granule < store->granules) {
        const uint32_t *run = run_at(store, granule);

        KVF_ASSERT(run_granules(run) > 0);
        KVF_ASSERT(granule == 0 || run[1] == before);
        KVF_ASSERT(run_taken(run) || !free_before);
        free_before = !run_taken(run);
        free_runs += free_before ? 1 : 0;
        used += free_before ? 0 : run_granules(run);
        before = run_granules(run);
        granule += before;
    }
    KVF_ASSERT(granule == store->granules);
    KVF_ASSERT(used == store->used_granules);
    KVF_ASSERT(check_classes(store) == free_runs);
}
