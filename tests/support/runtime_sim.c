/*
 * runtime_sim.c - see runtime_sim.h.
 */
#include "runtime_sim.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "collective_fake.h"
#include "world.h"

/* Whose turn it is. One lock; a rank waits for its number. */
struct sim_turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t turn;
    bool running[SIM_RANKS_MAX]; /* threads of sim_all() that have not ended */
    bool threaded;

    /* The gather that is under way: a rank gives, all take, then the next one may begin. */
    struct sim_given {
        uint32_t colour; /* who else takes part */
        const void *bytes;
        size_t len_bytes;
        bool given, taken;
    } given[SIM_RANKS_MAX];
};

/* Polls name their rank by the inner table's self; one simulation at a time. */
static struct sim *sim_now;

/* ---- turns ---------------------------------------------------------------------------------- */

static void turns_next(struct sim *sim)
{
    struct sim_turns *turns = sim->turns;

    for (uint32_t i = 1; i <= sim->count; i++) {
        uint32_t next = (turns->turn + i) % sim->count;

        if (turns->running[next]) {
            turns->turn = next;
            break;
        }
    }
    pthread_cond_broadcast(&turns->changed);
}

/* Gives the turn on and waits for it to come back. */
static void turns_yield(struct sim *sim, uint32_t rank)
{
    struct sim_turns *turns = sim->turns;

    if (!turns->threaded)
        return;
    turns_next(sim);
    while (turns->turn != rank)
        pthread_cond_wait(&turns->changed, &turns->lock);
}

/* ---- world ---------------------------------------------------------------------------------- */

struct sim_world {
    struct world table;
    struct sim_rank *rank;
    bool (*idle)(void *idle_self);
    void *idle_self;
    uint32_t timeout_ms;
    struct world_colours colours;
};

static void sim_world_set_timeout(void *self, uint32_t timeout_ms)
{
    ((struct sim_world *)self)->timeout_ms = timeout_ms;
}

static void sim_world_set_idle(void *self, bool (*idle)(void *idle_self), void *idle_self)
{
    struct sim_world *world = self;

    world->idle = idle;
    world->idle_self = idle_self;
}

static enum kvf_status sim_world_split(void *self, const struct world_colours *colours)
{
    struct sim_world *world = self;

    world->colours = *colours;
    world->rank->sim->colours[world->rank->index] = colours->of[WORLD_GROUP];
    return KVF_OK;
}

static bool sim_all_are(const struct sim *sim, bool taken)
{
    for (uint32_t r = 0; r < sim->count; r++)
        if (taken ? sim->turns->given[r].given : !sim->turns->given[r].given)
            return false;
    return true;
}

/* What the ranks of one colour gave. */
static void sim_take(const struct sim *sim, uint32_t colour, struct world_gathered *out)
{
    const struct sim_given *given = sim->turns->given;
    size_t total = 0;

    *out = (struct world_gathered){.heap = kvf_heap_system()};
    out->offsets = kvf_alloc(out->heap, sim->count + 1, sizeof(*out->offsets));
    for (uint32_t r = 0; r < sim->count; r++)
        total += given[r].colour == colour ? given[r].len_bytes : 0;
    out->bytes = kvf_alloc(out->heap, total + 1, 1);
    for (uint32_t r = 0; r < sim->count; r++) {
        size_t at = out->offsets[out->count];

        if (given[r].colour != colour)
            continue;
        if (given[r].len_bytes > 0)
            memcpy(out->bytes + at, given[r].bytes, given[r].len_bytes);
        out->offsets[++out->count] = at + given[r].len_bytes;
    }
}

/* Everybody takes part in every gather, and gets what those of its colour gave. */
static enum kvf_status sim_gather_all(struct sim_world *world, const void *bytes, size_t len_bytes,
                                      uint64_t deadline_ns, uint32_t colour,
                                      struct world_gathered *out)
{
    struct sim *sim = world->rank->sim;
    struct sim_given *given = sim->turns->given;
    uint32_t me = world->rank->index;

