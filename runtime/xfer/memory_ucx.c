/*
 * memory_ucx.c - pools and their keys: allocating, registering, packing, opening, mapping.
 *
 * A pool that peers can map is UCX shared memory of the near context, one page longer than asked:
 * the page behind it holds a random word, and a peer that maps the pool must find the same word
 * there (UCX falls back to private memory in silence; a mapping that is not one would lose every
 * byte).
 *
 * May not make endpoints or progress.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "check.h"
#include "clock.h"
#include "xfer/transport_ucx.h"

#define UCX_KEY_MAGIC UINT32_C(0x4b46564b)
#define UCX_KEY_VERSION 1
#define UCX_KEY_SHARED 1u

/* Head of a packed key; the near and the far key follow. Hosts of one world have one byte order. */
struct ucx_key_head {
    uint32_t magic;
    uint16_t version;
    uint16_t flags;
    uint64_t base;
    uint64_t len_bytes;
    uint64_t proof;
    uint32_t near_bytes;
    uint32_t far_bytes;
    uint32_t checksum; /* of all that follows it, and of the head with this 0 */
    uint32_t reserved; /* 0 */
};
_Static_assert(sizeof(struct ucx_key_head) == 48, "head of a packed key");

static uint64_t ucx_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint32_t ucx_key_checksum(const struct ucx_key_head *head, const void *keys, size_t len)
{
    struct ucx_key_head bare = *head;

    bare.checksum = 0;
    return XXH32(keys, len, XXH32(&bare, sizeof(bare), 0));
}

/* Is `address` a shared mapping of this process? The kernel's own word for it. */
static bool ucx_is_shared(const void *address)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];
    bool shared = false;

    if (file == NULL) {
        return true; /* no proof; the peer's proof remains */
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned long from, to;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && (uintptr_t)address >= from &&
            (uintptr_t)address < to) {
            shared = rights[3] == 's';
            break;
        }
    }
    fclose(file);
    return shared;
}

static void ucx_registration_refused(enum tls_context which, ucs_status_t status, const void *base,
                                     uint64_t len_bytes, char *reason_out)
{
    struct room room;
    char limit[32] = "unlimited";

    room_read("/", &room);
    if (room.memlock != UINT64_MAX) {
        snprintf(limit, sizeof(limit), "%llu bytes", (unsigned long long)room.memlock);
    }
    snprintf(reason_out, TRANSPORT_REASON_BYTES,
             "cannot register %llu bytes at %p for the %s context: %s; the limit on locked memory "
             "(ulimit -l) is %s",
             (unsigned long long)len_bytes, base, tls_context_name(which),
             ucs_status_string(status), limit);
}

static enum kvf_status ucx_register_with(struct ucx *ucx, enum tls_context which,
                                         struct transport_memory *memory, uint64_t len_bytes,
                                         char *reason_out)
{
    const ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                                                       UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                       UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                         .address = memory->base,
                                         .length = len_bytes,
                                         .memory_type = UCS_MEMORY_TYPE_HOST};
    ucs_status_t status =
        ucp_mem_map(ucx->contexts[which].context, &params, &memory->handle[which]);

    if (status != UCS_OK) {
        memory->handle[which] = NULL;
        ucx_registration_refused(which, status, memory->base, len_bytes, reason_out);
        return KVF_E_REGISTER;
    }
    return KVF_OK;
}

static enum kvf_status ucx_check_room(struct ucx *ucx, uint64_t needed, char *reason_out)
{
    uint64_t used = atomic_load(&ucx->shared_bytes);
    uint64_t cap_left = UINT64_MAX;
    struct room room;

    if (ucx->shared_bytes_max != 0) {
        cap_left = ucx->shared_bytes_max > used ? ucx->shared_bytes_max - used : 0;
    }
    room_read(ucx->root, &room);
    return room_check(&room, ucx->shared_kind, needed, cap_left, reason_out,
                      TRANSPORT_REASON_BYTES);
}

/* The check passed, and then another rank was quicker: what is there now. */
static void ucx_shared_gone(const struct ucx *ucx, uint64_t total, ucs_status_t status,
                            char *reason_out)
{
    struct room room;
    uint64_t left;

    room_read(ucx->root, &room);
    left = ucx->shared_kind == ROOM_POSIX ? room.files_left : room.segments_left;
    if (left > room.memory_left)
        left = room.memory_left;
    snprintf(reason_out, TRANSPORT_REASON_BYTES,
             "%llu bytes of shared memory are needed, %llu are left now: other ranks of this "
             "machine take some at the same time (UCX: %s)",
             (unsigned long long)total, (unsigned long long)left, ucs_status_string(status));
}

