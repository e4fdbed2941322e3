"""The collectives of Hookline beside OpenMPI's, torch Gloo's, and the bound that memory sets.

All systems' processes live side by side; a round runs a row on one after the other, so that all of them meet the same
minute of the machine. Times are those of the slowest rank. Writes JSON, prints ratios and which floors are met.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import time
from pathlib import Path

import floors
from results import HEADER, Results
from rows import OPERATIONS, RANKS, SIZES, Row, Variant, full_rows, parse_size, quick_rows, variants
from systems import ROOT, Running

SYSTEMS = ["hookline", "openmpi", "gloo", "python"]


def repeats_for(running: Running, op: str, size: int, variant: Variant, seconds: float) -> int | None:
    """How often an operation fits into that time; None where the system does not have it."""
    repeats = 1
    for _ in range(3):  # one call alone says little about a short operation
        took = running.run(op, size, variant.memory, variant.fresh, repeats)
        if took is None:
            return None
        enough = max(1, min(int(seconds / max(took, 1e-8)), 20_000))
        if enough <= 4 * repeats:
            break
        repeats = min(enough, 30 * repeats)
    return enough


def measure(row: Row, systems: dict[str, Running], rounds: int, seconds: float, results: Results) -> None:
    """All rounds of a row."""
    plan = []
    for variant in variants(row):
        if variant.system not in systems:
            continue
        op = variant.op or row.op
        repeats = repeats_for(systems[variant.system], op, row.size, variant, seconds)
        if repeats is not None:
            plan.append((variant, op, repeats))
    for number in range(rounds):
        for variant, op, repeats in plan if number % 2 == 0 else reversed(plan):
            took = systems[variant.system].run(op, row.size, variant.memory, variant.fresh, repeats)
            assert took is not None
            results.add(row, variant.name, took)
    for system in systems.values():
        system.drop()


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the rows that the floors speak of")
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", help="as 8B,64KiB,25MiB")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="how long a row takes in one round of one system, about")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/collectives.json")
    return parser.parse_args()


def main() -> None:
    """Measure, print, save."""
    chosen = options()
    sizes = [parse_size(text) for text in chosen.sizes.split(",")] if chosen.sizes else SIZES
    ranks, operations = [int(n) for n in chosen.ranks.split(",")], chosen.ops.split(",")
    if chosen.quick:
        wanted = [row for row in quick_rows() if row.ranks in ranks and row.op in operations and row.size in sizes]
    else:
        wanted = full_rows(ranks, operations, sizes)
    results = Results(machine())
    if os.getloadavg()[0] > 1:
        print(f"note: the load is {os.getloadavg()[0]:.1f}: where others work, times and ratios may mislead")
    rounds, seconds = chosen.rounds or (11 if chosen.quick else 5), chosen.seconds or (0.03 if chosen.quick else 0.02)
    for n, group in itertools.groupby(wanted, key=lambda row: row.ranks):
        names = [name for name in chosen.systems.split(",") if name != "python" or n == 2]
        systems: dict[str, Running] = {}
        try:
            for name in names:
                systems[name] = Running(name, n, chosen.build)
            print(HEADER)
            for row in group:
                measure(row, systems, rounds, seconds, results)
                print(results.table(row), flush=True)
                results.save(chosen.json)
        finally:
            for system in systems.values():
                system.stop()
    results.machine["load after"] = os.getloadavg()[0]
    results.save(chosen.json)
    print("\nFloors (measured, then the floor; below 8 for microseconds)")
    print("\n".join(map(str, floors.check(results))))
    print(f"\nAll times: {chosen.json}")


if __name__ == "__main__":
    main()
