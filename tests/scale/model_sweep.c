/*
 * model_sweep.c - the pure sweep machines of up to 4,096 ranks in one process, their messages under
 * a LogGP model of a linear all-gather: simulated time, bytes and measured work of a sweep.
 *
 * usage: model_sweep RANKS LATENCY_US OVERHEAD_US GBYTES_PER_S
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "consensus/sweep.h"

#define SWEEPS 5u

struct rank {
    struct sweep *sweep;
    double at_us; /* simulated */
    uint32_t iteration, events;
    uint8_t message[256];
    uint32_t len_bytes;
};

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void step(struct rank *rank, struct sweep_event *event)
{
    struct sweep_action actions[16];
    struct sweep_event next = {.kind = SWEEP_POLL};
    struct sweep_out out = {.actions = actions, .max = 16};

    sweep_step(rank->sweep, event, &out);
    for (;;) {
        for (uint32_t a = 0; a < out.count; a++) {
            rank->events += actions[a].kind == SWEEP_ACT_EVENT;
            if (actions[a].kind == SWEEP_ACT_POST) {
                rank->len_bytes = (uint32_t)actions[a].u.post.len_bytes;
                memcpy(rank->message, actions[a].u.post.bytes, rank->len_bytes);
            }
        }
        if (!out.more)
            return;
        out.count = 0;
        sweep_step(rank->sweep, &next, &out);
    }
}

/*
 * When each rank has everybody's message: all leave when the sweep is started, and are taken one by
 * one, an overhead each, in which the sending of one is counted too.
 */
static void network(struct rank *ranks, uint32_t count, const double model[3])
{
    double wire_us = model[0] + ranks[0].len_bytes / (model[2] * 1e3);
    double *done_us = calloc(count, sizeof(*done_us));

    for (uint32_t r = 0; r < count && done_us != NULL; r++) {
        double at_us = ranks[r].at_us;

        for (uint32_t d = 1; d < count; d++) {
            double arrives_us = ranks[(r + count - d) % count].at_us + wire_us;

            at_us = (arrives_us > at_us ? arrives_us : at_us) + model[1];
        }
        done_us[r] = at_us;
    }
    for (uint32_t r = 0; r < count && done_us != NULL; r++)
        ranks[r].at_us = done_us[r];
    free(done_us);
}

static void run(struct rank *ranks, uint32_t count, uint32_t changes, const double model[3],
                uint8_t *all)
{
    double work_us = 0, start_us = ranks[0].at_us;

    for (uint32_t s = 0; s < SWEEPS; s++) {
        double real_us;

        for (uint32_t r = 0; r < count; r++) {
            struct sweep_event vote = {
                .kind = SWEEP_VOTE,
                .u.vote = {.rid = 1 + s, .vote = RETIRE_DONE | RETIRE_DRAINED, .first = true}};
            struct sweep_event call = {.kind = SWEEP_CALL, .u.call = {ranks[r].iteration++, 0}};

            if (changes > 0)
                step(&ranks[r], &vote);
            step(&ranks[r], &call);
            memcpy(all + (size_t)r * ranks[r].len_bytes, ranks[r].message, ranks[r].len_bytes);
        }
        network(ranks, count, model);
        real_us = now_us();
        for (uint32_t r = 0; r < count; r++) {
            struct sweep_event gathered = {.kind = SWEEP_GATHERED, .u.gathered = {all}};

            step(&ranks[r], &gathered);
        }
        real_us = (now_us() - real_us) / count; /* of one rank */
        work_us += real_us;
        for (uint32_t r = 0; r < count; r++)
            ranks[r].at_us += real_us;
    }
    printf("model ranks %u changes %u us %.2f of which work %.2f bytes %u events %u\n", count,
           changes, (ranks[0].at_us - start_us) / SWEEPS, work_us / SWEEPS, ranks[0].len_bytes,
           ranks[0].events);
}

int main(int argc, char **argv)
{
    uint32_t count = argc > 4 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0;
    double model[3] = {0};
    struct rank *ranks;
    uint8_t *all;

    if (count == 0 || count > RETIRE_RANKS_MAX) {
        fprintf(stderr, "usage: model_sweep RANKS LATENCY_US OVERHEAD_US GBYTES_PER_S\n");
        return 2;
    }
    for (int m = 0; m < 3; m++)
        model[m] = strtod(argv[2 + m], NULL);
    ranks = calloc(count, sizeof(*ranks));
    all = calloc(count, sizeof(ranks->message));
    for (uint32_t r = 0; r < count && ranks != NULL; r++) {
        const struct sweep_params params = {
            .retire = {.side = KVF_GENERATION, .rank_count = count, .self = r, .entries_max = 4},
            .votes_max = 4};

        if (sweep_open(kvf_heap_system(), &params, &ranks[r].sweep) != KVF_OK)
            return 2;
    }
    if (ranks == NULL || all == NULL)
        return 2;
    run(ranks, count, 0, model, all);
    run(ranks, count, 1, model, all);
    return ranks[0].events == 2 * SWEEPS ? 0 : 1;
}
