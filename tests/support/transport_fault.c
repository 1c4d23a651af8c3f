/* transport_fault.c - see transport_fault.h. */
#include "transport_fault.h"

#include <stdio.h>
#include <stdlib.h>

#define FAULT_HELD_MAX 8192
#define FAULT_MARKS_MAX 64

/* A done that is told later. */
struct fault_held {
    transport_token token;
    enum kvf_status status;
    uint64_t at_poll;
};

struct fault {
    struct transport table;
    struct transport *inner;
    struct transport_sink sink;
    struct fault_plan plan;
    struct fault_seen seen;
    struct fault_held held[FAULT_HELD_MAX];
    size_t held_first, held_count;
    transport_token marks[FAULT_MARKS_MAX]; /* operations that are to end with an error */
    size_t marks_count;
};

static bool fault_now(struct fault *fault, uint64_t count, uint64_t at)
{
    bool now = at != 0 && count == at;

    fault->seen.faults += now;
    return now;
}

static void fault_mark(struct fault *fault, transport_token token)
{
    if (fault->marks_count < FAULT_MARKS_MAX) {
        fault->marks[fault->marks_count++] = token;
    }
}

static bool fault_unmark(struct fault *fault, transport_token token)
{
    for (size_t i = 0; i < fault->marks_count; ++i) {
        if (fault->marks[i] == token) {
            fault->marks[i] = fault->marks[--fault->marks_count];
            return true;
        }
    }
    return false;
}

static void fault_hold(struct fault *fault, transport_token token, enum kvf_status status)
{
    if (fault->held_count == FAULT_HELD_MAX) {
        abort(); /* the test holds more than it may */
    }
    fault->held[(fault->held_first + fault->held_count++) % FAULT_HELD_MAX] =
        (struct fault_held){token, status, fault->seen.polls + fault->plan.done_delay};
}

/* ---- the sink of the inner transport ---- */

static void fault_message(void *self, const void *bytes, size_t len_bytes)
{
    struct fault *fault = self;

    ++fault->seen.messages;
    if (fault_now(fault, fault->seen.messages, fault->plan.message_drop_at)) {
        return;
    }
    if (fault_now(fault, fault->seen.messages, fault->plan.message_twice_at)) {
        fault->sink.message(fault->sink.self, bytes, len_bytes);
    }
    fault->sink.message(fault->sink.self, bytes, len_bytes);
}

static void fault_done(void *self, transport_token token, enum kvf_status status)
{
    struct fault *fault = self;

    ++fault->seen.dones;
    if (fault_unmark(fault, token)) {
        status = KVF_E_TRANSFER;
    }
    if (fault_now(fault, fault->seen.dones, fault->plan.done_drop_at)) {
        return;
    }
    fault_hold(fault, token, status);
}

static void fault_peer_error(void *self, uint32_t peer, enum kvf_status status)
{
    struct fault *fault = self;

    fault->sink.peer_error(fault->sink.self, peer, status);
}

static uint32_t fault_tell(struct fault *fault)
{
    uint32_t told = 0;

    while (fault->held_count > 0 && fault->held[fault->held_first].at_poll <= fault->seen.polls) {
        struct fault_held held = fault->held[fault->held_first];
        fault->held_first = (fault->held_first + 1) % FAULT_HELD_MAX;
        --fault->held_count;
        ++told;
        fault->sink.done(fault->sink.self, held.token, held.status);
    }
    return told;
}

/* ---- the table ---- */

static void fault_set_sink(void *self, const struct transport_sink *sink)
{
    struct fault *fault = self;
    const struct transport_sink own = {.self = fault,
                                       .message = fault_message,
                                       .done = fault_done,
                                       .peer_error = fault_peer_error};

    fault->sink = *sink;
    fault->inner->set_sink(fault->inner->self, &own);
}

static enum kvf_status fault_address(void *self, void *address_out, size_t cap, size_t *len_out)
{
    struct fault *fault = self;

