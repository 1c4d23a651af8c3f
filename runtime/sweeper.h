/*
 * sweeper.h - the engine's side of agreement: votes of the reactor's machines come in, events go
 * out by kvf_sweep() and kvf_wait(), decisions go back. Glue; the thread that may call MPI, except
 * sweeper_vote().
 */
#ifndef KVF_SWEEPER_H
#define KVF_SWEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "context.h"
#include "session.h"

struct sweeper;

/* Errors: E_NOMEM, E_SYSTEM. Gives: sweeper_close(). */
enum kvf_status sweeper_open(struct kvf *kvf, struct sweeper **sweeper_out);
/* NULL is fine. */
void sweeper_close(struct sweeper *sweeper);

/* A machine's vote. The reactor's thread. */
void sweeper_vote(struct sweeper *sweeper, uint64_t rid, unsigned vote,
                  const struct session_result *result, uint64_t real_ns);

/* Takes all votes and throws their events away; at close. */
void sweeper_discard(struct kvf *kvf);

/* Waits a moment for a vote, or until the deadline; steps the library in caller mode. */
void sweeper_rest(struct kvf *kvf, uint64_t deadline_ns);

#endif /* KVF_SWEEPER_H */
