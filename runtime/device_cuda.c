/*
 * device_cuda.c - see device.h: streams, pinned flags and tables, errors of one GPU.
 *
 * The caller's context is kept by pushing ours and popping it again (driver calls, found at run
 * time): setting a device number back would make a context on a GPU that the caller never used.
 */
#include "device.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "check.h"
#include "kernels/copy_cuda.h"

/* The driver's calls, as CUDA 12.0 has them. */
enum { DRIVER_VERSION = 12000 };

struct driver {
    CUresult (*device_get)(CUdevice *device, int ordinal);
    CUresult (*context_retain)(CUcontext *context, CUdevice device);
    CUresult (*context_release)(CUdevice device);
    CUresult (*context_push)(CUcontext context);
    CUresult (*context_pop)(CUcontext *context);
};

/* One stream. Launches end in the order of their numbers. */
struct lane {
    cudaStream_t stream;
    struct copy_cuda_scratch *scratch; /* device memory */
    _Atomic uint64_t *ended;           /* pinned: number of the last launch that ended */
    uint64_t *tables;                  /* pinned: DEVICE_LAUNCHES_MAX of TILES_TABLE_WORDS */
    uint64_t queued;                   /* number of the last launch queued */
};

struct device {
    const struct kvf_heap *heap; /* borrows: until closed */
    struct driver driver;
    CUdevice number;
    CUcontext context;
    uint32_t sm_count;
    uint32_t lane_count;
    struct lane lanes[DEVICE_STREAMS_MAX];
    struct tiles_args args; /* of the launch that is being made */
    bool failed;
    bool told;
    char text[DEVICE_TEXT_BYTES];
};

/* ---- errors --------------------------------------------------------------------------------- */

static void error_text(char *text, const char *call, int code)
{
    snprintf(text, DEVICE_TEXT_BYTES, "%s: %s (%d)", call, cudaGetErrorString((cudaError_t)code),
             code);
}

/* Out of memory is the call's own trouble; all else stays. */
static enum kvf_status check(struct device *device, const char *call, int code)
{
    if (code == cudaSuccess) {
        return KVF_OK;
    }
    cudaGetLastError(); /* else the next call would be blamed */
    if (code == cudaErrorMemoryAllocation) {
        return KVF_E_NOMEM;
    }
    if (!device->failed) {
        device->failed = true;
        error_text(device->text, call, code);
    }
    return KVF_E_CUDA;
}

const char *device_error_once(struct device *device)
{
    if (!device->failed || device->told) {
        return NULL;
    }
    device->told = true;
    return device->text;
}

/* ---- the driver and the current context ----------------------------------------------------- */

static bool driver_find(const char *name, void *call_out)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *call = NULL;
    cudaError_t code =
        cudaGetDriverEntryPointByVersion(name, &call, DRIVER_VERSION, cudaEnableDefault, &found);

    if (code != cudaSuccess || found != cudaDriverEntryPointSuccess || call == NULL) {
        cudaGetLastError();
        return false;
    }
    memcpy(call_out, &call, sizeof(call)); /* ISO C has no cast from object to function */
    return true;
}

static bool driver_load(struct driver *driver)
{
    return driver_find("cuDeviceGet", &driver->device_get) &&
           driver_find("cuDevicePrimaryCtxRetain", &driver->context_retain) &&
           driver_find("cuDevicePrimaryCtxRelease", &driver->context_release) &&
           driver_find("cuCtxPushCurrent", &driver->context_push) &&
           driver_find("cuCtxPopCurrent", &driver->context_pop);
}

/* E_CUDA when our context is gone. Each enter() that is KVF_OK is paired with a leave(). */
static enum kvf_status enter(struct device *device)
{
    CUresult code = device->driver.context_push(device->context);

    if (code == CUDA_SUCCESS) {
        return KVF_OK;
    }
    if (!device->failed) {
        device->failed = true;
        snprintf(device->text, sizeof(device->text), "cuCtxPushCurrent: error %d", (int)code);
    }
    return KVF_E_CUDA;
}

