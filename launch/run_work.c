/*
 * run_work.c - page work of `kvferry run`: taking and giving pages, and filling and comparing them
 * in steps small enough that sweeps are not kept waiting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"
#include "layout_json.h"
#include "run.h"
#include "say.h"

#define RUN_LINES_MAX 8u /* bad bytes named by one rank; all are counted */

static const struct schedule_job *run_job(const struct run *run, const struct run_live *live)
{
    return &run->schedule.jobs[live->job];
}

static uint32_t run_block(const struct run *run)
{
    return run->layout.tokens_per_block;
}

static bool run_reuses(const struct run *run)
{
    return run->side == KVF_GENERATION && run->schedule.params.reuse;
}

static uint32_t run_pages_per_hash(const struct run *run)
{
    return TRACE_HASH_TOKENS / run_block(run);
}

static struct run_entry *run_entry_of(const struct run *run, const struct schedule_job *job,
                                      uint32_t index)
{
    return &run->entries[run->schedule.entries[job->entry_first + index]];
}

/* Drops what the cache model drops before this job; pages in use come back with their last user. */
static void run_drop_entries(struct run *run, const struct schedule_job *job)
{
    for (uint32_t i = 0; i < job->drop_count; i++) {
        struct run_entry *entry = &run->entries[run->schedule.drops[job->drop_first + i]];

        if (!entry->dropped) {
            entry->dropped = true;
            if (entry->users == 0) {
                slots_give(&run->free[0], entry->slots, run_pages_per_hash(run));
            }
        }
    }
}

/* True when the prefix is in the pages already. */
static bool run_prefix_ready(const struct run *run, const struct schedule_job *job)
{
    for (uint32_t i = 0; i < job->cached_tokens / TRACE_HASH_TOKENS; i++) {
        if (!run_entry_of(run, job, i)->ready) {
            return false;
        }
    }
    return true;
}

/* Ordinals that this rank holds of a job in one group. */
static void run_range(const struct run *run, const struct schedule_job *job, uint32_t group,
                      struct run_pages *pages)
{
    const struct kvf_group *facts = &run->layout.groups[group];

    if (facts->group_class == KVF_GROUP_STATE) {
        pages->first = 0;
        pages->count = 1;
        return;
    }
    pages->first = schedule_stale(job->prompt_tokens, facts->window, run_block(run));
    pages->count = schedule_blocks(job->prompt_tokens, run_block(run)) - pages->first;
    if (run_reuses(run)) {
        pages->shared = job->cached_tokens / run_block(run);
    }
}

/* Puts the cache's pages at the front, and gives the new pages of hash blocks to the cache. */
static bool run_use_entries(struct run *run, const struct schedule_job *job,
                            struct run_pages *pages)
{
    uint32_t per = run_pages_per_hash(run);

    for (uint32_t i = 0; i < job->entry_count; i++) {
        struct run_entry *entry = run_entry_of(run, job, i);

        if (i < pages->shared / per) {
            memcpy(pages->slots + i * per, entry->slots, per * sizeof(*entry->slots));
        } else {
            entry->slots = malloc(per * sizeof(*entry->slots));
            if (entry->slots == NULL) {
                return false;
            }
            memcpy(entry->slots, pages->slots + i * per, per * sizeof(*entry->slots));
        }
        entry->users++;
    }
    return true;
}

bool run_pages_take(struct run *run, struct run_live *live)
{
    const struct schedule_job *job = run_job(run, live);
    uint32_t groups = run->layout.group_count;

    if (run_reuses(run)) {
        run_drop_entries(run, job);
        if (!run_prefix_ready(run, job)) {
            return false;
        }
    }
    for (uint32_t g = 0; g < groups; g++) {
        struct run_pages *pages = &live->pages[g];

        memset(pages, 0, sizeof(*pages));
        run_range(run, job, g, pages);
        pages->slots = calloc((size_t)pages->count + 1, sizeof(*pages->slots));
        if (pages->slots == NULL || !slots_take(&run->free[g], pages->count - pages->shared,
                                                pages->slots + pages->shared)) {
            free(pages->slots);
            memset(pages, 0, sizeof(*pages));
            while (g-- > 0) {
                slots_give(&run->free[g], live->pages[g].slots, live->pages[g].count);
                free(live->pages[g].slots);
                memset(&live->pages[g], 0, sizeof(live->pages[g]));
            }
            return false;
        }
    }
    return !run_reuses(run) || groups == 0 || run_use_entries(run, job, &live->pages[0]);
}

