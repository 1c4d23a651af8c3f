/*
 * sim_bounce.c - the two halves of the bounce on a few ranks in one process: random schedules by
 * seed, with a model of what lies in the arenas and in the pages.
 *
 *   sim_bounce [--seeds A-B] [--ops N]
 *
 * Each rank writes to all others and receives from them. The transport is a queue a pair of ranks;
 * gathers, puts and scatters end when the schedule says so. A put that ended with an error may land
 * later, up to the quarantine. Rules, checked as things happen:
 *   - a put lands only in a region that is granted to its chunk, or in quarantine
 *   - what is scattered is what was gathered for that chunk; the region does not change meanwhile
 *   - nothing is scattered after its NACK, nor into pages that were given back
 *   - each DATA that arrives gets exactly one answer (none when its writer is lost)
 *   - a flow is resolved once; well only when each chunk is in its page; badly only when each DATA
 *     has its answer or the hold has passed
 *   - in the end all arenas are free, no flow is left, no job, no hold
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "wire.h"
#include "xfer/bounce_recv.h"
#include "xfer/bounce_send.h"

#define RANKS 3u
#define GRANULE 1024u
#define BLOCKS 8u
#define CHUNK 2048u
#define CHUNKS 6u
#define REQUESTS 40u
#define QUEUE 512u
#define PUTS 256u
#define R_NS 1000u
#define HOLD_NS 400u

/* What lies in one granule: the chunk that was written there last. */
struct word {
    uint32_t request; /* + 1; 0 = rubbish */
    uint32_t chunk;
};

struct chunk {
    uint32_t sent, arrived, answered, answer_arrived;
    bool nacked, scattered;
};

struct request {
    uint32_t from, to;
    uint64_t flow;
    uint32_t count;
    uint32_t sizes[CHUNKS];
    struct chunk chunks[CHUNKS];
    uint32_t touching; /* BEGAN and not ENDED */
    bool fenced, given_back, resolved, mapped, lost;
    uint64_t failed_ns; /* 0 = not */
};

struct put {
    enum { PUT_FREE, PUT_RUNS, PUT_LATE } state;
    uint32_t from, to, request, chunk;
    uint64_t staging, offset;
    uint32_t len_bytes;
    uint64_t flow;
    bool dead;        /* posted to a connection that was cut: it never lands */
    struct word word; /* on the wire, once it has ended with an error */
    uint64_t until_ns;
};

struct gather {
    enum { GATHER_FREE, GATHER_RUNS, GATHER_STORES, GATHER_HANGS } state;
    uint32_t from, request, chunk;
    uint64_t staging, offset;
    uint64_t flow;
};

struct letter {
    uint8_t bytes[512];
    size_t len_bytes;
};

struct link {
    struct letter letters[QUEUE];
    uint32_t first, count;
    bool cut;
    uint64_t lost_ns[2]; /* when each end is told: sender of this direction, receiver */
};

struct rank {
    struct arena *out, *in;
    struct bounce_send *send;
    struct bounce_recv *recv;
    struct word staged[BLOCKS], landed[BLOCKS];
    struct bounce_job *jobs[BLOCKS * 4];
    enum { JOB_WAITS, JOB_TAKEN, JOB_RUNS } phases[BLOCKS * 4];
    uint32_t job_count;
};

static struct world {
    struct rank ranks[RANKS];
    struct link links[RANKS][RANKS];
    struct request requests[REQUESTS];
    uint32_t request_count;
    struct put puts[PUTS];
    struct gather gathers[PUTS];
    uint64_t now_ns, random;
    bool draining;
    jmp_buf out;
    char failure[256];
} world;

__attribute__((format(printf, 1, 2), noreturn)) static void fail(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(world.failure, sizeof(world.failure), format, args);
    va_end(args);
    longjmp(world.out, 1);
}

/* Stands in for that of runtime/check.c: a broken assertion ends the schedule. */
void kvf_check_failed(const char *kind, const char *condition, const char *file, int line)
{
    fail("assert: %s %s (%s:%d)", kind, condition, file, line);
}

static uint32_t below(uint32_t limit)
{
    uint64_t z = (world.random += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % limit);
}

static uint64_t base_of(uint32_t rank)
{
    return (uint64_t)(rank + 1) << 40;
}

static uint64_t page_of(uint32_t request, uint32_t chunk)
{
    return (uint64_t)(request + 1) << 20 | (uint64_t)chunk << 12;
}

/* ---- letters -------------------------------------------------------------------------------- */

