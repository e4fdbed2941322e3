"""The assertions of PyTorch's own process group tests, on the hookline backend."""

import datetime
import logging
import warnings

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from checks import RANK, SIZE, check, init_group, raises, run

import hookline as hl
import hookline.torch as ht

handlers = list(logging.root.handlers)
warnings.simplefilter("ignore")
init_group("hookline")
world = dist.group.WORLD
ALL_RANKS = list(range(SIZE))
TOTAL = sum(ALL_RANKS)


def rooted(kind, root, tensor=0):
    options = kind()
    options.rootRank = root
    if hasattr(options, "rootTensor"):
        options.rootTensor = tensor
    return options


def numbers(tensors):
    return [t.item() for t in tensors]


def value(work):
    future = work.get_future()
    future.wait()
    return future.value()


@check
def registration_and_group_options():
    assert dist.Backend.HOOKLINE == "hookline"
    assert dist.is_backend_available("hookline")
    assert str(dist.BackendConfig("HOOKLINE")) == "cpu:hookline"
    assert str(dist.BackendConfig("cpu:hookline,cuda:nccl")) == "cpu:hookline,cuda:nccl"
    assert logging.root.handlers == handlers
    assert c10d._get_default_store().timeout == datetime.timedelta(seconds=120)
    assert ht.group_from_torch(dist.new_group(timeout=datetime.timedelta(seconds=50))).timeout.total_seconds() == 50


@check
def futures_hold_the_outputs():
    assert value(world.broadcast([torch.FloatTensor([])]))[0].numel() == 0
    assert numbers(value(world.allreduce(torch.tensor([RANK])))) == [TOTAL]
    inputs = [torch.tensor([RANK]) for _ in ALL_RANKS]
    for root in ALL_RANKS:
        assert numbers(value(world.broadcast([torch.tensor([RANK])], rooted(dist.BroadcastOptions, root)))) == [root]
        given = [inputs] if root == RANK else []
        assert numbers(value(world.scatter([torch.tensor([-1])], given, rooted(dist.ScatterOptions, root)))) == [root]
        summed = numbers(value(world.reduce([torch.tensor([RANK])], rooted(dist.ReduceOptions, root))))
        lists = [[torch.tensor([-1]) for _ in ALL_RANKS]] if root == RANK else []
        gathered = value(world.gather(lists, [torch.tensor([RANK])], rooted(dist.GatherOptions, root)))
        if root == RANK:
            assert summed == [TOTAL]
            assert numbers(gathered) == ALL_RANKS
    lists = [[torch.tensor([-1]) for _ in ALL_RANKS]]
    assert numbers(value(world.allgather(lists, [torch.tensor([RANK])]))) == ALL_RANKS


@check
def many_concurrent_operations():
    def all_of(start, expected, count=200):
        futures = [start(i).get_future() for i in range(count)]
        for i, future in enumerate(futures):
            future.wait()
            assert expected(i) is None or numbers(future.value()) == expected(i), i

    def own(i, then):
        return then if i % SIZE == RANK else []

    def mine(i):
        return torch.tensor([i + RANK])

    all_of(lambda i: world.broadcast(mine(i), root=i % SIZE), lambda i: [i + i % SIZE])
    all_of(lambda i: world.allreduce(mine(i)), lambda i: [i * SIZE + TOTAL])
    all_of(
        lambda i: world.gather(
            own(i, [[torch.tensor([-1]) for _ in ALL_RANKS]]), [mine(i)], rooted(dist.GatherOptions, i % SIZE)
        ),
        lambda i: [i + r for r in ALL_RANKS] if i % SIZE == RANK else None,
    )
    all_of(
        lambda i: world.scatter(
            [torch.tensor([-1])], own(i, [[mine(i) for _ in ALL_RANKS]]), rooted(dist.ScatterOptions, i % SIZE)
        ),
        lambda i: [i + i % SIZE],
    )
    all_of(
        lambda i: world.reduce([mine(i)], rooted(dist.ReduceOptions, i % SIZE)),
        lambda i: [i * SIZE + TOTAL] if i % SIZE == RANK else None,
    )
    all_of(
        lambda i: world.allgather([[torch.tensor([-1]) for _ in ALL_RANKS]], [mine(i)]),
        lambda i: [i + r for r in ALL_RANKS],
    )
    # A tensor that is passed twice is reduced once.
    all_of(lambda i: world.allreduce_coalesced(2 * [mine(i)]), lambda i: 2 * [i * SIZE + TOTAL])
    tensors = [torch.full((100, 100), float(i)) for i in range(16)]
    for tensor in tensors:
        world.allreduce(tensor)
    world.barrier().get_future().wait()  # completes after all earlier operations
    assert all((tensor == i * SIZE).all() for i, tensor in enumerate(tensors))


