/* msg.c - see msg.h. The order of fields here is the order of the bytes (docs/protocol.md). */
#include "msg.h"

#include <limits.h>
#include <string.h>

#include "check.h"
#include "msg_internal.h"

#define MSG_CODE_MAX 32767 /* a code on the wire is the status without its sign */

/* Optional fields of REQUEST_DATA. */
#define MSG_FIELD_LEGACY_BASE 0x0101u
#define MSG_FIELD_RESERVED_REGION 0x0102u

/* Optional fields of REPORT. */
#define MSG_FIELD_CHECK 0x0201u
#define MSG_CHECK_FIXED_BYTES 18u
#define MSG_CHECK_FIELD_BYTES_MAX (6u + MSG_CHECK_FIXED_BYTES + MSG_CHECK_PARTS_MAX * 8u)

/* Fixed parts of payloads, for sizes. */
#define MSG_REQUEST_FIXED_BYTES 28u
#define MSG_GROUP_FIXED_BYTES 8u
#define MSG_REPORT_FIXED_BYTES 40u
#define MSG_CANCEL_FIXED_BYTES 31u

const char *msg_type_name(unsigned type)
{
    static const char *const names[] = {
        [MSG_HELLO] = "HELLO",
        [MSG_REQUEST_DATA] = "REQUEST_DATA",
        [MSG_CANCEL_SESSION] = "CANCEL_SESSION",
        [MSG_SESSION_CANCELLED] = "SESSION_CANCELLED",
        [MSG_REPORT] = "REPORT",
        [MSG_SETTLED] = "SETTLED",
        [MSG_QUIESCED] = "QUIESCED",
        [MSG_PING] = "PING",
        [MSG_PONG] = "PONG",
        [MSG_BYE] = "BYE",
        [MSG_WANT] = "WANT",
        [MSG_GRANT] = "GRANT",
        [MSG_DATA] = "DATA",
        [MSG_ACK] = "ACK",
        [MSG_NACK] = "NACK",
        [MSG_FLOW_CANCEL] = "FLOW_CANCEL",
        [MSG_PATH_NOTE] = "PATH_NOTE",
    };

    if (type >= sizeof(names) / sizeof(names[0]) || names[type] == NULL)
        return "unknown";
    return names[type];
}

/* ---- encoding ------------------------------------------------------------------------------- */

void msg_put_code(struct wire_writer *writer, enum kvf_status code)
{
    KVF_REQUIRE((int)code <= 0 && (int)code >= -MSG_CODE_MAX);
    wire_put_u16(writer, (uint16_t)(-(int)code));
}

static void msg_put_hello(struct wire_writer *writer, const struct msg_hello *hello)
{
    KVF_REQUIRE(hello->wire_version_min >= 1);
    KVF_REQUIRE(hello->wire_version_min <= hello->wire_version_max);
    KVF_REQUIRE(hello->side <= KVF_GENERATION);
    wire_put_u8(writer, hello->wire_version_min);
    wire_put_u8(writer, hello->wire_version_max);
    wire_put_u8(writer, hello->side);
    wire_put_u8(writer, 0);
    wire_put_u32(writer, hello->pid);
    wire_put_u64(writer, hello->host_hash);
    wire_put_u64(writer, hello->capabilities);
    for (unsigned i = 0; i < MSG_HELLO_PART_COUNT; i++) {
        size_t begin;

        if (hello->parts[i].bytes == NULL)
            continue;
        begin = wire_put_field_begin(writer, (uint16_t)(i + 1));
        wire_put_bytes(writer, hello->parts[i].bytes, hello->parts[i].len_bytes);
        wire_put_field_end(writer, begin);
    }
}

static void msg_put_group(struct wire_writer *writer, const struct kvf_block_list *group)
{
    KVF_REQUIRE(group->count <= UINT32_MAX - group->first);
    wire_put_u32(writer, group->first);
    wire_put_u32(writer, group->count);
    wire_put_words(writer, group->slots, group->count);
}

