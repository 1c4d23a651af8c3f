/* test_send_session.c - sessions, tasks and result queues of the context side, row by row. */
#include "testing.h"

#include <string.h>

#include "session_bench.h"

static struct bench bench; /* one test at a time */

/* Request 1 of group 0: both receivers have asked (tags 5, 6) and the last window is ready. */
static void open_sending(void)
{
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_window(&bench, 1, true);
    bench_forget(&bench);
}

/* The same, and rank 4 has its bytes. */
static void open_half_served(void)
{
    open_sending();
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100 aux 8\n");
}

static void release(enum session_decision decision, enum kvf_status code)
{
    assert_int_equal(bench_send_decide(&bench, 1, decision, code), KVF_OK);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    assert_int_equal(send_session_counts(bench.send)->live, 0);
    bench_expect(&bench, "");
}

/* ---- the ordinary way ----------------------------------------------------------------------- */

static void session_before_the_asks_is_served_as_they_come(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_window(&bench, 1, true);
    bench_expect(&bench, "");
    bench_ask(&bench, 5, 1, 6);
    bench_expect(&bench, "start task 0.1 rid 1 to 5 tag 6 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_ask(&bench, 4, 1, 5);
    bench_expect(&bench, "start task 1.1 rid 1 to 4 tag 5 slice 0 tokens 0-64 layers 0-2 last\n"
                         "vote rid 1 ASKED PENDING OK\n");
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100 aux 8\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last SUCCESS OK bytes 100 aux 8\n"
                         "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void unknown_destination_is_taken_from_the_first_ask(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, SESSION_GROUP_UNKNOWN);
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "vote rid 1 ASKED PENDING OK\n");
    bench_ask(&bench, 4, 1, 5); /* of another group */
    bench_expect(&bench, "log W08 message of a rank that has no say in the request rid 1 ranks 4\n"
                         "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_PROTOCOL\n");
    assert_int_equal(send_session_counts(bench.send)->wrong_peer, 1);
    bench_ask(&bench, 5, 2, 7); /* asked before the session */
    bench_send_open(&bench, 2, SESSION_GROUP_UNKNOWN);
    bench_expect(&bench, "");
    bench_ask(&bench, 4, 2, 8);
    bench_expect(&bench, "vote rid 2 ASKED PENDING OK\n");
    bench_close(&bench);
}

static void rank_that_serves_nobody_is_done_at_once(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 2);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK\n");
    assert_int_equal(bench_window(&bench, 1, true), KVF_OK);
    assert_int_equal(bench.slice, KVF_UNKNOWN);
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void windows_are_numbered_in_order_and_the_last_ends_the_request(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    assert_int_equal(bench_window(&bench, 1, false), KVF_OK);
    assert_int_equal(bench.slice, 0);
    bench_ask(&bench, 6, 1, 5);
    bench_forget(&bench);
    bench_window(&bench, 1, true);
    assert_int_equal(bench.slice, 1);
    bench_expect(&bench, "start task 1.1 rid 1 to 6 tag 5 slice 1 tokens 0-64 layers 0-2 last\n");
    assert_int_equal(bench_window(&bench, 1, true), KVF_E_STATE);
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK); /* out of order: not done yet */
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 1 last SUCCESS OK bytes 100 aux 8\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 SUCCESS OK bytes 100\n"
                         "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void window_waits_for_its_event(void **state)
{
    struct send_event event = {.kind = SEND_WINDOW,
                               .u.window = {.rid = 1, .window = {.last = true}}};

    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_forget(&bench);
    bench_send(&bench, event);
    bench_expect(&bench, "");
    bench_send(&bench, (struct send_event){.kind = SEND_WINDOW_READY, .u.ready = {1, 0}});
    assert_true(bench_saw(&bench, "start task 0.1 "));
    bench_close(&bench);
}

static void more_writes_than_places_wait_their_turn(void **state)
{
    struct send_params params;

    (void)state;
    bench_send_params(&params);
    params.tasks_max = 1;
    bench_open_send(&bench, &params);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_forget(&bench);
    bench_window(&bench, 1, true);
    bench_expect(&bench, "start task 0.1 rid 1 to 4 tag 5 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100 aux 8\n"
                         "start task 0.2 rid 1 to 5 tag 6 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_close(&bench);
}

static void same_ask_twice_begins_one_write(void **state)
{
    (void)state;
    open_sending();
    bench_ask(&bench, 4, 1, 5);
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->duplicates, 1);
    bench_close(&bench);
}

