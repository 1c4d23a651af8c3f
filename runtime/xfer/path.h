/*
 * path.h - the ladder: which rung a write takes, and why. Pure.
 *
 * Decided per (peer, write) from facts about the two ranks and figures of the plan; the first rung
 * that holds wins. Admission is final: a write that fails on its rung fails, it is not tried again
 * on another one.
 *
 * May not include anything but base.
 */
#ifndef XFER_PATH_H
#define XFER_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvferry.h>

/* Why the rung was taken or the higher one was not. Texts: path_reason_text(). */
enum path_reason {
    PATH_REASON_NO_BYTES,   /* nothing to move: not elected, or the window is empty */
    PATH_REASON_MAPPED,     /* the peer's pools are mapped */
    PATH_REASON_FORCED,     /* the setting `path` asks for it */
    PATH_REASON_FAR,        /* direct: peer on another host */
    PATH_REASON_NOT_SHARED, /* direct: the peer's pools cannot be mapped */
    PATH_REASON_FORBIDDEN,  /* direct: the setting `paths` forbids higher rungs */
    PATH_REASON_NOT_BUILT,  /* refused: the rung is not part of this build */
    PATH_REASON_NOT_MAPPED, /* refused: mapped was forced but the pools cannot be mapped */
    PATH_REASON_NO_RKEY,    /* refused: no remote key reaches the peer */
    PATH_REASON_NONE_LEFT,  /* refused: no allowed rung holds */
};

/* Facts of one (writer, reader) pair. */
struct path_facts {
    bool near;            /* same host */
    bool all_mapped;      /* every pool of the reader is mapped here */
    bool all_reachable;   /* every pool of the reader has a usable remote key */
    uint32_t allowed;     /* bit 1 << enum kvf_path: the setting `paths` */
    enum kvf_path forced; /* the setting `path`; KVF_PATH_NONE = auto */
};

/*
 * OK and the rung, or E_NO_PATH; the reason in both cases. `bytes` 0 gives KVF_PATH_NONE.
 */
enum kvf_status path_choose(const struct path_facts *facts, uint64_t payload_bytes,
                            enum kvf_path *path_out, enum path_reason *reason_out);

/* Never NULL. */
const char *path_reason_text(enum path_reason reason);

/* "mapped", "direct", "bounce", "twosided", "none". */
const char *path_name(enum kvf_path path);

#endif /* XFER_PATH_H */
