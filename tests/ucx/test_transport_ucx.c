/*
 * test_transport_ucx.c - the transport over UCX between a few processes, without a launcher.
 *
 * "Far" ranks are ranks of this machine that believe in different hosts: their puts take the
 * network.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "node.h"

static unsigned char pattern(uint64_t seed, uint64_t at)
{
    return (unsigned char)((seed * 31 + at) * UINT64_C(0x9e3779b97f4a7c15) >> 56);
}

static void fill(void *bytes, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; ++i) {
        ((unsigned char *)bytes)[i] = pattern(seed, i);
    }
}

static bool holds(const void *bytes, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; ++i) {
        if (((const unsigned char *)bytes)[i] != pattern(seed, i)) {
            return false;
        }
    }
    return true;
}

/* ---- messages ---- */

static const size_t message_sizes[] = {1,    2,    7,     40,    100,     1000,    8000,   8191,
                                       8192, 8257, 65536, 70001, 1000003, 4194304, 13,     5000,
                                       1,    9000, 300,   65535, 4194303, 1,       100000, 64};
#define MESSAGE_COUNT (sizeof(message_sizes) / sizeof(message_sizes[0]))
#define MESSAGE_ROUNDS 4

static void check_next_message(struct node *node, const void *bytes, size_t len_bytes)
{
    uint64_t number = node->messages - 1;
    int *wrong = node->test;

    RANK_CHECK(*wrong, len_bytes == message_sizes[number % MESSAGE_COUNT]);
    RANK_CHECK(*wrong, holds(bytes, len_bytes, number));
}

static int message_rank(struct ranks *ranks)
{
    static struct node node;
    static char *bytes[MESSAGE_COUNT];
    int wrong = 0;

    node.test = &wrong;
    node.on_message = check_next_message;
    if (ranks->argument != NULL) {
        node_be_far(&node);
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    wrong += node_connect(&node);
    for (uint64_t round = 0; ranks->rank == 0 && round < MESSAGE_ROUNDS; ++round) {
        uint64_t before = node.done_count, later = 0;
        for (size_t i = 0; i < MESSAGE_COUNT; ++i) {
            uint64_t number = round * MESSAGE_COUNT + i;
            bytes[i] = malloc(message_sizes[i]);
            fill(bytes[i], message_sizes[i], number);
            enum kvf_status status =
                node.t->send(node.t->self, 1, bytes[i], message_sizes[i], number);
            RANK_CHECK(wrong, status == KVF_OK || status == KVF_AGAIN);
            later += status == KVF_AGAIN;
        }
        RANK_CHECK(wrong, node_until(&node, &node.done_count, before + later));
        for (size_t i = 0; i < MESSAGE_COUNT; ++i) {
            free(bytes[i]);
        }
    }
    if (ranks->rank == 1) {
        RANK_CHECK(wrong, node_until(&node, &node.messages, MESSAGE_ROUNDS * MESSAGE_COUNT));
    }
    RANK_CHECK(wrong, node.done_errors == 0 && node.done_twice == 0);
    node_barrier(&node);
    node_close(&node);
    return wrong;
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    ranks_pass(2, message_rank, NULL);
}

static void messages_over_the_network_arrive_whole_and_in_order(void **state)
{
    (void)state;
    ranks_pass(2, message_rank, "far");
}

/* ---- puts ---- */

#define POOL_BYTES (8u << 20)

struct put_case {
    bool far;        /* over the network */
    bool registered; /* the reader's memory is its own, not shared */
    bool handle;     /* the writer names its source's registration */
};

static const uint64_t put_sizes[] = {1, 3, 64, 512, 4096, 3670, 36864, 262144, 1048577};
#define PUT_COUNT (sizeof(put_sizes) / sizeof(put_sizes[0]))

/* Pieces with a gap of 7 bytes between them, from byte 5 on. */
static int put_all(struct node *node, struct transport_remote *remote,
                   const struct transport_memory *source, const char *local)
{
    uint64_t at = 5;
    uint64_t before = node->done_count, later = 0;
    int wrong = 0;

    for (size_t i = 0; i < PUT_COUNT; at += put_sizes[i] + 7, ++i) {
        const struct transport_put put = {.remote = remote,
                                          .source = source,
                                          .local = local + at,
                                          .address = node->t->remote_base(remote) + at,
                                          .len_bytes = put_sizes[i],
                                          .token = 100 + i};
        enum kvf_status status = node->t->put(node->t->self, &put);
        RANK_CHECK(wrong, status == KVF_OK || status == KVF_AGAIN);
        later += status == KVF_AGAIN;
    }
    RANK_CHECK(wrong, node_until(node, &node->done_count, before + later));
    RANK_CHECK(wrong,
               node_finish(node,
                           node->t->flush(node->t->self, 1, node->t->remote_plane(remote), 200),
                           200) == KVF_OK);
    return wrong;
}

static int put_refused(struct node *node, struct transport_remote *remote, const char *local)
{
    static const struct {
        int64_t offset;
        uint64_t len;
    } cases[] = {{0, 0},          {-1, 1},
                 {POOL_BYTES, 1}, {POOL_BYTES - 1, 2},
                 {1, UINT64_MAX}, {0, POOL_BYTES + 1}};
    int wrong = 0;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        const struct transport_put put = {.remote = remote,
                                          .local = local,
                                          .address = node->t->remote_base(remote) +
                                                     (uint64_t)cases[i].offset,
                                          .len_bytes = cases[i].len};
        RANK_CHECK(wrong, node->t->put(node->t->self, &put) == KVF_E_INVAL);
    }
    return wrong;
}

