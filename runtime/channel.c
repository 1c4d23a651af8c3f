/* channel.c - see channel.h. Rule numbers are those of docs/protocol.md. */
#include "channel.h"

#include <string.h>

#include "check.h"

#define STORE_BLOCK_BYTES 1024u

struct channel_held {
    struct channel_held *next; /* larger seq */
    uint64_t seq;
    uint32_t len_bytes;
    uint32_t block_count;
};

/*
 * Blocks of 1 KiB; a message has consecutive ones and the entry of its first block. Looking for
 * room walks the map: early messages are rare.
 */
struct channel_store {
    const struct kvf_heap *heap;
    uint8_t *bytes;
    bool *used;
    struct channel_held *entries;
    uint32_t block_count;
    uint32_t used_count;
};

enum channel_warning { WARNED_FRAME, WARNED_STRANGER, WARNED_REFUSED };

/* ---- store ---------------------------------------------------------------------------------- */

enum kvf_status channel_store_open(const struct kvf_heap *heap, size_t max_bytes,
                                   struct channel_store **store_out)
{
    struct channel_store *store;
    size_t blocks = max_bytes / STORE_BLOCK_BYTES + (max_bytes % STORE_BLOCK_BYTES != 0);

    KVF_REQUIRE(blocks > 0 && blocks <= UINT32_MAX);
    store = kvf_alloc(heap, 1, sizeof(*store));
    if (store == NULL)
        return KVF_E_NOMEM;
    store->heap = heap;
    store->block_count = (uint32_t)blocks;
    store->bytes = kvf_alloc(heap, blocks, STORE_BLOCK_BYTES);
    if (store->bytes == NULL)
        goto free_store;
    store->used = kvf_alloc(heap, blocks, sizeof(*store->used));
    if (store->used == NULL)
        goto free_bytes;
    store->entries = kvf_alloc(heap, blocks, sizeof(*store->entries));
    if (store->entries == NULL)
        goto free_used;
    *store_out = store;
    return KVF_OK;

free_used:
    kvf_release(heap, store->used);
free_bytes:
    kvf_release(heap, store->bytes);
free_store:
    kvf_release(heap, store);
    return KVF_E_NOMEM;
}

void channel_store_close(struct channel_store *store)
{
    const struct kvf_heap *heap;

    if (store == NULL)
        return;
    KVF_REQUIRE(store->used_count == 0);
    heap = store->heap;
    kvf_release(heap, store->entries);
    kvf_release(heap, store->used);
    kvf_release(heap, store->bytes);
    kvf_release(heap, store);
}

size_t channel_store_used_bytes(const struct channel_store *store)
{
    return (size_t)store->used_count * STORE_BLOCK_BYTES;
}

static uint8_t *store_bytes(const struct channel_store *store, const struct channel_held *held)
{
    return store->bytes + (size_t)(held - store->entries) * STORE_BLOCK_BYTES;
}

/* First run of free blocks that is long enough, or NULL. */
static struct channel_held *store_take(struct channel_store *store, size_t len_bytes)
{
    size_t want = (len_bytes + STORE_BLOCK_BYTES - 1) / STORE_BLOCK_BYTES;
    size_t run = 0;

    for (uint32_t i = 0; i < store->block_count; i++) {
        run = store->used[i] ? 0 : run + 1;
        if (run == want) {
            uint32_t first = i + 1 - (uint32_t)want;

            memset(store->used + first, true, want);
            store->used_count += (uint32_t)want;
            store->entries[first].block_count = (uint32_t)want;
            store->entries[first].len_bytes = (uint32_t)len_bytes;
            return &store->entries[first];
        }
    }
    return NULL;
}

static void store_give(struct channel_store *store, struct channel_held *held)
{
    memset(store->used + (held - store->entries), false, held->block_count);
    store->used_count -= held->block_count;
}

/* ---- life ----------------------------------------------------------------------------------- */

