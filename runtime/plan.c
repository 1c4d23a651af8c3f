/*
 * plan.c - from the block lists of a request to counts and stripes (docs/geometry.md, sections 8.1,
 * 8.2 and 10). Allocates nothing; costs time per block and run, never per fragment.
 */
#include "plan.h"

#include <inttypes.h>
#include <string.h>

#include "geometry.h"
#include "plan_internal.h"

uint32_t plan_view_pairs(const struct plan_template *template)
{
    return template->pair_count;
}

const struct plan_view_pair *plan_view_pair(const struct plan_template *template, uint32_t index)
{
    KVF_REQUIRE(index < template->pair_count);
    return &template->pairs[index].view;
}

bool plan_elected(const struct plan_template *template)
{
    return template->class_count > 0;
}

uint32_t plan_lists_count(const struct plan_template *template)
{
    return template->lists_count;
}

uint32_t plan_stripes_max(const struct plan_template *template)
{
    return template->stripes_max;
}

uint32_t plan_pairs_max(const struct plan_template *template, uint32_t blocks)
{
    uint64_t pairs = 0;

    for (uint32_t l = 0; l < template->lists_count; l++) {
        pairs += template->lists[l].is_state ? 1 : blocks;
    }
    return pairs < UINT32_MAX ? (uint32_t)pairs : UINT32_MAX;
}

uint32_t plan_blocks(uint32_t prompt_tokens, uint32_t tokens_per_block)
{
    return prompt_tokens / tokens_per_block + (prompt_tokens % tokens_per_block != 0);
}

uint32_t plan_stale(uint32_t prompt_tokens, uint32_t window, uint32_t tokens_per_block)
{
    if (window == KVF_WINDOW_NONE || (uint64_t)prompt_tokens + 1 <= window) {
        return 0;
    }
    return (uint32_t)(((uint64_t)prompt_tokens + 1 - window) / tokens_per_block);
}

uint32_t plan_first_ordinal(uint32_t prompt_tokens, uint32_t cached_tokens, uint32_t window,
                            uint32_t tokens_per_block)
{
    uint32_t blocks = plan_blocks(prompt_tokens, tokens_per_block);
    uint32_t stale = plan_stale(prompt_tokens, window, tokens_per_block);
    uint32_t cached = cached_tokens / tokens_per_block;
    uint32_t first = stale > cached ? stale : cached;

    return first < blocks ? first : blocks;
}

