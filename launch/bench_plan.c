/*
 * bench_plan.c - `kvferry bench plan`: what planning one request costs. No MPI, no transfer.
 *
 * Two ranks of one model, one writer and one reader of another TP width or of the same; the
 * template is made once, then plan_check_request() and plan_fill() run again and again over fresh
 * block lists. Two more rows, of a model made here, have the same layers and blocks but 65,536 and
 * 1,048,576 fragments: they must cost the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <jansson.h>

#include <kvferry/kvf_topology.h>

#include "bench_commands.h"
#include "model.h"
#include "json_file.h"
#include "options.h"
#include "plan.h"
#include "rng.h"
#include "say.h"

struct bench_plan_options {
    const char *model;
    uint64_t writer_tp;
    uint64_t reader_tp;
    uint64_t rounds;
    const char *json;
    bool help;
};

#define ROW(name_, kind_, member) name_, kind_, offsetof(struct bench_plan_options, member)

static const struct option_row bench_plan_rows[] = {
    {ROW("model", OPTION_TEXT, model), "deepseek-v3", 0, 0, NULL, "NAME|FILE", "cache facts"},
    {ROW("ctx-tp", OPTION_WHOLE, writer_tp), "1", 1, 1024, NULL, "N", "TP width of the writer"},
    {ROW("gen-tp", OPTION_WHOLE, reader_tp), "1", 1, 1024, NULL, "N", "TP width of the reader"},
    {ROW("rounds", OPTION_WHOLE, rounds), "200", 3, 1000000, NULL, "N", "requests planned"},
    {ROW("json", OPTION_TEXT, json), NULL, 0, 0, NULL, "FILE", "write the figures to a file"},
    {ROW("help", OPTION_FLAG, help), NULL, 0, 0, NULL, NULL, "this text"},
    {0},
};

void bench_plan_help(void)
{
    options_help(bench_plan_rows, stdout);
}

/* One side: its layout and record. */
struct bench_plan_side {
    struct kvf_topology *topology;
    uint32_t layers[KVF_PP_MAX];
    struct kvf_layout *layout;
    struct geo_record *record;
    struct geo_pool *pools;
    struct geo_aux *aux;
    uint64_t *addresses;
    struct kvf_block_list *lists;
    uint32_t *slots;
};

struct bench_plan_case {
    const struct plan_template *template;
    struct bench_plan_side *sides; /* [2] writer, reader */
    uint32_t blocks;
    struct rng rng;
};

struct bench_plan_result {
    double peer_us; /* check and template of the pair, once a peer */
    double p50_us, p99_us;
    uint32_t blocks;
    struct plan_totals totals;
    uint32_t stripes;
};

static double bench_plan_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static bool bench_plan_side_record(struct bench_plan_side *side, enum geo_side geo,
                                   const struct kvf_place *place, uint32_t slots)
{
    struct geo_record facts = {0};
    struct geo_text text;

    side->pools = calloc(side->layout->pool_count + 1u, sizeof(*side->pools));
    side->aux = calloc(side->layout->aux_count + 1u, sizeof(*side->aux));
    side->addresses = calloc(side->layout->pool_count + 1u, sizeof(*side->addresses));
    side->lists = calloc(side->layout->group_count + 1u, sizeof(*side->lists));
    side->slots = calloc(slots + 1u, sizeof(*side->slots));
    if (side->pools == NULL || side->aux == NULL || side->addresses == NULL ||
        side->lists == NULL || side->slots == NULL) {
        return false;
    }
    for (uint32_t p = 0; p < side->layout->pool_count; p++) {
        side->pools[p].base = ((uint64_t)(geo + 1) << 44) + ((uint64_t)p << 42);
        side->pools[p].slots = slots;
        side->pools[p].bytes = side->layout->pools[p].slot_stride * slots;
        side->addresses[p] = side->pools[p].base;
    }
    for (uint32_t a = 0; a < side->layout->aux_count; a++) {
        side->aux[a].item_bytes = side->layout->aux_bytes[a];
    }
    facts.wire_version = GEO_WIRE_VERSION;
    snprintf(facts.instance_name, sizeof(facts.instance_name), "%s",
             geo == GEO_CONTEXT ? "ctx0" : "gen0");
    facts.instance = (uint32_t)geo;
    facts.side = geo;
    facts.place = *place;
    facts.layout = *side->layout;
    facts.pools = side->pools;
    facts.aux = side->aux;
    if (geo_record_open(kvf_heap_system(), &facts, &side->record) != KVF_OK ||
        geo_check_local(side->record, &text) != KVF_OK) {
        say("bench plan: the record of a rank is refused");
        return false;
    }
    return true;
}

