/*
 * send_record.c - everything a context rank remembers of a request, with or without a session:
 * asks that wait for the engine, fences, tombstones (docs/protocol.md, context record).
 *
 * Each kind has its own number of places, so that peers can never take the engine's. All kinds are
 * remembered for the same time, so that each list is in the order in which it ends.
 */
#include <string.h>

#include "check.h"
#include "send_internal.h"

struct send_record *send_record_find(const struct send_side *side, uint64_t rid)
{
    return rid_map_find(side->map, rid);
}

struct send_receiver *send_record_receiver(const struct send_side *side,
                                           const struct send_record *record, uint32_t rank)
{
    uint64_t epoch = side->peers[rank].epoch;

    for (struct list *node = list_first(&record->receivers); node != NULL;
         node = list_after(&record->receivers, node)) {
        struct send_receiver *receiver = list_object(node, struct send_receiver, of_record);

        if (receiver->rank == rank && receiver->epoch == epoch)
            return receiver;
    }
    return NULL;
}

static struct send_served *served_find(const struct send_record *record, uint32_t rank,
                                       uint32_t tag)
{
    for (struct list *node = list_first(&record->served); node != NULL;
         node = list_after(&record->served, node)) {
        struct send_served *served = list_object(node, struct send_served, of_record);

        if (served->rank == rank && served->tag == tag)
            return served;
    }
    return NULL;
}

/* ---- life of a record ----------------------------------------------------------------------- */

static uint64_t *count_of(struct send_side *side, enum send_state state)
{
    switch (state) {
    case SEND_ASKED:
        return &side->counts.asked;
    case SEND_FENCED:
        return &side->counts.fenced;
    case SEND_LIVE:
        return &side->counts.live;
    case SEND_TOMB_OK:
    case SEND_TOMB_BAD:
        break;
    }
    return &side->counts.tombstones;
}

static struct list *list_of(struct send_side *side, enum send_state state)
{
    switch (state) {
    case SEND_ASKED:
        return &side->asked;
    case SEND_FENCED:
        return &side->fenced;
    case SEND_LIVE:
        return &side->live;
    case SEND_TOMB_OK:
    case SEND_TOMB_BAD:
        break;
    }
    return &side->tombs;
}

static void served_free(struct send_side *side, struct send_served *served)
{
    list_remove(&served->of_record);
    list_remove(&served->of_peer);
    list_push(&side->free_served, &served->of_record);
}

static void drop_receivers(struct send_side *side, struct send_record *record)
{
    struct list *node;

    while ((node = list_first(&record->receivers)) != NULL)
        send_receiver_free(side, list_object(node, struct send_receiver, of_record));
}

/* NONE. */
static void record_free(struct send_side *side, struct send_record *record)
{
    struct list *node;

    KVF_ASSERT(record->session == NULL);
    drop_receivers(side, record);
    while ((node = list_first(&record->served)) != NULL)
        served_free(side, list_object(node, struct send_served, of_record));
    rid_map_remove(side->map, record->rid);
    (*count_of(side, record->state))--;
    list_remove(&record->node);
    list_push(&side->free_records, &record->node);
}

static void evict_oldest(struct send_side *side, const struct list *records)
{
    side->counts.evicted++;
    record_free(side, list_object(list_first(records), struct send_record, node));
}

/*
 * What ended, and what is fenced, makes room for its like. A fence that is forgotten takes no
 * promise back: its receivers are dropped, and nothing is written for who has not asked.
 */
static void make_room(struct send_side *side, enum send_state state)
{
    if (list_of(side, state) == &side->tombs &&
        side->counts.tombstones >= side->params.tombstones_max)
        evict_oldest(side, &side->tombs);
    if (state == SEND_FENCED && side->counts.fenced >= side->params.fences_max)
        evict_oldest(side, &side->fenced);
}

/* Moves a record to the end of its new kind's list. */
static void set_state(struct send_side *side, struct send_record *record, enum send_state state)
{
    (*count_of(side, record->state))--;
    list_remove(&record->node);
    make_room(side, state);
    record->state = state;
    record->due_ns = side->now_ns + side->params.times.remember_ns;
    (*count_of(side, state))++;
    list_push(list_of(side, state), &record->node);
}

static bool has_room(const struct send_side *side, enum send_state state)
{
    switch (state) {
    case SEND_ASKED:
        return side->counts.asked < side->params.asks_max;
    case SEND_LIVE:
        return side->counts.live < side->params.requests_max;
    case SEND_FENCED:
    case SEND_TOMB_OK:
    case SEND_TOMB_BAD:
        break;
    }
    return true; /* the oldest goes */
}

