"""Every collective, with the names and argument shapes of torch, on NumPy arrays and torch tensors."""

import datetime

import ml_dtypes
import numpy as np
import pytest
import torch

import hookline
from hookline import ReduceOp

N = 3


def numpy_full(count, value):
    return np.full(count, value, np.float32)


def numpy_bfloat16(count, value):
    return np.full(count, value, ml_dtypes.bfloat16)


def torch_full(count, value):
    return torch.full((count,), float(value))


def torch_bfloat16(count, value):
    return torch.full((count,), float(value), dtype=torch.bfloat16)


def group_memory(group):
    def full(count, value):
        tensor = group.empty(count)
        np.asarray(tensor)[:] = value
        return tensor

    return full


def values(array):
    if isinstance(array, torch.Tensor):
        array = array.float().numpy()
    return [float(v) for v in np.asarray(array, dtype=np.float32).reshape(-1)]


KINDS = {f.__name__: lambda group, f=f: f for f in (numpy_full, numpy_bfloat16, torch_full, torch_bfloat16)}
KINDS["group_memory"] = group_memory


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def test_reductions(ranks, kind):
    def body(group):
        full, rank = kind(group), group.rank()
        x, y = full(5, rank + 1), full(2, rank)
        assert group.allreduce([x]).wait() is True
        assert values(x) == [6.0] * 5
        group.allreduce_coalesced([x, y], ReduceOp.MAX).wait()
        assert (values(x), values(y)) == ([6.0] * 5, [2.0] * 2)
        z = full(4, rank + 1)
        group.reduce([z], root=1, op=ReduceOp.PRODUCT).wait()
        assert rank != 1 or values(z) == [6.0] * 4
        group.broadcast(z, 1).wait()
        assert values(z) == [6.0] * 4
        out, parts = full(2, 0), [full(2, rank + i) for i in range(N)]
        group.reduce_scatter([out], [parts]).wait()
        assert values(out) == [3.0 + 3 * rank] * 2
        whole = full(2 * N, rank)
        for name in ("reduce_scatter_tensor", "_reduce_scatter_base", "reduce_scatter_single"):
            out = full(2, 0)
            getattr(group, name)(out, whole, ReduceOp.SUM).wait()
            assert values(out) == [3.0] * 2
        outs = [full(1, 0), full(2, 0)]
        group.reduce_scatter_tensor_coalesced(outs, [full(N, 1), full(2 * N, 2)]).wait()
        assert [values(o) for o in outs] == [[3.0], [6.0] * 2]

    ranks(N, body)


