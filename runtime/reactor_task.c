/*
 * reactor_task.c - the writes of a context rank: planned, copied or put, flushed, reported to the
 * send machine. The rung is path_choose()'s; this file only carries it out.
 */
#include "reactor_internal.h"

#include <string.h>

/* ---- open and close ------------------------------------------------------------------------- */

static uint32_t tasks_stripes_max(const struct reactor *reactor)
{
    uint32_t most = 1;

    for (uint32_t p = 0; p < reactor->kvf->peers.count; p++) {
        const struct peer *peer = &reactor->kvf->peers.list[p];

        if (peer->template != NULL && plan_stripes_max(peer->template) > most)
            most = plan_stripes_max(peer->template);
    }
    return most;
}

/* The largest plan there can be, and room for ordinary ones beside it; a pair is two words. */
static uint64_t tasks_pair_words(const struct reactor *reactor)
{
    uint64_t most = 0;

    for (uint32_t p = 0; p < reactor->kvf->peers.count; p++) {
        const struct peer *peer = &reactor->kvf->peers.list[p];
        uint32_t blocks = peer->blocks_max < MSG_BLOCKS_MAX ? peer->blocks_max : MSG_BLOCKS_MAX;

        if (peer->template != NULL && plan_pairs_max(peer->template, blocks) > most)
            most = plan_pairs_max(peer->template, blocks);
    }
    return most * 2 + reactor->kvf->settings.blocks_max * 4 + 4096;
}

enum kvf_status tasks_open(struct reactor *reactor)
{
    const struct kvf_heap *heap = &reactor->kvf->heap.table;
    const struct geo_record *record = reactor->kvf->record;
    uint32_t pools = record->layout.pool_count;
    uint64_t pair_words = tasks_pair_words(reactor);

    list_init(&reactor->unused);
    list_init(&reactor->active);
    if (reactor->kvf->place.side != KVF_CONTEXT)
        return KVF_OK;
    reactor->stripes_max = tasks_stripes_max(reactor);
    reactor->tasks = kvf_alloc(heap, REACTOR_TASKS, sizeof(*reactor->tasks));
    reactor->stripes =
        kvf_alloc(heap, (size_t)REACTOR_TASKS * reactor->stripes_max, sizeof(*reactor->stripes));
    reactor->own_addresses = kvf_alloc(heap, (size_t)pools + 1, sizeof(*reactor->own_addresses));
    if (reactor->tasks == NULL || reactor->stripes == NULL || reactor->own_addresses == NULL)
        return KVF_E_NOMEM;
    for (uint32_t p = 0; p < pools; p++)
        reactor->own_addresses[p] = record->pools[p].base;
    for (uint32_t t = 0; t < REACTOR_TASKS; t++) {
        reactor->tasks[t].stripes = &reactor->stripes[(size_t)t * reactor->stripes_max];
        list_push(&reactor->unused, &reactor->tasks[t].link);
    }
    return store_open(heap, pair_words > STORE_WORDS_MAX ? STORE_WORDS_MAX : (uint32_t)pair_words,
                      REACTOR_TASKS, &reactor->pairs);
}

void tasks_close(struct reactor *reactor)
{
    const struct kvf_heap *heap = &reactor->kvf->heap.table;

    store_close(reactor->pairs);
    kvf_release(heap, reactor->own_addresses);
    kvf_release(heap, reactor->stripes);
    kvf_release(heap, reactor->tasks);
}

/* ---- begin and end -------------------------------------------------------------------------- */

void task_add(struct reactor *reactor, const struct send_start *start)
{
    struct list *node = list_pop(&reactor->unused);
    struct reactor_task *task;

    KVF_ASSERT(node != NULL); /* the machine starts at most REACTOR_TASKS */
    task = list_object(node, struct reactor_task, link);
    *task = (struct reactor_task){
        .link = task->link,
        .state = TASK_WAITING,
        .start = *start,
        .peer = peer_of_rank(&reactor->kvf->peers, start->receiver),
        .stripes = task->stripes,
    };
    list_push(&reactor->active, &task->link);
}

