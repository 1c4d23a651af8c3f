/*
 * peers_ucx.c - addresses of ranks, and the endpoints to them: made here, closed here.
 *
 * A near peer has a control and a near endpoint, a far one a control and a far endpoint. The near
 * one has no error mode and is never closed by force; nobody waits for its end, since it may need
 * an answer of a peer that has gone (what was put through it has been flushed, or given up). The
 * others are closed by force when they failed or nothing was ever posted on them.
 *
 * May not post messages or puts.
 */
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "clock.h"
#include "xfer/transport_ucx.h"

#define UCX_ADDRESS_MAGIC UINT32_C(0x4146564b)
#define UCX_ADDRESS_VERSION 1
#define UCX_CLOSE_POLL_MS 1

/* Head of a rank's address; the three worker addresses follow. */
struct ucx_address_head {
    uint32_t magic;
    uint16_t version;
    uint16_t reserved; /* 0 */
    uint64_t host;
    uint32_t pid;
    uint32_t worker_bytes[UCX_CONTEXTS];
    uint32_t checksum;  /* of the head with this 0, and of all that follows */
    uint32_t reserved2; /* 0 */
};
_Static_assert(sizeof(struct ucx_address_head) == 40, "head of an address");

static uint32_t ucx_address_checksum(const struct ucx_address_head *head, const void *bytes,
                                     size_t len)
{
    struct ucx_address_head bare = *head;

    bare.checksum = 0;
    return XXH32(bytes, len, XXH32(&bare, sizeof(bare), 0));
}

enum kvf_status ucx_address(void *self, void *address_out, size_t cap_bytes, size_t *len_out)
{
    struct ucx *ucx = self;
    struct ucx_address_head head = {.magic = UCX_ADDRESS_MAGIC,
                                    .version = UCX_ADDRESS_VERSION,
                                    .host = ucx->host,
                                    .pid = (uint32_t)getpid()};
    ucp_address_t *workers[UCX_CONTEXTS] = {NULL};
    size_t bytes[UCX_CONTEXTS] = {0};
    enum kvf_status status = KVF_OK;

    *len_out = sizeof(head);
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        ucs_status_t answer =
            ucp_worker_get_address(ucx->contexts[i].worker, &workers[i], &bytes[i]);
        if (answer != UCS_OK) {
            workers[i] = NULL;
            *len_out = 0;
            status = ucx_status(answer);
            goto release_workers;
        }
        head.worker_bytes[i] = (uint32_t)bytes[i];
        *len_out += bytes[i];
    }
    if (*len_out > cap_bytes) {
        status = KVF_E_TOO_LARGE;
        goto release_workers;
    }
    char *behind = (char *)address_out + sizeof(head);
    for (int i = 0; i < UCX_CONTEXTS; behind += bytes[i], ++i) {
        memcpy(behind, workers[i], bytes[i]);
    }
    head.checksum =
        ucx_address_checksum(&head, (char *)address_out + sizeof(head), *len_out - sizeof(head));
    memcpy(address_out, &head, sizeof(head));

release_workers:
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        if (workers[i] != NULL) {
            ucp_worker_release_address(ucx->contexts[i].worker, workers[i]);
        }
    }
    return status;
}

static enum kvf_status ucx_address_read(const void *address, size_t len_bytes,
                                        struct ucx_address_head *head_out)
{
    uint64_t workers = 0;

    if (len_bytes < sizeof(*head_out)) {
        return KVF_E_DECODE;
    }
    memcpy(head_out, address, sizeof(*head_out));
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        workers += head_out->worker_bytes[i];
    }
    if (head_out->magic != UCX_ADDRESS_MAGIC || head_out->version != UCX_ADDRESS_VERSION ||
        head_out->reserved != 0 || head_out->reserved2 != 0 ||
        workers != len_bytes - sizeof(*head_out)) {
        return KVF_E_DECODE;
    }
    return head_out->checksum == ucx_address_checksum(head_out,
                                                      (const char *)address + sizeof(*head_out),
                                                      len_bytes - sizeof(*head_out))
               ? KVF_OK
               : KVF_E_DECODE;
}

