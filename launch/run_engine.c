/*
 * run_engine.c - the loop of one rank of `kvferry run`: one thread, one kvf_sweep() an iteration.
 *
 * A rank admits the jobs of its group in order, as soon as one may start, a slot of concurrency is
 * free and its pages are there (schedule.h says why that cannot block). Everything after is driven
 * by the sweep's events, which are the same on all ranks of the group.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launched.h"
#include "run.h"
#include "say.h"

#define RUN_EVENTS_MAX 64u
#define RUN_STEP_BYTES ((uint64_t)512 << 10) /* page work between two sweeps */
#define RUN_IDLE_YIELDS 64u
#define RUN_SLEEP_NS 50000        /* with live requests */
#define RUN_SLEEP_LONG_NS 1000000 /* with none */
#define RUN_STUCK_NS 20000000000u /* with requests that wait, after a rank was lost */
#define RUN_LEAVE_NS 1000000000u  /* with none */

/* Set by SIGUSR1: say what each live request waits for. */
static volatile sig_atomic_t run_dump_asked;

static void run_on_signal(int number)
{
    (void)number;
    run_dump_asked = 1;
}

uint64_t run_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double run_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static struct run_live *run_find(const struct run *run, kvf_req_id rid)
{
    struct run_live *live = run->live;

    while (live != NULL && run->schedule.jobs[live->job].rid != rid) {
        live = live->next;
    }
    return live;
}

/* The group's outcome of a job that this rank had not opened yet, or NULL. */
static const struct kvf_event *run_early(const struct run *run, uint32_t job)
{
    enum kvf_event_kind kind = run->early[job].kind;

    return kind == KVF_EVENT_FAILED || kind == KVF_EVENT_CANCELLED ? &run->early[job] : NULL;
}

static void run_step_to(struct run_live *live, enum run_step step)
{
    live->step = step;
    live->group_at = live->page_at = 0;
}

/* ---- admission ------------------------------------------------------------------------------- */

static struct run_live *run_live_make(const struct run *run, uint32_t job)
{
    struct run_live *live = calloc(1, sizeof(*live));

    if (live == NULL) {
        return NULL;
    }
    live->job = job;
    live->fault = faults_draw(&run->faults, run->options.seed, run->schedule.jobs[job].rid);
    live->pages = calloc((size_t)run->layout.group_count + 1, sizeof(*live->pages));
    live->aux = run_aux_bytes(run) > 0 ? calloc(1, run_aux_bytes(run)) : NULL;
    if (live->pages == NULL || (run_aux_bytes(run) > 0 && live->aux == NULL)) {
        run_live_free((struct run *)(uintptr_t)run, live);
        return NULL;
    }
    if (run->side == KVF_CONTEXT) {
        run_pieces_make(run, live);
    }
    return live;
}

/* How full the pools are, right after a request has got its pages. */
static void run_note_used(struct run *run)
{
    double used = 0;

    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        double share = 1 - (double)run->free[g].count / (double)run->free[g].room;

        used = share > used ? share : used;
    }
    run->sums.used_sum += used;
    run->sums.used_max = used > run->sums.used_max ? used : run->sums.used_max;
}

/* Admits the next job if it may start; `next` waits for its pages between calls. */
static bool run_admit(struct run *run, struct run_live **next, uint64_t now_ns)
{
    struct run_live **tail = &run->live;

    if (run->order_at == run->order_count || run->live_count >= run->options.concurrency ||
        now_ns - run->start_ns < run->schedule.jobs[run->order[run->order_at]].start_ns) {
        return false;
    }
    if (*next == NULL) {
        *next = run_live_make(run, run->order[run->order_at]);
        if (*next == NULL) {
            return false; /* no memory now; tried again */
        }
        (*next)->due_ns = now_ns;
    }
    if (!run_pages_take(run, *next)) {
        return false;
    }
    run_step_to(*next, RUN_CHECK_OUT);
    while (*tail != NULL) {
        tail = &(*tail)->next;
    }
    *tail = *next;
    *next = NULL;
    run->order_at++;
    run->live_count++;
    run_note_used(run);
    return true;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Lists for the library: on the generation side without the pages of the reused prefix. */
static void run_lists(const struct run *run, const struct run_live *live)
{
    struct kvf_block_list *lists = run->lists;

    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        const struct run_pages *pages = &live->pages[g];

        lists[g].first = pages->first + pages->shared;
        lists[g].count = pages->count - pages->shared;
        lists[g].slots = pages->slots + pages->shared;
    }
}

