/*
 * test_plan.c - one request: which blocks move, what is refused, how stripes are filled
 * (docs/geometry.md, sections 7 and 8).
 */
#include <stdio.h>
#include <string.h>

#include "fail_heap.h"
#include "geo_make.h"
#include "plan.h"

enum { GROUPS_MAX = 4, SLOTS = 64, STRIPES_MAX = 32, PAIRS_MAX = 128 };

/* A writer, a reader and one request between them. */
struct bed {
    struct geo_make_model model;
    struct geo_record *writer;
    struct geo_record *reader;
    struct plan_template *template;
    uint32_t src_slots[GROUPS_MAX][SLOTS];
    uint32_t dst_slots[GROUPS_MAX][SLOTS];
    struct kvf_block_list src[GROUPS_MAX];
    struct kvf_block_list dst[GROUPS_MAX];
    struct plan_request request;
    struct plan_piece piece;
    uint64_t src_bases[8];
    uint64_t dst_bases[8];
    struct plan_addresses addresses;
    struct stripe stripes[STRIPES_MAX];
    struct stripe_pair pairs[PAIRS_MAX];
    struct plan_scratch scratch;
    struct plan_filled filled;
    uint64_t bitmap[8];
};

/* Groups of the bed's model: full attention (0,3), window 64 (1), recurrent (2). */
enum { FULL = 0, WINDOWED = 1, STATE = 2, TOKENS = 16, PROMPT = 200, BLOCKS = 13, STALE = 8 };

static void bed_lists(struct bed *bed, uint32_t cached)
{
    for (uint32_t g = 0; g < bed->writer->layout.group_count; g++) {
        const struct kvf_group *group = &bed->writer->layout.groups[g];
        uint32_t stale = plan_stale(PROMPT, group->window, TOKENS);
        uint32_t first = plan_first_ordinal(PROMPT, cached, group->window, TOKENS);

        bed->src[g] = (struct kvf_block_list){
            .first = stale, .count = BLOCKS - stale, .slots = bed->src_slots[g]};
        bed->dst[g] = (struct kvf_block_list){
            .first = first, .count = BLOCKS - first, .slots = bed->dst_slots[g]};
        if (group->group_class == KVF_GROUP_STATE) {
            bed->src[g].first = bed->dst[g].first = 0;
            bed->src[g].count = bed->dst[g].count = 1;
        }
    }
}

static void bed_init(struct bed *bed, uint32_t src_tp, uint32_t dst_tp)
{
    struct geo_make_grid src = geo_make_grid(src_tp, 0, 4), dst = geo_make_grid(dst_tp, 0, 4);
    struct geo_make_params writer = {
        .model = &bed->model, .grid = &src, .side = GEO_CONTEXT, .slots = SLOTS};
    struct geo_make_params reader = {
        .model = &bed->model, .grid = &dst, .side = GEO_GENERATION, .slots = SLOTS};

    memset(bed, 0, sizeof(*bed));
    geo_make_model(&bed->model, 4, 8, 64, TOKENS);
    bed->model.layers[1].window = 64;
    bed->model.layers[2] = (struct kvf_model_layer){.state_units = 8, .state_unit_bytes = 128};
    bed->model.model.aux_count = 1;
    bed->model.aux_bytes[0] = 8;
    bed->writer = geo_make_record(&writer, 0);
    bed->reader = geo_make_record(&reader, 0);
    assert_int_equal(
        plan_template_open(kvf_heap_system(), bed->writer, bed->reader, &bed->template), KVF_OK);
    for (uint32_t g = 0; g < GROUPS_MAX; g++) {
        for (uint32_t s = 0; s < SLOTS; s++) {
            bed->src_slots[g][s] = s * 7 % SLOTS;
            bed->dst_slots[g][s] = SLOTS - 1 - s;
        }
    }
    bed_lists(bed, 0);
    bed->request = (struct plan_request){.prompt_tokens = PROMPT,
                                         .src_count = bed->writer->layout.group_count,
                                         .dst_count = bed->reader->layout.group_count,
                                         .src = bed->src,
                                         .dst = bed->dst,
                                         .src_aux_slot = 0,
                                         .dst_aux_slot = 3};
    bed->piece = plan_whole(PROMPT);
    bed->addresses = (struct plan_addresses){.src = bed->src_bases, .dst = bed->dst_bases};
    bed->scratch = (struct plan_scratch){.stripes = bed->stripes,
                                         .pairs = bed->pairs,
                                         .stripes_max = STRIPES_MAX,
                                         .pairs_max = PAIRS_MAX};
}

