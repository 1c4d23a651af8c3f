/*
 * recv_live.c - the life of a request on the generation side (docs/protocol.md, generation
 * session).
 *
 * Pages are given back only when every writer of W is marked and no own scatter runs; the group
 * says when, never whether.
 */
#include <string.h>

#include "check.h"
#include "recv_internal.h"

bool recv_live_pending(const struct recv_session *session)
{
    return session->state == RECV_NEW || session->state == RECV_ASKED ||
           session->state == RECV_RECEIVING;
}

bool recv_live_is_bad(const struct recv_session *session)
{
    return session->state == RECV_BAD_WAIT || session->state == RECV_BAD_DRAINED ||
           session->state == RECV_STRANDED;
}

void recv_live_vote(struct recv_side *side, struct recv_session *session, unsigned vote)
{
    unsigned base = SESSION_VOTE_BASE(session->vote_wanted);

    if (SESSION_VOTE_BASE(vote) > base && !session->decided)
        base = SESSION_VOTE_BASE(vote);
    session->vote_wanted = base | ((session->vote_wanted | vote) & SESSION_VOTE_DRAINED);
    if (session->vote_wanted != session->vote_given)
        recv_due_push(side, &session->vote);
}

void recv_live_arm(struct recv_side *side, struct recv_session *session)
{
    list_remove(&session->timer);
    session->due_ns = side->now_ns + side->params.times.transfer_timeout_ns;
    list_push(&side->timers, &session->timer);
}

static uint64_t span_ns(uint64_t from_ns, uint64_t to_ns)
{
    return from_ns != 0 && to_ns > from_ns ? to_ns - from_ns : 0;
}

void recv_live_fill_result(const struct recv_session *session, struct session_result *result_out)
{
    uint64_t bytes = 0;

    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node))
        bytes += list_object(node, struct recv_writer, of_session)->bytes;
    *result_out = (struct session_result){
        .outcome = session->outcome,
        .status = session->code,
        .culprit = session->culprit,
        .payload_bytes = bytes,
        .path_mask = session->path_mask,
        .synchronous = session->synchronous,
        .timing = {.prepare_ns = span_ns(session->opened_ns, session->published_ns),
                   .wait_ns = span_ns(session->published_ns, session->started_ns),
                   .move_ns = span_ns(session->started_ns, session->done_ns)},
    };
}

static struct recv_writer *writer_at(struct list *node)
{
    return list_object(node, struct recv_writer, of_session);
}

/* ---- ending badly --------------------------------------------------------------------------- */

/* Only its own scatters write the pages of a request that the bounce alone may serve. */
static bool needs_no_answer(const struct recv_session *session, const struct recv_writer *writer)
{
    return session->bounce_only || writer->path_mask == 1u << KVF_PATH_BOUNCE;
}

static void set_scatter_timer(struct recv_side *side, struct recv_session *session)
{
    list_remove(&session->scatter);
    if (session->scatters == 0)
        return;
    if (!session->scatter_warned) {
        session->scatter_due_ns = side->now_ns + side->params.times.scatter_warn_ns;
        list_push(&side->scatter_first, &session->scatter);
    } else {
        session->scatter_due_ns = side->now_ns + side->params.times.transfer_timeout_ns;
        list_push(&side->scatter_later, &session->scatter);
    }
}

static unsigned doomed_vote(const struct recv_end *end)
{
    if (end->outcome == SESSION_FAILED)
        return SESSION_VOTE_DOOMED_FAILED;
    return end->code == KVF_E_CANCELLED ? SESSION_VOTE_DOOMED_USER : SESSION_VOTE_DOOMED_PEER;
}

