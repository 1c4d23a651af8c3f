/*
 * test_config.c - the table of settings: parser, environment, combinations, broadcast, and that
 * docs/settings.md says the same. `unit_config --print-table` prints the table for the document.
 */
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"

static const struct settings_facts facts_plain = {
    .side = KVF_GENERATION, .has_bounce = true, .pp_size = 1, .cp_size = 1, .beam_width = 1};

static enum kvf_status set(struct kvf_settings *settings, const char *key, const char *value,
                           struct settings_report *report)
{
    memset(report, 0, sizeof(*report));
    return settings_set(settings, key, value, SETTINGS_FROM_ALL, "", report);
}

static void assert_refused(const char *key, const char *value, const char *error)
{
    struct kvf_settings settings;
    struct kvf_settings before;
    struct settings_report report;

    settings_defaults(&settings);
    before = settings;
    assert_int_equal(set(&settings, key, value, &report), KVF_E_CONFIG);
    assert_string_equal(report.error, error);
    assert_memory_equal(&settings, &before, sizeof(before));
}

/* ---- table and parser ----------------------------------------------------------------------- */

static void config_defaults_are_what_their_texts_say(void **state)
{
    struct kvf_settings settings;
    struct settings_report report;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(settings.kv_transfer_timeout_ms, 60000);
    assert_int_equal(settings.kv_cache_bounce_size_mb, 0);
    assert_int_equal(settings.max_chunk_size, 32 << 20);
    assert_int_equal(settings.progress, SETTINGS_PROGRESS_THREAD);
    assert_int_equal(settings.log_level, KVF_LOG_INFO);
    assert_int_equal(settings.path, KVF_PATH_NONE);
    assert_int_equal(settings.paths, 1u << KVF_PATH_MAPPED | 1u << KVF_PATH_DIRECT |
                                         1u << KVF_PATH_BOUNCE | 1u << KVF_PATH_TWOSIDED);
    assert_true(settings.enable_eager_gather);
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        char value[SETTINGS_TEXT_BYTES];
        char variable[64];

        settings_value_text(&settings, i, value, sizeof(value));
        settings_variable(settings_row(i), variable, sizeof(variable));
        assert_int_equal(settings.origins[i], SETTINGS_FROM_DEFAULT);
        assert_int_equal(settings_find(settings_row(i)->key), i);
        assert_true(strlen(settings_row(i)->doc) > 0);
        if (settings_row(i)->kind != SETTINGS_DEAD)
            assert_int_equal(set(&settings, settings_row(i)->key, value, &report), KVF_OK);
    }
    memset(&report, 0, sizeof(report));
    settings_defaults(&settings);
    assert_int_equal(settings_check(&settings, &facts_plain, &report), KVF_OK);
    assert_int_equal(report.note_count, 0);
}

/* Sets a number row through its text; what the field then holds, or UINT64_MAX when refused. */
static uint64_t number_after(const struct settings_row *row, const char *text)
{
    struct kvf_settings settings;
    struct settings_report report;

    settings_defaults(&settings);
    if (set(&settings, row->key, text, &report) != KVF_OK)
        return UINT64_MAX;
    return *(const uint64_t *)((const char *)&settings + row->offset);
}

static void config_numbers_are_taken_inside_their_range_only(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = settings_row(i);
        char text[32];

        if (row->kind != SETTINGS_U64 && row->kind != SETTINGS_BYTES)
            continue;
        assert_true(row->min <= row->max);
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)row->min);
        assert_true(number_after(row, text) == row->min);
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)row->max);
        assert_true(number_after(row, text) == row->max);
        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)row->max + 1);
        assert_true(number_after(row, text) == UINT64_MAX);
        if (row->min > 0) {
            (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)row->min - 1);
            assert_true(number_after(row, text) == UINT64_MAX);
        }
    }
}

