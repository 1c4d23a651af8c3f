/*
 * send_live.c - a request that the engine has opened for sending (docs/protocol.md, context
 * session). Windows and receivers come in any order; each pair of them is one send task.
 */
#include <string.h>

#include "check.h"
#include "send_internal.h"

bool send_live_is_bad(const struct send_session *session)
{
    return session->state == SEND_SESSION_BAD_DRAINING ||
           session->state == SEND_SESSION_BAD_DRAINED;
}

bool send_live_under_way(const struct send_session *session)
{
    return session->state == SEND_SESSION_OPEN || session->state == SEND_SESSION_SENDING;
}

bool send_live_expects(const struct send_side *side, const struct send_session *session,
                       uint32_t rank)
{
    const struct send_group *group;

    if (session->group == SESSION_GROUP_UNKNOWN)
        return false;
    group = &side->groups[session->group];
    for (uint32_t i = 0; i < group->count; i++)
        if (group->ranks[i] == rank)
            return true;
    return false;
}

void send_live_arm(struct send_side *side, struct send_session *session, enum send_timer kind)
{
    list_remove(&session->timer);
    session->timer_kind = kind;
    if (kind == SEND_TIMER_NONE)
        return;
    session->due_ns = side->now_ns + side->params.times.transfer_timeout_ns;
    list_push(&side->timers, &session->timer);
}

void send_live_vote(struct send_side *side, struct send_session *session, unsigned vote)
{
    unsigned base = SESSION_VOTE_BASE(session->vote_wanted);

    if (SESSION_VOTE_BASE(vote) > base)
        base = SESSION_VOTE_BASE(vote);
    session->vote_wanted = base | ((session->vote_wanted | vote) & SESSION_VOTE_DRAINED);
    if (session->vote_wanted != session->vote_given)
        send_due_push(side, &session->vote);
}

static uint64_t span_ns(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? to_ns - from_ns : 0;
}

void send_live_fill_result(const struct send_session *session, struct session_result *result_out)
{
    uint64_t both_ns =
        session->asked_ns > session->ready_ns ? session->asked_ns : session->ready_ns;

    *result_out = (struct session_result){
        .outcome = session->outcome,
        .status = session->code,
        .culprit = session->culprit,
        .payload_bytes = session->payload_bytes,
        .path_mask = session->path_mask,
        .timing = {.prepare_ns = span_ns(session->opened_ns, session->ready_ns),
                   .wait_ns = span_ns(session->ready_ns, session->asked_ns),
                   .move_ns = span_ns(both_ns, session->done_ns)},
    };
}

/* ---- turning bad ---------------------------------------------------------------------------- */

/* The final answer of a receiver that nothing runs for any more. */
static void final_bad(struct send_side *side, struct send_receiver *receiver,
                      const struct send_end *end)
{
    struct send_final final = {
        .kind = SEND_FINAL_FAILED,
        .code = receiver->record->session->code,
        .slice = receiver->failed ? receiver->failed_slice : receiver->begun_count,
        .unanswered = receiver->unanswered,
    };

    if (receiver->doubted) {
        final.kind = SEND_FINAL_SETTLED;
        final.slice = receiver->doubt_slice;
    } else if (end != NULL && end->quiesce && receiver == end->told && !receiver->queued) {
        final.kind = SEND_FINAL_QUIESCED;
        final.cancel_id = end->cancel_id;
    }
    send_result_final(side, receiver, &final);
}

static void check_drained(struct send_side *side, struct send_session *session)
{
    if (session->state != SEND_SESSION_BAD_DRAINING || session->access > 0)
        return;
    session->state = SEND_SESSION_BAD_DRAINED;
    send_live_vote(side, session, SESSION_VOTE_DRAINED);
}

static unsigned doomed_vote(const struct send_end *end)
{
    if (end->outcome == SESSION_FAILED)
        return SESSION_VOTE_DOOMED_FAILED;
    return end->code == KVF_E_CANCELLED ? SESSION_VOTE_DOOMED_USER : SESSION_VOTE_DOOMED_PEER;
}

