/*
 * kvf_status.h - the one list of status codes.
 *
 * Names, numbers, scopes and texts are made from KVF_STATUS_LIST and from nowhere else. Zero means
 * done, positive means not done yet, negative is an error. The scope says what the caller must give
 * up: the call, the request, the peer, the instance (group) or the world.
 *
 * May not include anything.
 */
#ifndef KVF_STATUS_H
#define KVF_STATUS_H

#if defined(__GNUC__)
#define KVF_API __attribute__((visibility("default")))
#else
#define KVF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, scope, text) */
#define KVF_STATUS_LIST(X) \
    X(OK, 0, NONE, "done") \
    X(AGAIN, 1, NONE, "not done yet: call again") \
    X(BUSY, 2, NONE, "no room at present: try again later") \
    X(MORE, 3, NONE, "done, and more is waiting: call again") \
    X(E_INVAL, -1, CALL, "an argument is wrong") \
    X(E_NOMEM, -2, CALL, "out of memory") \
    X(E_STATE, -3, CALL, "not allowed in this state") \
    X(E_EXISTS, -4, CALL, "the request id is in use or still remembered") \
    X(E_NOTFOUND, -5, CALL, "no such object") \
    X(E_CLOSED, -6, CALL, "the context is closing or closed") \
    X(E_UNSUPPORTED, -7, CALL, "not supported by this build or release") \
    X(E_TOO_LARGE, -8, CALL, "larger than a stated limit") \
    X(E_CONFIG, -9, CALL, "a setting is wrong") \
    X(E_TOPOLOGY, -10, WORLD, "the topology does not fit the world or the model") \
    X(E_THREAD_LEVEL, -11, WORLD, "MPI was initialised with too low a thread level") \
    X(E_MPI, -12, WORLD, "an MPI call failed") \
    X(E_UCX, -13, CALL, "a UCX call failed") \
    X(E_UCX_VERSION, -14, WORLD, "another UCX library is loaded than the one built against") \
    X(E_NO_TRANSPORT, -15, WORLD, "a UCX context is left without a usable transport") \
    X(E_SHM_SPACE, -16, CALL, "not enough shared memory") \
    X(E_MEM_SPACE, -17, CALL, "more memory needed than the machine has") \
    X(E_SYSTEM, -18, CALL, "a system call failed") \
    X(E_PARSE, -19, CALL, "text could not be understood") \
    X(E_PEER_LOST, -20, PEER, "peer rank no longer answers") \
    X(E_PEER_CLOSED, -21, PEER, "peer rank has closed") \
    X(E_INCOMPATIBLE, -22, PEER, "peer's cache geometry or version does not fit") \
    X(E_WORLD, -23, WORLD, "another rank failed to start") \
    X(E_GROUP_LOST, -24, GROUP, "a rank of this instance is lost") \
    X(E_REGISTER, -25, CALL, "memory cannot be registered for transfers") \
    X(E_CUDA, -26, CALL, "a CUDA call failed") \
    X(E_TIMEOUT, -30, REQUEST, "deadline passed") \
    X(E_CANCELLED, -31, REQUEST, "cancelled") \
    X(E_PEER_CANCELLED, -32, REQUEST, "cancelled by the other side") \
    X(E_SUPERSEDED, -33, REQUEST, "replaced by a newer ask of the same receiver") \
    X(E_GONE, -34, REQUEST, "the other side no longer holds this request") \
    X(E_NO_SESSION, -35, REQUEST, "the other side never opened this request") \
    X(E_PROTOCOL, -36, REQUEST, "the other side broke the protocol") \
    X(E_LEGACY_REQUEST, -37, REQUEST, "request form of an older release") \
    X(E_NO_PATH, -38, REQUEST, "no allowed path reaches the peer") \
    X(E_TRANSFER, -39, REQUEST, "the data transfer failed") \
    X(E_SHUTDOWN, -40, REQUEST, "shut down before it ended") \
    X(E_ABSENT, -41, REQUEST, "a rank of the instance never opened this request") \
    X(E_REFUSED, -42, REQUEST, "refused by the engine") \
    X(E_IN_DOUBT, -43, REQUEST, "access to the pages is not proven over") \
    X(E_DECODE, -50, CALL, "a message or record cannot be decoded") \
    X(E_CHECKSUM, -51, CALL, "a message or record has a wrong checksum") \
    X(E_TRUNCATED, -52, CALL, "a message or record ends too early") \
    /* geometry: a peer is refused, in the order in which the checks run */ \
    X(E_WIRE_VERSION, -100, PEER, "geometry wire versions differ") \
    X(E_ATTENTION_KIND, -101, PEER, "one side caches MLA, the other does not") \
    X(E_CP, -102, PEER, "context parallelism is not supported") \
    X(E_ELEM, -103, PEER, "cache element types differ") \
    X(E_BLOCK, -104, PEER, "tokens per block differ") \
    X(E_HEAD_DIM, -105, PEER, "head sizes differ") \
    X(E_MLA_HEADS, -106, PEER, "MLA needs one KV head per rank") \
    X(E_LAYER_TOTAL, -107, PEER, "numbers of target layers differ") \
    X(E_DRAFT_LAYERS, -108, PEER, "numbers of draft layers differ") \
    X(E_TP_RATIO, -109, PEER, "neither TP width divides the other") \
    X(E_VIEW_ROLES, -110, PEER, "views share some but not all roles") \
    X(E_VIEW_MISSING, -111, PEER, "a view has no counterpart") \
    X(E_VIEW_MISPLACED, -112, PEER, "layers are in another layer group") \
    X(E_VIEW_AMBIGUOUS, -113, PEER, "a view overlaps several peer views") \
    X(E_VIEW_LAYERS, -114, PEER, "the counterpart lacks shared layers") \
    X(E_VIEW_KIND, -115, PEER, "view layouts differ") \
    X(E_VIEW_OWNER, -116, PEER, "target view meets draft view") \
    X(E_WINDOW, -117, PEER, "sliding windows differ") \
    X(E_REPLICATED_BYTES, -118, PEER, "replicated region sizes differ") \
    X(E_HEAD_TOTAL, -119, PEER, "no single head count explains both sides") \
    X(E_HEAD_BYTES, -120, PEER, "bytes per head differ") \
    X(E_HEAD_ALIGN, -121, PEER, "a slice of one head is not byte-aligned") \
    X(E_STATE_TOTAL, -122, PEER, "state sizes differ") \
    X(E_STATE_UNIT, -123, PEER, "state units differ") \
    X(E_STATE_SECTIONS, -124, PEER, "state sections differ") \
    X(E_AUX_LAYOUT, -125, PEER, "auxiliary buffers differ") \
    /* geometry: a rank is refused by itself, at start */ \
    X(E_DP_SHAPE, -140, WORLD, "attention-DP groups do not divide TP") \
    X(E_TP_HEADS, -141, WORLD, "KV heads cannot be spread over TP") \
    X(E_LAYER_RANGE, -142, WORLD, "a layer is not on this pipeline stage") \
    X(E_VIEW_EMPTY, -143, WORLD, "a view has no buffers") \
    X(E_VIEW_ROLE_ORDER, -144, WORLD, "buffers of a view are not in role order") \
    X(E_VIEW_GAP, -145, WORLD, "buffers of a view are not back to back") \
    X(E_VIEW_NONUNIFORM, -146, WORLD, "layers of a view differ in size") \
    X(E_VIEW_BOUNDS, -147, WORLD, "a view leaves its pool") \
    X(E_VIEW_MIXED_HEADS, -148, WORLD, "a view mixes head counts") \
    X(E_REPLICATED_HEADS, -149, WORLD, "a replicated view declares heads") \
    X(E_HEADS_UNKNOWN, -150, WORLD, "the head count of a view is unknown") \
    /* geometry: a request is refused */ \
    X(E_REQ_GROUPS, -160, REQUEST, "wrong number of block lists") \
    X(E_REQ_SLOT, -161, REQUEST, "a slot is outside its pool") \
    X(E_REQ_SLOT_TWICE, -162, REQUEST, "a destination slot is named twice") \
    X(E_REQ_BLOCKS, -163, REQUEST, "a wanted block is not held by the sender") \
    X(E_REQ_PIECE, -164, REQUEST, "the piece does not fit the prompt or the blocks") \
    X(E_REQ_STATE, -165, REQUEST, "no state slot") \
    X(E_REQ_AUX, -166, REQUEST, "no auxiliary slot")

enum kvf_status {
#define KVF_STATUS_X(name, number, scope, text) KVF_##name = number,
    KVF_STATUS_LIST(KVF_STATUS_X)
#undef KVF_STATUS_X
};

/* What a negative status asks the caller to give up. */
enum kvf_scope {
    KVF_SCOPE_NONE,
    KVF_SCOPE_CALL,
    KVF_SCOPE_REQUEST,
    KVF_SCOPE_PEER,
    KVF_SCOPE_GROUP,
    KVF_SCOPE_WORLD,
};

/* Short text of a status, never NULL (an unknown number gives "unknown status"). Any thread. */
KVF_API const char *kvf_status_text(enum kvf_status status);

/* Name of a status as written in the list, e.g. "E_PEER_LOST". Any thread. */
KVF_API const char *kvf_status_name(enum kvf_status status);

/* Scope of a status; KVF_SCOPE_CALL for an unknown number. Any thread. */
KVF_API enum kvf_scope kvf_status_scope(enum kvf_status status);

#ifdef __cplusplus
}
#endif

#endif /* KVF_STATUS_H */
