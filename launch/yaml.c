/* yaml.c - see yaml.h. */
#include "yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "options.h"

#define YAML_KEYS_MAX 64

/* Copies what stands between the first two quotes of a line. */
static bool yaml_quoted(const char *line, char *name_out)
{
    const char *from = strchr(line, '\'');
    const char *to = from != NULL ? strchr(from + 1, '\'') : NULL;

    if (to == NULL) {
        return false;
    }
    snprintf(name_out, YAML_NAME_BYTES, "%.*s", (int)(to - from - 1), from + 1);
    return true;
}

static void yaml_log_line(struct yaml_failure *failure, const char *line)
{
    static const char unknown[] = "Unexpected key: ";
    const char *at;

    if (strncmp(line, "Load: ", 6) == 0) {
        line += 6;
        if (strncmp(line, "Backtrace", 9) != 0 && failure->reason[0] == '\0') {
            snprintf(failure->reason, sizeof(failure->reason), "%.*s", (int)strcspn(line, "\n"),
                     line);
            failure->list_met =
                strstr(line, "Expecting STRING") != NULL && strstr(line, "SEQUENCE_START") != NULL;
            if (strncmp(line, unknown, sizeof(unknown) - 1) == 0) {
                line += sizeof(unknown) - 1;
                snprintf(failure->unknown, sizeof(failure->unknown), "%.*s",
                         (int)strcspn(line, "\n"), line);
            }
        }
        return;
    }
    at = strstr(line, "(line: ");
    if (at != NULL && failure->line == 0) {
        sscanf(at, "(line: %u", &failure->line);
    }
    if (strstr(line, "in mapping field") != NULL) {
        if (failure->field[0] == '\0') {
            yaml_quoted(line, failure->field);
        } else if (failure->parent[0] == '\0') {
            yaml_quoted(line, failure->parent);
        }
    }
}

static void yaml_log(cyaml_log_t level, void *self, const char *format, va_list args)
{
    char line[512];

    (void)level;
    vsnprintf(line, sizeof(line), format, args);
    yaml_log_line(self, line);
}

static cyaml_config_t yaml_config(struct yaml_failure *failure)
{
    cyaml_config_t config = {
        .log_level = CYAML_LOG_ERROR,
        .log_fn = yaml_log,
        .log_ctx = failure,
        .mem_fn = cyaml_mem,
    };

    return config;
}

bool yaml_load(const char *path, const cyaml_schema_value_t *schema, void **data_out,
               struct yaml_failure *failure_out)
{
    return yaml_load_list(path, schema, data_out, NULL, failure_out);
}

bool yaml_load_list(const char *path, const cyaml_schema_value_t *schema, void **data_out,
                    unsigned *count_out, struct yaml_failure *failure_out)
{
    cyaml_config_t config = yaml_config(failure_out);
    cyaml_data_t *data = NULL;
    FILE *file;
    cyaml_err_t error;

    memset(failure_out, 0, sizeof(*failure_out));
    file = fopen(path, "r");
    if (file == NULL) {
        snprintf(failure_out->reason, sizeof(failure_out->reason), "%s", strerror(errno));
        return false;
    }
    fclose(file);
    error = cyaml_load_file(path, &config, schema, &data, count_out);
    if (error == CYAML_OK && data != NULL) {
        *data_out = data;
        return true;
    }
    if (failure_out->reason[0] == '\0') {
        snprintf(failure_out->reason, sizeof(failure_out->reason), "%s",
                 error == CYAML_OK ? "is empty" : cyaml_strerror(error));
    }
    return false;
}

void yaml_free(const cyaml_schema_value_t *schema, void *data)
{
    yaml_free_list(schema, data, 0);
}

void yaml_free_list(const cyaml_schema_value_t *schema, void *data, unsigned count)
{
    struct yaml_failure ignored;
    cyaml_config_t config = yaml_config(&ignored);

    cyaml_free(&config, schema, data, count);
}

void yaml_describe(const struct yaml_failure *failure, const char *what, const char *path,
                   const char *const *keys, char *text_out)
{
    size_t count = 0;
    const char *near;
    int len = snprintf(text_out, YAML_TEXT_BYTES, "%s %.200s", what, path);

    if (failure->line != 0) {
        len += snprintf(text_out + len, YAML_TEXT_BYTES - (size_t)len, ", line %u", failure->line);
    }
    while (keys[count] != NULL && count < YAML_KEYS_MAX) {
        count++;
    }
    if (failure->unknown[0] != '\0') {
        near = options_nearest(failure->unknown, keys, count);
        snprintf(text_out + len, YAML_TEXT_BYTES - (size_t)len, ": unknown key \"%s\"%s%s",
                 failure->unknown, near != NULL ? "; the nearest is " : "",
                 near != NULL ? near : "");
    } else if (failure->field[0] != '\0') {
        snprintf(text_out + len, YAML_TEXT_BYTES - (size_t)len, ": %s: %s", failure->field,
                 failure->reason);
    } else {
        snprintf(text_out + len, YAML_TEXT_BYTES - (size_t)len, ": %s", failure->reason);
    }
}
