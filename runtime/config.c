/*
 * config.c - the table of settings, its parser, the environment, and the form for broadcasting.
 *
 * The one file that reads the environment. Combinations of settings are judged in config_check.c,
 * files are read in config_yaml.c.
 */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define KEY_BYTES 64 /* longest key or variable that is compared, with the final 0 */
#define VARIABLE_PREFIX "KVF_"
#define VARIABLE_PREFIX_TEST "KVF_TEST_"
#define CHOICE_BYTES 160

/* ---- the table ------------------------------------------------------------------------------ */

#define KIND_U64 SETTINGS_U64
#define KIND_BYTES SETTINGS_BYTES
#define KIND_BOOL SETTINGS_BOOL
#define KIND_ENUM SETTINGS_ENUM
#define KIND_LIST SETTINGS_LIST_OF
#define KIND_TEXT SETTINGS_TEXT
#define KIND_DEAD SETTINGS_DEAD
#define OFFSET_U64(key) offsetof(struct kvf_settings, key)
#define OFFSET_BYTES(key) offsetof(struct kvf_settings, key)
#define OFFSET_BOOL(key) offsetof(struct kvf_settings, key)
#define OFFSET_ENUM(key) offsetof(struct kvf_settings, key)
#define OFFSET_LIST(key) offsetof(struct kvf_settings, key)
#define OFFSET_TEXT(key) offsetof(struct kvf_settings, key)
#define OFFSET_DEAD(key) 0

