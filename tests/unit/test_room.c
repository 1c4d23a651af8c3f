/* test_room.c - what the machine has left, read from a made-up /proc and /sys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "xfer/room.h"

#define MIB (UINT64_C(1) << 20)

static const char *const folders[] = {"",
                                      "/proc",
                                      "/proc/self",
                                      "/proc/sysvipc",
                                      "/proc/sys",
                                      "/proc/sys/kernel",
                                      "/sys",
                                      "/sys/fs",
                                      "/sys/fs/cgroup",
                                      "/sys/fs/cgroup/job",
                                      "/sys/fs/cgroup/job/step",
                                      "/sys/fs/cgroup/memory",
                                      "/sys/fs/cgroup/memory/old"};
static const char *const files[] = {"/proc/self/cgroup",
                                    "/proc/sysvipc/shm",
                                    "/proc/meminfo",
                                    "/proc/sys/kernel/shmmax",
                                    "/proc/sys/kernel/shmall",
                                    "/sys/fs/cgroup/job/memory.max",
                                    "/sys/fs/cgroup/job/memory.current",
                                    "/sys/fs/cgroup/job/memory.stat",
                                    "/sys/fs/cgroup/job/step/memory.max",
                                    "/sys/fs/cgroup/job/step/memory.current",
                                    "/sys/fs/cgroup/memory/old/memory.limit_in_bytes",
                                    "/sys/fs/cgroup/memory/old/memory.usage_in_bytes"};
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static char root[64];

static void put_file(const char *path, const char *text)
{
    char full[256];
    FILE *file;

    snprintf(full, sizeof(full), "%s%s", root, path);
    file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static int set_up(void **state)
{
    char path[256];

    (void)state;
    snprintf(root, sizeof(root), "/tmp/kvf_room.XXXXXX");
    assert_non_null(mkdtemp(root));
    for (size_t i = 1; i < COUNT(folders); ++i) {
        snprintf(path, sizeof(path), "%s%s", root, folders[i]);
        mkdir(path, 0700);
    }
    return 0;
}

static int tear_down(void **state)
{
    char path[256];

    (void)state;
    for (size_t i = 0; i < COUNT(files); ++i) {
        snprintf(path, sizeof(path), "%s%s", root, files[i]);
        remove(path);
    }
    for (size_t i = COUNT(folders); i-- > 0;) {
        snprintf(path, sizeof(path), "%s%s", root, folders[i]);
        remove(path);
    }
    return 0;
}

static void empty_machine_has_no_known_limit(void **state)
{
    struct room room;
    char reason[256];

    (void)state;
    room_read(root, &room);
    assert_true(room.segment_max == UINT64_MAX && room.memory_left == UINT64_MAX);
    assert_int_equal(room_check(&room, ROOM_SYSV, 1024 * MIB, UINT64_MAX, reason, sizeof(reason)),
                     KVF_OK);
}

static void limits_of_the_kernel_are_read(void **state)
{
    struct room room;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    char text[64];

    (void)state;
    put_file("/proc/sys/kernel/shmmax", "1048576\n");
    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)(8 * MIB / page));
    put_file("/proc/sys/kernel/shmall", text);
    put_file("/proc/meminfo", "MemTotal:  131072 kB\nMemFree: 1 kB\nMemAvailable:  65536 kB\n");
    put_file(
        "/proc/sysvipc/shm",
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid "
        " cgid      atime      dtime      ctime                   rss                  swap\n"
        "         0          1  1660               3145728   11    11      1     0     0     0 "
        "    0 1 0 1               1048576               1048576\n");
    room_read(root, &room);
    assert_int_equal(room.segment_max, MIB);
    assert_int_equal(room.segments_left, 5 * MIB);
    assert_int_equal(room.untouched, MIB);
    assert_int_equal(room.memory_left, 64 * MIB);
    assert_int_equal(room.memory_spare, MIB);
}

static void tightest_control_group_counts(void **state)
{
    struct room room;

    (void)state;
    put_file("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\n");
    put_file("/proc/self/cgroup", "0::/job/step\n");
    put_file("/sys/fs/cgroup/job/memory.max", "104857600\n");
    put_file("/sys/fs/cgroup/job/memory.current", "52428800\n");
    put_file("/sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 10485760\n");
    put_file("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put_file("/sys/fs/cgroup/job/step/memory.current", "1\n");
    room_read(root, &room);
    assert_int_equal(room.memory_left, 60 * MIB);
    put_file("/proc/self/cgroup", "12:cpu:/x\n4:memory:/old\n0::/job/step\n");
    put_file("/sys/fs/cgroup/memory/old/memory.limit_in_bytes", "20971520\n");
    put_file("/sys/fs/cgroup/memory/old/memory.usage_in_bytes", "10485760\n");
    room_read(root, &room);
    assert_int_equal(room.memory_left, 10 * MIB);
}

static void refusal_names_needed_and_found(void **state)
{
    const struct room room = {.segment_max = 100 * MIB,
                              .segments_left = 50 * MIB,
                              .files_left = 20 * MIB,
                              .memory_left = 40 * MIB,
                              .memory_spare = 4 * MIB,
                              .untouched = 6 * MIB};
    char reason[256];

    (void)state;
    assert_int_equal(room_check(&room, ROOM_SYSV, 30 * MIB, UINT64_MAX, reason, 256), KVF_OK);
    assert_int_equal(room_check(&room, ROOM_SYSV, 31 * MIB, UINT64_MAX, reason, 256),
                     KVF_E_MEM_SPACE);
    assert_non_null(strstr(reason, "32505856 bytes (31.0 MiB) needed, 31457280 bytes (30.0 MiB)"));
    assert_int_equal(room_check(&room, ROOM_SYSV, 51 * MIB, UINT64_MAX, reason, 256),
                     KVF_E_SHM_SPACE);
    assert_non_null(strstr(reason, "shmall"));
    assert_int_equal(room_check(&room, ROOM_SYSV, 101 * MIB, UINT64_MAX, reason, 256),
                     KVF_E_SHM_SPACE);
    assert_non_null(strstr(reason, "shmmax"));
    assert_int_equal(room_check(&room, ROOM_POSIX, 21 * MIB, UINT64_MAX, reason, 256),
                     KVF_E_SHM_SPACE);
    assert_non_null(strstr(reason, "/dev/shm"));
    assert_int_equal(room_check(&room, ROOM_POSIX, 20 * MIB, 19 * MIB, reason, 256),
                     KVF_E_SHM_SPACE);
    assert_non_null(strstr(reason, "19922944 bytes"));
}

static void touching_keeps_contents_and_takes_every_page(void **state)
{
    static const uint64_t pages[] = {1, 2, 3, 40000};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)state;
    for (size_t i = 0; i < COUNT(pages); ++i) {
        size_t len = (size_t)pages[i] * page;
        char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        unsigned char *resident = malloc((size_t)pages[i]);
        assert_true(memory != MAP_FAILED && resident != NULL);
        memory[len - 1] = 'k';
        assert_int_equal(room_touch(memory, len), KVF_OK);
        assert_int_equal(memory[len - 1], 'k');
        assert_int_equal(mincore(memory, len, resident), 0);
        for (uint64_t p = 0; p < pages[i]; ++p) {
            assert_int_equal(resident[p] & 1, 1);
        }
        free(resident);
        munmap(memory, len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(empty_machine_has_no_known_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_of_the_kernel_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tightest_control_group_counts, set_up, tear_down),
        cmocka_unit_test(refusal_names_needed_and_found),
        cmocka_unit_test(touching_keeps_contents_and_takes_every_page),
    };

    return cmocka_run_group_tests_name("room", tests, NULL, NULL);
}
