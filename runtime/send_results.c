/*
 * send_results.c - the answers of one context rank to one receiver, in order (docs/protocol.md).
 *
 * A member of the queue lies inside the object that it is made from, so that an answer that is owed
 * always has room; only answers to requests that are not live here come from a pool.
 */
#include "check.h"
#include "send_internal.h"

#define RESULTS_MAX 65536u /* of one peer; beyond it the peer is lost */

static void lose_peer(struct send_side *side, struct send_peer *peer)
{
    if (peer->overflowed)
        return;
    peer->overflowed = true;
    send_due_push(side, &peer->lose);
}

bool send_result_push(struct send_side *side, uint32_t rank, uint64_t epoch,
                      struct send_result *result)
{
    struct send_peer *peer = &side->peers[rank];

    if (!peer->up || peer->epoch != epoch)
        return false;
    if (peer->queued >= RESULTS_MAX)
        lose_peer(side, peer);
    list_push(&peer->results, &result->node);
    peer->queued++;
    if (list_empty(&peer->due.node))
        send_due_push(side, &peer->due);
    return true;
}

void send_result_answer(struct send_side *side, uint32_t rank, uint64_t rid, uint32_t tag,
                        const struct send_final *final)
{
    struct send_peer *peer = &side->peers[rank];
    struct list *node;
    struct send_answer *answer;

    if (!peer->up)
        return;
    node = peer->queued < RESULTS_MAX ? list_pop(&side->free_answers) : NULL;
    if (node == NULL) {
        lose_peer(side, peer);
        return;
    }
    answer = list_object(node, struct send_answer, node);
    answer->rid = rid;
    answer->tag = tag;
    answer->final = *final;
    send_result_push(side, rank, peer->epoch, &answer->result);
}

void send_result_quiesced(struct send_side *side, uint32_t rank,
                          const struct msg_cancel_session *cancel)
{
    struct send_final final = {.kind = SEND_FINAL_QUIESCED, .cancel_id = cancel->cancel_id};

    send_result_answer(side, rank, cancel->rid, cancel->tag, &final);
}

void send_result_final(struct send_side *side, struct send_receiver *receiver,
                       const struct send_final *final)
{
    if (receiver->final.kind != SEND_FINAL_NONE)
        return;
    KVF_ASSERT(receiver->access == 0);
    receiver->final = *final;
    receiver->final.report_id = ++side->report_next;
    send_result_push(side, receiver->rank, receiver->epoch, &receiver->result);
    send_receiver_drop_lists(side, receiver);
}

static struct send_answer *answer_of(struct send_result *result)
{
    return list_object(result, struct send_answer, result);
}

static struct send_task *task_of(struct send_result *result)
{
    return list_object(result, struct send_task, result);
}

static struct send_result *take(struct send_peer *peer)
{
    struct list *node = list_pop(&peer->results);

    if (node == NULL)
        return NULL;
    peer->queued--;
    return list_object(node, struct send_result, node);
}

void send_result_purge(struct send_side *side, struct send_peer *peer)
{
    struct send_result *result;

    while ((result = take(peer)) != NULL) {
        switch (result->kind) {
        case SEND_RESULT_SLICE:
            send_task_free(side, task_of(result));
            break;
        case SEND_RESULT_ANSWER:
            list_push(&side->free_answers, &answer_of(result)->node);
            break;
        case SEND_RESULT_CANCELLED:
        case SEND_RESULT_DOUBT:
        case SEND_RESULT_FINAL:
            break;
        }
    }
    list_remove(&peer->due.node);
}

static void fill_header(const struct send_side *side, enum msg_type type, struct msg *msg_out)
{
    *msg_out = (struct msg){0};
    msg_out->header.type = (uint8_t)type;
    msg_out->header.source_instance = side->params.self.instance;
    msg_out->header.source_rank = side->params.self.rank;
    msg_out->header.epoch = side->params.self.epoch;
}

