"""hookline.numpy.DataParallel: steps with copies and views, threads, accumulation, and errors."""

import threading

import numpy as np
import pytest
from python_groups import Forwarding
from training_steps import expect, gradients, mean_hook, model, step

import hookline as hl


def test_numpy_is_loaded_when_it_is_used():
    assert hl.numpy.DataParallel
    assert "numpy" not in hl.__all__
    with pytest.raises(AttributeError, match="nonsense"):
        _ = hl.nonsense


def test_gradients_hold_the_means(ranks):
    def body(group):
        params = model()
        params["w"] += group.rank()
        ddp = hl.numpy.DataParallel(params, group)
        assert params["w"].max() == 0  # broadcast from rank 0
        for s in range(3):
            grads = gradients(params, group.rank(), s)
            step(ddp, grads)
            expect(grads, 1.5 + s)
        stats = ddp.stats()
        assert stats["step"] == 3
        assert stats["hook"] == "allreduce"
        assert stats["bytes_sent"] == sum(p.nbytes for p in params.values())
        assert len(stats["buckets"]) == 2

    ranks(2, body)


def test_writing_into_the_bucket(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)
        views = {name: ddp.gradient(name) for name in params}
        for s in range(3):
            for name in ("b", "w", "v"):
                views[name][...] = group.rank() + s
                ddp.ready(name)
            ddp.finish()
            expect(views, s + 0.5)

    ranks(2, body)


def test_buckets_by_name(ranks):
    def body(group):
        params = model()
        given = [["v"], ["b", "w"]]
        ddp = hl.numpy.DataParallel(params, group, buckets=given)
        for s in range(3):
            grads = gradients(params, group.rank(), s)
            step(ddp, grads)
            expect(grads, 1.5 + s)
            assert ddp.buckets() == given
        with pytest.raises(hl.InvalidArgument, match="'x'"):
            hl.numpy.DataParallel(params, group, buckets=[*given, ["x"]])
        with pytest.raises(hl.InvalidArgument, match="'b' is in none of the 2 buckets"):
            hl.numpy.DataParallel(params, group, buckets=[["v"], ["w"]])

    ranks(2, body)


@pytest.mark.parametrize("cap", [None, 1e-5])
def test_a_hook_in_python(ranks, cap):
    def body(group):
        params = model()
        seen = []

        def hook(state, bucket):
            assert state is group
            seen.append((bucket.index(), bucket.is_last(), [g.shape for g in bucket.gradients()]))
            return mean_hook(state, bucket)

        registered = hl.numpy.DataParallel(params, group, bucket_cap_mb=cap)
        registered.register_comm_hook(group, hook)
        for ddp in (registered, hl.numpy.DataParallel(params, group, hook, bucket_cap_mb=cap)):
            seen.clear()
            for s in range(3):
                grads = gradients(params, group.rank(), s)
                step(ddp, grads)
                expect(grads, 1.5 + s)
            count = 2 if cap is None else 3
            assert [i for i, _, _ in seen] == [*range(count)] * 3
            assert [last for _, last, _ in seen[:count]] == [False] * (count - 1) + [True]
            assert "hook" in ddp.stats()["hook"]

    ranks(2, body)


def test_reducer_has_the_arguments_of_data_parallel():
    (group,) = hl.make_thread_groups(1)
    params = {"a": np.zeros(1000, np.float32), "b": np.zeros(1000, np.float32)}
    for cap, buckets in ((None, [[1, 0]]), (1e-3, [[1], [0]])):
        reducer = hl.Reducer(params=[*params.items()], process_group=group, bucket_cap_mb=cap, reduction="sum")
        assert reducer.buckets() == buckets
    reducer.mark_ready("a", np.ones(1000, np.float32))
    reducer.mark_ready("b", np.ones(1000, np.float32))
    reducer.finalize()
    copied = np.zeros(1000, np.float32)
    reducer.copy_gradient("a", destination=copied)
    assert copied.min() == 1
    reducer.replace_comm_hook(None, "fp16")
    assert reducer.comm_hook.name == "fp16"


def test_no_sync_join_and_weights(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group)
        with ddp.no_sync():
            step(ddp, gradients(params, group.rank()))
        grads = gradients(params, group.rank())
        step(ddp, grads)
        expect(grads, 3.0)
        ddp.set_weight(3 if group.rank() == 0 else 1)
        grads = gradients(params, group.rank())
        step(ddp, grads)
        expect(grads, 1.25)
        ddp.set_weight(1)
        with ddp.join():
            for s in range(1 + group.rank()):
                grads = gradients(params, group.rank())
                step(ddp, grads)
                expect(grads, 1.5 if s == 0 else 1.0)
        with pytest.raises(ValueError, match="no_sync contexts cannot be nested"), ddp.no_sync(), ddp.no_sync():
            pass

    ranks(2, body)


