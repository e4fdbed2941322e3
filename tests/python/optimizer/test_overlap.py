"""Overlapped optimizers in Python: DataParallel(optimizer=...), clipping, and steps by callables."""

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
import torch
from training_steps import mean_hook

import hookline as hl

ADAMW = "adamw(lr=0.05)"


def new_params():
    rng = np.random.default_rng(7)
    return {f"p{i}": rng.normal(size=(50, 1 + i % 3)).astype(np.float32) for i in range(8)}


def new_grads(params, rank, step):
    rng = np.random.default_rng([rank, step])
    return {name: rng.normal(size=p.shape).astype(p.dtype) for name, p in params.items()}


def train(ddp, grads, skipped=()):
    for name in reversed(grads):
        if name not in skipped:
            ddp.ready(name, grads[name])
    ddp.finish()


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("hook", [None, "fp16", "int8 | error_feedback"])
@pytest.mark.parametrize("optimizer", ["sgd(lr=0.1, momentum=0.9)", "adam", ADAMW])
def test_finish_steps_as_a_step_afterwards_would(ranks, hook, optimizer):
    def body(group):
        params, other = new_params(), new_params()
        ddp = hl.numpy.DataParallel(params, group, hook=hook, optimizer=optimizer, bucket_cap_mb=0.0005)
        plain = hl.numpy.DataParallel(other, group, hook=hook, bucket_cap_mb=0.0005)
        by_hand = hl.make_optimizer(optimizer)
        for s in range(5):
            train(ddp, new_grads(params, group.rank(), s))
            grads = new_grads(other, group.rank(), s)
            train(plain, grads)
            by_hand.step(other, grads)
            assert same(params, other)
        assert len(ddp.buckets()) > 2
        assert ddp.optimizer.name == by_hand.name
        return params

    one, other = ranks(2, body)
    assert same(one, other)


def test_clipping_is_that_of_torch(ranks):
    def body(group):
        params = new_params()
        ddp = hl.numpy.DataParallel(params, group, optimizer=hl.SGD(lr=0.1, momentum=0.9), clip_norm=0.7)
        theirs = {name: torch.tensor(p).requires_grad_() for name, p in params.items()}
        optimizer = torch.optim.SGD(theirs.values(), lr=0.1, momentum=0.9)
        for s in range(5):
            both = [new_grads(params, rank, s) for rank in range(2)]
            train(ddp, both[group.rank()])
            for name, p in theirs.items():
                p.grad = torch.tensor((new_grads(params, 0, s)[name] + new_grads(params, 1, s)[name]) / 2)
            norm = torch.nn.utils.clip_grad_norm_(theirs.values(), 0.7)
            assert norm > 0.7
            optimizer.step()
            for name, p in theirs.items():
                np.testing.assert_allclose(params[name], p.detach().numpy(), rtol=2e-6, atol=1e-6)

    ranks(2, body)


def test_unused_parameters_are_unchanged(ranks):
    def body(group):
        params = new_params()
        before = new_params()
        ddp = hl.numpy.DataParallel(params, group, optimizer=ADAMW, find_unused_parameters=True)
        train(ddp, new_grads(params, group.rank(), 0), skipped={"p2"})
        assert np.array_equal(params["p2"], before["p2"])
        assert (params["p3"] != before["p3"]).all()
        assert "p2" not in ddp.optimizer.state_dict()["state"]

    ranks(2, body)


def test_accumulating_steps_nothing(ranks):
    def body(group):
        params = new_params()
        ddp = hl.numpy.DataParallel(params, group, optimizer="sgd(lr=1)")
        with ddp.no_sync():
            train(ddp, new_grads(params, group.rank(), 0))
        assert same(params, new_params())
        train(ddp, new_grads(params, group.rank(), 1))
        means = {name: sum(new_grads(params, r, s)[name] for r in range(2) for s in range(2)) / 2 for name in params}
        for name, p in new_params().items():
            np.testing.assert_allclose(params[name], p - means[name], rtol=1e-5, atol=1e-6)

    ranks(2, body)


def test_join_steps_on_ranks_without_inputs(ranks):
    def body(group):
        params = new_params()
        ddp = hl.numpy.DataParallel(params, group, optimizer="adam(lr=0.1)")
        with ddp.join():
            for s in range(4 if group.rank() == 0 else 2):
                train(ddp, new_grads(params, group.rank(), s))
        assert ddp.optimizer.state_dict()["state"]["p0"]["step"] == 4
        train(ddp, new_grads(params, group.rank(), 9))
        return params

    one, other = ranks(2, body)
    assert same(one, other)


def test_replacing_the_hook_keeps_the_optimizer(ranks):
    def body(group):
        params, other = new_params(), new_params()
        ddp = hl.numpy.DataParallel(params, group, optimizer=ADAMW)
        whole = hl.numpy.DataParallel(other, group, optimizer=ADAMW)

        for s in range(6):
            if s == 2:
                ddp.replace_comm_hook(group, mean_hook)
            if s == 4:
                ddp.replace_comm_hook(None, "allreduce")
            for model, values in ((ddp, params), (whole, other)):
                train(model, new_grads(values, group.rank(), s))
            assert same(params, other)
        assert ddp.stats()["hook"] == "allreduce | overlap(adamw)"

    ranks(2, body)


class Descent:
    """A functional optimizer, as PyTorch calls it."""

    def __init__(self):
        self.threads = set()

    def step_param(self, param, grad):
        self.threads.add(threading.get_ident())
        param -= 0.5 * grad


