/* oracle.c - see oracle.h. */
#include "oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "say.h"

struct oracle_page {
    struct oracle_owner owner;
    bool lent;
};

/* A buffer of a page. */
struct oracle_buffer {
    struct content_shape shape;
    uint32_t pool;
    uint64_t offset; /* in the slot */
};

/* Bytes of a slot that belong to no buffer. */
struct oracle_gap {
    uint32_t pool;
    uint64_t offset;
    uint64_t bytes;
};

struct oracle_group {
    uint64_t slots;
    uint64_t page_bytes;
    uint32_t buffer_count;
    uint32_t gap_count;
    struct oracle_buffer *buffers; /* [buffer_count] by (pool, offset) */
    struct oracle_gap *gaps;       /* [gap_count] */
    struct oracle_page *pages;     /* [slots] */
};

struct oracle {
    uint32_t group_count;
    uint32_t pool_count;
    uint8_t **bases;   /* [pool_count] */
    uint64_t *strides; /* [pool_count] */
    struct oracle_group *groups;
};

uint64_t oracle_stride(uint64_t slot_bytes)
{
    return (slot_bytes + ORACLE_CANARY_BYTES + 63) / 64 * 64;
}

SAY_PRINTF(2, 3)
static bool oracle_refuse(char *text_out, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text_out, ORACLE_TEXT_BYTES, format, args);
    va_end(args);
    return false;
}

static int oracle_buffer_order(const void *a, const void *b)
{
    const struct oracle_buffer *x = a, *y = b;

    if (x->pool != y->pool) {
        return x->pool < y->pool ? -1 : 1;
    }
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Adds the buffers of one view; every one must be what the model and the place say. */
static bool oracle_add_view(const struct oracle_params *params, const struct kvf_view *view,
                            struct oracle_group *group, char *text_out)
{
    for (uint32_t i = 0; i < view->entry_count; i++) {
        const struct kvf_entry *entry = &view->entries[i];
        struct oracle_buffer *buffer = &group->buffers[group->buffer_count++];

        if (!content_shape_make(params->model, entry->layer, (enum kvf_role_kind)entry->role,
                                params->place, &buffer->shape)) {
            return oracle_refuse(text_out, "layer %u role %u: the model has no such buffer",
                                 entry->layer, entry->role);
        }
        if (buffer->shape.bytes != entry->size || buffer->shape.kind != view->kind) {
            return oracle_refuse(
                text_out, "layer %u role %u: the layout has %llu bytes, the model gives %llu",
                entry->layer, entry->role, (unsigned long long)entry->size,
                (unsigned long long)buffer->shape.bytes);
        }
        if (entry->offset + entry->size > params->layout->pools[view->pool].slot_bytes) {
            return oracle_refuse(text_out, "layer %u role %u: lies outside its slot", entry->layer,
                                 entry->role);
        }
        buffer->pool = view->pool;
        buffer->offset = entry->offset;
        group->page_bytes += entry->size;
    }
    return true;
}

/* The gaps of one pool, between the buffers [first, end) of the group, up to the next slot. */
static bool oracle_add_gaps(struct oracle_group *group, uint32_t first, uint32_t end,
                            uint64_t stride, char *text_out)
{
    uint64_t at = 0;

    for (uint32_t i = first; i <= end; i++) {
        uint64_t next = i < end ? group->buffers[i].offset : stride;

        if (next < at) {
            return oracle_refuse(text_out, "two buffers of pool %u overlap at byte %llu",
                                 group->buffers[first].pool, (unsigned long long)next);
        }
        if (next > at) {
            struct oracle_gap *gap = &group->gaps[group->gap_count++];

            gap->pool = group->buffers[first].pool;
            gap->offset = at;
            gap->bytes = next - at;
        }
        at = i < end ? next + group->buffers[i].shape.bytes : at;
    }
    return true;
}

static bool oracle_open_group(const struct oracle_params *params, uint32_t index,
                              struct oracle_group *group, char *text_out)
{
    const struct kvf_group *facts = &params->layout->groups[index];
    uint32_t entries = 0;

    for (uint32_t v = 0; v < facts->view_count; v++) {
        entries += facts->views[v].entry_count;
    }
    group->slots = params->group_slots[index];
    group->buffers = calloc(entries + 1, sizeof(*group->buffers));
    group->gaps = calloc(2 * (size_t)entries + 2, sizeof(*group->gaps));
    group->pages = calloc(group->slots + 1, sizeof(*group->pages));
    if (group->buffers == NULL || group->gaps == NULL || group->pages == NULL) {
        return oracle_refuse(text_out, "no memory to remember %llu pages",
                             (unsigned long long)group->slots);
    }
    for (uint32_t v = 0; v < facts->view_count; v++) {
        if (!oracle_add_view(params, &facts->views[v], group, text_out)) {
            return false;
        }
    }
    qsort(group->buffers, group->buffer_count, sizeof(*group->buffers), oracle_buffer_order);
    for (uint32_t i = 0, end; i < group->buffer_count; i = end) {
        uint32_t pool = group->buffers[i].pool;

        for (end = i; end < group->buffer_count && group->buffers[end].pool == pool;) {
            end++;
        }
        if (!oracle_add_gaps(group, i, end, params->layout->pools[pool].slot_stride, text_out)) {
            return false;
        }
    }
    return true;
}

/* A pool that two groups share would need one record for both. */
static bool oracle_pools_apart(const struct kvf_layout *layout, char *text_out)
{
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        uint32_t users = 0;

        for (uint32_t g = 0; g < layout->group_count; g++) {
            bool uses = false;

            for (uint32_t v = 0; v < layout->groups[g].view_count; v++) {
                uses = uses || layout->groups[g].views[v].pool == p;
            }
            users += uses;
        }
        if (users != 1) {
            return oracle_refuse(text_out, "pool %u is used by %u groups; want one", p, users);
        }
    }
    return true;
}

