/*
 * sim_group.c - what the ranks of a group decide together: the sweep machine of each, their
 * messages on boards, the engine's calls at each rank's own pace, and what must be alike.
 */
#include "sim.h"

#include <string.h>

#define ACTIONS_MAX 12u

/* What was given: board, sweep, member. Only what was given is ever looked at. */
static uint8_t given[SIM_RANKS_MAX][SIM_SWEEPS][SIM_RANKS_MAX][SIM_SWEEP_BYTES];
static uint8_t gathered[SIM_RANKS_MAX * SIM_SWEEP_BYTES];
static size_t lengths[SIM_RANKS_MAX][SIM_SWEEPS][SIM_RANKS_MAX];

static void push(struct sim_world *world, uint32_t rank, uint64_t rid,
                 enum session_decision decision, enum kvf_status code)
{
    struct sim_rank *self = &world->ranks[rank];

    if (self->decision_count == SIM_DECISIONS_MAX)
        sim_fail(world, "I33: more decisions than requests can have");
    self->decisions[(self->decision_first + self->decision_count++) % SIM_DECISIONS_MAX] =
        (struct sim_decision){rid, decision, code};
}

/* ---- opening -------------------------------------------------------------------------------- */

static void join(struct sim_world *world, uint32_t rank, uint32_t at)
{
    struct sim_board *board = &world->boards[at];

    world->ranks[rank].board = at;
    world->ranks[rank].member = board->count;
    board->members[board->count++] = rank;
}

void group_open(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sim_board *board = &world->boards[self->board];
    const struct sweep_params params = {
        .retire =
            {
                .side = self->generation ? KVF_GENERATION : KVF_CONTEXT,
                .rank_count = board->count,
                .self = self->member,
                .entries_max = SIM_REQUESTS_MAX,
                .timeout_ns = board->count > 1 ? SIM_T_NS : 0,
                .world_ranks = board->members,
            },
        .votes_max = 64,
        .lag = board->count > 1 ? world->knobs.lag : 0,
        .warn_ns = UINT64_C(1000000000),
        .deadline_ns = UINT64_C(5000000000),
    };

    self->iteration = self->started = self->seen = self->dead_due = 0;
    self->said[0] = self->said[1] = 0;
    self->word_due = false;
    if (board->count == 1)
        board->news = board->said_count[0] = board->said_count[1] = 0;
    if (sweep_open(&sim_heap, &params, &self->sweep) != KVF_OK)
        sim_fail(world, "a sweep does not open");
}

void group_open_all(struct sim_world *world)
{
    uint32_t boards = 0;

    memset(world->boards, 0, sizeof(world->boards));
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        bool alone = world->ranks[rank].alone;
        uint32_t at = boards;

        for (uint32_t b = 0; b < boards && !alone; b++) {
            uint32_t first = world->boards[b].members[0];

            if (!world->ranks[first].alone &&
                world->ranks[first].generation == world->ranks[rank].generation &&
                sim_group_of(world, first) == sim_group_of(world, rank))
                at = b;
        }
        boards += at == boards;
        join(world, rank, at);
    }
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        group_open(world, rank);
}

/* ---- what ranks are told -------------------------------------------------------------------- */

/* I22: every rank of a group is told the same, in the same order, in the same iteration. */
static void check_alike(struct sim_world *world, uint32_t rank, const struct kvf_event *event)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sim_board *board = &world->boards[self->board];
    const struct sim_said said = {event->rid, (uint32_t)event->kind, event->status,
                                  self->iteration};
    unsigned which = event->kind == KVF_EVENT_RELEASED;
    const struct sim_said *other;

    if (which != 0 && board->escaped)
        return;
    if (self->said[which] == board->said_count[which]) {
        if (board->said_count[which] == SIM_SAID_MAX)
            sim_fail(world, "I6: a group is told more than its requests can give");
        board->said[which][board->said_count[which]++] = said;
    }
    other = &board->said[which][self->said[which]++];
    if (other->rid != said.rid || other->kind != said.kind || other->status != said.status ||
        other->iteration != said.iteration)
        sim_fail(world,
                 "I22: rank %u is told event %u of request %u in iteration %u, another one event "
                 "%u of request %u in %u",
                 rank, said.kind, (unsigned)said.rid, said.iteration, other->kind,
                 (unsigned)other->rid, other->iteration);
}

