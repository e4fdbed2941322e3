"""Ranks with PyTorch, as processes that meet in a file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "programs"
# A loaded machine takes minutes for what takes seconds on a quiet one, most of it for `import torch`.
DEADLINE = 330.0


def start(program: Path, size: int, folder: Path) -> list["subprocess.Popen[str]"]:
    """Starts a program as `size` ranks that meet in a file."""
    folder.mkdir(exist_ok=True)
    processes = []
    for rank in range(size):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MEETING": f"file://{folder}/meeting",
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
    """The exit status and the output of each rank; ranks that do not end in time are killed and that is an error."""
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