def test_reductions_that_scatter_in_place(ranks, kind):
    def body(group):
        full, rank = kind(group), group.rank()
        whole = full(2 * N, rank)
        own = whole[2 * rank : 2 * rank + 2]
        group.reduce_scatter_tensor(own, whole).wait()
        assert values(whole) == [3.0 if i // 2 == rank else rank for i in range(2 * N)]
        parts = [full(2, rank) for _ in range(N)]
        group.reduce_scatter([parts[rank]], [parts]).wait()
        assert [values(p) for p in parts] == [[3.0 if i == rank else rank] * 2 for i in range(N)]
        parts = [full(2, i) for i in range(N)]
        group.scatter([parts[rank]], [parts] if rank == 1 else [], root=1).wait()
        assert values(parts[rank]) == [rank] * 2

    ranks(N, body)


def test_gathers(ranks, kind):
    def body(group):
        full, rank = kind(group), group.rank()
        mine = full(2, rank)
        for shape in (lambda outs: [outs], lambda outs: outs):
            outs = [full(2, -1) for _ in range(N)]
            group.allgather(shape(outs), [mine]).wait()
            assert [values(o) for o in outs] == [[0.0] * 2, [1.0] * 2, [2.0] * 2]
        for name in ("allgather_into_tensor", "_allgather_base", "all_gather_single"):
            out = full(2 * N, -1)
            getattr(group, name)(out, mine).wait()
            assert values(out) == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
        outs = [full(2 * N, -1), full(N, -1)]
        group.all_gather_single_coalesced(outs, [mine, full(1, rank)]).wait()
        assert values(outs[1]) == [0.0, 1.0, 2.0]
        outs[1] = full(N, -1)
        group.allgather_into_tensor_coalesced(outs, [mine, full(1, rank)]).wait()
        assert values(outs[1]) == [0.0, 1.0, 2.0]
        lists = [[full(2, -1), full(1, -1)] for _ in range(N)]
        group.allgather_coalesced(lists, [mine, full(1, rank + 5)]).wait()
        assert [[values(o) for o in of_rank] for of_rank in lists] == [[[r] * 2, [r + 5]] for r in range(N)]
        outs = [full(2, -1) for _ in range(N)] if rank == 2 else []
        group.gather([outs] if outs else [], [mine], root=2).wait()
        assert [values(o) for o in outs] == ([[0.0] * 2, [1.0] * 2, [2.0] * 2] if rank == 2 else [])
        out = full(2, -1)
        group.scatter([out], [[full(2, 7 + i) for i in range(N)]] if rank == 0 else None, root=0).wait()
        assert values(out) == [7.0 + rank] * 2

    ranks(N, body)


def test_all_to_all(ranks, kind):
    def body(group):
        full, rank = kind(group), group.rank()
        outs = [full(2, -1) for _ in range(N)]
        group.alltoall(outs, [full(2, 10 * rank + i) for i in range(N)]).wait()
        assert [values(o)[0] for o in outs] == [10.0 * i + rank for i in range(N)]
        out = full(N, -1)
        group.all_to_all_single(out, full(N, rank)).wait()
        assert values(out) == [0.0, 1.0, 2.0]
        rows = [rank + 1] * N  # rank r sends r + 1 rows to gathered
        out = full(1 + 2 + 3, -1)
        group.alltoall_base(out, full(sum(rows), rank), [1, 2, 3], rows).wait()
        assert values(out) == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]

    ranks(N, body)


def test_option_objects_do_not_change_the_peer(ranks):
    def body(group):
        got = np.zeros(1)
        options = hookline.BroadcastOptions(rootRank=0, timeout=20)
        if group.rank() == 1:
            group.send([np.full(1, 7.0)], 2, timeout=options).wait()
        if group.rank() == 2:
            group.recv([got], 1, timeout=options).wait()
            assert got[0] == 7

    ranks(3, body)


def test_messages(ranks, kind):
    def body(group):
        full, rank = kind(group), group.rank()
        if rank == 0:
            got = full(3, -1)
            work = group.recv([got], 1, tag=4)
            work.wait()
            assert (values(got), work.source_rank()) == ([1.0] * 3, 1)
            work = group.recv_anysource([got], tag=5)
            work.wait()
            assert (values(got), work.source_rank()) == ([2.0] * 3, 2)
        else:
            group.send([full(3, rank)], 0, tag=3 + rank).wait()
        group.barrier().wait()
        group.monitored_barrier(timeout=20)

    ranks(N, body)


@pytest.mark.parametrize("everyone", [False, True])
def test_monitored_barrier_names_missing_ranks(ranks, everyone):
    who = "Ranks 1, 2" if everyone else "Rank 1"

    def body(group):
        if group.rank() == 0:
            with pytest.raises(hookline.Timeout, match=rf"^\[Rank 0\]: {who} failed to pass monitoredBarrier in "):
                group.monitored_barrier(timeout=0.03, wait_all_ranks=everyone)
        else:
            with pytest.raises(hookline.Aborted, match=f"{who} failed to pass"):
                group.recv([np.ones(1)], 0).wait()

    ranks(N, body)


def test_every_op(ranks):
    # Ranks 0 and 1 have 6 and 3.
    expected = {"SUM": 9, "AVG": 4, "PRODUCT": 18, "MIN": 3, "MAX": 6, "BAND": 2, "BOR": 7, "BXOR": 5}

    def body(group):
        for name, value in expected.items():
            x = np.full(3, [6, 3][group.rank()], np.int32)
            group.allreduce([x], op=getattr(ReduceOp, name)).wait()
            assert x.tolist() == [value] * 3, name
        x = np.ones(3, np.float64)
        group.allreduce([x], op=ReduceOp.PREMUL_SUM(0.25)).wait()
        assert x.tolist() == [0.5] * 3
        with pytest.raises(hookline.InvalidArgument, match="bxor"):
            group.allreduce([np.ones(3, np.float32)], op=ReduceOp.BXOR)

    ranks(2, body)


