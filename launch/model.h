/*
 * model.h - cache facts of a model, from YAML: launch/models/NAME.yaml or a file. The keys are in
 * docs/run.md, "Models".
 *
 * model.c turns words into facts, pure; model_yaml.c reads files. No MPI.
 */
#ifndef LAUNCH_MODEL_H
#define LAUNCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>

#define MODEL_NAME_BYTES 64
#define MODEL_TEXT_BYTES 512
#define MODEL_LAYERS_MAX 4096u

/* One value, or a list of values, or absent (both NULL). */
struct model_words {
    char *one;
    char **list;
    unsigned list_count;
};

/* The keys of a file as they stand there; absent ones are NULL. */
struct model_source {
    char *name, *layers, *head_dim, *elem_bits, *dtype, *block, *layout, *mla, *ownership_bridge;
    struct model_words kv_heads, window, k_only, aux;
    struct model_source_scale {
        char *per, *bits;
    } * scale;
    struct model_source_index {
        struct model_words layers;
        char *bytes;
    } * index;
    struct model_source_recurrent {
        struct model_words layers, sections;
        char *units, *unit_bytes;
    } * recurrent;
    struct model_source_draft {
        char *layers, *head_dim, *elem_bits, *dtype, *k_only;
        struct model_words kv_heads;
    } * draft;
};

struct model {
    char name[MODEL_NAME_BYTES];
    uint32_t target_layers;
    struct kvf_model facts; /* borrows from the two below */
    struct kvf_model_layer *layers;
    uint32_t *aux;
};

/*
 * Reads a model by name (from the directories beside the program) or from a file (a name with '/'
 * or ending in ".yaml"), and keeps the first `scale_layers` target layers (0 = all; drafts stay).
 * False: text_out (MODEL_TEXT_BYTES long) says file, key, value and what was wanted.
 * `model_out` gives: model_free().
 */
bool model_load(const char *name, uint32_t scale_layers, struct model *model_out, char *text_out);

/* The same from words that are already read. Pure. */
bool model_build(const struct model_source *source, uint32_t scale_layers, struct model *model_out,
                 char *text_out);

void model_free(struct model *model);

#endif /* LAUNCH_MODEL_H */
