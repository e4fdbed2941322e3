"""The systems under comparison: each a set of processes that wait in a pipe for the next row."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEADLINE = 300.0


class Running:
    """The processes of one system; they live until stop(), and block in a read while it is not their turn."""

    def __init__(self, name: str, ranks: int, build: Path) -> None:
        self.name, self.ranks = name, ranks
        self._directory = tempfile.TemporaryDirectory(prefix="hookline-bench-")
        path = Path(self._directory.name)
        for pipe in [*map(str, range(ranks)), "reply"]:
            os.mkfifo(path / pipe, 0o600)
        # Opened for reading too, so that opening does not wait for the ranks.
        self._commands = [os.open(path / str(rank), os.O_RDWR | os.O_CLOEXEC) for rank in range(ranks)]
        self._reply = os.open(path / "reply", os.O_RDWR | os.O_CLOEXEC)
        self._log = open(path / "log", "w+")  # noqa: SIM115
        self._rest = b""
        self._processes = [
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
            for command, env in launches(name, ranks, build, path)
        ]
        self._answer()

    def run(self, op: str, size: int, memory: str, fresh: bool, repeats: int) -> float | None:
        """Seconds of one operation; None where the system does not have it."""
        self._tell(f"{op} {size} {memory} {int(fresh)} {repeats}\n")
        answer = self._answer()
        if answer.startswith("unsupported"):
            print(f"  {self.name}, {op}: {answer}", file=sys.stderr)
            return None
        return float(answer)

    def drop(self) -> None:
        """Let go of the buffers of the rows so far."""
        self._tell("drop\n")

    def stop(self) -> None:
        """End the processes; closed pipes tell them."""
        for pipe in self._commands:
            os.close(pipe)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        os.close(self._reply)
        self._log.close()
        self._directory.cleanup()

    def _tell(self, line: str) -> None:
        for pipe in self._commands:
            os.write(pipe, line.encode())

    def _answer(self) -> str:
        deadline = time.monotonic() + DEADLINE
        while b"\n" not in self._rest:
            if select.select([self._reply], [], [], 1.0)[0]:
                self._rest += os.read(self._reply, 4096)
            elif time.monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                self._log.seek(0)
                raise RuntimeError(f"{self.name} with {self.ranks} ranks does not answer:\n{self._log.read()[-4000:]}")
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()


def launches(name: str, ranks: int, build: Path, path: Path) -> list[tuple[list[str], dict[str, str]]]:
    """The commands that start a system, and their environments."""
    programs = build / "bench/collectives"
    env = {**os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    if name == "openmpi":  # as Debian ships it; it yields by itself where ranks outnumber cores
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        oversubscribe = ["--oversubscribe"] if ranks > (os.cpu_count() or 1) else []
        return [(["mpirun", "-n", str(ranks), *oversubscribe, str(programs / "mpi_rank"), str(path)], env)]
    if name == "gloo":
        env |= {"GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = [sys.executable, str(HERE / "gloo_rank.py"), str(path)]
    else:
        env |= {"HOOKLINE_STORE": str(path / "store"), "PYTHONPATH": str(build / "python")}
        program = [str(programs / "hookline_rank")]
        command = [*(program if name == "hookline" else [sys.executable, str(HERE / "python_rank.py")]), str(path)]
    return [(command, {**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(ranks)]


def free_port() -> int:
    """A port of loopback that nobody uses now."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
