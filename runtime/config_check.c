/* config_check.c - which settings go together, and how settings are shown. See config.h. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#define BYTES_PER_MIB (UINT64_C(1) << 20)
#define VARIABLE_BYTES 64
#define TTL_MIN_MS UINT64_C(1000)
#define TTL_DEFAULT_MIN_MS UINT64_C(120000)
#define TTL_MARGIN_MS UINT64_C(10000)

/* ---- combinations --------------------------------------------------------------------------- */

static bool settings_allows(const struct kvf_settings *settings, enum kvf_path path)
{
    return (settings->paths & (1u << path)) != 0;
}

static uint64_t settings_power_at_least(uint64_t value)
{
    uint64_t power = 1;

    while (power < value)
        power *= 2;
    return power;
}

static enum kvf_status settings_check_bounce_off(const struct kvf_settings *settings,
                                                 const struct settings_facts *facts,
                                                 struct settings_report *report)
{
    if (settings->path == KVF_PATH_BOUNCE && !facts->has_bounce)
        return settings_fail(report,
                             "path is \"bounce\", which this build does not have; want auto, "
                             "mapped or direct");
    if (settings->has_bounce_params)
        return settings_fail(report, "agent_bounce_params is set but kv_cache_bounce_size_mb is 0; "
                                     "set a size, or take agent_bounce_params out");
    if (settings->path == KVF_PATH_BOUNCE)
        return settings_fail(report, "path is \"bounce\" but kv_cache_bounce_size_mb is 0; set a "
                                     "size, or another path");
    return KVF_OK;
}

/* Clamps the chunk to the arena; the arena's usable part is a power of two. */
static enum kvf_status settings_check_arena(struct kvf_settings *settings,
                                            struct settings_report *report)
{
    uint64_t size_bytes = settings->kv_cache_bounce_size_mb * BYTES_PER_MIB;
    uint64_t usable_bytes = settings_power_at_least(size_bytes);
    uint64_t granularity = settings_power_at_least(settings->arena_allocation_granularity);

    if (usable_bytes > size_bytes) {
        usable_bytes /= 2;
        settings_note(report, "W04",
                      "kv_cache_bounce_size_mb is %" PRIu64 " but only %" PRIu64
                      " MiB of it can be used: set a power of two",
                      settings->kv_cache_bounce_size_mb, usable_bytes / BYTES_PER_MIB);
    }
    if (settings->max_chunk_size > usable_bytes) {
        settings_note(report, "W05",
                      "max_chunk_size is %" PRIu64 ", clamped to %" PRIu64
                      ": the usable bytes of the arena",
                      settings->max_chunk_size, usable_bytes);
        settings->max_chunk_size = usable_bytes;
    }
    if (granularity != settings->arena_allocation_granularity) {
        settings_note(report, "",
                      "arena_allocation_granularity is rounded up from %" PRIu64 " to %" PRIu64,
                      settings->arena_allocation_granularity, granularity);
        settings->arena_allocation_granularity = granularity;
    }
    if (granularity > settings->max_chunk_size)
        return settings_fail(report,
                             "arena_allocation_granularity is %" PRIu64
                             "; want at most max_chunk_size, which is %" PRIu64,
                             granularity, settings->max_chunk_size);
    return KVF_OK;
}

enum kvf_status settings_check_bridge(const struct kvf_settings *settings,
                                      struct settings_report *report)
{
    if (settings->kv_cache_bounce_size_mb == 0)
        return KVF_OK;
    return settings_fail(report,
                         "kv_cache_bounce_size_mb is %" PRIu64
                         " but the model has an ownership bridge; want 0",
                         settings->kv_cache_bounce_size_mb);
}

static enum kvf_status settings_check_bounce(struct kvf_settings *settings,
                                             const struct settings_facts *facts,
                                             struct settings_report *report)
{
    if (settings->kv_cache_bounce_size_mb == 0)
        return settings_check_bounce_off(settings, facts, report);
    if (!facts->has_bounce)
        return settings_fail(report,
                             "kv_cache_bounce_size_mb is %" PRIu64
                             " but this build has no bounce; build it with "
                             "-DKVFERRY_BOUNCE=ON, or set 0",
                             settings->kv_cache_bounce_size_mb);
    if (facts->ownership_bridge)
        return settings_check_bridge(settings, report);
    if (settings->release_policy == SETTINGS_RELEASE_LEGACY)
        return settings_fail(report,
                             "release_policy is \"legacy\" but kv_cache_bounce_size_mb is %" PRIu64
                             "; want wait, or no bounce",
                             settings->kv_cache_bounce_size_mb);
    if (!settings_allows(settings, KVF_PATH_BOUNCE))
        settings_note(report, "W02",
                      "kv_cache_bounce_size_mb is %" PRIu64 " but paths has no bounce: not used",
                      settings->kv_cache_bounce_size_mb);
    if (settings->request_timeout_ms >= settings->kv_transfer_timeout_ms)
        settings_note(report, "",
                      "request_timeout_ms is not below kv_transfer_timeout_ms: the deadline of "
                      "the transfer will fire first");
    return settings_check_arena(settings, report);
}