static void bed_fini(struct bed *bed)
{
    plan_template_close(bed->template);
    geo_record_close(bed->writer);
    geo_record_close(bed->reader);
}

static enum kvf_status lists_status(struct bed *bed)
{
    struct geo_text text = {{0}};
    enum kvf_status status =
        plan_check_lists(bed->reader, bed->dst, bed->request.dst_count, bed->bitmap, &text);

    for (uint32_t w = 0; w < 8; w++) {
        assert_int_equal(bed->bitmap[w], 0);
    }
    if (status == KVF_OK) {
        status = plan_check_lists(bed->writer, bed->src, bed->request.src_count, NULL, &text);
    }
    assert_true((status == KVF_OK) == (text.s[0] == '\0'));
    return status;
}

static enum kvf_status request_status(struct bed *bed)
{
    struct geo_text text = {{0}};
    enum kvf_status status = plan_check_request(bed->template, &bed->request, &bed->piece, &text);

    assert_true((status == KVF_OK) == (text.s[0] == '\0'));
    assert_int_equal(plan_check_request(bed->template, &bed->request, &bed->piece, NULL), status);
    return status;
}

static enum kvf_status fill(struct bed *bed)
{
    enum kvf_status status = plan_fill(bed->template, &bed->request, &bed->piece, &bed->addresses,
                                       &bed->scratch, &bed->filled);

    if (status == KVF_OK) {
        struct plan_totals totals;

        plan_count(bed->template, &bed->request, &bed->piece, &totals);
        geo_assert_totals_equal(&bed->filled.totals, &totals);
    }
    return status;
}

/* ---- which blocks --------------------------------------------------------------------------- */

static void stale_follows_the_prompt_length(void **state)
{
    (void)state;
    assert_int_equal(plan_stale(200, 64, 16), 8);
    assert_int_equal(plan_stale(200, 0, 16), 0);
    assert_int_equal(plan_stale(63, 64, 16), 0);
    assert_int_equal(plan_stale(78, 64, 16), 0);
    assert_int_equal(plan_stale(79, 64, 16), 1);
    assert_int_equal(plan_stale(0, 1, 16), 0);
    assert_int_equal(plan_stale(UINT32_MAX, 1, 1), UINT32_MAX);
    assert_int_equal(plan_blocks(0, 16), 0);
    assert_int_equal(plan_blocks(16, 16), 1);
    assert_int_equal(plan_blocks(17, 16), 2);
    assert_int_equal(plan_blocks(UINT32_MAX, 2), 1u << 31);
}

static void first_ordinal_is_after_stale_and_whole_cached_blocks(void **state)
{
    (void)state;
    assert_int_equal(plan_first_ordinal(200, 100, 0, 16), 6);
    assert_int_equal(plan_first_ordinal(200, 100, 64, 16), 8);
    assert_int_equal(plan_first_ordinal(200, 175, 64, 16), 10);
    assert_int_equal(plan_first_ordinal(200, 200, 0, 16),
                     12); /* a partly valid block comes again */
    assert_int_equal(plan_first_ordinal(192, 192, 0, 16), 12); /* all cached: nothing to send */
}

static void a_window_takes_stale_blocks_out_of_every_piece(void **state)
{
    struct bed bed;
    uint32_t blocks = 0;

    (void)state;
    bed_init(&bed, 1, 1);
    for (uint32_t start = 0; start < PROMPT; start += 48) {
        bed.piece = (struct plan_piece){.token_first = start,
                                        .token_end = start + 48 < PROMPT ? start + 48 : PROMPT,
                                        .layer_end = PLAN_LAYERS_ALL};
        assert_int_equal(request_status(&bed), KVF_OK);
        assert_int_equal(fill(&bed), KVF_OK);
        blocks += bed.filled.totals.blocks;
        if (start + 48 <= STALE * TOKENS) {
            assert_int_equal(bed.filled.totals.blocks, 3); /* of the full group alone */
        }
    }
    assert_int_equal(blocks, BLOCKS + BLOCKS - STALE);
    bed_fini(&bed);
}

