/* geometry_answer.c - answers about a geometry dump. See geometry_answer.h. */
#include "geometry_answer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an answer is made from. */
struct answering {
    const struct geometry_dump *dump;
    const struct geo_record *receiver;
    uint32_t *asked; /* ranks, the union over groups when the group is not known */
    uint32_t asked_count;
    struct plan_split_facts split;
    struct geo_text *text_out;
};

static json_t *number(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *list_u32(const uint32_t *values, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(array, number(values[i]));
    }
    return array;
}

static json_t *verdict(bool allowed, const char *reason)
{
    return json_pack("[b,s]", (int)allowed, reason);
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Ranks that meet; gives: free(). */
static enum kvf_status list_meeting(const struct kvf_place *self, const struct kvf_place *grid,
                                    uint32_t group, uint32_t **ranks_out, uint32_t *count_out)
{
    uint32_t count = 0;
    uint32_t *ranks;
    enum kvf_status status = geo_meets(self, grid, group, NULL, 0, &count);

    if (status != KVF_OK) {
        return status;
    }
    ranks = calloc((size_t)count + 1, sizeof(*ranks));
    if (ranks == NULL) {
        return KVF_E_NOMEM;
    }
    status = geo_meets(self, grid, group, ranks, count, &count);
    *ranks_out = ranks;
    *count_out = count;
    return status;
}

static uint32_t group_of(const struct geometry_dump *dump)
{
    return dump->group_known ? dump->sender_group : GEO_GROUP_UNKNOWN;
}

static enum kvf_status check_side(struct geo_record *const *records, uint32_t count,
                                  struct geo_text *text_out)
{
    for (uint32_t r = 0; r < count; r++) {
        enum kvf_status status = geo_check_local(records[r], text_out);

        if (status != KVF_OK) {
            return status;
        }
    }
    return KVF_OK;
}

static enum kvf_status check_asked(const struct geometry_dump *dump,
                                   const struct geo_record *receiver, const uint32_t *ranks,
                                   uint32_t count, struct geo_text *text_out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index;
        const struct geo_record *sender = geometry_dump_sender(dump, ranks[i], &index);
        enum kvf_status status;

        if (sender == NULL) {
            geo_text_set(text_out, "the dump has no sender of rank %u, which is asked", ranks[i]);
            return KVF_E_NOTFOUND;
        }
        status = geo_check_peer(sender, receiver, GEO_GENERATION, text_out);
        if (status != KVF_OK) {
            return status;
        }
    }
    return KVF_OK;
}

enum kvf_status geometry_dump_check(const struct geometry_dump *dump, uint32_t receiver,
                                    struct geo_text *text_out)
{
    uint32_t index;
    uint32_t *ranks = NULL;
    uint32_t count = 0;
    const struct geo_record *reader = geometry_dump_receiver(dump, receiver, &index);
    enum kvf_status status = check_side(dump->senders, dump->sender_count, text_out);

    if (status == KVF_OK) {
        status = check_side(dump->receivers, dump->receiver_count, text_out);
    }
    if (status != KVF_OK) {
        return status;
    }
    if (reader == NULL) {
        geo_text_set(text_out, "the dump has no receiver of rank %u", receiver);
        return KVF_E_NOTFOUND;
    }
    status = list_meeting(&reader->place, &dump->senders[0]->place, group_of(dump), &ranks, &count);
    if (status == KVF_OK) {
        status = check_asked(dump, reader, ranks, count, text_out);
    } else if (status == KVF_E_TP_RATIO) {
        /* Whom it would ask cannot be told; the checks before this one come first. */
        status = geo_check_peer(dump->senders[0], reader, GEO_GENERATION, text_out);
    } else {
        geo_text_set(text_out, "the sender's instance has no dp group %u", dump->sender_group);
    }
    free(ranks);
    return status;
}

/* ---- writers -------------------------------------------------------------------------------- */

/* Base addresses of a record's pools; gives: free(). */
static uint64_t *pool_bases(const struct geo_record *record)
{
    uint64_t *bases = calloc((size_t)record->layout.pool_count + 1, sizeof(*bases));

    for (uint32_t p = 0; bases != NULL && p < record->layout.pool_count; p++) {
        bases[p] = record->pools[p].base;
    }
    return bases;
}

static enum kvf_status check_lists(const struct geo_record *record,
                                   const struct geometry_lists *lists, bool is_dst,
                                   struct geo_text *text_out)
{
    uint64_t *bitmap = NULL;
    enum kvf_status status;

