/* model.c - from the words of a model file to the facts of each layer: see model.h. */
#include "model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "say.h"

#define MODEL_HEADS_MAX 65536u
#define MODEL_DIM_MAX 1048576u
#define MODEL_BYTES_MAX ((uint64_t)1 << 32)

struct model_builder {
    const struct model_source *source;
    struct kvf_model_layer *layers; /* target layers, then drafts */
    uint32_t target_count;          /* as the file says, before scale_layers */
    uint32_t draft_count;
    char *text_out;
};

/* Values of one kind of layer. */
struct model_element {
    uint32_t head_dim;
    enum kvf_dtype dtype;
    uint32_t elem_bits;
};

SAY_PRINTF(2, 3)
static bool model_refuse(const struct model_builder *builder, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(builder->text_out, MODEL_TEXT_BYTES, format, args);
    va_end(args);
    return false;
}

static bool model_whole(const struct model_builder *builder, const char *key, const char *text,
                        uint64_t low, uint64_t high, uint64_t *value_out)
{
    if (text == NULL) {
        return model_refuse(builder, "%s is missing", key);
    }
    if (!options_whole(text, low, high, value_out)) {
        return model_refuse(builder, "%s is \"%.60s\"; want a whole number from %llu to %llu", key,
                            text, (unsigned long long)low, (unsigned long long)high);
    }
    return true;
}

/* model_whole() for 32 bits; *value_out is the default when the text is absent. */
static bool model_word(const struct model_builder *builder, const char *key, const char *text,
                       uint32_t low, uint32_t high, uint32_t *value_out)
{
    uint64_t value = *value_out;

    if (text != NULL && !model_whole(builder, key, text, low, high, &value)) {
        return false;
    }
    *value_out = (uint32_t)value;
    return true;
}

static bool model_bool(const struct model_builder *builder, const char *key, const char *text,
                       bool *value_out)
{
    if (text == NULL) {
        return true;
    }
    if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0) {
        return model_refuse(builder, "%s is \"%.60s\"; want true or false", key, text);
    }
    *value_out = strcmp(text, "true") == 0;
    return true;
}

static unsigned model_words_count(const struct model_words *words)
{
    return words->one != NULL ? 1 : words->list_count;
}

static const char *model_words_at(const struct model_words *words, unsigned index)
{
    return words->one != NULL ? words->one : words->list[index];
}

/* "7" or "3-9" as a range inside [0, count). */
static bool model_range(const struct model_builder *builder, const char *key, const char *text,
                        uint32_t *first_out, uint32_t *end_out)
{
    char first[16], last[16];
    const char *dash = strchr(text, '-');
    uint64_t from, to;
    size_t len = dash != NULL ? (size_t)(dash - text) : strlen(text);

    snprintf(first, sizeof(first), "%.*s", len > 12 ? 12 : (int)len, text);
    snprintf(last, sizeof(last), "%.12s", dash != NULL ? dash + 1 : first);
    if (len > 12 || !options_whole(first, 0, builder->target_count - 1, &from) ||
        !options_whole(last, from, builder->target_count - 1, &to)) {
        return model_refuse(builder, "%s has \"%.60s\"; want layers from 0 to %u, as 3 or 3-9", key,
                            text, builder->target_count - 1);
    }
    *first_out = (uint32_t)from;
    *end_out = (uint32_t)to + 1;
    return true;
}

/* Marks the layers that a list of numbers and ranges names. */
static bool model_subset(const struct model_builder *builder, const char *key,
                         const struct model_words *words, bool *marks_out)
{
    if (model_words_count(words) == 0) {
        return model_refuse(builder, "%s is missing; want layers as [0, 3-9]", key);
    }
    for (unsigned i = 0; i < model_words_count(words); i++) {
        uint32_t first = 0, end = 0;

        if (!model_range(builder, key, model_words_at(words, i), &first, &end)) {
            return false;
        }
        for (uint32_t layer = first; layer < end; layer++) {
            marks_out[layer] = true;
        }
    }
    return true;
}

static bool model_dtype(const char *text, enum kvf_dtype *dtype_out)
{
    static const char *const names[] = {"none", "bf16", "fp16", "fp8_e4m3", "fp4_e2m1", "f32"};

    for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *dtype_out = (enum kvf_dtype)i;
            return true;
        }
    }
    return false;
}

