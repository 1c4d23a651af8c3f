/* geometry_json.c - reads a geometry dump. See geometry_json.h. */
#include "geometry_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry_json_internal.h"

void reading_wrong(struct reading *reading, const char *format, ...)
{
    char what[256];
    va_list args;

    if (reading->status != KVF_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (reading->index == READING_WHOLE) {
        geo_text_set(reading->text_out, "%s: %s", reading->where, what);
    } else {
        geo_text_set(reading->text_out, "%s[%u]: %s", reading->where, reading->index, what);
    }
    reading->status = KVF_E_PARSE;
}

void *reading_take(struct reading *reading, size_t count, size_t size)
{
    enum { HEAD_BYTES = 16 };
    struct block *block = NULL;

    if (count <= (SIZE_MAX / 2) / (size == 0 ? 1 : size)) {
        block = calloc(1, HEAD_BYTES + count * size);
    }
    if (block == NULL) {
        if (reading->status == KVF_OK) {
            reading->status = KVF_E_NOMEM;
        }
        return NULL;
    }
    block->next = reading->blocks;
    reading->blocks = block;
    return (unsigned char *)block + HEAD_BYTES;
}

static void free_blocks(struct block *block)
{
    while (block != NULL) {
        struct block *next = block->next;

        free(block);
        block = next;
    }
}

/* ---- values --------------------------------------------------------------------------------- */

uint64_t reading_number(struct reading *reading, const json_t *value, const char *key, uint64_t max)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        reading_wrong(reading, "%s is missing or no whole number from 0 to %" PRIu64, key, max);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

uint32_t reading_u32(struct reading *reading, const json_t *object, const char *key)
{
    return (uint32_t)reading_number(reading, json_object_get(object, key), key, UINT32_MAX);
}

static uint64_t get_u64(struct reading *reading, const json_t *object, const char *key)
{
    return reading_number(reading, json_object_get(object, key), key, INT64_MAX);
}

/* `otherwise` where the key is absent or null. */
uint32_t reading_u32_or(struct reading *reading, const json_t *object, const char *key,
                        uint32_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL || json_is_null(value)) {
        return otherwise;
    }
    return (uint32_t)reading_number(reading, value, key, UINT32_MAX);
}

static bool get_bool(struct reading *reading, const json_t *object, const char *key,
                     bool must_be_there)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL && !must_be_there) {
        return false;
    }
    if (!json_is_boolean(value)) {
        reading_wrong(reading, "%s is missing or neither true nor false", key);
    }
    return json_is_true(value);
}

static const char *get_string(struct reading *reading, const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    if (value == NULL) {
        reading_wrong(reading, "%s is missing or no string", key);
        return "";
    }
    return value;
}

/* An array's length, bounded; 0 after an error. */
uint32_t reading_array(struct reading *reading, const json_t *object, const char *key, uint32_t max,
                       const json_t **array_out)
{
    const json_t *array = json_object_get(object, key);

    *array_out = array;
    if (!json_is_array(array) || json_array_size(array) > max) {
        reading_wrong(reading, "%s is missing or no list of at most %u", key, max);
        return 0;
    }
    return (uint32_t)json_array_size(array);
}

static const uint32_t *get_u32_list(struct reading *reading, const json_t *object, const char *key,
                                    uint32_t max, uint32_t *count_out)
{
    const json_t *array;
    uint32_t count = reading_array(reading, object, key, max, &array);
    uint32_t *values = reading_take(reading, count, sizeof(*values));

    *count_out = values == NULL ? 0 : count;
    for (uint32_t i = 0; i < *count_out; i++) {
        values[i] = (uint32_t)reading_number(reading, json_array_get(array, i), key, UINT32_MAX);
    }
    return values;
}

/* Index of `name` among names, or `count` when it is not there. */
static uint32_t index_of(const char *name, const char *const *names, uint32_t count)
{
    uint32_t i = 0;

    while (i < count && strcmp(names[i], name) != 0) {
        i++;
    }
    return i;
}

