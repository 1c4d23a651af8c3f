/*
 * reactor_recv.c - the generation side's machine: its ceilings, its events, its actions.
 */
#include "reactor_internal.h"

#include <string.h>

/* ---- open ----------------------------------------------------------------------------------- */

#define RECV_WRITERS_MAX (1u << 22) /* of all live requests together */

uint32_t recv_glue_writers_max(const struct reactor *reactor)
{
    const struct kvf *kvf = reactor->kvf;
    uint32_t most = 1;

    for (uint32_t i = 0; i < kvf->peers.instance_count; i++) {
        const struct peer_routes *routes = &kvf->peers.routes[i];

        if (routes->group_count > 0 && routes->routes[routes->group_count].count > most)
            most = routes->routes[routes->group_count].count;
    }
    return most;
}

enum kvf_status recv_glue_open(struct reactor *reactor, struct geo_text *text_out)
{
    struct kvf *kvf = reactor->kvf;
    const struct kvf_settings *settings = &kvf->settings;
    uint32_t writers = recv_glue_writers_max(reactor);
    uint64_t writers_max = settings->requests_max * writers;
    const struct recv_params params = {
        .times =
            {
                .transfer_timeout_ns = settings->kv_transfer_timeout_ms * CLOCK_NS_PER_MS,
                .remember_ns = settings_info_ttl_ms(settings) * CLOCK_NS_PER_MS,
                .cancel_resend_ns = CLOCK_NS_PER_S,
                .scatter_warn_ns = 5 * CLOCK_NS_PER_S,
            },
        .self = {(uint16_t)kvf->place.instance, (uint16_t)kvf->place.rank, kvf->epoch},
        .log_level = kvf->logger.level,
        .silence =
            settings->writer_silence == SETTINGS_SILENCE_RELEASE ? RECV_RELEASE : RECV_STRAND,
        .world_size = kvf->place.world_size,
        .requests_max = (uint32_t)settings->requests_max,
        .remembered_max = (uint32_t)settings->tombstones_max,
        .writers_max = (uint32_t)writers_max,
        .slices_max = ADMISSION_WINDOWS_MAX, /* a window is a slice */
        .blocks_max = (uint32_t)settings->blocks_max,
        .lists_max = kvf->record->layout.group_count == 0 ? 1 : kvf->record->layout.group_count,
        .aux_bytes = kvf->admission.params.aux_bytes,
    };

    if (writers_max > RECV_WRITERS_MAX) {
        geo_text_set(text_out,
                     "%llu requests of %u writers each are more than %u: make "
                     "requests_max smaller",
                     (unsigned long long)settings->requests_max, writers, RECV_WRITERS_MAX);
        return KVF_E_TOO_LARGE;
    }
    reactor->writers = kvf_alloc(&kvf->heap.table, writers, sizeof(*reactor->writers));
    if (reactor->writers == NULL)
        return KVF_E_NOMEM;
    return recv_session_open(&kvf->heap.table, &params, &reactor->recv);
}

/* ---- actions -------------------------------------------------------------------------------- */

/* Carries one action out. True: `follow` is to be stepped next. */
static bool recv_carry(struct reactor *reactor, struct recv_action *action,
                       struct recv_event *follow)
{
    struct peer *peer;
    enum kvf_status status;

    switch (action->kind) {
    case RECV_ACT_MESSAGE:
        peer = peer_of_rank(&reactor->kvf->peers, action->peer);
        status = peer == NULL ? KVF_E_PEER_LOST : peer_send(reactor, peer, &action->u.msg);
        if (status == KVF_OK || action->u.msg.header.type != MSG_REQUEST_DATA)
            return false; /* a loss is noted and stepped later */
        *follow = (struct recv_event){
            .kind = RECV_PUBLISH_FAILED,
            .now_ns = reactor->now_ns,
            .real_ns = reactor->real_ns,
            .u.publish =
                {
                    .rid = action->u.msg.u.request_data.rid,
                    .peer = action->peer,
                    .code = status,
                },
        };
        return true;
    case RECV_ACT_FENCE:
        return false; /* no own copies into the pages on these rungs */
    case RECV_ACT_VOTE:
        sweeper_vote(reactor->kvf->sweeper, action->u.vote.rid, action->u.vote.vote,
                     &action->u.vote.result, reactor->real_ns);
        return false;
    case RECV_ACT_LOG:
        reactor_log(reactor, &action->u.log);
        return false;
    }
    return false;
}