struct plan_piece plan_whole(uint32_t prompt_tokens)
{
    return (struct plan_piece){
        .token_end = prompt_tokens, .layer_end = PLAN_LAYERS_ALL, .last = true};
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint32_t plan_moved(const struct plan_template *template, const struct plan_lists *lists,
                    const struct plan_request *request, const struct plan_piece *piece,
                    uint32_t *first_out)
{
    const struct kvf_block_list *dst = &request->dst[lists->dst_group];
    uint32_t tokens = template->tokens_per_block;
    uint64_t first = dst->first;
    uint64_t end = first + dst->count;

    *first_out = 0;
    if (lists->is_state) {
        return piece->last && dst->count > 0 ? 1 : 0;
    }
    first = max_u64(first, piece->token_first / tokens);
    first = max_u64(first, plan_stale(request->prompt_tokens, lists->window, tokens));
    end = min_u64(end, plan_blocks(piece->token_end, tokens));
    end = min_u64(end, plan_blocks(request->prompt_tokens, tokens));
    *first_out = (uint32_t)first;
    return end > first ? (uint32_t)(end - first) : 0;
}

/* ---- refusals per request ------------------------------------------------------------------- */

/* Slots that every pool of a group has. */
static uint32_t group_slots(const struct geo_record *record, const struct kvf_group *group)
{
    uint32_t slots = UINT32_MAX;

    for (uint32_t v = 0; v < group->view_count; v++) {
        uint32_t here = record->pools[group->views[v].pool].slots;

        slots = here < slots ? here : slots;
    }
    return group->view_count == 0 ? 0 : slots;
}

uint32_t plan_check_words(const struct geo_record *record)
{
    uint32_t words = 0;

    for (uint32_t g = 0; g < record->layout.group_count; g++) {
        uint32_t slots = group_slots(record, &record->layout.groups[g]);
        uint32_t here = slots / 64 + (slots % 64 != 0);

        words = here > words ? here : words;
    }
    return words;
}

/* A slot that the list names again; false: none. Clears what it marked. */
static bool first_twice(const struct kvf_block_list *list, uint64_t *bitmap, uint32_t *slot_out)
{
    uint32_t marked = 0;

    for (; marked < list->count; marked++) {
        uint32_t slot = list->slots[marked];
        uint64_t bit = 1ull << slot % 64;

        if (bitmap[slot / 64] & bit) {
            *slot_out = slot;
            break;
        }
        bitmap[slot / 64] |= bit;
    }
    for (uint32_t i = 0; i < marked; i++) {
        bitmap[list->slots[i] / 64] = 0;
    }
    return marked < list->count;
}

/* Of a list longer than the bitmap of its group: marks all of it and counts the marks. */
static bool marks_are_fewer(const struct kvf_block_list *list, uint32_t words, uint64_t *bitmap)
{
    uint32_t marks = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        bitmap[list->slots[i] / 64] |= 1ull << list->slots[i] % 64;
    }
    for (uint32_t w = 0; w < words; w++) {
        marks += (uint32_t)__builtin_popcountll(bitmap[w]);
    }
    memset(bitmap, 0, words * sizeof(*bitmap));
    return marks < list->count;
}

/* The bitmap is all zero before and after. */
static bool named_twice(const struct kvf_block_list *list, uint32_t slots, uint64_t *bitmap,
                        uint32_t *slot_out)
{
    uint32_t words = slots / 64 + (slots % 64 != 0);

    if (list->count > words && !marks_are_fewer(list, words, bitmap)) {
        return false;
    }
    return first_twice(list, bitmap, slot_out);
}

/* A loop without an exit, which compilers make wide. */
static bool all_below(const uint32_t *slots, uint32_t count, uint32_t end)
{
    uint32_t outside = 0;

    for (uint32_t i = 0; i < count; i++) {
        outside |= slots[i] >= end;
    }
    return outside == 0;
}

static enum kvf_status check_list(const struct geo_record *record, uint32_t g,
                                  const struct kvf_block_list *list, uint64_t *bitmap,
                                  struct geo_text *text_out)
{
    const struct kvf_group *group = &record->layout.groups[g];
    uint32_t slots = group_slots(record, group);
    uint32_t twice = 0;
    bool fine;

    if (list->count > 0 && list->slots == NULL) {
        geo_text_set(text_out, "%s/%u group %u: %u blocks, and no slots", record->instance_name,
                     record->rank, g, list->count);
        return KVF_E_INVAL;
    }
    if (list->count > UINT32_MAX - list->first) {
        geo_text_set(text_out, "%s/%u group %u: %u blocks from %u are more than can be counted",
                     record->instance_name, record->rank, g, list->count, list->first);
        return KVF_E_REQ_PIECE;
    }
    fine = all_below(list->slots, list->count, slots);
    for (uint32_t i = 0; i < list->count && !fine; i++) {
        if (list->slots[i] >= slots) {
            geo_text_set(text_out,
                         "%s/%u group %u: slot %" PRId32 " of block %" PRIu64
                         " is outside its pool of %u",
                         record->instance_name, record->rank, g, (int32_t)list->slots[i],
                         (uint64_t)list->first + i, slots);
            return KVF_E_REQ_SLOT;
        }
    }
    if (bitmap != NULL && named_twice(list, slots, bitmap, &twice)) {
        geo_text_set(text_out, "%s/%u group %u: slot %u is named twice", record->instance_name,
                     record->rank, g, twice);
        return KVF_E_REQ_SLOT_TWICE;
    }
    if (group->group_class == KVF_GROUP_STATE && (list->count > 1 || list->first != 0)) {
        geo_text_set(text_out,
                     "%s/%u group %u: %u state slots from %u, one slot or none belong there",
                     record->instance_name, record->rank, g, list->count, list->first);
        return KVF_E_REQ_STATE;
    }
    return KVF_OK;
}

