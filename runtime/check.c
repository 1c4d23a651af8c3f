/* check.c - what a broken assertion does: one line, then abort. */
#include "check.h"

#include <stdlib.h>

#include "log.h"

void kvf_check_failed(const char *kind, const char *condition, const char *file, int line)
{
    log_error(NULL, "", "%s: %s (%s:%d)", kind, condition, file, line);
    abort();
}
