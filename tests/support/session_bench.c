/* session_bench.c - see session_bench.h. */
#include "session_bench.h"

#include <stdio.h>
#include <string.h>

#include "heap.h"

#define BENCH_ACTIONS 32u

static const uint32_t group_0[] = {4, 5};
static const uint32_t group_1[] = {6};
static const struct send_group groups[] = {{group_0, 2}, {group_1, 1}, {NULL, 0}};
static const uint32_t group_of[8] = {SESSION_GROUP_UNKNOWN,
                                     SESSION_GROUP_UNKNOWN,
                                     SESSION_GROUP_UNKNOWN,
                                     SESSION_GROUP_UNKNOWN,
                                     0,
                                     0,
                                     1,
                                     SESSION_GROUP_UNKNOWN};

static const struct session_times times = {BENCH_T, BENCH_TTL, BENCH_S, 5 * BENCH_S};

void bench_send_params(struct send_params *params_out)
{
    *params_out = (struct send_params){
        .times = times,
        .self = {0, 0, BENCH_EPOCH(0)},
        .log_level = KVF_LOG_WARN,
        .world_size = 8,
        .requests_max = 8,
        .asks_max = 8,
        .fences_max = 8,
        .tombstones_max = 8,
        .receivers_max = 16,
        .served_max = 16,
        .windows_max = 16,
        .tasks_max = 8,
        .answers_max = 16,
        .blocks_max = 256,
        .lists_max = 2,
        .aux_bytes = 8,
        .groups = groups,
        .group_count = 3,
        .group_of = group_of,
    };
}

void bench_recv_params(struct recv_params *params_out)
{
    *params_out = (struct recv_params){
        .times = times,
        .self = {0, 4, BENCH_EPOCH(4)},
        .log_level = KVF_LOG_WARN,
        .world_size = 8,
        .requests_max = 8,
        .remembered_max = 8,
        .writers_max = 32,
        .slices_max = 16,
        .blocks_max = 256,
        .lists_max = 2,
        .aux_bytes = 8,
    };
}

static void bench_init(struct bench *bench)
{
    memset(bench, 0, sizeof(*bench));
    bench->now_ns = 1;
    bench->out_max = BENCH_ACTIONS;
    for (uint32_t rank = 0; rank < 8; rank++)
        bench->epoch[rank] = BENCH_EPOCH(rank);
}

void bench_open_send(struct bench *bench, const struct send_params *params)
{
    struct send_params defaults;

    bench_init(bench);
    bench_send_params(&defaults);
    assert_int_equal(
        send_session_open(kvf_heap_system(), params != NULL ? params : &defaults, &bench->send),
        KVF_OK);
    for (uint32_t rank = 0; rank < 8; rank++)
        bench_send_peer(bench, SEND_PEER_UP, rank, BENCH_EPOCH(rank));
}

void bench_open_recv(struct bench *bench, const struct recv_params *params)
{
    struct recv_params defaults;

    bench_init(bench);
    bench_recv_params(&defaults);
    assert_int_equal(
        recv_session_open(kvf_heap_system(), params != NULL ? params : &defaults, &bench->recv),
        KVF_OK);
    for (uint32_t rank = 0; rank < 8; rank++)
        bench_recv_peer(bench, RECV_PEER_UP, rank, BENCH_EPOCH(rank));
}

void bench_close(struct bench *bench)
{
    if (bench->send != NULL)
        assert_int_equal(send_session_counts(bench->send)->unexpected_events, 0);
    if (bench->recv != NULL)
        assert_int_equal(recv_session_counts(bench->recv)->unexpected_events, 0);
    send_session_close(bench->send);
    recv_session_close(bench->recv);
}

void bench_expect(struct bench *bench, const char *lines)
{
    assert_string_equal(bench->trace, lines);
    bench_forget(bench);
}

void bench_forget(struct bench *bench)
{
    bench->trace_bytes = 0;
    bench->trace[0] = '\0';
}

bool bench_saw(const struct bench *bench, const char *text)
{
    return strstr(bench->trace, text) != NULL;
}

static void end_line(struct bench *bench, size_t len_bytes)
{
    bench->trace_bytes += len_bytes;
    assert_true(bench->trace_bytes + 512 < sizeof(bench->trace));
    bench->trace[bench->trace_bytes++] = '\n';
    bench->trace[bench->trace_bytes] = '\0';
}

enum kvf_status bench_send(struct bench *bench, struct send_event event)
{
    struct send_action actions[BENCH_ACTIONS];
    struct send_out out = {.actions = actions, .max = bench->out_max};

    event.now_ns = bench->now_ns;
    event.real_ns = bench->now_ns;
    bench->status = send_session_step(bench->send, &event, &out);
    bench->slice = out.slice;
    for (;;) {
        send_session_check(bench->send);
        for (uint32_t i = 0; i < out.count; i++)
            end_line(bench, send_action_text(&actions[i], bench->trace + bench->trace_bytes, 512));
        if (!out.more || bench->hold)
            return bench->status;
        event.kind = SEND_POLL;
        assert_int_equal(send_session_step(bench->send, &event, &out), KVF_OK);
    }
}

