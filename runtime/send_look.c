/*
 * send_look.c - looking into the context side: counts, results, descriptions, invariants.
 */
#include "check.h"
#include "send_internal.h"

const struct send_counts *send_session_counts(const struct send_side *side)
{
    return &side->counts;
}

enum kvf_status send_session_result(const struct send_side *side, uint64_t rid,
                                    struct session_result *result_out)
{
    const struct send_record *record = send_record_find(side, rid);

    if (record == NULL || record->session == NULL)
        return KVF_E_NOTFOUND;
    send_live_fill_result(record->session, result_out);
    return KVF_OK;
}

static const char *state_name(enum send_session_state state)
{
    switch (state) {
    case SEND_SESSION_OPEN:
        return "OPEN";
    case SEND_SESSION_SENDING:
        return "SENDING";
    case SEND_SESSION_SENT:
        return "SENT";
    case SEND_SESSION_BAD_DRAINING:
        return "BAD_DRAINING";
    case SEND_SESSION_BAD_DRAINED:
        return "BAD_DRAINED";
    }
    return "?";
}

static const char *waits_for(const struct send_side *side, const struct send_session *session)
{
    if (session->access > 0)
        return "running writes";
    if (!send_live_under_way(session))
        return "the group";
    if (session->group == SESSION_GROUP_UNKNOWN ||
        session->asked < side->groups[session->group].count)
        return "an ask";
    return session->last ? "running writes" : "its blocks";
}

static const char *receiver_name(const struct send_receiver *receiver)
{
    if (receiver->final.kind == SEND_FINAL_SUCCESS)
        return "done";
    if (receiver->final.kind != SEND_FINAL_NONE)
        return "failed";
    if (receiver->doubted)
        return "in doubt";
    return receiver->queued ? "sending" : "asked";
}

bool send_session_describe(const struct send_side *side, const void **cursor,
                           struct send_description *description_out)
{
    const struct list *node = *cursor;
    const struct send_record *record;
    const struct send_session *session;
    uint32_t count = 0;

    node = node == NULL ? list_first(&side->live) : list_after(&side->live, node);
    if (node == NULL)
        return false;
    *cursor = node;
    record = list_object(node, struct send_record, node);
    session = record->session;
    *description_out = (struct send_description){
        .rid = record->rid,
        .state = state_name(session->state),
        .waiting = waits_for(side, session),
        .code = session->code,
        .vote = session->vote_given,
        .slices = session->part_count,
        .access = session->access,
        .receivers = session->asked,
        .last_window = session->last,
    };
    for (node = list_first(&record->receivers); node != NULL && count < SEND_DESCRIPTION_RECEIVERS;
         node = list_after(&record->receivers, node), count++) {
        const struct send_receiver *receiver = list_object(node, struct send_receiver, of_record);

        description_out->receiver[count].rank = receiver->rank;
        description_out->receiver[count].state = receiver_name(receiver);
        description_out->receiver[count].slices_done = receiver->done_count;
    }
    description_out->receiver_count = count;
    return true;
}

/* ---- invariants ----------------------------------------------------------------------------- */

struct sums {
    uint32_t receivers, served, tasks, access, doubts, parts;
    uint64_t retained;
};

static uint32_t length(const struct list *head)
{
    uint32_t count = 0;

    for (const struct list *node = list_first(head); node != NULL; node = list_after(head, node))
        count++;
    return count;
}

/* X3, X5, X6. */
static void check_receiver(const struct send_receiver *receiver, const struct send_record *record,
                           struct sums *sums)
{
    uint32_t access = 0;

    KVF_ASSERT(receiver->record == record && receiver->tag != 0);
    for (const struct list *node = list_first(&receiver->tasks); node != NULL;
         node = list_after(&receiver->tasks, node)) {
        const struct send_task *task = list_object(node, struct send_task, of_receiver);

        KVF_ASSERT(task->state != SEND_TASK_FREE && task->receiver == receiver);
        access += task->state != SEND_TASK_REPORTING ? 1 : 0;
        sums->doubts += task->state == SEND_TASK_DOUBT ? 1 : 0;
        sums->tasks++;
    }
    KVF_ASSERT(access == receiver->access);
    KVF_ASSERT(receiver->final.kind == SEND_FINAL_NONE || access == 0);
    KVF_ASSERT(access == 0 || receiver->run != NULL || receiver->list_count == 0 ||
               receiver->final.kind == SEND_FINAL_NONE);
    if (record->session == NULL) {
        KVF_ASSERT(access == 0 && receiver->begun_count == 0 &&
                   receiver->final.kind == SEND_FINAL_NONE);
    } else if (!send_live_under_way(record->session)) {
        KVF_ASSERT(list_empty(&receiver->start.node));
        KVF_ASSERT(access > 0 || receiver->final.kind != SEND_FINAL_NONE);
    }
    sums->access += access;
    sums->receivers++;
}

