/*
 * topo.h - where this process may run, and where its threads will.
 *
 * The launcher binds ranks; a rank's threads stay inside what it was given. Only where the rank is
 * bound, to more than one core, do they leave the engine's core alone: ranks that are not bound may
 * be more than cores, and pinned threads of theirs would meet on one of them.
 */
#ifndef KVF_TOPO_H
#define KVF_TOPO_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

#define TOPO_TEXT_BYTES 64u

struct topo {
    cpu_set_t allowed; /* of the thread that asked: the engine's */
    cpu_set_t caller;  /* the core it ran on then, all its hardware threads */
    cpu_set_t helpers; /* of the library's threads; = allowed when they are not pinned */
    uint32_t cores;    /* allowed ones, at least 1 */
    bool bound;        /* to a part of the machine */
    bool pinned;
    char numa[TOPO_TEXT_BYTES]; /* "0", "0-1": memory nodes of the allowed cores; "" = not known */
};

/* Finer facts than topo_read() has by itself: caller, cores, bound, numa. */
typedef void (*topo_refine_fn)(struct topo *topo);

/* topo_hwloc.c. Leaves `topo` as it is where hwloc fails. */
void topo_hwloc(struct topo *topo);

/* The calling thread's. `refine` may be NULL; `pin` is the setting. */
void topo_read(struct topo *topo_out, topo_refine_fn refine, bool pin);

/*
 * Between the two, threads that the calling thread starts run where helpers shall. Nothing when
 * they are not pinned.
 */
void topo_enter(const struct topo *topo);
void topo_leave(const struct topo *topo);

/* "0-3,8". Returns text_out. */
const char *topo_set_text(const cpu_set_t *set, char *text_out, size_t text_bytes);

/* Says, at level info, where the library's threads will run. */
void topo_say(const struct topo *topo, const struct logger *logger, bool has_threads);

/* Says, at level info, that pages cannot be locked as far as RDMA transports want it. */
void topo_say_memlock(const struct logger *logger);

#endif /* KVF_TOPO_H */