enum kvf_status plan_check_lists(const struct geo_record *record,
                                 const struct kvf_block_list *lists, uint32_t list_count,
                                 uint64_t *bitmap, struct geo_text *text_out)
{
    if (list_count != record->layout.group_count) {
        geo_text_set(text_out, "%s/%u: %u block lists, its cache has %u layer groups",
                     record->instance_name, record->rank, list_count, record->layout.group_count);
        return KVF_E_REQ_GROUPS;
    }
    for (uint32_t g = 0; g < list_count; g++) {
        enum kvf_status status = check_list(record, g, &lists[g], bitmap, text_out);

        if (status != KVF_OK) {
            return status;
        }
    }
    return KVF_OK;
}

enum kvf_status plan_check_cover(const struct geo_record *reader,
                                 const struct kvf_block_list *lists, uint32_t prompt_tokens,
                                 uint32_t cached_tokens, struct geo_text *text_out)
{
    uint32_t tokens = reader->layout.tokens_per_block;

    for (uint32_t g = 0; g < reader->layout.group_count; g++) {
        const struct kvf_group *group = &reader->layout.groups[g];
        uint32_t first = plan_first_ordinal(prompt_tokens, cached_tokens, group->window, tokens);
        uint32_t end = plan_blocks(prompt_tokens, tokens);

        if (group->group_class == KVF_GROUP_STATE) {
            if (lists[g].count == 0 && group->view_count > 0) {
                geo_text_set(text_out, "%s/%u group %u: no state slot", reader->instance_name,
                             reader->rank, g);
                return KVF_E_REQ_STATE;
            }
            continue;
        }
        if (first < end &&
            (lists[g].first > first || (uint64_t)lists[g].first + lists[g].count < (uint64_t)end)) {
            geo_text_set(text_out,
                         "%s/%u group %u: blocks %u to %" PRIu64
                         " do not take in blocks %u to %u, which %u tokens need",
                         reader->instance_name, reader->rank, g, lists[g].first,
                         (uint64_t)lists[g].first + lists[g].count, first, end, prompt_tokens);
            return KVF_E_REQ_PIECE;
        }
    }
    return KVF_OK;
}

static enum kvf_status check_piece(const struct plan_template *template,
                                   const struct plan_request *request,
                                   const struct plan_piece *piece, struct geo_text *text_out)
{
    uint32_t tokens = template->tokens_per_block;

    if (piece->token_first % tokens != 0 || piece->token_first >= piece->token_end ||
        piece->token_end > request->prompt_tokens || piece->layer_first >= piece->layer_end ||
        (piece->token_end % tokens != 0 && piece->token_end != request->prompt_tokens)) {
        geo_text_set(
            text_out,
            "tokens %u to %u, layers %u to %u are no piece of a prompt of %u in blocks of %u",
            piece->token_first, piece->token_end, piece->layer_first, piece->layer_end,
            request->prompt_tokens, tokens);
        return KVF_E_REQ_PIECE;
    }
    return KVF_OK;
}

