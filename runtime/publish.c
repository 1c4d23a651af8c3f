/*
 * publish.c - the public call kvf_publish(): ranks tell each other what their caches look like and
 * connect. Each collective step ends in an agreement, so that all ranks return alike.
 */
#include "publish.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "msg.h"
#include "reactor.h"
#include "sweeper.h"

/* Layers of this instance's model, as far as any of its ranks knows them. */
static enum kvf_status publish_layer_count(struct kvf *kvf, const struct kvf_layout *layout,
                                           uint32_t *layers_out)
{
    struct world_gathered told = {0};
    uint32_t layers = publish_layers(layout);
    uint8_t mine[4];
    enum kvf_status status;

    wire_store_u32(mine, layers);
    status = kvf->world->gather(kvf->world->self, WORLD_INSTANCE, mine, sizeof(mine), &told);
    if (status != KVF_OK)
        return status;
    for (uint32_t r = 0; r < told.count; r++) {
        uint32_t its = told.offsets[r + 1] - told.offsets[r] == sizeof(mine)
                           ? wire_load_u32(told.bytes + told.offsets[r])
                           : 0;

        layers = its > layers ? its : layers;
    }
    world_gathered_free(&told);
    *layers_out = layers;
    return KVF_OK;
}

static enum kvf_status publish_admission(struct kvf *kvf)
{
    struct admission_params params = {
        .heap = &kvf->heap.table,
        .record = kvf->record,
        .requests_max = (uint32_t)kvf->settings.requests_max,
        .blocks_max = (uint32_t)kvf->settings.blocks_max,
        .message_max = MSG_BLOCKS_MAX,
        .ended_max = (uint32_t)kvf->settings.tombstones_max,
        .tokens_max = kvf->settings.max_tokens_in_buffer,
        .ended_ttl_ns = settings_info_ttl_ms(&kvf->settings) * CLOCK_NS_PER_MS,
    };

    for (uint32_t a = 0; a < kvf->record->layout.aux_count; a++)
        params.aux_bytes += kvf->record->layout.aux_bytes[a];
    return admission_init(&kvf->admission, &params);
}

/* Settings were checked before the layout was known; this is what was left. */
static enum kvf_status publish_bridge(struct kvf *kvf, const struct kvf_layout *layout)
{
    struct settings_report report = {0};
    enum kvf_status status = KVF_OK;

    if (layout->ownership_bridge)
        status = settings_check_bridge(&kvf->settings, &report);
    return context_agree(kvf, status, "ownership_bridge does not go with the settings",
                         report.error);
}

/* Something is missing that the engine should have given; `text_out` says what. */
static enum kvf_status publish_given(const struct kvf *kvf, const struct kvf_layout *layout,
                                     struct kvf_pool *const *pools, struct geo_text *text_out)
{
    if (layout == NULL) {
        geo_text_set(text_out, "no layout was given");
        return kvf->pool_status != KVF_OK ? kvf->pool_status : KVF_E_INVAL;
    }
    if (publish_whole(layout, text_out) != KVF_OK)
        return KVF_E_INVAL;
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        if (pools != NULL && pools[p] != NULL)
            continue;
        geo_text_set(text_out, "pool %u of the layout's %u is missing%s", p, layout->pool_count,
                     kvf->pool_status != KVF_OK ? ": it could not be taken" : "");
        return kvf->pool_status != KVF_OK ? kvf->pool_status : KVF_E_INVAL;
    }
    if (kvf->pool_status != KVF_OK && layout->pool_count == 0) {
        geo_text_set(text_out, "a pool could not be taken, and the layout has none in its place");
        return kvf->pool_status;
    }
    return KVF_OK; /* what failed before was made good */
}

/* This rank's own part: record and HELLO. */
static enum kvf_status publish_own(struct kvf *kvf, const struct kvf_layout *layout,
                                   struct kvf_pool *const *pools, struct publish_blob *blob)
{
    const char *step = "what is to be published is not whole";
    struct geo_text text = {{0}};
    uint32_t layers = 0;
    enum kvf_status status = publish_given(kvf, layout, pools, &text);

    status = context_agree(kvf, status, step, text.s);
    if (status == KVF_OK)
        status = publish_bridge(kvf, layout);
    if (status != KVF_OK)
        return status;
    step = "the ranks of the instance cannot tell each other their layers";
    status = publish_layer_count(kvf, layout, &layers);
    kvf->layer_count = layers;
    if (status == KVF_OK) {
        step = "no room for this rank's record";
        status = publish_record(kvf, layout, pools, layers, &text);
    }
    if (status == KVF_OK) {
        step = "no room for the requests that requests_max, blocks_max and tombstones_max allow";
        status = publish_admission(kvf);
    }
    if (status == KVF_OK) {
        step = "this rank's first message cannot be made";
        status = publish_encode(kvf, pools, blob);
    }
    return context_agree(kvf, status, step, text.s);
}

