/*
 * context.c - the life of one rank's end of the ferry: open, agree, close.
 *
 * May not call MPI or UCX: the world and the transport are tables.
 */
#include "context.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "context_open.h"
#include "params.h"
#include "publish.h"
#include "reactor.h"
#include "sweeper.h"
#include "wire.h"
#include "xfer/room.h"

#define CONTEXT_TOPOLOGY_BYTES 65536u

/* ---- heap ----------------------------------------------------------------------------------- */

static void *context_alloc(void *self, size_t count, size_t size)
{
    struct context_heap *heap = self;

    atomic_fetch_add_explicit(&heap->taken, 1, memory_order_relaxed);
    return kvf_alloc(kvf_heap_system(), count, size);
}

static void context_release(void *self, void *memory)
{
    (void)self;
    kvf_release(kvf_heap_system(), memory);
}

/* ---- agreeing ------------------------------------------------------------------------------- */

enum kvf_status context_agree(struct kvf *kvf, enum kvf_status status, const char *step,
                              const char *text)
{
    const char *why = text != NULL && text[0] != '\0' ? text : step;
    struct world_gathered told = {0};
    uint8_t mine[4];
    enum kvf_status collective;

    wire_store_u32(mine, (uint32_t)status);
    collective = kvf->world->gather(kvf->world->self, WORLD_ALL, mine, sizeof(mine), &told);
    if (collective != KVF_OK) {
        if (status != KVF_OK)
            log_error(&kvf->logger, "", "%s: %s", kvf_status_text(status), why);
        log_error(&kvf->logger, "", "the ranks did not come together in time: %s%s%s",
                  kvf_status_text(collective), kvf->world->missing_text[0] != 0 ? "; " : "",
                  kvf->world->missing_text);
        atomic_store(&kvf->damaged, true);
        return collective;
    }
    status = KVF_OK;
    for (uint32_t r = 0; r < told.count && status == KVF_OK; r++) {
        if (told.offsets[r + 1] - told.offsets[r] == sizeof(mine))
            status = (enum kvf_status)(int32_t)wire_load_u32(told.bytes + told.offsets[r]);
        if (status != KVF_OK && r == kvf->world->rank)
            log_error(&kvf->logger, "", "%s: %s", kvf_status_text(status), why);
    }
    world_gathered_free(&told);
    return status;
}

/* ---- open: facts that must be alike --------------------------------------------------------- */

#define CONTEXT_FACTS_BYTES 32u

/* What each rank tells first. Fixed size, so that ranks of other releases are found here. */
static enum kvf_status context_facts(const struct kvf_topology *topology, uint8_t *facts_out)
{
    char *text = kvf_alloc(kvf_heap_system(), CONTEXT_TOPOLOGY_BYTES, 1);
    enum kvf_status status;

    if (text == NULL)
        return KVF_E_NOMEM;
    status = kvf_topology_format(topology, text, CONTEXT_TOPOLOGY_BYTES);
    if (status == KVF_OK)
        wire_store_u64(facts_out, wire_hash64(text, strlen(text), 0));
    kvf_release(kvf_heap_system(), text);
    wire_store_u64(facts_out + 8, settings_env_hash(NULL));
    wire_store_u32(facts_out + 16,
                   KVF_VERSION_MAJOR << 16 | KVF_VERSION_MINOR << 8 | KVF_VERSION_PATCH);
    wire_store_u32(facts_out + 20, topology->rank_count);
    return status;
}

/* Compares with rank 0. The same on all ranks, so that no further agreement is needed. */
static enum kvf_status context_compare(struct kvf *kvf, const struct world_gathered *told)
{
    static const struct {
        unsigned at, len;
        enum kvf_status status;
        const char *what;
    } parts[] = {
        {16, 4, KVF_E_WORLD, "runs another release of kvferry"},
        {0, 8, KVF_E_TOPOLOGY, "was given another topology"},
        {8, 8, KVF_E_CONFIG, "has other KVF_ variables in its environment"},
    };

    for (unsigned p = 0; p < sizeof(parts) / sizeof(parts[0]); p++)
        for (uint32_t r = 1; r < told->count; r++)
            if (told->offsets[r + 1] - told->offsets[r] != CONTEXT_FACTS_BYTES ||
                memcmp(told->bytes + parts[p].at, told->bytes + told->offsets[r] + parts[p].at,
                       parts[p].len) != 0) {
                if (kvf->world->rank == 0)
                    log_error(&kvf->logger, "", "rank %u %s than rank 0", r, parts[p].what);
                return parts[p].status;
            }
    return KVF_OK;
}

