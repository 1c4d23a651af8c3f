/*
 * params.h - reading sized parameter structs of any release.
 *
 * Header only. May include nothing but the C headers.
 */
#ifndef KVF_PARAMS_H
#define KVF_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Copies `given`, whose first member is its `size`, into `out` of `out_bytes` bytes: fields that
 * the caller does not know are zero, fields that this release does not know must be. False when the
 * struct is wrong.
 */
static inline bool params_read(const void *given, void *out, size_t out_bytes)
{
    const uint8_t *bytes = given;
    size_t size;

    if (given == NULL)
        return false;
    memcpy(&size, given, sizeof(size));
    if (size < sizeof(size) || size > 65536)
        return false;
    for (size_t at = out_bytes; at < size; at++)
        if (bytes[at] != 0)
            return false;
    memset(out, 0, out_bytes);
    memcpy(out, given, size < out_bytes ? size : out_bytes);
    return true;
}

/* Writes a result struct whose first member is its size, as much as the caller knows of it. */
static inline bool params_write(void *to, const void *from, size_t from_bytes)
{
    size_t size;

    if (to == NULL)
        return false;
    memcpy(&size, to, sizeof(size));
    if (size < sizeof(size) || size > 65536)
        return false;
    if (size > from_bytes)
        memset((uint8_t *)to + from_bytes, 0, size - from_bytes);
    memcpy((uint8_t *)to + sizeof(size), (const uint8_t *)from + sizeof(size),
           (size < from_bytes ? size : from_bytes) - sizeof(size));
    return true;
}

#endif /* KVF_PARAMS_H */