static enum kvf_dtype dtype_of(struct reading *reading, const char *name)
{
    static const char *const names[] = {
        "none", "bf16", "fp16",    "fp8_e4m3", "fp4_e2m1", "f32",  "bfloat16", "float16",
        "fp8",  "fp4",  "float32", "nvfp4",    "fp32",     "e4m3", "e2m1",     "f16"};
    static const enum kvf_dtype types[] = {
        KVF_DTYPE_NONE,     KVF_DTYPE_BF16,     KVF_DTYPE_FP16,     KVF_DTYPE_FP8_E4M3,
        KVF_DTYPE_FP4_E2M1, KVF_DTYPE_F32,      KVF_DTYPE_BF16,     KVF_DTYPE_FP16,
        KVF_DTYPE_FP8_E4M3, KVF_DTYPE_FP4_E2M1, KVF_DTYPE_F32,      KVF_DTYPE_FP4_E2M1,
        KVF_DTYPE_F32,      KVF_DTYPE_FP8_E4M3, KVF_DTYPE_FP4_E2M1, KVF_DTYPE_FP16};
    uint32_t count = (uint32_t)(sizeof(names) / sizeof(names[0]));
    uint32_t index = index_of(name, names, count);

    if (index == count) {
        reading_wrong(reading,
                      "dtype is \"%.40s\"; want bf16, fp16, fp8_e4m3, fp4_e2m1, f32 or none", name);
        return KVF_DTYPE_NONE;
    }
    return types[index];
}

static enum geo_memory memory_of(struct reading *reading, const char *name)
{
    if (strcmp(name, "host") == 0) {
        return GEO_HOST;
    }
    if (strcmp(name, "device") != 0 && strcmp(name, "cuda") != 0) {
        reading_wrong(reading, "memory is \"%.40s\"; want host or device", name);
    }
    return GEO_CUDA;
}

/* ---- records -------------------------------------------------------------------------------- */

static uint32_t role_of(struct reading *reading, const json_t *value)
{
    const char *name = json_string_value(value);

    for (uint32_t role = 0; name != NULL && role < KVF_ROLE_KIND_COUNT; role++) {
        if (strcmp(geo_role_name(role), name) == 0) {
            return role;
        }
    }
    reading_wrong(reading, "unknown role \"%.40s\"", name == NULL ? "" : name);
    return 0;
}

static void read_entries(struct reading *reading, const json_t *json, struct kvf_view *view)
{
    const json_t *array;
    uint32_t count = reading_array(reading, json, "entries", GEO_ENTRIES_MAX, &array);
    struct kvf_entry *entries = reading_take(reading, count, sizeof(*entries));

    view->entries = entries;
    view->entry_count = entries == NULL ? 0 : count;
    for (uint32_t e = 0; e < view->entry_count; e++) {
        const json_t *one = json_array_get(array, e);

        entries[e].layer =
            (uint32_t)reading_number(reading, json_array_get(one, 0), "entry layer", UINT32_MAX);
        entries[e].role = role_of(reading, json_array_get(one, 1));
        entries[e].offset =
            reading_number(reading, json_array_get(one, 2), "entry offset", INT64_MAX);
        entries[e].size = reading_number(reading, json_array_get(one, 3), "entry size", INT64_MAX);
    }
}

static void read_view(struct reading *reading, const json_t *json, struct kvf_view *view)
{
    static const char *const kinds[] = {"HND", "NHD", "REPLICATED", "UNITS", "SECTIONS"};
    const json_t *roles;
    const json_t *unit = json_object_get(json, "unit");
    const json_t *sections = json_object_get(json, "sections");
    const json_t *dtype = json_object_get(json, "dtype");
    uint32_t kind = index_of(get_string(reading, json, "kind"), kinds, 5);
    const char *owner = get_string(reading, json, "owner");

    if (kind == 5 || (strcmp(owner, "target") != 0 && strcmp(owner, "draft") != 0)) {
        reading_wrong(reading, "unknown view kind or owner");
        return;
    }
    view->pool = reading_u32(reading, json, "pool");
    view->kind = (enum kvf_view_kind)kind;
    view->owner = strcmp(owner, "draft") == 0 ? KVF_OWNER_DRAFT : KVF_OWNER_TARGET;
    view->dtype =
        json_is_string(dtype) ? dtype_of(reading, json_string_value(dtype)) : KVF_DTYPE_NONE;
    view->heads = reading_u32_or(reading, json, "heads", 0);
    view->heads_total = reading_u32_or(reading, json, "heads_total", 0);
    view->has_heads = json_is_integer(json_object_get(json, "heads"));
    view->has_heads_total = json_is_integer(json_object_get(json, "heads_total"));
    if (unit != NULL && !json_is_null(unit)) {
        view->unit_bytes = reading_number(reading, unit, "unit", INT64_MAX);
    }
    if (sections != NULL && !json_is_null(sections)) {
        view->section_count =
            reading_array(reading, json, "sections", KVF_VIEW_SECTIONS_MAX, &sections);
        for (uint32_t s = 0; s < view->section_count; s++) {
            view->section_bytes[s] =
                reading_number(reading, json_array_get(sections, s), "section", INT64_MAX);
        }
    }
    view->role_count = reading_array(reading, json, "roles", KVF_VIEW_ROLES_MAX, &roles);
    for (uint32_t r = 0; r < view->role_count; r++) {
        view->roles[r] = role_of(reading, json_array_get(roles, r));
    }
    read_entries(reading, json, view);
}