const char *channel_cause_text(enum channel_cause cause)
{
    switch (cause) {
    case CHANNEL_CAUSE_NONE:
        return "none";
    case CHANNEL_CAUSE_GAP:
        return "a control message is missing and did not come";
    case CHANNEL_CAUSE_WINDOW:
        return "too many control messages came before their turn";
    case CHANNEL_CAUSE_OVERFLOW:
        return "too many control messages are queued to it";
    case CHANNEL_CAUSE_EPOCH:
        return "another process has taken its rank";
    case CHANNEL_CAUSE_OUTSIDE:
        return "ended from outside";
    }
    return "unknown";
}

void channel_init(struct channel *channel, struct channel_store *store)
{
    memset(channel, 0, sizeof(*channel));
    channel->store = store;
    channel->state = CHANNEL_CLOSED;
    channel->receive_next = 1;
    channel->send_next = 1;
}

static void channel_free_popped(struct channel *channel)
{
    if (channel->popped != NULL)
        store_give(channel->store, channel->popped);
    channel->popped = NULL;
}

/* Everything held goes; the numbers stay. */
static void channel_drop(struct channel *channel)
{
    while (channel->held != NULL) {
        struct channel_held *held = channel->held;

        channel->held = held->next;
        store_give(channel->store, held);
    }
    channel_free_popped(channel);
    channel->held_count = 0;
    channel->held_bytes = 0;
    channel->gap_since_ns = 0;
    channel->queued = 0;
    channel->current = NULL;
}

void channel_fini(struct channel *channel)
{
    channel_drop(channel);
    channel->state = CHANNEL_CLOSED;
    channel->epoch = 0;
}

static bool channel_epoch_is_dead(const struct channel *channel, uint64_t epoch)
{
    for (unsigned i = 0; i < CHANNEL_DEAD_EPOCHS; i++)
        if (channel->dead_epochs[i] == epoch)
            return true;
    return false;
}

static void channel_end(struct channel *channel, enum channel_state next)
{
    uint64_t *dead = channel->dead_epochs;

    channel_drop(channel);
    if (channel->epoch != 0 && dead[0] != channel->epoch) {
        memmove(dead + 1, dead, (CHANNEL_DEAD_EPOCHS - 1) * sizeof(dead[0]));
        dead[0] = channel->epoch;
    }
    channel->epoch = 0;
    channel->state = next;
}

void channel_open(struct channel *channel, uint64_t epoch, uint64_t first_seq)
{
    KVF_REQUIRE(epoch != 0 && first_seq != 0);
    if (channel->state == CHANNEL_UP)
        channel_end(channel, CHANNEL_CLOSED);
    channel->state = CHANNEL_UP;
    channel->epoch = epoch;
    channel->receive_next = first_seq;
    channel->warned = 0;
}

