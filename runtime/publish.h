/*
 * publish.h - how ranks learn what the others' caches look like. Private to glue.
 */
#ifndef KVF_PUBLISH_H
#define KVF_PUBLISH_H

#include "context.h"

/*
 * What one rank tells all others: a HELLO message (msg.h), sealed by itself: the channel counts
 * from 1 after it.
 */
struct publish_blob {
    uint8_t *bytes;
    size_t len_bytes;
};

/* publish_record.c: this rank's record from the layout and its pools; kvf->record. */
enum kvf_status publish_record(struct kvf *kvf, const struct kvf_layout *layout,
                               struct kvf_pool *const *pools, uint32_t layer_count,
                               struct geo_text *text_out);

/* Global layers that this rank's layout knows of. */
uint32_t publish_layers(const struct kvf_layout *layout);

/* Does the layout give all that its counts say? Nothing else is looked at. Errors: E_INVAL. */
enum kvf_status publish_whole(const struct kvf_layout *layout, struct geo_text *text_out);

/* The HELLO of this rank. `blob_out` gives: kvf_release(bytes). */
enum kvf_status publish_encode(struct kvf *kvf, struct kvf_pool *const *pools,
                               struct publish_blob *blob_out);

/* What a peer told, after decoding. Borrows from the gathered bytes. */
struct publish_peer {
    uint64_t epoch;
    uint32_t pid;
    uint32_t requests_max;     /* live requests of it */
    uint32_t blocks_max;       /* in all their lists */
    struct geo_record *record; /* gives: geo_record_close() */
    const uint8_t *address;
    uint32_t address_bytes;
    const uint8_t *windows; /* u32 pool count, then {u32 length, key} */
    uint32_t windows_bytes;
};

/* Errors are this peer's: it is refused. E_NOMEM is ours. */
enum kvf_status publish_decode(struct kvf *kvf, uint32_t world_rank, const uint8_t *bytes,
                               size_t len_bytes, struct publish_peer *peer_out,
                               struct geo_text *text_out);

/* publish_peers.c: whom this rank meets, and verdicts; kvf->peers without connections. */
enum kvf_status publish_peers(struct kvf *kvf, const struct world_gathered *hellos,
                              struct geo_text *text_out);

/* Endpoints of all peers. */
enum kvf_status publish_connect(struct kvf *kvf, const struct world_gathered *hellos,
                                struct geo_text *text_out);

/* A writer opens its readers' pools; then the rung of each peer is known. */
enum kvf_status publish_remotes(struct kvf *kvf, const struct world_gathered *hellos,
                                struct geo_text *text_out);

#endif /* KVF_PUBLISH_H */
