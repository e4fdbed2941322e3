"""Rank 0 sends small messages to the last rank without waiting for the receiver, and exits."""

import os

import numpy as np

import hookline as hl

sends = int(os.environ["SENDS"])
group = hl.init_process_group(timeout=30)
group.barrier().wait()
if group.rank() == 0:
    for i in range(sends):
        group.send([np.full(200, i, np.float32)], group.size() - 1).wait()
elif group.rank() == group.size() - 1:
    buffer = np.zeros(200, np.float32)
    for i in range(sends):
        group.recv([buffer], 0).wait()
        assert (buffer == i).all(), f"message {i}: {buffer[0]}"
    print("received", sends)
group.shutdown()
