/*
 * pages_model.c - whether a model can be laid out at a place (docs/geometry.md, sections 2 and 3).
 * May not do I/O.
 */
#include <stdarg.h>
#include <stdio.h>

#include "geometry.h"
#include "pages_internal.h"

void pages_say(const struct pages_facts *facts, const char *format, ...)
{
    va_list args;

    if (facts->text == NULL || facts->text_bytes == 0) {
        return;
    }
    va_start(args, format);
    vsnprintf(facts->text, facts->text_bytes, format, args);
    va_end(args);
}

uint32_t pages_layer_bits(const struct kvf_model_layer *layer)
{
    return layer->elem_bits != 0 ? layer->elem_bits : kvf_dtype_bits(layer->dtype);
}

static enum kvf_status check_attention(const struct pages_facts *facts, uint32_t index)
{
    const struct kvf_model_layer *layer = &facts->model->layers[index];
    uint32_t bits = pages_layer_bits(layer);
    uint32_t heads = layer->kv_heads;
    uint32_t width = facts->width;

    if (heads > GEO_HEADS_MAX || layer->head_dim == 0 || layer->head_dim > GEO_HEADS_MAX ||
        bits == 0 || bits > 64) {
        pages_say(facts, "layer %u: %u KV heads of %u elements of %u bits", index, heads,
                  layer->head_dim, bits);
        return KVF_E_INVAL;
    }
    if (layer->dtype != KVF_DTYPE_NONE && bits != kvf_dtype_bits(layer->dtype)) {
        pages_say(facts, "layer %u: %u bits an element, %s has %u", index, bits,
                  geo_dtype_name(layer->dtype), kvf_dtype_bits(layer->dtype));
        return KVF_E_INVAL;
    }
    if (heads >= width ? heads % width != 0 : width % heads != 0) {
        pages_say(facts, "layer %u: %u KV heads cannot be spread over tp %u", index, heads, width);
        return KVF_E_TP_HEADS;
    }
    if (facts->model->mla && layer->owner == KVF_OWNER_TARGET && (heads != 1 || !layer->k_only)) {
        pages_say(facts, "layer %u: MLA caches keys only, one head; the model states %u heads%s",
                  index, heads, layer->k_only ? "" : " with values");
        return KVF_E_INVAL;
    }
    if (layer->scale_per != 0 && (layer->head_dim % layer->scale_per != 0 ||
                                  layer->scale_bits == 0 || layer->scale_bits > 64)) {
        pages_say(facts, "layer %u: a scale of %u bits for %u of %u elements", index,
                  layer->scale_bits, layer->scale_per, layer->head_dim);
        return KVF_E_INVAL;
    }
    return KVF_OK;
}

static enum kvf_status check_state(const struct pages_facts *facts, uint32_t index)
{
    const struct kvf_model_layer *layer = &facts->model->layers[index];

    if (layer->state_units % facts->width != 0 ||
        (layer->state_units != 0 && layer->state_unit_bytes == 0) ||
        layer->state_unit_bytes > GEO_SIZE_MAX / GEO_HEADS_MAX) {
        pages_say(facts, "layer %u: %u state units of %llu bytes cannot be spread over tp %u",
                  index, layer->state_units, (unsigned long long)layer->state_unit_bytes,
                  facts->width);
        return KVF_E_STATE_UNIT;
    }
    if (layer->section_count > KVF_VIEW_SECTIONS_MAX) {
        pages_say(facts, "layer %u: %u state sections, at most %u", index, layer->section_count,
                  KVF_VIEW_SECTIONS_MAX);
        return KVF_E_STATE_SECTIONS;
    }
    for (uint32_t s = 0; s < layer->section_count; s++) {
        uint64_t bytes = layer->section_bytes[s];

        if (bytes == 0 || bytes % facts->width != 0 || bytes > GEO_SIZE_MAX) {
            pages_say(facts, "layer %u: state section %u of %llu bytes cannot be spread over tp %u",
                      index, s, (unsigned long long)bytes, facts->width);
            return KVF_E_STATE_SECTIONS;
        }
    }
    return KVF_OK;
}

