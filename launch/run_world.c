/*
 * run_world.c - everything of `kvferry run` before the first request and after the last: checks of
 * the world, the trace, pool sizes, memory, opening and closing.
 *
 * What can be computed alike on all ranks is; then rank 0 alone says what is wrong.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "launched.h"
#include "run.h"
#include "say.h"

#define RUN_POOL_REQUESTS 4u /* longest prompts that the default pool holds */

int run_agree(int code)
{
    return launched_agree(code, NULL);
}

void run_reduce(const void *own, void *all, int count, MPI_Datatype type, MPI_Op op)
{
    MPI_Request request;

    MPI_Iallreduce(own, all, count, type, op, MPI_COMM_WORLD, &request);
    launched_wait(&request);
}

/* ---- the world ------------------------------------------------------------------------------- */

/* Exit code for a layout that cannot be had. */
static int run_refusal(enum kvf_status status)
{
    return status <= KVF_E_WIRE_VERSION ? EXIT_REFUSED : EXIT_USAGE;
}

static uint32_t run_layer_sum(const struct kvf_instance *instance)
{
    uint32_t sum = 0;

    for (uint32_t p = 0; instance->layers_per_pp != NULL && p < instance->pp_size; p++) {
        sum += instance->layers_per_pp[p];
    }
    return sum;
}

/* Layout of any rank of the world; its place too. */
static enum kvf_status run_layout_of(const struct run *run, uint32_t rank, uint32_t *layers,
                                     struct kvf_layout **layout_out, char *text, size_t bytes)
{
    int instance = kvf_topology_instance_of(run->topology, rank);
    const struct kvf_instance *of = &run->topology->instances[instance];
    const struct kvf_model *facts = &run->models[of->side].facts;
    struct kvf_place place;
    enum kvf_status status = kvf_place(run->topology, rank, facts->layer_count, layers, &place);

    if (status != KVF_OK) {
        snprintf(text, bytes, "layers of %s sum up to %u, model %s has %u", of->name,
                 run_layer_sum(of), run->models[of->side].name, facts->layer_count);
        return status;
    }
    return kvf_layout_from_model(facts, &place, layout_out, text, bytes);
}

/* Every rank's layout, so that a topology that does not fit is named before anything starts. */
static int run_check_layouts(const struct run *run)
{
    uint32_t *layers = calloc(KVF_PP_MAX, sizeof(*layers));
    char text[256] = "";

    for (uint32_t rank = 0; layers != NULL && rank < run->topology->rank_count; rank++) {
        int instance = kvf_topology_instance_of(run->topology, rank);
        struct kvf_layout *layout = NULL;
        enum kvf_status status = run_layout_of(run, rank, layers, &layout, text, sizeof(text));

        if (status != KVF_OK) {
            if (run->world_rank == 0) {
                say("%s: %s, rank %u: %s", kvf_status_name(status),
                    run->topology->instances[instance].name,
                    rank - run->topology->instances[instance].first_rank,
                    text[0] != '\0' ? text : kvf_status_text(status));
            }
            free(layers);
            return run_refusal(status);
        }
        kvf_layout_free(layout);
    }
    free(layers);
    return EXIT_RIGHT;
}

int run_world_check(struct run *run)
{
    char form[512] = "?";
    char text[256] = "";
    const struct kvf_model *facts;
    int code;

    if ((uint32_t)run->world_size != run->topology->rank_count) {
        kvf_topology_format(run->topology, form, sizeof(form));
        if (run->world_rank == 0) {
            say("the topology \"%s\" has %u ranks, this world has %d: start it with mpirun -n %u",
                form, run->topology->rank_count, run->world_size, run->topology->rank_count);
        }
        return EXIT_USAGE;
    }
    code = run_check_layouts(run);
    if (code != EXIT_RIGHT) {
        return code;
    }
    run->group.instance =
        (uint32_t)kvf_topology_instance_of(run->topology, (uint32_t)run->world_rank);
    run->instance = &run->topology->instances[run->group.instance];
    run->side = run->instance->side;
    facts = &run->models[run->side].facts;
    kvf_place(run->topology, (uint32_t)run->world_rank, facts->layer_count, run->place_layers,
              &run->place);
    run->group.dp = run->place.dp_rank;
    if (run_layout_of(run, (uint32_t)run->world_rank, run->place_layers, &run->made, text,
                      sizeof(text)) != KVF_OK) {
        say("rank %d: %s", run->world_rank, text);
        code = EXIT_USAGE;
    }
    return run_agree(code);
}

