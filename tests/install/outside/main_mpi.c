/* main_mpi.c - as main.c, with the header that opens over a communicator. */
#include <kvferry/kvferry_mpi.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    int status = 0;

    MPI_Init(&argc, &argv);
    /* No parameters: refused, and by the library that was found. */
    if (kvf_open_mpi(MPI_COMM_WORLD, NULL, NULL) != KVF_E_INVAL) {
        fprintf(stderr, "kvf_open_mpi without parameters is not refused\n");
        status = 1;
    }
    printf("kvferry %s over MPI\n", kvf_version());
    MPI_Finalize();
    return status;
}
