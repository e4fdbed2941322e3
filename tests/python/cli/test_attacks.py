"""Attacks on a job of several nodes: clients without its token, and a faulty node that has it."""

import contextlib
import json
import signal
import socket
import struct
import time

import pytest
from node_processes import ends, own_address

import hookline as hl
from hookline.cli import nodes as nodes_module

TOKEN = "0123456789abcdef" * 4
PREFIX = nodes_module.PREFIX
MAGIC = 0x3C85F7CE
VALIDATE, SET, COMPARE_SET, GET, DELETE, PING = 0, 1, 2, 3, 8, 13  # of PyTorch's protocol
# Prints "ready"; at SIGUSR1 prints "done" and exits.
PROGRAM = "trap 'echo done; exit 0' USR1; echo ready; while true; do sleep 1000 & wait; done"
HANDSHAKE = struct.pack("=BI", PING, 0xF0544F4B) + b"HOOKLINE\1" + bytes(32)  # lacks the proof of the token
END = {"node": 1, "text": "ended by an attacker", "code": 0}


def text(value: bytes) -> bytes:
    return struct.pack("=Q", len(value)) + value


def key(name: str) -> bytes:
    return text(f"/{PREFIX}/{name}".encode())


@pytest.fixture
def job(launcher, monkeypatch):
    """Starts the launchers of a job with a token, which this process also has."""
    launcher.environment["HOOKLINE_TOKEN"] = TOKEN
    monkeypatch.setenv("HOOKLINE_TOKEN", TOKEN)
    host = own_address()
    master = f"{host}:29500"

    def start(node, count=2, *arguments):
        options = ["--nnodes", str(count), "--node-rank", str(node), "--master-addr", master, *arguments]
        return launcher.start(*options, "-n", "1", "sh", "-c", PROGRAM)

    start.host, start.port = host, 29500
    return start


def running(launcher, job, count=2):
    """Starts a job and returns its launchers when all ranks run."""
    processes = [job(node, count) for node in range(count)]
    for process in processes:
        assert launcher.lines(process, 1) == [b"ready\n"]
    return processes


def raw_request(job, request: bytes) -> bytes:
    """Sends a request without a token, and then a get. Returns all bytes until the server closes the connection."""
    reply = b""
    with socket.create_connection((job.host, job.port), timeout=30) as client, contextlib.suppress(ConnectionError):
        client.sendall(struct.pack("=BI", VALIDATE, MAGIC) + request + bytes([GET]) + key("nodes"))
        while part := client.recv(4096):
            reply += part
    return reply


OUTSIDERS = {
    "end with exit code 0": bytes([SET]) + key("end") + text(json.dumps(END).encode()),
    "end by compare_set": bytes([COMPARE_SET]) + key("end") + text(b"") + text(json.dumps(END).encode()),
    "both nodes have ended": bytes([SET]) + key("ended/0") + text(b"1") + bytes([SET]) + key("ended/1") + text(b"1"),
    "end in garbage": bytes([SET]) + key("end") + text(b"\xff{"),
    "end nested deeply": bytes([SET]) + key("end") + text(b"[" * 200_000),
    "heartbeat that is not a number": bytes([SET]) + key("heartbeat/1") + text(b"x"),
    "heartbeat at its limit": bytes([SET]) + key("heartbeat/1") + text(str(2**63 - 1).encode()),
    "deleted heartbeat": bytes([DELETE]) + key("heartbeat/1"),
    "a handshake with a wrong proof": HANDSHAKE + bytes(32) + bytes([SET]) + key("end") + text(b"{}"),
}


@pytest.mark.parametrize("request_bytes", OUTSIDERS.values(), ids=OUTSIDERS.keys())
def test_a_client_without_the_token_changes_nothing(launcher, job, request_bytes):
    processes = running(launcher, job)
    assert text(b"2") not in raw_request(job, request_bytes)  # the number of nodes is not revealed
    for process in processes:
        process.send_signal(signal.SIGUSR1)
    for process in processes:
        code, out, err = ends(process)
        assert (code, out) == (0, "done\n"), err
        assert "Traceback" not in err


def insider(job) -> hl.Store:
    """Returns the store of the job, opened with the token and prefix of its launchers."""
    return hl.PrefixStore(PREFIX, hl.TCPStore(job.host, job.port, timeout=30))


def malformed(**changes: object) -> bytes:
    return json.dumps({"node": 1, "text": "over", "code": 3, "secret": "0" * 64, **changes}).encode()


