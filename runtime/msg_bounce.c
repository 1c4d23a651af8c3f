/* msg_bounce.c - the messages of the bounce. The order of fields is the order of the bytes. */
#include "check.h"
#include "msg_internal.h"

const char *msg_nack_reason_name(unsigned reason)
{
    static const char *const names[MSG_NACK_REASON_COUNT] = {
        [MSG_NACK_BAD_SIZE] = "BAD_SIZE",
        [MSG_NACK_STALE_REGION] = "STALE_REGION",
        [MSG_NACK_CANCELLED] = "CANCELLED",
        [MSG_NACK_FENCED] = "FENCED",
        [MSG_NACK_SCATTER_FAILED] = "SCATTER_FAILED",
        [MSG_NACK_BAD_PLAN] = "BAD_PLAN",
        [MSG_NACK_CLOSING] = "CLOSING",
        [MSG_NACK_NO_CAPACITY] = "NO_CAPACITY",
    };

    return reason < MSG_NACK_REASON_COUNT ? names[reason] : "?";
}

/* ---- encoding ------------------------------------------------------------------------------- */

static void put_region(struct wire_writer *writer, const struct msg_region *region)
{
    wire_put_u64(writer, region->offset);
    wire_put_u32(writer, region->generation);
}

static void put_want(struct wire_writer *writer, const struct msg_want *want)
{
    KVF_REQUIRE(want->flow != 0 && want->tag != 0);
    KVF_REQUIRE(want->chunk_count >= 1 && want->chunk_count <= MSG_FLOW_CHUNKS_MAX);
    wire_put_u64(writer, want->flow);
    wire_put_u64(writer, want->rid);
    wire_put_u32(writer, want->tag);
    wire_put_u32(writer, want->slice);
    wire_put_u32(writer, want->chunk_count);
    wire_put_words(writer, want->sizes, want->chunk_count);
}

static void put_credit(struct wire_writer *writer, const struct msg_credit *credit)
{
    KVF_REQUIRE(credit->medium < MSG_MEDIUM_COUNT);
    wire_put_u32(writer, credit->chunk);
    put_region(writer, &credit->region);
    wire_put_u64(writer, credit->address);
    wire_put_u32(writer, credit->len_bytes);
    wire_put_u32(writer, credit->device);
    wire_put_u8(writer, credit->medium);
    wire_put_u32(writer, credit->pair_sequence);
}

static void put_grant(struct wire_writer *writer, const struct msg_grant *grant)
{
    KVF_REQUIRE(grant->flow != 0 && grant->count >= 1 && grant->count <= MSG_CREDITS_MAX);
    wire_put_u64(writer, grant->flow);
    wire_put_u16(writer, grant->count);
    for (unsigned i = 0; i < grant->count; i++)
        put_credit(writer, &grant->credits[i]);
}

static void put_data(struct wire_writer *writer, const struct msg_data *data)
{
    KVF_REQUIRE(data->flow != 0 && data->run_count >= 1);
    wire_put_u64(writer, data->flow);
    wire_put_u32(writer, data->chunk);
    put_region(writer, &data->region);
    wire_put_u32(writer, data->chunk_bytes);
    wire_put_u32(writer, data->run_count);
    wire_put_bytes(writer, data->runs_wire, (size_t)data->run_count * MSG_RUN_BYTES);
}

static void put_nack(struct wire_writer *writer, const struct msg_nack *nack)
{
    KVF_REQUIRE(nack->flow != 0);
    KVF_REQUIRE(nack->scope < MSG_NACK_SCOPE_COUNT && nack->reason < MSG_NACK_REASON_COUNT);
    wire_put_u64(writer, nack->flow);
    wire_put_u8(writer, nack->scope);
    wire_put_u32(writer, nack->chunk);
    put_region(writer, &nack->region);
    wire_put_u8(writer, nack->reason);
}

static void put_path_note(struct wire_writer *writer, const struct msg_path_note *note)
{
    KVF_REQUIRE(note->tag != 0 && note->path < KVF_PATH_COUNT);
    wire_put_u64(writer, note->rid);
    wire_put_u32(writer, note->tag);
    wire_put_u32(writer, note->slice);
    wire_put_u8(writer, note->path);
}

