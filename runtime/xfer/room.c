/*
 * room.c - see room.h.
 *
 * May not include anything but base.
 */
#include "xfer/room.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define ROOM_THREADS_MAX 8
#define ROOM_BYTES_PER_THREAD (32ull << 20)
#define ROOM_PATH_BYTES 1024
#define ROOM_LINES_MAX 65536 /* of any file that is read */
#define ROOM_LINE_BYTES 1024
/* Share of the machine's memory that stays free for everything else. */
#define ROOM_SPARE_SHIFT 7

static FILE *room_open(const char *root, const char *path)
{
    char full[ROOM_PATH_BYTES];
    int len = snprintf(full, sizeof(full), "%s/%s", root, path);

    return len > 0 && (size_t)len < sizeof(full) ? fopen(full, "re") : NULL;
}

/* First number of a one-line file; false when it is not there or is a word ("max"). */
static bool room_number(const char *root, const char *path, uint64_t *value_out)
{
    FILE *file = room_open(root, path);
    unsigned long long value = 0;
    bool found;

    if (file == NULL) {
        return false;
    }
    found = fscanf(file, "%llu", &value) == 1;
    fclose(file);
    if (found) {
        *value_out = value;
    }
    return found;
}

/* The number behind `key` in a file of "key number" lines. */
static bool room_keyed(const char *root, const char *path, const char *key, uint64_t *value_out)
{
    FILE *file = room_open(root, path);
    char line[ROOM_LINE_BYTES];
    size_t len = strlen(key);
    bool found = false;

    if (file == NULL) {
        return false;
    }
    for (int i = 0; i < ROOM_LINES_MAX && !found && fgets(line, sizeof(line), file) != NULL; ++i) {
        unsigned long long value;
        if (strncmp(line, key, len) == 0 && sscanf(line + len, " %llu", &value) == 1) {
            *value_out = value;
            found = true;
        }
    }
    fclose(file);
    return found;
}

/* Sizes and resident bytes of all System V segments. */
static void room_segments(const char *root, uint64_t *size_out, uint64_t *untouched_out)
{
    FILE *file = room_open(root, "proc/sysvipc/shm");
    char line[ROOM_LINE_BYTES];

    *size_out = 0;
    *untouched_out = 0;
    if (file == NULL) {
        return;
    }
    for (int i = 0; i < ROOM_LINES_MAX && fgets(line, sizeof(line), file) != NULL; ++i) {
        unsigned long long size, resident, swapped;
        /* key shmid perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap */
        if (sscanf(line, "%*s %*s %*s %llu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %llu",
                   &size, &resident, &swapped) == 3) {
            *size_out += size;
            *untouched_out += size > resident + swapped ? size - resident - swapped : 0;
        }
    }
    fclose(file);
}

/* What one control group leaves. */
static uint64_t room_group_left(const char *root, const char *group, bool unified)
{
    char path[ROOM_PATH_BYTES];
    uint64_t limit, used, reclaimable = 0;

    snprintf(path, sizeof(path), "%.900s/%s", group,
             unified ? "memory.max" : "memory.limit_in_bytes");
    if (!room_number(root, path, &limit)) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%.900s/%s", group,
             unified ? "memory.current" : "memory.usage_in_bytes");
    if (!room_number(root, path, &used)) {
        return UINT64_MAX;
    }
    snprintf(path, sizeof(path), "%.900s/memory.stat", group);
    (void)room_keyed(root, path, unified ? "inactive_file " : "total_inactive_file ", &reclaimable);
    used -= used > reclaimable ? reclaimable : used;
    return limit > used ? limit - used : 0;
}

/* The least that this process's group or one above it leaves. */
static uint64_t room_groups_left(const char *root, const char *mount, const char *group,
                                 bool unified)
{
    char path[ROOM_PATH_BYTES];
    size_t stem = strlen(mount);
    uint64_t left = UINT64_MAX;

    snprintf(path, sizeof(path), "%s%.800s", mount, group);
    for (;;) {
        uint64_t here = room_group_left(root, path, unified);
        char *slash = strrchr(path, '/');
        left = here < left ? here : left;
        if (slash == NULL || slash < path + stem) {
            return left;
        }
        *slash = '\0';
    }
}

static uint64_t room_cgroup_left(const char *root)
{
    FILE *file = room_open(root, "proc/self/cgroup");
    char line[ROOM_LINE_BYTES];
    uint64_t left = UINT64_MAX;

    if (file == NULL) {
        return left;
    }
    for (int i = 0; i < ROOM_LINES_MAX && fgets(line, sizeof(line), file) != NULL; ++i) {
        uint64_t here = UINT64_MAX;
        char *names = strchr(line, ':');
        char *group = names == NULL ? NULL : strchr(names + 1, ':');
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (names[1] == '\0') {
            here = room_groups_left(root, "sys/fs/cgroup", group, true);
        } else if (strcmp(names + 1, "memory") == 0) {
            here = room_groups_left(root, "sys/fs/cgroup/memory", group, false);
        }
        left = here < left ? here : left;
    }
    fclose(file);
    return left;
}

