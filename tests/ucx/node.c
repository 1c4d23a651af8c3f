/* node.c - see node.h. */
#include "node.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

static void node_message(void *self, const void *bytes, size_t len_bytes)
{
    struct node *node = self;

    ++node->messages;
    node->message_bytes += len_bytes;
    if (node->on_message != NULL) {
        node->on_message(node, bytes, len_bytes);
    }
}

static void node_done(void *self, transport_token token, enum kvf_status status)
{
    struct node *node = self;
    int *slot = &node->done[token % NODE_TOKENS];

    node->done_twice += *slot != NODE_PENDING;
    *slot = (int)status;
    ++node->done_count;
    node->done_errors += status != KVF_OK;
}

static void node_error(void *self, uint32_t peer, enum kvf_status status)
{
    struct node *node = self;

    (void)status;
    ++node->errors[peer];
}

void node_be_far(struct node *node)
{
    static char root[64];
    char path[160];
    FILE *file;

    /* A host of its own for UCX, too, where that is allowed. */
    if (unshare(CLONE_NEWIPC) == 0) {
        return;
    }
    snprintf(root, sizeof(root), "/tmp/kvf_far.%d", (int)getpid());
    mkdir(root, 0700);
    snprintf(path, sizeof(path), "%s/proc", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/sys", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/sys/kernel", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random", root);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", root);
    file = fopen(path, "w");
    if (file != NULL) {
        fprintf(file, "host of process %d\n", (int)getpid());
        fclose(file);
    }
    node->params.machine_root = root;
}

static void node_forget_root(const char *root)
{
    static const char *const parts[] = {"/proc/sys/kernel/random/boot_id",
                                        "/proc/sys/kernel/random",
                                        "/proc/sys/kernel",
                                        "/proc/sys",
                                        "/proc",
                                        ""};
    char path[160];

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); ++i) {
        snprintf(path, sizeof(path), "%s%s", root, parts[i]);
        remove(path);
    }
}

enum kvf_status node_open(struct node *node, struct ranks *ranks)
{
    const struct transport_sink sink = {
        .self = node, .message = node_message, .done = node_done, .peer_error = node_error};
    enum kvf_status status;

    node->ranks = ranks;
    for (size_t i = 0; i < NODE_TOKENS; ++i) {
        node->done[i] = NODE_PENDING;
    }
    if (node->params.heap == NULL) {
        node->params.heap = kvf_heap_system();
    }
    if (node->params.peers_max == 0) {
        node->params.peers_max = ranks->count;
    }
    node->params.rank = ranks->rank;
    if (node->params.logger == NULL && getenv("KVF_TEST_LOG") != NULL) {
        static struct logger logger = {.level = KVF_LOG_DEBUG};
        node->params.logger = &logger;
    }
    status = transport_ucx_open(&node->params, &node->t, node->reason);
    if (node->params.machine_root != NULL &&
        strncmp(node->params.machine_root, "/tmp/kvf_far.", 13) == 0) {
        /* Only its boot id was wanted; memory is asked of the real machine no more after this. */
        node_forget_root(node->params.machine_root);
    }
    if (status == KVF_OK) {
        node->t->set_sink(node->t->self, &sink);
    }
    return status;
}

int node_connect(struct node *node)
{
    char address[TRANSPORT_ADDRESS_BYTES_MAX];
    size_t len;
    int wrong = 0;

    RANK_CHECK(wrong, node->t->address(node->t->self, address, sizeof(address), &len) == KVF_OK);
    for (uint32_t r = 0; r < node->ranks->count; ++r) {
        if (r != node->ranks->rank) {
            ranks_give(node->ranks, r, address, len);
        }
    }
    for (uint32_t r = 0; r < node->ranks->count; ++r) {
        if (r != node->ranks->rank) {
            long got = ranks_take(node->ranks, r, address, sizeof(address));
            RANK_CHECK(wrong, got > 0);
            RANK_CHECK(wrong, got > 0 && node->t->connect(node->t->self, r, address, (size_t)got) ==
                                             KVF_OK);
        }
    }
    return wrong;
}

