/*
 * publish_record.c - what one rank tells the others: made, encoded, decoded.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "msg.h"
#include "publish.h"

/* Arrays that a count says are there, and are not: what walks over them would fall. */
static const char *group_gap(const struct kvf_group *group)
{
    if (group->layer_count > 0 && group->layers == NULL)
        return "its layers";
    if (group->view_count > 0 && group->views == NULL)
        return "its views";
    for (uint32_t v = 0; v < group->view_count; v++)
        if (group->views[v].entry_count > 0 && group->views[v].entries == NULL)
            return "the entries of a view";
    return NULL;
}

enum kvf_status publish_whole(const struct kvf_layout *layout, struct geo_text *text_out)
{
    const char *gap = NULL;

    if (layout->pool_count > 0 && layout->pools == NULL)
        gap = "the shapes of its pools";
    else if (layout->group_count > 0 && layout->groups == NULL)
        gap = "its groups";
    else if (layout->aux_count > 0 && layout->aux_bytes == NULL)
        gap = "the sizes of its aux buffers";
    if (gap != NULL) {
        geo_text_set(text_out, "the layout does not give %s", gap);
        return KVF_E_INVAL;
    }
    for (uint32_t g = 0; g < layout->group_count && gap == NULL; g++) {
        gap = group_gap(&layout->groups[g]);
        if (gap != NULL)
            geo_text_set(text_out, "group %u of the layout does not give %s", g, gap);
    }
    if (gap == NULL && layout->tokens_per_block == 0) {
        gap = "tokens_per_block";
        geo_text_set(text_out, "the layout's tokens_per_block is 0");
    }
    return gap == NULL ? KVF_OK : KVF_E_INVAL;
}

uint32_t publish_layers(const struct kvf_layout *layout)
{
    uint32_t layers = layout->layer_count;

    for (uint32_t g = 0; g < layout->group_count; g++)
        for (uint32_t l = 0; l < layout->groups[g].layer_count; l++)
            if (layout->groups[g].layers[l] >= layers)
                layers = layout->groups[g].layers[l] + 1;
    return layers;
}

static uint32_t publish_aux_bytes(const struct kvf_layout *layout)
{
    uint64_t bytes = 0;

    for (uint32_t a = 0; a < layout->aux_count; a++)
        bytes += layout->aux_bytes[a];
    return bytes > UINT32_MAX ? UINT32_MAX : (uint32_t)bytes;
}

static enum kvf_status publish_pools(const struct kvf_layout *layout, struct kvf_pool *const *pools,
                                     struct geo_pool *out, struct geo_text *text_out)
{
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        const struct kvf_pool *pool = pools[p];

        if (pool == NULL || pool->slot_stride != layout->pools[p].slot_stride ||
            pool->slots > UINT32_MAX) {
            geo_text_set(text_out, "pool %u: the layout has slots of stride %llu, the pool %llu", p,
                         (unsigned long long)layout->pools[p].slot_stride,
                         pool == NULL ? 0ull : (unsigned long long)pool->slot_stride);
            return KVF_E_INVAL;
        }
        out[p] = (struct geo_pool){
            .base = (uint64_t)(uintptr_t)pool->base,
            .bytes = pool->slot_stride * pool->slots,
            .slots = (uint32_t)pool->slots,
            .memory = GEO_HOST,
        };
    }
    return KVF_OK;
}

enum kvf_status publish_record(struct kvf *kvf, const struct kvf_layout *layout,
                               struct kvf_pool *const *pools, uint32_t layer_count,
                               struct geo_text *text_out)
{
    const struct kvf_instance *instance = &kvf->topology->instances[kvf->place.instance];
    struct geo_record facts = {
        .wire_version = GEO_WIRE_VERSION,
        .instance = kvf->place.instance,
        .side = kvf->place.side == KVF_CONTEXT ? GEO_CONTEXT : GEO_GENERATION,
        .rank = kvf->place.rank,
        .layout = *layout,
    };
    const struct kvf_heap *heap = &kvf->heap.table;
    uint32_t *layers = kvf_alloc(heap, KVF_PP_MAX, sizeof(*layers));
    struct geo_pool *geo_pools = kvf_alloc(heap, layout->pool_count + 1, sizeof(*geo_pools));
    struct geo_aux *aux = kvf_alloc(heap, layout->aux_count + 1, sizeof(*aux));
    enum kvf_status status = KVF_E_NOMEM;