static struct reactor_task *task_find(struct reactor *reactor, uint64_t id)
{
    for (struct list *node = list_first(&reactor->active); node != NULL;
         node = list_after(&reactor->active, node)) {
        struct reactor_task *task = list_object(node, struct reactor_task, link);

        if (task->start.task == id)
            return task;
    }
    return NULL;
}

void task_abort(struct reactor *reactor, uint64_t id)
{
    struct reactor_task *task = task_find(reactor, id);

    if (task == NULL)
        return;
    task->abort = true;
    atomic_store_explicit(&task->job.stop, true, memory_order_relaxed);
}

static struct send_event task_event(const struct reactor_task *task, enum send_event_kind kind,
                                    enum kvf_status status)
{
    return (struct send_event){
        .kind = kind,
        .u.task =
            {
                .task = task->start.task,
                .status = status,
                .bytes = status == KVF_OK ? task->totals.bytes : 0,
                .path = task->path,
            },
    };
}

static void task_free(struct reactor *reactor, struct reactor_task *task)
{
    store_free(reactor->pairs, task->pairs);
    task->pairs = NULL;
    task->state = TASK_UNUSED;
    list_remove(&task->link);
    list_push(&reactor->unused, &task->link);
}

/* The write is over, and so is every access. */
static void task_close(struct reactor *reactor, struct reactor_task *task, enum kvf_status status)
{
    struct send_event event =
        task_event(task, task->state == TASK_DOUBT ? SEND_TASK_SETTLED : SEND_TASK_ENDED, status);

    task_free(reactor, task); /* first: the step may start another one */
    send_glue_step(reactor, &event);
}

/* As task_close(), after the self check of what is well. */
static void task_end(struct reactor *reactor, struct reactor_task *task, enum kvf_status status)
{
    if (status == KVF_OK && check_begin(reactor, task))
        task->state = TASK_CHECK;
    else
        task_close(reactor, task, status);
}

static void task_check(struct reactor *reactor, struct reactor_task *task, uint64_t *budget_bytes)
{
    if (task->abort)
        task_close(reactor, task, KVF_E_CANCELLED);
    else if (check_step(reactor, task, budget_bytes))
        task_close(reactor, task, KVF_OK);
}

static void task_doubt(struct reactor *reactor, struct reactor_task *task)
{
    struct send_event event = task_event(task, SEND_TASK_IN_DOUBT, task->failed);

    task->state = TASK_DOUBT;
    send_glue_step(reactor, &event);
}

/* ---- planning ------------------------------------------------------------------------------- */

static void task_request(const struct reactor_task *task, struct plan_request *request_out,
                         struct plan_piece *piece_out)
{
    const struct send_start *start = &task->start;

    *request_out = (struct plan_request){
        .prompt_tokens = start->prompt_tokens,
        .src = start->src,
        .src_count = start->src_count,
        .dst = start->dst,
        .dst_count = start->dst_count,
        .src_aux_slot = PLAN_NO_SLOT,
        .dst_aux_slot = PLAN_NO_SLOT,
    };
    *piece_out = (struct plan_piece){
        .token_first = start->window.token_first,
        .token_end = start->window.token_end,
        .layer_first = start->window.layer_first,
        .layer_end = start->window.layer_end,
        .last = start->window.last,
    };
}

/* The rung and the totals. Errors end the task. */
static enum kvf_status task_choose(struct reactor *reactor, struct reactor_task *task,
                                   const struct plan_request *request,
                                   const struct plan_piece *piece)
{
    struct kvf *kvf = reactor->kvf;
    struct geo_text text = {{0}};
    enum path_reason reason;
    enum kvf_status status;

    if (task->peer->template == NULL)
        return task->peer->verdict != KVF_OK ? task->peer->verdict : KVF_E_INCOMPATIBLE;
    status = plan_check_request(task->peer->template, request, piece, &text);
    if (status != KVF_OK) {
        log_warn(&kvf->logger, "W38", "request %llu to %s: %s: %s",
                 (unsigned long long)task->start.rid, task->peer->name, kvf_status_text(status),
                 text.s);
        return status;
    }
    plan_count(task->peer->template, request, piece, &task->totals);
    status = path_choose(&task->peer->facts, task->totals.bytes, &task->path, &reason);
    if (status != KVF_OK)
        log_warn(&kvf->logger, "", "request %llu to %s: %s: %s",
                 (unsigned long long)task->start.rid, task->peer->name, kvf_status_text(status),
                 path_reason_text(reason));
    return status;
}