static void oracle_write_gaps(struct oracle *oracle, const struct oracle_group *group,
                              uint32_t slot)
{
    for (uint32_t i = 0; i < group->gap_count; i++) {
        const struct oracle_gap *gap = &group->gaps[i];
        uint64_t base = content_key(CONTENT_VIRGIN, ((uint64_t)gap->pool << 40) + slot);

        content_run_fill(base, gap->offset, gap->bytes,
                         oracle->bases[gap->pool] + slot * oracle->strides[gap->pool] +
                             gap->offset);
    }
}

struct oracle *oracle_open(const struct oracle_params *params, char *text_out)
{
    const struct kvf_layout *layout = params->layout;
    struct oracle *oracle;

    if (!oracle_pools_apart(layout, text_out)) {
        return NULL;
    }
    oracle = calloc(1, sizeof(*oracle));
    if (oracle != NULL) {
        oracle->groups = calloc(layout->group_count + 1u, sizeof(*oracle->groups));
        oracle->bases = calloc(layout->pool_count + 1u, sizeof(*oracle->bases));
        oracle->strides = calloc(layout->pool_count + 1u, sizeof(*oracle->strides));
    }
    if (oracle == NULL || oracle->groups == NULL || oracle->bases == NULL ||
        oracle->strides == NULL) {
        oracle_refuse(text_out, "no memory");
        goto close_oracle;
    }
    oracle->pool_count = layout->pool_count;
    for (uint32_t p = 0; p < layout->pool_count; p++) {
        oracle->bases[p] = params->bases[p];
        oracle->strides[p] = layout->pools[p].slot_stride;
    }
    for (; oracle->group_count < layout->group_count;) {
        uint32_t g = oracle->group_count++;

        if (!oracle_open_group(params, g, &oracle->groups[g], text_out)) {
            goto close_oracle;
        }
        for (uint32_t slot = 0; slot < oracle->groups[g].slots; slot++) {
            oracle_write_gaps(oracle, &oracle->groups[g], slot);
            oracle_stamp(oracle, g, slot);
        }
    }
    return oracle;

close_oracle:
    oracle_close(oracle);
    return NULL;
}

void oracle_close(struct oracle *oracle)
{
    if (oracle == NULL) {
        return;
    }
    for (uint32_t g = 0; g < oracle->group_count; g++) {
        free(oracle->groups[g].buffers);
        free(oracle->groups[g].gaps);
        free(oracle->groups[g].pages);
    }
    free(oracle->groups);
    free(oracle->bases);
    free(oracle->strides);
    free(oracle);
}

uint64_t oracle_page_bytes(const struct oracle *oracle, uint32_t group)
{
    return oracle->groups[group].page_bytes;
}

static uint8_t *oracle_buffer_at(const struct oracle *oracle, const struct oracle_buffer *buffer,
                                 uint32_t slot)
{
    return oracle->bases[buffer->pool] + slot * oracle->strides[buffer->pool] + buffer->offset;
}

static struct oracle_page *oracle_page(const struct oracle *oracle, uint32_t group, uint32_t slot)
{
    return &oracle->groups[group].pages[slot];
}