    given[me] = (struct sim_given){colour, bytes, len_bytes, true, false};
    while (!sim_all_are(sim, false)) {
        if (clock_now_ns() > deadline_ns)
            return KVF_E_WORLD;
        if (world->idle != NULL)
            world->idle(world->idle_self);
        turns_yield(sim, me);
    }
    sim_take(sim, colour, out);
    given[me].taken = true;
    for (;;) { /* the last one that takes opens the next gather */
        uint32_t taken = 0;

        if (!given[me].given)
            return KVF_OK;
        for (uint32_t r = 0; r < sim->count; r++)
            taken += given[r].taken;
        if (taken == sim->count) {
            memset(given, 0, sizeof(sim->turns->given));
            return KVF_OK;
        }
        turns_yield(sim, me);
    }
}

static enum kvf_status sim_world_gather(void *self, enum world_part part, const void *bytes,
                                        size_t len_bytes, struct world_gathered *out)
{
    struct sim_world *world = self;

    return sim_gather_all(world, bytes, len_bytes,
                          clock_now_ns() + world->timeout_ms * CLOCK_NS_PER_MS,
                          part == WORLD_ALL ? 0 : world->colours.of[part], out);
}

static enum kvf_status sim_world_barrier(void *self, uint64_t deadline_ns)
{
    struct world_gathered got = {0};
    enum kvf_status status = sim_gather_all(self, NULL, 0, deadline_ns, 0, &got);

    world_gathered_free(&got);
    return status;
}

/* A board for each dp group: the first of its ranks makes it. All have split before. */
static enum kvf_status sim_world_open_collective(void *self, enum world_part part, uint32_t slots,
                                                 size_t len_max_bytes, struct collective **out)
{
    struct sim_world *world = self;
    struct sim *sim = world->rank->sim;
    uint32_t me = world->rank->index, first = me, place = 0, count = 0;

    for (uint32_t r = sim->count; r-- > 0;) {
        if (sim->colours[r] != world->colours.of[part])
            continue;
        first = r;
        count++;
        place += r < me;
    }
    if (sim->boards[first] == NULL)
        sim->boards[first] = fake_board_open(count, slots, len_max_bytes);
    *out = fake_board_rank(sim->boards[first], place);
    return KVF_OK;
}

static void sim_world_close(void *self, bool clean)
{
    (void)clean;
    free(self);
}

static struct world *sim_world_new(struct sim_rank *rank)
{
    struct sim_world *world = calloc(1, sizeof(*world));

    if (world == NULL)
        abort();
    world->rank = rank;
    world->timeout_ms = WORLD_TIMEOUT_MS;
    world->table = (struct world){
        .size = sizeof(world->table),
        .self = world,
        .rank = rank->index,
        .rank_count = rank->sim->count,
        .node_rank_count = 1,
        .set_timeout = sim_world_set_timeout,
        .set_idle = sim_world_set_idle,
        .split = sim_world_split,
        .gather = sim_world_gather,
        .open_collective = sim_world_open_collective,
        .barrier = sim_world_barrier,
        .close = sim_world_close,
    };
    return &world->table;
}

/* ---- transport ------------------------------------------------------------------------------ */

/* The decorated table of each rank, with a poll that also moves time and gives the turn on. */
static struct sim_table {
    struct transport outer;
    struct transport *inner;
} sim_tables[SIM_RANKS_MAX];

static uint32_t sim_poll(void *self)
{
    for (uint32_t r = 0; r < sim_now->count; r++)
        if (sim_tables[r].inner != NULL && sim_tables[r].inner->self == self) {
            if (sim_now->turns->threaded) {
                fake_net_step(sim_now->net);
                turns_yield(sim_now, r);
            }
            return sim_tables[r].inner->poll(self);
        }
    abort();
}

