/* test_send_record.c - what a context rank remembers of a request, row by row of the table. */
#include "testing.h"

#include "fail_heap.h"
#include "session_bench.h"

#define LIVE_GROUP 0u

static struct bench bench; /* one test at a time */

/* A request of group 1 that was sent to rank 6 and is over: outcome OK. */
static void end_well(uint64_t rid, uint32_t tag)
{
    bench_send_open(&bench, rid, 1);
    bench_window(&bench, rid, true);
    bench_ask(&bench, 6, rid, tag);
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    assert_int_equal(bench_send_decide(&bench, rid, SESSION_DECIDED_OK, KVF_OK), KVF_OK);
    assert_int_equal(bench_send_decide(&bench, rid, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_forget(&bench);
}

/* A request of group 0 that the engine cancelled before anybody asked: over, outcome bad. */
static void end_badly(uint64_t rid)
{
    bench_send_open(&bench, rid, LIVE_GROUP);
    bench_send_cancel(&bench, rid);
    assert_int_equal(bench_send_decide(&bench, rid, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED),
                     KVF_OK);
    assert_int_equal(bench_send_decide(&bench, rid, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_forget(&bench);
}

static void ask_before_the_session_is_served_when_it_opens(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->asked, 1);
    assert_int_equal(bench_send_open(&bench, 1, 1), KVF_OK);
    bench_expect(&bench, "vote rid 1 ASKED PENDING OK\n");
    bench_window(&bench, 1, true);
    bench_expect(&bench, "start task 0.1 rid 1 to 6 tag 5 slice 0 tokens 0-64 layers 0-2 last\n");
    bench_task(&bench, SEND_TASK_ENDED, 0, 1, KVF_OK);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100 aux 8\n"
                         "vote rid 1 DONE+DRAINED OK OK bytes 100\n");
    bench_close(&bench);
}

static void ask_that_does_not_fit_is_refused_at_once_and_logged_once(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_send(&bench, (struct send_event){.kind = SEND_PEER_UP,
                                           .u.peer = {6, BENCH_EPOCH(6), KVF_E_VIEW_LAYERS}});
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "log W27 peer's cache does not fit rid 1 E_VIEW_LAYERS ranks 6\n"
                         "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_VIEW_LAYERS\n");
    bench_ask(&bench, 6, 2, 6);
    bench_expect(&bench, "to 6 REPORT rid 2 tag 6 slice 0 last FAILED E_VIEW_LAYERS\n");
    bench_ask_checked(&bench, 4, 3, 7, KVF_E_LEGACY_REQUEST);
    assert_true(bench_saw(&bench, "log W25 "));
    bench_forget(&bench);
    bench_ask_checked(&bench, 4, 3, 8, KVF_E_LEGACY_REQUEST);
    bench_expect(&bench, "to 4 REPORT rid 3 tag 8 slice 0 last FAILED E_LEGACY_REQUEST\n");
    bench_ask_checked(&bench, 4, 3, 9, KVF_E_PROTOCOL);
    bench_expect(&bench, "to 4 REPORT rid 3 tag 9 slice 0 last FAILED E_PROTOCOL\n");
    assert_int_equal(send_session_counts(bench.send)->asked, 0);
    bench_close(&bench);
}

static void cancel_before_anything_fences_the_request(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 2\n");
    bench_ask(&bench, 4, 1, 6);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 6 slice 0 last FAILED E_CANCELLED\n");
    assert_int_equal(bench_send_open(&bench, 1, LIVE_GROUP), KVF_OK);
    bench_expect(&bench, "vote rid 1 DOOMED_PEER+DRAINED CANCELLED E_PEER_CANCELLED\n");
    assert_int_equal(bench_window(&bench, 1, true), KVF_OK);
    bench_ask(&bench, 5, 1, 3);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 3 slice 0 last FAILED E_PEER_CANCELLED\n");
    bench_send_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_PEER_CANCELLED);
    assert_int_equal(bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

static void cancel_with_reason_end_leaves_no_fence_but_a_tombstone(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_END);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n");
    bench_ask(&bench, 5, 1, 9);
    bench_expect(&bench, "to 5 REPORT rid 1 tag 9 slice 0 last FAILED E_GONE\n");
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_E_NOTFOUND);
    assert_int_equal(bench_send_open(&bench, 1, LIVE_GROUP), KVF_E_EXISTS);
    bench_close(&bench);
}

