"""One rank of links_bench.py. Times a step of the twelve layers with every hook, at each rate that the driver sets.

Rank 0 prints lines for the driver: "rate R" requests a rate and waits for a reply; "row {…}" is a measurement.
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
from hooks_bench import BATCH, WIDTH, hookline_step, torch_step

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
TORCH_HOOKS = ["NOOP", "ALLREDUCE", "FP16_COMPRESS", "POWER_SGD"]
SKIPPED_AT_10_MBIT = {"bf16", "quantize_per_tensor"}  # fp16 and quantize_per_channel send as many bytes
WARM_UP = 4  # unthrottled; PowerSGD starts in the third step
# Short steps differ by milliseconds, so their medians need more rounds.
SHORT_STEP, SHORT_STEP_ROUNDS, MIN_ROUNDS_TO_EXTEND = 0.2, 15, 3
COLLECTIVE_BYTES = 25 << 20
INTERFACE = "link0"


def byte_counter(direction: str) -> int:
    """Returns the bytes that this host's interface has sent ("tx") or received ("rx")."""
    return int(Path(f"/sys/class/net/{INTERFACE}/statistics/{direction}_bytes").read_text())


class Rank:
    """The group of all ranks, and rank 0's connection to the driver."""

    def __init__(self, group: Any) -> None:
        self.group = group
        self.is_rank_0 = group.rank() == 0

    def request(self, line: str) -> None:
        """Sends a request to the driver, and blocks all ranks until the driver replies."""
        self.group.barrier().wait()
        if self.is_rank_0:
            print(line, flush=True)
            sys.stdin.readline()
        self.group.barrier().wait()

    def measure(self, step: Callable[[], None]) -> tuple[float, int]:
        """Returns the time of the slowest rank and the bytes on the first host's link. Equal on all ranks."""
        import numpy as np

        self.group.barrier().wait()
        before, start = (byte_counter("tx"), byte_counter("rx")), time.perf_counter()
        step()
        elapsed = time.perf_counter() - start
        # The host's other ranks may still be sending; their bytes belong to this step too.
        self.group.barrier().wait()
        sent = max(byte_counter("tx") - before[0], byte_counter("rx") - before[1])
        gathered = np.empty((self.group.size(), 2))
        self.group.allgather_into_tensor(gathered, np.array([elapsed, float(sent)])).wait()
        return float(gathered[:, 0].max()), int(gathered[0, 1])

    def measure_all(self, rate: str, steps: dict[str, Callable[[], None]], rounds: int) -> None:
        """Runs one step of each kind per round, so that noise affects all alike; short steps get more rounds."""
        results: dict[str, list[tuple[float, int]]] = {name: [] for name in steps}
        for number in range(max(rounds, SHORT_STEP_ROUNDS) if rounds >= MIN_ROUNDS_TO_EXTEND else rounds):
            for name, step in steps.items():
                if number < rounds or statistics.median(seconds for seconds, _ in results[name]) < SHORT_STEP:
                    results[name].append(self.measure(step))
        for name, samples in results.items() if self.is_rank_0 else ():
            row = {"rate": rate, "name": name, "seconds": statistics.median(seconds for seconds, _ in samples)}
            row |= {"rounds": len(samples), "bytes": int(statistics.median(sent for _, sent in samples))}
            print("row " + json.dumps(row), flush=True)


def main() -> None:
    """Creates all models, warms up unthrottled, then measures at each rate."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rates", help="rate:rounds, separated by commas")
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    import numpy as np
    import torch
    import torch.distributed as dist

    import hookline as hl

    torch.set_num_threads(1)
    group = hl.init_process_group(timeout=300)
    rank = Rank(group)
    init_method = f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 1}"
    dist.init_process_group("gloo", init_method=init_method, rank=group.rank(), world_size=group.size())
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(group.rank()))
    handles: list[Any] = []
    hooks = [hook for hook in HOOKS if not arguments.only or hook in arguments.only or hook == "noop"]
    steps = {hook: hookline_step(group, hook, inputs, handles, {}) for hook in hooks}
    steps |= {
        f"PyTorch {hook}": torch_step(hook, inputs)
        for hook in TORCH_HOOKS
        if not arguments.only or hook in arguments.only or hook == "NOOP"
    }
    for _ in range(WARM_UP):
        for step in steps.values():
            step()
    shared_array = group.empty((COLLECTIVE_BYTES // 4,), "float32")
    torch_tensor = torch.zeros(COLLECTIVE_BYTES // 4)
    flat = hl.init_process_group(
        backend="gloo",
        init_method=f"tcp://{os.environ['MASTER_ADDR']}:{int(os.environ['MASTER_PORT']) + 2}",
        rank=group.rank(),
        world_size=group.size(),
        timeout=300,
    )
    array = np.zeros(COLLECTIVE_BYTES // 4, np.float32)
    collectives: dict[str, Callable[[], None]] = {
        "allreduce of 25 MiB": lambda: group.allreduce([shared_array]).wait(),
        "allreduce of 25 MiB, flat gloo": lambda: flat.allreduce([array]).wait(),
        "allreduce of 25 MiB, PyTorch Gloo": lambda: dist.all_reduce(torch_tensor),
    }
    for step in collectives.values():
        step()
    for entry in arguments.rates.split(","):
        rate, rounds = entry.split(":")
        rank.request(f"rate {rate}")
        measured = steps if rate.endswith("mbit") else collectives | steps
        if rate == "10mbit":
            measured = {name: step for name, step in steps.items() if name not in SKIPPED_AT_10_MBIT}
        rank.measure_all(rate, measured, int(rounds))
    for handle in handles:
        handle.remove()
    group.barrier().wait()
    dist.destroy_process_group()


main()
