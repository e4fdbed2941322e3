"""Compressing hooks in Python: creation by enum, name and spec; state and statistics."""

import pickle

import numpy as np
import pytest
from training_steps import gradients, model, step

import hookline as hl

TYPES = ["ALLREDUCE", "FP16_COMPRESS", "BF16_COMPRESS", "QUANTIZE_PER_TENSOR", "QUANTIZE_PER_CHANNEL"]


@pytest.mark.parametrize("name", TYPES)
def test_pytorchs_types_give_the_mean(ranks, name):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group)
        hl.DDPCommHookType[name].value(model=ddp, state=group)
        other = hl.numpy.DataParallel(params, group)
        hl.register_ddp_comm_hook(name, other, group)
        for s in range(3):
            grads, same = gradients(params, group.rank(), s), gradients(params, group.rank(), s)
            step(ddp, grads)
            step(other, same)
            for key, value in grads.items():
                assert np.allclose(value, s + 1.5, rtol=0.02)
                assert np.array_equal(value, same[key])

    ranks(2, body)


def test_options_in_the_text(ranks):
    def body(group):
        assert "stochastic" in hl.make_hook("int8(rounding=stochastic, seed=3)", group).name
        with pytest.raises(hl.InvalidArgument, match="expected a whole number or 'tensor'"):
            hl.make_hook("int4(block=-1)", group)
        with pytest.raises(hl.InvalidArgument, match="no option bits; it has: block, range, rounding, seed"):
            hl.make_hook("int4(bits=3)", group)
        with pytest.raises(hl.InvalidArgument, match="option seed: expected at least 0, got -1"):
            hl.make_hook("int8(seed=-1)", group)
        with pytest.raises(hl.InvalidArgument, match="character 7"):
            hl.make_hook("int4 (", group)

    ranks(1, body)


def test_hook_stats(ranks):
    def body(group):
        params = {"w": np.zeros((64, 64), np.float32)}
        ddp = hl.numpy.DataParallel(params, group, hook="int8 | error_feedback | compare")
        grads = {"w": np.random.default_rng(group.rank()).normal(size=(64, 64)).astype(np.float32)}
        step(ddp, grads)
        (cost,) = ddp.stats()["hook_stats"]
        assert cost["values"] == 4096
        assert cost["bytes_sent"] == 32 + 4096 + 8 * 8 == ddp.stats()["bytes_sent"]  # without the bytes sent by compare
        assert 3.8 < cost["ratio"] < 4
        assert cost["encode_time"] > 0
        assert cost["decode_time"] > 0
        assert cost["residual_norm"] > 0
        assert 0 < cost["relative_error"] < 0.02

    ranks(2, body)


def test_a_resumed_run_goes_on_bit_for_bit(ranks):
    def body(group):
        text = "int4(rounding=stochastic, seed=4) | error_feedback"
        params = model()

        def steps(hook, begin, end):
            ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)
            views = {name: ddp.gradient(name) for name in params}  # prevents rebuilding of buckets
            ddp.register_comm_hook(None, hook)
            for s in range(begin, end):
                for number, name in enumerate(params):
                    shape = views[name].shape
                    views[name][...] = np.random.default_rng([group.rank(), s, number]).normal(size=shape)
                    ddp.ready(name)
                ddp.finish()
            return {name: view.copy() for name, view in views.items()}

        whole = steps(hl.make_hook(text, group), 0, 4)
        half = hl.make_hook(text, group)
        steps(half, 0, 2)
        again = hl.make_hook(text, group)
        again.load_state_dict(half.state_dict())
        resumed = steps(again, 2, 4)
        for name in params:
            assert np.array_equal(whole[name], resumed[name])

    ranks(2, body)


def test_a_training_run_is_resumed_bit_for_bit(ranks):
    def body(group):
        text = "int4(rounding=stochastic) | error_feedback"
        shapes = {"a": (40, 30), "b": (30,), "c": (30, 70), "d": (70,), "e": (5, 5, 5)}

        def steps(weights, ddp, begin, end):
            for s in range(begin, end):
                grads = {}
                for number, name in enumerate(["d", "b", "e", "c", "a"]):  # not the order of the initial buckets
                    noise = np.random.default_rng([group.rank(), s, number]).normal(size=shapes[name])
                    grads[name] = (noise + weights[name]).astype(np.float32)
                    ddp.ready(name, grads[name])
                ddp.finish()
                for name, gradient in grads.items():
                    weights[name] -= 0.1 * gradient

        def begin(weights, hook, **options):
            return hl.numpy.DataParallel(weights, group, hook, bucket_cap_mb=0.002, **options)

        whole = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
        parts = {name: value.copy() for name, value in whole.items()}
        steps(whole, begin(whole, hl.make_hook(text, group)), 0, 6)
        hook = hl.make_hook(text, group)
        ddp = begin(parts, hook)
        planned = ddp.buckets()
        steps(parts, ddp, 0, 3)
        state, buckets = hook.state_dict(), ddp.buckets()
        assert buckets != planned  # a run with the planned buckets would round differently
        del hook, ddp
        again = hl.make_hook(text, group)
        again.load_state_dict(state)
        ddp = begin(parts, again, buckets=buckets)
        steps(parts, ddp, 3, 6)
        assert ddp.buckets() == buckets
        for name, value in whole.items():
            assert np.array_equal(value, parts[name])

    ranks(2, body)


def test_a_state_of_another_hook_is_refused(ranks):
    def body(group):
        saved = hl.make_hook("int8", group).state_dict()
        with pytest.raises(hl.InvalidArgument, match="the hook int8"):
            hl.make_hook("int4", group).load_state_dict(saved)
        with pytest.raises(hl.InvalidArgument, match="truncated"):
            hl.make_hook("int8", group).load_state_dict({**saved, "state": saved["state"][:-1]})
        with pytest.raises(hl.InvalidArgument, match=r"not the state of a hook|corrupt"):
            hl.make_hook("int8", group).load_state_dict({"state": pickle.dumps(print)})

    ranks(1, body)


def test_saved_state_is_restored_in_another_group():
    (group,) = hl.make_thread_groups(1)
    hook = hl.make_hook("int8(rounding=stochastic)", group)
    hook(None, hl.GradBucket(np.ones(4, np.float32))).wait(10)
    saved = pickle.loads(pickle.dumps(hook.state_dict()))
    assert saved["hook"] == hook.name
    copy = hl.make_hook("int8(rounding=stochastic)", hl.make_thread_groups(1)[0])
    assert copy.state_dict() != saved
    copy.load_state_dict(saved)
    assert copy.state_dict() == saved
    for wrong in ({}, {"state": "text"}):
        with pytest.raises(hl.InvalidArgument, match=r"missing key 'state'.*expected a state_dict\(\) of a hook"):
            copy.load_state_dict(wrong)
    with pytest.raises(TypeError, match=r"cannot be pickled.* Save its state_dict\(\)"):
        pickle.dumps(hook)


def test_a_hook_is_replaced_between_steps(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group, hook="int4")
        for hook in ("int4", "fp16 | error_feedback", "allreduce | bf16", "int8 | where(dims=1, fallback=fp16)"):
            ddp.replace_comm_hook(None, hook)
            step(ddp, gradients(params, group.rank(), 1))
            assert ddp.stats()["hook"] == hl.make_hook(hook, group).name

    ranks(2, body)
