/*
 * topo_hwloc.c - cores and memory nodes as hwloc knows them: hardware threads of one core belong
 * together, and a control group may allow less of the machine than there is.
 */
#include <hwloc.h>
#include <hwloc/glibc-sched.h>
#include <stdio.h>

#include "topo.h"

/* Processors, cores and memory nodes are all that is asked for: no devices, which take long. */
static int topo_load(hwloc_topology_t topology)
{
    static const hwloc_obj_type_t kept[] = {HWLOC_OBJ_CORE, HWLOC_OBJ_PU, HWLOC_OBJ_NUMANODE};

    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (unsigned i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
        hwloc_topology_set_type_filter(topology, kept[i], HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
    return hwloc_topology_load(topology);
}

/* All hardware threads of the caller's core. */
static void topo_caller(hwloc_topology_t topology, struct topo *topo)
{
    hwloc_bitmap_t at = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;

    if (at == NULL)
        return;
    if (hwloc_cpuset_from_glibc_sched_affinity(topology, at, &topo->caller, sizeof(topo->caller)) ==
        0)
        core = hwloc_get_next_obj_covering_cpuset_by_type(topology, at, HWLOC_OBJ_CORE, NULL);
    if (core != NULL)
        hwloc_cpuset_to_glibc_sched_affinity(topology, core->cpuset, &topo->caller,
                                             sizeof(topo->caller));
    hwloc_bitmap_free(at);
}

static void topo_facts(hwloc_topology_t topology, hwloc_const_bitmap_t allowed, struct topo *topo)
{
    hwloc_bitmap_t nodes = hwloc_bitmap_alloc();
    hwloc_obj_t core = NULL;
    uint32_t cores = 0;

    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != NULL)
        cores += hwloc_bitmap_intersects(core->cpuset, allowed) ? 1 : 0;
    if (cores > 0)
        topo->cores = cores;
    topo->bound = !hwloc_bitmap_isincluded(hwloc_topology_get_topology_cpuset(topology), allowed);
    if (nodes == NULL)
        return;
    hwloc_cpuset_to_nodeset(topology, allowed, nodes);
    hwloc_bitmap_list_snprintf(topo->numa, sizeof(topo->numa), nodes);
    hwloc_bitmap_free(nodes);
}

void topo_hwloc(struct topo *topo)
{
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;

    if (hwloc_topology_init(&topology) != 0)
        return;
    allowed = hwloc_bitmap_alloc();
    if (allowed != NULL && topo_load(topology) == 0 &&
        hwloc_cpuset_from_glibc_sched_affinity(topology, allowed, &topo->allowed,
                                               sizeof(topo->allowed)) == 0) {
        topo_caller(topology, topo);
        topo_facts(topology, allowed, topo);
    }
    hwloc_bitmap_free(allowed);
    hwloc_topology_destroy(topology);
}
