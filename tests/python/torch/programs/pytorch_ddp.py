"""The assertions of PyTorch's own DistributedDataParallel tests, on the hookline backend and on hookline's model."""

import copy
import os
import tempfile
import warnings
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch.nn import functional as f
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
torch.manual_seed(7)  # models are created repeatedly, with the same weights on all ranks
Views = partial(DistributedDataParallel, gradient_as_bucket_view=True)


def hooked(net, **options):
    model = DistributedDataParallel(net, **options)
    ht.register_ddp_comm_hook("ALLREDUCE", model)
    return model


KINDS = [DistributedDataParallel, Views, hooked, ht.DistributedDataParallel]


def as_one_process(kind, net, whole, loss, steps=2, **options):
    """Trains a model on all data, and on each rank's part of the data; gradients must be equal."""
    alone, shared = copy.deepcopy(net), kind(copy.deepcopy(net), **options)
    part = whole.chunk(SIZE)[RANK]
    for _ in range(steps):
        for model, data in ((alone, whole), (shared, part)):
            model.zero_grad(set_to_none=False)
            loss(model(data)).backward()
        for own, theirs in zip(alone.parameters(), shared.parameters(), strict=True):
            if own.grad is None or own.grad.is_sparse:
                continue
            torch.testing.assert_close(theirs.grad, own.grad, rtol=1.3e-6, atol=5e-5)
    return alone, shared


def mean_square(outputs):
    return outputs.abs().square().mean()


@check
def trains_as_one_process():
    net = nn.Sequential(nn.Linear(2, 10, bias=False), nn.ReLU(), nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 4))
    for kind in KINDS:
        as_one_process(kind, net, torch.randn(SIZE, 2, generator=torch.Generator().manual_seed(0)), mean_square)


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.never = (nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, which):
        return (self.first if which == 0 else self.second)(x)


@check
def parameters_without_gradients():
    for kind in KINDS:
        for options in ({}, {"static_graph": True}):
            model = kind(Branches(), find_unused_parameters=True, **options)
            for _ in range(1 if options else 2):
                model.zero_grad()
                output = model(torch.ones(2, 4), RANK % 2)
                assert all(p.grad is None for p in model.parameters())
                output.sum().backward()
                assert model.module.never.weight.grad is None  # used by no rank
                for layer in (model.module.first, model.module.second):  # used by some ranks
                    torch.testing.assert_close(layer.weight.grad, torch.full((4, 4), 2.0 / SIZE))
        model = kind(Branches(), find_unused_parameters=True)
        for _ in range(2):  # accumulated
            model(torch.ones(2, 4), 0).sum().backward()
        torch.testing.assert_close(model.module.first.weight.grad, torch.full((4, 4), 4.0))


@check
def unused_outputs():
    for kind in KINDS:
        for unused in (False, True):
            net = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 4))
            if unused:
                net.idle = nn.Linear(4, 4)
                net.forward = lambda x, net=net: net[2](net[1](net[0](x)))
            model = kind(net, find_unused_parameters=unused)
            for _ in range(3):
                model(torch.rand(4, 2))
            for _ in range(3):
                mean_square(model(torch.rand(4, 2))).backward()


class Fourier(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones((3, 3, 8, 5), dtype=torch.cfloat))
        self.register_buffer("turned", torch.ones(2, dtype=torch.cfloat) * 1j)

    def forward(self, x):
        return torch.fft.irfft2(torch.einsum("nchw,cohw->nohw", torch.fft.rfft2(x), self.weight))


@check
def complex_parameters():
    data = torch.rand(2 * SIZE, 3, 8, 8, generator=torch.Generator().manual_seed(3))
    for kind in KINDS:
        as_one_process(kind, Fourier(), data, lambda y: y.mean())
    for hook in ("ALLREDUCE", "FP16_COMPRESS", "QUANTIZE_PER_CHANNEL", "POWER_SGD", "fp16 | compare"):
        alone, model = Fourier(), DistributedDataParallel(Fourier())
        ht.register_ddp_comm_hook(hook, model)
        model(data.chunk(SIZE)[RANK]).mean().backward()
        alone(data).mean().backward()
        torch.testing.assert_close(model.module.weight.grad, alone.weight.grad, rtol=1e-2, atol=1e-2)


