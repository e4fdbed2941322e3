"""Limits on the descriptors, memory and CPU time that clients can use in a TCP store server."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import hookline as hl

TOKEN = "a secret of this job"
VALIDATE = struct.pack("<BI", 0, 0x3C85F7CE)

# Serves with few descriptors. For each input line, opens ten files and prints the used CPU time.
SERVER = """\
import json, resource, sys, time
limit, options = json.loads(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
import hookline as hl
store = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=30, **options)
print(store.port, flush=True)
for line in sys.stdin:
    for file in [open("/dev/null") for _ in range(10)]:
        file.close()
    print(time.process_time(), flush=True)
"""


class Server:
    def __init__(self, limit: int, options: str) -> None:
        command = [sys.executable, "-c", SERVER, f"[{limit}, {options}]"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.port = int(self.process.stdout.readline())

    def cpu_seconds(self) -> float:
        """Makes the server process open ten files and returns its CPU time."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


Serve = Callable[..., Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:

        def start(limit: int, options: str) -> Server:
            server = Server(limit, options)
            stack.enter_context(server.process)
            stack.callback(server.process.kill)
            return server

        yield start


@contextlib.contextmanager
def idle_connections(port: int, count: int, opening: bytes = b"") -> Iterator[list[socket.socket]]:
    """Opens connections that send only `opening`; some may still be in the kernel's backlog."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
            made.append(connection)
        for connection in made:
            with contextlib.suppress(OSError):
                connection.send(opening)
        yield made


@pytest.mark.parametrize("opening", [b"", VALIDATE], ids=["silent", "plain"])
def test_1100_idle_connections_leave_the_server_its_descriptors(serve: Serve, opening: bytes) -> None:
    server = serve(256, f'{{"token": "{TOKEN}"}}')
    store = hl.TCPStore("127.0.0.1", server.port, timeout=30, token=TOKEN)
    with idle_connections(server.port, 1100, opening):
        server.cpu_seconds()  # opens files
        hl.TCPStore("127.0.0.1", server.port, timeout=30, token=TOKEN).set("k", "v")
        assert store.get("k") == b"v"


def test_connections_that_opened_the_plain_protocol_are_limited_too(serve: Serve) -> None:
    server = serve(256, "{}")
    store = hl.TCPStore("127.0.0.1", server.port, timeout=30)
    with idle_connections(server.port, 1100, VALIDATE):
        server.cpu_seconds()
        with pytest.raises(hl.ResourceError, match="max_connections"):
            [hl.TCPStore("127.0.0.1", server.port, timeout=30) for _ in range(256)]
        store.ping()
        server.cpu_seconds()


def test_a_server_without_descriptors_neither_spins_nor_ends(serve: Serve) -> None:
    server = serve(64, '{"max_connections": 10000, "max_pending_connections": 10000, "handshake_timeout": 300}')
    store = hl.TCPStore("127.0.0.1", server.port, timeout=30)
    with idle_connections(server.port, 200) as connections:
        # No descriptors are left and connections are pending: the server still replies, and uses little CPU time.
        used = process_cpu_seconds(server.process.pid)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            store.ping()
            time.sleep(0.05)
        assert process_cpu_seconds(server.process.pid) - used < 1
        for connection in connections:
            connection.close()
        hl.TCPStore("127.0.0.1", server.port, timeout=30).ping()
        server.cpu_seconds()


def process_cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def store_keys(store: hl.TCPStore, count: int) -> None:
    for first in range(0, count, 100_000):
        keys = [str(number) for number in range(first, first + 100_000)]
        store.multi_set(keys, [b""] * len(keys))
    store.ping()


def store_mib(store: hl.TCPStore, count: int) -> None:
    for first in range(0, count, 8):
        store.set(str(first), bytes(8 << 20))
    store.ping()


def test_a_million_keys_and_480_mib_are_refused_by_default() -> None:
    server = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=60)
    writer = hl.TCPStore("127.0.0.1", server.port, timeout=60)
    with pytest.raises(hl.PeerLost, match="exceeded a limit"):
        store_keys(writer, 1_000_000)
    assert server.num_keys() <= 512 * 1024
    writer = hl.TCPStore("127.0.0.1", server.port, timeout=60)
    with pytest.raises(hl.PeerLost, match="exceeded a limit"):
        store_mib(writer, 480)
    assert server.check(["0"])


def test_limits_are_keywords() -> None:
    server = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=20, max_keys=2, max_value_bytes=10, max_bytes=4096)
    server.set("a", "1")
    for key, value in (("b", "more than 10 bytes"), ("c", "")):
        offender = hl.TCPStore("127.0.0.1", server.port, timeout=20)
        offender.set("b", "")
        offender.set(key, value)
        with pytest.raises(hl.PeerLost, match="exceeded a limit"):
            offender.ping()
    with pytest.raises(hl.InvalidArgument, match="keepalive"):
        hl.TCPStore("127.0.0.1", 0, is_master=True, keepalive=0)