static struct request *request_of_flow(uint32_t from, uint64_t flow)
{
    for (uint32_t r = 0; r < world.request_count; r++)
        if (world.requests[r].from == from && world.requests[r].flow == flow)
            return &world.requests[r];
    return NULL;
}

static void post(uint32_t from, uint32_t to, const struct msg *msg)
{
    struct link *link = &world.links[from][to];
    struct letter *letter = &link->letters[(link->first + link->count) % QUEUE];
    struct msg copy = *msg;

    if (link->cut)
        return;
    if (link->count == QUEUE)
        fail("a queue overflows: something is sent over and over");
    copy.header.epoch = 1;
    if (msg_encode(&copy, letter->bytes, sizeof(letter->bytes), &letter->len_bytes) != KVF_OK)
        fail("a message does not fit");
    msg_seal(letter->bytes, letter->len_bytes, 1);
    link->count++;
}

/* Answers are counted where they are made. */
static void note_answer(uint32_t from, uint32_t to, const struct msg *msg)
{
    bool nack = msg->header.type == MSG_NACK;
    uint64_t flow = nack ? msg->u.nack.flow : msg->u.ack.flow;
    uint32_t index = nack ? msg->u.nack.chunk : msg->u.ack.chunk;
    struct request *request = request_of_flow(to, flow);
    struct chunk *chunk;

    if ((msg->header.type != MSG_ACK && !nack) || (nack && msg->u.nack.scope == MSG_NACK_FLOW))
        return;
    if (request == NULL || request->to != from || index >= request->count)
        fail("an answer for nothing");
    chunk = &request->chunks[index];
    if (++chunk->answered > chunk->arrived)
        fail("request %u chunk %u: %u answers, %u DATA", (unsigned)(request - world.requests),
             index, chunk->answered, chunk->arrived);
    if (nack && chunk->scattered)
        fail("request %u chunk %u: NACK after it was scattered",
             (unsigned)(request - world.requests), index);
    if (!nack && !chunk->scattered)
        fail("request %u chunk %u: ACK, and it is not in its page",
             (unsigned)(request - world.requests), index);
    chunk->nacked = chunk->nacked || nack;
}

/* ---- the writer's side ---------------------------------------------------------------------- */

static void fill_words(struct word *words, uint64_t offset, uint32_t len_bytes, struct word word)
{
    for (uint64_t at = offset; at < offset + len_bytes; at += GRANULE)
        words[at / GRANULE] = word;
}

static void add_gather(const struct bounce_send_action *action, uint32_t from, bool store)
{
    for (uint32_t g = 0; g < PUTS; g++) {
        struct gather *gather = &world.gathers[g];

        if (gather->state != GATHER_FREE)
            continue;
        *gather = (struct gather){.state = store ? GATHER_STORES : GATHER_RUNS,
                                  .from = from,
                                  .request = (uint32_t)action->task,
                                  .chunk = action->u.chunk.chunk,
                                  .staging = action->u.chunk.staging,
                                  .offset = action->u.chunk.region.offset,
                                  .flow = action->flow};
        return;
    }
    fail("too many gathers");
}

static void add_put(const struct bounce_send_action *action, uint32_t from)
{
    for (uint32_t p = 0; p < PUTS; p++) {
        struct put *put = &world.puts[p];

        if (put->state != PUT_FREE)
            continue;
        *put = (struct put){.state = PUT_RUNS,
                            .from = from,
                            .to = action->peer,
                            .request = (uint32_t)action->task,
                            .chunk = action->u.chunk.chunk,
                            .staging = action->u.chunk.staging,
                            .offset = action->u.chunk.region.offset,
                            .len_bytes = action->u.chunk.len_bytes,
                            .dead = world.links[from][action->peer].cut,
                            .flow = action->flow};
        if (action->u.chunk.address != base_of(action->peer) + put->offset)
            fail("a put beside its region");
        return;
    }
    fail("too many puts");
}

static void send_data(const struct bounce_send_action *action, uint32_t from)
{
    struct request *request = &world.requests[action->task];
    const struct msg_run run = {.dst = page_of((uint32_t)action->task, action->u.chunk.chunk),
                                .piece_bytes = action->u.chunk.len_bytes,
                                .pieces = 1};
    uint8_t wire[MSG_RUN_BYTES];
    struct msg msg = {.header = {.type = MSG_DATA}};

    msg_run_put(wire, &run);
    msg.u.data = (struct msg_data){.flow = action->flow,
                                   .chunk = action->u.chunk.chunk,
                                   .region = action->u.chunk.region,
                                   .chunk_bytes = action->u.chunk.len_bytes,
                                   .run_count = 1,
                                   .runs_wire = wire};
    request->chunks[action->u.chunk.chunk].sent++;
    post(from, action->peer, &msg);
}

