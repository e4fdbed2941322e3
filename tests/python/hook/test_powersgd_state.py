"""PowerSGDState in Python: PyTorch's names, registration, pickling, logging, and invalid options."""

import inspect
import logging
import pickle

import numpy as np
import pytest
from powersgd_reference import fill_random_column

import hookline as hl

SHAPE = (24, 18)


def gradient(rank, step):
    return np.random.default_rng([rank, step]).normal(size=SHAPE).astype(np.float32)


def steps(ddp, group, begin, end):
    results = []
    for step in range(begin, end):
        grad = gradient(group.rank(), step)
        ddp.ready("w", grad)
        ddp.finish()
        results.append(grad)
    return results


def new(group, **options):
    return hl.numpy.DataParallel({"w": np.zeros(SHAPE, np.float32)}, group, **options)


def test_options_defaults_and_attributes_are_pytorchs():
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torch_hooks

    theirs = torch_hooks.PowerSGDState(None)
    ours = hl.PowerSGDState(None)
    for name, parameter in inspect.signature(torch_hooks.PowerSGDState).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            assert getattr(ours, name) == parameter.default, name
    for name in theirs.__slots__:
        assert hasattr(ours, name), name
    for name in ("iter", "total_numel_before_compression", "total_numel_after_compression", "next_stats_report"):
        assert getattr(ours, name) == getattr(theirs, name) == 0
    assert ours.compression_stats() == theirs.compression_stats() == (0, 0, 0)
    assert ours.error_dict == ours.p_memory_dict == ours.q_memory_dict == {}


def test_options_can_be_set(ranks):
    def body(group):
        state = hl.PowerSGDState(group, start_powerSGD_iter=2)
        assert state.process_group is group
        state.matrix_approximation_rank = 3
        state.wire = "bf16"
        state.warm_start = False
        assert (state.matrix_approximation_rank, state.wire, state.warm_start) == (3, "bf16", False)
        with pytest.raises(hl.InvalidArgument, match="matrix_approximation_rank: expected at least 1, got 0"):
            state.matrix_approximation_rank = 0
        assert state.matrix_approximation_rank == 3
        state.process_group = None
        assert state.process_group is None

    ranks(1, body)


def test_bad_options_say_what_is_allowed():
    early = (
        r"Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, "
        r"because PowerSGD can only be applied after the first two iterations in DDP\."
    )
    for options, text in [
        ({"start_powerSGD_iter": 1}, early),
        ({"start_powerSGD_iter": 0, "warm_start": False}, early),
        ({"matrix_approximation_rank": -2}, "expected at least 1, got -2"),
        ({"min_compression_rate": float("nan")}, "at least 0"),
        ({"orthogonalization_epsilon": -1}, "at least 0"),
        ({"random_seed": -1}, "at least 0"),
        ({"wire": "int8"}, "one of fp32, fp16, bf16"),
    ]:
        with pytest.raises(ValueError, match=text):
            hl.PowerSGDState(None, **options)