@check
def coalesced_operations_return_futures():
    lists = [2 * [torch.tensor([i + RANK])] for i in range(2)]
    futures = [dist.all_reduce_coalesced(tensors, async_op=True) for tensors in lists]
    torch.futures.wait_all(futures)
    assert [numbers(f.wait()) for f in futures] == [2 * [i * SIZE + TOTAL] for i in range(2)]
    outputs = [[torch.zeros(2) for _ in range(2)] for _ in ALL_RANKS]
    dist.all_gather_coalesced(outputs, [torch.full((2,), float(RANK)), torch.ones(2)], async_op=True).wait()
    assert [[t[1].item() for t in tensors] for tensors in outputs] == [[r, 1] for r in ALL_RANKS]
    inputs, wholes = [torch.rand(n, n) for n in (5, 10)], [torch.empty(n * SIZE, n) for n in (5, 10)]
    world.allgather_into_tensor_coalesced(wholes, inputs).wait()
    world.reduce_scatter_tensor_coalesced(inputs, [w.clone() for w in wholes]).wait()
    for part, whole in zip(inputs, wholes, strict=True):
        torch.testing.assert_close(part, whole.chunk(SIZE)[RANK] * SIZE)


@check
def parts_of_different_sizes():
    for op, factor in ((dist.ReduceOp.SUM, SIZE), (dist.ReduceOp.AVG, 1)):
        inputs = [torch.arange(r, dtype=torch.float32) for r in ALL_RANKS]
        output = torch.full((2 * RANK,), -1.0)[::2]
        dist.reduce_scatter(output, inputs, op, async_op=True).wait()
        torch.testing.assert_close(output, inputs[RANK] * factor)
        assert all(torch.equal(t, torch.arange(t.numel())) for t in inputs)
        dist.reduce_scatter(inputs[RANK], inputs, op)
        torch.testing.assert_close(inputs[RANK], output)
    raises(ValueError, "elements", lambda: dist.reduce_scatter(torch.zeros(SIZE + 1), inputs))
    whole = torch.zeros(2 * SIZE + 2)
    inputs = [whole[: RANK + 2] if r == RANK else torch.zeros(r + 2) for r in ALL_RANKS]
    raises(ValueError, "overlaps input", lambda: dist.reduce_scatter(whole[1 : RANK + 3], inputs))


@check
def sparse_tensors_of_different_shapes():
    for tensor in (
        torch.sparse_coo_tensor([[RANK]], [1.0], (SIZE,)),
        torch.sparse_coo_tensor(torch.zeros(1, 0 if RANK else 1), torch.ones(0 if RANK else 1), (4,)),
        torch.sparse_coo_tensor([[0] * 3, [0] * 3], [1.0, 1.0, 1.0], (2, SIZE)),
        torch.sparse_coo_tensor([list(range(RANK + 1))], torch.ones(RANK + 1, 2, 2), (SIZE, 2, 2)),
    ):
        dense = tensor.to_dense()
        dist.all_reduce(dense)
        (result,) = value(world.allreduce([tensor]))
        torch.testing.assert_close(tensor.to_dense(), dense)
        torch.testing.assert_close(result.to_dense(), dense)
    for op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        sparse = torch.sparse_coo_tensor([[0]], [1.0], (4,))
        raises(NotImplementedError, "expected SUM or AVG", lambda op=op, sparse=sparse: dist.all_reduce(sparse, op))


