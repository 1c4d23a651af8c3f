/*
 * posts_ucx.c - what is posted and how it ends: messages, puts, flushes, and the poll that tells.
 *
 * UCX calls back in the middle of its own work; a callback therefore only moves its operation to
 * the done list, and poll() tells from there. A message is the exception: it is told where it
 * arrives, since it lies in a buffer of UCX until the callback returns.
 *
 * May not allocate, and may not make or close endpoints.
 */
#include <string.h>

#include "check.h"
#include "xfer/transport_ucx.h"

enum { UCX_ONCE_RENDEZVOUS, UCX_ONCE_ARM };

struct ucx_op *ucx_op_take(struct ucx *ucx, enum ucx_op_kind kind, enum tls_context context,
                           uint32_t peer, transport_token token)
{
    struct ucx_op *op = ucx->ops_free;

    if (op == NULL) {
        return NULL;
    }
    ucx->ops_free = op->next;
    *op =
        (struct ucx_op){.ucx = ucx, .token = token, .kind = kind, .context = context, .peer = peer};
    return op;
}

void ucx_op_drop(struct ucx_op *op)
{
    op->next = op->ucx->ops_free;
    op->ucx->ops_free = op;
}

/* Now UCX has it. */
static void ucx_op_posted(struct ucx_op *op)
{
    struct ucx_peer *peer = &op->ucx->peers[op->peer];

    op->posted = true;
    op->peer_next = peer->posted;
    if (peer->posted != NULL) {
        peer->posted->peer_before = op;
    }
    peer->posted = op;
    if (op->remote != NULL) {
        ++op->remote->puts;
    }
}

static void ucx_op_unlink(struct ucx_op *op)
{
    struct ucx_peer *peer = &op->ucx->peers[op->peer];

    if (!op->posted) {
        return;
    }
    if (op->peer_before != NULL) {
        op->peer_before->peer_next = op->peer_next;
    } else {
        peer->posted = op->peer_next;
    }
    if (op->peer_next != NULL) {
        op->peer_next->peer_before = op->peer_before;
    }
    op->peer_next = op->peer_before = NULL;
    op->posted = false;
}

static void ucx_op_queue(struct ucx_op *op)
{
    struct ucx *ucx = op->ucx;

    if (op->queued) {
        return;
    }
    op->queued = true;
    op->next = NULL;
    if (ucx->done_last != NULL) {
        ucx->done_last->next = op;
    } else {
        ucx->done_first = op;
    }
    ucx->done_last = op;
}

void ucx_op_ended(struct ucx_op *op, enum kvf_status status)
{
    struct ucx_peer *peer = &op->ucx->peers[op->peer];

    KVF_ASSERT(!op->ended);
    op->ended = true;
    if (op->told || op->queued) { /* an orphan whose end came after all */
        --op->ucx->orphans;
    } else {
        op->status = status;
    }
    ucx_op_queue(op);
    if (op->posted) {
        ucx_op_unlink(op);
        ucx_disconnect_step(peer);
    }
}

void ucx_op_orphan(struct ucx_op *op, enum kvf_status status)
{
    ucx_op_unlink(op);
    op->status = status;
    ++op->ucx->orphans;
    ucx_op_queue(op);
}

static void ucx_request_done(void *request, ucs_status_t status, void *user_data)
{
    struct ucx_op *op = user_data;

    ucp_request_free(request);
    op->request = NULL;
    ucx_op_ended(op, ucx_status(status));
}

/* What a post of UCX came to: at once, later, or not. */
static enum kvf_status ucx_post_result(struct ucx_op *op, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_PTR(request)) {
        op->request = request;
        ucx_op_posted(op);
        return KVF_AGAIN;
    }
    ucx_op_drop(op);
    return ucx_status(UCS_PTR_STATUS(request));
}

static const ucp_request_param_t ucx_params = {
    .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
    .cb.send = ucx_request_done,
};

