/*
 * admission.c - see admission.h.
 */
#include "admission.h"

#include <string.h>

#include "plan.h"
#include "rid_map.h"
#include "store.h"

/* ---- init and fini -------------------------------------------------------------------------- */

static enum kvf_status admission_arrays(struct admission *admission)
{
    const struct admission_params *params = &admission->params;
    uint32_t groups = params->record->layout.group_count;

    admission->requests =
        kvf_alloc(params->heap, params->requests_max, sizeof(*admission->requests));
    admission->lists = kvf_alloc(params->heap, (size_t)params->requests_max * groups + 1,
                                 sizeof(*admission->lists));
    admission->aux =
        kvf_alloc(params->heap, (size_t)params->requests_max * params->aux_bytes + 1, 1);
    admission->ended = kvf_alloc(params->heap, params->ended_max, sizeof(*admission->ended));
    admission->bitmap = kvf_alloc(params->heap, (size_t)plan_check_words(params->record) + 1,
                                  sizeof(*admission->bitmap));
    if (admission->requests == NULL || admission->lists == NULL || admission->aux == NULL ||
        admission->ended == NULL || admission->bitmap == NULL)
        return KVF_E_NOMEM;
    for (uint32_t r = 0; r < params->requests_max; r++) {
        admission->requests[r].lists = &admission->lists[(size_t)r * groups];
        admission->requests[r].aux_storage = &admission->aux[(size_t)r * params->aux_bytes];
        list_push(&admission->unused, &admission->requests[r].link);
    }
    return KVF_OK;
}

enum kvf_status admission_init(struct admission *admission, const struct admission_params *params)
{
    enum kvf_status status;

    *admission = (struct admission){.params = *params};
    pthread_mutex_init(&admission->lock, NULL);
    list_init(&admission->unused);
    status = admission_arrays(admission);
    if (status == KVF_OK)
        status = rid_map_open(params->heap, params->requests_max, &admission->live);
    if (status == KVF_OK)
        status = rid_map_open(params->heap, params->ended_max, &admission->ended_map);
    if (status == KVF_OK)
        status =
            store_open(params->heap, params->blocks_max, params->requests_max, &admission->store);
    if (status != KVF_OK)
        admission_fini(admission);
    return status;
}

void admission_fini(struct admission *admission)
{
    const struct kvf_heap *heap = admission->params.heap;

    if (heap == NULL)
        return;
    store_close(admission->store);
    rid_map_close(admission->ended_map);
    rid_map_close(admission->live);
    kvf_release(heap, admission->bitmap);
    kvf_release(heap, admission->ended);
    kvf_release(heap, admission->aux);
    kvf_release(heap, admission->lists);
    kvf_release(heap, admission->requests);
    pthread_mutex_destroy(&admission->lock);
    *admission = (struct admission){0};
}

/* ---- the memory of ended requests ----------------------------------------------------------- */

static void admission_forget_oldest(struct admission *admission)
{
    struct admission_ended *oldest = &admission->ended[admission->ended_first];

    rid_map_remove(admission->ended_map, oldest->rid);
    admission->ended_first = (admission->ended_first + 1) % admission->params.ended_max;
    admission->ended_count--;
}

static void admission_expire(struct admission *admission, uint64_t now_ns)
{
    while (admission->ended_count > 0 &&
           now_ns - admission->ended[admission->ended_first].ended_ns >=
               admission->params.ended_ttl_ns)
        admission_forget_oldest(admission);
}

static void admission_remember(struct admission *admission, uint64_t rid, uint64_t now_ns)
{
    struct admission_ended *place;

    if (admission->ended_count == admission->params.ended_max)
        admission_forget_oldest(admission);
    place = &admission->ended[(admission->ended_first + admission->ended_count) %
                              admission->params.ended_max];
    *place = (struct admission_ended){.rid = rid, .ended_ns = now_ns};
    admission->ended_count++;
    rid_map_add(admission->ended_map, rid, place);
}

