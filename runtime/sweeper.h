/*
 * sweeper.h - the engine's side of agreement: votes of the reactor's machines come in, events go
 * out by kvf_sweep() and kvf_wait(), decisions go back. Glue; the thread that may call MPI, except
 * where it says the reactor's thread.
 */
#ifndef KVF_SWEEPER_H
#define KVF_SWEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "context.h"
#include "session.h"

struct sweeper;

/*
 * Collective over the ranks of the group. Errors: E_NOMEM, E_SYSTEM, E_WORLD, E_MPI. Gives:
 * sweeper_close().
 */
enum kvf_status sweeper_open(struct kvf *kvf, struct sweeper **sweeper_out);
/* NULL is fine. What a collective may still write into stays. */
void sweeper_close(struct sweeper *sweeper);

/* A machine's vote. The reactor's thread. */
void sweeper_vote(struct sweeper *sweeper, uint64_t rid, unsigned vote,
                  const struct session_result *result, uint64_t real_ns);
/* The machine has the request from now on. The reactor's thread. */
void sweeper_opened(struct sweeper *sweeper, uint64_t rid);

/*
 * Sweeps until nothing is live here and no other rank of the group needs this one's sweeps, or the
 * deadline (real time); events are thrown away. True when nothing is live here; `left_out`: the
 * group is through as well. At close.
 */
bool sweeper_drain(struct kvf *kvf, uint64_t deadline_ns, bool *left_out);

/* Waits a moment for a vote, or until the deadline; steps the library in caller mode. */
void sweeper_rest(struct kvf *kvf, uint64_t deadline_ns);

/* ---- the members of the group, as the reactor sees them; the reactor's thread ---------------- */

#define SWEEPER_MEMBER_DEAD 1u    /* its process has ended, or its link is lost: ends the group */
#define SWEEPER_MEMBER_SILENT 2u  /* it has been asked and has not answered for peer_lost_ms */
#define SWEEPER_MEMBER_ANSWERS 4u /* it has answered, and told how many sweeps it has started */

/* True for the other ranks of this one's group. Any thread. */
bool sweeper_is_member(const struct sweeper *sweeper, uint32_t world_rank);
void sweeper_note_member(struct sweeper *sweeper, uint32_t world_rank, unsigned life,
                         uint32_t posted);
/* A sweep is slow: members are to be asked for a sign of life. NULL is fine. */
bool sweeper_asks(const struct sweeper *sweeper);
/* Sweeps that this rank has started, for members that ask. NULL is fine. */
uint32_t sweeper_posted(const struct sweeper *sweeper);

#endif /* KVF_SWEEPER_H */