static enum kvf_status check_held(const struct plan_template *template,
                                  const struct plan_lists *lists,
                                  const struct plan_request *request,
                                  const struct plan_piece *piece, struct geo_text *text_out)
{
    const struct kvf_block_list *src = &request->src[lists->src_group];
    uint32_t first;
    uint32_t count = plan_moved(template, lists, request, piece, &first);

    if (lists->is_state || count == 0) {
        return KVF_OK;
    }
    if (src->first > first || (uint64_t)src->first + src->count < (uint64_t)first + count) {
        uint64_t end = (uint64_t)src->first + src->count;

        geo_text_set(
            text_out,
            "block %" PRIu64 " of group %u is wanted but not held (held: %u to %" PRIu64 ")",
            src->first > first ? first : max_u64(first, end), lists->src_group, src->first, end);
        return KVF_E_REQ_BLOCKS;
    }
    return KVF_OK;
}

/* What goes with the last piece: state slots and aux slots. */
static enum kvf_status check_last(const struct plan_template *template,
                                  const struct plan_request *request, struct geo_text *text_out)
{
    for (uint32_t l = 0; l < template->lists_count; l++) {
        const struct plan_lists *lists = &template->lists[l];

        if (lists->is_state && (request->src[lists->src_group].count == 0 ||
                                request->dst[lists->dst_group].count == 0)) {
            geo_text_set(text_out, "no state slot at the %s (group %u)",
                         request->src[lists->src_group].count == 0 ? "sender" : "receiver",
                         request->src[lists->src_group].count == 0 ? lists->src_group
                                                                   : lists->dst_group);
            return KVF_E_REQ_STATE;
        }
    }
    for (uint32_t a = 0; template->aux_elected && a < template->aux_count; a++) {
        const struct geo_aux *src = &template->src_aux[a];
        const struct geo_aux *dst = &template->dst_aux[a];

        if (src->item_bytes > 0 && src->slots > 0 && dst->slots > 0 &&
            (request->src_aux_slot >= src->slots || request->dst_aux_slot >= dst->slots)) {
            geo_text_set(text_out, "auxiliary buffer %u: no slot at the %s", a,
                         request->src_aux_slot >= src->slots ? "sender" : "receiver");
            return KVF_E_REQ_AUX;
        }
    }
    return KVF_OK;
}

enum kvf_status plan_check_request(const struct plan_template *template,
                                   const struct plan_request *request,
                                   const struct plan_piece *piece, struct geo_text *text_out)
{
    enum kvf_status status;

    if (request->src_count != template->src_groups || request->dst_count != template->dst_groups) {
        geo_text_set(text_out, "%u and %u block lists, the caches have %u and %u layer groups",
                     request->src_count, request->dst_count, template->src_groups,
                     template->dst_groups);
        return KVF_E_REQ_GROUPS;
    }
    status = check_piece(template, request, piece, text_out);
    for (uint32_t l = 0; status == KVF_OK && l < template->lists_count; l++) {
        status = check_held(template, &template->lists[l], request, piece, text_out);
    }
    if (status == KVF_OK && piece->last) {
        status = check_last(template, request, text_out);
    }
    return status;
}

/* ---- counting and filling ------------------------------------------------------------------- */

/* Indices of the pair's layers inside the piece's range; a state goes whole. */
static void layer_range(const struct plan_view_pair *view, const struct plan_piece *piece,
                        uint32_t *first_out, uint32_t *end_out)
{
    uint32_t first = 0;
    uint32_t end = view->layer_count;

    while (!view->is_state && first < end && view->layers[first] < piece->layer_first) {
        first++;
    }
    while (!view->is_state && end > first && view->layers[end - 1] >= piece->layer_end) {
        end--;
    }
    *first_out = first;
    *end_out = end;
}

uint32_t plan_clip_class(const struct plan_template *template, const struct plan_pair *pair,
                         const struct plan_class *class, const struct plan_piece *piece,
                         struct plan_clip clips_out[PLAN_CLIPS_MAX])
{
    struct plan_clip whole = {.base_first = class->base_first, .piece_bytes = class->piece_bytes};
    uint64_t region = pair->view.src_region_bytes;
    uint32_t first, end;
    uint32_t count = 0;