static void little_room_for_actions_gives_the_same_actions(void **state)
{
    char whole[BENCH_TRACE_BYTES];

    (void)state;
    open_sending();
    bench_send_cancel(&bench, 1);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_CANCELLED);
    memcpy(whole, bench.trace, sizeof(whole));
    bench_close(&bench);
    open_sending();
    bench.out_max = 1;
    bench_send_cancel(&bench, 1);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_CANCELLED);
    bench_expect(&bench, whole);
    bench_close(&bench);
}

/* ---- failures ------------------------------------------------------------------------------- */

static void failed_write_stops_the_others_and_everyone_gets_a_final(void **state)
{
    (void)state;
    open_sending();
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "log write failed rid 1 E_TRANSFER ranks 4\n"
                         "abort task 1.1\n"
                         "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_TRANSFER\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 FAILED E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER\n");
    assert_int_equal(send_session_counts(bench.send)->retained_blocks, 3);
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER\n");
    release(SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    assert_int_equal(send_session_counts(bench.send)->retained_blocks, 0);
    bench_close(&bench);
}

static void write_that_ends_well_after_the_end_is_reported_failed(void **state)
{
    (void)state;
    open_sending();
    bench_send_cancel(&bench, 1);
    bench_forget(&bench);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_CANCELLED\n");
    bench_close(&bench);
}

static void write_in_doubt_keeps_the_pages_until_it_settles(void **state)
{
    (void)state;
    open_half_served();
    bench_task(&bench, SEND_TASK_IN_DOUBT, 1, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "log write in doubt rid 1 E_TRANSFER ranks 5\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER bytes 100\n"
                         "to 5 REPORT rid 1 tag 6 slice 0 IN_DOUBT E_TRANSFER\n");
    bench_send_decide(&bench, 1, SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_E_STATE);
    assert_int_equal(send_session_counts(bench.send)->doubts, 1);
    bench_expect(&bench, "");
    bench_task(&bench, SEND_TASK_SETTLED, 1, 1, KVF_OK);
    bench_expect(&bench, "to 5 SETTLED rid 1 tag 6 slice 0 E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER bytes 100\n");
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

static void doubt_after_the_end_is_told_and_holds_the_final(void **state)
{
    (void)state;
    open_sending();
    bench_send_cancel(&bench, 1);
    bench_forget(&bench);
    bench_task(&bench, SEND_TASK_IN_DOUBT, 0, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 IN_DOUBT E_TRANSFER\n");
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_CANCELLED\n");
    bench_task(&bench, SEND_TASK_SETTLED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 4 SETTLED rid 1 tag 5 slice 0 E_CANCELLED\n"
                         "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

static void settled_waits_for_the_other_slices_of_its_receiver(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_window(&bench, 1, false);
    bench_window(&bench, 1, true);
    bench_task(&bench, SEND_TASK_IN_DOUBT, 0, 1, KVF_E_TRANSFER);
    bench_forget(&bench);
    bench_task(&bench, SEND_TASK_SETTLED, 0, 1, KVF_OK); /* slice 1 still runs */
    bench_expect(&bench, "");
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 6 SETTLED rid 1 tag 5 slice 0 E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER\n");
    bench_close(&bench);
}

static void final_follows_the_slices_that_arrived_and_names_another(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_window(&bench, 1, false);
    bench_window(&bench, 1, false);
    bench_forget(&bench);
    bench.out_max = 1;
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 1 SUCCESS OK bytes 100\n"
                         "log write failed rid 1 E_TRANSFER ranks 6\n"
                         "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER bytes 100\n");
    bench_close(&bench);
}

static void bad_end_without_running_writes_gives_all_receivers_their_final(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_window(&bench, 1, false);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_ask(&bench, 5, 1, 6);
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_forget(&bench);
    bench_send_cancel(&bench, 1);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 1 last FAILED E_CANCELLED\n"
                         "to 5 REPORT rid 1 tag 6 slice 1 last FAILED E_CANCELLED\n"
                         "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED bytes 200\n");
    bench_close(&bench);
}

static void refused_ask_of_a_needed_receiver_ends_the_request(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 5, 1, 6);
    bench_ask_checked(&bench, 4, 1, 5, KVF_E_REQ_BLOCKS);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_REQ_BLOCKS\n"
                         "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_REQ_BLOCKS\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_REQ_BLOCKS culprit 4\n");
    bench_close(&bench);
}