static ucs_status_t ucx_endpoint_make(struct ucx_peer *peer, enum tls_context context,
                                      const ucp_address_t *address)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .address = address,
                              .err_mode = UCP_ERR_HANDLING_MODE_NONE};

    if (context != TLS_NEAR) {
        params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        params.err_handler.cb = ucx_endpoint_failed;
        params.err_handler.arg = peer;
    }
    return ucp_ep_create(peer->ucx->contexts[context].worker, &params, &peer->endpoint[context]);
}

/* Closes without waiting: the request is UCX's alone from here on. */
static void ucx_endpoint_discard(struct ucx_peer *peer, enum tls_context context)
{
    const ucp_request_param_t params = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                        .flags = context == TLS_NEAR ? 0 : UCP_EP_CLOSE_FLAG_FORCE};
    ucs_status_ptr_t request;

    if (peer->endpoint[context] == NULL) {
        return;
    }
    request = ucp_ep_close_nbx(peer->endpoint[context], &params);
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    peer->endpoint[context] = NULL;
}

enum kvf_status ucx_connect(void *self, uint32_t peer, const void *address, size_t len_bytes)
{
    struct ucx *ucx = self;
    struct ucx_address_head head;
    struct ucx_peer *entry;
    enum kvf_status status;

    KVF_REQUIRE(!ucx->owner_known || pthread_equal(ucx->owner, pthread_self()));
    ucx->owner = pthread_self();
    ucx->owner_known = true;
    if (peer >= ucx->peers_max) {
        return KVF_E_INVAL;
    }
    entry = &ucx->peers[peer];
    if (entry->known) {
        return KVF_E_EXISTS;
    }
    status = ucx_address_read(address, len_bytes, &head);
    if (status != KVF_OK) {
        return status;
    }
    *entry = (struct ucx_peer){
        .ucx = ucx, .index = peer, .pid = head.pid, .near = head.host == ucx->host};
    entry->known = true;
    const char *worker = (const char *)address + sizeof(head);
    for (int i = 0; i < UCX_CONTEXTS; worker += head.worker_bytes[i], ++i) {
        enum tls_context context = (enum tls_context)i;
        if (context == (entry->near ? TLS_FAR : TLS_NEAR)) {
            continue;
        }
        ucs_status_t answer = ucx_endpoint_make(entry, context, (const ucp_address_t *)worker);
        if (answer != UCS_OK) {
            log_error(ucx->logger, "", "no %s endpoint to rank %u: %s", tls_context_name(context),
                      peer, ucs_status_string(answer));
            entry->endpoint[context] = NULL;
            goto discard_endpoints;
        }
    }
    return KVF_OK;

discard_endpoints:
    entry->known = false;
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        ucx_endpoint_discard(entry, (enum tls_context)i);
    }
    return KVF_E_UCX;
}

bool ucx_is_near(void *self, uint32_t peer)
{
    const struct ucx *ucx = self;

    return peer < ucx->peers_max && ucx->peers[peer].known && ucx->peers[peer].near;
}

uint32_t ucx_peer_pid(void *self, uint32_t peer)
{
    const struct ucx *ucx = self;

    return ucx_is_near(self, peer) ? ucx->peers[peer].pid : 0;
}

static void ucx_closed(void *request, ucs_status_t status, void *user_data)
{
    struct ucx_op *op = user_data;

    (void)status; /* closed is closed, also when the peer was first */
    ucp_request_free(request);
    KVF_ASSERT(op->parts > 0);
    --op->parts;
    ucx_disconnect_step(&op->ucx->peers[op->peer]);
}

void ucx_disconnect_step(struct ucx_peer *peer)
{
    struct ucx_op *op = peer->disconnect;

    if (op == NULL || op->parts > 0 || peer->posted != NULL) {
        return;
    }
    *peer = (struct ucx_peer){.ucx = peer->ucx, .index = peer->index};
    ucx_op_ended(op, KVF_OK);
}

enum kvf_status ucx_disconnect(void *self, uint32_t peer, bool force, transport_token token)
{
    struct ucx *ucx = self;
    struct ucx_peer *entry;
    struct ucx_op *op;

