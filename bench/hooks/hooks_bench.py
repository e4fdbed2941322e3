"""What hooks cost: steps of twelve 1024 x 1024 layers (50 MB of gradients) on two ranks, beside PyTorch DDP with Gloo.

Communication time is a step less the same step with NOOP. torch computes both sides, and gradients are views of the
buckets on both. Every round times every hook of both sides once, in turn; the medians of the rounds are shown. Without
arguments it starts its two ranks itself.
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
OURS = [
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
COPIES = "five copies"  # of all gradients, by both ranks at once
THEIRS = ["NOOP", "ALLREDUCE", "FP16_COMPRESS", "POWER_SGD"]
# The most that a hook may take of plain allreduce's time, and the least that PyTorch's must take of ours.
MOST = {"fp16": 2, "bf16": 2, "int8": 4, "int4": 4, "quantize_per_tensor": 4}
MOST |= {f"{name} | error_feedback": 5 for name in ("fp16", "int8", "int4")}
LEAST = {"allreduce": ("ALLREDUCE", 8), "fp16": ("FP16_COMPRESS", 8), RANK1: ("POWER_SGD", 5)}
LEAST_RATIO = {RANK1: 200}


def network() -> Any:
    """The same weights in every copy."""
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def our_step(group: Any, hook: str, inputs: Any, handles: list[Any], ratios: dict[str, float]) -> Callable[[], None]:
    """A step whose gradients, views of the buckets, are marked as autograd has them ready."""
    import torch

    import hookline as hl

    net = network()
    names = {parameter: name for name, parameter in net.named_parameters()}
    ddp = hl.numpy.DataParallel({name: p.detach().numpy() for p, name in names.items()}, group, hook=hook)

    def ready(parameter: Any) -> None:
        ddp.ready(names[parameter])

    for parameter, name in names.items():
        parameter.grad = torch.from_numpy(ddp.gradient(name))  # autograd adds to the bucket itself
        handles.append(parameter.register_post_accumulate_grad_hook(ready))

    def step() -> None:
        net.zero_grad(set_to_none=False)
        net(inputs).square().mean().backward()
        ddp.finish()
        if hook in LEAST_RATIO and hook not in ratios and (sent := ddp.stats()["bytes_sent"]) < LAYERS * WIDTH**2:
            ratios[hook] = 4 * LAYERS * WIDTH**2 / sent

    return step


def their_step(hook: str, inputs: Any) -> Callable[[], None]:
    """The same with PyTorch's DDP."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, powerSGD_hook, register_ddp_comm_hook

    # Its PowerSGD ends the process on Gloo where there is more than one bucket.
    cap = {"bucket_cap_mb": 100} if hook == "POWER_SGD" else {}
    ddp = torch.nn.parallel.DistributedDataParallel(network(), gradient_as_bucket_view=True, **cap)
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
    """As many bytes as the gradients have, from one place to another, five times."""
    import numpy as np

    source, target = np.ones(LAYERS * WIDTH**2, np.float32), np.zeros(LAYERS * WIDTH**2, np.float32)

    def step() -> None:
        for _ in range(5):
            np.copyto(target, source)

    return step


def run_rank(rounds: int, only: list[str] | None, out: str) -> None:
    """One rank; rank 0 writes the times."""
    import torch
    import torch.distributed as dist

    import hookline as hl

    torch.set_num_threads(1)
    group = hl.init_process_group(timeout=120)
    store = Path(os.environ["HOOKLINE_BENCH_STORE"])
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=group.rank(), world_size=group.size())
    inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(group.rank()))
    handles: list[Any] = []  # torch keeps its hooks, and what they refer to, beyond the end of Python
    ratios: dict[str, float] = {}
    steps = {
        hook: our_step(group, hook, inputs, handles, ratios)
        for hook in OURS
        if not only or hook in only or hook == "noop"
    }
    steps[COPIES] = copying_step()
    if not only or set(only) & set(THEIRS):
        steps |= {hook: their_step(hook, inputs) for hook in THEIRS if not only or hook in only or hook == "NOOP"}
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
    """The table, then what was promised."""

    def spent(hook: str) -> float:
        if hook == COPIES:
            return statistics.median(times[hook])
        base = "NOOP" if hook in THEIRS else "noop"
        return statistics.median(t - b for t, b in zip(times[hook], times[base], strict=True))

    print(f"{'hook':>41} {'step':>9} {'communication':>14} {'of allreduce':>13}")
    plain = spent("allreduce") if "allreduce" in times else float("nan")
    for hook in times:
        own = spent(hook)
        side = "PyTorch " if hook in THEIRS else ""
        ratio = f"{own / plain:13.2f}"
        print(f"{side + hook:>41} {1e3 * statistics.median(times[hook]):6.1f} ms {1e3 * own:11.2f} ms {ratio}")
    for hook, most in MOST.items():
        if hook in times:
            ratio = spent(hook) / plain
            print(
                f"{'met' if ratio <= most else 'MISSED':<7} {hook}: {ratio:.2f} times plain allreduce (at most {most})"
            )
    for hook, other, most in ((RANK1, COPIES, 1), (RANK4, RANK1, 2)):
        if hook in times and other in times:
            ratio = spent(hook) / spent(other)
            print(f"{'met' if ratio <= most else 'MISSED':<7} {hook}: {ratio:.2f} times {other} (at most {most})")
    for hook, ratio in ratios.items():
        least = LEAST_RATIO[hook]
        print(f"{'met' if ratio >= least else 'MISSED':<7} {hook}: {ratio:.0f} times fewer bytes ({least})")
    for hook, (other, least) in LEAST.items():
        if other in times and hook in times:
            ratio = spent(other) / spent(hook)
            print(
                f"{'met' if ratio >= least else 'MISSED':<7} {hook}: PyTorch takes {ratio:.1f} times as long ({least})"
            )


def main() -> None:
    """Starts the ranks and shows what they measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", help="hooks to measure, beside those that do nothing")
    parser.add_argument("--json", help="a file for all times")
    parser.add_argument("--rank-writes", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank_writes:
        run_rank(arguments.rounds, arguments.only, arguments.rank_writes)
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
            "--rank-writes",
            str(out),
        ]
        subprocess.run(ranks, env=environment, check=True)
        times = json.loads(out.read_text())
    report(**times)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(times))


if __name__ == "__main__":
    main()
