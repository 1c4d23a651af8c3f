/*
 * plan_digest.h - the digest of one write, in bounded steps: what the self check compares. Pure.
 *
 * Both sides walk the stripes of the same plan in the same order (docs/protocol.md, field 0x0201):
 * the parts are sums of XXH64(bytes of fragment i, seed i), whatever the steps.
 *
 * May include base and pure code.
 */
#ifndef KVF_PLAN_DIGEST_H
#define KVF_PLAN_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "msg.h"
#include "plan.h"
#include "wire.h"

struct plan_digest {
    struct plan_walk walk;
    bool sources;         /* else the destinations are read */
    uint64_t fragments;   /* of the write */
    uint64_t at;          /* number of the fragment below */
    const uint8_t *bytes; /* what is left of it: borrows the pages */
    uint64_t left_bytes;
    struct wire_hash hash; /* of what of it was read */
    uint16_t part_count;
    uint64_t parts[MSG_CHECK_PARTS_MAX];
};

/* Fragments of a write. */
uint64_t plan_digest_fragments(const struct stripe *stripes, uint32_t count);

/*
 * Begins. Borrows the stripes, with their bases and pairs, and the pages of the side that is read,
 * until the last step. A write without fragments has no parts and ends with the first step.
 */
void plan_digest_init(struct plan_digest *digest, const struct stripe *stripes, uint32_t count,
                      bool sources);

/*
 * Reads at most *budget_bytes and takes what it read from them; a fragment may be cut anywhere.
 * True once all is read: `parts` [part_count] are then complete.
 */
bool plan_digest_step(struct plan_digest *digest, uint64_t *budget_bytes);

#endif /* KVF_PLAN_DIGEST_H */
