"""Every collective of torch.distributed on the hookline backend, compared with Gloo if Gloo supports it."""

import datetime
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch._C._distributed_c10d import WorkResult

import hookline
import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
gloo = dist.new_group(backend="gloo")
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
BIT_OPS = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
INTEGERS = [torch.uint8, torch.int8, torch.int32, torch.int64]
ALL = [*FLOATS, *INTEGERS, torch.int16, torch.bool]


def sample(dtype, count=37, rank=RANK, seed=0):
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(0, 4, (count,), generator=generator).to(dtype)


def same(a, b):
    assert a.dtype == b.dtype
    assert torch.equal(a, b), f"{a} and {b}"


@check
def the_backend_has_its_name():
    assert dist.get_backend() == "hookline"
    assert dist.get_backend_config() == "cpu:hookline"
    assert dist.get_world_size() == SIZE
    assert dist.get_rank() == RANK


@check
def allreduce_as_gloo():
    for dtype in [*FLOATS, *INTEGERS]:
        for op in [*OPS, *(BIT_OPS if dtype in INTEGERS else [])]:
            ours, theirs = sample(dtype), sample(dtype)
            dist.all_reduce(ours, op)
            dist.all_reduce(theirs, op, group=gloo)
            same(ours, theirs)


@check
def reductions_that_gloo_lacks():
    for dtype in FLOATS:
        gathered = torch.stack([sample(dtype, rank=r) for r in range(SIZE)]).double()
        mean = sample(dtype)
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        same(mean, (gathered.sum(0) / SIZE).to(dtype))
        scaled = sample(dtype)
        dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
        same(scaled, (gathered * 0.5).sum(0).to(dtype))
        scaled = sample(dtype)
        dist.all_reduce(scaled, dist._make_nccl_premul_sum(torch.tensor([0.25])))
        same(scaled, (gathered * 0.25).sum(0).to(dtype))
    for dtype in (torch.int16, torch.bool):
        total = sample(dtype)
        dist.all_reduce(total)
        gathered = torch.stack([sample(dtype, rank=r) for r in range(SIZE)])
        same(total, gathered.any(0) if dtype == torch.bool else gathered.sum(0, dtype=dtype))


@check
def large_and_odd_tensors():
    for shape in [(0,), (1,), (), (3, 5), (1 << 20,), (1000, 1001)]:
        tensor = torch.full(shape, float(RANK + 1))
        dist.all_reduce(tensor)
        same(tensor, torch.full(shape, float(sum(range(1, SIZE + 1)))))
    strided = torch.zeros(8, 6).t()[1:5, ::2]
    strided += RANK + 1
    dist.all_reduce(strided)
    same(strided.contiguous(), torch.full((4, 4), float(sum(range(1, SIZE + 1)))))
    images = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    dist.all_reduce(images)
    same(images.contiguous(), torch.full((2, 3, 4, 4), float(SIZE)))


@check
def complex_numbers_and_dtypes_that_are_only_moved():
    for dtype in (torch.complex64, torch.complex128):
        tensor = torch.full((5,), complex(1, RANK), dtype=dtype)
        dist.all_reduce(tensor)
        same(tensor, torch.full((5,), complex(SIZE, sum(range(SIZE))), dtype=dtype))
    for dtype in (torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.uint16, torch.uint32, torch.uint64):
        tensor = torch.arange(4).to(torch.float32).to(dtype) if RANK == 1 else torch.zeros(4, dtype=dtype)
        dist.broadcast(tensor, 1)
        same(tensor.view(torch.uint8), torch.arange(4).to(torch.float32).to(dtype).view(torch.uint8))
    raises(NotImplementedError, "cannot be reduced", lambda: dist.all_reduce(torch.zeros(3, dtype=torch.uint32)))
    pairs = torch.ones(3, dtype=torch.complex64)
    parts = [torch.ones(r + 1, dtype=torch.complex64) for r in range(SIZE)]
    product = dist.ReduceOp.PRODUCT
    raises(ValueError, "unsupported op for complex tensors", lambda: dist.reduce(pairs, 0, product))
    raises(
        ValueError,
        "unsupported op for complex tensors",
        lambda: dist.reduce_scatter(torch.zeros(RANK + 1, dtype=torch.complex64), parts, product),
    )


