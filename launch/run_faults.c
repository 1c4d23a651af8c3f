/*
 * run_faults.c - `kvferry run --faults`: plants what faults.h drew for each request, notes how each
 * request ended on this rank, and judges at the end: one end each, alike in a group, and nothing
 * but what was planted.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launched.h"
#include "run.h"
#include "say.h"

#define RUN_STAND_PASSES 4u
#define RUN_UNKNOWN_RID (UINT64_C(1) << 62) /* plus a request's own: nobody opens these */

static struct fault_seen *run_seen(struct run *run, const struct run_live *live)
{
    return &run->seen[live->job];
}

static uint64_t run_rid(const struct run *run, const struct run_live *live)
{
    return run->schedule.jobs[live->job].rid;
}

/* Is it this rank that acts? */
static bool run_fault_is_mine(const struct run *run, const struct fault *fault)
{
    uint32_t size = run_group_size(run, run->group);
    uint32_t at = 0;

    if (fault->who == FAULTS_ALL_RANKS) {
        return true;
    }
    for (uint32_t r = run->instance->first_rank; r < (uint32_t)run->world_rank; r++) {
        at += run->dp_of[r] == run->group.dp;
    }
    return fault->who % size == at;
}

/* A call that did not answer as it must. */
static void run_bad_call(struct run *run, const struct run_live *live, const char *call,
                         enum kvf_status status)
{
    run->sums.bad_calls++;
    say("rank %d: request %llu: %s answered %s", run->world_rank,
        (unsigned long long)run_rid(run, live), call, kvf_status_name(status));
}

static void run_fault_cancel(struct run *run, struct run_live *live)
{
    for (int turn = live->fault.again ? 2 : 1; turn > 0; turn--) {
        enum kvf_status status = kvf_cancel(run->kvf, run_rid(run, live));

        if (status != KVF_OK) {
            run_bad_call(run, live, "kvf_cancel", status);
        }
    }
    live->fault_done = true;
}

/* ---- planting -------------------------------------------------------------------------------- */

/* The side that gives up, and whether it is this one. */
static bool run_fault_cancels(const struct run *run, const struct run_live *live)
{
    enum fault_fate fate = live->fault.fate;

    if (live->fault_done || !run_fault_is_mine(run, &live->fault)) {
        return false;
    }
    return fate == (run->side == KVF_CONTEXT ? FAULT_CANCEL_CTX : FAULT_CANCEL_GEN);
}

static void run_fault_unknown(struct run *run, const struct run_live *live)
{
    uint64_t rid = RUN_UNKNOWN_RID + run_rid(run, live);
    struct kvf_window window = KVF_WINDOW_INIT;
    struct kvf_event event;
    enum kvf_status status = kvf_cancel(run->kvf, rid);

    if (status != KVF_E_NOTFOUND) {
        run_bad_call(run, live, "kvf_cancel of an unknown request", status);
    }
    status = run->side == KVF_CONTEXT ? kvf_send_blocks(run->kvf, rid, &window)
                                      : kvf_wait(run->kvf, rid, 0, &event);
    if (status != KVF_E_NOTFOUND) {
        run_bad_call(run, live, "a call for an unknown request", status);
    }
}

bool run_fault_skips(const struct run *run, const struct run_live *live)
{
    return live->fault.fate == (run->side == KVF_CONTEXT ? FAULT_NO_CTX : FAULT_NO_GEN);
}

uint32_t run_fault_tokens(const struct run *run, const struct run_live *live)
{
    uint32_t tokens = run->schedule.jobs[live->job].prompt_tokens;
    uint32_t block = run->layout.tokens_per_block;

    if (live->fault.fate != FAULT_WRONG_SIZE) {
        return tokens;
    }
    return tokens % block != 0 ? tokens + 1 : tokens - 1; /* as many blocks, where that can be */
}

void run_fault_lists(const struct run *run, const struct run_live *live)
{
    for (uint32_t g = 0; live->fault.fate == FAULT_SHORT && g < run->layout.group_count; g++) {
        if (run->layout.groups[g].group_class != KVF_GROUP_STATE && run->lists[g].count > 0) {
            run->lists[g].count--;
        }
    }
}

