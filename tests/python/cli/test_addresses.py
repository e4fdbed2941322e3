"""The address on which node 0 listens: name resolution, and names that resolve to loopback."""

import signal
import socket
from pathlib import Path

import pytest
from node_processes import ends

from hookline.cli import addresses


def listening(port: int) -> set[str]:
    """Returns the local addresses of all sockets that listen on a port, as the kernel writes them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            local, _, state = line.split()[1:4]
            address, _, number = local.partition(":")
            if state == "0A" and int(number, 16) == port:
                found.add(address)
    return found


def test_node_0_listens_only_on_the_given_name(launcher):
    launcher.environment["HOOKLINE_TOKEN"] = "0123456789abcdef" * 4
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [
        "--nnodes",
        "2",
        "--master-addr",
        f"localhost:{port}",
        "-n",
        "1",
        "sh",
        "-c",
        "echo ready; exec sleep 1000",
    ]
    processes = [launcher.start("--node-rank", str(node), *arguments) for node in range(2)]
    for process in processes:
        assert launcher.lines(process, 1) == [b"ready\n"]
    loopback = {"0100007F", "00000000000000000000000001000000"}
    found = listening(port)
    processes[0].send_signal(signal.SIGTERM)
    for process in processes:
        ends(process)
    assert found
    assert found <= loopback


@pytest.fixture
def resolver(monkeypatch):
    """Replaces name resolution and the addresses of this host."""

    def use(names: dict[str, list[str]], own: dict[str, str]) -> None:
        def lookup(host: str, *_: object, **__: object) -> list[tuple[object, ...]]:
            return [(0, 0, 0, "", (address, 0)) for address in names[host]]

        monkeypatch.setattr(socket, "getaddrinfo", lookup)
        monkeypatch.setattr(addresses, "host_addresses", lambda: own)

    return use


def test_listen_address_by_host_name(resolver):
    names = {
        "node0": ["10.0.0.5"],
        "debian": ["127.0.1.1"],
        "both": ["127.0.0.1", "fd00::5"],
        "localhost": ["127.0.0.1", "::1"],
        "127.0.0.1": ["127.0.0.1"],
        "127.3.2.1": ["127.3.2.1"],
        "10.0.0.5": ["10.0.0.5"],
        "fe80::1%eth0": ["fe80::1%eth0"],
        "::1": ["::1"],
    }
    resolver(names, {"eth0": "10.0.0.5"})
    for host in names:
        assert addresses.listen_address(host) == ("10.0.0.5" if host == "debian" else host)


def test_a_name_for_loopback_on_a_host_with_several_addresses(resolver):
    resolver({"debian": ["127.0.1.1"]}, {"eth0": "10.0.0.5", "ib0": "10.1.0.5"})
    with pytest.raises(addresses.AddressError) as raised:
        addresses.listen_address("debian")
    assert str(raised.value) == (
        "on this host 'debian' resolves to the loopback address 127.0.1.1, which other nodes cannot reach. "
        "Pass the same reachable address on every node, one of 10.0.0.5 (eth0), 10.1.0.5 (ib0)."
    )


def test_own_addresses_are_of_this_host():
    for address in addresses.host_addresses().values():
        assert not address.startswith("127.")
        with socket.socket() as probe:
            probe.bind((address, 0))
