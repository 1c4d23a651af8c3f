/*
 * bounce_recv_job.c - a region from its grant to its return, and the scatter job in between.
 *
 * One atomic word decides whether a job runs: the worker sets it from TAKEN to RUNNING right before
 * its first byte, the machine from QUEUED or TAKEN to REVOKED. Each DATA gets one answer: by the
 * machine when it takes the job back before a worker has it, else when the worker gives it back.
 */
#include <string.h>

#include "check.h"
#include "xfer/bounce_pack.h"
#include "xfer/bounce_recv_internal.h"

static bool swap_word(struct bounce_job *job, unsigned from, unsigned to)
{
    return atomic_compare_exchange_strong(&job->word, &from, to);
}

bool bounce_job_take(struct bounce_job *job)
{
    return swap_word(job, BOUNCE_JOB_QUEUED, BOUNCE_JOB_TAKEN);
}

bool bounce_job_start(struct bounce_job *job)
{
    return swap_word(job, BOUNCE_JOB_TAKEN, BOUNCE_JOB_RUNNING);
}

/* ---- grant ---------------------------------------------------------------------------------- */

/* Most pieces that a chunk of this length can have: each begins at a multiple of 32. */
static uint64_t pieces_limit(const struct bounce_recv *recv, uint64_t len_bytes)
{
    uint64_t limit = bounce_pieces_max(recv->params.chunk_bytes);
    uint64_t here = (len_bytes + BOUNCE_PACK_ALIGN - 1) / BOUNCE_PACK_ALIGN;

    return here < limit ? here : limit;
}

static struct arena_want runs_want(const struct bounce_recv *recv, uint64_t len_bytes)
{
    return (struct arena_want){.len_bytes = pieces_limit(recv, len_bytes) * MSG_RUN_BYTES,
                               .state = ARENA_GRANTED};
}

/* One peer that is slow leaves room for the others. */
static bool within_share(const struct bounce_recv *recv, uint32_t peer, uint64_t len_bytes)
{
    const struct arena *arena = recv->params.arena;
    uint64_t share = arena_counts(arena)->usable_bytes / 2;

    if (!recv->params.share || share < arena_block_bytes(arena, recv->params.chunk_bytes))
        return true;
    return recv->peers[peer].held_bytes + arena_block_bytes(arena, len_bytes) <= share;
}

enum credit_fit recv_job_fits(void *self, const struct credit_flow *credit)
{
    const struct bounce_recv *recv = self;
    const struct bounce_recv_flow *flow = list_object(credit, struct bounce_recv_flow, credit);
    uint32_t len_bytes = recv_flow_size(flow, flow->next);
    const struct arena_want want = {.len_bytes = len_bytes, .state = ARENA_GRANTED};
    const struct arena_want runs = runs_want(recv, len_bytes);

    if (!within_share(recv, flow->peer, len_bytes))
        return CREDIT_NOT_NOW;
    if (list_empty(&recv->unused_jobs) || arena_has_room(recv->params.arena, &want) != KVF_OK ||
        arena_has_room(recv->runs_arena, &runs) != KVF_OK)
        return CREDIT_NO_ROOM;
    return CREDIT_FITS;
}

struct bounce_job *recv_job_grant(struct recv_step *step, struct bounce_recv_flow *flow)
{
    struct bounce_recv *recv = step->recv;
    struct list *node = list_pop(&recv->unused_jobs);
    struct bounce_job *job = list_object(node, struct bounce_job, link);
    uint32_t len_bytes = recv_flow_size(flow, flow->next);
    const struct arena_want want = {
        .len_bytes = len_bytes, .state = ARENA_GRANTED, .owner = (uint64_t)(job - recv->jobs)};
    const struct arena_want runs = runs_want(recv, len_bytes);
    struct arena_handle handle;

