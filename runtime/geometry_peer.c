/*
 * geometry_peer.c - whether two ranks fit each other: the 26 checks of docs/geometry.md, section 7,
 * in their order. May not do I/O.
 */
#include <inttypes.h>
#include <stdio.h>

#include "geometry_internal.h"

/* The two records, by direction and by who checks. */
struct meeting {
    const struct geo_record *sender;
    const struct geo_record *receiver;
    const struct geo_record *local;
    const struct geo_record *peer;
    char peer_name[GEO_NAME_MAX + 16]; /* "gen/3" */
    struct geo_text *text_out;
};

/* A pair of matched views, by direction and by who checks. */
struct view_pair {
    const struct kvf_view *sender;
    const struct kvf_view *receiver;
    const struct kvf_view *local;
    const struct kvf_view *peer;
    uint32_t local_window;
    uint32_t peer_window;
    struct geo_view_name name; /* the local view */
};

static const char *attention_name(const struct geo_record *record)
{
    return record->layout.mla ? "latents (MLA)" : "keys and values";
}

static uint64_t target_layers(const struct geo_record *record)
{
    uint64_t layers = 0;

    for (uint32_t p = 0; p < record->place.pp_size; p++) {
        layers += record->place.layers_per_pp[p];
    }
    return layers - record->layout.draft_layers;
}

/* Checks 1 to 3. */
static enum kvf_status check_kind(const struct meeting *m)
{
    if (m->local->wire_version != m->peer->wire_version) {
        geo_text_set(m->text_out,
                     "peer %s speaks geometry version %u, this rank %u; upgrade both instances "
                     "together",
                     m->peer_name, m->peer->wire_version, m->local->wire_version);
        return KVF_E_WIRE_VERSION;
    }
    if (m->local->layout.mla != m->peer->layout.mla) {
        geo_text_set(m->text_out, "peer %s caches %s, this rank %s: the models differ",
                     m->peer_name, attention_name(m->peer), attention_name(m->local));
        return KVF_E_ATTENTION_KIND;
    }
    if (m->local->place.cp_size != 1 || m->peer->place.cp_size != 1) {
        geo_text_set(m->text_out,
                     "context parallelism is not supported (local cp %u, peer %s cp %u)",
                     m->local->place.cp_size, m->peer_name, m->peer->place.cp_size);
        return KVF_E_CP;
    }
    return KVF_OK;
}

/* Checks 4 to 6. */
static enum kvf_status check_elements(const struct meeting *m)
{
    const struct kvf_layout *local = &m->local->layout;
    const struct kvf_layout *peer = &m->peer->layout;

    if (local->dtype != peer->dtype || local->elem_bits != peer->elem_bits) {
        geo_text_set(m->text_out,
                     "cache element differs: local %s of %u bits, peer %s %s of %u bits",
                     geo_dtype_name(local->dtype), local->elem_bits, m->peer_name,
                     geo_dtype_name(peer->dtype), peer->elem_bits);
        return KVF_E_ELEM;
    }
    if (local->tokens_per_block != peer->tokens_per_block) {
        geo_text_set(m->text_out, "tokens per block differ: local %u, peer %s %u",
                     local->tokens_per_block, m->peer_name, peer->tokens_per_block);
        return KVF_E_BLOCK;
    }
    if (local->head_dim != peer->head_dim) {
        geo_text_set(m->text_out, "head size differs: local %u, peer %s %u", local->head_dim,
                     m->peer_name, peer->head_dim);
        return KVF_E_HEAD_DIM;
    }
    return KVF_OK;
}

/* Check 7, for one side. */
static enum kvf_status check_mla_heads(const struct geo_record *record, struct geo_text *text_out)
{
    for (uint32_t g = 0; record->layout.mla && g < record->layout.group_count; g++) {
        const struct kvf_group *group = &record->layout.groups[g];

        for (uint32_t v = 0; v < group->view_count; v++) {
            const struct kvf_view *view = &group->views[v];
            bool by_head = view->kind == KVF_VIEW_HND || view->kind == KVF_VIEW_NHD;
            uint32_t heads = geo_view_heads(record, view);

            if (view->owner == KVF_OWNER_TARGET && view->roles[0] == KVF_KEY && by_head &&
                heads != 1) {
                geo_text_set(text_out, "MLA needs one KV head per rank, %s/%u has %u",
                             record->instance_name, record->rank, heads);
                return KVF_E_MLA_HEADS;
            }
        }
    }
    return KVF_OK;
}

