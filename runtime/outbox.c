/*
 * outbox.c - see outbox.h.
 */
#include "outbox.h"

#include "store.h"

struct outbox_message {
    struct list link; /* unused, or queued */
    struct peer *peer;
    uint8_t *bytes;
    uint32_t *run; /* of the store; NULL: bytes have memory of their own */
    size_t len_bytes;
};

struct outbox {
    struct outbox_params params;
    struct outbox_message *messages;
    struct store *store;
    struct list unused;
    struct list queued;
    uint32_t used; /* queued or borrowed */
};

enum kvf_status outbox_open(const struct outbox_params *params, struct outbox **outbox_out)
{
    struct outbox *outbox = kvf_alloc(params->heap, 1, sizeof(*outbox));
    enum kvf_status status = KVF_E_NOMEM;

    if (outbox == NULL)
        return KVF_E_NOMEM;
    outbox->params = *params;
    list_init(&outbox->unused);
    list_init(&outbox->queued);
    outbox->messages = kvf_alloc(params->heap, params->messages_max, sizeof(*outbox->messages));
    if (outbox->messages != NULL)
        status = store_open(params->heap, params->words_max, params->messages_max, &outbox->store);
    if (status != KVF_OK) {
        kvf_release(params->heap, outbox->messages);
        kvf_release(params->heap, outbox);
        return status;
    }
    for (uint32_t m = 0; m < params->messages_max; m++)
        list_push(&outbox->unused, &outbox->messages[m].link);
    *outbox_out = outbox;
    return KVF_OK;
}

static void outbox_free(struct outbox *outbox, struct outbox_message *message)
{
    if (message->run != NULL)
        store_free(outbox->store, message->run);
    else
        kvf_release(outbox->params.heap, message->bytes);
    message->run = NULL;
    message->bytes = NULL;
    list_push(&outbox->unused, &message->link);
    outbox->used--;
}

void outbox_close(struct outbox *outbox)
{
    if (outbox == NULL)
        return;
    for (uint32_t m = 0; m < outbox->params.messages_max; m++)
        if (outbox->messages[m].run == NULL)
            kvf_release(outbox->params.heap, outbox->messages[m].bytes);
    store_close(outbox->store);
    kvf_release(outbox->params.heap, outbox->messages);
    kvf_release(outbox->params.heap, outbox);
}

static enum kvf_status outbox_take(struct outbox *outbox, size_t len_bytes,
                                   struct outbox_message **message_out)
{
    struct list *node = list_first(&outbox->unused);
    struct outbox_message *message;

    if (node == NULL)
        return KVF_E_NOMEM;
    message = list_object(node, struct outbox_message, link);
    if (store_take(outbox->store, (uint32_t)((len_bytes + 3) / 4), &message->run) == KVF_OK) {
        message->bytes = (uint8_t *)message->run;
    } else {
        message->run = NULL;
        message->bytes = kvf_alloc(outbox->params.heap, len_bytes, 1);
        if (message->bytes == NULL)
            return KVF_E_NOMEM;
    }
    list_remove(&message->link);
    outbox->used++;
    *message_out = message;
    return KVF_OK;
}

enum kvf_status outbox_put(struct outbox *outbox, struct peer *peer, const struct msg *msg,
                           enum channel_cause *lost_out)
{
    size_t max_bytes = msg_size(msg);
    struct outbox_message *message;
    enum kvf_status status;

    *lost_out = CHANNEL_CAUSE_NONE;
    if (peer->channel.state != CHANNEL_UP)
        return KVF_E_PEER_LOST;
    status = outbox_take(outbox, max_bytes, &message);
    if (status != KVF_OK) {
        *lost_out = CHANNEL_CAUSE_OVERFLOW;
        channel_lose(&peer->channel, CHANNEL_CAUSE_OVERFLOW);
        return status;
    }
    message->peer = peer;
    status = msg_encode(msg, message->bytes, max_bytes, &message->len_bytes);
    if (status == KVF_OK)
        status = channel_stamp(&peer->channel, message->bytes, message->len_bytes, lost_out);
    if (status != KVF_OK) {
        outbox_free(outbox, message);
        return status;
    }
    list_push(&outbox->queued, &message->link);
    return KVF_OK;
}

uint32_t outbox_flush(struct outbox *outbox)
{
    struct transport *transport = outbox->params.transport;
    struct metrics *metrics = outbox->params.metrics;
    uint32_t count = 0;
    struct list *node;

    while ((node = list_first(&outbox->queued)) != NULL) {
        struct outbox_message *message = list_object(node, struct outbox_message, link);
        uint32_t index = (uint32_t)(message - outbox->messages);
        struct peer *peer = message->peer;
        enum kvf_status status =
            transport->send(transport->self, peer->world_rank, message->bytes, message->len_bytes,
                            outbox->params.token_base + index);

        if (status == KVF_BUSY)
            break;
        list_remove(&message->link);
        metrics_add(&metrics->control_messages, 1);
        metrics_add(&metrics->control_bytes, message->len_bytes);
        metrics_add(&metrics->wire_bytes, message->len_bytes);
        if (peer->channel.state == CHANNEL_UP)
            channel_sent(&peer->channel);
        if (status != KVF_AGAIN)
            outbox_free(outbox, message); /* an error is told by peer_error() too */
        count++;
    }
    return count;
}

void outbox_done(struct outbox *outbox, uint32_t index)
{
    outbox_free(outbox, &outbox->messages[index]);
}

bool outbox_empty(const struct outbox *outbox)
{
    return outbox->used == 0;
}

bool outbox_waiting(const struct outbox *outbox)
{
    return !list_empty(&outbox->queued);
}
