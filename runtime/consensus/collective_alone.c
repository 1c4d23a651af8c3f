/*
 * collective_alone.c - the collective of a group of one rank: what it gives is what it gets. Calls
 * nothing.
 */
#include <string.h>

#include "check.h"
#include "consensus/collective.h"

struct alone {
    struct collective table;
    const struct kvf_heap *heap;
    bool started;
    uint8_t bytes[]; /* [len_max_bytes] */
};

static enum kvf_status alone_start(void *self, uint32_t slot, const void *bytes, size_t len_bytes)
{
    struct alone *alone = self;

    KVF_REQUIRE(slot == 0 && len_bytes <= alone->table.len_max_bytes);
    memcpy(alone->bytes, bytes, len_bytes);
    alone->started = true;
    return KVF_OK;
}

static enum kvf_status alone_test(void *self, uint32_t slot)
{
    const struct alone *alone = self;

    KVF_REQUIRE(slot == 0 && alone->started);
    return KVF_OK;
}

static const uint8_t *alone_result(void *self, uint32_t slot)
{
    (void)slot;
    return ((struct alone *)self)->bytes;
}

static void alone_tell(void *self, const uint8_t word[COLLECTIVE_WORD_BYTES])
{
    (void)self;
    (void)word;
}

static bool alone_hear(void *self, uint8_t word_out[COLLECTIVE_WORD_BYTES])
{
    (void)self;
    (void)word_out;
    return false;
}

static void alone_rest(void *self, uint32_t times)
{
    (void)self;
    (void)times;
}

static void alone_abandon(void *self)
{
    (void)self;
}

static void alone_close(void *self)
{
    struct alone *alone = self;

    kvf_release(alone->heap, alone);
}

enum kvf_status collective_alone_open(const struct kvf_heap *heap, size_t len_max_bytes,
                                      struct collective **collective_out)
{
    struct alone *alone = kvf_alloc(heap, 1, sizeof(*alone) + len_max_bytes);

    if (alone == NULL)
        return KVF_E_NOMEM;
    alone->heap = heap;
    alone->table = (struct collective){
        .size = sizeof(alone->table),
        .self = alone,
        .rank_count = 1,
        .slots = 1,
        .len_max_bytes = len_max_bytes,
        .start = alone_start,
        .test = alone_test,
        .result = alone_result,
        .tell = alone_tell,
        .hear = alone_hear,
        .rest = alone_rest,
        .abandon = alone_abandon,
        .close = alone_close,
    };
    *collective_out = &alone->table;
    return KVF_OK;
}