static void late_asks_of_an_ended_request_fail_at_once(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_send_cancel(&bench, 1);
    bench_forget(&bench);
    bench_ask(&bench, 5, 1, 6);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_CANCELLED\n");
    bench_ask(&bench, 4, 1, 5); /* served: the same again */
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_CANCELLED\n");
    bench_ask(&bench, 4, 1, 7); /* another tag */
    bench_expect(&bench, "to 4 REPORT rid 1 tag 7 slice 0 last FAILED E_CANCELLED\n");
    bench_close(&bench);
}

/* ---- cancels -------------------------------------------------------------------------------- */

static void engine_cancel_leaves_the_done_aborts_the_running_ends_the_waiting(void **state)
{
    struct send_params params;

    (void)state;
    bench_send_params(&params);
    params.tasks_max = 1;
    bench_open_send(&bench, &params);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_window(&bench, 1, true);
    bench_ask(&bench, 5, 1, 6); /* waits for a place */
    bench_forget(&bench);
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_OK);
    bench_expect(&bench, "abort task 0.1\n"
                         "to 4 SESSION_CANCELLED rid 1 tag 5 ENGINE E_CANCELLED\n"
                         "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_CANCELLED\n"
                         "vote rid 1 DOOMED_USER CANCELLED E_CANCELLED\n");
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_OK); /* twice */
    bench_expect(&bench, "");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_CANCELLED\n"
                         "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_OK);
    release(SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_OK); /* after the end */
    assert_int_equal(bench_send_cancel(&bench, 99), KVF_E_NOTFOUND);
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void engine_cancel_keeps_the_success_of_a_served_receiver(void **state)
{
    (void)state;
    open_half_served();
    bench_send_cancel(&bench, 1);
    bench_expect(&bench, "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 ENGINE E_CANCELLED\n"
                         "vote rid 1 DOOMED_USER CANCELLED E_CANCELLED bytes 100\n");
    bench_close(&bench);
}

static void cancel_after_sent_changes_nothing(void **state)
{
    (void)state;
    open_half_served();
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_forget(&bench);
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_OK);
    bench_expect(&bench, "");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100\n");
    bench_send_peer(&bench, SEND_PEER_LOST, 5, 0);
    bench_expect(&bench, "");
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void group_may_still_fail_what_was_sent(void **state)
{
    struct session_result result;

    (void)state;
    open_half_served();
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_forget(&bench);
    bench_send_decide(&bench, 1, SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    assert_int_equal(send_session_result(bench.send, 1, &result), KVF_OK);
    assert_int_equal(result.outcome, SESSION_FAILED);
    assert_int_equal(result.status, KVF_E_TRANSFER);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_OK, KVF_OK), KVF_E_STATE);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK),
                     KVF_E_NOTFOUND);
    bench_forget(&bench);
    bench_ask(&bench, 6, 1, 9);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 9 slice 0 last FAILED E_TRANSFER\n");
    bench_close(&bench);
}

static void receivers_cancel_is_answered_by_its_final_when_a_write_was_due(void **state)
{
    (void)state;
    open_sending();
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "abort task 0.1\n"
                         "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 RECEIVER E_PEER_CANCELLED\n"
                         "vote rid 1 DOOMED_PEER CANCELLED E_PEER_CANCELLED culprit 4\n");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER); /* its final is on the way */
    bench_expect(&bench, "");
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_PEER_CANCELLED\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_CANCELLED);
    assert_true(bench_saw(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_PEER_CANCELLED"));
    bench_forget(&bench);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER); /* served: repeated */
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_PEER_CANCELLED\n");
    bench_close(&bench);
}

