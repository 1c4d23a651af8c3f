/*
 * channel.h - the order of the messages of one pair of ranks. Pure.
 *
 * UCX promises no order between active messages, so each message has a number (from 1 a pair). The
 * receiving side holds early ones and delivers in order, drops what it has seen, and calls the peer
 * lost when a gap does not close (rules T1-T5 and T9, docs/protocol.md). The sending side numbers
 * and seals, and bounds what is queued. Messages of one life (epoch) of the peer only: another
 * epoch ends this life, and a HELLO begins the next.
 *
 * Early messages lie in one store that all channels of the rank share. The channel does not log: it
 * says what to log. One thread; a store and its channels have the same one.
 */
#ifndef KVF_CHANNEL_H
#define KVF_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap.h"
#include "msg.h"

#define CHANNEL_WINDOW_MESSAGES 1024u
#define CHANNEL_WINDOW_BYTES (16u << 20)
#define CHANNEL_GAP_NS UINT64_C(5000000000) /* awake */
#define CHANNEL_QUEUE_MAX 65536u
#define CHANNEL_DEAD_EPOCHS 4u

/* Memory for early messages, shared. Opaque. */
struct channel_store;

/*
 * `max_bytes` for all early messages of all peers. Gives: channel_store_close(). Errors: E_NOMEM.
 */
enum kvf_status channel_store_open(const struct kvf_heap *heap, size_t max_bytes,
                                   struct channel_store **store_out);
/* No channel may hold messages. NULL is fine. */
void channel_store_close(struct channel_store *store);
size_t channel_store_used_bytes(const struct channel_store *store);

enum channel_state {
    CHANNEL_CLOSED, /* no life of the peer is known: only a HELLO is looked at */
    CHANNEL_UP,
    CHANNEL_LOST, /* as CLOSED, but the last life ended badly */
};

enum channel_cause {
    CHANNEL_CAUSE_NONE,
    CHANNEL_CAUSE_GAP,      /* a missing message did not come for 5 s */
    CHANNEL_CAUSE_WINDOW,   /* an early message beyond the window or the store */
    CHANNEL_CAUSE_OVERFLOW, /* too many messages queued to send: W31 */
    CHANNEL_CAUSE_EPOCH,    /* another life of the rank spoke */
    CHANNEL_CAUSE_OUTSIDE,  /* channel_lose(): the transport, the pidfd, silence, BYE */
};
const char *channel_cause_text(enum channel_cause cause);

/* What became of one message. */
enum channel_verdict {
    CHANNEL_DELIVER,   /* in order: channel_pop() gives it, and held ones after it */
    CHANNEL_HELD,      /* early, kept */
    CHANNEL_DUPLICATE, /* seen before, dropped (debug) */
    CHANNEL_BAD_FRAME, /* dropped, counted: T9 */
    CHANNEL_STRANGER,  /* epoch without a handshake, not a HELLO; dropped */
    CHANNEL_STALE,     /* of a life that has ended; dropped (debug) */
    CHANNEL_HANDSHAKE, /* a HELLO that begins a life: judge it, channel_open(), receive it again */
    CHANNEL_DROPPED,   /* this life was lost by it; see `lost` */
};

struct channel_out {
    enum channel_verdict verdict;
    enum kvf_status status;   /* with BAD_FRAME: why */
    enum channel_cause lost;  /* != NONE: the life ended now; deliver what channel_pop() gives, then
                                 end all work with the peer. With HANDSHAKE too: old life first */
    const char *warn;         /* != NULL: log it once (W30 and W31 are the caller's, from `lost`) */
    struct msg_header header; /* valid unless BAD_FRAME */
};

struct channel_counts {
    uint64_t delivered, held, duplicates, bad_frames, strangers, stale, refused;
    uint64_t sent;
};

/* A message held because it came early. Storage belongs to the store. */
struct channel_held;

/*
 * Invariants (channel_check): C1 held is sorted by seq, without doubles, all >= receive_next;
 * C2 held_count and held_bytes are its sums and within the window; C3 gap_since_ns != 0 exactly
 * when something is held that waits for a missing message; C4 state != UP: nothing is held,
 * queued = 0, epoch = 0; UP: epoch != 0.
 */
struct channel {
    struct channel_store *store; /* borrows: until channel_fini() */
    enum channel_state state;
    uint64_t epoch;        /* of the peer's present life; 0 = none */
    uint64_t receive_next; /* seq that is due */
    uint64_t send_next;    /* never goes back in the life of this process */
    uint32_t queued;       /* stamped and not yet handed over */
    uint64_t gap_since_ns;
    struct channel_held *held;
    uint32_t held_count;
    uint64_t held_bytes;
    struct channel_held *popped; /* given out by channel_pop(), freed at the next call */
    const uint8_t *current;      /* message of the running channel_receive(); borrows */
    size_t current_bytes;
    uint64_t dead_epochs[CHANNEL_DEAD_EPOCHS]; /* newest first */
    uint32_t warned;                           /* bit per kind of warning, this life */
    struct channel_counts counts;
};

void channel_init(struct channel *channel, struct channel_store *store);
/* Gives held messages back. */
void channel_fini(struct channel *channel);

/*
 * A life of the peer begins: after bootstrap with first_seq 1, after a HELLO message with the
 * HELLO's seq. `epoch` > 0. A life that is UP ends without a cause.
 */
void channel_open(struct channel *channel, uint64_t epoch, uint64_t first_seq);

/* Ends the present life; held messages go: channel_pop() first. Nothing when not UP. */
void channel_lose(struct channel *channel, enum channel_cause cause);

/*
 * Takes one complete message from the transport; borrows `bytes` until the next channel_receive().
 * Then call channel_pop() until it says false, whatever the verdict.
 */
void channel_receive(struct channel *channel, const uint8_t *bytes, size_t len_bytes,
                     uint64_t now_ns, struct channel_out *out);

/* The next message in order; valid until the next call on this channel. */
bool channel_pop(struct channel *channel, const uint8_t **bytes_out, size_t *len_out);

/* Timer of rule T3; call once a pass, or at channel_deadline_ns(). `lost_out`: NONE or GAP. */
void channel_tick(struct channel *channel, uint64_t now_ns, enum channel_cause *lost_out);

/* Awake time at which channel_tick() would act; UINT64_MAX = none. */
uint64_t channel_deadline_ns(const struct channel *channel);

/*
 * Numbers and seals a message that msg_encode() made, and counts it as queued. Stamp in the order
 * of sending. Errors: E_PEER_LOST: not UP, or the queue is full (rule T5: `lost_out` OVERFLOW).
 * A HELLO may be stamped in any state and does not count as queued unless UP.
 */
enum kvf_status channel_stamp(struct channel *channel, uint8_t *bytes, size_t len_bytes,
                              enum channel_cause *lost_out);

/* The transport has taken one stamped message; those of a life that has ended count as nothing. */
void channel_sent(struct channel *channel);

/* A delivered message that msg_decode() refused. True: warn once, with msg_decode()'s text. */
bool channel_refused(struct channel *channel, enum kvf_status status);

/* Aborts when an invariant does not hold; for tests. */
void channel_check(const struct channel *channel);

#endif /* KVF_CHANNEL_H */
