"""Awaiting a Future in asyncio."""

import asyncio
import gc
import threading

import pytest

import hookline
from hookline import Future


async def value_of(future: Future) -> object:
    return await future


def test_await_value_and_error() -> None:
    async def main() -> None:
        future, failing, error = Future(), Future(), KeyError("k")
        threading.Timer(0.01, future.set_result, ["value"]).start()
        assert await future == "value"
        assert await future == "value"  # again, after completion
        threading.Timer(0.01, failing.set_exception, [error]).start()
        with pytest.raises(KeyError) as caught:
            await failing
        assert caught.value is error

    asyncio.run(main())


def test_the_loop_goes_on_meanwhile() -> None:
    async def main() -> None:
        future, order = Future(), []

        async def waiter() -> None:
            order.append(await future)

        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        order.append("loop")
        future.set_result("future")
        await task
        assert order == ["loop", "future"]

    asyncio.run(main())


def test_cancelling_leaves_the_future_alone() -> None:
    async def main() -> None:
        future = Future()
        cancelled = asyncio.create_task(value_of(future))
        waiting = asyncio.create_task(value_of(future))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        future.set_result(5)
        assert await waiting == 5

    asyncio.run(main())


def test_closed_loop_is_ignored() -> None:
    future = Future()

    async def main() -> None:
        task = asyncio.create_task(value_of(future))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(main())
    future.set_result(1)  # an unraisable exception here would fail the test
    assert future.value() == 1


def test_several_loops() -> None:
    future, results = Future(), []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(value_of(future)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    future.set_result("gathered")
    for thread in threads:
        thread.join(30)
    assert results == ["gathered"] * 4


def test_gather() -> None:
    async def main() -> None:
        futures = [Future() for _ in range(5)]
        for i, future in enumerate(futures):
            threading.Timer(0.005 * (5 - i), future.set_result, [i]).start()
        assert await asyncio.gather(*(value_of(future) for future in futures)) == list(range(5))

    asyncio.run(main())


@pytest.mark.parametrize("in_a_cycle", [False, True])
def test_awaiting_an_abandoned_future_fails(in_a_cycle: bool) -> None:
    async def main() -> None:
        parent: Future = Future()
        if in_a_cycle:  # only the garbage collector can destroy it
            parent.add_done_callback(lambda _, own=parent: None)
        child = parent.then(lambda done: done.value())
        task = asyncio.create_task(value_of(child))
        await asyncio.sleep(0)
        del parent
        gc.collect()
        with pytest.raises(hookline.Aborted, match="destroyed before completion"):
            await asyncio.wait_for(task, 30)

    asyncio.run(main())
