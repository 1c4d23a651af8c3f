#!/usr/bin/env python3
"""What the sweep replaces, as an engine in Python does it: a pickled all-gather of the ids of all live requests and
a set intersection. For comparison with `kvferry bench sweep`; needs mpi4py.

usage: mpirun -n N python3 tests/scale/gather_ids.py [ROUNDS]
"""

import sys
import time

from mpi4py import MPI


def main(rounds):
    comm = MPI.COMM_WORLD
    if comm.rank == 0:
        print(f"{comm.size} ranks, us of {rounds} rounds\n  live      p50      p99")
    for live in (16, 256, 2048, 4096):
        ids = [1000 + 7 * i for i in range(live)]
        times = []
        for _ in range(rounds):
            comm.Barrier()
            start = time.perf_counter()
            common = set.intersection(*map(set, comm.allgather(ids)))
            times.append((time.perf_counter() - start) * 1e6)
            assert len(common) == live
        times.sort()
        if comm.rank == 0:
            print(f"{live:6} {times[rounds // 2]:8.1f} {times[int((rounds - 1) * 0.99)]:8.1f}")


main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
