/* test_transport_fake.c - the fake transport and the fault decorator keep the table's promises. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "transport_fake.h"
#include "transport_fault.h"

#define TOKENS 4096

struct told {
    int done[TOKENS]; /* 0 = not, else 1 + times */
    enum kvf_status status[TOKENS];
    uint64_t messages, errors;
    char last[64];
};

static void on_message(void *self, const void *bytes, size_t len_bytes)
{
    struct told *told = self;

    ++told->messages;
    memcpy(told->last, bytes, len_bytes < 64 ? len_bytes : 64);
}

static void on_done(void *self, transport_token token, enum kvf_status status)
{
    struct told *told = self;

    ++told->done[token];
    told->status[token] = status;
}

static void on_error(void *self, uint32_t peer, enum kvf_status status)
{
    struct told *told = self;

    (void)peer;
    (void)status;
    ++told->errors;
}

/* Two connected ranks; rank 1 has a pool that rank 0 has opened. */
struct pair {
    struct fake_net *net;
    struct transport *t[2];
    struct told told[2];
    struct transport_memory *memory;
    struct transport_remote *remote;
    char reason[TRANSPORT_REASON_BYTES];
};

static void pair_open(struct pair *pair, const struct fake_params *params, bool far,
                      struct fault **fault, const struct fault_plan *plan)
{
    char bytes[256];
    size_t len;

    memset(pair, 0, sizeof(*pair));
    pair->net = fake_net_open(params);
    assert_non_null(pair->net);
    fake_net_host(pair->net, 1, far);
    for (uint32_t r = 0; r < 2; ++r) {
        pair->t[r] = fake_net_transport(pair->net, r);
    }
    if (fault != NULL) {
        *fault = fault_open(pair->t[0], plan);
        pair->t[0] = fault_transport(*fault);
    }
    for (uint32_t r = 0; r < 2; ++r) {
        const struct transport_sink sink = {&pair->told[r], on_message, on_done, on_error};
        pair->t[r]->set_sink(pair->t[r]->self, &sink);
        struct transport *other = pair->t[1 - r];
        assert_int_equal(other->address(other->self, bytes, sizeof(bytes), &len), KVF_OK);
        assert_int_equal(pair->t[r]->connect(pair->t[r]->self, 1 - r, bytes, len), KVF_OK);
    }
    struct transport *t = pair->t[1];
    assert_int_equal(t->memory_alloc(t->self, 4096, &pair->memory, pair->reason), KVF_OK);
    assert_int_equal(t->memory_pack(t->self, pair->memory, bytes, sizeof(bytes), &len), KVF_OK);
    t = pair->t[0];
    assert_int_equal(t->remote_open(t->self, 1, bytes, len, &pair->remote, pair->reason), KVF_OK);
}

static void pair_run(struct pair *pair, int steps)
{
    for (int i = 0; i < steps; ++i) {
        fake_net_step(pair->net);
        for (uint32_t r = 0; r < 2; ++r) {
            pair->t[r]->poll(pair->t[r]->self);
        }
    }
}

static uint64_t pair_close(struct pair *pair)
{
    pair->t[0]->remote_release(pair->t[0]->self, pair->remote);
    pair->t[1]->memory_release(pair->t[1]->self, pair->memory);
    return fake_net_close(pair->net);
}

static enum kvf_status pair_put(struct pair *pair, const void *bytes, uint64_t at, uint64_t len,
                                transport_token token)
{
    const struct transport_put put = {.remote = pair->remote,
                                      .local = bytes,
                                      .address = pair->t[0]->remote_base(pair->remote) + at,
                                      .len_bytes = len,
                                      .token = token};

    return pair->t[0]->put(pair->t[0]->self, &put);
}

