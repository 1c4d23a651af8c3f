/*
 * session_text.h - trace lines of what the two session machines have in common. Pure.
 *
 * The same input gives the same text: tests compare word for word. May include base and msg.h.
 */
#ifndef KVF_SESSION_TEXT_H
#define KVF_SESSION_TEXT_H

#include <stddef.h>

#include "check.h"
#include "msg.h"
#include "session.h"

/* A line under way; what does not fit is cut, always ended. */
struct session_line {
    char *text; /* borrows */
    size_t max_bytes;
    size_t len_bytes;
};

struct session_line session_line_make(char *text, size_t max_bytes);
void session_line_add(struct session_line *line, const char *format, ...) KVF_PRINTF(2, 3);

/* "REPORT rid 7 tag 1 slice 0 last SUCCESS OK bytes 4096" */
void session_line_msg(struct session_line *line, const struct msg *msg);
/* "log W19 writers silent rid 7 E_TIMEOUT 12 ranks 3 4" */
void session_line_log(struct session_line *line, const struct session_log *log);
/* "vote rid 7 DONE+DRAINED OK OK bytes 4096" */
void session_line_vote(struct session_line *line, uint64_t rid, unsigned vote,
                       const struct session_result *result);
const char *session_decision_name(enum session_decision decision);

#endif /* KVF_SESSION_TEXT_H */