/* I23: done means all are, released means all are drained. Dead members cannot be asked. */
static void check_all(struct sim_world *world, uint32_t rank, const struct kvf_event *event)
{
    const struct sim_board *board = &world->boards[world->ranks[rank].board];
    bool done = event->kind == KVF_EVENT_READY || event->kind == KVF_EVENT_SENT;

    for (uint32_t m = 0; m < board->count; m++) {
        uint32_t member = board->members[m];
        const struct sim_seat *seat = &world->ranks[member].seats[event->rid - 1];

        if (!world->ranks[member].alive || world->ranks[member].idle)
            continue;
        if (done && !seat->done_seen)
            sim_fail(world, "I23: request %u is done, rank %u is not", (unsigned)event->rid,
                     member);
        if (event->kind == KVF_EVENT_RELEASED && !seat->absent &&
            (seat->vote & SESSION_VOTE_DRAINED) == 0)
            sim_fail(world, "I23: request %u is released, rank %u is not drained",
                     (unsigned)event->rid, member);
    }
}

/* I6, I36: one outcome, then one release. */
static void check_once(struct sim_world *world, uint32_t rank, const struct kvf_event *event)
{
    struct sim_seat *seat = sim_seat(world, rank, event->rid);
    bool release = event->kind == KVF_EVENT_RELEASED || event->kind == KVF_EVENT_RELEASED_LOCAL;

    if (event->kind == KVF_EVENT_ASKED)
        return;
    if (release ? !seat->told || seat->told_release : seat->told)
        sim_fail(world, "I36: rank %u is told event %u of request %u out of turn", rank,
                 (unsigned)event->kind, (unsigned)event->rid);
    seat->told = true;
    seat->told_release = release;
}

static void hear_event(struct sim_world *world, uint32_t rank, const struct kvf_event *event)
{
    struct sweep_state look;

    sweep_look(world->ranks[rank].sweep, &look);
    check_once(world, rank, event);
    if (event->kind == KVF_EVENT_RELEASED_LOCAL && look.cause == SWEEP_HEALTHY) {
        world->tally->escaped++;
        world->boards[world->ranks[rank].board].escaped = true;
    }
    if (event->kind == KVF_EVENT_RELEASED_LOCAL || look.cause != SWEEP_HEALTHY) {
        if (look.cause != SWEEP_HEALTHY && event->kind != KVF_EVENT_RELEASED_LOCAL &&
            event->status != KVF_E_GROUP_LOST)
            sim_fail(world, "I26: rank %u is told event %u after its group was lost", rank,
                     (unsigned)event->kind);
        return;
    }
    check_alike(world, rank, event);
    check_all(world, rank, event);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void tell_all(struct sim_world *world, uint32_t rank, const struct sweep_loss *loss)
{
    const struct sim_board *board = &world->boards[world->ranks[rank].board];

    for (uint32_t m = 0; m < board->count; m++) {
        struct sim_rank *other = &world->ranks[board->members[m]];

        if (board->members[m] == rank || other->word_due)
            continue;
        other->word_due = true;
        other->word = *loss;
    }
    world->tally->lost++;
}

static void post(struct sim_world *world, uint32_t rank, const struct sweep_action *action)
{
    struct sim_rank *self = &world->ranks[rank];
    uint32_t slot = self->started % SIM_SWEEPS;

    if (action->u.post.len_bytes > SIM_SWEEP_BYTES)
        sim_fail(world, "I33: a message has %zu bytes", action->u.post.len_bytes);
    memcpy(given[self->board][slot][self->member], action->u.post.bytes, action->u.post.len_bytes);
    lengths[self->board][slot][self->member] = action->u.post.len_bytes;
    self->started++;
    if (action->u.post.bytes[14] > 0 && world->boards[self->board].news < self->started)
        world->boards[self->board].news = self->started;
    world->tally->sweeps++;
}

/* The group is lost: this rank's machine ends all it has. */
static void end_all(struct sim_world *world, uint32_t rank)
{
    world->ranks[rank].ended = true;
    if (world->ranks[rank].generation)
        sim_recv(
            world, rank,
            &(struct recv_event){.kind = RECV_CANCEL_ALL, .u.cancel = {.code = KVF_E_GROUP_LOST}});
    else
        sim_send(
            world, rank,
            &(struct send_event){.kind = SEND_CANCEL_ALL, .u.cancel = {.code = KVF_E_GROUP_LOST}});
}

/*
 * What is not open is told when it is. An outcome may come again when it was given before the first
 * vote of this rank; it is the same one.
 */
static void learn(struct sim_world *world, uint32_t rank, uint64_t rid,
                  enum session_decision decision, enum kvf_status code)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    bool release = decision == SESSION_DECIDED_RELEASED;

    if (!seat->opened || seat->released)
        return;
    if (!release && seat->learnt && seat->decision != decision)
        sim_fail(world, "I36: rank %u learns two outcomes of request %u", rank, (unsigned)rid);
    if (!release && seat->learnt)
        return;
    if (!release) {
        seat->learnt = true;
        seat->decision = decision;
    }
    push(world, rank, rid, decision, code);
}

