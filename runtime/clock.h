/*
 * clock.h - the real clock, and the awake clock that the machines live by.
 *
 * The awake clock advances a pass by min(real time passed, step_max): a process that was stopped
 * does not wake up to find all its deadlines over with the answers still unread in its sockets. The
 * real clock is for log lines and for what the user sees.
 */
#ifndef KVF_CLOCK_H
#define KVF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_NS_PER_US UINT64_C(1000)
#define CLOCK_NS_PER_MS UINT64_C(1000000)
#define CLOCK_NS_PER_S UINT64_C(1000000000)

/* A longer gap between two passes is a stall: W32, and a full network pass before any timer. */
#define CLOCK_STALL_NS CLOCK_NS_PER_S
/* Steps of an engine that progresses by itself count in full up to this. */
#define CLOCK_CALLER_STEP_MAX_NS CLOCK_NS_PER_S

/* Monotonic real time since some fixed moment, never 0. Any thread. */
uint64_t clock_now_ns(void);

/* Pure: advances only by awake_step(). One thread. Zeroed is not valid, use awake_init(). */
struct awake_clock {
    uint64_t awake_ns; /* starts at 1, never goes back */
    uint64_t real_ns;  /* of the last step */
    uint64_t step_max_ns;
};

/*
 * `step_max_ns` is stall_step_max_ms in ns. With `caller_mode` up to CLOCK_CALLER_STEP_MAX_NS
 * between passes counts as real time.
 */
void awake_init(struct awake_clock *clock, uint64_t real_now_ns, uint64_t step_max_ns,
                bool caller_mode);

/*
 * Takes the real time of this pass, returns the awake time. `stall_ns_out` = 0, or the length of a
 * gap longer than CLOCK_STALL_NS: run a full network pass before any timer, and log W32. A real
 * clock that goes back does not move the awake clock.
 */
uint64_t awake_step(struct awake_clock *clock, uint64_t real_now_ns, uint64_t *stall_ns_out);

#endif /* KVF_CLOCK_H */
