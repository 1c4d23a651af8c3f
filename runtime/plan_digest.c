/*
 * plan_digest.c - see plan_digest.h.
 */
#include "plan_digest.h"

#include <string.h>

uint64_t plan_digest_fragments(const struct stripe *stripes, uint32_t count)
{
    uint64_t fragments = 0;

    for (uint32_t s = 0; s < count; s++) {
        fragments += stripe_fragments(&stripes[s]);
    }
    return fragments;
}

/* Takes the next fragment from the walk; at the end none is left. */
static void digest_take(struct plan_digest *digest)
{
    struct plan_fragment fragment;

    digest->bytes = NULL;
    digest->left_bytes = 0;
    if (plan_walk_next(&digest->walk, &fragment)) {
        digest->bytes = (const uint8_t *)(uintptr_t)(digest->sources ? fragment.src : fragment.dst);
        digest->left_bytes = fragment.bytes;
        wire_hash_begin(&digest->hash, digest->at);
    }
}

void plan_digest_init(struct plan_digest *digest, const struct stripe *stripes, uint32_t count,
                      bool sources)
{
    uint64_t fragments = plan_digest_fragments(stripes, count);

    memset(digest, 0, sizeof(*digest));
    digest->sources = sources;
    digest->fragments = fragments;
    digest->part_count =
        (uint16_t)(fragments < MSG_CHECK_PARTS_MAX ? fragments : MSG_CHECK_PARTS_MAX);
    plan_walk_init(&digest->walk, stripes, count);
    digest_take(digest);
}

bool plan_digest_step(struct plan_digest *digest, uint64_t *budget_bytes)
{
    while (digest->left_bytes > 0 && *budget_bytes > 0) {
        uint64_t bytes = digest->left_bytes < *budget_bytes ? digest->left_bytes : *budget_bytes;

        wire_hash_add(&digest->hash, digest->bytes, bytes);
        digest->bytes += bytes;
        digest->left_bytes -= bytes;
        *budget_bytes -= bytes;
        if (digest->left_bytes == 0) {
            digest->parts[digest->at * digest->part_count / digest->fragments] +=
                wire_hash_end(&digest->hash);
            digest->at++;
            digest_take(digest);
        }
    }
    return digest->left_bytes == 0;
}
