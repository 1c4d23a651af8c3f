/*
 * sim_drain.c - the end of a schedule: no new trouble, and everything that is under way happens, in
 * one fixed order, until every request has ended on every rank; then what must hold at the end.
 */
#include "sim.h"

#define ROUNDS_MAX 4000u

static bool apply(struct sim_world *world, enum sim_op_kind kind, uint32_t a, uint32_t b,
                  uint32_t c)
{
    struct sim_op op = {(uint8_t)kind, (uint8_t)a, (uint8_t)b, c};

    return ops_apply(world, &op);
}

static bool drain_messages(struct sim_world *world)
{
    bool any = false;

    while (world->busy_pairs != 0) {
        uint32_t pair = (uint32_t)__builtin_ctzll(world->busy_pairs);

        any = apply(world, OP_DELIVER, pair / SIM_RANKS_MAX, pair % SIM_RANKS_MAX, 0) || any;
    }
    return any;
}

static bool drain_writes(struct sim_world *world)
{
    bool any = false;

    for (uint64_t left = world->busy_writes; left != 0; left &= left - 1) {
        uint32_t at = (uint32_t)__builtin_ctzll(left);
        uint32_t c = at * 2;

        if (world->writes[at].state == WRITE_DOUBT)
            any = apply(world, OP_LAND, 0, 0, c) || apply(world, OP_SETTLE, 0, 0, c) || any;
        else if (world->writes[at].state != WRITE_NONE)
            any = apply(world, OP_END, 0, 0, c) || apply(world, OP_SCATTER, 0, 0, c) ||
                  apply(world, OP_LAND, 0, 0, c) || any;
    }
    return any;
}

static bool drain_engine(struct sim_world *world, uint32_t rank)
{
    bool any = false;

    for (uint32_t rid = 1; rid <= world->knobs.requests; rid++) {
        struct sim_seat *seat = &world->ranks[rank].seats[rid - 1];

        if (seat->withheld && !seat->opened && !seat->absent)
            any = apply(world, OP_ABSENT, rank, rid, 0) || any;
        if (world->ranks[rank].generation || !seat->opened || seat->released)
            continue;
        if (!seat->last_window)
            any = apply(world, OP_WINDOW, rank, rid, 0) || any;
        if (seat->window_waits)
            any = apply(world, OP_READY, rank, rid, 0) || any;
    }
    return (ops_next_open(world, rank) != 0 && apply(world, OP_OPEN, rank, 0, 0)) || any;
}

/* Links that only one of two has given up, and dead ranks that are not known to be dead. */
static bool drain_links(struct sim_world *world, uint32_t rank)
{
    bool any = false;

    for (uint32_t other = 0; other < world->ranks_count; other++) {
        bool dead = !world->ranks[other].alive;

        if (world->ranks[other].generation == world->ranks[rank].generation)
            continue;
        if (net_up(world, rank, other) && (dead || !net_up(world, other, rank)))
            any = apply(world, OP_LOSE, rank, other, 0) || any;
        if (dead && world->ranks[rank].proof_due[other])
            any = apply(world, OP_PROOF, rank, other, 0) || any;
        else if (!dead && !net_up(world, rank, other))
            any = apply(world, OP_HELLO, rank, other, 0) || any;
    }
    return any;
}

static bool drain_ranks(struct sim_world *world)
{
    bool any = false;

    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        if (!world->ranks[rank].alive)
            continue;
        if (world->ranks[rank].stopped)
            any = apply(world, OP_CONT, rank, 0, 0) || any;
        any = drain_engine(world, rank) || any;
        while (world->ranks[rank].decision_count > 0 && apply(world, OP_DECIDE, rank, 0, 0))
            any = true;
        any = (apply(world, OP_COLLECT, rank, 0, 1) && world->swept) || any;
        any = drain_links(world, rank) || any;
        if (world->ranks[rank].shut)
            any = apply(world, OP_BYE, rank, 0, 0) || any;
    }
    return any;
}

static bool all_ended(const struct sim_world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct sim_rank *self = &world->ranks[rank];

        if (!self->alive || self->idle)
            continue;
        for (uint64_t rid = 1; rid <= world->knobs.requests; rid++)
            if (sim_takes_part(world, rank, rid) && !self->seats[rid - 1].released)
                return false;
    }
    return true;
}

