/*
 * node.h - one rank's transport in a test: opened, connected, and what it told.
 */
#ifndef TEST_UCX_NODE_H
#define TEST_UCX_NODE_H

#include "ranks.h"
#include "xfer/transport_open.h"

#define NODE_TOKENS 8192
#define NODE_PENDING 99 /* of done[]: not told */
#define NODE_SECONDS 20

struct node {
    struct ranks *ranks;
    struct transport *t;
    struct transport_ucx_params params;
    int done[NODE_TOKENS]; /* status, or NODE_PENDING */
    uint64_t done_count, done_errors, done_twice;
    uint64_t messages, message_bytes;
    void (*on_message)(struct node *node, const void *bytes, size_t len_bytes);
    void *test;
    uint32_t errors[RANKS_MAX];
    char reason[TRANSPORT_REASON_BYTES];
};

/* Pretends that this rank is alone on a host: far from all others. Call before node_open(). */
void node_be_far(struct node *node);
/* Opens with the params set; 0 params are filled in. */
enum kvf_status node_open(struct node *node, struct ranks *ranks);
/* Swaps addresses and connects to all. Returns what was wrong. */
int node_connect(struct node *node);
/* Gives this rank's key of `memory` to all ranks, opens theirs. */
int node_swap_keys(struct node *node, const struct transport_memory *memory,
                   struct transport_remote **remotes_out);
/* Polls, asleep when idle, until *value >= want. False = the deadline came. */
bool node_until(struct node *node, const uint64_t *value, uint64_t want);
/* The same until token is told. */
bool node_until_done(struct node *node, transport_token token);
/* Posts a send and waits for its end; the status. */
enum kvf_status node_send(struct node *node, uint32_t peer, const void *bytes, size_t len,
                          transport_token token);
/* Status of a call that may be AGAIN: waits for the end. */
enum kvf_status node_finish(struct node *node, enum kvf_status status, transport_token token);
/* Polls as long as a rank needs to come to a barrier of sockets. */
void node_barrier(struct node *node);
void node_close(struct node *node);

#endif /* TEST_UCX_NODE_H */
