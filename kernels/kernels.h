/*
 * kernels.h - run the stripes of a plan: the copies between the pages of two pools.
 *
 * The host calls run on the calling thread and have ended when they return; calls that queue on a
 * stream end in `_queue` and have a host twin here. Source and destination never overlap, and no
 * byte of the destination is named twice. What is copied is given: nothing here decides.
 *
 * Any thread may copy, each with a cursor of its own. Nothing allocates, fails or logs. May include
 * kvf_status.h and stripe.h only.
 */
#ifndef KVF_KERNELS_H
#define KVF_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kvferry/kvf_status.h"
#include "stripe.h"

/* A step for a thread with other duties: 15-60 us, so that no heartbeat waits for a copy. */
#define COPY_STEP_BYTES ((uint64_t)256 << 10)

/*
 * A position in a list of stripes. The caller's storage, no fini: drop it at any time between two
 * steps. Order: stripes, then pairs, then bases, then pieces (both sides walk through a slot).
 *
 * Invariants:
 *   1. stripe_at <= stripe_count, and at stripe_count all other positions are 0.
 *   2. Else pair_at, base_at, piece_at are below the counts of stripe stripe_at and offset_bytes
 *      is below its piece_bytes.
 *   3. left_bytes is the sum of what lies behind the position.
 */
struct copy_cursor {
    const struct stripe *stripes; /* borrows: until the copy has ended or is dropped */
    uint32_t stripe_count;
    uint32_t stripe_at;
    uint32_t pair_at;
    uint32_t base_at;
    uint32_t piece_at;
    uint64_t offset_bytes; /* inside the fragment */
    uint64_t left_bytes;
};

/*
 * Puts the cursor before the first byte. Borrows the stripes with their bases and pairs until the
 * last step. Stripes without bases, pairs or pieces are fine, and so is count 0 with stripes NULL.
 * Addresses of host memory that this thread can load from (src) and store to (dst).
 */
void copy_cursor_init(struct copy_cursor *cursor, const struct stripe *stripes, uint32_t count);

/* True when the invariants hold. For tests: walks over all stripes. */
bool copy_cursor_check(const struct copy_cursor *cursor);

/*
 * Copies at most bytes_max bytes (exactly that many unless the end comes first; a fragment may be
 * cut anywhere) and returns true once nothing is left. Further calls then do nothing.
 *
 * When it returns, all stores of the step are ordered before all later stores of this thread, also
 * the streaming ones (it ends with a store fence): a report may leave after the last step, and a
 * copy dropped between two steps writes nothing late.
 */
bool copy_host_step(struct copy_cursor *cursor, uint64_t bytes_max);

/* The whole list in one call. */
void copy_host_run(const struct stripe *stripes, uint32_t count);

/* Instruction sets that copy_host has a variant for, in the order in which it prefers the later. */
enum copy_host_isa {
    COPY_HOST_PORTABLE,
    COPY_HOST_SSE2,
    COPY_HOST_AVX2,
    COPY_HOST_AVX512,
};
enum { COPY_HOST_ISA_COUNT = 4 };

/* The variant in use: the best of this CPU, found at first use, or what copy_host_isa_set chose. */
enum copy_host_isa copy_host_isa_get(void);

/*
 * Forces one variant for all copies of the process that start later; for tests and benches.
 * KVF_E_UNSUPPORTED when this CPU or build lacks it: the old one stays.
 */
enum kvf_status copy_host_isa_set(enum copy_host_isa isa);

/*
 * Whether fragments to come are prefetched: what pays on this CPU, or what was set for all copies
 * that start later (for tests and benches). The bytes are the same either way.
 */
bool copy_host_ahead_get(void);
void copy_host_ahead_set(bool ahead);

/* "portable", "sse2", "avx2", "avx512". */
const char *copy_host_isa_name(enum copy_host_isa isa);

/* ---- staging -------------------------------------------------------------------------------- */

/* Where fragments begin in staging: what the bounce packs by (docs/geometry.md, section 11.1). */
#define STAGE_ALIGN ((uint64_t)32)

/*
 * Fragments [first, first + count) of a stripe, in the order of a cursor, and their place in
 * staging: fragment first + i lies at staging + i * stage_step(). Between two spans the caller
 * leaves what room it likes.
 */
struct stage_span {
    const struct stripe *stripe; /* borrows: until the copy has ended */
    uint64_t first;
    uint64_t count;   /* first + count <= stripe_fragments() */
    uint64_t staging; /* address; sums do not look at it */
};

/* Bytes from fragment to fragment in staging: piece_bytes, rounded up to STAGE_ALIGN. */
uint64_t stage_step(const struct stripe *stripe);

/* Bytes that the span takes in staging, without padding after the last fragment; 0 when empty. */
uint64_t stage_bytes(const struct stage_span *span);

/*
 * From the source pages of the spans into staging, and from staging into their destination pages.
 * Padding is neither read nor written. Ends with a store fence, as copy_host_step() does.
 */
void stage_host_gather(const struct stage_span *spans, uint32_t count);
void stage_host_scatter(const struct stage_span *spans, uint32_t count);

/*
 * A sum of the bytes of all fragments, of the sources or of the destinations: equal lists of equal
 * bytes give equal sums, whatever the slots and strides. It depends on where in the list a byte
 * stands, not on the order in which bytes are read: the device's twin adds in any order. It finds
 * faults, not forgers.
 */
uint64_t stage_host_sum(const struct stripe *stripes, uint32_t count, bool sources);

#endif /* KVF_KERNELS_H */
