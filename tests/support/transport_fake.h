/*
 * transport_fake.h - the transport table in one process: several ranks, real memory, made-up
 * network.
 *
 * Nothing happens by itself: fake_net_step() moves the network's time by one, and what is due
 * lands.
 * A put writes its bytes when it lands, at a random step after it was posted, in any order between
 * flushes. Messages of a pair keep their order unless told otherwise. The same seed gives the same
 * run.
 *
 * Counts what must never happen: writes that land in memory that was released, and source bytes
 * that changed between the post and the landing.
 */
#ifndef TEST_TRANSPORT_FAKE_H
#define TEST_TRANSPORT_FAKE_H

#include "xfer/transport.h"

struct fake_net;

struct fake_params {
    uint32_t ranks; /* > 0 */
    uint64_t seed;
    uint32_t delay_max; /* steps that a put or message takes at most; 0 = lands at the next step */
    uint32_t operations_max; /* per rank, then BUSY; 0 = 1,024 */
    bool messages_reorder;   /* T1: UCX does not promise order */
    uint32_t immediate_of_8; /* of 8 puts so many are complete at once (OK instead of AGAIN) */
};

struct fake_counts {
    uint64_t puts, put_bytes, messages, message_bytes, flushes;
    uint64_t late_writes; /* landed in released memory: a broken promise of the code under test */
    uint64_t source_changes; /* source bytes changed while they were borrowed */
    uint64_t inflight_max;   /* most operations of one rank at once */
};

/* NULL = out of memory. Gives: fake_net_close(). */
struct fake_net *fake_net_open(const struct fake_params *params);
/* Also releases memory and remotes that are left over; returns how many were. NULL is fine. */
uint64_t fake_net_close(struct fake_net *net);

/* The table of one rank; belongs to the net (its close() only marks it as closed). */
struct transport *fake_net_transport(struct fake_net *net, uint32_t rank);

/* Ranks of the same host are near; all are on host 0 at first. Before connect. */
void fake_net_host(struct fake_net *net, uint32_t rank, uint32_t host);
/* This rank's memory cannot be mapped by others from now on. */
void fake_net_deny_mapping(struct fake_net *net, uint32_t rank);

/* One step of time. Returns how many things landed. */
uint32_t fake_net_step(struct fake_net *net);
/* Nothing is under way between ranks. */
bool fake_net_quiet(const struct fake_net *net);

/* The rank is dead: what it posted never lands or ends, others get peer_error (far ones only). */
void fake_net_kill(struct fake_net *net, uint32_t rank);
/* Nothing passes between the two until the link is mended. */
void fake_net_cut(struct fake_net *net, uint32_t a, uint32_t b, bool cut);
/* Far or control trouble of `rank` with `peer`: posts end with an error, and peer_error is told. */
void fake_net_break(struct fake_net *net, uint32_t rank, uint32_t peer);

struct fake_counts fake_net_counts(const struct fake_net *net);

#endif /* TEST_TRANSPORT_FAKE_H */