void msg_put_bounce(struct wire_writer *writer, const struct msg *msg)
{
    if (msg->header.type == MSG_WANT) {
        put_want(writer, &msg->u.want);
    } else if (msg->header.type == MSG_GRANT) {
        put_grant(writer, &msg->u.grant);
    } else if (msg->header.type == MSG_DATA) {
        put_data(writer, &msg->u.data);
    } else if (msg->header.type == MSG_ACK) {
        KVF_REQUIRE(msg->u.ack.flow != 0);
        wire_put_u64(writer, msg->u.ack.flow);
        wire_put_u32(writer, msg->u.ack.chunk);
        put_region(writer, &msg->u.ack.region);
    } else if (msg->header.type == MSG_NACK) {
        put_nack(writer, &msg->u.nack);
    } else if (msg->header.type == MSG_FLOW_CANCEL) {
        KVF_REQUIRE(msg->u.flow_cancel.flow != 0 && msg->u.flow_cancel.code != KVF_OK);
        wire_put_u64(writer, msg->u.flow_cancel.flow);
        wire_put_u8(writer, msg->u.flow_cancel.clean);
        msg_put_code(writer, msg->u.flow_cancel.code);
    } else {
        KVF_REQUIRE(msg->header.type == MSG_PATH_NOTE);
        put_path_note(writer, &msg->u.path_note);
    }
}

void msg_run_put(uint8_t at[MSG_RUN_BYTES], const struct msg_run *run)
{
    wire_store_u64(at, run->bounce);
    wire_store_u64(at + 8, run->dst);
    wire_store_u64(at + 16, run->dst_stride);
    wire_store_u32(at + 24, run->bounce_stride);
    wire_store_u32(at + 28, run->piece_bytes);
    wire_store_u32(at + 32, run->pieces);
}

/* ---- decoding ------------------------------------------------------------------------------- */

static struct msg_region get_region(struct wire_reader *reader)
{
    struct msg_region region;

    region.offset = wire_get_u64(reader);
    region.generation = wire_get_u32(reader);
    return region;
}

static void demand_flow(struct msg_decoder *decoder, uint64_t flow)
{
    msg_demand(decoder, flow != 0, KVF_E_PROTOCOL, "flow is 0");
}

static void get_want(struct msg_decoder *decoder, struct msg_want *want)
{
    struct wire_reader *reader = &decoder->reader;

    want->flow = wire_get_u64(reader);
    want->rid = wire_get_u64(reader);
    want->tag = wire_get_u32(reader);
    want->slice = wire_get_u32(reader);
    want->chunk_count = wire_get_u32(reader);
    demand_flow(decoder, want->flow);
    msg_demand(decoder, want->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder, want->chunk_count != 0, KVF_E_PROTOCOL, "a flow without chunks");
    if (!msg_demand(decoder, want->chunk_count <= MSG_FLOW_CHUNKS_MAX, KVF_E_TOO_LARGE,
                    "more chunks than one flow may have"))
        return;
    want->sizes_wire = wire_get_bytes(reader, (size_t)want->chunk_count * 4);
    msg_demand_end(decoder);
}

static struct msg_credit get_credit(struct wire_reader *reader)
{
    struct msg_credit credit;

    credit.chunk = wire_get_u32(reader);
    credit.region = get_region(reader);
    credit.address = wire_get_u64(reader);
    credit.len_bytes = wire_get_u32(reader);
    credit.device = wire_get_u32(reader);
    credit.medium = wire_get_u8(reader);
    credit.pair_sequence = wire_get_u32(reader);
    return credit;
}

void msg_credit_get(const struct msg_grant *grant, uint32_t index, struct msg_credit *credit_out)
{
    struct wire_reader reader =
        wire_reader_make(grant->credits_wire + (size_t)index * MSG_CREDIT_BYTES, MSG_CREDIT_BYTES);

    KVF_REQUIRE(index < grant->count);
    *credit_out = get_credit(&reader);
}

static void get_grant(struct msg_decoder *decoder, struct msg_grant *grant)
{
    grant->flow = wire_get_u64(&decoder->reader);
    grant->count = wire_get_u16(&decoder->reader);
    demand_flow(decoder, grant->flow);
    msg_demand(decoder, grant->count != 0, KVF_E_PROTOCOL, "a grant without credits");
    if (!msg_demand(decoder, grant->count <= MSG_CREDITS_MAX, KVF_E_TOO_LARGE,
                    "more credits than one grant may have"))
        return;
    grant->credits_wire = decoder->reader.at;
    for (unsigned i = 0; i < grant->count; i++) {
        struct msg_credit credit = get_credit(&decoder->reader);

        if (!msg_demand(decoder, credit.medium < MSG_MEDIUM_COUNT, KVF_E_PROTOCOL,
                        "medium is out of range"))
            return;
    }
    msg_demand_end(decoder);
}

