"""Process groups written in Python, called from C++: arguments, results, lifetimes."""

import datetime
import gc
import threading
import time
import weakref

import numpy as np
import pytest
import torch
from python_groups import Forwarding

import hookline as hl
from hookline import _core

forward_through_cpp = _core._probe.forward_through_cpp


def one(cls=Forwarding):
    """A Python group of one rank, and a native group whose C++ code calls it."""
    group = cls(hl.make_thread_groups(1, timeout=30)[0])
    return group, forward_through_cpp(group)


def eventually(condition, seconds=20):
    """Objects dropped by native threads are released asynchronously on a callback thread."""
    deadline = time.monotonic() + seconds
    gc.collect()
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)
        gc.collect()


def last(group):
    return group.calls[-1]


def test_every_operation_reaches_the_class_with_the_shapes_of_torch():
    group, native = one()
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)

    native.allreduce([x], op=hl.ReduceOp.MAX, timeout=7).wait()
    name, (tensors, opts) = last(group)
    assert (name, opts.reduceOp, opts.timeout) == ("allreduce", hl.ReduceOp.MAX, datetime.timedelta(seconds=7))
    assert isinstance(opts, hl.AllreduceOptions)
    assert len(tensors) == 1
    assert tensors[0] is x

    native.allreduce_coalesced([x, y]).wait()
    assert [id(t) for t in last(group)[1][0]] == [id(x), id(y)]
    native.reduce([x], root=0).wait()
    assert (last(group)[0], last(group)[1][1].rootRank, last(group)[1][1].rootTensor) == ("reduce", 0, 0)
    native.broadcast([x], root=0).wait()
    assert isinstance(last(group)[1][1], hl.BroadcastOptions)

    native.allgather([[y]], [x]).wait()
    name, (outputs, inputs, opts) = last(group)
    assert (name, len(outputs), outputs[0][0] is y, inputs[0] is x) == ("allgather", 1, True, True)
    assert isinstance(opts, hl.AllgatherOptions)
    for method in ("allgather_into_tensor", "_allgather_base", "all_gather_single"):
        getattr(native, method)(y, x).wait()
        assert last(group)[0] == "_allgather_base"
        assert [last(group)[1][i] is t for i, t in enumerate((y, x))] == [True, True]
    native.allgather_coalesced([[y, np.zeros(2, np.float32)]], [x, np.ones(2, np.float32)]).wait()
    name, (outputs, inputs, opts) = last(group)
    assert (name, len(outputs), len(outputs[0]), len(inputs)) == ("allgather_coalesced", 1, 2, 2)
    native.all_gather_single_coalesced([y], [x]).wait()
    assert last(group)[0] == "allgather_into_tensor_coalesced"

    native.gather([y], [x], root=0).wait()
    name, (outputs, inputs, opts) = last(group)
    assert (name, outputs[0][0] is y, inputs[0] is x, opts.rootRank) == ("gather", True, True, 0)
    native.scatter([y], [x], root=0).wait()
    name, (outputs, inputs, opts) = last(group)
    assert (name, outputs[0] is y, inputs[0][0] is x) == ("scatter", True, True)
    native.reduce_scatter([y], [[x]]).wait()
    name, (outputs, inputs, opts) = last(group)
    assert (name, outputs[0] is y, inputs[0][0] is x) == ("reduce_scatter", True, True)
    native.reduce_scatter_tensor(y, x).wait()
    assert last(group)[0] == "reduce_scatter_single"
    native.reduce_scatter_tensor_coalesced([y], [x]).wait()
    assert last(group)[0] == "reduce_scatter_single_coalesced"
    native.alltoall([y], [x]).wait()
    assert (last(group)[0], last(group)[1][0][0] is y) == ("alltoall", True)
    native.alltoall_base(y, x, [4], [4]).wait()
    assert (last(group)[0], last(group)[1][2:4]) == ("all_to_all_single", ([4], [4]))

    native.barrier(timeout=3).wait()
    assert (last(group)[0], last(group)[1][0].timeout) == ("barrier", datetime.timedelta(seconds=3))
    native.monitored_barrier(timeout=2)
    assert last(group) == ("monitored_barrier", (datetime.timedelta(seconds=2), False))
    assert np.array_equal(y, x)


