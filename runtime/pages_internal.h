/*
 * pages_internal.h - what the builder of layouts is split into. Others include pages.h.
 */
#ifndef KVF_PAGES_INTERNAL_H
#define KVF_PAGES_INTERNAL_H

#include "check.h"
#include "pages.h"

/* A model and a place that were found to fit, and what follows from them. */
struct pages_facts {
    const struct kvf_model *model;
    const struct kvf_place *place;
    enum pages_form form;
    bool partitioned;     /* the model states per-layer head facts */
    uint32_t width;       /* t */
    uint32_t layer_first; /* of this stage */
    uint32_t layer_end;
    uint32_t draft_layers;
    char *text;
    size_t text_bytes;
};

/* Judges the model at the place; fills `facts` beyond model, place, form and text. */
enum kvf_status pages_check_model(struct pages_facts *facts);

/* Bits of one element of the layer. */
uint32_t pages_layer_bits(const struct kvf_model_layer *layer);

/* Writes the facts' text. */
void pages_say(const struct pages_facts *facts, const char *format, ...) KVF_PRINTF(2, 3);

#endif /* KVF_PAGES_INTERNAL_H */