static void config_numbers_that_are_none_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "12x",
        "1e3",
        "-1",
        "+1",
        " 1",
        "1 ",
        "0x10",
        "1.0",
        "1,0",
        "nan",
        "1\n",
        "K",
        "1Ki",
        "1kb",
        "1 K",
        "true",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999999",
    };

    (void)state;
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = settings_row(i);

        if (row->kind != SETTINGS_U64 && row->kind != SETTINGS_BYTES)
            continue;
        for (size_t j = 0; j < sizeof(wrong) / sizeof(wrong[0]); j++)
            if (number_after(row, wrong[j]) != UINT64_MAX)
                fail_msg("%s takes \"%s\"", row->key, wrong[j]);
    }
    assert_refused("kv_cache_bounce_size_mb", "12x",
                   "kv_cache_bounce_size_mb is \"12x\"; want a whole number from 0 to 1048576");
    assert_refused("request_timeout_ms", "0",
                   "request_timeout_ms is \"0\"; want a whole number from 1 to 2147483647");
    assert_refused("heartbeat_interval_ms", "1K",
                   "heartbeat_interval_ms is \"1K\"; want a whole number from 10 to 60000");
}

static void config_byte_sizes_take_suffixes(void **state)
{
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = {
        {"1048576", 1 << 20}, {"1024K", 1 << 20}, {"1024KiB", 1 << 20},
        {"1M", 1 << 20},      {"1MiB", 1 << 20},  {"3G", 3ull << 30},
        {"3GiB", 3ull << 30}, {"4G", UINT64_MAX}, {"17592186044417M", UINT64_MAX},
        {"1Gib", UINT64_MAX}, {"1g", UINT64_MAX},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_true(number_after(settings_row(SETTINGS_I_max_chunk_size), rows[i].text) ==
                    rows[i].value);
}

static void config_truth_has_eight_words(void **state)
{
    static const char *const words[] = {"0",   "1",   "false", "true",  "no",
                                        "yes", "off", "on",    "FALSE", "True"};
    static const char *const wrong[] = {"", "2", "t", "y", "enable", "tru", "truee", " 1"};
    struct kvf_settings settings;
    struct settings_report report;

    (void)state;
    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        settings_defaults(&settings);
        settings.disable_fabric_memory = i % 2 == 0;
        assert_int_equal(set(&settings, "disable_fabric_memory", words[i], &report), KVF_OK);
        assert_int_equal(settings.disable_fabric_memory, i % 2 == 1);
    }
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(set(&settings, "disable_fabric_memory", wrong[i], &report), KVF_E_CONFIG);
    assert_refused("enable_eager_gather", "maybe",
                   "enable_eager_gather is \"maybe\"; want true or false (1/0, yes/no, on/off)");
}

static void config_words_lists_and_texts_are_judged(void **state)
{
    struct kvf_settings settings;
    struct settings_report report;
    char text[SETTINGS_TEXT_BYTES + 1];

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(set(&settings, "path", "direct", &report), KVF_OK);
    assert_int_equal(settings.path, KVF_PATH_DIRECT);
    assert_int_equal(set(&settings, "paths", "direct, mapped", &report), KVF_OK);
    assert_int_equal(settings.paths, 1u << KVF_PATH_DIRECT | 1u << KVF_PATH_MAPPED);
    settings_value_text(&settings, SETTINGS_I_paths, text, sizeof(text));
    assert_string_equal(text, "mapped,direct");
    assert_refused("path", "Direct",
                   "path is \"Direct\"; want one of auto, mapped, direct, bounce, twosided");
    assert_refused("path", "", "path is \"\"; want one of auto, mapped, direct, bounce, twosided");
    assert_refused("paths", "mapped,",
                   "paths is \"mapped,\"; want a list of mapped, direct, bounce, twosided");
    assert_refused("paths", "auto",
                   "paths is \"auto\"; want a list of mapped, direct, bounce, twosided");
    assert_refused("paths", "mapped direct",
                   "paths is \"mapped direct\"; want a list of mapped, direct, bounce, twosided");
    assert_refused("paths", "", "paths is \"\"; want a list of mapped, direct, bounce, twosided");
    assert_int_equal(set(&settings, "far_transports", "^sm,rc_mlx5:1", &report), KVF_OK);
    assert_string_equal(settings.far_transports, "^sm,rc_mlx5:1");
    assert_refused("far_transports", "tcp;rm",
                   "far_transports is \"tcp;rm\"; want at most 159 letters, digits or _-.,:/^*");
    memset(text, 'a', sizeof(text));
    text[SETTINGS_TEXT_BYTES] = 0;
    assert_int_equal(set(&settings, "far_transports", text, &report), KVF_E_CONFIG);
    text[SETTINGS_TEXT_BYTES - 1] = 0;
    assert_int_equal(set(&settings, "far_transports", text, &report), KVF_OK);
}

