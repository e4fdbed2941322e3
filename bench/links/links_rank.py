"""One rank of links_bench.py: steps of the twelve layers with every hook, at every rate that the driver sets.

Rank 0 prints lines for the driver: "rate R" asks for a rate, and waits for a line; "row {…}" is a measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hooks"))
from hooks_bench import BATCH, WIDTH, our_step, their_step

HOOKS = [
    "noop",
    "allreduce",
    "fp16",
    "bf16",
    "quantize_per_tensor",
    "quantize_per_channel",
    "int4",
    "powersgd(rank=1, start_iter=2)",
    "powersgd(rank=2, start_iter=2)",
    "batched_powersgd(rank=1, start_iter=2)",
    "batched_powersgd(rank=2, start_iter=2)",
]
THEIRS = ["NOOP", "ALLREDUCE", "FP16_COMPRESS", "POWER_SGD"]
AS_LARGE_AS_ANOTHER = {"bf16", "quantize_per_tensor"}  # left out at 10 Mbit/s: fp16 and per_channel send as much
WARM_UP = 4  # at the speed of the machine: PowerSGD begins in the third step
# Steps of a few milliseconds' difference need more rounds for a median than those of seconds, and have the time.
SHORT, ROUNDS_OF_SHORT, ROUNDS_WORTH_MORE = 0.2, 15, 3
COLLECTIVE_BYTES = 25 << 20
INTERFACE = "link0"


def counted(what: str) -> int:
    """Bytes that the interface of this host has sent ("tx") or received ("rx")."""
    return int(Path(f"/sys/class/net/{INTERFACE}/statistics/{what}_bytes").read_text())


class Rank:
    """The group of all ranks, and words to the driver from rank 0."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.first = group.rank() == 0

    def ask(self, line: str) -> None:
        """Has the driver do something, and all ranks wait until it is done."""
        self.group.barrier().wait()
        if self.first:
            print(line, flush=True)
            sys.stdin.readline()
        self.group.barrier().wait()

    def measure(self, step: Callable[[], None]) -> tuple[float, int]:
        """Time of the slowest rank, and what went over the link of the first host meanwhile: the same on all ranks."""
        import numpy as np

        self.group.barrier().wait()
        before, begun = (counted("tx"), counted("rx")), time.perf_counter()
        step()
        taken = time.perf_counter() - begun
        # What others of this host still send belongs to this step: counters are read when all are through.
        self.group.barrier().wait()
        sent = max(counted("tx") - before[0], counted("rx") - before[1])
        everybodys = np.empty((self.group.size(), 2))
        self.group.allgather_into_tensor(everybodys, np.array([taken, float(sent)])).wait()
        return float(everybodys[:, 0].max()), int(everybodys[0, 1])

    def measure_all(self, rate: str, steps: dict[str, Callable[[], None]], rounds: int) -> None:
        """Every round has a step of each, so that what disturbs disturbs all; the short ones have more rounds."""
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in steps}
        for number in range(max(rounds, ROUNDS_OF_SHORT) if rounds >= ROUNDS_WORTH_MORE else rounds):
            for name, step in steps.items():
                if number < rounds or statistics.median(seconds for seconds, _ in found[name]) < SHORT:
                    found[name].append(self.measure(step))
        for name, taken in found.items() if self.first else ():
            row = {"rate": rate, "name": name, "seconds": statistics.median(seconds for seconds, _ in taken)}
            row |= {"rounds": len(taken), "bytes": int(statistics.median(sent for _, sent in taken))}
            print("row " + json.dumps(row), flush=True)


def main() -> None:
    """Makes all models, warms up at full speed, then goes through the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rates", help="rate:rounds, with commas")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    import numpy as np
    import torch
    import torch.distributed as dist

    import hookline as hl

    torch.set_num_threads(1)
    group = hl.init_process_group(timeout=300)
    rank = Rank(group)
    meeting = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
    dist.init_process_group("gloo", init_method=meeting, rank=group.rank(), world_size=group.size())
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(group.rank()))
    handles: list[Any] = []
    wanted = [hook for hook in HOOKS if not arguments.only or hook in arguments.only or hook == "noop"]
    steps = {hook: our_step(group, hook, inputs, handles, {}) for hook in wanted}
    steps |= {
        f"PyTorch {hook}": their_step(hook, inputs)
        for hook in THEIRS
        if not arguments.only or hook in arguments.only or hook == "NOOP"
    }
    for _ in range(WARM_UP):
        for step in steps.values():
            step()
    buffer = group.empty((COLLECTIVE_BYTES // 4,), "float32")
    theirs = torch.zeros(COLLECTIVE_BYTES // 4)
    flat = hl.init_process_group(
        backend="gloo",
        init_method=f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 2}",
        rank=group.rank(),
        world_size=group.size(),
        timeout=300,
    )
    other = np.zeros(COLLECTIVE_BYTES // 4, np.float32)
    collectives: dict[str, Callable[[], None]] = {
        "allreduce of 25 MiB": lambda: group.allreduce([buffer]).wait(),
        "allreduce of 25 MiB, flat gloo": lambda: flat.allreduce([other]).wait(),
        "allreduce of 25 MiB, PyTorch Gloo": lambda: dist.all_reduce(theirs),
    }
    for step in collectives.values():
        step()
    for part in arguments.rates.split(","):
        rate, rounds = part.split(":")
        rank.ask(f"rate {rate}")
        slow = rate.endswith("mbit")
        measured = steps if slow else collectives | steps
        if rate == "10mbit":
            measured = {name: step for name, step in steps.items() if name not in AS_LARGE_AS_ANOTHER}
        rank.measure_all(rate, measured, int(rounds))
    for handle in handles:
        handle.remove()
    group.barrier().wait()
    dist.destroy_process_group()


main()
