/*
 * contexts_ucx.c - the three UCP contexts and their workers: version, transports, identity.
 *
 * docs/architecture.md says why there are three. The near context is opened first: it needs no
 * network and tells which components this UCX has.
 *
 * May not make endpoints.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "xfer/transport_ucx.h"

#define UCX_VALUE_BYTES 512u
#define UCX_LINES_MAX 4096

/* Settings of one context beside TLS. */
struct ucx_setting {
    const char *name;
    const char *value;
};

static const struct ucx_setting ucx_settings_near[] = {{NULL, NULL}};
static const struct ucx_setting ucx_settings_far[] = {{"KEEPALIVE_INTERVAL", "1s"}, {NULL, NULL}};
static const struct ucx_setting ucx_settings_control[] = {
    {"KEEPALIVE_INTERVAL", "1s"}, /* decisions on peers that die: see docs/architecture.md */
    {"MM_ERROR_HANDLING", "y"},   /* else messages inside a node take TCP, 13 times slower */
    {"RNDV_THRESH", "inf"},       /* a rendezvous would be overtaken by later messages */
    {"MAX_EAGER_LANES", "1"},     /* so would a message that is spread over several lanes */
    {"RNDV_SCHEME", "am"},        /* else near peers get idle TCP connections for rendezvous */
    {NULL, NULL}};

enum kvf_status ucx_status(ucs_status_t status)
{
    /* Not a switch: UCX's own list is open-ended. */
    if (status == UCS_OK) {
        return KVF_OK;
    }
    if (status == UCS_ERR_NO_MEMORY) {
        return KVF_E_NOMEM;
    }
    if (status == UCS_ERR_CANCELED) {
        return KVF_E_CANCELLED;
    }
    if (status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_ENDPOINT_TIMEOUT ||
        status == UCS_ERR_UNREACHABLE || status == UCS_ERR_NOT_CONNECTED ||
        status == UCS_ERR_REJECTED) {
        return KVF_E_PEER_LOST;
    }
    return KVF_E_UCX;
}

/* Path of the libucp that answers now. */
static const char *ucx_library_path(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "ucp_get_version");

    if (symbol == NULL) {
        symbol = (void *)(uintptr_t)ucp_get_version;
    }
    return dladdr(symbol, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "?";
}

const char *transport_ucx_version(char *text_out, size_t text_bytes)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    snprintf(text_out, text_bytes, "%u.%u.%u from %s", major, minor, release, ucx_library_path());
    return text_out;
}

/* Newer ones of the same major keep the interface; an older one lacks what we were built with. */
static enum kvf_status ucx_check_version(char *reason_out)
{
    unsigned major, minor, release;

    ucp_get_version(&major, &minor, &release);
    if (major == UCP_API_MAJOR && minor >= UCP_API_MINOR) {
        return KVF_OK;
    }
    snprintf(reason_out, TRANSPORT_REASON_BYTES,
             "UCX %u.%u.%u is loaded from %.256s, built against %d.%d: another library of this "
             "process brought its own UCX first",
             major, minor, release, ucx_library_path(), UCP_API_MAJOR, UCP_API_MINOR);
    return KVF_E_UCX_VERSION;
}

/* The value of a setting as UCX sees it, from the environment or its own files; "" = not found. */
static void ucx_config_value(const ucp_config_t *config, const char *name, char *value_out)
{
    char *text = NULL;
    size_t text_bytes = 0;
    size_t name_bytes = strlen(name);
    FILE *file = open_memstream(&text, &text_bytes);

    value_out[0] = '\0';
    if (file == NULL) {
        return;
    }
    ucp_config_print(config, file, NULL, UCS_CONFIG_PRINT_CONFIG);
    if (fclose(file) == 0) {
        const char *line = text;
        for (int i = 0; i < UCX_LINES_MAX && line != NULL; ++i) {
            if (strncmp(line, name, name_bytes) == 0 && line[name_bytes] == '=') {
                const char *value = line + name_bytes + 1;
                snprintf(value_out, UCX_VALUE_BYTES, "%.*s", (int)strcspn(value, "\n"), value);
                break;
            }
            line = strchr(line, '\n');
            line = line == NULL ? NULL : line + 1;
        }
    }
    free(text);
}

