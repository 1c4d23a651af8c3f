/*
 * retire.c - see retire.h.
 */
#include "consensus/retire.h"

#include <string.h>

#include "check.h"
#include "list.h"
#include "wire.h"

#define RETIRE_LOOKS 2u /* entries that one digest looks at */

enum retire_state {
    RETIRE_UNUSED,
    RETIRE_UNDECIDED,
    RETIRE_OK,
    RETIRE_FAILED,
    RETIRE_CANCELLED,
};

/* What all ranks hold alike. */
struct retire_shared {
    uint64_t rid;
    uint32_t state; /* enum retire_state */
    uint32_t worst; /* strongest of DOOMED_*; 0 = none; ABSENT counts as DOOMED_FAILED */
    int32_t status; /* of the worst, then of the outcome */
    uint32_t culprit;
    uint32_t asked, done, drained; /* ranks */
    uint16_t asked_ever;           /* somebody voted ASKED */
    uint16_t asked_given;          /* the event ASKED was given */
};
_Static_assert(sizeof(struct retire_shared) == 40, "no padding: it is hashed");

struct retire_entry {
    struct retire_shared shared;
    bool absence; /* the worst is an ABSENT vote */
    /* This rank's own. */
    bool closed;        /* alone */
    bool overdue;       /* is to be closed alone as soon as it is drained */
    bool told;          /* its machine has heard the outcome since it has the request */
    bool opened;        /* here */
    uint64_t absent_ns; /* awake: when it will be called absent; 0 = first touched now */
    uint64_t escape_ns;
    struct retire_facts facts;
    struct list absent, escape, touched, late;
    uint32_t next; /* unused entries and chains of the map; index + 1 */
};

struct retire {
    const struct kvf_heap *heap;
    struct retire_params params;
    uint32_t *world_ranks;        /* [rank_count] */
    struct retire_entry *entries; /* [entries_max] */
    uint8_t *votes;               /* [entries_max][rank_count] */
    uint32_t *buckets;            /* [bucket_mask + 1] index + 1 */
    uint32_t bucket_mask;
    uint32_t unused; /* index + 1 */
    uint32_t live;
    uint64_t rolling;    /* of all that was applied */
    uint32_t look;       /* next entry that a digest looks at */
    struct list absent;  /* no vote of this rank, the oldest first */
    struct list escape;  /* decided, the oldest first */
    struct list late;    /* opened here after their outcome */
    struct list touched; /* to be decided, the first touched first */
    bool lost;
    uint32_t lost_culprit;
    uint32_t lost_at; /* entries before it have been ended */
    struct retire_counts counts;
};

enum kvf_status retire_open(const struct kvf_heap *heap, const struct retire_params *params,
                            struct retire **retire_out)
{
    struct retire *retire;
    uint32_t buckets = 1;

    if (params->entries_max == 0 || params->entries_max > 1u << 24 || params->rank_count == 0 ||
        params->rank_count > RETIRE_RANKS_MAX || params->self >= params->rank_count)
        return KVF_E_INVAL;
    while (buckets < params->entries_max)
        buckets *= 2;
    retire = kvf_alloc(heap, 1, sizeof(*retire));
    if (retire == NULL)
        return KVF_E_NOMEM;
    retire->heap = heap;
    retire->params = *params;
    retire->params.world_ranks = NULL;
    retire->bucket_mask = buckets - 1;
    retire->world_ranks = kvf_alloc(heap, params->rank_count, sizeof(*retire->world_ranks));
    retire->entries = kvf_alloc(heap, params->entries_max, sizeof(*retire->entries));
    retire->votes = kvf_alloc(heap, params->entries_max, params->rank_count);
    retire->buckets = kvf_alloc(heap, buckets, sizeof(*retire->buckets));
    if (retire->world_ranks == NULL || retire->entries == NULL || retire->votes == NULL ||
        retire->buckets == NULL) {
        retire_close(retire);
        return KVF_E_NOMEM;
    }
    for (uint32_t r = 0; r < params->rank_count; r++)
        retire->world_ranks[r] = params->world_ranks == NULL ? r : params->world_ranks[r];
    for (uint32_t e = 0; e < params->entries_max; e++)
        retire->entries[e].next = e + 1 == params->entries_max ? 0 : e + 2;
    retire->unused = 1;
    list_init(&retire->absent);
    list_init(&retire->escape);
    list_init(&retire->touched);
    list_init(&retire->late);
    *retire_out = retire;
    return KVF_OK;
}