static bool bench_plan_side_open(struct bench_plan_side *side, enum geo_side geo,
                                 const struct model *model, uint64_t tp, uint32_t slots)
{
    char form[96], text[256];
    struct kvf_place place;

    snprintf(form, sizeof(form), "ctx tp=%llu; gen tp=%llu", (unsigned long long)tp,
             (unsigned long long)tp);
    if (kvf_topology_parse(form, &side->topology, text, sizeof(text)) != KVF_OK ||
        kvf_place(side->topology, 0, model->facts.layer_count, side->layers, &place) != KVF_OK ||
        kvf_layout_from_model(&model->facts, &place, &side->layout, text, sizeof(text)) != KVF_OK) {
        say("bench plan: %s", text);
        return false;
    }
    return bench_plan_side_record(side, geo, &place, slots);
}

static void bench_plan_side_close(struct bench_plan_side *side)
{
    geo_record_close(side->record);
    kvf_layout_free(side->layout);
    kvf_topology_free(side->topology);
    free(side->pools);
    free(side->aux);
    free(side->addresses);
    free(side->lists);
    free(side->slots);
}

/* Fresh block lists: slots in a random order on both sides. */
static void bench_plan_lists(struct bench_plan_case *bench, uint32_t prompt_tokens)
{
    for (int s = 0; s < 2; s++) {
        struct bench_plan_side *side = &bench->sides[s];

        for (uint32_t i = 0; i < bench->blocks; i++) {
            uint32_t pick = rng_below(&bench->rng, i + 1);

            side->slots[i] = side->slots[pick];
            side->slots[pick] = i;
        }
        for (uint32_t g = 0; g < side->layout->group_count; g++) {
            const struct kvf_group *group = &side->layout->groups[g];
            uint32_t first =
                plan_stale(prompt_tokens, group->window, side->layout->tokens_per_block);
            bool state = group->group_class == KVF_GROUP_STATE;

            side->lists[g].first = state ? 0 : first;
            side->lists[g].count = state ? 1 : bench->blocks - first;
            side->lists[g].slots = side->slots;
        }
    }
}

static int bench_plan_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Plans `rounds` requests; times_us has room for them. */
static bool bench_plan_measure(struct bench_plan_case *bench, const struct plan_scratch *scratch,
                               double *times_us, uint32_t rounds,
                               struct bench_plan_result *result_out)
{
    uint32_t prompt = bench->blocks * bench->sides[0].layout->tokens_per_block;
    struct plan_piece piece = plan_whole(prompt);
    struct plan_addresses addresses = {bench->sides[0].addresses, bench->sides[1].addresses};
    struct plan_request request = {
        .prompt_tokens = prompt,
        .src_count = bench->sides[0].layout->group_count,
        .dst_count = bench->sides[1].layout->group_count,
        .src = bench->sides[0].lists,
        .dst = bench->sides[1].lists,
        .src_aux_slot = PLAN_NO_SLOT,
        .dst_aux_slot = PLAN_NO_SLOT,
    };
    struct plan_filled filled;
    struct geo_text text;