    if (is_dst) {
        bitmap = calloc((size_t)plan_check_words(record) + 1, sizeof(*bitmap));
        if (bitmap == NULL) {
            return KVF_E_NOMEM;
        }
    }
    status = plan_check_lists(record, lists->lists, lists->count, bitmap, text_out);
    free(bitmap);
    return status;
}

static enum kvf_status take_arrays(struct geometry_writer *writer, const struct geo_record *sender,
                                   const struct geo_record *receiver)
{
    uint32_t blocks = 1;

    for (uint32_t g = 0; g < writer->request.dst_count; g++) {
        blocks = writer->request.dst[g].count > blocks ? writer->request.dst[g].count : blocks;
    }
    writer->scratch.stripes_max = plan_stripes_max(writer->template);
    writer->scratch.pairs_max = plan_pairs_max(writer->template, blocks);
    writer->scratch.stripes =
        calloc((size_t)writer->scratch.stripes_max + 1, sizeof(*writer->scratch.stripes));
    writer->scratch.pairs =
        calloc((size_t)writer->scratch.pairs_max + 1, sizeof(*writer->scratch.pairs));
    writer->addresses.src = pool_bases(sender);
    writer->addresses.dst = pool_bases(receiver);
    if (writer->scratch.stripes == NULL || writer->scratch.pairs == NULL ||
        writer->addresses.src == NULL || writer->addresses.dst == NULL) {
        return KVF_E_NOMEM;
    }
    return KVF_OK;
}

enum kvf_status geometry_writer_init(const struct geometry_dump *dump, uint32_t receiver,
                                     uint32_t sender, struct geometry_writer *writer_out,
                                     struct geo_text *text_out)
{
    uint32_t s = 0;
    uint32_t r = 0;
    const struct geo_record *writer = geometry_dump_sender(dump, sender, &s);
    const struct geo_record *reader = geometry_dump_receiver(dump, receiver, &r);
    enum kvf_status status;

    *writer_out = (struct geometry_writer){0};
    if (writer == NULL || reader == NULL) {
        geo_text_set(text_out, "the dump has no %s of rank %u",
                     writer == NULL ? "sender" : "receiver", writer == NULL ? sender : receiver);
        return KVF_E_NOTFOUND;
    }
    if (!geo_is_asked(&reader->place, &writer->place)) {
        geo_text_set(text_out, "receiver %u does not ask sender %u", receiver, sender);
        return KVF_E_INVAL;
    }
    status = geo_check_peer(writer, reader, GEO_GENERATION, text_out);
    if (status == KVF_OK) {
        status = check_lists(reader, &dump->dst[r], true, text_out);
    }
    if (status == KVF_OK) {
        status = check_lists(writer, &dump->src[s], false, text_out);
    }
    if (status != KVF_OK) {
        return status;
    }
    status = plan_template_open(kvf_heap_system(), writer, reader, &writer_out->template);
    if (status != KVF_OK) {
        return status;
    }
    writer_out->request = (struct plan_request){.prompt_tokens = dump->prompt_tokens,
                                                .src_count = dump->src[s].count,
                                                .dst_count = dump->dst[r].count,
                                                .src = dump->src[s].lists,
                                                .dst = dump->dst[r].lists,
                                                .src_aux_slot = dump->src_aux_slot,
                                                .dst_aux_slot = dump->dst_aux_slot};
    status = take_arrays(writer_out, writer, reader);
    if (status != KVF_OK) {
        geometry_writer_fini(writer_out);
    }
    return status;
}

void geometry_writer_fini(struct geometry_writer *writer)
{
    plan_template_close(writer->template);
    free(writer->scratch.stripes);
    free(writer->scratch.pairs);
    free((uint64_t *)writer->addresses.src);
    free((uint64_t *)writer->addresses.dst);
    *writer = (struct geometry_writer){0};
}

enum kvf_status geometry_writer_fill(struct geometry_writer *writer, const struct plan_piece *piece,
                                     struct plan_filled *filled_out, struct geo_text *text_out)
{
    enum kvf_status status =
        plan_check_request(writer->template, &writer->request, piece, text_out);

