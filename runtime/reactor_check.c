/*
 * reactor_check.c - the self check: writers digest the bytes they wrote from, readers their pages.
 *
 * Both sides walk the same plan in the same order. What a reader does not know of it, the writer's
 * slots, no digest of its pages needs. It runs where the machines are stepped, a bounded number of
 * bytes a pass: a writer's task ends only after it, and a reader holds the report, and what its
 * sender said after it, until the pages are read. Only a peer that is lost, and a store of held
 * messages that is full, make it read on to the end.
 */
#include "reactor_internal.h"

#include <string.h>

#include "plan_digest.h"
#include "store.h"

#define CHECK_HELD_MAX 1024u        /* messages */
#define CHECK_HELD_WORDS (1u << 20) /* of all of them */

/* A message that waits: a report whose pages are to be read, or one that came after such. */
struct check_held {
    struct list link; /* unused, or in their order */
    struct peer *peer;
    uint32_t *run; /* of the store */
    size_t len_bytes;
};

struct reactor_check {
    struct plan_digest *digests; /* writer: [REACTOR_TASKS] */

    /* Reader. */
    struct check_held *held; /* [CHECK_HELD_MAX] */
    struct store *store;
    struct list unused;
    struct list queue;
    struct plan_digest digest; /* of the report in front */
    struct plan_filled filled;
    bool reading; /* the digest is under way */

    /* Writer: of the write that ended last; its report leaves in the same step. */
    struct {
        bool there;
        uint64_t rid;
        uint32_t tag, slice, receiver;
        struct msg_check check;
    } written;

    /* Reader: room for the plan of one slice. */
    struct plan_scratch scratch;
    uint32_t *slots; /* of a writer whose slots are not known: all 0 */
    uint32_t slots_max;
    uint64_t *nowhere; /* addresses of the writer's pools: all 0 */
    struct kvf_block_list src[GEO_GROUPS_MAX];
};

/* ---- open and close ------------------------------------------------------------------------- */

static enum kvf_status check_open_reader(struct reactor *reactor, struct reactor_check *check)
{
    const struct kvf *kvf = reactor->kvf;
    const struct kvf_heap *heap = &kvf->heap.table;
    uint32_t pools = 1;

    check->slots_max = (uint32_t)kvf->settings.blocks_max;
    check->scratch.stripes_max = check->scratch.pairs_max = 1;
    for (uint32_t p = 0; p < kvf->peers.count; p++) {
        const struct peer *peer = &kvf->peers.list[p];
        uint32_t blocks = check->slots_max < MSG_BLOCKS_MAX ? check->slots_max : MSG_BLOCKS_MAX;

        if (peer->template == NULL)
            continue;
        if (plan_stripes_max(peer->template) > check->scratch.stripes_max)
            check->scratch.stripes_max = plan_stripes_max(peer->template);
        if (plan_pairs_max(peer->template, blocks) > check->scratch.pairs_max)
            check->scratch.pairs_max = plan_pairs_max(peer->template, blocks);
        if (peer->record->layout.pool_count > pools)
            pools = peer->record->layout.pool_count;
    }
    check->scratch.stripes =
        kvf_alloc(heap, check->scratch.stripes_max, sizeof(*check->scratch.stripes));
    check->scratch.pairs = kvf_alloc(heap, check->scratch.pairs_max, sizeof(*check->scratch.pairs));
    check->slots = kvf_alloc(heap, check->slots_max, sizeof(*check->slots));
    check->nowhere = kvf_alloc(heap, pools, sizeof(*check->nowhere));
    reactor->own_addresses = kvf_alloc(heap, (size_t)kvf->record->layout.pool_count + 1,
                                       sizeof(*reactor->own_addresses));
    if (check->scratch.stripes == NULL || check->scratch.pairs == NULL || check->slots == NULL ||
        check->nowhere == NULL || reactor->own_addresses == NULL)
        return KVF_E_NOMEM;
    for (uint32_t p = 0; p < kvf->record->layout.pool_count; p++)
        reactor->own_addresses[p] = kvf->record->pools[p].base;
    check->held = kvf_alloc(heap, CHECK_HELD_MAX, sizeof(*check->held));
    if (check->held == NULL)
        return KVF_E_NOMEM;
    for (uint32_t h = 0; h < CHECK_HELD_MAX; h++)
        list_push(&check->unused, &check->held[h].link);
    return store_open(heap, CHECK_HELD_WORDS, CHECK_HELD_MAX, &check->store);
}

