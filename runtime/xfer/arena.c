/*
 * arena.c - see arena.h. A region's number is that of its first granule.
 */
#include "xfer/arena.h"

#include "check.h"
#include "list.h"

#define ARENA_ORDERS 25u /* log2(ARENA_BLOCKS_MAX) + 1 */

/* Of the granule that a block begins with; of the others only the generation counts. */
struct arena_block {
    struct list link; /* free list of its order and half, or quarantine */
    uint64_t owner;   /* the caller's; in quarantine the peer */
    uint64_t until_ns;
    uint64_t len_bytes;  /* asked for */
    uint32_t generation; /* of this offset: counts frees */
    uint8_t order;
    uint8_t state; /* enum arena_state */
    bool begins;   /* a block begins here */
};

struct arena {
    const struct kvf_heap *heap;
    uint64_t granule_bytes;
    uint32_t block_count; /* granules: a power of two */
    unsigned top;         /* order of the whole */
    struct arena_block *blocks;
    struct list free[ARENA_ORDERS][2]; /* by half; the whole arena is in half 0 */
    struct list quarantine;
    struct arena_counts counts;
};

enum kvf_status arena_open(const struct kvf_heap *heap, uint64_t usable_bytes,
                           uint64_t granularity_bytes, struct arena **arena_out)
{
    struct arena *arena;
    uint64_t count;

    if (granularity_bytes == 0 || (granularity_bytes & (granularity_bytes - 1)) != 0)
        return KVF_E_INVAL;
    count = usable_bytes / granularity_bytes;
    if (count == 0 || count > ARENA_BLOCKS_MAX || (count & (count - 1)) != 0 ||
        count * granularity_bytes != usable_bytes)
        return KVF_E_INVAL;
    arena = kvf_alloc(heap, 1, sizeof(*arena));
    if (arena == NULL)
        return KVF_E_NOMEM;
    arena->blocks = kvf_alloc(heap, count, sizeof(*arena->blocks));
    if (arena->blocks == NULL) {
        kvf_release(heap, arena);
        return KVF_E_NOMEM;
    }
    arena->heap = heap;
    arena->granule_bytes = granularity_bytes;
    arena->block_count = (uint32_t)count;
    for (unsigned order = 0; order < ARENA_ORDERS; order++) {
        list_init(&arena->free[order][0]);
        list_init(&arena->free[order][1]);
    }
    list_init(&arena->quarantine);
    while ((1u << arena->top) < count)
        arena->top++;
    arena->blocks[0].begins = true;
    arena->blocks[0].order = (uint8_t)arena->top;
    list_push(&arena->free[arena->top][0], &arena->blocks[0].link);
    arena->counts.usable_bytes = usable_bytes;
    arena->counts.state_bytes[ARENA_FREE] = usable_bytes;
    *arena_out = arena;
    return KVF_OK;
}

void arena_close(struct arena *arena)
{
    if (arena == NULL)
        return;
    kvf_release(arena->heap, arena->blocks);
    kvf_release(arena->heap, arena);
}

static uint32_t block_index(const struct arena *arena, const struct arena_block *block)
{
    return (uint32_t)(block - arena->blocks);
}

static uint64_t block_bytes(const struct arena *arena, const struct arena_block *block)
{
    return arena->granule_bytes << block->order;
}

static unsigned half_of(const struct arena *arena, uint32_t index)
{
    return arena->top > 0 && index >= arena->block_count / 2;
}

static struct arena_block *block_at(const struct arena *arena, uint32_t region)
{
    KVF_REQUIRE(region < arena->block_count);
    KVF_REQUIRE(arena->blocks[region].begins);
    KVF_REQUIRE(arena->blocks[region].state != ARENA_FREE);
    return &arena->blocks[region];
}

