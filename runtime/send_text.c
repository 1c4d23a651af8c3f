/* send_text.c - trace lines of the context side. */
#include <inttypes.h>

#include "send_session.h"
#include "session_text.h"

static const char *event_name(enum send_event_kind kind)
{
    static const char *const names[SEND_EVENT_KIND_COUNT] = {
        "POLL",         "TICK",       "OPEN",      "WINDOW",      "WINDOW_READY",
        "CANCEL",       "CANCEL_ALL", "MESSAGE",   "TASK_ENDED",  "TASK_IN_DOUBT",
        "TASK_SETTLED", "PEER_UP",    "PEER_LOST", "PEER_CLOSED", "DECISION"};

    return (unsigned)kind < SEND_EVENT_KIND_COUNT ? names[kind] : "?";
}

static void add_task(struct session_line *line, uint64_t task)
{
    session_line_add(line, " task %" PRIu32 ".%" PRIu32, (uint32_t)task, (uint32_t)(task >> 32));
}

static void add_window(struct session_line *line, const struct session_window *window)
{
    session_line_add(line, " tokens %" PRIu32 "-%" PRIu32 " layers %" PRIu32 "-%" PRIu32 "%s",
                     window->token_first, window->token_end, window->layer_first, window->layer_end,
                     window->last ? " last" : "");
}

static void add_event(struct session_line *line, const struct send_event *event)
{
    switch (event->kind) {
    case SEND_POLL:
    case SEND_TICK:
        break;
    case SEND_OPEN:
        session_line_add(line, " rid %" PRIu64 " tokens %" PRIu32 " group %" PRId32,
                         event->u.open.rid, event->u.open.prompt_tokens,
                         (int32_t)event->u.open.group);
        break;
    case SEND_WINDOW:
        session_line_add(line, " rid %" PRIu64, event->u.window.rid);
        add_window(line, &event->u.window.window);
        session_line_add(line, event->u.window.ready ? " ready" : "");
        break;
    case SEND_WINDOW_READY:
        session_line_add(line, " rid %" PRIu64 " slice %" PRIu32, event->u.ready.rid,
                         event->u.ready.slice);
        break;
    case SEND_CANCEL:
    case SEND_CANCEL_ALL:
        session_line_add(line, " rid %" PRIu64 " %s", event->u.cancel.rid,
                         kvf_status_name(event->u.cancel.code));
        break;
    case SEND_MESSAGE:
        session_line_add(line, " from %" PRIu32 " ", event->u.message.peer);
        session_line_msg(line, event->u.message.msg);
        if (event->u.message.check != KVF_OK)
            session_line_add(line, " check %s", kvf_status_name(event->u.message.check));
        break;
    case SEND_TASK_ENDED:
    case SEND_TASK_IN_DOUBT:
    case SEND_TASK_SETTLED:
        add_task(line, event->u.task.task);
        session_line_add(line, " %s bytes %" PRIu64, kvf_status_name(event->u.task.status),
                         event->u.task.bytes);
        break;
    case SEND_PEER_UP:
    case SEND_PEER_LOST:
    case SEND_PEER_CLOSED:
        session_line_add(line, " peer %" PRIu32, event->u.peer.peer);
        break;
    case SEND_DECISION:
        session_line_add(line, " rid %" PRIu64 " %s", event->u.decision.rid,
                         session_decision_name(event->u.decision.decision));
        break;
    }
}

size_t send_event_text(const struct send_event *event, char *text_out, size_t text_bytes)
{
    struct session_line line = session_line_make(text_out, text_bytes);

    session_line_add(&line, "%" PRIu64 " %s", event->now_ns, event_name(event->kind));
    add_event(&line, event);
    return line.len_bytes;
}

size_t send_action_text(const struct send_action *action, char *text_out, size_t text_bytes)
{
    struct session_line line = session_line_make(text_out, text_bytes);

    switch (action->kind) {
    case SEND_ACT_MESSAGE:
        session_line_add(&line, "to %" PRIu32 " ", action->peer);
        session_line_msg(&line, &action->u.msg);
        break;
    case SEND_ACT_TASK_START:
        session_line_add(&line, "start");
        add_task(&line, action->u.start.task);
        session_line_add(&line, " rid %" PRIu64 " to %" PRIu32 " tag %" PRIu32 " slice %" PRIu32,
                         action->u.start.rid, action->u.start.receiver, action->u.start.tag,
                         action->u.start.slice);
        add_window(&line, &action->u.start.window);
        break;
    case SEND_ACT_TASK_ABORT:
        session_line_add(&line, "abort");
        add_task(&line, action->u.abort);
        break;
    case SEND_ACT_VOTE:
        session_line_vote(&line, action->u.vote.rid, action->u.vote.vote, &action->u.vote.result);
        break;
    case SEND_ACT_LOSE_PEER:
        session_line_add(&line, "lose peer %" PRIu32, action->peer);
        break;
    case SEND_ACT_LOG:
        session_line_log(&line, &action->u.log);
        break;
    }
    return line.len_bytes;
}
