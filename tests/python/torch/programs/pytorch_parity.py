"""The assertions of PyTorch's own tests of backends, hooks and Python groups."""

import warnings

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, run
from torch import nn
from torch._C._distributed_c10d import _create_work_from_future
from torch.nn.parallel import DistributedDataParallel

import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
KINDS = [DistributedDataParallel, ht.DistributedDataParallel]


def gathered(value):
    values = [None] * SIZE
    dist.all_gather_object(values, value)
    return values


@check
def only_the_last_bucket_is_last():
    for kind in KINDS:
        flags = []

        def hook(state, bucket):
            state.append(bucket.is_last())
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        layers = [nn.Linear(40, 40, bias=False) for _ in range(10)]
        model = kind(nn.Sequential(nn.Linear(2, 40, bias=False), *layers), bucket_cap_mb=0.005)
        ht.register_comm_hook(model, flags, hook)
        for _ in range(2):  # PyTorch's first step has one large bucket
            flags.clear()
            model(torch.randn(10, 2)).sum().backward()
        assert len(flags) > 4
        assert flags[-1]
        assert not any(flags[:-1])


@check
def hook_results_become_gradients():
    for kind in KINDS:

        def hook(state, bucket):
            future = torch.futures.Future()
            future.set_result(torch.ones_like(bucket.buffer()) * 7)
            return future.then(lambda done: done.value() + 1).then(lambda done: done.value() * 2)

        model = kind(nn.Linear(3, 3))
        ht.register_comm_hook(model, None, hook)
        for _ in range(2):
            model.zero_grad()
            model(torch.randn(2, 3)).sum().backward()
            assert all((p.grad == 16).all() for p in model.parameters())


@check
def constructor_hooks_get_the_group():
    def hook(state, bucket):
        assert state is model.process_group
        return state.allreduce([bucket.buffer()]).get_future().then(lambda done: done.value()[0])

    model = ht.DistributedDataParallel(nn.Linear(3, 1, bias=False), hook=hook)
    for _ in range(2):
        model.zero_grad()
        model(torch.full((1, 3), RANK + 1.0)).sum().backward()
        assert (model.module.weight.grad == SIZE * (SIZE + 1) / 2).all()  # a sum, since the hook does not divide


class Alone(dist.ProcessGroup):
    """A group of one rank whose works count their waiters."""

    def __init__(self, wrapped):
        super().__init__(0, 1)
        self.wrapped, self.waits, self.futures = wrapped, 0, 0

    def getBackendName(self):  # noqa: N802
        return "alone"

    def getSize(self):  # noqa: N802
        return 1

    def _done(self, result):
        if not self.wrapped:
            return Counted(result, self)
        future = torch.futures.Future()
        future.set_result(result)
        return _create_work_from_future(future)

    def broadcast(self, tensors, opts):
        return self._done(tensors)

    def allreduce(self, tensors, opts):
        return self._done(tensors)

    def allgather(self, outputs, inputs, opts):
        for out, one in zip(outputs[0], inputs, strict=True):
            out.copy_(one)
        return self._done(outputs)


class Counted(dist._Work):
    def __init__(self, result, group):
        super().__init__()
        self.group, self.future = group, torch.futures.Future()
        self.future.set_result(result)

    def wait(self, timeout=None):
        self.group.waits += 1
        return True

    def get_future(self):
        self.group.futures += 1
        return self.future


@check
def python_groups_carry_hooks_and_both_models():
    for wrapped in (False, True):
        for kind in KINDS:
            for hook in (None, "ALLREDUCE"):
                group = Alone(wrapped)
                torch.manual_seed(123)
                net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
                model = kind(net, process_group=group)
                if hook:
                    ht.register_ddp_comm_hook(hook, model)
                data = torch.rand(2)
                model(data).sum().backward()
                gradient = net[0].bias.grad.clone()
                net.zero_grad()
                net(data).sum()
                del model
                alone = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
                alone.load_state_dict(net.state_dict())
                alone(data).sum().backward()
                torch.testing.assert_close(alone[0].bias.grad, gradient, rtol=1e-3, atol=1e-3)
                if not wrapped:
                    assert group.futures > 0


@check
def dtypes_views_and_checkpoints():
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        for hook in (None, "ALLREDUCE", "FP16_COMPRESS", "QUANTIZE_PER_TENSOR", "POWER_SGD"):
            model = DistributedDataParallel(nn.Linear(4, 2).to(dtype))
            if hook:
                ht.register_ddp_comm_hook(hook, model)
            model(torch.full((2, 4), RANK + 1.0, dtype=dtype)).sum().backward()
            mean = torch.full((2, 4), 2.0 * sum(range(1, SIZE + 1)) / SIZE, dtype=dtype)
            torch.testing.assert_close(model.module.weight.grad, mean, rtol=1e-2, atol=1e-2)
    model = DistributedDataParallel(nn.Linear(4, 2), gradient_as_bucket_view=True)
    ht.register_ddp_comm_hook("ALLREDUCE", model)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        assert model.module.weight.grad._is_view() or model.module.weight.grad._base is not None
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    other = DistributedDataParallel(nn.Linear(4, 2))
    other.load_state_dict(saved)
    torch.testing.assert_close(other(torch.ones(2, 4)), model(torch.ones(2, 4)))


@check
def passes_without_parameters():
    for kind in KINDS:
        model = kind(nn.Linear(4, 1))
        data = torch.full((3, 4), RANK + 1.0, requires_grad=True)
        (slope,) = torch.autograd.grad(model(data).sum(), data, create_graph=True)
        (model(data).sum() + slope.square().sum()).backward()
        all_weights = gathered(model.module.weight.grad.tolist())
        assert all_weights[0] == all_weights[-1]


run()
dist.destroy_process_group()