static enum kvf_status settings_check_timers(struct kvf_settings *settings,
                                             struct settings_report *report)
{
    uint64_t ttl_ms = settings->request_info_ttl_ms;

    if (settings->peer_lost_ms < 4 * settings->heartbeat_interval_ms)
        return settings_fail(report,
                             "peer_lost_ms is %" PRIu64 "; want at least 4 times "
                             "heartbeat_interval_ms, which is %" PRIu64,
                             settings->peer_lost_ms, settings->heartbeat_interval_ms);
    if (settings->sweep_deadline_ms <= settings->sweep_warn_ms)
        return settings_fail(report,
                             "sweep_deadline_ms is %" PRIu64
                             "; want more than sweep_warn_ms, which is %" PRIu64,
                             settings->sweep_deadline_ms, settings->sweep_warn_ms);
    if (ttl_ms != 0 && ttl_ms < TTL_MIN_MS)
        return settings_fail(report,
                             "request_info_ttl_ms is \"%" PRIu64
                             "\"; want 0, or a whole number from %" PRIu64 " to %u",
                             ttl_ms, TTL_MIN_MS, SETTINGS_INT_MAX);
    if (ttl_ms != 0 && ttl_ms < 2 * settings->kv_transfer_timeout_ms)
        settings_note(report, "W41",
                      "request_info_ttl_ms is %" PRIu64
                      ", less than twice kv_transfer_timeout_ms: late asks may find nothing",
                      ttl_ms);
    return KVF_OK;
}

static enum kvf_status settings_check_transfer(struct kvf_settings *settings,
                                               const struct settings_facts *facts,
                                               struct settings_report *report)
{
    if (settings->path != KVF_PATH_NONE &&
        !settings_allows(settings, (enum kvf_path)settings->path)) {
        char path[VARIABLE_BYTES];

        settings_value_text(settings, SETTINGS_I_path, path, sizeof(path));
        return settings_fail(report, "path is \"%s\" but paths forbids it", path);
    }
    if (settings->enable_pipelined_transfer && facts->cp_size > 1)
        return settings_fail(report,
                             "enable_pipelined_transfer is true but cp is %" PRIu32 "; want false",
                             facts->cp_size);
    if (settings->enable_pipelined_transfer && facts->beam_width > 1)
        return settings_fail(report,
                             "enable_pipelined_transfer is true but the beam width is "
                             "%" PRIu32 "; want false",
                             facts->beam_width);
    if (settings->group_loss == SETTINGS_GROUP_REGROUP)
        return settings_fail(report, "group_loss is \"regroup\", which this release does not "
                                     "have; want fail_stop");
    if (settings->max_tokens_in_buffer > 0 && facts->side == KVF_GENERATION && facts->pp_size == 1)
        settings_note(report, "W40",
                      "max_tokens_in_buffer has no effect on asynchronous receives with pp 1");
    if (settings->origins[SETTINGS_I_sweep_lag] == SETTINGS_FROM_DEFAULT && facts->pp_size > 1)
        settings->sweep_lag = facts->pp_size < settings_row(SETTINGS_I_sweep_lag)->max
                                  ? facts->pp_size
                                  : settings_row(SETTINGS_I_sweep_lag)->max;
    return KVF_OK;
}

enum kvf_status settings_check(struct kvf_settings *settings, const struct settings_facts *facts,
                               struct settings_report *report)
{
    enum kvf_status status = settings_check_timers(settings, report);

    if (status == KVF_OK)
        status = settings_check_transfer(settings, facts, report);
    if (status == KVF_OK)
        status = settings_check_bounce(settings, facts, report);
    return status;
}

