/* test_recv_session.c - sessions and writer entries of the generation side, row by row. */
#include "testing.h"

#include <string.h>

#include "fail_heap.h"
#include "session_bench.h"

static struct bench bench; /* one test at a time */

/* Request 1, tag 1, asked of ranks 0 .. writers-1. */
static void open_asked(uint32_t writers, uint32_t groups)
{
    bench_open_recv(&bench, NULL);
    assert_int_equal(bench_recv_open(&bench, 1, writers, groups), KVF_OK);
    assert_int_equal(bench.tag, 1);
    bench_forget(&bench);
}

/* The same, and rank 0 has failed. */
static void open_bad(uint32_t writers)
{
    open_asked(writers, 1);
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER);
    bench_forget(&bench);
    bench.cancel_id = 1; /* that of rank 1's cancel */
}

static void release(enum session_decision decision, enum kvf_status code)
{
    assert_int_equal(bench_recv_decide(&bench, 1, decision, code), KVF_OK);
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    assert_int_equal(recv_session_counts(bench.recv)->live, 0);
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 0);
}

/* ---- the ordinary way ----------------------------------------------------------------------- */

static void request_is_ready_when_every_writer_reported(void **state)
{
    (void)state;
    bench_open_recv(&bench, NULL);
    bench_recv_open(&bench, 1, 2, 1);
    bench_expect(&bench, "to 0 REQUEST_DATA rid 1 tag 1 tokens 100\n"
                         "to 1 REQUEST_DATA rid 1 tag 1 tokens 100\n");
    bench_success(&bench, 1, 1, 1);
    bench_expect(&bench, "");
    bench_success(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n"); /* and no cancel */
    assert_int_equal(recv_session_deadline_ns(bench.recv), UINT64_MAX);
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void request_of_nobody_is_ready_at_once(void **state)
{
    struct recv_event event = {.kind = RECV_OPEN, .u.open = {.rid = 1, .prompt_tokens = 5}};

    (void)state;
    bench_open_recv(&bench, NULL);
    assert_int_equal(bench_recv(&bench, event), KVF_OK);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK\n");
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void slices_count_in_any_order(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_slice(&bench, 0, 1, 2, true);
    bench_slice(&bench, 0, 1, 0, false);
    bench_slice(&bench, 0, 1, 0, false); /* twice */
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->duplicates, 1);
    bench_slice(&bench, 0, 1, 1, false);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 100\n");
    bench_close(&bench);
}

static void aux_rides_with_the_last_slice_into_the_callers_buffer(void **state)
{
    struct recv_writer_params writer = {.rank = 0, .plan_bytes = 0, .aux = true};
    uint8_t aux[8] = {0};
    struct recv_event event = {
        .kind = RECV_OPEN,
        .u.open = {
            .rid = 1, .prompt_tokens = 5, .writer_count = 1, .writers = &writer, .aux = aux}};
    struct msg msg = {.header = {.type = MSG_REPORT},
                      .u.report = {.rid = 1,
                                   .tag = 1,
                                   .is_last = true,
                                   .aux_bytes = 8,
                                   .aux = (const uint8_t *)"auxbytes"}};

    (void)state;
    bench_open_recv(&bench, NULL);
    bench_recv(&bench, event);
    bench_expect(&bench, "to 0 REQUEST_DATA rid 1 tag 1 tokens 5 aux\n");
    bench_recv_message(&bench, 0, &msg);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK\n");
    assert_memory_equal(aux, "auxbytes", 8);
    event.u.open.rid = 2;
    bench_recv(&bench, event);
    bench_forget(&bench);
    msg.u.report = (struct msg_report){.rid = 2, .tag = 2, .is_last = true}; /* aux is missing */
    bench_recv_message(&bench, 0, &msg);
    assert_true(bench_saw(&bench, "vote rid 2 DOOMED_FAILED FAILED E_PROTOCOL"));
    bench_close(&bench);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void writer_that_does_not_fit_fails_the_request_before_anything_is_asked(void **state)
{
    (void)state;
    bench_open_recv(&bench, NULL);
    bench_recv(&bench, (struct recv_event){.kind = RECV_PEER_UP,
                                           .u.peer = {1, BENCH_EPOCH(1), KVF_E_HEAD_DIM}});
    bench_recv_open(&bench, 1, 2, 1);
    bench_expect(&bench, "log W27 a writer's cache does not fit rid 1 E_HEAD_DIM ranks 1\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_HEAD_DIM culprit 1\n");
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 3);
    release(SESSION_DECIDED_FAILED, KVF_E_HEAD_DIM);
    bench_recv_open(&bench, 3, 2, 1); /* once a peer */
    bench_expect(&bench, "vote rid 3 DOOMED_FAILED+DRAINED FAILED E_HEAD_DIM culprit 1\n");
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    bench_forget(&bench);
    bench_recv_open(&bench, 2, 1, 1);
    assert_true(bench_saw(&bench, "vote rid 2 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST"));
    assert_false(bench_saw(&bench, "REQUEST_DATA"));
    bench_close(&bench);
}

static void writer_that_could_not_be_asked_is_not_waited_for(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_recv(&bench, (struct recv_event){.kind = RECV_PUBLISH_FAILED,
                                           .u.publish = {1, 1, false, KVF_E_PEER_LOST}});
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_PEER_LOST culprit 1\n");
    bench_failed(&bench, 0, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 1\n");
    bench_close(&bench);
}

static void writer_that_may_have_been_asked_is_waited_for(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv(&bench, (struct recv_event){.kind = RECV_PUBLISH_FAILED,
                                           .u.publish = {1, 0, true, KVF_E_UCX}});
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_UCX culprit 0\n");
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_UCX culprit 0\n");
    bench_close(&bench);
}

static void cancel_between_two_asks_leaves_the_second_unasked(void **state)
{
    struct recv_action action;
    struct recv_out out = {.actions = &action, .max = 1};
    struct recv_writer_params writers[2] = {{.rank = 0}, {.rank = 1}};
    struct recv_event event = {
        .kind = RECV_OPEN,
        .now_ns = 1,
        .u.open = {.rid = 1, .prompt_tokens = 5, .writer_count = 2, .writers = writers}};

    (void)state;
    bench_open_recv(&bench, NULL);
    assert_int_equal(recv_session_step(bench.recv, &event, &out), KVF_OK);
    assert_true(out.more && out.count == 1 && action.peer == 0);
    bench_recv_cancel(&bench, 1);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 USER id 1\n"
                         "vote rid 1 DOOMED_USER CANCELLED E_CANCELLED\n");
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

static void answer_inside_the_publish_call_is_handled(void **state)
{
    struct recv_action action;
    struct recv_out out = {.actions = &action, .max = 1};
    struct recv_writer_params writers[2] = {{.rank = 0}, {.rank = 1}};
    struct recv_event event = {
        .kind = RECV_OPEN,
        .now_ns = 1,
        .u.open = {.rid = 1, .prompt_tokens = 5, .writer_count = 2, .writers = writers}};

    (void)state;
    bench_open_recv(&bench, NULL);
    recv_session_step(bench.recv, &event, &out);
    bench_failed(&bench, 0, 1, 1, KVF_E_GONE);
    bench_expect(&bench, "log E34 a writer failed rid 1 E_GONE ranks 0\n"
                         "fence rid 1 tag 1\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_GONE culprit 0\n");
    bench_close(&bench);
}

static void opening_is_refused_by_what_is_wrong_with_it(void **state)
{
    uint32_t slots[300] = {0};
    struct kvf_block_list lists[3] = {{0, 300, slots}};
    struct recv_writer_params stranger = {.rank = 8};
    struct recv_event event = {.kind = RECV_OPEN, .u.open = {.rid = 1, .lists = lists}};
    struct recv_params params;

    (void)state;
    bench_open_recv(&bench, NULL);
    assert_int_equal(bench_recv(&bench, event), KVF_E_INVAL); /* no tokens */
    event.u.open.prompt_tokens = 5;
    event.u.open.list_count = 1;
    assert_int_equal(bench_recv(&bench, event), KVF_E_TOO_LARGE);
    event.u.open.list_count = 3;
    assert_int_equal(bench_recv(&bench, event), KVF_E_TOO_LARGE);
    event.u.open.list_count = 0;
    event.u.open.writer_count = 1;
    event.u.open.writers = &stranger;
    assert_int_equal(bench_recv(&bench, event), KVF_E_INVAL);
    for (uint64_t rid = 1; rid <= 8; rid++)
        assert_int_equal(bench_recv_open(&bench, rid, 4, 1), KVF_OK);
    assert_int_equal(bench_recv_open(&bench, 9, 1, 1), KVF_BUSY);
    assert_int_equal(bench_recv_open(&bench, 3, 1, 1), KVF_E_EXISTS);
    bench_close(&bench);
    bench_recv_params(&params);
    params.first_tag = UINT32_MAX;
    bench_open_recv(&bench, &params);
    assert_int_equal(bench_recv_open(&bench, 1, 1, 1), KVF_OK);
    assert_int_equal(bench.tag, UINT32_MAX);
    assert_int_equal(bench_recv_open(&bench, 2, 1, 1), KVF_E_STATE); /* tags never come again */
    bench_close(&bench);
}

/* ---- one writer fails ----------------------------------------------------------------------- */

static void pages_wait_for_the_other_writer_after_a_failure(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "log E34 a writer failed rid 1 E_TRANSFER ranks 0\n"
                         "fence rid 1 tag 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER culprit 0\n");
    bench_recv_decide(&bench, 1, SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_E_STATE);
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 3);
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED); /* late: quiet */
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void success_after_the_failure_counts_as_an_answer(void **state)
{
    (void)state;
    open_bad(2);
    bench_success(&bench, 1, 1, 1);
    bench_expect(&bench,
                 "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER bytes 100 culprit 0\n");
    bench_close(&bench);
}

static void one_slice_after_the_failure_is_no_final_answer(void **state)
{
    (void)state;
    open_bad(2);
    bench_slice(&bench, 1, 1, 0, false);
    bench_expect(&bench, "");
    bench_slice(&bench, 1, 1, 1, true);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED+DRAINED"));
    bench_close(&bench);
}

static void writer_in_doubt_is_waited_for_until_it_settles(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_in_doubt(&bench, 0, 1, 1);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER culprit 0"));
    assert_true(bench_saw(&bench, "to 1 CANCEL_SESSION "));
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED);
    bench_forget(&bench);
    bench_in_doubt(&bench, 0, 1, 1);
    bench_expect(&bench, "");
    bench_settled(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    bench_close(&bench);
}

static void attested_bytes_that_do_not_add_up_fail_the_request(void **state)
{
    struct msg msg = {.header = {.type = MSG_REPORT},
                      .u.report = {.rid = 1, .tag = 1, .is_last = true, .bytes_written = 99}};

    (void)state;
    open_asked(1, 1);
    bench_recv_message(&bench, 0, &msg);
    bench_expect(&bench, "log E35 attested bytes are not the plan's rid 1 E_PROTOCOL ranks 0\n"
                         "log E34 a writer failed rid 1 E_PROTOCOL ranks 0\n"
                         "fence rid 1 tag 1\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PROTOCOL bytes 99 culprit 0\n");
    bench_close(&bench);
}

static void cancelled_session_of_a_writer_ends_the_request_and_its_final_is_awaited(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_session_cancelled(&bench, 0, 1, 1, MSG_ORIGIN_ENGINE, KVF_E_CANCELLED);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 2\n"
                         "vote rid 1 DOOMED_PEER CANCELLED E_PEER_CANCELLED culprit 0\n");
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "");
    bench_failed(&bench, 0, 1, 1, KVF_E_CANCELLED);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_PEER+DRAINED"));
    bench_close(&bench);
    open_asked(1, 1);
    bench_session_cancelled(&bench, 0, 1, 1, MSG_ORIGIN_FAILED, KVF_E_TIMEOUT);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED FAILED E_TIMEOUT culprit 0"));
    bench_close(&bench);
}

