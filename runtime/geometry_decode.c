/*
 * geometry_decode.c - reads the wire form of a record (geometry_wire.h). Takes anything at all:
 * bounds come before use, and nothing is kept of what is refused. May not do I/O.
 */
#include <string.h>

#include "bump.h"
#include "geometry_internal.h"
#include "geometry_wire.h"

/* A record being read. What is wrong first sticks. */
struct decoder {
    enum kvf_status status;
    struct geo_text *text_out;
    struct geo_wire_counts counts;
    struct geo_record *record;
    /* the record's arrays, writable, and how much of each is used */
    uint32_t *stages;
    struct geo_pool *pools;
    struct kvf_pool_shape *shapes;
    struct geo_aux *aux;
    uint32_t *aux_bytes;
    struct kvf_group *groups;
    uint32_t *layers;
    struct kvf_view *views;
    struct kvf_entry *entries;
    struct geo_wire_counts used;
    uint32_t seen; /* bit n: the field with tag number n was there */
};

static void refuse(struct decoder *decoder, const char *why)
{
    if (decoder->status == KVF_OK) {
        decoder->status = KVF_E_DECODE;
        geo_text_set(decoder->text_out, "geometry record: %s", why);
    }
}

/* A number that must be below `end`. */
static uint32_t get_below(struct decoder *decoder, uint32_t value, uint32_t end, const char *why)
{
    if (value >= end) {
        refuse(decoder, why);
        return 0;
    }
    return value;
}

static bool get_bool(struct decoder *decoder, struct wire_reader *reader)
{
    return get_below(decoder, wire_get_u8(reader), 2, "a flag is neither 0 nor 1") != 0;
}

static void get_counts(struct decoder *decoder, struct wire_reader *reader, size_t left_bytes)
{
    struct geo_wire_counts *counts = &decoder->counts;
    uint64_t need;

    counts->stages = wire_get_u32(reader);
    counts->pools = wire_get_u32(reader);
    counts->aux = wire_get_u32(reader);
    counts->groups = wire_get_u32(reader);
    counts->layers = wire_get_u32(reader);
    counts->views = wire_get_u32(reader);
    counts->entries = wire_get_u32(reader);
    if (!wire_reader_ended(reader)) {
        refuse(decoder, "the counts are cut short or too long");
        return;
    }
    if (counts->stages == 0 || counts->stages > GEO_PP_MAX || counts->pools > GEO_POOLS_MAX ||
        counts->aux > GEO_AUX_MAX || counts->groups > GEO_GROUPS_MAX ||
        counts->layers > GEO_GROUP_LAYERS_MAX || counts->views > GEO_VIEWS_MAX ||
        counts->entries > GEO_ENTRIES_MAX) {
        refuse(decoder, "a count is beyond the limits");
        return;
    }
    /* A short record cannot make us take much memory. */
    need = (uint64_t)counts->stages * 4 + (uint64_t)counts->pools * WIRE_POOL_BYTES +
           (uint64_t)counts->aux * WIRE_AUX_BYTES +
           (uint64_t)counts->groups * WIRE_GROUP_BYTES_MIN + (uint64_t)counts->layers * 4 +
           (uint64_t)counts->views * WIRE_VIEW_BYTES_MIN +
           (uint64_t)counts->entries * WIRE_ENTRY_BYTES;
    if (need > left_bytes) {
        refuse(decoder, "it is too short for its counts");
    }
}