/* A reader that publishes stale blocks too does not get them with an early piece either. */
static void stale_blocks_move_with_no_piece(void **state)
{
    struct bed bed;
    uint32_t blocks = 0;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.src[WINDOWED].first = bed.dst[WINDOWED].first = 0;
    bed.src[WINDOWED].count = bed.dst[WINDOWED].count = BLOCKS;
    for (uint32_t start = 0; start < PROMPT; start += 32) {
        bed.piece = (struct plan_piece){.token_first = start,
                                        .token_end = start + 32 < PROMPT ? start + 32 : PROMPT,
                                        .layer_end = PLAN_LAYERS_ALL};
        assert_int_equal(fill(&bed), KVF_OK);
        blocks += bed.filled.totals.blocks;
    }
    assert_int_equal(blocks, BLOCKS + BLOCKS - STALE);
    bed_fini(&bed);
}

static void a_piece_inside_the_readers_prefix_moves_nothing(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed_lists(&bed, 96);
    bed.piece = (struct plan_piece){.token_end = 96, .layer_end = PLAN_LAYERS_ALL};
    assert_int_equal(request_status(&bed), KVF_OK);
    assert_int_equal(fill(&bed), KVF_OK);
    assert_int_equal(bed.filled.stripe_count, 0);
    assert_int_equal(bed.filled.totals.fragments, 0);
    bed_fini(&bed);
}

static void a_stale_block_that_the_writer_still_holds_is_not_sent(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.src[WINDOWED].first = 0;
    bed.src[WINDOWED].count = BLOCKS;
    bed.dst[WINDOWED].first = 0;
    bed.dst[WINDOWED].count = BLOCKS;
    assert_int_equal(fill(&bed), KVF_OK);
    assert_int_equal(bed.filled.totals.blocks, BLOCKS + BLOCKS - STALE + 1);
    bed_fini(&bed);
}

static void blocks_past_the_prompt_do_not_move(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.src[FULL].count = BLOCKS + 3;
    bed.dst[FULL].count = BLOCKS + 3;
    assert_int_equal(request_status(&bed), KVF_OK);
    assert_int_equal(fill(&bed), KVF_OK);
    assert_int_equal(bed.filled.totals.blocks, BLOCKS + BLOCKS - STALE + 1);
    bed_fini(&bed);
}

static void state_goes_with_the_last_piece_alone(void **state)
{
    struct bed bed;
    struct plan_totals with, without;

    (void)state;
    bed_init(&bed, 1, 1);
    plan_count(bed.template, &bed.request, &bed.piece, &with);
    bed.piece.last = false;
    plan_count(bed.template, &bed.request, &bed.piece, &without);
    assert_int_equal(with.bytes - without.bytes, 8 * 128);
    /* Also when the last piece names other layers. */
    bed.piece = (struct plan_piece){.token_end = PROMPT, .layer_first = 3, .layer_end = 4};
    plan_count(bed.template, &bed.request, &bed.piece, &without);
    bed.piece.last = true;
    plan_count(bed.template, &bed.request, &bed.piece, &with);
    assert_int_equal(with.bytes - without.bytes, 8 * 128);
    bed_fini(&bed);
}

static void layer_ranges_add_up_to_the_whole(void **state)
{
    struct bed bed;
    struct plan_totals whole, part;
    uint64_t bytes = 0;

    (void)state;
    bed_init(&bed, 1, 1);
    plan_count(bed.template, &bed.request, &bed.piece, &whole);
    for (uint32_t layer = 0; layer < 4; layer++) {
        bed.piece.layer_first = layer;
        bed.piece.layer_end = layer + 1;
        bed.piece.last = layer == 3;
        assert_int_equal(fill(&bed), KVF_OK);
        plan_count(bed.template, &bed.request, &bed.piece, &part);
        bytes += part.bytes;
        for (uint32_t s = 0; s < bed.filled.stripe_count; s++) {
            assert_true(bed.stripes[s].piece_count * bed.stripes[s].piece_bytes <= 32768);
        }
    }
    assert_int_equal(bytes, whole.bytes);
    bed_fini(&bed);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static void a_wrong_number_of_lists_is_refused(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    assert_int_equal(lists_status(&bed), KVF_OK);
    bed.request.dst_count = 2;
    assert_int_equal(lists_status(&bed), KVF_E_REQ_GROUPS);
    assert_int_equal(request_status(&bed), KVF_E_REQ_GROUPS);
    bed.request.dst_count = 3;
    bed.request.src_count = 4;
    assert_int_equal(lists_status(&bed), KVF_E_REQ_GROUPS);
    assert_int_equal(request_status(&bed), KVF_E_REQ_GROUPS);
    bed_fini(&bed);
}

static void slots_outside_their_pool_are_refused(void **state)
{
    static const uint32_t outside[] = {SLOTS, UINT32_MAX, UINT32_MAX - 1};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct bed bed;

        bed_init(&bed, 1, 1);
        bed.dst_slots[WINDOWED][2] = outside[i];
        assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT);
        bed.dst_slots[WINDOWED][2] = 0;
        bed.src_slots[FULL][12] = outside[i];
        assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT);
        bed.src_slots[FULL][12] = 1;
        bed.src_slots[STATE][0] = outside[i];
        assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT);
        bed_fini(&bed);
    }
}