/* ---- trace and schedule ---------------------------------------------------------------------- */

/* Slots of one group of a side, without the guards. */
static uint64_t run_group_slots(const struct run *run, enum kvf_side side,
                                const struct kvf_group *group, uint32_t pool_pages)
{
    uint64_t most;

    if (group->group_class == KVF_GROUP_STATE) {
        return run->options.concurrency;
    }
    if (group->window == 0) {
        return pool_pages;
    }
    /* A prompt never holds more of a window than this, however long it is. */
    most = (group->window + run->models[side].facts.tokens_per_block - 2) /
               run->models[side].facts.tokens_per_block +
           1;
    most *= run->options.concurrency;
    return most < pool_pages ? most : pool_pages;
}

/* Bytes of all pools of a rank with this layout. */
static uint64_t run_rank_bytes(const struct run *run, enum kvf_side side,
                               const struct kvf_layout *layout, uint32_t pool_pages)
{
    uint64_t bytes = 0;

    for (uint32_t p = 0; p < layout->pool_count; p++) {
        const struct kvf_pool_shape *shape = &layout->pools[p];

        bytes +=
            oracle_stride(shape->slot_bytes) *
            (run_group_slots(run, side, &layout->groups[shape->group], pool_pages) + ORACLE_GUARDS);
    }
    return bytes;
}

