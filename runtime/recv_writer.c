/*
 * recv_writer.c - the context ranks that a request was asked of, and what they answer
 * (docs/protocol.md, writer entry).
 */
#include <string.h>

#include "check.h"
#include "recv_internal.h"

/* ---- entries -------------------------------------------------------------------------------- */

void recv_writer_add(struct recv_side *side, struct recv_session *session,
                     const struct recv_writer_params *params)
{
    struct list *node = list_pop(&side->free_writers);
    struct recv_writer *writer = list_object(node, struct recv_writer, of_session);

    side->free_writer_count--;
    writer->session = session;
    writer->rank = params->rank;
    writer->epoch = side->peers[params->rank].epoch;
    writer->group = params->group;
    writer->aux = params->aux;
    writer->state = RECV_WRITER_UNASKED;
    writer->succeeded = writer->failed = writer->cancelled = writer->answered = false;
    writer->code = KVF_OK;
    writer->plan_bytes = params->plan_bytes;
    writer->bytes = 0;
    writer->path_mask = 0;
    writer->slices_done = 0;
    writer->last_slice = KVF_UNKNOWN;
    memset(writer->slices, 0, side->slice_words * sizeof(*writer->slices));
    list_push(&session->writers, &writer->of_session);
    list_push(&side->peers[writer->rank].writers, &writer->of_peer);
    session->writer_count++;
}

void recv_writer_free(struct recv_side *side, struct recv_writer *writer)
{
    list_remove(&writer->publish.node);
    list_remove(&writer->cancel.node);
    list_remove(&writer->resend);
    list_remove(&writer->of_peer);
    list_remove(&writer->of_session);
    list_push(&side->free_writers, &writer->of_session);
    side->free_writer_count++;
}

struct recv_writer *recv_writer_find(const struct recv_side *side,
                                     const struct recv_session *session, uint32_t rank)
{
    uint64_t epoch = side->peers[rank].epoch;

    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        struct recv_writer *writer = list_object(node, struct recv_writer, of_session);

        if (writer->rank == rank && writer->epoch == epoch)
            return writer;
    }
    return NULL;
}

void recv_writer_mark(struct recv_side *side, struct recv_writer *writer)
{
    if (writer->state == RECV_WRITER_DONE)
        return;
    KVF_ASSERT(writer->state != RECV_WRITER_UNASKED);
    writer->state = RECV_WRITER_DONE;
    writer->session->unmarked--;
    if (writer->cancelled)
        side->counts.unanswered_cancels--;
    list_remove(&writer->resend);
    list_remove(&writer->cancel.node);
}

static bool group_is_dead(const struct recv_session *session, uint32_t group,
                          enum kvf_status *code_out)
{
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        const struct recv_writer *writer = list_object(node, struct recv_writer, of_session);

        if (writer->group == group && writer->failed) {
            *code_out = writer->code;
            return true;
        }
    }
    return false;
}

/* True when every group has a writer that refused. */
static bool all_groups_dead(const struct recv_session *session)
{
    enum kvf_status code;

    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        const struct recv_writer *writer = list_object(node, struct recv_writer, of_session);

        if (!group_is_dead(session, writer->group, &code))
            return false;
    }
    return true;
}

/* ---- giving out ----------------------------------------------------------------------------- */

static void fill_header(const struct recv_side *side, const struct recv_writer *writer,
                        enum msg_type type, struct recv_action *action_out)
{
    action_out->kind = RECV_ACT_MESSAGE;
    action_out->peer = writer->rank;
    action_out->u.msg = (struct msg){0};
    action_out->u.msg.header.type = (uint8_t)type;
    action_out->u.msg.header.source_instance = side->params.self.instance;
    action_out->u.msg.header.source_rank = side->params.self.rank;
    action_out->u.msg.header.epoch = side->params.self.epoch;
}

bool recv_writer_give_publish(struct recv_side *side, struct recv_writer *writer,
                              struct recv_action *action_out)
{
    struct recv_session *session = writer->session;
    uint16_t flags = session->broadcast ? MSG_REQUEST_BROADCAST : 0;