static void the_smallest_pool_of_a_group_bounds_its_slots(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    geo_edit_pool(bed.reader, bed.reader->layout.groups[STATE].views[0].pool)->slots = 1;
    assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT);
    bed.dst_slots[STATE][0] = 0;
    assert_int_equal(lists_status(&bed), KVF_OK);
    bed_fini(&bed);
}

static void a_destination_named_twice_is_refused(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.dst_slots[FULL][12] = bed.dst_slots[FULL][0];
    assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT_TWICE);
    bed.dst_slots[FULL][12] = 0;
    /* One slot in two groups is two pages. */
    bed.dst_slots[WINDOWED][0] = bed.dst_slots[FULL][0];
    assert_int_equal(lists_status(&bed), KVF_OK);
    /* A source may be named twice: shared prefixes. */
    bed.src_slots[FULL][1] = bed.src_slots[FULL][0];
    assert_int_equal(lists_status(&bed), KVF_OK);
    bed_fini(&bed);
}

/* Lists longer than the bitmap of their pool are counted, shorter ones looked through. */
static void a_slot_named_twice_is_found_wherever_it_stands(void **state)
{
    static const uint32_t slots[] = {SLOTS, 512};
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    for (size_t i = 0; i < 2; i++) {
        for (uint32_t v = 0; v < bed.reader->layout.groups[FULL].view_count; v++) {
            geo_edit_pool(bed.reader, bed.reader->layout.groups[FULL].views[v].pool)->slots =
                slots[i];
        }
        bed.dst[FULL].count = 6;
        for (uint32_t a = 0; a < 6; a++) {
            for (uint32_t b = 0; b < a; b++) {
                uint32_t before = bed.dst_slots[FULL][a];
                char want[64];

                snprintf(want, sizeof(want), "slot %u is named twice", bed.dst_slots[FULL][b]);
                bed.dst_slots[FULL][a] = bed.dst_slots[FULL][b];
                struct geo_text text = {{0}};
                assert_int_equal(
                    plan_check_lists(bed.reader, bed.dst, bed.request.dst_count, bed.bitmap, &text),
                    KVF_E_REQ_SLOT_TWICE);
                assert_non_null(strstr(text.s, want));
                assert_int_equal(lists_status(&bed), KVF_E_REQ_SLOT_TWICE);
                bed.dst_slots[FULL][a] = before;
            }
        }
        assert_int_equal(lists_status(&bed), KVF_OK);
    }
    bed_fini(&bed);
}

static void a_wanted_block_that_is_not_held_is_refused(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.src[FULL].first = 1;
    bed.src[FULL].count = BLOCKS - 1;
    assert_int_equal(request_status(&bed), KVF_E_REQ_BLOCKS);
    assert_int_equal(fill(&bed), KVF_E_REQ_BLOCKS);
    /* Of a piece that does not want it, it is not missed. */
    bed.piece.token_first = 16;
    assert_int_equal(request_status(&bed), KVF_OK);
    bed.src[FULL].first = 0;
    bed.src[FULL].count = BLOCKS - 1;
    assert_int_equal(request_status(&bed), KVF_E_REQ_BLOCKS);
    assert_int_equal(fill(&bed), KVF_E_REQ_BLOCKS);
    bed.src[FULL].count = 0;
    assert_int_equal(request_status(&bed), KVF_E_REQ_BLOCKS);
    bed.src[FULL].first = UINT32_MAX;
    bed.src[FULL].count = UINT32_MAX;
    assert_int_equal(request_status(&bed), KVF_E_REQ_BLOCKS);
    bed_fini(&bed);
}

