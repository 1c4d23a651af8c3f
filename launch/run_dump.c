/*
 * run_dump.c - `kvferry run --dump-geometry`: the records of all ranks of the two instances of one
 * request and its block lists, in the form that docs/geometry.md, section 15 describes. It is what
 * the program itself gave to the library: layouts, pools and slots.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "layout_json.h"
#include "json_file.h"
#include "launched.h"
#include "run.h"
#include "say.h"

#define DUMP_FORM (JSON_COMPACT | JSON_SORT_KEYS)

/* Texts of all ranks, on rank 0. */
struct dump_texts {
    int *sizes;   /* [world_size] */
    int *offsets; /* [world_size] */
    char *all;
};

bool run_dump_pick(struct run *run)
{
    uint64_t wanted = run->options.dump_request;
    uint32_t job = 0;

    run->dump_job = RUN_NO_JOB;
    if (run->options.dump == NULL) {
        return true;
    }
    if (wanted > run->schedule.job_count) {
        if (run->world_rank == 0) {
            say("--dump-request is %llu; the requests are 1 to %u", (unsigned long long)wanted,
                run->schedule.job_count);
        }
        return false;
    }
    while (wanted == 0 && job < run->schedule.job_count && run->schedule.jobs[job].refused) {
        job++;
    }
    job = wanted > 0 ? (uint32_t)wanted - 1 : job;
    if (job == run->schedule.job_count || run->schedule.jobs[job].refused) {
        if (run->world_rank == 0) {
            say("--dump-geometry: %s was refused and has no pages",
                wanted == 0 ? "every request" : "the request of --dump-request");
        }
        return false;
    }
    run->dump_job = job;
    return true;
}

/* ---- one rank's part ------------------------------------------------------------------------ */

static json_t *dump_whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *dump_pools(const struct run *run)
{
    json_t *pools = json_array();

    for (uint32_t p = 0; p < run->layout.pool_count; p++) {
        const struct kvf_pool_shape *shape = &run->layout.pools[p];
        uint64_t slots = run->group_slots[shape->group];
        json_t *json = json_object();

        json_object_set_new(json, "base", dump_whole((uint64_t)(uintptr_t)run->bases[p]));
        json_object_set_new(json, "slot_bytes", dump_whole(shape->slot_bytes));
        json_object_set_new(json, "stride", dump_whole(shape->slot_stride));
        json_object_set_new(json, "slots", dump_whole(slots));
        json_object_set_new(json, "bytes", dump_whole(shape->slot_stride * slots));
        json_object_set_new(json, "memory", json_string("host"));
        json_array_append_new(pools, json);
    }
    return pools;
}

/* The buffers of one request: the report carries them, so each has one slot. */
static json_t *dump_aux(const struct run *run, const uint8_t *aux)
{
    json_t *array = json_array();

    for (uint32_t a = 0; a < run->layout.aux_count; a++) {
        json_t *json = json_object();

        json_object_set_new(json, "base", dump_whole((uint64_t)(uintptr_t)aux));
        json_object_set_new(json, "item", dump_whole(run->layout.aux_bytes[a]));
        json_object_set_new(json, "slots", dump_whole(1));
        json_array_append_new(array, json);
        aux = aux == NULL ? NULL : aux + run->layout.aux_bytes[a];
    }
    return array;
}

/* Without bounce figures: the program knows none, and absent ones mean off. */
static json_t *dump_record(const struct run *run, const uint8_t *aux)
{
    uint32_t rank = (uint32_t)run->world_rank - run->instance->first_rank;
    json_t *json = layout_json_record(run->instance->name, rank, &run->place, &run->layout);

    json_object_set_new(json, "pools", dump_pools(run));
    json_object_set_new(json, "aux", dump_aux(run, aux));
    json_object_set_new(json, "wire_version", dump_whole(KVF_GEOMETRY_VERSION));
    return json;
}

static json_t *dump_pieces(const struct run *run, const struct run_live *live)
{
    json_t *pieces = json_array();
    uint32_t count = live->piece_count == 0 ? 1 : live->piece_count;

    for (uint32_t at = 0; at < count; at++) {
        struct kvf_window window = run_piece_window(run, live, at);

        json_array_append_new(pieces, json_pack("[I,I]", (json_int_t)window.token_first,
                                                (json_int_t)window.token_end));
    }
    return pieces;
}

void run_dump_note(struct run *run, const struct run_live *live)
{
    json_t *own, *paged, *state;

    if (live->job != run->dump_job) {
        return;
    }
    own = json_object();
    paged = json_object();
    state = json_object();
    layout_json_lists(paged, state, (uint32_t)run->world_rank - run->instance->first_rank,
                      &run->layout, run->lists);
    json_object_set_new(own, "record", dump_record(run, live->aux));
    json_object_set_new(own, "paged", paged);
    json_object_set_new(own, "state", state);
    json_object_set_new(own, "pieces", dump_pieces(run, live));
    run->dump_own = own;
}