static void read_groups(struct reading *reading, const json_t *json, struct kvf_layout *layout)
{
    const json_t *array;
    uint32_t count = reading_array(reading, json, "groups", GEO_GROUPS_MAX, &array);
    struct kvf_group *groups = reading_take(reading, count, sizeof(*groups));

    layout->groups = groups;
    layout->group_count = groups == NULL ? 0 : count;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const json_t *one = json_array_get(array, g);
        const json_t *views;
        struct kvf_view *to;

        groups[g].group_class =
            get_bool(reading, one, "state", true) ? KVF_GROUP_STATE : KVF_GROUP_PAGED;
        groups[g].window = reading_u32_or(reading, one, "window", KVF_WINDOW_NONE);
        groups[g].layers =
            get_u32_list(reading, one, "layers", GEO_GROUP_LAYERS_MAX, &groups[g].layer_count);
        groups[g].view_count = reading_array(reading, one, "views", GEO_VIEWS_MAX, &views);
        to = reading_take(reading, groups[g].view_count, sizeof(*to));
        if (to == NULL) {
            groups[g].view_count = 0;
        }
        groups[g].views = to;
        for (uint32_t v = 0; v < groups[g].view_count; v++) {
            read_view(reading, json_array_get(views, v), &to[v]);
        }
    }
}

static void read_pools(struct reading *reading, const json_t *json, struct geo_record *record)
{
    const json_t *array;
    uint32_t count = reading_array(reading, json, "pools", GEO_POOLS_MAX, &array);
    struct geo_pool *pools = reading_take(reading, count, sizeof(*pools));
    struct kvf_pool_shape *shapes = reading_take(reading, count, sizeof(*shapes));

    record->pools = pools;
    record->layout.pools = shapes;
    record->layout.pool_count = pools == NULL || shapes == NULL ? 0 : count;
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        const json_t *one = json_array_get(array, p);
        const json_t *memory = json_object_get(one, "memory");

        pools[p].base = get_u64(reading, one, "base");
        pools[p].bytes = get_u64(reading, one, "bytes");
        pools[p].slots = reading_u32(reading, one, "slots");
        /* A dump need not say; then the pages are where the arena is. */
        pools[p].memory = json_is_string(memory) ? memory_of(reading, json_string_value(memory))
                                                 : record->bounce.memory;
        shapes[p].slot_bytes = get_u64(reading, one, "slot_bytes");
        shapes[p].slot_stride = get_u64(reading, one, "stride");
    }
    for (uint32_t g = record->layout.group_count; g-- > 0;) {
        const struct kvf_group *group = &record->layout.groups[g];

        for (uint32_t v = 0; v < group->view_count; v++) {
            if (group->views[v].pool < record->layout.pool_count) {
                shapes[group->views[v].pool].is_state = group->group_class == KVF_GROUP_STATE;
                shapes[group->views[v].pool].group = g;
            }
        }
    }
}

