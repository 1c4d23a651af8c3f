/*
 * fuzz_msg.c - any bytes into the decoders of messages and into a live channel.
 *
 * An input is a row of {length u16, message}. Each message is decoded as it is, then with its frame
 * mended so that the payload's decoder is reached; what it accepts must encode again. Then all go
 * through one channel, whose invariants are checked after each.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "check.h"
#include "sample_msg.h"

#define SLOTS_MAX 4096u
#define STORE_BYTES (32u << 10)

static void decode(const uint8_t *bytes, size_t len)
{
    static struct kvf_block_list lists[MSG_GROUPS_MAX];
    static uint32_t slots[SLOTS_MAX];
    static uint8_t again[1u << 18];
    const char *why;
    struct msg msg;

    if (msg_decode(bytes, len, &msg, &why) == KVF_OK) {
        KVF_REQUIRE(why[0] == 0);
        KVF_REQUIRE(msg.header.payload_bytes + MSG_HEADER_BYTES == len);
        (void)sample_msg_again(&msg, lists, slots, SLOTS_MAX, again, sizeof(again));
    } else {
        KVF_REQUIRE(why[0] != 0);
    }
}

/* Magic, version, length, epoch and checksum made right; type, flags, numbers stay as they are. */
static void mend(uint8_t *bytes, size_t len)
{
    uint64_t epoch = wire_load_u64(bytes + offsetof(struct msg_header_wire, epoch));
    uint64_t seq = wire_load_u64(bytes + offsetof(struct msg_header_wire, seq));

    wire_store_u32(bytes, MSG_MAGIC);
    bytes[offsetof(struct msg_header_wire, version)] = MSG_VERSION;
    wire_store_u32(bytes + offsetof(struct msg_header_wire, payload_bytes),
                   (uint32_t)(len - MSG_HEADER_BYTES));
    wire_store_u64(bytes + offsetof(struct msg_header_wire, epoch), epoch == 0 ? 1 : epoch);
    msg_seal(bytes, len, seq == 0 ? 1 : seq % 8 + 1);
}

static void through_channel(struct channel *channel, const uint8_t *bytes, size_t len,
                            uint64_t now_ns)
{
    struct channel_out out;
    enum channel_cause lost;
    const uint8_t *popped;
    size_t popped_len;

    channel_receive(channel, bytes, len, now_ns, &out);
    while (channel_pop(channel, &popped, &popped_len)) {
        struct msg msg;

        if (msg_decode(popped, popped_len, &msg, NULL) != KVF_OK)
            (void)channel_refused(channel, KVF_E_DECODE);
        channel_check(channel);
    }
    if (out.verdict == CHANNEL_HANDSHAKE)
        channel_open(channel, out.header.epoch, out.header.seq);
    channel_check(channel);
    channel_tick(channel, now_ns, &lost);
    channel_check(channel);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
    struct wire_reader reader = wire_reader_make(bytes, len_bytes);
    struct channel_store *store;
    struct channel channel;
    uint64_t now_ns = 1;

    KVF_REQUIRE(channel_store_open(kvf_heap_system(), STORE_BYTES, &store) == KVF_OK);
    channel_init(&channel, store);
    channel_open(&channel, SAMPLE_MSG_EPOCH, 1);
    while (reader.left_bytes > 0 && !reader.failed) {
        size_t len = wire_get_u16(&reader);
        const uint8_t *at;
        uint8_t *copy;

        len = len < reader.left_bytes ? len : reader.left_bytes;
        at = wire_get_bytes(&reader, len);
        copy = malloc(len == 0 ? 1 : len);
        KVF_REQUIRE(copy != NULL);
        if (at == NULL) { /* half a length at the end */
            free(copy);
            break;
        }
        memcpy(copy, at, len);
        decode(copy, len);
        if (len >= MSG_HEADER_BYTES) {
            mend(copy, len);
            decode(copy, len);
        }
        through_channel(&channel, copy, len, now_ns);
        now_ns += CHANNEL_GAP_NS / 3;
        free(copy);
    }
    channel_fini(&channel);
    channel_store_close(store);
    return 0;
}

size_t fuzz_sample(unsigned index, uint8_t *bytes, size_t max_bytes)
{
    struct msg msg;
    size_t len;

    if (index >= sample_msg_count())
        return 0;
    sample_msg(index, &msg);
    len = sample_msg_encode(&msg, index + 1, bytes + 2, max_bytes - 2);
    wire_store_u16(bytes, (uint16_t)len);
    return len + 2;
}