/* Components and devices of a context, as text; the caller frees it. NULL = out of memory. */
static char *ucx_context_text(ucp_context_h context)
{
    char *text = NULL;
    size_t text_bytes = 0;
    FILE *file = open_memstream(&text, &text_bytes);

    if (file == NULL) {
        return NULL;
    }
    ucp_context_print_info(context, file);
    if (fclose(file) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* Every device that UCX_NET_DEVICES names must be one that the far context has. */
static enum kvf_status ucx_check_devices(ucp_context_h far, const char *devices, char *reason_out)
{
    char word[64], mark[72];
    char *text;
    enum kvf_status status = KVF_OK;

    if (devices[0] == '\0' || devices[0] == '^' || strpbrk(devices, "*?[") != NULL) {
        return KVF_OK;
    }
    text = ucx_context_text(far);
    for (size_t i = 0; text != NULL && tls_word(devices, i, word, sizeof(word)); ++i) {
        snprintf(mark, sizeof(mark), "/%s", word);
        if (strcmp(word, "all") != 0 && word[0] != '\0' && strstr(text, mark) == NULL) {
            snprintf(reason_out, TRANSPORT_REASON_BYTES,
                     "UCX_NET_DEVICES=%.128s: the far context has no device %s", devices, word);
            status = KVF_E_NO_TRANSPORT;
            break;
        }
    }
    free(text);
    return status;
}

static bool ucx_sysv_works(void)
{
    int id = shmget(IPC_PRIVATE, (size_t)sysconf(_SC_PAGESIZE), IPC_CREAT | 0600);
    void *address;

    if (id < 0) {
        return false;
    }
    address = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    if (address == (void *)-1) {
        return false;
    }
    shmdt(address);
    return true;
}

/* Copies a word from itself to itself: denied in many containers. */
static bool ucx_cma_works(void)
{
    char from = 'k', to = 0;
    const struct iovec local = {&to, 1}, remote = {&from, 1};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1;
}

static enum kvf_status ucx_configure(ucp_config_t *config, const char *tls,
                                     const struct ucx_setting *settings, char *reason_out)
{
    const struct ucx_setting list[] = {{"TLS", tls}, {NULL, NULL}};
    const struct ucx_setting *const sets[] = {list, settings};

    for (size_t s = 0; s < 2; ++s) {
        for (const struct ucx_setting *one = sets[s]; one->name != NULL; ++one) {
            ucs_status_t status = ucp_config_modify(config, one->name, one->value);
            if (status != UCS_OK) {
                snprintf(reason_out, TRANSPORT_REASON_BYTES, "UCX refuses UCX_%s=%.200s: %s",
                         one->name, one->value, ucs_status_string(status));
                return KVF_E_UCX;
            }
        }
    }
    return KVF_OK;
}

static enum kvf_status ucx_worker_open(struct ucx_context *context, char *reason_out)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    ucs_status_t status = ucp_worker_create(context->context, &params, &context->worker);

    context->fd = -1;
    if (status == UCS_OK) {
        status = ucp_worker_get_efd(context->worker, &context->fd);
        if (status == UCS_OK && context->fd < 0) {
            status = UCS_ERR_UNSUPPORTED;
        }
        if (status != UCS_OK) {
            ucp_worker_destroy(context->worker);
            context->worker = NULL;
        }
    }
    if (status != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES,
                 "no UCX worker with a descriptor to sleep on: %s", ucs_status_string(status));
        return KVF_E_UCX;
    }
    return KVF_OK;
}

static enum kvf_status ucx_context_open(struct ucx *ucx, enum tls_context which,
                                        const struct tls_facts *facts, char *reason_out)
{
    static const struct ucx_setting *const settings[UCX_CONTEXTS] = {
        ucx_settings_near, ucx_settings_far, ucx_settings_control};
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED |
                      UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = (which == TLS_CONTROL ? UCP_FEATURE_AM : UCP_FEATURE_RMA) | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1, /* pools are mapped by one thread while another makes progress */
        .estimated_num_eps = ucx->peers_max};
    struct ucx_context *context = &ucx->contexts[which];
    char devices[UCX_VALUE_BYTES] = "";
    ucp_config_t *config;
    enum kvf_status status;
    ucs_status_t answer;

    status = tls_list(facts, which, context->tls, reason_out, TRANSPORT_REASON_BYTES);
    if (status != KVF_OK) {
        return status;
    }
    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "UCX cannot read its settings");
        return KVF_E_UCX;
    }
    ucx_config_value(config, "UCX_NET_DEVICES", devices);
    status = ucx_configure(config, context->tls, settings[which], reason_out);
    if (status == KVF_OK && which == TLS_NEAR) {
        const struct ucx_setting allocator[] = {
            {"ALLOC_PRIO", ucx->shared_kind == ROOM_SYSV ? "md:sysv" : "md:posix"}, {NULL, NULL}};
        status = ucx_configure(config, context->tls, allocator, reason_out);
    }
    if (status != KVF_OK) {
        goto release_config;
    }
    answer = ucp_init(&params, config, &context->context);
    if (answer != UCS_OK) {
        status = answer == UCS_ERR_NO_DEVICE ? KVF_E_NO_TRANSPORT : ucx_status(answer);
        snprintf(
            reason_out, TRANSPORT_REASON_BYTES,
            "the %s context has no usable transport: %s (UCX_TLS=%.96s, UCX_NET_DEVICES=%.64s, "
            "tried \"%.96s\")",
            tls_context_name(which), ucs_status_string(answer),
            facts->user[0] == '\0' ? "all" : facts->user, devices, context->tls);
        context->context = NULL;
        goto release_config;
    }
    status = ucx_worker_open(context, reason_out);
    if (status == KVF_OK && which == TLS_FAR) {
        status = ucx_check_devices(context->context, devices, reason_out);
    }

