/* plan_table.c - see plan_table.h. */
#include "plan_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "columns.h"
#include "geometry_answer.h"
#include "plan_note.h"

/* What the parts of the table share. */
struct table {
    const struct plan_table_params *params;
    const struct geo_record *reader;
    const json_t *writers;
    FILE *file;
};

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static uint64_t number_at(const json_t *array, size_t index)
{
    return (uint64_t)json_integer_value(json_array_get(array, index));
}

/* "0-3,6": ascending runs of a list; cut with "..." where it is too long. */
static void runs_text(const json_t *list, char *text_out, size_t bytes)
{
    size_t count = json_array_size(list);
    size_t len = 0;

    snprintf(text_out, bytes, "%s", count == 0 ? "-" : "");
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        char run[48];

        while (end < count && number_at(list, end) == number_at(list, end - 1) + 1) {
            end++;
        }
        if (end - i > 1) {
            snprintf(run, sizeof(run), "%" PRIu64 "-%" PRIu64, number_at(list, i),
                     number_at(list, end - 1));
        } else {
            snprintf(run, sizeof(run), "%" PRIu64, number_at(list, i));
        }
        if (len + strlen(run) + 5 > bytes) {
            snprintf(text_out + len, bytes - len, ",...");
            return;
        }
        len += (size_t)snprintf(text_out + len, bytes - len, "%s%s", len == 0 ? "" : ",", run);
        i = end;
    }
}

/* ---- who asks whom -------------------------------------------------------------------------- */

static void grid_text(const struct geo_record *record, char *text_out, size_t bytes)
{
    const struct kvf_place *place = &record->place;
    char groups[32] = "";

    if (place->attention_dp) {
        snprintf(groups, sizeof(groups), " dp %u", place->dp_size);
    }
    snprintf(text_out, bytes, "%s (tp %u pp %u%s)", record->instance_name, place->tp_size,
             place->pp_size, groups);
}

static void print_request(const struct table *table)
{
    const struct geometry_dump *dump = table->params->dump;
    uint32_t tokens = table->reader->layout.tokens_per_block;
    char from[128], to[128];

    grid_text(dump->senders[0], from, sizeof(from));
    grid_text(table->reader, to, sizeof(to));
    fprintf(table->file, "%u tokens in %u blocks of %u", dump->prompt_tokens,
            plan_blocks(dump->prompt_tokens, tokens), tokens);
    if (dump->cached_tokens > 0) {
        fprintf(table->file, ", %u cached", dump->cached_tokens);
    }
    fprintf(table->file, ", %u piece%s: %s, dp group %u%s, to %s, dp group %u\n\n",
            dump->piece_count, dump->piece_count == 1 ? "" : "s", from, dump->sender_group,
            dump->group_known ? "" : " (not told)", to, table->reader->place.dp_rank);
}

/* The ranks that one receiver asks; gives: json_decref(). NULL when they cannot be told. */
static json_t *asked_list(const struct table *table, const struct geo_record *reader)
{
    const struct geometry_dump *dump = table->params->dump;
    const struct kvf_place *grid = &dump->senders[0]->place;
    uint32_t group = dump->group_known ? dump->sender_group : GEO_GROUP_UNKNOWN;
    uint32_t count = 0;
    uint32_t *ranks;
    json_t *list = NULL;

    if (geo_asked(reader, grid, group, NULL, 0, &count) != KVF_OK) {
        return NULL;
    }
    ranks = calloc((size_t)count + 1, sizeof(*ranks));
    if (ranks != NULL && geo_asked(reader, grid, group, ranks, count, &count) == KVF_OK) {
        list = json_array();
        for (uint32_t i = 0; i < count; i++) {
            json_array_append_new(list, json_integer(ranks[i]));
        }
    }
    free(ranks);
    return list;
}

static bool print_asks(const struct table *table)
{
    static const char *const heads[] = {"receiver", "asks", "finals"};
    const struct geometry_dump *dump = table->params->dump;
    struct columns columns;
    bool fine;

    columns_init(&columns, heads, 3);
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        const struct geo_record *reader = dump->receivers[r];
        uint32_t finals = 0;
        char text[COLUMNS_CELL_BYTES];
        json_t *list;

        if (reader->place.dp_rank != table->reader->place.dp_rank ||
            geo_finals(reader, &dump->senders[0]->place, &finals) != KVF_OK) {
            continue;
        }
        list = asked_list(table, reader);
        runs_text(list, text, sizeof(text));
        json_decref(list);
        columns_add(&columns, "%u", reader->rank);
        columns_add(&columns, "%s", text);
        columns_add(&columns, "%u", finals);
    }
    fine = columns_print(&columns, table->file);
    columns_fini(&columns);
    return fine;
}

