"""A rank of a Hookline group in Python, for blocking calls on NumPy arrays and torch tensors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from rank_server import Prepared, Row, System, serve

import hookline


class Hookline(System):
    """Supports only allreduce: the overhead of Python is the same for all operations."""

    def __init__(self) -> None:
        self.group = hookline.init_process_group()

    def rank(self) -> int:
        """Returns this process's rank."""
        return self.group.rank()

    def barrier(self) -> None:
        """Waits for all ranks."""
        self.group.barrier().wait()

    def max_over_ranks(self, value: float) -> float:
        """Returns the largest of all ranks' values."""
        array = np.array([value])
        self.group.allreduce([array], op=hookline.ReduceOp.MAX).wait()
        return float(array[0])

    def prepare(self, row: Row) -> Prepared:
        """Returns the calls of a row; memory is "numpy" or "torch"."""
        group = self.group
        if row.op != "allreduce":
            raise NotImplementedError(row.op)
        if row.memory == "torch":
            import torch

            tensor = torch.zeros(max(row.bytes // 4, 1))
            return Prepared(lambda: group.allreduce([tensor]).wait(), tensor.zero_)
        array = np.zeros(max(row.bytes // 4, 1), np.float32)
        return Prepared(lambda: group.allreduce([array]).wait(), lambda: array.fill(0))


if __name__ == "__main__":
    serve(Hookline(), Path(sys.argv[1]))
