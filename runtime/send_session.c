/*
 * send_session.c - the context side: memory, one event a step, and giving out what is due.
 */
#include "send_session.h"

#include <string.h>

#include "check.h"
#include "send_internal.h"

/* ---- open ----------------------------------------------------------------------------------- */

static uint64_t records_of(const struct send_params *params)
{
    return (uint64_t)params->requests_max + params->asks_max + params->fences_max +
           params->tombstones_max;
}

uint64_t send_session_bytes(const struct send_params *params)
{
    uint64_t runs = (uint64_t)params->requests_max + params->receivers_max;

    return store_bytes(params->blocks_max, runs) +
           records_of(params) * (sizeof(struct send_record) + 2 * sizeof(void *)) +
           runs * params->lists_max * sizeof(struct kvf_block_list) +
           params->requests_max * (uint64_t)(sizeof(struct send_session) + params->aux_bytes) +
           params->receivers_max * (uint64_t)sizeof(struct send_receiver) +
           params->served_max * (uint64_t)sizeof(struct send_served) +
           params->windows_max * (uint64_t)sizeof(struct send_part) +
           params->tasks_max * (uint64_t)sizeof(struct send_task) +
           params->answers_max * (uint64_t)sizeof(struct send_answer);
}

static bool params_fit(const struct send_params *params)
{
    uint64_t records = records_of(params);

    if (params->world_size == 0 || params->requests_max == 0 || params->asks_max == 0 ||
        params->fences_max == 0 || params->tombstones_max == 0 || params->receivers_max == 0 ||
        params->windows_max == 0 || params->tasks_max == 0 || params->answers_max == 0 ||
        params->blocks_max == 0 || params->lists_max == 0)
        return false;
    if (params->aux_bytes > MSG_AUX_BYTES_MAX || records > RID_MAP_ENTRIES_MAX)
        return false;
    for (uint32_t i = 0; i < params->world_size; i++)
        if (params->group_of[i] != SESSION_GROUP_UNKNOWN &&
            params->group_of[i] >= params->group_count)
            return false;
    for (uint32_t i = 0; i < params->group_count; i++)
        for (uint32_t j = 0; j < params->groups[i].count; j++)
            if (params->groups[i].ranks[j] >= params->world_size)
                return false;
    return true;
}

static bool copy_groups(struct send_side *side, const struct send_params *params)
{
    size_t ranks = 0;

    for (uint32_t i = 0; i < params->group_count; i++)
        ranks += params->groups[i].count;
    side->group_of = kvf_alloc(side->heap, params->world_size, sizeof(*side->group_of));
    side->groups = kvf_alloc(side->heap, params->group_count + 1u, sizeof(*side->groups));
    side->group_ranks = kvf_alloc(side->heap, ranks + 1, sizeof(*side->group_ranks));
    if (side->group_of == NULL || side->groups == NULL || side->group_ranks == NULL)
        return false;
    memcpy(side->group_of, params->group_of, params->world_size * sizeof(*side->group_of));
    ranks = 0;
    for (uint32_t i = 0; i < params->group_count; i++) {
        side->groups[i] = (struct send_group){side->group_ranks + ranks, params->groups[i].count};
        for (uint32_t j = 0; j < params->groups[i].count; j++)
            side->group_ranks[ranks++] = params->groups[i].ranks[j];
    }
    side->params.groups = side->groups;
    side->params.group_of = side->group_of;
    return true;
}

static bool take_memory(struct send_side *side)
{
    const struct send_params *params = &side->params;
    const struct kvf_heap *heap = side->heap;
    size_t records = records_of(params);
    uint32_t runs = params->requests_max + params->receivers_max;

    side->peers = kvf_alloc(heap, params->world_size, sizeof(*side->peers));
    side->records = kvf_alloc(heap, records, sizeof(*side->records));
    side->sessions = kvf_alloc(heap, params->requests_max, sizeof(*side->sessions));
    side->receivers = kvf_alloc(heap, params->receivers_max, sizeof(*side->receivers));
    side->served = kvf_alloc(heap, params->served_max + 1u, sizeof(*side->served));
    side->parts = kvf_alloc(heap, params->windows_max, sizeof(*side->parts));
    side->tasks = kvf_alloc(heap, params->tasks_max, sizeof(*side->tasks));
    side->answers = kvf_alloc(heap, params->answers_max, sizeof(*side->answers));
    side->lists = kvf_alloc(heap, (size_t)runs * params->lists_max, sizeof(*side->lists));
    side->aux = kvf_alloc(heap, (size_t)params->requests_max * params->aux_bytes + 1, 1);
    side->logs = kvf_alloc(heap, SEND_LOGS_MAX, sizeof(*side->logs));
    if (side->peers == NULL || side->records == NULL || side->sessions == NULL ||
        side->receivers == NULL || side->served == NULL || side->parts == NULL ||
        side->tasks == NULL || side->answers == NULL || side->lists == NULL || side->aux == NULL ||
        side->logs == NULL)
        return false;
    if (rid_map_open(heap, (uint32_t)records, &side->map) != KVF_OK ||
        store_open(heap, params->blocks_max, runs, &side->store) != KVF_OK)
        return false;
    store_may_move(side->store, send_record_run_moved, side);
    return true;
}