def test_messages(ranks):
    def body(inner):
        group = Forwarding(inner)
        native = forward_through_cpp(group)
        x = np.full(3, inner.rank(), np.float32)
        if inner.rank() == 0:
            native.send([x], 1, tag=5).wait()
            assert last(group)[1][1:] == (1, 5)
        elif inner.rank() == 1:
            native.recv([x], 0, tag=5).wait()
            assert last(group)[1][0][0] is x
            native.send([x], 2).wait()
        else:
            work = native.recv_anysource([x])
            work.wait()
            assert last(group)[0] == "recv_anysource"
            assert work.source_rank() == 1
        assert x[0] == 0

    ranks(3, body)


def test_properties_of_a_group():
    group, native = one()
    assert (native.rank(), native.size(), native.getBackendName()) == (0, 1, "forwarding")
    assert group.name() == "forwarding"
    native.set_timeout(4)
    assert last(group) == ("set_timeout", (datetime.timedelta(seconds=4),))
    native.abort("because")
    assert last(group) == ("abort", ())
    native.shutdown()
    assert last(group) == ("shutdown", ())
    sub = native.new_group([0])
    assert last(group) == ("new_group", ([0],))
    assert sub.getBackendName() == "forwarding"
    split = native.split(1)
    assert split.size() == 1
    assert "forwarding group, rank 0 of 1" in native.description()


def test_rank_size_and_abort_of_its_own():
    class Odd(hl.ProcessGroup):
        def __init__(self):
            super().__init__(0, 1)
            self.cause = None

        def rank(self):
            return super().rank() + 2

        def size(self):
            return super().size() + 4

        def abort(self, cause):
            self.cause = cause

    odd = Odd()
    native = forward_through_cpp(odd)
    assert (native.rank(), native.size(), native.getBackendName()) == (
        2,
        5,
        "test_rank_size_and_abort_of_its_own.<locals>.Odd",
    )
    native.abort("why not")
    assert odd.cause == "why not"
    odd.set_timeout(3)
    assert odd.timeout == datetime.timedelta(seconds=3)


def test_rank_and_size_by_the_names_of_torch():
    class Odd(hl.ProcessGroup):
        def getRank(self):  # noqa: N802
            return super().getRank() + 2

        def getSize(self):  # noqa: N802
            return super().getSize() + 4

    odd = Odd(0, 1)
    for group in (odd, forward_through_cpp(odd), hl.with_flight_recorder(odd)):
        assert (group.rank(), group.size()) == (2, 5)
        assert (group.getRank(), group.getSize()) == (2, 5)
    plain = hl.make_thread_groups(1)[0]
    assert (plain.getRank(), plain.getSize()) == (0, 1)


def test_torch_tensors_arrive_as_torch_tensors_and_arrays_as_arrays():
    group, native = one()
    t = torch.ones(4)
    native.allreduce([t]).wait()
    assert last(group)[1][0][0] is t
    a = np.ones(4)
    native.allreduce([a]).wait()
    assert last(group)[1][0][0] is a
    made_by_cpp = native.empty((3,), "float32")
    native.allreduce([made_by_cpp]).wait()
    seen = last(group)[1][0][0]
    assert isinstance(seen, np.ndarray)
    seen[:] = 8
    assert made_by_cpp.numpy()[0] == 8
    # A slice of a torch tensor arrives as a torch view of it.
    whole = torch.arange(6.0)
    native.allreduce([hl.asarray(whole)[2:4]]).wait()
    part = last(group)[1][0][0]
    assert isinstance(part, torch.Tensor)
    part[0] = 50
    assert whole[2] == 50
    weird = np.ones((4, 4), np.float32)[::2, ::-1]
    native.allreduce([weird]).wait()
    assert last(group)[1][0][0] is weird
    bf16 = torch.ones(3, dtype=torch.bfloat16)
    native.broadcast([bf16]).wait()
    assert last(group)[1][0][0] is bf16
    changed = torch.ones(4)
    tensor = hl.asarray(changed)
    changed.data = torch.zeros(2)  # `changed` no longer has the memory of `tensor`
    native.allreduce([tensor]).wait()
    assert last(group)[1][0][0].shape == (4,)


