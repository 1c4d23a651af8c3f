/*
 * bench_kernels.c - rates of the kernels on one GPU, beside the copy engine's in the same run.
 *
 * A row a shape: GB/s (bytes moved a second, each counted once) by SMs. Times are the host's, from
 * the call that packs and queues to the flag in pinned memory; medians of REPEATS after a warm-up.
 * The last columns: cudaMemcpyAsync of the same bytes in one piece, from the call to the end of
 * cudaStreamSynchronize.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda_runtime_api.h>

#include "device.h"
#include "kernels/tiles.h"
#include "skip.h"

enum { REPEATS = 15, COLUMNS = 4 };

struct bench {
    struct device *device;
    cudaStream_t stream; /* of the copy engine */
    uint64_t src, dst;
    uint64_t room_bytes; /* of each */
    uint32_t sms[COLUMNS];
};

static void need(enum kvf_status status, const char *what)
{
    if (status != KVF_OK) {
        fprintf(stderr, "%s: status %d\n", what, (int)status);
        exit(1);
    }
}

static void need_cuda(cudaError_t code, const char *what)
{
    if (code != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
        exit(1);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *times)
{
    qsort(times, REPEATS, sizeof(*times), by_value);
    return times[REPEATS / 2];
}

static void shuffle(uint32_t *slots, uint32_t count, uint64_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        slots[i] = i;
    }
    for (uint32_t i = count; i > 1; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((seed >> 33) % i);
        uint32_t slot = slots[i - 1];
        slots[i - 1] = slots[j];
        slots[j] = slot;
    }
}

/* Random slots on both sides. */
static struct stripe_pair *pairs_make(uint32_t count)
{
    struct stripe_pair *pairs = calloc(count, sizeof(*pairs));
    uint32_t *slots = calloc(count, sizeof(*slots));

    if (pairs == NULL || slots == NULL) {
        exit(1);
    }
    shuffle(slots, count, 1);
    for (uint32_t i = 0; i < count; i++) {
        pairs[i].src = slots[i];
    }
    shuffle(slots, count, 2);
    for (uint32_t i = 0; i < count; i++) {
        pairs[i].dst = slots[i];
    }
    free(slots);
    return pairs;
}

static struct stripe_base *bases_make(uint32_t count, uint64_t bytes)
{
    struct stripe_base *bases = calloc(count, sizeof(*bases));

    if (bases == NULL) {
        exit(1);
    }
    for (uint32_t i = 0; i < count; i++) {
        bases[i] = (struct stripe_base){i * bytes, i * bytes};
    }
    return bases;
}

static uint64_t run_once(struct bench *bench, struct tiles_cursor cursor, uint32_t sms)
{
    struct device_ticket ticket = {0, 0};
    uint64_t start = now_ns();
    enum kvf_status status;

    while ((status = device_tiles_queue(bench->device, 0, &cursor, sms, NULL, &ticket)) ==
           KVF_BUSY) {
    }
    need(status, "device_tiles_queue");
    for (uint64_t i = 0; !device_ended(bench->device, &ticket); i++) {
        if (i % 1000000 == 999999 && device_look(bench->device) != DEVICE_WELL) {
            fprintf(stderr, "%s\n", device_error_once(bench->device));
            exit(1);
        }
    }
    return now_ns() - start;
}

static uint64_t run_median(struct bench *bench, const struct tiles_cursor *cursor, uint32_t sms)
{
    uint64_t times[REPEATS];

    run_once(bench, *cursor, sms);
    for (int i = 0; i < REPEATS; i++) {
        times[i] = run_once(bench, *cursor, sms);
    }
    return median(times);
}

static uint64_t engine_median(struct bench *bench, uint64_t bytes)
{
    uint64_t times[REPEATS];

    for (int i = -1; i < REPEATS; i++) {
        uint64_t start = now_ns();
        need_cuda(cudaMemcpyAsync((void *)(uintptr_t)bench->dst, (void *)(uintptr_t)bench->src,
                                  bytes, cudaMemcpyDeviceToDevice, bench->stream),
                  "cudaMemcpyAsync");
        need_cuda(cudaStreamSynchronize(bench->stream), "cudaStreamSynchronize");
        if (i >= 0) {
            times[i] = now_ns() - start;
        }
    }
    return median(times);
}