/* NULL: no room. */
static struct send_record *record_add(struct send_side *side, uint64_t rid, enum send_state state)
{
    struct send_record *record;

    if (!has_room(side, state))
        return NULL;
    make_room(side, state);
    record = list_object(list_pop(&side->free_records), struct send_record, node);
    record->rid = rid;
    record->state = state;
    record->due_ns = side->now_ns + side->params.times.remember_ns;
    record->code = KVF_OK;
    record->opened = false;
    record->session = NULL;
    list_init(&record->receivers);
    list_init(&record->served);
    rid_map_add(side->map, rid, record);
    (*count_of(side, state))++;
    list_push(list_of(side, state), &record->node);
    return record;
}

/* ---- receivers ------------------------------------------------------------------------------ */

/* Owners of runs: sessions first, then receivers. */
static uint32_t owner_of_receiver(const struct send_side *side,
                                  const struct send_receiver *receiver)
{
    return side->params.requests_max + (uint32_t)(receiver - side->receivers);
}

void send_record_run_moved(void *self, uint32_t owner, uint32_t *run)
{
    struct send_side *side = self;

    if (owner < side->params.requests_max) {
        struct send_session *session = &side->sessions[owner];

        session->run = run;
        session_lists_moved(session->lists, session->list_count, run);
    } else {
        struct send_receiver *receiver = &side->receivers[owner - side->params.requests_max];

        receiver->run = run;
        session_lists_moved(receiver->lists, receiver->list_count, run);
    }
}

enum kvf_status send_receiver_add(struct send_side *side, struct send_record *record, uint32_t rank,
                                  const struct msg_request_data *data)
{
    struct list *node = list_first(&side->free_receivers);
    struct send_receiver *receiver;
    uint32_t *run;

    if (node == NULL)
        return KVF_BUSY;
    receiver = list_object(node, struct send_receiver, of_record);
    if (store_take_for(side->store, data->block_count, owner_of_receiver(side, receiver), &run) !=
        KVF_OK)
        return KVF_BUSY;
    list_remove(node);
    receiver->record = record;
    receiver->rank = rank;
    receiver->epoch = side->peers[rank].epoch;
    receiver->tag = data->tag;
    receiver->prompt_tokens = data->prompt_tokens;
    receiver->flags = data->flags;
    receiver->aux_wanted = data->aux_wanted;
    receiver->queued = false;
    receiver->doubted = false;
    receiver->failed = false;
    receiver->unanswered = false;
    receiver->list_count = data->group_count;
    receiver->run = run;
    msg_request_data_copy(data, receiver->lists, run);
    receiver->begun = NULL;
    receiver->begun_count = 0;
    receiver->done_count = 0;
    receiver->access = 0;
    receiver->final = (struct send_final){.kind = SEND_FINAL_NONE};
    list_init(&receiver->tasks);
    list_push(&record->receivers, &receiver->of_record);
    list_push(&side->peers[rank].receivers, &receiver->of_peer);
    return KVF_OK;
}

void send_receiver_drop_lists(struct send_side *side, struct send_receiver *receiver)
{
    store_free(side->store, receiver->run);
    receiver->run = NULL;
    receiver->list_count = 0;
}

void send_receiver_free(struct send_side *side, struct send_receiver *receiver)
{
    KVF_ASSERT(list_empty(&receiver->tasks));
    KVF_ASSERT(list_empty(&receiver->cancelled.node) && list_empty(&receiver->doubt.node) &&
               list_empty(&receiver->result.node));
    send_receiver_drop_lists(side, receiver);
    list_remove(&receiver->start.node);
    list_remove(&receiver->of_peer);
    list_remove(&receiver->of_record);
    list_push(&side->free_receivers, &receiver->of_record);
}

/* ---- REQUEST_DATA --------------------------------------------------------------------------- */

static void answer_failed(struct send_side *side, uint32_t rank, uint64_t rid, uint32_t tag,
                          enum kvf_status code)
{
    struct send_final final = {
        .kind = SEND_FINAL_FAILED, .code = code, .report_id = ++side->report_next};

    send_result_answer(side, rank, rid, tag, &final);
}

void send_record_refuse(struct send_side *side, uint32_t rank, const struct msg_request_data *data,
                        enum kvf_status code)
{
    struct send_peer *peer = &side->peers[rank];
    struct session_log entry = {
        .level = KVF_LOG_DEBUG, .event = "", .rid = data->rid, .code = code};
    bool misfit = kvf_status_scope(code) == KVF_SCOPE_PEER && code != KVF_E_PEER_LOST &&
                  code != KVF_E_PEER_CLOSED;

