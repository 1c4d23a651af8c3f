/*
 * retire.c - see retire.h.
 */
#include "consensus/retire.h"

#include "check.h"

enum retire_state {
    RETIRE_UNUSED,
    RETIRE_UNDECIDED,
    RETIRE_OK,
    RETIRE_BAD,
};

struct retire_entry {
    uint64_t rid;
    enum retire_state state;
    unsigned vote; /* highest so far */
    bool asked;    /* the event ASKED was given */
    uint32_t next; /* unused entries and chains of the map; index + 1 */
};

struct retire {
    const struct kvf_heap *heap;
    struct retire_params params;
    struct retire_entry *entries; /* [requests_max] */
    uint32_t *buckets;            /* [bucket_count] index + 1 */
    uint32_t bucket_mask;
    uint32_t unused; /* index + 1 */
    uint32_t live;
};

enum kvf_status retire_open(const struct kvf_heap *heap, const struct retire_params *params,
                            struct retire **retire_out)
{
    struct retire *retire;
    uint32_t buckets = 1;

    if (params->requests_max == 0 || params->requests_max > 1u << 24)
        return KVF_E_INVAL;
    while (buckets < params->requests_max)
        buckets *= 2;
    retire = kvf_alloc(heap, 1, sizeof(*retire));
    if (retire == NULL)
        return KVF_E_NOMEM;
    retire->heap = heap;
    retire->params = *params;
    retire->bucket_mask = buckets - 1;
    retire->entries = kvf_alloc(heap, params->requests_max, sizeof(*retire->entries));
    retire->buckets = kvf_alloc(heap, buckets, sizeof(*retire->buckets));
    if (retire->entries == NULL || retire->buckets == NULL) {
        retire_close(retire);
        return KVF_E_NOMEM;
    }
    for (uint32_t e = 0; e < params->requests_max; e++)
        retire->entries[e].next = e + 1 == params->requests_max ? 0 : e + 2;
    retire->unused = 1;
    *retire_out = retire;
    return KVF_OK;
}

void retire_close(struct retire *retire)
{
    if (retire == NULL)
        return;
    kvf_release(retire->heap, retire->buckets);
    kvf_release(retire->heap, retire->entries);
    kvf_release(retire->heap, retire);
}

/* ---- the map -------------------------------------------------------------------------------- */

static uint32_t *retire_bucket(const struct retire *retire, uint64_t rid)
{
    uint64_t hash = rid * UINT64_C(0x9e3779b97f4a7c15);

    return &retire->buckets[(hash >> 32) & retire->bucket_mask];
}

static struct retire_entry *retire_find(const struct retire *retire, uint64_t rid)
{
    for (uint32_t at = *retire_bucket(retire, rid); at != 0; at = retire->entries[at - 1].next)
        if (retire->entries[at - 1].rid == rid)
            return &retire->entries[at - 1];
    return NULL;
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
    *entry = (struct retire_entry){.rid = rid, .state = RETIRE_UNDECIDED, .next = *bucket};
    *bucket = at;
    retire->live++;
    return entry;
}

static void retire_remove(struct retire *retire, struct retire_entry *entry)
{
    uint32_t at = (uint32_t)(entry - retire->entries) + 1;
    uint32_t *link = retire_bucket(retire, entry->rid);

    while (*link != at)
        link = &retire->entries[*link - 1].next;
    *link = entry->next;
    entry->state = RETIRE_UNUSED;
    entry->next = retire->unused;
    retire->unused = at;
    retire->live--;
}

/* ---- deciding ------------------------------------------------------------------------------- */

static void retire_emit(struct retire_out *out, const struct retire_vote *vote,
                        enum kvf_event_kind kind)
{
    struct kvf_event *event = &out->events[out->event_count++];

    *event = vote->facts;
    event->rid = vote->rid;
    event->kind = kind;
}

static void retire_decide(struct retire_out *out, enum retire_decision decision)
{
    out->decisions[out->decision_count++] = decision;
}

