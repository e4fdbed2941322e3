"""A small model and its training, for the programs that check hooks on PyTorch's DistributedDataParallel."""

import warnings

import torch
import torch.distributed as dist
from checks import RANK, SIZE, init_group
from torch import nn
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
init_group("hookline")
gloo = dist.new_group(backend="gloo")
GROUPS = {"hookline": dist.group.WORLD, "gloo": gloo}


def network(seed=0):
    torch.manual_seed(seed)
    layers = [layer for _ in range(6) for layer in (nn.Linear(24, 24), nn.Tanh())]
    return nn.Sequential(nn.Linear(12, 24), *layers, nn.Linear(24, 5))


def batches(count, rank=RANK):
    generator = torch.Generator().manual_seed(7 + rank)
    for _ in range(count):
        yield torch.randn(8, 12, generator=generator), torch.randint(0, 5, (8,), generator=generator)


def ddp(group, cap=0.002):
    return DistributedDataParallel(network(RANK), process_group=group, bucket_cap_mb=cap)


def train(model, steps=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for data, target in batches(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def distance(a, b):
    return max(float((x - y).abs().max()) for x, y in zip(a, b, strict=True))


def alike(parameters):
    flat = torch.cat([p.flatten() for p in parameters])
    gathered = [torch.zeros_like(flat) for _ in range(SIZE)]
    dist.all_gather(gathered, flat)
    assert all(torch.equal(flat, other) for other in gathered)


PLAIN = train(ddp(gloo))
