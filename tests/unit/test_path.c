/* test_path.c - the ladder, over all facts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "xfer/path.h"

#define BIT(path) (1u << (path))

/* Calls `check` for every combination of facts with bytes to move. */
static void every_fact(void (*check)(const struct path_facts *facts, enum kvf_status status,
                                     enum kvf_path path, enum path_reason reason))
{
    for (uint32_t bits = 0; bits < 8; ++bits) {
        for (uint32_t allowed = 0; allowed < BIT(KVF_PATH_COUNT); ++allowed) {
            for (int forced = 0; forced < KVF_PATH_COUNT; ++forced) {
                const struct path_facts facts = {.near = (bits & 1) != 0,
                                                 .all_mapped = (bits & 2) != 0,
                                                 .all_reachable = (bits & 4) != 0,
                                                 .allowed = allowed,
                                                 .forced = (enum kvf_path)forced};
                enum kvf_path path = (enum kvf_path)77;
                enum path_reason reason = (enum path_reason)77;
                enum kvf_status status = path_choose(&facts, 1, &path, &reason);
                check(&facts, status, path, reason);
            }
        }
    }
}

static void check_sound(const struct path_facts *facts, enum kvf_status status, enum kvf_path path,
                        enum path_reason reason)
{
    assert_true(reason <= PATH_REASON_NONE_LEFT);
    assert_true(status == KVF_OK || status == KVF_E_NO_PATH);
    assert_int_equal(status == KVF_OK, path == KVF_PATH_MAPPED || path == KVF_PATH_DIRECT);
    if (status != KVF_OK) {
        assert_int_equal(path, KVF_PATH_NONE);
        return;
    }
    assert_true((facts->allowed & BIT(path)) != 0);
    assert_true(path != KVF_PATH_MAPPED || facts->all_mapped);
    assert_true(path != KVF_PATH_DIRECT || facts->all_reachable);
    assert_true(facts->forced == KVF_PATH_NONE || facts->forced == path);
}

static void rung_taken_is_always_allowed_and_able(void **state)
{
    (void)state;
    every_fact(check_sound);
}

static void check_complete(const struct path_facts *facts, enum kvf_status status,
                           enum kvf_path path, enum path_reason reason)
{
    bool mapped = facts->all_mapped && (facts->allowed & BIT(KVF_PATH_MAPPED)) != 0;
    bool direct = facts->all_reachable && (facts->allowed & BIT(KVF_PATH_DIRECT)) != 0;

    if (facts->forced == KVF_PATH_NONE) {
        assert_int_equal(status == KVF_OK, mapped || direct);
        assert_true(!mapped || (path == KVF_PATH_MAPPED && reason == PATH_REASON_MAPPED));
        assert_true(mapped || !direct || path == KVF_PATH_DIRECT);
    } else if (facts->forced == KVF_PATH_MAPPED) {
        assert_int_equal(status == KVF_OK, mapped);
    } else if (facts->forced == KVF_PATH_DIRECT) {
        assert_int_equal(status == KVF_OK, direct);
    } else {
        assert_int_equal(status, KVF_E_NO_PATH);
        assert_int_equal(reason, PATH_REASON_NOT_BUILT);
    }
}

static void highest_rung_that_holds_is_taken(void **state)
{
    (void)state;
    every_fact(check_complete);
}

static void check_reason(const struct path_facts *facts, enum kvf_status status, enum kvf_path path,
                         enum path_reason reason)
{
    (void)path;
    switch (reason) {
    case PATH_REASON_NO_BYTES:
        fail();
        break;
    case PATH_REASON_MAPPED:
        assert_true(status == KVF_OK && facts->all_mapped);
        break;
    case PATH_REASON_FORCED:
        assert_true(status == KVF_OK && facts->forced != KVF_PATH_NONE);
        break;
    case PATH_REASON_FAR:
        assert_true(status == KVF_OK && !facts->near && !facts->all_mapped);
        break;
    case PATH_REASON_NOT_SHARED:
        assert_true(status == KVF_OK && facts->near && !facts->all_mapped);
        break;
    case PATH_REASON_FORBIDDEN:
        assert_true(status == KVF_OK && facts->all_mapped);
        assert_int_equal(facts->allowed & BIT(KVF_PATH_MAPPED), 0);
        break;
    case PATH_REASON_NOT_BUILT:
        assert_true(status != KVF_OK && facts->forced >= KVF_PATH_BOUNCE);
        break;
    case PATH_REASON_NOT_MAPPED:
        assert_true(status != KVF_OK && facts->forced == KVF_PATH_MAPPED && !facts->all_mapped);
        break;
    case PATH_REASON_NO_RKEY:
        assert_true(status != KVF_OK && !facts->all_reachable);
        break;
    case PATH_REASON_NONE_LEFT:
        assert_true(status != KVF_OK);
        break;
    }
}

static void reason_is_true_of_the_facts(void **state)
{
    (void)state;
    every_fact(check_reason);
}

static void no_bytes_take_no_rung_whatever_the_facts(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 256; ++bits) {
        const struct path_facts facts = {.all_mapped = (bits & 1) != 0,
                                         .allowed = bits >> 3,
                                         .forced = (enum kvf_path)(bits % KVF_PATH_COUNT)};
        enum kvf_path path;
        enum path_reason reason;
        assert_int_equal(path_choose(&facts, 0, &path, &reason), KVF_OK);
        assert_int_equal(path, KVF_PATH_NONE);
        assert_int_equal(reason, PATH_REASON_NO_BYTES);
    }
}

static void every_reason_and_path_has_a_text_of_its_own(void **state)
{
    (void)state;
    for (int a = 0; a <= PATH_REASON_NONE_LEFT; ++a) {
        assert_true(strlen(path_reason_text((enum path_reason)a)) > 0);
        for (int b = 0; b < a; ++b) {
            assert_string_not_equal(path_reason_text((enum path_reason)a),
                                    path_reason_text((enum path_reason)b));
        }
    }
    for (int a = 0; a < KVF_PATH_COUNT; ++a) {
        for (int b = 0; b < a; ++b) {
            assert_string_not_equal(path_name((enum kvf_path)a), path_name((enum kvf_path)b));
        }
    }
    assert_string_equal(path_name(KVF_PATH_MAPPED), "mapped");
    assert_string_equal(path_name(KVF_PATH_DIRECT), "direct");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rung_taken_is_always_allowed_and_able),
        cmocka_unit_test(highest_rung_that_holds_is_taken),
        cmocka_unit_test(reason_is_true_of_the_facts),
        cmocka_unit_test(no_bytes_take_no_rung_whatever_the_facts),
        cmocka_unit_test(every_reason_and_path_has_a_text_of_its_own),
    };

    return cmocka_run_group_tests_name("path", tests, NULL, NULL);
}