    KVF_ASSERT(arena_take(recv->params.arena, &want, &job->region) == KVF_OK);
    KVF_ASSERT(arena_take(recv->runs_arena, &runs, &job->runs_region) == KVF_OK);
    handle = arena_handle(recv->params.arena, job->region);
    atomic_store(&job->word, BOUNCE_JOB_IDLE);
    job->offset = handle.offset;
    job->runs = recv->runs + arena_handle(recv->runs_arena, job->runs_region).offset;
    job->run_count = 0;
    job->rid = flow->rid;
    job->tag = flow->tag;
    job->flow = flow;
    job->peer = flow->peer;
    job->flow_id = flow->id;
    job->chunk = flow->next;
    job->handle = (struct msg_region){handle.offset, handle.generation};
    job->block_bytes = arena_block_bytes(recv->params.arena, len_bytes);
    job->answered = job->mute = false;
    recv->peers[job->peer].held_bytes += job->block_bytes;
    list_push(&flow->jobs, &job->link);
    return job;
}

/* ---- giving back ---------------------------------------------------------------------------- */

/* The region is no longer the job's: free, or what the caller made of it. */
static void leave_region(struct recv_step *step, struct bounce_job *job, bool free_it)
{
    if (job->region == ARENA_NONE)
        return;
    if (free_it)
        arena_free(step->recv->params.arena, job->region);
    step->recv->peers[job->peer].held_bytes -= job->block_bytes;
    job->region = ARENA_NONE;
    if (job->flow != NULL)
        job->flow->credit.held--;
}

/* The worker does not have it, and its region is gone. */
static void drop_job(struct recv_step *step, struct bounce_job *job)
{
    struct bounce_recv *recv = step->recv;

    arena_free(recv->runs_arena, job->runs_region);
    list_remove(&job->link);
    job->flow = NULL;
    list_push(&recv->unused_jobs, &job->link);
}

/* From here on it is nobody's: its answer and its end are all that it still gives. */
static void leave_flow(struct recv_step *step, struct bounce_job *job)
{
    if (job->flow == NULL)
        return;
    job->flow = NULL;
    list_remove(&job->link);
    list_push(&step->recv->flowless, &job->link);
}

static void tell(struct recv_step *step, const struct bounce_job *job,
                 enum bounce_recv_action_kind kind)
{
    const struct bounce_recv_action action = {
        .kind = kind, .peer = job->peer, .rid = job->rid, .tag = job->tag};

    step->out->emit(step->out->self, &action);
}

static void answer_nack(struct recv_step *step, struct bounce_job *job, enum msg_nack_reason reason)
{
    KVF_ASSERT(!job->answered);
    job->answered = true;
    if (job->mute)
        return;
    recv_nack(step, job->peer,
              &(struct msg_nack){.flow = job->flow_id,
                                 .scope = MSG_NACK_CHUNK,
                                 .chunk = job->chunk,
                                 .region = job->handle,
                                 .reason = (uint8_t)reason});
}

static void answer_ack(struct recv_step *step, struct bounce_job *job)
{
    struct bounce_recv_action action = {.kind = BOUNCE_RECV_ACT_MESSAGE, .peer = job->peer};

    KVF_ASSERT(!job->answered);
    job->answered = true;
    if (job->mute)
        return;
    action.u.msg.header.type = MSG_ACK;
    action.u.msg.u.ack =
        (struct msg_ack){.flow = job->flow_id, .chunk = job->chunk, .region = job->handle};
    step->recv->counts.acks++;
    step->out->emit(step->out->self, &action);
}

void recv_job_revoke(struct recv_step *step, struct bounce_job *job, enum msg_nack_reason reason)
{
    struct bounce_recv_flow *flow = job->flow;

    if (swap_word(job, BOUNCE_JOB_QUEUED, BOUNCE_JOB_REVOKED)) {
        /* No worker has looked at it: it comes back untouched. */
        if (flow != NULL)
            flow->jobs_out--;
        step->recv->counts.jobs--;
        leave_region(step, job, true);
        leave_flow(step, job);
        answer_nack(step, job, reason);
        tell(step, job, BOUNCE_RECV_ACT_ENDED);
        return;
    }
    if (swap_word(job, BOUNCE_JOB_TAKEN, BOUNCE_JOB_REVOKED))
        job->reason = (uint8_t)reason; /* answered when it is given back */
}

void recv_jobs_leave(struct recv_step *step, struct bounce_recv_flow *flow,
                     enum msg_nack_reason reason, bool clean)
{
    struct arena *arena = step->recv->params.arena;
    struct list *node;

