/*
 * Unit tests of launch/model.c, model_yaml.c and topology_yaml.c: files that describe models and
 * worlds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model.h"
#include "scratch.h"
#include "topology_yaml.h"

static bool load(const char *text, uint32_t scale, struct model *model, char *reason)
{
    char path[SCRATCH_PATH_BYTES];
    bool fine;

    scratch_write(".yaml", text, path);
    reason[0] = '\0';
    fine = model_load(path, scale, model, reason);
    scratch_remove(path);
    return fine;
}

static void load_shipped(const char *name, uint32_t scale, struct model *model)
{
    char reason[MODEL_TEXT_BYTES];
    char path[512];

    snprintf(path, sizeof(path), "%s/models/%s.yaml", LAUNCH_FOLDER, name);
    if (!model_load(path, scale, model, reason)) {
        fail_msg("%s", reason);
    }
    assert_string_equal(model->name, name);
}

static void shipped_models_have_their_published_shape(void **state)
{
    static const struct {
        const char *name;
        uint32_t layers, heads, dim;
    } shapes[] = {
        {"llama-3.1-8b", 32, 8, 128},    {"llama-3.1-70b", 80, 8, 128},
        {"qwen3-235b-a22b", 94, 4, 128}, {"deepseek-v3", 61, 1, 576},
        {"gpt-oss-120b", 36, 8, 64},
    };
    struct model model;

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        load_shipped(shapes[i].name, 0, &model);
        assert_int_equal(model.facts.layer_count, shapes[i].layers);
        assert_int_equal(model.layers[0].kv_heads, shapes[i].heads);
        assert_int_equal(model.layers[0].head_dim, shapes[i].dim);
        assert_int_equal(model.layers[0].elem_bits, 16);
        assert_int_equal(model.layers[0].dtype, KVF_DTYPE_BF16);
        model_free(&model);
    }
    load_shipped("gpt-oss-120b", 0, &model);
    assert_int_equal(model.layers[0].window, 128);
    assert_int_equal(model.layers[1].window, 0);
    assert_int_equal(model.layers[34].window, 128);
    model_free(&model);
    load_shipped("deepseek-v3", 4, &model);
    assert_true(model.facts.mla);
    assert_true(model.layers[3].k_only);
    assert_int_equal(model.facts.layer_count, 4);
    model_free(&model);
}

static void draft_state_scale_and_index_land_on_their_layers(void **state)
{
    struct model model;

    (void)state;
    load_shipped("tiny-fp4", 2, &model);
    assert_int_equal(model.facts.layer_count, 4);
    assert_int_equal(model.target_layers, 2);
    assert_int_equal(model.layers[0].index_bytes, 0);
    assert_int_equal(model.layers[1].index_bytes, 12);
    assert_int_equal(model.layers[1].scale_per, 16);
    assert_int_equal(model.layers[1].elem_bits, 4);
    assert_int_equal(model.layers[2].owner, KVF_OWNER_DRAFT);
    assert_int_equal(model.layers[3].kv_heads, 2);
    assert_int_equal(model.layers[3].elem_bits, 8);
    assert_int_equal(model.layers[3].scale_per, 0);
    assert_int_equal(model.facts.aux_count, 3);
    assert_int_equal(model.facts.aux_bytes[2], 8);
    model_free(&model);
    load_shipped("tiny-state", 0, &model);
    assert_int_equal(model.layers[0].kv_heads, 0);
    assert_int_equal(model.layers[0].state_units, 8);
    assert_int_equal(model.layers[0].section_count, 3);
    assert_int_equal(model.layers[0].section_bytes[2], 120);
    assert_int_equal(model.layers[2].kv_heads, 4);
    assert_int_equal(model.layers[2].state_units, 0);
    model_free(&model);
    load_shipped("qwen3-next-like", 0, &model);
    assert_int_equal(model.layers[46].state_units, 32);
    assert_int_equal(model.layers[47].state_units, 0);
    model_free(&model);
}

#define BASE "name: m\nlayers: 4\nhead_dim: 8\nblock: 16\n"

static void values_and_lists_may_stand_for_each_other(void **state)
{
    char reason[MODEL_TEXT_BYTES];
    struct model model;

    (void)state;
    assert_true(load(BASE
                     "kv_heads: [8, 0, 4, 8]\nwindow: [64, 0, 32]\nk_only: [1, 3]\n"
                     "index: {bytes: 3, layers: [0, 2-3]}\ndraft: {layers: 2, kv_heads: [1, 2]}\n",
                     0, &model, reason));
    assert_int_equal(model.layers[1].kv_heads, 0);
    assert_int_equal(model.layers[2].kv_heads, 4);
    assert_int_equal(model.layers[3].window, 64);
    assert_false(model.layers[0].k_only);
    assert_true(model.layers[3].k_only);
    assert_int_equal(model.layers[1].index_bytes, 0);
    assert_int_equal(model.layers[3].index_bytes, 3);
    assert_int_equal(model.layers[5].kv_heads, 2);
    model_free(&model);
    assert_true(
        load(BASE "kv_heads: 2\nwindow: 9\nk_only: 1-2\nelem_bits: 8\n", 3, &model, reason));
    assert_int_equal(model.facts.layer_count, 3);
    assert_int_equal(model.layers[2].kv_heads, 2);
    assert_int_equal(model.layers[2].window, 9);
    assert_true(model.layers[2].k_only);
    assert_int_equal(model.layers[2].elem_bits, 8);
    assert_int_equal(model.layers[2].dtype, KVF_DTYPE_NONE);
    model_free(&model);
}

static void model_names_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *says;
    } wrong[] = {
        {BASE "kv_head: 8\n", "unknown key \"kv_head\"; the nearest is kv_heads"},
        {BASE "zzzzzzzzz: 8\n", "unknown key \"zzzzzzzzz\""},
        {BASE, "kv_heads is missing"},
        {"name: m\nkv_heads: 8\nhead_dim: 8\nblock: 16\n", "layers is missing"},
        {"layers: 4\n", "name"},
        {"name: m\nlayers: 4\nkv_heads: 8\nblock: 16\n", "head_dim is missing"},
        {"name: m\nlayers: 4\nkv_heads: 8\nhead_dim: 8\n", "block is missing"},
        {"name: m\nlayers: 0\nkv_heads: 8\n", "layers is \"0\"; want a whole number from 1 to"},
        {BASE "kv_heads: 12x\n", "kv_heads is \"12x\"; want a whole number from 0 to"},
        {BASE "kv_heads: 1e3\n", "kv_heads is \"1e3\""},
        {BASE "kv_heads: -8\n", "kv_heads is \"-8\""},
        {BASE "kv_heads: [8, 8]\n", "kv_heads has 2 numbers; want one for each of the 4 layers"},
        {BASE "kv_heads: {a: b}\n", "line 5: kv_heads: Expecting STRING"},
        {BASE "kv_heads: 8\nlayout: HDN\n", "layout is \"HDN\"; want HND or NHD"},
        {BASE "kv_heads: 8\nmla: yes\n", "mla is \"yes\"; want true or false"},
        {BASE "kv_heads: 8\nmla: true\n", "kv_heads is 8 in layer 0; a model with mla has 1"},
        {BASE "kv_heads: 8\ndtype: fp9\n", "dtype is \"fp9\"; want bf16"},
        {BASE "kv_heads: 8\ndtype: bf16\nelem_bits: 8\n", "elem_bits is 8"},
        {BASE "kv_heads: 8\nelem_bits: 5\n", "elem_bits is 5"},
        {BASE "kv_heads: 8\nk_only: 2-9\n", "k_only has \"2-9\"; want layers from 0 to 3"},
        {BASE "kv_heads: 8\nk_only: 3-2\n", "k_only has \"3-2\""},
        {BASE "kv_heads: 8\nscale: {per: 16}\n", "scale bits is missing"},
        {BASE "kv_heads: 8\nscale: {per: 16, bits: 8}\n", "scale per is 16; want a divisor"},
        {BASE "kv_heads: 8\nindex: {layers: 1}\n", "index bytes is missing"},
        {BASE "kv_heads: 8\nrecurrent: {units: 8, unit_bytes: 8}\n", "recurrent layers is missing"},
        {BASE "kv_heads: 8\nrecurrent: {layers: 1, units: 0, unit_bytes: 8}\n",
         "recurrent units is \"0\""},
        {BASE "kv_heads: 8\ndraft: {kv_heads: 8}\n", "draft layers is missing"},
        {BASE "kv_heads: 8\naux: [70000]\n", "aux is \"70000\""},
        {BASE "kv_heads: 8\nkv_heads: 8\n", "already seen: kv_heads"},
        {"- a\n", "Expecting MAPPING"},
        {"", "is empty"},
        {"name: [\n", "name"},
    };
    char reason[MODEL_TEXT_BYTES];
    struct model model;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (load(wrong[i].text, 0, &model, reason) || strstr(reason, wrong[i].says) == NULL ||
            strncmp(reason, "model /tmp/", 11) != 0) {
            fail_msg("%s: \"%s\", want \"%s\"", wrong[i].text, reason, wrong[i].says);
        }
    }
    assert_false(model_load("./nowhere.yaml", 0, &model, reason));
    assert_non_null(strstr(reason, "./nowhere.yaml: No such file"));
    assert_false(model_load("no-such-model", 0, &model, reason));
    assert_non_null(strstr(reason, "no model \"no-such-model\""));
}

static void topology_file_says_the_same_as_the_text(void **state)
{
    static const struct {
        const char *text, *form, *says;
    } files[] = {
        {"- {role: context, tp: 2, pp: 2}\n- {role: gen, tp: 4, adp: true}\n",
         "ctx tp=2 pp=2; gen tp=4 pp=1 dp=4", NULL},
        {"- {role: ctx, layers: [20, 12], count: 2, name: c}\n- {role: gen, tp: 4, dp: 2}\n",
         "ctx tp=1 pp=2 layers=20,12 name=c0; ctx tp=1 pp=2 layers=20,12 name=c1; "
         "gen tp=4 pp=1 dp=2",
         NULL},
        {"- {role: ctx, tpp: 2}\n", NULL, "unknown key \"tpp\"; the nearest is tp"},
        {"- {role: ctx, tp: 2 pp=3}\n- {role: gen}\n", NULL, "tp is \"2 pp=3\"; want one word"},
        {"- {role: ctx, tp: x}\n- {role: gen}\n", NULL, "part 1: tp is \"x\""},
        {"- {role: ctx, adp: 1}\n- {role: gen}\n", NULL, "adp is \"1\"; want true or false"},
        {"- {tp: 2}\n", NULL, "role"},
        {"- {role: ctx}\n", NULL, "no gen instance"},
        {"", NULL, "is empty"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct kvf_topology *topology = NULL;
        char path[SCRATCH_PATH_BYTES];
        char reason[TOPOLOGY_TEXT_BYTES] = "";
        char form[512] = "";
        bool fine;

        scratch_write(".yaml", files[i].text, path);
        fine = topology_load(path, &topology, reason);
        scratch_remove(path);
        if (fine != (files[i].form != NULL) || (!fine && strstr(reason, files[i].says) == NULL)) {
            fail_msg("%s: \"%s\"", files[i].text, reason);
        }
        if (fine) {
            assert_int_equal(kvf_topology_format(topology, form, sizeof(form)), KVF_OK);
            assert_string_equal(form, files[i].form);
        }
        kvf_topology_free(topology);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(shipped_models_have_their_published_shape),
        cmocka_unit_test(draft_state_scale_and_index_land_on_their_layers),
        cmocka_unit_test(values_and_lists_may_stand_for_each_other),
        cmocka_unit_test(model_names_what_is_wrong),
        cmocka_unit_test(topology_file_says_the_same_as_the_text),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