static void msg_put_request_data(struct wire_writer *writer, const struct msg_request_data *data)
{
    uint64_t blocks = 0;

    KVF_REQUIRE(data->tag != 0);
    KVF_REQUIRE(data->slice == MSG_SLICE_WHOLE);
    KVF_REQUIRE(data->prompt_tokens != 0);
    KVF_REQUIRE((data->flags & ~MSG_REQUEST_FLAGS) == 0);
    wire_put_u64(writer, data->rid);
    wire_put_u32(writer, data->tag);
    wire_put_u32(writer, data->slice);
    wire_put_u16(writer, data->receiver_instance);
    wire_put_u16(writer, data->receiver_rank);
    wire_put_u32(writer, data->prompt_tokens);
    wire_put_u8(writer, data->aux_wanted);
    wire_put_u8(writer, data->group_count);
    wire_put_u16(writer, data->flags);
    for (unsigned i = 0; i < data->group_count; i++) {
        blocks += data->groups[i].count;
        if (blocks > MSG_BLOCKS_MAX) {
            writer->failed = true;
            return;
        }
        msg_put_group(writer, &data->groups[i]);
    }
}

static void msg_put_cancel_session(struct wire_writer *writer,
                                   const struct msg_cancel_session *cancel)
{
    KVF_REQUIRE(cancel->tag != 0);
    KVF_REQUIRE(cancel->reason < MSG_CANCEL_REASON_COUNT);
    KVF_REQUIRE(cancel->slice_count <= MSG_CANCEL_SLICES_MAX);
    wire_put_u64(writer, cancel->rid);
    wire_put_u32(writer, cancel->tag);
    wire_put_u16(writer, cancel->receiver_instance);
    wire_put_u16(writer, cancel->receiver_rank);
    wire_put_u64(writer, cancel->receiver_epoch);
    wire_put_u8(writer, cancel->reason);
    wire_put_u32(writer, cancel->cancel_id);
    wire_put_u16(writer, cancel->slice_count);
    for (unsigned i = 0; i < cancel->slice_count; i++)
        wire_put_u32(writer, cancel->slices[i]);
}

static void msg_put_session_cancelled(struct wire_writer *writer,
                                      const struct msg_session_cancelled *cancelled)
{
    KVF_REQUIRE(cancelled->tag != 0);
    KVF_REQUIRE(cancelled->origin < MSG_CANCEL_ORIGIN_COUNT);
    KVF_REQUIRE(cancelled->code != KVF_OK);
    wire_put_u64(writer, cancelled->rid);
    wire_put_u32(writer, cancelled->tag);
    wire_put_u8(writer, cancelled->origin);
    msg_put_code(writer, cancelled->code);
}

static void msg_put_check(struct wire_writer *writer, const struct msg_check *check)
{
    size_t begin = wire_put_field_begin(writer, MSG_FIELD_CHECK);

    KVF_REQUIRE(check->part_count > 0 && check->part_count <= MSG_CHECK_PARTS_MAX);
    wire_put_u32(writer, check->token_first);
    wire_put_u32(writer, check->token_end);
    wire_put_u32(writer, check->layer_first);
    wire_put_u32(writer, check->layer_end);
    wire_put_u16(writer, check->part_count);
    for (unsigned i = 0; i < check->part_count; i++)
        wire_put_u64(writer, check->parts[i]);
    wire_put_field_end(writer, begin);
}

static void msg_put_report(struct wire_writer *writer, const struct msg_report *report)
{
    bool success = report->status == MSG_REPORT_SUCCESS;

    KVF_REQUIRE(report->tag != 0);
    KVF_REQUIRE(report->status < MSG_REPORT_STATUS_COUNT);
    KVF_REQUIRE(success == (report->code == KVF_OK));
    KVF_REQUIRE(report->path < KVF_PATH_COUNT);
    KVF_REQUIRE(report->aux_bytes == 0 || (success && report->is_last));
    wire_put_u64(writer, report->rid);
    wire_put_u32(writer, report->tag);
    wire_put_u32(writer, report->slice);
    wire_put_u8(writer, report->is_last);
    wire_put_u8(writer, report->status);
    msg_put_code(writer, report->code);
    wire_put_u64(writer, report->bytes_written);
    wire_put_u8(writer, report->path);
    wire_put_u8(writer, report->unanswered);
    wire_put_u64(writer, report->report_id);
    wire_put_u16(writer, report->aux_bytes);
    wire_put_bytes(writer, report->aux, report->aux_bytes);
    if (report->check != NULL)
        msg_put_check(writer, report->check);
}