static enum kvf_status sim_open_transport(void *self, const struct context_transport *want,
                                          struct transport **transport_out, char *reason_out)
{
    struct sim_rank *rank = self;
    struct sim_table *table = &sim_tables[rank->index];

    (void)want;
    (void)reason_out;
    rank->fault = fault_open(fake_net_transport(rank->sim->net, rank->index), &rank->plan);
    table->inner = fault_transport(rank->fault);
    table->outer = *table->inner;
    table->outer.poll = sim_poll;
    *transport_out = &table->outer;
    return KVF_OK;
}

/* ---- the simulation ------------------------------------------------------------------------- */

struct sim *sim_new(const char *topology, const struct fake_params *params)
{
    struct sim *sim = calloc(1, sizeof(*sim));
    struct fake_params net = *params;

    if (sim == NULL)
        abort();
    sim->turns = calloc(1, sizeof(*sim->turns));
    if (sim->turns == NULL || kvf_topology_parse(topology, &sim->topology, NULL, 0) != KVF_OK)
        abort();
    pthread_mutex_init(&sim->turns->lock, NULL);
    pthread_cond_init(&sim->turns->changed, NULL);
    sim->count = sim->topology->rank_count;
    net.ranks = sim->count;
    sim->net = fake_net_open(&net);
    for (uint32_t r = 0; r < sim->count; r++) {
        sim->ranks[r] = (struct sim_rank){.sim = sim, .index = r, .tiny = {.slots = 128}};
        sim->ranks[r].settings = "all:\n  progress: caller\n  tombstones_max: 1024\n"
                                 "  requests_max: 64\n  blocks_max: 4096\n";
    }
    sim_now = sim;
    return sim;
}

void sim_free(struct sim *sim)
{
    for (uint32_t r = 0; r < sim->count; r++) {
        tiny_close(&sim->ranks[r].engine);
        fault_close(sim->ranks[r].fault);
        sim_tables[r].inner = NULL;
    }
    for (uint32_t r = 0; r < sim->count; r++)
        if (sim->boards[r] != NULL)
            fake_board_close(sim->boards[r]);
    fake_net_close(sim->net);
    kvf_topology_free(sim->topology);
    pthread_cond_destroy(&sim->turns->changed);
    pthread_mutex_destroy(&sim->turns->lock);
    free(sim->turns);
    free(sim);
    sim_now = NULL;
}

struct sim_thread {
    struct sim_rank *rank;
    enum kvf_status (*call)(struct sim_rank *rank);
};

static void *sim_thread_main(void *argument)
{
    struct sim_thread *thread = argument;
    struct sim_rank *rank = thread->rank;
    struct sim_turns *turns = rank->sim->turns;

    pthread_mutex_lock(&turns->lock);
    while (turns->turn != rank->index)
        pthread_cond_wait(&turns->changed, &turns->lock);
    rank->status = thread->call(rank);
    turns->running[rank->index] = false;
    turns_next(rank->sim);
    pthread_mutex_unlock(&turns->lock);
    return NULL;
}

void sim_all(struct sim *sim, enum kvf_status (*call)(struct sim_rank *rank))
{
    struct sim_thread threads[SIM_RANKS_MAX];
    pthread_t ids[SIM_RANKS_MAX];

    sim->turns->threaded = true;
    sim->turns->turn = 0;
    memset(sim->turns->given, 0, sizeof(sim->turns->given));
    for (uint32_t r = 0; r < sim->count; r++)
        sim->turns->running[r] = true;
    for (uint32_t r = 0; r < sim->count; r++) {
        threads[r] = (struct sim_thread){&sim->ranks[r], call};
        if (pthread_create(&ids[r], NULL, sim_thread_main, &threads[r]) != 0)
            abort();
    }
    for (uint32_t r = 0; r < sim->count; r++)
        pthread_join(ids[r], NULL);
    sim->turns->threaded = false;
}