static void config_unknown_key_names_the_nearest(void **state)
{
    (void)state;
    assert_refused("kv_cache_bouce_size_mb", "1",
                   "unknown setting \"kv_cache_bouce_size_mb\"; the nearest is "
                   "kv_cache_bounce_size_mb");
    assert_refused("Progress", "thread", "unknown setting \"Progress\"; the nearest is progress");
    assert_refused("", "1", "unknown setting \"\"; the nearest is pin");
    assert_int_equal(settings_distance("kitten", "sitting"), 3);
    assert_int_equal(settings_distance("", "abc"), 3);
    assert_int_equal(settings_distance("abc", ""), 3);
    assert_int_equal(settings_distance("same", "same"), 0);
}

static void config_later_origin_wins_whatever_the_order(void **state)
{
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;
    char text[64];

    (void)state;
    settings_defaults(&settings);
    for (int origin = SETTINGS_FROM_ENV; origin >= SETTINGS_FROM_ALL; origin--) {
        (void)snprintf(text, sizeof(text), "%d", 100 + origin);
        assert_int_equal(settings_set(&settings, "direct_window", text,
                                      (enum settings_origin)origin, "", &report),
                         KVF_OK);
        assert_int_equal(settings.direct_window, 100 + SETTINGS_FROM_ENV);
    }
    settings_origin_text(&settings, SETTINGS_I_direct_window, text, sizeof(text));
    assert_string_equal(text, "KVF_DIRECT_WINDOW");
    assert_int_equal(
        settings_set(&settings, "direct_window", "x", SETTINGS_FROM_ALL, "f:3: ", &report),
        KVF_E_CONFIG);
    assert_string_equal(report.error,
                        "f:3: direct_window is \"x\"; want a whole number from 1 to 65536");
}

static void config_key_of_all_ranks_is_refused_in_other_maps(void **state)
{
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(
        settings_set(&settings, "connect_timeout_ms", "500", SETTINGS_FROM_SIDE, "", &report),
        KVF_E_CONFIG);
    assert_string_equal(report.error,
                        "connect_timeout_ms must be equal on all ranks: set it in the map all");
    assert_int_equal(
        settings_set(&settings, "connect_timeout_ms", "500", SETTINGS_FROM_ENV, "", &report),
        KVF_OK);
}

/* ---- environment ---------------------------------------------------------------------------- */

static void config_variable_overrides_one_key(void **state)
{
    static const char *const environment[] = {
        "HOME=/x", "KVF_PROGRESS=caller", "KVF_MAX_CHUNK_SIZE=1M", "KVF", "=x", NULL};
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(settings_apply_env(&settings, environment, SETTINGS_ENV_ALL, &report), KVF_OK);
    assert_int_equal(settings.progress, SETTINGS_PROGRESS_CALLER);
    assert_int_equal(settings.origins[SETTINGS_I_progress], SETTINGS_FROM_ENV);
    assert_int_equal(settings.max_chunk_size, 1 << 20);
    assert_true(settings.has_bounce_params);
    assert_int_equal(report.note_count, 0);
}