static enum kvf_status run_open_send(struct run *run, struct run_live *live)
{
    const struct schedule_job *job = &run->schedule.jobs[live->job];
    struct kvf_send_params params = KVF_SEND_PARAMS_INIT;

    if (live->aux != NULL) {
        run_aux_fill(run, job, live->aux);
    }
    params.rid = job->rid;
    params.prompt_tokens = job->prompt_tokens;
    params.destination = run_order_end(run, job);
    params.list_count = run->layout.group_count;
    params.lists = run->lists;
    params.aux = live->aux;
    return kvf_send_open(run->kvf, &params);
}

static enum kvf_status run_open_recv(struct run *run, struct run_live *live)
{
    const struct schedule_job *job = &run->schedule.jobs[live->job];
    struct kvf_recv_params params = KVF_RECV_PARAMS_INIT;

    params.rid = job->rid;
    params.prompt_tokens = run_fault_tokens(run, live);
    params.cached_tokens = job->cached_tokens;
    params.source = run_order_end(run, job);
    params.list_count = run->layout.group_count;
    params.lists = run->lists;
    params.aux = live->aux;
    params.synchronous = run->options.sync;
    return kvf_recv_open(run->kvf, &params);
}

enum kvf_status run_open_call(struct run *run, struct run_live *live)
{
    run_lists(run, live);
    if (run->side == KVF_GENERATION) {
        return run_open_recv(run, live);
    }
    run_fault_lists(run, live);
    return run_open_send(run, live);
}

/* Context: all blocks of a request that has no pieces. */
static void run_send_whole(struct run *run, struct run_live *live)
{
    uint64_t rid = run->schedule.jobs[live->job].rid;
    struct kvf_window window = run_piece_window(run, live, 0);
    enum kvf_status status;

    status = kvf_send_blocks(run->kvf, rid, &window);
    if (status != KVF_OK) {
        if (live->fault.fate == FAULT_NONE) {
            say("rank %d: request %llu: its blocks cannot be sent: %s", run->world_rank,
                (unsigned long long)rid, kvf_status_text(status));
        }
        kvf_cancel(run->kvf, rid);
    }
}

static void run_event(struct run *run, const struct kvf_event *event);

/* Never opened here: its last step. */
static void run_not_opened(struct run *run, struct run_live *live)
{
    live->released = true;
    run->ended++;
    run_step_to(live, run->side == KVF_CONTEXT ? RUN_HOLD : RUN_RESTORE);
}

/* What follows a right open. */
static void run_opened(struct run *run, struct run_live *live, uint64_t now_ns)
{
    live->open_ns = now_ns;
    if (run->side == KVF_GENERATION && run->moving++ == 0) {
        run->moving_since_ns = now_ns;
    }
    run_dump_note(run, live);
    run_step_to(live, live->piece_count > 0 ? RUN_PIECES : RUN_MOVE);
    run_fault_opened(run, live);
    run_order_tell(run, live->job);
    if (run->side == KVF_CONTEXT && live->piece_count == 0) {
        run_send_whole(run, live);
    }
    if (run_early(run, live->job) != NULL) {
        run_event(run, run_early(run, live->job));
    }
}

