/* clock.c - see clock.h. */
#include "clock.h"

#include <time.h>

#include "check.h"

uint64_t clock_now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC,
                        &now); /* cannot fail: the clock is there, the pointer good */
    return (uint64_t)now.tv_sec * CLOCK_NS_PER_S + (uint64_t)now.tv_nsec + 1;
}

void awake_init(struct awake_clock *clock, uint64_t real_now_ns, uint64_t step_max_ns,
                bool caller_mode)
{
    KVF_REQUIRE(step_max_ns > 0);
    if (caller_mode && step_max_ns < CLOCK_CALLER_STEP_MAX_NS)
        step_max_ns = CLOCK_CALLER_STEP_MAX_NS;
    clock->awake_ns = 1;
    clock->real_ns = real_now_ns;
    clock->step_max_ns = step_max_ns;
}

uint64_t awake_step(struct awake_clock *clock, uint64_t real_now_ns, uint64_t *stall_ns_out)
{
    uint64_t gap_ns = real_now_ns > clock->real_ns ? real_now_ns - clock->real_ns : 0;

    clock->real_ns = real_now_ns;
    clock->awake_ns += gap_ns < clock->step_max_ns ? gap_ns : clock->step_max_ns;
    *stall_ns_out = gap_ns > CLOCK_STALL_NS ? gap_ns : 0;
    return clock->awake_ns;
}