ENDS = {
    "garbage": b"\xff{",
    "empty object": b"{}",
    "a list": b"[1, 2, 3]",
    "nested deeply": b"[" * 200_000,
    "nested in a field": b'{"node": 1, "code": 3, "text": ' + b'{"a":' * 200_000,
    "too large": malformed(text="x" * 1_000_000),
    "unknown field": malformed(more=1),
    "node as text": malformed(node="1"),
    "node as truth": malformed(node=True),
    "node below the range": malformed(node=-1),
    "node of many digits": malformed(node=77).replace(b"77", b"9" * 5000),
    "secret as number": malformed(secret=5),
    "text as number": malformed(text=5),
    "code 0": malformed(code=0),
    "code 256": malformed(code=256),
    "code negative": malformed(code=-1),
    "code infinite": malformed(code=77).replace(b"77", b"1e999"),
    "code not a number": malformed(code=77).replace(b"77", b"NaN"),
}


@pytest.mark.parametrize("value", ENDS.values(), ids=ENDS.keys())
def test_a_malformed_end_is_an_error_on_every_node(launcher, job, value):
    processes = running(launcher, job)
    insider(job).set("end", value)
    for process in processes:
        code, out, err = ends(process)
        assert (code, out) == (1, ""), err
        assert "malformed control message 'end'" in err
        assert "Traceback" not in err


@pytest.mark.parametrize("node", [1, 7])
def test_an_end_by_a_launcher_that_is_not_part_of_the_job_blames_no_node(launcher, job, node):
    processes = running(launcher, job)
    insider(job).set("end", malformed(node=node, text="it was\x1b[2J started\nwrongly"))
    for process in processes:
        code, _, err = ends(process)
        assert code == 3
        sender = f"a launcher with --node-rank {node} that is not part of this job"
        assert rf"hookline run: {sender}: it was\x1b[2J started\x0awrongly" in err


@pytest.mark.parametrize("value", [b"1", b"", b"\xff", b"[" * 200_000, b"0" * 64])
def test_a_node_cannot_be_reported_as_ended_by_others(launcher, job, value):
    processes = running(launcher, job)
    insider(job).set("ended/1", value)
    for process in processes:
        code, out, err = ends(process)
        assert (code, out) == (1, ""), err
        assert "'ended/1' was not written by node 1" in err
        assert "Traceback" not in err


def test_heartbeats_cannot_be_corrupted_by_others(launcher, job):
    processes = running(launcher, job)
    store = insider(job)
    for node in range(2):
        store.set(f"heartbeat/{node}", b"x" * 1000)
    # Each node overwrites the corrupt value with its next heartbeat.
    deadline = time.monotonic() + 30
    while any(store.get(f"heartbeat/{node}").startswith(b"x") for node in range(2)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for process in processes:
        process.send_signal(signal.SIGUSR1)
    for process in processes:
        assert ends(process) == (0, "done\n", "")


def hello(**changes: object) -> bytes:
    return json.dumps({"ranks": 1, "host": "h", "port": 0, "commitment": "0" * 64, **changes}).encode()


HELLOS = {
    "garbage": b"\xff{",
    "empty": b"",
    "a number": b"3",
    "nested deeply": b"[" * 200_000,
    "no field": b"{}",
    "ranks 0": hello(ranks=0),
    "ranks negative": hello(ranks=-5),
    "ranks as truth": hello(ranks=True),
    "ranks as text": hello(ranks="1"),
    "ranks beyond all bounds": hello(ranks=2**31),
    "host as number": hello(host=1),
    "host too long": hello(host="h" * 300),
    "port too large": hello(port=65536),
    "commitment too short": hello(commitment="00"),
}


@pytest.mark.parametrize("value", HELLOS.values(), ids=HELLOS.keys())
def test_a_node_with_a_malformed_hello_is_named(launcher, job, value):
    process = job(0)
    insider(job).set("node/1", value)
    code, out, err = ends(process)
    assert (code, out) == (1, ""), err
    assert "malformed control message 'node/1' of node 1" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("value", [b"many", b"-1", b"9" * 5000, b"\xff"])
def test_an_invalid_number_of_nodes(launcher, job, value):
    process = job(0, 3)
    store = insider(job)
    store.wait(["nodes"], 30)
    store.set("nodes", value)
    code, _, err = ends(job(1, 3))
    assert code == 1
    assert "malformed control message 'nodes'" in err
    assert "Traceback" not in err
    code, _, err = ends(process)
    assert code == 1
    assert "Traceback" not in err
