/*
 * Unit tests of launch/content.c and oracle.c: each way of writing wrong bytes is seen. A rank's
 * pools are made for every shipped model and several widths; corruptions are planted one by one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvferry/kvf_topology.h>

#include "model.h"
#include "oracle.h"

#define SLOTS 8u

struct fixture {
    struct model model;
    struct kvf_topology *topology;
    uint32_t layers[KVF_PP_MAX];
    struct kvf_place place;
    struct kvf_layout *made;
    struct kvf_layout layout;
    struct kvf_pool_shape shapes[16];
    uint8_t *bases[16];
    uint64_t slots[16];
    struct oracle *oracle;
};

static void fixture_open(struct fixture *fixture, const char *name, const char *form, uint32_t rank)
{
    char text[MODEL_TEXT_BYTES], path[512];
    struct oracle_params params;

    memset(fixture, 0, sizeof(*fixture));
    snprintf(path, sizeof(path), "%s/models/%s.yaml", LAUNCH_FOLDER, name);
    assert_true(model_load(path, 3, &fixture->model, text));
    assert_int_equal(kvf_topology_parse(form, &fixture->topology, text, sizeof(text)), KVF_OK);
    assert_int_equal(kvf_place(fixture->topology, rank, fixture->model.facts.layer_count,
                               fixture->layers, &fixture->place),
                     KVF_OK);
    assert_int_equal(kvf_layout_from_model(&fixture->model.facts, &fixture->place, &fixture->made,
                                           text, sizeof(text)),
                     KVF_OK);
    fixture->layout = *fixture->made;
    assert_in_range(fixture->made->pool_count, 1, 16);
    for (uint32_t p = 0; p < fixture->made->pool_count; p++) {
        fixture->shapes[p] = fixture->made->pools[p];
        fixture->shapes[p].slot_stride = oracle_stride(fixture->shapes[p].slot_bytes);
        fixture->bases[p] = calloc(SLOTS, fixture->shapes[p].slot_stride);
        assert_non_null(fixture->bases[p]);
    }
    fixture->layout.pools = fixture->shapes;
    for (uint32_t g = 0; g < fixture->made->group_count; g++) {
        fixture->slots[g] = SLOTS;
    }
    params.layout = &fixture->layout;
    params.model = &fixture->model.facts;
    params.place = content_place_of(&fixture->place);
    params.bases = fixture->bases;
    params.group_slots = fixture->slots;
    fixture->oracle = oracle_open(&params, text);
    if (fixture->oracle == NULL) {
        fail_msg("%s, %s: %s", name, form, text);
    }
}

static void fixture_close(struct fixture *fixture)
{
    oracle_close(fixture->oracle);
    for (uint32_t p = 0; p < fixture->made->pool_count; p++) {
        free(fixture->bases[p]);
    }
    kvf_layout_free(fixture->made);
    kvf_topology_free(fixture->topology);
    model_free(&fixture->model);
}

static struct oracle_owner owner_of(uint32_t job, uint32_t ordinal)
{
    struct oracle_owner owner = {job, ordinal, content_key(CONTENT_REQUEST, job + 1)};

    return owner;
}

static uint64_t check_all(struct fixture *fixture)
{
    struct oracle_bad bad;
    uint64_t wrong = 0;

    for (uint32_t g = 0; g < fixture->layout.group_count; g++) {
        for (uint32_t slot = 0; slot < SLOTS; slot++) {
            wrong += oracle_check(fixture->oracle, g, slot, &bad);
        }
    }
    return wrong;
}

static void untouched_pools_are_right(void **state)
{
    static const char *const names[] = {
        "tiny-hnd",     "tiny-nhd",           "tiny-mla",         "tiny-odd",
        "tiny-one",     "tiny-window",        "tiny-state",       "tiny-fp4",
        "fp4-like",     "draft-like",         "draft-same-size",  "gpt-oss-120b",
        "llama-3.1-8b", "deepseek-v3.2-like", "kimi-linear-like", "nvfp4-eagle-like",
    };
    static const char *const forms[] = {"ctx; gen tp=2", "ctx tp=2 pp=2; gen", "ctx tp=2 adp; gen"};
    struct fixture *fixture = malloc(sizeof(*fixture));

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
            fixture_open(fixture, names[i], forms[f], 1);
            assert_int_equal(check_all(fixture), 0);
            for (uint32_t g = 0; g < fixture->layout.group_count; g++) {
                struct oracle_owner owner = owner_of(g, 2);

                oracle_fill(fixture->oracle, g, 3, &owner);
            }
            assert_int_equal(check_all(fixture), 0);
            fixture_close(fixture);
        }
    }
    free(fixture);
}

/* Every single byte of the pools, canaries and guards included: flipping it is seen, once. */
static void any_flipped_byte_is_seen(void **state)
{
    static const char *const names[] = {"tiny-odd", "tiny-fp4", "tiny-state", "tiny-window"};
    struct fixture *fixture = malloc(sizeof(*fixture));

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        fixture_open(fixture, names[i], "ctx tp=2; gen", 1);
        for (uint32_t p = 0; p < fixture->layout.pool_count; p++) {
            uint64_t bytes = SLOTS * fixture->shapes[p].slot_stride;

            for (uint64_t at = 0; at < bytes; at += 1 + at / 997) {
                fixture->bases[p][at] ^= 0x10;
                assert_int_equal(check_all(fixture), 1);
                assert_int_equal(check_all(fixture), 0);
            }
        }
        fixture_close(fixture);
    }
    free(fixture);
}