static void config_wrong_variable_stops_and_names_itself(void **state)
{
    static const struct {
        const char *entry;
        const char *error;
    } rows[] = {
        {"KVF_DIRECT_WINDOW=1e3",
         "KVF_DIRECT_WINDOW: direct_window is \"1e3\"; want a whole number from 1 to 65536"},
        {"KVF_PROGRES=caller", "unknown variable KVF_PROGRES; the nearest is KVF_PROGRESS"},
        {"KVF_progress=caller", "unknown variable KVF_progress; the nearest is KVF_PROGRESS"},
        {"KVF_TEST_SEED=1", "unknown variable KVF_TEST_SEED: KVF_TEST_ is for test builds"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *const environment[] = {rows[i].entry, NULL};
        struct settings_report report = {.error = ""};
        struct kvf_settings settings;

        settings_defaults(&settings);
        assert_int_equal(settings_apply_env(&settings, environment, SETTINGS_ENV_ALL, &report),
                         KVF_E_CONFIG);
        assert_string_equal(report.error, rows[i].error);
    }
}

static void config_rank_takes_only_its_own_keys(void **state)
{
    static const char *const environment[] = {"KVF_LOG_LEVEL=debug", "KVF_PROGRESS=caller",
                                              "KVF_NONSENSE=1", NULL};
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(settings_apply_env(&settings, environment, SETTINGS_ENV_RANK, &report),
                     KVF_OK);
    assert_int_equal(settings.log_level, KVF_LOG_DEBUG);
    assert_int_equal(settings.progress, SETTINGS_PROGRESS_THREAD);
}

static void config_dead_switches_warn_once_each(void **state)
{
    static const char *const environment[] = {
        "TRTLLM_NIXL_BOUNCE_ENABLE=1",        "TRTLLM_KV_TRANSFER_NUM_THREADS=4",
        "TRTLLM_NIXL_BOUNCE_ENABLE=1",        "KVF_AGENT_BOUNCE_BUFFER_ENABLE=true",
        "KVF_KV_TRANSFER_POLL_INTERVAL_MS=7", NULL};
    static const char *const quiet[] = {"KVF_AGENT_BOUNCE_BUFFER_ENABLE=off", NULL};
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;
    struct kvf_settings before;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(settings_apply_env(&settings, environment, SETTINGS_ENV_ALL, &report), KVF_OK);
    assert_int_equal(settings_apply_env(&settings, environment, SETTINGS_ENV_ALL, &report), KVF_OK);
    assert_int_equal(report.note_count, 4);
    assert_string_equal(report.notes[0].event, "W40");
    assert_string_equal(report.notes[0].text,
                        "TRTLLM_NIXL_BOUNCE_ENABLE is set but has no effect here");
    assert_string_equal(report.notes[2].event, "W01");
    assert_string_equal(report.notes[3].event, "W40");
    assert_int_equal(settings.kv_cache_bounce_size_mb, 0);
    memset(&report, 0, sizeof(report));
    settings_defaults(&settings);
    before = settings;
    assert_int_equal(settings_apply_env(&settings, quiet, SETTINGS_ENV_ALL, &report), KVF_OK);
    assert_int_equal(report.note_count, 0);
    assert_int_equal(settings.max_chunk_size, before.max_chunk_size);
    assert_refused("agent_bounce_buffer_enable", "7",
                   "agent_bounce_buffer_enable is \"7\"; want true or false (1/0, yes/no, on/off)");
    assert_refused("kv_transfer_poll_interval_ms", "soon",
                   "kv_transfer_poll_interval_ms is \"soon\"; want a whole number from 0 to "
                   "4294967295");
}

static void config_hash_tells_environments_apart_but_not_their_order(void **state)
{
    static const char *const one[] = {"KVF_PATH=direct", "HOME=/a", "KVF_SWEEP_LAG=2", NULL};
    static const char *const moved[] = {"KVF_SWEEP_LAG=2", "KVF_LOG_LEVEL=debug", "KVF_PATH=direct",
                                        NULL};
    static const char *const other[] = {"KVF_SWEEP_LAG=3", "KVF_PATH=direct", NULL};
    static const char *const less[] = {"KVF_PATH=direct", NULL};
    static const char *const none[] = {NULL};

    (void)state;
    assert_true(settings_env_hash(one) == settings_env_hash(moved));
    assert_true(settings_env_hash(one) != settings_env_hash(other));
    assert_true(settings_env_hash(one) != settings_env_hash(less));
    assert_true(settings_env_hash(none) == 0);
}

static void config_reads_the_process_environment(void **state)
{
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;

    (void)state;
    assert_int_equal(setenv("KVF_SWEEP_LAG", "9", 1), 0);
    settings_defaults(&settings);
    assert_int_equal(settings_apply_env(&settings, NULL, SETTINGS_ENV_ALL, &report), KVF_OK);
    assert_int_equal(settings.sweep_lag, 9);
    assert_true(settings_env_hash(NULL) != 0);
    assert_int_equal(unsetenv("KVF_SWEEP_LAG"), 0);
}

/* ---- combinations --------------------------------------------------------------------------- */

struct combination {
    const char *values[8]; /* key, value, ... */
    struct settings_facts facts;
    const char *error; /* "" = accepted */
    const char *event; /* of a note, "" = none */
};

#define FACTS_GEN .facts = {.side = KVF_GENERATION, .has_bounce = true, .pp_size = 1, .cp_size = 1}

static const struct combination combinations[] = {
    {{"max_chunk_size", "1M"},
     FACTS_GEN,
     "agent_bounce_params is set but kv_cache_bounce_size_mb is 0; set a size, or take "
     "agent_bounce_params out",
     ""},
    {{"path", "bounce"},
     FACTS_GEN,
     "path is \"bounce\" but kv_cache_bounce_size_mb is 0; set a size, or another path",
     ""},
    {{"kv_cache_bounce_size_mb", "64"}, FACTS_GEN, "", ""},
    {{"kv_cache_bounce_size_mb", "64", "path", "bounce"}, FACTS_GEN, "", ""},
    {{"kv_cache_bounce_size_mb", "64"},
     .facts = {.pp_size = 1, .cp_size = 1},
     "kv_cache_bounce_size_mb is 64 but this build has no bounce; build it with "
     "-DKVFERRY_BOUNCE=ON, or set 0",
     ""},
    {{"kv_cache_bounce_size_mb", "64"},
     .facts = {.has_bounce = true, .ownership_bridge = true},
     "kv_cache_bounce_size_mb is 64 but the model has an ownership bridge; want 0",
     ""},
    {{"kv_cache_bounce_size_mb", "64", "release_policy", "legacy"},
     FACTS_GEN,
     "release_policy is \"legacy\" but kv_cache_bounce_size_mb is 64; want wait, or no bounce",
     ""},
    {{"release_policy", "legacy"}, FACTS_GEN, "", ""},
    {{"kv_cache_bounce_size_mb", "64", "paths", "mapped,direct"}, FACTS_GEN, "", "W02"},
    {{"kv_cache_bounce_size_mb", "96"}, FACTS_GEN, "", "W04"},
    {{"kv_cache_bounce_size_mb", "16"}, FACTS_GEN, "", "W05"},
    {{"kv_cache_bounce_size_mb", "64", "arena_allocation_granularity", "64M"},
     FACTS_GEN,
     "arena_allocation_granularity is 67108864; want at most max_chunk_size, which is 33554432",
     ""},
    {{"paths", "mapped", "path", "direct"},
     FACTS_GEN,
     "path is \"direct\" but paths forbids it",
     ""},
    {{"enable_pipelined_transfer", "on"}, FACTS_GEN, "", ""},
    {{"enable_pipelined_transfer", "on", "kv_cache_bounce_size_mb", "64"}, FACTS_GEN, "", ""},
    {{"enable_pipelined_transfer", "on"},
     .facts = {.cp_size = 2, .beam_width = 1},
     "enable_pipelined_transfer is true but cp is 2; want false",
     ""},
    {{"enable_pipelined_transfer", "on"},
     .facts = {.cp_size = 1, .beam_width = 2},
     "enable_pipelined_transfer is true but the beam width is 2; want false",
     ""},
    {{"peer_lost_ms", "1999"},
     FACTS_GEN,
     "peer_lost_ms is 1999; want at least 4 times heartbeat_interval_ms, which is 500",
     ""},
    {{"peer_lost_ms", "2000"}, FACTS_GEN, "", ""},
    {{"sweep_deadline_ms", "1000"},
     FACTS_GEN,
     "sweep_deadline_ms is 1000; want more than sweep_warn_ms, which is 1000",
     ""},
    {{"sweep_deadline_ms", "1001"}, FACTS_GEN, "", ""},
    {{"request_info_ttl_ms", "999"},
     FACTS_GEN,
     "request_info_ttl_ms is \"999\"; want 0, or a whole number from 1000 to 2147483647",
     ""},
    {{"request_info_ttl_ms", "1000"}, FACTS_GEN, "", "W41"},
    {{"request_info_ttl_ms", "120000"}, FACTS_GEN, "", ""},
    {{"group_loss", "regroup"},
     FACTS_GEN,
     "group_loss is \"regroup\", which this release does not have; want fail_stop",
     ""},
    {{"max_tokens_in_buffer", "1"}, FACTS_GEN, "", "W40"},
    {{"max_tokens_in_buffer", "1"}, .facts = {.side = KVF_GENERATION, .pp_size = 2}, "", ""},
};

static bool report_has_event(const struct settings_report *report, const char *event)
{
    bool found = event[0] == 0;

    for (unsigned i = 0; i < report->note_count; i++) {
        found = found || strcmp(report->notes[i].event, event) == 0;
        if (event[0] == 0 && report->notes[i].event[0] != 0)
            return false;
    }
    return found;
}

static void config_combinations_are_judged_in_words(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(combinations) / sizeof(combinations[0]); i++) {
        const struct combination *row = &combinations[i];
        struct settings_report report = {.error = ""};
        struct kvf_settings settings;
        enum kvf_status status;

        settings_defaults(&settings);
        for (unsigned j = 0; row->values[j] != NULL; j += 2)
            assert_int_equal(settings_set(&settings, row->values[j], row->values[j + 1],
                                          SETTINGS_FROM_ALL, "", &report),
                             KVF_OK);
        status = settings_check(&settings, &row->facts, &report);
        if (strcmp(report.error, row->error) != 0)
            fail_msg("row %zu: \"%s\", want \"%s\"", i, report.error, row->error);
        assert_int_equal(status, row->error[0] == 0 ? KVF_OK : KVF_E_CONFIG);
        if (!report_has_event(&report, row->event))
            fail_msg("row %zu: no or other notes than %s", i, row->event);
    }
}