/* ---- taking and ending ---------------------------------------------------------------------- */

static enum kvf_status admission_check(struct admission *admission, const struct admission_ask *ask,
                                       uint32_t *blocks_out, struct geo_text *text_out)
{
    enum kvf_status status;
    uint64_t blocks = 0;

    if (ask->prompt_tokens == 0 || ask->cached_tokens > ask->prompt_tokens) {
        geo_text_set(text_out, "%u prompt tokens, %u of them cached", ask->prompt_tokens,
                     ask->cached_tokens);
        return KVF_E_INVAL;
    }
    for (uint32_t i = 0; i < ask->list_count; i++)
        blocks += ask->lists[i].count;
    if (blocks > admission->params.blocks_max) {
        geo_text_set(text_out, "%llu blocks; blocks_max is %u", (unsigned long long)blocks,
                     admission->params.blocks_max);
        return KVF_E_TOO_LARGE;
    }
    if (ask->unique && blocks > admission->params.message_max) {
        geo_text_set(text_out, "%llu blocks; one request may receive %u",
                     (unsigned long long)blocks, admission->params.message_max);
        return KVF_E_TOO_LARGE;
    }
    *blocks_out = (uint32_t)blocks;
    status = plan_check_lists(admission->params.record, ask->lists, ask->list_count,
                              ask->unique ? admission->bitmap : NULL, text_out);
    if (status == KVF_OK && ask->unique)
        status = plan_check_cover(admission->params.record, ask->lists, ask->prompt_tokens,
                                  ask->cached_tokens, text_out);
    return status;
}

static void admission_copy(struct admission *admission, struct admission_request *request,
                           const struct admission_ask *ask)
{
    uint32_t at = 0;

    request->rid = ask->rid;
    request->synchronous = ask->synchronous;
    request->prompt_tokens = ask->prompt_tokens;
    request->cached_tokens = ask->cached_tokens;
    request->end = ask->end;
    request->opened_ns = ask->now_ns;
    request->capped = ask->capped;
    request->retained = false;
    request->closed = false;
    request->window_count = 0;
    for (uint32_t i = 0; i < ask->list_count; i++) {
        request->lists[i] = (struct kvf_block_list){
            .first = ask->lists[i].first,
            .count = ask->lists[i].count,
            .slots = request->slots + at,
        };
        if (ask->lists[i].count > 0)
            memcpy(request->slots + at, ask->lists[i].slots,
                   ask->lists[i].count * sizeof(*request->slots));
        at += ask->lists[i].count;
    }
    request->aux = ask->aux;
    if (ask->aux_copy != NULL) {
        memcpy(request->aux_storage, ask->aux_copy, admission->params.aux_bytes);
        request->aux = request->aux_storage;
    }
}

static enum kvf_status admission_take_locked(struct admission *admission,
                                             const struct admission_ask *ask,
                                             struct admission_request **request_out,
                                             struct geo_text *text_out)
{
    struct admission_request *request;
    enum kvf_status status;
    uint32_t blocks;

    admission_expire(admission, ask->now_ns);
    if (rid_map_find(admission->live, ask->rid) != NULL ||
        rid_map_find(admission->ended_map, ask->rid) != NULL)
        return KVF_E_EXISTS;
    status = admission_check(admission, ask, &blocks, text_out);
    if (status != KVF_OK)
        return status;
    /* Exactly: the other side takes memory for what this rank may ask for at once. */
    if (list_empty(&admission->unused) ||
        admission->live_blocks + blocks > admission->params.blocks_max ||
        (ask->capped && admission->capped_tokens > 0 && admission->params.tokens_max > 0 &&
         admission->capped_tokens + ask->prompt_tokens > admission->params.tokens_max))
        return KVF_BUSY;
    request = list_object(list_first(&admission->unused), struct admission_request, link);
    status = store_take(admission->store, blocks, &request->slots);
    if (status != KVF_OK)
        return status;
    request->blocks = blocks;
    admission->live_blocks += blocks;
    list_remove(&request->link);
    admission_copy(admission, request, ask);
    if (request->capped)
        admission->capped_tokens += request->prompt_tokens;
    rid_map_add(admission->live, ask->rid, request);
    *request_out = request;
    return KVF_OK;
}

