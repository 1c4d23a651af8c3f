/*
 * sim_pick.c - profiles, and what happens next: one op drawn among those that can happen.
 */
#include "sim.h"

#include <string.h>

/* ---- profiles ------------------------------------------------------------------------------- */

enum feature {
    FEATURE_CANCEL = 1u << 0,
    FEATURE_FAIL = 1u << 1,
    FEATURE_TIME = 1u << 2,
    FEATURE_STOP = 1u << 3,
    FEATURE_LOSE = 1u << 4,
    FEATURE_KILL = 1u << 5,
    FEATURE_BOUNCE = 1u << 6,
    FEATURE_WITHHOLD = 1u << 7,
    FEATURE_TIGHT = 1u << 8,
    FEATURE_WIRE = 1u << 9,
    FEATURE_UNFIT = 1u << 10,
    FEATURE_SHUT = 1u << 11,
    FEATURE_RELEASE = 1u << 12,
    FEATURE_GARBLE = 1u << 13,
};
#define FEATURES_DRAWN (FEATURE_WIRE - 1u + FEATURE_UNFIT + FEATURE_SHUT)

static const struct profile {
    const char *name;
    unsigned always; /* features of every schedule */
    unsigned drawn;  /* of some */
} profiles[] = {
    {"plain", 0, 0},
    {"cancel", FEATURE_CANCEL, FEATURE_WITHHOLD | FEATURE_TIGHT},
    {"faults", FEATURE_FAIL, FEATURE_CANCEL | FEATURE_BOUNCE | FEATURE_WITHHOLD},
    {"timers", FEATURE_TIME, FEATURE_CANCEL | FEATURE_FAIL | FEATURE_STOP},
    {"links", FEATURE_LOSE, FEATURE_STOP | FEATURE_FAIL | FEATURE_TIME | FEATURE_CANCEL},
    {"death", FEATURE_KILL, FEATURE_STOP | FEATURE_LOSE | FEATURE_FAIL | FEATURE_CANCEL},
    {"bounce", FEATURE_BOUNCE, FEATURE_CANCEL | FEATURE_FAIL | FEATURE_TIME | FEATURE_KILL},
    {"tight", FEATURE_TIGHT, FEATURE_CANCEL | FEATURE_FAIL | FEATURE_TIME | FEATURE_WITHHOLD},
    {"wire", FEATURE_WIRE, FEATURES_DRAWN},
    {"release", FEATURE_RELEASE | FEATURE_TIME, FEATURES_DRAWN},
    {"garble", FEATURE_GARBLE | FEATURE_WIRE, FEATURES_DRAWN},
    {"all", 0, FEATURES_DRAWN},
};

const char *pick_profiles(void)
{
    return "plain cancel faults timers links death bounce tight wire release garble all";
}

static bool draw(struct sim_world *world, unsigned percent)
{
    return test_random_below(&world->random, 100) < percent;
}

static uint32_t below(struct sim_world *world, uint32_t limit)
{
    return (uint32_t)((test_random_next(&world->random) >> 32) * limit >> 32);
}

static void set_knobs(struct sim_world *world, unsigned features)
{
    struct sim_knobs *knobs = &world->knobs;

    knobs->cancel = features & FEATURE_CANCEL ? 1 + below(world, 8) : 0;
    knobs->fail = features & FEATURE_FAIL ? 4 + below(world, 20) : 0;
    knobs->time = features & FEATURE_TIME ? 4 + below(world, 16) : 2;
    knobs->stop = features & FEATURE_STOP ? 3 : 0;
    knobs->lose = features & FEATURE_LOSE ? 3 : 0;
    knobs->kill = features & FEATURE_KILL ? 3 : 0;
    knobs->absent = features & FEATURE_WITHHOLD ? 1 : 0;
    knobs->shut = features & FEATURE_SHUT ? 1 : 0;
    knobs->again = 1;
    knobs->trouble = features & FEATURE_WIRE ? 4 : 0;
    knobs->bounce_percent = features & FEATURE_BOUNCE ? 40 : 0;
    knobs->withheld_percent = features & FEATURE_WITHHOLD ? 15 : 0;
    knobs->unfit_percent = features & FEATURE_UNFIT ? 8 : 0;
    knobs->tight = (features & FEATURE_TIGHT) != 0;
    knobs->wire = (features & FEATURE_WIRE) != 0;
    knobs->release = (features & FEATURE_RELEASE) != 0;
    knobs->garble = (features & FEATURE_GARBLE) != 0;
    world->silence = knobs->release;
}