@pytest.mark.parametrize("clip_norm", [None, 1e6])
def test_steps_by_python(ranks, clip_norm):
    def body(group):
        params = [new_params() for _ in range(3)]
        descent = Descent()
        seen = []

        def descend(bucket):
            seen.append(bucket.index())
            for param, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
                param -= 0.5 * gradient

        models = [
            hl.numpy.DataParallel(p, group, optimizer=o, bucket_cap_mb=0.0005, clip_norm=clip_norm)
            for p, o in zip(params, ["sgd(lr=0.5)", descend, descent], strict=True)
        ]
        for s in range(3):
            for model, values in zip(models, params, strict=True):
                train(model, new_grads(values, group.rank(), s))
        assert same(params[0], params[1])
        assert same(params[0], params[2])
        assert len(seen) == 3 * len(models[1].buckets())
        assert threading.get_ident() not in descent.threads

    ranks(2, body)


def test_a_step_exception_keeps_its_traceback(ranks):
    def body(group):
        def raises(bucket):
            raise KeyError("no step today")

        ddp = hl.numpy.DataParallel(new_params(), group, optimizer=raises)
        with pytest.raises(KeyError, match="no step today") as caught:
            train(ddp, new_grads(new_params(), group.rank(), 0))
        assert any(entry.name == "raises" for entry in caught.traceback)

    ranks(1, body)


def test_a_hook_with_its_optimizer(ranks):
    def body(group):
        params, other = new_params(), new_params()
        hook = hl.overlap(hl.make_hook("fp16", group), hl.Adam(lr=0.1), clip_norm=0.5)
        assert hook.name.endswith("| overlap(adam)")
        one = hl.numpy.DataParallel(params, group, hook=hook)
        two = hl.numpy.DataParallel(other, group, hook="fp16", optimizer="adam(lr=0.1)", clip_norm=0.5)
        for s in range(3):
            train(one, new_grads(params, group.rank(), s))
            train(two, new_grads(params, group.rank(), s))
        assert same(params, other)
        again = hl.overlap(hl.make_hook("fp16", group), hl.Adam(lr=3), clip_norm=0.5)
        again.load_state_dict(hook.state_dict())
        one.replace_comm_hook(None, again)
        train(one, new_grads(params, group.rank(), 3))
        train(two, new_grads(params, group.rank(), 3))
        assert same(params, other)

    ranks(2, body)


def test_bad_input(ranks):
    def body(group):
        params = new_params()
        with pytest.raises(TypeError, match=r"optimizer: expected a hookline\.Optimizer"):
            hl.numpy.DataParallel(params, group, optimizer=3)
        with pytest.raises(hl.InvalidArgument, match="clip_norm requires an optimizer"):
            hl.numpy.DataParallel(params, group, clip_norm=1)
        with pytest.raises(hl.InvalidArgument, match="clip_norm must be positive and finite, got 0"):
            hl.numpy.DataParallel(params, group, optimizer="sgd", clip_norm=0)
        with pytest.raises(hl.InvalidArgument, match="unknown optimizer sdg: expected adam, adamw or sgd"):
            hl.numpy.DataParallel(params, group, optimizer="sdg")
        with pytest.raises(TypeError, match="expected an optimizer, got None"):
            hl.overlap(hl.make_hook("allreduce", group), None)
        sparse = hl.numpy.DataParallel({"w": np.zeros((4, 2), np.float32)}, group, sparse=["w"], optimizer="sgd")
        sparse.ready("w", (np.array([1]), np.ones((1, 2), np.float32)))
        with pytest.raises(hl.Unsupported, match="sparse gradients"):
            sparse.finish()

    ranks(1, body)


def test_a_step_function_does_not_keep_its_model_alive(ranks):
    def body(group):
        class Owner:
            pass

        owner = Owner()

        def step(bucket):
            owner.steps = getattr(owner, "steps", 0) + 1

        owner.ddp = hl.numpy.DataParallel(new_params(), group, optimizer=step)
        train(owner.ddp, new_grads(new_params(), group.rank(), 0))
        assert owner.steps == 1
        return weakref.ref(owner)

    (reference,) = ranks(1, body)
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize("end", ["del ddp", "ddp.replace_comm_hook(group, 'noop')", "owner = [ddp, lambda: owner]"])
@pytest.mark.parametrize("python", ["hook", "group"])
def test_a_model_with_a_python_optimizer_is_released(launch, python, end):
    """The thread that steps the first bucket starts the second bucket's hook, and needs the GIL at its exit."""
    outcome = launch(
        1,
        f"""
        import gc, sys
        sys.path[:0] = {sys.path!r}
        import numpy as np
        import hookline as hl
        from python_groups import Forwarding
        from training_steps import mean_hook

        inner = hl.init_process_group()
        group, hook = (Forwarding(inner), None) if {python!r} == "group" else (inner, mean_hook)
        params = {{name: np.zeros(20_000, np.float32) for name in "ab"}}
        ddp = hl.numpy.DataParallel(params, group, hook=hook, optimizer="sgd", bucket_cap_mb=0.01)
        for _ in range(3):
            for name in "ba":
                ddp.ready(name, np.ones(20_000, np.float32))
            ddp.finish()
        gc.collect()  # meanwhile the thread that steps the first bucket releases its references to the model
        {end}
        ddp = owner = None
        gc.collect()
        print("end")
        """,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "end" in outcome.stdout
