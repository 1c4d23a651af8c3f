/*
 * test_geometry_wire.c - the wire form of a record (docs/geometry.md, section 4): what is written
 * is read back, and nothing that arrives can do harm.
 */
#include <stdlib.h>
#include <string.h>

#include "fail_heap.h"
#include "geo_make.h"
#include "plan.h"
#include "wire.h"

enum { BYTES_MAX = 65536, TAG_LATER_OPTIONAL = 999 };

static struct geo_record *rich_record(uint32_t rank)
{
    struct geo_make_model model;
    struct geo_make_grid grid = {.tp = 4, .dp = 2, .pp = 2, .layers = {4, 3}};
    struct geo_make_params params = {.model = &model, .grid = &grid, .slots = 4};
    struct geo_record *record;

    geo_make_model(&model, 7, 4, 64, 16);
    for (uint32_t l = 0; l < 6; l++) {
        model.layers[l].index_bytes = 12;
    }
    model.layers[1] = (struct kvf_model_layer){
        .state_units = 16, .state_unit_bytes = 32, .section_count = 2, .section_bytes = {64, 128}};
    model.layers[2].window = 64;
    model.layers[6].owner = KVF_OWNER_DRAFT;
    model.layers[6].k_only = true;
    model.model.ownership_bridge = rank % 2 == 0;
    model.model.aux_count = 2;
    model.aux_bytes[0] = 4;
    record = geo_make_record(&params, rank);
    if (model.model.ownership_bridge) {
        record->bounce = (struct geo_bounce){0}; /* the two exclude each other */
    }
    return record;
}

static size_t encode(const struct geo_record *record, uint8_t *bytes)
{
    size_t len = 0;

    assert_int_equal(geo_record_encode(record, bytes, BYTES_MAX, &len), KVF_OK);
    return len;
}

static enum kvf_status decode(const uint8_t *bytes, size_t len, struct geo_record **record_out)
{
    /* A copy of the exact size: a read past the end is seen by the address sanitizer. */
    uint8_t *copy = malloc(len == 0 ? 1 : len);
    struct geo_text text = {{0}};
    enum kvf_status status;

    memcpy(copy, bytes, len);
    status = geo_record_decode(kvf_heap_system(), copy, len, record_out, &text);
    assert_true((status == KVF_OK) == (text.s[0] == '\0'));
    free(copy);
    return status;
}

static void same_layout(const struct kvf_layout *a, const struct kvf_layout *b)
{
    assert_int_equal(a->pool_count, b->pool_count);
    assert_memory_equal(a->pools, b->pools, a->pool_count * sizeof(*a->pools));
    assert_int_equal(a->group_count, b->group_count);
    assert_int_equal(a->ownership_bridge, b->ownership_bridge);
    assert_int_equal(a->layer_count, b->layer_count);
    assert_int_equal(a->draft_layers, b->draft_layers);
    for (uint32_t g = 0; g < a->group_count; g++) {
        assert_int_equal(a->groups[g].window, b->groups[g].window);
        assert_int_equal(a->groups[g].layer_count, b->groups[g].layer_count);
        assert_memory_equal(a->groups[g].layers, b->groups[g].layers,
                            a->groups[g].layer_count * sizeof(uint32_t));
        assert_int_equal(a->groups[g].view_count, b->groups[g].view_count);
        for (uint32_t v = 0; v < a->groups[g].view_count; v++) {
            struct kvf_view left = a->groups[g].views[v], right = b->groups[g].views[v];

            assert_memory_equal(left.entries, right.entries,
                                left.entry_count * sizeof(*left.entries));
            left.entries = right.entries = NULL;
            assert_memory_equal(&left, &right, sizeof(left));
        }
    }
}

static void what_is_written_is_read_back(void **state)
{
    static uint8_t bytes[BYTES_MAX], again[BYTES_MAX];

    (void)state;
    for (uint32_t rank = 0; rank < 8; rank++) {
        struct geo_record *record = rich_record(rank);
        struct geo_record *read = NULL;
        size_t len = encode(record, bytes), needed = 0;

        assert_int_equal(geo_record_encode(record, NULL, 0, &needed), KVF_OK);
        assert_int_equal(needed, len);
        assert_int_equal(geo_record_encode(record, bytes, len - 1, &needed), KVF_E_TOO_LARGE);
        assert_int_equal(needed, len);
        encode(record, bytes);
        assert_int_equal(decode(bytes, len, &read), KVF_OK);
        assert_string_equal(read->instance_name, "ctx");
        assert_int_equal(read->rank, rank);
        assert_int_equal(read->place.dp_rank, record->place.dp_rank);
        assert_memory_equal(read->place.layers_per_pp, record->place.layers_per_pp,
                            2 * sizeof(uint32_t));
        assert_memory_equal(read->pools, record->pools,
                            record->layout.pool_count * sizeof(*read->pools));
        assert_memory_equal(read->aux, record->aux, 2 * sizeof(*read->aux));
        assert_memory_equal(&read->bounce, &record->bounce, sizeof(read->bounce));
        same_layout(&record->layout, &read->layout);
        assert_int_equal(encode(read, again), len);
        assert_memory_equal(again, bytes, len);
        geo_record_close(read);
        geo_record_close(record);
    }
}

