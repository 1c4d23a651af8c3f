/*
 * admission.h - the requests of a rank as the engine's threads see them: which ids are live or
 * remembered, how much room is left, and the copies of their block lists. Behind one lock, so that
 * E_EXISTS and BUSY are answered in the call itself.
 *
 * A request is taken by the call that opens it, belongs to the reactor's machines until its last
 * event, and is then remembered by its id alone.
 */
#ifndef KVF_ADMISSION_H
#define KVF_ADMISSION_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

#include "geometry.h"
#include "heap.h"
#include "list.h"

#define ADMISSION_WINDOWS_MAX KVF_WINDOWS_MAX

struct admission_params {
    const struct kvf_heap *heap;     /* borrows */
    const struct geo_record *record; /* borrows: this rank's */
    uint32_t requests_max;
    uint32_t blocks_max;  /* of all live requests together */
    uint32_t message_max; /* blocks of one received request: what one message may name */
    uint32_t ended_max;   /* ended requests that are remembered */
    uint64_t ended_ttl_ns;
    uint32_t aux_bytes;  /* of one request */
    uint64_t tokens_max; /* prompt tokens of capped requests at once; 0 = no cap */
};

/* One live request. Fields are constant from admission_take() on, unless marked. */
struct admission_request {
    uint64_t rid;
    struct list link; /* unused ones */
    bool synchronous;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    struct kvf_end end;           /* the other side */
    struct kvf_block_list *lists; /* [groups of the record]; its own storage */
    uint32_t *slots; /* of all lists; store run; NULL once the machine has copied them */
    uint32_t blocks;
    void *aux;          /* send: the copy, or NULL; receive: the engine's buffers, or NULL */
    void *aux_storage;  /* [aux_bytes] */
    uint64_t opened_ns; /* real */
    bool capped;
    bool retained; /* lock: it has ended badly, its blocks are still lent */

    /* Send: the windows so far. Lock. */
    bool closed; /* `last` was given */
    uint32_t window_count;
    struct admission_window {
        uint32_t token_first, token_end, layer_first, layer_end;
    } windows[ADMISSION_WINDOWS_MAX];
};

/* The memory of an ended one. */
struct admission_ended {
    uint64_t rid;
    uint64_t ended_ns; /* real; 0 = place unused */
};

struct admission {
    pthread_mutex_t lock;
    struct admission_params params;
    struct admission_request *requests; /* [requests_max] */
    struct kvf_block_list *lists;       /* storage of all requests' lists */
    uint8_t *aux;                       /* storage of all requests' aux */
    struct list unused;
    struct rid_map *live;
    struct store *store;
    struct admission_ended *ended; /* [ended_max], a ring */
    uint32_t ended_first, ended_count;
    struct rid_map *ended_map;
    uint64_t *bitmap; /* of plan_check_lists() */
    uint64_t live_blocks;
    uint64_t retained_blocks;
    uint64_t capped_tokens;
};

/* What a call asks for. */
struct admission_ask {
    uint64_t rid;
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    struct kvf_end end;
    uint32_t list_count;
    const struct kvf_block_list *lists; /* copies */
    const void *aux_copy;               /* copies, or NULL */
    void *aux;                          /* kept as it is, when there is no copy */
    bool synchronous;
    bool unique;     /* no slot may be named twice: a reader's lists */
    uint64_t now_ns; /* real */
    bool capped;     /* counts against tokens_max; alone it is always admitted */
};

/* Zeroed is fine for fini. Errors: E_NOMEM. Gives: admission_fini(). */
enum kvf_status admission_init(struct admission *admission, const struct admission_params *params);
void admission_fini(struct admission *admission);

/*
 * Checks the lists and takes the request. Errors: E_REQ_*, E_EXISTS, BUSY, E_TOO_LARGE, E_INVAL.
 * Any thread. `request_out` lives until admission_end().
 */
enum kvf_status admission_take(struct admission *admission, const struct admission_ask *ask,
                               struct admission_request **request_out, struct geo_text *text_out);

/* The request is over on this rank: gives its room back, remembers the id. Any thread. */
void admission_end(struct admission *admission, uint64_t rid, uint64_t now_ns);

/*
 * The machine has its own copy of the lists: their run `slots` is given back, the blocks still
 * count.
 * So runs are held for a moment only, and room that is there is not lost to gaps between long-lived
 * ones. The request may have ended already.
 */
void admission_copied(struct admission *admission, struct admission_request *request, uint64_t rid,
                      uint32_t *slots);

/* As if it had never been taken: the reactor's queue was full. */
void admission_undo(struct admission *admission, struct admission_request *request);

/* It has ended badly: its blocks count as retained until admission_end(). Any thread. */
void admission_retain(struct admission *admission, uint64_t rid);
uint64_t admission_retained(struct admission *admission);

/*
 * It is not live here and never will be: remembered as ended, so that opening it gives E_EXISTS.
 * False: it is live. Any thread.
 */
bool admission_absent(struct admission *admission, uint64_t rid, uint64_t now_ns);

enum admission_known {
    ADMISSION_UNKNOWN,
    ADMISSION_LIVE,
    ADMISSION_ENDED,
};

/* Any thread. */
enum admission_known admission_find(struct admission *admission, uint64_t rid, uint64_t now_ns);

/* Live and opened with `synchronous`. */
bool admission_is_synchronous(struct admission *admission, uint64_t rid);

/*
 * Notes a window of a live send request and resolves its ends (no 0 remains). `layers` is the
 * model's count; without `pipelined` the only window is the whole request.
 * Errors: E_NOTFOUND, E_STATE (after `last`), E_REQ_PIECE, E_TOO_LARGE (too many windows).
 */
enum kvf_status admission_window(struct admission *admission, uint64_t rid,
                                 struct kvf_window *window, uint32_t layers, bool pipelined);

/* Takes back what admission_window() noted and resolved: the reactor's queue was full. */
void admission_window_undo(struct admission *admission, uint64_t rid,
                           const struct kvf_window *window);

uint32_t admission_live(struct admission *admission);

#endif /* KVF_ADMISSION_H */
