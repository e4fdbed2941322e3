"""Waits in an allreduce while another host fails, prints the error, and creates a new group.

Prints a line "working" after the first operations, "error NAME SECONDS TEXT" when one fails, and "again SUM" after a
sum in a new group of the remaining ranks.
"""

import os
import time

import numpy as np

import hookline as hl


def main() -> None:
    timeout = float(os.environ["GROUP_TIMEOUT"])
    group = hl.init_process_group(timeout=timeout)
    x = np.ones(100_000, np.float32)
    for _ in range(3):
        group.allreduce([x]).wait()
    print("working", flush=True)
    begun = time.monotonic()
    try:
        while True:
            begun = time.monotonic()
            group.allreduce([x]).wait()
    except (hl.PeerLost, hl.Timeout, hl.Aborted) as error:
        text = str(error).replace("\n", " ")
        print(f"error {type(error).__name__} {time.monotonic() - begun:.3f} {text}", flush=True)
    group.abort("the test makes a new one")
    del group
    input()  # until the test has repaired the fault
    size, lost = int(os.environ["NEW_SIZE"]), int(os.environ.get("LOST", "1000"))
    rank = int(os.environ["RANK"])
    again = hl.init_process_group(
        init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['NEW_PORT']}",
        rank=rank - (rank > lost),
        world_size=size,
        timeout=30,
    )
    y = np.ones(10_000, np.float32)
    again.allreduce([y]).wait()
    again.barrier().wait()
    print(f"again {y[9_999]:g}", flush=True)


main()
