/* plan_note.c - see plan_note.h. */
#include "plan_note.h"

#include <inttypes.h>
#include <string.h>

#include "plan_dump.h"

#define BYTES_PER_MIB ((uint64_t)1 << 20)
#define NOTE_BYTES 256

/* Arena of the question "and if the bounce were on?"; the gate's figures are the defaults. */
#define WHAT_IF_MB 256u

struct plan_note_rung plan_note_rung(const struct plan_table_params *params, bool near,
                                     uint64_t payload_bytes)
{
    struct path_facts facts = {
        .near = near,
        .all_mapped = near,
        .all_reachable = true,
        .allowed = params->allowed_paths,
        .forced = params->forced_path,
    };
    struct plan_note_rung rung;

    rung.status = path_choose(&facts, payload_bytes, &rung.path, &rung.reason);
    return rung;
}

const char *plan_note_split(const char *name)
{
    static const struct {
        enum plan_split split;
        const char *text;
    } texts[] = {
        {PLAN_SPLIT_SINGLE, "one writer has no neighbour to overrun"},
        {PLAN_SPLIT_EMPTY, "nobody is asked"},
        {PLAN_SPLIT_DP_UNKNOWN, "the receiver was not told which dp group ran the prefill"},
        {PLAN_SPLIT_CP, "context parallelism"},
        {PLAN_SPLIT_PP, "the writers' instance has several stages"},
        {PLAN_SPLIT_DUP, "several ranks hold the same heads, and some of them send nothing"},
        {PLAN_SPLIT_VIEW_DUP, "in one view several ranks hold the same heads"},
        {PLAN_SPLIT_REPLICATED, "one writer alone sends what all ranks hold alike"},
        {PLAN_SPLIT_EQUAL, "all writers send equally many bytes"},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(plan_split_name(texts[i].split), name) == 0) {
            return texts[i].text;
        }
    }
    return "?";
}

/* ---- bounce --------------------------------------------------------------------------------- */

static uint64_t note_number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static struct plan_totals note_totals(const json_t *piece)
{
    const json_t *sizes = json_object_get(piece, "sizes");
    const json_t *largest = json_array_get(sizes, json_array_size(sizes) - 1);

    return (struct plan_totals){
        .fragments = note_number(piece, "fragments"),
        .bytes = note_number(piece, "bytes"),
        .largest_bytes = (uint64_t)json_integer_value(json_array_get(largest, 0)),
    };
}

static uint64_t note_average(const struct plan_totals *totals)
{
    return totals->fragments == 0 ? 0 : totals->bytes / totals->fragments;
}

