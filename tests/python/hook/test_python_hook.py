"""Hooks in Python: accepted callables, results, and exceptions."""

import functools
import gc
import re
import threading
import weakref

import numpy as np
import pytest
import torch
from training_steps import done, expect, gradients, mean_hook, model, step

import hookline as hl


def test_continuations_of_a_hook_stay_in_its_lane(ranks):
    """Both hooks run two collectives each, which would mismatch if matched in call order."""

    def body(group):
        params = {f"p{i}": np.zeros(10 * (i + 1), np.float32) for i in range(6)}
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)

        def hook(state, bucket):
            def again(f):
                (x,) = f.value()
                x /= state.size()
                group_wide = state.allreduce([x], op=hl.ReduceOp.MAX)
                return group_wide.get_future().then(lambda g: g.value()[0])

            return state.allreduce([bucket.buffer()]).get_future().then(again)

        ddp.register_comm_hook(group, hook)
        for s in range(3):
            grads = gradients(params, group.rank(), s)
            for name in sorted(grads, reverse=group.rank() == 0):
                ddp.ready(name, grads[name])
                x = np.ones(3)
                group.allreduce([x]).wait()  # a collective of the user between the buckets
            ddp.finish()
            expect(grads, 1.5 + s)

    ranks(2, body)


def test_a_blocking_hook_and_a_list_of_one(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)

        def hook(state, bucket):
            state.allreduce([bucket.buffer()], op=hl.ReduceOp.AVG).wait()
            return done([bucket.buffer()])

        ddp.replace_comm_hook(group, hook)
        grads = gradients(params, group.rank())
        step(ddp, grads)
        expect(grads, 1.5)
        ddp.replace_comm_hook(None, "noop")
        grads = gradients(params, group.rank())
        step(ddp, grads)
        expect(grads, group.rank() + 1)

    ranks(2, body)


def test_torch_futures(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group)

        def hook(state, bucket):
            state.allreduce([bucket.buffer()], op=hl.ReduceOp.AVG).wait()
            fut = torch.futures.Future()
            fut.set_result(torch.from_numpy(bucket.buffer()))
            return fut.then(lambda f: f.value())

        ddp.register_comm_hook(group, hook)
        grads = gradients(params, group.rank())
        step(ddp, grads)
        expect(grads, 1.5)

        def failing(state, bucket):
            fut = torch.futures.Future()
            fut.set_exception(KeyError("lost"))
            return fut

        ddp.replace_comm_hook(None, failing)
        with pytest.raises(KeyError, match="lost"):
            step(ddp, grads)

    ranks(2, body)


def test_named_hooks(ranks):
    def body(group):
        hook = hl.make_hook("allreduce", group)
        assert hook.name == "allreduce"
        bucket = hl.GradBucket(np.full(4, group.rank(), np.float32))
        assert hook(None, bucket).wait(10).tolist() == [0.5] * 4
        params = model()
        ddp = hl.numpy.DataParallel(params, group, hook=hook)
        with pytest.raises(RuntimeError, match="can only be called once"):
            ddp.register_comm_hook(group, mean_hook)
        other = hl.numpy.DataParallel(params, group)
        hl.register_ddp_comm_hook(hl.DDPCommHookType.NOOP, other, group)
        assert other.stats()["hook"] == "allreduce"
        grads = gradients(params, group.rank())
        step(other, grads)
        expect(grads, group.rank() + 1)
        assert other.stats()["bytes_sent"] == 0
        third = hl.numpy.DataParallel(params, group)
        hl.register_ddp_comm_hook("ALLREDUCE", third)
        hl.DDPCommHookType.ALLREDUCE.value(model=hl.numpy.DataParallel(params, group), state=None)
        with pytest.raises(ValueError, match=r"no hook is called nonsense; there are allreduce"):
            hl.numpy.DataParallel(params, group, hook="nonsense")

    ranks(2, body)