void run_fault_opened(struct run *run, struct run_live *live)
{
    if (live->fault.extras[FAULT_TWICE]) {
        enum kvf_status status = run_open_call(run, live);

        if (status != KVF_E_EXISTS) {
            run_bad_call(run, live, "a second open", status);
        }
    }
    if (live->fault.extras[FAULT_UNKNOWN]) {
        run_fault_unknown(run, live);
    }
    if (run->side == KVF_CONTEXT && live->fault.fate == FAULT_FAIL_BEFORE) {
        run_fault_cancel(run, live);
    }
    if (live->fault.when == FAULT_AT_OPEN && run_fault_cancels(run, live)) {
        run_fault_cancel(run, live);
    }
}

/*
 * The writer's process stands still a few turns after it gave bytes to be read, so that some are
 * being written; the waker lets it go on. Once a request.
 */
static void run_fault_stand(struct run *run, struct run_live *live)
{
    uint64_t ms = run->faults.silent_ms;

    if (live->stood || run->side != KVF_CONTEXT || !live->fault.extras[FAULT_SILENT] ||
        (live->step == RUN_PIECES && live->piece_at == 0) || run->waker_pipe <= 0 ||
        !run_fault_is_mine(run, &live->fault) ||
        ++live->stand_passes <= live->fault.passes % RUN_STAND_PASSES) {
        return;
    }
    live->stood = true;
    if (write(run->waker_pipe, &ms, sizeof(ms)) == (ssize_t)sizeof(ms)) {
        raise(SIGSTOP);
        ms = 0; /* awake */
        if (write(run->waker_pipe, &ms, sizeof(ms)) < 0) {
            say("rank %d: the waker is gone", run->world_rank);
        }
    }
}

void run_fault_pass(struct run *run, struct run_live *live)
{
    if (live->fault.when == FAULT_AFTER && run_fault_cancels(run, live) &&
        ++live->fault_passes > live->fault.passes) {
        run_fault_cancel(run, live);
    }
    run_fault_stand(run, live);
}

void run_fault_piece(struct run *run, struct run_live *live)
{
    if (live->fault.fate == FAULT_FAIL_AFTER && !live->fault_done &&
        (live->piece_at >= 1 || live->piece_count <= 1)) {
        run_fault_cancel(run, live);
    }
}

uint64_t run_fault_wait_ns(const struct run *run, const struct run_live *live)
{
    bool slow = live->fault.extras[FAULT_SLOW] && run_fault_is_mine(run, &live->fault);

    return slow ? run->faults.slow_ms * 1000000u : 0;
}

uint32_t run_fault_deadline_ms(const struct run *run, const struct run_live *live)
{
    bool gives_up = live->fault.fate == FAULT_CANCEL_GEN && live->fault.when != FAULT_AT_OPEN;

    (void)run;
    return gives_up ? live->fault.passes / 4 : UINT32_MAX;
}

/* ---- how it ended ---------------------------------------------------------------------------- */

void run_fault_note(struct run *run, const struct kvf_event *event)
{
    uint64_t index = event->rid - 1; /* schedule.c counts from 1 */
    bool release = event->kind == KVF_EVENT_RELEASED || event->kind == KVF_EVENT_RELEASED_LOCAL;

    if (index < run->schedule.job_count && event->kind != KVF_EVENT_ASKED) {
        run->seen[index].at[release] = (uint32_t)run->iteration;
    }
}

void run_fault_outcome(struct run *run, struct run_live *live, const struct kvf_event *event)
{
    struct fault_seen *seen = run_seen(run, live);

    seen->outcomes += seen->outcomes < UINT8_MAX;
    if (seen->outcomes == 1) {
        seen->status = (int16_t)event->status;
    }
    if (seen->released > 0) {
        seen->outcomes = UINT8_MAX; /* an outcome after the last event */
    }
    if (live->fault.when == FAULT_AT_OUTCOME && run_fault_cancels(run, live)) {
        run_fault_cancel(run, live);
    }
}

void run_fault_released(struct run *run, struct run_live *live)
{
    struct fault_seen *seen = run_seen(run, live);

    seen->released += seen->released < UINT8_MAX;
    if (live->fault.when == FAULT_AT_RELEASED && run_fault_cancels(run, live)) {
        run_fault_cancel(run, live);
    }
}

bool run_fault_expects(const struct run *run, const struct run_live *live, enum kvf_status status)
{
    return faults_allows(&live->fault, run->side, run->options.sync, status);
}

/* ---- judging --------------------------------------------------------------------------------- */

