/* test_retire.c - what a group decides: every sequence of one rank, every combination of four. */
#include "testing.h"

#include <string.h>

#include "consensus/retire.h"
#include "fail_heap.h"

static struct retire *open_group(enum kvf_side side, uint32_t ranks, uint32_t self,
                                 uint32_t entries)
{
    const struct retire_params params = {
        .side = side, .rank_count = ranks, .self = self, .entries_max = entries};
    struct retire *retire;

    assert_int_equal(retire_open(kvf_heap_system(), &params, &retire), KVF_OK);
    return retire;
}

static struct retire *open_one(enum kvf_side side, uint32_t requests_max)
{
    return open_group(side, 1, 0, requests_max);
}

static enum kvf_status give(struct retire *retire, const struct retire_vote *vote)
{
    const struct retire_event event = {.kind = RETIRE_VOTE, .u.vote = *vote};
    struct retire_out out;
    enum kvf_status status = retire_step(retire, &event, &out);

    assert_false(out.more);
    return status;
}

static struct retire_out decide(struct retire *retire)
{
    const struct retire_event event = {.kind = RETIRE_DECIDE};
    struct retire_out out;

    assert_int_equal(retire_step(retire, &event, &out), KVF_OK);
    retire_check(retire);
    return out;
}

/* One vote of a group of one, and what it comes to. */
static struct retire_out vote(struct retire *retire, uint64_t rid, unsigned kind,
                              enum kvf_status status)
{
    const struct retire_vote it = {.rid = rid, .vote = kind, .first = true, .status = status};

    assert_int_equal(give(retire, &it), KVF_OK);
    return decide(retire);
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
    assert_int_equal(out.events[0].status, KVF_E_PEER_CANCELLED);
    assert_int_equal(out.decisions[0], RETIRE_DECIDED_CANCELLED);
    /* a stronger reason later changes nothing */
    assert_int_equal(vote(retire, 7, RETIRE_DOOMED_USER, KVF_E_CANCELLED).event_count, 0);
    assert_int_equal(retire_counts(retire)->overruled, 1);
    assert_int_equal(retire_live(retire), 1);
    out = vote(retire, 7, RETIRE_DOOMED_USER | RETIRE_DRAINED, KVF_E_CANCELLED);
    assert_int_equal(out.event_count, 1);
    assert_int_equal(out.events[0].kind, KVF_EVENT_RELEASED);
    assert_int_equal(out.events[0].status, KVF_E_PEER_CANCELLED);
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
            struct retire_out out;