static void leave(struct device *device)
{
    CUcontext ours;

    device->driver.context_pop(&ours);
}

enum kvf_status device_count(uint32_t *count_out, char *text_out)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);

    text_out[0] = '\0';
    if (code != cudaSuccess) {
        cudaGetLastError();
        error_text(text_out, "cudaGetDeviceCount", (int)code);
        count = 0;
    } else if (count == 0) {
        snprintf(text_out, DEVICE_TEXT_BYTES, "no GPU");
    }
    *count_out = (uint32_t)count;
    return KVF_OK;
}

/* ---- open and close ------------------------------------------------------------------------- */

static void lane_close(struct lane *lane)
{
    cudaFreeHost(lane->tables);
    cudaFreeHost((void *)lane->ended);
    cudaFree(lane->scratch);
    if (lane->stream != NULL) {
        cudaStreamDestroy(lane->stream);
    }
}

/* What was made before a failure is freed by lane_close(). */
static enum kvf_status lane_open(struct device *device, struct lane *lane)
{
    size_t table_bytes = (size_t)DEVICE_LAUNCHES_MAX * TILES_TABLE_WORDS * sizeof(uint64_t);
    void *ended = NULL;
    enum kvf_status status;

    status = check(device, "cudaStreamCreateWithFlags",
                   cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking));
    if (status == KVF_OK) {
        status = check(device, "cudaMalloc",
                       cudaMalloc((void **)&lane->scratch, sizeof(*lane->scratch)));
    }
    if (status == KVF_OK) {
        status = check(device, "cudaMemsetAsync",
                       cudaMemsetAsync(lane->scratch, 0, sizeof(*lane->scratch), lane->stream));
    }
    if (status == KVF_OK) {
        status = check(device, "cudaHostAlloc",
                       cudaHostAlloc(&ended, sizeof(*lane->ended), cudaHostAllocPortable));
    }
    if (status == KVF_OK) {
        lane->ended = ended;
        atomic_init(lane->ended, 0);
        status = check(device, "cudaHostAlloc",
                       cudaHostAlloc((void **)&lane->tables, table_bytes, cudaHostAllocPortable));
    }
    return status;
}

/* Retains the primary context, which an engine shares with us. */
static enum kvf_status context_open(struct device *device, uint32_t index, char *text_out)
{
    CUresult code;

    if (!driver_load(&device->driver)) {
        snprintf(text_out, DEVICE_TEXT_BYTES, "the CUDA driver lacks calls of version %d",
                 DRIVER_VERSION);
        return KVF_E_CUDA;
    }
    code = device->driver.device_get(&device->number, (int)index);
    if (code == CUDA_SUCCESS) {
        code = device->driver.context_retain(&device->context, device->number);
    }
    if (code != CUDA_SUCCESS) {
        snprintf(text_out, DEVICE_TEXT_BYTES, "no context on GPU %u: driver error %d", index,
                 (int)code);
        return KVF_E_CUDA;
    }
    return KVF_OK;
}

static enum kvf_status lanes_open(struct device *device, uint32_t index)
{
    int sms = 0;
    enum kvf_status status =
        check(device, "cudaDeviceGetAttribute",
              cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, (int)index));

    device->sm_count = (uint32_t)sms;
    for (uint32_t i = 0; status == KVF_OK && i < device->lane_count; i++) {
        status = lane_open(device, &device->lanes[i]);
    }
    return status;
}

static void lanes_close(struct device *device)
{
    for (uint32_t i = 0; i < device->lane_count; i++) {
        if (device->lanes[i].stream != NULL) {
            cudaStreamSynchronize(device->lanes[i].stream);
        }
    }
    for (uint32_t i = 0; i < device->lane_count; i++) {
        lane_close(&device->lanes[i]);
    }
    cudaGetLastError();
}

