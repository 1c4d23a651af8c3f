/*
 * topo.c - see topo.h.
 */
#include "topo.h"

#include <sched.h>
#include <stdio.h>

static int topo_set(cpu_set_t *set)
{
    CPU_ZERO(set);
    return sched_getaffinity(0, sizeof(*set), set);
}

uint32_t topo_cores(void)
{
    cpu_set_t set;

    if (topo_set(&set) != 0 || CPU_COUNT(&set) < 1)
        return 1;
    return (uint32_t)CPU_COUNT(&set);
}

const char *topo_cores_text(char *text_out, size_t text_bytes)
{
    cpu_set_t set;
    size_t at = 0;

    snprintf(text_out, text_bytes, "?");
    if (topo_set(&set) != 0)
        return text_out;
    for (int first = 0; first < CPU_SETSIZE && at < text_bytes; first++) {
        int last = first;
        int len;

        if (!CPU_ISSET(first, &set))
            continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set))
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

void topo_say(const struct logger *logger, bool has_threads)
{
    char cores[256];

    topo_cores_text(cores, sizeof(cores));
    if (!has_threads)
        log_info(logger, "stepped by the engine's thread; cores %s", cores);
    else if (topo_cores() == 1)
        log_info(logger, "progress thread shares core %s with the engine: only one is allowed",
                 cores);
    else
        log_info(logger, "progress thread runs on cores %s, not pinned", cores);
}
