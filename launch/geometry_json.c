/* geometry_json.c - reads a geometry dump. See geometry_json.h. */
#include "geometry_json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory that lives as long as the dump. */
struct block {
    struct block *next;
};

/* What is wrong first sticks; values read after that are 0. */
struct reading {
    enum kvf_status status;
    struct geo_text *text_out;
    struct block *blocks;
    const char *where; /* "senders" or "receivers" or "request" */
    uint32_t index;    /* record under reading */
};

static void wrong(struct reading *reading, const char *format, ...) KVF_PRINTF(2, 3);

static void wrong(struct reading *reading, const char *format, ...)
{
    char what[256];
    va_list args;

    if (reading->status != KVF_OK) {
        return;
    }
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    geo_text_set(reading->text_out, "%s[%u]: %s", reading->where, reading->index, what);
    reading->status = KVF_E_PARSE;
}

static void *take(struct reading *reading, size_t count, size_t size)
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

static uint64_t number_of(struct reading *reading, const json_t *value, const char *key,
                          uint64_t max)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max) {
        wrong(reading, "%s is missing or no whole number from 0 to %" PRIu64, key, max);
        return 0;
    }
    return (uint64_t)json_integer_value(value);
}

static uint32_t get_u32(struct reading *reading, const json_t *object, const char *key)
{
    return (uint32_t)number_of(reading, json_object_get(object, key), key, UINT32_MAX);
}

static uint64_t get_u64(struct reading *reading, const json_t *object, const char *key)
{
    return number_of(reading, json_object_get(object, key), key, INT64_MAX);
}

/* `otherwise` where the key is absent or null. */
static uint32_t get_u32_or(struct reading *reading, const json_t *object, const char *key,
                           uint32_t otherwise)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL || json_is_null(value)) {
        return otherwise;
    }
    return (uint32_t)number_of(reading, value, key, UINT32_MAX);
}

static bool get_bool(struct reading *reading, const json_t *object, const char *key,
                     bool must_be_there)
{
    const json_t *value = json_object_get(object, key);

    if (value == NULL && !must_be_there) {
        return false;
    }
    if (!json_is_boolean(value)) {
        wrong(reading, "%s is missing or neither true nor false", key);
    }
    return json_is_true(value);
}

static const char *get_string(struct reading *reading, const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    if (value == NULL) {
        wrong(reading, "%s is missing or no string", key);
        return "";
    }
    return value;
}

/* An array's length, bounded; 0 after an error. */
static uint32_t get_array(struct reading *reading, const json_t *object, const char *key,
                          uint32_t max, const json_t **array_out)
{
    const json_t *array = json_object_get(object, key);

    *array_out = array;
    if (!json_is_array(array) || json_array_size(array) > max) {
        wrong(reading, "%s is missing or no list of at most %u", key, max);
        return 0;
    }
    return (uint32_t)json_array_size(array);
}

