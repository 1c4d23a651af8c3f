/*
 * topology.c - the text form of a topology, and the place of a rank in it: kvf_topology.h.
 *
 * Pure: no I/O, no clock. May include base.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <kvferry/kvf_topology.h>

#include "check.h"
#include "heap.h"

#define TOPOLOGY_TP_MAX 65536u
#define TOPOLOGY_RANKS_MAX 65536u
#define TOPOLOGY_LAYERS_MAX 65536u
#define TOPOLOGY_TEXT_MAX 65536u
#define TOPOLOGY_KEYS "tp, pp, dp, adp, layers, x, name"

/* A part of the text; not ended. */
struct topology_word {
    const char *at;
    size_t len;
};

/* One "ctx ..." of the text, before x= is spread. */
struct topology_item {
    struct topology_word name; /* len 0: not named */
    enum kvf_side side;
    uint32_t tp, pp, dp, count;
    bool has_pp, has_dp, adp;
    struct topology_word layers; /* len 0: even split */
    uint32_t layers_count;
};

/* The caller's place for the reason, and where in the text we are. */
struct topology_reader {
    char *text_out;
    size_t text_bytes;
    uint32_t item; /* from 1 */
};

struct topology_sizes {
    uint64_t instances;
    uint64_t ranks;
    uint64_t layer_words;
};

KVF_PRINTF(3, 4)
static enum kvf_status topology_refuse(const struct topology_reader *reader, enum kvf_status status,
                                       const char *format, ...)
{
    char reason[256];
    va_list args;

    if (reader->text_out == NULL || reader->text_bytes == 0) {
        return status;
    }
    va_start(args, format);
    vsnprintf(reason, sizeof(reason), format, args);
    va_end(args);
    if (reader->item == 0) {
        snprintf(reader->text_out, reader->text_bytes, "topology: %s", reason);
    } else {
        snprintf(reader->text_out, reader->text_bytes, "topology, part %u: %s", reader->item,
                 reason);
    }
    return status;
}

static bool topology_is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool topology_word_is(struct topology_word word, const char *text)
{
    return word.len == strlen(text) && memcmp(word.at, text, word.len) == 0;
}

static int topology_shown(struct topology_word word)
{
    return word.len > 40 ? 40 : (int)word.len;
}

/* Next word of [*at, end); len 0 at the end. */
static struct topology_word topology_next(const char **at, const char *end)
{
    struct topology_word word;

    while (*at < end && topology_is_space(**at)) {
        (*at)++;
    }
    word.at = *at;
    while (*at < end && !topology_is_space(**at)) {
        (*at)++;
    }
    word.len = (size_t)(*at - word.at);
    return word;
}

/* A whole number in decimal digits, nothing else. */
static bool topology_number(struct topology_word word, uint32_t max, uint32_t *value_out)
{
    uint64_t value = 0;

    if (word.len == 0 || word.len > 9) {
        return false;
    }
    for (size_t i = 0; i < word.len; i++) {
        if (word.at[i] < '0' || word.at[i] > '9') {
            return false;
        }
        value = value * 10 + (uint64_t)(word.at[i] - '0');
    }
    if (value > max) {
        return false;
    }
    *value_out = (uint32_t)value;
    return true;
}

/* Cuts "a,b,c" after the first comma; the rest has len 0 at the end. */
static struct topology_word topology_list_next(struct topology_word *rest)
{
    struct topology_word part = *rest;
    const char *comma = memchr(rest->at, ',', rest->len);

    if (comma == NULL) {
        rest->at += rest->len;
        rest->len = 0;
        return part;
    }
    part.len = (size_t)(comma - rest->at);
    rest->at = comma + 1;
    rest->len -= part.len + 1;
    return part;
}

static enum kvf_status topology_layers(const struct topology_reader *reader,
                                       struct topology_word value, struct topology_item *item)
{
    struct topology_word rest = value;
    uint32_t layers;