/* Opens a request; BUSY leaves it for the next iteration. */
static bool run_open(struct run *run, struct run_live *live)
{
    uint64_t now_ns = run_now();
    enum kvf_status status;

    if (!run_order_may_open(run, live->job)) {
        return false;
    }
    if (run_fault_skips(run, live)) {
        run_order_tell(run, live->job);
        run_not_opened(run, live);
        return true;
    }
    status = run_open_call(run, live);
    if (status == KVF_BUSY) {
        return false;
    }
    if (status != KVF_OK) {
        if (run_early(run, live->job) == NULL) {
            say("rank %d: request %llu cannot be opened: %s", run->world_rank,
                (unsigned long long)run->schedule.jobs[live->job].rid, kvf_status_text(status));
        }
        run->outcomes[live->job] |= RUN_FAILED;
        run_order_tell(run, live->job);
        run_not_opened(run, live);
        return true;
    }
    run_opened(run, live, now_ns);
    return true;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void run_stop_moving(struct run *run, uint64_t now_ns)
{
    if (run->side == KVF_GENERATION && --run->moving == 0) {
        run->sums.busy_ns += now_ns - run->moving_since_ns;
    }
}

/* The library's count of bytes against the pages that had to be filled. */
static void run_check_payload(struct run *run, const struct run_live *live, uint64_t payload_bytes)
{
    uint64_t wanted = 0;

    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        wanted +=
            (live->pages[g].count - live->pages[g].shared) * oracle_page_bytes(run->oracle, g);
    }
    if (payload_bytes != wanted) {
        say("rank %d: request %llu: %llu bytes were reported, its pages have %llu", run->world_rank,
            (unsigned long long)run->schedule.jobs[live->job].rid,
            (unsigned long long)payload_bytes, (unsigned long long)wanted);
        run->outcomes[live->job] |= RUN_BAD;
    }
}

static void run_ready(struct run *run, struct run_live *live, const struct kvf_event *event,
                      uint64_t now_ns)
{
    const struct schedule_job *job = &run->schedule.jobs[live->job];
    struct run_sample *sample = &run->samples[run->sample_count++];

    if (live->job == run->dump_job) {
        run->sums.dump_bytes = event->payload_bytes;
    }
    sample->latency_ms = run_ms(now_ns - live->open_ns);
    sample->pages_ms = run_ms(live->open_ns - live->due_ns);
    sample->prepare_ms = run_ms(event->timing.prepare_ns);
    sample->wait_ms = run_ms(event->timing.wait_ns);
    sample->move_ms = run_ms(event->timing.move_ns);
    sample->agree_ms = run_ms(event->timing.agree_ns);
    run->sums.payload_bytes += event->payload_bytes;
    run_check_payload(run, live, event->payload_bytes);
    run->outcomes[live->job] |= RUN_READY;
    live->good = true;
    live->hold_until_ns = now_ns + (uint64_t)job->output_tokens * run->options.decode_us * 1000;
    run_stop_moving(run, now_ns);
    if (live->aux != NULL) {
        run_aux_check(run, job, live->aux);
    }
    run_step_to(live, RUN_COMPARE);
}

/* The first peer that does not fit, in the library's words for both sides' values. */
static void run_note_refusal(struct run *run, const struct run_live *live,
                             const struct kvf_event *event)
{
    const struct schedule_job *job = &run->schedule.jobs[live->job];
    enum kvf_side other = run->side == KVF_CONTEXT ? KVF_GENERATION : KVF_CONTEXT;
    const struct kvf_instance *instance = &run->topology->instances[job->ends[other].instance];
    static const char refused[] = "refused: ";
    char text[RUN_REFUSED_BYTES];
    enum kvf_path path;

    for (uint32_t r = 0; r < instance->tp_size * instance->pp_size && run->refused[0] == 0; r++) {
        if (kvf_path_to(run->kvf, instance->first_rank + r, &path, text, sizeof(text)) == KVF_OK &&
            strncmp(text, refused, strlen(refused)) == 0) {
            snprintf(run->refused, sizeof(run->refused), "%s", text + strlen(refused));
        }
    }
    if (run->refused_code == KVF_OK) {
        run->refused_code = event->status;
    }
}