/* Stripes and pairs. BUSY: no room at present. */
static enum kvf_status task_fill(struct reactor *reactor, struct reactor_task *task,
                                 const struct plan_request *request, const struct plan_piece *piece)
{
    const struct plan_addresses addresses = {
        .src = reactor->own_addresses,
        .dst = task->path == KVF_PATH_MAPPED ? task->peer->mapped_addresses
                                             : task->peer->remote_addresses,
    };
    uint32_t pairs_max = task->totals.blocks + plan_lists_count(task->peer->template);
    struct plan_scratch scratch = {
        .stripes = task->stripes,
        .stripes_max = reactor->stripes_max,
        .pairs_max = pairs_max,
    };
    struct plan_filled filled;
    enum kvf_status status = store_take(reactor->pairs, pairs_max * 2, &task->pairs);

    if (status != KVF_OK)
        return status;
    scratch.pairs = (struct stripe_pair *)task->pairs; /* two words each */
    status = plan_fill(task->peer->template, request, piece, &addresses, &scratch, &filled);
    if (status == KVF_OK) {
        task->stripe_count = filled.stripe_count;
        metrics_add(&reactor->kvf->metrics.fragments, filled.totals.fragments);
    }
    return status;
}
_Static_assert(sizeof(struct stripe_pair) == 2 * sizeof(uint32_t), "pairs lie in a store of words");

static void task_begin_mapped(struct reactor *reactor, struct reactor_task *task)
{
    uint64_t step_bytes = reactor->kvf->settings.copy_step_bytes;

    copy_cursor_init(&task->job.cursor, task->stripes, task->stripe_count);
    atomic_init(&task->job.stop, false);
    if (reactor->worker != NULL && task->totals.bytes > step_bytes &&
        copy_worker_give(reactor->worker, &task->job)) {
        task->state = TASK_WORKER;
        return;
    }
    task->state = TASK_COPY;
}

/* Plans a waiting task and begins it. False: it must wait on, and those behind it too. */
static bool task_begin(struct reactor *reactor, struct reactor_task *task)
{
    struct plan_request request;
    struct plan_piece piece;
    enum kvf_status status = KVF_OK;

    if (task->abort)
        status = KVF_E_CANCELLED;
    else if (task->peer->lost || task->peer->gone)
        status = KVF_E_PEER_LOST;
    if (status == KVF_OK) {
        task_request(task, &request, &piece);
        status = task_choose(reactor, task, &request, &piece);
    }
    if (status == KVF_OK && task->path != KVF_PATH_NONE)
        status = task_fill(reactor, task, &request, &piece);
    if (status == KVF_BUSY)
        return false;
    if (status != KVF_OK || task->path == KVF_PATH_NONE) {
        task_end(reactor, task, status);
        return true;
    }
    if (task->path == KVF_PATH_MAPPED) {
        task_begin_mapped(reactor, task);
        return true;
    }
    plan_walk_init(&task->walk, task->stripes, task->stripe_count);
    task->stripe_at = UINT32_MAX;
    task->state = TASK_PUTS;
    return true;
}

/* ---- mapped --------------------------------------------------------------------------------- */

/* One step by this thread; takes what it copies from the budget of the pass. */
static void task_copy(struct reactor *reactor, struct reactor_task *task, uint64_t *budget_bytes)
{
    uint64_t before = task->job.cursor.left_bytes;

    if (task->abort) {
        task_end(reactor, task, KVF_E_CANCELLED);
        return;
    }
    if (copy_host_step(&task->job.cursor, *budget_bytes)) {
        *budget_bytes -= before;
        task_end(reactor, task, KVF_OK);
    } else {
        *budget_bytes = 0;
    }
}

