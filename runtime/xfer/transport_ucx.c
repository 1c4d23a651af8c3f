/*
 * transport_ucx.c - the transport table over UCX: open and close. See transport_ucx.h.
 *
 * May not call UCX beyond what the other files offer.
 */
#include <stdio.h>

#include "xfer/transport_ucx.h"

static void ucx_set_sink(void *self, const struct transport_sink *sink)
{
    struct ucx *ucx = self;

    ucx->sink = *sink;
}

static void ucx_free(struct ucx *ucx)
{
    kvf_release(ucx->heap, ucx->errors);
    kvf_release(ucx->heap, ucx->ops);
    kvf_release(ucx->heap, ucx->peers);
    kvf_release(ucx->heap, ucx);
}

static void ucx_close(void *self, uint64_t deadline_ns)
{
    struct ucx *ucx = self;

    ucx->sink = (struct transport_sink){0};
    ucx_peers_close(ucx, deadline_ns);
    ucx_remotes_drop(ucx);
    ucx_contexts_close(ucx);
    ucx_free(ucx);
}

static const struct transport ucx_table = {
    .size = sizeof(struct transport),
    .set_sink = ucx_set_sink,
    .address = ucx_address,
    .connect = ucx_connect,
    .is_near = ucx_is_near,
    .peer_pid = ucx_peer_pid,
    .memory_alloc = ucx_memory_alloc,
    .memory_register = ucx_memory_register,
    .memory_base = ucx_memory_base,
    .memory_cost_ns = ucx_memory_cost_ns,
    .memory_pack = ucx_memory_pack,
    .memory_release = ucx_memory_release,
    .remote_open = ucx_remote_open,
    .remote_base = ucx_remote_base,
    .remote_len = ucx_remote_len,
    .remote_mapped = ucx_remote_mapped,
    .remote_plane = ucx_remote_plane,
    .remote_release = ucx_remote_release,
    .send = ucx_send,
    .put = ucx_put,
    .flush = ucx_flush,
    .disconnect = ucx_disconnect,
    .poll = ucx_poll,
    .descriptors = ucx_descriptors,
    .arm = ucx_arm,
    .close = ucx_close,
};

static enum kvf_status ucx_new(const struct transport_ucx_params *params, struct ucx **ucx_out)
{
    struct ucx *ucx = kvf_alloc(params->heap, 1, sizeof(*ucx));

    if (ucx == NULL) {
        return KVF_E_NOMEM;
    }
    ucx->heap = params->heap;
    ucx->logger = params->logger;
    ucx->rank = params->rank;
    ucx->peers_max = params->peers_max;
    ucx->operations_max =
        params->operations_max != 0 ? params->operations_max : UCX_OPERATIONS_DEFAULT;
    ucx->shared_bytes_max = params->shared_bytes_max;
    ucx->root = params->machine_root != NULL ? params->machine_root : "/";
    ucx->peers = kvf_alloc(ucx->heap, ucx->peers_max, sizeof(*ucx->peers));
    ucx->errors = kvf_alloc(ucx->heap, ucx->peers_max, sizeof(*ucx->errors));
    ucx->ops = kvf_alloc(ucx->heap, ucx->operations_max, sizeof(*ucx->ops));
    if (ucx->peers == NULL || ucx->errors == NULL || ucx->ops == NULL) {
        ucx_free(ucx);
        return KVF_E_NOMEM;
    }
    for (uint32_t i = 0; i < ucx->operations_max; ++i) {
        ucx->ops[i].ucx = ucx;
        ucx_op_drop(&ucx->ops[i]);
    }
    *ucx_out = ucx;
    return KVF_OK;
}

enum kvf_status transport_ucx_open(const struct transport_ucx_params *params,
                                   struct transport **transport_out, char *reason_out)
{
    enum kvf_status status;
    struct ucx *ucx;

    reason_out[0] = '\0';
    if (params->heap == NULL || params->peers_max == 0) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "the transport needs a heap and peers");
        return KVF_E_INVAL;
    }
    status = ucx_new(params, &ucx);
    if (status != KVF_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "out of memory");
        return status;
    }
    status = ucx_contexts_open(ucx, reason_out);
    if (status != KVF_OK) {
        ucx_free(ucx);
        return status;
    }
    if (ucx_listen(ucx) != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "UCX takes no handler of active messages");
        ucx_contexts_close(ucx);
        ucx_free(ucx);
        return KVF_E_UCX;
    }
    ucx->host = ucx_host_identity(ucx->root);
    ucx->table = ucx_table;
    ucx->table.self = ucx;
    *transport_out = &ucx->table;
    return KVF_OK;
}
