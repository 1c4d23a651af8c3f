/*
 * say.h - messages of the program and its exit codes.
 *
 * May not include anything but C headers.
 */
#ifndef LAUNCH_SAY_H
#define LAUNCH_SAY_H

#include <stddef.h>

/* Exit codes, docs/run.md. */
enum exit_code {
    EXIT_RIGHT = 0,
    EXIT_WRONG = 1,   /* bytes wrong, or requests failed */
    EXIT_USAGE = 2,   /* usage, settings, world, machine */
    EXIT_REFUSED = 3, /* refused geometry */
    EXIT_DAMAGED = 4, /* a rank or a group was lost */
};

#if defined(__GNUC__)
#define SAY_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define SAY_PRINTF(format_at, args_at)
#endif

/* "kvferry: TEXT" and an end of line on standard error, in one write. */
void say(const char *format, ...) SAY_PRINTF(1, 2);

/* This process's rank as its launcher says, -1 when no launcher started it. Needs no MPI. */
int launched_rank(void);

#endif /* LAUNCH_SAY_H */
