/*
 * prefix_model.c - see prefix_model.h. A hash table from (ordinal, id) to the resident entry, and a
 * list from the least to the most recently used; of one request the deepest block is the least
 * recent, so that chains are dropped from their ends.
 */
#include "prefix_model.h"

#include <stdlib.h>
#include <string.h>

#include <uthash.h>

struct prefix_key {
    uint64_t id;
    uint64_t ordinal;
};

struct prefix_entry {
    struct prefix_key key;
    uint32_t number;
    struct prefix_entry *older, *newer;
    UT_hash_handle hh;
};

struct prefix_fact {
    uint32_t maker;
    uint32_t ordinal;
    bool reused;
};

struct prefix_model {
    struct prefix_params params;
    struct prefix_entry *table; /* resident entries */
    struct prefix_entry *oldest, *newest;
    uint64_t resident;
    uint64_t pages_peak; /* largest sum of the invariant */
    struct prefix_fact *facts;
    uint32_t fact_count;
    uint32_t fact_room;
    uint32_t *entries;
    uint32_t entries_room;
    uint32_t *dropped;
    uint32_t dropped_count;
    uint32_t dropped_room;
};

struct prefix_model *prefix_open(const struct prefix_params *params)
{
    struct prefix_model *model = calloc(1, sizeof(*model));

    if (model != NULL) {
        model->params = *params;
    }
    return model;
}

static void prefix_unlink(struct prefix_model *model, struct prefix_entry *entry)
{
    *(entry->older != NULL ? &entry->older->newer : &model->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &model->newest) = entry->older;
    entry->older = entry->newer = NULL;
}

static void prefix_append(struct prefix_model *model, struct prefix_entry *entry)
{
    entry->older = model->newest;
    *(model->newest != NULL ? &model->newest->newer : &model->oldest) = entry;
    model->newest = entry;
}

static void prefix_remove(struct prefix_model *model, struct prefix_entry *entry)
{
    prefix_unlink(model, entry);
    HASH_DEL(model->table, entry);
    model->resident--;
    free(entry);
}

void prefix_close(struct prefix_model *model)
{
    if (model == NULL) {
        return;
    }
    while (model->oldest != NULL) {
        prefix_remove(model, model->oldest);
    }
    free(model->facts);
    free(model->entries);
    free(model->dropped);
    free(model);
}

static struct prefix_entry *prefix_find(const struct prefix_model *model, uint32_t ordinal,
                                        uint64_t id)
{
    struct prefix_key key;
    struct prefix_entry *entry;

    memset(&key, 0, sizeof(key));
    key.id = id;
    key.ordinal = ordinal;
    HASH_FIND(hh, model->table, &key, sizeof(key), entry);
    return entry;
}

/* Makes room in an array of numbers. */
static bool prefix_room(uint32_t **array, uint32_t *room, uint32_t wanted)
{
    uint32_t larger = *room == 0 ? 64 : *room;
    uint32_t *moved;

    while (larger < wanted) {
        larger *= 2;
    }
    if (larger == *room) {
        return true;
    }
    moved = realloc(*array, (size_t)larger * sizeof(*moved));
    if (moved == NULL) {
        return false;
    }
    *array = moved;
    *room = larger;
    return true;
}

static bool prefix_drop(struct prefix_model *model, struct prefix_entry *entry)
{
    if (!prefix_room(&model->dropped, &model->dropped_room, model->dropped_count + 1)) {
        return false;
    }
    model->dropped[model->dropped_count++] = entry->number;
    prefix_remove(model, entry);
    return true;
}

static struct prefix_entry *prefix_make(struct prefix_model *model, uint32_t user, uint32_t ordinal,
                                        uint64_t id)
{
    struct prefix_entry *entry = calloc(1, sizeof(*entry));
    struct prefix_fact fact = {user, ordinal, false};

    if (entry == NULL) {
        return NULL;
    }
    if (model->fact_count == model->fact_room) {
        uint32_t room = model->fact_room == 0 ? 256 : model->fact_room * 2;
        struct prefix_fact *moved = realloc(model->facts, room * sizeof(*moved));

        if (moved == NULL) {
            free(entry);
            return NULL;
        }
        model->facts = moved;
        model->fact_room = room;
    }
    entry->key.id = id;
    entry->key.ordinal = ordinal;
    entry->number = model->fact_count;
    model->facts[model->fact_count++] = fact;
    HASH_ADD(hh, model->table, key, sizeof(entry->key), entry);
    model->resident++;
    return entry;
}

