/*
 * reactor.h - the progress loop of one rank: it steps the machines and carries their actions out.
 *
 * One thread at a time steps it: the progress thread, or in caller mode the engine's. Other threads
 * reach it through the calls below, which queue and wake. Each pass holds `lock`, so that any
 * thread may look inside between two passes.
 */
#ifndef KVF_REACTOR_H
#define KVF_REACTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "context.h"
#include "session.h"

struct reactor;

/*
 * After publish_peers() and publish_connect(): machines, buffers, channels; sets the transport's
 * sink. No thread runs yet. Errors: E_NOMEM, E_SYSTEM, E_INVAL, E_TOO_LARGE (`text_out`: which
 * ceilings). Gives: reactor_close().
 */
enum kvf_status reactor_open(struct kvf *kvf, struct reactor **reactor_out,
                             struct geo_text *text_out);

/*
 * Sends one message to each peer and touches its data plane, then passes until all have answered:
 * first transfers pay for no connection. `missing_out` names a silent peer on E_TIMEOUT.
 */
enum kvf_status reactor_warm_up(struct reactor *reactor, uint64_t deadline_ns,
                                const char **missing_out);

/* Starts the threads; nothing in caller mode. Errors: E_SYSTEM, E_NOMEM. */
enum kvf_status reactor_start(struct reactor *reactor);
/* Ends them. The caller's thread may then step. */
void reactor_stop(struct reactor *reactor);

/* One pass; true when something was done. The stepping thread. */
bool reactor_pass(struct reactor *reactor);
/* As reactor_pass() where the calling thread steps, nothing where a thread does. */
bool reactor_help(struct reactor *reactor);
/* Caller mode: passes; when nothing happens, sleeps on the descriptors, at most `most_ns`. */
void reactor_rest(struct reactor *reactor, uint64_t most_ns);

/* ---- from the engine's threads --------------------------------------------------------------- */

/* Errors: BUSY (the queue is full). Any thread. */
enum kvf_status reactor_open_request(struct reactor *reactor, struct admission_request *request);
enum kvf_status reactor_add_window(struct reactor *reactor, uint64_t rid,
                                   const struct session_window *window);
enum kvf_status reactor_cancel(struct reactor *reactor, uint64_t rid);
/* A synchronous receive gives up: a failure by E_TIMEOUT. */
void reactor_give_up(struct reactor *reactor, uint64_t rid);
/* A decision of the group. The sweeping thread. */
void reactor_decide(struct reactor *reactor, uint64_t rid, enum session_decision decision,
                    const struct kvf_event *facts);

/* The group is lost: every live request fails with E_GROUP_LOST. The sweeping thread. */
void reactor_group_lost(struct reactor *reactor);

/* What each live request waits for. Any thread, while others block. */
void reactor_dump(struct reactor *reactor, FILE *file);

/* ---- closing; the MPI thread ---------------------------------------------------------------- */

/* Every live request fails with E_SHUTDOWN; new ones are refused. */
void reactor_cancel_all(struct reactor *reactor);
/* BYE to all peers; waits until it has left, or the deadline. */
void reactor_goodbye(struct reactor *reactor, bool no_access, uint64_t deadline_ns);
/* After reactor_stop(): releases remotes, closes endpoints. False: something is left open. */
bool reactor_disconnect(struct reactor *reactor, uint64_t deadline_ns);
/* NULL is fine. */
void reactor_close(struct reactor *reactor);

#endif /* KVF_REACTOR_H */
