"""Python exits cleanly without leaks while native threads run."""

from collections.abc import Callable

import pytest


@pytest.mark.parametrize("attempt", range(5))
def test_native_threads_at_exit(run_python: Callable[..., str], attempt: int) -> None:
    out = run_python("""
        import threading
        from hookline import _core
        enough = threading.Event()
        calls = iter(range(10**9))
        def callback(x):
            if next(calls) > 200:
                enough.set()
            return [x, _core.zeros(10_000).clone()]  # releases the GIL temporarily
        _core._probe.hammer(4, callback)
        assert enough.wait(30)
        print("end")
    """)
    assert out == "end\n"


def test_no_leaks(run_python: Callable[..., str]) -> None:
    run_python("""
        import numpy, hookline
        from hookline import _core
        tensor = hookline.asarray(numpy.zeros(3))
        array = hookline.zeros(3).numpy()
        future, failed, pending = hookline.Future(), hookline.Future(), hookline.Future()
        future.set_result(tensor)
        failed.set_exception(hookline.Timeout("late"))
        child = pending.then(lambda f: tensor)
        pending.add_done_callback(print)
        completer = _core._probe.Completer(True)
        native = completer.future()
        done = native.then(lambda f: f.value())
        completer.complete(1)
        done.wait(30)
        never = _core._probe.Completer().future()
        capsule = tensor.__dlpack__()
        view = memoryview(tensor)
        _core._probe.drop_on_other_thread([tensor])
    """)


LEAK = """
    import ctypes, hookline
    tensor = hookline.zeros(3)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))
"""


def test_leaks_are_reported_in_tests(run_python: Callable[..., str]) -> None:
    """Verifies that the leak tests can fail."""
    with pytest.raises(AssertionError, match="leaked 1 instances"):
        run_python(LEAK)


def test_leak_reports_are_disabled_by_default(run_python: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOOKLINE_TEST_LEAKS")
    run_python(LEAK)


def test_a_daemon_thread_that_wants_the_gil_back_while_python_ends(run_python: Callable[..., str]) -> None:
    """Python 3.11 would unwind the thread's stack, which terminates the process."""
    code = """
        import os, threading, time, hookline
        class Last:
            # Delays finalization after the exit handlers, when most modules are already cleared.
            sleep, write = time.sleep, os.write
            def __del__(self):
                self.sleep(0.4)  # the thread requests the GIL ten times a second
                self.write(1, b"end")
        future, started = hookline.Future(), threading.Event()
        def wait():
            started.set()
            future.wait()
        threading.Thread(target=wait, daemon=True).start()
        started.wait(30)
        hookline.last = Last()  # not in this module, whose variables the thread keeps alive
    """
    assert run_python(code, may_leak=True) == "end"  # Python never clears the stack of such a thread


def test_forked_child_ends(run_python: Callable[..., str]) -> None:
    out = run_python("""
        import os, sys, threading
        from hookline import _core
        enough = threading.Event()
        _core._probe.hammer(2, lambda x: enough.set())
        assert enough.wait(30)
        child = os.fork()
        if child == 0:
            _core._probe.drop_on_other_thread([])
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print("end")
    """)
    assert out == "end\n"


def test_import_is_light(run_python: Callable[..., str]) -> None:
    out = run_python("""
        import sys, hookline
        print([name for name in ("torch", "numpy", "asyncio") if name in sys.modules])
    """)
    assert out == "[]\n"