static void carry(struct sim_world *world, uint32_t rank, const struct sweep_action *action)
{
    switch (action->kind) {
    case SWEEP_ACT_POST:
        break; /* at once: its bytes are there until the next step */
    case SWEEP_ACT_EVENT:
        hear_event(world, rank, &action->u.event.event);
        break;
    case SWEEP_ACT_DECIDE:
        learn(world, rank, action->u.decide.rid, (enum session_decision)action->u.decide.decision,
              action->u.decide.status);
        break;
    case SWEEP_ACT_ABSENT:
        if (!sim_seat(world, rank, action->u.rid)->opened &&
            !sim_seat(world, rank, action->u.rid)->absent)
            group_absent(world, rank, action->u.rid);
        break;
    case SWEEP_ACT_TELL:
        tell_all(world, rank, &action->u.loss);
        break;
    case SWEEP_ACT_END_ALL:
        break; /* queued: after all that the sweep has said */
    case SWEEP_ACT_LOG:
        sim_say(world, "  %u    %s %s\n", rank, action->u.log.event, action->u.log.text);
        break;
    }
}

/*
 * One event of the sweep and all that is left of it. Actions are carried out when the machine has
 * nothing left to give: they may lead to votes, which are steps of their own.
 */
static enum kvf_status step(struct sim_world *world, uint32_t rank, struct sweep_event *event,
                            struct sweep_out *out)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sweep_action actions[64];
    struct sweep_event next = {.kind = SWEEP_POLL};
    enum kvf_status status;
    uint32_t count = 0;

    *out = (struct sweep_out){.actions = actions, .max = ACTIONS_MAX};
    event->now_ns = next.now_ns = sim_awake_ns(world, rank);
    status = sweep_step(self->sweep, event, out);
    for (;;) {
        if (world->knobs.checked)
            sweep_check(self->sweep);
        world->tally->steps++;
        for (uint32_t a = 0; a < out->count; a++)
            if (out->actions[a].kind == SWEEP_ACT_POST)
                post(world, rank, &out->actions[a]);
        count += out->count;
        if (!out->more)
            break;
        if (count + ACTIONS_MAX > sizeof(actions) / sizeof(actions[0]))
            sim_fail(world, "I33: a sweep gives more than its requests can");
        out->actions = actions + count;
        out->count = 0;
        sweep_step(self->sweep, &next, out);
    }
    for (uint32_t a = 0; a < count; a++)
        carry(world, rank, &actions[a]);
    for (uint32_t a = 0; a < count; a++)
        if (actions[a].kind == SWEEP_ACT_END_ALL)
            end_all(world, rank);
    out->count = count;
    return status;
}

static void give(struct sim_world *world, uint32_t rank, const struct retire_vote *vote)
{
    struct sweep_event event = {.kind = SWEEP_VOTE, .u.vote = *vote};
    struct sweep_out out;

    if (world->ranks[rank].sweep != NULL && step(world, rank, &event, &out) != KVF_OK)
        sim_fail(world, "4.14: the group refuses vote %u of %u", vote->vote, rank);
}

static enum kvf_status code_of(unsigned vote)
{
    switch (SESSION_VOTE_BASE(vote)) {
    case SESSION_VOTE_DOOMED_USER:
        return KVF_E_CANCELLED;
    case SESSION_VOTE_DOOMED_PEER:
        return KVF_E_PEER_CANCELLED;
    case SESSION_VOTE_DOOMED_FAILED:
        return KVF_E_TRANSFER;
    case SESSION_VOTE_ABSENT:
        return KVF_E_ABSENT;
    }
    return KVF_OK;
}

