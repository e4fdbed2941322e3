"""Measures the overhead of a forwarding process group in Python over a native one, in hookline and in PyTorch.

Native code calls both groups: hookline's through a decorator, torch's through broadcast_coalesced, whose C++ part calls
the group. Native and Python groups alternate; the overhead is the median of the differences within a round. The last
line of the output is JSON.
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
    """A hookline group that forwards to another one."""

    def __init__(self, inner: hl.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def allreduce(self, tensors: Any, opts: Any = None) -> hl.Work:  # noqa: D102
        return self.inner.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> hl.Work:  # noqa: D102
        return self.inner.broadcast(tensors, opts)


class TorchForward(dist.ProcessGroup):
    """A torch group that forwards to another one."""

    def __init__(self, inner: dist.ProcessGroup) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:  # noqa: D102
        return self.inner.broadcast(tensors, opts)


def microseconds(call: Callable[[], object]) -> float:
    """Returns the CPU time of one call, summed over all threads of this process."""
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS * 1e6


def overhead(native: Callable[[], object], python: Callable[[], object]) -> tuple[float, float]:
    """Returns the time that `python` adds to `native`, and the time of `native`."""
    for call in (native, python):
        microseconds(call)
    rounds = [(microseconds(native), microseconds(python)) for _ in range(ROUNDS)]
    return statistics.median(p - n for n, p in rounds), statistics.median(n for n, _ in rounds)


def main() -> None:
    """Measures and prints the table."""
    inner = hl.make_thread_groups(1)[0]
    native, python = hl.with_flight_recorder(inner), hl.with_flight_recorder(Forward(inner))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    gloo = dist.group.WORLD
    forwarding = TorchForward(gloo)
    array, tensor = np.ones(16, np.float32), torch.ones(16)
    results = {
        "allreduce of an array": overhead(
            lambda: native.allreduce([array]).wait(), lambda: python.allreduce([array]).wait()
        ),
        "allreduce of a torch tensor": overhead(
            lambda: native.allreduce([tensor]).wait(), lambda: python.allreduce([tensor]).wait()
        ),
        "broadcast of a torch tensor": overhead(
            lambda: native.broadcast([tensor]).wait(), lambda: python.broadcast([tensor]).wait()
        ),
        "torch: broadcast_coalesced": overhead(
            lambda: dist._broadcast_coalesced(gloo, [tensor], 1 << 20, 0),
            lambda: dist._broadcast_coalesced(forwarding, [tensor], 1 << 20, 0),
        ),
    }
    print(f"{'forwarding Python group':<32}{'overhead':>10}{'native':>12}")
    for name, (added, native_us) in results.items():
        print(f"{name:<32}{added:>7.2f} us{native_us:>9.2f} us")
    largest = max(added for name, (added, _) in results.items() if not name.startswith("torch"))
    print(f"largest overhead, at most {LIMIT_US:.0f} us: {'met' if largest < LIMIT_US else 'MISSED'}")
    ratio = results["broadcast of a torch tensor"][0] / results["torch: broadcast_coalesced"][0]
    print(f"overhead in hookline / in torch: {ratio:.2f} (at most 1: {'met' if ratio <= 1 else 'MISSED'})")
    print(json.dumps({"python_groups": {name: {"added_us": m, "native_us": b} for name, (m, b) in results.items()}}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
