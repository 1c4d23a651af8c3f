/*
 * msg_internal.h - what the files of msg share. Only msg*.c may include it.
 */
#ifndef KVF_MSG_INTERNAL_H
#define KVF_MSG_INTERNAL_H

#include "msg.h"

/* One decoding: the first refusal stands. */
struct msg_decoder {
    struct wire_reader reader;
    const struct msg_header *header;
    enum kvf_status status;
    const char *why;
};

void msg_refuse(struct msg_decoder *decoder, enum kvf_status status, const char *why);
/* The condition is about fields that were read: a cut payload is refused as such first. */
bool msg_demand(struct msg_decoder *decoder, bool holds, enum kvf_status status, const char *why);
bool msg_demand_end(struct msg_decoder *decoder);
bool msg_get_bool(struct msg_decoder *decoder);
enum kvf_status msg_get_code(struct msg_decoder *decoder);
void msg_put_code(struct wire_writer *writer, enum kvf_status code);

/* msg_bounce.c: payloads of the types from MSG_TYPE_BOUNCE_FIRST on. */
void msg_put_bounce(struct wire_writer *writer, const struct msg *msg);
void msg_get_bounce(struct msg_decoder *decoder, struct msg *msg);

#endif /* KVF_MSG_INTERNAL_H */