static void config_chunk_is_clamped_to_the_usable_arena(void **state)
{
    static const struct {
        const char *size;
        const char *chunk;
        uint64_t effective;
    } rows[] = {{"96", "80M", 64ull << 20},
                {"64", "80M", 64ull << 20},
                {"256", "80M", 80ull << 20},
                {"1", "32M", 1ull << 20}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct settings_report report = {.error = ""};
        struct kvf_settings settings;

        settings_defaults(&settings);
        assert_int_equal(set(&settings, "kv_cache_bounce_size_mb", rows[i].size, &report), KVF_OK);
        assert_int_equal(set(&settings, "max_chunk_size", rows[i].chunk, &report), KVF_OK);
        assert_int_equal(set(&settings, "arena_allocation_granularity", "700K", &report), KVF_OK);
        assert_int_equal(settings_check(&settings, &facts_plain, &report), KVF_OK);
        assert_true(settings.max_chunk_size == rows[i].effective);
        assert_int_equal(settings.arena_allocation_granularity, 1 << 20);
    }
}

static void config_sweep_lag_follows_the_pipeline_unless_set(void **state)
{
    struct settings_facts facts = facts_plain;
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;

    (void)state;
    facts.pp_size = 4;
    settings_defaults(&settings);
    assert_int_equal(settings_check(&settings, &facts, &report), KVF_OK);
    assert_int_equal(settings.sweep_lag, 4);
    settings_defaults(&settings);
    assert_int_equal(set(&settings, "sweep_lag", "0", &report), KVF_OK);
    assert_int_equal(settings_check(&settings, &facts, &report), KVF_OK);
    assert_int_equal(settings.sweep_lag, 0);
    assert_int_equal(settings_info_ttl_ms(&settings), 130000);
    settings.kv_transfer_timeout_ms = 1000;
    assert_int_equal(settings_info_ttl_ms(&settings), 120000);
    settings.request_info_ttl_ms = 5000;
    assert_int_equal(settings_info_ttl_ms(&settings), 5000);
}

