/*
 * run.c - `kvferry run`: replays a request trace through a topology and compares every byte.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "json_file.h"
#include "launched.h"
#include "options.h"
#include "rng.h"
#include "run.h"
#include "say.h"

#define RUN_CLOSE_MS 10000u

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct run_options, member)

static const struct option_row run_rows[] = {
    {ROW("topology", OPTION_TEXT, topology), "ctx; gen", 0, 0, NULL, "TEXT|FILE|NAME",
     "instances, as \"ctx tp=2 pp=2; gen tp=4 adp\" (keys tp, pp, dp, adp, layers, x, name)"},
    {ROW("model", OPTION_TEXT, model), "llama-3.1-8b", 0, 0, NULL, "NAME|FILE",
     "cache facts of both sides"},
    {ROW("ctx-model", OPTION_TEXT, models[KVF_CONTEXT]), NULL, 0, 0, NULL, "NAME|FILE",
     "another model for the context side"},
    {ROW("gen-model", OPTION_TEXT, models[KVF_GENERATION]), NULL, 0, 0, NULL, "NAME|FILE",
     "another model for the generation side"},
    {ROW("scale-layers", OPTION_WHOLE, scale_layers), "0", 0, MODEL_LAYERS_MAX, NULL, "K",
     "keep the first K layers; 0 = all"},
    {ROW("trace", OPTION_TEXT, trace), NULL, 0, 0, NULL, "FILE",
     "JSON Lines; without it a trace is made from the seed"},
    {ROW("requests", OPTION_WHOLE, requests), "100", 1, TRACE_REQUESTS_MAX, NULL, "N",
     "replay the first N requests"},
    {ROW("max-tokens", OPTION_WHOLE, max_tokens), "4096", 0, TRACE_TOKENS_MAX, NULL, "N",
     "cut prompts to N tokens; 0 = never"},
    {ROW("time-scale", OPTION_NUMBER, time_scale), "0", 0, 1000, NULL, "X",
     "start at timestamp times X; 0 = as fast as possible"},
    {ROW("concurrency", OPTION_WHOLE, concurrency), "8", 1, 4096, NULL, "N",
     "requests that a group has open at once"},
    {ROW("seed", OPTION_WHOLE, seed), "1", 0, UINT64_MAX, NULL, "N",
     "of the made trace, the page order and the order of opening"},
    {ROW("pool-blocks", OPTION_WHOLE, pool_blocks), "0", 0, 1u << 30, NULL, "N",
     "blocks of each pool of a rank; 0 = what 4 of the longest prompts need"},
    {ROW("pool-mb", OPTION_WHOLE, pool_mb), "0", 0, 1u << 30, NULL, "MIB",
     "most MiB for the pools of a rank; 0 = no such limit"},
    {ROW("decode-us", OPTION_WHOLE, decode_us), "0", 0, 1000000, NULL, "US",
     "microseconds a generated token holds the pages after READY"},
    {ROW("no-reuse", OPTION_FLAG, no_reuse), NULL, 0, 0, NULL, NULL,
     "send whole prompts, whatever hash_ids say"},
    {ROW("piece-tokens", OPTION_WHOLE, piece_tokens), "0", 0, TRACE_TOKENS_MAX, NULL, "N",
     "send prompts in pieces of N tokens, a multiple of the block, each as soon as it is there; "
     "0 = whole"},
    {ROW("piece-shuffle", OPTION_FLAG, piece_shuffle), NULL, 0, 0, NULL, NULL,
     "pieces of a request in random order"},
    {ROW("order", OPTION_CHOICE, order), "any", 0, 0, "any|context-first|generation-first|mixed",
     NULL,
     "which side opens a request first, the other one only then; generation-first asks all dp "
     "groups; any = neither waits"},
    {ROW("sync", OPTION_FLAG, sync), NULL, 0, 0, NULL, NULL,
     "receives are waited for one by one (kvf_wait)"},
    {ROW("faults", OPTION_TEXT, faults), NULL, 0, 0, NULL, "SPEC",
     "plant faults, as \"cancel-gen=5%,fail-after=2%,slow=10%\": docs/run.md has the words; right "
     "is "
     "then that just these happened"},
    {ROW("path", OPTION_CHOICE, path), "auto", 0, 0, "auto|mapped|bounce|direct|twosided", NULL,
     "force one rung of the ladder"},
    {ROW("progress", OPTION_CHOICE, progress), "setting", 0, 0, "setting|thread|caller", NULL,
     "who steps the library; setting = as the settings say"},
    {ROW("settings", OPTION_TEXT, settings), NULL, 0, 0, NULL, "FILE",
     "YAML file of the library's settings"},
    {ROW("json", OPTION_TEXT, json), NULL, 0, 0, NULL, "FILE", "write the figures to a file"},
    {ROW("dump-geometry", OPTION_TEXT, dump), NULL, 0, 0, NULL, "FILE",
     "write the records and block lists of one request, as `kvferry plan --geometry` reads them"},
    {ROW("dump-request", OPTION_WHOLE, dump_request), "0", 0, TRACE_REQUESTS_MAX, NULL, "RID",
     "the request whose lists are dumped, counted from 1; 0 = the first that is not refused"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void command_run_help(void)
{
    printf(
        "usage: mpirun -n RANKS kvferry run [OPTION...]\n\n"
        "Replays a request trace: context ranks fill pages, generation ranks receive them, every "
        "byte is\ncompared. Defaults stand in [brackets]; docs/run.md explains the figures.\n\n");
    options_help(run_rows, stdout);
}

static bool run_read_pieces(const struct run *run, char *text_out)
{
    const struct run_options *options = &run->options;
    const struct model *model = &run->models[KVF_CONTEXT];

    if (options->piece_tokens == 0 && options->piece_shuffle) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "--piece-shuffle needs --piece-tokens");
        return false;
    }
    if (options->dump == NULL && options->dump_request != 0) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "--dump-request needs --dump-geometry");
        return false;
    }
    if (options->piece_tokens % model->facts.tokens_per_block != 0) {
        snprintf(text_out, OPTIONS_TEXT_BYTES,
                 "--piece-tokens is %llu; want a multiple of the block of model %s, which is %u",
                 (unsigned long long)options->piece_tokens, model->name,
                 model->facts.tokens_per_block);
        return false;
    }
    return true;
}

/*
 * Faults, and the order they need: where one side never opens a request, the other holds its pages
 * until it gives up, and what waits for these pages must not be running against that time itself.
 */