def test_frozen_parameters_are_broadcast_and_compared(ranks):
    def body(group):
        params = model()
        for array in params.values():
            array += group.rank()
        ddp = hl.numpy.DataParallel(params, group, frozen=["v"])
        assert params["v"].max() == 0
        assert ddp.buckets() == [["b", "w"]]
        for name in ("b", "w"):
            ddp.ready(name, np.ones_like(params[name]))
        ddp.finish()
        with pytest.raises(ValueError, match="'v' is frozen"):
            ddp.ready("v")
        with pytest.raises(hl.Mismatch, match=r"rank 0 has parameter 'v' .* frozen"):
            hl.numpy.DataParallel(params, group, frozen=["v"] if group.rank() == 0 else [])

    ranks(2, body)


def test_batches_that_differ_are_named(ranks):
    def body(group):
        params = model()
        ddp = hl.numpy.DataParallel(params, group)
        assert ddp.step_id is None
        for batch in range(3):
            ddp.step_id = np.int64(batch)
            step(ddp, gradients(params, group.rank()))
        assert ddp.step_id == 2
        ddp.step_id = 3 if group.rank() == 0 else 5
        grads = gradients(params, group.rank())
        with pytest.raises(hl.Mismatch, match=r"rank 0: .*step 4, bucket 0, step_id 3.*rank 1: .*step_id 5"):
            step(ddp, grads)
        expect(grads, group.rank() + 1.0)  # unchanged

    ranks(2, body)


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_step_ids_are_numbers_of_32_bits(ranks, bad):
    def body(group):
        ddp = hl.numpy.DataParallel(model(), group)
        with pytest.raises(ValueError, match="4294967295"):
            ddp.step_id = bad
        with pytest.raises(TypeError):
            ddp.step_id = "3"
        ddp.step_id = None

    ranks(1, body)


def test_sparse_and_unused_parameters(ranks):
    def body(group):
        params = {**model(), "rows": np.zeros((100, 2), np.float32)}
        ddp = hl.numpy.DataParallel(params, group, find_unused_parameters=True, sparse=["rows"])
        values = np.ones((2, 2), np.float32)
        ddp.ready("rows", (np.array([5, 7 + group.rank()]), values))
        w = np.ones((6, 4), np.float32)
        if group.rank() == 0:
            ddp.ready("w", w)
        ddp.finish()
        indices, means = ddp.sparse_gradient("rows")
        assert indices.tolist() == [5, 7, 8]
        assert means[:, 0].tolist() == [1.0, 0.5, 0.5]
        assert ddp.stats()["unused"] == ["b", "v"]
        assert ddp.gradient("w").max() == 0.5

    ranks(2, body)


def test_errors_name_the_parameter():
    (group,) = hl.make_thread_groups(1)
    ddp = hl.numpy.DataParallel(model(), group)
    ddp.ready("b")
    with pytest.raises(ValueError, match=r"mark a variable ready only once. Parameter 'b' was marked as ready twice"):
        ddp.ready("b")
    with pytest.raises(RuntimeError, match=r"Expected to have finished reduction in the prior iteration.*w, v"):
        ddp.finish()
    with pytest.raises(ValueError, match="no parameter is called 'x'"):
        ddp.ready("x")
    with pytest.raises(ValueError, match=r"expected a writable float32\[4\], got float32\[3\]"):
        ddp.ready("b", np.zeros(3, np.float32))
    with pytest.raises(RuntimeError, match="DistributedDataParallel is not needed"):
        hl.numpy.DataParallel({}, group)
    with pytest.raises(ValueError, match="unknown parameter 'y'"):
        hl.numpy.DataParallel(model(), group, ignored=["y"])
    with pytest.raises(ValueError, match="unknown parameter 'y'"):
        hl.Reducer([*model().items()], group, ignored="y")
    for cap in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="bucket_cap_mb: expected a positive number, got"):
            hl.numpy.DataParallel(model(), group, bucket_cap_mb=cap)


def test_invalid_parameter_names():
    (group,) = hl.make_thread_groups(1)
    for params in ([np.zeros(2, np.float32)], np.zeros(2, np.float32)):
        with pytest.raises(TypeError, match=r"params: expected a mapping of names to arrays, got \w+\.(list|ndarray)$"):
            hl.numpy.DataParallel(params, group)
    for argument in ("sparse", "ignored", "reduce_last"):
        with pytest.raises(TypeError, match=rf"{argument}: expected a list of names, got a string\. Pass \['w'\]"):
            hl.numpy.DataParallel(model(), group, **{argument: "w"})  # a string is also a sequence of valid names
    with pytest.raises(TypeError, match="a bucket: expected a list of names, got a string"):
        hl.numpy.DataParallel({"w": np.zeros(2, np.float32)}, group, buckets=["w"])


def test_ready_from_several_threads(ranks):
    def body(group):
        params = {f"p{i}": np.zeros(100, np.float32) for i in range(12)}
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-3)
        ddp.register_comm_hook(group, mean_hook)
        for s in range(3):
            grads = gradients(params, group.rank(), s)
            names = list(grads)

            def work(part, grads=grads, names=names):
                for name in names[part::3]:
                    ddp.ready(name, grads[name])

            threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            ddp.finish()
            expect(grads, 1.5 + s)

    ranks(2, body)


