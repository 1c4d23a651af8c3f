/*
 * tiny_engine.c - see tiny_engine.h.
 */
#include "tiny_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void tiny_model(const struct tiny_params *params, struct kvf_model_layer *layers,
                       struct kvf_model *model_out)
{
    static const uint32_t aux_bytes[1] = {TINY_AUX_BYTES};

    for (uint32_t l = 0; l < TINY_LAYERS; l++)
        layers[l] = (struct kvf_model_layer){
            .owner = KVF_OWNER_TARGET,
            .kv_heads = params->heads == 0 ? TINY_HEADS : params->heads,
            .head_dim = params->head_dim == 0 ? TINY_HEAD_DIM : params->head_dim,
            .dtype = KVF_DTYPE_BF16,
            .elem_bits = 16,
        };
    *model_out = (struct kvf_model){
        .layer_count = TINY_LAYERS,
        .layers = layers,
        .tokens_per_block = TINY_BLOCK,
        .ownership_bridge = params->bridge,
        .aux_count = params->aux ? 1 : 0,
        .aux_bytes = aux_bytes,
    };
}

static enum kvf_status tiny_pool(struct tiny_engine *engine, uint32_t index)
{
    struct kvf_pool_params pool = KVF_POOL_PARAMS_INIT;
    uint64_t stride = engine->layout->pools[index].slot_stride;

    pool.slot_bytes = engine->layout->pools[index].slot_bytes;
    pool.slot_stride = stride;
    pool.slots = engine->params.slots;
    if (!engine->params.registered)
        return kvf_pool_alloc(engine->kvf, &pool, &engine->pools[index]);
    engine->own[index] = aligned_alloc(4096, (stride * pool.slots + 4095) / 4096 * 4096);
    pool.base = engine->own[index];
    return kvf_pool_register(engine->kvf, &pool, &engine->pools[index]);
}

enum kvf_status tiny_open(struct tiny_engine *engine, struct kvf *kvf,
                          const struct kvf_topology *topology, const struct tiny_params *params)
{
    struct kvf_model_layer layers[TINY_LAYERS];
    struct kvf_model model;
    char text[256] = "";
    enum kvf_status status;

    *engine = (struct tiny_engine){
        .params = *params,
        .kvf = kvf,
        .topology = topology,
        .rank = KVF_RANK_INIT,
    };
    tiny_model(params, layers, &model);
    status = kvf_rank(kvf, &engine->rank);
    if (status == KVF_OK)
        status = kvf_place(topology, engine->rank.world_rank, TINY_LAYERS, engine->layers_scratch,
                           &engine->place);
    if (status == KVF_OK)
        status = kvf_layout_from_model(&model, &engine->place, &engine->layout, text, sizeof(text));
    if (status != KVF_OK) {
        fprintf(stderr, "tiny engine: %s %s\n", kvf_status_name(status), text);
        return status;
    }
    for (uint32_t p = 0; p < engine->layout->pool_count; p++)
        if (tiny_pool(engine, p) != KVF_OK && params->again)
            tiny_pool(engine, p);
    if (params->spoil != NULL) {
        struct kvf_layout spoiled = *engine->layout;

        params->spoil(&spoiled);
        return kvf_publish(kvf, &spoiled, engine->pools);
    }
    return kvf_publish(kvf, engine->layout, engine->pools);
}

void tiny_close(struct tiny_engine *engine)
{
    for (uint32_t p = 0; p < TINY_POOLS_MAX; p++)
        free(engine->own[p]);
    kvf_layout_free(engine->layout);
}

/* ---- content -------------------------------------------------------------------------------- */

static uint64_t tiny_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static uint64_t tiny_word(uint64_t rid, uint32_t layer, uint32_t role, uint32_t head,
                          uint32_t token, uint32_t word)
{
    uint64_t place = ((((uint64_t)layer * 16 + role) * 64 + head) * 1048576 + token) * 64 + word;

    return tiny_mix(tiny_mix(rid + 1) + place);
}

static uint32_t tiny_slot(const struct tiny_engine *engine, const struct tiny_request *request,
                          uint32_t block)
{
    uint32_t blocks = (request->prompt_tokens + TINY_BLOCK - 1) / TINY_BLOCK;

    return engine->rank.side == KVF_CONTEXT ? request->slot_first + block
                                            : request->slot_first + blocks - 1 - block;
}

/* What happens to each word of a request: compared or written. Returns bad bytes. */
static uint64_t tiny_entry(struct tiny_engine *engine, const struct tiny_request *request,
                           const struct kvf_view *view, const struct kvf_entry *entry, bool compare)
{
    uint32_t blocks = (request->prompt_tokens + TINY_BLOCK - 1) / TINY_BLOCK;
    uint32_t words = engine->layout->head_dim * 2 / 8;
    uint32_t heads = view->heads;
    uint64_t bad = 0;

    for (uint32_t b = 0; b < blocks; b++) {
        bool arrives = engine->rank.side == KVF_CONTEXT || b >= request->cached_tokens / TINY_BLOCK;
        uint64_t *at = (uint64_t *)((uint8_t *)kvf_pool_base(engine->pools[view->pool]) +
                                    tiny_slot(engine, request, b) *
                                        engine->layout->pools[view->pool].slot_stride +
                                    entry->offset);

        for (uint32_t h = 0; h < heads; h++)
            for (uint32_t t = 0; t < TINY_BLOCK; t++)
                for (uint32_t w = 0; w < words; w++, at++) {
                    uint32_t i =
                        engine->place.tp_rank % (engine->place.tp_size / engine->place.dp_size);
                    uint64_t want = arrives ? tiny_word(request->rid, entry->layer, entry->role,
                                                        i * heads + h, b * TINY_BLOCK + t, w)
                                            : UINT64_C(0xcccccccccccccccc);

                    if (!compare)
                        *at =
                            engine->rank.side == KVF_CONTEXT ? want : UINT64_C(0xcccccccccccccccc);
                    else if (*at != want)
                        bad += 8;
                }
    }
    return bad;
}

