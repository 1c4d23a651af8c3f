/*
 * log_capture.h - a logger whose lines a test can look at, and that fails the test on a warning or
 * error which nobody expected, or on an expected one that did not come.
 */
#ifndef KVF_TEST_LOG_CAPTURE_H
#define KVF_TEST_LOG_CAPTURE_H

#include <pthread.h>
#include <stdint.h>

#include "log.h"

#define LOG_CAPTURE_LINES_MAX 256

struct log_capture_line {
    enum kvf_log_level level;
    char event[8];
    char text[LOG_TEXT_BYTES];
    bool expected;
};

/* Any thread may log; the calls below are for the test's thread. */
struct log_capture {
    struct logger logger; /* give its address to the code under test */
    pthread_mutex_t lock;
    uint32_t count; /* lines beyond the limit are counted, not kept */
    struct log_capture_line lines[LOG_CAPTURE_LINES_MAX];
};

/* Level debug, so that all lines are seen. The struct must not move afterwards. */
void log_capture_init(struct log_capture *capture);

/*
 * Fails the test unless exactly `times` warnings or errors with this event, or with "" this part of
 * their text, have come since the start; they are then expected.
 */
void log_capture_expect(struct log_capture *capture, const char *event, const char *part,
                        uint32_t times);

/* Fails the test when a warning or error is left that was not expected. */
void log_capture_fini(struct log_capture *capture);

#endif /* KVF_TEST_LOG_CAPTURE_H */
