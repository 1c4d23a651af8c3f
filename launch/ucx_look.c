/* ucx_look.c - see ucx_look.h. */
#include "ucx_look.h"

#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

static int look_at_object(struct dl_phdr_info *info, size_t bytes, void *self)
{
    struct ucx_look *look = self;
    const char *name = strrchr(info->dlpi_name, '/');

    (void)bytes;
    if (name == NULL || strncmp(name, "/libucp.so", strlen("/libucp.so")) != 0) {
        return 0;
    }
    ucx_look_at(info->dlpi_name, look);
    return 1;
}

void ucx_look_at(const char *path, struct ucx_look *look_out)
{
    const char *end = strrchr(path, '/');
    char pattern[sizeof(look_out->path) + 32];
    glob_t found = {0};

    *look_out = (struct ucx_look){.has_rdma = false};
    snprintf(look_out->path, sizeof(look_out->path), "%s", path);
    /* Modules lie in ucx/ beside the library: libuct_ib.so, libuct_ib_mlx5.so, ... */
    snprintf(pattern, sizeof(pattern), "%.*s/ucx/libuct_ib*.so*",
             end == NULL ? 1 : (int)(end - path), end == NULL ? "." : path);
    look_out->has_rdma = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
}

void ucx_look(struct ucx_look *look_out)
{
    *look_out = (struct ucx_look){.has_rdma = false};
    dl_iterate_phdr(look_at_object, look_out);
}
