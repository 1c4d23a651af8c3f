/* session_text.c - trace lines of what the two session machines have in common. */
#include "session_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

struct session_line session_line_make(char *text, size_t max_bytes)
{
    if (max_bytes > 0)
        text[0] = '\0';
    return (struct session_line){.text = text, .max_bytes = max_bytes};
}

void session_line_add(struct session_line *line, const char *format, ...)
{
    size_t left = line->max_bytes - line->len_bytes;
    va_list args;
    int added;

    if (left <= 1)
        return;
    va_start(args, format);
    added = vsnprintf(line->text + line->len_bytes, left, format, args);
    va_end(args);
    if (added > 0)
        line->len_bytes += (size_t)added < left ? (size_t)added : left - 1;
}

static const char *report_name(uint8_t status)
{
    static const char *const names[MSG_REPORT_STATUS_COUNT] = {"SUCCESS", "FAILED", "IN_DOUBT"};

    return status < MSG_REPORT_STATUS_COUNT ? names[status] : "?";
}

static const char *reason_name(uint8_t reason)
{
    static const char *const names[MSG_CANCEL_REASON_COUNT] = {"USER", "FAILED", "TIMEOUT", "GROUP",
                                                               "END"};

    return reason < MSG_CANCEL_REASON_COUNT ? names[reason] : "?";
}

static const char *origin_name(uint8_t origin)
{
    static const char *const names[MSG_CANCEL_ORIGIN_COUNT] = {"ENGINE", "RECEIVER", "FAILED"};

    return origin < MSG_CANCEL_ORIGIN_COUNT ? names[origin] : "?";
}

static void add_report(struct session_line *line, const struct msg_report *report)
{
    session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " slice %" PRIu32 "%s %s %s",
                     report->rid, report->tag, report->slice, report->is_last ? " last" : "",
                     report_name(report->status), kvf_status_name(report->code));
    if (report->status == MSG_REPORT_SUCCESS)
        session_line_add(line, " bytes %" PRIu64, report->bytes_written);
    if (report->aux_bytes > 0)
        session_line_add(line, " aux %u", (unsigned)report->aux_bytes);
    if (report->unanswered)
        session_line_add(line, " unanswered");
}

void session_line_msg(struct session_line *line, const struct msg *msg)
{
    session_line_add(line, "%s", msg_type_name(msg->header.type));
    switch (msg->header.type) {
    case MSG_REQUEST_DATA:
        session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " tokens %" PRIu32 "%s%s%s",
                         msg->u.request_data.rid, msg->u.request_data.tag,
                         msg->u.request_data.prompt_tokens,
                         msg->u.request_data.aux_wanted ? " aux" : "",
                         msg->u.request_data.flags & MSG_REQUEST_BROADCAST ? " broadcast" : "",
                         msg->u.request_data.flags & MSG_REQUEST_BOUNCE_ONLY ? " bounce" : "");
        break;
    case MSG_CANCEL_SESSION:
        session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " %s id %" PRIu32,
                         msg->u.cancel_session.rid, msg->u.cancel_session.tag,
                         reason_name(msg->u.cancel_session.reason),
                         msg->u.cancel_session.cancel_id);
        break;
    case MSG_SESSION_CANCELLED:
        session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " %s %s",
                         msg->u.session_cancelled.rid, msg->u.session_cancelled.tag,
                         origin_name(msg->u.session_cancelled.origin),
                         kvf_status_name(msg->u.session_cancelled.code));
        break;
    case MSG_REPORT:
        add_report(line, &msg->u.report);
        break;
    case MSG_SETTLED:
        session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " slice %" PRIu32 " %s",
                         msg->u.settled.rid, msg->u.settled.tag, msg->u.settled.slice,
                         kvf_status_name(msg->u.settled.code));
        break;
    case MSG_QUIESCED:
        session_line_add(line, " rid %" PRIu64 " tag %" PRIu32 " id %" PRIu32, msg->u.quiesced.rid,
                         msg->u.quiesced.tag, msg->u.quiesced.cancel_id);
        break;
    }
}

void session_line_log(struct session_line *line, const struct session_log *log)
{
    session_line_add(line, "log %s%s%s rid %" PRIu64, log->event, log->event[0] == '\0' ? "" : " ",
                     log->text, log->rid);
    if (log->code != KVF_OK)
        session_line_add(line, " %s", kvf_status_name(log->code));
    if (log->number != 0)
        session_line_add(line, " %" PRIu64, log->number);
    if (log->rank_count > 0)
        session_line_add(line, " ranks");
    for (uint32_t i = 0; i < log->rank_count && i < SESSION_LOG_RANKS; i++)
        session_line_add(line, " %" PRIu32, log->ranks[i]);
    if (log->rank_count > SESSION_LOG_RANKS)
        session_line_add(line, " and %" PRIu32 " more", log->rank_count - SESSION_LOG_RANKS);
}

void session_line_vote(struct session_line *line, uint64_t rid, unsigned vote,
                       const struct session_result *result)
{
    session_line_add(line, "vote rid %" PRIu64 " %s %s %s", rid, session_vote_name(vote),
                     session_outcome_name(result->outcome), kvf_status_name(result->status));
    if (result->payload_bytes > 0)
        session_line_add(line, " bytes %" PRIu64, result->payload_bytes);
    if (result->culprit != KVF_UNKNOWN)
        session_line_add(line, " culprit %" PRIu32, result->culprit);
}

const char *session_decision_name(enum session_decision decision)
{
    switch (decision) {
    case SESSION_DECIDED_OK:
        return "OK";
    case SESSION_DECIDED_FAILED:
        return "FAILED";
    case SESSION_DECIDED_CANCELLED:
        return "CANCELLED";
    case SESSION_DECIDED_RELEASED:
        return "RELEASED";
    }
    return "?";
}
