"""Post-local SGD: hook and state, model averagers, and the optimizer wrapper."""

import copy
import warnings
from collections import OrderedDict

import numpy as np
import pytest
import torch
from training_steps import step as train

import hookline as hl


def new_params(rank=0):
    rng = np.random.default_rng(rank)
    return {"w": rng.normal(size=(20, 3)).astype(np.float32), "b": rng.normal(size=7).astype(np.float32)}


def new_grads(rank, step):
    rng = np.random.default_rng([rank, step])
    return {name: rng.normal(size=p.shape).astype(np.float32) for name, p in new_params().items()}


def mean_of(values):
    return {name: np.mean([v[name] for v in values], axis=0, dtype=np.float32) for name in values[0]}


def close(one, other):
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("by", ["state", "text"])
def test_gradients_are_averaged_over_all_then_over_a_part(ranks, by):
    def body(group):
        ddp = hl.numpy.DataParallel(new_params(), group, bucket_cap_mb=0.00001)
        pair = group.rank() // 2
        if by == "state":
            subgroup = group.split(pair, group.rank())
            state = hl.PostLocalSGDState(process_group=group, subgroup=subgroup, start_localSGD_iter=2)
            ddp.register_comm_hook(state, hl.post_localSGD_hook)
        else:
            ddp.register_comm_hook(None, "post_local_sgd(start_iter=2, group_size=2)")
        for s in range(4):
            grads = new_grads(group.rank(), s)
            train(ddp, grads)
            members = range(4) if s < 2 else range(2 * pair, 2 * pair + 2)
            close(grads, mean_of([new_grads(r, s) for r in members]))
        assert len(ddp.buckets()) == 2
        assert ddp.stats()["hook"] == "post_local_sgd"
        if by == "state":
            assert state.iter == 4

    ranks(4, body)


def test_without_a_subgroup_and_without_gradients(ranks):
    def body(group):
        for allreduce in (True, False):
            state = hl.PostLocalSGDState(group, None, 1, post_local_gradient_allreduce=allreduce)
            ddp = hl.numpy.DataParallel(new_params(), group)
            ddp.register_comm_hook(state, hl.post_localSGD_hook)
            for s in range(3):
                grads = new_grads(group.rank(), s)
                train(ddp, grads)
                both = allreduce or s == 0
                close(grads, mean_of([new_grads(r, s) for r in (range(2) if both else [group.rank()])]))
        assert hl.local_group(group) is group
        # Called as a function of a bucket, outside a reducer.
        state = hl.PostLocalSGDState(group, None, 5)
        bucket = hl.GradBucket(np.full(4, group.rank(), np.float32))
        assert (hl.post_localSGD_hook(state, bucket).wait(20) == 0.5).all()
        assert state.iter == 1

    ranks(2, body)


def test_a_resumed_state_goes_on_counting(ranks):
    def body(group):
        state = hl.PostLocalSGDState(group, group.split(group.rank(), 0), 3)
        state.iter = 3
        ddp = hl.numpy.DataParallel(new_params(), group)
        ddp.register_comm_hook(state, hl.post_localSGD_hook)
        grads = new_grads(group.rank(), 0)
        train(ddp, grads)
        close(grads, new_grads(group.rank(), 0))

    ranks(2, body)


def test_periodic_averager(ranks):
    def body(group):
        averager = hl.PeriodicModelAverager(period=3, warmup_steps=2, process_group=group)
        averaged = []
        for _ in range(9):
            params = new_params(group.rank())
            averaged.append(averager.average_parameters(params))
            close(params, mean_of([new_params(0), new_params(1)]) if averaged[-1] else new_params(group.rank()))
        assert [s for s in range(9) if averaged[s]] == [2, 5, 8]
        assert averager.step == 9
        averager.step = 2
        assert averager.average_parameters(list(new_params(group.rank()).values()))

    ranks(2, body)


def test_hierarchical_averager_against_a_direct_computation(ranks):
    def body(group):
        levels = OrderedDict([(2, 2), (4, 4)])
        averager = hl.HierarchicalModelAverager(levels, warmup_steps=1, process_group=group)
        pair = group.rank() // 2 * 2
        for s in range(9):
            params = new_params(group.rank())
            averager.average_parameters(params)
            members = [group.rank()]
            if s >= 1 and s % 2 == 0:
                members = range(4) if s % 4 == 0 else range(pair, pair + 2)
            close(params, mean_of([new_params(r) for r in members]))
        assert [g.size() for g in averager.period_process_group_dict.values()] == [2, 4]

    ranks(4, body)


def test_averager_with_torch_parameters(ranks):
    def body(group):
        with_gradient = torch.full((3,), float(group.rank()), requires_grad=True)
        with_gradient.grad = torch.zeros(3)
        without = torch.full((3,), float(group.rank()), requires_grad=True)
        averager = hl.PeriodicModelAverager(2, 0, group)
        optimizer = torch.optim.SGD([with_gradient, without], lr=0.1)
        averager.average_parameters(optimizer.param_groups)
        assert (with_gradient == 0.5).all()
        assert (without == group.rank()).all()  # as in PyTorch

    ranks(2, body)