    side->counts.refused_asks++;
    entry.text = "ask refused";
    if (code == KVF_E_LEGACY_REQUEST) {
        entry.event = "W25";
        entry.text = "request of an older release: use the same release on both sides, or bounce "
                     "size 0 there";
        entry.level = peer->legacy_logged ? KVF_LOG_DEBUG : KVF_LOG_WARN;
        peer->legacy_logged = true;
    } else if (misfit) {
        entry.event = "W27";
        entry.text = "peer's cache does not fit";
        entry.level = peer->refusal_logged ? KVF_LOG_DEBUG : KVF_LOG_WARN;
        peer->refusal_logged = true;
    }
    send_log(side, &entry, rank);
    answer_failed(side, rank, data->rid, data->tag, code);
}

/* What the message alone gives away. */
static enum kvf_status judge(const struct send_side *side, const struct send_event *event)
{
    const struct msg *msg = event->u.message.msg;
    const struct msg_request_data *data = &msg->u.request_data;

    if (event->u.message.check != KVF_OK)
        return event->u.message.check;
    if (side->peers[event->u.message.peer].verdict != KVF_OK)
        return side->peers[event->u.message.peer].verdict;
    if (data->receiver_instance != msg->header.source_instance ||
        data->receiver_rank != msg->header.source_rank || data->slice != MSG_SLICE_WHOLE ||
        data->prompt_tokens == 0 || data->group_count > side->params.lists_max)
        return KVF_E_PROTOCOL;
    return KVF_OK;
}

/* ASKED, or nothing known. */
static void ask_without_session(struct send_side *side, struct send_record *record, uint32_t rank,
                                const struct msg_request_data *data)
{
    struct send_receiver *receiver = NULL;
    bool fresh = record == NULL;

    if (!fresh)
        receiver = send_record_receiver(side, record, rank);
    if (receiver != NULL && receiver->tag == data->tag) {
        side->counts.duplicates++;
        return;
    }
    if (receiver != NULL) {
        side->counts.superseded++;
        answer_failed(side, rank, record->rid, receiver->tag, KVF_E_SUPERSEDED);
        send_receiver_free(side, receiver);
    }
    if (fresh)
        record = record_add(side, data->rid, SEND_ASKED);
    if (record != NULL && send_receiver_add(side, record, rank, data) == KVF_OK)
        return;
    if (record != NULL && list_empty(&record->receivers))
        record_free(side, record);
    send_record_refuse(side, rank, data, KVF_E_NO_SESSION);
}

/* A receiver asks for a request that has ended here. */
static void ask_of_tomb(struct send_side *side, struct send_record *record, uint32_t rank,
                        const struct msg_request_data *data)
{
    const struct send_served *served = served_find(record, rank, data->tag);

    if (served != NULL) {
        side->counts.late++;
        send_result_answer(side, rank, record->rid, data->tag, &served->final);
        return;
    }
    send_record_refuse(side, rank, data, record->state == SEND_TOMB_OK ? KVF_E_GONE : record->code);
}

void send_record_request_data(struct send_side *side, const struct send_event *event)
{
    const struct msg_request_data *data = &event->u.message.msg->u.request_data;
    uint32_t rank = event->u.message.peer;
    struct send_record *record = send_record_find(side, data->rid);
    enum kvf_status code = judge(side, event);

    if (data->tag == 0) {
        side->counts.late++; /* nobody to answer */
        return;
    }
    if (record != NULL && record->state == SEND_LIVE) {
        send_live_request_data(side, record->session, event, code);
        return;
    }
    if (code != KVF_OK) {
        send_record_refuse(side, rank, data, code);
        return;
    }
    if (record == NULL || record->state == SEND_ASKED)
        ask_without_session(side, record, rank, data);
    else if (record->state == SEND_FENCED)
        send_record_refuse(side, rank, data, KVF_E_CANCELLED);
    else
        ask_of_tomb(side, record, rank, data);
}

/* ---- CANCEL_SESSION ------------------------------------------------------------------------- */

static void cancel_unknown(struct send_side *side, uint32_t rank,
                           const struct msg_cancel_session *cancel)
{
    bool end = cancel->reason == MSG_CANCEL_END;
    struct send_record *record = record_add(side, cancel->rid, end ? SEND_TOMB_BAD : SEND_FENCED);

    if (end)
        record->code = KVF_E_GONE;
    send_result_quiesced(side, rank, cancel);
}

