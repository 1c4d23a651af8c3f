/*
 * test_transport_edges.c - the transport over UCX where something is missing, denied, broken or
 * killed.
 *
 * Calls of UCX are wrapped by the linker (--wrap) so that one of them fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "clock.h"
#include "node.h"

#define POOL_BYTES (256u << 10)

/* ---- what fails ---- */

static int fail_map_at, map_calls, maps_live; /* the n-th ucp_mem_map; 0 = none */
static bool fail_rkey_ptr, fail_unpack, old_version;
static int cross_memory_calls;

ucs_status_t __real_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *memh);
ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *memh);
ucs_status_t __real_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);
ucs_status_t __wrap_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh);
ucs_status_t __real_ucp_rkey_ptr(ucp_rkey_h key, uint64_t address, void **pointer);
ucs_status_t __wrap_ucp_rkey_ptr(ucp_rkey_h key, uint64_t address, void **pointer);
ucs_status_t __real_ucp_ep_rkey_unpack(ucp_ep_h endpoint, const void *buffer, ucp_rkey_h *key);
ucs_status_t __wrap_ucp_ep_rkey_unpack(ucp_ep_h endpoint, const void *buffer, ucp_rkey_h *key);
void __real_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);
void __wrap_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release);

ucs_status_t __wrap_ucp_mem_map(ucp_context_h context, const ucp_mem_map_params_t *params,
                                ucp_mem_h *memh)
{
    if (++map_calls == fail_map_at) {
        return UCS_ERR_IO_ERROR;
    }
    ++maps_live;
    return __real_ucp_mem_map(context, params, memh);
}

ucs_status_t __wrap_ucp_mem_unmap(ucp_context_h context, ucp_mem_h memh)
{
    --maps_live;
    return __real_ucp_mem_unmap(context, memh);
}

ucs_status_t __wrap_ucp_rkey_ptr(ucp_rkey_h key, uint64_t address, void **pointer)
{
    return fail_rkey_ptr ? UCS_ERR_UNSUPPORTED : __real_ucp_rkey_ptr(key, address, pointer);
}

ucs_status_t __wrap_ucp_ep_rkey_unpack(ucp_ep_h endpoint, const void *buffer, ucp_rkey_h *key)
{
    return fail_unpack ? UCS_ERR_SHMEM_SEGMENT : __real_ucp_ep_rkey_unpack(endpoint, buffer, key);
}

void __wrap_ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
{
    __real_ucp_get_version(major, minor, release);
    *minor = old_version ? 5 : *minor;
}

/* Stand before the C library's: cross-memory attach is denied, as in many containers. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long local_count,
                         const struct iovec *remote, unsigned long remote_count,
                         unsigned long flags)
{
    (void)pid, (void)local, (void)local_count, (void)remote, (void)remote_count, (void)flags;
    ++cross_memory_calls;
    errno = EPERM;
    return -1;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count,
                          unsigned long flags)
{
    return process_vm_readv(pid, local, local_count, remote, remote_count, flags);
}

/* ---- a small exchange, under changed circumstances ---- */

struct circumstance {
    const char *name, *value; /* of the environment */
    bool unmapped;            /* the mapping is expected to fail */
    void (*before)(void);     /* in each rank, before it opens */
};