    return fault->inner->address(fault->inner->self, address_out, cap, len_out);
}

static enum kvf_status fault_connect(void *self, uint32_t peer, const void *address, size_t len)
{
    struct fault *fault = self;

    if (fault_now(fault, ++fault->seen.connects, fault->plan.connect_fail_at)) {
        return KVF_E_UCX;
    }
    return fault->inner->connect(fault->inner->self, peer, address, len);
}

static bool fault_is_near(void *self, uint32_t peer)
{
    struct fault *fault = self;

    return fault->inner->is_near(fault->inner->self, peer);
}

static uint32_t fault_peer_pid(void *self, uint32_t peer)
{
    struct fault *fault = self;

    return fault->inner->peer_pid(fault->inner->self, peer);
}

static enum kvf_status fault_memory_alloc(void *self, uint64_t len_bytes,
                                          struct transport_memory **memory_out, char *reason_out)
{
    struct fault *fault = self;

    if (fault_now(fault, ++fault->seen.allocs, fault->plan.alloc_fail_at)) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "injected: no shared memory");
        return KVF_E_SHM_SPACE;
    }
    return fault->inner->memory_alloc(fault->inner->self, len_bytes, memory_out, reason_out);
}

static enum kvf_status fault_memory_register(void *self, void *base, uint64_t len_bytes,
                                             struct transport_memory **memory_out, char *reason_out)
{
    struct fault *fault = self;

    if (fault_now(fault, ++fault->seen.registers, fault->plan.register_fail_at)) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "injected: registration refused");
        return KVF_E_REGISTER;
    }
    return fault->inner->memory_register(fault->inner->self, base, len_bytes, memory_out,
                                         reason_out);
}

static enum kvf_status fault_memory_pack(void *self, const struct transport_memory *memory,
                                         void *key_out, size_t cap, size_t *len_out)
{
    struct fault *fault = self;

    return fault->inner->memory_pack(fault->inner->self, memory, key_out, cap, len_out);
}

static void fault_memory_release(void *self, struct transport_memory *memory)
{
    struct fault *fault = self;

    fault->inner->memory_release(fault->inner->self, memory);
}

static void *fault_not_mapped(const struct transport_remote *remote)
{
    (void)remote;
    return NULL;
}

static enum kvf_status fault_remote_open(void *self, uint32_t peer, const void *key, size_t len,
                                         struct transport_remote **remote_out, char *reason_out)
{
    struct fault *fault = self;
    enum kvf_status status;

    if (fault_now(fault, ++fault->seen.remote_opens, fault->plan.remote_open_fail_at)) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "injected: no key reaches the peer");
        return KVF_E_NO_PATH;
    }
    status = fault->inner->remote_open(fault->inner->self, peer, key, len, remote_out, reason_out);
    if (fault->plan.deny_mapping && status == KVF_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "injected: mapping denied");
        fault->table.remote_mapped = fault_not_mapped;
    }
    return status;
}

static void fault_remote_release(void *self, struct transport_remote *remote)
{
    struct fault *fault = self;

    fault->inner->remote_release(fault->inner->self, remote);
}

/* An operation that is to fail: one that was done at once is told later instead. */
static enum kvf_status fault_spoil(struct fault *fault, enum kvf_status status,
                                   transport_token token)
{
    if (status == KVF_OK) {
        fault_hold(fault, token, KVF_E_TRANSFER);
        return KVF_AGAIN;
    }
    if (status == KVF_AGAIN) {
        fault_mark(fault, token);
    }
    return status;
}

static enum kvf_status fault_send(void *self, uint32_t peer, const void *bytes, size_t len,
                                  transport_token token)
{
    struct fault *fault = self;
    enum kvf_status status;

    if (fault_now(fault, ++fault->seen.sends, fault->plan.send_busy_at)) {
        return KVF_BUSY;
    }
    status = fault->inner->send(fault->inner->self, peer, bytes, len, token);
    return fault_now(fault, fault->seen.sends, fault->plan.send_error_at)
               ? fault_spoil(fault, status, token)
               : status;
}

