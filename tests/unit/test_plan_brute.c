/*
 * test_plan_brute.c - random pairs of instances: every byte of the writers' pages is labelled with
 * what it means, moved by stripes, and compared with what the reader's page should hold there
 * (docs/geometry.md, section 8.4). Every byte once, nothing outside; and peers with one fact
 * changed are refused or still exact.
 *
 * PAIRS=N in the environment runs N pairs instead of the default.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geo_trial.h"

enum {
    PAIRS_DEFAULT = 3000,
    READERS_MAX = 3, /* checked of one pair of instances */
};

/* A rank's pools, one label a byte. */
struct memory {
    const struct geo_record *record;
    uint64_t *labels[GEO_POOLS_MAX];
    uint8_t *writes[GEO_POOLS_MAX];
};

/* A rank's side of the request. */
struct side {
    struct geo_record *record;
    struct memory memory;
    struct kvf_block_list lists[GEO_GROUPS_MAX];
    uint32_t slots[GEO_GROUPS_MAX][TRIAL_BLOCKS_MAX];
};

/* How often each kind of thing was met: a test that met nothing proves nothing. */
static struct {
    uint64_t pairs, refused, bytes, fragments, cuts, slices, silent, states, empty, aux, equal,
        shared;
} met;

/* ---- pools of other shapes ------------------------------------------------------------------ */

/* Gives a pool a stride of its own, or lays it out region by region: only entries count. */
static void reshape_pool(struct trial *trial, struct geo_record *record, uint32_t p)
{
    struct kvf_pool_shape *shape = geo_edit_shape(record, p);
    struct geo_pool *pool = geo_edit_pool(record, p);
    uint64_t regions = 0;
    uint64_t stride = 0;
    bool spread = trial_chance(trial, 25);

    if (!spread) {
        shape->slot_stride += trial_chance(trial, 40) ? trial_pick(trial, 9) : 0;
        pool->bytes = shape->slot_stride * pool->slots;
        return;
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t g = 0; g < record->layout.group_count; g++) {
            for (uint32_t v = 0; v < record->layout.groups[g].view_count; v++) {
                struct kvf_view *view = geo_edit_view(record, g, v);
                uint64_t region = geo_view_region(view);

                if (view->pool != p) {
                    continue;
                }
                if (pass == 0) {
                    stride = region > stride ? region : stride;
                    continue;
                }
                for (uint32_t e = 0; e < view->entry_count; e++) {
                    struct kvf_entry *entry = geo_edit_entry(record, g, v, e);

                    entry->offset =
                        regions * stride * pool->slots + e % view->role_count * entry->size;
                    regions += e % view->role_count == view->role_count - 1;
                }
            }
        }
    }
    if (regions == 0) {
        return; /* a pool that another one took the place of */
    }
    shape->slot_bytes = shape->slot_stride = stride;
    pool->bytes = regions * stride * pool->slots;
}

/* Lets two groups share a pool, as an allocator may; their slots stay apart (side_init()). */
static void share_pools(struct geo_record *record)
{
    uint64_t done = 0;

    for (uint32_t p = 1; p < record->layout.pool_count; p++) {
        const struct kvf_pool_shape *mine = &record->layout.pools[p];
        const struct kvf_pool_shape *first = &record->layout.pools[0];

        if (mine->group == first->group || mine->slot_bytes != first->slot_bytes ||
            (done & UINT64_C(1) << mine->group)) {
            continue; /* two pools of one group would meet in one slot */
        }
        done |= UINT64_C(1) << mine->group;
        for (uint32_t g = 0; g < record->layout.group_count; g++) {
            for (uint32_t v = 0; v < record->layout.groups[g].view_count; v++) {
                struct kvf_view *view = geo_edit_view(record, g, v);

                if (view->pool == p) {
                    view->pool = 0;
                    met.shared++;
                }
            }
        }
    }
}