    if (peer >= ucx->peers_max || !ucx->peers[peer].known || ucx->peers[peer].closing) {
        return KVF_E_NOTFOUND;
    }
    op = ucx_op_take(ucx, UCX_OP_DISCONNECT, TLS_CONTROL, peer, token);
    if (op == NULL) {
        return KVF_BUSY;
    }
    entry = &ucx->peers[peer];
    entry->closing = true;
    op->parts = 1; /* until all closings are posted */
    for (struct ucx_op *next, *one = entry->posted; force && one != NULL; one = next) {
        next = one->peer_next;
        if (one->context == TLS_NEAR) {
            ucx_op_orphan(one, KVF_E_PEER_LOST);
        }
    }
    entry->disconnect = op;
    ucx_endpoint_discard(entry, TLS_NEAR);
    for (int i = TLS_FAR; i < UCX_CONTEXTS; ++i) {
        const ucp_request_param_t params = {
            .op_attr_mask =
                UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
            .cb.send = ucx_closed,
            .user_data = op,
            .flags = force || entry->failed || !entry->used ? UCP_EP_CLOSE_FLAG_FORCE : 0};
        ucp_ep_h endpoint = entry->endpoint[i];
        entry->endpoint[i] = NULL;
        if (endpoint != NULL && UCS_PTR_IS_PTR(ucp_ep_close_nbx(endpoint, &params))) {
            ++op->parts;
        }
    }
    --op->parts;
    ucx_disconnect_step(entry);
    return KVF_AGAIN;
}

static void ucx_closed_at_end(void *request, ucs_status_t status, void *user_data)
{
    void **leaving = user_data;

    (void)status;
    ucp_request_free(request);
    *leaving = NULL;
}

/* Sleeps until a worker has something to do, or for a moment. */
static void ucx_close_sleep(struct ucx *ucx)
{
    struct pollfd fds[UCX_CONTEXTS];

    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        if (ucp_worker_arm(ucx->contexts[i].worker) != UCS_OK) {
            return;
        }
        fds[i] = (struct pollfd){.fd = ucx->contexts[i].fd, .events = POLLIN};
    }
    (void)poll(fds, UCX_CONTEXTS, UCX_CLOSE_POLL_MS);
}

static void ucx_peer_leave(struct ucx_peer *peer)
{
    ucx_endpoint_discard(peer, TLS_NEAR);
    for (int i = TLS_FAR; i < UCX_CONTEXTS; ++i) {
        const ucp_request_param_t params = {
            .op_attr_mask =
                UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS,
            .cb.send = ucx_closed_at_end,
            .user_data = &peer->leaving[i],
            .flags = peer->failed || !peer->used ? UCP_EP_CLOSE_FLAG_FORCE : 0};
        ucs_status_ptr_t request;

        if (peer->endpoint[i] != NULL) {
            request = ucp_ep_close_nbx(peer->endpoint[i], &params);
            peer->endpoint[i] = NULL;
            peer->leaving[i] = UCS_PTR_IS_PTR(request) ? request : NULL;
        }
    }
}

static uint32_t ucx_count_leaving(const struct ucx *ucx)
{
    uint32_t count = 0;

    for (uint32_t p = 0; p < ucx->peers_max; ++p) {
        for (int i = 0; i < UCX_CONTEXTS; ++i) {
            count += ucx->peers[p].leaving[i] != NULL;
        }
    }
    return count;
}

void ucx_peers_close(struct ucx *ucx, uint64_t deadline_ns)
{
    for (uint32_t p = 0; p < ucx->peers_max; ++p) {
        ucx_peer_leave(&ucx->peers[p]);
    }
    while (ucx_count_leaving(ucx) > 0 && clock_now_ns() < deadline_ns) {
        unsigned happened = 0;
        for (int i = ucx->orphans > 0 ? TLS_FAR : TLS_NEAR; i < UCX_CONTEXTS; ++i) {
            happened += ucp_worker_progress(ucx->contexts[i].worker);
        }
        if (happened == 0) {
            ucx_close_sleep(ucx);
        }
    }
    for (uint32_t p = 0; p < ucx->peers_max; ++p) {
        for (int i = 0; i < UCX_CONTEXTS; ++i) {
            if (ucx->peers[p].leaving[i] != NULL) {
                log_debug(ucx->logger, "the %s endpoint to rank %u was not closed in time",
                          tls_context_name((enum tls_context)i), p);
                ucp_request_free(ucx->peers[p].leaving[i]);
            }
        }
    }
    for (uint32_t i = 0; i < ucx->operations_max; ++i) {
        if (ucx->ops[i].request != NULL) {
            ucp_request_free(ucx->ops[i].request);
        }
    }
}