static bool run_read_faults(struct run *run, char *text_out)
{
    static const struct {
        enum fault_fate fate;
        const char *order;
    } needs[] = {{FAULT_NO_CTX, "generation-first"}, {FAULT_NO_GEN, "context-first"}};
    const struct run_options *options = &run->options;

    if (options->faults == NULL) {
        return true;
    }
    if (!faults_parse(options->faults, &run->faults, text_out)) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        if (run->faults.fates[needs[i].fate] > 0 && strcmp(options->order, needs[i].order) != 0) {
            snprintf(text_out, OPTIONS_TEXT_BYTES, "--faults %s needs --order %s",
                     fault_fate_word(needs[i].fate), needs[i].order);
            return false;
        }
    }
    return true;
}

/* The words of the command line: no file is read, and no MPI needed. False: text_out says why. */
static bool run_read_words(struct run *run, int argc, char **argv, char *text_out)
{
    struct run_options *options = &run->options;

    if (!options_parse(run_rows, argc, argv, options, text_out)) {
        return false;
    }
    if (strcmp(options->progress, "setting") == 0) {
        options->progress = NULL;
    }
    return options->help || run_read_faults(run, text_out);
}

/* What the words and the files must have in common; alike on all ranks. */
static bool run_read_both(const struct run *run, char *text_out)
{
    if (run->faults.kill_rank != FAULTS_NO_RANK &&
        run->faults.kill_rank >= run->topology->rank_count) {
        snprintf(text_out, OPTIONS_TEXT_BYTES,
                 "--faults: kill names rank %u; the ranks are 0 to %u", run->faults.kill_rank,
                 run->topology->rank_count - 1);
        return false;
    }
    return run_read_pieces(run, text_out);
}

/* Files that the run ends with: better refused before it. */
static bool run_can_write(const struct run *run, char *text_out)
{
    return json_file_fits("--json", run->options.json, text_out, OPTIONS_TEXT_BYTES) &&
           json_file_fits("--dump-geometry", run->options.dump, text_out, OPTIONS_TEXT_BYTES);
}

/* Requests one by one, then the last checks and the report. */
static int run_replay(struct run *run)
{
    uint64_t start_ns;
    int code;

    run_barrier(run);
    start_ns = run_now();
    code = run_engine(run);
    if (code != EXIT_RIGHT) {
        return code;
    }
    run_barrier(run);
    run->wall_s = (double)(run_now() - start_ns) / 1e9;
    run_check_all(run);
    run_barrier(run);
    run_fault_kill(run, true);
    code = run_dump_write(run);
    return code == EXIT_RIGHT ? run_report(run) : code;
}

