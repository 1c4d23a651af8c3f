/*
 * bounce_recv.c - see bounce_recv.h: flows, grants, timers. Regions and jobs are in
 * bounce_recv_job.c.
 */
#include "xfer/bounce_recv_internal.h"

#include <string.h>

#include "check.h"
#include "wire.h"
#include "xfer/bounce_pack.h"

/* ---- open ----------------------------------------------------------------------------------- */

uint64_t bounce_recv_runs_bytes(uint64_t chunk_bytes)
{
    uint64_t pieces = bounce_pieces_max(chunk_bytes);
    uint64_t bytes = RECV_RUNS_GRANULE;

    if (pieces > chunk_bytes / BOUNCE_PACK_ALIGN + 1)
        pieces = chunk_bytes / BOUNCE_PACK_ALIGN + 1;
    while (bytes < pieces * MSG_RUN_BYTES)
        bytes *= 2;
    return bytes;
}

static bool params_are_good(const struct bounce_recv_params *params)
{
    return params->world_size > 0 && params->flows_max > 0 && params->jobs_max > 0 &&
           params->sizes_max > 0 && params->sizes_max <= UINT32_MAX / 2 && params->window > 0 &&
           params->arena != NULL && params->chunk_bytes > 0 && params->timeout_ns > 0 &&
           params->chunk_bytes <= UINT32_MAX &&
           params->chunk_bytes <= arena_counts(params->arena)->usable_bytes &&
           params->runs_bytes >= bounce_recv_runs_bytes(params->chunk_bytes) &&
           params->pages.inside != NULL;
}

static enum kvf_status open_tables(struct bounce_recv *recv)
{
    const struct bounce_recv_params *params = &recv->params;
    uint32_t pages = params->sizes_max / RECV_PAGE_SIZES + 1 + params->flows_max;
    const struct kvf_heap *heap = recv->heap;

    recv->bucket_count = 16;
    while (recv->bucket_count < params->flows_max)
        recv->bucket_count *= 2;
    recv->flows = kvf_alloc(heap, params->flows_max, sizeof(*recv->flows));
    recv->jobs = kvf_alloc(heap, params->jobs_max, sizeof(*recv->jobs));
    recv->pages = kvf_alloc(heap, pages, sizeof(*recv->pages));
    recv->peers = kvf_alloc(heap, params->world_size, sizeof(*recv->peers));
    recv->buckets = kvf_alloc(heap, recv->bucket_count, sizeof(*recv->buckets));
    recv->runs = kvf_alloc(heap, params->runs_bytes, 1);
    if (recv->flows == NULL || recv->jobs == NULL || recv->pages == NULL || recv->peers == NULL ||
        recv->buckets == NULL || recv->runs == NULL)
        return KVF_E_NOMEM;
    for (uint32_t b = 0; b < recv->bucket_count; b++)
        list_init(&recv->buckets[b]);
    for (uint32_t f = 0; f < params->flows_max; f++)
        list_push(&recv->unused_flows, &recv->flows[f].bucket);
    for (uint32_t j = 0; j < params->jobs_max; j++)
        list_push(&recv->unused_jobs, &recv->jobs[j].link);
    for (uint32_t p = 0; p < pages; p++)
        list_push(&recv->unused_pages, &recv->pages[p].link);
    recv->unused_page_count = pages;
    return arena_open(heap, params->runs_bytes, RECV_RUNS_GRANULE, &recv->runs_arena);
}

enum kvf_status bounce_recv_open(const struct kvf_heap *heap,
                                 const struct bounce_recv_params *params,
                                 struct bounce_recv **recv_out)
{
    struct bounce_recv *recv;
    enum kvf_status status;

    if (!params_are_good(params))
        return KVF_E_INVAL;
    recv = kvf_alloc(heap, 1, sizeof(*recv));
    if (recv == NULL)
        return KVF_E_NOMEM;
    recv->heap = heap;
    recv->params = *params;
    list_init(&recv->unused_flows);
    list_init(&recv->unused_jobs);
    list_init(&recv->unused_pages);
    list_init(&recv->by_time);
    list_init(&recv->flowless);
    credit_init(&recv->credit, params->window);
    status = open_tables(recv);
    if (status != KVF_OK) {
        bounce_recv_close(recv);
        return status;
    }
    *recv_out = recv;
    return KVF_OK;
}