/* Cuts the record's arrays; with bump->base NULL it only counts. */
static void cut_arrays(struct decoder *decoder, struct bump *bump)
{
    const struct geo_wire_counts *counts = &decoder->counts;

    decoder->record = bump_take(bump, 1, sizeof(*decoder->record));
    decoder->stages = bump_take(bump, counts->stages, sizeof(*decoder->stages));
    decoder->pools = bump_take(bump, counts->pools, sizeof(*decoder->pools));
    decoder->shapes = bump_take(bump, counts->pools, sizeof(*decoder->shapes));
    decoder->aux = bump_take(bump, counts->aux, sizeof(*decoder->aux));
    decoder->aux_bytes = bump_take(bump, counts->aux, sizeof(*decoder->aux_bytes));
    decoder->groups = bump_take(bump, counts->groups, sizeof(*decoder->groups));
    decoder->layers = bump_take(bump, counts->layers, sizeof(*decoder->layers));
    decoder->views = bump_take(bump, counts->views, sizeof(*decoder->views));
    decoder->entries = bump_take(bump, counts->entries, sizeof(*decoder->entries));
}

static void get_identity(struct decoder *decoder, struct wire_reader *reader)
{
    struct geo_record *record = decoder->record;
    const uint8_t *name;
    uint32_t name_bytes;

    record->instance = wire_get_u32(reader);
    record->side = (enum geo_side)get_below(decoder, wire_get_u8(reader), 2, "unknown side");
    record->rank = wire_get_u32(reader);
    name_bytes = wire_get_u8(reader);
    name_bytes = get_below(decoder, name_bytes, GEO_NAME_MAX + 1, "the instance name is too long");
    name = wire_get_bytes(reader, name_bytes);
    for (uint32_t i = 0; name != NULL && i < name_bytes; i++) {
        if (name[i] < ' ' || name[i] > '~') {
            refuse(decoder, "the instance name is not printable");
        }
        record->instance_name[i] = (char)name[i];
    }
}

static void get_place(struct decoder *decoder, struct wire_reader *reader)
{
    struct kvf_place *place = &decoder->record->place;

    place->tp_size = wire_get_u32(reader);
    place->tp_rank = wire_get_u32(reader);
    place->pp_size = decoder->counts.stages;
    place->pp_rank = wire_get_u32(reader);
    place->cp_size = wire_get_u32(reader);
    place->cp_rank = wire_get_u32(reader);
    place->attention_dp = get_bool(decoder, reader);
    place->dp_size = wire_get_u32(reader);
    place->dp_rank = wire_get_u32(reader);
    for (uint32_t p = 0; p < place->pp_size; p++) {
        decoder->stages[p] = wire_get_u32(reader);
    }
    place->layers_per_pp = decoder->stages;
}

static void get_model(struct decoder *decoder, struct wire_reader *reader)
{
    struct kvf_layout *layout = &decoder->record->layout;

    layout->tokens_per_block = wire_get_u32(reader);
    layout->draft_layers = wire_get_u32(reader);
    layout->kv_heads = wire_get_u32(reader);
    layout->head_dim = wire_get_u32(reader);
    layout->dtype = (enum kvf_dtype)get_below(decoder, wire_get_u8(reader), KVF_DTYPE_F32 + 1,
                                              "unknown element type");
    layout->elem_bits = wire_get_u32(reader);
    layout->mla = get_bool(decoder, reader);
    layout->ownership_bridge = get_bool(decoder, reader);
}

static void get_pools(struct decoder *decoder, struct wire_reader *reader)
{
    for (uint32_t p = 0; p < decoder->counts.pools; p++) {
        struct geo_pool *pool = &decoder->pools[p];
        struct kvf_pool_shape *shape = &decoder->shapes[p];

        pool->base = wire_get_u64(reader);
        pool->bytes = wire_get_u64(reader);
        pool->slots = wire_get_u32(reader);
        pool->memory =
            (enum geo_memory)get_below(decoder, wire_get_u8(reader), 2, "unknown memory kind");
        shape->slot_bytes = wire_get_u64(reader);
        shape->slot_stride = wire_get_u64(reader);
        shape->is_state = get_bool(decoder, reader);
        shape->group = wire_get_u32(reader);
    }
}

