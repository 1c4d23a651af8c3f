/*
 * reactor_send.c - the context side's machine: its ceilings, its events, its actions.
 */
#include "reactor_internal.h"

#include <string.h>

#include "rid_map.h"

#define SEND_GROUPS_HELD 16u /* receivers of one request that the stores are sized for */

/* ---- open ----------------------------------------------------------------------------------- */

/* A group of receivers for each dp group of each generation instance, in that order. */
struct send_groups {
    struct send_group *groups;
    uint32_t *ranks;    /* storage of all groups */
    uint32_t *group_of; /* [world_size] */
    uint32_t count;
    uint32_t largest;
};

static uint32_t send_group_index(const struct kvf *kvf, struct kvf_end end)
{
    uint32_t index = 0;

    if (end.instance >= kvf->peers.instance_count)
        return SESSION_GROUP_UNKNOWN;
    for (uint32_t i = 0; i < end.instance; i++)
        index += kvf->peers.routes[i].group_count;
    if (end.dp_group == KVF_UNKNOWN)
        return kvf->peers.routes[end.instance].group_count == 1 ? index : SESSION_GROUP_UNKNOWN;
    return index + end.dp_group;
}

static enum kvf_status send_groups_make(struct kvf *kvf, struct send_groups *groups)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    struct peers *peers = &kvf->peers;
    uint32_t total = 0, at = 0;

    for (uint32_t i = 0; i < peers->instance_count; i++)
        for (uint32_t g = 0; g < peers->routes[i].group_count; g++) {
            groups->count++;
            total += peers->routes[i].routes[g].count;
        }
    groups->groups = kvf_alloc(heap, (size_t)groups->count + 1, sizeof(*groups->groups));
    groups->ranks = kvf_alloc(heap, (size_t)total + 1, sizeof(*groups->ranks));
    groups->group_of = kvf_alloc(heap, kvf->place.world_size, sizeof(*groups->group_of));
    if (groups->groups == NULL || groups->ranks == NULL || groups->group_of == NULL)
        return KVF_E_NOMEM;
    groups->count = 0;
    memset(groups->group_of, 0xff, kvf->place.world_size * sizeof(*groups->group_of));
    for (uint32_t i = 0; i < peers->instance_count; i++)
        for (uint32_t g = 0; g < peers->routes[i].group_count; g++) {
            const struct peer_route *route = &peers->routes[i].routes[g];

            groups->groups[groups->count] =
                (struct send_group){.ranks = groups->ranks + at, .count = route->count};
            for (uint32_t p = 0; p < route->count; p++) {
                uint32_t rank = peers->list[route->peers[p]].world_rank;

                groups->ranks[at++] = rank;
                groups->group_of[rank] = groups->count;
            }
            if (route->count > groups->largest)
                groups->largest = route->count;
            groups->count++;
        }
    return KVF_OK;
}

static uint32_t send_min(uint64_t value, uint64_t most)
{
    return (uint32_t)(value < most ? value : most);
}

/*
 * Ceilings from what receivers may ask for: they open requests within their own ceilings, and each
 * of these has its place here. Requests that are asked for wait as asks until the engine opens
 * them; then they have a session, and its receivers stay until it is released.
 */
static enum kvf_status send_glue_demand(const struct reactor *reactor,
                                        const struct send_groups *groups,
                                        struct send_params *params)
{
    const struct peer_demand *demand = &reactor->kvf->peers.demand;
    const struct kvf_settings *settings = &reactor->kvf->settings;
    uint64_t requests = settings->requests_max;
    uint64_t receivers = demand->requests + requests * (groups->largest + 1);
    uint64_t blocks = settings->blocks_max + demand->blocks;

    if (receivers + requests > STORE_RUNS_MAX || blocks > STORE_WORDS_MAX ||
        requests + demand->requests + 2 * settings->tombstones_max > RID_MAP_ENTRIES_MAX)
        return KVF_E_TOO_LARGE;
    params->asks_max = (uint32_t)demand->requests + 1;
    params->fences_max = (uint32_t)settings->tombstones_max;
    params->receivers_max = (uint32_t)receivers;
    params->answers_max = (uint32_t)(requests * 4 + demand->requests + 4096);
    params->blocks_max = (uint32_t)blocks;
    return send_session_bytes(params) <= settings->asks_bytes_max ? KVF_OK : KVF_E_TOO_LARGE;
}

