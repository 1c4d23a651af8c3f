/*
 * plan_table.h - the table of `kvferry plan`: a dump and its answer for people. docs/plan.md
 * explains it.
 *
 * May include kvf_core and the parts of launch/ that need no MPI.
 */
#ifndef LAUNCH_PLAN_TABLE_H
#define LAUNCH_PLAN_TABLE_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "geometry_json.h"
#include "xfer/path.h"

struct plan_table_params {
    const struct geometry_dump *dump;
    uint32_t receiver;
    const json_t *answer;   /* geometry_answer() */
    uint32_t allowed_paths; /* the writers' settings `paths` and `path` */
    enum kvf_path forced_path;
    uint64_t inflight_chunks; /* of one write that bounces */
    double gbytes_per_s;      /* of the link of each rank; 0 = no times */
    double put_us;            /* what one put of the direct rung costs */
};

/* E_NOMEM. */
enum kvf_status plan_table_print(const struct plan_table_params *params, FILE *file);

/* The whole request through each writer and into the receiver, at a rate. */
struct plan_table_load {
    uint64_t bytes_in;       /* of the receiver */
    uint64_t busiest_bytes;  /* out of the busiest writer, to all it serves in the dp group */
    uint32_t busiest_writer; /* rank */
    uint32_t busiest_serves;
};
void plan_table_load(const struct plan_table_params *params, struct plan_table_load *load_out);

#endif /* LAUNCH_PLAN_TABLE_H */