void send_live_turn_bad(struct send_side *side, struct send_session *session,
                        const struct send_end *end)
{
    struct list *receivers = &session->record->receivers;
    struct send_receiver *receiver;
    struct list *node;

    session->state = SEND_SESSION_BAD_DRAINING; /* the fence: send_task_start() looks at it */
    session->outcome = end->outcome;
    session->code = end->code;
    session->culprit = end->culprit;
    session->done_ns = side->real_ns;
    session->retained = true;
    side->counts.retained_blocks += session->blocks;
    send_live_arm(side, session, SEND_TIMER_NONE);
    for (node = list_first(receivers); node != NULL; node = list_after(receivers, node)) {
        receiver = list_object(node, struct send_receiver, of_record);
        list_remove(&receiver->start.node);
        send_task_abort_all(side, receiver);
    }
    for (node = list_first(receivers); node != NULL; node = list_after(receivers, node)) {
        receiver = list_object(node, struct send_receiver, of_record);
        if (receiver->final.kind != SEND_FINAL_NONE)
            continue;
        if (receiver->access == 0)
            final_bad(side, receiver, end);
        else if (receiver != end->told)
            send_result_push(side, receiver->rank, receiver->epoch, &receiver->cancelled);
    }
    send_log_request(side, &(struct session_note){KVF_LOG_DEBUG, "", "send ended badly"},
                     session->record, end->code, end->culprit);
    send_live_vote(side, session, doomed_vote(end));
    check_drained(side, session);
}

void send_live_task_gone(struct send_side *side, struct send_receiver *receiver)
{
    struct send_session *session = receiver->record->session;

    if (!send_live_is_bad(session))
        return;
    if (receiver->access == 0)
        final_bad(side, receiver, NULL);
    check_drained(side, session);
}

/* ---- success -------------------------------------------------------------------------------- */

static void check_sent(struct send_side *side, struct send_session *session)
{
    if (!send_live_under_way(session) || session->group == SESSION_GROUP_UNKNOWN ||
        session->done < side->groups[session->group].count)
        return;
    KVF_ASSERT(session->access == 0);
    session->state = SEND_SESSION_SENT;
    session->outcome = SESSION_OK;
    session->done_ns = side->real_ns;
    send_live_arm(side, session, SEND_TIMER_NONE);
    send_live_vote(side, session, SESSION_VOTE_DONE | SESSION_VOTE_DRAINED);
}

void send_live_slice_done(struct send_side *side, struct send_task *task)
{
    struct send_receiver *receiver = task->receiver;
    struct send_session *session = receiver->record->session;

    receiver->done_count++;
    if (task->last)
        receiver->final = (struct send_final){
            .kind = SEND_FINAL_NONE, /* claimed below, when all slices are there */
            .slice = task->slice,
            .bytes = task->bytes,
            .path = task->path,
            .report_id = task->report_id,
        };
    if (!session->last || receiver->done_count < session->part_count)
        return;
    receiver->final.kind = SEND_FINAL_SUCCESS;
    send_receiver_drop_lists(side, receiver);
    session->done++;
    check_sent(side, session);
}

/* ---- the engine ----------------------------------------------------------------------------- */

/* The first expected receiver that does not live or does not fit; its code, or OK. */
enum kvf_status send_live_missing_receiver(const struct send_side *side,
                                           const struct send_session *session, uint32_t *rank_out)
{
    const struct send_group *group;

    *rank_out = KVF_UNKNOWN;
    if (session->group == SESSION_GROUP_UNKNOWN)
        return KVF_OK;
    group = &side->groups[session->group];
    for (uint32_t i = 0; i < group->count; i++) {
        const struct send_peer *peer = &side->peers[group->ranks[i]];

        *rank_out = group->ranks[i];
        if (!peer->up)
            return KVF_E_PEER_LOST;
        if (peer->verdict != KVF_OK)
            return peer->verdict;
    }
    *rank_out = KVF_UNKNOWN;
    return KVF_OK;
}

