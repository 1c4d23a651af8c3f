/*
 * reactor.c - the progress loop: one pass, sleeping, the queue of the engine's calls.
 *
 * Order inside a pass: network first, then the engine's calls, then writes, then timers, so that of
 * two things in one pass the message is applied before the timer.
 */
#include "reactor_internal.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- open ----------------------------------------------------------------------------------- */

static enum kvf_status reactor_open_outbox(struct reactor *reactor)
{
    const struct kvf_settings *settings = &reactor->kvf->settings;
    const struct peer_demand *demand = &reactor->kvf->peers.demand;
    uint64_t words = settings->blocks_max * 2 + (1u << 20);
    uint64_t messages = settings->requests_max * 16 + 4096;
    struct outbox_params params = {
        .heap = &reactor->kvf->heap.table,
        .transport = reactor->transport,
        .metrics = &reactor->kvf->metrics,
        .token_base = REACTOR_TOKEN(TOKEN_SEND),
        .words_max = words > STORE_WORDS_MAX ? STORE_WORDS_MAX : (uint32_t)words,
    };

    messages += reactor->kvf->place.side == KVF_CONTEXT
                    ? demand->requests * 4 /* answers */
                    : settings->requests_max * recv_glue_writers_max(reactor) * 2;
    params.messages_max =
        messages > REACTOR_MESSAGES_MAX ? REACTOR_MESSAGES_MAX : (uint32_t)messages;
    return outbox_open(&params, &reactor->outbox);
}

static enum kvf_status reactor_open_rings(struct reactor *reactor)
{
    const struct kvf_heap *heap = &reactor->kvf->heap.table;
    enum kvf_status status = waker_init(&reactor->waker);

    if (status == KVF_OK)
        status = ring_open(heap, REACTOR_COMMANDS, &reactor->commands);
    if (status == KVF_OK)
        status =
            ring_open(heap, (uint32_t)reactor->kvf->settings.requests_max * 4, &reactor->decisions);
    return status;
}

/* The machine learns of each peer and of what was found about it. */
static void reactor_introduce(struct reactor *reactor)
{
    struct kvf *kvf = reactor->kvf;

    for (uint32_t p = 0; p < kvf->peers.count; p++) {
        const struct peer *peer = &kvf->peers.list[p];

        if (reactor->send != NULL) {
            struct send_event event = {
                .kind = SEND_PEER_UP,
                .u.peer = {peer->world_rank, peer->epoch, peer->verdict},
            };

            send_glue_step(reactor, &event);
        } else {
            struct recv_event event = {
                .kind = RECV_PEER_UP,
                .u.peer = {peer->world_rank, peer->epoch, peer->verdict},
            };

            recv_glue_step(reactor, &event);
        }
    }
}

enum kvf_status reactor_open(struct kvf *kvf, struct reactor **reactor_out,
                             struct geo_text *text_out)
{
    struct reactor *reactor = kvf_alloc(&kvf->heap.table, 1, sizeof(*reactor));
    struct transport_sink sink;
    enum kvf_status status;

    if (reactor == NULL)
        return KVF_E_NOMEM;
    reactor->kvf = kvf;
    reactor->transport = kvf->transport;
    reactor->waker.fd = -1;
    pthread_mutex_init(&reactor->lock, NULL);
    reactor->real_ns = clock_now_ns();
    awake_init(&reactor->clock, reactor->real_ns, kvf->settings.stall_step_max_ms * CLOCK_NS_PER_MS,
               kvf->settings.progress == SETTINGS_PROGRESS_CALLER);
    reactor->now_ns = 1;
    status = reactor_open_rings(reactor);
    if (status == KVF_OK)
        status = reactor_open_outbox(reactor);
    if (status == KVF_OK)
        status = peers_open(reactor);
    if (status == KVF_OK)
        status = tasks_open(reactor);
    if (status == KVF_OK)
        status = check_open(reactor);
    if (status == KVF_OK)
        status = kvf->place.side == KVF_CONTEXT ? send_glue_open(reactor, text_out)
                                                : recv_glue_open(reactor, text_out);
    if (status != KVF_OK) {
        reactor_close(reactor);
        return status;
    }
    reactor_introduce(reactor);
    peers_sink(reactor, &sink);
    kvf->transport->set_sink(kvf->transport->self, &sink);
    *reactor_out = reactor;
    return KVF_OK;
}

