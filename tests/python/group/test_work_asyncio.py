"""Awaiting a Work in asyncio."""

import asyncio
import concurrent.futures

import numpy as np
import pytest

import hookline


def test_await_gives_the_outputs(ranks):
    def body(group):
        async def main():
            x = np.full(3, 1.0 + group.rank())
            (output,) = await group.allreduce([x])
            assert output is x
            assert x.tolist() == [3, 3, 3]
            work = group.barrier()
            assert await work == []
            assert await work == []  # again, after completion
            arrays = [np.full(2, float(i)) for i in range(5)]
            works = [group.allreduce([array], op=hookline.ReduceOp.AVG) for array in arrays]
            results = await asyncio.gather(*(outputs_of(work) for work in works))
            assert all(result[0] is array for result, array in zip(results, arrays, strict=True))

        asyncio.run(main())

    ranks(2, body)


async def outputs_of(work):
    return await work


def test_the_loop_goes_on_meanwhile(ranks):
    def body(group):
        async def main():
            if group.rank() == 0:
                receiving = asyncio.create_task(outputs_of(group.recv([np.zeros(1)], 1)))
                await asyncio.sleep(0)  # the task waits now
                await group.send([np.ones(1)], 1)
                assert (await receiving)[0].tolist() == [5]
            else:
                await group.recv([np.zeros(1)], 0)  # sent by the same thread that awaits the message below
                await group.send([np.full(1, 5.0)], 0)

        asyncio.run(main())

    ranks(2, body)


def test_await_raises_what_the_operation_failed_with(ranks):
    def body(group):
        async def main():
            task = asyncio.create_task(outputs_of(group.recv([np.zeros(1)], 1 - group.rank())))
            await asyncio.sleep(0)
            group.abort("the test wants it")
            with pytest.raises(hookline.Aborted, match="the test wants it"):
                await task

        asyncio.run(main())

    ranks(2, body)


class Waits(hookline.Work):
    def __init__(self, error=None):
        super().__init__()
        self.error = error

    def wait(self, timeout=None):
        if self.error:
            raise self.error
        return True


class HasFuture(hookline.Work):
    def __init__(self, future):
        super().__init__()
        self.future = future

    def get_future(self):
        return self.future


def test_works_of_python_classes():
    async def main():
        future = hookline.Future()
        future.set_result([1])
        assert await hookline.Work(future) == [1]
        assert await HasFuture(future) == [1]
        foreign = concurrent.futures.Future()
        task = asyncio.create_task(outputs_of(HasFuture(foreign)))
        await asyncio.sleep(0)
        foreign.set_result([2])
        assert await task == [2]
        assert await Waits() == []
        with pytest.raises(KeyError):
            await Waits(KeyError("k"))

    asyncio.run(main())
