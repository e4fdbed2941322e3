"""How a rank in Python serves the benchmark's driver, as measure.hpp says for C++."""

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

    def part(self, ranks: int) -> int:
        """How many elements each of `ranks` parts has."""
        return max(self.bytes // 4 // ranks, 1)


class Prepared(NamedTuple):
    """The calls of a row: one operation from start to end, and the writing of what this rank passes in."""

    call: Callable[[], object]
    rewrite: Callable[[], object]


class System(ABC):
    """What is measured."""

    @abstractmethod
    def rank(self) -> int:
        """This process's rank."""

    @abstractmethod
    def barrier(self) -> None:
        """Wait for all ranks."""

    @abstractmethod
    def max_over_ranks(self, value: float) -> float:
        """The largest of all ranks' values."""

    @abstractmethod
    def prepare(self, row: Row) -> Prepared:
        """The calls of a row, or NotImplementedError."""


def measure(system: System, prepared: Prepared, row: Row) -> float:
    """Seconds of one operation, as the slowest rank saw it."""
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
    """Run rows until the driver closes the pipe."""
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
