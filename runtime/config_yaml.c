/*
 * config_yaml.c - reads a settings file, with libcyaml. Glue.
 *
 * The schema is made from the table of settings, with every value a string: libcyaml would take
 * "12x" as 12, so the table's own parser judges. libcyaml says what does not fit the schema; the
 * line of a value is looked up in the text, where it is written one key a line.
 */
#include "config.h"

#include <cyaml/cyaml.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "heap.h"

#define FILE_BYTES_MAX (1u << 20)
#define VALUE_BYTES_MAX 4096u
#define LIST_ITEMS_MAX 32u
#define LIST_TEXT_BYTES 512u
#define WHERE_BYTES 300u
#define NAME_BYTES 80u
#define DEPTH_MAX 4u
#define BOUNCE_MAP "agent_bounce_params"

/* ---- what libcyaml fills -------------------------------------------------------------------- */

struct yaml_list {
    char **items;
    uint32_t count;
};

struct yaml_bounce {
    char *values[SETTINGS_COUNT];
};

struct yaml_map {
    char *values[SETTINGS_COUNT];
    struct yaml_list lists[SETTINGS_COUNT];
    struct yaml_bounce *bounce;
};

struct yaml_root {
    struct yaml_map *all;
    struct yaml_map *context;
    struct yaml_map *generation;
    struct yaml_map **instances; /* [instance_count], each may be NULL */
};

/* The schema points into itself: not to be moved. */
struct yaml_schema {
    cyaml_schema_field_t bounce[SETTINGS_COUNT + 1];
    cyaml_schema_field_t map[SETTINGS_COUNT + 2];
    cyaml_schema_field_t root[5];
    cyaml_schema_value_t item;
    cyaml_schema_value_t top;
    cyaml_schema_field_t *instances; /* [instance_count + 1] */
};

static cyaml_schema_value_t yaml_string(void)
{
    return (cyaml_schema_value_t){.type = CYAML_STRING,
                                  .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                                  .data_size = sizeof(char),
                                  .string = {.min = 0, .max = VALUE_BYTES_MAX}};
}

static cyaml_schema_field_t yaml_mapping(const char *key, size_t offset, size_t size,
                                         const cyaml_schema_field_t *fields)
{
    return (cyaml_schema_field_t){.key = key,
                                  .data_offset = (uint32_t)offset,
                                  .value = {.type = CYAML_MAPPING,
                                            .flags = CYAML_FLAG_POINTER | CYAML_FLAG_OPTIONAL,
                                            .data_size = (uint32_t)size,
                                            .mapping = {.fields = fields}}};
}

static void yaml_schema_rows(struct yaml_schema *schema)
{
    size_t bounce = 0;
    size_t top = 0;

    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = settings_row(i);
        cyaml_schema_field_t field = {.key = row->key, .value = yaml_string()};

        if (row->place == SETTINGS_BOUNCE) {
            field.data_offset = (uint32_t)offsetof(struct yaml_bounce, values[i]);
            schema->bounce[bounce++] = field;
            continue;
        }
        field.data_offset = (uint32_t)offsetof(struct yaml_map, values[i]);
        if (row->kind == SETTINGS_LIST_OF) {
            field.data_offset = (uint32_t)offsetof(struct yaml_map, lists[i].items);
            field.count_offset = (uint32_t)offsetof(struct yaml_map, lists[i].count);
            field.count_size = sizeof(uint32_t);
            field.value.type = CYAML_SEQUENCE;
            field.value.data_size = sizeof(char *);
            field.value.sequence.entry = &schema->item;
            field.value.sequence.min = 1; /* an empty one would look absent */
            field.value.sequence.max = LIST_ITEMS_MAX;
        }
        schema->map[top++] = field;
    }
    schema->map[top] = yaml_mapping(BOUNCE_MAP, offsetof(struct yaml_map, bounce),
                                    sizeof(struct yaml_bounce), schema->bounce);
}