/* One row. `bytes` and, in microseconds, the time with each budget and of the copy engine. */
static void row(struct bench *bench, const char *name, const struct tiles_cursor *cursor,
                uint64_t bytes)
{
    uint64_t engine = engine_median(bench, bytes);
    uint64_t best = 0;

    printf("%-30s %9.1f", name, (double)bytes / 1e6);
    for (int i = 0; i < COLUMNS; i++) {
        best = run_median(bench, cursor, bench->sms[i]);
        printf(" | %7.1f %8.1f", (double)bytes / (double)best, (double)best / 1e3);
    }
    printf(" | %7.1f %8.1f | %.2f\n", (double)bytes / (double)engine, (double)engine / 1e3,
           (double)engine / (double)best);
    fflush(stdout);
}

/* pairs x bases x pieces fragments; a slot is all of its pair's. */
static struct stripe stripe_make(const struct bench *bench, uint32_t pairs, uint32_t bases,
                                 uint32_t pieces, uint64_t bytes)
{
    struct stripe stripe = {.src = bench->src,
                            .dst = bench->dst,
                            .bases = bases_make(bases, pieces * bytes),
                            .pairs = pairs_make(pairs),
                            .base_count = bases,
                            .pair_count = pairs,
                            .src_stride = bases * pieces * bytes,
                            .dst_stride = bases * pieces * bytes,
                            .piece_count = pieces,
                            .piece_bytes = bytes,
                            .src_piece_stride = bytes,
                            .dst_piece_stride = bytes};

    if (2 * stripe_bytes(&stripe) > bench->room_bytes) {
        fprintf(stderr, "a shape of %llu bytes has no room\n",
                (unsigned long long)stripe_bytes(&stripe));
        exit(1);
    }
    return stripe;
}

static void stripe_free(const struct stripe *stripe)
{
    free((void *)(uintptr_t)stripe->bases);
    free((void *)(uintptr_t)stripe->pairs);
}

static void row_copy(struct bench *bench, const char *name, struct stripe stripe)
{
    struct tiles_cursor cursor;

    tiles_init_stripes(&cursor, TILES_COPY, &stripe, 1);
    row(bench, name, &cursor, stripe_bytes(&stripe));
    stripe_free(&stripe);
}

/* The writer has twice the heads of the reader: every second piece goes, and joins there. */
static void row_heads(struct bench *bench, const char *name, uint32_t pairs)
{
    struct stripe stripe = stripe_make(bench, pairs, 16, 32, 512);

    stripe.src_stride *= 2;
    stripe.src_piece_stride *= 2;
    for (uint32_t i = 0; i < 16; i++) {
        ((struct stripe_base *)(uintptr_t)stripe.bases)[i].src *= 2;
    }
    row_copy(bench, name, stripe);
}

static void row_stage(struct bench *bench, const char *name, enum tiles_kind kind, uint64_t bytes)
{
    uint32_t fragments = (uint32_t)(((uint64_t)256 << 20) / bytes);
    struct stripe stripe = stripe_make(bench, fragments, 1, 1, bytes);
    struct stage_span span = {&stripe, 0, stripe_fragments(&stripe), 0};
    struct tiles_cursor cursor;

    span.staging = kind == TILES_GATHER ? bench->dst : bench->src;
    tiles_init_spans(&cursor, kind, &span, 1);
    row(bench, name, &cursor, stripe_bytes(&stripe));
    stripe_free(&stripe);
}