def test_broadcast_coalesced(ranks):
    def body(group):
        arrays = [np.full((3, 4), group.rank(), np.float32), np.full(5, group.rank(), np.int64)]
        hl.broadcast_coalesced(group, arrays, buffer_size=16, root=1)
        assert [int(a.min()) for a in arrays] == [1, 1]
        assert [int(a.max()) for a in arrays] == [1, 1]

    ranks(2, body)


def test_models_that_differ(ranks):
    def body(group):
        params = model() if group.rank() == 0 else {"w": np.zeros(3)}
        with pytest.raises(hl.Mismatch, match=r"rank 0 has parameter 'w' float32\[6, 4\], rank 1 has"):
            hl.numpy.DataParallel(params, group)

    ranks(2, body)


def test_processes_and_a_clean_end(launch):
    """The program of the documentation, which exits with a registered hook."""
    result = launch(
        2,
        """
        import numpy as np, hookline as hl
        group = hl.init_process_group()
        params = {"w": np.zeros((64, 10), np.float32), "b": np.zeros(10, np.float32)}
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1)
        def my_hook(state, bucket):
            fut = state.allreduce([bucket.buffer()]).get_future()
            return fut.then(lambda f: f.value()[0] / state.size())
        for s in range(3):
            grads = {n: np.full(p.shape, group.rank() + s, np.float32) for n, p in params.items()}
            for name in reversed(grads): ddp.ready(name, grads[name])
            ddp.finish()
            assert grads["w"].max() == grads["b"].min() == s + 0.5, grads
            ddp.replace_comm_hook(group, my_hook)
        print(ddp.stats()["step"])
        """,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("3") == 2
    assert "leaked" not in result.stderr


def test_a_group_that_overrides_allreduce_alone(launch):
    """The process group class of the documentation, and training with it."""
    result = launch(
        2,
        """
        import numpy as np, hookline as hl
        class Counting(hl.ProcessGroup):
            def __init__(self, inner):
                super().__init__(inner.rank(), inner.size()); self.inner, self.bytes = inner, 0
            def getBackendName(self): return "counting"
            def allreduce(self, tensors, opts=None):
                self.bytes += sum(t.nbytes for t in tensors)
                return self.inner.allreduce(tensors, opts)
        inner = hl.init_process_group()
        inner.register_on_completion_hook(lambda info: print(info.op_type, info.seq, info.active_duration))
        group = Counting(inner)

        params = {"w": np.full((64, 10), group.rank(), np.float32), "b": np.zeros(10, np.float32)}
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)
        assert params["w"].max() == 0
        def my_hook(state, bucket):
            fut = state.allreduce([bucket.buffer()]).get_future()
            return fut.then(lambda f: f.value()[0] / state.size())
        for s in range(4):
            if s == 2: ddp.replace_comm_hook(group, my_hook)
            before = group.bytes
            grads = {n: np.full(p.shape, group.rank() + s, np.float32) for n, p in params.items()}
            for name in grads: ddp.ready(name, grads[name])
            ddp.finish()
            assert grads["w"].max() == grads["b"].min() == s + 0.5, grads
            assert group.bytes - before >= 650 * 4
        with ddp.join():
            for s in range(1 + group.rank()):
                for name in grads: ddp.ready(name, grads[name])
                ddp.finish()
        hl.broadcast_coalesced(group, list(params.values()), buffer_size=1 << 20, root=0)
        try:
            hl.numpy.DataParallel({"w": params["w"][group.rank():]}, group)
        except hl.Mismatch as error:
            print("differ" if "rank 0 has parameter 'w' float32[64, 10]" in str(error) else error)
        """,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("differ") == 2
    assert "allreduce" in result.stdout


def test_an_error_in_a_join_is_the_users_own(ranks):
    """The user's exception propagates even if the group does not implement abort."""

    class Silent(Forwarding):
        def abort(self):
            raise NotImplementedError("nobody listens")

    def body(inner):
        ddp = hl.numpy.DataParallel(model(), Silent(inner))
        with pytest.raises(KeyError, match="mine"), ddp.join():
            raise KeyError("mine")

    ranks(1, body)


def test_groups_written_in_python(ranks):
    """The reducer and its hooks call the Python methods."""

    def body(inner):
        group = Forwarding(inner)
        params = model()
        ddp = hl.numpy.DataParallel(params, group, bucket_cap_mb=1e-5)
        for s in range(4):
            if s == 2:
                ddp.register_comm_hook(group, mean_hook)
            grads = gradients(params, group.rank(), s)
            step(ddp, grads)
            expect(grads, 1.5 + s)
        names = [name for name, _ in group.calls]
        assert names.count("allreduce") >= 12
        assert "broadcast" in names

    ranks(2, body)
