/*
 * path.c - see path.h.
 *
 * May not include anything but base.
 */
#include "xfer/path.h"

#include <stddef.h>

static bool path_allowed(const struct path_facts *facts, enum kvf_path path)
{
    return (facts->allowed & (UINT32_C(1) << path)) != 0;
}

static enum kvf_status path_refuse(enum path_reason why, enum kvf_path *path_out,
                                   enum path_reason *reason_out)
{
    *path_out = KVF_PATH_NONE;
    *reason_out = why;
    return KVF_E_NO_PATH;
}

/* A rung that is forced is taken or the write is refused; a rung that is forbidden is not there. */
static enum kvf_status path_forced(const struct path_facts *facts, enum kvf_path *path_out,
                                   enum path_reason *reason_out)
{
    if (facts->forced == KVF_PATH_BOUNCE || facts->forced == KVF_PATH_TWOSIDED) {
        return path_refuse(PATH_REASON_NOT_BUILT, path_out, reason_out);
    }
    if (!path_allowed(facts, facts->forced)) {
        return path_refuse(PATH_REASON_NONE_LEFT, path_out, reason_out);
    }
    if (facts->forced == KVF_PATH_MAPPED && !facts->all_mapped) {
        return path_refuse(PATH_REASON_NOT_MAPPED, path_out, reason_out);
    }
    if (facts->forced == KVF_PATH_DIRECT && !facts->all_reachable) {
        return path_refuse(PATH_REASON_NO_RKEY, path_out, reason_out);
    }
    *path_out = facts->forced;
    *reason_out = PATH_REASON_FORCED;
    return KVF_OK;
}

static enum path_reason path_why_direct(const struct path_facts *facts)
{
    if (facts->all_mapped) {
        return PATH_REASON_FORBIDDEN;
    }
    return facts->near ? PATH_REASON_NOT_SHARED : PATH_REASON_FAR;
}

enum kvf_status path_choose(const struct path_facts *facts, uint64_t payload_bytes,
                            enum kvf_path *path_out, enum path_reason *reason_out)
{
    if (payload_bytes == 0) {
        *path_out = KVF_PATH_NONE;
        *reason_out = PATH_REASON_NO_BYTES;
        return KVF_OK;
    }
    if (facts->forced != KVF_PATH_NONE) {
        return path_forced(facts, path_out, reason_out);
    }
    if (facts->all_mapped && path_allowed(facts, KVF_PATH_MAPPED)) {
        *path_out = KVF_PATH_MAPPED;
        *reason_out = PATH_REASON_MAPPED;
        return KVF_OK;
    }
    if (path_allowed(facts, KVF_PATH_DIRECT)) {
        if (!facts->all_reachable) {
            return path_refuse(PATH_REASON_NO_RKEY, path_out, reason_out);
        }
        *path_out = KVF_PATH_DIRECT;
        *reason_out = path_why_direct(facts);
        return KVF_OK;
    }
    return path_refuse(PATH_REASON_NONE_LEFT, path_out, reason_out);
}

const char *path_reason_text(enum path_reason reason)
{
    switch (reason) {
    case PATH_REASON_NO_BYTES:
        return "nothing to move";
    case PATH_REASON_MAPPED:
        return "the peer's pools are mapped";
    case PATH_REASON_FORCED:
        return "the setting path asks for it";
    case PATH_REASON_FAR:
        return "the peer is on another host";
    case PATH_REASON_NOT_SHARED:
        return "the peer's pools cannot be mapped";
    case PATH_REASON_FORBIDDEN:
        return "the setting paths forbids the higher rungs";
    case PATH_REASON_NOT_BUILT:
        return "the rung is not part of this build";
    case PATH_REASON_NOT_MAPPED:
        return "mapped was asked for, but the peer's pools cannot be mapped";
    case PATH_REASON_NO_RKEY:
        return "no remote key reaches the peer";
    case PATH_REASON_NONE_LEFT:
        return "the setting paths allows no rung that holds";
    }
    return "unknown reason";
}

const char *path_name(enum kvf_path path)
{
    switch (path) {
    case KVF_PATH_NONE:
        return "none";
    case KVF_PATH_MAPPED:
        return "mapped";
    case KVF_PATH_DIRECT:
        return "direct";
    case KVF_PATH_BOUNCE:
        return "bounce";
    case KVF_PATH_TWOSIDED:
        return "twosided";
    }
    return "unknown";
}