static enum kvf_status context_alike(struct kvf *kvf, const struct kvf_topology *topology)
{
    uint8_t facts[CONTEXT_FACTS_BYTES] = {0};
    struct world_gathered told = {0};
    char text[CONTEXT_TEXT_BYTES] = "";
    enum kvf_status status = kvf->world->trouble;

    if (status != KVF_OK) {
        snprintf(text, sizeof(text), "%s", kvf->world->trouble_text);
    } else if (topology->rank_count != kvf->world->rank_count) {
        status = KVF_E_TOPOLOGY;
        snprintf(text, sizeof(text), "the topology has %u ranks, the world has %u",
                 topology->rank_count, kvf->world->rank_count);
    } else {
        status = context_facts(topology, facts);
        snprintf(text, sizeof(text), "the topology cannot be written down");
    }
    status = context_agree(kvf, status, "the start's parameters cannot be compared", text);
    if (status != KVF_OK)
        return status;
    status = kvf->world->gather(kvf->world->self, WORLD_ALL, facts, sizeof(facts), &told);
    if (status == KVF_OK)
        status = context_compare(kvf, &told);
    world_gathered_free(&told);
    return status;
}

/* ---- open: steps ---------------------------------------------------------------------------- */

/* A deep copy by way of the text form. */
static enum kvf_status context_topology(struct kvf *kvf, const struct kvf_topology *topology)
{
    char *text = kvf_alloc(&kvf->heap.table, CONTEXT_TOPOLOGY_BYTES, 1);
    enum kvf_status status;

    if (text == NULL)
        return KVF_E_NOMEM;
    status = kvf_topology_format(topology, text, CONTEXT_TOPOLOGY_BYTES);
    if (status == KVF_OK)
        status = kvf_topology_parse(text, &kvf->topology, NULL, 0);
    kvf_release(&kvf->heap.table, text);
    return status;
}

static void context_place(struct kvf *kvf)
{
    uint32_t world_rank = kvf->world->rank;
    int index = kvf_topology_instance_of(kvf->topology, world_rank);
    const struct kvf_instance *instance = &kvf->topology->instances[index];
    uint32_t rank = world_rank - instance->first_rank;
    uint32_t width = instance->tp_size / instance->dp_size;

    kvf->place = (struct kvf_rank){
        .size = sizeof(kvf->place),
        .world_rank = world_rank,
        .world_size = kvf->world->rank_count,
        .instance = (uint32_t)index,
        .rank = rank,
        .side = instance->side,
        .tp_rank = rank % instance->tp_size,
        .pp_rank = rank / instance->tp_size,
        .dp_rank = rank % instance->tp_size / width,
    };
    snprintf(kvf->name, sizeof(kvf->name), "%s/%u", instance->name, rank);
    log_name(&kvf->logger, "%s", kvf->name);
}

static enum kvf_status context_split(struct kvf *kvf)
{
    const struct kvf_rank *place = &kvf->place;
    const struct kvf_instance *instances = kvf->topology->instances;
    struct world_colours colours = {{0}};
    uint32_t first = instances[place->instance].first_rank;
    uint32_t tp_size = instances[place->instance].tp_size;

    /*
     * A rank's number is unique in the world: each part is called by the lowest rank it could have.
     */
    colours.of[WORLD_SIDE] = (uint32_t)place->side;
    colours.of[WORLD_INSTANCE] = place->instance;
    colours.of[WORLD_GROUP] =
        first + place->dp_rank * (tp_size / instances[place->instance].dp_size);
    colours.of[WORLD_TP] = first + place->pp_rank * tp_size;
    colours.of[WORLD_PP] = first + place->tp_rank;
    return kvf->world->split(kvf->world->self, &colours);
}

static uint64_t context_epoch(uint64_t now_ns)
{
    uint64_t epoch = 0;

    if (getrandom(&epoch, sizeof(epoch), GRND_NONBLOCK) != (ssize_t)sizeof(epoch))
        epoch = (uint64_t)(uintptr_t)&epoch;
    epoch ^= wire_hash64(&now_ns, sizeof(now_ns), epoch);
    return epoch == 0 ? 1 : epoch;
}

