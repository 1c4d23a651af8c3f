/*
 * sweeper.c - see sweeper.h; the public calls kvf_sweep() and kvf_wait().
 *
 * Here the sweep meets its collective: one iteration is a step of the machine, a look whether the
 * collective that is due is complete, and the actions that follow. May not look into the machines
 * of the requests: what crosses is votes one way and decisions the other.
 */
#include "sweeper.h"

#include <string.h>

#include "clock.h"
#include "consensus/collective.h"
#include "consensus/sweep.h"
#include "reactor.h"
#include "ring.h"
#include "wire.h"

#define SWEEPER_VOTES_PER_REQUEST 10u /* a rank has at most 8 different votes, and opens it */
#define SWEEPER_EVENTS_PER_REQUEST 4u
#define SWEEPER_REST_NS (20 * CLOCK_NS_PER_MS)
#define SWEEPER_REST_GROUP_NS (200 * CLOCK_NS_PER_US) /* other ranks wait for this one's call */
#define SWEEPER_STALL_HEARS 1000u              /* looks for a word after this process stood still */
#define SWEEPER_ASK_NS (100 * CLOCK_NS_PER_MS) /* a sweep slower than this: are the others alive? */
#define SWEEPER_GROUP_BYTES 8u

_Static_assert((int)RETIRE_ASKED == (int)SESSION_VOTE_ASKED, "one numbering of votes");
_Static_assert((int)RETIRE_WITHDRAWN == (int)SESSION_VOTE_WITHDRAWN, "one numbering of votes");
_Static_assert((int)RETIRE_DONE == (int)SESSION_VOTE_DONE, "one numbering of votes");
_Static_assert((int)RETIRE_DOOMED_FAILED == (int)SESSION_VOTE_DOOMED_FAILED, "one numbering");
_Static_assert((int)RETIRE_DOOMED_PEER == (int)SESSION_VOTE_DOOMED_PEER, "one numbering");
_Static_assert((int)RETIRE_DOOMED_USER == (int)SESSION_VOTE_DOOMED_USER, "one numbering");
_Static_assert((int)RETIRE_ABSENT == (int)SESSION_VOTE_ABSENT, "one numbering");
_Static_assert(RETIRE_DRAINED == SESSION_VOTE_DRAINED, "one numbering of votes");

struct sweeper_event {
    struct kvf_event event;
    uint64_t voted_ns; /* real; 0 = this rank has not voted */
};

/* What the reactor knows of a member; read by the sweeping thread when `notes` has changed. */
struct sweeper_member {
    _Atomic uint32_t life;   /* bits SWEEPER_MEMBER_* */
    _Atomic uint32_t posted; /* sweeps it has started, as it told */
};

struct sweeper {
    struct kvf *kvf;
    struct ring *votes;        /* reactor -> here: index of a slot */
    struct retire_vote *slots; /* [slot_count]; twice the ring: none is overwritten too early */
    uint32_t slot_count;
    uint32_t slot_next; /* reactor */
    struct waker waker; /* this thread rests on it in kvf_wait() */

    uint32_t rank_count, self; /* of the group */
    uint32_t *world_ranks;     /* [rank_count] */
    struct sweeper_member *members;
    _Atomic uint32_t notes;
    uint32_t notes_seen;
    _Atomic uint32_t posted; /* told to members that ask */
    atomic_bool asking;      /* a sweep is slow: the reactor asks the members for a sign of life */

    struct sweep *sweep;
    struct collective *collective;
    struct awake_clock clock;
    uint64_t now_ns; /* awake */
    bool in_call;    /* a call of the machine is not through */
    uint32_t call_iteration;
    unsigned call_flags;
    uint32_t own_count;  /* iterations that are not the engine's */
    uint32_t again;      /* looks in a row that found the sweep not complete */
    uint64_t waiting_ns; /* awake; since when; 0 = not waiting */

    struct sweeper_event *events; /* [event_max], a ring */
    uint32_t event_max, event_first, event_count;
    bool started;
    bool more;          /* the iteration has events left */
    bool again_said;    /* the iteration is not through */
    uint64_t iteration; /* the last one */
    uint32_t due;       /* events of it that are left */
};

/* ---- open and close ------------------------------------------------------------------------- */

/* Who is in the group, and how many requests all of them may have. Collective over the group. */
static enum kvf_status sweeper_members(struct sweeper *sweeper, uint64_t *requests_out)
{
    struct kvf *kvf = sweeper->kvf;
    struct world_gathered told = {0};
    uint8_t mine[SWEEPER_GROUP_BYTES];
    enum kvf_status status;

