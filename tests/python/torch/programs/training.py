"""Libraries on top of torch.distributed, unchanged, on the hookline backend, compared with Gloo."""

import copy
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checks import RANK, SIZE, check, init_group, run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

warnings.simplefilter("ignore")
init_group("hookline")
gloo = dist.new_group(backend="gloo")
hookline = dist.group.WORLD


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(12, 64), nn.Tanh(), nn.BatchNorm1d(64), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)
    )


def batches(count, rank=RANK):
    generator = torch.Generator().manual_seed(77 + rank)
    for _ in range(count):
        yield torch.randn(16, 12, generator=generator), torch.randint(0, 5, (16,), generator=generator)


def train(model, steps=6, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for data, target in batches(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data), target).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def ddp(group, cap=0.005, **options):
    return DistributedDataParallel(network(RANK), process_group=group, bucket_cap_mb=cap, **options)


def close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def alike(parameters):
    """Asserts bitwise equality on all ranks."""
    flat = torch.cat([p.flatten() for p in parameters])
    gathered = [torch.zeros_like(flat) for _ in range(SIZE)]
    dist.all_gather(gathered, flat)
    assert all(torch.equal(flat, other) for other in gathered)


@check
def ddp_trains_as_on_gloo():
    ours = train(ddp(hookline))
    close(ours, train(ddp(gloo)))
    again = train(ddp(hookline))
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    alike(ours)
    close(train(ddp(hookline, gradient_as_bucket_view=True, static_graph=True)), ours)
    close(train(ddp(hookline, find_unused_parameters=True)), ours)


@check
def ddp_with_python_hooks():
    model = ddp(hookline)
    model.register_comm_hook(None, default_hooks.allreduce_hook)
    close(train(model), train(ddp(gloo)))
    model = ddp(hookline)
    model.register_comm_hook(hookline, default_hooks.fp16_compress_hook)
    alike(train(model))
    # With several buckets, collectives of this PyTorch hook mix up, so use one bucket.
    model = ddp(hookline, cap=25)
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    alike(train(model))


@check
def ddp_accumulates_and_joins():
    def accumulate(group):
        model = ddp(group)
        (data, target), (more, other) = list(batches(2))
        with model.no_sync():
            nn.functional.cross_entropy(model(data), target).backward()
        nn.functional.cross_entropy(model(more), other).backward()
        return [p.grad.clone() for p in model.parameters()]

    close(accumulate(hookline), accumulate(gloo))

    def uneven(group):
        model = DistributedDataParallel(nn.Linear(12, 5), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for data, target in batches(3 + 2 * RANK):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(data), target).backward()
                optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    torch.manual_seed(0)
    ours = uneven(hookline)
    torch.manual_seed(0)
    close(ours, uneven(gloo))


@check
def compiled_ddp():
    model = DistributedDataParallel(network(RANK), process_group=hookline)
    close(train(torch.compile(model, backend="aot_eager")), train(ddp(gloo)))


@check
def fsdp2():
    def sharded(backend_mesh):
        model = network(0)
        for layer in (model[0], model[3], model[5]):
            fully_shard(layer, mesh=backend_mesh)
        fully_shard(model, mesh=backend_mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return [p.full_tensor() for p in train(model, optimizer=optimizer)]

    ours = sharded(init_device_mesh("cpu", (SIZE,)))
    theirs = sharded(DeviceMesh.from_group(gloo, "cpu"))
    close(ours, theirs)
    alike(ours)


@check
def zero_redundancy_optimizer():
    def shards(group):
        model = ddp(group)
        optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, process_group=group, lr=0.01)
        return train(model, optimizer=optimizer)

    ours = shards(hookline)
    close(ours, shards(gloo))
    alike(ours)


@check
def dtensor_and_tensor_parallel():
    mesh = init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(3)
    whole = torch.randn(4 * SIZE, 6)
    tensor = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(tensor.redistribute(mesh, [Replicate()]).to_local(), whole)
    assert torch.equal(tensor.redistribute(mesh, [Shard(1)]).full_tensor(), whole) or SIZE > 2
    torch.testing.assert_close((tensor @ tensor.t()).full_tensor(), whole @ whole.t())
    model = nn.Sequential(nn.Linear(12, 6 * SIZE), nn.ReLU(), nn.Linear(6 * SIZE, 5))
    plain = copy.deepcopy(model)
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    data = torch.randn(8, 12)
    model(data).sum().backward()
    plain(data).sum().backward()
    grad = model[0].weight.grad
    assert isinstance(grad, DTensor)
    torch.testing.assert_close(grad.full_tensor(), plain[0].weight.grad)


@check
def distributed_checkpoint():
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    mesh = init_device_mesh("cpu", (SIZE,))
    torch.manual_seed(5)
    whole = torch.randn(4 * SIZE, 6)
    state = {"weight": distribute_tensor(whole, mesh, [Shard(0)]), "step": torch.tensor(7)}
    dcp.save(state, checkpoint_id=os.path.join(folder[0], "saved"))
    empty = {"weight": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)]), "step": torch.tensor(0)}
    dcp.load(empty, checkpoint_id=os.path.join(folder[0], "saved"))
    assert torch.equal(empty["weight"].full_tensor(), whole)
    assert empty["step"] == 7


@check
def profiler():
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(3))
    assert any(event.key == "hookline:all_reduce" for event in profile.key_averages())


run()
dist.destroy_process_group()
