/* Unit tests of launch/schedule.c: routing, reuse, orders, and that no order can block for ever. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "content.h"
#include "rng.h"
#include "schedule.h"

#define JOBS 120u

struct fixture {
    struct kvf_topology *topology;
    struct trace trace;
    struct schedule schedule;
};

static void fixture_open(struct fixture *fixture, const char *form, struct schedule_params *params)
{
    struct trace_take take = {JOBS, 3000};
    char text[256];

    assert_int_equal(kvf_topology_parse(form, &fixture->topology, text, sizeof(text)), KVF_OK);
    assert_true(trace_make(params->seed, &take, &fixture->trace));
    params->topology = fixture->topology;
    params->trace = &fixture->trace;
    for (int s = 0; s < 2; s++) {
        if (params->sides[s].window_count == 0) {
            params->sides[s].window_count = 1;
        }
    }
    assert_true(schedule_make(params, &fixture->schedule));
}

static void fixture_close(struct fixture *fixture)
{
    schedule_free(&fixture->schedule);
    trace_free(&fixture->trace);
    kvf_topology_free(fixture->topology);
}

static struct schedule_params params_of(uint32_t block, uint32_t pages)
{
    struct schedule_params params = {
        .sides = {{.block = block, .pool_pages = pages}, {.block = block, .pool_pages = pages}},
        .concurrency = 6,
        .seed = 5,
    };

    return params;
}

static void stale_blocks_follow_from_the_prompt(void **state)
{
    (void)state;
    assert_int_equal(schedule_stale(200, 64, 16), 8);
    assert_int_equal(schedule_stale(200, 0, 16), 0);
    assert_int_equal(schedule_stale(63, 64, 16), 0);
    assert_int_equal(schedule_stale(64, 64, 16), 0);
    assert_int_equal(schedule_stale(79, 64, 16), 1);
    assert_int_equal(schedule_stale(16, 1, 16), 1);
    assert_int_equal(schedule_blocks(33, 16), 3);
}

static void requests_are_routed_in_turn(void **state)
{
    struct schedule_params params = params_of(16, 1000);
    struct fixture fixture;

    (void)state;
    fixture_open(&fixture, "ctx x=2; gen tp=2 adp; gen; ctx tp=3 adp", &params);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct schedule_job *job = &fixture.schedule.jobs[i];
        static const uint32_t contexts[] = {0, 1, 4}, generations[] = {2, 3};

        assert_int_equal(job->ends[KVF_CONTEXT].instance, contexts[i % 3]);
        assert_int_equal(job->ends[KVF_CONTEXT].dp, i % 3 == 2 ? i / 3 % 3 : 0);
        assert_int_equal(job->ends[KVF_GENERATION].instance, generations[i % 2]);
        assert_int_equal(job->ends[KVF_GENERATION].dp, i % 2 == 0 ? i / 2 % 2 : 0);
    }
    fixture_close(&fixture);
}

static void requests_larger_than_a_pool_are_refused(void **state)
{
    struct schedule_params params = params_of(16, 1000);
    struct fixture fixture;
    uint32_t refused = 0;

    (void)state;
    params.sides[KVF_GENERATION].pool_pages = 100;
    fixture_open(&fixture, "ctx; gen", &params);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct schedule_job *job = &fixture.schedule.jobs[i];
        char text[SCHEDULE_TEXT_BYTES];

        assert_int_equal(job->refused, job->prompt_tokens > 1600);
        schedule_refusal(&fixture.schedule, job, text);
        assert_int_equal(text[0] != '\0', job->refused);
        refused += job->refused;
    }
    assert_in_range(refused, 1, JOBS - 1);
    fixture_close(&fixture);
}

static void reused_tokens_have_the_bytes_of_their_maker(void **state)
{
    struct schedule_params params = params_of(32, 300);
    uint64_t keys[4096] = {0};
    struct fixture fixture;
    uint32_t reused = 0;

    (void)state;
    params.reuse = true;
    fixture_open(&fixture, "ctx; gen", &params);
    for (uint32_t i = 0; i < JOBS; i++) {
        const struct schedule_job *job = &fixture.schedule.jobs[i];

        assert_true(job->cached_tokens < job->prompt_tokens);
        assert_true(job->cached_tokens <= job->keyed_tokens);
        assert_int_equal(job->cached_tokens % TRACE_HASH_TOKENS, 0);
        reused += job->cached_tokens > 0;
        for (uint32_t k = 0; k < job->entry_count; k++) {
            uint32_t entry = fixture.schedule.entries[job->entry_first + k];
            uint64_t key = schedule_key(&fixture.schedule, job, k * TRACE_HASH_TOKENS);

            assert_in_range(entry, 0, 4095);
            if (k < job->cached_tokens / TRACE_HASH_TOKENS) {
                assert_int_equal(key, keys[entry]);
            }
            keys[entry] = key;
        }
        /* What nobody shares is the request's alone. */
        assert_int_equal(schedule_key(&fixture.schedule, job, job->prompt_tokens - 1),
                         content_key(CONTENT_REQUEST, job->rid));
    }
    assert_in_range(reused, JOBS / 2, JOBS);
    fixture_close(&fixture);
}

/* ---- no blocking ----------------------------------------------------------------------------- */

/* One group while a run is played. */
struct player {
    enum kvf_side side;
    uint32_t *order;
    uint32_t count;
    uint32_t at;
    uint32_t live;
    uint64_t pages_free;
};