static void msg_put_settled(struct wire_writer *writer, const struct msg_settled *settled)
{
    KVF_REQUIRE(settled->tag != 0);
    KVF_REQUIRE(settled->code != KVF_OK);
    wire_put_u64(writer, settled->rid);
    wire_put_u32(writer, settled->tag);
    wire_put_u32(writer, settled->slice);
    msg_put_code(writer, settled->code);
}

static void msg_put_quiesced(struct wire_writer *writer, const struct msg_quiesced *quiesced)
{
    KVF_REQUIRE(quiesced->tag != 0);
    wire_put_u64(writer, quiesced->rid);
    wire_put_u32(writer, quiesced->tag);
    wire_put_u32(writer, quiesced->cancel_id);
}

static void msg_put_ping(struct wire_writer *writer, const struct msg_ping *ping)
{
    wire_put_u64(writer, ping->nonce);
    wire_put_u32(writer, ping->sweep);
    wire_put_u8(writer, ping->doing);
}

static void msg_put_payload(struct wire_writer *writer, const struct msg *msg)
{
    switch ((enum msg_type)msg->header.type) {
    case MSG_HELLO:
        msg_put_hello(writer, &msg->u.hello);
        return;
    case MSG_REQUEST_DATA:
        msg_put_request_data(writer, &msg->u.request_data);
        return;
    case MSG_CANCEL_SESSION:
        msg_put_cancel_session(writer, &msg->u.cancel_session);
        return;
    case MSG_SESSION_CANCELLED:
        msg_put_session_cancelled(writer, &msg->u.session_cancelled);
        return;
    case MSG_REPORT:
        msg_put_report(writer, &msg->u.report);
        return;
    case MSG_SETTLED:
        msg_put_settled(writer, &msg->u.settled);
        return;
    case MSG_QUIESCED:
        msg_put_quiesced(writer, &msg->u.quiesced);
        return;
    case MSG_PING:
    case MSG_PONG:
        msg_put_ping(writer, &msg->u.ping);
        return;
    case MSG_BYE:
        wire_put_u8(writer, msg->u.bye.no_access);
        return;
    case MSG_WANT:
    case MSG_GRANT:
    case MSG_DATA:
    case MSG_ACK:
    case MSG_NACK:
    case MSG_FLOW_CANCEL:
    case MSG_PATH_NOTE:
        msg_put_bounce(writer, msg);
        return;
    }
    kvf_check_failed("contract broken", "message type", __FILE__, __LINE__);
}

static void msg_put_header(struct wire_writer *writer, const struct msg_header *header)
{
    KVF_REQUIRE(header->flags == 0 && header->reserved == 0);
    KVF_REQUIRE(header->epoch != 0);
    wire_put_u32(writer, MSG_MAGIC);
    wire_put_u8(writer, MSG_VERSION);
    wire_put_u8(writer, header->type);
    wire_put_u16(writer, header->flags);
    wire_put_u32(writer, 0); /* payload bytes: known at the end */
    wire_put_u16(writer, header->source_instance);
    wire_put_u16(writer, header->source_rank);
    wire_put_u64(writer, header->epoch);
    wire_put_u64(writer, 0); /* seq */
    wire_put_u32(writer, 0); /* checksum */
    wire_put_u32(writer, header->reserved);
}

size_t msg_size(const struct msg *msg)
{
    struct wire_writer writer = wire_writer_count();

    msg_put_header(&writer, &msg->header);
    msg_put_payload(&writer, msg);
    return writer.len_bytes;
}

size_t msg_size_max(uint32_t group_count, uint32_t block_count)
{
    size_t request = MSG_REQUEST_FIXED_BYTES + (size_t)group_count * MSG_GROUP_FIXED_BYTES +
                     (size_t)block_count * 4;
    size_t report = MSG_REPORT_FIXED_BYTES + MSG_AUX_BYTES_MAX + MSG_CHECK_FIELD_BYTES_MAX;
    size_t cancel = MSG_CANCEL_FIXED_BYTES + MSG_CANCEL_SLICES_MAX * 4;
    size_t most = request > report ? request : report;

    return MSG_HEADER_BYTES + (most > cancel ? most : cancel);
}

