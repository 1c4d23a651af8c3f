/*
 * recv_session.c - the generation side: memory, one event a step, and giving out what is due.
 */
#include "recv_session.h"

#include "check.h"
#include "recv_internal.h"

/* ---- open ----------------------------------------------------------------------------------- */

static bool params_fit(const struct recv_params *params)
{
    uint64_t requests = (uint64_t)params->requests_max + params->remembered_max;

    return params->world_size > 0 && params->requests_max > 0 && params->remembered_max > 0 &&
           params->writers_max > 0 && params->slices_max > 0 && params->blocks_max > 0 &&
           params->lists_max > 0 && params->lists_max <= MSG_GROUPS_MAX &&
           params->aux_bytes <= MSG_AUX_BYTES_MAX && requests <= RID_MAP_ENTRIES_MAX;
}

static bool take_memory(struct recv_side *side)
{
    const struct recv_params *params = &side->params;
    const struct kvf_heap *heap = side->heap;
    uint32_t requests = params->requests_max + params->remembered_max;

    side->slice_words = params->slices_max / 64 + 1;
    side->peers = kvf_alloc(heap, params->world_size, sizeof(*side->peers));
    side->requests = kvf_alloc(heap, requests, sizeof(*side->requests));
    side->sessions = kvf_alloc(heap, params->requests_max, sizeof(*side->sessions));
    side->writers = kvf_alloc(heap, params->writers_max, sizeof(*side->writers));
    side->slices =
        kvf_alloc(heap, (size_t)params->writers_max * side->slice_words, sizeof(*side->slices));
    side->lists =
        kvf_alloc(heap, (size_t)params->requests_max * params->lists_max, sizeof(*side->lists));
    side->logs = kvf_alloc(heap, RECV_LOGS_MAX, sizeof(*side->logs));
    if (side->peers == NULL || side->requests == NULL || side->sessions == NULL ||
        side->writers == NULL || side->slices == NULL || side->lists == NULL || side->logs == NULL)
        return false;
    if (rid_map_open(heap, requests, &side->map) != KVF_OK ||
        store_open(heap, params->blocks_max, params->requests_max, &side->store) != KVF_OK)
        return false;
    store_may_move(side->store, recv_live_run_moved, side);
    return true;
}

static void due_init(struct recv_due *due, enum recv_due_kind kind)
{
    list_init(&due->node);
    due->kind = kind;
}

static void init_lists(struct recv_side *side)
{
    struct list *heads[] = {&side->due,         &side->live,          &side->ended,
                            &side->timers,      &side->scatter_first, &side->scatter_later,
                            &side->resends,     &side->free_requests, &side->free_sessions,
                            &side->free_writers};

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        list_init(heads[i]);
    due_init(&side->logs_due, RECV_DUE_LOGS);
}

static void init_pools(struct recv_side *side)
{
    const struct recv_params *params = &side->params;

    for (uint32_t i = 0; i < params->world_size; i++) {
        list_init(&side->peers[i].writers);
        side->peers[i].verdict = KVF_E_PEER_LOST;
    }
    for (uint32_t i = 0; i < params->requests_max + params->remembered_max; i++)
        list_push(&side->free_requests, &side->requests[i].node);
    for (uint32_t i = 0; i < params->requests_max; i++) {
        struct recv_session *session = &side->sessions[i];

        session->lists = side->lists + (size_t)i * params->lists_max;
        list_init(&session->timer);
        list_init(&session->scatter);
        due_init(&session->fence, RECV_DUE_FENCE);
        due_init(&session->vote, RECV_DUE_VOTE);
        list_push(&side->free_sessions, &session->node);
    }
    for (uint32_t i = 0; i < params->writers_max; i++) {
        struct recv_writer *writer = &side->writers[i];

        writer->slices = side->slices + (size_t)i * side->slice_words;
        list_init(&writer->of_peer);
        list_init(&writer->resend);
        due_init(&writer->publish, RECV_DUE_PUBLISH);
        due_init(&writer->cancel, RECV_DUE_CANCEL);
        list_push(&side->free_writers, &writer->of_session);
    }
    side->free_writer_count = params->writers_max;
}

enum kvf_status recv_session_open(const struct kvf_heap *heap, const struct recv_params *params,
                                  struct recv_side **side_out)
{
    struct recv_side *side;