class Convolutions(nn.Module):
    def __init__(self, formats, dtypes):
        super().__init__()
        self.dtypes = dtypes
        self.first = nn.Conv2d(8, 16, 2).to(memory_format=formats[0], dtype=dtypes[0])
        self.second = nn.Conv2d(16, 8, 2).to(memory_format=formats[1], dtype=dtypes[1])

    def forward(self, x):
        return self.second(self.first(x.to(self.dtypes[0])).to(self.dtypes[1]))


@check
def layouts_and_dtypes_side_by_side():
    both = (torch.contiguous_format, torch.channels_last)
    data = torch.rand(SIZE, 8, 5, 5, generator=torch.Generator().manual_seed(4))
    for kind in KINDS:
        for formats in (both, both[::-1]):
            for dtypes in ((torch.float, torch.float), (torch.float, torch.double)):
                as_one_process(kind, Convolutions(formats, dtypes), data, mean_square, steps=3)


class Checkpoints(nn.Module):
    def __init__(self, reentrant, times, shared):
        super().__init__()
        self.first, self.second = nn.Linear(20, 20), nn.Linear(20, 20)
        self.reentrant, self.times = reentrant, times
        if shared:
            self.first.weight = self.second.weight

    def forward(self, x):
        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(self.second, x, use_reentrant=self.reentrant)
        return x


class Alternating(Checkpoints):
    def forward(self, x):
        self.times += 1
        return checkpoint(self.first if self.times % 2 else self.second, x, use_reentrant=False)


@check
def checkpoints_of_every_kind():
    data = torch.rand(4 * SIZE, 20, generator=torch.Generator().manual_seed(5))
    for kind in KINDS:
        for reentrant in (True, False):
            for times, shared in ((1, False), (1, True), (2, False), (2, True)):
                for static in (True, False):
                    net = Checkpoints(reentrant, times, shared)
                    trains = partial(as_one_process, kind, net, data, mean_square, steps=3, static_graph=static)
                    if reentrant and (times == 2 or shared) and not static:
                        # Each checkpoint has its own backward pass, and a weight in two checkpoints gets two gradients.
                        raises((RuntimeError, ValueError), "Expected to mark a variable ready only once.", trains)
                    else:
                        trains()
        for shared in (False, True):
            net = Alternating(False, 0, shared)
            as_one_process(kind, net, data, mean_square, steps=4, find_unused_parameters=True)


@dataclass
class Output:
    first: torch.Tensor | None
    others: dict[str, torch.Tensor]


class WithDataclass(nn.Module):
    def __init__(self, skips):
        super().__init__()
        self.first, self.second, self.skips = nn.Linear(10, 10), nn.Linear(10, 10), skips

    def forward(self, x):
        return Output(None if self.skips else self.first(x), {"a": self.second(x), "b": self.second(x).relu()})


@check
def outputs_in_dataclasses_and_two_forward_passes():
    data = torch.rand(4 * SIZE, 10, generator=torch.Generator().manual_seed(6))

    def loss(output):
        return mean_square(sum(t for t in (output.first, *output.others.values()) if t is not None))

    for kind in KINDS:
        for skips in (False, True):
            alone, model = as_one_process(kind, WithDataclass(skips), data, loss, find_unused_parameters=True)
            assert (model.module.first.weight.grad is None) == skips == (alone.first.weight.grad is None)
        model = kind(nn.Sequential(nn.Linear(10, 10), nn.BatchNorm1d(10)))
        (mean_square(model(data)) + mean_square(model(data))).backward()