static uint32_t pages_of(const struct schedule *schedule, const struct player *player, uint32_t job)
{
    return schedule_blocks(schedule->jobs[job].prompt_tokens,
                           schedule->params.sides[player->side].block);
}

/* Admits in order, as a rank does. `open` counts the sides on which a job is open. */
static bool player_admit(const struct schedule *schedule, struct player *player, uint8_t *open)
{
    bool any = false;

    while (player->at < player->count && player->live < schedule->params.concurrency &&
           pages_of(schedule, player, player->order[player->at]) <= player->pages_free) {
        player->pages_free -= pages_of(schedule, player, player->order[player->at]);
        open[player->order[player->at++]]++;
        player->live++;
        any = true;
    }
    return any;
}

static struct player *player_of(struct player *players, uint32_t count,
                                const struct schedule *schedule, uint32_t job, enum kvf_side side)
{
    for (uint32_t p = 0; p < count; p++) {
        for (uint32_t i = 0; players[p].side == side && i < players[p].count; i++) {
            if (players[p].order[i] == job) {
                return &players[p];
            }
        }
    }
    fail_msg("job %u has no group among %u jobs", job, schedule->job_count);
    return NULL;
}

static uint32_t players_open(const struct schedule *schedule, struct player *players)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < schedule->params.topology->instance_count; i++) {
        const struct kvf_instance *instance = &schedule->params.topology->instances[i];

        for (uint32_t dp = 0; dp < instance->dp_size; dp++) {
            struct schedule_group group = {i, dp};
            struct player *player = &players[count++];

            player->side = instance->side;
            player->at = player->live = 0;
            player->pages_free = schedule->params.sides[instance->side].pool_pages;
            assert_true(
                schedule_order(schedule, instance->side, group, &player->order, &player->count));
        }
    }
    return count;
}

/*
 * Ends random jobs that are open on both sides until all have ended; it must never come to a stop.
 */
static void play(const struct schedule *schedule, uint64_t seed)
{
    struct player players[16];
    uint32_t count = players_open(schedule, players);
    uint32_t ended = 0, total = 0;
    uint8_t open[JOBS] = {0};
    struct rng rng = {seed};

    for (uint32_t i = 0; i < JOBS; i++) {
        total += !schedule->jobs[i].refused;
    }
    while (ended < total) {
        uint32_t ready[JOBS], ready_count = 0;

        for (uint32_t p = 0; p < count; p++) {
            player_admit(schedule, &players[p], open);
        }
        for (uint32_t i = 0; i < JOBS; i++) {
            if (open[i] == 2) {
                ready[ready_count++] = i;
            }
        }
        if (ready_count == 0) {
            fail_msg("seed %llu: stopped after %u of %u", (unsigned long long)seed, ended, total);
        }
        ready[0] = ready[rng_below(&rng, ready_count)];
        open[ready[0]] = 3;
        ended++;
        for (int s = 0; s < 2; s++) {
            struct player *player = player_of(players, count, schedule, ready[0], (enum kvf_side)s);

            player->pages_free += pages_of(schedule, player, ready[0]);
            player->live--;
        }
    }
    for (uint32_t p = 0; p < count; p++) {
        assert_int_equal(players[p].at, players[p].count);
        free(players[p].order);
    }
}

static void no_order_blocks_for_ever(void **state)
{
    static const char *const forms[] = {"ctx; gen", "ctx x=2; gen x=2",
                                        "ctx x=3; gen tp=2 adp; gen", "ctx tp=4 adp; gen x=3; ctx"};
    bool shuffled = false;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct schedule_params params = params_of(16, 190 + (uint32_t)(seed % 5) * 40);
        struct fixture fixture;

        params.seed = seed;
        params.concurrency = 1 + (uint32_t)(seed % 9);
        params.sides[KVF_GENERATION].pool_pages = 188 + (uint32_t)(seed % 3) * 100;
        fixture_open(&fixture, forms[seed % 4], &params);
        play(&fixture.schedule, seed);
        for (uint32_t i = 0; seed % 4 == 0 && i < 1; i++) {
            struct schedule_group group = {0, 0};
            uint32_t *order, count;

            assert_true(schedule_order(&fixture.schedule, KVF_CONTEXT, group, &order, &count));
            for (uint32_t k = 1; k < count; k++) {
                shuffled = shuffled || order[k] < order[k - 1];
            }
            free(order);
        }
        fixture_close(&fixture);
    }
    assert_true(shuffled);
}

static void in_order_nothing_is_shuffled(void **state)
{
    struct schedule_params params = params_of(16, 2000);
    struct fixture fixture;
    uint32_t *order, count, moved = 0;

    (void)state;
    for (int in_order = 0; in_order < 2; in_order++) {
        params.in_order = in_order == 1;
        fixture_open(&fixture, "ctx; gen", &params);
        moved = 0;
        for (int s = 0; s < 2; s++) {
            struct schedule_group group = {(uint32_t)s, 0};

            assert_true(schedule_order(&fixture.schedule, (enum kvf_side)s, group, &order, &count));
            for (uint32_t i = 1; i < count; i++) {
                moved += order[i] < order[i - 1];
            }
            free(order);
        }
        fixture_close(&fixture);
        assert_true((moved == 0) == (in_order == 1));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_blocks_follow_from_the_prompt),
        cmocka_unit_test(requests_are_routed_in_turn),
        cmocka_unit_test(requests_larger_than_a_pool_are_refused),
        cmocka_unit_test(reused_tokens_have_the_bytes_of_their_maker),
        cmocka_unit_test(no_order_blocks_for_ever),
        cmocka_unit_test(in_order_nothing_is_shuffled),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