bool pick_knobs(struct sim_world *world, const char *profile, uint64_t seed, bool check)
{
    struct sim_knobs *knobs = &world->knobs;
    const struct profile *found = NULL;
    unsigned features;

    for (size_t i = 0; i < sizeof(profiles) / sizeof(profiles[0]); i++)
        if (strcmp(profiles[i].name, profile) == 0)
            found = &profiles[i];
    if (found == NULL)
        return false;
    world->random = test_random_make(seed * UINT64_C(0x9e3779b97f4a7c15) + 1);
    world->salt = test_random_next(&world->random);
    features = found->always;
    if (found->drawn != 0)
        features |= (unsigned)test_random_next(&world->random) &
                    (unsigned)test_random_next(&world->random) & found->drawn;
    if (below(world, 8) == 0)
        features |= FEATURE_WIRE;
    set_knobs(world, features);
    knobs->requests = 1 + below(world, 3);
    knobs->ops = 24 + below(world, 100);
    knobs->out_max = below(world, 2) == 0 ? 1 : 16;
    if (found->drawn == 0)
        knobs->trouble = 0;
    knobs->lag = below(world, SIM_LAG_MAX + 1);
    knobs->pages = 1 + below(world, 2);
    knobs->checked = check || (seed & 31u) == 0;
    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++)
        world->order[i] = (uint8_t)(i + 1);
    for (uint32_t i = knobs->requests; i > 1; i--) {
        uint32_t with = below(world, i);
        uint8_t kept = world->order[i - 1];

        world->order[i - 1] = world->order[with];
        world->order[with] = kept;
    }
    for (uint32_t rank = 0; rank < world->ranks_count; rank++)
        for (uint32_t i = 0; i < knobs->requests; i++)
            world->ranks[rank].seats[i].withheld = draw(world, knobs->withheld_percent);
    return true;
}

/* ---- drawing -------------------------------------------------------------------------------- */

/* One of the bits of `mask`, which is not 0. */
static uint32_t one_of(struct sim_world *world, uint64_t mask)
{
    uint32_t skip = below(world, (uint32_t)__builtin_popcountll(mask));

    for (; skip > 0; skip--)
        mask &= mask - 1;
    return (uint32_t)__builtin_ctzll(mask);
}

static bool apply(struct sim_world *world, struct sim_op op)
{
    if (world->op_count == SIM_OPS_MAX)
        return false;
    world->ops[world->op_count++] = op; /* before it is applied: it may be the last */
    if (ops_apply(world, &op))
        return true;
    world->op_count--;
    return false;
}

static struct sim_op make(enum sim_op_kind kind, uint32_t a, uint32_t b, uint32_t c)
{
    return (struct sim_op){(uint8_t)kind, (uint8_t)a, (uint8_t)b, c};
}

static bool pick_deliver(struct sim_world *world)
{
    uint32_t pair;

    if (world->busy_pairs == 0)
        return false;
    pair = one_of(world, world->busy_pairs);
    return apply(world, make(OP_DELIVER, pair / SIM_RANKS_MAX, pair % SIM_RANKS_MAX,
                             world->knobs.wire ? below(world, 4) : 0));
}