static bool tasks_collect(struct reactor *reactor)
{
    struct copy_job *job;
    bool worked = false;

    while (reactor->worker != NULL && (job = copy_worker_collect(reactor->worker)) != NULL) {
        struct reactor_task *task =
            (struct reactor_task *)((char *)job - offsetof(struct reactor_task, job));

        task_end(reactor, task, job->cursor.left_bytes == 0 ? KVF_OK : KVF_E_CANCELLED);
        worked = true;
    }
    return worked;
}

/* ---- direct --------------------------------------------------------------------------------- */

/* Source memory and remote of the stripe that the walk has come to. */
static void task_find_memory(struct reactor *reactor, struct reactor_task *task, uint32_t stripe)
{
    const struct stripe *at = &task->stripes[stripe];

    task->stripe_at = stripe;
    task->source = NULL;
    task->remote = NULL;
    for (struct kvf_pool *pool = reactor->kvf->pools; pool != NULL; pool = pool->next)
        if ((uint64_t)(uintptr_t)pool->base == at->src)
            task->source = pool->memory;
    for (uint32_t p = 0; p < task->peer->pool_count && task->remote == NULL; p++)
        if (task->peer->remote_addresses[p] == at->dst)
            task->remote = task->peer->remotes[p];
    KVF_ASSERT(task->remote != NULL);
}

/* The next fragment to put, with its memory; false when all were posted. */
static bool task_next(struct reactor *reactor, struct reactor_task *task)
{
    uint32_t stripe = task->walk.stripe;

    if (task->fragment.bytes != 0)
        return true; /* the transport had no room for it */
    if (!plan_walk_next(&task->walk, &task->fragment)) {
        task->fragment.bytes = 0;
        task->walked = true;
        return false;
    }
    if (stripe != task->stripe_at)
        task_find_memory(reactor, task, stripe);
    return true;
}

static void task_fail(struct reactor_task *task, enum kvf_status status)
{
    if (task->failed == KVF_OK)
        task->failed = status;
}

/* Posts one put. False: no more at present. */
static bool task_put(struct reactor *reactor, struct reactor_task *task)
{
    struct metrics *metrics = &reactor->kvf->metrics;
    const struct transport_put put = {
        .remote = task->remote,
        .source = task->source,
        .local = (const void *)(uintptr_t)task->fragment.src,
        .address = task->fragment.dst,
        .len_bytes = task->fragment.bytes,
        .token = REACTOR_TOKEN(TOKEN_PUT) + (uint32_t)(task - reactor->tasks),
    };
    enum kvf_status status = reactor->transport->put(reactor->transport->self, &put);

    if (status == KVF_BUSY)
        return false;
    if (status < 0) {
        task_fail(task, KVF_E_TRANSFER);
        return false;
    }
    metrics_add(&metrics->puts_posted, 1);
    metrics_add(&metrics->wire_bytes, put.len_bytes);
    task->fragment.bytes = 0;
    task->posted = true;
    if (status == KVF_AGAIN) {
        task->inflight++;
        task->peer->puts_inflight++;
        metrics_peak(&metrics->puts_inflight_max, ++reactor->puts_inflight);
    }
    return true;
}

static bool task_puts(struct reactor *reactor, struct reactor_task *task)
{
    uint64_t window = reactor->kvf->settings.direct_window;
    uint32_t posted = 0;

    while (posted < REACTOR_TASK_PUTS && task->peer->puts_inflight < window && !task->abort &&
           task->failed == KVF_OK && task_next(reactor, task) && task_put(reactor, task))
        posted++;
    return posted > 0;
}

/* All posted puts are then in place, or known not to be. */
static void task_flush(struct reactor *reactor, struct reactor_task *task)
{
    struct transport *transport = reactor->transport;
    enum transport_plane plane = task->peer->near ? TRANSPORT_NEAR : TRANSPORT_FAR;
    enum kvf_status status;

    if (task->remote != NULL)
        plane = transport->remote_plane(task->remote);
    status = transport->flush(transport->self, task->peer->world_rank, plane,
                              REACTOR_TOKEN(TOKEN_FLUSH) + (uint32_t)(task - reactor->tasks));
    if (status == KVF_BUSY)
        return;
    task->state = TASK_FLUSH;
    task->flushing = status == KVF_AGAIN;
    if (status < 0) {
        task_fail(task, KVF_E_TRANSFER);
        task_doubt(reactor, task);
    }
}

