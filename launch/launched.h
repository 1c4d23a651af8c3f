/*
 * launched.h - the start and the end of a command whose ranks a launcher started: nobody leaves
 * before what is wrong has been said, all end with the same code, and a rank that is lost ends the
 * others in bounded time.
 *
 * A launcher takes the whole job down when one rank ends with an error. So a rank that has nothing
 * to say may not end before the one that has.
 *
 * One thread: that of MPI. May include MPI.
 */
#ifndef LAUNCH_LAUNCHED_H
#define LAUNCH_LAUNCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <mpi.h>

struct launched {
    int rank, size;
    int node_rank, node_size; /* among the ranks of this node */
};

/*
 * Starts MPI and meets all ranks. False: MPI cannot be started, which has been said. A world that
 * does not come together ends this process with EXIT_DAMAGED.
 */
bool launched_start(struct launched *launched_out);

/*
 * The worst code of all ranks. The lowest rank that has it says its text, unless that is NULL or
 * empty. Collective.
 */
int launched_agree(int code, const char *text);

/* True when it is so on all ranks. Collective. */
bool launched_all(bool fine);

/* Sum over the ranks of this node. Collective over the world. */
uint64_t launched_node_sum(uint64_t value);

/* Waits for a collective; a rank that is lost meanwhile ends this process with EXIT_DAMAGED. */
void launched_wait(MPI_Request *request);

/*
 * Has a rank of this node ended although MPI has not? A rank of another node is not seen by this.
 */
bool launched_lost(void);

/*
 * Says which ranks are gone (all of them: who leaves because of a lost rank looks lost as well),
 * and ends this process with EXIT_DAMAGED: MPI_Finalize might hang.
 */
_Noreturn void launched_leave(const char *when);

/*
 * Starts a command of two ranks whose options were parsed with this result. False: *code_out is
 * what it shall end with, and all is said. Help is printed by the caller, before.
 */
bool launched_start_pair(const char *name, bool parsed, const char *text, int *rank_out,
                         int *code_out);

/* Agrees on the code and ends MPI. Returns what this process shall end with. Collective. */
int launched_end(int code);

/*
 * A command that ends before it has started MPI: says the text (once, under a launcher) and returns
 * the code. Collective under a launcher.
 */
int launched_refuse(int code, const char *text);

#endif /* LAUNCH_LAUNCHED_H */