void reactor_close(struct reactor *reactor)
{
    const struct kvf_heap *heap;

    if (reactor == NULL)
        return;
    heap = &reactor->kvf->heap.table;
    recv_session_close(reactor->recv);
    send_session_close(reactor->send);
    check_close(reactor);
    tasks_close(reactor);
    peers_close(reactor);
    outbox_close(reactor->outbox);
    ring_close(reactor->decisions);
    ring_close(reactor->commands);
    waker_fini(&reactor->waker);
    kvf_release(heap, reactor->writers);
    kvf_release(heap, reactor->asked_slots);
    kvf_release(heap, reactor->asked_lists);
    kvf_release(heap, reactor->bitmap);
    pthread_mutex_destroy(&reactor->lock);
    kvf_release(heap, reactor);
}

/* ---- the engine's calls ---------------------------------------------------------------------- */

static bool reactor_put(struct reactor *reactor, struct ring *ring, const struct command *command)
{
    struct ring_entry entry = {{0}};

    memcpy(&entry, command, sizeof(*command));
    if (!ring_put(ring, &entry))
        return false;
    waker_wake(&reactor->waker);
    return true;
}

enum kvf_status reactor_open_request(struct reactor *reactor, struct admission_request *request)
{
    const struct command command = {
        .kind = COMMAND_OPEN,
        .rid = request->rid,
        .u.request = request,
    };

    return reactor_put(reactor, reactor->commands, &command) ? KVF_OK : KVF_BUSY;
}

enum kvf_status reactor_add_window(struct reactor *reactor, uint64_t rid,
                                   const struct session_window *window)
{
    const struct command command = {.kind = COMMAND_WINDOW, .rid = rid, .u.window = *window};

    return reactor_put(reactor, reactor->commands, &command) ? KVF_OK : KVF_BUSY;
}

enum kvf_status reactor_cancel(struct reactor *reactor, uint64_t rid)
{
    const struct command command = {.kind = COMMAND_CANCEL, .rid = rid};

    return reactor_put(reactor, reactor->commands, &command) ? KVF_OK : KVF_BUSY;
}

/* For calls that must get through: the reactor empties the queue. */
static void reactor_put_surely(struct reactor *reactor, const struct command *command)
{
    while (!reactor_put(reactor, reactor->commands, command))
        if (!reactor_help(reactor))
            sched_yield();
}

void reactor_give_up(struct reactor *reactor, uint64_t rid)
{
    const struct command command = {.kind = COMMAND_GIVE_UP, .rid = rid};

    reactor_put_surely(reactor, &command);
}

void reactor_cancel_all(struct reactor *reactor)
{
    const struct command command = {.kind = COMMAND_CANCEL_ALL};

    reactor_put_surely(reactor, &command);
}

void reactor_group_lost(struct reactor *reactor)
{
    const struct command command = {.kind = COMMAND_GROUP_LOST};

    reactor_put_surely(reactor, &command);
}

void reactor_decide(struct reactor *reactor, uint64_t rid, enum session_decision decision,
                    const struct kvf_event *facts)
{
    const struct command command = {
        .kind = COMMAND_DECISION,
        .culprit = facts->culprit,
        .rid = rid,
        .u.decision = {.code = (int32_t)facts->status, .decision = (uint32_t)decision},
    };

    if (!reactor_put(reactor, reactor->decisions, &command)) {
        log_error(&reactor->kvf->logger, "", "a decision was lost: more than requests allow");
        metrics_add(&reactor->kvf->metrics.unexpected_events, 1);
    }
}

void reactor_refuse(struct reactor *reactor, uint64_t rid, enum kvf_status status)
{
    const struct session_result result = {
        .outcome = SESSION_FAILED,
        .status = status > 0 ? KVF_E_REFUSED : status,
        .culprit = KVF_UNKNOWN,
    };

    log_write(&reactor->kvf->logger,
              kvf_status_scope(result.status) == KVF_SCOPE_PEER ? KVF_LOG_DEBUG : KVF_LOG_WARN, "",
              "request %llu is refused: %s", (unsigned long long)rid,
              kvf_status_text(result.status)); /* of a peer: said once, as it was met */
    sweeper_vote(reactor->kvf->sweeper, rid, SESSION_VOTE_DOOMED_FAILED | SESSION_VOTE_DRAINED,
                 &result, reactor->real_ns);
    if (status > 0) /* the admission has given it its place: there is room */
        metrics_add(&reactor->kvf->metrics.unexpected_events, 1);
}