    if (!params_fit(params))
        return KVF_E_INVAL;
    side = kvf_alloc(heap, 1, sizeof(*side));
    if (side == NULL)
        return KVF_E_NOMEM;
    side->heap = heap;
    side->params = *params;
    side->next_tag = params->first_tag != 0 ? params->first_tag : 1;
    init_lists(side);
    if (!take_memory(side)) {
        recv_session_close(side);
        return KVF_E_NOMEM;
    }
    init_pools(side);
    *side_out = side;
    return KVF_OK;
}

void recv_session_close(struct recv_side *side)
{
    if (side == NULL)
        return;
    store_close(side->store);
    rid_map_close(side->map);
    kvf_release(side->heap, side->logs);
    kvf_release(side->heap, side->lists);
    kvf_release(side->heap, side->slices);
    kvf_release(side->heap, side->writers);
    kvf_release(side->heap, side->sessions);
    kvf_release(side->heap, side->requests);
    kvf_release(side->heap, side->peers);
    kvf_release(side->heap, side);
}

/* ---- giving out ----------------------------------------------------------------------------- */

void recv_due_push(struct recv_side *side, struct recv_due *due)
{
    list_remove(&due->node);
    list_push(&side->due, &due->node);
}

void recv_log(struct recv_side *side, const struct session_log *entry)
{
    if (entry->level > side->params.log_level)
        return;
    if (side->log_count == RECV_LOGS_MAX) {
        side->counts.logs_lost++;
        return;
    }
    side->logs[(side->log_first + side->log_count++) % RECV_LOGS_MAX] = *entry;
    if (list_empty(&side->logs_due.node))
        recv_due_push(side, &side->logs_due);
}

void recv_log_request(struct recv_side *side, const struct session_note *note,
                      const struct recv_session *session, enum kvf_status code, uint32_t rank)
{
    struct session_log entry = {.level = note->level,
                                .event = note->event,
                                .text = note->text,
                                .rid = session->request->rid,
                                .code = code};

    if (rank != KVF_UNKNOWN) {
        entry.ranks[0] = rank;
        entry.rank_count = 1;
    }
    recv_log(side, &entry);
}

static bool give_log(struct recv_side *side, struct recv_action *action_out)
{
    if (side->log_count == 0)
        return false;
    action_out->kind = RECV_ACT_LOG;
    action_out->u.log = side->logs[side->log_first];
    side->log_first = (side->log_first + 1) % RECV_LOGS_MAX;
    side->log_count--;
    return true;
}

static bool give_vote(struct recv_session *session, struct recv_action *action_out)
{
    unsigned before = session->vote_given;

    if (session->vote_wanted == session->vote_given)
        return false;
    session->vote_given = session->vote_wanted;
    action_out->kind = RECV_ACT_VOTE;
    action_out->u.vote.rid = session->request->rid;
    action_out->u.vote.vote = session->vote_given;
    recv_live_fill_result(session, &action_out->u.vote.result);
    if (SESSION_VOTE_BASE(session->vote_given) >= SESSION_VOTE_DOOMED_FAILED &&
        session->code == KVF_OK) {
        action_out->u.vote.result.outcome = session->doom.outcome;
        action_out->u.vote.result.status = session->doom.code;
    }
    action_out->u.vote.result.voted = before;
    return true;
}

static bool give_fence(struct recv_session *session, struct recv_action *action_out)
{
    action_out->kind = RECV_ACT_FENCE;
    action_out->u.fence.rid = session->request->rid;
    action_out->u.fence.tag = session->tag;
    return true;
}

/* Takes the first due object; true when it gave an action. Only logs may have more to give. */
static bool give_one(struct recv_side *side, struct recv_due *due, struct recv_action *action_out)
{
    bool given;

    switch (due->kind) {
    case RECV_DUE_LOGS:
        given = give_log(side, action_out);
        if (side->log_count == 0)
            list_remove(&due->node);
        return given;
    case RECV_DUE_PUBLISH:
        return recv_writer_give_publish(side, list_object(due, struct recv_writer, publish),
                                        action_out);
    case RECV_DUE_CANCEL:
        return recv_writer_give_cancel(side, list_object(due, struct recv_writer, cancel),
                                       action_out);
    case RECV_DUE_FENCE:
        list_remove(&due->node);
        return give_fence(list_object(due, struct recv_session, fence), action_out);
    case RECV_DUE_VOTE:
        list_remove(&due->node);
        return give_vote(list_object(due, struct recv_session, vote), action_out);
    }
    return false;
}