static int check_pool(const char *pool)
{
    static char expected[POOL_BYTES];
    uint64_t at = 5;
    int wrong = 0;

    memset(expected, 0, sizeof(expected));
    for (size_t i = 0; i < PUT_COUNT; at += put_sizes[i] + 7, ++i) {
        for (uint64_t b = 0; b < put_sizes[i]; ++b) {
            expected[at + b] = (char)pattern(77, at + b);
        }
    }
    RANK_CHECK(wrong, memcmp(pool, expected, POOL_BYTES) == 0);
    return wrong;
}

static int put_rank(struct ranks *ranks)
{
    static struct node node;
    const struct put_case *which = ranks->argument;
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    char *own = calloc(1, POOL_BYTES);
    int wrong = 0;

    if (which->far) {
        node_be_far(&node);
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    if (which->registered || ranks->rank == 0) {
        RANK_CHECK(wrong, node.t->memory_register(node.t->self, own, POOL_BYTES, &memory,
                                                  node.reason) == KVF_OK);
    } else {
        RANK_CHECK(wrong,
                   node.t->memory_alloc(node.t->self, POOL_BYTES, &memory, node.reason) == KVF_OK);
    }
    if (wrong != 0) {
        fprintf(stderr, "%s\n", node.reason);
        return wrong;
    }
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    if (ranks->rank == 0) {
        fill(own, POOL_BYTES, 77);
        bool mapped = node.t->remote_mapped(remotes[1]) != NULL;
        RANK_CHECK(wrong, mapped == (!which->far && !which->registered));
        RANK_CHECK(wrong, mapped == (node.reason[0] == '\0'));
        RANK_CHECK(wrong, (node.t->remote_plane(remotes[1]) == TRANSPORT_FAR) == which->far);
        RANK_CHECK(wrong, node.t->remote_len(remotes[1]) == POOL_BYTES);
        RANK_CHECK(wrong,
                   node.t->flush(node.t->self, 1, which->far ? TRANSPORT_NEAR : TRANSPORT_FAR, 1) ==
                       KVF_E_NOTFOUND);
        wrong += put_refused(&node, remotes[1], own);
        wrong += put_all(&node, remotes[1], which->handle ? memory : NULL, own);
        RANK_CHECK(wrong, node_send(&node, 1, "there", 5, 201) == KVF_OK);
    } else {
        RANK_CHECK(wrong, node_until(&node, &node.messages, 1));
        wrong += check_pool(node.t->memory_base(memory));
    }
    RANK_CHECK(wrong, node.done_errors == 0 && node.done_twice == 0);
    node_barrier(&node);
    node.t->remote_release(node.t->self, remotes[1 - ranks->rank]);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    free(own);
    return wrong;
}

static void puts_and_a_flush_place_every_byte_and_no_other(void **state)
{
    (void)state;
    for (int bits = 0; bits < 8; ++bits) {
        struct put_case which = {(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0};
        ranks_pass(2, put_rank, &which);
    }
}

static int cap_rank(struct ranks *ranks)
{
    static struct node node = {.params = {.operations_max = 64}};
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    static char local[512];
    uint64_t inflight_max = 0, posted = 0;
    int wrong = 0;

    node_be_far(&node);
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, POOL_BYTES, &memory, node.reason) == KVF_OK);
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    uint64_t later = 0;
    while (ranks->rank == 0 && posted < 100000 && wrong == 0) {
        const struct transport_put put = {.remote = remotes[1],
                                          .local = local,
                                          .address = node.t->remote_base(remotes[1]) +
                                                     posted * 512 % POOL_BYTES,
                                          .len_bytes = 512,
                                          .token = posted};
        node.done[posted % NODE_TOKENS] = NODE_PENDING;
        enum kvf_status status = node.t->put(node.t->self, &put);
        later += status == KVF_AGAIN;
        posted += status == KVF_AGAIN || status == KVF_OK;
        RANK_CHECK(wrong, status >= KVF_OK);
        if (later - node.done_count > inflight_max) {
            inflight_max = later - node.done_count;
        }
        if (status == KVF_BUSY) {
            (void)node.t->poll(node.t->self);
        }
    }
    RANK_CHECK(wrong, inflight_max <= 64);
    if (ranks->rank == 0) {
        RANK_CHECK(wrong, node_until(&node, &node.done_count, later));
        node.done[0] = NODE_PENDING;
        RANK_CHECK(wrong, node_finish(&node, node.t->flush(node.t->self, 1, TRANSPORT_FAR, 0), 0) ==
                              KVF_OK);
        RANK_CHECK(wrong, node_send(&node, 1, "x", 1, 1) >= KVF_OK);
    } else {
        RANK_CHECK(wrong, node_until(&node, &node.messages, 1));
    }
    node_barrier(&node);
    node.t->remote_release(node.t->self, remotes[1 - ranks->rank]);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void posted_operations_never_exceed_the_cap(void **state)
{
    (void)state;
    ranks_pass(2, cap_rank, NULL);
}

/* ---- mapping ---- */

static int mapped_rank(struct ranks *ranks)
{
    static struct node node;
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, POOL_BYTES + 1, &memory, node.reason) == KVF_OK);
    char *mine = node.t->memory_base(memory);
    RANK_CHECK(wrong, (uintptr_t)mine % (uintptr_t)sysconf(_SC_PAGESIZE) == 0);
    for (size_t i = 0; i <= POOL_BYTES; ++i) {
        wrong += mine[i] != 0;
    }
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    for (uint32_t r = 0; r < ranks->count; ++r) {
        RANK_CHECK(wrong, r == ranks->rank || node.t->is_near(node.t->self, r));
        RANK_CHECK(wrong, r == ranks->rank || node.t->peer_pid(node.t->self, r) != 0);
        RANK_CHECK(wrong, r == ranks->rank || node.t->remote_mapped(remotes[r]) != NULL);
    }
    /* Each writes a third of the next rank's pool; the last byte too. */
    uint32_t next = (ranks->rank + 1) % ranks->count;
    char *theirs = node.t->remote_mapped(remotes[next]);
    fill(theirs, POOL_BYTES + 1, ranks->rank);
    node_barrier(&node);
    RANK_CHECK(wrong, holds(mine, POOL_BYTES + 1, (ranks->rank + ranks->count - 1) % ranks->count));
    node_barrier(&node);
    for (uint32_t r = 0; r < ranks->count; ++r) {
        node.t->remote_release(node.t->self, remotes[r]);
    }
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void stores_into_a_mapping_reach_its_owner(void **state)
{
    (void)state;
    ranks_pass(3, mapped_rank, NULL);
}

