/* test_config_yaml.c - settings files: maps, what is refused, and where it says it is. */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"

static const char *const instances[] = {"ctx0", "gen0", "gen1"};

static const struct settings_target target_gen1 = {
    .side = KVF_GENERATION, .instance = "gen1", .instances = instances, .instance_count = 3};

static enum kvf_status load(struct kvf_settings *settings, const char *text,
                            const struct settings_target *target, struct settings_report *report)
{
    memset(report, 0, sizeof(*report));
    settings_defaults(settings);
    return settings_load_yaml_text(settings, text, "k.yaml", target, report);
}

static const char text_maps[] = "# comment\n"
                                "all:\n"
                                "  direct_window: 11\n"
                                "  sweep_lag: 1\n"
                                "  tombstones_max: 1\n"
                                "  paths: [mapped, direct]\n"
                                "generation:\n"
                                "  sweep_lag: 2\n"
                                "  tombstones_max: 2\n"
                                "context:\n"
                                "  sweep_lag: 3\n"
                                "instances:\n"
                                "  gen1:\n"
                                "    tombstones_max: 3\n"
                                "    agent_bounce_params:\n"
                                "      max_chunk_size: 2MiB\n"
                                "  ctx0:\n"
                                "    tombstones_max: 4\n";

static void yaml_later_map_wins(void **state)
{
    struct settings_target target = target_gen1;
    struct settings_report report;
    struct kvf_settings settings;
    char text[80];

    (void)state;
    assert_int_equal(load(&settings, text_maps, &target, &report), KVF_OK);
    assert_int_equal(settings.direct_window, 11);
    assert_int_equal(settings.sweep_lag, 2);
    assert_int_equal(settings.tombstones_max, 3);
    assert_int_equal(settings.paths, 1u << KVF_PATH_MAPPED | 1u << KVF_PATH_DIRECT);
    assert_int_equal(settings.max_chunk_size, 2 << 20);
    assert_true(settings.has_bounce_params);
    settings_origin_text(&settings, SETTINGS_I_max_chunk_size, text, sizeof(text));
    assert_string_equal(text, "file, map instances, line 16");
    settings_origin_text(&settings, SETTINGS_I_sweep_lag, text, sizeof(text));
    assert_string_equal(text, "file, map context or generation, line 8");
    target.instance = "gen0";
    assert_int_equal(load(&settings, text_maps, &target, &report), KVF_OK);
    assert_int_equal(settings.tombstones_max, 2);
    assert_false(settings.has_bounce_params);
    target.instance = "ctx0";
    target.side = KVF_CONTEXT;
    assert_int_equal(load(&settings, text_maps, &target, &report), KVF_OK);
    assert_int_equal(settings.sweep_lag, 3);
    assert_int_equal(settings.tombstones_max, 4);
}

static void yaml_empty_files_change_nothing(void **state)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "# only a comment\n",
                                        "---\n",
                                        "all: {}\n",
                                        "instances: {}\n",
                                        "generation: {}\ncontext: {}\n"};
    struct settings_report report;
    struct kvf_settings defaults;
    struct kvf_settings settings;

    (void)state;
    settings_defaults(&defaults);
    for (unsigned i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        enum kvf_status status = load(&settings, texts[i], &target_gen1, &report);

        if (i == 3) { /* a document that is null */
            assert_int_equal(status, KVF_E_CONFIG);
            continue;
        }
        assert_int_equal(status, KVF_OK);
        assert_memory_equal(&settings, &defaults, sizeof(settings));
    }
}

static void yaml_empty_bounce_map_counts_as_present(void **state)
{
    struct settings_report report;
    struct kvf_settings settings;

    (void)state;
    assert_int_equal(load(&settings, "all:\n  agent_bounce_params: {}\n", &target_gen1, &report),
                     KVF_OK);
    assert_true(settings.has_bounce_params);
}

struct refusal {
    const char *text;
    const char *error;
};