    wire_store_u32(mine, kvf->place.world_rank);
    wire_store_u32(mine + 4, (uint32_t)kvf->settings.requests_max);
    status = kvf->world->gather(kvf->world->self, WORLD_GROUP, mine, sizeof(mine), &told);
    if (status != KVF_OK)
        return status;
    sweeper->world_ranks = kvf_alloc(&kvf->heap.table, told.count, sizeof(*sweeper->world_ranks));
    sweeper->members = kvf_alloc(&kvf->heap.table, told.count, sizeof(*sweeper->members));
    if (sweeper->world_ranks == NULL || sweeper->members == NULL)
        status = KVF_E_NOMEM;
    sweeper->rank_count = told.count;
    sweeper->self = told.count;
    for (uint32_t r = 0; r < told.count && status == KVF_OK; r++) {
        if (told.offsets[r + 1] - told.offsets[r] != sizeof(mine)) {
            status = KVF_E_PROTOCOL;
            break;
        }
        sweeper->world_ranks[r] = wire_load_u32(told.bytes + told.offsets[r]);
        *requests_out += wire_load_u32(told.bytes + told.offsets[r] + 4);
        if (sweeper->world_ranks[r] == kvf->place.world_rank)
            sweeper->self = r;
    }
    world_gathered_free(&told);
    return status == KVF_OK && sweeper->self == sweeper->rank_count ? KVF_E_WORLD : status;
}

static enum kvf_status sweeper_open_machine(struct sweeper *sweeper, uint64_t requests)
{
    const struct kvf_settings *settings = &sweeper->kvf->settings;
    const struct kvf_heap *heap = &sweeper->kvf->heap.table;
    uint32_t own = (uint32_t)settings->requests_max;
    uint32_t votes_max = own * SWEEPER_VOTES_PER_REQUEST;
    const struct sweep_params params = {
        .retire =
            {
                .side = sweeper->kvf->place.side,
                .rank_count = sweeper->rank_count,
                .self = sweeper->self,
                .entries_max = (uint32_t)requests,
                .timeout_ns = sweeper->rank_count > 1
                                  ? settings->kv_transfer_timeout_ms * CLOCK_NS_PER_MS
                                  : 0,
                .world_ranks = sweeper->world_ranks,
            },
        .votes_max = votes_max + (uint32_t)requests, /* and one ABSENT for each of the others' */
        .lag = sweeper->rank_count > 1 ? (uint32_t)settings->sweep_lag : 0,
        .warn_ns = settings->sweep_warn_ms * CLOCK_NS_PER_MS,
        .deadline_ns = settings->sweep_deadline_ms * CLOCK_NS_PER_MS,
    };
    enum kvf_status status;

    sweeper->slot_count = votes_max * 4; /* ring_open() rounds up */
    sweeper->event_max = (uint32_t)requests * SWEEPER_EVENTS_PER_REQUEST;
    sweeper->slots = kvf_alloc(heap, sweeper->slot_count, sizeof(*sweeper->slots));
    sweeper->events = kvf_alloc(heap, sweeper->event_max, sizeof(*sweeper->events));
    status = sweeper->slots == NULL || sweeper->events == NULL ? KVF_E_NOMEM : KVF_OK;
    if (status == KVF_OK)
        status = ring_open(heap, votes_max, &sweeper->votes);
    if (status == KVF_OK)
        status = sweep_open(heap, &params, &sweeper->sweep);
    if (status == KVF_OK)
        status = waker_init(&sweeper->waker);
    return status;
}

/*
 * What is collective comes first, so that a rank without memory leaves none of the others waiting.
 */
enum kvf_status sweeper_open(struct kvf *kvf, struct sweeper **sweeper_out)
{
    const struct kvf_instance *instance = &kvf->topology->instances[kvf->place.instance];
    uint32_t ranks = instance->tp_size / instance->dp_size * instance->pp_size;
    struct sweeper *sweeper = kvf_alloc(&kvf->heap.table, 1, sizeof(*sweeper));
    uint64_t requests = 0;
    enum kvf_status status;

    if (sweeper == NULL)
        return KVF_E_NOMEM;
    sweeper->kvf = kvf;
    sweeper->waker.fd = -1;
    awake_init(&sweeper->clock, clock_now_ns(), kvf->settings.stall_step_max_ms * CLOCK_NS_PER_MS,
               true);
    status = sweeper_members(sweeper, &requests);
    if (status == KVF_OK && ranks > 1)
        status = kvf->world->open_collective(kvf->world->self, WORLD_GROUP,
                                             sweep_slots((uint32_t)kvf->settings.sweep_lag),
                                             SWEEP_MESSAGE_MAX, &sweeper->collective);
    else if (status == KVF_OK)
        status = collective_alone_open(&kvf->heap.table, SWEEP_MESSAGE_MAX, &sweeper->collective);
    if (status == KVF_OK)
        status = sweeper_open_machine(sweeper, requests);
    if (status != KVF_OK) {
        sweeper_close(sweeper);
        return status;
    }
    *sweeper_out = sweeper;
    return KVF_OK;
}

