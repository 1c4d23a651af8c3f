/*
 * bench_rung.c - see bench_rung.h. The fragments of a workload become the layers of a layout: one
 * key buffer a fragment of a block, with gaps where fragments must not join. So two ranks serve
 * every shape, a head split included, with the same bytes at the same distances.
 */
#include "bench_rung.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "content.h"
#include "say.h"

#define RUNG_GAP_BYTES 64u
#define RUNG_CLOSE_MS 10000u
#define RUNG_DEADLINE_S 120.0
#define RUNG_NAP_NS 10000

struct rung {
    const struct bench_rung_params *params;
    const struct stripe *stripe;
    int rank;
    struct kvf_topology *topology;
    struct kvf *kvf;
    struct kvf_pool *pool;
    uint8_t *base;
    bool caller;
    uint64_t iteration;
    uint32_t layer_count;
    uint32_t *layers;
    struct kvf_entry *entries;
    uint32_t *slots;
    struct kvf_pool_shape shape;
    struct kvf_view view;
    struct kvf_group group;
    struct kvf_layout layout;
    uint32_t layers_per_pp;
};

static double rung_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void rung_nap(void)
{
    static const struct timespec nap = {0, RUNG_NAP_NS};

    nanosleep(&nap, NULL);
}

/* Waits for the other rank without taking a core from it. */
static void rung_barrier(const struct rung *rung)
{
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (;;) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) {
            return;
        }
        if (rung->kvf == NULL || !rung->caller || kvf_progress(rung->kvf) != KVF_OK) {
            rung_nap();
        }
    }
}

static bool rung_agree(bool fine)
{
    int mine = fine ? 1 : 0;
    int all = 0;

    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all == 1;
}

/* This rank's side of the workload as a layout. */
static bool rung_layout(struct rung *rung)
{
    const struct stripe *stripe = rung->stripe;
    uint64_t step = rung->rank == 0 ? stripe->src_piece_stride : stripe->dst_piece_stride;

    rung->layer_count = stripe->base_count * stripe->piece_count;
    rung->layers = calloc(rung->layer_count, sizeof(*rung->layers));
    rung->entries = calloc(rung->layer_count, sizeof(*rung->entries));
    rung->slots = calloc(stripe->pair_count, sizeof(*rung->slots));
    if (rung->layers == NULL || rung->entries == NULL || rung->slots == NULL) {
        return false;
    }
    if (stripe->base_count > 1) {
        step += RUNG_GAP_BYTES;
    }
    for (uint32_t l = 0; l < rung->layer_count; l++) {
        rung->layers[l] = l;
        rung->entries[l].layer = l;
        rung->entries[l].role = KVF_KEY;
        rung->entries[l].offset = l * step;
        rung->entries[l].size = stripe->piece_bytes;
    }
    for (uint32_t i = 0; i < stripe->pair_count; i++) {
        rung->slots[i] = rung->rank == 0 ? stripe->pairs[i].src : stripe->pairs[i].dst;
    }
    rung->shape.slot_bytes = step * rung->layer_count;
    rung->shape.slot_stride = rung->shape.slot_bytes;
    rung->view.kind = KVF_VIEW_HND;
    rung->view.has_heads = rung->view.has_heads_total = true;
    rung->view.heads = rung->view.heads_total = 1;
    rung->view.role_count = 1;
    rung->view.roles[0] = KVF_KEY;
    rung->view.entry_count = rung->layer_count;
    rung->view.entries = rung->entries;
    rung->group.group_class = KVF_GROUP_PAGED;
    rung->group.layer_count = rung->layer_count;
    rung->group.layers = rung->layers;
    rung->group.view_count = 1;
    rung->group.views = &rung->view;
    rung->layout.tokens_per_block = 1;
    rung->layout.kv_heads = 1;
    rung->layout.head_dim = (uint32_t)stripe->piece_bytes;
    rung->layout.elem_bits = 8;
    rung->layout.pool_count = 1;
    rung->layout.pools = &rung->shape;
    rung->layout.group_count = 1;
    rung->layout.groups = &rung->group;
    return true;
}

