"""Groups in a container with a small /dev/shm, and cleanup after killed ranks."""

import os
import shlex
import subprocess
import sys

import pytest

DEADLINE = 60.0


@pytest.fixture
def contained(tmp_path):
    """contained(text, script) runs a shell script as in a container, with its own TMPDIR, network and 64 MB /dev/shm.

    $PROGRAM is the path of a program with the given text, and $RUN the launcher.
    """

    def run(text, script):
        program = tmp_path / "program.py"
        program.write_text(text)
        mounts = "mount -t tmpfs -o size=64m tmpfs /dev/shm && mount -t tmpfs tmpfs /home && mkdir /home/tmp"
        environment = {
            **{name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"},
            "RUN": f"{shlex.quote(sys.executable)} -m hookline run -n 2",
            "PROGRAM": str(program),
            "TMPDIR": "/home/tmp",  # tmp_path is below /tmp
        }
        unshare = ["unshare", "--mount", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        return subprocess.run(
            [*unshare, "sh", "-c", f"{mounts}\n{script}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
            env=environment,
        )

    return run


def test_a_small_dev_shm_is_enough(contained):
    program = """\
import os, shutil, numpy as np, hookline as hl
assert shutil.disk_usage("/dev/shm").total == 64 << 20
group = hl.init_process_group(timeout=30)
for x in (group.empty(40 << 20), np.empty(40 << 20, np.float32)):  # 160 MiB each
    x = np.asarray(x)
    x[:] = group.rank() + 1
    group.allreduce([x]).wait()
    assert x[0] == x[-1] == 3
"""
    done = contained(program, "$RUN $PROGRAM && ls -A /dev/shm /home/tmp")
    assert (done.returncode, done.stdout, done.stderr) == (0, "/dev/shm:\n\n/home/tmp:\n", "")


@pytest.mark.parametrize("victims", ["0", "01"])
def test_killed_ranks_leave_no_files(contained, victims):
    program = f"""\
import os, signal, numpy as np, hookline as hl
group = hl.init_process_group(timeout=30)
x = group.empty(1 << 20)
group.allreduce([x]).wait()
if str(group.rank()) in "{victims}":
    os.kill(os.getpid(), signal.SIGKILL)
try:
    group.barrier().wait()
except hl.PeerLost:
    pass
"""
    done = contained(program, "$RUN $PROGRAM; echo $?; ls -A /dev/shm /home/tmp; grep -c @hookline- /proc/net/unix")
    assert done.stdout == "137\n/dev/shm:\n\n/home/tmp:\n0\n", done.stderr


def test_killed_launcher_and_ranks_leave_no_files(contained):
    program = """\
import os, signal, hookline as hl
group = hl.init_process_group(timeout=30)
group.barrier().wait()
if group.rank() == 0:
    os.kill(os.getppid(), signal.SIGKILL)
signal.pause()
"""
    # The launcher's reaper removes its directory soon after.
    script = """\
$RUN $PROGRAM
for i in $(seq 600); do [ -z "$(ls -A /dev/shm /home/tmp | grep -v :)" ] && break; sleep 0.05; done
ls -A /dev/shm /home/tmp
"""
    done = contained(program, script)
    assert done.stdout == "/dev/shm:\n\n/home/tmp:\n", done.stderr


# As in containers with the host's network: shm cannot detect the death of a process in another PID namespace.
def test_ranks_in_different_pid_namespaces_do_not_share_memory(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(f"""\
import sys, numpy as np, hookline as hl
rank = int(sys.argv[1])
try:
    hl.init_process_group("shm", init_method="file://{tmp_path}/shm", rank=rank, world_size=2, timeout=30)
except hl.Unsupported as e:
    print(e)
group = hl.init_process_group(init_method="file://{tmp_path}/any", rank=rank, world_size=2, timeout=30)
x = np.ones(1000, np.float32)
group.allreduce([x]).wait()
print(group.name(), x[0])
group.barrier().wait()
""")
    ranks = [
        subprocess.Popen(
            ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, program, str(rank)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for rank, process in enumerate(ranks):
        printed = process.communicate(timeout=DEADLINE)[0].splitlines()
        assert f"rank {1 - rank} is not where rank {rank} is" in printed[0]
        assert printed[1:] == ["hierarchical 2.0"]
        assert process.returncode == 0