static void judge_resolved(const struct bounce_send_action *action)
{
    struct request *request = &world.requests[action->task];
    bool well = action->u.resolved.status == KVF_OK;

    if (request->resolved)
        fail("request %llu is resolved twice", (unsigned long long)action->task);
    request->resolved = true;
    for (uint32_t c = 0; c < request->count; c++) {
        const struct chunk *chunk = &request->chunks[c];

        if (well && (!chunk->scattered || chunk->answer_arrived == 0))
            fail("request %llu ended well, chunk %u did not", (unsigned long long)action->task, c);
        if (!well && !action->u.resolved.unanswered && chunk->sent > chunk->answer_arrived)
            fail("request %llu ended badly, chunk %u has no answer and nobody says so",
                 (unsigned long long)action->task, c);
    }
    if (action->u.resolved.unanswered && world.now_ns < request->failed_ns + HOLD_NS)
        fail("request %llu: held %llu ns", (unsigned long long)action->task,
             (unsigned long long)(world.now_ns - request->failed_ns));
    if (!well && world.now_ns > request->failed_ns + HOLD_NS)
        fail("request %llu: held without a bound", (unsigned long long)action->task);
}

static void on_send(void *self, const struct bounce_send_action *action)
{
    uint32_t from = (uint32_t)((struct rank *)self - world.ranks);

    switch (action->kind) {
    case BOUNCE_SEND_ACT_MESSAGE:
        post(from, action->peer, &action->u.msg);
        break;
    case BOUNCE_SEND_ACT_GATHER:
    case BOUNCE_SEND_ACT_STORE:
        add_gather(action, from, action->kind == BOUNCE_SEND_ACT_STORE);
        break;
    case BOUNCE_SEND_ACT_STOP:
        break;
    case BOUNCE_SEND_ACT_PUT:
        add_put(action, from);
        break;
    case BOUNCE_SEND_ACT_DATA:
        send_data(action, from);
        break;
    case BOUNCE_SEND_ACT_RESOLVED:
        judge_resolved(action);
        break;
    case BOUNCE_SEND_ACT_LOG:
        if (strcmp(action->u.log.event, "W06") == 0)
            world.requests[action->task].failed_ns = world.now_ns;
        break;
    }
}

static enum kvf_status step_send(uint32_t at, struct bounce_send_event *event, uint64_t *flow_out)
{
    struct bounce_send_out out = {.self = &world.ranks[at], .emit = on_send};
    enum kvf_status status;

    event->now_ns = world.now_ns;
    status = bounce_send_step(world.ranks[at].send, event, &out);
    if (flow_out != NULL)
        *flow_out = out.flow;
    bounce_send_check(world.ranks[at].send);
    if (bounce_send_counts(world.ranks[at].send)->unexpected_events != 0)
        fail("an event that the writer did not expect");
    return status;
}

/* ---- the receiver's side -------------------------------------------------------------------- */

static void on_recv(void *self, const struct bounce_recv_action *action)
{
    struct rank *rank = self;
    uint32_t at = (uint32_t)(rank - world.ranks);
    struct request *request = action->rid == 0 || action->rid > world.request_count
                                  ? NULL
                                  : &world.requests[action->rid - 1];

    switch (action->kind) {
    case BOUNCE_RECV_ACT_MESSAGE:
        note_answer(at, action->peer, &action->u.msg);
        post(at, action->peer, &action->u.msg);
        break;
    case BOUNCE_RECV_ACT_SCATTER:
        if (rank->job_count == BLOCKS * 4)
            fail("too many jobs");
        rank->phases[rank->job_count] = JOB_WAITS;
        rank->jobs[rank->job_count++] = action->u.job;
        break;
    case BOUNCE_RECV_ACT_BEGAN:
        request->touching++;
        if (request->given_back)
            fail("a job for pages that were given back");
        break;
    case BOUNCE_RECV_ACT_ENDED:
    case BOUNCE_RECV_ACT_FAILED:
        if (request->touching == 0)
            fail("more jobs ended than began");
        request->touching--;
        break;
    case BOUNCE_RECV_ACT_ACTIVE:
    case BOUNCE_RECV_ACT_LOG:
        break;
    }
}

