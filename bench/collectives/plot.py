"""Plots the allreduce times of collectives_bench.py by size and by ranks, as an SVG for the documentation.

python bench/collectives/plot.py build/bench/collectives.json docs/performance/collectives.svg
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import NamedTuple

from results import Results
from rows import KIB, MIB, Row, size_text

# Colors readable on white and on dark pages; blue is Hookline.
SERIES = {
    "hookline shared warm": ("Hookline, group.empty()", "#1f77b4", ""),
    "hookline other warm": ("Hookline, other memory", "#1f77b4", "5 3"),
    "openmpi warm": ("OpenMPI", "#d9730d", ""),
    "gloo warm": ("torch Gloo", "#8a8f98", ""),
    "bound warm": ("bound: scale private memory", "#2ca02c", "2 3"),
}
SIZE_TICKS = (8, KIB, 64 * KIB, MIB, 25 * MIB, 256 * MIB)
# Narrow, with large text, so that the chart is readable on a phone.
WIDTH, LEFT = 480, 56


class Axis(NamedTuple):
    """A logarithmic axis: values from low to high, drawn from pixel begin to pixel end."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Returns the pixel of a value."""
        share = (math.log(value) - math.log(self.low)) / (math.log(self.high) - math.log(self.low))
        return self.begin + share * (self.end - self.begin)


def time_text(seconds: float) -> str:
    """Returns a time with its unit, such as 10 ms."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.999 * unit:
            return f"{seconds / unit:g} {name}"
    return f"{seconds * 1e9:g} ns"


def text(x: float, y: float, words: str, anchor: str = "middle", weight: str = "normal") -> str:
    """Returns a text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def curve(points: list[tuple[float, float]], color: str, dash: str) -> str:
    """Returns a line through marked points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{color}"/>' for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/>{dots}'


def panel(
    results: Results, title: str, points: dict[Row, float], ticks: dict[float, str], x: Axis, y: Axis
) -> list[str]:
    """Returns one panel: the times of each series at the rows' positions on the x axis."""
    parts = [text((x.begin + x.end) / 2, y.end - 12, title, weight="bold")]
    for power in range(math.ceil(math.log10(y.low)), math.floor(math.log10(y.high)) + 1):
        at = y(10.0**power)
        parts.append(
            f'<line x1="{x.begin:g}" x2="{x.end:g}" y1="{at:.1f}" y2="{at:.1f}" stroke="#8a8f98" opacity="0.35"/>'
        )
        if x.begin < LEFT + 20:
            parts.append(text(LEFT - 6, at + 4, time_text(10.0**power), "end"))
    parts += [text(x(value), y.begin + 18, words) for value, words in ticks.items()]
    for series, (_, color, dash) in SERIES.items():
        times = {row: results.median(row, series) for row in points}
        pixels = [(x(points[row]), y(time)) for row, time in times.items() if time >= y.low]  # skips NaN
        if pixels:
            parts.append(curve(pixels, color, dash))
    return parts


def draw(results: Results) -> str:
    """Returns the chart: by size above, by ranks for a small and a large tensor below."""
    rows = [row for row in results.times if row.op == "allreduce"]
    by_size = {row: float(row.size) for row in rows if row.ranks == 2}
    x = Axis(min(by_size.values()), max(by_size.values()), LEFT + 8, WIDTH - 28)
    ticks = {float(size): size_text(size) for size in SIZE_TICKS}
    parts = panel(results, "Time of an allreduce, 2 ranks, by tensor size", by_size, ticks, x, Axis(1e-7, 1, 262, 30))
    y = Axis(1e-6, 0.1, 470, 324)
    for number, size in enumerate((KIB, 25 * MIB)):
        by_ranks = {row: float(row.ranks) for row in rows if row.size == size}
        begin = LEFT + 8 + number * 212
        x = Axis(min(by_ranks.values()), max(by_ranks.values()), begin, begin + 184)
        ticks = {ranks: f"{ranks:g}" for ranks in by_ranks.values()}
        parts += panel(results, f"{size_text(size)}, by ranks", by_ranks, ticks, x, y)
    for number, (name, color, dash) in enumerate(SERIES.values()):
        left, at = LEFT + 8 + number % 2 * 212, 516 + number // 2 * 20
        parts.append(
            f'<line x1="{left}" x2="{left + 26}" y1="{at - 4}" y2="{at - 4}" stroke="{color}" stroke-width="2"'
            f' stroke-dasharray="{dash}"/>'
        )
        parts.append(text(left + 32, at, name, "start"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="568" viewBox="0 0 {WIDTH} 568"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12" fill="#767b84">', *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    target.write_text(draw(Results.load(source)))
