/*
 * sweep.c - see sweep.h.
 */
#include "consensus/sweep.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "wire.h"

#define DELTA_FIRST 1u /* flag of a delta: the rank's first vote in this life of the request */

static const uint32_t class_deltas[SWEEP_CLASSES] = {3, 15, 63, 255};

enum sweep_phase {
    PHASE_IDLE,
    PHASE_DUE,    /* a sweep must be complete first */
    PHASE_LOST,   /* what a loss leaves to say: told, logged, ended */
    PHASE_DECIDE, /* requests that were touched */
    PHASE_TIME,   /* requests whose time is over */
    PHASE_POST,
};

struct sweep_flight {
    uint32_t iteration;
    uint32_t digest;
    uint32_t count; /* own votes in it */
    uint32_t class;
};

struct sweep_head {
    uint32_t sweep, iteration, digest;
    uint32_t backlog, count, flags;
};

struct sweep_member {
    bool silent, answers;
    uint32_t posted;
};

struct sweep {
    const struct kvf_heap *heap;
    struct sweep_params params;
    struct retire *retire;
    uint32_t *world_ranks;        /* [ranks] */
    struct sweep_member *members; /* [ranks] */
    struct retire_vote *votes;    /* [votes_max], a ring: sent and not applied, then not sent */
    uint32_t vote_first, vote_count, vote_sent;
    struct sweep_flight *flights; /* [slots] by number; a power of two, so that numbers may wrap */
    uint32_t slots;
    uint32_t depth; /* sweeps under way at once */
    uint8_t message[SWEEP_MESSAGE_MAX];

    enum sweep_phase phase;
    uint32_t posted, applied;
    uint32_t class, calm; /* calm: sweeps for which a smaller class would have done */
    uint32_t call_iteration;
    unsigned call_flags;
    bool left, giving_up;
    uint64_t waiting_ns, warned_ns; /* awake; 0 = the oldest sweep was not waited for yet */
    struct sweep_loss loss;         /* cause SWEEP_HEALTHY: none */
    uint32_t loss_said;             /* of its actions */
    char loss_text[SWEEP_TEXT_BYTES];
    uint64_t deltas, carried, bytes;
};

/* ---- open and close ------------------------------------------------------------------------- */

uint32_t sweep_slots(uint32_t lag)
{
    uint32_t slots = 1;

    while (slots < lag)
        slots *= 2;
    return slots;
}

enum kvf_status sweep_open(const struct kvf_heap *heap, const struct sweep_params *params,
                           struct sweep **sweep_out)
{
    uint32_t ranks = params->retire.rank_count;
    struct sweep *sweep;
    enum kvf_status status;

    if (params->votes_max == 0 || params->lag > SWEEP_LAG_MAX)
        return KVF_E_INVAL;
    sweep = kvf_alloc(heap, 1, sizeof(*sweep));
    if (sweep == NULL)
        return KVF_E_NOMEM;
    sweep->heap = heap;
    sweep->params = *params;
    sweep->params.retire.world_ranks = NULL;
    sweep->depth = params->lag == 0 ? 1 : params->lag;
    sweep->slots = sweep_slots(params->lag);
    status = retire_open(heap, &params->retire, &sweep->retire);
    if (status != KVF_OK)
        goto close_sweep;
    status = KVF_E_NOMEM;
    sweep->world_ranks = kvf_alloc(heap, ranks, sizeof(*sweep->world_ranks));
    sweep->members = kvf_alloc(heap, ranks, sizeof(*sweep->members));
    sweep->votes = kvf_alloc(heap, params->votes_max, sizeof(*sweep->votes));
    sweep->flights = kvf_alloc(heap, sweep->slots, sizeof(*sweep->flights));
    if (sweep->world_ranks == NULL || sweep->members == NULL || sweep->votes == NULL ||
        sweep->flights == NULL)
        goto close_sweep;
    for (uint32_t r = 0; r < ranks; r++)
        sweep->world_ranks[r] =
            params->retire.world_ranks == NULL ? r : params->retire.world_ranks[r];
    *sweep_out = sweep;
    return KVF_OK;

close_sweep:
    sweep_close(sweep);
    return status;
}