def test_period_of_one_is_plain_averaging(ranks):
    def body(group):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            averager = hl.PeriodicModelAverager(1, 0, group)
        assert "When period is 1, no need to use model averaging" in str(caught[0].message)
        local, plain = new_params(), new_params()
        optimizer = hl.PostLocalSGDOptimizer(hl.SGD(lr=0.1), averager)
        ddp = hl.numpy.DataParallel(plain, group, optimizer="sgd(lr=0.1)")
        for s in range(20):
            optimizer.step(local, new_grads(group.rank(), s))
            train(ddp, new_grads(group.rank(), s))
            close(local, plain)

    ranks(2, body)


def reference(steps, warmup, period):
    """Simulates four ranks: averages gradients in the warm-up, then steps locally and averages parameters."""
    models = [new_params() for _ in range(4)]
    for s in range(steps):
        means = mean_of([new_grads(r, s) for r in range(4)])
        for r, model in enumerate(models):
            for name, g in (means if s < warmup else new_grads(r, s)).items():
                model[name] -= 0.1 * g
        if s >= warmup and (s - warmup) % period == 0:
            mean = mean_of(models)
            models = [{name: value.copy() for name, value in mean.items()} for _ in range(4)]
    return models


@pytest.mark.parametrize("overlapped", [False, True])
def test_post_local_sgd_end_to_end(ranks, overlapped):
    def body(group):
        params = new_params()
        averager = hl.PeriodicModelAverager(period=3, warmup_steps=4, process_group=group)
        optimizer = hl.PostLocalSGDOptimizer(hl.SGD(lr=0.1), averager)
        hook = "post_local_sgd(start_iter=4, group_size=1)"
        ddp = hl.numpy.DataParallel(params, group, hook=hook, optimizer=optimizer if overlapped else None)
        for s in range(12):
            grads = new_grads(group.rank(), s)
            train(ddp, grads)
            if not overlapped:
                optimizer.step(params, grads)
            close(params, reference(s + 1, 4, 3)[group.rank()])
        assert averager.step == 12

    ranks(4, body)


def test_around_an_optimizer_of_torch_and_resumed(ranks):
    def body(group):
        def make():
            p = torch.zeros(5, requires_grad=True)
            return p, hl.PostLocalSGDOptimizer(
                torch.optim.SGD([p], lr=0.5, momentum=0.9), hl.PeriodicModelAverager(4, 2, group)
            )

        def step(p, optimizer, s):
            optimizer.zero_grad()
            p.grad = torch.full((5,), float(group.rank() + s))
            optimizer.step()

        p, whole = make()
        for s in range(5):
            step(p, whole, s)
        q, resumed = make()
        with torch.no_grad():
            q.copy_(p)
        saved = copy.deepcopy(whole.state_dict())  # torch returns the tensors without a copy
        assert saved["step"] == 5
        resumed.load_state_dict(saved)
        for s in range(5, 9):
            step(p, whole, s)
            step(q, resumed, s)
            assert torch.equal(p, q)
        return p

    one, other = ranks(2, body)
    assert not torch.equal(one, other)  # averaged in step 6, different since


def test_a_checkpoint_without_a_counter_warns(ranks):
    def body(group):
        optimizer = hl.PostLocalSGDOptimizer(hl.SGD(), hl.PeriodicModelAverager(4, 2, group))
        optimizer.averager.step = 7
        saved = optimizer.state_dict()
        del saved["step"]
        with pytest.warns(UserWarning, match="does not contain a step counter for an averager"):
            optimizer.load_state_dict(saved)
        assert optimizer.averager.step == 0

    ranks(1, body)


def test_bad_input(ranks):
    def body(group):
        for arguments, text in [
            ((0,), "``period`` must be a positive value"),
            ((1, -1), "must be a non-negative number"),
        ]:
            with pytest.raises(ValueError, match=text):
                hl.PeriodicModelAverager(*arguments, process_group=group)
        for levels, text in [
            (None, "``period_group_size_dict`` must not be empty."),
            ({}, "``period_group_size_dict`` must not be empty."),
            ({0: 1}, "must be a positive value"),
            ({3: 1, 2: 1}, "must be ascending: 2 follows 3"),
            ({2: 2}, "must divide the 1 ranks"),
        ]:
            with pytest.raises(ValueError, match=text):
                hl.HierarchicalModelAverager(levels, process_group=group)
        with pytest.raises(ValueError, match="start_localSGD_iter: expected at least 0 steps, got -1"):
            hl.PostLocalSGDState(group, None, -1)
        with pytest.raises(TypeError, match=r"state: expected a hookline\.PostLocalSGDState, got builtins\.int"):
            hl.numpy.DataParallel(new_params(), group).register_comm_hook(3, hl.post_localSGD_hook)
        with pytest.raises(TypeError, match="optim: expected an object with a step method"):
            hl.PostLocalSGDOptimizer(3, hl.PeriodicModelAverager(2, 0, group))
        with pytest.raises(TypeError, match="averager: expected a model averager"):
            hl.PostLocalSGDOptimizer(hl.SGD(), None)
        optimizer = hl.PostLocalSGDOptimizer(hl.SGD(), hl.PeriodicModelAverager(2, 0, group))
        ddp = hl.numpy.DataParallel(new_params(), group, optimizer=optimizer)
        with pytest.raises(hl.Unsupported, match="join"), ddp.join():
            pass

    ranks(1, body)
