"""hookline inside PyTorch beside Gloo: what DistributedDataParallel and FSDP2 wait for, and one small all_reduce.

    PYTHONPATH=build/release/python python bench/torch/torch_bench.py [part...]

Two ranks, the twelve-layer model of the other benchmarks: layers of 768 by 3072 values, 28 million in all.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

PARTS = ["small", "ddp", "hooks", "fsdp"]


def rank_main(parts: list[str]) -> None:
    """What each rank does; rank 0 prints."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    import hookline.torch as ht

    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group("hookline", init_method=os.environ["MEETING"], rank=rank, world_size=2)
    groups = {"gloo": dist.new_group(backend="gloo"), "hookline": dist.group.WORLD}

    def say(name: str, seconds: float, more: str = "") -> None:
        worst = torch.tensor([seconds])
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if rank == 0:
            print(f"{name:42} {1e3 * worst.item():10.4f} ms {more}", flush=True)

    def best(function, times: int) -> float:
        taken = []
        for _ in range(times):
            dist.barrier()
            begun = time.perf_counter()
            function()
            taken.append(time.perf_counter() - begun)
        return min(taken)

    class Layers(nn.Module):
        """Twelve layers whose backward pass costs next to nothing: what is left is communication."""

        def __init__(self) -> None:
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.zeros(768, 3072)) for _ in range(12)])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((w * x).sum() for w in self.weights)

    def ddp_step(model) -> float:
        def step() -> None:
            model.zero_grad(set_to_none=True)
            model(one).backward()

        return best(step, 15)

    one = torch.ones(())
    if "small" in parts:
        tensor = torch.ones(256)
        world = dist.group.WORLD
        nothing = dist.new_group(backend="fake")
        for name, group in (("a backend that does nothing", nothing), *groups.items()):

            def many(group=group) -> None:
                for _ in range(2000):
                    dist.all_reduce(tensor, group=group)

            many()
            say(f"all_reduce of 1 KiB, {name}", best(many, 5) / 2000)
        del world

    def ddp(group, cap=25):
        return DistributedDataParallel(Layers(), process_group=group, bucket_cap_mb=cap)

    # What a step costs with all copies into buckets and out of them, and nothing sent.
    bases = {}
    for cap in (25, 512):
        if {"ddp", "hooks"} & set(parts):
            model = ddp(groups["hookline"], cap)
            ht.register_ddp_comm_hook("NOOP", model)
            bases[cap] = ddp_step(model)
            say(f"DDP, buckets of {cap} MiB, no communication", bases[cap])

    def beyond(seconds: float, cap: int) -> str:
        return f"communication {1e3 * (seconds - bases[cap]):8.2f} ms"

    if "ddp" in parts:
        for name, group in groups.items():
            taken = ddp_step(ddp(group))
            say(f"DDP, {name}", taken, beyond(taken, 25))
    if "hooks" in parts:
        for text in ("ALLREDUCE", "FP16_COMPRESS", "QUANTIZE_PER_CHANNEL", "powersgd(rank=1, start_iter=2)"):
            for name, group in groups.items():
                model = ddp(group, 512)
                ht.register_ddp_comm_hook(text, model)
                for _ in range(3):
                    model(one).backward()
                taken = ddp_step(model)
                say(f"one bucket, {text}, {name}", taken, beyond(taken, 512))
        for name, group in groups.items():
            model = ddp(group, 512)
            state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2)
            model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            for _ in range(3):
                model(one).backward()
            taken = ddp_step(model)
            say(f"one bucket, PyTorch's PowerSGD, {name}", taken, beyond(taken, 512))
    if "fsdp" in parts:
        for name, group in groups.items():
            model = nn.Sequential(*[nn.Linear(768, 3072, bias=False) for _ in range(12)])
            mesh = DeviceMesh.from_group(group, "cpu")
            for layer in model:
                fully_shard(layer, mesh=mesh)

            def step(model=model) -> None:
                sum(layer(torch.ones(1, 768)).sum() for layer in model).backward()
                model.zero_grad()

            step()
            say(f"FSDP2 step, {name}", best(step, 5))
        alone = nn.Sequential(*[nn.Linear(768, 3072, bias=False) for _ in range(12)])
        say("the same layers, not sharded", best(lambda: step(alone), 5))
    dist.destroy_process_group()


def main() -> int:
    """Starts two ranks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parts = parser.parse_args().parts
    if "RANK" in os.environ:
        rank_main(parts)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, __file__, *parts],
                env={**os.environ, "RANK": str(rank), "MEETING": f"file://{folder}/meeting", "OMP_NUM_THREADS": "1"},
            )
            for rank in range(2)
        ]
        return max(process.wait() for process in ranks)


if __name__ == "__main__":
    sys.exit(main())
