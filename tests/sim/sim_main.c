/*
 * sim_main.c - the simulator's command line: runs schedules by seed, shrinks one that fails, and
 * replays one from its text.
 */
#include "sim.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define STUCK_S 20u

static struct sim_world world;
static jmp_buf out;

struct options {
    const char *profile;
    const char *ops;
    uint64_t first, last;
    struct sim_topology topology;
    const char *topology_text;
    bool check, trace, shrink, quiet;
};

/* Stands in for that of runtime/check.c: a broken assertion ends the schedule. */
void kvf_check_failed(const char *kind, const char *condition, const char *file, int line)
{
    const char *name = strrchr(file, '/');

    sim_fail(&world, "assert: %s %s (%s:%d)", kind, condition, name != NULL ? name + 1 : file,
             line);
}

static void on_signal(int number)
{
    sim_fail(&world, "%s",
             number == SIGALRM ? "hang: a step does not return" : "crash: a bad access");
}

static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};

    (void)sigaction(SIGALRM, &action, NULL);
    (void)sigaction(SIGSEGV, &action, NULL);
    (void)sigaction(SIGBUS, &action, NULL);
}

/* ---- one schedule --------------------------------------------------------------------------- */

/* With `ops`: these instead of drawn ones. True: a rule was broken; world.failure says which. */
static bool run_schedule(const struct options *options, uint64_t seed, struct sim_tally *tally,
                         const struct sim_op *ops, uint32_t op_count)
{
    memset(&world, 0, sizeof(world));
    world.topology = &options->topology;
    world.tally = tally;
    world.out = &out;
    world.trace = options->trace;
    world.ranks_count = options->topology.contexts + options->topology.generations;
    world.now_ns = 1;
    if (setjmp(out) != 0)
        return true;
    (void)pick_knobs(&world, options->profile, seed, options->check);
    sim_world_open(&world);
    for (uint32_t i = 0; i < op_count; i++)
        (void)ops_apply(&world, &ops[i]);
    for (uint32_t i = 0; ops == NULL && i < world.knobs.ops; i++)
        pick_one(&world);
    drain_all(&world);
    drain_judge(&world);
    tally->schedules++;
    tally->ops += world.op_count;
    return false;
}

/* ---- shrinking ------------------------------------------------------------------------------ */

/* "I1: ..." and "I1: ..." are the same failure. */
static bool same_failure(const char *a, const char *b)
{
    size_t len = strcspn(a, ":");

    return len == strcspn(b, ":") && strncmp(a, b, len) == 0;
}

/* Leaves out runs of ops, ever shorter ones, as long as the same rule is broken without them. */
static uint32_t shrink(const struct options *options, uint64_t seed, struct sim_op *ops,
                       uint32_t count)
{
    struct options silent = *options;
    struct sim_op trial[SIM_OPS_MAX];
    struct sim_tally tally = {0};
    char failure[sizeof(world.failure)];

    silent.trace = false;
    memcpy(failure, world.failure, sizeof(failure));
    if (strncmp(failure, "hang", 4) == 0)
        return count;
    for (uint32_t run = count, before; run > 0; run = run > 1 ? run / 2 : count < before) {
        before = count;
        for (uint32_t at = 0; at + run <= count;) {
            memcpy(trial, ops, at * sizeof(*ops));
            memcpy(trial + at, ops + at + run, (count - at - run) * sizeof(*ops));
            (void)alarm(STUCK_S);
            if (!run_schedule(&silent, seed, &tally, trial, count - run) ||
                !same_failure(world.failure, failure)) {
                at += run;
                continue;
            }
            count -= run;
            memcpy(ops, trial, count * sizeof(*ops));
        }
    }
    return count;
}

static void print_ops(const struct sim_op *ops, uint32_t count)
{
    char text[64];

    for (uint32_t i = 0; i < count; i++) {
        (void)ops_text(&ops[i], text, sizeof(text));
        printf("%s%s", text, i + 1 < count ? "; " : "");
    }
}

static void report(const struct options *options, uint64_t seed)
{
    struct sim_op ops[SIM_OPS_MAX];
    uint32_t count = world.op_count;
    uint32_t drawn = count;
    struct options told = *options;
    struct sim_tally tally = {0};

    printf("seed %llu: %s\n", (unsigned long long)seed, world.failure);
    memcpy(ops, world.ops, sizeof(ops));
    if (!options->shrink)
        return;
    count = shrink(options, seed, ops, count);
    told.trace = !options->quiet;
    (void)alarm(STUCK_S);
    (void)run_schedule(&told, seed, &tally, ops, count);
    printf("seed %llu: %s\n%u ops of %u are enough:\n", (unsigned long long)seed, world.failure,
           count, drawn);
    printf("  --topology \"%s\" --profile %s --seeds %llu%s --ops \"", options->topology_text,
           options->profile, (unsigned long long)seed, options->check ? " --check" : "");
    print_ops(ops, count);
    printf("\"\n");
}

/* ---- command line --------------------------------------------------------------------------- */

static void usage(FILE *file)
{
    fprintf(file,
            "Runs schedules of the simulated world; 0: all good, 1: one broke a rule, 2: usage.\n"
            "  --seeds A-B        schedules, default 1-1000; one number: that one\n"
            "  --topology TEXT    \"ctx N [dp G] [alone]; gen N [dp G] [alone]\", default \"ctx 2; "
            "gen 2\"\n"
            "  --profile NAME     %s; default all\n"
            "  --check            every machine is checked after every step, not in 1 of 32 only\n"
            "  --ops TEXT         these ops instead of drawn ones, with one seed\n"
            "  --trace            every op, event and action\n"
            "  --no-shrink        a failing schedule is only named\n"
            "  --quiet            a failing schedule is shrunk, its trace is not printed\n",
            pick_profiles());
}

