/*
 * publish_peers.c - whom this rank meets, whether they fit, and how it reaches their pools.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "msg.h"
#include "publish.h"

#define PUBLISH_WARM_BYTES (UINT64_C(64) << 20) /* between two looks at the time */

/* ---- whom ----------------------------------------------------------------------------------- */

/* What peers told, decoded when it is first needed. */
struct publish_told {
    struct kvf *kvf;
    const struct world_gathered *hellos;
    struct publish_peer *peers; /* [rank_count] */
    enum kvf_status *statuses;  /* [rank_count]; AGAIN = not looked at */
    struct geo_text *text_out;
};

static enum kvf_status told_by(struct publish_told *told, uint32_t world_rank,
                               struct publish_peer **peer_out)
{
    const struct world_gathered *hellos = told->hellos;

    if (told->statuses[world_rank] == KVF_AGAIN)
        told->statuses[world_rank] =
            publish_decode(told->kvf, world_rank, hellos->bytes + hellos->offsets[world_rank],
                           hellos->offsets[world_rank + 1] - hellos->offsets[world_rank],
                           &told->peers[world_rank], told->text_out);
    *peer_out = &told->peers[world_rank];
    return told->statuses[world_rank];
}

static enum kvf_status peers_meet(const struct kvf *kvf, const struct kvf_place *grid,
                                  uint32_t group, uint32_t *ranks, uint32_t ranks_max,
                                  uint32_t *count_out)
{
    if (kvf->place.side == KVF_CONTEXT)
        return geo_serves(kvf->record, grid, group, ranks, ranks_max, count_out);
    return geo_asked(kvf->record, grid, group, ranks, ranks_max, count_out);
}

/* A peer of the union, once. */
static uint32_t peers_add(struct kvf *kvf, uint32_t instance, uint32_t rank)
{
    struct peers *peers = &kvf->peers;
    const struct kvf_instance *where = &kvf->topology->instances[instance];
    uint32_t world_rank = where->first_rank + rank;
    struct peer *peer;

    if (peers->of_rank[world_rank] != PEER_NONE)
        return peers->of_rank[world_rank];
    peer = &peers->list[peers->all_count];
    peer->world_rank = world_rank;
    peer->instance = instance;
    peer->rank = rank;
    peer->pidfd = -1;
    snprintf(peer->name, sizeof(peer->name), "%s/%u", where->name, rank);
    peers->of_rank[world_rank] = peers->all_count;
    return peers->all_count++;
}

/* The other ranks of this one's group: asked for a sign of life when a sweep is slow. */
static enum kvf_status peers_members(struct publish_told *told)
{
    struct kvf *kvf = told->kvf;
    const struct kvf_instance *own = &kvf->topology->instances[kvf->place.instance];
    uint32_t width = own->tp_size / own->dp_size;

    for (uint32_t r = 0; r < own->tp_size * own->pp_size; r++) {
        struct publish_peer *its;
        struct peer *peer;
        enum kvf_status status;

        if (r == kvf->place.rank || r % own->tp_size / width != kvf->place.dp_rank)
            continue;
        peer = &kvf->peers.list[peers_add(kvf, kvf->place.instance, r)];
        status = told_by(told, peer->world_rank, &its);
        if (status == KVF_E_NOMEM)
            return status;
        peer->member = true;
        peer->verdict = status;
        peer->pid = status == KVF_OK ? its->pid : 0;
        peer->epoch = status == KVF_OK ? its->epoch : 0;
    }
    return KVF_OK;
}

/* An instance whose grid this rank's cannot serve: said once, requests to it fail. */
static void peers_refuse(struct publish_told *told, uint32_t instance, enum kvf_status status,
                         const struct geo_record *first)
{
    struct kvf *kvf = told->kvf;
    struct peer_routes *routes = &kvf->peers.routes[instance];
    bool writer = kvf->place.side == KVF_CONTEXT;
    struct geo_text text = {{0}};

    if (routes->verdict != KVF_OK)
        return;
    if (first != NULL) {
        enum kvf_status found =
            geo_check_peer(writer ? kvf->record : first, writer ? first : kvf->record,
                           writer ? GEO_CONTEXT : GEO_GENERATION, &text);

        status = found != KVF_OK ? found : status; /* the first that fails */
    }
    routes->verdict = status;
    snprintf(routes->verdict_text, sizeof(routes->verdict_text), "%.250s", text.s);
    log_warn(&kvf->logger, "W27", "%s does not fit this rank: %s: %s",
             kvf->topology->instances[instance].name, kvf_status_text(status),
             routes->verdict_text);
}

