"""A process group in Python that quantizes to 8 bits: hookline run -n 2 examples/quantizing_group.py."""

import numpy as np

import hookline as hl


class Quantizing(hl.ProcessGroup):
    """Its allreduce sends int8 with one scale per array, a quarter of the bytes of float32."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self.inner = inner

    def allreduce(self, tensors, opts=None):
        if opts is not None and opts.reduceOp != hl.ReduceOp.SUM:
            raise hl.Unsupported(f"Quantizing.allreduce: expected ReduceOp.SUM, got {opts.reduceOp}")
        (tensor,) = (np.asarray(t) for t in tensors)
        scale = max(float(np.abs(tensor).max()), 1e-30) / 127
        # One message: the scale, then the rounded values.
        message = np.empty(4 + tensor.size, np.int8)
        message[:4] = np.array([scale], np.float32).view(np.int8)
        message[4:] = np.rint(tensor / scale).ravel()
        gathered = np.empty((self.size(), message.size), np.int8)

        def decode(future):
            future.value()  # raises the error if the allgather failed
            scales = gathered[:, :4].copy().view(np.float32)
            tensor[...] = (gathered[:, 4:] * scales).sum(axis=0).reshape(tensor.shape)
            return tensors

        work = self.inner.allgather_into_tensor(gathered, message)
        return hl.Work(work.get_future().then(decode))


group = Quantizing(hl.init_process_group())
x = np.linspace(-1, 1, 1001, dtype=np.float32) * (group.rank() + 1)
exact = x / (group.rank() + 1) * sum(range(1, group.size() + 1))
hl.with_flight_recorder(group).allreduce([x]).wait()
error = float(np.abs(x - exact).max())
assert error < 0.02, error
if group.rank() == 0:
    print(f"maximum error of the sum: {error:.4f}")