static enum kvf_status context_transport_open(struct kvf *kvf,
                                              const struct context_outside *outside)
{
    const struct context_transport want = {
        .heap = &kvf->heap.table,
        .logger = &kvf->logger,
        .rank = kvf->place.world_rank,
        .rank_count = kvf->place.world_size,
    };
    char reason[TRANSPORT_REASON_BYTES] = "";
    enum kvf_status status = outside->open_transport(outside->self, &want, &kvf->transport, reason);

    return context_agree(kvf, status, "UCX cannot be started", reason);
}

static enum kvf_status context_steps(struct kvf *kvf, const struct context_outside *outside,
                                     const struct kvf_open_params *params)
{
    struct room room;
    enum kvf_status status = context_alike(kvf, params->topology);

    if (status != KVF_OK)
        return status;
    status = context_agree(kvf, context_topology(kvf, params->topology),
                           "the topology cannot be copied", NULL);
    if (status != KVF_OK)
        return status;
    context_place(kvf);
    status = context_settings(kvf, params);
    if (status != KVF_OK)
        return status;
    kvf->logger.level = (enum kvf_log_level)kvf->settings.log_level;
    if (params->requests_max != 0)
        kvf->settings.requests_max = params->requests_max;
    if (params->blocks_max != 0)
        kvf->settings.blocks_max = params->blocks_max;
    kvf->world->set_timeout(kvf->world->self, (uint32_t)kvf->settings.connect_timeout_ms);
    status = context_agree(kvf, context_split(kvf), "the communicator cannot be split", NULL);
    if (status != KVF_OK)
        return status;
    room_read("/", &room);
    if (room.memory_left != UINT64_MAX)
        kvf->memory_bytes =
            room.memory_left > room.memory_spare ? room.memory_left - room.memory_spare : 1;
    kvf->epoch = context_epoch(clock_now_ns() + kvf->place.world_rank);
    return context_transport_open(kvf, outside);
}

/* What a rank can find wrong by itself; told to all by the first agreement. */
static void context_check_params(struct kvf *kvf, const struct kvf_open_params *params)
{
    struct world *world = kvf->world;

    if (world->trouble != KVF_OK)
        return;
    if (params->topology == NULL || params->topology->instance_count == 0) {
        world->trouble = KVF_E_INVAL;
        snprintf(world->trouble_text, sizeof(world->trouble_text), "no topology was given");
    } else if (params->beam_width > 1) {
        world->trouble = KVF_E_UNSUPPORTED;
        snprintf(world->trouble_text, sizeof(world->trouble_text),
                 "beam_width is %u; only 1 is supported", params->beam_width);
    } else if (params->requests_max > 65536 || params->blocks_max > 1u << 24) {
        world->trouble = KVF_E_INVAL;
        snprintf(world->trouble_text, sizeof(world->trouble_text),
                 "requests_max is %u (at most 65536), blocks_max is %u (at most 16777216)",
                 params->requests_max, params->blocks_max);
    }
}

static void context_free(struct kvf *kvf, bool clean)
{
    struct world *world = kvf->world;

    kvf_topology_free(kvf->topology);
    kvf_release(kvf_heap_system(), kvf);
    world->close(world->self, clean);
}

enum kvf_status context_open(const struct context_outside *outside,
                             const struct kvf_open_params *given, struct kvf **kvf_out)
{
    struct kvf_open_params params = {0};
    struct kvf *kvf = kvf_alloc(kvf_heap_system(), 1, sizeof(*kvf));
    enum kvf_status status;

    if (kvf == NULL) {
        outside->world->close(outside->world->self, false);
        return KVF_E_NOMEM;
    }
    kvf->heap.table = (struct kvf_heap){&kvf->heap, context_alloc, context_release};
    kvf->logger = (struct logger)LOGGER_INIT;
    kvf->world = outside->world;
    kvf->refine_topo = outside->refine_topo;
    log_name(&kvf->logger, "%u", kvf->world->rank);
    if (params_read(given, &params, sizeof(params))) {
        kvf->logger.sink = params.log;
        kvf->logger.sink_self = params.log_self;
        context_check_params(kvf, &params);
    } else {
        kvf->world->trouble = KVF_E_INVAL;
        snprintf(kvf->world->trouble_text, sizeof(kvf->world->trouble_text),
                 "the open parameters have a wrong size, or a field that is not known here");
    }
    status = context_steps(kvf, outside, &params);
    if (status != KVF_OK) {
        if (kvf->transport != NULL)
            kvf->transport->close(kvf->transport->self, clock_now_ns());
        context_free(kvf, !atomic_load(&kvf->damaged));
        return status;
    }
    if (kvf->world->node_rank == 0)
        topo_say_memlock(&kvf->logger);
    *kvf_out = kvf;
    return KVF_OK;
}