/* elem_bits and dtype, either or both; *element has the defaults. */
static bool model_elements(const struct model_builder *builder, const char *prefix,
                           const char *bits, const char *dtype, struct model_element *element)
{
    char key[48];

    if (dtype != NULL) {
        if (!model_dtype(dtype, &element->dtype)) {
            return model_refuse(builder,
                                "%sdtype is \"%.60s\"; want bf16, fp16, fp8_e4m3, fp4_e2m1 or f32",
                                prefix, dtype);
        }
        element->elem_bits = kvf_dtype_bits(element->dtype);
    } else if (bits != NULL) {
        element->dtype = KVF_DTYPE_NONE;
    }
    snprintf(key, sizeof(key), "%selem_bits", prefix);
    if (!model_word(builder, key, bits, 4, 64, &element->elem_bits)) {
        return false;
    }
    if (element->elem_bits % 4 != 0 ||
        (dtype != NULL && element->elem_bits != kvf_dtype_bits(element->dtype))) {
        return model_refuse(builder, "%s is %u; want a multiple of 4%s", key, element->elem_bits,
                            dtype != NULL ? " that the dtype has" : "");
    }
    return true;
}

/* kv_heads as one number, or one number a layer. */
static bool model_heads(const struct model_builder *builder, const char *key,
                        const struct model_words *words, uint32_t first, uint32_t count)
{
    unsigned given = model_words_count(words);

    if (given != 0 && words->one == NULL && given != count) {
        return model_refuse(builder, "%s has %u numbers; want one for each of the %u layers", key,
                            given, count);
    }
    for (uint32_t i = 0; given != 0 && i < count; i++) {
        if (!model_word(builder, key, model_words_at(words, words->one != NULL ? 0 : i), 0,
                        MODEL_HEADS_MAX, &builder->layers[first + i].kv_heads)) {
            return false;
        }
    }
    return true;
}

/* Windows: one number, or a list that is repeated over the layers. 0 = full attention. */
static bool model_windows(const struct model_builder *builder)
{
    const struct model_words *words = &builder->source->window;
    unsigned given = model_words_count(words);

    for (uint32_t i = 0; given != 0 && i < builder->target_count; i++) {
        if (!model_word(builder, "window", model_words_at(words, i % given), 0, UINT32_MAX,
                        &builder->layers[i].window)) {
            return false;
        }
    }
    return true;
}

