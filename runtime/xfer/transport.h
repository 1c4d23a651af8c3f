/*
 * transport.h - the outside of the transfer layer: messages, puts, mappings. A table of calls that
 * do not block, one implementation over UCX (*_ucx.c, opened by transport_open.h), one fake and one
 * fault decorator in tests/support.
 *
 * Peers are named by world rank. One thread, the one that steps the machines, makes all calls
 * except those marked otherwise, and receives all calls of the sink, from inside poll() only.
 *
 * May not decide anything: which rung is taken, what a failed put means and when pages are free is
 * decided by the machines.
 */
#ifndef XFER_TRANSPORT_H
#define XFER_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

/* Where a data operation goes: design "UCX contexts". */
enum transport_plane {
    TRANSPORT_NEAR, /* same node (or NVLink domain): no error mode, mappings end by us alone */
    TRANSPORT_FAR,  /* other nodes: peer error mode */
};

/* A piece of local memory that peers may reach. Opaque. */
struct transport_memory;

/* A peer's memory as this rank reaches it. Opaque. */
struct transport_remote;

/* Sizes are ceilings for buffers of the caller. */
#define TRANSPORT_ADDRESS_BYTES_MAX 8192u
#define TRANSPORT_KEY_BYTES_MAX 2048u
#define TRANSPORT_REASON_BYTES 512u

/* Names one operation; echoed in the sink. Given by the caller, meaning unknown here. */
typedef uint64_t transport_token;

/* What the transport tells. Called only from inside poll(); may call send, put, flush. */
struct transport_sink {
    void *self;
    /* A whole control message arrived; `bytes` is valid during the call and need not be aligned.
     * The sender is not known here: it is in the message's header, checked by the machines. */
    void (*message)(void *self, const void *bytes, size_t len_bytes);
    /*
     * A put, flush, send or disconnect ended. `status` OK: a put is locally complete, a flush
     * proves that all earlier puts of that (peer, plane) are remotely complete, a send no longer
     * needs its bytes. Exactly once for each call that returned AGAIN.
     */
    void (*done)(void *self, transport_token token, enum kvf_status status);
    /*
     * The control (or far) endpoint of a peer reported an error: it is gone or cut off. Once per
     * connect(), after the done() calls that the error caused so far. On shared memory a killed
     * peer is reported late or never.
     */
    void (*peer_error)(void *self, uint32_t peer, enum kvf_status status);
};

/* One write into a peer's memory. */
struct transport_put {
    struct transport_remote *remote;
    const struct transport_memory *source; /* holds `local`, or NULL: not registered */
    const void *local;                     /* borrows until the put is done */
    uint64_t address;                      /* of the peer's space, inside `remote` */
    uint64_t len_bytes;                    /* > 0 */
    transport_token token;
};

struct transport {
    size_t size;
    void *self;

    /* Copies. Before the first poll(); until then nothing is told. */
    void (*set_sink)(void *self, const struct transport_sink *sink);

    /*
     * This rank's address: worker addresses of the three contexts, host identity, pid. `len_out` is
     * set in any case; E_TOO_LARGE if cap_bytes is too small.
     */
    enum kvf_status (*address)(void *self, void *address_out, size_t cap_bytes, size_t *len_out);

    /*
     * Learns a peer's address (copies) and makes its endpoints. Endpoints are made here and nowhere
     * else, and by one thread, so that no two threads connect to one peer at once. After it send,
     * remote_open and put work. UCX connects on first use: a flush() right after it brings the
     * connection up. E_DECODE: not an address; E_EXISTS; E_UCX.
     */
    enum kvf_status (*connect)(void *self, uint32_t peer, const void *address, size_t len_bytes);

    /* Same host (boot id, node name, IPC and PID namespace) as this rank. Any thread. */
    bool (*is_near)(void *self, uint32_t peer);

    /* pid of a near peer, for a pidfd; 0 = unknown or far. Any thread. */
    uint32_t (*peer_pid)(void *self, uint32_t peer);