uint64_t settings_info_ttl_ms(const struct kvf_settings *settings)
{
    uint64_t ttl_ms = 2 * settings->kv_transfer_timeout_ms + TTL_MARGIN_MS;

    if (settings->request_info_ttl_ms != 0)
        return settings->request_info_ttl_ms;
    return ttl_ms < TTL_DEFAULT_MIN_MS ? TTL_DEFAULT_MIN_MS : ttl_ms;
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Word `index` of "a|b|c"; its length. */
static size_t settings_choice(const char *choices, uint32_t index, const char **word_out)
{
    while (index > 0 && *choices != 0) {
        choices += strcspn(choices, "|");
        choices += *choices == '|';
        index--;
    }
    *word_out = choices;
    return strcspn(choices, "|");
}

static void settings_list_text(const struct settings_row *row, uint32_t mask, char *text_out,
                               size_t text_bytes)
{
    size_t at = 0;

    text_out[0] = 0;
    for (uint32_t i = 0; i < 31; i++) {
        const char *word;
        size_t len;

        if ((mask & (1u << (i + 1))) == 0)
            continue;
        len = settings_choice(row->choices, i, &word);
        if (at + len + 2 > text_bytes)
            return;
        at += (size_t)snprintf(text_out + at, text_bytes - at, "%s%.*s", at == 0 ? "" : ",",
                               (int)len, word);
    }
}

static void settings_bytes_text(uint64_t value, char *text_out, size_t text_bytes)
{
    static const char *const units[] = {"", "KiB", "MiB", "GiB"};
    unsigned unit = 0;

    while (unit < 3 && value > 0 && value % 1024 == 0) {
        value /= 1024;
        unit++;
    }
    (void)snprintf(text_out, text_bytes, "%" PRIu64 "%s", value, units[unit]);
}

void settings_value_text(const struct kvf_settings *settings, unsigned index, char *text_out,
                         size_t text_bytes)
{
    const struct settings_row *row = settings_row(index);
    const void *field = (const char *)settings + row->offset;
    const char *word;
    size_t len;

    switch (row->kind) {
    case SETTINGS_U64:
        (void)snprintf(text_out, text_bytes, "%" PRIu64, *(const uint64_t *)field);
        return;
    case SETTINGS_BYTES:
        settings_bytes_text(*(const uint64_t *)field, text_out, text_bytes);
        return;
    case SETTINGS_BOOL:
        (void)snprintf(text_out, text_bytes, "%s", *(const bool *)field ? "true" : "false");
        return;
    case SETTINGS_ENUM:
        len = settings_choice(row->choices, *(const uint32_t *)field, &word);
        (void)snprintf(text_out, text_bytes, "%.*s", (int)len, word);
        return;
    case SETTINGS_LIST_OF:
        settings_list_text(row, *(const uint32_t *)field, text_out, text_bytes);
        return;
    case SETTINGS_TEXT:
        (void)snprintf(text_out, text_bytes, "%s", (const char *)field);
        return;
    case SETTINGS_DEAD:
        (void)snprintf(text_out, text_bytes, "ignored");
        return;
    }
}

void settings_origin_text(const struct kvf_settings *settings, unsigned index, char *text_out,
                          size_t text_bytes)
{
    static const char *const maps[] = {
        [SETTINGS_FROM_ALL] = "all",
        [SETTINGS_FROM_SIDE] = "context or generation",
        [SETTINGS_FROM_INSTANCE] = "instances",
    };
    char variable[VARIABLE_BYTES];

    switch ((enum settings_origin)settings->origins[index]) {
    case SETTINGS_FROM_DEFAULT:
        (void)snprintf(text_out, text_bytes, "default");
        return;
    case SETTINGS_FROM_ENV:
        settings_variable(settings_row(index), variable, sizeof(variable));
        (void)snprintf(text_out, text_bytes, "%s", variable);
        return;
    case SETTINGS_FROM_ALL:
    case SETTINGS_FROM_SIDE:
    case SETTINGS_FROM_INSTANCE:
        if (settings->lines[index] == 0)
            (void)snprintf(text_out, text_bytes, "file, map %s", maps[settings->origins[index]]);
        else
            (void)snprintf(text_out, text_bytes, "file, map %s, line %" PRIu32,
                           maps[settings->origins[index]], settings->lines[index]);
        return;
    }
    (void)snprintf(text_out, text_bytes, "unknown");
}

void settings_print(const struct kvf_settings *settings, FILE *file)
{
    char value[SETTINGS_TEXT_BYTES];
    char origin[VARIABLE_BYTES];

    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        settings_value_text(settings, i, value, sizeof(value));
        settings_origin_text(settings, i, origin, sizeof(origin));
        (void)fprintf(file, "%-36s %-32s %s\n", settings_row(i)->key,
                      value[0] == 0 ? "\"\"" : value, origin);
    }
}

void settings_print_table(FILE *file)
{
    static const char *const equal[] = {
        [SETTINGS_EQUAL_ALL] = "all",
        [SETTINGS_EQUAL_INSTANCE] = "instance",
        [SETTINGS_EQUAL_RANK] = "rank",
    };
    char want[SETTINGS_NOTE_BYTES];

    (void)fprintf(file, "| key | default | unit | takes | equal in | what |\n"
                        "| --- | --- | --- | --- | --- | --- |\n");
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = settings_row(i);

        settings_want_text(row, want, sizeof(want));
        (void)fprintf(file, "| `%s%s` | %s | %s | %s | %s | %s |\n",
                      row->place == SETTINGS_BOUNCE ? "agent_bounce_params." : "", row->key,
                      row->default_text[0] == 0 ? "empty" : row->default_text, row->unit, want,
                      equal[row->equal], row->doc);
    }
}
