/*
 * bench_rung.c - see bench_rung.h. The fragments of a workload become the layers of a layout: one
 * key buffer a fragment of a block, with gaps where fragments must not join. So two ranks serve
 * every shape, a head split included, with the same bytes at the same distances.
 */
#include "bench_rung.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "content.h"
#include "launched.h"
#include "say.h"

#define RUNG_GAP_BYTES 64u
#define RUNG_CLOSE_MS 10000u
#define RUNG_DEADLINE_MS 120000u
#define RUNG_NAP_NS 10000     /* between two looks while nothing is measured */
#define RUNG_STEP_NS 10000000 /* the sender's engine: one sweep in an iteration of 10 ms */

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

static void rung_nap(long nap_ns)
{
    const struct timespec nap = {0, nap_ns};

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
            rung_nap(RUNG_NAP_NS);
        }
    }
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
    if (!launched_all(status == KVF_OK)) {
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

/*
 * Between two sweeps. With a progress thread the ranks nap: a core is the copier's while it copies,
 * and the engine must not take its time. Where the sender's engine steps the library, it does so
 * all the time: whatever it slept would count as the library's.
 */
static void rung_rest(const struct rung *rung)
{
    if (rung->caller && kvf_progress(rung->kvf) == KVF_OK) {
        return;
    }
    if (rung->rank != 0) {
        rung_nap(RUNG_NAP_NS);
    } else if (rung->caller) {
        sched_yield();
    } else {
        rung_nap(RUNG_STEP_NS);
    }
}

/* Sweeps until the request has had its last event. */
static bool rung_finish(struct rung *rung, uint64_t rid)
{
    double end_s = rung_now_s() + RUNG_DEADLINE_MS / 1e3;
    bool released = false;

    while (!released) {
        struct kvf_event events[8];
        size_t count = 0;
        enum kvf_status status = kvf_sweep(rung->kvf, rung->iteration, events, 8, &count);

        if (status < 0 || rung_now_s() > end_s) {
            say("bench copy: rank %d: request %llu does not end: %s", rung->rank,
                (unsigned long long)rid, kvf_status_text(status));
            return false;
        }
        rung->iteration += status == KVF_OK;
        for (size_t i = 0; i < count; i++) {
            if (events[i].kind == KVF_EVENT_FAILED || events[i].kind == KVF_EVENT_CANCELLED) {
                say("bench copy: rank %d: request %llu failed: %s", rung->rank,
                    (unsigned long long)rid, kvf_status_text(events[i].status));
                return false;
            }
            released = released || events[i].kind == KVF_EVENT_RELEASED;
        }
        if (count == 0) {
            rung_rest(rung);
        }
    }
    return true;
}

/* The sender's calls: all of the request is ready to be read. */
static enum kvf_status rung_send(struct rung *rung, uint64_t rid, const struct kvf_block_list *list)
{
    struct kvf_send_params send = KVF_SEND_PARAMS_INIT;
    struct kvf_window window = KVF_WINDOW_INIT;
    enum kvf_status status;

    send.rid = rid;
    send.prompt_tokens = list->count;
    send.destination.instance = 1;
    send.destination.dp_group = 0;
    send.list_count = 1;
    send.lists = list;
    status = kvf_send_open(rung->kvf, &send);
    return status == KVF_OK ? kvf_send_blocks(rung->kvf, rid, &window) : status;
}

/* The receiver's calls, from the clock's start to READY. */
static enum kvf_status rung_receive(struct rung *rung, uint64_t rid,
                                    const struct kvf_block_list *list, double *seconds_out)
{
    struct kvf_recv_params recv = KVF_RECV_PARAMS_INIT;
    struct kvf_event event = {0};
    double start_s = rung_now_s();
    enum kvf_status status;

    recv.rid = rid;
    recv.prompt_tokens = list->count;
    recv.source.instance = 0;
    recv.source.dp_group = 0;
    recv.list_count = 1;
    recv.lists = list;
    recv.synchronous = true;
    status = kvf_recv_open(rung->kvf, &recv);
    if (status == KVF_OK) {
        status = kvf_wait(rung->kvf, rid, RUNG_DEADLINE_MS, &event);
    }
    *seconds_out = rung_now_s() - start_s;
    if (status == KVF_OK && event.kind != KVF_EVENT_READY) {
        status = event.status;
    }
    return status;
}

/* One request. The sender has opened it before the receiver's clock starts. */
static bool rung_request(struct rung *rung, uint64_t rid, double *seconds_out)
{
    struct kvf_block_list list = {0, rung->stripe->pair_count, rung->slots};
    enum kvf_status status = KVF_OK;

    rung_barrier(rung);
    if (rung->rank == 0) {
        status = rung_send(rung, rid, &list);
    }
    rung_barrier(rung);
    if (rung->rank == 1) {
        status = rung_receive(rung, rid, &list, seconds_out);
    }
    if (status != KVF_OK) {
        say("bench copy: rank %d: request %llu fails: %s", rung->rank, (unsigned long long)rid,
            kvf_status_text(status));
        return false;
    }
    return rung_finish(rung, rid);
}

/*
 * A round: the loops, then two requests, of which the second counts: it finds page tables and pages
 * as the loops before it left theirs to each other, just used.
 */
static bool rung_round(struct rung *rung, uint32_t round, double *seconds_out)
{
    const struct bench_rung_params *params = rung->params;
    uint64_t rid = params->first_rid + 2 * (uint64_t)round;

    if (rung->rank == 0 && params->baseline != NULL && round > 0) {
        bench_baseline_round(params->baseline);
    }
    return rung_request(rung, rid, seconds_out) && rung_request(rung, rid + 1, seconds_out);
}

static bool rung_rounds(struct rung *rung, double *seconds_out)
{
    const struct bench_rung_params *params = rung->params;

    for (uint32_t round = 0; round <= params->rounds; round++) {
        double seconds = 0;
        bool fine = rung_round(rung, round, &seconds);

        if (fine && rung->rank == 1 && (round == 0 || round == params->rounds)) {
            uint64_t wrong = rung_content(rung, false);

            if (wrong > 0) {
                say("bench copy: %llu bytes are wrong", (unsigned long long)wrong);
                fine = false;
            }
        }
        if (!launched_all(fine)) {
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
    fine = launched_all(rung_layout(&rung));
    fine = fine && launched_all(rung_open(&rung));
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
    return launched_all(fine);
}