enum kvf_status check_open(struct reactor *reactor)
{
    if (!reactor->kvf->settings.self_check)
        return KVF_OK;
    reactor->check = kvf_alloc(&reactor->kvf->heap.table, 1, sizeof(*reactor->check));
    if (reactor->check == NULL)
        return KVF_E_NOMEM;
    list_init(&reactor->check->unused);
    list_init(&reactor->check->queue);
    if (reactor->kvf->place.side == KVF_GENERATION)
        return check_open_reader(reactor, reactor->check);
    reactor->check->digests =
        kvf_alloc(&reactor->kvf->heap.table, REACTOR_TASKS, sizeof(*reactor->check->digests));
    return reactor->check->digests == NULL ? KVF_E_NOMEM : KVF_OK;
}

void check_close(struct reactor *reactor)
{
    const struct kvf_heap *heap = &reactor->kvf->heap.table;
    struct reactor_check *check = reactor->check;

    if (check == NULL)
        return;
    store_close(check->store);
    kvf_release(heap, check->held);
    kvf_release(heap, check->digests);
    kvf_release(heap, check->nowhere);
    kvf_release(heap, check->slots);
    kvf_release(heap, check->scratch.pairs);
    kvf_release(heap, check->scratch.stripes);
    kvf_release(heap, check);
    reactor->check = NULL;
}

/* ---- writer --------------------------------------------------------------------------------- */

bool check_begin(struct reactor *reactor, const struct reactor_task *task)
{
    struct reactor_check *check = reactor->check;

    if (check == NULL || task->path == KVF_PATH_NONE ||
        plan_digest_fragments(task->stripes, task->stripe_count) == 0)
        return false;
    plan_digest_init(&check->digests[task - reactor->tasks], task->stripes, task->stripe_count,
                     true);
    return true;
}

bool check_step(struct reactor *reactor, const struct reactor_task *task, uint64_t *budget_bytes)
{
    struct reactor_check *check = reactor->check;
    struct plan_digest *digest = &check->digests[task - reactor->tasks];
    const struct send_start *start = &task->start;

    if (!plan_digest_step(digest, budget_bytes))
        return false;
    check->written.there = true;
    check->written.rid = start->rid;
    check->written.tag = start->tag;
    check->written.slice = start->slice;
    check->written.receiver = start->receiver;
    check->written.check.token_first = start->window.token_first;
    check->written.check.token_end = start->window.token_end;
    check->written.check.layer_first = start->window.layer_first;
    check->written.check.layer_end = start->window.layer_end;
    check->written.check.part_count = digest->part_count;
    memcpy(check->written.check.parts, digest->parts, sizeof(digest->parts));
    return true;
}

void check_attach(struct reactor *reactor, uint32_t receiver, struct msg *msg)
{
    const struct reactor_check *check = reactor->check;
    struct msg_report *report = &msg->u.report;

    if (check == NULL || !check->written.there || msg->header.type != MSG_REPORT ||
        report->status != MSG_REPORT_SUCCESS || receiver != check->written.receiver ||
        report->rid != check->written.rid || report->tag != check->written.tag ||
        report->slice != check->written.slice)
        return;
    report->check = &check->written.check;
}

/* ---- reader --------------------------------------------------------------------------------- */

/* Lists of a writer that holds all that this rank asked for. False: the lists are too far apart. */
static bool check_sources(struct reactor *reactor, const struct peer *peer,
                          const struct kvf_block_list *lists)
{
    struct reactor_check *check = reactor->check;
    const struct kvf_layout *own = &reactor->kvf->record->layout;
    uint32_t first = UINT32_MAX, end = 0;

    for (uint32_t g = 0; g < own->group_count; g++) {
        if (own->groups[g].group_class == KVF_GROUP_STATE || lists[g].count == 0)
            continue;
        first = lists[g].first < first ? lists[g].first : first;
        end = lists[g].first + lists[g].count > end ? lists[g].first + lists[g].count : end;
    }
    if (end > first && end - first > check->slots_max)
        return false;
    for (uint32_t g = 0; g < peer->record->layout.group_count; g++) {
        bool state = peer->record->layout.groups[g].group_class == KVF_GROUP_STATE;

        check->src[g] = (struct kvf_block_list){
            .first = state || end == 0 ? 0 : first,
            .count = state      ? 1
                     : end == 0 ? 0
                                : end - first,
            .slots = check->slots,
        };
    }
    return true;
}