static void same_ask_twice_is_one_ask(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 6, 1, 5);
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->duplicates, 1);
    bench_send_open(&bench, 1, 1);
    bench_window(&bench, 1, true);
    assert_true(bench_saw(&bench, "start task 0.1 "));
    assert_false(bench_saw(&bench, "start task 1.1 "));
    bench_close(&bench);
}

static void newer_tag_replaces_the_older_before_the_session(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 6, 1, 5);
    bench_ask(&bench, 6, 1, 6);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last FAILED E_SUPERSEDED\n");
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_USER); /* late, of the old tag */
    bench_expect(&bench, "to 6 QUIESCED rid 1 tag 5 id 1\n");
    bench_send_open(&bench, 1, 1);
    bench_window(&bench, 1, true);
    assert_true(bench_saw(&bench, "start task 0.1 rid 1 to 6 tag 6 "));
    bench_close(&bench);
}

static void cancel_of_a_waiting_request_answers_all_receivers(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 7);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_FAILED);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n"
                         "to 5 REPORT rid 1 tag 7 slice 0 last FAILED E_PEER_CANCELLED\n");
    bench_send_open(&bench, 1, LIVE_GROUP);
    bench_expect(&bench, "vote rid 1 DOOMED_PEER+DRAINED CANCELLED E_PEER_CANCELLED\n");
    bench_close(&bench);
}

static void cancel_of_a_waiting_request_by_one_who_never_asked_fences_it_too(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 5, 1, 7);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_GROUP);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n"
                         "to 5 REPORT rid 1 tag 7 slice 0 last FAILED E_PEER_CANCELLED\n");
    assert_int_equal(send_session_counts(bench.send)->fenced, 1);
    bench_close(&bench);
}

static void end_drops_one_waiting_receiver_at_a_time(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 7);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_END);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n");
    assert_int_equal(send_session_counts(bench.send)->asked, 1);
    bench_cancel_message(&bench, 5, 1, 7, MSG_CANCEL_END);
    bench_expect(&bench, "to 5 QUIESCED rid 1 tag 7 id 2\n");
    assert_int_equal(send_session_counts(bench.send)->tombstones, 1);
    bench_ask(&bench, 4, 1, 8);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 8 slice 0 last FAILED E_GONE\n");
    bench_close(&bench);
}

static void waiting_asks_are_swept_quietly_and_a_cancel_is_still_answered(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    bench_pass(&bench, BENCH_S);
    bench_ask(&bench, 5, 1, 6); /* counts from the first ask */
    bench_pass(&bench, BENCH_TTL - BENCH_S - 1);
    assert_int_equal(send_session_counts(bench.send)->asked, 1);
    bench_pass(&bench, 1);
    assert_int_equal(send_session_counts(bench.send)->asked, 0);
    bench_expect(&bench, "");
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 5 id 1\n");
    bench_close(&bench);
}

static void fences_and_tombstones_are_swept(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_cancel_message(&bench, 4, 1, 5, MSG_CANCEL_USER);
    end_well(2, 6);
    assert_int_equal(send_session_deadline_ns(bench.send), bench.now_ns + BENCH_TTL);
    bench_pass(&bench, BENCH_TTL - 1);
    assert_int_equal(send_session_counts(bench.send)->fenced, 1);
    assert_int_equal(send_session_counts(bench.send)->tombstones, 1);
    bench_pass(&bench, 1);
    assert_int_equal(send_session_counts(bench.send)->fenced, 0);
    assert_int_equal(send_session_counts(bench.send)->tombstones, 0);
    assert_int_equal(send_session_deadline_ns(bench.send), UINT64_MAX);
    assert_int_equal(bench_send_cancel(&bench, 2), KVF_E_NOTFOUND);
    bench_close(&bench);
}

static void late_ask_after_success_is_answered_gone(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    end_well(1, 5);
    bench_ask(&bench, 4, 1, 9);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 9 slice 0 last FAILED E_GONE\n");
    bench_cancel_message(&bench, 4, 1, 9, MSG_CANCEL_USER);
    bench_expect(&bench, "to 4 QUIESCED rid 1 tag 9 id 1\n");
    bench_close(&bench);
}

static void late_ask_after_failure_is_answered_with_its_code(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    end_badly(1);
    bench_ask(&bench, 4, 1, 9);
    bench_expect(&bench, "to 4 REPORT rid 1 tag 9 slice 0 last FAILED E_CANCELLED\n");
    bench_close(&bench);
}

