"""Draws what links_bench.py measured: the step over the rate of the link, as an SVG for the documentation.

python bench/links/plot.py docs/performance/links.json docs/performance/links.svg
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

SERIES = {
    "allreduce": ("allreduce", "#1f77b4", ""),
    "fp16": ("fp16", "#1f77b4", "6 3"),
    "quantize_per_channel": ("quantize_per_channel", "#1f77b4", "2 3"),
    "powersgd(rank=1, start_iter=2)": ("powersgd, rank 1", "#2ca02c", ""),
    "noop": ("nothing sent", "#2ca02c", "2 3"),
    "PyTorch ALLREDUCE": ("PyTorch DDP, Gloo", "#8a8f98", ""),
    "PyTorch POWER_SGD": ("PyTorch POWER_SGD", "#8a8f98", "2 3"),
}
RATES = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 330, 58, 34, 60
LOW, HIGH = 0.02, 100.0


def height(seconds: float) -> float:
    """The pixel of a time."""
    share = (math.log(seconds) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def text(x: float, y: float, words: str, anchor: str = "middle") -> str:
    """Words at a place."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11">{words}</text>'


def panel(rows: list[dict[str, Any]], ranks: int, number: int) -> list[str]:
    """One number of ranks a host."""
    left = LEFT + number * WIDTH
    place = {rate: left + 30 + i * (WIDTH - 90) / 3 for i, rate in enumerate(RATES)}
    parts = [text(left + WIDTH / 2 - 30, 18, f"a step on 2 hosts x {ranks} rank{'s' if ranks > 1 else ''}")]
    for power in (-1, 0, 1, 2):
        y = height(10.0**power)
        parts.append(
            f'<line x1="{left}" x2="{left + WIDTH - 40}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8a8f98" opacity="0.3"/>'
        )
        if number == 0:
            parts.append(text(left - 6, y + 4, {-1: "100 ms", 0: "1 s", 1: "10 s", 2: "100 s"}[power], "end"))
    parts += [text(x, HEIGHT - BOTTOM + 18, RATES[rate]) for rate, x in place.items()]
    for name, (_, color, dash) in SERIES.items():
        found = {row["rate"]: row["seconds"] for row in rows if row["ranks_a_host"] == ranks and row["name"] == name}
        points = [f"{place[rate]:.1f},{height(found[rate]):.1f}" for rate in RATES if rate in found]
        style = f'fill="none" stroke="{color}" stroke-width="1.6" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{" ".join(points)}" {style}/>')
    return parts


def main() -> None:
    """Reads the rows, writes the picture."""
    source, target = map(Path, sys.argv[1:])
    rows = json.loads(source.read_text())["rows"]
    parts = panel(rows, 1, 0) + panel(rows, 2, 1)
    for number, (words, color, dash) in enumerate(SERIES.values()):
        x, y = LEFT + (number % 4) * 220, HEIGHT - 24 + number // 4 * 16
        parts.append(f'<line x1="{x}" x2="{x + 26}" y1="{y}" y2="{y}" stroke="{color}" stroke-dasharray="{dash}"/>')
        parts.append(text(x + 32, y + 4, words, "start"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + 2 * WIDTH} {HEIGHT}" font-family="sans-serif"'
    target.write_text("\n".join([f'{head} fill="#70757d">', *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
