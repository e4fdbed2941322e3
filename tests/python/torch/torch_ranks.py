"""Ranks with PyTorch, as processes with a file rendezvous."""

import os
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
# A loaded machine takes minutes instead of seconds, mostly for `import torch`.
DEADLINE = 330.0


def start(program: Path, size: int, folder: Path) -> list["subprocess.Popen[str]"]:
    """Starts a program as `size` ranks with a file rendezvous."""
    folder.mkdir(exist_ok=True)
    processes = []
    for rank in range(size):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "INIT_METHOD": f"file://{folder}/meeting",
            "RESULTS": str(folder / f"results{rank}.json"),
            "OMP_NUM_THREADS": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONPATH": f"{FOLDER}:{os.environ.get('PYTHONPATH', '')}",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, program],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        )
    return processes


def outcomes(processes: list["subprocess.Popen[str]"], deadline: float = DEADLINE) -> list[tuple[int, str]]:
    """Returns the exit status and output of each rank. Kills all ranks and raises on a timeout."""
    results = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=deadline)
            results.append((process.returncode, output))
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    return results