release_config:
    ucp_config_release(config);
    return status;
}

enum kvf_status ucx_contexts_open(struct ucx *ucx, char *reason_out)
{
    char user[UCX_VALUE_BYTES] = "";
    char *present = NULL;
    struct tls_facts facts = {.user = user};
    enum kvf_status status = ucx_check_version(reason_out);
    ucp_config_t *config;
    const char *shared;

    if (status != KVF_OK) {
        return status;
    }
    if (ucp_config_read(NULL, NULL, &config) != UCS_OK) {
        snprintf(reason_out, TRANSPORT_REASON_BYTES, "UCX cannot read its settings");
        return KVF_E_UCX;
    }
    ucx_config_value(config, "UCX_TLS", user);
    ucp_config_release(config);
    facts.sysv = ucx_sysv_works();
    facts.cma = ucx_cma_works();
    shared = tls_shared(&facts);
    ucx->shared_kind = shared != NULL && strcmp(shared, "posix") == 0 ? ROOM_POSIX : ROOM_SYSV;

    status = ucx_context_open(ucx, TLS_NEAR, &facts, reason_out);
    if (status != KVF_OK) {
        goto close_contexts;
    }
    present = ucx_context_text(ucx->contexts[TLS_NEAR].context);
    facts.present = present;
    status = ucx_context_open(ucx, TLS_FAR, &facts, reason_out);
    if (status == KVF_OK) {
        status = ucx_context_open(ucx, TLS_CONTROL, &facts, reason_out);
    }

close_contexts:
    free(present);
    if (status != KVF_OK) {
        ucx_contexts_close(ucx);
    }
    return status;
}

void ucx_contexts_close(struct ucx *ucx)
{
    for (int i = UCX_CONTEXTS - 1; i >= 0; --i) {
        struct ucx_context *context = &ucx->contexts[i];
        if (context->worker != NULL) {
            ucp_worker_destroy(context->worker);
            context->worker = NULL;
        }
        if (context->context != NULL) {
            ucp_cleanup(context->context);
            context->context = NULL;
        }
    }
}

/* Adds a name space's identity, as the kernel prints it. */
static void ucx_hash_link(XXH64_state_t *hash, const char *root, const char *path)
{
    char full[256], target[128];
    ssize_t len;

    snprintf(full, sizeof(full), "%.200s/%s", root, path);
    len = readlink(full, target, sizeof(target));
    if (len > 0) {
        XXH64_update(hash, target, (size_t)len);
    }
}

uint64_t ucx_host_identity(const char *root)
{
    XXH64_state_t hash;
    struct utsname names;
    char path[256], line[128];
    FILE *file;

    XXH64_reset(&hash, 0);
    snprintf(path, sizeof(path), "%.200s/proc/sys/kernel/random/boot_id", root);
    file = fopen(path, "re");
    if (file != NULL) {
        if (fgets(line, sizeof(line), file) != NULL) {
            XXH64_update(&hash, line, strlen(line));
        }
        fclose(file);
    }
    if (uname(&names) == 0) {
        XXH64_update(&hash, names.nodename, strlen(names.nodename));
    }
    ucx_hash_link(&hash, root, "proc/self/ns/ipc");
    ucx_hash_link(&hash, root, "proc/self/ns/pid");
    return XXH64_digest(&hash);
}
