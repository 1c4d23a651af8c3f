/* transport_fake.c - see transport_fake.h. */
#include "transport_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAKE_MAGIC UINT64_C(0x656b6166766b7900)
#define FAKE_RANKS_MAX 1024
#define FAKE_OPERATIONS_DEFAULT 1024

enum fake_kind { FAKE_PUT, FAKE_MESSAGE, FAKE_FLUSH, FAKE_CLOSE };

/* Under way from one rank to another. */
struct fake_item {
    enum fake_kind kind;
    uint32_t from, to;
    enum transport_plane plane;
    bool control; /* not of a plane */
    bool tell;    /* done() follows */
    bool gone;    /* landed or dropped: swept at the end of the step */
    uint64_t due;
    transport_token token;
    const void *bytes; /* borrowed */
    uint64_t len_bytes, sum;
    struct transport_memory *target;
    uint64_t offset;
};

enum fake_event_kind { FAKE_TOLD_MESSAGE, FAKE_TOLD_DONE, FAKE_TOLD_ERROR };

/* For a rank to be told at its next poll. */
struct fake_event {
    enum fake_event_kind kind;
    transport_token token;
    enum kvf_status status;
    uint32_t peer;
    void *bytes; /* takes: a message's copy */
    size_t len_bytes;
};

struct fake_link {
    bool known, closing, failed, cut;
};

struct fake_rank {
    struct fake_net *net;
    struct transport table;
    struct transport_sink sink;
    uint32_t rank, host;
    bool dead, deny_mapping;
    struct fake_link *links; /* by peer */
    struct fake_event *events;
    size_t events_first, events_count, events_cap;
    uint64_t inflight; /* operations that will be told */
};

struct transport_memory {
    struct fake_net *net;
    uint32_t owner, index;
    char *base;
    uint64_t len_bytes;
    bool shared, alive;
};

struct transport_remote {
    struct fake_net *net;
    uint32_t owner, peer;
    struct transport_memory *memory;
    bool mapped;
};

struct fake_key {
    uint64_t magic;
    uint32_t owner, index;
    uint64_t base, len_bytes;
};

struct fake_address {
    uint64_t magic;
    uint32_t rank, host;
};

struct fake_net {
    struct fake_params params;
    struct fake_counts counts;
    struct fake_rank *ranks;
    struct fake_item *items;
    size_t items_count, items_cap;
    struct transport_memory **memories;
    size_t memories_count;
    uint64_t remotes_live;
    uint64_t now, random;
};

static void *fake_grow(void *array, size_t *cap, size_t size)
{
    *cap = *cap == 0 ? 64 : *cap * 2;
    array = realloc(array, *cap * size);
    if (array == NULL) {
        abort();
    }
    return array;
}

static uint64_t fake_random(struct fake_net *net, uint64_t limit)
{
    uint64_t z = net->random += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % limit;
}

static uint64_t fake_sum(const void *bytes, uint64_t len_bytes)
{
    const unsigned char *at = bytes;
    uint64_t sum = 14695981039346656037u;

    for (uint64_t i = 0; i < len_bytes; ++i) {
        sum = (sum ^ at[i]) * 1099511628211u;
    }
    return sum;
}

/* ---- telling ---- */

static void fake_event_add(struct fake_rank *rank, struct fake_event event)
{
    if (rank->events_first + rank->events_count == rank->events_cap) {
        if (rank->events_first > 0) {
            memmove(rank->events, rank->events + rank->events_first,
                    rank->events_count * sizeof(*rank->events));
            rank->events_first = 0;
        } else {
            rank->events = fake_grow(rank->events, &rank->events_cap, sizeof(*rank->events));
        }
    }
    rank->events[rank->events_first + rank->events_count++] = event;
}

static void fake_end(struct fake_net *net, struct fake_item *item, enum kvf_status status)
{
    if (item->tell) {
        fake_event_add(
            &net->ranks[item->from],
            (struct fake_event){.kind = FAKE_TOLD_DONE, .token = item->token, .status = status});
    }
    item->tell = false;
}

