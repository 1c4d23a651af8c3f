/*
 * run_share.c - files of `kvferry run` are read by rank 0 alone, which sends what they say to the
 * others: topology, models, trace. So a file on one machine is enough, and what is wrong with it is
 * said once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launched.h"
#include "run.h"
#include "say.h"
#include "topology_yaml.h"

#define SHARE_FORM_BYTES 65536u
#define SHARE_PART_BYTES (UINT64_C(1) << 30) /* of one broadcast */

static void share_bytes(void *bytes, uint64_t count)
{
    uint8_t *at = bytes;
    MPI_Request request;

    while (count > 0) {
        uint64_t part = count > SHARE_PART_BYTES ? SHARE_PART_BYTES : count;

        MPI_Ibcast(at, (int)part, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
        launched_wait(&request);
        at += part;
        count -= part;
    }
}

bool run_read_files(struct run *run, char *text_out)
{
    const struct run_options *options = &run->options;

    if (!topology_load(options->topology, &run->topology, text_out)) {
        return false;
    }
    for (int s = 0; s < 2; s++) {
        const char *name = options->models[s] != NULL ? options->models[s] : options->model;

        if (!model_load(name, (uint32_t)options->scale_layers, &run->models[s], text_out)) {
            return false;
        }
    }
    return true;
}

/* ---- topology -------------------------------------------------------------------------------- */

static int share_topology(struct run *run)
{
    char *form = calloc(1, SHARE_FORM_BYTES);
    char text[OPTIONS_TEXT_BYTES] = "no memory for the topology";
    int code = form != NULL ? EXIT_RIGHT : EXIT_USAGE;

    if (form != NULL && run->world_rank == 0 &&
        kvf_topology_format(run->topology, form, SHARE_FORM_BYTES) != KVF_OK) {
        snprintf(text, sizeof(text), "the topology is longer than %u letters", SHARE_FORM_BYTES);
        code = EXIT_USAGE;
    }
    code = launched_agree(code, text);
    if (code == EXIT_RIGHT) {
        share_bytes(form, SHARE_FORM_BYTES);
        if (run->world_rank != 0 &&
            kvf_topology_parse(form, &run->topology, text, sizeof(text)) != KVF_OK) {
            code = EXIT_USAGE;
        }
        code = launched_agree(code, text);
    }
    free(form);
    return code;
}

/* ---- models ---------------------------------------------------------------------------------- */

static int share_model(const struct run *run, struct model *model)
{
    struct model told = *model;
    bool fine = true;

    share_bytes(&told, sizeof(told));
    if (run->world_rank != 0) {
        *model = told;
        model->layers = calloc(told.facts.layer_count + 1u, sizeof(*model->layers));
        model->aux = calloc(told.facts.aux_count + 1u, sizeof(*model->aux));
        model->facts.layers = model->layers;
        model->facts.aux_bytes = told.facts.aux_count > 0 ? model->aux : NULL;
        fine = model->layers != NULL && model->aux != NULL;
    }
    if (launched_agree(fine ? EXIT_RIGHT : EXIT_USAGE, "no memory for a model") != EXIT_RIGHT) {
        return EXIT_USAGE;
    }
    share_bytes(model->layers, told.facts.layer_count * sizeof(*model->layers));
    share_bytes(model->aux, told.facts.aux_count * sizeof(*model->aux));
    return EXIT_RIGHT;
}

int run_share_files(struct run *run)
{
    int code = share_topology(run);

    for (int s = 0; s < 2 && code == EXIT_RIGHT; s++) {
        code = share_model(run, &run->models[s]);
    }
    return code;
}

/* ---- trace ----------------------------------------------------------------------------------- */

static int run_read_trace(struct run *run, char *text_out)
{
    struct trace_take take = {(uint32_t)run->options.requests, (uint32_t)run->options.max_tokens};
    bool fine;

    snprintf(text_out, TRACE_TEXT_BYTES, "no memory for the trace");
    fine = run->options.trace != NULL ? trace_load(run->options.trace, &take, &run->trace, text_out)
                                      : trace_make(run->options.seed, &take, &run->trace);
    return fine ? EXIT_RIGHT : EXIT_USAGE;
}

int run_share_trace(struct run *run)
{
    struct trace *trace = &run->trace;
    char text[TRACE_TEXT_BYTES] = "no memory for the trace";
    int code = run->world_rank == 0 ? run_read_trace(run, text) : EXIT_RIGHT;
    uint64_t counts[2] = {trace->request_count, trace->hash_count};
    bool fine = true;

    code = launched_agree(code, text);
    if (code != EXIT_RIGHT) {
        return code;
    }
    share_bytes(counts, sizeof(counts));
    if (run->world_rank != 0) {
        trace->request_count = (uint32_t)counts[0];
        trace->hash_count = counts[1];
        trace->requests = calloc(counts[0] + 1, sizeof(*trace->requests));
        trace->hashes = calloc(counts[1] + 1, sizeof(*trace->hashes));
        fine = trace->requests != NULL && trace->hashes != NULL;
    }
    code = launched_agree(fine ? EXIT_RIGHT : EXIT_USAGE, "no memory for the trace");
    if (code == EXIT_RIGHT) {
        share_bytes(trace->requests, trace->request_count * sizeof(*trace->requests));
        share_bytes(trace->hashes, trace->hash_count * sizeof(*trace->hashes));
    }
    return code;
}
