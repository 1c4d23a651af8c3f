/* test_msg.c - every control message: bytes, ranges, cut and changed ones. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "msg.h"
#include "sample_msg.h"

#define SLOTS_MAX 1024

/* Exactly so many bytes from the heap: the sanitizer sees a read past the end. */
static uint8_t *copy_exactly(const uint8_t *bytes, size_t len)
{
    uint8_t *copy = malloc(len == 0 ? 1 : len);

    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

/* Gives the payload another length and seals again, so that only the payload is wrong. */
static void frame_again(uint8_t *bytes, size_t len)
{
    wire_store_u32(bytes + offsetof(struct msg_header_wire, payload_bytes),
                   (uint32_t)(len - MSG_HEADER_BYTES));
    msg_seal(bytes, len, 3);
}

static enum kvf_status decode_copy(const uint8_t *bytes, size_t len, struct msg *msg_out)
{
    uint8_t *copy = copy_exactly(bytes, len);
    const char *why = NULL;
    enum kvf_status status = msg_decode(copy, len, msg_out, &why);

    assert_non_null(why);
    assert_true((status == KVF_OK) == (why[0] == 0));
    free(copy);
    return status;
}

/* Decoded messages must encode again: the decoder's ranges are at least the encoder's. */
static size_t encode_again(const uint8_t *bytes, size_t len, uint8_t *again, size_t max)
{
    struct kvf_block_list lists[MSG_GROUPS_MAX];
    uint32_t slots[SLOTS_MAX];
    struct msg msg;

    assert_int_equal(msg_decode(bytes, len, &msg, NULL), KVF_OK);
    return sample_msg_again(&msg, lists, slots, SLOTS_MAX, again, max);
}

static void msg_every_type_comes_back_as_it_was(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sample_msg_count(); i++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        uint8_t again[SAMPLE_MSG_BYTES_MAX];
        struct msg msg;
        size_t len;

        sample_msg(i, &msg);
        len = sample_msg_encode(&msg, 9, bytes, sizeof(bytes));
        assert_int_equal(len, msg_size(&msg));
        assert_int_equal(encode_again(bytes, len, again, sizeof(again)), len);
        assert_memory_equal(bytes, again, len);
        assert_string_not_equal(msg_type_name(msg.header.type), "unknown");
    }
}

static void msg_fields_of_a_request_are_read_back(void **state)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct kvf_block_list lists[3];
    uint32_t slots[6];
    struct msg sent;
    struct msg msg;
    size_t len;

    (void)state;
    sample_msg(sample_msg_index(MSG_REQUEST_DATA), &sent);
    len = sample_msg_encode(&sent, 9, bytes, sizeof(bytes));
    assert_int_equal(msg_decode(bytes, len, &msg, NULL), KVF_OK);
    assert_int_equal(msg.header.seq, 9);
    assert_true(msg.header.epoch == SAMPLE_MSG_EPOCH);
    assert_int_equal(msg.header.source_instance, 2);
    assert_int_equal(msg.header.source_rank, 5);
    assert_true(msg.u.request_data.rid == sent.u.request_data.rid);
    assert_int_equal(msg.u.request_data.tag, 17);
    assert_int_equal(msg.u.request_data.prompt_tokens, 1234);
    assert_true(msg.u.request_data.aux_wanted);
    assert_int_equal(msg.u.request_data.flags, MSG_REQUEST_BROADCAST);
    assert_int_equal(msg.u.request_data.block_count, 6);
    msg_request_data_copy(&msg.u.request_data, lists, slots);
    for (unsigned i = 0; i < 3; i++) {
        const struct kvf_block_list *want = &sent.u.request_data.groups[i];

        assert_int_equal(lists[i].first, want->first);
        assert_int_equal(lists[i].count, want->count);
        for (unsigned j = 0; j < want->count; j++)
            assert_int_equal(lists[i].slots[j], want->slots[j]);
    }
}

