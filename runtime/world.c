/*
 * world.c - what all implementations of the world share.
 */
#include "world.h"

void world_gathered_free(struct world_gathered *gathered)
{
    if (gathered->heap != NULL) {
        kvf_release(gathered->heap, gathered->bytes);
        kvf_release(gathered->heap, gathered->offsets);
    }
    *gathered = (struct world_gathered){0};
}
