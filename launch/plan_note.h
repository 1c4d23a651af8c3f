/*
 * plan_note.h - the reasons under the table of `kvferry plan`: why a write bounces or not, which
 * rung it takes and why, what an arena costs.
 *
 * May include kvf_core and the parts of launch/ that need no MPI.
 */
#ifndef LAUNCH_PLAN_NOTE_H
#define LAUNCH_PLAN_NOTE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "plan_table.h"

/* What the ladder says of a write. */
struct plan_note_rung {
    enum kvf_status status; /* OK or E_NO_PATH */
    enum kvf_path path;
    enum path_reason reason;
};

/*
 * On one node all pools of the receiver are taken to be mapped, between nodes to be reachable.
 */
struct plan_note_rung plan_note_rung(const struct plan_table_params *params, bool near,
                                     uint64_t payload_bytes);

/* What a name of plan_split_name() means; never NULL. */
const char *plan_note_split(const char *name);

/* One line for each verdict and rung of the table. */
void plan_note_print(const struct plan_table_params *params, FILE *file);

#endif /* LAUNCH_PLAN_NOTE_H */