static void msg_header_lies_in_the_bytes_as_documented(void **state)
{
    static const uint8_t want[] = {
        'K',  'V',  'F',  'M',  1,    MSG_PING, 0,    0,
        13,   0,    0,    0,    2,    0,        5,    0,    /* to the rank */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33,     0x22, 0x11, /* epoch */
        8,    7,    6,    5,    4,    3,        2,    1,    /* seq */
    };
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct msg msg;
    size_t len;

    (void)state;
    sample_msg(sample_msg_index(MSG_PING), &msg);
    len = sample_msg_encode(&msg, UINT64_C(0x0102030405060708), bytes, sizeof(bytes));
    assert_int_equal(len, 40 + 13);
    assert_memory_equal(bytes, want, sizeof(want));
    assert_int_equal(wire_load_u32(bytes + 36), 0);
    assert_int_equal(wire_load_u32(bytes + 32), wire_checksum_but(bytes, len, 32));
}

static void msg_encode_refuses_every_buffer_that_is_too_small(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sample_msg_count(); i++) {
        struct msg msg;

        sample_msg(i, &msg);
        for (size_t max = 0; max < msg_size(&msg); max++) {
            uint8_t *bytes = malloc(max == 0 ? 1 : max);
            size_t len = 12345;

            assert_int_equal(msg_encode(&msg, bytes, max, &len), KVF_E_TOO_LARGE);
            assert_int_equal(len, 12345);
            free(bytes);
        }
    }
}

static void msg_cut_anywhere_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sample_msg_count(); i++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        uint8_t again[SAMPLE_MSG_BYTES_MAX];
        struct msg msg;
        size_t len;

        sample_msg(i, &msg);
        len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
        for (size_t cut = 0; cut < len; cut++)
            assert_int_equal(decode_copy(bytes, cut, &msg), KVF_E_TRUNCATED);
        for (size_t cut = MSG_HEADER_BYTES; cut < len; cut++) {
            uint8_t cut_bytes[SAMPLE_MSG_BYTES_MAX];
            enum kvf_status status;

            memcpy(cut_bytes, bytes, cut);
            frame_again(cut_bytes, cut);
            status = decode_copy(cut_bytes, cut, &msg);
            if (status == KVF_OK) { /* one that ends before an optional field is whole */
                assert_true(msg.header.type == MSG_HELLO || msg.header.type == MSG_REPORT);
                assert_int_equal(encode_again(cut_bytes, cut, again, sizeof(again)), cut);
                assert_memory_equal(cut_bytes, again, cut);
            } else if (msg.header.type != MSG_REPORT) {
                assert_int_equal(status, KVF_E_DECODE);
            }
        }
    }
}

static void msg_with_a_byte_too_many_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sample_msg_count(); i++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX + 1];
        struct msg msg;
        size_t len;

        sample_msg(i, &msg);
        len = sample_msg_encode(&msg, 3, bytes, SAMPLE_MSG_BYTES_MAX);
        bytes[len] = 0;
        assert_int_equal(decode_copy(bytes, len + 1, &msg), KVF_E_TRUNCATED);
        frame_again(bytes, len + 1);
        assert_int_equal(decode_copy(bytes, len + 1, &msg), KVF_E_DECODE);
    }
}

static void msg_with_any_bit_turned_is_refused(void **state)
{
    (void)state;
    for (unsigned i = 0; i < sample_msg_count(); i++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        struct msg msg;
        size_t len;

        sample_msg(i, &msg);
        len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
        for (size_t bit = 0; bit < len * 8; bit++) {
            struct msg_header header;
            enum kvf_status status;

            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            status = msg_decode_header(bytes, len, &header);
            assert_true(status == KVF_E_CHECKSUM || status == KVF_E_DECODE ||
                        status == KVF_E_TRUNCATED);
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        assert_int_equal(decode_copy(bytes, len, &msg), KVF_OK);
    }
}

static void msg_is_summed_up_once_and_by_its_channel_alone(void **state)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct msg_header header, peeked;
    struct msg msg;
    size_t len;

    (void)state;
    sample_msg(0, &msg);
    len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
    assert_int_equal(msg_decode_header(bytes, len, &header), KVF_OK);
    assert_int_equal(msg_peek_header(bytes, len, &peeked), KVF_OK);
    assert_int_equal(peeked.source_rank, header.source_rank);
    assert_int_equal(peeked.epoch, header.epoch);
    assert_int_equal(msg_decode_checked(bytes, len, &msg, NULL), KVF_OK);
    bytes[offsetof(struct msg_header_wire, checksum)] ^= 1;
    assert_int_equal(msg_peek_header(bytes, len, &peeked), KVF_OK);
    assert_int_equal(msg_decode_header(bytes, len, &header), KVF_E_CHECKSUM);
    assert_int_equal(msg_decode(bytes, len, &msg, NULL), KVF_E_CHECKSUM);
    assert_int_equal(msg_decode_checked(bytes, len, &msg, NULL), KVF_OK);
    assert_int_equal(msg_peek_header(bytes, len - 1, &peeked), KVF_E_TRUNCATED);
}

