/*
 * device.h - one GPU as the copies see it: streams of our own, launches with their ends, memory.
 *
 * Plain C: callers need no CUDA header. The caller's current context is what it was when a call
 * returns, also where the caller never used a GPU. The driver is looked for when the first call
 * needs it: a program with this in it starts, and device_count() says 0 with a reason, on a machine
 * without GPU or driver.
 *
 * A launch has ended when the kernel has written its number into a flag in pinned memory:
 * device_ended() is one load, no call into CUDA, and may be polled. A kernel that died never
 * writes: device_look() asks CUDA, now and then, not on the hot path. The first error that CUDA
 * gives stays: later calls fail with the same status, and its text is there once for the log.
 *
 * One thread at a time a device. May include base and public headers.
 */
#ifndef KVF_DEVICE_H
#define KVF_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap.h"

#define DEVICE_STREAMS_MAX 16u
#define DEVICE_TEXT_BYTES 256

/* Launches of one stream whose outside tables are in use at the same time. */
#define DEVICE_LAUNCHES_MAX 8u

struct device;
struct tiles_cursor; /* kernels/tiles.h */

/* A launch, or with it all launches of its stream before. */
struct device_ticket {
    uint32_t stream;
    uint64_t number; /* 0: nothing was queued, has ended */
};

/* What device_look() found. */
enum device_state {
    DEVICE_WELL,
    /* An error that may be of one call alone: what was queued may still run. */
    DEVICE_DOUBTFUL,
    /* Sticky: all work of this process on the device, old and new, is over. */
    DEVICE_DEAD,
};

/*
 * GPUs that this process may use. Without a usable one KVF_OK and 0, and `text_out`
 * (DEVICE_TEXT_BYTES) has the reason; else the text is empty.
 */
enum kvf_status device_count(uint32_t *count_out, char *text_out);

/*
 * Opens GPU `index` with `stream_count` streams (1 to DEVICE_STREAMS_MAX) that wait for no other
 * stream. E_INVAL: no such GPU or count. E_NOMEM. E_CUDA: `text_out` says which call failed and
 * how.
 * Gives: device_close().
 */
enum kvf_status device_open(const struct kvf_heap *heap, uint32_t index, uint32_t stream_count,
                            struct device **device_out, char *text_out);

/* Waits for what runs (a kernel is not abandoned), then frees all. NULL is fine. */
void device_close(struct device *device);

uint32_t device_sm_count(const struct device *device);

/* Memory of the GPU, at least on a 256 byte boundary. E_NOMEM; E_CUDA. Gives: device_free(). */
enum kvf_status device_alloc(struct device *device, size_t bytes, void **memory_out);
enum kvf_status device_free(struct device *device, void *memory);

/* Host memory that the GPU reads and writes at the same address. Gives: device_unpin(). */
enum kvf_status device_pin(struct device *device, size_t bytes, void **memory_out);
enum kvf_status device_unpin(struct device *device, void *memory);

/* Between any two addresses, on the stream; ended when the call returns. */
enum kvf_status device_copy_now(struct device *device, void *dst, const void *src, size_t bytes);

/* What is queued on the stream from now on waits, on the GPU, for the event (a cudaEvent_t). */
enum kvf_status device_wait_event_queue(struct device *device, uint32_t stream, void *event);

/*
 * Queues the list of the cursor: as few launches as its tables need, one for most. `sms` (>= 1, at
 * most those of the GPU are taken) is the budget of each. Sums are added to *sum (pinned memory).
 *
 * KVF_OK: all is queued; the list may go, ticket_out tells its end. BUSY: some or nothing was
 * queued, the cursor says what; call again when a launch of the stream has ended. E_TOO_LARGE: see
 * tiles_pack(). E_CUDA: nothing more is queued, what was queued before may run: see device_look().
 * ticket_out is written but with E_TOO_LARGE: it names what was queued so far.
 */
enum kvf_status device_tiles_queue(struct device *device, uint32_t stream,
                                   struct tiles_cursor *cursor, uint32_t sms, uint64_t *sum,
                                   struct device_ticket *ticket_out);

/* True once the launch has ended: its bytes are there for all of the system. */
bool device_ended(const struct device *device, const struct device_ticket *ticket);

/* Asks CUDA how it is. Takes microseconds. */
enum device_state device_look(struct device *device);

/*
 * Waits until the launch has ended, or CUDA says that it never will: E_CUDA. Blocks; for closing
 * and tests.
 */
enum kvf_status device_wait(struct device *device, const struct device_ticket *ticket);

/* The first error's text, "cudaMalloc: out of memory (2)": the first call alone, then NULL. */
const char *device_error_once(struct device *device);

#endif /* KVF_DEVICE_H */
