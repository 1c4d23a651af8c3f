/*
 * bounce_send.c - see bounce_send.h: flows from submit to their end, messages, timers. What happens
 * to a single chunk is in bounce_send_chunk.c.
 */
#include "xfer/bounce_send_internal.h"

#include "check.h"

const char *bounce_fail_name(enum bounce_fail reason)
{
    static const char *const names[BOUNCE_FAIL_COUNT] = {
        [BOUNCE_FAIL_NONE] = "NONE",
        [BOUNCE_FAIL_PROTOCOL] = "PROTOCOL",
        [BOUNCE_FAIL_GATHER] = "GATHER",
        [BOUNCE_FAIL_WRITE] = "WRITE",
        [BOUNCE_FAIL_PEER_NACK] = "PEER_NACK",
        [BOUNCE_FAIL_CANCELLED] = "CANCELLED",
        [BOUNCE_FAIL_NO_PROGRESS] = "NO_PROGRESS",
        [BOUNCE_FAIL_PEER_DROPPED] = "PEER_DROPPED",
        [BOUNCE_FAIL_SHUTDOWN] = "SHUTDOWN",
    };

    return (unsigned)reason < BOUNCE_FAIL_COUNT ? names[reason] : "?";
}

/* ---- open ----------------------------------------------------------------------------------- */

enum kvf_status bounce_send_open(const struct kvf_heap *heap,
                                 const struct bounce_send_params *params,
                                 struct bounce_send **send_out)
{
    uint32_t pages = params->chunks_max / SEND_PAGE_CHUNKS + 1 + params->flows_max;
    struct bounce_send *send;

    if (params->flows_max == 0 || params->flows_max > BOUNCE_FLOWS_MAX || params->window == 0 ||
        params->gathers_max == 0 || params->arena == NULL || params->chunk_bytes == 0 ||
        params->chunk_bytes > arena_counts(params->arena)->usable_bytes ||
        params->chunk_bytes > UINT32_MAX || params->chunks_max == 0 ||
        params->chunks_max > UINT32_MAX / 2)
        return KVF_E_INVAL;
    send = kvf_alloc(heap, 1, sizeof(*send));
    if (send == NULL)
        return KVF_E_NOMEM;
    send->heap = heap;
    send->params = *params;
    send->flows = kvf_alloc(heap, params->flows_max, sizeof(*send->flows));
    send->pages = kvf_alloc(heap, pages, sizeof(*send->pages));
    if (send->flows == NULL || send->pages == NULL) {
        bounce_send_close(send);
        return KVF_E_NOMEM;
    }
    list_init(&send->unused);
    list_init(&send->live);
    list_init(&send->free_pages);
    send->page_count = send->free_page_count = pages;
    for (uint32_t p = 0; p < pages; p++)
        list_push(&send->free_pages, &send->pages[p].link);
    for (uint32_t f = 0; f < params->flows_max; f++)
        list_push(&send->unused, &send->flows[f].link);
    *send_out = send;
    return KVF_OK;
}

void bounce_send_close(struct bounce_send *send)
{
    if (send == NULL)
        return;
    kvf_release(send->heap, send->pages);
    kvf_release(send->heap, send->flows);
    kvf_release(send->heap, send);
}

/* ---- what is given out ---------------------------------------------------------------------- */

void send_emit(const struct send_step *step, struct bounce_send_action *action,
               const struct send_flow *flow)
{
    action->peer = flow->peer;
    action->task = flow->task;
    action->flow = flow->id;
    step->out->emit(step->out->self, action);
}

void bounce_send_log(const struct send_step *step, const struct send_flow *flow,
                     const struct bounce_log *log)
{
    struct bounce_send_action action = {.kind = BOUNCE_SEND_ACT_LOG, .u.log = *log};

    action.u.log.flow = flow->id;
    action.u.log.rid = flow->rid;
    send_emit(step, &action, flow);
}