static void get_aux(struct decoder *decoder, struct wire_reader *reader)
{
    for (uint32_t a = 0; a < decoder->counts.aux; a++) {
        decoder->aux[a].base = wire_get_u64(reader);
        decoder->aux[a].item_bytes = wire_get_u32(reader);
        decoder->aux[a].slots = wire_get_u32(reader);
        decoder->aux_bytes[a] = decoder->aux[a].item_bytes;
    }
}

static void get_bounce(struct decoder *decoder, struct wire_reader *reader)
{
    struct geo_bounce *bounce = &decoder->record->bounce;

    bounce->enabled = true;
    bounce->wire_version = wire_get_u32(reader);
    bounce->arena_bytes = wire_get_u64(reader);
    bounce->granularity_bytes = wire_get_u64(reader);
    bounce->max_chunk_bytes = wire_get_u64(reader);
    bounce->min_descriptor_count = wire_get_u32(reader);
    bounce->max_average_bytes = wire_get_u64(reader);
    bounce->request_timeout_ms = wire_get_u32(reader);
    bounce->memory =
        (enum geo_memory)get_below(decoder, wire_get_u8(reader), 2, "unknown memory kind");
}

static void get_view_field(struct decoder *decoder, struct kvf_view *view, struct wire_field *field)
{
    switch (field->tag) {
    case TAG_VIEW_HEADS:
        view->has_heads = true;
        view->heads = wire_get_u32(&field->value);
        break;
    case TAG_VIEW_HEADS_TOTAL:
        view->has_heads_total = true;
        view->heads_total = wire_get_u32(&field->value);
        break;
    case TAG_VIEW_DTYPE:
        view->dtype = (enum kvf_dtype)get_below(decoder, wire_get_u32(&field->value),
                                                KVF_DTYPE_F32 + 1, "unknown element type");
        break;
    case TAG_VIEW_UNIT:
        view->unit_bytes = wire_get_u64(&field->value);
        break;
    case TAG_VIEW_SECTIONS:
        view->section_count = 0;
        while (field->value.left_bytes >= 8 && view->section_count < KVF_VIEW_SECTIONS_MAX) {
            view->section_bytes[view->section_count++] = wire_get_u64(&field->value);
        }
        break;
    default:
        if (wire_field_is_required(field)) {
            refuse(decoder, "a view has a required field that this release does not know");
        }
        return;
    }
    if (!wire_reader_ended(&field->value)) {
        refuse(decoder, "a field of a view has a wrong length");
    }
}

/* `count` more of an array of which `used` of `all` are taken; false when that is too many. */
static bool take(struct decoder *decoder, uint32_t *used, uint32_t all, uint32_t count)
{
    if (count > all - *used) {
        refuse(decoder, "it holds more than its counts say");
        return false;
    }
    *used += count;
    return true;
}

static void get_view(struct decoder *decoder, struct wire_reader *reader)
{
    struct kvf_view *view = &decoder->views[decoder->used.views];
    struct kvf_entry *entries = &decoder->entries[decoder->used.entries];
    struct wire_field field;

    if (!take(decoder, &decoder->used.views, decoder->counts.views, 1)) {
        return;
    }
    view->pool = wire_get_u32(reader);
    view->kind = (enum kvf_view_kind)get_below(decoder, wire_get_u8(reader), KVF_VIEW_SECTIONS + 1,
                                               "unknown kind of view");
    view->owner = (enum kvf_owner)get_below(decoder, wire_get_u8(reader), 2, "unknown owner");
    view->role_count = get_below(decoder, wire_get_u8(reader), KVF_VIEW_ROLES_MAX + 1,
                                 "a view has too many roles");
    for (uint32_t r = 0; r < view->role_count; r++) {
        view->roles[r] =
            get_below(decoder, wire_get_u8(reader), KVF_ROLE_KIND_COUNT, "unknown role");
    }
    view->entry_count = wire_get_u32(reader);
    view->entries = entries;
    if (!take(decoder, &decoder->used.entries, decoder->counts.entries, view->entry_count)) {
        view->entry_count = 0;
        return;
    }
    for (uint32_t e = 0; e < view->entry_count; e++) {
        entries[e].layer = wire_get_u32(reader);
        entries[e].role =
            get_below(decoder, wire_get_u8(reader), KVF_ROLE_KIND_COUNT, "unknown role");
        entries[e].offset = wire_get_u64(reader);
        entries[e].size = wire_get_u64(reader);
    }
    while (decoder->status == KVF_OK && wire_get_field(reader, &field)) {
        get_view_field(decoder, view, &field);
    }
}