/* One (request, side) over all ranks of its group. */
struct run_end {
    int low[RUN_ALIKES], high[RUN_ALIKES];
    bool opened;
};

static bool run_is_unlike(const struct run_end *end)
{
    bool unlike = false;

    for (int i = 0; i < RUN_ALIKES; i++) {
        unlike = unlike || end->low[i] != end->high[i];
    }
    return unlike;
}

static void run_judge_side(struct run *run, const struct schedule_job *job,
                           const struct fault *fault, enum kvf_side side, const struct run_end *end)
{
    static const char *const sides[2] = {"the context side", "the generation side"};
    bool skipped = fault->fate == (side == KVF_CONTEXT ? FAULT_NO_CTX : FAULT_NO_GEN);
    struct run_verdicts *verdicts = &run->verdicts;
    enum kvf_status low = (enum kvf_status)end->low[RUN_ALIKE_STATUS];
    enum kvf_status high = (enum kvf_status)end->high[RUN_ALIKE_STATUS];
    const char *what = NULL;

    if (skipped) {
        return;
    }
    if (!end->opened) {
        what = "was never opened";
        verdicts->unplanned++;
    } else if (!faults_allows(fault, side, run->options.sync, low) ||
               !faults_allows(fault, side, run->options.sync, high)) {
        what = "ended otherwise than planted";
        verdicts->unplanned++;
    } else if (faults_is_certain(fault->fate) && low == KVF_OK) {
        what = "did not fail as planted";
        verdicts->missing++;
    } else if (run_is_unlike(end)) {
        verdicts->unlike++;
        what = "ended differently on ranks of its group";
    }
    if (what != NULL && run->faults.any && run->world_rank == 0 &&
        run->fault_lines++ < RUN_FAULT_LINES_MAX) {
        say("request %llu (%s%s) %s on %s: %s, %s; outcome at sweeps %d, %d, release at %d, %d",
            (unsigned long long)job->rid,
            fault->fate == FAULT_NONE ? "no fault" : fault_fate_word(fault->fate),
            fault->extras[FAULT_SLOW] ? ", slow" : "", what, sides[side], kvf_status_name(low),
            kvf_status_name(high), end->low[RUN_ALIKE_OUTCOME_AT], end->high[RUN_ALIKE_OUTCOME_AT],
            end->low[RUN_ALIKE_RELEASE_AT], end->high[RUN_ALIKE_RELEASE_AT]);
    }
}

static void run_count_end(struct run_verdicts *verdicts, int status)
{
    uint32_t i = 0;

    while (i < verdicts->reason_count && verdicts->reasons[i].status != status) {
        i++;
    }
    if (i == RUN_REASONS_MAX) {
        return;
    }
    if (i == verdicts->reason_count) {
        verdicts->reasons[verdicts->reason_count++].status = status;
    }
    verdicts->reasons[i].count++;
}

static void run_judge_job(struct run *run, uint32_t index, const int *lows, const int *highs)
{
    const struct schedule_job *job = &run->schedule.jobs[index];
    struct fault fault = faults_draw(&run->faults, run->options.seed, job->rid);
    int reason = KVF_OK;

    if (job->refused) {
        return;
    }
    run->verdicts.planted[fault.fate]++;
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        run->verdicts.extras[e] += fault.extras[e];
    }
    for (int s = 0; s < 2; s++) {
        struct run_end end;
        uint32_t at = (2 * index + (uint32_t)s) * RUN_ALIKES;

        for (int i = 0; i < RUN_ALIKES; i++) {
            end.low[i] = -lows[at + (uint32_t)i]; /* the maximum of the negative */
            end.high[i] = highs[at + (uint32_t)i];
        }
        end.opened = end.high[RUN_ALIKE_STATUS] != RUN_NEVER;
        if (end.opened && (reason == KVF_OK || s == KVF_GENERATION) &&
            end.low[RUN_ALIKE_STATUS] != KVF_OK) {
            reason = end.low[RUN_ALIKE_STATUS];
        }
        run_judge_side(run, job, &fault, (enum kvf_side)s, &end);
    }
    run_count_end(&run->verdicts, reason);
}

/*
 * Own requests: exactly one outcome and one release each. Returns how many break that; those that
 * never came count in the judgement of all ranks.
 */
