/* test_channel.c - order, duplicates, gaps, lives of a peer, bounds. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "fail_heap.h"
#include "sample_msg.h"

#define SECOND UINT64_C(1000000000)
#define EPOCH SAMPLE_MSG_EPOCH
#define STORE_BYTES (64u << 10)

struct fixture {
    struct channel_store *store;
    struct channel channel;
};

static void fixture_init(struct fixture *fixture, size_t store_bytes)
{
    assert_int_equal(channel_store_open(kvf_heap_system(), store_bytes, &fixture->store), KVF_OK);
    channel_init(&fixture->channel, fixture->store);
    channel_open(&fixture->channel, EPOCH, 1);
}

static void fixture_fini(struct fixture *fixture)
{
    channel_check(&fixture->channel);
    channel_fini(&fixture->channel);
    assert_int_equal(channel_store_used_bytes(fixture->store), 0);
    channel_store_close(fixture->store);
}

/* A PING whose nonce is `nonce`; returns its length. */
static size_t make_ping(uint64_t epoch, uint64_t seq, uint64_t nonce, uint8_t *bytes)
{
    struct msg msg;

    sample_msg(sample_msg_index(MSG_PING), &msg);
    msg.header.epoch = epoch;
    msg.u.ping.nonce = nonce;
    return sample_msg_encode(&msg, seq, bytes, SAMPLE_MSG_BYTES_MAX);
}

static size_t make_hello(uint64_t epoch, uint64_t seq, uint8_t *bytes)
{
    struct msg msg;

    sample_msg(sample_msg_index(MSG_HELLO), &msg);
    msg.header.epoch = epoch;
    return sample_msg_encode(&msg, seq, bytes, SAMPLE_MSG_BYTES_MAX);
}

/* Pops everything; each must be a PING with the next nonce. Returns how many came. */
static unsigned pop_all(struct channel *channel, uint64_t *nonce_next)
{
    const uint8_t *bytes;
    size_t len;
    unsigned count = 0;

    while (channel_pop(channel, &bytes, &len)) {
        struct msg msg;

        assert_int_equal(msg_decode(bytes, len, &msg, NULL), KVF_OK);
        assert_int_equal(msg.u.ping.nonce, *nonce_next);
        (*nonce_next)++;
        count++;
    }
    return count;
}

static struct channel_out receive(struct channel *channel, const uint8_t *bytes, size_t len,
                                  uint64_t now)
{
    struct channel_out out;

    channel_receive(channel, bytes, len, now, &out);
    channel_check(channel);
    return out;
}

/* Receives PING `seq` (its nonce is the same number) and pops. */
static struct channel_out receive_ping(struct channel *channel, uint64_t seq, uint64_t now,
                                       uint64_t *nonce_next)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    size_t len = make_ping(EPOCH, seq, seq, bytes);
    struct channel_out out = receive(channel, bytes, len, now);

    (void)pop_all(channel, nonce_next);
    channel_check(channel);
    return out;
}

/* ---- order ---------------------------------------------------------------------------------- */

static void check_permutation(const unsigned *order, unsigned count, bool twice)
{
    struct fixture fixture;
    uint64_t next = 1;

    fixture_init(&fixture, STORE_BYTES);
    for (unsigned i = 0; i < count; i++) {
        struct channel_out out = receive_ping(&fixture.channel, order[i], 1, &next);

        assert_int_equal(out.lost, CHANNEL_CAUSE_NONE);
        assert_null(out.warn);
        if (twice) {
            out = receive_ping(&fixture.channel, order[i], 1, &next);
            assert_int_equal(out.verdict, CHANNEL_DUPLICATE);
        }
    }
    assert_int_equal(next, count + 1);
    assert_true(channel_deadline_ns(&fixture.channel) == UINT64_MAX);
    assert_int_equal(fixture.channel.counts.delivered, count);
    assert_int_equal(fixture.channel.counts.duplicates, twice ? count : 0);
    fixture_fini(&fixture);
}

static void permute(unsigned *order, unsigned count, unsigned fixed)
{
    if (fixed == count) {
        check_permutation(order, count, false);
        check_permutation(order, count, true);
        return;
    }
    for (unsigned i = fixed; i < count; i++) {
        unsigned keep = order[fixed];

        order[fixed] = order[i];
        order[i] = keep;
        permute(order, count, fixed + 1);
        order[i] = order[fixed];
        order[fixed] = keep;
    }
}

static void channel_delivers_every_permutation_in_order(void **state)
{
    unsigned order[] = {1, 2, 3, 4, 5, 6};

    (void)state;
    permute(order, 6, 0);
}

