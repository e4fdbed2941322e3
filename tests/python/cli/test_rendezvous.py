"""Rendezvous by env://: one program, unchanged under hookline run, torchrun and mpirun."""

import os
import random
import subprocess
import sys

import pytest

PROGRAM = """\
import hookline as hl
found = hl.rendezvous(timeout=30)
found.store.set(f"key/{found.rank}", f"from {found.rank}".encode())
values = [found.store.get(f"key/{rank}").decode() for rank in range(found.world_size)]
line = (found.rank, found.world_size, found.local_rank, *values, type(found.store).__name__)
print(" ".join(map(str, line)) + "\\n", end="")  # one write: torchrun has no buffer for lines
found.store.barrier("end", found.world_size, 30)
"""


def expected(ranks, store):
    values = " ".join(f"from {rank}" for rank in range(ranks))
    return [f"{rank} {ranks} {rank} {values} {store}" for rank in range(ranks)]


def test_ranks_meet_under_hookline_run(launcher):
    done = launcher.run("-n", "3", launcher.program(PROGRAM))
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(done.stdout.decode().splitlines()) == expected(3, "FileStore")


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d"]
TORCHRUN += ["--master-addr=127.0.0.1", "--master-port=0", "--rdzv-endpoint=127.0.0.1:0"]
MPIRUN = ["mpirun", "-n", "2", "--allow-run-as-root", "--oversubscribe", sys.executable]


@pytest.mark.parametrize(
    ("command", "store"), [(TORCHRUN, "TCPStore"), (MPIRUN, "FileStore")], ids=["torchrun", "mpirun"]
)
def test_ranks_meet_under_other_launchers(tmp_path, command, store):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([*command, str(program)], env=environment, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == expected(2, store)


# Creates four groups in turn, and either releases each group before the next one or keeps all groups.
AGAIN = """\
import sys
import numpy as np
import hookline as hl
backend, keeps = sys.argv[1:]
kept, sums = [], []
for _ in range(4):
    group = hl.init_process_group(backend or None, timeout=30)
    x = np.ones(10, np.float32)
    group.allreduce([x]).wait()
    sums.append(int(x[0]))
    kept.append(group if keeps else None)
    group = None
print(sums)
"""


def served_by_rank_0(ranks, program, *arguments):
    """Starts ranks without a launcher, given only the address of rank 0, and returns their output."""
    address = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"  # its ports are free
    known = {**os.environ, "MASTER_ADDR": address, "MASTER_PORT": "29500"}
    processes = [
        subprocess.Popen(
            [sys.executable, program, *arguments],
            env={**known, "RANK": str(rank), "WORLD_SIZE": str(ranks[-1] + 1)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in ranks
    ]
    try:
        return [process.communicate(timeout=90)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("backend", ["", "gloo"])
def test_groups_one_after_another_under_hookline_run(launcher, backend):
    done = launcher.run("-n", "2", launcher.program(AGAIN), backend, "")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == ["[2, 2, 2, 2]"] * 2


@pytest.mark.parametrize("command", [TORCHRUN, MPIRUN], ids=["torchrun", "mpirun"])
def test_groups_one_after_another_under_other_launchers(tmp_path, command):
    program = tmp_path / "program.py"
    program.write_text(AGAIN)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, str(program), "gloo", ""], env=environment, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2, 2, 2, 2]") == 2


@pytest.mark.parametrize("keeps", ["", "yes"], ids=["dropped", "kept"])
def test_groups_one_after_another_where_rank_0_serves(tmp_path, keeps):
    program = tmp_path / "program.py"
    program.write_text(AGAIN)
    assert served_by_rank_0(range(3), str(program), "gloo", keeps) == ["[3, 3, 3, 3]\n"] * 3


# Every rank exits as soon as it gets the error, including the rank that serves the store.
MISSING = """\
import os, sys
import hookline as hl
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]) + 1
try:
    hl.init_process_group(rank=rank, world_size=size, timeout=5 if rank == 0 else 60)
except hl.Timeout as error:
    print(error.ranks, "rank 3 did not join" in str(error), flush=True)
os._exit(0)
"""


def test_a_rank_that_never_joins_is_named_on_all_others(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(MISSING)
    assert served_by_rank_0(range(3), str(program)) == ["(3,) True\n"] * 3