static void step_recv(uint32_t at, struct bounce_recv_event *event)
{
    struct bounce_recv_out out = {.self = &world.ranks[at], .emit = on_recv};

    event->now_ns = world.now_ns;
    bounce_recv_step(world.ranks[at].recv, event, &out);
    bounce_recv_check(world.ranks[at].recv);
    if (bounce_recv_counts(world.ranks[at].recv)->unexpected_events != 0)
        fail("an event that the receiver did not expect");
}

static bool inside(void *self, uint64_t rid, uint32_t tag, const struct msg_run *run)
{
    (void)self;
    return run->dst >> 20 == rid && rid == tag && run->piece_bytes <= CHUNK;
}

/* Bytes of a put arrive. */
static void land(uint32_t to, uint64_t offset, uint32_t len_bytes, struct word word, uint64_t flow)
{
    struct rank *rank = &world.ranks[to];
    struct request *request = &world.requests[word.request - 1];

    for (uint32_t gen = 0; gen < 64; gen++) {
        uint32_t region = arena_find(rank->in, (struct arena_handle){offset, gen});

        if (region == ARENA_NONE)
            continue;
        if (arena_state(rank->in, region) == ARENA_QUARANTINE)
            return; /* into nothing */
        if (arena_state(rank->in, region) == ARENA_GRANTED && request->flow == flow) {
            fill_words(rank->landed, offset, len_bytes, word);
            return;
        }
        fail("request %u chunk %u lands in a region that is %s", word.request - 1, word.chunk,
             arena_state_name(arena_state(rank->in, region)));
    }
    /* Not the begin of a taken region: free, inside another, or of a generation beyond 64. */
    for (uint64_t at = offset; at < offset + len_bytes; at += GRANULE)
        rank->landed[at / GRANULE] = (struct word){0};
}

/* ---- what the schedule may do --------------------------------------------------------------- */

static void do_submit(void)
{
    struct bounce_send_event event = {.kind = BOUNCE_SEND_SUBMIT};
    uint32_t index = world.request_count;
    struct request *request = &world.requests[index];

    if (index == REQUESTS || world.draining)
        return;
    request->from = below(RANKS);
    request->to = (request->from + 1 + below(RANKS - 1)) % RANKS;
    request->count = below(CHUNKS) + 1;
    request->mapped = below(4) == 0;
    for (uint32_t c = 0; c < request->count; c++)
        request->sizes[c] = below(CHUNK) + 1;
    event.u.submit.task = index;
    event.u.submit.peer = request->to;
    event.u.submit.rid = index + 1;
    event.u.submit.tag = index + 1;
    event.u.submit.chunk_count = request->count;
    event.u.submit.sizes = request->sizes;
    event.u.submit.mapped = request->mapped;
    event.u.submit.arena_base = base_of(request->to);
    event.u.submit.arena_bytes = BLOCKS * GRANULE;
    world.request_count++;
    if (step_send(request->from, &event, &request->flow) != KVF_OK) {
        world.request_count--;
        memset(request, 0, sizeof(*request));
    }
}

static void note_arrival(uint32_t from, uint32_t to, const struct msg *msg)
{
    struct request *request;

    if (msg->header.type == MSG_DATA) {
        request = request_of_flow(from, msg->u.data.flow);
        request->chunks[msg->u.data.chunk].arrived++;
    } else if (msg->header.type == MSG_ACK) {
        request = request_of_flow(to, msg->u.ack.flow);
        request->chunks[msg->u.ack.chunk].answer_arrived++;
    } else if (msg->header.type == MSG_NACK && msg->u.nack.scope == MSG_NACK_CHUNK) {
        request = request_of_flow(to, msg->u.nack.flow);
        request->chunks[msg->u.nack.chunk].answer_arrived++;
    }
}

static bool deliver(uint32_t from, uint32_t to)
{
    struct link *link = &world.links[from][to];
    struct letter letter;
    struct msg msg;

    if (link->count == 0)
        return false;
    letter = link->letters[link->first];
    link->first = (link->first + 1) % QUEUE;
    link->count--;
    if (msg_decode(letter.bytes, letter.len_bytes, &msg, NULL) != KVF_OK)
        fail("a %s cannot be decoded", msg_type_name(msg.header.type));
    note_arrival(from, to, &msg);
    if (msg.header.type == MSG_WANT || msg.header.type == MSG_DATA ||
        msg.header.type == MSG_FLOW_CANCEL) {
        struct bounce_recv_event event = {.kind = BOUNCE_RECV_MESSAGE};

        event.u.message.peer = from;
        event.u.message.msg = &msg;
        if (msg.header.type == MSG_WANT)
            event.u.message.open = !world.requests[msg.u.want.rid - 1].fenced;
        step_recv(to, &event);
    } else {
        struct bounce_send_event event = {.kind = BOUNCE_SEND_MESSAGE};

        event.u.message.peer = from;
        event.u.message.msg = &msg;
        (void)step_send(to, &event, NULL);
    }
    return true;
}

