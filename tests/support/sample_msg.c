/* sample_msg.c - see sample_msg.h. */
#include "sample_msg.h"

#include <string.h>

#include "check.h"

static const uint32_t slots_long[] = {7, 0, 4294967295u, 12, 13};
static const uint32_t slots_state[] = {3};
static const struct kvf_block_list lists[] = {
    {.first = 2, .count = 5, .slots = slots_long},
    {.first = 0, .count = 1, .slots = slots_state},
    {.first = 9, .count = 0, .slots = NULL},
};
static const uint32_t slices[] = {MSG_SLICE_WHOLE, 5};
static const uint8_t some_bytes[] = {0xde, 0xad, 0xbe, 0xef, 0x00, 0x01};
static const struct msg_check some_check = {
    .token_end = 17, .layer_end = 4, .part_count = 2, .parts = {UINT64_C(0x0123456789abcdef), 1}};

#define HEADER(type_) \
    { \
        .type = (type_), .source_instance = 2, .source_rank = 5, .epoch = SAMPLE_MSG_EPOCH \
    }
#define RID UINT64_C(0xfedcba9876543210)
#define FLOW UINT64_C(0x1234567890003)

static const uint32_t sizes[] = {1 << 20, 4096, UINT32_MAX};
static const struct msg_credit credits[] = {
    {.chunk = 0, .region = {0, 3}, .address = 0x7f0000000000, .len_bytes = 1 << 20},
    {.chunk = 2,
     .region = {1 << 20, 7},
     .address = 0x7f0000100000,
     .len_bytes = 4096,
     .device = 1,
     .medium = MSG_MEDIUM_TWOSIDED,
     .pair_sequence = 9},
};
static const uint8_t runs[2 * MSG_RUN_BYTES] = {
    [8] = 0x10, [9] = 0x20,  [16] = 0x40, [24] = 32, [28] = 16, [32] = 2, /* two pieces */
    [36] = 64,  [44] = 0x80, [45] = 0x20, [64] = 32, [68] = 1,            /* one */
};

static const struct msg samples[] = {
    {HEADER(MSG_HELLO),
     {.hello = {.wire_version_min = 1,
                .wire_version_max = 1,
                .side = KVF_GENERATION,
                .pid = 4321,
                .host_hash = 99,
                .capabilities = MSG_CAPS_ALL,
                .parts = {[MSG_HELLO_GEOMETRY] = {some_bytes, sizeof(some_bytes)},
                          [MSG_HELLO_ADDRESSES] = {some_bytes, 1},
                          [MSG_HELLO_WINDOWS] = {some_bytes, 0}}}}},
    {HEADER(MSG_REQUEST_DATA),
     {.request_data = {.rid = RID,
                       .tag = 17,
                       .slice = MSG_SLICE_WHOLE,
                       .receiver_instance = 2,
                       .receiver_rank = 5,
                       .prompt_tokens = 1234,
                       .aux_wanted = true,
                       .flags = MSG_REQUEST_BROADCAST,
                       .group_count = 3,
                       .groups = lists}}},
    {HEADER(MSG_REQUEST_DATA),
     {.request_data = {.rid = 0,
                       .tag = 1,
                       .slice = MSG_SLICE_WHOLE,
                       .receiver_instance = 2,
                       .receiver_rank = 5,
                       .prompt_tokens = 1}}},
    {HEADER(MSG_CANCEL_SESSION),
     {.cancel_session = {.rid = RID,
                         .tag = 17,
                         .receiver_instance = 2,
                         .receiver_rank = 5,
                         .receiver_epoch = SAMPLE_MSG_EPOCH,
                         .reason = MSG_CANCEL_END,
                         .cancel_id = 8,
                         .slice_count = 2,
                         .slices = slices}}},
    {HEADER(MSG_SESSION_CANCELLED),
     {.session_cancelled =
          {.rid = RID, .tag = 17, .origin = MSG_ORIGIN_FAILED, .code = KVF_E_TRANSFER}}},
    {HEADER(MSG_REPORT),
     {.report = {.rid = RID,
                 .tag = 17,
                 .slice = 1,
                 .is_last = true,
                 .status = MSG_REPORT_SUCCESS,
                 .bytes_written = UINT64_C(1) << 40,
                 .path = KVF_PATH_MAPPED,
                 .aux_bytes = sizeof(some_bytes),
                 .aux = some_bytes,
                 .report_id = 77}}},
    {HEADER(MSG_REPORT),
     {.report = {.rid = RID,
                 .tag = 17,
                 .slice = 0,
                 .status = MSG_REPORT_SUCCESS,
                 .bytes_written = 4096,
                 .path = KVF_PATH_DIRECT,
                 .report_id = 76,
                 .check = &some_check}}},
    {HEADER(MSG_REPORT),
     {.report = {.rid = RID,
                 .tag = 17,
                 .slice = MSG_SLICE_WHOLE,
                 .status = MSG_REPORT_IN_DOUBT,
                 .code = KVF_E_PEER_LOST,
                 .path = KVF_PATH_TWOSIDED,
                 .unanswered = true,
                 .report_id = 78}}},
    {HEADER(MSG_SETTLED), {.settled = {.rid = RID, .tag = 17, .slice = 0, .code = KVF_E_REQ_AUX}}},
    {HEADER(MSG_QUIESCED), {.quiesced = {.rid = RID, .tag = 17, .cancel_id = 8}}},
    {HEADER(MSG_PING), {.ping = {.nonce = 5, .sweep = 6, .doing = 7}}},
    {HEADER(MSG_PONG), {.ping = {.nonce = 5, .sweep = 9, .doing = 0}}},
    {HEADER(MSG_BYE), {.bye = {.no_access = true}}},
    {HEADER(MSG_WANT),
     {.want = {.flow = FLOW,
               .rid = RID,
               .tag = 17,
               .slice = 2,
               .chunk_count = sizeof(sizes) / sizeof(sizes[0]),
               .sizes = sizes}}},
    {HEADER(MSG_GRANT), {.grant = {.flow = FLOW, .count = 2, .credits = credits}}},
    {HEADER(MSG_DATA),
     {.data = {.flow = FLOW,
               .chunk = 2,
               .region = {1 << 20, 7},
               .chunk_bytes = 96,
               .run_count = 2,
               .runs_wire = runs}}},
    {HEADER(MSG_ACK), {.ack = {.flow = FLOW, .chunk = 2, .region = {1 << 20, 7}}}},
    {HEADER(MSG_NACK),
     {.nack = {.flow = FLOW, .scope = MSG_NACK_FLOW, .reason = MSG_NACK_CLOSING}}},
    {HEADER(MSG_NACK),
     {.nack = {.flow = FLOW,
               .scope = MSG_NACK_CHUNK,
               .chunk = 2,
               .region = {1 << 20, 7},
               .reason = MSG_NACK_STALE_REGION}}},
    {HEADER(MSG_FLOW_CANCEL),
     {.flow_cancel = {.flow = FLOW, .clean = true, .code = KVF_E_CANCELLED}}},
    {HEADER(MSG_PATH_NOTE),
     {.path_note = {.rid = RID, .tag = 17, .slice = 2, .path = KVF_PATH_DIRECT}}},
};

