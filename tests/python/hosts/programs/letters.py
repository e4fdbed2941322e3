"""Rank 0 sends letters to the last rank, which are small enough not to be waited for, and ends."""

import os

import numpy as np

import hookline as hl

letters = int(os.environ["LETTERS"])
group = hl.init_process_group(timeout=30)
group.barrier().wait()
if group.rank() == 0:
    for i in range(letters):
        group.send([np.full(200, i, np.float32)], group.size() - 1).wait()
elif group.rank() == group.size() - 1:
    letter = np.zeros(200, np.float32)
    for i in range(letters):
        group.recv([letter], 0).wait()
        assert (letter == i).all(), f"letter {i}: {letter[0]}"
    print("received", letters)
group.shutdown()
