/*
 * msg.h - every control message: its fields, its encoder, its decoder. Pure.
 *
 * A message is a header of 40 bytes and a payload of at most 16 MiB, little-endian. An encoder
 * writes all but the sequence number and the checksum; msg_seal() adds these when the message is
 * queued. A decoder checks every count before it multiplies it, every enumeration, and the end of
 * the message; what it gives out points into the message's bytes.
 *
 * docs/protocol.md describes the bytes. May include wire.h and the public headers.
 */
#ifndef KVF_MSG_H
#define KVF_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "wire.h"

#define MSG_MAGIC 0x4d46564bu /* "KVFM" */
#define MSG_VERSION 1u
#define MSG_HEADER_BYTES 40u
#define MSG_PAYLOAD_BYTES_MAX (16u << 20)
#define MSG_BYTES_MAX (MSG_HEADER_BYTES + MSG_PAYLOAD_BYTES_MAX)
#define MSG_GROUPS_MAX 255u       /* block lists of one REQUEST_DATA */
#define MSG_BLOCKS_MAX (1u << 20) /* slots of one REQUEST_DATA, all lists together */
#define MSG_AUX_BYTES_MAX KVF_AUX_BYTES_MAX
#define MSG_CANCEL_SLICES_MAX 1024u /* slice ids of one CANCEL_SESSION */
#define MSG_SLICE_WHOLE UINT32_MAX  /* REQUEST_DATA asks for all slices */
#define MSG_RANKS_MAX 65536u        /* instance and rank are u16 */

/* Numbers on the wire. 1..63 request level, 64..95 bounce level, 96.. group level. */
enum msg_type {
    MSG_HELLO = 1,
    MSG_REQUEST_DATA = 2,
    MSG_CANCEL_SESSION = 3,
    MSG_SESSION_CANCELLED = 4,
    MSG_REPORT = 5,
    MSG_SETTLED = 6,
    MSG_QUIESCED = 7,
    MSG_PING = 8,
    MSG_PONG = 9,
    MSG_BYE = 10,
    MSG_WANT = 64,
    MSG_GRANT = 65,
    MSG_DATA = 66,
    MSG_ACK = 67,
    MSG_NACK = 68,
    MSG_FLOW_CANCEL = 69,
    MSG_PATH_NOTE = 70,
};
#define MSG_TYPE_BOUNCE_FIRST 64u
#define MSG_TYPE_GROUP_FIRST 96u

/* "REQUEST_DATA"; "unknown" for a number that is no type. */
const char *msg_type_name(unsigned type);

/* The header as it lies in the bytes. */
struct msg_header_wire {
    uint8_t magic[4];
    uint8_t version[1];
    uint8_t type[1];
    uint8_t flags[2];
    uint8_t payload_bytes[4];
    uint8_t source_instance[2];
    uint8_t source_rank[2];
    uint8_t epoch[8];
    uint8_t seq[8];
    uint8_t checksum[4]; /* xxHash32 of header and payload with this field 0 */
    uint8_t reserved[4];
};
_Static_assert(sizeof(struct msg_header_wire) == MSG_HEADER_BYTES, "header is 40 bytes");
_Static_assert(offsetof(struct msg_header_wire, payload_bytes) == 8, "header layout");
_Static_assert(offsetof(struct msg_header_wire, epoch) == 16, "header layout");
_Static_assert(offsetof(struct msg_header_wire, seq) == 24, "header layout");
_Static_assert(offsetof(struct msg_header_wire, checksum) == 32, "header layout");

struct msg_header {
    uint8_t type;   /* enum msg_type, or a number that this release does not know */
    uint16_t flags; /* none defined: must be 0 */
    uint32_t payload_bytes;
    uint16_t source_instance;
    uint16_t source_rank;
    uint64_t epoch;
    uint64_t seq;      /* 0 before msg_seal() */
    uint32_t reserved; /* must be 0 */
};

/* ---- payloads ------------------------------------------------------------------------------- */