void group_vote(struct sim_world *world, uint32_t rank, uint64_t rid, unsigned vote,
                unsigned before)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
    const struct retire_vote it = {.rid = rid,
                                   .vote = vote,
                                   .first = before == SESSION_VOTE_NONE,
                                   .status = code_of(vote),
                                   .culprit = KVF_UNKNOWN};
    unsigned base = SESSION_VOTE_BASE(vote);

    if (before != seat->vote || base < SESSION_VOTE_BASE(before) || vote == before ||
        ((seat->vote & SESSION_VOTE_DRAINED) != 0 && (vote & SESSION_VOTE_DRAINED) == 0))
        sim_fail(world, "4.14: the vote of %u for request %u goes from %u to %u", rank,
                 (unsigned)rid, seat->vote, vote);
    if (base == SESSION_VOTE_DONE && SESSION_VOTE_BASE(seat->vote) != SESSION_VOTE_DONE)
        memory_check_complete(world, rank, rid);
    if (base >= SESSION_VOTE_DOOMED_FAILED && !seat->bad_seen) {
        seat->bad_seen = true;
        for (uint32_t i = 0; i < SIM_AUX_BYTES; i++)
            seat->aux_kept[i] = seat->aux[i];
    }
    seat->done_seen = seat->done_seen || base == SESSION_VOTE_DONE;
    seat->vote = vote;
    if ((vote & SESSION_VOTE_DRAINED) != 0)
        memory_check_drained(world, rank, rid, "I27");
    give(world, rank, &it);
}

void group_opened(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    const struct retire_vote opened = {.rid = rid, .vote = RETIRE_NONE};

    if (world->boards[world->ranks[rank].board].count > 1)
        give(world, rank, &opened);
}

void group_absent(struct sim_world *world, uint32_t rank, uint64_t rid)
{
    const struct retire_vote absent = {.rid = rid,
                                       .vote = RETIRE_ABSENT | RETIRE_DRAINED,
                                       .first = true,
                                       .status = KVF_E_ABSENT,
                                       .culprit = rank};
    struct sim_seat *seat = sim_seat(world, rank, rid);

    if (seat->absent)
        return;
    seat->absent = seat->decided = seat->released = true;
    if (sim_takes_part(world, rank, rid) && world->boards[world->ranks[rank].board].count > 1)
        give(world, rank, &absent);
}

/* ---- sweeping ------------------------------------------------------------------------------- */

/* Everybody has started it; false: not yet. Gathers what they gave. */
static bool complete(struct sim_world *world, uint32_t rank)
{
    const struct sim_rank *self = &world->ranks[rank];
    const struct sim_board *board = &world->boards[self->board];
    uint32_t slot = self->seen % SIM_SWEEPS;
    size_t len = lengths[self->board][slot][self->member];

    for (uint32_t m = 0; m < board->count; m++)
        if (world->ranks[board->members[m]].started <= self->seen)
            return false;
    for (uint32_t m = 0; m < board->count; m++) {
        if (lengths[self->board][slot][m] != len)
            sim_fail(world, "10.4: ranks give messages of different size to sweep %u", self->seen);
        memcpy(gathered + m * len, given[self->board][slot][m], len);
    }
    return true;
}

/* What comes before any sweep: words of others, and deaths. */
static bool hear(struct sim_world *world, uint32_t rank, bool look)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sweep_event event = {.kind = SWEEP_TOLD, .u.told = self->word};
    struct sweep_out out;
    bool any = self->word_due || (look && self->dead_due != 0);

    if (self->word_due)
        (void)step(world, rank, &event, &out);
    self->word_due = false;
    for (; look && self->dead_due != 0; self->dead_due &= self->dead_due - 1) {
        event = (struct sweep_event){
            .kind = SWEEP_MEMBER,
            .u.member = {.rank = (uint32_t)__builtin_ctz(self->dead_due), .dead = true},
        };
        (void)step(world, rank, &event, &out);
    }
    return any;
}

bool group_waits(const struct sim_world *world, uint32_t rank)
{
    const struct sim_rank *self = &world->ranks[rank];
    struct sweep_state look;

    if (self->sweep == NULL)
        return false;
    sweep_look(self->sweep, &look);
    if (look.cause != SWEEP_HEALTHY)
        return self->word_due;
    return look.waiting > 0 || self->seen < world->boards[self->board].news ||
           self->dead_due != 0 || self->word_due;
}