static void get_group(struct decoder *decoder, struct wire_reader *reader)
{
    struct kvf_group *group = &decoder->groups[decoder->used.groups];
    uint32_t *layers = &decoder->layers[decoder->used.layers];
    uint32_t view_count;
    struct wire_field field;

    if (!take(decoder, &decoder->used.groups, decoder->counts.groups, 1)) {
        return;
    }
    group->group_class =
        (enum kvf_group_class)get_below(decoder, wire_get_u8(reader), 2, "unknown group class");
    group->window = wire_get_u32(reader);
    group->layer_count = wire_get_u32(reader);
    group->layers = layers;
    group->views = &decoder->views[decoder->used.views];
    if (!take(decoder, &decoder->used.layers, decoder->counts.layers, group->layer_count)) {
        group->layer_count = 0;
        return;
    }
    for (uint32_t l = 0; l < group->layer_count; l++) {
        layers[l] = wire_get_u32(reader);
    }
    view_count = wire_get_u32(reader);
    while (decoder->status == KVF_OK && wire_get_field(reader, &field)) {
        if (field.tag == TAG_VIEW) {
            get_view(decoder, &field.value);
            group->view_count++;
            if (!wire_reader_ended(&field.value)) {
                refuse(decoder, "a view has a wrong length");
            }
        } else if (wire_field_is_required(&field)) {
            refuse(decoder, "a group has a required field that this release does not know");
        }
    }
    if (group->view_count != view_count) {
        refuse(decoder, "a group has another number of views than it says");
    }
}

static void get_field(struct decoder *decoder, struct wire_field *field)
{
    uint32_t bit = 1u << (field->tag & 0xfu);

    switch (field->tag) {
    case TAG_IDENTITY:
        get_identity(decoder, &field->value);
        break;
    case TAG_PLACE:
        get_place(decoder, &field->value);
        break;
    case TAG_MODEL:
        get_model(decoder, &field->value);
        break;
    case TAG_POOLS:
        get_pools(decoder, &field->value);
        break;
    case TAG_AUX:
        get_aux(decoder, &field->value);
        break;
    case TAG_GROUP:
        get_group(decoder, &field->value);
        bit = 0;
        break;
    case TAG_BOUNCE:
        get_bounce(decoder, &field->value);
        break;
    default:
        if (wire_field_is_required(field)) {
            refuse(decoder, "a required field that this release does not know");
        }
        return;
    }
    if (!wire_reader_ended(&field->value)) {
        refuse(decoder, "a field has a wrong length");
    }
    if (decoder->seen & bit) {
        refuse(decoder, "a field is there twice");
    }
    decoder->seen |= bit;
}

/* All that was promised must have come. */
static void check_whole(struct decoder *decoder)
{
    const uint32_t needed = 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6;
    const struct geo_wire_counts *counts = &decoder->counts;
    const struct geo_wire_counts *used = &decoder->used;

    if ((decoder->seen & needed) != needed) {
        refuse(decoder, "a required field is missing");
    }
    if (used->groups != counts->groups || used->layers != counts->layers ||
        used->views != counts->views || used->entries != counts->entries) {
        refuse(decoder, "it holds less than its counts say");
    }
}