static void pieces_start_on_a_block_and_end_on_one_or_at_the_prompts_end(void **state)
{
    static const struct {
        uint32_t first, end;
        enum kvf_status wanted;
    } rows[] = {
        {0, 200, KVF_OK},
        {16, 32, KVF_OK},
        {192, 200, KVF_OK},
        {8, 32, KVF_E_REQ_PIECE},
        {0, 40, KVF_E_REQ_PIECE},
        {0, 0, KVF_E_REQ_PIECE},
        {32, 16, KVF_E_REQ_PIECE},
        {0, 208, KVF_E_REQ_PIECE},
        {208, 224, KVF_E_REQ_PIECE},
        {0, UINT32_MAX, KVF_E_REQ_PIECE},
    };
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bed.piece.token_first = rows[i].first;
        bed.piece.token_end = rows[i].end;
        assert_int_equal(request_status(&bed), rows[i].wanted);
    }
    bed.piece = plan_whole(PROMPT);
    bed.piece.layer_first = 2;
    bed.piece.layer_end = 2;
    assert_int_equal(request_status(&bed), KVF_E_REQ_PIECE);
    bed_fini(&bed);
}

static void a_missing_state_slot_is_refused_with_the_last_piece(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.dst[STATE].count = 0;
    assert_int_equal(lists_status(&bed), KVF_OK);
    assert_int_equal(request_status(&bed), KVF_E_REQ_STATE);
    bed.piece.last = false;
    assert_int_equal(request_status(&bed), KVF_OK);
    bed.piece.last = true;
    bed.dst[STATE].count = 1;
    bed.src[STATE].count = 0;
    assert_int_equal(request_status(&bed), KVF_E_REQ_STATE);
    bed.src[STATE].count = 2;
    assert_int_equal(lists_status(&bed), KVF_E_REQ_STATE);
    bed.src[STATE] = (struct kvf_block_list){.first = 1, .count = 1, .slots = bed.src_slots[0]};
    assert_int_equal(lists_status(&bed), KVF_E_REQ_STATE);
    bed_fini(&bed);
}

static void a_missing_aux_slot_is_refused_with_the_last_piece(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.request.dst_aux_slot = PLAN_NO_SLOT;
    assert_int_equal(request_status(&bed), KVF_E_REQ_AUX);
    bed.request.dst_aux_slot = 4; /* of 4 */
    assert_int_equal(request_status(&bed), KVF_E_REQ_AUX);
    bed.piece.last = false;
    assert_int_equal(request_status(&bed), KVF_OK);
    bed_fini(&bed);
}

static void aux_without_slots_travels_in_the_report_and_needs_none(void **state)
{
    struct bed bed;
    struct plan_fragment fragment;

    (void)state;
    bed_init(&bed, 1, 1);
    plan_template_close(bed.template);
    ((struct geo_aux *)bed.writer->aux)[0].slots = 0;
    ((struct geo_aux *)bed.reader->aux)[0].slots = 0;
    assert_int_equal(plan_template_open(kvf_heap_system(), bed.writer, bed.reader, &bed.template),
                     KVF_OK);
    bed.request.src_aux_slot = bed.request.dst_aux_slot = PLAN_NO_SLOT;
    assert_int_equal(request_status(&bed), KVF_OK);
    assert_true(plan_aux_elected(bed.template));
    assert_false(plan_aux_fragment(bed.template, &bed.request, 0, &fragment));
    bed_fini(&bed);
}

/* ---- templates and stripes ------------------------------------------------------------------ */

static void a_reader_that_does_not_ask_has_no_template(void **state)
{
    struct geo_make_grid ctx = geo_make_grid(4, 0, 2), gen = geo_make_grid(2, 0, 2);
    struct geo_make_model model;
    struct geo_make_params writer = {.model = &model, .grid = &ctx, .slots = 2};
    struct geo_make_params reader = {
        .model = &model, .grid = &gen, .side = GEO_GENERATION, .slots = 2};
    struct geo_record *w, *r;
    struct plan_template *template = NULL;

    (void)state;
    geo_make_model(&model, 2, 8, 16, 8);
    w = geo_make_record(&writer, 3);
    r = geo_make_record(&reader, 0);
    assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_E_INVAL);
    geo_record_close(r);
    r = geo_make_record(&reader, 1);
    r->layout.head_dim = 17;
    assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_E_INCOMPATIBLE);
    assert_null(template);
    geo_record_close(r);
    geo_record_close(w);
}