#define MSG_REQUEST_BOUNCE_ONLY 1u /* only the bounce may be used: local proof is enough */
#define MSG_REQUEST_BROADCAST 2u   /* every dp group was asked; one will send */
#define MSG_REQUEST_FLAGS 3u

/* receiver -> writer: where the receiver wants its bytes. */
struct msg_request_data {
    uint64_t rid;
    uint32_t tag;               /* > 0 */
    uint32_t slice;             /* MSG_SLICE_WHOLE */
    uint16_t receiver_instance; /* = the header's source */
    uint16_t receiver_rank;
    uint32_t prompt_tokens; /* > 0 */
    bool aux_wanted;
    uint16_t flags; /* MSG_REQUEST_* */
    uint8_t group_count;
    const struct kvf_block_list *groups; /* for encoding: [group_count]; NULL after decoding */
    const uint8_t *groups_wire; /* after decoding: checked bytes for msg_group_next(); borrows */
    uint32_t groups_bytes;
    uint32_t block_count; /* after decoding: slots of all groups together */
};

/* One block list inside a decoded REQUEST_DATA. */
struct msg_group {
    uint32_t first; /* block ordinal */
    uint32_t count;
    const uint8_t *slots_wire; /* [count] u32; borrows from the message */
};

/* Slot `index` (< count) of a list. */
static inline uint32_t msg_group_slot(const struct msg_group *group, uint32_t index)
{
    return wire_load_u32(group->slots_wire + (size_t)index * 4);
}

/* Walks the lists: start with wire_reader_make(data->groups_wire, data->groups_bytes). */
bool msg_group_next(struct wire_reader *reader, struct msg_group *group_out);

/*
 * Copies the lists into the caller's storage: `lists_out` [group_count], whose slots point into
 * `slots_out` [block_count].
 */
void msg_request_data_copy(const struct msg_request_data *data, struct kvf_block_list *lists_out,
                           uint32_t *slots_out);

enum msg_cancel_reason {
    MSG_CANCEL_USER,
    MSG_CANCEL_FAILED,
    MSG_CANCEL_TIMEOUT,
    MSG_CANCEL_GROUP,
    MSG_CANCEL_END, /* ordinary end: no more is wanted of this writer */
};
#define MSG_CANCEL_REASON_COUNT 5

/* receiver -> writer. Names the receiver in full, so that it can always be answered. */
struct msg_cancel_session {
    uint64_t rid;
    uint32_t tag;
    uint16_t receiver_instance; /* = the header's source */
    uint16_t receiver_rank;
    uint64_t receiver_epoch;    /* = the header's */
    uint8_t reason;             /* enum msg_cancel_reason */
    uint32_t cancel_id;         /* echoed by QUIESCED */
    uint16_t slice_count;       /* slices asked: 1 with MSG_SLICE_WHOLE */
    const uint32_t *slices;     /* for encoding; NULL after decoding */
    const uint8_t *slices_wire; /* after decoding: [slice_count] u32; borrows */
};

enum msg_cancel_origin {
    MSG_ORIGIN_ENGINE,
    MSG_ORIGIN_RECEIVER, /* another receiver's cancel */
    MSG_ORIGIN_FAILED,
};
#define MSG_CANCEL_ORIGIN_COUNT 3

/* writer -> receiver: the context session turned bad; the final report follows. */
struct msg_session_cancelled {
    uint64_t rid;
    uint32_t tag;
    uint8_t origin;       /* enum msg_cancel_origin */
    enum kvf_status code; /* negative */
};

/* What a report claims (docs/protocol.md). QUIESCED and SETTLED are messages of their own. */
enum msg_report_status {
    MSG_REPORT_SUCCESS = 0,
    MSG_REPORT_FAILED = 1,
    MSG_REPORT_IN_DOUBT = 2,
};
#define MSG_REPORT_STATUS_COUNT 3

#define MSG_CHECK_PARTS_MAX 64u

/*
 * Self check of one slice: what window it was, and a digest of its source bytes, so that the
 * receiver can compare its pages. The fragments of the slice, in plan order, are cut into
 * min(fragments, MSG_CHECK_PARTS_MAX) parts of consecutive ones: fragment i of n is in part
 * i * parts / n. A part's digest is the sum of XXH64(bytes of fragment i, seed i).
 */