static struct geo_record *make_rank(struct trial *trial, enum geo_side side, uint32_t rank)
{
    bool src = side == GEO_CONTEXT;
    struct geo_make_params params = {.model = src ? &trial->src_model : &trial->dst_model,
                                     .grid = src ? &trial->src_grid : &trial->dst_grid,
                                     .side = side,
                                     .form = src ? trial->src_form : trial->dst_form,
                                     .slots = trial->slots};
    struct geo_record *record = geo_make_record(&params, rank);
    struct geo_record *decoded = NULL;
    struct geo_text text = {{0}};
    size_t len = 0;
    uint64_t base;
    void *bytes;

    base = record->pools == NULL || record->layout.pool_count == 0 ? 0 : record->pools[0].base;
    if (trial_chance(trial, 40)) {
        share_pools(record);
    }
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        reshape_pool(trial, record, p);
        geo_edit_pool(record, p)->base = base;
        base += record->pools[p].bytes + trial_pick(trial, 3) * 64;
    }
    /* What the peer sees of it has crossed the wire. */
    assert_int_equal(geo_record_encode(record, NULL, 0, &len), KVF_OK);
    bytes = malloc(len);
    assert_int_equal(geo_record_encode(record, bytes, len, &len), KVF_OK);
    if (geo_record_decode(kvf_heap_system(), bytes, len, &decoded, &text) != KVF_OK) {
        fail_msg("not decoded: %s", text.s);
    }
    free(bytes);
    geo_record_close(record);
    return decoded;
}

/* ---- labels --------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ b) * UINT64_C(0x9e3779b97f4a7c15);
    return (a ^ (a >> 29)) | 1;
}

/* First head that rank i of t holds, from the definition: head spans and rank spans of [0, 1). */
static uint32_t first_head(uint32_t heads, uint32_t index, uint32_t width)
{
    return index * heads / width;
}

/* Meaning of byte `at` of a buffer, the same on every rank that holds it. */
static uint64_t label_of(const struct geo_record *record, const struct geo_make_model *model,
                         const struct kvf_view *view, const struct kvf_entry *entry, uint64_t at)
{
    const struct kvf_model_layer *layer = &model->layers[entry->layer];
    uint32_t width = record->place.tp_size / record->place.dp_size;
    uint32_t index = record->place.tp_rank % width;
    uint32_t tokens = record->layout.tokens_per_block;
    uint64_t label = mix(entry->layer, entry->role);
    uint64_t start = 0;

    if (entry->role <= KVF_VALUE_SCALE) {
        uint32_t held = layer->kv_heads > width ? layer->kv_heads / width : 1;
        uint32_t first = first_head(layer->kv_heads, index, width);
        uint64_t head_bytes = entry->size / held;
        uint64_t row = head_bytes / tokens; /* one head, one token */
        uint64_t head;

        if (entry->size % held != 0) {
            return mix(mix(label, first + 1000), at); /* 4-bit heads that share a byte */
        }
        head = at / head_bytes;
        if (model->model.nhd && head_bytes % tokens == 0) {
            uint64_t token = at / (held * row);

            head = at / row % held;
            at = token * row + at % row;
        } else {
            at %= head_bytes;
        }
        return mix(mix(label, first + head + 1000), at);
    }
    if (view->kind == KVF_VIEW_UNITS) {
        return mix(label, index * entry->size + at);
    }
    for (uint32_t s = 0; view->kind == KVF_VIEW_SECTIONS && s < view->section_count; s++) {
        if (at < start + view->section_bytes[s]) {
            return mix(mix(label, s + 77), index * view->section_bytes[s] + at - start);
        }
        start += view->section_bytes[s];
    }
    return mix(label, at);
}

static void memory_init(struct memory *memory, const struct geo_record *record)
{
    *memory = (struct memory){.record = record};
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        memory->labels[p] = calloc(record->pools[p].bytes, sizeof(uint64_t));
        memory->writes[p] = calloc(record->pools[p].bytes, 1);
    }
}

static void memory_fini(struct memory *memory)
{
    for (uint32_t p = 0; p < memory->record->layout.pool_count; p++) {
        free(memory->labels[p]);
        free(memory->writes[p]);
    }
}