/* Ranks of the two instances that have no part in the request give their record alone. */
static char *dump_own_text(const struct run *run)
{
    const struct schedule_job *job = &run->schedule.jobs[run->dump_job];
    json_t *own = run->dump_own;
    char *text;

    if (job->ends[run->side].instance != run->group.instance) {
        return NULL;
    }
    if (own != NULL) {
        return json_dumps(own, DUMP_FORM);
    }
    own = json_object();
    json_object_set_new(own, "record", dump_record(run, NULL));
    text = json_dumps(own, DUMP_FORM);
    json_decref(own);
    return text;
}

/* ---- all parts, on rank 0 ------------------------------------------------------------------- */

static bool dump_gather(const struct run *run, char *own, struct dump_texts *texts)
{
    int bytes = own == NULL ? 0 : (int)strlen(own);
    MPI_Request request;
    size_t sum = 0;
    bool fine;

    texts->sizes = calloc((size_t)run->world_size + 1, sizeof(*texts->sizes));
    texts->offsets = calloc((size_t)run->world_size + 1, sizeof(*texts->offsets));
    if (run_agree(texts->sizes != NULL && texts->offsets != NULL ? 0 : 1) != 0) {
        return false;
    }
    MPI_Igather(&bytes, 1, MPI_INT, texts->sizes, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    launched_wait(&request);
    for (int r = 0; run->world_rank == 0 && r < run->world_size; r++) {
        texts->offsets[r] = (int)sum;
        sum += (size_t)texts->sizes[r];
    }
    texts->all = sum < INT32_MAX ? calloc(1, sum + 1) : NULL;
    fine = run_agree(texts->all != NULL ? 0 : 1) == 0;
    if (fine) {
        MPI_Igatherv(own, bytes, MPI_CHAR, texts->all, texts->sizes, texts->offsets, MPI_CHAR, 0,
                     MPI_COMM_WORLD, &request);
        launched_wait(&request);
    }
    return fine;
}

static json_t *dump_request(const struct run *run, const struct schedule_job *job)
{
    const struct kvf_instance *reader =
        &run->topology->instances[job->ends[KVF_GENERATION].instance];
    uint32_t width = reader->tp_size / reader->dp_size;
    json_t *json = json_object();

    json_object_set_new(json, "prompt_len", dump_whole(job->prompt_tokens));
    json_object_set_new(json, "cached", dump_whole(job->cached_tokens));
    json_object_set_new(json, "sender_dp", dump_whole(job->ends[KVF_CONTEXT].dp));
    json_object_set_new(json, "dp_known", json_true());
    json_object_set_new(json, "receiver",
                        dump_whole((uint64_t)job->ends[KVF_GENERATION].dp * width));
    if (run_aux_bytes(run) > 0) {
        json_object_set_new(json, "aux_src", dump_whole(0));
        json_object_set_new(json, "aux_dst", dump_whole(0));
    }
    json_object_set_new(json, "src", json_object());
    json_object_set_new(json, "src_state", json_object());
    json_object_set_new(json, "dst", json_object());
    json_object_set_new(json, "dst_state", json_object());
    return json;
}

/* One rank's text into the dump. */
static bool dump_add(json_t *dump, json_t *request, enum kvf_side side, const char *text,
                     size_t bytes)
{
    json_t *part = json_loadb(text, bytes, 0, NULL);
    bool context = side == KVF_CONTEXT;
    json_t *pieces = json_object_get(part, "pieces");

    if (part == NULL) {
        return false;
    }
    json_array_append(json_object_get(dump, context ? "senders" : "receivers"),
                      json_object_get(part, "record"));
    if (pieces != NULL) {
        json_object_update(json_object_get(request, context ? "src" : "dst"),
                           json_object_get(part, "paged"));
        json_object_update(json_object_get(request, context ? "src_state" : "dst_state"),
                           json_object_get(part, "state"));
        if (context) { /* the same on all of them */
            json_object_set(request, "pieces", pieces);
        }
    }
    json_decref(part);
    return true;
}

static bool dump_save(const struct run *run, const struct dump_texts *texts)
{
    json_t *dump = json_object();
    json_t *request = dump_request(run, &run->schedule.jobs[run->dump_job]);
    bool fine = true;

    json_object_set_new(dump, "senders", json_array());
    json_object_set_new(dump, "receivers", json_array());
    json_object_set_new(dump, "request", request);
    for (int r = 0; r < run->world_size && fine; r++) {
        int instance = kvf_topology_instance_of(run->topology, (uint32_t)r);

        fine = texts->sizes[r] == 0 ||
               dump_add(dump, request, run->topology->instances[instance].side,
                        texts->all + texts->offsets[r], (size_t)texts->sizes[r]);
    }
    fine = json_file_write("--dump-geometry", run->options.dump, fine ? dump : NULL, 1);
    json_decref(dump);
    return fine;
}

int run_dump_write(struct run *run)
{
    struct dump_texts texts = {0};
    char *own;
    bool fine;

    if (run->dump_job == RUN_NO_JOB) {
        return EXIT_RIGHT;
    }
    own = dump_own_text(run);
    fine = dump_gather(run, own, &texts);
    if (fine && run->world_rank == 0) {
        fine = dump_save(run, &texts);
    }
    free(own);
    free(texts.sizes);
    free(texts.offsets);
    free(texts.all);
    return run_agree(fine ? EXIT_RIGHT : EXIT_USAGE);
}