static const struct refusal refusals[] = {
    {"all:\n  kv_cache_bounce_size_mb: 12x\n",
     "k.yaml:2: kv_cache_bounce_size_mb is \"12x\"; want a whole number from 0 to 1048576"},
    {"all:\n  direct_window: 1e3\n",
     "k.yaml:2: direct_window is \"1e3\"; want a whole number from 1 to 65536"},
    {"all:\n  direct_window:\n",
     "k.yaml:2: direct_window is \"\"; want a whole number from 1 to 65536"},
    {"all: {direct_window: -1}\n",
     "k.yaml: direct_window is \"-1\"; want a whole number from 1 to 65536"},
    {"all:\n  sweep_lag: 1\n\n  # c\n  sweep_lagg: 2\n",
     "k.yaml:5: unknown setting \"sweep_lagg\"; the nearest is sweep_lag"},
    {"all:\n  agent_bounce_params:\n    max_chunk: 2\n",
     "k.yaml:3: unknown setting \"max_chunk\"; the nearest is max_chunk_size"},
    {"all:\n  max_chunk_size: 2\n",
     "k.yaml:2: max_chunk_size belongs inside the map agent_bounce_params"},
    {"all:\n  agent_bounce_params:\n    sweep_lag: 2\n",
     "k.yaml:3: sweep_lag belongs outside the map agent_bounce_params"},
    {"every:\n  sweep_lag: 1\n",
     "k.yaml:1: unknown map \"every\"; want all, context, generation or instances"},
    {"sweep_lag: 1\n",
     "k.yaml:1: unknown map \"sweep_lag\"; want all, context, generation or instances"},
    {"instances:\n  gen2:\n    sweep_lag: 1\n",
     "k.yaml:2: unknown instance \"gen2\"; the nearest in the topology is gen0"},
    {"instances:\n  gen1:\n    sweep: 1\n",
     "k.yaml:3: unknown setting \"sweep\"; the nearest is sweep_lag"},
    {"context:\n  connect_timeout_ms: 500\n",
     "k.yaml:2: connect_timeout_ms must be equal on all ranks: set it in the map all"},
    {"context:\n  sweep_lag: 65\n", /* not this rank's map */
     "k.yaml:2: sweep_lag is \"65\"; want a whole number from 0 to 64"},
    {"instances:\n  ctx0:\n    sweep_lag: x\n",
     "k.yaml:3: sweep_lag is \"x\"; want a whole number from 0 to 64"},
    {"all:\n  paths: mapped\n", "k.yaml:2: paths: Expecting SEQUENCE, got event: SCALAR"},
    {"all:\n  paths: []\n", "k.yaml:2: paths: Insufficient entries (0 of 1 min) in sequence."},
    {"all:\n  paths:\n  - mapped\n  - air\n",
     "k.yaml:2: paths is \"mapped,air\"; want a list of mapped, direct, bounce, twosided"},
    {"all:\n  sweep_lag: [1]\n",
     "k.yaml:2: sweep_lag: Expecting STRING, got event: SEQUENCE_START"},
    {"all:\n  sweep_lag: 1\n  sweep_lag: 2\n",
     "k.yaml:2: sweep_lag: Mapping field already seen: sweep_lag"},
    {"all: 5\n", "k.yaml:1: all: Expecting MAPPING, got event: SCALAR"},
    {"- all\n", "k.yaml: Expecting MAPPING, got event: SEQUENCE_START"},
};

static void yaml_wrong_files_are_refused_with_line_and_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct settings_report report;
        struct kvf_settings defaults;
        struct kvf_settings settings;
        enum kvf_status status = load(&settings, refusals[i].text, &target_gen1, &report);

        if (strcmp(report.error, refusals[i].error) != 0)
            fail_msg("file %zu: \"%s\", want \"%s\"", i, report.error, refusals[i].error);
        assert_int_equal(status, KVF_E_CONFIG);
        settings_defaults(&defaults); /* nothing was taken of it */
        assert_memory_equal(&settings, &defaults, sizeof(settings));
    }
}