static void send_cancel(const struct send_step *step, struct send_flow *flow)
{
    struct bounce_send_action action = {.kind = BOUNCE_SEND_ACT_MESSAGE};

    flow->cancel_due = false;
    action.u.msg.header.type = MSG_FLOW_CANCEL;
    action.u.msg.u.flow_cancel =
        (struct msg_flow_cancel){.flow = flow->id, .clean = !flow->dirty, .code = flow->status};
    send_emit(step, &action, flow);
}

/* ---- the end of a flow ---------------------------------------------------------------------- */

static void flow_free(struct bounce_send *send, struct send_flow *flow)
{
    while (!list_empty(&flow->page_list)) {
        list_push(&send->free_pages, list_pop(&flow->page_list));
        send->free_page_count++;
    }
    list_remove(&flow->link);
    list_push(&send->unused, &flow->link);
    flow->id = 0;
    send->counts.flows--;
}

void send_maybe_gone(struct send_step *step, struct send_flow *flow)
{
    if (!flow->resolved || flow->orphan_writes > 0 || flow->orphan_gathers > 0)
        return;
    flow_free(step->send, flow);
}

static void flow_resolve(struct send_step *step, struct send_flow *flow, bool unanswered)
{
    struct bounce_send_action action = {.kind = BOUNCE_SEND_ACT_RESOLVED};
    struct bounce_send_counts *counts = &step->send->counts;

    KVF_ASSERT(!flow->resolved);
    flow->resolved = true;
    if (flow->held)
        counts->held--;
    flow->held = false;
    if (flow->reason == BOUNCE_FAIL_NONE)
        counts->resolved_ok++;
    else
        counts->resolved_failed++;
    action.u.resolved.status = flow->status;
    action.u.resolved.reason = flow->reason;
    action.u.resolved.unanswered = unanswered;
    send_emit(step, &action, flow);
    send_maybe_gone(step, flow);
}

void send_orphan_ended(struct send_step *step, struct send_flow *flow)
{
    if (flow->orphan_writes == 0 && flow->cancel_due && !step->send->shutdown)
        send_cancel(step, flow);
    send_maybe_gone(step, flow);
}

static enum kvf_status fail_status(enum bounce_fail reason)
{
    switch (reason) {
    case BOUNCE_FAIL_PROTOCOL:
        return KVF_E_PROTOCOL;
    case BOUNCE_FAIL_CANCELLED:
        return KVF_E_CANCELLED;
    case BOUNCE_FAIL_NO_PROGRESS:
        return KVF_E_TIMEOUT;
    case BOUNCE_FAIL_PEER_DROPPED:
        return KVF_E_PEER_LOST;
    case BOUNCE_FAIL_SHUTDOWN:
        return KVF_E_SHUTDOWN;
    case BOUNCE_FAIL_NONE:
    case BOUNCE_FAIL_GATHER:
    case BOUNCE_FAIL_WRITE:
    case BOUNCE_FAIL_PEER_NACK:
        break;
    }
    return KVF_E_TRANSFER;
}

/* In this order: what runs becomes an orphan, the cancel, then the hold or the verdict. */
void send_fail(struct send_step *step, struct send_flow *flow, enum bounce_fail reason,
               enum kvf_status status)
{
    struct bounce_send *send = step->send;
    uint64_t hold_ns = send->params.timeout_ns < send->params.hold_cap_ns
                           ? send->params.timeout_ns
                           : send->params.hold_cap_ns;

    if (flow->reason != BOUNCE_FAIL_NONE || flow->resolved)
        return;
    flow->reason = reason;
    flow->status = status == KVF_OK ? fail_status(reason) : status;
    flow->failed_ns = step->now_ns;
    bounce_send_log(step, flow,
                    &(struct bounce_log){.level = KVF_LOG_WARN,
                                         .event = "W06",
                                         .text = "flow failed: chunks acked, begun, of",
                                         .what = bounce_fail_name(reason),
                                         .numbers = {flow->acked, flow->next, flow->chunk_count},
                                         .number_count = 3});
    send_chunks_give_up(step, flow);
    flow->cancel_due = reason != BOUNCE_FAIL_PEER_DROPPED && !send->shutdown;
    if (flow->cancel_due && flow->orphan_writes == 0)
        send_cancel(step, flow);
    if (flow->unanswered == 0 || send->params.timeout_ns == 0 || send->shutdown) {
        flow_resolve(step, flow, flow->unanswered > 0);
        return;
    }
    flow->held = true;
    flow->hold_ns = step->now_ns + hold_ns;
    send->counts.held++;
    send->counts.held_total++;
}

