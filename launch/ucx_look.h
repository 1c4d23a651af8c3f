/*
 * ucx_look.h - the UCX library that this process has loaded: where it lies, and whether it can use
 * RDMA. Asks the dynamic loader and looks for UCX's modules; never calls UCX.
 */
#ifndef LAUNCH_UCX_LOOK_H
#define LAUNCH_UCX_LOOK_H

#include <stdbool.h>
#include <stddef.h>

struct ucx_look {
    char path[4096]; /* of libucp; empty: none is loaded */
    bool has_rdma;   /* its module for InfiniBand and RoCE is there */
};

void ucx_look(struct ucx_look *look_out);

/* The same for a library at a path. */
void ucx_look_at(const char *path, struct ucx_look *look_out);

#endif /* LAUNCH_UCX_LOOK_H */
