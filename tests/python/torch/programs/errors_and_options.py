"""The error types and the group options of the hookline backend."""

import copy
import datetime
import pickle
import re
import shutil
import tempfile
import warnings

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch._C._distributed_c10d import Backend as C10dBackend
from torch.distributed import checkpoint
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards

import hookline as hl
import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")


def error_of(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("no exception was raised")


def step_of(group):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), process_group=group)
    return model, model(torch.ones(2)).sum()


@check
def errors_are_of_both_libraries_types():
    group = dist.new_group()
    model, loss = step_of(group)
    if RANK == 0:
        ht.group_from_torch(group).set_timeout(0.3)  # set late: a loaded machine takes longer to create the model
        work = dist.barrier(group, async_op=True)
        future = work.get_future()
        for call in (work.wait, future.wait, future.value, lambda: dist.barrier(group), loss.backward):
            error = error_of(call)
            for kind in (hl.Timeout, TimeoutError, dist.DistBackendError, RuntimeError):
                assert isinstance(error, kind), type(error).mro()
            assert str(error).startswith("Timeout: barrier"), error
            assert list(error.ranks) == list(range(1, SIZE)), error.ranks
            assert re.search(" (Timed out|closed|timeout) ", str(error)), error  # PyTorch's tests search for this text
            assert type(pickle.loads(pickle.dumps(error))) is type(error)
    dist.barrier()
    group = dist.new_group()
    model, loss = step_of(group)
    dist.barrier()  # other ranks may still be creating their models
    if RANK == 0:
        group.abort()
    for call in (lambda: dist.all_reduce(torch.ones(1), group=group), loss.backward):
        error = error_of(call)
        assert isinstance(error, hl.Aborted), type(error)
        assert isinstance(error, dist.DistBackendError), type(error)
        assert str(error).startswith("Aborted: "), error
    assert model is not None  # kept alive until here
    group = dist.new_group()
    error = error_of(lambda: dist.all_reduce(torch.ones(RANK + 1), group=group))
    assert isinstance(error, hl.Mismatch), type(error)
    assert isinstance(error, dist.DistBackendError), type(error)
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (4,))
    raises(hl.Unsupported, "expected SUM or AVG, got min", lambda: dist.all_reduce(sparse, dist.ReduceOp.MIN))
    # Registers a hookline group with NaN checks as the backend of another torch group.
    around = dist.ProcessGroup(c10d._get_default_store(), RANK, SIZE)
    inner = ht.group_from_torch(dist.new_group())
    backend = ht.group_to_torch_backend(hl.with_nan_checks(inner))
    around._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    dist.barrier()
    inner.abort("enough")
    error = error_of(lambda: around.allreduce([torch.ones(1)]).wait())
    assert isinstance(error, hl.Aborted), type(error)
    assert isinstance(error, dist.DistBackendError), type(error)


@check
def the_backend_is_for_the_cpu():
    assert c10d._device_capability() == ["cpu"]
    assert c10d._get_pg_default_device() == torch.device("cpu")
    placed = ShardMetadata([2 * RANK, 0], [2, 3], f"rank:{RANK}/cpu")
    local = [Shard(torch.full((2, 3), float(RANK)), placed)]
    sharded = init_from_local_shards(local, 2 * SIZE, 3)
    whole = torch.zeros(2 * SIZE, 3) if RANK == 0 else None
    sharded.gather(0, whole)
    if RANK == 0:
        assert whole[:, 0].tolist() == [r for r in range(SIZE) for _ in range(2)]
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    state = {"sharded": sharded, "step": 3}
    checkpoint.save(state, checkpoint_id=folder[0])
    local[0].tensor.zero_()
    checkpoint.load(state, checkpoint_id=folder[0])
    assert (sharded.local_shards()[0].tensor == RANK).all()
    dist.barrier()
    if RANK == 0:
        shutil.rmtree(folder[0])