/* One wrong field in an otherwise good message. */
struct wrong_field {
    enum msg_type type;
    size_t at; /* in the payload */
    size_t bytes;
    uint64_t value;
    enum kvf_status status;
};

static const struct wrong_field wrong_fields[] = {
    {MSG_HELLO, 0, 1, 0, KVF_E_PROTOCOL},                  /* version 0 */
    {MSG_HELLO, 0, 1, 2, KVF_E_PROTOCOL},                  /* min > max */
    {MSG_HELLO, 2, 1, 2, KVF_E_PROTOCOL},                  /* side */
    {MSG_HELLO, 3, 1, 1, KVF_E_DECODE},                    /* reserved */
    {MSG_HELLO, 24, 2, 2, KVF_E_DECODE},                   /* a part twice */
    {MSG_HELLO, 24, 2, 0x8009, KVF_E_DECODE},              /* required, unknown */
    {MSG_HELLO, 26, 4, 0xffffffff, KVF_E_DECODE},          /* part beyond the end */
    {MSG_REQUEST_DATA, 8, 4, 0, KVF_E_PROTOCOL},           /* tag */
    {MSG_REQUEST_DATA, 12, 4, 0, KVF_E_PROTOCOL},          /* one slice */
    {MSG_REQUEST_DATA, 16, 2, 3, KVF_E_PROTOCOL},          /* other instance */
    {MSG_REQUEST_DATA, 18, 2, 4, KVF_E_PROTOCOL},          /* other rank */
    {MSG_REQUEST_DATA, 20, 4, 0, KVF_E_PROTOCOL},          /* no tokens */
    {MSG_REQUEST_DATA, 24, 1, 2, KVF_E_PROTOCOL},          /* aux wanted */
    {MSG_REQUEST_DATA, 25, 1, 255, KVF_E_DECODE},          /* more lists than there are */
    {MSG_REQUEST_DATA, 25, 1, 0, KVF_E_DECODE},            /* lists taken for fields */
    {MSG_REQUEST_DATA, 26, 2, 4, KVF_E_PROTOCOL},          /* flag */
    {MSG_REQUEST_DATA, 28, 4, 0xffffffff, KVF_E_PROTOCOL}, /* first + count overflows */
    {MSG_REQUEST_DATA, 32, 4, MSG_BLOCKS_MAX + 1, KVF_E_TOO_LARGE},
    {MSG_REQUEST_DATA, 32, 4, 0xffffffff, KVF_E_TOO_LARGE},
    {MSG_REQUEST_DATA, 32, 4, MSG_BLOCKS_MAX, KVF_E_DECODE}, /* allowed, but not there */
    {MSG_CANCEL_SESSION, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_CANCEL_SESSION, 12, 2, 1, KVF_E_PROTOCOL},
    {MSG_CANCEL_SESSION, 14, 2, 1, KVF_E_PROTOCOL},
    {MSG_CANCEL_SESSION, 16, 8, 1, KVF_E_PROTOCOL},
    {MSG_CANCEL_SESSION, 24, 1, MSG_CANCEL_REASON_COUNT, KVF_E_PROTOCOL},
    {MSG_CANCEL_SESSION, 29, 2, MSG_CANCEL_SLICES_MAX + 1, KVF_E_TOO_LARGE},
    {MSG_CANCEL_SESSION, 29, 2, 3, KVF_E_DECODE},
    {MSG_CANCEL_SESSION, 29, 2, 1, KVF_E_DECODE},
    {MSG_SESSION_CANCELLED, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_SESSION_CANCELLED, 12, 1, MSG_CANCEL_ORIGIN_COUNT, KVF_E_PROTOCOL},
    {MSG_SESSION_CANCELLED, 13, 2, 0, KVF_E_PROTOCOL},
    {MSG_SESSION_CANCELLED, 13, 2, 0x8000, KVF_E_PROTOCOL},
    {MSG_REPORT, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_REPORT, 12, 4, MSG_SLICE_WHOLE, KVF_E_PROTOCOL},   /* success of no slice */
    {MSG_REPORT, 16, 1, 2, KVF_E_PROTOCOL},                 /* is_last */
    {MSG_REPORT, 16, 1, 0, KVF_E_PROTOCOL},                 /* aux before the last */
    {MSG_REPORT, 17, 1, MSG_REPORT_FAILED, KVF_E_PROTOCOL}, /* failed with code 0 */
    {MSG_REPORT, 17, 1, MSG_REPORT_STATUS_COUNT, KVF_E_PROTOCOL},
    {MSG_REPORT, 18, 2, 20, KVF_E_PROTOCOL}, /* success with a code */
    {MSG_REPORT, 28, 1, KVF_PATH_COUNT, KVF_E_PROTOCOL},
    {MSG_REPORT, 29, 1, 255, KVF_E_PROTOCOL}, /* unanswered */
    {MSG_REPORT, 38, 2, 5, KVF_E_DECODE},
    {MSG_REPORT, 38, 2, 7, KVF_E_DECODE},
    {MSG_SETTLED, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_SETTLED, 16, 2, 0, KVF_E_PROTOCOL},
    {MSG_QUIESCED, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_BYE, 0, 1, 2, KVF_E_PROTOCOL},
    {MSG_WANT, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_WANT, 16, 4, 0, KVF_E_PROTOCOL}, /* tag */
    {MSG_WANT, 24, 4, 0, KVF_E_PROTOCOL}, /* no chunks */
    {MSG_WANT, 24, 4, MSG_FLOW_CHUNKS_MAX + 1, KVF_E_TOO_LARGE},
    {MSG_WANT, 24, 4, MSG_FLOW_CHUNKS_MAX, KVF_E_DECODE}, /* allowed, but not there */
    {MSG_WANT, 24, 4, 2, KVF_E_DECODE},                   /* fewer than there are */
    {MSG_GRANT, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_GRANT, 8, 2, 0, KVF_E_PROTOCOL},
    {MSG_GRANT, 8, 2, MSG_CREDITS_MAX + 1, KVF_E_TOO_LARGE},
    {MSG_GRANT, 8, 2, 3, KVF_E_DECODE},
    {MSG_GRANT, 10 + 32, 1, MSG_MEDIUM_COUNT, KVF_E_PROTOCOL},
    {MSG_GRANT, 10 + 37 + 32, 1, 255, KVF_E_PROTOCOL},
    {MSG_DATA, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_DATA, 28, 4, 0, KVF_E_PROTOCOL},
    {MSG_DATA, 28, 4, 3, KVF_E_DECODE},
    {MSG_DATA, 28, 4, UINT32_MAX, KVF_E_DECODE},
    {MSG_ACK, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_NACK, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_NACK, 8, 1, MSG_NACK_SCOPE_COUNT, KVF_E_PROTOCOL},
    {MSG_NACK, 9, 4, 1, KVF_E_PROTOCOL}, /* of a flow, names a chunk */
    {MSG_NACK, 13, 8, 1, KVF_E_PROTOCOL},
    {MSG_NACK, 21, 4, 1, KVF_E_PROTOCOL},
    {MSG_NACK, 25, 1, MSG_NACK_REASON_COUNT, KVF_E_PROTOCOL},
    {MSG_FLOW_CANCEL, 0, 8, 0, KVF_E_PROTOCOL},
    {MSG_FLOW_CANCEL, 8, 1, 2, KVF_E_PROTOCOL},
    {MSG_FLOW_CANCEL, 9, 2, 0, KVF_E_PROTOCOL},
    {MSG_PATH_NOTE, 8, 4, 0, KVF_E_PROTOCOL},
    {MSG_PATH_NOTE, 16, 1, KVF_PATH_COUNT, KVF_E_PROTOCOL},
};