/* The soonest moment, in ns from now, at which some timer would go off. */
static uint64_t wait_ns(const struct sim_world *world)
{
    uint64_t best = UINT64_MAX;

    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct sim_rank *self = &world->ranks[rank];
        uint64_t now = sim_awake_ns(world, rank);
        uint64_t due;

        if (!self->alive)
            continue;
        due = self->generation ? recv_session_deadline_ns(self->recv)
                               : send_session_deadline_ns(self->send);
        for (uint32_t other = 0; other < world->ranks_count; other++)
            if (channel_deadline_ns(&self->channels[other]) < due)
                due = channel_deadline_ns(&self->channels[other]);
        if (due != UINT64_MAX && (due > now ? due - now : 0) < best)
            best = due > now ? due - now : 0;
    }
    return best;
}

static bool let_time_pass(struct sim_world *world)
{
    uint64_t ns = wait_ns(world);

    if (ns == UINT64_MAX)
        return false;
    (void)apply(world, OP_TIME, 0, 0, (uint32_t)((ns + 999999) / 1000000));
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        (void)apply(world, OP_TICK, rank, 0, 0);
    return true;
}

void drain_all(struct sim_world *world)
{
    sim_say(world, "drain\n");
    world->draining = true;
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        (void)apply(world, OP_CONT, rank, 0, 0);
    for (uint32_t round = 0;; round++) {
        bool any = drain_messages(world);

        any = drain_writes(world) || any;
        any = drain_ranks(world) || any;
        if (any && round < ROUNDS_MAX)
            continue;
        if (all_ended(world))
            return;
        if (round >= ROUNDS_MAX || !let_time_pass(world)) {
            if (world->knobs.garble)
                return;
            sim_fail(world, "I5: a request does not end");
        }
    }
}

/* ---- the judgement -------------------------------------------------------------------------- */

static void judge_asks(struct sim_world *world, uint32_t writer, uint32_t receiver)
{
    for (uint64_t rid = 1; rid <= world->knobs.requests; rid++) {
        const struct sim_ask *ask = &world->asks[writer][receiver][rid - 1];

        if (ask->tag == 0 || ask->deliveries == 0 || ask->broken)
            continue;
        if (ask->writer_epoch != world->ranks[writer].epoch ||
            ask->receiver_epoch != world->ranks[receiver].epoch)
            continue;
        if (ask->finals == 0)
            sim_fail(world, "I5: rank %u never answered request %u of %u", writer, (unsigned)rid,
                     receiver);
    }
}

static void judge_recv(struct sim_world *world, uint32_t rank)
{
    const struct recv_counts *counts = recv_session_counts(world->ranks[rank].recv);

    world->tally->silent += counts->silent_writers;
    if (counts->live + counts->retained_blocks + counts->stranded_blocks +
            counts->unanswered_cancels !=
        0)
        sim_fail(world, "I28: rank %u has something left over", rank);
    if (counts->unexpected_events != 0)
        sim_fail(world, "4.5: rank %u met an event that no table lists", rank);
    if (counts->contradictions != 0)
        sim_fail(world, "W26: rank %u heard a contradiction", rank);
    if (counts->wrong_peer != 0 && !world->disturbed)
        sim_fail(world, "I15: rank %u heard a rank that it did not ask", rank);
}

static void judge_send(struct sim_world *world, uint32_t rank)
{
    const struct send_counts *counts = send_session_counts(world->ranks[rank].send);

    if (counts->live + counts->tasks + counts->doubts + counts->retained_blocks != 0)
        sim_fail(world, "I28: rank %u has something left over", rank);
    if (counts->unexpected_events != 0)
        sim_fail(world, "4.2: rank %u met an event that no table lists", rank);
    if (counts->wrong_peer != 0)
        sim_fail(world, "I15: rank %u heard a rank that has no say", rank);
    for (uint32_t other = 0; other < world->ranks_count; other++)
        if (world->ranks[other].alive && world->ranks[other].generation)
            judge_asks(world, rank, other);
}

void drain_judge(struct sim_world *world)
{
    for (uint32_t rank = 0; rank < world->ranks_count; rank++) {
        const struct sim_rank *self = &world->ranks[rank];

        for (uint32_t i = 0; i < world->knobs.requests; i++) {
            if (!self->seats[i].opened || !self->seats[i].decided)
                continue;
            world->tally->ready += self->seats[i].decision == SESSION_DECIDED_OK;
            world->tally->failed += self->seats[i].decision == SESSION_DECIDED_FAILED;
            world->tally->cancelled += self->seats[i].decision == SESSION_DECIDED_CANCELLED;
        }
        if (!self->alive || world->knobs.garble || self->idle)
            continue;
        if (self->generation)
            judge_recv(world, rank);
        else
            judge_send(world, rank);
    }
}