static int exchange(struct ranks *ranks)
{
    static struct node node;
    static char bytes[POOL_BYTES];
    const struct circumstance *under = ranks->argument;
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    int wrong = 0;

    if (under->name != NULL) {
        setenv(under->name, under->value, 1);
    }
    if (under->before != NULL) {
        under->before();
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    RANK_CHECK(wrong, node.t != NULL && node.t->memory_alloc(node.t->self, POOL_BYTES, &memory,
                                                             node.reason) == KVF_OK);
    if (wrong != 0) {
        fprintf(stderr, "%s\n", node.reason);
        return wrong;
    }
    uint32_t other = 1 - ranks->rank;
    cross_memory_calls = 0; /* UCX tries once on itself while it opens, whatever the settings */
    wrong += node_connect(&node);
    wrong += node_swap_keys(&node, memory, remotes);
    RANK_CHECK(wrong, (node.t->remote_mapped(remotes[other]) == NULL) == under->unmapped);
    RANK_CHECK(wrong, (node.reason[0] != '\0') == under->unmapped);
    memset(bytes, 'a' + (int)ranks->rank, sizeof(bytes));
    const struct transport_put put = {.remote = remotes[other],
                                      .local = bytes,
                                      .address = node.t->remote_base(remotes[other]),
                                      .len_bytes = POOL_BYTES,
                                      .token = 1};
    RANK_CHECK(wrong, node_finish(&node, node.t->put(node.t->self, &put), 1) == KVF_OK);
    RANK_CHECK(wrong, node_finish(&node, node.t->flush(node.t->self, other, TRANSPORT_NEAR, 2),
                                  2) == KVF_OK);
    RANK_CHECK(wrong, node_send(&node, other, bytes, sizeof(bytes), 3) == KVF_OK);
    RANK_CHECK(wrong, node_until(&node, &node.messages, 1));
    for (size_t i = 0; i < POOL_BYTES; ++i) {
        wrong += ((char *)node.t->memory_base(memory))[i] != 'a' + (int)other;
    }
    RANK_CHECK(wrong, cross_memory_calls == 0);
    node_barrier(&node);
    node.t->remote_release(node.t->self, remotes[other]);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void deny_pointers(void)
{
    fail_rkey_ptr = true;
}

static void mapping_denied_is_said_and_puts_still_work(void **state)
{
    const struct circumstance under = {.unmapped = true, .before = deny_pointers};

    (void)state;
    ranks_pass(2, exchange, &under);
}

static void users_transports_are_respected(void **state)
{
    static const char *const lists[] = {"all",       "^cma",       "^sysv",       "tcp,sysv",
                                        "tcp,posix", "^posix,cma", "shm,tcp,self"};

    (void)state;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); ++i) {
        const struct circumstance under = {.name = "UCX_TLS", .value = lists[i]};
        ranks_pass(2, exchange, &under);
    }
    const struct circumstance device = {.name = "UCX_NET_DEVICES", .value = "lo"};
    ranks_pass(2, exchange, &device);
}

static void cross_memory_attach_is_never_used(void **state)
{
    const struct circumstance under = {0};

    (void)state;
    ranks_pass(2, exchange, &under);
}

static void bad_temporary_folders_do_not_matter(void **state)
{
    char folder[160] = "/tmp/kvf_";
    const struct circumstance missing = {.name = "TMPDIR", .value = "/nonexistent/folder"};
    const struct circumstance read_only = {.name = "TMPDIR", .value = "/proc"};
    struct circumstance longest = {.name = "TMPDIR", .value = folder};

    (void)state;
    memset(folder + strlen(folder), 'x', 120);
    mkdir(folder, 0700);
    ranks_pass(2, exchange, &missing);
    ranks_pass(2, exchange, &read_only);
    ranks_pass(2, exchange, &longest);
    assert_int_equal(rmdir(folder), 0); /* still empty */
}

static void lock_little(void)
{
    const struct rlimit limit = {65536, 65536};

    setrlimit(RLIMIT_MEMLOCK, &limit);
}

static void little_locked_memory_is_enough_without_rdma(void **state)
{
    const struct circumstance under = {.before = lock_little};

    (void)state;
    ranks_pass(2, exchange, &under);
}

/* ---- starts that fail ---- */

static int fds_open(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    while (folder != NULL && readdir(folder) != NULL) {
        ++count;
    }
    closedir(folder);
    return count;
}

struct refusal {
    const char *name, *value;
    const char *words[3]; /* that the reason must have */
};