/* Fence, then cancels. */
void recv_live_turn_bad(struct recv_side *side, struct recv_session *session,
                        const struct recv_end *end)
{
    struct list *node;

    session->state = RECV_BAD_WAIT;
    session->outcome = end->outcome;
    session->code = end->code;
    session->culprit = end->culprit;
    if (session->done_ns == 0)
        session->done_ns = side->real_ns;
    session->aux = NULL;
    side->counts.retained_blocks += session->blocks;
    if (session->published)
        recv_due_push(side, &session->fence);
    for (node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        struct recv_writer *writer = writer_at(node);

        list_remove(&writer->publish.node);
        if (writer->state == RECV_WRITER_UNASKED || writer->state == RECV_WRITER_DONE)
            continue;
        if (session->bounce_only)
            recv_writer_mark(side, writer);
        recv_writer_cancel(side, writer, end->reason);
    }
    recv_live_arm(side, session);
    set_scatter_timer(side, session);
    recv_live_vote(side, session, doomed_vote(end));
    recv_live_check_drained(side, session);
}

void recv_live_check_drained(struct recv_side *side, struct recv_session *session)
{
    if (session->state == RECV_STRANDED && session->unmarked == 0) {
        side->counts.stranded_blocks -= session->blocks;
        session->state = RECV_BAD_WAIT; /* for own scatters at most */
    }
    if (session->unmarked > 0 || session->scatters > 0)
        return;
    if (session->state == RECV_OK && !(session->vote_wanted & SESSION_VOTE_DRAINED)) {
        list_remove(&session->timer);
        recv_live_vote(side, session, SESSION_VOTE_DRAINED);
        return;
    }
    if (session->state != RECV_BAD_WAIT)
        return;
    session->state = RECV_BAD_DRAINED;
    list_remove(&session->timer);
    recv_live_vote(side, session, SESSION_VOTE_DRAINED);
}

/* ---- success -------------------------------------------------------------------------------- */

static bool all_expected(const struct recv_session *session)
{
    if (session->writer_count > 0 && session->expected_group == SESSION_GROUP_UNKNOWN)
        return false;
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        const struct recv_writer *writer = writer_at(node);

        if (writer->group == session->expected_group && !writer->succeeded)
            return false;
    }
    return true;
}

void recv_live_check_complete(struct recv_side *side, struct recv_session *session)
{
    if (!recv_live_pending(session) || session->scatters > 0 || !all_expected(session))
        return;
    session->state = RECV_OK;
    session->outcome = SESSION_OK;
    session->done_ns = side->real_ns;
    session->aux = NULL;
    list_remove(&session->timer);
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        struct recv_writer *writer = writer_at(node);

        side->counts.payload_bytes += writer->bytes;
        list_remove(&writer->publish.node); /* never asked, and no longer wanted */
        if (writer->state != RECV_WRITER_DONE && writer->state != RECV_WRITER_UNASKED)
            recv_writer_cancel(side, writer, MSG_CANCEL_END);
    }
    if (session->unmarked > 0)
        recv_live_arm(side, session);
    recv_live_vote(side, session,
                   SESSION_VOTE_DONE | (session->unmarked == 0 ? SESSION_VOTE_DRAINED : 0));
}

/* ---- opening -------------------------------------------------------------------------------- */

struct recv_session *recv_live_find(const struct recv_side *side, uint64_t rid)
{
    const struct recv_request *request = rid_map_find(side->map, rid);

    return request == NULL ? NULL : request->session;
}

static enum kvf_status check_open(const struct recv_side *side, const struct recv_event *event,
                                  uint64_t *blocks_out)
{
    uint64_t blocks = 0;

    if (side->closing)
        return KVF_E_CLOSED;
    if (event->u.open.prompt_tokens == 0)
        return KVF_E_INVAL;
    for (uint32_t i = 0; i < event->u.open.writer_count; i++)
        if (event->u.open.writers[i].rank >= side->params.world_size)
            return KVF_E_INVAL;
    if (event->u.open.list_count > side->params.lists_max ||
        event->u.open.writer_count > side->params.writers_max)
        return KVF_E_TOO_LARGE;
    for (uint32_t i = 0; i < event->u.open.list_count; i++)
        blocks += event->u.open.lists[i].count;
    if (blocks > side->params.blocks_max || blocks > MSG_BLOCKS_MAX)
        return KVF_E_TOO_LARGE;
    if (rid_map_find(side->map, event->u.open.rid) != NULL)
        return KVF_E_EXISTS;
    if (side->next_tag == 0)
        return KVF_E_STATE;
    if (list_empty(&side->free_sessions) || side->free_writer_count < event->u.open.writer_count)
        return KVF_BUSY;
    *blocks_out = blocks;
    return KVF_OK;
}