/* The pool that holds [address, address + bytes) whole. */
static uint32_t find_pool(const struct geo_record *record, uint64_t address, uint64_t bytes)
{
    for (uint32_t p = 0; p < record->layout.pool_count; p++) {
        const struct geo_pool *pool = &record->pools[p];

        if (address >= pool->base && address - pool->base < pool->bytes) {
            assert_true(bytes <= pool->bytes - (address - pool->base));
            return p;
        }
    }
    fail_msg("address %" PRIx64 " is in no pool", address);
    return 0;
}

static void move(struct memory *src, struct memory *dst, const struct plan_fragment *fragment)
{
    uint32_t from = find_pool(src->record, fragment->src, fragment->bytes);
    uint32_t to = find_pool(dst->record, fragment->dst, fragment->bytes);
    uint64_t from_at = fragment->src - src->record->pools[from].base;
    uint64_t to_at = fragment->dst - dst->record->pools[to].base;

    for (uint64_t b = 0; b < fragment->bytes; b++) {
        dst->labels[to][to_at + b] = src->labels[from][from_at + b];
        dst->writes[to][to_at + b]++;
        /* Bytes that belong to nothing of the request must not move either. */
        assert_true(src->labels[from][from_at + b] != 0);
    }
}

/* ---- one request ---------------------------------------------------------------------------- */

static uint32_t expected_first(const struct trial *trial, uint32_t window, uint32_t cached)
{
    uint32_t tokens = trial->src_model.model.tokens_per_block;
    int64_t stale = window == 0 ? 0 : ((int64_t)trial->prompt_tokens + 1 - window);
    int64_t first = cached / tokens;

    stale = stale <= 0 ? 0 : stale / tokens;
    return (uint32_t)(stale > first ? stale : first);
}

static void side_init(struct trial *trial, struct side *side, struct geo_record *record,
                      bool is_src)
{
    uint32_t tokens = trial->src_model.model.tokens_per_block;
    uint32_t blocks = (trial->prompt_tokens + tokens - 1) / tokens;
    uint32_t order[256];
    uint32_t used = 0;

    side->record = record;
    memory_init(&side->memory, record);
    for (uint32_t s = 0; s < trial->slots; s++) {
        uint32_t at = trial_pick(trial, s + 1);

        order[s] = order[at];
        order[at] = s;
    }
    for (uint32_t g = 0; g < record->layout.group_count; g++) {
        const struct kvf_group *group = &record->layout.groups[g];
        struct kvf_block_list *list = &side->lists[g];
        uint32_t first = expected_first(trial, group->window, is_src ? 0 : trial->cached_tokens);

        if (group->group_class == KVF_GROUP_STATE) {
            *list = (struct kvf_block_list){.count = 1};
        } else if (is_src && trial_chance(trial, 50)) {
            *list = (struct kvf_block_list){.count = blocks}; /* keeps stale blocks too */
        } else {
            first = first < blocks ? first : blocks;
            *list = (struct kvf_block_list){.first = first, .count = blocks - first};
        }
        for (uint32_t b = 0; b < list->count; b++) {
            side->slots[g][b] = order[used++ % trial->slots];
        }
        list->slots = side->slots[g];
    }
}

static void side_fini(struct side *side)
{
    memory_fini(&side->memory);
    geo_record_close(side->record);
}

/* Calls `visit` for each byte of each buffer in each slot that the side's lists name. */
typedef void (*visit_fn)(struct trial *trial, struct side *side, uint32_t pool, uint64_t at,
                         uint64_t label);