static void task_direct_end(struct reactor *reactor, struct reactor_task *task)
{
    enum kvf_status status = task->failed;

    if (task->flushing || task->inflight > 0)
        return;
    if (status == KVF_OK && !task->walked)
        status = KVF_E_CANCELLED;
    task_end(reactor, task, status);
}

static bool task_direct(struct reactor *reactor, struct reactor_task *task)
{
    bool worked = task_puts(reactor, task);
    bool over = task->walked || task->abort || task->failed != KVF_OK;

    /* After a failure the flush proves what it can only once all completions are known. */
    if (over && !task->posted) {
        task_direct_end(reactor, task);
        return true;
    }
    if (over && (task->inflight == 0 || (task->walked && task->failed == KVF_OK && !task->abort))) {
        task_flush(reactor, task);
        worked = true;
    }
    return worked;
}

void task_put_done(struct reactor *reactor, uint32_t index, enum kvf_status status)
{
    struct reactor_task *task = &reactor->tasks[index];

    KVF_ASSERT(task->inflight > 0);
    task->inflight--;
    task->peer->puts_inflight--;
    reactor->puts_inflight--;
    if (status != KVF_OK)
        task_fail(task, KVF_E_TRANSFER);
}

void task_flush_done(struct reactor *reactor, uint32_t index, enum kvf_status status)
{
    struct reactor_task *task = &reactor->tasks[index];

    task->flushing = false;
    if (status != KVF_OK) {
        task_fail(task, KVF_E_TRANSFER);
        task_doubt(reactor, task);
    }
}

/* ---- all ------------------------------------------------------------------------------------ */

static bool task_move(struct reactor *reactor, struct reactor_task *task, uint64_t *budget_bytes)
{
    bool worked = false;

    if (task->state == TASK_WAITING && !reactor->pairs_short) {
        worked = task_begin(reactor, task);
        reactor->pairs_short = !worked; /* a large plan is not overtaken for ever */
    }
    switch (task->state) {
    case TASK_UNUSED:
    case TASK_WAITING:
    case TASK_WORKER:
        return worked;
    case TASK_DOUBT:
        /* Nothing of it is under way here, and nobody is left who could be told more. */
        if ((!task->peer->lost && !task->peer->gone) || task->inflight > 0 || task->flushing)
            return worked;
        task_end(reactor, task, task->failed);
        return true;
    case TASK_COPY:
        if (*budget_bytes == 0)
            return worked;
        task_copy(reactor, task, budget_bytes);
        return true;
    case TASK_CHECK:
        if (*budget_bytes == 0)
            return worked;
        task_check(reactor, task, budget_bytes);
        return true;
    case TASK_PUTS:
        return task_direct(reactor, task) || worked;
    case TASK_FLUSH:
        if (task->flushing || task->inflight > 0)
            return worked;
        task_direct_end(reactor, task);
        return true;
    }
    return worked;
}

bool tasks_pump(struct reactor *reactor)
{
    uint64_t budget_bytes = reactor->kvf->settings.copy_step_bytes;
    bool worked = tasks_collect(reactor);
    struct list *node = list_first(&reactor->active);

    reactor->pairs_short = false;
    /* A task that ends may start others: they stand at the end of the list. */
    while (node != NULL) {
        struct reactor_task *task = list_object(node, struct reactor_task, link);
        struct list *next = list_after(&reactor->active, node);

        worked = task_move(reactor, task, &budget_bytes) || worked;
        node = next;
    }
    return worked;
}

bool tasks_ready(const struct reactor *reactor)
{
    for (struct list *node = list_first(&reactor->active); node != NULL;
         node = list_after(&reactor->active, node)) {
        const struct reactor_task *task = list_object(node, struct reactor_task, link);

        if (task->state == TASK_COPY || task->state == TASK_CHECK || task->state == TASK_WAITING)
            return true;
    }
    return false;
}
