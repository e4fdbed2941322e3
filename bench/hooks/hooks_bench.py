"""Measures hooks against PyTorch DDP with Gloo: steps of twelve 1024 x 1024 layers (50 MB of gradients) on two ranks.

Communication time is the time of a step minus the time of the same step with NOOP. torch computes the model in both
cases, and gradients are views of the buckets in both. Every round times every hook of both libraries once; the figures
are medians over the rounds. The program starts its two ranks itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS, WIDTH, BATCH, WARM_UP = 12, 1024, 8, 4
HOOKLINE_HOOKS = [
    "noop",
    "allreduce",
    "fp16",
    "bf16",
    "int8",
    "int4",
    "quantize_per_tensor",
    "int8(rounding=stochastic)",
    "fp16 | error_feedback",
    "int8 | error_feedback",
    "int4 | error_feedback",
    "powersgd(rank=1, start_iter=2)",
    "powersgd(rank=2, start_iter=2)",
    "powersgd(rank=4, start_iter=2)",
    "powersgd(rank=1, start_iter=2, wire=fp16)",
    "batched_powersgd(rank=1, start_iter=2)",
]
RANK1, RANK4 = "powersgd(rank=1, start_iter=2)", "powersgd(rank=4, start_iter=2)"
COPIES = "five copies"  # both ranks copy all gradients five times
TORCH_HOOKS = ["NOOP", "ALLREDUCE", "FP16_COMPRESS", "POWER_SGD"]
# Performance targets: the largest ratio of a hook's time to allreduce's, the smallest speedup over a PyTorch hook,
# and the smallest compression ratio.
MAX_TIME = {"fp16": 2, "bf16": 2, "int8": 4, "int4": 4, "quantize_per_tensor": 4}
MAX_TIME |= {f"{name} | error_feedback": 5 for name in ("fp16", "int8", "int4")}
MIN_SPEEDUP = {"allreduce": ("ALLREDUCE", 8), "fp16": ("FP16_COMPRESS", 8), RANK1: ("POWER_SGD", 5)}
MIN_COMPRESSION = {RANK1: 200}


def make_network() -> Any:
    """Returns a model with the same weights on every call."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def hookline_step(
    group: Any, hook: str, inputs: Any, handles: list[Any], ratios: dict[str, float]
) -> Callable[[], None]:
    """Returns a step whose gradients are views of the buckets, marked ready by autograd hooks."""
    import torch

    import hookline as hl

    net = make_network()
    names = {parameter: name for name, parameter in net.named_parameters()}
    ddp = hl.numpy.DataParallel({name: p.detach().numpy() for p, name in names.items()}, group, hook=hook)

    def ready(parameter: Any) -> None:
        ddp.ready(names[parameter])

    for parameter, name in names.items():
        parameter.grad = torch.from_numpy(ddp.gradient(name))  # autograd accumulates into the bucket
        handles.append(parameter.register_post_accumulate_grad_hook(ready))

    def step() -> None:
        net.zero_grad(set_to_none=False)
        net(inputs).square().mean().backward()
        ddp.finish()
        if hook in MIN_COMPRESSION and hook not in ratios and (sent := ddp.stats()["bytes_sent"]) < LAYERS * WIDTH**2:
            ratios[hook] = 4 * LAYERS * WIDTH**2 / sent

    return step


