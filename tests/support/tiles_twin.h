/*
 * tiles_twin.h - runs a packed launch on the host, tile by tile, as the kernels do on a device.
 *
 * May be included by any test. Host addresses only.
 */
#ifndef KVF_TEST_TILES_TWIN_H
#define KVF_TEST_TILES_TWIN_H

#include "testing.h"

#include "kernels/tiles.h"

/* Called for each fragment or cut instead of copying it. */
typedef void (*tiles_twin_fn)(void *self, uint64_t dst, uint64_t src, uint64_t bytes);

/*
 * Copies (visit NULL) or visits all tiles, the last one first: their order must not matter. Sums
 * are added to *sum. Fails the test where a tile breaks a rule of tiles.h.
 */
void tiles_twin_run(const struct tiles_args *args, tiles_twin_fn visit, void *self, uint64_t *sum);

#endif /* KVF_TEST_TILES_TWIN_H */
