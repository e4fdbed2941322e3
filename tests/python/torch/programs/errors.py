"""PyTorch's error messages and improved ones, on PyTorch's and hookline's DistributedDataParallel."""

from __future__ import annotations  # makes all annotations below strings

import functools
import gc
import warnings
import weakref

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hookline as hl
import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
gloo = dist.new_group(backend="gloo")


def network():
    torch.manual_seed(RANK)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def models(net=network):
    """Returns PyTorch's and Hookline's model, each on its own group, since a hook error breaks the group."""
    theirs = DistributedDataParallel(net(), process_group=dist.new_group())
    return [theirs, ht.DistributedDataParallel(net(), dist.new_group())]


def step(model):
    model(torch.full((3, 4), RANK + 1.0)).square().sum().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def ready(value):
    future = torch.futures.Future()
    future.set_result(value)
    return future


def failed(error):
    future = torch.futures.Future()
    future.set_exception(error)
    return future


EXPECTED = step(DistributedDataParallel(network()))


@check
def unknown_parameter_names():
    for argument in ("ignored", "reduce_last"):
        raises(
            ValueError,
            f"{argument}: unknown parameter 'bias'",
            lambda a=argument: ht.DistributedDataParallel(network(), **{a: ["0.bias", "bias"]}),
        )
        raises(
            TypeError,
            f"{argument}: expected a list of names, got a string. Pass ['0.bias'].",
            lambda a=argument: ht.DistributedDataParallel(network(), **{a: "0.bias"}),
        )


@check
def invalid_hooks():
    for model in models():
        raises(TypeError, "Communication hook must be callable.", lambda m=model: ht.register_comm_hook(m, None, 3))
        raises(TypeError, "Communication hook must be callable.", lambda m=model: ht.register_comm_hook(m, None, None))

        def wrong_bucket(state, bucket: int):
            return None

        def wrong_return(state, bucket) -> int:
            return 0

        text = "Communication hook: bucket annotation should be dist.GradBucket."
        raises(ValueError, text, lambda m=model: ht.register_comm_hook(m, None, wrong_bucket))
        text = "Communication hook: return annotation should be torch.futures.Future[torch.Tensor]."
        raises(ValueError, text, lambda m=model: ht.register_comm_hook(m, None, wrong_return))
        text = "must take two arguments"
        raises(TypeError, text, lambda m=model: ht.register_comm_hook(m, None, lambda bucket: None))


@check
def all_kinds_of_callables_are_hooks():
    def mean(state, grads: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        work = dist.all_reduce(grads.buffer().div_(SIZE), async_op=True)
        return work.get_future().then(lambda f: f.value()[0])

    def with_extra(extra, state, bucket):
        return mean(state, bucket)

    def a_list_of_one(state, bucket):
        return dist.all_reduce(bucket.buffer().div_(SIZE), async_op=True).get_future()

    def of_hookline(state, bucket):
        return ht.group_from_torch().allreduce([bucket.buffer()], op=hl.ReduceOp.AVG).get_future()

    class Callable:
        def __call__(self, state, b):
            return mean(state, b)

    for hook in (mean, functools.partial(with_extra, 1), Callable(), a_list_of_one, of_hookline):
        for model in models():
            ht.register_comm_hook(model, None, hook)
            torch.testing.assert_close(step(model), EXPECTED)


WRONG = [
    (lambda buffer: None, RuntimeError, "must return a torch.futures.Future object, but got builtins.NoneType"),
    (lambda buffer: buffer, RuntimeError, "must return a torch.futures.Future object, but got torch.Tensor"),
    (lambda buffer: ready(torch.zeros(59)), ValueError, "[59]"),
    (lambda buffer: ready(buffer.reshape(2, 29)), ValueError, "[2, 29]"),
    (lambda buffer: ready(buffer.double()), ValueError, "58], got"),
    (lambda buffer: ready([buffer, buffer]), ValueError, "list of 2"),
    (lambda buffer: ready(None), ValueError, "None"),
    (lambda buffer: failed(KeyError("this very one")), KeyError, "this very one"),
]


@check
def hook_results_are_validated():
    for wrong, kind, words in WRONG:
        for model in models():
            ht.register_comm_hook(model, None, lambda state, bucket, wrong=wrong: wrong(bucket.buffer()))
            raises(kind, words, lambda m=model: step(m))


@check
def exceptions_keep_type_and_traceback():
    def unlucky(state, bucket):
        raise KeyError("test failure")

    def unlucky_later(state, bucket):
        def fail(future):
            raise KeyError("test failure")

        return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(fail)

    for model in models():
        ht.register_comm_hook(model, None, unlucky)
        try:
            step(model)
        except KeyError as error:
            frame = error.__traceback__
            names = []
            while frame is not None:
                names.append(frame.tb_frame.f_code.co_name)
                frame = frame.tb_next
            assert "unlucky" in names, names
        else:
            raise AssertionError("no KeyError")
    for model in models():
        ht.register_comm_hook(model, None, unlucky_later)
        raises(Exception, "test failure", lambda m=model: step(m))


def failed_model():
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-5)
    step(model)  # PyTorch rebuilds the buckets after the first step
    seen = weakref.ref(model)

    def unlucky(state, bucket):
        error = KeyError("test failure")
        error.keeps = seen()  # a traceback also refers to the model, through its frames
        return failed(error)

    ht.register_comm_hook(model, None, unlucky)
    raises(KeyError, "test failure", lambda: step(model))
    return seen