static void run_ended_badly(struct run *run, struct run_live *live, const struct kvf_event *event,
                            uint64_t now_ns)
{
    uint8_t outcome = event->kind == KVF_EVENT_CANCELLED ? RUN_CANCELLED : RUN_FAILED;

    if (event->status <= KVF_E_WIRE_VERSION && event->status >= KVF_E_AUX_LAYOUT) {
        outcome |= RUN_GEOMETRY;
    }
    if ((outcome & RUN_GEOMETRY) != 0) {
        run_note_refusal(run, live, event); /* said once, at the end */
    } else if ((run->outcomes[live->job] & outcome) != outcome &&
               !run_fault_expects(run, live, event->status) &&
               (uint32_t)run->world_rank == run->instance->first_rank) {
        say("request %llu %s on %s: %s: %s", (unsigned long long)event->rid,
            event->kind == KVF_EVENT_CANCELLED ? "cancelled" : "failed", run->instance->name,
            kvf_status_name(event->status), kvf_status_text(event->status));
    }
    run->outcomes[live->job] |= outcome;
    if (live->step == RUN_MOVE || live->step == RUN_PIECES) {
        run_stop_moving(run, now_ns);
        run_step_to(live, RUN_HOLD);
    }
}

/*
 * A group ends a request as soon as one of its ranks does, be it before this rank has opened it: it
 * is opened all the same, when its turn comes, and its outcome looked at then.
 */
static void run_keep_early(struct run *run, const struct kvf_event *event)
{
    for (uint32_t i = 0; i < run->order_count; i++) {
        uint32_t job = run->order[i];

        if (run->schedule.jobs[job].rid != event->rid) {
            continue;
        }
        if (event->kind == KVF_EVENT_FAILED || event->kind == KVF_EVENT_CANCELLED) {
            run->early[job] = *event;
        }
        return;
    }
    say("rank %d: an event for request %llu, which is not this group's", run->world_rank,
        (unsigned long long)event->rid);
}

static void run_event(struct run *run, const struct kvf_event *event)
{
    struct run_live *live = run_find(run, event->rid);
    uint64_t now_ns = run_now();

    if (live == NULL || live->step < RUN_PIECES) {
        run_keep_early(run, event);
        return;
    }
    switch (event->kind) {
    case KVF_EVENT_ASKED:
        break;
    case KVF_EVENT_SENT:
        run_fault_outcome(run, live, event);
        run->sums.sent_bytes += event->payload_bytes;
        run->outcomes[live->job] |= RUN_SENT;
        live->good = true;
        run_step_to(live, RUN_HOLD);
        break;
    case KVF_EVENT_READY:
        run_fault_outcome(run, live, event);
        run_ready(run, live, event, now_ns);
        break;
    case KVF_EVENT_FAILED:
    case KVF_EVENT_CANCELLED:
        run_fault_outcome(run, live, event);
        run_ended_badly(run, live, event, now_ns);
        break;
    case KVF_EVENT_RELEASED:
    case KVF_EVENT_RELEASED_LOCAL:
        run_fault_released(run, live);
        live->released = true;
        run->ended++;
        break;
    }
}

/* One sweep. False: the group is lost. */
static bool run_sweep(struct run *run, bool *busy)
{
    struct kvf_event events[RUN_EVENTS_MAX];
    size_t count = 0;
    enum kvf_status status = kvf_sweep(run->kvf, run->iteration, events, RUN_EVENTS_MAX, &count);

    if (status < 0) {
        say("rank %d: sweep %llu: %s", run->world_rank, (unsigned long long)run->iteration,
            kvf_status_text(status));
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        run_fault_note(run, &events[i]);
        run_event(run, &events[i]);
        *busy = true;
    }
    if (status == KVF_OK) {
        run->iteration++;
        run->sums.sweeps++;
    }
    return true;
}

/*
 * --sync, generation: the oldest receive that has not been released is waited for, then swept for
 * until its pages are back. All ranks of the group do so in the same order (kvf_wait()); what else
 * happens between these calls is nobody's business. False: the group is lost.
 */