@pytest.mark.parametrize("kind", ["ALLREDUCE", "FP16_COMPRESS", "QUANTIZE_PER_TENSOR"])
def test_the_state_of_a_named_hook_is_its_group(ranks, kind):
    def body(group):
        pairs = [group.new_group([0, 1]), group.new_group([2, 3])]
        ddp = hl.numpy.DataParallel(model(), group, bucket_cap_mb=1e-5)
        hl.register_ddp_comm_hook(kind, ddp, pairs[group.rank() // 2])
        for s in range(2):
            grads = gradients(model(), group.rank(), s)
            step(ddp, grads)
            expect(grads, s + (1.5 if group.rank() < 2 else 3.5))

    ranks(4, body)


def test_registration_validates_hooks():
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group)
    with pytest.raises(TypeError, match=re.escape("Communication hook must be callable.")):
        ddp.register_comm_hook(None, 3)
    with pytest.raises(TypeError, match="must take two arguments"):
        ddp.register_comm_hook(None, lambda bucket: bucket)
    with pytest.raises(TypeError, match="must take two arguments"):
        ddp.register_comm_hook(None, lambda a, b, c: b)

    def wrong_bucket(state, bucket: int):
        return None

    def wrong_return(state, bucket) -> int:
        return 0

    with pytest.raises(ValueError, match=re.escape("Communication hook: bucket annotation should be dist.GradBucket.")):
        ddp.register_comm_hook(None, wrong_bucket)
    with pytest.raises(ValueError, match=r"return annotation should be torch.futures.Future\[torch.Tensor\]\."):
        ddp.register_comm_hook(None, wrong_return)
    with pytest.raises(TypeError, match="register_comm_hook method"):
        hl.register_ddp_comm_hook(hl.DDPCommHookType.NOOP, object(), None)
    with pytest.raises(TypeError, match="state of hook fp16: expected the process group to reduce over"):
        hl.register_ddp_comm_hook("FP16_COMPRESS", ddp, "nonsense")
    with pytest.raises(TypeError, match="DDPCommHookType or its name, a hook spec"):
        hl.register_ddp_comm_hook(3, ddp, None)
    with pytest.raises(TypeError, match=r"unknown hook 'SPARKLE': expected one of ALLREDUCE, .*or a hook spec"):
        hl.register_ddp_comm_hook("SPARKLE", ddp, None)
    with pytest.raises(hl.InvalidArgument, match="option"):  # a known hook: the error names the option
        hl.register_ddp_comm_hook("int8(nonsense=1)", ddp, None)


def as_is(group, hook, state):
    return hook, state


def made(group, hook, state):
    return hl.make_hook(hook, group, state), None


@pytest.mark.parametrize("kind", [as_is, made])
@pytest.mark.parametrize("spec", [True, False])
def test_a_hook_is_a_spec_a_comm_hook_or_a_function_with_a_state_everywhere(ranks, kind, spec):
    def body(group):
        params, mark = model(), [group]

        def with_state(state, bucket):
            assert state is mark
            return mean_hook(state[0], bucket)

        hook, state = kind(group, "bf16", None) if spec else kind(group, with_state, mark)

        def in_constructor():
            return hl.numpy.DataParallel(params, group, hook=hook, state=state)

        def registered():
            ddp = hl.numpy.DataParallel(params, group)
            ddp.register_comm_hook(state, hook)
            return ddp

        def by_function():
            ddp = hl.numpy.DataParallel(params, group)
            hl.register_ddp_comm_hook(hook, ddp, state)
            return ddp

        def replaced():
            ddp = hl.numpy.DataParallel(params, group, hook="noop")
            ddp.replace_comm_hook(state, hook)
            return ddp

        def overlapped():
            return hl.numpy.DataParallel(params, group, hl.overlap(hook, lambda bucket: None, group=group, state=state))

        for make in (in_constructor, registered, by_function, replaced, overlapped):
            ddp = make()
            assert ("bf16" if spec else "with_state") in ddp.comm_hook.name
            grads = gradients(params, group.rank())
            step(ddp, grads)
            expect(grads, 1.5)

    ranks(2, body)


def test_the_state_of_a_spec_is_its_group(ranks):
    def body(group):
        pair = group.new_group([0, 1]), group.new_group([2, 3])
        ddp = hl.numpy.DataParallel(model(), group)
        ddp.register_comm_hook(pair[group.rank() // 2], "fp16 | compare")
        grads = gradients(model(), group.rank())
        step(ddp, grads)
        expect(grads, 1.5 if group.rank() < 2 else 3.5)
        with pytest.raises(TypeError, match="state of hook fp16: expected the process group to reduce over"):
            ddp.replace_comm_hook(3, "fp16")

    ranks(4, body)


def test_the_hook_of_a_model():
    (group,) = hl.make_thread_groups(1)
    hook = hl.make_hook("int8 | error_feedback", group)
    ddp = hl.numpy.DataParallel(model(), group, hook, optimizer="sgd")
    assert ddp.comm_hook is hook
    ddp.replace_comm_hook(None, "fp16")
    assert ddp.comm_hook.name == "fp16"


def test_every_kind_of_callable_is_taken():
    (group,) = hl.make_thread_groups(1)

    def annotated(state: "object", grads: "hl.GradBucket") -> "hl.Future[np.ndarray]":
        return done(grads.buffer())

    def with_extra(extra, state, bucket: hl.GradBucket) -> hl.Future:
        return done(bucket.buffer())

    class Callable:
        def __call__(self, state, b):
            return done(b.buffer())

    for hook in (annotated, functools.partial(with_extra, 1), Callable(), lambda *args: done(args[1].buffer())):
        ddp = hl.numpy.DataParallel(model(), group)
        ddp.register_comm_hook(None, hook)
        grads = gradients(model(), 0)
        step(ddp, grads)
        expect(grads, 1)


@pytest.mark.parametrize(
    ("hook", "kind", "text"),
    [
        (lambda s, b: None, RuntimeError, "must return a torch.futures.Future object, but got builtins.NoneType"),
        (lambda s, b: b.buffer(), RuntimeError, "Future object, but got numpy.ndarray"),
        (lambda s, b: 1 / 0, ZeroDivisionError, "division by zero"),
        (lambda s, b: done(None), ValueError, "got None"),
        (lambda s, b: done([b.buffer()] * 2), ValueError, "got a list of 2"),
        (lambda s, b: done(b.buffer()[:-1]), ValueError, r"expected float32\[28\], got float32\[27\]"),
        (lambda s, b: done(b.buffer().astype(np.float64)), ValueError, r"expected float32\[28\], got float64\[28\]"),
        (lambda s, b: done(b.buffer().reshape(-1, 2)), ValueError, r"expected float32\[28\], got float32\[14, 2\]"),
        (lambda s, b: done("text"), TypeError, "str"),
        (lambda s, b: done(b.buffer()).then(lambda f: 1 / 0), ZeroDivisionError, "division by zero"),
    ],
)
def test_hook_errors_are_raised_by_the_step(hook, kind, text):
    (group,) = hl.make_thread_groups(1)
    params = {"w": np.zeros((6, 4), np.float32), "b": np.zeros(4, np.float32)}
    ddp = hl.numpy.DataParallel(params, group)
    ddp.register_comm_hook(None, hook)
    with pytest.raises(kind, match=text) as caught:
        step(ddp, gradients(params, 0))
    if kind is ZeroDivisionError:
        assert any("lambda" in entry.name for entry in caught.traceback)


def test_a_hook_exception_keeps_its_identity_and_aborts_other_ranks(ranks):
    def body(group):
        error = LookupError("mine")

        def hook(state, bucket):
            if group.rank() == 1:
                raise error
            return mean_hook(state, bucket)

        ddp = hl.numpy.DataParallel(model(), group)
        ddp.register_comm_hook(group, hook)
        if group.rank() == 1:
            with pytest.raises(LookupError) as caught:
                step(ddp, gradients(model(), 1))
            assert caught.value is error
        else:
            with pytest.raises(hl.Aborted, match=r"rank 1.*bucket 0 of 2.*mine"):
                step(ddp, gradients(model(), 0))

    ranks(2, body)


def test_a_hook_that_never_completes():
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group, timeout=0.1)
    kept = hl.Future()

    def sleepy(state, bucket):
        return kept

    ddp.register_comm_hook(None, sleepy)
    with pytest.raises(TimeoutError, match=r"sleepy did not complete the Future of bucket 0 of 2 in step 1"):
        step(ddp, gradients(model(), 0))
    kept.set_result(None)  # a late result has no effect


def test_registering_inside_a_step():
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group)
    ddp.ready("b")
    with pytest.raises(ValueError, match="inside a step"):
        ddp.register_comm_hook(group, mean_hook)
    ddp.ready("w")
    ddp.ready("v")
    ddp.finish()
    ddp.register_comm_hook(group, mean_hook)


def test_cycles_through_the_hook_are_collected():
    class State:
        pass

    (group,) = hl.make_thread_groups(1)
    state = State()
    state.ddp = hl.numpy.DataParallel(model(), group)

    def hook(s, bucket):
        assert s.ddp is not None
        return done(bucket.buffer())

    state.ddp.register_comm_hook(state, hook)
    step(state.ddp, gradients(model(), 0))
    gone = weakref.ref(state)
    del state, hook
    gc.collect()
    assert gone() is None


def test_replaced_hooks_are_released():
    class State:
        pass

    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group)
    state = State()
    gone = weakref.ref(state)
    ddp.register_comm_hook(state, lambda s, b: done(b.buffer()))
    step(ddp, gradients(model(), 0))
    del state
    assert gone() is not None
    ddp.replace_comm_hook(None, "allreduce")
    gc.collect()
    assert gone() is None


