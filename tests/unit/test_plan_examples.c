/*
 * test_plan_examples.c - the worked examples of docs/geometry.md, section 13: models and
 * topologies, who is asked, what each writer sends, and both gates' verdicts. The numbers are the
 * document's.
 */
#include <stdio.h>
#include <string.h>

#include "geo_make.h"
#include "plan.h"

enum { WRITERS_MAX = 8, BLOCKS_MAX = 64 };

typedef void (*make_fn)(struct geo_make_model *model);

/* What one writer sends in one piece. */
struct sends {
    uint64_t fragments;
    uint64_t bytes;
    enum plan_bounce bounce;
};

struct example {
    const char *id;
    make_fn make;
    struct geo_make_grid src;
    struct geo_make_grid dst;
    uint32_t reader;
    uint32_t sender_group;
    uint32_t tokens;
    uint32_t cached;
    enum plan_split split;
    uint32_t first_asked; /* asked ranks are consecutive, or all of `asked` */
    uint32_t writer_count;
    struct sends writers[WRITERS_MAX];
};

static void base(struct geo_make_model *m, uint32_t layers, uint32_t heads, uint32_t tokens)
{
    geo_make_model(m, layers, heads, 128, tokens);
}

static void l32h8(struct geo_make_model *m)
{
    base(m, 32, 8, 32);
}

static void l32h8_nhd(struct geo_make_model *m)
{
    base(m, 32, 8, 32);
    m->model.nhd = true;
}

static void l32h4(struct geo_make_model *m)
{
    base(m, 32, 4, 32);
}

static void l32h2(struct geo_make_model *m)
{
    base(m, 32, 2, 32);
}

static void l40h8(struct geo_make_model *m)
{
    base(m, 40, 8, 32);
}

static void l36h8t16(struct geo_make_model *m)
{
    base(m, 36, 8, 16);
}

static void mla61(struct geo_make_model *m)
{
    geo_make_model(m, 61, 1, 576, 64);
    m->model.mla = true;
    for (uint32_t l = 0; l < 61; l++) {
        m->layers[l].k_only = true;
    }
}

static void draft_h2(struct geo_make_model *m)
{
    base(m, 33, 8, 32);
    m->layers[32].owner = KVF_OWNER_DRAFT;
    m->layers[32].kv_heads = 2;
}

static void draft_same_size(struct geo_make_model *m)
{
    geo_make_model(m, 33, 8, 64, 32);
    m->layers[32].owner = KVF_OWNER_DRAFT;
    m->layers[32].kv_heads = 4;
    m->layers[32].head_dim = 128;
}

static void indexed(struct geo_make_model *m)
{
    base(m, 32, 4, 64);
    for (uint32_t l = 0; l < 32; l++) {
        m->layers[l].index_bytes = 132;
    }
}

static void windowed(struct geo_make_model *m)
{
    base(m, 4, 8, 16);
    m->layers[1].window = m->layers[2].window = 64;
}

static void l2h8(struct geo_make_model *m)
{
    base(m, 2, 8, 32);
}

static void recurrent(struct geo_make_model *m)
{
    base(m, 4, 4, 32);
    for (uint32_t l = 1; l <= 2; l++) {
        m->layers[l] = (struct kvf_model_layer){.state_units = 16,
                                                .state_unit_bytes = 4096,
                                                .section_count = 3,
                                                .section_bytes = {512, 512, 2048}};
    }
}

static void one_layer_without(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    m->layers[1].kv_heads = 0;
}

static void k_only(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    m->layers[1].k_only = m->layers[3].k_only = true;
}

static void with_aux(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    m->model.aux_count = 3;
    m->aux_bytes[0] = 4;
    m->aux_bytes[2] = 8;
}

#define ONE(ranks, count) \
    { \
        .tp = ranks, .pp = 1, .layers = { count } \
    }
#define ADP(ranks, count) \
    { \
        .tp = ranks, .dp = ranks, .pp = 1, .layers = { count } \
    }
