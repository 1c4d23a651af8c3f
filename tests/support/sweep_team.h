/*
 * sweep_team.h - a group of pure sweep machines over a fake board, with what each rank's engine
 * and machine were told. One thread; time is given by the test.
 */
#ifndef SWEEP_TEAM_H
#define SWEEP_TEAM_H

#include <stdbool.h>
#include <stdint.h>

#include "collective_fake.h"
#include "consensus/sweep.h"
#include "testing.h"

#define TEAM_RIDS_MAX 4096u

struct team_said {
    uint64_t rid;
    enum kvf_event_kind kind;
    enum kvf_status status;
    uint32_t culprit;
    uint32_t iteration;
};

struct team_rank {
    struct sweep *sweep;
    struct collective *collective;
    uint32_t iteration; /* of the next call */
    unsigned flags;     /* of its calls */
    bool deaf;          /* ABSENT is never voted: the switch of M-07 */
    uint8_t votes[TEAM_RIDS_MAX];
    bool opened[TEAM_RIDS_MAX];
    struct team_said *said; /* events, in order */
    uint32_t said_count, said_max;
    uint32_t decisions, decided[4]; /* all, and by kind */
    uint32_t refused;               /* RELEASED for what is not drained here */
    uint32_t absent, end_all, warned, errors;
    char text[SWEEP_TEXT_BYTES]; /* of the last line logged */
    char event[8];
};

struct sweep_team {
    uint32_t count;
    uint64_t now_ns;
    bool checked; /* sweep_check() after every step */
    struct fake_board *board;
    struct team_rank *ranks;
};

struct team_params {
    uint32_t ranks;
    enum kvf_side side;
    uint32_t lag;
    uint32_t entries_max; /* 0 = TEAM_RIDS_MAX */
    uint64_t timeout_ns;
};

struct sweep_team *team_open(const struct team_params *params);
void team_close(struct sweep_team *team);

/* The rank's machine votes; `first` follows from what it voted before. */
void team_vote(struct sweep_team *team, uint32_t rank, uint64_t rid, unsigned vote,
               enum kvf_status status);
/* One call of the engine. OK: the iteration is through; AGAIN; E_GROUP_LOST. */
enum kvf_status team_call(struct sweep_team *team, uint32_t rank);
/* Every rank calls until its iteration is through, in an order of its own. */
void team_round(struct sweep_team *team, struct test_random *random);
void team_rounds(struct sweep_team *team, uint32_t rounds);
/* Something from outside the sweeps: a loss. */
void team_event(struct sweep_team *team, uint32_t rank, const struct sweep_event *event);

/* How often the rank's engine was told `kind` of `rid`. */
uint32_t team_told(const struct sweep_team *team, uint32_t rank, uint64_t rid,
                   enum kvf_event_kind kind);
/* The event, or NULL. */
const struct team_said *team_find(const struct sweep_team *team, uint32_t rank, uint64_t rid,
                                  enum kvf_event_kind kind);
/* All ranks were told the same, in the same order, in the same iterations. */
bool team_alike(const struct sweep_team *team);

#endif /* SWEEP_TEAM_H */