/* Members that stay zeroed end each list of fields. */
static enum kvf_status yaml_schema_open(const struct settings_target *target,
                                        struct yaml_schema **schema_out)
{
    const struct kvf_heap *heap = kvf_heap_system();
    struct yaml_schema *schema = kvf_alloc(heap, 1, sizeof(*schema));
    size_t map_bytes = sizeof(struct yaml_map);

    if (schema == NULL)
        return KVF_E_NOMEM;
    schema->instances =
        kvf_alloc(heap, (size_t)target->instance_count + 1, sizeof(*schema->instances));
    if (schema->instances == NULL) {
        kvf_release(heap, schema);
        return KVF_E_NOMEM;
    }
    schema->item = yaml_string();
    schema->item.flags = CYAML_FLAG_POINTER;
    yaml_schema_rows(schema);
    for (uint32_t i = 0; i < target->instance_count; i++)
        schema->instances[i] =
            yaml_mapping(target->instances[i], i * sizeof(void *), map_bytes, schema->map);
    schema->root[0] = yaml_mapping("all", offsetof(struct yaml_root, all), map_bytes, schema->map);
    schema->root[1] =
        yaml_mapping("context", offsetof(struct yaml_root, context), map_bytes, schema->map);
    schema->root[2] =
        yaml_mapping("generation", offsetof(struct yaml_root, generation), map_bytes, schema->map);
    schema->root[3] =
        yaml_mapping("instances", offsetof(struct yaml_root, instances),
                     ((size_t)target->instance_count + 1) * sizeof(void *), schema->instances);
    schema->top = (cyaml_schema_value_t){.type = CYAML_MAPPING,
                                         .flags = CYAML_FLAG_POINTER,
                                         .data_size = sizeof(struct yaml_root),
                                         .mapping = {.fields = schema->root}};
    *schema_out = schema;
    return KVF_OK;
}

static void yaml_schema_close(struct yaml_schema *schema)
{
    const struct kvf_heap *heap = kvf_heap_system();

    kvf_release(heap, schema->instances);
    kvf_release(heap, schema);
}

/* ---- lines ---------------------------------------------------------------------------------- */

struct yaml_path {
    unsigned depth;
    char names[DEPTH_MAX][NAME_BYTES];
};

static void yaml_path_push(struct yaml_path *path, const char *name)
{
    if (path->depth < DEPTH_MAX)
        (void)snprintf(path->names[path->depth++], NAME_BYTES, "%s", name);
}

/* The key of a line "  key: ..."; false when there is none. */
static bool yaml_line_key(const char *line, size_t line_len, size_t *indent_out, char *key_out)
{
    size_t indent = 0;
    size_t len = 0;

    while (indent < line_len && line[indent] == ' ')
        indent++;
    line += indent;
    line_len -= indent;
    if (line_len > 0 && (line[0] == '"' || line[0] == '\'')) {
        line++;
        line_len--;
    }
    while (len < line_len && len < NAME_BYTES - 1 && strchr(":\"' #", line[len]) == NULL)
        len++;
    if (len == 0 || len == line_len || line[len] == '#')
        return false;
    memcpy(key_out, line, len);
    key_out[len] = 0;
    *indent_out = indent;
    return true;
}

/* Line (from 1) on which the path stands in block style, or 0. */
static uint32_t yaml_line_of(const char *text, const struct yaml_path *path)
{
    struct yaml_path here = {0};
    size_t indents[DEPTH_MAX] = {0};
    uint32_t line = 1;

    for (const char *at = text; *at != 0; line++) {
        size_t len = strcspn(at, "\n");
        char key[NAME_BYTES];
        size_t indent;

        if (yaml_line_key(at, len, &indent, key)) {
            bool same;

            while (here.depth > 0 && indents[here.depth - 1] >= indent)
                here.depth--;
            if (here.depth < DEPTH_MAX)
                indents[here.depth] = indent;
            yaml_path_push(&here, key);
            same = here.depth == path->depth;
            for (unsigned i = 0; same && i < path->depth; i++)
                same = strcmp(here.names[i], path->names[i]) == 0;
            if (same)
                return line;
        }
        at += len;
        at += *at == '\n';
    }
    return 0;
}