static void template_open_survives_a_failing_allocation(void **state)
{
    struct bed bed;
    struct plan_template *template = NULL;
    struct fail_heap heap;

    (void)state;
    bed_init(&bed, 2, 1);
    fail_heap_init(&heap, 1);
    assert_int_equal(plan_template_open(&heap.heap, bed.writer, bed.reader, &template),
                     KVF_E_NOMEM);
    assert_null(template);
    fail_heap_fini(&heap);
    fail_heap_init(&heap, 2);
    assert_int_equal(plan_template_open(&heap.heap, bed.writer, bed.reader, &template), KVF_OK);
    assert_int_equal(heap.calls, 1);
    plan_template_close(template);
    fail_heap_fini(&heap);
    plan_template_close(NULL);
    bed_fini(&bed);
}

static void a_template_outlives_its_records(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 2, 1);
    geo_record_close(bed.writer);
    geo_record_close(bed.reader);
    bed.writer = bed.reader = NULL;
    assert_int_equal(fill(&bed), KVF_OK);
    assert_true(bed.filled.totals.bytes > 0);
    bed_fini(&bed);
}

static void scratch_that_is_too_small_is_an_error(void **state)
{
    struct bed bed;
    uint32_t pairs;

    (void)state;
    bed_init(&bed, 1, 1);
    assert_int_equal(fill(&bed), KVF_OK);
    pairs = bed.filled.pair_count;
    assert_int_equal(pairs, BLOCKS + BLOCKS - STALE + 1);
    assert_true(pairs <= plan_pairs_max(bed.template, BLOCKS));
    assert_true(bed.filled.stripe_count <= plan_stripes_max(bed.template));
    bed.scratch.pairs_max = pairs - 1;
    assert_int_equal(fill(&bed), KVF_E_TOO_LARGE);
    bed.scratch.pairs_max = pairs;
    bed.scratch.stripes_max = bed.filled.stripe_count - 1;
    assert_int_equal(fill(&bed), KVF_E_TOO_LARGE);
    bed.scratch.stripes_max++;
    assert_int_equal(fill(&bed), KVF_OK);
    bed_fini(&bed);
}

static void stripes_of_one_pair_of_lists_share_their_slots(void **state)
{
    struct geo_make_grid grid = geo_make_grid(1, 0, 3);
    struct geo_make_model model;
    struct geo_make_params params = {.model = &model, .grid = &grid, .slots = 8};
    struct geo_record *w, *r;
    struct plan_template *template = NULL;
    uint32_t slots[4] = {3, 1, 2, 0};
    struct kvf_block_list list = {.count = 4, .slots = slots};
    struct plan_request request = {
        .prompt_tokens = 32, .src_count = 1, .dst_count = 1, .src = &list, .dst = &list};
    struct plan_piece piece = plan_whole(32);
    uint64_t bases[4] = {0};
    struct plan_addresses addresses = {.src = bases, .dst = bases};
    struct stripe stripes[8];
    struct stripe_pair pairs[4];
    struct plan_scratch scratch = {
        .stripes = stripes, .pairs = pairs, .stripes_max = 8, .pairs_max = 4};
    struct plan_filled filled;

    (void)state;
    geo_make_model(&model, 3, 8, 16, 8);
    model.layers[0].index_bytes = model.layers[1].index_bytes = 5;
    w = geo_make_record(&params, 0);
    params.side = GEO_GENERATION;
    r = geo_make_record(&params, 0);
    assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_OK);
    assert_int_equal(plan_fill(template, &request, &piece, &addresses, &scratch, &filled), KVF_OK);
    assert_int_equal(filled.stripe_count, 2);
    assert_int_equal(filled.pair_count, 4);
    assert_ptr_equal(stripes[0].pairs, stripes[1].pairs);
    assert_int_equal(pairs[1].src, 1);
    plan_template_close(template);
    geo_record_close(w);
    geo_record_close(r);
}