static void channel_delivers_random_windows_in_order(void **state)
{
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (unsigned round = 0; round < 40; round++) {
        struct fixture fixture;
        uint64_t next = 1;

        fixture_init(&fixture, STORE_BYTES);
        for (uint64_t base = 0; base < 640; base += 64) {
            uint64_t order[64];

            for (unsigned i = 0; i < 64; i++) {
                unsigned at = (unsigned)test_random_below(&random, i + 1);

                order[i] = order[at];
                order[at] = base + i + 1;
            }
            for (unsigned i = 0; i < 64; i++) {
                (void)receive_ping(&fixture.channel, order[i], 1, &next);
                if (test_random_below(&random, 5) == 0)
                    (void)receive_ping(&fixture.channel, order[test_random_below(&random, i + 1)],
                                       1, &next);
            }
            assert_int_equal(next, base + 65);
        }
        fixture_fini(&fixture);
    }
}

static void channel_hands_over_what_was_held_unchanged(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    uint8_t held[SAMPLE_MSG_BYTES_MAX];
    const uint8_t *popped;
    struct msg msg;
    size_t held_len;
    size_t len;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    sample_msg(sample_msg_index(MSG_REPORT), &msg);
    held_len = sample_msg_encode(&msg, 2, held, sizeof(held));
    memcpy(bytes, held, held_len);
    assert_int_equal(receive(&fixture.channel, bytes, held_len, 1).verdict, CHANNEL_HELD);
    assert_false(channel_pop(&fixture.channel, &popped, &len));
    memset(bytes, 0, sizeof(bytes)); /* the transport's memory is its own again */
    len = make_ping(EPOCH, 1, 1, bytes);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_DELIVER);
    assert_true(channel_pop(&fixture.channel, &popped, &len));
    assert_ptr_equal(popped, bytes);
    assert_true(channel_pop(&fixture.channel, &popped, &len));
    assert_int_equal(len, held_len);
    assert_memory_equal(popped, held, len);
    assert_false(channel_pop(&fixture.channel, &popped, &len));
    fixture_fini(&fixture);
}

/* ---- gaps and bounds ------------------------------------------------------------------------ */

static void channel_is_lost_when_a_gap_lasts_five_seconds(void **state)
{
    struct fixture fixture;
    enum channel_cause lost;
    uint64_t next = 1;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    channel_tick(&fixture.channel, 1000 * SECOND, &lost);
    assert_int_equal(lost, CHANNEL_CAUSE_NONE);
    (void)receive_ping(&fixture.channel, 2, 10 * SECOND, &next);
    (void)receive_ping(&fixture.channel, 4, 12 * SECOND, &next);
    assert_true(channel_deadline_ns(&fixture.channel) == 15 * SECOND);
    channel_tick(&fixture.channel, 15 * SECOND - 1, &lost);
    assert_int_equal(lost, CHANNEL_CAUSE_NONE);
    channel_tick(&fixture.channel, 15 * SECOND, &lost);
    assert_int_equal(lost, CHANNEL_CAUSE_GAP);
    assert_int_equal(fixture.channel.state, CHANNEL_LOST);
    channel_tick(&fixture.channel, 99 * SECOND, &lost);
    assert_int_equal(lost, CHANNEL_CAUSE_NONE);
    assert_int_equal(next, 1);
    fixture_fini(&fixture);
}

static void channel_waits_anew_for_the_next_gap(void **state)
{
    struct fixture fixture;
    enum channel_cause lost;
    uint64_t next = 1;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    (void)receive_ping(&fixture.channel, 2, 10 * SECOND, &next);
    (void)receive_ping(&fixture.channel, 4, 10 * SECOND, &next);
    (void)receive_ping(&fixture.channel, 1, 14 * SECOND, &next); /* 3 is missing now */
    assert_int_equal(next, 3);
    channel_tick(&fixture.channel, 15 * SECOND, &lost);
    assert_int_equal(lost, CHANNEL_CAUSE_NONE);
    assert_true(channel_deadline_ns(&fixture.channel) == 19 * SECOND);
    (void)receive_ping(&fixture.channel, 3, 18 * SECOND, &next);
    assert_int_equal(next, 5);
    assert_true(channel_deadline_ns(&fixture.channel) == UINT64_MAX);
    fixture_fini(&fixture);
}