static void copy_lists(struct recv_session *session, const struct recv_event *event, uint32_t *run)
{
    session->run = run;
    session->list_count = event->u.open.list_count;
    for (uint32_t i = 0; i < session->list_count; i++) {
        const struct kvf_block_list *list = &event->u.open.lists[i];

        session->lists[i] = (struct kvf_block_list){list->first, list->count, run};
        if (list->count > 0)
            memcpy(run, list->slots, list->count * sizeof(*run));
        run += list->count;
    }
}

static void init_session(struct recv_side *side, struct recv_session *session,
                         const struct recv_event *event)
{
    session->tag = side->next_tag++;
    session->state = RECV_NEW;
    session->outcome = SESSION_PENDING;
    session->code = KVF_OK;
    session->culprit = KVF_UNKNOWN;
    session->decided = session->published = session->broadcast = false;
    session->bounce_only = event->u.open.bounce_only;
    session->synchronous = event->u.open.synchronous;
    session->writer_count = session->unmarked = session->scatters = 0;
    session->expected_group = SESSION_GROUP_UNKNOWN;
    session->doom.code = KVF_OK;
    session->prompt_tokens = event->u.open.prompt_tokens;
    session->aux = side->params.aux_bytes > 0 ? event->u.open.aux : NULL;
    session->scatter_warned = false;
    session->vote_given = session->vote_wanted = SESSION_VOTE_NONE;
    session->opened_ns = event->u.open.called_ns != 0 ? event->u.open.called_ns : side->real_ns;
    session->published_ns = session->started_ns = session->done_ns = 0;
    session->path_mask = 0;
    list_init(&session->writers);
}

/* All writers are judged before any is asked. */
static enum kvf_status judge_writers(const struct recv_side *side,
                                     const struct recv_session *session, uint32_t *rank_out)
{
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        const struct recv_peer *peer = &side->peers[writer_at(node)->rank];

        *rank_out = writer_at(node)->rank;
        if (!peer->up)
            return KVF_E_PEER_LOST;
        if (peer->verdict != KVF_OK)
            return peer->verdict;
    }
    return KVF_OK;
}

/* A rank that does not fit is warned of once. */
static void log_unfit(struct recv_side *side, const struct recv_session *session,
                      const struct recv_end *end)
{
    struct recv_peer *peer = &side->peers[end->culprit];
    struct session_note note = {KVF_LOG_WARN, "W27", "a writer's cache does not fit"};

    if (!peer->up)
        note = (struct session_note){KVF_LOG_WARN, "", "a writer is lost"};
    else if (peer->refusal_logged)
        note.level = KVF_LOG_DEBUG;
    peer->refusal_logged = peer->refusal_logged || peer->up;
    recv_log_request(side, &note, session, end->code, end->culprit);
}

static void add_writers(struct recv_side *side, struct recv_session *session,
                        const struct recv_event *event)
{
    for (uint32_t i = 0; i < event->u.open.writer_count; i++) {
        recv_writer_add(side, session, &event->u.open.writers[i]);
        session->broadcast =
            session->broadcast || event->u.open.writers[i].group != event->u.open.writers[0].group;
    }
    if (event->u.open.writer_count > 0 && !session->broadcast)
        session->expected_group = event->u.open.writers[0].group;
}