static void due_init(struct send_due *due, enum send_due_kind kind)
{
    list_init(&due->node);
    due->kind = kind;
}

static void result_init(struct send_result *result, enum send_result_kind kind)
{
    list_init(&result->node);
    result->kind = kind;
}

static void init_receivers(struct send_side *side)
{
    struct kvf_block_list *lists = side->lists;
    uint32_t lists_max = side->params.lists_max;

    for (uint32_t i = 0; i < side->params.requests_max; i++, lists += lists_max) {
        struct send_session *session = &side->sessions[i];

        session->lists = lists;
        session->aux = side->aux + (size_t)i * side->params.aux_bytes;
        list_init(&session->timer);
        due_init(&session->vote, SEND_DUE_VOTE);
        list_push(&side->free_sessions, &session->node);
    }
    for (uint32_t i = 0; i < side->params.receivers_max; i++, lists += lists_max) {
        struct send_receiver *receiver = &side->receivers[i];

        receiver->lists = lists;
        list_init(&receiver->of_peer);
        list_init(&receiver->tasks);
        due_init(&receiver->start, SEND_DUE_START);
        result_init(&receiver->cancelled, SEND_RESULT_CANCELLED);
        result_init(&receiver->doubt, SEND_RESULT_DOUBT);
        result_init(&receiver->result, SEND_RESULT_FINAL);
        list_push(&side->free_receivers, &receiver->of_record);
    }
}

static void init_lists(struct send_side *side)
{
    struct list *heads[] = {&side->due,           &side->starved,        &side->asked,
                            &side->fenced,        &side->live,           &side->tombs,
                            &side->timers,        &side->running,        &side->free_records,
                            &side->free_sessions, &side->free_receivers, &side->free_served,
                            &side->free_parts,    &side->free_tasks,     &side->free_answers};

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++)
        list_init(heads[i]);
    due_init(&side->logs_due, SEND_DUE_LOGS);
}

static void init_pools(struct send_side *side)
{
    const struct send_params *params = &side->params;
    size_t records = records_of(params);

    for (uint32_t i = 0; i < params->world_size; i++) {
        struct send_peer *peer = &side->peers[i];

        list_init(&peer->results);
        list_init(&peer->receivers);
        list_init(&peer->served);
        due_init(&peer->due, SEND_DUE_RESULTS);
        due_init(&peer->lose, SEND_DUE_LOSE);
        peer->verdict = KVF_E_PEER_LOST;
    }
    for (size_t i = 0; i < records; i++)
        list_push(&side->free_records, &side->records[i].node);
    for (uint32_t i = 0; i < params->served_max; i++) {
        list_init(&side->served[i].of_peer);
        list_push(&side->free_served, &side->served[i].of_record);
    }
    for (uint32_t i = 0; i < params->windows_max; i++)
        list_push(&side->free_parts, &side->parts[i].node);
    for (uint32_t i = 0; i < params->tasks_max; i++) {
        list_init(&side->tasks[i].waiting);
        due_init(&side->tasks[i].abort, SEND_DUE_ABORT);
        result_init(&side->tasks[i].result, SEND_RESULT_SLICE);
        list_push(&side->free_tasks, &side->tasks[i].of_receiver);
    }
    for (uint32_t i = 0; i < params->answers_max; i++) {
        result_init(&side->answers[i].result, SEND_RESULT_ANSWER);
        list_push(&side->free_answers, &side->answers[i].node);
    }
    init_receivers(side);
}

enum kvf_status send_session_open(const struct kvf_heap *heap, const struct send_params *params,
                                  struct send_side **side_out)
{
    struct send_side *side;

    if (!params_fit(params))
        return KVF_E_INVAL;
    side = kvf_alloc(heap, 1, sizeof(*side));
    if (side == NULL)
        return KVF_E_NOMEM;
    side->heap = heap;
    side->params = *params;
    init_lists(side);
    if (!take_memory(side) || !copy_groups(side, params)) {
        send_session_close(side);
        return KVF_E_NOMEM;
    }
    init_pools(side);
    *side_out = side;
    return KVF_OK;
}