static void print_receiver(const struct table *table)
{
    const json_t *answer = table->params->answer;
    const json_t *split = json_object_get(answer, "fanin");
    const char *reason = json_string_value(json_array_get(split, 1));
    uint64_t fragments = 0, bytes = 0;
    const json_t *writer, *piece;
    size_t w, p;

    json_array_foreach(table->writers, w, writer)
    {
        json_array_foreach(json_object_get(writer, "pieces"), p, piece)
        {
            fragments += number(piece, "fragments");
            bytes += number(piece, "bytes");
        }
    }
    fprintf(table->file, "\nreceiver %" PRIu64 ": %" PRIu64 " bytes in %" PRIu64 " fragments\n",
            number(answer, "receiver"), bytes, fragments);
    fprintf(table->file, "equal split: %s, %s: %s\n",
            json_is_true(json_array_get(split, 0)) ? "yes" : "no", reason, plan_note_split(reason));
}

/* ---- views ---------------------------------------------------------------------------------- */

static void roles_text(const json_t *view, char *text_out, size_t bytes)
{
    const json_t *role;
    size_t len = 0;
    size_t r;

    json_array_foreach(json_object_get(view, "roles"), r, role)
    {
        len += (size_t)snprintf(text_out + len, bytes - len, "%s%s", r == 0 ? "" : "+",
                                json_string_value(role));
    }
    if (strcmp(json_string_value(json_object_get(view, "owner")), "draft") == 0) {
        snprintf(text_out + len, bytes - len, " (draft)");
    }
}

/* Heads as [first, end) of the rank's own, at the writer and at the receiver. */
static void heads_text(const json_t *view, char *text_out, size_t bytes)
{
    const json_t *heads = json_object_get(view, "heads");
    uint64_t own = number_at(heads, 0), peer = number_at(heads, 1);
    uint64_t from = number_at(heads, 2), to = number_at(heads, 3), count = number_at(heads, 4);

    if (heads == NULL) {
        snprintf(text_out, bytes, "-");
    } else if (own == peer) {
        snprintf(text_out, bytes, "all %" PRIu64, own);
    } else {
        snprintf(text_out, bytes,
                 "[%" PRIu64 ",%" PRIu64 ")/%" PRIu64 " to [%" PRIu64 ",%" PRIu64 ")/%" PRIu64,
                 from, from + count, own, to, to + count, peer);
    }
}

/* Fragments and bytes of view `index` over all pieces of a writer. */
static void view_sums(const json_t *pieces, size_t index, uint64_t *fragments_out,
                      uint64_t *bytes_out)
{
    const json_t *piece;
    size_t p;

    *fragments_out = 0;
    *bytes_out = 0;
    json_array_foreach(pieces, p, piece)
    {
        const json_t *view = json_array_get(json_object_get(piece, "views"), index);

        *fragments_out += number(view, "frags");
        *bytes_out += number(view, "bytes");
    }
}

static void add_view(struct columns *columns, const json_t *writer, size_t index)
{
    const json_t *pieces = json_object_get(writer, "pieces");
    const json_t *views = json_object_get(json_array_get(pieces, 0), "views");
    const json_t *view = json_array_get(views, index);
    bool elected = json_is_true(json_object_get(view, "elected"));
    char text[COLUMNS_CELL_BYTES];
    uint64_t fragments, bytes;

    view_sums(pieces, index, &fragments, &bytes);
    columns_add(columns, "%" PRIu64, number(writer, "rank"));
    roles_text(view, text, sizeof(text));
    columns_add(columns, "%s", text);
    columns_add(columns, "%s", json_string_value(json_object_get(view, "kind")));
    runs_text(json_object_get(view, "layers"), text, sizeof(text));
    columns_add(columns, "%s", text);
    columns_add(columns, "%s", elected ? "yes" : "no");
    heads_text(view, text, sizeof(text));
    columns_add(columns, "%s", elected ? text : "-");
    columns_add(columns, "%" PRIu64, fragments);
    columns_add(columns, "%" PRIu64, bytes);
}

static bool print_views(const struct table *table)
{
    static const char *const heads[] = {"writer",  "view",  "kind",      "layers",
                                        "elected", "heads", "fragments", "bytes"};
    struct columns columns;
    const json_t *writer;
    size_t w;
    bool fine;

    columns_init(&columns, heads, 8);
    json_array_foreach(table->writers, w, writer)
    {
        const json_t *first = json_array_get(json_object_get(writer, "pieces"), 0);
        size_t views = json_array_size(json_object_get(first, "views"));

        for (size_t v = 0; v < views; v++) {
            add_view(&columns, writer, v);
        }
    }
    fputc('\n', table->file);
    fine = columns_print(&columns, table->file);
    columns_fini(&columns);
    return fine;
}

/* ---- writes --------------------------------------------------------------------------------- */

static void sizes_text(const json_t *piece, char *text_out, size_t bytes)
{
    const json_t *sizes = json_object_get(piece, "sizes");
    const json_t *one;
    size_t len = 0;
    size_t s;

    snprintf(text_out, bytes, "-");
    json_array_foreach(sizes, s, one)
    {
        if (len + 48 > bytes) {
            snprintf(text_out + len, bytes - len, " ...");
            return;
        }
        len += (size_t)snprintf(text_out + len, bytes - len, "%s%" PRIu64 "x%" PRIu64,
                                s == 0 ? "" : " ", number_at(one, 1), number_at(one, 0));
    }
}

