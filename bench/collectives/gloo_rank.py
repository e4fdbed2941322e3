"""A rank of a torch Gloo group."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from rank_server import Prepared, Row, System, serve


class Gloo(System):
    """torch.distributed with the Gloo backend; every call blocks."""

    def rank(self) -> int:
        """Returns this process's rank."""
        return dist.get_rank()

    def barrier(self) -> None:
        """Waits for all ranks."""
        dist.barrier()

    def max_over_ranks(self, value: float) -> float:
        """Returns the largest of all ranks' values."""
        tensor = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.item()

    def prepare(self, row: Row) -> Prepared:
        """Returns the calls of a row."""
        size, rank = dist.get_world_size(), dist.get_rank()
        if row.op == "barrier":
            return Prepared(dist.barrier, lambda: None)
        whole = torch.zeros(max(row.bytes // 4, 1))
        match row.op:
            case "allreduce":
                return Prepared(lambda: dist.all_reduce(whole), whole.zero_)
            case "reduce":
                return Prepared(lambda: dist.reduce(whole, 0), whole.zero_)
            case "broadcast":
                return Prepared(lambda: dist.broadcast(whole, 0), whole.zero_)
            case "pingpong":
                calls = [dist.send, dist.recv] if rank % 2 == 0 else [dist.recv, dist.send]
                return Prepared(lambda: [call(whole, rank ^ 1) for call in calls], whole.zero_)
        whole = torch.zeros(row.elements_per_rank(size) * size)
        parts = list(whole.chunk(size))
        mine = torch.zeros(row.elements_per_rank(size))
        at_root = rank == 0
        match row.op:
            case "allgather":
                return Prepared(lambda: dist.all_gather_into_tensor(whole, mine), mine.zero_)
            case "gather":
                return Prepared(lambda: dist.gather(mine, parts if at_root else None, 0), mine.zero_)
            case "scatter":
                return Prepared(lambda: dist.scatter(mine, parts if at_root else None, 0), whole.zero_)
            case "reduce_scatter":
                return Prepared(lambda: dist.reduce_scatter_tensor(mine, whole), whole.zero_)
            case "alltoall":
                out = torch.zeros_like(whole)
                return Prepared(lambda: dist.all_to_all_single(out, whole), whole.zero_)
        raise NotImplementedError(row.op)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    serve(Gloo(), Path(sys.argv[1]))
    dist.destroy_process_group()
