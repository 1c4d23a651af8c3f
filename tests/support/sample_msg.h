/*
 * sample_msg.h - at least one good message of every type, for tests of whatever takes messages.
 */
#ifndef KVF_TEST_SAMPLE_MSG_H
#define KVF_TEST_SAMPLE_MSG_H

#include <stddef.h>
#include <stdint.h>

#include "msg.h"

#define SAMPLE_MSG_BYTES_MAX 512u /* of every sample, encoded */
#define SAMPLE_MSG_EPOCH UINT64_C(0x1122334455667788)

unsigned sample_msg_count(void);

/* Sample `index`; borrows constant storage. */
void sample_msg(unsigned index, struct msg *msg_out);

/* The first sample of that type. */
unsigned sample_msg_index(enum msg_type type);

/* Encodes and seals; returns the length. */
size_t sample_msg_encode(const struct msg *msg, uint64_t seq, uint8_t *bytes, size_t max_bytes);

/*
 * Encodes a decoded message again: its lists are copied into `lists` [MSG_GROUPS_MAX], `slots`
 * [slots_max] and the cancel's slices into `slots`. Returns the length, 0 when it does not fit.
 */
size_t sample_msg_again(struct msg *msg, struct kvf_block_list *lists, uint32_t *slots,
                        uint32_t slots_max, uint8_t *bytes, size_t max_bytes);

#endif /* KVF_TEST_SAMPLE_MSG_H */