static void for_each_byte(struct trial *trial, struct side *side, bool is_src, visit_fn visit)
{
    const struct geo_make_model *model = is_src ? &trial->src_model : &trial->dst_model;

    for (uint32_t g = 0; g < side->record->layout.group_count; g++) {
        const struct kvf_group *group = &side->record->layout.groups[g];

        for (uint32_t v = 0; v < group->view_count; v++) {
            const struct kvf_view *view = &group->views[v];
            uint64_t stride = side->record->layout.pools[view->pool].slot_stride;

            for (uint32_t b = 0; b < side->lists[g].count; b++) {
                for (uint32_t e = 0; e < view->entry_count; e++) {
                    const struct kvf_entry *entry = &view->entries[e];
                    uint64_t start = side->lists[g].slots[b] * stride + entry->offset;

                    for (uint64_t at = 0; at < entry->size; at++) {
                        visit(trial, side, view->pool, start + at,
                              mix(label_of(side->record, model, view, entry, at),
                                  side->lists[g].first + b));
                    }
                }
            }
        }
    }
}

static void fill_byte(struct trial *trial, struct side *side, uint32_t pool, uint64_t at,
                      uint64_t label)
{
    (void)trial;
    side->memory.labels[pool][at] = label;
}

static void check_byte(struct trial *trial, struct side *side, uint32_t pool, uint64_t at,
                       uint64_t label)
{
    (void)trial;
    met.bytes++;
    if (side->memory.writes[pool][at] != 1 || side->memory.labels[pool][at] != label) {
        fail_msg("pool %u byte %" PRIu64 ": written %u times, %s label", pool, at,
                 side->memory.writes[pool][at],
                 side->memory.labels[pool][at] == label ? "right" : "wrong");
    }
    side->memory.writes[pool][at] = 0;
}

/* All writes of one writer to one reader; returns the bytes. */
static uint64_t send_all(struct trial *trial, struct side *writer, struct side *reader,
                         const struct plan_template *template)
{
    struct plan_request request = {.prompt_tokens = trial->prompt_tokens,
                                   .src_count = writer->record->layout.group_count,
                                   .dst_count = reader->record->layout.group_count,
                                   .src = writer->lists,
                                   .dst = reader->lists,
                                   .src_aux_slot = 1,
                                   .dst_aux_slot = 2};
    uint64_t src_bases[GEO_POOLS_MAX], dst_bases[GEO_POOLS_MAX];
    struct plan_addresses addresses = {.src = src_bases, .dst = dst_bases};
    struct plan_scratch scratch = {.stripes_max = plan_stripes_max(template),
                                   .pairs_max = plan_pairs_max(template, TRIAL_BLOCKS_MAX)};
    struct plan_piece whole = plan_whole(trial->prompt_tokens);
    struct plan_totals foreseen;
    struct geo_text text = {{0}};
    uint64_t bytes = 0;

    scratch.stripes = calloc(scratch.stripes_max + 1, sizeof(*scratch.stripes));
    scratch.pairs = calloc(scratch.pairs_max + 1, sizeof(*scratch.pairs));
    for (uint32_t p = 0; p < writer->record->layout.pool_count; p++) {
        src_bases[p] = writer->record->pools[p].base;
    }
    for (uint32_t p = 0; p < reader->record->layout.pool_count; p++) {
        dst_bases[p] = reader->record->pools[p].base;
    }
    for (uint32_t i = 0; i < trial->piece_count; i++) {
        struct plan_filled filled;
        struct plan_totals totals;
        struct plan_walk walk;
        struct plan_fragment fragment;
        uint64_t fragments = 0;

        if (plan_check_request(template, &request, &trial->pieces[i], &text) != KVF_OK) {
            fail_msg("request refused: %s", text.s);
        }
        assert_int_equal(
            plan_fill(template, &request, &trial->pieces[i], &addresses, &scratch, &filled),
            KVF_OK);
        plan_count(template, &request, &trial->pieces[i], &totals);
        geo_assert_totals_equal(&filled.totals, &totals);
        plan_walk_init(&walk, scratch.stripes, filled.stripe_count);
        while (plan_walk_next(&walk, &fragment)) {
            move(&writer->memory, &reader->memory, &fragment);
            fragments++;
            bytes += fragment.bytes;
        }
        assert_int_equal(fragments, totals.fragments);
        met.fragments += fragments;
        met.empty += fragments == 0;
        met.cuts += trial->pieces[i].layer_end != PLAN_LAYERS_ALL;
    }
    plan_count(template, &request, &whole, &foreseen);
    assert_int_equal(foreseen.bytes, bytes);
    free(scratch.stripes);
    free(scratch.pairs);
    return bytes;
}