#define SILENT \
    { \
        0, 0, PLAN_BOUNCE_EMPTY \
    }

static const struct example examples[] = {
    {"X01",
     l32h8,
     ONE(1, 32),
     ONE(1, 32),
     0,
     0,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{32, 134217728, PLAN_BOUNCE_COUNT}}},
    {"X03",
     l32h8,
     ONE(4, 32),
     ONE(2, 32),
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_EQUAL,
     2,
     2,
     {{2048, 33554432, PLAN_BOUNCE_OK}, {2048, 33554432, PLAN_BOUNCE_OK}}},
    {"X05",
     l32h8_nhd,
     ONE(4, 32),
     ONE(2, 32),
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_EQUAL,
     2,
     2,
     {{65536, 33554432, PLAN_BOUNCE_OK}, {65536, 33554432, PLAN_BOUNCE_OK}}},
    {"X08",
     l32h4,
     ONE(8, 32),
     ONE(2, 32),
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_DUP,
     4,
     4,
     {{2048, 16777216, PLAN_BOUNCE_OK}, SILENT, {2048, 16777216, PLAN_BOUNCE_OK}, SILENT}},
    {"X09",
     l32h2,
     ONE(8, 32),
     ONE(8, 32),
     5,
     0,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     5,
     1,
     {{32, 16777216, PLAN_BOUNCE_COUNT}}},
    {"X13",
     l32h2,
     ONE(8, 32),
     ADP(8, 32),
     3,
     0,
     1024,
     0,
     PLAN_SPLIT_DUP,
     0,
     8,
     {SILENT,
      SILENT,
      SILENT,
      {2048, 16777216, PLAN_BOUNCE_OK},
      SILENT,
      SILENT,
      SILENT,
      {2048, 16777216, PLAN_BOUNCE_OK}}},
    {"X17",
     l32h8,
     ADP(4, 32),
     ADP(8, 32),
     6,
     3,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     3,
     1,
     {{32, 134217728, PLAN_BOUNCE_COUNT}}},
    {"X18",
     mla61,
     ONE(8, 61),
     ONE(4, 61),
     3,
     0,
     4096,
     0,
     PLAN_SPLIT_DUP,
     6,
     2,
     {{64, 287834112, PLAN_BOUNCE_COUNT}, SILENT}},
    {"X19",
     mla61,
     ONE(4, 61),
     ONE(8, 61),
     7,
     0,
     4096,
     0,
     PLAN_SPLIT_SINGLE,
     3,
     1,
     {{64, 287834112, PLAN_BOUNCE_COUNT}}},
    {"X21",
     l32h8,
     {.tp = 1, .pp = 2, .layers = {16, 16}},
     ONE(1, 32),
     0,
     0,
     1024,
     0,
     PLAN_SPLIT_PP,
     0,
     2,
     {{32, 67108864, PLAN_BOUNCE_COUNT}, {32, 67108864, PLAN_BOUNCE_COUNT}}},
    {"X24",
     l40h8,
     {.tp = 1, .pp = 2, .layers = {20, 20}},
     {.tp = 1, .pp = 2, .layers = {30, 10}},
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     1,
     1,
     {{32, 41943040, PLAN_BOUNCE_COUNT}}},
    {"X26",
     draft_h2,
     ONE(4, 33),
     ONE(2, 33),
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_VIEW_DUP,
     2,
     2,
     {{2080, 34078720, PLAN_BOUNCE_OK}, {2048, 33554432, PLAN_BOUNCE_OK}}},
    {"X27",
     draft_same_size,
     ONE(2, 33),
     ONE(2, 33),
     0,
     0,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{64, 34603008, PLAN_BOUNCE_COUNT}}},
    {"X31",
     indexed,
     ONE(4, 32),
     ONE(2, 32),
     1,
     0,
     1024,
     0,
     PLAN_SPLIT_REPLICATED,
     2,
     2,
     {{1040, 21102592, PLAN_BOUNCE_AVERAGE}, {1024, 16777216, PLAN_BOUNCE_OK}}},
    {"X33",
     windowed,
     ONE(1, 4),
     ONE(1, 4),
     0,
     0,
     200,
     0,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{18, 2359296, PLAN_BOUNCE_COUNT}}},
    {"X34",
     windowed,
     ONE(1, 4),
     ONE(1, 4),
     0,
     0,
     200,
     100,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{12, 1572864, PLAN_BOUNCE_COUNT}}},
    {"X35",
     l2h8,
     ONE(1, 2),
     ONE(1, 2),
     0,
     0,
     40,
     0,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{2, 524288, PLAN_BOUNCE_COUNT}}},
    {"X37",
     recurrent,
     ONE(2, 4),
     ONE(4, 4),
     3,
     0,
     64,
     0,
     PLAN_SPLIT_SINGLE,
     1,
     1,
     {{16, 99840, PLAN_BOUNCE_COUNT}}},
    {"X40",
     one_layer_without,
     ONE(2, 4),
     ONE(1, 4),
     0,
     0,
     64,
     0,
     PLAN_SPLIT_EQUAL,
     0,
     2,
     {{12, 393216, PLAN_BOUNCE_COUNT}, {12, 393216, PLAN_BOUNCE_COUNT}}},
    {"X44",
     with_aux,
     {.tp = 4, .pp = 2, .layers = {2, 2}},
     ONE(2, 4),
     1,
     0,
     64,
     0,
     PLAN_SPLIT_PP,
     UINT32_MAX,
     4,
     {{8, 131072, PLAN_BOUNCE_COUNT},
      {8, 131072, PLAN_BOUNCE_COUNT},
      {8, 131072, PLAN_BOUNCE_COUNT},
      {8, 131072, PLAN_BOUNCE_COUNT}}},
    {"X47",
     l36h8t16,
     ONE(1, 36),
     ONE(1, 36),
     0,
     0,
     1024,
     0,
     PLAN_SPLIT_SINGLE,
     0,
     1,
     {{64, 150994944, PLAN_BOUNCE_FRAGMENT_SIZE}}},
    {"X48",
     l32h8,
     ONE(4, 32),
     ONE(2, 32),
     0,
     0,
     512,
     0,
     PLAN_SPLIT_EQUAL,
     0,
     2,
     {{1024, 16777216, PLAN_BOUNCE_OK}, {1024, 16777216, PLAN_BOUNCE_OK}}},
    {"X52",
     k_only,
     ONE(2, 4),
     ONE(1, 4),
     0,
     0,
     64,
     0,
     PLAN_SPLIT_EQUAL,
     0,
     2,
     {{12, 393216, PLAN_BOUNCE_COUNT}, {12, 393216, PLAN_BOUNCE_COUNT}}},
};

