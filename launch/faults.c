/* faults.c - see faults.h. */
#include "faults.h"

#include <stdio.h>
#include <string.h>

#include "options.h"
#include "rng.h"

#define FAULTS_SLOW_MS 20u
#define FAULTS_SILENT_MS 300u
#define FAULTS_MS_MAX 60000u
#define FAULTS_WORD_BYTES 64u

static const char *const fault_fate_words[FAULT_FATES] = {"none",
#define FAULT_X(name, word) word,
                                                          FAULTS_FATE_LIST(FAULT_X)
#undef FAULT_X
};

static const char *const fault_extra_words[FAULT_EXTRAS] = {
#define FAULT_X(name, word) word,
    FAULTS_EXTRA_LIST(FAULT_X)
#undef FAULT_X
};

static const char *const fault_time_words[] = {"slow-ms", "silent-ms"};
static const char fault_kill_word[] = "kill";

const char *fault_fate_word(enum fault_fate fate)
{
    return fault_fate_words[fate];
}

const char *fault_extra_word(enum fault_extra extra)
{
    return fault_extra_words[extra];
}

/* ---- the words ------------------------------------------------------------------------------- */

static bool fault_unknown(const char *word, char *text_out)
{
    const char *words[FAULT_FATES - 1 + FAULT_EXTRAS + 3];
    const char *nearest;
    size_t count = 0;

    for (int f = 1; f < FAULT_FATES; f++) {
        words[count++] = fault_fate_words[f];
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        words[count++] = fault_extra_words[e];
    }
    words[count++] = fault_time_words[0];
    words[count++] = fault_time_words[1];
    words[count++] = fault_kill_word;
    nearest = options_nearest(word, words, count);
    snprintf(text_out, OPTIONS_TEXT_BYTES, "--faults: unknown word \"%s\"%s%s", word,
             nearest != NULL ? "; the nearest is " : "; see --help",
             nearest != NULL ? nearest : "");
    return false;
}

/* "12.5%" as 0.125. */
static bool fault_share(const char *word, char *value, double *share_out, char *text_out)
{
    size_t len = strlen(value);
    double percent;

    if (len > 1 && value[len - 1] == '%') {
        value[len - 1] = '\0';
        if (options_number(value, 100, &percent)) {
            *share_out = percent / 100;
            return true;
        }
        value[len - 1] = '%';
    }
    snprintf(text_out, OPTIONS_TEXT_BYTES, "--faults: %s is \"%s\"; want 0%% to 100%%", word,
             value);
    return false;
}

static bool fault_time(const char *word, const char *value, uint64_t *ms_out, char *text_out)
{
    if (options_whole(value, 1, FAULTS_MS_MAX, ms_out)) {
        return true;
    }
    snprintf(text_out, OPTIONS_TEXT_BYTES,
             "--faults: %s is \"%s\"; want a whole number from 1 to %u", word, value,
             FAULTS_MS_MAX);
    return false;
}

/* "2@17" or "2@end". */
static bool fault_kill(char *value, struct fault_spec *spec, char *text_out)
{
    char *at = strchr(value, '@');
    uint64_t rank, ended = FAULTS_AT_END;

    if (at != NULL) {
        *at = '\0';
        if (options_whole(value, 0, FAULTS_NO_RANK - 1, &rank) &&
            (strcmp(at + 1, "end") == 0 || options_whole(at + 1, 0, FAULTS_AT_END - 1, &ended))) {
            spec->kill_rank = (uint32_t)rank;
            spec->kill_at = (uint32_t)ended;
            return true;
        }
        *at = '@';
    }
    snprintf(text_out, OPTIONS_TEXT_BYTES,
             "--faults: kill is \"%s\"; want RANK@N or RANK@end, N requests that have ended",
             value);
    return false;
}

/* One "word=value"; `word` is cut at the sign. */
static bool fault_word(char *word, struct fault_spec *spec, char *text_out)
{
    char *value = strchr(word, '=');

    if (value == NULL) {
        snprintf(text_out, OPTIONS_TEXT_BYTES, "--faults: \"%s\"; want WORD=P%%", word);
        return false;
    }
    *value++ = '\0';
    for (int f = 1; f < FAULT_FATES; f++) {
        if (strcmp(word, fault_fate_words[f]) == 0) {
            return fault_share(word, value, &spec->fates[f], text_out);
        }
    }
    for (int e = 0; e < FAULT_EXTRAS; e++) {
        if (strcmp(word, fault_extra_words[e]) == 0) {
            return fault_share(word, value, &spec->extras[e], text_out);
        }
    }
    if (strcmp(word, fault_time_words[0]) == 0) {
        return fault_time(word, value, &spec->slow_ms, text_out);
    }
    if (strcmp(word, fault_time_words[1]) == 0) {
        return fault_time(word, value, &spec->silent_ms, text_out);
    }
    return strcmp(word, fault_kill_word) == 0 ? fault_kill(value, spec, text_out)
                                              : fault_unknown(word, text_out);
}

