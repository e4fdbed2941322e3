"""Unused parameters, failed passes and no_sync, on PyTorch's and hookline's model."""

import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
KINDS = [DistributedDataParallel, ht.DistributedDataParallel]
MINE = float(RANK + 1)
MEAN = (SIZE + 1) / 2


class Branches(nn.Module):
    """Three weights, of which a pass uses only the named ones. The gradient of each used weight is the factor."""

    def __init__(self, names="abc"):
        super().__init__()
        self.weights = nn.ParameterDict({name: torch.ones(2, 3) for name in names})

    def forward(self, names, factor=MINE):
        return sum(self.weights[name] * factor for name in names)


def gradients(model):
    found = (weight.grad for weight in model.module.weights.values())
    return [None if gradient is None else gradient.flatten()[0].item() for gradient in found]


def by_rank():
    return "ab"[RANK % 2]


@check
def gradients_of_zero_take_part():
    for kind in KINDS:
        model = kind(Branches(), find_unused_parameters=True)
        for _ in range(3):
            model.zero_grad(set_to_none=False)
            model(by_rank()).sum().backward()
            assert gradients(model) == [1 / SIZE, 2 / SIZE, None]


@check
def gradients_of_earlier_passes_take_part():
    for kind in KINDS:
        model = kind(Branches(), find_unused_parameters=True)
        model("a").sum().backward()
        model(by_rank()).sum().backward()
        assert gradients(model) == [MEAN + 1 / SIZE, 2 / SIZE, None]
        for weight in model.module.weights.values():
            weight.grad = torch.full((2, 3), MINE)
        model("b").sum().backward()  # no rank uses "a" and "c": their gradients stay unchanged
        assert gradients(model) == [MINE, 2 * MEAN, MINE]
        model(by_rank()).sum().backward()
        assert gradients(model) == [MEAN + 1 / SIZE, 2 * MEAN + 2 / SIZE, MINE]


@check
def gradients_of_earlier_passes_in_another_layout():
    for kind in KINDS:
        model = kind(Branches(), find_unused_parameters=True)
        old = torch.full((3, 2), MINE).t()
        model.module.weights["a"].grad = old
        model(by_rank()).sum().backward()
        assert gradients(model) == [MEAN + 1 / SIZE, 2 / SIZE, None]


@check
def parameters_used_only_in_no_sync_are_averaged():
    for kind in KINDS:
        model = kind(Branches(), find_unused_parameters=True)
        with model.no_sync():
            model("a").sum().backward()
        model("b").sum().backward()
        assert gradients(model) == [MEAN, MEAN, None]
    model = ht.DistributedDataParallel(Branches("ab"))  # PyTorch's DDP raises an error in this case
    with model.no_sync():
        model("a").sum().backward()
    model("b").sum().backward()
    assert gradients(model) == [MEAN, MEAN]


@check
def static_graphs_that_differ_between_ranks():
    for kind in KINDS:
        model = kind(Branches(), static_graph=True, bucket_cap_mb=1e-5)
        for _ in range(3):
            model.zero_grad()
            model(by_rank()).sum().backward()
            assert gradients(model) == [1 / SIZE, 2 / SIZE, None]
        for _ in range(2):
            model.zero_grad(set_to_none=False)
            model(by_rank()).sum().backward()
            assert gradients(model) == [1 / SIZE, 2 / SIZE, None]
        before = gradients(model)
        model(by_rank()).sum().backward()
        assert gradients(model) == [2 * before[0], 2 * before[1], None]


@check
def unused_parameters_with_rounding_hooks():
    for hook in ("fp16", "int8 | error_feedback", "powersgd(start_iter=2)"):
        model = ht.DistributedDataParallel(Branches(), hook=hook, find_unused_parameters=True)
        third = 1 / 3
        model.module.weights["c"].grad = torch.full((2, 3), third)
        for _ in range(3):
            model("ab").sum().backward()
        assert model.module.weights["c"].grad.eq(torch.full((2, 3), third)).all()


class Fragile(torch.autograd.Function):
    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        if Fragile.fails:
            raise ValueError("a gradient is not finite")
        return gradient