void sweeper_close(struct sweeper *sweeper)
{
    const struct kvf_heap *heap;
    struct sweep_state look;

    if (sweeper == NULL)
        return;
    heap = &sweeper->kvf->heap.table;
    if (sweeper->sweep != NULL && sweeper->collective != NULL) {
        sweep_look(sweeper->sweep, &look);
        if (look.under_way > 0 && look.cause == SWEEP_HEALTHY)
            sweeper->collective->abandon(sweeper->collective->self);
    }
    if (sweeper->collective != NULL)
        sweeper->collective->close(sweeper->collective->self);
    waker_fini(&sweeper->waker);
    sweep_close(sweeper->sweep);
    ring_close(sweeper->votes);
    kvf_release(heap, sweeper->events);
    kvf_release(heap, sweeper->slots);
    kvf_release(heap, sweeper->members);
    kvf_release(heap, sweeper->world_ranks);
    kvf_release(heap, sweeper);
}

/* ---- votes in ------------------------------------------------------------------------------- */

static void sweeper_put(struct sweeper *sweeper, const struct retire_vote *vote)
{
    struct ring_entry entry = {{sweeper->slot_next}};

    sweeper->slots[sweeper->slot_next] = *vote;
    sweeper->slot_next = (sweeper->slot_next + 1) % sweeper->slot_count;
    if (!ring_put(sweeper->votes, &entry)) {
        log_error(&sweeper->kvf->logger, "", "a vote was lost: more votes than requests allow");
        metrics_add(&sweeper->kvf->metrics.unexpected_events, 1);
    }
    waker_wake(&sweeper->waker);
}

void sweeper_vote(struct sweeper *sweeper, uint64_t rid, unsigned vote,
                  const struct session_result *result, uint64_t real_ns)
{
    const struct retire_vote given = {
        .rid = rid,
        .vote = vote,
        .first = result->voted == RETIRE_NONE,
        .status = result->status,
        .culprit = result->culprit,
        .own =
            {
                .payload_bytes = result->payload_bytes,
                .path_mask = result->path_mask,
                .timing = result->timing,
                .voted_ns = real_ns,
            },
    };

    sweeper_put(sweeper, &given);
}

void sweeper_opened(struct sweeper *sweeper, uint64_t rid)
{
    const struct retire_vote opened = {.rid = rid, .vote = RETIRE_NONE};

    if (sweeper->rank_count > 1)
        sweeper_put(sweeper, &opened);
}

/* ---- members -------------------------------------------------------------------------------- */

bool sweeper_is_member(const struct sweeper *sweeper, uint32_t world_rank)
{
    for (uint32_t r = 0; r < sweeper->rank_count; r++)
        if (sweeper->world_ranks[r] == world_rank)
            return r != sweeper->self;
    return false;
}

void sweeper_note_member(struct sweeper *sweeper, uint32_t world_rank, unsigned life,
                         uint32_t posted)
{
    for (uint32_t r = 0; r < sweeper->rank_count; r++) {
        struct sweeper_member *member = &sweeper->members[r];

        if (sweeper->world_ranks[r] != world_rank)
            continue;
        if (atomic_load(&member->life) == life && atomic_load(&member->posted) == posted)
            return;
        atomic_store(&member->posted, posted);
        atomic_store(&member->life, life);
        atomic_fetch_add(&sweeper->notes, 1);
    }
}

bool sweeper_asks(const struct sweeper *sweeper)
{
    return sweeper != NULL && atomic_load_explicit(&sweeper->asking, memory_order_relaxed);
}

uint32_t sweeper_posted(const struct sweeper *sweeper)
{
    return sweeper == NULL ? 0 : atomic_load_explicit(&sweeper->posted, memory_order_relaxed);
}

/* ---- events --------------------------------------------------------------------------------- */

static struct sweeper_event *sweeper_event_at(struct sweeper *sweeper, uint32_t index)
{
    return &sweeper->events[(sweeper->event_first + index) % sweeper->event_max];
}

