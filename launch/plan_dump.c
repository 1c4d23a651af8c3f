/* plan_dump.c - see plan_dump.h. */
#include "plan_dump.h"

#include <stdio.h>
#include <stdlib.h>

#define BASE_FIRST ((uint64_t)1 << 32)
#define BASE_ALIGN ((uint64_t)1 << 20)
#define SLOT_STEP 2u /* between the slots of neighbouring blocks */
#define STATE_SLOT 1u
#define AUX_SLOTS 4u
#define SRC_AUX_SLOT 1u
#define DST_AUX_SLOT 2u
#define BOUNCE_WIRE_VERSION 1u

/* A dump and what it is made from. */
struct made_dump {
    struct geometry_dump dump; /* first: plan_dump_close() gets its address */
    const struct plan_dump_params *params;
    uint32_t *slots; /* of ordinal 0, 1, ...: the same on every rank */
    uint32_t state_slot;
    uint32_t slots_max; /* slots of every pool */
    uint64_t base;      /* next free address */
    struct kvf_block_list *lists[2];
    struct geo_text *text_out;
};

/* One rank while its record is made. */
struct made_rank {
    const struct kvf_instance *instance;
    uint32_t layers[KVF_PP_MAX];
    struct kvf_place place;
    struct kvf_layout *layout;
    struct geo_pool *pools;
    struct geo_aux *aux;
};

struct geo_bounce plan_dump_bounce(const struct kvf_settings *settings)
{
    bool allowed = (settings->paths & (1u << KVF_PATH_BOUNCE)) != 0;
    uint64_t average = settings->max_average_descriptor_size;

    return (struct geo_bounce){
        .enabled = allowed && settings->kv_cache_bounce_size_mb > 0,
        .wire_version = BOUNCE_WIRE_VERSION,
        .arena_bytes = settings->kv_cache_bounce_size_mb << 20,
        .granularity_bytes = settings->arena_allocation_granularity,
        .max_chunk_bytes = settings->max_chunk_size,
        .min_descriptor_count = (uint32_t)settings->min_descriptor_count,
        /* 0 in the settings: all sizes may */
        .max_average_bytes = average == 0 ? INT64_MAX : average,
        .request_timeout_ms = (uint32_t)settings->request_timeout_ms,
        .memory = GEO_HOST,
    };
}

/* ---- records -------------------------------------------------------------------------------- */

static uint64_t made_address(struct made_dump *made, uint64_t bytes)
{
    uint64_t at = made->base;

    made->base += (bytes + 2 * BASE_ALIGN) / BASE_ALIGN * BASE_ALIGN;
    return at;
}

static enum kvf_status made_memory(struct made_dump *made, struct made_rank *rank)
{
    const struct kvf_layout *layout = rank->layout;

    rank->pools = calloc(layout->pool_count + 1u, sizeof(*rank->pools));
    rank->aux = calloc(layout->aux_count + 1u, sizeof(*rank->aux));
    if (rank->pools == NULL || rank->aux == NULL) {
        return KVF_E_NOMEM;
    }
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        uint64_t bytes = layout->pools[p].slot_stride * made->slots_max;

        rank->pools[p] = (struct geo_pool){
            .base = made_address(made, bytes), .bytes = bytes, .slots = made->slots_max};
    }
    for (uint32_t a = 0; a < layout->aux_count; a++) {
        rank->aux[a] =
            (struct geo_aux){.base = made_address(made, (uint64_t)layout->aux_bytes[a] * AUX_SLOTS),
                             .item_bytes = layout->aux_bytes[a],
                             .slots = AUX_SLOTS};
    }
    return KVF_OK;
}

static enum kvf_status made_layout(struct made_dump *made, enum geo_side side, uint32_t number,
                                   struct made_rank *rank)
{
    const struct plan_dump_params *params = made->params;
    const struct kvf_model *model = params->models[side];
    char text[256] = "";
    enum kvf_status status = kvf_place(params->topology, rank->instance->first_rank + number,
                                       model->layer_count, rank->layers, &rank->place);

