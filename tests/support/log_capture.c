/* log_capture.c - see log_capture.h. */
#include "log_capture.h"

#include <stdio.h>
#include <string.h>

#include "testing.h"

static void log_capture_sink(void *self, enum kvf_log_level level, const char *event,
                             const char *text)
{
    struct log_capture *capture = self;

    (void)pthread_mutex_lock(&capture->lock);
    if (capture->count < LOG_CAPTURE_LINES_MAX) {
        struct log_capture_line *line = &capture->lines[capture->count];

        line->level = level;
        line->expected = false;
        (void)snprintf(line->event, sizeof(line->event), "%s", event);
        (void)snprintf(line->text, sizeof(line->text), "%s", text);
    }
    capture->count++;
    (void)pthread_mutex_unlock(&capture->lock);
}

void log_capture_init(struct log_capture *capture)
{
    memset(capture, 0, sizeof(*capture));
    (void)pthread_mutex_init(&capture->lock, NULL);
    capture->logger.level = KVF_LOG_DEBUG;
    capture->logger.sink = log_capture_sink;
    capture->logger.sink_self = capture;
}

static uint32_t log_capture_kept(const struct log_capture *capture)
{
    return capture->count < LOG_CAPTURE_LINES_MAX ? capture->count : LOG_CAPTURE_LINES_MAX;
}

void log_capture_expect(struct log_capture *capture, const char *event, const char *part,
                        uint32_t times)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < log_capture_kept(capture); i++) {
        struct log_capture_line *line = &capture->lines[i];

        if (line->level > KVF_LOG_WARN || strcmp(line->event, event) != 0 ||
            strstr(line->text, part) == NULL)
            continue;
        line->expected = true;
        found++;
    }
    if (found != times)
        fail_msg("\"%s %s\" was logged %u times, not %u", event, part, found, times);
}

void log_capture_fini(struct log_capture *capture)
{
    for (uint32_t i = 0; i < log_capture_kept(capture); i++) {
        const struct log_capture_line *line = &capture->lines[i];

        if (line->level <= KVF_LOG_WARN && !line->expected)
            fail_msg("unexpected line: %s %s: %s", log_level_name(line->level), line->event,
                     line->text);
    }
    assert_true(capture->count <= LOG_CAPTURE_LINES_MAX);
    (void)pthread_mutex_destroy(&capture->lock);
}
