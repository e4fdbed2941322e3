"""The Python class Future, completed by Python and by native threads."""

import datetime
import signal
import sys
import threading
import time
import traceback
import weakref

import pytest

import hookline
from hookline import Future, _core

probe = _core._probe


def test_value_preserves_object_identity() -> None:
    future, thing = Future(), object()
    assert not future.done()
    future.set_result(thing)
    assert future.done()
    assert future.value() is thing
    assert future.wait() is thing
    assert future.exception() is None


def test_set_exception_raises_that_object_each_time() -> None:
    future, error = Future(), KeyError("k")
    future.set_exception(error)
    for get in (future.value, future.wait, future.value):
        with pytest.raises(KeyError) as caught:
            get()
        assert caught.value is error
    assert future.exception() is error


def test_second_completion_is_rejected() -> None:
    future = Future()
    future.set_result(1)
    with pytest.raises(hookline.InvalidArgument, match="already completed"):
        future.set_result(2)
    with pytest.raises(hookline.InvalidArgument, match="already completed"):
        future.set_exception(ValueError())
    assert future.value() == 1


def test_not_done() -> None:
    future = Future()
    for get in (future.value, future.exception):
        with pytest.raises(hookline.InvalidArgument, match="not done"):
            get()
    assert "pending" in repr(future)


@pytest.mark.parametrize("wrong", [ValueError, "text", None])
def test_set_exception_wants_an_exception(wrong: object) -> None:
    with pytest.raises(TypeError):
        Future().set_exception(wrong)


@pytest.mark.parametrize("method", ["then", "add_done_callback"])
def test_callback_must_be_callable(method: str) -> None:
    with pytest.raises(TypeError):
        getattr(Future(), method)(3)


@pytest.mark.parametrize("timeout", [0.02, 0, datetime.timedelta(milliseconds=20)])
def test_wait_times_out(timeout: object) -> None:
    with pytest.raises(hookline.Timeout, match="not done after"):
        Future().wait(timeout)


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_invalid_timeout(timeout: float) -> None:
    with pytest.raises(hookline.InvalidArgument):
        Future().wait(timeout)


def test_timeout_of_a_wrong_type() -> None:
    with pytest.raises(TypeError):
        Future().wait("1")


def test_a_timeout_as_the_error_of_a_future() -> None:
    future, error = Future(), hookline.Timeout("the outcome")
    threading.Timer(0.02, future.set_exception, [error]).start()
    with pytest.raises(hookline.Timeout) as caught:
        future.wait(30)
    assert caught.value is error


def test_wait_lets_other_threads_work() -> None:
    future = Future()
    threading.Timer(0.02, future.set_result, ["done"]).start()
    assert future.wait(30) == "done"


def test_interrupt_ends_a_wait() -> None:
    main = threading.main_thread().ident
    assert main is not None
    begin = time.monotonic()
    threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        Future().wait(30)
    assert time.monotonic() - begin < 10  # before the timeout; latency is not tested


def test_then_chains_and_flattens() -> None:
    future, inner = Future(), Future()
    seen = []

    def first(done: Future) -> int:
        seen.append(done)
        return done.value() + 1

    result = future.then(first).then(lambda done: inner.then(lambda late: done.value() * late.value()))
    future.set_result(2)
    assert seen == [future]
    assert seen[0] is future
    assert not result.done()
    inner.set_result(5)
    assert result.value() == 15


def test_then_on_a_completed_future() -> None:
    future = Future()
    future.set_result(1)
    assert future.then(lambda done: done.value() + 1).value() == 2


def test_then_sees_a_failed_future() -> None:
    future, error = Future(), KeyError("k")
    caught = future.then(lambda done: done.exception())
    passed_on = future.then(lambda done: done.value())
    future.set_exception(error)
    assert caught.value() is error
    assert passed_on.exception() is error


def test_exception_in_a_callback_has_its_traceback() -> None:
    def failing(_: Future) -> None:
        raise ZeroDivisionError("in the callback")

    future = Future()
    result = future.then(failing)
    future.set_result(None)
    with pytest.raises(ZeroDivisionError) as caught:
        result.wait()
    assert "failing" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_a_failed_future_is_flattened() -> None:
    future, inner, error = Future(), Future(), KeyError("k")
    result = future.then(lambda _: inner)
    future.set_result(None)
    inner.set_exception(error)
    assert result.exception() is error


def test_callback_that_returns_its_own_future() -> None:
    future = Future()
    result = future.then(lambda _: result)
    future.set_result(None)
    with pytest.raises(hookline.InvalidArgument, match="the future that depends on it"):
        result.wait(5)


def test_long_chain_is_no_deep_recursion() -> None:
    future = Future()
    last = future
    for _ in range(20_000):
        last = last.then(lambda done: done.value() + 1)
    future.set_result(0)
    assert last.value() == 20_000