/* Pages of hash blocks stay with the cache until it has dropped them and nobody uses them. */
static uint32_t run_leave_entries(struct run *run, const struct schedule_job *job)
{
    for (uint32_t i = 0; i < job->entry_count; i++) {
        struct run_entry *entry = run_entry_of(run, job, i);

        entry->users--;
        if (entry->users == 0 && entry->dropped) {
            slots_give(&run->free[0], entry->slots, run_pages_per_hash(run));
        }
    }
    return job->entry_count * run_pages_per_hash(run);
}

void run_pages_give(struct run *run, struct run_live *live)
{
    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        struct run_pages *pages = &live->pages[g];
        uint32_t kept = run_reuses(run) ? run_leave_entries(run, run_job(run, live)) : 0;

        slots_give(&run->free[g], pages->slots + kept, pages->count - kept);
    }
}

void run_live_free(struct run *run, struct run_live *live)
{
    for (uint32_t g = 0; live->pages != NULL && g < run->layout.group_count; g++) {
        free(live->pages[g].slots);
    }
    free(live->pages);
    free(live->aux);
    free(live);
}

/* ---- naming bad bytes ------------------------------------------------------------------------ */

static void run_name_bad(struct run *run, const struct oracle_bad *bad, const char *when)
{
    char whose[48] = "no request";
    char where[192];

    if (run->lines++ >= RUN_LINES_MAX) {
        return;
    }
    if (bad->owner.job != ORACLE_NOBODY) {
        snprintf(whose, sizeof(whose), "request %llu",
                 (unsigned long long)run->schedule.jobs[bad->owner.job].rid);
    }
    snprintf(where, sizeof(where), "%s rank %s/%u (world rank %d)", whose, run->instance->name,
             (unsigned)run->world_rank - run->instance->first_rank, run->world_rank);
    switch (bad->what) {
    case ORACLE_CONTENT:
        say("bad byte: %s layer %u role %s head %u token %u: want 0x%02x got 0x%02x (slot %u, byte "
            "%llu; %s)",
            where, bad->layer, layout_json_role(bad->role), bad->head, bad->token, bad->want,
            bad->got, bad->slot, (unsigned long long)bad->offset, when);
        break;
    case ORACLE_CANARY:
        say("bad byte: %s canary of slot %u, pool %u, byte %llu: want 0x%02x got 0x%02x (%s)",
            where, bad->slot, bad->pool, (unsigned long long)bad->offset, bad->want, bad->got,
            when);
        break;
    }
}

/* Compares one page; bad bytes count against its owner's request. */
static void run_check_page(struct run *run, uint32_t group, uint32_t slot, const char *when)
{
    struct oracle_bad bad;
    uint64_t wrong = oracle_check(run->oracle, group, slot, &bad);

    run->sums.checked_bytes += oracle_page_bytes(run->oracle, group);
    if (wrong == 0) {
        return;
    }
    run->sums.bad_bytes += wrong;
    if (bad.owner.job != ORACLE_NOBODY) {
        run->outcomes[bad.owner.job] |= RUN_BAD;
    }
    run_name_bad(run, &bad, when);
}

/* ---- page work ------------------------------------------------------------------------------- */

static struct oracle_owner run_owner(const struct run *run, const struct run_live *live,
                                     uint32_t group, uint32_t ordinal)
{
    const struct schedule_job *job = run_job(run, live);
    bool state = run->layout.groups[group].group_class == KVF_GROUP_STATE;
    struct oracle_owner owner = {.job = live->job, .ordinal = ordinal};

    /* A state is of the whole prompt: never shared. */
    owner.key = schedule_key(&run->schedule, job, state ? UINT32_MAX : ordinal * run_block(run));
    return owner;
}

/*
 * The pages of hash blocks that this job made keep the right bytes even when its transfer failed.
 */
static void run_restore_page(struct run *run, const struct run_live *live, uint32_t group,
                             uint32_t index)
{
    const struct run_pages *pages = &live->pages[group];
    const struct schedule_job *job = run_job(run, live);
    struct oracle_owner owner = run_owner(run, live, group, pages->first + index);

    if (run_reuses(run) && index < job->entry_count * run_pages_per_hash(run)) {
        oracle_fill(run->oracle, group, pages->slots[index], &owner);
    } else {
        oracle_stamp(run->oracle, group, pages->slots[index]);
    }
}