enum kvf_status recv_glue_step(struct reactor *reactor, struct recv_event *event)
{
    const struct recv_event rest = {
        .kind = RECV_POLL,
        .now_ns = reactor->now_ns,
        .real_ns = reactor->real_ns,
    };
    struct recv_action action;
    struct recv_out out = {.actions = &action, .max = 1};
    enum kvf_status status;

    event->now_ns = reactor->now_ns;
    event->real_ns = reactor->real_ns;
    status = recv_session_step(reactor->recv, event, &out);
    for (;;) {
        struct recv_event next = rest;
        bool follow = out.count > 0 && recv_carry(reactor, &action, &next);

        if (!follow && !out.more)
            return status;
        out.count = 0;
        recv_session_step(reactor->recv, &next, &out);
    }
}

/* ---- events --------------------------------------------------------------------------------- */

static uint32_t recv_group_of(const struct kvf *kvf, const struct peer *peer)
{
    const struct kvf_instance *instance = &kvf->topology->instances[peer->instance];

    return peer->rank % instance->tp_size / (instance->tp_size / instance->dp_size);
}

/* What each writer of the route owes. */
static void recv_writers(struct reactor *reactor, const struct admission_request *request,
                         const struct peer_route *route)
{
    const struct kvf *kvf = reactor->kvf;
    const struct plan_piece whole = plan_whole(request->prompt_tokens);
    const struct plan_request asked = {
        .prompt_tokens = request->prompt_tokens,
        .dst_count = kvf->record->layout.group_count,
        .dst = request->lists,
        .src_aux_slot = PLAN_NO_SLOT,
        .dst_aux_slot = PLAN_NO_SLOT,
    };

    for (uint32_t w = 0; w < route->count; w++) {
        const struct peer *peer = &kvf->peers.list[route->peers[w]];
        struct plan_totals totals = {0};

        if (peer->template != NULL)
            plan_count(peer->template, &asked, &whole, &totals);
        reactor->writers[w] = (struct recv_writer_params){
            .rank = peer->world_rank,
            .group = recv_group_of(kvf, peer),
            .plan_bytes = totals.bytes,
            .aux = peer->template != NULL && plan_aux_elected(peer->template),
        };
    }
}

void recv_glue_request(struct reactor *reactor, const struct admission_request *request)
{
    const struct peer_route *route = peer_route(&reactor->kvf->peers, request->end);
    struct recv_event event = {.kind = RECV_OPEN};
    enum kvf_status status;

    if (route == NULL || route->status != KVF_OK) {
        reactor_refuse(reactor, request->rid, route == NULL ? KVF_E_INVAL : route->status);
        return;
    }
    recv_writers(reactor, request, route);
    event.u.open.rid = request->rid;
    event.u.open.called_ns = request->opened_ns;
    event.u.open.prompt_tokens = request->prompt_tokens;
    event.u.open.list_count = reactor->kvf->record->layout.group_count;
    event.u.open.lists = request->lists;
    event.u.open.writer_count = route->count;
    event.u.open.writers = reactor->writers;
    event.u.open.aux = request->aux;
    event.u.open.synchronous = request->synchronous;
    status = recv_glue_step(reactor, &event);
    if (status != KVF_OK)
        reactor_refuse(reactor, request->rid, status);
}

void recv_glue_message(struct reactor *reactor, struct peer *peer, const struct msg *msg)
{
    struct recv_event event = {
        .kind = RECV_MESSAGE,
        .u.message = {.peer = peer->world_rank, .msg = msg},
    };

    recv_glue_step(reactor, &event);
}
