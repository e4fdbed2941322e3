"""One rank as a process: how it is started, signalled and ended together with what it started itself."""

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from collections.abc import Mapping, Sequence

from .output import Sink, Stream

PR_SET_PDEATHSIG = 1
# Looked up before any fork: the child must not load libraries.
_prctl = ctypes.CDLL(None, use_errno=True).prctl
# Of the user. The launcher may raise its own; ranks have this one, since select() fails beyond 1024 descriptors.
_DESCRIPTORS = resource.getrlimit(resource.RLIMIT_NOFILE)


class Rank:
    """A running rank. It leads a session of its own, so nothing but the launcher's signals reaches it."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        sinks: tuple[Sink, Sink],
        prefix: bytes,
        caught: Sequence[signal.Signals],
    ) -> None:
        """Starts it; OSError if the system refuses. `caught` are the signals that the launcher handles."""
        self.number = number
        self.command = command
        self.status: int | None = None
        self.was_told = False  # True once the launcher has sent it SIGTERM because of a failure
        self.killed_because: str | None = None  # set when the launcher sends SIGKILL
        launcher = os.getpid()

        def prepare() -> None:
            # Between fork and exec. The signals are blocked until here: a handler of the launcher must not run in the
            # child, where it would write into the launcher's own wake-up socket.
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
                    # Only one process can sensibly read what is typed.
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
        if self.status is None:  # until it is reaped, the number belongs to it
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def was_ended(self) -> bool:
        """True if the launcher's SIGTERM or SIGKILL ended it."""
        ending = (-signal.SIGTERM, -signal.SIGKILL)
        return (self.was_told or self.killed_because is not None) and self.status in ending

    def signal_alone(self, number: int) -> None:
        """Signals the rank's own process."""
        if self.status is None:
            with contextlib.suppress(PermissionError):
                os.kill(self.pid, number)

    def reap(self) -> int:
        """Waits for its end, ends what it left behind, takes the rest of its output; the exit status as Popen's."""
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
    """An exit status in words."""
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {-status} ({signal.Signals(-status).name})"
    except ValueError:
        return f"signal {-status}"
