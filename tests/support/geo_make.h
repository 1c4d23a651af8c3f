/*
 * geo_make.h - ranks for tests of the geometry: a model and a grid give any rank's record.
 *
 * May be included by any test.
 */
#ifndef KVF_TEST_GEO_MAKE_H
#define KVF_TEST_GEO_MAKE_H

#include <stdint.h>

#include "geometry.h"
#include "pages.h"
#include "plan.h"
#include "testing.h"

#define GEO_MAKE_LAYERS_MAX 128u
#define GEO_MAKE_STAGES_MAX 8u

/* A model that owns its layers. Copy it with geo_make_copy(): `model` points into it. */
struct geo_make_model {
    struct kvf_model model;
    struct kvf_model_layer layers[GEO_MAKE_LAYERS_MAX];
    uint32_t aux_bytes[4];
};

/* The grid of an instance. */
struct geo_make_grid {
    uint32_t tp;
    uint32_t dp; /* 0 = no attention DP */
    uint32_t pp;
    uint32_t layers[GEO_MAKE_STAGES_MAX];
};

/* `count` attention layers of `heads` heads of `dim` bf16 elements. */
void geo_make_model(struct geo_make_model *to, uint32_t count, uint32_t heads, uint32_t dim,
                    uint32_t tokens);

void geo_make_copy(const struct geo_make_model *from, struct geo_make_model *to);

/* A grid of one stage, all layers on it. */
struct geo_make_grid geo_make_grid(uint32_t tp, uint32_t dp, uint32_t layers);

/* Place of a rank; `grid` is borrowed by the place. */
struct kvf_place geo_make_place(const struct geo_make_grid *grid, uint32_t rank);

/* How a record is made. */
struct geo_make_params {
    const struct geo_make_model *model;
    const struct geo_make_grid *grid;
    enum geo_side side;
    enum pages_form form;
    uint32_t slots;
};

/* The layout alone, with its status: for models that are refused. Gives: pages_layout_close(). */
enum kvf_status geo_make_layout(const struct geo_make_params *params, uint32_t rank,
                                struct kvf_layout **layout_out, char *text, size_t text_bytes);

/*
 * A rank's record: instance "ctx" or "gen", pools 1 TiB apart from rank to rank, default bounce
 * figures. Gives: geo_record_close(). Fails the test when the model is refused.
 */
struct geo_record *geo_make_record(const struct geo_make_params *params, uint32_t rank);

/*
 * Writable view of a record's parts, so that a test can plant faults. The record stays the owner.
 */
struct kvf_group *geo_edit_group(struct geo_record *record, uint32_t group);
struct kvf_view *geo_edit_view(struct geo_record *record, uint32_t group, uint32_t view);
struct kvf_entry *geo_edit_entry(struct geo_record *record, uint32_t group, uint32_t view,
                                 uint32_t entry);
struct geo_pool *geo_edit_pool(struct geo_record *record, uint32_t pool);
struct kvf_pool_shape *geo_edit_shape(struct geo_record *record, uint32_t pool);

/* Field by field: bytes between fields are anything. */
void geo_assert_totals_equal(const struct plan_totals *got, const struct plan_totals *want);

#endif /* KVF_TEST_GEO_MAKE_H */
