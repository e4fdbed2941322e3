"""Native optimizers: comparison with torch.optim over 100 steps, state, and invalid input."""

import pickle

import numpy as np
import pytest
import torch

import hookline as hl

SHAPES = [(), (1,), (7,), (3, 5), (0, 4), (33, 17), (1003,)]
CASES = [
    ("SGD", {}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3, "amsgrad": True}),
    ("AdamW", {"lr": 0.01, "maximize": True, "betas": (0.0, 0.5)}),
]


def gradients(rng, dtype):
    return [rng.normal(size=shape).astype(dtype) for shape in SHAPES]


def trained_by_torch(name, options, start, steps, dtype):
    params = [torch.tensor(p.astype(dtype)).requires_grad_() for p in start]
    optimizer = getattr(torch.optim, name)(params, foreach=False, **options)
    for grads in steps:
        for p, g in zip(params, grads, strict=True):
            p.grad = torch.tensor(g.astype(dtype))
        optimizer.step()
    return [p.detach().numpy() for p in params]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_hundred_steps_are_those_of_torch(name, options):
    """In float32, the error against torch's float64 is at most that of torch's float32 plus a few ulps."""
    rng = np.random.default_rng(3)
    start = gradients(rng, np.float32)
    steps = [gradients(rng, np.float32) for _ in range(100)]
    exact = trained_by_torch(name, options, start, steps, np.float64)
    theirs = trained_by_torch(name, options, start, steps, np.float32)

    ours = [p.copy() for p in start]
    optimizer = getattr(hl, name)(**options)
    for grads in steps:
        optimizer.step(ours, grads)
    doubles = [p.astype(np.float64) for p in start]
    optimizer = getattr(hl, name)(**options)
    for grads in steps:
        optimizer.step(doubles, [g.astype(np.float64) for g in grads])

    for mine, other, right, double, before in zip(ours, theirs, exact, doubles, start, strict=True):
        if mine.size == 0:
            continue
        np.testing.assert_allclose(double, right, rtol=1e-10, atol=1e-12)
        assert not np.array_equal(mine, before)
        error = np.abs(mine - right).max()
        assert error <= 2 * np.abs(other - right).max() + 4 * np.spacing(np.abs(right).max().astype(np.float32))


def test_names_and_lists_give_the_same():
    rng = np.random.default_rng(0)
    listed, named = gradients(rng, np.float32), {}
    named = {f"p{i}": p.copy() for i, p in enumerate(listed)}
    one, other = hl.Adam(lr=0.1), hl.Adam(lr=0.1)
    for _ in range(3):
        grads = gradients(rng, np.float32)
        one.step(listed, grads)
        other.step(named, {f"p{i}": g for i, g in enumerate(grads)})
    for p, q in zip(listed, named.values(), strict=True):
        assert np.array_equal(p, q)


def test_gradients_that_are_none_are_left_out():
    params = {"a": np.ones(3, np.float32), "b": np.ones(3, np.float32), "c": np.ones(3, np.float32)}
    optimizer = hl.AdamW(lr=0.1)
    optimizer.step(params, {"a": np.ones(3, np.float32), "b": None})
    assert (params["a"] != 1).all()
    assert (params["b"] == 1).all()
    assert (params["c"] == 1).all()
    assert list(optimizer.state_dict()["state"]) == ["a"]


def test_torch_tensors_and_strided_arrays():
    p = torch.ones(4, 6, requires_grad=True)
    hl.SGD(lr=1.0).step([p], [torch.full((4, 6), 0.25)])
    assert (p == 0.75).all()
    wide = np.ones((4, 6), np.float32)
    hl.SGD(lr=1.0).step([wide[:, ::2]], [np.full((4, 3), 0.25, np.float32)])
    assert (wide[:, ::2] == 0.75).all()
    assert (wide[:, 1::2] == 1).all()