static void read_aux(struct reading *reading, const json_t *json, struct geo_record *record)
{
    const json_t *array;
    uint32_t count = reading_array(reading, json, "aux", GEO_AUX_MAX, &array);
    struct geo_aux *aux = reading_take(reading, count, sizeof(*aux));
    uint32_t *bytes = reading_take(reading, count, sizeof(*bytes));

    record->aux = aux;
    record->layout.aux_bytes = bytes;
    record->layout.aux_count = aux == NULL || bytes == NULL ? 0 : count;
    for (uint32_t a = 0; a < record->layout.aux_count; a++) {
        const json_t *one = json_array_get(array, a);

        aux[a].base = get_u64(reading, one, "base");
        aux[a].item_bytes = reading_u32(reading, one, "item");
        aux[a].slots = reading_u32(reading, one, "slots");
        bytes[a] = aux[a].item_bytes;
    }
}

static void read_bounce(struct reading *reading, const json_t *json, struct geo_bounce *bounce)
{
    const json_t *one = json_object_get(json, "bounce");

    bounce->memory = GEO_HOST;
    if (one == NULL || json_is_null(one)) {
        return;
    }
    bounce->enabled = get_bool(reading, one, "enabled", true);
    bounce->arena_bytes = get_u64(reading, one, "arena_bytes");
    bounce->granularity_bytes = get_u64(reading, one, "granularity");
    bounce->max_chunk_bytes = get_u64(reading, one, "max_chunk");
    bounce->min_descriptor_count = reading_u32(reading, one, "min_descriptor_count");
    bounce->max_average_bytes = get_u64(reading, one, "max_average_descriptor_size");
    bounce->request_timeout_ms = reading_u32(reading, one, "request_timeout_ms");
    bounce->wire_version = reading_u32(reading, one, "wire_version");
    bounce->memory = memory_of(reading, get_string(reading, one, "memory"));
}

/* As a decoder takes it: printable, so that it cannot forge a line. */
static void read_name(struct reading *reading, const json_t *json, char *name_out)
{
    const char *name = get_string(reading, json, "instance");
    size_t len = strlen(name);

    for (size_t i = 0; i < len; i++) {
        if (len > GEO_NAME_MAX || name[i] <= ' ' || name[i] > '~') {
            reading_wrong(reading, "instance is no name of at most %u printable characters",
                          GEO_NAME_MAX);
            return;
        }
    }
    memcpy(name_out, name, len + 1);
}

static void read_place(struct reading *reading, const json_t *json, struct kvf_place *place)
{
    place->tp_size = reading_u32(reading, json, "tp_size");
    place->tp_rank = reading_u32(reading, json, "tp_rank");
    place->pp_size = reading_u32(reading, json, "pp_size");
    place->pp_rank = reading_u32(reading, json, "pp_rank");
    place->cp_size = reading_u32(reading, json, "cp_size");
    place->cp_rank = reading_u32(reading, json, "cp_rank");
    place->attention_dp = get_bool(reading, json, "adp", true);
    place->dp_size = reading_u32(reading, json, "dp_size");
    place->dp_rank = reading_u32(reading, json, "dp_rank");
}

static struct geo_record *read_record(struct reading *reading, const json_t *json,
                                      enum geo_side side)
{
    struct geo_record facts = {.side = side, .instance = side == GEO_GENERATION};
    struct geo_record *record = NULL;
    const json_t *dtype = json_object_get(json, "dtype");
    uint32_t stages = 0;

    read_name(reading, json, facts.instance_name);
    facts.rank = reading_u32(reading, json, "rank");
    facts.wire_version = reading_u32(reading, json, "wire_version");
    read_place(reading, json, &facts.place);
    facts.place.layers_per_pp = get_u32_list(reading, json, "layers_per_pp", GEO_PP_MAX, &stages);
    if (stages != facts.place.pp_size) {
        reading_wrong(reading, "layers_per_pp has %u stages, pp_size is %u", stages,
                      facts.place.pp_size);
    }
    facts.layout.draft_layers = reading_u32(reading, json, "draft_layers");
    facts.layout.tokens_per_block = reading_u32(reading, json, "tokens_per_block");
    facts.layout.kv_heads = reading_u32(reading, json, "kv_heads");
    facts.layout.head_dim = reading_u32(reading, json, "head_dim");
    facts.layout.dtype =
        json_is_string(dtype) ? dtype_of(reading, json_string_value(dtype)) : KVF_DTYPE_NONE;
    facts.layout.elem_bits = reading_u32(reading, json, "elem_bits");
    facts.layout.mla = get_bool(reading, json, "mla", true);
    facts.layout.ownership_bridge = get_bool(reading, json, "ownership_bridge", false);
    read_bounce(reading, json, &facts.bounce);
    read_groups(reading, json, &facts.layout);
    read_pools(reading, json, &facts);
    read_aux(reading, json, &facts);
    if (reading->status == KVF_OK) {
        reading->status = geo_record_open(kvf_heap_system(), &facts, &record);
    }
    if (reading->status == KVF_E_TOO_LARGE) {
        struct geo_text text = {""};

        reading->status = KVF_OK; /* for the text */
        (void)geo_check_local(&facts, &text);
        reading_wrong(reading, "%s", text.s);
    }
    return record;
}