def test_callbacks_run_in_order_and_once() -> None:
    future, calls = Future(), []
    for i in range(3):
        future.add_done_callback(lambda _, i=i: calls.append(i))
    future.set_result(None)
    future.add_done_callback(lambda _: calls.append(3))
    assert calls == [0, 1, 2, 3]


def test_failing_done_callback_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append(args.exc_value))
    error, calls = KeyError("k"), []

    def failing(_: Future) -> None:
        raise error

    future = Future()
    future.add_done_callback(failing)
    future.add_done_callback(calls.append)
    future.set_result(None)
    assert reported == [error]
    assert calls == [future]


def test_a_destroyed_future_aborts_its_children() -> None:
    future = Future()
    child = future.then(lambda done: done.value())
    del future
    with pytest.raises(hookline.Aborted, match="destroyed before completion"):
        child.wait(5)


def test_destroying_a_future_runs_its_callbacks() -> None:
    future, seen = Future(), []
    future.add_done_callback(lambda done: seen.append(type(done.exception())))
    child = future.then(lambda done: repr(done.exception()))
    del future
    assert seen == [hookline.Aborted]
    assert "destroyed" in child.value()


def test_destroying_a_long_chain() -> None:
    future = last = Future()
    for _ in range(20_000):
        last = last.then(lambda done: done.value())
    del future
    with pytest.raises(hookline.Aborted, match="destroyed before completion"):
        last.value()


def test_collect_all_and_when_all() -> None:
    futures = [Future() for _ in range(3)]
    collected, values = hookline.collect_all(futures), hookline.when_all(futures)
    for i in (2, 0):
        futures[i].set_result(i)
    assert not collected.done()
    assert not values.done()
    futures[1].set_exception(error := KeyError("k"))
    assert collected.value() == futures
    assert values.exception() is error
    assert hookline.when_all([]).value() == []


def test_when_all_from_many_threads() -> None:
    futures = [Future() for _ in range(64)]
    values = hookline.when_all(futures)
    threads = [threading.Thread(target=future.set_result, args=[i]) for i, future in enumerate(futures)]
    for thread in threads:
        thread.start()
    assert values.wait(30) == list(range(64))
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("on_executor", [False, True])
def test_native_future(on_executor: bool) -> None:
    completer = probe.Completer(on_executor)
    future = completer.future()
    threads = []

    def note_thread(done: Future) -> int:
        threads.append(threading.get_ident())
        return done.value() + 1

    result = future.then(note_thread)
    del future  # native code keeps it alive while it has callbacks
    completer.complete(41)
    assert result.wait(30) == 42
    assert threads[0] != threading.get_ident()


def test_native_error_keeps_its_type() -> None:
    completer = probe.Completer()
    future = completer.future()
    chained = future.then(lambda done: done.value())
    flattened = Future()
    flattened.set_result(None)
    flattened = flattened.then(lambda _: future)
    completer.fail("PeerLost", "rank 3 is gone")
    with pytest.raises(hookline.PeerLost, match="rank 3"):
        future.wait(30)
    assert future.exception() is future.exception()
    assert chained.exception() is future.exception()
    with pytest.raises(hookline.PeerLost, match="rank 3"):
        flattened.wait(30)


def test_failing_conversion_is_the_error_of_the_future() -> None:
    completer = probe.Completer()
    future = completer.future()
    completer.complete(-1)
    with pytest.raises(ValueError, match="negative"):
        future.wait(30)


def test_native_future_cannot_be_set() -> None:
    completer = probe.Completer()
    with pytest.raises(hookline.InvalidArgument, match="native code"):
        completer.future().set_result(1)


def test_dropped_native_promise() -> None:
    future = probe.Completer().future()
    with pytest.raises(hookline.Aborted):
        future.wait(30)


def test_cpp_waits_for_a_python_future() -> None:
    future, thing = Future(), object()
    threading.Timer(0.02, future.set_result, [thing]).start()
    assert probe.wait_without_gil(future, 30.0) is thing


def test_cpp_sees_the_type_of_a_python_error() -> None:
    future = Future()
    future.set_exception(hookline.Timeout("late"))
    assert probe.wait_without_gil(future, 30.0) == "Timeout"


def test_reference_dropped_on_a_native_thread() -> None:
    class Thing:
        pass

    thing = Thing()
    gone = threading.Event()
    weakref.finalize(thing, gone.set)
    holder = [thing]
    del thing
    probe.drop_on_other_thread(holder.pop())
    assert gone.wait(30)


def test_generic_alias_and_repr() -> None:
    future: Future[int] = Future()
    assert Future[int] is not None
    future.set_result(3)
    assert repr(future) == "<hookline.Future done: 3>"
    failed: Future[int] = Future()
    failed.set_exception(KeyError("k"))
    assert repr(failed) == "<hookline.Future failed: KeyError('k')>"
