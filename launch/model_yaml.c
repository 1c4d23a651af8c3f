/* model_yaml.c - reads model files by libcyaml: model_load() of model.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "model.h"
#include "options.h"
#include "yaml.h"

static const cyaml_schema_value_t word_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, YAML_STRING_MAX),
};

#define OPTIONAL (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)
#define WORD(key, type, member) \
    CYAML_FIELD_STRING_PTR(key, OPTIONAL, struct type, member, 0, YAML_STRING_MAX)
#define WORD_LIST(key_, type, member) \
    { \
        .key = key_, \
        .value = {CYAML_VALUE_SEQUENCE(OPTIONAL, char *, &word_schema, 0, CYAML_UNLIMITED)}, \
        .data_offset = offsetof(struct type, member.list), \
        .count_size = sizeof(((struct type *)NULL)->member.list_count), \
        .count_offset = offsetof(struct type, member.list_count), \
    }

static const char *const model_keys[] = {
    "name",
    "layers",
    "kv_heads",
    "head_dim",
    "elem_bits",
    "dtype",
    "block",
    "layout",
    "mla",
    "window",
    "k_only",
    "scale",
    "per",
    "bits",
    "index",
    "bytes",
    "draft",
    "recurrent",
    "sections",
    "units",
    "unit_bytes",
    "aux",
    "ownership_bridge",
    NULL,
};

/* Fields that take one value or a list: which of the two stands in the file is tried. */
enum flexible {
    FLEX_KV_HEADS,
    FLEX_WINDOW,
    FLEX_K_ONLY,
    FLEX_INDEX_LAYERS,
    FLEX_RECURRENT_LAYERS,
    FLEX_DRAFT_KV_HEADS,
};
#define FLEX_COUNT 6

struct flexible_row {
    const char *parent; /* "" = top */
    const char *field;
    cyaml_schema_field_t one;
    cyaml_schema_field_t list;
};

static const struct flexible_row flexible_rows[FLEX_COUNT] = {
    {"", "kv_heads", WORD("kv_heads", model_source, kv_heads.one),
     WORD_LIST("kv_heads", model_source, kv_heads)},
    {"", "window", WORD("window", model_source, window.one),
     WORD_LIST("window", model_source, window)},
    {"", "k_only", WORD("k_only", model_source, k_only.one),
     WORD_LIST("k_only", model_source, k_only)},
    {"index", "layers", WORD("layers", model_source_index, layers.one),
     WORD_LIST("layers", model_source_index, layers)},
    {"recurrent", "layers", WORD("layers", model_source_recurrent, layers.one),
     WORD_LIST("layers", model_source_recurrent, layers)},
    {"draft", "kv_heads", WORD("kv_heads", model_source_draft, kv_heads.one),
     WORD_LIST("kv_heads", model_source_draft, kv_heads)},
};

/* A schema for one choice of the flexible fields. */
struct model_schema {
    cyaml_schema_field_t index[4];
    cyaml_schema_field_t recurrent[5];
    cyaml_schema_field_t draft[7];
    cyaml_schema_field_t top[18];
    cyaml_schema_value_t value;
};

static cyaml_schema_field_t flexible_pick(const bool *lists, enum flexible which)
{
    return lists[which] ? flexible_rows[which].list : flexible_rows[which].one;
}

static void model_schema_parts(struct model_schema *schema, const bool *lists)
{
    const cyaml_schema_field_t end = CYAML_FIELD_END;
    const cyaml_schema_field_t index[] = {
        WORD("bytes", model_source_index, bytes),
        flexible_pick(lists, FLEX_INDEX_LAYERS),
        end,
    };
    const cyaml_schema_field_t recurrent[] = {
        flexible_pick(lists, FLEX_RECURRENT_LAYERS),
        WORD_LIST("sections", model_source_recurrent, sections),
        WORD("units", model_source_recurrent, units),
        WORD("unit_bytes", model_source_recurrent, unit_bytes),
        end,
    };
    const cyaml_schema_field_t draft[] = {
        WORD("layers", model_source_draft, layers),
        WORD("head_dim", model_source_draft, head_dim),
        WORD("elem_bits", model_source_draft, elem_bits),
        WORD("dtype", model_source_draft, dtype),
        WORD("k_only", model_source_draft, k_only),
        flexible_pick(lists, FLEX_DRAFT_KV_HEADS),
        end,
    };

    memcpy(schema->index, index, sizeof(index));
    memcpy(schema->recurrent, recurrent, sizeof(recurrent));
    memcpy(schema->draft, draft, sizeof(draft));
}