static void served_ask_and_cancel_after_the_end_repeat_the_report(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    end_well(1, 5);
    bench_ask(&bench, 6, 1, 5);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100\n");
    bench_cancel_message(&bench, 6, 1, 5, MSG_CANCEL_USER);
    bench_expect(&bench, "to 6 REPORT rid 1 tag 5 slice 0 last SUCCESS OK bytes 100\n");
    bench_ask(&bench, 6, 1, 6); /* another tag was not served */
    bench_expect(&bench, "to 6 REPORT rid 1 tag 6 slice 0 last FAILED E_GONE\n");
    bench_close(&bench);
}

static void request_id_is_not_used_again_while_remembered(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    assert_int_equal(bench_send_open(&bench, 1, LIVE_GROUP), KVF_OK);
    assert_int_equal(bench_send_open(&bench, 1, 1), KVF_E_EXISTS); /* live: undisturbed */
    bench_send_cancel(&bench, 1);
    bench_send_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    bench_send_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK);
    assert_int_equal(bench_send_open(&bench, 1, LIVE_GROUP), KVF_E_EXISTS);
    bench_pass(&bench, BENCH_TTL);
    assert_int_equal(bench_send_open(&bench, 1, LIVE_GROUP), KVF_OK);
    bench_close(&bench);
}

static void tombstones_are_bounded_and_the_oldest_goes(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    for (uint64_t rid = 1; rid <= 9; rid++)
        end_badly(rid);
    assert_int_equal(send_session_counts(bench.send)->tombstones, 8);
    assert_int_equal(send_session_counts(bench.send)->evicted, 1);
    assert_int_equal(bench_send_cancel(&bench, 1), KVF_E_NOTFOUND);
    assert_int_equal(bench_send_cancel(&bench, 2), KVF_OK);
    bench_ask(&bench, 4, 1, 5); /* unknown again: waits */
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void served_receivers_are_bounded_and_still_answered(void **state)
{
    struct send_params params;

    (void)state;
    bench_send_params(&params);
    params.served_max = 1;
    bench_open_send(&bench, &params);
    end_well(1, 5);
    bench_send_open(&bench, 2, 1);
    bench_window(&bench, 2, true);
    bench_ask(&bench, 6, 2, 6);
    bench_task(&bench, SEND_TASK_ENDED, 1, 1, KVF_OK);
    bench_send_decide(&bench, 2, SESSION_DECIDED_OK, KVF_OK);
    bench_send_decide(&bench, 2, SESSION_DECIDED_RELEASED, KVF_OK);
    bench_forget(&bench);
    assert_int_equal(send_session_counts(bench.send)->tombstones, 1); /* the first made room */
    bench_ask(&bench, 6, 2, 6);
    bench_expect(&bench, "to 6 REPORT rid 2 tag 6 slice 0 last SUCCESS OK bytes 100\n");
    bench_close(&bench);
}

static void full_tables_refuse_asks_and_still_answer_cancels(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    for (uint64_t rid = 1; rid <= 8; rid++)
        bench_ask(&bench, 4, rid, (uint32_t)rid);
    bench_expect(&bench, "");
    bench_ask(&bench, 4, 9, 9);
    bench_expect(&bench, "to 4 REPORT rid 9 tag 9 slice 0 last FAILED E_NO_SESSION\n");
    for (uint64_t rid = 9; rid <= 17; rid++) { /* fences have their own places: the oldest goes */
        bench_cancel_message(&bench, 4, rid, (uint32_t)rid, MSG_CANCEL_USER);
        bench_forget(&bench);
    }
    assert_int_equal(send_session_counts(bench.send)->asked, 8);
    assert_int_equal(send_session_counts(bench.send)->fenced, 8);
    assert_int_equal(send_session_counts(bench.send)->evicted, 1);
    bench_ask(&bench, 4, 17, 18);
    bench_expect(&bench, "to 4 REPORT rid 17 tag 18 slice 0 last FAILED E_CANCELLED\n");
    assert_int_equal(bench_send_open(&bench, 18, LIVE_GROUP), KVF_OK); /* the engine has its own */
    bench_close(&bench);
}

static void lost_peer_takes_its_asks_and_its_served_entries(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    bench_ask(&bench, 5, 1, 6);
    bench_ask(&bench, 4, 2, 7);
    end_well(3, 8);
    bench_send_peer(&bench, SEND_PEER_LOST, 4, 0);
    bench_send_peer(&bench, SEND_PEER_LOST, 6, 0);
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->asked, 1);
    bench_ask(&bench, 4, 4, 9); /* a message of a life that is over */
    bench_expect(&bench, "");
    assert_int_equal(send_session_counts(bench.send)->late, 1);
    bench_send_peer(&bench, SEND_PEER_UP, 6, 77);
    bench_ask(&bench, 6, 3, 8); /* same tag, another life */
    bench_expect(&bench, "to 6 REPORT rid 3 tag 8 slice 0 last FAILED E_GONE\n");
    bench_close(&bench);
}