void bounce_recv_close(struct bounce_recv *recv)
{
    if (recv == NULL)
        return;
    arena_close(recv->runs_arena);
    kvf_release(recv->heap, recv->runs);
    kvf_release(recv->heap, recv->buckets);
    kvf_release(recv->heap, recv->peers);
    kvf_release(recv->heap, recv->pages);
    kvf_release(recv->heap, recv->jobs);
    kvf_release(recv->heap, recv->flows);
    kvf_release(recv->heap, recv);
}

/* ---- what is given out ---------------------------------------------------------------------- */

void bounce_recv_log(struct recv_step *step, uint32_t peer, const struct bounce_log *log)
{
    const struct bounce_recv_action action = {
        .kind = BOUNCE_RECV_ACT_LOG, .peer = peer, .rid = log->rid, .u.log = *log};

    step->out->emit(step->out->self, &action);
}

void recv_nack(struct recv_step *step, uint32_t peer, const struct msg_nack *nack)
{
    struct bounce_recv_action action = {.kind = BOUNCE_RECV_ACT_MESSAGE, .peer = peer};

    action.u.msg.header.type = MSG_NACK;
    action.u.msg.u.nack = *nack;
    step->recv->counts.nacks++;
    step->out->emit(step->out->self, &action);
}

static void nack_flow(struct recv_step *step, uint32_t peer, uint64_t flow,
                      enum msg_nack_reason reason)
{
    recv_nack(step, peer,
              &(struct msg_nack){.flow = flow, .scope = MSG_NACK_FLOW, .reason = (uint8_t)reason});
}

/* ---- flows ---------------------------------------------------------------------------------- */

static struct list *bucket_of(const struct bounce_recv *recv, uint32_t peer, uint64_t id)
{
    uint64_t mixed = (id + peer) * UINT64_C(0x9e3779b97f4a7c15);

    return &recv->buckets[(mixed >> 32) & (recv->bucket_count - 1)];
}

static struct bounce_recv_flow *flow_find(const struct bounce_recv *recv, uint32_t peer,
                                          uint64_t id)
{
    struct list *bucket = bucket_of(recv, peer, id);

    for (struct list *node = list_first(bucket); node != NULL; node = list_after(bucket, node)) {
        struct bounce_recv_flow *flow = list_object(node, struct bounce_recv_flow, bucket);

        if (flow->id == id && flow->peer == peer)
            return flow;
    }
    return NULL;
}

void recv_flow_progress(struct recv_step *step, struct bounce_recv_flow *flow)
{
    flow->progress_ns = step->now_ns;
    list_remove(&flow->by_time);
    list_push(&step->recv->by_time, &flow->by_time);
}

uint32_t recv_flow_size(const struct bounce_recv_flow *flow, uint32_t chunk)
{
    const struct list *node = list_first(&flow->pages);

    /* Pages before the one that holds `next` were given back. */
    KVF_ASSERT(node != NULL && chunk == flow->next);
    return list_object(node, struct recv_page, link)->sizes[chunk % RECV_PAGE_SIZES];
}

static void give_page_back(struct bounce_recv *recv, struct bounce_recv_flow *flow)
{
    list_push(&recv->unused_pages, list_pop(&flow->pages));
    recv->unused_page_count++;
}

void recv_flow_drop(struct recv_step *step, struct bounce_recv_flow *flow)
{
    struct bounce_recv *recv = step->recv;

    KVF_ASSERT(list_empty(&flow->jobs));
    while (!list_empty(&flow->pages))
        give_page_back(recv, flow);
    credit_remove(&recv->credit, &flow->credit);
    list_remove(&flow->by_time);
    list_remove(&flow->bucket);
    flow->id = 0;
    list_push(&recv->unused_flows, &flow->bucket);
    recv->counts.flows--;
}

void recv_flow_maybe_over(struct recv_step *step, struct bounce_recv_flow *flow)
{
    if (list_empty(&flow->jobs) && (flow->next == flow->chunk_count || flow->fenced))
        recv_flow_drop(step, flow);
}

/* ---- WANT ----------------------------------------------------------------------------------- */

static void refuse_want(struct recv_step *step, uint32_t peer, const struct msg_want *want,
                        enum msg_nack_reason reason)
{
    step->recv->counts.refused_wants++;
    nack_flow(step, peer, want->flow, reason);
}

/* The largest size; 0 = one is out of range. */
static uint32_t largest_size(const struct bounce_recv *recv, const struct msg_want *want)
{
    uint32_t largest = 0;

    for (uint32_t c = 0; c < want->chunk_count; c++) {
        uint32_t size = wire_load_u32(want->sizes_wire + (size_t)c * 4);

        if (size == 0 || size > recv->params.chunk_bytes)
            return 0;
        largest = size > largest ? size : largest;
    }
    return largest;
}

