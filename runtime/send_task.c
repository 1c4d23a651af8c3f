/*
 * send_task.c - running writes: one a (receiver, slice) (docs/protocol.md, send task).
 *
 * Queued tasks are not stored: a receiver begins the windows of its session in order, and a window
 * that it has not begun is its queue. What runs takes one of a bounded number of places.
 */
#include "check.h"
#include "send_internal.h"

uint64_t send_task_id(const struct send_side *side, const struct send_task *task)
{
    return (uint64_t)task->generation << 32 | (uint32_t)(task - side->tasks);
}

static struct send_task *task_find(const struct send_side *side, uint64_t id)
{
    uint32_t index = (uint32_t)id;
    struct send_task *task;

    if (index >= side->params.tasks_max)
        return NULL;
    task = &side->tasks[index];
    return task->state != SEND_TASK_FREE && send_task_id(side, task) == id ? task : NULL;
}

/* The window that `receiver` begins next, or NULL; it may not be ready. */
static struct send_part *next_part(const struct send_receiver *receiver)
{
    const struct send_session *session = receiver->record->session;
    struct list *node = receiver->begun == NULL
                            ? list_first(&session->parts)
                            : list_after(&session->parts, &receiver->begun->node);

    return node == NULL ? NULL : list_object(node, struct send_part, node);
}

void send_task_schedule(struct send_side *side, struct send_receiver *receiver)
{
    struct send_session *session = receiver->record->session;
    struct send_part *part;

    if (!send_live_under_way(session) || receiver->final.kind != SEND_FINAL_NONE)
        return;
    part = next_part(receiver);
    if (part == NULL || !part->ready)
        return;
    receiver->queued = true;
    session->state = SEND_SESSION_SENDING;
    if (list_empty(&receiver->start.node))
        send_due_push(side, &receiver->start);
}

static void fill_start(const struct send_side *side, const struct send_task *task,
                       const struct send_part *part, struct send_action *action_out)
{
    const struct send_receiver *receiver = task->receiver;
    const struct send_session *session = receiver->record->session;

    action_out->kind = SEND_ACT_TASK_START;
    action_out->peer = receiver->rank;
    action_out->u.start = (struct send_start){
        .task = send_task_id(side, task),
        .rid = receiver->record->rid,
        .receiver = receiver->rank,
        .tag = receiver->tag,
        .slice = part->slice,
        .prompt_tokens = session->prompt_tokens,
        .flags = receiver->flags,
        .window = part->window,
        .src = session->lists,
        .src_count = session->list_count,
        .dst = receiver->lists,
        .dst_count = receiver->list_count,
    };
}

bool send_task_start(struct send_side *side, struct send_receiver *receiver,
                     struct send_action *action_out)
{
    struct send_session *session = receiver->record->session;
    struct send_part *part = next_part(receiver);
    struct send_task *task;
    struct list *node;

    list_remove(&receiver->start.node);
    if (part == NULL || !part->ready || !send_live_under_way(session))
        return false;
    node = list_pop(&side->free_tasks);
    if (node == NULL) {
        list_push(&side->starved, &receiver->start.node);
        return false;
    }
    task = list_object(node, struct send_task, of_receiver);
    task->receiver = receiver;
    task->state = SEND_TASK_RUNNING;
    task->generation++;
    task->slice = part->slice;
    task->last = part->window.last;
    task->bytes = 0;
    task->path = KVF_PATH_NONE;
    task->due_ns = side->now_ns + side->params.times.transfer_timeout_ns;
    list_push(&receiver->tasks, &task->of_receiver);
    list_push(&side->running, &task->waiting);
    receiver->begun = part;
    receiver->begun_count++;
    receiver->access++;
    session->access++;
    side->counts.tasks++;
    if (!session->sent_any)
        send_live_arm(side, session, SEND_TIMER_SENDING);
    session->sent_any = true;
    fill_start(side, task, part, action_out);
    part = next_part(receiver);
    if (part != NULL && part->ready)
        send_due_push(side, &receiver->start);
    return true;
}

void send_task_abort_all(struct send_side *side, struct send_receiver *receiver)
{
    for (struct list *node = list_first(&receiver->tasks); node != NULL;
         node = list_after(&receiver->tasks, node)) {
        struct send_task *task = list_object(node, struct send_task, of_receiver);

        if (task->state == SEND_TASK_RUNNING)
            send_due_push(side, &task->abort);
    }
}

void send_task_free(struct send_side *side, struct send_task *task)
{
    struct list *node;

    list_remove(&task->of_receiver);
    list_remove(&task->waiting);
    list_remove(&task->abort.node);
    task->state = SEND_TASK_FREE;
    task->receiver = NULL;
    list_push(&side->free_tasks, &task->of_receiver);
    node = list_pop(&side->starved);
    if (node != NULL)
        send_due_push(side, list_object(node, struct send_due, node));
}