    item->layers = value;
    item->layers_count = 0;
    if (value.len == 0 || value.at[value.len - 1] == ',') {
        return topology_refuse(reader, KVF_E_PARSE,
                               "layers is \"%.*s\"; want numbers with commas between, one a stage",
                               topology_shown(value), value.at);
    }
    while (rest.len > 0) {
        struct topology_word part = topology_list_next(&rest);

        if (!topology_number(part, TOPOLOGY_LAYERS_MAX, &layers)) {
            return topology_refuse(reader, KVF_E_PARSE,
                                   "layers has \"%.*s\"; want a whole number from 0 to %u",
                                   topology_shown(part), part.at, TOPOLOGY_LAYERS_MAX);
        }
        item->layers_count++;
    }
    return KVF_OK;
}

static enum kvf_status topology_name(const struct topology_reader *reader,
                                     struct topology_word value, struct topology_item *item)
{
    bool fine = value.len > 0 && value.len < KVF_NAME_BYTES;

    for (size_t i = 0; fine && i < value.len; i++) {
        char c = value.at[i];

        fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-' || c == '.';
    }
    if (!fine) {
        return topology_refuse(reader, KVF_E_PARSE,
                               "name is \"%.*s\"; want 1 to %d letters, digits, '_', '-' or '.'",
                               topology_shown(value), value.at, KVF_NAME_BYTES - 1);
    }
    item->name = value;
    return KVF_OK;
}

/* One word after the side: adp, or key=value. */
static enum kvf_status topology_key(const struct topology_reader *reader, struct topology_word word,
                                    struct topology_item *item)
{
    const char *equals = memchr(word.at, '=', word.len);
    struct topology_word key = word, value = {word.at + word.len, 0};
    uint32_t *number = NULL;
    uint32_t max = TOPOLOGY_TP_MAX;

    if (topology_word_is(word, "adp")) {
        item->adp = true;
        return KVF_OK;
    }
    if (equals != NULL) {
        key.len = (size_t)(equals - word.at);
        value.at = equals + 1;
        value.len = word.len - key.len - 1;
    }
    if (topology_word_is(key, "tp")) {
        number = &item->tp;
    } else if (topology_word_is(key, "pp")) {
        number = &item->pp;
        item->has_pp = true;
        max = KVF_PP_MAX;
    } else if (topology_word_is(key, "dp")) {
        number = &item->dp;
        item->has_dp = true;
    } else if (topology_word_is(key, "x")) {
        number = &item->count;
        max = KVF_INSTANCES_MAX;
    } else if (topology_word_is(key, "layers")) {
        return topology_layers(reader, value, item);
    } else if (topology_word_is(key, "name")) {
        return topology_name(reader, value, item);
    } else {
        return topology_refuse(reader, KVF_E_PARSE, "\"%.*s\" is no key; known are " TOPOLOGY_KEYS,
                               topology_shown(word), word.at);
    }
    if (!topology_number(value, max, number) || *number == 0) {
        return topology_refuse(reader, KVF_E_PARSE,
                               "%.*s is \"%.*s\"; want a whole number from 1 to %u", (int)key.len,
                               key.at, topology_shown(value), value.at, max);
    }
    return KVF_OK;
}

/* What the keys of one item say together. */
static enum kvf_status topology_item_check(const struct topology_reader *reader,
                                           struct topology_item *item)
{
    if (item->layers_count > 0 && !item->has_pp) {
        item->pp = item->layers_count;
    }
    if (item->pp > KVF_PP_MAX || (item->layers_count > 0 && item->layers_count != item->pp)) {
        return topology_refuse(reader, KVF_E_TOPOLOGY,
                               "layers names %u stages, pp is %u; want one number a stage, at most "
                               "%u stages",
                               item->layers_count, item->pp, KVF_PP_MAX);
    }
    if (item->has_dp) {
        item->adp = true;
    } else {
        item->dp = item->adp ? item->tp : 1;
    }
    if (item->tp % item->dp != 0) {
        return topology_refuse(reader, KVF_E_DP_SHAPE,
                               "attention DP: %u groups do not divide tp %u", item->dp, item->tp);
    }
    if (item->count > 1 && item->name.len > KVF_NAME_BYTES - 6) {
        return topology_refuse(reader, KVF_E_PARSE, "name is too long to be numbered: at most %d",
                               KVF_NAME_BYTES - 6);
    }
    return KVF_OK;
}