/* Takes shared memory of the near context. The pages are promised, not yet taken. */
static enum kvf_status ucx_shared_take(struct ucx *ucx, struct transport_memory *memory,
                                       uint64_t total, char *reason_out)
{
    const ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                       UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                                                       UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
                                         .length = total,
                                         .flags = UCP_MEM_MAP_ALLOCATE,
                                         .memory_type = UCS_MEMORY_TYPE_HOST};
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS | UCP_MEM_ATTR_FIELD_LENGTH};
    ucp_context_h near = ucx->contexts[TLS_NEAR].context;
    ucs_status_t status = ucp_mem_map(near, &params, &memory->handle[TRANSPORT_NEAR]);

    if (status != UCS_OK) {
        memory->handle[TRANSPORT_NEAR] = NULL;
        ucx_shared_gone(ucx, total, status, reason_out);
        return KVF_E_SHM_SPACE;
    }
    status = ucp_mem_query(memory->handle[TRANSPORT_NEAR], &attr);
    if (status != UCS_OK || attr.length < total ||
        (uintptr_t)attr.address % ucx_page_bytes() != 0 || !ucx_is_shared(attr.address)) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES,
                 "UCX gave %llu bytes of memory that other processes cannot map",
                 (unsigned long long)total);
        return KVF_E_SHM_SPACE;
    }
    memory->base = attr.address;
    return KVF_OK;
}

/* Asks again, since other ranks may have asked at the same time, then makes the pages real. */
static enum kvf_status ucx_shared_touch(struct ucx *ucx, struct transport_memory *memory,
                                        uint64_t total, char *reason_out)
{
    enum kvf_status status = KVF_OK;
    struct room room;

    if (ucx->shared_kind == ROOM_SYSV) {
        room_read(ucx->root, &room);
        if (room.memory_left != UINT64_MAX &&
            room.untouched + room.memory_spare > room.memory_left) {
            snprintf(reason_out, TRANSPORT_REASON_BYTES,
                     "the ranks of this machine need %llu bytes of shared memory together, %llu "
                     "bytes of memory are left",
                     (unsigned long long)room.untouched, (unsigned long long)room.memory_left);
            status = KVF_E_MEM_SPACE;
        }
    }
    if (status == KVF_OK) {
        status = room_touch(memory->base, total);
        if (status != KVF_OK) {
            snprintf(reason_out, TRANSPORT_REASON_BYTES,
                     "the system ran out of pages while %llu bytes of shared memory were touched",
                     (unsigned long long)total);
        }
    }
    return status;
}

static void ucx_memory_unmap(struct ucx *ucx, struct transport_memory *memory)
{
    for (int plane = TRANSPORT_FAR; plane >= TRANSPORT_NEAR; --plane) {
        if (memory->handle[plane] != NULL) {
            ucp_mem_unmap(ucx->contexts[plane].context, memory->handle[plane]);
        }
    }
}

enum kvf_status ucx_memory_alloc(void *self, uint64_t len_bytes,
                                 struct transport_memory **memory_out, char *reason_out)
{
    struct ucx *ucx = self;
    uint64_t start_ns = clock_now_ns();
    uint64_t page = ucx_page_bytes();
    struct transport_memory *memory;
    uint64_t behind, total;
    enum kvf_status status;

    reason_out[0] = '\0';
    if (len_bytes == 0 || len_bytes > UINT64_MAX / 4) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "a pool of %llu bytes cannot be",
                 (unsigned long long)len_bytes);
        return KVF_E_INVAL;
    }
    behind = (len_bytes + page - 1) / page * page;
    total = behind + page;
    status = ucx_check_room(ucx, total, reason_out);
    if (status != KVF_OK) {
        return status;
    }
    memory = kvf_alloc(ucx->heap, 1, sizeof(*memory));
    if (memory == NULL) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "out of memory");
        return KVF_E_NOMEM;
    }
    memory->ucx = ucx;
    memory->len_bytes = len_bytes;
    memory->shared = true;
    if (getrandom(&memory->proof, sizeof(memory->proof), 0) != sizeof(memory->proof)) {
        memory->proof = start_ns * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid();
    }
    status = ucx_shared_take(ucx, memory, total, reason_out);
    if (status == KVF_OK) {
        status = ucx_shared_touch(ucx, memory, total, reason_out);
    }
    if (status == KVF_OK) {
        status = ucx_register_with(ucx, TLS_FAR, memory, total, reason_out);
    }
    if (status != KVF_OK) {
        goto release_memory;
    }
    memcpy((char *)memory->base + behind, &memory->proof, sizeof(memory->proof));
    atomic_fetch_add(&ucx->shared_bytes, total);
    memory->cost_ns = clock_now_ns() - start_ns;
    *memory_out = memory;
    return KVF_OK;