static void note_views(const struct plan_template *template)
{
    for (uint32_t v = 0; v < plan_view_pairs(template); v++) {
        const struct plan_view_pair *view = plan_view_pair(template, v);

        met.slices += view->src_heads != view->dst_heads;
        met.silent += !view->elected;
        met.states += view->is_state && view->elected;
    }
}

/* True when both sides of every asked pair say yes; they must say the same. */
static bool all_fit(struct trial *trial, const struct geo_record *reader, const uint32_t *asked,
                    uint32_t count)
{
    bool fit = true;

    for (uint32_t i = 0; i < count; i++) {
        struct geo_record *writer = make_rank(trial, GEO_CONTEXT, asked[i]);
        struct geo_text text = {{0}};
        enum kvf_status status = geo_check_peer(writer, reader, GEO_CONTEXT, &text);

        assert_int_equal(geo_check_peer(writer, reader, GEO_GENERATION, NULL), status);
        /* Slices of 4-bit heads may not be whole bytes; that is not known before. */
        if (status == KVF_E_HEAD_ALIGN) {
            assert_int_equal(reader->layout.elem_bits, 4);
        } else if (status != KVF_OK && !trial->may_refuse) {
            fail_msg("%s: %s", kvf_status_name(status), text.s);
        }
        fit = fit && status == KVF_OK;
        geo_record_close(writer);
    }
    return fit;
}

/* Asking and serving are one relation. */
static void check_mirror(const struct trial *trial, const struct geo_record *writer,
                         const struct geo_record *reader)
{
    uint32_t ranks[64];
    uint32_t count = 0;
    bool there = false;

    (void)trial;
    assert_int_equal(geo_serves(writer, &reader->place, reader->place.dp_rank, ranks, 64, &count),
                     KVF_OK);
    for (uint32_t i = 0; i < count; i++) {
        there = there || ranks[i] == reader->rank;
    }
    assert_true(there);
    assert_true(geo_is_asked(&reader->place, &writer->place));
}

static void check_reader_memory(struct trial *trial, struct side *reader)
{
    for_each_byte(trial, reader, false, check_byte);
    for (uint32_t p = 0; p < reader->record->layout.pool_count; p++) {
        for (uint64_t at = 0; at < reader->record->pools[p].bytes; at++) {
            if (reader->memory.writes[p][at] != 0) {
                fail_msg("pool %u byte %" PRIu64 " does not belong to the request", p, at);
            }
        }
    }
}

/* Numbers of trial `i` of test `test`, far from those of neighbouring seeds. */
static struct test_random seed_of(uint64_t test, uint64_t i)
{
    return test_random_make(mix(mix(test_seed(), test), i));
}

