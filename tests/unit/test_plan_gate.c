/*
 * test_plan_gate.c - the two bounce gates on both sides of every limit, the reasons in their order,
 * and packing (docs/geometry.md, section 11).
 */
#include <string.h>

#include "geo_make.h"
#include "plan.h"

/* A writer and a reader of one K/V view; tests change their bounce figures. */
struct bed {
    struct geo_record *writer;
    struct geo_record *reader;
};

static void bed_init(struct bed *bed)
{
    struct geo_make_model model;
    struct geo_make_grid grid = geo_make_grid(1, 0, 2);
    struct geo_make_params params = {.model = &model, .grid = &grid, .slots = 4};

    geo_make_model(&model, 2, 8, 16, 8);
    bed->writer = geo_make_record(&params, 0);
    params.side = GEO_GENERATION;
    bed->reader = geo_make_record(&params, 0);
}

static void bed_fini(struct bed *bed)
{
    geo_record_close(bed->writer);
    geo_record_close(bed->reader);
}

static enum plan_bounce gate(const struct bed *bed, uint64_t fragments, uint64_t bytes,
                             uint64_t largest)
{
    struct plan_totals totals = {.fragments = fragments, .bytes = bytes, .largest_bytes = largest};
    struct plan_template *template = NULL;
    enum plan_bounce verdict;

    assert_int_equal(plan_template_open(kvf_heap_system(), bed->writer, bed->reader, &template),
                     KVF_OK);
    verdict = plan_bounce_gate(template, &totals);
    plan_template_close(template);
    return verdict;
}

enum { KIB = 1024, CHUNK = 32 << 20 };

static void both_limits_are_inclusive(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed);
    assert_int_equal(gate(&bed, 1024, 1024 * 16 * KIB, 16 * KIB), PLAN_BOUNCE_OK);
    assert_int_equal(gate(&bed, 1023, 1023 * 16 * KIB, 16 * KIB), PLAN_BOUNCE_COUNT);
    assert_int_equal(gate(&bed, 1024, 1024 * 16 * KIB + 1023, 17 * KIB), PLAN_BOUNCE_OK);
    assert_int_equal(gate(&bed, 1024, 1024 * (16 * KIB + 1), 17 * KIB), PLAN_BOUNCE_AVERAGE);
    assert_int_equal(gate(&bed, 4096, 48 << 20, CHUNK), PLAN_BOUNCE_OK);
    assert_int_equal(gate(&bed, 4096, 48 << 20, CHUNK + 1), PLAN_BOUNCE_FRAGMENT_SIZE);
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_EMPTY);
    bed_fini(&bed);
}

static void the_first_reason_that_holds_is_named(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed);
    /* From the last reason to the first: each new fault outranks those before. */
    assert_int_equal(gate(&bed, 2000, UINT64_C(1) << 40, 1), PLAN_BOUNCE_AVERAGE);
    assert_int_equal(gate(&bed, 2000, UINT64_C(1) << 40, CHUNK + 1), PLAN_BOUNCE_FRAGMENT_SIZE);
    assert_int_equal(gate(&bed, 2, UINT64_C(1) << 40, CHUNK + 1), PLAN_BOUNCE_COUNT);
    assert_int_equal(gate(&bed, 0, UINT64_C(1) << 40, CHUNK + 1), PLAN_BOUNCE_EMPTY);
    geo_edit_pool(bed.reader, 0)->memory = GEO_CUDA;
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_MEMORY);
    bed.reader->bounce.request_timeout_ms = 1;
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_TIMEOUT);
    bed.reader->bounce.max_chunk_bytes /= 2;
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_CHUNK);
    bed.reader->bounce.wire_version = 9;
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_VERSION);
    bed.reader->bounce.enabled = false;
    assert_int_equal(gate(&bed, 0, 0, 0), PLAN_BOUNCE_OFF);
    bed_fini(&bed);
}

static void memory_kinds_must_agree(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed);
    bed.reader->bounce.memory = GEO_CUDA;
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_MEMORY);
    assert_int_equal(plan_bounce_handshake(&bed.writer->bounce, &bed.reader->bounce),
                     PLAN_BOUNCE_MEMORY);
    bed.writer->bounce.memory = GEO_CUDA;
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_MEMORY); /* pages in host memory */
    geo_edit_pool(bed.writer, 0)->memory = GEO_CUDA;
    geo_edit_pool(bed.reader, 0)->memory = GEO_CUDA;
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_OK);
    bed_fini(&bed);
}

