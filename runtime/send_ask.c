/*
 * send_ask.c - what receivers send to a request that the engine has opened: REQUEST_DATA and
 * CANCEL_SESSION (docs/protocol.md, context session).
 */
#include "check.h"
#include "send_internal.h"

/* ---- receivers ------------------------------------------------------------------------------ */

/* Votes ASKED when everyone has asked, and takes it back when that is no longer so. */
void send_live_count_asked(struct send_side *side, struct send_session *session)
{
    bool all = session->group != SESSION_GROUP_UNKNOWN &&
               session->asked >= side->groups[session->group].count;

    if (all)
        send_live_vote(side, session, SESSION_VOTE_ASKED);
    else if (SESSION_VOTE_BASE(session->vote_wanted) == SESSION_VOTE_ASKED)
        send_live_vote(side, session, SESSION_VOTE_WITHDRAWN);
}

static void join(struct send_side *side, struct send_session *session,
                 struct send_receiver *receiver)
{
    session->asked++;
    if (session->asked_ns == 0)
        session->asked_ns = side->real_ns;
    if (session->timer_kind == SEND_TIMER_UNASKED)
        send_live_arm(side, session, SEND_TIMER_NONE);
    send_task_schedule(side, receiver);
}

/* The request can't succeed any more without a receiver that it needs. */
static void refuse_needed(struct send_side *side, struct send_session *session,
                          const struct send_event *event, enum kvf_status code)
{
    uint32_t rank = event->u.message.peer;
    struct send_end end = {.outcome = SESSION_FAILED, .code = code, .culprit = rank};
    bool needed = send_live_expects(side, session, rank);

    send_record_refuse(side, rank, &event->u.message.msg->u.request_data, code);
    if (needed)
        send_live_turn_bad(side, session, &end);
}

/* Asks for a session that still runs, by a receiver that is not stored. */
static void admit(struct send_side *side, struct send_session *session,
                  const struct send_event *event, enum kvf_status code)
{
    const struct msg_request_data *data = &event->u.message.msg->u.request_data;
    uint32_t rank = event->u.message.peer;
    struct send_record *record = session->record;
    struct send_end end = {.outcome = SESSION_FAILED, .code = KVF_OK};

    if (session->group == SESSION_GROUP_UNKNOWN && code == KVF_OK) {
        session->group = side->group_of[rank];
        end.code = send_live_missing_receiver(side, session, &end.culprit);
    }
    if (code == KVF_OK && !send_live_expects(side, session, rank)) {
        send_wrong_peer(side, data->rid, rank);
        code = KVF_E_PROTOCOL;
    }
    if (code == KVF_OK && data->prompt_tokens != session->prompt_tokens)
        code = KVF_E_PROTOCOL;
    if (code == KVF_OK && send_receiver_add(side, record, rank, data) != KVF_OK)
        code = KVF_E_REFUSED;
    if (code != KVF_OK) {
        refuse_needed(side, session, event, code);
        return;
    }
    join(side, session, list_object(record->receivers.prev, struct send_receiver, of_record));
    send_live_count_asked(side, session);
    if (end.code != KVF_OK) /* another receiver of its group is missing */
        send_live_turn_bad(side, session, &end);
}

static void forget_receiver(struct send_side *side, struct send_session *session,
                            struct send_receiver *receiver)
{
    send_receiver_free(side, receiver);
    session->asked--;
    if (session->asked == 0 && session->last && session->timer_kind == SEND_TIMER_NONE)
        send_live_arm(side, session, SEND_TIMER_UNASKED);
}

/* A stored receiver asks again. */
static void ask_again(struct send_side *side, struct send_session *session,
                      struct send_receiver *receiver, const struct send_event *event,
                      enum kvf_status code)
{
    const struct msg_request_data *data = &event->u.message.msg->u.request_data;
    struct send_final final = {.kind = SEND_FINAL_FAILED, .code = KVF_E_SUPERSEDED};
    uint32_t rank = event->u.message.peer;
    bool running = send_live_under_way(session);

    if (receiver->tag == data->tag) {
        side->counts.duplicates++;
        if (!running && receiver->final.kind != SEND_FINAL_NONE)
            send_result_answer(side, rank, data->rid, data->tag, &receiver->final);
        return;
    }
    if (!running) {
        send_record_refuse(side, rank, data,
                           send_live_is_bad(session) ? session->code : KVF_E_GONE);
        return;
    }
    if (code != KVF_OK || receiver->queued) {
        send_record_refuse(side, rank, data, code != KVF_OK ? code : KVF_E_PROTOCOL);
        return;
    }
    side->counts.superseded++;
    final.report_id = ++side->report_next;
    send_result_answer(side, rank, data->rid, receiver->tag, &final);
    forget_receiver(side, session, receiver);
    admit(side, session, event, KVF_OK);
}