/* ---- submit --------------------------------------------------------------------------------- */

static bool sizes_are_good(const struct bounce_send *send, const struct bounce_send_event *event)
{
    if (event->u.submit.chunk_count > MSG_FLOW_CHUNKS_MAX ||
        event->u.submit.chunk_count > send->params.chunks_max)
        return false;
    for (uint32_t c = 0; c < event->u.submit.chunk_count; c++)
        if (event->u.submit.sizes[c] == 0 || event->u.submit.sizes[c] > send->params.chunk_bytes)
            return false;
    return true;
}

static void flow_take_pages(struct bounce_send *send, struct send_flow *flow,
                            const struct bounce_send_event *event)
{
    list_init(&flow->page_list);
    for (uint32_t c = 0; c < flow->chunk_count; c++) {
        if (c % SEND_PAGE_CHUNKS == 0) {
            struct list *node = list_pop(&send->free_pages);

            send->free_page_count--;
            flow->pages[c / SEND_PAGE_CHUNKS] = list_object(node, struct send_page, link);
            list_push(&flow->page_list, node);
        }
        *send_chunk(flow, c) = (struct send_chunk){.len_bytes = event->u.submit.sizes[c]};
    }
}

static void flow_want(struct send_step *step, struct send_flow *flow,
                      const struct bounce_send_event *event)
{
    struct bounce_send_action action = {.kind = BOUNCE_SEND_ACT_MESSAGE};

    action.u.msg.header.type = MSG_WANT;
    action.u.msg.u.want = (struct msg_want){
        .flow = flow->id,
        .rid = flow->rid,
        .tag = event->u.submit.tag,
        .slice = event->u.submit.slice,
        .chunk_count = flow->chunk_count,
        .sizes = event->u.submit.sizes,
    };
    send_emit(step, &action, flow);
}

static enum kvf_status flow_submit(struct send_step *step, const struct bounce_send_event *event)
{
    struct bounce_send *send = step->send;
    uint32_t pages = (event->u.submit.chunk_count + SEND_PAGE_CHUNKS - 1) / SEND_PAGE_CHUNKS;
    uint64_t answered_id;
    struct send_flow *flow;
    struct list *node;

    if (!sizes_are_good(send, event))
        return KVF_E_TOO_LARGE;
    if (send->shutdown)
        return KVF_E_CLOSED;
    if (pages > send->free_page_count || list_empty(&send->unused))
        return KVF_BUSY;
    node = list_pop(&send->unused);
    flow = list_object(node, struct send_flow, link);
    answered_id = flow->answered_id;
    *flow = (struct send_flow){
        .id = ++send->flow_next << SEND_SLOT_BITS | (uint64_t)(flow - send->flows),
        .answered_id = answered_id,
        .task = event->u.submit.task,
        .peer = event->u.submit.peer,
        .rid = event->u.submit.rid,
        .mapped = event->u.submit.mapped,
        .arena_base = event->u.submit.arena_base,
        .arena_bytes = event->u.submit.arena_bytes,
        .chunk_count = event->u.submit.chunk_count,
        .progress_ns = step->now_ns,
    };
    list_init(&flow->link);
    list_push(&send->live, &flow->link);
    send->counts.submitted++;
    send->counts.flows++;
    flow_take_pages(send, flow, event);
    if (flow->chunk_count == 0) {
        flow_resolve(step, flow, false);
        return KVF_OK;
    }
    step->out->flow = flow->id;
    flow_want(step, flow, event);
    return KVF_OK;
}

/* ---- messages ------------------------------------------------------------------------------- */

