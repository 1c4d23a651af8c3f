/*
 * room.h - how much memory the machine has left, and taking it without a SIGBUS.
 *
 * Reads /proc and /sys below a root that tests can set. Several ranks of a machine ask at once, so
 * the untouched bytes of all System V segments count as taken: a rank asks, allocates, and asks
 * again.
 *
 * May not include anything but base.
 */
#ifndef XFER_ROOM_H
#define XFER_ROOM_H

#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

enum room_kind {
    ROOM_SYSV,  /* System V segments: shmmax, shmall, memory */
    ROOM_POSIX, /* files of /dev/shm: its size, memory */
};

/* All in bytes; UINT64_MAX = no limit known. */
struct room {
    uint64_t segment_max;   /* largest System V segment */
    uint64_t segments_left; /* all further System V segments */
    uint64_t files_left;    /* free in /dev/shm */
    uint64_t memory_left;   /* MemAvailable, or less where a control group allows less */
    uint64_t memory_spare;  /* of it, kept for everything else */
    uint64_t untouched;     /* promised to System V segments, not yet in use */
    uint64_t memlock;       /* RLIMIT_MEMLOCK */
};

/* `root` is "/" but in tests. What cannot be read has no limit. Any thread. */
void room_read(const char *root, struct room *room_out);

/*
 * Is there room for `needed` more? `cap_left`: what the settings leave to this rank, UINT64_MAX =
 * no limit. E_SHM_SPACE or E_MEM_SPACE; `reason_out` names needed and found. Pure.
 */
enum kvf_status room_check(const struct room *room, enum room_kind kind, uint64_t needed,
                           uint64_t cap_left, char *reason_out, size_t reason_bytes);

/*
 * Touches all pages, spread over the cores this thread may use, and leaves their contents.
 * E_SHM_SPACE if the system has no page left (on kernels before 5.14 it would be a signal instead).
 * Blocks.
 */
enum kvf_status room_touch(void *base, uint64_t len_bytes);

#endif /* XFER_ROOM_H */