void retire_close(struct retire *retire)
{
    if (retire == NULL)
        return;
    kvf_release(retire->heap, retire->buckets);
    kvf_release(retire->heap, retire->votes);
    kvf_release(retire->heap, retire->entries);
    kvf_release(retire->heap, retire->world_ranks);
    kvf_release(retire->heap, retire);
}

/* ---- the map -------------------------------------------------------------------------------- */

static uint64_t retire_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint32_t *retire_bucket(const struct retire *retire, uint64_t rid)
{
    uint64_t hash = rid * UINT64_C(0x9e3779b97f4a7c15);

    return &retire->buckets[(hash >> 32) & retire->bucket_mask];
}

static struct retire_entry *retire_find(const struct retire *retire, uint64_t rid)
{
    for (uint32_t at = *retire_bucket(retire, rid); at != 0; at = retire->entries[at - 1].next)
        if (retire->entries[at - 1].shared.rid == rid)
            return &retire->entries[at - 1];
    return NULL;
}

static uint8_t *votes_of(const struct retire *retire, const struct retire_entry *entry)
{
    return retire->votes + (size_t)(entry - retire->entries) * retire->params.rank_count;
}

static unsigned own_vote(const struct retire *retire, const struct retire_entry *entry)
{
    return votes_of(retire, entry)[retire->params.self];
}

static struct retire_entry *retire_add(struct retire *retire, uint64_t rid)
{
    uint32_t *bucket = retire_bucket(retire, rid);
    uint32_t at = retire->unused;
    struct retire_entry *entry;

    if (at == 0)
        return NULL;
    entry = &retire->entries[at - 1];
    retire->unused = entry->next;
    *entry = (struct retire_entry){
        .shared = {.rid = rid, .state = RETIRE_UNDECIDED, .culprit = KVF_UNKNOWN},
        .next = *bucket,
    };
    memset(votes_of(retire, entry), 0, retire->params.rank_count);
    list_init(&entry->absent);
    list_init(&entry->escape);
    list_init(&entry->touched);
    list_init(&entry->late);
    *bucket = at;
    retire->live++;
    return entry;
}

static void retire_remove(struct retire *retire, struct retire_entry *entry)
{
    uint32_t at = (uint32_t)(entry - retire->entries) + 1;
    uint32_t *link = retire_bucket(retire, entry->shared.rid);

    while (*link != at)
        link = &retire->entries[*link - 1].next;
    *link = entry->next;
    list_remove(&entry->absent);
    list_remove(&entry->escape);
    list_remove(&entry->touched);
    list_remove(&entry->late);
    memset(&entry->shared, 0, sizeof(entry->shared));
    entry->next = retire->unused;
    retire->unused = at;
    retire->live--;
}

/* ---- votes ---------------------------------------------------------------------------------- */

static void count_base(struct retire_shared *shared, unsigned base, uint32_t by)
{
    if (base == RETIRE_ASKED)
        shared->asked += by;
    if (base == RETIRE_DONE)
        shared->done += by;
}

/* FAILED and ABSENT are equally strong; of equals the first counts. */
static void note_doom(const struct retire *retire, struct retire_entry *entry,
                      const struct retire_vote *vote)
{
    struct retire_shared *shared = &entry->shared;
    unsigned base = RETIRE_BASE(vote->vote);
    unsigned strength = base == RETIRE_ABSENT ? (unsigned)RETIRE_DOOMED_FAILED : base;

    if (strength <= shared->worst)
        return;
    shared->worst = strength;
    shared->status = vote->status;
    if (vote->status == KVF_OK) /* cancelled when its own part was complete already */
        shared->status = base == RETIRE_DOOMED_USER   ? KVF_E_CANCELLED
                         : base == RETIRE_DOOMED_PEER ? KVF_E_PEER_CANCELLED
                                                      : KVF_E_TRANSFER;
    shared->culprit = vote->culprit;
    entry->absence = base == RETIRE_ABSENT;
    if (entry->absence) {
        shared->status = KVF_E_ABSENT;
        shared->culprit = retire->world_ranks[vote->rank];
    }
}

