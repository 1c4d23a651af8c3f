/* geometry_json_request.c - the request of a geometry dump. See geometry_json.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry_json_internal.h"
#include "options.h"

/* ---- block lists ---------------------------------------------------------------------------- */

static void read_list(struct reading *reading, const json_t *json, struct kvf_block_list *list)
{
    const json_t *array;
    uint32_t count = reading_array(reading, json, "slots", UINT32_MAX, &array);
    uint32_t *slots = reading_take(reading, count, sizeof(*slots));

    list->first = reading_u32(reading, json, "first");
    list->slots = slots;
    list->count = slots == NULL ? 0 : count;
    for (uint32_t i = 0; i < list->count; i++) {
        const json_t *slot = json_array_get(array, i);

        /* A hole: no slot has this number, so that the check of the request names it. */
        slots[i] = json_is_integer(slot) && json_integer_value(slot) < 0
                       ? PLAN_NO_SLOT
                       : (uint32_t)reading_number(reading, slot, "slot", UINT32_MAX);
    }
}

static void read_state_slot(struct reading *reading, const json_t *value,
                            struct kvf_block_list *list)
{
    uint32_t *slot;

    if (value == NULL || json_is_null(value)) {
        return;
    }
    slot = reading_take(reading, 1, sizeof(*slot));
    if (slot != NULL) {
        *slot = json_is_integer(value) && json_integer_value(value) < 0
                    ? PLAN_NO_SLOT
                    : (uint32_t)reading_number(reading, value, "state slot", UINT32_MAX);
        *list = (struct kvf_block_list){.count = 1, .slots = slot};
    }
}

/* The lists of all ranks of one side, from "rank:group" keys. */
static struct geometry_lists *read_lists(struct reading *reading, const json_t *request,
                                         struct geo_record *const *records, uint32_t count,
                                         bool is_src)
{
    const json_t *paged = json_object_get(request, is_src ? "src" : "dst");
    const json_t *state = json_object_get(request, is_src ? "src_state" : "dst_state");
    struct geometry_lists *all = reading_take(reading, count, sizeof(*all));

    for (uint32_t r = 0; all != NULL && r < count; r++) {
        uint32_t groups = records[r]->layout.group_count;
        struct kvf_block_list *lists = reading_take(reading, groups, sizeof(*lists));

        all[r].lists = lists;
        all[r].count = lists == NULL ? 0 : groups;
        for (uint32_t g = 0; g < all[r].count; g++) {
            char key[32];
            const json_t *one;

            snprintf(key, sizeof(key), "%u:%u", records[r]->rank, g);
            one = json_object_get(paged, key);
            if (records[r]->layout.groups[g].group_class == KVF_GROUP_STATE) {
                read_state_slot(reading, json_object_get(state, key), &lists[g]);
            } else if (one != NULL) {
                read_list(reading, one, &lists[g]);
            }
        }
    }
    return all;
}

static int piece_order(const void *a, const void *b)
{
    const struct plan_piece *x = a, *y = b;

    return (x->token_first > y->token_first) - (x->token_first < y->token_first);
}

/* Pieces may come in any order, but a token that two have would be written twice. */
static void check_overlap(struct reading *reading, const struct geometry_dump *dump)
{
    struct plan_piece *sorted = reading_take(reading, dump->piece_count, sizeof(*sorted));

    if (sorted == NULL || dump->piece_count == 0) {
        return;
    }
    memcpy(sorted, dump->pieces, dump->piece_count * sizeof(*sorted));
    qsort(sorted, dump->piece_count, sizeof(*sorted), piece_order);
    for (uint32_t p = 1; p < dump->piece_count; p++) {
        if (sorted[p].token_first < sorted[p - 1].token_end) {
            reading_wrong(reading, "the pieces [%u, %u] and [%u, %u] overlap",
                          sorted[p - 1].token_first, sorted[p - 1].token_end, sorted[p].token_first,
                          sorted[p].token_end);
        }
    }
}