static int refused_rank(struct ranks *ranks)
{
    static struct node node;
    const struct refusal *refusal = ranks->argument;
    int before = 0, wrong = 0;

    setenv(refusal->name, refusal->value, 1);
    for (int round = 0; round < 3; ++round) {
        enum kvf_status status = node_open(&node, ranks);
        RANK_CHECK(wrong, status == KVF_E_NO_TRANSPORT);
        for (int w = 0; w < 3 && refusal->words[w] != NULL; ++w) {
            RANK_CHECK(wrong, strstr(node.reason, refusal->words[w]) != NULL);
        }
        RANK_CHECK(wrong, round < 2 || fds_open() == before);
        before = fds_open();
    }
    if (wrong != 0) {
        fprintf(stderr, "%s=%s: %s\n", refusal->name, refusal->value, node.reason);
    }
    return wrong;
}

static void start_without_a_transport_names_context_and_value(void **state)
{
    static const struct refusal refusals[] = {
        {"UCX_TLS", "cuda_ipc", {"near", "UCX_TLS=cuda_ipc", "sysv"}},
        {"UCX_TLS", "self", {"near", "UCX_TLS=self", NULL}},
        {"UCX_TLS", "nosuch", {"near", "UCX_TLS=nosuch", NULL}},
        {"UCX_TLS", "nosuch,sysv", {"far", "UCX_TLS=nosuch,sysv", NULL}},
        {"UCX_TLS", "tcp", {"near", "UCX_TLS=tcp", NULL}},
        {"UCX_TLS", "sysv,posix", {"far", "UCX_TLS=sysv,posix", "network"}},
        {"UCX_TLS", "^tcp", {"far", "UCX_TLS=^tcp", NULL}},
        {"UCX_NET_DEVICES", "nosuch0", {"far", "UCX_NET_DEVICES=nosuch0", NULL}},
        {"UCX_NET_DEVICES", "lo,nosuch0", {"far", "no device nosuch0", NULL}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); ++i) {
        ranks_pass(1, refused_rank, &refusals[i]);
    }
}

static int version_rank(struct ranks *ranks)
{
    static struct node node;
    char text[256];
    int wrong = 0;

    old_version = true;
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_E_UCX_VERSION);
    RANK_CHECK(wrong, strstr(node.reason, "UCX 1.5.") != NULL);
    RANK_CHECK(wrong, strstr(node.reason, "libucp.so") != NULL);
    old_version = false;
    RANK_CHECK(wrong, strstr(transport_ucx_version(text, sizeof(text)), "libucp.so") != NULL);
    printf("runs on %s\n", text);
    return wrong;
}

static void older_library_is_refused_with_its_path(void **state)
{
    (void)state;
    ranks_pass(1, version_rank, NULL);
}

/* ---- memory ---- */

static int room_rank(struct ranks *ranks)
{
    static struct node node = {.params = {.shared_bytes_max = 1u << 20}};
    struct transport_memory *memory = NULL, *more = NULL;
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 2u << 20, &memory, node.reason) ==
                          KVF_E_SHM_SPACE);
    RANK_CHECK(wrong, strstr(node.reason, "2101248 bytes (2.0 MiB) needed") != NULL);
    RANK_CHECK(wrong, strstr(node.reason, "1048576 bytes (1.0 MiB)") != NULL);
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, 768u << 10, &memory, node.reason) == KVF_OK);
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 768u << 10, &more, node.reason) ==
                          KVF_E_SHM_SPACE);
    node.t->memory_release(node.t->self, memory);
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 768u << 10, &more, node.reason) == KVF_OK);
    node.t->memory_release(node.t->self, more);
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 0, &more, node.reason) == KVF_E_INVAL);
    RANK_CHECK(wrong,
               node.t->memory_register(node.t->self, NULL, 8, &more, node.reason) == KVF_E_INVAL);
    RANK_CHECK(wrong, maps_live == 0);
    node_close(&node);
    return wrong;
}

