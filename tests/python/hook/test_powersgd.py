"""PowerSGD compared with a NumPy reference at each step, with all options, on one to four ranks."""

import math

import numpy as np
import pytest
from powersgd_reference import Reference

import hookline as hl

SHAPES = {"a": (20, 30), "b": (30,), "c": (), "d": (6, 5, 7), "e": (1, 40), "f": (9, 9), "g": (31, 4)}
STEPS = 50


def gradients(rank, step):
    """A few large singular values and noise, different on each rank and in each step."""
    result = {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        common = np.random.default_rng([9, number])
        own = np.random.default_rng([rank, step, number])
        value = own.normal(0, 0.1, shape)
        if len(shape) > 1:
            left, right = common.normal(size=(shape[0], 3)), common.normal(size=(3, *shape[1:]))
            value += np.einsum("ik,k,k...->i...", left, [2, 1, 0.5] * own.uniform(0.5, 1.5, 3), right)
        result[name] = value.astype(np.float32)
    return result


def train(ranks, size, hook_of, reference, batched=False):
    """Runs all steps on all ranks and compares each with the reference, which continues from hookline's state."""

    def body(group):
        ddp = hl.numpy.DataParallel({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}, group)
        state = hook_of(group)
        ddp.register_comm_hook(state, hl.batched_powerSGD_hook if batched else hl.powerSGD_hook)
        results = []
        for step in range(STEPS):
            grads = gradients(group.rank(), step)
            order = ddp.buckets()[0]
            for name in reversed(SHAPES):
                ddp.ready(name, grads[name])
            ddp.finish()
            results.append((grads, order, state.error_dict.get(0), state.q_memory_dict.get(0)))
        return results

    gathered = ranks(size, body)
    for step in range(STEPS):
        grads, order, _, q = gathered[0][step]
        errors = [own[step][2] for own in gathered]
        all_gradients = [gradients(rank, step) for rank in range(size)]
        means = reference.step_batched(all_gradients, order) if batched else reference.step(all_gradients)
        for name, mean in means.items():
            for other in gathered[1:]:
                assert np.array_equal(grads[name], other[step][0][name]), f"ranks differ in {name}, step {step}"
            np.testing.assert_allclose(grads[name], mean, atol=3e-5, err_msg=f"{name} in step {step}")
        if q is None:
            continue
        expected = dict(reference.errors)
        factors = dict(reference.factors)
        side = math.isqrt(len(errors[0]) - 1) + 1
        reference.go_on_from({"bucket 0": (side, side)} if batched else {n: SHAPES[n] for n in order}, errors, q)
        for name, factor in factors.items():
            np.testing.assert_allclose(reference.factors[name], factor, atol=1e-4, err_msg=f"Q of {name}, step {step}")
            if reference.feedback:
                np.testing.assert_allclose(reference.errors[name], expected[name], atol=3e-5)


CASES = {
    "rank 1": {},
    "rank 2": {"matrix_approximation_rank": 2},
    "rank 4": {"matrix_approximation_rank": 4, "min_compression_rate": 0.3},
    "rank larger than sides": {"matrix_approximation_rank": 7, "min_compression_rate": 0},
    "no error feedback": {"use_error_feedback": False, "matrix_approximation_rank": 2},
    "no warm start": {"warm_start": False, "random_seed": 5},
    "neither, from the first step on": {"warm_start": False, "use_error_feedback": False, "start_powerSGD_iter": 0},
    "epsilon": {"orthogonalization_epsilon": 1e-2, "matrix_approximation_rank": 2},
    "started late": {"start_powerSGD_iter": 20},
    "same shapes batched": {"batch_tensors_with_same_shape": True, "matrix_approximation_rank": 2},
}
NAMES = {
    "matrix_approximation_rank": "rank",
    "start_powerSGD_iter": "start",
    "min_compression_rate": "min_rate",
    "use_error_feedback": "feedback",
    "warm_start": "warm",
    "orthogonalization_epsilon": "epsilon",
    "random_seed": "seed",
}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_the_reference(ranks, size, case):
    options = {"start_powerSGD_iter": 2, **CASES[case]}
    reference = Reference(**{NAMES[name]: value for name, value in options.items() if name in NAMES})
    train(ranks, size, lambda group: hl.PowerSGDState(group, **options), reference)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"matrix_approximation_rank": 3, "warm_start": False}])
def test_whole_buckets_as_squares(ranks, size, options):
    options = {"start_powerSGD_iter": 2, **options}
    reference = Reference(**{NAMES[name]: value for name, value in options.items()})
    train(ranks, size, lambda group: hl.PowerSGDState(group, **options), reference, batched=True)


@pytest.mark.parametrize("wire", ["fp16", "bf16"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_factors_in_16_bits_are_close(ranks, size, wire):
    options = {"matrix_approximation_rank": 3, "start_powerSGD_iter": 2, "use_error_feedback": False}

    def body(group):
        ddps = []
        for kind in ("fp32", wire):
            params = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
            ddp = hl.numpy.DataParallel(params, group)
            ddp.register_comm_hook(hl.PowerSGDState(group, wire=kind, **options), hl.powerSGD_hook)
            ddps.append(ddp)
        for step in range(6):
            both = []
            for ddp in ddps:
                grads = gradients(group.rank(), step)
                for name in reversed(SHAPES):
                    ddp.ready(name, grads[name])
                ddp.finish()
                both.append(grads)
            for name, shape in SHAPES.items():
                exact, rounded = both[0][name], both[1][name]
                size_of = np.abs(exact).max()
                if step < 2 or not Reference(3).compresses(shape):
                    assert np.array_equal(exact, rounded)
                else:
                    off = np.abs(exact - rounded).max() / size_of
                    assert 0 < off < (0.01 if wire == "fp16" else 0.08), (name, step, off)
        sent = [ddp.stats()["bytes_sent"] for ddp in ddps]
        if group.size() == 2:
            assert sent[1] < sent[0] - 200

    ranks(size, body)