/* Not on the wire: the stages' layers say it. */
static void set_layer_count(struct geo_record *record)
{
    uint64_t layers = 0;

    for (uint32_t p = 0; p < record->place.pp_size; p++) {
        layers += record->place.layers_per_pp[p];
    }
    record->layout.layer_count = layers > GEO_LAYERS_MAX ? 0 : (uint32_t)layers;
}

static enum kvf_status decode_fields(struct decoder *decoder, struct wire_reader *reader)
{
    struct geo_record *record = decoder->record;
    struct wire_field field;

    record->layout.pool_count = decoder->counts.pools;
    record->layout.pools = decoder->shapes;
    record->layout.group_count = decoder->counts.groups;
    record->layout.groups = decoder->groups;
    record->layout.aux_count = decoder->counts.aux;
    record->layout.aux_bytes = decoder->aux_bytes;
    record->pools = decoder->pools;
    record->aux = decoder->aux;
    while (decoder->status == KVF_OK && wire_get_field(reader, &field)) {
        get_field(decoder, &field);
    }
    if (!wire_reader_ended(reader)) {
        refuse(decoder, "a field is cut short");
    }
    check_whole(decoder);
    if (decoder->status == KVF_OK) {
        set_layer_count(record);
        decoder->status = geo_check_local(record, decoder->text_out);
    }
    return decoder->status;
}

/* The head: version, then length. A version that is not ours is all that is read. */
static enum kvf_status decode_head(struct wire_reader *reader, size_t len,
                                   struct geo_text *text_out, uint32_t *version_out)
{
    uint32_t length;

    *version_out = wire_get_u32(reader);
    if (!reader->failed && *version_out != GEO_WIRE_VERSION) {
        geo_text_set(text_out,
                     "geometry record of version %u, this rank speaks %u; upgrade both instances "
                     "together",
                     *version_out, GEO_WIRE_VERSION);
        return KVF_E_WIRE_VERSION;
    }
    length = wire_get_u32(reader);
    if (reader->failed || length > len) {
        geo_text_set(text_out, "geometry record: cut short at %zu bytes", len);
        return KVF_E_TRUNCATED;
    }
    if (length > GEO_RECORD_BYTES_MAX) {
        geo_text_set(text_out, "geometry record: %u bytes, at most %u", length,
                     GEO_RECORD_BYTES_MAX);
        return KVF_E_TOO_LARGE;
    }
    if (length != len) {
        geo_text_set(text_out, "geometry record: %zu bytes, its head says %u", len, length);
        return KVF_E_DECODE;
    }
    return KVF_OK;
}

enum kvf_status geo_record_decode(const struct kvf_heap *heap, const void *bytes, size_t len,
                                  struct geo_record **record_out, struct geo_text *text_out)
{
    struct wire_reader reader = wire_reader_make(bytes, len);
    struct decoder decoder = {.text_out = text_out};
    struct bump bump = {0};
    struct wire_field field;
    uint32_t version;
    enum kvf_status status = decode_head(&reader, len, text_out, &version);

    if (status != KVF_OK) {
        return status;
    }
    if (!wire_get_field(&reader, &field) || field.tag != TAG_COUNTS) {
        geo_text_set(text_out, "geometry record: the counts are not first");
        return KVF_E_DECODE;
    }
    get_counts(&decoder, &field.value, reader.left_bytes);
    if (decoder.status != KVF_OK) {
        return decoder.status;
    }
    cut_arrays(&decoder, &bump);
    bump.base = kvf_alloc(heap, bump.used_bytes, 1);
    if (bump.base == NULL) {
        return KVF_E_NOMEM;
    }
    bump.used_bytes = 0;
    cut_arrays(&decoder, &bump);
    decoder.record->heap = heap;
    decoder.record->wire_version = version;
    status = decode_fields(&decoder, &reader);
    if (status != KVF_OK) {
        goto free_record;
    }
    *record_out = decoder.record;
    return KVF_OK;

free_record:
    kvf_release(heap, decoder.record);
    return status;
}