/* Is the peer's endpoint of that context fit for a post? Then it counts as used. */
static enum kvf_status ucx_may_post(struct ucx *ucx, uint32_t peer, enum tls_context context)
{
    if (peer >= ucx->peers_max || !ucx->peers[peer].known || ucx->peers[peer].closing ||
        ucx->peers[peer].endpoint[context] == NULL) {
        return KVF_E_NOTFOUND;
    }
    if (ucx->peers[peer].failed && context != TLS_NEAR) {
        return KVF_E_PEER_LOST;
    }
    ucx->peers[peer].used |= context != TLS_NEAR;
    return KVF_OK;
}

enum kvf_status ucx_send(void *self, uint32_t peer, const void *bytes, size_t len_bytes,
                         transport_token token)
{
    struct ucx *ucx = self;
    enum kvf_status status = ucx_may_post(ucx, peer, TLS_CONTROL);
    ucp_request_param_t params = ucx_params;
    struct ucx_op *op;

    if (status != KVF_OK) {
        return status;
    }
    op = ucx_op_take(ucx, UCX_OP_SEND, TLS_CONTROL, peer, token);
    if (op == NULL) {
        return KVF_BUSY;
    }
    params.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    params.user_data = op;
    return ucx_post_result(op, ucp_am_send_nbx(ucx->peers[peer].endpoint[TLS_CONTROL], UCX_AM_ID,
                                               NULL, 0, bytes, len_bytes, &params));
}

enum kvf_status ucx_put(void *self, const struct transport_put *put)
{
    struct ucx *ucx = self;
    struct transport_remote *remote = put->remote;
    enum tls_context context = (enum tls_context)remote->plane;
    enum kvf_status status = ucx_may_post(ucx, remote->peer, context);
    ucp_request_param_t params = ucx_params;
    struct ucx_op *op;

    if (status != KVF_OK) {
        return status;
    }
    if (put->len_bytes == 0 || put->len_bytes > remote->len_bytes || put->address < remote->base ||
        put->address - remote->base > remote->len_bytes - put->len_bytes) {
        return KVF_E_INVAL;
    }
    op = ucx_op_take(ucx, UCX_OP_PUT, context, remote->peer, put->token);
    if (op == NULL) {
        return KVF_BUSY;
    }
    op->remote = remote;
    params.user_data = op;
    if (put->source != NULL) {
        params.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        params.memh = put->source->handle[remote->plane];
    }
    return ucx_post_result(op, ucp_put_nbx(ucx->peers[remote->peer].endpoint[context], put->local,
                                           put->len_bytes, put->address, remote->key, &params));
}

enum kvf_status ucx_flush(void *self, uint32_t peer, enum transport_plane plane,
                          transport_token token)
{
    struct ucx *ucx = self;
    enum tls_context context = (enum tls_context)plane;
    enum kvf_status status = ucx_may_post(ucx, peer, context);
    ucp_request_param_t params = ucx_params;
    struct ucx_op *op;

    if (status != KVF_OK) {
        return status;
    }
    op = ucx_op_take(ucx, UCX_OP_FLUSH, context, peer, token);
    if (op == NULL) {
        return KVF_BUSY;
    }
    params.user_data = op;
    return ucx_post_result(op, ucp_ep_flush_nbx(ucx->peers[peer].endpoint[context], &params));
}

static ucs_status_t ucx_message(void *self, const void *header, size_t header_bytes, void *bytes,
                                size_t len_bytes, const ucp_am_recv_param_t *param)
{
    struct ucx *ucx = self;

    (void)header;
    if (header_bytes != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
        if (log_once(&ucx->once, UCX_ONCE_RENDEZVOUS)) {
            log_warn(ucx->logger, "", "a control message of a form that is never sent was refused");
        }
        return UCS_OK;
    }
    if (ucx->sink.message != NULL) {
        ucx->sink.message(ucx->sink.self, bytes, len_bytes);
    }
    return UCS_OK;
}

