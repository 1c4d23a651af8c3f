/*
 * json_file.h - figures that a command writes to a file: looked at before the work, written after.
 *
 * May include jansson.
 */
#ifndef LAUNCH_JSON_FILE_H
#define LAUNCH_JSON_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

/*
 * Can the file that `option` names be written? NULL as a path is fine. Leaves the file as it was;
 * false: text_out says why not. Only rank 0 writes, so only rank 0 looks: two that make and take
 * away the same file would see each other's.
 */
bool json_file_fits(const char *option, const char *path, char *text_out, size_t text_bytes);

/*
 * Writes the object, indented by `indent`. False: it has been said. NULL as an object: no memory.
 */
bool json_file_write(const char *option, const char *path, const json_t *object, int indent);

#endif /* LAUNCH_JSON_FILE_H */