/* Pages that --pool-mb gives to the rank of a side that needs most memory a page. */
static uint32_t run_pages_of_mb(const struct run *run, enum kvf_side side, uint64_t budget,
                                uint32_t pages)
{
    uint32_t *layers = calloc(KVF_PP_MAX, sizeof(*layers));
    char text[256];

    for (uint32_t rank = 0; layers != NULL && rank < run->topology->rank_count; rank++) {
        int instance = kvf_topology_instance_of(run->topology, rank);
        struct kvf_layout *layout = NULL;
        uint32_t low = 0, high = pages;

        if (run->topology->instances[instance].side != side ||
            run_layout_of(run, rank, layers, &layout, text, sizeof(text)) != KVF_OK) {
            continue;
        }
        while (low < high) {
            uint32_t middle = low + (high - low + 1) / 2;

            if (run_rank_bytes(run, side, layout, middle) <= budget) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        pages = low;
        kvf_layout_free(layout);
    }
    free(layers);
    return pages;
}

static int run_pool_pages(const struct run *run, enum kvf_side side, uint32_t *pages_out)
{
    uint32_t longest = 0;
    uint64_t pages = run->options.pool_blocks;

    for (uint32_t i = 0; i < run->trace.request_count; i++) {
        uint32_t blocks = schedule_blocks(run->trace.requests[i].input_length,
                                          run->models[side].facts.tokens_per_block);

        longest = blocks > longest ? blocks : longest;
    }
    if (pages == 0) {
        pages = (uint64_t)longest * RUN_POOL_REQUESTS;
    }
    if (run->options.pool_mb != 0) {
        uint64_t most = run->options.pool_blocks != 0 ? pages : UINT32_MAX / 2;

        pages = run_pages_of_mb(run, side, run->options.pool_mb << 20, (uint32_t)most);
    }
    *pages_out = (uint32_t)(pages < UINT32_MAX / 2 ? pages : UINT32_MAX / 2);
    if (pages == 0 && run->world_rank == 0) {
        say("--pool-mb %llu: not one page of model %s fits",
            (unsigned long long)run->options.pool_mb, run->models[side].name);
    }
    return pages == 0 ? EXIT_USAGE : EXIT_RIGHT;
}

/* Windows of the paged groups of a side: of the model, since a stage may lack some. */
static bool run_windows(const struct kvf_model *facts, struct schedule_side *side)
{
    for (uint32_t l = 0; l < facts->layer_count; l++) {
        bool known = facts->layers[l].kv_heads == 0;

        for (uint32_t i = 0; i < side->window_count; i++) {
            known = known || side->windows[i] == facts->layers[l].window;
        }
        if (!known) {
            if (side->window_count == SCHEDULE_WINDOWS_MAX) {
                return false;
            }
            side->windows[side->window_count++] = facts->layers[l].window;
        }
    }
    return true;
}

/* Why prefixes are not reused; NULL = they are. */
static const char *run_no_reuse(const struct run *run, const struct schedule_side *side)
{
    const struct kvf_model *facts = &run->models[KVF_GENERATION].facts;

    if (run->options.no_reuse) {
        return "--no-reuse";
    }
    if (run->trace.hash_count == 0) {
        return "the trace has no hash_ids of whole blocks";
    }
    if (side->window_count != 1 || side->windows[0] != 0) {
        return "the model has sliding windows";
    }
    for (uint32_t l = 0; l < facts->layer_count; l++) {
        if (facts->layers[l].state_units > 0 || facts->layers[l].section_count > 0) {
            return "the model has recurrent layers";
        }
    }
    return TRACE_HASH_TOKENS % facts->tokens_per_block != 0 ? "blocks do not divide 512 tokens"
                                                            : NULL;
}

/* Names what is refused, once, and notes it. */
static void run_note_refused(struct run *run)
{
    char text[SCHEDULE_TEXT_BYTES];

    for (uint32_t i = 0; i < run->schedule.job_count; i++) {
        const struct schedule_job *job = &run->schedule.jobs[i];

        if (job->refused) {
            run->outcomes[i] |= RUN_REFUSED | RUN_FAILED;
            if (run->world_rank == 0) {
                schedule_refusal(&run->schedule, job, text);
                say("%s", text);
            }
        }
    }
}

static int run_make_schedule(struct run *run)
{
    struct schedule_params params = {
        .topology = run->topology,
        .trace = &run->trace,
        .concurrency = (uint32_t)run->options.concurrency,
        .seed = run->options.seed,
        .time_scale = run->options.time_scale,
        .in_order = run->options.sync,
    };
    const char *why;
    char text[256];

    for (int s = 0; s < 2; s++) {
        struct schedule_side *side = &params.sides[s];
        int code = run_pool_pages(run, (enum kvf_side)s, &side->pool_pages);

        if (code != EXIT_RIGHT) {
            return code;
        }
        side->block = run->models[s].facts.tokens_per_block;
        if (!run_windows(&run->models[s].facts, side)) {
            if (run->world_rank == 0) {
                say("model %s has more than %d different windows", run->models[s].name,
                    SCHEDULE_WINDOWS_MAX);
            }
            return EXIT_USAGE;
        }
    }
    why = run_no_reuse(run, &params.sides[KVF_GENERATION]);
    params.reuse = why == NULL;
    run->no_reuse_why = why;
    run->outcomes = calloc((size_t)run->trace.request_count + 1, sizeof(*run->outcomes));
    run->early = calloc((size_t)run->trace.request_count + 1, sizeof(*run->early));
    if (run->outcomes == NULL || run->early == NULL || !schedule_make(&params, &run->schedule)) {
        say("rank %d: no memory for the schedule", run->world_rank);
        return EXIT_USAGE;
    }
    run_note_refused(run);
    if (!run_pieces_check(run, text, sizeof(text))) {
        if (run->world_rank == 0) {
            say("%s", text);
        }
        return EXIT_USAGE;
    }
    return run_dump_pick(run) ? EXIT_RIGHT : EXIT_USAGE;
}

int run_world_trace(struct run *run)
{
    int code = run_share_trace(run);

    if (code == EXIT_RIGHT) {
        code = run_agree(run_make_schedule(run));
    }
    if (code == EXIT_RIGHT) {
        bool fine =
            schedule_order(&run->schedule, run->side, run->group, &run->order, &run->order_count);

        run->samples = calloc((size_t)run->order_count + 1, sizeof(*run->samples));
        run->entry_count = run->side == KVF_GENERATION && run->schedule.params.reuse
                               ? schedule_entry_count(&run->schedule, run->group)
                               : 0;
        run->entries = calloc((size_t)run->entry_count + 1, sizeof(*run->entries));
        run->seen = calloc((size_t)run->schedule.job_count + 1, sizeof(*run->seen));
        fine = fine && run->seen != NULL && run_order_open(run);
        if (!fine || run->samples == NULL || run->entries == NULL) {
            say("rank %d: no memory for the schedule", run->world_rank);
            code = EXIT_USAGE;
        }
        code = run_agree(code);
    }
    return code;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t run_memory_available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    unsigned long long kib = 0;
    char line[128];

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return kib == 0 ? UINT64_MAX : (uint64_t)kib << 10;
}

/* The pools of all ranks of this machine against its memory, before any is taken. */
static int run_check_memory(struct run *run, uint64_t bytes)
{
    uint64_t found = run_memory_available();
    uint64_t needed = launched_node_sum(bytes);
    int code = EXIT_RIGHT;
    cpu_set_t cpus;

    run->crowded =
        sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) < run->node_size;
    if (needed > found) {
        code = EXIT_USAGE;
        if (run->node_rank == 0) {
            say("the pools of the %d ranks of this machine need %llu MiB of memory, %llu MiB are "
                "available: use --scale-layers, --max-tokens, --pool-blocks or --pool-mb",
                run->node_size, (unsigned long long)(needed >> 20),
                (unsigned long long)(found >> 20));
        }
    }
    return run_agree(code);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* Our own copy of the layout, with strides that leave room for canaries. */
static bool run_layout(struct run *run)
{
    const struct kvf_layout *made = run->made;

    run->layout = *made;
    run->shapes = calloc(made->pool_count + 1u, sizeof(*run->shapes));
    run->pools = calloc(made->pool_count + 1u, sizeof(*run->pools));
    run->bases = calloc(made->pool_count + 1u, sizeof(*run->bases));
    run->group_slots = calloc(made->group_count + 1u, sizeof(*run->group_slots));
    run->free = calloc(made->group_count + 1u, sizeof(*run->free));
    run->lists = calloc(made->group_count + 1u, sizeof(*run->lists));
    if (run->shapes == NULL || run->pools == NULL || run->bases == NULL ||
        run->group_slots == NULL || run->free == NULL || run->lists == NULL) {
        return false;
    }
    for (uint32_t p = 0; p < made->pool_count; p++) {
        run->shapes[p] = made->pools[p];
        run->shapes[p].slot_stride = oracle_stride(made->pools[p].slot_bytes);
    }
    run->layout.pools = run->shapes;
    for (uint32_t g = 0; g < made->group_count; g++) {
        uint64_t slots = run_group_slots(run, run->side, &made->groups[g],
                                         run->schedule.params.sides[run->side].pool_pages);

        run->group_slots[g] = slots + ORACLE_GUARDS;
        if (!slots_init(&run->free[g], 1, (uint32_t)slots,
                        run->options.seed * 1000003u + (uint64_t)run->world_rank * 101u + g)) {
            return false;
        }
    }
    return true;
}

/* Is a request sent in more than one piece? */
static bool run_has_pieces(const struct run *run)
{
    return run->options.piece_tokens > 0 || run->faults.fates[FAULT_FAIL_AFTER] > 0 ||
           run->faults.extras[FAULT_SLOW] > 0;
}

static int run_open_context(struct run *run)
{
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    uint64_t blocks = 0;
    char settings[128];
    enum kvf_status status;

    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        blocks += run->group_slots[g];
    }
    snprintf(settings, sizeof(settings), "all:\n  path: %s\n%s%s%s%s", run->options.path,
             run_has_pieces(run) ? "  enable_pipelined_transfer: true\n" : "",
             run->options.progress != NULL ? "  progress: " : "",
             run->options.progress != NULL ? run->options.progress : "",
             run->options.progress != NULL ? "\n" : "");
    params.topology = run->topology;
    params.settings_path = run->options.settings;
    params.settings_text = settings;
    params.requests_max = (uint32_t)run->options.concurrency + 16;
    params.blocks_max = (uint32_t)blocks + params.requests_max;
    status = kvf_open_mpi(MPI_COMM_WORLD, &params, &run->kvf);
    if (status != KVF_OK) {
        if (run->world_rank == 0) {
            say("cannot open: %s: %s", kvf_status_name(status), kvf_status_text(status));
        }
        return EXIT_USAGE;
    }
    return EXIT_RIGHT;
}