/* Errors: E_TOO_LARGE. */
static enum kvf_status send_glue_params(const struct reactor *reactor,
                                        const struct send_groups *groups,
                                        struct send_params *params_out)
{
    const struct kvf *kvf = reactor->kvf;
    const struct kvf_settings *settings = &kvf->settings;
    uint32_t requests = (uint32_t)settings->requests_max;
    uint32_t held = groups->largest == 0 ? 1 : send_min(groups->largest, SEND_GROUPS_HELD);

    *params_out = (struct send_params){
        .times =
            {
                .transfer_timeout_ns = settings->kv_transfer_timeout_ms * CLOCK_NS_PER_MS,
                .remember_ns = settings_info_ttl_ms(settings) * CLOCK_NS_PER_MS,
                .cancel_resend_ns = CLOCK_NS_PER_S,
                .scatter_warn_ns = 5 * CLOCK_NS_PER_S,
            },
        .self = {(uint16_t)kvf->place.instance, (uint16_t)kvf->place.rank, kvf->epoch},
        .log_level = kvf->logger.level,
        .world_size = kvf->place.world_size,
        .requests_max = requests,
        .tombstones_max = (uint32_t)settings->tombstones_max,
        .served_max = send_min(settings->tombstones_max * held, 1u << 18),
        .windows_max =
            settings->enable_pipelined_transfer ? requests * ADMISSION_WINDOWS_MAX : requests,
        .tasks_max = REACTOR_TASKS,
        .lists_max = reactor->asked_lists_max == 0 ? 1 : reactor->asked_lists_max,
        .aux_bytes = kvf->admission.params.aux_bytes,
        .groups = groups->groups,
        .group_count = groups->count,
        .group_of = groups->group_of,
    };
    return send_glue_demand(reactor, groups, params_out);
}

/* Why the ceilings are refused. */
static void send_glue_refusal(const struct reactor *reactor, const struct send_params *params,
                              struct geo_text *text_out)
{
    const struct peer_demand *demand = &reactor->kvf->peers.demand;

    geo_text_set(text_out,
                 "%u receivers may ask for %llu requests of %llu blocks in all, which takes more "
                 "than asks_bytes_max (%llu MiB wanted, %llu allowed): make their requests_max or "
                 "blocks_max smaller, or it larger",
                 demand->askers, (unsigned long long)demand->requests,
                 (unsigned long long)demand->blocks,
                 (unsigned long long)(send_session_bytes(params) >> 20),
                 (unsigned long long)(reactor->kvf->settings.asks_bytes_max >> 20));
}

/* Scratch for one REQUEST_DATA of any peer. */
static enum kvf_status send_glue_scratch(struct reactor *reactor)
{
    const struct kvf_heap *heap = &reactor->kvf->heap.table;
    uint32_t words = 1;

    reactor->asked_lists_max = reactor->kvf->record->layout.group_count;
    for (uint32_t p = 0; p < reactor->kvf->peers.count; p++) {
        const struct geo_record *record = reactor->kvf->peers.list[p].record;

        if (record == NULL)
            continue;
        if (plan_check_words(record) > words)
            words = plan_check_words(record);
        if (record->layout.group_count > reactor->asked_lists_max)
            reactor->asked_lists_max = record->layout.group_count;
    }
    reactor->asked_slots_max = send_min(reactor->kvf->peers.demand.blocks_largest, MSG_BLOCKS_MAX);
    reactor->bitmap = kvf_alloc(heap, words, sizeof(*reactor->bitmap));
    reactor->asked_lists =
        kvf_alloc(heap, (size_t)MSG_GROUPS_MAX + 1, sizeof(*reactor->asked_lists));
    reactor->asked_slots =
        kvf_alloc(heap, (size_t)reactor->asked_slots_max + 1, sizeof(*reactor->asked_slots));
    if (reactor->bitmap == NULL || reactor->asked_lists == NULL || reactor->asked_slots == NULL)
        return KVF_E_NOMEM;
    return KVF_OK;
}

enum kvf_status send_glue_open(struct reactor *reactor, struct geo_text *text_out)
{
    struct kvf *kvf = reactor->kvf;
    struct send_groups groups = {0};
    struct send_params params;
    enum kvf_status status = send_glue_scratch(reactor);

    if (status == KVF_OK)
        status = send_groups_make(kvf, &groups);
    if (status == KVF_OK) {
        status = send_glue_params(reactor, &groups, &params);
        if (status != KVF_OK)
            send_glue_refusal(reactor, &params, text_out);
    }
    if (status == KVF_OK) {
        status = send_session_open(&kvf->heap.table, &params, &reactor->send);
        log_debug(&kvf->logger, "room for %llu requests of %u receivers: %llu MiB",
                  (unsigned long long)kvf->peers.demand.requests, kvf->peers.demand.askers,
                  (unsigned long long)(send_session_bytes(&params) >> 20));
    }
    kvf_release(&kvf->heap.table, groups.group_of);
    kvf_release(&kvf->heap.table, groups.ranks);
    kvf_release(&kvf->heap.table, groups.groups);
    return status;
}

