/*
 * reactor_peer.c - the other ranks: their messages in order, heartbeats, and how they are lost.
 */
#include "reactor_internal.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "msg.h"

/* ---- life ----------------------------------------------------------------------------------- */

enum kvf_status peers_open(struct reactor *reactor)
{
    struct kvf *kvf = reactor->kvf;
    enum kvf_status status = channel_store_open(
        &kvf->heap.table, (size_t)kvf->settings.early_bytes_max, &kvf->peers.early);

    if (status != KVF_OK)
        return status;
    for (uint32_t p = 0; p < kvf->peers.all_count; p++) {
        struct peer *peer = &kvf->peers.list[p];

        channel_init(&peer->channel, kvf->peers.early);
        if (peer->epoch != 0)
            channel_open(&peer->channel, peer->epoch, 1);
        peer->heard_ns = peer->spoke_ns = reactor->now_ns;
        if (peer->near && peer->pid != 0)
            peer->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)peer->pid, 0);
        if (peer->near && peer->pidfd < 0)
            log_debug(&kvf->logger, "no pidfd of %s: its death is seen by silence alone",
                      peer->name);
    }
    return KVF_OK;
}

void peers_close(struct reactor *reactor)
{
    struct peers *peers = &reactor->kvf->peers;

    for (uint32_t p = 0; p < peers->all_count && peers->early != NULL; p++) {
        channel_fini(&peers->list[p].channel);
        if (peers->list[p].pidfd >= 0)
            close(peers->list[p].pidfd);
        peers->list[p].pidfd = -1;
    }
    channel_store_close(peers->early);
    peers->early = NULL;
}

/* ---- sending -------------------------------------------------------------------------------- */

enum kvf_status peer_send(struct reactor *reactor, struct peer *peer, const struct msg *msg)
{
    enum channel_cause lost = CHANNEL_CAUSE_NONE;
    enum kvf_status status;

    if (peer->losing != NULL)
        return KVF_E_PEER_LOST;
    status = outbox_put(reactor->outbox, peer, msg, &lost);
    if (status == KVF_OK)
        peer->spoke_ns = reactor->now_ns;
    if (lost == CHANNEL_CAUSE_OVERFLOW) {
        log_warn(&reactor->kvf->logger, "W31", "%s: %s", peer->name, channel_cause_text(lost));
        peer_note_loss(reactor, peer, channel_cause_text(lost));
    }
    return status;
}

/* A message with this rank in its header. */
static struct msg peer_message(const struct reactor *reactor, enum msg_type type)
{
    return (struct msg){
        .header =
            {
                .type = (uint8_t)type,
                .source_instance = (uint16_t)reactor->kvf->place.instance,
                .source_rank = (uint16_t)reactor->kvf->place.rank,
                .epoch = reactor->kvf->epoch,
            },
    };
}

void peer_ping(struct reactor *reactor, struct peer *peer)
{
    struct msg msg = peer_message(reactor, MSG_PING);

    msg.u.ping.nonce = peer->ping_nonce + 1;
    msg.u.ping.sweep = sweeper_posted(reactor->kvf->sweeper);
    if (peer_send(reactor, peer, &msg) == KVF_OK)
        peer->ping_nonce++;
}

static void peer_pong(struct reactor *reactor, struct peer *peer, uint64_t nonce)
{
    struct msg msg = peer_message(reactor, MSG_PONG);

    msg.u.ping.nonce = nonce;
    msg.u.ping.sweep = sweeper_posted(reactor->kvf->sweeper);
    peer_send(reactor, peer, &msg);
}

void peers_goodbye(struct reactor *reactor, bool no_access)
{
    struct msg msg = peer_message(reactor, MSG_BYE);

    msg.u.bye.no_access = no_access;
    for (uint32_t p = 0; p < reactor->kvf->peers.all_count; p++)
        if (!reactor->kvf->peers.list[p].lost)
            peer_send(reactor, &reactor->kvf->peers.list[p], &msg);
}

/* ---- losing --------------------------------------------------------------------------------- */

void peer_note_loss(struct reactor *reactor, struct peer *peer, const char *why)
{
    if (peer->losing != NULL || peer->lost || peer->gone)
        return;
    peer->losing = why;
    reactor->losing++;
}

