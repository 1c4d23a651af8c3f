/* skip.c - see skip.h. */
#include "skip.h"

#include <stdio.h>
#include <stdlib.h>

enum { SKIP_EXIT_CODE = 77 };

void test_skip(const char *reason)
{
    printf("skipped: %s\n", reason);
    fflush(stdout);
    exit(SKIP_EXIT_CODE);
}