static void fill_final(const struct send_side *side, uint64_t rid, uint32_t tag,
                       const struct send_final *final, struct msg *msg_out)
{
    switch (final->kind) {
    case SEND_FINAL_QUIESCED:
        fill_header(side, MSG_QUIESCED, msg_out);
        msg_out->u.quiesced =
            (struct msg_quiesced){.rid = rid, .tag = tag, .cancel_id = final->cancel_id};
        return;
    case SEND_FINAL_SETTLED:
        fill_header(side, MSG_SETTLED, msg_out);
        msg_out->u.settled = (struct msg_settled){
            .rid = rid, .tag = tag, .slice = final->slice, .code = final->code};
        return;
    case SEND_FINAL_NONE:
    case SEND_FINAL_SUCCESS:
    case SEND_FINAL_FAILED:
        break;
    }
    KVF_ASSERT(final->kind != SEND_FINAL_NONE);
    fill_header(side, MSG_REPORT, msg_out);
    msg_out->u.report = (struct msg_report){
        .rid = rid,
        .tag = tag,
        .slice = final->slice,
        .is_last = true,
        .status = final->kind == SEND_FINAL_SUCCESS ? MSG_REPORT_SUCCESS : MSG_REPORT_FAILED,
        .code = final->code,
        .bytes_written = final->bytes,
        .path = (uint8_t) final->path,
        .unanswered = final->unanswered,
        .report_id = final->report_id,
    };
}

/* Report of a slice that is in the pages; aux rides with the last one. */
static void fill_slice(struct send_side *side, struct send_task *task, struct msg *msg_out)
{
    const struct send_receiver *receiver = task->receiver;
    const struct send_session *session = receiver->record->session;

    fill_header(side, MSG_REPORT, msg_out);
    msg_out->u.report = (struct msg_report){
        .rid = receiver->record->rid,
        .tag = receiver->tag,
        .slice = task->slice,
        .is_last = task->last,
        .status = MSG_REPORT_SUCCESS,
        .code = KVF_OK,
        .bytes_written = task->bytes,
        .path = (uint8_t)task->path,
        .report_id = task->report_id,
    };
    if (task->last && receiver->aux_wanted && session->has_aux) {
        msg_out->u.report.aux = session->aux;
        msg_out->u.report.aux_bytes = (uint16_t)side->params.aux_bytes;
    }
    send_task_free(side, task);
}

static uint8_t origin_of(const struct send_session *session)
{
    if (session->outcome == SESSION_FAILED)
        return MSG_ORIGIN_FAILED;
    return session->code == KVF_E_CANCELLED ? MSG_ORIGIN_ENGINE : MSG_ORIGIN_RECEIVER;
}

static void fill_cancelled(const struct send_side *side, const struct send_receiver *receiver,
                           struct msg *msg_out)
{
    const struct send_session *session = receiver->record->session;

    fill_header(side, MSG_SESSION_CANCELLED, msg_out);
    msg_out->u.session_cancelled = (struct msg_session_cancelled){
        .rid = receiver->record->rid,
        .tag = receiver->tag,
        .origin = origin_of(session),
        .code = session->code,
    };
}

static void fill_doubt(struct send_side *side, const struct send_receiver *receiver,
                       struct msg *msg_out)
{
    fill_header(side, MSG_REPORT, msg_out);
    msg_out->u.report = (struct msg_report){
        .rid = receiver->record->rid,
        .tag = receiver->tag,
        .slice = receiver->doubt_slice,
        .status = MSG_REPORT_IN_DOUBT,
        .code = receiver->doubt_code,
        .report_id = ++side->report_next,
    };
}

bool send_result_pop(struct send_side *side, struct send_peer *peer, struct send_action *action_out)
{
    struct send_result *result = take(peer);
    struct send_receiver *receiver;

    if (result == NULL)
        return false;
    action_out->kind = SEND_ACT_MESSAGE;
    action_out->peer = (uint32_t)(peer - side->peers);
    switch (result->kind) {
    case SEND_RESULT_SLICE:
        fill_slice(side, task_of(result), &action_out->u.msg);
        break;
    case SEND_RESULT_CANCELLED:
        receiver = list_object(result, struct send_receiver, cancelled);
        fill_cancelled(side, receiver, &action_out->u.msg);
        break;
    case SEND_RESULT_DOUBT:
        receiver = list_object(result, struct send_receiver, doubt);
        fill_doubt(side, receiver, &action_out->u.msg);
        break;
    case SEND_RESULT_FINAL:
        receiver = list_object(result, struct send_receiver, result);
        fill_final(side, receiver->record->rid, receiver->tag, &receiver->final,
                   &action_out->u.msg);
        break;
    case SEND_RESULT_ANSWER:
        fill_final(side, answer_of(result)->rid, answer_of(result)->tag, &answer_of(result)->final,
                   &action_out->u.msg);
        list_push(&side->free_answers, &answer_of(result)->node);
        break;
    }
    return true;
}