/* Tells the machine of this rank's side; of its own group's members, the sweep. */
static void peer_tell(struct reactor *reactor, const struct peer *peer,
                      enum send_event_kind send_kind, enum recv_event_kind recv_kind)
{
    if (peer->member) {
        if (send_kind == SEND_PEER_LOST)
            sweeper_note_member(reactor->kvf->sweeper, peer->world_rank, SWEEPER_MEMBER_DEAD, 0);
        return;
    }
    if (reactor->send != NULL) {
        struct send_event event = {
            .kind = send_kind,
            .u.peer = {peer->world_rank, peer->epoch, peer->verdict},
        };

        send_glue_step(reactor, &event);
    } else {
        struct recv_event event = {
            .kind = recv_kind,
            .u.peer = {peer->world_rank, peer->epoch, peer->verdict},
        };

        recv_glue_step(reactor, &event);
    }
}

/* Its process has ended: nothing of it writes any more. */
static void peer_proof(struct reactor *reactor, struct peer *peer)
{
    if (peer->gone)
        return;
    peer->gone = true;
    if (reactor->recv != NULL)
        peer_tell(reactor, peer, SEND_POLL, RECV_PEER_PROOF);
}

/*
 * A far writer that is lost may have bytes on the wire: this rank's own endpoint is closed by
 * force, and once that is over nothing of the writer lands here any more (docs/protocol.md, 2.1). A
 * near one proves it by the end of its process.
 */
static void peer_close_lost(struct reactor *reactor, struct peer *peer)
{
    struct transport *transport = reactor->transport;
    uint32_t index = (uint32_t)(peer - reactor->kvf->peers.list);
    enum kvf_status status = transport->disconnect(transport->self, peer->world_rank, true,
                                                   REACTOR_TOKEN(TOKEN_CLOSE) + index);

    if (status == KVF_AGAIN)
        peer->endpoint = PEER_ENDPOINT_CLOSING;
    else if (status != KVF_BUSY)
        peer->endpoint = PEER_ENDPOINT_CLOSED;
}

static void peer_closed(struct reactor *reactor, uint32_t index)
{
    struct peer *peer = &reactor->kvf->peers.list[index];

    peer->endpoint = PEER_ENDPOINT_CLOSED;
    if (reactor->closing)
        reactor->close_pending--;
    else
        peer_proof(reactor, peer);
}

static void peer_lose(struct reactor *reactor, struct peer *peer, const char *why)
{
    check_finish(reactor, peer);
    peer->lost = true;
    channel_lose(&peer->channel, CHANNEL_CAUSE_OUTSIDE);
    if (reactor->closing)
        return;
    atomic_store(&reactor->kvf->damaged, true);
    if (log_once(&peer->once, PEER_ONCE_LOST))
        log_warn(&reactor->kvf->logger, "W30", "peer %s lost: %s", peer->name, why);
    peer_tell(reactor, peer, SEND_PEER_LOST, RECV_PEER_LOST);
    if (reactor->recv != NULL && !peer->near && !peer->member) {
        peer->endpoint = PEER_ENDPOINT_UNWANTED; /* BUSY: tried again by peers_check() */
        peer_close_lost(reactor, peer);
    }
}

void peers_lose_noted(struct reactor *reactor)
{
    for (uint32_t p = 0; p < reactor->kvf->peers.all_count && reactor->losing > 0; p++) {
        struct peer *peer = &reactor->kvf->peers.list[p];
        const char *why = peer->losing;

        if (why == NULL)
            continue;
        peer->losing = NULL;
        reactor->losing--;
        peer_lose(reactor, peer, why);
    }
}

