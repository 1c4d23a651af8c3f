/*
 * bench.c - `kvferry bench`: finds the measurement.
 */
#include <stdio.h>
#include <string.h>

#include "bench_commands.h"
#include "commands.h"
#include "launched.h"
#include "options.h"
#include "say.h"

struct bench_row {
    const char *name;
    int (*run)(int argc, char **argv);
    void (*help)(void);
};

static const struct bench_row benches[] = {
    {"plan", bench_plan, bench_plan_help},
    {"copy", bench_copy, bench_copy_help},
    {"control", bench_control, bench_control_help},
    {"sweep", bench_sweep, bench_sweep_help},
};
#define BENCH_COUNT (sizeof(benches) / sizeof(benches[0]))

void command_bench_help(void)
{
    printf("usage: kvferry bench plan [OPTION...]\n"
           "       mpirun -n 2 kvferry bench copy [OPTION...]\n"
           "       mpirun -n 2 kvferry bench control [OPTION...]\n"
           "       mpirun -n N kvferry bench sweep [OPTION...]\n\n");
    for (size_t i = 0; i < BENCH_COUNT; i++) {
        printf("bench %s\n", benches[i].name);
        benches[i].help();
        printf("\n");
    }
}

int command_bench(int argc, char **argv)
{
    const char *names[BENCH_COUNT];
    const char *near;
    char text[OPTIONS_TEXT_BYTES];

    if (argc == 0) {
        return launched_refuse(
            EXIT_USAGE,
            "no measurement; want bench plan, bench copy, bench control or bench sweep");
    }
    if (strcmp(argv[0], "--help") == 0) {
        command_bench_help();
        return EXIT_RIGHT;
    }
    for (size_t i = 0; i < BENCH_COUNT; i++) {
        names[i] = benches[i].name;
        if (strcmp(argv[0], benches[i].name) == 0) {
            return benches[i].run(argc - 1, argv + 1);
        }
    }
    near = options_nearest(argv[0], names, BENCH_COUNT);
    snprintf(text, sizeof(text), "unknown measurement \"%.60s\"%s%s", argv[0],
             near != NULL ? "; the nearest is " : "", near != NULL ? near : "");
    return launched_refuse(EXIT_USAGE, text);
}