            if (kind != RETIRE_NONE && kind < last)
                continue;
            last = kind > last ? kind : last;
            out = vote(retire, 1, kind | drained, KVF_OK);
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

/* A rank whose part is complete, and is cancelled then, has no error of its own to tell. */
static void an_end_without_a_reason_is_given_that_of_its_kind(void **state)
{
    struct retire *retire = open_group(KVF_GENERATION, 2, 0, 4);
    struct retire_vote it = {.rid = 7, .vote = RETIRE_DONE | RETIRE_DRAINED, .first = true};
    struct retire_out out;

    (void)state;
    assert_int_equal(give(retire, &it), KVF_OK);
    assert_int_equal(decide(retire).event_count, 0);
    it.vote = RETIRE_DOOMED_USER | RETIRE_DRAINED;
    it.first = false;
    assert_int_equal(give(retire, &it), KVF_OK);
    out = decide(retire);
    assert_int_equal(out.events[0].kind, KVF_EVENT_CANCELLED);
    assert_int_equal(out.events[0].status, KVF_E_CANCELLED);
    assert_int_equal(out.status, KVF_E_CANCELLED);
    retire_close(retire);
}

/* A cancel that meets the decision on its way ends nothing a second time. */
static void vote_of_a_retired_request_does_nothing(void **state)
{
    struct retire *retire = open_one(KVF_GENERATION, 4);
    const struct retire_vote it = {.rid = 7, .vote = RETIRE_DOOMED_USER | RETIRE_DRAINED};

    (void)state;
    vote(retire, 7, RETIRE_DONE | RETIRE_DRAINED, KVF_OK);
    assert_int_equal(give(retire, &it), KVF_OK);
    assert_int_equal(decide(retire).event_count, 0);
    assert_int_equal(retire_live(retire), 0);
    assert_int_equal(retire_counts(retire)->late, 1);
    /* another life of the same number begins with its first vote */
    assert_int_equal(vote(retire, 7, RETIRE_DOOMED_USER | RETIRE_DRAINED, KVF_OK).event_count, 2);
    retire_close(retire);
}

static void bad_votes_change_nothing(void **state)
{
    struct retire *retire = open_one(KVF_CONTEXT, 1);
    struct retire_vote it = {.rid = 1, .vote = RETIRE_ABSENT, .first = true};

    (void)state;
    assert_int_equal(give(retire, &it), KVF_E_PROTOCOL); /* absence without DRAINED */
    it = (struct retire_vote){.rid = 1, .vote = RETIRE_ASKED, .first = true, .rank = 1};
    assert_int_equal(give(retire, &it), KVF_E_PROTOCOL); /* no member */
    it = (struct retire_vote){.rid = 1, .vote = 16, .first = true};
    assert_int_equal(give(retire, &it), KVF_E_PROTOCOL);
    assert_int_equal(retire_live(retire), 0);
    vote(retire, 1, RETIRE_WITHDRAWN, KVF_OK);
    it.vote = RETIRE_ASKED;
    assert_int_equal(give(retire, &it), KVF_E_PROTOCOL);
    it = (struct retire_vote){.rid = 2, .vote = RETIRE_ASKED, .first = true};
    assert_int_equal(give(retire, &it), KVF_E_TOO_LARGE);
    assert_int_equal(retire_live(retire), 1);
    retire_check(retire);
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

/* ---- four ranks ----------------------------------------------------------------------------- */

#define RANKS 4u

static const unsigned answers[4] = {RETIRE_NONE, RETIRE_DONE | RETIRE_DRAINED, RETIRE_DOOMED_FAILED,
                                    RETIRE_DOOMED_USER};

/* The verdict by the rule alone: 0 = none yet. */
static int wanted(const unsigned *votes)
{
    int done = 0, failed = 0, cancelled = 0;

    for (unsigned r = 0; r < RANKS; r++) {
        done += votes[r] == answers[1];
        failed += votes[r] == answers[2];
        cancelled += votes[r] == answers[3];
    }
    if (cancelled > 0)
        return KVF_EVENT_CANCELLED;
    if (failed > 0)
        return KVF_EVENT_FAILED;
    return done == RANKS ? KVF_EVENT_READY : -1;
}

/* Outcome event of the one request, or -1; counts outcomes. */
static int outcome(struct retire *retire, unsigned *outcomes)
{
    int kind = -1;
    struct retire_out out;

    do {
        out = decide(retire);
        for (unsigned e = 0; e < out.event_count; e++)
            if (out.events[e].kind == KVF_EVENT_READY || out.events[e].kind == KVF_EVENT_FAILED ||
                out.events[e].kind == KVF_EVENT_CANCELLED) {
                kind = (int)out.events[e].kind;
                (*outcomes)++;
            }
    } while (out.more);
    return kind;
}

static void next_order(unsigned order[RANKS], unsigned permutation)
{
    unsigned left[RANKS] = {0, 1, 2, 3};

    for (unsigned i = 0, count = RANKS; i < RANKS; i++, count--) {
        unsigned pick = permutation % count;

        permutation /= count;
        order[i] = left[pick];
        memmove(&left[pick], &left[pick + 1], (count - pick - 1) * sizeof(left[0]));
    }
}

/*
 * Every combination of four ranks' answers, in every order: all votes in one sweep give the verdict
 * of the rule, whoever spoke first, on every rank; and a later stronger vote does not change it.
 */
static void t7_all_256_combinations_have_one_verdict_in_any_order(void **state)
{
    unsigned cases = 0;

    (void)state;
    for (unsigned combination = 0; combination < 256; combination++) {
        unsigned votes[RANKS];

        for (unsigned r = 0, rest = combination; r < RANKS; r++, rest /= 4)
            votes[r] = answers[rest % 4];
        for (unsigned permutation = 0; permutation < 24; permutation++) {
            struct retire *retire = open_group(KVF_GENERATION, RANKS, permutation % RANKS, 2);
            unsigned order[RANKS], outcomes = 0;
            int verdict;

            next_order(order, permutation);
            for (unsigned i = 0; i < RANKS; i++) {
                const struct retire_vote it = {
                    .rid = 9, .rank = order[i], .vote = votes[order[i]], .first = true};

                if (it.vote != RETIRE_NONE)
                    assert_int_equal(give(retire, &it), KVF_OK);
            }
            verdict = outcome(retire, &outcomes);
            assert_int_equal(verdict, wanted(votes));
            if (verdict >= 0 && verdict != KVF_EVENT_READY) {
                for (unsigned r = 0; r < RANKS; r++) {
                    const struct retire_vote late = {
                        .rid = 9, .rank = r, .vote = RETIRE_DOOMED_USER, .first = false};

                    give(retire, &late);
                }
                assert_int_equal(outcome(retire, &outcomes), -1);
            }
            assert_true(outcomes <= 1);
            retire_close(retire);
            cases++;
        }
    }
    assert_int_equal(cases, 256 * 24);
}

/* The same, but every vote in a sweep of its own: done only when all are, bad as soon as one is. */
static void t7_votes_in_sweeps_of_their_own_are_final_once_given(void **state)
{
    (void)state;
    for (unsigned combination = 0; combination < 256; combination++) {
        for (unsigned permutation = 0; permutation < 24; permutation++) {
            struct retire *tables[RANKS];
            unsigned order[RANKS], votes[RANKS] = {0}, outcomes[RANKS] = {0};
            int verdict = -1;

            next_order(order, permutation);
            for (unsigned r = 0; r < RANKS; r++)
                tables[r] = open_group(KVF_GENERATION, RANKS, r, 2);
            for (unsigned i = 0; i < RANKS; i++) {
                unsigned answer = answers[(combination >> 2 * order[i]) & 3];
                const struct retire_vote it = {
                    .rid = 9, .rank = order[i], .vote = answer, .first = true};

                votes[order[i]] = answer;
                if (verdict < 0)
                    verdict = wanted(votes);
                for (unsigned r = 0; r < RANKS && answer != RETIRE_NONE; r++) {
                    int now;

                    assert_int_equal(give(tables[r], &it), KVF_OK);
                    now = outcome(tables[r], &outcomes[r]);
                    assert_true(now == -1 || now == verdict);
                }
                for (unsigned r = 0; r < RANKS; r++) {
                    assert_int_equal(outcomes[r], verdict >= 0);
                    assert_int_equal(retire_digest(tables[r]), retire_digest(tables[0]));
                    if (r == 0)
                        for (unsigned o = 1; o < RANKS; o++)
                            retire_digest(tables[o]); /* equally often */
                }
            }
            for (unsigned r = 0; r < RANKS; r++)
                retire_close(tables[r]);
        }
    }
}

/* h3: done and failed in the same sweep is failed, once, on all. */
static void h3_one_failure_wins_over_done_in_the_same_sweep(void **state)
{
    (void)state;
    for (unsigned self = 0; self < 2; self++) {
        struct retire *retire = open_group(KVF_GENERATION, 2, self, 4);
        const struct retire_vote done = {
            .rid = 1, .rank = 0, .vote = RETIRE_DONE | RETIRE_DRAINED, .first = true};
        const struct retire_vote failed = {.rid = 1,
                                           .rank = 1,
                                           .vote = RETIRE_DOOMED_FAILED | RETIRE_DRAINED,
                                           .first = true,
                                           .status = KVF_E_TRANSFER,
                                           .culprit = 77};
        struct retire_out out;

        give(retire, &done);
        give(retire, &failed);
        out = decide(retire);
        assert_int_equal(out.event_count, 2);
        assert_int_equal(out.events[0].kind, KVF_EVENT_FAILED);
        assert_int_equal(out.events[0].status, KVF_E_TRANSFER);
        assert_int_equal(out.events[0].culprit, 77);
        assert_int_equal(out.events[1].kind, KVF_EVENT_RELEASED);
        retire_close(retire);
    }
}

static void asked_needs_all_and_a_withdrawal_takes_it_back(void **state)
{
    struct retire *retire = open_group(KVF_CONTEXT, 2, 0, 4);
    struct retire_vote it = {.rid = 1, .rank = 0, .vote = RETIRE_ASKED, .first = true};

    (void)state;
    give(retire, &it);
    assert_int_equal(decide(retire).event_count, 0);
    it.vote = RETIRE_WITHDRAWN;
    it.first = false;
    give(retire, &it);
    it = (struct retire_vote){.rid = 1, .rank = 1, .vote = RETIRE_ASKED, .first = true};
    give(retire, &it);
    assert_int_equal(decide(retire).event_count, 0);
    /* one that had nothing to be asked for counts as asked */
    it = (struct retire_vote){.rid = 2, .rank = 0, .vote = RETIRE_DONE, .first = true};
    give(retire, &it);
    it = (struct retire_vote){.rid = 2, .rank = 1, .vote = RETIRE_ASKED, .first = true};
    give(retire, &it);
    assert_int_equal(decide(retire).events[0].kind, KVF_EVENT_ASKED);
    retire_close(retire);
}

/* A change of any bit of what ranks hold alike shows in the digest as soon as it is looked at. */
static void digest_finds_any_bit_that_was_turned(void **state)
{
    (void)state;
    for (unsigned bit = 0; bit < 40 * 8; bit++) {
        struct retire *right = open_group(KVF_GENERATION, 2, 0, 3);
        struct retire *wrong = open_group(KVF_GENERATION, 2, 0, 3);
        const struct retire_vote it = {.rid = 5, .rank = 1, .vote = RETIRE_DONE, .first = true};

        give(right, &it);
        give(wrong, &it);
        decide(right);
        decide(wrong);
        assert_int_equal(retire_digest(right), retire_digest(wrong));
        retire_damage(wrong, 0, bit);
        if (bit / 8 < 8 || bit / 8 >= 12 || bit % 8 > 2) /* state 0 would be an unused entry */
            assert_int_not_equal(retire_digest(right), retire_digest(wrong));
        retire_close(right);
        retire_close(wrong);
    }
}

static void open_fails_cleanly_at_each_allocation(void **state)
{
    const struct retire_params params = {
        .side = KVF_CONTEXT, .rank_count = 3, .self = 1, .entries_max = 8};

    (void)state;
    for (uint64_t at = 1;; at++) {
        struct fail_heap heap;
        struct retire *retire = NULL;
        enum kvf_status status;

        fail_heap_init(&heap, at);
        status = retire_open(&heap.heap, &params, &retire);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            retire_close(retire);
            fail_heap_fini(&heap);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        fail_heap_fini(&heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(done_and_drained_is_ready_and_released_at_once),
        cmocka_unit_test(outcome_is_given_once_and_release_waits_for_drained),
        cmocka_unit_test(every_sequence_ends_once),
        cmocka_unit_test(vote_of_a_retired_request_does_nothing),
        cmocka_unit_test(an_end_without_a_reason_is_given_that_of_its_kind),
        cmocka_unit_test(bad_votes_change_nothing),
        cmocka_unit_test(many_requests_share_few_entries),
        cmocka_unit_test(t7_all_256_combinations_have_one_verdict_in_any_order),
        cmocka_unit_test(t7_votes_in_sweeps_of_their_own_are_final_once_given),
        cmocka_unit_test(h3_one_failure_wins_over_done_in_the_same_sweep),
        cmocka_unit_test(asked_needs_all_and_a_withdrawal_takes_it_back),
        cmocka_unit_test(digest_finds_any_bit_that_was_turned),
        cmocka_unit_test(open_fails_cleanly_at_each_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