/* Moves the block's bytes from state to state in the counts. */
static void recount(struct arena *arena, struct arena_block *block, enum arena_state state)
{
    uint64_t taken;

    arena->counts.state_bytes[block->state] -= block_bytes(arena, block);
    block->state = (uint8_t)state;
    arena->counts.state_bytes[state] += block_bytes(arena, block);
    taken = arena->counts.usable_bytes - arena->counts.state_bytes[ARENA_FREE];
    if (taken > arena->counts.high_water_bytes)
        arena->counts.high_water_bytes = taken;
}

/* False: longer than the arena. */
static bool order_of(const struct arena *arena, uint64_t len_bytes, unsigned *order_out)
{
    unsigned order = 0;

    if (len_bytes == 0 || len_bytes > arena->counts.usable_bytes)
        return false;
    while (arena->granule_bytes << order < len_bytes)
        order++;
    *order_out = order;
    return true;
}

/* The smallest free block of at least this order: the lower half first, the upper one last. */
static struct arena_block *find_free(const struct arena *arena, unsigned order,
                                     enum arena_place place)
{
    for (unsigned half = place == ARENA_UPPER_HALF; half < 2; half++)
        for (unsigned at = order; at <= arena->top; at++) {
            struct list *node = list_first(&arena->free[at][half]);

            if (node != NULL)
                return list_object(node, struct arena_block, link);
        }
    if (place == ARENA_UPPER_HALF && order < arena->top) {
        struct list *node = list_first(&arena->free[arena->top][0]);

        if (node != NULL)
            return list_object(node, struct arena_block, link);
    }
    return NULL;
}

enum kvf_status arena_has_room(const struct arena *arena, const struct arena_want *want)
{
    unsigned order;

    if (!order_of(arena, want->len_bytes, &order))
        return KVF_E_TOO_LARGE;
    if (want->place == ARENA_UPPER_HALF && order >= arena->top)
        return KVF_E_TOO_LARGE;
    return find_free(arena, order, want->place) == NULL ? KVF_BUSY : KVF_OK;
}

/* Cuts a block in two and gives the one to go on with; the other becomes free. */
static struct arena_block *split(struct arena *arena, struct arena_block *block,
                                 enum arena_place place)
{
    struct arena_block *upper;
    struct arena_block *keep = block;
    struct arena_block *leave;
    bool whole = block->order == arena->top;

    block->order--;
    upper = &arena->blocks[block_index(arena, block) + (1u << block->order)];
    upper->begins = true;
    upper->order = block->order;
    upper->state = ARENA_FREE;
    leave = upper;
    if (whole && place == ARENA_UPPER_HALF) {
        keep = upper;
        leave = block;
    }
    list_push(&arena->free[leave->order][half_of(arena, block_index(arena, leave))], &leave->link);
    return keep;
}

enum kvf_status arena_take(struct arena *arena, const struct arena_want *want, uint32_t *region_out)
{
    enum kvf_status status = arena_has_room(arena, want);
    struct arena_block *block;
    unsigned order = 0;

    KVF_REQUIRE(want->state != ARENA_FREE && want->state < ARENA_QUARANTINE);
    if (status != KVF_OK)
        return status;
    KVF_ASSERT(order_of(arena, want->len_bytes, &order));
    block = find_free(arena, order, want->place);
    list_remove(&block->link);
    while (block->order > order)
        block = split(arena, block, want->place);
    list_init(&block->link);
    recount(arena, block, want->state);
    block->owner = want->owner;
    block->len_bytes = want->len_bytes;
    *region_out = block_index(arena, block);
    return KVF_OK;
}

/* Free already; joins it with its buddy as far as that is free too. */
static void join(struct arena *arena, struct arena_block *block)
{
    while (block->order < arena->top) {
        uint32_t index = block_index(arena, block);
        struct arena_block *buddy = &arena->blocks[index ^ (1u << block->order)];

        if (!buddy->begins || buddy->state != ARENA_FREE || buddy->order != block->order)
            break;
        list_remove(&buddy->link);
        if (buddy < block) {
            block->begins = false;
            block = buddy;
        } else {
            buddy->begins = false;
        }
        block->order++;
    }
    list_push(&arena->free[block->order][half_of(arena, block_index(arena, block))], &block->link);
}