static int survivor_rank(struct ranks *ranks)
{
    static struct node node;
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, POOL_BYTES, &memory, node.reason) == KVF_OK);
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    node_barrier(&node);
    if (ranks->rank == 1) {
        raise(SIGKILL);
    }
    char byte;
    RANK_CHECK(wrong, ranks_take(ranks, 1, &byte, 1) == -1);
    /* The mapping outlives its owner. */
    fill(node.t->remote_mapped(remotes[1]), POOL_BYTES, 3);
    RANK_CHECK(wrong, holds(node.t->remote_mapped(remotes[1]), POOL_BYTES, 3));
    enum kvf_status status = node.t->send(node.t->self, 1, "anyone?", 7, 1);
    RANK_CHECK(wrong, status == KVF_OK || status == KVF_AGAIN || status == KVF_E_PEER_LOST);
    node.t->remote_release(node.t->self, remotes[1]);
    RANK_CHECK(wrong, node.t->disconnect(node.t->self, 1, true, 2) == KVF_AGAIN);
    RANK_CHECK(wrong, node.t->send(node.t->self, 1, "anyone?", 7, 3) == KVF_E_NOTFOUND);
    RANK_CHECK(wrong, node_until_done(&node, 2));
    RANK_CHECK(wrong, status != KVF_AGAIN || node.done[1] != NODE_PENDING);
    RANK_CHECK(wrong, !node.t->is_near(node.t->self, 1));
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void killed_near_peer_hurts_nobody(void **state)
{
    int results[RANKS_MAX];

    (void)state;
    ranks_run(2, survivor_rank, NULL, 30, results);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -SIGKILL);
}