static void flush_ends_after_every_earlier_put_has_landed(void **state)
{
    static char bytes[512];

    (void)state;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const struct fake_params params = {
            .ranks = 2, .seed = seed, .delay_max = 7, .immediate_of_8 = (uint32_t)(seed % 4)};
        struct pair pair;
        pair_open(&pair, &params, seed % 2 == 0, NULL, NULL);
        const char *pool = pair.t[1]->memory_base(pair.memory);
        memset(bytes, 'p', sizeof(bytes));
        for (uint64_t i = 0; i < 8; ++i) {
            assert_true(pair_put(&pair, bytes, i * 512, 512, i) >= KVF_OK);
        }
        enum transport_plane plane = pair.t[0]->remote_plane(pair.remote);
        assert_int_equal(pair.t[0]->flush(pair.t[0]->self, 1, plane, 9), KVF_AGAIN);
        for (int i = 0; i < 40 && pair.told[0].done[9] == 0; ++i) {
            pair_run(&pair, 1);
        }
        assert_int_equal(pair.told[0].done[9], 1);
        for (size_t i = 0; i < 4096; ++i) {
            assert_int_equal(pool[i], 'p');
        }
        assert_true(fake_net_quiet(pair.net));
        assert_int_equal(pair_close(&pair), 0);
    }
}

static void messages_keep_order_unless_told_otherwise(void **state)
{
    static const char *const texts[] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    uint64_t last_wrong = 0;

    (void)state;
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const struct fake_params params = {
            .ranks = 2, .seed = seed, .delay_max = 5, .messages_reorder = seed >= 100};
        struct pair pair;
        pair_open(&pair, &params, false, NULL, NULL);
        for (uint64_t i = 0; i < 8; ++i) {
            assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, texts[i], 2, i), KVF_AGAIN);
        }
        pair_run(&pair, 20);
        assert_int_equal(pair.told[1].messages, 8);
        assert_true(seed >= 100 || strcmp(pair.told[1].last, "7") == 0);
        last_wrong += strcmp(pair.told[1].last, "7") != 0;
        assert_int_equal(pair_close(&pair), 0);
    }
    assert_true(last_wrong > 20);
}

static void write_into_released_memory_and_changed_source_are_counted(void **state)
{
    const struct fake_params params = {.ranks = 2, .delay_max = 3};
    struct pair pair;
    char bytes[16] = "abc";

    (void)state;
    pair_open(&pair, &params, true, NULL, NULL);
    assert_int_equal(pair_put(&pair, bytes, 0, 16, 1), KVF_AGAIN);
    bytes[0] = 'x';
    pair.t[1]->memory_release(pair.t[1]->self, pair.memory);
    pair.memory = NULL;
    pair_run(&pair, 10);
    assert_int_equal(fake_net_counts(pair.net).late_writes, 1);
    assert_int_equal(fake_net_counts(pair.net).source_changes, 1);
    assert_int_equal(pair_close(&pair), 0);
}

static void dead_far_peer_ends_posts_and_is_told_once(void **state)
{
    const struct fake_params params = {.ranks = 2, .delay_max = 3};
    struct pair pair;

    (void)state;
    pair_open(&pair, &params, true, NULL, NULL);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 1), KVF_AGAIN);
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 2), KVF_AGAIN);
    fake_net_kill(pair.net, 1);
    pair_run(&pair, 10);
    assert_int_equal(pair.told[0].errors, 1);
    assert_int_equal(pair.told[0].status[1], KVF_E_PEER_LOST);
    assert_int_equal(pair.told[0].done[2], 1);
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 3), KVF_E_PEER_LOST);
    assert_int_equal(pair.t[0]->disconnect(pair.t[0]->self, 1, true, 4), KVF_AGAIN);
    pair_run(&pair, 1);
    assert_int_equal(pair.told[0].done[4], 1);
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 3), KVF_E_NOTFOUND);
    assert_int_equal(pair_close(&pair), 0);
}

static void dead_near_peer_says_nothing_until_it_is_given_up(void **state)
{
    const struct fake_params params = {.ranks = 2, .delay_max = 3, .operations_max = 2};
    struct pair pair;

    (void)state;
    pair_open(&pair, &params, false, NULL, NULL);
    assert_non_null(pair.t[0]->remote_mapped(pair.remote));
    fake_net_kill(pair.net, 1);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 1), KVF_AGAIN);
    pair_run(&pair, 20);
    assert_int_equal(pair.told[0].done[1] + (int)pair.told[0].errors, 0);
    assert_int_equal(pair.t[0]->disconnect(pair.t[0]->self, 1, true, 2), KVF_AGAIN);
    pair_run(&pair, 1);
    assert_int_equal(pair.told[0].status[1], KVF_E_PEER_LOST);
    assert_int_equal(pair.told[0].done[2], 1);
    assert_int_equal(pair_close(&pair), 0);
}

