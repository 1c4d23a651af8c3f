/*
 * sim_group.c - what the ranks of an instance decide together. A rank alone has the machine of
 * consensus/retire.h; several ranks are modelled: a sweep takes everyone's votes at one moment,
 * each rank learns what was decided in the same order, but at a time of its own.
 */
#include "sim.h"

static void push(struct sim_world *world, uint32_t rank, uint64_t rid,
                 enum session_decision decision, enum kvf_status code)
{
    struct sim_rank *self = &world->ranks[rank];

    if (self->decision_count == SIM_DECISIONS_MAX)
        sim_fail(world, "I33: more decisions than requests can have");
    self->decisions[(self->decision_first + self->decision_count++) % SIM_DECISIONS_MAX] =
        (struct sim_decision){rid, decision, code};
}

static void vote_alone(struct sim_world *world, uint32_t rank, uint64_t rid, unsigned vote,
                       unsigned before)
{
    struct retire_vote given = {.rid = rid, .vote = vote, .before = before};
    struct retire_out out;
    enum kvf_status code = KVF_E_TRANSFER;

    if (retire_step(world->ranks[rank].retire, &given, &out) != KVF_OK)
        sim_fail(world, "4.14: the group of one refuses a vote");
    if (world->knobs.checked)
        retire_check(world->ranks[rank].retire);
    if (SESSION_VOTE_BASE(vote) == SESSION_VOTE_DOOMED_USER)
        code = KVF_E_CANCELLED;
    else if (SESSION_VOTE_BASE(vote) == SESSION_VOTE_DOOMED_PEER)
        code = KVF_E_PEER_CANCELLED;
    for (uint32_t i = 0; i < out.decision_count; i++)
        push(world, rank, rid, (enum session_decision)out.decisions[i], code);
}

void group_vote(struct sim_world *world, uint32_t rank, uint64_t rid, unsigned vote,
                unsigned before)
{
    struct sim_seat *seat = sim_seat(world, rank, rid);
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
    if (world->ranks[rank].alone)
        vote_alone(world, rank, rid, vote, before);
}

/* ---- several ranks -------------------------------------------------------------------------- */

struct poll {
    bool all_done, all_drained, absent;
    unsigned worst;
    uint32_t members;
};

static bool is_member(const struct sim_world *world, uint32_t rank, bool generation, uint64_t rid)
{
    const struct sim_rank *self = &world->ranks[rank];

    return self->alive && !self->idle && self->generation == generation && !self->alone &&
           sim_takes_part(world, rank, rid);
}

static struct poll poll_votes(struct sim_world *world, bool generation, uint64_t rid)
{
    struct poll poll = {.all_done = true, .all_drained = true};

    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct sim_seat *seat = &world->ranks[rank].seats[rid - 1];
        unsigned base = SESSION_VOTE_BASE(seat->vote);

        if (!is_member(world, rank, generation, rid))
            continue;
        poll.members++;
        if (seat->absent) {
            poll.absent = true;
            continue;
        }
        poll.all_done = poll.all_done && base == SESSION_VOTE_DONE;
        poll.all_drained = poll.all_drained && (seat->vote & SESSION_VOTE_DRAINED) != 0;
        if (base > poll.worst)
            poll.worst = base;
    }
    return poll;
}

/* The outcome that the votes bring; false: none yet. */
static bool outcome_of(const struct sim_world *world, bool generation, const struct poll *poll,
                       struct sim_entry *entry)
{
    bool lost = world->lost[generation];

    entry->decision = SESSION_DECIDED_CANCELLED;
    entry->code = KVF_E_PEER_CANCELLED;
    if (poll->worst == SESSION_VOTE_DOOMED_USER) {
        entry->code = KVF_E_CANCELLED;
    } else if (poll->worst != SESSION_VOTE_DOOMED_PEER) {
        entry->decision = SESSION_DECIDED_FAILED;
        entry->code = lost ? KVF_E_GROUP_LOST : poll->absent ? KVF_E_ABSENT : KVF_E_TRANSFER;
        if (poll->worst < SESSION_VOTE_DOOMED_FAILED && !lost && !poll->absent) {
            entry->decision = SESSION_DECIDED_OK;
            entry->code = KVF_OK;
            return poll->all_done;
        }
    }
    return true;
}

static void push_all(struct sim_world *world, bool generation, uint64_t rid,
                     enum session_decision decision, enum kvf_status code)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        struct sim_seat *seat = &world->ranks[rank].seats[rid - 1];

        if (!is_member(world, rank, generation, rid) || seat->absent)
            continue;
        if (!seat->opened) /* not opened in time: it never will be */
            seat->absent = seat->decided = seat->released = true;
        else
            push(world, rank, rid, decision, code);
    }
}

static bool collect_one(struct sim_world *world, bool generation, uint64_t rid)
{
    struct sim_entry *entry = &world->entries[generation][rid - 1];
    struct poll poll;

    if (entry->released)
        return false;
    poll = poll_votes(world, generation, rid);
    if (poll.members == 0)
        return false;
    if (!entry->decided) {
        if (!outcome_of(world, generation, &poll, entry))
            return false;
        entry->decided = true;
        push_all(world, generation, rid, entry->decision, entry->code);
        return true;
    }
    if (world->lost[generation] || !poll.all_drained)
        return false;
    entry->released = true;
    push_all(world, generation, rid, SESSION_DECIDED_RELEASED, KVF_OK);
    return true;
}

/* A lost group frees alone what is drained. */
static bool free_alone(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    bool any = false;

    if (!self->alive || self->idle || self->alone || !world->lost[self->generation])
        return false;
    for (uint64_t rid = 1; rid <= world->knobs.requests; rid++) {
        struct sim_seat *seat = &self->seats[rid - 1];

        if (!seat->opened || !seat->decided || seat->released || seat->shut ||
            (seat->vote & SESSION_VOTE_DRAINED) == 0)
            continue;
        if (world->entries[self->generation][rid - 1].released)
            continue; /* on its way */
        seat->shut = true;
        push(world, rank, rid, SESSION_DECIDED_RELEASED, KVF_OK);
        any = true;
    }
    return any;
}

bool group_collect(struct sim_world *world, bool generation)
{
    bool any = false;

    for (uint64_t rid = 1; rid <= world->knobs.requests; rid++)
        any = collect_one(world, generation, rid) || any;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        if (world->ranks[rank].generation == generation)
            any = free_alone(world, rank) || any;
    return any;
}

void group_lost(struct sim_world *world, uint32_t rank)
{
    if (!world->ranks[rank].alone)
        world->lost[world->ranks[rank].generation] = true;
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