static void another_version_is_refused_and_nothing_more_is_read(void **state)
{
    static const uint8_t bytes[4] = {2, 0, 0, 0};
    struct geo_record *read = NULL;

    (void)state;
    assert_int_equal(decode(bytes, 4, &read), KVF_E_WIRE_VERSION);
    assert_null(read);
}

static void a_record_without_bounce_has_it_off(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(0), *read = NULL;

    (void)state;
    record->bounce.enabled = false;
    assert_int_equal(decode(bytes, encode(record, bytes), &read), KVF_OK);
    assert_false(read->bounce.enabled);
    geo_record_close(read);
    geo_record_close(record);
}

static void a_legacy_record_has_no_heads_in_its_views(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(0), *read = NULL;
    struct kvf_view *view = geo_edit_view(record, 0, 0);

    (void)state;
    view->has_heads = view->has_heads_total = false;
    assert_int_equal(decode(bytes, encode(record, bytes), &read), KVF_OK);
    assert_false(read->layout.groups[0].views[0].has_heads);
    assert_int_equal(geo_view_heads(read, &read->layout.groups[0].views[0]), 2);
    geo_record_close(read);
    geo_record_close(record);
}

/* The record with one more field at its end. */
static size_t with_field(uint8_t *bytes, size_t len, uint16_t tag)
{
    struct wire_writer writer = wire_writer_make(bytes + len, 64);
    size_t begin = wire_put_field_begin(&writer, tag);

    wire_put_u64(&writer, 7);
    wire_put_field_end(&writer, begin);
    wire_store_u32(bytes + 4, (uint32_t)(len + writer.len_bytes));
    return len + writer.len_bytes;
}

static void unknown_optional_fields_are_skipped_and_required_ones_refused(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(0), *read = NULL;
    size_t len = encode(record, bytes);

    (void)state;
    assert_int_equal(decode(bytes, with_field(bytes, len, TAG_LATER_OPTIONAL), &read), KVF_OK);
    geo_record_close(read);
    read = NULL;
    assert_int_equal(
        decode(bytes, with_field(bytes, len, WIRE_FIELD_REQUIRED | TAG_LATER_OPTIONAL), &read),
        KVF_E_DECODE);
    assert_null(read);
    geo_record_close(record);
}

static void every_truncation_is_refused(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(1), *read = NULL;
    size_t len = encode(record, bytes);
    int whole = 0;

    (void)state;
    for (size_t cut = 0; cut < len; cut++) {
        wire_store_u32(bytes + 4, (uint32_t)len);
        assert_int_equal(decode(bytes, cut, &read), KVF_E_TRUNCATED);
        /* The same with a head that tells the truth about the length. */
        wire_store_u32(bytes + 4, (uint32_t)cut);
        if (decode(bytes, cut, &read) == KVF_OK) {
            /* Only the one optional field, the last, may be cut off. */
            assert_false(read->bounce.enabled);
            geo_record_close(read);
            read = NULL;
            whole++;
        }
        assert_null(read);
    }
    assert_int_equal(whole, 1);
    wire_store_u32(bytes + 4, (uint32_t)len);
    bytes[len] = 0;
    assert_int_equal(decode(bytes, len + 1, &read), KVF_E_DECODE);
    geo_record_close(record);
}

static void a_name_that_could_forge_a_log_line_is_refused(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(1), *read = NULL;

    (void)state;
    strcpy(record->instance_name, "ctx\nerror");
    assert_int_equal(decode(bytes, encode(record, bytes), &read), KVF_E_DECODE);
    assert_null(read);
    geo_record_close(record);
}

static void a_record_that_fails_a_local_check_leaves_no_trace(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(1), *read = NULL;
    struct fail_heap heap;
    struct geo_text text;
    size_t len;

    (void)state;
    geo_edit_entry(record, 0, 0, 0)->layer = 6;
    len = encode(record, bytes);
    fail_heap_init(&heap, 0);
    assert_int_equal(geo_record_decode(&heap.heap, bytes, len, &read, &text), KVF_E_LAYER_RANGE);
    assert_non_null(strstr(text.s, "layer 6"));
    assert_null(read);
    fail_heap_fini(&heap);
    geo_record_close(record);
}

