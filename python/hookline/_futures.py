"""asyncio support for futures, and the combination of several futures."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ._core import Future

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def await_future(future: Any) -> Generator[Any, None, T]:
    """Suspends the running task until the future is done. Implements Future.__await__ and Work.__await__.

    The future of a Work class written in Python may also be a torch or concurrent.futures future.
    """
    if not future.done():
        import asyncio  # imported lazily: it takes longer than the rest of hookline

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake(_: Any) -> None:
            try:
                loop.call_soon_threadsafe(release, waiter)
            except RuntimeError:
                if not loop.is_closed():  # a closed loop has no waiting task
                    raise

        future.add_done_callback(wake)
        yield from waiter
    value: T = future.value() if hasattr(future, "value") else future.result()
    return value


def release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # done if the task was cancelled
        waiter.set_result(None)


def collect_all(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """Returns a future of the given futures that completes when all of them are done, successfully or not."""
    pending = list(futures)
    result: Future[list[Future[T]]] = Future()
    completed = itertools.count(1)  # next() is atomic; callbacks run on any thread

    def on_done(_: Future[T]) -> None:
        if next(completed) == len(pending):
            result.set_result(pending)

    for future in pending:
        future.add_done_callback(on_done)
    if not pending:
        result.set_result(pending)
    return result


def when_all(futures: Iterable[Future[T]]) -> Future[list[T]]:
    """Returns a future of all values in order, or of the error of the first failed future in the list."""
    return collect_all(futures).then(lambda done: [future.value() for future in done.value()])