static void receivers_cancel_is_quiesced_when_no_write_was_due(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_forget(&bench);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n"
                         "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_PEER_CANCELLED\n"
                         "vote rid 1 DOOMED_PEER+DRAINED CANCELLED E_PEER_CANCELLED culprit 4\n");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER); /* asked again, answered again */
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 2\n");
    bench_close(&bench);
}

static void cancel_of_a_receiver_that_never_asked_ends_the_request(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_cancel_message(&bench, 5, 1, 6, MSG_CANCEL_FAILED);
    bench_expect(&bench, "vote rid 1 DOOMED_PEER+DRAINED CANCELLED E_PEER_CANCELLED culprit 5\n"
                         "to 5 QUIESCED rid 1 tag 6 id 1\n");
    bench_close(&bench);
}

static void cancel_of_a_served_receiver_ends_the_rest_and_repeats_its_success(void **state)
{
    (void)state;
    open_half_served();
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_FAILED);
    bench_expect(&bench, "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 RECEIVER E_PEER_CANCELLED\n"
                         "vote rid 1 DOOMED_PEER CANCELLED E_PEER_CANCELLED bytes 100 culprit 4\n"
                         "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100\n");
    bench_close(&bench);
}

static void cancel_of_an_outsider_is_answered_and_changes_nothing(void **state)
{
    (void)state;
    open_sending();
    bench_cancel_message(&bench, 6, 1, 9, MSG_CANCEL_USER);
    bench_expect(&bench, "log W08 message of a rank that has no say in the request rid 1 ranks 6\n"
                         "to 6 QUIESCED rid 1 tag 9 id 1\n");
    bench_cancel_message(&bench, 6, 1, 9, MSG_CANCEL_USER); /* logged once a second */
    bench_expect(&bench, "to 6 QUIESCED rid 1 tag 9 id 2\n");
    assert_int_equal(send_session_counts(bench.send)->wrong_peer, 2);
    bench_close(&bench);
}

static void cancel_of_a_stale_tag_changes_nothing(void **state)
{
    (void)state;
    open_sending();
    bench_cancel_message(&bench, 4, 1, 4, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 4 id 1\n");
    bench_close(&bench);
}

static void end_forgets_an_unserved_receiver_and_takes_asked_back(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_expect(&bench, "vote rid 1 ASKED PENDING OK\n");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_END);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n"
                         "vote rid 1 WITHDRAWN PENDING OK\n");
    bench_window(&bench, 1, true);
    bench_expect(&bench, "start task 0.1 rid 1 to 5 tag 6 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_close(&bench);
}

static void end_of_a_receiver_that_is_being_written_is_a_cancel(void **state)
{
    (void)state;
    open_sending();
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_END);
    assert_true(bench_saw(&bench, "abort task 0.1"));
    assert_false(bench_saw(&bench, "QUIESCED"));
    bench_close(&bench);
}

static void second_tag_is_refused_while_the_first_is_written(void **state)
{
    (void)state;
    open_sending();
    bench_ask(&bench, 4, 1, 7);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 7 slice 0 last FAILED E_PROTOCOL\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100 aux 8\n");
    bench_close(&bench);
}

static void second_tag_replaces_the_first_while_nothing_is_due(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_forget(&bench);
    bench_ask(&bench, 6, 1, 7);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_SUPERSEDED\n");
    bench_window(&bench, 1, true);
    bench_expect(&bench, "start task 0.1 rid 1 to 6 tag 7 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_close(&bench);
}

static void cancel_of_one_request_leaves_another_alone(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_send_open(&bench, 2, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_ask(&bench, 6, 2, 6);
    bench_window(&bench, 1, true);
    bench_window(&bench, 2, true);
    bench_forget(&bench);
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_USER);
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    assert_true(bench_saw(&bench, "to 6 REPORT rid 2 tag 6 slice 0 last SUCCESS"));
    bench_close(&bench);
}

static void shutdown_cancels_all_and_closes_the_door(void **state)
{
    (void)state;
    open_half_served();
    bench_send(&bench,
               (struct send_event){.kind = SEND_CANCEL_ALL, .u.cancel = {.code = KVF_E_SHUTDOWN}});
    bench_expect(&bench, "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 FAILED E_SHUTDOWN\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_SHUTDOWN bytes 100\n");
    assert_int_equal(bench_send_open(&bench, 2, 0), KVF_E_CLOSED);
    bench_close(&bench);
}

/* ---- peers and timers ----------------------------------------------------------------------- */

static void lost_receiver_fails_the_request_and_is_told_nothing(void **state)
{
    (void)state;
    open_sending();
    bench_send_peer(&bench, SEND_PEER_LOST, 4, 0);
    bench_expect(&bench, "abort task 0.1\n"
                         "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 FAILED E_PEER_LOST\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_PEER_LOST culprit 4\n");
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 6 slice 0 last FAILED E_PEER_LOST\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_PEER_LOST);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 4\n");
    release(SESSION_DECIDED_FAILED, KVF_E_PEER_LOST);
    bench_close(&bench);
}

