/*
 * main.c - the program `kvferry`: finds the command. Help and version need no MPI.
 */
#include <stdio.h>
#include <string.h>

#include <kvferry/kvferry.h>

#include "commands.h"
#include "launched.h"
#include "options.h"
#include "say.h"

enum command {
    COMMAND_RUN,
    COMMAND_BENCH,
    COMMAND_PLAN,
    COMMAND_HELP,
    COMMAND_VERSION,
    COMMAND_LATER, /* named in the plan of the project, not in this release */
};

struct command_row {
    const char *name;
    enum command command;
    const char *help;
};

static const struct command_row commands[] = {
    {"run", COMMAND_RUN, "replay a request trace through a topology, every byte checked"},
    {"bench", COMMAND_BENCH, "measure: bench plan, bench copy, bench control"},
    {"plan", COMMAND_PLAN, "who sends what to whom for one request, and why; moves nothing"},
    {"help", COMMAND_HELP, "this text, or `kvferry help COMMAND`"},
    {"version", COMMAND_VERSION, "version of the program and the library"},
    {"doctor", COMMAND_LATER, "not in this release"},
    {"matrix", COMMAND_LATER, "not in this release"},
};
#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static const struct command_row *command_find(const char *name, char *text_out)
{
    const char *names[COMMAND_COUNT];
    const char *near;

    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i].name;
        if (strcmp(name, commands[i].name) == 0) {
            return &commands[i];
        }
    }
    near = options_nearest(name, names, COMMAND_COUNT);
    snprintf(text_out, OPTIONS_TEXT_BYTES, "unknown command \"%.60s\"; %s%s", name,
             near != NULL ? "the nearest is " : "see kvferry help", near != NULL ? near : "");
    return NULL;
}

static void help_all(void)
{
    printf("kvferry %s: moves the KV cache of requests from context to generation ranks\n\n"
           "usage: mpirun -n RANKS kvferry run [OPTION...]\n"
           "       kvferry COMMAND [OPTION...]\n\ncommands:\n",
           kvf_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        printf("  %-8s %s\n", commands[i].name, commands[i].help);
    }
    printf(
        "\nexit status: 0 all right; 1 bytes wrong or requests failed; 2 usage, settings, world or "
        "machine;\n3 geometry refused; 4 a rank or a group was lost\n");
}

static int help(int argc, char **argv)
{
    const struct command_row *row;
    char text[OPTIONS_TEXT_BYTES];

    if (argc == 0) {
        help_all();
        return EXIT_RIGHT;
    }
    row = command_find(argv[0], text);
    if (row == NULL) {
        return launched_refuse(EXIT_USAGE, text);
    }
    switch (row->command) {
    case COMMAND_RUN:
        command_run_help();
        break;
    case COMMAND_BENCH:
        command_bench_help();
        break;
    case COMMAND_PLAN:
        command_plan_help();
        break;
    case COMMAND_HELP:
    case COMMAND_VERSION:
        help_all();
        break;
    case COMMAND_LATER:
        printf("kvferry %s: not in this release\n", row->name);
        break;
    }
    return EXIT_RIGHT;
}

static const char *command_alias(const char *word)
{
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return "help";
    }
    return strcmp(word, "--version") == 0 ? "version" : word;
}

int main(int argc, char **argv)
{
    const struct command_row *row;
    char text[OPTIONS_TEXT_BYTES];

    if (argc < 2) {
        return launched_refuse(EXIT_USAGE, "no command; see kvferry help");
    }
    row = command_find(command_alias(argv[1]), text);
    if (row == NULL) {
        return launched_refuse(EXIT_USAGE, text);
    }
    switch (row->command) {
    case COMMAND_RUN:
        return command_run(argc - 2, argv + 2);
    case COMMAND_BENCH:
        return command_bench(argc - 2, argv + 2);
    case COMMAND_PLAN:
        return command_plan(argc - 2, argv + 2);
    case COMMAND_HELP:
        return help(argc - 2, argv + 2);
    case COMMAND_VERSION:
        printf("kvferry %s\n", kvf_version());
        return EXIT_RIGHT;
    case COMMAND_LATER:
        snprintf(text, sizeof(text), "the command %s is not in this release; see kvferry help",
                 row->name);
        return launched_refuse(EXIT_USAGE, text);
    }
    return EXIT_USAGE;
}