/* One item of the text, [at, end) without the ';'. */
static enum kvf_status topology_item(const struct topology_reader *reader, const char *at,
                                     const char *end, struct topology_item *item)
{
    struct topology_word word = topology_next(&at, end);
    enum kvf_status status = KVF_OK;

    memset(item, 0, sizeof(*item));
    item->tp = item->pp = item->dp = item->count = 1;
    if (word.len == 0) {
        return topology_refuse(reader, KVF_E_PARSE, "nothing between two ';'");
    }
    if (topology_word_is(word, "ctx") || topology_word_is(word, "context")) {
        item->side = KVF_CONTEXT;
    } else if (topology_word_is(word, "gen") || topology_word_is(word, "generation")) {
        item->side = KVF_GENERATION;
    } else {
        return topology_refuse(reader, KVF_E_PARSE,
                               "begins with \"%.*s\"; want ctx or gen, as in \"ctx tp=2 pp=2; gen "
                               "tp=4 adp\"",
                               topology_shown(word), word.at);
    }
    for (word = topology_next(&at, end); status == KVF_OK && word.len > 0;
         word = topology_next(&at, end)) {
        status = topology_key(reader, word, item);
    }
    if (status == KVF_OK) {
        status = topology_item_check(reader, item);
    }
    return status;
}

/* End of the item that begins at `at`; *next_out is the one after it, or NULL. */
static const char *topology_item_end(const char *at, const char **next_out)
{
    const char *end = strchr(at, ';');

    if (end == NULL) {
        *next_out = NULL;
        return at + strlen(at);
    }
    *next_out = end + 1;
    while (topology_is_space(**next_out)) {
        (*next_out)++;
    }
    if (**next_out == '\0') {
        *next_out = NULL; /* a ';' at the very end is fine */
    }
    return end;
}

/* First pass: checks everything and counts. */
static enum kvf_status topology_measure(struct topology_reader *reader, const char *text,
                                        struct topology_sizes *sizes)
{
    uint32_t sides[2] = {0, 0};
    const char *next = text;
    struct topology_item item;

    memset(sizes, 0, sizeof(*sizes));
    while (next != NULL) {
        const char *at = next;
        const char *end = topology_item_end(at, &next);
        enum kvf_status status;

        reader->item++;
        status = topology_item(reader, at, end, &item);
        if (status != KVF_OK) {
            return status;
        }
        sides[item.side]++;
        sizes->instances += item.count;
        sizes->ranks += (uint64_t)item.tp * item.pp * item.count;
        sizes->layer_words += (uint64_t)item.layers_count;
        if (sizes->instances > KVF_INSTANCES_MAX || sizes->ranks > TOPOLOGY_RANKS_MAX) {
            return topology_refuse(reader, KVF_E_TOPOLOGY,
                                   "too large: at most %u instances and %u ranks",
                                   KVF_INSTANCES_MAX, TOPOLOGY_RANKS_MAX);
        }
    }
    reader->item = 0;
    if (sides[KVF_CONTEXT] == 0 || sides[KVF_GENERATION] == 0) {
        return topology_refuse(reader, KVF_E_TOPOLOGY,
                               "no %s instance; want at least one ctx and "
                               "one gen",
                               sides[KVF_CONTEXT] == 0 ? "ctx" : "gen");
    }
    return KVF_OK;
}

static void topology_name_default(enum kvf_side side, uint32_t number, char *name_out)
{
    snprintf(name_out, KVF_NAME_BYTES, "%s%u", side == KVF_CONTEXT ? "ctx" : "gen", number);
}

/* Writes the layers of an item; returns the first word after them. */
static uint32_t *topology_write_layers(const struct topology_item *item, uint32_t *words)
{
    struct topology_word rest = item->layers;

    while (rest.len > 0) {
        bool fine = topology_number(topology_list_next(&rest), TOPOLOGY_LAYERS_MAX, words++);

        KVF_ASSERT(fine);
    }
    return words;
}

