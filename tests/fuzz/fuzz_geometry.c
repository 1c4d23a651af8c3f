/*
 * fuzz_geometry.c - any bytes as a peer's geometry record.
 *
 * An input is decoded as it is, then with its version and length mended so that the fields are
 * reached. What is accepted must be sound: it encodes again, and meeting it, planning with it and
 * checking a request against it does no harm.
 */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "geo_make.h"
#include "plan.h"
#include "wire.h"

enum { SAMPLES = 8, HEAD_BYTES = 8, SLOTS = 4 };

static void sample_model(unsigned index, struct geo_make_model *model)
{
    geo_make_model(model, 3, index % 4 == 3 ? 1 : 4, 8, 4);
    model->model.nhd = index % 2 == 1;
    if (index % 4 == 1) {
        model->layers[1] = (struct kvf_model_layer){
            .state_units = 4, .state_unit_bytes = 8, .section_count = 2, .section_bytes = {8, 16}};
    } else if (index % 4 == 2) {
        model->layers[0].index_bytes = 3;
        model->layers[2].owner = KVF_OWNER_DRAFT;
        model->layers[2].window = 8;
    }
    model->model.aux_count = index % 2;
    model->aux_bytes[0] = 4;
}

/* Even samples are writers, odd ones readers of other widths; small enough for the runner. */
static struct geo_record *sample(unsigned index, enum geo_side side)
{
    struct geo_make_model model;
    struct geo_make_grid grid = {.tp = side == GEO_CONTEXT ? 4 : 2, .pp = 1, .layers = {3}};
    struct geo_make_params params = {.model = &model, .grid = &grid, .side = side, .slots = SLOTS};

    sample_model(index, &model);
    return geo_make_record(&params, 0);
}

static void plan_with(const struct geo_record *writer, const struct geo_record *reader)
{
    static const uint32_t slots[SLOTS] = {0, 3, 1, UINT32_MAX};
    struct kvf_block_list lists[GEO_GROUPS_MAX];
    struct plan_request request = {.prompt_tokens = 15,
                                   .src_count = writer->layout.group_count,
                                   .dst_count = reader->layout.group_count,
                                   .src = lists,
                                   .dst = lists};
    struct plan_piece piece = plan_whole(request.prompt_tokens);
    struct plan_template *template = NULL;
    struct plan_totals totals;
    struct geo_text text;
    enum kvf_status status = geo_check_peer(writer, reader, GEO_CONTEXT, &text);

    KVF_REQUIRE(geo_check_peer(writer, reader, GEO_GENERATION, NULL) == status);
    if (plan_template_open(kvf_heap_system(), writer, reader, &template) != KVF_OK) {
        return;
    }
    KVF_REQUIRE(status == KVF_OK);
    for (uint32_t g = 0; g < GEO_GROUPS_MAX; g++) {
        lists[g] = (struct kvf_block_list){.first = g % 2, .count = SLOTS, .slots = slots};
    }
    (void)plan_check_lists(reader, lists, request.dst_count, NULL, &text);
    (void)plan_check_request(template, &request, &piece, &text);
    plan_count(template, &request, &piece, &totals);
    (void)plan_expected_bytes(reader, &request);
    (void)plan_bounce_gate(template, &totals);
    plan_template_close(template);
}

static void use(const struct geo_record *record)
{
    static struct geo_record *writers[SAMPLES], *readers[SAMPLES];
    static uint8_t again[1u << 18];
    struct geo_record *copy = NULL;
    size_t len = 0;

    KVF_REQUIRE(geo_check_local(record, NULL) == KVF_OK);
    KVF_REQUIRE(geo_record_encode(record, again, sizeof(again), &len) == KVF_OK);
    KVF_REQUIRE(geo_record_decode(kvf_heap_system(), again, len, &copy, NULL) == KVF_OK);
    geo_record_close(copy);
    for (unsigned i = 0; i < SAMPLES; i++) {
        if (writers[i] == NULL) {
            writers[i] = sample(i, GEO_CONTEXT);
            readers[i] = sample(i, GEO_GENERATION);
        }
        plan_with(record, readers[i]);
        plan_with(writers[i], record);
    }
}

static void decode(const uint8_t *bytes, size_t len)
{
    struct geo_record *record = NULL;
    struct geo_text text = {{0}};
    enum kvf_status status = geo_record_decode(kvf_heap_system(), bytes, len, &record, &text);

    KVF_REQUIRE((status == KVF_OK) == (text.s[0] == '\0'));
    if (status == KVF_OK) {
        use(record);
        geo_record_close(record);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len_bytes)
{
    uint8_t *copy;

    decode(bytes, len_bytes);
    if (len_bytes < HEAD_BYTES) {
        return 0;
    }
    copy = malloc(len_bytes);
    KVF_REQUIRE(copy != NULL);
    memcpy(copy, bytes, len_bytes);
    wire_store_u32(copy, GEO_WIRE_VERSION);
    wire_store_u32(copy + 4, (uint32_t)len_bytes);
    decode(copy, len_bytes);
    free(copy);
    return 0;
}

size_t fuzz_sample(unsigned index, uint8_t *bytes, size_t max_bytes)
{
    struct geo_record *record;
    size_t len = 0;

    if (index >= 2 * SAMPLES) {
        return 0;
    }
    record = sample(index / 2, (enum geo_side)(index % 2));
    KVF_REQUIRE(geo_record_encode(record, bytes, max_bytes, &len) == KVF_OK);
    geo_record_close(record);
    return len;
}
