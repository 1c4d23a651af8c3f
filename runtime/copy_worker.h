/*
 * copy_worker.h - the one thread of a rank that copies for the mapped rung, so that a long copy
 * never delays a heartbeat. Jobs run in the order in which they were given.
 *
 * The giver's thread (the one that steps the machines) gives and collects; a job is the giver's
 * storage and belongs to the worker between the two.
 */
#ifndef KVF_COPY_WORKER_H
#define KVF_COPY_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"
#include "kernels/kernels.h"
#include "waker.h"

/* One copy. `stop` may be set at any time: the worker stops after the step that runs. */
struct copy_job {
    struct copy_cursor cursor;
    atomic_bool stop;
};

struct copy_worker;

struct copy_worker_params {
    const struct kvf_heap *heap;
    uint32_t jobs_max;   /* jobs given and not collected */
    uint64_t step_bytes; /* between two looks at `stop` */
    uint32_t spin_us;    /* looks for work before it sleeps */
    struct waker *waker; /* borrows: the giver's, woken when a job has ended */
};

/* Starts the thread. Gives: copy_worker_close(). Errors: E_NOMEM, E_SYSTEM. */
enum kvf_status copy_worker_open(const struct copy_worker_params *params,
                                 struct copy_worker **worker_out);
/* Ends the thread after the step that runs; jobs inside are dropped. NULL is fine. */
void copy_worker_close(struct copy_worker *worker);

/* False when full. */
bool copy_worker_give(struct copy_worker *worker, struct copy_job *job);

/* A job that ended (all copied, or stopped: cursor.left_bytes says which), or NULL. */
struct copy_job *copy_worker_collect(struct copy_worker *worker);

#endif /* KVF_COPY_WORKER_H */