/* Owner of the run of the session that is opened next. */
static uint32_t next_owner(const struct recv_side *side)
{
    return (uint32_t)(list_object(list_first(&side->free_sessions), struct recv_session, node) -
                      side->sessions);
}

void recv_live_run_moved(void *self, uint32_t owner, uint32_t *run)
{
    struct recv_session *session = &((struct recv_side *)self)->sessions[owner];

    session->run = run;
    session_lists_moved(session->lists, session->list_count, run);
}

enum kvf_status recv_live_open(struct recv_side *side, const struct recv_event *event,
                               uint32_t *tag_out)
{
    struct recv_end end = {.outcome = SESSION_FAILED, .reason = MSG_CANCEL_FAILED};
    uint64_t blocks = 0;
    enum kvf_status status = check_open(side, event, &blocks);
    struct recv_request *request;
    struct recv_session *session;
    uint32_t *run;

    if (status == KVF_OK)
        status = store_take_for(side->store, (uint32_t)blocks, next_owner(side), &run);
    if (status != KVF_OK)
        return status;
    session = list_object(list_pop(&side->free_sessions), struct recv_session, node);
    request = list_object(list_pop(&side->free_requests), struct recv_request, node);
    copy_lists(session, event, run);
    session->blocks = (uint32_t)blocks;
    session->request = request;
    request->session = session;
    request->rid = event->u.open.rid;
    rid_map_add(side->map, request->rid, request);
    list_push(&side->live, &request->node);
    side->counts.live++;
    init_session(side, session, event);
    add_writers(side, session, event);
    *tag_out = session->tag;

    end.code = judge_writers(side, session, &end.culprit);
    if (end.code != KVF_OK) {
        log_unfit(side, session, &end);
        recv_live_turn_bad(side, session, &end);
        return KVF_OK;
    }
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node))
        recv_due_push(side, &writer_at(node)->publish);
    recv_live_check_complete(side, session);
    return KVF_OK;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void forget_request(struct recv_side *side, struct recv_request *request)
{
    rid_map_remove(side->map, request->rid);
    list_remove(&request->node);
    list_push(&side->free_requests, &request->node);
    side->counts.remembered--;
}

static void retire(struct recv_side *side, struct recv_session *session)
{
    struct recv_request *request = session->request;
    struct list *node;

    KVF_ASSERT(session->unmarked == 0 && session->scatters == 0);
    while ((node = list_first(&session->writers)) != NULL)
        recv_writer_free(side, writer_at(node));
    if (recv_live_is_bad(session))
        side->counts.retained_blocks -= session->blocks;
    store_free(side->store, session->run);
    session->run = NULL;
    list_remove(&session->timer);
    list_remove(&session->scatter);
    list_remove(&session->fence.node);
    list_remove(&session->vote.node);
    list_push(&side->free_sessions, &session->node);
    request->session = NULL;
    side->counts.live--;
    if (side->counts.remembered >= side->params.remembered_max)
        forget_request(side, list_object(list_first(&side->ended), struct recv_request, node));
    list_remove(&request->node);
    request->due_ns = side->now_ns + side->params.times.remember_ns;
    list_push(&side->ended, &request->node);
    side->counts.remembered++;
}

static enum kvf_status decide_end(struct recv_side *side, struct recv_session *session,
                                  const struct recv_end *end)
{
    if (session->decided)
        return KVF_E_STATE;
    session->decided = true;
    if (recv_live_pending(session)) {
        session->decided = false; /* its own vote still counts up */
        recv_live_turn_bad(side, session, end);
        session->decided = true;
        return KVF_OK;
    }
    if (session->state == RECV_OK) {
        recv_live_turn_bad(side, session, end);
        return KVF_OK;
    }
    if (end->culprit != KVF_UNKNOWN || end->code != session->code)
        session->culprit = end->culprit; /* else the own one says more */
    session->outcome = end->outcome;
    session->code = end->code;
    return KVF_OK;
}

