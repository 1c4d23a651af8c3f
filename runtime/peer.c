/*
 * peer.c - see peer.h.
 */
#include "peer.h"

struct peer *peer_of_rank(const struct peers *peers, uint32_t world_rank)
{
    if (world_rank >= peers->rank_count || peers->of_rank[world_rank] == PEER_NONE)
        return NULL;
    return &peers->list[peers->of_rank[world_rank]];
}

const struct peer_route *peer_route(const struct peers *peers, struct kvf_end end)
{
    const struct peer_routes *routes;

    if (end.instance >= peers->instance_count)
        return NULL;
    routes = &peers->routes[end.instance];
    if (routes->group_count == 0)
        return NULL;
    if (end.dp_group == KVF_UNKNOWN)
        return &routes->routes[routes->group_count == 1 ? 0 : routes->group_count];
    return end.dp_group < routes->group_count ? &routes->routes[end.dp_group] : NULL;
}
