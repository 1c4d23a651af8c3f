/*
 * yaml.h - loads a YAML file by a libcyaml schema whose scalars are all strings, and says what is
 * wrong in one line: file, line, key. Numbers are judged afterwards, by the strict calls of
 * options.h.
 */
#ifndef LAUNCH_YAML_H
#define LAUNCH_YAML_H

#include <stdbool.h>

#include <cyaml/cyaml.h>

#define YAML_TEXT_BYTES 512
#define YAML_NAME_BYTES 64
#define YAML_STRING_MAX 4096

/* What stopped a load. */
struct yaml_failure {
    char reason[256];              /* libcyaml's words */
    char field[YAML_NAME_BYTES];   /* innermost key, "" = none */
    char parent[YAML_NAME_BYTES];  /* key around it, "" = none */
    unsigned line;                 /* 0 = not known */
    bool list_met;                 /* a list where a single value was wanted */
    char unknown[YAML_NAME_BYTES]; /* unknown key, "" = something else */
};

/*
 * Loads `path`. False: failure_out is set. The data belongs to the caller: yaml_free() with the
 * same schema. An empty file is a failure.
 */
bool yaml_load(const char *path, const cyaml_schema_value_t *schema, void **data_out,
               struct yaml_failure *failure_out);

/* The same for a schema that is a list; also says how many it has. */
bool yaml_load_list(const char *path, const cyaml_schema_value_t *schema, void **data_out,
                    unsigned *count_out, struct yaml_failure *failure_out);

void yaml_free_list(const cyaml_schema_value_t *schema, void *data, unsigned count);

void yaml_free(const cyaml_schema_value_t *schema, void *data);

/*
 * Writes "WHAT PATH, line N: ..."; an unknown key is followed by the nearest of `keys`
 * (NULL-ended).
 */
void yaml_describe(const struct yaml_failure *failure, const char *what, const char *path,
                   const char *const *keys, char *text_out);

#endif /* LAUNCH_YAML_H */
