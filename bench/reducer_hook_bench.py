"""What a Python hook that does nothing adds to a bucket, beside the native one."""

import time

import numpy as np

import hookline as hl

BUCKETS, STEPS = 50, 200


def noop(state, bucket):
    """Hands the buffer back."""
    future = hl.Future()
    future.set_result(bucket.buffer())
    return future


def step_time(ddp: hl.numpy.DataParallel, names: list[str]) -> float:
    """Seconds of the median step."""
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        for name in names:
            ddp.ready(name)
        ddp.finish()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def main() -> None:
    """Prints microseconds a bucket."""
    (group,) = hl.make_thread_groups(1)
    params = {f"p{i}": np.zeros(1000, np.float32) for i in range(BUCKETS)}
    native = hl.numpy.DataParallel(params, group, hook="noop", bucket_cap_mb=1e-3)
    python = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-3)
    python.register_comm_hook(None, noop)
    names = list(reversed(params))
    step_time(native, names)
    a, b = step_time(native, names), step_time(python, names)
    print(f"no-op hook a bucket: native {1e6 * a / BUCKETS:.1f} us, Python {1e6 * b / BUCKETS:.1f} us, ", end="")
    print(f"added {1e6 * (b - a) / BUCKETS:.1f} us")


if __name__ == "__main__":
    main()