    for (uint32_t i = 0; i < rounds; i++) {
        double start_us;

        bench_plan_lists(bench, prompt);
        start_us = bench_plan_now_us();
        if (plan_check_request(bench->template, &request, &piece, &text) != KVF_OK ||
            plan_fill(bench->template, &request, &piece, &addresses, scratch, &filled) != KVF_OK) {
            say("bench plan: a request is refused");
            return false;
        }
        times_us[i] = bench_plan_now_us() - start_us;
    }
    qsort(times_us, rounds, sizeof(*times_us), bench_plan_order);
    result_out->p50_us = times_us[rounds / 2];
    result_out->p99_us = times_us[rounds - 1 - rounds / 100];
    result_out->blocks = bench->blocks;
    result_out->totals = filled.totals;
    result_out->stripes = filled.stripe_count;
    return true;
}

/* What a row measures. */
struct bench_plan_shape {
    const struct model *model;
    uint64_t writer_tp, reader_tp;
    uint32_t blocks;
    uint32_t rounds;
};

static bool bench_plan_case(const struct bench_plan_shape *shape,
                            struct bench_plan_result *result_out)
{
    static struct bench_plan_side sides[2];
    const uint32_t blocks = shape->blocks;
    struct bench_plan_case bench = {.sides = sides, .blocks = blocks, .rng = {blocks}};
    struct plan_template *template = NULL;
    struct plan_scratch scratch = {0};
    double *times_us = calloc(shape->rounds, sizeof(*times_us));
    struct geo_text text = {""};
    double start_us;
    bool fine;

    memset(sides, 0, sizeof(sides));
    fine = times_us != NULL &&
           bench_plan_side_open(&sides[0], GEO_CONTEXT, shape->model, shape->writer_tp, blocks) &&
           bench_plan_side_open(&sides[1], GEO_GENERATION, shape->model, shape->reader_tp, blocks);
    start_us = bench_plan_now_us();
    if (fine && (geo_check_peer(sides[0].record, sides[1].record, GEO_CONTEXT, &text) != KVF_OK ||
                 plan_template_open(kvf_heap_system(), sides[0].record, sides[1].record,
                                    &template) != KVF_OK)) {
        say("bench plan: the two sides do not fit: %s", text.s);
        fine = false;
    }
    result_out->peer_us = bench_plan_now_us() - start_us;
    if (fine) {
        scratch.stripes_max = plan_stripes_max(template);
        scratch.pairs_max = plan_pairs_max(template, blocks);
        scratch.stripes = calloc(scratch.stripes_max + 1u, sizeof(*scratch.stripes));
        scratch.pairs = calloc(scratch.pairs_max + 1u, sizeof(*scratch.pairs));
        bench.template = template;
        fine = scratch.stripes != NULL && scratch.pairs != NULL &&
               bench_plan_measure(&bench, &scratch, times_us, shape->rounds, result_out);
    }
    plan_template_close(template);
    free(scratch.stripes);
    free(scratch.pairs);
    free(times_us);
    bench_plan_side_close(&sides[0]);
    bench_plan_side_close(&sides[1]);
    return fine;
}

/* ---- same blocks, other fragments ----------------------------------------------------------- */

enum { SAME_LAYERS = 32, SAME_BLOCKS = 32, SAME_ROWS = 2 };

/* Token-major pages, tp 4 to tp 2: 32 layers x 2 x 32 blocks x 32 or 512 tokens. */
static bool bench_plan_same(uint32_t rounds, struct bench_plan_result *results)
{
    static const uint32_t tokens[SAME_ROWS] = {32, 512};
    struct kvf_model_layer layers[SAME_LAYERS] = {{0}};
    bool fine = true;

    for (uint32_t l = 0; l < SAME_LAYERS; l++) {
        layers[l].kv_heads = 8;
        layers[l].head_dim = 128;
        layers[l].dtype = KVF_DTYPE_BF16;
        layers[l].elem_bits = 16;
    }
    for (int row = 0; fine && row < SAME_ROWS; row++) {
        struct model model = {.name = "same-blocks",
                              .target_layers = SAME_LAYERS,
                              .facts = {.layer_count = SAME_LAYERS,
                                        .layers = layers,
                                        .tokens_per_block = tokens[row],
                                        .nhd = true}};
        const struct bench_plan_shape shape = {&model, 4, 2, SAME_BLOCKS, rounds};

        fine = bench_plan_case(&shape, &results[row]);
    }
    return fine;
}

