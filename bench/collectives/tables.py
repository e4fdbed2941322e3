"""Prints the results of collectives_bench.py as the tables of docs/performance/results.md.

python bench/collectives/tables.py build/bench/collectives.json
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

from results import Results
from rows import KIB, MIB, OPERATIONS, RANKS, Row, quick_rows, size_text

SIZES = [8, KIB, 64 * KIB, MIB, 25 * MIB, 256 * MIB]
SHARED, OTHER = "hookline shared warm", "hookline other warm"


def digits(value: float) -> str:
    """Formats a value with two significant digits; a dash if it was not measured."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def table(titles: list[str], lines: Iterator[list[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [titles, ["---"] * len(titles), *lines])


def times(results: Results) -> Iterator[list[str]]:
    """Yields the rows with performance targets: microseconds, and speedups of Hookline in shared memory."""
    for row in quick_rows():
        micros = [digits(results.median(row, series) * 1e6) for series in (SHARED, OTHER)]
        ratios = [digits(results.ratio(row, SHARED, f"{other} warm")) for other in ("bound", "openmpi", "gloo")]
        if row.size < 64 * KIB:  # latency, not memory bandwidth, limits small sizes
            ratios[0] = ""
        yield [row.op, str(row.ranks), size_text(row.size), *micros, *ratios]


def sweep(results: Results) -> Iterator[list[str]]:
    """Yields the speedup of every operation over OpenMPI, in shared and in other memory."""
    for op in OPERATIONS:
        for ranks in RANKS if op != "barrier" else []:
            cells = []
            for size in SIZES:
                ratios = [results.ratio(Row(op, size, ranks), series, "openmpi warm") for series in (SHARED, OTHER)]
                cells.append(", ".join(map(digits, ratios)))
            if cells != ["–, –"] * len(SIZES):
                yield [op, str(ranks), *cells]


if __name__ == "__main__":
    measured = Results.load(Path(sys.argv[1]))
    columns = ["operation", "ranks", "size", "shared", "other", "of the bound", "times OpenMPI", "times Gloo"]
    print(table(columns, times(measured)), end="\n\n")
    print(table(["operation", "ranks", *map(size_text, SIZES)], sweep(measured)), end="\n\n")
    for ranks in RANKS:
        barrier = Row("barrier", 0, ranks)
        ratio, median = measured.ratio(barrier, OTHER, "openmpi warm"), measured.median(barrier, OTHER)
        print(f"barrier, {ranks} ranks: {digits(ratio)} times OpenMPI, {digits(median * 1e6)} µs")
