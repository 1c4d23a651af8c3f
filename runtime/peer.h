/*
 * peer.h - the ranks that this rank can meet, and which of them a request goes to.
 *
 * Made by publishing; afterwards only the fields under "life" change, by the reactor.
 */
#ifndef KVF_PEER_H
#define KVF_PEER_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "channel.h"
#include "heap.h"
#include "log.h"
#include "plan.h"
#include "xfer/path.h"
#include "xfer/transport.h"

#define PEER_NONE UINT32_MAX
#define PEER_TEXT_BYTES 256u

enum peer_once {
    PEER_ONCE_INCOMPATIBLE,
    PEER_ONCE_BAD_FRAME,
    PEER_ONCE_REFUSED,
    PEER_ONCE_LOST,
    PEER_ONCE_DIRECT_SMALL,
};

struct peer {
    uint32_t world_rank;
    uint32_t instance;
    uint32_t rank; /* inside the instance */
    char name[LOG_NAME_BYTES];
    uint64_t epoch; /* of the life that published */
    uint32_t pid;   /* near peers, 0 = unknown */
    bool near;
    bool member; /* of this rank's own group: control messages alone, no request goes there */
    uint32_t requests_max; /* what it said that it may have live at once */
    uint32_t blocks_max;

    /* What publishing found. */
    enum kvf_status verdict; /* KVF_OK, or why requests with it fail */
    char verdict_text[PEER_TEXT_BYTES];
    struct geo_record *record;      /* NULL: refused before it could be read */
    struct plan_template *template; /* writer is the context side of the two; NULL: refused */
    uint32_t pool_count;            /* of the peer; remotes are opened by a writer alone */
    struct transport_remote **remotes;
    uint64_t *remote_addresses; /* slot 0 in the peer's space */
    uint64_t *mapped_addresses; /* slot 0 as this process sees it; 0 = not mapped */
    struct path_facts facts;
    enum kvf_path path; /* of a whole prompt, and why */
    enum path_reason reason;
    char mapped_text[PEER_TEXT_BYTES]; /* why not mapped, "" = mapped */

    /* Life: the reactor's. */
    struct channel channel;
    struct log_once once;
    int pidfd;          /* -1 = none */
    uint32_t held;      /* messages that wait for the self check */
    const char *losing; /* why it will be lost at the end of this pass; NULL = it will not */
    bool lost;
    enum {
        PEER_ENDPOINT_OPEN,
        PEER_ENDPOINT_UNWANTED, /* lost: to be closed by force */
        PEER_ENDPOINT_CLOSING,
        PEER_ENDPOINT_CLOSED,
    } endpoint;
    bool gone;           /* proven: its process has ended, or it said goodbye without access */
    uint64_t heard_ns;   /* awake */
    uint64_t spoke_ns;   /* awake */
    uint64_t ping_nonce; /* last one sent */
    uint64_t pong_nonce; /* last one answered */
    uint32_t puts_inflight;
};

/* Peers of one (instance, dp group), in the order that geometry gives. */
struct peer_route {
    uint32_t count;
    uint32_t *peers;        /* [count] index */
    enum kvf_status status; /* geometry refuses the pair of grids */
};

/* Of one instance of the other side: a route for each dp group, then the union. */
struct peer_routes {
    uint32_t group_count;
    struct peer_route *routes; /* [group_count + 1] */
    uint32_t finals;           /* reports that complete a receive */
    enum kvf_status verdict;   /* not OK: the grids refuse each other, no route has peers */
    char verdict_text[PEER_TEXT_BYTES];
};

/*
 * What all peers together may ask of this rank at once, by their own ceilings. Each of them is
 * admitted by its receiver before it is asked for, so that a context rank with room for it all
 * never has to refuse one for want of room.
 */
struct peer_demand {
    uint32_t askers;
    uint64_t requests;
    uint64_t blocks;
    uint32_t blocks_largest; /* of one peer */
};

struct peers {
    uint32_t count;     /* of the other side */
    uint32_t all_count; /* and, after them in the list, the other ranks of this one's group */
    struct peer *list;
    uint32_t rank_count;
    uint32_t *of_rank; /* [rank_count] index, or PEER_NONE */
    uint32_t instance_count;
    struct peer_routes *routes; /* [instance_count]; group_count 0 = own side */
    struct peer_demand demand;
    struct channel_store *early;
};

/* NULL when this rank never meets it. Members of this rank's own group too. */
struct peer *peer_of_rank(const struct peers *peers, uint32_t world_rank);

/* The route to a dp group, or to all of them (KVF_UNKNOWN); NULL when there is none such. */
const struct peer_route *peer_route(const struct peers *peers, struct kvf_end end);

#endif /* KVF_PEER_H */
