/*
 * sweeper.c - see sweeper.h; the public calls kvf_sweep() and kvf_wait().
 *
 * A group of one rank: each vote is decided when it is taken. May not look into the machines: what
 * crosses is votes one way and decisions the other.
 */
#include "sweeper.h"

#include <string.h>

#include "clock.h"
#include "consensus/retire.h"
#include "reactor.h"
#include "ring.h"

#define SWEEPER_VOTES_PER_REQUEST 8u /* a rank has at most 7 different votes */
#define SWEEPER_EVENTS_PER_REQUEST 4u
#define SWEEPER_REST_NS (20 * CLOCK_NS_PER_MS)

_Static_assert((int)RETIRE_ASKED == (int)SESSION_VOTE_ASKED, "one numbering of votes");
_Static_assert((int)RETIRE_WITHDRAWN == (int)SESSION_VOTE_WITHDRAWN, "one numbering of votes");
_Static_assert((int)RETIRE_DONE == (int)SESSION_VOTE_DONE, "one numbering of votes");
_Static_assert((int)RETIRE_DOOMED_FAILED == (int)SESSION_VOTE_DOOMED_FAILED, "one numbering");
_Static_assert((int)RETIRE_DOOMED_PEER == (int)SESSION_VOTE_DOOMED_PEER, "one numbering");
_Static_assert((int)RETIRE_DOOMED_USER == (int)SESSION_VOTE_DOOMED_USER, "one numbering");
_Static_assert(RETIRE_DRAINED == SESSION_VOTE_DRAINED, "one numbering of votes");

struct sweeper_vote_slot {
    struct retire_vote vote;
    uint64_t real_ns; /* when it was made */
};

struct sweeper_event {
    struct kvf_event event;
    uint64_t voted_ns; /* real */
};

struct sweeper {
    struct kvf *kvf;
    struct ring *votes; /* reactor -> here: index of a slot */
    struct sweeper_vote_slot
        *slots; /* [slot_count]; twice the ring: none is overwritten too early */
    uint32_t slot_count;
    uint32_t slot_next; /* reactor */
    struct waker waker; /* this thread rests on it in kvf_wait() */
    struct retire *retire;

    struct sweeper_event *events; /* [event_max], a ring */
    uint32_t event_max, event_first, event_count;
    bool started;
    bool more;          /* the iteration has events left */
    uint64_t iteration; /* the last one */
    uint32_t due;       /* events of it that are left */
};

/* ---- open and close ------------------------------------------------------------------------- */

enum kvf_status sweeper_open(struct kvf *kvf, struct sweeper **sweeper_out)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    const struct retire_params params = {
        .side = kvf->place.side,
        .requests_max = (uint32_t)kvf->settings.requests_max,
    };
    struct sweeper *sweeper = kvf_alloc(heap, 1, sizeof(*sweeper));
    uint32_t votes_max = params.requests_max * SWEEPER_VOTES_PER_REQUEST;
    enum kvf_status status;

    if (sweeper == NULL)
        return KVF_E_NOMEM;
    sweeper->kvf = kvf;
    sweeper->waker.fd = -1;
    sweeper->slot_count = votes_max * 4; /* ring_open() rounds up */
    sweeper->event_max = params.requests_max * SWEEPER_EVENTS_PER_REQUEST;
    sweeper->slots = kvf_alloc(heap, sweeper->slot_count, sizeof(*sweeper->slots));
    sweeper->events = kvf_alloc(heap, sweeper->event_max, sizeof(*sweeper->events));
    status = sweeper->slots == NULL || sweeper->events == NULL ? KVF_E_NOMEM : KVF_OK;
    if (status == KVF_OK)
        status = ring_open(heap, votes_max, &sweeper->votes);
    if (status == KVF_OK)
        status = retire_open(heap, &params, &sweeper->retire);
    if (status == KVF_OK)
        status = waker_init(&sweeper->waker);
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

    if (sweeper == NULL)
        return;
    heap = &sweeper->kvf->heap.table;
    waker_fini(&sweeper->waker);
    retire_close(sweeper->retire);
    ring_close(sweeper->votes);
    kvf_release(heap, sweeper->events);
    kvf_release(heap, sweeper->slots);
    kvf_release(heap, sweeper);
}

