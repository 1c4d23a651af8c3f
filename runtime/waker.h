/*
 * waker.h - how a thread that sleeps is woken by one that gave it work. An eventfd that is written
 * only while the sleeper says that it sleeps: work for a thread that is awake costs no system call.
 *
 * The sleeper: waker_arm(), look for work once more, then sleep on waker->fd (and others) or
 * waker_rest(); waker_disarm() afterwards. The giver: publish the work, then waker_wake().
 */
#ifndef KVF_WAKER_H
#define KVF_WAKER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

struct waker {
    int fd; /* eventfd; readable = awake */
    atomic_bool asleep;
};

/* Errors: E_SYSTEM. Gives: waker_fini(). */
enum kvf_status waker_init(struct waker *waker);
/* Nobody may sleep or wake any more. Zeroed with fd -1 is fine. */
void waker_fini(struct waker *waker);

/* From now on waker_wake() writes. The sleeper's thread. */
void waker_arm(struct waker *waker);
/* Ends that, and takes a wake that came. The sleeper's thread. */
void waker_disarm(struct waker *waker);

/* Any thread, after the work is visible. */
void waker_wake(struct waker *waker);

/* Sleeps until woken, UINT32_MAX = without bound. */
void waker_rest(struct waker *waker, uint32_t timeout_ms);

#endif /* KVF_WAKER_H */