struct msg_check {
    uint32_t token_first, token_end, layer_first, layer_end;
    uint16_t part_count; /* 1..MSG_CHECK_PARTS_MAX */
    uint64_t parts[MSG_CHECK_PARTS_MAX];
};

/* writer -> receiver: the end of one slice. */
struct msg_report {
    uint64_t rid;
    uint32_t tag;
    uint32_t slice; /* MSG_SLICE_WHOLE: a failure before there were slices */
    bool is_last;
    uint8_t status;       /* enum msg_report_status */
    enum kvf_status code; /* KVF_OK with SUCCESS, negative otherwise */
    uint64_t bytes_written;
    uint8_t path; /* enum kvf_path */
    bool unanswered;
    uint16_t aux_bytes; /* > 0 only with SUCCESS and is_last */
    const uint8_t *aux; /* borrows */
    uint64_t report_id;
    const struct msg_check *check; /* for encoding; NULL = none, and after decoding */
    const uint8_t *check_wire;     /* after decoding: for msg_check_read(); NULL = none; borrows */
};

/* False: the report has none. */
bool msg_check_read(const struct msg_report *report, struct msg_check *check_out);

/* writer -> receiver: closes an IN_DOUBT. */
struct msg_settled {
    uint64_t rid;
    uint32_t tag;
    uint32_t slice;
    enum kvf_status code; /* negative */
};

/* writer -> receiver: answer to CANCEL_SESSION. */
struct msg_quiesced {
    uint64_t rid;
    uint32_t tag;
    uint32_t cancel_id;
};

/* PING and PONG; a PONG repeats the nonce. */
struct msg_ping {
    uint64_t nonce;
    uint32_t sweep; /* last posted sweep of the sender */
    uint8_t doing;  /* what the sender's engine thread is in; for log lines */
};

struct msg_bye {
    bool no_access; /* all own writes are proven over */
};

/* ---- payloads of the bounce ----------------------------------------------------------------- */

#define MSG_FLOW_CHUNKS_MAX 65536u /* chunks of one WANT */
#define MSG_CREDITS_MAX 1024u      /* credits of one GRANT */
#define MSG_CREDIT_BYTES 37u
#define MSG_RUN_BYTES 36u

/* writer -> receiver: a flow wants to write these chunks. */
struct msg_want {
    uint64_t flow; /* > 0; a writer's numbers only grow */
    uint64_t rid;
    uint32_t tag; /* > 0 */
    uint32_t slice;
    uint32_t chunk_count;      /* 1..MSG_FLOW_CHUNKS_MAX */
    const uint32_t *sizes;     /* for encoding: bytes of each chunk; NULL after decoding */
    const uint8_t *sizes_wire; /* after decoding: [chunk_count] u32, of any value; borrows */
};

/* A region of a receiver's arena as its handle names it. */
struct msg_region {
    uint64_t offset;
    uint32_t generation;
};

enum msg_medium {
    MSG_MEDIUM_RKEY,     /* written by a put, or by stores where the arena is mapped */
    MSG_MEDIUM_TWOSIDED, /* sent and received */
};
#define MSG_MEDIUM_COUNT 2

/* Permission to write one chunk into one region. */
struct msg_credit {
    uint32_t chunk;
    struct msg_region region;
    uint64_t address; /* of the region in the receiver's space */
    uint32_t len_bytes;
    uint32_t device;
    uint8_t medium; /* enum msg_medium */
    uint32_t pair_sequence;
};

/* receiver -> writer. */
struct msg_grant {
    uint64_t flow;
    uint16_t count;                   /* 1..MSG_CREDITS_MAX */
    const struct msg_credit *credits; /* for encoding; NULL after decoding */
    const uint8_t *credits_wire;      /* after decoding: for msg_credit_get(); borrows */
};

/* Credit `index` (< count) of a decoded GRANT, whose ranges were checked. */
void msg_credit_get(const struct msg_grant *grant, uint32_t index, struct msg_credit *credit_out);

