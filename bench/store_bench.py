"""The TCP store beside PyTorch's, client and server of each in this process, on loopback: how much faster ours is.

Rounds of both alternate, and the ratio is the median over the rounds. The last line is JSON for other programs.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

import hookline

ROUNDS = 21
CALLS = 200
SMALL = "x" * 64
LARGE = "x" * (1 << 20)

OPERATIONS: dict[str, Callable[[Any], object]] = {
    "get": lambda store: store.get("small"),
    "set": lambda store: store.set("small", SMALL),
    "set, get": lambda store: (store.set("small", SMALL), store.get("small")),
    "add": lambda store: store.add("n", 1),
    "check": lambda store: store.check(["small"]),
    "multi_get of 8": lambda store: store.multi_get(["small"] * 8),
    "set, get of 1 MiB": lambda store: (store.set("large", LARGE), store.get("large")),
}


def microseconds(operation: Callable[[Any], object], store: Any, calls: int) -> float:
    """How long one call takes, as the mean over some."""
    start = time.perf_counter()
    for _ in range(calls):
        operation(store)
    took = (time.perf_counter() - start) / calls * 1e6
    store.get("small")  # what was sent without an answer is done before the other's turn
    return took


def main() -> None:
    """Measure and print."""
    servers = [kind("127.0.0.1", 0, None, True) for kind in (hookline.TCPStore, dist.TCPStore)]
    ours, theirs = (type(server)("127.0.0.1", server.port, None, False) for server in servers)
    for store in (ours, theirs):
        store.set("small", SMALL)
    results = {}
    print(f"{'operation':<20}{'times faster':>14}{'hookline':>14}{'torch':>14}")
    for name, operation in OPERATIONS.items():
        calls = 10 if "MiB" in name else CALLS
        pairs = [[microseconds(operation, store, calls) for store in (ours, theirs)] for _ in range(ROUNDS)]
        ratio = statistics.median(torch_time / our_time for our_time, torch_time in pairs)
        mine, torchs = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{name:<20}{ratio:>14.2f}{mine:>11.1f} us{torchs:>11.1f} us")
        results[name] = {"ratio": ratio, "hookline_us": mine, "torch_us": torchs}
    print(json.dumps({"store": results}))


if __name__ == "__main__":
    main()
