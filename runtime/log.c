/* log.c - see log.h. */
#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOG_LINE_BYTES (LOG_TEXT_BYTES + LOG_NAME_BYTES + 64)

static const struct logger log_fallback = LOGGER_INIT;

const char *log_level_name(enum kvf_log_level level)
{
    switch (level) {
    case KVF_LOG_ERROR:
        return "error";
    case KVF_LOG_WARN:
        return "warn";
    case KVF_LOG_INFO:
        return "info";
    case KVF_LOG_DEBUG:
        return "debug";
    }
    return "unknown";
}

void log_name(struct logger *logger, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(logger->name, sizeof(logger->name), format, args);
    va_end(args);
}

/* One line only: control bytes, line ends among them, become '?'. Bytes >= 128 stay (UTF-8). */
static void log_clean(char *text)
{
    for (; *text != 0; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

static void log_stderr(const struct logger *logger, enum kvf_log_level level, const char *event,
                       const char *text)
{
    char line[LOG_LINE_BYTES];
    const char *space = event[0] == 0 ? "" : " ";
    int len;
    ssize_t written;

    if (logger->name[0] == 0)
        len = snprintf(line, sizeof(line), "kvferry %s%s%s: %s\n", log_level_name(level), space,
                       event, text);
    else
        len = snprintf(line, sizeof(line), "kvferry[%s] %s%s%s: %s\n", logger->name,
                       log_level_name(level), space, event, text);
    if (len < 0)
        return;
    if ((size_t)len >= sizeof(line)) {
        len = sizeof(line) - 1;
        line[len - 1] = '\n';
    }
    do
        written = write(STDERR_FILENO, line, (size_t)len);
    while (written < 0 && errno == EINTR);
}

void log_write(const struct logger *logger, enum kvf_log_level level, const char *event,
               const char *format, ...)
{
    char text[LOG_TEXT_BYTES];
    int errno_before = errno;
    va_list args;
    int len;

    if (logger == NULL)
        logger = &log_fallback;
    if (level > logger->level)
        return;
    va_start(args, format);
    len = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (len < 0)
        text[0] = 0;
    else if ((size_t)len >= sizeof(text))
        memcpy(text + sizeof(text) - 4, "...", 4);
    log_clean(text);
    if (logger->sink != NULL)
        logger->sink(logger->sink_self, level, event, text);
    else
        log_stderr(logger, level, event, text);
    errno = errno_before;
}

bool log_once(struct log_once *once, unsigned event)
{
    uint64_t bit;

    KVF_REQUIRE(event < 64);
    bit = UINT64_C(1) << event;
    return (atomic_fetch_or_explicit(&once->taken, bit, memory_order_relaxed) & bit) == 0;
}

void log_once_reset(struct log_once *once)
{
    atomic_store_explicit(&once->taken, 0, memory_order_relaxed);
}

bool log_rate(struct log_rate *rate, uint64_t now_ns, uint64_t interval_ns,
              uint64_t *suppressed_out)
{
    if (now_ns < rate->next_ns) {
        rate->suppressed++;
        return false;
    }
    *suppressed_out = rate->suppressed;
    rate->suppressed = 0;
    rate->next_ns = now_ns + interval_ns;
    return true;
}