enum kvf_status admission_take(struct admission *admission, const struct admission_ask *ask,
                               struct admission_request **request_out, struct geo_text *text_out)
{
    enum kvf_status status;

    pthread_mutex_lock(&admission->lock);
    status = admission_take_locked(admission, ask, request_out, text_out);
    pthread_mutex_unlock(&admission->lock);
    return status;
}

/* Under the lock. */
static void admission_free(struct admission *admission, struct admission_request *request)
{
    rid_map_remove(admission->live, request->rid);
    if (request->retained)
        admission->retained_blocks -= request->blocks;
    if (request->capped)
        admission->capped_tokens -= request->prompt_tokens;
    admission->live_blocks -= request->blocks;
    store_free(admission->store, request->slots);
    request->slots = NULL;
    list_push(&admission->unused, &request->link);
}

void admission_copied(struct admission *admission, struct admission_request *request, uint64_t rid,
                      uint32_t *slots)
{
    pthread_mutex_lock(&admission->lock);
    /* It may have ended meanwhile, and its place have been taken by another. */
    if (rid_map_find(admission->live, rid) == request && request->slots == slots) {
        store_free(admission->store, slots);
        request->slots = NULL;
    }
    pthread_mutex_unlock(&admission->lock);
}

void admission_undo(struct admission *admission, struct admission_request *request)
{
    pthread_mutex_lock(&admission->lock);
    admission_free(admission, request);
    pthread_mutex_unlock(&admission->lock);
}

void admission_end(struct admission *admission, uint64_t rid, uint64_t now_ns)
{
    struct admission_request *request;

    pthread_mutex_lock(&admission->lock);
    request = rid_map_find(admission->live, rid);
    if (request != NULL) {
        admission_free(admission, request);
        admission_remember(admission, rid, now_ns);
    }
    pthread_mutex_unlock(&admission->lock);
}

bool admission_absent(struct admission *admission, uint64_t rid, uint64_t now_ns)
{
    bool live;

    pthread_mutex_lock(&admission->lock);
    live = rid_map_find(admission->live, rid) != NULL;
    if (!live && rid_map_find(admission->ended_map, rid) == NULL)
        admission_remember(admission, rid, now_ns);
    pthread_mutex_unlock(&admission->lock);
    return !live;
}

void admission_retain(struct admission *admission, uint64_t rid)
{
    struct admission_request *request;

    pthread_mutex_lock(&admission->lock);
    request = rid_map_find(admission->live, rid);
    if (request != NULL && !request->retained) {
        request->retained = true;
        admission->retained_blocks += request->blocks;
    }
    pthread_mutex_unlock(&admission->lock);
}

uint64_t admission_retained(struct admission *admission)
{
    uint64_t blocks;

    pthread_mutex_lock(&admission->lock);
    blocks = admission->retained_blocks;
    pthread_mutex_unlock(&admission->lock);
    return blocks;
}

/* ---- looking -------------------------------------------------------------------------------- */

enum admission_known admission_find(struct admission *admission, uint64_t rid, uint64_t now_ns)
{
    enum admission_known known = ADMISSION_UNKNOWN;

    pthread_mutex_lock(&admission->lock);
    admission_expire(admission, now_ns);
    if (rid_map_find(admission->live, rid) != NULL)
        known = ADMISSION_LIVE;
    else if (rid_map_find(admission->ended_map, rid) != NULL)
        known = ADMISSION_ENDED;
    pthread_mutex_unlock(&admission->lock);
    return known;
}

