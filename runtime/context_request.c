/*
 * context_request.c - the public calls about requests, and the ones that show why.
 *
 * Any thread. What can be wrong with a call is answered in it; what happens to the request comes as
 * events.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "context.h"
#include "params.h"
#include "reactor.h"

static enum kvf_status request_state(struct kvf *kvf, enum kvf_side side)
{
    switch (context_state(kvf)) {
    case CONTEXT_OPEN:
    case CONTEXT_FAILED:
        return KVF_E_STATE;
    case CONTEXT_CLOSING:
        return KVF_E_CLOSED;
    case CONTEXT_READY:
        break;
    }
    if (atomic_load(&kvf->group_lost))
        return KVF_E_GROUP_LOST;
    return kvf->place.side == side ? KVF_OK : KVF_E_STATE;
}

static enum kvf_status request_end(const struct kvf *kvf, struct kvf_end end)
{
    const struct kvf_instance *instance;

    if (end.instance >= kvf->topology->instance_count)
        return KVF_E_INVAL;
    instance = &kvf->topology->instances[end.instance];
    if (instance->side == kvf->place.side ||
        (end.dp_group != KVF_UNKNOWN && end.dp_group >= instance->dp_size))
        return KVF_E_INVAL;
    return KVF_OK;
}

static enum kvf_status request_take(struct kvf *kvf, const struct admission_ask *ask)
{
    struct admission_request *request;
    struct geo_text text = {{0}};
    enum kvf_status status = admission_take(&kvf->admission, ask, &request, &text);

    if (status != KVF_OK) {
        if (text.s[0] != 0)
            log_error(&kvf->logger, "", "request %llu: %s: %s", (unsigned long long)ask->rid,
                      kvf_status_text(status), text.s);
        return status;
    }
    status = reactor_open_request(kvf->reactor, request);
    if (status != KVF_OK) {
        admission_undo(&kvf->admission, request);
        return status;
    }
    metrics_add(&kvf->metrics.requests_opened, 1);
    return KVF_OK;
}

enum kvf_status kvf_send_open(struct kvf *kvf, const struct kvf_send_params *given)
{
    struct kvf_send_params params;
    struct admission_ask ask;
    enum kvf_status status;

    if (kvf == NULL || !params_read(given, &params, sizeof(params)))
        return KVF_E_INVAL;
    status = request_state(kvf, KVF_CONTEXT);
    if (status == KVF_OK && params.destination.instance != KVF_UNKNOWN)
        status = request_end(kvf, params.destination);
    if (status == KVF_OK && params.list_count > 0 && params.lists == NULL)
        status = KVF_E_INVAL;
    if (status != KVF_OK)
        return status;
    ask = (struct admission_ask){
        .rid = params.rid,
        .prompt_tokens = params.prompt_tokens,
        .end = params.destination,
        .list_count = params.list_count,
        .lists = params.lists,
        .aux_copy = params.aux,
        .now_ns = clock_now_ns(),
    };
    return request_take(kvf, &ask);
}

/* The blocks that this side publishes: what is cached or out of the window stays out. */
static void request_trim(const struct kvf *kvf, const struct kvf_recv_params *params,
                         struct kvf_block_list *lists)
{
    const struct kvf_layout *layout = &kvf->record->layout;

    for (uint32_t g = 0; g < params->list_count; g++) {
        uint32_t first, skip;

        lists[g] = params->lists[g];
        if (g >= layout->group_count || layout->groups[g].group_class == KVF_GROUP_STATE)
            continue;
        first = plan_first_ordinal(params->prompt_tokens, params->cached_tokens,
                                   layout->groups[g].window, layout->tokens_per_block);
        if (lists[g].first >= first || lists[g].count == 0 || lists[g].slots == NULL)
            continue;
        skip = first - lists[g].first < lists[g].count ? first - lists[g].first : lists[g].count;
        lists[g].first += skip;
        lists[g].count -= skip;
        lists[g].slots += skip;
    }
}

enum kvf_status kvf_recv_open(struct kvf *kvf, const struct kvf_recv_params *given)
{
    struct kvf_block_list lists[GEO_GROUPS_MAX];
    struct kvf_recv_params params;
    struct admission_ask ask;
    enum kvf_status status;

    if (kvf == NULL || !params_read(given, &params, sizeof(params)))
        return KVF_E_INVAL;
    status = request_state(kvf, KVF_GENERATION);
    if (status == KVF_OK)
        status = request_end(kvf, params.source);
    if (status == KVF_OK && ((params.list_count > 0 && params.lists == NULL) ||
                             params.cached_tokens > params.prompt_tokens))
        status = KVF_E_INVAL;
    if (status == KVF_OK && params.list_count > GEO_GROUPS_MAX)
        status = KVF_E_REQ_GROUPS;
    if (status != KVF_OK)
        return status;
    request_trim(kvf, &params, lists);
    ask = (struct admission_ask){
        .rid = params.rid,
        .prompt_tokens = params.prompt_tokens,
        .cached_tokens = params.cached_tokens,
        .end = params.source,
        .list_count = params.list_count,
        .lists = lists,
        .aux = params.aux,
        .synchronous = params.synchronous,
        .unique = true,
        .capped = params.synchronous || kvf->record->place.pp_size > 1,
        .now_ns = clock_now_ns(),
    };
    return request_take(kvf, &ask);
}

enum kvf_status kvf_send_blocks(struct kvf *kvf, kvf_req_id rid, const struct kvf_window *given)
{
    struct session_window ready;
    struct kvf_window window;
    enum kvf_status status;