    list_remove(&writer->publish.node);
    if (session->bounce_only)
        flags |= MSG_REQUEST_BOUNCE_ONLY;
    fill_header(side, writer, MSG_REQUEST_DATA, action_out);
    action_out->u.msg.u.request_data = (struct msg_request_data){
        .rid = session->request->rid,
        .tag = session->tag,
        .slice = MSG_SLICE_WHOLE,
        .receiver_instance = side->params.self.instance,
        .receiver_rank = side->params.self.rank,
        .prompt_tokens = session->prompt_tokens,
        .aux_wanted = writer->aux && session->aux != NULL,
        .flags = flags,
        .group_count = (uint8_t)session->list_count,
        .groups = session->lists,
        .block_count = session->blocks,
    };
    writer->state = RECV_WRITER_ASKED;
    session->unmarked++;
    if (!session->published) {
        session->published = true;
        session->published_ns = side->real_ns;
        recv_live_arm(side, session);
    }
    if (session->state == RECV_NEW)
        session->state = RECV_ASKED;
    return true;
}

void recv_writer_cancel(struct recv_side *side, struct recv_writer *writer,
                        enum msg_cancel_reason reason)
{
    writer->reason = (uint8_t)reason;
    if (side->peers[writer->rank].up && side->peers[writer->rank].epoch == writer->epoch)
        recv_due_push(side, &writer->cancel);
}

bool recv_writer_give_cancel(struct recv_side *side, struct recv_writer *writer,
                             struct recv_action *action_out)
{
    static const uint32_t whole = MSG_SLICE_WHOLE;

    list_remove(&writer->cancel.node);
    if (!writer->cancelled) {
        writer->cancelled = true;
        writer->cancel_id = ++side->cancel_next;
        if (writer->state != RECV_WRITER_DONE)
            side->counts.unanswered_cancels++;
    }
    fill_header(side, writer, MSG_CANCEL_SESSION, action_out);
    action_out->u.msg.u.cancel_session = (struct msg_cancel_session){
        .rid = writer->session->request->rid,
        .tag = writer->session->tag,
        .receiver_instance = side->params.self.instance,
        .receiver_rank = side->params.self.rank,
        .receiver_epoch = side->params.self.epoch,
        .reason = writer->reason,
        .cancel_id = writer->cancel_id,
        .slice_count = 1,
        .slices = &whole,
    };
    list_remove(&writer->resend);
    if (writer->reason != MSG_CANCEL_END && writer->state != RECV_WRITER_DONE) {
        writer->due_ns = side->now_ns + side->params.times.cancel_resend_ns;
        list_push(&side->resends, &writer->resend);
    }
    return true;
}

void recv_writer_tick(struct recv_side *side)
{
    struct list *node;

    while ((node = list_first(&side->resends)) != NULL) {
        struct recv_writer *writer = list_object(node, struct recv_writer, resend);

        if (writer->due_ns > side->now_ns)
            break;
        list_remove(node);
        side->counts.cancels_resent++;
        recv_due_push(side, &writer->cancel);
    }
}

/* ---- answers -------------------------------------------------------------------------------- */

static void contradiction(struct recv_side *side, const struct recv_writer *writer,
                          const char *text)
{
    side->counts.contradictions++;
    recv_log_request(side, &(struct session_note){KVF_LOG_ERROR, "W26", text}, writer->session,
                     KVF_E_PROTOCOL, writer->rank);
}

static bool has_slice(const struct recv_writer *writer, uint32_t slice)
{
    return (writer->slices[slice / 64] >> (slice % 64) & 1u) != 0;
}

static bool outside_expected(const struct recv_writer *writer)
{
    uint32_t group = writer->session->expected_group;

    return group != SESSION_GROUP_UNKNOWN && group != writer->group;
}

static void fail(struct recv_side *side, const struct recv_writer *writer, enum kvf_status code)
{
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = code,
                           .culprit = writer->rank,
                           .reason = MSG_CANCEL_FAILED};

    if (!recv_live_pending(writer->session))
        return;
    if (code == KVF_E_CANCELLED || code == KVF_E_PEER_CANCELLED) {
        end.outcome = SESSION_CANCELLED;
        end.code = KVF_E_PEER_CANCELLED;
    } else {
        recv_log_request(side, &(struct session_note){KVF_LOG_ERROR, "E34", "a writer failed"},
                         writer->session, code, writer->rank);
    }
    recv_live_turn_bad(side, writer->session, &end);
}