    while ((node = list_first(&flow->jobs)) != NULL) {
        struct bounce_job *job = list_object(node, struct bounce_job, link);

        if (atomic_load(&job->word) == BOUNCE_JOB_IDLE) {
            if (!clean) {
                arena_quarantine(arena, job->region, job->peer,
                                 step->now_ns + step->recv->params.timeout_ns);
                step->recv->counts.quarantined++;
            }
            leave_region(step, job, clean);
            drop_job(step, job);
            continue;
        }
        recv_job_revoke(step, job, reason);
        if (job->flow != NULL) { /* a worker has it */
            flow->jobs_out--;
            flow->credit.held--;
            arena_set_state(arena, job->region, ARENA_ORPHAN_SCATTER);
            leave_flow(step, job);
        }
    }
}

/* ---- DATA ----------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + BOUNCE_PACK_ALIGN - 1) / BOUNCE_PACK_ALIGN * BOUNCE_PACK_ALIGN;
}

/*
 * Runs are packed as the rules say, so that what they name is the chunk, all of it, and nothing
 * outside; and each piece's page is one that was lent. NULL = good.
 */
static const char *plan_wrong(const struct bounce_recv *recv, const struct bounce_job *job,
                              const struct msg_data *data)
{
    uint64_t len_bytes = arena_len(recv->params.arena, job->region);
    uint64_t limit = pieces_limit(recv, len_bytes);
    uint64_t pieces = 0, fill = 0;

    if (data->chunk != job->chunk || data->chunk_bytes != len_bytes)
        return "another chunk than the region's";
    if (data->run_count > limit)
        return "more runs than a chunk may have";
    for (uint32_t r = 0; r < data->run_count; r++) {
        const struct msg_run run = msg_run_get(data->runs_wire + (size_t)r * MSG_RUN_BYTES);

        pieces += run.pieces;
        if (run.pieces == 0 || run.piece_bytes == 0 || pieces > limit)
            return "more pieces than a chunk may have, or none";
        if (run.bounce != align_up(fill) ||
            (run.pieces > 1 && run.bounce_stride != align_up(run.piece_bytes)))
            return "pieces that are not packed";
        fill = run.bounce + (uint64_t)(run.pieces - 1) * run.bounce_stride + run.piece_bytes;
        if (fill > len_bytes)
            return "a piece outside the region";
        if (!recv->params.pages.inside(recv->params.pages.self, job->rid, job->tag, &run))
            return "a piece outside the pages of the request";
    }
    return fill == len_bytes ? NULL : "fewer bytes than the chunk has";
}

static void refuse_data(struct recv_step *step, struct bounce_job *job, enum msg_nack_reason reason)
{
    struct bounce_recv_flow *flow = job->flow;

    answer_nack(step, job, reason);
    flow->answered++;
    leave_region(step, job, true);
    drop_job(step, job);
    recv_flow_maybe_over(step, flow);
}

static void stale_data(struct recv_step *step, uint32_t peer, const struct msg_data *data)
{
    step->recv->counts.stale++;
    recv_nack(step, peer,
              &(struct msg_nack){.flow = data->flow,
                                 .scope = MSG_NACK_CHUNK,
                                 .chunk = data->chunk,
                                 .region = data->region,
                                 .reason = MSG_NACK_STALE_REGION});
}

/* The job of the region that the DATA names, if it is that flow's; NULL: stale. */
static struct bounce_job *data_job(const struct bounce_recv *recv, uint32_t peer,
                                   const struct msg_data *data)
{
    const struct arena_handle handle = {data->region.offset, data->region.generation};
    uint32_t region = arena_find(recv->params.arena, handle);
    struct bounce_job *job;

    if (region == ARENA_NONE || arena_state(recv->params.arena, region) >= ARENA_QUARANTINE)
        return NULL;
    job = &recv->jobs[arena_owner(recv->params.arena, region)];
    return job->peer == peer && job->flow_id == data->flow ? job : NULL;
}

static void queue_job(struct recv_step *step, struct bounce_job *job, const struct msg_data *data)
{
    struct bounce_recv *recv = step->recv;
    struct bounce_recv_action action = {.kind = BOUNCE_RECV_ACT_SCATTER, .peer = job->peer};

    memcpy(recv->runs + (job->runs - recv->runs), data->runs_wire,
           (size_t)data->run_count * MSG_RUN_BYTES);
    job->run_count = data->run_count;
    arena_set_state(recv->params.arena, job->region, ARENA_QUEUED);
    job->flow->jobs_out++;
    recv->counts.jobs++;
    recv->counts.scatters++;
    tell(step, job, BOUNCE_RECV_ACT_BEGAN); /* before any worker can see it */
    atomic_store(&job->word, BOUNCE_JOB_QUEUED);
    action.rid = job->rid;
    action.tag = job->tag;
    action.u.job = job;
    step->out->emit(step->out->self, &action);
}

