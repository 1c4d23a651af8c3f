/*
 * options.h - command lines by table: one row an option; the parser, the defaults and --help are
 * all made from the rows, so they cannot differ.
 *
 * Pure: no I/O except options_help(), which writes to a stream. May include public headers.
 */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum option_kind {
    OPTION_FLAG,   /* bool: present or not */
    OPTION_WHOLE,  /* uint64_t: decimal digits, low to high */
    OPTION_NUMBER, /* double: 0 or more, at most high */
    OPTION_TEXT,   /* const char *: borrows from argv or from the table */
    OPTION_CHOICE, /* const char *: one of `choices` */
};

struct option_row {
    const char *name; /* without "--" */
    enum option_kind kind;
    size_t offset;       /* of the value in the caller's struct */
    const char *initial; /* default as text; NULL = none (TEXT), off (FLAG) */
    uint64_t low, high;  /* WHOLE; NUMBER uses high */
    const char *choices; /* CHOICE: "a|b|c" */
    const char *value;   /* what stands for the value in --help, NULL for flags and choices */
    const char *help;    /* one line */
};

#define OPTIONS_TEXT_BYTES 512

/*
 * Sets every value to its default, then reads argv[0..argc). "--name value" and "--name=value" are
 * alike. False: text_out (OPTIONS_TEXT_BYTES long) names the option, the value, and what was
 * wanted.
 * `rows` ends with a row without name.
 */
bool options_parse(const struct option_row *rows, int argc, char **argv, void *values_out,
                   char *text_out);

/* One option a paragraph, with its default. */
void options_help(const struct option_row *rows, FILE *file);

/* A whole number in decimal digits and nothing else. */
bool options_whole(const char *text, uint64_t low, uint64_t high, uint64_t *value_out);

/* A decimal number of 0 or more: digits, at most one '.', nothing else. */
bool options_number(const char *text, double high, double *value_out);

/*
 * Nearest of `count` names to `name`, or NULL when none is near (more than a third of it, or more
 * than three letters, would have to change).
 */
const char *options_nearest(const char *name, const char *const *names, size_t count);

#endif /* LAUNCH_OPTIONS_H */