static void release(struct arena *arena, struct arena_block *block)
{
    recount(arena, block, ARENA_FREE);
    block->generation++;
    arena->counts.frees++;
    join(arena, block);
}

void arena_free(struct arena *arena, uint32_t region)
{
    struct arena_block *block = block_at(arena, region);

    KVF_REQUIRE(block->state < ARENA_QUARANTINE);
    release(arena, block);
}

void arena_set_state(struct arena *arena, uint32_t region, enum arena_state state)
{
    struct arena_block *block = block_at(arena, region);

    KVF_REQUIRE(block->state < ARENA_QUARANTINE);
    KVF_REQUIRE(state != ARENA_FREE && state < ARENA_QUARANTINE);
    recount(arena, block, state);
}

void arena_quarantine(struct arena *arena, uint32_t region, uint32_t peer, uint64_t until_ns)
{
    struct arena_block *block = block_at(arena, region);

    KVF_REQUIRE(block->state < ARENA_QUARANTINE);
    recount(arena, block, ARENA_QUARANTINE);
    block->owner = peer;
    block->until_ns = until_ns;
    list_push(&arena->quarantine, &block->link);
}

void arena_poison(struct arena *arena, uint32_t region)
{
    struct arena_block *block = block_at(arena, region);

    list_remove(&block->link);
    recount(arena, block, ARENA_POISONED);
}

uint32_t arena_tick(struct arena *arena, uint64_t now_ns)
{
    struct list *node;
    uint32_t freed = 0;

    while ((node = list_first(&arena->quarantine)) != NULL) {
        struct arena_block *block = list_object(node, struct arena_block, link);

        if (block->until_ns > now_ns)
            break;
        list_remove(node);
        release(arena, block);
        freed++;
    }
    return freed;
}

uint32_t arena_proof(struct arena *arena, uint32_t peer)
{
    struct list *node = list_first(&arena->quarantine);
    uint32_t freed = 0;

    while (node != NULL) {
        struct list *next = list_after(&arena->quarantine, node);
        struct arena_block *block = list_object(node, struct arena_block, link);

        if (block->owner == peer) {
            list_remove(node);
            release(arena, block);
            freed++;
        }
        node = next;
    }
    return freed;
}

uint64_t arena_deadline_ns(const struct arena *arena)
{
    struct list *node = list_first(&arena->quarantine);

    return node == NULL ? UINT64_MAX : list_object(node, struct arena_block, link)->until_ns;
}

uint32_t arena_find(const struct arena *arena, struct arena_handle handle)
{
    const struct arena_block *block;

    if (handle.offset >= arena->counts.usable_bytes || handle.offset % arena->granule_bytes != 0)
        return ARENA_NONE;
    block = &arena->blocks[handle.offset / arena->granule_bytes];
    if (!block->begins || block->state == ARENA_FREE || block->generation != handle.generation)
        return ARENA_NONE;
    return block_index(arena, block);
}

struct arena_handle arena_handle(const struct arena *arena, uint32_t region)
{
    const struct arena_block *block = block_at(arena, region);

    return (struct arena_handle){region * arena->granule_bytes, block->generation};
}

enum arena_state arena_state(const struct arena *arena, uint32_t region)
{
    return (enum arena_state)block_at(arena, region)->state;
}

uint64_t arena_owner(const struct arena *arena, uint32_t region)
{
    return block_at(arena, region)->owner;
}

void arena_set_owner(struct arena *arena, uint32_t region, uint64_t owner)
{
    block_at(arena, region)->owner = owner;
}

uint64_t arena_len(const struct arena *arena, uint32_t region)
{
    return block_at(arena, region)->len_bytes;
}