def test_a_timer_completes_the_future():
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group, bucket_cap_mb=1e-5)

    def hook(state, bucket):
        future = hl.Future()
        threading.Timer(0.002, future.set_result, [bucket.buffer() * 2]).start()
        return future

    ddp.register_comm_hook(None, hook)
    grads = gradients(model(), 0)
    step(ddp, grads)
    expect(grads, 2)


def test_a_hook_waits_for_a_callback():
    """From the second bucket on, the hook runs inside the completion of the previous bucket's future."""
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group, bucket_cap_mb=1e-5)

    def hook(state, bucket):
        tripled = done(bucket.buffer()).then(lambda f: f.value() * 3).wait(10)
        return state.allreduce([tripled]).get_future().then(lambda f: f.value()[0])

    ddp.register_comm_hook(group, hook)
    grads = gradients(model(), 0)
    step(ddp, grads)
    expect(grads, 3)


def test_a_hook_waits_for_a_callback_of_the_thread_that_it_runs_on(ranks):
    def body(group):
        ddp = hl.numpy.DataParallel(model(), group, bucket_cap_mb=1e-5)

        def hook(state, bucket):
            total = state.allreduce([bucket.buffer()]).get_future().then(lambda f: f.value()[0]).wait(10)
            return state.barrier().get_future().then(lambda f: total / state.size())

        ddp.register_comm_hook(group, hook)
        for s in range(3):
            grads = gradients(model(), group.rank(), s)
            step(ddp, grads)
            expect(grads, 1.5 + s)

    ranks(2, body)
