"""Exit, fork and leaks of programs with Python groups, works and hooks, each in a new interpreter."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, hookline as hl
from hookline import _core
from python_groups import Forwarding
forward_through_cpp = _core._probe.forward_through_cpp
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def test_no_leaks():
    run("""
        inner = hl.make_thread_groups(1)[0]
        group = Forwarding(inner)
        native = forward_through_cpp(group)
        work = native.allreduce([np.ones(3)])
        work.wait()
        future = native.allreduce([np.ones(3)]).get_future().then(lambda f: f.value())
        future.wait(20)
        info = []
        inner.register_on_completion_hook(info.append)
        group.register_on_completion_hook(info.append)
        native.barrier().wait()
        group.wait_for_hooks()
        group.cycle = native, work, info, group
    """)


def test_pending_works_at_exit():
    run("""
        class Never(hl.Work):
            def __init__(self):
                super().__init__()
                self.future = hl.Future()
            def get_future(self):
                return self.future
        class Group(hl.ProcessGroup):
            def allreduce(self, tensors, opts=None):
                return Never()
        native = forward_through_cpp(Group(0, 1))
        work = native.allreduce([np.ones(3)])
        future = native.allreduce([np.ones(3)]).get_future()
    """)


def test_hooks_that_run_at_exit():
    out = run("""
        groups = hl.make_thread_groups(2)
        groups[0].register_on_completion_hook(lambda info: print(type(info.error).__name__, flush=True))
        work = groups[0].allreduce([np.ones(3)])
    """)
    assert out == "Aborted\n"


def test_a_collection_while_a_reducer_asks_for_the_timeout():
    """The garbage collector traverses the reducer while the reducer holds a lock."""
    run("""
        import gc
        class Collecting(Forwarding):
            def timeout(self):
                gc.collect()
                return 30
        def main():
            ddp = hl.numpy.DataParallel({"w": np.zeros(3, np.float32)}, Collecting(hl.make_thread_groups(1)[0]))
            ddp.ready("w", np.ones(3, np.float32))
            ddp.finish()
        main()
    """)


LOCAL = """
    import gc, weakref
    class Local(hl.ProcessGroup):
        def done(self, *arguments):
            future = hl.Future()
            future.set_result(None)
            return hl.Work(future)
        allreduce = allreduce_coalesced = broadcast = barrier = done
        def allgather_into_tensor(self, output, input, opts=None):
            output[...] = input.reshape(output.shape)
            return self.done()
    def params():
        return {"w": np.zeros((64, 32), np.float32)}
    def step(ddp):
        ddp.ready("w", np.ones((64, 32), np.float32))
        ddp.finish()
    def noop(state, bucket):
        return state.allreduce([bucket.buffer()]).get_future().then(lambda f: bucket.buffer())
"""


def owner_program(group: str) -> str:
    """Returns a program with all objects that refer to a group, in a cycle through module variables or attributes."""
    return f"""
        group = {group}
        ddp = hl.numpy.DataParallel(params(), group)
        step(ddp)
        other = hl.numpy.DataParallel(params(), group, hook="int8 | error_feedback")
        step(other)
        other.replace_comm_hook(None, "fp16")
        step(other)
        other.replace_comm_hook(group, noop)
        step(other)
        hook = hl.make_hook("int8", group)
        wrapped = hook | "error_feedback"
        third = hl.numpy.DataParallel(params(), group, hook=hook)
        step(third)
        state = hl.PowerSGDState(group, start_powerSGD_iter=2)
        fourth = hl.numpy.DataParallel(params(), group)
        fourth.register_comm_hook(state, hl.powerSGD_hook)
        step(fourth)
        local = hl.PostLocalSGDState(group, group, 10)
        fifth = hl.numpy.DataParallel(params(), group)
        fifth.register_comm_hook(local, hl.post_localSGD_hook)
        step(fifth)
        periodic = hl.PeriodicModelAverager(2, 0, group)
        hierarchical = hl.HierarchicalModelAverager({{2: 1}}, 0, group)
        for holder in (state, local, periodic, hierarchical):
            assert holder.process_group is group
    """


@pytest.mark.parametrize("group", ["Local(0, 1)", "hl.with_nan_checks(Local(0, 1))"])
def test_python_groups_of_a_module_are_not_leaked(group: str) -> None:
    """A group's class refers to the globals of its module. If one of these owns the group, there is a cycle."""
    run(textwrap.dedent(LOCAL) + textwrap.dedent(owner_program(group)))


@pytest.mark.parametrize(
    "holder",
    ["ddp", "other", "hook", "wrapped", "third", "state", "fourth", "local", "fifth", "periodic", "hierarchical"],
)
def test_a_cycle_with_a_python_group_is_collected(holder: str) -> None:
    out = run(
        textwrap.dedent(LOCAL)
        + "def make():\n"
        + textwrap.indent(textwrap.dedent(owner_program("Local(0, 1)")), "    ")
        + f"    group.held_by = {holder}\n    return weakref.ref(group)\n"
        + "gone = make()\ngc.collect()\nprint(gone())\n"
    )
    assert out == "None\n"


def test_a_referenced_group_is_not_collected() -> None:
    out = run(
        textwrap.dedent(LOCAL)
        + "def make():\n"
        + textwrap.indent(textwrap.dedent(owner_program("Local(0, 1)")), "    ")
        + "    group.everything = [ddp, other, third, fourth, fifth, wrapped, state, local, group]\n"
        + "    return hook\n"
        + textwrap.dedent("""
            hook = make()
            for _ in range(3):
                gc.collect()
            last = hl.numpy.DataParallel(params(), hl.make_thread_groups(1)[0], hook=hook)
            step(last)
            assert len(_core.group_of_hook(hook).everything) == 9
            print("still there")
        """)
    )
    assert out == "still there\n"


def test_errors_do_not_leak():
    """Tracebacks refer to frames, and frames to groups, works and futures: these cycles must be collected."""
    folder = Path(__file__).parent
    files = [str(folder / name) for name in ("test_python_groups_errors.py", "test_completion_hooks.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "leaked" not in done.stderr, done.stderr


def test_a_forked_child():
    out = run("""
        import os
        group = Forwarding(hl.make_thread_groups(1)[0])
        native = forward_through_cpp(group)
        native.register_on_completion_hook(lambda info: None)
        native.allreduce([np.ones(3)]).wait()
        native.wait_for_hooks()
        class Local(hl.ProcessGroup):
            def barrier(self, opts=None):
                future = hl.Future()
                future.set_result(None)
                return hl.Work(future)
        local = Local(0, 1)
        child = os.fork()
        if child == 0:
            try:
                native.allreduce([np.ones(3)])
            except hl.InvalidArgument as error:
                assert "fork" in str(error), error
            else:
                os._exit(3)
            assert forward_through_cpp(local).barrier().wait()   # works written in Python remain usable
            del group, native
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        native.allreduce([np.ones(3)]).wait()
        print("end")
    """)
    assert out == "end\n"
