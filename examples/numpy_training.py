"""Training with NumPy and several kinds of hooks: hookline run -n 2 examples/numpy_training.py."""

import numpy as np

import hookline as hl

group = hl.init_process_group()
random = np.random.default_rng(group.rank())  # each rank draws different data
truth = np.random.default_rng(9).normal(size=(64, 10)).astype(np.float32)


def batches(count, size=32):
    """Yields random points and the values of a linear function there."""
    for _ in range(count):
        points = random.normal(size=(size, 64)).astype(np.float32)
        yield points, points @ truth + 1


def backward(params, points, labels):
    """Returns the gradients of half the mean squared error, by parameter."""
    wrong = (points @ params["w"] + params["b"] - labels) / len(points)
    return {"w": points.T @ wrong, "b": wrong.sum(axis=0)}


def loss(params):
    """Returns the mean squared error on new points, averaged over the ranks."""
    points, labels = next(batches(1, 1000))
    mean = np.array([((points @ params["w"] + params["b"] - labels) ** 2).mean()])
    group.allreduce([mean], op=hl.ReduceOp.AVG).wait()
    return float(mean[0])


def train(ddp, params, steps, rate=0.3):
    """Runs steps of plain gradient descent."""
    for points, labels in batches(steps):
        grads = backward(params, points, labels)
        for name in reversed(grads):
            ddp.ready(name, grads[name])  # starts communication while the rest is computed
        ddp.finish()  # grads now hold the means
        for name, value in params.items():
            value -= rate * grads[name]


params = {"w": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
ddp = hl.numpy.DataParallel(params, group, hook="powersgd(rank=2, start_iter=10, wire=fp16)")  # broadcasts rank 0's
before = loss(params)
train(ddp, params, 40)
w = ddp.gradient("w")  # a view of the bucket in shared memory; writing to it avoids copies
sent = ddp.stats()["bytes_sent"]


def my_hook(state, bucket):
    """A hook in Python that computes the mean."""
    fut = state.allreduce([bucket.buffer()]).get_future()
    return fut.then(lambda f: f.value()[0] / state.size())


ddp.replace_comm_hook(group, my_hook)
train(ddp, params, 40)
middle = loss(params)

other = {name: value.copy() for name, value in params.items()}
hl.broadcast_coalesced(group, list(other.values()), buffer_size=1 << 20, root=0)
other_ddp = hl.numpy.DataParallel(other, group)
hl.register_ddp_comm_hook(hl.DDPCommHookType.FP16_COMPRESS, other_ddp, group)
train(other_ddp, other, 20)

ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1)
state = hl.PowerSGDState(group, matrix_approximation_rank=2, start_powerSGD_iter=2)
ddp.register_comm_hook(state, hl.powerSGD_hook)  # or batched_powerSGD_hook
train(ddp, params, 20)

after = loss(params)
assert max(middle, after) < before / 100, (before, middle, after)
assert sent < ddp.stats()["buckets"][0]["bytes"]
if group.rank() == 0:
    print(f"loss {before:.1f}, then {middle:.2g} and {after:.2g}; a compressed step sent {sent} bytes")
