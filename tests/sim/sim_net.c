/*
 * sim_net.c - messages between simulated ranks. In wire mode they are bytes that go through
 * encoder, channel and decoder and may be reordered on the way; otherwise they stay in order, and
 * the structure is handed over, which is what the machines see in either case.
 */
#include "sim.h"

#include <string.h>

/* ---- parcels -------------------------------------------------------------------------------- */

static struct sim_parcel parcels[SIM_PARCELS_MAX];

static struct sim_parcel *parcel_take(struct sim_world *world)
{
    struct sim_parcel *parcel = world->free_parcels;

    if (parcel != NULL) {
        world->free_parcels = parcel->next;
        return parcel;
    }
    if (world->parcels_used == SIM_PARCELS_MAX)
        sim_fail(world, "I33: more messages are under way than any schedule needs");
    return &parcels[world->parcels_used++];
}

static void parcel_give(struct sim_world *world, struct sim_parcel *parcel)
{
    parcel->next = world->free_parcels;
    world->free_parcels = parcel;
}

static void enqueue(struct sim_world *world, uint32_t from, uint32_t to, struct sim_parcel *parcel)
{
    struct sim_queue *queue = &world->queues[from][to];

    parcel->next = NULL;
    if (queue->first == NULL)
        queue->first = parcel;
    else
        queue->last->next = parcel;
    queue->last = parcel;
    world->busy_pairs |= UINT64_C(1) << (from * SIM_RANKS_MAX + to);
}

static void dequeue(struct sim_world *world, uint32_t from, uint32_t to, uint32_t index)
{
    struct sim_queue *queue = &world->queues[from][to];
    struct sim_parcel *before = NULL;
    struct sim_parcel *at = queue->first;

    for (uint32_t i = 0; i < index; i++) {
        before = at;
        at = at->next;
    }
    if (before == NULL)
        queue->first = at->next;
    else
        before->next = at->next;
    if (queue->last == at)
        queue->last = before;
    if (queue->first == NULL)
        world->busy_pairs &= ~(UINT64_C(1) << (from * SIM_RANKS_MAX + to));
}

/* ---- sending -------------------------------------------------------------------------------- */

/* What a decoder would have made of the parts that lie outside the structure. */
static void keep_parts(struct sim_parcel *parcel, const struct msg *msg)
{
    struct wire_writer writer = wire_writer_make(parcel->bytes, sizeof(parcel->bytes));
    struct msg *kept = &parcel->msg;

    if (msg->header.type == MSG_REQUEST_DATA) {
        for (uint32_t i = 0; i < msg->u.request_data.group_count; i++) {
            const struct kvf_block_list *list = &msg->u.request_data.groups[i];

            wire_put_u32(&writer, list->first);
            wire_put_u32(&writer, list->count);
            for (uint32_t slot = 0; slot < list->count; slot++)
                wire_put_u32(&writer, list->slots[slot]);
        }
        kept->u.request_data.groups = NULL;
        kept->u.request_data.groups_wire = parcel->bytes;
        kept->u.request_data.groups_bytes = (uint32_t)writer.len_bytes;
    } else if (msg->header.type == MSG_CANCEL_SESSION) {
        wire_put_u32(&writer, msg->u.cancel_session.slices[0]);
        kept->u.cancel_session.slices = NULL;
        kept->u.cancel_session.slices_wire = parcel->bytes;
    } else if (msg->header.type == MSG_REPORT && msg->u.report.aux_bytes > 0) {
        memcpy(parcel->bytes, msg->u.report.aux, msg->u.report.aux_bytes);
        kept->u.report.aux = parcel->bytes;
    }
}

enum kvf_status net_post(struct sim_world *world, uint32_t from, uint32_t to, const struct msg *msg)
{
    struct channel *channel = &world->ranks[from].channels[to];
    struct sim_parcel *parcel;
    enum channel_cause lost;
    size_t len_bytes = 0;

    if (channel->state != CHANNEL_UP && msg->header.type != MSG_HELLO)
        return KVF_E_PEER_LOST;
    parcel = parcel_take(world);
    parcel->hello = msg->header.type == MSG_HELLO;
    parcel->epoch = world->ranks[from].epoch;
    parcel->msg = *msg;
    if (world->knobs.wire) {
        if (msg_encode(msg, parcel->bytes, SIM_PARCEL_BYTES, &len_bytes) != KVF_OK ||
            channel_stamp(channel, parcel->bytes, len_bytes, &lost) != KVF_OK)
            sim_fail(world, "a message cannot be encoded");
        channel_sent(channel);
    } else {
        keep_parts(parcel, msg);
    }
    parcel->len_bytes = (uint32_t)len_bytes;
    enqueue(world, from, to, parcel);
    world->tally->messages++;
    return KVF_OK;
}

static struct msg header_only(const struct sim_world *world, uint32_t from, enum msg_type type)
{
    const struct sim_rank *self = &world->ranks[from];

