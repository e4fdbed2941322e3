"""Works and futures: attributes, object lifetimes, and concurrency with other threads."""

import datetime
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import torch

import hookline


@pytest.fixture
def pair():
    return hookline.make_thread_groups(2, timeout=30)


def test_attributes_of_a_work(pair):
    before = datetime.datetime.now()
    x = [np.full(4, rank, np.float32) for rank in range(2)]
    first = pair[0].allreduce([x[0]])
    assert (first.is_completed(), first.is_success(), first.exception(), first.time_finished) == (
        False,
        False,
        None,
        None,
    )
    assert repr(first) == "<hookline.Work allreduce number 1, pending>"
    second = pair[1].allreduce([x[1]])
    assert first.wait() is True
    assert second.wait(timeout=5) is True
    assert (first.is_completed(), first.is_success(), first.exception()) == (True, True, None)
    assert (first.op_type, first.sequence_number, first.source_rank()) == ("allreduce", 1, -1)
    slack = datetime.timedelta(seconds=1)  # tolerance between the two clocks
    assert before - slack <= first.time_started <= first.time_finished <= datetime.datetime.now() + slack
    assert first.result()[0] is x[0]
    assert pair[0].sequence_number == 1


def test_the_future_preserves_object_identity(pair):
    class Array(np.ndarray):
        pass

    given = [np.ones(3, np.float32).view(Array), torch.ones(3)]
    futures = [group.allreduce([x]).get_future() for group, x in zip(pair, given, strict=True)]
    for future, x in zip(futures, given, strict=True):
        value = future.wait(10)
        assert isinstance(value, list)
        assert len(value) == 1
        assert value[0] is x
        assert float(x[0]) == 2.0

    outs = [[np.empty(3, np.float32) for _ in range(2)] for _ in range(2)]
    futures = [g.allgather([o], [x]).get_future() for g, o, x in zip(pair, outs, given, strict=True)]
    for future, own in zip(futures, outs, strict=True):
        assert [id(v) for v in future.wait(10)] == [id(o) for o in own]
    futures = [group.barrier().get_future() for group in pair]
    assert [future.wait(10) for future in futures] == [[], []]


def test_then_runs_on_the_callback_thread_and_can_wait(pair):
    def again(group):
        # Blocks the callback thread of its group until the other rank's callback has reached this point.
        def callback(future):
            x = future.value()[0]
            group.allreduce([x]).wait()
            return threading.current_thread() is not threading.main_thread(), float(x[0])

        return callback

    futures = [g.allreduce([np.ones(2)]).get_future().then(again(g)) for g in pair]
    assert [f.wait(20) for f in futures] == [(True, 4.0)] * 2


def test_a_callback_can_wait_for_callbacks_of_its_thread(pair):
    def again(group):
        def callback(future):
            return group.allreduce(future.value()).get_future().then(lambda f: float(f.value()[0][0])).wait(10)

        return callback

    def behind(group):
        return lambda future: group.barrier().get_future().then(lambda f: "behind").wait(10)

    futures = []
    for group in pair:
        future = group.allreduce([np.ones(2)]).get_future()
        futures += [future.then(again(group)), future.then(behind(group))]
    assert [f.wait(20) for f in futures] == [4.0, "behind"] * 2


def test_a_failed_operation_fails_its_future(pair):
    work = pair[0].allreduce([np.ones(2)])
    future = work.get_future()
    seen = future.then(lambda f: type(f.exception()))
    pair[1].abort("enough")
    assert seen.wait(10) is hookline.Aborted
    with pytest.raises(hookline.Aborted, match=r"rank 1.*enough"):
        work.wait()
    with pytest.raises(hookline.Aborted, match="enough"):
        future.value()
    assert isinstance(work.exception(), hookline.Aborted)
    assert not work.is_success()


def test_arrays_stay_alive_until_the_operation_is_done(pair):
    class Array(np.ndarray):
        pass

    mine = np.ones(1 << 16).view(Array)
    gone = weakref.ref(mine)
    pair[0].allreduce([mine])  # drops the work and the array
    del mine
    gc.collect()
    assert gone() is not None
    x = np.ones(1 << 16)
    pair[1].allreduce([x]).wait()
    assert x[-1] == 2.0
    deadline = time.monotonic() + 20
    pair[0].shutdown()
    while gone() is not None:  # another thread drops the last reference
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_works_keep_their_group():
    groups = hookline.make_thread_groups(2, timeout=30)
    works = [group.allreduce([np.ones(2)]) for group in groups]
    del groups
    gc.collect()
    assert [work.wait() for work in works] == [True, True]


