/*
 * plan_command.c - `kvferry plan`: who sends what to whom for one request, and why. No MPI, no byte
 * moves.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "commands.h"
#include "geometry_answer.h"
#include "json_file.h"
#include "options.h"
#include "plan_note.h"
#include "plan_source.h"
#include "plan_table.h"
#include "say.h"
#include "ucx_look.h"

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct plan_options, member)
#define GBYTES_PER_S_MAX 100000
#define PUT_US_MAX 1000000

static const struct option_row plan_rows[] = {
    {ROW("topology", OPTION_TEXT, topology), NULL, 0, 0, NULL, "TEXT|FILE|NAME",
     "instances, as \"ctx tp=2 pp=2; gen tp=4 adp\""},
    {ROW("ctx", OPTION_TEXT, instances[0]), NULL, 0, 0, NULL, "NAME",
     "context instance of the request; without it the first"},
    {ROW("gen", OPTION_TEXT, instances[1]), NULL, 0, 0, NULL, "NAME",
     "generation instance of the request; without it the first"},
    {ROW("model", OPTION_TEXT, model), NULL, 0, 0, NULL, "NAME|FILE", "cache facts of both sides"},
    {ROW("ctx-model", OPTION_TEXT, models[0]), NULL, 0, 0, NULL, "NAME|FILE",
     "another model for the context side"},
    {ROW("gen-model", OPTION_TEXT, models[1]), NULL, 0, 0, NULL, "NAME|FILE",
     "another model for the generation side"},
    {ROW("scale-layers", OPTION_WHOLE, scale_layers), "0", 0, MODEL_LAYERS_MAX, NULL, "K",
     "keep the first K layers; 0 = all"},
    {ROW("tokens", OPTION_WHOLE, tokens), "0", 0, PLAN_DUMP_TOKENS_MAX, NULL, "N",
     "tokens of the prompt; wanted with --topology"},
    {ROW("cached", OPTION_WHOLE, cached), "0", 0, PLAN_DUMP_TOKENS_MAX, NULL, "N",
     "leading tokens that the receiver already has"},
    {ROW("piece-tokens", OPTION_WHOLE, piece_tokens), "0", 0, PLAN_DUMP_TOKENS_MAX, NULL, "N",
     "cut the prompt into pieces of N tokens; 0 = whole"},
    {ROW("sender-dp", OPTION_WHOLE, sender_group), "0", 0, GEO_TP_MAX, NULL, "G",
     "dp group of the context instance that ran the prefill"},
    {ROW("dp-unknown", OPTION_FLAG, group_unknown), NULL, 0, 0, NULL, NULL,
     "the receiver was not told which dp group that is"},
    {ROW("settings", OPTION_TEXT, settings), NULL, 0, 0, NULL, "FILE",
     "YAML file of the library's settings: bounce figures, paths"},
    {ROW("geometry", OPTION_TEXT, geometry), NULL, 0, 0, NULL, "FILE",
     "records and block lists as JSON, in place of all above"},
    {ROW("receiver", OPTION_TEXT, receiver), NULL, 0, 0, NULL, "RANK",
     "generation rank that the answer is for; without it the file's, or 0"},
    {ROW("sender", OPTION_TEXT, sender), NULL, 0, 0, NULL, "RANK",
     "context rank whose fragments are listed"},
    {ROW("piece", OPTION_TEXT, piece), NULL, 0, 0, NULL, "I", "this piece alone, from 0"},
    {ROW("json", OPTION_FLAG, json), NULL, 0, 0, NULL, NULL, "JSON in place of the table"},
    {ROW("frags", OPTION_FLAG, frags), NULL, 0, 0, NULL, NULL,
     "a line \"source destination size\" for each fragment from --sender"},
    {ROW("dump-geometry", OPTION_TEXT, dump), NULL, 0, 0, NULL, "FILE",
     "write the records and block lists, as --geometry reads them"},
    {ROW("gbytes-per-s", OPTION_NUMBER, gbytes_per_s), "0", 0, GBYTES_PER_S_MAX, NULL, "X",
     "predict times over links of X GB/s; 0 = none"},
    {ROW("put-us", OPTION_NUMBER, put_us), "0", 0, PUT_US_MAX, NULL, "US",
     "microseconds that each put of the direct rung adds to its write"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void command_plan_help(void)
{
    printf("usage: kvferry plan --topology TEXT --model NAME --tokens N [OPTION...]\n"
           "       kvferry plan --geometry FILE [OPTION...]\n\n"
           "Who asks whom for one request, who sends which heads, in how many fragments, on which "
           "path and why.\nNeeds no MPI and moves nothing. Defaults stand in [brackets]; "
           "docs/plan.md explains the table.\n\n");
    options_help(plan_rows, stdout);
}

/* One run of the command. */
struct planning {
    const struct plan_options *options;
    struct plan_source source;
    uint32_t receiver;
};

