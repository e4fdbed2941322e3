"""Passes the ranks' output on, so that a line of one rank is never mixed with a line of another."""

import fcntl
import os
import select
import stat
import struct
import termios
import time

# A line is held back until it is complete, but not past this many bytes: memory is finite, and lines may never end.
LONGEST_LINE = 8 << 20
# With so much waiting for a slow reader, the ranks have to wait too.
MOST_PENDING = 1 << 20
# What is kept of a rank's stderr for the report of its failure.
TAIL_BYTES, TAIL_LINES = 8192, 20
# After so many seconds a terminal shows an unfinished line: it may be a question or a progress bar.
PATIENCE = 0.1


class Sink:
    """One of the launcher's own outputs. It is written to only when it is ready, so it never blocks the launcher."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.terminal = os.isatty(fd)
        self.pending = bytearray()
        self.broken = False
        self._unfinished: Stream | None = None
        # A pipe that is ready takes PIPE_BUF bytes without blocking, and promises no more than that.
        self._most = 1 << 16 if stat.S_ISREG(os.fstat(fd).st_mode) else select.PIPE_BUF

    @property
    def full(self) -> bool:
        """Whether the ranks should wait until somebody has read what is here."""
        return len(self.pending) > MOST_PENDING

    def put(self, stream: "Stream | None", data: bytes, prefix: bytes = b"") -> None:
        """Queues output of a stream (None: of the launcher), with the prefix before each line that begins in it."""
        if self.broken or not data:
            return
        if self._unfinished is not stream or stream is None:
            self.finish_line()
            self.pending += prefix
        if prefix:
            data = data[:-1].replace(b"\n", b"\n" + prefix) + data[-1:]
        self.pending += data
        self._unfinished = None if data.endswith(b"\n") else stream

    def finish_line(self) -> None:
        """Ends a line that its writer left unfinished, before somebody else's output follows."""
        if self._unfinished is not None:
            self.pending += b"\n"
            self._unfinished = None

    def write(self) -> None:
        """Writes some of what is queued. A reader that has gone away makes the sink broken."""
        try:
            written = os.write(self.fd, self.pending[: self._most])
        except BlockingIOError:  # somebody who shares the file made it non-blocking
            return
        except OSError:
            self.broken = True
            self.pending.clear()
            return
        del self.pending[:written]


class Stream:
    """The reading end of a rank's stdout or stderr; owns its file descriptor."""

    def __init__(self, fd: int, sink: Sink, prefix: bytes, keep_tail: bool = False) -> None:
        self.fd = fd
        self.sink = sink
        self.closed = False
        self.show_at: float | None = None
        self._prefix = prefix
        self._keep_tail = keep_tail
        self._partial = bytearray()
        self._tail = b""
        os.set_blocking(fd, False)

    def read(self) -> int:
        """Takes what has come and says how many bytes that was. The end of the stream closes it."""
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return 0
        if data:
            self._take(data)
        else:
            self.close()
        return len(data)

    def drain(self) -> None:
        """Takes what is in the pipe now and closes it. The rank has ended; a process that it left may go on writing."""
        if self.closed:
            return
        (left,) = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)))
        while left > 0 and (got := self.read()):
            left -= got
        self.close()

    def show(self) -> None:
        """Passes on an unfinished line."""
        self.show_at = None
        if self._partial:
            self.sink.put(self, bytes(self._partial), self._prefix)
            self._partial.clear()

    def close(self) -> None:
        """Passes on the rest and gives the pipe back."""
        if not self.closed:
            self.show()
            self.closed = True
            os.close(self.fd)

    def last_lines(self) -> list[str]:
        """The end of what was written, as text."""
        return self._tail.decode(errors="backslashreplace").splitlines()[-TAIL_LINES:]

    def _take(self, data: bytes) -> None:
        if self._keep_tail:
            self._tail = (self._tail + data)[-TAIL_BYTES:]
        end = data.rfind(b"\n") + 1
        if end:
            self.sink.put(self, bytes(self._partial) + data[:end], self._prefix)
            self._partial.clear()
            self.show_at = None
        self._partial += data[end:]
        if len(self._partial) >= LONGEST_LINE:
            self.show()
        elif self._partial and self.sink.terminal and self.show_at is None:
            self.show_at = time.monotonic() + PATIENCE


def open_missing_files() -> None:
    """Opens /dev/null for each of stdin, stdout and stderr that is closed, before another file takes its number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
