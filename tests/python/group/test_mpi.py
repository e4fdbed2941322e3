"""Groups on the transport mpi in Python under mpirun: rendezvous, errors that name ranks, and MPI finalization."""

import os
import re
import subprocess
import sys

import pytest

MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe"]

COLLECTIVES = """\
import numpy as np, hookline as hl
group = hl.init_process_group("mpi", timeout=60)
x = np.full(100_000, group.rank() + 1, np.float32)
group.allreduce([x]).wait()
half = group.split(group.rank() % 2, group.rank())
y = np.ones(4, np.float32)
half.allreduce([y]).wait()
print(f"{group.rank()} of {group.size()} on {group.getBackendName()}: {x[-1]:g} {y[0]:g}\\n", end="")
"""

# Loads the libraries of PyTorch and MPI into one process, to detect symbol conflicts.
WITH_TORCH = """\
import torch, hookline as hl
group = hl.init_process_group("mpi", timeout=60)
x = torch.full((1000,), group.rank() + 1.0)
group.allreduce([x]).wait()
print(f"{group.rank()}: {x[-1].item():g}\\n", end="")
"""

# Rank 1 reaches the rendezvous, or the operation, only after rank 0 has timed out.
NEVER_COMES = """\
import sys, os, time
import hookline as hl
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
store = hl.FileStore(sys.argv[1] + "/store", 2)
if rank == 0:
    began = time.monotonic()
    try:
        hl.init_process_group("mpi", rank=0, world_size=2, store=hl.PrefixStore("a", store), timeout=1)
    except hl.Timeout as error:
        print(error, time.monotonic() - began < 30)
    store.set("over", b"")
store.wait(["over"], 60)
"""

AGAIN = """\
import sys, os
import numpy as np, hookline as hl
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
store = hl.FileStore(sys.argv[1] + "/store", 2)
def make_group(name):
    return hl.init_process_group("mpi", rank=rank, world_size=2, store=hl.PrefixStore(name, store), timeout=60)
group = make_group("first")
group.barrier().wait()
if rank == 0:
    try:
        group.allreduce([np.ones(1_000_000, np.float32)], timeout=0.2).wait()
    except hl.Timeout as error:
        print(error)
    group.abort("not in time")
    store.set("over", b"")
store.wait(["over"], 60)
second = make_group("second")
x = np.ones(1_000_000, np.float32)
second.allreduce([x]).wait()
print(f"{rank}: {x[-1]:g}\\n", end="")
"""

DIES = """\
import os, signal
import numpy as np, hookline as hl
group = hl.init_process_group("mpi", timeout=60)
group.barrier().wait()
if group.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    group.allreduce([np.ones(10, np.float32)]).wait()
except hl.PeerLost as error:
    print(f"{error}\\n", end="", flush=True)
os._exit(0)
"""


@pytest.fixture
def mpirun(tmp_path):
    """mpirun(ranks, program, *options) runs a program with a folder for its store."""

    def run(ranks, text, *options):
        program = tmp_path / "program.py"
        program.write_text(text)
        command = [*MPIRUN, *options, "-n", str(ranks), sys.executable, str(program), str(tmp_path)]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)

    return run


def test_collectives_and_split_groups(mpirun):
    done = mpirun(3, COLLECTIVES)
    assert done.returncode == 0, done.stderr
    expected = ["0 of 3 on mpi: 6 2", "1 of 3 on mpi: 6 1", "2 of 3 on mpi: 6 2"]
    assert sorted(done.stdout.splitlines()) == expected
    assert "finalize" not in done.stderr  # mpirun reports ranks that exit without MPI_Finalize


def test_mpi_calls_are_serialized(mpirun):
    done = mpirun(3, COLLECTIVES, "-x", "HOOKLINE_MPI_THREADS=serialized")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 3
    done = mpirun(1, COLLECTIVES, "-x", "HOOKLINE_MPI_THREADS=some")
    assert "HOOKLINE_MPI_THREADS is invalid: expected multiple or serialized, got 'some'" in done.stderr


def test_beside_pytorch(mpirun):
    done = mpirun(2, WITH_TORCH)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: 3", "1: 3"]), done.stderr


def test_a_rank_that_never_joins(mpirun):
    done = mpirun(2, NEVER_COMES)
    assert done.stdout == "an mpi group of 2 ranks: rank 1 did not join within 1000 ms True\n", done.stderr


def test_a_new_group_after_a_timeout(mpirun):
    done = mpirun(2, AGAIN)
    assert done.returncode == 0, done.stderr
    assert re.search(r"rank 1 did not join within \d+ ms", done.stdout), done.stdout
    assert sorted(done.stdout.splitlines())[:2] == ["0: 2", "1: 2"]


def test_a_rank_that_dies(mpirun):
    # Without this option mpirun would also end the other ranks.
    done = mpirun(3, DIES, "--enable-recovery")
    lines = done.stdout.splitlines()
    assert len([line for line in lines if "rank 1 died" in line]) == 2, (done.stdout, done.stderr)


def test_a_launcher_other_than_mpirun(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(COLLECTIVES)
    command = [sys.executable, "-m", "hookline", "run", "-n", "2", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    text = "InvalidArgument: an mpi group of 2 ranks: wrong number of MPI processes: expected 2, got 1. Start"
    assert text in done.stderr