/* ---- the figures ---------------------------------------------------------------------------- */

static json_t *bench_plan_rows_json(const struct bench_plan_result *results, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        const struct bench_plan_result *result = &results[i];

        json_array_append_new(list, json_pack("{s:i, s:i, s:I, s:I, s:f, s:f, s:f}", "blocks",
                                              (int)result->blocks, "stripes", (int)result->stripes,
                                              "fragments", (json_int_t)result->totals.fragments,
                                              "bytes", (json_int_t)result->totals.bytes, "peer_us",
                                              result->peer_us, "p50_us", result->p50_us, "p99_us",
                                              result->p99_us));
    }
    return list;
}

static void bench_plan_rows_print(const struct bench_plan_result *results, uint32_t count)
{
    printf("%10s %8s %12s %16s %10s %10s %10s\n", "blocks", "stripes", "fragments", "bytes",
           "peer us", "p50 us", "p99 us");
    for (uint32_t i = 0; i < count; i++) {
        const struct bench_plan_result *result = &results[i];

        printf("%10u %8u %12llu %16llu %10.2f %10.2f %10.2f\n", result->blocks, result->stripes,
               (unsigned long long)result->totals.fragments,
               (unsigned long long)result->totals.bytes, result->peer_us, result->p50_us,
               result->p99_us);
    }
}

static int bench_plan_print(const struct bench_plan_options *options, const struct model *model,
                            const struct bench_plan_result *results, uint32_t count,
                            const struct bench_plan_result *same)
{
    json_t *object;
    int code = EXIT_RIGHT;

    printf("planning one request of %s, tp %llu to tp %llu\n", model->name,
           (unsigned long long)options->writer_tp, (unsigned long long)options->reader_tp);
    bench_plan_rows_print(results, count);
    printf("same blocks, other fragments: %d layers, token-major, tp 4 to tp 2\n", SAME_LAYERS);
    bench_plan_rows_print(same, SAME_ROWS);
    object = json_pack("{s:s, s:i, s:o, s:o}", "model", model->name, "layers",
                       (int)model->facts.layer_count, "plans", bench_plan_rows_json(results, count),
                       "same_blocks", bench_plan_rows_json(same, SAME_ROWS));
    if (options->json != NULL && !json_file_write("--json", options->json, object, 2)) {
        code = EXIT_USAGE;
    }
    json_decref(object);
    return code;
}

int bench_plan(int argc, char **argv)
{
    static const uint32_t blocks[] = {1, 256, 10000, 100000};
    enum { COUNT = sizeof(blocks) / sizeof(blocks[0]) };
    struct bench_plan_options options;
    struct bench_plan_result results[COUNT], same[SAME_ROWS];
    struct model model;
    char text[OPTIONS_TEXT_BYTES];
    bool fine = true;
    int code;

    if (!options_parse(bench_plan_rows, argc, argv, &options, text)) {
        say("%s", text);
        return EXIT_USAGE;
    }
    if (options.help) {
        bench_plan_help();
        return EXIT_RIGHT;
    }
    if (!json_file_fits("--json", options.json, text, sizeof(text)) ||
        !model_load(options.model, 0, &model, text)) {
        say("%s", text);
        return EXIT_USAGE;
    }
    for (uint32_t i = 0; fine && i < COUNT; i++) {
        const struct bench_plan_shape shape = {&model, options.writer_tp, options.reader_tp,
                                               blocks[i], (uint32_t)options.rounds};

        fine = bench_plan_case(&shape, &results[i]);
    }
    fine = fine && bench_plan_same((uint32_t)options.rounds, same);
    code = fine ? bench_plan_print(&options, &model, results, COUNT, same) : EXIT_REFUSED;
    model_free(&model);
    return code;
}