static bool parse_topology(const char *text, struct sim_topology *topology_out)
{
    struct sim_topology topology = {.context_groups = 1, .generation_groups = 1};
    bool context = true;
    char word[16];
    unsigned value;
    int used;

    while (sscanf(text, " %15[a-z]%n", word, &used) == 1) {
        text += used;
        if (strcmp(word, "alone") == 0) {
            *(context ? &topology.context_alone : &topology.generation_alone) = true;
        } else {
            if (sscanf(text, " %u%n", &value, &used) != 1)
                return false;
            text += used;
            if (strcmp(word, "dp") == 0)
                *(context ? &topology.context_groups : &topology.generation_groups) = value;
            else if (strcmp(word, "ctx") == 0)
                topology.contexts = value;
            else if (strcmp(word, "gen") == 0)
                topology.generations = value;
            else
                return false;
            context = context && strcmp(word, "gen") != 0;
        }
        text += strspn(text, "; ");
    }
    *topology_out = topology;
    return *text == '\0' && topology.contexts > 0 && topology.generations > 0 &&
           topology.context_groups > 0 && topology.contexts % topology.context_groups == 0 &&
           topology.generation_groups > 0 &&
           topology.generations % topology.generation_groups == 0 &&
           topology.contexts + topology.generations <= SIM_RANKS_MAX;
}

static bool parse_seeds(const char *text, struct options *options)
{
    char *end;

    options->first = options->last = strtoull(text, &end, 10);
    if (*end == '-')
        options->last = strtoull(end + 1, &end, 10);
    return end != text && *end == '\0' && options->first <= options->last;
}

static bool parse(int argc, char **argv, struct options *options)
{
    bool good = true;

    for (int i = 1; i < argc && good; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool takes = true;

        if (strcmp(argv[i], "--seeds") == 0) {
            good = parse_seeds(value, options);
        } else if (strcmp(argv[i], "--topology") == 0) {
            good = parse_topology(value, &options->topology);
            options->topology_text = value;
        } else if (strcmp(argv[i], "--profile") == 0) {
            options->profile = value;
        } else if (strcmp(argv[i], "--ops") == 0) {
            options->ops = value;
        } else {
            takes = false;
            options->check |= strcmp(argv[i], "--check") == 0;
            options->trace |= strcmp(argv[i], "--trace") == 0;
            options->quiet |= strcmp(argv[i], "--quiet") == 0;
            options->shrink &= strcmp(argv[i], "--no-shrink") != 0;
            good = strstr("--check --trace --quiet --no-shrink", argv[i]) != NULL;
        }
        i += takes;
    }
    return good && pick_knobs(&world, options->profile, 1, false);
}

/* Of this process alone: other load of the machine does not count. */
static double seconds(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int replay(const struct options *options)
{
    struct sim_op ops[SIM_OPS_MAX];
    struct sim_tally tally = {0};
    const char *at = options->ops;
    uint32_t count = 0;

    while (at != NULL && *at != '\0' && count < SIM_OPS_MAX)
        at = ops_parse(at, &ops[count++]);
    if (at == NULL) {
        fprintf(stderr, "--ops: not an op\n");
        return 2;
    }
    (void)alarm(STUCK_S);
    if (!run_schedule(options, options->first, &tally, ops, count)) {
        printf("seed %llu: good\n", (unsigned long long)options->first);
        return 0;
    }
    printf("seed %llu: %s\n", (unsigned long long)options->first, world.failure);
    return 1;
}

int main(int argc, char **argv)
{
    struct options options = {.profile = "all",
                              .first = 1,
                              .last = 1000,
                              .topology = {2, 2, 1, 1, false, false},
                              .topology_text = "ctx 2; gen 2",
                              .shrink = true};
    struct sim_tally tally = {0};
    double start = seconds();

    if (!parse(argc, argv, &options)) {
        usage(stderr);
        return 2;
    }
    catch_signals();
    if (options.ops != NULL)
        return replay(&options);
    for (uint64_t seed = options.first; seed <= options.last; seed++) {
        if (seed % 1024 == 0 || seed == options.first)
            (void)alarm(STUCK_S);
        if (run_schedule(&options, seed, &tally, NULL, 0)) {
            report(&options, seed);
            return 1;
        }
    }
    start = seconds() - start;
    printf("%llu schedules of \"%s\", profile %s, in %.2f s of one core: %.0f/s\n",
           (unsigned long long)tally.schedules, options.topology_text, options.profile, start,
           (double)tally.schedules / start);
    printf("%llu ops, %llu steps, %llu messages, %llu writes: requests ready %llu, failed %llu, "
           "cancelled %llu, released %llu; kills %llu, silent %llu, busy %llu; sweeps %llu, groups "
           "lost %llu, closed alone %llu\n",
           (unsigned long long)tally.ops, (unsigned long long)tally.steps,
           (unsigned long long)tally.messages, (unsigned long long)tally.writes,
           (unsigned long long)tally.ready, (unsigned long long)tally.failed,
           (unsigned long long)tally.cancelled, (unsigned long long)tally.released,
           (unsigned long long)tally.killed, (unsigned long long)tally.silent,
           (unsigned long long)tally.busy, (unsigned long long)tally.sweeps,
           (unsigned long long)tally.lost, (unsigned long long)tally.escaped);
    return 0;
}
