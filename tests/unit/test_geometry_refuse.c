/*
 * test_geometry_refuse.c - what makes a rank unfit by itself and what makes two ranks unfit for
 * each other (docs/geometry.md, section 7): every code, its order, its text, the same from both
 * sides.
 */
#include <stdio.h>
#include <string.h>

#include "geo_make.h"

/* Two ranks that fit: K/V, an index view, a state; tp 4 to tp 2. */
struct pair {
    struct geo_make_model model;
    struct geo_record *sender;
    struct geo_record *receiver;
};

static void rich_model(struct geo_make_model *model)
{
    geo_make_model(model, 6, 8, 64, 16);
    for (uint32_t l = 0; l < 6; l++) {
        model->layers[l].index_bytes = 12;
    }
    for (uint32_t l = 1; l <= 2; l++) {
        model->layers[l] = (struct kvf_model_layer){.state_units = 16,
                                                    .state_unit_bytes = 32,
                                                    .section_count = 2,
                                                    .section_bytes = {64, 128}};
    }
    model->layers[4].window = 64;
    model->model.aux_count = 2;
    model->aux_bytes[0] = 4;
    model->aux_bytes[1] = 8;
}

static struct geo_record *rank_of(const struct geo_make_model *model, enum geo_side side,
                                  uint32_t tp, uint32_t rank, enum pages_form form)
{
    struct geo_make_grid grid = geo_make_grid(tp, 0, model->model.layer_count);
    struct geo_make_params params = {
        .model = model, .grid = &grid, .side = side, .form = form, .slots = 4};

    return geo_make_record(&params, rank);
}

static void pair_init(struct pair *pair)
{
    rich_model(&pair->model);
    pair->sender = rank_of(&pair->model, GEO_CONTEXT, 4, 2, PAGES_PARTITIONED);
    pair->receiver = rank_of(&pair->model, GEO_GENERATION, 2, 1, PAGES_PARTITIONED);
}

static void pair_fini(struct pair *pair)
{
    geo_record_close(pair->sender);
    geo_record_close(pair->receiver);
}

/* ---- by itself ------------------------------------------------------------------------------ */

/* Groups of the rich model on one rank: paged (0,3,5), paged window 64 (4), state (1,2). */
enum { PAGED = 0, WINDOWED = 1, STATE = 2 };
/* Views of the groups. */
enum { KV = 0, INDEX = 1, CONV = 0, SSM = 1 };

static void local_is(struct geo_record *record, enum kvf_status wanted, const char *part)
{
    struct geo_text text = {{0}};
    enum kvf_status status = geo_check_local(record, &text);

    if (status != wanted || (part != NULL && strstr(text.s, part) == NULL)) {
        fail_msg("%s (%s), wanted %s with \"%s\"", kvf_status_name(status), text.s,
                 kvf_status_name(wanted), part == NULL ? "" : part);
    }
    assert_int_equal(geo_check_local(record, NULL), wanted);
}

typedef void (*plant_fn)(struct geo_record *record);

static void plant_dp_shape(struct geo_record *record)
{
    record->place.attention_dp = true;
    record->place.dp_size = 3;
}

static void plant_dp_rank(struct geo_record *record)
{
    record->place.attention_dp = true;
    record->place.dp_size = 2;
}

static void plant_rank(struct geo_record *record)
{
    record->rank = 3;
}

static void plant_block(struct geo_record *record)
{
    record->layout.tokens_per_block = 0;
}

static void plant_layer_count(struct geo_record *record)
{
    record->layout.layer_count = 7;
}

static void plant_tp_heads(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->heads_total = 12;
    geo_edit_view(record, PAGED, KV)->heads = 3;
    record->place.tp_size = 8;
}

static void plant_heads_disagree(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->heads = 1;
}

static void plant_legacy_heads_disagree(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->has_heads = false;
    record->layout.kv_heads = 1;
}

static void plant_layer_off_stage(struct geo_record *record)
{
    struct kvf_group *group = geo_edit_group(record, PAGED);

    ((uint32_t *)group->layers)[2] = 6;
    geo_edit_entry(record, PAGED, KV, 4)->layer = 6;
}