void send_live_open(struct send_side *side, struct send_record *record,
                    const struct send_event *event, bool fenced)
{
    struct send_session *session = record->session;
    struct send_end end = {.outcome = SESSION_FAILED, .code = KVF_OK, .culprit = KVF_UNKNOWN};

    session->state = SEND_SESSION_OPEN;
    session->outcome = SESSION_PENDING;
    session->code = KVF_OK;
    session->culprit = KVF_UNKNOWN;
    session->decided = false;
    session->group = event->u.open.group;
    session->prompt_tokens = event->u.open.prompt_tokens;
    session->has_aux = event->u.open.aux != NULL && side->params.aux_bytes > 0;
    if (session->has_aux)
        memcpy(session->aux, event->u.open.aux, side->params.aux_bytes);
    session->part_count = 0;
    session->last = false;
    session->asked = session->done = session->access = 0;
    session->sent_any = session->retained = false;
    session->vote_given = session->vote_wanted = SESSION_VOTE_NONE;
    session->timer_kind = SEND_TIMER_NONE;
    session->opened_ns = event->u.open.called_ns != 0 ? event->u.open.called_ns : side->real_ns;
    session->ready_ns = session->asked_ns = session->done_ns = 0;
    session->payload_bytes = 0;
    session->path_mask = 0;
    list_init(&session->parts);
    if (fenced) {
        end.outcome = SESSION_CANCELLED;
        end.code = KVF_E_PEER_CANCELLED;
    } else if (send_live_sort_receivers(side, session)) {
        end.code = KVF_E_PROTOCOL;
    } else {
        end.code = send_live_missing_receiver(side, session, &end.culprit);
    }
    if (end.code != KVF_OK) {
        send_live_turn_bad(side, session, &end);
        return;
    }
    send_live_count_asked(side, session);
    check_sent(side, session);
}

void send_live_free(struct send_side *side, struct send_session *session)
{
    struct list *node;

    while ((node = list_pop(&session->parts)) != NULL)
        list_push(&side->free_parts, node);
    if (session->retained)
        side->counts.retained_blocks -= session->blocks;
    store_free(side->store, session->run);
    session->run = NULL;
    list_remove(&session->timer);
    list_remove(&session->vote.node);
    list_push(&side->free_sessions, &session->node);
}

static struct send_session *live_session(const struct send_side *side, uint64_t rid)
{
    const struct send_record *record = send_record_find(side, rid);

    return record == NULL ? NULL : record->session;
}

/* Ended requests are told apart from unknown ones. */
static enum kvf_status ended_status(const struct send_side *side, uint64_t rid)
{
    const struct send_record *record = send_record_find(side, rid);

    return record != NULL && record->opened ? KVF_OK : KVF_E_NOTFOUND;
}

/* The part is ready to be read: all receivers may get it. */
static void part_ready(struct send_side *side, struct send_session *session)
{
    struct list *receivers = &session->record->receivers;

    if (session->ready_ns == 0)
        session->ready_ns = side->real_ns;
    for (struct list *node = list_first(receivers); node != NULL;
         node = list_after(receivers, node))
        send_task_schedule(side, list_object(node, struct send_receiver, of_record));
    if (session->last && session->asked == 0 && session->timer_kind == SEND_TIMER_NONE)
        send_live_arm(side, session, SEND_TIMER_UNASKED);
}

enum kvf_status send_live_window(struct send_side *side, const struct send_event *event,
                                 uint32_t *slice_out)
{
    struct send_session *session = live_session(side, event->u.window.rid);
    struct send_part *part;
    struct list *node;

    if (session == NULL)
        return ended_status(side, event->u.window.rid);
    if (session->last)
        return KVF_E_STATE;
    if (!send_live_under_way(session)) {
        session->last = event->u.window.window.last;
        return KVF_OK;
    }
    node = list_pop(&side->free_parts);
    if (node == NULL)
        return KVF_BUSY;
    part = list_object(node, struct send_part, node);
    part->window = event->u.window.window;
    part->slice = session->part_count;
    part->ready = event->u.window.ready;
    list_push(&session->parts, &part->node);
    session->part_count++;
    session->last = part->window.last;
    *slice_out = part->slice;
    if (part->ready)
        part_ready(side, session);
    return KVF_OK;
}

