"""hookline inside PyTorch beside Gloo: what DistributedDataParallel and FSDP2 wait for, and one small all_reduce.

    PYTHONPATH=build/release/python python bench/torch/torch_bench.py [--rounds N]

Two ranks and twelve Linear(1024, 1024) with a batch of 8. All models live side by side and take a step each in every
round. Communication is a step less the step of the same round in which nothing is sent; figures are medians over the
rounds, of the slower rank.
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
CALLS = 500  # of the small all_reduce in a round
ONE_BUCKET = 512  # MiB
# The second has DistributedDataParallel ask the backend for the memory of its buckets; Gloo has none to give.
SWITCHES = {"OMP_NUM_THREADS": "1", "DDP_DISABLE_COMM_MEM": "0"}


class Rounds:
    """Named functions that take turns, and their times of every round on the slower rank."""

    def __init__(self, torch: Any, rounds: int) -> None:
        self.torch = torch
        self.rounds = rounds
        self.functions: dict[str, Callable[[], None]] = {}
        self.times: dict[str, list[float]] = {}

    def run(self) -> None:
        """Three rounds to warm up, then those that count."""
        dist = self.torch.distributed
        for counted in range(-3, self.rounds):
            for name, function in self.functions.items():
                dist.barrier()
                begun = time.perf_counter()
                function()
                taken = self.torch.tensor([time.perf_counter() - begun])
                dist.all_reduce(taken, dist.ReduceOp.MAX)
                if counted >= 0:
                    self.times.setdefault(name, []).append(taken.item())

    def beyond(self, name: str, base: str) -> list[float]:
        """What one takes more than another of the same round."""
        return [a - b for a, b in zip(self.times[name], self.times[base], strict=True)]


def rank_main(rounds: int) -> None:
    """What each rank does; rank 0 prints."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import hookline.torch as ht

    torch.set_num_threads(1)
    dist.init_process_group("hookline", init_method=os.environ["MEETING"], rank=int(os.environ["RANK"]), world_size=2)
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

    functions["small nothing"] = small(dist.new_group(backend="fake"))
    for name, group in groups.items():
        functions[f"small {name}"] = small(group)
    functions["ddp nothing"] = step(ddp(groups["hookline"], "NOOP"))
    functions["one nothing"] = step(ddp(groups["hookline"], "NOOP", ONE_BUCKET))
    functions["fsdp nothing"] = step(net())
    for name, group in groups.items():
        functions[f"ddp {name}"] = step(ddp(group))
        functions[f"one {name}, powersgd of ours"] = step(ddp(group, "powersgd(rank=1, start_iter=2)", ONE_BUCKET))
        functions[f"fsdp {name}"] = step(sharded(group))
    theirs = ddp(groups["gloo"], None, ONE_BUCKET)
    state = powerSGD_hook.PowerSGDState(groups["gloo"], start_powerSGD_iter=2)
    theirs.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    functions["one gloo, PyTorch's PowerSGD"] = step(theirs)
    all_rounds.run()
    if dist.get_rank() == 0:
        report(all_rounds)
    dist.destroy_process_group()


def report(all_rounds: Rounds) -> None:
    """Figures, then what is promised."""
    beyond = {}
    for name in all_rounds.times:
        base = name.split()[0] + " nothing"
        unit, times = (1e6 / CALLS, "us") if name.startswith("small") else (1e3, "ms")
        beyond[name] = statistics.median(all_rounds.beyond(name, base)) * unit
        whole = statistics.median(all_rounds.times[name]) * unit
        print(f"{name:36} {whole:9.2f} {times}, beyond nothing sent {beyond[name]:9.2f} {times}")

    def floor(what: str, value: float, promised: float, kept: bool) -> None:
        print(f"{'met   ' if kept else 'MISSED'}  {what}: {value:.2f} ({promised:g})")

    def ratio(what: str, theirs: str, ours: str, promised: float) -> None:
        value = beyond[theirs] / beyond[ours]
        floor(what, value, promised, value >= promised)

    above = beyond["small hookline"]
    floor("all_reduce of 1 KiB above a backend that does nothing, us", above, 5, above <= 5)
    ratio("communication of DDP, Gloo over hookline", "ddp gloo", "ddp hookline", 5)
    ratio("FSDP2, Gloo over hookline", "fsdp gloo", "fsdp hookline", 2)
    for name in ("gloo", "hookline"):
        mine = f"one {name}, powersgd of ours"
        ratio(f"PowerSGD in one bucket, PyTorch's over ours on {name}", "one gloo, PyTorch's PowerSGD", mine, 4)


def main() -> int:
    """Starts two ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    if "RANK" in os.environ:
        rank_main(rounds)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, "--rounds", str(rounds)],
                env={**os.environ, "RANK": str(rank), "MEETING": f"file://{folder}/meeting", **SWITCHES},
            )
            for rank in range(2)
        ]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
