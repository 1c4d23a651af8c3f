/*
 * geometry_internal.h - what the geometry files share among themselves. Others include geometry.h.
 */
#ifndef KVF_GEOMETRY_INTERNAL_H
#define KVF_GEOMETRY_INTERNAL_H

#include "geometry.h"

/* Counts beyond the limits of geometry.h: E_TOO_LARGE, E_INVAL. Safe on a record of any content. */
enum kvf_status geo_check_counts(const struct geo_record *record, struct geo_text *text_out);

#define GEO_VIEW_NAME_BYTES 112u

/* How a text names a view: "ctx/3 view(0,1) key+value HND". */
struct geo_view_name {
    char s[GEO_VIEW_NAME_BYTES];
};

void geo_name_view(const struct geo_record *record, uint32_t group, uint32_t view,
                   struct geo_view_name *name_out);

/* A set of global layers. */
struct geo_layer_set {
    uint8_t bits[GEO_LAYERS_MAX / 8];
    uint32_t count;
};

static inline bool geo_layer_set_has(const struct geo_layer_set *set, uint32_t layer)
{
    return (set->bits[layer / 8] & 1u << layer % 8) != 0;
}

static inline void geo_layer_set_add(struct geo_layer_set *set, uint32_t layer)
{
    if (!geo_layer_set_has(set, layer)) {
        set->bits[layer / 8] |= (uint8_t)(1u << layer % 8);
        set->count++;
    }
}

/* A view of one record and its partner in another one. */
struct geo_partner {
    bool found; /* false: the other rank holds none of the view's layers */
    uint32_t group;
    uint32_t view;
    struct geo_layer_set shared; /* common layers */
};

/*
 * Checks 11 to 15 for one view of `own` against all of `other` (docs/geometry.md, section 7). Both
 * passed geo_check_local(). partner_out is set on success only. text_out may be NULL.
 */
enum kvf_status geo_pair_view(const struct geo_record *own, uint32_t group, uint32_t view,
                              const struct geo_record *other, struct geo_partner *partner_out,
                              struct geo_text *text_out);

#endif /* KVF_GEOMETRY_INTERNAL_H */