uint64_t arena_block_bytes(const struct arena *arena, uint64_t len_bytes)
{
    unsigned order;

    return order_of(arena, len_bytes, &order) ? arena->granule_bytes << order : 0;
}

bool arena_could_hold(const struct arena *arena, uint64_t len_bytes)
{
    const uint64_t *bytes = arena->counts.state_bytes;
    unsigned order;
    uint32_t run = 0;

    if (!order_of(arena, len_bytes, &order))
        return false;
    if (bytes[ARENA_QUARANTINE] == 0 && bytes[ARENA_POISONED] == 0)
        return true;
    for (uint32_t at = 0; at < arena->block_count; at += 1u << arena->blocks[at].order) {
        const struct arena_block *block = &arena->blocks[at];

        if ((at & ((1u << order) - 1)) == 0)
            run = 0; /* a block of that order would begin here */
        if (block->state < ARENA_QUARANTINE)
            run += 1u << block->order;
        if (run >= 1u << order)
            return true;
    }
    return false;
}

const struct arena_counts *arena_counts(const struct arena *arena)
{
    return &arena->counts;
}

const char *arena_state_name(enum arena_state state)
{
    switch (state) {
    case ARENA_FREE:
        return "free";
    case ARENA_EAGER:
        return "eager";
    case ARENA_STAGING:
        return "staging";
    case ARENA_ORPHAN_WRITE:
        return "orphan-write";
    case ARENA_ORPHAN_GATHER:
        return "orphan-gather";
    case ARENA_GRANTED:
        return "granted";
    case ARENA_QUEUED:
        return "queued";
    case ARENA_BUSY:
        return "busy";
    case ARENA_ORPHAN_SCATTER:
        return "orphan-scatter";
    case ARENA_QUARANTINE:
        return "quarantine";
    case ARENA_POISONED:
        return "poisoned";
    }
    return "?";
}

/* ---- for tests ------------------------------------------------------------------------------ */

static void check_quarantine(const struct arena *arena, uint32_t blocks)
{
    uint64_t before_ns = 0;
    uint32_t count = 0;

    for (struct list *node = list_first(&arena->quarantine); node != NULL;
         node = list_after(&arena->quarantine, node)) {
        const struct arena_block *block = list_object(node, struct arena_block, link);

        KVF_ASSERT(block->begins && block->state == ARENA_QUARANTINE);
        KVF_ASSERT(block->until_ns >= before_ns);
        before_ns = block->until_ns;
        count++;
    }
    KVF_ASSERT(count == blocks);
}

void arena_check(const struct arena *arena)
{
    uint64_t bytes[ARENA_STATE_COUNT] = {0};
    uint32_t quarantined = 0;
    uint32_t at = 0;

    while (at < arena->block_count) {
        const struct arena_block *block = &arena->blocks[at];
        uint32_t size;

        KVF_ASSERT(block->begins && block->order <= arena->top);
        size = 1u << block->order;
        KVF_ASSERT(at % size == 0);
        for (uint32_t inside = at + 1; inside < at + size; inside++)
            KVF_ASSERT(!arena->blocks[inside].begins);
        if (block->state == ARENA_FREE && block->order < arena->top) {
            const struct arena_block *buddy = &arena->blocks[at ^ size];

            KVF_ASSERT(!buddy->begins || buddy->state != ARENA_FREE ||
                       buddy->order != block->order);
        }
        KVF_ASSERT(block->state == ARENA_FREE || block->len_bytes <= block_bytes(arena, block));
        bytes[block->state] += block_bytes(arena, block);
        quarantined += block->state == ARENA_QUARANTINE;
        at += size;
    }
    for (unsigned state = 0; state < ARENA_STATE_COUNT; state++)
        KVF_ASSERT(bytes[state] == arena->counts.state_bytes[state]);
    check_quarantine(arena, quarantined);
    KVF_ASSERT(arena->counts.high_water_bytes >= arena->counts.usable_bytes - bytes[ARENA_FREE]);
}