static void cap_is_kept(void **state)
{
    const struct fake_params params = {.ranks = 2, .operations_max = 2};
    struct pair pair;

    (void)state;
    pair_open(&pair, &params, false, NULL, NULL);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 1), KVF_AGAIN);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 2), KVF_AGAIN);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 3), KVF_BUSY);
    pair_run(&pair, 2);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 3), KVF_AGAIN);
    pair_run(&pair, 2);
    assert_int_equal(pair_close(&pair), 0);
}

static void faults_come_where_the_plan_says(void **state)
{
    const struct fake_params params = {.ranks = 2, .immediate_of_8 = 4, .seed = 5};
    const struct fault_plan plan = {.put_refuse_at = 2,
                                    .put_error_at = 4,
                                    .flush_error_at = 1,
                                    .send_busy_at = 1,
                                    .done_delay = 5,
                                    .peer_error_at = 3,
                                    .peer_error_of = 1,
                                    .deny_mapping = true};
    struct fault *fault;
    struct pair pair;

    (void)state;
    pair_open(&pair, &params, false, &fault, &plan);
    assert_null(pair.t[0]->remote_mapped(pair.remote));
    assert_string_equal(pair.reason, "injected: mapping denied");
    assert_true(pair_put(&pair, "abc", 0, 3, 1) >= KVF_OK);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 2), KVF_E_UCX);
    assert_true(pair_put(&pair, "abc", 0, 3, 3) >= KVF_OK);
    assert_int_equal(pair_put(&pair, "abc", 0, 3, 4), KVF_AGAIN);
    assert_int_equal(pair.t[0]->flush(pair.t[0]->self, 1, TRANSPORT_NEAR, 5), KVF_AGAIN);
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 6), KVF_BUSY);
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 6), KVF_AGAIN);
    pair_run(&pair, 4);
    assert_int_equal(pair.told[0].done[5], 0); /* delayed */
    assert_int_equal(pair.told[0].errors, 1);
    pair_run(&pair, 8);
    assert_int_equal(pair.told[0].status[4], KVF_E_TRANSFER);
    assert_int_equal(pair.told[0].status[5], KVF_E_TRANSFER);
    assert_int_equal(pair.told[0].status[6], KVF_OK);
    assert_int_equal(pair.told[0].done[4] + pair.told[0].done[5] + pair.told[0].done[6], 3);
    assert_int_equal(fault_seen(fault)->faults, 5);

    fault_plan(fault)->done_delay = 0;
    fault_plan(fault)->done_drop_at = fault_seen(fault)->dones + 1;
    assert_int_equal(pair.t[0]->send(pair.t[0]->self, 1, "x", 1, 7), KVF_AGAIN);
    pair_run(&pair, 10);
    assert_int_equal(pair.told[0].done[7], 0);
    fault_plan(fault)->message_twice_at = 1;
    assert_int_equal(pair.t[1]->send(pair.t[1]->self, 0, "y", 1, 8), KVF_AGAIN);
    pair_run(&pair, 10);
    assert_int_equal(pair.told[0].messages, 2);
    assert_int_equal(pair_close(&pair), 0);
    fault_close(fault);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flush_ends_after_every_earlier_put_has_landed),
        cmocka_unit_test(messages_keep_order_unless_told_otherwise),
        cmocka_unit_test(write_into_released_memory_and_changed_source_are_counted),
        cmocka_unit_test(dead_far_peer_ends_posts_and_is_told_once),
        cmocka_unit_test(dead_near_peer_says_nothing_until_it_is_given_up),
        cmocka_unit_test(cap_is_kept),
        cmocka_unit_test(faults_come_where_the_plan_says),
    };

    return cmocka_run_group_tests_name("fake transport", tests, NULL, NULL);
}