static void plant_layer_off_group(struct geo_record *record)
{
    geo_edit_entry(record, PAGED, KV, 0)->layer = 4;
}

static void plant_layers_unordered(struct geo_record *record)
{
    ((uint32_t *)geo_edit_group(record, PAGED)->layers)[1] = 0;
}

static void plant_empty_view(struct geo_record *record)
{
    geo_edit_view(record, PAGED, INDEX)->entry_count = 0;
}

static void plant_role_order(struct geo_record *record)
{
    geo_edit_entry(record, PAGED, KV, 2)->role = KVF_VALUE;
    geo_edit_entry(record, PAGED, KV, 3)->role = KVF_KEY;
}

static void plant_roles_unsorted(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->roles[0] = KVF_VALUE;
    geo_edit_view(record, PAGED, KV)->roles[1] = KVF_KEY;
}

static void plant_missing_role(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->entry_count--;
}

static void plant_gap(struct geo_record *record)
{
    geo_edit_entry(record, PAGED, KV, 5)->offset += 64;
}

static void plant_layer_twice(struct geo_record *record)
{
    geo_edit_entry(record, PAGED, KV, 4)->layer = 0;
    geo_edit_entry(record, PAGED, KV, 5)->layer = 0;
}

static void plant_nonuniform(struct geo_record *record)
{
    geo_edit_entry(record, PAGED, KV, 4)->size -= 8;
    geo_edit_entry(record, PAGED, KV, 5)->size -= 8;
    geo_edit_entry(record, PAGED, KV, 5)->offset -= 8;
}

static void plant_bounds(struct geo_record *record)
{
    geo_edit_pool(record, record->layout.groups[PAGED].views[KV].pool)->bytes -= 3;
}

static void plant_no_pool(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->pool = record->layout.pool_count;
}

static void plant_huge_stride(struct geo_record *record)
{
    geo_edit_shape(record, 0)->slot_stride = GEO_SIZE_MAX;
    geo_edit_pool(record, 0)->slots = UINT32_MAX;
}

static void plant_replicated_heads(struct geo_record *record)
{
    geo_edit_view(record, PAGED, INDEX)->has_heads = true;
    geo_edit_view(record, PAGED, INDEX)->heads = 1;
}

static void plant_heads_unknown(struct geo_record *record)
{
    geo_edit_view(record, PAGED, KV)->has_heads = false;
    geo_edit_view(record, PAGED, KV)->has_heads_total = false;
    record->layout.kv_heads = 0;
}

static void plant_state_unit(struct geo_record *record)
{
    geo_edit_view(record, STATE, SSM)->unit_bytes = 24;
}

static void plant_state_no_unit(struct geo_record *record)
{
    geo_edit_view(record, STATE, SSM)->unit_bytes = 0;
}

static void plant_state_sections(struct geo_record *record)
{
    geo_edit_view(record, STATE, CONV)->section_bytes[1] += 8;
}

static void plant_state_window(struct geo_record *record)
{
    geo_edit_group(record, STATE)->window = 8;
}

static void plant_bridge_and_bounce(struct geo_record *record)
{
    record->layout.ownership_bridge = true;
    record->bounce.enabled = true;
    record->bounce.arena_bytes = 4096;
}