@check
def errors_of_several_buckets_release_the_model():
    gone = failed_model()
    gc.collect()
    assert gone() is None


class Nothing(dist.ProcessGroup):
    """A group whose allreduce returns `work`: None, or a work without a future."""

    def __init__(self, work):
        super().__init__(RANK, SIZE)
        self.work = work

    def getBackendName(self):  # noqa: N802
        return "nothing"

    def allreduce(self, tensors, opts=None):
        return self.work


class NoFuture(dist._Work):
    def __init__(self, future):
        super().__init__()
        self.future = future

    def get_future(self):
        return self.future

    def wait(self, timeout=None):
        raise KeyError("the work has failed")


@check
def none_from_a_python_group():
    raises(RuntimeError, "None", lambda: ht.group_from_torch(Nothing(None)).allreduce([torch.ones(2)]).wait())
    raises(
        RuntimeError, "NoneType", lambda: ht.group_from_torch(Nothing(NoFuture(None))).allreduce([torch.ones(2)]).wait()
    )
    group = ht.group_from_torch(Nothing(NoFuture(failed(ValueError("the future has failed")))))
    raises(Exception, "has failed", lambda: group.allreduce([torch.ones(2)]).wait())


@check
def registration():
    hook = ht.allreduce_hook
    for model in models():
        step(model)  # a hook can be registered after a backward pass
        ht.register_ddp_comm_hook("FP16_COMPRESS", model)
        once = "register_comm_hook or register_builtin_comm_hook can only be called once."
        raises(RuntimeError, once, lambda m=model: ht.register_ddp_comm_hook("NOOP", m))
        raises(RuntimeError, once, lambda m=model: m.register_comm_hook(None, hook))
    for model in models():
        raises(TypeError, "PowerSGDState", lambda m=model: ht.register_ddp_comm_hook("POWER_SGD", m, 3))
        raises(TypeError, "PowerSGDState", lambda m=model: m.register_comm_hook(None, ht.powerSGD_hook) or step(m))
    raises(
        TypeError,
        "expected a torch.nn.parallel.DistributedDataParallel",
        lambda: ht.register_ddp_comm_hook("NOOP", network()),
    )
    raises(TypeError, "DDPCommHookType", lambda: ht.register_ddp_comm_hook(None, models()[0]))
    raises(TypeError, "unknown hook 'SPARKLE'", lambda: ht.register_ddp_comm_hook("SPARKLE", models()[0]))
    raises(TypeError, "state of a hook", lambda: ht.register_ddp_comm_hook("FP16_COMPRESS", models()[0], "state"))
    raises(ValueError, "no hookline hook", lambda: ht.comm_hook(models()[0]))
    text = (
        "Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because PowerSGD can "
        "only be applied after the first two iterations in DDP."
    )
    raises(ValueError, text, lambda: ht.PowerSGDState(None, start_powerSGD_iter=1))