unsigned sample_msg_count(void)
{
    return sizeof(samples) / sizeof(samples[0]);
}

void sample_msg(unsigned index, struct msg *msg_out)
{
    KVF_REQUIRE(index < sample_msg_count());
    *msg_out = samples[index];
}

unsigned sample_msg_index(enum msg_type type)
{
    unsigned index = 0;

    while (index < sample_msg_count() && samples[index].header.type != type)
        index++;
    KVF_REQUIRE(index < sample_msg_count());
    return index;
}

size_t sample_msg_encode(const struct msg *msg, uint64_t seq, uint8_t *bytes, size_t max_bytes)
{
    size_t len = 0;

    KVF_REQUIRE(msg_encode(msg, bytes, max_bytes, &len) == KVF_OK);
    msg_seal(bytes, len, seq);
    return len;
}

size_t sample_msg_again(struct msg *msg, struct kvf_block_list *again_lists, uint32_t *slots,
                        uint32_t slots_max, uint8_t *bytes, size_t max_bytes)
{
    static struct msg_credit again_credits[MSG_CREDITS_MAX];
    struct msg copy = *msg;
    struct msg_check check;
    size_t len;

    if (msg->header.type == MSG_REPORT && msg_check_read(&msg->u.report, &check)) {
        copy.u.report.check = &check;
        msg = &copy;
    }
    if (msg->header.type == MSG_WANT) {
        struct msg_want *want = &msg->u.want;

        if (want->chunk_count > slots_max)
            return 0;
        for (uint32_t i = 0; i < want->chunk_count; i++)
            slots[i] = wire_load_u32(want->sizes_wire + (size_t)i * 4);
        want->sizes = slots;
    } else if (msg->header.type == MSG_GRANT) {
        for (uint32_t i = 0; i < msg->u.grant.count; i++)
            msg_credit_get(&msg->u.grant, i, &again_credits[i]);
        msg->u.grant.credits = again_credits;
    } else if (msg->header.type == MSG_REQUEST_DATA) {
        if (msg->u.request_data.block_count > slots_max)
            return 0;
        msg_request_data_copy(&msg->u.request_data, again_lists, slots);
        msg->u.request_data.groups = again_lists;
    } else if (msg->header.type == MSG_CANCEL_SESSION) {
        if (msg->u.cancel_session.slice_count > slots_max)
            return 0;
        for (uint32_t i = 0; i < msg->u.cancel_session.slice_count; i++)
            slots[i] = wire_load_u32(msg->u.cancel_session.slices_wire + (size_t)i * 4);
        msg->u.cancel_session.slices = slots;
    }
    if (msg_encode(msg, bytes, max_bytes, &len) != KVF_OK)
        return 0;
    msg_seal(bytes, len, msg->header.seq);
    return len;
}