static int run_open_pools(struct run *run)
{
    for (uint32_t p = 0; p < run->layout.pool_count; p++) {
        struct kvf_pool_params params = KVF_POOL_PARAMS_INIT;
        enum kvf_status status;

        params.memory = KVF_MEMORY_HOST;
        params.slot_bytes = run->shapes[p].slot_bytes;
        params.slot_stride = run->shapes[p].slot_stride;
        params.slots = run->group_slots[run->shapes[p].group];
        status = kvf_pool_alloc(run->kvf, &params, &run->pools[p]);
        if (status != KVF_OK) {
            say("rank %d: pool %u of %llu MiB: %s: %s", run->world_rank, p,
                (unsigned long long)(params.slot_stride * params.slots >> 20),
                kvf_status_name(status), kvf_status_text(status));
            return EXIT_USAGE;
        }
        run->bases[p] = kvf_pool_base(run->pools[p]);
    }
    return EXIT_RIGHT;
}

static int run_open_oracle(struct run *run)
{
    char text[ORACLE_TEXT_BYTES];
    struct oracle_params params = {
        .layout = &run->layout,
        .model = &run->models[run->side].facts,
        .place = content_place_of(&run->place),
        .bases = run->bases,
        .group_slots = run->group_slots,
    };

    run->oracle = oracle_open(&params, text);
    if (run->oracle == NULL) {
        say("rank %d: %s", run->world_rank, text);
        return EXIT_USAGE;
    }
    return EXIT_RIGHT;
}