enum kvf_status msg_encode(const struct msg *msg, uint8_t *bytes, size_t max_bytes, size_t *len_out)
{
    struct wire_writer writer = wire_writer_make(bytes, max_bytes);

    msg_put_header(&writer, &msg->header);
    msg_put_payload(&writer, msg);
    if (writer.failed || writer.len_bytes > MSG_BYTES_MAX)
        return KVF_E_TOO_LARGE;
    wire_store_u32(bytes + offsetof(struct msg_header_wire, payload_bytes),
                   (uint32_t)(writer.len_bytes - MSG_HEADER_BYTES));
    *len_out = writer.len_bytes;
    return KVF_OK;
}

void msg_seal(uint8_t *bytes, size_t len_bytes, uint64_t seq)
{
    size_t at = offsetof(struct msg_header_wire, checksum);

    KVF_REQUIRE(len_bytes >= MSG_HEADER_BYTES && seq != 0);
    wire_store_u64(bytes + offsetof(struct msg_header_wire, seq), seq);
    wire_store_u32(bytes + at, wire_checksum_but(bytes, len_bytes, at));
}

/* ---- decoding ------------------------------------------------------------------------------- */

void msg_refuse(struct msg_decoder *decoder, enum kvf_status status, const char *why)
{
    if (decoder->status == KVF_OK) {
        decoder->status = status;
        decoder->why = why;
    }
}

bool msg_demand(struct msg_decoder *decoder, bool holds, enum kvf_status status, const char *why)
{
    if (decoder->reader.failed)
        msg_refuse(decoder, KVF_E_DECODE, "payload ends too early");
    else if (!holds)
        msg_refuse(decoder, status, why);
    return decoder->status == KVF_OK;
}

bool msg_demand_end(struct msg_decoder *decoder)
{
    return msg_demand(decoder, decoder->reader.left_bytes == 0, KVF_E_DECODE,
                      "payload is longer than its fields");
}

bool msg_get_bool(struct msg_decoder *decoder)
{
    uint8_t value = wire_get_u8(&decoder->reader);

    if (value > 1)
        msg_refuse(decoder, KVF_E_PROTOCOL, "a truth value is neither 0 nor 1");
    return value == 1;
}

enum kvf_status msg_get_code(struct msg_decoder *decoder)
{
    uint16_t value = wire_get_u16(&decoder->reader);

    if (value > MSG_CODE_MAX) {
        msg_refuse(decoder, KVF_E_PROTOCOL, "a code is out of range");
        return KVF_OK;
    }
    return (enum kvf_status)(-(int)value);
}

static void msg_get_hello(struct msg_decoder *decoder, struct msg_hello *hello)
{
    struct wire_reader *reader = &decoder->reader;
    struct wire_field field;
    uint8_t zero;

    hello->wire_version_min = wire_get_u8(reader);
    hello->wire_version_max = wire_get_u8(reader);
    hello->side = wire_get_u8(reader);
    zero = wire_get_u8(reader);
    hello->pid = wire_get_u32(reader);
    hello->host_hash = wire_get_u64(reader);
    hello->capabilities = wire_get_u64(reader);
    msg_demand(decoder, zero == 0, KVF_E_DECODE, "a reserved byte is not 0");
    msg_demand(decoder,
               hello->wire_version_min >= 1 && hello->wire_version_min <= hello->wire_version_max,
               KVF_E_PROTOCOL, "version range is empty");
    msg_demand(decoder, hello->side <= KVF_GENERATION, KVF_E_PROTOCOL, "side is out of range");
    while (wire_get_field(reader, &field)) {
        struct msg_bytes *part;

        if (field.tag == 0 || field.tag > MSG_HELLO_PART_COUNT) {
            if (wire_field_is_required(&field))
                msg_refuse(decoder, KVF_E_DECODE, "a required field is not known");
            continue;
        }
        part = &hello->parts[field.tag - 1];
        if (part->bytes != NULL)
            msg_refuse(decoder, KVF_E_DECODE, "a field comes twice");
        part->bytes = field.value.at;
        part->len_bytes = (uint32_t)field.value.left_bytes;
    }
    msg_demand_end(decoder);
}