/* All ranks must have been started alike: what follows is computed alike. */
static int run_compare_words(int argc, char **argv)
{
    uint64_t mine = 1, seeds[2];
    char text[OPTIONS_TEXT_BYTES];

    for (int i = 0; i < argc; i++) {
        for (const char *at = argv[i]; *at != '\0'; at++) {
            mine = rng_mix(mine + (uint8_t)*at);
        }
        mine = rng_mix(mine + 256);
    }
    seeds[0] = mine;
    seeds[1] = ~mine;
    run_reduce(MPI_IN_PLACE, seeds, 2, MPI_UINT64_T, MPI_MAX);
    snprintf(text, sizeof(text), "the ranks were started with different options; want the same");
    return launched_agree(seeds[0] == ~seeds[1] ? EXIT_RIGHT : EXIT_USAGE, text);
}

/* Files of rank 0, what they say to all ranks, and whether it all fits together. */
static int run_files(struct run *run)
{
    char text[OPTIONS_TEXT_BYTES] = "";
    bool fine = run->world_rank != 0 || (run_read_files(run, text) && run_can_write(run, text));
    int code = launched_agree(fine ? EXIT_RIGHT : EXIT_USAGE, text);

    if (code == EXIT_RIGHT) {
        code = run_share_files(run);
    }
    if (code == EXIT_RIGHT) {
        code = launched_agree(run_read_both(run, text) ? EXIT_RIGHT : EXIT_USAGE, text);
    }
    return code;
}

/* After MPI_Init. *leave_out: MPI_Finalize might hang. */
static int run_all(struct run *run, bool *leave_out)
{
    enum kvf_status status;
    int code = run_files(run);

    if (code == EXIT_RIGHT) {
        code = run_world_check(run);
    }
    if (code == EXIT_RIGHT) {
        code = run_world_trace(run);
    }
    if (code == EXIT_RIGHT) {
        code = run_world_open(run);
        if (code == EXIT_RIGHT) {
            code = run_replay(run);
        }
        status = kvf_close(run->kvf, RUN_CLOSE_MS);
        if (status != KVF_OK) {
            say("rank %d: closed with something left over: %s", run->world_rank,
                kvf_status_text(status));
            code = EXIT_DAMAGED;
        }
        *leave_out = code == EXIT_DAMAGED;
    }
    return code;
}

/*
 * True when a progress line would be seen: standard error is a terminal, ours or that of the
 * launcher that started us (its ranks write to a pipe).
 */
static bool run_is_watched(void)
{
    char name[64], target[64];
    ssize_t len;

    if (isatty(STDERR_FILENO) == 1) {
        return true;
    }
    snprintf(name, sizeof(name), "/proc/%d/fd/%d", (int)getppid(), STDERR_FILENO);
    len = readlink(name, target, sizeof(target) - 1);
    if (len <= 0) {
        return false;
    }
    target[len] = '\0';
    return strncmp(target, "/dev/pts/", 9) == 0 || strncmp(target, "/dev/tty", 8) == 0;
}

static int run_under_mpi(struct run *run, int argc, char **argv, const char *text)
{
    struct launched launched;
    bool leave = false;
    int code;

    run_waker_open(run); /* a child of a process that has no threads yet */
    if (!launched_start(&launched)) {
        return EXIT_USAGE;
    }
    run->world_rank = launched.rank;
    run->world_size = launched.size;
    run->node_rank = launched.node_rank;
    run->node_size = launched.node_size;
    run->options.show = run_is_watched();
    code = launched_agree(text[0] == '\0' ? EXIT_RIGHT : EXIT_USAGE, text);
    if (code == EXIT_RIGHT) {
        code = run_compare_words(argc, argv);
    }
    if (code == EXIT_RIGHT && run->options.help) {
        if (run->world_rank == 0) {
            command_run_help();
        }
    } else if (code == EXIT_RIGHT) {
        code = run_all(run, &leave);
    }
    run_world_close(run);
    run_waker_close(run);
    if (leave) {
        fflush(NULL);
        _exit(code);
    }
    return launched_end(code);
}

/* Without a launcher: help, or what is wrong with that. */
static int run_alone(struct run *run, char *text)
{
    if (text[0] == '\0' && run->options.help) {
        command_run_help();
        return EXIT_RIGHT;
    }
    if (text[0] == '\0' && run_read_files(run, text) && run_read_both(run, text)) {
        snprintf(text, OPTIONS_TEXT_BYTES,
                 "this topology has %u ranks, and this is a world of one: start it with mpirun -n "
                 "%u kvferry run ...",
                 run->topology->rank_count, run->topology->rank_count);
    }
    say("%s", text);
    run_world_close(run);
    return EXIT_USAGE;
}

int command_run(int argc, char **argv)
{
    static struct run run; /* large, and there is one */
    char text[OPTIONS_TEXT_BYTES] = "";

    run_read_words(&run, argc, argv, text);
    return launched_rank() < 0 ? run_alone(&run, text) : run_under_mpi(&run, argc, argv, text);
}