/* A message that is dropped: why, and the number that tells which. */
static void flow_warn(struct send_step *step, struct send_flow *flow, const char *event,
                      const char *text, uint64_t number)
{
    bounce_send_log(step, flow,
                    &(struct bounce_log){.level = KVF_LOG_WARN,
                                         .event = event,
                                         .text = text,
                                         .what = "",
                                         .numbers = {number},
                                         .number_count = 1});
}

static struct send_flow *flow_find(const struct bounce_send *send, uint64_t id)
{
    uint64_t slot = id & ((1u << SEND_SLOT_BITS) - 1);

    if (id == 0 || slot >= send->params.flows_max || send->flows[slot].id != id)
        return NULL;
    return &send->flows[slot];
}

static bool from_its_peer(struct send_step *step, struct send_flow *flow, uint32_t peer)
{
    if (flow->peer == peer)
        return true;
    step->send->counts.wrong_peer++;
    flow_warn(step, flow, "W08", "message of another rank than the flow's", peer);
    return false;
}

/* A region that nobody will use is given back at once, for each flow at most once. */
static void grant_unknown(struct send_step *step, uint32_t peer, uint64_t id)
{
    struct bounce_send *send = step->send;
    uint64_t slot = id & ((1u << SEND_SLOT_BITS) - 1);
    struct bounce_send_action action = {.kind = BOUNCE_SEND_ACT_MESSAGE, .peer = peer, .flow = id};

    send->counts.late++;
    if (slot >= send->params.flows_max || id >> SEND_SLOT_BITS == 0 ||
        id >> SEND_SLOT_BITS > send->flow_next || send->flows[slot].answered_id == id ||
        send->shutdown)
        return;
    send->flows[slot].answered_id = id;
    action.u.msg.header.type = MSG_FLOW_CANCEL;
    action.u.msg.u.flow_cancel =
        (struct msg_flow_cancel){.flow = id, .clean = true, .code = KVF_E_GONE};
    step->out->emit(step->out->self, &action);
}

static void take_grant(struct send_step *step, uint32_t peer, const struct msg_grant *grant)
{
    struct send_flow *flow = flow_find(step->send, grant->flow);

    if (flow == NULL) {
        grant_unknown(step, peer, grant->flow);
        return;
    }
    if (!from_its_peer(step, flow, peer))
        return;
    for (uint32_t i = 0; i < grant->count; i++) {
        struct msg_credit credit;

        if (flow->reason != BOUNCE_FAIL_NONE) {
            step->send->counts.late++; /* its cancel gives the region back */
            return;
        }
        msg_credit_get(grant, i, &credit);
        send_chunk_credit(step, flow, &credit);
    }
}

/* The chunk that an answer is for, which must be SENT into that region; NULL: counted, logged. */
static struct send_chunk *answered_chunk(struct send_step *step, struct send_flow *flow,
                                         uint32_t index, const struct msg_region *region)
{
    struct send_chunk *chunk = index < flow->chunk_count ? send_chunk(flow, index) : NULL;

    if (chunk != NULL && chunk->state == SEND_CHUNK_SENT &&
        chunk->region.offset == region->offset && chunk->region.generation == region->generation)
        return chunk;
    step->send->counts.stale++;
    flow_warn(step, flow, "W09", "stale answer: chunk", index);
    return NULL;
}

/* The last answer ends the hold. */
static void flow_answered(struct send_step *step, struct send_flow *flow, struct send_chunk *chunk)
{
    chunk->state = SEND_CHUNK_ANSWERED;
    flow->unanswered--;
    if (flow->held && flow->unanswered == 0)
        flow_resolve(step, flow, false);
}

static void take_ack(struct send_step *step, uint32_t peer, const struct msg_ack *ack)
{
    struct send_flow *flow = flow_find(step->send, ack->flow);
    struct send_chunk *chunk;

    if (flow == NULL || flow->resolved) {
        step->send->counts.late++;
        return;
    }
    if (!from_its_peer(step, flow, peer))
        return;
    chunk = answered_chunk(step, flow, ack->chunk, &ack->region);
    if (chunk == NULL)
        return;
    step->send->counts.chunks_acked++;
    flow->acked++;
    flow->progress_ns = step->now_ns;
    flow_answered(step, flow, chunk);
    if (flow->reason == BOUNCE_FAIL_NONE && flow->acked == flow->chunk_count)
        flow_resolve(step, flow, false);
}