/* ---- far peers that die ---- */

static int far_loss_rank(struct ranks *ranks)
{
    static struct node node;
    static char local[1u << 20];
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    bool stopped = ranks->argument != NULL;
    int wrong = 0;

    node_be_far(&node);
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, POOL_BYTES, &memory, node.reason) == KVF_OK);
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    RANK_CHECK(wrong, node_send(&node, 1 - ranks->rank, "hello", 5, 1) == KVF_OK);
    RANK_CHECK(wrong, node_until(&node, &node.messages, 1));
    if (ranks->rank == 1) {
        node_barrier(&node);
        raise(stopped ? SIGSTOP : SIGKILL);
    }
    RANK_CHECK(wrong,
               node_finish(&node, node.t->flush(node.t->self, 1, TRANSPORT_FAR, 2), 2) == KVF_OK);
    uint64_t later = 0, before = node.done_count;
    node_barrier(&node);
    for (uint64_t i = 0; i < 40; ++i) {
        const struct transport_put put = {.remote = remotes[1],
                                          .local = local,
                                          .address = node.t->remote_base(remotes[1]),
                                          .len_bytes = sizeof(local),
                                          .token = 10 + i};
        later += node.t->put(node.t->self, &put) == KVF_AGAIN;
    }
    later += node.t->flush(node.t->self, 1, TRANSPORT_FAR, 60) == KVF_AGAIN;
    uint64_t started_ns = clock_now_ns();
    if (!stopped) {
        static uint64_t told;
        while (node.errors[1] == 0 && clock_now_ns() < started_ns + 10 * CLOCK_NS_PER_S) {
            told += node.t->poll(node.t->self);
        }
        printf("a killed far peer was reported after %.2f ms\n",
               (double)(clock_now_ns() - started_ns) / 1e6);
        RANK_CHECK(wrong, node.errors[1] == 1);
        RANK_CHECK(wrong, node.t->send(node.t->self, 1, "x", 1, 3) == KVF_E_PEER_LOST);
    }
    node.t->remote_release(node.t->self, remotes[1]);
    RANK_CHECK(wrong, node.t->disconnect(node.t->self, 1, true, 70) == KVF_AGAIN);
    RANK_CHECK(wrong, node_until_done(&node, 70));
    RANK_CHECK(wrong, node.done[70] == KVF_OK);
    /* All that was posted has been told by now, with an error where it did not finish. */
    RANK_CHECK(wrong, node.done_count == before + later + 1);
    RANK_CHECK(wrong, node.done_twice == 0);
    RANK_CHECK(wrong, node.errors[1] <= 1);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void killed_far_peer_is_reported_once_and_all_posts_end(void **state)
{
    int results[RANKS_MAX];

    (void)state;
    ranks_run(2, far_loss_rank, NULL, 30, results);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], -SIGKILL);
}

