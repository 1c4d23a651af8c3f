/*
 * outbox.h - control messages on their way to the transport: numbered and sealed when they are
 * queued, handed over in that order, kept until the transport no longer needs their bytes.
 *
 * The reactor's. Memory is taken at open; beyond it a message takes its own, which is counted.
 */
#ifndef KVF_OUTBOX_H
#define KVF_OUTBOX_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "channel.h"
#include "heap.h"
#include "list.h"
#include "metrics.h"
#include "msg.h"
#include "peer.h"
#include "xfer/transport.h"

struct outbox_params {
    const struct kvf_heap *heap;
    struct transport *transport;
    struct metrics *metrics;
    transport_token token_base; /* + index: names a send in done() */
    uint32_t messages_max;
    uint32_t words_max; /* bytes of all of them, / 4 */
};

struct outbox;

/* Copies `params`. Gives: outbox_close(). Errors: E_NOMEM, E_INVAL. */
enum kvf_status outbox_open(const struct outbox_params *params, struct outbox **outbox_out);
/* NULL is fine. The transport no longer borrows: close it first, or all was told done. */
void outbox_close(struct outbox *outbox);

/*
 * Encodes, numbers and queues. `epoch` is the header's. Errors: E_PEER_LOST (the channel is not up;
 * `lost_out` OVERFLOW: it was lost by this), E_NOMEM, E_TOO_LARGE.
 */
enum kvf_status outbox_put(struct outbox *outbox, struct peer *peer, const struct msg *msg,
                           enum channel_cause *lost_out);

/* Hands over what is queued as far as the transport takes it; returns how many. */
uint32_t outbox_flush(struct outbox *outbox);

/* done() of a send. */
void outbox_done(struct outbox *outbox, uint32_t index);

/* Nothing queued and nothing borrowed by the transport. */
bool outbox_empty(const struct outbox *outbox);
/* Something is queued that the transport had no room for. */
bool outbox_waiting(const struct outbox *outbox);

#endif /* KVF_OUTBOX_H */