def test_ops_by_name(ranks):
    def body(group):
        for op, value in {"avg": 1.5, "AVG": 1.5, "Sum": 3, "max": 2, "product": 2}.items():
            for call in (
                lambda x, op=op: group.allreduce([x], op=op),
                lambda x, op=op: group.allreduce([x], op),
                lambda x, op=op: group.allreduce_coalesced([x], op=op),
                lambda x, op=op: group.allreduce([x], hookline.AllreduceOptions(op)),
            ):
                x = np.full(2, 1.0 + group.rank())
                call(x).wait()
                assert x.tolist() == [value] * 2, op
        options = hookline.ReduceOptions(reduceOp="min")
        options.reduceOp = "bor"
        assert options.reduceOp == ReduceOp.BOR
        names = r"expected one of SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR .* got 'mean'"
        with pytest.raises(hookline.InvalidArgument, match=names):
            group.allreduce([x], op="mean")
        with pytest.raises(hookline.InvalidArgument, match=names):
            hookline.ReduceScatterOptions("mean")
        with pytest.raises(hookline.InvalidArgument, match=r"ReduceOp\.PREMUL_SUM\(factor\)"):
            group.allreduce([x], op="premul_sum")
        with pytest.raises(TypeError, match=r"reduceOp: expected a hookline\.ReduceOp or its name, got float"):
            options.reduceOp = 1.0

    ranks(2, body)


def test_option_objects_and_keywords_are_equivalent(ranks):
    second = datetime.timedelta(seconds=9)

    def body(group):
        rank = group.rank()
        opts = hookline.AllreduceOptions(reduceOp=ReduceOp.MAX, timeout=9)
        for call in (
            lambda x: group.allreduce([x], opts),
            lambda x: group.allreduce([x], opts=opts),
            lambda x: group.allreduce(x, op=ReduceOp.MAX, timeout=second),
            lambda x: group.allreduce((x,), ReduceOp.MAX, 9),
            lambda x: group.allreduce([x], op=ReduceOp.MAX, opts=hookline.AllreduceOptions(timeout=second)),
        ):
            x = np.full(2, rank, np.int64)
            call(x).wait(timeout=9.0)
            assert x.tolist() == [1, 1]
        x = np.full(2, rank, np.int64)
        group.broadcast([x], hookline.BroadcastOptions(rootRank=1)).wait()
        assert x.tolist() == [1, 1]
        group.reduce([x], opts=hookline.ReduceOptions(ReduceOp.SUM, rootRank=1)).wait()
        assert x.tolist() == [1 + rank] * 2
        group.barrier(hookline.BarrierOptions(timeout=9)).wait()
        with pytest.raises(TypeError, match=r"op: expected a hookline\.ReduceOp or its name, got int"):
            group.allreduce([x], op=3)
        with pytest.raises(TypeError, match="timeout: expected seconds"):
            group.allreduce([x], timeout="soon")
        with pytest.raises(TypeError, match="opts: expected an option object"):
            group.allreduce([x], opts=3)

    ranks(2, body)


def test_option_objects():
    options = hookline.ReduceOptions(reduceOp=ReduceOp.MIN, rootRank=2, rootTensor=1, timeout=1.5)
    assert (options.reduceOp, options.rootRank, options.rootTensor) == (ReduceOp.MIN, 2, 1)
    assert options.timeout == datetime.timedelta(seconds=1.5)
    with pytest.raises(hookline.InvalidArgument, match="rootTensor"):
        hookline.make_thread_groups(1)[0].reduce([np.ones(1)], opts=options)
    options.reduceOp, options.rootRank, options.timeout = ReduceOp.PREMUL_SUM(2), 0, None
    assert (options.reduceOp, options.rootRank, options.timeout) == (ReduceOp.PREMUL_SUM(2), 0, None)
    for name in ("Allgather", "Gather", "Scatter", "ReduceScatter", "AllToAll", "Barrier", "Broadcast"):
        assert getattr(hookline, f"{name}Options")().timeout is None


