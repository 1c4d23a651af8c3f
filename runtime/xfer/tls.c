/*
 * tls.c - see tls.h.
 *
 * May not include anything but base.
 */
#include "xfer/tls.h"

#include <stdio.h>
#include <string.h>

#define TLS_WORD_BYTES 64u

/* Names and aliases by which a list can mean shared memory, a GPU, or the process itself. */
static const char *const tls_words_shared[] = {"sm",  "shm",  "mm",    "posix", "sysv",
                                               "cma", "knem", "xpmem", NULL};
static const char *const tls_words_alias_shared[] = {"sm", "shm", "mm", NULL};
static const char *const tls_words_device[] = {
    "cuda",     "cuda_copy", "cuda_ipc", "gdr_copy", "rocm",   "rocm_copy", "rocm_ipc",
    "rocm_gdr", "ze",        "ze_copy",  "ze_ipc",   "ze_gdr", "gaudi_gdr", NULL};
static const char *const tls_words_self[] = {"self", "loopback", NULL};

/*
 * What control and far must not have, if this UCX has it: {name in a list, mark among components}.
 */
static const char *const tls_unwanted[][2] = {
    {"cuda", "cuda"}, {"gdr_copy", "gdr_copy"}, {"rocm", "rocm"}, {"ze", "ze_"}};
static const char *const tls_unwanted_shared[] = {"xpmem", "knem"};

static bool tls_among(const char *word, const char *const *words)
{
    for (; *words != NULL; ++words) {
        if (strcmp(word, *words) == 0) {
            return true;
        }
    }
    return false;
}

bool tls_word(const char *list, size_t n, char *word_out, size_t word_bytes)
{
    for (; n > 0; --n) {
        list = strchr(list, ',');
        if (list == NULL) {
            return false;
        }
        ++list;
    }
    list += strspn(list, " \t^\\");
    size_t len = strcspn(list, ", \t:");
    if (len >= word_bytes) {
        len = word_bytes - 1;
    }
    memcpy(word_out, list, len);
    word_out[len] = '\0';
    return true;
}

static bool tls_unlimited(const char *user)
{
    char word[TLS_WORD_BYTES];

    if (user == NULL || user[0] == '\0') {
        return true;
    }
    for (size_t i = 0; user[0] != '^' && tls_word(user, i, word, sizeof(word)); ++i) {
        if (strcmp(word, "all") == 0) {
            return true;
        }
    }
    return false;
}

static bool tls_names(const char *list, const char *name, const char *const *aliases)
{
    char word[TLS_WORD_BYTES];

    for (size_t i = 0; tls_word(list, i, word, sizeof(word)); ++i) {
        if (strcmp(word, name) == 0 || tls_among(word, aliases)) {
            return true;
        }
    }
    return false;
}

static bool tls_allows(const struct tls_facts *facts, const char *name)
{
    if (tls_unlimited(facts->user)) {
        return true;
    }
    return tls_names(facts->user, name, tls_words_alias_shared) != (facts->user[0] == '^');
}

const char *tls_shared(const struct tls_facts *facts)
{
    if (facts->sysv && tls_allows(facts, "sysv")) {
        return "sysv";
    }
    return tls_allows(facts, "posix") ? "posix" : NULL;
}

const char *tls_context_name(enum tls_context context)
{
    switch (context) {
    case TLS_NEAR:
        return "near";
    case TLS_FAR:
        return "far";
    case TLS_CONTROL:
        return "control";
    }
    return "unknown";
}

/* Appends a word; false = no room. */
static bool tls_append(char *list, const char *word)
{
    size_t used = strlen(list);
    bool first = used == 0 || strcmp(list, "^") == 0;
    int more = snprintf(list + used, TLS_LIST_BYTES - used, "%s%s", first ? "" : ",", word);

    return more >= 0 && (size_t)more < TLS_LIST_BYTES - used;
}

