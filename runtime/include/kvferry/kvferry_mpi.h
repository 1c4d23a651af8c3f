/*
 * kvferry_mpi.h - opening over an MPI communicator: the only public header that needs mpi.h.
 */
#ifndef KVFERRY_MPI_H
#define KVFERRY_MPI_H

#include <mpi.h>

#include <kvferry/kvferry.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Opens kvferry over the ranks of `comm`, which must be as many as the topology names. `comm` is
 * duplicated and then left alone: its error handler and its messages stay the caller's. MPI must be
 * initialised with MPI_THREAD_FUNNELED at least, by the calling thread. Collective, blocking,
 * bounded by connect_timeout_ms. Errors are alike on all ranks; one rank logs the reason.
 * `kvf_out` gives: kvf_close().
 * Errors: E_TOPOLOGY (both numbers are in the log), E_THREAD_LEVEL, E_CONFIG, E_UCX_VERSION,
 * E_NO_TRANSPORT, E_UCX, E_MPI, E_NOMEM, E_INVAL, E_WORLD.
 */
KVF_API enum kvf_status kvf_open_mpi(MPI_Comm comm, const struct kvf_open_params *params,
                                     struct kvf **kvf_out);

#ifdef __cplusplus
}
#endif

#endif /* KVFERRY_MPI_H */