/* X4, X8. */
static void check_session(const struct send_side *side, const struct send_session *session,
                          struct sums *sums)
{
    bool bad = send_live_is_bad(session);
    unsigned given = session->vote_given;

    sums->parts += length(&session->parts);
    KVF_ASSERT(session->state != SEND_SESSION_OPEN || session->access == 0);
    KVF_ASSERT(session->state != SEND_SESSION_BAD_DRAINED || session->access == 0);
    KVF_ASSERT(session->state != SEND_SESSION_BAD_DRAINING || session->access > 0);
    if (session->state == SEND_SESSION_SENT)
        KVF_ASSERT(session->access == 0 && session->done == side->groups[session->group].count);
    KVF_ASSERT((session->outcome == SESSION_PENDING) == send_live_under_way(session));
    KVF_ASSERT(!bad || session->code != KVF_OK);
    KVF_ASSERT(SESSION_VOTE_BASE(session->vote_wanted) >= SESSION_VOTE_BASE(given));
    KVF_ASSERT(session->vote_wanted == given || !list_empty(&session->vote.node));
    KVF_ASSERT(!((given | session->vote_wanted) & SESSION_VOTE_DRAINED) || session->access == 0);
    KVF_ASSERT(send_live_under_way(session) || list_empty(&session->timer));
    sums->retained += session->retained ? session->blocks : 0;
}

/* X1, X2. */
static void check_records(const struct send_side *side, const struct list *records,
                          struct sums *sums)
{
    for (const struct list *node = list_first(records); node != NULL;
         node = list_after(records, node)) {
        const struct send_record *record = list_object(node, struct send_record, node);
        bool live = record->state == SEND_LIVE;
        uint32_t access = sums->access;

        KVF_ASSERT(rid_map_find(side->map, record->rid) == record);
        KVF_ASSERT((record->session != NULL) == live);
        KVF_ASSERT(record->state != SEND_ASKED || !list_empty(&record->receivers));
        KVF_ASSERT(live || record->state == SEND_ASKED || list_empty(&record->receivers));
        KVF_ASSERT(record->state != SEND_TOMB_BAD || record->code != KVF_OK);
        for (const struct list *at = list_first(&record->receivers); at != NULL;
             at = list_after(&record->receivers, at))
            check_receiver(list_object(at, struct send_receiver, of_record), record, sums);
        sums->served += length(&record->served);
        if (!live)
            continue;
        KVF_ASSERT(record->session->record == record);
        KVF_ASSERT(record->session->access == sums->access - access);
        check_session(side, record->session, sums);
    }
}

static void check_peers(const struct send_side *side, uint32_t *answers_out)
{
    uint32_t answers = 0;

    for (uint32_t i = 0; i < side->params.world_size; i++) {
        const struct send_peer *peer = &side->peers[i];

        KVF_ASSERT(length(&peer->results) == peer->queued);
        KVF_ASSERT(peer->up || peer->queued == 0);
        KVF_ASSERT(peer->queued == 0 || !list_empty(&peer->due.node));
        for (const struct list *node = list_first(&peer->results); node != NULL;
             node = list_after(&peer->results, node))
            answers += list_object(node, struct send_result, node)->kind == SEND_RESULT_ANSWER;
    }
    *answers_out = answers;
}

void send_session_check(const struct send_side *side)
{
    struct sums sums = {0};
    uint64_t records =
        side->counts.asked + side->counts.fenced + side->counts.live + side->counts.tombstones;
    uint32_t answers;

    check_records(side, &side->asked, &sums);
    check_records(side, &side->fenced, &sums);
    check_records(side, &side->live, &sums);
    check_records(side, &side->tombs, &sums);
    check_peers(side, &answers);
    KVF_ASSERT(length(&side->asked) == side->counts.asked);
    KVF_ASSERT(length(&side->fenced) == side->counts.fenced);
    KVF_ASSERT(length(&side->live) == side->counts.live);
    KVF_ASSERT(length(&side->tombs) == side->counts.tombstones);
    KVF_ASSERT(rid_map_count(side->map) == records);
    KVF_ASSERT(length(&side->free_sessions) + side->counts.live == side->params.requests_max);
    KVF_ASSERT(length(&side->free_receivers) + sums.receivers == side->params.receivers_max);
    KVF_ASSERT(length(&side->free_served) + sums.served == side->params.served_max);
    KVF_ASSERT(length(&side->free_parts) + sums.parts == side->params.windows_max);
    KVF_ASSERT(length(&side->free_tasks) + sums.tasks == side->params.tasks_max);
    KVF_ASSERT(length(&side->free_answers) + answers == side->params.answers_max);
    KVF_ASSERT(sums.access == side->counts.tasks && sums.doubts == side->counts.doubts);
    KVF_ASSERT(length(&side->running) == sums.access);
    KVF_ASSERT(sums.retained == side->counts.retained_blocks);
    KVF_ASSERT(sums.receivers > 0 || side->counts.live > 0 || store_used_words(side->store) == 0);
    store_check(side->store);
}