static void channel_window_ends_at_1024_messages(void **state)
{
    struct fixture fixture;
    struct channel_out out;
    uint64_t next = 1;

    (void)state;
    fixture_init(&fixture, 4u << 20);
    for (uint64_t seq = 2; seq <= CHANNEL_WINDOW_MESSAGES; seq++)
        assert_int_equal(receive_ping(&fixture.channel, seq, 1, &next).verdict, CHANNEL_HELD);
    out = receive_ping(&fixture.channel, CHANNEL_WINDOW_MESSAGES + 1, 1, &next);
    assert_int_equal(out.verdict, CHANNEL_DROPPED);
    assert_int_equal(out.lost, CHANNEL_CAUSE_WINDOW);
    assert_int_equal(fixture.channel.state, CHANNEL_LOST);
    assert_int_equal(channel_store_used_bytes(fixture.store), 0);
    fixture_fini(&fixture);
}

static void channel_window_full_to_the_brim_is_delivered(void **state)
{
    struct fixture fixture;
    uint64_t next = 1;

    (void)state;
    fixture_init(&fixture, 4u << 20);
    for (uint64_t seq = CHANNEL_WINDOW_MESSAGES; seq >= 1; seq--)
        (void)receive_ping(&fixture.channel, seq, 1, &next);
    assert_int_equal(next, CHANNEL_WINDOW_MESSAGES + 1);
    fixture_fini(&fixture);
}

static void channel_is_lost_when_the_shared_store_is_full(void **state)
{
    struct fixture fixture;
    struct channel other;
    uint64_t next = 1;
    uint64_t other_next = 1;

    (void)state;
    fixture_init(&fixture, 3 * 1024);
    channel_init(&other, fixture.store);
    channel_open(&other, EPOCH, 1);
    (void)receive_ping(&fixture.channel, 2, 1, &next);
    (void)receive_ping(&fixture.channel, 3, 1, &next);
    assert_int_equal(receive_ping(&other, 2, 1, &other_next).verdict, CHANNEL_HELD);
    assert_int_equal(receive_ping(&other, 3, 1, &other_next).lost, CHANNEL_CAUSE_WINDOW);
    assert_int_equal(other.state, CHANNEL_LOST);
    (void)receive_ping(&fixture.channel, 1, 1, &next); /* the first one is whole */
    assert_int_equal(next, 4);
    channel_fini(&other);
    fixture_fini(&fixture);
}

static void channel_window_ends_at_16_mib(void **state)
{
    struct fixture fixture;
    size_t len = MSG_HEADER_BYTES + (9u << 20);
    uint8_t *bytes = malloc(len);
    struct channel_out out;

    (void)state;
    fixture_init(&fixture, 40u << 20);
    assert_non_null(bytes);
    memset(bytes, 0, len);
    (void)make_ping(EPOCH, 1, 1, bytes);
    wire_store_u32(bytes + offsetof(struct msg_header_wire, payload_bytes), 9u << 20);
    msg_seal(bytes, len, 2);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_HELD);
    msg_seal(bytes, len, 3);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.lost, CHANNEL_CAUSE_WINDOW);
    free(bytes);
    fixture_fini(&fixture);
}

static void channel_is_lost_when_65536_messages_are_queued(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    size_t len = make_ping(EPOCH, 1, 1, bytes);
    enum channel_cause lost;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    for (uint32_t i = 0; i < CHANNEL_QUEUE_MAX; i++) {
        assert_int_equal(channel_stamp(&fixture.channel, bytes, len, &lost), KVF_OK);
        assert_int_equal(lost, CHANNEL_CAUSE_NONE);
    }
    channel_sent(&fixture.channel);
    assert_int_equal(channel_stamp(&fixture.channel, bytes, len, &lost), KVF_OK);
    assert_int_equal(channel_stamp(&fixture.channel, bytes, len, &lost), KVF_E_PEER_LOST);
    assert_int_equal(lost, CHANNEL_CAUSE_OVERFLOW);
    assert_int_equal(channel_stamp(&fixture.channel, bytes, len, &lost), KVF_E_PEER_LOST);
    assert_int_equal(lost, CHANNEL_CAUSE_NONE); /* once */
    channel_sent(&fixture.channel);             /* late completions of that life */
    fixture_fini(&fixture);
}

static void channel_numbers_what_it_sends_from_one(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    enum channel_cause lost;
    struct msg_header header;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        size_t len = make_ping(EPOCH, 77, 1, bytes);

        assert_int_equal(channel_stamp(&fixture.channel, bytes, len, &lost), KVF_OK);
        assert_int_equal(msg_decode_header(bytes, len, &header), KVF_OK);
        assert_int_equal(header.seq, seq);
    }
    channel_lose(&fixture.channel, CHANNEL_CAUSE_OUTSIDE);
    assert_int_equal(channel_stamp(&fixture.channel, bytes, make_ping(EPOCH, 1, 1, bytes), &lost),
                     KVF_E_PEER_LOST);
    assert_int_equal(channel_stamp(&fixture.channel, bytes, make_hello(EPOCH, 1, bytes), &lost),
                     KVF_OK);
    assert_int_equal(wire_load_u64(bytes + offsetof(struct msg_header_wire, seq)), 4);
    fixture_fini(&fixture);
}