static void chunk_event(const struct gather *gather, enum bounce_send_event_kind kind,
                        enum kvf_status status, bool idle)
{
    struct bounce_send_event event = {.kind = kind};

    event.u.chunk.flow = gather->flow;
    event.u.chunk.chunk = gather->chunk;
    event.u.chunk.status = status;
    event.u.chunk.idle = idle;
    (void)step_send(gather->from, &event, NULL);
}

static void end_gather(struct gather *gather)
{
    struct request *request = &world.requests[gather->request];
    struct word word = {gather->request + 1, gather->chunk};
    struct gather copy = *gather;
    bool bad = !world.draining && below(12) == 0;

    if (gather->state == GATHER_HANGS) {
        gather->state = GATHER_FREE;
        fill_words(world.ranks[copy.from].staged, copy.staging, request->sizes[copy.chunk],
                   (struct word){0}); /* it has written until now */
        chunk_event(&copy, BOUNCE_SEND_GATHER_IDLE, KVF_OK, true);
        return;
    }
    if (gather->state == GATHER_STORES) {
        gather->state = GATHER_FREE;
        if (!world.links[copy.from][request->to].cut)
            land(request->to, copy.offset, request->sizes[copy.chunk], word, copy.flow);
        chunk_event(&copy, BOUNCE_SEND_WRITTEN, bad ? KVF_E_CANCELLED : KVF_OK, true);
        return;
    }
    fill_words(world.ranks[copy.from].staged, copy.staging, request->sizes[copy.chunk], word);
    gather->state = bad && below(2) == 0 ? GATHER_HANGS : GATHER_FREE;
    chunk_event(&copy, BOUNCE_SEND_GATHERED, bad ? KVF_E_TRANSFER : KVF_OK,
                gather->state == GATHER_FREE);
}

static void end_put(struct put *put)
{
    struct word *staged = &world.ranks[put->from].staged[put->staging / GRANULE];
    struct bounce_send_event event = {.kind = BOUNCE_SEND_WRITTEN};
    bool bad =
        put->dead || world.links[put->from][put->to].cut || (!world.draining && below(8) == 0);
    struct put copy;

    event.u.chunk.flow = put->flow;
    event.u.chunk.chunk = put->chunk;
    event.u.chunk.status = bad ? KVF_E_TRANSFER : KVF_OK;
    event.u.chunk.idle = true;
    put->word = *staged;
    copy = *put;
    put->state = PUT_FREE;
    if (bad && !put->dead && below(2) == 0) {
        put->state = PUT_LATE; /* its bytes are in a socket */
        put->until_ns = world.now_ns + below(R_NS - 1) + 1;
    } else if (!bad) {
        if (staged->request != put->request + 1 || staged->chunk != put->chunk)
            fail("request %u chunk %u: its staging was used by others", put->request, put->chunk);
        land(copy.to, copy.offset, copy.len_bytes, copy.word, copy.flow);
    }
    (void)step_send(copy.from, &event, NULL);
}

/* Bytes of puts that ended badly arrive before the quarantine of whoever heard of it ends. */
static void land_late(struct put *put)
{
    struct put copy = *put;

    put->state = PUT_FREE;
    if (copy.word.request != 0)
        land(copy.to, copy.offset, copy.len_bytes, copy.word, copy.flow);
}

static void check_region(struct rank *rank, const struct bounce_job *job, const char *when)
{
    const struct word *word = &rank->landed[job->offset / GRANULE];

    if (word->request != job->rid || word->chunk != job->chunk)
        fail("request %llu chunk %u: other bytes lie in its region %s",
             (unsigned long long)job->rid - 1, job->chunk, when);
}