enum kvf_status device_open(const struct kvf_heap *heap, uint32_t index, uint32_t stream_count,
                            struct device **device_out, char *text_out)
{
    struct device *device;
    enum kvf_status status;
    uint32_t count;

    device_count(&count, text_out);
    if (index >= count || stream_count == 0 || stream_count > DEVICE_STREAMS_MAX) {
        if (count > 0) {
            snprintf(text_out, DEVICE_TEXT_BYTES,
                     "GPU %u with %u streams; want a GPU below %u and 1 to %u streams", index,
                     stream_count, count, DEVICE_STREAMS_MAX);
        }
        return KVF_E_INVAL;
    }
    device = kvf_alloc(heap, 1, sizeof(*device));
    if (device == NULL) {
        return KVF_E_NOMEM;
    }
    device->heap = heap;
    device->lane_count = stream_count;
    status = context_open(device, index, text_out);
    if (status != KVF_OK) {
        goto free_device;
    }
    status = enter(device);
    if (status != KVF_OK) {
        goto release_context;
    }
    status = lanes_open(device, index);
    if (status != KVF_OK) {
        goto close_lanes;
    }
    leave(device);
    *device_out = device;
    return KVF_OK;

close_lanes:
    lanes_close(device);
    leave(device);
release_context:
    device->driver.context_release(device->number);
    memcpy(text_out, device->text, DEVICE_TEXT_BYTES);
free_device:
    kvf_release(heap, device);
    return status;
}

void device_close(struct device *device)
{
    if (device == NULL) {
        return;
    }
    if (enter(device) == KVF_OK) {
        lanes_close(device);
        leave(device);
    }
    device->driver.context_release(device->number);
    kvf_release(device->heap, device);
}

uint32_t device_sm_count(const struct device *device)
{
    return device->sm_count;
}

/* ---- memory --------------------------------------------------------------------------------- */

enum kvf_status device_alloc(struct device *device, size_t bytes, void **memory_out)
{
    enum kvf_status status = enter(device);
    void *memory = NULL;

    if (status != KVF_OK) {
        return status;
    }
    status = check(device, "cudaMalloc", cudaMalloc(&memory, bytes));
    leave(device);
    if (status == KVF_OK) {
        *memory_out = memory;
    }
    return status;
}

enum kvf_status device_free(struct device *device, void *memory)
{
    enum kvf_status status = enter(device);

    if (status == KVF_OK) {
        status = check(device, "cudaFree", cudaFree(memory));
        leave(device);
    }
    return status;
}

enum kvf_status device_pin(struct device *device, size_t bytes, void **memory_out)
{
    enum kvf_status status = enter(device);
    void *memory = NULL;

    if (status != KVF_OK) {
        return status;
    }
    status = check(device, "cudaHostAlloc", cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
    leave(device);
    if (status == KVF_OK) {
        *memory_out = memory;
    }
    return status;
}

enum kvf_status device_unpin(struct device *device, void *memory)
{
    enum kvf_status status = enter(device);

    if (status == KVF_OK) {
        status = check(device, "cudaFreeHost", cudaFreeHost(memory));
        leave(device);
    }
    return status;
}

enum kvf_status device_copy_now(struct device *device, void *dst, const void *src, size_t bytes)
{
    cudaStream_t stream = device->lanes[0].stream;
    enum kvf_status status = enter(device);

    if (status != KVF_OK) {
        return status;
    }
    status = check(device, "cudaMemcpyAsync",
                   cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream));
    if (status == KVF_OK) {
        status = check(device, "cudaStreamSynchronize", cudaStreamSynchronize(stream));
    }
    leave(device);
    return status;
}

/* ---- launches ------------------------------------------------------------------------------- */

static uint64_t lane_ended(const struct lane *lane)
{
    return atomic_load_explicit(lane->ended, memory_order_acquire);
}