int run_world_open(struct run *run)
{
    uint32_t pages = run->schedule.params.sides[run->side].pool_pages;
    enum kvf_status status;
    int code = run_check_memory(run, run_rank_bytes(run, run->side, run->made, pages));

    if (code == EXIT_RIGHT) {
        bool fine = run_layout(run);

        if (!fine) {
            say("rank %d: no memory", run->world_rank);
        }
        code = run_agree(fine ? EXIT_RIGHT : EXIT_USAGE);
    }
    if (code == EXIT_RIGHT) {
        code = run_agree(run_open_context(run));
    }
    if (code == EXIT_RIGHT) {
        code = run_agree(run_open_pools(run));
    }
    if (code == EXIT_RIGHT) {
        code = run_agree(run_open_oracle(run));
    }
    if (code != EXIT_RIGHT) {
        return code;
    }
    status = kvf_publish(run->kvf, &run->layout, run->pools);
    if (status != KVF_OK) {
        if (run->world_rank == 0) {
            say("cannot connect: %s: %s", kvf_status_name(status), kvf_status_text(status));
        }
        return run_refusal(status);
    }
    run->caller = kvf_progress(run->kvf) != KVF_E_STATE;
    return EXIT_RIGHT;
}

void run_world_close(struct run *run)
{
    oracle_close(run->oracle);
    for (uint32_t g = 0; run->free != NULL && g < run->layout.group_count; g++) {
        slots_fini(&run->free[g]);
    }
    for (uint32_t i = 0; run->entries != NULL && i < run->entry_count; i++) {
        free(run->entries[i].slots);
    }
    while (run->live != NULL) {
        struct run_live *live = run->live;

        run->live = live->next;
        run_live_free(run, live);
    }
    free(run->shapes);
    free(run->pools);
    free(run->bases);
    free(run->group_slots);
    free(run->free);
    free(run->lists);
    free(run->order);
    free(run->samples);
    free(run->entries);
    free(run->outcomes);
    free(run->early);
    free(run->seen);
    run_order_close(run);
    json_decref(run->dump_own);
    kvf_layout_free(run->made);
    schedule_free(&run->schedule);
    trace_free(&run->trace);
    model_free(&run->models[0]);
    model_free(&run->models[1]);
    kvf_topology_free(run->topology);
}