enum kvf_status send_live_window_ready(struct send_side *side, const struct send_event *event)
{
    struct send_session *session = live_session(side, event->u.ready.rid);

    if (session == NULL)
        return ended_status(side, event->u.ready.rid);
    for (struct list *node = list_first(&session->parts); node != NULL;
         node = list_after(&session->parts, node)) {
        struct send_part *part = list_object(node, struct send_part, node);

        if (part->slice != event->u.ready.slice)
            continue;
        if (part->ready)
            side->counts.unexpected_events++;
        part->ready = true;
        if (send_live_under_way(session))
            part_ready(side, session);
        return KVF_OK;
    }
    side->counts.unexpected_events++;
    return KVF_OK;
}

enum kvf_status send_live_cancel(struct send_side *side, uint64_t rid, enum kvf_status code)
{
    struct send_session *session = live_session(side, rid);
    struct send_end end = {.code = code, .culprit = KVF_UNKNOWN};

    if (session == NULL)
        return ended_status(side, rid);
    end.outcome = code == KVF_E_CANCELLED ? SESSION_CANCELLED : SESSION_FAILED;
    if (send_live_under_way(session))
        send_live_turn_bad(side, session, &end);
    return KVF_OK;
}

enum kvf_status send_live_decide(struct send_side *side, const struct send_event *event)
{
    struct send_session *session = live_session(side, event->u.decision.rid);
    enum session_decision decision = event->u.decision.decision;
    struct send_end end = {.outcome = SESSION_FAILED,
                           .code = event->u.decision.code,
                           .culprit = event->u.decision.culprit};

    if (session == NULL)
        return KVF_E_NOTFOUND;
    switch (decision) {
    case SESSION_DECIDED_OK:
        if (session->state != SEND_SESSION_SENT || session->decided)
            return KVF_E_STATE;
        session->decided = true;
        return KVF_OK;
    case SESSION_DECIDED_RELEASED:
        if (!session->decided || !(session->vote_given & SESSION_VOTE_DRAINED) ||
            session->access > 0)
            return KVF_E_STATE;
        send_record_end(side, session->record);
        return KVF_OK;
    case SESSION_DECIDED_CANCELLED:
        end.outcome = SESSION_CANCELLED;
        break;
    case SESSION_DECIDED_FAILED:
        break;
    }
    if (session->decided)
        return KVF_E_STATE;
    session->decided = true;
    if (send_live_under_way(session)) {
        send_live_turn_bad(side, session, &end);
        return KVF_OK;
    }
    if (end.culprit != KVF_UNKNOWN || end.code != session->code)
        session->culprit = end.culprit; /* else the own one says more */
    session->outcome = end.outcome;
    session->code = end.code;
    return KVF_OK;
}

/* ---- peers and timers ----------------------------------------------------------------------- */

void send_live_peer_lost(struct send_side *side, struct send_session *session, uint32_t rank,
                         enum kvf_status code)
{
    struct send_end end = {.outcome = SESSION_FAILED, .code = code, .culprit = rank};

    if (!send_live_under_way(session))
        return;
    if (send_record_receiver(side, session->record, rank) != NULL ||
        send_live_expects(side, session, rank))
        send_live_turn_bad(side, session, &end);
}

void send_live_tick(struct send_side *side)
{
    struct list *node;

    while ((node = list_first(&side->timers)) != NULL) {
        struct send_session *session = list_object(node, struct send_session, timer);
        struct send_end end = {
            .outcome = SESSION_FAILED, .code = KVF_E_TIMEOUT, .culprit = KVF_UNKNOWN};

        if (session->due_ns > side->now_ns)
            break;
        send_log_request(side,
                         &(struct session_note){KVF_LOG_WARN, "W36",
                                                session->timer_kind == SEND_TIMER_UNASKED
                                                    ? "no receiver asked in time"
                                                    : "receivers did not finish in time"},
                         session->record, KVF_E_TIMEOUT, KVF_UNKNOWN);
        send_live_turn_bad(side, session, &end);
    }
}