static void cancel_asked(struct send_side *side, struct send_record *record, uint32_t rank,
                         const struct msg_cancel_session *cancel)
{
    struct send_receiver *receiver = send_record_receiver(side, record, rank);

    if (receiver != NULL && receiver->tag != cancel->tag) {
        side->counts.late++; /* of an ask that was replaced: nothing is written for it */
        send_result_quiesced(side, rank, cancel);
        return;
    }
    if (cancel->reason == MSG_CANCEL_END) {
        if (receiver != NULL)
            send_receiver_free(side, receiver);
        if (list_empty(&record->receivers)) {
            set_state(side, record, SEND_TOMB_BAD);
            record->code = KVF_E_GONE;
        }
        send_result_quiesced(side, rank, cancel);
        return;
    }
    set_state(side, record, SEND_FENCED);
    send_result_quiesced(side, rank, cancel);
    for (struct list *node = list_first(&record->receivers); node != NULL;
         node = list_after(&record->receivers, node)) {
        struct send_receiver *other = list_object(node, struct send_receiver, of_record);

        if (other != receiver)
            answer_failed(side, other->rank, record->rid, other->tag, KVF_E_PEER_CANCELLED);
    }
    drop_receivers(side, record);
}

static void cancel_tomb(struct send_side *side, struct send_record *record, uint32_t rank,
                        const struct msg_cancel_session *cancel)
{
    const struct send_served *served = served_find(record, rank, cancel->tag);

    side->counts.late++;
    if (served == NULL || served->final.kind == SEND_FINAL_QUIESCED)
        send_result_quiesced(side, rank, cancel);
    else
        send_result_answer(side, rank, record->rid, cancel->tag, &served->final);
}

void send_record_cancel_session(struct send_side *side, const struct send_event *event)
{
    const struct msg *msg = event->u.message.msg;
    const struct msg_cancel_session *cancel = &msg->u.cancel_session;
    uint32_t rank = event->u.message.peer;
    struct send_record *record = send_record_find(side, cancel->rid);

    if (cancel->receiver_instance != msg->header.source_instance ||
        cancel->receiver_rank != msg->header.source_rank ||
        cancel->receiver_epoch != msg->header.epoch) {
        send_wrong_peer(side, cancel->rid, rank);
        return;
    }
    if (record == NULL) {
        cancel_unknown(side, rank, cancel);
        return;
    }
    switch (record->state) {
    case SEND_ASKED:
        cancel_asked(side, record, rank, cancel);
        break;
    case SEND_FENCED:
        side->counts.duplicates++;
        send_result_quiesced(side, rank, cancel);
        break;
    case SEND_LIVE:
        send_live_cancel_message(side, record->session, event);
        break;
    case SEND_TOMB_OK:
    case SEND_TOMB_BAD:
        cancel_tomb(side, record, rank, cancel);
        break;
    }
}

/* ---- the engine ----------------------------------------------------------------------------- */

static enum kvf_status check_open(const struct send_side *side, const struct send_event *event)
{
    const struct send_record *record = send_record_find(side, event->u.open.rid);

    if (side->closing)
        return KVF_E_CLOSED;
    if (event->u.open.prompt_tokens == 0)
        return KVF_E_INVAL;
    if (event->u.open.group != SESSION_GROUP_UNKNOWN &&
        event->u.open.group >= side->params.group_count)
        return KVF_E_INVAL;
    if (event->u.open.list_count > side->params.lists_max)
        return KVF_E_TOO_LARGE;
    if (record != NULL && record->state != SEND_ASKED && record->state != SEND_FENCED)
        return KVF_E_EXISTS;
    return has_room(side, SEND_LIVE) ? KVF_OK : KVF_BUSY;
}

/* Copies the lists into one run. */
static enum kvf_status take_lists(struct send_side *side, const struct send_event *event,
                                  struct send_session *session)
{
    uint64_t blocks = 0;
    uint32_t *run;
    enum kvf_status status;

    for (uint32_t i = 0; i < event->u.open.list_count; i++)
        blocks += event->u.open.lists[i].count;
    if (blocks > side->params.blocks_max)
        return KVF_E_TOO_LARGE;
    status =
        store_take_for(side->store, (uint32_t)blocks, (uint32_t)(session - side->sessions), &run);
    if (status != KVF_OK)
        return status;
    session->run = run;
    session->blocks = (uint32_t)blocks;
    session->list_count = event->u.open.list_count;
    for (uint32_t i = 0; i < session->list_count; i++) {
        const struct kvf_block_list *list = &event->u.open.lists[i];

        session->lists[i] = (struct kvf_block_list){list->first, list->count, run};
        if (list->count > 0)
            memcpy(run, list->slots, list->count * sizeof(*run));
        run += list->count;
    }
    return KVF_OK;
}