def torch_step(hook: str, inputs: Any) -> Callable[[], None]:
    """Returns the same step with PyTorch's DDP."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, powerSGD_hook, register_ddp_comm_hook

    # PyTorch's PowerSGD crashes on Gloo with more than one bucket.
    cap = {"bucket_cap_mb": 100} if hook == "POWER_SGD" else {}
    ddp = torch.nn.parallel.DistributedDataParallel(make_network(), gradient_as_bucket_view=True, **cap)
    if hook == "POWER_SGD":
        ddp.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2), powerSGD_hook.powerSGD_hook)
    elif hook == "NOOP":
        register_ddp_comm_hook(DDPCommHookType.NOOP, ddp, None)
    elif hook == "FP16_COMPRESS":
        register_ddp_comm_hook(DDPCommHookType.FP16_COMPRESS, ddp, torch.distributed.group.WORLD)

    def step() -> None:
        ddp.zero_grad(set_to_none=False)
        ddp(inputs).square().mean().backward()

    return step


def copying_step() -> Callable[[], None]:
    """Returns a step that copies as many bytes as the gradients have, five times."""
    import numpy as np

    source, target = np.ones(LAYERS * WIDTH**2, np.float32), np.zeros(LAYERS * WIDTH**2, np.float32)

    def step() -> None:
        for _ in range(5):
            np.copyto(target, source)

    return step


def run_rank(rounds: int, only: list[str] | None, out: str) -> None:
    """Runs one rank; rank 0 writes the times."""
    import torch
    import torch.distributed as dist

    import hookline as hl

    torch.set_num_threads(1)
    group = hl.init_process_group(timeout=120)
    store = Path(os.environ["HOOKLINE_BENCH_STORE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=group.rank(), world_size=group.size())
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(group.rank()))
    handles: list[Any] = []  # torch would keep the autograd hooks, and all they refer to, alive after interpreter exit
    ratios: dict[str, float] = {}
    steps = {
        hook: hookline_step(group, hook, inputs, handles, ratios)
        for hook in HOOKLINE_HOOKS
        if not only or hook in only or hook == "noop"
    }
    steps[COPIES] = copying_step()
    if not only or set(only) & set(TORCH_HOOKS):
        steps |= {hook: torch_step(hook, inputs) for hook in TORCH_HOOKS if not only or hook in only or hook == "NOOP"}
    times: dict[str, list[float]] = {hook: [] for hook in steps}
    for number in range(WARM_UP + rounds):
        for hook, step in steps.items():
            group.barrier().wait()
            begin = time.perf_counter()
            step()
            if number >= WARM_UP:
                times[hook].append(time.perf_counter() - begin)
    if group.rank() == 0:
        Path(out).write_text(json.dumps({"times": times, "ratios": ratios}))
    for handle in handles:
        handle.remove()
    dist.destroy_process_group()


def report(times: dict[str, list[float]], ratios: dict[str, float]) -> None:
    """Prints the table, then each performance target and whether it is met."""

    def target(description: str, met: bool) -> None:
        print(f"{'met' if met else 'MISSED':<7} {description}")

    def communication(hook: str) -> float:
        if hook == COPIES:
            return statistics.median(times[hook])
        base = "NOOP" if hook in TORCH_HOOKS else "noop"
        return statistics.median(t - b for t, b in zip(times[hook], times[base], strict=True))

    print(f"{'hook':>41} {'step':>9} {'communication':>14} {'of allreduce':>13}")
    allreduce = communication("allreduce") if "allreduce" in times else float("nan")
    for hook in times:
        seconds = communication(hook)
        library = "PyTorch " if hook in TORCH_HOOKS else ""
        ratio = f"{seconds / allreduce:13.2f}"
        print(f"{library + hook:>41} {1e3 * statistics.median(times[hook]):6.1f} ms {1e3 * seconds:11.2f} ms {ratio}")
    for hook, limit in MAX_TIME.items():
        if hook in times:
            ratio = communication(hook) / allreduce
            target(f"{hook}: {ratio:.2f} times allreduce (at most {limit})", ratio <= limit)
    for hook, other, limit in ((RANK1, COPIES, 1), (RANK4, RANK1, 2)):
        if hook in times and other in times:
            ratio = communication(hook) / communication(other)
            target(f"{hook}: {ratio:.2f} times {other} (at most {limit})", ratio <= limit)
    for hook, ratio in ratios.items():
        limit = MIN_COMPRESSION[hook]
        target(f"{hook}: {ratio:.0f} times fewer bytes (at least {limit})", ratio >= limit)
    for hook, (other, limit) in MIN_SPEEDUP.items():
        if other in times and hook in times:
            ratio = communication(other) / communication(hook)
            target(f"{hook}: PyTorch takes {ratio:.1f} times as long (at least {limit})", ratio >= limit)


def main() -> None:
    """Starts the ranks and prints the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", help="hooks to measure in addition to the no-op hooks")
    parser.add_argument("--json", help="write all times to this file")
    parser.add_argument("--rank-output", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_output:
        run_rank(arguments.rounds, arguments.only, arguments.rank_output)
        return
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "times.json"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "HOOKLINE_BENCH_STORE": f"{directory}/store"}
        ranks = [
            sys.executable,
            "-m",
            "hookline",
            "run",
            "-n",
            "2",
            sys.executable,
            *sys.argv,
            "--rank-output",
            str(out),
        ]
        subprocess.run(ranks, env=environment, check=True)
        times = json.loads(out.read_text())
    report(**times)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
