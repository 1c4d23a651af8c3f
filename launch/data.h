/*
 * data.h - finds the files that come with the program: models/ and topologies/, beside the program
 * in the build tree, or in the data directory of an installed tree, wherever that was moved.
 */
#ifndef LAUNCH_DATA_H
#define LAUNCH_DATA_H

#include <stdbool.h>

#define DATA_PATH_BYTES 1024
#define DATA_NAME_BYTES 64

/* True for a name with '/' in it or ending in ".yaml": a file, not a name of ours. */
bool data_is_path(const char *name);

/*
 * Path of FOLDER/NAME.yaml. False: path_out (DATA_PATH_BYTES) has the folder that was searched, and
 * near_out (DATA_NAME_BYTES) the nearest name there or "".
 */
bool data_find(const char *folder, const char *name, char *path_out, char *near_out);

#endif /* LAUNCH_DATA_H */