/* ---- cancels -------------------------------------------------------------------------------- */

static void engine_cancel_waits_for_all_answers(void **state)
{
    (void)state;
    open_asked(2, 1);
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_OK);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 USER id 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 USER id 2\n"
                         "vote rid 1 DOOMED_USER CANCELLED E_CANCELLED\n");
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_OK); /* twice */
    bench_failed(&bench, 0, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "");
    bench.cancel_id = 2;
    bench_quiesced(&bench, 1, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_OK);
    release(SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_OK); /* after the end */
    assert_int_equal(bench_recv_cancel(&bench, 99), KVF_E_NOTFOUND);
    assert_int_equal(bench_recv_open(&bench, 1, 1, 1), KVF_E_EXISTS);
    bench_expect(&bench, "");
    bench_pass(&bench, BENCH_TTL);
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_E_NOTFOUND);
    assert_int_equal(bench_recv_open(&bench, 1, 1, 1), KVF_OK);
    bench_close(&bench);
}

static void cancel_crosses_success_by_order_of_arrival(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_success(&bench, 0, 1, 1);
    bench_recv_decide(&bench, 1, SESSION_DECIDED_OK, KVF_OK);
    bench_forget(&bench);
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_OK);
    bench_expect(&bench, ""); /* READY stands */
    bench_close(&bench);
    open_asked(1, 1);
    bench_recv_cancel(&bench, 1);
    bench_forget(&bench);
    bench_success(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED bytes 100\n");
    bench_close(&bench);
}

