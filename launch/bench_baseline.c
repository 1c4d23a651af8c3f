/*
 * bench_baseline.c - the loops of `kvferry bench copy` that need no world; see bench.h.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "bench_limit.h"
#include "kernels/kernels.h"

enum {
    /* Loops of a round: memcpy, the host copy, the host copy in steps, then those of the limit. */
    RUN_MEMCPY,
    RUN_COPY_HOST,
    RUN_COPY_HOST_STEPS,
    RUN_LIMIT,
    RUNS_MAX = RUN_LIMIT + BENCH_LIMIT_LOOPS_MAX,
};

struct bench_baseline {
    struct bench_work work;
    struct bench_list list;
    void *src;
    void *dst;
    uint32_t rounds;
    double seconds[RUNS_MAX][BENCH_ROUNDS_MAX]; /* 0 in loops that this CPU lacks */
};

static uint64_t memory_available(void)
{
    char line[128];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");

    if (file == NULL) {
        return UINT64_MAX;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib > 0 ? (uint64_t)kib * 1024 : UINT64_MAX;
}

/* Different in every word, and touched on the way. */
static void fill_source(void *src, uint64_t bytes)
{
    uint64_t *words = src;

    for (uint64_t i = 0; i < bytes / sizeof(*words); i++) {
        words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
    }
}

/* A segment of shared memory, as UCX's are; the file is gone at once, the mapping stays. */
static void *map_shared(uint64_t bytes)
{
    void *memory = MAP_FAILED;
    int fd = memfd_create("kvferry-bench", MFD_CLOEXEC);

    if (fd < 0) {
        return MAP_FAILED;
    }
    if (ftruncate(fd, (off_t)bytes) == 0) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    return memory;
}

static enum kvf_status map_both(struct bench_baseline *baseline)
{
    struct bench_work *work = &baseline->work;

    if (work->src_bytes + work->dst_bytes > memory_available() / 10 * 9) {
        return KVF_E_MEM_SPACE;
    }
    baseline->src = map_shared(work->src_bytes);
    if (baseline->src == MAP_FAILED) {
        return KVF_E_SYSTEM;
    }
    baseline->dst = map_shared(work->dst_bytes);
    if (baseline->dst == MAP_FAILED) {
        munmap(baseline->src, work->src_bytes);
        return KVF_E_SYSTEM;
    }
    fill_source(baseline->src, work->src_bytes);
    memset(baseline->dst, 0, work->dst_bytes);
    bench_work_bind(work, baseline->src, baseline->dst);
    return KVF_OK;
}

static void unmap_both(struct bench_baseline *baseline)
{
    munmap(baseline->src, baseline->work.src_bytes);
    munmap(baseline->dst, baseline->work.dst_bytes);
}

static enum kvf_status list_make(const struct bench_work *work, struct bench_list *list_out)
{
    uint64_t count = stripe_fragments(&work->stripe);
    struct bench_fragment *fragments = calloc(count + BENCH_LIST_BEYOND, sizeof(*fragments));

    if (fragments == NULL) {
        return KVF_E_NOMEM;
    }
    bench_work_list(work, fragments);
    for (uint32_t i = 0; i < BENCH_LIST_BEYOND; i++) {
        fragments[count + i] = fragments[count - 1];
    }
    *list_out = (struct bench_list){
        .fragments = fragments,
        .count = count,
        .bytes = work->stripe.piece_bytes,
    };
    return KVF_OK;
}

enum kvf_status bench_baseline_open(enum bench_shape shape, uint64_t bytes_max, uint64_t seed,
                                    struct bench_baseline **baseline_out)
{
    enum kvf_status status;
    struct bench_baseline *baseline = calloc(1, sizeof(*baseline));

    if (baseline == NULL) {
        return KVF_E_NOMEM;
    }
    status = bench_work_open(shape, bytes_max, seed, &baseline->work);
    if (status != KVF_OK) {
        goto free_baseline;
    }
    status = map_both(baseline);
    if (status != KVF_OK) {
        goto close_work;
    }
    status = list_make(&baseline->work, &baseline->list);
    if (status != KVF_OK) {
        goto unmap;
    }
    copy_host_run(&baseline->work.stripe, 1);
    if (bench_work_wrong(&baseline->work) > 0) {
        status = KVF_E_TRANSFER;
        goto free_list;
    }
    *baseline_out = baseline;
    return KVF_OK;

free_list:
    free(baseline->list.fragments);
unmap:
    unmap_both(baseline);
close_work:
    bench_work_close(&baseline->work);
free_baseline:
    free(baseline);
    return status;
}

void bench_baseline_close(struct bench_baseline *baseline)
{
    if (baseline == NULL) {
        return;
    }
    free(baseline->list.fragments);
    unmap_both(baseline);
    bench_work_close(&baseline->work);
    free(baseline);
}

static void run_memcpy(const struct bench_list *list)
{
    for (uint64_t i = 0; i < list->count; i++) {
        memcpy(list->fragments[i].dst, list->fragments[i].src, list->bytes);
    }
}

static void run_steps(const struct stripe *stripe)
{
    struct copy_cursor cursor;

    copy_cursor_init(&cursor, stripe, 1);
    while (!copy_host_step(&cursor, COPY_STEP_BYTES)) {
    }
}

static double clock_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Seconds of one run, 0 when the CPU lacks it. */
static double run_one(const struct bench_baseline *baseline, uint32_t run)
{
    double start = clock_seconds();

    if (run == RUN_MEMCPY) {
        run_memcpy(&baseline->list);
    } else if (run == RUN_COPY_HOST) {
        copy_host_run(&baseline->work.stripe, 1);
    } else if (run == RUN_COPY_HOST_STEPS) {
        run_steps(&baseline->work.stripe);
    } else if (bench_limit_usable(run - RUN_LIMIT)) {
        bench_limit_run(run - RUN_LIMIT, &baseline->list);
    } else {
        return 0;
    }
    return clock_seconds() - start;
}

void bench_baseline_round(struct bench_baseline *baseline)
{
    uint32_t runs = RUN_LIMIT + bench_limit_loops();

    if (baseline->rounds == BENCH_ROUNDS_MAX) {
        return;
    }
    run_one(baseline, RUN_MEMCPY); /* not counted: others have used the caches since */
    for (uint32_t i = 0; i < runs; i++) {
        uint32_t run = (i + baseline->rounds) % runs;
        baseline->seconds[run][baseline->rounds] = run_one(baseline, run);
    }
    baseline->rounds++;
}

static struct bench_rate rate_of(const struct bench_baseline *baseline, uint32_t run)
{
    return bench_rate_make(baseline->seconds[run], baseline->rounds,
                           stripe_bytes(&baseline->work.stripe));
}

void bench_baseline_result(const struct bench_baseline *baseline, struct bench_result *result_out)
{
    const struct stripe *stripe = &baseline->work.stripe;
    struct bench_result result = {
        .shape = baseline->work.shape,
        .bytes = stripe_bytes(stripe),
        .fragments = stripe_fragments(stripe),
        .fragment_bytes = stripe->piece_bytes,
        .rounds = baseline->rounds,
        .limit_loop = "memcpy",
    };

    result.rates[BENCH_MEMCPY] = rate_of(baseline, RUN_MEMCPY);
    result.rates[BENCH_COPY_HOST] = rate_of(baseline, RUN_COPY_HOST);
    result.rates[BENCH_COPY_HOST_STEPS] = rate_of(baseline, RUN_COPY_HOST_STEPS);
    result.rates[BENCH_LIMIT] = result.rates[BENCH_MEMCPY];
    for (uint32_t loop = 0; loop < bench_limit_loops(); loop++) {
        if (!bench_limit_usable(loop)) {
            continue;
        }
        struct bench_rate rate = rate_of(baseline, RUN_LIMIT + loop);
        if (rate.best > result.rates[BENCH_LIMIT].best) {
            result.rates[BENCH_LIMIT] = rate;
            result.limit_loop = bench_limit_name(loop);
        }
    }
    *result_out = result;
}