/* The outcome, if this vote brings it. */
static void retire_outcome(struct retire *retire, struct retire_entry *entry,
                           const struct retire_vote *vote, struct retire_out *out)
{
    switch ((enum retire_vote_kind)(vote->vote & 7u)) {
    case RETIRE_NONE:
    case RETIRE_WITHDRAWN:
    case RETIRE_ABSENT:
        break;
    case RETIRE_ASKED:
        if (retire->params.side == KVF_CONTEXT && !entry->asked) {
            entry->asked = true;
            retire_emit(out, vote, KVF_EVENT_ASKED);
        }
        break;
    case RETIRE_DONE:
        entry->state = RETIRE_OK;
        retire_emit(out, vote,
                    retire->params.side == KVF_CONTEXT ? KVF_EVENT_SENT : KVF_EVENT_READY);
        retire_decide(out, RETIRE_DECIDED_OK);
        break;
    case RETIRE_DOOMED_FAILED:
        entry->state = RETIRE_BAD;
        retire_emit(out, vote, KVF_EVENT_FAILED);
        retire_decide(out, RETIRE_DECIDED_FAILED);
        break;
    case RETIRE_DOOMED_PEER:
    case RETIRE_DOOMED_USER:
        entry->state = RETIRE_BAD;
        retire_emit(out, vote, KVF_EVENT_CANCELLED);
        retire_decide(out, RETIRE_DECIDED_CANCELLED);
        break;
    }
}

enum kvf_status retire_step(struct retire *retire, const struct retire_vote *vote,
                            struct retire_out *out)
{
    struct retire_entry *entry = retire_find(retire, vote->rid);
    unsigned base = vote->vote & 7u;

    out->event_count = 0;
    out->decision_count = 0;
    if (base == RETIRE_ABSENT || (entry != NULL && entry->state == RETIRE_UNDECIDED &&
                                  base != RETIRE_NONE && base < (entry->vote & 7u)))
        return KVF_E_PROTOCOL;
    if (entry == NULL && vote->before != RETIRE_NONE)
        return KVF_OK; /* retired; the decision is on its way */
    if (entry == NULL)
        entry = retire_add(retire, vote->rid);
    if (entry == NULL)
        return KVF_BUSY;
    if (base > (entry->vote & 7u))
        entry->vote = (entry->vote & RETIRE_DRAINED) | base;
    entry->vote |= vote->vote & RETIRE_DRAINED;
    if (entry->state == RETIRE_UNDECIDED)
        retire_outcome(retire, entry, vote, out);
    if (entry->state != RETIRE_UNDECIDED && (entry->vote & RETIRE_DRAINED) != 0) {
        retire_emit(out, vote, KVF_EVENT_RELEASED);
        retire_decide(out, RETIRE_DECIDED_RELEASED);
        retire_remove(retire, entry);
    }
    return KVF_OK;
}

uint32_t retire_live(const struct retire *retire)
{
    return retire->live;
}

void retire_check(const struct retire *retire)
{
    uint32_t mapped = 0, unused = 0;

    for (uint32_t b = 0; b <= retire->bucket_mask; b++)
        for (uint32_t at = retire->buckets[b]; at != 0; at = retire->entries[at - 1].next) {
            const struct retire_entry *entry = &retire->entries[at - 1];

            KVF_ASSERT(entry->state != RETIRE_UNUSED);
            KVF_ASSERT(retire_bucket(retire, entry->rid) == &retire->buckets[b]);
            KVF_ASSERT(entry->state == RETIRE_UNDECIDED || (entry->vote & RETIRE_DRAINED) == 0);
            mapped++;
        }
    for (uint32_t at = retire->unused; at != 0; at = retire->entries[at - 1].next) {
        KVF_ASSERT(retire->entries[at - 1].state == RETIRE_UNUSED);
        unused++;
    }
    KVF_ASSERT(mapped == retire->live);
    KVF_ASSERT(mapped + unused == retire->params.requests_max);
}
