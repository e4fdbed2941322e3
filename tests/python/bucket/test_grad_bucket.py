"""GradBucket in Python: the constructor, and the accessors."""

import numpy as np
import pytest
import torch

import hookline as hl


def test_accessors():
    buffer = np.arange(8, dtype=np.float32)
    params = [np.zeros((2, 3), np.float32), np.zeros(2, np.float32)]
    bucket = hl.GradBucket(buffer, sizes=[(2, 3), 2], parameters=params, index=1, bucket_count=2)
    assert (bucket.index(), bucket.bucket_count(), bucket.is_last()) == (1, 2, True)
    assert bucket.buffer() is buffer
    assert bucket.offsets() == [0, 6]
    assert bucket.lengths() == [6, 2]
    assert bucket.sizes() == [(2, 3), (2,)]
    assert bucket.sparse_grad_indices() is None
    gradients = bucket.gradients()
    gradients[1][...] = 9
    assert buffer.tolist() == [0, 1, 2, 3, 4, 5, 9, 9]
    bucket.parameters()[0][...] = 4
    assert params[0].max() == 4
    assert repr(bucket) == "<hookline.GradBucket 1 of 2: float32[8], 2 gradients>"


def test_defaults_and_set_buffer():
    bucket = hl.GradBucket(np.ones(4, np.float32))
    assert bucket.sizes() == [(4,)]
    half = np.ones(4, np.float16)
    bucket.set_buffer(half)
    assert bucket.buffer() is half
    with pytest.raises(ValueError, match="buffer of 4 elements"):
        bucket.set_buffer(np.ones(5))
    with pytest.raises(ValueError, match="flat contiguous"):
        hl.GradBucket(np.ones((2, 2)), sizes=[4])


def test_a_hook_runs_on_a_bucket_without_a_reducer():
    (group,) = hl.make_thread_groups(1)
    sizes = [(2, 3), 2]

    def double(state, bucket):
        assert [g.shape for g in bucket.gradients()] == [(2, 3), (2,)]
        bucket.gradients()[1][...] *= 2
        return state.allreduce([bucket.buffer()]).get_future().then(lambda done: done.value()[0])

    for hook, expected in (("fp16 | compare", [1.0] * 8), (double, [1.0] * 6 + [2.0] * 2)):
        bucket = hl.GradBucket(np.ones(8, np.float32), sizes)
        assert hl.make_hook(hook, group)(None, bucket).wait(10).tolist() == expected
    with pytest.raises(ValueError, match="elements"):
        hl.GradBucket(np.ones(9, np.float32), sizes)


def test_torch_in_torch_out():
    buffer = torch.ones(4)
    bucket = hl.GradBucket(buffer, sizes=[(2, 2)])
    assert bucket.buffer() is buffer
    (gradient,) = bucket.gradients()
    assert isinstance(gradient, torch.Tensor)
    gradient.fill_(3)
    assert buffer.tolist() == [3.0] * 4