class Chain(nn.Module):
    """The backward pass of the first weight can fail; with `late`, after the second weight has its gradient."""

    def __init__(self, late):
        super().__init__()
        self.weights = nn.ParameterDict({name: torch.ones(2, 3) for name in "ab"})
        self.late = late

    def forward(self):
        first, second = self.weights["a"] * MINE, self.weights["b"]
        return Fragile.apply(first) * second if self.late else Fragile.apply(first * second)


def fail(loss, kept):
    Fragile.fails = True
    try:
        loss.backward()
    except ValueError as error:
        kept.append(error)  # keeps the traceback alive
    Fragile.fails = False


@check
def recovery_after_a_failed_pass():
    for kind in KINDS:
        kept = []
        model = kind(Chain(late=False))
        for _ in range(3):
            fail(model().sum(), kept)
            model.zero_grad()
            model().sum().backward()
            assert gradients(model) == [MEAN, MEAN]
        assert len(kept) == 3


@check
def recovery_after_a_failed_pass_with_gradients():
    kept = []
    model = ht.DistributedDataParallel(Chain(late=True))  # one bucket, not launched yet: the step can be repeated
    for _ in range(2):
        fail(model().sum(), kept)
        assert gradients(model)[1] is not None
        model.zero_grad()
        model().sum().backward()
        assert gradients(model) == [MEAN, MEAN]
        failing, loss = model().sum(), model().sum()
        fail(failing, kept)
        model.zero_grad()
        loss.backward()  # without a forward pass in between
        assert gradients(model) == [MEAN, MEAN]
    model = ht.DistributedDataParallel(
        Chain(late=True), bucket_cap_mb=1e-5
    )  # the bucket of the first gradient is already launched
    fail(model().sum(), kept)
    for _ in range(2):
        raises(RuntimeError, "Expected to have finished reduction in the prior iteration", lambda: model())
    assert len(kept) == 5


class Repeated(nn.Module):
    """Uses the first weight several times, each time in a checkpoint with its own gradient."""

    def __init__(self):
        super().__init__()
        self.weights = nn.ParameterDict({name: torch.ones(2, 3) for name in "ab"})

    def forward(self, times):
        x = self.weights["b"] * MINE
        for _ in range(times):
            x = checkpoint(lambda x: self.weights["a"] * x, x, use_reentrant=True)
        return x


@check
def recovery_after_a_failed_mark():
    kept = []
    model = ht.DistributedDataParallel(Repeated())
    for _ in range(2):
        try:
            model(2).sum().backward()
        except ValueError as error:
            kept.append(error)  # keeps the frames of the failed mark alive
        model.zero_grad()
        model(1).sum().backward()
        assert gradients(model) == [MEAN, MEAN]
    assert len(kept) == 2


