/*
 * run_pieces.c - `kvferry run --piece-tokens`: a context rank opens a request first, then fills and
 * sends its pieces one after the other, as a prefill in chunks would. What the library read before
 * a piece was sent would be the bytes of the pages' last owners.
 */
#include <stdio.h>

#include "rng.h"
#include "run.h"
#include "say.h"

#define RUN_FAULT_PIECES 3u

static uint32_t run_piece_count(uint64_t step, uint32_t prompt_tokens)
{
    return step == 0 ? 0 : (uint32_t)((prompt_tokens + step - 1) / step);
}

bool run_pieces_check(const struct run *run, char *text_out, size_t text_bytes)
{
    uint32_t block = run->models[KVF_CONTEXT].facts.tokens_per_block;

    for (uint32_t i = 0; i < run->schedule.job_count; i++) {
        const struct schedule_job *job = &run->schedule.jobs[i];
        uint32_t least = (job->prompt_tokens + KVF_WINDOWS_MAX - 1) / KVF_WINDOWS_MAX;

        if (!job->refused &&
            run_piece_count(run->options.piece_tokens, job->prompt_tokens) > KVF_WINDOWS_MAX) {
            snprintf(text_out, text_bytes,
                     "--piece-tokens is %llu: request %llu of %u tokens has %u pieces, a request "
                     "may have %u; want at least %u",
                     (unsigned long long)run->options.piece_tokens, (unsigned long long)job->rid,
                     job->prompt_tokens,
                     run_piece_count(run->options.piece_tokens, job->prompt_tokens),
                     KVF_WINDOWS_MAX, (least + block - 1) / block * block);
            return false;
        }
    }
    return true;
}

/* A request that fails between pieces, or whose writer waits between them, has some. */
uint64_t run_pieces_of_fault(const struct run *run, const struct run_live *live)
{
    uint32_t block = run->layout.tokens_per_block;
    uint32_t blocks = schedule_blocks(run->schedule.jobs[live->job].prompt_tokens, block);
    bool wanted = live->fault.fate == FAULT_FAIL_AFTER || live->fault.extras[FAULT_SLOW];

    return wanted ? (uint64_t)schedule_blocks(blocks, RUN_FAULT_PIECES) * block : 0;
}

void run_pieces_make(const struct run *run, struct run_live *live)
{
    const struct schedule_job *job = &run->schedule.jobs[live->job];
    struct rng rng = {rng_mix(run->options.seed * 1000003u + job->rid)};

    live->piece_tokens =
        run->options.piece_tokens > 0 ? run->options.piece_tokens : run_pieces_of_fault(run, live);
    live->piece_count = run_piece_count(live->piece_tokens, job->prompt_tokens);
    live->piece_at = 0;
    live->piece_filled = false;
    for (uint32_t i = 0; i < live->piece_count; i++) {
        live->piece_order[i] = (uint8_t)i;
    }
    for (uint32_t i = live->piece_count; run->options.piece_shuffle && i > 1; i--) {
        uint32_t pick = rng_below(&rng, i);
        uint8_t swap = live->piece_order[i - 1];

        live->piece_order[i - 1] = live->piece_order[pick];
        live->piece_order[pick] = swap;
    }
}

struct kvf_window run_piece_window(const struct run *run, const struct run_live *live, uint32_t at)
{
    uint32_t prompt_tokens = run->schedule.jobs[live->job].prompt_tokens;
    uint64_t step = live->piece_tokens;
    struct kvf_window window = KVF_WINDOW_INIT;
    uint64_t end;

    if (live->piece_count == 0) {
        window.token_end = prompt_tokens;
        return window;
    }
    end = (live->piece_order[at] + 1) * step;
    window.token_first = (uint32_t)(live->piece_order[at] * step);
    window.token_end = end < prompt_tokens ? (uint32_t)end : prompt_tokens;
    window.last = at + 1 == live->piece_count;
    return window;
}

static bool run_piece_send(struct run *run, struct run_live *live)
{
    uint64_t rid = run->schedule.jobs[live->job].rid;
    struct kvf_window window = run_piece_window(run, live, live->piece_at);
    enum kvf_status status = kvf_send_blocks(run->kvf, rid, &window);

    if (status == KVF_BUSY) {
        return false;
    }
    live->piece_filled = false;
    live->piece_at++;
    if (status != KVF_OK) {
        if (live->fault.fate == FAULT_NONE) {
            say("rank %d: request %llu: tokens %u to %u cannot be sent: %s", run->world_rank,
                (unsigned long long)rid, window.token_first, window.token_end,
                kvf_status_text(status));
        }
        kvf_cancel(run->kvf, rid);
        live->piece_at = live->piece_count;
    }
    return true;
}

bool run_pieces_step(struct run *run, struct run_live *live, uint64_t *work_left)
{
    if (live->piece_filled) {
        bool sent;

        if (live->piece_due_ns == 0) {
            live->piece_due_ns = run_now() + run_fault_wait_ns(run, live);
        }
        if (run_now() < live->piece_due_ns) {
            return false;
        }
        live->piece_due_ns = 0;
        sent = run_piece_send(run, live);
        run_fault_piece(run, live);
        return sent;
    }
    if (*work_left == 0) {
        return false;
    }
    live->piece_filled = run_work(run, live, *work_left);
    *work_left = 0;
    return true;
}