/* ---- votes in ------------------------------------------------------------------------------- */

void sweeper_vote(struct sweeper *sweeper, uint64_t rid, unsigned vote,
                  const struct session_result *result, uint64_t real_ns)
{
    struct ring_entry entry = {{sweeper->slot_next}};
    struct sweeper_vote_slot *slot = &sweeper->slots[sweeper->slot_next];

    *slot = (struct sweeper_vote_slot){
        .vote =
            {
                .rid = rid,
                .vote = vote,
                .before = result->voted,
                .facts =
                    {
                        .status = result->status,
                        .culprit = result->culprit,
                        .payload_bytes = result->payload_bytes,
                        .path_mask = result->path_mask,
                        .timing = result->timing,
                    },
            },
        .real_ns = real_ns,
    };
    sweeper->slot_next = (sweeper->slot_next + 1) % sweeper->slot_count;
    if (!ring_put(sweeper->votes, &entry)) {
        log_error(&sweeper->kvf->logger, "", "a vote was lost: more votes than requests allow");
        metrics_add(&sweeper->kvf->metrics.unexpected_events, 1);
    }
    waker_wake(&sweeper->waker);
}

/* ---- events --------------------------------------------------------------------------------- */

static struct sweeper_event *sweeper_event_at(struct sweeper *sweeper, uint32_t index)
{
    return &sweeper->events[(sweeper->event_first + index) % sweeper->event_max];
}

