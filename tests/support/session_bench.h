/*
 * session_bench.h - one session machine on a bench: a call steps one event, the actions come out as
 * trace lines, and bench_expect() compares them word for word.
 *
 * World of 8 ranks: 0..3 context, 4..7 generation. Context bench: this rank is 0, group 0 is {4,
 * 5}, group 1 is {6}, group 2 is empty. Generation bench: this rank is 4. T is 60 s.
 */
#ifndef KVF_TEST_SESSION_BENCH_H
#define KVF_TEST_SESSION_BENCH_H

#include "recv_session.h"
#include "send_session.h"
#include "testing.h"

#define BENCH_S UINT64_C(1000000000)
#define BENCH_T (60 * BENCH_S)
#define BENCH_TTL (130 * BENCH_S)
#define BENCH_TOKENS 100u
#define BENCH_EPOCH(rank) (1000u + (rank))
#define BENCH_TRACE_BYTES 65536u

struct bench {
    struct send_side *send; /* one of the two */
    struct recv_side *recv;
    uint64_t now_ns;
    uint32_t out_max;
    bool hold;              /* one step an event: what does not fit waits */
    enum kvf_status status; /* of the last step */
    uint32_t slice;         /* of the last SEND_WINDOW */
    uint32_t tag;           /* of the last RECV_OPEN */
    uint64_t epoch[8];      /* that messages of a rank carry */
    uint32_t cancel_id;     /* that QUIESCED and CANCEL_SESSION carry */
    uint8_t aux[64];
    char trace[BENCH_TRACE_BYTES];
    size_t trace_bytes;
};

/* Defaults of the two machines, to be changed before opening. */
void bench_send_params(struct send_params *params_out);
void bench_recv_params(struct recv_params *params_out);
/* NULL = the defaults. All peers are up. */
void bench_open_send(struct bench *bench, const struct send_params *params);
void bench_open_recv(struct bench *bench, const struct recv_params *params);
/* Checks that no unexpected event was counted. */
void bench_close(struct bench *bench);

/* The lines since the last call, each ended by '\n'; "" = nothing. */
void bench_expect(struct bench *bench, const char *lines);
/* Forgets the lines since the last call. */
void bench_forget(struct bench *bench);
/* The lines since the last call have `text` in them. */
bool bench_saw(const struct bench *bench, const char *text);

/* Steps; the invariants are checked after each. */
enum kvf_status bench_send(struct bench *bench, struct send_event event);
enum kvf_status bench_recv(struct bench *bench, struct recv_event event);
/* Lets time pass, then fires timers. */
void bench_pass(struct bench *bench, uint64_t ns);

/* ---- context side --------------------------------------------------------------------------- */

enum kvf_status bench_send_open(struct bench *bench, uint64_t rid, uint32_t group);
enum kvf_status bench_window(struct bench *bench, uint64_t rid, bool last);
void bench_ask(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag);
/* The same with a verdict of the decoder or of the plan. */
void bench_ask_checked(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                       enum kvf_status check);
void bench_cancel_message(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                          enum msg_cancel_reason reason);
/* `place` and `life` as in the trace: "task place.life". */
void bench_task(struct bench *bench, enum send_event_kind kind, uint32_t place, uint32_t life,
                enum kvf_status status);
enum kvf_status bench_send_cancel(struct bench *bench, uint64_t rid);
enum kvf_status bench_send_decide(struct bench *bench, uint64_t rid, enum session_decision decision,
                                  enum kvf_status code);
void bench_send_peer(struct bench *bench, enum send_event_kind kind, uint32_t peer, uint64_t epoch);

/* ---- generation side ------------------------------------------------------------------------ */

/* Asks ranks 0 .. writers-1; `groups` > 1: writer w is of group w / (writers / groups). */
enum kvf_status bench_recv_open(struct bench *bench, uint64_t rid, uint32_t writers,
                                uint32_t groups);
/* 100 bytes a slice are attested; bench_recv_open() plans 100 a writer. */
void bench_success(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag);
void bench_slice(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t slice, bool last);
void bench_failed(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                  enum kvf_status code);
void bench_in_doubt(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag);
void bench_settled(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag);
void bench_quiesced(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag);
void bench_session_cancelled(struct bench *bench, uint32_t peer, uint64_t rid, uint32_t tag,
                             enum msg_cancel_origin origin, enum kvf_status code);
/* Any message of this side. */
void bench_recv_message(struct bench *bench, uint32_t peer, struct msg *msg);
enum kvf_status bench_recv_cancel(struct bench *bench, uint64_t rid);
enum kvf_status bench_recv_decide(struct bench *bench, uint64_t rid, enum session_decision decision,
                                  enum kvf_status code);
void bench_recv_peer(struct bench *bench, enum recv_event_kind kind, uint32_t peer, uint64_t epoch);
void bench_scatter(struct bench *bench, enum recv_event_kind kind, uint64_t rid);

#endif /* KVF_TEST_SESSION_BENCH_H */
