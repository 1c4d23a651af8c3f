/*
 * collective_fake.h - the collectives of a group in one process: every rank's bytes lie on a board
 * until all have given theirs. One thread.
 *
 * As over MPI: what a rank gave is there for good, a rank may complete what another never looks at,
 * and a word that was told arrives in order.
 */
#ifndef COLLECTIVE_FAKE_H
#define COLLECTIVE_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "consensus/collective.h"

struct fake_board;

/*
 * `slots` as in struct collective. Aborts without memory. Gives: fake_board_close(), after every
 * table's close().
 */
struct fake_board *fake_board_open(uint32_t ranks, uint32_t slots, size_t len_max_bytes);
void fake_board_close(struct fake_board *board);
/* The table of one rank; close() of it frees nothing of the board. */
struct collective *fake_board_rank(struct fake_board *board, uint32_t rank);

/* Completion is not seen by `rank` while held. */
void fake_board_hold(struct fake_board *board, uint32_t rank, bool hold);
/* Words for `rank` stay on the way while held. */
void fake_board_mute(struct fake_board *board, uint32_t rank, bool mute);
/* The next test of `rank` fails with `status`. */
void fake_board_fail(struct fake_board *board, uint32_t rank, enum kvf_status status);
/* Collectives that `rank` has started. */
uint32_t fake_board_started(const struct fake_board *board, uint32_t rank);
/* True when a test by `rank` of its oldest collective would say that it is complete. */
bool fake_board_complete(const struct fake_board *board, uint32_t rank);
/* Starts that went beyond what a group may do: another length than the others', a slot in use. */
uint32_t fake_board_faults(const struct fake_board *board);
/* Bytes that all ranks have given. */
uint64_t fake_board_bytes(const struct fake_board *board);

#endif /* COLLECTIVE_FAKE_H */