/* ---- what libcyaml complains of ------------------------------------------------------------- */

struct yaml_complaint {
    char text[SETTINGS_NOTE_BYTES]; /* the first line, "" = none */
    uint32_t line;                  /* of the innermost mapping, about; 0 = not known */
    struct yaml_path inner;         /* names of the mappings, innermost first */
};

static void yaml_log(cyaml_log_t level, void *self, const char *format, va_list args)
{
    static const char load[] = "Load: ";
    static const char field[] = "in mapping field '";
    struct yaml_complaint *complaint = self;
    char text[SETTINGS_NOTE_BYTES];
    const char *at;

    (void)level;
    (void)vsnprintf(text, sizeof(text), format, args);
    text[strcspn(text, "\n")] = 0;
    at = strstr(text, "(line: ");
    if (at != NULL) {
        if (complaint->line == 0)
            complaint->line = (uint32_t)strtoul(at + strlen("(line: "), NULL, 10);
        at = strstr(text, field);
        if (at != NULL) {
            char name[NAME_BYTES];

            (void)snprintf(name, sizeof(name), "%s", at + strlen(field));
            name[strcspn(name, "'")] = 0;
            yaml_path_push(&complaint->inner, name);
        }
    } else if (complaint->text[0] == 0 && strstr(text, "Backtrace") == NULL) {
        at = strncmp(text, load, strlen(load)) == 0 ? text + strlen(load) : text;
        (void)snprintf(complaint->text, sizeof(complaint->text), "%s", at);
    }
}

static void yaml_where(const char *name, uint32_t line, char *where_out)
{
    if (line == 0)
        (void)snprintf(where_out, WHERE_BYTES, "%.200s: ", name);
    else
        (void)snprintf(where_out, WHERE_BYTES, "%.200s:%" PRIu32 ": ", name, line);
}

/* The text, where the path stands in it, the name for errors. */
struct yaml_source {
    const char *text;
    const char *name;
    const struct settings_target *target;
    struct settings_report *report;
};

static enum kvf_status yaml_fail_key(const struct yaml_source *source,
                                     const struct yaml_complaint *complaint, const char *key)
{
    const struct settings_target *target = source->target;
    struct yaml_path path = {0};
    char where[WHERE_BYTES];
    unsigned index = settings_find(key);

    for (unsigned i = complaint->inner.depth; i > 0; i--)
        yaml_path_push(&path, complaint->inner.names[i - 1]);
    yaml_path_push(&path, key);
    yaml_where(source->name, yaml_line_of(source->text, &path), where);
    if (path.depth == 1)
        return settings_fail(source->report,
                             "%sunknown map \"%.80s\"; want all, context, generation or instances",
                             where, key);
    if (path.depth == 2 && strcmp(path.names[0], "instances") == 0) {
        const char *nearest = target->instance_count > 0 ? target->instances[0] : "none";

        for (uint32_t i = 1; i < target->instance_count; i++)
            if (settings_distance(target->instances[i], key) < settings_distance(nearest, key))
                nearest = target->instances[i];
        return settings_fail(source->report,
                             "%sunknown instance \"%.80s\"; the nearest in the topology is %s",
                             where, key, nearest);
    }
    if (index == SETTINGS_COUNT)
        return settings_fail_unknown(source->report, where, key);
    return settings_fail(source->report, "%s%s belongs %s the map " BOUNCE_MAP, where, key,
                         settings_row(index)->place == SETTINGS_BOUNCE ? "inside" : "outside");
}

