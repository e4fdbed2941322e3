"""Errors of groups and works written in Python name the class and the method, and never crash."""

import concurrent.futures
import gc
import threading
import traceback
import weakref

import numpy as np
import pytest

import hookline as hl
from hookline import _core

forward_through_cpp = _core._probe.forward_through_cpp
X = np.ones(2, np.float32)


class Returning(hl.ProcessGroup):
    """allreduce returns a given object."""

    def __init__(self, result):
        super().__init__(0, 1)
        self.result = result

    def allreduce(self, tensors, opts=None):
        return self.result


class OfFuture(hl.Work):
    def __init__(self, future):
        super().__init__()
        self.future = future

    def get_future(self):
        return self.future


def call(result, timeout=20):
    return forward_through_cpp(Returning(result)).allreduce([X], timeout=timeout)


@pytest.mark.parametrize(("result", "text"), [(None, "None"), (7, "int"), ([], "list"), ("done", "str")])
def test_an_override_with_a_wrong_result_type(result, text):
    with pytest.raises(
        TypeError, match=rf"Returning\.allreduce\(\): expected a hookline\.Work as the result, got {text}"
    ):
        call(result)


def test_a_work_whose_future_fails():
    future = hl.Future()

    def fail():
        try:
            raise KeyError("in the network")
        except KeyError as error:
            future.set_exception(error)

    fail()
    work = call(OfFuture(future))
    with pytest.raises(KeyError, match="in the network") as caught:
        work.wait()
    assert caught.value is future.exception()
    assert "fail" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "in OfFuture.get_future() of Returning.allreduce()" in caught.value.__notes__
    assert work.exception() is caught.value
    other = call(OfFuture(future)).get_future()
    with pytest.raises(KeyError):
        other.wait(10)


def test_a_future_that_fails_later():
    future = hl.Future()
    work = call(OfFuture(future))
    threading.Timer(0.05, lambda: future.set_exception(hl.PeerLost("rank 3"))).start()
    with pytest.raises(hl.PeerLost, match="rank 3"):
        work.wait()


def test_a_work_that_never_completes():
    for work in (OfFuture(hl.Future()), hl.Work(hl.Future())):
        with pytest.raises(hl.Timeout, match=rf"{type(work).__name__}.get_future\(\) of Returning.allreduce\(\)"):
            call(work, timeout=0.05).wait()
        with pytest.raises(hl.Timeout, match=rf"{type(work).__name__}.get_future\(\) of Returning.allreduce\(\)"):
            call(work).wait(timeout=0.05)
        future = call(work, timeout=0.05).get_future()
        with pytest.raises(hl.Timeout, match=r"of Returning.allreduce\(\)"):
            future.wait(20)


def test_a_wait_that_ends_before_its_operation():
    work = call(hl.Work(hl.Future()))
    with pytest.raises(hl.Timeout):
        work.wait(0.05)
    assert (work.is_completed(), work.exception()) == (False, None)
    mine = hl.Future()
    work = call(OfFuture(mine))
    with pytest.raises(hl.Timeout):
        work.wait(0.05)
    mine.set_result(None)
    assert work.wait()
    assert (work.is_completed(), work.exception()) == (True, None)


def test_an_unreferenced_future_stays_alive():
    class Forgetful(hl.Work):
        def get_future(self):
            return hl.Future()

    with pytest.raises(hl.Timeout, match=r"Forgetful.get_future\(\) of Returning.allreduce\(\)"):
        call(Forgetful(), timeout=0.05).wait()


@pytest.mark.parametrize("value", [None, 5])
def test_get_future_with_a_wrong_result_type(value):
    name = "None" if value is None else "int"
    work = call(OfFuture(value))
    with pytest.raises(
        TypeError,
        match=rf"get_future\(\) of Returning.allreduce\(\): expected a hookline.Future as the result, got {name}",
    ):
        work.wait()
    with pytest.raises(TypeError, match=r"OfFuture\.get_future"):
        call(OfFuture(value)).get_future()
    with pytest.raises(TypeError, match=r"OfFuture\.get_future"):
        work.get_future().wait(10)
    with pytest.raises(
        TypeError, match=rf"OfFuture.get_future\(\).*: expected a hookline.Future as the result, got {name}"
    ):
        OfFuture(value).wait()