void oracle_fill(struct oracle *oracle, uint32_t group, uint32_t slot,
                 const struct oracle_owner *owner)
{
    const struct oracle_group *of = &oracle->groups[group];

    for (uint32_t i = 0; i < of->buffer_count; i++) {
        content_fill(&of->buffers[i].shape, owner->key, owner->ordinal,
                     oracle_buffer_at(oracle, &of->buffers[i], slot));
    }
    oracle_expect(oracle, group, slot, owner);
}

void oracle_stamp(struct oracle *oracle, uint32_t group, uint32_t slot)
{
    struct oracle_owner nobody = {
        .job = ORACLE_NOBODY,
        .key = content_key(CONTENT_VIRGIN, ((uint64_t)(group + 1) << 32) + slot),
    };

    oracle_fill(oracle, group, slot, &nobody);
}

void oracle_lend(struct oracle *oracle, uint32_t group, uint32_t slot)
{
    oracle_page(oracle, group, slot)->lent = true;
}

void oracle_expect(struct oracle *oracle, uint32_t group, uint32_t slot,
                   const struct oracle_owner *owner)
{
    struct oracle_page *page = oracle_page(oracle, group, slot);

    page->owner = *owner;
    page->lent = false;
}

/* Canaries of one page; the first bad one into bad_out while `wrong` is still 0. */
static uint64_t oracle_check_gaps(struct oracle *oracle, const struct oracle_group *of,
                                  uint32_t slot, struct oracle_bad *bad_out)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < of->gap_count; i++) {
        const struct oracle_gap *gap = &of->gaps[i];
        uint64_t base = content_key(CONTENT_VIRGIN, ((uint64_t)gap->pool << 40) + slot);
        const uint8_t *bytes =
            oracle->bases[gap->pool] + slot * oracle->strides[gap->pool] + gap->offset;
        uint64_t differ = content_run_check(base, gap->offset, gap->bytes, bytes);

        for (uint64_t k = 0; differ > 0 && wrong == 0 && k < gap->bytes; k++) {
            uint8_t want = content_run_byte(base, gap->offset + k);

            if (bytes[k] != want) {
                bad_out->what = ORACLE_CANARY;
                bad_out->pool = gap->pool;
                bad_out->offset = gap->offset + k;
                bad_out->want = want;
                bad_out->got = bytes[k];
                break;
            }
        }
        wrong += differ;
    }
    if (wrong > 0) {
        oracle_write_gaps(oracle, of, slot);
    }
    return wrong;
}

static uint64_t oracle_check_content(struct oracle *oracle, const struct oracle_group *of,
                                     const struct oracle_page *page, uint32_t slot,
                                     struct oracle_bad *bad_out)
{
    uint64_t wrong = 0;

    for (uint32_t i = 0; i < of->buffer_count; i++) {
        const struct oracle_buffer *buffer = &of->buffers[i];
        struct content_bad bad = {0};
        uint64_t differ = content_check(&buffer->shape, page->owner.key, page->owner.ordinal,
                                        oracle_buffer_at(oracle, buffer, slot), &bad);

        if (differ > 0 && wrong == 0) {
            bad_out->what = ORACLE_CONTENT;
            bad_out->pool = buffer->pool;
            bad_out->layer = buffer->shape.layer;
            bad_out->role = buffer->shape.role;
            bad_out->head = bad.head;
            bad_out->token = bad.token;
            bad_out->offset = buffer->offset + bad.offset;
            bad_out->want = bad.want;
            bad_out->got = bad.got;
        }
        wrong += differ;
    }
    return wrong;
}

uint64_t oracle_check(struct oracle *oracle, uint32_t group, uint32_t slot,
                      struct oracle_bad *bad_out)
{
    const struct oracle_group *of = &oracle->groups[group];
    struct oracle_page *page = oracle_page(oracle, group, slot);
    struct oracle_owner owner = page->owner;
    struct oracle_bad gap, bad;
    uint64_t wrong_gaps, wrong = 0;

    memset(&gap, 0, sizeof(gap));
    memset(&bad, 0, sizeof(bad));
    wrong_gaps = oracle_check_gaps(oracle, of, slot, &gap);
    if (!page->lent) {
        wrong = oracle_check_content(oracle, of, page, slot, &bad);
    }
    if (wrong > 0) {
        oracle_fill(oracle, group, slot, &owner);
    }
    if (wrong + wrong_gaps > 0) {
        *bad_out = wrong > 0 ? bad : gap;
        bad_out->owner = owner;
        bad_out->group = group;
        bad_out->slot = slot;
    }
    return wrong + wrong_gaps;
}
