/*
 * reactor_life.c - before the first request and after the last one: warm-up, goodbye, endpoints;
 * and looking inside meanwhile.
 */
#include "reactor_internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- warm-up -------------------------------------------------------------------------------- */

static enum kvf_status warm_flush(struct reactor *reactor, const struct peer *peer)
{
    struct transport *transport = reactor->transport;
    enum transport_plane plane = peer->near ? TRANSPORT_NEAR : TRANSPORT_FAR;
    enum kvf_status status = KVF_BUSY;

    if (reactor->send == NULL || peer->verdict != KVF_OK || peer->member)
        return KVF_OK; /* only writers put */
    for (unsigned tries = 0; tries < 1000 && status == KVF_BUSY; tries++) {
        status =
            transport->flush(transport->self, peer->world_rank, plane, REACTOR_TOKEN(TOKEN_WARM));
        transport->poll(transport->self);
    }
    if (status == KVF_AGAIN)
        reactor->warm_pending++;
    return status < 0 ? status : KVF_OK;
}

/* The first peer that has not answered, or NULL. */
static struct peer *warm_missing(struct reactor *reactor)
{
    struct peers *peers = &reactor->kvf->peers;

    for (uint32_t p = 0; p < peers->all_count; p++)
        if (peers->list[p].pong_nonce == 0 && peers->list[p].epoch != 0)
            return &peers->list[p];
    return NULL;
}

enum kvf_status reactor_warm_up(struct reactor *reactor, uint64_t deadline_ns,
                                const char **missing_out)
{
    struct peers *peers = &reactor->kvf->peers;
    struct peer *missing;

    *missing_out = "";
    for (uint32_t p = 0; p < peers->all_count; p++) {
        enum kvf_status status = warm_flush(reactor, &peers->list[p]);

        if (status != KVF_OK) {
            *missing_out = peers->list[p].name;
            return status;
        }
        peer_ping(reactor, &peers->list[p]);
    }
    while ((missing = warm_missing(reactor)) != NULL || reactor->warm_pending > 0) {
        if (clock_now_ns() >= deadline_ns) {
            *missing_out = missing == NULL ? "its data plane" : missing->name;
            return KVF_E_TIMEOUT;
        }
        if (!reactor_pass(reactor))
            sched_yield();
    }
    return KVF_OK;
}

/* ---- closing -------------------------------------------------------------------------------- */

void reactor_goodbye(struct reactor *reactor, bool no_access, uint64_t deadline_ns)
{
    const struct timespec nap = {.tv_nsec = 100000};
    const struct command command = {.kind = COMMAND_GOODBYE, .u.no_access = no_access};
    struct ring_entry entry = {{0}};

    memcpy(&entry, &command, sizeof(command));
    while (!ring_put(reactor->commands, &entry) && clock_now_ns() < deadline_ns)
        if (!reactor_help(reactor))
            nanosleep(&nap, NULL);
    waker_wake(&reactor->waker);
    while (clock_now_ns() < deadline_ns) {
        bool empty;

        pthread_mutex_lock(&reactor->lock);
        empty = outbox_empty(reactor->outbox);
        pthread_mutex_unlock(&reactor->lock);
        if (empty && atomic_load(&reactor->said_goodbye))
            return;
        if (!reactor_help(reactor))
            nanosleep(&nap, NULL);
    }
}

bool reactor_disconnect(struct reactor *reactor, uint64_t deadline_ns)
{
    struct transport *transport = reactor->transport;
    struct peers *peers = &reactor->kvf->peers;

    reactor->closing = true;
    if (!list_empty(&reactor->active))
        return false; /* a write is not over: its mapping must stay */
    for (uint32_t p = 0; p < peers->all_count; p++) {
        struct peer *peer = &peers->list[p];
        enum kvf_status status;

        if (peer->endpoint == PEER_ENDPOINT_CLOSING)
            reactor->close_pending++;
        if (peer->endpoint == PEER_ENDPOINT_CLOSING || peer->endpoint == PEER_ENDPOINT_CLOSED)
            continue;
        for (uint32_t pool = 0; pool < peer->pool_count && peer->remotes != NULL; pool++) {
            transport->remote_release(transport->self, peer->remotes[pool]);
            peer->remotes[pool] = NULL;
        }
        do {
            status = transport->disconnect(transport->self, peer->world_rank, peer->lost,
                                           REACTOR_TOKEN(TOKEN_CLOSE) + p);
            transport->poll(transport->self);
        } while (status == KVF_BUSY && clock_now_ns() < deadline_ns);
        if (status == KVF_AGAIN)
            reactor->close_pending++;
    }
    while ((reactor->close_pending > 0 || !outbox_empty(reactor->outbox)) &&
           clock_now_ns() < deadline_ns)
        if (transport->poll(transport->self) == 0)
            sched_yield();
    if (reactor->close_pending > 0)
        log_warn(&reactor->kvf->logger, "W23", "%u endpoints did not close in time",
                 reactor->close_pending);
    return reactor->close_pending == 0;
}