void send_session_close(struct send_side *side)
{
    if (side == NULL)
        return;
    store_close(side->store);
    rid_map_close(side->map);
    kvf_release(side->heap, side->group_ranks);
    kvf_release(side->heap, side->groups);
    kvf_release(side->heap, side->group_of);
    kvf_release(side->heap, side->logs);
    kvf_release(side->heap, side->aux);
    kvf_release(side->heap, side->lists);
    kvf_release(side->heap, side->answers);
    kvf_release(side->heap, side->tasks);
    kvf_release(side->heap, side->parts);
    kvf_release(side->heap, side->served);
    kvf_release(side->heap, side->receivers);
    kvf_release(side->heap, side->sessions);
    kvf_release(side->heap, side->records);
    kvf_release(side->heap, side->peers);
    kvf_release(side->heap, side);
}

/* ---- giving out ----------------------------------------------------------------------------- */

void send_due_push(struct send_side *side, struct send_due *due)
{
    list_remove(&due->node);
    list_push(&side->due, &due->node);
}

void send_log(struct send_side *side, const struct session_log *entry, uint32_t rank)
{
    struct session_log *kept;

    if (entry->level > side->params.log_level)
        return;
    if (side->log_count == SEND_LOGS_MAX) {
        side->counts.logs_lost++;
        return;
    }
    kept = &side->logs[(side->log_first + side->log_count++) % SEND_LOGS_MAX];
    *kept = *entry;
    if (rank != KVF_UNKNOWN) {
        kept->ranks[0] = rank;
        kept->rank_count = 1;
    }
    if (list_empty(&side->logs_due.node))
        send_due_push(side, &side->logs_due);
}

void send_log_request(struct send_side *side, const struct session_note *note,
                      const struct send_record *record, enum kvf_status code, uint32_t rank)
{
    struct session_log entry = {.level = note->level,
                                .event = note->event,
                                .text = note->text,
                                .rid = record->rid,
                                .code = code};

    send_log(side, &entry, rank);
}

void send_wrong_peer(struct send_side *side, uint64_t rid, uint32_t rank)
{
    struct send_peer *peer = &side->peers[rank];
    struct session_log entry = {.level = KVF_LOG_WARN,
                                .event = "W08",
                                .text = "message of a rank that has no say in the request",
                                .rid = rid};

    side->counts.wrong_peer++;
    if (peer->wrong_log_ns != 0 && side->now_ns - peer->wrong_log_ns < SEND_WRONG_PEER_LOG_NS)
        return;
    peer->wrong_log_ns = side->now_ns;
    send_log(side, &entry, rank);
}

/* One log line; false: none is kept. */
static bool give_log(struct send_side *side, struct send_action *action_out)
{
    if (side->log_count == 0)
        return false;
    action_out->kind = SEND_ACT_LOG;
    action_out->u.log = side->logs[side->log_first];
    side->log_first = (side->log_first + 1) % SEND_LOGS_MAX;
    side->log_count--;
    return true;
}

static bool give_vote(struct send_session *session, struct send_action *action_out)
{
    unsigned before = session->vote_given;

    if (session->vote_wanted == session->vote_given)
        return false;
    session->vote_given = session->vote_wanted;
    action_out->kind = SEND_ACT_VOTE;
    action_out->u.vote.rid = session->record->rid;
    action_out->u.vote.vote = session->vote_given;
    send_live_fill_result(session, &action_out->u.vote.result);
    action_out->u.vote.result.voted = before;
    return true;
}

/* Takes the first due object; true when it gave an action. What has more to give stays first. */
static bool give_one(struct send_side *side, struct send_due *due, struct send_action *action_out)
{
    struct send_peer *peer;
    bool given;

    switch (due->kind) {
    case SEND_DUE_RESULTS:
        peer = list_object(due, struct send_peer, due);
        given = send_result_pop(side, peer, action_out);
        if (list_empty(&peer->results))
            list_remove(&due->node);
        return given;
    case SEND_DUE_LOGS:
        given = give_log(side, action_out);
        if (side->log_count == 0)
            list_remove(&due->node);
        return given;
    case SEND_DUE_LOSE:
        list_remove(&due->node);
        action_out->kind = SEND_ACT_LOSE_PEER;
        action_out->peer = (uint32_t)(list_object(due, struct send_peer, lose) - side->peers);
        return true;
    case SEND_DUE_START:
        return send_task_start(side, list_object(due, struct send_receiver, start), action_out);
    case SEND_DUE_ABORT:
        list_remove(&due->node);
        action_out->kind = SEND_ACT_TASK_ABORT;
        action_out->u.abort = send_task_id(side, list_object(due, struct send_task, abort));
        return true;
    case SEND_DUE_VOTE:
        list_remove(&due->node);
        return give_vote(list_object(due, struct send_session, vote), action_out);
    }
    return false;
}

