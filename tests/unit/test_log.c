/* test_log.c - log lines: form, level, sink, threads, limits of rate. */
#include "testing.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "log_capture.h"

/* Runs `write_lines` with standard error in a pipe; what came out lies in `text_out`. */
static void capture_stderr(void (*write_lines)(void), char *text_out, size_t text_bytes)
{
    int saved = dup(STDERR_FILENO);
    int ends[2];
    size_t len = 0;
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    write_lines();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    (void)close(ends[1]);
    while ((got = read(ends[0], text_out + len, text_bytes - 1 - len)) > 0)
        len += (size_t)got;
    text_out[len] = 0;
    (void)close(ends[0]);
}

static void write_some(void)
{
    struct logger logger = LOGGER_INIT;

    log_name(&logger, "%s/%d", "ctx0", 3);
    log_warn(&logger, "W30", "peer %s lost", "gen1/0");
    log_info(&logger, "no event");
    log_debug(&logger, "beyond the level");
    log_error(NULL, "", "no logger");
}

static void log_line_has_rank_level_and_event(void **state)
{
    char text[512];

    (void)state;
    capture_stderr(write_some, text, sizeof(text));
    assert_string_equal(text, "kvferry[ctx0/3] warn W30: peer gen1/0 lost\n"
                              "kvferry[ctx0/3] info: no event\n"
                              "kvferry error: no logger\n");
}

static void write_long(void)
{
    struct logger logger = LOGGER_INIT;
    char text[3 * LOG_TEXT_BYTES];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = 0;
    log_name(&logger, "%s", text);
    log_warn(&logger, "W99", "%s", text);
}

static void log_line_that_is_too_long_is_cut_and_says_so(void **state)
{
    char text[4 * LOG_TEXT_BYTES];

    (void)state;
    capture_stderr(write_long, text, sizeof(text));
    assert_true(strlen(text) < LOG_TEXT_BYTES + LOG_NAME_BYTES + 32);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_string_equal(strchr(text, '\n') - 3, "...\n");
}

static void log_text_of_a_peer_makes_no_second_line(void **state)
{
    struct log_capture capture;

    (void)state;
    log_capture_init(&capture);
    log_warn(&capture.logger, "W03", "name is \"%s\"", "a\nkvferry error: \x1b[31m\x7f");
    assert_string_equal(capture.lines[0].text, "name is \"a?kvferry error: ?[31m?\"");
    log_capture_expect(&capture, "W03", "name is", 1);
    log_capture_fini(&capture);
}

static void log_level_holds_back_and_errno_stays(void **state)
{
    struct log_capture capture;

    (void)state;
    log_capture_init(&capture);
    for (int level = KVF_LOG_ERROR; level <= KVF_LOG_DEBUG; level++) {
        capture.count = 0;
        capture.logger.level = (enum kvf_log_level)level;
        errno = ENOTDIR;
        for (int at = KVF_LOG_ERROR; at <= KVF_LOG_DEBUG; at++)
            log_write(&capture.logger, (enum kvf_log_level)at, "", "%s", "");
        assert_int_equal(errno, ENOTDIR);
        assert_int_equal(capture.count, level + 1);
        for (int at = KVF_LOG_ERROR; at <= level; at++)
            assert_int_equal(capture.lines[at].level, at);
    }
    log_capture_expect(&capture, "", "", 2);
    log_capture_fini(&capture);
}

static bool capture_accepts(struct log_capture *capture)
{
    bool clean = true;

    for (uint32_t i = 0; i < capture->count; i++)
        clean = clean && (capture->lines[i].level > KVF_LOG_WARN || capture->lines[i].expected);
    return clean;
}

static void log_capture_sees_an_unexpected_warning(void **state)
{
    struct log_capture capture;

    (void)state;
    log_capture_init(&capture);
    log_warn(&capture.logger, "W30", "lost");
    assert_false(capture_accepts(&capture));
    log_capture_expect(&capture, "W30", "lost", 1);
    assert_true(capture_accepts(&capture));
    log_capture_fini(&capture);
}

#define THREADS 4
#define LINES_PER_THREAD 50

static void *write_from_thread(void *argument)
{
    const struct logger *logger = argument;

    for (unsigned i = 0; i < LINES_PER_THREAD; i++)
        log_info(logger, "abcdefghijklmnopqrstuvwxyz");
    return NULL;
}

static void write_from_threads(void)
{
    struct logger logger = LOGGER_INIT;
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_from_thread, &logger), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void log_lines_of_threads_do_not_mix(void **state)
{
    static const char line[] = "kvferry info: abcdefghijklmnopqrstuvwxyz\n";
    static char text[(sizeof(line) + 1) * THREADS * LINES_PER_THREAD];
    const char *at = text;

    (void)state;
    capture_stderr(write_from_threads, text, sizeof(text));
    for (unsigned i = 0; i < THREADS * LINES_PER_THREAD; i++, at += strlen(line))
        assert_memory_equal(at, line, strlen(line));
    assert_int_equal(*at, 0);
}

static void log_once_is_true_once_an_event(void **state)
{
    struct log_once once = {0};

    (void)state;
    for (unsigned event = 0; event < 64; event++)
        assert_true(log_once(&once, event));
    for (unsigned event = 0; event < 64; event++)
        assert_false(log_once(&once, event));
    log_once_reset(&once);
    assert_true(log_once(&once, 63));
    assert_true(log_once(&once, 0));
}

static void log_rate_lets_one_through_an_interval_and_counts_the_rest(void **state)
{
    struct log_rate rate = {0};
    uint64_t suppressed = 99;

    (void)state;
    assert_true(log_rate(&rate, 1000, 100, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_false(log_rate(&rate, 1001, 100, &suppressed));
    assert_false(log_rate(&rate, 1099, 100, &suppressed));
    assert_true(log_rate(&rate, 1100, 100, &suppressed));
    assert_int_equal(suppressed, 2);
    assert_true(log_rate(&rate, 5000, 100, &suppressed));
    assert_int_equal(suppressed, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(log_line_has_rank_level_and_event),
        cmocka_unit_test(log_line_that_is_too_long_is_cut_and_says_so),
        cmocka_unit_test(log_text_of_a_peer_makes_no_second_line),
        cmocka_unit_test(log_level_holds_back_and_errno_stays),
        cmocka_unit_test(log_capture_sees_an_unexpected_warning),
        cmocka_unit_test(log_lines_of_threads_do_not_mix),
        cmocka_unit_test(log_once_is_true_once_an_event),
        cmocka_unit_test(log_rate_lets_one_through_an_interval_and_counts_the_rest),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