/* Milliseconds of one write between nodes. */
static double write_ms(const struct plan_table_params *params, const json_t *piece,
                       enum kvf_path path)
{
    double ms = (double)number(piece, "bytes") / (params->gbytes_per_s * 1e6);

    return path == KVF_PATH_DIRECT ? ms + (double)number(piece, "fragments") * params->put_us / 1e3
                                   : ms;
}

static void add_write(struct columns *columns, const struct plan_table_params *params,
                      const json_t *writer, const json_t *piece)
{
    const json_t *range = json_object_get(piece, "piece");
    const json_t *bounce = json_object_get(piece, "bounce");
    struct plan_note_rung near = plan_note_rung(params, true, number(piece, "bytes"));
    struct plan_note_rung far = plan_note_rung(params, false, number(piece, "bytes"));
    char text[COLUMNS_CELL_BYTES];

    columns_add(columns, "%" PRIu64, number(writer, "rank"));
    runs_text(json_object_get(writer, "serves"), text, sizeof(text));
    columns_add(columns, "%s", text);
    columns_add(columns, "[%" PRIu64 ",%" PRIu64 ")", number_at(range, 0), number_at(range, 1));
    columns_add(columns, "%" PRIu64, number(piece, "fragments"));
    columns_add(columns, "%" PRIu64, number(piece, "bytes"));
    sizes_text(piece, text, sizeof(text));
    columns_add(columns, "%s", text);
    columns_add(columns, "%s", json_string_value(json_array_get(bounce, 1)));
    columns_add(columns, "%s", near.status == KVF_OK ? path_name(near.path) : "refused");
    columns_add(columns, "%s", far.status == KVF_OK ? path_name(far.path) : "refused");
    if (params->gbytes_per_s > 0) {
        columns_add(columns, "%.3f", write_ms(params, piece, far.path));
    }
}

static bool print_writes(const struct table *table)
{
    static const char *const heads[] = {"writer", "serves", "tokens",   "fragments",     "bytes",
                                        "sizes",  "bounce", "one node", "between nodes", "ms"};
    bool timed = table->params->gbytes_per_s > 0;
    struct columns columns;
    const json_t *writer, *piece;
    size_t w, p;
    bool fine;

    columns_init(&columns, heads, timed ? 10 : 9);
    json_array_foreach(table->writers, w, writer)
    {
        json_array_foreach(json_object_get(writer, "pieces"), p, piece)
        {
            add_write(&columns, table->params, writer, piece);
        }
    }
    fputc('\n', table->file);
    fine = columns_print(&columns, table->file);
    columns_fini(&columns);
    return fine;
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Bytes of the whole request from one writer to one receiver; 0 for a pair that is refused. */
static uint64_t pair_bytes(const struct geometry_dump *dump, uint32_t receiver, uint32_t sender)
{
    struct geometry_writer writer;
    struct geo_text text;
    uint64_t bytes = 0;

    if (geometry_writer_init(dump, receiver, sender, &writer, &text) != KVF_OK) {
        return 0;
    }
    for (uint32_t p = 0; p < dump->piece_count; p++) {
        struct plan_totals totals;

        plan_count(writer.template, &writer.request, &dump->pieces[p], &totals);
        bytes += totals.bytes;
    }
    geometry_writer_fini(&writer);
    return bytes;
}

void plan_table_load(const struct plan_table_params *params, struct plan_table_load *load_out)
{
    const json_t *writer;
    size_t w, r;

    *load_out = (struct plan_table_load){0};
    json_array_foreach(json_object_get(params->answer, "writers"), w, writer)
    {
        uint32_t rank = (uint32_t)number(writer, "rank");
        const json_t *serves = json_object_get(writer, "serves");
        const json_t *served;
        uint64_t out = 0;

        json_array_foreach(serves, r, served)
        {
            uint32_t receiver = (uint32_t)json_integer_value(served);
            uint64_t bytes = pair_bytes(params->dump, receiver, rank);

            out += bytes;
            load_out->bytes_in += receiver == params->receiver ? bytes : 0;
        }
        if (out > load_out->busiest_bytes) {
            load_out->busiest_bytes = out;
            load_out->busiest_writer = rank;
            load_out->busiest_serves = (uint32_t)json_array_size(serves);
        }
    }
}

enum kvf_status plan_table_print(const struct plan_table_params *params, FILE *file)
{
    uint32_t index;
    struct table table = {
        .params = params,
        .reader = geometry_dump_receiver(params->dump, params->receiver, &index),
        .writers = json_object_get(params->answer, "writers"),
        .file = file,
    };

    print_request(&table);
    if (!print_asks(&table)) {
        return KVF_E_NOMEM;
    }
    print_receiver(&table);
    if (json_array_size(table.writers) > 0 && (!print_views(&table) || !print_writes(&table))) {
        return KVF_E_NOMEM;
    }
    plan_note_print(params, file);
    return KVF_OK;
}
