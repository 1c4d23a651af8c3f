/*
 * tiny_engine.h - a small engine over the public calls: one model, pools filled with content that
 * is a function of its place, requests, and the comparison of every byte. For tests of the whole
 * library, over MPI or over fakes. Never includes mpi.h.
 */
#ifndef TINY_ENGINE_H
#define TINY_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#define TINY_LAYERS 4u
#define TINY_HEADS 4u
#define TINY_HEAD_DIM 8u
#define TINY_BLOCK 4u /* tokens */
#define TINY_POOLS_MAX 8u
#define TINY_AUX_BYTES 24u

struct tiny_params {
    uint32_t slots;  /* of each pool */
    bool registered; /* pools of the test's own memory, which cannot be mapped */
    bool aux;
    bool bridge;       /* ownership bridge */
    uint32_t heads;    /* 0 = TINY_HEADS */
    uint32_t head_dim; /* 0 = TINY_HEAD_DIM: another one does not fit other ranks */
    bool again;        /* a pool that cannot be taken is tried once more; else it stays NULL */
    void (*spoil)(struct kvf_layout *layout); /* before it is published; NULL = not */
};

/* One rank's engine. */
struct tiny_engine {
    struct tiny_params params;
    struct kvf *kvf;
    const struct kvf_topology *topology;
    struct kvf_rank rank;
    uint32_t layers_scratch[KVF_PP_MAX];
    struct kvf_place place;
    struct kvf_layout *layout;
    struct kvf_pool *pools[TINY_POOLS_MAX];
    void *own[TINY_POOLS_MAX]; /* registered memory */
    uint64_t iteration;
    uint8_t aux[64][TINY_AUX_BYTES]; /* received, by rid modulo 64 */
};

/* Layout, pools, publish. `kvf` is open; the engine does not close it. */
enum kvf_status tiny_open(struct tiny_engine *engine, struct kvf *kvf,
                          const struct kvf_topology *topology, const struct tiny_params *params);
/* After kvf_close(): the test's own memory. */
void tiny_close(struct tiny_engine *engine);

/*
 * Slots of a request: block b of every group lies in slot (first + b) on a context rank, and in the
 * reverse order from `first` on a generation rank.
 */
struct tiny_request {
    uint64_t rid;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t slot_first;
    bool synchronous;
};

/* Context: writes the content and opens; generation: clears and opens. */
enum kvf_status tiny_request_open(struct tiny_engine *engine, const struct tiny_request *request,
                                  struct kvf_end other);
/* Context: the whole is ready. */
enum kvf_status tiny_request_ready(struct tiny_engine *engine, uint64_t rid);

/* Bytes of the request's pages that are not as they should be; aux is compared too. */
uint64_t tiny_request_bad(struct tiny_engine *engine, const struct tiny_request *request);

/*
 * One look at the iteration under way: at most `max` events; returns how many. The next iteration
 * begins once this one is through. Aborts on a wrong status.
 */
uint32_t tiny_sweep(struct tiny_engine *engine, struct kvf_event *events_out, uint32_t max);

#endif /* TINY_ENGINE_H */