static const uint32_t x44_asked[] = {2, 3, 6, 7};

/* The settings of X47: arenas of 3 MiB, of which 2 MiB are one chunk; any count may bounce. */
static void set_bounce(const struct example *example, struct geo_record *record)
{
    if (strcmp(example->id, "X47") == 0) {
        record->bounce.arena_bytes = 3u << 20;
        record->bounce.min_descriptor_count = 1;
    }
}

static struct geo_record *rank_of(const struct example *example, enum geo_side side, uint32_t rank)
{
    struct geo_make_model model;
    struct geo_make_params params = {.model = &model,
                                     .grid = side == GEO_CONTEXT ? &example->src : &example->dst,
                                     .side = side,
                                     .slots = 2 * BLOCKS_MAX + 2};
    struct geo_record *record;

    example->make(&model);
    record = geo_make_record(&params, rank);
    set_bounce(example, record);
    return record;
}

static uint32_t slots_up[BLOCKS_MAX];
static uint32_t slots_down[BLOCKS_MAX];

/* Lists whose slots are never neighbours. */
static void lists_of(const struct example *example, const struct geo_record *record, bool is_dst,
                     struct kvf_block_list *lists)
{
    for (uint32_t g = 0; g < record->layout.group_count; g++) {
        const struct kvf_group *group = &record->layout.groups[g];
        uint32_t tokens = record->layout.tokens_per_block;
        uint32_t blocks = plan_blocks(example->tokens, tokens);
        uint32_t first = plan_first_ordinal(example->tokens, is_dst ? example->cached : 0,
                                            group->window, tokens);

        if (group->group_class == KVF_GROUP_STATE) {
            first = 0;
            blocks = 1;
        }
        lists[g] = (struct kvf_block_list){
            .first = first, .count = blocks - first, .slots = is_dst ? slots_down : slots_up};
    }
}

