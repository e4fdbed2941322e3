"""Trains a small model with each of the ten hooks, checks that all ranks have the same weights, and writes them."""

import os
import sys

import numpy as np

import hookline as hl

HOOKS = [
    "allreduce",
    "fp16",
    "bf16",
    "quantize_per_tensor",
    "quantize_per_channel",
    "powersgd(rank=1, start_iter=2)",
    "powersgd(rank=2, start_iter=2)",
    "batched_powersgd(rank=1, start_iter=2)",
    "batched_powersgd(rank=2, start_iter=2)",
    "noop",
]
STEPS = 6


def train(group: hl.ProcessGroup, hook: str) -> dict[str, np.ndarray]:
    """Trains and returns the weights. Gradients are multiples of 1/16, so that their sums are exact in any order."""
    draw = np.random.default_rng(group.rank())
    params = {"w": np.zeros((48, 64), np.float32), "b": np.zeros(64, np.float32)}
    ddp = hl.numpy.DataParallel(params, group, hook=hook, bucket_cap_mb=0.004)
    for _ in range(STEPS):
        grads = {name: (draw.integers(-16, 17, p.shape) / 16).astype(np.float32) for name, p in params.items()}
        for name in reversed(grads):
            ddp.ready(name, grads[name])
        ddp.finish()
        for name, p in params.items():
            p -= 0.25 * grads[name]
    return params


def main() -> None:
    group = hl.init_process_group(timeout=60)
    backend, weights = group.getBackendName(), {}
    for hook in HOOKS:
        params = train(group, hook)
        flat = np.concatenate([p.ravel() for p in params.values()])
        gathered = np.empty((group.size(), flat.size), np.float32)
        group.allgather_into_tensor(gathered, flat).wait()
        same = all(np.array_equal(row, gathered[0]) for row in gathered)
        assert same == (hook != "noop"), f"{hook}: the ranks' weights {'agree' if same else 'differ'}"
        weights[hook] = gathered[0]
    if group.rank() == 0:
        np.savez(os.environ["RESULTS"], **weights)
    here = hl.local_group(group).size()
    group.barrier().wait()
    print(f"rank {group.rank()} of {group.size()} on {backend}, one of {here} on its host")
    sys.stdout.flush()


main()