class Wrapped(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.inner = reentrant, ht.DistributedDataParallel(Chain(late=True))

    def forward(self, x):
        return checkpoint(lambda x: self.inner() * x, x, use_reentrant=self.reentrant)


@check
def a_model_inside_activation_checkpoints():
    for reentrant in (True, False):
        net = Wrapped(reentrant)
        for _ in range(2):
            net.zero_grad()
            net(torch.ones(2, 3, requires_grad=True)).sum().backward()
            assert gradients(net.inner) == [MEAN, MEAN]


@dataclass
class Output:
    inner: list[torch.Tensor]


class InDataclass(Branches):
    def forward(self, names, factor=MINE):
        return Output([super().forward(names, factor)])


@check
def no_sync_applies_to_the_forward_pass():
    for kind in KINDS:
        for net, first in ((Branches, lambda output: output), (InDataclass, lambda output: output.inner[0])):
            model = kind(net("a"))
            with model.no_sync():
                loss = first(model("a")).sum()
            loss.backward()
            assert gradients(model) == [MINE]
            with torch.no_grad():
                model("a")
            first(model("a")).sum().backward()
            assert gradients(model) == [2 * MEAN]
            model.zero_grad()
            loss = first(model("a")).sum()
            with model.no_sync():
                loss.backward()
            assert gradients(model) == [MEAN]
            with model.no_sync():
                with torch.no_grad():
                    model("a")
                first(model("a")).sum().backward()
                first(model("a")).sum().backward()
            assert gradients(model) == [MEAN + 2 * MINE]
            first(model("a")).sum().backward()
            assert gradients(model) == [4 * MEAN]


@check
def passes_of_both_kinds():
    model = ht.DistributedDataParallel(Branches("ab"))
    for names in ("ab", "ba"):
        model.zero_grad()
        with model.no_sync():
            added = model(names[0])
        (model(names[1]) + added).sum().backward()  # one backward pass of both
        assert gradients(model) == [MEAN, MEAN]
    model.zero_grad()
    averaged = model("ab").sum()
    with model.no_sync():
        added = model("ab").sum()
    added.backward()
    assert gradients(model) == [MINE, MINE]
    averaged.backward()
    assert gradients(model) == [2 * MEAN, 2 * MEAN]


@check
def no_sync_inside_a_join():
    for kind in KINDS:
        model = kind(Branches("a"))
        with model.join():
            for step in range(2 + 2 * RANK):
                with model.no_sync() if step % 2 == 0 else nullcontext():
                    loss = model("a").sum()
                loss.backward()
        if RANK == 0:
            assert gradients(model) == [2 * MEAN]


class Table(nn.Module):
    def __init__(self, tied=False):
        super().__init__()
        self.table = nn.Embedding(5, 2, sparse=True)
        self.linear = nn.Linear(2, 2, bias=False)
        if tied:
            self.again = nn.Embedding(5, 2, sparse=True)
            self.again.weight = self.table.weight

    def forward(self, rows):
        return self.linear(torch.full((1, 2), MINE) if rows is None else self.table(rows))


@check
def sparse_parameters_frozen_ignored_shared_or_unused():
    for kind in KINDS:
        net = Table()
        net.table.weight.requires_grad_(False).fill_(MINE)
        kind(net)(torch.tensor([1])).sum().backward()
        assert net.table.weight.grad is None
        net = Table(tied=True)
        model = kind(net)
        torch.nn.init.ones_(net.linear.weight)
        for _ in range(2):
            model.zero_grad()
            model(torch.tensor([RANK, 4])).sum().backward()
            assert net.table.weight.grad.to_dense()[:, 0].tolist() == [2 / SIZE] * SIZE + [0] * (4 - SIZE) + [2.0]
    for name in ("table.weight", "again.weight"):
        net = Table(tied=True)
        net.frozen = nn.Parameter(torch.ones(1), requires_grad=False)
        model = ht.DistributedDataParallel(net, ignored=[name, "frozen"])
        model(torch.tensor([RANK])).sum().backward()
        assert net.table.weight.grad.coalesce().indices().tolist() == [[RANK]]
    net = Table()
    model = ht.DistributedDataParallel(net, find_unused_parameters=True)
    model(None).sum().backward()
    assert net.table.weight.grad is None
    torch.nn.init.ones_(net.linear.weight)
    for step in (1, 2):  # only rank 0 uses the table; all ranks get the gradient
        model(torch.tensor([3]) if RANK == 0 else None).sum().backward()
        assert net.table.weight.grad.to_dense()[3, 0] == step * 2 / SIZE
    before = net.table.weight.grad.to_dense()
    model(None).sum().backward()
    assert torch.equal(net.table.weight.grad.to_dense(), before)


class Conjugated(nn.Module):
    def __init__(self, imaginary):
        super().__init__()
        self.weights = nn.ParameterDict({"a": torch.ones(3, dtype=torch.cfloat)})
        self.imaginary = imaginary

    def forward(self):
        turned = self.weights["a"].conj()
        if self.imaginary:
            return torch.view_as_real(turned.resolve_conj())[..., 1] * MINE
        return (turned * MINE).real


@check
def conjugates_of_complex_parameters():
    for kind in KINDS:
        for imaginary, mean in ((False, complex(MEAN, 0)), (True, complex(0, -MEAN))):
            model = kind(Conjugated(imaginary))
            model().sum().backward()
            assert gradients(model) == [mean]
            model().sum().backward()
            assert gradients(model) == [2 * mean]


run()
dist.destroy_process_group()