static bool run_sync(struct run *run, bool *busy)
{
    struct run_live *live = run->live;
    struct kvf_event event;
    enum kvf_status status;

    while (live != NULL && live->released) {
        live = live->next;
    }
    if (live == NULL || live->step < RUN_MOVE) {
        return true;
    }
    if (live->step > RUN_MOVE) {
        return run_sweep(run, busy);
    }
    status = kvf_wait(run->kvf, run->schedule.jobs[live->job].rid, run_fault_deadline_ms(run, live),
                      &event);
    if (status != KVF_OK) {
        say("rank %d: request %llu: waiting for it: %s", run->world_rank,
            (unsigned long long)run->schedule.jobs[live->job].rid, kvf_status_text(status));
        return false;
    }
    run_event(run, &event);
    *busy = true;
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* What comes after a step of page work. */
static void run_work_over(struct run_live *live, enum kvf_side side)
{
    switch (live->step) {
    case RUN_CHECK_OUT:
        run_step_to(live, side == KVF_CONTEXT && live->piece_count == 0 ? RUN_FILL : RUN_OPEN);
        break;
    case RUN_FILL:
        run_step_to(live, RUN_OPEN);
        break;
    case RUN_COMPARE:
        run_step_to(live, RUN_HOLD);
        break;
    case RUN_RESTORE:
        run_step_to(live, RUN_DONE);
        break;
    case RUN_OPEN:
    case RUN_PIECES:
    case RUN_MOVE:
    case RUN_HOLD:
    case RUN_DONE:
        break;
    }
}

/* One piece further; after the last one the request is on its way. */
static bool run_step_pieces(struct run *run, struct run_live *live, uint64_t *work_left)
{
    bool busy = run_pieces_step(run, live, work_left);

    if (live->piece_at == live->piece_count) {
        run_step_to(live, RUN_MOVE);
    }
    return busy;
}

/* Takes one request further. True when something was done. */
static bool run_step_live(struct run *run, struct run_live *live, uint64_t *work_left)
{
    switch (live->step) {
    case RUN_CHECK_OUT:
    case RUN_FILL:
    case RUN_COMPARE:
    case RUN_RESTORE:
        if (*work_left == 0) {
            return false;
        }
        if (run_work(run, live, *work_left)) {
            run_work_over(live, run->side);
        }
        *work_left = 0;
        return true;
    case RUN_OPEN:
        return run_open(run, live);
    case RUN_PIECES:
        return run_step_pieces(run, live, work_left);
    case RUN_HOLD:
        if (!live->released || (live->good && run_now() < live->hold_until_ns)) {
            return false;
        }
        run_step_to(live, live->good || run->side == KVF_CONTEXT ? RUN_DONE : RUN_RESTORE);
        return true;
    case RUN_MOVE:
    case RUN_DONE:
        break;
    }
    return false;
}

static bool run_step_all(struct run *run)
{
    uint64_t work_left = RUN_STEP_BYTES;
    struct run_live **at = &run->live;
    bool busy = false;

    while (*at != NULL) {
        struct run_live *live = *at;

        if (live->step == RUN_MOVE || live->step == RUN_PIECES) {
            run_fault_pass(run, live);
        }
        busy = run_step_live(run, live, &work_left) || busy;
        if (live->step == RUN_DONE) {
            run_pages_give(run, live);
            *at = live->next;
            run_live_free(run, live);
            run->live_count--;
            busy = true;
        } else {
            at = &live->next;
        }
    }
    return busy;
}

static void run_dump(const struct run *run)
{
    run_dump_asked = 0;
    say("rank %d: %u of %u requests admitted, %u live, sweep %llu", run->world_rank, run->order_at,
        run->order_count, run->live_count, (unsigned long long)run->iteration);
    for (const struct run_live *live = run->live; live != NULL; live = live->next) {
        say("rank %d: request %llu is at step %d%s", run->world_rank,
            (unsigned long long)run->schedule.jobs[live->job].rid, (int)live->step,
            live->released ? ", released" : "");
    }
    kvf_dump(run->kvf, stderr);
}

/* Between two passes without work: makes way at once, sleeps when that lasts. */
static void run_idle(struct run *run, uint32_t *idle)
{
    const struct timespec nap = {0, run->live != NULL ? RUN_SLEEP_NS : RUN_SLEEP_LONG_NS};
    bool stepped = run->caller && kvf_progress(run->kvf) == KVF_OK;

    if (stepped) {
        *idle = 0;
    } else if (!run->crowded && (*idle)++ < RUN_IDLE_YIELDS) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

/* One line that is written over; taken away at the end. */
static void run_progress_line(const struct run *run, uint64_t now_ns, uint64_t *next_ns, bool last)
{
    double seconds = (double)(now_ns - run->start_ns) / 1e9;
    char line[160];
    int len;

    if (now_ns < *next_ns && !last) {
        return;
    }
    *next_ns = now_ns + 200000000u;
    len = snprintf(line, sizeof(line), "\r%s: %u of %u requests ended, %u live, %.1f s\033[K%s",
                   run->instance->name, run->ended, run->order_count, run->live_count, seconds,
                   last ? "\r\033[K" : "");
    if (len > 0 && write(STDERR_FILENO, line, (size_t)len) < 0) {
        return; /* nobody looks */
    }
}

/* One turn of the loop. False: the group is lost. */
static bool run_turn(struct run *run, struct run_live **next, uint32_t *idle)
{
    uint64_t now_ns = run_now();
    bool busy = run_order_listen(run);

    if (run->options.sync && run->side == KVF_GENERATION) {
        if (!run_sync(run, &busy)) {
            return false;
        }
    } else if (run->ended < run->order_count && !run_sweep(run, &busy)) {
        /* All have ended at the same sweep on all ranks of the group: none calls one more. */
        return false;
    }
    busy = run_admit(run, next, now_ns) || busy;
    busy = run_step_all(run) || busy;
    if (run->caller && busy) {
        kvf_progress(run->kvf);
    }
    if (busy) {
        *idle = 0;
    } else {
        run_idle(run, idle);
    }
    return true;
}

/*
 * Leaves when a rank is lost and nothing has moved here for so long: what can end without it has
 * ended by then, its group at its own deadline.
 */
static void run_look_out(struct run *run, bool moved, uint64_t patience_ns)
{
    uint64_t now_ns = run_now();
    char when[96];

    if (moved) {
        run->moved_ns = now_ns;
    }
    if (now_ns < run->moved_ns + patience_ns || !launched_lost()) {
        return;
    }
    snprintf(when, sizeof(when), "%u of %u requests have ended here", run->ended, run->order_count);
    launched_leave(when);
}

int run_engine(struct run *run)
{
    const struct sigaction on_dump = {.sa_handler = run_on_signal, .sa_flags = SA_RESTART};
    struct run_live *next = NULL;
    bool terminal = run->world_rank == 0 && run->options.show;
    uint64_t shown_ns = 0;
    uint32_t idle = 0, ended = UINT32_MAX;

    sigaction(SIGUSR1, &on_dump, NULL);
    run->start_ns = run_now();
    while (run->order_at < run->order_count || run->live != NULL || !run_order_all_heard(run)) {
        run_look_out(run, run->ended != ended, RUN_STUCK_NS);
        ended = run->ended;
        run_fault_kill(run, false);
        if (!run_turn(run, &next, &idle)) {
            run->damaged = true;
            break;
        }
        if (terminal) {
            run_progress_line(run, run_now(), &shown_ns, false);
        }
        if (run_dump_asked) {
            run_dump(run);
        }
    }
    if (terminal) {
        run_progress_line(run, run_now(), &shown_ns, true);
    }
    if (next != NULL) {
        run_live_free(run, next);
    }
    return run->damaged ? EXIT_DAMAGED : EXIT_RIGHT;
}

void run_barrier(struct run *run)
{
    static const struct timespec nap = {0, RUN_SLEEP_NS};
    MPI_Request request;
    int done = 0;

    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    for (uint32_t turn = 0;; turn++) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        if (done) {
            return;
        }
        run_look_out(run, turn == 0, RUN_LEAVE_NS);
        if ((!run->caller || kvf_progress(run->kvf) != KVF_OK) && turn > RUN_IDLE_YIELDS) {
            nanosleep(&nap, NULL);
        }
    }
}
