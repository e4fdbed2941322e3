"""Supervises running ranks: forwards their output and signals, and ends all of them when one fails."""

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType

from .output import Sink, Stream
from .rank import Rank

# Forwarded to a rank's whole process group, as the terminal does. They start the grace period.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Forwarded only to the rank's process: they would kill a child process without a handler.
MESSAGES = (signal.SIGUSR1, signal.SIGUSR2)


class Supervisor:
    """Starts ranks and waits for them, on one thread that blocks in poll(). A context manager: exit kills all ranks."""

    def __init__(self, grace: float) -> None:
        self.ranks: list[Rank] = []
        self.first_failure: Rank | None = None
        self.ended_by: signal.Signals | None = None
        # Called once, when a failure or a signal starts to end the ranks.
        self.on_end: Callable[[], None] = lambda: None
        # Called for each rank that ended with exit code 0, unless the job is ending.
        self.on_success: Callable[[Rank], None] = lambda rank: None
        self._grace = grace
        self._kill_at: float | None = None
        self._ending = False
        self._interrupts = 0
        self._out, self._err = Sink(1), Sink(2)
        if os.path.sameopenfile(1, 2):
            self._err = self._out  # one file: lines of stdout and stderr must not mix either
        self._selector = selectors.PollSelector()  # epoll does not support regular files
        self._full_sinks: set[Sink] = set()

    def __enter__(self) -> "Supervisor":
        """Installs handlers for the forwarded signals. An ignored signal, as under nohup, stays ignored."""
        self._wake, wakeup = socket.socketpair()
        self._wake.setblocking(False)
        wakeup.setblocking(False)
        self._wakeup = wakeup
        self._caught = [s for s in (*ENDING, *MESSAGES) if signal.getsignal(s) != signal.SIG_IGN]
        self._old_wakeup = signal.set_wakeup_fd(wakeup.fileno())
        self._old_handlers = {s: signal.signal(s, lambda *_: None) for s in self._caught}
        self._selector.register(self._wake, selectors.EVENT_READ)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Kills the remaining ranks and restores the signal handlers."""
        self.kill_all()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        self._selector.close()
        self._wake.close()
        self._wakeup.close()

    def start(self, number: int, command: Sequence[str], environment: Mapping[str, str], prefix: bool) -> int:
        """Starts one rank and returns its process group; OSError if it cannot be started. `prefix` tags its output."""
        tag = f"[{number}] ".encode() if prefix else b""
        rank = Rank(number, command, environment, (self._out, self._err), tag, self._caught)
        self.ranks.append(rank)
        self._selector.register(rank.pidfd, selectors.EVENT_READ, rank)
        for stream in (rank.stdout, rank.stderr):
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        return rank.pid

    def add_listener(self, file: socket.socket, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever `file` is readable, until remove_listener()."""
        self._selector.register(file, selectors.EVENT_READ, callback)

    def remove_listener(self, file: socket.socket) -> None:
        """Undoes add_listener()."""
        self._selector.unregister(file)

    def wait(self, is_busy: Callable[[], bool] = lambda: False) -> None:
        """Blocks until every rank has exited, and `is_busy` is false or the ranks were terminated."""
        while any(rank.status is None for rank in self.ranks) or (not self._ending and is_busy()):
            self._poll_once()

    def terminate_ranks(self) -> None:
        """Terminates the ranks because of an external event, as if one of them had failed."""
        if not self._ending:
            self._terminate()

    def kill_all(self) -> None:
        """Kills and reaps the remaining ranks."""
        for rank in self.ranks:
            rank.signal_group(signal.SIGKILL)
        for rank in self.ranks:
            if rank.status is None:
                self._reap(rank)

    def flush(self, text: str) -> None:
        """Writes `text` after all output. Blocks until everything is written or the reader closes.

        If a signal ended the job, blocks for at most the grace period.
        """
        self._err.put(None, text.encode(errors="backslashreplace"))
        if self.ended_by is not None:
            self._kill_at = time.monotonic() + self._grace
        while self._out.pending or self._err.pending:
            self._poll_once()
            if self.ended_by is not None and self._kill_at is None:
                return  # the grace period is over, and the reader does not read

    def _poll_once(self) -> None:
        """Waits for the next events and handles them."""
        self._update_polling()
        events = [(key.data, key.fileobj) for key, _ in self._selector.select(self._poll_timeout())]
        ended = [data for data, _ in events if isinstance(data, Rank)]
        for rank in ended:
            self._reap(rank)
        self._record_failure(ended)
        for data, fileobj in events:
            if isinstance(data, Stream) and not data.closed:
                self._read(data)
            elif isinstance(data, Sink):
                data.write()
            elif callable(data):
                data()
            elif fileobj is self._wake:
                for number in self._wake.recv(4096):
                    self._forward(signal.Signals(number))
        self._handle_timers()

    def _update_polling(self) -> None:
        """Polls sinks with pending output, and stops polling streams whose sink is full (backpressure)."""
        for sink in {self._out, self._err}:
            self._poll(sink.fd, selectors.EVENT_WRITE, sink, bool(sink.pending))
            if sink.broken or sink.full != (sink in self._full_sinks):
                (self._full_sinks.add if sink.full else self._full_sinks.discard)(sink)
                for stream in self._streams():
                    if stream.sink is sink:
                        self._poll(stream.fd, selectors.EVENT_READ, stream, not sink.full)
                        if sink.broken:  # the rank then gets SIGPIPE, as if it wrote to the closed pipe itself
                            self._close(stream)

    def _poll(self, fd: int, event: int, data: object, wanted: bool) -> None:
        if wanted != (fd in self._selector.get_map()):
            if wanted:
                self._selector.register(fd, event, data)
            else:
                self._selector.unregister(fd)

    def _streams(self) -> Iterable[Stream]:
        return [s for rank in self.ranks for s in (rank.stdout, rank.stderr) if not s.closed]

    def _poll_timeout(self) -> float | None:
        times = [s.show_at for s in self._streams() if s.show_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _handle_timers(self) -> None:
        now = time.monotonic()
        for stream in self._streams():
            if stream.show_at is not None and stream.show_at <= now:
                stream.show()
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            self._kill(f"after the grace period of {self._grace:g} s")

    def _terminate(self) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.sigterm_sent = True
                rank.signal_group(signal.SIGTERM)
        self._begin_grace()

    def _kill(self, reason: str) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.kill_reason = rank.kill_reason or reason
                rank.signal_group(signal.SIGKILL)

    def _read(self, stream: Stream) -> None:
        fd = stream.fd
        stream.read()
        if stream.closed:
            self._selector.unregister(fd)

    def _close(self, stream: Stream) -> None:
        if stream.fd in self._selector.get_map():
            self._selector.unregister(stream.fd)
        stream.close()

    def _reap(self, rank: Rank) -> None:
        self._selector.unregister(rank.pidfd)
        for stream in (rank.stdout, rank.stderr):
            if not stream.closed and stream.fd in self._selector.get_map():
                self._selector.unregister(stream.fd)
        rank.reap()

    def _record_failure(self, ended: list[Rank]) -> None:
        """Records the first failure and terminates the other ranks."""
        if not self._ending:
            for rank in ended:
                if rank.status == 0:
                    self.on_success(rank)
        failed = [rank for rank in ended if rank.status != 0]
        if not failed or self.first_failure is not None:
            return
        # If several ranks fail at once, a crash is more likely the cause than the consequence.
        self.first_failure = min(failed, key=lambda rank: (rank.status is not None and rank.status > 0, rank.number))
        if not self._ending:  # otherwise the ranks have already been signalled
            self._terminate()
            self.on_end()

    def _forward(self, number: signal.Signals) -> None:
        for rank in self.ranks:
            (rank.signal_process if number in MESSAGES else rank.signal_group)(number)
        if number in ENDING:
            first = not self._ending
            self.ended_by = self.ended_by or number
            self._begin_grace()
            if first:
                self.on_end()
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._kill("by the second SIGINT")

    def _begin_grace(self) -> None:
        self._ending = True
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