static void check_writer(const struct example *example, const struct geo_record *reader,
                         uint32_t rank, const struct sends *wanted, struct plan_split_facts *split)
{
    struct geo_record *writer = rank_of(example, GEO_CONTEXT, rank);
    struct kvf_block_list src[4], dst[4];
    struct plan_request request = {.prompt_tokens = example->tokens,
                                   .src_count = writer->layout.group_count,
                                   .dst_count = reader->layout.group_count,
                                   .src = src,
                                   .dst = dst,
                                   .src_aux_slot = 1,
                                   .dst_aux_slot = 2};
    struct plan_piece piece = plan_whole(example->tokens);
    struct plan_template *template = NULL;
    struct plan_totals totals;
    struct geo_text text = {{0}};

    lists_of(example, writer, false, src);
    lists_of(example, reader, true, dst);
    if (geo_check_peer(writer, reader, GEO_CONTEXT, &text) != KVF_OK ||
        plan_template_open(kvf_heap_system(), writer, reader, &template) != KVF_OK ||
        plan_check_request(template, &request, &piece, &text) != KVF_OK) {
        fail_msg("%s: %s", example->id, text.s);
    }
    plan_count(template, &request, &piece, &totals);
    if (totals.fragments != wanted->fragments || totals.bytes != wanted->bytes ||
        plan_bounce_gate(template, &totals) != wanted->bounce) {
        fail_msg("%s rank %u: %llu fragments, %llu bytes, %s", example->id, rank,
                 (unsigned long long)totals.fragments, (unsigned long long)totals.bytes,
                 plan_bounce_name(plan_bounce_gate(template, &totals)));
    }
    plan_split_add(split, template);
    if (strcmp(example->id, "X44") == 0) {
        struct plan_fragment aux;

        assert_int_equal(plan_aux_elected(template), rank == 2);
        assert_int_equal(plan_aux_fragment(template, &request, 0, &aux), rank == 2);
        assert_false(plan_aux_fragment(template, &request, 1, &aux)); /* empty */
        if (plan_aux_fragment(template, &request, 2, &aux)) {
            assert_int_equal(aux.src, writer->aux[2].base + 8);
            assert_int_equal(aux.dst, reader->aux[2].base + 16);
            assert_int_equal(aux.bytes, 8);
        }
    }
    plan_template_close(template);
    geo_record_close(writer);
}

static void check_example(const struct example *example)
{
    struct geo_record *reader = rank_of(example, GEO_GENERATION, example->reader);
    struct kvf_place grid = geo_make_place(&example->src, 0);
    struct plan_split_facts split = {.group_known = true};
    uint32_t asked[WRITERS_MAX];
    uint32_t count = 0;

    assert_int_equal(geo_asked(reader, &grid, example->sender_group, asked, WRITERS_MAX, &count),
                     KVF_OK);
    assert_int_equal(count, example->writer_count);
    assert_int_equal(geo_finals(reader, &grid, &split.finals), KVF_OK);
    assert_int_equal(split.finals, example->writer_count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(asked[i], example->first_asked == UINT32_MAX ? x44_asked[i]
                                                                      : example->first_asked + i);
        check_writer(example, reader, asked[i], &example->writers[i], &split);
    }
    if (plan_split_gate(&split) != example->split) {
        fail_msg("%s: equal split %s", example->id, plan_split_name(plan_split_gate(&split)));
    }
    geo_record_close(reader);
}

