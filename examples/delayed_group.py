"""A process group in Python that simulates the latency of a slow link: hookline run -n 2 examples/delayed_group.py."""

import threading
import time

import numpy as np

import hookline as hl

DELAY = 0.02


class Delayed(hl.ProcessGroup):
    """Completes each work a delay after the work of the inner group, without blocking a thread."""

    def __init__(self, inner, seconds):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.seconds = inner, seconds

    def allreduce(self, tensors, opts=None):
        delayed = hl.Future()

        def start_timer(future):
            timer = threading.Timer(self.seconds, self.complete, (future, delayed))
            timer.daemon = False  # a timer started on a native thread is a daemon, which Python does not join at exit
            timer.start()

        self.inner.allreduce(tensors, opts).get_future().then(start_timer)
        return hl.Work(delayed)

    @staticmethod
    def complete(future, delayed):
        if future.exception():
            delayed.set_exception(future.exception())
        else:
            delayed.set_result(future.value())


group = Delayed(hl.init_process_group(), DELAY)
x = np.ones(10, np.float32)
begin = time.monotonic()
hl.with_nan_checks(group).allreduce([x]).wait()
elapsed = time.monotonic() - begin
assert x[0] == 2
assert elapsed >= DELAY
if group.rank() == 0:
    print(f"the allreduce took {elapsed * 1000:.0f} ms")