/* This rank's own vote. */
static void note_own(struct retire_entry *entry, const struct retire_vote *vote)
{
    entry->facts = vote->own;
    entry->opened = entry->opened || RETIRE_BASE(vote->vote) != RETIRE_ABSENT;
    list_remove(&entry->absent);
}

/*
 * It was opened here and this rank has not voted yet. A list of its own: what other ranks know
 * nothing of must not change the order in which requests are decided.
 */
static void retire_opened(struct retire *retire, uint64_t rid)
{
    struct retire_entry *entry = retire_find(retire, rid);

    if (entry == NULL || entry->opened || own_vote(retire, entry) != 0)
        return;
    entry->opened = true;
    list_remove(&entry->absent);
    list_push(&retire->late, &entry->late);
}

static void retire_count(struct retire *retire, struct retire_entry *entry, uint8_t *given,
                         const struct retire_vote *vote)
{
    struct retire_shared *shared = &entry->shared;
    unsigned base = RETIRE_BASE(vote->vote);

    if (base > RETIRE_BASE(*given)) {
        count_base(shared, RETIRE_BASE(*given), UINT32_MAX); /* minus one */
        count_base(shared, base, 1);
        shared->asked_ever |= base == RETIRE_ASKED;
        *given = (uint8_t)((*given & RETIRE_DRAINED) | base);
        if (base >= RETIRE_DOOMED_FAILED && shared->state == RETIRE_UNDECIDED)
            note_doom(retire, entry, vote);
        else if (base >= RETIRE_DOOMED_FAILED)
            retire->counts.overruled++;
    }
    if ((vote->vote & ~(unsigned)*given & RETIRE_DRAINED) != 0) {
        *given |= RETIRE_DRAINED;
        shared->drained++;
    }
    retire->rolling = retire_mix(retire->rolling, vote->rid);
    retire->rolling = retire_mix(retire->rolling, (uint64_t)vote->rank << 32 | *given);
}

static enum kvf_status retire_apply(struct retire *retire, const struct retire_vote *vote)
{
    struct retire_entry *entry = retire_find(retire, vote->rid);
    unsigned base = RETIRE_BASE(vote->vote);
    uint8_t *given;

    if (vote->rank >= retire->params.rank_count || vote->vote > 15 || vote->vote == RETIRE_ABSENT)
        return KVF_E_PROTOCOL;
    if (vote->vote == RETIRE_NONE) {
        retire_opened(retire, vote->rid);
        return KVF_OK;
    }
    if (entry == NULL && !vote->first) {
        retire->counts.late++; /* retired; the decision is on its way */
        return KVF_OK;
    }
    if (entry == NULL)
        entry = retire_add(retire, vote->rid);
    if (entry == NULL)
        return KVF_E_TOO_LARGE;
    given = &votes_of(retire, entry)[vote->rank];
    if (base != RETIRE_NONE && base < RETIRE_BASE(*given) &&
        entry->shared.state == RETIRE_UNDECIDED)
        return KVF_E_PROTOCOL;
    if (vote->rank == retire->params.self)
        note_own(entry, vote);
    if (base <= RETIRE_BASE(*given) && (vote->vote & ~(unsigned)*given & RETIRE_DRAINED) == 0) {
        retire->counts.repeated++;
        return KVF_OK;
    }
    retire_count(retire, entry, given, vote);
    if (list_empty(&entry->touched))
        list_push(&retire->touched, &entry->touched);
    return KVF_OK;
}

/* ---- deciding ------------------------------------------------------------------------------- */

static void retire_emit(const struct retire_entry *entry, enum kvf_event_kind kind,
                        struct retire_out *out)
{
    out->voted_ns = entry->facts.voted_ns;
    out->events[out->event_count++] = (struct kvf_event){
        .rid = entry->shared.rid,
        .kind = kind,
        .status = (enum kvf_status)entry->shared.status,
        .culprit = entry->shared.culprit,
        .payload_bytes = entry->facts.payload_bytes,
        .path_mask = entry->facts.path_mask,
        .timing = entry->facts.timing,
    };
}