release_memory:
    ucx_memory_unmap(ucx, memory);
    kvf_release(ucx->heap, memory);
    return status;
}

enum kvf_status ucx_memory_register(void *self, void *base, uint64_t len_bytes,
                                    struct transport_memory **memory_out, char *reason_out)
{
    struct ucx *ucx = self;
    uint64_t start_ns = clock_now_ns();
    struct transport_memory *memory;
    enum kvf_status status;

    reason_out[0] = '\0';
    if (base == NULL || len_bytes == 0 || len_bytes > UINTPTR_MAX - (uintptr_t)base) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "%llu bytes at %p cannot be registered",
                 (unsigned long long)len_bytes, base);
        return KVF_E_INVAL;
    }
    memory = kvf_alloc(ucx->heap, 1, sizeof(*memory));
    if (memory == NULL) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "out of memory");
        return KVF_E_NOMEM;
    }
    memory->ucx = ucx;
    memory->base = base;
    memory->len_bytes = len_bytes;
    status = ucx_register_with(ucx, TLS_NEAR, memory, len_bytes, reason_out);
    if (status == KVF_OK) {
        status = ucx_register_with(ucx, TLS_FAR, memory, len_bytes, reason_out);
    }
    if (status != KVF_OK) {
        ucx_memory_unmap(ucx, memory);
        kvf_release(ucx->heap, memory);
        return status;
    }
    memory->cost_ns = clock_now_ns() - start_ns;
    *memory_out = memory;
    return KVF_OK;
}

void *ucx_memory_base(const struct transport_memory *memory)
{
    return memory->base;
}

uint64_t ucx_memory_cost_ns(const struct transport_memory *memory)
{
    return memory->cost_ns;
}

void ucx_memory_release(void *self, struct transport_memory *memory)
{
    struct ucx *ucx = self;

    if (memory == NULL) {
        return;
    }
    if (memory->shared) {
        uint64_t page = ucx_page_bytes();
        atomic_fetch_sub(&ucx->shared_bytes, (memory->len_bytes + page - 1) / page * page + page);
    }
    ucx_memory_unmap(ucx, memory);
    kvf_release(ucx->heap, memory);
}

enum kvf_status ucx_memory_pack(void *self, const struct transport_memory *memory, void *key_out,
                                size_t cap_bytes, size_t *len_out)
{
    struct ucx *ucx = self;
    struct ucx_key_head head = {.magic = UCX_KEY_MAGIC,
                                .version = UCX_KEY_VERSION,
                                .flags = memory->shared ? UCX_KEY_SHARED : 0,
                                .base = (uint64_t)(uintptr_t)memory->base,
                                .len_bytes = memory->len_bytes,
                                .proof = memory->proof};
    void *keys[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0};
    enum kvf_status status = KVF_OK;

    *len_out = 0;
    for (int plane = 0; plane < 2; ++plane) {
        ucs_status_t answer = ucp_rkey_pack(ucx->contexts[plane].context, memory->handle[plane],
                                            &keys[plane], &bytes[plane]);
        if (answer != UCS_OK) {
            status = ucx_status(answer);
            goto release_keys;
        }
    }
    *len_out = sizeof(head) + bytes[0] + bytes[1];
    if (*len_out > cap_bytes) {
        status = KVF_E_TOO_LARGE;
        goto release_keys;
    }
    head.near_bytes = (uint32_t)bytes[0];
    head.far_bytes = (uint32_t)bytes[1];
    char *behind = (char *)key_out + sizeof(head);
    memcpy(behind, keys[0], bytes[0]);
    memcpy(behind + bytes[0], keys[1], bytes[1]);
    head.checksum = ucx_key_checksum(&head, behind, bytes[0] + bytes[1]);
    memcpy(key_out, &head, sizeof(head));

release_keys:
    for (int plane = 0; plane < 2; ++plane) {
        if (keys[plane] != NULL) {
            ucp_rkey_buffer_release(keys[plane]);
        }
    }
    return status;
}

/* Checks all that can be checked of a packed key. */
static enum kvf_status ucx_key_read(const void *key, size_t len_bytes,
                                    struct ucx_key_head *head_out)
{
    if (len_bytes < sizeof(*head_out)) {
        return KVF_E_TRUNCATED;
    }
    memcpy(head_out, key, sizeof(*head_out));
    if (head_out->magic != UCX_KEY_MAGIC || head_out->version != UCX_KEY_VERSION ||
        head_out->reserved != 0 || (head_out->flags & ~UCX_KEY_SHARED) != 0) {
        return KVF_E_DECODE;
    }
    if ((uint64_t)head_out->near_bytes + head_out->far_bytes != len_bytes - sizeof(*head_out)) {
        return KVF_E_TRUNCATED;
    }
    if (head_out->checksum != ucx_key_checksum(head_out, (const char *)key + sizeof(*head_out),
                                               len_bytes - sizeof(*head_out))) {
        return KVF_E_CHECKSUM;
    }
    if (head_out->len_bytes == 0 || head_out->len_bytes > UINT64_MAX - head_out->base) {
        return KVF_E_DECODE;
    }
    return KVF_OK;
}

