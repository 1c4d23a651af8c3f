/*
 * test_sweep.c - groups of sweep machines: each row of docs/consensus.md, and its scenarios by
 * name.
 */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "fail_heap.h"
#include "sweep_team.h"

#define GOOD (RETIRE_DONE | RETIRE_DRAINED)
#define T UINT64_C(60000)

static struct sweep_team *open_team(uint32_t ranks, uint32_t lag)
{
    const struct team_params params = {
        .ranks = ranks, .side = KVF_GENERATION, .lag = lag, .timeout_ns = T};

    return team_open(&params);
}

static void all_vote(struct sweep_team *team, uint64_t rid, unsigned vote, enum kvf_status status)
{
    for (uint32_t r = 0; r < team->count; r++)
        team_vote(team, r, rid, vote, status);
}

static uint32_t iteration_of(const struct sweep_team *team, uint32_t rank, uint64_t rid,
                             enum kvf_event_kind kind)
{
    const struct team_said *said = team_find(team, rank, rid, kind);

    assert_non_null(said);
    return said->iteration;
}

static enum sweep_cause cause_of(const struct sweep_team *team, uint32_t rank)
{
    struct sweep_state state;

    sweep_look(team->ranks[rank].sweep, &state);
    return state.cause;
}

static void m_01_all_done_retire_in_one_iteration(void **state)
{
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (uint32_t ranks = 1; ranks <= 8; ranks++) {
        for (uint32_t lag = 0; lag <= 4; lag++) {
            struct sweep_team *team = open_team(ranks, lag);

            for (uint64_t rid = 1; rid <= 40; rid++) {
                for (uint32_t r = 0; r < ranks; r++)
                    team_vote(team, (r + (uint32_t)rid) % ranks, rid, GOOD, KVF_OK);
                team_round(team, &random);
            }
            for (uint32_t i = 0; i < 2 * lag + 2; i++)
                team_round(team, &random);
            assert_true(team_alike(team));
            assert_int_equal(team->ranks[0].said_count, 80);
            team_close(team);
        }
    }
}

