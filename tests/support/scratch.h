/*
 * scratch.h - a file of given text in a temporary folder, for tests of readers.
 */
#ifndef SUPPORT_SCRATCH_H
#define SUPPORT_SCRATCH_H

#define SCRATCH_PATH_BYTES 128

/* Writes the text to a new file whose name ends in `suffix`; ends the program when that fails. */
void scratch_write(const char *suffix, const char *text, char *path_out);

void scratch_remove(const char *path);

#endif /* SUPPORT_SCRATCH_H */