void sweep_close(struct sweep *sweep)
{
    if (sweep == NULL)
        return;
    kvf_release(sweep->heap, sweep->flights);
    kvf_release(sweep->heap, sweep->votes);
    kvf_release(sweep->heap, sweep->members);
    kvf_release(sweep->heap, sweep->world_ranks);
    retire_close(sweep->retire);
    kvf_release(sweep->heap, sweep);
}

/* ---- actions -------------------------------------------------------------------------------- */

static struct sweep_action *sweep_act(struct sweep_out *out, enum sweep_action_kind kind)
{
    struct sweep_action *action = &out->actions[out->count++];

    KVF_ASSERT(out->count <= out->max);
    action->kind = kind;
    return action;
}

static void sweep_log(struct sweep_out *out, enum kvf_log_level level, const char *event,
                      const char *format, ...) KVF_PRINTF(4, 5);

static void sweep_log(struct sweep_out *out, enum kvf_log_level level, const char *event,
                      const char *format, ...)
{
    struct sweep_action *action = sweep_act(out, SWEEP_ACT_LOG);
    va_list args;

    action->u.log.level = level;
    action->u.log.event = event;
    va_start(args, format);
    vsnprintf(action->u.log.text, sizeof(action->u.log.text), format, args);
    va_end(args);
}

/* What the table said of one request. */
static void sweep_give(struct sweep_out *out, const struct retire_out *said)
{
    for (uint32_t e = 0; e < said->event_count; e++) {
        struct sweep_action *action = sweep_act(out, SWEEP_ACT_EVENT);

        action->u.event.event = said->events[e];
        action->u.event.voted_ns = said->voted_ns;
    }
    for (uint32_t d = 0; d < said->decision_count; d++) {
        struct sweep_action *action = sweep_act(out, SWEEP_ACT_DECIDE);

        action->u.decide.rid = said->rid;
        action->u.decide.decision = said->decisions[d];
        action->u.decide.status = said->status;
        action->u.decide.culprit = said->culprit;
    }
    if (said->absent)
        sweep_act(out, SWEEP_ACT_ABSENT)->u.rid = said->rid;
    if (said->escaped)
        sweep_log(out, KVF_LOG_WARN, "W20",
                  "request %llu: the group cannot agree on its release: closed here alone",
                  (unsigned long long)said->rid);
    if (said->absence)
        sweep_log(out, KVF_LOG_WARN, "W37", "request %llu: world rank %u never opened it",
                  (unsigned long long)said->rid, said->culprit);
}

/* ---- messages ------------------------------------------------------------------------------- */

static struct retire_vote *sweep_vote_at(struct sweep *sweep, uint32_t index)
{
    return &sweep->votes[(sweep->vote_first + index) % sweep->params.votes_max];
}

static size_t sweep_len_bytes(uint32_t class)
{
    return SWEEP_HEAD_BYTES + class_deltas[class] * SWEEP_DELTA_BYTES;
}

static void sweep_store_delta(uint8_t *at, const struct retire_vote *vote)
{
    wire_store_u64(at, vote->rid);
    at[8] = (uint8_t)vote->vote;
    at[9] = vote->first ? DELTA_FIRST : 0;
    wire_store_u16(at + 10, (uint16_t)-vote->status);
    wire_store_u32(at + 12, vote->culprit);
}

static void sweep_load_delta(const uint8_t *at, struct retire_vote *vote_out)
{
    *vote_out = (struct retire_vote){
        .rid = wire_load_u64(at),
        .vote = at[8],
        .first = (at[9] & DELTA_FIRST) != 0,
        .status = (enum kvf_status) - (int32_t)wire_load_u16(at + 10),
        .culprit = wire_load_u32(at + 12),
    };
}

static struct sweep_head sweep_load_head(const uint8_t *at)
{
    return (struct sweep_head){
        .sweep = wire_load_u32(at),
        .iteration = wire_load_u32(at + 4),
        .digest = wire_load_u32(at + 8),
        .backlog = wire_load_u16(at + 12),
        .count = at[14],
        .flags = at[15],
    };
}