bool msg_group_next(struct wire_reader *reader, struct msg_group *group_out)
{
    if (reader->failed || reader->left_bytes == 0)
        return false;
    group_out->first = wire_get_u32(reader);
    group_out->count = wire_get_u32(reader);
    group_out->slots_wire = wire_get_bytes(reader, (size_t)group_out->count * 4);
    return !reader->failed;
}

static void msg_get_groups(struct msg_decoder *decoder, struct msg_request_data *data)
{
    const uint8_t *begin = decoder->reader.at;

    for (unsigned i = 0; i < data->group_count; i++) {
        uint32_t first = wire_get_u32(&decoder->reader);
        uint32_t count = wire_get_u32(&decoder->reader);

        if (!msg_demand(decoder, count <= MSG_BLOCKS_MAX - data->block_count, KVF_E_TOO_LARGE,
                        "more blocks than one request may name"))
            return;
        if (!msg_demand(decoder, count <= UINT32_MAX - first, KVF_E_PROTOCOL,
                        "block ordinals overflow"))
            return;
        data->block_count += count;
        (void)wire_get_bytes(&decoder->reader, (size_t)count * 4);
    }
    if (!msg_demand(decoder, true, KVF_OK, ""))
        return;
    data->groups_wire = begin;
    data->groups_bytes = (uint32_t)(decoder->reader.at - begin);
}

static void msg_get_request_fields(struct msg_decoder *decoder)
{
    struct wire_field field;

    while (wire_get_field(&decoder->reader, &field)) {
        if (field.tag == MSG_FIELD_LEGACY_BASE) {
            if (field.value.left_bytes != 0)
                msg_refuse(decoder, KVF_E_LEGACY_REQUEST, "bounce base of an older release");
        } else if (field.tag != MSG_FIELD_RESERVED_REGION) {
            msg_refuse(decoder, KVF_E_PROTOCOL, "a field of the request is not known");
        }
    }
    msg_demand_end(decoder);
}

static void msg_get_request_data(struct msg_decoder *decoder, struct msg_request_data *data)
{
    struct wire_reader *reader = &decoder->reader;
    uint32_t tag;

    data->rid = wire_get_u64(reader);
    tag = wire_get_u32(reader);
    data->slice = wire_get_u32(reader);
    data->receiver_instance = wire_get_u16(reader);
    data->receiver_rank = wire_get_u16(reader);
    msg_demand(decoder, tag != 0, KVF_E_PROTOCOL, "tag is 0");
    if (!msg_demand(decoder,
                    data->receiver_instance == decoder->header->source_instance &&
                        data->receiver_rank == decoder->header->source_rank,
                    KVF_E_PROTOCOL, "receiver is not the sender of the message"))
        return;
    data->tag = tag; /* from here on a refusal can be answered */
    data->prompt_tokens = wire_get_u32(reader);
    data->aux_wanted = msg_get_bool(decoder);
    data->group_count = wire_get_u8(reader);
    data->flags = wire_get_u16(reader);
    msg_demand(decoder, data->slice == MSG_SLICE_WHOLE, KVF_E_PROTOCOL, "asks for one slice alone");
    msg_demand(decoder, data->prompt_tokens != 0, KVF_E_PROTOCOL, "prompt has no tokens");
    msg_demand(decoder, (data->flags & ~MSG_REQUEST_FLAGS) == 0, KVF_E_PROTOCOL,
               "a flag of the request is not known");
    if (decoder->status != KVF_OK)
        return;
    msg_get_groups(decoder, data);
    if (decoder->status == KVF_OK)
        msg_get_request_fields(decoder);
}

