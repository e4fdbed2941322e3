"""What the native Future leaves to Python: asyncio, and waiting for many."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from ._core import Future

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def await_future(future: Any) -> Generator[Any, None, T]:
    """Suspends the running task until the future is done: the body of Future.__await__ and Work.__await__.

    The future of a Work of a Python class may be one of torch's or of concurrent.futures.
    """
    if not future.done():
        import asyncio  # only here: it takes longer to import than all of hookline

        loop = asyncio.get_running_loop()
        waiter = loop.create_future()

        def wake(_: Any) -> None:
            try:
                loop.call_soon_threadsafe(release, waiter)
            except RuntimeError:
                if not loop.is_closed():  # in a closed loop nobody waits any more
                    raise

        future.add_done_callback(wake)
        yield from waiter
    value: T = future.value() if hasattr(future, "value") else future.result()
    return value


def release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():  # it was cancelled meanwhile
        waiter.set_result(None)


def collect_all(futures: Iterable[Future[T]]) -> Future[list[Future[T]]]:
    """A future of the given futures, complete when all of them are done, failed or not."""
    waited = list(futures)
    result: Future[list[Future[T]]] = Future()
    arrived = itertools.count(1)  # next() is atomic, and callbacks come from any thread

    def arrive(_: Future[T]) -> None:
        if next(arrived) == len(waited):
            result.set_result(waited)

    for future in waited:
        future.add_done_callback(arrive)
    if not waited:
        result.set_result(waited)
    return result


def when_all(futures: Iterable[Future[T]]) -> Future[list[T]]:
    """A future of all values in order, or of the error of the first one in the list that failed."""
    return collect_all(futures).then(lambda done: [future.value() for future in done.value()])