static void fake_error(struct fake_net *net, uint32_t rank, uint32_t peer)
{
    struct fake_link *link = &net->ranks[rank].links[peer];

    if (link->known && !link->closing && !link->failed && !net->ranks[rank].dead) {
        link->failed = true;
        fake_event_add(
            &net->ranks[rank],
            (struct fake_event){.kind = FAKE_TOLD_ERROR, .peer = peer, .status = KVF_E_PEER_LOST});
    }
}

/* ---- landing ---- */

static void fake_land_put(struct fake_net *net, const struct fake_item *item)
{
    net->counts.source_changes += fake_sum(item->bytes, item->len_bytes) != item->sum;
    if (!item->target->alive) {
        ++net->counts.late_writes;
        return;
    }
    memcpy(item->target->base + item->offset, item->bytes, item->len_bytes);
}

static void fake_land_message(struct fake_net *net, const struct fake_item *item)
{
    void *copy = malloc(item->len_bytes + 1);

    if (copy == NULL) {
        abort();
    }
    net->counts.source_changes += fake_sum(item->bytes, item->len_bytes) != item->sum;
    memcpy(copy, item->bytes, item->len_bytes);
    if (net->ranks[item->to].links[item->from].known && !net->ranks[item->to].dead) {
        fake_event_add(&net->ranks[item->to], (struct fake_event){.kind = FAKE_TOLD_MESSAGE,
                                                                  .bytes = copy,
                                                                  .len_bytes = item->len_bytes});
    } else {
        free(copy);
    }
}

/* May this item land although earlier ones of the pair have not? */
static bool fake_must_wait(const struct fake_net *net, size_t at)
{
    const struct fake_item *item = &net->items[at];

    for (size_t i = 0; i < at; ++i) {
        const struct fake_item *earlier = &net->items[i];
        if (earlier->gone || earlier->from != item->from || earlier->to != item->to) {
            continue;
        }
        if (item->kind == FAKE_CLOSE ||
            (item->kind == FAKE_FLUSH && earlier->kind == FAKE_PUT &&
             earlier->plane == item->plane) ||
            (item->kind == FAKE_MESSAGE && earlier->kind == FAKE_MESSAGE &&
             !net->params.messages_reorder)) {
            return true;
        }
    }
    return false;
}

static void fake_land(struct fake_net *net, struct fake_item *item)
{
    switch (item->kind) {
    case FAKE_PUT:
        fake_land_put(net, item);
        break;
    case FAKE_MESSAGE:
        fake_land_message(net, item);
        break;
    case FAKE_FLUSH:
        break;
    case FAKE_CLOSE:
        net->ranks[item->from].links[item->to] =
            (struct fake_link){.cut = net->ranks[item->from].links[item->to].cut};
        break;
    }
    fake_end(net, item, KVF_OK);
    item->gone = true;
}

uint32_t fake_net_step(struct fake_net *net)
{
    uint32_t landed = 0;
    size_t kept = 0;

    ++net->now;
    for (size_t i = 0; i < net->items_count; ++i) {
        struct fake_item *item = &net->items[i];
        bool stuck = net->ranks[item->from].links[item->to].cut ||
                     (net->ranks[item->to].dead && item->kind != FAKE_CLOSE) ||
                     net->ranks[item->from].dead;
        if (!item->gone && !stuck && item->due <= net->now && !fake_must_wait(net, i)) {
            fake_land(net, item);
            ++landed;
        }
    }
    for (size_t i = 0; i < net->items_count; ++i) {
        if (!net->items[i].gone) {
            net->items[kept++] = net->items[i];
        }
    }
    net->items_count = kept;
    return landed;
}

bool fake_net_quiet(const struct fake_net *net)
{
    for (uint32_t r = 0; r < net->params.ranks; ++r) {
        if (net->ranks[r].events_count > 0) {
            return false;
        }
    }
    return net->items_count == 0;
}

/* ---- the table ---- */

static void fake_set_sink(void *self, const struct transport_sink *sink)
{
    ((struct fake_rank *)self)->sink = *sink;
}

static enum kvf_status fake_address(void *self, void *address_out, size_t cap, size_t *len_out)
{
    const struct fake_rank *rank = self;
    const struct fake_address address = {FAKE_MAGIC, rank->rank, rank->host};

    *len_out = sizeof(address);
    if (cap < sizeof(address)) {
        return KVF_E_TOO_LARGE;
    }
    memcpy(address_out, &address, sizeof(address));
    return KVF_OK;
}

