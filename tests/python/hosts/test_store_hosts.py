"""TCP stores between hosts, and peers whose host disappears silently."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from network_hosts import PORT, Hosts, outputs

PROGRAMS = Path(__file__).parent / "programs"


def start(hosts: Hosts, host: int, *arguments: str) -> Any:
    process = hosts.start(
        host, [sys.executable, str(PROGRAMS / "store_peer.py"), hosts.address(0), str(PORT), *arguments]
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_the_connection_of_a_host_that_is_gone_is_closed_and_counts_no_more() -> None:
    with Hosts(2) as hosts:
        start(hosts, 0, "serve")
        start(hosts, 1, "idle")
        hosts.cut(1)
        newcomer = start(hosts, 0, "connect")
        assert outputs([newcomer]) == ["served\n"]


def test_a_wait_ends_when_the_host_of_the_server_is_gone() -> None:
    with Hosts(2) as hosts:
        start(hosts, 0, "serve")
        waiting = start(hosts, 1, "wait")
        hosts.cut(0)
        assert outputs([waiting]) == ["PeerLost\n"]