static enum kvf_status fault_put(void *self, const struct transport_put *put)
{
    struct fault *fault = self;
    enum kvf_status status;

    if (fault_now(fault, ++fault->seen.puts, fault->plan.put_refuse_at)) {
        return KVF_E_UCX;
    }
    status = fault->inner->put(fault->inner->self, put);
    return fault_now(fault, fault->seen.puts, fault->plan.put_error_at)
               ? fault_spoil(fault, status, put->token)
               : status;
}

static enum kvf_status fault_flush(void *self, uint32_t peer, enum transport_plane plane,
                                   transport_token token)
{
    struct fault *fault = self;
    enum kvf_status status = fault->inner->flush(fault->inner->self, peer, plane, token);

    return fault_now(fault, ++fault->seen.flushes, fault->plan.flush_error_at)
               ? fault_spoil(fault, status, token)
               : status;
}

static enum kvf_status fault_disconnect(void *self, uint32_t peer, bool force,
                                        transport_token token)
{
    struct fault *fault = self;

    return fault->inner->disconnect(fault->inner->self, peer, force, token);
}

static uint32_t fault_poll(void *self)
{
    struct fault *fault = self;
    uint32_t happened = fault->inner->poll(fault->inner->self);

    ++fault->seen.polls;
    happened += fault_tell(fault);
    if (fault_now(fault, fault->seen.polls, fault->plan.peer_error_at)) {
        fault->sink.peer_error(fault->sink.self, fault->plan.peer_error_of, KVF_E_PEER_LOST);
        ++happened;
    }
    return happened;
}

static void fault_descriptors(void *self, int fds_out[3])
{
    struct fault *fault = self;

    fault->inner->descriptors(fault->inner->self, fds_out);
}

static enum kvf_status fault_arm(void *self)
{
    struct fault *fault = self;

    return fault->held_count > 0 ? KVF_AGAIN : fault->inner->arm(fault->inner->self);
}

static void fault_inner_close(void *self, uint64_t deadline_ns)
{
    struct fault *fault = self;

    fault->inner->close(fault->inner->self, deadline_ns);
}

struct fault *fault_open(struct transport *inner, const struct fault_plan *plan)
{
    struct fault *fault = calloc(1, sizeof(*fault));

    if (fault == NULL) {
        return NULL;
    }
    fault->inner = inner;
    fault->plan = *plan;
    fault->table = (struct transport){
        .size = sizeof(struct transport),
        .self = fault,
        .set_sink = fault_set_sink,
        .address = fault_address,
        .connect = fault_connect,
        .is_near = fault_is_near,
        .peer_pid = fault_peer_pid,
        .memory_alloc = fault_memory_alloc,
        .memory_register = fault_memory_register,
        .memory_base = inner->memory_base,
        .memory_cost_ns = inner->memory_cost_ns,
        .memory_pack = fault_memory_pack,
        .memory_release = fault_memory_release,
        .remote_open = fault_remote_open,
        .remote_base = inner->remote_base,
        .remote_len = inner->remote_len,
        .remote_mapped = inner->remote_mapped,
        .remote_plane = inner->remote_plane,
        .remote_release = fault_remote_release,
        .send = fault_send,
        .put = fault_put,
        .flush = fault_flush,
        .disconnect = fault_disconnect,
        .poll = fault_poll,
        .descriptors = fault_descriptors,
        .arm = fault_arm,
        .close = fault_inner_close,
    };
    return fault;
}

void fault_close(struct fault *fault)
{
    free(fault);
}

struct transport *fault_transport(struct fault *fault)
{
    return &fault->table;
}

struct fault_plan *fault_plan(struct fault *fault)
{
    return &fault->plan;
}

const struct fault_seen *fault_seen(const struct fault *fault)
{
    return &fault->seen;
}