/* The task's access is over. */
static void leave(struct send_side *side, struct send_task *task)
{
    if (task->state == SEND_TASK_DOUBT)
        side->counts.doubts--;
    list_remove(&task->waiting);
    list_remove(&task->abort.node);
    task->receiver->access--;
    task->receiver->record->session->access--;
    side->counts.tasks--;
}

static void note_bytes(struct send_side *side, struct send_task *task,
                       const struct send_event *event)
{
    struct send_session *session = task->receiver->record->session;

    task->bytes = event->u.task.bytes;
    task->path = event->u.task.path;
    session->payload_bytes += task->bytes;
    side->counts.payload_bytes += task->bytes;
    if (event->u.task.status != KVF_OK || (unsigned)task->path >= KVF_PATH_COUNT)
        return;
    session->path_mask |= 1u << task->path;
    side->counts.path_writes[task->path]++;
}

static void ended_well(struct send_side *side, struct send_task *task)
{
    struct send_receiver *receiver = task->receiver;
    bool queued;

    task->state = SEND_TASK_REPORTING;
    task->report_id = ++side->report_next;
    queued = send_result_push(side, receiver->rank, receiver->epoch, &task->result);
    send_live_slice_done(side, task); /* its vote comes after the report */
    if (!queued)
        send_task_free(side, task);
}

/* Ended, or settled, without a slice that may be reported. */
static void ended_without(struct send_side *side, struct send_task *task, bool unanswered)
{
    struct send_receiver *receiver = task->receiver;

    receiver->unanswered = receiver->unanswered || unanswered;
    receiver->failed = true;
    receiver->failed_slice = task->slice;
    send_task_free(side, task);
    send_live_task_gone(side, receiver);
}

static void task_ended(struct send_side *side, struct send_task *task,
                       const struct send_event *event)
{
    struct send_session *session = task->receiver->record->session;
    struct send_end end = {
        .outcome = SESSION_FAILED, .code = event->u.task.status, .culprit = KVF_UNKNOWN};
    bool running = send_live_under_way(session);

    leave(side, task);
    note_bytes(side, task, event);
    if (running && event->u.task.status == KVF_OK) {
        ended_well(side, task);
        return;
    }
    if (running) {
        struct send_receiver *receiver = task->receiver;

        receiver->failed = true;
        receiver->failed_slice = task->slice;
        receiver->unanswered = event->u.task.unanswered;
        send_task_free(side, task);
        send_log_request(side, &(struct session_note){KVF_LOG_WARN, "", "write failed"},
                         session->record, event->u.task.status, receiver->rank);
        send_live_turn_bad(side, session, &end);
        return;
    }
    ended_without(side, task, event->u.task.unanswered);
}

static void task_in_doubt(struct send_side *side, struct send_task *task,
                          const struct send_event *event)
{
    struct send_receiver *receiver = task->receiver;
    struct send_session *session = receiver->record->session;
    struct send_end end = {.outcome = SESSION_FAILED,
                           .code = event->u.task.status,
                           .culprit = KVF_UNKNOWN,
                           .told = receiver};

    task->state = SEND_TASK_DOUBT;
    side->counts.doubts++;
    list_remove(&task->abort.node);
    if (send_live_under_way(session)) {
        send_log_request(side, &(struct session_note){KVF_LOG_WARN, "", "write in doubt"},
                         session->record, event->u.task.status, receiver->rank);
        send_live_turn_bad(side, session, &end);
    }
    if (receiver->doubted)
        return;
    receiver->doubted = true;
    receiver->doubt_slice = task->slice;
    receiver->doubt_code = event->u.task.status;
    send_result_push(side, receiver->rank, receiver->epoch, &receiver->doubt);
}

void send_task_event(struct send_side *side, const struct send_event *event)
{
    struct send_task *task = task_find(side, event->u.task.task);
    enum send_task_state state = task == NULL ? SEND_TASK_FREE : task->state;
    bool fails = event->u.task.status < 0;

    if (event->kind == SEND_TASK_ENDED && state == SEND_TASK_RUNNING) {
        task_ended(side, task, event);
    } else if (event->kind == SEND_TASK_IN_DOUBT && state == SEND_TASK_RUNNING && fails) {
        task_in_doubt(side, task, event);
    } else if (event->kind == SEND_TASK_SETTLED && state == SEND_TASK_DOUBT) {
        leave(side, task);
        ended_without(side, task, event->u.task.unanswered);
    } else {
        side->counts.unexpected_events++;
    }
}

void send_task_tick(struct send_side *side)
{
    struct list *node;

    while ((node = list_first(&side->running)) != NULL) {
        struct send_task *task = list_object(node, struct send_task, waiting);

        if (task->due_ns > side->now_ns)
            break;
        task->due_ns = side->now_ns + side->params.times.transfer_timeout_ns;
        list_remove(node);
        list_push(&side->running, node);
        send_log_request(side,
                         &(struct session_note){KVF_LOG_WARN, "W24", "a write is still running"},
                         task->receiver->record, KVF_OK, task->receiver->rank);
    }
}