static bool pick_write(struct sim_world *world)
{
    uint32_t at;
    uint32_t c;

    if (world->busy_writes == 0)
        return false;
    at = one_of(world, world->busy_writes);
    c = at * 2 + (world->knobs.fail > 0 && below(world, 8) == 0);
    switch (world->writes[at].state) {
    case WRITE_NONE:
        return false;
    case WRITE_DOUBT:
        return apply(world, make(below(world, 2) == 0 ? OP_LAND : OP_SETTLE, 0, 0, c));
    case WRITE_RUNNING:
    case WRITE_GHOST:
        break;
    }
    if (world->writes[at].bounce == BOUNCE_QUEUED || world->writes[at].bounce == BOUNCE_RUNNING)
        return apply(world, make(OP_SCATTER, 0, 0, c));
    return apply(world, make(below(world, 3) == 0 ? OP_LAND : OP_END, 0, 0, c)) ||
           apply(world, make(OP_LAND, 0, 0, c));
}

static bool pick_engine(struct sim_world *world)
{
    uint32_t rank = below(world, world->ranks_count);
    uint32_t rid = 1 + below(world, world->knobs.requests);

    for (uint32_t i = 0; i < world->ranks_count; i++) {
        uint32_t at = (rank + i) % world->ranks_count;

        if (ops_next_open(world, at) != 0 && apply(world, make(OP_OPEN, at, 0, 0)))
            return true;
        if (world->ranks[at].generation)
            continue;
        for (uint32_t k = 0; k < world->knobs.requests; k++) {
            uint32_t next = 1 + (rid + k) % world->knobs.requests;

            const struct sim_seat *seat = &world->ranks[at].seats[next - 1];

            if (!seat->opened || seat->released)
                continue;
            if (!seat->last_window && apply(world, make(OP_WINDOW, at, next, 0)))
                return true;
            if (seat->window_waits && apply(world, make(OP_READY, at, next, 0)))
                return true;
        }
    }
    return false;
}

static bool pick_group(struct sim_world *world)
{
    uint32_t rank = below(world, world->ranks_count);

    for (uint32_t i = 0; i < world->ranks_count; i++) {
        uint32_t at = (rank + i) % world->ranks_count;

        if (world->ranks[at].decision_count > 0 && apply(world, make(OP_DECIDE, at, 0, 0)))
            return true;
    }
    if (!group_waits(world, rank) && (world->ranks[rank].alone || below(world, 4) != 0))
        return false; /* sweeps without news: now and then */
    return apply(world, make(OP_COLLECT, rank, 0, below(world, 4) == 0));
}

/* Time moves on; timers go off at some ranks sooner than at others. */
static bool pick_time(struct sim_world *world)
{
    static const uint32_t steps_ms[] = {1000, 2500, 5001, 30000, 59999, 60000, 60001, 130000};
    uint32_t ms = below(world, 1200);

    if (below(world, 2) == 0)
        return apply(world, make(OP_TICK, below(world, world->ranks_count), 0, 0));
    if (world->knobs.time > 2 && below(world, 3) == 0)
        ms = steps_ms[below(world, sizeof(steps_ms) / sizeof(steps_ms[0]))];
    return apply(world, make(OP_TIME, 0, 0, ms));
}

/* ---- trouble -------------------------------------------------------------------------------- */

static bool pick_fail(struct sim_world *world)
{
    uint32_t at;

    if (world->busy_writes == 0)
        return false;
    at = one_of(world, world->busy_writes);
    return apply(world, make(below(world, 2) == 0 ? OP_DOUBT : OP_FAIL, 0, 0, at * 2));
}

static bool pick_stop(struct sim_world *world)
{
    uint32_t rank = below(world, world->ranks_count);

    return apply(world, make(world->ranks[rank].stopped ? OP_CONT : OP_STOP, rank, 0, 0));
}

/* A link that one of two has given up is soon given up by the other. */
static bool pick_lose(struct sim_world *world)
{
    uint32_t a = below(world, world->topology->contexts);
    uint32_t b = world->topology->contexts + below(world, world->topology->generations);
    bool swap = below(world, 2) == 0;

    if (!net_up(world, a, b) && !net_up(world, b, a))
        return apply(world, make(OP_HELLO, a, b, 0));
    if (swap ? net_up(world, b, a) : !net_up(world, a, b))
        return apply(world, make(OP_LOSE, b, a, 0));
    return apply(world, make(OP_LOSE, a, b, 0));
}