static void bad_byte_is_named(void **state)
{
    struct fixture *fixture = malloc(sizeof(*fixture));
    struct oracle_owner owner = owner_of(4, 5);
    const struct kvf_entry *entry = NULL;
    struct oracle_bad bad;
    uint8_t *byte;
    uint8_t old;

    (void)state;
    fixture_open(fixture, "tiny-hnd", "ctx; gen tp=2", 2); /* holds heads 4 to 7 */
    oracle_fill(fixture->oracle, 0, 6, &owner);
    for (uint32_t i = 0; i < fixture->layout.groups[0].views[0].entry_count; i++) {
        entry = &fixture->layout.groups[0].views[0].entries[i];
        if (entry->layer == 1 && entry->role == KVF_VALUE) {
            break;
        }
    }
    /* local head 2, token 3 of the block, byte 9: rows of 16 tokens x 32 bytes a head */
    byte = fixture->bases[0] + 6 * fixture->shapes[0].slot_stride + entry->offset + 2 * 16 * 32 +
           3 * 32 + 9;
    old = *byte;
    *byte = (uint8_t)~old;
    assert_int_equal(oracle_check(fixture->oracle, 0, 6, &bad), 1);
    assert_int_equal(bad.what, ORACLE_CONTENT);
    assert_int_equal(bad.owner.job, 4);
    assert_int_equal(bad.layer, 1);
    assert_int_equal(bad.role, KVF_VALUE);
    assert_int_equal(bad.head, 6);
    assert_int_equal(bad.token, 5 * 16 + 3);
    assert_int_equal(bad.want, old);
    assert_int_equal(bad.got, (uint8_t)~old);
    fixture->bases[0][6 * fixture->shapes[0].slot_stride + fixture->shapes[0].slot_bytes] ^= 1;
    assert_int_equal(oracle_check(fixture->oracle, 0, 6, &bad), 1);
    assert_int_equal(bad.what, ORACLE_CANARY);
    assert_int_equal(bad.owner.job, 4);
    fixture_close(fixture);
    free(fixture);
}

/* Copies one page's buffers between two ranks as a transfer would, wrong by so many heads. */
static void move_heads(const struct fixture *from, uint32_t from_slot, const struct fixture *to,
                       uint32_t to_slot, uint32_t first_head)
{
    const struct kvf_view *a = &from->layout.groups[0].views[0];
    const struct kvf_view *b = &to->layout.groups[0].views[0];

    for (uint32_t i = 0; i < b->entry_count; i++) {
        uint64_t head_bytes = b->entries[i].size / b->heads;

        memcpy(to->bases[0] + to_slot * to->shapes[0].slot_stride + b->entries[i].offset,
               from->bases[0] + from_slot * from->shapes[0].slot_stride + a->entries[i].offset +
                   first_head * head_bytes,
               b->entries[i].size);
    }
}

