/*
 * metrics.h - the counters of one rank, in one place. Any thread adds and reads; values of one
 * moment each. struct kvf_counters is made from them.
 */
#ifndef KVF_METRICS_H
#define KVF_METRICS_H

#include <stdatomic.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

/* X(field): fields of struct kvf_counters that are counted here. */
#define METRICS_LIST(X) \
    X(requests_opened) \
    X(requests_ok) \
    X(requests_failed) \
    X(requests_cancelled) \
    X(failed_timeout) \
    X(failed_refused) \
    X(failed_transfer) \
    X(failed_peer_lost) \
    X(failed_protocol) \
    X(payload_bytes) \
    X(wire_bytes) \
    X(control_messages) \
    X(control_bytes) \
    X(fragments) \
    X(puts_posted) \
    X(puts_inflight_max) \
    X(messages_dropped) \
    X(unexpected_events) \
    X(stranded_blocks) \
    X(connect_ns)

struct metrics {
#define METRICS_X(field) _Atomic uint64_t field;
    METRICS_LIST(METRICS_X)
#undef METRICS_X
    _Atomic uint64_t path_writes[KVF_PATH_COUNT];
    _Atomic uint64_t machine_unexpected; /* joined into unexpected_events */
};

static inline void metrics_add(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

static inline void metrics_sub(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_fetch_sub_explicit(counter, amount, memory_order_relaxed);
}

static inline void metrics_set(_Atomic uint64_t *counter, uint64_t value)
{
    atomic_store_explicit(counter, value, memory_order_relaxed);
}

/* Raises to `value`; one writer. */
static inline void metrics_peak(_Atomic uint64_t *counter, uint64_t value)
{
    if (atomic_load_explicit(counter, memory_order_relaxed) < value)
        metrics_set(counter, value);
}

/* Counts the end of a request by its status. */
void metrics_ended(struct metrics *metrics, enum kvf_status status);

/* Writes all fields but `size` and allocations_after_ready. */
void metrics_read(struct metrics *metrics, struct kvf_counters *counters_out);

#endif /* KVF_METRICS_H */
