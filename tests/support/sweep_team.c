/*
 * sweep_team.c - see sweep_team.h.
 */
#include "sweep_team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

struct sweep_team *team_open(const struct team_params *params)
{
    struct sweep_team *team = calloc(1, sizeof(*team));

    if (team == NULL)
        abort();
    team->count = params->ranks;
    team->now_ns = 1;
    team->checked = params->ranks <= 64;
    team->board = fake_board_open(params->ranks, sweep_slots(params->lag), SWEEP_MESSAGE_MAX);
    team->ranks = calloc(params->ranks, sizeof(*team->ranks));
    if (team->ranks == NULL)
        abort();
    for (uint32_t r = 0; r < params->ranks; r++) {
        const struct sweep_params sweep = {
            .retire =
                {
                    .side = params->side,
                    .rank_count = params->ranks,
                    .self = r,
                    .entries_max = params->entries_max == 0 ? TEAM_RIDS_MAX : params->entries_max,
                    .timeout_ns = params->timeout_ns,
                },
            .votes_max = 8 * TEAM_RIDS_MAX,
            .lag = params->lag,
            .warn_ns = 1000,
            .deadline_ns = 5000,
        };

        if (sweep_open(kvf_heap_system(), &sweep, &team->ranks[r].sweep) != KVF_OK)
            abort();
        team->ranks[r].collective = fake_board_rank(team->board, r);
    }
    return team;
}

void team_close(struct sweep_team *team)
{
    for (uint32_t r = 0; r < team->count; r++) {
        sweep_close(team->ranks[r].sweep);
        free(team->ranks[r].said);
    }
    assert_int_equal(fake_board_faults(team->board), 0);
    fake_board_close(team->board);
    free(team->ranks);
    free(team);
}

/* ---- actions -------------------------------------------------------------------------------- */

static void team_say(struct team_rank *rank, const struct kvf_event *event)
{
    if (rank->said_count == rank->said_max) {
        rank->said_max = rank->said_max == 0 ? 64 : rank->said_max * 2;
        rank->said = realloc(rank->said, rank->said_max * sizeof(*rank->said));
        if (rank->said == NULL)
            abort();
    }
    rank->said[rank->said_count++] = (struct team_said){
        .rid = event->rid,
        .kind = event->kind,
        .status = event->status,
        .culprit = event->culprit,
        .iteration = rank->iteration,
    };
}

static void team_tell(struct team_rank *rank, const struct sweep_loss *loss)
{
    uint8_t word[COLLECTIVE_WORD_BYTES] = {0};

    wire_store_u32(word, loss->cause);
    wire_store_u32(word + 4, loss->culprit);
    wire_store_u32(word + 8, loss->sweep);
    rank->collective->tell(rank->collective->self, word);
    rank->collective->abandon(rank->collective->self);
}

static void team_log(struct team_rank *rank, const struct sweep_action *action)
{
    snprintf(rank->text, sizeof(rank->text), "%s", action->u.log.text);
    snprintf(rank->event, sizeof(rank->event), "%s", action->u.log.event);
    rank->warned += action->u.log.level == KVF_LOG_WARN;
    rank->errors += action->u.log.level == KVF_LOG_ERROR;
}

/* Carries one action out; true: a vote of absence is due. */
static bool team_act(struct team_rank *rank, const struct sweep_action *action)
{
    struct collective *collective = rank->collective;

    switch (action->kind) {
    case SWEEP_ACT_POST:
        collective->start(collective->self, action->u.post.slot, action->u.post.bytes,
                          action->u.post.len_bytes);
        break;
    case SWEEP_ACT_EVENT:
        team_say(rank, &action->u.event.event);
        break;
    case SWEEP_ACT_DECIDE:
        rank->decisions++;
        rank->decided[action->u.decide.decision]++;
        if (action->u.decide.decision == RETIRE_DECIDED_RELEASED &&
            action->u.decide.rid < TEAM_RIDS_MAX &&
            (rank->votes[action->u.decide.rid] & RETIRE_DRAINED) == 0)
            rank->refused++;
        break;
    case SWEEP_ACT_ABSENT:
        return !rank->deaf && !rank->opened[action->u.rid];
    case SWEEP_ACT_TELL:
        team_tell(rank, &action->u.loss);
        break;
    case SWEEP_ACT_END_ALL:
        rank->end_all++;
        break;
    case SWEEP_ACT_LOG:
        team_log(rank, action);
        break;
    }
    return false;
}

/* Steps one event and all that follows. */
static enum kvf_status team_step(struct sweep_team *team, uint32_t r, struct sweep_event *event,
                                 struct sweep_out *state_out)
{
    struct team_rank *rank = &team->ranks[r];
    struct sweep_action actions[SWEEP_ACTIONS_MIN + 2];
    struct sweep_out out = {.actions = actions, .max = SWEEP_ACTIONS_MIN + 2};
    enum kvf_status status;
    uint64_t absent[64];
    uint32_t absent_count = 0;