static enum kvf_status peers_route(struct kvf *kvf, uint32_t instance, struct peer_route *route,
                                   const struct kvf_place *grid, uint32_t group, uint32_t *ranks)
{
    uint32_t rank_count =
        kvf->topology->instances[instance].tp_size * kvf->topology->instances[instance].pp_size;

    route->status = peers_meet(kvf, grid, group, ranks, rank_count, &route->count);
    if (route->status != KVF_OK) {
        route->count = 0;
        return KVF_OK; /* requests to it fail */
    }
    route->peers = kvf_alloc(&kvf->heap.table, (size_t)route->count + 1, sizeof(*route->peers));
    if (route->peers == NULL)
        return KVF_E_NOMEM;
    for (uint32_t i = 0; i < route->count; i++)
        route->peers[i] = peers_add(kvf, instance, ranks[i]);
    return KVF_OK;
}

/* Routes to one instance of the other side. */
static enum kvf_status peers_instance(struct publish_told *told, uint32_t instance, uint32_t *ranks)
{
    struct kvf *kvf = told->kvf;
    const struct kvf_instance *where = &kvf->topology->instances[instance];
    struct peer_routes *routes = &kvf->peers.routes[instance];
    struct publish_peer *first;
    enum kvf_status refused = told_by(told, where->first_rank, &first);

    if (refused == KVF_E_NOMEM)
        return refused;
    routes->group_count = where->dp_size;
    routes->routes =
        kvf_alloc(&kvf->heap.table, (size_t)where->dp_size + 1, sizeof(*routes->routes));
    if (routes->routes == NULL)
        return KVF_E_NOMEM;
    for (uint32_t group = 0; group <= where->dp_size; group++) {
        struct peer_route *route = &routes->routes[group];
        enum kvf_status status = KVF_OK;

        if (refused != KVF_OK)
            route->status = refused;
        else
            status = peers_route(kvf, instance, route, &first->record->place,
                                 group == where->dp_size ? GEO_GROUP_UNKNOWN : group, ranks);
        if (status != KVF_OK)
            return status;
        if (route->status != KVF_OK) {
            peers_refuse(told, instance, route->status, first->record);
            route->status = routes->verdict;
        }
    }
    return KVF_OK;
}

/* ---- verdicts ------------------------------------------------------------------------------- */

static enum kvf_status peer_judge(struct publish_told *told, struct peer *peer)
{
    struct kvf *kvf = told->kvf;
    bool writer = kvf->place.side == KVF_CONTEXT;
    struct geo_text text = {{0}};
    struct publish_peer *its;
    enum kvf_status status = told_by(told, peer->world_rank, &its);

    if (status == KVF_E_NOMEM)
        return status;
    peer->verdict = status;
    if (status == KVF_OK) {
        const struct geo_record *sender = writer ? kvf->record : its->record;
        const struct geo_record *receiver = writer ? its->record : kvf->record;

        peer->pid = its->pid;
        peer->record = its->record; /* takes it over */
        its->record = NULL;
        peer->epoch = its->epoch;
        peer->requests_max = its->requests_max;
        peer->blocks_max = its->blocks_max;
        peer->verdict =
            geo_check_peer(sender, receiver, writer ? GEO_CONTEXT : GEO_GENERATION, &text);
        if (peer->verdict == KVF_OK) {
            status = plan_template_open(&kvf->heap.table, sender, receiver, &peer->template);
            if (status == KVF_E_NOMEM)
                return status;
            peer->verdict = status;
        }
    }
    snprintf(peer->verdict_text, sizeof(peer->verdict_text), "%.250s", text.s);
    if (peer->verdict != KVF_OK)
        log_warn(&kvf->logger, "W27", "%s does not fit this rank: %s: %s", peer->name,
                 kvf_status_text(peer->verdict), peer->verdict_text);
    return KVF_OK;
}