static void command_open(struct reactor *reactor, struct admission_request *request)
{
    uint64_t rid = request->rid;
    uint32_t *slots = request->slots;

    reactor->real_ns = clock_now_ns(); /* the call may be younger than the pass */
    if (reactor->send != NULL)
        send_glue_request(reactor, request);
    else
        recv_glue_request(reactor, request);
    sweeper_opened(reactor->kvf->sweeper, rid);
    admission_copied(&reactor->kvf->admission, request, rid, slots);
}

static void command_window(struct reactor *reactor, const struct command *command)
{
    struct send_event event = {
        .kind = SEND_WINDOW,
        .u.window = {.rid = command->rid, .window = command->u.window, .ready = true},
    };
    enum kvf_status status = send_glue_step(reactor, &event);

    if (status == KVF_BUSY) { /* the admission counts windows: the request cannot become whole */
        metrics_add(&reactor->kvf->metrics.unexpected_events, 1);
        event = (struct send_event){
            .kind = SEND_CANCEL,
            .u.cancel = {.rid = command->rid, .code = KVF_E_REFUSED},
        };
        send_glue_step(reactor, &event);
    }
}

static void command_cancel(struct reactor *reactor, uint64_t rid, enum kvf_status code, bool all)
{
    if (reactor->send != NULL) {
        struct send_event event = {
            .kind = all ? SEND_CANCEL_ALL : SEND_CANCEL,
            .u.cancel = {.rid = rid, .code = code},
        };

        send_glue_step(reactor, &event);
    } else {
        struct recv_event event = {
            .kind = all ? RECV_CANCEL_ALL : RECV_CANCEL,
            .u.cancel = {.rid = rid, .code = code},
        };

        recv_glue_step(reactor, &event);
    }
}

static void command_decision(struct reactor *reactor, const struct command *command)
{
    enum session_decision decision = (enum session_decision)command->u.decision.decision;
    enum kvf_status code = (enum kvf_status)command->u.decision.code;

    if (reactor->send != NULL) {
        struct send_event event = {
            .kind = SEND_DECISION,
            .u.decision = {command->rid, decision, code, command->culprit},
        };

        send_glue_step(reactor, &event);
    } else {
        struct recv_event event = {
            .kind = RECV_DECISION,
            .u.decision = {command->rid, decision, code, command->culprit},
        };

        recv_glue_step(reactor, &event);
    }
}

static void command_apply(struct reactor *reactor, const struct command *command)
{
    switch ((enum command_kind)command->kind) {
    case COMMAND_OPEN:
        command_open(reactor, command->u.request);
        break;
    case COMMAND_WINDOW:
        command_window(reactor, command);
        break;
    case COMMAND_CANCEL:
        command_cancel(reactor, command->rid, KVF_E_CANCELLED, false);
        break;
    case COMMAND_GIVE_UP:
        command_cancel(reactor, command->rid, KVF_E_TIMEOUT, false);
        break;
    case COMMAND_CANCEL_ALL:
        command_cancel(reactor, 0, KVF_E_SHUTDOWN, true);
        break;
    case COMMAND_GROUP_LOST:
        command_cancel(reactor, 0, KVF_E_GROUP_LOST, true);
        break;
    case COMMAND_GOODBYE:
        peers_goodbye(reactor, command->u.no_access);
        atomic_store(&reactor->said_goodbye, true);
        break;
    case COMMAND_DECISION:
        command_decision(reactor, command);
        break;
    }
}

static bool reactor_take(struct ring *ring, struct command *command_out)
{
    struct ring_entry entry;

    if (!ring_take(ring, &entry))
        return false;
    memcpy(command_out, &entry, sizeof(*command_out));
    return true;
}

static bool reactor_decisions(struct reactor *reactor)
{
    struct command command;
    bool worked = false;

    while (reactor_take(reactor->decisions, &command)) {
        command_apply(reactor, &command);
        worked = true;
    }
    return worked;
}

/*
 * A request's release gives room to the next open: so decisions that were made before a call are
 * applied before it.
 */
static bool reactor_commands(struct reactor *reactor)
{
    struct command command;
    bool worked = reactor_decisions(reactor);

    for (uint32_t c = 0; c < REACTOR_COMMANDS_PASS && reactor_take(reactor->commands, &command);
         c++) {
        reactor_decisions(reactor);
        command_apply(reactor, &command);
        worked = true;
    }
    return worked;
}

/* ---- one pass ------------------------------------------------------------------------------- */