/* Maps the peer's memory and looks for the proof. `remote->mapped` stays NULL where it is not. */
static void ucx_remote_map(struct transport_remote *remote, const struct ucx_key_head *head,
                           char *reason_out)
{
    uint64_t page = ucx_page_bytes();
    uint64_t behind = (head->len_bytes + page - 1) / page * page;
    uint64_t found;
    void *mapped;
    ucs_status_t status;

    if ((head->flags & UCX_KEY_SHARED) == 0) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES,
                 "its owner registered memory of its own; only pools taken by kvf_pool_alloc are "
                 "shared");
        return;
    }
    status = ucp_rkey_ptr(remote->key, head->base, &mapped);
    if (status != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "UCX cannot map it: %s",
                 ucs_status_string(status));
        return;
    }
    memcpy(&found, (const char *)mapped + behind, sizeof(found));
    if (found != head->proof) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES,
                 "the mapping is not the peer's memory: the proof word behind it differs");
        return;
    }
    remote->mapped = mapped;
}

enum kvf_status ucx_remote_open(void *self, uint32_t peer, const void *key, size_t len_bytes,
                                struct transport_remote **remote_out, char *reason_out)
{
    struct ucx *ucx = self;
    struct transport_remote *remote;
    struct ucx_key_head head;
    enum kvf_status status;
    ucs_status_t answer;

    reason_out[0] = '\0';
    if (peer >= ucx->peers_max || !ucx->peers[peer].known || ucx->peers[peer].closing) {
        return KVF_E_NOTFOUND;
    }
    status = ucx_key_read(key, len_bytes, &head);
    if (status != KVF_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "its key of %zu bytes is not one", len_bytes);
        return status;
    }
    remote = kvf_alloc(ucx->heap, 1, sizeof(*remote));
    if (remote == NULL) {
        return KVF_E_NOMEM;
    }
    remote->ucx = ucx;
    remote->peer = peer;
    remote->plane = ucx->peers[peer].near ? TRANSPORT_NEAR : TRANSPORT_FAR;
    remote->base = head.base;
    remote->len_bytes = head.len_bytes;
    const char *plane_key =
        (const char *)key + sizeof(head) + (remote->plane == TRANSPORT_NEAR ? 0 : head.near_bytes);
    answer = ucp_ep_rkey_unpack(ucx->peers[peer].endpoint[remote->plane], plane_key, &remote->key);
    if (answer != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "the %s context cannot use its key: %s",
                 tls_context_name((int)remote->plane), ucs_status_string(answer));
        kvf_release(ucx->heap, remote);
        return KVF_E_NO_PATH;
    }
    if (remote->plane == TRANSPORT_NEAR) {
        ucx_remote_map(remote, &head, reason_out);
    } else {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "the peer is on another host");
    }
    *remote_out = remote;
    return KVF_OK;
}

uint64_t ucx_remote_base(const struct transport_remote *remote)
{
    return remote->base;
}

uint64_t ucx_remote_len(const struct transport_remote *remote)
{
    return remote->len_bytes;
}

void *ucx_remote_mapped(const struct transport_remote *remote)
{
    return remote->mapped;
}

enum transport_plane ucx_remote_plane(const struct transport_remote *remote)
{
    return remote->plane;
}

static void ucx_remote_free(struct transport_remote *remote)
{
    ucp_rkey_destroy(remote->key);
    kvf_release(remote->ucx->heap, remote);
}

void ucx_remote_release(void *self, struct transport_remote *remote)
{
    struct ucx *ucx = self;

    if (remote == NULL) {
        return;
    }
    if (remote->puts == 0) {
        ucx_remote_free(remote);
        return;
    }
    remote->released = true;
    remote->next = ucx->dying;
    ucx->dying = remote;
}

void ucx_remote_put_ended(struct transport_remote *remote)
{
    struct transport_remote **link = &remote->ucx->dying;

    KVF_ASSERT(remote->puts > 0);
    if (--remote->puts > 0 || !remote->released) {
        return;
    }
    while (*link != remote) {
        link = &(*link)->next;
    }
    *link = remote->next;
    ucx_remote_free(remote);
}

void ucx_remotes_drop(struct ucx *ucx)
{
    while (ucx->dying != NULL) {
        struct transport_remote *remote = ucx->dying;
        ucx->dying = remote->next;
        ucx_remote_free(remote);
    }
}
