"""mpirun.sh prints the output and exit code of every rank, whichever rank fails."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "mpirun.sh"

# The last line of rank 1 must not get lost: it explains the failure.
PROGRAM = """\
import os, sys, time
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
print(f"rank {rank} begins", flush=True)
if rank == 1:
    print("x" * 200_000 + "\\nthe last line of rank 1", flush=True)
    END
"""


def command(tmp_path: Path, end: str) -> list[str]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("END", end))
    return [str(SCRIPT), "90", "--allow-run-as-root", "--oversubscribe", "-n", "3", "--", sys.executable, str(program)]


@pytest.mark.parametrize(
    ("end", "shown"),
    [("sys.exit(7)", "--- rank 1, exit code 7"), ("os.kill(os.getpid(), 11)", "--- rank 1, exit code 139: signal 11")],
)
def test_a_rank_that_fails(tmp_path: Path, end: str, shown: str) -> None:
    done = subprocess.run(command(tmp_path, end), capture_output=True, text=True, timeout=100, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode != 0
    assert shown in lines, done.stdout[-2000:]
    assert "the last line of rank 1" in lines


def test_a_job_that_takes_too_long(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    end = f"open({str(ready)!r}, 'w').close(); time.sleep(1000)"
    with subprocess.Popen(command(tmp_path, end), stdout=subprocess.PIPE, text=True) as process:
        ready.read_text()  # returns when rank 1 has printed its last line
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGALRM)  # fires the timeout
        lines = process.communicate(timeout=60)[0].splitlines()
    assert process.returncode == 124
    assert "--- mpirun: exit code 124: timed out after 90 s" in lines
    assert "--- rank 1, exit code none: killed with the job" in lines
    assert "the last line of rank 1" in lines
