"""Error feedback for Python hooks, computed from the contribution that a hook reports."""

import numpy as np
import pytest
from training_steps import done

import hookline as hl


def through_8_bits(values):
    scale = max(np.abs(values).max(), 1e-30) / 127
    return (np.round(values / scale) * scale).astype(np.float32)


def eight_bits(state, bucket):
    """Averages the decoded gradients in place, after reporting the contribution."""
    decoded = through_8_bits(bucket.buffer())
    bucket.set_contribution(decoded)
    return state.allreduce([decoded], op=hl.ReduceOp.AVG).get_future().then(lambda f: f.value()[0])


def eight_bits_later(state, bucket):
    """Reports the contribution in a continuation, which runs on another thread than the hook."""
    own = bucket.buffer().copy()

    def report(future):
        bucket.set_contribution(through_8_bits(own))
        return future.value()[0]

    return state.allreduce([through_8_bits(own)], op=hl.ReduceOp.AVG).get_future().then(report)


def gradient(rank, step):
    i = np.arange(64)
    return (np.sin((i + 1.0) * (rank + 1)) + 0.1 * np.cos(0.7 * step + i)).astype(np.float32)


@pytest.mark.parametrize("function", [eight_bits, eight_bits_later])
@pytest.mark.parametrize("wrappers", ["error_feedback", "compare | error_feedback"])
def test_a_function_that_reports_stays_flat_over_many_steps(ranks, function, wrappers):
    def body(group):
        ddp = hl.numpy.DataParallel({"w": np.zeros(64, np.float32)}, group)
        ddp.register_comm_hook(None, hl.make_hook(function, group, reports_contribution=True) | wrappers)
        errors = []
        for step in range(400):
            mean = sum(gradient(r, step) for r in range(group.size())) / group.size()
            own = gradient(group.rank(), step)
            ddp.ready("w", own)
            ddp.finish()
            errors.append(own - mean)
        early, late = (np.sqrt(np.mean(np.square(part))) for part in (errors[:50], errors[-50:]))
        assert late < 1.5 * early, (early, late)
        assert np.abs(np.sum(errors, axis=0)).max() < 0.05  # each step adds the residual of the previous one

    ranks(3, body)


def test_a_function_without_reports_is_rejected(ranks):
    def body(group):
        for wrappers in ("error_feedback", "compare | error_feedback", "where(name=w) | error_feedback"):
            with pytest.raises(hl.InvalidArgument, match=r"eight_bits does not report.*reports_contribution"):
                hl.make_hook(eight_bits, group) | wrappers

    ranks(1, body)


def test_a_missing_contribution_report_is_an_error(ranks):
    def silent(state, bucket):
        return done(bucket.buffer())

    def body(group):
        ddp = hl.numpy.DataParallel({"w": np.zeros(4, np.float32)}, group)
        ddp.register_comm_hook(None, hl.make_hook(silent, group, reports_contribution=True) | "error_feedback")
        ddp.ready("w", np.ones(4, np.float32))
        with pytest.raises(hl.InvalidArgument, match=r"silent declares .*set_contribution"):
            ddp.finish()

    ranks(1, body)


def test_a_contribution_of_the_wrong_size_is_rejected():
    bucket = hl.GradBucket(np.ones(4, np.float32))
    assert not bucket.wants_contribution()
    bucket.set_contribution(np.ones(4, np.float16))
    with pytest.raises(hl.InvalidArgument, match="of 4 elements"):
        bucket.set_contribution(np.ones((2, 2), np.float32))


def test_a_hook_of_a_function_takes_a_state_and_wrappers(ranks):
    def body(group):
        seen = []

        def own(state, bucket):
            seen.append(state)
            return group.allreduce([bucket.buffer()], op=hl.ReduceOp.AVG).get_future().then(lambda f: f.value()[0])

        hook = hl.make_hook(own, group, state="mine") | "compare | log"
        array = np.full(3, 1.0 + group.rank(), np.float32)
        assert hook(None, hl.GradBucket(array)).wait().tolist() == [1.5, 1.5, 1.5]
        assert seen == ["mine"]
        assert hook.stats()[0]["relative_error"] == 0
        with pytest.raises(hl.InvalidArgument, match="int8 cannot be wrapped around another hook"):
            hook | "int8"
        with pytest.raises(TypeError, match="None"):
            hl.make_hook(None, group)
        with pytest.raises(TypeError, match="Communication hook must be callable"):
            hl.make_hook(3, group)

    ranks(2, body)
