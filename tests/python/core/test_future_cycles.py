"""Reference cycles through futures are collected, and referenced objects are not."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from hookline import Future, _core

probe = _core._probe


class Node:
    def __init__(self) -> None:
        self.future: Future = Future()
        self.other: object = None

    def callback(self, _: Future) -> None:
        pass


def pending_callback(node: Node) -> None:
    node.future.add_done_callback(node.callback)


def pending_child(node: Node) -> None:
    node.other = node.future.then(node.callback)


def callback_of_a_child(node: Node) -> None:
    node.future.then(lambda done: done).add_done_callback(node.callback)


def own_value(node: Node) -> None:
    node.future.set_result(node)


def own_error(node: Node) -> None:
    error = KeyError("k")
    error.node = node
    node.future.set_exception(error)


def flattened_error(node: Node) -> None:
    inner: Future = Future()
    node.other = node.future.then(lambda _: inner)
    node.future.set_result(None)
    error = KeyError("k")
    error.node = node
    inner.set_exception(error)


def flattened_native_error(node: Node) -> None:
    completer = probe.Completer()
    inner = completer.future().then(lambda _: fail(node))
    node.other = node.future.then(lambda _: inner)
    completer.complete(1)
    node.future.set_result(None)


def fail(node: Node) -> None:
    raise KeyError(node)


def value_of_a_child(node: Node) -> None:
    node.other = node.future.then(lambda _: node)
    node.future.set_result(None)


def flattened_value(node: Node) -> None:
    inner: Future = Future()
    node.other = node.future.then(lambda _: inner)
    node.future.set_result(None)
    inner.set_result(node)


def error_of_a_child(node: Node) -> None:
    def failing(_: Future) -> None:
        raise KeyError(node)

    node.other = node.future.then(failing)
    node.future.set_result(None)


@pytest.mark.parametrize(
    "tie",
    [
        pending_callback,
        pending_child,
        callback_of_a_child,
        own_value,
        own_error,
        value_of_a_child,
        flattened_value,
        flattened_error,
        flattened_native_error,
        error_of_a_child,
    ],
)
def test_cycle_is_collected(tie: Callable[[Node], None]) -> None:
    node = Node()
    tie(node)
    gone = weakref.ref(node)
    del node
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("failed", [False, True])
def test_a_flattened_outcome_outlives_both_futures(failed: bool) -> None:
    """Each future must visit the shared outcome once; else the garbage collector would clear it with the futures."""
    outer, inner = Future(), Future()
    child = outer.then(lambda _, inner=inner: inner)
    outer.set_result(None)
    kept: Any = KeyError("in", "use") if failed else ["in", "use"]
    (inner.set_exception if failed else inner.set_result)(kept)
    cycle = [inner, child]
    cycle.append(cycle)
    del outer, inner, child, cycle
    gc.collect()
    assert list(kept.args if failed else kept) == ["in", "use"]


def test_referenced_futures_are_not_collected() -> None:
    future: Future = Future()
    seen = []

    def callback(done: Future) -> list:
        seen.append(done.value())
        return [done.value()]

    child = future.then(callback).then(lambda done: [*done.value(), "end"])
    del callback
    gc.collect()
    future.set_result("value")
    gc.collect()
    assert seen == ["value"]
    assert child.value() == ["value", "end"]


def test_native_promise_keeps_the_callbacks() -> None:
    completer = probe.Completer()
    seen: list = []
    completer.future().then(lambda done: done.value() + 1).add_done_callback(lambda done: seen.append(done.value()))
    gc.collect()
    completer.complete(1)
    assert seen == [2]


def test_value_shared_by_several_futures_survives() -> None:
    future: Future = Future()
    copies = [future.then(lambda done: done.value()) for _ in range(3)]
    value = Node()
    alive = weakref.ref(value)
    future.set_result(value)
    del value, future
    for i in range(3):
        gc.collect()
        assert alive() is not None
        assert copies[i].value() is alive()
        copies[i] = None
    gc.collect()
    assert alive() is None