void recv_job_data(struct recv_step *step, uint32_t peer, const struct msg_data *data)
{
    struct bounce_recv *recv = step->recv;
    struct bounce_job *job = data_job(recv, peer, data);
    struct bounce_log log = {.level = KVF_LOG_WARN,
                             .what = "",
                             .flow = data->flow,
                             .numbers = {data->chunk},
                             .number_count = 1};
    const char *wrong;

    recv->counts.datas++;
    if (job == NULL) {
        stale_data(step, peer, data);
        return;
    }
    if (atomic_load(&job->word) != BOUNCE_JOB_IDLE) {
        recv->counts.duplicates++;
        log.event = "W11";
        log.text = "DATA came again: chunk";
        bounce_recv_log(step, peer, &log);
        return; /* the answer to the first one is the answer */
    }
    if (job->flow->fenced) {
        refuse_data(step, job, recv->shutdown ? MSG_NACK_CLOSING : MSG_NACK_FENCED);
        return;
    }
    wrong = plan_wrong(recv, job, data);
    if (wrong != NULL) {
        recv->counts.refused_plans++;
        log.event = "W14";
        log.text = "scatter plan refused: chunk";
        log.what = wrong;
        bounce_recv_log(step, peer, &log);
        refuse_data(step, job, MSG_NACK_BAD_PLAN);
        return;
    }
    queue_job(step, job, data);
}

/* ---- what a worker gives back --------------------------------------------------------------- */

static void job_answer(struct recv_step *step, struct bounce_job *job, enum bounce_job_end end)
{
    switch (end) {
    case BOUNCE_JOB_RAN:
        answer_ack(step, job);
        tell(step, job, BOUNCE_RECV_ACT_ENDED);
        return;
    case BOUNCE_JOB_FAILED:
        bounce_recv_log(step, job->peer,
                        &(struct bounce_log){.level = KVF_LOG_WARN,
                                             .event = "W15",
                                             .text = "scatter failed: chunk",
                                             .what = "",
                                             .flow = job->flow_id,
                                             .rid = job->rid,
                                             .numbers = {job->chunk},
                                             .number_count = 1});
        answer_nack(step, job, MSG_NACK_SCATTER_FAILED);
        tell(step, job, BOUNCE_RECV_ACT_FAILED);
        return;
    case BOUNCE_JOB_NOT_RUN:
        answer_nack(step, job, (enum msg_nack_reason)job->reason);
        tell(step, job, BOUNCE_RECV_ACT_ENDED);
        return;
    }
}

void recv_job_done(struct recv_step *step, struct bounce_job *job, enum bounce_job_end end)
{
    struct bounce_recv_flow *flow = job->flow;
    bool started = atomic_load(&job->word) == BOUNCE_JOB_RUNNING;

    if (started != (end != BOUNCE_JOB_NOT_RUN) ||
        atomic_load(&job->word) == BOUNCE_JOB_IDLE) { /* a worker that breaks its contract */
        step->recv->counts.unexpected_events++;
        return;
    }
    atomic_store(&job->word, BOUNCE_JOB_IDLE);
    if (job->answered) { /* taken back before a worker had it: all is said */
        drop_job(step, job);
        return;
    }
    step->recv->counts.jobs--;
    job_answer(step, job, end);
    if (flow == NULL) {
        leave_region(step, job, true);
        drop_job(step, job);
        return;
    }
    flow->jobs_out--;
    flow->answered++;
    leave_region(step, job, true);
    drop_job(step, job);
    recv_flow_progress(step, flow);
    recv_flow_maybe_over(step, flow);
}

/* ---- for tests ------------------------------------------------------------------------------ */

uint32_t bounce_recv_running(const struct bounce_recv *recv, uint64_t rid, uint32_t tag)
{
    uint32_t count = 0;

    for (uint32_t j = 0; j < recv->params.jobs_max; j++) {
        const struct bounce_job *job = &recv->jobs[j];

        if (job->rid == rid && job->tag == tag && !job->answered &&
            atomic_load(&job->word) != BOUNCE_JOB_IDLE)
            count++;
    }
    return count;
}