    if (status != KVF_OK) {
        geo_text_set(made->text_out, "the layers of %s do not sum up to the model's %u",
                     rank->instance->name, model->layer_count);
        return status;
    }
    status = kvf_layout_from_model(model, &rank->place, &rank->layout, text, sizeof(text));
    if (status != KVF_OK) {
        geo_text_set(made->text_out, "%s, rank %u: %s", rank->instance->name, number,
                     text[0] != '\0' ? text : kvf_status_text(status));
    }
    return status;
}

static enum kvf_status made_record(struct made_dump *made, enum geo_side side, uint32_t number,
                                   struct geo_record **record_out)
{
    struct made_rank *rank = calloc(1, sizeof(*rank));
    uint32_t instance = made->params->instances[side];
    struct geo_record facts = {.wire_version = GEO_WIRE_VERSION, .side = side, .rank = number};
    enum kvf_status status;

    if (rank == NULL) {
        return KVF_E_NOMEM;
    }
    rank->instance = &made->params->topology->instances[instance];
    status = made_layout(made, side, number, rank);
    if (status == KVF_OK) {
        status = made_memory(made, rank);
    }
    if (status == KVF_OK) {
        snprintf(facts.instance_name, sizeof(facts.instance_name), "%s", rank->instance->name);
        facts.instance = instance;
        facts.place = rank->place;
        facts.layout = *rank->layout;
        facts.layout.layer_count = made->params->models[side]->layer_count;
        facts.pools = rank->pools;
        facts.aux = rank->aux;
        facts.bounce = made->params->bounces[side];
        status = geo_record_open(kvf_heap_system(), &facts, record_out);
    }
    kvf_layout_free(rank->layout);
    free(rank->pools);
    free(rank->aux);
    free(rank);
    return status;
}

static enum kvf_status made_side(struct made_dump *made, enum geo_side side)
{
    const struct kvf_instance *instance =
        &made->params->topology->instances[made->params->instances[side]];
    uint32_t ranks = instance->tp_size * instance->pp_size;
    struct geo_record **records = calloc(ranks, sizeof(struct geo_record *));
    bool is_src = side == GEO_CONTEXT;
    uint32_t *count = is_src ? &made->dump.sender_count : &made->dump.receiver_count;
    enum kvf_status status = KVF_OK;

    if (records == NULL) {
        return KVF_E_NOMEM;
    }
    *(is_src ? &made->dump.senders : &made->dump.receivers) = records;
    for (*count = 0; status == KVF_OK && *count < ranks; *count += status == KVF_OK) {
        status = made_record(made, side, *count, &records[*count]);
    }
    return status;
}

/* ---- request -------------------------------------------------------------------------------- */

/* Lists of one rank; a rank of another dp group has no pages of this request. */
static void made_rank_lists(const struct made_dump *made, const struct geo_record *record,
                            uint32_t group, struct kvf_block_list *lists)
{
    const struct plan_dump_params *params = made->params;
    uint32_t tokens = record->layout.tokens_per_block;
    uint32_t cached = record->side == GEO_GENERATION ? params->cached_tokens : 0;

    for (uint32_t g = 0; record->place.dp_rank == group && g < record->layout.group_count; g++) {
        const struct kvf_group *of = &record->layout.groups[g];
        uint32_t first = plan_first_ordinal(params->prompt_tokens, cached, of->window, tokens);

        if (of->group_class == KVF_GROUP_STATE) {
            lists[g] = (struct kvf_block_list){.count = 1, .slots = &made->state_slot};
        } else {
            lists[g] =
                (struct kvf_block_list){.first = first,
                                        .count = plan_blocks(params->prompt_tokens, tokens) - first,
                                        .slots = made->slots + first};
        }
    }
}

static enum kvf_status made_lists(struct made_dump *made, enum geo_side side)
{
    bool is_src = side == GEO_CONTEXT;
    struct geo_record **records = is_src ? made->dump.senders : made->dump.receivers;
    uint32_t count = is_src ? made->dump.sender_count : made->dump.receiver_count;
    uint32_t group = is_src ? made->params->sender_group
                            : geo_rank_dp(&records[0]->place, made->params->receiver);
    struct geometry_lists *all = calloc(count, sizeof(*all));
    size_t sum = 0;

