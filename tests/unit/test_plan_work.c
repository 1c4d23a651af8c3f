/*
 * test_plan_work.c - what planning costs, counted in work and memory, never in time: both grow with
 * layers and blocks, never with fragments (docs/geometry.md, section 8.3).
 */
#include <stdlib.h>
#include <string.h>

#include "fail_heap.h"
#include "geo_make.h"
#include "plan.h"

enum { POISON = 0xa5 };

/* A request of `blocks` blocks from rank 0 of tp 4 to rank 0 of tp 2, in token-major pages. */
struct work {
    struct geo_record *writer, *reader;
    struct plan_template *template;
    uint64_t template_bytes;
    struct kvf_block_list list;
    struct plan_request request;
    struct plan_piece piece;
    struct plan_scratch scratch;
    struct plan_filled filled;
};

static void work_open(struct work *work, uint32_t layers, uint32_t dim, uint32_t block_tokens,
                      uint32_t blocks, uint32_t slots)
{
    struct geo_make_grid src = geo_make_grid(4, 0, layers), dst = geo_make_grid(2, 0, layers);
    struct geo_make_model model;
    struct geo_make_params writer = {.model = &model, .grid = &src, .slots = slots};
    struct geo_make_params reader = {
        .model = &model, .grid = &dst, .side = GEO_GENERATION, .slots = slots};
    uint32_t *numbers = calloc(blocks, sizeof(*numbers));
    struct fail_heap heap;

    geo_make_model(&model, layers, 8, dim, block_tokens);
    model.model.nhd = true;
    work->writer = geo_make_record(&writer, 0);
    work->reader = geo_make_record(&reader, 0);
    fail_heap_init(&heap, 0);
    assert_int_equal(plan_template_open(&heap.heap, work->writer, work->reader, &work->template),
                     KVF_OK);
    work->template_bytes = heap.bytes;
    plan_template_close(work->template);
    fail_heap_fini(&heap);
    assert_int_equal(
        plan_template_open(kvf_heap_system(), work->writer, work->reader, &work->template), KVF_OK);
    for (uint32_t b = 0; b < blocks; b++) {
        numbers[b] = blocks - 1 - b;
    }
    work->list = (struct kvf_block_list){.count = blocks, .slots = numbers};
    work->request = (struct plan_request){.prompt_tokens = blocks * block_tokens,
                                          .src_count = 1,
                                          .dst_count = 1,
                                          .src = &work->list,
                                          .dst = &work->list,
                                          .src_aux_slot = PLAN_NO_SLOT,
                                          .dst_aux_slot = PLAN_NO_SLOT};
    work->piece = plan_whole(work->request.prompt_tokens);
    /* Twice what is enough, poisoned: what was touched can be counted. */
    work->scratch.stripes_max = 2 * plan_stripes_max(work->template);
    work->scratch.pairs_max = 2 * plan_pairs_max(work->template, blocks);
    work->scratch.stripes = malloc(work->scratch.stripes_max * sizeof(*work->scratch.stripes));
    work->scratch.pairs = malloc(work->scratch.pairs_max * sizeof(*work->scratch.pairs));
    memset(work->scratch.stripes, POISON,
           work->scratch.stripes_max * sizeof(*work->scratch.stripes));
    memset(work->scratch.pairs, POISON, work->scratch.pairs_max * sizeof(*work->scratch.pairs));
}

static void work_close(struct work *work)
{
    plan_template_close(work->template);
    geo_record_close(work->writer);
    geo_record_close(work->reader);
    free((void *)(uintptr_t)work->list.slots);
    free(work->scratch.stripes);
    free(work->scratch.pairs);
}

/* All that is done for a request, once. */
static void work_do(struct work *work)
{
    static const uint64_t bases[GEO_POOLS_MAX];
    const struct plan_addresses addresses = {bases, bases};
    struct plan_totals totals;

    assert_int_equal(plan_check_request(work->template, &work->request, &work->piece, NULL),
                     KVF_OK);
    plan_count(work->template, &work->request, &work->piece, &totals);
    assert_int_equal(plan_fill(work->template, &work->request, &work->piece, &addresses,
                               &work->scratch, &work->filled),
                     KVF_OK);
    geo_assert_totals_equal(&work->filled.totals, &totals);
    (void)plan_bounce_gate(work->template, &totals);
}

static uint64_t touched(const void *memory, size_t count, size_t size)
{
    const unsigned char *bytes = memory;
    uint64_t end = 0;

    for (uint64_t at = 0; at < count * size; at++) {
        if (bytes[at] != POISON) {
            end = at / size + 1;
        }
    }
    return end;
}

static void requests_of_65536_fragments_and_of_a_million_are_the_same_work(void **state)
{
    enum { BLOCKS = 32, LAYERS = 32 };
    struct work few = {0}, many = {0};

    (void)state;
    work_open(&few, LAYERS, 128, 32, BLOCKS, BLOCKS);
    work_open(&many, LAYERS, 128, 512, BLOCKS, BLOCKS);
    work_do(&few);
    work_do(&many);
    assert_int_equal(few.filled.totals.fragments, 65536);
    assert_int_equal(many.filled.totals.fragments, 1048576);
    assert_int_equal(few.filled.stripe_count, 1);
    assert_int_equal(few.filled.pair_count, BLOCKS);
    assert_int_equal(many.filled.stripe_count, few.filled.stripe_count);
    assert_int_equal(many.filled.pair_count, few.filled.pair_count);
    for (int i = 0; i < 2; i++) {
        const struct plan_scratch *scratch = i == 0 ? &few.scratch : &many.scratch;

        assert_int_equal(touched(scratch->stripes, scratch->stripes_max, sizeof(struct stripe)), 1);
        assert_int_equal(touched(scratch->pairs, scratch->pairs_max, sizeof(struct stripe_pair)),
                         BLOCKS);
    }
    assert_int_equal(many.template_bytes, few.template_bytes);
    work_close(&few);
    work_close(&many);
}

/* One look at each would take minutes, beyond the limit of any test. */
static void a_trillion_fragments_are_planned(void **state)
{
    enum { BLOCKS = 4000, LAYERS = 128, TOKENS = 1 << 20 };
    struct work work = {0};

    (void)state;
    work_open(&work, LAYERS, 1, TOKENS, BLOCKS, BLOCKS);
    work_do(&work);
    assert_true(work.filled.totals.fragments == (uint64_t)BLOCKS * LAYERS * 2 * TOKENS);
    assert_true(work.filled.totals.fragments > UINT64_C(1000000000000));
    assert_int_equal(work.filled.stripe_count, 1);
    assert_int_equal(
        touched(work.scratch.pairs, work.scratch.pairs_max, sizeof(struct stripe_pair)), BLOCKS);
    work_close(&work);
}

static void a_template_takes_memory_by_layers_alone(void **state)
{
    struct work small = {0}, slots = {0}, layers = {0};

    (void)state;
    work_open(&small, 40, 128, 32, 1, 10);
    work_open(&slots, 40, 128, 32, 1, 80000);
    work_open(&layers, 80, 128, 32, 1, 80000);
    assert_int_equal(slots.template_bytes, small.template_bytes);
    assert_true(layers.template_bytes <= 2 * small.template_bytes);
    assert_true(layers.template_bytes < 80 * 100); /* bytes a layer */
    work_close(&small);
    work_close(&slots);
    work_close(&layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_65536_fragments_and_of_a_million_are_the_same_work),
        cmocka_unit_test(a_trillion_fragments_are_planned),
        cmocka_unit_test(a_template_takes_memory_by_layers_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
