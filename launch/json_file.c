/* json_file.c - see json_file.h. */
#include "json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "say.h"

bool json_file_fits(const char *option, const char *path, char *text_out, size_t text_bytes)
{
    int fd;

    if (path == NULL || launched_rank() > 0) {
        return true;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0) {
        unlink(path); /* until there is something to write */
    } else if (errno == EEXIST) {
        fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 && errno == ENXIO) {
            return true; /* a pipe whose reader is yet to come */
        }
    }
    if (fd < 0) {
        snprintf(text_out, text_bytes, "%s %.300s: %s", option, path, strerror(errno));
        return false;
    }
    close(fd);
    return true;
}

bool json_file_write(const char *option, const char *path, const json_t *object, int indent)
{
    errno = 0;
    if (object == NULL) {
        say("%s %s: no memory", option, path);
        return false;
    }
    if (json_dump_file(object, path, JSON_INDENT((size_t)indent)) != 0) {
        say("%s %s: %s", option, path, errno != 0 ? strerror(errno) : "cannot be written");
        return false;
    }
    return true;
}