static void msg_runs_and_credits_come_out_as_they_went_in(void **state)
{
    const struct msg_run run = {.bounce = UINT64_C(0x0102030405060708),
                                .dst = UINT64_MAX - 5,
                                .dst_stride = UINT64_C(0x1112131415161718),
                                .bounce_stride = 0x21222324,
                                .piece_bytes = UINT32_MAX,
                                .pieces = 3};
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    uint8_t wire[MSG_RUN_BYTES];
    struct msg_credit credit;
    struct msg_run again;
    struct msg msg;
    size_t len;

    (void)state;
    msg_run_put(wire, &run);
    again = msg_run_get(wire);
    assert_true(again.bounce == run.bounce && again.dst == run.dst);
    assert_true(again.dst_stride == run.dst_stride && again.bounce_stride == run.bounce_stride);
    assert_true(again.piece_bytes == run.piece_bytes && again.pieces == run.pieces);
    sample_msg(sample_msg_index(MSG_GRANT), &msg);
    len = sample_msg_encode(&msg, 9, bytes, sizeof(bytes));
    assert_int_equal(msg_decode(bytes, len, &msg, NULL), KVF_OK);
    msg_credit_get(&msg.u.grant, 1, &credit);
    assert_true(credit.chunk == 2 && credit.region.offset == 1 << 20);
    assert_true(credit.region.generation == 7 && credit.address == 0x7f0000100000);
    assert_true(credit.len_bytes == 4096 && credit.device == 1);
    assert_true(credit.medium == MSG_MEDIUM_TWOSIDED && credit.pair_sequence == 9);
}

