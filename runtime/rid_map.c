/*
 * rid_map.c - open addressing with linear probing; removal moves followers back, so there are no
 * marks of dead entries. At most half full. Nothing here may log.
 */
#include "rid_map.h"

#include "check.h"

struct entry {
    uint64_t rid;
    void *object; /* NULL = free; borrows */
};

struct rid_map {
    const struct kvf_heap *heap; /* borrows */
    struct entry *entries;
    uint32_t mask;
    uint32_t count;
    uint32_t entries_max;
};

/* Spreads consecutive ids. */
static uint32_t home_of(const struct rid_map *map, uint64_t rid)
{
    rid ^= rid >> 30;
    rid *= UINT64_C(0xbf58476d1ce4e5b9);
    rid ^= rid >> 27;
    rid *= UINT64_C(0x94d049bb133111eb);
    rid ^= rid >> 31;
    return (uint32_t)rid & map->mask;
}

enum kvf_status rid_map_open(const struct kvf_heap *heap, uint32_t entries_max,
                             struct rid_map **map_out)
{
    struct rid_map *map;
    uint32_t places = 4;

    if (entries_max == 0 || entries_max > RID_MAP_ENTRIES_MAX)
        return KVF_E_INVAL;
    while (places < entries_max * 2)
        places *= 2;
    map = kvf_alloc(heap, 1, sizeof(*map));
    if (map == NULL)
        return KVF_E_NOMEM;
    map->entries = kvf_alloc(heap, places, sizeof(*map->entries));
    if (map->entries == NULL) {
        kvf_release(heap, map);
        return KVF_E_NOMEM;
    }
    map->heap = heap;
    map->mask = places - 1;
    map->entries_max = entries_max;
    *map_out = map;
    return KVF_OK;
}

void rid_map_close(struct rid_map *map)
{
    if (map == NULL)
        return;
    kvf_release(map->heap, map->entries);
    kvf_release(map->heap, map);
}

/* Where `rid` is, or the free place where it would be. */
static uint32_t place_of(const struct rid_map *map, uint64_t rid)
{
    uint32_t place = home_of(map, rid);

    while (map->entries[place].object != NULL && map->entries[place].rid != rid)
        place = (place + 1) & map->mask;
    return place;
}

void *rid_map_find(const struct rid_map *map, uint64_t rid)
{
    return map->entries[place_of(map, rid)].object;
}

void rid_map_add(struct rid_map *map, uint64_t rid, void *object)
{
    uint32_t place = place_of(map, rid);

    KVF_REQUIRE(object != NULL);
    KVF_REQUIRE(map->count < map->entries_max);
    KVF_REQUIRE(map->entries[place].object == NULL);
    map->entries[place] = (struct entry){.rid = rid, .object = object};
    map->count++;
}

void rid_map_remove(struct rid_map *map, uint64_t rid)
{
    uint32_t hole = place_of(map, rid);
    uint32_t place = hole;

    if (map->entries[hole].object == NULL)
        return;
    map->count--;
    for (;;) {
        uint32_t home;

        place = (place + 1) & map->mask;
        if (map->entries[place].object == NULL)
            break;
        home = home_of(map, map->entries[place].rid);
        /* It may move into the hole when its home does not lie behind the hole. */
        if (((place - home) & map->mask) >= ((place - hole) & map->mask)) {
            map->entries[hole] = map->entries[place];
            hole = place;
        }
    }
    map->entries[hole].object = NULL;
}

uint32_t rid_map_count(const struct rid_map *map)
{
    return map->count;
}
