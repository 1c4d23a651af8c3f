/* Unit tests of topology.c: the text form, its refusals, and the place of a rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <kvferry/kvf_topology.h>

static struct kvf_topology *parse_ok(const char *text)
{
    struct kvf_topology *topology = NULL;
    char reason[256] = "";
    enum kvf_status status = kvf_topology_parse(text, &topology, reason, sizeof(reason));

    if (status != KVF_OK) {
        fail_msg("\"%s\": %s: %s", text, kvf_status_name(status), reason);
    }
    return topology;
}

static void topology_deals_ranks_to_instances_in_order(void **state)
{
    struct kvf_topology *topology = parse_ok("ctx tp=2 pp=2; gen tp=4 adp");

    (void)state;
    assert_int_equal(topology->instance_count, 2);
    assert_int_equal(topology->rank_count, 8);
    assert_string_equal(topology->instances[0].name, "ctx0");
    assert_int_equal(topology->instances[0].side, KVF_CONTEXT);
    assert_int_equal(topology->instances[0].first_rank, 0);
    assert_int_equal(topology->instances[0].tp_size, 2);
    assert_int_equal(topology->instances[0].pp_size, 2);
    assert_int_equal(topology->instances[0].dp_size, 1);
    assert_false(topology->instances[0].attention_dp);
    assert_null(topology->instances[0].layers_per_pp);
    assert_string_equal(topology->instances[1].name, "gen0");
    assert_int_equal(topology->instances[1].first_rank, 4);
    assert_true(topology->instances[1].attention_dp);
    assert_int_equal(topology->instances[1].dp_size, 4);
    assert_int_equal(kvf_topology_instance_of(topology, 3), 0);
    assert_int_equal(kvf_topology_instance_of(topology, 4), 1);
    assert_int_equal(kvf_topology_instance_of(topology, 7), 1);
    assert_int_equal(kvf_topology_instance_of(topology, 8), -1);
    kvf_topology_free(topology);
}

static void topology_spreads_copies_and_names(void **state)
{
    struct kvf_topology *topology =
        parse_ok("context layers=20,12 x=2;generation tp=8 dp=2 name=wide;\n gen x=2 name=g-; ");

    (void)state;
    assert_int_equal(topology->instance_count, 5);
    assert_int_equal(topology->rank_count, 4 + 8 + 2);
    assert_string_equal(topology->instances[1].name, "ctx1");
    assert_int_equal(topology->instances[1].pp_size, 2);
    assert_int_equal(topology->instances[1].first_rank, 2);
    assert_int_equal(topology->instances[1].layers_per_pp[0], 20);
    assert_int_equal(topology->instances[1].layers_per_pp[1], 12);
    assert_string_equal(topology->instances[2].name, "wide");
    assert_true(topology->instances[2].attention_dp);
    assert_string_equal(topology->instances[3].name, "g-0");
    assert_string_equal(topology->instances[4].name, "g-1");
    kvf_topology_free(topology);
}

static void topology_text_reads_back_as_the_same(void **state)
{
    static const char *const texts[] = {
        "ctx; gen",
        "ctx tp=2 pp=2; gen tp=4 adp",
        "ctx tp=4 dp=2 pp=3 layers=1,0,7 x=3; gen tp=2 name=g x=2; ctx name=late",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct kvf_topology *first = parse_ok(texts[i]);
        struct kvf_topology *second;
        char text[1024], again[1024];

        assert_int_equal(kvf_topology_format(first, text, sizeof(text)), KVF_OK);
        second = parse_ok(text);
        assert_int_equal(second->instance_count, first->instance_count);
        assert_int_equal(second->rank_count, first->rank_count);
        for (uint32_t k = 0; k < first->instance_count; k++) {
            assert_string_equal(first->instances[k].name, second->instances[k].name);
            assert_int_equal(first->instances[k].dp_size, second->instances[k].dp_size);
            assert_int_equal(first->instances[k].side, second->instances[k].side);
        }
        assert_int_equal(kvf_topology_format(second, again, sizeof(again)), KVF_OK);
        assert_string_equal(text, again);
        for (size_t room = 1; room <= strlen(text); room++) {
            assert_int_equal(kvf_topology_format(first, again, room), KVF_E_TOO_LARGE);
        }
        kvf_topology_free(first);
        kvf_topology_free(second);
    }
}

struct refusal {
    const char *text;
    enum kvf_status status;
    const char *says; /* part of the reason */
};