enum kvf_status recv_live_decide(struct recv_side *side, const struct recv_event *event)
{
    struct recv_session *session = recv_live_find(side, event->u.decision.rid);
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = event->u.decision.code,
                           .culprit = event->u.decision.culprit,
                           .reason = MSG_CANCEL_GROUP};

    if (session == NULL)
        return KVF_E_NOTFOUND;
    switch (event->u.decision.decision) {
    case SESSION_DECIDED_OK:
        if (session->state != RECV_OK || session->decided)
            return KVF_E_STATE;
        session->decided = true;
        return KVF_OK;
    case SESSION_DECIDED_RELEASED:
        if (!session->decided || !(session->vote_given & SESSION_VOTE_DRAINED) ||
            session->unmarked > 0 || session->scatters > 0)
            return KVF_E_STATE;
        retire(side, session);
        return KVF_OK;
    case SESSION_DECIDED_CANCELLED:
        end.outcome = SESSION_CANCELLED;
        break;
    case SESSION_DECIDED_FAILED:
        break;
    }
    return decide_end(side, session, &end);
}

enum kvf_status recv_live_cancel(struct recv_side *side, uint64_t rid, enum kvf_status code)
{
    struct recv_session *session = recv_live_find(side, rid);
    struct recv_end end = {
        .outcome = SESSION_FAILED, .code = code, .culprit = KVF_UNKNOWN, .reason = MSG_CANCEL_USER};

    if (code == KVF_E_CANCELLED)
        end.outcome = SESSION_CANCELLED;
    else if (code == KVF_E_TIMEOUT)
        end.reason = MSG_CANCEL_TIMEOUT;
    else if (code == KVF_E_TRANSFER)
        end.reason = MSG_CANCEL_FAILED;
    if (session == NULL)
        return rid_map_find(side->map, rid) == NULL ? KVF_E_NOTFOUND : KVF_OK;
    if (recv_live_pending(session))
        recv_live_turn_bad(side, session, &end);
    if (session->state == RECV_OK && !session->decided &&
        doomed_vote(&end) > SESSION_VOTE_BASE(session->vote_wanted)) {
        session->doom.outcome = end.outcome;
        session->doom.code = end.code;
        recv_live_vote(side, session, doomed_vote(&end)); /* others may still be under way */
    }
    return KVF_OK;
}

static void mark_all(struct recv_side *side, struct recv_session *session, bool only_bounced)
{
    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        struct recv_writer *writer = writer_at(node);

        if (writer->state == RECV_WRITER_UNASKED || writer->state == RECV_WRITER_DONE)
            continue;
        if (!only_bounced || needs_no_answer(session, writer))
            recv_writer_mark(side, writer);
    }
}

enum kvf_status recv_live_force(struct recv_side *side, uint64_t rid)
{
    struct recv_session *session = recv_live_find(side, rid);

    if (session == NULL)
        return KVF_E_NOTFOUND;
    if (session->state != RECV_STRANDED)
        return KVF_E_STATE;
    side->counts.forced++;
    recv_log_request(
        side, &(struct session_note){KVF_LOG_WARN, "W42", "stranded pages are released by force"},
        session, session->code, KVF_UNKNOWN);
    mark_all(side, session, false);
    recv_live_check_drained(side, session);
    return KVF_OK;
}

/* ---- own scatters --------------------------------------------------------------------------- */

void recv_live_scatter(struct recv_side *side, const struct recv_event *event)
{
    struct recv_session *session = recv_live_find(side, event->u.scatter.rid);
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = event->u.scatter.code,
                           .culprit = KVF_UNKNOWN,
                           .reason = MSG_CANCEL_FAILED};

    if (session == NULL || session->tag != event->u.scatter.tag ||
        (event->kind != RECV_SCATTER_BEGAN && session->scatters == 0)) {
        side->counts.unexpected_events++;
        return;
    }
    if (event->kind == RECV_SCATTER_BEGAN) {
        session->scatters++;
        if (!recv_live_pending(session))
            side->counts.unexpected_events++; /* it should have seen the fence */
        if (recv_live_is_bad(session) && session->scatters == 1)
            set_scatter_timer(side, session);
        return;
    }
    session->scatters--;
    if (event->kind == RECV_SCATTER_FAILED && recv_live_pending(session))
        recv_live_turn_bad(side, session, &end);
    if (session->scatters == 0)
        list_remove(&session->scatter);
    recv_live_check_complete(side, session);
    recv_live_check_drained(side, session);
}

