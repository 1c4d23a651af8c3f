/* Unit tests of launch/json_file.c: can a file of figures be written? */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "json_file.h"
#include "scratch.h"

#define TEXT_BYTES 400

static bool fits(const char *rank, const char *path, char *text)
{
    text[0] = '\0';
    if (rank == NULL) {
        unsetenv("OMPI_COMM_WORLD_RANK");
    } else {
        setenv("OMPI_COMM_WORLD_RANK", rank, 1);
    }
    return json_file_fits("--json", path, text, TEXT_BYTES);
}

static void only_the_rank_that_writes_looks(void **state)
{
    char text[TEXT_BYTES];

    (void)state;
    assert_false(fits(NULL, "/nowhere/x.json", text));
    assert_string_equal(text, "--json /nowhere/x.json: No such file or directory");
    assert_false(fits("0", "/nowhere/x.json", text));
    assert_true(fits("1", "/nowhere/x.json", text));
    assert_true(fits("0", NULL, text));
}

static void a_look_leaves_the_file_as_it_was(void **state)
{
    char path[SCRATCH_PATH_BYTES], text[TEXT_BYTES], letter[4] = "";
    FILE *file;

    (void)state;
    scratch_write(".json", "{}", path);
    assert_true(fits(NULL, path, text));
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(letter, sizeof(letter), file));
    fclose(file);
    assert_string_equal(letter, "{}");
    scratch_remove(path);
    assert_true(fits(NULL, path, text));
    assert_int_equal(access(path, F_OK), -1);
}

static void a_pipe_may_get_its_reader_later(void **state)
{
    char path[SCRATCH_PATH_BYTES], text[TEXT_BYTES];

    (void)state;
    scratch_write(".json", "", path);
    scratch_remove(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_true(fits(NULL, path, text));
    scratch_remove(path);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_rank_that_writes_looks),
        cmocka_unit_test(a_look_leaves_the_file_as_it_was),
        cmocka_unit_test(a_pipe_may_get_its_reader_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