static void yaml_broken_texts_are_refused(void **state)
{
    static const char *const texts[] = {
        "all: {direct_window: 1\n",
        "all:\n\tdirect_window: 1\n",
        "all:\n  direct_window: &x 1\n  sweep_lag: *x\n",
        "all:\n  direct_window: 1\n---\nall:\n  direct_window: 2\n",
        "all:\n  direct_window: 1\n direct_window: 1\n",
        "\x01",
        "all:\n  direct_window: \"1\n",
        "%YAML 9.9\n---\nall: {}\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct settings_report report;
        struct kvf_settings settings;

        if (load(&settings, texts[i], &target_gen1, &report) != KVF_E_CONFIG)
            fail_msg("text %zu was taken", i);
        assert_string_not_equal(report.error, "");
    }
}

static void yaml_changed_texts_never_confuse_the_reader(void **state)
{
    struct test_random random = test_random_make(test_seed());

    (void)state;
    for (unsigned round = 0; round < 3000; round++) {
        static const char pieces[] = ":{}[]-# \n\"'&*!|>%@0axy";
        char text[sizeof(text_maps)];
        struct settings_report report;
        struct kvf_settings settings;
        enum kvf_status status;

        memcpy(text, text_maps, sizeof(text));
        for (uint64_t n = test_random_below(&random, 3) + 1; n > 0; n--)
            text[test_random_below(&random, sizeof(text) - 1)] =
                pieces[test_random_below(&random, sizeof(pieces) - 1)];
        status = load(&settings, text, &target_gen1, &report);
        assert_true((status == KVF_OK) == (report.error[0] == 0));
    }
}

static void yaml_file_is_read_or_named(void **state)
{
    char path[] = "/tmp/kvferry_test_XXXXXX";
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;
    int file = mkstemp(path);
    char error[200];

    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, "all:\n  sweep_lag: 5\n", 20), 20);
    settings_defaults(&settings);
    assert_int_equal(settings_load_yaml_file(&settings, path, &target_gen1, &report), KVF_OK);
    assert_int_equal(settings.sweep_lag, 5);
    assert_int_equal(write(file, "\0", 1), 1);
    assert_int_equal(settings_load_yaml_file(&settings, path, &target_gen1, &report), KVF_E_CONFIG);
    (void)snprintf(error, sizeof(error), "settings file %s is not text", path);
    assert_string_equal(report.error, error);
    assert_int_equal(ftruncate(file, 2 << 20), 0);
    memset(&report, 0, sizeof(report));
    assert_int_equal(settings_load_yaml_file(&settings, path, &target_gen1, &report), KVF_E_CONFIG);
    assert_non_null(strstr(report.error, "longer than 1048576 bytes"));
    (void)close(file);
    (void)unlink(path);
    memset(&report, 0, sizeof(report));
    assert_int_equal(settings_load_yaml_file(&settings, "/nowhere/k.yaml", &target_gen1, &report),
                     KVF_E_CONFIG);
    assert_string_equal(report.error,
                        "settings file /nowhere/k.yaml cannot be read: No such file or directory");
    memset(&report, 0, sizeof(report));
    assert_int_equal(settings_load_yaml_file(&settings, "/tmp", &target_gen1, &report),
                     KVF_E_CONFIG);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_later_map_wins),
        cmocka_unit_test(yaml_empty_files_change_nothing),
        cmocka_unit_test(yaml_empty_bounce_map_counts_as_present),
        cmocka_unit_test(yaml_wrong_files_are_refused_with_line_and_words),
        cmocka_unit_test(yaml_broken_texts_are_refused),
        cmocka_unit_test(yaml_changed_texts_never_confuse_the_reader),
        cmocka_unit_test(yaml_file_is_read_or_named),
    };

    return cmocka_run_group_tests_name("config_yaml", tests, NULL, NULL);
}