static void peers_sum(struct peers *peers)
{
    struct peer_demand *demand = &peers->demand;

    for (uint32_t p = 0; p < peers->count; p++) {
        const struct peer *peer = &peers->list[p];

        if (peer->verdict != KVF_OK)
            continue; /* it is answered with the verdict */
        demand->askers++;
        demand->requests += peer->requests_max;
        demand->blocks += peer->blocks_max;
        if (peer->blocks_max > demand->blocks_largest)
            demand->blocks_largest = peer->blocks_max;
    }
}

static enum kvf_status peers_fill(struct publish_told *told)
{
    struct kvf *kvf = told->kvf;
    uint32_t *ranks = kvf_alloc(&kvf->heap.table, kvf->place.world_size, sizeof(*ranks));
    enum kvf_status status = ranks == NULL ? KVF_E_NOMEM : KVF_OK;

    for (uint32_t i = 0; i < kvf->topology->instance_count && status == KVF_OK; i++)
        if (kvf->topology->instances[i].side != kvf->place.side)
            status = peers_instance(told, i, ranks);
    kvf_release(&kvf->heap.table, ranks);
    kvf->peers.count = kvf->peers.all_count;
    for (uint32_t p = 0; p < kvf->peers.count && status == KVF_OK; p++)
        status = peer_judge(told, &kvf->peers.list[p]);
    return status == KVF_OK ? peers_members(told) : status;
}

enum kvf_status publish_peers(struct kvf *kvf, const struct world_gathered *hellos,
                              struct geo_text *text_out)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    uint32_t ranks = kvf->place.world_size;
    struct publish_told told = {
        .kvf = kvf,
        .hellos = hellos,
        .peers = kvf_alloc(heap, ranks, sizeof(*told.peers)),
        .statuses = kvf_alloc(heap, ranks, sizeof(*told.statuses)),
        .text_out = text_out,
    };
    struct peers *peers = &kvf->peers;
    enum kvf_status status = KVF_E_NOMEM;

    peers->rank_count = ranks;
    peers->instance_count = kvf->topology->instance_count;
    peers->list = kvf_alloc(heap, ranks, sizeof(*peers->list));
    peers->of_rank = kvf_alloc(heap, ranks, sizeof(*peers->of_rank));
    peers->routes = kvf_alloc(heap, peers->instance_count, sizeof(*peers->routes));
    if (told.peers != NULL && told.statuses != NULL && peers->list != NULL &&
        peers->of_rank != NULL && peers->routes != NULL) {
        for (uint32_t r = 0; r < ranks; r++) {
            told.statuses[r] = KVF_AGAIN;
            peers->of_rank[r] = PEER_NONE;
        }
        status = peers_fill(&told);
        peers_sum(peers);
    }
    for (uint32_t r = 0; r < ranks && told.peers != NULL; r++)
        geo_record_close(told.peers[r].record);
    kvf_release(heap, told.statuses);
    kvf_release(heap, told.peers);
    return status;
}

/* ---- reaching them -------------------------------------------------------------------------- */

static enum kvf_status hello_part(const struct world_gathered *hellos, uint32_t world_rank,
                                  enum msg_hello_part part, struct wire_reader *reader_out)
{
    const char *why;
    struct msg msg;
    enum kvf_status status =
        msg_decode(hellos->bytes + hellos->offsets[world_rank],
                   hellos->offsets[world_rank + 1] - hellos->offsets[world_rank], &msg, &why);

    if (status == KVF_OK)
        *reader_out =
            wire_reader_make(msg.u.hello.parts[part].bytes, msg.u.hello.parts[part].len_bytes);
    return status;
}

enum kvf_status publish_connect(struct kvf *kvf, const struct world_gathered *hellos,
                                struct geo_text *text_out)
{
    struct transport *transport = kvf->transport;

    for (uint32_t p = 0; p < kvf->peers.all_count; p++) {
        struct peer *peer = &kvf->peers.list[p];
        struct wire_reader address;
        enum kvf_status status =
            hello_part(hellos, peer->world_rank, MSG_HELLO_ADDRESSES, &address);

        if (status == KVF_OK)
            status = transport->connect(transport->self, peer->world_rank, address.at,
                                        address.left_bytes);
        if (status != KVF_OK) {
            geo_text_set(text_out, "cannot connect to %s (world rank %u): %s", peer->name,
                         peer->world_rank, kvf_status_text(status));
            return status;
        }
        peer->near = transport->is_near(transport->self, peer->world_rank);
        if (peer->near) {
            uint32_t pid = transport->peer_pid(transport->self, peer->world_rank);

            peer->pid = pid != 0 ? pid : peer->pid;
        }
    }
    return KVF_OK;
}