@pytest.mark.parametrize(
    ("kind", "rank", "batched"),
    [
        ("POWER_SGD", 1, False),
        ("POWER_SGD_RANK2", 2, False),
        ("BATCHED_POWER_SGD", 1, True),
        ("BATCHED_POWER_SGD_RANK2", 2, True),
    ],
)
def test_pytorchs_types_take_a_state_a_group_or_nothing(ranks, kind, rank, batched):
    def body(group):
        text = "batched_powersgd" if batched else "powersgd"
        for state in (None, group):
            ddp = new(group)
            hl.register_ddp_comm_hook(kind, ddp, state)
            for step, result in enumerate(steps(ddp, group, 0, 3)):  # compression starts at step 1000
                assert np.allclose(result, (gradient(0, step) + gradient(1, step)) / 2)
            assert ddp.stats()["hook"] == text
        ddp, same = new(group), new(group, hook=f"{text}(rank={rank}, start_iter=2)")
        state = hl.PowerSGDState(group, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        hl.DDPCommHookType[kind].value(model=ddp, state=state)
        for one, other in zip(steps(ddp, group, 0, 5), steps(same, group, 0, 5), strict=True):
            assert np.array_equal(one, other)
        assert state.iter == 5

    ranks(2, body)


def test_wrong_states_name_the_expected_type(ranks):
    def body(group):
        for state in (group, None, "powersgd"):
            with pytest.raises(TypeError, match=r"state: expected a hookline\.PowerSGDState"):
                new(group).register_comm_hook(state, hl.powerSGD_hook)
        with pytest.raises(TypeError, match=r"state: expected a hookline\.PowerSGDState, got builtins\.int"):
            hl.register_ddp_comm_hook("POWER_SGD", new(group), 3)

    ranks(1, body)


def test_registered_functions_run_without_python(ranks, monkeypatch):
    import hookline._powersgd as module

    def called(*_):
        raise AssertionError("the function itself was called")

    def body(group):
        ddp = new(group)
        state = hl.PowerSGDState(None, start_powerSGD_iter=2)  # None: the group of the model
        ddp.register_comm_hook(state, hl.powerSGD_hook)
        monkeypatch.setattr(module, "_make", called)
        steps(ddp, group, 0, 4)
        assert state.compression_stats() == (432 / 42, 2 * 432, 2 * 42)
        assert ddp.stats()["hook_stats"][0]["ratio"] == pytest.approx(432 / 42)

    ranks(2, body)


def test_functions_can_be_called_with_a_bucket(ranks):
    def body(group):
        for hook, text in ((hl.powerSGD_hook, "powersgd"), (hl.batched_powerSGD_hook, "batched_powersgd")):
            state = hl.PowerSGDState(group, start_powerSGD_iter=2)
            twin = hl.make_hook(f"{text}(start_iter=2)", group)
            for step in range(5):
                flat, same = gradient(group.rank(), step).ravel(), gradient(group.rank(), step).ravel()
                result = hook(state, hl.GradBucket(flat, [SHAPE])).wait()
                twin(None, hl.GradBucket(same, [SHAPE])).wait()
                assert np.shares_memory(result, flat)
                assert np.array_equal(flat, same)
            assert state.iter == 5

    ranks(2, body)


def test_residuals_and_factors_are_accessible(ranks):
    def body(group):
        state = hl.PowerSGDState(group, start_powerSGD_iter=2, random_seed=4)
        flat = gradient(0, 0).ravel()
        for _ in range(2):
            hl.powerSGD_hook(state, hl.GradBucket(np.zeros_like(flat), [SHAPE])).wait()
        result = hl.powerSGD_hook(state, hl.GradBucket(flat.copy(), [SHAPE])).wait()
        p, q = state.p_memory_dict[0], state.q_memory_dict[0]
        assert np.allclose(np.outer(p, q).ravel(), result, atol=1e-6)
        assert np.allclose(state.error_dict[0], flat - result, atol=1e-6)
        start = fill_random_column(4, 2, "gradient 0 of bucket 0", 0, SHAPE[1])
        image = flat.reshape(SHAPE) @ (start / np.linalg.norm(start))
        assert np.allclose(p, image / np.linalg.norm(image), atol=1e-5)
        assert state.rng == (4, 3)

    ranks(1, body)


def test_pickled_without_the_group_and_resumed_bit_for_bit(tmp_path, caplog):
    group = hl.init_process_group("shm", f"file://{tmp_path}/store", 0, 1)
    options = {"start_powerSGD_iter": 3, "matrix_approximation_rank": 2, "random_seed": 8, "wire": "fp16"}
    whole, half = hl.PowerSGDState(group, **options), hl.PowerSGDState(group, **options)
    ddp, first = new(group), new(group)
    ddp.register_comm_hook(whole, hl.powerSGD_hook)
    first.register_comm_hook(half, hl.powerSGD_hook)
    expected = steps(ddp, group, 0, 9)
    steps(first, group, 0, 6)
    with caplog.at_level(logging.WARNING, logger="hookline"):
        data = pickle.dumps(half)
        assert "pickled without its process group" in caplog.text
        again = pickle.loads(data)
        assert "unpickled with the default process group" in caplog.text
    assert again.process_group is group
    for name in ("iter", "wire", "random_seed", "matrix_approximation_rank", "next_stats_report"):
        assert getattr(again, name) == getattr(half, name)
    assert again.compression_stats() == half.compression_stats()
    other = hl.make_thread_groups(1)[0]  # another group object
    again.process_group = other
    second = new(other)
    second.register_comm_hook(again, hl.powerSGD_hook)
    for one, two in zip(expected[6:], steps(second, group, 6, 9), strict=True):
        assert np.array_equal(one, two)
    del group, ddp, first, whole, half
    with pytest.raises(hl.InvalidArgument, match="init_process_group"):
        pickle.loads(data)


def test_a_state_is_for_one_model(ranks):
    def body(group):
        state = hl.PowerSGDState(group, start_powerSGD_iter=2)
        ddp = new(group)
        ddp.register_comm_hook(state, hl.powerSGD_hook)
        steps(ddp, group, 0, 4)
        other = hl.numpy.DataParallel({"v": np.zeros((9, 30), np.float32)}, group)
        other.register_comm_hook(state, hl.powerSGD_hook)

        def step_of(ddp):
            ddp.ready("v", np.ones((9, 30), np.float32))
            ddp.finish()

        with pytest.raises(hl.InvalidArgument, match=r"it lacks parameter v of shape \[9, 30\]"):
            step_of(other)

    ranks(1, body)


class Over(hl.Work):
    """The logging thread runs the callbacks of its future, after it has logged pending messages."""

    def wait(self, timeout=None):
        pass


def test_totals_are_logged(ranks, caplog):
    def body(group):
        state = hl.PowerSGDState(group, start_powerSGD_iter=2, compression_stats_logging_frequency=2)
        ddp = new(group)
        ddp.register_comm_hook(state, hl.powerSGD_hook)
        steps(ddp, group, 0, 6)
        assert state.next_stats_report == 6

    Over().get_future().then(lambda f: None).wait(20)  # flushes log messages of earlier tests
    with caplog.at_level(logging.INFO, logger="hookline"):
        ranks(1, body)
        Over().get_future().then(lambda f: None).wait(20)
    lines = [record.message for record in caplog.records]
    assert lines == [
        "PowerSGD step 2: compressed 432 elements to 42, rate 10.29",
        "PowerSGD step 4: compressed 1296 elements to 126, rate 10.29",
    ]