static void run_work_page(struct run *run, const struct run_live *live, uint32_t group,
                          uint32_t index)
{
    const struct run_pages *pages = &live->pages[group];
    struct oracle_owner owner = run_owner(run, live, group, pages->first + index);
    uint32_t slot = pages->slots[index];
    bool shared = index < pages->shared;

    switch (live->step) {
    case RUN_CHECK_OUT:
        if (!shared) {
            run_check_page(run, group, slot, "as the page was handed out again");
            if (run->side == KVF_GENERATION) {
                oracle_lend(run->oracle, group, slot);
            }
        }
        break;
    case RUN_FILL:
    case RUN_PIECES:
        oracle_fill(run->oracle, group, slot, &owner);
        break;
    case RUN_COMPARE:
        if (!shared) {
            oracle_expect(run->oracle, group, slot, &owner);
        }
        run_check_page(run, group, slot, shared ? "reused prefix" : "received");
        break;
    case RUN_RESTORE:
        if (!shared) {
            run_restore_page(run, live, group, index);
        }
        break;
    case RUN_OPEN:
    case RUN_MOVE:
    case RUN_HOLD:
    case RUN_DONE:
        break;
    }
}

/* False: the page belongs to another piece. States are of the whole prompt: the last one's. */
static bool run_work_has(const struct run *run, const struct run_live *live, uint32_t group,
                         uint32_t index)
{
    uint32_t ordinal = live->pages[group].first + index;
    struct kvf_window window;

    if (live->step != RUN_PIECES) {
        return true;
    }
    window = run_piece_window(run, live, live->piece_at);
    if (run->layout.groups[group].group_class == KVF_GROUP_STATE) {
        return window.last;
    }
    return ordinal >= window.token_first / run_block(run) &&
           ordinal < schedule_blocks(window.token_end, run_block(run));
}

bool run_work(struct run *run, struct run_live *live, uint64_t bytes_max)
{
    uint64_t bytes = 0;

    while (live->group_at < run->layout.group_count) {
        const struct run_pages *pages = &live->pages[live->group_at];

        for (; live->page_at < pages->count; live->page_at++) {
            if (bytes >= bytes_max) {
                return false;
            }
            if (run_work_has(run, live, live->group_at, live->page_at)) {
                run_work_page(run, live, live->group_at, live->page_at);
                bytes += oracle_page_bytes(run->oracle, live->group_at);
            }
        }
        live->group_at++;
        live->page_at = 0;
    }
    live->group_at = 0;
    if (run_reuses(run) && (live->step == RUN_COMPARE || live->step == RUN_RESTORE)) {
        for (uint32_t i = 0; i < run_job(run, live)->entry_count; i++) {
            run_entry_of(run, run_job(run, live), i)->ready = true;
        }
    }
    return true;
}

void run_check_all(struct run *run)
{
    for (uint32_t g = 0; g < run->layout.group_count; g++) {
        for (uint32_t slot = 0; slot < run->group_slots[g]; slot++) {
            run_check_page(run, g, slot, "at the end");
            if (run->caller) {
                kvf_progress(run->kvf);
            }
        }
    }
}

/* ---- aux ------------------------------------------------------------------------------------- */

/* None on a generation rank without layers: it asks nobody (docs/geometry.md, section 9). */
uint32_t run_aux_bytes(const struct run *run)
{
    uint32_t bytes = 0;

    if (run->side == KVF_GENERATION && run->place.layers_per_pp[run->place.pp_rank] == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < run->layout.aux_count; i++) {
        bytes += run->layout.aux_bytes[i];
    }
    return bytes;
}

void run_aux_fill(const struct run *run, const struct schedule_job *job, uint8_t *aux)
{
    content_run_fill(content_key(CONTENT_REQUEST, job->rid), 0, run_aux_bytes(run), aux);
}

void run_aux_check(struct run *run, const struct schedule_job *job, const uint8_t *aux)
{
    uint64_t wrong =
        content_run_check(content_key(CONTENT_REQUEST, job->rid), 0, run_aux_bytes(run), aux);

    if (wrong > 0) {
        run->sums.bad_bytes += wrong;
        run->outcomes[job->trace_index] |= RUN_BAD;
        if (run->lines++ < RUN_LINES_MAX) {
            say("bad byte: request %llu rank %s/%u (world rank %d) auxiliary buffers: %llu wrong",
                (unsigned long long)job->rid, run->instance->name,
                (unsigned)run->world_rank - run->instance->first_rank, run->world_rank,
                (unsigned long long)wrong);
        }
    }
}