static enum kvf_status yaml_fail(const struct yaml_source *source,
                                 const struct yaml_complaint *complaint, cyaml_err_t error)
{
    static const char unexpected[] = "Unexpected key: ";
    struct yaml_path path = {0};
    char where[WHERE_BYTES];
    uint32_t line;

    if (error == CYAML_ERR_INVALID_KEY &&
        strncmp(complaint->text, unexpected, strlen(unexpected)) == 0)
        return yaml_fail_key(source, complaint, complaint->text + strlen(unexpected));
    for (unsigned i = complaint->inner.depth; i > 0; i--)
        yaml_path_push(&path, complaint->inner.names[i - 1]);
    line = error == CYAML_ERR_INVALID_VALUE ? yaml_line_of(source->text, &path) : 0;
    yaml_where(source->name, line != 0 ? line : complaint->line, where);
    if (complaint->inner.depth == 0)
        return settings_fail(source->report, "%s%s", where,
                             complaint->text[0] != 0 ? complaint->text : cyaml_strerror(error));
    return settings_fail(source->report, "%s%s: %s", where, complaint->inner.names[0],
                         complaint->text[0] != 0 ? complaint->text : cyaml_strerror(error));
}

/* ---- applying ------------------------------------------------------------------------------- */

static enum kvf_status yaml_apply_value(struct kvf_settings *settings,
                                        const struct yaml_source *source, unsigned index,
                                        const char *value, enum settings_origin origin,
                                        struct yaml_path path)
{
    const struct settings_row *row = settings_row(index);
    char where[WHERE_BYTES];
    enum kvf_status status;
    uint32_t line;

    if (row->place == SETTINGS_BOUNCE)
        yaml_path_push(&path, BOUNCE_MAP);
    yaml_path_push(&path, row->key);
    line = yaml_line_of(source->text, &path);
    yaml_where(source->name, line, where);
    status = settings_set(settings, row->key, value, origin, where, source->report);
    if (status == KVF_OK && settings->origins[index] == (uint8_t)origin)
        settings->lines[index] = line;
    return status;
}

/* Joins with commas, as the environment writes it; false when it is too long. */
static bool yaml_join(const struct yaml_list *list, char *text_out)
{
    size_t at = 0;

    text_out[0] = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        int len = snprintf(text_out + at, LIST_TEXT_BYTES - at, "%s%s", i == 0 ? "" : ",",
                           list->items[i]);

        if (len < 0 || (size_t)len >= LIST_TEXT_BYTES - at)
            return false;
        at += (size_t)len;
    }
    return true;
}

static enum kvf_status yaml_apply_map(struct kvf_settings *settings,
                                      const struct yaml_source *source, const struct yaml_map *map,
                                      enum settings_origin origin, const struct yaml_path *path)
{
    char joined[LIST_TEXT_BYTES];
    enum kvf_status status = KVF_OK;

    if (map == NULL)
        return KVF_OK;
    for (unsigned i = 0; i < SETTINGS_COUNT && status == KVF_OK; i++) {
        const char *value = map->values[i];

        if (settings_row(i)->place == SETTINGS_BOUNCE)
            value = map->bounce == NULL ? NULL : map->bounce->values[i];
        if (map->lists[i].items != NULL)
            value = yaml_join(&map->lists[i], joined) ? joined : "too long";
        if (value != NULL)
            status = yaml_apply_value(settings, source, i, value, origin, *path);
    }
    if (map->bounce != NULL)
        settings->has_bounce_params = true;
    return status;
}

