/* options.c - see options.h. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#define OPTIONS_ROWS_MAX 64
#define OPTIONS_NAME_MAX 48

bool options_whole(const char *text, uint64_t low, uint64_t high, uint64_t *value_out)
{
    uint64_t value = 0;

    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');

        if (*text < '0' || *text > '9' || value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    if (value < low || value > high) {
        return false;
    }
    *value_out = value;
    return true;
}

bool options_number(const char *text, double high, double *value_out)
{
    size_t digits = strspn(text, "0123456789");
    size_t len = digits;
    double value;

    if (text[len] == '.') {
        digits += strspn(text + len + 1, "0123456789");
        len = digits + 1;
    }
    if (digits == 0 || text[len] != '\0' || len > 40) {
        return false;
    }
    value = strtod(text, NULL);
    if (value > high) {
        return false;
    }
    *value_out = value;
    return true;
}

/* Letters that must change to make one name from the other (Levenshtein). */
static size_t options_distance(const char *a, const char *b)
{
    size_t row[OPTIONS_NAME_MAX + 1];
    size_t len = strlen(b);

    if (len > OPTIONS_NAME_MAX) {
        return SIZE_MAX;
    }
    for (size_t j = 0; j <= len; j++) {
        row[j] = j;
    }
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t corner = row[0];

        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            size_t above = row[j];
            size_t best = corner + (a[i - 1] != b[j - 1]);

            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            corner = above;
        }
    }
    return row[len];
}

const char *options_nearest(const char *name, const char *const *names, size_t count)
{
    size_t len = strlen(name);
    size_t limit = len / 3 < 3 ? (len + 2) / 3 : 3;
    const char *best = NULL;
    size_t best_distance = limit + 1;

    for (size_t i = 0; i < count; i++) {
        size_t distance = options_distance(name, names[i]);

        if (distance < best_distance) {
            best = names[i];
            best_distance = distance;
        }
    }
    return best;
}

static const struct option_row *options_find(const struct option_row *rows, const char *name,
                                             size_t len)
{
    for (; rows->name != NULL; rows++) {
        if (strlen(rows->name) == len && memcmp(rows->name, name, len) == 0) {
            return rows;
        }
    }
    return NULL;
}

static bool options_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);

    for (const char *at = choices; at != NULL; at = strchr(at, '|')) {
        at += *at == '|';
        if (len > 0 && strchr(text, '|') == NULL && strncmp(at, text, len) == 0 &&
            (at[len] == '|' || at[len] == '\0')) {
            return true;
        }
    }
    return false;
}

/* What a value of this row must be, for messages and help. */
static void options_wanted(const struct option_row *row, char *text_out, size_t bytes)
{
    switch (row->kind) {
    case OPTION_FLAG:
        snprintf(text_out, bytes, "no value");
        break;
    case OPTION_WHOLE:
        snprintf(text_out, bytes, "a whole number from %llu to %llu", (unsigned long long)row->low,
                 (unsigned long long)row->high);
        break;
    case OPTION_NUMBER:
        snprintf(text_out, bytes, "a number from 0 to %llu", (unsigned long long)row->high);
        break;
    case OPTION_TEXT:
        snprintf(text_out, bytes, "%s", row->value);
        break;
    case OPTION_CHOICE:
        snprintf(text_out, bytes, "one of %s", row->choices);
        break;
    }
}

static bool options_set(const struct option_row *row, const char *text, void *values)
{
    void *value = (char *)values + row->offset;

    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)value = text != NULL;
        return true;
    case OPTION_WHOLE:
        return options_whole(text, row->low, row->high, value);
    case OPTION_NUMBER:
        return options_number(text, (double)row->high, value);
    case OPTION_TEXT:
        *(const char **)value = text;
        return text == NULL || *text != '\0';
    case OPTION_CHOICE:
        *(const char **)value = text;
        return options_choice(row->choices, text);
    }
    return false;
}

static void options_unknown(const struct option_row *rows, const char *word, char *text_out)
{
    const char *names[OPTIONS_ROWS_MAX];
    char name[OPTIONS_NAME_MAX];
    size_t count = 0;
    const char *near;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word + 2, "="), word + 2);
    for (; rows->name != NULL && count < OPTIONS_ROWS_MAX; rows++) {
        names[count++] = rows->name;
    }
    near = options_nearest(name, names, count);
    if (near != NULL) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "unknown option --%s; the nearest is --%s", name,
                 near);
    } else {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "unknown option --%s; see --help", name);
    }
}

/* Reads the option at argv[0]; returns how many words it took, 0 on an error. */
static int options_one(const struct option_row *rows, int argc, char **argv, void *values,
                       char *text_out)
{
    const char *word = argv[0];
    const char *equals = strchr(word, '=');
    const struct option_row *row;
    const char *value = "";
    char wanted[160];
    int took = 1;

    if (strncmp(word, "--", 2) != 0 || word[2] == '\0') {
        snprintf(text_out, OPTIONS_TEXT_BYTES,
                 "\"%.60s\" is not an option; options begin with --, see --help", word);
        return 0;
    }
    row = options_find(rows, word + 2,
                       equals != NULL ? (size_t)(equals - word) - 2 : strlen(word + 2));
    if (row == NULL) {
        options_unknown(rows, word, text_out);
        return 0;
    }
    options_wanted(row, wanted, sizeof(wanted));
    if (row->kind == OPTION_FLAG && equals != NULL) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "--%s takes no value", row->name);
        return 0;
    }
    if (equals != NULL) {
        value = equals + 1;
    } else if (row->kind != OPTION_FLAG) {
        if (argc < 2) {
            snprintf(text_out, OPTIONS_TEXT_BYTES, "--%s has no value; want %s", row->name, wanted);
            return 0;
        }
        value = argv[1];
        took = 2;
    }
    if (!options_set(row, value, values)) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "--%s is \"%.60s\"; want %s", row->name, value,
                 wanted);
        return 0;
    }
    return took;
}

bool options_parse(const struct option_row *rows, int argc, char **argv, void *values_out,
                   char *text_out)
{
    for (const struct option_row *row = rows; row->name != NULL; row++) {
        if (!options_set(row, row->initial, values_out)) {
            snprintf(text_out, OPTIONS_TEXT_BYTES, "default of --%s is wrong", row->name);
            return false;
        }
    }
    while (argc > 0) {
        int took = options_one(rows, argc, argv, values_out, text_out);

        if (took == 0) {
            return false;
        }
        argc -= took;
        argv += took;
    }
    return true;
}

void options_help(const struct option_row *rows, FILE *file)
{
    for (; rows->name != NULL; rows++) {
        char left[80];

        if (rows->kind == OPTION_FLAG) {
            snprintf(left, sizeof(left), "--%s", rows->name);
        } else {
            snprintf(left, sizeof(left), "--%s %s", rows->name,
                     rows->kind == OPTION_CHOICE ? rows->choices : rows->value);
        }
        fprintf(file, "  %s\n      %s", left, rows->help);
        if (rows->kind != OPTION_FLAG) {
            fprintf(file, " [%s]", rows->initial != NULL ? rows->initial : "none");
        }
        fputc('\n', file);
    }
}