/* ---- frames and lives ----------------------------------------------------------------------- */

static void channel_counts_bad_frames_and_warns_once(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    size_t len = make_ping(EPOCH, 1, 1, bytes);
    uint64_t next = 1;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    for (unsigned i = 0; i < 3; i++) {
        struct channel_out out;

        bytes[45] ^= 1;
        out = receive(&fixture.channel, bytes, len, 1);
        bytes[45] ^= 1;
        assert_int_equal(out.verdict, CHANNEL_BAD_FRAME);
        assert_int_equal(out.status, KVF_E_CHECKSUM);
        assert_true((out.warn != NULL) == (i == 0));
        assert_int_equal(pop_all(&fixture.channel, &next), 0);
    }
    assert_int_equal(receive(&fixture.channel, bytes, 12, 1).status, KVF_E_TRUNCATED);
    assert_int_equal(fixture.channel.counts.bad_frames, 4);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_DELIVER);
    assert_int_equal(pop_all(&fixture.channel, &next), 1);
    fixture_fini(&fixture);
}

static void channel_warns_once_of_refused_messages_but_not_of_unknown_types(void **state)
{
    struct fixture fixture;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    assert_false(channel_refused(&fixture.channel, KVF_E_UNSUPPORTED));
    assert_true(channel_refused(&fixture.channel, KVF_E_PROTOCOL));
    assert_false(channel_refused(&fixture.channel, KVF_E_DECODE));
    assert_int_equal(fixture.channel.counts.refused, 3);
    channel_open(&fixture.channel, EPOCH + 1, 1);
    assert_true(channel_refused(&fixture.channel, KVF_E_DECODE));
    fixture_fini(&fixture);
}

static void channel_new_life_ends_the_old_one_and_begins_with_a_hello(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct channel_out out;
    const uint8_t *popped;
    uint64_t next = 1;
    size_t len;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    (void)receive_ping(&fixture.channel, 3, 1, &next); /* held: goes with its life */
    len = make_hello(EPOCH + 1, 1, bytes);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.verdict, CHANNEL_HANDSHAKE);
    assert_int_equal(out.lost, CHANNEL_CAUSE_EPOCH);
    assert_int_equal(fixture.channel.state, CHANNEL_LOST);
    assert_int_equal(channel_store_used_bytes(fixture.store), 0);
    assert_false(channel_pop(&fixture.channel, &popped, &len));
    channel_open(&fixture.channel, out.header.epoch, out.header.seq);
    len = make_hello(EPOCH + 1, 1, bytes);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.verdict, CHANNEL_DELIVER);
    assert_true(channel_pop(&fixture.channel, &popped, &len));
    len = make_ping(EPOCH, 2, 2, bytes); /* late, of the old life */
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_STALE);
    len = make_hello(EPOCH, 9, bytes);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_STALE);
    assert_int_equal(fixture.channel.state, CHANNEL_UP);
    next = 2;
    len = make_ping(EPOCH + 1, 2, 2, bytes);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_DELIVER);
    assert_int_equal(pop_all(&fixture.channel, &next), 1);
    fixture_fini(&fixture);
}

static void channel_drops_strangers_and_warns_once(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    size_t len = make_ping(EPOCH + 1, 1, 1, bytes);
    struct channel_out out;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.verdict, CHANNEL_STRANGER);
    assert_int_equal(out.lost, CHANNEL_CAUSE_EPOCH);
    assert_non_null(out.warn);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.verdict, CHANNEL_STRANGER);
    assert_int_equal(out.lost, CHANNEL_CAUSE_NONE);
    assert_null(out.warn);
    assert_int_equal(fixture.channel.counts.strangers, 2);
    fixture_fini(&fixture);
}