/* One reader: everyone it asks writes, then its pages are compared. */
static void try_reader(struct trial *trial, uint32_t rank)
{
    struct geo_record *record = make_rank(trial, GEO_GENERATION, rank);
    uint32_t groups = trial->src_grid.dp == 0 ? 1 : trial->src_grid.dp;
    struct kvf_place grid = geo_make_place(&trial->src_grid, 0);
    struct plan_split_facts split = {.group_known = true};
    struct plan_request request = {.prompt_tokens = trial->prompt_tokens};
    struct side *reader = calloc(1, sizeof(*reader));
    uint32_t asked[64];
    uint32_t count = 0, aux = 0;
    uint64_t sum = 0, first_bytes = 0;
    bool balanced = true;

    assert_int_equal(geo_asked(record, &grid, trial_pick(trial, groups), asked, 64, &count),
                     KVF_OK);
    assert_int_equal(geo_finals(record, &grid, &split.finals), KVF_OK);
    assert_int_equal(split.finals, count);
    if (!all_fit(trial, record, asked, count)) {
        met.refused++;
        geo_record_close(record);
        free(reader);
        return;
    }
    side_init(trial, reader, record, false);
    request.dst = reader->lists;
    request.dst_count = record->layout.group_count;
    for (uint32_t i = 0; i < count; i++) {
        struct side *writer = calloc(1, sizeof(*writer));
        struct plan_template *template = NULL;
        uint64_t bytes;

        side_init(trial, writer, make_rank(trial, GEO_CONTEXT, asked[i]), true);
        for_each_byte(trial, writer, true, fill_byte);
        check_mirror(trial, writer->record, record);
        assert_int_equal(plan_template_open(kvf_heap_system(), writer->record, record, &template),
                         KVF_OK);
        note_views(template);
        plan_split_add(&split, template);
        aux += plan_aux_elected(template);
        bytes = send_all(trial, writer, reader, template);
        balanced = balanced && (i == 0 || bytes == first_bytes);
        first_bytes = bytes;
        sum += bytes;
        plan_template_close(template);
        side_fini(writer);
        free(writer);
    }
    check_reader_memory(trial, reader);
    assert_int_equal(plan_expected_bytes(record, &request), sum);
    if (plan_split_gate(&split) == PLAN_SPLIT_EQUAL) {
        assert_true(balanced);
        met.equal++;
    }
    assert_true(aux <= 1);
    met.aux += aux;
    side_fini(reader);
    free(reader);
}

/* A few readers of one dp group. */
static void try_pair(struct trial *trial)
{
    uint32_t ranks = trial->dst_grid.tp * trial->dst_grid.pp;
    uint32_t first = trial_pick(trial, ranks);

    met.pairs++;
    for (uint32_t i = 0; i < READERS_MAX && i < ranks; i++) {
        try_reader(trial, (first + i) % ranks);
    }
}

static uint32_t pairs_wanted(void)
{
    const char *text = getenv("PAIRS");

    return text == NULL ? PAIRS_DEFAULT : (uint32_t)strtoul(text, NULL, 10);
}

static void every_byte_arrives_once_and_nothing_else_changes(void **state)
{
    struct trial *trial = calloc(1, sizeof(*trial));

    (void)state;
    memset(&met, 0, sizeof(met));
    for (uint32_t i = 0; i < pairs_wanted(); i++) {
        trial->random = seed_of(0, i);
        trial_make(trial);
        try_pair(trial);
    }
    print_message("pairs %" PRIu64 " bytes %" PRIu64 " fragments %" PRIu64 " slices %" PRIu64
                  " silent %" PRIu64 " states %" PRIu64 " layer cuts %" PRIu64 " empty %" PRIu64
                  " aux %" PRIu64 " equal %" PRIu64 " shared %" PRIu64 "\n",
                  met.pairs, met.bytes, met.fragments, met.slices, met.silent, met.states, met.cuts,
                  met.empty, met.aux, met.equal, met.shared);
    assert_true(met.refused < met.pairs / 20 + 5);
    if (pairs_wanted() >= 1000) {
        assert_true(met.slices > 100 && met.silent > 100 && met.states > 100 && met.cuts > 100);
        assert_true(met.empty > 100 && met.aux > 100 && met.equal > 100 && met.shared > 50);
    }
    free(trial);
}

/* ---- legacy peers --------------------------------------------------------------------------- */

static void legacy_peers_of_uniform_models_are_exact(void **state)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    uint32_t done = 0;

    (void)state;
    memset(&met, 0, sizeof(met));
    for (uint32_t i = 0; done < pairs_wanted() / 10 + 1; i++) {
        uint32_t heads = 0;
        bool uniform = true;

        trial->random = seed_of(1, i);
        trial_make(trial);
        for (uint32_t l = 0; l < trial->src_model.model.layer_count; l++) {
            const struct kvf_model_layer *layer = &trial->src_model.layers[l];

            uniform = uniform && layer->owner == KVF_OWNER_TARGET &&
                      (heads == 0 || layer->kv_heads == 0 || layer->kv_heads == heads);
            heads = layer->kv_heads != 0 ? layer->kv_heads : heads;
        }
        if (!uniform) {
            continue;
        }
        trial->src_form = trial_chance(trial, 50) ? PAGES_LEGACY : PAGES_PARTITIONED;
        trial->dst_form = trial->src_form == PAGES_LEGACY && trial_chance(trial, 50)
                              ? PAGES_PARTITIONED
                              : PAGES_LEGACY;
        try_pair(trial);
        done++;
    }
    assert_true(met.refused < met.pairs / 20 + 5);
    free(trial);
}

