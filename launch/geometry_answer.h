/*
 * geometry_answer.h - what a geometry dump means: who asks whom, who sends what, and every verdict,
 * as JSON with stable keys (docs/geometry.md, section 15). `kvferry plan --geometry FILE --json`
 * prints it.
 */
#ifndef KVF_LAUNCH_GEOMETRY_ANSWER_H
#define KVF_LAUNCH_GEOMETRY_ANSWER_H

#include <jansson.h>
#include <stdint.h>

#include "geometry_json.h"

/* A writer and a reader of a dump, and the arrays that the stripes of a piece are made in. */
struct geometry_writer {
    struct plan_template *template;
    struct plan_request request;
    struct plan_addresses addresses; /* of the records' pools */
    struct plan_scratch scratch;
};

/* Runs the checks of all ranks by themselves, then those of `receiver` and all ranks it asks. */
enum kvf_status geometry_dump_check(const struct geometry_dump *dump, uint32_t receiver,
                                    struct geo_text *text_out);

/*
 * Pairs rank `sender` with rank `receiver` and checks the block lists of both. Borrows the dump.
 * geometry_writer_fini() frees what `writer_out` holds. E_NOTFOUND for a rank that the dump does
 * not have, E_INVAL for one that is not asked, E_NOMEM, and the refusals of geo_check_peer() and
 * plan_check_lists().
 */
enum kvf_status geometry_writer_init(const struct geometry_dump *dump, uint32_t receiver,
                                     uint32_t sender, struct geometry_writer *writer_out,
                                     struct geo_text *text_out);
void geometry_writer_fini(struct geometry_writer *writer);

/* Checks a piece and makes its stripes in the writer's arrays, until the next call. */
enum kvf_status geometry_writer_fill(struct geometry_writer *writer, const struct plan_piece *piece,
                                     struct plan_filled *filled_out, struct geo_text *text_out);

/*
 * The answer for one receiver. `json_out` gives: json_decref(). Any refusal is a status and a text.
 */
enum kvf_status geometry_answer(const struct geometry_dump *dump, uint32_t receiver,
                                json_t **json_out, struct geo_text *text_out);

#endif /* KVF_LAUNCH_GEOMETRY_ANSWER_H */