static int whole_machine_rank(struct ranks *ranks)
{
    static struct node node;
    struct transport_memory *memory = NULL;
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, UINT64_C(1) << 50, &memory, node.reason) ==
                          KVF_E_MEM_SPACE);
    RANK_CHECK(wrong, strstr(node.reason, "1125899906846720 bytes") != NULL ||
                          strstr(node.reason, "1125899906846624") != NULL ||
                          strstr(node.reason, "needed") != NULL);
    node_close(&node);
    return wrong;
}

static int small_files_rank(struct ranks *ranks)
{
    static struct node node;
    struct transport_memory *memory = NULL;
    int wrong = 0;

    setenv("UCX_TLS", "tcp,posix", 1);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=32m") != 0) {
        printf("part skipped: no right to mount a small /dev/shm\n");
        return 0;
    }
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 64u << 20, &memory, node.reason) ==
                          KVF_E_SHM_SPACE);
    RANK_CHECK(wrong, strstr(node.reason, "67112960 bytes (64.0 MiB) needed") != NULL);
    RANK_CHECK(wrong, strstr(node.reason, "free in /dev/shm") != NULL);
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 1u << 20, &memory, node.reason) == KVF_OK);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void too_little_shared_memory_is_said_before_it_is_taken(void **state)
{
    (void)state;
    ranks_pass(1, room_rank, NULL);
    ranks_pass(1, whole_machine_rank, NULL);
    ranks_pass(1, small_files_rank, NULL);
}

