"""Measures the conversion of a torch tensor to a hookline tensor against torch.from_dlpack in the same process."""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import hookline


def microseconds(call: Callable[[object], object], argument: object, repeats: int) -> float:
    """Returns the mean time of one call."""
    begin = time.perf_counter()
    for _ in range(repeats):
        call(argument)
    return (time.perf_counter() - begin) / repeats * 1e6


def main() -> None:
    """Measures in interleaved rounds and prints the ratio of the medians first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--repeats", type=int, default=5000)
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    options = parser.parse_args()

    tensor, array = torch.zeros(1024), np.zeros(1024, np.float32)
    cases: dict[str, tuple[Callable[[object], object], object]] = {
        "torch.from_dlpack(torch)": (torch.from_dlpack, tensor),
        "hookline.from_dlpack(torch)": (hookline.from_dlpack, tensor),
        "hookline.asarray(torch)": (hookline.asarray, tensor),
        "numpy.from_dlpack(numpy)": (np.from_dlpack, array),
        "hookline.asarray(numpy)": (hookline.asarray, array),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, (call, argument) in cases.items():
            times[name].append(microseconds(call, argument, options.repeats))
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratio = medians["hookline.from_dlpack(torch)"] / medians["torch.from_dlpack(torch)"]

    if options.json:
        print(json.dumps({"ratio": ratio, "limit": 2.0, "microseconds": medians}))
        return
    print(f"hookline.from_dlpack / torch.from_dlpack: {ratio:.2f} (target: at most 2)")
    for name, value in medians.items():
        print(f"  {name:30} {value:7.2f} us  ({min(times[name]):.2f} to {max(times[name]):.2f})")


if __name__ == "__main__":
    main()