bool faults_parse(const char *text, struct fault_spec *spec_out, char *text_out)
{
    struct fault_spec spec = {.any = true,
                              .slow_ms = FAULTS_SLOW_MS,
                              .silent_ms = FAULTS_SILENT_MS,
                              .kill_rank = FAULTS_NO_RANK};
    char word[FAULTS_WORD_BYTES];
    double sum = 0;

    for (const char *at = text;; at++) {
        size_t len = strcspn(at, ",");

        if (len >= sizeof(word)) {
            snprintf(text_out, OPTIONS_TEXT_BYTES, "--faults: \"%.60s...\" is too long", at);
            return false;
        }
        memcpy(word, at, len);
        word[len] = '\0';
        if (!fault_word(word, &spec, text_out)) {
            return false;
        }
        at += len;
        if (*at == '\0') {
            break;
        }
    }
    for (int f = 1; f < FAULT_FATES; f++) {
        sum += spec.fates[f];
    }
    if (sum > 1 + 1e-9) {
        snprintf(text_out, OPTIONS_TEXT_BYTES,
                 "--faults: a request ends in one way, and the ways add up to %.6g%%; want at most "
                 "100%%",
                 sum * 100);
        return false;
    }
    *spec_out = spec;
    return true;
}

/* ---- what a request gets --------------------------------------------------------------------- */

struct fault faults_draw(const struct fault_spec *spec, uint64_t seed, uint64_t rid)
{
    static const uint32_t passes[] = {1, 1, 2, 3, 5, 8, 20, 60, 200, 600};
    struct rng rng = {rng_mix(seed * 0x9e3779b97f4a7c15ull + 7) ^ rng_mix(rid)};
    struct fault fault = {.fate = FAULT_NONE};
    double at = rng_unit(&rng), sum = 0;

    for (int f = 1; spec->any && f < FAULT_FATES && fault.fate == FAULT_NONE; f++) {
        sum += spec->fates[f];
        if (at < sum) {
            fault.fate = (enum fault_fate)f;
        }
    }
    for (int e = 0; spec->any && e < FAULT_EXTRAS; e++) {
        fault.extras[e] = rng_unit(&rng) < spec->extras[e];
    }
    /* Half of them while it runs: that is where things meet. */
    fault.when =
        rng_below(&rng, 2) == 0 ? FAULT_AFTER : (enum fault_when)rng_below(&rng, FAULT_WHENS);
    fault.passes = passes[rng_below(&rng, sizeof(passes) / sizeof(passes[0]))];
    fault.who = rng_below(&rng, 2) == 0 ? FAULTS_ALL_RANKS : rng_below(&rng, 1u << 16);
    fault.again = rng_below(&rng, 4) == 0;
    return fault;
}

bool faults_is_certain(enum fault_fate fate)
{
    switch (fate) {
    case FAULT_NONE:
    case FAULT_CANCEL_GEN:
    case FAULT_CANCEL_CTX:
        return false;
    case FAULT_FAIL_BEFORE:
    case FAULT_FAIL_AFTER:
    case FAULT_WRONG_SIZE:
    case FAULT_SHORT:
    case FAULT_NO_CTX:
    case FAULT_NO_GEN:
    case FAULT_FATES:
        break;
    }
    return true;
}

static bool fault_is_cancelled(enum kvf_status status)
{
    return status == KVF_E_CANCELLED || status == KVF_E_PEER_CANCELLED;
}

bool faults_allows(const struct fault *fault, enum kvf_side side, bool synchronous,
                   enum kvf_status status)
{
    switch (fault->fate) {
    case FAULT_NONE:
        return status == KVF_OK;
    case FAULT_CANCEL_GEN:
        return status == KVF_OK || fault_is_cancelled(status) ||
               (synchronous && side == KVF_GENERATION && status == KVF_E_TIMEOUT);
    case FAULT_CANCEL_CTX:
        return status == KVF_OK || fault_is_cancelled(status);
    case FAULT_FAIL_BEFORE:
    case FAULT_FAIL_AFTER:
        return fault_is_cancelled(status);
    /* One rank's failure reaches the others as a cancel. */
    case FAULT_WRONG_SIZE:
        return status == KVF_E_PROTOCOL || fault_is_cancelled(status);
    case FAULT_SHORT:
        return status == KVF_E_REQ_BLOCKS || fault_is_cancelled(status);
    case FAULT_NO_CTX:
        return status == KVF_E_TIMEOUT || status == KVF_E_PEER_CANCELLED;
    case FAULT_NO_GEN:
        return status == KVF_E_TIMEOUT;
    case FAULT_FATES:
        break;
    }
    return false;
}