/* Strides of a head slice do not depend on the number of layers or tokens. */
static void a_head_slice_is_one_stripe_of_uniform_pieces(void **state)
{
    (void)state;
    for (int nhd = 0; nhd < 2; nhd++) {
        struct geo_make_grid ctx = geo_make_grid(4, 0, 5), gen = geo_make_grid(2, 0, 5);
        struct geo_make_model model;
        struct geo_make_params params = {.model = &model, .grid = &ctx, .slots = 2};
        struct geo_record *w, *r;
        struct plan_template *template = NULL;
        uint32_t slot = 1;
        struct kvf_block_list list = {.count = 1, .slots = &slot};
        struct plan_request request = {
            .prompt_tokens = 16, .src_count = 1, .dst_count = 1, .src = &list, .dst = &list};
        struct plan_piece piece = plan_whole(16);
        uint64_t base = 0;
        struct plan_addresses addresses = {.src = &base, .dst = &base};
        struct stripe stripes[4];
        struct stripe_pair pairs[1];
        struct plan_scratch scratch = {
            .stripes = stripes, .pairs = pairs, .stripes_max = 4, .pairs_max = 1};
        struct plan_filled filled;

        geo_make_model(&model, 5, 8, 64, 16);
        model.model.nhd = nhd;
        w = geo_make_record(&params, 3);
        params.grid = &gen;
        params.side = GEO_GENERATION;
        r = geo_make_record(&params, 1);
        assert_int_equal(plan_template_open(kvf_heap_system(), w, r, &template), KVF_OK);
        assert_int_equal(plan_fill(template, &request, &piece, &addresses, &scratch, &filled),
                         KVF_OK);
        assert_int_equal(filled.stripe_count, 1);
        assert_int_equal(stripes[0].base_count, 5);
        assert_int_equal(stripes[0].piece_count, nhd ? 32 : 2);
        assert_int_equal(stripes[0].piece_bytes, nhd ? 256 : 4096);
        assert_int_equal(stripes[0].src_piece_stride, nhd ? 256 : 4096);
        assert_int_equal(stripes[0].dst_piece_stride, nhd ? 512 : 8192);
        assert_int_equal(stripes[0].bases[0].dst, nhd ? 256 : 4096);
        plan_template_close(template);
        geo_record_close(w);
        geo_record_close(r);
    }
}

/* Slots whose byte offset needs more than 32 bits, in pools of many GiB (addresses only). */
static void pools_beyond_4_gib_have_right_addresses(void **state)
{
    struct bed bed;
    const uint32_t slots = 3000000;
    struct plan_walk walk;
    struct plan_fragment fragment;
    uint32_t pool;
    uint64_t stride;

    (void)state;
    bed_init(&bed, 1, 1);
    pool = bed.writer->layout.groups[FULL].views[0].pool;
    stride = bed.writer->layout.pools[pool].slot_stride;
    geo_edit_pool(bed.writer, pool)->slots = slots;
    geo_edit_pool(bed.writer, pool)->bytes = slots * stride;
    geo_edit_pool(bed.reader, pool)->slots = slots;
    geo_edit_pool(bed.reader, pool)->bytes = slots * stride;
    assert_true(slots * stride > UINT64_C(64) << 30);
    assert_int_equal(geo_check_local(bed.writer, NULL), KVF_OK);
    bed.src_slots[FULL][0] = slots - 1;
    bed.dst_slots[FULL][0] = slots - 2;
    bed.src_bases[pool] = UINT64_C(0x7f0000000000);
    bed.dst_bases[pool] = UINT64_C(0xffff000000000000);
    bed.piece.token_end = 16;
    bed.piece.last = false;
    assert_int_equal(plan_check_lists(bed.writer, bed.src, 3, NULL, NULL), KVF_OK);
    assert_int_equal(fill(&bed), KVF_OK);
    plan_walk_init(&walk, bed.stripes, bed.filled.stripe_count);
    assert_true(plan_walk_next(&walk, &fragment));
    assert_true(fragment.src == UINT64_C(0x7f0000000000) + (slots - 1) * stride);
    assert_true(fragment.dst == UINT64_C(0xffff000000000000) + (slots - 2) * stride);
    assert_int_equal(fragment.bytes, stride);
    assert_false(plan_walk_next(&walk, &fragment));
    bed_fini(&bed);
}

static enum kvf_status cover_status(const struct bed *bed, uint32_t cached)
{
    struct geo_text text = {{0}};
    enum kvf_status status = plan_check_cover(bed->reader, bed->dst, PROMPT, cached, &text);

    assert_true((status == KVF_OK) == (text.s[0] == '\0'));
    return status;
}

