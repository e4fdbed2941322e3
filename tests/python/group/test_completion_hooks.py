"""Completion hooks in Python: WorkInfo, threads, and exceptions."""

import datetime
import gc
import threading
import traceback

import numpy as np
import pytest
from python_groups import Forwarding

import hookline as hl
from hookline import _core


@pytest.fixture
def pair():
    return hl.make_thread_groups(2, timeout=30)


def both(groups, count=4):
    works = [g.allreduce([np.ones(count, np.float32)]) for g in groups]
    for work in works:
        work.wait()


def test_work_info_of_completion_hooks(pair):
    seen, threads = [], set()

    def hook(info):
        seen.append(info)
        threads.add(threading.current_thread())

    pair[0].register_on_completion_hook(hook)
    before = datetime.datetime.now()
    for _ in range(5):
        both(pair)
    for g in pair:
        g.barrier()
    pair[0].wait_for_hooks()
    assert [info.seq for info in seen] == [1, 2, 3, 4, 5, 6]
    assert [info.op_type for info in seen] == ["allreduce"] * 5 + ["barrier"]
    assert [info.bytes for info in seen] == [16] * 5 + [0]
    assert {(info.lane, info.bucket, info.error) for info in seen} == {(0, 0, None)}
    slack = datetime.timedelta(seconds=1)
    for info in seen:
        assert before - slack <= info.time_started <= info.time_finished <= datetime.datetime.now() + slack
        assert datetime.timedelta() <= info.active_duration <= slack * 30
    assert len(threads) == 1
    assert threading.current_thread() not in threads
    assert repr(seen[0]) == "<hookline.WorkInfo allreduce number 1, done>"


def test_a_hook_that_raises_fails_the_wait(pair):
    def hook(info):
        if info.seq == 2:
            raise KeyError("in the hook")

    pair[0].register_on_completion_hook(hook)
    both(pair)
    with pytest.raises(KeyError, match="in the hook") as caught:
        both(pair)
    assert "hook" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    both(pair)
    pair[0].wait_for_hooks()


def test_wait_for_hooks_raises_unclaimed_errors(pair):
    pair[0].register_on_completion_hook(lambda info: 1 / 0)
    for g in pair:
        g.barrier()
    with pytest.raises(ZeroDivisionError):
        pair[0].wait_for_hooks(timeout=20)
    pair[0].wait_for_hooks(timeout=20)


def test_futures_and_callbacks_see_the_hook_first(pair):
    order = []
    pair[0].register_on_completion_hook(lambda info: order.append("hook"))
    future = pair[0].allreduce([np.ones(3)]).get_future().then(lambda f: order.append("callback"))
    pair[1].allreduce([np.ones(3)]).wait()
    future.wait(20)
    assert order == ["hook", "callback"]


def test_a_hook_may_wait_for_an_operation(pair):
    seen = []

    def hook(info):
        seen.append(info.seq)
        if info.seq == 1:
            pair[0].allreduce([np.ones(2)]).wait()

    pair[0].register_on_completion_hook(hook)
    other = [pair[1].barrier(), pair[1].allreduce([np.ones(2)])]
    pair[0].barrier().wait()
    pair[0].wait_for_hooks(20)
    for work in other:
        work.wait()
    assert seen == [1, 2]


def test_hooks_see_failed_operations(pair):
    seen = []
    pair[0].register_on_completion_hook(lambda info: seen.append(info.error))
    works = [g.allreduce([np.ones(2 + i)]) for i, g in enumerate(pair)]
    for work in works:
        with pytest.raises(hl.Mismatch):
            work.wait()
    pair[0].wait_for_hooks()
    assert isinstance(seen[0], hl.Mismatch)


def test_hooks_of_python_groups_see_native_operations():
    group = Forwarding(hl.make_thread_groups(1, timeout=30)[0])
    seen = []
    group.register_on_completion_hook(lambda info: seen.append((info.op_type, info.bytes)))
    native = _core._probe.forward_through_cpp(group)
    native.allreduce([np.ones(3)]).wait()
    group.allreduce([np.ones(3)]).wait()  # started by Python, not by native code
    group.wait_for_hooks(20)
    assert seen == [("allreduce", 24)]


def test_not_a_function(pair):
    with pytest.raises(TypeError):
        pair[0].register_on_completion_hook(5)


def test_a_group_dropped_with_operations_under_way():
    seen = []
    groups = hl.make_thread_groups(2, timeout=30)
    groups[0].register_on_completion_hook(lambda info: seen.append(type(info.error)))
    groups[0].allreduce([np.ones(2)])
    del groups[0]
    gc.collect()
    assert seen == [hl.Aborted]