def test_another_rate_from_the_next_step_on():
    p = np.zeros(2, np.float32)
    optimizer = hl.SGD(lr=1.0)
    optimizer.step([p], [np.ones(2, np.float32)])
    optimizer.lr = 0.5
    assert optimizer.options["lr"] == 0.5
    optimizer.step([p], [np.ones(2, np.float32)])
    assert (p == -1.5).all()
    optimizer.set_options(lr=2, maximize=True)
    optimizer.step([p], [np.ones(2, np.float32)], scale=0.25)
    assert (p == -1).all()
    assert optimizer.options["maximize"] is True


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_saved_optimizer_goes_on_bit_for_bit(name, options):
    rng = np.random.default_rng(1)
    whole = gradients(rng, np.float32)
    optimizer = getattr(hl, name)(**options)
    for _ in range(4):
        optimizer.step(whole, gradients(rng, np.float32))
    resumed = [p.copy() for p in whole]
    other = getattr(hl, name)(lr=7)
    other.load_state_dict(pickle.loads(pickle.dumps(optimizer.state_dict())))
    with pytest.raises(TypeError, match=r"cannot be pickled. Save its state_dict\(\)"):
        pickle.dumps(optimizer)
    assert type(other) is type(optimizer)
    assert other.options == optimizer.options
    for _ in range(4):
        grads = gradients(rng, np.float32)
        optimizer.step(whole, grads)
        other.step(resumed, grads)
    for p, q in zip(whole, resumed, strict=True):
        assert np.array_equal(p, q)


def test_state_has_the_names_of_torch():
    p = np.ones((2, 3), np.float32)
    adam = hl.Adam(amsgrad=True)
    adam.step({"w": p}, {"w": p.copy()})
    state = adam.state_dict()
    assert state["optimizer"] == "adam"
    assert set(state["state"]["w"]) == {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}
    assert state["state"]["w"]["step"] == 1
    assert state["state"]["w"]["exp_avg"].shape == (2, 3)
    before = state["state"]["w"]["exp_avg"].copy()
    adam.step({"w": p}, {"w": p.copy()})
    assert np.array_equal(state["state"]["w"]["exp_avg"], before)  # a copy


def test_bad_input():
    w = np.ones(3, np.float32)
    for options, text in [
        ({"lr": -1}, "Invalid learning rate: -1"),
        ({"momentum": -1}, "Invalid momentum value: -1"),
        ({"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
    ]:
        with pytest.raises(ValueError, match=text):
            hl.SGD(**options)
    with pytest.raises(TypeError, match="unexpected type"):
        hl.SGD().step({0: w}, {0: w})
    with pytest.raises(ValueError, match="Invalid beta parameter at index 1: 1"):
        hl.Adam(betas=(0.9, 1.0))
    sgd = hl.SGD(momentum=0.9)
    with pytest.raises(hl.InvalidArgument, match="gradient for unknown parameter 'x'"):
        sgd.step({"w": w}, {"x": w})
    with pytest.raises(hl.InvalidArgument, match="params and grads have different lengths: 2 and 1"):
        sgd.step([w, w], [w])
    with pytest.raises(hl.InvalidArgument, match=r"'0' must be float32\[3\], got float64\[3\]"):
        sgd.step([w], [w.astype(np.float64)])
    with pytest.raises(hl.Unsupported, match="expected float32 or float64"):
        sgd.step([w.astype(np.float16)], [w.astype(np.float16)])
    frozen = w.copy()
    frozen.flags.writeable = False
    with pytest.raises(hl.InvalidArgument, match="read-only"):
        sgd.step([frozen], [w])
    with pytest.raises(hl.InvalidArgument, match="state of another optimizer: expected sgd, got adam"):
        sgd.load_state_dict(hl.Adam().state_dict())
    with pytest.raises(hl.InvalidArgument, match="missing key 'optimizer'"):
        sgd.load_state_dict({"state": {}, "param_groups": []})
    sgd.step({"w": w}, {"w": w.copy()})
    with pytest.raises(
        hl.InvalidArgument, match=r"'w' does not match the model: expected float32\[2\], got float32\[3\]"
    ):
        sgd.step({"w": w[:2]}, {"w": w[:2].copy()})
