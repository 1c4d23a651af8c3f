/* wire.c - checksums. The cursors are inline in wire.h. */
#include "wire.h"

#include "check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint32_t wire_checksum(const void *bytes, size_t len_bytes)
{
    return XXH32(bytes, len_bytes, 0);
}

uint32_t wire_checksum_but(const void *bytes, size_t len_bytes, size_t hole_at)
{
    static const uint8_t hole[4];
    const uint8_t *at = bytes;
    XXH32_state_t state;

    KVF_REQUIRE(len_bytes >= sizeof(hole) && hole_at <= len_bytes - sizeof(hole));
    XXH32_reset(&state, 0);
    XXH32_update(&state, at, hole_at);
    XXH32_update(&state, hole, sizeof(hole));
    XXH32_update(&state, at + hole_at + sizeof(hole), len_bytes - hole_at - sizeof(hole));
    return XXH32_digest(&state);
}

uint64_t wire_hash64(const void *bytes, size_t len_bytes, uint64_t seed)
{
    return XXH64(bytes, len_bytes, seed);
}