/* The first word of a writer that has a session tells which group was assigned. */
static void learn_expected(struct recv_side *side, struct recv_writer *writer)
{
    struct recv_session *session = writer->session;
    enum kvf_status code;

    if (session->state == RECV_ASKED)
        session->state = RECV_RECEIVING;
    if (session->started_ns == 0)
        session->started_ns = side->real_ns;
    if (session->expected_group != SESSION_GROUP_UNKNOWN)
        return;
    session->expected_group = writer->group;
    if (group_is_dead(session, writer->group, &code))
        fail(side, writer, code);
}

/* Aux is what was asked for, and is copied before the writer counts. */
static bool take_aux(struct recv_side *side, struct recv_writer *writer,
                     const struct msg_report *report)
{
    struct recv_session *session = writer->session;
    uint32_t wanted = writer->aux && session->aux != NULL ? side->params.aux_bytes : 0;

    if (!recv_live_pending(session))
        return true;
    if (!report->is_last)
        return report->aux_bytes == 0;
    if (report->aux_bytes != wanted)
        return false;
    if (wanted > 0)
        memcpy(session->aux, report->aux, wanted);
    return true;
}

/* Adds a slice that is new; false: the report breaks a rule. */
static bool add_slice(struct recv_side *side, struct recv_writer *writer,
                      const struct msg_report *report)
{
    bool beyond = writer->last_slice != KVF_UNKNOWN &&
                  (report->is_last || report->slice > writer->last_slice);

    if (beyond || !take_aux(side, writer, report))
        return false;
    if (report->is_last) {
        for (uint32_t slice = report->slice + 1; slice < side->params.slices_max; slice++)
            if (has_slice(writer, slice))
                return false;
        writer->last_slice = report->slice;
    }
    writer->slices[report->slice / 64] |= UINT64_C(1) << (report->slice % 64);
    writer->slices_done++;
    writer->bytes += report->bytes_written;
    if (report->path < KVF_PATH_COUNT)
        writer->path_mask |= 1u << report->path;
    writer->session->path_mask |= writer->path_mask;
    return true;
}

/* All slices 0..k are there. */
static void all_slices(struct recv_side *side, struct recv_writer *writer)
{
    struct recv_session *session = writer->session;

    writer->succeeded = writer->answered = true;
    recv_writer_mark(side, writer);
    if (recv_live_pending(session) && writer->bytes != writer->plan_bytes) {
        recv_log_request(
            side, &(struct session_note){KVF_LOG_ERROR, "E35", "attested bytes are not the plan's"},
            session, KVF_E_PROTOCOL, writer->rank);
        fail(side, writer, KVF_E_PROTOCOL);
    }
    recv_live_check_complete(side, session);
    recv_live_check_drained(side, session);
}

/* A message of a writer that was not waited for any more: it says what could be so. */
static bool late(struct recv_side *side, const struct recv_writer *writer)
{
    if (writer->state != RECV_WRITER_DONE || writer->answered)
        return false;
    side->counts.late++;
    return true;
}

static void on_success(struct recv_side *side, struct recv_writer *writer,
                       const struct msg_report *report)
{
    if (report->slice < side->params.slices_max && has_slice(writer, report->slice)) {
        side->counts.duplicates++;
        return;
    }
    if (late(side, writer))
        return;
    if (writer->state == RECV_WRITER_DONE || writer->state == RECV_WRITER_DOUBT) {
        contradiction(side, writer, "success after a final report or a doubt");
        return;
    }
    if (outside_expected(writer)) {
        contradiction(side, writer, "two groups send one request");
        fail(side, writer, KVF_E_PROTOCOL);
    }
    if (recv_live_pending(writer->session))
        learn_expected(side, writer);
    if (report->slice >= side->params.slices_max || !add_slice(side, writer, report)) {
        contradiction(side, writer, "slice, aux or last mark out of order");
        fail(side, writer, KVF_E_PROTOCOL);
        return;
    }
    if (writer->last_slice != KVF_UNKNOWN && writer->slices_done == writer->last_slice + 1)
        all_slices(side, writer);
}