    event->now_ns = team->now_ns;
    status = sweep_step(rank->sweep, event, &out);
    for (;;) {
        if (team->checked)
            sweep_check(rank->sweep);
        for (uint32_t a = 0; a < out.count; a++)
            if (team_act(rank, &actions[a]) && absent_count < 64)
                absent[absent_count++] = actions[a].u.rid;
        if (!out.more)
            break;
        out.count = 0;
        sweep_step(rank->sweep, &(struct sweep_event){.kind = SWEEP_POLL, .now_ns = team->now_ns},
                   &out);
    }
    *state_out = out;
    for (uint32_t a = 0; a < absent_count; a++) {
        rank->absent++;
        team_vote(team, r, absent[a], RETIRE_ABSENT | RETIRE_DRAINED, KVF_E_ABSENT);
    }
    return status;
}

void team_event(struct sweep_team *team, uint32_t rank, const struct sweep_event *event)
{
    struct sweep_event copy = *event;
    struct sweep_out out;

    team_step(team, rank, &copy, &out);
}

void team_vote(struct sweep_team *team, uint32_t rank, uint64_t rid, unsigned vote,
               enum kvf_status status)
{
    struct team_rank *self = &team->ranks[rank];
    struct sweep_event event = {
        .kind = SWEEP_VOTE,
        .u.vote =
            {
                .rid = rid,
                .vote = vote,
                .first = rid >= TEAM_RIDS_MAX || self->votes[rid] == 0,
                .status = status,
                .culprit = KVF_UNKNOWN,
                .own = {.payload_bytes = rank, .voted_ns = team->now_ns},
            },
    };
    struct sweep_out out;

    if (rid < TEAM_RIDS_MAX) {
        self->votes[rid] |= (uint8_t)vote;
        self->opened[rid] = self->opened[rid] || RETIRE_BASE(vote) != RETIRE_ABSENT;
    }
    assert_int_equal(team_step(team, rank, &event, &out), KVF_OK);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void team_hear(struct sweep_team *team, uint32_t r)
{
    struct collective *collective = team->ranks[r].collective;
    uint8_t word[COLLECTIVE_WORD_BYTES];

    while (collective->hear(collective->self, word)) {
        struct sweep_event event = {
            .kind = SWEEP_TOLD,
            .u.told = {wire_load_u32(word), wire_load_u32(word + 4), wire_load_u32(word + 8)},
        };

        team_event(team, r, &event);
    }
}

enum kvf_status team_call(struct sweep_team *team, uint32_t r)
{
    struct team_rank *rank = &team->ranks[r];
    struct collective *collective = rank->collective;
    struct sweep_event event = {.kind = SWEEP_CALL, .u.call = {rank->iteration, rank->flags}};
    struct sweep_out out;
    enum kvf_status status;

    team_hear(team, r);
    status = team_step(team, r, &event, &out);
    if (status != KVF_OK)
        return status;
    if (out.due) {
        status = collective->test(collective->self, out.slot);
        event.kind = status == KVF_OK      ? SWEEP_GATHERED
                     : status == KVF_AGAIN ? SWEEP_WAITING
                                           : SWEEP_FAILED;
        if (status == KVF_OK)
            event.u.gathered.bytes = collective->result(collective->self, out.slot);
        status = team_step(team, r, &event, &out);
    }
    if (out.done) {
        rank->iteration++;
        return KVF_OK;
    }
    if (status == KVF_OK && out.due)
        return KVF_AGAIN;
    return status == KVF_OK ? KVF_E_GROUP_LOST : status;
}

void team_round(struct sweep_team *team, struct test_random *random)
{
    uint32_t goal = team->ranks[0].iteration + 1, through = 0;

    for (uint32_t r = 0; r < team->count; r++)
        goal = team->ranks[r].iteration + 1 > goal ? team->ranks[r].iteration + 1 : goal;
    for (uint64_t tries = 0; through < team->count && tries < 1000000; tries++) {
        uint32_t r = random == NULL ? (uint32_t)(tries % team->count)
                                    : (uint32_t)test_random_below(random, team->count);

        if (team->ranks[r].iteration < goal) {
            enum kvf_status status = team_call(team, r);

            assert_true(status == KVF_OK || status == KVF_AGAIN);
            through += team->ranks[r].iteration == goal;
        }
    }
    assert_int_equal(through, team->count);
}

void team_rounds(struct sweep_team *team, uint32_t rounds)
{
    while (rounds-- > 0)
        team_round(team, NULL);
}

/* ---- looking -------------------------------------------------------------------------------- */

const struct team_said *team_find(const struct sweep_team *team, uint32_t rank, uint64_t rid,
                                  enum kvf_event_kind kind)
{
    const struct team_rank *self = &team->ranks[rank];

    for (uint32_t s = 0; s < self->said_count; s++)
        if (self->said[s].rid == rid && self->said[s].kind == kind)
            return &self->said[s];
    return NULL;
}

uint32_t team_told(const struct sweep_team *team, uint32_t rank, uint64_t rid,
                   enum kvf_event_kind kind)
{
    const struct team_rank *self = &team->ranks[rank];
    uint32_t times = 0;

    for (uint32_t s = 0; s < self->said_count; s++)
        times += self->said[s].rid == rid && self->said[s].kind == kind;
    return times;
}

bool team_alike(const struct sweep_team *team)
{
    const struct team_rank *first = &team->ranks[0];

    for (uint32_t r = 1; r < team->count; r++) {
        const struct team_rank *other = &team->ranks[r];

        if (other->said_count != first->said_count ||
            (first->said_count > 0 &&
             memcmp(other->said, first->said, first->said_count * sizeof(*first->said)) != 0))
            return false;
    }
    return true;
}