/* Drops the oldest until the request fits; the matched ones are the newest by now. */
static bool prefix_make_room(struct prefix_model *model, const struct prefix_ask *ask,
                             uint32_t matched)
{
    uint32_t per = model->params.pages_per_hash;
    uint64_t fresh = ask->pages - (uint64_t)matched * per;

    while (model->resident > matched && model->resident * per + fresh > model->params.pool_pages) {
        if (!prefix_drop(model, model->oldest)) {
            return false;
        }
    }
    if (model->resident * per + fresh > model->pages_peak) {
        model->pages_peak = model->resident * per + fresh;
    }
    return true;
}

/* Leading blocks that are resident; they become the newest, the first one last. */
static uint32_t prefix_match(struct prefix_model *model, const struct prefix_ask *ask)
{
    uint32_t matched = 0;

    while (matched < ask->hash_count && prefix_find(model, matched, ask->hashes[matched]) != NULL) {
        matched++;
    }
    for (uint32_t i = matched; i > 0; i--) {
        struct prefix_entry *entry = prefix_find(model, i - 1, ask->hashes[i - 1]);

        prefix_unlink(model, entry);
        prefix_append(model, entry);
        model->entries[i - 1] = entry->number;
        model->facts[entry->number].reused = true;
    }
    return matched;
}

bool prefix_admit(struct prefix_model *model, const struct prefix_ask *ask,
                  struct prefix_answer *answer_out)
{
    uint32_t matched;

    model->dropped_count = 0;
    if (!prefix_room(&model->entries, &model->entries_room, ask->hash_count + 1)) {
        return false;
    }
    matched = prefix_match(model, ask);
    /* A block whose chain broke above it is replaced: one entry a key. */
    for (uint32_t i = matched; i < ask->hash_count; i++) {
        struct prefix_entry *stale = prefix_find(model, i, ask->hashes[i]);

        if (stale != NULL && !prefix_drop(model, stale)) {
            return false;
        }
    }
    if (!prefix_make_room(model, ask, matched)) {
        return false;
    }
    for (uint32_t i = ask->hash_count; i > matched; i--) {
        struct prefix_entry *entry = prefix_make(model, ask->user, i - 1, ask->hashes[i - 1]);

        if (entry == NULL) {
            return false;
        }
        prefix_append(model, entry);
        model->entries[i - 1] = entry->number;
    }
    for (uint32_t i = matched; i > 0; i--) {
        struct prefix_entry *entry = prefix_find(model, i - 1, ask->hashes[i - 1]);

        prefix_unlink(model, entry);
        prefix_append(model, entry);
    }
    answer_out->reused = matched;
    answer_out->entries = model->entries;
    answer_out->dropped_count = model->dropped_count;
    answer_out->dropped = model->dropped;
    return true;
}

uint32_t prefix_entry_count(const struct prefix_model *model)
{
    return model->fact_count;
}

uint32_t prefix_entry_maker(const struct prefix_model *model, uint32_t entry)
{
    return model->facts[entry].maker;
}

uint32_t prefix_entry_ordinal(const struct prefix_model *model, uint32_t entry)
{
    return model->facts[entry].ordinal;
}

bool prefix_entry_reused(const struct prefix_model *model, uint32_t entry)
{
    return model->facts[entry].reused;
}

bool prefix_check(const struct prefix_model *model)
{
    uint64_t count = 0;

    for (const struct prefix_entry *entry = model->oldest; entry != NULL; entry = entry->newer) {
        if (prefix_find(model, (uint32_t)entry->key.ordinal, entry->key.id) != entry ||
            (entry->newer == NULL && model->newest != entry)) {
            return false;
        }
        count++;
    }
    return count == model->resident && HASH_COUNT(model->table) == count &&
           model->pages_peak <= model->params.pool_pages &&
           count * model->params.pages_per_hash <= model->params.pool_pages;
}