static void msg_field_out_of_its_range_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(wrong_fields) / sizeof(wrong_fields[0]); i++) {
        const struct wrong_field *wrong = &wrong_fields[i];
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        uint8_t value[8];
        struct msg msg;
        size_t len;
        enum kvf_status status;

        sample_msg(sample_msg_index(wrong->type), &msg);
        len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
        wire_store_u64(value, wrong->value);
        memcpy(bytes + MSG_HEADER_BYTES + wrong->at, value, wrong->bytes);
        msg_seal(bytes, len, 3);
        status = decode_copy(bytes, len, &msg);
        if (status != wrong->status)
            fail_msg("row %zu (%s, offset %zu): %s, want %s", i, msg_type_name(wrong->type),
                     wrong->at, kvf_status_name(status), kvf_status_name(wrong->status));
    }
}

static void msg_frame_that_is_not_ours_is_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        enum kvf_status header;
        enum kvf_status whole;
    } rows[] = {
        {0, 'X', KVF_E_DECODE, KVF_E_DECODE}, /* magic */
        {4, 2, KVF_E_DECODE, KVF_E_DECODE},   /* version */
        {4, 0, KVF_E_DECODE, KVF_E_DECODE},
        {5, 0, KVF_OK, KVF_E_UNSUPPORTED}, /* type: the frame is good */
        {5, MSG_BYE + 1, KVF_OK, KVF_E_UNSUPPORTED},
        {5, MSG_PATH_NOTE + 1, KVF_OK, KVF_E_UNSUPPORTED},
        {5, 255, KVF_OK, KVF_E_UNSUPPORTED},
        {6, 1, KVF_OK, KVF_E_DECODE}, /* flags */
        {7, 0x80, KVF_OK, KVF_E_DECODE},
        {36, 1, KVF_OK, KVF_E_DECODE},             /* reserved */
        {11, 1, KVF_E_TRUNCATED, KVF_E_TRUNCATED}, /* 16 MiB and more */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        struct msg_header header;
        struct msg msg;
        size_t len;

        sample_msg(sample_msg_index(MSG_PING), &msg);
        len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
        bytes[rows[i].at] = rows[i].value;
        msg_seal(bytes, len, 3);
        assert_int_equal(msg_decode_header(bytes, len, &header), rows[i].header);
        assert_int_equal(decode_copy(bytes, len, &msg), rows[i].whole);
    }
}

static void msg_without_epoch_or_number_is_refused(void **state)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct msg_header header;
    struct msg msg;
    size_t len;

    (void)state;
    sample_msg(sample_msg_index(MSG_BYE), &msg);
    assert_int_equal(msg_encode(&msg, bytes, sizeof(bytes), &len), KVF_OK);
    wire_store_u32(bytes + 32, wire_checksum_but(bytes, len, 32));
    assert_int_equal(msg_decode_header(bytes, len, &header), KVF_E_DECODE);
    wire_store_u64(bytes + 16, 0);
    msg_seal(bytes, len, 3);
    assert_int_equal(msg_decode_header(bytes, len, &header), KVF_E_DECODE);
}