/* Checks 8 to 10. */
static enum kvf_status check_layers(const struct meeting *m)
{
    uint64_t local = target_layers(m->local);
    uint64_t peer = target_layers(m->peer);
    uint32_t local_width = geo_group_width(&m->local->place);
    uint32_t peer_width = geo_group_width(&m->peer->place);

    if (local != peer) {
        geo_text_set(m->text_out, "target layers differ: local %" PRIu64 ", peer %s %" PRIu64,
                     local, m->peer_name, peer);
        return KVF_E_LAYER_TOTAL;
    }
    if (m->local->layout.draft_layers != m->peer->layout.draft_layers) {
        geo_text_set(m->text_out,
                     "draft layers differ: local %u, peer %s %u; share the draft cache on both "
                     "instances or on neither",
                     m->local->layout.draft_layers, m->peer_name, m->peer->layout.draft_layers);
        return KVF_E_DRAFT_LAYERS;
    }
    if (local_width % peer_width != 0 && peer_width % local_width != 0) {
        geo_text_set(m->text_out,
                     "TP inside a dp group: local %u, peer %s %u; one must divide the other",
                     local_width, m->peer_name, peer_width);
        return KVF_E_TP_RATIO;
    }
    return KVF_OK;
}

/* Checks 11 to 15 for all views of one side. */
static enum kvf_status check_views(const struct geo_record *own, const struct geo_record *other,
                                   struct geo_text *text_out)
{
    for (uint32_t g = 0; g < own->layout.group_count; g++) {
        for (uint32_t v = 0; v < own->layout.groups[g].view_count; v++) {
            struct geo_partner partner;
            enum kvf_status status = geo_pair_view(own, g, v, other, &partner, text_out);

            if (status != KVF_OK) {
                return status;
            }
        }
    }
    return KVF_OK;
}

/* Checks 16 to 19, and the element part of 4. */
static enum kvf_status check_pair_kind(const struct meeting *m, const struct view_pair *pair)
{
    const struct kvf_view *local = pair->local;
    const struct kvf_view *peer = pair->peer;

    if (local->kind != peer->kind) {
        geo_text_set(m->text_out, "%s: layout %s, peer %s %s", pair->name.s,
                     geo_kind_name(local->kind), m->peer_name, geo_kind_name(peer->kind));
        return KVF_E_VIEW_KIND;
    }
    if (local->owner != peer->owner) {
        geo_text_set(m->text_out, "%s: local layers are %s-owned, peer %s's %s-owned", pair->name.s,
                     geo_owner_name(local->owner), m->peer_name, geo_owner_name(peer->owner));
        return KVF_E_VIEW_OWNER;
    }
    if (pair->local_window != pair->peer_window) {
        geo_text_set(m->text_out, "%s: sliding window %u, peer %s %u (0 = none)", pair->name.s,
                     pair->local_window, m->peer_name, pair->peer_window);
        return KVF_E_WINDOW;
    }
    if (local->kind == KVF_VIEW_REPLICATED && geo_view_region(local) != geo_view_region(peer)) {
        geo_text_set(m->text_out, "%s: %" PRIu64 " bytes a layer and block, peer %s %" PRIu64,
                     pair->name.s, geo_view_region(local), m->peer_name, geo_view_region(peer));
        return KVF_E_REPLICATED_BYTES;
    }
    if (local->dtype != KVF_DTYPE_NONE && peer->dtype != KVF_DTYPE_NONE &&
        local->dtype != peer->dtype) {
        geo_text_set(m->text_out, "%s: cache element differs: local %s, peer %s %s", pair->name.s,
                     geo_dtype_name(local->dtype), m->peer_name, geo_dtype_name(peer->dtype));
        return KVF_E_ELEM;
    }
    return KVF_OK;
}

/* The one H that a side can have, 0 when it is any divisor of its TP width. */
static uint64_t heads_total_of(const struct geo_record *record, const struct kvf_view *view)
{
    uint32_t heads = geo_view_heads(record, view);

    if (view->has_heads_total && view->heads_total > 0) {
        return view->heads_total;
    }
    return heads > 1 ? (uint64_t)heads * geo_group_width(&record->place) : 0;
}

