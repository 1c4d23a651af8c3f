/* wire.c - checksums. The cursors are inline in wire.h. */
#include "wire.h"

#include "check.h"

#include <string.h>

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

_Static_assert(sizeof(XXH64_state_t) <= sizeof(struct wire_hash), "the state of a hash");
_Static_assert(_Alignof(XXH64_state_t) <= _Alignof(struct wire_hash), "the state of a hash");

void wire_hash_begin(struct wire_hash *hash, uint64_t seed)
{
    XXH64_state_t state;

    XXH64_reset(&state, seed);
    memcpy(hash, &state, sizeof(state));
}

void wire_hash_add(struct wire_hash *hash, const void *bytes, size_t len_bytes)
{
    XXH64_state_t state;

    memcpy(&state, hash, sizeof(state));
    XXH64_update(&state, bytes, len_bytes);
    memcpy(hash, &state, sizeof(state));
}

uint64_t wire_hash_end(const struct wire_hash *hash)
{
    XXH64_state_t state;

    memcpy(&state, hash, sizeof(state));
    return XXH64_digest(&state);
}
