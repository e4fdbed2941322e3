"""What compression buys: steps of twelve 1024 x 1024 layers (50 MB of gradients) over links of four rates.

    PYTHONPATH=build/release/python python bench/links/links_bench.py [--json FILE] [--ranks 1 2] [--rates …]

Hosts are network namespaces of this machine, which needs the rights of root. Each runs 1 rank, then 2; every hook and
PyTorch's DistributedDataParallel on Gloo take their turns in the same processes. All of them warm up at the speed of
the machine, before the links get slow.
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

# Steps of each: at 10 Mbit/s one that sends everything takes 40 s.
RATES = "10gbit:5,1gbit:5,100mbit:2,10mbit:1"
GIGA = {"gbit": 1e9, "mbit": 1e6}


def bits_per_second(rate: str) -> float:
    """1e9 for "1gbit"."""
    return float(rate[:-4]) * GIGA[rate[-4:]]


def run(ranks: int, rates: str, only: list[str] | None) -> list[dict[str, Any]]:
    """All rows of two hosts with so many ranks each."""
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
                raise SystemExit(f"a rank ended with {process.returncode}:\n{process.stdout.read()}")
    return rows


def promises(rows: list[dict[str, Any]]) -> None:
    """What was promised of it, met or missed."""
    times = {(row["ranks_a_host"], row["rate"], row["name"]): row["seconds"] for row in rows}

    def promise(what: str, value: float, kept: bool, wanted: str) -> None:
        print(f"{'met   ' if kept else 'MISSED'}  {what}: {value:.3g} ({wanted})")

    collective = "allreduce of 25 MiB"
    if (hierarchical := times.get((2, "1gbit", collective))) is not None:
        limit = (25 << 20) * 8 / 1e9
        promise(
            "hierarchical 2 x 2 at 1 Gbit/s over the link's limit", hierarchical / limit, hierarchical <= 1.1 * limit, "at most 1.1"
        )
        for name in ("flat gloo", "PyTorch Gloo"):
            ratio = times[2, "1gbit", f"{collective}, {name}"] / hierarchical
            promise(f"{name} of four ranks over hierarchical", ratio, ratio >= 1.3, "at least 1.3")
    for ranks in (1, 2):
        power = times.get((ranks, "1gbit", "powersgd(rank=1, start_iter=2)"))
        nothing = times.get((ranks, "1gbit", "noop"))
        if power is not None and nothing is not None:
            beyond = 1e3 * (power - nothing)
            promise(f"PowerSGD above NOOP at 1 Gbit/s, 2 x {ranks}, ms", beyond, beyond <= 30, "at most 30")


def main() -> None:
    """Measures, prints, and writes what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2], help="ranks a host")
    parser.add_argument("--rates", default=RATES, help="rate:steps, with commas")
    parser.add_argument("--only", nargs="*", help="hooks to measure, beside those that do nothing")
    arguments = parser.parse_args()
    rows = []
    for ranks in arguments.ranks:
        rows += run(ranks, arguments.rates, arguments.only)
        if arguments.json:
            machine = {"processors": os.cpu_count(), "system": platform.platform()}
            arguments.json.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    promises(rows)


if __name__ == "__main__":
    main()