static bool publish_idle(void *self)
{
    struct kvf *kvf = self;

    return reactor_help(kvf->reactor);
}

/* Endpoints, machines, the first message both ways. */
static enum kvf_status publish_bring_up(struct kvf *kvf, const struct world_gathered *hellos,
                                        struct geo_text *text)
{
    uint64_t start_ns = clock_now_ns();
    const char *missing = "";
    enum kvf_status status = publish_connect(kvf, hellos, text);

    status = context_agree(kvf, status, "cannot connect to a peer", text->s);
    if (status != KVF_OK)
        return status;
    status = sweeper_open(kvf, &kvf->sweeper);
    if (status == KVF_OK)
        status = reactor_open(kvf, &kvf->reactor, text);
    status = context_agree(kvf, status, "no room for peers, requests and messages", text->s);
    if (status != KVF_OK)
        return status;
    kvf->world->set_idle(kvf->world->self, publish_idle, kvf);
    status = reactor_warm_up(
        kvf->reactor, start_ns + kvf->settings.connect_timeout_ms * CLOCK_NS_PER_MS, &missing);
    if (status != KVF_OK)
        geo_text_set(text, "%s does not answer", missing);
    status = context_agree(kvf, status, "a peer does not answer", text->s);
    if (status == KVF_OK)
        metrics_set(&kvf->metrics.connect_ns, clock_now_ns() - start_ns);
    return status;
}

static enum kvf_status publish_steps(struct kvf *kvf, const struct kvf_layout *layout,
                                     struct kvf_pool *const *pools)
{
    struct publish_blob blob = {0};
    struct world_gathered hellos = {0};
    struct geo_text text = {{0}};
    enum kvf_status status = publish_own(kvf, layout, pools, &blob);

    if (status == KVF_OK)
        status =
            kvf->world->gather(kvf->world->self, WORLD_ALL, blob.bytes, blob.len_bytes, &hellos);
    kvf_release(&kvf->heap.table, blob.bytes);
    if (status == KVF_OK) {
        status = publish_peers(kvf, &hellos, &text);
        status = context_agree(kvf, status, "no room for what peers told of their caches", text.s);
    }
    if (status == KVF_OK)
        status = publish_bring_up(kvf, &hellos, &text);
    if (status == KVF_OK) {
        status = publish_remotes(kvf, &hellos, &text);
        status = context_agree(kvf, status, "the pools of a peer cannot be reached", text.s);
    }
    kvf->world->set_idle(kvf->world->self, NULL, NULL);
    world_gathered_free(&hellos);
    return status;
}

/* The threads inherit where they run. */
static enum kvf_status publish_start(struct kvf *kvf)
{
    enum kvf_status status;

    topo_enter(&kvf->topo);
    status = reactor_start(kvf->reactor);
    topo_leave(&kvf->topo);
    return status;
}

enum kvf_status kvf_publish(struct kvf *kvf, const struct kvf_layout *layout,
                            struct kvf_pool *const *pools)
{
    enum kvf_status status;

    if (kvf == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_OPEN)
        return KVF_E_STATE;
    topo_read(&kvf->topo, kvf->refine_topo, kvf->settings.pin == SETTINGS_PIN_AUTO);
    topo_say(&kvf->topo, &kvf->logger, kvf->settings.progress == SETTINGS_PROGRESS_THREAD);
    status = publish_steps(kvf, layout, pools);
    if (status == KVF_OK)
        status = context_agree(kvf, publish_start(kvf), "cannot start a thread", NULL);
    if (status != KVF_OK) {
        if (kvf->reactor != NULL)
            reactor_stop(kvf->reactor);
        atomic_store(&kvf->state, CONTEXT_FAILED);
        return status;
    }
    kvf->taken_ready = atomic_load(&kvf->heap.taken);
    atomic_store(&kvf->state, CONTEXT_READY);
    log_debug(&kvf->logger, "ready: %u peers, connected in %llu us", kvf->peers.count,
              (unsigned long long)(atomic_load(&kvf->metrics.connect_ns) / CLOCK_NS_PER_US));
    return KVF_OK;
}
