/* columns.c - see columns.h. */
#include "columns.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void columns_init(struct columns *columns, const char *const *heads, unsigned count)
{
    *columns = (struct columns){.count = count, .filled = count};
    for (unsigned c = 0; c < count; c++) {
        columns_add(columns, "%s", heads[c]);
    }
}

void columns_fini(struct columns *columns)
{
    free(columns->row);
    *columns = (struct columns){0};
}

static bool columns_row_begin(struct columns *columns)
{
    if (columns->rows == columns->rows_max) {
        size_t more = columns->rows_max == 0 ? 16 : 2 * columns->rows_max;
        struct columns_row *row = realloc(columns->row, more * sizeof(*row));

        if (row == NULL) {
            columns->failed = true;
            return false;
        }
        columns->row = row;
        columns->rows_max = more;
    }
    memset(&columns->row[columns->rows], 0, sizeof(columns->row[0]));
    columns->rows++;
    columns->filled = 0;
    return true;
}

void columns_add(struct columns *columns, const char *format, ...)
{
    va_list args;

    if (columns->failed || (columns->filled == columns->count && !columns_row_begin(columns))) {
        return;
    }
    va_start(args, format);
    vsnprintf(columns->row[columns->rows - 1].cells[columns->filled++], COLUMNS_CELL_BYTES, format,
              args);
    va_end(args);
}

static bool columns_is_number(const char *text)
{
    return *text != '\0' && text[strspn(text, "0123456789.")] == '\0';
}

/* A column of numbers under its head. */
static bool columns_is_right(const struct columns *columns, unsigned column)
{
    for (size_t r = 1; r < columns->rows; r++) {
        const char *cell = columns->row[r].cells[column];

        if (*cell != '\0' && strcmp(cell, "-") != 0 && !columns_is_number(cell)) {
            return false;
        }
    }
    return columns->rows > 1;
}

bool columns_print(const struct columns *columns, FILE *file)
{
    int width[COLUMNS_MAX] = {0};
    bool right[COLUMNS_MAX];

    if (columns->failed) {
        return false;
    }
    for (unsigned c = 0; c < columns->count; c++) {
        right[c] = columns_is_right(columns, c);
        for (size_t r = 0; r < columns->rows; r++) {
            int len = (int)strlen(columns->row[r].cells[c]);

            width[c] = len > width[c] ? len : width[c];
        }
    }
    for (size_t r = 0; r < columns->rows; r++) {
        for (unsigned c = 0; c < columns->count; c++) {
            const char *cell = columns->row[r].cells[c];
            bool last = c + 1 == columns->count;

            fprintf(file, "%s%*s", c == 0 ? "" : "  ", right[c] ? width[c] : (last ? 0 : -width[c]),
                    cell);
        }
        fputc('\n', file);
    }
    return true;
}
