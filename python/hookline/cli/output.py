"""Forwards the output of the ranks line by line, so that lines of different ranks never mix."""

import fcntl
import os
import select
import stat
import struct
import termios
import time

# A line is buffered until it is complete, up to this many bytes.
MAX_LINE_BYTES = 8 << 20
# Backpressure: above this many bytes of pending output, the ranks' pipes are not read.
MAX_PENDING_BYTES = 1 << 20
# The end of a rank's stderr that the failure report shows.
TAIL_BYTES, TAIL_LINES = 8192, 20
# Seconds after which a terminal shows an unfinished line, which may be a prompt or a progress bar.
PARTIAL_LINE_DELAY = 0.1


class Sink:
    """The launcher's stdout or stderr. Written to only when ready, so that it never blocks the launcher."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.terminal = os.isatty(fd)
        self.pending = bytearray()
        self.broken = False
        self._unfinished: Stream | None = None
        # POSIX: a writable pipe takes PIPE_BUF bytes without blocking, but not necessarily more.
        self._max_write = 1 << 16 if stat.S_ISREG(os.fstat(fd).st_mode) else select.PIPE_BUF

    @property
    def full(self) -> bool:
        """True if the ranks must wait until pending output has been written."""
        return len(self.pending) > MAX_PENDING_BYTES

    def put(self, stream: "Stream | None", data: bytes, prefix: bytes = b"") -> None:
        """Queues output of a stream (None: of the launcher), with the prefix before each line that starts in it."""
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
        """Terminates an unfinished line before output of another stream follows."""
        if self._unfinished is not None:
            self.pending += b"\n"
            self._unfinished = None

    def write(self) -> None:
        """Writes a part of the pending output. If the reader has closed the pipe, marks the sink as broken."""
        try:
            written = os.write(self.fd, self.pending[: self._max_write])
        except BlockingIOError:  # another process that shares the file made it non-blocking
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
        """Reads available output and returns the number of bytes. Closes the stream at its end."""
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
        """Reads what the pipe contains now and closes it. The rank has exited, but its children may go on writing."""
        if self.closed:
            return
        (left,) = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, bytes(4)))
        while left > 0 and (got := self.read()):
            left -= got
        self.close()

    def show(self) -> None:
        """Forwards an unfinished line."""
        self.show_at = None
        if self._partial:
            self.sink.put(self, bytes(self._partial), self._prefix)
            self._partial.clear()

    def close(self) -> None:
        """Forwards the rest and closes the pipe."""
        if not self.closed:
            self.show()
            self.closed = True
            os.close(self.fd)

    def last_lines(self) -> list[str]:
        """Returns the last lines of the output as text."""
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
        if len(self._partial) >= MAX_LINE_BYTES:
            self.show()
        elif self._partial and self.sink.terminal and self.show_at is None:
            self.show_at = time.monotonic() + PARTIAL_LINE_DELAY


def open_missing_files() -> None:
    """Opens /dev/null for each closed standard stream, so that no other file gets its descriptor."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