/* Second pass: the text has passed topology_measure(). */
static void topology_write(const char *text, struct kvf_topology *topology,
                           struct kvf_instance *instances, uint32_t *words)
{
    struct topology_reader silent = {NULL, 0, 0};
    uint32_t sides[2] = {0, 0};
    const char *next = text;
    struct topology_item item;

    while (next != NULL) {
        const char *at = next;
        const char *end = topology_item_end(at, &next);
        enum kvf_status status = topology_item(&silent, at, end, &item);
        uint32_t *layers = words;

        KVF_ASSERT(status == KVF_OK);
        words = topology_write_layers(&item, words);
        for (uint32_t i = 0; i < item.count; i++) {
            struct kvf_instance *instance = &instances[topology->instance_count++];

            topology_name_default(item.side, sides[item.side]++, instance->name);
            if (item.name.len > 0) {
                int len = snprintf(instance->name, KVF_NAME_BYTES, "%.*s", (int)item.name.len,
                                   item.name.at);

                if (item.count > 1) {
                    snprintf(instance->name + len, KVF_NAME_BYTES - (size_t)len, "%u", i);
                }
            }
            instance->side = item.side;
            instance->first_rank = topology->rank_count;
            instance->tp_size = item.tp;
            instance->pp_size = item.pp;
            instance->attention_dp = item.adp;
            instance->dp_size = item.dp;
            instance->layers_per_pp = item.layers_count > 0 ? layers : NULL;
            topology->rank_count += item.tp * item.pp;
        }
    }
    topology->instances = instances;
}

static enum kvf_status topology_names(const struct topology_reader *reader,
                                      const struct kvf_topology *topology)
{
    for (uint32_t i = 0; i < topology->instance_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(topology->instances[i].name, topology->instances[j].name) == 0) {
                return topology_refuse(reader, KVF_E_TOPOLOGY, "two instances are named %s",
                                       topology->instances[i].name);
            }
        }
    }
    return KVF_OK;
}

enum kvf_status kvf_topology_parse(const char *text, struct kvf_topology **topology_out,
                                   char *text_out, size_t text_bytes)
{
    struct topology_reader reader = {text_out, text_bytes, 0};
    const struct kvf_heap *heap = kvf_heap_system();
    struct kvf_topology *topology;
    struct topology_sizes sizes;
    struct kvf_instance *instances;
    enum kvf_status status;
    size_t bytes;

    if (text == NULL || topology_out == NULL) {
        return topology_refuse(&reader, KVF_E_INVAL, "no text or no place for the result");
    }
    if (strnlen(text, TOPOLOGY_TEXT_MAX + 1) > TOPOLOGY_TEXT_MAX) {
        return topology_refuse(&reader, KVF_E_PARSE, "longer than %u bytes", TOPOLOGY_TEXT_MAX);
    }
    if (text[strspn(text, " \t\r\n")] == '\0') {
        return topology_refuse(&reader, KVF_E_PARSE,
                               "is empty; want instances as in \"ctx tp=2 pp=2; gen tp=4 adp\"");
    }
    status = topology_measure(&reader, text, &sizes);
    if (status != KVF_OK) {
        return status;
    }
    bytes = sizeof(*topology) + sizes.instances * sizeof(*instances) +
            sizes.layer_words * sizeof(uint32_t);
    topology = kvf_alloc(heap, 1, bytes);
    if (topology == NULL) {
        return topology_refuse(&reader, KVF_E_NOMEM, "no memory for %zu bytes", bytes);
    }
    instances = (struct kvf_instance *)(topology + 1);
    topology_write(text, topology, instances, (uint32_t *)(instances + sizes.instances));
    status = topology_names(&reader, topology);
    if (status != KVF_OK) {
        goto free_topology;
    }
    *topology_out = topology;
    return KVF_OK;

free_topology:
    kvf_release(heap, topology);
    return status;
}

void kvf_topology_free(struct kvf_topology *topology)
{
    kvf_release(kvf_heap_system(), topology);
}

