/*
 * bench_ping_ucx.c - see bench_ping_ucx.h. A context, a worker and an endpoint of its own; it
 * shares no code with runtime/xfer/: what is measured and what it is measured by stay apart.
 */
#include "bench_ping_ucx.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include <mpi.h>
#include <ucp/api/ucp.h>

#include "launched.h"
#include "say.h"

enum {
    PING_ID = 1,
    PING_WARM = 200,   /* rounds that do not count: lanes are made on first use */
    PING_SPINS = 1000, /* looks before another process gets the core */
    PING_ADDRESS_MAX = 4096,
    PING_SECONDS_MAX = 30,
};

struct ping {
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h endpoint;
    uint32_t arrived; /* messages */
    bool failed;
};

static double ping_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static ucs_status_t ping_arrived(void *self, const void *header, size_t header_bytes, void *data,
                                 size_t bytes, const ucp_am_recv_param_t *param)
{
    struct ping *ping = self;

    (void)header;
    (void)header_bytes;
    (void)data;
    (void)param;
    ping->failed = ping->failed || bytes != BENCH_PING_BYTES;
    ping->arrived++;
    return UCS_OK;
}

static void ping_lost(void *self, ucp_ep_h endpoint, ucs_status_t status)
{
    struct ping *ping = self;

    (void)endpoint;
    (void)status;
    ping->failed = true;
}

static ucs_status_t ping_open_worker(struct ping *ping)
{
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
    const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};
    const ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = PING_ID,
        .cb = ping_arrived,
        .arg = ping,
    };
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);

    if (status != UCS_OK) {
        return status;
    }
    status = ucp_config_modify(config, "MM_ERROR_HANDLING", "y"); /* else it is TCP */
    if (status == UCS_OK) {
        status = ucp_init(&params, config, &ping->context);
    }
    ucp_config_release(config);
    if (status == UCS_OK) {
        status = ucp_worker_create(ping->context, &worker, &ping->worker);
    }
    return status == UCS_OK ? ucp_worker_set_am_recv_handler(ping->worker, &handler) : status;
}

/* Swaps addresses; every rank takes part, also one that has no worker. */
static ucs_status_t ping_connect(struct ping *ping, int rank, ucs_status_t status)
{
    char mine[PING_ADDRESS_MAX] = {0}, theirs[PING_ADDRESS_MAX];
    ucp_address_t *address;
    size_t bytes = 0;

    if (status == UCS_OK) {
        status = ucp_worker_get_address(ping->worker, &address, &bytes);
        if (status == UCS_OK && bytes <= sizeof(mine)) {
            memcpy(mine, address, bytes);
        }
        if (status == UCS_OK) {
            ucp_worker_release_address(ping->worker, address);
            status = bytes <= sizeof(mine) ? UCS_OK : UCS_ERR_BUFFER_TOO_SMALL;
        }
    }
    MPI_Sendrecv(mine, sizeof(mine), MPI_BYTE, 1 - rank, 0, theirs, sizeof(theirs), MPI_BYTE,
                 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!launched_all(status == UCS_OK)) {
        return status == UCS_OK ? UCS_ERR_UNREACHABLE : status;
    }
    const ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)(const void *)theirs,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = ping_lost, .arg = ping},
    };
    return ucp_ep_create(ping->worker, &params, &ping->endpoint);
}

/* Waits for a request of UCX, or for nothing. */
static void ping_finish(struct ping *ping, ucs_status_ptr_t request)
{
    if (UCS_PTR_IS_ERR(request)) {
        ping->failed = true;
    } else if (request != NULL) {
        while (ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(ping->worker);
        }
        ucp_request_free(request);
    }
}

static void ping_send(struct ping *ping)
{
    static const char payload[BENCH_PING_BYTES];
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = UCP_AM_SEND_FLAG_EAGER};

    ping_finish(
        ping, ucp_am_send_nbx(ping->endpoint, PING_ID, NULL, 0, payload, sizeof(payload), &param));
}

/* Until `count` messages have come. */
static void ping_wait(struct ping *ping, uint32_t count)
{
    double end_s = ping_now_s() + PING_SECONDS_MAX;

    for (uint32_t spins = 1; ping->arrived < count && !ping->failed; spins++) {
        ucp_worker_progress(ping->worker);
        if (spins % PING_SPINS == 0) {
            sched_yield();
            ping->failed = ping->failed || ping_now_s() > end_s;
        }
    }
}

static void ping_rounds(struct ping *ping, int rank, uint32_t rounds, double *seconds_out)
{
    for (uint32_t i = 1; i <= PING_WARM + rounds && !ping->failed; i++) {
        double start_s = ping_now_s();

        if (rank == 0) {
            ping_send(ping);
        }
        ping_wait(ping, i);
        if (rank != 0) {
            ping_send(ping);
        } else if (i > PING_WARM) {
            seconds_out[i - PING_WARM - 1] = ping_now_s() - start_s;
        }
    }
}

static void ping_close(struct ping *ping)
{
    const ucp_request_param_t flush = {0};

    if (ping->endpoint != NULL) {
        ping_finish(ping, ucp_ep_close_nbx(ping->endpoint, &flush));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (ping->worker != NULL) {
        ucp_worker_destroy(ping->worker);
    }
    if (ping->context != NULL) {
        ucp_cleanup(ping->context);
    }
}

bool bench_ping_measure(uint32_t rounds, double *seconds_out)
{
    struct ping ping = {0};
    ucs_status_t status;
    bool fine;
    int rank;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    status = ping_open_worker(&ping);
    status = ping_connect(&ping, rank, status);
    if (status != UCS_OK) {
        say("bench control: rank %d: UCX: %s", rank, ucs_status_string(status));
    }
    fine = launched_all(status == UCS_OK);
    if (fine) {
        ping_rounds(&ping, rank, rounds, seconds_out);
        if (ping.failed) {
            say("bench control: rank %d: an active message was lost or cut", rank);
        }
        fine = launched_all(!ping.failed);
    }
    ping_close(&ping);
    return fine;
}