/* ---- broadcast and document ----------------------------------------------------------------- */

static void config_comes_back_from_the_broadcast_as_it_was(void **state)
{
    uint8_t bytes[8192];
    struct wire_writer writer = wire_writer_make(bytes, sizeof(bytes));
    struct wire_reader reader;
    struct settings_report report = {.error = ""};
    struct kvf_settings settings;
    struct kvf_settings decoded;

    (void)state;
    settings_defaults(&settings);
    assert_int_equal(set(&settings, "far_transports", "tcp,rc", &report), KVF_OK);
    assert_int_equal(set(&settings, "paths", "twosided", &report), KVF_OK);
    assert_int_equal(set(&settings, "max_chunk_size", "3M", &report), KVF_OK);
    settings.lines[SETTINGS_I_paths] = 12;
    settings_encode(&settings, &writer);
    assert_false(writer.failed);
    reader = wire_reader_make(bytes, writer.len_bytes);
    memset(&decoded, 0xee, sizeof(decoded));
    assert_int_equal(settings_decode(&decoded, &reader), KVF_OK);
    assert_true(wire_reader_ended(&reader));
    assert_true(decoded.has_bounce_params);
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        char want[SETTINGS_TEXT_BYTES];
        char got[SETTINGS_TEXT_BYTES];

        settings_value_text(&settings, i, want, sizeof(want));
        settings_value_text(&decoded, i, got, sizeof(got));
        assert_string_equal(want, got);
        assert_int_equal(settings.origins[i], decoded.origins[i]);
        assert_int_equal(settings.lines[i], decoded.lines[i]);
    }
    for (size_t len = 0; len < writer.len_bytes; len++) {
        reader = wire_reader_make(bytes, len);
        assert_int_equal(settings_decode(&decoded, &reader), KVF_E_DECODE);
    }
    bytes[0] ^= 1; /* another release's table */
    reader = wire_reader_make(bytes, writer.len_bytes);
    assert_int_equal(settings_decode(&decoded, &reader), KVF_E_DECODE);
}