static bool rung_open(struct rung *rung)
{
    struct kvf_open_params open = KVF_OPEN_PARAMS_INIT;
    struct kvf_pool_params pool = KVF_POOL_PARAMS_INIT;
    enum kvf_status status;
    char text[256];

    snprintf(text, sizeof(text), "ctx layers=%u; gen layers=%u", rung->layer_count,
             rung->layer_count);
    if (kvf_topology_parse(text, &rung->topology, text, sizeof(text)) != KVF_OK) {
        say("bench copy: %s", text);
        return false;
    }
    snprintf(text, sizeof(text), "all:\n  path: %s\n  progress: %s\n  log_level: warn\n",
             rung->params->path, rung->params->progress);
    open.topology = rung->topology;
    open.settings_text = text;
    open.requests_max = 4;
    open.blocks_max = rung->stripe->pair_count * 2;
    status = kvf_open_mpi(MPI_COMM_WORLD, &open, &rung->kvf);
    if (status != KVF_OK) {
        say("bench copy: cannot open: %s", kvf_status_text(status));
        return false;
    }
    pool.slot_bytes = rung->shape.slot_bytes;
    pool.slots = rung->stripe->pair_count;
    status = kvf_pool_alloc(rung->kvf, &pool, &rung->pool);
    if (!rung_agree(status == KVF_OK)) {
        say("bench copy: no pool of %llu MiB: %s",
            (unsigned long long)(pool.slot_bytes * pool.slots >> 20), kvf_status_text(status));
        return false;
    }
    rung->base = kvf_pool_base(rung->pool);
    status = kvf_publish(rung->kvf, &rung->layout, &rung->pool);
    if (status != KVF_OK) {
        say("bench copy: cannot connect: %s", kvf_status_text(status));
    }
    rung->caller = status == KVF_OK && kvf_progress(rung->kvf) != KVF_E_STATE;
    return status == KVF_OK;
}

/* Writes (sender) or compares (receiver) every fragment; returns how many bytes are wrong. */
static uint64_t rung_content(const struct rung *rung, bool write)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < rung->stripe->pair_count; i++) {
        uint8_t *slot = rung->base + rung->slots[i] * rung->shape.slot_stride;

        for (uint32_t l = 0; l < rung->layer_count; l++) {
            uint64_t key = content_key(CONTENT_REQUEST, ((uint64_t)i << 20) + l);
            const struct kvf_entry *entry = &rung->entries[l];

            if (write) {
                content_run_fill(key, 0, entry->size, slot + entry->offset);
            } else {
                wrong += content_run_check(key, 0, entry->size, slot + entry->offset);
            }
        }
    }
    return wrong;
}

/* Sweeps until the request has had its last event; ready_out is the time of READY. */
static bool rung_finish(struct rung *rung, uint64_t rid, double *ready_out)
{
    double start_s = rung_now_s();
    bool released = false;

    while (!released) {
        struct kvf_event events[8];
        size_t count = 0;
        enum kvf_status status = kvf_sweep(rung->kvf, rung->iteration, events, 8, &count);

        if (status < 0 || rung_now_s() - start_s > RUNG_DEADLINE_S) {
            say("bench copy: rank %d: request %llu does not end: %s", rung->rank,
                (unsigned long long)rid, kvf_status_text(status));
            return false;
        }
        rung->iteration += status == KVF_OK;
        for (size_t i = 0; i < count; i++) {
            if (events[i].kind == KVF_EVENT_READY) {
                *ready_out = rung_now_s();
            } else if (events[i].kind == KVF_EVENT_FAILED ||
                       events[i].kind == KVF_EVENT_CANCELLED) {
                say("bench copy: rank %d: request %llu failed: %s", rung->rank,
                    (unsigned long long)rid, kvf_status_text(events[i].status));
                return false;
            }
            released = released || events[i].kind == KVF_EVENT_RELEASED;
        }
        if (count == 0 && (!rung->caller || kvf_progress(rung->kvf) != KVF_OK)) {
            rung_nap();
        }
    }
    return true;
}

