"""Fixture that starts `hookline run`, with its private directory in a folder that the tests can inspect."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for node_processes

DEADLINE = 30.0


class Launcher:
    """Starts `hookline run` commands. The folder `runtime` is empty before and after each command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "runtime"
        self.runtime.mkdir(mode=0o700)
        self.environment = {**os.environ, "XDG_RUNTIME_DIR": str(self.runtime)}
        # The launcher sets these unless the user has.
        for name in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED", "HOOKLINE_TOKEN"):
            self.environment.pop(name, None)
        self._running: list[subprocess.Popen[bytes]] = []

    def program(self, text: str, name: str = "program.py") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def start(self, *arguments: str, ignored: tuple[int, ...] = (), **options: Any) -> "subprocess.Popen[bytes]":
        """Starts `hookline run` as the leader of a new session. stdout and stderr are pipes unless `options` differ."""

        def defaults() -> None:
            # A test run in the background may have inherited ignored signals.
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)

        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        # Unbuffered, because communicate() would miss data that readline() has buffered.
        options["bufsize"] = 0
        command = [sys.executable, "-m", "hookline", "run", *arguments]
        process = subprocess.Popen(
            command, env=self.environment, cwd=self.folder, start_new_session=True, preexec_fn=defaults, **options
        )
        self._running.append(process)
        return process

    def run(self, *arguments: str, input: bytes = b"") -> "subprocess.CompletedProcess[bytes]":  # noqa: A002
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(input, timeout=DEADLINE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    @staticmethod
    def lines(process: "subprocess.Popen[bytes]", count: int) -> list[bytes]:
        """Returns the next lines of a launcher's stdout."""
        assert process.stdout is not None
        return [process.stdout.readline() for _ in range(count)]

    @staticmethod
    def watch(pid: int) -> Callable[[], bool]:
        """Returns a function that waits for the exit of a process, child or not, and returns False after a timeout."""
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return lambda: True

        def ended() -> bool:
            try:
                return bool(select.select([fd], [], [], DEADLINE)[0])
            finally:
                os.close(fd)

        return ended

    def close(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    made.close()
    assert list(made.runtime.iterdir()) == []