/* One message with the votes at hand; the rest waits for the next one. */
static void sweep_post(struct sweep *sweep, struct sweep_out *out)
{
    uint32_t slot = sweep->posted % sweep->slots;
    struct sweep_flight *flight = &sweep->flights[slot];
    uint32_t waiting = sweep->vote_count - sweep->vote_sent;
    uint32_t count = waiting < class_deltas[sweep->class] ? waiting : class_deltas[sweep->class];
    size_t len_bytes = sweep_len_bytes(sweep->class);
    struct sweep_action *action = sweep_act(out, SWEEP_ACT_POST);

    *flight = (struct sweep_flight){sweep->call_iteration, retire_digest(sweep->retire), count,
                                    sweep->class};
    wire_store_u32(sweep->message, sweep->posted);
    wire_store_u32(sweep->message + 4, flight->iteration);
    wire_store_u32(sweep->message + 8, flight->digest);
    wire_store_u16(sweep->message + 12,
                   (uint16_t)(waiting - count > UINT16_MAX ? UINT16_MAX : waiting - count));
    sweep->message[14] = (uint8_t)count;
    sweep->message[15] = (uint8_t)sweep->call_flags;
    for (uint32_t v = 0; v < count; v++)
        sweep_store_delta(sweep->message + SWEEP_HEAD_BYTES + (size_t)v * SWEEP_DELTA_BYTES,
                          sweep_vote_at(sweep, sweep->vote_sent + v));
    memset(sweep->message + SWEEP_HEAD_BYTES + (size_t)count * SWEEP_DELTA_BYTES, 0,
           len_bytes - SWEEP_HEAD_BYTES - (size_t)count * SWEEP_DELTA_BYTES);
    sweep->vote_sent += count;
    sweep->deltas += count;
    sweep->carried += waiting > count;
    sweep->bytes += len_bytes;
    sweep->posted++;
    action->u.post.slot = slot;
    action->u.post.bytes = sweep->message;
    action->u.post.len_bytes = len_bytes;
}

/* ---- losing --------------------------------------------------------------------------------- */

const char *sweep_cause_text(enum sweep_cause cause)
{
    switch (cause) {
    case SWEEP_HEALTHY:
        return "healthy";
    case SWEEP_LOST_MEMBER:
        return "a rank is dead or silent";
    case SWEEP_LOST_STUCK:
        return "a sweep did not end in time";
    case SWEEP_LOST_DIVERGED:
        return "its ranks disagree";
    case SWEEP_LOST_MPI:
        return "the collective failed";
    case SWEEP_LOST_FULL:
        return "more requests are voted on than it has room for";
    case SWEEP_LOST_TOLD:
        return "another rank said so";
    }
    return "?";
}

/* Sticky. What this rank has said and is not agreed on is ended by its own evidence. */
static void sweep_lose(struct sweep *sweep, enum sweep_cause cause, uint32_t culprit)
{
    struct retire_event event = {.kind = RETIRE_VOTE};
    struct retire_out ignored;

    if (sweep->loss.cause != SWEEP_HEALTHY)
        return;
    sweep->loss = (struct sweep_loss){(uint32_t)cause, culprit, sweep->applied};
    for (uint32_t v = 0; v < sweep->vote_count; v++) {
        event.u.vote = *sweep_vote_at(sweep, v);
        event.u.vote.rank = sweep->params.retire.self;
        retire_step(sweep->retire, &event, &ignored);
    }
    sweep->vote_count = sweep->vote_sent = 0;
    event.kind = RETIRE_LOSE;
    event.u.lost.culprit = culprit;
    retire_step(sweep->retire, &event, &ignored);
    sweep->phase = PHASE_LOST;
}