void msg_request_data_copy(const struct msg_request_data *data, struct kvf_block_list *lists_out,
                           uint32_t *slots_out)
{
    struct wire_reader reader = wire_reader_make(data->groups_wire, data->groups_bytes);
    struct msg_group group;

    for (unsigned i = 0; i < data->group_count; i++) {
        KVF_REQUIRE(msg_group_next(&reader, &group));
        lists_out[i] = (struct kvf_block_list){group.first, group.count, slots_out};
        wire_load_words(slots_out, group.slots_wire, group.count);
        slots_out += group.count;
    }
}

static void msg_get_cancel_session(struct msg_decoder *decoder, struct msg_cancel_session *cancel)
{
    struct wire_reader *reader = &decoder->reader;
    const struct msg_header *header = decoder->header;

    cancel->rid = wire_get_u64(reader);
    cancel->tag = wire_get_u32(reader);
    cancel->receiver_instance = wire_get_u16(reader);
    cancel->receiver_rank = wire_get_u16(reader);
    cancel->receiver_epoch = wire_get_u64(reader);
    cancel->reason = wire_get_u8(reader);
    cancel->cancel_id = wire_get_u32(reader);
    cancel->slice_count = wire_get_u16(reader);
    msg_demand(decoder, cancel->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder,
               cancel->receiver_instance == header->source_instance &&
                   cancel->receiver_rank == header->source_rank &&
                   cancel->receiver_epoch == header->epoch,
               KVF_E_PROTOCOL, "receiver is not the sender of the message");
    msg_demand(decoder, cancel->reason < MSG_CANCEL_REASON_COUNT, KVF_E_PROTOCOL,
               "reason is out of range");
    if (!msg_demand(decoder, cancel->slice_count <= MSG_CANCEL_SLICES_MAX, KVF_E_TOO_LARGE,
                    "more slices than one cancel may name"))
        return;
    cancel->slices_wire = wire_get_bytes(reader, (size_t)cancel->slice_count * 4);
    msg_demand_end(decoder);
}

static void msg_get_session_cancelled(struct msg_decoder *decoder,
                                      struct msg_session_cancelled *cancelled)
{
    cancelled->rid = wire_get_u64(&decoder->reader);
    cancelled->tag = wire_get_u32(&decoder->reader);
    cancelled->origin = wire_get_u8(&decoder->reader);
    cancelled->code = msg_get_code(decoder);
    msg_demand(decoder, cancelled->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder, cancelled->origin < MSG_CANCEL_ORIGIN_COUNT, KVF_E_PROTOCOL,
               "origin is out of range");
    msg_demand(decoder, cancelled->code != KVF_OK, KVF_E_PROTOCOL, "code is no failure");
    msg_demand_end(decoder);
}

static void msg_get_check(struct msg_decoder *decoder, struct msg_report *report,
                          const struct wire_field *field)
{
    size_t len_bytes = field->value.left_bytes;
    size_t parts = 0;

    if (len_bytes >= MSG_CHECK_FIXED_BYTES)
        parts = wire_load_u16(field->value.at + MSG_CHECK_FIXED_BYTES - 2);
    if (report->check_wire != NULL)
        msg_refuse(decoder, KVF_E_DECODE, "a field comes twice");
    else if (parts == 0 || parts > MSG_CHECK_PARTS_MAX ||
             len_bytes != MSG_CHECK_FIXED_BYTES + parts * 8)
        msg_refuse(decoder, KVF_E_PROTOCOL, "a self check is out of its range");
    else
        report->check_wire = field->value.at;
}

static void msg_get_report_fields(struct msg_decoder *decoder, struct msg_report *report)
{
    struct wire_field field;

    while (wire_get_field(&decoder->reader, &field)) {
        if (field.tag == MSG_FIELD_CHECK)
            msg_get_check(decoder, report, &field);
        else if (wire_field_is_required(&field))
            msg_refuse(decoder, KVF_E_DECODE, "a required field is not known");
    }
    msg_demand_end(decoder);
}