/* ---- one fact changed ----------------------------------------------------------------------- */

enum { CHANGES = 16 };

/* Changes one fact of the reader's model; false when the model has no such fact. */
static bool change_fact(struct trial *trial, uint32_t which)
{
    struct geo_make_model *model = &trial->dst_model;
    struct kvf_model_layer *layer = &model->layers[trial_pick(trial, model->model.layer_count)];

    switch (which) {
    case 0:
        layer->kv_heads = layer->kv_heads == 0 ? 2 : layer->kv_heads * 2;
        return true;
    case 1:
        layer->kv_heads /= 2;
        return layer->kv_heads != 0;
    case 2:
        layer->head_dim += 1;
        return layer->kv_heads > 0;
    case 3:
        layer->k_only = !layer->k_only;
        return layer->kv_heads > 0 && !model->model.mla;
    case 4:
        layer->window = layer->window == 0 ? 5 : 0;
        return layer->kv_heads > 0;
    case 5:
        layer->index_bytes += 1;
        return true;
    case 6:
        layer->index_bytes = 0;
        return true;
    case 7:
        model->model.nhd = !model->model.nhd;
        return true;
    case 8:
        model->model.tokens_per_block *= 2;
        return true;
    case 9:
        layer->owner = layer->owner == KVF_OWNER_DRAFT ? KVF_OWNER_TARGET : KVF_OWNER_DRAFT;
        return true;
    case 10:
        layer->state_units *= 2;
        return layer->state_units > 0;
    case 11:
        layer->state_unit_bytes *= 2;
        layer->state_units /= 2;
        return layer->state_units > 0;
    case 12:
        layer->section_bytes[0] += 24;
        return layer->section_count > 0;
    case 13:
        layer->scale_per = layer->scale_per == 0 ? layer->head_dim : 0;
        layer->scale_bits = 8;
        return layer->kv_heads > 0;
    case 14:
        for (uint32_t l = 0; l < model->model.layer_count; l++) {
            model->layers[l].kv_heads *= 2;
        }
        return !model->model.mla;
    case 15:
        if (layer->section_count < 2 || layer->section_bytes[0] == layer->section_bytes[1]) {
            return false;
        }
        layer->section_bytes[0] += layer->section_bytes[1];
        layer->section_bytes[1] = layer->section_bytes[0] - layer->section_bytes[1];
        layer->section_bytes[0] -= layer->section_bytes[1];
        return true;
    default:
        return false;
    }
}

static void a_peer_with_one_fact_changed_is_refused_or_exact(void **state)
{
    struct trial *trial = calloc(1, sizeof(*trial));
    uint32_t done = 0;

    (void)state;
    memset(&met, 0, sizeof(met));
    for (uint32_t i = 0; done < pairs_wanted(); i++) {
        trial->random = seed_of(2, i);
        trial_make(trial);
        trial->may_refuse = true;
        if (change_fact(trial, i % CHANGES) &&
            trial_is_legal(&trial->dst_model, &trial->dst_grid, PAGES_PARTITIONED)) {
            try_pair(trial);
            done++;
        }
    }
    print_message("pairs %" PRIu64 ", ranks that refused %" PRIu64 "\n", met.pairs, met.refused);
    if (pairs_wanted() >= 1000) {
        assert_true(met.refused > 500 && met.bytes > 1000);
    }
    free(trial);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_arrives_once_and_nothing_else_changes),
        cmocka_unit_test(legacy_peers_of_uniform_models_are_exact),
        cmocka_unit_test(a_peer_with_one_fact_changed_is_refused_or_exact),
    };

    test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