static enum kvf_status peer_pools(struct kvf *kvf, struct peer *peer)
{
    const struct kvf_heap *heap = &kvf->heap.table;

    peer->pool_count = peer->record->layout.pool_count;
    peer->remotes = kvf_alloc(heap, (size_t)peer->pool_count + 1, sizeof(*peer->remotes));
    peer->remote_addresses =
        kvf_alloc(heap, (size_t)peer->pool_count + 1, sizeof(*peer->remote_addresses));
    peer->mapped_addresses =
        kvf_alloc(heap, (size_t)peer->pool_count + 1, sizeof(*peer->mapped_addresses));
    if (peer->remotes == NULL || peer->remote_addresses == NULL || peer->mapped_addresses == NULL)
        return KVF_E_NOMEM;
    return KVF_OK;
}

/*
 * Fills this process's page tables for a mapped pool, as far as the time of all peers together
 * goes: else the first write to each page pays for a page fault. Old kernels do nothing.
 */
static void publish_warm(const void *mapped, uint64_t len_bytes, uint64_t deadline_ns)
{
#ifdef MADV_POPULATE_WRITE
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t first = (uint64_t)(uintptr_t)mapped / page * page;
    uint64_t end = (uint64_t)(uintptr_t)mapped + len_bytes;

    for (uint64_t at = first; at < end && clock_now_ns() < deadline_ns; at += PUBLISH_WARM_BYTES) {
        uint64_t len = end - at < PUBLISH_WARM_BYTES ? end - at : PUBLISH_WARM_BYTES;

        if (madvise((void *)(uintptr_t)at, len, MADV_POPULATE_WRITE) != 0)
            return;
    }
#else
    (void)mapped;
    (void)len_bytes;
    (void)deadline_ns;
#endif
}

/* One pool of a reader. A pool that cannot be reached only takes rungs away. */
static void peer_open_remote(struct kvf *kvf, struct peer *peer, uint32_t pool, const uint8_t *key,
                             uint32_t key_bytes)
{
    struct transport *transport = kvf->transport;
    const struct geo_pool *want = &peer->record->pools[pool];
    char reason[TRANSPORT_REASON_BYTES] = "";
    struct transport_remote *remote = NULL;
    enum kvf_status status =
        transport->remote_open(transport->self, peer->world_rank, key, key_bytes, &remote, reason);
    uint8_t *mapped;

    if (status == KVF_OK && (transport->remote_base(remote) > want->base ||
                             transport->remote_len(remote) <
                                 want->base - transport->remote_base(remote) + want->bytes)) {
        transport->remote_release(transport->self, remote);
        status = KVF_E_PROTOCOL;
    }
    if (status != KVF_OK) {
        peer->facts.all_reachable = peer->facts.all_mapped = false;
        snprintf(peer->mapped_text, sizeof(peer->mapped_text), "pool %u: %.200s", pool,
                 reason[0] != 0 ? reason : kvf_status_text(status));
        return;
    }
    peer->remotes[pool] = remote;
    peer->remote_addresses[pool] = want->base;
    mapped = transport->remote_mapped(remote);
    if (mapped == NULL) {
        peer->facts.all_mapped = false;
        if (peer->near) /* else the rung's own reason says it all */
            snprintf(peer->mapped_text, sizeof(peer->mapped_text), "pool %u: %.200s", pool, reason);
        return;
    }
    mapped += want->base - transport->remote_base(remote);
    peer->mapped_addresses[pool] = (uint64_t)(uintptr_t)mapped;
}

static enum kvf_status peer_open_remotes(struct kvf *kvf, struct peer *peer,
                                         const struct world_gathered *hellos)
{
    struct wire_reader windows;
    enum kvf_status status = peer_pools(kvf, peer);

    if (status == KVF_OK)
        status = hello_part(hellos, peer->world_rank, MSG_HELLO_WINDOWS, &windows);
    if (status != KVF_OK)
        return status;
    if (wire_get_u32(&windows) != peer->pool_count)
        return KVF_E_PROTOCOL;
    for (uint32_t pool = 0; pool < peer->pool_count; pool++) {
        uint32_t len = wire_get_u32(&windows);
        const uint8_t *key = wire_get_bytes(&windows, len);

        if (windows.failed)
            return KVF_E_TRUNCATED;
        peer_open_remote(kvf, peer, pool, key, len);
    }
    return KVF_OK;
}