static const uint32_t *get_u32_list(struct reading *reading, const json_t *object, const char *key,
                                    uint32_t max, uint32_t *count_out)
{
    const json_t *array;
    uint32_t count = get_array(reading, object, key, max, &array);
    uint32_t *values = take(reading, count, sizeof(*values));

    *count_out = values == NULL ? 0 : count;
    for (uint32_t i = 0; i < *count_out; i++) {
        values[i] = (uint32_t)number_of(reading, json_array_get(array, i), key, UINT32_MAX);
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

static enum kvf_dtype dtype_of(const char *name)
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

    return index < count ? types[index] : KVF_DTYPE_NONE;
}

static enum geo_memory memory_of(struct reading *reading, const char *name)
{
    if (strcmp(name, "host") == 0) {
        return GEO_HOST;
    }
    if (strcmp(name, "device") != 0 && strcmp(name, "cuda") != 0) {
        wrong(reading, "memory is \"%.40s\"; want host or device", name);
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
    wrong(reading, "unknown role \"%.40s\"", name == NULL ? "" : name);
    return 0;
}

static void read_entries(struct reading *reading, const json_t *json, struct kvf_view *view)
{
    const json_t *array;
    uint32_t count = get_array(reading, json, "entries", GEO_ENTRIES_MAX, &array);
    struct kvf_entry *entries = take(reading, count, sizeof(*entries));

    view->entries = entries;
    view->entry_count = entries == NULL ? 0 : count;
    for (uint32_t e = 0; e < view->entry_count; e++) {
        const json_t *one = json_array_get(array, e);

        entries[e].layer =
            (uint32_t)number_of(reading, json_array_get(one, 0), "entry layer", UINT32_MAX);
        entries[e].role = role_of(reading, json_array_get(one, 1));
        entries[e].offset = number_of(reading, json_array_get(one, 2), "entry offset", INT64_MAX);
        entries[e].size = number_of(reading, json_array_get(one, 3), "entry size", INT64_MAX);
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
        wrong(reading, "unknown view kind or owner");
        return;
    }
    view->pool = get_u32(reading, json, "pool");
    view->kind = (enum kvf_view_kind)kind;
    view->owner = strcmp(owner, "draft") == 0 ? KVF_OWNER_DRAFT : KVF_OWNER_TARGET;
    view->dtype = json_is_string(dtype) ? dtype_of(json_string_value(dtype)) : KVF_DTYPE_NONE;
    view->heads = get_u32_or(reading, json, "heads", 0);
    view->heads_total = get_u32_or(reading, json, "heads_total", 0);
    view->has_heads = json_is_integer(json_object_get(json, "heads"));
    view->has_heads_total = json_is_integer(json_object_get(json, "heads_total"));
    if (unit != NULL && !json_is_null(unit)) {
        view->unit_bytes = number_of(reading, unit, "unit", INT64_MAX);
    }
    if (sections != NULL && !json_is_null(sections)) {
        view->section_count =
            get_array(reading, json, "sections", KVF_VIEW_SECTIONS_MAX, &sections);
        for (uint32_t s = 0; s < view->section_count; s++) {
            view->section_bytes[s] =
                number_of(reading, json_array_get(sections, s), "section", INT64_MAX);
        }
    }
    view->role_count = get_array(reading, json, "roles", KVF_VIEW_ROLES_MAX, &roles);
    for (uint32_t r = 0; r < view->role_count; r++) {
        view->roles[r] = role_of(reading, json_array_get(roles, r));
    }
    read_entries(reading, json, view);
}

static void read_groups(struct reading *reading, const json_t *json, struct kvf_layout *layout)
{
    const json_t *array;
    uint32_t count = get_array(reading, json, "groups", GEO_GROUPS_MAX, &array);
    struct kvf_group *groups = take(reading, count, sizeof(*groups));

    layout->groups = groups;
    layout->group_count = groups == NULL ? 0 : count;
    for (uint32_t g = 0; g < layout->group_count; g++) {
        const json_t *one = json_array_get(array, g);
        const json_t *views;
        struct kvf_view *to;

        groups[g].group_class =
            get_bool(reading, one, "state", true) ? KVF_GROUP_STATE : KVF_GROUP_PAGED;
        groups[g].window = get_u32_or(reading, one, "window", KVF_WINDOW_NONE);
        groups[g].layers =
            get_u32_list(reading, one, "layers", GEO_GROUP_LAYERS_MAX, &groups[g].layer_count);
        groups[g].view_count = get_array(reading, one, "views", GEO_VIEWS_MAX, &views);
        to = take(reading, groups[g].view_count, sizeof(*to));
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
    uint32_t count = get_array(reading, json, "pools", GEO_POOLS_MAX, &array);
    struct geo_pool *pools = take(reading, count, sizeof(*pools));
    struct kvf_pool_shape *shapes = take(reading, count, sizeof(*shapes));

    record->pools = pools;
    record->layout.pools = shapes;
    record->layout.pool_count = pools == NULL || shapes == NULL ? 0 : count;
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        const json_t *one = json_array_get(array, p);
        const json_t *memory = json_object_get(one, "memory");

        pools[p].base = get_u64(reading, one, "base");
        pools[p].bytes = get_u64(reading, one, "bytes");
        pools[p].slots = get_u32(reading, one, "slots");
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
    uint32_t count = get_array(reading, json, "aux", GEO_AUX_MAX, &array);
    struct geo_aux *aux = take(reading, count, sizeof(*aux));
    uint32_t *bytes = take(reading, count, sizeof(*bytes));

    record->aux = aux;
    record->layout.aux_bytes = bytes;
    record->layout.aux_count = aux == NULL || bytes == NULL ? 0 : count;
    for (uint32_t a = 0; a < record->layout.aux_count; a++) {
        const json_t *one = json_array_get(array, a);

        aux[a].base = get_u64(reading, one, "base");
        aux[a].item_bytes = get_u32(reading, one, "item");
        aux[a].slots = get_u32(reading, one, "slots");
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
    bounce->min_descriptor_count = get_u32(reading, one, "min_descriptor_count");
    bounce->max_average_bytes = get_u64(reading, one, "max_average_descriptor_size");
    bounce->request_timeout_ms = get_u32(reading, one, "request_timeout_ms");
    bounce->wire_version = get_u32(reading, one, "wire_version");
    bounce->memory = memory_of(reading, get_string(reading, one, "memory"));
}

static void read_place(struct reading *reading, const json_t *json, struct kvf_place *place)
{
    place->tp_size = get_u32(reading, json, "tp_size");
    place->tp_rank = get_u32(reading, json, "tp_rank");
    place->pp_size = get_u32(reading, json, "pp_size");
    place->pp_rank = get_u32(reading, json, "pp_rank");
    place->cp_size = get_u32(reading, json, "cp_size");
    place->cp_rank = get_u32(reading, json, "cp_rank");
    place->attention_dp = get_bool(reading, json, "adp", true);
    place->dp_size = get_u32(reading, json, "dp_size");
    place->dp_rank = get_u32(reading, json, "dp_rank");
}

static struct geo_record *read_record(struct reading *reading, const json_t *json,
                                      enum geo_side side)
{
    struct geo_record facts = {.side = side, .instance = side == GEO_GENERATION};
    struct geo_record *record = NULL;
    const json_t *dtype = json_object_get(json, "dtype");
    uint32_t stages = 0;

    snprintf(facts.instance_name, sizeof(facts.instance_name), "%.63s",
             get_string(reading, json, "instance"));
    facts.rank = get_u32(reading, json, "rank");
    facts.wire_version = get_u32(reading, json, "wire_version");
    read_place(reading, json, &facts.place);
    facts.place.layers_per_pp = get_u32_list(reading, json, "layers_per_pp", GEO_PP_MAX, &stages);
    if (stages != facts.place.pp_size) {
        wrong(reading, "layers_per_pp has %u stages, pp_size is %u", stages, facts.place.pp_size);
    }
    facts.layout.draft_layers = get_u32(reading, json, "draft_layers");
    facts.layout.tokens_per_block = get_u32(reading, json, "tokens_per_block");
    facts.layout.kv_heads = get_u32(reading, json, "kv_heads");
    facts.layout.head_dim = get_u32(reading, json, "head_dim");
    facts.layout.dtype =
        json_is_string(dtype) ? dtype_of(json_string_value(dtype)) : KVF_DTYPE_NONE;
    facts.layout.elem_bits = get_u32(reading, json, "elem_bits");
    facts.layout.mla = get_bool(reading, json, "mla", true);
    facts.layout.ownership_bridge = get_bool(reading, json, "ownership_bridge", false);
    read_bounce(reading, json, &facts.bounce);
    read_groups(reading, json, &facts.layout);
    read_pools(reading, json, &facts);
    read_aux(reading, json, &facts);
    if (reading->status == KVF_OK) {
        reading->status = geo_record_open(kvf_heap_system(), &facts, &record);
    }
    return record;
}

static struct geo_record **read_side(struct reading *reading, const json_t *json,
                                     enum geo_side side, uint32_t *count_out)
{
    const json_t *array;
    uint32_t count;
    struct geo_record **records;

    reading->where = side == GEO_CONTEXT ? "senders" : "receivers";
    reading->index = 0;
    count = get_array(reading, json, reading->where, 65536, &array);
    records = take(reading, count, sizeof(struct geo_record *));
    if (records != NULL && count == 0) {
        wrong(reading, "no ranks");
    }
    *count_out = 0;
    for (; records != NULL && reading->index < count; reading->index++) {
        records[reading->index] = read_record(reading, json_array_get(array, reading->index), side);
        if (records[reading->index] == NULL) {
            return records;
        }
        ++*count_out;
    }
    return records;
}

/* ---- request -------------------------------------------------------------------------------- */

static void read_list(struct reading *reading, const json_t *json, struct kvf_block_list *list)
{
    const json_t *array;
    uint32_t count = get_array(reading, json, "slots", UINT32_MAX, &array);
    uint32_t *slots = take(reading, count, sizeof(*slots));

    list->first = get_u32(reading, json, "first");
    list->slots = slots;
    list->count = slots == NULL ? 0 : count;
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *slot = json_array_get(array, i);

        /* A hole: no slot has this number, so that the check of the request names it. */
        slots[i] = json_is_integer(slot) && json_integer_value(slot) < 0
                       ? PLAN_NO_SLOT
                       : (uint32_t)number_of(reading, slot, "slot", UINT32_MAX);
    }
}

static void read_state_slot(struct reading *reading, const json_t *value,
                            struct kvf_block_list *list)
{
    uint32_t *slot;

    if (value == NULL || json_is_null(value)) {
        return;
    }
    slot = take(reading, 1, sizeof(*slot));
    if (slot != NULL) {
        *slot = json_is_integer(value) && json_integer_value(value) < 0
                    ? PLAN_NO_SLOT
                    : (uint32_t)number_of(reading, value, "state slot", UINT32_MAX);
        *list = (struct kvf_block_list){.count = 1, .slots = slot};
    }
}

/* The lists of all ranks of one side, from "rank:group" keys. */
static struct geometry_lists *read_lists(struct reading *reading, const json_t *request,
                                         struct geo_record *const *records, uint32_t count,
                                         bool is_src)
{
    const json_t *paged = json_object_get(request, is_src ? "src" : "dst");
    const json_t *state = json_object_get(request, is_src ? "src_state" : "dst_state");
    struct geometry_lists *all = take(reading, count, sizeof(*all));

    for (uint32_t r = 0; all != NULL && r < count; r++) {
        uint32_t groups = records[r]->layout.group_count;
        struct kvf_block_list *lists = take(reading, groups, sizeof(*lists));

        all[r].lists = lists;
        all[r].count = lists == NULL ? 0 : groups;
        for (uint32_t g = 0; g < all[r].count; g++) {
            char key[32];
            const json_t *one;

            snprintf(key, sizeof(key), "%u:%u", records[r]->rank, g);
            one = json_object_get(paged, key);
            if (records[r]->layout.groups[g].group_class == KVF_GROUP_STATE) {
                read_state_slot(reading, json_object_get(state, key), &lists[g]);
            } else if (one != NULL) {
                read_list(reading, one, &lists[g]);
            }
        }
    }
    return all;
}

static void read_pieces(struct reading *reading, const json_t *request, struct geometry_dump *dump)
{
    const json_t *array = json_object_get(request, "pieces");
    uint32_t count = 1;

    if (array != NULL && !json_is_null(array)) {
        count = get_array(reading, request, "pieces", 1u << 20, &array);
    } else {
        array = NULL;
    }
    dump->pieces = take(reading, count, sizeof(*dump->pieces));
    dump->piece_count = dump->pieces == NULL ? 0 : count;
    for (uint32_t p = 0; p < dump->piece_count; p++) {
        struct plan_piece *piece = &dump->pieces[p];

        *piece = plan_whole(dump->prompt_tokens);
        if (array != NULL) {
            const json_t *one = json_array_get(array, p);

            piece->token_first =
                (uint32_t)number_of(reading, json_array_get(one, 0), "piece start", UINT32_MAX);
            piece->token_end =
                (uint32_t)number_of(reading, json_array_get(one, 1), "piece end", UINT32_MAX);
        }
        piece->last = p + 1 == count;
    }
}

static void read_request(struct reading *reading, const json_t *json, struct geometry_dump *dump)
{
    const json_t *request = json_object_get(json, "request");
    const json_t *known = json_object_get(request, "dp_known");

    reading->where = "request";
    reading->index = 0;
    if (!json_is_object(request)) {
        wrong(reading, "missing");
        return;
    }
    dump->prompt_tokens = get_u32(reading, request, "prompt_len");
    dump->cached_tokens = get_u32_or(reading, request, "cached", 0);
    dump->sender_group = get_u32_or(reading, request, "sender_dp", 0);
    dump->group_known = known == NULL || !json_is_false(known);
    dump->receiver = get_u32_or(reading, request, "receiver", 0);
    dump->src_aux_slot = get_u32_or(reading, request, "aux_src", PLAN_NO_SLOT);
    dump->dst_aux_slot = get_u32_or(reading, request, "aux_dst", PLAN_NO_SLOT);
    read_pieces(reading, request, dump);
    dump->src = read_lists(reading, request, dump->senders, dump->sender_count, true);
    dump->dst = read_lists(reading, request, dump->receivers, dump->receiver_count, false);
}

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
        read_request(&reading, json, dump);
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