/* ---- what is asked for ---------------------------------------------------------------------- */

/* A rank among those of one side of the dump. */
static bool plan_rank(const char *option, const char *text, struct geo_record *const *records,
                      uint32_t count, uint32_t *rank_out)
{
    uint64_t rank;

    if (options_whole(text, 0, UINT32_MAX, &rank)) {
        for (uint32_t r = 0; r < count; r++) {
            if (records[r]->rank == rank) {
                *rank_out = (uint32_t)rank;
                return true;
            }
        }
    }
    say("--%s is \"%.60s\"; %s has %u ranks, %u to %u", option, text, records[0]->instance_name,
        count, records[0]->rank, records[count - 1]->rank);
    return false;
}

/* The receiver, and the one piece that was asked for. */
static bool plan_pick(struct planning *planning)
{
    const struct plan_options *options = planning->options;
    struct geometry_dump *dump = planning->source.dump;
    uint32_t index;
    uint64_t piece;

    planning->receiver = dump->receiver;
    if (options->receiver != NULL && !plan_rank("receiver", options->receiver, dump->receivers,
                                                dump->receiver_count, &planning->receiver)) {
        return false;
    }
    if (geometry_dump_receiver(dump, planning->receiver, &index) == NULL) {
        say("the file has no receiver of rank %u", planning->receiver);
        return false;
    }
    if (dump->sender_group > 0 && dump->sender_group >= dump->senders[0]->place.dp_size) {
        say("sender_dp is %u; %s has %u dp groups", dump->sender_group,
            dump->senders[0]->instance_name, dump->senders[0]->place.dp_size);
        return false;
    }
    if (options->piece != NULL) {
        if (!options_whole(options->piece, 0, (uint64_t)dump->piece_count - 1, &piece)) {
            say("--piece is \"%.60s\"; the pieces are 0 to %u", options->piece,
                dump->piece_count - 1);
            return false;
        }
        dump->pieces[0] = dump->pieces[piece];
        dump->piece_count = 1;
    }
    return true;
}

/* ---- outputs -------------------------------------------------------------------------------- */

static int plan_flush(void)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        say("standard output cannot be written");
        return EXIT_USAGE;
    }
    return EXIT_RIGHT;
}

static void plan_print_fragments(const struct geometry_writer *writer, uint32_t stripes)
{
    struct plan_fragment fragment;
    struct plan_walk walk;

    plan_walk_init(&walk, writer->scratch.stripes, stripes);
    while (!ferror(stdout) && plan_walk_next(&walk, &fragment)) {
        printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", fragment.src, fragment.dst, fragment.bytes);
    }
}

/* Fragments stream: what is held grows with blocks, never with fragments. */
static int plan_frags(const struct planning *planning)
{
    const struct geometry_dump *dump = planning->source.dump;
    struct geometry_writer writer;
    struct geo_text text = {""};
    uint32_t sender;
    enum kvf_status status;

    if (!plan_rank("sender", planning->options->sender, dump->senders, dump->sender_count,
                   &sender)) {
        return EXIT_USAGE;
    }
    status = geometry_dump_check(dump, planning->receiver, &text);
    if (status != KVF_OK) {
        return plan_source_refuse(status, &text);
    }
    if (geo_rank_dp(&dump->senders[0]->place, sender) != dump->sender_group) {
        return EXIT_RIGHT; /* another dp group ran the prefill */
    }
    status = geometry_writer_init(dump, planning->receiver, sender, &writer, &text);
    if (status == KVF_E_INVAL) {
        say("%s", text.s);
        return EXIT_USAGE;
    }
    if (status != KVF_OK) {
        return plan_source_refuse(status, &text);
    }
    /* Nothing is listed of a request that has a piece which is refused. */
    for (int print = 0; print < 2; print++) {
        for (uint32_t p = 0; status == KVF_OK && p < dump->piece_count; p++) {
            struct plan_filled filled;

            status = geometry_writer_fill(&writer, &dump->pieces[p], &filled, &text);
            if (status == KVF_OK && print == 1) {
                plan_print_fragments(&writer, filled.stripe_count);
            }
        }
    }
    geometry_writer_fini(&writer);
    return status == KVF_OK ? plan_flush() : plan_source_refuse(status, &text);
}