/*
 * Only says that this rank has no session for the request. A cancel says more: the group that had
 * it assigned gave it up, or a receiver of it did; no other group will send it.
 */
static bool is_refusal(enum kvf_status code)
{
    return code == KVF_E_NO_SESSION || code == KVF_E_GONE;
}

/* What a failure or doubt of one writer means for the request. */
static void judge_failure(struct recv_side *side, struct recv_writer *writer, enum kvf_status code)
{
    struct recv_session *session = writer->session;

    if (!recv_live_pending(session) || outside_expected(writer))
        return;
    if (session->broadcast && session->expected_group == SESSION_GROUP_UNKNOWN &&
        is_refusal(code) && !all_groups_dead(session))
        return;
    fail(side, writer, code);
}

static void on_failed(struct recv_side *side, struct recv_writer *writer, uint32_t slice,
                      enum kvf_status code)
{
    struct recv_session *session = writer->session;

    if (writer->state == RECV_WRITER_DONE) {
        if (writer->succeeded)
            contradiction(side, writer, "failure after success");
        else
            side->counts.duplicates++;
        return;
    }
    if (slice < side->params.slices_max && has_slice(writer, slice)) {
        contradiction(side, writer, "failure after success of a slice");
        return;
    }
    writer->failed = writer->answered = true;
    writer->code = code;
    recv_writer_mark(side, writer);
    judge_failure(side, writer, code);
    recv_live_check_drained(side, session);
}

static void on_in_doubt(struct recv_side *side, struct recv_writer *writer,
                        const struct msg_report *report)
{
    if (late(side, writer))
        return;
    if (writer->state == RECV_WRITER_DONE) {
        contradiction(side, writer, "doubt after a final report");
        return;
    }
    if (writer->state == RECV_WRITER_DOUBT)
        side->counts.duplicates++;
    if (writer->state == RECV_WRITER_ASKED)
        writer->state = RECV_WRITER_DOUBT;
    judge_failure(side, writer, report->code == KVF_OK ? KVF_E_IN_DOUBT : report->code);
}

static void on_quiesced(struct recv_side *side, struct recv_writer *writer,
                        const struct msg_quiesced *quiesced)
{
    if (!writer->cancelled || quiesced->cancel_id != writer->cancel_id) {
        contradiction(side, writer, "quiesced without a cancel");
        return;
    }
    if (writer->state == RECV_WRITER_DONE) {
        side->counts.duplicates++;
        return;
    }
    writer->answered = true;
    recv_writer_mark(side, writer);
    recv_live_check_drained(side, writer->session);
}

static void on_session_cancelled(struct recv_side *side, struct recv_writer *writer,
                                 const struct msg_session_cancelled *cancelled)
{
    bool failed = cancelled->origin == MSG_ORIGIN_FAILED;

    if (!recv_live_pending(writer->session) || outside_expected(writer) ||
        writer->state == RECV_WRITER_DONE) {
        side->counts.late++;
        return;
    }
    fail(side, writer, failed ? cancelled->code : KVF_E_PEER_CANCELLED);
}

static void dispatch(struct recv_side *side, struct recv_writer *writer, const struct msg *msg)
{
    const struct msg_report *report = &msg->u.report;

    switch (msg->header.type) {
    case MSG_REPORT:
        if (report->status == MSG_REPORT_SUCCESS)
            on_success(side, writer, report);
        else if (report->status == MSG_REPORT_FAILED)
            on_failed(side, writer, report->slice, report->code);
        else
            on_in_doubt(side, writer, report);
        break;
    case MSG_SETTLED:
        on_failed(side, writer, KVF_UNKNOWN, msg->u.settled.code);
        break;
    case MSG_QUIESCED:
        on_quiesced(side, writer, &msg->u.quiesced);
        break;
    case MSG_SESSION_CANCELLED:
        on_session_cancelled(side, writer, &msg->u.session_cancelled);
        break;
    }
}

