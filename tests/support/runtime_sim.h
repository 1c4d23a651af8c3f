/*
 * runtime_sim.h - several ranks of the whole library in one process: fake transport, fake world, no
 * MPI, no UCX. One rank runs at a time, in turns, so that a run is repeatable.
 *
 * Collective calls (open, publish, close) run in sim_all(): each rank has a thread of its own there
 * and gives its turn on whenever it waits. Between them the test's thread steps all ranks.
 */
#ifndef TEST_RUNTIME_SIM_H
#define TEST_RUNTIME_SIM_H

#include <kvferry/kvferry.h>

#include "context.h"
#include "tiny_engine.h"
#include "transport_fake.h"
#include "transport_fault.h"

#define SIM_RANKS_MAX 8u

struct sim;

/* What one rank has; the test may change settings, tiny, host and plan before sim_open(). */
struct sim_rank {
    struct sim *sim;
    uint32_t index;
    const char *settings;
    struct tiny_params tiny;
    uint32_t bounce_mb; /* as if the build had the bounce; 0 = the settings' */
    uint32_t host;
    struct fault_plan plan; /* copied at open; later: fault_plan(rank->fault) */
    struct fault *fault;
    struct kvf *kvf;
    struct tiny_engine engine;
    enum kvf_status status; /* of the last sim_all() */
    struct kvf_event events[256];
    uint32_t event_count;
    bool deaf; /* not stepped: dead or stopped */
};

struct sim {
    struct kvf_topology *topology;
    struct fake_net *net;
    uint32_t count;
    struct sim_rank ranks[SIM_RANKS_MAX];
    struct sim_turns *turns;
    uint32_t colours[SIM_RANKS_MAX];          /* the dp group of each rank */
    struct fake_board *boards[SIM_RANKS_MAX]; /* of each group, at its first rank */
    kvf_log_fn log;
    void *log_self;
};

/* Makes the ranks of a topology; nothing is open yet. */
struct sim *sim_new(const char *topology, const struct fake_params *params);
void sim_free(struct sim *sim);

/* Runs `call` on all ranks at once; its results are ranks[].status. */
void sim_all(struct sim *sim, enum kvf_status (*call)(struct sim_rank *rank));

/* Opens and publishes on all ranks: false when one said no. */
bool sim_open(struct sim *sim);
/* Closes all. */
void sim_close(struct sim *sim, uint32_t deadline_ms);

/* Closes one rank whose peers are dead: it waits for none of them. */
void sim_close_one(struct sim *sim, uint32_t index);

/* One step of time, and a step and a sweep of each rank; events are kept in ranks[].events. */
void sim_step(struct sim *sim);
/* Steps until rank `index` has had `kind` for the request, at most `steps`. */
bool sim_until(struct sim *sim, uint32_t index, uint64_t rid, enum kvf_event_kind kind,
               uint32_t steps);
/* Its event, or NULL. */
const struct kvf_event *sim_event(const struct sim *sim, uint32_t index, uint64_t rid,
                                  enum kvf_event_kind kind);

#endif /* TEST_RUNTIME_SIM_H */