static enum kvf_status fake_connect(void *self, uint32_t peer, const void *bytes, size_t len)
{
    struct fake_rank *rank = self;
    struct fake_address address;

    if (peer >= rank->net->params.ranks) {
        return KVF_E_INVAL;
    }
    if (rank->links[peer].known) {
        return KVF_E_EXISTS;
    }
    if (len != sizeof(address)) {
        return KVF_E_DECODE;
    }
    memcpy(&address, bytes, sizeof(address));
    if (address.magic != FAKE_MAGIC || address.rank >= rank->net->params.ranks) {
        return KVF_E_DECODE;
    }
    rank->links[peer] = (struct fake_link){.known = true, .cut = rank->links[peer].cut};
    return KVF_OK;
}

static bool fake_is_near(void *self, uint32_t peer)
{
    const struct fake_rank *rank = self;

    return peer < rank->net->params.ranks && rank->links[peer].known &&
           rank->net->ranks[peer].host == rank->host;
}

static uint32_t fake_peer_pid(void *self, uint32_t peer)
{
    return fake_is_near(self, peer) ? (uint32_t)getpid() : 0;
}

static enum kvf_status fake_memory_add(struct fake_rank *rank, void *base, uint64_t len_bytes,
                                       struct transport_memory **memory_out)
{
    struct fake_net *net = rank->net;
    struct transport_memory *memory = calloc(1, sizeof(*memory));
    struct transport_memory **list =
        realloc(net->memories, (net->memories_count + 1) * sizeof(*list));

    if (list != NULL) {
        net->memories = list;
    }
    if (memory != NULL) {
        *memory = (struct transport_memory){.net = net,
                                            .owner = rank->rank,
                                            .index = (uint32_t)net->memories_count,
                                            .base = base,
                                            .len_bytes = len_bytes,
                                            .shared = base == NULL,
                                            .alive = true};
        if (base == NULL) {
            memory->base = aligned_alloc(4096, (len_bytes + 4095) / 4096 * 4096);
        }
    }
    if (list == NULL || memory == NULL || memory->base == NULL) {
        free(memory);
        return KVF_E_NOMEM;
    }
    if (memory->shared) {
        memset(memory->base, 0, len_bytes);
    }
    net->memories[net->memories_count++] = memory;
    *memory_out = memory;
    return KVF_OK;
}

static enum kvf_status fake_memory_alloc(void *self, uint64_t len_bytes,
                                         struct transport_memory **memory_out, char *reason_out)
{
    reason_out[0] = '\0';
    return len_bytes == 0 ? KVF_E_INVAL : fake_memory_add(self, NULL, len_bytes, memory_out);
}

static enum kvf_status fake_memory_register(void *self, void *base, uint64_t len_bytes,
                                            struct transport_memory **memory_out, char *reason_out)
{
    reason_out[0] = '\0';
    return base == NULL || len_bytes == 0 ? KVF_E_INVAL
                                          : fake_memory_add(self, base, len_bytes, memory_out);
}

static void *fake_memory_base(const struct transport_memory *memory)
{
    return memory->base;
}

static uint64_t fake_memory_cost_ns(const struct transport_memory *memory)
{
    (void)memory;
    return 1;
}

static enum kvf_status fake_memory_pack(void *self, const struct transport_memory *memory,
                                        void *key_out, size_t cap, size_t *len_out)
{
    const struct fake_key key = {FAKE_MAGIC, memory->owner, memory->index,
                                 (uint64_t)(uintptr_t)memory->base, memory->len_bytes};

    (void)self;
    *len_out = sizeof(key);
    if (cap < sizeof(key)) {
        return KVF_E_TOO_LARGE;
    }
    memcpy(key_out, &key, sizeof(key));
    return KVF_OK;
}

static void fake_memory_release(void *self, struct transport_memory *memory)
{
    (void)self;
    if (memory != NULL) {
        memory->alive = false;
        if (memory->shared) {
            free(memory->base);
            memory->base = NULL;
        }
    }
}

static enum kvf_status fake_remote_open(void *self, uint32_t peer, const void *bytes, size_t len,
                                        struct transport_remote **remote_out, char *reason_out)
{
    struct fake_rank *rank = self;
    struct fake_net *net = rank->net;
    struct transport_remote *remote;
    struct fake_key key;

