/* Unit tests of launch/faults.c: the words of --faults, and what requests get. */
#include "testing.h"

#include <stdio.h>
#include <string.h>

#include "faults.h"
#include "options.h"

#define DRAWS 20000u

static struct fault_spec spec_of(const char *text)
{
    char why[OPTIONS_TEXT_BYTES] = "";
    struct fault_spec spec;

    if (!faults_parse(text, &spec, why)) {
        fail_msg("%s", why);
    }
    return spec;
}

static void every_word_is_read(void **state)
{
    char text[512] = "", why[OPTIONS_TEXT_BYTES];
    struct fault_spec spec;

    (void)state;
    for (int f = 1; f < FAULT_FATES; f++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s=%d.5%%,",
                 fault_fate_word((enum fault_fate)f), f);
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s=%d%%,",
                 fault_extra_word((enum fault_extra)e), 90 + e);
    }
    strcat(text, "slow-ms=7,silent-ms=60000");
    assert_true(faults_parse(text, &spec, why));
    assert_true(spec.any);
    for (int f = 1; f < FAULT_FATES; f++) {
        assert_true(spec.fates[f] == (f + 0.5) / 100);
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        assert_true(spec.extras[e] == (90 + e) / 100.0);
    }
    assert_int_equal(spec.slow_ms, 7);
    assert_int_equal(spec.silent_ms, 60000);
}

static void wrong_words_are_named(void **state)
{
    static const struct {
        const char *text;
        const char *says;
    } wrong[] = {
        {"", "\"\"; want WORD=P%"},
        {"cancel-gen", "\"cancel-gen\"; want WORD=P%"},
        {"cancel-gen=5", "cancel-gen is \"5\"; want 0% to 100%"},
        {"cancel-gen=100.5%", "cancel-gen is \"100.5%\"; want 0% to 100%"},
        {"slow=-1%", "slow is \"-1%\"; want 0% to 100%"},
        {"slow=%", "slow is \"%\"; want 0% to 100%"},
        {"slow-ms=0", "slow-ms is \"0\"; want a whole number from 1 to 60000"},
        {"slow-ms=5%", "slow-ms is \"5%\""},
        {"fail-aftr=1%", "unknown word \"fail-aftr\"; the nearest is fail-after"},
        {"slow=1%,", "\"\"; want WORD=P%"},
        {"none=1%", "unknown word \"none\""},
        {"no-ctx=60%,no-gen=40.5%", "add up to 100.5%; want at most 100%"},
        {"a-word-that-goes-on-and-on-and-on-and-on-and-on-and-on-and-on-and-on=1%", "too long"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char why[OPTIONS_TEXT_BYTES] = "";
        struct fault_spec spec;

        assert_false(faults_parse(wrong[i].text, &spec, why));
        if (strstr(why, wrong[i].says) == NULL) {
            fail_msg("\"%s\": \"%s\" lacks \"%s\"", wrong[i].text, why, wrong[i].says);
        }
    }
}

static void shares_are_met_and_draws_are_repeated(void **state)
{
    struct fault_spec spec = spec_of("cancel-gen=10%,no-ctx=30%,fail-after=5%,twice=50%");
    uint32_t counts[FAULT_FATES] = {0}, twice = 0, whens[FAULT_WHENS] = {0}, all = 0;

    (void)state;
    for (uint32_t rid = 1; rid <= DRAWS; rid++) {
        struct fault fault = faults_draw(&spec, 9, rid), again = faults_draw(&spec, 9, rid);

        assert_memory_equal(&fault.extras, &again.extras, sizeof(fault.extras));
        assert_int_equal(fault.fate, again.fate);
        assert_int_equal(fault.who, again.who);
        counts[fault.fate]++;
        whens[fault.when]++;
        twice += fault.extras[FAULT_TWICE];
        all += fault.who == FAULTS_ALL_RANKS;
    }
    assert_in_range(counts[FAULT_CANCEL_GEN], DRAWS * 9 / 100, DRAWS * 11 / 100);
    assert_in_range(counts[FAULT_NO_CTX], DRAWS * 28 / 100, DRAWS * 32 / 100);
    assert_in_range(counts[FAULT_FAIL_AFTER], DRAWS * 4 / 100, DRAWS * 6 / 100);
    assert_in_range(counts[FAULT_NONE], DRAWS * 53 / 100, DRAWS * 57 / 100);
    assert_int_equal(counts[FAULT_SHORT], 0);
    assert_in_range(twice, DRAWS * 48 / 100, DRAWS * 52 / 100);
    assert_in_range(all, DRAWS * 48 / 100, DRAWS * 52 / 100);
    for (int w = 0; w < FAULT_WHENS; w++) {
        assert_in_range(whens[w], DRAWS * 10 / 100, DRAWS * 65 / 100);
    }
}

static void another_seed_hits_other_requests(void **state)
{
    struct fault_spec spec = spec_of("cancel-ctx=50%");
    uint32_t same = 0;

    (void)state;
    for (uint32_t rid = 1; rid <= DRAWS; rid++) {
        same += faults_draw(&spec, 1, rid).fate == faults_draw(&spec, 2, rid).fate;
    }
    assert_in_range(same, DRAWS * 45 / 100, DRAWS * 55 / 100);
}

static void without_a_spec_nothing_is_planted(void **state)
{
    struct fault_spec none = {0};

    (void)state;
    for (uint32_t rid = 1; rid <= 100; rid++) {
        struct fault fault = faults_draw(&none, 1, rid);

        assert_int_equal(fault.fate, FAULT_NONE);
        for (int e = 0; e < FAULT_EXTRAS; e++) {
            assert_false(fault.extras[e]);
        }
    }
}

/* No fault allows all ends; a certain one does not allow the good one. */
static void ends_are_judged_by_their_fault(void **state)
{
    (void)state;
    for (int f = 0; f < FAULT_FATES; f++) {
        struct fault fault = {.fate = (enum fault_fate)f};

        for (int s = 0; s < 2; s++) {
            bool good = faults_allows(&fault, (enum kvf_side)s, false, KVF_OK);

            assert_true(good != faults_is_certain(fault.fate));
            assert_false(faults_allows(&fault, (enum kvf_side)s, false, KVF_E_TRANSFER));
            assert_false(faults_allows(&fault, (enum kvf_side)s, false, KVF_E_PEER_LOST));
        }
        assert_true(f == FAULT_CANCEL_GEN || f == FAULT_NO_CTX || f == FAULT_NO_GEN ||
                    !faults_allows(&fault, KVF_GENERATION, true, KVF_E_TIMEOUT));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_word_is_read),
        cmocka_unit_test(wrong_words_are_named),
        cmocka_unit_test(shares_are_met_and_draws_are_repeated),
        cmocka_unit_test(another_seed_hits_other_requests),
        cmocka_unit_test(without_a_spec_nothing_is_planted),
        cmocka_unit_test(ends_are_judged_by_their_fault),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
