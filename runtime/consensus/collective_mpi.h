/*
 * collective_mpi.h - the sweep's collectives over MPI.
 */
#ifndef CONSENSUS_COLLECTIVE_MPI_H
#define CONSENSUS_COLLECTIVE_MPI_H

#include <mpi.h>

#include "consensus/collective.h"

struct collective_mpi_params {
    const struct kvf_heap *heap; /* borrows until close */
    MPI_Comm comm;               /* borrows: used for nothing else; MPI_ERRORS_RETURN */
    uint32_t slots;
    size_t len_max_bytes;
    bool crowded; /* there are more ranks than cores: an unfinished test makes way */
};

/* Local. Gives: close(). Errors: E_NOMEM, E_MPI. */
enum kvf_status collective_mpi_open(const struct collective_mpi_params *params,
                                    struct collective **collective_out);

#endif /* CONSENSUS_COLLECTIVE_MPI_H */
