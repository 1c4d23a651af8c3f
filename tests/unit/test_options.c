/* Unit tests of launch/options.c: command lines by table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

struct values {
    bool flag;
    uint64_t whole;
    double number;
    const char *text;
    const char *choice;
};

static const struct option_row rows[] = {
    {"flag", OPTION_FLAG, offsetof(struct values, flag), NULL, 0, 0, NULL, NULL, "a flag"},
    {"requests", OPTION_WHOLE, offsetof(struct values, whole), "7", 1, 100, NULL, "N", "a whole"},
    {"scale", OPTION_NUMBER, offsetof(struct values, number), "0.5", 0, 9, NULL, "X", "a number"},
    {"text", OPTION_TEXT, offsetof(struct values, text), NULL, 0, 0, NULL, "TEXT", "a text"},
    {"path", OPTION_CHOICE, offsetof(struct values, choice), "auto", 0, 0, "auto|map|direct", NULL,
     "a choice"},
    {0},
};

static bool parse(int argc, const char *const *argv, struct values *values, char *text)
{
    char *words[8];

    for (int i = 0; i < argc; i++) {
        words[i] = (char *)(uintptr_t)argv[i];
    }
    text[0] = '\0';
    return options_parse(rows, argc, words, values, text);
}

static void options_take_defaults_when_absent(void **state)
{
    char text[OPTIONS_TEXT_BYTES];
    struct values values;

    (void)state;
    assert_true(parse(0, NULL, &values, text));
    assert_false(values.flag);
    assert_int_equal(values.whole, 7);
    assert_true(values.number == 0.5);
    assert_null(values.text);
    assert_string_equal(values.choice, "auto");
}

static void options_take_both_forms(void **state)
{
    const char *argv[] = {"--flag", "--requests=9", "--scale", "2", "--text", "--x", "--path=map"};
    char text[OPTIONS_TEXT_BYTES];
    struct values values;

    (void)state;
    assert_true(parse(7, argv, &values, text));
    assert_true(values.flag);
    assert_int_equal(values.whole, 9);
    assert_true(values.number == 2);
    assert_string_equal(values.text, "--x");
    assert_string_equal(values.choice, "map");
}

static void options_name_what_is_wrong(void **state)
{
    static const struct {
        const char *argv[2];
        int argc;
        const char *says;
    } wrong[] = {
        {{"--reqests", "3"}, 2, "unknown option --reqests; the nearest is --requests"},
        {{"--zzzzzz"}, 1, "unknown option --zzzzzz; see --help"},
        {{"word"}, 1, "\"word\" is not an option"},
        {{"--"}, 1, "\"--\" is not an option"},
        {{"--requests"}, 1, "--requests has no value; want a whole number from 1 to 100"},
        {{"--requests", "0"}, 2, "--requests is \"0\"; want a whole number from 1 to 100"},
        {{"--requests", "101"}, 2, "--requests is \"101\""},
        {{"--requests", "12x"}, 2, "--requests is \"12x\""},
        {{"--requests", "-1"}, 2, "--requests is \"-1\""},
        {{"--requests", " 1"}, 2, "--requests is \" 1\""},
        {{"--requests", "1e1"}, 2, "--requests is \"1e1\""},
        {{"--requests", "99999999999999999999999"}, 2, "--requests is \"9999"},
        {{"--requests="}, 1, "--requests is \"\""},
        {{"--scale", "-1"}, 2, "--scale is \"-1\"; want a number from 0 to 9"},
        {{"--scale", "nan"}, 2, "--scale is \"nan\""},
        {{"--scale", "1.2.3"}, 2, "--scale is \"1.2.3\""},
        {{"--scale", "."}, 2, "--scale is \".\""},
        {{"--scale", "10"}, 2, "--scale is \"10\""},
        {{"--path", "ma"}, 2, "--path is \"ma\"; want one of auto|map|direct"},
        {{"--path", "auto|map"}, 2, "--path is \"auto|map\""},
        {{"--flag=1"}, 1, "--flag takes no value"},
        {{"--text="}, 1, "--text is \"\""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[OPTIONS_TEXT_BYTES];
        struct values values;

        if (parse(wrong[i].argc, wrong[i].argv, &values, text) ||
            strstr(text, wrong[i].says) == NULL) {
            fail_msg("%s: \"%s\", want \"%s\"", wrong[i].argv[0], text, wrong[i].says);
        }
    }
}

static void nearest_name_is_near(void **state)
{
    static const char *const names[] = {"topology", "trace", "requests"};

    (void)state;
    assert_string_equal(options_nearest("topologie", names, 3), "topology");
    assert_string_equal(options_nearest("trase", names, 3), "trace");
    assert_null(options_nearest("bench", names, 3));
    assert_null(options_nearest("", names, 3));
    assert_null(options_nearest("x", NULL, 0));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_take_defaults_when_absent),
        cmocka_unit_test(options_take_both_forms),
        cmocka_unit_test(options_name_what_is_wrong),
        cmocka_unit_test(nearest_name_is_near),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