static void sweeper_push(struct sweeper *sweeper, const struct kvf_event *event, uint64_t voted_ns)
{
    enum kvf_event_kind kind = event->kind;

    KVF_ASSERT(sweeper->event_count < sweeper->event_max);
    *sweeper_event_at(sweeper, sweeper->event_count++) =
        (struct sweeper_event){.event = *event, .voted_ns = voted_ns};
    if (voted_ns != 0 && (kind == KVF_EVENT_SENT || kind == KVF_EVENT_READY ||
                          kind == KVF_EVENT_FAILED || kind == KVF_EVENT_CANCELLED))
        metrics_ended(&sweeper->kvf->metrics, event->status);
}

static enum session_decision sweeper_decision(enum retire_decision decision)
{
    switch (decision) {
    case RETIRE_DECIDED_OK:
        return SESSION_DECIDED_OK;
    case RETIRE_DECIDED_FAILED:
        return SESSION_DECIDED_FAILED;
    case RETIRE_DECIDED_CANCELLED:
        return SESSION_DECIDED_CANCELLED;
    case RETIRE_DECIDED_RELEASED:
        return SESSION_DECIDED_RELEASED;
    }
    return SESSION_DECIDED_FAILED;
}

/* ---- the sweep's actions -------------------------------------------------------------------- */

static void sweeper_step(struct sweeper *sweeper, struct sweep_event *event,
                         struct sweep_out *state_out);

/* Nobody here has opened it for T: it cannot be opened any more. */
static void sweeper_absent(struct sweeper *sweeper, uint64_t rid)
{
    struct sweep_event event = {
        .kind = SWEEP_VOTE,
        .u.vote =
            {
                .rid = rid,
                .vote = RETIRE_ABSENT | RETIRE_DRAINED,
                .first = true,
                .status = KVF_E_ABSENT,
                .culprit = sweeper->kvf->place.world_rank,
            },
    };
    struct sweep_out out;

    if (admission_absent(&sweeper->kvf->admission, rid, clock_now_ns()))
        sweeper_step(sweeper, &event, &out);
}

static void sweeper_tell(struct sweeper *sweeper, const struct sweep_loss *loss)
{
    struct collective *collective = sweeper->collective;
    uint8_t word[COLLECTIVE_WORD_BYTES] = {0};

    wire_store_u32(word, loss->cause);
    wire_store_u32(word + 4, loss->culprit);
    wire_store_u32(word + 8, loss->sweep);
    collective->tell(collective->self, word);
    collective->abandon(collective->self);
}

/* Sticky: every open request ends by this rank's own proof, none can be opened. */
static void sweeper_end_all(struct kvf *kvf)
{
    atomic_store(&kvf->group_lost, true);
    atomic_store(&kvf->damaged, true);
    reactor_group_lost(kvf->reactor);
}

static void sweeper_decide(struct sweeper *sweeper, const struct sweep_action *action)
{
    struct kvf *kvf = sweeper->kvf;
    const struct kvf_event facts = {.status = action->u.decide.status,
                                    .culprit = action->u.decide.culprit};

    /* What is not open here will be told when it is: sweeper_opened(). */
    if (sweeper->rank_count == 1 ||
        admission_find(&kvf->admission, action->u.decide.rid, clock_now_ns()) == ADMISSION_LIVE)
        reactor_decide(kvf->reactor, action->u.decide.rid,
                       sweeper_decision(action->u.decide.decision), &facts);
}

/* False: the collective could not be started. */
static bool sweeper_act(struct sweeper *sweeper, const struct sweep_action *action)
{
    struct collective *collective = sweeper->collective;

    switch (action->kind) {
    case SWEEP_ACT_POST:
        atomic_fetch_add_explicit(&sweeper->posted, 1, memory_order_relaxed);
        return collective->start(collective->self, action->u.post.slot, action->u.post.bytes,
                                 action->u.post.len_bytes) == KVF_OK;
    case SWEEP_ACT_EVENT:
        sweeper_push(sweeper, &action->u.event.event, action->u.event.voted_ns);
        break;
    case SWEEP_ACT_DECIDE:
        sweeper_decide(sweeper, action);
        break;
    case SWEEP_ACT_ABSENT:
        break; /* a step of its own, after this one */
    case SWEEP_ACT_TELL:
        sweeper_tell(sweeper, &action->u.loss);
        break;
    case SWEEP_ACT_END_ALL:
        sweeper_end_all(sweeper->kvf);
        break;
    case SWEEP_ACT_LOG:
        log_write(&sweeper->kvf->logger, action->u.log.level, action->u.log.event, "%s",
                  action->u.log.text);
        break;
    }
    return true;
}

#define SWEEPER_ACTIONS 16u

