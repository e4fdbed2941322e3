"""Measures training steps of twelve 1024 x 1024 layers (50 MB of gradients) with every hook over links of four rates.

    PYTHONPATH=build/release/python python bench/links/links_bench.py [--json FILE] [--ranks 1 2] [--rates …]

The two hosts are network namespaces of this machine, which requires root. Each host runs 1 rank, then 2. All hooks and
PyTorch's DistributedDataParallel on Gloo alternate in the same processes. They warm up before the links are throttled.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python/hosts"))
from network_hosts import INTERFACE, Hosts  # noqa: E402

# Rate and number of rounds. At 10 Mbit/s an uncompressed step takes 40 s.
RATES = "10gbit:5,1gbit:5,100mbit:2,10mbit:1"
UNITS = {"gbit": 1e9, "mbit": 1e6}


def bits_per_second(rate: str) -> float:
    """Returns 1e9 for "1gbit"."""
    return float(rate[:-4]) * UNITS[rate[-4:]]


def run(ranks: int, rates: str, only: list[str] | None) -> list[dict[str, Any]]:
    """Returns the rows measured on two hosts with `ranks` ranks each."""
    rows = []
    command = [sys.executable, str(Path(__file__).parent / "links_rank.py"), rates]
    command += ["--only", *only] if only else []
    with Hosts(2) as hosts:
        processes = hosts.start_ranks(command, [ranks, ranks], GLOO_SOCKET_IFNAME=INTERFACE)
        for line in processes[0].stdout:
            word, _, rest = line.strip().partition(" ")
            if word == "rate":
                hosts.set_rate(rest)
                processes[0].stdin.write("\n")
                processes[0].stdin.flush()
            elif word == "row":
                row = {"ranks_a_host": ranks, **json.loads(rest)}
                row["share_of_link"] = row["bytes"] * 8 / bits_per_second(row["rate"]) / row["seconds"]
                rows.append(row)
                print(
                    f"2 x {ranks}  {row['rate']:>8}  {row['name']:>40}  {1e3 * row['seconds']:9.1f} ms"
                    f"  {row['bytes'] / 1e6:8.2f} MB  {100 * row['share_of_link']:4.0f} % of the link",
                    flush=True,
                )
            else:
                print(line, end="")
        for process in processes:
            if process.wait(60) != 0:
                raise SystemExit(f"a rank exited with status {process.returncode}:\n{process.stdout.read()}")
    return rows


def print_targets(rows: list[dict[str, Any]]) -> None:
    """Prints each performance target and whether the rows meet it."""
    times = {(row["ranks_a_host"], row["rate"], row["name"]): row["seconds"] for row in rows}

    def target(description: str, value: float, met: bool, bound: str) -> None:
        print(f"{'met   ' if met else 'MISSED'}  {description}: {value:.3g} ({bound})")

    collective = "allreduce of 25 MiB"
    if (hierarchical := times.get((2, "1gbit", collective))) is not None:
        limit = (25 << 20) * 8 / 1e9
        target(
            "hierarchical 2 x 2 at 1 Gbit/s over the link's limit",
            hierarchical / limit,
            hierarchical <= 1.1 * limit,
            "at most 1.1",
        )
        for name in ("flat gloo", "PyTorch Gloo"):
            ratio = times[2, "1gbit", f"{collective}, {name}"] / hierarchical
            target(f"{name} of four ranks over hierarchical", ratio, ratio >= 1.3, "at least 1.3")
    for ranks in (1, 2):
        powersgd = times.get((ranks, "1gbit", "powersgd(rank=1, start_iter=2)"))
        noop = times.get((ranks, "1gbit", "noop"))
        if powersgd is not None and noop is not None:
            overhead = 1e3 * (powersgd - noop)
            target(f"PowerSGD above NOOP at 1 Gbit/s, 2 x {ranks}, ms", overhead, overhead <= 30, "at most 30")


def main() -> None:
    """Measures, prints the rows and the targets, and writes the rows to the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2], help="ranks per host")
    parser.add_argument("--rates", default=RATES, help="rate:rounds, separated by commas")
    parser.add_argument("--only", nargs="*", help="hooks to measure in addition to the no-op hooks")
    arguments = parser.parse_args()
    rows = []
    for ranks in arguments.ranks:
        rows += run(ranks, arguments.rates, arguments.only)
        if arguments.json:
            machine = {"processors": os.cpu_count(), "system": platform.platform()}
            arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    print_targets(rows)


if __name__ == "__main__":
    main()