static void retire_tell(const struct retire_entry *entry, enum retire_decision decision,
                        struct retire_out *out)
{
    out->status = (enum kvf_status)entry->shared.status;
    out->culprit = entry->shared.culprit;
    out->decisions[out->decision_count++] = decision;
}

static void retire_end(struct retire *retire, struct retire_entry *entry, enum retire_state state,
                       struct retire_out *out)
{
    bool context = retire->params.side == KVF_CONTEXT;

    entry->shared.state = state;
    retire->rolling = retire_mix(retire->rolling, entry->shared.rid ^ state);
    if (state == RETIRE_OK)
        retire_emit(entry, context ? KVF_EVENT_SENT : KVF_EVENT_READY, out);
    else
        retire_emit(entry, state == RETIRE_FAILED ? KVF_EVENT_FAILED : KVF_EVENT_CANCELLED, out);
    out->absence = state == RETIRE_FAILED && entry->absence;
}

/* The outcome that the votes bring, if they bring one. */
static void retire_outcome(struct retire *retire, struct retire_entry *entry,
                           struct retire_out *out)
{
    struct retire_shared *shared = &entry->shared;
    uint32_t ranks = retire->params.rank_count;

    if (shared->worst > RETIRE_DOOMED_FAILED) {
        retire_end(retire, entry, RETIRE_CANCELLED, out);
    } else if (shared->worst == RETIRE_DOOMED_FAILED) {
        retire_end(retire, entry, RETIRE_FAILED, out);
    } else {
        if (retire->params.side == KVF_CONTEXT && shared->asked_ever && !shared->asked_given &&
            shared->asked + shared->done == ranks) {
            shared->asked_given = true;
            retire_emit(entry, KVF_EVENT_ASKED, out);
        }
        if (shared->done == ranks)
            retire_end(retire, entry, RETIRE_OK, out);
    }
}

static enum retire_decision retire_decision_of(uint32_t state)
{
    return state == RETIRE_OK       ? RETIRE_DECIDED_OK
           : state == RETIRE_FAILED ? RETIRE_DECIDED_FAILED
                                    : RETIRE_DECIDED_CANCELLED;
}

/* It is over for this rank alone. */
static void retire_close_alone(struct retire_entry *entry, struct retire_out *out)
{
    entry->closed = true;
    list_remove(&entry->escape);
    retire_emit(entry, KVF_EVENT_RELEASED_LOCAL, out);
    retire_tell(entry, RETIRE_DECIDED_RELEASED, out);
}

/* In a group that is lost every rank ends what it has by its own evidence. */
static void retire_end_alone(struct retire *retire, struct retire_entry *entry,
                             struct retire_out *out)
{
    if (entry->closed || !entry->opened)
        return;
    if (entry->shared.state == RETIRE_UNDECIDED) {
        entry->shared.status = KVF_E_GROUP_LOST;
        entry->shared.culprit = retire->lost_culprit;
        retire_end(retire, entry, RETIRE_FAILED, out);
        entry->told = false;
    }
    if (!entry->told)
        retire_tell(entry, retire_decision_of(entry->shared.state), out);
    entry->told = true;
    if ((own_vote(retire, entry) & RETIRE_DRAINED) != 0) {
        retire_close_alone(entry, out);
        retire_remove(retire, entry);
    }
}

static void retire_decide(struct retire *retire, struct retire_entry *entry, uint64_t now_ns,
                          struct retire_out *out)
{
    uint64_t timeout_ns = retire->params.timeout_ns;
    bool decided = entry->shared.state != RETIRE_UNDECIDED;

