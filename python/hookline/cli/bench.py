"""`hookline bench`: measures a blocking allreduce on this machine, by size; `make bench` measures much more."""

import argparse
import sys
from collections.abc import Sequence

import hookline as hl

from . import run
from .report import format_duration
from .self_test import DEADLINE, measure

SIZES = {  # number of float32 values, repetitions
    "1 KiB": (1 << 8, 500),
    "64 KiB": (1 << 14, 200),
    "1 MiB": (1 << 18, 50),
    "25 MiB": (25 << 18, 10),
}


def main(arguments: Sequence[str]) -> int:
    """Starts the ranks and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="hookline bench",
        description="Measures a blocking allreduce of float32 from Python, by size; prints the median time on rank 0.",
    )
    parser.add_argument("-n", dest="ranks", metavar="RANKS", type=int, default=2, help="number of ranks (default: 2)")
    parser.add_argument("--backend", default="shm", help="one of hookline.backend_names() (default: shm)")
    options = parser.parse_args(arguments)
    if options.ranks < 1:
        parser.error(f"-n {options.ranks}: expected at least 1 rank")
    if options.backend == "mpi":
        line = f"mpirun -n {options.ranks} {sys.executable} -m {__name__} mpi"
        parser.error(f"--backend mpi: an MPI launcher must start the ranks. Run: {line}")
    return run.main(["-n", str(options.ranks), "-m", __name__, options.backend])


if __name__ == "__main__":
    try:
        group = hl.init_process_group(backend=sys.argv[1], timeout=DEADLINE)
    except (hl.InvalidArgument, hl.Unsupported) as error:
        sys.exit(f"hookline bench: {error}")
    medians = measure(group, SIZES)
    if group.rank() == 0:
        print(f"allreduce of float32, {group.size()} ranks, {group.backend_name()}")
        for size, seconds in medians.items():
            print(f"  {size:>6}  {format_duration(seconds):>8}  {4 * SIZES[size][0] / seconds / 1e9:6.2f} GB/s")