/* The stripes of the slice that a report is about; false: it cannot be told. */
static bool check_plan(struct reactor *reactor, const struct peer *peer,
                       const struct msg_report *report, const struct msg_check *told,
                       struct plan_filled *filled_out)
{
    struct reactor_check *check = reactor->check;
    const struct kvf_block_list *lists;
    uint32_t prompt_tokens;
    const struct plan_piece piece = {told->token_first, told->token_end, told->layer_first,
                                     told->layer_end, report->is_last};
    const struct plan_addresses addresses = {check->nowhere, reactor->own_addresses};
    struct plan_request request = {
        .src = check->src,
        .src_aux_slot = PLAN_NO_SLOT,
        .dst_aux_slot = PLAN_NO_SLOT,
    };

    if (peer->template == NULL ||
        !recv_session_lists(reactor->recv, report->rid, report->tag, &lists, &prompt_tokens) ||
        !check_sources(reactor, peer, lists))
        return false;
    request.prompt_tokens = prompt_tokens;
    request.src_count = peer->record->layout.group_count;
    request.dst_count = reactor->kvf->record->layout.group_count;
    request.dst = lists;
    return plan_check_request(peer->template, &request, &piece, NULL) == KVF_OK &&
           plan_fill(peer->template, &request, &piece, &addresses, &check->scratch, filled_out) ==
               KVF_OK;
}

/* Layer of an offset in a slot of a pool; KVF_UNKNOWN when no view has it. */
static uint32_t check_layer(const struct kvf_layout *layout, uint32_t pool, uint64_t offset)
{
    for (uint32_t g = 0; g < layout->group_count; g++)
        for (uint32_t v = 0; v < layout->groups[g].view_count; v++) {
            const struct kvf_view *view = &layout->groups[g].views[v];

            for (uint32_t e = 0; e < view->entry_count && view->pool == pool; e++)
                if (offset >= view->entries[e].offset &&
                    offset - view->entries[e].offset < view->entries[e].size)
                    return view->entries[e].layer;
        }
    return KVF_UNKNOWN;
}

/* Names the place of the first fragment of the first part that differs. */
static void check_say(struct reactor *reactor, const struct peer *peer,
                      const struct msg_report *report, const struct plan_filled *filled,
                      uint32_t part)
{
    const struct reactor_check *check = reactor->check;
    const struct geo_record *record = reactor->kvf->record;
    uint64_t fragments = plan_digest_fragments(check->scratch.stripes, filled->stripe_count);
    uint64_t parts = fragments < MSG_CHECK_PARTS_MAX ? fragments : MSG_CHECK_PARTS_MAX;
    uint64_t first = (part * fragments + parts - 1) / parts;
    uint64_t end = ((part + 1) * fragments + parts - 1) / parts;
    struct plan_fragment fragment = {0};
    struct plan_walk walk;
    uint32_t pool = 0;
    uint64_t offset, in_slot;

    plan_walk_init(&walk, check->scratch.stripes, filled->stripe_count);
    for (uint64_t i = 0; i <= first; i++)
        plan_walk_next(&walk, &fragment);
    while (pool + 1 < record->layout.pool_count &&
           fragment.dst - record->pools[pool].base >= record->pools[pool].bytes)
        pool++;
    offset = fragment.dst - record->pools[pool].base;
    in_slot = offset % record->layout.pools[pool].slot_stride;
    log_error(&reactor->kvf->logger, "",
              "request %llu: what %s wrote (slice %u) is not what lies in the pages: layers %u to "
              "%u, slot %llu of pool %u, or one of the %llu fragments from there (of %llu)",
              (unsigned long long)report->rid, peer->name, report->slice,
              check_layer(&record->layout, pool, in_slot),
              check_layer(&record->layout, pool, in_slot + fragment.bytes - 1),
              (unsigned long long)(offset / record->layout.pools[pool].slot_stride), pool,
              (unsigned long long)(end - first), (unsigned long long)fragments);
}