void channel_lose(struct channel *channel, enum channel_cause cause)
{
    KVF_REQUIRE(cause != CHANNEL_CAUSE_NONE);
    if (channel->state == CHANNEL_UP)
        channel_end(channel, CHANNEL_LOST);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static bool channel_warn_once(struct channel *channel, enum channel_warning warning)
{
    uint32_t bit = 1u << warning;
    bool first = (channel->warned & bit) == 0;

    channel->warned |= bit;
    return first;
}

/* Something is held and its turn has come. */
static bool channel_has_held_due(const struct channel *channel)
{
    return channel->held != NULL && channel->held->seq == channel->receive_next;
}

/* The message whose turn has come: the wait for a missing one is over or begins anew (T3). */
static void channel_take_due(struct channel *channel, const uint8_t *bytes, size_t len_bytes,
                             uint64_t now_ns)
{
    const struct channel_held *held = channel->held;
    uint64_t seq = ++channel->receive_next;

    channel->current = bytes;
    channel->current_bytes = len_bytes;
    while (held != NULL && held->seq == seq) {
        held = held->next;
        seq++;
    }
    channel->gap_since_ns = held == NULL ? 0 : now_ns;
}

static enum channel_verdict channel_hold(struct channel *channel, const uint8_t *bytes,
                                         size_t len_bytes, uint64_t seq, uint64_t now_ns)
{
    struct channel_held **link = &channel->held;
    struct channel_held *held;

    while (*link != NULL && (*link)->seq < seq)
        link = &(*link)->next;
    if (*link != NULL && (*link)->seq == seq)
        return CHANNEL_DUPLICATE;
    if (seq - channel->receive_next >= CHANNEL_WINDOW_MESSAGES ||
        channel->held_bytes + len_bytes > CHANNEL_WINDOW_BYTES)
        return CHANNEL_DROPPED;
    held = store_take(channel->store, len_bytes);
    if (held == NULL)
        return CHANNEL_DROPPED;
    memcpy(store_bytes(channel->store, held), bytes, len_bytes);
    held->seq = seq;
    held->next = *link;
    *link = held;
    channel->held_count++;
    channel->held_bytes += len_bytes;
    if (channel->gap_since_ns == 0)
        channel->gap_since_ns = now_ns;
    return CHANNEL_HELD;
}

/* A message of the present life: T1, T2. */
static void channel_order(struct channel *channel, const uint8_t *bytes, size_t len_bytes,
                          uint64_t now_ns, struct channel_out *out)
{
    uint64_t seq = out->header.seq;

    if (seq == channel->receive_next) {
        channel_take_due(channel, bytes, len_bytes, now_ns);
        out->verdict = CHANNEL_DELIVER;
        return;
    }
    out->verdict = seq < channel->receive_next
                       ? CHANNEL_DUPLICATE
                       : channel_hold(channel, bytes, len_bytes, seq, now_ns);
    if (out->verdict == CHANNEL_DUPLICATE)
        channel->counts.duplicates++;
    else if (out->verdict == CHANNEL_HELD)
        channel->counts.held++;
    else
        out->lost = CHANNEL_CAUSE_WINDOW;
}

/* A message of another life than the present one, or without one: T4. */
static void channel_meet(struct channel *channel, struct channel_out *out)
{
    const struct msg_header *header = &out->header;
    bool is_hello = header->type == MSG_HELLO;
    bool is_last_life = channel->state != CHANNEL_UP && channel->dead_epochs[0] == header->epoch;

    if (channel_epoch_is_dead(channel, header->epoch) &&
        !(is_hello && is_last_life && header->seq >= channel->receive_next)) {
        channel->counts.stale++;
        out->verdict = CHANNEL_STALE;
        return;
    }
    if (channel->state == CHANNEL_UP)
        out->lost = CHANNEL_CAUSE_EPOCH;
    if (is_hello) {
        out->verdict = CHANNEL_HANDSHAKE;
        return;
    }
    channel->counts.strangers++;
    out->verdict = CHANNEL_STRANGER;
    if (channel_warn_once(channel, WARNED_STRANGER))
        out->warn = "a control message of a process without a handshake was dropped";
}

void channel_receive(struct channel *channel, const uint8_t *bytes, size_t len_bytes,
                     uint64_t now_ns, struct channel_out *out)
{
    KVF_REQUIRE(channel->current == NULL && !channel_has_held_due(channel));
    KVF_REQUIRE(now_ns != 0);
    channel_free_popped(channel);
    memset(out, 0, sizeof(*out));
    out->status = msg_decode_header(bytes, len_bytes, &out->header);
    if (out->status != KVF_OK) {
        channel->counts.bad_frames++;
        out->verdict = CHANNEL_BAD_FRAME;
        if (channel_warn_once(channel, WARNED_FRAME))
            out->warn = "a control message with a bad frame was dropped";
        return;
    }
    if (channel->state == CHANNEL_UP && out->header.epoch == channel->epoch)
        channel_order(channel, bytes, len_bytes, now_ns, out);
    else
        channel_meet(channel, out);
    if (out->lost != CHANNEL_CAUSE_NONE)
        channel_lose(channel, out->lost);
}

bool channel_pop(struct channel *channel, const uint8_t **bytes_out, size_t *len_out)
{
    struct channel_held *held = channel->held;

    channel_free_popped(channel);
    if (channel->current != NULL) {
        *bytes_out = channel->current;
        *len_out = channel->current_bytes;
        channel->current = NULL;
        channel->counts.delivered++;
        return true;
    }
    if (!channel_has_held_due(channel))
        return false;
    channel->receive_next++;
    channel->held = held->next;
    channel->held_count--;
    channel->held_bytes -= held->len_bytes;
    channel->popped = held;
    channel->counts.delivered++;
    *bytes_out = store_bytes(channel->store, held);
    *len_out = held->len_bytes;
    return true;
}

uint64_t channel_deadline_ns(const struct channel *channel)
{
    return channel->gap_since_ns == 0 ? UINT64_MAX : channel->gap_since_ns + CHANNEL_GAP_NS;
}

void channel_tick(struct channel *channel, uint64_t now_ns, enum channel_cause *lost_out)
{
    *lost_out = CHANNEL_CAUSE_NONE;
    if (now_ns >= channel_deadline_ns(channel)) {
        *lost_out = CHANNEL_CAUSE_GAP;
        channel_lose(channel, CHANNEL_CAUSE_GAP);
    }
}

bool channel_refused(struct channel *channel, enum kvf_status status)
{
    channel->counts.refused++;
    return status != KVF_E_UNSUPPORTED && channel_warn_once(channel, WARNED_REFUSED);
}

/* ---- sending -------------------------------------------------------------------------------- */

enum kvf_status channel_stamp(struct channel *channel, uint8_t *bytes, size_t len_bytes,
                              enum channel_cause *lost_out)
{
    bool is_hello;

    KVF_REQUIRE(len_bytes >= MSG_HEADER_BYTES);
    is_hello = bytes[offsetof(struct msg_header_wire, type)] == MSG_HELLO;
    *lost_out = CHANNEL_CAUSE_NONE;
    if (channel->state != CHANNEL_UP && !is_hello)
        return KVF_E_PEER_LOST;
    if (channel->state == CHANNEL_UP) {
        if (channel->queued == CHANNEL_QUEUE_MAX) {
            *lost_out = CHANNEL_CAUSE_OVERFLOW;
            channel_lose(channel, CHANNEL_CAUSE_OVERFLOW);
            return KVF_E_PEER_LOST;
        }
        channel->queued++;
    }
    msg_seal(bytes, len_bytes, channel->send_next++);
    channel->counts.sent++;
    return KVF_OK;
}

void channel_sent(struct channel *channel)
{
    if (channel->queued > 0)
        channel->queued--;
}

/* ---- invariants ----------------------------------------------------------------------------- */

void channel_check(const struct channel *channel)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    uint64_t due = channel->receive_next;
    bool waits = false;

    for (const struct channel_held *held = channel->held; held != NULL; held = held->next) {
        KVF_ASSERT(held->seq >= channel->receive_next);
        KVF_ASSERT(held->next == NULL || held->next->seq > held->seq);
        if (held->seq == due)
            due++;
        else
            waits = true;
        count++;
        bytes += held->len_bytes;
    }
    KVF_ASSERT(count == channel->held_count && bytes == channel->held_bytes);
    KVF_ASSERT(count < CHANNEL_WINDOW_MESSAGES && bytes <= CHANNEL_WINDOW_BYTES);
    KVF_ASSERT(waits == (channel->gap_since_ns != 0));
    KVF_ASSERT((channel->state == CHANNEL_UP) == (channel->epoch != 0));
    if (channel->state != CHANNEL_UP)
        KVF_ASSERT(count == 0 && channel->queued == 0);
}