static struct geo_record **read_side(struct reading *reading, const json_t *json,
                                     enum geo_side side, uint32_t *count_out)
{
    static const char *const names[] = {[GEO_CONTEXT] = "senders", [GEO_GENERATION] = "receivers"};
    const json_t *array;
    uint32_t count;
    struct geo_record **records;

    reading->where = "the dump";
    reading->index = READING_WHOLE;
    count = reading_array(reading, json, names[side], 65536, &array);
    reading->where = names[side];
    records = reading_take(reading, count, sizeof(struct geo_record *));
    if (records != NULL && count == 0) {
        reading_wrong(reading, "no ranks");
    }
    *count_out = 0;
    for (reading->index = 0; records != NULL && reading->index < count; reading->index++) {
        records[reading->index] = read_record(reading, json_array_get(array, reading->index), side);
        if (records[reading->index] == NULL) {
            return records;
        }
        ++*count_out;
    }
    return records;
}

/* ---- the whole ------------------------------------------------------------------------------ */

enum kvf_status geometry_dump_read(const json_t *json, struct geometry_dump **dump_out,
                                   struct geo_text *text_out)
{
    struct reading reading = {.text_out = text_out, .where = "dump"};
    struct geometry_dump *dump = calloc(1, sizeof(*dump));

    if (dump == NULL) {
        return KVF_E_NOMEM;
    }
    dump->senders = read_side(&reading, json, GEO_CONTEXT, &dump->sender_count);
    if (reading.status == KVF_OK) {
        dump->receivers = read_side(&reading, json, GEO_GENERATION, &dump->receiver_count);
    }
    if (reading.status == KVF_OK) {
        reading_request(&reading, json, dump);
    }
    dump->memory = reading.blocks;
    if (reading.status != KVF_OK) {
        geometry_dump_close(dump);
        return reading.status;
    }
    *dump_out = dump;
    return KVF_OK;
}

enum kvf_status geometry_dump_load(const char *path, struct geometry_dump **dump_out,
                                   struct geo_text *text_out)
{
    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    enum kvf_status status;

    if (json == NULL) {
        geo_text_set(text_out, "%s:%d: %s", path, error.line, error.text);
        return json_error_code(&error) == json_error_cannot_open_file ? KVF_E_SYSTEM : KVF_E_PARSE;
    }
    status = geometry_dump_read(json, dump_out, text_out);
    json_decref(json);
    return status;
}

void geometry_dump_close(struct geometry_dump *dump)
{
    if (dump == NULL) {
        return;
    }
    for (uint32_t r = 0; r < dump->sender_count; r++) {
        geo_record_close(dump->senders[r]);
    }
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        geo_record_close(dump->receivers[r]);
    }
    free_blocks(dump->memory);
    free(dump);
}

static const struct geo_record *find_rank(struct geo_record *const *records, uint32_t count,
                                          uint32_t rank, uint32_t *index_out)
{
    for (uint32_t r = 0; r < count; r++) {
        if (records[r]->rank == rank) {
            *index_out = r;
            return records[r];
        }
    }
    return NULL;
}

const struct geo_record *geometry_dump_sender(const struct geometry_dump *dump, uint32_t rank,
                                              uint32_t *index_out)
{
    return find_rank(dump->senders, dump->sender_count, rank, index_out);
}

const struct geo_record *geometry_dump_receiver(const struct geometry_dump *dump, uint32_t rank,
                                                uint32_t *index_out)
{
    return find_rank(dump->receivers, dump->receiver_count, rank, index_out);
}