enum kvf_status bench_recv(struct bench *bench, struct recv_event event)
{
    struct recv_action actions[BENCH_ACTIONS];
    struct recv_out out = {.actions = actions, .max = bench->out_max};

    event.now_ns = bench->now_ns;
    event.real_ns = bench->now_ns;
    bench->status = recv_session_step(bench->recv, &event, &out);
    bench->tag = out.tag;
    for (;;) {
        recv_session_check(bench->recv);
        for (uint32_t i = 0; i < out.count; i++)
            end_line(bench, recv_action_text(&actions[i], bench->trace + bench->trace_bytes, 512));
        if (!out.more || bench->hold)
            return bench->status;
        event.kind = RECV_POLL;
        assert_int_equal(recv_session_step(bench->recv, &event, &out), KVF_OK);
    }
}

void bench_pass(struct bench *bench, uint64_t ns)
{
    bench->now_ns += ns;
    if (bench->send != NULL)
        bench_send(bench, (struct send_event){.kind = SEND_TICK});
    else
        bench_recv(bench, (struct recv_event){.kind = RECV_TICK});
}

/* ---- context side --------------------------------------------------------------------------- */

enum kvf_status bench_send_open(struct bench *bench, uint64_t rid, uint32_t group)
{
    static const uint32_t slots[] = {7, 8, 9};
    static const struct kvf_block_list lists[] = {{0, 2, slots}, {1, 1, slots + 2}};

    return bench_send(bench, (struct send_event){.kind = SEND_OPEN,
                                                 .u.open = {.rid = rid,
                                                            .prompt_tokens = BENCH_TOKENS,
                                                            .group = group,
                                                            .list_count = 2,
                                                            .lists = lists,
                                                            .aux = "auxbytes"}});
}

enum kvf_status bench_window(struct bench *bench, uint64_t rid, bool last)
{
    return bench_send(
        bench,
        (struct send_event){.kind = SEND_WINDOW,
                            .u.window = {.rid = rid,
                                         .window = {.token_end = 64, .layer_end = 2, .last = last},
                                         .ready = true}});
}

static void send_message(struct bench *bench, uint32_t peer, const struct msg *msg,
                         enum kvf_status check)
{
    uint8_t bytes[1024];
    size_t len_bytes;
    struct msg decoded;

    assert_int_equal(msg_encode(msg, bytes, sizeof(bytes), &len_bytes), KVF_OK);
    msg_seal(bytes, len_bytes, 1);
    assert_int_equal(msg_decode(bytes, len_bytes, &decoded, NULL), KVF_OK);
    bench_send(bench,
               (struct send_event){.kind = SEND_MESSAGE, .u.message = {peer, &decoded, check}});
}

void bench_ask(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag)
{
    bench_ask_checked(bench, peer, rid, tag, KVF_OK);
}

void bench_ask_checked(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                       enum kvf_status check)
{
    static const uint32_t slots[] = {70, 80, 90};
    static const struct kvf_block_list lists[] = {{0, 2, slots}, {1, 1, slots + 2}};
    struct msg msg = {.header = {.type = MSG_REQUEST_DATA,
                                 .source_rank = (uint16_t)peer,
                                 .epoch = bench->epoch[peer]},
                      .u.request_data = {.rid = rid,
                                         .tag = tag,
                                         .slice = MSG_SLICE_WHOLE,
                                         .receiver_rank = (uint16_t)peer,
                                         .prompt_tokens = BENCH_TOKENS,
                                         .aux_wanted = true,
                                         .group_count = 2,
                                         .groups = lists}};

    send_message(bench, peer, &msg, check);
}

void bench_cancel_message(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                          enum msg_cancel_reason reason)
{
    static const uint32_t whole = MSG_SLICE_WHOLE;
    struct msg msg = {.header = {.type = MSG_CANCEL_SESSION,
                                 .source_rank = (uint16_t)peer,
                                 .epoch = bench->epoch[peer]},
                      .u.cancel_session = {.rid = rid,
                                           .tag = tag,
                                           .receiver_rank = (uint16_t)peer,
                                           .receiver_epoch = bench->epoch[peer],
                                           .reason = (uint8_t)reason,
                                           .cancel_id = ++bench->cancel_id,
                                           .slice_count = 1,
                                           .slices = &whole}};

    send_message(bench, peer, &msg, KVF_OK);
}

void bench_task(struct bench *bench, enum send_event_kind kind, uint32_t place, uint32_t life,
                enum kvf_status status)
{
    bench_send(bench, (struct send_event){.kind = kind,
                                          .u.task = {.task = (uint64_t)life << 32 | place,
                                                     .status = status,
                                                     .bytes = status == KVF_OK ? 100 : 0,
                                                     .path = KVF_PATH_MAPPED}});
}

enum kvf_status bench_send_cancel(struct bench *bench, uint64_t rid)
{
    return bench_send(bench,
                      (struct send_event){.kind = SEND_CANCEL, .u.cancel = {rid, KVF_E_CANCELLED}});
}

