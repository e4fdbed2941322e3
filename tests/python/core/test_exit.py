"""Python ends cleanly whatever native threads do, and nothing is leaked."""

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
            return [x]
        _core._probe.hammer(4, callback)
        assert enough.wait(30)
        print("end")
    """)
    assert out == "end\n"


def test_nothing_is_leaked(run_python: Callable[..., str]) -> None:
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
        _core._probe.drop_elsewhere([tensor])
    """)


def test_wait_on_a_daemon_thread_at_exit(run_python: Callable[..., str]) -> None:
    code = """
        import threading, hookline
        future, started = hookline.Future(), threading.Event()
        def wait():
            started.set()
            future.wait()
        threading.Thread(target=wait, daemon=True).start()
        started.wait(30)
    """
    run_python(code, may_leak=True)  # Python itself never takes down the stack of such a thread


def test_forked_child_ends(run_python: Callable[..., str]) -> None:
    out = run_python("""
        import os, sys, threading
        from hookline import _core
        enough = threading.Event()
        _core._probe.hammer(2, lambda x: enough.set())
        assert enough.wait(30)
        child = os.fork()
        if child == 0:
            _core._probe.drop_elsewhere([])
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