/* The process of a near peer has ended. Its last messages first. */
static void peer_ended(struct reactor *reactor, struct peer *peer)
{
    while (reactor->transport->poll(reactor->transport->self) > 0)
        ;
    close(peer->pidfd);
    peer->pidfd = -1;
    if (!peer->lost && !peer->gone)
        peer_lose(reactor, peer, "its process has ended");
    peer_proof(reactor, peer);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static struct peer *peer_of_header(struct reactor *reactor, const struct msg_header *header)
{
    const struct kvf_topology *topology = reactor->kvf->topology;
    const struct kvf_instance *instance;

    if (header->source_instance >= topology->instance_count)
        return NULL;
    instance = &topology->instances[header->source_instance];
    if (header->source_rank >= instance->tp_size * instance->pp_size)
        return NULL;
    return peer_of_rank(&reactor->kvf->peers, instance->first_rank + header->source_rank);
}

static void peer_said_bye(struct reactor *reactor, struct peer *peer, bool no_access)
{
    if (peer->gone || peer->lost)
        return;
    if (!no_access) {
        peer_note_loss(reactor, peer, "it has closed with writes that are not over");
        return;
    }
    peer->gone = true;
    peer_tell(reactor, peer, SEND_PEER_CLOSED, RECV_PEER_CLOSED);
}

static void peer_unexpected(struct reactor *reactor, struct peer *peer, const struct msg *msg)
{
    metrics_add(&reactor->kvf->metrics.messages_dropped, 1);
    if (log_once(&peer->once, PEER_ONCE_REFUSED))
        log_warn(&reactor->kvf->logger, "", "%s sent a %s, which a rank of this side never gets",
                 peer->name, msg_type_name(msg->header.type));
}

static void peer_deliver(struct reactor *reactor, struct peer *peer, const struct msg *msg,
                         enum kvf_status check)
{
    switch ((enum msg_type)msg->header.type) {
    case MSG_REQUEST_DATA:
    case MSG_CANCEL_SESSION:
        if (reactor->send == NULL || peer->member)
            peer_unexpected(reactor, peer, msg);
        else
            send_glue_message(reactor, peer, msg, check);
        break;
    case MSG_REPORT:
    case MSG_SETTLED:
    case MSG_QUIESCED:
    case MSG_SESSION_CANCELLED:
        if (reactor->recv == NULL || peer->member)
            peer_unexpected(reactor, peer, msg);
        else
            recv_glue_message(reactor, peer, msg);
        break;
    case MSG_PING:
        peer_pong(reactor, peer, msg->u.ping.nonce);
        break;
    case MSG_PONG:
        peer->pong_nonce = msg->u.ping.nonce;
        if (peer->member && reactor->asking)
            sweeper_note_member(reactor->kvf->sweeper, peer->world_rank, SWEEPER_MEMBER_ANSWERS,
                                msg->u.ping.sweep);
        break;
    case MSG_BYE:
        peer_said_bye(reactor, peer, msg->u.bye.no_access);
        break;
    case MSG_WANT:
    case MSG_GRANT:
    case MSG_DATA:
    case MSG_ACK:
    case MSG_NACK:
    case MSG_FLOW_CANCEL:
    case MSG_PATH_NOTE:
        peer_unexpected(reactor, peer, msg); /* no rank of this release advertises a bounce */
        break;
    case MSG_HELLO:
        break; /* the same life again: nothing has changed */
    }
}

/*
 * One message in order; its channel has checked the frame. What cannot be decoded is answered where
 * its sender can be read.
 */
void peer_take(struct reactor *reactor, struct peer *peer, const uint8_t *bytes, size_t len_bytes)
{
    const char *why = "";
    struct msg msg;
    enum kvf_status status = msg_decode_checked(bytes, len_bytes, &msg, &why);

    if (status == KVF_OK) {
        peer_deliver(reactor, peer, &msg, KVF_OK);
        return;
    }
    metrics_add(&reactor->kvf->metrics.messages_dropped, 1);
    if (channel_refused(&peer->channel, status))
        log_warn(&reactor->kvf->logger, "", "a message of %s is refused: %s: %s", peer->name,
                 kvf_status_text(status), why);
    if ((status == KVF_E_LEGACY_REQUEST || status == KVF_E_PROTOCOL) &&
        msg.header.type == MSG_REQUEST_DATA && msg.u.request_data.tag != 0)
        peer_deliver(reactor, peer, &msg, status);
}

static void peer_judge(struct reactor *reactor, struct peer *peer, const struct channel_out *out)
{
    switch (out->verdict) {
    case CHANNEL_DELIVER:
    case CHANNEL_HELD:
    case CHANNEL_DUPLICATE:
        peer->heard_ns = reactor->now_ns;
        break;
    case CHANNEL_HANDSHAKE: /* another life: publishing again is not part of this release */
    case CHANNEL_BAD_FRAME:
    case CHANNEL_STRANGER:
    case CHANNEL_STALE:
    case CHANNEL_DROPPED:
        metrics_add(&reactor->kvf->metrics.messages_dropped, 1);
        break;
    }
    if (out->warn != NULL)
        log_warn(&reactor->kvf->logger, "", "%s: %s", peer->name, out->warn);
    if (out->lost == CHANNEL_CAUSE_OVERFLOW)
        log_warn(&reactor->kvf->logger, "W31", "%s: %s", peer->name, channel_cause_text(out->lost));
    if (out->lost != CHANNEL_CAUSE_NONE)
        peer_note_loss(reactor, peer, channel_cause_text(out->lost));
}

static void sink_message(void *self, const void *bytes, size_t len_bytes)
{
    struct reactor *reactor = self;
    struct msg_header header;
    struct channel_out out;
    struct peer *peer = NULL;
    const uint8_t *at;
    size_t len;

    /* Whose it says it is; its channel then checks the frame. */
    if (msg_peek_header(bytes, len_bytes, &header) == KVF_OK)
        peer = peer_of_header(reactor, &header);
    if (peer == NULL) {
        metrics_add(&reactor->kvf->metrics.messages_dropped, 1);
        return;
    }
    channel_receive(&peer->channel, bytes, len_bytes, reactor->now_ns, &out);
    while (channel_pop(&peer->channel, &at, &len))
        if (!check_holds(reactor, peer, at, len))
            peer_take(reactor, peer, at, len);
    peer_judge(reactor, peer, &out);
}

static void sink_done(void *self, transport_token token, enum kvf_status status)
{
    struct reactor *reactor = self;

    switch ((enum reactor_token)REACTOR_TOKEN_KIND(token)) { /* this rank's own tokens */
    case TOKEN_SEND:
        outbox_done(reactor->outbox, REACTOR_TOKEN_INDEX(token));
        break;
    case TOKEN_PUT:
        task_put_done(reactor, REACTOR_TOKEN_INDEX(token), status);
        break;
    case TOKEN_FLUSH:
        task_flush_done(reactor, REACTOR_TOKEN_INDEX(token), status);
        break;
    case TOKEN_WARM:
        reactor->warm_pending--;
        break;
    case TOKEN_CLOSE:
        peer_closed(reactor, REACTOR_TOKEN_INDEX(token));
        break;
    }
}

static void sink_peer_error(void *self, uint32_t world_rank, enum kvf_status status)
{
    struct reactor *reactor = self;
    struct peer *peer = peer_of_rank(&reactor->kvf->peers, world_rank);

    if (peer != NULL)
        peer_note_loss(reactor, peer, kvf_status_text(status));
}

void peers_sink(struct reactor *reactor, struct transport_sink *sink_out)
{
    *sink_out = (struct transport_sink){
        .self = reactor,
        .message = sink_message,
        .done = sink_done,
        .peer_error = sink_peer_error,
    };
}

/* ---- timers --------------------------------------------------------------------------------- */

static bool peer_speaks(const struct peer *peer)
{
    return !peer->lost && !peer->gone && peer->losing == NULL && peer->channel.state == CHANNEL_UP;
}

static bool reactor_has_work(const struct reactor *reactor)
{
    if (reactor->send != NULL) {
        const struct send_counts *counts = send_session_counts(reactor->send);

        return counts->live > 0 || counts->asked > 0;
    }
    return recv_session_counts(reactor->recv)->live > 0;
}

static void peers_pidfds(struct reactor *reactor)
{
    struct peers *peers = &reactor->kvf->peers;
    struct pollfd entry = {.events = POLLIN};

    for (uint32_t p = 0; p < peers->all_count; p++) {
        if (peers->list[p].pidfd < 0)
            continue;
        entry.fd = peers->list[p].pidfd;
        if (poll(&entry, 1, 0) > 0 && (entry.revents & POLLIN) != 0)
            peer_ended(reactor, &peers->list[p]);
    }
}

static void peer_heartbeat(struct reactor *reactor, struct peer *peer)
{
    const struct kvf_settings *settings = &reactor->kvf->settings;
    uint64_t now_ns = reactor->now_ns;

    if (now_ns - peer->spoke_ns >= settings->heartbeat_interval_ms * CLOCK_NS_PER_MS)
        peer_ping(reactor, peer);
    if (now_ns - peer->heard_ns >= settings->peer_lost_ms * CLOCK_NS_PER_MS)
        peer_note_loss(reactor, peer, "it is silent");
}

/* A sweep is slow: is this member alive, and how far is it? */
static void member_heartbeat(struct reactor *reactor, struct peer *peer)
{
    const struct kvf_settings *settings = &reactor->kvf->settings;
    uint64_t now_ns = reactor->now_ns;

    if (now_ns - peer->spoke_ns >= settings->heartbeat_interval_ms * CLOCK_NS_PER_MS)
        peer_ping(reactor, peer);
    if (now_ns - peer->heard_ns >= settings->peer_lost_ms * CLOCK_NS_PER_MS)
        sweeper_note_member(reactor->kvf->sweeper, peer->world_rank, SWEEPER_MEMBER_SILENT, 0);
}

/* From not asking to asking: members had no reason to speak before. */
static void members_note_asking(struct reactor *reactor)
{
    struct peers *peers = &reactor->kvf->peers;
    bool asking = sweeper_asks(reactor->kvf->sweeper);

    for (uint32_t p = peers->count; asking && !reactor->asking && p < peers->all_count; p++) {
        peers->list[p].heard_ns = reactor->now_ns;
        peers->list[p].spoke_ns = 0;
        sweeper_note_member(reactor->kvf->sweeper, peers->list[p].world_rank, 0, 0);
    }
    reactor->asking = asking;
}

/* From idle to work: nobody had a reason to speak before. */
static void peers_note_work(struct reactor *reactor, bool has_work)
{
    struct peers *peers = &reactor->kvf->peers;

    if (has_work && !reactor->had_work)
        for (uint32_t p = 0; p < peers->all_count; p++)
            peers->list[p].heard_ns = reactor->now_ns;
    reactor->had_work = has_work;
}

bool peers_check(struct reactor *reactor)
{
    struct peers *peers = &reactor->kvf->peers;

    peers_note_work(reactor, reactor_has_work(reactor));
    if (reactor->now_ns < reactor->check_ns)
        return false;
    reactor->check_ns = reactor->now_ns + REACTOR_CHECK_NS;
    members_note_asking(reactor);
    peers_pidfds(reactor);
    for (uint32_t p = 0; p < peers->all_count; p++) {
        struct peer *peer = &peers->list[p];
        enum channel_cause lost;

        channel_tick(&peer->channel, reactor->now_ns, &lost);
        if (lost != CHANNEL_CAUSE_NONE)
            peer_note_loss(reactor, peer, channel_cause_text(lost));
        if (peer->member && reactor->asking && peer_speaks(peer))
            member_heartbeat(reactor, peer);
        else if (!peer->member && reactor->had_work && peer_speaks(peer))
            peer_heartbeat(reactor, peer);
        if (peer->endpoint == PEER_ENDPOINT_UNWANTED)
            peer_close_lost(reactor, peer);
    }
    return true;
}

uint64_t peers_deadline_ns(const struct reactor *reactor)
{
    const struct peers *peers = &reactor->kvf->peers;
    const struct kvf_settings *settings = &reactor->kvf->settings;
    uint64_t deadline_ns = UINT64_MAX;

    for (uint32_t p = 0; p < peers->all_count; p++) {
        const struct peer *peer = &peers->list[p];
        uint64_t at_ns = channel_deadline_ns(&peer->channel);

        if ((peer->member ? reactor->asking : reactor->had_work) && peer_speaks(peer)) {
            uint64_t ping_ns = peer->spoke_ns + settings->heartbeat_interval_ms * CLOCK_NS_PER_MS;
            uint64_t lost_ns = peer->heard_ns + settings->peer_lost_ms * CLOCK_NS_PER_MS;

            at_ns = ping_ns < at_ns ? ping_ns : at_ns;
            if (!peer->member) /* a silent member is asked on and on */
                at_ns = lost_ns < at_ns ? lost_ns : at_ns;
        }
        deadline_ns = at_ns < deadline_ns ? at_ns : deadline_ns;
    }
    return deadline_ns;
}
