/* say.c - see say.h. */
#include "say.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void say(const char *format, ...)
{
    char line[1024];
    va_list args;
    int len = snprintf(line, sizeof(line), "kvferry: ");
    int more;

    va_start(args, format);
    more = vsnprintf(line + len, sizeof(line) - (size_t)len - 1, format, args);
    va_end(args);
    len += more < 0 ? 0 : more;
    if (len > (int)sizeof(line) - 2) {
        len = (int)sizeof(line) - 2;
    }
    line[len++] = '\n';
    fflush(stdout);
    if (write(STDERR_FILENO, line, (size_t)len) < 0) {
        return; /* nobody listens */
    }
}

int launched_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);

        if (value != NULL) {
            return atoi(value);
        }
    }
    return -1;
}