struct sums {
    uint64_t bytes, runs_bytes;
    uint32_t jobs;
};

static void check_job(const struct bounce_recv *recv, const struct bounce_job *job,
                      struct sums *sums)
{
    const struct arena *arena = recv->params.arena;
    unsigned word = atomic_load(&job->word);

    sums->runs_bytes +=
        arena_block_bytes(recv->runs_arena, arena_len(recv->runs_arena, job->runs_region));
    if (job->region == ARENA_NONE) {
        KVF_ASSERT(job->flow == NULL && job->answered && word == BOUNCE_JOB_REVOKED);
        return;
    }
    sums->bytes += job->block_bytes;
    KVF_ASSERT(arena_owner(arena, job->region) == (uint64_t)(job - recv->jobs));
    KVF_ASSERT(arena_handle(arena, job->region).generation == job->handle.generation);
    KVF_ASSERT(!job->answered);
    sums->jobs += word != BOUNCE_JOB_IDLE;
    if (job->flow == NULL)
        KVF_ASSERT(word != BOUNCE_JOB_IDLE &&
                   arena_state(arena, job->region) == ARENA_ORPHAN_SCATTER);
    else
        KVF_ASSERT(arena_state(arena, job->region) ==
                   (word == BOUNCE_JOB_IDLE ? ARENA_GRANTED : ARENA_QUEUED));
}

static void check_flow(const struct bounce_recv *recv, const struct bounce_recv_flow *flow,
                       struct sums *sums)
{
    uint32_t held = 0, out = 0;

    for (struct list *node = list_first(&flow->jobs); node != NULL;
         node = list_after(&flow->jobs, node)) {
        const struct bounce_job *job = list_object(node, struct bounce_job, link);

        KVF_ASSERT(job->flow == flow && job->peer == flow->peer && job->flow_id == flow->id);
        check_job(recv, job, sums);
        held++;
        out += atomic_load(&job->word) != BOUNCE_JOB_IDLE;
    }
    KVF_ASSERT(held == flow->credit.held && held <= recv->params.window);
    KVF_ASSERT(out == flow->jobs_out);
    KVF_ASSERT(list_empty(&flow->credit.link) == (flow->next == flow->chunk_count || flow->fenced));
    KVF_ASSERT(flow->answered + held == flow->next || flow->fenced);
    KVF_ASSERT(held > 0 || (flow->next < flow->chunk_count && !flow->fenced));
}

void bounce_recv_check(const struct bounce_recv *recv)
{
    const struct arena_counts *counts = arena_counts(recv->params.arena);
    const struct arena_counts *runs = arena_counts(recv->runs_arena);
    uint64_t held = 0, before_ns = 0;
    struct sums sums = {0};
    uint32_t flows = 0;

    for (struct list *node = list_first(&recv->by_time); node != NULL;
         node = list_after(&recv->by_time, node)) {
        const struct bounce_recv_flow *flow = list_object(node, struct bounce_recv_flow, by_time);

        KVF_ASSERT(flow->progress_ns >= before_ns);
        before_ns = flow->progress_ns;
        check_flow(recv, flow, &sums);
        flows++;
    }
    KVF_ASSERT(flows == recv->counts.flows);
    for (struct list *node = list_first(&recv->flowless); node != NULL;
         node = list_after(&recv->flowless, node))
        check_job(recv, list_object(node, struct bounce_job, link), &sums);
    for (uint32_t p = 0; p < recv->params.world_size; p++)
        held += recv->peers[p].held_bytes;
    KVF_ASSERT(held == sums.bytes && sums.jobs == recv->counts.jobs);
    KVF_ASSERT(sums.bytes == counts->usable_bytes - counts->state_bytes[ARENA_FREE] -
                                 counts->state_bytes[ARENA_QUARANTINE] -
                                 counts->state_bytes[ARENA_POISONED]);
    KVF_ASSERT(sums.runs_bytes == runs->usable_bytes - runs->state_bytes[ARENA_FREE]);
    credit_check(&recv->credit);
    arena_check(recv->params.arena);
    arena_check(recv->runs_arena);
}
