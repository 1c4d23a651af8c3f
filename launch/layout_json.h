/*
 * layout_json.h - what a geometry dump says of a rank's place and cache (docs/geometry.md, section
 * 15): the part of a record that the public headers know. `kvferry plan` and `kvferry run` write
 * their dumps with it.
 *
 * May include public headers and jansson.
 */
#ifndef LAUNCH_LAYOUT_JSON_H
#define LAUNCH_LAYOUT_JSON_H

#include <jansson.h>
#include <stdint.h>

#include <kvferry/kvf_layout.h>

/* A record's keys of place and layout; `pools`, `aux`, `bounce` and `wire_version` are the
 * caller's to add. Gives: json_decref(). */
json_t *layout_json_record(const char *instance, uint32_t rank, const struct kvf_place *place,
                           const struct kvf_layout *layout);

/*
 * One rank's block lists, one for each group of its layout, under the keys "rank:group": a paged
 * group's into `paged`, a state group's slot into `state`.
 */
void layout_json_lists(json_t *paged, json_t *state, uint32_t rank, const struct kvf_layout *layout,
                       const struct kvf_block_list *lists);

/* Name of a buffer role, "?" beyond the last. */
const char *layout_json_role(uint32_t role);

#endif /* LAUNCH_LAYOUT_JSON_H */
