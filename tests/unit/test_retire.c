/* test_retire.c - what a group of one decides: every sequence of votes that a rank may give. */
#include "testing.h"

#include "consensus/retire.h"

static struct retire *open_one(enum kvf_side side, uint32_t requests_max)
{
    const struct retire_params params = {.side = side, .requests_max = requests_max};
    struct retire *retire;

    assert_int_equal(retire_open(kvf_heap_system(), &params, &retire), KVF_OK);
    return retire;
}

static struct retire_out vote(struct retire *retire, uint64_t rid, unsigned kind,
                              enum kvf_status status)
{
    const struct retire_vote it = {.rid = rid, .vote = kind, .facts = {.status = status}};
    struct retire_out out;

    assert_int_equal(retire_step(retire, &it, &out), KVF_OK);
    retire_check(retire);
    return out;
}

static void done_and_drained_is_ready_and_released_at_once(void **state)
{
    struct retire *retire = open_one(KVF_GENERATION, 4);
    struct retire_out out = vote(retire, 7, RETIRE_DONE | RETIRE_DRAINED, KVF_OK);

    (void)state;
    assert_int_equal(out.event_count, 2);
    assert_int_equal(out.events[0].kind, KVF_EVENT_READY);
    assert_int_equal(out.events[1].kind, KVF_EVENT_RELEASED);
    assert_int_equal(out.decision_count, 2);
    assert_int_equal(out.decisions[1], RETIRE_DECIDED_RELEASED);
    assert_int_equal(retire_live(retire), 0);
    retire_close(retire);
}

static void outcome_is_given_once_and_release_waits_for_drained(void **state)
{
    struct retire *retire = open_one(KVF_CONTEXT, 4);
    struct retire_out out;

    (void)state;
    out = vote(retire, 7, RETIRE_ASKED, KVF_OK);
    assert_int_equal(out.events[0].kind, KVF_EVENT_ASKED);
    assert_int_equal(vote(retire, 7, RETIRE_ASKED, KVF_OK).event_count, 0);
    out = vote(retire, 7, RETIRE_DOOMED_PEER, KVF_E_PEER_CANCELLED);
    assert_int_equal(out.event_count, 1);
    assert_int_equal(out.events[0].kind, KVF_EVENT_CANCELLED);
    assert_int_equal(out.decisions[0], RETIRE_DECIDED_CANCELLED);
    /* a stronger reason later changes nothing */
    assert_int_equal(vote(retire, 7, RETIRE_DOOMED_USER, KVF_E_CANCELLED).event_count, 0);
    assert_int_equal(retire_live(retire), 1);
    out = vote(retire, 7, RETIRE_DOOMED_USER | RETIRE_DRAINED, KVF_E_CANCELLED);
    assert_int_equal(out.event_count, 1);
    assert_int_equal(out.events[0].kind, KVF_EVENT_RELEASED);
    assert_int_equal(retire_live(retire), 0);
    retire_close(retire);
}

/* All sequences of three votes that never go back. */
static void every_sequence_ends_once(void **state)
{
    (void)state;
    for (unsigned sequence = 0; sequence < 14 * 14 * 14; sequence++) {
        struct retire *retire = open_one(KVF_CONTEXT, 2);
        unsigned last = 0, outcomes = 0, releases = 0;

        for (unsigned step = 0, rest = sequence; step < 3 && releases == 0; step++, rest /= 14) {
            unsigned kind = rest % 14 / 2, drained = rest % 2 == 0 ? 0 : RETIRE_DRAINED;
            const struct retire_vote it = {.rid = 1, .vote = kind | drained};
            struct retire_out out;

            if (kind != RETIRE_NONE && kind < last)
                continue;
            last = kind > last ? kind : last;
            assert_int_equal(retire_step(retire, &it, &out), KVF_OK);
            retire_check(retire);
            for (unsigned e = 0; e < out.event_count; e++) {
                assert_true(releases == 0);
                outcomes += out.events[e].kind == KVF_EVENT_SENT ||
                            out.events[e].kind == KVF_EVENT_FAILED ||
                            out.events[e].kind == KVF_EVENT_CANCELLED;
                releases += out.events[e].kind == KVF_EVENT_RELEASED;
            }
        }
        assert_true(outcomes <= 1 && releases <= outcomes);
        retire_close(retire);
    }
}

/* A cancel that meets the decision on its way ends nothing a second time. */
static void vote_of_a_retired_request_does_nothing(void **state)
{
    struct retire *retire = open_one(KVF_GENERATION, 4);
    struct retire_vote it = {.rid = 7,
                             .vote = RETIRE_DOOMED_USER | RETIRE_DRAINED,
                             .before = RETIRE_DONE | RETIRE_DRAINED};
    struct retire_out out;

    (void)state;
    vote(retire, 7, RETIRE_DONE | RETIRE_DRAINED, KVF_OK);
    assert_int_equal(retire_step(retire, &it, &out), KVF_OK);
    assert_int_equal(out.event_count + out.decision_count, 0);
    assert_int_equal(retire_live(retire), 0);
    /* another life of the same number begins with its first vote */
    assert_int_equal(vote(retire, 7, RETIRE_DOOMED_USER | RETIRE_DRAINED, KVF_OK).event_count, 2);
    retire_close(retire);
}

static void bad_votes_change_nothing(void **state)
{
    struct retire *retire = open_one(KVF_CONTEXT, 1);
    struct retire_vote it = {.rid = 1, .vote = RETIRE_ABSENT};
    struct retire_out out;

    (void)state;
    assert_int_equal(retire_step(retire, &it, &out), KVF_E_PROTOCOL);
    assert_int_equal(retire_live(retire), 0);
    vote(retire, 1, RETIRE_WITHDRAWN, KVF_OK);
    it.vote = RETIRE_ASKED;
    assert_int_equal(retire_step(retire, &it, &out), KVF_E_PROTOCOL);
    it = (struct retire_vote){.rid = 2, .vote = RETIRE_ASKED};
    assert_int_equal(retire_step(retire, &it, &out), KVF_BUSY);
    assert_int_equal(retire_live(retire), 1);
    retire_close(retire);
}

static void many_requests_share_few_entries(void **state)
{
    struct retire *retire = open_one(KVF_GENERATION, 32);

    (void)state;
    for (uint64_t rid = 0; rid < 10000; rid++) {
        vote(retire, rid * 64, RETIRE_DOOMED_FAILED, KVF_E_TIMEOUT);
        if (rid >= 31)
            vote(retire, (rid - 31) * 64, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TIMEOUT);
        assert_true(retire_live(retire) <= 31);
    }
    retire_close(retire);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(done_and_drained_is_ready_and_released_at_once),
        cmocka_unit_test(outcome_is_given_once_and_release_waits_for_drained),
        cmocka_unit_test(every_sequence_ends_once),
        cmocka_unit_test(vote_of_a_retired_request_does_nothing),
        cmocka_unit_test(bad_votes_change_nothing),
        cmocka_unit_test(many_requests_share_few_entries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