/* ---- timers --------------------------------------------------------------------------------- */

static void log_silent(struct recv_side *side, const struct recv_session *session,
                       const char *event, const char *text)
{
    struct session_log entry = {.level = KVF_LOG_WARN,
                                .event = event,
                                .text = text,
                                .rid = session->request->rid,
                                .code = session->code,
                                .number = session->blocks};

    for (struct list *node = list_first(&session->writers); node != NULL;
         node = list_after(&session->writers, node)) {
        const struct recv_writer *writer = writer_at(node);

        if (writer->state == RECV_WRITER_UNASKED || writer->state == RECV_WRITER_DONE)
            continue;
        if (entry.rank_count < SESSION_LOG_RANKS)
            entry.ranks[entry.rank_count] = writer->rank;
        entry.rank_count++;
        side->counts.silent_writers++;
    }
    recv_log(side, &entry);
}

/* T after the end, or after END. */
static void silence_over(struct recv_side *side, struct recv_session *session)
{
    bool good = session->state == RECV_OK;
    bool release = good || side->params.silence == RECV_RELEASE;

    if (session->unmarked > 0)
        log_silent(side, session, "W19",
                   release ? "writers silent: their pages are released"
                           : "writers silent: pages stay until there is proof");
    mark_all(side, session, !release);
    if (session->unmarked > 0) {
        session->state = RECV_STRANDED;
        side->counts.stranded_blocks += session->blocks;
        log_silent(side, session, "W33", "pages stranded");
    }
    recv_live_check_drained(side, session);
}

static void timer_fired(struct recv_side *side, struct recv_session *session)
{
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = KVF_E_TIMEOUT,
                           .culprit = KVF_UNKNOWN,
                           .reason = MSG_CANCEL_TIMEOUT};

    list_remove(&session->timer);
    if (!recv_live_pending(session)) {
        silence_over(side, session);
        return;
    }
    recv_log_request(side,
                     &(struct session_note){KVF_LOG_WARN, "W36", "receive did not finish in time"},
                     session, KVF_E_TIMEOUT, KVF_UNKNOWN);
    recv_live_turn_bad(side, session, &end);
}

static void scatter_tick(struct recv_side *side, struct list *sessions)
{
    struct list *node;

    while ((node = list_first(sessions)) != NULL) {
        struct recv_session *session = list_object(node, struct recv_session, scatter);

        if (session->scatter_due_ns > side->now_ns)
            break;
        recv_log_request(
            side,
            &(struct session_note){session->scatter_warned ? KVF_LOG_ERROR : KVF_LOG_WARN, "W21",
                                   "an own copy into the pages still runs: nothing is released"},
            session, session->code, KVF_UNKNOWN);
        session->scatter_warned = true;
        set_scatter_timer(side, session);
    }
}

void recv_live_tick(struct recv_side *side)
{
    struct list *node;

    while ((node = list_first(&side->timers)) != NULL) {
        struct recv_session *session = list_object(node, struct recv_session, timer);

        if (session->due_ns > side->now_ns)
            break;
        timer_fired(side, session);
    }
    scatter_tick(side, &side->scatter_first);
    scatter_tick(side, &side->scatter_later);
    while ((node = list_first(&side->ended)) != NULL) {
        struct recv_request *request = list_object(node, struct recv_request, node);

        if (request->due_ns > side->now_ns)
            break;
        forget_request(side, request);
    }
}