static void topology_refuses_by_name(void **state)
{
    static const struct refusal refusals[] = {
        {"", KVF_E_PARSE, "is empty"},
        {"  ", KVF_E_PARSE, "is empty"},
        {"ctx", KVF_E_TOPOLOGY, "no gen instance"},
        {"gen tp=2", KVF_E_TOPOLOGY, "no ctx instance"},
        {"ctx;;gen", KVF_E_PARSE, "part 2: nothing between"},
        {"ctx; jen", KVF_E_PARSE, "part 2: begins with \"jen\""},
        {"ctx tp=2x; gen", KVF_E_PARSE, "tp is \"2x\"; want a whole number from 1 to"},
        {"ctx tp=0; gen", KVF_E_PARSE, "tp is \"0\""},
        {"ctx tp=-1; gen", KVF_E_PARSE, "tp is \"-1\""},
        {"ctx tp=; gen", KVF_E_PARSE, "tp is \"\""},
        {"ctx tp; gen", KVF_E_PARSE, "tp is \"\""},
        {"ctx tp=99999999999; gen", KVF_E_PARSE, "tp is \"99999999999\""},
        {"ctx pp=2000; gen", KVF_E_PARSE, "from 1 to 1024"},
        {"ctx cp=2; gen", KVF_E_PARSE, "\"cp=2\" is no key; known are tp, pp, dp"},
        {"ctx tp=4 dp=3; gen", KVF_E_DP_SHAPE, "3 groups do not divide tp 4"},
        {"ctx pp=2 layers=1; gen", KVF_E_TOPOLOGY, "layers names 1 stages, pp is 2"},
        {"ctx layers=1,; gen", KVF_E_PARSE, "layers is \"1,\""},
        {"ctx layers=1,,2; gen", KVF_E_PARSE, "layers has \"\""},
        {"ctx layers=a; gen", KVF_E_PARSE, "layers has \"a\""},
        {"ctx x=2000; gen", KVF_E_PARSE, "x is \"2000\""},
        {"ctx x=1024; gen", KVF_E_TOPOLOGY, "too large"},
        {"ctx tp=60000 x=2; gen", KVF_E_TOPOLOGY, "too large"},
        {"ctx name=a/b; gen", KVF_E_PARSE, "name is \"a/b\""},
        {"ctx name=a; gen name=a", KVF_E_TOPOLOGY, "two instances are named a"},
        {"ctx name=gen0; gen", KVF_E_TOPOLOGY, "two instances are named gen0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct kvf_topology *topology = NULL;
        char reason[256] = "";

        if (kvf_topology_parse(refusals[i].text, &topology, reason, sizeof(reason)) !=
                refusals[i].status ||
            strstr(reason, refusals[i].says) == NULL || topology != NULL) {
            fail_msg("\"%s\" gave \"%s\", want \"%s\"", refusals[i].text, reason, refusals[i].says);
        }
        assert_int_equal(kvf_topology_parse(refusals[i].text, &topology, NULL, 0),
                         refusals[i].status);
    }
    assert_int_equal(kvf_topology_parse(NULL, NULL, NULL, 0), KVF_E_INVAL);
}

static void topology_refuses_a_text_without_end(void **state)
{
    size_t bytes = 70000;
    char *text = malloc(bytes + 1);
    struct kvf_topology *topology = NULL;

    (void)state;
    assert_non_null(text);
    memset(text, ';', bytes);
    text[bytes] = '\0';
    assert_int_equal(kvf_topology_parse(text, &topology, NULL, 0), KVF_E_PARSE);
    free(text);
}

static void place_follows_from_the_rank(void **state)
{
    struct kvf_topology *topology = parse_ok("ctx tp=2 pp=3; gen tp=4 dp=2");
    uint32_t layers[KVF_PP_MAX];
    struct kvf_place place;

    (void)state;
    assert_int_equal(kvf_place(topology, 3, 8, layers, &place), KVF_OK);
    assert_int_equal(place.tp_rank, 1);
    assert_int_equal(place.pp_rank, 1);
    assert_int_equal(place.cp_size, 1);
    assert_int_equal(place.layers_per_pp[0], 3);
    assert_int_equal(place.layers_per_pp[1], 3);
    assert_int_equal(place.layers_per_pp[2], 2);
    assert_int_equal(kvf_place(topology, 6 + 3, 8, layers, &place), KVF_OK);
    assert_int_equal(place.tp_rank, 3);
    assert_int_equal(place.dp_rank, 1);
    assert_int_equal(place.layers_per_pp[0], 8);
    assert_int_equal(kvf_place(topology, 10, 8, layers, &place), KVF_E_INVAL);
    kvf_topology_free(topology);
}

static void place_refuses_layers_that_do_not_sum_up(void **state)
{
    struct kvf_topology *topology = parse_ok("ctx layers=20,12; gen");
    uint32_t layers[KVF_PP_MAX];
    struct kvf_place place;

    (void)state;
    assert_int_equal(kvf_place(topology, 1, 32, layers, &place), KVF_OK);
    assert_int_equal(place.pp_rank, 1);
    assert_int_equal(kvf_place(topology, 1, 33, layers, &place), KVF_E_TOPOLOGY);
    assert_int_equal(kvf_place(topology, 2, 33, layers, &place), KVF_OK);
    kvf_topology_free(topology);
}

static void place_allows_stages_without_layers(void **state)
{
    struct kvf_topology *topology = parse_ok("ctx pp=4; gen");
    uint32_t layers[KVF_PP_MAX];
    struct kvf_place place;

    (void)state;
    assert_int_equal(kvf_place(topology, 3, 2, layers, &place), KVF_OK);
    assert_int_equal(place.layers_per_pp[1], 1);
    assert_int_equal(place.layers_per_pp[2], 0);
    kvf_topology_free(topology);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(topology_deals_ranks_to_instances_in_order),
        cmocka_unit_test(topology_spreads_copies_and_names),
        cmocka_unit_test(topology_text_reads_back_as_the_same),
        cmocka_unit_test(topology_refuses_by_name),
        cmocka_unit_test(topology_refuses_a_text_without_end),
        cmocka_unit_test(place_follows_from_the_rank),
        cmocka_unit_test(place_refuses_layers_that_do_not_sum_up),
        cmocka_unit_test(place_allows_stages_without_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