static void cancel_of_a_rank_that_is_done_asks_the_group_to_give_up(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_success(&bench, 0, 1, 1);
    bench_forget(&bench);
    bench_recv_cancel(&bench, 1); /* the group has not decided */
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED bytes 100\n");
    bench_recv_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    bench_expect(&bench, "fence rid 1 tag 1\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

static void unanswered_cancel_is_sent_again_every_second(void **state)
{
    (void)state;
    open_bad(2);
    bench_pass(&bench, BENCH_S - 1);
    bench_expect(&bench, "");
    bench_pass(&bench, 1);
    bench_expect(&bench, "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n");
    bench_pass(&bench, BENCH_S);
    bench_expect(&bench, "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n");
    assert_int_equal(recv_session_counts(bench.recv)->unanswered_cancels, 1);
    bench_quiesced(&bench, 1, 1, 1);
    bench_quiesced(&bench, 1, 1, 1); /* the second answer */
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    assert_int_equal(recv_session_counts(bench.recv)->unanswered_cancels, 0);
    bench_pass(&bench, 10 * BENCH_S);
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void cancel_that_a_final_overtakes_is_not_sent(void **state)
{
    struct recv_action action;
    struct recv_out out = {.actions = &action, .max = 1};
    struct recv_event event = {
        .kind = RECV_CANCEL, .now_ns = 1, .u.cancel = {.rid = 1, .code = KVF_E_CANCELLED}};

    (void)state;
    open_asked(1, 1);
    assert_int_equal(recv_session_step(bench.recv, &event, &out), KVF_OK);
    assert_true(out.more && action.kind == RECV_ACT_FENCE);
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

static void quiesced_that_nobody_asked_for_proves_nothing(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_quiesced(&bench, 0, 1, 1); /* no cancel was sent */
    bench_expect(&bench, "log W26 quiesced without a cancel rid 1 E_PROTOCOL ranks 0\n");
    bench_recv_cancel(&bench, 1);
    bench_forget(&bench);
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 9); /* stale tag */
    bench_expect(&bench, "log W26 quiesced for a stale tag rid 1 E_PROTOCOL ranks 0\n");
    bench_quiesced(&bench, 3, 1, 1); /* not in W */
    bench_expect(&bench, "log W26 answer of a rank that was not asked rid 1 E_PROTOCOL ranks 3\n");
    bench_quiesced(&bench, 3, 1, 1); /* once a second */
    bench_quiesced(&bench, 0, 77, 1);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->wrong_peer, 2);
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 3);
    bench_close(&bench);
}

static void messages_of_unknown_requests_and_stale_tags_are_dropped(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_success(&bench, 0, 9, 1);
    bench_success(&bench, 0, 1, 2);
    bench_failed(&bench, 0, 1, 2, KVF_E_TRANSFER);
    bench_settled(&bench, 0, 1, 2);
    bench_session_cancelled(&bench, 0, 1, 2, MSG_ORIGIN_ENGINE, KVF_E_CANCELLED);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->late, 5);
    bench.epoch[0] = 5; /* of another life */
    bench_success(&bench, 0, 1, 1);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->late, 6);
    bench_close(&bench);
}

static void second_word_that_contradicts_the_first_is_ignored(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_success(&bench, 0, 1, 1);
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER);
    bench_expect(&bench, "log W26 failure after success rid 1 E_PROTOCOL ranks 0\n");
    bench_in_doubt(&bench, 0, 1, 1);
    bench_expect(&bench, "log W26 doubt after a final report rid 1 E_PROTOCOL ranks 0\n");
    assert_int_equal(recv_session_counts(bench.recv)->contradictions, 2);
    bench_slice(&bench, 1, 1, 0, false);
    bench_failed(&bench, 1, 1, 1, KVF_E_TRANSFER); /* of slice 0 */
    bench_expect(&bench, "log W26 failure after success of a slice rid 1 E_PROTOCOL ranks 1\n");
    bench_close(&bench);
    open_bad(2);
    bench_success(&bench, 0, 1, 1);
    bench_expect(&bench,
                 "log W26 success after a final report or a doubt rid 1 E_PROTOCOL ranks 0\n");
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER); /* the same again */
    bench_expect(&bench, "");
    bench_close(&bench);
}