static void m_02_the_slowest_decides(void **state)
{
    struct sweep_team *team = open_team(4, 1);

    (void)state;
    for (uint32_t r = 0; r < 3; r++)
        team_vote(team, r, 5, GOOD, KVF_OK);
    team_rounds(team, 100);
    assert_int_equal(team->ranks[0].said_count, 0);
    team_vote(team, 3, 5, GOOD, KVF_OK);
    team_rounds(team, 2);
    assert_int_equal(iteration_of(team, 0, 5, KVF_EVENT_READY), 101);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_03_one_failure_stops_all(void **state)
{
    struct sweep_team *team = open_team(4, 1);

    (void)state;
    team_vote(team, 2, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(team_find(team, r, 5, KVF_EVENT_FAILED)->status, KVF_E_TRANSFER);
        assert_int_equal(team->ranks[r].decided[RETIRE_DECIDED_FAILED], 1); /* it cancels */
        if (r != 2)
            team_vote(team, r, 5, RETIRE_DOOMED_FAILED | (r == 1 ? 0 : RETIRE_DRAINED),
                      KVF_E_TRANSFER);
    }
    team_rounds(team, 5);
    assert_null(team_find(team, 0, 5, KVF_EVENT_RELEASED));
    team_vote(team, 1, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    assert_non_null(team_find(team, 0, 5, KVF_EVENT_RELEASED));
    assert_true(team_alike(team));
    team_close(team);
}

static void m_04_the_most_severe_reason_of_a_sweep_counts(void **state)
{
    struct sweep_team *team = open_team(4, 1);

    (void)state;
    team_vote(team, 0, 5, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER);
    team_vote(team, 1, 5, RETIRE_DOOMED_PEER, KVF_E_PEER_CANCELLED);
    team_vote(team, 2, 5, RETIRE_DOOMED_USER, KVF_E_CANCELLED);
    team_rounds(team, 2);
    for (uint32_t r = 0; r < 4; r++) {
        assert_int_equal(team_find(team, r, 5, KVF_EVENT_CANCELLED)->status, KVF_E_CANCELLED);
        assert_null(team_find(team, r, 5, KVF_EVENT_FAILED));
    }
    team_close(team);
}

static void m_05_decided_is_decided(void **state)
{
    struct sweep_team *team = open_team(2, 1);

    (void)state;
    team_vote(team, 0, 5, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER);
    team_rounds(team, 1);
    team_vote(team, 1, 5, RETIRE_DOOMED_USER, KVF_E_CANCELLED);
    team_rounds(team, 3);
    assert_non_null(team_find(team, 1, 5, KVF_EVENT_FAILED));
    assert_null(team_find(team, 1, 5, KVF_EVENT_CANCELLED));
    assert_int_equal(retire_counts(sweep_table(team->ranks[0].sweep))->overruled, 1);
    team_close(team);
}

static void m_06_a_rank_that_never_got_the_request_votes_absent_after_t(void **state)
{
    struct sweep_team *team = open_team(4, 1);

    (void)state;
    for (uint32_t r = 0; r < 3; r++)
        team_vote(team, r, 5, GOOD, KVF_OK);
    team_rounds(team, 2);
    team->now_ns += T - 1;
    team_rounds(team, 3);
    assert_int_equal(team->ranks[3].absent, 0);
    team->now_ns += 1;
    team_rounds(team, 4);
    for (uint32_t r = 0; r < 4; r++) {
        const struct team_said *said = team_find(team, r, 5, KVF_EVENT_FAILED);

        assert_int_equal(team->ranks[r].absent, r == 3);
        assert_int_equal(said->status, KVF_E_ABSENT);
        assert_int_equal(said->culprit, 3);
        assert_non_null(team_find(team, r, 5, KVF_EVENT_RELEASED));
        assert_string_equal(team->ranks[r].event, "W37");
        assert_int_equal(team->ranks[r].warned, 1);
    }
    assert_true(team_alike(team));
    team_close(team);
}

/* A rank that has it open, but has nothing to say yet, is not absent. */
static void an_open_request_is_never_called_absent(void **state)
{
    struct sweep_team *team = open_team(2, 1);

    (void)state;
    team_vote(team, 1, 6, RETIRE_NONE, KVF_OK); /* before anybody voted */
    team_vote(team, 0, 5, GOOD, KVF_OK);
    team_vote(team, 0, 6, GOOD, KVF_OK);
    team_rounds(team, 2);
    team_vote(team, 1, 5, RETIRE_NONE, KVF_OK); /* after */
    team->now_ns += 10 * T;
    team_rounds(team, 4);
    assert_int_equal(team->ranks[1].absent, 0);
    team_close(team);
}

/* What is opened after its outcome is told to the machine at once; the engine heard it before. */
static void a_request_that_is_opened_late_is_told_its_outcome(void **state)
{
    struct sweep_team *team = open_team(2, 1);

    (void)state;
    team_vote(team, 0, 5, RETIRE_DOOMED_USER | RETIRE_DRAINED, KVF_E_CANCELLED);
    team_rounds(team, 2);
    assert_int_equal(team->ranks[1].decided[RETIRE_DECIDED_CANCELLED], 1);
    team_vote(team, 1, 5, RETIRE_NONE, KVF_OK);
    team_rounds(team, 1);
    assert_int_equal(team->ranks[1].decided[RETIRE_DECIDED_CANCELLED], 2);
    team_vote(team, 1, 5, RETIRE_DOOMED_PEER | RETIRE_DRAINED, KVF_E_PEER_CANCELLED);
    team_rounds(team, 2);
    assert_int_equal(team->ranks[1].decided[RETIRE_DECIDED_CANCELLED], 2);
    assert_int_equal(team->ranks[1].decided[RETIRE_DECIDED_RELEASED], 1);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_07_drained_ranks_close_alone_after_2_t(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    team->ranks[2].deaf = true;
    for (uint32_t r = 0; r < 2; r++)
        team_vote(team, r, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    team->now_ns += 2 * T - 1;
    team_rounds(team, 2);
    assert_null(team_find(team, 0, 5, KVF_EVENT_RELEASED_LOCAL));
    team->now_ns += 1;
    team_rounds(team, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(team_told(team, r, 5, KVF_EVENT_RELEASED_LOCAL), 1);
        assert_int_equal(retire_counts(sweep_table(team->ranks[r].sweep))->escaped, 1);
        assert_string_equal(team->ranks[r].event, "W20");
    }
    assert_int_equal(team_told(team, 2, 5, KVF_EVENT_RELEASED_LOCAL), 0);
    /* the last rank wakes up: the entry goes, and nobody who closed alone hears of it again */
    team_vote(team, 2, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    assert_int_equal(team_told(team, 0, 5, KVF_EVENT_RELEASED), 0);
    assert_int_equal(team_told(team, 2, 5, KVF_EVENT_RELEASED), 1);
    assert_int_equal(retire_live(sweep_table(team->ranks[0].sweep)), 0);
    team_close(team);
}

static void m_08_a_rank_that_is_not_drained_never_closes_alone(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    team->ranks[2].deaf = true;
    team_vote(team, 0, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_vote(team, 1, 5, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER); /* a copy that does not end */
    team_rounds(team, 2);
    team->now_ns += 20 * T;
    team_rounds(team, 3);
    assert_int_equal(team_told(team, 0, 5, KVF_EVENT_RELEASED_LOCAL), 1);
    assert_int_equal(team_told(team, 1, 5, KVF_EVENT_RELEASED_LOCAL), 0);
    team_vote(team, 1, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    assert_int_equal(team_told(team, 1, 5, KVF_EVENT_RELEASED_LOCAL), 1);
    for (uint32_t r = 0; r < 3; r++)
        assert_int_equal(team->ranks[r].refused, 0);
    team_close(team);
}

static void m_09_release_needs_everybody_drained(void **state)
{
    struct sweep_team *team = open_team(2, 1);

    (void)state;
    team_vote(team, 0, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TIMEOUT);
    team_vote(team, 1, 5, RETIRE_DOOMED_FAILED, KVF_E_TIMEOUT);
    team_rounds(team, 30);
    team_vote(team, 1, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TIMEOUT);
    team_rounds(team, 2);
    assert_int_equal(iteration_of(team, 0, 5, KVF_EVENT_RELEASED),
                     iteration_of(team, 1, 5, KVF_EVENT_RELEASED));
    assert_true(iteration_of(team, 0, 5, KVF_EVENT_RELEASED) >= 30);
    team_close(team);
}

static void m_10_a_backlog_loses_nothing_and_keeps_its_order(void **state)
{
    struct sweep_team *team = open_team(4, 1);
    uint32_t rounds = 0, at = 0;
    struct sweep_state look;

    (void)state;
    for (uint64_t rid = 1; rid <= 1000; rid++)
        team_vote(team, 1, rid, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER);
    /* 3 in the first message; then 255 a sweep */
    for (; team->ranks[0].said_count < 1000 && rounds < 100; rounds++)
        team_rounds(team, 1);
    assert_true(rounds <= 1 + 2 + (1000 + 254) / 255);
    for (uint64_t rid = 1; rid <= 1000; rid++)
        assert_int_equal(team->ranks[3].said[at++].rid, rid);
    assert_true(team_alike(team));
    sweep_look(team->ranks[1].sweep, &look);
    assert_true(look.carried > 0);
    assert_int_equal(look.deltas, 1000);
    assert_int_equal(look.len_bytes, SWEEP_MESSAGE_MAX);
    team_rounds(team, 8 * SWEEP_CLASSES);
    sweep_look(team->ranks[1].sweep, &look);
    assert_int_equal(look.len_bytes, 64);
    team_close(team);
}

static void m_11_a_rank_that_is_late_delays_the_others_by_again(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    all_vote(team, 5, GOOD, KVF_OK);
    team_rounds(team, 1);
    for (int i = 0; i < 5; i++) { /* rank 0 has not called its second iteration */
        if (i == 0) {
            assert_int_equal(team_call(team, 1), KVF_OK);
            assert_int_equal(team_call(team, 2), KVF_OK);
        }
        assert_int_equal(team_call(team, 1), KVF_AGAIN);
        assert_int_equal(team_call(team, 2), KVF_AGAIN);
    }
    assert_int_equal(team_call(team, 0), KVF_OK);
    assert_int_equal(team_call(team, 1), KVF_OK);
    assert_int_equal(team_call(team, 2), KVF_OK);
    assert_int_equal(team_call(team, 0), KVF_OK);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_12_a_skipped_call_is_found_in_one_sweep(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    team_rounds(team, 3);
    team->ranks[1].iteration++;
    for (uint32_t r = 0; r < 3; r++)
        team_call(team, r);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(team_call(team, r), KVF_E_GROUP_LOST);
        assert_string_equal(team->ranks[r].event, "E29");
        assert_int_equal(team->ranks[r].errors, 1);
    }
    assert_int_equal(cause_of(team, 0), SWEEP_LOST_DIVERGED);
    assert_non_null(strstr(team->ranks[0].text, "iteration 4"));
    team_close(team);
}

static void m_13_a_turned_bit_is_found_with_both_digests(void **state)
{
    const struct team_params params = {
        .ranks = 3, .side = KVF_GENERATION, .lag = 1, .entries_max = 2, .timeout_ns = T};
    struct sweep_team *team = team_open(&params);

    (void)state;
    team->checked = false;
    team_vote(team, 0, 5, GOOD, KVF_OK);
    team_rounds(team, 3);
    retire_damage(sweep_table(team->ranks[1].sweep), 0, 8 * 16 + 3); /* its status */
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t r = 0; r < 3; r++)
            team_call(team, r);
    for (uint32_t r = 0; r < 3; r++) {
        assert_true(cause_of(team, r) == SWEEP_LOST_DIVERGED ||
                    cause_of(team, r) == SWEEP_LOST_TOLD);
        assert_int_equal(team_call(team, r), KVF_E_GROUP_LOST);
    }
    assert_non_null(strstr(team->ranks[0].text, "has digest"));
    assert_non_null(strstr(team->ranks[0].text, "this rank has digest"));
    assert_non_null(strstr(team->ranks[0].text, "sweep 3"));
    team_close(team);
}

static void m_14_a_vote_that_is_repeated_gives_no_second_event(void **state)
{
    struct sweep_team *team = open_team(2, 1);

    (void)state;
    for (int times = 0; times < 3; times++) {
        team_vote(team, 0, 5, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER);
        team_vote(team, 1, 6, GOOD, KVF_OK);
        team_rounds(team, 2);
    }
    team_vote(team, 0, 6, GOOD, KVF_OK);
    team_rounds(team, 2);
    assert_int_equal(team_told(team, 1, 5, KVF_EVENT_FAILED), 1);
    assert_int_equal(team_told(team, 1, 6, KVF_EVENT_READY), 1);
    assert_int_equal(team_told(team, 1, 6, KVF_EVENT_RELEASED), 1);
    assert_true(retire_counts(sweep_table(team->ranks[0].sweep))->repeated >= 4);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_15_asked_that_is_withdrawn_as_it_is_agreed_is_not_agreed(void **state)
{
    const struct team_params params = {.ranks = 2, .side = KVF_CONTEXT, .lag = 1, .timeout_ns = T};
    struct sweep_team *team = team_open(&params);

    (void)state;
    team_vote(team, 0, 5, RETIRE_ASKED, KVF_OK);
    team_rounds(team, 1);
    team_vote(team, 0, 5, RETIRE_WITHDRAWN, KVF_OK);
    team_vote(team, 1, 5, RETIRE_ASKED, KVF_OK);
    team_rounds(team, 2);
    assert_int_equal(team->ranks[0].said_count, 0);
    /* withdrawn after it was agreed: too late */
    team_vote(team, 0, 6, RETIRE_ASKED, KVF_OK);
    team_vote(team, 1, 6, RETIRE_ASKED, KVF_OK);
    team_rounds(team, 1);
    team_vote(team, 0, 6, RETIRE_WITHDRAWN, KVF_OK);
    team_rounds(team, 2);
    assert_int_equal(team_told(team, 1, 6, KVF_EVENT_ASKED), 1);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_16_groups_do_not_wait_for_each_other(void **state)
{
    struct sweep_team *one = open_team(2, 1), *other = open_team(2, 1);

    (void)state;
    team_rounds(one, 1);
    assert_int_equal(team_call(one, 0), KVF_OK);
    assert_int_equal(team_call(one, 0), KVF_AGAIN); /* its rank 1 is stopped */
    team_rounds(other, 100);
    assert_int_equal(other->ranks[1].iteration, 100);
    assert_int_equal(team_call(one, 0), KVF_AGAIN);
    team_close(one);
    team_close(other);
}

static void m_17_no_stage_of_a_pipeline_blocks_on_a_later_one(void **state)
{
    struct sweep_team *team = open_team(4, 4);

    (void)state;
    all_vote(team, 5, GOOD, KVF_OK);
    /* stage s calls iteration i when stage 0 calls i + s */
    for (uint32_t tick = 0; tick < 40; tick++)
        for (uint32_t stage = 0; stage < 4; stage++)
            if (tick >= stage)
                assert_int_equal(team_call(team, stage), KVF_OK);
    assert_int_equal(team->ranks[0].iteration, 40);
    assert_int_equal(team->ranks[3].iteration, 37);
    assert_int_equal(iteration_of(team, 0, 5, KVF_EVENT_READY), 4);
    assert_true(team_alike(team));
    team_close(team);
}

static void m_18_bytes_follow_changes_and_not_live_requests(void **state)
{
    uint64_t bytes[3];
    static const uint32_t live[3] = {0, 256, 2048};

    (void)state;
    for (unsigned at = 0; at < 3; at++) {
        struct sweep_team *team = open_team(4, 1);
        uint64_t before;

        for (uint64_t rid = 1; rid <= live[at]; rid++)
            team_vote(team, 0, rid, RETIRE_DONE, KVF_OK);
        team_rounds(team, 60);
        before = fake_board_bytes(team->board);
        team_rounds(team, 100);
        bytes[at] = fake_board_bytes(team->board) - before;
        assert_int_equal(retire_live(sweep_table(team->ranks[3].sweep)), live[at]);
        team_close(team);
    }
    assert_int_equal(bytes[0], 100 * 4 * 64);
    assert_int_equal(bytes[1], bytes[0]);
    assert_int_equal(bytes[2], bytes[0]);
}

/* Its collective completes well while it sleeps; the word that the group is lost comes first. */
static void m_19_a_rank_that_wakes_up_late_applies_nothing(void **state)
{
    struct sweep_team *team = open_team(4, 1);
    const struct sweep_event silent = {.kind = SWEEP_MEMBER,
                                       .u.member = {.rank = 2, .silent = true}};
    uint32_t said;

    (void)state;
    all_vote(team, 5, GOOD, KVF_OK);
    for (uint32_t r = 0; r < 4; r++)
        assert_int_equal(team_call(team, r), KVF_OK); /* all have started; rank 2 stops */
    for (uint32_t r = 0; r < 4; r++)
        if (r != 2) {
            assert_int_equal(team_call(team, r), KVF_OK);
            assert_int_equal(team_call(team, r), KVF_AGAIN);
            team_event(team, r, &silent);
        }
    said = team->ranks[2].said_count;
    team->now_ns += 5000;
    assert_int_equal(team_call(team, 0), KVF_E_GROUP_LOST);
    assert_int_equal(cause_of(team, 0), SWEEP_LOST_MEMBER);
    assert_non_null(strstr(team->ranks[0].text, "world rank 2"));
    assert_true(fake_board_complete(team->board, 2));
    for (uint32_t r = 1; r < 4; r++) {
        assert_int_equal(team_call(team, r), KVF_E_GROUP_LOST);
        assert_int_equal(cause_of(team, r), SWEEP_LOST_TOLD);
    }
    for (uint32_t s = said; s < team->ranks[2].said_count; s++)
        assert_true(team->ranks[2].said[s].kind == KVF_EVENT_RELEASED_LOCAL ||
                    team->ranks[2].said[s].status == KVF_E_GROUP_LOST);
    assert_null(team_find(team, 2, 5, KVF_EVENT_READY));
    team_close(team);
}

/* The member dies before it starts a sweep, after, and after some have completed it. */
static void m_20_a_death_at_any_point_leaves_nobody_behind(void **state)
{
    (void)state;
    for (uint32_t done_calls = 0; done_calls < 6; done_calls++) {
        for (uint32_t ahead = 0; ahead < 8; ahead++) {
            struct sweep_team *team = open_team(4, 1);
            const struct sweep_event dead = {.kind = SWEEP_MEMBER,
                                             .u.member = {.rank = 3, .dead = true}};
            uint32_t applied[4];

            all_vote(team, 5, GOOD, KVF_OK);
            for (uint32_t c = 0; c < done_calls; c++) {
                for (uint32_t r = 0; r < 4; r++)
                    team_call(team, r);
            }
            if (ahead & 1)
                team_call(team, 3); /* it starts one more, then dies */
            for (uint32_t r = 0; r < 3; r++)
                for (uint32_t c = 0; c < (ahead >> 1) * r; c++)
                    team_call(team, r);
            team_event(team, 1, &dead);
            for (uint32_t r = 0; r < 3; r++) {
                struct sweep_state look;

                assert_int_equal(team_call(team, r), KVF_E_GROUP_LOST);
                sweep_look(team->ranks[r].sweep, &look);
                assert_int_equal(look.loss.culprit, 3);
                applied[r] = look.applied;
                assert_int_equal(team->ranks[r].end_all, 1);
            }
            for (uint32_t r = 1; r < 3; r++)
                assert_true(applied[r] <= applied[0] + 1 && applied[0] <= applied[r] + 1);
            team_close(team);
        }
    }
}

static void m_21_a_loss_frees_by_local_proof_alone(void **state)
{
    struct sweep_team *team = open_team(2, 1);
    const struct sweep_event dead = {.kind = SWEEP_MEMBER, .u.member = {.rank = 1, .dead = true}};

    (void)state;
    team_vote(team, 0, 1, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    team_vote(team, 0, 2, GOOD, KVF_OK);
    team_vote(team, 0, 3, RETIRE_DOOMED_FAILED, KVF_E_TRANSFER);
    team_rounds(team, 2);
    team_vote(team, 0, 4, GOOD, KVF_OK); /* not in any sweep yet */
    team_event(team, 0, &dead);
    assert_int_equal(team_told(team, 0, 1, KVF_EVENT_RELEASED_LOCAL), 1);
    assert_int_equal(team_told(team, 0, 2, KVF_EVENT_RELEASED_LOCAL), 1);
    assert_int_equal(team_told(team, 0, 4, KVF_EVENT_RELEASED_LOCAL), 1);
    assert_int_equal(team_find(team, 0, 2, KVF_EVENT_FAILED)->status, KVF_E_GROUP_LOST);
    assert_int_equal(team_find(team, 0, 2, KVF_EVENT_FAILED)->culprit, 1);
    assert_int_equal(team_told(team, 0, 1, KVF_EVENT_FAILED), 1); /* before the loss, once */
    assert_int_equal(team_told(team, 0, 3, KVF_EVENT_RELEASED_LOCAL), 0);
    /* its writers answer; and one that was never voted on */
    team_vote(team, 0, 3, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_TRANSFER);
    assert_int_equal(team_told(team, 0, 3, KVF_EVENT_RELEASED_LOCAL), 1);
    team_vote(team, 0, 9, RETIRE_DOOMED_FAILED, KVF_E_GROUP_LOST);
    assert_int_equal(team_told(team, 0, 9, KVF_EVENT_FAILED), 1);
    assert_int_equal(team_told(team, 0, 9, KVF_EVENT_RELEASED_LOCAL), 0);
    team_vote(team, 0, 9, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_GROUP_LOST);
    assert_int_equal(team_told(team, 0, 9, KVF_EVENT_RELEASED_LOCAL), 1);
    assert_int_equal(team_told(team, 0, 9, KVF_EVENT_FAILED), 1);
    assert_int_equal(team->ranks[0].refused, 0);
    team_close(team);
}

static void m_23_a_group_of_one_decides_in_the_call(void **state)
{
    struct sweep_team *team = open_team(1, 0);

    (void)state;
    team_vote(team, 0, 5, GOOD, KVF_OK);
    assert_int_equal(team_call(team, 0), KVF_OK);
    assert_int_equal(iteration_of(team, 0, 5, KVF_EVENT_READY), 0);
    assert_int_equal(iteration_of(team, 0, 5, KVF_EVENT_RELEASED), 0);
    team_close(team);
}

/* Ranks end in calls of their own pace; the last sweep is the one in which all are leaving. */
static void m_25_all_leave_after_the_same_sweep(void **state)
{
    struct sweep_team *team = open_team(3, 2);
    struct sweep_state look;

    (void)state;
    team_vote(team, 2, 5, RETIRE_DOOMED_FAILED, KVF_E_SHUTDOWN);
    team_rounds(team, 3);
    for (uint32_t r = 0; r < 3; r++) {
        team->ranks[r].iteration = SWEEP_ITERATION_OWN + 100 * r; /* not compared */
        team->ranks[r].flags = SWEEP_CLOSING | (r == 2 ? 0 : SWEEP_LEAVING);
    }
    for (int round = 0; round < 10; round++)
        for (uint32_t r = 0; r < 3; r++)
            team_call(team, r);
    for (uint32_t r = 0; r < 2; r++)
        team_vote(team, r, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_SHUTDOWN);
    team_vote(team, 2, 5, RETIRE_DOOMED_FAILED | RETIRE_DRAINED, KVF_E_SHUTDOWN);
    for (int round = 0; round < 10; round++)
        for (uint32_t r = 0; r < 3; r++) {
            if (team_told(team, r, 5, KVF_EVENT_RELEASED) == 1)
                team->ranks[r].flags = SWEEP_CLOSING | SWEEP_LEAVING;
            team_call(team, r);
        }
    for (uint32_t r = 0; r < 3; r++) {
        sweep_look(team->ranks[r].sweep, &look);
        assert_true(look.left);
        assert_int_equal(look.under_way, 0);
        assert_int_equal(look.cause, SWEEP_HEALTHY);
        assert_int_equal(fake_board_started(team->board, r), fake_board_started(team->board, 0));
        assert_int_equal(team_told(team, r, 5, KVF_EVENT_RELEASED), 1);
    }
    team_close(team);
}

/* Random skew, bursts, deaths. The number of schedules is the long form's with KVFTEST_LONG=1. */
static void random_schedule(uint64_t seed)
{
    struct test_random random = test_random_make(seed);
    const struct team_params params = {
        .ranks = 2 + (uint32_t)test_random_below(&random, 5),
        .side = KVF_GENERATION,
        .lag = (uint32_t)test_random_below(&random, 4),
        .entries_max = 512,
        .timeout_ns = T,
    };
    struct sweep_team *team = team_open(&params);
    uint32_t rids = 1 + (uint32_t)test_random_below(&random, 60);

    for (uint32_t step = 0; step < 30; step++) {
        uint32_t votes = (uint32_t)test_random_below(&random, 40);

        for (uint32_t v = 0; v < votes; v++) {
            uint32_t r = (uint32_t)test_random_below(&random, params.ranks);
            uint64_t rid = 1 + test_random_below(&random, rids);
            unsigned base = RETIRE_BASE(team->ranks[r].votes[rid]);
            unsigned next = base == 0                            ? (unsigned)RETIRE_DONE
                            : test_random_below(&random, 8) == 0 ? (unsigned)RETIRE_DOOMED_PEER
                                                                 : base;
            unsigned drained = test_random_below(&random, 2) == 0 ? RETIRE_DRAINED : 0;

            next = next < base ? base : next;
            if ((team->ranks[r].votes[rid] & RETIRE_DRAINED) == 0)
                team_vote(team, r, rid, next | drained, KVF_E_PEER_CANCELLED);
        }
        team->now_ns += test_random_below(&random, 100);
        team_round(team, &random);
        assert_true(team_alike(team));
    }
    for (uint32_t r = 0; r < params.ranks; r++)
        for (uint64_t rid = 1; rid <= rids; rid++)
            if ((team->ranks[r].votes[rid] & RETIRE_DRAINED) == 0)
                team_vote(team, r, rid, RETIRE_DOOMED_PEER | RETIRE_DRAINED, KVF_E_PEER_CANCELLED);
    for (uint32_t round = 0; round < 12 + 2 * params.lag; round++)
        team_round(team, &random);
    assert_true(team_alike(team));
    assert_int_equal(retire_live(sweep_table(team->ranks[0].sweep)), 0);
    for (uint64_t rid = 1; rid <= rids; rid++)
        assert_int_equal(team_told(team, 0, rid, KVF_EVENT_RELEASED), 1);
    team_close(team);
}

static void m_26_random_everything_is_alike_on_all_ranks(void **state)
{
    uint64_t seed = test_seed();
    uint32_t schedules = getenv("KVFTEST_LONG") != NULL ? 20000 : 200;

    (void)state;
    for (uint32_t s = 0; s < schedules; s++)
        random_schedule(seed + s);
}

static void m_27_empty_sweeps_then_a_burst_change_size_in_one_sweep(void **state)
{
    struct sweep_team *team = open_team(4, 1);
    struct sweep_state look[4];

    (void)state;
    team_rounds(team, 50);
    for (uint64_t rid = 1; rid <= 100; rid++)
        team_vote(team, 1, rid, GOOD, KVF_OK);
    for (int round = 0; round < 20; round++) {
        team_rounds(team, 1);
        for (uint32_t r = 0; r < 4; r++) {
            sweep_look(team->ranks[r].sweep, &look[r]);
            assert_int_equal(look[r].len_bytes, look[0].len_bytes);
        }
    }
    assert_int_equal(look[1].backlog, 0);
    team_close(team);
}

/* ---- rows that no scenario names ------------------------------------------------------------ */

static void a_slow_sweep_is_warned_of_and_ends_the_group_at_t(void **state)
{
    struct sweep_team *team = open_team(2, 1);
    const struct sweep_event known = {.kind = SWEEP_MEMBER,
                                      .u.member = {.rank = 1, .answers = true, .posted = 1}};

    (void)state;
    team_rounds(team, 1);
    assert_int_equal(team_call(team, 0), KVF_OK);
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    team_event(team, 0, &known);
    team->now_ns += 999;
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    assert_int_equal(team->ranks[0].warned, 0);
    team->now_ns += 1;
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    assert_int_equal(team->ranks[0].warned, 1);
    assert_string_equal(team->ranks[0].event, "W28");
    assert_non_null(strstr(team->ranks[0].text, "world rank 1 has not called"));
    team->now_ns += 6000; /* beyond the deadline, but it answers: it is only slow */
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    assert_int_equal(team->ranks[0].warned, 2);
    assert_int_equal(team_call(team, 1), KVF_OK);
    assert_int_equal(team_call(team, 0), KVF_OK); /* it recovers */
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    team->now_ns += T - 1;
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    team->now_ns += 1;
    assert_int_equal(team_call(team, 0), KVF_E_GROUP_LOST);
    assert_int_equal(cause_of(team, 0), SWEEP_LOST_STUCK);
    assert_non_null(strstr(team->ranks[0].text, "world rank 1"));
    team_close(team);
}

/* T below the time of the first warning: the deadline counts all the same. */
static void the_deadline_of_a_sweep_does_not_wait_for_its_warning(void **state)
{
    const struct team_params params = {
        .ranks = 2, .side = KVF_GENERATION, .lag = 1, .timeout_ns = 500};
    struct sweep_team *team = team_open(&params);

    (void)state;
    assert_int_equal(team_call(team, 0), KVF_OK);
    assert_int_equal(team_call(team, 0), KVF_AGAIN);
    team->now_ns += 500;
    assert_int_equal(team_call(team, 0), KVF_E_GROUP_LOST);
    assert_int_equal(cause_of(team, 0), SWEEP_LOST_STUCK);
    team_close(team);
}

static void a_failed_collective_loses_the_group(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    team_rounds(team, 2);
    fake_board_fail(team->board, 1, KVF_E_MPI);
    for (uint32_t r = 0; r < 3; r++)
        team_call(team, r);
    team_call(team, 0);
    assert_int_equal(cause_of(team, 1), SWEEP_LOST_MPI);
    assert_int_equal(cause_of(team, 0), SWEEP_LOST_TOLD);
    assert_int_equal(cause_of(team, 2), SWEEP_LOST_TOLD);
    team_close(team);
}

/* k9: nothing is lost in silence when the table is full: the group says so, alike. */
static void k9_a_full_table_is_said_on_all_ranks(void **state)
{
    const struct team_params params = {
        .ranks = 2, .side = KVF_GENERATION, .lag = 1, .entries_max = 8, .timeout_ns = T};
    struct sweep_team *team = team_open(&params);

    (void)state;
    for (uint64_t rid = 1; rid <= 8; rid++)
        team_vote(team, 0, rid, RETIRE_DONE, KVF_OK);
    team_rounds(team, 6);
    assert_int_equal(cause_of(team, 0), SWEEP_HEALTHY);
    team_vote(team, 0, 9, RETIRE_DONE, KVF_OK);
    for (int c = 0; c < 3; c++)
        for (uint32_t r = 0; r < 2; r++)
            team_call(team, r);
    for (uint32_t r = 0; r < 2; r++)
        assert_true(cause_of(team, r) == SWEEP_LOST_FULL || cause_of(team, r) == SWEEP_LOST_TOLD);
    team_close(team);
}

static void one_that_gives_up_is_heard_by_all_in_the_same_sweep(void **state)
{
    struct sweep_team *team = open_team(3, 1);

    (void)state;
    team_rounds(team, 2);
    team->ranks[1].flags = SWEEP_GIVING_UP;
    team_rounds(team, 1);
    team->ranks[1].flags = 0;
    for (int round = 0; round < 3; round++) {
        struct sweep_state look[3];

        for (uint32_t r = 0; r < 3; r++) {
            sweep_look(team->ranks[r].sweep, &look[r]);
            assert_int_equal(look[r].giving_up, round == 1);
        }
        team_rounds(team, 1);
    }
    team_close(team);
}

static void votes_beyond_room_are_refused_and_change_nothing(void **state)
{
    const struct sweep_params params = {
        .retire = {.side = KVF_GENERATION, .rank_count = 2, .entries_max = 8},
        .votes_max = 2,
        .lag = 1,
    };
    struct sweep_action actions[SWEEP_ACTIONS_MIN];
    struct sweep_event event = {.kind = SWEEP_VOTE,
                                .u.vote = {.rid = 1, .vote = RETIRE_DONE, .first = true}};
    struct sweep_out out = {.actions = actions, .max = SWEEP_ACTIONS_MIN};
    struct sweep *sweep;

    (void)state;
    assert_int_equal(sweep_open(kvf_heap_system(), &params, &sweep), KVF_OK);
    assert_int_equal(sweep_step(sweep, &event, &out), KVF_OK);
    assert_int_equal(sweep_step(sweep, &event, &out), KVF_OK);
    assert_int_equal(sweep_step(sweep, &event, &out), KVF_BUSY);
    event.kind = SWEEP_GATHERED; /* nothing is due */
    assert_int_equal(sweep_step(sweep, &event, &out), KVF_E_STATE);
    event.kind = SWEEP_WAITING;
    assert_int_equal(sweep_step(sweep, &event, &out), KVF_E_STATE);
    sweep_check(sweep);
    sweep_close(sweep);
}

static void open_fails_cleanly_at_each_allocation(void **state)
{
    const struct sweep_params params = {
        .retire = {.side = KVF_CONTEXT, .rank_count = 3, .entries_max = 8},
        .votes_max = 8,
        .lag = 3,
    };

    (void)state;
    for (uint64_t at = 1;; at++) {
        struct fail_heap heap;
        struct sweep *sweep = NULL;
        enum kvf_status status;

        fail_heap_init(&heap, at);
        status = sweep_open(&heap.heap, &params, &sweep);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            sweep_close(sweep);
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
        cmocka_unit_test(m_01_all_done_retire_in_one_iteration),
        cmocka_unit_test(m_02_the_slowest_decides),
        cmocka_unit_test(m_03_one_failure_stops_all),
        cmocka_unit_test(m_04_the_most_severe_reason_of_a_sweep_counts),
        cmocka_unit_test(m_05_decided_is_decided),
        cmocka_unit_test(m_06_a_rank_that_never_got_the_request_votes_absent_after_t),
        cmocka_unit_test(an_open_request_is_never_called_absent),
        cmocka_unit_test(a_request_that_is_opened_late_is_told_its_outcome),
        cmocka_unit_test(m_07_drained_ranks_close_alone_after_2_t),
        cmocka_unit_test(m_08_a_rank_that_is_not_drained_never_closes_alone),
        cmocka_unit_test(m_09_release_needs_everybody_drained),
        cmocka_unit_test(m_10_a_backlog_loses_nothing_and_keeps_its_order),
        cmocka_unit_test(m_11_a_rank_that_is_late_delays_the_others_by_again),
        cmocka_unit_test(m_12_a_skipped_call_is_found_in_one_sweep),
        cmocka_unit_test(m_13_a_turned_bit_is_found_with_both_digests),
        cmocka_unit_test(m_14_a_vote_that_is_repeated_gives_no_second_event),
        cmocka_unit_test(m_15_asked_that_is_withdrawn_as_it_is_agreed_is_not_agreed),
        cmocka_unit_test(m_16_groups_do_not_wait_for_each_other),
        cmocka_unit_test(m_17_no_stage_of_a_pipeline_blocks_on_a_later_one),
        cmocka_unit_test(m_18_bytes_follow_changes_and_not_live_requests),
        cmocka_unit_test(m_19_a_rank_that_wakes_up_late_applies_nothing),
        cmocka_unit_test(m_20_a_death_at_any_point_leaves_nobody_behind),
        cmocka_unit_test(m_21_a_loss_frees_by_local_proof_alone),
        cmocka_unit_test(m_23_a_group_of_one_decides_in_the_call),
        cmocka_unit_test(m_25_all_leave_after_the_same_sweep),
        cmocka_unit_test(m_26_random_everything_is_alike_on_all_ranks),
        cmocka_unit_test(m_27_empty_sweeps_then_a_burst_change_size_in_one_sweep),
        cmocka_unit_test(a_slow_sweep_is_warned_of_and_ends_the_group_at_t),
        cmocka_unit_test(the_deadline_of_a_sweep_does_not_wait_for_its_warning),
        cmocka_unit_test(a_failed_collective_loses_the_group),
        cmocka_unit_test(k9_a_full_table_is_said_on_all_ranks),
        cmocka_unit_test(one_that_gives_up_is_heard_by_all_in_the_same_sweep),
        cmocka_unit_test(votes_beyond_room_are_refused_and_change_nothing),
        cmocka_unit_test(open_fails_cleanly_at_each_allocation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
