/*
 * plan_gate.c - what is said about a write: its fragments one by one, expected bytes, aux, and the
 * two bounce gates (docs/geometry.md, sections 9 to 11). May not do I/O.
 */
#include "geometry.h"
#include "plan.h"
#include "plan_internal.h"

void plan_walk_init(struct plan_walk *walk, const struct stripe *stripes, uint32_t stripe_count)
{
    *walk = (struct plan_walk){.stripes = stripes, .stripe_count = stripe_count};
}

bool plan_walk_next(struct plan_walk *walk, struct plan_fragment *fragment_out)
{
    const struct stripe *stripe = &walk->stripes[walk->stripe];

    if (walk->stripe == walk->stripe_count) {
        return false;
    }
    *fragment_out =
        (struct plan_fragment){.src = stripe->src + stripe->bases[walk->base].src +
                                      stripe->pairs[walk->pair].src * stripe->src_stride +
                                      walk->piece * stripe->src_piece_stride,
                               .dst = stripe->dst + stripe->bases[walk->base].dst +
                                      stripe->pairs[walk->pair].dst * stripe->dst_stride +
                                      walk->piece * stripe->dst_piece_stride,
                               .bytes = stripe->piece_bytes};
    if (++walk->piece < stripe->piece_count) {
        return true;
    }
    walk->piece = 0;
    if (++walk->base < stripe->base_count) {
        return true;
    }
    walk->base = 0;
    if (++walk->pair < stripe->pair_count) {
        return true;
    }
    walk->pair = 0;
    walk->stripe++;
    return true;
}

uint64_t plan_expected_bytes(const struct geo_record *reader, const struct plan_request *request)
{
    const struct kvf_layout *layout = &reader->layout;
    struct plan_piece piece = plan_whole(request->prompt_tokens);
    /* Enough of a template for plan_moved(). */
    struct plan_template facts = {.tokens_per_block = layout->tokens_per_block};
    uint64_t bytes = 0;

    for (uint32_t g = 0; g < layout->group_count; g++) {
        const struct kvf_group *group = &layout->groups[g];
        struct plan_lists lists = {.dst_group = g,
                                   .window = group->window,
                                   .is_state = group->group_class == KVF_GROUP_STATE};
        uint32_t first;
        uint64_t blocks = plan_moved(&facts, &lists, request, &piece, &first);

        for (uint32_t v = 0; v < group->view_count; v++) {
            const struct kvf_view *view = &group->views[v];

            bytes += blocks * (view->entry_count / view->role_count) * geo_view_region(view);
        }
    }
    return bytes;
}

/* ---- aux ------------------------------------------------------------------------------------ */

bool plan_aux_elected(const struct plan_template *template)
{
    return template->aux_elected;
}

uint32_t plan_aux_count(const struct plan_template *template)
{
    return template->aux_count;
}

bool plan_aux_fragment(const struct plan_template *template, const struct plan_request *request,
                       uint32_t index, struct plan_fragment *fragment_out)
{
    const struct geo_aux *src = template->src_aux + index;
    const struct geo_aux *dst = template->dst_aux + index;

    KVF_REQUIRE(index < template->aux_count);
    if (!template->aux_elected || src->item_bytes == 0 || request->src_aux_slot >= src->slots ||
        request->dst_aux_slot >= dst->slots) {
        return false;
    }
    *fragment_out =
        (struct plan_fragment){.src = src->base + (uint64_t)src->item_bytes * request->src_aux_slot,
                               .dst = dst->base + (uint64_t)dst->item_bytes * request->dst_aux_slot,
                               .bytes = src->item_bytes};
    return true;
}

/* ---- gate of one write ---------------------------------------------------------------------- */

enum plan_bounce plan_bounce_handshake(const struct geo_bounce *writer,
                                       const struct geo_bounce *reader)
{
    if (geo_bounce_chunk(writer) == 0 || geo_bounce_chunk(reader) == 0) {
        return PLAN_BOUNCE_OFF;
    }
    if (writer->wire_version != reader->wire_version) {
        return PLAN_BOUNCE_VERSION;
    }
    if (geo_bounce_chunk(writer) != geo_bounce_chunk(reader)) {
        return PLAN_BOUNCE_CHUNK;
    }
    if (writer->request_timeout_ms != reader->request_timeout_ms) {
        return PLAN_BOUNCE_TIMEOUT;
    }
    if (writer->memory != reader->memory) {
        return PLAN_BOUNCE_MEMORY;
    }
    return PLAN_BOUNCE_OK;
}