/* ---- looking inside -------------------------------------------------------------------------- */

void reactor_log(struct reactor *reactor, const struct session_log *log)
{
    const struct peers *peers = &reactor->kvf->peers;
    char ranks[256] = "";
    char code[96] = "";
    char number[32] = "";
    size_t at = 0;
    /* Publishing said it, with both sides' values. */
    enum kvf_log_level level = strcmp(log->event, "W27") == 0 ? KVF_LOG_DEBUG : log->level;

    for (uint32_t r = 0; r < log->rank_count && r < SESSION_LOG_RANKS && at < sizeof(ranks); r++) {
        const struct peer *peer = peer_of_rank(peers, log->ranks[r]);
        int len = snprintf(ranks + at, sizeof(ranks) - at, "%s%s", r == 0 ? "; " : ", ",
                           peer != NULL ? peer->name : "?");

        at += len < 0 ? 0 : (size_t)len;
    }
    if (log->code != KVF_OK)
        snprintf(code, sizeof(code), ": %s", kvf_status_text(log->code));
    if (log->number != 0)
        snprintf(number, sizeof(number), " (%llu)", (unsigned long long)log->number);
    log_write(&reactor->kvf->logger, level, log->event, "request %llu: %s%s%s%s",
              (unsigned long long)log->rid, log->text, number, code, ranks);
}

static const char *dump_name(const struct reactor *reactor, uint32_t world_rank)
{
    const struct peer *peer = peer_of_rank(&reactor->kvf->peers, world_rank);

    return peer == NULL ? "?" : peer->name;
}

static void dump_send(struct reactor *reactor, FILE *file)
{
    struct send_description it;
    const void *cursor = NULL;

    while (send_session_describe(reactor->send, &cursor, &it)) {
        fprintf(file, "  request %llu: %s, waits for %s, vote %s, %u slices%s, %u writes running",
                (unsigned long long)it.rid, it.state, it.waiting, session_vote_name(it.vote),
                it.slices, it.last_window ? "" : " so far", it.access);
        if (it.code != KVF_OK)
            fprintf(file, ", %s", kvf_status_text(it.code));
        for (uint32_t r = 0; r < it.receiver_count; r++)
            fprintf(file, "%s%s %s (%u)", r == 0 ? "; " : ", ",
                    dump_name(reactor, it.receiver[r].rank), it.receiver[r].state,
                    it.receiver[r].slices_done);
        fprintf(file, "%s\n", it.receivers > it.receiver_count ? ", ..." : "");
    }
}

static void dump_recv(struct reactor *reactor, FILE *file)
{
    struct recv_description it;
    const void *cursor = NULL;

    while (recv_session_describe(reactor->recv, &cursor, &it)) {
        fprintf(file, "  request %llu (tag %u): %s, waits for %s, vote %s, %u blocks",
                (unsigned long long)it.rid, it.tag, it.state, it.waiting,
                session_vote_name(it.vote), it.blocks);
        if (it.code != KVF_OK)
            fprintf(file, ", %s", kvf_status_text(it.code));
        for (uint32_t w = 0; w < it.writer_count; w++)
            fprintf(file, "%s%s %s", w == 0 ? "; " : ", ", dump_name(reactor, it.writer[w].rank),
                    it.writer[w].state);
        fprintf(file, "%s\n", it.unmarked > it.writer_count ? ", ..." : "");
    }
}

void reactor_dump(struct reactor *reactor, FILE *file)
{
    const struct kvf *kvf = reactor->kvf;

    atomic_fetch_add(&reactor->guests, 1);
    pthread_mutex_lock(&reactor->lock);
    for (uint32_t p = 0; p < kvf->peers.all_count; p++) {
        const struct peer *peer = &kvf->peers.list[p];

        fprintf(file, "  peer %s: %s, heard %llu ms ago, %u puts out\n", peer->name,
                peer->lost                ? "lost"
                : peer->gone              ? "gone"
                : peer->verdict != KVF_OK ? kvf_status_text(peer->verdict)
                                          : "up",
                (unsigned long long)((reactor->now_ns - peer->heard_ns) / CLOCK_NS_PER_MS),
                peer->puts_inflight);
    }
    if (reactor->send != NULL)
        dump_send(reactor, file);
    else
        dump_recv(reactor, file);
    pthread_mutex_unlock(&reactor->lock);
    atomic_fetch_sub(&reactor->guests, 1);
}