/* Steps one event and all that is left of it. */
static void sweeper_step(struct sweeper *sweeper, struct sweep_event *event,
                         struct sweep_out *state_out)
{
    struct sweep_action actions[SWEEPER_ACTIONS];
    struct sweep_out out = {.actions = actions, .max = SWEEPER_ACTIONS};
    uint64_t absent[SWEEPER_ACTIONS];
    struct sweep_event next = {.kind = SWEEP_POLL};
    uint32_t absent_count = 0;
    enum kvf_status status;
    bool started = true;

    event->now_ns = next.now_ns = sweeper->now_ns;
    status = sweep_step(sweeper->sweep, event, &out);
    if (status < 0 && status != KVF_E_GROUP_LOST) {
        log_error(&sweeper->kvf->logger, "", "a sweep refuses step %d of request %llu: %s",
                  (int)event->kind, (unsigned long long)event->u.vote.rid, kvf_status_text(status));
        metrics_add(&sweeper->kvf->metrics.unexpected_events, 1);
    }
    for (;;) {
        for (uint32_t a = 0; a < out.count; a++) {
            started = sweeper_act(sweeper, &actions[a]) && started;
            if (actions[a].kind == SWEEP_ACT_ABSENT && absent_count < SWEEPER_ACTIONS)
                absent[absent_count++] = actions[a].u.rid;
        }
        if (!out.more)
            break;
        out.count = 0;
        sweep_step(sweeper->sweep, &next, &out);
    }
    *state_out = out;
    for (uint32_t a = 0; a < absent_count; a++)
        sweeper_absent(sweeper, absent[a]);
    if (!started) {
        struct sweep_out ignored;

        next.kind = SWEEP_FAILED;
        sweeper_step(sweeper, &next, &ignored);
        state_out->done = state_out->due = false;
    }
}

/* ---- one iteration -------------------------------------------------------------------------- */

/* Takes what is there now, and not what comes meanwhile. */
static void sweeper_take(struct sweeper *sweeper)
{
    uint32_t count = ring_count(sweeper->votes);
    struct ring_entry entry;
    struct sweep_out out;

    while (count-- > 0 && ring_take(sweeper->votes, &entry)) {
        struct sweep_event event = {.kind = SWEEP_VOTE, .u.vote = sweeper->slots[entry.words[0]]};

        sweeper_step(sweeper, &event, &out);
    }
}

/* What the reactor has learnt of the members. */
static void sweeper_look_at_members(struct sweeper *sweeper)
{
    uint32_t notes = atomic_load_explicit(&sweeper->notes, memory_order_acquire);
    struct sweep_out out;

    if (notes == sweeper->notes_seen)
        return;
    sweeper->notes_seen = notes;
    for (uint32_t r = 0; r < sweeper->rank_count; r++) {
        unsigned life = atomic_load(&sweeper->members[r].life);
        struct sweep_event event = {
            .kind = SWEEP_MEMBER,
            .u.member =
                {
                    .rank = r,
                    .dead = (life & SWEEPER_MEMBER_DEAD) != 0,
                    .silent = (life & SWEEPER_MEMBER_SILENT) != 0,
                    .answers = (life & SWEEPER_MEMBER_ANSWERS) != 0,
                    .posted = atomic_load(&sweeper->members[r].posted),
                },
        };

        if (r != sweeper->self)
            sweeper_step(sweeper, &event, &out);
    }
}

/* Words of other members, before any sweep is looked at: a group that is lost applies none. */
static void sweeper_hear(struct sweeper *sweeper)
{
    struct collective *collective = sweeper->collective;
    uint64_t stall_ns = 0;
    uint8_t word[COLLECTIVE_WORD_BYTES];
    struct sweep_out out;
    uint32_t looks;

    sweeper->now_ns = awake_step(&sweeper->clock, clock_now_ns(), &stall_ns);
    for (looks = stall_ns > 0 ? SWEEPER_STALL_HEARS : 1; looks > 0; looks--)
        while (collective->hear(collective->self, word)) {
            struct sweep_event event = {
                .kind = SWEEP_TOLD,
                .u.told = {wire_load_u32(word), wire_load_u32(word + 4), wire_load_u32(word + 8)},
            };

            sweeper_step(sweeper, &event, &out);
        }
    sweeper_look_at_members(sweeper);
}

/* The sweep that is due is not complete. */
static void sweeper_wait_more(struct sweeper *sweeper)
{
    struct collective *collective = sweeper->collective;

    if (sweeper->waiting_ns == 0)
        sweeper->waiting_ns = sweeper->now_ns;
    else if (sweeper->now_ns - sweeper->waiting_ns >= SWEEPER_ASK_NS)
        atomic_store_explicit(&sweeper->asking, true, memory_order_relaxed);
    collective->rest(collective->self, sweeper->again++);
}