/* A verdict with the figures that made it. */
static void note_verdict(enum plan_bounce verdict, const struct plan_totals *totals,
                         const struct geo_record *writer, const struct geo_record *reader,
                         char *text_out)
{
    const struct geo_bounce *own = &writer->bounce;
    const struct geo_bounce *peer = &reader->bounce;

    switch (verdict) {
    case PLAN_BOUNCE_OK:
        snprintf(text_out, NOTE_BYTES,
                 "%" PRIu64 " fragments, %" PRIu64 " bytes on average, the largest %" PRIu64,
                 totals->fragments, note_average(totals), totals->largest_bytes);
        return;
    case PLAN_BOUNCE_OFF:
        snprintf(text_out, NOTE_BYTES, "no usable arena at %s (kv_cache_bounce_size_mb)",
                 geo_bounce_chunk(own) == 0 ? writer->instance_name : reader->instance_name);
        return;
    case PLAN_BOUNCE_VERSION:
        snprintf(text_out, NOTE_BYTES, "bounce versions %u and %u", own->wire_version,
                 peer->wire_version);
        return;
    case PLAN_BOUNCE_CHUNK:
        snprintf(text_out, NOTE_BYTES, "chunks of %" PRIu64 " bytes at %s, of %" PRIu64 " at %s",
                 geo_bounce_chunk(own), writer->instance_name, geo_bounce_chunk(peer),
                 reader->instance_name);
        return;
    case PLAN_BOUNCE_TIMEOUT:
        snprintf(text_out, NOTE_BYTES, "request_timeout_ms %u at %s, %u at %s",
                 own->request_timeout_ms, writer->instance_name, peer->request_timeout_ms,
                 reader->instance_name);
        return;
    case PLAN_BOUNCE_MEMORY:
        snprintf(text_out, NOTE_BYTES, "the pages and the two arenas are not of one memory kind");
        return;
    case PLAN_BOUNCE_EMPTY:
        snprintf(text_out, NOTE_BYTES, "nothing to move");
        return;
    case PLAN_BOUNCE_COUNT:
        snprintf(text_out, NOTE_BYTES,
                 "%" PRIu64 " fragments; min_descriptor_count wants %u or more", totals->fragments,
                 own->min_descriptor_count);
        return;
    case PLAN_BOUNCE_FRAGMENT_SIZE:
        snprintf(text_out, NOTE_BYTES,
                 "a fragment of %" PRIu64 " bytes does not fit a chunk of %" PRIu64,
                 totals->largest_bytes, geo_bounce_chunk(own));
        return;
    case PLAN_BOUNCE_AVERAGE:
        snprintf(text_out, NOTE_BYTES,
                 "%" PRIu64 " bytes a fragment; max_average_descriptor_size is %" PRIu64,
                 note_average(totals), own->max_average_bytes);
        return;
    }
    snprintf(text_out, NOTE_BYTES, "?");
}

/* Opens a template over the two records and asks the gate; MEMORY stands for no memory. */
static enum plan_bounce note_gate(const struct geo_record *writer, const struct geo_record *reader,
                                  const struct plan_totals *totals)
{
    struct plan_template *template;
    enum plan_bounce verdict;

    if (plan_template_open(kvf_heap_system(), writer, reader, &template) != KVF_OK) {
        return PLAN_BOUNCE_MEMORY;
    }
    verdict = plan_bounce_gate(template, totals);
    plan_template_close(template);
    return verdict;
}

/* The same write with arenas on both sides and the default gate. */
static void note_what_if(const struct geo_record *writer, const struct geo_record *reader,
                         const struct plan_totals *totals, FILE *file)
{
    struct geo_record from = *writer;
    struct geo_record to = *reader;
    struct kvf_settings settings;
    char text[NOTE_BYTES];
    enum plan_bounce verdict;

    settings_defaults(&settings);
    settings.kv_cache_bounce_size_mb = WHAT_IF_MB;
    from.bounce = plan_dump_bounce(&settings);
    from.bounce.memory = from.layout.pool_count > 0 ? from.pools[0].memory : GEO_HOST;
    to.bounce = from.bounce;
    verdict = note_gate(&from, &to, totals);
    note_verdict(verdict, totals, &from, &to, text);
    fprintf(file, "  with kv_cache_bounce_size_mb %u and the default gate it would be %s: %s\n",
            WHAT_IF_MB, plan_bounce_name(verdict), text);
}

static enum plan_bounce note_by_name(const char *name)
{
    unsigned verdict = PLAN_BOUNCE_OK;

    while (verdict < PLAN_BOUNCE_AVERAGE &&
           strcmp(plan_bounce_name((enum plan_bounce)verdict), name) != 0) {
        verdict++;
    }
    return (enum plan_bounce)verdict;
}

/* The first write of each verdict explains it. */
static void note_write(const struct plan_table_params *params, uint32_t rank, const json_t *piece,
                       FILE *file)
{
    uint32_t index;
    const struct geo_record *writer = geometry_dump_sender(params->dump, rank, &index);
    const struct geo_record *reader =
        geometry_dump_receiver(params->dump, params->receiver, &index);
    const char *name = json_string_value(json_array_get(json_object_get(piece, "bounce"), 1));
    enum plan_bounce verdict = note_by_name(name);
    struct plan_totals totals = note_totals(piece);
    char text[NOTE_BYTES];

    note_verdict(verdict, &totals, writer, reader, text);
    fprintf(file, "bounce %s (writer %u): %s\n", name, rank, text);
    if (verdict == PLAN_BOUNCE_OK &&
        plan_note_rung(params, false, totals.bytes).path != KVF_PATH_BOUNCE) {
        fprintf(file,
                "  that is the gate's word; the rung that this build takes stands in the table\n");
    }
    if (verdict == PLAN_BOUNCE_OFF && totals.fragments > 0) {
        note_what_if(writer, reader, &totals, file);
    }
}