ucs_status_t ucx_listen(struct ucx *ucx)
{
    const ucp_am_handler_param_t params = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                      UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = UCX_AM_ID,
        .flags = UCP_AM_FLAG_WHOLE_MSG,
        .cb = ucx_message,
        .arg = ucx};

    return ucp_worker_set_am_recv_handler(ucx->contexts[TLS_CONTROL].worker, &params);
}

void ucx_endpoint_failed(void *peer, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ucx_peer *failed = peer;
    struct ucx *ucx = failed->ucx;

    /* An endpoint of an earlier life of the peer says nothing about this one. */
    if (!failed->known || failed->failed || failed->closing ||
        (endpoint != failed->endpoint[TLS_CONTROL] && endpoint != failed->endpoint[TLS_FAR])) {
        return;
    }
    log_debug(ucx->logger, "endpoint of rank %u failed: %s", failed->index,
              ucs_status_string(status));
    failed->failed = true;
    KVF_ASSERT(ucx->errors_count < ucx->peers_max);
    ucx->errors[ucx->errors_count++] = failed->index;
}

/* Tells what has ended. Bounded: what is posted from inside the sink may end at once, and so on. */
static uint32_t ucx_tell_done(struct ucx *ucx)
{
    uint32_t told = 0;

    while (ucx->done_first != NULL && told < UCX_OPERATIONS_DEFAULT) {
        struct ucx_op *op = ucx->done_first;
        bool tell = !op->told;
        transport_token token = op->token;
        enum kvf_status status = op->status;

        ucx->done_first = op->next;
        if (ucx->done_first == NULL) {
            ucx->done_last = NULL;
        }
        op->queued = false;
        op->told = true;
        if (op->ended) {
            if (op->remote != NULL) {
                ucx_remote_put_ended(op->remote);
            }
            ucx_op_drop(op);
        }
        ++told;
        if (tell && ucx->sink.done != NULL) {
            ucx->sink.done(ucx->sink.self, token, status);
        }
    }
    return told;
}

static uint32_t ucx_tell_errors(struct ucx *ucx)
{
    uint32_t told = 0;

    while (ucx->errors_count > 0) {
        uint32_t peer = ucx->errors[--ucx->errors_count];
        /* The peer may have been given up, or be a new one, since. */
        if (!ucx->peers[peer].known || !ucx->peers[peer].failed || ucx->peers[peer].closing) {
            continue;
        }
        ++told;
        if (ucx->sink.peer_error != NULL) {
            ucx->sink.peer_error(ucx->sink.self, peer, KVF_E_PEER_LOST);
        }
    }
    return told;
}

uint32_t ucx_poll(void *self)
{
    struct ucx *ucx = self;
    uint32_t happened = 0;

    /* Messages last: what ended before a message came is told before it. */
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        happened += ucp_worker_progress(ucx->contexts[i].worker);
        happened += ucx_tell_done(ucx);
    }
    return happened + ucx_tell_errors(ucx);
}

void ucx_descriptors(void *self, int fds_out[3])
{
    struct ucx *ucx = self;

    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        fds_out[i] = ucx->contexts[i].fd;
    }
}

enum kvf_status ucx_arm(void *self)
{
    struct ucx *ucx = self;

    if (ucx->done_first != NULL || ucx->errors_count > 0) {
        return KVF_AGAIN;
    }
    for (int i = 0; i < UCX_CONTEXTS; ++i) {
        ucs_status_t status = ucp_worker_arm(ucx->contexts[i].worker);
        if (status == UCS_ERR_BUSY) {
            return KVF_AGAIN;
        }
        if (status != UCS_OK) {
            if (log_once(&ucx->once, UCX_ONCE_ARM)) {
                log_warn(ucx->logger, "", "the %s worker cannot be armed: %s",
                         tls_context_name((enum tls_context)i), ucs_status_string(status));
            }
            return KVF_E_UCX;
        }
    }
    return KVF_OK;
}
