"""Plots the step times of links_bench.py over the rate of the link, as an SVG for the documentation.

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
    "PyTorch ALLREDUCE": ("PyTorch ALLREDUCE, Gloo", "#8a8f98", ""),
    "fp16": ("fp16", "#1f77b4", "6 3"),
    "PyTorch POWER_SGD": ("PyTorch POWER_SGD, Gloo", "#8a8f98", "2 3"),
    "quantize_per_channel": ("quantize_per_channel", "#1f77b4", "2 3"),
    "powersgd(rank=1, start_iter=2)": ("powersgd(rank=1)", "#2ca02c", ""),
    "noop": ("noop: nothing sent", "#2ca02c", "2 3"),
}
RATES = {"10mbit": "10 Mbit/s", "100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s"}
# Narrow, with large text, so that the chart is readable on a phone.
WIDTH, LEFT, RIGHT, TOP, BOTTOM, PANEL = 480, 56, 452, 30, 222, 262
LOW, HIGH = 0.02, 100.0


def height(seconds: float) -> float:
    """Returns the pixel of a time, from the top of a panel."""
    share = (math.log(seconds) - math.log(LOW)) / (math.log(HIGH) - math.log(LOW))
    return BOTTOM - share * (BOTTOM - TOP)


def text(x: float, y: float, words: str, anchor: str = "middle", weight: str = "normal") -> str:
    """Returns a text element."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}">{words}</text>'


def panel(rows: list[dict[str, Any]], ranks: int, top: float) -> list[str]:
    """Returns the panel for one number of ranks per host."""
    x_of = {rate: LEFT + 36 + i * (RIGHT - LEFT - 72) / 3 for i, rate in enumerate(RATES)}
    title = f"Time of a training step, 2 hosts × {ranks} rank{'s' if ranks > 1 else ''}"
    parts = [text((LEFT + RIGHT) / 2, top + TOP - 12, title, weight="bold")]
    for seconds, label in ((0.1, "100 ms"), (1.0, "1 s"), (10.0, "10 s"), (100.0, "100 s")):
        y = top + height(seconds)
        parts.append(f'<line x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#8a8f98" opacity="0.35"/>')
        parts.append(text(LEFT - 6, y + 4, label, "end"))
    parts += [text(x, top + BOTTOM + 18, RATES[rate]) for rate, x in x_of.items()]
    for name, (_, color, dash) in SERIES.items():
        found = {row["rate"]: row["seconds"] for row in rows if row["ranks_a_host"] == ranks and row["name"] == name}
        points = [f"{x_of[rate]:.1f},{top + height(found[rate]):.1f}" for rate in RATES if rate in found]
        style = f'fill="none" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"'
        parts.append(f'<polyline points="{" ".join(points)}" {style}/>')
    return parts


def main() -> None:
    """Reads the rows and writes the chart."""
    source, target = map(Path, sys.argv[1:])
    rows = json.loads(source.read_text())["rows"]
    parts = panel(rows, 1, 0) + panel(rows, 2, PANEL)
    for number, (words, color, dash) in enumerate(SERIES.values()):
        x, y = LEFT + number % 2 * 200, 2 * PANEL + 10 + number // 2 * 20
        parts.append(
            f'<line x1="{x}" x2="{x + 26}" y1="{y - 4}" y2="{y - 4}" stroke="{color}" stroke-width="2"'
            f' stroke-dasharray="{dash}"/>'
        )
        parts.append(text(x + 32, y, words, "start"))
    size = f'width="{WIDTH}" height="{2 * PANEL + 82}" viewBox="0 0 {WIDTH} {2 * PANEL + 82}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12" fill="#767b84">'
    target.write_text("\n".join([head, *parts, "</svg>"]) + "\n")


if __name__ == "__main__":
    main()