static void force_ends_all_posts_to_a_stopped_far_peer(void **state)
{
    int results[RANKS_MAX];

    (void)state;
    ranks_run(2, far_loss_rank, "stopped", 6, results);
    assert_int_equal(results[0], 0);
    assert_int_equal(results[1], RANKS_LATE); /* stopped for good */
}

/* ---- sleeping ---- */

static int sleeper_rank(struct ranks *ranks)
{
    static struct node node;
    int wrong = 0;

    if (ranks->argument != NULL) {
        node_be_far(&node);
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    wrong += node_connect(&node);
    for (uint64_t round = 0; round < 200; ++round) {
        if (ranks->rank == round % 2) {
            RANK_CHECK(wrong, node_send(&node, 1 - ranks->rank, "tick", 4, round) == KVF_OK);
        } else {
            uint64_t start_ns = clock_now_ns();
            RANK_CHECK(wrong, node_until(&node, &node.messages, round / 2 + 1));
            /* One lost wake-up costs 50 ms. */
            RANK_CHECK(wrong, clock_now_ns() - start_ns < 45 * CLOCK_NS_PER_MS || round < 4);
        }
    }
    node_barrier(&node);
    node_close(&node);
    return wrong;
}

static void sleeping_rank_wakes_at_a_message(void **state)
{
    int results[RANKS_MAX];

    (void)state;
    ranks_run(2, sleeper_rank, NULL, 30, results);
    assert_true(results[0] + results[1] <= 2); /* a busy machine may be late twice */
    ranks_run(2, sleeper_rank, "far", 30, results);
    assert_true(results[0] + results[1] <= 2);
}

/* ---- ends ---- */

static int goodbye_rank(struct ranks *ranks)
{
    static struct node node;
    int wrong = 0;

    if (ranks->argument != NULL) {
        node_be_far(&node);
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    for (uint64_t life = 0; life < 3; ++life) {
        uint64_t want = life * (ranks->count - 1);
        wrong += node_connect(&node);
        for (uint32_t r = 0; r < ranks->count; ++r) {
            if (r != ranks->rank) {
                node.done[life * 10 + r] = NODE_PENDING;
                RANK_CHECK(wrong, node_send(&node, r, "hello", 5, life * 10 + r) == KVF_OK);
            }
        }
        RANK_CHECK(wrong, node_until(&node, &node.messages, want + ranks->count - 1));
        node_barrier(&node);
        for (uint32_t r = 0; r < ranks->count; ++r) {
            transport_token token = 100 + life * 10 + r;
            if (r != ranks->rank) {
                RANK_CHECK(wrong, node.t->disconnect(node.t->self, r, false, token) == KVF_AGAIN);
                RANK_CHECK(wrong, node_until_done(&node, token));
                RANK_CHECK(wrong,
                           node.t->disconnect(node.t->self, r, false, token) == KVF_E_NOTFOUND);
            }
        }
        node_barrier(&node);
    }
    RANK_CHECK(wrong, node.done_twice == 0);
    node_close(&node);
    return wrong;
}

static void peers_part_and_meet_again(void **state)
{
    (void)state;
    ranks_pass(3, goodbye_rank, NULL);
    ranks_pass(3, goodbye_rank, "far");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_arrive_whole_and_in_order),
        cmocka_unit_test(messages_over_the_network_arrive_whole_and_in_order),
        cmocka_unit_test(puts_and_a_flush_place_every_byte_and_no_other),
        cmocka_unit_test(posted_operations_never_exceed_the_cap),
        cmocka_unit_test(stores_into_a_mapping_reach_its_owner),
        cmocka_unit_test(killed_near_peer_hurts_nobody),
        cmocka_unit_test(killed_far_peer_is_reported_once_and_all_posts_end),
        cmocka_unit_test(force_ends_all_posts_to_a_stopped_far_peer),
        cmocka_unit_test(sleeping_rank_wakes_at_a_message),
        cmocka_unit_test(peers_part_and_meet_again),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("transport over UCX", tests, NULL, NULL);
}