class Counted(nn.Module):
    """Adds rank + 1 to its buffer in each forward pass."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("passes", torch.full((1,), 100.0 * RANK))

    def forward(self):
        self.passes += 1 + RANK
        return self.weight * self.passes


@check
def buffers_are_broadcast_after_an_averaged_pass():
    def passes(model):
        seen = []
        for mode in ("train", "train", "eval", "eval", "train", "no_sync", "no_sync", "train", "grad in eval", "train"):
            model.train("eval" not in mode)
            with torch.set_grad_enabled(mode != "eval"), model.no_sync() if mode == "no_sync" else nullcontext():
                output = model()
                seen.append(model.module.passes.item())
            if output.requires_grad:
                output.sum().backward()
        return seen

    theirs, ours = (passes(kind(Counted())) for kind in (DistributedDataParallel, ht.DistributedDataParallel))
    assert theirs == ours, (theirs, ours)
    assert any(a != b + 1 + RANK for a, b in zip(ours[1:], ours, strict=False)) == (RANK > 0)


@check
def sparse_gradients():
    world = dist.group.WORLD

    def hook(state, bucket):
        return world.allreduce([bucket.buffer()]).get_future().then(lambda done: done.wait()[0] / SIZE)

    data = torch.randint(0, 10, (2 * SIZE, 2), generator=torch.Generator().manual_seed(8))
    for kind in [*KINDS, hook]:
        net = nn.EmbeddingBag(10, 10, sparse=True)
        net.load_state_dict({"weight": torch.arange(100.0).view(10, 10)})
        model = DistributedDataParallel(copy.deepcopy(net)) if kind is hook else kind(copy.deepcopy(net))
        if kind is hook:
            model.register_comm_hook(None, hook)
        f.softmax(net(data), 1).square().sum().div(SIZE).backward()
        f.softmax(model(data.chunk(SIZE)[RANK]), 1).square().sum().backward()
        torch.testing.assert_close(model.module.weight.grad.to_dense(), net.weight.grad.to_dense())


@check
def buckets_lie_in_the_memory_of_the_group():
    def place(tensor):
        for line in Path("/proc/self/maps").read_text().splitlines():
            first, end = (int(n, 16) for n in line.split()[0].split("-"))
            if first <= tensor.data_ptr() < end:
                return line
        return ""

    group = dist.new_group()
    os.environ["DDP_DISABLE_COMM_MEM"] = "0"  # PyTorch reads this variable when a model is created
    model = Views(nn.Linear(100, 100), process_group=group)
    del os.environ["DDP_DISABLE_COMM_MEM"]
    mean_square(model(torch.ones(2, 100))).backward()
    assert "memfd:hookline" in place(model.module.weight.grad)
    backend = group._get_backend(torch.device("cpu"))
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64):
        tensor = backend.allocate_tensor(50, dtype=dtype, device=torch.device("cpu"))
        assert (tensor.shape, tensor.dtype) == ((50,), dtype)
        assert "memfd:hookline" in place(tensor)
        tensor.fill_(RANK == 0)
        dist.all_reduce(tensor, group=group)
        assert (tensor == 1).all()
    raises(ValueError, "-50", lambda b=backend: b.allocate_tensor(-50, dtype=torch.bool, device=torch.device("cpu")))
    dist.destroy_process_group(group)
    del group, backend
    assert "memfd:hookline" in place(tensor)  # the tensor outlives the group
    assert (tensor == 1).all()


@check
def checkpoints_on_disk():
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    for number, kind in enumerate(KINDS):

        def train(model, steps):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                mean_square(model(torch.ones(4, 2))).backward()
                optimizer.step()

        torch.manual_seed(9)
        net = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 4))
        once, resumed = kind(copy.deepcopy(net)), kind(copy.deepcopy(net))
        train(once, 6)
        train(resumed, 3)
        if RANK == 0:
            torch.save(resumed.state_dict(), f"{folder[0]}/{number}")
        dist.barrier()
        saved = torch.load(f"{folder[0]}/{number}")
        for p in resumed.parameters():
            nn.init.zeros_(p)
        resumed.load_state_dict(saved)
        nn.modules.utils.consume_prefix_in_state_dict_if_present(saved, "module.")
        net.load_state_dict(saved)
        train(resumed, 3)
        assert all(torch.equal(a, b) for a, b in zip(once.parameters(), resumed.parameters(), strict=True))


@check
def reducers_without_a_model():
    first, second, idle = nn.Linear(2, 10, bias=False).double(), nn.Linear(10, 4, bias=False), nn.Linear(4, 4)
    parameters = [first.weight, second.weight, *idle.parameters()]
    one_bucket = [list(range(4))]
    raises(RuntimeError, "", lambda: dist.Reducer(parameters, one_bucket, [1 << 20], dist.group.WORLD))
    reducer = dist.Reducer(parameters, [[0], [1, 2, 3]], [1 << 20] * 2, dist.group.WORLD, find_unused_parameters=True)
    optimizer = torch.optim.Adam(parameters)
    for step in range(3):
        reducer.prepare_for_forward()
        optimizer.zero_grad()
        output = second(first(torch.rand(10, 2).double()).float())
        loss = mean_square(idle(output) if step else output)
        reducer.prepare_for_backward(loss)
        loss.backward()
        assert (idle.weight.grad is None) == (step == 0)
        optimizer.step()


run()
dist.destroy_process_group()