static void receiver_lost_before_it_asked_fails_the_request(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_send_peer(&bench, SEND_PEER_CLOSED, 5, 0);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_CLOSED culprit 5\n");
    bench_send_open(&bench, 2, 0); /* opened after the loss */
    bench_expect(&bench, "vote rid 2 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 5\n");
    bench_send_open(&bench, 3, SESSION_GROUP_UNKNOWN);
    bench_ask(&bench, 4, 3, 8);
    assert_true(bench_saw(&bench, "to 4 REPORT rid 3 tag 8 slice 0 last FAILED E_PEER_LOST"));
    bench_close(&bench);
}

static void rank_that_was_only_stopped_gets_its_final_after_it_returns(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_window(&bench, 1, true);
    bench_send_peer(&bench, SEND_PEER_LOST, 6, 0);
    bench_send_peer(&bench, SEND_PEER_UP, 6, BENCH_EPOCH(6)); /* the same life */
    bench_forget(&bench);
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_FAILED);
    bench_expect(&bench, ""); /* a write still runs */
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_CANCELLED);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_PEER_LOST\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 6\n");
    bench_close(&bench);
}

static void new_life_of_a_receiver_is_another_receiver(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 1);
    bench_ask(&bench, 6, 1, 5);
    bench_window(&bench, 1, true);
    bench_send_peer(&bench, SEND_PEER_UP, 6, 77); /* its write still runs */
    bench_forget(&bench);
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_PEER_LOST\n");
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 6 QUIESCED rid 1 tag 5 id 1\n");
    bench.epoch[6] = BENCH_EPOCH(6); /* the old life is not heard any more */
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_E_PEER_LOST);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 6\n");
    bench_close(&bench);
}