/* Appends an optional field to the sample REQUEST_DATA and decodes it. */
static enum kvf_status decode_with_field(uint16_t tag, uint32_t len_bytes, struct msg *msg_out)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct wire_writer writer;
    struct msg msg;
    size_t len;

    sample_msg(sample_msg_index(MSG_REQUEST_DATA), &msg);
    len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
    writer = wire_writer_make(bytes + len, sizeof(bytes) - len);
    wire_put_u16(&writer, tag);
    wire_put_u32(&writer, len_bytes);
    for (uint32_t i = 0; i < len_bytes; i++)
        wire_put_u8(&writer, 0x5a);
    frame_again(bytes, len + writer.len_bytes);
    return decode_copy(bytes, len + writer.len_bytes, msg_out);
}

static void msg_request_of_an_older_release_is_told_apart(void **state)
{
    struct msg msg;

    (void)state;
    assert_int_equal(decode_with_field(0x0101, 0, &msg), KVF_OK);
    assert_int_equal(decode_with_field(0x0101, 8, &msg), KVF_E_LEGACY_REQUEST);
    assert_int_equal(msg.u.request_data.tag, 17);
    assert_int_equal(decode_with_field(0x0102, 36, &msg), KVF_OK);
    assert_int_equal(decode_with_field(0x0103, 0, &msg), KVF_E_PROTOCOL);
    assert_int_equal(decode_with_field(0x8101, 0, &msg), KVF_E_PROTOCOL);
    assert_int_equal(msg.u.request_data.tag, 17);
}

static void msg_refused_request_can_be_answered_when_its_identity_was_read(void **state)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    struct msg msg;
    size_t len;

    (void)state;
    sample_msg(sample_msg_index(MSG_REQUEST_DATA), &msg);
    len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
    for (size_t cut = MSG_HEADER_BYTES; cut < len; cut++) {
        uint8_t cut_bytes[SAMPLE_MSG_BYTES_MAX];

        memcpy(cut_bytes, bytes, cut);
        frame_again(cut_bytes, cut);
        assert_int_equal(decode_copy(cut_bytes, cut, &msg), KVF_E_DECODE);
        assert_int_equal(msg.u.request_data.tag, cut < MSG_HEADER_BYTES + 20 ? 0 : 17);
    }
    wire_store_u16(bytes + MSG_HEADER_BYTES + 18, 6); /* another receiver: not to be answered */
    msg_seal(bytes, len, 3);
    assert_int_equal(decode_copy(bytes, len, &msg), KVF_E_PROTOCOL);
    assert_int_equal(msg.u.request_data.tag, 0);
}

static void msg_largest_request_and_report_fit_the_stated_size(void **state)
{
    static uint32_t slots[MSG_BLOCKS_MAX + 1];
    static struct kvf_block_list lists[MSG_GROUPS_MAX];
    static uint8_t aux[MSG_AUX_BYTES_MAX];
    size_t max = msg_size_max(MSG_GROUPS_MAX, MSG_BLOCKS_MAX);
    uint8_t *bytes = malloc(max);
    struct msg msg;
    struct msg decoded;
    size_t len;

    (void)state;
    assert_non_null(bytes);
    lists[3] = (struct kvf_block_list){.first = 0, .count = MSG_BLOCKS_MAX, .slots = slots};
    sample_msg(sample_msg_index(MSG_REQUEST_DATA), &msg);
    msg.u.request_data.group_count = MSG_GROUPS_MAX;
    msg.u.request_data.groups = lists;
    assert_int_equal(msg_encode(&msg, bytes, max, &len), KVF_OK);
    assert_int_equal(len, max);
    msg_seal(bytes, len, 1);
    assert_int_equal(msg_decode(bytes, len, &decoded, NULL), KVF_OK);
    assert_int_equal(decoded.u.request_data.block_count, MSG_BLOCKS_MAX);
    lists[3].count = MSG_BLOCKS_MAX + 1;
    assert_int_equal(msg_encode(&msg, bytes, max, &len), KVF_E_TOO_LARGE);

    max = msg_size_max(0, 0);
    sample_msg(sample_msg_index(MSG_REPORT), &msg);
    msg.u.report.aux = aux;
    msg.u.report.aux_bytes = MSG_AUX_BYTES_MAX;
    msg.u.report.check = &(struct msg_check){.part_count = MSG_CHECK_PARTS_MAX};
    assert_int_equal(msg_encode(&msg, bytes, max, &len), KVF_OK);
    assert_int_equal(len, max);
    sample_msg(sample_msg_index(MSG_CANCEL_SESSION), &msg);
    msg.u.cancel_session.slices = slots;
    msg.u.cancel_session.slice_count = MSG_CANCEL_SLICES_MAX;
    assert_int_equal(msg_encode(&msg, bytes, max, &len), KVF_OK);
    free(bytes);
}