@check
def layouts_modes_and_dtypes():
    for mode in (torch.inference_mode(), torch.no_grad()):
        with mode:
            column = torch.full((2, 2), RANK)[:, 0]
            columns = [torch.zeros(2, 2, dtype=torch.int64)[:, 0] for _ in ALL_RANKS]
            dist.all_gather(columns, column)
            assert [c.tolist() for c in columns] == [[r, r] for r in ALL_RANKS]
            dist.gather(column, columns if RANK == 0 else None)
    # float16 sums accumulate in float32 and are rounded once.
    halves = (torch.rand(10, generator=torch.Generator().manual_seed(RANK)) * 65504 / SIZE).half()
    lists = [torch.zeros_like(halves) for _ in ALL_RANKS]
    dist.all_gather(lists, halves)
    dist.all_reduce(halves)
    assert torch.equal(halves, torch.stack(lists).float().sum(0).half())
    real, pairs = torch.rand(2), [torch.rand(2) for _ in ALL_RANKS]
    pairs[1] = torch.view_as_complex(pairs[1])
    dist.all_gather(pairs, torch.view_as_complex(real))
    dist.all_gather(pairs, real)
    flags = torch.tensor([RANK == 0, False])
    dist.broadcast(flags, 0)
    assert flags.tolist() == [True, False]
    for root in ALL_RANKS:
        dtypes = (torch.float16, torch.float32, torch.float16, torch.float64, torch.bfloat16)
        wanted = [part for dtype in dtypes for part in torch.arange(60, dtype=dtype).chunk(5)]
        tensors = [t.clone() if root == RANK else torch.zeros_like(t) for t in wanted]
        dist._broadcast_coalesced(world, tensors, buffer_size=256, src=root)
        assert all(torch.equal(a, b) for a, b in zip(tensors, wanted, strict=True))


@check
def sequence_numbers():
    group, other = dist.new_group(), dist.new_group(backend="gloo")

    def seen():
        values = [None] * SIZE
        dist.all_gather_object(values, ht.group_from_torch(group).sequence_number, group=other)
        return values

    first = seen()[0]
    for i in range(5):
        dist.all_reduce(torch.ones(1), group=group)
        assert seen() == [first + i + 1] * SIZE
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True) if RANK == 1 else None
    assert seen() == [first + 5 + (r == 1) for r in ALL_RANKS]
    (work or dist.all_reduce(torch.ones(1), group=group, async_op=True)).wait()


@check
def groups_of_other_ranks():
    even = [r for r in ALL_RANKS if r % 2 == 0]
    group = dist.new_group(even)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.all_reduce(torch.zeros(2), group=group)
        dist.all_gather([torch.zeros(2) for _ in even], torch.zeros(2), group=group)
        dist.broadcast(torch.zeros(2), src=0, group=group)
        dist.barrier(group=group)
    assert len([w for w in caught if "does not belong to" in str(w.message)]) == (0 if RANK in even else 4)
    group = dist.new_group([1])
    assert (dist.get_group_rank(group, 1), dist.get_global_rank(group, 0)) == (0, 1)
    raises(ValueError, "not part of group", lambda: dist.get_group_rank(group, 0))
    mine = [0, 1] if RANK < 2 else [2]
    for _ in range(2):  # only members call new_group
        group = dist.new_group(mine, use_local_synchronization=True)
        ranks = [torch.tensor([-1]) for _ in mine]
        dist.all_gather(ranks, torch.tensor([RANK]), group=group)
        assert numbers(ranks) == mine


