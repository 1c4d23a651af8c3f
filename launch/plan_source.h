/*
 * plan_source.h - where `kvferry plan` gets its request from: a topology and models, or a file.
 *
 * May include kvf_core and the parts of launch/ that need no MPI.
 */
#ifndef LAUNCH_PLAN_SOURCE_H
#define LAUNCH_PLAN_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan_dump.h"

struct plan_options {
    const char *topology;
    const char *instances[2]; /* --ctx, --gen; NULL = the first of the side */
    const char *model;
    const char *models[2]; /* --ctx-model, --gen-model; NULL = --model */
    uint64_t scale_layers;
    uint64_t tokens;
    uint64_t cached;
    uint64_t piece_tokens;
    uint64_t sender_group;
    bool group_unknown;
    const char *settings;
    const char *geometry;
    const char *receiver, *sender, *piece; /* numbers, NULL = not given */
    bool json;
    bool frags;
    const char *dump;
    double gbytes_per_s;
    double put_us;
    bool help;
};

/* A dump, whichever way it came, and what the ladder needs. */
struct plan_source {
    struct geometry_dump *dump;
    bool is_made; /* from topology and models */
    struct kvf_topology *topology;
    struct model models[2];
    struct kvf_settings settings[2]; /* context, generation; of a file the defaults */
};

/*
 * Opens what the options name and says what is wrong. Returns an exit code; on any but EXIT_RIGHT
 * nothing is left open. A refusal is printed as "CODE: text". `source_out`: plan_source_close().
 */
int plan_source_open(const struct plan_options *options, struct plan_source *source_out);
void plan_source_close(struct plan_source *source);

/* Prints a status and its text in the form that suits it and returns the exit code. */
int plan_source_refuse(enum kvf_status status, const struct geo_text *text);

#endif /* LAUNCH_PLAN_SOURCE_H */