static const struct settings_row settings_rows[SETTINGS_COUNT] = {
#define ROW_X(kind_, key_, place_, default_, min_, max_, unit_, equal_, choices_, doc_) \
    {.key = #key_, \
     .kind = KIND_##kind_, \
     .place = SETTINGS_##place_, \
     .default_text = default_, \
     .min = min_, \
     .max = max_, \
     .unit = unit_, \
     .equal = SETTINGS_EQUAL_##equal_, \
     .choices = choices_, \
     .doc = doc_, \
     .offset = OFFSET_##kind_(key_)},
    SETTINGS_LIST(ROW_X)
#undef ROW_X
};

const struct settings_row *settings_row(unsigned index)
{
    KVF_REQUIRE(index < SETTINGS_COUNT);
    return &settings_rows[index];
}

void settings_variable(const struct settings_row *row, char *name_out, size_t name_bytes)
{
    size_t at = (size_t)snprintf(name_out, name_bytes, "%s%s", VARIABLE_PREFIX, row->key);

    KVF_REQUIRE(at < name_bytes);
    for (char *c = name_out; *c != 0; c++)
        if (*c >= 'a' && *c <= 'z')
            *c = (char)(*c - 'a' + 'A');
}

/* Index of a key, or SETTINGS_COUNT. */
unsigned settings_find(const char *key)
{
    unsigned index = 0;

    while (index < SETTINGS_COUNT && strcmp(settings_rows[index].key, key) != 0)
        index++;
    return index;
}

static unsigned settings_find_variable(const char *variable)
{
    char name[KEY_BYTES];
    unsigned index = 0;

    for (; index < SETTINGS_COUNT; index++) {
        settings_variable(&settings_rows[index], name, sizeof(name));
        if (strcmp(name, variable) == 0)
            break;
    }
    return index;
}

/* ---- report --------------------------------------------------------------------------------- */

void settings_note(struct settings_report *report, const char *event, const char *format, ...)
{
    struct settings_note note = {.event = ""};
    va_list args;

    (void)snprintf(note.event, sizeof(note.event), "%s", event);
    va_start(args, format);
    (void)vsnprintf(note.text, sizeof(note.text), format, args);
    va_end(args);
    for (unsigned i = 0; i < report->note_count; i++)
        if (strcmp(report->notes[i].text, note.text) == 0)
            return;
    if (report->note_count < SETTINGS_NOTES_MAX)
        report->notes[report->note_count++] = note;
}

enum kvf_status settings_fail(struct settings_report *report, const char *format, ...)
{
    va_list args;

    if (report->error[0] != 0)
        return KVF_E_CONFIG;
    va_start(args, format);
    (void)vsnprintf(report->error, sizeof(report->error), format, args);
    va_end(args);
    return KVF_E_CONFIG;
}

/* Insertions, deletions and exchanges that make one text of the other. */
unsigned settings_distance(const char *left, const char *right)
{
    unsigned row[KEY_BYTES];
    unsigned right_len = (unsigned)strnlen(right, KEY_BYTES - 1);
    unsigned left_len = (unsigned)strnlen(left, KEY_BYTES - 1);

    for (unsigned j = 0; j <= right_len; j++)
        row[j] = j;
    for (unsigned i = 1; i <= left_len; i++) {
        unsigned corner = row[0];

        row[0] = i;
        for (unsigned j = 1; j <= right_len; j++) {
            unsigned best = corner + (left[i - 1] != right[j - 1]);

            corner = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[right_len];
}

static const struct settings_row *settings_nearest(const char *name, bool is_variable)
{
    const struct settings_row *nearest = &settings_rows[0];
    unsigned nearest_distance = UINT32_MAX;
    char variable[KEY_BYTES];

    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        unsigned distance;

        settings_variable(&settings_rows[i], variable, sizeof(variable));
        distance = settings_distance(name, is_variable ? variable : settings_rows[i].key);
        if (distance < nearest_distance) {
            nearest_distance = distance;
            nearest = &settings_rows[i];
        }
    }
    return nearest;
}

enum kvf_status settings_fail_unknown(struct settings_report *report, const char *where,
                                      const char *key)
{
    return settings_fail(report, "%sunknown setting \"%.80s\"; the nearest is %s", where, key,
                         settings_nearest(key, false)->key);
}

/* ---- values --------------------------------------------------------------------------------- */

/* Digits alone; false also beyond 2^64-1. `end_out` = first character that is no digit. */
static bool settings_parse_digits(const char *text, uint64_t *value_out, const char **end_out)
{
    uint64_t value = 0;
    const char *c = text;

    for (; *c >= '0' && *c <= '9'; c++) {
        unsigned digit = (unsigned)(*c - '0');

        if (value > (UINT64_MAX - digit) / 10)
            return false;
        value = value * 10 + digit;
    }
    *value_out = value;
    *end_out = c;
    return c != text;
}

static bool settings_parse_number(const struct settings_row *row, const char *text,
                                  uint64_t *value_out)
{
    static const struct {
        const char *suffix;
        unsigned shift;
    } units[] = {{"K", 10}, {"M", 20}, {"G", 30}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
    const char *end;
    bool fits = false;

    if (!settings_parse_digits(text, value_out, &end))
        return false;
    if (*end == 0) {
        fits = true;
    } else if (row->kind == SETTINGS_BYTES) {
        for (unsigned i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcmp(end, units[i].suffix) != 0)
                continue;
            fits = *value_out <= UINT64_MAX >> units[i].shift;
            *value_out <<= units[i].shift;
        }
    }
    return fits && *value_out >= row->min && *value_out <= row->max;
}

static bool settings_parse_bool(const char *text, bool *value_out)
{
    static const char *const words[] = {"0", "1", "false", "true", "no", "yes", "off", "on"};

    for (unsigned i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *value_out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

/* Index of the word among choices "a|b|c", or UINT32_MAX. */
static uint32_t settings_parse_choice(const char *choices, const char *word, size_t word_len)
{
    uint32_t index = 0;

    for (const char *c = choices;; index++) {
        size_t len = strcspn(c, "|");

        if (len == word_len && strncmp(c, word, len) == 0)
            return index;
        if (c[len] == 0)
            return UINT32_MAX;
        c += len + 1;
    }
}

/* Words with commas between; blanks around them do not count. At least one. */
static bool settings_parse_list(const char *choices, const char *text, uint32_t *mask_out)
{
    uint32_t mask = 0;

    for (const char *c = text;; c++) {
        size_t len;
        uint32_t index;

        c += strspn(c, " ");
        len = strcspn(c, ", ");
        index = settings_parse_choice(choices, c, len);
        if (index == UINT32_MAX)
            return false;
        mask |= 1u << (index + 1);
        c += len;
        c += strspn(c, " ");
        if (*c == 0)
            break;
        if (*c != ',')
            return false;
    }
    *mask_out = mask;
    return true;
}

static bool settings_text_is_fine(const char *text)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,:/^*";

    return strspn(text, allowed) == strlen(text) && strlen(text) < SETTINGS_TEXT_BYTES;
}

static void *settings_field(struct kvf_settings *settings, const struct settings_row *row)
{
    return (char *)settings + row->offset;
}

static const void *settings_field_const(const struct kvf_settings *settings,
                                        const struct settings_row *row)
{
    return (const char *)settings + row->offset;
}

static bool settings_is_bool_row(const struct settings_row *row)
{
    return row->kind == SETTINGS_BOOL ||
           (row->kind == SETTINGS_DEAD && strcmp(row->default_text, "false") == 0);
}

/* Dead numbers are still judged: any that fits 32 bits. */
static bool settings_parse_dead(const struct settings_row *row, const char *text)
{
    const char *end;
    uint64_t number;
    bool truth;

    if (settings_is_bool_row(row))
        return settings_parse_bool(text, &truth);
    return settings_parse_digits(text, &number, &end) && *end == 0 && number <= SETTINGS_UINT_MAX;
}

/* The field is written only when the text is right. */
static bool settings_parse(const struct settings_row *row, const char *text, void *field)
{
    uint64_t number;
    uint32_t choice;

    switch (row->kind) {
    case SETTINGS_U64:
    case SETTINGS_BYTES:
        if (!settings_parse_number(row, text, &number))
            return false;
        *(uint64_t *)field = number;
        return true;
    case SETTINGS_BOOL:
        return settings_parse_bool(text, field);
    case SETTINGS_ENUM:
        choice = settings_parse_choice(row->choices, text, strlen(text));
        if (choice == UINT32_MAX)
            return false;
        *(uint32_t *)field = choice;
        return true;
    case SETTINGS_LIST_OF:
        return settings_parse_list(row->choices, text, field);
    case SETTINGS_TEXT:
        if (!settings_text_is_fine(text))
            return false;
        memcpy(field, text, strlen(text) + 1);
        return true;
    case SETTINGS_DEAD:
        return settings_parse_dead(row, text);
    }
    return false;
}

/* "a, b, c" of "a|b|c". */
static void settings_choices_text(const struct settings_row *row, char *text_out)
{
    size_t at = 0;

    for (const char *c = row->choices; *c != 0 && at + 3 < CHOICE_BYTES; c++) {
        if (*c == '|') {
            text_out[at++] = ',';
            text_out[at++] = ' ';
        } else {
            text_out[at++] = *c;
        }
    }
    text_out[at] = 0;
}

/* What a row takes, as in errors and in docs/settings.md. */
void settings_want_text(const struct settings_row *row, char *text_out, size_t text_bytes)
{
    char choices[CHOICE_BYTES];
    unsigned long long min = row->min;
    unsigned long long max = row->kind == SETTINGS_DEAD ? SETTINGS_UINT_MAX : row->max;

    settings_choices_text(row, choices);
    if (settings_is_bool_row(row))
        (void)snprintf(text_out, text_bytes, "true or false (1/0, yes/no, on/off)");
    else if (row->kind == SETTINGS_BYTES)
        (void)snprintf(text_out, text_bytes,
                       "a whole number from %llu to %llu, or one with K, M, G, KiB, MiB, GiB", min,
                       max);
    else if (row->kind == SETTINGS_ENUM)
        (void)snprintf(text_out, text_bytes, "one of %s", choices);
    else if (row->kind == SETTINGS_LIST_OF)
        (void)snprintf(text_out, text_bytes, "a list of %s", choices);
    else if (row->kind == SETTINGS_TEXT)
        (void)snprintf(text_out, text_bytes, "at most %d letters, digits or _-.,:/^*",
                       SETTINGS_TEXT_BYTES - 1);
    else
        (void)snprintf(text_out, text_bytes, "a whole number from %llu to %llu", min, max);
}

void settings_defaults(struct kvf_settings *settings_out)
{
    memset(settings_out, 0, sizeof(*settings_out));
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = &settings_rows[i];
        bool right = settings_parse(row, row->default_text, settings_field(settings_out, row));

        KVF_ASSERT(right);
    }
}

static void settings_note_dead(const struct settings_row *row, const char *value,
                               struct settings_report *report)
{
    bool truth = true;

    if (!settings_is_bool_row(row))
        settings_note(report, "W40", "%s is set but has no effect: nothing polls", row->key);
    else if (settings_parse_bool(value, &truth) && truth)
        settings_note(report, "W01",
                      "%s is deprecated and ignored; kv_cache_bounce_size_mb alone switches the "
                      "bounce on",
                      row->key);
}

enum kvf_status settings_set(struct kvf_settings *settings, const char *key, const char *value,
                             enum settings_origin origin, const char *where,
                             struct settings_report *report)
{
    unsigned index = settings_find(key);
    const struct settings_row *row;
    struct kvf_settings scratch; /* takes values that a later origin has already overruled */
    struct kvf_settings *target = settings;
    char want[SETTINGS_NOTE_BYTES];

    if (index == SETTINGS_COUNT)
        return settings_fail_unknown(report, where, key);
    row = &settings_rows[index];
    if (row->equal == SETTINGS_EQUAL_ALL &&
        (origin == SETTINGS_FROM_SIDE || origin == SETTINGS_FROM_INSTANCE))
        return settings_fail(report, "%s%s must be equal on all ranks: set it in the map all",
                             where, key);
    if (origin < settings->origins[index])
        target = &scratch;
    if (!settings_parse(row, value, settings_field(target, row))) {
        settings_want_text(row, want, sizeof(want));
        return settings_fail(report, "%s%s is \"%.80s\"; want %s", where, key, value, want);
    }
    if (row->kind == SETTINGS_DEAD)
        settings_note_dead(row, value, report);
    if (row->place == SETTINGS_BOUNCE)
        settings->has_bounce_params = true;
    if (target == settings) {
        settings->origins[index] = (uint8_t)origin;
        settings->lines[index] = 0;
    }
    return KVF_OK;
}

/* ---- environment ---------------------------------------------------------------------------- */

static const char *const *settings_environment(const char *const *environment)
{
    static const char *const none[] = {NULL};

    if (environment != NULL)
        return environment;
    return environ == NULL ? none : (const char *const *)environ;
}

/* Splits NAME=VALUE; the value, or NULL for an entry without '=' or with an overlong name. */
static const char *settings_split(const char *entry, char *name_out)
{
    const char *equal = strchr(entry, '=');
    size_t len = equal == NULL ? 0 : (size_t)(equal - entry);

    if (equal == NULL || len >= KEY_BYTES) {
        (void)snprintf(name_out, KEY_BYTES, "%s", entry);
        return NULL;
    }
    memcpy(name_out, entry, len);
    name_out[len] = 0;
    return equal + 1;
}

/* Switches of upstream that are read nowhere: one warning each. */
static void settings_note_foreign(const char *name, struct settings_report *report)
{
    static const char *const dead[] = {
        "TRTLLM_KV_CACHE_BOUNCE_MIN_BLOCKS", "TRTLLM_KV_CACHE_BOUNCE_MIN_BYTES",
        "TRTLLM_KV_TRANSFER_NUM_THREADS",    "TRTLLM_DISABLE_KV_CACHE_TRANSFER_OVERLAP",
        "TRTLLM_NIXL_BOUNCE_ENABLE",         "TRTLLM_NIXL_BOUNCE_ARENA_SIZE_BYTES",
    };

    for (unsigned i = 0; i < sizeof(dead) / sizeof(dead[0]); i++)
        if (strcmp(name, dead[i]) == 0)
            settings_note(report, "W40", "%s is set but has no effect here", name);
}

static enum kvf_status settings_apply_variable(struct kvf_settings *settings, const char *name,
                                               const char *value, enum settings_env_set set,
                                               struct settings_report *report)
{
    unsigned index = settings_find_variable(name);
    char where[KEY_BYTES + 2];
    char nearest[KEY_BYTES];

    if (index < SETTINGS_COUNT) {
        if (set == SETTINGS_ENV_RANK && settings_rows[index].equal != SETTINGS_EQUAL_RANK)
            return KVF_OK;
        (void)snprintf(where, sizeof(where), "%s: ", name);
        return settings_set(settings, settings_rows[index].key, value, SETTINGS_FROM_ENV, where,
                            report);
    }
    if (set == SETTINGS_ENV_RANK)
        return KVF_OK;
    if (strncmp(name, VARIABLE_PREFIX_TEST, strlen(VARIABLE_PREFIX_TEST)) == 0) {
#ifdef KVFERRY_TEST_HOOKS
        return KVF_OK;
#else
        return settings_fail(report, "unknown variable %s: KVF_TEST_ is for test builds", name);
#endif
    }
    settings_variable(settings_nearest(name, true), nearest, sizeof(nearest));
    return settings_fail(report, "unknown variable %s; the nearest is %s", name, nearest);
}

enum kvf_status settings_apply_env(struct kvf_settings *settings, const char *const *environment,
                                   enum settings_env_set set, struct settings_report *report)
{
    enum kvf_status status = KVF_OK;
    char name[KEY_BYTES];

    for (const char *const *entry = settings_environment(environment); *entry != NULL; entry++) {
        const char *value = settings_split(*entry, name);

        if (strncmp(name, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) == 0)
            status =
                settings_apply_variable(settings, name, value == NULL ? "" : value, set, report);
        else if (set == SETTINGS_ENV_ALL)
            settings_note_foreign(name, report);
        if (status != KVF_OK)
            return status;
    }
    return KVF_OK;
}

uint64_t settings_env_hash(const char *const *environment)
{
    uint64_t sum = 0; /* of hashes: the order of the environment does not count */
    char name[KEY_BYTES];

    for (const char *const *entry = settings_environment(environment); *entry != NULL; entry++) {
        unsigned index;

        (void)settings_split(*entry, name);
        if (strncmp(name, VARIABLE_PREFIX, strlen(VARIABLE_PREFIX)) != 0)
            continue;
        index = settings_find_variable(name);
        if (index < SETTINGS_COUNT && settings_rows[index].equal == SETTINGS_EQUAL_RANK)
            continue;
        sum += wire_hash64(*entry, strlen(*entry), 1);
    }
    return sum;
}

const char *settings_test_value(const char *name)
{
#ifdef KVFERRY_TEST_HOOKS
    char variable[KEY_BYTES];

    (void)snprintf(variable, sizeof(variable), "%s%s", VARIABLE_PREFIX_TEST, name);
    return getenv(variable);
#else
    (void)name;
    return NULL;
#endif
}

/* ---- broadcast ------------------------------------------------------------------------------ */

/* Ranks of another release have another table. */
static uint32_t settings_table_hash(void)
{
    uint32_t hash = SETTINGS_COUNT;

    for (unsigned i = 0; i < SETTINGS_COUNT; i++)
        hash = hash * 31 + wire_checksum(settings_rows[i].key, strlen(settings_rows[i].key)) +
               (uint32_t)settings_rows[i].kind;
    return hash;
}

void settings_encode(const struct kvf_settings *settings, struct wire_writer *writer)
{
    wire_put_u32(writer, settings_table_hash());
    wire_put_u8(writer, settings->has_bounce_params);
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        const struct settings_row *row = &settings_rows[i];
        const void *field = settings_field_const(settings, row);

        wire_put_u8(writer, settings->origins[i]);
        wire_put_u32(writer, settings->lines[i]);
        switch (row->kind) {
        case SETTINGS_U64:
        case SETTINGS_BYTES:
            wire_put_u64(writer, *(const uint64_t *)field);
            break;
        case SETTINGS_BOOL:
            wire_put_u8(writer, *(const bool *)field);
            break;
        case SETTINGS_ENUM:
        case SETTINGS_LIST_OF:
            wire_put_u32(writer, *(const uint32_t *)field);
            break;
        case SETTINGS_TEXT:
            wire_put_u8(writer, (uint8_t)strlen(field));
            wire_put_bytes(writer, field, strlen(field));
            break;
        case SETTINGS_DEAD:
            break;
        }
    }
}
_Static_assert(SETTINGS_TEXT_BYTES <= 256, "length of a text is u8");

static void settings_decode_field(const struct settings_row *row, struct wire_reader *reader,
                                  void *field)
{
    const uint8_t *bytes;
    uint8_t len;

    switch (row->kind) {
    case SETTINGS_U64:
    case SETTINGS_BYTES:
        *(uint64_t *)field = wire_get_u64(reader);
        return;
    case SETTINGS_BOOL:
        *(bool *)field = wire_get_u8(reader) != 0;
        return;
    case SETTINGS_ENUM:
    case SETTINGS_LIST_OF:
        *(uint32_t *)field = wire_get_u32(reader);
        return;
    case SETTINGS_TEXT:
        len = wire_get_u8(reader);
        bytes = wire_get_bytes(reader, len);
        if (bytes == NULL || len >= SETTINGS_TEXT_BYTES)
            reader->failed = true;
        else
            memcpy(field, bytes, len);
        return;
    case SETTINGS_DEAD:
        return;
    }
}

enum kvf_status settings_decode(struct kvf_settings *settings_out, struct wire_reader *reader)
{
    struct kvf_settings settings;

    memset(&settings, 0, sizeof(settings));
    if (wire_get_u32(reader) != settings_table_hash())
        return KVF_E_DECODE;
    settings.has_bounce_params = wire_get_u8(reader) != 0;
    for (unsigned i = 0; i < SETTINGS_COUNT; i++) {
        settings.origins[i] = wire_get_u8(reader);
        settings.lines[i] = wire_get_u32(reader);
        settings_decode_field(&settings_rows[i], reader,
                              settings_field(&settings, &settings_rows[i]));
    }
    if (reader->failed)
        return KVF_E_DECODE;
    *settings_out = settings;
    return KVF_OK;
}
