"""Groups of processes: creation, and the death of a rank."""

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import hookline

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_the_example(launch):
    done = launch(2, (EXAMPLES / "numpy_allreduce.py").read_text())
    assert (done.returncode, done.stdout, done.stderr) == (0, "[3. 3. 3.]\n" * 2, "")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums(launch, size):
    done = launch(
        size,
        """
        import numpy as np, torch, hookline as hl
        group = hl.init_process_group(backend=None, timeout=30)
        n = group.size()
        assert group.name() == "shm"
        for count in (1, 1000, 1 << 20):
            shared = group.empty(count)
            np.asarray(shared)[:] = group.rank() + 1
            for x in (np.full(count, group.rank() + 1, np.float32), torch.full((count,), group.rank() + 1.0), shared):
                group.allreduce([x]).wait()
                assert (np.asarray(x) == n * (n + 1) // 2).all()
        bits = torch.full((1000,), 1 + group.rank(), dtype=torch.bfloat16)
        group.allreduce([bits]).get_future().wait(20)
        assert (bits == n * (n + 1) // 2).all()
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_rendezvous_in_a_store(tmp_path):
    code = """if True:
        import sys, numpy as np, hookline as hl
        store = hl.FileStore(sys.argv[1], 2)
        group = hl.init_process_group(store=store, rank=int(sys.argv[2]), world_size=2, timeout=30)
        x = np.ones(3)
        group.allreduce(x).wait()
        print(x.tolist())
        """
    command = [sys.executable, "-c", code, str(tmp_path / "store")]
    ranks = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE) for rank in range(2)]
    assert [rank.communicate(timeout=60)[0] for rank in ranks] == [b"[2.0, 2.0, 2.0]\n"] * 2


def test_invalid_groups():
    with pytest.raises(hookline.InvalidArgument, match="expected one of shm"):
        hookline.init_process_group("no_such_backend")
    with pytest.raises(hookline.InvalidArgument, match="rank and world_size are required"):
        hookline.init_process_group(store=hookline.MemoryStore())
    with pytest.raises(hookline.InvalidArgument):
        hookline.make_thread_groups(0)


def test_a_killed_rank_is_named_within_a_second(launch):
    done = launch(
        3,
        """
        import os, signal, time, numpy as np, hookline as hl
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent by the launcher after a rank has died
        group = hl.init_process_group(timeout=30)
        rank = group.rank()
        pid = np.full(1, os.getpid())
        pids = np.empty(3, pid.dtype)
        group.allgather_into_tensor(pids, pid).wait()
        if rank == 1:
            group.recv([pid], 0).wait()
            signal.pause()
        died = time.monotonic()
        if rank == 2:
            group.send([pid], 0).wait()  # rank 1 has completed the allgather
        if rank == 0:
            group.recv([pid], 2).wait()
            group.send([pid], 1).wait()
            died = time.monotonic()
            os.kill(int(pids[1]), signal.SIGKILL)
        try:
            group.allreduce([np.ones(1000)]).wait()
        except hl.Error as error:
            late = time.monotonic() - died
            print(rank, type(error).__name__, "rank 1 died" in str(error) or error, late < 1.0 or late, flush=True)
        """,
    )
    lines = sorted(done.stdout.splitlines())
    assert lines == ["0 PeerLost True True", "2 PeerLost True True"], done.stderr
    assert done.returncode == 128 + 9


def test_mismatch_on_all_ranks(launch):
    done = launch(
        3,
        """
        import numpy as np, hookline as hl
        group = hl.init_process_group(timeout=30)
        x = np.ones(4, np.float32 if group.rank() else np.float64)
        try:
            group.allreduce([x]).wait()
        except hl.Mismatch as error:
            print(all(f"rank {r}" in str(error) for r in range(3)), x.tolist())
        group.barrier().wait()
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True [1.0, 1.0, 1.0, 1.0]\n" * 3, "")


def test_exit_with_operations_pending(launch):
    done = launch(
        2,
        """
        import threading, numpy as np, hookline as hl
        group = hl.init_process_group(timeout=30)
        group.barrier().wait()
        if group.rank() == 0:
            work = group.allreduce([group.empty(1 << 20)])
            future = group.allreduce([group.empty(10)]).get_future()
            child = future.then(lambda f: print(type(f.exception()).__name__, flush=True))
        """,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("Aborted\n", "PeerLost\n")


def test_fork_after_init(launch):
    done = launch(
        2,
        """
        import os, sys, threading, numpy as np, hookline as hl
        group = hl.init_process_group(timeout=30)
        begun, forked = threading.Event(), threading.Event()
        def callback(f):
            begun.set()
            forked.wait(20)
        called = group.allreduce([np.ones(3)]).get_future().then(callback)
        begun.wait(20)  # all threads of the group run, and one holds a lock that the child can never release
        child = os.fork()
        if child == 0:
            for call in (lambda: group.allreduce([np.ones(3)]), lambda: group.abort()):
                try:
                    call()
                except hl.InvalidArgument as error:
                    print("made before fork(). Create a new group in the child" in str(error), flush=True)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        forked.set()
        called.wait(20)
        x = np.ones(3)
        group.allreduce([x]).wait()
        assert x.tolist() == [2.0] * 3
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n" * 4, "")


def test_ctrl_c_ends_a_wait():
    code = """if True:
        import numpy as np, os, signal, threading, time, hookline as hl
        groups = hl.make_thread_groups(2, timeout=60)
        x = np.ones(3)
        work = groups[0].allreduce([x])
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        before = time.monotonic()
        try:
            work.wait()
        except KeyboardInterrupt:
            print(time.monotonic() - before < 10)
        y = np.ones(3)
        groups[1].allreduce([y]).wait()
        work.wait()
        print(x.tolist() == y.tolist() == [2.0] * 3)
        """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False, env=os.environ
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nTrue\n", "")


@pytest.mark.parametrize("answers", range(6))
def test_a_store_that_is_lost_names_the_rank_that_serves_it(monkeypatch, answers):
    monkeypatch.delenv("HOOKLINE_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(10, socket.MSG_WAITALL)[6:])  # the reply to PyTorch's ping
                for number in [0, 0, 1, 1, 1, 1][:answers]:  # replies to add()
                    connection.recv(4096)
                    connection.sendall(struct.pack("=q", number))
                connection.recv(4096)

        thread = threading.Thread(target=serve)
        thread.start()
        where = f"tcp://127.0.0.1:{server.getsockname()[1]}?rank=1&world_size=2"
        with pytest.raises(hookline.PeerLost, match="rank 0 died during group creation") as caught:
            hookline.init_process_group("shm", init_method=where, timeout=20)
        assert caught.value.ranks == (0,)
        thread.join()
