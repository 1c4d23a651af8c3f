/*
 * copy_cuda.cu - the kernels that run the tiles of a launch.
 *
 * Warps take tiles until none is left: the first by their own number, all further ones from a
 * counter, so that blocks which start late (the engine's kernels have the SMs) find less to do. The
 * block that ends last cleans the counters and sets the flag. Decides nothing: what is copied and
 * on how many SMs is in the arguments.
 */
#include "copy_cuda.h"

#include <string.h>

#include "cuda_move.h"

enum { BLOCK_THREADS = TILES_LANES * TILES_WARPS_A_SM };

/* What a kernel gets: the parts, and with INSIDE the tables too. */
template <bool INSIDE> struct kernel_args {
    static const int parts_max = INSIDE ? TILES_PARTS_INSIDE_MAX : TILES_PARTS_MAX;
    static const int words_max = INSIDE ? TILES_WORDS_INSIDE_MAX : 1;

    struct copy_cuda_end end;
    const uint64_t *table;
    uint32_t part_count;
    uint32_t tile_count;
    uint32_t first_tile[parts_max];
    struct tiles_part parts[parts_max];
    uint64_t words[words_max];
};

template <bool INSIDE>
static __device__ __forceinline__ uint64_t table_word(const kernel_args<INSIDE> &args, uint32_t at)
{
    return INSIDE ? args.words[at] : args.table[at];
}

/* Lane i: where block i of the tile lies. Lanes beyond the last block have anything. */
template <bool INSIDE>
static __device__ __forceinline__ struct move_blocks find_blocks(const kernel_args<INSIDE> &args,
                                                                 const struct tiles_part *part,
                                                                 const struct tiles_place *place,
                                                                 uint32_t lane)
{
    uint32_t mine = lane < place->block_count ? lane : place->block_count - 1;
    uint32_t block = place->block + mine;
    struct tiles_entry entry = tiles_entry(part, block);
    uint64_t pair = table_word(args, entry.pair_at);
    uint64_t src_base = table_word(args, entry.base_at);
    uint64_t dst_base = table_word(args, entry.base_at + 1);
    struct move_blocks found;

    found.src = part->src_staged
                    ? tiles_block_address(part->src, part->src_stride, 0, block)
                    : tiles_block_address(part->src, part->src_stride, src_base, (uint32_t)pair);
    found.dst = part->dst_staged
                    ? tiles_block_address(part->dst, part->dst_stride, 0, block)
                    : tiles_block_address(part->dst, part->dst_stride, dst_base, pair >> 32);
    return found;
}

/*
 * The stores of the whole launch are before the flag: for all of the system, not this device only.
 */
static __device__ __forceinline__ void end_block(const struct copy_cuda_end &end, bool sums)
{
    __syncthreads();
    if (threadIdx.x != 0) {
        return;
    }
    __threadfence_system();
    if (atomicAdd(&end.scratch->blocks_done, 1) != gridDim.x - 1) {
        return;
    }
    __threadfence_system();
    end.scratch->blocks_done = 0;
    end.scratch->next_tile = 0;
    if (sums) {
        *end.sum += atomicExch((unsigned long long *)&end.scratch->sum, 0ull);
    }
    __threadfence_system();
    *(volatile uint64_t *)end.flag = end.value;
}

static __device__ __forceinline__ void add_sum(uint64_t *total, uint64_t sum, uint32_t lane)
{
    for (uint32_t by = TILES_LANES / 2; by > 0; by /= 2) {
        sum += move_shuffle(sum, lane ^ by);
    }
    if (lane == 0) {
        atomicAdd((unsigned long long *)total, (unsigned long long)sum);
    }
}

template <bool INSIDE, bool SUMS>
static __global__ void __launch_bounds__(BLOCK_THREADS, 1)
    run_tiles(const __grid_constant__ kernel_args<INSIDE> args)
{
    const uint32_t lane = threadIdx.x % TILES_LANES;
    /* Neighbours in number are on different SMs: a short list is spread. */
    const uint32_t warp = threadIdx.x / TILES_LANES * gridDim.x + blockIdx.x;
    const uint32_t warps = gridDim.x * (BLOCK_THREADS / TILES_LANES);
    uint64_t sum = 0;

    for (uint32_t tile = warp; tile < args.tile_count;) {
        uint32_t next = 0;
        uint32_t at = tiles_find(args.first_tile, args.part_count, tile);
        const struct tiles_part *part = &args.parts[at];
        struct tiles_place place = tiles_place(part, tile - args.first_tile[at]);
        struct move_blocks blocks = find_blocks(args, part, &place, lane);

        if (lane == 0) { /* asked now, needed after the tile */
            next = warps + atomicAdd(&args.end.scratch->next_tile, 1);
        }
        if (SUMS) {
            sum += move_tile_sum(part, &place, &blocks, lane);
        } else {
            move_tile(part, &place, &blocks, lane);
        }
        tile = __shfl_sync(0xffffffffu, next, 0);
    }
    if (SUMS) {
        add_sum(&args.end.scratch->sum, sum, lane);
    }
    end_block(args.end, SUMS);
}

template <bool INSIDE>
static int launch(const struct tiles_args *args, const struct copy_cuda_end *end, bool sums,
                  cudaStream_t stream)
{
    kernel_args<INSIDE> told;

    told.end = *end;
    told.table = args->table;
    told.part_count = args->part_count;
    told.tile_count = args->tile_count;
    memcpy(told.first_tile, args->first_tile, args->part_count * sizeof(told.first_tile[0]));
    memcpy(told.parts, args->parts, args->part_count * sizeof(told.parts[0]));
    if (INSIDE) {
        memcpy(told.words, args->words, sizeof(told.words));
    }
    void *list[] = {&told};
    const void *kernel =
        sums ? (const void *)run_tiles<INSIDE, true> : (const void *)run_tiles<INSIDE, false>;
    return (int)cudaLaunchKernel(kernel, dim3(args->block_count), dim3(BLOCK_THREADS), list, 0,
                                 stream);
}

int copy_cuda_queue(const struct tiles_args *args, const struct copy_cuda_end *end, void *stream)
{
    bool sums = args->kind == TILES_SUM_SRC || args->kind == TILES_SUM_DST;

    if (args->table == NULL) {
        return launch<true>(args, end, sums, (cudaStream_t)stream);
    }
    return launch<false>(args, end, sums, (cudaStream_t)stream);
}
