/*
 * geometry_wire.h - the wire form of a record, shared by its encoder and its decoder
 * (docs/geometry.md, section 4).
 *
 *   u32 wire version, u32 length of the whole, then fields {u16 tag, u32 length, bytes}: COUNTS
 *   first, the others once each in any order, GROUP once for each group in the order of groups.
 *   A GROUP ends in VIEW fields, a VIEW in fields of its own. Little-endian.
 */
#ifndef KVF_GEOMETRY_WIRE_H
#define KVF_GEOMETRY_WIRE_H

#include <stdint.h>

#include "wire.h"

/* Bits 0 to 3 of a tag below 16 number the field, see decoder. */
#define GEO_TAG_REQUIRED(number) (WIRE_FIELD_REQUIRED | (number))
#define TAG_COUNTS GEO_TAG_REQUIRED(1u)
#define TAG_IDENTITY GEO_TAG_REQUIRED(2u)
#define TAG_PLACE GEO_TAG_REQUIRED(3u)
#define TAG_MODEL GEO_TAG_REQUIRED(4u)
#define TAG_POOLS GEO_TAG_REQUIRED(5u)
#define TAG_AUX GEO_TAG_REQUIRED(6u)
#define TAG_GROUP GEO_TAG_REQUIRED(7u)
#define TAG_BOUNCE 8u
#define TAG_VIEW GEO_TAG_REQUIRED(16u)
#define TAG_VIEW_HEADS 17u
#define TAG_VIEW_HEADS_TOTAL 18u
#define TAG_VIEW_DTYPE 19u
#define TAG_VIEW_UNIT GEO_TAG_REQUIRED(20u)
#define TAG_VIEW_SECTIONS GEO_TAG_REQUIRED(21u)

enum {
    WIRE_POOL_BYTES = 8 + 8 + 4 + 1 + 8 + 8 + 1 + 4,
    WIRE_AUX_BYTES = 8 + 4 + 4,
    WIRE_ENTRY_BYTES = 4 + 1 + 8 + 8,
    WIRE_VIEW_BYTES_MIN = WIRE_FIELD_HEAD_BYTES + 4 + 1 + 1 + 1 + 1 + 4,
    WIRE_GROUP_BYTES_MIN = WIRE_FIELD_HEAD_BYTES + 1 + 4 + 4 + 4,
};

/* How many of each thing a record holds: first on the wire, so that one allocation holds it all. */
struct geo_wire_counts {
    uint32_t stages;
    uint32_t pools;
    uint32_t aux;
    uint32_t groups;
    uint32_t layers; /* of all groups */
    uint32_t views;
    uint32_t entries;
};

#endif /* KVF_GEOMETRY_WIRE_H */