static void work(uint32_t at, uint32_t index)
{
    struct rank *rank = &world.ranks[at];
    struct bounce_job *job = rank->jobs[index];
    struct request *request = &world.requests[job->rid - 1];
    struct bounce_recv_event event = {.kind = BOUNCE_RECV_JOB_DONE};

    event.u.job.job = job;
    event.u.job.end = BOUNCE_JOB_NOT_RUN;
    if (rank->phases[index] == JOB_WAITS && bounce_job_take(job)) {
        rank->phases[index] = JOB_TAKEN;
        return;
    }
    if (rank->phases[index] == JOB_TAKEN && bounce_job_start(job)) {
        rank->phases[index] = JOB_RUNS;
        if (request->given_back)
            fail("request %llu: scattered into pages that were given back",
                 (unsigned long long)job->rid - 1);
        if (request->chunks[job->chunk].nacked)
            fail("request %llu chunk %u: scattered after its NACK",
                 (unsigned long long)job->rid - 1, job->chunk);
        check_region(rank, job, "as it is scattered");
        return;
    }
    if (rank->phases[index] == JOB_RUNS) {
        check_region(rank, job, "while it is scattered");
        if (request->given_back)
            fail("request %llu: pages given back under a scatter",
                 (unsigned long long)job->rid - 1);
        event.u.job.end = !world.draining && below(20) == 0 ? BOUNCE_JOB_FAILED : BOUNCE_JOB_RAN;
        request->chunks[job->chunk].scattered = event.u.job.end == BOUNCE_JOB_RAN;
    }
    rank->job_count--;
    memmove(&rank->jobs[index], &rank->jobs[index + 1],
            (rank->job_count - index) * sizeof(*rank->jobs));
    memmove(&rank->phases[index], &rank->phases[index + 1],
            (rank->job_count - index) * sizeof(*rank->phases));
    step_recv(at, &event);
}

static void do_abort(void)
{
    struct bounce_send_event event = {.kind = BOUNCE_SEND_ABORT};
    struct request *request;

    if (world.request_count == 0)
        return;
    request = &world.requests[below(world.request_count)];
    event.u.abort = request->flow;
    if (!request->resolved)
        (void)step_send(request->from, &event, NULL);
}

static void do_fence(void)
{
    struct bounce_recv_event event = {.kind = BOUNCE_RECV_FENCE};
    struct request *request;
    uint32_t index;

    if (world.request_count == 0)
        return;
    index = below(world.request_count);
    request = &world.requests[index];
    if (request->fenced)
        return;
    request->fenced = true;
    event.u.fence.rid = event.u.fence.tag = 0;
    event.u.fence.rid = index + 1;
    event.u.fence.tag = index + 1;
    step_recv(request->to, &event);
}

/* Pages go back when the request was fenced and no job touches them. */
static void give_back_pages(void)
{
    for (uint32_t r = 0; r < world.request_count; r++)
        if (world.requests[r].fenced && world.requests[r].touching == 0)
            world.requests[r].given_back = true;
}

static void do_cut(void)
{
    uint32_t a = below(RANKS), b = (a + 1 + below(RANKS - 1)) % RANKS;

    if (world.draining || world.links[a][b].cut)
        return;
    for (unsigned i = 0; i < 2; i++) {
        struct link *link = i == 0 ? &world.links[a][b] : &world.links[b][a];

        link->cut = true;
        link->count = 0;
        link->lost_ns[0] = world.now_ns + below(4 * R_NS);
        link->lost_ns[1] = world.now_ns + below(4 * R_NS);
    }
    for (uint32_t p = 0; p < PUTS; p++) /* none is left on its way for long */
        if (world.puts[p].state == PUT_RUNS && world.puts[p].from + world.puts[p].to == a + b)
            end_put(&world.puts[p]);
}

static void tell_losses(void)
{
    for (uint32_t from = 0; from < RANKS; from++)
        for (uint32_t to = 0; to < RANKS; to++) {
            struct link *link = &world.links[from][to];
            struct bounce_send_event lost = {.kind = BOUNCE_SEND_PEER_LOST, .u.peer = to};
            struct bounce_recv_event gone = {.kind = BOUNCE_RECV_PEER_LOST, .u.peer = from};

            if (link->cut && link->lost_ns[0] != 0 && world.now_ns >= link->lost_ns[0]) {
                link->lost_ns[0] = 0;
                (void)step_send(from, &lost, NULL);
            }
            if (link->cut && link->lost_ns[1] != 0 && world.now_ns >= link->lost_ns[1]) {
                link->lost_ns[1] = 0;
                step_recv(to, &gone);
            }
            if (link->cut && link->lost_ns[0] == 0 && link->lost_ns[1] == 0 &&
                world.links[to][from].lost_ns[0] == 0 && world.links[to][from].lost_ns[1] == 0)
                link->cut = world.links[to][from].cut = false; /* both ends know: a new life */
        }
}

