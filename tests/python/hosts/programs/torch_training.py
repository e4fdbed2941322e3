"""Trains with PyTorch's DistributedDataParallel on the backend "hookline", and compares with a single process."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hookline.torch

STEPS, BATCH = 6, 16


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5))


def batches(ranks: range) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns the batches of these ranks for each step."""
    draws = [torch.Generator().manual_seed(77 + rank) for rank in ranks]
    return [
        (
            torch.cat([torch.randn(BATCH, 12, generator=draw) for draw in draws]),
            torch.cat([torch.randint(0, 5, (BATCH,), generator=draw) for draw in draws]),
        )
        for _ in range(STEPS)
    ]


def train(model: nn.Module, ranks: range) -> torch.Tensor:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for data, target in batches(ranks):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def main() -> None:
    dist.init_process_group("hookline", timeout=datetime.timedelta(seconds=120))
    rank, size = dist.get_rank(), dist.get_world_size()
    weights = train(DistributedDataParallel(network(rank), bucket_cap_mb=0.005), range(rank, rank + 1))
    gathered = [torch.zeros_like(weights) for _ in range(size)]
    dist.all_gather(gathered, weights)
    assert all(torch.equal(weights, other) for other in gathered), "the ranks' weights differ"
    torch.testing.assert_close(weights, train(network(0), range(size)), rtol=1e-5, atol=1e-6)
    backend = hookline.torch.group_from_torch().getBackendName()
    print(f"rank {rank} of {size} on {backend}", flush=True)
    dist.destroy_process_group()


main()
