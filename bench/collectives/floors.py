"""What speed is promised: each line a ratio or a time of a row, and the least or most that it may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from results import Results
from rows import KIB, MIB, Row, size_text


class Line(NamedTuple):
    """A promise beside what was measured."""

    text: str
    measured: float
    floor: float
    met: bool

    def __str__(self) -> str:
        word = "met" if self.met else "MISSED"
        return f"{word:<7} {self.text:<78} {self.measured:7.2f}  ({self.floor:g})"


def check(results: Results) -> list[Line]:
    """All lines whose rows were measured."""
    return [line for line in lines(results) if line.measured == line.measured]


def lines(results: Results) -> Iterator[Line]:
    """Every promise; NaN where its row was not measured."""

    def least(row: Row, series: str, other: str, floor: float) -> Line:
        ratio = results.ratio(row, series, other)
        text = f"{row.op}, {row.ranks} ranks, {size_text(row.size)}, {series}: times as fast as {other}"
        return Line(text, ratio, floor, ratio >= floor)

    for mode in ("warm", "fresh"):
        shared, other, mpi = f"hookline shared {mode}", f"hookline other {mode}", f"openmpi {mode}"
        for size in (25 * MIB, 64 * MIB):
            row = Row("allreduce", size, 2)
            yield least(row, shared, "bound warm", 0.70)
            yield least(row, shared, f"gloo {mode}", 15)
            yield least(row, shared, mpi, 8 if size == 64 * MIB else 4)
            yield least(row, other, "bound warm", 0.45)
        yield least(Row("allreduce", MIB, 2), shared, mpi, 5)
        yield least(Row("allreduce", 25 * MIB, 4), shared, mpi, 4)
        for ranks in (2, 4):
            yield least(Row("allreduce", KIB, ranks), shared, mpi, 1)
            yield least(Row("allreduce", KIB, ranks), other, mpi, 1)
        for op in ("reduce_scatter", "allgather", "broadcast"):
            yield least(Row(op, 25 * MIB, 2), shared, mpi, 2)
    for kind in ("numpy", "torch"):
        micros = results.median(Row("allreduce", KIB, 2), f"python {kind} warm") * 1e6
        yield Line(f"allreduce, 2 ranks, 1 KiB, blocking, from Python on {kind}: microseconds", micros, 8, micros < 8)