bool group_left(const struct sim_world *world, uint32_t rank)
{
    const struct sim_rank *self = &world->ranks[rank];
    struct sweep_state look;

    if (self->sweep == NULL || world->boards[self->board].count == 1)
        return true;
    sweep_look(self->sweep, &look);
    return look.cause != SWEEP_HEALTHY || (look.left && look.under_way == 0);
}

/* What its engine says with the call: in a close it sweeps until all have nothing left. */
static unsigned flags_of(const struct sim_world *world, uint32_t rank)
{
    const struct sim_rank *self = &world->ranks[rank];

    if (!self->shut)
        return 0;
    for (uint32_t i = 0; i < world->knobs.requests; i++)
        if (self->seats[i].opened && !self->seats[i].released)
            return SWEEP_CLOSING;
    return SWEEP_CLOSING | SWEEP_LEAVING;
}

bool group_sweep(struct sim_world *world, uint32_t rank, bool look)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sweep_event event = {.kind = SWEEP_CALL};
    uint32_t started = self->started, acted;
    struct sweep_state before;
    struct sweep_out out;
    bool any;

    if (self->sweep == NULL)
        return false;
    world->swept = any = hear(world, rank, look);
    sweep_look(self->sweep, &before);
    if (before.left && before.under_way == 0)
        return true;
    event.u.call.iteration = self->iteration;
    event.u.call.flags = flags_of(world, rank);
    if (step(world, rank, &event, &out) == KVF_E_GROUP_LOST)
        return true;
    acted = out.count;
    if (out.due) {
        event.kind = complete(world, rank) ? SWEEP_GATHERED : SWEEP_WAITING;
        event.u.gathered.bytes = gathered;
        self->seen += event.kind == SWEEP_GATHERED;
        (void)step(world, rank, &event, &out);
        acted += out.count;
    }
    self->iteration += out.done;
    world->swept =
        any || acted > self->started - started || before.waiting > 0 || group_waits(world, rank);
    return true;
}

/* Its death will be noticed by each of the others in its own time. */
void group_lost(struct sim_world *world, uint32_t rank)
{
    struct sim_board *board = &world->boards[world->ranks[rank].board];

    for (uint32_t m = 0; m < board->count; m++)
        if (board->members[m] != rank)
            world->ranks[board->members[m]].dead_due |= 1u << world->ranks[rank].member;
    world->ranks[rank].sweep = NULL;
}

/* ---- learning ------------------------------------------------------------------------------- */

static void step_decision(struct sim_world *world, uint32_t rank,
                          const struct sim_decision *decision)
{
    uint64_t rid = decision->rid;

    if (world->ranks[rank].generation)
        sim_recv(world, rank,
                 &(struct recv_event){
                     .kind = RECV_DECISION,
                     .u.decision = {rid, decision->decision, decision->code, KVF_UNKNOWN}});
    else
        sim_send(world, rank,
                 &(struct send_event){
                     .kind = SEND_DECISION,
                     .u.decision = {rid, decision->decision, decision->code, KVF_UNKNOWN}});
}

bool group_decide(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    struct sim_decision decision;
    struct sim_seat *seat;

    if (self->decision_count == 0)
        return false;
    decision = self->decisions[self->decision_first];
    self->decision_first = (self->decision_first + 1) % SIM_DECISIONS_MAX;
    self->decision_count--;
    seat = sim_seat(world, rank, decision.rid);
    if (decision.decision == SESSION_DECIDED_RELEASED) {
        if (!seat->decided || seat->released)
            sim_fail(world, "I6: request %u of %u is released twice or before its end",
                     (unsigned)decision.rid, rank);
        seat->released = true; /* the machine forgets it inside the step */
        world->tally->released++;
        step_decision(world, rank, &decision);
        memory_release(world, rank, decision.rid);
        return true;
    }
    if (seat->decided)
        sim_fail(world, "I6: request %u of %u ends twice", (unsigned)decision.rid, rank);
    seat->decided = true;
    seat->decision = decision.decision;
    if (decision.decision == SESSION_DECIDED_OK && self->generation)
        memory_check_complete(world, rank, decision.rid);
    step_decision(world, rank, &decision);
    return true;
}
