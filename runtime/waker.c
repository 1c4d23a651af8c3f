/*
 * waker.c - see waker.h.
 */
#include "waker.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum kvf_status waker_init(struct waker *waker)
{
    waker->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_init(&waker->asleep, false);
    return waker->fd < 0 ? KVF_E_SYSTEM : KVF_OK;
}

void waker_fini(struct waker *waker)
{
    if (waker->fd >= 0)
        close(waker->fd);
    waker->fd = -1;
}

/*
 * Sequentially consistent on both sides: either the giver sees `asleep`, or the sleeper's second
 * look sees the work.
 */
void waker_arm(struct waker *waker)
{
    atomic_store(&waker->asleep, true);
    atomic_thread_fence(memory_order_seq_cst);
}

void waker_disarm(struct waker *waker)
{
    uint64_t count;

    atomic_store(&waker->asleep, false);
    while (read(waker->fd, &count, sizeof(count)) < 0 && errno == EINTR)
        ; /* always: a wake of an earlier sleep may have been written late */
}

void waker_wake(struct waker *waker)
{
    const uint64_t one = 1;

    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&waker->asleep, memory_order_relaxed) &&
        atomic_exchange(&waker->asleep, false))
        while (write(waker->fd, &one, sizeof(one)) < 0 && errno == EINTR)
            ;
}

void waker_rest(struct waker *waker, uint32_t timeout_ms)
{
    struct pollfd entry = {.fd = waker->fd, .events = POLLIN};

    poll(&entry, 1, timeout_ms > INT_MAX ? -1 : (int)timeout_ms);
}
