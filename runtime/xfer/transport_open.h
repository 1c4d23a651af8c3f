/*
 * transport_open.h - opens the transport over UCX. No UCX type stands here.
 *
 * May be included by glue and by tests that link UCX.
 */
#ifndef XFER_TRANSPORT_OPEN_H
#define XFER_TRANSPORT_OPEN_H

#include "heap.h"
#include "log.h"
#include "xfer/transport.h"

/* Zero means: take the default. */
struct transport_ucx_params {
    const struct kvf_heap *heap; /* required; borrows until close */
    const struct logger *logger; /* borrows until close; NULL = standard error */
    uint32_t rank;               /* this rank, for texts */
    uint32_t peers_max;          /* ranks of the world, > 0: peers are 0 .. peers_max - 1 */
    uint32_t operations_max;     /* sends, puts, flushes, disconnects that wait for done(); 4,096 */
    uint64_t shared_bytes_max;   /* all memory_alloc() of this rank together; 0 = what is free */
    const char *machine_root;    /* where /proc and /sys are read, for tests; NULL = "/" */
};

/*
 * Opens three contexts and their workers (design "UCX contexts"). The sink is given later by
 * set_sink(). Undoes all on an error and says why in `reason_out` (TRANSPORT_REASON_BYTES).
 * Errors: E_UCX_VERSION, E_NO_TRANSPORT (names the context and the value of UCX_TLS or
 * UCX_NET_DEVICES), E_UCX, E_NOMEM, E_INVAL. Gives: close() of the table. Blocks (UCX looks at the
 * machine's devices). MPI thread.
 */
enum kvf_status transport_ucx_open(const struct transport_ucx_params *params,
                                   struct transport **transport_out, char *reason_out);

/* "1.22.0 from /usr/lib/libucp.so.0": what is loaded now. Returns text_out. Any thread. */
const char *transport_ucx_version(char *text_out, size_t text_bytes);

#endif /* XFER_TRANSPORT_OPEN_H */
