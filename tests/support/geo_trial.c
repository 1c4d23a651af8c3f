/* geo_trial.c - see geo_trial.h. */
#include "geo_trial.h"

uint32_t trial_pick(struct trial *trial, uint32_t limit)
{
    return (uint32_t)test_random_below(&trial->random, limit);
}

bool trial_chance(struct trial *trial, uint32_t percent)
{
    return trial_pick(trial, 100) < percent;
}

static void random_layer(struct trial *trial, struct kvf_model_layer *layer, uint32_t heads,
                         const uint32_t windows[3])
{
    layer->kv_heads = heads;
    layer->window = windows[trial_pick(trial, 3)];
    if (trial_chance(trial, 10)) {
        layer->kv_heads = 0;
    }
    layer->k_only = trial_chance(trial, 15);
    if (trial_chance(trial, 20)) {
        layer->index_bytes = 1 + trial_pick(trial, 5);
    }
}

static void random_state(struct trial *trial, struct geo_make_model *model)
{
    uint32_t sections = trial_pick(trial, 4);
    uint32_t unit_bytes = 1 + trial_pick(trial, 3);
    bool conv_only = trial_chance(trial, 20);

    for (uint32_t l = 0; l < model->model.layer_count; l++) {
        struct kvf_model_layer *layer = &model->layers[l];

        if (layer->owner == KVF_OWNER_DRAFT || trial_chance(trial, 50)) {
            continue;
        }
        layer->kv_heads = trial_chance(trial, 10) ? layer->kv_heads : 0;
        layer->index_bytes = 0;
        layer->scale_per = 0;
        layer->state_units = conv_only && sections > 0 ? 0 : 24;
        layer->state_unit_bytes = unit_bytes;
        layer->section_count = sections;
        for (uint32_t s = 0; s < sections; s++) {
            layer->section_bytes[s] = 24 * (1 + (s * 7 + sections) % 3);
        }
    }
}

static void random_elements(struct trial *trial, struct geo_make_model *model, uint32_t heads)
{
    static const enum kvf_dtype dtypes[] = {KVF_DTYPE_BF16, KVF_DTYPE_FP8_E4M3, KVF_DTYPE_FP4_E2M1,
                                            KVF_DTYPE_F32};
    static const uint32_t dims[] = {1, 2, 3, 4, 8};
    enum kvf_dtype dtype = dtypes[trial_pick(trial, 4)];
    uint32_t dim = dims[trial_pick(trial, 5)];
    uint32_t scale = trial_chance(trial, 20) ? dim : 0;
    uint32_t windows[3] = {0, trial_chance(trial, 30) ? 1 + trial_pick(trial, 12) : 0,
                           trial_chance(trial, 20) ? 1 + trial_pick(trial, 12) : 0};
    bool mixed = trial_chance(trial, 20);

    for (uint32_t l = 0; l < model->model.layer_count; l++) {
        struct kvf_model_layer *layer = &model->layers[l];

        random_layer(trial, layer, heads, windows);
        if (mixed && layer->kv_heads != 0 && l % 2 == 1) {
            layer->kv_heads = heads % 2 == 0 && trial_chance(trial, 50) ? heads / 2 : heads * 2;
        }
        layer->dtype = dtype;
        layer->elem_bits = kvf_dtype_bits(dtype);
        /* Now and then the same bytes a layer from fewer, wider heads: views share a pool. */
        layer->head_dim = mixed && layer->kv_heads == heads / 2 ? 2 * dim : dim;
        layer->scale_per = scale;
        layer->scale_bits = 8;
        if (model->model.mla) {
            layer->kv_heads = 1;
            layer->k_only = true;
        }
    }
}

static void random_drafts(struct trial *trial, struct geo_make_model *model, uint32_t heads,
                          uint32_t count)
{
    uint32_t dim = 1 + trial_pick(trial, 4);

    for (uint32_t d = 0; d < count; d++) {
        struct kvf_model_layer *layer = &model->layers[model->model.layer_count - 1 - d];

        *layer = (struct kvf_model_layer){.owner = KVF_OWNER_DRAFT,
                                          .kv_heads = heads,
                                          .head_dim = dim,
                                          .dtype = KVF_DTYPE_BF16,
                                          .elem_bits = 16,
                                          .k_only = trial_chance(trial, 20)};
    }
}