static bool heads_can_meet(const struct meeting *m, const struct view_pair *pair)
{
    uint64_t sender = heads_total_of(m->sender, pair->sender);
    uint64_t receiver = heads_total_of(m->receiver, pair->receiver);

    if (sender != 0 && receiver != 0) {
        return sender == receiver;
    }
    if (sender != 0) {
        return geo_group_width(&m->receiver->place) % sender == 0;
    }
    return receiver == 0 || geo_group_width(&m->sender->place) % receiver == 0;
}

static bool head_slice_whole(const struct geo_record *record, const struct kvf_view *view)
{
    uint64_t parts = (uint64_t)view->role_count * geo_view_heads(record, view);

    if (view->kind == KVF_VIEW_NHD) {
        parts *= record->layout.tokens_per_block;
    }
    return geo_view_region(view) % parts == 0;
}

/* Checks 20 to 22. */
static enum kvf_status check_pair_heads(const struct meeting *m, const struct view_pair *pair)
{
    uint32_t local_heads = geo_view_heads(m->local, pair->local);
    uint32_t peer_heads = geo_view_heads(m->peer, pair->peer);
    uint64_t local_region = geo_view_region(pair->local);
    uint64_t peer_region = geo_view_region(pair->peer);

    if (!heads_can_meet(m, pair)) {
        geo_text_set(m->text_out, "%s: %u heads x tp %u (model %u), peer %s %u x tp %u (model %u)",
                     pair->name.s, local_heads, geo_group_width(&m->local->place),
                     pair->local->heads_total, m->peer_name, peer_heads,
                     geo_group_width(&m->peer->place), pair->peer->heads_total);
        return KVF_E_HEAD_TOTAL;
    }
    if (local_heads != peer_heads && (!head_slice_whole(m->sender, pair->sender) ||
                                      !head_slice_whole(m->receiver, pair->receiver))) {
        geo_text_set(m->text_out,
                     "%s: a slice of one head is not byte-aligned (%" PRIu64
                     " bytes for %u heads, peer %s %" PRIu64 " for %u)",
                     pair->name.s, local_region, local_heads, m->peer_name, peer_region,
                     peer_heads);
        return KVF_E_HEAD_ALIGN;
    }
    if (local_region * peer_heads != peer_region * local_heads) {
        geo_text_set(m->text_out, "%s: %" PRIu64 " bytes a head and block, peer %s %" PRIu64,
                     pair->name.s, local_region / local_heads, m->peer_name,
                     peer_region / peer_heads);
        return KVF_E_HEAD_BYTES;
    }
    return KVF_OK;
}

/* Checks 23 to 25. */
static enum kvf_status check_pair_state(const struct meeting *m, const struct view_pair *pair)
{
    const struct kvf_view *local = pair->local;
    const struct kvf_view *peer = pair->peer;
    uint64_t local_width = geo_group_width(&m->local->place);
    uint64_t peer_width = geo_group_width(&m->peer->place);
    uint32_t s = 0;

    if (geo_view_region(local) * local_width != geo_view_region(peer) * peer_width) {
        geo_text_set(m->text_out,
                     "%s: %" PRIu64 " x tp %u bytes of state, peer %s %" PRIu64 " x tp %u",
                     pair->name.s, geo_view_region(local), (uint32_t)local_width, m->peer_name,
                     geo_view_region(peer), (uint32_t)peer_width);
        return KVF_E_STATE_TOTAL;
    }
    if (local->kind == KVF_VIEW_UNITS && local->unit_bytes != peer->unit_bytes) {
        geo_text_set(m->text_out, "%s: state unit %" PRIu64 " bytes, peer %s %" PRIu64,
                     pair->name.s, local->unit_bytes, m->peer_name, peer->unit_bytes);
        return KVF_E_STATE_UNIT;
    }
    if (local->kind != KVF_VIEW_SECTIONS) {
        return KVF_OK;
    }
    while (s < local->section_count && s < peer->section_count &&
           local->section_bytes[s] * local_width == peer->section_bytes[s] * peer_width) {
        s++;
    }
    if (s < local->section_count || s < peer->section_count) {
        geo_text_set(m->text_out, "%s: section %u differs (%u sections, peer %s %u)", pair->name.s,
                     s, local->section_count, m->peer_name, peer->section_count);
        return KVF_E_STATE_SECTIONS;
    }
    return KVF_OK;
}

