/*
 * geometry_json.h - geometry dumps: the records of all ranks and the block lists of one request as
 * JSON, read and written (docs/geometry.md, section 15). `kvferry plan --geometry` reads one,
 * `kvferry run --dump-geometry` writes one.
 */
#ifndef KVF_LAUNCH_GEOMETRY_JSON_H
#define KVF_LAUNCH_GEOMETRY_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "geometry.h"
#include "plan.h"

/* Block lists of one rank, one for each of its groups. */
struct geometry_lists {
    struct kvf_block_list *lists;
    uint32_t count;
};

/* A dump. Owns all it points to. */
struct geometry_dump {
    struct geo_record **senders;
    struct geo_record **receivers;
    uint32_t sender_count;
    uint32_t receiver_count;
    struct geometry_lists *src; /* [sender_count] */
    struct geometry_lists *dst; /* [receiver_count] */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t sender_group; /* dp group that ran the prefill */
    bool group_known;      /* the receiver was told */
    uint32_t receiver;     /* rank that the answer is for */
    uint32_t src_aux_slot; /* PLAN_NO_SLOT = none */
    uint32_t dst_aux_slot;
    uint32_t piece_count;
    struct plan_piece *pieces;
    void *memory; /* private */
};

/*
 * Reads a dump. `text_out` says which key is wrong. `dump_out` gives: geometry_dump_close().
 * E_PARSE, E_TOO_LARGE, E_NOMEM. No check of the geometry itself has run.
 */
enum kvf_status geometry_dump_read(const json_t *json, struct geometry_dump **dump_out,
                                   struct geo_text *text_out);

/* The same from a file; also E_SYSTEM. */
enum kvf_status geometry_dump_load(const char *path, struct geometry_dump **dump_out,
                                   struct geo_text *text_out);

/* NULL is fine. */
void geometry_dump_close(struct geometry_dump *dump);

/* The dump as JSON; gives: json_decref(). NULL when out of memory. */
json_t *geometry_dump_write(const struct geometry_dump *dump);

/* One record as JSON; gives: json_decref(). */
json_t *geometry_record_write(const struct geo_record *record);

/* The record of rank `rank`, or NULL. */
const struct geo_record *geometry_dump_sender(const struct geometry_dump *dump, uint32_t rank,
                                              uint32_t *index_out);
const struct geo_record *geometry_dump_receiver(const struct geometry_dump *dump, uint32_t rank,
                                                uint32_t *index_out);

#endif /* KVF_LAUNCH_GEOMETRY_JSON_H */
