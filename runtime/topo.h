/*
 * topo.h - where this process may run. Pins nothing: the launcher binds ranks, and a rank's threads
 * stay inside what it was given.
 */
#ifndef KVF_TOPO_H
#define KVF_TOPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"

/* Cores that this thread may run on; at least 1. Any thread. */
uint32_t topo_cores(void);

/* "0-3,8": those cores. Returns text_out. */
const char *topo_cores_text(char *text_out, size_t text_bytes);

/* Says, at level info, where the library's threads will run. */
void topo_say(const struct logger *logger, bool has_threads);

#endif /* KVF_TOPO_H */