static const cyaml_schema_field_t scale_schema[] = {
    WORD("per", model_source_scale, per),
    WORD("bits", model_source_scale, bits),
    CYAML_FIELD_END,
};

static void model_schema_make(struct model_schema *schema, const bool *lists)
{
    const cyaml_schema_field_t end = CYAML_FIELD_END;
    const cyaml_schema_field_t top[] = {
        CYAML_FIELD_STRING_PTR("name", CYAML_FLAG_POINTER, struct model_source, name, 1,
                               MODEL_NAME_BYTES - 1),
        WORD("layers", model_source, layers),
        WORD("head_dim", model_source, head_dim),
        WORD("elem_bits", model_source, elem_bits),
        WORD("dtype", model_source, dtype),
        WORD("block", model_source, block),
        WORD("layout", model_source, layout),
        WORD("mla", model_source, mla),
        WORD("ownership_bridge", model_source, ownership_bridge),
        flexible_pick(lists, FLEX_KV_HEADS),
        flexible_pick(lists, FLEX_WINDOW),
        flexible_pick(lists, FLEX_K_ONLY),
        WORD_LIST("aux", model_source, aux),
        CYAML_FIELD_MAPPING_PTR("scale", OPTIONAL, struct model_source, scale, scale_schema),
        CYAML_FIELD_MAPPING_PTR("index", OPTIONAL, struct model_source, index, schema->index),
        CYAML_FIELD_MAPPING_PTR("recurrent", OPTIONAL, struct model_source, recurrent,
                                schema->recurrent),
        CYAML_FIELD_MAPPING_PTR("draft", OPTIONAL, struct model_source, draft, schema->draft),
        end,
    };
    const cyaml_schema_value_t value = {
        CYAML_VALUE_MAPPING(CYAML_FLAG_POINTER, struct model_source, schema->top),
    };

    model_schema_parts(schema, lists);
    memcpy(schema->top, top, sizeof(top));
    memcpy(&schema->value, &value, sizeof(value));
}

/* True when the failure is a list in a flexible field that was tried as one value. */
static bool model_flip(const struct yaml_failure *failure, bool *lists)
{
    for (unsigned i = 0; failure->list_met && i < FLEX_COUNT; i++) {
        if (!lists[i] && strcmp(flexible_rows[i].field, failure->field) == 0 &&
            strcmp(flexible_rows[i].parent, failure->parent) == 0) {
            lists[i] = true;
            return true;
        }
    }
    return false;
}

static bool model_file(const char *path, uint32_t scale_layers, struct model *model_out,
                       char *text_out)
{
    bool lists[FLEX_COUNT] = {false};
    struct model_schema schema;
    struct yaml_failure failure;
    char whole[MODEL_TEXT_BYTES];
    void *source;
    bool fine;

    do {
        model_schema_make(&schema, lists);
        fine = yaml_load(path, &schema.value, &source, &failure);
    } while (!fine && model_flip(&failure, lists));
    if (!fine) {
        yaml_describe(&failure, "model", path, model_keys, text_out);
        return false;
    }
    fine = model_build(source, scale_layers, model_out, whole);
    yaml_free(&schema.value, source);
    if (!fine) {
        snprintf(text_out, MODEL_TEXT_BYTES, "model %.200s: %.290s", path, whole);
    }
    return fine;
}

bool model_load(const char *name, uint32_t scale_layers, struct model *model_out, char *text_out)
{
    char path[DATA_PATH_BYTES];
    char near[YAML_NAME_BYTES];

    if (data_is_path(name)) {
        return model_file(name, scale_layers, model_out, text_out);
    }
    if (data_find("models", name, path, near)) {
        return model_file(path, scale_layers, model_out, text_out);
    }
    if (near[0] != '\0') {
        snprintf(text_out, MODEL_TEXT_BYTES, "no model \"%.60s\"; the nearest is %s", name, near);
    } else {
        snprintf(
            text_out, MODEL_TEXT_BYTES,
            "no model \"%.60s\" in %.200s; want a name from there, or a file with '/' or .yaml "
            "in it",
            name, path);
    }
    return false;
}