/* k_only: true, false, or the layers that have keys alone. */
static bool model_k_only(const struct model_builder *builder, bool *marks)
{
    const struct model_words *words = &builder->source->k_only;
    bool all = false;

    if (words->one != NULL &&
        (strcmp(words->one, "true") == 0 || strcmp(words->one, "false") == 0)) {
        all = strcmp(words->one, "true") == 0;
    } else if (model_words_count(words) > 0) {
        memset(marks, 0, builder->target_count * sizeof(*marks));
        if (!model_subset(builder, "k_only", words, marks)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < builder->target_count; i++) {
        builder->layers[i].k_only = builder->layers[i].k_only || all || marks[i];
        marks[i] = false;
    }
    return true;
}

static bool model_targets(const struct model_builder *builder, bool *marks)
{
    const struct model_source *source = builder->source;
    struct model_element element = {0, KVF_DTYPE_BF16, 16};
    bool mla = false;
    uint64_t dim;

    if (!model_bool(builder, "mla", source->mla, &mla) ||
        !model_whole(builder, "head_dim", source->head_dim, 1, MODEL_DIM_MAX, &dim) ||
        !model_elements(builder, "", source->elem_bits, source->dtype, &element)) {
        return false;
    }
    if (!mla && model_words_count(&source->kv_heads) == 0) {
        return model_refuse(builder, "kv_heads is missing");
    }
    for (uint32_t i = 0; i < builder->target_count; i++) {
        struct kvf_model_layer *layer = &builder->layers[i];

        layer->owner = KVF_OWNER_TARGET;
        layer->kv_heads = 1;
        layer->head_dim = (uint32_t)dim;
        layer->dtype = element.dtype;
        layer->elem_bits = element.elem_bits;
        layer->k_only = mla;
    }
    if (!model_heads(builder, "kv_heads", &source->kv_heads, 0, builder->target_count) ||
        !model_windows(builder) || !model_k_only(builder, marks)) {
        return false;
    }
    for (uint32_t i = 0; mla && i < builder->target_count; i++) {
        if (builder->layers[i].kv_heads > 1) {
            return model_refuse(builder, "kv_heads is %u in layer %u; a model with mla has 1",
                                builder->layers[i].kv_heads, i);
        }
    }
    return true;
}

static bool model_index(const struct model_builder *builder, bool *marks)
{
    const struct model_source_index *index = builder->source->index;
    uint64_t bytes;

    if (index == NULL) {
        return true;
    }
    memset(marks, 0, builder->target_count * sizeof(*marks));
    if (!model_whole(builder, "index bytes", index->bytes, 1, MODEL_DIM_MAX, &bytes)) {
        return false;
    }
    if (model_words_count(&index->layers) == 0) {
        memset(marks, true, builder->target_count * sizeof(*marks));
    } else if (!model_subset(builder, "index layers", &index->layers, marks)) {
        return false;
    }
    for (uint32_t i = 0; i < builder->target_count; i++) {
        builder->layers[i].index_bytes = marks[i] ? (uint32_t)bytes : 0;
    }
    return true;
}

/* Recurrent layers have states in place of keys and values. */
static bool model_recurrent(const struct model_builder *builder, bool *marks)
{
    const struct model_source_recurrent *recurrent = builder->source->recurrent;
    struct kvf_model_layer state = {.owner = KVF_OWNER_TARGET};
    uint64_t units, unit_bytes;
    unsigned sections;

    if (recurrent == NULL) {
        return true;
    }
    memset(marks, 0, builder->target_count * sizeof(*marks));
    sections = model_words_count(&recurrent->sections);
    if (!model_subset(builder, "recurrent layers", &recurrent->layers, marks) ||
        !model_whole(builder, "recurrent units", recurrent->units, 1, MODEL_HEADS_MAX, &units) ||
        !model_whole(builder, "recurrent unit_bytes", recurrent->unit_bytes, 1, MODEL_BYTES_MAX,
                     &unit_bytes)) {
        return false;
    }
    if (sections > KVF_VIEW_SECTIONS_MAX) {
        return model_refuse(builder, "recurrent sections has %u numbers; want at most %d", sections,
                            KVF_VIEW_SECTIONS_MAX);
    }
    for (unsigned i = 0; i < sections; i++) {
        if (!model_whole(builder, "recurrent sections", model_words_at(&recurrent->sections, i), 1,
                         MODEL_BYTES_MAX, &state.section_bytes[i])) {
            return false;
        }
    }
    state.state_units = (uint32_t)units;
    state.state_unit_bytes = unit_bytes;
    state.section_count = sections;
    for (uint32_t i = 0; i < builder->target_count; i++) {
        if (marks[i]) {
            state.head_dim = builder->layers[i].head_dim;
            state.dtype = builder->layers[i].dtype;
            state.elem_bits = builder->layers[i].elem_bits;
            builder->layers[i] = state;
        }
    }
    return true;
}

static bool model_drafts(const struct model_builder *builder)
{
    const struct model_source_draft *draft = builder->source->draft;
    struct kvf_model_layer like = builder->layers[0];
    struct model_element element = {like.head_dim, like.dtype, like.elem_bits};
    bool k_only = like.k_only;

    if (draft == NULL) {
        return true;
    }
    if (!model_word(builder, "draft head_dim", draft->head_dim, 1, MODEL_DIM_MAX,
                    &element.head_dim) ||
        !model_elements(builder, "draft ", draft->elem_bits, draft->dtype, &element) ||
        !model_bool(builder, "draft k_only", draft->k_only, &k_only)) {
        return false;
    }
    for (uint32_t i = 0; i < builder->draft_count; i++) {
        struct kvf_model_layer *layer = &builder->layers[builder->target_count + i];

        layer->owner = KVF_OWNER_DRAFT;
        layer->kv_heads = like.kv_heads;
        layer->head_dim = element.head_dim;
        layer->dtype = element.dtype;
        layer->elem_bits = element.elem_bits;
        layer->k_only = k_only;
    }
    return model_heads(builder, "draft kv_heads", &draft->kv_heads, builder->target_count,
                       builder->draft_count);
}

/* Scales of the target's layers, and of drafts with elements of the same width. */
static bool model_scales(const struct model_builder *builder)
{
    const struct model_source_scale *scale = builder->source->scale;
    uint32_t bits = builder->layers[0].elem_bits;
    uint64_t per, scale_bits;

    if (scale == NULL) {
        return true;
    }
    if (!model_whole(builder, "scale per", scale->per, 1, MODEL_DIM_MAX, &per) ||
        !model_whole(builder, "scale bits", scale->bits, 1, 64, &scale_bits)) {
        return false;
    }
    for (uint32_t i = 0; i < builder->target_count + builder->draft_count; i++) {
        struct kvf_model_layer *layer = &builder->layers[i];

        if (layer->kv_heads == 0 || layer->elem_bits != bits) {
            continue;
        }
        if (layer->head_dim % per != 0) {
            return model_refuse(builder, "scale per is %llu; want a divisor of head_dim %u",
                                (unsigned long long)per, layer->head_dim);
        }
        layer->scale_per = (uint32_t)per;
        layer->scale_bits = (uint32_t)scale_bits;
    }
    return true;
}

static bool model_aux(const struct model_builder *builder, struct model *model)
{
    const struct model_words *words = &builder->source->aux;
    unsigned count = model_words_count(words);

    if (count == 0) {
        return true;
    }
    model->aux = calloc(count, sizeof(*model->aux));
    if (model->aux == NULL) {
        return model_refuse(builder, "no memory");
    }
    for (unsigned i = 0; i < count; i++) {
        if (!model_word(builder, "aux", model_words_at(words, i), 0, 65535, &model->aux[i])) {
            return false;
        }
    }
    model->facts.aux_count = count;
    model->facts.aux_bytes = model->aux;
    return true;
}

static bool model_frame(const struct model_builder *builder, struct model *model)
{
    const struct model_source *source = builder->source;
    struct kvf_model *facts = &model->facts;
    uint64_t block;

    snprintf(model->name, sizeof(model->name), "%s", source->name);
    if (source->layout != NULL && strcmp(source->layout, "HND") != 0 &&
        strcmp(source->layout, "NHD") != 0) {
        return model_refuse(builder, "layout is \"%.60s\"; want HND or NHD", source->layout);
    }
    facts->nhd = source->layout != NULL && strcmp(source->layout, "NHD") == 0;
    if (!model_whole(builder, "block", source->block, 1, 65536, &block) ||
        !model_bool(builder, "mla", source->mla, &facts->mla) ||
        !model_bool(builder, "ownership_bridge", source->ownership_bridge,
                    &facts->ownership_bridge)) {
        return false;
    }
    facts->tokens_per_block = (uint32_t)block;
    return model_aux(builder, model);
}

/* Drops the target layers from `keep` on; the drafts move up. */
static uint32_t model_shorten(struct model_builder *builder, uint32_t keep)
{
    if (keep == 0 || keep >= builder->target_count) {
        return builder->target_count;
    }
    memmove(builder->layers + keep, builder->layers + builder->target_count,
            builder->draft_count * sizeof(*builder->layers));
    return keep;
}

bool model_build(const struct model_source *source, uint32_t scale_layers, struct model *model_out,
                 char *text_out)
{
    struct model_builder builder = {.source = source, .text_out = text_out};
    struct model model = {0};
    bool *marks = NULL;
    uint64_t layers, drafts = 0;
    bool fine;

    fine = model_whole(&builder, "layers", source->layers, 1, MODEL_LAYERS_MAX, &layers) &&
           (source->draft == NULL || model_whole(&builder, "draft layers", source->draft->layers, 1,
                                                 MODEL_LAYERS_MAX, &drafts));
    if (!fine) {
        return false;
    }
    builder.target_count = (uint32_t)layers;
    builder.draft_count = (uint32_t)drafts;
    builder.layers = calloc(layers + drafts, sizeof(*builder.layers));
    marks = calloc(layers, sizeof(*marks));
    model.layers = builder.layers;
    if (builder.layers == NULL || marks == NULL) {
        fine = model_refuse(&builder, "no memory");
    }
    fine = fine && model_frame(&builder, &model) && model_targets(&builder, marks) &&
           model_index(&builder, marks) && model_drafts(&builder) && model_scales(&builder) &&
           model_recurrent(&builder, marks);
    free(marks);
    if (!fine) {
        model_free(&model);
        return false;
    }
    model.target_layers = model_shorten(&builder, scale_layers);
    model.facts.layers = model.layers;
    model.facts.layer_count = model.target_layers + builder.draft_count;
    *model_out = model;
    return true;
}

void model_free(struct model *model)
{
    free(model->layers);
    free(model->aux);
    memset(model, 0, sizeof(*model));
}
