/*
 * collective_mpi.c - see collective.h: one MPI_Iallgather a sweep, and empty-handed words by
 * MPI_Isend, on a communicator that nobody else uses.
 *
 * A small all-gather is one linear round in Open MPI: it needs nothing of a rank but that it has
 * started its own, so a rank that does not call for a while delays nobody who has all messages
 * (docs/consensus.md, "Skew"). No call here waits. A collective can be neither cancelled nor freed
 * while it is under way: after abandon() its memory stays for as long as the process.
 */
#include "consensus/collective_mpi.h"

#include <sched.h>
#include <string.h>
#include <time.h>

#include "check.h"

/* Fault tolerance where the library has it: Open MPI 5 with ULFM. Not needed, only faster. */
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif
#if defined(OMPI_HAVE_MPI_EXT_FTMPI) && OMPI_HAVE_MPI_EXT_FTMPI
#define COLLECTIVE_ULFM 1
#else
#define COLLECTIVE_ULFM 0
#endif

#define COLLECTIVE_WORD_TAG 1
#define COLLECTIVE_SPINS 32u     /* looks before a crowded rank sleeps instead of yielding */
#define COLLECTIVE_PATIENT 4096u /* looks before one that has its core makes way too */
#define COLLECTIVE_NAP_NS 50000L

struct collective_mpi {
    struct collective table;
    const struct kvf_heap *heap;
    MPI_Comm comm;
    bool crowded, abandoned;
    uint8_t *sent;                       /* [slots][len_max] */
    uint8_t *gathered;                   /* [slots][ranks * len_max] */
    MPI_Request *requests;               /* [slots] */
    uint8_t word[COLLECTIVE_WORD_BYTES]; /* under way to all */
};

static enum kvf_status collective_code(int code)
{
#if COLLECTIVE_ULFM
    int class = MPI_SUCCESS;

    MPI_Error_class(code, &class);
    if (class == MPIX_ERR_PROC_FAILED || class == MPIX_ERR_REVOKED)
        return KVF_E_GROUP_LOST;
#endif
    return code == MPI_SUCCESS ? KVF_OK : KVF_E_MPI;
}

static uint8_t *gathered_at(const struct collective_mpi *mpi, uint32_t slot)
{
    return mpi->gathered + (size_t)slot * mpi->table.rank_count * mpi->table.len_max_bytes;
}

static enum kvf_status mpi_start(void *self, uint32_t slot, const void *bytes, size_t len_bytes)
{
    struct collective_mpi *mpi = self;
    uint8_t *sent = mpi->sent + (size_t)slot * mpi->table.len_max_bytes;

    KVF_REQUIRE(slot < mpi->table.slots && len_bytes <= mpi->table.len_max_bytes);
    if (mpi->abandoned)
        return KVF_E_GROUP_LOST;
    memcpy(sent, bytes, len_bytes);
    return collective_code(MPI_Iallgather(sent, (int)len_bytes, MPI_BYTE, gathered_at(mpi, slot),
                                          (int)len_bytes, MPI_BYTE, mpi->comm,
                                          &mpi->requests[slot]));
}

static enum kvf_status mpi_test(void *self, uint32_t slot)
{
    struct collective_mpi *mpi = self;
    int done = 0;
    enum kvf_status status;

    if (mpi->abandoned)
        return KVF_E_GROUP_LOST;
    status = collective_code(MPI_Test(&mpi->requests[slot], &done, MPI_STATUS_IGNORE));
    return status == KVF_OK && !done ? KVF_AGAIN : status;
}

static const uint8_t *mpi_result(void *self, uint32_t slot)
{
    return gathered_at(self, slot);
}