@check
def a_rank_alone():
    group = dist.new_group([RANK], use_local_synchronization=True)
    one, other = torch.ones(2, 2), torch.zeros(2, 2)
    for operation in (dist.all_reduce, lambda t, group: dist.all_reduce_coalesced([t], group=group)):
        operation(one, group=group)
    dist.reduce(one, RANK, group=group)
    dist.broadcast(one, RANK, group=group)
    dist.all_gather([other], one, group=group)
    dist.reduce_scatter(other, [one], group=group)
    dist.all_to_all([other], [one], group=group)
    dist.scatter(other, [one], src=RANK, group=group)
    dist.all_gather_coalesced([[other]], [one], group=group)
    dist.barrier(group=group)
    group.monitored_barrier()
    assert torch.equal(one, torch.ones(2, 2))
    assert torch.equal(other, one)
    # Gloo rejects this; hookline uses the elements of the view.
    square = torch.arange(4.0).view(2, 2).t()
    dist.all_to_all_single(other, square, group=group)
    assert torch.equal(other, square)


@check
def arguments_that_do_not_fit():
    one, double, two = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
    lists, other = [[torch.zeros(1) for _ in ALL_RANKS]], (RANK + 1) % SIZE

    def calls(kind, function):
        yield lambda: function(rooted(kind, -1))
        yield lambda: function(rooted(kind, SIZE))

    wrong = [
        *calls(dist.BroadcastOptions, lambda o: world.broadcast([one], o)),
        *calls(dist.ReduceOptions, lambda o: world.reduce([one], o)),
        *calls(dist.ScatterOptions, lambda o: world.scatter([one], [], o)),
        *calls(dist.GatherOptions, lambda o: world.gather([], [one], o)),
        lambda: world.broadcast([one], rooted(dist.BroadcastOptions, RANK, 1)),
        lambda: world.broadcast([one], rooted(dist.BroadcastOptions, RANK, -1)),
        lambda: world.reduce([one], rooted(dist.ReduceOptions, RANK, 1)),
        lambda: world.scatter([one], [], rooted(dist.ScatterOptions, RANK)),
        lambda: world.scatter([one], 2 * lists, rooted(dist.ScatterOptions, RANK)),
        lambda: world.scatter([one], lists, rooted(dist.ScatterOptions, other)),
        lambda: world.gather([], [one], rooted(dist.GatherOptions, RANK)),
        lambda: world.gather(lists, [one], rooted(dist.GatherOptions, other)),
        lambda: world.allgather([], [one]),
        lambda: world.allgather_into_tensor_coalesced([torch.zeros(SIZE)], [one, double]),
        lambda: dist.all_gather_coalesced([[double], *([one.clone()] for _ in ALL_RANKS[1:])], [one]),
        lambda: dist.all_gather_coalesced([[one.clone()] for _ in range(SIZE + 1)], [one]),
    ]
    for tensors in ([one] * (SIZE - 1), [one] * (SIZE + 1), [double] * SIZE, [two] * SIZE):
        wrong += [
            lambda tensors=tensors: world.scatter([one], [tensors], rooted(dist.ScatterOptions, RANK)),
            lambda tensors=tensors: world.gather([tensors], [one], rooted(dist.GatherOptions, RANK)),
            lambda tensors=tensors: world.allgather([tensors], [one]),
        ]
    for tensors in ([one, double], [one, two], [one, one]):
        wrong += [
            lambda tensors=tensors: world.broadcast(tensors, rooted(dist.BroadcastOptions, RANK)),
            lambda tensors=tensors: world.allreduce(tensors),
            lambda tensors=tensors: world.reduce(tensors, rooted(dist.ReduceOptions, RANK)),
        ]
    for call in wrong:
        raises(ValueError, "", call)
        raises(RuntimeError, "", call)  # what Gloo and NCCL raise
        raises(hl.InvalidArgument, "", call)
    mixed = [*[one] * (SIZE - 1), one.half()]
    raises(ValueError, "different dtypes", lambda: dist.all_gather(mixed, one))
    raises(ValueError, "different dtypes", lambda: dist.reduce_scatter(one, mixed))
    dist.barrier()  # no rank hangs


run()
dist.destroy_process_group()
