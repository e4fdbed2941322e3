"""The self-test of `hookline doctor`: two ranks add arrays up, and the time that it takes them.

Run as a program it is those ranks: `python -m hookline.cli.self_test threads`, `mpirun -n 2 python -m
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

from .findings import Finding, State, time_text

RANKS = 2
SIZES = {"1 KiB": (1 << 8, 200), "4 MiB": (1 << 20, 10)}  # values of float32, and how often
DEADLINE = 60.0
MISSING = "not installed: "


def measure(group: hl.ProcessGroup, sizes: Mapping[str, tuple[int, int]] = SIZES) -> dict[str, float]:
    """Sums arrays and looks at every value; the median time of each size, in seconds."""
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
                raise AssertionError(f"value {wrong[0]} of the sum is {array[wrong[0]]}, not {total}")
        medians[name] = float(np.median(taken[times // 10 :]))
    return medians


def run_threads() -> dict[str, float]:
    """The test with ranks that are threads of this process."""
    groups = hl.threads_groups(RANKS)
    other = threading.Thread(target=measure, args=(groups[1],), daemon=True)
    other.start()
    return measure(groups[0])


def command(backend: str) -> list[str]:
    """What to execute for one backend."""
    module = ["-m", __name__, backend]
    if backend == "threads":
        return [sys.executable, *module]
    if backend == "mpi":
        return ["mpirun", "-n", str(RANKS), sys.executable, *module]
    return [sys.executable, "-m", "hookline", "run", "-n", str(RANKS), *module]


def environment() -> dict[str, str]:
    """Has Open MPI start two ranks also where there is one core, and for root."""
    may = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe")
    return {**os.environ, **dict.fromkeys(may, "1")}


def try_backend(backend: str, line: Sequence[str] | None = None) -> Finding:
    """Runs the test for one backend in processes of its own."""
    line = line or command(backend)
    if backend == "mpi" and shutil.which(line[0]) is None:
        return Finding(State.ABSENT, f"mpi: there is no {line[0]} in the PATH, which starts programs with MPI")
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE, env=environment()
        )
    except subprocess.TimeoutExpired:
        return Finding(
            State.WRONG,
            f"{backend}: an allreduce of two ranks was not done in {DEADLINE:g} s",
            f"see where it hangs: HOOKLINE_DEBUG=recorded {' '.join(command(backend))}",
        )
    except OSError as error:
        return Finding(State.WRONG, f"{backend}: two ranks cannot be started: {error}", "see the limits above")
    if "plm_rsh" in done.stderr:
        return Finding(
            State.WRONG,
            "mpi: mpirun finds neither ssh nor rsh, which Open MPI 4 wants on one host, too",
            "install an ssh client, or set OMPI_MCA_plm_rsh_agent=sh",
        )
    said = done.stdout.strip().splitlines()
    if said and said[-1].startswith(MISSING):
        return Finding(State.ABSENT, f"{backend}: {said[-1].removeprefix(MISSING)}")
    if done.returncode != 0 or not said or not said[-1].startswith("{"):
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1].strip()
        return Finding(
            State.WRONG,
            f"{backend}: two ranks cannot add up: {last}",
            f"see the limits above, and all of it with: {' '.join(command(backend))}",
        )
    times = ", ".join(f"{size} in {time_text(taken)}" for size, taken in json.loads(said[-1]).items())
    return Finding(State.OK, f"{backend}: two ranks add up: {times}")


def main(backend: str) -> None:
    """One rank; the first one prints the times, and a backend that is not there what to install."""
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