static void sweep_say_loss(struct sweep *sweep, struct sweep_out *out)
{
    const struct sweep_loss *loss = &sweep->loss;
    char culprit[48] = "";

    sweep_act(out, SWEEP_ACT_TELL)->u.loss = *loss;
    sweep_act(out, SWEEP_ACT_END_ALL);
    if (loss->culprit != KVF_UNKNOWN)
        snprintf(culprit, sizeof(culprit), "; world rank %u", loss->culprit);
    sweep_log(out, KVF_LOG_ERROR, "E29", "group lost: %s%s%s%s; last sweep applied: %u",
              sweep_cause_text((enum sweep_cause)loss->cause), culprit,
              sweep->loss_text[0] != 0 ? "; " : "", sweep->loss_text, loss->sweep);
}

/* ---- what all gave -------------------------------------------------------------------------- */

/* False: heads differ from this rank's own. */
static bool sweep_alike(struct sweep *sweep, const uint8_t *bytes)
{
    const struct sweep_flight *flight = &sweep->flights[sweep->applied % sweep->slots];
    size_t len_bytes = sweep_len_bytes(flight->class);
    struct sweep_head own = sweep_load_head(bytes + sweep->params.retire.self * len_bytes);

    for (uint32_t r = 0; r < sweep->params.retire.rank_count; r++) {
        struct sweep_head head = sweep_load_head(bytes + r * len_bytes);
        bool closing = ((head.flags | own.flags) & SWEEP_CLOSING) != 0;

        if (head.sweep == sweep->applied && head.digest == own.digest &&
            head.count <= class_deltas[flight->class] &&
            (closing || head.iteration == own.iteration))
            continue;
        snprintf(sweep->loss_text, sizeof(sweep->loss_text),
                 "sweep %u: world rank %u has digest %08x in its sweep %u, iteration %u; this rank "
                 "has digest %08x, iteration %u",
                 sweep->applied, sweep->world_ranks[r], head.digest, head.sweep, head.iteration,
                 own.digest, own.iteration);
        sweep_lose(sweep, SWEEP_LOST_DIVERGED, sweep->world_ranks[r]);
        return false;
    }
    return true;
}

/* The size that the sweeps to come have, from what all ranks had to say in this one. */
static void sweep_resize(struct sweep *sweep, uint32_t need)
{
    uint32_t class = 0;

    while (class + 1 < SWEEP_CLASSES && class_deltas[class] < need)
        class ++;
    if (class >= sweep->class) {
        sweep->class = class;
        sweep->calm = 0;
    } else if (++sweep->calm == SWEEP_SHRINK_AFTER) {
        sweep->class --;
        sweep->calm = 0;
    }
}

/* Own votes that have gone through a sweep. */
static void sweep_pop_votes(struct sweep *sweep, uint32_t count)
{
    sweep->vote_first = (sweep->vote_first + count) % sweep->params.votes_max;
    sweep->vote_count -= count;
    sweep->vote_sent -= count;
}

static void sweep_apply_one(struct sweep *sweep, struct sweep_out *out, uint32_t rank,
                            const uint8_t *at)
{
    struct retire_event event = {.kind = RETIRE_VOTE};
    struct retire_out ignored;
    enum kvf_status status;

    sweep_load_delta(at, &event.u.vote);
    event.u.vote.rank = rank;
    if (rank == sweep->params.retire.self) {
        event.u.vote.own = sweep_vote_at(sweep, 0)->own;
        sweep_pop_votes(sweep, 1);
    }
    status = retire_step(sweep->retire, &event, &ignored);
    if (status == KVF_E_TOO_LARGE)
        sweep_lose(sweep, SWEEP_LOST_FULL, KVF_UNKNOWN);
    else if (status != KVF_OK && out->count < SWEEP_ACTIONS_MIN / 2) /* the first few are named */
        sweep_log(out, KVF_LOG_ERROR, "", "request %llu: vote %u of world rank %u goes back",
                  (unsigned long long)event.u.vote.rid, event.u.vote.vote,
                  sweep->world_ranks[rank]);
}