/* Said where bytes would go between nodes; on standard error, since it depends on the machine. */
static void plan_warn_slow_ucx(const struct plan_table_params *params)
{
    struct plan_note_rung far = plan_note_rung(params, false, 1);
    struct plan_table_load load;
    struct ucx_look look;

    plan_table_load(params, &load);
    ucx_look(&look);
    if (load.busiest_bytes > 0 && far.status == KVF_OK && look.path[0] != '\0' && !look.has_rdma) {
        say("UCX without RDMA (%s): between nodes bytes take TCP; -DKVFERRY_UCX_ROOT=DIR builds "
            "with "
            "a cluster's own UCX",
            look.path);
    }
}

static int plan_table(const struct planning *planning, const json_t *answer)
{
    const struct kvf_settings *settings = &planning->source.settings[KVF_CONTEXT];
    struct plan_table_params params = {
        .dump = planning->source.dump,
        .receiver = planning->receiver,
        .answer = answer,
        .allowed_paths = settings->paths,
        .forced_path = (enum kvf_path)settings->path,
        .inflight_chunks = settings->max_inflight_chunks_per_request,
        .gbytes_per_s = planning->options->gbytes_per_s,
        .put_us = planning->options->put_us,
    };

    if (plan_table_print(&params, stdout) != KVF_OK) {
        say("out of memory");
        return EXIT_USAGE;
    }
    plan_warn_slow_ucx(&params);
    return plan_flush();
}

static int plan_answer(const struct planning *planning)
{
    struct geo_text text = {""};
    json_t *answer = NULL;
    enum kvf_status status =
        geometry_answer(planning->source.dump, planning->receiver, &answer, &text);
    int code;

    if (status != KVF_OK) {
        return plan_source_refuse(status, &text);
    }
    if (planning->options->json) {
        json_dumpf(answer, stdout, 0);
        putchar('\n');
        code = plan_flush();
    } else {
        code = plan_table(planning, answer);
    }
    json_decref(answer);
    return code;
}

static int plan_dump(const struct planning *planning)
{
    const char *path = planning->options->dump;
    json_t *json = geometry_dump_write(planning->source.dump);
    bool fine = json_file_write("--dump-geometry", path, json, 1);

    json_decref(json);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

static bool plan_check_options(const struct plan_options *options)
{
    if (options->frags && options->json) {
        say("--frags and --json: want one of them");
    } else if (options->frags && options->sender == NULL) {
        say("--frags needs --sender");
    } else if (!options->frags && options->sender != NULL) {
        say("--sender needs --frags");
    } else {
        return true;
    }
    return false;
}

int command_plan(int argc, char **argv)
{
    static struct planning planning; /* large, and there is one */
    static struct plan_options options;
    char text[OPTIONS_TEXT_BYTES];
    int code;

    if (!options_parse(plan_rows, argc, argv, &options, text)) {
        say("%s", text);
        return EXIT_USAGE;
    }
    if (options.help) {
        command_plan_help();
        return EXIT_RIGHT;
    }
    if (!plan_check_options(&options)) {
        return EXIT_USAGE;
    }
    planning.options = &options;
    code = plan_source_open(&options, &planning.source);
    if (code != EXIT_RIGHT) {
        return code;
    }
    code = plan_pick(&planning) ? EXIT_RIGHT : EXIT_USAGE;
    if (code == EXIT_RIGHT && options.dump != NULL) {
        code = plan_dump(&planning);
    }
    if (code == EXIT_RIGHT) {
        code = options.frags ? plan_frags(&planning) : plan_answer(&planning);
    }
    plan_source_close(&planning.source);
    return code;
}