def test_a_class_written_for_torch():
    """Only the base class differs from a class for torch.distributed."""

    class DoneWork(hl.Work):
        def __init__(self, result):
            super().__init__()
            self.future = torch.futures.Future()
            self.future.set_result(result)

        def wait(self, timeout=None):
            return True

        def get_future(self):
            return self.future

    class Lonely(hl.ProcessGroup):
        def __init__(self, rank, size):
            super().__init__(rank, size)
            self._rank, self._size = rank, size

        def allreduce(self, tensor_list, opts=None):
            for t in tensor_list:
                t.add_(2)
            return DoneWork(tensor_list)

        def broadcast(self, tensor_list, opts=None):
            for t in tensor_list:
                t.add_(1)
            return DoneWork(tensor_list)

        def size(self):
            return self._size

        def getBackendName(self):  # noqa: N802
            return "lonely"

        def __repr__(self):
            return f"PLG w:{self._size} r:{self._rank}"

    native = forward_through_cpp(Lonely(0, 4))
    t = torch.ones(3)
    work = native.allreduce([t])
    assert work.wait(5) is True
    assert t.tolist() == [3, 3, 3]
    assert work.get_future().wait(5)[0] is t
    assert native.size() == 4
    assert native.getBackendName() == "lonely"
    with pytest.raises(hl.Unsupported, match="Lonely has no reduce"):
        native.reduce([t])


def test_python_calls_the_class_and_aliases_find_the_override():
    group, _ = one()
    x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
    group.allgather_into_tensor(y, x).wait()
    assert last(group)[0] == "_allgather_base"
    assert np.array_equal(x, y)


def test_super_does_not_recurse():
    class Super(hl.ProcessGroup):
        def allreduce(self, tensors, opts=None):
            return super().allreduce(tensors, opts)

    group = Super(0, 1)
    for g in (group, forward_through_cpp(group)):
        with pytest.raises(hl.Unsupported, match="Super has no allreduce"):
            g.allreduce([np.ones(2)])


def test_the_group_and_its_work_live_until_the_operation_is_done():
    gone = []

    class Slow(hl.Work):
        def __init__(self, future):
            super().__init__()
            self.future = future
            weakref.finalize(self, gone.append, "work")

        def get_future(self):
            return self.future

    class Group(hl.ProcessGroup):
        future = hl.Future()

        def __init__(self):
            super().__init__(0, 1)
            weakref.finalize(self, gone.append, "group")

        def allreduce(self, tensors, opts=None):
            return Slow(self.future)

    native = forward_through_cpp(Group())
    future = native.allreduce([np.ones(2)]).get_future()
    gc.collect()
    assert gone == []
    Group.future.set_result(None)
    future.wait(10)
    del native, future
    eventually(lambda: sorted(gone) == ["group", "work"])


def test_cycles_are_collected(pair):
    class Group(Forwarding):
        pass

    def cycle(native):
        group = Group(native)
        around = forward_through_cpp(group)
        work = around.allreduce([np.ones(2)])
        group.me = [group, around, work]
        hook = lambda info, keep=(group, around, native, work): None  # noqa: E731
        around.register_on_completion_hook(hook)
        native.register_on_completion_hook(hook)
        group.register_on_completion_hook(hook)
        return [weakref.ref(o) for o in (group, around, native, work, hook)]

    native = hl.make_thread_groups(1, timeout=30)[0]
    refs = cycle(native)
    gc.collect()
    assert all(ref() is not None for ref in refs)
    del native
    eventually(lambda: [ref() for ref in refs] == [None] * 5)


def test_the_last_reference_may_be_dropped_on_any_thread():
    group, native = one()
    ref = weakref.ref(group)
    work = native.allreduce([np.ones(2)])
    work.wait()
    holder = [native, work]
    del group, native, work

    def drop():
        holder.clear()

    thread = threading.Thread(target=drop)
    thread.start()
    thread.join()
    eventually(lambda: ref() is None)


def test_many_threads_at_once():
    group, native = one()

    def body():
        for _ in range(100):
            native.allreduce([np.ones(2)]).wait()

    threads = [threading.Thread(target=body) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(group.calls) == 400


def test_two_ranks_reduce_through_python_groups(ranks):
    def body(inner):
        native = forward_through_cpp(Forwarding(inner))
        x = np.full(1000, inner.rank() + 1, np.float32)
        native.allreduce([x], op=hl.ReduceOp.AVG).wait()
        seen = native.allreduce([x]).get_future().then(lambda f: float(f.value()[0][0])).wait(20)
        return float(x[0]), seen

    assert ranks(2, body) == [(3.0, 3.0)] * 2


@pytest.fixture
def pair():
    return hl.make_thread_groups(2, timeout=30)