static void report_that_waits_goes_with_its_lost_receiver(void **state)
{
    (void)state;
    open_half_served();
    bench_ask(&bench, 4, 9, 8);
    bench_ask(&bench, 6, 9, 9);
    bench.out_max = 1;
    bench.hold = true;
    bench_cancel_message(&bench, 6, 9, 9, MSG_CANCEL_USER); /* two answers, one waits */
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench.hold = false;
    bench_forget(&bench);
    bench_send_peer(&bench, SEND_PEER_LOST, 5, 0);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void other_prompt_length_is_refused_before_and_after_the_session_opens(void **state)
{
    static const uint32_t slots[] = {1};
    static const struct kvf_block_list lists[] = {{0, 1, slots}};
    struct send_event event = {.kind = SEND_OPEN,
                               .u.open = {.rid = 1,
                                          .prompt_tokens = BENCH_TOKENS + 1,
                                          .group = 0,
                                          .list_count = 1,
                                          .lists = lists}};

    (void)state;
    bench_open_send(&bench, NULL);
    bench_send(&bench, event);
    bench_ask(&bench, 4, 1, 5);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 5 slice 0 last FAILED E_PROTOCOL\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PROTOCOL culprit 4\n");
    bench_ask(&bench, 4, 2, 6);
    event.u.open.rid = 2;
    bench_send(&bench, event);
    bench_expect(&bench, "to 4 REPORT rid 2 tag 6 slice 0 last FAILED E_PROTOCOL\n"
                         "vote rid 2 DOOMED_FAILED+DRAINED FAILED E_PROTOCOL\n");
    bench_close(&bench);
}

static void unasked_request_fails_t_after_its_last_window(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send_open(&bench, 1, 0);
    bench_window(&bench, 1, false);
    bench_pass(&bench, 2 * BENCH_T);
    bench_expect(&bench, "");
    bench_window(&bench, 1, true);
    bench_pass(&bench, BENCH_T - 1);
    bench_expect(&bench, "");
    bench_pass(&bench, 1);
    bench_expect(&bench, "log W36 no receiver asked in time rid 1 E_TIMEOUT\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TIMEOUT\n");
    bench_close(&bench);
}

static void request_fails_t_after_its_first_write_began(void **state)
{
    (void)state;
    open_half_served();
    bench_pass(&bench, BENCH_T - 1);
    bench_expect(&bench, "");
    bench_pass(&bench, 1);
    bench_expect(&bench, "log W36 receivers did not finish in time rid 1 E_TIMEOUT\n"
                         "log W24 a write is still running rid 1 ranks 5\n"
                         "abort task 1.1\n"
                         "to 5 SESSION_CANCELLED rid 1 tag 6 FAILED E_TIMEOUT\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TIMEOUT bytes 100\n");
    bench_close(&bench);
}

static void running_write_is_warned_of_every_t_and_nothing_ends(void **state)
{
    (void)state;
    open_half_served();
    bench_send_cancel(&bench, 1);
    bench_forget(&bench);
    for (unsigned i = 0; i < 3; i++) {
        bench_pass(&bench, BENCH_T);
        bench_expect(&bench, "log W24 a write is still running rid 1 ranks 5\n");
    }
    assert_int_equal(send_session_counts(bench.send)->tasks, 1);
    bench_close(&bench);
}

/* ---- bounds and strays ---------------------------------------------------------------------- */

static void full_tables_are_busy_and_leave_nothing_behind(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    for (uint64_t rid = 1; rid <= 8; rid++)
        assert_int_equal(bench_send_open(&bench, rid, 0), KVF_OK);
    assert_int_equal(bench_send_open(&bench, 9, 0), KVF_BUSY);
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(bench_window(&bench, 1, false), KVF_OK);
    assert_int_equal(bench_window(&bench, 1, false), KVF_BUSY);
    assert_int_equal(bench_window(&bench, 99, false), KVF_E_NOTFOUND);
    bench_close(&bench);
}

static void peer_whose_answers_overflow_is_to_be_lost(void **state)
{
    struct send_params params;

    (void)state;
    bench_send_params(&params);
    params.answers_max = 1;
    bench_open_send(&bench, &params);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_cancel_message(&bench, 6, 1, 9, MSG_CANCEL_USER); /* one step, three answers */
    bench_expect(&bench, "to 6 QUIESCED rid 1 tag 9 id 1\n"
                         "lose peer 4\n"
                         "lose peer 5\n");
    bench_send_peer(&bench, SEND_PEER_LOST, 4, 0);
    bench_send_peer(&bench, SEND_PEER_LOST, 5, 0);
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void events_that_no_row_lists_are_counted_and_ignored(void **state)
{
    struct msg msg = {.header = {.type = MSG_REPORT, .epoch = BENCH_EPOCH(4)}};

    (void)state;
    open_half_served();
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK); /* ended before */
    bench_task(&bench, SEND_TASK_ENDED, 1, 2, KVF_OK); /* never was */
    bench_task(&bench, SEND_TASK_ENDED, 1000, 1, KVF_OK);
    bench_task(&bench, SEND_TASK_SETTLED, 1, 1, KVF_OK); /* was not in doubt */
    bench_send(&bench, (struct send_event){.kind = SEND_MESSAGE, .u.message = {4, &msg, KVF_OK}});
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->unexpected_events, 5);
    send_session_close(bench.send);
}