def test_a_future_with_a_wrong_value():
    future = hl.Future()
    future.set_result({"a": 1})
    with pytest.raises(TypeError, match=r"OfFuture.get_future\(\) of Returning.allreduce\(\): .* this one has .*dict"):
        call(OfFuture(future)).wait()


def test_a_work_without_methods():
    class Mute(hl.Work):
        pass

    with pytest.raises(hl.Unsupported, match="Mute has neither wait nor get_future"):
        call(Mute()).wait()
    with pytest.raises(hl.Unsupported, match="Mute has no future"):
        Mute().wait()


def test_a_work_that_can_only_be_waited_for():
    class Waiter(hl.Work):
        def __init__(self, error=None):
            super().__init__()
            self.error = error

        def wait(self, timeout):
            assert timeout.total_seconds() > 0
            if self.error:
                raise self.error

    assert call(Waiter()).get_future().wait(10)[0] is X
    assert call(Waiter()).wait()
    with pytest.raises(LookupError, match="lost"):
        call(Waiter(LookupError("lost"))).get_future().wait(10)
    with pytest.raises(LookupError, match="lost"):
        call(Waiter(LookupError("lost"))).wait()


def test_a_long_wait_does_not_delay_releases():
    begun, end, gone = threading.Event(), threading.Event(), threading.Event()

    class Waiter(hl.Work):
        def __init__(self):
            super().__init__()

        def wait(self, timeout):
            begun.set()
            assert end.wait(60)

    waiting = call(Waiter()).get_future()
    assert begun.wait(20)
    dropped = OfFuture(None)
    weakref.finalize(dropped, gone.set)
    _core._probe.drop_on_other_thread(dropped)
    del dropped
    assert gone.wait(20)
    end.set()
    assert waiting.wait(20)[0] is X


def test_futures_of_other_libraries():
    never = concurrent.futures.Future()
    with pytest.raises(hl.Timeout, match="50 ms"):
        hl.Work(never).wait(0.05)
    mine = concurrent.futures.Future()
    threading.Timer(0.05, lambda: mine.set_result([X])).start()
    assert call(OfFuture(mine)).wait()
    failed = concurrent.futures.Future()
    failed.set_exception(ArithmeticError("no"))
    with pytest.raises(ArithmeticError, match="no"):
        call(OfFuture(failed)).wait()


def test_a_future_that_calls_its_callback_twice():
    class Twice(concurrent.futures.Future):
        def add_done_callback(self, fn):
            super().add_done_callback(fn)
            super().add_done_callback(fn)

    future = Twice()
    future.set_result([X])
    assert call(OfFuture(future)).wait()


def test_failed_futures_of_other_libraries_are_released():
    gone = threading.Event()

    def fail():
        failed = concurrent.futures.Future()
        failed.set_exception(ArithmeticError("no"))
        weakref.finalize(failed, gone.set)
        with pytest.raises(ArithmeticError, match="no"):
            call(OfFuture(failed)).wait()

    fail()
    gc.collect()
    assert gone.wait(20)


def test_a_work_made_of_a_future():
    future = hl.Future()
    work = hl.Work(future)
    assert not work.is_completed()
    native = call(work)
    assert not native.is_completed()
    future.set_result([X])
    assert work.wait()
    assert native.wait()
    assert (work.is_completed(), work.is_success(), work.exception(), work.result()) == (True, True, None, [X])
    assert native.is_success()
    assert work.get_future() is future
    with pytest.raises(TypeError, match=r"future: expected a hookline\.Future, got int"):
        hl.Work(5)
    with pytest.raises(hl.Unsupported, match="op_type"):
        _ = work.op_type


