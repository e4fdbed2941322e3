"""Two models on one process group: one backward pass computes both gradients, with random delays on each rank."""

import copy
import random
import time
import warnings

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
GLOO = dist.new_group(backend="gloo")
DELAYS = random.Random(RANK)
STEPS = 12


class Wrapper(dist.ProcessGroup):
    """A group written in Python."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def getBackendName(self):  # noqa: N802
        return "wrapper"

    def allreduce(self, tensors, opts=None):
        return self.inner.allreduce(tensors, opts)

    def broadcast(self, tensors, opts=None):
        return self.inner.broadcast(tensors, opts)

    def allgather(self, outputs, inputs, opts=None):
        return self.inner.allgather(outputs, inputs, opts)


class Delay(torch.autograd.Function):
    """The identity, whose backward pass sometimes takes time."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        if DELAYS.random() < 0.3:
            time.sleep(DELAYS.random() * 0.003)
        return gradient


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = Delay.apply(layer(x))
        return x


def own(hook, **options):
    return lambda net, group: ht.DistributedDataParallel(net, group, hook, bucket_cap_mb=0.001, **options)


def pytorch(hook):
    def wrap(net, group):
        model = DistributedDataParallel(net, process_group=group, bucket_cap_mb=0.001)
        ht.register_ddp_comm_hook(hook, model)
        return model

    return wrap


def two_rounds(state, bucket):
    """A hook in Python with two dependent collectives."""
    first = state.allreduce([bucket.buffer()]).get_future()

    def second(done):
        mean = done.value()[0] / SIZE
        state.broadcast([mean], root=0).wait()
        return mean

    return first.then(second)


def gradients(rank, step, nets):
    """Returns the gradients that a rank computes in a step."""
    nets = copy.deepcopy(nets)
    loss(nets, rank, step).backward()
    return [p.grad for net in nets for p in net.parameters()]


def loss(models, rank, step):
    return sum((index + 1) * model(inputs(rank, step)).pow(2).sum() for index, model in enumerate(models))


def inputs(rank, step):
    return torch.arange(32.0).reshape(2, 16).sub(16).div(10 + rank + 3 * step)


def train(group, *kinds):
    nets = [Net(seed) for seed in range(len(kinds))]
    models = [kind(net, group) for kind, net in zip(kinds, nets, strict=True)]
    references = [Net(seed) for seed in range(len(kinds))]
    for step in range(STEPS):
        for net in nets:
            net.zero_grad()
        loss(models, RANK, step).backward()
        ranks = [gradients(rank, step, references) for rank in range(SIZE)]
        parameters = [p for net in nets for p in net.parameters()]
        for index, (parameter, *each) in enumerate(zip(parameters, *ranks, strict=True)):
            torch.testing.assert_close(
                parameter.grad, sum(each) / SIZE, rtol=0.01, atol=0.01, msg=lambda m, i=index: f"parameter {i}: {m}"
            )


@check
def hookline_models_on_a_hookline_group():
    for hook in (None, "fp16", two_rounds):
        train(None, own(hook), own(hook))
    train(None, own(None), own("fp16"), own(two_rounds))
    train(None, own("fp16", find_unused_parameters=True), own("fp16", static_graph=True))


@check
def hookline_models_on_gloo():
    for hook in (None, "fp16", two_rounds):
        train(GLOO, own(hook), own(hook))
    train(GLOO, own(None), own("fp16"), own(two_rounds))
    train(GLOO, own("fp16", find_unused_parameters=True), own("fp16", find_unused_parameters=True))


@check
def hookline_models_on_a_python_group():
    train(Wrapper(GLOO), own(None), own("fp16"))


@check
def hooks_on_pytorch_models():
    for group in (None, GLOO):
        train(group, pytorch("FP16_COMPRESS"), pytorch("FP16_COMPRESS"))
        train(group, pytorch("ALLREDUCE"), own("fp16"))


run()