    if (layers == NULL || geo_pools == NULL || aux == NULL)
        goto release;
    facts.layout.layer_count = layer_count;
    snprintf(facts.instance_name, sizeof(facts.instance_name), "%s", instance->name);
    status = kvf_place(kvf->topology, kvf->place.world_rank, layer_count, layers, &facts.place);
    if (status != KVF_OK) {
        geo_text_set(text_out, "the stages of %s do not hold the model's %u layers", instance->name,
                     layer_count);
        goto release;
    }
    if (publish_aux_bytes(layout) > KVF_AUX_BYTES_MAX) {
        geo_text_set(text_out, "%u aux bytes; at most %u fit a report", publish_aux_bytes(layout),
                     KVF_AUX_BYTES_MAX);
        status = KVF_E_TOO_LARGE;
        goto release;
    }
    for (uint32_t a = 0; a < layout->aux_count; a++)
        aux[a].item_bytes = layout->aux_bytes[a];
    status = publish_pools(layout, pools, geo_pools, text_out);
    facts.pools = geo_pools;
    facts.aux = aux;
    if (status == KVF_OK)
        status = geo_record_open(heap, &facts, &kvf->record);
    if (status == KVF_OK)
        status = geo_check_local(kvf->record, text_out);
    else if (status == KVF_E_TOO_LARGE)
        geo_check_local(&facts, text_out); /* refused again, and this says why */

release:
    kvf_release(heap, aux);
    kvf_release(heap, geo_pools);
    kvf_release(heap, layers);
    return status;
}

/* ---- encoding ------------------------------------------------------------------------------- */

/* The parts of a HELLO while it is made. */
struct publish_parts {
    uint8_t *bytes[MSG_HELLO_PART_COUNT];
    size_t len[MSG_HELLO_PART_COUNT];
};

static enum kvf_status publish_windows(struct kvf *kvf, struct kvf_pool *const *pools,
                                       uint8_t *bytes, size_t max_bytes, size_t *len_out)
{
    struct wire_writer writer = wire_writer_make(bytes, max_bytes);

    wire_put_u32(&writer, kvf->record->layout.pool_count);
    for (uint32_t p = 0; p < kvf->record->layout.pool_count; p++) {
        uint8_t key[TRANSPORT_KEY_BYTES_MAX];
        size_t len = 0;
        enum kvf_status status = kvf->transport->memory_pack(kvf->transport->self, pools[p]->memory,
                                                             key, sizeof(key), &len);

        if (status != KVF_OK)
            return status;
        wire_put_u32(&writer, (uint32_t)len);
        wire_put_bytes(&writer, key, len);
    }
    *len_out = writer.len_bytes;
    return writer.failed ? KVF_E_TOO_LARGE : KVF_OK;
}

#define CEILINGS_VERSION 1u
#define CEILINGS_BYTES 12u

/* Later versions append. */
static void publish_ceilings(const struct kvf *kvf, uint8_t *bytes)
{
    struct wire_writer writer = wire_writer_make(bytes, CEILINGS_BYTES);

    wire_put_u16(&writer, CEILINGS_VERSION);
    wire_put_u16(&writer, 0);
    wire_put_u32(&writer, (uint32_t)kvf->settings.requests_max);
    wire_put_u32(&writer, (uint32_t)kvf->settings.blocks_max);
}

static enum kvf_status publish_read_ceilings(const struct kvf *kvf, const struct msg_bytes *part,
                                             struct publish_peer *peer_out)
{
    struct wire_reader reader = wire_reader_make(part->bytes, part->len_bytes);
    uint16_t version;

    peer_out->requests_max = (uint32_t)kvf->settings.requests_max;
    peer_out->blocks_max = (uint32_t)kvf->settings.blocks_max;
    if (part->bytes == NULL)
        return KVF_OK;
    version = wire_get_u16(&reader);
    (void)wire_get_u16(&reader);
    peer_out->requests_max = wire_get_u32(&reader);
    peer_out->blocks_max = wire_get_u32(&reader);
    return reader.failed || version == 0 ? KVF_E_DECODE : KVF_OK;
}

static enum kvf_status publish_fill(struct kvf *kvf, struct kvf_pool *const *pools,
                                    struct publish_parts *parts)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    size_t windows_max = 4 + (size_t)kvf->record->layout.pool_count * (4 + TRANSPORT_KEY_BYTES_MAX);
    size_t geometry_max = 0;
    enum kvf_status status = geo_record_encode(kvf->record, NULL, 0, &geometry_max);

    if (status != KVF_OK)
        return status;
    parts->bytes[MSG_HELLO_GEOMETRY] = kvf_alloc(heap, geometry_max, 1);
    parts->bytes[MSG_HELLO_ADDRESSES] = kvf_alloc(heap, TRANSPORT_ADDRESS_BYTES_MAX, 1);
    parts->bytes[MSG_HELLO_WINDOWS] = kvf_alloc(heap, windows_max, 1);
    parts->bytes[MSG_HELLO_CEILINGS] = kvf_alloc(heap, CEILINGS_BYTES, 1);
    if (parts->bytes[MSG_HELLO_GEOMETRY] == NULL || parts->bytes[MSG_HELLO_ADDRESSES] == NULL ||
        parts->bytes[MSG_HELLO_WINDOWS] == NULL || parts->bytes[MSG_HELLO_CEILINGS] == NULL)
        return KVF_E_NOMEM;
    publish_ceilings(kvf, parts->bytes[MSG_HELLO_CEILINGS]);
    parts->len[MSG_HELLO_CEILINGS] = CEILINGS_BYTES;
    status = geo_record_encode(kvf->record, parts->bytes[MSG_HELLO_GEOMETRY], geometry_max,
                               &parts->len[MSG_HELLO_GEOMETRY]);
    if (status == KVF_OK)
        status =
            kvf->transport->address(kvf->transport->self, parts->bytes[MSG_HELLO_ADDRESSES],
                                    TRANSPORT_ADDRESS_BYTES_MAX, &parts->len[MSG_HELLO_ADDRESSES]);
    if (status == KVF_OK)
        status = publish_windows(kvf, pools, parts->bytes[MSG_HELLO_WINDOWS], windows_max,
                                 &parts->len[MSG_HELLO_WINDOWS]);
    return status;
}

