/*
 * faults.h - planted faults of `kvferry run --faults`: the words of a SPEC, and what a request
 * gets, drawn from (seed, request id), so that all ranks know it alike without a message.
 *
 * Pure. May include public headers.
 */
#ifndef LAUNCH_FAULTS_H
#define LAUNCH_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>
#include <kvferry/kvf_topology.h>

#define FAULTS_ALL_RANKS UINT32_MAX
#define FAULTS_NO_RANK UINT32_MAX
#define FAULTS_AT_END UINT32_MAX

/* X(name, word): what becomes of a request; at most one of them each. docs/run.md, "Faults". */
#define FAULTS_FATE_LIST(X) \
    X(CANCEL_GEN, "cancel-gen") \
    X(CANCEL_CTX, "cancel-ctx") \
    X(FAIL_BEFORE, "fail-before") \
    X(FAIL_AFTER, "fail-after") \
    X(WRONG_SIZE, "wrong-size") \
    X(SHORT, "short") \
    X(NO_CTX, "no-ctx") \
    X(NO_GEN, "no-gen")

enum fault_fate {
    FAULT_NONE,
#define FAULT_X(name, word) FAULT_##name,
    FAULTS_FATE_LIST(FAULT_X)
#undef FAULT_X
        FAULT_FATES
};

/* X(name, word): what comes on top; each is drawn by itself. None changes how a request ends. */
#define FAULTS_EXTRA_LIST(X) \
    X(SLOW, "slow") \
    X(TWICE, "twice") \
    X(UNKNOWN, "unknown") \
    X(SILENT, "silent")

enum fault_extra {
#define FAULT_X(name, word) FAULT_##name,
    FAULTS_EXTRA_LIST(FAULT_X)
#undef FAULT_X
        FAULT_EXTRAS
};

/* When a side gives a request up. */
enum fault_when {
    FAULT_AT_OPEN,     /* in the same step, before the other side can know of it */
    FAULT_AFTER,       /* `passes` turns of the engine's loop later, if it has not ended */
    FAULT_AT_OUTCOME,  /* as READY or SENT is returned */
    FAULT_AT_RELEASED, /* after its last event */
};
#define FAULT_WHENS 4

struct fault_spec {
    bool any; /* a SPEC was given */
    double fates[FAULT_FATES];
    double extras[FAULT_EXTRAS];
    uint64_t slow_ms;   /* a slow writer waits so long before each piece */
    uint64_t silent_ms; /* a silent writer's process stands still so long */
    uint32_t kill_rank; /* of the world, which ends itself with SIGKILL; or FAULTS_NO_RANK */
    uint32_t kill_at;   /* when so many requests have ended on it, or FAULTS_AT_END */
};

struct fault {
    enum fault_fate fate;
    bool extras[FAULT_EXTRAS];
    enum fault_when when;
    uint32_t passes;
    uint32_t who; /* a number to take modulo the ranks of the group, or FAULTS_ALL_RANKS */
    bool again;   /* the cancel is made twice */
};

/*
 * "word=P%", "word-ms=N" or "kill=RANK@N" with commas between. False: text_out (OPTIONS_TEXT_BYTES
 * long) names the word, the value and what was wanted; an unknown word names the nearest.
 */
bool faults_parse(const char *text, struct fault_spec *spec_out, char *text_out);

/* What one request gets. */
struct fault faults_draw(const struct fault_spec *spec, uint64_t seed, uint64_t rid);

/* True when the fault makes the request end badly whatever happens first. */
bool faults_is_certain(enum fault_fate fate);

/*
 * May a request with this fault end so on a side? `status` is that of its outcome, KVF_OK = READY
 * or SENT. `synchronous`: receives are waited for, and given up by a deadline.
 */
bool faults_allows(const struct fault *fault, enum kvf_side side, bool synchronous,
                   enum kvf_status status);

const char *fault_fate_word(enum fault_fate fate);
const char *fault_extra_word(enum fault_extra extra);

#endif /* LAUNCH_FAULTS_H */