    if (entry->absent_ns == 0) {
        entry->absent_ns = now_ns + timeout_ns;
        if (timeout_ns > 0 && !entry->opened && own_vote(retire, entry) == 0)
            list_push(&retire->absent, &entry->absent);
    }
    if (!decided)
        retire_outcome(retire, entry, out);
    if (entry->shared.state == RETIRE_UNDECIDED)
        return;
    if (!decided && timeout_ns > 0) {
        entry->escape_ns = now_ns + 2 * timeout_ns;
        list_push(&retire->escape, &entry->escape);
    }
    if (!entry->closed && (!decided || (!entry->told && entry->opened)))
        retire_tell(entry, retire_decision_of(entry->shared.state), out);
    entry->told = entry->opened;
    if (entry->shared.drained == retire->params.rank_count) {
        if (!entry->closed) {
            retire_emit(entry, KVF_EVENT_RELEASED, out);
            retire_tell(entry, RETIRE_DECIDED_RELEASED, out);
        }
        retire_remove(retire, entry);
    } else if (entry->overdue && !entry->closed &&
               (own_vote(retire, entry) & RETIRE_DRAINED) != 0) {
        out->escaped = true;
        retire->counts.escaped++;
        retire_close_alone(entry, out);
    }
}

/* The machine of this rank has the request only now; the outcome stands. */
static void retire_tell_late(struct retire_entry *entry, struct retire_out *out)
{
    if (entry->shared.state == RETIRE_UNDECIDED || entry->told || entry->closed)
        return;
    retire_tell(entry, retire_decision_of(entry->shared.state), out);
    entry->told = true;
}

/* ---- time ----------------------------------------------------------------------------------- */

bool retire_due(const struct retire *retire, uint64_t now_ns)
{
    const struct list *absent = list_first(&retire->absent);
    const struct list *escape = list_first(&retire->escape);

    return !retire->lost &&
           ((absent != NULL &&
             list_object(absent, const struct retire_entry, absent)->absent_ns <= now_ns) ||
            (escape != NULL &&
             list_object(escape, const struct retire_entry, escape)->escape_ns <= now_ns));
}

static void retire_time(struct retire *retire, uint64_t now_ns, struct retire_out *out)
{
    struct list *node = list_first(&retire->absent);
    struct retire_entry *entry;

    if (!retire_due(retire, now_ns))
        return;
    if (node != NULL && list_object(node, struct retire_entry, absent)->absent_ns <= now_ns) {
        entry = list_object(node, struct retire_entry, absent);
        list_remove(node);
        out->absent = true;
    } else {
        node = list_first(&retire->escape);
        entry = list_object(node, struct retire_entry, escape);
        list_remove(node);
        entry->overdue = true;
        if ((own_vote(retire, entry) & RETIRE_DRAINED) != 0) {
            out->escaped = true;
            retire->counts.escaped++;
            retire_close_alone(entry, out);
        }
    }
    out->rid = entry->shared.rid;
    out->more = retire_due(retire, now_ns);
}

/* ---- steps ---------------------------------------------------------------------------------- */

static void retire_next_touched(struct retire *retire, uint64_t now_ns, struct retire_out *out)
{
    struct list *node = list_pop(&retire->touched);
    struct list *late = node == NULL ? list_pop(&retire->late) : NULL;
    struct retire_entry *entry;

    if (node != NULL) {
        entry = list_object(node, struct retire_entry, touched);
        out->rid = entry->shared.rid;
        if (retire->lost)
            retire_end_alone(retire, entry, out);
        else
            retire_decide(retire, entry, now_ns, out);
    } else if (late != NULL) {
        entry = list_object(late, struct retire_entry, late);
        out->rid = entry->shared.rid;
        if (retire->lost)
            retire_end_alone(retire, entry, out);
        else
            retire_tell_late(entry, out);
    } else if (retire->lost && retire->lost_at < retire->params.entries_max) {
        entry = &retire->entries[retire->lost_at++];
        out->rid = entry->shared.rid;
        if (entry->shared.state != RETIRE_UNUSED)
            retire_end_alone(retire, entry, out);
    }
    out->more = !list_empty(&retire->touched) || !list_empty(&retire->late) ||
                (retire->lost && retire->lost_at < retire->params.entries_max);
}

enum kvf_status retire_step(struct retire *retire, const struct retire_event *event,
                            struct retire_out *out)
{
    enum kvf_status status = KVF_OK;

