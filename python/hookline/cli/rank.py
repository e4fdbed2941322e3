"""A rank as a process: starts, signals and reaps it together with its child processes."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence

from .output import Sink, Stream

PR_SET_PDEATHSIG = 1
# Looked up before any fork: loading libraries is not safe in the child.
_prctl = ctypes.CDLL(None, use_errno=True).prctl
# The user's limit. The launcher may raise its own, but ranks keep this one: select() fails beyond 1024 descriptors.
_DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)


class Rank:
    """A running rank. It leads its own session, so that only signals from the launcher reach it."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        sinks: tuple[Sink, Sink],
        prefix: bytes,
        caught: Sequence[signal.Signals],
    ) -> None:
        """Starts the process; OSError if it cannot be started. `caught` lists the signals that the launcher handles."""
        self.number = number
        self.command = command
        self.status: int | None = None
        self.sigterm_sent = False  # by the launcher, because of a failure
        self.kill_reason: str | None = None  # set when the launcher sends SIGKILL
        launcher = os.getpid()

        def prepare() -> None:
            # Runs between fork and exec with the signals blocked: a handler of the launcher must not run in the child,
            # where it would write to the launcher's wake-up socket.
            for number in caught:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            resource.setrlimit(resource.RLIMIT_NOFILE, _DESCRIPTORS)
            if _prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0 or os.getppid() != launcher:
                os._exit(127)

        with contextlib.ExitStack() as undo, contextlib.ExitStack() as writers:
            pipes = [_pipe(undo, writers), _pipe(undo, writers)]
            mask = signal.pthread_sigmask(signal.SIG_BLOCK, caught)
            try:
                self._process = subprocess.Popen(
                    command,
                    # Only one process can read the terminal.
                    stdin=None if number == 0 else subprocess.DEVNULL,
                    stdout=pipes[0][1],
                    stderr=pipes[1][1],
                    env=environment,
                    start_new_session=True,
                    preexec_fn=prepare,
                )
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self.pid = self._process.pid
            undo.callback(self._process.wait)
            undo.callback(self.signal_group, signal.SIGKILL)
            self.pidfd = os.pidfd_open(self.pid)
            undo.pop_all()
        self.stdout = Stream(pipes[0][0], sinks[0], prefix)
        self.stderr = Stream(pipes[1][0], sinks[1], prefix, keep_tail=True)

    def signal_group(self, number: int) -> None:
        """Signals the rank and the processes that it started."""
        if self.status is None:  # the pid cannot be reused before the rank is reaped
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def was_terminated(self) -> bool:
        """True if a SIGTERM or SIGKILL from the launcher ended the rank."""
        ending = (-signal.SIGTERM, -signal.SIGKILL)
        return (self.sigterm_sent or self.kill_reason is not None) and self.status in ending

    def signal_process(self, number: int) -> None:
        """Signals only the rank's process, not its children."""
        if self.status is None:
            with contextlib.suppress(PermissionError):
                os.kill(self.pid, number)

    def reap(self) -> int:
        """Waits for the rank, kills its remaining children and drains its output. Returns the exit status as Popen."""
        if self.status is None:
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
            self.signal_group(signal.SIGKILL)
            self.status = self._process.wait()
            self.stdout.drain()
            self.stderr.drain()
            os.close(self.pidfd)
        return self.status


def _pipe(undo: contextlib.ExitStack, writers: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    writers.callback(os.close, writer)
    return reader, writer


def describe(status: int) -> str:
    """Returns an exit status in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"