static enum kvf_status nack_status(enum msg_nack_reason reason)
{
    switch (reason) {
    case MSG_NACK_CANCELLED:
    case MSG_NACK_FENCED:
        return KVF_E_PEER_CANCELLED;
    case MSG_NACK_CLOSING:
        return KVF_E_PEER_CLOSED;
    case MSG_NACK_BAD_SIZE:
    case MSG_NACK_BAD_PLAN:
        return KVF_E_PROTOCOL;
    case MSG_NACK_STALE_REGION:
    case MSG_NACK_SCATTER_FAILED:
    case MSG_NACK_NO_CAPACITY:
        break;
    }
    return KVF_E_TRANSFER;
}

static void take_nack(struct send_step *step, uint32_t peer, const struct msg_nack *nack)
{
    enum kvf_status status = nack_status((enum msg_nack_reason)nack->reason);
    struct send_flow *flow = flow_find(step->send, nack->flow);
    struct send_chunk *chunk;

    if (flow == NULL || flow->resolved) {
        step->send->counts.late++;
        return;
    }
    if (!from_its_peer(step, flow, peer))
        return;
    if (nack->scope == MSG_NACK_FLOW) { /* answers no chunk */
        send_fail(step, flow, BOUNCE_FAIL_PEER_NACK, status);
        return;
    }
    chunk = answered_chunk(step, flow, nack->chunk, &nack->region);
    if (chunk == NULL)
        return;
    flow_answered(step, flow, chunk);
    if (!flow->resolved)
        send_fail(step, flow, BOUNCE_FAIL_PEER_NACK, status);
}

static void take_message(struct send_step *step, const struct bounce_send_event *event)
{
    const struct msg *msg = event->u.message.msg;

    if (msg->header.type == MSG_GRANT)
        take_grant(step, event->u.message.peer, &msg->u.grant);
    else if (msg->header.type == MSG_ACK)
        take_ack(step, event->u.message.peer, &msg->u.ack);
    else if (msg->header.type == MSG_NACK)
        take_nack(step, event->u.message.peer, &msg->u.nack);
    else
        step->send->counts.unexpected_events++;
}

/* ---- timers, peers, shutdown ---------------------------------------------------------------- */

static void flow_tick(struct send_step *step, struct send_flow *flow)
{
    uint64_t timeout_ns = step->send->params.timeout_ns;

    if (timeout_ns == 0)
        return;
    if (flow->reason == BOUNCE_FAIL_NONE) {
        if (step->now_ns - flow->progress_ns >= timeout_ns)
            send_fail(step, flow, BOUNCE_FAIL_NO_PROGRESS, KVF_OK);
        return;
    }
    if (!flow->orphans_told && step->now_ns - flow->failed_ns >= timeout_ns)
        send_tell_orphans(step, flow);
    if (flow->held && step->now_ns >= flow->hold_ns) {
        step->send->counts.held_expired++;
        bounce_send_log(step, flow,
                        &(struct bounce_log){.level = KVF_LOG_WARN,
                                             .event = "W07",
                                             .text = "failure held long enough: chunks unanswered",
                                             .what = bounce_fail_name(flow->reason),
                                             .numbers = {flow->unanswered},
                                             .number_count = 1});
        flow_resolve(step, flow, true);
    }
}

/* Calls for each flow in the table; one that is freed by it is passed. */
static void each_flow(struct send_step *step, void (*call)(struct send_step *, struct send_flow *))
{
    struct list *node = list_first(&step->send->live);

    while (node != NULL) {
        struct list *next = list_after(&step->send->live, node);

        call(step, list_object(node, struct send_flow, link));
        node = next;
    }
}

static void flow_peer_lost(struct send_step *step, struct send_flow *flow)
{
    if (flow->peer == step->peer)
        send_fail(step, flow, BOUNCE_FAIL_PEER_DROPPED, KVF_OK);
}

