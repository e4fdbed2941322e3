"""Measures hookline's TCPStore against PyTorch's, with client and server in this process, over loopback.

The two stores alternate in every round; the speedup is the median over the rounds. The last line of the output is JSON.
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
    """Returns the mean time of one call."""
    start = time.perf_counter()
    for _ in range(calls):
        operation(store)
    elapsed = (time.perf_counter() - start) / calls * 1e6
    store.get("small")  # waits for requests that have no reply, so they do not delay the other store
    return elapsed


def main() -> None:
    """Measures and prints the table."""
    servers = [store_type("127.0.0.1", 0, None, True) for store_type in (hookline.TCPStore, dist.TCPStore)]
    clients = [type(server)("127.0.0.1", server.port, None, False) for server in servers]
    for client in clients:
        client.set("small", SMALL)
    results = {}
    print(f"{'operation':<20}{'speedup':>14}{'hookline':>14}{'torch':>14}")
    for name, operation in OPERATIONS.items():
        calls = 10 if "MiB" in name else CALLS
        pairs = [[microseconds(operation, client, calls) for client in clients] for _ in range(ROUNDS)]
        ratio = statistics.median(torch_time / hookline_time for hookline_time, torch_time in pairs)
        hookline_us, torch_us = (statistics.median(times) for times in zip(*pairs, strict=True))
        print(f"{name:<20}{ratio:>14.2f}{hookline_us:>11.1f} us{torch_us:>11.1f} us")
        results[name] = {"ratio": ratio, "hookline_us": hookline_us, "torch_us": torch_us}
    print(json.dumps({"store": results}))


if __name__ == "__main__":
    main()