static void note_bounces(const struct plan_table_params *params, FILE *file)
{
    unsigned said = 0; /* bits of enum plan_bounce */
    const json_t *writer, *piece;
    size_t w, p;

    json_array_foreach(json_object_get(params->answer, "writers"), w, writer)
    {
        json_array_foreach(json_object_get(writer, "pieces"), p, piece)
        {
            const json_t *bounce = json_object_get(piece, "bounce");
            const char *name = json_string_value(json_array_get(bounce, 1));
            unsigned bit = 1u << note_by_name(name);
            /* A silent writer's "off" says less than that of one with bytes. */
            bool empty =
                note_number(piece, "fragments") == 0 && note_by_name(name) == PLAN_BOUNCE_OFF;

            if ((said & bit) == 0 && !empty) {
                note_write(params, (uint32_t)note_number(writer, "rank"), piece, file);
                said |= bit;
            }
        }
    }
}

static void note_arena(const struct plan_table_params *params, FILE *file)
{
    const struct geometry_dump *dump = params->dump;
    const struct geo_bounce *bounce = &dump->senders[0]->bounce;
    uint64_t ranks = (uint64_t)dump->sender_count + dump->receiver_count;
    uint64_t sum = 0;

    for (uint32_t r = 0; r < dump->sender_count; r++) {
        sum += dump->senders[r]->bounce.enabled ? dump->senders[r]->bounce.arena_bytes : 0;
    }
    for (uint32_t r = 0; r < dump->receiver_count; r++) {
        sum += dump->receivers[r]->bounce.enabled ? dump->receivers[r]->bounce.arena_bytes : 0;
    }
    if (!bounce->enabled) {
        return;
    }
    fprintf(file,
            "arena: %" PRIu64 " MiB a rank, %" PRIu64 " MiB on all %" PRIu64
            " ranks; chunks of %" PRIu64 " bytes, up to %" PRIu64 " of one write in flight\n",
            bounce->arena_bytes / BYTES_PER_MIB, sum / BYTES_PER_MIB, ranks,
            geo_bounce_chunk(bounce), params->inflight_chunks);
}

/* ---- rungs and time ------------------------------------------------------------------------- */

static void note_rungs(const struct plan_table_params *params, FILE *file)
{
    for (int near = 1; near >= 0; near--) {
        struct plan_note_rung rung = plan_note_rung(params, near != 0, 1);

        fprintf(file, "%s: %s, %s\n", near != 0 ? "one node" : "between nodes",
                rung.status == KVF_OK ? path_name(rung.path) : "refused",
                path_reason_text(rung.reason));
    }
}

static void note_time(const struct plan_table_params *params, FILE *file)
{
    struct plan_table_load load;
    double in_ms, out_ms;

    if (params->gbytes_per_s <= 0) {
        return;
    }
    plan_table_load(params, &load);
    in_ms = (double)load.bytes_in / (params->gbytes_per_s * 1e6);
    out_ms = (double)load.busiest_bytes / (params->gbytes_per_s * 1e6);
    fprintf(file,
            "time at %g GB/s a rank: %.3f ms; into the receiver %.3f, out of writer %u, which "
            "serves %u, %.3f\n",
            params->gbytes_per_s, in_ms > out_ms ? in_ms : out_ms, in_ms, load.busiest_writer,
            load.busiest_serves, out_ms);
}

void plan_note_print(const struct plan_table_params *params, FILE *file)
{
    fputc('\n', file);
    note_bounces(params, file);
    note_arena(params, file);
    note_rungs(params, file);
    note_time(params, file);
}
