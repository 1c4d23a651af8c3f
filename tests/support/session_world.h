/*
 * session_world.h - both session machines of a small world in one process, for seeded schedules.
 *
 * Context ranks 0 .. contexts-1, generation ranks behind them. Messages go through encoder and
 * decoder and stay in order per pair; between pairs, tasks, engine calls, sweeps and timers
 * anything may come first. Each side's group decides by the rule of docs/consensus.md. Pages are
 * modelled: a write lands at some moment of a task's life, and may not land in pages that were
 * given back.
 *
 * A broken rule fails the test (CMocka) with the seed printed by the caller.
 */
#ifndef KVF_TEST_SESSION_WORLD_H
#define KVF_TEST_SESSION_WORLD_H

#include "recv_session.h"
#include "send_session.h"
#include "testing.h"

#define WORLD_RANKS_MAX 8u
#define WORLD_REQUESTS_MAX 8u
#define WORLD_T_NS UINT64_C(60000000000)

struct world_params {
    uint32_t contexts;
    uint32_t generations;
    uint32_t context_groups; /* > 1: attention DP, receivers ask all groups */
    uint32_t requests;
    uint32_t out_max;      /* actions a step */
    unsigned fail_percent; /* of tasks */
    unsigned doubt_percent;
    unsigned cancel_percent; /* of requests, on either side */
    unsigned refuse_percent; /* of contexts that never open */
    unsigned kill_percent;   /* of schedules in which one rank dies */
    bool print;              /* trace to standard output */
};

/* What became of all requests of one schedule, over all ranks. */
struct world_tally {
    uint64_t ready, failed, cancelled, released, steps, stranded, silent, lands;
};

/* Runs one schedule to its end. */
void session_world_run(const struct world_params *params, uint64_t seed,
                       struct world_tally *tally_out);

#endif /* KVF_TEST_SESSION_WORLD_H */