static int registration_rank(struct ranks *ranks)
{
    static struct node node;
    static char own[65536];
    struct transport_memory *memory = NULL;
    int wrong = 0;

    lock_little();
    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    for (int at = 1; at <= 2; ++at) {
        map_calls = 0;
        fail_map_at = at;
        RANK_CHECK(wrong, node.t->memory_register(node.t->self, own, sizeof(own), &memory,
                                                  node.reason) == KVF_E_REGISTER);
        RANK_CHECK(wrong, strstr(node.reason, "65536 bytes at") != NULL);
        RANK_CHECK(wrong, strstr(node.reason, "(ulimit -l) is 65536 bytes") != NULL);
        RANK_CHECK(wrong, memory == NULL && maps_live == 0);
        map_calls = 0;
        RANK_CHECK(wrong,
                   node.t->memory_alloc(node.t->self, sizeof(own), &memory, node.reason) < KVF_OK);
        RANK_CHECK(wrong, memory == NULL && maps_live == 0);
    }
    fail_map_at = 0;
    RANK_CHECK(wrong, node.t->memory_register(node.t->self, own, sizeof(own), &memory,
                                              node.reason) == KVF_OK);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void failed_registration_is_one_error_and_rolled_back(void **state)
{
    (void)state;
    ranks_pass(1, registration_rank, NULL);
}

/* ---- keys and addresses that are not ---- */

static int broken_key(struct node *node, char *key, size_t len)
{
    struct transport_remote *remote = NULL;
    int wrong = 0;

    for (size_t cut = 0; cut < len; ++cut) {
        char *exact = malloc(cut + 1); /* so that a read past the end is seen */
        memcpy(exact, key, cut);
        RANK_CHECK(wrong, node->t->remote_open(node->t->self, 1 - node->ranks->rank, exact, cut,
                                               &remote, node->reason) < KVF_OK);
        free(exact);
    }
    for (size_t at = 0; at < len; ++at) {
        key[at] = (char)(key[at] ^ 0x41);
        RANK_CHECK(wrong, node->t->remote_open(node->t->self, 1 - node->ranks->rank, key, len,
                                               &remote, node->reason) < KVF_OK);
        key[at] = (char)(key[at] ^ 0x41);
    }
    RANK_CHECK(wrong, node->t->remote_open(node->t->self, 77, key, len, &remote, node->reason) ==
                          KVF_E_NOTFOUND);
    return wrong;
}

static int broken_rank(struct ranks *ranks)
{
    static struct node node;
    static char bytes[TRANSPORT_ADDRESS_BYTES_MAX], small[16];
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    size_t len, short_len;
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong, node.t->address(node.t->self, bytes, sizeof(bytes), &len) == KVF_OK);
    RANK_CHECK(wrong, node.t->address(node.t->self, small, 16, &short_len) == KVF_E_TOO_LARGE);
    RANK_CHECK(wrong, short_len == len);
    printf("an address has %zu bytes\n", len);
    for (size_t cut = 0; cut < len; ++cut) {
        RANK_CHECK(wrong, node.t->connect(node.t->self, 0, bytes, cut) == KVF_E_DECODE);
    }
    for (size_t at = 0; at < len; ++at) {
        bytes[at] = (char)(bytes[at] ^ 0x41);
        RANK_CHECK(wrong, node.t->connect(node.t->self, 0, bytes, len) == KVF_E_DECODE);
        bytes[at] = (char)(bytes[at] ^ 0x41);
    }
    RANK_CHECK(wrong, node.t->connect(node.t->self, 9, bytes, len) == KVF_E_INVAL);
    wrong += node_connect(&node);
    RANK_CHECK(wrong, node.t->connect(node.t->self, 1 - ranks->rank, bytes, len) == KVF_E_EXISTS);
    RANK_CHECK(wrong, node.t->memory_alloc(node.t->self, 100, &memory, node.reason) == KVF_OK);
    RANK_CHECK(wrong,
               node.t->memory_pack(node.t->self, memory, small, 16, &short_len) == KVF_E_TOO_LARGE);
    RANK_CHECK(wrong, node.t->memory_pack(node.t->self, memory, bytes, TRANSPORT_KEY_BYTES_MAX,
                                          &len) == KVF_OK);
    RANK_CHECK(wrong, len == short_len);
    printf("a key has %zu bytes\n", len);
    wrong += broken_key(&node, bytes, len);
    node_barrier(&node);

    /* Memory that is not the peer's: its proof word was changed behind UCX's back. */
    long page = sysconf(_SC_PAGESIZE);
    ((char *)node.t->memory_base(memory))[page] ^= 1;
    wrong += node_swap_keys(&node, memory, remotes);
    RANK_CHECK(wrong, node.t->remote_mapped(remotes[1 - ranks->rank]) == NULL);
    RANK_CHECK(wrong, strstr(node.reason, "proof") != NULL);
    node_barrier(&node);
    node.t->remote_release(node.t->self, remotes[1 - ranks->rank]);

    fail_unpack = true;
    RANK_CHECK(wrong, node.t->remote_open(node.t->self, 1 - ranks->rank, bytes, len, &remotes[0],
                                          node.reason) == KVF_E_NO_PATH);
    RANK_CHECK(wrong, strstr(node.reason, "near") != NULL);
    node_barrier(&node);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void broken_keys_and_addresses_are_refused(void **state)
{
    (void)state;
    ranks_pass(2, broken_rank, NULL);
}

/* System V segments that are attached here. */
static int count_maps(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    char line[512];
    int count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        count += strstr(line, "SYSV") != NULL;
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static int many_keys_rank(struct ranks *ranks)
{
    static struct node node;
    static char key[TRANSPORT_KEY_BYTES_MAX];
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];
    int maps_first = 0, maps_last = 0;
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->memory_alloc(node.t->self, POOL_BYTES, &memory, node.reason) == KVF_OK);
    wrong += node_connect(&node);
    for (int round = 0; round < 1000; ++round) {
        size_t len;
        RANK_CHECK(wrong,
                   node.t->memory_pack(node.t->self, memory, key, sizeof(key), &len) == KVF_OK);
        if (round % 100 == 0) {
            wrong += node_swap_keys(&node, memory, remotes);
            RANK_CHECK(wrong, node.t->remote_mapped(remotes[1 - ranks->rank]) != NULL);
            node_barrier(&node);
            node.t->remote_release(node.t->self, remotes[1 - ranks->rank]);
            maps_last = count_maps();
            maps_first = round == 0 ? maps_last : maps_first;
        }
    }
    RANK_CHECK(wrong, maps_last <= maps_first);
    node_barrier(&node);
    node.t->memory_release(node.t->self, memory);
    node_close(&node);
    return wrong;
}

