/*
 * content.h - what every byte of a cache must be: a function of (key, global layer, role, global
 * head or unit, token, 8-byte word). The key stands for the request, or for a hash block that
 * requests share.
 *
 * Where a buffer's bytes come from the model-wide facts and the rank's place, by the formulas of
 * docs/geometry.md, section 2, written here once more and independent of the library, whose own
 * answer is what is being checked.
 *
 * Pure. May include public headers.
 */
#ifndef LAUNCH_CONTENT_H
#define LAUNCH_CONTENT_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>

/* Keys never meet: what they stand for is mixed in. */
enum content_kind {
    CONTENT_REQUEST, /* id = request id */
    CONTENT_HASH,    /* id = hash id of the trace */
    CONTENT_VIRGIN,  /* id = a number of the page: never held a request */
};
uint64_t content_key(enum content_kind kind, uint64_t id);

/* One buffer as cells: cells are rows of bytes that one (head or unit, token) owns. */
struct content_shape {
    enum kvf_view_kind kind;
    uint32_t layer;
    uint32_t role;
    uint32_t tokens;     /* rows along the tokens; 1 for states, or when a row is no whole bytes */
    uint32_t block;      /* tokens a block: the token of a row is ordinal * block + row */
    uint32_t heads;      /* rows along heads or units */
    uint32_t head_first; /* global number of the first one */
    uint64_t row_bytes;  /* HND, NHD, REPLICATED, UNITS */
    uint32_t sections;   /* SECTIONS: rows of their own sizes */
    uint64_t section_bytes[KVF_VIEW_SECTIONS_MAX]; /* this rank's part */
    uint64_t section_first[KVF_VIEW_SECTIONS_MAX]; /* its first byte in the model-wide section */
    uint64_t bytes;                                /* of the whole buffer */
};

/* The rank's width and index inside its dp group. */
struct content_place {
    uint32_t width; /* t */
    uint32_t index; /* i */
};

/* Width and index of a rank. */
struct content_place content_place_of(const struct kvf_place *place);

/* False: this layer has no such buffer, or it cannot be spread over the ranks. */
bool content_shape_make(const struct kvf_model *model, uint32_t layer, enum kvf_role_kind role,
                        struct content_place place, struct content_shape *shape_out);

/* Writes a whole buffer of the block with this ordinal. */
void content_fill(const struct content_shape *shape, uint64_t key, uint32_t ordinal, void *buffer);

/* The first byte that is wrong. */
struct content_bad {
    uint64_t offset; /* in the buffer */
    uint32_t head;   /* global head, unit or section */
    uint32_t token;
    uint8_t want;
    uint8_t got;
};

/* Compares a whole buffer; returns how many bytes differ; bad_out is set when some do. */
uint64_t content_check(const struct content_shape *shape, uint64_t key, uint32_t ordinal,
                       const void *buffer, struct content_bad *bad_out);

/*
 * Plain runs of bytes (aux buffers, canaries): bytes [first, first + count) of the run of `base`.
 */
void content_run_fill(uint64_t base, uint64_t first, uint64_t count, void *bytes);
uint64_t content_run_check(uint64_t base, uint64_t first, uint64_t count, const void *bytes);
uint8_t content_run_byte(uint64_t base, uint64_t offset);

#endif /* LAUNCH_CONTENT_H */