/* Maps that are not this target's are judged too, on a copy: a file is wrong for all or none. */
static enum kvf_status yaml_apply(struct kvf_settings *settings, const struct yaml_source *source,
                                  const struct yaml_root *root)
{
    const struct settings_target *target = source->target;
    const struct yaml_map *sides[] = {
        [KVF_CONTEXT] = root->context,
        [KVF_GENERATION] = root->generation,
    };
    static const char *const names[] = {
        [KVF_CONTEXT] = "context",
        [KVF_GENERATION] = "generation",
    };
    struct kvf_settings copy = *settings;
    enum kvf_status status;

    status = yaml_apply_map(settings, source, root->all, SETTINGS_FROM_ALL,
                            &(struct yaml_path){.depth = 1, .names = {"all"}});
    for (unsigned side = 0; side < 2 && status == KVF_OK; side++) {
        struct yaml_path path = {0};

        yaml_path_push(&path, names[side]);
        status = yaml_apply_map(side == (unsigned)target->side ? settings : &copy, source,
                                sides[side], SETTINGS_FROM_SIDE, &path);
    }
    for (uint32_t i = 0; root->instances != NULL && i < target->instance_count; i++) {
        bool is_mine = strcmp(target->instances[i], target->instance) == 0;
        struct yaml_path path = {0};

        if (status != KVF_OK)
            break;
        yaml_path_push(&path, "instances");
        yaml_path_push(&path, target->instances[i]);
        status = yaml_apply_map(is_mine ? settings : &copy, source, root->instances[i],
                                SETTINGS_FROM_INSTANCE, &path);
    }
    return status;
}

enum kvf_status settings_load_yaml_text(struct kvf_settings *settings, const char *text,
                                        const char *name, const struct settings_target *target,
                                        struct settings_report *report)
{
    struct yaml_source source = {text, name, target, report};
    struct yaml_complaint complaint = {.text = ""};
    cyaml_config_t config = {.log_fn = yaml_log,
                             .log_ctx = &complaint,
                             .mem_fn = cyaml_mem,
                             .log_level = CYAML_LOG_WARNING,
                             .flags = CYAML_CFG_NO_ALIAS};
    struct kvf_settings result = *settings;
    struct yaml_schema *schema;
    struct yaml_root *root = NULL;
    enum kvf_status status;
    cyaml_err_t error;

    status = yaml_schema_open(target, &schema);
    if (status != KVF_OK)
        return status;
    error = cyaml_load_data((const uint8_t *)text, strlen(text), &config, &schema->top,
                            (cyaml_data_t **)&root, NULL);
    if (error == CYAML_ERR_OOM)
        status = KVF_E_NOMEM;
    else if (error != CYAML_OK || complaint.text[0] != 0) /* warnings count: a second document */
        status = yaml_fail(&source, &complaint, error);
    else if (root != NULL)
        status = yaml_apply(&result, &source, root);
    (void)cyaml_free(&config, &schema->top, root, 0);
    yaml_schema_close(schema);
    if (status == KVF_OK)
        *settings = result;
    return status;
}

enum kvf_status settings_load_yaml_file(struct kvf_settings *settings, const char *path,
                                        const struct settings_target *target,
                                        struct settings_report *report)
{
    const struct kvf_heap *heap = kvf_heap_system();
    enum kvf_status status;
    size_t len;
    char *text;
    FILE *file = fopen(path, "r");

    if (file == NULL)
        return settings_fail(report, "settings file %.200s cannot be read: %s", path,
                             strerror(errno));
    text = kvf_alloc(heap, FILE_BYTES_MAX + 1, 1);
    if (text == NULL) {
        status = KVF_E_NOMEM;
        goto close_file;
    }
    errno = 0;
    len = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file))
        status =
            settings_fail(report, "settings file %.200s cannot be read: %s", path, strerror(errno));
    else if (len > FILE_BYTES_MAX)
        status = settings_fail(report, "settings file %.200s is longer than %u bytes", path,
                               FILE_BYTES_MAX);
    else if (memchr(text, 0, len) != NULL)
        status = settings_fail(report, "settings file %.200s is not text", path);
    else
        status = settings_load_yaml_text(settings, text, path, target, report);
    kvf_release(heap, text);

close_file:
    (void)fclose(file);
    return status;
}