    reason_out[0] = '\0';
    if (peer >= net->params.ranks || !rank->links[peer].known) {
        return KVF_E_NOTFOUND;
    }
    if (len != sizeof(key)) {
        return KVF_E_TRUNCATED;
    }
    memcpy(&key, bytes, sizeof(key));
    if (key.magic != FAKE_MAGIC || key.owner != peer || key.index >= net->memories_count) {
        return KVF_E_DECODE;
    }
    remote = calloc(1, sizeof(*remote));
    if (remote == NULL) {
        return KVF_E_NOMEM;
    }
    *remote = (struct transport_remote){
        .net = net, .owner = rank->rank, .peer = peer, .memory = net->memories[key.index]};
    if (!fake_is_near(self, peer)) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "the peer is on another host");
    } else if (!remote->memory->shared) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "registered memory is not shared");
    } else if (net->ranks[peer].deny_mapping) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "mapping denied");
    } else {
        remote->mapped = true;
    }
    ++net->remotes_live;
    *remote_out = remote;
    return KVF_OK;
}

static uint64_t fake_remote_base(const struct transport_remote *remote)
{
    return (uint64_t)(uintptr_t)remote->memory->base;
}

static uint64_t fake_remote_len(const struct transport_remote *remote)
{
    return remote->memory->len_bytes;
}

static void *fake_remote_mapped(const struct transport_remote *remote)
{
    return remote->mapped ? remote->memory->base : NULL;
}

static enum transport_plane fake_remote_plane(const struct transport_remote *remote)
{
    return remote->net->ranks[remote->owner].host == remote->net->ranks[remote->peer].host
               ? TRANSPORT_NEAR
               : TRANSPORT_FAR;
}

static void fake_remote_release(void *self, struct transport_remote *remote)
{
    (void)self;
    if (remote != NULL) {
        --remote->net->remotes_live;
        free(remote);
    }
}

static enum kvf_status fake_post(struct fake_rank *rank, struct fake_item item)
{
    struct fake_net *net = rank->net;
    struct fake_link *link = &rank->links[item.to];

    if (rank->dead || !link->known || link->closing) {
        return KVF_E_NOTFOUND;
    }
    if (link->failed && (item.control || item.plane == TRANSPORT_FAR)) {
        return KVF_E_PEER_LOST;
    }
    if (rank->inflight >= net->params.operations_max) {
        return KVF_BUSY;
    }
    item.from = rank->rank;
    item.tell = true;
    item.sum = fake_sum(item.bytes, item.len_bytes);
    item.due = net->now + 1 + fake_random(net, (uint64_t)net->params.delay_max + 1);
    if (net->items_count == net->items_cap) {
        net->items = fake_grow(net->items, &net->items_cap, sizeof(*net->items));
    }
    net->items[net->items_count++] = item;
    if (++rank->inflight > net->counts.inflight_max) {
        net->counts.inflight_max = rank->inflight;
    }
    return KVF_AGAIN;
}

static enum kvf_status fake_send(void *self, uint32_t peer, const void *bytes, size_t len,
                                 transport_token token)
{
    struct fake_rank *rank = self;
    enum kvf_status status;

    if (peer >= rank->net->params.ranks) {
        return KVF_E_NOTFOUND;
    }
    status = fake_post(rank, (struct fake_item){.kind = FAKE_MESSAGE,
                                                .to = peer,
                                                .control = true,
                                                .token = token,
                                                .bytes = bytes,
                                                .len_bytes = len});
    if (status == KVF_AGAIN) {
        ++rank->net->counts.messages;
        rank->net->counts.message_bytes += len;
    }
    return status;
}

static enum kvf_status fake_put(void *self, const struct transport_put *put)
{
    struct fake_rank *rank = self;
    struct fake_net *net = rank->net;
    const struct transport_remote *remote = put->remote;
    uint64_t base = fake_remote_base(remote);
    uint64_t len = remote->memory->len_bytes;
    enum kvf_status status;