#define MUTATIONS 60000

/* Some bytes changed, then framed again: the payload's decoder must cope with anything. */
static void msg_with_changed_bytes_never_confuses_the_decoder(void **state)
{
    struct test_random random = test_random_make(test_seed());
    uint8_t again[2 * SAMPLE_MSG_BYTES_MAX];
    unsigned accepted = 0;

    (void)state;
    for (unsigned round = 0; round < MUTATIONS; round++) {
        uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
        struct msg msg;
        size_t len;

        sample_msg((unsigned)test_random_below(&random, sample_msg_count()), &msg);
        len = sample_msg_encode(&msg, 3, bytes, sizeof(bytes));
        for (uint64_t n = test_random_below(&random, 4) + 1; n > 0; n--) {
            static const uint8_t favourites[] = {0, 1, 2, 0x7f, 0x80, 0xff};
            size_t at = 5 + test_random_below(&random, len - 5);

            bytes[at] = test_random_below(&random, 2) == 0
                            ? (uint8_t)test_random_next(&random)
                            : favourites[test_random_below(&random, sizeof(favourites))];
        }
        if (test_random_below(&random, 4) == 0)
            len = MSG_HEADER_BYTES + test_random_below(&random, len - MSG_HEADER_BYTES + 1);
        frame_again(bytes, len);
        if (decode_copy(bytes, len, &msg) == KVF_OK) {
            assert_true(encode_again(bytes, len, again, sizeof(again)) > 0);
            accepted++;
        }
    }
    assert_in_range(accepted, MUTATIONS / 50, MUTATIONS - MUTATIONS / 50);
}

/* The caller's own mistakes are contract breaks, not messages. */
static void encode_wrong(void *argument)
{
    uint8_t bytes[SAMPLE_MSG_BYTES_MAX];
    size_t len;

    (void)msg_encode(argument, bytes, sizeof(bytes), &len);
}

static void msg_encode_refuses_what_the_decoder_would_refuse(void **state)
{
    struct msg msg;

    (void)state;
    sample_msg(sample_msg_index(MSG_REPORT), &msg);
    assert_false(test_aborts(encode_wrong, &msg));
    msg.u.report.code = KVF_E_TRANSFER;
    assert_true(test_aborts(encode_wrong, &msg));
    sample_msg(sample_msg_index(MSG_QUIESCED), &msg);
    msg.u.quiesced.tag = 0;
    assert_true(test_aborts(encode_wrong, &msg));
    sample_msg(sample_msg_index(MSG_BYE), &msg);
    msg.header.type = 0;
    assert_true(test_aborts(encode_wrong, &msg));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(msg_every_type_comes_back_as_it_was),
        cmocka_unit_test(msg_fields_of_a_request_are_read_back),
        cmocka_unit_test(msg_header_lies_in_the_bytes_as_documented),
        cmocka_unit_test(msg_encode_refuses_every_buffer_that_is_too_small),
        cmocka_unit_test(msg_cut_anywhere_is_refused),
        cmocka_unit_test(msg_with_a_byte_too_many_is_refused),
        cmocka_unit_test(msg_with_any_bit_turned_is_refused),
        cmocka_unit_test(msg_is_summed_up_once_and_by_its_channel_alone),
        cmocka_unit_test(msg_runs_and_credits_come_out_as_they_went_in),
        cmocka_unit_test(msg_field_out_of_its_range_is_refused),
        cmocka_unit_test(msg_frame_that_is_not_ours_is_refused),
        cmocka_unit_test(msg_without_epoch_or_number_is_refused),
        cmocka_unit_test(msg_request_of_an_older_release_is_told_apart),
        cmocka_unit_test(msg_refused_request_can_be_answered_when_its_identity_was_read),
        cmocka_unit_test(msg_largest_request_and_report_fit_the_stated_size),
        cmocka_unit_test(msg_with_changed_bytes_never_confuses_the_decoder),
        cmocka_unit_test(msg_encode_refuses_what_the_decoder_would_refuse),
    };

    return cmocka_run_group_tests_name("msg", tests, NULL, NULL);
}
