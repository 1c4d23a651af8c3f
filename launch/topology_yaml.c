/* topology_yaml.c - see topology_yaml.h. */
#include "topology_yaml.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "data.h"
#include "say.h"
#include "yaml.h"

#define TOPOLOGY_FORM_BYTES 65536

/* One instance as it stands in a file; absent keys are NULL. */
struct topology_part {
    char *role, *tp, *pp, *dp, *adp, *count, *name;
    char **layers;
    unsigned layers_count;
};

#define OPTIONAL (CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL)
#define WORD(key, member) \
    CYAML_FIELD_STRING_PTR(key, OPTIONAL, struct topology_part, member, 0, YAML_STRING_MAX)

static const cyaml_schema_value_t word_schema = {
    CYAML_VALUE_STRING(CYAML_FLAG_POINTER, char, 0, YAML_STRING_MAX),
};

static const cyaml_schema_field_t part_fields[] = {
    CYAML_FIELD_STRING_PTR("role", CYAML_FLAG_POINTER, struct topology_part, role, 0,
                           YAML_STRING_MAX),
    WORD("tp", tp),
    WORD("pp", pp),
    WORD("dp", dp),
    WORD("adp", adp),
    WORD("count", count),
    WORD("name", name),
    CYAML_FIELD_SEQUENCE("layers", OPTIONAL, struct topology_part, layers, &word_schema, 0,
                         CYAML_UNLIMITED),
    CYAML_FIELD_END,
};

static const cyaml_schema_value_t part_schema = {
    CYAML_VALUE_MAPPING(CYAML_FLAG_DEFAULT, struct topology_part, part_fields),
};

static const char *const topology_keys[] = {"role",  "tp",   "pp",     "dp", "adp",
                                            "count", "name", "layers", NULL};

/* The text form while it is made. */
struct topology_text {
    char form[TOPOLOGY_FORM_BYTES];
    size_t len;
    const char *path;
    char *text_out;
};

SAY_PRINTF(2, 3)
static void topology_add(struct topology_text *text, const char *format, ...)
{
    size_t room = sizeof(text->form) - text->len;
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(text->form + text->len, room, format, args);
    va_end(args);
    text->len += len >= 0 && (size_t)len < room ? (size_t)len : room - 1;
}

/* A value goes into the text form, so it must not bring words or parts of its own. */
static bool topology_word_fine(struct topology_text *text, const char *key, const char *value)
{
    if (value == NULL || strpbrk(value, " \t\r\n;=,") == NULL) {
        return true;
    }
    snprintf(text->text_out, TOPOLOGY_TEXT_BYTES, "topology %.200s: %s is \"%.60s\"; want one word",
             text->path, key, value);
    return false;
}

static bool topology_part(struct topology_text *text, const struct topology_part *part)
{
    const struct {
        const char *key, *form, *value;
    } words[] = {{"tp", "tp", part->tp},
                 {"pp", "pp", part->pp},
                 {"dp", "dp", part->dp},
                 {"count", "x", part->count},
                 {"name", "name", part->name}};

    if (!topology_word_fine(text, "role", part->role)) {
        return false;
    }
    topology_add(text, "%s%s", text->len > 0 ? "; " : "", part->role);
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!topology_word_fine(text, words[i].key, words[i].value)) {
            return false;
        }
        if (words[i].value != NULL) {
            topology_add(text, " %s=%s", words[i].form, words[i].value);
        }
    }
    if (part->adp != NULL && strcmp(part->adp, "true") != 0 && strcmp(part->adp, "false") != 0) {
        snprintf(text->text_out, TOPOLOGY_TEXT_BYTES,
                 "topology %.200s: adp is \"%.60s\"; want true or false", text->path, part->adp);
        return false;
    }
    topology_add(text, "%s", part->adp != NULL && part->adp[0] == 't' ? " adp" : "");
    for (unsigned i = 0; i < part->layers_count; i++) {
        if (!topology_word_fine(text, "layers", part->layers[i])) {
            return false;
        }
        topology_add(text, "%s%s", i == 0 ? " layers=" : ",", part->layers[i]);
    }
    return true;
}

static bool topology_file(const char *path, struct kvf_topology **topology_out, char *text_out)
{
    static const cyaml_schema_value_t schema = {
        CYAML_VALUE_SEQUENCE(CYAML_FLAG_POINTER, struct topology_part, &part_schema, 0,
                             CYAML_UNLIMITED),
    };
    static struct topology_text text; /* large; the command line is read once, by one thread */
    char reason[TOPOLOGY_TEXT_BYTES / 2];
    struct yaml_failure failure;
    struct topology_part *parts;
    bool fine = true;
    void *data;
    unsigned count;

    if (!yaml_load_list(path, &schema, &data, &count, &failure)) {
        yaml_describe(&failure, "topology", path, topology_keys, text_out);
        return false;
    }
    parts = data;
    text.len = 0;
    text.path = path;
    text.text_out = text_out;
    for (unsigned i = 0; fine && i < count; i++) {
        fine = topology_part(&text, &parts[i]);
    }
    yaml_free_list(&schema, data, count);
    if (!fine) {
        return false;
    }
    if (kvf_topology_parse(text.form, topology_out, reason, sizeof(reason)) != KVF_OK) {
        snprintf(text_out, TOPOLOGY_TEXT_BYTES, "topology file %.200s: %s", path, reason);
        return false;
    }
    return true;
}

bool topology_load(const char *text, struct kvf_topology **topology_out, char *text_out)
{
    char path[DATA_PATH_BYTES];
    char near[DATA_NAME_BYTES];

    if (data_is_path(text)) {
        return topology_file(text, topology_out, text_out);
    }
    if (strpbrk(text, " ;=") == NULL && strcmp(text, "ctx") != 0 && strcmp(text, "gen") != 0 &&
        text[0] != '\0') {
        if (data_find("topologies", text, path, near)) {
            return topology_file(path, topology_out, text_out);
        }
        snprintf(text_out, TOPOLOGY_TEXT_BYTES,
                 "no topology \"%.60s\"%s%s; want a name from %.200s, a file with '/' or .yaml in "
                 "it, or a text as in \"ctx tp=2 pp=2; gen tp=4\"",
                 text, near[0] != '\0' ? "; the nearest is " : "", near, path);
        return false;
    }
    return kvf_topology_parse(text, topology_out, text_out, TOPOLOGY_TEXT_BYTES) == KVF_OK;
}
