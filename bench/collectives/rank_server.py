"""Runs the driver's rows on a rank written in Python; measure.hpp does the same for C++."""

from __future__ import annotations

import gc
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BATCHES = 9  # as in measure.cpp


class Row(NamedTuple):
    """One line from the driver."""

    op: str
    bytes: int
    memory: str
    fresh: bool
    repeats: int

    def elements_per_rank(self, ranks: int) -> int:
        """Returns the number of elements of each of `ranks` blocks, at least 1."""
        return max(self.bytes // 4 // ranks, 1)


class Prepared(NamedTuple):
    """The calls of a row: one blocking operation, and a function that rewrites this rank's input."""

    call: Callable[[], object]
    rewrite: Callable[[], object]


class System(ABC):
    """A process group of the measured library."""

    @abstractmethod
    def rank(self) -> int:
        """Returns this process's rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Waits for all ranks."""

    @abstractmethod
    def max_over_ranks(self, value: float) -> float:
        """Returns the largest of all ranks' values."""

    @abstractmethod
    def prepare(self, row: Row) -> Prepared:
        """Returns the calls of a row. Raises NotImplementedError if the system does not support it."""


def measure(system: System, prepared: Prepared, row: Row) -> float:
    """Returns the time of one operation on the slowest rank, in seconds."""
    call, rewrite = prepared
    for _ in range(1 + row.repeats // 10):
        call()
    times = []
    if row.fresh:
        for _ in range(row.repeats):
            rewrite()
            system.barrier()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    else:
        system.barrier()
        batches = min(row.repeats, BATCHES)
        for _ in range(batches):
            start = time.perf_counter()
            for _ in range(row.repeats // batches):
                call()
            times.append((time.perf_counter() - start) / (row.repeats // batches))
    return system.max_over_ranks(statistics.median(times))


def serve(system: System, directory: Path) -> None:
    """Runs rows until the driver closes the pipe."""
    prepared: dict[tuple[str, int, str], Prepared] = {}
    reply = open(directory / "reply", "w") if system.rank() == 0 else None  # noqa: SIM115
    answer = "ready"
    with open(directory / str(system.rank())) as commands:
        while True:
            if reply:
                print(answer, file=reply, flush=True)
            line = commands.readline()
            while line == "drop\n":
                prepared.clear()
                gc.collect()
                line = commands.readline()
            if not line:
                return
            op, size, memory, fresh, repeats = line.split()
            row = Row(op, int(size), memory, fresh == "1", int(repeats))
            try:
                if row[:3] not in prepared:
                    prepared[row[:3]] = system.prepare(row)
                    prepared[row[:3]].rewrite()
                answer = str(measure(system, prepared[row[:3]], row))
            except (NotImplementedError, RuntimeError) as error:
                answer = f"unsupported: {error}".splitlines()[0]