static void each_fault_of_one_rank_is_refused_with_its_code(void **state)
{
    static const struct {
        plant_fn plant;
        enum kvf_status wanted;
        const char *part;
    } rows[] = {
        {plant_dp_shape, KVF_E_DP_SHAPE, "3 groups do not divide tp 4"},
        {plant_dp_rank, KVF_E_INVAL, "dp rank"},
        {plant_rank, KVF_E_INVAL, "rank 3"},
        {plant_block, KVF_E_INVAL, "0 tokens"},
        {plant_layer_count, KVF_E_INVAL, "stages hold 6 layers"},
        {plant_tp_heads, KVF_E_TP_HEADS, "12 KV heads cannot be spread over tp 8"},
        {plant_heads_disagree, KVF_E_TP_HEADS, "8 KV heads"},
        {plant_legacy_heads_disagree, KVF_E_TP_HEADS, "8 KV heads"},
        {plant_layer_off_stage, KVF_E_LAYER_RANGE, "layer 6 is not on pp stage 0"},
        {plant_layer_off_group, KVF_E_LAYER_RANGE, "layer 4"},
        {plant_layers_unordered, KVF_E_LAYER_RANGE, "out of order"},
        {plant_empty_view, KVF_E_VIEW_EMPTY, "ctx/2 view(0,1)"},
        {plant_role_order, KVF_E_VIEW_ROLE_ORDER, "layer 3"},
        {plant_roles_unsorted, KVF_E_VIEW_ROLE_ORDER, "role order"},
        {plant_missing_role, KVF_E_VIEW_ROLE_ORDER, "layer 5"},
        {plant_gap, KVF_E_VIEW_GAP, "layer 5"},
        {plant_layer_twice, KVF_E_VIEW_GAP, "layer 0"},
        {plant_nonuniform, KVF_E_VIEW_NONUNIFORM, "layers 0 and 5"},
        {plant_bounds, KVF_E_VIEW_BOUNDS, "layer 5 ends 3 bytes past its pool"},
        {plant_no_pool, KVF_E_VIEW_BOUNDS, "pool"},
        {plant_huge_stride, KVF_E_VIEW_BOUNDS, "too large"},
        {plant_replicated_heads, KVF_E_REPLICATED_HEADS, "replicated"},
        {plant_heads_unknown, KVF_E_HEADS_UNKNOWN, "head count unknown"},
        {plant_state_unit, KVF_E_STATE_UNIT, "units of 24"},
        {plant_state_no_unit, KVF_E_STATE_UNIT, "units of 0"},
        {plant_state_sections, KVF_E_STATE_SECTIONS, "sections"},
        {plant_state_window, KVF_E_INVAL, "window"},
        {plant_bridge_and_bounce, KVF_E_INVAL, "ownership bridge with a bounce of 4096 bytes"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct pair pair;

        pair_init(&pair);
        local_is(pair.sender, KVF_OK, NULL);
        rows[i].plant(pair.sender);
        local_is(pair.sender, rows[i].wanted, rows[i].part);
        pair_fini(&pair);
    }
}

/* ---- two ranks ------------------------------------------------------------------------------ */

/* The same code from both sides; each text names the peer and starts from the local values. */
static void peer_is(const struct geo_record *sender, const struct geo_record *receiver,
                    enum kvf_status wanted)
{
    struct geo_text at_sender = {{0}}, at_receiver = {{0}};
    enum kvf_status status = geo_check_peer(sender, receiver, GEO_CONTEXT, &at_sender);

    if (status != wanted) {
        fail_msg("%s (%s), wanted %s", kvf_status_name(status), at_sender.s,
                 kvf_status_name(wanted));
    }
    assert_int_equal(geo_check_peer(sender, receiver, GEO_GENERATION, &at_receiver), wanted);
    assert_int_equal(geo_check_peer(sender, receiver, GEO_GENERATION, NULL), wanted);
    if (wanted != KVF_OK) {
        assert_true(strlen(at_sender.s) > 10 && strlen(at_receiver.s) > 10);
    }
}

/* Plants in either record; the fault need not be one that a model can have. */
typedef void (*plant_pair_fn)(struct pair *pair);

static void pair_version(struct pair *pair)
{
    pair->receiver->wire_version = 2;
}

static void pair_attention(struct pair *pair)
{
    pair->sender->layout.mla = true;
}

static void pair_cp(struct pair *pair)
{
    pair->receiver->place.cp_size = 2;
}

static void pair_elem(struct pair *pair)
{
    pair->receiver->layout.dtype = KVF_DTYPE_FP8_E4M3;
    pair->receiver->layout.elem_bits = 8;
}

static void pair_elem_code(struct pair *pair)
{
    pair->receiver->layout.dtype = KVF_DTYPE_FP16;
}

static void pair_block(struct pair *pair)
{
    pair->receiver->layout.tokens_per_block = 32;
}

static void pair_head_dim(struct pair *pair)
{
    pair->receiver->layout.head_dim = 128;
}

static void pair_mla_heads(struct pair *pair)
{
    pair->sender->layout.mla = pair->receiver->layout.mla = true;
}

static void pair_layer_total(struct pair *pair)
{
    ((uint32_t *)pair->receiver->place.layers_per_pp)[0] = 7;
}

static void pair_drafts(struct pair *pair)
{
    ((uint32_t *)pair->receiver->place.layers_per_pp)[0] = 7;
    pair->receiver->layout.draft_layers = 1;
}

static void pair_tp_ratio(struct pair *pair)
{
    pair->receiver->place.tp_size = 3;
}

static void pair_roles(struct pair *pair)
{
    struct kvf_view *view = geo_edit_view(pair->receiver, PAGED, KV);

    view->role_count = 1;
    view->entry_count = 1;
}

static void pair_missing(struct pair *pair)
{
    geo_edit_group(pair->receiver, PAGED)->view_count = 1;
}

static void pair_misplaced(struct pair *pair)
{
    struct kvf_group *paged = geo_edit_group(pair->receiver, PAGED);
    struct kvf_group *windowed = geo_edit_group(pair->receiver, WINDOWED);

    /* Layer 5 moves to the windowed group. */
    paged->layer_count--;
    geo_edit_view(pair->receiver, PAGED, KV)->entry_count -= 2;
    geo_edit_view(pair->receiver, PAGED, INDEX)->entry_count -= 1;
    ((uint32_t *)windowed->layers)[0] = 5;
}

static void pair_ambiguous(struct pair *pair)
{
    struct kvf_view *index = geo_edit_view(pair->receiver, PAGED, INDEX);

    /* The index view becomes a second K/V view of the same layers. */
    *index = *geo_edit_view(pair->receiver, PAGED, KV);
}

static void pair_layers(struct pair *pair)
{
    geo_edit_view(pair->receiver, PAGED, KV)->entry_count -= 2;
}

static void pair_kind(struct pair *pair)
{
    geo_edit_view(pair->receiver, PAGED, KV)->kind = KVF_VIEW_NHD;
}

static void pair_owner(struct pair *pair)
{
    geo_edit_view(pair->receiver, PAGED, KV)->owner = KVF_OWNER_DRAFT;
}

static void pair_window(struct pair *pair)
{
    geo_edit_group(pair->receiver, WINDOWED)->window = 128;
}

static void pair_replicated(struct pair *pair)
{
    for (uint32_t e = 0; e < 3; e++) {
        geo_edit_entry(pair->receiver, PAGED, INDEX, e)->size -= 4;
    }
}

static void pair_view_elem(struct pair *pair)
{
    geo_edit_view(pair->receiver, PAGED, KV)->dtype = KVF_DTYPE_FP16;
}

static void pair_head_total(struct pair *pair)
{
    geo_edit_view(pair->receiver, PAGED, KV)->heads = 2;
    geo_edit_view(pair->receiver, PAGED, KV)->heads_total = 4;
}

static void pair_head_bytes(struct pair *pair)
{
    for (uint32_t e = 0; e < 6; e++) {
        geo_edit_entry(pair->receiver, PAGED, KV, e)->size *= 2;
    }
}

static void pair_head_align(struct pair *pair)
{
    for (uint32_t e = 0; e < 6; e++) {
        geo_edit_entry(pair->receiver, PAGED, KV, e)->size += 2;
    }
}

static void pair_state_total(struct pair *pair)
{
    geo_edit_entry(pair->receiver, STATE, SSM, 0)->size *= 2;
    geo_edit_entry(pair->receiver, STATE, SSM, 1)->size *= 2;
}

static void pair_state_unit(struct pair *pair)
{
    geo_edit_view(pair->receiver, STATE, SSM)->unit_bytes = 64;
}

static void pair_sections(struct pair *pair)
{
    geo_edit_view(pair->receiver, STATE, CONV)->section_bytes[0] += 32;
    geo_edit_view(pair->receiver, STATE, CONV)->section_bytes[1] -= 32;
}

static void pair_section_count(struct pair *pair)
{
    geo_edit_view(pair->receiver, STATE, CONV)->section_count = 1;
}

static void pair_aux_count(struct pair *pair)
{
    pair->receiver->layout.aux_count = 0;
}

static void pair_aux_bytes(struct pair *pair)
{
    ((uint32_t *)pair->receiver->layout.aux_bytes)[1] = 16;
}

/* In the order of the checks, as far as they concern one and the same view. */
static const struct {
    plant_pair_fn plant;
    enum kvf_status wanted;
} pair_rows[] = {
    {pair_version, KVF_E_WIRE_VERSION},
    {pair_attention, KVF_E_ATTENTION_KIND},
    {pair_cp, KVF_E_CP},
    {pair_elem, KVF_E_ELEM},
    {pair_elem_code, KVF_E_ELEM},
    {pair_block, KVF_E_BLOCK},
    {pair_head_dim, KVF_E_HEAD_DIM},
    {pair_mla_heads, KVF_E_MLA_HEADS},
    {pair_layer_total, KVF_E_LAYER_TOTAL},
    {pair_drafts, KVF_E_DRAFT_LAYERS},
    {pair_tp_ratio, KVF_E_TP_RATIO},
    {pair_roles, KVF_E_VIEW_ROLES},
    {pair_missing, KVF_E_VIEW_MISSING},
    {pair_misplaced, KVF_E_VIEW_MISPLACED},
    {pair_ambiguous, KVF_E_VIEW_AMBIGUOUS},
    {pair_layers, KVF_E_VIEW_LAYERS},
    {pair_kind, KVF_E_VIEW_KIND},
    {pair_owner, KVF_E_VIEW_OWNER},
    {pair_replicated, KVF_E_REPLICATED_BYTES},
    {pair_view_elem, KVF_E_ELEM},
    {pair_head_total, KVF_E_HEAD_TOTAL},
    {pair_head_align, KVF_E_HEAD_ALIGN},
    {pair_head_bytes, KVF_E_HEAD_BYTES},
    {pair_window, KVF_E_WINDOW},
    {pair_sections, KVF_E_STATE_SECTIONS},
    {pair_section_count, KVF_E_STATE_SECTIONS},
    {pair_state_total, KVF_E_STATE_TOTAL},
    {pair_state_unit, KVF_E_STATE_UNIT},
    {pair_aux_count, KVF_E_AUX_LAYOUT},
    {pair_aux_bytes, KVF_E_AUX_LAYOUT},
};

enum { PAIR_ROWS = sizeof(pair_rows) / sizeof(pair_rows[0]) };

static void each_fault_of_two_ranks_is_refused_with_its_code(void **state)
{
    (void)state;
    for (int i = 0; i < PAIR_ROWS; i++) {
        struct pair pair;

        pair_init(&pair);
        peer_is(pair.sender, pair.receiver, KVF_OK);
        pair_rows[i].plant(&pair);
        if (pair_rows[i].wanted == KVF_E_HEAD_ALIGN) {
            /* 2 more bytes of 8 heads: no whole head. */
            assert_int_not_equal(geo_view_region(geo_edit_view(pair.receiver, 0, 0)) % 8, 0);
        }
        peer_is(pair.sender, pair.receiver, pair_rows[i].wanted);
        pair_fini(&pair);
    }
}

static void of_two_faults_the_earlier_check_is_reported(void **state)
{
    (void)state;
    for (int early = 0; early < PAIR_ROWS; early++) {
        for (int late = early + 1; late < PAIR_ROWS; late++) {
            struct pair pair;
            enum kvf_status status;

            pair_init(&pair);
            pair_rows[early].plant(&pair);
            /* Some faults undo or change one another; then either code is right. */
            pair_rows[late].plant(&pair);
            status = geo_check_peer(pair.sender, pair.receiver, GEO_CONTEXT, NULL);
            assert_int_equal(geo_check_peer(pair.sender, pair.receiver, GEO_GENERATION, NULL),
                             status);
            if (pair_rows[early].wanted >= KVF_E_TP_RATIO &&
                pair_rows[early].wanted != KVF_E_MLA_HEADS &&
                pair_rows[early].wanted != KVF_E_LAYER_TOTAL &&
                pair_rows[early].wanted != KVF_E_ATTENTION_KIND) {
                assert_int_equal(status, pair_rows[early].wanted);
            }
            pair_fini(&pair);
        }
    }
}

static void inside_a_pair_of_views_the_earlier_check_is_reported(void **state)
{
    static const struct {
        plant_pair_fn plant;
        enum kvf_status wanted;
    } rows[] = {
        {pair_kind, KVF_E_VIEW_KIND},
        {pair_owner, KVF_E_VIEW_OWNER},
        {pair_view_elem, KVF_E_ELEM},
        {pair_head_total, KVF_E_HEAD_TOTAL},
        {pair_head_align, KVF_E_HEAD_ALIGN},
        {pair_head_bytes, KVF_E_HEAD_BYTES},
        {pair_replicated, KVF_E_REPLICATED_BYTES},
        {pair_window, KVF_E_WINDOW},
        {pair_sections, KVF_E_STATE_SECTIONS},
        {pair_state_unit, KVF_E_STATE_UNIT},
        {pair_aux_bytes, KVF_E_AUX_LAYOUT},
    };
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

    (void)state;
    for (int early = 0; early < ROWS; early++) {
        for (int late = early + 1; late < ROWS; late++) {
            struct pair pair;

            pair_init(&pair);
            rows[late].plant(&pair);
            rows[early].plant(&pair);
            peer_is(pair.sender, pair.receiver, rows[early].wanted);
            pair_fini(&pair);
        }
    }
}

static void a_text_names_both_sides_values_local_first(void **state)
{
    struct pair pair;
    struct geo_text text;

    (void)state;
    pair_init(&pair);
    pair.receiver->layout.tokens_per_block = 64;
    geo_check_peer(pair.sender, pair.receiver, GEO_CONTEXT, &text);
    assert_string_equal(text.s, "tokens per block differ: local 16, peer gen/1 64");
    geo_check_peer(pair.sender, pair.receiver, GEO_GENERATION, &text);
    assert_string_equal(text.s, "tokens per block differ: local 64, peer ctx/2 16");
    pair.receiver->layout.tokens_per_block = 16;
    pair_window(&pair);
    geo_check_peer(pair.sender, pair.receiver, GEO_GENERATION, &text);
    assert_non_null(strstr(text.s, "gen/1 view(1,"));
    assert_non_null(strstr(text.s, "sliding window 128, peer ctx/2 64"));
    pair_fini(&pair);
}

static void an_mla_text_names_the_rank_that_is_wrong(void **state)
{
    struct pair pair;
    struct geo_text text;

    (void)state;
    pair_init(&pair);
    pair_mla_heads(&pair);
    geo_check_peer(pair.sender, pair.receiver, GEO_GENERATION, &text);
    assert_string_equal(text.s, "MLA needs one KV head per rank, ctx/2 has 2");
    pair_fini(&pair);
}

/* ---- head totals ---------------------------------------------------------------------------- */

static enum kvf_status heads_meet(uint32_t src_heads, uint32_t src_tp, uint32_t dst_heads,
                                  uint32_t dst_tp, bool declared)
{
    struct geo_make_model src, dst;
    struct geo_record *sender, *receiver;
    enum pages_form form = declared ? PAGES_PARTITIONED : PAGES_LEGACY;
    enum kvf_status status;

    geo_make_model(&src, 2, src_heads, 8, 4);
    geo_make_model(&dst, 2, dst_heads, 8, 4);
    sender = rank_of(&src, GEO_CONTEXT, src_tp, 0, form);
    receiver = rank_of(&dst, GEO_GENERATION, dst_tp, 0, PAGES_LEGACY);
    if (declared) {
        geo_record_close(receiver);
        receiver = rank_of(&dst, GEO_GENERATION, dst_tp, 0, form);
    }
    status = geo_check_peer(sender, receiver, GEO_CONTEXT, NULL);
    assert_int_equal(geo_check_peer(sender, receiver, GEO_GENERATION, NULL), status);
    geo_record_close(sender);
    geo_record_close(receiver);
    return status;
}

static void models_of_other_head_totals_are_refused_when_totals_are_stated(void **state)
{
    (void)state;
    assert_int_equal(heads_meet(8, 8, 4, 4, true), KVF_E_HEAD_TOTAL);
    assert_int_equal(heads_meet(8, 4, 4, 2, true), KVF_E_HEAD_TOTAL);
    assert_int_equal(heads_meet(8, 8, 8, 4, true), KVF_OK);
    assert_int_equal(heads_meet(2, 8, 2, 4, true), KVF_OK);
}

static void legacy_peers_are_refused_where_no_total_explains_both(void **state)
{
    (void)state;
    /* One head a rank on both sides says only that H <= tp: nothing to see. */
    assert_int_equal(heads_meet(8, 8, 4, 4, false), KVF_OK);
    /* Two a rank on different widths cannot be one model. */
    assert_int_equal(heads_meet(8, 4, 4, 2, false), KVF_E_HEAD_TOTAL);
    assert_int_equal(heads_meet(8, 4, 8, 4, false), KVF_OK);
    /* 4 = 2 x 2 divides 8: H = 4 at tp 8 duplicated. */
    assert_int_equal(heads_meet(4, 8, 4, 2, false), KVF_OK);
    /* 6 heads cannot be the total of a rank of one head at tp 4. */
    assert_int_equal(heads_meet(4, 4, 6, 2, false), KVF_E_HEAD_TOTAL);
}

static void a_layer_that_is_attention_here_and_recurrent_there_is_missing(void **state)
{
    struct geo_make_model src, dst;
    struct geo_record *sender, *receiver;

    (void)state;
    geo_make_model(&src, 3, 8, 16, 8);
    geo_make_copy(&src, &dst);
    dst.layers[1] = (struct kvf_model_layer){.state_units = 8, .state_unit_bytes = 16};
    sender = rank_of(&src, GEO_CONTEXT, 2, 0, PAGES_PARTITIONED);
    receiver = rank_of(&dst, GEO_GENERATION, 2, 0, PAGES_PARTITIONED);
    peer_is(sender, receiver, KVF_E_VIEW_LAYERS);
    geo_record_close(receiver);
    /* All shared layers recurrent there: nobody to pair with. */
    dst.layers[0] = dst.layers[2] = dst.layers[1];
    dst.layers[0].kv_heads = 0;
    receiver = rank_of(&dst, GEO_GENERATION, 2, 0, PAGES_PARTITIONED);
    receiver->layout.head_dim = 16;
    receiver->layout.dtype = KVF_DTYPE_BF16;
    receiver->layout.elem_bits = 16;
    peer_is(sender, receiver, KVF_E_VIEW_MISSING);
    geo_record_close(sender);
    geo_record_close(receiver);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_of_one_rank_is_refused_with_its_code),
        cmocka_unit_test(each_fault_of_two_ranks_is_refused_with_its_code),
        cmocka_unit_test(of_two_faults_the_earlier_check_is_reported),
        cmocka_unit_test(inside_a_pair_of_views_the_earlier_check_is_reported),
        cmocka_unit_test(a_text_names_both_sides_values_local_first),
        cmocka_unit_test(an_mla_text_names_the_rank_that_is_wrong),
        cmocka_unit_test(models_of_other_head_totals_are_refused_when_totals_are_stated),
        cmocka_unit_test(legacy_peers_are_refused_where_no_total_explains_both),
        cmocka_unit_test(a_layer_that_is_attention_here_and_recurrent_there_is_missing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
