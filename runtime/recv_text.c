/* recv_text.c - trace lines of the generation side. */
#include <inttypes.h>

#include "recv_session.h"
#include "session_text.h"

static const char *event_name(enum recv_event_kind kind)
{
    static const char *const names[RECV_EVENT_KIND_COUNT] = {
        "POLL",           "TICK",           "OPEN",          "CANCEL",        "CANCEL_ALL",
        "MESSAGE",        "PUBLISH_FAILED", "WRITER_ACTIVE", "SCATTER_BEGAN", "SCATTER_ENDED",
        "SCATTER_FAILED", "PEER_UP",        "PEER_LOST",     "PEER_CLOSED",   "PEER_PROOF",
        "DECISION",       "FORCE_RELEASE"};

    return (unsigned)kind < RECV_EVENT_KIND_COUNT ? names[kind] : "?";
}

static void add_event(struct session_line *line, const struct recv_event *event)
{
    switch (event->kind) {
    case RECV_POLL:
    case RECV_TICK:
        break;
    case RECV_OPEN:
        session_line_add(line, " rid %" PRIu64 " tokens %" PRIu32 " writers %" PRIu32,
                         event->u.open.rid, event->u.open.prompt_tokens,
                         event->u.open.writer_count);
        break;
    case RECV_CANCEL:
    case RECV_CANCEL_ALL:
    case RECV_FORCE_RELEASE:
        session_line_add(line, " rid %" PRIu64 " %s", event->u.cancel.rid,
                         kvf_status_name(event->u.cancel.code));
        break;
    case RECV_MESSAGE:
        session_line_add(line, " from %" PRIu32 " ", event->u.message.peer);
        session_line_msg(line, event->u.message.msg);
        break;
    case RECV_PUBLISH_FAILED:
        session_line_add(line, " rid %" PRIu64 " to %" PRIu32 "%s", event->u.publish.rid,
                         event->u.publish.peer,
                         event->u.publish.may_have_left ? " may have left" : "");
        break;
    case RECV_WRITER_ACTIVE:
        session_line_add(line, " rid %" PRIu64 " from %" PRIu32 " path %d", event->u.active.rid,
                         event->u.active.peer, (int)event->u.active.path);
        break;
    case RECV_SCATTER_BEGAN:
    case RECV_SCATTER_ENDED:
    case RECV_SCATTER_FAILED:
        session_line_add(line, " rid %" PRIu64, event->u.scatter.rid);
        break;
    case RECV_PEER_UP:
    case RECV_PEER_LOST:
    case RECV_PEER_CLOSED:
    case RECV_PEER_PROOF:
        session_line_add(line, " peer %" PRIu32, event->u.peer.peer);
        break;
    case RECV_DECISION:
        session_line_add(line, " rid %" PRIu64 " %s", event->u.decision.rid,
                         session_decision_name(event->u.decision.decision));
        break;
    }
}

size_t recv_event_text(const struct recv_event *event, char *text_out, size_t text_bytes)
{
    struct session_line line = session_line_make(text_out, text_bytes);

    session_line_add(&line, "%" PRIu64 " %s", event->now_ns, event_name(event->kind));
    add_event(&line, event);
    return line.len_bytes;
}

size_t recv_action_text(const struct recv_action *action, char *text_out, size_t text_bytes)
{
    struct session_line line = session_line_make(text_out, text_bytes);

    switch (action->kind) {
    case RECV_ACT_MESSAGE:
        session_line_add(&line, "to %" PRIu32 " ", action->peer);
        session_line_msg(&line, &action->u.msg);
        break;
    case RECV_ACT_FENCE:
        session_line_add(&line, "fence rid %" PRIu64 " tag %" PRIu32, action->u.fence.rid,
                         action->u.fence.tag);
        break;
    case RECV_ACT_VOTE:
        session_line_vote(&line, action->u.vote.rid, action->u.vote.vote, &action->u.vote.result);
        break;
    case RECV_ACT_LOG:
        session_line_log(&line, &action->u.log);
        break;
    }
    return line.len_bytes;
}
