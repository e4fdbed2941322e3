"""Measures the hookline backend in PyTorch against Gloo: DistributedDataParallel, FSDP2 and a small all_reduce.

    PYTHONPATH=build/release/python python bench/torch/torch_bench.py [--rounds N]

Two ranks train twelve Linear(1024, 1024) with a batch of 8. All models exist at once, and each takes a step per round.
Communication time is the time of a step minus that of a step of the same round without communication. The figures are
medians over the rounds, of the slower rank.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

LAYERS, WIDTH, BATCH = 12, 1024, 8
CALLS = 500  # calls of the small all_reduce per round
ONE_BUCKET = 512  # MiB
# DDP_DISABLE_COMM_MEM=0: DistributedDataParallel allocates its buckets in the backend's memory, if it has any.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "DDP_DISABLE_COMM_MEM": "0"}


class Rounds:
    """Named functions that alternate, and their times in every round on the slower rank."""

    def __init__(self, torch: Any, rounds: int) -> None:
        self.torch = torch
        self.rounds = rounds
        self.functions: dict[str, Callable[[], None]] = {}
        self.times: dict[str, list[float]] = {}

    def run(self) -> None:
        """Runs three warm-up rounds, then the measured ones."""
        dist = self.torch.distributed
        for number in range(-3, self.rounds):
            for name, function in self.functions.items():
                dist.barrier()
                start = time.perf_counter()
                function()
                elapsed = self.torch.tensor([time.perf_counter() - start])
                dist.all_reduce(elapsed, dist.ReduceOp.MAX)
                if number >= 0:
                    self.times.setdefault(name, []).append(elapsed.item())

    def differences(self, name: str, base: str) -> list[float]:
        """Returns the time of one function minus that of another, by round."""
        return [a - b for a, b in zip(self.times[name], self.times[base], strict=True)]


def rank_main(rounds: int) -> None:
    """Runs one rank; rank 0 prints the report."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import hookline.torch as ht

    torch.set_num_threads(1)
    init_method = os.environ["INIT_METHOD"]
    dist.init_process_group("hookline", init_method=init_method, rank=int(os.environ["RANK"]), world_size=2)
    groups = {"gloo": dist.new_group(backend="gloo"), "hookline": dist.group.WORLD}
    images = torch.randn(BATCH, WIDTH)
    all_rounds = Rounds(torch, rounds)
    functions = all_rounds.functions

    def small(group: Any) -> Callable[[], None]:
        tensor = torch.ones(256)
        return lambda: [dist.all_reduce(tensor, group=group) for _ in range(CALLS)] and None

    def net() -> nn.Module:
        return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])

    def step(model: nn.Module) -> Callable[[], None]:
        def run() -> None:
            model.zero_grad(set_to_none=True)
            model(images).sum().backward()

        return run

    def ddp(group: Any, hook: str | None = None, cap: int = 25) -> DistributedDataParallel:
        model = DistributedDataParallel(net(), process_group=group, bucket_cap_mb=cap)
        if hook:
            ht.register_ddp_comm_hook(hook, model)
        return model

    def sharded(group: Any) -> nn.Module:
        model = net()
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)

    functions["small noop"] = small(dist.new_group(backend="fake"))
    for name, group in groups.items():
        functions[f"small {name}"] = small(group)
    functions["ddp noop"] = step(ddp(groups["hookline"], "NOOP"))
    functions["one-bucket noop"] = step(ddp(groups["hookline"], "NOOP", ONE_BUCKET))
    functions["fsdp noop"] = step(net())
    for name, group in groups.items():
        functions[f"ddp {name}"] = step(ddp(group))
        functions[f"one-bucket {name}, hookline's powersgd"] = step(
            ddp(group, "powersgd(rank=1, start_iter=2)", ONE_BUCKET)
        )
        functions[f"fsdp {name}"] = step(sharded(group))
    torch_powersgd = ddp(groups["gloo"], None, ONE_BUCKET)
    state = powerSGD_hook.PowerSGDState(groups["gloo"], start_powerSGD_iter=2)
    torch_powersgd.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    functions["one-bucket gloo, PyTorch's PowerSGD"] = step(torch_powersgd)
    all_rounds.run()
    if dist.get_rank() == 0:
        report(all_rounds)
    dist.destroy_process_group()


def report(all_rounds: Rounds) -> None:
    """Prints the times, then each performance target and whether it is met."""
    communication = {}
    for name in all_rounds.times:
        base = name.split()[0] + " noop"
        scale, unit = (1e6 / CALLS, "us") if name.startswith("small") else (1e3, "ms")
        communication[name] = statistics.median(all_rounds.differences(name, base)) * scale
        total = statistics.median(all_rounds.times[name]) * scale
        print(f"{name:40} {total:9.2f} {unit}, of which communication {communication[name]:9.2f} {unit}")

    def target(description: str, value: float, bound: str, met: bool) -> None:
        print(f"{'met   ' if met else 'MISSED'}  {description}: {value:.2f} ({bound})")

    def speedup(description: str, slow: str, fast: str, least: float) -> None:
        value = communication[slow] / communication[fast]
        target(description, value, f"at least {least:g}", value >= least)

    overhead = communication["small hookline"]
    target("all_reduce of 1 KiB above a no-op backend, us", overhead, "at most 5", overhead <= 5)
    speedup("communication of DDP, Gloo over hookline", "ddp gloo", "ddp hookline", 5)
    speedup("FSDP2, Gloo over hookline", "fsdp gloo", "fsdp hookline", 2)
    slow = "one-bucket gloo, PyTorch's PowerSGD"
    for name in ("gloo", "hookline"):
        fast = f"one-bucket {name}, hookline's powersgd"
        speedup(f"PowerSGD in one bucket on {name}, PyTorch's over hookline's", slow, fast, 4)


def main() -> int:
    """Starts the two ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    if "RANK" in os.environ:
        rank_main(rounds)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rounds", str(rounds)],
                env={**os.environ, "RANK": str(rank), "INIT_METHOD": f"file://{directory}/store", **ENVIRONMENT},
            )
            for rank in range(2)
        ]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