    if (status != KVF_OK) {
        return status;
    }
    return plan_fill(writer->template, &writer->request, piece, &writer->addresses,
                     &writer->scratch, filled_out);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static int by_size(const void *left, const void *right)
{
    uint64_t a = ((const uint64_t *)left)[0];
    uint64_t b = ((const uint64_t *)right)[0];

    return a < b ? -1 : a > b;
}

/* [[size, count], ...], ascending. NULL when out of memory. */
static json_t *write_sizes(const struct stripe *stripes, uint32_t count)
{
    uint64_t(*sizes)[2] = calloc((size_t)count + 1, sizeof(*sizes));
    json_t *array = json_array();
    uint32_t used = 0;

    for (uint32_t s = 0; sizes != NULL && s < count; s++) {
        uint32_t at = 0;

        while (at < used && sizes[at][0] != stripes[s].piece_bytes) {
            at++;
        }
        sizes[at][0] = stripes[s].piece_bytes;
        sizes[at][1] += stripe_fragments(&stripes[s]);
        used += at == used;
    }
    if (sizes != NULL) {
        qsort(sizes, used, sizeof(*sizes), by_size);
    }
    for (uint32_t s = 0; s < used; s++) {
        json_array_append_new(array,
                              json_pack("[I,I]", (json_int_t)sizes[s][0], (json_int_t)sizes[s][1]));
    }
    free(sizes);
    return array;
}

static json_t *write_view(const struct geometry_writer *writer, uint32_t index,
                          const struct plan_piece *piece)
{
    const struct plan_view_pair *view = plan_view_pair(writer->template, index);
    struct plan_totals totals;
    json_t *json = json_object();
    json_t *roles = json_array();

    plan_count_pair(writer->template, index, &writer->request, piece, &totals);
    for (uint32_t r = 0; r < view->role_count; r++) {
        json_array_append_new(roles, json_string(geo_role_name(view->roles[r])));
    }
    json_object_set_new(json, "pair",
                        json_pack("[[I,I],[I,I]]", (json_int_t)view->src_group,
                                  (json_int_t)view->src_view, (json_int_t)view->dst_group,
                                  (json_int_t)view->dst_view));
    json_object_set_new(json, "roles", roles);
    json_object_set_new(json, "kind", json_string(geo_kind_name(view->kind)));
    json_object_set_new(json, "owner", json_string(geo_owner_name(view->owner)));
    json_object_set_new(json, "elected", json_boolean(view->elected));
    json_object_set_new(json, "frags", number(totals.fragments));
    json_object_set_new(json, "layers", list_u32(view->layers, view->layer_count));
    if (view->kind == KVF_VIEW_HND || view->kind == KVF_VIEW_NHD) {
        json_object_set_new(json, "heads",
                            json_pack("[I,I,I,I,I]", (json_int_t)view->src_heads,
                                      (json_int_t)view->dst_heads, (json_int_t)view->src_head_first,
                                      (json_int_t)view->dst_head_first,
                                      (json_int_t)view->head_count));
        json_object_set_new(
            json, "dup",
            json_pack("[I,I]", (json_int_t)view->src_factor, (json_int_t)view->dst_factor));
    }
    json_object_set_new(json, "bytes", number(totals.bytes));
    return json;
}

/* How the bounce would pack the write; walks every fragment and keeps none. */
static void write_chunks(json_t *json, const struct geometry_writer *writer, uint32_t stripes,
                         uint64_t chunk_bytes)
{
    struct plan_packer packer;
    struct plan_walk walk;
    struct plan_fragment fragment;

    plan_packer_init(&packer, chunk_bytes);
    plan_walk_init(&walk, writer->scratch.stripes, stripes);
    while (plan_walk_next(&walk, &fragment)) {
        plan_packer_add(&packer, &fragment);
    }
    json_object_set_new(json, "chunks", number(packer.chunks));
    json_object_set_new(json, "packed", number(packer.packed_bytes));
}

static enum kvf_status write_piece(struct geometry_writer *writer, const struct plan_piece *piece,
                                   uint64_t chunk_bytes, json_t *pieces, struct geo_text *text_out)
{
    struct plan_filled filled;
    enum plan_bounce bounce;
    json_t *json;
    json_t *views;
    enum kvf_status status = geometry_writer_fill(writer, piece, &filled, text_out);

    if (status != KVF_OK) {
        return status;
    }
    json = json_object();
    views = json_array();
    bounce = plan_bounce_gate(writer->template, &filled.totals);
    for (uint32_t v = 0; v < plan_view_pairs(writer->template); v++) {
        json_array_append_new(views, write_view(writer, v, piece));
    }
    json_object_set_new(
        json, "piece",
        json_pack("[I,I]", (json_int_t)piece->token_first, (json_int_t)piece->token_end));
    json_object_set_new(json, "fragments", number(filled.totals.fragments));
    json_object_set_new(json, "bytes", number(filled.totals.bytes));
    json_object_set_new(json, "sizes", write_sizes(writer->scratch.stripes, filled.stripe_count));
    json_object_set_new(json, "bounce",
                        verdict(bounce == PLAN_BOUNCE_OK, plan_bounce_name(bounce)));
    json_object_set_new(json, "views", views);
    if (bounce == PLAN_BOUNCE_OK) {
        write_chunks(json, writer, filled.stripe_count, chunk_bytes);
    }
    json_array_append_new(pieces, json);
    return KVF_OK;
}

static json_t *write_aux(const struct geometry_writer *writer)
{
    json_t *aux = json_array();

    for (uint32_t a = 0; a < plan_aux_count(writer->template); a++) {
        struct plan_fragment fragment;

        if (plan_aux_fragment(writer->template, &writer->request, a, &fragment)) {
            json_array_append_new(aux,
                                  json_pack("[I,I,I]", (json_int_t)fragment.src,
                                            (json_int_t)fragment.dst, (json_int_t)fragment.bytes));
        }
    }
    return aux;
}

static enum kvf_status write_writer(struct answering *answering, uint32_t rank, json_t *writers)
{
    const struct geometry_dump *dump = answering->dump;
    const struct kvf_place *grid = &answering->receiver->place;
    struct geometry_writer writer;
    uint32_t index;
    uint32_t *serves = NULL;
    uint32_t serves_count = 0;
    json_t *json = NULL;
    json_t *pieces = NULL;
    const struct geo_record *record = geometry_dump_sender(dump, rank, &index);
    enum kvf_status status =
        geometry_writer_init(dump, answering->receiver->rank, rank, &writer, answering->text_out);

