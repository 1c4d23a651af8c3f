/*
 * recv_peer.c - writers' ranks that come and go (docs/protocol.md, writer entry).
 *
 * A lost rank may still write until there is proof that it can't: the process is gone, its endpoint
 * is closed and that is enough for the path it used, or it said goodbye without access left.
 */
#include "check.h"
#include "recv_internal.h"

/* The request can't go on without this writer, unless another group serves it. */
static void fail_session(struct recv_side *side, struct recv_writer *writer, enum kvf_status code)
{
    struct recv_session *session = writer->session;
    struct recv_end end = {.outcome = SESSION_FAILED,
                           .code = code,
                           .culprit = writer->rank,
                           .reason = MSG_CANCEL_FAILED};

    if (!recv_live_pending(session))
        return;
    if (session->expected_group != SESSION_GROUP_UNKNOWN &&
        session->expected_group != writer->group)
        return;
    recv_live_turn_bad(side, session, &end);
}

static void writer_lost(struct recv_side *side, struct recv_writer *writer, enum kvf_status code)
{
    bool proof = code == KVF_E_PEER_CLOSED || writer->path_mask == 1u << KVF_PATH_BOUNCE;

    list_remove(&writer->resend);
    list_remove(&writer->cancel.node);
    if (writer->state == RECV_WRITER_DONE)
        return;
    if (writer->state == RECV_WRITER_UNASKED) {
        list_remove(&writer->publish.node);
        fail_session(side, writer, code);
        return;
    }
    if (proof)
        recv_writer_mark(side, writer);
    else
        writer->state = RECV_WRITER_GONE_UNPROVEN;
    fail_session(side, writer, code);
    recv_live_check_drained(side, writer->session);
}

static void life_over(struct recv_side *side, struct recv_peer *peer, enum kvf_status code)
{
    uint64_t epoch = peer->epoch;

    peer->up = false;
    for (struct list *node = list_first(&peer->writers); node != NULL;
         node = list_after(&peer->writers, node)) {
        struct recv_writer *writer = list_object(node, struct recv_writer, of_peer);

        if (writer->epoch == epoch)
            writer_lost(side, writer, code);
    }
}

/* Proof for all work of one life. */
static void proof_for(struct recv_side *side, struct recv_peer *peer, uint64_t epoch)
{
    for (struct list *node = list_first(&peer->writers); node != NULL;
         node = list_after(&peer->writers, node)) {
        struct recv_writer *writer = list_object(node, struct recv_writer, of_peer);

        if (writer->epoch != epoch || writer->state == RECV_WRITER_UNASKED)
            continue;
        recv_writer_mark(side, writer);
        recv_live_check_drained(side, writer->session);
    }
}

/* A rank that was only stopped is asked once more about all that is open with it. */
static void ask_again(struct recv_side *side, struct recv_peer *peer)
{
    for (struct list *node = list_first(&peer->writers); node != NULL;
         node = list_after(&peer->writers, node)) {
        struct recv_writer *writer = list_object(node, struct recv_writer, of_peer);

        if (writer->epoch == peer->epoch && writer->state == RECV_WRITER_GONE_UNPROVEN)
            recv_writer_cancel(side, writer,
                               writer->session->state == RECV_OK ? MSG_CANCEL_END
                                                                 : MSG_CANCEL_FAILED);
    }
}

static void peer_up(struct recv_side *side, struct recv_peer *peer, const struct recv_event *event)
{
    uint64_t before = peer->epoch;
    bool was_up = peer->up;

    if (before != event->u.peer.epoch && before != 0) {
        if (was_up)
            life_over(side, peer, KVF_E_PEER_LOST);
        proof_for(side, peer, before); /* its rank has a new process */
        peer->refusal_logged = false;
    }
    peer->up = true;
    peer->epoch = event->u.peer.epoch;
    peer->verdict = event->u.peer.verdict;
    if (before == peer->epoch && !was_up)
        ask_again(side, peer);
}

void recv_peer_event(struct recv_side *side, const struct recv_event *event)
{
    struct recv_peer *peer;

    if (event->u.peer.peer >= side->params.world_size) {
        side->counts.unexpected_events++;
        return;
    }
    peer = &side->peers[event->u.peer.peer];
    if (event->kind == RECV_PEER_UP) {
        peer_up(side, peer, event);
        return;
    }
    if (event->kind != RECV_PEER_PROOF) {
        life_over(side, peer, event->kind == RECV_PEER_LOST ? KVF_E_PEER_LOST : KVF_E_PEER_CLOSED);
        return;
    }
    if (peer->up && peer->epoch == event->u.peer.epoch)
        life_over(side, peer, KVF_E_PEER_LOST);
    proof_for(side, peer, event->u.peer.epoch);
}