/* Small enough to leave at once: nobody has to receive it for this to end. */
static void mpi_tell(void *self, const uint8_t word[COLLECTIVE_WORD_BYTES])
{
    struct collective_mpi *mpi = self;

    memcpy(mpi->word, word, sizeof(mpi->word));
    for (uint32_t r = 0; r < mpi->table.rank_count; r++) {
        MPI_Request request;

        if (r != mpi->table.rank &&
            MPI_Isend(mpi->word, COLLECTIVE_WORD_BYTES, MPI_BYTE, (int)r, COLLECTIVE_WORD_TAG,
                      mpi->comm, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    }
}

static bool mpi_hear(void *self, uint8_t word_out[COLLECTIVE_WORD_BYTES])
{
    struct collective_mpi *mpi = self;
    MPI_Status from;
    int there = 0;

    if (MPI_Iprobe(MPI_ANY_SOURCE, COLLECTIVE_WORD_TAG, mpi->comm, &there, &from) != MPI_SUCCESS ||
        !there)
        return false;
    return MPI_Recv(word_out, COLLECTIVE_WORD_BYTES, MPI_BYTE, from.MPI_SOURCE, COLLECTIVE_WORD_TAG,
                    mpi->comm, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

static void mpi_rest(void *self, uint32_t times)
{
    const struct collective_mpi *mpi = self;
    const struct timespec nap = {.tv_nsec = COLLECTIVE_NAP_NS};

    if (times < (mpi->crowded ? COLLECTIVE_SPINS : COLLECTIVE_PATIENT)) {
        if (mpi->crowded)
            sched_yield();
        return;
    }
    nanosleep(&nap, NULL);
}

static void mpi_abandon(void *self)
{
    struct collective_mpi *mpi = self;

#if COLLECTIVE_ULFM
    if (!mpi->abandoned)
        MPIX_Comm_revoke(mpi->comm);
#endif
    mpi->abandoned = true;
}

static void mpi_close(void *self)
{
    struct collective_mpi *mpi = self;
    const struct kvf_heap *heap = mpi->heap;

    if (mpi->abandoned)
        return; /* on purpose: MPI may write into it at any time */
    kvf_release(heap, mpi->requests);
    kvf_release(heap, mpi->gathered);
    kvf_release(heap, mpi->sent);
    kvf_release(heap, mpi);
}

enum kvf_status collective_mpi_open(const struct collective_mpi_params *params,
                                    struct collective **collective_out)
{
    struct collective_mpi *mpi;
    int rank, ranks;

    if (MPI_Comm_rank(params->comm, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(params->comm, &ranks) != MPI_SUCCESS)
        return KVF_E_MPI;
    mpi = kvf_alloc(params->heap, 1, sizeof(*mpi));
    if (mpi == NULL)
        return KVF_E_NOMEM;
    mpi->heap = params->heap;
    mpi->comm = params->comm;
    mpi->crowded = params->crowded;
    mpi->table = (struct collective){
        .size = sizeof(mpi->table),
        .self = mpi,
        .rank = (uint32_t)rank,
        .rank_count = (uint32_t)ranks,
        .slots = params->slots,
        .len_max_bytes = params->len_max_bytes,
        .start = mpi_start,
        .test = mpi_test,
        .result = mpi_result,
        .tell = mpi_tell,
        .hear = mpi_hear,
        .rest = mpi_rest,
        .abandon = mpi_abandon,
        .close = mpi_close,
    };
    mpi->sent = kvf_alloc(params->heap, params->slots, params->len_max_bytes);
    mpi->gathered = kvf_alloc(params->heap, params->slots, (size_t)ranks * params->len_max_bytes);
    mpi->requests = kvf_alloc(params->heap, params->slots, sizeof(*mpi->requests));
    if (mpi->sent == NULL || mpi->gathered == NULL || mpi->requests == NULL) {
        mpi_close(mpi);
        return KVF_E_NOMEM;
    }
    for (uint32_t s = 0; s < params->slots; s++)
        mpi->requests[s] = MPI_REQUEST_NULL;
    *collective_out = &mpi->table;
    return KVF_OK;
}