static void new_epoch_ends_the_old_life_first(void **state)
{
    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    bench_send_peer(&bench, SEND_PEER_UP, 4, 77);
    assert_int_equal(send_session_counts(bench.send)->asked, 0);
    bench_close(&bench);
}

static void cancel_that_names_another_receiver_is_dropped(void **state)
{
    static const uint32_t whole = MSG_SLICE_WHOLE;
    struct msg msg = {.header = {.type = MSG_CANCEL_SESSION, .source_rank = 5},
                      .u.cancel_session = {.rid = 1,
                                           .tag = 5,
                                           .receiver_rank = 4,
                                           .receiver_epoch = BENCH_EPOCH(5),
                                           .slice_count = 1,
                                           .slices = &whole}};

    (void)state;
    bench_open_send(&bench, NULL);
    bench_ask(&bench, 4, 1, 5);
    msg.header.epoch = BENCH_EPOCH(5);
    bench_send(&bench, (struct send_event){.kind = SEND_MESSAGE, .u.message = {5, &msg, KVF_OK}});
    bench_expect(&bench,
                 "log W08 message of a rank that has no say in the request rid 1 ranks 5\n");
    assert_int_equal(send_session_counts(bench.send)->wrong_peer, 1);
    assert_int_equal(send_session_counts(bench.send)->asked, 1);
    bench_close(&bench);
}

static void open_survives_every_failing_allocation(void **state)
{
    struct send_params params;
    struct fail_heap heap;

    (void)state;
    bench_send_params(&params);
    for (uint64_t n = 1;; n++) {
        struct send_side *side = NULL;
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = send_session_open(&heap.heap, &params, &side);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            send_session_check(side);
            send_session_close(side);
            fail_heap_fini(&heap);
            assert_true(n > 10);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        assert_null(side);
        fail_heap_fini(&heap);
    }
    send_session_close(NULL);
    params.group_count = 2; /* rank 6's group is there, group 2 is not */
    params.tasks_max = 0;
    assert_int_equal(send_session_open(kvf_heap_system(), &params, &(struct send_side *){NULL}),
                     KVF_E_INVAL);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ask_before_the_session_is_served_when_it_opens),
        cmocka_unit_test(ask_that_does_not_fit_is_refused_at_once_and_logged_once),
        cmocka_unit_test(cancel_before_anything_fences_the_request),
        cmocka_unit_test(cancel_with_reason_end_leaves_no_fence_but_a_tombstone),
        cmocka_unit_test(same_ask_twice_is_one_ask),
        cmocka_unit_test(newer_tag_replaces_the_older_before_the_session),
        cmocka_unit_test(cancel_of_a_waiting_request_answers_all_receivers),
        cmocka_unit_test(cancel_of_a_waiting_request_by_one_who_never_asked_fences_it_too),
        cmocka_unit_test(end_drops_one_waiting_receiver_at_a_time),
        cmocka_unit_test(waiting_asks_are_swept_quietly_and_a_cancel_is_still_answered),
        cmocka_unit_test(fences_and_tombstones_are_swept),
        cmocka_unit_test(late_ask_after_success_is_answered_gone),
        cmocka_unit_test(late_ask_after_failure_is_answered_with_its_code),
        cmocka_unit_test(served_ask_and_cancel_after_the_end_repeat_the_report),
        cmocka_unit_test(request_id_is_not_used_again_while_remembered),
        cmocka_unit_test(tombstones_are_bounded_and_the_oldest_goes),
        cmocka_unit_test(served_receivers_are_bounded_and_still_answered),
        cmocka_unit_test(full_tables_refuse_asks_and_still_answer_cancels),
        cmocka_unit_test(lost_peer_takes_its_asks_and_its_served_entries),
        cmocka_unit_test(new_epoch_ends_the_old_life_first),
        cmocka_unit_test(cancel_that_names_another_receiver_is_dropped),
        cmocka_unit_test(open_survives_every_failing_allocation),
    };

    return cmocka_run_group_tests_name("send_record", tests, NULL, NULL);
}