static void sweeper_waited(struct sweeper *sweeper)
{
    if (sweeper->waiting_ns != 0)
        atomic_store_explicit(&sweeper->asking, false, memory_order_relaxed);
    sweeper->waiting_ns = 0;
    sweeper->again = 0;
}

/* One look at the call that is under way. OK: it is through; AGAIN; E_GROUP_LOST. */
static enum kvf_status sweeper_pass(struct sweeper *sweeper)
{
    struct collective *collective = sweeper->collective;
    struct sweep_event event = {.kind = SWEEP_CALL,
                                .u.call = {sweeper->call_iteration, sweeper->call_flags}};
    enum kvf_status found = KVF_OK;
    struct sweep_out out;

    sweeper_step(sweeper, &event, &out);
    if (out.due) {
        found = collective->test(collective->self, out.slot);
        event.kind = found == KVF_OK      ? SWEEP_GATHERED
                     : found == KVF_AGAIN ? SWEEP_WAITING
                                          : SWEEP_FAILED;
        if (found == KVF_OK)
            event.u.gathered.bytes = collective->result(collective->self, out.slot);
        sweeper_step(sweeper, &event, &out);
    }
    if (out.done) {
        sweeper_waited(sweeper);
        return KVF_OK;
    }
    if (!out.due) {
        sweeper_waited(sweeper);
        return KVF_E_GROUP_LOST;
    }
    sweeper_wait_more(sweeper);
    return KVF_AGAIN;
}

/* Goes on with the call that is under way, or begins one. */
static enum kvf_status sweeper_round(struct sweeper *sweeper, uint32_t iteration, unsigned flags)
{
    struct sweep_state look;
    enum kvf_status status;

    sweeper_hear(sweeper);
    sweeper_take(sweeper);
    if (!sweeper->in_call) {
        sweeper->in_call = true;
        sweeper->call_iteration = iteration;
        sweeper->call_flags = flags;
    }
    do {
        status = sweeper_pass(sweeper);
        sweep_look(sweeper->sweep, &look);
    } while (status == KVF_OK && sweeper->rank_count == 1 && look.backlog > 0);
    sweeper->in_call = status == KVF_AGAIN;
    return status;
}

/* ---- events out ----------------------------------------------------------------------------- */

static uint64_t sweeper_agreed(const struct sweeper_event *event, uint64_t now_ns)
{
    return event->voted_ns != 0 && now_ns > event->voted_ns ? now_ns - event->voted_ns : 0;
}

/* The engine learns of it now: what it counts as lent changes with it. */
static void sweeper_account(struct sweeper *sweeper, const struct kvf_event *event, uint64_t now_ns)
{
    struct admission *admission = &sweeper->kvf->admission;

    switch (event->kind) {
    case KVF_EVENT_ASKED:
    case KVF_EVENT_SENT:
    case KVF_EVENT_READY:
        break;
    case KVF_EVENT_FAILED:
    case KVF_EVENT_CANCELLED:
        admission_retain(admission, event->rid);
        break;
    case KVF_EVENT_RELEASED:
    case KVF_EVENT_RELEASED_LOCAL:
        admission_end(admission, event->rid, now_ns);
        break;
    }
}

/* The oldest event leaves for the engine. */
static void sweeper_hand_over(struct sweeper *sweeper, struct kvf_event *event_out, uint64_t now_ns)
{
    const struct sweeper_event *first = sweeper_event_at(sweeper, 0);

    *event_out = first->event;
    event_out->timing.agree_ns = sweeper_agreed(first, now_ns);
    sweeper->event_first = (sweeper->event_first + 1) % sweeper->event_max;
    sweeper->event_count--;
    sweeper_account(sweeper, event_out, now_ns);
}

/* The next events of the iteration, or in a lost group of this rank's own proof. */
static size_t sweeper_hand_all(struct sweeper *sweeper, struct kvf_event *events_out, size_t max)
{
    uint64_t now_ns = sweeper->due > 0 ? clock_now_ns() : 0;
    size_t count = 0;

    for (; count < max && sweeper->due > 0; count++, sweeper->due--)
        sweeper_hand_over(sweeper, &events_out[count], now_ns);
    sweeper->more = sweeper->due > 0;
    return count;
}

static bool sweeper_follows(const struct sweeper *sweeper, uint64_t iteration)
{
    if (atomic_load(&sweeper->kvf->group_lost) || !sweeper->started)
        return true;
    return iteration == sweeper->iteration + (sweeper->more || sweeper->again_said ? 0 : 1);
}