    if (put->len_bytes == 0 || put->len_bytes > len || put->address < base ||
        put->address - base > len - put->len_bytes) {
        return KVF_E_INVAL;
    }
    status = fake_post(rank, (struct fake_item){.kind = FAKE_PUT,
                                                .to = remote->peer,
                                                .plane = fake_remote_plane(remote),
                                                .token = put->token,
                                                .bytes = put->local,
                                                .len_bytes = put->len_bytes,
                                                .target = remote->memory,
                                                .offset = put->address - base});
    if (status != KVF_AGAIN) {
        return status;
    }
    ++net->counts.puts;
    net->counts.put_bytes += put->len_bytes;
    struct fake_item *item = &net->items[net->items_count - 1];
    if (fake_random(net, 8) < net->params.immediate_of_8 && !net->ranks[remote->peer].dead &&
        !rank->links[remote->peer].cut) {
        item->tell = false;
        fake_land(net, item);
        --net->items_count;
        --rank->inflight;
        return KVF_OK;
    }
    return KVF_AGAIN;
}

static enum kvf_status fake_flush(void *self, uint32_t peer, enum transport_plane plane,
                                  transport_token token)
{
    struct fake_rank *rank = self;

    if (peer >= rank->net->params.ranks || fake_is_near(rank, peer) != (plane == TRANSPORT_NEAR)) {
        return KVF_E_NOTFOUND;
    }
    ++rank->net->counts.flushes;
    return fake_post(
        rank, (struct fake_item){.kind = FAKE_FLUSH, .to = peer, .plane = plane, .token = token});
}

/* Ends what `rank` has under way to `peer`. A near put that is given up may still land. */
static void fake_give_up(struct fake_net *net, uint32_t rank, uint32_t peer, bool near_too)
{
    for (size_t i = 0; i < net->items_count; ++i) {
        struct fake_item *item = &net->items[i];
        bool near = !item->control && item->plane == TRANSPORT_NEAR;
        if (item->gone || item->from != rank || item->to != peer || (near && !near_too)) {
            continue;
        }
        fake_end(net, item, KVF_E_PEER_LOST);
        item->gone = !(near && item->kind == FAKE_PUT);
    }
}

static enum kvf_status fake_disconnect(void *self, uint32_t peer, bool force, transport_token token)
{
    struct fake_rank *rank = self;
    enum kvf_status status;

    if (peer >= rank->net->params.ranks) {
        return KVF_E_NOTFOUND;
    }
    if (force) {
        fake_give_up(rank->net, rank->rank, peer, true);
    }
    struct fake_link *link = &rank->links[peer];
    bool failed = link->failed;
    link->failed = false;
    status = fake_post(
        rank, (struct fake_item){.kind = FAKE_CLOSE, .to = peer, .control = true, .token = token});
    link->failed = failed;
    if (status == KVF_AGAIN) {
        link->closing = true;
        if (force) {
            struct fake_item *item = &rank->net->items[rank->net->items_count - 1];
            fake_land(rank->net, item);
            --rank->net->items_count;
        }
    }
    return status;
}

static uint32_t fake_poll(void *self)
{
    struct fake_rank *rank = self;
    uint32_t told = 0;

    for (size_t todo = rank->events_count; todo > 0 && !rank->dead; --todo) {
        struct fake_event event = rank->events[rank->events_first++];
        --rank->events_count;
        ++told;
        switch (event.kind) {
        case FAKE_TOLD_MESSAGE:
            rank->sink.message(rank->sink.self, event.bytes, event.len_bytes);
            free(event.bytes);
            break;
        case FAKE_TOLD_DONE:
            --rank->inflight;
            rank->sink.done(rank->sink.self, event.token, event.status);
            break;
        case FAKE_TOLD_ERROR:
            rank->sink.peer_error(rank->sink.self, event.peer, event.status);
            break;
        }
    }
    return told;
}

static void fake_descriptors(void *self, int fds_out[3])
{
    (void)self;
    fds_out[0] = fds_out[1] = fds_out[2] = -1;
}

static enum kvf_status fake_arm(void *self)
{
    return ((struct fake_rank *)self)->events_count > 0 ? KVF_AGAIN : KVF_OK;
}

static void fake_close(void *self, uint64_t deadline_ns)
{
    (void)deadline_ns;
    ((struct fake_rank *)self)->dead = true;
}

