"""The measured times and their statistics: medians, quartiles, ratios."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from rows import Row, size_text


class Results:
    """The times of one operation in seconds: a list over the rounds for every series of every row."""

    def __init__(self, machine: dict[str, Any]) -> None:
        self.machine = machine
        self.times: dict[Row, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, row: Row, series: str, seconds: float) -> None:
        """Adds the time of one round."""
        self.times[row][series].append(seconds)

    def median(self, row: Row, series: str) -> float:
        """Returns the median in seconds; NaN if the series was not measured."""
        times = self.times.get(row, {}).get(series)
        return statistics.median(times) if times else math.nan

    def spread(self, row: Row, series: str) -> tuple[float, float]:
        """Returns the first and third quartile."""
        times = self.times[row][series]
        if len(times) < 2:
            return times[0], times[0]
        low, _, high = statistics.quantiles(times, n=4, method="inclusive")
        return low, high

    def ratio(self, row: Row, series: str, other: str) -> float:
        """Returns how many times as fast `series` is as `other`: the median of the ratios within a round."""
        series_times = self.times.get(row, {})
        pairs = list(zip(series_times.get(series, []), series_times.get(other, []), strict=False))
        return statistics.median(other_time / time for time, other_time in pairs) if pairs else math.nan

    def table(self, row: Row) -> str:
        """Returns the lines of one row: each Hookline series, with its ratios to the other systems in the same mode."""
        lines = []
        for series in self.times[row]:
            if not series.startswith(("hookline", "python")):
                continue
            mode = series.rsplit(" ", 1)[1]
            low, high = self.spread(row, series)
            ratios = [self.ratio(row, series, f"{other} {mode}") for other in ("bound", "openmpi", "gloo")]
            texts = ["-" if math.isnan(ratio) else f"{ratio:.2f}" for ratio in ratios]
            lines.append(
                f"{row.op:<15}{row.ranks:>3} {size_text(row.size):>8}  {series:<22}"
                f"{micros(self.median(row, series)):>10} {f'{micros(low)}..{micros(high)}':>20}"
                f"{texts[0]:>8}{texts[1]:>10}{texts[2]:>8}"
            )
        return "\n".join(lines)

    def save(self, path: Path) -> None:
        """Writes all rows as JSON, including the time of each run."""
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {
                **row._asdict(),
                "series": {
                    name: {"median": self.median(row, name), "quartiles": self.spread(row, name), "seconds": times}
                    for name, times in series.items()
                },
            }
            for row, series in self.times.items()
        ]
        path.write_text(json.dumps({"machine": self.machine, "rows": rows}, indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Results:
        """Reads a file that save() wrote."""
        data = json.loads(path.read_text())
        results = cls(data["machine"])
        for entry in data["rows"]:
            row = Row(entry["op"], entry["size"], entry["ranks"])
            for name, series in entry["series"].items():
                results.times[row][name] = series["seconds"]
        return results


HEADER = (
    f"{'operation':<15}{'n':>3} {'size':>8}  {'series':<22}{'median us':>10} {'quartiles':>20}"
    f"{'bound':>8}{'OpenMPI':>10}{'Gloo':>8}   (times as fast as these)"
)


def micros(seconds: float) -> str:
    """Formats a time as microseconds."""
    value = seconds * 1e6
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"