static void keys_packed_and_opened_leave_nothing(void **state)
{
    (void)state;
    ranks_pass(2, many_keys_rank, NULL);
}

/* ---- the heap ---- */

static int heap_calls, heap_fail_at, heap_live;

static void *failing_alloc(void *self, size_t count, size_t size)
{
    void *memory;

    (void)self;
    if (++heap_calls == heap_fail_at) {
        return NULL;
    }
    memory = kvf_alloc(kvf_heap_system(), count, size);
    heap_live += memory != NULL;
    return memory;
}

static void failing_release(void *self, void *memory)
{
    (void)self;
    heap_live -= memory != NULL;
    kvf_release(kvf_heap_system(), memory);
}

static int heap_rank(struct ranks *ranks)
{
    static const struct kvf_heap heap = {NULL, failing_alloc, failing_release};
    static struct node node = {.params = {.heap = &heap}};
    static char own[4096];
    int wrong = 0;

    for (heap_fail_at = 1; heap_fail_at < 20; ++heap_fail_at) {
        struct transport_memory *memory = NULL, *second = NULL;
        heap_calls = 0;
        enum kvf_status status = node_open(&node, ranks);
        if (status == KVF_OK) {
            status = node.t->memory_alloc(node.t->self, 4096, &memory, node.reason);
            if (status == KVF_OK) {
                status = node.t->memory_register(node.t->self, own, 4096, &second, node.reason);
            }
            node.t->memory_release(node.t->self, second);
            node.t->memory_release(node.t->self, memory);
            node_close(&node);
        }
        RANK_CHECK(wrong, status == (heap_fail_at <= heap_calls ? KVF_E_NOMEM : KVF_OK));
        RANK_CHECK(wrong, heap_live == 0);
        if (status == KVF_OK) {
            break;
        }
    }
    RANK_CHECK(wrong, heap_fail_at > 5 && heap_fail_at < 20);
    return wrong;
}

static void each_allocation_that_fails_is_undone(void **state)
{
    (void)state;
    ranks_pass(1, heap_rank, NULL);
}

/* ---- one thread connects ---- */

struct other_thread {
    struct node *node;
    const char *address;
    size_t len;
};

static void *connect_again(void *argument)
{
    struct other_thread *other = argument;
    const struct rlimit no_core = {0, 0};

    setrlimit(RLIMIT_CORE, &no_core);
    other->node->t->connect(other->node->t->self, 1, other->address, other->len);
    return NULL;
}

static int two_thread_rank(struct ranks *ranks)
{
    static struct node node = {.params = {.peers_max = 2}};
    static char address[TRANSPORT_ADDRESS_BYTES_MAX];
    struct other_thread other = {.node = &node, .address = address};
    pthread_t thread;
    int wrong = 0;

    RANK_CHECK(wrong, node_open(&node, ranks) == KVF_OK);
    if (node.t == NULL) {
        return wrong;
    }
    RANK_CHECK(wrong,
               node.t->address(node.t->self, address, sizeof(address), &other.len) == KVF_OK);
    RANK_CHECK(wrong, node.t->connect(node.t->self, 0, address, other.len) == KVF_OK);
    pthread_create(&thread, NULL, connect_again, &other);
    pthread_join(thread, NULL);
    return 1 + wrong; /* not reached */
}