static void reactor_clock(struct reactor *reactor)
{
    struct transport *transport = reactor->transport;
    uint64_t stall_ns = 0;

    reactor->real_ns = clock_now_ns();
    reactor->now_ns = awake_step(&reactor->clock, reactor->real_ns, &stall_ns);
    if (stall_ns == 0 || reactor->kvf->settings.progress == SETTINGS_PROGRESS_CALLER)
        return;
    log_warn(&reactor->kvf->logger, "W32", "this process stood still for %llu ms",
             (unsigned long long)(stall_ns / CLOCK_NS_PER_MS));
    for (uint32_t i = 0; i < REACTOR_POLLS_STALL && transport->poll(transport->self) > 0; i++)
        ;
}

static uint64_t machine_deadline_ns(const struct reactor *reactor)
{
    return reactor->send != NULL ? send_session_deadline_ns(reactor->send)
                                 : recv_session_deadline_ns(reactor->recv);
}

static bool reactor_timers(struct reactor *reactor)
{
    if (reactor->now_ns < machine_deadline_ns(reactor))
        return false;
    if (reactor->send != NULL) {
        struct send_event event = {.kind = SEND_TICK};

        send_glue_step(reactor, &event);
    } else {
        struct recv_event event = {.kind = RECV_TICK};

        recv_glue_step(reactor, &event);
    }
    return true;
}

/* What other threads may read of the machine's counts. */
static void reactor_mirror(struct reactor *reactor)
{
    struct metrics *metrics = &reactor->kvf->metrics;

    if (reactor->send != NULL) {
        const struct send_counts *counts = send_session_counts(reactor->send);

        metrics_set(&metrics->payload_bytes, counts->payload_bytes);
        metrics_set(&metrics->machine_unexpected, counts->unexpected_events);
        for (unsigned path = 0; path < KVF_PATH_COUNT; path++)
            metrics_set(&metrics->path_writes[path], counts->path_writes[path]);
    } else {
        const struct recv_counts *counts = recv_session_counts(reactor->recv);

        metrics_set(&metrics->stranded_blocks, counts->stranded_blocks);
        metrics_set(&metrics->payload_bytes, counts->payload_bytes);
        metrics_set(&metrics->machine_unexpected, counts->unexpected_events);
    }
}

static bool reactor_pass_locked(struct reactor *reactor)
{
    uint64_t check_bytes = reactor->kvf->settings.copy_step_bytes;
    bool worked;

    reactor_clock(reactor);
    worked = reactor->transport->poll(reactor->transport->self) > 0;
    worked = reactor_commands(reactor) || worked;
    worked = tasks_pump(reactor) || worked;
    worked = check_pump(reactor, &check_bytes) || worked;
    worked = peers_check(reactor) || worked;
    if (reactor->losing > 0)
        peers_lose_noted(reactor);
    worked = reactor_timers(reactor) || worked;
    worked = outbox_flush(reactor->outbox) > 0 || worked;
    if (worked)
        reactor_mirror(reactor);
    return worked;
}

bool reactor_pass(struct reactor *reactor)
{
    bool worked;

    pthread_mutex_lock(&reactor->lock);
    worked = reactor_pass_locked(reactor);
    pthread_mutex_unlock(&reactor->lock);
    while (atomic_load_explicit(&reactor->guests, memory_order_relaxed) > 0)
        sched_yield(); /* a mutex is not fair */
    return worked;
}

bool reactor_help(struct reactor *reactor)
{
    return !reactor->threaded && reactor_pass(reactor);
}

/* ---- sleeping ------------------------------------------------------------------------------- */

/* How long until some timer, at most `most_ns`. */
static uint64_t reactor_sleep_ns(const struct reactor *reactor, uint64_t most_ns)
{
    uint64_t deadline_ns = machine_deadline_ns(reactor);
    uint64_t peers_ns = peers_deadline_ns(reactor);
    uint64_t cap_ns = reactor->kvf->settings.stall_step_max_ms * CLOCK_NS_PER_MS / 2;

    if (peers_ns < deadline_ns)
        deadline_ns = peers_ns;
    if (deadline_ns == UINT64_MAX)
        return most_ns;
    if (cap_ns < most_ns)
        most_ns = cap_ns;
    if (deadline_ns <= reactor->now_ns)
        return 0;
    return deadline_ns - reactor->now_ns < most_ns ? deadline_ns - reactor->now_ns : most_ns;
}