static void pass_time(uint64_t by_ns)
{
    uint64_t end_ns = world.now_ns + by_ns;

    while (world.now_ns < end_ns) {
        uint64_t next_ns = end_ns;

        for (uint32_t p = 0; p < PUTS; p++)
            if (world.puts[p].state == PUT_LATE && world.puts[p].until_ns < next_ns)
                next_ns = world.puts[p].until_ns;
        for (uint32_t r = 0; r < RANKS; r++) {
            uint64_t send_ns = bounce_send_deadline_ns(world.ranks[r].send);
            uint64_t recv_ns = bounce_recv_deadline_ns(world.ranks[r].recv);

            next_ns = send_ns < next_ns ? send_ns : next_ns;
            next_ns = recv_ns < next_ns ? recv_ns : next_ns;
        }
        world.now_ns = next_ns > world.now_ns ? next_ns : world.now_ns;
        for (uint32_t p = 0; p < PUTS; p++)
            if (world.puts[p].state == PUT_LATE && world.puts[p].until_ns <= world.now_ns)
                land_late(&world.puts[p]);
        tell_losses();
        for (uint32_t r = 0; r < RANKS; r++) {
            struct bounce_send_event tick = {.kind = BOUNCE_SEND_TICK};
            struct bounce_recv_event tock = {.kind = BOUNCE_RECV_TICK};

            (void)step_send(r, &tick, NULL);
            step_recv(r, &tock);
        }
    }
}

/* Puts end within half of R, as those of a transport that works. */
static void end_some_work(uint32_t many)
{
    for (uint32_t i = 0; i < many; i++) {
        uint32_t slot = below(PUTS);

        if (world.puts[slot].state == PUT_RUNS)
            end_put(&world.puts[slot]);
        if (world.gathers[slot].state != GATHER_FREE)
            end_gather(&world.gathers[slot]);
    }
    for (uint32_t slot = 0; slot < 8 && many > 0; slot++) {
        if (world.puts[slot].state == PUT_RUNS && below(2) == 0)
            end_put(&world.puts[slot]);
        if (world.gathers[slot].state != GATHER_FREE && below(2) == 0)
            end_gather(&world.gathers[slot]);
    }
}

static void end_all_puts(void)
{
    for (uint32_t p = 0; p < PUTS; p++)
        if (world.puts[p].state == PUT_RUNS)
            end_put(&world.puts[p]);
}

static void one_op(void)
{
    uint32_t what = below(100);

    if (what < 12) {
        do_submit();
    } else if (what < 52) {
        (void)deliver(below(RANKS), below(RANKS));
    } else if (what < 72) {
        end_some_work(2);
    } else if (what < 92) {
        uint32_t at = below(RANKS);

        if (world.ranks[at].job_count > 0)
            work(at, below(world.ranks[at].job_count));
    } else if (what < 94) {
        do_abort();
    } else if (what < 96) {
        do_fence();
    } else if (what < 97) {
        if (below(4) == 0)
            do_cut();
    } else {
        pass_time(below(R_NS / 8) + 1);
        if (below(8) == 0) {
            end_all_puts(); /* before any lease could end under them */
            pass_time(R_NS + below(2 * R_NS));
        }
    }
    give_back_pages();
}

/* ---- one schedule --------------------------------------------------------------------------- */

static void open_rank(uint32_t at)
{
    struct rank *rank = &world.ranks[at];
    struct bounce_send_params send = {.flows_max = REQUESTS + 8,
                                      .chunks_max = REQUESTS * CHUNKS,
                                      .chunk_bytes = CHUNK,
                                      .window = 3,
                                      .gathers_max = 4,
                                      .eager = below(2) == 0,
                                      .timeout_ns = R_NS,
                                      .hold_cap_ns = HOLD_NS};
    struct bounce_recv_params recv = {.world_size = RANKS,
                                      .flows_max = REQUESTS,
                                      .sizes_max = REQUESTS * CHUNKS,
                                      .jobs_max = BLOCKS * 2,
                                      .chunk_bytes = CHUNK,
                                      .window = 3,
                                      .share = below(2) == 0,
                                      .timeout_ns = R_NS,
                                      .runs_bytes = 65536,
                                      .arena_base = base_of(at),
                                      .pages = {.inside = inside}};

    KVF_REQUIRE(arena_open(kvf_heap_system(), BLOCKS * GRANULE, GRANULE, &rank->out) == KVF_OK);
    KVF_REQUIRE(arena_open(kvf_heap_system(), BLOCKS * GRANULE, GRANULE, &rank->in) == KVF_OK);
    send.arena = rank->out;
    recv.arena = rank->in;
    KVF_REQUIRE(bounce_send_open(kvf_heap_system(), &send, &rank->send) == KVF_OK);
    KVF_REQUIRE(bounce_recv_open(kvf_heap_system(), &recv, &rank->recv) == KVF_OK);
}