static void row_sum(struct bench *bench, const char *name)
{
    struct stripe stripe = stripe_make(bench, 256, 61, 1, 36864);
    struct tiles_cursor cursor;
    void *sum;

    need(device_pin(bench->device, sizeof(uint64_t), &sum), "device_pin");
    tiles_init_stripes(&cursor, TILES_SUM_SRC, &stripe, 1);
    printf("%-30s %9.1f", name, (double)stripe_bytes(&stripe) / 1e6);
    for (int i = 0; i < COLUMNS; i++) {
        struct tiles_cursor again = cursor;
        struct device_ticket ticket;
        uint64_t start = now_ns();
        need(device_tiles_queue(bench->device, 0, &again, bench->sms[i], sum, &ticket), "sum");
        need(device_wait(bench->device, &ticket), "wait");
        uint64_t took = now_ns() - start;
        printf(" | %7.1f %8.1f", (double)stripe_bytes(&stripe) / (double)took, (double)took / 1e3);
    }
    printf("\n");
    need(device_unpin(bench->device, sum), "device_unpin");
    stripe_free(&stripe);
}

static void bench_open(struct bench *bench)
{
    char text[DEVICE_TEXT_BYTES];
    uint32_t count;
    void *memory[2];

    device_count(&count, text);
    if (count == 0) {
        printf("%s\n", text);
        test_skip("no device");
    }
    bench->room_bytes = (uint64_t)1600 << 20;
    need(device_open(kvf_heap_system(), 0, 1, &bench->device, text), text);
    for (int i = 0; i < 2; i++) {
        need(device_alloc(bench->device, bench->room_bytes, &memory[i]), "device_alloc");
        need_cuda(cudaMemset(memory[i], i + 1, bench->room_bytes), "cudaMemset");
    }
    need_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    need_cuda(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking), "stream");
    bench->src = (uint64_t)(uintptr_t)memory[0];
    bench->dst = (uint64_t)(uintptr_t)memory[1];
    bench->sms[0] = 8;
    bench->sms[1] = 16;
    bench->sms[2] = 32;
    bench->sms[3] = device_sm_count(bench->device);
}

int main(void)
{
    struct bench bench;
    struct cudaDeviceProp properties;

    bench_open(&bench);
    need_cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    printf("%s, %d SMs; GB/s and us by SM budget, then the copy engine, then its time / ours\n",
           properties.name, properties.multiProcessorCount);
    printf("%-30s %9s", "shape", "MB");
    for (int i = 0; i < COLUMNS; i++) {
        printf(" | %3u SMs      us ", bench.sms[i]);
    }
    printf(" |  engine       us | ratio\n");
    row_copy(&bench, "mla8k 61x256x36864", stripe_make(&bench, 256, 61, 1, 36864));
    row_heads(&bench, "heads512 64 MiB", 256);
    row_heads(&bench, "heads512 512 MiB", 2048);
    row_copy(&bench, "112000 x 1 KiB, one base", stripe_make(&bench, 112000, 1, 1, 1024));
    row_copy(&bench, "112000 x 1 KiB, 80 bases", stripe_make(&bench, 1400, 80, 1, 1024));
    row_copy(&bench, "the same in one block", stripe_make(&bench, 1, 1, 1, 112000 * 1024));
    row_stage(&bench, "gather 4 KiB", TILES_GATHER, 4096);
    row_stage(&bench, "scatter 4 KiB", TILES_SCATTER, 4096);
    row_stage(&bench, "gather 512 B", TILES_GATHER, 512);
    row_stage(&bench, "scatter 512 B", TILES_SCATTER, 512);
    row_copy(&bench, "64 B fragments", stripe_make(&bench, 4096, 61, 1, 64));
    row_copy(&bench, "4097 B fragments", stripe_make(&bench, 1024, 61, 1, 4097));
    row_copy(&bench, "one block 36864", stripe_make(&bench, 1, 1, 1, 36864));
    row_copy(&bench, "one block of 61 layers", stripe_make(&bench, 1, 61, 1, 36864));
    row_sum(&bench, "sum of mla8k (once)");
    need_cuda(cudaStreamDestroy(bench.stream), "stream");
    need(device_free(bench.device, (void *)(uintptr_t)bench.src), "device_free");
    need(device_free(bench.device, (void *)(uintptr_t)bench.dst), "device_free");
    device_close(bench.device);
    return 0;
}
