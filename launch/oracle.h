/*
 * oracle.h - remembers what every byte of a rank's pools must be, and compares.
 *
 * A page is one slot of a group, in all pools of that group. It is in one of two states: known (its
 * bytes are those of its last owner, or the pattern of a page that never had one) or lent (a
 * transfer may be writing it: nothing is said of it). Round each page lie canaries: the bytes of a
 * slot that belong to no buffer, and the gap between slots. The first and the last slot of every
 * pool are guards that are never handed out.
 *
 * Pure but for the memory it compares. May include public headers. One thread.
 */
#ifndef LAUNCH_ORACLE_H
#define LAUNCH_ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>

#include "content.h"

#define ORACLE_CANARY_BYTES 64u
#define ORACLE_GUARDS 2u /* slots of a pool that are never handed out: its first and its last */
#define ORACLE_NOBODY UINT32_MAX
#define ORACLE_TEXT_BYTES 256

struct oracle;

struct oracle_params {
    const struct kvf_layout *layout; /* borrows: as long as the oracle; strides as allocated */
    const struct kvf_model *model;   /* borrows: as long as the oracle */
    struct content_place place;
    uint8_t *const *bases;       /* [pools] slot 0 */
    const uint64_t *group_slots; /* [groups] slots of each of the group's pools, guards included */
};

/* Whose bytes a page holds. */
struct oracle_owner {
    uint32_t job; /* the caller's number, ORACLE_NOBODY = never had one */
    uint32_t ordinal;
    uint64_t key;
};

enum oracle_what { ORACLE_CONTENT, ORACLE_CANARY };

/* The first wrong byte of a page. */
struct oracle_bad {
    enum oracle_what what;
    struct oracle_owner owner; /* whose page it is */
    uint32_t group, slot, pool;
    uint32_t layer, role, head, token; /* ORACLE_CONTENT */
    uint64_t offset;                   /* in the slot */
    uint8_t want, got;
};

/* Stride to allocate for a slot of so many bytes: room for a canary, on a line. */
uint64_t oracle_stride(uint64_t slot_bytes);

/*
 * Fills all pages with the pattern of pages without owner, and all canaries. NULL: text_out
 * (ORACLE_TEXT_BYTES long) says why: no memory, or a layout that is not what the model and the
 * rank's place give. Gives: oracle_close().
 */
struct oracle *oracle_open(const struct oracle_params *params, char *text_out);

/* NULL is fine. */
void oracle_close(struct oracle *oracle);

/* Bytes of one page of a group over its pools. */
uint64_t oracle_page_bytes(const struct oracle *oracle, uint32_t group);

/* Writes the owner's bytes into the page: known. */
void oracle_fill(struct oracle *oracle, uint32_t group, uint32_t slot,
                 const struct oracle_owner *owner);

/* Gives the page the pattern of one without owner: known. */
void oracle_stamp(struct oracle *oracle, uint32_t group, uint32_t slot);

/* A transfer may write it from now on: lent. */
void oracle_lend(struct oracle *oracle, uint32_t group, uint32_t slot);

/* A transfer should have brought the owner's bytes: known. */
void oracle_expect(struct oracle *oracle, uint32_t group, uint32_t slot,
                   const struct oracle_owner *owner);

/*
 * Compares the page (canaries only while it is lent). Returns how many bytes are wrong; with some,
 * bad_out is the first one, and the page is set right so that they are counted once.
 */
uint64_t oracle_check(struct oracle *oracle, uint32_t group, uint32_t slot,
                      struct oracle_bad *bad_out);

#endif /* LAUNCH_ORACLE_H */
