"""A process group in Python that counts the bytes passed to it: hookline run -n 2 examples/counting_group.py."""

import numpy as np

import hookline as hl


class Counting(hl.ProcessGroup):
    """Forwards allreduce and broadcast to an inner group, and counts the bytes."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.bytes = inner, 0

    def getBackendName(self):  # noqa: N802
        return "counting"

    def allreduce(self, tensors, opts=None):
        self.bytes += sum(t.nbytes for t in tensors)
        return self.inner.allreduce(tensors, opts)

    def broadcast(self, tensors, opts=None):
        self.bytes += sum(t.nbytes for t in tensors)
        return self.inner.broadcast(tensors, opts)


inner = hl.init_process_group()
inner.register_on_completion_hook(lambda info: print(info.op_type, info.seq, info.active_duration))
group = Counting(inner)
x = np.full(1000, group.rank() + 1, np.float32)
hl.with_flight_recorder(group).allreduce([x]).wait()  # native code calls the Python method
group.broadcast([x]).wait()
assert group.bytes == 8000
assert x[0] == 3
if group.rank() == 0:
    print(f"{group.getBackendName()}: {group.bytes} bytes")