static void give_out(struct recv_side *side, struct recv_out *out)
{
    struct list *node;

    while ((node = list_first(&side->due)) != NULL) {
        if (out->count == out->max) {
            out->more = true;
            return;
        }
        if (give_one(side, list_object(node, struct recv_due, node), &out->actions[out->count]))
            out->count++;
    }
}

/* ---- one event ------------------------------------------------------------------------------ */

static void on_message(struct recv_side *side, const struct recv_event *event)
{
    uint64_t epoch = event->u.message.msg->header.epoch;
    const struct recv_peer *peer;

    if (event->u.message.peer >= side->params.world_size) {
        side->counts.wrong_peer++;
        return;
    }
    peer = &side->peers[event->u.message.peer];
    if (peer->up && peer->epoch == epoch)
        recv_writer_message(side, event);
    else
        side->counts.late++;
}

static void cancel_all(struct recv_side *side, enum kvf_status code)
{
    struct list *node;

    side->closing = true;
    for (node = list_first(&side->live); node != NULL; node = list_after(&side->live, node))
        (void)recv_live_cancel(side, list_object(node, struct recv_request, node)->rid, code);
}

static enum kvf_status apply(struct recv_side *side, const struct recv_event *event,
                             struct recv_out *out)
{
    switch (event->kind) {
    case RECV_POLL:
        return KVF_OK;
    case RECV_TICK:
        recv_live_tick(side);
        recv_writer_tick(side);
        return KVF_OK;
    case RECV_OPEN:
        return recv_live_open(side, event, &out->tag);
    case RECV_CANCEL:
        return recv_live_cancel(side, event->u.cancel.rid, event->u.cancel.code);
    case RECV_CANCEL_ALL:
        cancel_all(side, event->u.cancel.code);
        return KVF_OK;
    case RECV_MESSAGE:
        on_message(side, event);
        return KVF_OK;
    case RECV_PUBLISH_FAILED:
        recv_writer_publish_failed(side, event);
        return KVF_OK;
    case RECV_WRITER_ACTIVE:
        recv_writer_active(side, event);
        return KVF_OK;
    case RECV_SCATTER_BEGAN:
    case RECV_SCATTER_ENDED:
    case RECV_SCATTER_FAILED:
        recv_live_scatter(side, event);
        return KVF_OK;
    case RECV_PEER_UP:
    case RECV_PEER_LOST:
    case RECV_PEER_CLOSED:
    case RECV_PEER_PROOF:
        recv_peer_event(side, event);
        return KVF_OK;
    case RECV_DECISION:
        return recv_live_decide(side, event);
    case RECV_FORCE_RELEASE:
        return recv_live_force(side, event->u.cancel.rid);
    }
    side->counts.unexpected_events++;
    return KVF_OK;
}

enum kvf_status recv_session_step(struct recv_side *side, const struct recv_event *event,
                                  struct recv_out *out)
{
    enum kvf_status status;

    KVF_REQUIRE(out->max > 0);
    KVF_REQUIRE(event->now_ns >= side->now_ns);
    side->now_ns = event->now_ns;
    side->real_ns = event->real_ns;
    out->count = 0;
    out->more = false;
    out->tag = 0;
    status = apply(side, event, out);
    give_out(side, out);
    return status;
}

static uint64_t sooner(uint64_t so_far_ns, uint64_t due_ns)
{
    return due_ns < so_far_ns ? due_ns : so_far_ns;
}

uint64_t recv_session_deadline_ns(const struct recv_side *side)
{
    const struct list *const scatters[] = {&side->scatter_first, &side->scatter_later};
    uint64_t due_ns = UINT64_MAX;
    struct list *node = list_first(&side->timers);

    if (node != NULL)
        due_ns = sooner(due_ns, list_object(node, struct recv_session, timer)->due_ns);
    for (size_t i = 0; i < sizeof(scatters) / sizeof(scatters[0]); i++) {
        node = list_first(scatters[i]);
        if (node != NULL)
            due_ns =
                sooner(due_ns, list_object(node, struct recv_session, scatter)->scatter_due_ns);
    }
    node = list_first(&side->resends);
    if (node != NULL)
        due_ns = sooner(due_ns, list_object(node, struct recv_writer, resend)->due_ns);
    node = list_first(&side->ended);
    if (node != NULL)
        due_ns = sooner(due_ns, list_object(node, struct recv_request, node)->due_ns);
    return due_ns;
}