/* All votes of one sweep, in the order of the ranks. */
static void sweep_apply(struct sweep *sweep, struct sweep_out *out, const uint8_t *bytes)
{
    const struct sweep_flight *flight = &sweep->flights[sweep->applied % sweep->slots];
    size_t len_bytes = sweep_len_bytes(flight->class);
    uint32_t leaving = 0, need = 0;

    sweep->giving_up = false;
    for (uint32_t r = 0; r < sweep->params.retire.rank_count; r++) {
        const uint8_t *at = bytes + r * len_bytes;
        struct sweep_head head = sweep_load_head(at);

        leaving += (head.flags & SWEEP_LEAVING) != 0;
        sweep->giving_up = sweep->giving_up || (head.flags & SWEEP_GIVING_UP) != 0;
        need = head.backlog > need ? head.backlog : need;
        need = head.count > need ? head.count : need;
        at += SWEEP_HEAD_BYTES;
        for (uint32_t d = 0; d < head.count && sweep->loss.cause == SWEEP_HEALTHY; d++)
            sweep_apply_one(sweep, out, r, at + (size_t)d * SWEEP_DELTA_BYTES);
    }
    sweep->left = leaving == sweep->params.retire.rank_count;
    sweep_resize(sweep, need);
}

static enum kvf_status sweep_gathered(struct sweep *sweep, const struct sweep_event *event,
                                      struct sweep_out *out)
{
    if (sweep->loss.cause != SWEEP_HEALTHY)
        return KVF_E_GROUP_LOST;
    if (sweep->phase != PHASE_DUE)
        return KVF_E_STATE;
    sweep->waiting_ns = 0;
    if (sweep->left) { /* nothing is live on any rank: what was still said is about nothing */
        sweep_pop_votes(sweep, sweep->flights[sweep->applied % sweep->slots].count);
        sweep->applied++;
        sweep->phase = PHASE_IDLE;
        out->done = true;
        return KVF_OK;
    }
    if (!sweep_alike(sweep, event->u.gathered.bytes))
        return KVF_OK;
    sweep->phase = PHASE_DECIDE;
    sweep_apply(sweep, out, event->u.gathered.bytes);
    if (sweep->loss.cause == SWEEP_HEALTHY)
        sweep->applied++;
    return KVF_OK;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Members that hold the oldest sweep up, as far as is known: names into `text`. */
static uint32_t sweep_suspects(const struct sweep *sweep, char *text, size_t text_bytes)
{
    uint32_t first = KVF_UNKNOWN;
    size_t at = 0;

    text[0] = 0;
    for (uint32_t r = 0; r < sweep->params.retire.rank_count; r++) {
        const struct sweep_member *member = &sweep->members[r];
        bool behind = member->answers && member->posted <= sweep->applied;
        int len;

        if (r == sweep->params.retire.self || (!member->silent && !behind))
            continue;
        if (first == KVF_UNKNOWN)
            first = sweep->world_ranks[r];
        len = at + 40 < text_bytes ? snprintf(text + at, text_bytes - at, "%sworld rank %u%s",
                                              at == 0 ? ": " : ", ", sweep->world_ranks[r],
                                              member->silent ? " is silent" : " has not called")
                                   : 0;
        at += len > 0 ? (size_t)len : 0;
    }
    return first;
}

static bool sweep_any_silent(const struct sweep *sweep)
{
    for (uint32_t r = 0; r < sweep->params.retire.rank_count; r++)
        if (sweep->members[r].silent)
            return true;
    return false;
}

static enum kvf_status sweep_waiting(struct sweep *sweep, uint64_t now_ns, struct sweep_out *out)
{
    uint64_t timeout_ns = sweep->params.retire.timeout_ns;
    uint64_t waited_ns;
    char names[SWEEP_TEXT_BYTES / 2];
    uint32_t suspect;
    bool silent;

