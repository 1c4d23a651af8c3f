/*
 * transport.h - the outside of the transfer layer: messages, puts, mappings. A table of calls that
 * do not block, one implementation over UCX (transport_ucx*.c), one fake and one fault decorator in
 * tests/support.
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
#define TRANSPORT_REASON_BYTES 192u

/* Names one operation; echoed in the sink. Given by the caller, meaning unknown here. */
typedef uint64_t transport_token;

/* What the transport tells. Called only from inside poll(); may call send, put, flush. */
struct transport_sink {
    void *self;
    /* A whole control message arrived; `bytes` is valid during the call. The sender is not known
     * here: it is in the message's header, checked by the machines. */
    void (*message)(void *self, const void *bytes, size_t len_bytes);
    /*
     * A put, flush, send or close ended. `status` OK: a put is locally complete, a flush proves that
     * all earlier puts of that (peer, plane) are remotely complete, a send no longer needs its
     * bytes.
     */
    void (*done)(void *self, transport_token token, enum kvf_status status);
    /* The control (or far) endpoint of a peer reported an error: gone or cut off. Once per peer. */
    void (*peer_error)(void *self, uint32_t peer, enum kvf_status status);
};

struct transport {
    size_t size;
    void *self;

    /*
     * This rank's address: worker addresses of the three contexts, host identity, pid. `len_out` is
     * set in any case; E_TOO_LARGE if cap_bytes is too small.
     */
    enum kvf_status (*address)(void *self, void *address_out, size_t cap_bytes, size_t *len_out);

    /*
     * Learns a peer's address (copies) and makes its endpoints. Endpoints are made here and nowhere
     * else, so that no two threads connect to one peer at once. After it send, import and put work.
     */
    enum kvf_status (*connect)(void *self, uint32_t peer, const void *address, size_t len_bytes);

    /* Same host (boot id, node name, IPC and PID namespace) as this rank. Any thread. */
    bool (*is_near)(void *self, uint32_t peer);

    /* pid of a near peer, for a pidfd; 0 = unknown or far. Any thread. */
    uint32_t (*peer_pid)(void *self, uint32_t peer);

    /*
     * Memory that near peers can map (UCX shared memory); page-aligned, zeroed. Compares with what
     * the machine has before it takes anything: E_SHM_SPACE, E_MEM_SPACE, text in `reason_out`.
     * Gives: memory_release(). MPI thread, before connect.
     */
    enum kvf_status (*memory_alloc)(void *self, uint64_t len_bytes,
                                    struct transport_memory **memory_out, char *reason_out);
    /* Registers memory of the caller for puts. */
    enum kvf_status (*memory_register)(void *self, void *base, uint64_t len_bytes,
                                       struct transport_memory **memory_out, char *reason_out);
    void *(*memory_base)(const struct transport_memory *memory);
    /* Packs what a peer needs to reach it: keys of both planes. */
    enum kvf_status (*memory_pack)(void *self, const struct transport_memory *memory, void *key_out,
                                   size_t cap_bytes, size_t *len_out);
    void (*memory_release)(void *self, struct transport_memory *memory); /* NULL is fine */

    /*
     * Opens a peer's memory from its packed key. Near: tries to map it and proves the sharing.
     * `reason_out` (TRANSPORT_REASON_BYTES) says why it is not mapped, "" if it is. Gives:
     * remote_release(), only after the last access into the mapping has ended.
     */
    enum kvf_status (*remote_open)(void *self, uint32_t peer, const void *key, size_t len_bytes,
                                   uint64_t base, struct transport_remote **remote_out,
                                   char *reason_out);
    /* Local address of the peer's base, NULL = not mapped. Any thread. */
    void *(*remote_mapped)(const struct transport_remote *remote);
    /* Which plane puts into it take. */
    enum transport_plane (*remote_plane)(const struct transport_remote *remote);
    void (*remote_release)(void *self, struct transport_remote *remote); /* NULL is fine */

    /*
     * Queues a control message. Borrows `bytes` until done(token). BUSY when the transport holds
     * too many already. In order per peer as far as UCX keeps it (docs/protocol.md, T1).
     */
    enum kvf_status (*send)(void *self, uint32_t peer, const void *bytes, size_t len_bytes,
                            transport_token token);

    /*
     * Writes len_bytes from `local` (inside `source`, which may be NULL: not registered) to
     * `address` of the peer's space. Returns OK = complete at once (no done call), AGAIN =
     * done(token) follows, negative = not posted. Borrows the source bytes until then.
     */
    enum kvf_status (*put)(void *self, struct transport_remote *remote,
                           const struct transport_memory *source, const void *local,
                           uint64_t address, uint64_t len_bytes, transport_token token);

    /* Remote completion of all earlier puts of (peer, plane). Same returns as put. */
    enum kvf_status (*flush)(void *self, uint32_t peer, enum transport_plane plane,
                             transport_token token);

    /*
     * Closes the endpoints of a peer; `force` drops what is pending (far and control only).
     * done(token) when over. After it the peer is unknown.
     */
    enum kvf_status (*disconnect)(void *self, uint32_t peer, bool force, transport_token token);

    /* Makes progress on all three workers; returns how many things happened. Never blocks. */
    uint32_t (*poll)(void *self);

    /*
     * Descriptors to sleep on (three at most); -1 are none. arm() is called right before sleeping:
     * OK = sleep now, AGAIN = something happened, poll first.
     */
    void (*descriptors)(void *self, int fds_out[3]);
    enum kvf_status (*arm)(void *self);

    /*
     * Ends; everything must have been released. `deadline_ns` (monotonic clock) bounds endpoint
     * closing.
     */
    void (*close)(void *self, uint64_t deadline_ns);
};

#endif /* XFER_TRANSPORT_H */