enum kvf_status kvf_sweep(struct kvf *kvf, uint64_t iteration, struct kvf_event *events_out,
                          size_t max, size_t *count_out)
{
    struct sweeper *sweeper;
    enum kvf_status status = KVF_OK;

    if (kvf == NULL || events_out == NULL || max == 0 || count_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY)
        return KVF_E_STATE;
    sweeper = kvf->sweeper;
    if (!sweeper_follows(sweeper, iteration))
        return KVF_E_INVAL;
    sweeper->started = true;
    sweeper->iteration = iteration;
    if (!sweeper->more) {
        status = sweeper_round(sweeper, (uint32_t)iteration & ~SWEEP_ITERATION_OWN, 0);
        sweeper->again_said = status == KVF_AGAIN;
        if (status == KVF_AGAIN) {
            *count_out = 0;
            return KVF_AGAIN;
        }
        sweeper->due = sweeper->event_count;
    }
    *count_out = sweeper_hand_all(sweeper, events_out, max);
    if (atomic_load(&kvf->group_lost))
        return KVF_E_GROUP_LOST;
    return sweeper->more ? KVF_MORE : KVF_OK;
}

/* ---- closing -------------------------------------------------------------------------------- */

static void sweeper_discard(struct sweeper *sweeper)
{
    struct kvf_event event;

    while (sweeper->event_count > 0)
        sweeper_hand_over(sweeper, &event, clock_now_ns());
    sweeper->due = 0;
    sweeper->more = sweeper->again_said = false;
}

/* No other rank of the group needs this one's sweeps any more. */
static bool sweeper_left(const struct sweeper *sweeper)
{
    struct sweep_state look;

    sweep_look(sweeper->sweep, &look);
    return sweeper->rank_count == 1 || look.cause != SWEEP_HEALTHY ||
           (look.left && look.under_way == 0);
}

bool sweeper_drain(struct kvf *kvf, uint64_t deadline_ns, bool *left_out)
{
    struct sweeper *sweeper = kvf->sweeper;
    bool empty = admission_live(&kvf->admission) == 0;

    while (!empty || !sweeper_left(sweeper)) {
        unsigned flags = SWEEP_CLOSING | (empty ? SWEEP_LEAVING : 0);

        if (!sweeper_left(sweeper) || sweeper->rank_count == 1)
            sweeper->own_count +=
                sweeper_round(sweeper, SWEEP_ITERATION_OWN | sweeper->own_count, flags) == KVF_OK;
        else
            sweeper_take(sweeper); /* a lost group: by own proof */
        sweeper_discard(sweeper);
        empty = admission_live(&kvf->admission) == 0;
        if ((empty && sweeper_left(sweeper)) || clock_now_ns() >= deadline_ns)
            break;
        sweeper_rest(kvf, deadline_ns);
    }
    *left_out = sweeper_left(sweeper);
    return empty;
}

/* ---- waiting -------------------------------------------------------------------------------- */

void sweeper_rest(struct kvf *kvf, uint64_t deadline_ns)
{
    struct sweeper *sweeper = kvf->sweeper;
    uint64_t now_ns = clock_now_ns();
    uint64_t rest_ns = sweeper->rank_count == 1 ? SWEEPER_REST_NS : SWEEPER_REST_GROUP_NS;
    uint64_t most_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

    if (most_ns > rest_ns)
        most_ns = rest_ns;
    if (kvf->settings.progress == SETTINGS_PROGRESS_CALLER) {
        reactor_rest(kvf->reactor, most_ns);
        return;
    }
    waker_arm(&sweeper->waker);
    if (ring_count(sweeper->votes) == 0)
        waker_rest(&sweeper->waker, (uint32_t)(most_ns / CLOCK_NS_PER_MS) + 1);
    waker_disarm(&sweeper->waker);
}

/* Takes the outcome of one request out of the queue. */
static bool sweeper_find(struct sweeper *sweeper, uint64_t rid, struct kvf_event *event_out)
{
    for (uint32_t i = 0; i < sweeper->event_count; i++) {
        const struct sweeper_event *at = sweeper_event_at(sweeper, i);
        enum kvf_event_kind kind = at->event.kind;
        uint64_t now_ns = clock_now_ns();

        if (at->event.rid != rid ||
            (kind != KVF_EVENT_READY && kind != KVF_EVENT_FAILED && kind != KVF_EVENT_CANCELLED))
            continue;
        *event_out = at->event;
        event_out->timing.agree_ns = sweeper_agreed(at, now_ns);
        for (uint32_t j = i; j + 1 < sweeper->event_count; j++)
            *sweeper_event_at(sweeper, j) = *sweeper_event_at(sweeper, j + 1);
        sweeper->event_count--;
        if (i < sweeper->due)
            sweeper->due--;
        sweeper_account(sweeper, event_out, now_ns);
        return true;
    }
    return false;
}