static void second_thread_that_connects_breaks_the_contract(void **state)
{
    int results[RANKS_MAX];

    (void)state;
    ranks_run(1, two_thread_rank, NULL, 20, results);
    assert_int_equal(results[0], -SIGABRT);
}

/* ---- killed ---- */

static int count_segments(void)
{
    FILE *file = fopen("/proc/sysvipc/shm", "r");
    char line[512];
    int count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        ++count;
    }
    if (file != NULL) {
        fclose(file);
    }
    return count;
}

static int count_files(const char *path, const char *word)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int count = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        count += word == NULL || strstr(entry->d_name, word) != NULL;
    }
    if (folder != NULL) {
        closedir(folder);
    }
    return count;
}

/* Dies at one of several moments of its life, chosen by the round. */
static int doomed_rank(struct ranks *ranks)
{
    static struct node node;
    const int *round = ranks->argument;
    struct transport_memory *memory = NULL;
    struct transport_remote *remotes[RANKS_MAX];

    (void)node_open(&node, ranks);
    if (*round % 4 == 0) {
        raise(SIGKILL);
    }
    (void)node.t->memory_alloc(node.t->self, 16u << 20, &memory, node.reason);
    if (*round % 4 == 1) {
        raise(SIGKILL);
    }
    (void)node_connect(&node);
    (void)node_swap_keys(&node, memory, remotes);
    if (*round % 4 == 2) {
        raise(SIGKILL);
    }
    memset(node.t->remote_mapped(remotes[1 - ranks->rank]), 1, 16u << 20);
    (void)node.t->send(node.t->self, 1 - ranks->rank, "x", 1, 1);
    raise(SIGKILL);
    return 0;
}

/* Removes a folder and the files in it; returns how many these were. */
static int clear_folder(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    int count = 0;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
            count++;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(path);
    return count;
}

static void twenty_killed_runs_leave_nothing(void **state)
{
    char folder[] = "/tmp/kvf_killed.XXXXXX";
    int results[RANKS_MAX];
    /* Other programs of the machine come and go: count in a place of its own, where that may be. */
    bool alone = unshare(CLONE_NEWIPC) == 0;
    int segments = count_segments();
    int files = count_files("/dev/shm", "ucx");
    int killed = 0, left;

    (void)state;
    assert_non_null(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
    for (int round = 0; round < 20; ++round) {
        ranks_run(2, doomed_rank, &round, 20, results);
        killed += (results[0] == -SIGKILL) + (results[1] == -SIGKILL);
    }
    unsetenv("TMPDIR");
    left = clear_folder(folder); /* before a check can end the test */
    assert_int_equal(killed, 40);
    if (alone) {
        assert_int_equal(count_segments(), segments);
    }
    assert_true(count_files("/dev/shm", "ucx") <= files);
    assert_int_equal(left, 0);
    const struct circumstance as_ever = {0};
    ranks_pass(2, exchange, &as_ever);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mapping_denied_is_said_and_puts_still_work),
        cmocka_unit_test(users_transports_are_respected),
        cmocka_unit_test(cross_memory_attach_is_never_used),
        cmocka_unit_test(bad_temporary_folders_do_not_matter),
        cmocka_unit_test(little_locked_memory_is_enough_without_rdma),
        cmocka_unit_test(start_without_a_transport_names_context_and_value),
        cmocka_unit_test(older_library_is_refused_with_its_path),
        cmocka_unit_test(too_little_shared_memory_is_said_before_it_is_taken),
        cmocka_unit_test(failed_registration_is_one_error_and_rolled_back),
        cmocka_unit_test(broken_keys_and_addresses_are_refused),
        cmocka_unit_test(keys_packed_and_opened_leave_nothing),
        cmocka_unit_test(each_allocation_that_fails_is_undone),
        cmocka_unit_test(second_thread_that_connects_breaks_the_contract),
        cmocka_unit_test(twenty_killed_runs_leave_nothing),
    };

    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests_name("transport over UCX, edges", tests, NULL, NULL);
}