/* What was read against what the report tells; false: logged. */
static bool check_compare(struct reactor *reactor, const struct peer *peer,
                          const struct msg_report *report)
{
    const struct reactor_check *check = reactor->check;
    const struct plan_digest *found = &check->digest;
    const struct kvf_block_list *lists;
    struct msg_check told;
    uint32_t prompt_tokens;

    if (!msg_check_read(report, &told) ||
        !recv_session_lists(reactor->recv, report->rid, report->tag, &lists, &prompt_tokens))
        return true; /* it has ended meanwhile: the pages may be another's */
    if (found->part_count != told.part_count) {
        log_error(&reactor->kvf->logger, "",
                  "request %llu: %s planned slice %u otherwise than this rank: %u and %u parts",
                  (unsigned long long)report->rid, peer->name, report->slice, told.part_count,
                  found->part_count);
        return false;
    }
    for (uint32_t part = 0; part < told.part_count; part++)
        if (found->parts[part] != told.parts[part]) {
            check_say(reactor, peer, report, &check->filled, part);
            return false;
        }
    return true;
}

/* Begins to read the pages of a report; false: there is nothing to compare. */
static bool check_read(struct reactor *reactor, const struct peer *peer, const struct msg *msg)
{
    struct reactor_check *check = reactor->check;
    const struct msg_report *report = &msg->u.report;
    struct msg_check told;

    if (msg->header.type != MSG_REPORT || report->status != MSG_REPORT_SUCCESS ||
        !msg_check_read(report, &told) || !check_plan(reactor, peer, report, &told, &check->filled))
        return false; /* what is wrong with it otherwise is the machine's */
    plan_digest_init(&check->digest, check->scratch.stripes, check->filled.stripe_count, false);
    check->reading = true;
    return true;
}

bool check_holds(struct reactor *reactor, struct peer *peer, const uint8_t *bytes, size_t len_bytes)
{
    struct reactor_check *check = reactor->check;
    struct msg_header header;
    struct check_held *held;
    uint64_t all = UINT64_MAX;

    if (check == NULL || reactor->recv == NULL ||
        msg_peek_header(bytes, len_bytes, &header) != KVF_OK || header.type == MSG_PING ||
        header.type == MSG_PONG || (peer->held == 0 && header.type != MSG_REPORT))
        return false;
    if (list_empty(&check->unused))
        check_pump(reactor, &all);
    held = list_object(list_first(&check->unused), struct check_held, link);
    if (store_take(check->store, (uint32_t)((len_bytes + 3) / 4), &held->run) != KVF_OK) {
        all = UINT64_MAX;
        check_pump(reactor, &all);
        if (store_take(check->store, (uint32_t)((len_bytes + 3) / 4), &held->run) != KVF_OK)
            return false;
    }
    list_remove(&held->link);
    memcpy(held->run, bytes, len_bytes);
    held->len_bytes = len_bytes;
    held->peer = peer;
    peer->held++;
    list_push(&check->queue, &held->link);
    return true;
}

/* The message in front goes on its way. */
static void check_pass_on(struct reactor *reactor, struct check_held *held, const struct msg *msg,
                          bool fine)
{
    struct reactor_check *check = reactor->check;

    check->reading = false;
    list_remove(&held->link);
    held->peer->held--;
    if (!fine) {
        struct recv_event fail = {
            .kind = RECV_CANCEL,
            .u.cancel = {.rid = msg->u.report.rid, .code = KVF_E_TRANSFER},
        };

        recv_glue_step(reactor, &fail); /* first: the report may make it whole */
    }
    peer_take(reactor, held->peer, (const uint8_t *)held->run, held->len_bytes);
    store_free(check->store, held->run);
    list_push(&check->unused, &held->link);
}

bool check_pump(struct reactor *reactor, uint64_t *budget_bytes)
{
    struct reactor_check *check = reactor->check;
    bool worked = false;

    while (check != NULL && !list_empty(&check->queue) && *budget_bytes > 0) {
        struct check_held *held = list_object(list_first(&check->queue), struct check_held, link);
        const char *why;
        struct msg msg;
        bool read =
            msg_decode_checked((const uint8_t *)held->run, held->len_bytes, &msg, &why) == KVF_OK &&
            (check->reading || check_read(reactor, held->peer, &msg));

        worked = true;
        if (read && !plan_digest_step(&check->digest, budget_bytes))
            break;
        check_pass_on(reactor, held, &msg,
                      !read || check_compare(reactor, held->peer, &msg.u.report));
    }
    return worked;
}

bool check_ready(const struct reactor *reactor)
{
    return reactor->check != NULL && !list_empty(&reactor->check->queue);
}

void check_finish(struct reactor *reactor, const struct peer *peer)
{
    while (peer->held > 0) {
        uint64_t all = UINT64_MAX;

        check_pump(reactor, &all);
    }
}
