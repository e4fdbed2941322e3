"""The self-test of `hookline doctor`: an allreduce of two ranks on each backend, verified and timed.

As a program it runs one rank: `python -m hookline.cli.self_test threads`, `mpirun -n 2 python -m
hookline.cli.self_test mpi`, and `hookline run -n 2 -m hookline.cli.self_test BACKEND` for any other backend.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

import hookline as hl

from .report import Finding, State, format_duration

RANKS = 2
SIZES = {"1 KiB": (1 << 8, 200), "4 MiB": (1 << 20, 10)}  # number of float32 values, repetitions
DEADLINE = 60.0
MISSING = "not installed: "


def measure(group: hl.ProcessGroup, sizes: Mapping[str, tuple[int, int]] = SIZES) -> dict[str, float]:
    """Runs allreduces, verifies every value, and returns the median time in seconds by size."""
    medians = {}
    for name, (values, times) in sizes.items():
        array, taken = np.empty(values, np.float32), []
        for number in range(times + times // 10):
            array[:] = group.rank() + number
            begin = time.perf_counter()
            group.allreduce([array], timeout=DEADLINE / 4).wait()
            taken.append(time.perf_counter() - begin)
            total = group.size() * (group.size() - 1) // 2 + group.size() * number
            wrong = np.flatnonzero(array != total)
            if wrong.size:
                raise AssertionError(
                    f"allreduce: wrong sum at index {wrong[0]}: expected {total}, got {array[wrong[0]]}"
                )
        medians[name] = float(np.median(taken[times // 10 :]))
    return medians


def run_threads() -> dict[str, float]:
    """Runs the test with ranks that are threads of this process."""
    groups = hl.make_thread_groups(RANKS)
    other = threading.Thread(target=measure, args=(groups[1],), daemon=True)
    other.start()
    return measure(groups[0])


def command(backend: str) -> list[str]:
    """Returns the command that runs the test on one backend."""
    module = ["-m", __name__, backend]
    if backend == "threads":
        return [sys.executable, *module]
    if backend == "mpi":
        return ["mpirun", "-n", str(RANKS), sys.executable, *module]
    return [sys.executable, "-m", "hookline", "run", "-n", str(RANKS), *module]


def environment() -> dict[str, str]:
    """Returns the environment in which Open MPI starts two ranks also on one core and as root."""
    allowed = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")
    return {**os.environ, **dict.fromkeys(allowed, "1")}


def try_backend(backend: str, line: Sequence[str] | None = None) -> Finding:
    """Runs the test for one backend in new processes."""
    line = line or command(backend)
    if backend == "mpi" and shutil.which(line[0]) is None:
        return Finding(State.NOT_APPLICABLE, f"mpi: no MPI launcher: {line[0]} is not in the PATH")
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, env=environment()
        )
    except subprocess.TimeoutExpired:
        return Finding(
            State.FAIL,
            f"{backend}: allreduce of two ranks timed out after {DEADLINE:g} s",
            f"find where it hangs: HOOKLINE_DEBUG=flight_recorder {' '.join(command(backend))}",
        )
    except OSError as error:
        return Finding(State.FAIL, f"{backend}: cannot start two ranks: {error}", "see the limits above")
    if "plm_rsh" in done.stderr:
        return Finding(
            State.FAIL,
            "mpi: mpirun finds neither ssh nor rsh, which Open MPI 4 requires even on one host",
            "install an ssh client, or set OMPI_MCA_plm_rsh_agent=sh",
        )
    output = done.stdout.strip().splitlines()
    if output and output[-1].startswith(MISSING):
        return Finding(State.NOT_APPLICABLE, f"{backend}: {output[-1].removeprefix(MISSING)}")
    if done.returncode != 0 or not output or not output[-1].startswith("{"):
        last = (done.stderr.strip().splitlines() or ["no output"])[-1].strip()
        return Finding(
            State.FAIL,
            f"{backend}: allreduce of two ranks failed: {last}",
            f"see the limits above; for the full output run: {' '.join(command(backend))}",
        )
    times = ", ".join(f"{size} in {format_duration(taken)}" for size, taken in json.loads(output[-1]).items())
    return Finding(State.OK, f"{backend}: allreduce of two ranks: {times}")


def main(backend: str) -> None:
    """Runs one rank. Rank 0 prints the times, or what to install if the backend is missing."""
    if backend == "threads":
        print(json.dumps(run_threads()))
        return
    try:
        group = hl.init_process_group(backend=backend, timeout=DEADLINE / 4)
    except hl.Unsupported as error:
        print(MISSING + str(error))
        return
    times = measure(group)
    if group.rank() == 0:
        print(json.dumps(times))


if __name__ == "__main__":
    main(sys.argv[1])
