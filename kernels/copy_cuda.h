/*
 * copy_cuda.h - queues copies, gathers, scatters and sums on a CUDA stream.
 *
 * Plain C; no CUDA header needed. A call queues one launch and returns; it borrows no host memory
 * but the outside table of `args` and what `copy_cuda_end` names, until the launch has ended.
 * Nothing here waits, allocates or chooses a device: the caller has made the stream's device
 * current. Host twins: copy_host_run(), stage_host_*().
 *
 * Launches that share a `copy_cuda_end` must be on one stream.
 */
#ifndef KVF_COPY_CUDA_H
#define KVF_COPY_CUDA_H

#include <stdint.h>

#include "tiles.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device memory of one stream that the kernels count in. Zero before the first launch, and again
 * after each that ended. */
struct copy_cuda_scratch {
    uint32_t next_tile;
    uint32_t blocks_done;
    uint64_t sum;
};

/* How a launch says that it has ended. */
struct copy_cuda_end {
    struct copy_cuda_scratch *scratch; /* borrows: device memory */
    /*
     * Borrows: pinned host memory, as the device addresses it. Becomes `value` after all stores of
     * the launch, with system scope: whoever reads `value` (acquire) may use the bytes, on any
     * device.
     */
    uint64_t *flag;
    uint64_t value;
    uint64_t *sum; /* borrows: pinned; sums only: the launch adds to it before it sets the flag */
};

/*
 * `stream`: a cudaStream_t. Takes args->block_count SMs at most. Returns 0, or the number of the
 * CUDA error of the launch (cudaGetErrorString): then nothing was queued.
 */
int copy_cuda_queue(const struct tiles_args *args, const struct copy_cuda_end *end, void *stream);

#ifdef __cplusplus
}
#endif

#endif /* KVF_COPY_CUDA_H */
