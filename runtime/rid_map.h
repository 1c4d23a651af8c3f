/*
 * rid_map.h - finds an object by request id. Pure; open addressing, memory taken at open.
 *
 * May include base only.
 */
#ifndef KVF_RID_MAP_H
#define KVF_RID_MAP_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define RID_MAP_ENTRIES_MAX (1u << 26)

struct rid_map;

/* Room for `entries_max` (1..RID_MAP_ENTRIES_MAX). Gives: rid_map_close(). E_NOMEM, E_INVAL. */
enum kvf_status rid_map_open(const struct kvf_heap *heap, uint32_t entries_max,
                             struct rid_map **map_out);
/* NULL is fine. */
void rid_map_close(struct rid_map *map);

/* NULL when there is none. */
void *rid_map_find(const struct rid_map *map, uint64_t rid);

/* `rid` must not be in it, the map not full; `object` not NULL, borrows until rid_map_remove(). */
void rid_map_add(struct rid_map *map, uint64_t rid, void *object);

/* Nothing when it is not in it. */
void rid_map_remove(struct rid_map *map, uint64_t rid);

uint32_t rid_map_count(const struct rid_map *map);

#endif /* KVF_RID_MAP_H */