    return (struct msg){.header = {.type = (uint8_t)type,
                                   .source_instance = self->generation ? 1 : 0,
                                   .source_rank = (uint16_t)from,
                                   .epoch = self->epoch}};
}

void net_hello(struct sim_world *world, uint32_t from, uint32_t to)
{
    struct msg msg = header_only(world, from, MSG_HELLO);

    msg.u.hello.wire_version_min = msg.u.hello.wire_version_max = 1;
    msg.u.hello.side = world->ranks[from].generation ? KVF_GENERATION : KVF_CONTEXT;
    (void)net_post(world, from, to, &msg);
}

void net_bye(struct sim_world *world, uint32_t from, uint32_t to)
{
    struct msg msg = header_only(world, from, MSG_BYE);

    msg.u.bye.no_access = true;
    (void)net_post(world, from, to, &msg);
}

bool net_duplicate(struct sim_world *world, uint32_t from, uint32_t to)
{
    struct sim_parcel *first = world->queues[from][to].first;
    struct sim_parcel *copy;

    if (first == NULL || !world->knobs.wire)
        return false;
    copy = parcel_take(world);
    *copy = *first;
    enqueue(world, from, to, copy);
    return true;
}

bool net_corrupt(struct sim_world *world, uint32_t from, uint32_t to, uint32_t at)
{
    struct sim_parcel *first = world->queues[from][to].first;

    if (first == NULL || !world->knobs.wire)
        return false;
    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++)
        world->asks[from][to][i].broken = world->asks[to][from][i].broken = true;
    if (!world->knobs.garble) {
        first->bytes[at % first->len_bytes] ^= 1u << (at >> 16 & 7);
        return true;
    }
    if (first->len_bytes <= MSG_HEADER_BYTES)
        return false;
    first->bytes[MSG_HEADER_BYTES + at % (first->len_bytes - MSG_HEADER_BYTES)] ^=
        1u << (at >> 16 & 7);
    msg_seal(first->bytes, first->len_bytes,
             wire_load_u64(first->bytes + offsetof(struct msg_header_wire, seq)));
    return true;
}

/* ---- links ---------------------------------------------------------------------------------- */

bool net_up(const struct sim_world *world, uint32_t rank, uint32_t other)
{
    return world->ranks[rank].channels[other].state == CHANNEL_UP;
}

/* The link ends, then the machine hears of it. */
static void end_link(struct sim_world *world, uint32_t rank, uint32_t other, bool closed)
{
    struct sim_rank *self = &world->ranks[rank];

    channel_lose(&self->channels[other], CHANNEL_CAUSE_OUTSIDE);
    for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++) {
        world->asks[rank][other][i].broken = true;
        world->asks[other][rank][i].broken = true;
        if (closed)
            world->asks[other][rank][i].proven = true;
    }
    world->disturbed = true;
    if (!closed &&
        (!world->ranks[other].alive || world->ranks[other].epoch != self->hello_epoch[other]))
        self->proof_due[other] = true;
    sim_peer(world, rank, other, closed ? RECV_PEER_CLOSED : RECV_PEER_LOST,
             closed ? SEND_PEER_CLOSED : SEND_PEER_LOST);
}

void net_lose(struct sim_world *world, uint32_t rank, uint32_t other, enum channel_cause cause)
{
    if (!net_up(world, rank, other))
        return;
    sim_say(world, "  %u loses %u: %s\n", rank, other, channel_cause_text(cause));
    end_link(world, rank, other, false);
}

void net_lose_due(struct sim_world *world, uint32_t rank)
{
    struct sim_rank *self = &world->ranks[rank];
    uint32_t due = self->lose_due;

    self->lose_due = 0;
    for (uint32_t other = 0; other < world->ranks_count; other++)
        if ((due >> other & 1u) != 0)
            net_lose(world, rank, other, CHANNEL_CAUSE_OVERFLOW);
}

void net_tick(struct sim_world *world, uint32_t rank)
{
    enum channel_cause lost;

    if (!world->knobs.wire)
        return;
    for (uint32_t other = 0; other < world->ranks_count; other++) {
        channel_tick(&world->ranks[rank].channels[other], sim_awake_ns(world, rank), &lost);
        if (lost != CHANNEL_CAUSE_NONE)
            end_link(world, rank, other, false);
    }
}

/* A life of `from` begins for `to`, with the message that says so. */
static void greet(struct sim_world *world, uint32_t to, uint32_t from, uint64_t epoch, uint64_t seq)
{
    struct sim_rank *self = &world->ranks[to];
    bool fresh = self->hello_epoch[from] != epoch;
    uint64_t before = self->hello_epoch[from];

    if (net_up(world, to, from))
        net_lose(world, to, from, CHANNEL_CAUSE_EPOCH);
    channel_open(&self->channels[from], epoch, seq);
    self->hello_epoch[from] = epoch;
    if (fresh) {
        self->proof_due[from] = false;
        self->old_epoch[from] = before;
        for (uint32_t i = 0; i < SIM_REQUESTS_MAX; i++)
            world->asks[from][to][i].proven = true; /* its rank has a new process */
        net_hello(world, to, from);
    }
    sim_peer(world, to, from, RECV_PEER_UP, SEND_PEER_UP);
}

