/*
 * columns.h - a text table whose columns are as wide as their widest cell. Numbers stand right, all
 * else left.
 *
 * May include C headers alone.
 */
#ifndef LAUNCH_COLUMNS_H
#define LAUNCH_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "say.h"

#define COLUMNS_MAX 12
#define COLUMNS_CELL_BYTES 96

struct columns_row {
    char cells[COLUMNS_MAX][COLUMNS_CELL_BYTES];
};

struct columns {
    unsigned count;  /* of columns, at most COLUMNS_MAX */
    unsigned filled; /* cells of the last row */
    size_t rows, rows_max;
    struct columns_row *row; /* [rows_max] */
    bool failed;             /* out of memory: nothing more is taken */
};

/* `heads` are the cells of the first row, `count` of them. columns_fini() frees. */
void columns_init(struct columns *columns, const char *const *heads, unsigned count);
void columns_fini(struct columns *columns);

/* The next cell, row by row; longer texts are cut. */
void columns_add(struct columns *columns, const char *format, ...) SAY_PRINTF(2, 3);

/* False when memory ran out on the way: then nothing is printed. */
bool columns_print(const struct columns *columns, FILE *file);

#endif /* LAUNCH_COLUMNS_H */