    if (sweep->loss.cause != SWEEP_HEALTHY)
        return KVF_E_GROUP_LOST;
    if (sweep->phase != PHASE_DUE)
        return KVF_E_STATE;
    if (sweep->waiting_ns == 0) {
        sweep->waiting_ns = now_ns == 0 ? 1 : now_ns;
        sweep->warned_ns = 0;
    }
    waited_ns = now_ns > sweep->waiting_ns ? now_ns - sweep->waiting_ns : 0;
    silent = waited_ns >= sweep->params.deadline_ns && sweep_any_silent(sweep);
    if (silent || (timeout_ns > 0 && waited_ns >= timeout_ns)) {
        suspect = sweep_suspects(sweep, names, sizeof(names));
        snprintf(sweep->loss_text, sizeof(sweep->loss_text), "sweep %u%s", sweep->applied, names);
        sweep_lose(sweep, silent ? SWEEP_LOST_MEMBER : SWEEP_LOST_STUCK, suspect);
    } else if (waited_ns >= sweep->params.warn_ns &&
               (sweep->warned_ns == 0 || now_ns - sweep->warned_ns >= sweep->params.deadline_ns)) {
        sweep_suspects(sweep, names, sizeof(names));
        sweep->warned_ns = now_ns;
        sweep_log(out, KVF_LOG_WARN, "W28", "sweep %u is not complete after %llu ms%s",
                  sweep->applied, (unsigned long long)(waited_ns / 1000000), names);
    }
    return KVF_OK;
}

static void sweep_member(struct sweep *sweep, const struct sweep_event *event)
{
    struct sweep_member *member;
    uint32_t rank = event->u.member.rank;

    KVF_REQUIRE(rank < sweep->params.retire.rank_count);
    member = &sweep->members[rank];
    member->silent = event->u.member.silent;
    member->answers = event->u.member.answers;
    member->posted = event->u.member.posted;
    if (event->u.member.dead)
        sweep_lose(sweep, SWEEP_LOST_MEMBER, sweep->world_ranks[rank]);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static enum kvf_status sweep_take_vote(struct sweep *sweep, const struct retire_vote *vote)
{
    struct retire_event event = {.kind = RETIRE_VOTE, .u.vote = *vote};
    struct retire_out ignored;

    event.u.vote.rank = sweep->params.retire.self;
    if (vote->vote == RETIRE_NONE || sweep->loss.cause != SWEEP_HEALTHY) {
        enum kvf_status status = retire_step(sweep->retire, &event, &ignored);

        if (sweep->phase == PHASE_IDLE && sweep->loss.cause != SWEEP_HEALTHY)
            sweep->phase = PHASE_DECIDE;
        return status;
    }
    if (sweep->vote_count == sweep->params.votes_max)
        return KVF_BUSY;
    *sweep_vote_at(sweep, sweep->vote_count++) = event.u.vote;
    return KVF_OK;
}

static enum kvf_status sweep_call(struct sweep *sweep, const struct sweep_event *event,
                                  struct sweep_out *out)
{
    if (sweep->loss.cause != SWEEP_HEALTHY)
        return KVF_E_GROUP_LOST;
    if (sweep->phase == PHASE_DUE && event->u.call.iteration == sweep->call_iteration)
        return KVF_OK; /* again: flags of the first call count */
    if (sweep->phase != PHASE_IDLE || (sweep->left && sweep->posted == sweep->applied))
        return KVF_E_STATE;
    sweep->call_iteration = event->u.call.iteration;
    sweep->call_flags = event->u.call.flags;
    if (sweep->params.lag == 0 && !sweep->left)
        sweep_post(sweep, out);
    sweep->phase =
        sweep->posted - sweep->applied == sweep->depth || sweep->left ? PHASE_DUE : PHASE_POST;
    return KVF_OK;
}

/* One of the steps that are left to do; false: there is none. */
static bool sweep_advance(struct sweep *sweep, uint64_t now_ns, struct sweep_out *out)
{
    struct retire_event event = {.kind = RETIRE_DECIDE, .u.now_ns = now_ns};
    struct retire_out said;

    switch (sweep->phase) {
    case PHASE_IDLE:
    case PHASE_DUE:
        return false;
    case PHASE_LOST:
        sweep_say_loss(sweep, out);
        sweep->phase = PHASE_DECIDE;
        return true;
    case PHASE_DECIDE:
        retire_step(sweep->retire, &event, &said);
        sweep_give(out, &said);
        if (!said.more)
            sweep->phase = sweep->loss.cause != SWEEP_HEALTHY ? PHASE_IDLE : PHASE_TIME;
        return true;
    case PHASE_TIME:
        event.kind = RETIRE_TIME;
        retire_step(sweep->retire, &event, &said);
        sweep_give(out, &said);
        if (!said.more)
            sweep->phase = PHASE_POST;
        return true;
    case PHASE_POST:
        if (sweep->params.lag > 0 && !sweep->left)
            sweep_post(sweep, out);
        sweep->phase = PHASE_IDLE;
        out->done = true;
        return false;
    }
    return false;
}

enum kvf_status sweep_step(struct sweep *sweep, const struct sweep_event *event,
                           struct sweep_out *out)
{
    enum kvf_status status = KVF_OK;

    KVF_REQUIRE(out->max >= SWEEP_ACTIONS_MIN && out->count == 0);
    out->more = out->due = out->done = false;
    switch (event->kind) {
    case SWEEP_POLL:
        break;
    case SWEEP_VOTE:
        status = sweep_take_vote(sweep, &event->u.vote);
        break;
    case SWEEP_CALL:
        status = sweep_call(sweep, event, out);
        break;
    case SWEEP_GATHERED:
        status = sweep_gathered(sweep, event, out);
        break;
    case SWEEP_WAITING:
        status = sweep_waiting(sweep, event->now_ns, out);
        break;
    case SWEEP_MEMBER:
        sweep_member(sweep, event);
        break;
    case SWEEP_FAILED:
        sweep_lose(sweep, SWEEP_LOST_MPI, KVF_UNKNOWN);
        break;
    case SWEEP_TOLD:
        snprintf(sweep->loss_text, sizeof(sweep->loss_text), "%s",
                 sweep_cause_text((enum sweep_cause)event->u.told.cause));
        sweep_lose(sweep, SWEEP_LOST_TOLD, event->u.told.culprit);
        break;
    }
    while (out->max - out->count >= SWEEP_ACTIONS_MIN && sweep_advance(sweep, event->now_ns, out))
        ;
    out->more = sweep->phase != PHASE_IDLE && sweep->phase != PHASE_DUE;
    out->due = sweep->phase == PHASE_DUE;
    out->slot = sweep->applied % sweep->slots;
    return status;
}

/* ---- looking in ----------------------------------------------------------------------------- */

void sweep_look(const struct sweep *sweep, struct sweep_state *state_out)
{
    *state_out = (struct sweep_state){
        .cause = (enum sweep_cause)sweep->loss.cause,
        .loss = sweep->loss,
        .posted = sweep->posted,
        .applied = sweep->applied,
        .under_way = sweep->posted - sweep->applied,
        .backlog = sweep->vote_count - sweep->vote_sent,
        .waiting = sweep->vote_count,
        .left = sweep->left,
        .giving_up = sweep->giving_up,
        .deltas = sweep->deltas,
        .carried = sweep->carried,
        .bytes = sweep->bytes,
        .len_bytes = (uint32_t)sweep_len_bytes(sweep->class),
    };
}

struct retire *sweep_table(struct sweep *sweep)
{
    return sweep->retire;
}

void sweep_check(const struct sweep *sweep)
{
    uint32_t sent = 0;

    KVF_ASSERT(sweep->posted - sweep->applied <= sweep->depth);
    KVF_ASSERT(sweep->vote_sent <= sweep->vote_count);
    KVF_ASSERT(sweep->vote_count <= sweep->params.votes_max);
    for (uint32_t s = sweep->applied; s != sweep->posted; s++)
        sent += sweep->flights[s % sweep->slots].count;
    KVF_ASSERT(sweep->loss.cause != SWEEP_HEALTHY || sent == sweep->vote_sent);
    KVF_ASSERT(sweep->loss.cause == SWEEP_HEALTHY || sweep->vote_count == 0);
    retire_check(sweep->retire);
}