static void a_reader_must_take_in_every_block_that_it_lacks(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    assert_int_equal(cover_status(&bed, 0), KVF_OK);
    for (uint32_t g = 0; g < bed.request.dst_count; g++) {
        struct kvf_block_list whole = bed.dst[g];

        if (bed.reader->layout.groups[g].group_class == KVF_GROUP_STATE) {
            bed.dst[g].count = 0;
            assert_int_equal(cover_status(&bed, 0), KVF_E_REQ_STATE);
        } else {
            bed.dst[g].count--;
            assert_int_equal(cover_status(&bed, 0), KVF_E_REQ_PIECE);
            bed.dst[g].first++;
            assert_int_equal(cover_status(&bed, 0), KVF_E_REQ_PIECE);
            bed.dst[g].count = 0;
            assert_int_equal(cover_status(&bed, 0), KVF_E_REQ_PIECE);
        }
        bed.dst[g] = whole;
    }
    bed_lists(&bed, 100);
    assert_int_equal(cover_status(&bed, 100), KVF_OK);
    assert_int_equal(cover_status(&bed, 0), KVF_E_REQ_PIECE);
    bed_fini(&bed);
}

static void lists_that_cannot_be_read_are_refused(void **state)
{
    struct bed bed;

    (void)state;
    bed_init(&bed, 1, 1);
    bed.dst[0].slots = NULL;
    assert_int_equal(lists_status(&bed), KVF_E_INVAL);
    bed_lists(&bed, 0);
    bed.dst[0].first = UINT32_MAX - bed.dst[0].count + 1;
    assert_int_equal(lists_status(&bed), KVF_E_REQ_PIECE);
    bed_fini(&bed);
}

static void expected_bytes_are_what_all_writers_send(void **state)
{
    struct bed bed;
    struct plan_totals totals;

    (void)state;
    bed_init(&bed, 1, 1);
    plan_count(bed.template, &bed.request, &bed.piece, &totals);
    assert_int_equal(plan_expected_bytes(bed.reader, &bed.request), totals.bytes);
    bed_lists(&bed, 100);
    plan_count(bed.template, &bed.request, &bed.piece, &totals);
    assert_int_equal(plan_expected_bytes(bed.reader, &bed.request), totals.bytes);
    /* The writer's lists are not needed to foresee it. */
    bed.request.src = NULL;
    plan_count(bed.template, &bed.request, &bed.piece, &totals);
    assert_int_equal(plan_expected_bytes(bed.reader, &bed.request), totals.bytes);
    bed_fini(&bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stale_follows_the_prompt_length),
        cmocka_unit_test(first_ordinal_is_after_stale_and_whole_cached_blocks),
        cmocka_unit_test(a_window_takes_stale_blocks_out_of_every_piece),
        cmocka_unit_test(stale_blocks_move_with_no_piece),
        cmocka_unit_test(a_piece_inside_the_readers_prefix_moves_nothing),
        cmocka_unit_test(a_stale_block_that_the_writer_still_holds_is_not_sent),
        cmocka_unit_test(blocks_past_the_prompt_do_not_move),
        cmocka_unit_test(state_goes_with_the_last_piece_alone),
        cmocka_unit_test(layer_ranges_add_up_to_the_whole),
        cmocka_unit_test(a_wrong_number_of_lists_is_refused),
        cmocka_unit_test(slots_outside_their_pool_are_refused),
        cmocka_unit_test(the_smallest_pool_of_a_group_bounds_its_slots),
        cmocka_unit_test(a_destination_named_twice_is_refused),
        cmocka_unit_test(a_slot_named_twice_is_found_wherever_it_stands),
        cmocka_unit_test(a_wanted_block_that_is_not_held_is_refused),
        cmocka_unit_test(pieces_start_on_a_block_and_end_on_one_or_at_the_prompts_end),
        cmocka_unit_test(a_missing_state_slot_is_refused_with_the_last_piece),
        cmocka_unit_test(a_missing_aux_slot_is_refused_with_the_last_piece),
        cmocka_unit_test(aux_without_slots_travels_in_the_report_and_needs_none),
        cmocka_unit_test(a_reader_that_does_not_ask_has_no_template),
        cmocka_unit_test(template_open_survives_a_failing_allocation),
        cmocka_unit_test(a_template_outlives_its_records),
        cmocka_unit_test(scratch_that_is_too_small_is_an_error),
        cmocka_unit_test(stripes_of_one_pair_of_lists_share_their_slots),
        cmocka_unit_test(a_head_slice_is_one_stripe_of_uniform_pieces),
        cmocka_unit_test(pools_beyond_4_gib_have_right_addresses),
        cmocka_unit_test(a_reader_must_take_in_every_block_that_it_lacks),
        cmocka_unit_test(lists_that_cannot_be_read_are_refused),
        cmocka_unit_test(expected_bytes_are_what_all_writers_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