@check
def a_hook_is_not_registered_inside_a_step():
    for model in models():

        class Inside(torch.autograd.Function):
            @staticmethod
            def forward(context, x):
                return x.clone()

            @staticmethod
            def backward(context, gradient, model=model):
                ht.register_ddp_comm_hook("NOOP", model)
                return gradient

        loss = Inside.apply(model(torch.ones(3, 4))).sum()
        own = isinstance(model, ht.DistributedDataParallel)
        if own:  # the model has no gradient yet, so its step has not started
            loss.backward()
        else:
            raises(ValueError, "inside a step", loss.backward)


@check
def reduction_that_is_not_finished():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    text = "Expected to have finished reduction in the prior iteration before starting a new one."
    theirs, own = models(Two)

    def twice(model):
        step_of_used = lambda: model(torch.ones(3, 4)).sum().backward()  # noqa: E731
        step_of_used()
        step_of_used()

    raises(RuntimeError, text, lambda: twice(theirs))
    raises(RuntimeError, text, lambda: twice(own))
    raises(RuntimeError, "idle.weight", lambda: twice(own))


@check
def nothing_to_train():
    text = "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient."
    for kind in (DistributedDataParallel, ht.DistributedDataParallel):
        raises(RuntimeError, text, lambda kind=kind: kind(nn.Linear(2, 2).requires_grad_(False)))


@check
def parameters_without_dimensions():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.layer = nn.Parameter(torch.tensor(2.0)), nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) * self.scale

    for group in (dist.group.WORLD, gloo):
        model = DistributedDataParallel(Scaled(), process_group=group)
        ht.register_ddp_comm_hook("POWER_SGD", model, ht.PowerSGDState(None, start_powerSGD_iter=2))
        own = ht.DistributedDataParallel(Scaled(), group, hook="powersgd(rank=1, start_iter=2)")
        for _ in range(4):
            assert step(model).isfinite().all()
            assert step(own).isfinite().all()


@check
def gradients_of_zero_stay_zero():
    model = DistributedDataParallel(network())
    ht.register_ddp_comm_hook("POWER_SGD", model, ht.PowerSGDState(None, start_powerSGD_iter=2))
    for _ in range(4):
        model.zero_grad()
        (model(torch.ones(3, 4)) * 0).sum().backward()
        assert all((p.grad == 0).all() for p in model.parameters())


@check
def mixed_precision_on_the_cpu():
    from torch.nn.parallel.distributed import _MixedPrecision

    seen = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.norm = nn.Linear(4, 8), nn.BatchNorm1d(8)

        def forward(self, x):
            seen.append((x.dtype, self.layer.weight.dtype, self.norm.running_mean.dtype))
            return self.norm(self.layer(x))

    bf16 = torch.bfloat16
    for kind in (_MixedPrecision, ht.MixedPrecision):
        model = ht.DistributedDataParallel(Net(), mixed_precision=kind(bf16, torch.float16, bf16))
        before = model.module.norm.running_mean.clone()
        model(torch.randn(3, 4)).float().square().sum().backward()
        assert seen[-1] == (bf16, bf16, bf16)
        assert all(p.dtype == torch.float32 and p.grad.dtype == torch.float32 for p in model.parameters())
        assert not torch.equal(model.module.norm.running_mean, before)
        gradients = [torch.cat([p.grad.flatten() for p in model.parameters()])] * SIZE
        gathered = [torch.zeros_like(gradients[0]) for _ in range(SIZE)]
        dist.all_gather(gathered, gradients[0])
        assert torch.equal(gathered[0], gathered[-1])
        assert "fp16" in model.stats()["hook"]
    model = ht.DistributedDataParallel(Net(), mixed_precision=ht.MixedPrecision(bf16))
    model(torch.randn(3, 4)).float().square().sum().backward()
    assert seen[-1] == (bf16, bf16, torch.float32)
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    plain = ht.DistributedDataParallel(network())
    small = ht.DistributedDataParallel(network(), mixed_precision=ht.MixedPrecision(bf16), hook="allreduce")
    torch.testing.assert_close(step(small), step(plain), rtol=0.05, atol=0.05)
    assert small.stats()["bytes_sent"] * 2 == plain.stats()["bytes_sent"]
    raises(
        TypeError,
        "expected a hookline.torch.MixedPrecision",
        lambda: ht.DistributedDataParallel(network(), mixed_precision=3),
    )
    wrong = ht.MixedPrecision(reduce_dtype=torch.int8)
    raises(ValueError, "float16", lambda: ht.DistributedDataParallel(network(), mixed_precision=wrong))


run()
dist.destroy_process_group()
