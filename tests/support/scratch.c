/* scratch.c - see scratch.h. */
#include "scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void scratch_write(const char *suffix, const char *text, char *path_out)
{
    size_t len = strlen(text);
    int file;

    snprintf(path_out, SCRATCH_PATH_BYTES, "/tmp/kvferry-test-XXXXXX%s", suffix);
    file = mkstemps(path_out, (int)strlen(suffix));
    if (file < 0 || write(file, text, len) != (ssize_t)len || close(file) != 0) {
        perror(path_out);
        exit(1);
    }
}

void scratch_remove(const char *path)
{
    unlink(path);
}