static uint32_t reactor_fds(struct reactor *reactor, struct pollfd *entries,
                            uint32_t *first_pidfd_out)
{
    const struct peers *peers = &reactor->kvf->peers;
    int fds[3];
    uint32_t count = 0;

    reactor->transport->descriptors(reactor->transport->self, fds);
    entries[count++] = (struct pollfd){.fd = reactor->waker.fd, .events = POLLIN};
    for (unsigned f = 0; f < 3; f++)
        if (fds[f] >= 0)
            entries[count++] = (struct pollfd){.fd = fds[f], .events = POLLIN};
    *first_pidfd_out = count;
    for (uint32_t p = 0; p < peers->all_count && count < REACTOR_FDS_MAX; p++)
        if (peers->list[p].pidfd >= 0)
            entries[count++] = (struct pollfd){.fd = peers->list[p].pidfd, .events = POLLIN};
    return count;
}

/* Everything that would make a pass useful, looked at after arming. */
static bool reactor_may_sleep(struct reactor *reactor)
{
    return ring_count(reactor->commands) == 0 && ring_count(reactor->decisions) == 0 &&
           !tasks_ready(reactor) && !check_ready(reactor) && !outbox_waiting(reactor->outbox) &&
           reactor->transport->arm(reactor->transport->self) == KVF_OK;
}

static void reactor_sleep(struct reactor *reactor, uint64_t most_ns)
{
    struct pollfd entries[REACTOR_FDS_MAX + 4];
    uint32_t count = 0, first_pidfd = 0;
    uint64_t sleep_ns = 0;

    waker_arm(&reactor->waker);
    pthread_mutex_lock(&reactor->lock);
    if (reactor_may_sleep(reactor)) {
        count = reactor_fds(reactor, entries, &first_pidfd);
        sleep_ns = reactor_sleep_ns(reactor, most_ns);
    }
    pthread_mutex_unlock(&reactor->lock);
    if (count > 0) {
        const struct timespec timeout = {
            .tv_sec = (time_t)(sleep_ns / CLOCK_NS_PER_S),
            .tv_nsec = (long)(sleep_ns % CLOCK_NS_PER_S),
        };

        ppoll(entries, count, &timeout, NULL);
        for (uint32_t e = first_pidfd; e < count; e++)
            if (entries[e].revents != 0)
                reactor->check_ns = 0; /* a process has ended: look at once */
    }
    waker_disarm(&reactor->waker);
}

void reactor_rest(struct reactor *reactor, uint64_t most_ns)
{
    uint64_t spin_end_ns =
        clock_now_ns() + reactor->kvf->settings.progress_spin_us * CLOCK_NS_PER_US;

    do {
        if (reactor_pass(reactor))
            return;
    } while (clock_now_ns() < spin_end_ns);
    reactor_sleep(reactor, most_ns);
    reactor_pass(reactor);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void *reactor_main(void *argument)
{
    struct reactor *reactor = argument;
    uint64_t spin_ns = reactor->kvf->settings.progress_spin_us * CLOCK_NS_PER_US;
    uint64_t worked_ns = 0;

    while (!atomic_load_explicit(&reactor->quit, memory_order_relaxed)) {
        if (reactor_pass(reactor)) {
            worked_ns = reactor->real_ns;
            continue;
        }
        if (reactor->real_ns - worked_ns < spin_ns) {
            sched_yield(); /* ranks may be more than cores */
            continue;
        }
        reactor_sleep(reactor, REACTOR_IDLE_NS);
    }
    return NULL;
}

enum kvf_status reactor_start(struct reactor *reactor)
{
    const struct kvf_settings *settings = &reactor->kvf->settings;
    const struct copy_worker_params params = {
        .heap = &reactor->kvf->heap.table,
        .jobs_max = REACTOR_TASKS,
        .step_bytes = 16 * settings->copy_step_bytes,
        .spin_us = (uint32_t)settings->progress_spin_us,
        .waker = &reactor->waker,
    };
    enum kvf_status status = KVF_OK;
    sigset_t all, old;

    if (settings->progress == SETTINGS_PROGRESS_CALLER)
        return KVF_OK;
    if (reactor->send != NULL)
        status = copy_worker_open(&params, &reactor->worker);
    if (status != KVF_OK)
        return status;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the engine's */
    if (pthread_create(&reactor->thread, NULL, reactor_main, reactor) != 0)
        status = KVF_E_SYSTEM;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    reactor->threaded = status == KVF_OK;
    return status;
}

void reactor_stop(struct reactor *reactor)
{
    if (reactor->threaded) {
        atomic_store(&reactor->quit, true);
        waker_wake(&reactor->waker);
        pthread_join(reactor->thread, NULL);
        reactor->threaded = false;
    }
    copy_worker_close(reactor->worker);
    reactor->worker = NULL;
}