static void fill_sizes(struct bounce_recv *recv, struct bounce_recv_flow *flow,
                       const struct msg_want *want)
{
    for (uint32_t c = 0; c < want->chunk_count; c += RECV_PAGE_SIZES) {
        struct list *node = list_pop(&recv->unused_pages);
        uint32_t count = want->chunk_count - c;

        recv->unused_page_count--;
        if (count > RECV_PAGE_SIZES)
            count = RECV_PAGE_SIZES;
        wire_load_words(list_object(node, struct recv_page, link)->sizes,
                        want->sizes_wire + (size_t)c * 4, count);
        list_push(&flow->pages, node);
    }
}

static void add_flow(struct recv_step *step, uint32_t peer, const struct msg_want *want)
{
    struct bounce_recv *recv = step->recv;
    struct list *node = list_pop(&recv->unused_flows);
    struct bounce_recv_flow *flow = list_object(node, struct bounce_recv_flow, bucket);
    const struct bounce_recv_action active = {
        .kind = BOUNCE_RECV_ACT_ACTIVE, .peer = peer, .rid = want->rid, .tag = want->tag};

    *flow = (struct bounce_recv_flow){
        .id = want->flow,
        .peer = peer,
        .rid = want->rid,
        .tag = want->tag,
        .chunk_count = want->chunk_count,
    };
    list_init(&flow->bucket);
    list_init(&flow->by_time);
    list_init(&flow->jobs);
    list_init(&flow->pages);
    credit_flow_init(&flow->credit);
    fill_sizes(recv, flow, want);
    list_push(bucket_of(recv, peer, flow->id), &flow->bucket);
    recv_flow_progress(step, flow);
    credit_add(&recv->credit, &flow->credit);
    recv->counts.flows++;
    step->out->emit(step->out->self, &active);
}

static void log_want(struct recv_step *step, uint32_t peer, const struct msg_want *want,
                     const char *event, const char *text)
{
    bounce_recv_log(step, peer,
                    &(struct bounce_log){.level = KVF_LOG_WARN,
                                         .event = event,
                                         .text = text,
                                         .what = "",
                                         .flow = want->flow,
                                         .rid = want->rid,
                                         .numbers = {want->chunk_count},
                                         .number_count = 1});
}

static void take_want(struct recv_step *step, const struct bounce_recv_event *event)
{
    const struct msg_want *want = &event->u.message.msg->u.want;
    uint32_t peer = event->u.message.peer;
    struct bounce_recv *recv = step->recv;
    uint32_t largest;

    recv->counts.wants++;
    if (want->flow <= recv->peers[peer].last_id) { /* before all else: it may be live */
        recv->counts.duplicates++;
        log_want(step, peer, want, "W10", "a flow is wanted again: chunks");
        return;
    }
    recv->peers[peer].last_id = want->flow;
    if (recv->shutdown) {
        refuse_want(step, peer, want, MSG_NACK_CLOSING);
        return;
    }
    if (!event->u.message.open) {
        refuse_want(step, peer, want, MSG_NACK_FENCED);
        return;
    }
    largest = largest_size(recv, want);
    if (largest == 0) {
        log_want(step, peer, want, "W12", "a chunk's size is out of range: chunks");
        refuse_want(step, peer, want, MSG_NACK_BAD_SIZE);
        return;
    }
    if (list_empty(&recv->unused_flows) ||
        recv->unused_page_count < want->chunk_count / RECV_PAGE_SIZES + 1) {
        refuse_want(step, peer, want, MSG_NACK_NO_CAPACITY);
        return;
    }
    if (!arena_could_hold(recv->params.arena, largest)) {
        log_want(step, peer, want, "W33",
                 "refused: too much of the arena is in quarantine: chunks");
        refuse_want(step, peer, want, MSG_NACK_NO_CAPACITY);
        return;
    }
    add_flow(step, peer, want);
}

/* ---- grants --------------------------------------------------------------------------------- */

static void send_grant(struct recv_step *step)
{
    struct bounce_recv_action action = {.kind = BOUNCE_RECV_ACT_MESSAGE};

    if (step->credit_count == 0)
        return;
    action.peer = step->credit_flow->peer;
    action.u.msg.header.type = MSG_GRANT;
    action.u.msg.u.grant = (struct msg_grant){
        .flow = step->credit_flow->id,
        .count = (uint16_t)step->credit_count,
        .credits = step->credits,
    };
    step->credit_count = 0;
    step->out->emit(step->out->self, &action);
}

