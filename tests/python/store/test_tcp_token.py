"""Authentication of TCP stores by token: accepted and rejected clients, and the errors of both sides."""

import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch.distributed as dist

import hookline as hl

TOKEN = "5dd0c1f1 secret of the job"
VALIDATE = struct.pack("<BI", 0, 0x3C85F7CE)
TOKEN_PING = struct.pack("<BI", 13, 0xF0544F4B)
SET = struct.pack("<BQ9sQ1s", 1, 9, b"/intruder", 1, b"v")


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch) -> str:
    """Sets HOOKLINE_TOKEN as for a process of the job."""
    monkeypatch.setenv("HOOKLINE_TOKEN", TOKEN)
    return TOKEN


@pytest.fixture
def server(token: str) -> hl.TCPStore:
    return hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=20)


def is_closed(connection: socket.socket) -> bool:
    """Reads until the server closes the connection."""
    connection.settimeout(20)
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_processes_with_the_token_of_the_environment_are_served(server: hl.TCPStore) -> None:
    program = f"import hookline as hl; hl.TCPStore('127.0.0.1', {server.port}, timeout=20).set('k', 'v')"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert server.get("k") == b"v"


def test_raw_requests_without_the_token_change_nothing(server: hl.TCPStore) -> None:
    half = VALIDATE + TOKEN_PING + b"HOOKLINE\1"
    for attack in (VALIDATE + SET, SET, half + SET + bytes(100), b"GET / HTTP/1.1\r\n\r\n", bytes(100)):
        with socket.create_connection(("127.0.0.1", server.port)) as attacker:
            attacker.sendall(attack)
            assert is_closed(attacker)
    assert not server.check(["intruder"])


def test_a_client_without_the_token_gets_an_error(server: hl.TCPStore, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(hl.ResourceError, match=rf"127.0.0.1:{server.port}\): the server requires a token.*TOKEN"):
        hl.TCPStore("127.0.0.1", server.port, timeout=20, token="")
    server.ping()
    log = capfd.readouterr().err
    assert "rejected a connection from 127.0.0.1" in log
    assert "HOOKLINE_TOKEN" in log
    assert "secret" not in log


def test_a_client_with_another_token_gets_an_error(server: hl.TCPStore, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(hl.ResourceError, match=r"differs.*same HOOKLINE_TOKEN") as caught:
        hl.TCPStore("127.0.0.1", server.port, timeout=20, token="guess of the attacker")
    server.ping()
    log = capfd.readouterr().err
    assert "its token differs" in log
    assert "guess" not in log + str(caught.value) + repr(server)


def test_a_client_of_pytorch_without_the_token_fails(server: hl.TCPStore) -> None:
    with pytest.raises(RuntimeError):
        dist.TCPStore("127.0.0.1", server.port, None, False, timedelta(seconds=2))
    server.ping()


@pytest.mark.parametrize("use_libuv", [True, False])
def test_a_token_for_a_server_of_pytorch_is_an_error_and_an_empty_one_joins(token: str, use_libuv: bool) -> None:
    theirs = dist.TCPStore("127.0.0.1", 0, None, True, use_libuv=use_libuv)
    with pytest.raises(hl.ResourceError, match=r"PyTorch.*unset HOOKLINE_TOKEN"):
        hl.TCPStore("127.0.0.1", theirs.port, timeout=20)
    ours = hl.TCPStore("127.0.0.1", theirs.port, timeout=20, token="")
    ours.set("k", "v")
    assert theirs.get("k") == b"v"


def test_a_token_for_a_server_without_one_is_an_error() -> None:
    plain = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=20)
    with pytest.raises(hl.ResourceError, match=r"the server has none.*HOOKLINE_TOKEN"):
        hl.TCPStore("127.0.0.1", plain.port, timeout=20, token=TOKEN)


Serve = Callable[..., hl.TCPStore]


@pytest.fixture
def serve() -> Serve:
    def make(**options: object) -> hl.TCPStore:
        everywhere = {"is_master": True, "timeout": 20, "wait_for_workers": False, "listen_on_all_interfaces": True}
        return hl.TCPStore("127.0.0.1", 0, **{**everywhere, **options})  # type: ignore[arg-type]

    return make


def test_a_server_that_other_hosts_reach_needs_a_token(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        hl.InvalidArgument, match=r"other hosts can reach.*HOOKLINE_TOKEN.*HOOKLINE_ALLOW_UNAUTHENTICATED"
    ):
        serve()
    serve(allow_unauthenticated=True).ping()
    serve(token=TOKEN).ping()
    monkeypatch.setenv("HOOKLINE_ALLOW_UNAUTHENTICATED", "1")
    serve().ping()
    monkeypatch.delenv("HOOKLINE_ALLOW_UNAUTHENTICATED")
    monkeypatch.setenv("HOOKLINE_TOKEN", TOKEN)
    serve().ping()