static void decode_survives_a_failing_allocation(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(1), *read = NULL;
    size_t len = encode(record, bytes);
    struct fail_heap heap;

    (void)state;
    fail_heap_init(&heap, 1);
    assert_int_equal(geo_record_decode(&heap.heap, bytes, len, &read, NULL), KVF_E_NOMEM);
    assert_null(read);
    fail_heap_fini(&heap);
    fail_heap_init(&heap, 2);
    assert_int_equal(geo_record_decode(&heap.heap, bytes, len, &read, NULL), KVF_OK);
    assert_int_equal(heap.calls, 1);
    geo_record_close(read);
    fail_heap_fini(&heap);
    geo_record_close(record);
}

static void counts_that_the_bytes_cannot_hold_take_no_memory(void **state)
{
    static uint8_t bytes[BYTES_MAX];
    struct geo_record *record = rich_record(1), *read = NULL;
    size_t len = encode(record, bytes);
    struct fail_heap heap;

    (void)state;
    fail_heap_init(&heap, 0);
    for (size_t field = 0; field < 7; field++) {
        uint8_t *at = bytes + 8 + WIRE_FIELD_HEAD_BYTES + 4 * field;
        uint32_t was = wire_load_u32(at);

        wire_store_u32(at, 60000);
        assert_int_equal(geo_record_decode(&heap.heap, bytes, len, &read, NULL), KVF_E_DECODE);
        wire_store_u32(at, UINT32_MAX);
        assert_int_equal(geo_record_decode(&heap.heap, bytes, len, &read, NULL), KVF_E_DECODE);
        wire_store_u32(at, was);
    }
    assert_int_equal(heap.calls, 0);
    geo_record_close(record);
}

/* Values that sit on the edges of every integer size. */
static uint64_t edge(struct test_random *random)
{
    static const uint64_t edges[] = {0,          1,           0x7f,       0x80,
                                     0xff,       0xffff,      0x7fffffff, 0x80000000,
                                     0xffffffff, 0x100000000, UINT64_MAX, UINT64_MAX / 2};

    return edges[test_random_below(random, sizeof(edges) / sizeof(edges[0]))];
}

static void mutate(struct test_random *random, uint8_t *bytes, size_t len)
{
    uint64_t count = 1 + test_random_below(random, 4);

    for (uint64_t i = 0; i < count; i++) {
        size_t at = 4 + test_random_below(random, len - 12);

        switch (test_random_below(random, 4)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << test_random_below(random, 8));
            break;
        case 1:
            bytes[at] = (uint8_t)test_random_next(random);
            break;
        case 2:
            wire_store_u32(bytes + at, (uint32_t)edge(random));
            break;
        default:
            wire_store_u64(bytes + at, edge(random));
            break;
        }
    }
}

/* What is done with a peer's record at first contact. */
static void use(const struct geo_record *writer, const struct geo_record *reader)
{
    struct plan_template *template = NULL;
    struct geo_text text;

    geo_check_peer(writer, reader, GEO_CONTEXT, &text);
    if (plan_template_open(kvf_heap_system(), writer, reader, &template) == KVF_OK) {
        assert_true(plan_stripes_max(template) < BYTES_MAX);
        plan_template_close(template);
    }
}

static void mutated_records_never_do_harm(void **state)
{
    enum { ROUNDS = 40000 };
    static uint8_t bytes[BYTES_MAX], broken[BYTES_MAX];
    struct test_random random = test_random_make(test_seed());
    struct geo_record *whole = rich_record(3);
    size_t len = encode(whole, bytes);
    uint32_t accepted = 0;

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct geo_record *read = NULL;

        memcpy(broken, bytes, len);
        mutate(&random, broken, len);
        if (decode(broken, len, &read) == KVF_OK) {
            /* What was accepted is safe to use. */
            assert_int_equal(geo_check_local(read, NULL), KVF_OK);
            use(whole, read);
            use(read, whole);
            geo_record_close(read);
            accepted++;
        }
    }
    print_message("%d mutations, %u accepted\n", ROUNDS, accepted);
    assert_true(accepted > 0 && accepted < ROUNDS / 2);
    geo_record_close(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(another_version_is_refused_and_nothing_more_is_read),
        cmocka_unit_test(a_record_without_bounce_has_it_off),
        cmocka_unit_test(a_legacy_record_has_no_heads_in_its_views),
        cmocka_unit_test(unknown_optional_fields_are_skipped_and_required_ones_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_name_that_could_forge_a_log_line_is_refused),
        cmocka_unit_test(a_record_that_fails_a_local_check_leaves_no_trace),
        cmocka_unit_test(decode_survives_a_failing_allocation),
        cmocka_unit_test(counts_that_the_bytes_cannot_hold_take_no_memory),
        cmocka_unit_test(mutated_records_never_do_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