/* A text that is being written; `full` once something did not fit. */
struct topology_writer {
    char *at;
    size_t left;
    bool full;
};

KVF_PRINTF(2, 3)
static void topology_put(struct topology_writer *writer, const char *format, ...)
{
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(writer->at, writer->left, format, args);
    va_end(args);
    if (len < 0 || (size_t)len >= writer->left) {
        writer->full = true;
        return;
    }
    writer->at += len;
    writer->left -= (size_t)len;
}

enum kvf_status kvf_topology_format(const struct kvf_topology *topology, char *text_out,
                                    size_t text_bytes)
{
    struct topology_writer writer = {text_out, text_bytes, false};
    uint32_t sides[2] = {0, 0};
    char plain[KVF_NAME_BYTES];

    if (topology == NULL || text_out == NULL || text_bytes == 0) {
        return KVF_E_INVAL;
    }
    for (uint32_t i = 0; i < topology->instance_count && !writer.full; i++) {
        const struct kvf_instance *instance = &topology->instances[i];

        topology_put(&writer, "%s%s tp=%u pp=%u", i == 0 ? "" : "; ",
                     instance->side == KVF_CONTEXT ? "ctx" : "gen", instance->tp_size,
                     instance->pp_size);
        if (instance->attention_dp) {
            topology_put(&writer, " dp=%u", instance->dp_size);
        }
        for (uint32_t p = 0; instance->layers_per_pp != NULL && p < instance->pp_size; p++) {
            topology_put(&writer, "%s%u", p == 0 ? " layers=" : ",", instance->layers_per_pp[p]);
        }
        topology_name_default(instance->side, sides[instance->side]++, plain);
        if (strcmp(plain, instance->name) != 0) {
            topology_put(&writer, " name=%s", instance->name);
        }
    }
    return writer.full ? KVF_E_TOO_LARGE : KVF_OK;
}

int kvf_topology_instance_of(const struct kvf_topology *topology, uint32_t world_rank)
{
    for (uint32_t i = 0; i < topology->instance_count; i++) {
        const struct kvf_instance *instance = &topology->instances[i];

        if (world_rank >= instance->first_rank &&
            world_rank - instance->first_rank < instance->tp_size * instance->pp_size) {
            return (int)i;
        }
    }
    return -1;
}

enum kvf_status kvf_place(const struct kvf_topology *topology, uint32_t world_rank,
                          uint32_t layer_count, uint32_t *layers_scratch,
                          struct kvf_place *place_out)
{
    const struct kvf_instance *instance;
    struct kvf_place place = {0};
    uint64_t sum = 0;
    uint32_t rank;
    int index;

    if (topology == NULL || layers_scratch == NULL || place_out == NULL) {
        return KVF_E_INVAL;
    }
    index = kvf_topology_instance_of(topology, world_rank);
    if (index < 0) {
        return KVF_E_INVAL;
    }
    instance = &topology->instances[index];
    if (instance->pp_size > KVF_PP_MAX || instance->dp_size == 0 ||
        instance->tp_size % instance->dp_size != 0) {
        return KVF_E_INVAL;
    }
    for (uint32_t p = 0; p < instance->pp_size; p++) {
        layers_scratch[p] =
            instance->layers_per_pp != NULL
                ? instance->layers_per_pp[p]
                : layer_count / instance->pp_size + (p < layer_count % instance->pp_size ? 1 : 0);
        sum += layers_scratch[p];
    }
    if (sum != layer_count) {
        return KVF_E_TOPOLOGY;
    }
    rank = world_rank - instance->first_rank;
    place.tp_size = instance->tp_size;
    place.tp_rank = rank % instance->tp_size;
    place.pp_size = instance->pp_size;
    place.pp_rank = rank / instance->tp_size;
    place.cp_size = 1;
    place.attention_dp = instance->attention_dp;
    place.dp_size = instance->dp_size;
    place.dp_rank = place.tp_rank / (instance->tp_size / instance->dp_size);
    place.layers_per_pp = layers_scratch;
    *place_out = place;
    return KVF_OK;
}
