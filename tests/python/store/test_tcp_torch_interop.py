"""Interoperability of PyTorch's and hookline's TCPStore, each as the server and as the client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import torch.distributed as dist

import hookline as hl

SHORT = timedelta(milliseconds=40)
LONG = timedelta(seconds=20)
TIMED_OUT = (TimeoutError, dist.DistStoreError)
NO_ELEMENT = (ValueError, dist.QueueEmptyError)


@dataclass
class Pair:
    """A client of each library on one server, and a thread on which one of them can wait."""

    ours: Any
    torch: Any
    port: int
    thread: ThreadPoolExecutor

    def orders(self) -> list[tuple[Any, Any]]:
        return [(self.ours, self.torch), (self.torch, self.ours)]


def our_client(port: int) -> hl.TCPStore:
    return hl.TCPStore("127.0.0.1", port, timeout=LONG)


def torch_client(port: int) -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", port, None, False, LONG)


@pytest.fixture(params=["our server", "torch server"])
def make_pair(request: pytest.FixtureRequest) -> Iterator[Callable[..., Pair]]:
    store = hl.TCPStore if request.param == "our server" else dist.TCPStore
    server: Any = store("127.0.0.1", 0, None, True, LONG)

    def make(prefix: str | None = None) -> Pair:
        ours: hl.Store = our_client(server.port)
        theirs: dist.Store = torch_client(server.port)
        if prefix:
            ours, theirs = hl.PrefixStore(prefix, ours), dist.PrefixStore(prefix, theirs)
        return Pair(ours, theirs, server.port, thread)

    with ThreadPoolExecutor(1) as thread:
        yield make


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair()


def test_values(pair: Pair) -> None:
    for n, (a, b) in enumerate(pair.orders()):
        a.set(f"k{n}", "v")
        assert b.get(f"k{n}") == b"v"
        a.set(f"bytes{n}", "\x00é")
        assert b.get(f"bytes{n}") == "\x00é".encode()
        a.set(f"empty{n}", "")
        assert b.get(f"empty{n}") == b""
        a.append(f"text{n}", "one")
        a.append(f"text{n}", "two")
        assert b.get(f"text{n}") == b"onetwo"


def test_counters(pair: Pair) -> None:
    assert pair.ours.add("n", 5) == 5
    assert pair.torch.add("n", 2) == 7
    assert pair.ours.add("n", -10) == -3
    assert pair.torch.get("n") == b"-3"


def test_compare_set(pair: Pair) -> None:
    for n, (a, b) in enumerate(pair.orders()):
        key = f"k{n}"
        assert a.compare_set(key, "expected", "new") == b"expected"
        assert not b.check([key])
        assert a.compare_set(key, "", "first") == b"first"
        assert b.compare_set(key, "other", "second") == b"first"
        assert b.compare_set(key, "first", "second") == b"second"
        assert a.get(key) == b"second"


def test_keys(pair: Pair) -> None:
    for a, b in pair.orders():
        a.set("one", "1")
        a.set("two", "2")
        b.wait(["one", "two"])
        assert sorted(b.list_keys()) == ["one", "two"]
        assert b.num_keys() == 2
        assert b.check(["one", "two"])
        assert not b.check(["one", "three"])
        assert b.delete_key("one")
        assert not a.delete_key("one")
        assert a.delete_key("two")
        assert a.list_keys() == []


def test_many(pair: Pair) -> None:
    for n, (a, b) in enumerate(pair.orders()):
        keys = [f"{n}/{i}" for i in range(300)]
        a.multi_set(keys, [str(i) for i in range(300)])
        assert b.multi_get(keys) == [str(i).encode() for i in range(300)]


def test_queues(pair: Pair) -> None:
    for n, (a, b) in enumerate(pair.orders()):
        queue = f"q{n}"
        assert b.queue_len(queue) == 0
        with pytest.raises(NO_ELEMENT):
            b.queue_pop(queue, False)
        a.queue_push(queue, "1")
        a.queue_push(queue, "2")
        b.wait([queue])
        assert a.queue_len(queue) == 2
        assert b.queue_len(queue) == 2
        assert b.queue_pop(queue) == b"1"
        assert a.queue_pop(queue, False) == b"2"
        assert b.list_keys() == []


def test_hookline_waits_for_torch(pair: Pair) -> None:
    ours, theirs, start = pair.ours, pair.torch, pair.thread.submit
    got = start(ours.get, "a")
    theirs.set("a", "value")
    assert got.result(20) == b"value"
    waited = start(ours.wait, ["a", "b", "c"])
    theirs.add("b", 1)
    theirs.append("c", "text")
    waited.result(20)
    popped = start(ours.queue_pop, "q", True)
    theirs.queue_push("q", "element")
    assert popped.result(20) == b"element"
    several = start(ours.multi_get, ["a", "d"])
    theirs.multi_set(["d"], ["4"])
    assert several.result(20) == [b"value", b"4"]


def test_torch_waits_for_hookline(pair: Pair) -> None:
    def answer(n: int, operation: str) -> None:
        pair.ours.wait([f"go{n}"])
        getattr(pair.ours, operation)(f"k{n}", "value")

    for n, operation in enumerate(["set", "append", "queue_push"]):
        answered = pair.thread.submit(answer, n, operation)
        pair.torch.set(f"go{n}", "")
        pair.torch.wait([f"k{n}"], LONG)
        answered.result(20)


def test_a_cancelled_wait_leaves_the_connection_good(pair: Pair) -> None:
    for n, (a, b) in enumerate(pair.orders()):
        for _ in range(3):
            with pytest.raises(TIMED_OUT, match=f"never{n}"):
                a.wait([f"never{n}"], SHORT)
        a.set_timeout(SHORT)
        with pytest.raises(TIMED_OUT):
            a.get(f"never{n}")
        with pytest.raises(TIMED_OUT):
            a.queue_pop(f"no queue{n}")
        a.set_timeout(LONG)
        b.set(f"never{n}", "now")
        assert a.get(f"never{n}") == b"now"
        a.set(f"still{n}", "works")
        assert b.get(f"still{n}") == b"works"
        assert a.add(f"count{n}", 1) == 1


def test_barrier(pair: Pair) -> None:
    passed = pair.thread.submit(pair.ours.barrier, "b", 2)
    pair.torch.barrier("b", 2, LONG)
    passed.result(20)
    for n, (a, b) in enumerate(pair.orders()):
        with pytest.raises(TIMED_OUT):
            a.barrier(f"alone{n}", 2, SHORT)
        a.set(f"k{n}", "v")
        assert b.get(f"k{n}") == b"v"


def test_prefix(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair("p")
    bare = torch_client(pair.port)
    for n, (a, b) in enumerate(pair.orders()):
        a.set(f"k{n}", "v")
        assert b.get(f"k{n}") == b"v"
        assert bare.get(f"p/k{n}") == b"v"
        a.queue_push(f"q{n}", "e")
        assert b.queue_pop(f"q{n}") == b"e"
        assert a.add(f"n{n}", 2) == 2
        assert b.multi_get([f"k{n}", f"n{n}"]) == [b"v", b"2"]
    passed = pair.thread.submit(pair.ours.barrier, "b", 2)
    pair.torch.barrier("b", 2, LONG)
    passed.result(20)


def test_large_values(pair: Pair) -> None:
    value = bytes(range(256)) * (8 << 12)  # 8 MiB
    for n, (a, b) in enumerate(pair.orders()):
        a.set(f"large{n}", value)
        assert b.get(f"large{n}") == value


def test_clone_and_torch_worker_count(pair: Pair) -> None:
    worker = dist.TCPStore("127.0.0.1", pair.port, 2, False, LONG)
    clone = worker.clone()
    clone.set("k", "v")
    assert pair.ours.get("k") == b"v"
    assert pair.ours.num_keys() == 2  # the worker counter is also a key
    assert pair.ours.list_keys() == ["k"]


def test_add_to_a_value_that_is_not_a_number(pair: Pair) -> None:
    pair.ours.set("text", "abc")
    with pytest.raises(ValueError, match="text"):
        pair.ours.add("text", 1)
    assert pair.ours.get("text") == b"abc"
    with pytest.raises(dist.DistNetworkError):
        pair.torch.add("text", 1)


def test_the_server_ends() -> None:
    server = hl.TCPStore("127.0.0.1", 0, is_master=True, timeout=LONG)
    theirs = torch_client(server.port)
    del server
    with pytest.raises(dist.DistNetworkError):
        theirs.num_keys()

    other = dist.TCPStore("127.0.0.1", 0, None, True, LONG)
    ours = our_client(other.port)
    port = other.port
    ours.set("k", "v")
    del other
    for _ in range(2):
        with pytest.raises(hl.PeerLost, match=str(port)):
            ours.num_keys()