static uint64_t tiny_all(struct tiny_engine *engine, const struct tiny_request *request,
                         bool compare)
{
    uint64_t bad = 0;

    for (uint32_t g = 0; g < engine->layout->group_count; g++)
        for (uint32_t v = 0; v < engine->layout->groups[g].view_count; v++) {
            const struct kvf_view *view = &engine->layout->groups[g].views[v];

            for (uint32_t e = 0; e < view->entry_count; e++)
                bad += tiny_entry(engine, request, view, &view->entries[e], compare);
        }
    return bad;
}

static void tiny_aux(uint64_t rid, uint8_t *out)
{
    for (uint32_t i = 0; i < TINY_AUX_BYTES; i++)
        out[i] = (uint8_t)tiny_mix(rid * 64 + i);
}

uint64_t tiny_request_bad(struct tiny_engine *engine, const struct tiny_request *request)
{
    uint8_t want[TINY_AUX_BYTES];
    uint64_t bad = tiny_all(engine, request, true);

    tiny_aux(request->rid, want);
    if (engine->params.aux && engine->rank.side == KVF_GENERATION &&
        memcmp(engine->aux[request->rid % 64], want, sizeof(want)) != 0)
        bad += sizeof(want);
    return bad;
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum kvf_status tiny_send_open(struct tiny_engine *engine,
                                      const struct tiny_request *request,
                                      const struct kvf_block_list *lists, struct kvf_end other)
{
    struct kvf_send_params params = KVF_SEND_PARAMS_INIT;
    uint8_t aux[TINY_AUX_BYTES];

    tiny_aux(request->rid, aux);
    params.rid = request->rid;
    params.prompt_tokens = request->prompt_tokens;
    params.destination = other;
    params.list_count = engine->layout->group_count;
    params.lists = lists;
    params.aux = engine->params.aux ? aux : NULL;
    return kvf_send_open(engine->kvf, &params);
}

static enum kvf_status tiny_recv_open(struct tiny_engine *engine,
                                      const struct tiny_request *request,
                                      const struct kvf_block_list *lists, struct kvf_end other)
{
    struct kvf_recv_params params = KVF_RECV_PARAMS_INIT;

    params.rid = request->rid;
    params.prompt_tokens = request->prompt_tokens;
    params.cached_tokens = request->cached_tokens;
    params.source = other;
    params.list_count = engine->layout->group_count;
    params.lists = lists;
    params.aux = engine->params.aux ? engine->aux[request->rid % 64] : NULL;
    params.synchronous = request->synchronous;
    return kvf_recv_open(engine->kvf, &params);
}

enum kvf_status tiny_request_open(struct tiny_engine *engine, const struct tiny_request *request,
                                  struct kvf_end other)
{
    uint32_t blocks = (request->prompt_tokens + TINY_BLOCK - 1) / TINY_BLOCK;
    struct kvf_block_list lists[8];
    uint32_t *slots = malloc((blocks + 1) * sizeof(*slots));
    enum kvf_status status;

    if (slots == NULL)
        return KVF_E_NOMEM;
    for (uint32_t b = 0; b < blocks; b++)
        slots[b] = tiny_slot(engine, request, b);
    for (uint32_t g = 0; g < engine->layout->group_count; g++)
        lists[g] = (struct kvf_block_list){.first = 0, .count = blocks, .slots = slots};
    tiny_all(engine, request, false);
    memset(engine->aux[request->rid % 64], 0, TINY_AUX_BYTES);
    status = engine->rank.side == KVF_CONTEXT ? tiny_send_open(engine, request, lists, other)
                                              : tiny_recv_open(engine, request, lists, other);
    free(slots);
    return status;
}

enum kvf_status tiny_request_ready(struct tiny_engine *engine, uint64_t rid)
{
    struct kvf_window window = KVF_WINDOW_INIT;

    return kvf_send_blocks(engine->kvf, rid, &window);
}

uint32_t tiny_sweep(struct tiny_engine *engine, struct kvf_event *events_out, uint32_t max)
{
    uint32_t total = 0;
    enum kvf_status status;

    do {
        size_t count = 0;

        status = kvf_sweep(engine->kvf, engine->iteration, events_out + total, max - total, &count);
        total += (uint32_t)count;
    } while (status == KVF_MORE && total < max);
    if (status == KVF_OK)
        engine->iteration++;
    else if (status != KVF_MORE && status != KVF_AGAIN && status != KVF_E_GROUP_LOST)
        abort();
    return total;
}
