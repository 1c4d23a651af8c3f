/*
 * test_geometry_cases.c - geometry dumps with answers that were worked out without this code: every
 * NAME.json in a folder against NAME.expect.json. The folder is $GEOMETRY_CASES, or the argument;
 * where it is not there the test is skipped.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry_answer.h"
#include "skip.h"
#include "testing.h"

enum { CASES_MAX = 512, PATH_BYTES = 1024 };

static const char *folder;
static char names[CASES_MAX][64];
static int name_count;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Every NAME.json that has a NAME.expect.json is named without its ending. */
static void list_cases(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL && name_count < CASES_MAX) {
        size_t length = strlen(entry->d_name);
        const char *ending = ".expect.json";

        if (length > strlen(ending) && length - strlen(ending) < sizeof(names[0]) &&
            strcmp(entry->d_name + length - strlen(ending), ending) == 0) {
            snprintf(names[name_count++], sizeof(names[0]), "%.*s", (int)(length - strlen(ending)),
                     entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    qsort(names, (size_t)name_count, sizeof(names[0]), by_name);
}

static void print_json(const char *what, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);

    print_message("  %s: %s\n", what, text == NULL ? "?" : text);
    free(text);
}

/* The answer to a dump as JSON, a refusal as {"error": code}. */
static json_t *answer_of(const struct geometry_dump *dump)
{
    struct geo_text text = {{0}};
    json_t *json = NULL;
    enum kvf_status status = geometry_answer(dump, dump->receiver, &json, &text);

    if (status == KVF_OK) {
        return json;
    }
    assert_true(text.s[0] != '\0');
    return json_pack("{s:s}", "error", kvf_status_name(status));
}

/* True when the answer is the expected one; a refusal's text is free. */
static bool same_answer(const json_t *got, const json_t *wanted)
{
    const json_t *code = json_object_get(wanted, "error");

    return code != NULL ? json_equal(json_object_get(got, "error"), code) : json_equal(got, wanted);
}

static bool try_case(const char *name)
{
    char path[PATH_BYTES];
    struct geometry_dump *dump = NULL;
    struct geometry_dump *again = NULL;
    struct geo_text text = {{0}};
    json_t *wanted, *got, *written;
    bool right;

    snprintf(path, sizeof(path), "%s/%s.expect.json", folder, name);
    wanted = json_load_file(path, 0, NULL);
    assert_non_null(wanted);
    snprintf(path, sizeof(path), "%s/%s.json", folder, name);
    if (geometry_dump_load(path, &dump, &text) != KVF_OK) {
        fail_msg("%s: %s", name, text.s);
    }
    got = answer_of(dump);
    right = same_answer(got, wanted);
    if (!right) {
        print_message("%s differs\n", name);
        print_json("got", got);
        print_json("wanted", wanted);
    }
    json_decref(got);
    /* A dump that was written again means the same. */
    written = geometry_dump_write(dump);
    assert_int_equal(geometry_dump_read(written, &again, &text), KVF_OK);
    got = answer_of(again);
    assert_true(!right || same_answer(got, wanted));
    json_decref(got);
    json_decref(written);
    json_decref(wanted);
    geometry_dump_close(again);
    geometry_dump_close(dump);
    return right;
}

static void every_case_has_its_answer(void **state)
{
    int wrong = 0;

    (void)state;
    assert_true(name_count > 0);
    for (int i = 0; i < name_count; i++) {
        wrong += !try_case(names[i]);
    }
    print_message("%d cases, %d wrong\n", name_count, wrong);
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_has_its_answer),
    };

    folder = argc > 1 ? argv[1] : getenv("GEOMETRY_CASES");
    if (folder != NULL) {
        list_cases();
    }
    if (name_count == 0) {
        test_skip("no folder of geometry cases (GEOMETRY_CASES)");
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