static enum kvf_status check_pair(const struct meeting *m, const struct view_pair *pair)
{
    enum kvf_status status = check_pair_kind(m, pair);

    if (status != KVF_OK) {
        return status;
    }
    switch (pair->local->kind) {
    case KVF_VIEW_HND:
    case KVF_VIEW_NHD:
        return check_pair_heads(m, pair);
    case KVF_VIEW_UNITS:
    case KVF_VIEW_SECTIONS:
        return check_pair_state(m, pair);
    case KVF_VIEW_REPLICATED:
        break;
    }
    return KVF_OK;
}

/* Checks 16 to 25, pair by pair in the sender's order. */
static enum kvf_status check_pairs(const struct meeting *m)
{
    for (uint32_t g = 0; g < m->sender->layout.group_count; g++) {
        const struct kvf_group *group = &m->sender->layout.groups[g];

        for (uint32_t v = 0; v < group->view_count; v++) {
            struct geo_partner partner;
            struct view_pair pair = {.sender = &group->views[v]};
            const struct kvf_group *other;
            bool local_sends = m->local == m->sender;
            enum kvf_status status =
                geo_pair_view(m->sender, g, v, m->receiver, &partner, m->text_out);

            if (status != KVF_OK) {
                return status;
            }
            if (!partner.found) {
                continue;
            }
            other = &m->receiver->layout.groups[partner.group];
            pair.receiver = &other->views[partner.view];
            pair.local = local_sends ? pair.sender : pair.receiver;
            pair.peer = local_sends ? pair.receiver : pair.sender;
            pair.local_window = local_sends ? group->window : other->window;
            pair.peer_window = local_sends ? other->window : group->window;
            geo_name_view(m->local, local_sends ? g : partner.group, local_sends ? v : partner.view,
                          &pair.name);
            status = check_pair(m, &pair);
            if (status != KVF_OK) {
                return status;
            }
        }
    }
    return KVF_OK;
}

/* Check 26. */
static enum kvf_status check_aux(const struct meeting *m)
{
    const struct kvf_layout *local = &m->local->layout;
    const struct kvf_layout *peer = &m->peer->layout;

    if (local->aux_count != peer->aux_count) {
        geo_text_set(m->text_out, "auxiliary buffers: %u, peer %s %u", local->aux_count,
                     m->peer_name, peer->aux_count);
        return KVF_E_AUX_LAYOUT;
    }
    for (uint32_t a = 0; a < local->aux_count; a++) {
        if (local->aux_bytes[a] != peer->aux_bytes[a]) {
            geo_text_set(m->text_out, "auxiliary buffer %u: %u bytes, peer %s %u", a,
                         local->aux_bytes[a], m->peer_name, peer->aux_bytes[a]);
            return KVF_E_AUX_LAYOUT;
        }
    }
    return KVF_OK;
}

enum kvf_status geo_check_peer(const struct geo_record *sender, const struct geo_record *receiver,
                               enum geo_side self, struct geo_text *text_out)
{
    struct meeting m = {.sender = sender,
                        .receiver = receiver,
                        .local = self == GEO_CONTEXT ? sender : receiver,
                        .peer = self == GEO_CONTEXT ? receiver : sender,
                        .text_out = text_out};
    enum kvf_status status;

    snprintf(m.peer_name, sizeof(m.peer_name), "%s/%u", m.peer->instance_name, m.peer->rank);
    status = check_kind(&m);
    if (status == KVF_OK) {
        status = check_elements(&m);
    }
    if (status == KVF_OK) {
        status = check_mla_heads(sender, text_out);
    }
    if (status == KVF_OK) {
        status = check_mla_heads(receiver, text_out);
    }
    if (status == KVF_OK) {
        status = check_layers(&m);
    }
    if (status == KVF_OK) {
        status = check_views(sender, receiver, text_out);
    }
    if (status == KVF_OK) {
        status = check_views(receiver, sender, text_out);
    }
    if (status == KVF_OK) {
        status = check_pairs(&m);
    }
    return status == KVF_OK ? check_aux(&m) : status;
}