enum plan_bounce plan_bounce_gate(const struct plan_template *template,
                                  const struct plan_totals *totals)
{
    const struct geo_bounce *own = &template->src_bounce;
    enum plan_bounce verdict = plan_bounce_handshake(own, &template->dst_bounce);

    if (verdict != PLAN_BOUNCE_OK) {
        return verdict;
    }
    if (!template->memory_fits) {
        return PLAN_BOUNCE_MEMORY;
    }
    if (totals->fragments == 0) {
        return PLAN_BOUNCE_EMPTY;
    }
    if (totals->fragments < own->min_descriptor_count) {
        return PLAN_BOUNCE_COUNT;
    }
    if (totals->largest_bytes > geo_bounce_chunk(own)) {
        return PLAN_BOUNCE_FRAGMENT_SIZE;
    }
    if (totals->bytes / totals->fragments > own->max_average_bytes) {
        return PLAN_BOUNCE_AVERAGE;
    }
    return PLAN_BOUNCE_OK;
}

const char *plan_bounce_name(enum plan_bounce verdict)
{
    switch (verdict) {
    case PLAN_BOUNCE_OK:
        return "ok";
    case PLAN_BOUNCE_OFF:
        return "off";
    case PLAN_BOUNCE_VERSION:
        return "version";
    case PLAN_BOUNCE_CHUNK:
        return "chunk";
    case PLAN_BOUNCE_TIMEOUT:
        return "timeout";
    case PLAN_BOUNCE_MEMORY:
        return "memory";
    case PLAN_BOUNCE_EMPTY:
        return "empty";
    case PLAN_BOUNCE_COUNT:
        return "count";
    case PLAN_BOUNCE_FRAGMENT_SIZE:
        return "fragment-size";
    case PLAN_BOUNCE_AVERAGE:
        return "average";
    }
    return "?";
}

/* ---- gate of the equal split ---------------------------------------------------------------- */

void plan_split_add(struct plan_split_facts *facts, const struct plan_template *template)
{
    facts->cp = facts->cp || template->cp;
    facts->pp = facts->pp || template->src_pp;
    facts->dup = facts->dup || template->rank_dup;
    facts->view_dup = facts->view_dup || template->view_dup;
    facts->replicated = facts->replicated || template->replicated;
}

enum plan_split plan_split_gate(const struct plan_split_facts *facts)
{
    if (facts->finals == 1) {
        return PLAN_SPLIT_SINGLE;
    }
    if (facts->finals == 0) {
        return PLAN_SPLIT_EMPTY;
    }
    if (!facts->group_known) {
        return PLAN_SPLIT_DP_UNKNOWN;
    }
    if (facts->cp) {
        return PLAN_SPLIT_CP;
    }
    if (facts->pp) {
        return PLAN_SPLIT_PP;
    }
    if (facts->dup) {
        return PLAN_SPLIT_DUP;
    }
    if (facts->view_dup) {
        return PLAN_SPLIT_VIEW_DUP;
    }
    return facts->replicated ? PLAN_SPLIT_REPLICATED : PLAN_SPLIT_EQUAL;
}

bool plan_split_allowed(enum plan_split verdict)
{
    return verdict == PLAN_SPLIT_SINGLE || verdict == PLAN_SPLIT_EQUAL;
}

const char *plan_split_name(enum plan_split verdict)
{
    switch (verdict) {
    case PLAN_SPLIT_SINGLE:
        return "single";
    case PLAN_SPLIT_EMPTY:
        return "empty";
    case PLAN_SPLIT_DP_UNKNOWN:
        return "dp-unknown";
    case PLAN_SPLIT_CP:
        return "cp";
    case PLAN_SPLIT_PP:
        return "pp";
    case PLAN_SPLIT_DUP:
        return "dup";
    case PLAN_SPLIT_VIEW_DUP:
        return "view-dup";
    case PLAN_SPLIT_REPLICATED:
        return "replicated";
    case PLAN_SPLIT_EQUAL:
        return "equal";
    }
    return "?";
}

/* ---- packing -------------------------------------------------------------------------------- */

void plan_packer_init(struct plan_packer *packer, uint64_t chunk_bytes)
{
    *packer =
        (struct plan_packer){.chunk_bytes = chunk_bytes,
                             .entries_max = chunk_bytes / 256 > 1024 ? chunk_bytes / 256 : 1024};
}

void plan_packer_add(struct plan_packer *packer, const struct plan_fragment *fragment)
{
    const struct plan_fragment *previous = &packer->previous;
    uint64_t at = (packer->fill_bytes + PLAN_PACK_ALIGN - 1) / PLAN_PACK_ALIGN * PLAN_PACK_ALIGN;
    bool joins = packer->chunks > 0 && at == packer->fill_bytes &&
                 fragment->src == previous->src + previous->bytes &&
                 fragment->dst == previous->dst + previous->bytes;
    bool fits = packer->chunks > 0 && at <= packer->chunk_bytes &&
                fragment->bytes <= packer->chunk_bytes - at &&
                (joins || packer->entries < packer->entries_max);

    if (!fits) {
        packer->chunks++;
        packer->packed_bytes += fragment->bytes;
        packer->fill_bytes = fragment->bytes;
        packer->entries = 1;
    } else {
        packer->packed_bytes += at + fragment->bytes - packer->fill_bytes;
        packer->fill_bytes = at + fragment->bytes;
        packer->entries += joins ? 0 : 1;
    }
    packer->previous = *fragment;
}