static uint64_t run_count_twice(const struct run *run)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < run->order_count; i++) {
        const struct schedule_job *job = &run->schedule.jobs[run->order[i]];
        const struct fault_seen *seen = &run->seen[run->order[i]];
        struct fault fault = faults_draw(&run->faults, run->options.seed, job->rid);

        if (fault.fate == (run->side == KVF_CONTEXT ? FAULT_NO_CTX : FAULT_NO_GEN)) {
            continue;
        }
        if (seen->outcomes != 1 || seen->released != 1) {
            wrong++;
        }
        if (seen->outcomes > 1 || seen->released > 1 || (run->faults.any && seen->released == 0)) {
            say("rank %d: request %llu had %u outcomes and %u releases", run->world_rank,
                (unsigned long long)job->rid, seen->outcomes, seen->released);
        }
    }
    return wrong;
}

/* This rank's part of both arrays. */
static void run_own_ends(const struct run *run, int *lows, int *highs)
{
    for (uint32_t i = 0; i < run->order_count; i++) {
        const struct fault_seen *seen = &run->seen[run->order[i]];
        const int values[RUN_ALIKES] = {seen->status, (int)seen->at[0], (int)seen->at[1]};
        uint32_t at = (2 * run->order[i] + (uint32_t)run->side) * RUN_ALIKES;

        for (int v = 0; seen->outcomes > 0 && v < RUN_ALIKES; v++) {
            lows[at + (uint32_t)v] = -values[v];
            highs[at + (uint32_t)v] = values[v];
        }
    }
}

bool run_judge(struct run *run)
{
    uint32_t count = run->schedule.job_count * 2 * RUN_ALIKES;
    int *ends = calloc((size_t)count * 2 + 1, sizeof(*ends));
    uint64_t mine[2] = {run_count_twice(run), run->sums.bad_calls}, all[2];

    if (run_agree(ends != NULL ? 0 : 1) != 0) {
        free(ends);
        return false;
    }
    for (uint32_t i = 0; i < count * 2; i++) {
        ends[i] = RUN_NEVER;
    }
    run_own_ends(run, ends, ends + count);
    run_reduce(MPI_IN_PLACE, ends, (int)count * 2, MPI_INT, MPI_MAX);
    run_reduce(mine, all, 2, MPI_UINT64_T, MPI_SUM);
    memset(&run->verdicts, 0, sizeof(run->verdicts));
    run->verdicts.twice = all[0];
    run->verdicts.bad_calls = all[1];
    for (uint32_t i = 0; i < run->schedule.job_count; i++) {
        run_judge_job(run, i, ends, ends + count);
    }
    free(ends);
    return true;
}

bool run_judged_well(const struct run *run)
{
    const struct run_verdicts *verdicts = &run->verdicts;

    return verdicts->unplanned == 0 && verdicts->missing == 0 && verdicts->twice == 0 &&
           verdicts->bad_calls == 0 && verdicts->unlike == 0;
}

/* ---- the waker ------------------------------------------------------------------------------- */

/* A child that lives until its pipe is closed; each word is a time after which we go on. */
static void run_waker(int from)
{
    pid_t sleeper = getppid();
    uint64_t ms;

    while (read(from, &ms, sizeof(ms)) == (ssize_t)sizeof(ms)) {
        struct pollfd awake = {.fd = from, .events = POLLIN};

        /* Again until it says that it is awake: it may not have stood still yet. */
        while (ms > 0 && poll(&awake, 1, (int)ms) == 0) {
            kill(sleeper, SIGCONT);
        }
    }
    _exit(0);
}

void run_fault_kill(const struct run *run, bool end)
{
    const struct fault_spec *faults = &run->faults;

    if (!faults->any || faults->kill_rank != (uint32_t)run->world_rank) {
        return;
    }
    if (end ? faults->kill_at == FAULTS_AT_END : run->ended >= faults->kill_at) {
        raise(SIGKILL);
    }
}

void run_waker_open(struct run *run)
{
    int ends[2];

    if (run->faults.extras[FAULT_SILENT] <= 0 || pipe(ends) != 0) {
        return;
    }
    run->waker = fork();
    if (run->waker == 0) {
        close(ends[1]);
        run_waker(ends[0]);
    }
    close(ends[0]);
    run->waker_pipe = ends[1];
}

void run_waker_close(struct run *run)
{
    if (run->waker_pipe <= 0) {
        return;
    }
    close(run->waker_pipe);
    while (waitpid(run->waker, NULL, 0) < 0 && errno == EINTR) {
    }
}