def test_a_dropped_group_with_callbacks_does_not_hang():
    for _ in range(20):
        groups = hookline.make_thread_groups(2, timeout=30)
        seen = []
        for group in groups:
            group.allreduce([np.ones(1000)]).get_future().add_done_callback(lambda f, seen=seen: seen.append(f))
        del group, groups


def test_a_work_in_a_cycle_with_its_future_is_collected():
    """Only the work can break such a cycle, since tuples cannot be cleared."""

    class Held(tuple):
        __slots__ = ()

        def add_done_callback(self, callback):
            raise AssertionError

        value = add_done_callback

    array = np.ones(3)  # not tracked by the garbage collector: a weak reference to it dies with its memory
    gone = weakref.ref(array)
    work = hookline.Work.__new__(hookline.Work)
    hookline.Work.__init__(work, Held((work, array)))
    del work, array
    gc.collect()
    assert gone() is None


def test_another_thread_runs_while_one_waits():
    groups = hookline.make_thread_groups(2, timeout=10)
    started = threading.Event()
    outcome = []

    def wait():
        work = groups[0].barrier()
        started.set()
        outcome.append(work.wait())

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert started.wait(10)
    for _ in range(50):  # if wait() held the GIL, the first sleep would block this thread
        time.sleep(0.002)
    assert waiting.is_alive()
    groups[1].barrier().wait()
    waiting.join(20)
    assert outcome == [True]


def test_timeouts(pair):
    with pytest.raises(hookline.Timeout, match="rank 1 did not join within"):
        pair[0].allreduce([np.ones(2)], timeout=0.1).wait()
    with pytest.raises(hookline.Timeout):  # a failed group repeats its error
        pair[0].barrier().wait()
    pair[1].allreduce([np.ones(2)]).wait()  # completed by the data that rank 0 posted before it failed
    with pytest.raises(hookline.Aborted, match="rank 0 failed"):
        pair[1].barrier().wait()


def test_mismatch_reaches_every_rank_and_the_group_stays_usable(ranks):
    def body(group):
        x = np.full(2 + group.rank(), 1.0, np.float32)
        work = group.allreduce([x])
        with pytest.raises(hookline.Mismatch, match=r"rank 0.*rank 1"):
            work.wait()
        assert x.tolist() == [1.0] * x.size
        y = np.ones(2)
        group.allreduce([y]).wait()
        return y.tolist()

    assert ranks(2, body) == [[2.0, 2.0]] * 2


def test_groups_of_some_ranks(ranks):
    def body(group):
        rank = group.rank()
        some = group.new_group([2, 0])
        assert (some is None) == (rank == 1)
        if some is not None:
            x = np.full(2, some.rank())
            some.broadcast([x], root=0).wait()
            assert (some.size(), some.rank(), x.tolist()) == (2, [1, -1, 0][rank], [0, 0])
        part = group.split(rank % 2, key=-rank)
        assert part is not None
        assert (part.size(), part.rank()) == [(2, 1), (1, 0), (2, 0)][rank]
        assert group.split(-1) is None
        with pytest.raises(hookline.InvalidArgument, match="new_group"):
            group.new_group([0, 0])

    ranks(3, body)


def test_attributes_of_a_group(pair):
    group = pair[1]
    assert (group.rank(), group.size()) == (1, 2)
    assert {group.name(), group.backend_name(), group.getBackendName()} == {"threads"}
    assert repr(group) == "<hookline.ProcessGroup threads, rank 1 of 2>"
    assert group.timeout.total_seconds() == 30
    group.set_timeout(2.5)
    assert group.timeout.total_seconds() == 2.5
    with pytest.raises(hookline.InvalidArgument):
        group.set_timeout(0)
    assert group.capabilities.lanes >= 1
    assert group.capabilities.shared_buffers


def test_memory_of_the_group_is_numpys_too(pair):
    tensor = pair[0].empty((3, 4), "float32")
    array = np.asarray(tensor)
    array[:] = 5
    assert (array.shape, array.dtype, tensor.data_ptr()) == ((3, 4), np.float32, array.ctypes.data)
    assert tensor[2, 3].item() == 5.0
    pair.clear()
    gc.collect()
    array += 1  # the memory outlives its group
    assert tensor[0, 0].item() == 6.0