static void arenas_of_other_size_agree_when_their_chunks_do(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed);
    bed.reader->bounce.arena_bytes = 64u << 20;
    bed.reader->bounce.granularity_bytes = 4096;
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_OK);
    bed.reader->bounce.arena_bytes = 3u << 20; /* 2 MiB usable */
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_CHUNK);
    bed.writer->bounce.arena_bytes = 3u << 20;
    assert_int_equal(gate(&bed, 1024, 1024, 1), PLAN_BOUNCE_OK);
    assert_int_equal(gate(&bed, 64, UINT64_C(64) * 2359296, 2359296), PLAN_BOUNCE_COUNT);
    bed.writer->bounce.min_descriptor_count = 1;
    assert_int_equal(gate(&bed, 64, UINT64_C(64) * 2359296, 2359296), PLAN_BOUNCE_FRAGMENT_SIZE);
    bed_fini(&bed);
}

static void every_reason_has_its_name(void **state)
{
    static const char *const bounce[] = {"ok",     "off",   "version", "chunk",         "timeout",
                                         "memory", "empty", "count",   "fragment-size", "average"};
    static const char *const split[] = {"single", "empty",    "dp-unknown", "cp",   "pp",
                                        "dup",    "view-dup", "replicated", "equal"};

    (void)state;
    for (int i = 0; i <= PLAN_BOUNCE_AVERAGE; i++) {
        assert_string_equal(plan_bounce_name((enum plan_bounce)i), bounce[i]);
    }
    for (int i = 0; i <= PLAN_SPLIT_EQUAL; i++) {
        assert_string_equal(plan_split_name((enum plan_split)i), split[i]);
    }
}

/* ---- equal split ---------------------------------------------------------------------------- */

static void one_writer_is_allowed_whatever_the_layout(void **state)
{
    struct plan_split_facts facts = {
        .finals = 1, .cp = true, .pp = true, .dup = true, .view_dup = true, .replicated = true};

    (void)state;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_SINGLE);
    assert_true(plan_split_allowed(PLAN_SPLIT_SINGLE));
}

static void the_first_reason_against_an_equal_split_is_named(void **state)
{
    struct plan_split_facts facts = {.finals = 2, .group_known = true};

    (void)state;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_EQUAL);
    assert_true(plan_split_allowed(PLAN_SPLIT_EQUAL));
    facts.replicated = true;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_REPLICATED);
    facts.view_dup = true;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_VIEW_DUP);
    facts.dup = true;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_DUP);
    facts.pp = true;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_PP);
    facts.cp = true;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_CP);
    facts.group_known = false;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_DP_UNKNOWN);
    facts.finals = 0;
    assert_int_equal(plan_split_gate(&facts), PLAN_SPLIT_EMPTY);
    for (int i = PLAN_SPLIT_EMPTY; i < PLAN_SPLIT_EQUAL; i++) {
        assert_false(plan_split_allowed((enum plan_split)i));
    }
}

/* The verdict over all writers that reader 0 of `dst` asks; `group` may be GEO_GROUP_UNKNOWN. */
static enum plan_split verdict_of(const struct geo_make_model *model,
                                  const struct geo_make_grid *src, const struct geo_make_grid *dst,
                                  uint32_t group)
{
    struct geo_make_params writer = {.model = model, .grid = src, .slots = 2};
    struct geo_make_params reader = {
        .model = model, .grid = dst, .side = GEO_GENERATION, .slots = 2};
    struct geo_record *r = geo_make_record(&reader, 0);
    struct kvf_place grid = geo_make_place(src, 0);
    struct plan_split_facts facts = {.group_known = group != GEO_GROUP_UNKNOWN};
    uint32_t asked[64];
    uint32_t count = 0;

    assert_int_equal(geo_asked(r, &grid, group, asked, 64, &count), KVF_OK);
    assert_int_equal(geo_finals(r, &grid, &facts.finals), KVF_OK);
    for (uint32_t i = 0; i < count; i++) {
        struct geo_record *w = geo_make_record(&writer, asked[i]);
        struct plan_template *template = NULL;

        assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_OK);
        plan_split_add(&facts, template);
        plan_template_close(template);
        geo_record_close(w);
    }
    geo_record_close(r);
    return plan_split_gate(&facts);
}

static enum plan_split verdict(const struct geo_make_model *model, const struct geo_make_grid *src,
                               const struct geo_make_grid *dst)
{
    return verdict_of(model, src, dst, 0);
}