    if (status != KVF_OK) {
        return status;
    }
    plan_split_add(&answering->split, writer.template);
    if (geo_rank_dp(&record->place, rank) != dump->sender_group) {
        goto fini_writer; /* asked in ignorance; another group writes */
    }
    status = list_meeting(&record->place, grid, grid->dp_rank, &serves, &serves_count);
    if (status != KVF_OK) {
        goto fini_writer;
    }
    pieces = json_array();
    for (uint32_t p = 0; status == KVF_OK && p < dump->piece_count; p++) {
        status = write_piece(&writer, &dump->pieces[p], geo_bounce_chunk(&record->bounce), pieces,
                             answering->text_out);
    }
    if (status != KVF_OK) {
        json_decref(pieces);
        goto free_serves;
    }
    json = json_object();
    json_object_set_new(json, "rank", number(rank));
    json_object_set_new(json, "serves", list_u32(serves, serves_count));
    json_object_set_new(json, "aux", write_aux(&writer));
    json_object_set_new(json, "pieces", pieces);
    json_array_append_new(writers, json);

free_serves:
    free(serves);
fini_writer:
    geometry_writer_fini(&writer);
    return status;
}

static enum kvf_status answer(struct answering *answering, json_t **json_out)
{
    const struct geometry_dump *dump = answering->dump;
    json_t *json;
    json_t *writers;
    enum plan_split split;
    enum kvf_status status =
        list_meeting(&answering->receiver->place, &dump->senders[0]->place, group_of(dump),
                     &answering->asked, &answering->asked_count);

    if (status == KVF_OK) {
        status =
            geo_finals(answering->receiver, &dump->senders[0]->place, &answering->split.finals);
    }
    if (status != KVF_OK) {
        return status;
    }
    answering->split.group_known = dump->group_known;
    writers = json_array();
    for (uint32_t i = 0; status == KVF_OK && i < answering->asked_count; i++) {
        status = write_writer(answering, answering->asked[i], writers);
    }
    if (status != KVF_OK) {
        json_decref(writers);
        return status;
    }
    split = plan_split_gate(&answering->split);
    json = json_object();
    json_object_set_new(json, "receiver", number(answering->receiver->rank));
    json_object_set_new(json, "asked", list_u32(answering->asked, answering->asked_count));
    json_object_set_new(json, "finals", number(answering->split.finals));
    json_object_set_new(json, "fanin", verdict(plan_split_allowed(split), plan_split_name(split)));
    json_object_set_new(json, "writers", writers);
    *json_out = json;
    return KVF_OK;
}

enum kvf_status geometry_answer(const struct geometry_dump *dump, uint32_t receiver,
                                json_t **json_out, struct geo_text *text_out)
{
    uint32_t index;
    struct answering answering = {.dump = dump, .text_out = text_out};
    enum kvf_status status = geometry_dump_check(dump, receiver, text_out);

    if (status != KVF_OK) {
        return status;
    }
    answering.receiver = geometry_dump_receiver(dump, receiver, &index);
    status = answer(&answering, json_out);
    free(answering.asked);
    return status;
}