static void slices_out_of_their_range_fail_the_request(void **state)
{
    static const struct {
        uint32_t first, second;
        bool first_last, second_last;
    } cases[] = {
        {16, 0, false, false}, {1, 2, true, false}, {1, 0, true, true}, {2, 1, false, true}};

    (void)state;
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        open_asked(1, 1);
        bench_slice(&bench, 0, 1, cases[i].first, cases[i].first_last);
        bench_slice(&bench, 0, 1, cases[i].second, cases[i].second_last);
        assert_true(bench_saw(&bench, "log W26 slice, aux or last mark out of order"));
        assert_true(bench_saw(&bench, "DOOMED_FAILED FAILED E_PROTOCOL"));
        bench_close(&bench);
    }
}

/* ---- timers --------------------------------------------------------------------------------- */

static void receive_fails_t_after_the_first_ask(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_pass(&bench, BENCH_T - 1);
    bench_expect(&bench, "");
    bench_pass(&bench, 1);
    bench_expect(&bench, "log W36 receive did not finish in time rid 1 E_TIMEOUT\n"
                         "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 TIMEOUT id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TIMEOUT\n");
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TIMEOUT\n");
    bench_close(&bench);
}

static void message_at_the_deadline_is_applied_before_the_timer(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench.now_ns += BENCH_T; /* a stall: the answer lay in the socket */
    bench_success(&bench, 0, 1, 1);
    bench_pass(&bench, 0);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 100\n");
    bench_close(&bench);
}

static void silent_writers_strand_the_pages_until_an_answer_comes(void **state)
{
    (void)state;
    open_bad(3);
    bench_failed(&bench, 2, 1, 1, KVF_E_PEER_CANCELLED);
    bench_pass(&bench, BENCH_T - 1);
    bench_forget(&bench);
    bench_pass(&bench, 1);
    assert_true(bench_saw(&bench, "log W19 writers silent: pages stay until there is proof rid 1 "
                                  "E_TRANSFER 3 ranks 1\n"
                                  "log W33 pages stranded rid 1 E_TRANSFER 3 ranks 1\n"));
    assert_false(bench_saw(&bench, "DRAINED"));
    assert_int_equal(recv_session_counts(bench.recv)->stranded_blocks, 3);
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 3);
    bench_forget(&bench);
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    assert_int_equal(recv_session_counts(bench.recv)->stranded_blocks, 0);
    release(SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    bench_close(&bench);
}

static void silent_writers_are_given_up_where_the_setting_says_so(void **state)
{
    struct recv_params params;

    (void)state;
    bench_recv_params(&params);
    params.silence = RECV_RELEASE;
    bench_open_recv(&bench, &params);
    bench_recv_open(&bench, 1, 2, 1);
    bench_recv_cancel(&bench, 1);
    bench_pass(&bench, BENCH_T - 1);
    bench_forget(&bench);
    bench_pass(&bench, 1);
    assert_true(bench_saw(&bench, "log W19 writers silent: their pages are released rid 1 "
                                  "E_CANCELLED 3 ranks 0 1\n"));
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_USER+DRAINED"));
    assert_int_equal(recv_session_counts(bench.recv)->silent_writers, 2);
    bench_close(&bench);
}