static void duplication_counts_in_both_directions(void **state)
{
    struct geo_make_grid tp8 = geo_make_grid(8, 0, 2), tp4 = geo_make_grid(4, 0, 2),
                         tp2 = geo_make_grid(2, 0, 2);
    struct geo_make_grid pp2tp2 = {.tp = 2, .pp = 2, .layers = {1, 1}};
    struct geo_make_model model;

    (void)state;
    geo_make_model(&model, 2, 4, 16, 8);
    assert_int_equal(verdict(&model, &tp4, &tp2), PLAN_SPLIT_EQUAL);
    assert_int_equal(verdict(&model, &tp8, &tp2), PLAN_SPLIT_DUP); /* writers hold copies */
    /* Readers hold copies and have several writers: the reader's own factor. */
    assert_int_equal(verdict(&model, &pp2tp2, &tp8), PLAN_SPLIT_PP);
    assert_int_equal(verdict(&model, &tp2, &tp8), PLAN_SPLIT_SINGLE);
    geo_make_model(&model, 2, 8, 16, 8);
    model.layers[1].owner = KVF_OWNER_DRAFT;
    model.layers[1].kv_heads = 2;
    assert_int_equal(verdict(&model, &tp4, &tp2), PLAN_SPLIT_VIEW_DUP);
    geo_make_model(&model, 2, 4, 16, 8);
    model.layers[0].index_bytes = 4;
    assert_int_equal(verdict(&model, &tp4, &tp2), PLAN_SPLIT_REPLICATED);
}

/* What one writer sends cannot overrun a neighbour, whatever would speak against several. */
static void one_writer_of_several_stages_copies_or_groups_is_allowed(void **state)
{
    struct geo_make_grid pp2 = {.tp = 1, .pp = 2, .layers = {1, 1}}, tp1 = geo_make_grid(1, 0, 2),
                         tp2 = geo_make_grid(2, 0, 2), tp8 = geo_make_grid(8, 0, 2),
                         tp4_adp = geo_make_grid(4, 4, 2);
    struct geo_make_model model;

    (void)state;
    geo_make_model(&model, 2, 2, 16, 8);
    assert_int_equal(verdict(&model, &pp2, &tp1), PLAN_SPLIT_PP);
    assert_int_equal(verdict(&model, &pp2, &pp2), PLAN_SPLIT_SINGLE);
    assert_int_equal(verdict(&model, &tp8, &tp8), PLAN_SPLIT_SINGLE);
    assert_int_equal(verdict(&model, &tp2, &tp8), PLAN_SPLIT_SINGLE);
    assert_int_equal(verdict_of(&model, &tp4_adp, &tp2, GEO_GROUP_UNKNOWN), PLAN_SPLIT_SINGLE);
    model.layers[1].owner = KVF_OWNER_DRAFT; /* a factor of a view, and a replicated one */
    model.layers[1].kv_heads = 1;
    model.layers[0].index_bytes = 4;
    assert_int_equal(verdict(&model, &tp8, &tp8), PLAN_SPLIT_SINGLE);
    assert_int_equal(verdict(&model, &tp2, &tp8), PLAN_SPLIT_SINGLE);
}

/* Two writers a group that would do; which group is not known, or the records have cp. */
static void groups_that_are_not_known_and_cp_do_not_split(void **state)
{
    struct geo_make_grid groups = geo_make_grid(4, 2, 2), tp1 = geo_make_grid(1, 0, 2);
    struct geo_make_model model;
    struct geo_make_params params = {.model = &model, .grid = &tp1, .slots = 2};
    struct geo_record *writer, *reader;

    (void)state;
    geo_make_model(&model, 2, 4, 16, 8);
    assert_int_equal(verdict_of(&model, &groups, &tp1, 1), PLAN_SPLIT_EQUAL);
    assert_int_equal(verdict_of(&model, &groups, &tp1, GEO_GROUP_UNKNOWN), PLAN_SPLIT_DP_UNKNOWN);
    for (int side = 0; side < 2; side++) {
        struct plan_template *template = NULL;

        params.side = GEO_CONTEXT;
        writer = geo_make_record(&params, 0);
        params.side = GEO_GENERATION;
        reader = geo_make_record(&params, 0);
        (side == 0 ? writer : reader)->place.cp_size = 2;
        assert_int_equal(geo_check_peer(writer, reader, GEO_CONTEXT, NULL), KVF_E_CP);
        assert_int_not_equal(plan_template_open(kvf_heap_system(), writer, reader, &template),
                             KVF_OK);
        geo_record_close(writer);
        geo_record_close(reader);
    }
}

/* What one writer has speaks against all, whoever comes last. */
static void facts_of_all_writers_add_up(void **state)
{
    struct geo_make_grid pp2 = {.tp = 1, .pp = 2, .layers = {1, 1}}, tp1 = geo_make_grid(1, 0, 2);
    struct geo_make_model model;
    struct geo_make_params writer = {.model = &model, .grid = &pp2, .slots = 2};
    struct geo_make_params reader = {
        .model = &model, .grid = &tp1, .side = GEO_GENERATION, .slots = 2};
    struct plan_split_facts facts = {.group_known = true, .finals = 2};
    struct geo_record *r;

    (void)state;
    geo_make_model(&model, 2, 4, 16, 8);
    model.layers[0].index_bytes = 4; /* on the first stage alone */
    r = geo_make_record(&reader, 0);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct geo_record *w = geo_make_record(&writer, rank);
        struct plan_template *template = NULL;

        assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_OK);
        plan_split_add(&facts, template);
        assert_true(facts.replicated && facts.pp);
        plan_template_close(template);
        geo_record_close(w);
    }
    geo_record_close(r);
}