static void planted_mistakes_of_a_transfer_are_seen(void **state)
{
    struct fixture *ctx = malloc(sizeof(*ctx));
    struct fixture *gen = malloc(sizeof(*gen));
    struct oracle_owner first = owner_of(0, 0), second = owner_of(0, 1), other = owner_of(1, 0);
    struct oracle_bad bad;

    (void)state;
    fixture_open(ctx, "tiny-hnd", "ctx; gen tp=2", 0);
    fixture_open(gen, "tiny-hnd", "ctx; gen tp=2", 2);
    oracle_fill(ctx->oracle, 0, 1, &first);
    oracle_fill(ctx->oracle, 0, 2, &second);
    oracle_fill(ctx->oracle, 0, 3, &other);

    oracle_lend(gen->oracle, 0, 5);
    move_heads(ctx, 1, gen, 5, 4); /* right: heads 4 to 7 */
    oracle_expect(gen->oracle, 0, 5, &first);
    assert_int_equal(oracle_check(gen->oracle, 0, 5, &bad), 0);

    move_heads(ctx, 1, gen, 5, 3); /* wrong by one head */
    assert_true(oracle_check(gen->oracle, 0, 5, &bad) > 1000);
    assert_int_equal(bad.head, 4);

    oracle_lend(gen->oracle, 0, 6); /* the last block is skipped */
    oracle_expect(gen->oracle, 0, 6, &second);
    assert_true(oracle_check(gen->oracle, 0, 6, &bad) > 1000);
    assert_int_equal(bad.token, 16);

    move_heads(ctx, 1, gen, 6, 4); /* blocks swapped */
    assert_true(oracle_check(gen->oracle, 0, 6, &bad) > 1000);

    move_heads(ctx, 3, gen, 5, 4); /* another request's bytes */
    assert_true(oracle_check(gen->oracle, 0, 5, &bad) > 1000);

    move_heads(ctx, 1, gen, 3, 4); /* a page that was not addressed */
    assert_true(oracle_check(gen->oracle, 0, 3, &bad) > 1000);
    assert_int_equal(bad.owner.job, ORACLE_NOBODY);

    oracle_lend(gen->oracle, 0, 4); /* one byte past a page that is still lent */
    gen->bases[0][4 * gen->shapes[0].slot_stride + gen->shapes[0].slot_bytes] ^= 0xff;
    assert_int_equal(oracle_check(gen->oracle, 0, 4, &bad), 1);
    assert_int_equal(bad.what, ORACLE_CANARY);
    oracle_stamp(gen->oracle, 0, 4);
    assert_int_equal(check_all(gen), 0);
    fixture_close(ctx);
    fixture_close(gen);
    free(ctx);
    free(gen);
}

/* Two ranks that hold the same heads hold the same bytes, and different ones elsewhere differ. */
static void content_depends_on_global_place_alone(void **state)
{
    struct model model;
    char text[MODEL_TEXT_BYTES], path[512];
    struct content_shape whole, part;
    struct content_place one = {1, 0}, third = {4, 3};
    uint8_t *all, *some;

    (void)state;
    snprintf(path, sizeof(path), "%s/models/tiny-nhd.yaml", LAUNCH_FOLDER);
    assert_true(model_load(path, 0, &model, text));
    assert_true(content_shape_make(&model.facts, 2, KVF_KEY, one, &whole));
    assert_true(content_shape_make(&model.facts, 2, KVF_KEY, third, &part));
    assert_int_equal(part.head_first, 6);
    assert_int_equal(part.bytes * 4, whole.bytes);
    all = malloc(whole.bytes);
    some = malloc(part.bytes);
    content_fill(&whole, 99, 3, all);
    content_fill(&part, 99, 3, some);
    for (uint32_t token = 0; token < 16; token++) {
        assert_memory_equal(all + (token * 8 + 6) * 32, some + token * 2 * 32, 64);
    }
    for (uint32_t row = 1; row < 16 * 8; row++) {
        assert_memory_not_equal(all, all + row * 32, 32);
    }
    free(all);
    free(some);
    model_free(&model);
}

static void runs_may_begin_and_end_anywhere(void **state)
{
    uint8_t whole[100], part[100];

    (void)state;
    content_run_fill(7, 0, sizeof(whole), whole);
    for (uint64_t first = 0; first < 40; first++) {
        for (uint64_t count = 0; count <= 60; count++) {
            memset(part, 0xee, sizeof(part));
            content_run_fill(7, first, count, part);
            assert_memory_equal(part, whole + first, count);
            assert_int_equal(part[count], 0xee);
            assert_int_equal(content_run_check(7, first, count, part), 0);
            if (count > 0) {
                part[count - 1] ^= 1;
                assert_int_equal(content_run_check(7, first, count, part), 1);
            }
        }
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(untouched_pools_are_right),
        cmocka_unit_test(any_flipped_byte_is_seen),
        cmocka_unit_test(bad_byte_is_named),
        cmocka_unit_test(planted_mistakes_of_a_transfer_are_seen),
        cmocka_unit_test(content_depends_on_global_place_alone),
        cmocka_unit_test(runs_may_begin_and_end_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