static bool pick_kill(struct sim_world *world)
{
    uint32_t rank = below(world, world->ranks_count);
    uint32_t other = below(world, world->ranks_count);

    if (world->ranks[other].old_epoch[rank] != 0 && below(world, 2) == 0)
        return apply(world, make(OP_PROOF, other, rank, 0));
    if (world->ranks[rank].alive)
        return below(world, 4) == 0 && apply(world, make(OP_KILL, rank, 0, 0));
    if (world->ranks[other].proof_due[rank] && below(world, 2) == 0)
        return apply(world, make(OP_PROOF, other, rank, 0));
    if (net_up(world, other, rank) && below(world, 2) == 0)
        return apply(world, make(OP_LOSE, other, rank, 0));
    return below(world, 3) == 0 && apply(world, make(OP_RESTART, rank, 0, 0));
}

static bool pick_wire(struct sim_world *world)
{
    uint32_t pair;
    bool corrupt = below(world, world->knobs.garble ? 2 : 16) == 0;

    if (world->busy_pairs == 0)
        return false;
    pair = one_of(world, world->busy_pairs);
    return apply(world, make(corrupt ? OP_CORRUPT : OP_DUP, pair / SIM_RANKS_MAX,
                             pair % SIM_RANKS_MAX, (uint32_t)test_random_next(&world->random)));
}

static bool pick_absent(struct sim_world *world)
{
    return apply(world, make(OP_ABSENT, below(world, world->ranks_count),
                             1 + below(world, world->knobs.requests), 0));
}

static bool pick_shut(struct sim_world *world)
{
    uint32_t rank = below(world, world->ranks_count);

    if (world->ranks[rank].shut)
        return apply(world, make(OP_BYE, rank, 0, 0));
    return below(world, 2) == 0 && apply(world, make(OP_SHUTDOWN, rank, 0, 0));
}

static bool pick_request_op(struct sim_world *world, enum sim_op_kind kind)
{
    return apply(world, make(kind, below(world, world->ranks_count),
                             1 + below(world, world->knobs.requests), 0));
}

/* True when `dice`, lowered by each weight in turn, fell on a kind of trouble. */
static bool pick_trouble(struct sim_world *world, uint32_t dice)
{
    const struct sim_knobs *knobs = &world->knobs;

    if (dice < knobs->cancel)
        return pick_request_op(world, OP_CANCEL);
    dice -= knobs->cancel;
    if (dice < knobs->fail)
        return pick_fail(world);
    dice -= knobs->fail;
    if (dice < knobs->stop)
        return pick_stop(world);
    dice -= knobs->stop;
    if (dice < knobs->lose)
        return pick_lose(world);
    dice -= knobs->lose;
    if (dice < knobs->kill)
        return pick_kill(world);
    dice -= knobs->kill;
    if (dice < knobs->trouble)
        return pick_wire(world);
    dice -= knobs->trouble;
    if (dice < knobs->absent)
        return pick_absent(world);
    dice -= knobs->absent;
    if (dice < knobs->shut)
        return pick_shut(world);
    dice -= knobs->shut;
    return dice < knobs->again && pick_request_op(world, OP_AGAIN);
}

void pick_one(struct sim_world *world)
{
    const struct sim_knobs *knobs = &world->knobs;
    uint32_t dice = below(world, 256);
    uint32_t trouble = knobs->cancel + knobs->fail + knobs->stop + knobs->lose + knobs->kill +
                       knobs->trouble + knobs->absent + knobs->shut + knobs->again;

    if (dice < trouble) {
        (void)pick_trouble(world, dice);
        return;
    }
    if (dice < trouble + knobs->time) {
        (void)pick_time(world);
        return;
    }
    dice = below(world, 16);
    if (dice < 7 && pick_deliver(world))
        return;
    if (dice < 10 && pick_write(world))
        return;
    if (dice < 13 && pick_engine(world))
        return;
    (void)(pick_group(world) || pick_engine(world) || pick_deliver(world) || pick_write(world));
}