static void every_worked_example_has_its_numbers(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < BLOCKS_MAX; b++) {
        slots_up[b] = 2 * b;
        slots_down[b] = 2 * (BLOCKS_MAX - b);
    }
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        check_example(&examples[i]);
    }
}

/* X03 by hand: docs/geometry.md spells out both addresses. */
static void addresses_of_a_head_slice_are_those_worked_out_by_hand(void **state)
{
    const struct example *x03 = &examples[1];
    struct geo_record *writer = rank_of(x03, GEO_CONTEXT, 3);
    struct geo_record *reader = rank_of(x03, GEO_GENERATION, 1);
    uint32_t src_slot = 5, dst_slot = 9;
    struct kvf_block_list src = {.first = 0, .count = 1, .slots = &src_slot};
    struct kvf_block_list dst = {.first = 0, .count = 1, .slots = &dst_slot};
    struct plan_request request = {
        .prompt_tokens = 32, .src_count = 1, .dst_count = 1, .src = &src, .dst = &dst};
    struct plan_piece piece = plan_whole(32);
    uint64_t src_base = 1000, dst_base = 5000;
    struct plan_addresses addresses = {.src = &src_base, .dst = &dst_base};
    struct stripe stripes[4];
    struct stripe_pair pairs[1];
    struct plan_scratch scratch = {
        .stripes = stripes, .pairs = pairs, .stripes_max = 4, .pairs_max = 1};
    struct plan_filled filled;
    struct plan_template *template = NULL;
    struct plan_walk walk;
    struct plan_fragment fragment;
    uint32_t index = 0;

    (void)state;
    assert_int_equal(plan_template_open(kvf_heap_system(), writer, reader, &template), KVF_OK);
    assert_int_equal(plan_fill(template, &request, &piece, &addresses, &scratch, &filled), KVF_OK);
    assert_int_equal(filled.stripe_count, 1);
    plan_walk_init(&walk, stripes, filled.stripe_count);
    for (; plan_walk_next(&walk, &fragment); index++) {
        uint64_t l = index / 2, k = index % 2;

        assert_int_equal(fragment.bytes, 16384);
        assert_int_equal(fragment.src, 1000 + 5 * 1048576 + l * 32768 + k * 16384);
        assert_int_equal(fragment.dst, 5000 + 9 * 2097152 + l * 65536 + k * 32768 + 2 * 8192);
    }
    assert_int_equal(index, 64);
    plan_template_close(template);
    geo_record_close(writer);
    geo_record_close(reader);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void l4h8(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
}

static void l4h8_t64(struct geo_make_model *m)
{
    base(m, 4, 8, 64);
}

static void l4h4(struct geo_make_model *m)
{
    base(m, 4, 4, 32);
}

static void l4h8_draft(struct geo_make_model *m)
{
    base(m, 5, 8, 32);
    m->layers[4].owner = KVF_OWNER_DRAFT;
}

static void l4h8_index(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    m->layers[0].index_bytes = m->layers[1].index_bytes = 4;
}

static void mixed_heads(struct geo_make_model *m)
{
    geo_make_model(m, 4, 8, 64, 32);
    m->layers[1].kv_heads = m->layers[3].kv_heads = 4;
    m->layers[1].head_dim = m->layers[3].head_dim = 128;
}

static void window_of(struct geo_make_model *m, uint32_t window)
{
    base(m, 4, 8, 32);
    for (uint32_t l = 0; l < 4; l++) {
        m->layers[l].window = window;
    }
}

static void window64(struct geo_make_model *m)
{
    window_of(m, 64);
}

static void window128(struct geo_make_model *m)
{
    window_of(m, 128);
}

static void elements8(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    for (uint32_t l = 0; l < 4; l++) {
        m->layers[l].dtype = KVF_DTYPE_FP8_E4M3;
        m->layers[l].elem_bits = 8;
    }
}

static void scales_of(struct geo_make_model *m, uint32_t per)
{
    base(m, 4, 8, 32);
    for (uint32_t l = 0; l < 4; l++) {
        m->layers[l].dtype = KVF_DTYPE_FP4_E2M1;
        m->layers[l].elem_bits = 4;
        m->layers[l].scale_per = per;
        m->layers[l].scale_bits = 8;
    }
}

static void scales16(struct geo_make_model *m)
{
    scales_of(m, 16);
}

static void scales32(struct geo_make_model *m)
{
    scales_of(m, 32);
}

static void values_in_one_less(struct geo_make_model *m)
{
    base(m, 4, 8, 32);
    m->layers[1].k_only = true;
}

/* Refusals between two models; the tables of one rank's own refusals are in test_pages.c. */
static const struct {
    const char *id;
    make_fn src;
    make_fn dst;
    uint32_t src_tp;
    uint32_t dst_tp;
    enum pages_form dst_form;
    enum kvf_status wanted;
} refusals[] = {
    {"E01", l4h8, l4h8_t64, 1, 1, PAGES_PARTITIONED, KVF_E_BLOCK},
    {"E08", l4h8, l4h4, 8, 4, PAGES_PARTITIONED, KVF_E_HEAD_TOTAL},
    {"E09", l4h8_draft, l4h8, 1, 1, PAGES_PARTITIONED, KVF_E_DRAFT_LAYERS},
    {"E11", l4h8_index, l4h8, 1, 1, PAGES_PARTITIONED, KVF_E_VIEW_MISSING},
    {"E14", mixed_heads, mixed_heads, 1, 1, PAGES_LEGACY, KVF_E_VIEW_AMBIGUOUS},
    {"E16", window64, window128, 1, 1, PAGES_PARTITIONED, KVF_E_WINDOW},
    {"E18", l4h8, elements8, 1, 1, PAGES_PARTITIONED, KVF_E_ELEM},
    {"E23", scales16, scales32, 1, 1, PAGES_PARTITIONED, KVF_E_HEAD_BYTES},
    {"E27", l4h8, values_in_one_less, 1, 1, PAGES_PARTITIONED, KVF_E_VIEW_ROLES},
};

static struct geo_record *first_rank(make_fn make, enum geo_side side, uint32_t tp,
                                     enum pages_form form)
{
    struct geo_make_model model;
    struct geo_make_grid grid;
    struct geo_make_params params = {
        .model = &model, .grid = &grid, .side = side, .form = form, .slots = 2};

    make(&model);
    grid = geo_make_grid(tp, 0, model.model.layer_count);
    return geo_make_record(&params, 0);
}

static void every_worked_refusal_has_its_code_in_both_directions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct geo_record *there[2], *back[2];

        there[0] = first_rank(refusals[i].src, GEO_CONTEXT, refusals[i].src_tp, PAGES_PARTITIONED);
        there[1] =
            first_rank(refusals[i].dst, GEO_GENERATION, refusals[i].dst_tp, refusals[i].dst_form);
        back[0] =
            first_rank(refusals[i].dst, GEO_CONTEXT, refusals[i].dst_tp, refusals[i].dst_form);
        back[1] =
            first_rank(refusals[i].src, GEO_GENERATION, refusals[i].src_tp, PAGES_PARTITIONED);
        for (int self = 0; self < 2; self++) {
            assert_int_equal(geo_check_peer(there[0], there[1], (enum geo_side)self, NULL),
                             refusals[i].wanted);
            assert_int_equal(geo_check_peer(back[0], back[1], (enum geo_side)self, NULL),
                             refusals[i].wanted);
        }
        for (int r = 0; r < 2; r++) {
            geo_record_close(there[r]);
            geo_record_close(back[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_worked_example_has_its_numbers),
        cmocka_unit_test(every_worked_refusal_has_its_code_in_both_directions),
        cmocka_unit_test(addresses_of_a_head_slice_are_those_worked_out_by_hand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
