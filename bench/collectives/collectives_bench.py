"""Measures Hookline's collectives against OpenMPI, torch Gloo and the memory bandwidth bound.

The processes of all systems exist at once. Every round runs a row on each system in turn, so noise affects all alike.
Times are those of the slowest rank. Writes JSON, and prints ratios and the performance targets.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import re
import time
from pathlib import Path

import targets
from results import HEADER, Results
from rows import OPERATIONS, RANKS, SIZES, Row, Variant, full_rows, parse_size, quick_rows, variants
from systems import ROOT, RunningSystem

SYSTEMS = ["hookline", "openmpi", "gloo", "python"]


def repeats_for(system: RunningSystem, op: str, size: int, variant: Variant, seconds: float) -> int | None:
    """Returns how many calls fit into `seconds`; None if the system does not support the operation."""
    repeats = 1
    for _ in range(3):  # the time of a single short call is imprecise
        call_time = system.run(op, size, variant.memory, variant.fresh, repeats)
        if call_time is None:
            return None
        estimate = max(1, min(int(seconds / max(call_time, 1e-8)), 20_000))
        if estimate <= 4 * repeats:
            break
        repeats = min(estimate, 30 * repeats)
    return estimate


def measure(row: Row, systems: dict[str, RunningSystem], rounds: int, seconds: float, results: Results) -> None:
    """Runs all rounds of a row."""
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
            call_time = systems[variant.system].run(op, row.size, variant.memory, variant.fresh, repeats)
            assert call_time is not None
            results.add(row, variant.name, call_time)
    for system in systems.values():
        system.release_buffers()


def machine() -> dict[str, object]:
    """Returns a description of this machine and its load."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "load before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
    }


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="measure only the rows with performance targets")
    parser.add_argument("--ops", default=",".join(OPERATIONS))
    parser.add_argument("--sizes", help="such as 8B,64KiB,25MiB")
    parser.add_argument("--ranks", default=",".join(map(str, RANKS)))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="approximate time of one row on one system per round")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--json", type=Path, default=ROOT / "build/bench/collectives.json")
    return parser.parse_args()


def main() -> None:
    """Measures all rows, prints them, and saves them as JSON."""
    chosen = options()
    sizes = [parse_size(text) for text in chosen.sizes.split(",")] if chosen.sizes else SIZES
    ranks, operations = [int(n) for n in chosen.ranks.split(",")], chosen.ops.split(",")
    if chosen.quick:
        rows = [row for row in quick_rows() if row.ranks in ranks and row.op in operations and row.size in sizes]
    else:
        rows = full_rows(ranks, operations, sizes)
    results = Results(machine())
    if os.getloadavg()[0] > 1:
        print(f"warning: the load average is {os.getloadavg()[0]:.1f}; other programs may distort the times and ratios")
    rounds, seconds = chosen.rounds or (11 if chosen.quick else 5), chosen.seconds or (0.03 if chosen.quick else 0.02)
    for n, group in itertools.groupby(rows, key=lambda row: row.ranks):
        names = [name for name in chosen.systems.split(",") if name != "python" or n == 2]
        systems: dict[str, RunningSystem] = {}
        try:
            for name in names:
                systems[name] = RunningSystem(name, n, chosen.build)
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
    print("\nPerformance targets (measured value, then the target)")
    print("\n".join(map(str, targets.check(results))))
    print(f"\nAll times: {chosen.json}")


if __name__ == "__main__":
    main()
