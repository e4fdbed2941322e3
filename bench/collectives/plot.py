"""Draws what collectives_bench.py measured: cost of allreduce by size and by ranks, as an SVG for the documentation.

python bench/collectives/plot.py build/bench/collectives.json docs/performance/collectives.svg
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import NamedTuple

from results import Results
from rows import KIB, MIB, Row, size_text

# Two of the colours are ours, so that the eye finds them; readable on white and on dark pages.
SERIES = {
    "hookline shared warm": ("Hookline, group.empty()", "#1f77b4", ""),
    "hookline other warm": ("Hookline, other memory", "#1f77b4", "5 3"),
    "openmpi warm": ("OpenMPI", "#d9730d", ""),
    "gloo warm": ("torch Gloo", "#8a8f98", ""),
    "bound warm": ("bound: scaling private memory", "#2ca02c", "2 3"),
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 380, 300, 58, 44, 34


class Axis(NamedTuple):
    """A logarithmic axis: from where to where, and on how many pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.begin + share * (self.end - self.begin)


def time_text(seconds: float) -> str:
    """1 µs, 10 ms, …"""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.999 * unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds * 1e9:g} ns"


def text(x: float, y: float, words: str, anchor: str = "middle", size: int = 11) -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{words}</text>'


def frame(left: float, title: str, x: Axis, ticks: dict[float, str], y: Axis) -> list[str]:
    """The axes of a panel, with a line for each power of ten of time."""
    parts = [text((x.begin + x.end) / 2, TOP - 16, title, size=13)]
    for power in range(math.ceil(math.log10(y.low)), math.floor(math.log10(y.high)) + 1):
        at = y(10.0**power)
        parts.append(f'<line x1="{x.begin}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}" stroke="#8a8f98" opacity="0.3"/>')
        if left == 0:
            parts.append(text(x.begin - 6, at + 4, time_text(10.0**power), "end"))
    parts += [text(x(value), y.begin + 16, words, size=10) for value, words in ticks.items()]
    return parts


def curve(points: list[tuple[float, float]], color: str, dash: str) -> str:
    """A line through points, each marked."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{color}"/>' for x, y in points)
    return (
        f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6" stroke-dasharray="{dash}"/>{dots}'
    )


def panel(results: Results, number: int, title: str, rows: list[Row], by_size: bool, y: Axis) -> list[str]:
    """One panel: the rows' times over their sizes or their ranks."""
    place = [row.size if by_size else row.ranks for row in rows]
    begin = LEFT + number * WIDTH
    x = Axis(min(place), max(place), begin + 8, begin + WIDTH - 52)
    ticks = {p: size_text(p) if by_size else f"{p} ranks" for p in place}
    if by_size:
        ticks = {p: words for p, words in ticks.items() if p in (8, KIB, 64 * KIB, MIB, 25 * MIB, 256 * MIB)}
    parts = frame(number, title, x, ticks, y)
    for series, (_, color, dash) in SERIES.items():
        times = [(p, results.median(row, series)) for p, row in zip(place, rows, strict=True)]
        points = [(x(p), y(time)) for p, time in times if not math.isnan(time) and time >= y.low]
        if points:
            parts.append(curve(points, color, dash))
    return parts


def draw(results: Results) -> str:
    """The whole picture."""
    rows = [row for row in results.times if row.op == "allreduce"]
    y = Axis(1e-7, 10.0, HEIGHT - BOTTOM, TOP)
    parts = []
    by_size = [row for row in rows if row.ranks == 2]
    parts += panel(results, 0, "allreduce, 2 ranks, by size", by_size, True, y)
    for number, size in enumerate((KIB, 25 * MIB), start=1):
        of_size = [row for row in rows if row.size == size]
        parts += panel(results, number, f"allreduce of {size_text(size)}, by ranks", of_size, False, y)
    width = LEFT + 3 * WIDTH
    for number, (name, color, dash) in enumerate(SERIES.values()):
        at = LEFT + 8 + number * 215
        line = f'<line x1="{at}" x2="{at + 26}" y1="{HEIGHT - 8}" y2="{HEIGHT - 8}" stroke="{color}" stroke-width="2"'
        parts.append(f'{line} stroke-dasharray="{dash}"/>')
        parts.append(text(at + 32, HEIGHT - 4, name, "start"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT}" font-family="sans-serif"'
    return "\n".join([f'{head} fill="#70757d">', *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(Results.load(source)))