static void doubt_that_settles_late_gives_stranded_pages_back(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_in_doubt(&bench, 0, 1, 1);
    bench_pass(&bench, BENCH_T);
    assert_int_equal(recv_session_counts(bench.recv)->stranded_blocks, 3);
    bench_pass(&bench, BENCH_T / 2);
    bench_forget(&bench);
    bench_settled(&bench, 0, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    bench_close(&bench);
}

static void stranded_pages_may_be_forced_back(void **state)
{
    struct recv_event force = {.kind = RECV_FORCE_RELEASE, .u.cancel = {.rid = 1}};

    (void)state;
    open_bad(2);
    assert_int_equal(bench_recv(&bench, force), KVF_E_STATE);
    bench_pass(&bench, BENCH_T);
    bench_forget(&bench);
    assert_int_equal(bench_recv(&bench, force), KVF_OK);
    bench_expect(&bench, "log W42 stranded pages are released by force rid 1 E_TRANSFER\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    force.u.cancel.rid = 9;
    assert_int_equal(bench_recv(&bench, force), KVF_E_NOTFOUND);
    bench_close(&bench);
}

/* ---- several groups are asked --------------------------------------------------------------- */

static void assigned_group_completes_and_the_others_are_told_the_end(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_success(&bench, 2, 1, 1);
    bench_expect(&bench, "");
    bench_success(&bench, 3, 1, 1);
    bench_expect(&bench, "to 0 CANCEL_SESSION rid 1 tag 1 END id 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 END id 2\n"
                         "vote rid 1 DONE OK OK bytes 200\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_OK, KVF_OK), KVF_OK);
    bench_pass(&bench, 5 * BENCH_S); /* END is said once */
    bench_expect(&bench, "");
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench_expect(&bench, "");
    bench.cancel_id = 2;
    bench_quiesced(&bench, 1, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

static void broadcast_cancel_waits_for_all_that_were_asked(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_recv_cancel(&bench, 1);
    bench_forget(&bench);
    for (uint32_t rank = 0; rank < 4; rank++) {
        bench_expect(&bench, "");
        bench.cancel_id = rank + 1;
        bench_quiesced(&bench, rank, 1, 1);
    }
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

static void refusal_of_a_group_that_is_not_assigned_is_no_failure(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_failed(&bench, 0, 1, 1, KVF_E_NO_SESSION);
    bench_failed(&bench, 1, 1, 1, KVF_E_GONE);
    bench_expect(&bench, "");
    bench_success(&bench, 2, 1, 1);
    bench_success(&bench, 3, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    bench_close(&bench);
}

static void request_fails_when_no_group_is_left(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_failed(&bench, 0, 1, 1, KVF_E_NO_SESSION);
    bench_failed(&bench, 3, 1, 1, KVF_E_CANCELLED);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_PEER CANCELLED E_PEER_CANCELLED culprit 3"));
    bench_close(&bench);
}

/* The group that had it assigned gave it up with nothing under way: no other group will send it. */
static void cancel_by_one_group_ends_a_request_that_all_were_asked_for(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_failed(&bench, 2, 1, 1, KVF_E_CANCELLED);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_PEER CANCELLED E_PEER_CANCELLED culprit 2"));
    assert_true(bench_saw(&bench, "to 0 CANCEL_SESSION rid 1 tag 1 FAILED"));
    bench_close(&bench);
}

static void request_fails_when_the_assigned_group_has_refused(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_failed(&bench, 2, 1, 1, KVF_E_NO_SESSION);
    bench_expect(&bench, "");
    bench_success(&bench, 3, 1, 1); /* so group 1 is the one */
    assert_true(bench_saw(&bench, "DOOMED_FAILED FAILED E_NO_SESSION"));
    bench_close(&bench);
}

static void failure_of_the_assigned_group_fails_the_request(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_failed(&bench, 2, 1, 1, KVF_E_TRANSFER);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER culprit 2"));
    assert_true(bench_saw(&bench, "to 0 CANCEL_SESSION rid 1 tag 1 FAILED"));
    assert_true(bench_saw(&bench, "to 3 CANCEL_SESSION rid 1 tag 1 FAILED"));
    assert_false(bench_saw(&bench, "to 2 CANCEL_SESSION"));
    bench_close(&bench);
}

static void words_of_another_group_do_not_end_an_assigned_request(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_success(&bench, 2, 1, 1); /* group 1 is the one */
    bench_failed(&bench, 0, 1, 1, KVF_E_TRANSFER);
    bench_session_cancelled(&bench, 1, 1, 1, MSG_ORIGIN_ENGINE, KVF_E_CANCELLED);
    bench_recv_peer(&bench, RECV_PEER_LOST, 1, 0);
    bench_expect(&bench, "");
    bench_success(&bench, 3, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE OK OK bytes 200\n"); /* rank 1 may still write */
    bench_recv_peer(&bench, RECV_PEER_PROOF, 1, BENCH_EPOCH(1));
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    bench_close(&bench);
}

static void second_group_that_sends_fails_the_request(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_success(&bench, 2, 1, 1);
    bench_success(&bench, 0, 1, 1);
    assert_true(bench_saw(&bench, "log W26 two groups send one request"));
    assert_true(bench_saw(&bench, "DOOMED_FAILED FAILED E_PROTOCOL"));
    bench_close(&bench);
}

static void success_never_keeps_pages_for_a_silent_rank_that_had_nothing_to_send(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_success(&bench, 2, 1, 1);
    bench_success(&bench, 3, 1, 1);
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench_recv_decide(&bench, 1, SESSION_DECIDED_OK, KVF_OK);
    bench_pass(&bench, BENCH_T - 1);
    bench_forget(&bench);
    bench_pass(&bench, 1);
    bench_expect(&bench, "log W19 writers silent: their pages are released rid 1 3 ranks 1\n"
                         "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

/* ---- the group ------------------------------------------------------------------------------ */

static void group_fails_what_is_under_way(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv_decide(&bench, 1, SESSION_DECIDED_FAILED, KVF_E_ABSENT);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 GROUP id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_ABSENT\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED),
                     KVF_E_STATE); /* decided is decided */
    bench_close(&bench);
}

static void group_fails_what_is_complete_here(void **state)
{
    struct session_result result;

    (void)state;
    open_asked(4, 2);
    bench_success(&bench, 2, 1, 1);
    bench_success(&bench, 3, 1, 1);
    bench_forget(&bench);
    bench_recv_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 GROUP id 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 GROUP id 2\n");
    assert_int_equal(recv_session_result(bench.recv, 1, &result), KVF_OK);
    assert_int_equal(result.outcome, SESSION_CANCELLED);
    bench.cancel_id = 1;
    bench_quiesced(&bench, 0, 1, 1);
    bench.cancel_id = 2;
    bench_quiesced(&bench, 1, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED CANCELLED E_CANCELLED bytes 200\n");
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_OK);
    bench_close(&bench);
}

static void decided_outcome_replaces_the_own_one(void **state)
{
    struct session_result result;

    (void)state;
    open_bad(2);
    bench_recv_decide(&bench, 1, SESSION_DECIDED_CANCELLED, KVF_E_CANCELLED);
    assert_int_equal(recv_session_result(bench.recv, 1, &result), KVF_OK);
    assert_int_equal(result.outcome, SESSION_CANCELLED);
    assert_int_equal(result.status, KVF_E_CANCELLED);
    assert_int_equal(recv_session_result(bench.recv, 2, &result), KVF_E_NOTFOUND);
    bench_close(&bench);
}

static void wrong_decisions_are_refused_and_free_nothing(void **state)
{
    (void)state;
    open_asked(1, 1);
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_E_STATE);
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_OK, KVF_OK), KVF_E_STATE);
    assert_int_equal(bench_recv_decide(&bench, 7, SESSION_DECIDED_OK, KVF_OK), KVF_E_NOTFOUND);
    bench_success(&bench, 0, 1, 1);
    assert_int_equal(bench_recv_decide(&bench, 1, SESSION_DECIDED_RELEASED, KVF_OK), KVF_E_STATE);
    release(SESSION_DECIDED_OK, KVF_OK);
    bench_close(&bench);
}

static void shutdown_cancels_all_and_closes_the_door(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv(&bench,
               (struct recv_event){.kind = RECV_CANCEL_ALL, .u.cancel = {.code = KVF_E_SHUTDOWN}});
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED FAILED E_SHUTDOWN"));
    assert_int_equal(bench_recv_open(&bench, 2, 1, 1), KVF_E_CLOSED);
    bench_close(&bench);
}

/* ---- peers ---------------------------------------------------------------------------------- */

static void lost_writer_fails_the_request_and_is_waited_for_without_proof(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_PEER_LOST culprit 0\n");
    bench_failed(&bench, 1, 1, 1, KVF_E_PEER_CANCELLED);
    bench_expect(&bench, "");
    bench_recv_peer(&bench, RECV_PEER_PROOF, 0, 5); /* of another life */
    bench_expect(&bench, "");
    bench_recv_peer(&bench, RECV_PEER_PROOF, 0, BENCH_EPOCH(0));
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 0\n");
    bench_close(&bench);
}

static void lost_writer_without_proof_strands(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    bench_pass(&bench, BENCH_T);
    assert_int_equal(recv_session_counts(bench.recv)->stranded_blocks, 3);
    bench_forget(&bench);
    bench_recv_peer(&bench, RECV_PEER_UP, 0, 77); /* its rank has a new process: proof */
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 0\n");
    bench_close(&bench);
}

static void writer_that_said_goodbye_is_proven_over(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv_peer(&bench, RECV_PEER_CLOSED, 0, 0);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_CLOSED culprit 0\n");
    bench_close(&bench);
}

static void rank_that_was_only_stopped_is_asked_again(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    bench_forget(&bench);
    bench_recv_peer(&bench, RECV_PEER_UP, 0, BENCH_EPOCH(0)); /* the same life */
    bench_expect(&bench, "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n");
    bench_pass(&bench, BENCH_S);
    bench_expect(&bench, "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n");
    bench_failed(&bench, 0, 1, 1, KVF_E_GONE);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST culprit 0\n");
    bench_close(&bench);
}

static void writer_that_is_done_may_go(void **state)
{
    (void)state;
    open_asked(2, 1);
    bench_success(&bench, 0, 1, 1);
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    bench_expect(&bench, "");
    bench_success(&bench, 1, 1, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 200\n");
    bench_close(&bench);
}

/* ---- own scatters --------------------------------------------------------------------------- */

static void request_is_not_ready_while_an_own_copy_runs(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_scatter(&bench, RECV_SCATTER_BEGAN, 1);
    bench_success(&bench, 0, 1, 1);
    bench_expect(&bench, "");
    bench_scatter(&bench, RECV_SCATTER_ENDED, 1);
    bench_expect(&bench, "vote rid 1 DONE+DRAINED OK OK bytes 100\n");
    bench_close(&bench);
}

static void pages_under_an_own_copy_are_never_released(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_scatter(&bench, RECV_SCATTER_BEGAN, 1);
    bench_recv_cancel(&bench, 1);
    bench_failed(&bench, 0, 1, 1, KVF_E_PEER_CANCELLED);
    bench_forget(&bench);
    bench_pass(&bench, 5 * BENCH_S);
    bench_expect(&bench, "log W21 an own copy into the pages still runs: nothing is released rid 1 "
                         "E_CANCELLED\n");
    for (unsigned i = 0; i < 3; i++) {
        bench_pass(&bench, BENCH_T);
        assert_true(bench_saw(&bench, "log W21 "));
        assert_false(bench_saw(&bench, "DRAINED"));
        bench_forget(&bench);
    }
    bench_scatter(&bench, RECV_SCATTER_ENDED, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

static void own_copy_that_fails_fails_the_request_at_once(void **state)
{
    (void)state;
    open_asked(1, 1);
    bench_scatter(&bench, RECV_SCATTER_BEGAN, 1);
    bench_scatter(&bench, RECV_SCATTER_FAILED, 1);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TRANSFER\n");
    bench_close(&bench);
}

static void silent_writer_that_only_bounced_needs_no_answer(void **state)
{
    struct recv_event active = {.kind = RECV_WRITER_ACTIVE, .u.active = {1, 1, 0, KVF_PATH_BOUNCE}};

    (void)state;
    open_asked(1, 1);
    bench_recv(&bench, active);
    bench_recv_cancel(&bench, 1);
    bench_forget(&bench);
    bench_pass(&bench, BENCH_T);
    assert_true(bench_saw(&bench, "log W19 "));
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_USER+DRAINED"));
    bench_close(&bench);
    open_asked(1, 1);
    bench_recv(&bench, active);
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0);
    assert_true(bench_saw(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_PEER_LOST"));
    bench_close(&bench);
}

static void request_that_may_only_bounce_is_drained_by_its_own_copies(void **state)
{
    struct recv_writer_params writer = {.rank = 0};
    struct recv_event event = {.kind = RECV_OPEN,
                               .u.open = {.rid = 1,
                                          .prompt_tokens = 5,
                                          .writer_count = 1,
                                          .writers = &writer,
                                          .bounce_only = true}};

    (void)state;
    bench_open_recv(&bench, NULL);
    bench_recv(&bench, event);
    bench_expect(&bench, "to 0 REQUEST_DATA rid 1 tag 1 tokens 5 bounce\n");
    bench_recv_cancel(&bench, 1);
    bench_expect(&bench, "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 USER id 1\n"
                         "vote rid 1 DOOMED_USER+DRAINED CANCELLED E_CANCELLED\n");
    bench_close(&bench);
}

/* What was on its way when its pages could go by themselves is late, and no contradiction. */
static void report_of_a_writer_that_needed_no_answer_is_late(void **state)
{
    struct recv_writer_params writer = {.rank = 0};
    struct recv_event event = {.kind = RECV_OPEN,
                               .u.open = {.rid = 1,
                                          .prompt_tokens = 5,
                                          .writer_count = 1,
                                          .writers = &writer,
                                          .bounce_only = true}};

    (void)state;
    bench_open_recv(&bench, NULL);
    bench_recv(&bench, event);
    bench_recv_cancel(&bench, 1);
    bench_forget(&bench);
    bench_slice(&bench, 0, 1, 0, false);
    bench_in_doubt(&bench, 0, 1, 1);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->contradictions, 0);
    assert_int_equal(recv_session_counts(bench.recv)->late, 2);
    bench_close(&bench);
}

static void first_want_tells_which_group_is_assigned(void **state)
{
    (void)state;
    open_asked(4, 2);
    bench_recv(&bench, (struct recv_event){.kind = RECV_WRITER_ACTIVE,
                                           .u.active = {1, 1, 3, KVF_PATH_BOUNCE}});
    bench_recv_peer(&bench, RECV_PEER_LOST, 0, 0); /* not of it: no failure */
    bench_expect(&bench, "");
    bench_close(&bench);
}

/* ---- bounds and strays ---------------------------------------------------------------------- */

static void ended_requests_are_remembered_up_to_a_bound(void **state)
{
    (void)state;
    bench_open_recv(&bench, NULL);
    for (uint64_t rid = 1; rid <= 9; rid++) {
        bench_recv_open(&bench, rid, 1, 1);
        bench_success(&bench, 0, rid, (uint32_t)rid);
        bench_recv_decide(&bench, rid, SESSION_DECIDED_OK, KVF_OK);
        bench_recv_decide(&bench, rid, SESSION_DECIDED_RELEASED, KVF_OK);
    }
    assert_int_equal(recv_session_counts(bench.recv)->remembered, 8);
    assert_int_equal(bench_recv_cancel(&bench, 1), KVF_E_NOTFOUND);
    assert_int_equal(bench_recv_cancel(&bench, 2), KVF_OK);
    bench_close(&bench);
}

static void events_that_no_row_lists_are_counted_and_ignored(void **state)
{
    struct msg msg = {.header = {.type = MSG_REQUEST_DATA}};

    (void)state;
    open_asked(1, 1);
    bench_scatter(&bench, RECV_SCATTER_ENDED, 1);
    bench_scatter(&bench, RECV_SCATTER_BEGAN, 9);
    bench_recv_message(&bench, 0, &msg);
    bench_recv(&bench, (struct recv_event){.kind = RECV_PUBLISH_FAILED,
                                           .u.publish = {9, 1, false, KVF_E_PEER_LOST}});
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->unexpected_events, 4);
    recv_session_close(bench.recv);
}

static void little_room_for_actions_gives_the_same_actions(void **state)
{
    char whole[BENCH_TRACE_BYTES];

    (void)state;
    for (uint32_t out_max = 32; out_max > 0; out_max = out_max == 32 ? 1 : 0) {
        bench_open_recv(&bench, NULL);
        bench.out_max = out_max;
        bench_recv_open(&bench, 1, 4, 1);
        bench_in_doubt(&bench, 2, 1, 1);
        bench_pass(&bench, BENCH_T);
        if (out_max == 32)
            memcpy(whole, bench.trace, sizeof(whole));
        else
            bench_expect(&bench, whole);
        bench_close(&bench);
    }
}

static void description_says_what_a_request_waits_for(void **state)
{
    struct recv_description it;
    const void *cursor = NULL;

    (void)state;
    open_bad(2);
    bench_recv_open(&bench, 2, 1, 1);
    assert_true(recv_session_describe(bench.recv, &cursor, &it));
    assert_string_equal(it.state, "BAD_WAIT");
    assert_string_equal(it.waiting, "final reports");
    assert_int_equal(it.writer_count, 1);
    assert_int_equal(it.writer[0].rank, 1);
    assert_string_equal(it.writer[0].state, "ASKED");
    assert_true(recv_session_describe(bench.recv, &cursor, &it));
    assert_string_equal(it.waiting, "reports");
    assert_false(recv_session_describe(bench.recv, &cursor, &it));
    bench_close(&bench);
}

static void open_survives_every_failing_allocation(void **state)
{
    struct recv_params params;
    struct fail_heap heap;

    (void)state;
    bench_recv_params(&params);
    for (uint64_t n = 1;; n++) {
        struct recv_side *side = NULL;
        enum kvf_status status;

        fail_heap_init(&heap, n);
        status = recv_session_open(&heap.heap, &params, &side);
        if (!fail_heap_failed(&heap)) {
            assert_int_equal(status, KVF_OK);
            recv_session_check(side);
            recv_session_close(side);
            fail_heap_fini(&heap);
            assert_true(n > 8);
            break;
        }
        assert_int_equal(status, KVF_E_NOMEM);
        assert_null(side);
        fail_heap_fini(&heap);
    }
    recv_session_close(NULL);
    params.slices_max = 0;
    assert_int_equal(recv_session_open(kvf_heap_system(), &params, &(struct recv_side *){NULL}),
                     KVF_E_INVAL);
}

/* ---- scenarios that no row above has whole (docs/testing.md) -------------------------------- */

static void g_12_failed_after_the_request_is_retired_says_nothing(void **state)
{
    (void)state;
    open_bad(2);
    bench_quiesced(&bench, 1, 1, 1);
    release(SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    bench_forget(&bench);
    bench_failed(&bench, 1, 1, 1, KVF_E_TRANSFER);
    bench_session_cancelled(&bench, 1, 1, 1, MSG_ORIGIN_ENGINE, KVF_E_CANCELLED);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->late, 2);
    assert_int_equal(recv_session_counts(bench.recv)->contradictions, 0);
    bench_close(&bench);
}

static void g_27_pages_are_drained_while_the_engine_decides_nothing(void **state)
{
    (void)state;
    open_bad(2); /* fenced, and the cancel has left: no decision was needed for it */
    bench_pass(&bench, BENCH_S);
    bench_expect(&bench, "to 1 CANCEL_SESSION rid 1 tag 1 FAILED id 1\n");
    bench_quiesced(&bench, 1, 1, 1);
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TRANSFER culprit 0\n");
    bench_pass(&bench, 10 * BENCH_S);
    bench_expect(&bench, "");
    assert_int_equal(recv_session_counts(bench.recv)->retained_blocks, 3); /* lent until RELEASED */
    release(SESSION_DECIDED_FAILED, KVF_E_TRANSFER);
    bench_close(&bench);
}

static void x_14_report_that_was_lost_comes_with_the_answer_to_the_cancel(void **state)
{
    (void)state;
    open_asked(1, 1); /* its SUCCESS is lost */
    bench_pass(&bench, BENCH_T);
    bench_expect(&bench, "log W36 receive did not finish in time rid 1 E_TIMEOUT\n"
                         "fence rid 1 tag 1\n"
                         "to 0 CANCEL_SESSION rid 1 tag 1 TIMEOUT id 1\n"
                         "vote rid 1 DOOMED_FAILED FAILED E_TIMEOUT\n");
    bench_success(&bench, 0, 1, 1); /* the writer repeats its final */
    bench_expect(&bench, "vote rid 1 DOOMED_FAILED+DRAINED FAILED E_TIMEOUT bytes 100\n");
    release(SESSION_DECIDED_FAILED, KVF_E_TIMEOUT);
    bench_close(&bench);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(request_is_ready_when_every_writer_reported),
    cmocka_unit_test(request_of_nobody_is_ready_at_once),
    cmocka_unit_test(slices_count_in_any_order),
    cmocka_unit_test(aux_rides_with_the_last_slice_into_the_callers_buffer),
    cmocka_unit_test(writer_that_does_not_fit_fails_the_request_before_anything_is_asked),
    cmocka_unit_test(writer_that_could_not_be_asked_is_not_waited_for),
    cmocka_unit_test(writer_that_may_have_been_asked_is_waited_for),
    cmocka_unit_test(cancel_between_two_asks_leaves_the_second_unasked),
    cmocka_unit_test(answer_inside_the_publish_call_is_handled),
    cmocka_unit_test(opening_is_refused_by_what_is_wrong_with_it),
    cmocka_unit_test(pages_wait_for_the_other_writer_after_a_failure),
    cmocka_unit_test(success_after_the_failure_counts_as_an_answer),
    cmocka_unit_test(one_slice_after_the_failure_is_no_final_answer),
    cmocka_unit_test(writer_in_doubt_is_waited_for_until_it_settles),
    cmocka_unit_test(attested_bytes_that_do_not_add_up_fail_the_request),
    cmocka_unit_test(cancelled_session_of_a_writer_ends_the_request_and_its_final_is_awaited),
    cmocka_unit_test(engine_cancel_waits_for_all_answers),
    cmocka_unit_test(cancel_crosses_success_by_order_of_arrival),
    cmocka_unit_test(cancel_of_a_rank_that_is_done_asks_the_group_to_give_up),
    cmocka_unit_test(unanswered_cancel_is_sent_again_every_second),
    cmocka_unit_test(cancel_that_a_final_overtakes_is_not_sent),
    cmocka_unit_test(quiesced_that_nobody_asked_for_proves_nothing),
    cmocka_unit_test(messages_of_unknown_requests_and_stale_tags_are_dropped),
    cmocka_unit_test(second_word_that_contradicts_the_first_is_ignored),
    cmocka_unit_test(slices_out_of_their_range_fail_the_request),
    cmocka_unit_test(receive_fails_t_after_the_first_ask),
    cmocka_unit_test(message_at_the_deadline_is_applied_before_the_timer),
    cmocka_unit_test(silent_writers_strand_the_pages_until_an_answer_comes),
    cmocka_unit_test(silent_writers_are_given_up_where_the_setting_says_so),
    cmocka_unit_test(doubt_that_settles_late_gives_stranded_pages_back),
    cmocka_unit_test(stranded_pages_may_be_forced_back),
    cmocka_unit_test(assigned_group_completes_and_the_others_are_told_the_end),
    cmocka_unit_test(broadcast_cancel_waits_for_all_that_were_asked),
    cmocka_unit_test(refusal_of_a_group_that_is_not_assigned_is_no_failure),
    cmocka_unit_test(request_fails_when_no_group_is_left),
    cmocka_unit_test(cancel_by_one_group_ends_a_request_that_all_were_asked_for),
    cmocka_unit_test(request_fails_when_the_assigned_group_has_refused),
    cmocka_unit_test(failure_of_the_assigned_group_fails_the_request),
    cmocka_unit_test(words_of_another_group_do_not_end_an_assigned_request),
    cmocka_unit_test(second_group_that_sends_fails_the_request),
    cmocka_unit_test(success_never_keeps_pages_for_a_silent_rank_that_had_nothing_to_send),
    cmocka_unit_test(group_fails_what_is_under_way),
    cmocka_unit_test(group_fails_what_is_complete_here),
    cmocka_unit_test(decided_outcome_replaces_the_own_one),
    cmocka_unit_test(wrong_decisions_are_refused_and_free_nothing),
    cmocka_unit_test(shutdown_cancels_all_and_closes_the_door),
    cmocka_unit_test(lost_writer_fails_the_request_and_is_waited_for_without_proof),
    cmocka_unit_test(lost_writer_without_proof_strands),
    cmocka_unit_test(writer_that_said_goodbye_is_proven_over),
    cmocka_unit_test(rank_that_was_only_stopped_is_asked_again),
    cmocka_unit_test(writer_that_is_done_may_go),
    cmocka_unit_test(request_is_not_ready_while_an_own_copy_runs),
    cmocka_unit_test(pages_under_an_own_copy_are_never_released),
    cmocka_unit_test(own_copy_that_fails_fails_the_request_at_once),
    cmocka_unit_test(silent_writer_that_only_bounced_needs_no_answer),
    cmocka_unit_test(request_that_may_only_bounce_is_drained_by_its_own_copies),
    cmocka_unit_test(report_of_a_writer_that_needed_no_answer_is_late),
    cmocka_unit_test(first_want_tells_which_group_is_assigned),
    cmocka_unit_test(ended_requests_are_remembered_up_to_a_bound),
    cmocka_unit_test(events_that_no_row_lists_are_counted_and_ignored),
    cmocka_unit_test(little_room_for_actions_gives_the_same_actions),
    cmocka_unit_test(description_says_what_a_request_waits_for),
    cmocka_unit_test(g_12_failed_after_the_request_is_retired_says_nothing),
    cmocka_unit_test(g_27_pages_are_drained_while_the_engine_decides_nothing),
    cmocka_unit_test(x_14_report_that_was_lost_comes_with_the_answer_to_the_cancel),
    cmocka_unit_test(open_survives_every_failing_allocation),
};

int main(void)
{
    return cmocka_run_group_tests_name("recv_session", tests, NULL, NULL);
}