/* The request and tag that a message is about; false: not a message of this side. */
static bool subject_of(const struct msg *msg, uint64_t *rid_out, uint32_t *tag_out)
{
    switch (msg->header.type) {
    case MSG_REPORT:
        *rid_out = msg->u.report.rid;
        *tag_out = msg->u.report.tag;
        return true;
    case MSG_SETTLED:
        *rid_out = msg->u.settled.rid;
        *tag_out = msg->u.settled.tag;
        return true;
    case MSG_QUIESCED:
        *rid_out = msg->u.quiesced.rid;
        *tag_out = msg->u.quiesced.tag;
        return true;
    case MSG_SESSION_CANCELLED:
        *rid_out = msg->u.session_cancelled.rid;
        *tag_out = msg->u.session_cancelled.tag;
        return true;
    }
    return false;
}

/* An answer of a rank that was not asked. */
static void unasked(struct recv_side *side, const struct recv_session *session, uint32_t rank)
{
    struct recv_peer *peer = &side->peers[rank];

    side->counts.wrong_peer++;
    if (peer->wrong_log_ns != 0 && side->now_ns - peer->wrong_log_ns < RECV_WRONG_PEER_LOG_NS)
        return;
    peer->wrong_log_ns = side->now_ns;
    recv_log_request(
        side, &(struct session_note){KVF_LOG_ERROR, "W26", "answer of a rank that was not asked"},
        session, KVF_E_PROTOCOL, rank);
}

void recv_writer_message(struct recv_side *side, const struct recv_event *event)
{
    const struct msg *msg = event->u.message.msg;
    uint32_t rank = event->u.message.peer;
    struct recv_session *session;
    struct recv_writer *writer;
    uint64_t rid;
    uint32_t tag;

    if (!subject_of(msg, &rid, &tag)) {
        side->counts.unexpected_events++;
        return;
    }
    session = recv_live_find(side, rid);
    if (session == NULL || session->tag != tag) {
        if (session != NULL && msg->header.type == MSG_QUIESCED)
            recv_log_request(
                side, &(struct session_note){KVF_LOG_ERROR, "W26", "quiesced for a stale tag"},
                session, KVF_E_PROTOCOL, rank);
        side->counts.late++;
        return;
    }
    writer = recv_writer_find(side, session, rank);
    if (writer == NULL || writer->state == RECV_WRITER_UNASKED)
        unasked(side, session, rank);
    else
        dispatch(side, writer, msg);
}

/* ---- what the glue and the bounce say ------------------------------------------------------- */

void recv_writer_active(struct recv_side *side, const struct recv_event *event)
{
    struct recv_session *session = recv_live_find(side, event->u.active.rid);
    struct recv_writer *writer;

    if (session == NULL || session->tag != event->u.active.tag) {
        side->counts.late++;
        return;
    }
    writer = recv_writer_find(side, session, event->u.active.peer);
    if (writer == NULL || writer->state == RECV_WRITER_UNASKED) {
        unasked(side, session, event->u.active.peer);
        return;
    }
    if ((unsigned)event->u.active.path < KVF_PATH_COUNT)
        writer->path_mask |= 1u << event->u.active.path;
    if (recv_live_pending(session) && !outside_expected(writer))
        learn_expected(side, writer);
}

void recv_writer_publish_failed(struct recv_side *side, const struct recv_event *event)
{
    struct recv_session *session = recv_live_find(side, event->u.publish.rid);
    struct recv_writer *writer = NULL;
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = event->u.publish.code,
                           .culprit = event->u.publish.peer,
                           .reason = MSG_CANCEL_FAILED};

    if (session != NULL)
        writer = recv_writer_find(side, session, event->u.publish.peer);
    if (writer == NULL) {
        side->counts.unexpected_events++;
        return;
    }
    if (!event->u.publish.may_have_left && writer->state != RECV_WRITER_UNASKED) {
        recv_writer_mark(side, writer); /* it never heard of the request */
        writer->state = RECV_WRITER_UNASKED;
    }
    if (recv_live_pending(session))
        recv_live_turn_bad(side, session, &end);
    recv_live_check_drained(side, session);
}
