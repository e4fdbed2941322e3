"""Attacks on a job of several nodes: a faulty node, or a client that writes what only launchers may."""

import json
import signal
import time

import pytest
from node_processes import ends, own_address

import hookline as hl
from hookline.cli import nodes as nodes_module

TOKEN = "0123456789abcdef" * 4
PREFIX = nodes_module.PREFIX
# Ready, then done at SIGUSR1.
PROGRAM = "trap 'echo done; exit 0' USR1; echo ready; while true; do sleep 1000 & wait; done"


@pytest.fixture
def job(launcher, monkeypatch):
    """Starts the launchers of a job with a token, which this process has, too."""
    launcher.environment["HOOKLINE_TOKEN"] = TOKEN
    monkeypatch.setenv("HOOKLINE_TOKEN", TOKEN)
    host = own_address()
    master = f"{host}:29500"

    def start(node, count=2, *arguments):
        place = ["--nnodes", str(count), "--node-rank", str(node), "--master", master, *arguments]
        return launcher.start(*place, "-n", "1", "sh", "-c", PROGRAM)

    start.host, start.port = host, 29500
    return start


def running(launcher, job, count=2):
    """A job whose ranks are all running."""
    processes = [job(node, count) for node in range(count)]
    for process in processes:
        assert launcher.lines(process, 1) == [b"ready\n"]
    return processes


def insider(job) -> hl.Store:
    """The store of the job, as a launcher with the token sees it."""
    return hl.PrefixStore(PREFIX, hl.TCPStore(job.host, job.port, timeout=30))


def malformed(**changes: object) -> bytes:
    return json.dumps({"node": 1, "text": "over", "code": 3, **changes}).encode()


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
    "node of many digits": b'{"node": ' + b"9" * 5000 + b', "text": "over", "code": 3}',
    "text as number": malformed(text=5),
    "code 0": malformed(code=0),
    "code 256": malformed(code=256),
    "code negative": malformed(code=-1),
    "code infinite": b'{"node": 1, "text": "over", "code": 1e999}',
    "code not a number": b'{"node": 1, "text": "over", "code": NaN}',
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


def test_an_end_of_a_node_that_the_job_does_not_have(launcher, job):
    processes = running(launcher, job)
    insider(job).set("end", malformed(node=7, text="it was\x1b[2J started\nwrongly"))
    for process in processes:
        code, _, err = ends(process)
        assert code == 3
        assert r"a launcher with --node-rank 7: it was\x1b[2J started\x0awrongly" in err


@pytest.mark.parametrize("value", [b"1", b"", b"\xff", b"[" * 200_000, b"0" * 64])
def test_a_node_cannot_be_reported_as_ended_by_others(launcher, job, value):
    processes = running(launcher, job)
    insider(job).set("ended/1", value)
    for process in processes:
        code, out, err = ends(process)
        assert (code, out) == (1, ""), err
        assert "'ended/1' was not written by node 1" in err
        assert "Traceback" not in err


def test_signs_of_life_cannot_be_spoiled_by_others(launcher, job):
    processes = running(launcher, job)
    store = insider(job)
    for node in range(2):
        store.set(f"beat/{node}", b"x" * 1000)
    # Each node has replaced it by a beat of its own.
    deadline = time.monotonic() + 30
    while any(store.get(f"beat/{node}").startswith(b"x") for node in range(2)):
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
def test_a_node_that_introduces_itself_wrongly_is_named(launcher, job, value):
    process = job(0)
    insider(job).set("node/1", value)
    code, out, err = ends(process)
    assert (code, out) == (1, ""), err
    assert "malformed control message 'node/1' of node 1" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("value", [b"many", b"-1", b"9" * 5000, b"\xff"])
def test_a_number_of_nodes_that_is_none(launcher, job, value):
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
