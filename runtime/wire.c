/* wire.c - checksums. The cursors are inline in wire.h. */
#include "wire.h"

#include "check.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define WIRE_CHECKSUM_BYTES 4u

uint32_t wire_checksum(const void *bytes, size_t len_bytes)
{
    return XXH32(bytes, len_bytes, 0);
}

uint32_t wire_checksum_but(const void *bytes, size_t len_bytes, size_t hole_at)
{
    /*
     * The hash looks back 16 bytes from an end; gcc 12 calls that out of bounds in 4 bytes alone.
     */
    static const uint8_t zeros[16];
    const uint8_t *hole = zeros + sizeof(zeros) - WIRE_CHECKSUM_BYTES;
    const uint8_t *at = bytes;
    XXH32_state_t state;

    KVF_REQUIRE(len_bytes >= WIRE_CHECKSUM_BYTES && hole_at <= len_bytes - WIRE_CHECKSUM_BYTES);
    XXH32_reset(&state, 0);
    XXH32_update(&state, at, hole_at);
    XXH32_update(&state, hole, WIRE_CHECKSUM_BYTES);
    XXH32_update(&state, at + hole_at + WIRE_CHECKSUM_BYTES,
                 len_bytes - hole_at - WIRE_CHECKSUM_BYTES);
    return XXH32_digest(&state);
}

uint64_t wire_hash64(const void *bytes, size_t len_bytes, uint64_t seed)
{
    return XXH64(bytes, len_bytes, seed);
}