void room_read(const char *root, struct room *room_out)
{
    uint64_t kib, pages, segments, group;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct statvfs files;
    struct rlimit limit;
    char path[ROOM_PATH_BYTES];

    *room_out = (struct room){.segment_max = UINT64_MAX,
                              .segments_left = UINT64_MAX,
                              .files_left = UINT64_MAX,
                              .memory_left = UINT64_MAX,
                              .memlock = UINT64_MAX};
    (void)room_number(root, "proc/sys/kernel/shmmax", &room_out->segment_max);
    room_segments(root, &segments, &room_out->untouched);
    if (room_number(root, "proc/sys/kernel/shmall", &pages) && pages < UINT64_MAX / page) {
        room_out->segments_left = pages * page > segments ? pages * page - segments : 0;
    }
    if (room_keyed(root, "proc/meminfo", "MemAvailable:", &kib)) {
        room_out->memory_left = kib << 10;
    }
    if (room_keyed(root, "proc/meminfo", "MemTotal:", &kib)) {
        room_out->memory_spare = (kib << 10) >> ROOM_SPARE_SHIFT;
    }
    group = room_cgroup_left(root);
    room_out->memory_left = group < room_out->memory_left ? group : room_out->memory_left;
    snprintf(path, sizeof(path), "%.900s/dev/shm", root);
    if (statvfs(path, &files) == 0) {
        room_out->files_left = (uint64_t)files.f_bavail * files.f_frsize;
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        room_out->memlock = limit.rlim_cur;
    }
}

static enum kvf_status room_refuse(enum kvf_status status, uint64_t needed, uint64_t found,
                                   const char *where, char *reason_out, size_t reason_bytes)
{
    snprintf(reason_out, reason_bytes, "%llu bytes (%.1f MiB) needed, %llu bytes (%.1f MiB) %s",
             (unsigned long long)needed, (double)needed / 1048576.0, (unsigned long long)found,
             (double)found / 1048576.0, where);
    return status;
}

enum kvf_status room_check(const struct room *room, enum room_kind kind, uint64_t needed,
                           uint64_t cap_left, char *reason_out, size_t reason_bytes)
{
    uint64_t taken, left;

    if (needed > cap_left) {
        return room_refuse(KVF_E_SHM_SPACE, needed, cap_left, "left by the setting", reason_out,
                           reason_bytes);
    }
    switch (kind) {
    case ROOM_SYSV:
        if (needed > room->segment_max) {
            return room_refuse(KVF_E_SHM_SPACE, needed, room->segment_max,
                               "is the largest shared memory segment (sysctl kernel.shmmax)",
                               reason_out, reason_bytes);
        }
        if (needed > room->segments_left) {
            return room_refuse(KVF_E_SHM_SPACE, needed, room->segments_left,
                               "of shared memory segments left (sysctl kernel.shmall)", reason_out,
                               reason_bytes);
        }
        break;
    case ROOM_POSIX:
        if (needed > room->files_left) {
            return room_refuse(KVF_E_SHM_SPACE, needed, room->files_left, "free in /dev/shm",
                               reason_out, reason_bytes);
        }
        break;
    }
    taken = room->untouched + room->memory_spare;
    left = room->memory_left > taken ? room->memory_left - taken : 0;
    if (room->memory_left != UINT64_MAX && needed > left) {
        return room_refuse(KVF_E_MEM_SPACE, needed, left,
                           "of memory left (MemAvailable and the control group's limit, less what "
                           "other shared memory was promised)",
                           reason_out, reason_bytes);
    }
    return KVF_OK;
}

struct room_slice {
    char *base;
    uint64_t len_bytes;
    int error; /* errno, 0 = done */
};

static void *room_touch_slice(void *argument)
{
    struct room_slice *slice = argument;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (madvise(slice->base, slice->len_bytes, MADV_POPULATE_WRITE) == 0) {
        return NULL;
    }
    if (errno != EINVAL) {
        slice->error = errno;
        return NULL;
    }
    for (uint64_t at = 0; at < slice->len_bytes; at += page) {
        volatile char *byte = slice->base + at;
        *byte = *byte;
    }
    return NULL;
}

enum kvf_status room_touch(void *base, uint64_t len_bytes)
{
    struct room_slice slices[ROOM_THREADS_MAX] = {{0}};
    pthread_t threads[ROOM_THREADS_MAX];
    bool started[ROOM_THREADS_MAX] = {false};
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t count = len_bytes / ROOM_BYTES_PER_THREAD + 1;
    uint64_t step;
    cpu_set_t cores;

    if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
        count = 1;
    } else if (count > (uint64_t)CPU_COUNT(&cores)) {
        count = (uint64_t)CPU_COUNT(&cores);
    }
    count = count > ROOM_THREADS_MAX ? ROOM_THREADS_MAX : count;
    step = (len_bytes / count + page - 1) / page * page;
    for (uint64_t i = 0; i < count; ++i) {
        uint64_t from = i * step < len_bytes ? i * step : len_bytes;
        uint64_t to = i + 1 == count || from + step > len_bytes ? len_bytes : from + step;
        slices[i] = (struct room_slice){.base = (char *)base + from, .len_bytes = to - from};
        started[i] =
            i + 1 < count && pthread_create(&threads[i], NULL, room_touch_slice, &slices[i]) == 0;
        if (!started[i]) {
            room_touch_slice(&slices[i]);
        }
    }
    enum kvf_status status = KVF_OK;
    for (uint64_t i = 0; i < count; ++i) {
        if (started[i]) {
            pthread_join(threads[i], NULL);
        }
        if (slices[i].error != 0) {
            status = KVF_E_SHM_SPACE;
        }
    }
    return status;
}