static void msg_get_report(struct msg_decoder *decoder, struct msg_report *report)
{
    struct wire_reader *reader = &decoder->reader;
    bool success;

    report->rid = wire_get_u64(reader);
    report->tag = wire_get_u32(reader);
    report->slice = wire_get_u32(reader);
    report->is_last = msg_get_bool(decoder);
    report->status = wire_get_u8(reader);
    report->code = msg_get_code(decoder);
    report->bytes_written = wire_get_u64(reader);
    report->path = wire_get_u8(reader);
    report->unanswered = msg_get_bool(decoder);
    report->report_id = wire_get_u64(reader);
    report->aux_bytes = wire_get_u16(reader);
    report->aux = wire_get_bytes(reader, report->aux_bytes);
    success = report->status == MSG_REPORT_SUCCESS;
    msg_demand(decoder, report->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder, report->slice != MSG_SLICE_WHOLE || !success, KVF_E_PROTOCOL,
               "success names no slice");
    msg_demand(decoder, report->status < MSG_REPORT_STATUS_COUNT, KVF_E_PROTOCOL,
               "status is out of range");
    msg_demand(decoder, success == (report->code == KVF_OK), KVF_E_PROTOCOL,
               "status and code contradict each other");
    msg_demand(decoder, report->path < KVF_PATH_COUNT, KVF_E_PROTOCOL, "path is out of range");
    msg_demand(decoder, report->aux_bytes == 0 || (success && report->is_last), KVF_E_PROTOCOL,
               "aux without the last success");
    msg_get_report_fields(decoder, report);
}

bool msg_check_read(const struct msg_report *report, struct msg_check *check_out)
{
    struct wire_reader reader;

    if (report->check_wire == NULL)
        return false;
    reader = wire_reader_make(report->check_wire, MSG_CHECK_FIXED_BYTES);
    check_out->token_first = wire_get_u32(&reader);
    check_out->token_end = wire_get_u32(&reader);
    check_out->layer_first = wire_get_u32(&reader);
    check_out->layer_end = wire_get_u32(&reader);
    check_out->part_count = wire_get_u16(&reader);
    for (unsigned i = 0; i < check_out->part_count; i++)
        check_out->parts[i] =
            wire_load_u64(report->check_wire + MSG_CHECK_FIXED_BYTES + (size_t)i * 8);
    return true;
}