/* Pieces of a chunk: piece i goes from bounce + i * bounce_stride to dst + i * dst_stride. */
struct msg_run {
    uint64_t bounce; /* from the region's begin */
    uint64_t dst;    /* in the receiver's space */
    uint64_t dst_stride;
    uint32_t bounce_stride;
    uint32_t piece_bytes;
    uint32_t pieces;
};

void msg_run_put(uint8_t at[MSG_RUN_BYTES], const struct msg_run *run);
struct msg_run msg_run_get(const uint8_t at[MSG_RUN_BYTES]);

/* writer -> receiver: the chunk lies in the region; this is where its pieces belong. */
struct msg_data {
    uint64_t flow;
    uint32_t chunk;
    struct msg_region region;
    uint32_t chunk_bytes;
    uint32_t run_count;       /* > 0 */
    const uint8_t *runs_wire; /* [run_count] MSG_RUN_BYTES, of any values; borrows */
};

/* receiver -> writer: the bytes are in the pages. */
struct msg_ack {
    uint64_t flow;
    uint32_t chunk;
    struct msg_region region;
};

enum msg_nack_scope {
    MSG_NACK_FLOW,
    MSG_NACK_CHUNK,
};
#define MSG_NACK_SCOPE_COUNT 2

enum msg_nack_reason {
    MSG_NACK_BAD_SIZE,
    MSG_NACK_STALE_REGION,
    MSG_NACK_CANCELLED,
    MSG_NACK_FENCED,
    MSG_NACK_SCATTER_FAILED,
    MSG_NACK_BAD_PLAN,
    MSG_NACK_CLOSING,
    MSG_NACK_NO_CAPACITY,
};
#define MSG_NACK_REASON_COUNT 8

/* receiver -> writer: this will not be scattered, now or ever. */
struct msg_nack {
    uint64_t flow;
    uint8_t scope; /* enum msg_nack_scope; FLOW: chunk and region are 0 */
    uint32_t chunk;
    struct msg_region region;
    uint8_t reason; /* enum msg_nack_reason */
};

/* "BAD_SIZE", ...; "?" for a number that is none. */
const char *msg_nack_reason_name(unsigned reason);

/* writer -> receiver: the flow has failed. */
struct msg_flow_cancel {
    uint64_t flow;
    bool clean;           /* no put of it ended with an error, none is under way */
    enum kvf_status code; /* negative */
};

/* writer -> receiver: the slice goes, or also goes, by another way than the bounce. */
struct msg_path_note {
    uint64_t rid;
    uint32_t tag; /* > 0 */
    uint32_t slice;
    uint8_t path; /* enum kvf_path */
};

#define MSG_CAP_ANSWERS_UNWRITTEN (UINT64_C(1) << 0)
#define MSG_CAP_HOLDS_FAILURE (UINT64_C(1) << 1)
#define MSG_CAP_CANCEL_HAS_RECEIVER (UINT64_C(1) << 2)
#define MSG_CAP_LOCAL_FENCE (UINT64_C(1) << 3)
#define MSG_CAP_QUIESCED (UINT64_C(1) << 4)
#define MSG_CAP_AUX_INLINE (UINT64_C(1) << 5)
#define MSG_CAPS_ALL UINT64_C(0x3f)

/* Parts of a HELLO that msg does not look into. Tags on the wire are 0x0001 + the number. */
enum msg_hello_part {
    MSG_HELLO_GEOMETRY,  /* the rank's cache record */
    MSG_HELLO_ADDRESSES, /* worker addresses */
    MSG_HELLO_WINDOWS,   /* page windows and keys */
    MSG_HELLO_BOUNCE,    /* bounce block; absent = off */
    MSG_HELLO_CEILINGS,  /* what the rank may ask for at once; absent = as much as the reader */
};
#define MSG_HELLO_PART_COUNT 5

struct msg_bytes {
    const uint8_t *bytes; /* NULL = absent; borrows */
    uint32_t len_bytes;
};

/*
 * Who a rank is: gathered at start, sent again after a reconnect. Identity is in the header. The
 * one gathered at start is sealed with seq 1 and does not count among the messages of a pair.
 */