static void description_says_what_a_request_waits_for(void **state)
{
    struct send_description it;
    const void *cursor = NULL;

    (void)state;
    open_half_served();
    bench_send_open(&bench, 2, 0);
    assert_true(send_session_describe(bench.send, &cursor, &it));
    assert_int_equal(it.rid, 1);
    assert_string_equal(it.state, "SENDING");
    assert_string_equal(it.waiting, "running writes");
    assert_int_equal(it.receiver_count, 2);
    assert_string_equal(it.receiver[0].state, "done");
    assert_string_equal(it.receiver[1].state, "sending");
    assert_true(send_session_describe(bench.send, &cursor, &it));
    assert_string_equal(it.state, "OPEN");
    assert_string_equal(it.waiting, "an ask");
    assert_false(send_session_describe(bench.send, &cursor, &it));
    bench_close(&bench);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_before_the_asks_is_served_as_they_come),
        cmocka_unit_test(unknown_destination_is_taken_from_the_first_ask),
        cmocka_unit_test(rank_that_serves_nobody_is_done_at_once),
        cmocka_unit_test(windows_are_numbered_in_order_and_the_last_ends_the_request),
        cmocka_unit_test(window_waits_for_its_event),
        cmocka_unit_test(more_writes_than_places_wait_their_turn),
        cmocka_unit_test(same_ask_twice_begins_one_write),
        cmocka_unit_test(little_room_for_actions_gives_the_same_actions),
        cmocka_unit_test(failed_write_stops_the_others_and_everyone_gets_a_final),
        cmocka_unit_test(write_that_ends_well_after_the_end_is_reported_failed),
        cmocka_unit_test(write_in_doubt_keeps_the_pages_until_it_settles),
        cmocka_unit_test(doubt_after_the_end_is_told_and_holds_the_final),
        cmocka_unit_test(settled_waits_for_the_other_slices_of_its_receiver),
        cmocka_unit_test(final_follows_the_slices_that_arrived_and_names_another),
        cmocka_unit_test(bad_end_without_running_writes_gives_all_receivers_their_final),
        cmocka_unit_test(refused_ask_of_a_needed_receiver_ends_the_request),
        cmocka_unit_test(late_asks_of_an_ended_request_fail_at_once),
        cmocka_unit_test(engine_cancel_leaves_the_done_aborts_the_running_ends_the_waiting),
        cmocka_unit_test(engine_cancel_keeps_the_success_of_a_served_receiver),
        cmocka_unit_test(cancel_after_sent_changes_nothing),
        cmocka_unit_test(group_may_still_fail_what_was_sent),
        cmocka_unit_test(receivers_cancel_is_answered_by_its_final_when_a_write_was_due),
        cmocka_unit_test(receivers_cancel_is_quiesced_when_no_write_was_due),
        cmocka_unit_test(cancel_of_a_receiver_that_never_asked_ends_the_request),
        cmocka_unit_test(cancel_of_a_served_receiver_ends_the_rest_and_repeats_its_success),
        cmocka_unit_test(cancel_of_an_outsider_is_answered_and_changes_nothing),
        cmocka_unit_test(cancel_of_a_stale_tag_changes_nothing),
        cmocka_unit_test(end_forgets_an_unserved_receiver_and_takes_asked_back),
        cmocka_unit_test(end_of_a_receiver_that_is_being_written_is_a_cancel),
        cmocka_unit_test(second_tag_is_refused_while_the_first_is_written),
        cmocka_unit_test(second_tag_replaces_the_first_while_nothing_is_due),
        cmocka_unit_test(cancel_of_one_request_leaves_another_alone),
        cmocka_unit_test(shutdown_cancels_all_and_closes_the_door),
        cmocka_unit_test(lost_receiver_fails_the_request_and_is_told_nothing),
        cmocka_unit_test(receiver_lost_before_it_asked_fails_the_request),
        cmocka_unit_test(rank_that_was_only_stopped_gets_its_final_after_it_returns),
        cmocka_unit_test(new_life_of_a_receiver_is_another_receiver),
        cmocka_unit_test(report_that_waits_goes_with_its_lost_receiver),
        cmocka_unit_test(other_prompt_length_is_refused_before_and_after_the_session_opens),
        cmocka_unit_test(unasked_request_fails_t_after_its_last_window),
        cmocka_unit_test(request_fails_t_after_its_first_write_began),
        cmocka_unit_test(running_write_is_warned_of_every_t_and_nothing_ends),
        cmocka_unit_test(full_tables_are_busy_and_leave_nothing_behind),
        cmocka_unit_test(peer_whose_answers_overflow_is_to_be_lost),
        cmocka_unit_test(events_that_no_row_lists_are_counted_and_ignored),
        cmocka_unit_test(description_says_what_a_request_waits_for),
    };

    return cmocka_run_group_tests_name("send_session", tests, NULL, NULL);
}
