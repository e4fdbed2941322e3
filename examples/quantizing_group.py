"""A process group in Python that sums in 8 bits: hookline run -n 2 examples/quantizing_group.py."""

import numpy as np

import hookline as hl


class Quantizing(hl.ProcessGroup):
    """An allreduce that sends int8 with one scale for each array, a quarter of the bytes of float32."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def allreduce(self, tensors, opts=None):
        if opts is not None and opts.reduceOp != hl.ReduceOp.SUM:
            raise hl.Unsupported("Quantizing can only sum")
        (tensor,) = (np.asarray(t) for t in tensors)
        scale = max(float(np.abs(tensor).max()), 1e-30) / 127
        # One message: the scale in front, the rounded values behind it.
        message = np.empty(4 + tensor.size, np.int8)
        message[:4] = np.array([scale], np.float32).view(np.int8)
        message[4:] = np.rint(tensor / scale).ravel()
        gathered = np.empty((self.size(), message.size), np.int8)

        def decode(future):
            future.value()  # raises what the exchange failed with
            scales = gathered[:, :4].copy().view(np.float32)
            tensor[...] = (gathered[:, 4:] * scales).sum(axis=0).reshape(tensor.shape)
            return tensors

        exchange = self.inner.allgather_into_tensor(gathered, message)
        return hl.Work(exchange.get_future().then(decode))


group = Quantizing(hl.init_process_group())
x = np.linspace(-1, 1, 1001, dtype=np.float32) * (group.rank() + 1)
exact = x / (group.rank() + 1) * sum(range(1, group.size() + 1))
hl.with_flight_recorder(group).allreduce([x]).wait()
error = float(np.abs(x - exact).max())
assert error < 0.02, error
if group.rank() == 0:
    print(f"the largest error of the sum is {error:.4f}")