enum kvf_status device_wait_event_queue(struct device *device, uint32_t stream, void *event)
{
    enum kvf_status status;

    KVF_REQUIRE(stream < device->lane_count);
    status = enter(device);
    if (status == KVF_OK) {
        status = check(device, "cudaStreamWaitEvent",
                       cudaStreamWaitEvent(device->lanes[stream].stream, event, 0));
        leave(device);
    }
    return status;
}

/* Launches what has room. The device is entered. */
static enum kvf_status lane_queue(struct device *device, struct lane *lane,
                                  struct tiles_cursor *cursor, uint32_t sms, uint64_t *sum)
{
    while (!tiles_ended(cursor)) {
        uint64_t number = lane->queued + 1;
        struct copy_cuda_end end = {lane->scratch, (uint64_t *)lane->ended, number, sum};
        struct tiles_cursor next = *cursor;
        enum kvf_status status;

        if (number - lane_ended(lane) > DEVICE_LAUNCHES_MAX) {
            return KVF_BUSY;
        }
        status =
            tiles_pack(&next, sms, lane->tables + number % DEVICE_LAUNCHES_MAX * TILES_TABLE_WORDS,
                       &device->args);
        if (status != KVF_OK) {
            return status;
        }
        status =
            check(device, "cudaLaunchKernel", copy_cuda_queue(&device->args, &end, lane->stream));
        if (status != KVF_OK) {
            return status;
        }
        lane->queued = number;
        *cursor = next;
    }
    return KVF_OK;
}

enum kvf_status device_tiles_queue(struct device *device, uint32_t stream,
                                   struct tiles_cursor *cursor, uint32_t sms, uint64_t *sum,
                                   struct device_ticket *ticket_out)
{
    struct lane *lane;
    enum kvf_status status;
    uint64_t before;

    KVF_REQUIRE(stream < device->lane_count);
    KVF_REQUIRE(sms >= 1);
    lane = &device->lanes[stream];
    before = lane->queued;
    status = device->failed ? KVF_E_CUDA : enter(device);
    if (status == KVF_OK) {
        status =
            lane_queue(device, lane, cursor, sms < device->sm_count ? sms : device->sm_count, sum);
        leave(device);
    }
    if (status != KVF_E_TOO_LARGE || lane->queued > before) {
        *ticket_out = (struct device_ticket){stream, lane->queued > before ? lane->queued : 0};
    }
    return status;
}

bool device_ended(const struct device *device, const struct device_ticket *ticket)
{
    return lane_ended(&device->lanes[ticket->stream]) >= ticket->number;
}

/* Entered. A sticky error answers every question about every stream. */
static enum device_state look(struct device *device)
{
    bool dead = false;

    for (uint32_t i = 0; i < device->lane_count; i++) {
        cudaError_t code = cudaStreamQuery(device->lanes[i].stream);
        if (code != cudaSuccess && code != cudaErrorNotReady) {
            check(device, "cudaStreamQuery", (int)code);
            dead = true;
        }
    }
    if (dead) {
        return DEVICE_DEAD;
    }
    return device->failed ? DEVICE_DOUBTFUL : DEVICE_WELL;
}

enum device_state device_look(struct device *device)
{
    enum device_state state;

    if (enter(device) != KVF_OK) {
        return DEVICE_DEAD;
    }
    state = look(device);
    leave(device);
    return state;
}

enum kvf_status device_wait(struct device *device, const struct device_ticket *ticket)
{
    enum kvf_status status = KVF_OK;

    if (device_ended(device, ticket)) {
        return KVF_OK;
    }
    status = enter(device);
    if (status == KVF_OK) {
        status = check(device, "cudaStreamSynchronize",
                       cudaStreamSynchronize(device->lanes[ticket->stream].stream));
        leave(device);
    }
    if (status != KVF_OK) {
        return KVF_E_CUDA;
    }
    KVF_ASSERT(device_ended(device, ticket));
    return KVF_OK;
}