static bool sweeper_has_release(struct sweeper *sweeper, uint64_t rid)
{
    for (uint32_t i = 0; i < sweeper->event_count; i++) {
        const struct kvf_event *event = &sweeper_event_at(sweeper, i)->event;

        if (event->rid == rid &&
            (event->kind == KVF_EVENT_RELEASED || event->kind == KVF_EVENT_RELEASED_LOCAL))
            return true;
    }
    return false;
}

/* A synchronous receive under way. */
struct sweeper_wait {
    uint64_t rid;
    uint64_t deadline_ns; /* real: of the engine */
    uint64_t bound_ns;    /* real: after it this rank gives up; 0 = the deadline has not passed */
    bool found;
    struct kvf_event event;
};

/*
 * Whether the receive is over: by what all ranks see in the same sweep alone, so that all leave
 * after the same one. A receive that ran out of time waits for its release, until some rank's
 * bound.
 */
static bool sweeper_wait_over(struct sweeper *sweeper, struct sweeper_wait *wait)
{
    struct sweep_state look;

    if (!wait->found)
        wait->found = sweeper_find(sweeper, wait->rid, &wait->event);
    if (sweeper->rank_count == 1 && wait->bound_ns == 0)
        return wait->found;
    sweep_look(sweeper->sweep, &look);
    if (look.cause == SWEEP_HEALTHY && look.giving_up)
        return true;
    return wait->found &&
           (wait->event.status != KVF_E_TIMEOUT || sweeper_has_release(sweeper, wait->rid));
}

/* Local time: gives the request up, then, much later, the waiting. True: even that is over. */
static bool sweeper_wait_time(struct kvf *kvf, struct sweeper_wait *wait, uint64_t now_ns)
{
    uint64_t timeout_ns = kvf->settings.kv_transfer_timeout_ms * CLOCK_NS_PER_MS;

    if (wait->bound_ns == 0 && now_ns >= wait->deadline_ns) {
        if (!wait->found)
            reactor_give_up(kvf->reactor, wait->rid);
        wait->bound_ns = now_ns + timeout_ns;
    }
    /* The others may leave later than this one's bound, not never: a rank of them may be dead. */
    return wait->bound_ns != 0 && now_ns >= wait->bound_ns &&
           (kvf->sweeper->rank_count == 1 || now_ns >= wait->bound_ns + timeout_ns);
}

static void sweeper_wait_run(struct kvf *kvf, struct sweeper_wait *wait)
{
    struct sweeper *sweeper = kvf->sweeper;

    for (;;) {
        uint64_t now_ns = clock_now_ns();
        bool late = wait->bound_ns != 0 && now_ns >= wait->bound_ns;
        enum kvf_status status =
            sweeper_round(sweeper, SWEEP_ITERATION_OWN | sweeper->own_count,
                          late && sweeper->rank_count > 1 ? SWEEP_GIVING_UP : 0);

        sweeper->own_count += status == KVF_OK;
        if (status != KVF_AGAIN && sweeper_wait_over(sweeper, wait))
            return;
        if (sweeper_wait_time(kvf, wait, now_ns))
            return;
        if (status != KVF_AGAIN)
            sweeper_rest(kvf, wait->bound_ns != 0 ? UINT64_MAX : wait->deadline_ns);
        else
            reactor_help(kvf->reactor);
    }
}

enum kvf_status kvf_wait(struct kvf *kvf, kvf_req_id rid, uint32_t deadline_ms,
                         struct kvf_event *event_out)
{
    uint64_t start_ns = clock_now_ns();
    struct sweeper_wait wait = {.rid = rid,
                                .deadline_ns = start_ns + deadline_ms * CLOCK_NS_PER_MS};

    if (kvf == NULL || event_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY || kvf->place.side != KVF_GENERATION)
        return KVF_E_STATE;
    if (admission_find(&kvf->admission, rid, start_ns) != ADMISSION_LIVE)
        return KVF_E_NOTFOUND;
    if (!admission_is_synchronous(&kvf->admission, rid))
        return KVF_E_STATE;
    sweeper_wait_run(kvf, &wait);
    if (!wait.found)
        return KVF_E_TIMEOUT;
    *event_out = wait.event;
    return KVF_OK;
}
