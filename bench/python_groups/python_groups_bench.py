"""A process group in Python that forwards to a native one, beside the native one and beside the same under PyTorch.

Native code calls both groups: ours through a decorator, torch's through its broadcast_coalesced, which has a C++ part
that calls the group. Rounds alternate; what the Python group adds is the median of the differences within a round. The
last line is JSON for other programs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import hookline as hl

ROUNDS = 25
CALLS = 400
LIMIT_US = 10.0


class Forward(hl.ProcessGroup):
    """Ours."""

    def __init__(self, inner: hl.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def allreduce(self, tensors: Any, opts: Any = None) -> hl.Work:  # noqa: D102
        return self.inner.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> hl.Work:  # noqa: D102
        return self.inner.broadcast(tensors, opts)


class TorchForward(dist.ProcessGroup):
    """The same for torch."""

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:  # noqa: D102
        return self.inner.broadcast(tensors, opts)


def microseconds(call: Callable[[], object]) -> float:
    """The processor time of one call, on all threads of this process: other programs do not count."""
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS * 1e6


def added(native: Callable[[], object], python: Callable[[], object]) -> tuple[float, float]:
    """What the second takes beyond the first, and what the first takes."""
    for call in (native, python):
        microseconds(call)
    rounds = [(microseconds(native), microseconds(python)) for _ in range(ROUNDS)]
    return statistics.median(p - n for n, p in rounds), statistics.median(n for n, _ in rounds)


def main() -> None:
    """Measure and print."""
    inner = hl.make_thread_groups(1)[0]
    native, python = hl.with_flight_recorder(inner), hl.with_flight_recorder(Forward(inner))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gloo = dist.group.WORLD
    forwarding = TorchForward(gloo)
    array, tensor = np.ones(16, np.float32), torch.ones(16)
    results = {
        "allreduce of an array": added(
            lambda: native.allreduce([array]).wait(), lambda: python.allreduce([array]).wait()
        ),
        "allreduce of a torch tensor": added(
            lambda: native.allreduce([tensor]).wait(), lambda: python.allreduce([tensor]).wait()
        ),
        "broadcast of a torch tensor": added(
            lambda: native.broadcast([tensor]).wait(), lambda: python.broadcast([tensor]).wait()
        ),
        "torch: broadcast_coalesced": added(
            lambda: dist._broadcast_coalesced(gloo, [tensor], 1 << 20, 0),
            lambda: dist._broadcast_coalesced(forwarding, [tensor], 1 << 20, 0),
        ),
    }
    print(f"{'a Python group that forwards':<32}{'adds':>10}{'to':>12}")
    for name, (more, base) in results.items():
        print(f"{name:<32}{more:>7.2f} us{base:>9.2f} us")
    worst = max(more for name, (more, _) in results.items() if not name.startswith("torch"))
    torchs = results["torch: broadcast_coalesced"][0]
    print(f"limit of {LIMIT_US:.0f} us: {'kept' if worst < LIMIT_US else 'MISSED'}")
    ratio = results["broadcast of a torch tensor"][0] / torchs
    print(f"added by ours / added by torch's: {ratio:.2f} (limit 1: {'kept' if ratio <= 1 else 'MISSED'})")
    print(json.dumps({"python_groups": {name: {"added_us": m, "native_us": b} for name, (m, b) in results.items()}}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