static void read_pieces(struct reading *reading, const json_t *request, struct geometry_dump *dump)
{
    const json_t *array = json_object_get(request, "pieces");
    uint32_t count = 1;

    if (array != NULL && !json_is_null(array)) {
        count = reading_array(reading, request, "pieces", 1u << 20, &array);
    } else {
        array = NULL;
    }
    dump->pieces = reading_take(reading, count, sizeof(*dump->pieces));
    dump->piece_count = dump->pieces == NULL ? 0 : count;
    for (uint32_t p = 0; p < dump->piece_count; p++) {
        struct plan_piece *piece = &dump->pieces[p];

        *piece = plan_whole(dump->prompt_tokens);
        if (array != NULL) {
            const json_t *one = json_array_get(array, p);

            if (json_array_size(one) != 2) {
                reading_wrong(reading, "piece %u is not [first token, end]", p);
            }
            piece->token_first = (uint32_t)reading_number(reading, json_array_get(one, 0),
                                                          "piece start", UINT32_MAX);
            piece->token_end =
                (uint32_t)reading_number(reading, json_array_get(one, 1), "piece end", UINT32_MAX);
        }
        piece->last = p + 1 == count;
    }
    check_overlap(reading, dump);
}

/* Most keys may be absent: one that is misspelt must not pass for that. */
static void check_keys(struct reading *reading, const json_t *request)
{
    static const char *const known[] = {"prompt_len", "cached",    "sender_dp", "dp_known",
                                        "receiver",   "pieces",    "src",       "dst",
                                        "src_state",  "dst_state", "aux_src",   "aux_dst"};
    enum { COUNT = sizeof(known) / sizeof(known[0]) };
    void *at;

    for (at = json_object_iter((json_t *)request); at != NULL;
         at = json_object_iter_next((json_t *)request, at)) {
        const char *key = json_object_iter_key(at);
        uint32_t i = 0;

        while (i < COUNT && strcmp(known[i], key) != 0) {
            i++;
        }
        if (i == COUNT) {
            const char *near = options_nearest(key, known, COUNT);

            reading_wrong(reading, "unknown key \"%.40s\"%s%s", key,
                          near == NULL ? "" : "; the nearest is ", near == NULL ? "" : near);
        }
    }
}

void reading_request(struct reading *reading, const json_t *json, struct geometry_dump *dump)
{
    const json_t *request = json_object_get(json, "request");
    const json_t *known = json_object_get(request, "dp_known");

    reading->where = "request";
    reading->index = READING_WHOLE;
    if (!json_is_object(request)) {
        reading_wrong(reading, "missing, or no object");
        return;
    }
    check_keys(reading, request);
    dump->prompt_tokens = reading_u32(reading, request, "prompt_len");
    if (dump->prompt_tokens == 0) {
        reading_wrong(reading, "prompt_len is 0; want at least 1");
    }
    dump->cached_tokens = reading_u32_or(reading, request, "cached", 0);
    if (dump->cached_tokens > dump->prompt_tokens) {
        reading_wrong(reading, "cached is %u; want at most prompt_len, which is %u",
                      dump->cached_tokens, dump->prompt_tokens);
    }
    dump->sender_group = reading_u32_or(reading, request, "sender_dp", 0);
    if (known != NULL && !json_is_boolean(known)) {
        reading_wrong(reading, "dp_known is neither true nor false");
    }
    dump->group_known = known == NULL || json_is_true(known);
    dump->receiver = reading_u32_or(reading, request, "receiver", 0);
    dump->src_aux_slot = reading_u32_or(reading, request, "aux_src", PLAN_NO_SLOT);
    dump->dst_aux_slot = reading_u32_or(reading, request, "aux_dst", PLAN_NO_SLOT);
    read_pieces(reading, request, dump);
    dump->src = read_lists(reading, request, dump->senders, dump->sender_count, true);
    dump->dst = read_lists(reading, request, dump->receivers, dump->receiver_count, false);
}