    /*
     * Memory that near peers can map (UCX shared memory); page-aligned, zeroed, touched. Compares
     * with what the machine has before it takes anything: E_SHM_SPACE, E_MEM_SPACE, text in
     * `reason_out` (TRANSPORT_REASON_BYTES). Gives: memory_release(). Blocks while pages are
     * touched. MPI thread, before connect.
     */
    enum kvf_status (*memory_alloc)(void *self, uint64_t len_bytes,
                                    struct transport_memory **memory_out, char *reason_out);
    /* Registers memory of the caller for puts; borrows it until memory_release(). MPI thread. */
    enum kvf_status (*memory_register)(void *self, void *base, uint64_t len_bytes,
                                       struct transport_memory **memory_out, char *reason_out);
    void *(*memory_base)(const struct transport_memory *memory);
    /* What memory_alloc or memory_register took: allocating, touching, registering. */
    uint64_t (*memory_cost_ns)(const struct transport_memory *memory);
    /* Packs what a peer needs to reach it: base, length, keys of both planes. `len_out` is set in
     * any case; E_TOO_LARGE if cap_bytes is too small. */
    enum kvf_status (*memory_pack)(void *self, const struct transport_memory *memory, void *key_out,
                                   size_t cap_bytes, size_t *len_out);
    void (*memory_release)(void *self, struct transport_memory *memory); /* NULL is fine */

    /*
     * Opens a peer's memory from its packed key. Near: tries to map it and proves the sharing.
     * `reason_out` (TRANSPORT_REASON_BYTES) says why it is not mapped, "" if it is. Gives:
     * remote_release(), only after the last access into the mapping has ended.
     */
    enum kvf_status (*remote_open)(void *self, uint32_t peer, const void *key, size_t len_bytes,
                                   struct transport_remote **remote_out, char *reason_out);
    /* Range in the peer's space, as its key says it. Any thread. */
    uint64_t (*remote_base)(const struct transport_remote *remote);
    uint64_t (*remote_len)(const struct transport_remote *remote);
    /* Local address of the peer's base, NULL = not mapped. Any thread. */
    void *(*remote_mapped)(const struct transport_remote *remote);
    /* Which plane puts into it take. */
    enum transport_plane (*remote_plane)(const struct transport_remote *remote);
    void (*remote_release)(void *self, struct transport_remote *remote); /* NULL is fine */

    /*
     * Queues a control message. Returns OK = its bytes are no longer needed (no done call), AGAIN =
     * borrows `bytes` until done(token), BUSY = the transport holds too many already, negative =
     * not queued. In order per peer as far as UCX keeps it (docs/protocol.md, T1).
     */
    enum kvf_status (*send)(void *self, uint32_t peer, const void *bytes, size_t len_bytes,
                            transport_token token);

    /*
     * Returns OK = complete at once (no done call), AGAIN = done(token) follows, BUSY = too many
     * posted already, negative = not posted (E_INVAL: outside the remote memory).
     */
    enum kvf_status (*put)(void *self, const struct transport_put *put);

    /*
     * Remote completion of all earlier puts of (peer, plane). Same returns as put; E_NOTFOUND: that
     * peer has no such endpoint (near peers have no far one, far peers no near one).
     */
    enum kvf_status (*flush)(void *self, uint32_t peer, enum transport_plane plane,
                             transport_token token);

    /*
     * Closes the endpoints of a peer, whose remotes were released. `force` drops what is pending:
     * far and control posts end with an error; near ones, which nothing can end, are told
     * E_PEER_LOST and their source bytes stay borrowed until close(). All are told before this
     * call's done. Returns AGAIN: done(token) when over, and the peer is unknown. E_NOTFOUND, BUSY.
     */
    enum kvf_status (*disconnect)(void *self, uint32_t peer, bool force, transport_token token);

    /*
     * Makes progress on all three workers; returns how many things happened (0 = idle). Never
     * blocks.
     */
    uint32_t (*poll)(void *self);

    /*
     * Descriptors to sleep on (three at most); -1 are none. arm() is called right before sleeping:
     * OK = sleep now, AGAIN = something happened, poll first.
     */
    void (*descriptors)(void *self, int fds_out[3]);
    enum kvf_status (*arm)(void *self);

    /*
     * Ends and frees the table; memory and remotes must have been released. `deadline_ns`
     * (monotonic clock) bounds endpoint closing; what is still open then is dropped. Tells nothing
     * more.
     */
    void (*close)(void *self, uint64_t deadline_ns);
};

#endif /* XFER_TRANSPORT_H */
