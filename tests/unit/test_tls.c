/* test_tls.c - which transports each context may take under every form of UCX_TLS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "xfer/tls.h"

#define COMPONENTS "component 0 : self\ncomponent 1 : tcp\ncomponent 2 : sysv\ncomponent 3 : cma\n"

struct tls_case {
    const char *user;
    const char *near, *far, *control; /* NULL = refused */
};

static void check_list(const struct tls_facts *facts, enum tls_context context, const char *want)
{
    char list[TLS_LIST_BYTES], reason[256] = "";
    enum kvf_status status = tls_list(facts, context, list, reason, sizeof(reason));

    if (want != NULL) {
        assert_int_equal(status, KVF_OK);
        assert_string_equal(list, want);
        return;
    }
    assert_int_equal(status, KVF_E_NO_TRANSPORT);
    assert_non_null(strstr(reason, tls_context_name(context)));
    assert_non_null(strstr(reason, facts->user));
}

static void user_list_is_the_outer_limit(void **state)
{
    static const struct tls_case cases[] = {
        {"", "sysv", "^self,sm", "^self,posix,cma"},
        {"all", "sysv", "^self,sm", "^self,posix,cma"},
        {"^cma", "sysv", "^self,sm,cma", "^self,posix,cma"},
        {"^sysv", "posix", "^self,sm,sysv", "^self,sysv,cma"},
        {"^sm", NULL, "^self,sm", NULL},
        {"^tcp", "sysv", "^self,sm,tcp", "^self,posix,cma,tcp"},
        {"tcp,sysv", "sysv", "tcp", "tcp,sysv"},
        {"tcp,posix", "posix", "tcp", "tcp,posix"},
        {"tcp,sm", "sysv", "tcp", "tcp,sysv"},
        {"rc_x, ud , shm,self,cuda", "sysv", "rc_x,ud", "rc_x,ud,sysv"},
        {"\\rc,ud:aux,sysv", "sysv", "rc,ud", "rc,ud,sysv"},
        {"tcp", NULL, "tcp", NULL},
        {"sysv", "sysv", NULL, NULL},
        {"cma,tcp", NULL, "tcp", NULL},
        {"cuda_ipc", NULL, NULL, NULL},
        {"self", NULL, NULL, NULL},
        {"nosuch", NULL, "nosuch", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const struct tls_facts facts = {
            .user = cases[i].user, .present = COMPONENTS, .sysv = true, .cma = true};
        check_list(&facts, TLS_NEAR, cases[i].near);
        check_list(&facts, TLS_FAR, cases[i].far);
        check_list(&facts, TLS_CONTROL, cases[i].control);
    }
}

static void absent_system_v_memory_leaves_posix(void **state)
{
    const struct tls_facts facts = {.user = NULL, .present = NULL, .sysv = false};
    const struct tls_facts limited = {.user = "sysv,tcp", .present = NULL, .sysv = false};

    (void)state;
    check_list(&facts, TLS_NEAR, "posix");
    check_list(&facts, TLS_CONTROL, "^self,sysv");
    check_list(&limited, TLS_NEAR, NULL);
}

static void denied_cross_memory_attach_is_not_named(void **state)
{
    const struct tls_facts facts = {.user = "", .present = COMPONENTS, .sysv = true};

    (void)state;
    check_list(&facts, TLS_CONTROL, "^self,posix");
}

static void devices_are_excluded_only_where_ucx_has_them(void **state)
{
    const struct tls_facts facts = {
        .user = "", .present = COMPONENTS "component 5 : cuda_cpy\n", .sysv = true, .cma = true};

    (void)state;
    check_list(&facts, TLS_FAR, "^self,sm,cuda");
    check_list(&facts, TLS_CONTROL, "^self,posix,cma,cuda");
    check_list(&facts, TLS_NEAR, "sysv");
}

static void list_too_long_is_refused(void **state)
{
    char user[4 * TLS_LIST_BYTES], list[TLS_LIST_BYTES], reason[256];
    const struct tls_facts facts = {.user = user, .sysv = true};

    (void)state;
    user[0] = '^';
    for (size_t i = 1; i < sizeof(user); ++i) {
        user[i] = (char)('a' + i / 26 % 26);
        user[i] = i % 9 == 0 ? ',' : (char)(user[i] + (i * i) % 3);
    }
    user[sizeof(user) - 1] = '\0';
    assert_int_equal(tls_list(&facts, TLS_FAR, list, reason, sizeof(reason)), KVF_E_TOO_LARGE);
}

static void words_are_bare(void **state)
{
    char word[8];

    (void)state;
    assert_true(tls_word("^a, \\b:aux ,,verylongword", 0, word, sizeof(word)));
    assert_string_equal(word, "a");
    assert_true(tls_word("^a, \\b:aux ,,verylongword", 1, word, sizeof(word)));
    assert_string_equal(word, "b");
    assert_true(tls_word("^a, \\b:aux ,,verylongword", 2, word, sizeof(word)));
    assert_string_equal(word, "");
    assert_true(tls_word("^a, \\b:aux ,,verylongword", 3, word, sizeof(word)));
    assert_string_equal(word, "verylon");
    assert_false(tls_word("^a, \\b:aux ,,verylongword", 4, word, sizeof(word)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(user_list_is_the_outer_limit),
        cmocka_unit_test(absent_system_v_memory_leaves_posix),
        cmocka_unit_test(denied_cross_memory_attach_is_not_named),
        cmocka_unit_test(devices_are_excluded_only_where_ucx_has_them),
        cmocka_unit_test(list_too_long_is_refused),
        cmocka_unit_test(words_are_bare),
    };

    return cmocka_run_group_tests_name("tls", tests, NULL, NULL);
}