@check
def movement_as_gloo():
    for dtype in ALL:
        mine = sample(dtype)
        for source in range(SIZE):
            ours = mine.clone()
            dist.broadcast(ours, source)
            same(ours, sample(dtype, rank=source))
        lists = [torch.zeros_like(mine) for _ in range(SIZE)]
        dist.all_gather(lists, mine)
        for rank, part in enumerate(lists):
            same(part, sample(dtype, rank=rank))
        whole = torch.zeros(SIZE * 37, dtype=dtype)
        dist.all_gather_into_tensor(whole, mine)
        same(whole, torch.cat(lists))
        at_root = [torch.zeros_like(mine) for _ in range(SIZE)] if RANK == 1 else None
        dist.gather(mine, at_root, dst=1)
        if RANK == 1:
            same(torch.stack(at_root), torch.stack(lists))
        part = torch.zeros_like(mine)
        dist.scatter(part, [sample(dtype, seed=r) for r in range(SIZE)] if RANK == 0 else None, src=0)
        same(part, sample(dtype, rank=0, seed=RANK))
        outputs = [torch.zeros_like(mine) for _ in range(SIZE)]
        dist.all_to_all(outputs, [sample(dtype, seed=r) for r in range(SIZE)])
        for rank, got in enumerate(outputs):
            same(got, sample(dtype, rank=rank, seed=RANK))


@check
def rooted_and_scattered_reductions():
    for dtype in [*FLOATS, *INTEGERS]:
        ours, theirs = sample(dtype), sample(dtype)
        dist.reduce(ours, dst=1)
        dist.reduce(theirs, dst=1, group=gloo)
        if RANK == 1:
            same(ours, theirs)
        parts = [sample(dtype, seed=r) for r in range(SIZE)]
        output = torch.zeros_like(parts[0])
        dist.reduce_scatter(output, [p.clone() for p in parts])
        expected = sum(sample(torch.float64, rank=r, seed=RANK) for r in range(SIZE)).to(dtype)
        same(output, expected)
        output = torch.zeros_like(output)
        dist.reduce_scatter_tensor(output, torch.cat(parts))
        same(output, expected)
    mean = torch.zeros(37)
    dist.reduce_scatter_tensor(mean, torch.cat([sample(torch.float32, seed=r) for r in range(SIZE)]), dist.ReduceOp.AVG)
    torch.testing.assert_close(mean, sum(sample(torch.float32, rank=r, seed=RANK) for r in range(SIZE)) / SIZE)


@check
def scattered_in_place_as_gloo():
    for dtype in [*FLOATS, *INTEGERS]:
        for count in (37, 40_000):
            parts = [sample(dtype, count, seed=r) for r in range(SIZE)]
            expected = sum(sample(torch.float64, count, rank=r, seed=RANK) for r in range(SIZE)).to(dtype)
            for group in (None, gloo):
                whole = torch.cat(parts)
                slices = whole.chunk(SIZE)
                dist.reduce_scatter_tensor(slices[RANK], whole, group=group)
                same(whole, torch.cat([expected if r == RANK else part for r, part in enumerate(parts)]))
            lists = [part.clone() for part in parts]
            dist.reduce_scatter(lists[RANK], lists)
            same(torch.cat(lists), whole)
            whole = torch.cat(parts)
            with dist._coalescing_manager():
                dist.reduce_scatter_tensor(whole.chunk(SIZE)[RANK], whole)
            same(whole.chunk(SIZE)[RANK], expected)
            lists = [part.clone() for part in parts]
            dist.scatter(lists[RANK], lists if RANK == 1 else None, src=1)
            same(lists[RANK], sample(dtype, count, rank=1, seed=RANK))
            whole = torch.cat(parts)
            dist.all_gather_into_tensor(whole, whole.chunk(SIZE)[RANK])
            same(whole, torch.cat([sample(dtype, count, rank=r, seed=r) for r in range(SIZE)]))
    whole = torch.zeros(4 * SIZE)
    raises(ValueError, "overlaps input 0", lambda: dist.reduce_scatter_tensor(whole[1:5], whole))