static void channel_peer_that_was_only_stopped_comes_back_by_a_hello(void **state)
{
    struct fixture fixture;
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct channel_out out;
    const uint8_t *popped;
    uint64_t next = 1;
    size_t len;

    (void)state;
    fixture_init(&fixture, STORE_BYTES);
    (void)receive_ping(&fixture.channel, 1, 1, &next);
    channel_lose(&fixture.channel, CHANNEL_CAUSE_OUTSIDE);
    len = make_ping(EPOCH, 2, 2, bytes);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_STALE);
    len = make_hello(EPOCH, 1, bytes); /* an old one, late */
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_STALE);
    len = make_hello(EPOCH, 5, bytes);
    out = receive(&fixture.channel, bytes, len, 1);
    assert_int_equal(out.verdict, CHANNEL_HANDSHAKE);
    assert_int_equal(out.lost, CHANNEL_CAUSE_NONE);
    channel_open(&fixture.channel, out.header.epoch, out.header.seq);
    assert_int_equal(receive(&fixture.channel, bytes, len, 1).verdict, CHANNEL_DELIVER);
    assert_true(channel_pop(&fixture.channel, &popped, &len));
    next = 6;
    assert_int_equal(receive_ping(&fixture.channel, 6, 1, &next).verdict, CHANNEL_DELIVER);
    assert_int_equal(receive_ping(&fixture.channel, 2, 1, &next).verdict, CHANNEL_DUPLICATE);
    fixture_fini(&fixture);
}

static void channel_store_survives_every_failing_allocation(void **state)
{
    struct channel_store *store;
    struct fail_heap heap;
    uint64_t n = 1;

    (void)state;
    for (;; n++) {
        fail_heap_init(&heap, n);
        if (channel_store_open(&heap.heap, STORE_BYTES, &store) == KVF_OK)
            break;
        assert_true(fail_heap_failed(&heap));
        fail_heap_fini(&heap);
    }
    assert_true(n > 1 && !fail_heap_failed(&heap));
    channel_store_close(store);
    fail_heap_fini(&heap);
    channel_store_close(NULL);
}

/* ---- anything ------------------------------------------------------------------------------- */

/* What the transport and the caller may do in any order; invariants after each step. */
static void channel_keeps_its_invariants_under_random_use(void **state)
{
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (unsigned round = 0; round < 300; round++) {
        struct fixture fixture;
        uint64_t now = 1;

        fixture_init(&fixture, 8 * 1024);
        for (unsigned step = 0; step < 200; step++) {
            uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
            uint64_t epoch = EPOCH + test_random_below(&random, 12) / 11;
            uint64_t seq = fixture.channel.receive_next + test_random_below(&random, 12);
            enum channel_cause lost;
            const uint8_t *popped;
            struct channel_out out;
            size_t len;

            now += test_random_below(&random, SECOND);
            channel_tick(&fixture.channel, now, &lost);
            channel_check(&fixture.channel);
            len = test_random_below(&random, 10) == 0 ? make_hello(epoch, seq, bytes)
                                                      : make_ping(epoch, seq, seq, bytes);
            if (test_random_below(&random, 20) == 0)
                bytes[test_random_below(&random, len)] ^= 0x10;
            out = receive(&fixture.channel, bytes, len, now);
            while (channel_pop(&fixture.channel, &popped, &len))
                channel_check(&fixture.channel);
            if (out.verdict == CHANNEL_HANDSHAKE)
                channel_open(&fixture.channel, out.header.epoch, out.header.seq);
            channel_check(&fixture.channel);
        }
        fixture_fini(&fixture);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(channel_delivers_every_permutation_in_order),
        cmocka_unit_test(channel_delivers_random_windows_in_order),
        cmocka_unit_test(channel_hands_over_what_was_held_unchanged),
        cmocka_unit_test(channel_is_lost_when_a_gap_lasts_five_seconds),
        cmocka_unit_test(channel_waits_anew_for_the_next_gap),
        cmocka_unit_test(channel_window_ends_at_1024_messages),
        cmocka_unit_test(channel_window_full_to_the_brim_is_delivered),
        cmocka_unit_test(channel_is_lost_when_the_shared_store_is_full),
        cmocka_unit_test(channel_window_ends_at_16_mib),
        cmocka_unit_test(channel_is_lost_when_65536_messages_are_queued),
        cmocka_unit_test(channel_numbers_what_it_sends_from_one),
        cmocka_unit_test(channel_counts_bad_frames_and_warns_once),
        cmocka_unit_test(channel_warns_once_of_refused_messages_but_not_of_unknown_types),
        cmocka_unit_test(channel_new_life_ends_the_old_one_and_begins_with_a_hello),
        cmocka_unit_test(channel_drops_strangers_and_warns_once),
        cmocka_unit_test(channel_peer_that_was_only_stopped_comes_back_by_a_hello),
        cmocka_unit_test(channel_store_survives_every_failing_allocation),
        cmocka_unit_test(channel_keeps_its_invariants_under_random_use),
    };

    return cmocka_run_group_tests_name("channel", tests, NULL, NULL);
}
