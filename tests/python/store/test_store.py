"""Stores in Python: values, errors, waits without the GIL, Ctrl-C, and lifetimes."""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import hookline as hl

Maker = Callable[[], hl.Store]


@pytest.fixture(params=["memory", "file", "prefix", "tcp"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> hl.Store:
    makers: dict[str, Maker] = {
        "memory": hl.HashStore,
        "file": lambda: hl.FileStore(str(tmp_path / "store"), 1),
        "prefix": lambda: hl.PrefixStore("p", hl.MemoryStore()),
        "tcp": lambda: hl.TCPStore("127.0.0.1", 0, is_master=True),
    }
    made = makers[request.param]()
    made.set_timeout(20)
    return made


def test_operations(store: hl.Store) -> None:
    before = store.num_keys()
    store.set("text", "grün")
    store.set("bytes", b"\0\xff")
    assert store.get("text") == "grün".encode()
    assert store.get("bytes") == b"\0\xff"
    assert store.add("count", 5) == 5
    assert store.add("count", -7) == -2
    assert store.check(["text", "count"])
    assert not store.check(["text", "none"])
    assert store.compare_set("c", "", b"first") == b"first"
    assert store.compare_set("c", "other", "second") == b"first"
    assert store.delete_key("c")
    assert not store.delete_key("c")
    store.append("text", b"!")
    store.multi_set(["a", "b"], ["1", b"2"])
    assert store.multi_get(["b", "a", "text"]) == [b"2", b"1", "grün!".encode()]
    assert store.num_keys() - before == 5
    assert {"text", "bytes", "count", "a", "b"} <= set(store.list_keys())
    store.queue_push("q", "1")
    store.queue_push("q", b"2")
    assert store.queue_len("q") == 2
    assert store.queue_pop("q") == b"1"
    assert store.queue_pop("q", block=False) == b"2"
    with pytest.raises(ValueError, match="empty"):
        store.queue_pop("q", False)
    store.barrier("alone", 1, timedelta(seconds=5))
    store.wait(["a", "b"])


def test_a_clone_has_the_same_values_and_its_own_timeout(store: hl.Store) -> None:
    assert store.has_extended_api()
    copy = store.clone()
    assert type(copy) is type(store)
    assert copy is not store
    assert copy.timeout == store.timeout
    copy.set_timeout(5)
    assert store.timeout == timedelta(seconds=20)
    store.set("k", "v")
    assert copy.get("k") == b"v"
    del store
    assert copy.get("k") == b"v"


def test_clones_wait_for_each_other(store: hl.Store) -> None:
    one, other = store.clone(), store.clone()

    def answer() -> None:
        other.queue_push("b", other.queue_pop("a"))

    thread = threading.Thread(target=answer)
    thread.start()
    one.queue_push("a", "1")
    assert one.queue_pop("b") == b"1"
    thread.join(20)


def test_a_clone_is_not_counted_as_a_process_of_a_file_store(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = hl.FileStore(str(path), 2)
    copy = store.clone()
    del store, copy
    assert path.exists()  # the second process has not opened it
    hl.FileStore(str(path), 2)
    assert not path.exists()


def test_prefix_stores_describe_the_inner_store() -> None:
    inner = hl.MemoryStore()
    store = hl.PrefixStore("a", hl.PrefixStore("b", inner))
    assert isinstance(store.underlying_store, hl.PrefixStore)
    assert store._underlying_non_prefix_store is inner
    with pytest.raises(ValueError, match="store must not be null"):
        hl.PrefixStore("a", None)


def test_wrong_arguments(store: hl.Store) -> None:
    for call in (
        lambda: store.set("k", 1),  # type: ignore[arg-type]
        lambda: store.set(b"k", "v"),  # type: ignore[arg-type]
        lambda: store.wait("key", "soon"),  # type: ignore[arg-type]
        lambda: store.add("k", 1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()
    store.set("text", "abc")
    with pytest.raises(hl.InvalidArgument, match="abc"):
        store.add("text", 1)
    with pytest.raises(hl.InvalidArgument, match="2 keys"):
        store.multi_set(["a", "b"], ["1"])
    with pytest.raises(hl.InvalidArgument, match="expected at least 0 s"):
        store.set_timeout(-1)


@pytest.mark.parametrize("limit", [0.031, timedelta(milliseconds=31)])
def test_timeouts_name_key_store_and_time(store: hl.Store, limit: float | timedelta) -> None:
    with pytest.raises(TimeoutError, match=r"Store.*: wait timeout after 31ms, keys: .*never"):
        store.wait(["never"], limit)
    store.set_timeout(limit)
    assert store.timeout == timedelta(milliseconds=31)
    with pytest.raises(hl.Timeout, match=r"Store.*: wait timeout after 31ms, keys: .*never"):
        store.get("never")
    with pytest.raises(hl.Timeout, match=r"Store.*: barrier timeout after 31ms, key: .*alone"):
        store.barrier("alone", 2)


def test_other_threads_run_while_one_waits(tmp_path: Path) -> None:
    for store in (hl.MemoryStore(), hl.FileStore(str(tmp_path / "store"))):
        waiting = threading.Event()
        got: list[bytes] = []

        def wait_for_it(store: hl.Store = store, waiting: threading.Event = waiting, got: list[bytes] = got) -> None:
            waiting.set()
            got.append(store.get("later"))

        thread = threading.Thread(target=wait_for_it)
        thread.start()
        assert waiting.wait(20)
        store.set("later", "now")
        thread.join(20)
        assert got == [b"now"]


def expect_interrupted(wait: Callable[[], object]) -> None:
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    start = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        wait()
    assert time.monotonic() - start < 10
    timer.join()


def test_ctrl_c_ends_a_wait(store: hl.Store) -> None:
    for wait in (lambda: store.get("never"), lambda: store.queue_pop("q"), lambda: store.barrier("b", 2, 20)):
        expect_interrupted(wait)
    store.set("k", "v")
    assert store.get("k") == b"v"


def test_ctrl_c_interrupts_waits_for_other_processes(tmp_path: Path) -> None:
    path = str(tmp_path / "store")
    file = hl.FileStore(path, -1, 20)
    with socket.create_server(("127.0.0.1", 0)) as silent, open(path, "rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        port = silent.getsockname()[1]
        for wait in (
            lambda: hl.TCPStore("127.0.0.1", 1, timeout=20),  # no listening socket
            lambda: hl.TCPStore("127.0.0.1", port, timeout=20),  # no reply
            lambda: hl.TCPStore("127.0.0.1", 0, world_size=2, is_master=True, timeout=20),
            lambda: file.set("k", "v"),
        ):
            expect_interrupted(wait)


class DictStore(hl.Store):
    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        self.values[key] = value.encode() if isinstance(value, str) else value

    def get(self, key: str) -> bytes:
        return self.values[key]

    def wait(self, keys: list[str], timeout: object = None) -> None:  # type: ignore[override]
        assert isinstance(timeout, timedelta)
        assert all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        return super().delete_key(key)


def test_a_python_class_is_a_store() -> None:
    inner = DictStore()
    store = hl.PrefixStore("p", inner)
    store.set("k", b"\0v")
    assert inner.values == {"p/k": b"\0v"}
    assert store.multi_get(["k"]) == [b"\0v"]
    assert store.underlying_store is inner
    assert repr(store) == "<hookline.PrefixStore(p, DictStore)>"


def test_errors_of_a_python_store_keep_type_and_traceback() -> None:
    store = hl.PrefixStore("p", DictStore())
    with pytest.raises(KeyError, match="p/none") as caught:
        store.get("none")
    assert any(entry.name == "get" and entry.path.name == "test_store.py" for entry in caught.traceback[1:])


def test_missing_methods_of_a_python_store_are_named() -> None:
    store = hl.PrefixStore("p", DictStore())
    with pytest.raises(NotImplementedError, match=r"add on DictStore: Not implemented\. Define add in the class\."):
        store.add("k", 1)
    with pytest.raises(hl.Unsupported, match=r"queue_push on DictStore: Not implemented\."):
        store.queue_push("k", "v")
    with pytest.raises(hl.Unsupported, match=r"delete_key on DictStore: Not implemented\."):
        store.delete_key("k")
    with pytest.raises(hl.Unsupported, match=r"clone on DictStore: Not implemented\."):
        store.clone()


class CompareStore(hl.Store):
    """The minimum that PyTorch requires of a store in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes:
        return self.values[key]

    def set(self, key: str, value: str | bytes) -> None:
        assert isinstance(value, bytes)
        self.values[key] = value

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        assert isinstance(expected_value, bytes)
        assert isinstance(desired_value, bytes)
        if self.values.get(key, b"") == expected_value:
            self.values[key] = desired_value
        return self.values.get(key, expected_value)

    def clone(self) -> "CompareStore":
        other = CompareStore()
        other.values = self.values
        return other


def test_optional_methods_of_a_python_store() -> None:
    store = hl.PrefixStore("p", CompareStore())
    assert not store.has_extended_api()
    for part in (b"po", b"ta", b"ta", b"", b"to"):
        store.append("k", part)
    assert store.get("k") == b"potatato"
    store.append("twice", "same")
    store.append("twice", "same")
    assert store.get("twice") == b"samesame"
    store.multi_set(["a", "b"], [b"c", "d"])
    assert store.multi_get(["a", "b", "twice"]) == [b"c", b"d", b"samesame"]


def test_a_python_store_defines_clone_and_has_extended_api() -> None:
    class Extended(CompareStore):
        def has_extended_api(self) -> bool:
            return True

    inner = Extended()
    store = hl.PrefixStore("p", inner)
    assert store.has_extended_api()
    copy = store.clone()
    assert isinstance(copy, hl.PrefixStore)
    assert isinstance(copy.underlying_store, CompareStore)
    assert copy.underlying_store is not inner
    store.set("k", "v")
    assert copy.get("k") == b"v"
    inner.clone = lambda: None  # type: ignore[method-assign, assignment, return-value]
    with pytest.raises(TypeError, match=r"clone\(\): expected a hookline.Store as the result, got None"):
        store.clone()


@pytest.mark.parametrize(
    ("method", "result", "call"),
    [
        ("get", None, lambda s: s.get("k")),
        ("get", 3, lambda s: s.get("k")),
        ("add", None, lambda s: s.add("k", 1)),
        ("add", 1 << 70, lambda s: s.add("k", 1)),
        ("check", None, lambda s: s.check(["k"])),
        ("delete_key", 1, lambda s: s.delete_key("k")),
        ("list_keys", None, lambda s: s.list_keys()),
        ("list_keys", [1], lambda s: s.list_keys()),
        ("multi_get", b"ab", lambda s: s.multi_get(["k"])),
        ("queue_pop", None, lambda s: s.queue_pop("k")),
        ("compare_set", None, lambda s: s.compare_set("k", "a", "b")),
    ],
)
def test_wrong_results_of_a_python_store_are_errors(
    method: str, result: object, call: Callable[[hl.Store], object]
) -> None:
    cls = type("Odd", (hl.Store,), {method: lambda self, *args: result})
    with pytest.raises(TypeError, match=rf"Odd\.{method}\(\): expected"):
        call(hl.PrefixStore("p", cls()))


def test_lifetime_of_a_python_store() -> None:
    code = """
        import gc, weakref
        import hookline as hl
        class Kept(hl.Store):
            def get(self, key): return b"here"
        store = hl.PrefixStore("p", Kept())
        gc.collect()
        assert store.get("k") == b"here"
        inner = Kept()
        cycle = hl.PrefixStore("p", inner)
        inner.outer = cycle
        seen = weakref.ref(inner)
        del inner, cycle
        gc.collect()
        assert seen() is None
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "leaked" not in done.stderr, done.stderr


def test_rendezvous(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = hl.rendezvous(f"file://{tmp_path}/store", rank=0, world_size=1)
    assert (found.rank, found.world_size, found.local_rank) == (0, 1, 0)
    assert isinstance(found.store, hl.FileStore)
    found.store.set("k", "v")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK expected, but not set"):
        hl.rendezvous()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("HOOKLINE_STORE", str(tmp_path / "other"))
    assert hl.rendezvous(timeout=3).store.timeout == timedelta(seconds=3)


@pytest.mark.parametrize("size", [2147483647, 1048577, 0, -7])
def test_world_sizes_out_of_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    expected = rf"world_size is out of range: expected 1 to 1048576, got {size}"
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", str(size))
    monkeypatch.setenv("HOOKLINE_STORE", str(tmp_path / "store"))
    with pytest.raises(ValueError, match=expected.replace("world_size", "WORLD_SIZE")):
        hl.init_process_group(timeout=1)
    with pytest.raises(ValueError, match=expected):
        hl.init_process_group(store=hl.MemoryStore(), rank=0, world_size=size, timeout=1)
    with pytest.raises(ValueError, match=expected):
        hl.FileStore(str(tmp_path / "store"), size)
    with pytest.raises(ValueError, match=expected if size else "TCPStore world size cannot be 0"):
        hl.TCPStore("127.0.0.1", 0, size, is_master=True, timeout=1)


def test_a_world_size_of_minus_one_is_not_fixed(tmp_path: Path) -> None:
    hl.FileStore(str(tmp_path / "store"), -1).set("k", "v")
    hl.TCPStore("127.0.0.1", 0, -1, is_master=True, timeout=20).set("k", "v")
