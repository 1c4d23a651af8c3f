/*
 * transport_fault.h - a decorator that puts faults into any transport.
 *
 * Numbers count calls from 1; 0 = never. The plan may be changed at any time between calls.
 */
#ifndef TEST_TRANSPORT_FAULT_H
#define TEST_TRANSPORT_FAULT_H

#include "xfer/transport.h"

struct fault_plan {
    uint64_t alloc_fail_at;       /* n-th memory_alloc: E_SHM_SPACE */
    uint64_t register_fail_at;    /* n-th memory_register: E_REGISTER */
    uint64_t connect_fail_at;     /* n-th connect: E_UCX */
    uint64_t remote_open_fail_at; /* n-th remote_open: E_NO_PATH */
    bool deny_mapping;            /* remote_mapped: NULL, with a reason */
    uint64_t send_busy_at;        /* n-th send: BUSY */
    uint64_t send_error_at;       /* n-th send ends with an error */
    uint64_t put_refuse_at;       /* n-th put: E_UCX, not posted */
    uint64_t put_error_at;        /* n-th put ends with an error (its bytes may have landed) */
    uint64_t flush_error_at;      /* n-th flush ends with an error */
    uint64_t done_drop_at;        /* n-th done is never told */
    uint64_t done_delay;          /* each done is told this many polls later */
    uint64_t message_drop_at;     /* n-th message is not delivered */
    uint64_t message_twice_at;    /* n-th message is delivered twice */
    uint64_t peer_error_at;       /* at the n-th poll peer_error(peer_error_of) is told */
    uint32_t peer_error_of;
};

struct fault_seen {
    uint64_t allocs, registers, connects, remote_opens, sends, puts, flushes, dones, messages,
        polls;
    uint64_t faults; /* injected so far */
};

struct fault;

/* NULL = out of memory. Borrows `inner`, whose close() is still called through the decorator. */
struct fault *fault_open(struct transport *inner, const struct fault_plan *plan);
/* After the table's close(). NULL is fine. */
void fault_close(struct fault *fault);

struct transport *fault_transport(struct fault *fault);
struct fault_plan *fault_plan(struct fault *fault);
const struct fault_seen *fault_seen(const struct fault *fault);

#endif /* TEST_TRANSPORT_FAULT_H */
