"""The compared systems: each is a set of processes that wait on a pipe for the next row."""

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
REPLY_TIMEOUT = 300.0


class RunningSystem:
    """The processes of one system. They run until stop(), and block in a read while other systems are measured."""

    def __init__(self, name: str, ranks: int, build: Path) -> None:
        self.name, self.ranks = name, ranks
        self._directory = tempfile.TemporaryDirectory(prefix="hookline-bench-")
        path = Path(self._directory.name)
        for pipe in [*map(str, range(ranks)), "reply"]:
            os.mkfifo(path / pipe, 0o600)
        # O_RDWR: opening a FIFO for writing only would block until the ranks open it.
        self._commands = [os.open(path / str(rank), os.O_RDWR | os.O_CLOEXEC) for rank in range(ranks)]
        self._reply = os.open(path / "reply", os.O_RDWR | os.O_CLOEXEC)
        self._log = open(path / "log", "w+")  # noqa: SIM115
        self._unparsed = b""
        self._processes = [
            subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log)
            for command, env in launches(name, ranks, build, path)
        ]
        self._read_reply()

    def run(self, op: str, size: int, memory: str, fresh: bool, repeats: int) -> float | None:
        """Returns the time of one operation in seconds; None if the system does not support it."""
        self._send(f"{op} {size} {memory} {int(fresh)} {repeats}\n")
        reply = self._read_reply()
        if reply.startswith("unsupported"):
            print(f"  {self.name}, {op}: {reply}", file=sys.stderr)
            return None
        return float(reply)

    def release_buffers(self) -> None:
        """Makes the ranks release the buffers of all earlier rows."""
        self._send("drop\n")

    def stop(self) -> None:
        """Closes the pipes, which makes the processes exit, and waits for them."""
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

    def _send(self, line: str) -> None:
        for pipe in self._commands:
            os.write(pipe, line.encode())

    def _read_reply(self) -> str:
        deadline = time.monotonic() + REPLY_TIMEOUT
        while b"\n" not in self._unparsed:
            if select.select([self._reply], [], [], 1.0)[0]:
                self._unparsed += os.read(self._reply, 4096)
            elif time.monotonic() > deadline or any(p.poll() is not None for p in self._processes):
                self._log.seek(0)
                raise RuntimeError(f"no reply from {self.name} with {self.ranks} ranks:\n{self._log.read()[-4000:]}")
        line, self._unparsed = self._unparsed.split(b"\n", 1)
        return line.decode()


def launches(name: str, ranks: int, build: Path, path: Path) -> list[tuple[list[str], dict[str, str]]]:
    """Returns the commands that start a system, and their environments."""
    programs = build / "bench/collectives"
    env = {**os.environ, "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    if name == "openmpi":  # OpenMPI yields by itself if ranks outnumber cores
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
    """Returns an unused port of the loopback interface."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