static void close_ranks(void)
{
    for (uint32_t at = 0; at < RANKS; at++) {
        bounce_recv_close(world.ranks[at].recv);
        bounce_send_close(world.ranks[at].send);
        arena_close(world.ranks[at].in);
        arena_close(world.ranks[at].out);
    }
}

/* All that is under way ends, and all that waits for time gets it. */
static void drain(void)
{
    uint32_t idle = 0;

    world.draining = true;
    for (uint32_t round = 0; round < 4000; round++) {
        bool busy = false;

        for (uint32_t from = 0; from < RANKS; from++)
            for (uint32_t to = 0; to < RANKS; to++)
                busy = deliver(from, to) || busy;
        for (uint32_t slot = 0; slot < PUTS; slot++) {
            if (world.puts[slot].state == PUT_RUNS) {
                end_put(&world.puts[slot]);
                busy = true;
            }
            if (world.gathers[slot].state != GATHER_FREE) {
                end_gather(&world.gathers[slot]);
                busy = true;
            }
        }
        for (uint32_t at = 0; at < RANKS; at++)
            while (world.ranks[at].job_count > 0) {
                work(at, 0);
                busy = true;
            }
        give_back_pages();
        if (busy)
            continue;
        if (++idle > 32) /* 8 R: holds, leases, quarantines */
            return;
        pass_time(R_NS / 4);
    }
    fail("it never comes to rest");
}

static void judge(void)
{
    for (uint32_t r = 0; r < world.request_count; r++) {
        const struct request *request = &world.requests[r];

        if (!request->resolved)
            fail("request %u is never resolved", r);
        if (request->touching != 0)
            fail("request %u: %u jobs began and did not end", r, request->touching);
    }
    for (uint32_t at = 0; at < RANKS; at++) {
        const struct rank *rank = &world.ranks[at];

        for (unsigned state = ARENA_FREE + 1; state < ARENA_STATE_COUNT; state++)
            if (arena_counts(rank->out)->state_bytes[state] != 0 ||
                arena_counts(rank->in)->state_bytes[state] != 0)
                fail("rank %u: something is %s for ever", at,
                     arena_state_name((enum arena_state)state));
        if (bounce_send_counts(rank->send)->flows != 0 ||
            bounce_recv_counts(rank->recv)->flows != 0 || bounce_recv_counts(rank->recv)->jobs != 0)
            fail("rank %u: a flow or job is left", at);
    }
}

/* True: a rule was broken; world.failure says which. */
static bool run_schedule(uint64_t seed, uint32_t ops)
{
    memset(&world, 0, offsetof(struct world, out));
    world.random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    world.now_ns = 1;
    if (setjmp(world.out) != 0)
        return true;
    for (uint32_t at = 0; at < RANKS; at++)
        open_rank(at);
    for (uint32_t op = 0; op < ops; op++)
        one_op();
    drain();
    judge();
    close_ranks();
    return false;
}

int main(int argc, char **argv)
{
    unsigned long long first = 1, last = 2000;
    uint32_t ops = 600;
    uint64_t requests = 0;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seeds") == 0 && sscanf(argv[i + 1], "%llu-%llu", &first, &last) == 2)
            continue;
        if (strcmp(argv[i], "--ops") == 0 && sscanf(argv[i + 1], "%u", &ops) == 1)
            continue;
        fprintf(stderr, "usage: sim_bounce [--seeds A-B] [--ops N]\n");
        return 2;
    }
    for (unsigned long long seed = first; seed <= last; seed++) {
        if (run_schedule(seed, ops)) {
            printf("seed %llu: %s\n", seed, world.failure);
            return 1;
        }
        requests += world.request_count;
    }
    printf("%llu schedules, %llu requests: good\n", last - first + 1, (unsigned long long)requests);
    return 0;
}