/* ---- actions -------------------------------------------------------------------------------- */

static void send_carry(struct reactor *reactor, struct send_action *action)
{
    struct peer *peer;

    switch (action->kind) {
    case SEND_ACT_MESSAGE:
        peer = peer_of_rank(&reactor->kvf->peers, action->peer);
        check_attach(reactor, action->peer, &action->u.msg);
        if (peer != NULL)
            peer_send(reactor, peer, &action->u.msg); /* a loss is noted and stepped later */
        break;
    case SEND_ACT_TASK_START:
        task_add(reactor, &action->u.start);
        break;
    case SEND_ACT_TASK_ABORT:
        task_abort(reactor, action->u.abort);
        break;
    case SEND_ACT_VOTE:
        sweeper_vote(reactor->kvf->sweeper, action->u.vote.rid, action->u.vote.vote,
                     &action->u.vote.result, reactor->real_ns);
        break;
    case SEND_ACT_LOSE_PEER:
        peer = peer_of_rank(&reactor->kvf->peers, action->peer);
        if (peer != NULL)
            peer_note_loss(reactor, peer, "too many answers wait for it");
        break;
    case SEND_ACT_LOG:
        reactor_log(reactor, &action->u.log);
        break;
    }
}

enum kvf_status send_glue_step(struct reactor *reactor, struct send_event *event)
{
    struct send_action action;
    struct send_out out = {.actions = &action, .max = 1};
    struct send_event next = {.kind = SEND_POLL};
    enum kvf_status status;

    event->now_ns = next.now_ns = reactor->now_ns;
    event->real_ns = next.real_ns = reactor->real_ns;
    status = send_session_step(reactor->send, event, &out);
    for (;;) {
        if (out.count > 0)
            send_carry(reactor, &action);
        if (!out.more)
            return status;
        out.count = 0;
        send_session_step(reactor->send, &next, &out);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

void send_glue_request(struct reactor *reactor, const struct admission_request *request)
{
    struct send_event event = {
        .kind = SEND_OPEN,
        .u.open =
            {
                .rid = request->rid,
                .called_ns = request->opened_ns,
                .prompt_tokens = request->prompt_tokens,
                .group = request->end.instance == KVF_UNKNOWN
                             ? SESSION_GROUP_UNKNOWN
                             : send_group_index(reactor->kvf, request->end),
                .list_count = reactor->kvf->record->layout.group_count,
                .lists = request->lists,
                .aux = request->aux,
            },
    };
    const struct peer_route *route = request->end.instance == KVF_UNKNOWN
                                         ? NULL
                                         : peer_route(&reactor->kvf->peers, request->end);
    enum kvf_status status = route == NULL ? KVF_OK : route->status;

    if (status == KVF_OK)
        status = send_glue_step(reactor, &event);
    if (status != KVF_OK)
        reactor_refuse(reactor, request->rid, status);
}

/* Does what a receiver asks for fit its own record? */
static enum kvf_status send_check_asked(struct reactor *reactor, struct peer *peer,
                                        const struct msg_request_data *data)
{
    struct geo_text text = {{0}};
    enum kvf_status status;

    if (peer->verdict != KVF_OK)
        return KVF_OK; /* the machine knows, and answers with the verdict */
    if (data->block_count > reactor->asked_slots_max ||
        data->group_count > reactor->asked_lists_max)
        return KVF_E_TOO_LARGE;
    msg_request_data_copy(data, reactor->asked_lists, reactor->asked_slots);
    status = plan_check_lists(peer->record, reactor->asked_lists, data->group_count,
                              reactor->bitmap, &text);
    if (status != KVF_OK)
        log_warn(&reactor->kvf->logger, "W38", "request %llu of %s: %s: %s",
                 (unsigned long long)data->rid, peer->name, kvf_status_text(status), text.s);
    return status;
}

void send_glue_message(struct reactor *reactor, struct peer *peer, const struct msg *msg,
                       enum kvf_status check)
{
    struct send_event event = {
        .kind = SEND_MESSAGE,
        .u.message = {.peer = peer->world_rank, .msg = msg, .check = check},
    };

    if (msg->header.type == MSG_REQUEST_DATA && check == KVF_OK)
        event.u.message.check = send_check_asked(reactor, peer, &msg->u.request_data);
    send_glue_step(reactor, &event);
}
