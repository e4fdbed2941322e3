"""A small model with gradients and steps, for hook and reducer tests."""

import numpy as np

import hookline as hl


def model():
    return {
        "w": np.zeros((6, 4), np.float32),
        "b": np.zeros(4, np.float32),
        "v": np.zeros(3, np.float64),
    }


def gradients(params, rank, step=0):
    return {name: np.full(p.shape, rank + 1 + step, p.dtype) for name, p in params.items()}


def step(ddp, grads):
    for name in reversed(grads):
        ddp.ready(name, grads[name])
    ddp.finish()


def expect(grads, value):
    for g in grads.values():
        np.testing.assert_allclose(g, value)


def mean_hook(state, bucket):
    fut = state.allreduce([bucket.buffer()]).get_future()
    return fut.then(lambda f: f.value()[0] / state.size())


def done(value):
    future = hl.Future()
    future.set_result(value)
    return future