/* No line of the library is empty or breaks off where a reason should stand, in no test. */
static void sim_log(void *self, enum kvf_log_level level, const char *event, const char *text)
{
    const struct sim *sim = self;
    size_t len = strlen(text);

    if (len == 0 || text[len - 1] == ' ' || text[len - 1] == ':' || strstr(text, ": :") != NULL) {
        fprintf(stderr, "a log line without its reason: \"%s\"\n", text);
        abort();
    }
    if (sim->log != NULL)
        sim->log(sim->log_self, level, event, text);
    else
        fprintf(stderr, "%s\n", text);
}

static enum kvf_status sim_rank_open(struct sim_rank *rank)
{
    const struct context_outside outside = {
        .world = sim_world_new(rank),
        .open_transport = sim_open_transport,
        .self = rank,
    };
    struct kvf_open_params params = KVF_OPEN_PARAMS_INIT;
    enum kvf_status status;

    fake_net_host(rank->sim->net, rank->index, rank->host);
    params.topology = rank->sim->topology;
    params.settings_text = rank->settings;
    params.log = sim_log;
    params.log_self = rank->sim;
    status = context_open(&outside, &params, &rank->kvf);
    if (status != KVF_OK)
        return status;
    if (rank->bounce_mb > 0)
        rank->kvf->settings.kv_cache_bounce_size_mb = rank->bounce_mb;
    return tiny_open(&rank->engine, rank->kvf, rank->sim->topology, &rank->tiny);
}

bool sim_open(struct sim *sim)
{
    sim_all(sim, sim_rank_open);
    for (uint32_t r = 0; r < sim->count; r++)
        if (sim->ranks[r].status != KVF_OK)
            return false;
    return true;
}

static uint32_t sim_deadline_ms;

static enum kvf_status sim_rank_close(struct sim_rank *rank)
{
    return kvf_close(rank->kvf, sim_deadline_ms);
}

void sim_close(struct sim *sim, uint32_t deadline_ms)
{
    sim_deadline_ms = deadline_ms;
    sim_all(sim, sim_rank_close);
}

void sim_close_one(struct sim *sim, uint32_t index)
{
    sim->ranks[index].kvf->settings.finalize_step_ms = 1;
    sim->turns->threaded = true; /* polls move time; no other rank runs */
    memset(sim->turns->running, 0, sizeof(sim->turns->running));
    sim->turns->running[index] = true;
    sim->turns->turn = index;
    sim->ranks[index].status = kvf_close(sim->ranks[index].kvf, 0);
    sim->turns->threaded = false;
    memset(sim->turns->given, 0, sizeof(sim->turns->given));
}

void sim_step(struct sim *sim)
{
    fake_net_step(sim->net);
    for (uint32_t r = 0; r < sim->count; r++) {
        struct sim_rank *rank = &sim->ranks[r];

        if (rank->kvf == NULL || rank->deaf)
            continue;
        kvf_progress(rank->kvf);
        if (rank->event_count + 16 < 256)
            rank->event_count += tiny_sweep(&rank->engine, rank->events + rank->event_count, 16);
    }
}

const struct kvf_event *sim_event(const struct sim *sim, uint32_t index, uint64_t rid,
                                  enum kvf_event_kind kind)
{
    const struct sim_rank *rank = &sim->ranks[index];

    for (uint32_t e = 0; e < rank->event_count; e++)
        if (rank->events[e].rid == rid && rank->events[e].kind == kind)
            return &rank->events[e];
    return NULL;
}

bool sim_until(struct sim *sim, uint32_t index, uint64_t rid, enum kvf_event_kind kind,
               uint32_t steps)
{
    for (uint32_t s = 0; s < steps && sim_event(sim, index, rid, kind) == NULL; s++)
        sim_step(sim);
    return sim_event(sim, index, rid, kind) != NULL;
}
