/* data.c - see data.h. */
#include "data.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

/* From the folder of the program to the data folder of an installed tree. */
#ifndef KVFERRY_DATA_FROM_BIN
#define KVFERRY_DATA_FROM_BIN "../share/kvferry"
#endif

#define DATA_FILES_MAX 256

bool data_is_path(const char *name)
{
    size_t len = strlen(name);

    return strchr(name, '/') != NULL || (len > 5 && strcmp(name + len - 5, ".yaml") == 0);
}

/* Folder of the running program, without a '/' at the end; "." when it cannot be told. */
static void data_program_folder(char *path_out)
{
    ssize_t len = readlink("/proc/self/exe", path_out, DATA_PATH_BYTES / 2);
    char *slash;

    if (len <= 0 || len >= DATA_PATH_BYTES / 2) {
        snprintf(path_out, DATA_PATH_BYTES, ".");
        return;
    }
    path_out[len] = '\0';
    slash = strrchr(path_out, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
}

/* The first of our two places that has the folder. */
static void data_folder(const char *folder, char *path_out)
{
    static const char *const places[] = {"", "/" KVFERRY_DATA_FROM_BIN};
    char program[DATA_PATH_BYTES];

    data_program_folder(program);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path_out, DATA_PATH_BYTES, "%.512s%s/%.60s", program, places[i], folder);
        if (access(path_out, R_OK) == 0) {
            return;
        }
    }
}

static void data_nearest(const char *folder, const char *name, char *near_out)
{
    char(*names)[DATA_NAME_BYTES] = calloc(DATA_FILES_MAX, DATA_NAME_BYTES);
    const char *list[DATA_FILES_MAX];
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    const char *near;
    size_t count = 0;

    near_out[0] = '\0';
    while (dir != NULL && names != NULL && count < DATA_FILES_MAX &&
           (entry = readdir(dir)) != NULL) {
        size_t len = strlen(entry->d_name);

        if (len > 5 && len < DATA_NAME_BYTES + 5 && strcmp(entry->d_name + len - 5, ".yaml") == 0) {
            snprintf(names[count], DATA_NAME_BYTES, "%.*s", (int)len - 5, entry->d_name);
            list[count] = names[count];
            count++;
        }
    }
    near = options_nearest(name, list, count);
    if (near != NULL) {
        snprintf(near_out, DATA_NAME_BYTES, "%s", near);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    free(names);
}

bool data_find(const char *folder, const char *name, char *path_out, char *near_out)
{
    char place[DATA_PATH_BYTES];

    data_folder(folder, place);
    snprintf(path_out, DATA_PATH_BYTES, "%.900s/%.60s.yaml", place, name);
    if (access(path_out, R_OK) == 0) {
        return true;
    }
    data_nearest(place, name, near_out);
    snprintf(path_out, DATA_PATH_BYTES, "%s", place);
    return false;
}