enum kvf_status publish_remotes(struct kvf *kvf, const struct world_gathered *hellos,
                                struct geo_text *text_out)
{
    uint64_t deadline_ns = clock_now_ns() + kvf->settings.warm_up_ms * CLOCK_NS_PER_MS;

    for (uint32_t p = 0; p < kvf->peers.count; p++) {
        struct peer *peer = &kvf->peers.list[p];
        enum kvf_status status = KVF_OK;

        peer->facts = (struct path_facts){
            .near = peer->near,
            .all_mapped = true,
            .all_reachable = true,
            .allowed = kvf->settings.paths,
            .forced = (enum kvf_path)kvf->settings.path, /* same numbers */
        };
        if (kvf->place.side != KVF_CONTEXT || peer->verdict != KVF_OK)
            continue; /* the writer alone chooses */
        status = peer_open_remotes(kvf, peer, hellos);
        if (status != KVF_OK) {
            geo_text_set(text_out, "memory keys of %s: %s", peer->name, kvf_status_text(status));
            return status;
        }
        if (plan_elected(peer->template))
            status = path_choose(&peer->facts, 1, &peer->path, &peer->reason);
        else
            path_choose(&peer->facts, 0, &peer->path, &peer->reason);
        if (status != KVF_OK && peer->facts.forced != KVF_PATH_NONE) {
            geo_text_set(text_out, "path is \"%s\", but writes to %s: %s%s%s",
                         path_name(peer->facts.forced), peer->name, path_reason_text(peer->reason),
                         peer->mapped_text[0] != 0 ? "; " : "", peer->mapped_text);
            return status;
        }
        for (uint32_t pool = 0; pool < peer->pool_count; pool++)
            if (peer->path == KVF_PATH_MAPPED)
                publish_warm((const void *)(uintptr_t)peer->mapped_addresses[pool],
                             peer->record->pools[pool].bytes, deadline_ns);
        if (status == KVF_OK)
            log_info(&kvf->logger, "writes to %s: %s: %s%s%s", peer->name, path_name(peer->path),
                     path_reason_text(peer->reason), peer->mapped_text[0] != 0 ? "; " : "",
                     peer->mapped_text);
        else
            log_warn(&kvf->logger, "", "writes to %s are refused: %s%s%s", peer->name,
                     path_reason_text(peer->reason), peer->mapped_text[0] != 0 ? "; " : "",
                     peer->mapped_text);
    }
    return KVF_OK;
}

/* ---- undoing -------------------------------------------------------------------------------- */

static void peer_close(struct kvf *kvf, struct peer *peer)
{
    const struct kvf_heap *heap = &kvf->heap.table;

    for (uint32_t pool = 0; pool < peer->pool_count && peer->remotes != NULL; pool++)
        kvf->transport->remote_release(kvf->transport->self, peer->remotes[pool]);
    kvf_release(heap, peer->mapped_addresses);
    kvf_release(heap, peer->remote_addresses);
    kvf_release(heap, peer->remotes);
    plan_template_close(peer->template);
    geo_record_close(peer->record);
}

void publish_close(struct kvf *kvf)
{
    const struct kvf_heap *heap = &kvf->heap.table;
    struct peers *peers = &kvf->peers;

    for (uint32_t p = 0; p < peers->all_count; p++)
        peer_close(kvf, &peers->list[p]);
    for (uint32_t i = 0; i < peers->instance_count && peers->routes != NULL; i++) {
        struct peer_routes *routes = &peers->routes[i];

        for (uint32_t g = 0; g <= routes->group_count && routes->routes != NULL; g++)
            kvf_release(heap, routes->routes[g].peers);
        kvf_release(heap, routes->routes);
    }
    kvf_release(heap, peers->routes);
    kvf_release(heap, peers->of_rank);
    kvf_release(heap, peers->list);
    *peers = (struct peers){0};
    geo_record_close(kvf->record);
    kvf->record = NULL;
}
