/*
 * metrics.c - see metrics.h.
 */
#include "metrics.h"

/* The cause that a failed request is counted under; NULL = only as failed. */
static _Atomic uint64_t *metrics_cause(struct metrics *metrics, enum kvf_status status)
{
    if (status == KVF_E_TIMEOUT || status == KVF_E_NO_SESSION || status == KVF_E_ABSENT)
        return &metrics->failed_timeout;
    if (status == KVF_E_PROTOCOL || status == KVF_E_LEGACY_REQUEST)
        return &metrics->failed_protocol;
    if (kvf_status_scope(status) == KVF_SCOPE_PEER && status > KVF_E_INCOMPATIBLE)
        return &metrics->failed_peer_lost;
    if (status == KVF_E_INCOMPATIBLE || status <= KVF_E_WIRE_VERSION || status == KVF_E_NO_PATH ||
        status == KVF_E_REFUSED || status == KVF_E_TOO_LARGE)
        return &metrics->failed_refused;
    if (status == KVF_E_TRANSFER || status == KVF_E_IN_DOUBT)
        return &metrics->failed_transfer;
    return NULL;
}

void metrics_ended(struct metrics *metrics, enum kvf_status status)
{
    _Atomic uint64_t *cause;

    if (status == KVF_OK) {
        metrics_add(&metrics->requests_ok, 1);
        return;
    }
    if (status == KVF_E_CANCELLED || status == KVF_E_PEER_CANCELLED) {
        metrics_add(&metrics->requests_cancelled, 1);
        return;
    }
    metrics_add(&metrics->requests_failed, 1);
    cause = metrics_cause(metrics, status);
    if (cause != NULL)
        metrics_add(cause, 1);
}

void metrics_read(struct metrics *metrics, struct kvf_counters *counters_out)
{
#define METRICS_X(field) \
    counters_out->field = atomic_load_explicit(&metrics->field, memory_order_relaxed);
    METRICS_LIST(METRICS_X)
#undef METRICS_X
    counters_out->unexpected_events +=
        atomic_load_explicit(&metrics->machine_unexpected, memory_order_relaxed);
    for (unsigned path = 0; path < KVF_PATH_COUNT; path++)
        counters_out->path_writes[path] =
            atomic_load_explicit(&metrics->path_writes[path], memory_order_relaxed);
}
