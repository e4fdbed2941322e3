"""Line buffering: lines of two streams in one sink, in an order that the test controls."""

import os

import pytest

from hookline.cli.output import MAX_LINE_BYTES, MAX_PENDING_BYTES, Sink, Stream


class Feed:
    """A stream together with the write end of its pipe."""

    def __init__(self, sink, prefix=b""):
        reader, self.writer = os.pipe()
        self.stream = Stream(reader, sink, prefix)

    def write(self, data):
        while data:
            data = data[os.write(self.writer, data[: 1 << 16]) :]
            self.stream.read()

    def close(self):
        os.close(self.writer)
        self.stream.read()
        assert self.stream.closed


@pytest.fixture
def sink(tmp_path):
    fd = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
    yield Sink(fd)
    os.close(fd)


def test_a_long_line_is_held_back_until_it_is_complete(sink):
    one, two = Feed(sink), Feed(sink)
    one.write(b"1" * 3_000_000)
    two.write(b"2\n")
    one.write(b"1" * 3_000_000 + b"\n")
    assert sink.pending == b"2\n" + b"1" * 6_000_000 + b"\n"
    one.close()
    two.close()


def test_a_line_beyond_the_bound_is_passed_on_in_pieces(sink):
    one, two = Feed(sink, b"[1] "), Feed(sink, b"[2] ")
    one.write(b"1" * MAX_LINE_BYTES)
    two.write(b"2\n")
    one.write(b"1\n")
    assert sink.pending == b"[1] " + b"1" * MAX_LINE_BYTES + b"\n[2] 2\n[1] 1\n"
    one.close()
    two.close()


def test_a_piece_continues_its_line_without_output_in_between(sink):
    one = Feed(sink, b"[1] ")
    one.write(b"1" * MAX_LINE_BYTES)
    one.write(b"1\n")
    assert sink.pending == b"[1] " + b"1" * (MAX_LINE_BYTES + 1) + b"\n"
    one.close()


def test_a_sink_is_full_until_it_is_written(sink):
    one = Feed(sink)
    one.write(b"x\n" * MAX_PENDING_BYTES)
    assert sink.full
    while sink.pending:
        sink.write()
    assert not sink.full
    assert os.fstat(sink.fd).st_size == 2 * MAX_PENDING_BYTES
    one.close()