void send_live_request_data(struct send_side *side, struct send_session *session,
                            const struct send_event *event, enum kvf_status code)
{
    const struct msg_request_data *data = &event->u.message.msg->u.request_data;
    uint32_t rank = event->u.message.peer;
    struct send_receiver *receiver = send_record_receiver(side, session->record, rank);

    if (receiver != NULL)
        ask_again(side, session, receiver, event, code);
    else if (send_live_is_bad(session))
        send_record_refuse(side, rank, data, session->code);
    else if (session->state == SEND_SESSION_SENT)
        send_record_refuse(side, rank, data, KVF_E_GONE);
    else
        admit(side, session, event, code);
}

/* ---- CANCEL_SESSION ------------------------------------------------------------------------- */

/* A receiver whose final is claimed hears it again; one with a running task hears it later. */
static void answer_cancel(struct send_side *side, struct send_receiver *receiver,
                          const struct msg_cancel_session *cancel, uint32_t rank)
{
    if (receiver == NULL || receiver->final.kind == SEND_FINAL_QUIESCED)
        send_result_quiesced(side, rank, cancel);
    else if (receiver->final.kind != SEND_FINAL_NONE)
        send_result_answer(side, rank, cancel->rid, cancel->tag, &receiver->final);
}

static void cancel_under_way(struct send_side *side, struct send_session *session,
                             struct send_receiver *receiver, const struct send_event *event)
{
    const struct msg_cancel_session *cancel = &event->u.message.msg->u.cancel_session;
    uint32_t rank = event->u.message.peer;
    bool served = receiver != NULL && receiver->final.kind != SEND_FINAL_NONE;
    struct send_end end = {
        .outcome = SESSION_CANCELLED,
        .code = KVF_E_PEER_CANCELLED,
        .culprit = rank,
        .told = receiver,
        .quiesce = true,
        .cancel_id = cancel->cancel_id,
    };

    if (cancel->reason == MSG_CANCEL_END && (receiver == NULL || receiver->access == 0)) {
        answer_cancel(side, served ? receiver : NULL, cancel, rank);
        if (receiver != NULL && !served) {
            forget_receiver(side, session, receiver);
            send_live_count_asked(side, session);
        }
        return;
    }
    if (session->group != SESSION_GROUP_UNKNOWN && !send_live_expects(side, session, rank)) {
        send_wrong_peer(side, cancel->rid, rank); /* not one of this request's receivers */
        send_result_quiesced(side, rank, cancel);
        return;
    }
    send_live_turn_bad(side, session, &end);
    if (receiver == NULL || served)
        answer_cancel(side, receiver, cancel, rank);
}

void send_live_cancel_message(struct send_side *side, struct send_session *session,
                              const struct send_event *event)
{
    const struct msg_cancel_session *cancel = &event->u.message.msg->u.cancel_session;
    uint32_t rank = event->u.message.peer;
    struct send_receiver *receiver = send_record_receiver(side, session->record, rank);

    if (receiver != NULL && receiver->tag != cancel->tag) {
        side->counts.late++; /* of an ask that was replaced or refused: nothing is written for it */
        send_result_quiesced(side, rank, cancel);
    } else if (send_live_under_way(session)) {
        cancel_under_way(side, session, receiver, event);
    } else {
        side->counts.late++;
        answer_cancel(side, receiver, cancel, rank);
    }
}

/* ---- opening ---------------------------------------------------------------------------- */

/* Drops stored receivers that do not belong to the request; true when a needed one was refused. */
bool send_live_sort_receivers(struct send_side *side, struct send_session *session)
{
    struct list *receivers = &session->record->receivers;
    struct list *next;
    bool refused = false;

    for (struct list *node = list_first(receivers); node != NULL; node = next) {
        struct send_receiver *receiver = list_object(node, struct send_receiver, of_record);
        struct msg_request_data data = {.rid = session->record->rid, .tag = receiver->tag};
        uint32_t rank = receiver->rank;
        bool expected;

        next = list_after(receivers, node);
        if (session->group == SESSION_GROUP_UNKNOWN)
            session->group = side->group_of[rank];
        expected = send_live_expects(side, session, rank);
        if (expected && receiver->prompt_tokens == session->prompt_tokens) {
            join(side, session, receiver);
            continue;
        }
        send_receiver_free(side, receiver);
        send_record_refuse(side, rank, &data, KVF_E_PROTOCOL);
        refused = refused || expected;
    }
    return refused;
}
