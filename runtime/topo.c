/*
 * topo.c - see topo.h.
 */
#include "topo.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define TOPO_MEMLOCK_SMALL (UINT64_C(1) << 30) /* less than pools usually have */

const char *topo_set_text(const cpu_set_t *set, char *text_out, size_t text_bytes)
{
    size_t at = 0;

    snprintf(text_out, text_bytes, "?");
    for (int first = 0; first < CPU_SETSIZE && at < text_bytes; first++) {
        int last = first;
        int len;

        if (!CPU_ISSET(first, set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        len = last > first
                  ? snprintf(text_out + at, text_bytes - at, "%s%d-%d", at == 0 ? "" : ",", first,
                             last)
                  : snprintf(text_out + at, text_bytes - at, "%s%d", at == 0 ? "" : ",", first);
        at += len < 0 ? 0 : (size_t)len;
        first = last;
    }
    return text_out;
}

/* The allowed set without the caller's core, where threads shall be kept off it. */
static void topo_choose(struct topo *topo, bool pin)
{
    topo->helpers = topo->allowed;
    topo->pinned = false;
    if (!pin || !topo->bound || topo->cores < 2)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &topo->caller))
            CPU_CLR(cpu, &topo->helpers);
    topo->pinned = CPU_COUNT(&topo->helpers) > 0;
    if (!topo->pinned)
        topo->helpers = topo->allowed;
}

void topo_read(struct topo *topo_out, topo_refine_fn refine, bool pin)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int cpu = sched_getcpu();

    *topo_out = (struct topo){.cores = 1};
    CPU_ZERO(&topo_out->allowed);
    CPU_ZERO(&topo_out->caller);
    if (sched_getaffinity(0, sizeof(topo_out->allowed), &topo_out->allowed) == 0 &&
        CPU_COUNT(&topo_out->allowed) > 0) {
        topo_out->cores = (uint32_t)CPU_COUNT(&topo_out->allowed);
        topo_out->bound = online > 0 && CPU_COUNT(&topo_out->allowed) < online;
        if (cpu >= 0 && cpu < CPU_SETSIZE)
            CPU_SET(cpu, &topo_out->caller);
        if (refine != NULL)
            refine(topo_out);
    }
    topo_choose(topo_out, pin);
}

void topo_enter(const struct topo *topo)
{
    if (topo->pinned)
        (void)pthread_setaffinity_np(pthread_self(), sizeof(topo->helpers), &topo->helpers);
}

void topo_leave(const struct topo *topo)
{
    if (topo->pinned)
        (void)pthread_setaffinity_np(pthread_self(), sizeof(topo->allowed), &topo->allowed);
}

void topo_say(const struct topo *topo, const struct logger *logger, bool has_threads)
{
    char allowed[256], helpers[256], caller[64], numa[TOPO_TEXT_BYTES + 32] = "";

    topo_set_text(&topo->allowed, allowed, sizeof(allowed));
    topo_set_text(&topo->helpers, helpers, sizeof(helpers));
    topo_set_text(&topo->caller, caller, sizeof(caller));
    if (topo->numa[0] != 0)
        snprintf(numa, sizeof(numa), ", memory node %s", topo->numa);
    if (!has_threads)
        log_info(logger, "stepped by the engine's thread; cores %s%s", allowed, numa);
    else if (topo->cores == 1)
        log_info(logger, "progress thread shares core %s with the engine: only one is allowed%s",
                 allowed, numa);
    else if (topo->pinned)
        log_info(logger, "progress thread runs on cores %s of %s, off the engine's core %s%s",
                 helpers, allowed, caller, numa);
    else
        log_info(logger, "progress thread runs on cores %s, not pinned%s%s", allowed,
                 topo->bound ? "" : ": the rank is not bound", numa);
}

void topo_say_memlock(const struct logger *logger)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= TOPO_MEMLOCK_SMALL)
        return;
    log_info(logger,
             "at most %llu KiB of memory may be locked (ulimit -l): shared memory and TCP need "
             "none, RDMA transports cannot register pools",
             (unsigned long long)(limit.rlim_cur >> 10));
}