/* One request. The sender has opened it before the receiver's clock starts. */
static bool rung_request(struct rung *rung, uint64_t rid, double *seconds_out)
{
    struct kvf_block_list list = {0, rung->stripe->pair_count, rung->slots};
    enum kvf_status status = KVF_OK;
    double start_s = 0, ready_s = 0;

    rung_barrier(rung);
    if (rung->rank == 0) {
        struct kvf_send_params send = KVF_SEND_PARAMS_INIT;
        struct kvf_window window = KVF_WINDOW_INIT;

        send.rid = rid;
        send.prompt_tokens = rung->stripe->pair_count;
        send.destination.instance = 1;
        send.destination.dp_group = 0;
        send.list_count = 1;
        send.lists = &list;
        status = kvf_send_open(rung->kvf, &send);
        if (status == KVF_OK) {
            status = kvf_send_blocks(rung->kvf, rid, &window);
        }
    }
    rung_barrier(rung);
    if (rung->rank == 1) {
        struct kvf_recv_params recv = KVF_RECV_PARAMS_INIT;

        recv.rid = rid;
        recv.prompt_tokens = rung->stripe->pair_count;
        recv.source.instance = 0;
        recv.source.dp_group = 0;
        recv.list_count = 1;
        recv.lists = &list;
        start_s = rung_now_s();
        status = kvf_recv_open(rung->kvf, &recv);
    }
    if (status != KVF_OK) {
        say("bench copy: rank %d: request %llu cannot be opened: %s", rung->rank,
            (unsigned long long)rid, kvf_status_text(status));
        return false;
    }
    if (!rung_finish(rung, rid, &ready_s)) {
        return false;
    }
    *seconds_out = ready_s - start_s;
    return true;
}

static bool rung_rounds(struct rung *rung, double *seconds_out)
{
    const struct bench_rung_params *params = rung->params;

    for (uint32_t round = 0; round <= params->rounds; round++) {
        double seconds = 0;
        bool fine;

        if (rung->rank == 0 && params->baseline != NULL && round > 0) {
            bench_baseline_round(params->baseline);
        }
        fine = rung_request(rung, params->first_rid + round, &seconds);
        if (fine && rung->rank == 1 && (round == 0 || round == params->rounds)) {
            uint64_t wrong = rung_content(rung, false);

            if (wrong > 0) {
                say("bench copy: %llu bytes are wrong", (unsigned long long)wrong);
                fine = false;
            }
        }
        if (!rung_agree(fine)) {
            return false;
        }
        if (round > 0) {
            seconds_out[round - 1] = seconds;
        }
    }
    MPI_Bcast(seconds_out, (int)params->rounds, MPI_DOUBLE, 1, MPI_COMM_WORLD);
    return true;
}

bool bench_rung_measure(const struct bench_rung_params *params, double *seconds_out)
{
    struct rung rung = {.params = params, .stripe = &params->work->stripe};
    bool fine;

    MPI_Comm_rank(MPI_COMM_WORLD, &rung.rank);
    fine = rung_agree(rung_layout(&rung));
    fine = fine && rung_agree(rung_open(&rung));
    if (fine && rung.rank == 0) {
        rung_content(&rung, true);
    }
    fine = fine && rung_rounds(&rung, seconds_out);
    if (kvf_close(rung.kvf, RUNG_CLOSE_MS) != KVF_OK) {
        say("bench copy: rank %d: closed with something left over", rung.rank);
        fine = false;
    }
    kvf_topology_free(rung.topology);
    free(rung.layers);
    free(rung.entries);
    free(rung.slots);
    return rung_agree(fine);
}
