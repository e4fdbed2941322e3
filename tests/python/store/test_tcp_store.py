"""PyTorch's arguments of TCPStore: tenants, bound sockets, torchrun's agent store."""

import os
import socket
from datetime import timedelta
from pathlib import Path

import pytest

import hookline as hl


def test_tcp_store_takes_the_arguments_of_torch_by_position() -> None:
    server = hl.TCPStore("127.0.0.1", 0, 1, True, timedelta(seconds=20), True, False, None, False)
    assert not server.libuvBackend
    client = hl.TCPStore(server.host, server.port, None, False, 20, wait_for_workers=False)
    assert client.libuvBackend
    client.set("k", "v")
    assert server.get("k") == b"v"


def test_tenants_of_one_process_share_a_server() -> None:
    first = hl.TCPStore("127.0.0.1", 0, 1, True, multi_tenant=True)
    second = hl.TCPStore("127.0.0.1", first.port, 1, True, multi_tenant=True)
    first.set("k", "v")
    assert second.get("k") == b"v"
    port = first.port
    del first
    assert second.get("k") == b"v"
    refused = rf"^The server socket has failed to listen on any local network address.*{port}.*Address already in use"
    with pytest.raises(hl.ResourceError, match=refused):
        hl.TCPStore("127.0.0.1", port, 1, True)
    del second
    third = hl.TCPStore("127.0.0.1", port, 1, True, multi_tenant=True)
    assert not third.check(["k"])


def test_the_master_takes_over_a_socket() -> None:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    descriptor = bound.detach()
    store = hl.TCPStore("127.0.0.1", port, 1, True, master_listen_fd=descriptor)
    assert store.port == port
    hl.TCPStore("127.0.0.1", port).set("k", "v")
    assert store.get("k") == b"v"
    del store
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_sockets_that_a_master_cannot_take_over(tmp_path: Path) -> None:
    def take(descriptor: int, port: int = 0) -> hl.Store:
        return hl.TCPStore("127.0.0.1", port, None, True, master_listen_fd=descriptor)

    with socket.create_server(("127.0.0.1", 0)) as listening, open(tmp_path / "file", "w") as file:
        port = listening.getsockname()[1]
        other = port - 1 if port > 2000 else port + 1
        with pytest.raises(ValueError, match=rf"bound to port {port}.*expected.*port {other}"):
            take(listening.fileno(), other)
        with pytest.raises(ValueError, match="not a TCP socket"):
            take(file.fileno())
        with pytest.raises(ValueError, match="-1"):
            take(-1)
        with socket.socket() as unbound, pytest.raises(ValueError, match="not bound"):
            take(unbound.fileno())
        with socket.create_connection(("127.0.0.1", port)) as connected, pytest.raises(ValueError, match="connected"):
            take(connected.fileno())
        os.fstat(listening.fileno())  # the store leaves a rejected socket open


def test_the_master_under_torchrun_is_a_client_of_the_agents_store(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = hl.TCPStore("127.0.0.1", 0, None, True)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("MASTER_PORT", str(agent.port))
    master = hl.TCPStore("127.0.0.1", agent.port, 1, True)
    master.set("k", "v")
    assert agent.get("k") == b"v"
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(hl.ResourceError, match="Address already in use"):
        hl.TCPStore("127.0.0.1", agent.port, 1, True)


def test_missing_clients_are_counted() -> None:
    expected = r"Timed out after 1 seconds waiting for clients\. 1/3 clients joined\."
    with pytest.raises(hl.Timeout, match=expected):
        hl.TCPStore("127.0.0.1", 0, 3, True, 0.05)
    expected = r"The client socket has timed out after 50ms while trying to connect to \(127.0.0.1, 1\)\."
    with pytest.raises(hl.Timeout, match=expected):
        hl.TCPStore("127.0.0.1", 1, timeout=0.05)


def test_a_socket_that_other_hosts_reach_needs_a_token() -> None:
    with socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        with pytest.raises(hl.InvalidArgument, match="requires a token"):
            hl.TCPStore("127.0.0.1", 0, None, True, master_listen_fd=everywhere.fileno())
        os.fstat(everywhere.fileno())  # the store leaves a rejected socket open
