"""The performance targets: the minimum speedup or the maximum time of a row."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from results import Results
from rows import KIB, MIB, Row, size_text


class Target(NamedTuple):
    """A target and the measured value."""

    description: str
    measured: float
    bound: str
    met: bool

    def __str__(self) -> str:
        return f"{'met' if self.met else 'MISSED':<7} {self.description:<78} {self.measured:7.2f}  ({self.bound})"


def check(results: Results) -> list[Target]:
    """Returns the targets whose rows were measured."""
    return [target for target in all_targets(results) if not math.isnan(target.measured)]


def all_targets(results: Results) -> Iterator[Target]:
    """Yields every target; the value is NaN if its row was not measured."""

    def at_least(row: Row, series: str, other: str, least: float) -> Target:
        ratio = results.ratio(row, series, other)
        description = f"{row.op}, {row.ranks} ranks, {size_text(row.size)}, {series}: times as fast as {other}"
        return Target(description, ratio, f"at least {least:g}", ratio >= least)

    for mode in ("warm", "fresh"):
        shared, other, mpi = f"hookline shared {mode}", f"hookline other {mode}", f"openmpi {mode}"
        for size in (25 * MIB, 64 * MIB):
            row = Row("allreduce", size, 2)
            yield at_least(row, shared, "bound warm", 0.70)
            yield at_least(row, shared, f"gloo {mode}", 15)
            yield at_least(row, shared, mpi, 8 if size == 64 * MIB else 4)
            yield at_least(row, other, "bound warm", 0.45)
        yield at_least(Row("allreduce", MIB, 2), shared, mpi, 5)
        yield at_least(Row("allreduce", 25 * MIB, 4), shared, mpi, 4)
        for ranks in (2, 4):
            yield at_least(Row("allreduce", KIB, ranks), shared, mpi, 1)
            yield at_least(Row("allreduce", KIB, ranks), other, mpi, 1)
        for op in ("reduce_scatter", "allgather", "broadcast"):
            yield at_least(Row(op, 25 * MIB, 2), shared, mpi, 2)
    for kind in ("numpy", "torch"):
        micros = results.median(Row("allreduce", KIB, 2), f"python {kind} warm") * 1e6
        description = f"allreduce, 2 ranks, 1 KiB, blocking, from Python on {kind}: microseconds"
        yield Target(description, micros, "below 8", micros < 8)
