/*
 * log.h - one line a call, to the engine's sink or to standard error.
 *
 * Form on standard error: `kvferry[ctx0/3] warn W30: peer gen1/0 lost: endpoint error`. One write a
 * line, no allocation, any thread. Whoever first knows an error logs it; callers pass it on in
 * silence. Machines do not log: they return what to log.
 *
 * May include check.h and the public headers.
 */
#ifndef KVF_LOG_H
#define KVF_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "check.h"

#define LOG_NAME_BYTES (KVF_NAME_BYTES + 16) /* with the final 0; longer names are cut */
#define LOG_TEXT_BYTES 1024                  /* with the final 0; longer texts end in "..." */

/* Where lines go. Set up before other threads use it, and not changed afterwards. */
struct logger {
    enum kvf_log_level level; /* lines beyond it are not made */
    kvf_log_fn sink;          /* NULL = standard error */
    void *sink_self;
    char name[LOG_NAME_BYTES]; /* rank, "ctx0/3"; "" before it is known */
};

/* Level info, standard error, no name. */
#define LOGGER_INIT \
    { \
        .level = KVF_LOG_INFO \
    }

/* printf-like; an overlong name is cut. */
void log_name(struct logger *logger, const char *format, ...) KVF_PRINTF(2, 3);

/*
 * `event` is the stable id ("W30") or "". Control bytes in the text become '?', so that a peer's
 * text never makes a second line. `logger` NULL = standard error, level info.
 */
void log_write(const struct logger *logger, enum kvf_log_level level, const char *event,
               const char *format, ...) KVF_PRINTF(4, 5);

#define log_error(logger, event, ...) log_write(logger, KVF_LOG_ERROR, event, __VA_ARGS__)
#define log_warn(logger, event, ...) log_write(logger, KVF_LOG_WARN, event, __VA_ARGS__)
#define log_info(logger, ...) log_write(logger, KVF_LOG_INFO, "", __VA_ARGS__)
#define log_debug(logger, ...) log_write(logger, KVF_LOG_DEBUG, "", __VA_ARGS__)

/* "error", "warn", "info", "debug". */
const char *log_level_name(enum kvf_log_level level);

/*
 * Up to 64 "once" lines of one object, normally a peer. Zeroed = none was logged. Any thread.
 *   if (log_once(&peer->once, ONCE_BAD_FRAME)) log_warn(...);
 */
struct log_once {
    _Atomic uint64_t taken; /* bit n: event n was logged */
};

/* True the first time that `event` (0..63) is asked for. */
bool log_once(struct log_once *once, unsigned event);

/* Forgets all: a new life of the peer may warn again. */
void log_once_reset(struct log_once *once);

/* At most one line an interval. Zeroed = none was logged. One thread. */
struct log_rate {
    uint64_t next_ns;    /* not before */
    uint64_t suppressed; /* lines swallowed since the last one */
};

/* True when a line may be written now; `suppressed_out` = how many were swallowed before it. */
bool log_rate(struct log_rate *rate, uint64_t now_ns, uint64_t interval_ns,
              uint64_t *suppressed_out);

#endif /* KVF_LOG_H */