static void random_model(struct trial *trial, struct geo_make_model *model, uint32_t *drafts_out)
{
    static const uint32_t heads[] = {1, 2, 3, 4, 6, 8};
    static const uint32_t tokens[] = {1, 2, 3, 4, 8};
    uint32_t count = heads[trial_pick(trial, 6)];
    uint32_t drafts = trial_chance(trial, 30) ? 1 + trial_pick(trial, 2) : 0;

    geo_make_model(model, 1 + trial_pick(trial, 6) + drafts, count, 1,
                   tokens[trial_pick(trial, 5)]);
    model->model.nhd = trial_chance(trial, 40);
    model->model.mla = trial_chance(trial, 10);
    random_elements(trial, model, model->model.mla ? 1 : count);
    random_drafts(trial, model, trial_chance(trial, 50) ? count : heads[trial_pick(trial, 6)],
                  drafts);
    if (trial_chance(trial, 25)) {
        random_state(trial, model);
    }
    if (trial_chance(trial, 30)) {
        model->model.aux_count = 1 + trial_pick(trial, 3);
        for (uint32_t a = 0; a < model->model.aux_count; a++) {
            model->aux_bytes[a] = trial_pick(trial, 3) * 4;
        }
    }
    *drafts_out = drafts;
}

static void random_grid(struct trial *trial, struct geo_make_grid *grid, uint32_t width,
                        uint32_t layers, uint32_t drafts)
{
    uint32_t cuts[GEO_MAKE_STAGES_MAX] = {0};
    uint32_t left = layers - drafts;

    *grid = (struct geo_make_grid){.dp = trial_chance(trial, 40) ? 1 + trial_pick(trial, 3) : 0};
    grid->tp = width * (grid->dp == 0 ? 1 : grid->dp);
    grid->pp = trial_chance(trial, 40) ? 2 + trial_pick(trial, 2) : 1;
    for (uint32_t p = 0; p + 1 < grid->pp; p++) {
        cuts[p] = trial_pick(trial, left + 1);
        left -= cuts[p];
        grid->layers[p] = cuts[p];
    }
    grid->layers[grid->pp - 1] = left + drafts;
}

/* True when every rank of the grid has a layout. */
bool trial_is_legal(const struct geo_make_model *model, const struct geo_make_grid *grid,
                    enum pages_form form)
{
    struct geo_make_params params = {.model = model, .grid = grid, .form = form};
    struct kvf_layout *layout;
    enum kvf_status status;

    for (uint32_t rank = 0; rank < grid->tp * grid->pp; rank++) {
        status = geo_make_layout(&params, rank, &layout, NULL, 0);
        if (status != KVF_OK) {
            return false;
        }
        pages_layout_close(kvf_heap_system(), layout);
    }
    return true;
}

static void random_pieces(struct trial *trial)
{
    uint32_t tokens = trial->src_model.model.tokens_per_block;
    uint32_t layers = trial->src_model.model.layer_count;
    bool by_layer = trial_chance(trial, 30);
    uint32_t at = 0;

    trial->piece_count = 0;
    while (at < trial->prompt_tokens) {
        uint32_t end = at + tokens * (1 + trial_pick(trial, 4));
        uint32_t layer = 0;

        if (end > trial->prompt_tokens || trial_chance(trial, 40) || trial->piece_count > 4) {
            end = trial->prompt_tokens;
        }
        while (layer < layers) {
            uint32_t layer_end = by_layer && trial->piece_count < TRIAL_PIECES_MAX - 8
                                     ? layer + 1 + trial_pick(trial, 3)
                                     : PLAN_LAYERS_ALL;

            trial->pieces[trial->piece_count++] = (struct plan_piece){
                .token_first = at, .token_end = end, .layer_first = layer, .layer_end = layer_end};
            layer = layer_end;
        }
        at = end;
    }
    trial->pieces[trial->piece_count - 1].last = true;
}

void trial_make(struct trial *trial)
{
    static const uint32_t widths[] = {1, 2, 3, 4, 6, 8};
    uint32_t drafts, layers, tokens;

    for (;;) {
        uint32_t src_width = widths[trial_pick(trial, 6)];
        uint32_t dst_width = widths[trial_pick(trial, 6)];

        if (src_width % dst_width != 0 && dst_width % src_width != 0) {
            continue;
        }
        random_model(trial, &trial->src_model, &drafts);
        geo_make_copy(&trial->src_model, &trial->dst_model);
        layers = trial->src_model.model.layer_count;
        random_grid(trial, &trial->src_grid, src_width, layers, drafts);
        random_grid(trial, &trial->dst_grid, dst_width, layers, drafts);
        trial->src_form = trial->dst_form = PAGES_PARTITIONED;
        if (trial_is_legal(&trial->src_model, &trial->src_grid, PAGES_PARTITIONED) &&
            trial_is_legal(&trial->dst_model, &trial->dst_grid, PAGES_PARTITIONED)) {
            break;
        }
    }
    tokens = trial->src_model.model.tokens_per_block;
    trial->prompt_tokens = 1 + trial_pick(trial, (TRIAL_BLOCKS_MAX - 1) * tokens);
    trial->cached_tokens =
        trial_chance(trial, 30) ? trial_pick(trial, trial->prompt_tokens + 1) : 0;
    trial->slots = TRIAL_BLOCKS_MAX * 4 + 3;
    random_pieces(trial);
}
