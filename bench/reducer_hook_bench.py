"""Measures the overhead per bucket of a no-op hook in Python over the native one."""

import time

import numpy as np

import hookline as hl

BUCKETS, STEPS = 50, 200


def noop(state, bucket):
    """Returns the buffer unchanged."""
    future = hl.Future()
    future.set_result(bucket.buffer())
    return future


def step_time(ddp: hl.numpy.DataParallel, names: list[str]) -> float:
    """Returns the median time of a step in seconds."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        for name in names:
            ddp.ready(name)
        ddp.finish()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    """Prints microseconds per bucket."""
    (group,) = hl.make_thread_groups(1)
    params = {f"p{i}": np.zeros(1000, np.float32) for i in range(BUCKETS)}
    native = hl.numpy.DataParallel(params, group, hook="noop", bucket_cap_mb=1e-3)
    python = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-3)
    python.register_comm_hook(None, noop)
    names = list(reversed(params))
    step_time(native, names)
    native_us, python_us = (1e6 * step_time(ddp, names) / BUCKETS for ddp in (native, python))
    print(f"no-op hook, per bucket: native {native_us:.1f} us, Python {python_us:.1f} us, ", end="")
    print(f"overhead {python_us - native_us:.1f} us")


if __name__ == "__main__":
    main()