int node_swap_keys(struct node *node, const struct transport_memory *memory,
                   struct transport_remote **remotes_out)
{
    char key[TRANSPORT_KEY_BYTES_MAX];
    size_t len;
    int wrong = 0;

    RANK_CHECK(wrong,
               node->t->memory_pack(node->t->self, memory, key, sizeof(key), &len) == KVF_OK);
    for (uint32_t r = 0; r < node->ranks->count; ++r) {
        if (r != node->ranks->rank) {
            ranks_give(node->ranks, r, key, len);
        }
    }
    for (uint32_t r = 0; r < node->ranks->count; ++r) {
        remotes_out[r] = NULL;
        if (r != node->ranks->rank) {
            long got = ranks_take(node->ranks, r, key, sizeof(key));
            RANK_CHECK(wrong, got > 0);
            RANK_CHECK(wrong,
                       got > 0 && node->t->remote_open(node->t->self, r, key, (size_t)got,
                                                       &remotes_out[r], node->reason) == KVF_OK);
        }
    }
    return wrong;
}

/* One pass; asleep when idle, for 50 ms at most (a value may change by another's store). */
static void node_pass(struct node *node)
{
    struct pollfd fds[3];
    int descriptors[3];

    if (node->t->poll(node->t->self) > 0 || node->t->arm(node->t->self) != KVF_OK) {
        return;
    }
    node->t->descriptors(node->t->self, descriptors);
    for (int i = 0; i < 3; ++i) {
        fds[i] = (struct pollfd){.fd = descriptors[i], .events = POLLIN};
    }
    (void)poll(fds, 3, 50);
}

bool node_until(struct node *node, const uint64_t *value, uint64_t want)
{
    uint64_t deadline_ns = clock_now_ns() + NODE_SECONDS * CLOCK_NS_PER_S;

    while (*(volatile const uint64_t *)value < want) {
        if (clock_now_ns() > deadline_ns) {
            return false;
        }
        node_pass(node);
    }
    return true;
}

bool node_until_done(struct node *node, transport_token token)
{
    uint64_t deadline_ns = clock_now_ns() + NODE_SECONDS * CLOCK_NS_PER_S;

    while (node->done[token % NODE_TOKENS] == NODE_PENDING) {
        if (clock_now_ns() > deadline_ns) {
            return false;
        }
        node_pass(node);
    }
    return true;
}

enum kvf_status node_finish(struct node *node, enum kvf_status status, transport_token token)
{
    if (status != KVF_AGAIN) {
        return status;
    }
    return node_until_done(node, token) ? (enum kvf_status)node->done[token % NODE_TOKENS]
                                        : KVF_E_TIMEOUT;
}

enum kvf_status node_send(struct node *node, uint32_t peer, const void *bytes, size_t len,
                          transport_token token)
{
    return node_finish(node, node->t->send(node->t->self, peer, bytes, len, token), token);
}

void node_barrier(struct node *node)
{
    struct ranks *ranks = node->ranks;
    uint64_t deadline_ns = clock_now_ns() + NODE_SECONDS * CLOCK_NS_PER_S;

    for (uint32_t r = 0; r < ranks->count; ++r) {
        if (r != ranks->rank) {
            ranks_give(ranks, r, "b", 1);
        }
    }
    for (uint32_t r = 0; r < ranks->count; ++r) {
        struct pollfd wait_for = {.fd = ranks->sockets[r], .events = POLLIN};
        char byte;
        if (r == ranks->rank) {
            continue;
        }
        while (poll(&wait_for, 1, 1) != 1 && clock_now_ns() < deadline_ns) {
            (void)node->t->poll(node->t->self);
        }
        (void)ranks_take(ranks, r, &byte, 1);
    }
}

void node_close(struct node *node)
{
    uint64_t start_ns = clock_now_ns();

    node->t->close(node->t->self, start_ns + 2 * CLOCK_NS_PER_S);
    if (clock_now_ns() - start_ns > CLOCK_NS_PER_S) {
        fprintf(stderr, "rank %u: close took %.1f s\n", node->ranks->rank,
                (double)(clock_now_ns() - start_ns) / 1e9);
    }
    node->t = NULL;
}