def test_an_override_with_a_wrong_signature():
    class Short(hl.ProcessGroup):
        def allreduce(self, tensors):
            raise AssertionError

        def barrier(self):
            raise AssertionError

        def send(self, tensors, dst, tag, extra):
            raise AssertionError

        def reduce(self, tensors, opts=None):
            return len()  # a TypeError inside the override

    native = forward_through_cpp(Short(0, 2))
    text = r"Short.allreduce\(tensors\) cannot be called as allreduce\(tensors, opts\)"
    with pytest.raises(TypeError, match=text):
        native.allreduce([X])
    with pytest.raises(TypeError, match=r"Short.barrier\(\) cannot be called as barrier\(opts\)"):
        native.barrier()
    with pytest.raises(TypeError, match=r"cannot be called as send\(tensors, dst, tag\)"):
        native.send([X], 1)
    with pytest.raises(TypeError, match="len") as caught:
        native.reduce([X])
    assert "cannot be called as" not in str(caught.value)


def test_an_exception_in_an_override():
    class Own(Exception):
        pass

    class Raising(hl.ProcessGroup):
        def allreduce(self, tensors, opts=None):
            raise Own("from inside")

        def barrier(self, opts=None):
            raise hl.Mismatch("not today")

    native = forward_through_cpp(Raising(0, 1))
    with pytest.raises(Own, match="from inside") as caught:
        native.allreduce([X])
    assert "allreduce" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    with pytest.raises(hl.Mismatch, match="not today"):
        native.barrier()


def test_an_operation_not_overridden():
    class Empty(hl.ProcessGroup):
        pass

    group = Empty(0, 2)
    for g in (group, forward_through_cpp(group)):
        for method, arguments in [
            ("allreduce", ([X],)),
            ("allgather_into_tensor", (np.ones(4, np.float32), X)),
            ("all_to_all_single", (X.copy(), X)),
            ("send", ([X], 1)),
            ("recv_anysource", ([X.copy()],)),
            ("barrier", ()),
            ("monitored_barrier", ()),
            ("new_group", ([0],)),
        ]:
            name = {"all_to_all_single": "alltoall_base"}.get(method, method)
            with pytest.raises(hl.Unsupported, match=f"Empty has no {name}; define {name} in the class"):
                getattr(g, method)(*arguments)
        assert g.getBackendName().endswith("Empty")
        g.abort()  # has no effect, as in torch
        g.shutdown()


def test_a_missing_super_init():
    class Forgot(hl.ProcessGroup):
        def __init__(self):
            pass

    class ForgotWork(hl.Work):
        def __init__(self, x):
            self.x = x

    class ForgotStore(hl.Store):
        def __init__(self):
            pass

    class Child(Returning):
        def __init__(self):
            super().__init__(None)

    class Mixin:
        def __init__(self):
            pass

    class Mixed(Mixin, hl.ProcessGroup):
        pass

    with pytest.raises(TypeError, match=r"Forgot.__init__\(\) must call super\(\).__init__\(rank, size\)"):
        Forgot()
    with pytest.raises(TypeError, match=r"ForgotWork.__init__\(\) must call super\(\).__init__\(\)"):
        ForgotWork(1)
    with pytest.raises(TypeError, match=r"ForgotStore.__init__\(\) must call super\(\).__init__\(\)"):
        ForgotStore()
    with pytest.raises(TypeError, match=r"Mixed.__init__\(\) must call"):
        Mixed()
    assert Child().rank() == 0
    with pytest.raises(TypeError, match=r"ForgotWork whose __init__ has not called super\(\).__init__\(\)"):
        call(ForgotWork.__new__(ForgotWork))


def test_wrong_ranks_and_names():
    class Named(hl.ProcessGroup):
        def getBackendName(self):  # noqa: N802
            return 5

        def size(self):
            return "two"

    with pytest.raises(ValueError, match="expected size >= 1 and 0 <= rank < size, got rank 2, size 2"):
        Named(2, 2)
    native = forward_through_cpp(Named(0, 1))
    with pytest.raises(TypeError, match=r"Named.getBackendName\(\): expected a str as the result, got int"):
        native.getBackendName()
    with pytest.raises(TypeError, match=r"Named.size\(\): expected a size as the result, got str"):
        native.size()
    for other in (None, 5):
        with pytest.raises(TypeError, match=r"expected a hookline\.ProcessGroup"):
            forward_through_cpp(other)