    if (kvf == NULL || !params_read(given, &window, sizeof(window)))
        return KVF_E_INVAL;
    status = request_state(kvf, KVF_CONTEXT);
    if (status == KVF_E_CLOSED)
        return status;
    if (status != KVF_OK)
        return status;
    if (window.cuda_event != NULL)
        return KVF_E_UNSUPPORTED;
    status = admission_window(&kvf->admission, rid, &window, kvf->layer_count,
                              kvf->settings.enable_pipelined_transfer);
    if (status != KVF_OK)
        return status;
    ready = (struct session_window){
        .token_first = window.token_first,
        .token_end = window.token_end,
        .layer_first = window.layer_first,
        .layer_end = window.layer_end,
        .last = window.last,
    };
    status = reactor_add_window(kvf->reactor, rid, &ready);
    if (status != KVF_OK)
        admission_window_undo(&kvf->admission, rid, &window);
    return status;
}

enum kvf_status kvf_cancel(struct kvf *kvf, kvf_req_id rid)
{
    if (kvf == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY)
        return KVF_E_STATE;
    switch (admission_find(&kvf->admission, rid, clock_now_ns())) {
    case ADMISSION_UNKNOWN:
        return KVF_E_NOTFOUND;
    case ADMISSION_ENDED:
        return KVF_OK;
    case ADMISSION_LIVE:
        break;
    }
    return reactor_cancel(kvf->reactor, rid);
}

enum kvf_status kvf_progress(struct kvf *kvf)
{
    if (kvf == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY || kvf->settings.progress != SETTINGS_PROGRESS_CALLER)
        return KVF_E_STATE;
    return reactor_pass(kvf->reactor) ? KVF_OK : KVF_AGAIN;
}

/* ---- seeing why ----------------------------------------------------------------------------- */

enum kvf_status kvf_counters(struct kvf *kvf, struct kvf_counters *counters_out)
{
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    if (kvf == NULL)
        return KVF_E_INVAL;
    metrics_read(&kvf->metrics, &counters);
    if (context_state(kvf) == CONTEXT_READY) {
        counters.allocations_after_ready = atomic_load(&kvf->heap.taken) - kvf->taken_ready;
        counters.live_requests = admission_live(&kvf->admission);
        counters.retained_blocks = admission_retained(&kvf->admission);
    }
    return params_write(counters_out, &counters, sizeof(counters)) ? KVF_OK : KVF_E_INVAL;
}

enum kvf_status kvf_retained_blocks(struct kvf *kvf, uint64_t *blocks_out)
{
    if (kvf == NULL || blocks_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY)
        return KVF_E_STATE;
    *blocks_out = admission_retained(&kvf->admission);
    return KVF_OK;
}

/* Why requests with a rank fail: its own cache, or the grid of its instance. */
static enum kvf_status request_refusal(const struct kvf *kvf, const struct peer *peer,
                                       uint32_t world_rank, const char **why_out)
{
    const struct peer_routes *routes;
    int instance = kvf_topology_instance_of(kvf->topology, world_rank);

    if (peer != NULL) {
        *why_out = peer->verdict_text;
        return peer->verdict;
    }
    if (instance < 0 || (uint32_t)instance >= kvf->peers.instance_count)
        return KVF_OK;
    routes = &kvf->peers.routes[instance];
    *why_out = routes->verdict_text;
    return routes->verdict;
}

enum kvf_status kvf_path_to(struct kvf *kvf, uint32_t world_rank, enum kvf_path *path_out,
                            char *text_out, size_t text_bytes)
{
    const struct peer *peer;
    enum kvf_status refused;
    const char *why = "";

    if (kvf == NULL || path_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY && context_state(kvf) != CONTEXT_CLOSING)
        return KVF_E_STATE;
    peer = peer_of_rank(&kvf->peers, world_rank);
    if (peer != NULL && peer->member)
        return KVF_E_NOTFOUND; /* no request goes there */
    refused = request_refusal(kvf, peer, world_rank, &why);
    if (peer == NULL && refused == KVF_OK)
        return KVF_E_NOTFOUND;
    *path_out = peer == NULL ? KVF_PATH_NONE : peer->path;
    if (text_out == NULL || text_bytes == 0)
        return KVF_OK;
    if (refused != KVF_OK)
        snprintf(text_out, text_bytes, "refused: %s: %s", kvf_status_name(refused), why);
    else if (kvf->place.side == KVF_GENERATION)
        snprintf(text_out, text_bytes, "chosen by the writer %s", peer->name);
    else
        snprintf(text_out, text_bytes, "%s: %s%s%s", path_name(peer->path),
                 path_reason_text(peer->reason), peer->mapped_text[0] != 0 ? "; " : "",
                 peer->mapped_text);
    return KVF_OK;
}

enum kvf_status kvf_dump(struct kvf *kvf, FILE *file)
{
    static const char *const states[] = {"open", "ready", "failed", "closing"};
    struct kvf_counters counters = KVF_COUNTERS_INIT;

    if (kvf == NULL || file == NULL)
        return KVF_E_INVAL;
    kvf_counters(kvf, &counters);
    fprintf(file,
            "kvferry[%s] %s: %llu live, %llu ok, %llu failed, %llu cancelled, %llu retained and "
            "%llu stranded blocks, %llu bytes moved\n",
            kvf->name, states[context_state(kvf)], (unsigned long long)counters.live_requests,
            (unsigned long long)counters.requests_ok, (unsigned long long)counters.requests_failed,
            (unsigned long long)counters.requests_cancelled,
            (unsigned long long)counters.retained_blocks,
            (unsigned long long)counters.stranded_blocks,
            (unsigned long long)counters.payload_bytes);
    if (context_state(kvf) == CONTEXT_READY || context_state(kvf) == CONTEXT_CLOSING)
        reactor_dump(kvf->reactor, file);
    return fflush(file) == 0 ? KVF_OK : KVF_E_SYSTEM;
}