static void give_out(struct send_side *side, struct send_out *out)
{
    struct list *node;

    while ((node = list_first(&side->due)) != NULL) {
        if (out->count == out->max) {
            out->more = true;
            return;
        }
        if (give_one(side, list_object(node, struct send_due, node), &out->actions[out->count]))
            out->count++;
    }
}

/* ---- one event ------------------------------------------------------------------------------ */

static void on_message(struct send_side *side, const struct send_event *event)
{
    const struct msg_header *header = &event->u.message.msg->header;
    struct send_peer *peer;

    if (event->u.message.peer >= side->params.world_size) {
        side->counts.wrong_peer++;
        return;
    }
    peer = &side->peers[event->u.message.peer];
    if (!peer->up || peer->epoch != header->epoch) {
        side->counts.late++;
        return;
    }
    if (header->type == MSG_REQUEST_DATA)
        send_record_request_data(side, event);
    else if (header->type == MSG_CANCEL_SESSION)
        send_record_cancel_session(side, event);
    else
        side->counts.unexpected_events++;
}

static void cancel_all(struct send_side *side, enum kvf_status code)
{
    struct list *node;

    side->closing = true;
    for (node = list_first(&side->live); node != NULL; node = list_after(&side->live, node))
        (void)send_live_cancel(side, list_object(node, struct send_record, node)->rid, code);
}

static void on_peer(struct send_side *side, const struct send_event *event)
{
    if (event->u.peer.peer >= side->params.world_size) {
        side->counts.unexpected_events++;
        return;
    }
    if (event->kind == SEND_PEER_UP)
        send_record_peer_up(side, event);
    else
        send_record_peer_lost(side, event->u.peer.peer,
                              event->kind == SEND_PEER_LOST ? KVF_E_PEER_LOST : KVF_E_PEER_CLOSED);
}

static enum kvf_status apply(struct send_side *side, const struct send_event *event,
                             struct send_out *out)
{
    switch (event->kind) {
    case SEND_POLL:
        return KVF_OK;
    case SEND_TICK:
        send_record_tick(side);
        send_live_tick(side);
        send_task_tick(side);
        return KVF_OK;
    case SEND_OPEN:
        return send_record_open(side, event);
    case SEND_WINDOW:
        return send_live_window(side, event, &out->slice);
    case SEND_WINDOW_READY:
        return send_live_window_ready(side, event);
    case SEND_CANCEL:
        return send_live_cancel(side, event->u.cancel.rid, event->u.cancel.code);
    case SEND_CANCEL_ALL:
        cancel_all(side, event->u.cancel.code);
        return KVF_OK;
    case SEND_MESSAGE:
        on_message(side, event);
        return KVF_OK;
    case SEND_TASK_ENDED:
    case SEND_TASK_IN_DOUBT:
    case SEND_TASK_SETTLED:
        send_task_event(side, event);
        return KVF_OK;
    case SEND_PEER_UP:
    case SEND_PEER_LOST:
    case SEND_PEER_CLOSED:
        on_peer(side, event);
        return KVF_OK;
    case SEND_DECISION:
        return send_live_decide(side, event);
    }
    side->counts.unexpected_events++;
    return KVF_OK;
}

enum kvf_status send_session_step(struct send_side *side, const struct send_event *event,
                                  struct send_out *out)
{
    enum kvf_status status;

    KVF_REQUIRE(out->max > 0);
    KVF_REQUIRE(event->now_ns >= side->now_ns);
    side->now_ns = event->now_ns;
    side->real_ns = event->real_ns;
    out->count = 0;
    out->more = false;
    out->slice = KVF_UNKNOWN;
    status = apply(side, event, out);
    give_out(side, out);
    return status;
}

static uint64_t sooner(uint64_t so_far_ns, uint64_t due_ns)
{
    return due_ns < so_far_ns ? due_ns : so_far_ns;
}

uint64_t send_session_deadline_ns(const struct send_side *side)
{
    const struct list *const records[] = {&side->asked, &side->fenced, &side->tombs};
    uint64_t due_ns = UINT64_MAX;
    struct list *node;

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        node = list_first(records[i]);
        if (node != NULL)
            due_ns = sooner(due_ns, list_object(node, struct send_record, node)->due_ns);
    }
    node = list_first(&side->timers);
    if (node != NULL)
        due_ns = sooner(due_ns, list_object(node, struct send_session, timer)->due_ns);
    node = list_first(&side->running);
    if (node != NULL)
        due_ns = sooner(due_ns, list_object(node, struct send_task, waiting)->due_ns);
    return due_ns;
}