static void msg_get_settled(struct msg_decoder *decoder, struct msg_settled *settled)
{
    settled->rid = wire_get_u64(&decoder->reader);
    settled->tag = wire_get_u32(&decoder->reader);
    settled->slice = wire_get_u32(&decoder->reader);
    settled->code = msg_get_code(decoder);
    msg_demand(decoder, settled->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand(decoder, settled->code != KVF_OK, KVF_E_PROTOCOL, "code is no failure");
    msg_demand_end(decoder);
}

static void msg_get_quiesced(struct msg_decoder *decoder, struct msg_quiesced *quiesced)
{
    quiesced->rid = wire_get_u64(&decoder->reader);
    quiesced->tag = wire_get_u32(&decoder->reader);
    quiesced->cancel_id = wire_get_u32(&decoder->reader);
    msg_demand(decoder, quiesced->tag != 0, KVF_E_PROTOCOL, "tag is 0");
    msg_demand_end(decoder);
}

static void msg_get_ping(struct msg_decoder *decoder, struct msg_ping *ping)
{
    ping->nonce = wire_get_u64(&decoder->reader);
    ping->sweep = wire_get_u32(&decoder->reader);
    ping->doing = wire_get_u8(&decoder->reader);
    msg_demand_end(decoder);
}

static void msg_get_payload(struct msg_decoder *decoder, struct msg *msg)
{
    switch ((enum msg_type)msg->header.type) {
    case MSG_HELLO:
        msg_get_hello(decoder, &msg->u.hello);
        return;
    case MSG_REQUEST_DATA:
        msg_get_request_data(decoder, &msg->u.request_data);
        return;
    case MSG_CANCEL_SESSION:
        msg_get_cancel_session(decoder, &msg->u.cancel_session);
        return;
    case MSG_SESSION_CANCELLED:
        msg_get_session_cancelled(decoder, &msg->u.session_cancelled);
        return;
    case MSG_REPORT:
        msg_get_report(decoder, &msg->u.report);
        return;
    case MSG_SETTLED:
        msg_get_settled(decoder, &msg->u.settled);
        return;
    case MSG_QUIESCED:
        msg_get_quiesced(decoder, &msg->u.quiesced);
        return;
    case MSG_PING:
    case MSG_PONG:
        msg_get_ping(decoder, &msg->u.ping);
        return;
    case MSG_BYE:
        msg->u.bye.no_access = msg_get_bool(decoder);
        msg_demand_end(decoder);
        return;
    case MSG_WANT:
    case MSG_GRANT:
    case MSG_DATA:
    case MSG_ACK:
    case MSG_NACK:
    case MSG_FLOW_CANCEL:
    case MSG_PATH_NOTE:
        msg_get_bounce(decoder, msg);
        return;
    }
    msg_refuse(decoder, KVF_E_UNSUPPORTED, "type is not known");
}

enum kvf_status msg_peek_header(const uint8_t *bytes, size_t len_bytes,
                                struct msg_header *header_out)
{
    struct wire_reader reader = wire_reader_make(bytes, len_bytes);
    struct msg_header header;
    uint32_t magic = wire_get_u32(&reader);
    uint8_t version = wire_get_u8(&reader);

    header.type = wire_get_u8(&reader);
    header.flags = wire_get_u16(&reader);
    header.payload_bytes = wire_get_u32(&reader);
    header.source_instance = wire_get_u16(&reader);
    header.source_rank = wire_get_u16(&reader);
    header.epoch = wire_get_u64(&reader);
    header.seq = wire_get_u64(&reader);
    wire_get_u32(&reader); /* the checksum */
    header.reserved = wire_get_u32(&reader);
    if (reader.failed)
        return KVF_E_TRUNCATED;
    if (magic != MSG_MAGIC || version != MSG_VERSION)
        return KVF_E_DECODE;
    if (header.payload_bytes > MSG_PAYLOAD_BYTES_MAX || header.payload_bytes != reader.left_bytes)
        return KVF_E_TRUNCATED;
    *header_out = header;
    return KVF_OK;
}

enum kvf_status msg_decode_header(const uint8_t *bytes, size_t len_bytes,
                                  struct msg_header *header_out)
{
    size_t at = offsetof(struct msg_header_wire, checksum);
    struct msg_header header;
    enum kvf_status status = msg_peek_header(bytes, len_bytes, &header);

    if (status != KVF_OK)
        return status;
    if (wire_load_u32(bytes + at) != wire_checksum_but(bytes, len_bytes, at))
        return KVF_E_CHECKSUM;
    if (header.epoch == 0 || header.seq == 0)
        return KVF_E_DECODE;
    *header_out = header;
    return KVF_OK;
}

/* What follows the frame, whose own decoding has given `frame`. */
static enum kvf_status msg_decode_rest(const uint8_t *bytes, enum kvf_status frame,
                                       struct msg *msg_out, const char **why_out)
{
    struct msg_decoder decoder = {.header = &msg_out->header, .status = frame, .why = ""};

    if (decoder.status != KVF_OK) {
        decoder.why = "frame is bad";
    } else if (msg_out->header.flags != 0 || msg_out->header.reserved != 0) {
        msg_refuse(&decoder, KVF_E_DECODE, "flag or reserved bits are set");
    } else {
        decoder.reader = wire_reader_make(bytes + MSG_HEADER_BYTES, msg_out->header.payload_bytes);
        msg_get_payload(&decoder, msg_out);
    }
    if (why_out != NULL)
        *why_out = decoder.why;
    return decoder.status;
}

enum kvf_status msg_decode(const uint8_t *bytes, size_t len_bytes, struct msg *msg_out,
                           const char **why_out)
{
    enum kvf_status frame;

    memset(msg_out, 0, sizeof(*msg_out));
    frame = msg_decode_header(bytes, len_bytes, &msg_out->header);
    return msg_decode_rest(bytes, frame, msg_out, why_out);
}

enum kvf_status msg_decode_checked(const uint8_t *bytes, size_t len_bytes, struct msg *msg_out,
                                   const char **why_out)
{
    enum kvf_status frame;

    memset(msg_out, 0, sizeof(*msg_out));
    frame = msg_peek_header(bytes, len_bytes, &msg_out->header);
    return msg_decode_rest(bytes, frame, msg_out, why_out);
}