struct msg_hello {
    uint8_t wire_version_min; /* <= max */
    uint8_t wire_version_max;
    uint8_t side; /* enum kvf_side */
    uint32_t pid;
    uint64_t host_hash;
    uint64_t capabilities; /* MSG_CAP_*; bits this release does not know are kept */
    struct msg_bytes parts[MSG_HELLO_PART_COUNT];
};

struct msg {
    struct msg_header header;
    union {
        struct msg_hello hello;
        struct msg_request_data request_data;
        struct msg_cancel_session cancel_session;
        struct msg_session_cancelled session_cancelled;
        struct msg_report report;
        struct msg_settled settled;
        struct msg_quiesced quiesced;
        struct msg_ping ping; /* and PONG */
        struct msg_bye bye;
        struct msg_want want;
        struct msg_grant grant;
        struct msg_data data;
        struct msg_ack ack;
        struct msg_nack nack;
        struct msg_flow_cancel flow_cancel;
        struct msg_path_note path_note;
    } u;
};

/* ---- encoding ------------------------------------------------------------------------------- */

/* Bytes that msg_encode() writes. */
size_t msg_size(const struct msg *msg);

/*
 * Bytes of the largest REQUEST_DATA with so many lists and slots: for buffers taken at open. All
 * other messages of the request level but HELLO fit into msg_size_max(0, 0), reports with their aux
 * included.
 */
size_t msg_size_max(uint32_t group_count, uint32_t block_count);

/*
 * Writes header and payload; header.type, source and epoch are the caller's, payload_bytes is
 * computed, seq and checksum stay 0 until msg_seal(). A message out of its ranges is a bug of the
 * caller (KVF_REQUIRE). Errors: E_TOO_LARGE (does not fit into max_bytes, or beyond 16 MiB).
 */
enum kvf_status msg_encode(const struct msg *msg, uint8_t *bytes, size_t max_bytes,
                           size_t *len_out);

/* Sets the sequence number and the checksum of an encoded message. */
void msg_seal(uint8_t *bytes, size_t len_bytes, uint64_t seq);

/* ---- decoding ------------------------------------------------------------------------------- */

/*
 * The frame alone (rule T9): length, magic, version, checksum. On KVF_OK source, epoch, type and
 * seq can be believed, and `len_bytes` is header + payload exactly; the type may be unknown.
 * Errors: E_TRUNCATED (length), E_DECODE (magic, version, epoch 0, seq 0), E_CHECKSUM: drop, count,
 * warn once.
 */
enum kvf_status msg_decode_header(const uint8_t *bytes, size_t len_bytes,
                                  struct msg_header *header_out);

/*
 * The header as it stands: length, magic and version are checked, the checksum is not. Nothing of
 * it can be believed yet; it tells whose channel shall judge the message. Errors: E_TRUNCATED,
 * E_DECODE.
 */
enum kvf_status msg_peek_header(const uint8_t *bytes, size_t len_bytes,
                                struct msg_header *header_out);

/*
 * Frame and payload. `msg_out` borrows from `bytes`. It is always written: zeroed, then as far as
 * could be read. A refused REQUEST_DATA whose u.request_data.tag is not 0 has its identity (rid,
 * tag, slice) and can be answered FAILED. `why_out` (may be NULL) gets a constant text, "" if good.
 * Errors: those of msg_decode_header(); E_UNSUPPORTED: unknown type, drop; E_DECODE: flag or
 * reserved bits set, or a payload that does not parse; E_PROTOCOL: a field out of its range;
 * E_TOO_LARGE: a count beyond its bound; E_LEGACY_REQUEST.
 */
enum kvf_status msg_decode(const uint8_t *bytes, size_t len_bytes, struct msg *msg_out,
                           const char **why_out);

/* As msg_decode(), of bytes that msg_decode_header() has found good: not summed up once more. */
enum kvf_status msg_decode_checked(const uint8_t *bytes, size_t len_bytes, struct msg *msg_out,
                                   const char **why_out);

#endif /* KVF_MSG_H */