    layer_range(&pair->view, piece, &first, &end);
    if (first == 0 && end == pair->view.layer_count) {
        whole.base_count = class->base_count;
        clips_out[0] = whole;
        return 1;
    }
    /* At most one run is cut at the front and one at the end: the others are in or out. */
    for (uint32_t b = class->base_first; b < class->base_first + class->base_count; b++) {
        uint32_t run_first = template->base_layers[b];
        uint32_t run_end = run_first + class->run_layers;
        uint32_t from = run_first > first ? run_first : first;
        uint32_t to = run_end < end ? run_end : end;

        if (from >= to) {
            continue;
        }
        if (from == run_first && to == run_end) {
            whole.base_first = whole.base_count == 0 ? b : whole.base_first;
            whole.base_count++;
            continue;
        }
        clips_out[count++] = (struct plan_clip){.base_first = b,
                                                .base_count = 1,
                                                .shift_bytes = (from - run_first) * region,
                                                .piece_bytes = (to - from) * region};
    }
    if (whole.base_count > 0) {
        clips_out[count++] = whole;
    }
    return count;
}

static void add_totals(struct plan_totals *totals, uint64_t fragments, uint64_t fragment_bytes)
{
    totals->fragments += fragments;
    totals->bytes += fragments * fragment_bytes;
    if (fragments > 0) {
        totals->largest_bytes = max_u64(totals->largest_bytes, fragment_bytes);
    }
}

static void count_classes(const struct plan_template *template, const struct plan_pair *pair,
                          const struct plan_piece *piece, uint32_t blocks,
                          struct plan_totals *totals)
{
    for (uint32_t c = 0; c < pair->class_count; c++) {
        const struct plan_class *class = &template->classes[pair->class_first + c];
        struct plan_clip clips[PLAN_CLIPS_MAX];
        uint32_t count = plan_clip_class(template, pair, class, piece, clips);

        for (uint32_t i = 0; i < count; i++) {
            add_totals(totals, (uint64_t)clips[i].base_count * class->piece_count * blocks,
                       clips[i].piece_bytes);
        }
    }
}

void plan_count(const struct plan_template *template, const struct plan_request *request,
                const struct plan_piece *piece, struct plan_totals *totals_out)
{
    struct plan_totals totals = {0};

    for (uint32_t l = 0; l < template->lists_count; l++) {
        const struct plan_lists *lists = &template->lists[l];
        uint32_t first;
        uint32_t blocks = plan_moved(template, lists, request, piece, &first);

        if (lists->order_count == 0) {
            continue;
        }
        totals.blocks += blocks;
        for (uint32_t i = 0; i < lists->order_count; i++) {
            uint32_t pair = template->pair_order[lists->order_first + i];

            count_classes(template, &template->pairs[pair], piece, blocks, &totals);
        }
    }
    *totals_out = totals;
}

void plan_count_pair(const struct plan_template *template, uint32_t index,
                     const struct plan_request *request, const struct plan_piece *piece,
                     struct plan_totals *totals_out)
{
    const struct plan_pair *pair = template->pairs + index;
    struct plan_totals totals = {0};
    uint32_t first;

    KVF_REQUIRE(index < template->pair_count);
    totals.blocks =
        plan_moved(template, &template->lists[pair->view.lists], request, piece, &first);
    if (!pair->view.elected) {
        totals.blocks = 0;
    }
    count_classes(template, pair, piece, totals.blocks, &totals);
    *totals_out = totals;
}

/* A write being made. */
struct filling {
    const struct plan_template *template;
    const struct plan_piece *piece;
    const struct plan_addresses *addresses;
    const struct plan_scratch *scratch;
    struct plan_filled filled;
};