static void get_data(struct msg_decoder *decoder, struct msg_data *data)
{
    struct wire_reader *reader = &decoder->reader;

    data->flow = wire_get_u64(reader);
    data->chunk = wire_get_u32(reader);
    data->region = get_region(reader);
    data->chunk_bytes = wire_get_u32(reader);
    data->run_count = wire_get_u32(reader);
    demand_flow(decoder, data->flow);
    if (!msg_demand(decoder, data->run_count != 0, KVF_E_PROTOCOL, "a chunk without runs"))
        return;
    /* More than the payload holds is cut short, whatever the count. */
    data->runs_wire = wire_get_bytes(reader, (size_t)data->run_count * MSG_RUN_BYTES);
    msg_demand_end(decoder);
}

static void get_nack(struct msg_decoder *decoder, struct msg_nack *nack)
{
    struct wire_reader *reader = &decoder->reader;
    bool whole;

    nack->flow = wire_get_u64(reader);
    nack->scope = wire_get_u8(reader);
    nack->chunk = wire_get_u32(reader);
    nack->region = get_region(reader);
    nack->reason = wire_get_u8(reader);
    whole = nack->chunk == 0 && nack->region.offset == 0 && nack->region.generation == 0;
    demand_flow(decoder, nack->flow);
    msg_demand(decoder, nack->scope < MSG_NACK_SCOPE_COUNT, KVF_E_PROTOCOL,
               "scope is out of range");
    msg_demand(decoder, nack->reason < MSG_NACK_REASON_COUNT, KVF_E_PROTOCOL,
               "reason is out of range");
    msg_demand(decoder, nack->scope == MSG_NACK_CHUNK || whole, KVF_E_PROTOCOL,
               "a refusal of the flow names a chunk");
    msg_demand_end(decoder);
}

static void get_path_note(struct msg_decoder *decoder, struct msg_path_note *note)
{
    note->rid = wire_get_u64(&decoder->reader);
    note->tag = wire_get_u32(&decoder->reader);
    note->slice = wire_get_u32(&decoder->reader);
    note->path = wire_get_u8(&decoder->reader);
    msg_demand(decoder, note->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder, note->path < KVF_PATH_COUNT, KVF_E_PROTOCOL, "path is out of range");
    msg_demand_end(decoder);
}

void msg_get_bounce(struct msg_decoder *decoder, struct msg *msg)
{
    struct wire_reader *reader = &decoder->reader;

    if (msg->header.type == MSG_WANT) {
        get_want(decoder, &msg->u.want);
    } else if (msg->header.type == MSG_GRANT) {
        get_grant(decoder, &msg->u.grant);
    } else if (msg->header.type == MSG_DATA) {
        get_data(decoder, &msg->u.data);
    } else if (msg->header.type == MSG_ACK) {
        msg->u.ack.flow = wire_get_u64(reader);
        msg->u.ack.chunk = wire_get_u32(reader);
        msg->u.ack.region = get_region(reader);
        demand_flow(decoder, msg->u.ack.flow);
        msg_demand_end(decoder);
    } else if (msg->header.type == MSG_NACK) {
        get_nack(decoder, &msg->u.nack);
    } else if (msg->header.type == MSG_FLOW_CANCEL) {
        msg->u.flow_cancel.flow = wire_get_u64(reader);
        msg->u.flow_cancel.clean = msg_get_bool(decoder);
        msg->u.flow_cancel.code = msg_get_code(decoder);
        demand_flow(decoder, msg->u.flow_cancel.flow);
        msg_demand(decoder, msg->u.flow_cancel.code != KVF_OK, KVF_E_PROTOCOL,
                   "code is no failure");
        msg_demand_end(decoder);
    } else {
        get_path_note(decoder, &msg->u.path_note);
    }
}

struct msg_run msg_run_get(const uint8_t at[MSG_RUN_BYTES])
{
    return (struct msg_run){
        .bounce = wire_load_u64(at),
        .dst = wire_load_u64(at + 8),
        .dst_stride = wire_load_u64(at + 16),
        .bounce_stride = wire_load_u32(at + 24),
        .piece_bytes = wire_load_u32(at + 28),
        .pieces = wire_load_u32(at + 32),
    };
}