@check
def all_to_all_single_with_splits():
    sent = torch.arange(SIZE * (SIZE + 1) // 2, dtype=torch.float32) + 100 * RANK
    splits = list(range(1, SIZE + 1))
    received = torch.zeros(SIZE * (RANK + 1))
    dist.all_to_all_single(received, sent, [RANK + 1] * SIZE, splits)
    theirs = torch.zeros_like(received)
    dist.all_to_all_single(theirs, sent, [RANK + 1] * SIZE, splits, group=gloo)
    same(received, theirs)


@check
def async_works_and_futures():
    tensors = [torch.full((n,), float(RANK)) for n in (3, 300, 300_000)]
    works = [dist.all_reduce(t, async_op=True) for t in tensors]
    for work, tensor in zip(works, tensors, strict=True):
        value = work.get_future().wait()
        assert value[0].data_ptr() == tensor.data_ptr()
        work.wait()
        assert work.is_completed()
        assert work.is_success()
        assert work.result()[0] is tensor or work.result()[0].data_ptr() == tensor.data_ptr()
        assert tensor[0] == sum(range(SIZE))
    # A callback can wait for another operation, as PyTorch's PowerSGD does.
    first, second = torch.ones(10), torch.ones(10)

    def then(future):
        return [dist.all_reduce(second, async_op=True).get_future().wait()[0] + future.value()[0]]

    assert dist.all_reduce(first, async_op=True).get_future().then(then).wait()[0][0] == 2 * SIZE
    work = dist.barrier(async_op=True)
    work.wait(datetime.timedelta(seconds=10))


@check
def coalescing():
    tensors = [torch.full((n,), float(RANK + 1)) for n in (1, 10, 1000)]
    total = sum(range(1, SIZE + 1))
    with dist._coalescing_manager():
        for t in tensors:
            dist.all_reduce(t)
    assert all(torch.equal(t, torch.full_like(t, total)) for t in tensors)
    gathered = [torch.zeros(SIZE * n) for n in (2, 5)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for t in gathered:
            dist.all_gather_into_tensor(t, torch.full((t.numel() // SIZE,), float(RANK)))
    manager.wait()
    assert all(t[-1] == SIZE - 1 for t in gathered)
    scattered = [torch.zeros(n) for n in (2, 5)]
    with dist._coalescing_manager():
        for t in scattered:
            dist.reduce_scatter_tensor(t, torch.ones(t.numel() * SIZE))
    assert all(t[0] == SIZE for t in scattered)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        one, two = torch.ones(4), torch.full((4,), float(RANK))
        work = dist.broadcast(two, 0, async_op=True)
        dist.reduce(one, 0, async_op=True)
    manager.wait()
    work.wait()
    assert two[0] == 0
    assert RANK > 0 or one[0] == SIZE
    dist.all_reduce_coalesced([torch.ones(2), torch.ones(3)])
    mixed = [torch.ones(2), torch.ones(3, dtype=torch.int64)]
    dist.group.WORLD.allreduce_coalesced(mixed).wait()
    assert mixed[0][0] == SIZE
    assert mixed[1][0] == SIZE
    lists = [[torch.zeros(2), torch.zeros(3, dtype=torch.int32)] for _ in range(SIZE)]
    inputs = [torch.full((2,), float(RANK)), torch.full((3,), RANK, dtype=torch.int32)]
    dist.group.WORLD._get_backend(torch.device("cpu")).allgather_coalesced(lists, inputs).wait()
    assert all(lists[r][0][0] == r and lists[r][1][2] == r for r in range(SIZE))


@check
def messages():
    right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    out, got = torch.full((1000,), float(RANK)), torch.zeros(1000)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, out, right)])
    for request in requests:
        request.wait()
    assert got[0] == left
    if RANK == 0:
        for peer in range(1, SIZE):
            dist.send(torch.tensor([peer]), peer, tag=7)
        seen = set()
        for _ in range(1, SIZE):
            value = torch.zeros(1)
            source = dist.recv(value)
            assert value[0] == source
            seen.add(source)
        assert seen == set(range(1, SIZE))
    else:
        value = torch.zeros(1, dtype=torch.int64)
        dist.recv(value, 0, tag=7)
        assert value[0] == RANK
        dist.send(torch.tensor([float(RANK)]), 0)


@check
def objects():
    gathered = [None] * SIZE
    dist.all_gather_object(gathered, {"rank": RANK})
    assert gathered == [{"rank": r} for r in range(SIZE)]
    items = ["a", (1, 2)] if RANK == 1 else [None, None]
    dist.broadcast_object_list(items, src=1)
    assert items == ["a", (1, 2)]
    mine = [None]
    dist.scatter_object_list(mine, list(range(SIZE)) if RANK == 0 else None, src=0)
    assert mine == [RANK]
    if RANK == 0:
        dist.send_object_list(["x"], 1)
    elif RANK == 1:
        got = [None]
        dist.recv_object_list(got, 0)
        assert got == ["x"]


@check
def groups_of_some_ranks():
    pair = dist.new_group([1, 0])
    if RANK < 2:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=pair)
        assert tensor[0] == 2
    half = dist.distributed_c10d._get_default_group().split_group([0, 1], group_name="half") if RANK < 2 else None
    if half is not None:
        tensor = torch.ones(3)
        half.allreduce([tensor]).wait()
        assert tensor[0] == 2
        assert half.size() == 2
    by_size, _ = dist.new_subgroups(group_size=SIZE)
    dist.barrier(by_size)


@check
def functional_collectives():
    import torch.distributed._functional_collectives as funcol

    world = dist.group.WORLD
    total = funcol.all_reduce(torch.ones(4), "sum", world)
    assert (total + 0)[0] == SIZE
    gathered = funcol.all_gather_tensor(torch.full((2,), float(RANK)), 0, world)
    assert gathered[-1] == SIZE - 1
    scattered = funcol.reduce_scatter_tensor(torch.ones(2 * SIZE), "avg", 0, world)
    assert scattered[0] == 1
    several = funcol.all_reduce_coalesced([torch.ones(1), torch.ones(2)], "sum", world)
    assert all((t + 0)[0] == SIZE for t in several)
    exchanged = funcol.all_to_all_single(torch.full((SIZE,), float(RANK)), None, None, world)
    assert exchanged[-1] == SIZE - 1
    assert (funcol.broadcast(torch.full((2,), float(RANK)), 1, world) + 0)[0] == 1


@check
def barriers():
    dist.barrier()
    ht.monitored_barrier(timeout=10)
    world = dist.distributed_c10d._get_default_group()
    world.monitored_barrier(datetime.timedelta(seconds=10), True)
    assert ht.group_from_torch().size() == SIZE


@check
def completion_hooks():
    world = dist.new_group()
    seen = []
    world._register_on_completion_hook(seen.append)
    dist.all_reduce(torch.ones(3), group=world)
    dist.barrier(world)
    world._wait_for_pending_works()
    assert [str(info.op_type).split(".")[-1] for info in seen] == ["ALLREDUCE", "BARRIER"]
    assert seen[0].active_duration.total_seconds() >= 0


@check
def invalid_arguments():
    two = [torch.ones(1), torch.ones(1)]
    raises(ValueError, "expected 1 tensor, got 2", lambda: dist.group.WORLD.allreduce(two).wait())
    raises(ValueError, "sizes do not match", lambda: dist.all_gather_into_tensor(torch.zeros(3), torch.zeros(3)))
    raises(ValueError, "band", lambda: dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    raises(NotImplementedError, "cpu:hookline,cuda:nccl", lambda: backend.allreduce([torch.zeros(3, device="meta")]))
    conjugate = torch.ones(3, dtype=torch.complex64).conj()
    raises(ValueError, "resolve_conj", lambda: backend.broadcast([conjugate], dist.BroadcastOptions()))


@check
def a_mismatch_is_an_error_on_every_rank():
    group = dist.new_group()
    tensor = torch.full((4,), 5.0)

    def different():
        if RANK == 0:
            dist.all_reduce(tensor, group=group)
        else:
            dist.broadcast(tensor, 0, group=group)

    raises(dist.DistBackendError, "Mismatch", different)
    assert tensor[0] == 5
    dist.all_reduce(tensor, group=group)  # the group is still usable
    assert tensor[0] == 5 * SIZE
    raises(dist.DistBackendError, "Mismatch", lambda: dist.all_reduce(torch.ones(RANK + 1), group=group))


@check
def timeouts_and_aborts():
    group = dist.new_group(timeout=datetime.timedelta(milliseconds=300))
    if RANK == 0:
        work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
        raises(dist.DistBackendError, "Timeout", work.wait)
        assert work.get_future_result().wait() == WorkResult.TIMEOUT.value
        raises(dist.DistBackendError, "Timeout", lambda: dist.all_reduce(torch.ones(2), group=group))
    dist.barrier()
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True) if RANK > 0 else None
    if RANK == 0:
        group.abort()
    else:
        future = work.get_future()
        raises(dist.DistBackendError, "Aborted", work.wait)
        raises(dist.DistBackendError, "Aborted", future.wait)
        assert work.get_future_result().wait() == WorkResult.COMM_ERROR.value
    dist.barrier()
    group = dist.new_group()
    if RANK == 0:
        raises(dist.DistBackendError, "Rank 1", lambda: ht.monitored_barrier(group, timeout=0.3))
    dist.barrier()


@check
def objects_cross_between_modules():
    group = ht.group_from_torch()
    assert isinstance(group, hookline.ProcessGroup)
    assert group.capabilities.lanes > 1
    tensor = torch.ones(3)
    group.allreduce([tensor]).wait()
    assert tensor[0] == SIZE
    lines = Path("/proc/self/maps").read_text().splitlines()
    mapped = {line.split()[-1] for line in lines if "libhookline" in line}
    assert len(mapped) == 1, mapped


run()
dist.destroy_process_group()