    /* Not all of it: its events are large, and only the first event_count of them are looked at. */
    out->more = out->absent = out->escaped = out->absence = false;
    out->rid = out->voted_ns = 0;
    out->event_count = out->decision_count = 0;
    out->status = KVF_OK;
    out->culprit = KVF_UNKNOWN;
    switch (event->kind) {
    case RETIRE_VOTE:
        status = retire_apply(retire, &event->u.vote);
        break;
    case RETIRE_DECIDE:
        retire_next_touched(retire, event->u.now_ns, out);
        break;
    case RETIRE_TIME:
        retire_time(retire, event->u.now_ns, out);
        break;
    case RETIRE_LOSE:
        retire->lost = true;
        retire->lost_culprit = event->u.lost.culprit;
        out->more = true;
        break;
    }
    return status;
}

/* ---- digest --------------------------------------------------------------------------------- */

uint32_t retire_digest(struct retire *retire)
{
    uint64_t hash = retire_mix(retire->rolling, retire->live);
    uint32_t looks = RETIRE_LOOKS;

    if (looks > retire->params.entries_max)
        looks = retire->params.entries_max;
    for (; looks > 0; looks--) {
        const struct retire_entry *entry = &retire->entries[retire->look];

        if (entry->shared.state != RETIRE_UNUSED) {
            hash = wire_hash64(&entry->shared, sizeof(entry->shared), hash);
            hash = wire_hash64(votes_of(retire, entry), retire->params.rank_count, hash);
        }
        retire->look = (retire->look + 1) % retire->params.entries_max;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

/* ---- looking in ----------------------------------------------------------------------------- */

uint32_t retire_live(const struct retire *retire)
{
    return retire->live;
}

const struct retire_counts *retire_counts(const struct retire *retire)
{
    return &retire->counts;
}

const uint8_t *retire_votes(const struct retire *retire, uint64_t rid)
{
    const struct retire_entry *entry = retire_find(retire, rid);

    return entry == NULL ? NULL : votes_of(retire, entry);
}

void retire_damage(struct retire *retire, uint32_t entry, unsigned bit)
{
    ((uint8_t *)&retire->entries[entry].shared)[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

static void check_entry(const struct retire *retire, const struct retire_entry *entry)
{
    const struct retire_shared *shared = &entry->shared;
    const uint8_t *votes = votes_of(retire, entry);
    uint32_t asked = 0, done = 0, drained = 0, doomed = 0;
    bool waits = !list_empty(&entry->touched);

    for (uint32_t r = 0; r < retire->params.rank_count; r++) {
        unsigned base = RETIRE_BASE(votes[r]);

        asked += base == RETIRE_ASKED;
        done += base == RETIRE_DONE;
        doomed += base >= RETIRE_DOOMED_FAILED;
        drained += (votes[r] & RETIRE_DRAINED) != 0;
        KVF_ASSERT(base != RETIRE_ABSENT || (votes[r] & RETIRE_DRAINED) != 0);
    }
    KVF_ASSERT(asked == shared->asked && done == shared->done && drained == shared->drained);
    if (shared->state == RETIRE_UNDECIDED && !waits && !retire->lost)
        KVF_ASSERT(doomed == 0 && done < retire->params.rank_count);
    if (shared->state != RETIRE_UNDECIDED && !waits && !retire->lost)
        KVF_ASSERT(drained < retire->params.rank_count);
    KVF_ASSERT(list_empty(&entry->absent) || votes[retire->params.self] == 0);
    KVF_ASSERT(list_empty(&entry->escape) || (shared->state != RETIRE_UNDECIDED && !entry->closed));
}

void retire_check(const struct retire *retire)
{
    uint32_t mapped = 0, unused = 0;

    for (uint32_t b = 0; b <= retire->bucket_mask; b++)
        for (uint32_t at = retire->buckets[b]; at != 0; at = retire->entries[at - 1].next) {
            const struct retire_entry *entry = &retire->entries[at - 1];

            KVF_ASSERT(entry->shared.state != RETIRE_UNUSED);
            KVF_ASSERT(retire_bucket(retire, entry->shared.rid) == &retire->buckets[b]);
            check_entry(retire, entry);
            mapped++;
        }
    for (uint32_t at = retire->unused; at != 0; at = retire->entries[at - 1].next) {
        KVF_ASSERT(retire->entries[at - 1].shared.state == RETIRE_UNUSED);
        unused++;
    }
    KVF_ASSERT(mapped == retire->live);
    KVF_ASSERT(mapped + unused == retire->params.entries_max);
}