static enum kvf_status check_layer(struct pages_facts *facts, uint32_t index)
{
    const struct kvf_model_layer *layer = &facts->model->layers[index];
    enum kvf_status status = KVF_OK;

    if (layer->owner == KVF_OWNER_DRAFT) {
        facts->draft_layers++;
    } else if (facts->draft_layers > 0) {
        pages_say(facts, "layer %u is a target layer behind a draft layer", index);
        return KVF_E_INVAL;
    }
    if (layer->kv_heads > 0) {
        status = check_attention(facts, index);
    }
    if (status == KVF_OK && (layer->state_units > 0 || layer->section_count > 0)) {
        status = check_state(facts, index);
    }
    return status;
}

/* Per-layer head facts are stated when drafts are there or layers differ in their heads. */
static bool states_head_facts(const struct pages_facts *facts)
{
    uint32_t heads = 0;

    if (facts->draft_layers > 0) {
        return true;
    }
    for (uint32_t l = 0; l < facts->model->layer_count; l++) {
        uint32_t here = facts->model->layers[l].kv_heads;

        if (here != 0 && heads != 0 && here != heads) {
            return true;
        }
        heads = here != 0 ? here : heads;
    }
    return false;
}

static enum kvf_status check_shape(struct pages_facts *facts)
{
    const struct kvf_model *model = facts->model;
    const struct kvf_place *place = facts->place;
    uint64_t sum = 0;

    if (model->layer_count == 0 || model->layer_count > GEO_LAYERS_MAX ||
        model->tokens_per_block == 0 || model->tokens_per_block > GEO_TOKENS_MAX ||
        model->aux_count > GEO_AUX_MAX || place->pp_size > GEO_PP_MAX ||
        place->tp_size > GEO_TP_MAX) {
        pages_say(facts,
                  "%u layers, %u tokens a block, %u aux buffers, tp %u pp %u: outside the limits",
                  model->layer_count, model->tokens_per_block, model->aux_count, place->tp_size,
                  place->pp_size);
        return KVF_E_INVAL;
    }
    for (uint32_t p = 0; p < place->pp_size; p++) {
        sum += place->layers_per_pp[p];
    }
    if (sum != model->layer_count) {
        pages_say(facts, "the %u pp stages hold %llu layers, the model has %u", place->pp_size,
                  (unsigned long long)sum, model->layer_count);
        return KVF_E_INVAL;
    }
    if (place->cp_size != 1) {
        pages_say(facts, "context parallelism is not supported (cp %u)", place->cp_size);
        return KVF_E_CP;
    }
    return KVF_OK;
}

enum kvf_status pages_check_model(struct pages_facts *facts)
{
    const struct kvf_place *place = facts->place;
    enum kvf_status status = pages_check_place(place, facts->text, facts->text_bytes);

    if (status == KVF_OK) {
        status = check_shape(facts);
    }
    if (status != KVF_OK) {
        return status;
    }
    facts->width = geo_group_width(place);
    geo_stage_layers(place, place->pp_rank, &facts->layer_first, &facts->layer_end);
    for (uint32_t l = 0; l < facts->model->layer_count; l++) {
        status = check_layer(facts, l);
        if (status != KVF_OK) {
            return status;
        }
    }
    if (facts->draft_layers > place->layers_per_pp[place->pp_size - 1]) {
        pages_say(facts, "%u draft layers do not fit the last pp stage of %u layers",
                  facts->draft_layers, place->layers_per_pp[place->pp_size - 1]);
        return KVF_E_INVAL;
    }
    facts->partitioned = facts->form == PAGES_PARTITIONED && states_head_facts(facts);
    return KVF_OK;
}