enum kvf_status send_record_open(struct send_side *side, const struct send_event *event)
{
    struct send_record *record = send_record_find(side, event->u.open.rid);
    enum kvf_status status = check_open(side, event);
    struct send_session *session;
    bool fenced;

    if (status != KVF_OK)
        return status;
    session = list_object(list_first(&side->free_sessions), struct send_session, node);
    status = take_lists(side, event, session);
    if (status != KVF_OK)
        return status;
    list_remove(&session->node);
    fenced = record != NULL && record->state == SEND_FENCED;
    if (record == NULL)
        record = record_add(side, event->u.open.rid, SEND_LIVE);
    else
        set_state(side, record, SEND_LIVE);
    record->opened = true;
    record->session = session;
    session->record = record;
    send_live_open(side, record, event, fenced);
    return KVF_OK;
}

/* Remembers who was served with what; without room an answer can still be made from the outcome. */
static void remember(struct send_side *side, struct send_record *record,
                     const struct send_receiver *receiver)
{
    struct send_served *served;
    struct list *node;

    if (!side->peers[receiver->rank].up || side->peers[receiver->rank].epoch != receiver->epoch)
        return;
    while (list_empty(&side->free_served) && !list_empty(&side->tombs))
        evict_oldest(side, &side->tombs);
    node = list_pop(&side->free_served);
    if (node == NULL)
        return;
    served = list_object(node, struct send_served, of_record);
    served->record = record;
    served->rank = receiver->rank;
    served->tag = receiver->tag;
    served->final = receiver->final;
    list_push(&record->served, &served->of_record);
    list_push(&side->peers[receiver->rank].served, &served->of_peer);
}

void send_record_end(struct send_side *side, struct send_record *record)
{
    struct send_session *session = record->session;
    bool ok = session->outcome == SESSION_OK;
    enum kvf_status code = session->code;

    for (struct list *node = list_first(&record->receivers); node != NULL;
         node = list_after(&record->receivers, node))
        remember(side, record, list_object(node, struct send_receiver, of_record));
    drop_receivers(side, record);
    send_live_free(side, session);
    record->session = NULL;
    record->code = code;
    set_state(side, record, ok ? SEND_TOMB_OK : SEND_TOMB_BAD);
}

/* ---- peers ---------------------------------------------------------------------------------- */

void send_record_peer_lost(struct send_side *side, uint32_t rank, enum kvf_status code)
{
    struct send_peer *peer = &side->peers[rank];
    struct list *node;
    struct list *next;

    peer->up = false;
    send_result_purge(side, peer);
    list_remove(&peer->lose.node);
    while ((node = list_first(&peer->served)) != NULL)
        served_free(side, list_object(node, struct send_served, of_peer));
    for (node = list_first(&peer->receivers); node != NULL; node = next) {
        struct send_receiver *receiver = list_object(node, struct send_receiver, of_peer);
        struct send_record *record = receiver->record;

        next = list_after(&peer->receivers, node);
        if (record->state != SEND_ASKED)
            continue;
        send_receiver_free(side, receiver);
        if (list_empty(&record->receivers))
            record_free(side, record);
    }
    for (node = list_first(&side->live); node != NULL; node = list_after(&side->live, node)) {
        struct send_record *record = list_object(node, struct send_record, node);

        send_live_peer_lost(side, record->session, rank, code);
    }
}

void send_record_peer_up(struct send_side *side, const struct send_event *event)
{
    struct send_peer *peer = &side->peers[event->u.peer.peer];

    if (peer->up && peer->epoch != event->u.peer.epoch)
        send_record_peer_lost(side, event->u.peer.peer, KVF_E_PEER_LOST);
    if (peer->epoch != event->u.peer.epoch) {
        peer->refusal_logged = false;
        peer->legacy_logged = false;
    }
    peer->up = true;
    peer->overflowed = false;
    peer->epoch = event->u.peer.epoch;
    peer->verdict = event->u.peer.verdict;
}

/* ---- timers --------------------------------------------------------------------------------- */

static void sweep(struct send_side *side, struct list *records)
{
    struct list *node;

    while ((node = list_first(records)) != NULL) {
        struct send_record *record = list_object(node, struct send_record, node);

        if (record->due_ns > side->now_ns)
            break;
        side->counts.swept++;
        record_free(side, record);
    }
}

void send_record_tick(struct send_side *side)
{
    sweep(side, &side->asked);
    sweep(side, &side->fenced);
    sweep(side, &side->tombs);
}