static const struct transport fake_table = {
    .size = sizeof(struct transport),
    .set_sink = fake_set_sink,
    .address = fake_address,
    .connect = fake_connect,
    .is_near = fake_is_near,
    .peer_pid = fake_peer_pid,
    .memory_alloc = fake_memory_alloc,
    .memory_register = fake_memory_register,
    .memory_base = fake_memory_base,
    .memory_cost_ns = fake_memory_cost_ns,
    .memory_pack = fake_memory_pack,
    .memory_release = fake_memory_release,
    .remote_open = fake_remote_open,
    .remote_base = fake_remote_base,
    .remote_len = fake_remote_len,
    .remote_mapped = fake_remote_mapped,
    .remote_plane = fake_remote_plane,
    .remote_release = fake_remote_release,
    .send = fake_send,
    .put = fake_put,
    .flush = fake_flush,
    .disconnect = fake_disconnect,
    .poll = fake_poll,
    .descriptors = fake_descriptors,
    .arm = fake_arm,
    .close = fake_close,
};

/* ---- the net ---- */

struct fake_net *fake_net_open(const struct fake_params *params)
{
    struct fake_net *net = calloc(1, sizeof(*net));

    if (net == NULL || params->ranks == 0 || params->ranks > FAKE_RANKS_MAX) {
        free(net);
        return NULL;
    }
    net->params = *params;
    net->random = params->seed;
    if (net->params.operations_max == 0) {
        net->params.operations_max = FAKE_OPERATIONS_DEFAULT;
    }
    net->ranks = calloc(params->ranks, sizeof(*net->ranks));
    for (uint32_t r = 0; net->ranks != NULL && r < params->ranks; ++r) {
        struct fake_rank *rank = &net->ranks[r];
        rank->net = net;
        rank->rank = r;
        rank->table = fake_table;
        rank->table.self = rank;
        rank->links = calloc(params->ranks, sizeof(*rank->links));
        if (rank->links == NULL) {
            fake_net_close(net);
            return NULL;
        }
    }
    if (net->ranks == NULL) {
        free(net);
        return NULL;
    }
    return net;
}

uint64_t fake_net_close(struct fake_net *net)
{
    uint64_t left;

    if (net == NULL) {
        return 0;
    }
    left = net->remotes_live;
    for (size_t i = 0; i < net->memories_count; ++i) {
        left += net->memories[i]->alive;
        fake_memory_release(NULL, net->memories[i]->alive ? net->memories[i] : NULL);
        free(net->memories[i]);
    }
    for (uint32_t r = 0; r < net->params.ranks; ++r) {
        struct fake_rank *rank = &net->ranks[r];
        for (size_t i = 0; i < rank->events_count; ++i) {
            free(rank->events[rank->events_first + i].bytes);
        }
        free(rank->events);
        free(rank->links);
    }
    free(net->ranks);
    free(net->items);
    free(net->memories);
    free(net);
    return left;
}

struct transport *fake_net_transport(struct fake_net *net, uint32_t rank)
{
    return &net->ranks[rank].table;
}

void fake_net_host(struct fake_net *net, uint32_t rank, uint32_t host)
{
    net->ranks[rank].host = host;
}

void fake_net_deny_mapping(struct fake_net *net, uint32_t rank)
{
    net->ranks[rank].deny_mapping = true;
}

void fake_net_kill(struct fake_net *net, uint32_t rank)
{
    net->ranks[rank].dead = true;
    for (size_t i = 0; i < net->items_count; ++i) {
        net->items[i].gone |= net->items[i].from == rank;
    }
    for (uint32_t r = 0; r < net->params.ranks; ++r) {
        if (r != rank && net->ranks[r].host != net->ranks[rank].host) {
            fake_net_break(net, r, rank);
        }
    }
}

void fake_net_cut(struct fake_net *net, uint32_t a, uint32_t b, bool cut)
{
    net->ranks[a].links[b].cut = cut;
    net->ranks[b].links[a].cut = cut;
}

void fake_net_break(struct fake_net *net, uint32_t rank, uint32_t peer)
{
    fake_give_up(net, rank, peer, false);
    fake_error(net, rank, peer);
}

struct fake_counts fake_net_counts(const struct fake_net *net)
{
    return net->counts;
}