/* Below its heading, the lines that start with "| `" are the rows of the table, in order. */
static void config_document_has_the_table(void **state)
{
    char want[1024];
    char got[1024];
    FILE *document = fopen(KVF_SOURCE_DIR "/docs/settings.md", "r");
    FILE *table = tmpfile();
    unsigned rows = 0;

    (void)state;
    assert_non_null(document);
    assert_non_null(table);
    settings_print_table(table);
    rewind(table);
    do
        assert_non_null(fgets(got, sizeof(got), document));
    while (strcmp(got, "## The table\n") != 0);
    while (fgets(want, sizeof(want), table) != NULL) {
        if (strncmp(want, "| `", 3) != 0)
            continue;
        do {
            if (fgets(got, sizeof(got), document) == NULL)
                fail_msg("docs/settings.md lacks the row: %s", want);
        } while (strncmp(got, "| `", 3) != 0);
        assert_string_equal(got, want);
        rows++;
    }
    assert_int_equal(rows, SETTINGS_COUNT);
    while (fgets(got, sizeof(got), document) != NULL)
        assert_true(strncmp(got, "| `", 3) != 0);
    (void)fclose(table);
    (void)fclose(document);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_defaults_are_what_their_texts_say),
        cmocka_unit_test(config_numbers_are_taken_inside_their_range_only),
        cmocka_unit_test(config_numbers_that_are_none_are_refused),
        cmocka_unit_test(config_byte_sizes_take_suffixes),
        cmocka_unit_test(config_truth_has_eight_words),
        cmocka_unit_test(config_words_lists_and_texts_are_judged),
        cmocka_unit_test(config_unknown_key_names_the_nearest),
        cmocka_unit_test(config_later_origin_wins_whatever_the_order),
        cmocka_unit_test(config_key_of_all_ranks_is_refused_in_other_maps),
        cmocka_unit_test(config_variable_overrides_one_key),
        cmocka_unit_test(config_wrong_variable_stops_and_names_itself),
        cmocka_unit_test(config_rank_takes_only_its_own_keys),
        cmocka_unit_test(config_dead_switches_warn_once_each),
        cmocka_unit_test(config_hash_tells_environments_apart_but_not_their_order),
        cmocka_unit_test(config_reads_the_process_environment),
        cmocka_unit_test(config_combinations_are_judged_in_words),
        cmocka_unit_test(config_chunk_is_clamped_to_the_usable_arena),
        cmocka_unit_test(config_sweep_lag_follows_the_pipeline_unless_set),
        cmocka_unit_test(config_comes_back_from_the_broadcast_as_it_was),
        cmocka_unit_test(config_document_has_the_table),
    };

    if (argc == 2 && strcmp(argv[1], "--print-table") == 0) {
        settings_print_table(stdout);
        return 0;
    }
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
