"""A process group in Python that adds a delay, as a slow link would: hookline run -n 2 examples/delayed_group.py."""

import threading
import time

import numpy as np

import hookline as hl

DELAY = 0.02


class Delayed(hl.ProcessGroup):
    """Its works are done a while after those of the group inside; nobody's thread sleeps meanwhile."""

    def __init__(self, inner, seconds):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.seconds = inner, seconds

    def allreduce(self, tensors, opts=None):
        arrived = hl.Future()

        def later(future):
            timer = threading.Timer(self.seconds, self.pass_on, (future, arrived))
            timer.daemon = False  # started on a native thread it would be one, and Python does not wait for those
            timer.start()

        self.inner.allreduce(tensors, opts).get_future().then(later)
        return hl.Work(arrived)

    @staticmethod
    def pass_on(future, arrived):
        if future.exception():
            arrived.set_exception(future.exception())
        else:
            arrived.set_result(future.value())


group = Delayed(hl.init_process_group(), DELAY)
x = np.ones(10, np.float32)
begin = time.monotonic()
hl.with_nan_checks(group).allreduce([x]).wait()
took = time.monotonic() - begin
assert x[0] == 2
assert took >= DELAY
if group.rank() == 0:
    print(f"the sum came after {took * 1000:.0f} ms")