/* ---- close ---------------------------------------------------------------------------------- */

static bool context_idle(void *self)
{
    struct kvf *kvf = self;

    return reactor_help(kvf->reactor);
}

/* States CLOSING to FLUSHING of docs/protocol.md, "shutdown". False: something is left over. */
static bool context_end_work(struct kvf *kvf, uint32_t deadline_ms)
{
    uint64_t step_ns = kvf->settings.finalize_step_ms * CLOCK_NS_PER_MS;
    uint64_t bound_ns;
    bool together, left;
    bool drained = sweeper_drain(kvf, clock_now_ns() + deadline_ms * CLOCK_NS_PER_MS, &left);

    if (!drained) {
        log_info(&kvf->logger, "closing with %u live requests: they are cancelled",
                 admission_live(&kvf->admission));
        reactor_cancel_all(kvf->reactor);
    }
    if (!drained || !left) /* others of the group may cancel theirs only now */
        drained = sweeper_drain(kvf, clock_now_ns() + step_ns, &left);
    if (!drained)
        log_warn(&kvf->logger, "W22", "closing with %u requests that did not end",
                 admission_live(&kvf->admission));
    /* Peers may still need answers of this rank: all stay until all have ended. */
    kvf->world->set_idle(kvf->world->self, context_idle, kvf);
    bound_ns = atomic_load(&kvf->damaged) ? step_ns /* a rank is dead: it will not come */
                                          : deadline_ms * CLOCK_NS_PER_MS + 3 * step_ns;
    together = kvf->world->barrier(kvf->world->self, clock_now_ns() + bound_ns) == KVF_OK;
    reactor_goodbye(kvf->reactor, drained, clock_now_ns() + step_ns);
    if (together)
        together = kvf->world->barrier(kvf->world->self, clock_now_ns() + 3 * step_ns) == KVF_OK;
    kvf->world->set_idle(kvf->world->self, NULL, NULL);
    if (!together) {
        log_warn(&kvf->logger, "", "another rank did not come to the end in time");
        atomic_store(&kvf->damaged, true);
    }
    return drained;
}

enum kvf_status kvf_close(struct kvf *kvf, uint32_t deadline_ms)
{
    enum context_state state;
    uint64_t step_ns;
    bool clean = true;

    if (kvf == NULL)
        return KVF_OK;
    state = context_state(kvf);
    step_ns = kvf->settings.finalize_step_ms * CLOCK_NS_PER_MS;
    atomic_store(&kvf->state, CONTEXT_CLOSING);
    if (state == CONTEXT_READY) {
        clean = context_end_work(kvf, deadline_ms);
        reactor_stop(kvf->reactor);
        clean = reactor_disconnect(kvf->reactor, clock_now_ns() + step_ns) && clean;
    }
    if (!clean) {
        /* What may still be written into is left behind on purpose. */
        log_warn(&kvf->logger, "W23", "transfers or endpoints are left open: their memory stays");
        return KVF_E_WORLD;
    }
    reactor_close(kvf->reactor);
    sweeper_close(kvf->sweeper);
    admission_fini(&kvf->admission);
    publish_close(kvf);
    context_pools_close(kvf);
    kvf->transport->close(kvf->transport->self, clock_now_ns() + step_ns);
    clean = !atomic_load(&kvf->damaged);
    if (clean && kvf->world->barrier(kvf->world->self, clock_now_ns() + 3 * step_ns) != KVF_OK)
        clean = false;
    context_free(kvf, clean);
    return clean ? KVF_OK : KVF_E_WORLD;
}

enum kvf_status kvf_rank(const struct kvf *kvf, struct kvf_rank *rank_out)
{
    if (kvf == NULL || !params_write(rank_out, &kvf->place, sizeof(kvf->place)))
        return KVF_E_INVAL;
    return KVF_OK;
}