static void flow_shutdown(struct send_step *step, struct send_flow *flow)
{
    if (flow->reason == BOUNCE_FAIL_NONE)
        send_fail(step, flow, BOUNCE_FAIL_SHUTDOWN, KVF_OK);
    else if (flow->held)
        flow_resolve(step, flow, flow->unanswered > 0);
}

static void step_chunk(struct send_step *step, const struct bounce_send_event *event)
{
    struct send_flow *flow = flow_find(step->send, event->u.chunk.flow);

    if (flow == NULL || event->u.chunk.chunk >= flow->chunk_count) {
        step->send->counts.unexpected_events++;
        return;
    }
    if (event->kind == BOUNCE_SEND_GATHERED)
        send_chunk_gathered(step, flow, event);
    else if (event->kind == BOUNCE_SEND_GATHER_IDLE)
        send_chunk_idle(step, flow, event->u.chunk.chunk);
    else
        send_chunk_written(step, flow, event);
}

enum kvf_status bounce_send_step(struct bounce_send *send, const struct bounce_send_event *event,
                                 struct bounce_send_out *out)
{
    struct send_step step = {.send = send, .out = out, .now_ns = event->now_ns};
    enum kvf_status status = KVF_OK;
    struct send_flow *flow;

    out->flow = 0;
    switch (event->kind) {
    case BOUNCE_SEND_TICK:
        each_flow(&step, flow_tick);
        break;
    case BOUNCE_SEND_SUBMIT:
        status = flow_submit(&step, event);
        break;
    case BOUNCE_SEND_MESSAGE:
        take_message(&step, event);
        break;
    case BOUNCE_SEND_GATHERED:
    case BOUNCE_SEND_GATHER_IDLE:
    case BOUNCE_SEND_WRITTEN:
        step_chunk(&step, event);
        break;
    case BOUNCE_SEND_ABORT:
        flow = flow_find(send, event->u.abort);
        if (flow != NULL)
            send_fail(&step, flow, BOUNCE_FAIL_CANCELLED, KVF_OK);
        break;
    case BOUNCE_SEND_PEER_LOST:
        step.peer = event->u.peer;
        each_flow(&step, flow_peer_lost);
        break;
    case BOUNCE_SEND_SHUTDOWN:
        send->shutdown = true;
        each_flow(&step, flow_shutdown);
        break;
    }
    send_pump(&step);
    return status;
}

uint64_t bounce_send_deadline_ns(const struct bounce_send *send)
{
    uint64_t deadline_ns = UINT64_MAX;
    uint64_t timeout_ns = send->params.timeout_ns;

    if (timeout_ns == 0)
        return deadline_ns;
    for (struct list *node = list_first(&send->live); node != NULL;
         node = list_after(&send->live, node)) {
        const struct send_flow *flow = list_object(node, struct send_flow, link);
        uint64_t at_ns = UINT64_MAX;

        if (flow->reason == BOUNCE_FAIL_NONE)
            at_ns = flow->progress_ns + timeout_ns;
        else if (!flow->orphans_told)
            at_ns = flow->failed_ns + timeout_ns;
        if (flow->held && flow->hold_ns < at_ns)
            at_ns = flow->hold_ns;
        deadline_ns = at_ns < deadline_ns ? at_ns : deadline_ns;
    }
    return deadline_ns;
}

const struct bounce_send_counts *bounce_send_counts(const struct bounce_send *send)
{
    return &send->counts;
}

const char *bounce_send_waits(const struct bounce_send *send, uint64_t flow_id)
{
    struct send_flow *flow = flow_find(send, flow_id);

    if (flow == NULL)
        return NULL;
    if (flow->held)
        return "answers for what was sent before it failed";
    if (flow->reason != BOUNCE_FAIL_NONE)
        return "own gathers and puts of a failed flow";
    if (flow->unanswered > 0)
        return "answers";
    if (flow->next > 0 && send_chunk(flow, flow->next - 1)->state == SEND_CHUNK_WRITING)
        return "puts";
    return flow->next < flow->chunk_count && !send_chunk(flow, flow->next)->credited
               ? "a credit"
               : "own gathers, or room in the arena";
}
