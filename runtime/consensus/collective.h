/*
 * collective.h - what the sweep needs of the outside: all ranks of a group give a few bytes and get
 * everybody's, without any call that waits; and a word to all when the group is lost.
 *
 * One implementation over MPI (collective_mpi.c), one for a group of one rank (collective_alone.c),
 * one fake in tests/support. One thread: the one that may call MPI. May not include mpi.h.
 */
#ifndef CONSENSUS_COLLECTIVE_H
#define CONSENSUS_COLLECTIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvferry/kvf_status.h>

#include "heap.h"

#define COLLECTIVE_WORD_BYTES 16u

struct collective {
    size_t size;
    void *self;
    uint32_t rank;
    uint32_t rank_count;
    uint32_t slots;       /* collectives that may be under way at once, started in turn */
    size_t len_max_bytes; /* of one rank's bytes */

    /*
     * Starts one in `slot`, which must be free: every rank starts the same ones in the same order
     * with the same length. Copies. Errors: E_MPI.
     */
    enum kvf_status (*start)(void *self, uint32_t slot, const void *bytes, size_t len_bytes);
    /* OK: complete; AGAIN. Errors: E_MPI, E_GROUP_LOST (the library says that a member is dead). */
    enum kvf_status (*test)(void *self, uint32_t slot);
    /*
     * What the ranks gave, one after the other, after test() said OK; until the slot's next start.
     */
    const uint8_t *(*result)(void *self, uint32_t slot);

    /* Sends a word to every member without waiting for any of them. */
    void (*tell)(void *self, const uint8_t word[COLLECTIVE_WORD_BYTES]);
    /* The next word that a member told, or false. */
    bool (*hear)(void *self, uint8_t word_out[COLLECTIVE_WORD_BYTES]);
    /* A test said AGAIN: makes way where there are more ranks than cores. Short, bounded. */
    void (*rest)(void *self, uint32_t times);

    /*
     * The group is lost. Nothing is started or tested any more; what is under way may still write
     * into its buffers, which therefore stay for as long as the process.
     */
    void (*abandon)(void *self);
    /* Collective where nothing was abandoned. Frees what no collective may still write into. */
    void (*close)(void *self);
};

/* A group of one: complete at once, no library. Gives: close(). Errors: E_NOMEM. */
enum kvf_status collective_alone_open(const struct kvf_heap *heap, size_t len_max_bytes,
                                      struct collective **collective_out);

#endif /* CONSENSUS_COLLECTIVE_H */