def test_reduce_op():
    assert ReduceOp.SUM == ReduceOp.SUM
    assert ReduceOp.SUM != ReduceOp.AVG
    assert ReduceOp.SUM != "sum"
    assert ReduceOp.PREMUL_SUM(2.0) == ReduceOp.PREMUL_SUM(2.0) != ReduceOp.PREMUL_SUM(3.0)
    assert len({ReduceOp.SUM, ReduceOp.SUM, ReduceOp.MAX}) == 2
    assert (repr(ReduceOp.BAND), repr(ReduceOp.PREMUL_SUM(0.5))) == ("ReduceOp.BAND", "ReduceOp.PREMUL_SUM(0.5)")
    assert ReduceOp.PRODUCT.name == "product"


def test_strided_arrays(ranks):
    def body(group):
        x = np.zeros((4, 6), np.float32)
        x[:, ::2] = group.rank() + 1
        group.allreduce([x[:, ::2]]).wait()
        assert x[:, ::2].tolist() == [[3.0] * 3] * 4
        assert x[:, 1::2].tolist() == [[0.0] * 3] * 4

    ranks(2, body)


class ReadOnlyExporter:
    """Exports only a read-only DLPack 1.x capsule, as JAX arrays do."""

    def __init__(self, array):
        self.array = array.copy()
        self.array.setflags(write=False)

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_read_only_arrays_are_inputs_and_rejected_as_outputs(ranks):
    def body(group):
        x = ReadOnlyExporter(np.ones(3, np.float32))
        out = np.empty((2, 3), np.float32)
        group.allgather_into_tensor(out, x).wait()
        assert out.tolist() == [[1.0] * 3] * 2
        advice = r"read-only.*pass a writable copy, in Python np\.array\(x\); arrays of JAX"
        with pytest.raises(hookline.InvalidArgument, match=advice):
            group.allreduce([x])
        with pytest.raises(hookline.InvalidArgument, match=advice):
            hookline.broadcast_coalesced(group, [x])
        ddp = hookline.numpy.DataParallel({"w": np.zeros(3, np.float32)}, group)
        with pytest.raises(hookline.InvalidArgument, match=advice):
            ddp.ready("w", x)
        ddp.ready("w", np.array(x.array))
        ddp.finish()
        assert x.array.tolist() == [1.0] * 3

    ranks(2, body)


def test_read_only_arrays_are_refused_where_they_are_written_to(ranks):
    def body(group):
        frozen = np.ones(3, np.float32)
        frozen.setflags(write=False)
        with pytest.raises(hookline.InvalidArgument, match=r"the output .* is read-only"):
            group.allreduce([frozen])
        out = np.empty((2, 3), np.float32)
        group.allgather_into_tensor(out, frozen).wait()  # read-only inputs are allowed
        assert out.tolist() == [[1.0] * 3] * 2

    ranks(2, body)


def test_invalid_tensors(ranks):
    def body(group):
        x = np.ones(3, np.float32)
        with pytest.raises(TypeError, match="expected a tensor"):
            group.allreduce([3])
        with pytest.raises(hookline.InvalidArgument, match="root is out of range: expected 0 to 1, got 5"):
            group.broadcast([x], root=5)
        with pytest.raises(hookline.InvalidArgument, match="broadcast: expected one tensor, got 2"):
            group.broadcast([x, x])
        with pytest.raises(hookline.InvalidArgument, match="send: expected one tensor, got 0"):
            group.send([], 1)
        with pytest.raises(hookline.InvalidArgument, match="expected 2 outputs, got 1"):
            group.allgather([[np.empty(3, np.float32)]], [x])
        with pytest.raises(hookline.InvalidArgument, match=r"expected 1 tensors in each output list, .* got 2"):
            group.allgather_coalesced([[x], [x, x]], [x])
        y = np.ones(4, np.float32)
        with pytest.raises(hookline.InvalidArgument, match="output 0 overlaps input 0: expected separate memory"):
            group.reduce_scatter_tensor(y[1:3], y)

    ranks(2, body)