static bool tls_present(const struct tls_facts *facts, const char *mark)
{
    return facts->present != NULL && strstr(facts->present, mark) != NULL;
}

/* All but what the context must not have, and but what the user's negative list names. */
static bool tls_negative(const struct tls_facts *facts, enum tls_context context,
                         const char *shared, char *list)
{
    static const char *const none[] = {NULL};
    char word[TLS_WORD_BYTES];
    bool room = tls_append(strcpy(list, "^"), "self");

    if (context == TLS_FAR) {
        room = room && tls_append(list, "sm");
    } else {
        room = room && tls_append(list, strcmp(shared, "sysv") == 0 ? "posix" : "sysv");
        /* Other shared memory is not only unwanted: cma reads the peer's memory to try itself. */
        if (facts->cma && tls_present(facts, "cma")) {
            room = room && tls_append(list, "cma");
        }
        for (size_t i = 0; i < sizeof(tls_unwanted_shared) / sizeof(tls_unwanted_shared[0]); ++i) {
            if (tls_present(facts, tls_unwanted_shared[i])) {
                room = room && tls_append(list, tls_unwanted_shared[i]);
            }
        }
    }
    for (size_t i = 0; i < sizeof(tls_unwanted) / sizeof(tls_unwanted[0]); ++i) {
        if (tls_present(facts, tls_unwanted[i][1])) {
            room = room && tls_append(list, tls_unwanted[i][0]);
        }
    }
    if (facts->user != NULL && facts->user[0] == '^') {
        for (size_t i = 0; tls_word(facts->user, i, word, sizeof(word)); ++i) {
            if (word[0] != '\0' && !tls_names(list, word, none)) {
                room = room && tls_append(list, word);
            }
        }
    }
    return room;
}

/* The user's words of this context's class. An unknown word counts as a network: UCX judges it. */
static bool tls_positive(const struct tls_facts *facts, enum tls_context context,
                         const char *shared, char *list)
{
    char word[TLS_WORD_BYTES];
    bool room = true;

    list[0] = '\0';
    for (size_t i = 0; tls_word(facts->user, i, word, sizeof(word)); ++i) {
        bool network = word[0] != '\0' && !tls_among(word, tls_words_shared) &&
                       !tls_among(word, tls_words_device) && !tls_among(word, tls_words_self);
        if (network) {
            room = room && tls_append(list, word);
        }
    }
    /* Messages must reach both kinds of peers; a list without a network is refused as a whole. */
    if (context == TLS_CONTROL && list[0] != '\0') {
        room = room && tls_append(list, shared);
    }
    return room;
}

enum kvf_status tls_list(const struct tls_facts *facts, enum tls_context context, char *list_out,
                         char *reason_out, size_t reason_bytes)
{
    const char *shared = tls_shared(facts);
    const char *wanted = context == TLS_FAR ? "a network" : "sysv or posix";
    bool room = true;

    list_out[0] = '\0';
    if (shared != NULL || context == TLS_FAR) {
        if (context == TLS_NEAR) {
            room = tls_append(list_out, shared);
        } else if (tls_unlimited(facts->user) || facts->user[0] == '^') {
            room = tls_negative(facts, context, shared, list_out);
        } else {
            room = tls_positive(facts, context, shared, list_out);
            wanted = "a network (tcp)";
        }
    }
    if (!room) {
        snprintf(reason_out, reason_bytes, "UCX_TLS=%.64s... is too long for the %s context",
                 facts->user == NULL ? "" : facts->user, tls_context_name(context));
        return KVF_E_TOO_LARGE;
    }
    if (list_out[0] == '\0') {
        snprintf(reason_out, reason_bytes,
                 "UCX_TLS=%.128s leaves the %s context without a transport: it needs %s; all three "
                 "contexts need one (near: sysv or posix, far: a network such as tcp)",
                 facts->user == NULL ? "all" : facts->user, tls_context_name(context), wanted);
        return KVF_E_NO_TRANSPORT;
    }
    return KVF_OK;
}
