"""Watches over running ranks: moves their output, forwards signals, and ends them all when one fails."""

import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType

from .output import Sink, Stream
from .rank import Rank

# Forwarded to a rank and all that it started, as the terminal would; the grace period begins.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Forwarded to the ranks' own processes: a worker process that does not know them would die of them.
MESSAGES = (signal.SIGUSR1, signal.SIGUSR2)


class Supervisor:
    """Starts ranks and waits for them, on one thread that sleeps in poll(). A context manager: leaving it ends all."""

    def __init__(self, grace: float) -> None:
        self.ranks: list[Rank] = []
        self.first_failure: Rank | None = None
        self.ended_by: signal.Signals | None = None
        # Called once, when the ranks begin to end because one failed or a signal came; set by whoever wants to know.
        self.on_end: Callable[[], None] = lambda: None
        # Called for each rank that ended with exit code 0, unless the job is ending.
        self.on_success: Callable[[Rank], None] = lambda rank: None
        self._grace = grace
        self._kill_at: float | None = None
        self._ending = False
        self._interrupts = 0
        self._out, self._err = Sink(1), Sink(2)
        if os.path.sameopenfile(1, 2):
            self._err = self._out  # one file: lines of stdout and stderr must not be mixed either
        self._selector = selectors.PollSelector()  # epoll refuses regular files
        self._held: set[Sink] = set()

    def __enter__(self) -> "Supervisor":
        """Takes over the signals that are forwarded. One that is ignored, as under nohup, stays ignored."""
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
        """Ends what still runs, and gives the signals back."""
        self.end()
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wakeup)
        self._selector.close()
        self._wake.close()
        self._wakeup.close()

    def start(self, number: int, command: Sequence[str], environment: Mapping[str, str], prefix: bool) -> int:
        """Starts one rank, its output perhaps with a prefix, and returns its process group; OSError if refused."""
        tag = f"[{number}] ".encode() if prefix else b""
        rank = Rank(number, command, environment, (self._out, self._err), tag, self._caught)
        self.ranks.append(rank)
        self._selector.register(rank.pidfd, selectors.EVENT_READ, rank)
        for stream in (rank.stdout, rank.stderr):
            self._selector.register(stream.fd, selectors.EVENT_READ, stream)
        return rank.pid

    def listen(self, file: socket.socket, call: Callable[[], None]) -> None:
        """Has `call` called whenever `file` is readable, until stop_listening()."""
        self._selector.register(file, selectors.EVENT_READ, call)

    def stop_listening(self, file: socket.socket) -> None:
        """Takes back listen()."""
        self._selector.unregister(file)

    def wait(self, waits_on: Callable[[], bool] = lambda: False) -> None:
        """Returns when every rank has ended and `waits_on` is false, or the ranks were ended."""
        while any(rank.status is None for rank in self.ranks) or (not self._ending and waits_on()):
            self._turn()

    def end_gently(self) -> None:
        """Has the ranks end because of something outside, as if one of them had failed."""
        if not self._ending:
            self._terminate()

    def end(self) -> None:
        """Kills the ranks that still run."""
        for rank in self.ranks:
            rank.signal_group(signal.SIGKILL)
        for rank in self.ranks:
            if rank.status is None:
                self._forget(rank)

    def flush(self, text: str) -> None:
        """Writes `text` after all output, and returns when everything is written or nobody will read it."""
        self._err.put(None, text.encode(errors="backslashreplace"))
        if self.ended_by is not None:
            self._kill_at = time.monotonic() + self._grace
        while self._out.pending or self._err.pending:
            self._turn()
            if self.ended_by is not None and self._kill_at is None:
                return  # told to end, and the reader does not read

    def _turn(self) -> None:
        """Waits until something happens, and deals with it."""
        self._choose()
        events = [(key.data, key.fileobj) for key, _ in self._selector.select(self._patience())]
        ended = [data for data, _ in events if isinstance(data, Rank)]
        for rank in ended:
            self._forget(rank)
        self._judge(ended)
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
        self._look_at_clock()

    def _choose(self) -> None:
        """Polls the sinks that have something to write, and not the streams whose sink is full."""
        for sink in {self._out, self._err}:
            self._poll(sink.fd, selectors.EVENT_WRITE, sink, bool(sink.pending))
            if sink.broken or sink.full != (sink in self._held):
                (self._held.add if sink.full else self._held.discard)(sink)
                for stream in self._streams():
                    if stream.sink is sink:
                        self._poll(stream.fd, selectors.EVENT_READ, stream, not sink.full)
                        if sink.broken:  # the rank shall notice, as if it wrote to the closed pipe itself
                            self._close(stream)

    def _poll(self, fd: int, event: int, data: object, wanted: bool) -> None:
        if wanted != (fd in self._selector.get_map()):
            if wanted:
                self._selector.register(fd, event, data)
            else:
                self._selector.unregister(fd)

    def _streams(self) -> Iterable[Stream]:
        return [s for rank in self.ranks for s in (rank.stdout, rank.stderr) if not s.closed]

    def _patience(self) -> float | None:
        times = [s.show_at for s in self._streams() if s.show_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _look_at_clock(self) -> None:
        now = time.monotonic()
        for stream in self._streams():
            if stream.show_at is not None and stream.show_at <= now:
                stream.show()
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            self._kill(f", because not ended within {self._grace:g} s")

    def _terminate(self) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.was_told = True
                rank.signal_group(signal.SIGTERM)
        self._begin_grace()

    def _kill(self, because: str) -> None:
        for rank in self.ranks:
            if rank.status is None:
                rank.killed_because = rank.killed_because or because
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

    def _forget(self, rank: Rank) -> None:
        self._selector.unregister(rank.pidfd)
        for stream in (rank.stdout, rank.stderr):
            if not stream.closed and stream.fd in self._selector.get_map():
                self._selector.unregister(stream.fd)
        rank.reap()

    def _judge(self, ended: list[Rank]) -> None:
        """Notes the first failure, and has the other ranks end because of it."""
        if not self._ending:
            for rank in ended:
                if rank.status == 0:
                    self.on_success(rank)
        failed = [rank for rank in ended if rank.status != 0]
        if not failed or self.first_failure is not None:
            return
        # Of several seen at once, a crash is rather the cause of the others' errors than a consequence of them.
        self.first_failure = min(failed, key=lambda rank: (rank.status is not None and rank.status > 0, rank.number))
        if not self._ending:  # otherwise they have their signal already
            self._terminate()
            self.on_end()

    def _forward(self, number: signal.Signals) -> None:
        for rank in self.ranks:
            (rank.signal_alone if number in MESSAGES else rank.signal_group)(number)
        if number in ENDING:
            first = not self._ending
            self.ended_by = self.ended_by or number
            self._begin_grace()
            if first:
                self.on_end()
        self._interrupts += number == signal.SIGINT
        if self._interrupts > 1:
            self._kill(" at the second SIGINT")

    def _begin_grace(self) -> None:
        self._ending = True
        if self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
