/*
 * context_pool.c - pools of pages: the public calls kvf_pool_*.
 */
#include <stdio.h>
#include <string.h>

#include "context.h"
#include "params.h"

/* `text` may be empty: the status is said too. */
static enum kvf_status pool_fail(struct kvf *kvf, enum kvf_status status, const char *text)
{
    log_error(&kvf->logger, "", "no pool: %s%s%s", kvf_status_text(status),
              text[0] != '\0' ? ": " : "", text);
    if (kvf->pool_status == KVF_OK)
        kvf->pool_status = status;
    return status;
}

static enum kvf_status pool_params(struct kvf *kvf, const struct kvf_pool_params *given,
                                   struct kvf_pool_params *params)
{
    if (kvf == NULL || !params_read(given, params, sizeof(*params)))
        return KVF_E_INVAL;
    if (context_state(kvf) != CONTEXT_OPEN)
        return KVF_E_STATE;
    if (params->memory == KVF_MEMORY_CUDA)
        return pool_fail(kvf, KVF_E_UNSUPPORTED, "pools of cuda memory are not part of this build");
    if (params->memory != KVF_MEMORY_HOST)
        return pool_fail(kvf, KVF_E_INVAL, "a pool's memory is neither host nor cuda");
    if (params->slot_stride == 0)
        params->slot_stride = params->slot_bytes;
    if (params->slot_bytes == 0 || params->slots == 0 || params->slot_stride < params->slot_bytes ||
        params->slots > UINT32_MAX || params->slot_stride > GEO_SIZE_MAX ||
        params->slot_stride * params->slots > GEO_POOL_MAX)
        return pool_fail(kvf, KVF_E_INVAL, "a pool's slot_bytes, slot_stride or slots is wrong");
    return KVF_OK;
}

static struct kvf_pool *pool_new(struct kvf *kvf, const struct kvf_pool_params *params)
{
    struct kvf_pool *pool = kvf_alloc(&kvf->heap.table, 1, sizeof(*pool));

    if (pool != NULL) {
        pool->kvf = kvf;
        pool->slot_bytes = params->slot_bytes;
        pool->slot_stride = params->slot_stride;
        pool->slots = params->slots;
    }
    return pool;
}

static void pool_add(struct kvf_pool *pool)
{
    pool->next = pool->kvf->pools;
    pool->kvf->pools = pool;
}

/*
 * Each rank alone may fit and all of a node together not: the ranks count in one shared word what
 * they take, against what the node had before any of them took something.
 */
static enum kvf_status pool_reserve(struct kvf *kvf, uint64_t bytes)
{
    uint64_t before;
    char text[CONTEXT_TEXT_BYTES];

    if (kvf->world->node_bytes == NULL || kvf->memory_bytes == 0)
        return KVF_OK;
    before = atomic_fetch_add(kvf->world->node_bytes, bytes);
    if (before <= kvf->memory_bytes && bytes <= kvf->memory_bytes - before)
        return KVF_OK;
    atomic_fetch_sub(kvf->world->node_bytes, bytes);
    snprintf(text, sizeof(text),
             "a pool needs %llu MiB, the pools of this node's %u ranks have taken %llu MiB, and "
             "the node had %llu MiB available: make the pools smaller or use more nodes",
             (unsigned long long)(bytes >> 20), kvf->world->node_rank_count,
             (unsigned long long)(before >> 20), (unsigned long long)(kvf->memory_bytes >> 20));
    return pool_fail(kvf, KVF_E_MEM_SPACE, text);
}

enum kvf_status kvf_pool_alloc(struct kvf *kvf, const struct kvf_pool_params *given,
                               struct kvf_pool **pool_out)
{
    struct kvf_pool_params params;
    enum kvf_status status = pool_params(kvf, given, &params);
    char reason[TRANSPORT_REASON_BYTES] = "";
    struct kvf_pool *pool;
    uint64_t bytes;

    if (status != KVF_OK)
        return status;
    if (pool_out == NULL || params.base != NULL)
        return pool_fail(kvf, KVF_E_INVAL, "kvf_pool_alloc takes no base");
    bytes = params.slot_stride * params.slots;
    status = pool_reserve(kvf, bytes);
    if (status != KVF_OK)
        return status;
    pool = pool_new(kvf, &params);
    if (pool == NULL)
        return pool_fail(kvf, KVF_E_NOMEM, "");
    status = kvf->transport->memory_alloc(kvf->transport->self, bytes, &pool->memory, reason);
    if (status != KVF_OK) {
        kvf_release(&kvf->heap.table, pool);
        if (kvf->world->node_bytes != NULL && kvf->memory_bytes != 0)
            atomic_fetch_sub(kvf->world->node_bytes, bytes);
        return pool_fail(kvf, status, reason);
    }
    pool->base = kvf->transport->memory_base(pool->memory);
    pool_add(pool);
    log_debug(&kvf->logger, "pool of %llu MiB taken in %llu ms", (unsigned long long)(bytes >> 20),
              (unsigned long long)(kvf->transport->memory_cost_ns(pool->memory) / 1000000));
    *pool_out = pool;
    return KVF_OK;
}

enum kvf_status kvf_pool_register(struct kvf *kvf, const struct kvf_pool_params *given,
                                  struct kvf_pool **pool_out)
{
    struct kvf_pool_params params;
    enum kvf_status status = pool_params(kvf, given, &params);
    char reason[TRANSPORT_REASON_BYTES] = "";
    struct kvf_pool *pool;

    if (status != KVF_OK)
        return status;
    if (pool_out == NULL || params.base == NULL)
        return pool_fail(kvf, KVF_E_INVAL, "kvf_pool_register needs a base");
    pool = pool_new(kvf, &params);
    if (pool == NULL)
        return pool_fail(kvf, KVF_E_NOMEM, "");
    pool->base = params.base;
    status =
        kvf->transport->memory_register(kvf->transport->self, params.base,
                                        params.slot_stride * params.slots, &pool->memory, reason);
    if (status != KVF_OK) {
        kvf_release(&kvf->heap.table, pool);
        return pool_fail(kvf, status, reason);
    }
    pool_add(pool);
    *pool_out = pool;
    return KVF_OK;
}

void *kvf_pool_base(const struct kvf_pool *pool)
{
    return pool == NULL ? NULL : pool->base;
}

void context_pools_close(struct kvf *kvf)
{
    while (kvf->pools != NULL) {
        struct kvf_pool *pool = kvf->pools;

        kvf->pools = pool->next;
        kvf->transport->memory_release(kvf->transport->self, pool->memory);
        kvf_release(&kvf->heap.table, pool);
    }
}