static void a_stage_without_heads_has_rank_wide_factor_one(void **state)
{
    struct geo_make_grid tp2 = geo_make_grid(2, 0, 2), tp1 = geo_make_grid(1, 0, 2);
    struct geo_make_model model;

    (void)state;
    geo_make_model(&model, 2, 0, 1, 8);
    for (uint32_t l = 0; l < 2; l++) {
        model.layers[l].state_units = 4;
        model.layers[l].state_unit_bytes = 8;
    }
    assert_int_equal(verdict(&model, &tp2, &tp1), PLAN_SPLIT_EQUAL);
}

/* ---- packing -------------------------------------------------------------------------------- */

static void add(struct plan_packer *packer, uint64_t src, uint64_t dst, uint64_t bytes)
{
    struct plan_fragment fragment = {.src = src, .dst = dst, .bytes = bytes};

    plan_packer_add(packer, &fragment);
}

static void small_fragments_pay_for_their_padding(void **state)
{
    struct plan_packer packer;

    (void)state;
    plan_packer_init(&packer, 4096);
    add(&packer, 0, 10000, 5);
    add(&packer, 100, 20000, 5);
    assert_int_equal(packer.chunks, 1);
    assert_int_equal(packer.packed_bytes, 37);
    assert_int_equal(packer.entries, 2);
}

static void fragments_that_continue_on_both_sides_are_joined(void **state)
{
    struct plan_packer packer;

    (void)state;
    plan_packer_init(&packer, 4096);
    add(&packer, 0, 10000, 64);
    add(&packer, 64, 10064, 64);
    assert_int_equal(packer.entries, 1);
    add(&packer, 128, 99999, 64);
    assert_int_equal(packer.entries, 2);
    add(&packer, 192, 99999 + 64, 5);
    assert_int_equal(packer.entries, 2);
    add(&packer, 197, 99999 + 69, 5); /* padding between: not joined */
    assert_int_equal(packer.entries, 3);
}

static void a_chunk_closes_when_the_next_does_not_fit(void **state)
{
    struct plan_packer packer;

    (void)state;
    plan_packer_init(&packer, 4096);
    add(&packer, 0, 0, 4064);
    add(&packer, 10000, 0, 32);
    assert_int_equal(packer.chunks, 1);
    add(&packer, 20000, 0, 1);
    assert_int_equal(packer.chunks, 2);
    add(&packer, 30000, 0, 4096);
    assert_int_equal(packer.chunks, 3);
    assert_int_equal(packer.packed_bytes, 4096 + 1 + 4096);
}

static void a_chunk_closes_at_its_entry_limit(void **state)
{
    struct plan_packer packer;

    (void)state;
    plan_packer_init(&packer, 512 * KIB); /* 2,048 entries */
    for (uint64_t i = 0; i < 2048; i++) {
        add(&packer, i * 100, 0, 1);
    }
    assert_int_equal(packer.chunks, 1);
    add(&packer, 1, 0, 1);
    assert_int_equal(packer.chunks, 2);
    plan_packer_init(&packer, 128 * KIB); /* 512 by size, 1,024 at least */
    for (uint64_t i = 0; i < 1024; i++) {
        add(&packer, i * 100, 0, 1);
    }
    assert_int_equal(packer.chunks, 1);
    add(&packer, 1, 0, 1);
    assert_int_equal(packer.chunks, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_limits_are_inclusive),
        cmocka_unit_test(the_first_reason_that_holds_is_named),
        cmocka_unit_test(memory_kinds_must_agree),
        cmocka_unit_test(arenas_of_other_size_agree_when_their_chunks_do),
        cmocka_unit_test(every_reason_has_its_name),
        cmocka_unit_test(one_writer_is_allowed_whatever_the_layout),
        cmocka_unit_test(the_first_reason_against_an_equal_split_is_named),
        cmocka_unit_test(duplication_counts_in_both_directions),
        cmocka_unit_test(one_writer_of_several_stages_copies_or_groups_is_allowed),
        cmocka_unit_test(groups_that_are_not_known_and_cp_do_not_split),
        cmocka_unit_test(facts_of_all_writers_add_up),
        cmocka_unit_test(a_stage_without_heads_has_rank_wide_factor_one),
        cmocka_unit_test(small_fragments_pay_for_their_padding),
        cmocka_unit_test(fragments_that_continue_on_both_sides_are_joined),
        cmocka_unit_test(a_chunk_closes_when_the_next_does_not_fit),
        cmocka_unit_test(a_chunk_closes_at_its_entry_limit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