static enum kvf_status publish_seal(struct kvf *kvf, const struct publish_parts *parts,
                                    struct publish_blob *blob_out)
{
    struct msg hello = {
        .header =
            {
                .type = MSG_HELLO,
                .source_instance = (uint16_t)kvf->place.instance,
                .source_rank = (uint16_t)kvf->place.rank,
                .epoch = kvf->epoch,
            },
        .u.hello =
            {
                .wire_version_min = MSG_VERSION,
                .wire_version_max = MSG_VERSION,
                .side = (uint8_t)kvf->place.side,
                .pid = (uint32_t)getpid(),
                .capabilities = MSG_CAPS_ALL,
            },
    };
    size_t size;
    enum kvf_status status;

    for (unsigned part = 0; part < MSG_HELLO_PART_COUNT; part++)
        hello.u.hello.parts[part] = (struct msg_bytes){
            .bytes = parts->bytes[part],
            .len_bytes = (uint32_t)parts->len[part],
        };
    size = msg_size(&hello);
    blob_out->bytes = kvf_alloc(&kvf->heap.table, size, 1);
    if (blob_out->bytes == NULL)
        return KVF_E_NOMEM;
    status = msg_encode(&hello, blob_out->bytes, size, &blob_out->len_bytes);
    if (status == KVF_OK)
        msg_seal(blob_out->bytes, blob_out->len_bytes, 1);
    return status;
}

enum kvf_status publish_encode(struct kvf *kvf, struct kvf_pool *const *pools,
                               struct publish_blob *blob_out)
{
    struct publish_parts parts = {0};
    enum kvf_status status = publish_fill(kvf, pools, &parts);

    if (status == KVF_OK)
        status = publish_seal(kvf, &parts, blob_out);
    for (unsigned part = 0; part < MSG_HELLO_PART_COUNT; part++)
        kvf_release(&kvf->heap.table, parts.bytes[part]);
    return status;
}

/* ---- decoding ------------------------------------------------------------------------------- */

enum kvf_status publish_decode(struct kvf *kvf, uint32_t world_rank, const uint8_t *bytes,
                               size_t len_bytes, struct publish_peer *peer_out,
                               struct geo_text *text_out)
{
    const struct msg_bytes *parts;
    const char *why = "";
    struct msg msg;
    enum kvf_status status = msg_decode(bytes, len_bytes, &msg, &why);
    int instance = kvf_topology_instance_of(kvf->topology, world_rank);

    if (status == KVF_OK && (msg.header.type != MSG_HELLO || msg.header.epoch == 0)) {
        why = "not a HELLO";
        status = KVF_E_PROTOCOL;
    }
    if (status != KVF_OK) {
        geo_text_set(text_out, "record of world rank %u: %s", world_rank, why);
        return status;
    }
    if (msg.header.source_instance != instance ||
        msg.header.source_rank != world_rank - kvf->topology->instances[instance].first_rank) {
        geo_text_set(text_out, "world rank %u says that it is instance %u rank %u", world_rank,
                     msg.header.source_instance, msg.header.source_rank);
        return KVF_E_PROTOCOL;
    }
    if (msg.u.hello.wire_version_min > MSG_VERSION || msg.u.hello.wire_version_max < MSG_VERSION) {
        geo_text_set(text_out, "world rank %u speaks wire versions %u to %u, this rank %u",
                     world_rank, msg.u.hello.wire_version_min, msg.u.hello.wire_version_max,
                     MSG_VERSION);
        return KVF_E_INCOMPATIBLE;
    }
    parts = msg.u.hello.parts;
    peer_out->epoch = msg.header.epoch;
    peer_out->pid = msg.u.hello.pid;
    peer_out->address = parts[MSG_HELLO_ADDRESSES].bytes;
    peer_out->address_bytes = parts[MSG_HELLO_ADDRESSES].len_bytes;
    peer_out->windows = parts[MSG_HELLO_WINDOWS].bytes;
    peer_out->windows_bytes = parts[MSG_HELLO_WINDOWS].len_bytes;
    status = publish_read_ceilings(kvf, &parts[MSG_HELLO_CEILINGS], peer_out);
    if (status != KVF_OK) {
        geo_text_set(text_out, "record of world rank %u: its ceilings cannot be read", world_rank);
        return status;
    }
    return geo_record_decode(&kvf->heap.table, parts[MSG_HELLO_GEOMETRY].bytes,
                             parts[MSG_HELLO_GEOMETRY].len_bytes, &peer_out->record, text_out);
}