static void grant_one(struct recv_step *step, struct bounce_recv_flow *flow)
{
    struct bounce_recv *recv = step->recv;
    const struct bounce_job *job = recv_job_grant(step, flow);

    if (step->credit_flow != flow || step->credit_count == RECV_GRANT_CREDITS)
        send_grant(step);
    step->credit_flow = flow;
    step->credits[step->credit_count++] = (struct msg_credit){
        .chunk = job->chunk,
        .region = job->handle,
        .address = recv->params.arena_base + job->offset,
        .len_bytes = (uint32_t)arena_len(recv->params.arena, job->region),
        .medium = MSG_MEDIUM_RKEY,
    };
    recv->counts.grants++;
    flow->next++;
    if (flow->next % RECV_PAGE_SIZES == 0 && flow->next < flow->chunk_count)
        give_page_back(recv, flow);
    if (flow->next == flow->chunk_count)
        credit_remove(&recv->credit, &flow->credit);
    recv_flow_progress(step, flow);
}

static void schedule(struct recv_step *step)
{
    struct bounce_recv *recv = step->recv;
    struct credit_flow *next;

    while (!recv->shutdown && recv->credit.ring_count > 0 &&
           (next = credit_next(&recv->credit, recv_job_fits, recv)) != NULL)
        grant_one(step, list_object(next, struct bounce_recv_flow, credit));
    send_grant(step);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void take_cancel(struct recv_step *step, uint32_t peer, const struct msg_flow_cancel *cancel)
{
    struct bounce_recv_flow *flow = flow_find(step->recv, peer, cancel->flow);

    step->recv->counts.cancels++;
    if (flow == NULL)
        return;
    recv_jobs_leave(step, flow, MSG_NACK_CANCELLED, cancel->clean);
    recv_flow_drop(step, flow);
}

static void fence_flow(struct recv_step *step, struct bounce_recv_flow *flow)
{
    struct list *node = list_first(&flow->jobs);

    while (node != NULL) {
        struct list *next = list_after(&flow->jobs, node);

        recv_job_revoke(step, list_object(node, struct bounce_job, link), MSG_NACK_FENCED);
        node = next;
    }
    flow->fenced = true;
    credit_remove(&step->recv->credit, &flow->credit);
    nack_flow(step, flow->peer, flow->id, MSG_NACK_FENCED);
    recv_flow_maybe_over(step, flow);
}

/* Calls for each flow for which `match` is true; it may drop that flow and no other. */
static void each_flow(struct recv_step *step, const struct bounce_recv_event *event,
                      bool (*match)(const struct bounce_recv_flow *,
                                    const struct bounce_recv_event *),
                      void (*call)(struct recv_step *, struct bounce_recv_flow *))
{
    struct bounce_recv *recv = step->recv;

    for (uint32_t f = 0; f < recv->params.flows_max && recv->counts.flows > 0; f++)
        if (recv->flows[f].id != 0 && match(&recv->flows[f], event))
            call(step, &recv->flows[f]);
}

static bool match_fence(const struct bounce_recv_flow *flow, const struct bounce_recv_event *event)
{
    return flow->rid == event->u.fence.rid && flow->tag == event->u.fence.tag && !flow->fenced;
}

static bool match_peer(const struct bounce_recv_flow *flow, const struct bounce_recv_event *event)
{
    return flow->peer == event->u.peer;
}

static bool match_all(const struct bounce_recv_flow *flow, const struct bounce_recv_event *event)
{
    (void)flow;
    (void)event;
    return true;
}

/* No answers: there is nobody to read them. Grants come at the end of the step, to others. */
static void lose_flow(struct recv_step *step, struct bounce_recv_flow *flow)
{
    for (struct list *node = list_first(&flow->jobs); node != NULL;
         node = list_after(&flow->jobs, node))
        list_object(node, struct bounce_job, link)->mute = true;
    recv_jobs_leave(step, flow, MSG_NACK_CANCELLED, false);
    recv_flow_drop(step, flow);
}

static void lose_peer(struct recv_step *step, const struct bounce_recv_event *event)
{
    struct bounce_recv *recv = step->recv;
    struct list *node = list_first(&recv->flowless);

    while (node != NULL) { /* orphans of flows that were gone before */
        struct list *next = list_after(&recv->flowless, node);
        struct bounce_job *job = list_object(node, struct bounce_job, link);

        if (job->peer == event->u.peer) {
            job->mute = true;
            recv_job_revoke(step, job, MSG_NACK_CANCELLED);
        }
        node = next;
    }
    each_flow(step, event, match_peer, lose_flow);
    recv->peers[event->u.peer].last_id = 0; /* another life counts from 1 */
}

static void close_flow(struct recv_step *step, struct bounce_recv_flow *flow)
{
    struct list *node = list_first(&flow->jobs);

    credit_remove(&step->recv->credit, &flow->credit);
    while (node != NULL) {
        struct list *next = list_after(&flow->jobs, node);

        recv_job_revoke(step, list_object(node, struct bounce_job, link), MSG_NACK_CLOSING);
        node = next;
    }
    if (flow->next < flow->chunk_count)
        nack_flow(step, flow->peer, flow->id, MSG_NACK_CLOSING);
    flow->fenced = true;
    recv_flow_maybe_over(step, flow);
}

/* ---- timers --------------------------------------------------------------------------------- */

static bool holds_a_region(const struct bounce_recv_flow *flow)
{
    return !list_empty(&flow->jobs);
}

/* A sender that is alive would have given up long before. */
static void expire(struct recv_step *step, struct bounce_recv_flow *flow)
{
    step->recv->counts.leases++;
    bounce_recv_log(step, flow->peer,
                    &(struct bounce_log){.level = KVF_LOG_WARN,
                                         .event = "W16",
                                         .text = "lease ran out, regions go into quarantine:",
                                         .what = "",
                                         .flow = flow->id,
                                         .rid = flow->rid,
                                         .numbers = {flow->credit.held},
                                         .number_count = 1});
    recv_jobs_leave(step, flow, MSG_NACK_CANCELLED, false);
    recv_flow_drop(step, flow);
}

static void tick(struct recv_step *step)
{
    struct bounce_recv *recv = step->recv;
    uint64_t lease_ns = 2 * recv->params.timeout_ns;
    struct list *node;

    arena_tick(recv->params.arena, step->now_ns);
    while ((node = list_first(&recv->by_time)) != NULL) {
        struct bounce_recv_flow *flow = list_object(node, struct bounce_recv_flow, by_time);

        if (step->now_ns - flow->progress_ns < lease_ns)
            break;
        if (holds_a_region(flow) && flow->jobs_out == 0)
            expire(step, flow);
        else
            recv_flow_progress(step, flow); /* harms nobody, or works */
    }
}

uint64_t bounce_recv_deadline_ns(const struct bounce_recv *recv)
{
    uint64_t deadline_ns = arena_deadline_ns(recv->params.arena);
    struct list *node = list_first(&recv->by_time);
    uint64_t lease_ns;

    if (node == NULL)
        return deadline_ns;
    lease_ns = list_object(node, struct bounce_recv_flow, by_time)->progress_ns +
               2 * recv->params.timeout_ns;
    return lease_ns < deadline_ns ? lease_ns : deadline_ns;
}

/* ---- step ----------------------------------------------------------------------------------- */

static void take_message(struct recv_step *step, const struct bounce_recv_event *event)
{
    const struct msg *msg = event->u.message.msg;

    if (event->u.message.peer >= step->recv->params.world_size)
        step->recv->counts.unexpected_events++;
    else if (msg->header.type == MSG_WANT)
        take_want(step, event);
    else if (msg->header.type == MSG_DATA)
        recv_job_data(step, event->u.message.peer, &msg->u.data);
    else if (msg->header.type == MSG_FLOW_CANCEL)
        take_cancel(step, event->u.message.peer, &msg->u.flow_cancel);
    else
        step->recv->counts.unexpected_events++;
}

void bounce_recv_step(struct bounce_recv *recv, const struct bounce_recv_event *event,
                      struct bounce_recv_out *out)
{
    struct recv_step step = {.recv = recv, .out = out, .now_ns = event->now_ns};

    switch (event->kind) {
    case BOUNCE_RECV_TICK:
        tick(&step);
        break;
    case BOUNCE_RECV_MESSAGE:
        take_message(&step, event);
        break;
    case BOUNCE_RECV_JOB_DONE:
        recv_job_done(&step, event->u.job.job, event->u.job.end);
        break;
    case BOUNCE_RECV_FENCE:
        each_flow(&step, event, match_fence, fence_flow);
        break;
    case BOUNCE_RECV_PEER_LOST:
        lose_peer(&step, event);
        break;
    case BOUNCE_RECV_PEER_PROOF:
        arena_proof(recv->params.arena, event->u.peer);
        break;
    case BOUNCE_RECV_SHUTDOWN:
        recv->shutdown = true;
        each_flow(&step, event, match_all, close_flow);
        break;
    }
    schedule(&step);
}

const struct bounce_recv_counts *bounce_recv_counts(const struct bounce_recv *recv)
{
    return &recv->counts;
}
