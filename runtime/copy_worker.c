/*
 * copy_worker.c - see copy_worker.h.
 */
#include "copy_worker.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#include "clock.h"
#include "ring.h"

struct copy_worker {
    struct copy_worker_params params;
    struct ring *given; /* giver -> worker: pointers of jobs */
    struct ring *ended; /* worker -> giver */
    struct waker waker;
    atomic_bool quit;
    pthread_t thread;
};

_Static_assert(sizeof(struct copy_job *) <= sizeof(uint64_t), "a pointer fits one word");

static bool worker_put(struct ring *ring, struct copy_job *job)
{
    struct ring_entry entry = {{0}};

    memcpy(entry.words, &job, sizeof(job));
    return ring_put(ring, &entry);
}

static struct copy_job *worker_take(struct ring *ring)
{
    struct ring_entry entry;
    struct copy_job *job;

    if (!ring_take(ring, &entry))
        return NULL;
    memcpy(&job, entry.words, sizeof(job));
    return job;
}

static void worker_run(struct copy_worker *worker, struct copy_job *job)
{
    while (!atomic_load_explicit(&job->stop, memory_order_relaxed) &&
           !atomic_load_explicit(&worker->quit, memory_order_relaxed) &&
           !copy_host_step(&job->cursor, worker->params.step_bytes))
        ;
    worker_put(worker->ended, job); /* holds jobs_max: never full */
    waker_wake(worker->params.waker);
}

/* A job, after spinning and sleeping if need be; NULL = look again. */
static struct copy_job *worker_next(struct copy_worker *worker)
{
    uint64_t end_ns = clock_now_ns() + worker->params.spin_us * CLOCK_NS_PER_US;
    struct copy_job *job;

    do {
        job = worker_take(worker->given);
        if (job != NULL)
            return job;
        sched_yield();
    } while (clock_now_ns() < end_ns);
    waker_arm(&worker->waker);
    job = worker_take(worker->given);
    if (job == NULL && !atomic_load(&worker->quit))
        waker_rest(&worker->waker, UINT32_MAX);
    waker_disarm(&worker->waker);
    return job;
}

static void *worker_main(void *argument)
{
    struct copy_worker *worker = argument;

    while (!atomic_load(&worker->quit)) {
        struct copy_job *job = worker_next(worker);

        if (job != NULL)
            worker_run(worker, job);
    }
    return NULL;
}

/* The engine's signals are the engine's: this thread takes none. */
static enum kvf_status worker_start(struct copy_worker *worker)
{
    sigset_t all, old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0 ? KVF_OK : KVF_E_SYSTEM;
}

enum kvf_status copy_worker_open(const struct copy_worker_params *params,
                                 struct copy_worker **worker_out)
{
    struct copy_worker *worker = kvf_alloc(params->heap, 1, sizeof(*worker));
    enum kvf_status status;

    if (worker == NULL)
        return KVF_E_NOMEM;
    worker->params = *params;
    status = ring_open(params->heap, params->jobs_max, &worker->given);
    if (status != KVF_OK)
        goto free_worker;
    status = ring_open(params->heap, params->jobs_max, &worker->ended);
    if (status != KVF_OK)
        goto close_given;
    status = waker_init(&worker->waker);
    if (status != KVF_OK)
        goto close_ended;
    status = worker_start(worker);
    if (status != KVF_OK)
        goto fini_waker;
    *worker_out = worker;
    return KVF_OK;

fini_waker:
    waker_fini(&worker->waker);
close_ended:
    ring_close(worker->ended);
close_given:
    ring_close(worker->given);
free_worker:
    kvf_release(params->heap, worker);
    return status;
}

void copy_worker_close(struct copy_worker *worker)
{
    if (worker == NULL)
        return;
    atomic_store(&worker->quit, true);
    waker_wake(&worker->waker);
    pthread_join(worker->thread, NULL);
    waker_fini(&worker->waker);
    ring_close(worker->ended);
    ring_close(worker->given);
    kvf_release(worker->params.heap, worker);
}

bool copy_worker_give(struct copy_worker *worker, struct copy_job *job)
{
    if (!worker_put(worker->given, job))
        return false;
    waker_wake(&worker->waker);
    return true;
}

struct copy_job *copy_worker_collect(struct copy_worker *worker)
{
    return worker_take(worker->ended);
}
