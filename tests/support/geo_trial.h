/*
 * geo_trial.h - random pairs of instances with one request between them, for tests that try many.
 *
 * May be included by any test.
 */
#ifndef KVF_TEST_GEO_TRIAL_H
#define KVF_TEST_GEO_TRIAL_H

#include "geo_make.h"
#include "plan.h"

enum { TRIAL_BLOCKS_MAX = 8, TRIAL_PIECES_MAX = 24 };

/* A pair of instances and one request. */
struct trial {
    struct test_random random;
    struct geo_make_model src_model;
    struct geo_make_model dst_model;
    struct geo_make_grid src_grid;
    struct geo_make_grid dst_grid;
    enum pages_form src_form;
    enum pages_form dst_form;
    uint32_t slots;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t piece_count;
    struct plan_piece pieces[TRIAL_PIECES_MAX];
    bool may_refuse; /* one fact was changed */
};

/* Uniform in 0 .. limit - 1. */
uint32_t trial_pick(struct trial *trial, uint32_t limit);
bool trial_chance(struct trial *trial, uint32_t percent);

/* Fills all but `random`, which seeds it: two instances of one model, every rank legal. */
void trial_make(struct trial *trial);

/* True when every rank of the grid has a layout. */
bool trial_is_legal(const struct geo_make_model *model, const struct geo_make_grid *grid,
                    enum pages_form form);

#endif /* KVF_TEST_GEO_TRIAL_H */