@check
def other_devices_have_no_backend():
    def check_error(group):
        error = error_of(lambda: group._get_backend(torch.device("cuda")))
        assert isinstance(error, RuntimeError), type(error)
        assert "No backend type associated with device type cuda" in str(error), error  # PyTorch's message
        assert "takes tensors on the CPU" in str(error), error
        assert "cpu:hookline,cuda:nccl" in str(error), error

    for backend in ("hookline", "cpu:hookline"):
        check_error(dist.new_group(backend=backend))
    both = dist.new_group(backend="cpu:hookline,cuda:gloo")
    assert both._get_backend(torch.device("cuda")).name() == "gloo"
    assert both._get_backend(torch.device("cpu")).name() == "hookline"
    value = torch.ones(2)
    dist.all_reduce(value, group=both)
    assert value[0] == SIZE
    everywhere = dist.new_group(backend="cpu:hookline,cuda:hookline")  # requested explicitly: hookline's own error
    cuda, meta = everywhere._get_backend(torch.device("cuda")), torch.zeros(3, device="meta")
    raises(hl.Unsupported, "cpu:hookline,cuda:nccl", lambda: cuda.allreduce([meta]))


class Unlucky(hl.ProcessGroup):
    def allreduce(self, tensors, opts=None):
        raise ERROR


ERROR = KeyError("test failure")


@check
def exceptions_of_python_groups_keep_their_identity():
    backend = ht.group_to_torch_backend(Unlucky(RANK, SIZE))
    try:
        backend.allreduce([torch.ones(1)], dist.AllreduceOptions()).wait()
    except KeyError as error:
        assert error is ERROR  # noqa: PT017
    else:
        raise AssertionError("no KeyError")


@check
def options():
    seconds = lambda group: ht.group_from_torch(group).timeout.total_seconds()  # noqa: E731
    name = lambda group: ht.group_from_torch(group).backend_name()  # noqa: E731
    gloo = ht.Options(backend="gloo", backend_options={"address": "127.0.0.1"}, timeout=70)
    assert (gloo.backend, gloo.backend_options, gloo.timeout.total_seconds()) == ("gloo", {"address": "127.0.0.1"}, 70)
    assert "gloo" in repr(gloo)
    assert "127.0.0.1" in repr(gloo)
    group = dist.new_group(pg_options=gloo)
    assert (name(group), seconds(group)) == ("gloo", 70)
    value = torch.full((2,), float(RANK))
    dist.all_reduce(value, group=group)
    assert value[0] == sum(range(SIZE))
    copied = copy.deepcopy(gloo)
    copied.timeout = datetime.timedelta(seconds=5)
    assert (copied.backend_options, gloo.timeout.total_seconds()) == ({"address": "127.0.0.1"}, 70)
    half = group.split_group([0, 1], group_name="half of gloo")  # with the options of the parent group
    if RANK < 2:
        assert (name(half), seconds(half)) == ("gloo", 70)
    minute = datetime.timedelta(seconds=60)
    assert seconds(dist.new_group(timeout=minute, pg_options=ht.Options(backend="gloo"))) == 60
    assert name(dist.new_group(pg_options=ht.Options(backend_options={"wait_policy": "block"}))) == "shm"
    assert seconds(dist.new_group(pg_options=C10dBackend.Options("hookline", minute))) == 60
    gloos_own = dist.ProcessGroupGloo._Options()  # the options of another backend in the same group
    assert seconds(dist.new_group(timeout=minute, pg_options=gloos_own)) == 60
    raises(
        TypeError,
        "expected hookline.torch.Options, got builtins.dict",
        lambda: dist.new_group(pg_options={"timeout": 3}),
    )
    raises(TypeError, "expected seconds", lambda: ht.Options(timeout="1 min"))
    raises(ValueError, "more than 0 s", lambda: ht.Options(timeout=-1))
    raises(ValueError, "unknown backend", lambda: dist.new_group(pg_options=ht.Options(backend="gluon")))
    wrong = ht.Options(backend="gloo", backend_options={"wait_policy": "block"})
    raises(hl.InvalidArgument, "wait_policy", lambda: dist.new_group(pg_options=wrong))


run()
dist.destroy_process_group()