    *(is_src ? &made->dump.src : &made->dump.dst) = all;
    for (uint32_t r = 0; r < count; r++) {
        sum += records[r]->layout.group_count;
    }
    made->lists[side] = calloc(sum + 1, sizeof(struct kvf_block_list));
    if (all == NULL || made->lists[side] == NULL) {
        return KVF_E_NOMEM;
    }
    sum = 0;
    for (uint32_t r = 0; r < count; r++) {
        all[r].lists = made->lists[side] + sum;
        all[r].count = records[r]->layout.group_count;
        made_rank_lists(made, records[r], group, all[r].lists);
        sum += all[r].count;
    }
    return KVF_OK;
}

static enum kvf_status made_slots(struct made_dump *made)
{
    uint32_t most = 1;

    for (int s = 0; s < 2; s++) {
        uint32_t blocks =
            plan_blocks(made->params->prompt_tokens, made->params->models[s]->tokens_per_block);

        most = blocks > most ? blocks : most;
    }
    made->state_slot = STATE_SLOT;
    made->slots_max = SLOT_STEP * most + SLOT_STEP;
    made->slots = calloc(most, sizeof(*made->slots));
    if (made->slots == NULL) {
        return KVF_E_NOMEM;
    }
    for (uint32_t b = 0; b < most; b++) {
        made->slots[b] = b * SLOT_STEP;
    }
    return KVF_OK;
}

static enum kvf_status made_pieces(struct made_dump *made)
{
    uint32_t tokens = made->params->prompt_tokens;
    uint32_t step = made->params->piece_tokens == 0 ? tokens : made->params->piece_tokens;
    uint32_t count = plan_blocks(tokens, step);
    struct plan_piece *pieces = calloc(count, sizeof(*pieces));

    made->dump.pieces = pieces;
    if (pieces == NULL) {
        return KVF_E_NOMEM;
    }
    made->dump.piece_count = count;
    for (uint32_t p = 0; p < count; p++) {
        pieces[p] = plan_whole(tokens);
        pieces[p].token_first = p * step;
        pieces[p].last = p + 1 == count;
        pieces[p].token_end = pieces[p].last ? tokens : (p + 1) * step;
    }
    return KVF_OK;
}

enum kvf_status plan_dump_open(const struct plan_dump_params *params,
                               struct geometry_dump **dump_out, struct geo_text *text_out)
{
    struct made_dump *made = calloc(1, sizeof(*made));
    enum kvf_status status;

    if (made == NULL) {
        return KVF_E_NOMEM;
    }
    made->params = params;
    made->text_out = text_out;
    made->base = BASE_FIRST;
    made->dump.prompt_tokens = params->prompt_tokens;
    made->dump.cached_tokens = params->cached_tokens;
    made->dump.sender_group = params->sender_group;
    made->dump.group_known = params->group_known;
    made->dump.receiver = params->receiver;
    made->dump.src_aux_slot =
        params->models[GEO_CONTEXT]->aux_count > 0 ? SRC_AUX_SLOT : PLAN_NO_SLOT;
    made->dump.dst_aux_slot =
        params->models[GEO_GENERATION]->aux_count > 0 ? DST_AUX_SLOT : PLAN_NO_SLOT;
    status = made_slots(made);
    if (status == KVF_OK) {
        status = made_pieces(made);
    }
    for (int s = 0; s < 2 && status == KVF_OK; s++) {
        status = made_side(made, (enum geo_side)s);
        if (status == KVF_OK) {
            status = made_lists(made, (enum geo_side)s);
        }
    }
    if (status != KVF_OK) {
        plan_dump_close(&made->dump);
        return status;
    }
    *dump_out = &made->dump;
    return KVF_OK;
}

void plan_dump_close(struct geometry_dump *dump)
{
    struct made_dump *made = (struct made_dump *)dump;

    if (dump == NULL) {
        return;
    }
    for (uint32_t r = 0; r < dump->sender_count; r++) {
        geo_record_close(dump->senders[r]);
    }
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        geo_record_close(dump->receivers[r]);
    }
    free(dump->senders);
    free(dump->receivers);
    free(dump->src);
    free(dump->dst);
    free(dump->pieces);
    free(made->lists[0]);
    free(made->lists[1]);
    free(made->slots);
    free(made);
}