/* The stripes of one elected pair over the slot pairs just made. */
static enum kvf_status fill_pair(struct filling *filling, const struct plan_pair *pair,
                                 const struct stripe_pair *slots, uint32_t blocks)
{
    const struct plan_template *template = filling->template;

    for (uint32_t c = 0; c < pair->class_count; c++) {
        const struct plan_class *class = &template->classes[pair->class_first + c];
        struct plan_clip clips[PLAN_CLIPS_MAX];
        uint32_t count = plan_clip_class(template, pair, class, filling->piece, clips);

        if (count > filling->scratch->stripes_max - filling->filled.stripe_count) {
            return KVF_E_TOO_LARGE;
        }
        for (uint32_t i = 0; i < count; i++) {
            filling->scratch->stripes[filling->filled.stripe_count++] = (struct stripe){
                .src = filling->addresses->src[pair->view.src_pool] + clips[i].shift_bytes,
                .dst = filling->addresses->dst[pair->view.dst_pool] + clips[i].shift_bytes,
                .bases = &template->bases[clips[i].base_first],
                .pairs = slots,
                .base_count = clips[i].base_count,
                .pair_count = blocks,
                .src_stride = pair->src_stride,
                .dst_stride = pair->dst_stride,
                .piece_count = class->piece_count,
                .piece_bytes = clips[i].piece_bytes,
                .src_piece_stride = class->src_piece_stride,
                .dst_piece_stride = class->dst_piece_stride};
            add_totals(&filling->filled.totals,
                       (uint64_t)clips[i].base_count * class->piece_count * blocks,
                       clips[i].piece_bytes);
        }
    }
    return KVF_OK;
}

static enum kvf_status fill_lists(struct filling *filling, const struct plan_lists *lists,
                                  const struct plan_request *request)
{
    const struct kvf_block_list *src = &request->src[lists->src_group];
    const struct kvf_block_list *dst = &request->dst[lists->dst_group];
    struct stripe_pair *pairs = filling->scratch->pairs + filling->filled.pair_count;
    uint32_t first;
    uint32_t blocks = plan_moved(filling->template, lists, request, filling->piece, &first);
    const uint32_t *src_slots;
    const uint32_t *dst_slots;

    if (blocks == 0) {
        return KVF_OK;
    }
    if (first < src->first || (uint64_t)first + blocks > (uint64_t)src->first + src->count) {
        return KVF_E_REQ_BLOCKS;
    }
    if (blocks > filling->scratch->pairs_max - filling->filled.pair_count) {
        return KVF_E_TOO_LARGE;
    }
    src_slots = src->slots + (first - src->first);
    dst_slots = dst->slots + (first - dst->first);
    for (uint32_t b = 0; b < blocks; b++) {
        pairs[b] = (struct stripe_pair){.src = src_slots[b], .dst = dst_slots[b]};
    }
    filling->filled.pair_count += blocks;
    filling->filled.totals.blocks += blocks;
    for (uint32_t i = 0; i < lists->order_count; i++) {
        uint32_t pair = filling->template->pair_order[lists->order_first + i];
        enum kvf_status status = fill_pair(filling, &filling->template->pairs[pair], pairs, blocks);

        if (status != KVF_OK) {
            return status;
        }
    }
    return KVF_OK;
}

enum kvf_status plan_fill(const struct plan_template *template, const struct plan_request *request,
                          const struct plan_piece *piece, const struct plan_addresses *addresses,
                          const struct plan_scratch *scratch, struct plan_filled *filled_out)
{
    struct filling filling = {
        .template = template, .piece = piece, .addresses = addresses, .scratch = scratch};

    KVF_REQUIRE(request->src_count == template->src_groups);
    KVF_REQUIRE(request->dst_count == template->dst_groups);
    for (uint32_t l = 0; l < template->lists_count; l++) {
        enum kvf_status status = KVF_OK;

        if (template->lists[l].order_count > 0) {
            status = fill_lists(&filling, &template->lists[l], request);
        }
        if (status != KVF_OK) {
            return status;
        }
    }
    *filled_out = filling.filled;
    return KVF_OK;
}