/* ---- arriving ------------------------------------------------------------------------------- */

static void hand_over(struct sim_world *world, uint32_t to, uint32_t from, const struct msg *msg,
                      enum kvf_status check)
{
    struct sim_rank *self = &world->ranks[to];

    if (msg->header.type == MSG_HELLO)
        return;
    if (msg->header.type == MSG_BYE) {
        sim_say(world, "  %u hears BYE of %u\n", to, from);
        end_link(world, to, from, true);
        return;
    }
    memory_heard(world, to, from, msg);
    if (msg->header.type == MSG_REQUEST_DATA && check == KVF_OK &&
        sim_fact(world, world->knobs.unfit_percent / 2, 30 + to, from, msg->u.request_data.rid))
        check = KVF_E_LEGACY_REQUEST;
    if (self->generation)
        sim_recv(world, to, &(struct recv_event){.kind = RECV_MESSAGE, .u.message = {from, msg}});
    else
        sim_send(world, to,
                 &(struct send_event){.kind = SEND_MESSAGE, .u.message = {from, msg, check}});
    if (!self->generation && msg->header.type == MSG_REQUEST_DATA)
        memory_check_refused(world, to, from, &msg->u.request_data, check);
}

/* As the reactor does: answered where its sender can be read, else dropped. */
static void take_bytes(struct sim_world *world, uint32_t to, uint32_t from, const uint8_t *bytes,
                       size_t len_bytes)
{
    bool generation = world->ranks[to].generation;
    enum kvf_status status;
    struct msg msg;

    status = msg_decode(bytes, len_bytes, &msg, NULL);
    if (status != KVF_OK && !world->knobs.garble)
        sim_fail(world, "a whole message is refused: %s", kvf_status_name(status));
    if (status != KVF_OK && (msg.header.type != MSG_REQUEST_DATA || msg.u.request_data.tag == 0 ||
                             (status != KVF_E_LEGACY_REQUEST && status != KVF_E_PROTOCOL)))
        return;
    if (msg.header.type != MSG_HELLO && msg.header.type != MSG_BYE &&
        generation ==
            (msg.header.type == MSG_REQUEST_DATA || msg.header.type == MSG_CANCEL_SESSION))
        return;
    hand_over(world, to, from, &msg, status);
}

static void receive(struct sim_world *world, uint32_t to, uint32_t from, struct sim_parcel *parcel)
{
    struct channel *channel = &world->ranks[to].channels[from];
    struct channel_out out;
    const uint8_t *bytes;
    size_t len_bytes;

    channel_receive(channel, parcel->bytes, parcel->len_bytes, sim_awake_ns(world, to), &out);
    while (channel_pop(channel, &bytes, &len_bytes))
        take_bytes(world, to, from, bytes, len_bytes);
    if (world->knobs.checked)
        channel_check(channel);
    if (out.lost != CHANNEL_CAUSE_NONE)
        end_link(world, to, from, false);
    if (out.verdict != CHANNEL_HANDSHAKE)
        return;
    greet(world, to, from, out.header.epoch, out.header.seq);
    channel_receive(channel, parcel->bytes, parcel->len_bytes, sim_awake_ns(world, to), &out);
    while (channel_pop(channel, &bytes, &len_bytes))
        take_bytes(world, to, from, bytes, len_bytes);
}

/* Nothing overtakes a HELLO, and a HELLO nothing: the life that it begins starts with it. */
static uint32_t may_overtake(const struct sim_world *world, const struct sim_queue *queue,
                             uint32_t index)
{
    uint32_t at = 0;

    if (!world->knobs.wire)
        return 0;
    for (const struct sim_parcel *parcel = queue->first; parcel != NULL && !parcel->hello;
         parcel = parcel->next, at++)
        if (at == index)
            return index;
    return at == 0 ? 0 : index % at;
}

bool net_deliver(struct sim_world *world, uint32_t from, uint32_t to, uint32_t index)
{
    struct sim_queue *queue = &world->queues[from][to];
    struct channel *channel = &world->ranks[to].channels[from];
    struct sim_parcel *parcel;

    if (queue->first == NULL)
        return false;
    index = may_overtake(world, queue, index);
    parcel = queue->first;
    for (uint32_t i = 0; i < index; i++)
        parcel = parcel->next;
    dequeue(world, from, to, index);
    if (world->ranks[to].alive && world->knobs.wire)
        receive(world, to, from, parcel);
    else if (!world->ranks[to].alive)
        sim_say(world, "  %u is dead\n", to);
    else if (net_up(world, to, from) && channel->epoch == parcel->epoch)
        hand_over(world, to, from, &parcel->msg, KVF_OK);
    else if (parcel->hello && parcel->epoch == world->ranks[from].epoch)
        greet(world, to, from, parcel->epoch, 1);
    parcel_give(world, parcel);
    return true;
}