enum kvf_status bench_send_decide(struct bench *bench, uint64_t rid, enum session_decision decision,
                                  enum kvf_status code)
{
    return bench_send(bench, (struct send_event){.kind = SEND_DECISION,
                                                 .u.decision = {rid, decision, code, KVF_UNKNOWN}});
}

void bench_send_peer(struct bench *bench, enum send_event_kind kind, uint32_t peer, uint64_t epoch)
{
    if (kind == SEND_PEER_UP)
        bench->epoch[peer] = epoch;
    bench_send(bench, (struct send_event){.kind = kind, .u.peer = {peer, epoch, KVF_OK}});
}

/* ---- generation side ------------------------------------------------------------------------ */

enum kvf_status bench_recv_open(struct bench *bench, uint64_t rid, uint32_t writers,
                                uint32_t group_count)
{
    static const uint32_t slots[] = {70, 80, 90};
    static const struct kvf_block_list lists[] = {{0, 2, slots}, {1, 1, slots + 2}};
    struct recv_writer_params asked[8];

    for (uint32_t i = 0; i < writers; i++)
        asked[i] = (struct recv_writer_params){
            .rank = i, .group = i / (writers / group_count), .plan_bytes = 100, .aux = i == 0};
    return bench_recv(bench, (struct recv_event){.kind = RECV_OPEN,
                                                 .u.open = {.rid = rid,
                                                            .prompt_tokens = BENCH_TOKENS,
                                                            .list_count = 2,
                                                            .lists = lists,
                                                            .writer_count = writers,
                                                            .writers = asked}});
}

void bench_recv_message(struct bench *bench, uint32_t peer, struct msg *msg)
{
    msg->header.source_rank = (uint16_t)peer;
    msg->header.epoch = bench->epoch[peer];
    bench_recv(bench, (struct recv_event){.kind = RECV_MESSAGE, .u.message = {peer, msg}});
}

static void report(struct bench *bench, uint32_t peer, const struct msg_report *report)
{
    struct msg msg = {.header = {.type = MSG_REPORT}, .u.report = *report};

    bench_recv_message(bench, peer, &msg);
}

void bench_success(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag)
{
    report(bench, peer,
           &(struct msg_report){.rid = rid,
                                .tag = tag,
                                .is_last = true,
                                .status = MSG_REPORT_SUCCESS,
                                .bytes_written = 100,
                                .path = KVF_PATH_MAPPED});
}

void bench_slice(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t slice, bool last)
{
    report(bench, peer,
           &(struct msg_report){.rid = rid,
                                .tag = 1,
                                .slice = slice,
                                .is_last = last,
                                .status = MSG_REPORT_SUCCESS,
                                .bytes_written = last ? 60 : 20,
                                .path = KVF_PATH_DIRECT});
}

void bench_failed(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                  enum kvf_status code)
{
    report(bench, peer,
           &(struct msg_report){
               .rid = rid, .tag = tag, .is_last = true, .status = MSG_REPORT_FAILED, .code = code});
}

void bench_in_doubt(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag)
{
    report(bench, peer,
           &(struct msg_report){
               .rid = rid, .tag = tag, .status = MSG_REPORT_IN_DOUBT, .code = KVF_E_TRANSFER});
}

void bench_settled(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag)
{
    struct msg msg = {.header = {.type = MSG_SETTLED},
                      .u.settled = {.rid = rid, .tag = tag, .code = KVF_E_TRANSFER}};

    bench_recv_message(bench, peer, &msg);
}

void bench_quiesced(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag)
{
    struct msg msg = {.header = {.type = MSG_QUIESCED},
                      .u.quiesced = {.rid = rid, .tag = tag, .cancel_id = bench->cancel_id}};

    bench_recv_message(bench, peer, &msg);
}

void bench_session_cancelled(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                             enum msg_cancel_origin origin, enum kvf_status code)
{
    struct msg msg = {.header = {.type = MSG_SESSION_CANCELLED},
                      .u.session_cancelled = {rid, tag, (uint8_t)origin, code}};

    bench_recv_message(bench, peer, &msg);
}

enum kvf_status bench_recv_cancel(struct bench *bench, uint64_t rid)
{
    return bench_recv(bench,
                      (struct recv_event){.kind = RECV_CANCEL, .u.cancel = {rid, KVF_E_CANCELLED}});
}

enum kvf_status bench_recv_decide(struct bench *bench, uint64_t rid, enum session_decision decision,
                                  enum kvf_status code)
{
    return bench_recv(bench, (struct recv_event){.kind = RECV_DECISION,
                                                 .u.decision = {rid, decision, code, KVF_UNKNOWN}});
}

void bench_recv_peer(struct bench *bench, enum recv_event_kind kind, uint32_t peer, uint64_t epoch)
{
    if (kind == RECV_PEER_UP)
        bench->epoch[peer] = epoch;
    bench_recv(bench, (struct recv_event){.kind = kind, .u.peer = {peer, epoch, KVF_OK}});
}

void bench_scatter(struct bench *bench, enum recv_event_kind kind, uint64_t rid)
{
    bench_recv(bench,
               (struct recv_event){.kind = kind,
                                   .u.scatter = {.rid = rid, .tag = 1, .code = KVF_E_TRANSFER}});
}