static void sweeper_push(struct sweeper *sweeper, const struct kvf_event *event, uint64_t voted_ns)
{
    KVF_ASSERT(sweeper->event_count < sweeper->event_max);
    *sweeper_event_at(sweeper, sweeper->event_count++) =
        (struct sweeper_event){.event = *event, .voted_ns = voted_ns};
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

static void sweeper_apply(struct sweeper *sweeper, const struct sweeper_vote_slot *slot)
{
    struct kvf *kvf = sweeper->kvf;
    struct retire_out out;
    enum kvf_status status = retire_step(sweeper->retire, &slot->vote, &out);

    if (status != KVF_OK) {
        log_error(&kvf->logger, "", "request %llu: vote %u refused: %s",
                  (unsigned long long)slot->vote.rid, slot->vote.vote, kvf_status_text(status));
        metrics_add(&kvf->metrics.unexpected_events, 1);
        return;
    }
    for (uint32_t e = 0; e < out.event_count; e++) {
        enum kvf_event_kind kind = out.events[e].kind;

        sweeper_push(sweeper, &out.events[e], slot->real_ns);
        if (kind == KVF_EVENT_SENT || kind == KVF_EVENT_READY || kind == KVF_EVENT_FAILED ||
            kind == KVF_EVENT_CANCELLED)
            metrics_ended(&kvf->metrics, out.events[e].status);
    }
    for (uint32_t d = 0; d < out.decision_count; d++)
        reactor_decide(kvf->reactor, slot->vote.rid, sweeper_decision(out.decisions[d]),
                       &slot->vote.facts);
}

/* Takes what is there now, and not what comes meanwhile. */
static void sweeper_take(struct sweeper *sweeper)
{
    uint32_t count = ring_count(sweeper->votes);
    struct ring_entry entry;

    while (count-- > 0 && ring_take(sweeper->votes, &entry))
        sweeper_apply(sweeper, &sweeper->slots[entry.words[0]]);
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
    event_out->timing.agree_ns = now_ns > first->voted_ns ? now_ns - first->voted_ns : 0;
    sweeper->event_first = (sweeper->event_first + 1) % sweeper->event_max;
    sweeper->event_count--;
    sweeper_account(sweeper, event_out, now_ns);
}

enum kvf_status kvf_sweep(struct kvf *kvf, uint64_t iteration, struct kvf_event *events_out,
                          size_t max, size_t *count_out)
{
    struct sweeper *sweeper;
    uint64_t now_ns;
    size_t count = 0;

    if (kvf == NULL || events_out == NULL || max == 0 || count_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY)
        return KVF_E_STATE;
    sweeper = kvf->sweeper;
    if (sweeper->more ? iteration != sweeper->iteration
                      : sweeper->started && iteration != sweeper->iteration + 1)
        return KVF_E_INVAL;
    if (!sweeper->more) {
        sweeper_take(sweeper);
        sweeper->due = sweeper->event_count;
    }
    sweeper->started = true;
    sweeper->iteration = iteration;
    now_ns = sweeper->due > 0 ? clock_now_ns() : 0;
    for (; count < max && sweeper->due > 0; count++, sweeper->due--)
        sweeper_hand_over(sweeper, &events_out[count], now_ns);
    sweeper->more = sweeper->due > 0;
    *count_out = count;
    return sweeper->more ? KVF_MORE : KVF_OK;
}

void sweeper_discard(struct kvf *kvf)
{
    struct kvf_event event;

    sweeper_take(kvf->sweeper);
    while (kvf->sweeper->event_count > 0)
        sweeper_hand_over(kvf->sweeper, &event, clock_now_ns());
    kvf->sweeper->due = 0;
    kvf->sweeper->more = false;
}

/* ---- waiting -------------------------------------------------------------------------------- */

void sweeper_rest(struct kvf *kvf, uint64_t deadline_ns)
{
    struct sweeper *sweeper = kvf->sweeper;
    uint64_t now_ns = clock_now_ns();
    uint64_t most_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;

    if (most_ns > SWEEPER_REST_NS)
        most_ns = SWEEPER_REST_NS;
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
        event_out->timing.agree_ns = now_ns > at->voted_ns ? now_ns - at->voted_ns : 0;
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
    for (uint32_t i = 0; i < sweeper->event_count; i++)
        if (sweeper_event_at(sweeper, i)->event.rid == rid &&
            sweeper_event_at(sweeper, i)->event.kind == KVF_EVENT_RELEASED)
            return true;
    return false;
}

/* Sweeps until the outcome is there (or, `released`, the pages too), or the deadline. */
static bool sweeper_wait(struct kvf *kvf, uint64_t rid, uint64_t deadline_ns, bool released,
                         struct kvf_event *event_out, bool *found)
{
    for (;;) {
        sweeper_take(kvf->sweeper);
        if (!*found)
            *found = sweeper_find(kvf->sweeper, rid, event_out);
        if (*found && (!released || sweeper_has_release(kvf->sweeper, rid)))
            return true;
        if (clock_now_ns() >= deadline_ns)
            return false;
        sweeper_rest(kvf, deadline_ns);
    }
}

enum kvf_status kvf_wait(struct kvf *kvf, kvf_req_id rid, uint32_t deadline_ms,
                         struct kvf_event *event_out)
{
    uint64_t start_ns = clock_now_ns();
    bool found = false;
    struct kvf_event event;

    if (kvf == NULL || event_out == NULL)
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_READY || kvf->place.side != KVF_GENERATION)
        return KVF_E_STATE;
    if (admission_find(&kvf->admission, rid, start_ns) != ADMISSION_LIVE)
        return KVF_E_NOTFOUND;
    if (!admission_is_synchronous(&kvf->admission, rid))
        return KVF_E_STATE;
    if (!sweeper_wait(kvf, rid, start_ns + deadline_ms * CLOCK_NS_PER_MS, false, &event, &found)) {
        reactor_give_up(kvf->reactor, rid);
        if (!sweeper_wait(kvf, rid,
                          clock_now_ns() + kvf->settings.kv_transfer_timeout_ms * CLOCK_NS_PER_MS,
                          true, &event, &found) &&
            !found)
            return KVF_E_TIMEOUT;
    }
    *event_out = event;
    return KVF_OK;
}
