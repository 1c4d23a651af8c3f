/*
 * geometry_json_internal.h - what geometry_json.c and geometry_json_request.c share: values of a
 * dump under reading, and what was wrong with them first.
 */
#ifndef KVF_LAUNCH_GEOMETRY_JSON_INTERNAL_H
#define KVF_LAUNCH_GEOMETRY_JSON_INTERNAL_H

#include <stdint.h>

#include <jansson.h>

#include "geometry_json.h"

/* Memory that lives as long as the dump. */
struct block {
    struct block *next;
};

#define READING_WHOLE UINT32_MAX

/* What is wrong first sticks; values read after that are 0. */
struct reading {
    enum kvf_status status;
    struct geo_text *text_out;
    struct block *blocks;
    const char *where; /* "senders" or "receivers" or "request" */
    uint32_t index;    /* record under reading; READING_WHOLE = no list */
};

void reading_wrong(struct reading *reading, const char *format, ...) KVF_PRINTF(2, 3);

/* Zeroed; NULL after E_NOMEM. Freed with the dump. */
void *reading_take(struct reading *reading, size_t count, size_t size);

/* A whole number from 0 to `max`; 0 after an error. */
uint64_t reading_number(struct reading *reading, const json_t *value, const char *key,
                        uint64_t max);
uint32_t reading_u32(struct reading *reading, const json_t *object, const char *key);

/* `otherwise` where the key is absent or null. */
uint32_t reading_u32_or(struct reading *reading, const json_t *object, const char *key,
                        uint32_t otherwise);

/* An array's length, bounded; 0 after an error. */
uint32_t reading_array(struct reading *reading, const json_t *object, const char *key, uint32_t max,
                       const json_t **array_out);

/* The part "request", after the records. */
void reading_request(struct reading *reading, const json_t *json, struct geometry_dump *dump);

#endif /* KVF_LAUNCH_GEOMETRY_JSON_INTERNAL_H */