bool admission_is_synchronous(struct admission *admission, uint64_t rid)
{
    const struct admission_request *request;
    bool synchronous;

    pthread_mutex_lock(&admission->lock);
    request = rid_map_find(admission->live, rid);
    synchronous = request != NULL && request->synchronous;
    pthread_mutex_unlock(&admission->lock);
    return synchronous;
}

uint32_t admission_live(struct admission *admission)
{
    uint32_t live;

    pthread_mutex_lock(&admission->lock);
    live = rid_map_count(admission->live);
    pthread_mutex_unlock(&admission->lock);
    return live;
}

/* ---- windows -------------------------------------------------------------------------------- */

static bool windows_meet(const struct admission_window *a, const struct admission_window *b)
{
    return a->token_first < b->token_end && b->token_first < a->token_end &&
           a->layer_first < b->layer_end && b->layer_first < a->layer_end;
}

static uint64_t window_area(const struct admission_window *window)
{
    return (uint64_t)(window->token_end - window->token_first) *
           (window->layer_end - window->layer_first);
}

static enum kvf_status admission_window_locked(struct admission_request *request,
                                               const struct admission_window *wanted, bool last,
                                               uint32_t layers)
{
    uint64_t area = window_area(wanted);

    if (request->closed)
        return KVF_E_STATE;
    if (request->window_count == ADMISSION_WINDOWS_MAX)
        return KVF_E_TOO_LARGE;
    for (uint32_t i = 0; i < request->window_count; i++) {
        if (windows_meet(&request->windows[i], wanted))
            return KVF_E_REQ_PIECE;
        area += window_area(&request->windows[i]);
    }
    if (last && area != (uint64_t)request->prompt_tokens * layers)
        return KVF_E_REQ_PIECE;
    request->windows[request->window_count++] = *wanted;
    request->closed = last;
    return KVF_OK;
}

static bool window_fits(const struct admission *admission, const struct admission_window *wanted,
                        uint32_t prompt_tokens, uint32_t layers)
{
    uint32_t block = admission->params.record->layout.tokens_per_block;

    return wanted->token_first < wanted->token_end && wanted->token_end <= prompt_tokens &&
           wanted->layer_first < wanted->layer_end && wanted->layer_end <= layers &&
           wanted->token_first % block == 0 &&
           (wanted->token_end % block == 0 || wanted->token_end == prompt_tokens);
}

enum kvf_status admission_window(struct admission *admission, uint64_t rid,
                                 struct kvf_window *window, uint32_t layers, bool pipelined)
{
    struct admission_request *request;
    enum kvf_status status = KVF_E_NOTFOUND;

    pthread_mutex_lock(&admission->lock);
    request = rid_map_find(admission->live, rid);
    if (request != NULL) {
        struct admission_window wanted = {
            .token_first = window->token_first,
            .token_end = window->token_end == 0 ? request->prompt_tokens : window->token_end,
            .layer_first = window->layer_first,
            .layer_end = window->layer_end == 0 ? layers : window->layer_end,
        };

        status = KVF_E_REQ_PIECE;
        if (window_fits(admission, &wanted, request->prompt_tokens, layers) &&
            (pipelined || window->last))
            status = admission_window_locked(request, &wanted, window->last, layers);
        window->token_end = wanted.token_end;
        window->layer_end = wanted.layer_end;
    }
    pthread_mutex_unlock(&admission->lock);
    return status;
}

void admission_window_undo(struct admission *admission, uint64_t rid,
                           const struct kvf_window *window)
{
    struct admission_request *request;
    uint32_t at = 0;

    pthread_mutex_lock(&admission->lock);
    request = rid_map_find(admission->live, rid);
    while (request != NULL && at < request->window_count &&
           (request->windows[at].token_first != window->token_first ||
            request->windows[at].layer_first != window->layer_first))
        at++; /* windows do not overlap: each begins elsewhere */
    if (request != NULL && at < request->window_count) {
        request->windows[at] = request->windows[--request->window_count];
        request->closed = request->closed && !window->last;
    }
    pthread_mutex_unlock(&admission->lock);
}
