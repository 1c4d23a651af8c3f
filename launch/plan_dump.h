/*
 * plan_dump.h - a geometry dump made from a topology and models, without a world: what the ranks of
 * two instances would publish, and the block lists of one request. Addresses are made up; slots are
 * never neighbours, so that nothing joins across blocks by luck.
 *
 * May include kvf_core and the parts of launch/ that need no MPI.
 */
#ifndef LAUNCH_PLAN_DUMP_H
#define LAUNCH_PLAN_DUMP_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_topology.h>

#include "config.h"
#include "geometry_json.h"
#include "model.h"

#define PLAN_DUMP_TOKENS_MAX 16777216u

/*
 * Arrays of two: the context side, then the generation side. All is borrowed until the call ends.
 */
struct plan_dump_params {
    const struct kvf_topology *topology;
    uint32_t instances[2]; /* numbers in the topology */
    const struct kvf_model *models[2];
    struct geo_bounce bounces[2]; /* plan_dump_bounce() */
    uint32_t prompt_tokens;       /* 1 to PLAN_DUMP_TOKENS_MAX */
    uint32_t cached_tokens;       /* at the receivers */
    uint32_t piece_tokens;        /* a multiple of the block; 0 = one piece */
    uint32_t sender_group;        /* dp group that ran the prefill */
    bool group_known;             /* the receiver was told */
    uint32_t receiver;            /* its dp group has the pages */
};

/*
 * Refusals of a layout or of a place (text_out says which rank), E_TOPOLOGY, E_NOMEM. The records
 * are not checked otherwise. `dump_out` gives: plan_dump_close().
 */
enum kvf_status plan_dump_open(const struct plan_dump_params *params,
                               struct geometry_dump **dump_out, struct geo_text *text_out);

/* Closes a dump of plan_dump_open() (never one that was read); NULL is fine. */
void plan_dump_close(struct geometry_dump *dump);

/* The handshake figures of a rank with these settings. */
struct geo_bounce plan_dump_bounce(const struct kvf_settings *settings);

#endif /* LAUNCH_PLAN_DUMP_H */
