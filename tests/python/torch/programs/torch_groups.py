"""Converts torch.distributed groups and stores, including Python subclasses, to hookline groups and stores."""

import datetime
import tempfile
import threading
import warnings

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hookline as hl
import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("gloo")
TOTAL = sum(range(1, SIZE + 1))


class Counting(dist.ProcessGroup):
    """A group written in Python with some of the operations."""

    def __init__(self, inner):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.calls = inner, 0

    def getBackendName(self):  # noqa: N802
        return "counting"

    def allreduce(self, tensors, opts=None):
        self.calls += 1
        return self.inner.allreduce(tensors, opts)

    def broadcast(self, tensors, opts=None):
        return self.inner.broadcast(tensors, opts)

    def allgather(self, outputs, inputs, opts=None):
        return self.inner.allgather(outputs, inputs, opts)


class NoFuture(dist._Work):
    """A Python work that only has wait()."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def wait(self, timeout=datetime.timedelta(0)):
        return self.work.wait()


class Plain(Counting):
    def allreduce(self, tensors, opts=None):
        return NoFuture(super().allreduce(tensors, opts))


@check
def a_gloo_group_is_a_hookline_group():
    group = ht.group_from_torch()
    assert (group.rank(), group.size(), group.backend_name()) == (RANK, SIZE, "gloo")
    group.set_timeout(70)
    assert group.timeout.total_seconds() == 70
    x = torch.full((100,), float(RANK + 1))
    group.allreduce([x]).wait()
    assert x[0] == TOTAL
    group.allreduce([x], op=hl.ReduceOp.AVG).wait()
    assert x[0] == TOTAL
    group.allreduce([x], op=hl.ReduceOp.PREMUL_SUM(0.5)).wait()
    assert x[0] == TOTAL * SIZE / 2
    group.broadcast([x], root=0).wait()
    outputs = torch.zeros(SIZE, 3)
    group.allgather_into_tensor(outputs, torch.full((3,), float(RANK))).wait()
    assert outputs[-1, 0] == SIZE - 1
    parts = [torch.zeros(2) for _ in range(SIZE)]
    group.allgather([parts], [torch.full((2,), float(RANK))]).wait()
    assert parts[1][0] == 1
    out, into = torch.zeros(SIZE), torch.full((SIZE,), float(RANK))
    group.alltoall_base(out, into).wait()
    assert out[-1] == SIZE - 1
    mine = torch.zeros(2)
    group.reduce_scatter_tensor(mine, torch.ones(2 * SIZE)).wait()
    assert mine[0] == SIZE
    if RANK == 0:
        group.send([torch.ones(3)], 1).wait()
    elif RANK == 1:
        group.recv([mine.new_zeros(3)], 0).wait()
    group.barrier().wait()
    assert group.allreduce([x]).get_future().wait() is not None
    raises(
        hl.InvalidArgument, "sizes do not match", lambda: group.allgather_into_tensor(torch.zeros(1), torch.zeros(1))
    )


class Counted(dist._Work):
    """A work with a future that is completed by wait()."""

    def __init__(self, work, group):
        super().__init__()
        self.work, self.group = work, group

    def wait(self, timeout=datetime.timedelta(0)):
        self.group.waits += 1
        return self.work.wait()

    def get_future(self):
        self.group.futures += 1
        return self.work.get_future()


class WithWaits(Counting):
    def __init__(self, inner):
        super().__init__(inner)
        self.waits = self.futures = 0

    def allreduce(self, tensors, opts=None):
        return Counted(super().allreduce(tensors, opts), self)

    def broadcast(self, tensors, opts=None):
        return Counted(super().broadcast(tensors, opts), self)


@check
def works_of_a_python_group_are_waited_for():
    for kind in (DistributedDataParallel, ht.DistributedDataParallel):
        group = WithWaits(dist.group.WORLD)
        net = nn.Linear(2, 2)
        model = kind(net, process_group=group)
        waits = group.waits
        assert waits > 0, kind
        model(torch.full((1, 2), RANK + 1.0)).sum().backward()
        assert net.weight.grad[0, 0] == TOTAL / SIZE
        assert group.futures > 0, kind
    assert group.waits > waits


@check
def checked_groups_of_torch_compare_the_numbers_of_steps():
    store = ht.store_from_torch(dist.PrefixStore("steps", dist.distributed_c10d._get_default_store()))
    model = ht.DistributedDataParallel(nn.Linear(2, 2), hl.with_collective_checks(ht.group_from_torch(), store))
    model.step_id = 5
    model(torch.ones(1, 2)).sum().backward()
    model.step_id = 6 + RANK
    raises(hl.Mismatch, "step_id 7", lambda: model(torch.ones(1, 2)).sum().backward())


@check
def a_python_group_is_a_hookline_group():
    for kind in (Counting, Plain):
        inner = kind(dist.group.WORLD)
        group = ht.group_from_torch(inner)
        assert group.backend_name() == "counting"
        x = torch.full((10,), float(RANK + 1))
        group.allreduce([x]).wait()
        assert x[0] == TOTAL
        assert inner.calls == 1
        raises(RuntimeError, "", lambda group=group, x=x: group.send([x], (RANK + 1) % SIZE).wait())


@check
def stores_of_torch_are_stores_of_hookline():
    folder = [tempfile.mkdtemp() if RANK == 0 else None]
    dist.broadcast_object_list(folder)
    tcp = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    shared = [dist.FileStore(f"{folder[0]}/store", SIZE), dist.distributed_c10d._get_default_store()]
    for inner in (dist.HashStore(), tcp, *(dist.PrefixStore(f"own/{RANK}", store) for store in shared)):
        store = ht.store_from_torch(inner)
        store.set("a", "1")
        assert inner.get("a") == b"1"
        assert store.get("a") == b"1"
        assert store.add("n", 3) == 3
        assert store.add("n", 3) == 6
        assert store.check(["a"])
        assert not store.check(["b"])
        store.wait(["a"], 1.0)
        raises(hl.Timeout, "", lambda store=store: store.wait(["b"], 0.05))
        assert store.compare_set("a", "wrong", "2") == b"1"
        assert store.compare_set("a", "1", "2") == b"2"
        assert store.compare_set("missing", "wrong", "2") == b"wrong"
        assert store.compare_set("empty", "", "first") == b"first"
        assert store.has_extended_api() == inner.has_extended_api()
        assert store.clone().get("a") == b"2"


class PythonStore(dist.Store):
    def __init__(self):
        super().__init__()
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key):
        return self.values[key]

    def add(self, key, amount):
        total = int(self.values.get(key, b"0")) + amount
        self.values[key] = str(total).encode()
        return total


class Extended(dist.Store):
    """A store that records its calls."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def append(self, key, value):
        self.asked.append((key, value))

    def multi_get(self, keys):
        self.asked.append(keys)
        return [b"x", b"y"]

    def multi_set(self, keys, values):
        self.asked.append((keys, values))

    def has_extended_api(self):
        return True


@check
def stores_forward_all_methods():
    tcp = dist.TCPStore("127.0.0.1", 0, 1, True, wait_for_workers=False)
    client = dist.TCPStore("127.0.0.1", tcp.port, wait_for_workers=False)
    file = dist.FileStore(f"{tempfile.mkdtemp()}/store", 1)
    hashed = dist.HashStore()
    pairs = [(file, file), (hashed, hashed), (tcp, client)]  # a TCPStore client supports one request at a time
    pairs += [(dist.PrefixStore("p", inner), dist.PrefixStore("p", other)) for inner, other in pairs]
    for inner, other in pairs:
        store, came = ht.store_from_torch(inner), []
        thread = threading.Thread(target=lambda store=store, came=came: came.append(store.get("late")))
        thread.start()
        ht.store_from_torch(other).set("late", "now")
        thread.join()
        assert came == [b"now"]
        store.set("gone", "1")
        before = store.num_keys()
        assert store.delete_key("gone")
        assert store.num_keys() == before - 1
        raises(hl.Timeout, "", lambda store=store: store.wait(["gone"], 0.05))
    assert ht.store_from_torch(client).get("late") == b"now"
    inner = Extended()
    store = ht.store_from_torch(dist.PrefixStore("p", inner))
    store.append("a", "1")
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["a", "b"]) == [b"x", b"y"]
    assert store.has_extended_api()
    assert inner.asked == [("p/a", b"1"), (["p/a", "p/b"], [b"1", b"2"]), ["p/a", "p/b"]]
    raises(RuntimeError, "", lambda: ht.store_from_torch(dist.Store()).append("a", "1"))


@check
def a_python_store_is_a_store_of_hookline():
    store = ht.store_from_torch(PythonStore())
    store.set("k", "v")
    assert store.get("k") == b"v"
    assert store.add("n", 2) == 2
    raises(TypeError, "torch.distributed.Store", lambda: ht.store_from_torch({}))
    raises(TypeError, "ProcessGroup", lambda: ht.group_from_torch({}))


@check
def hooks_run_on_torch_groups():
    def network():
        torch.manual_seed(RANK)
        return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))

    def gradients(model):
        generator = torch.Generator().manual_seed(RANK)
        model(torch.randn(4, 8, generator=generator)).square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    expected = gradients(DistributedDataParallel(network()))
    for group in (None, Counting(dist.group.WORLD)):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.0005)
        ht.register_ddp_comm_hook("ALLREDUCE", model, group)
        torch.testing.assert_close(gradients(model), expected)
        own = ht.DistributedDataParallel(network(), group, hook="allreduce", bucket_cap_mb=0.0005)
        torch.testing.assert_close(gradients(own), expected)


class Least(dist.ProcessGroup):
    """A group that supports only allreduce, and allgather if `has` contains it."""

    def __init__(self, inner, has):
        super().__init__(inner.rank(), inner.size())
        self.inner, self.has = inner, has

    def getBackendName(self):  # noqa: N802
        return "least"

    def allreduce(self, tensors, opts=None):
        return self.inner.allreduce(tensors, opts)

    def allgather(self, outputs, inputs, opts=None):
        if "allgather" not in self.has:
            return super().allgather(outputs, inputs, opts)
        return self.inner.allgather(outputs, inputs, opts)


@check
def compressing_hooks_need_no_more_than_allreduce():
    def gradients(hook, group):
        torch.manual_seed(3)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(40, 30), nn.Linear(30, 20)), bucket_cap_mb=0.002)
        ht.register_ddp_comm_hook(hook, model, group)
        for _ in range(3):
            model.zero_grad()
            model(torch.full((4, 40), RANK + 0.1)).square().sum().backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    for hook in [*ht.DDPCommHookType.__members__, "int4 | error_feedback", "int8 | fp16"]:
        expected = gradients(hook, None)
        for has in ({"allgather"}, set()):
            assert torch.equal(gradients(hook, Least(dist.group.WORLD, has)), expected), (hook, has)


@check
def a_hookline_group_is_a_backend():
    store = dist.PrefixStore("made by hand", dist.distributed_c10d._get_default_store())
    group = hl.init_process_group(store=ht.store_from_torch(store), rank=RANK, world_size=SIZE, timeout=20)
    backend = ht.group_to_torch_backend(hl.with_flight_recorder(group))
    x = torch.ones(3)
    backend.allreduce([x], dist.AllreduceOptions()).wait()
    assert x[0] == SIZE
    torch_group = dist.ProcessGroup(store, RANK, SIZE)
    torch_group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    torch_group.allreduce([x]).wait()
    assert x[0] == SIZE * SIZE


class Seeing(hl.ProcessGroup):
    """A hookline group written in Python that records the arguments of its methods."""

    def __init__(self):
        super().__init__(0, 1)
        self.seen = []

    def see(self, *arguments):
        self.seen = arguments[:-1]
        future = hl.Future()
        future.set_result(None)
        return hl.Work(future)

    allreduce = allreduce_coalesced = broadcast = allgather = _allgather_base = see

    def barrier(self, opts=None):
        return self.see(opts)


@check
def a_python_group_gets_the_tensors_of_the_caller():
    group = Seeing()
    for backend in (ht.group_to_torch_backend(group), ht.group_to_torch_backend(hl.with_nan_checks(group))):
        world = dist.ProcessGroup(dist.HashStore(), 0, 1)
        world._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        tensors = [torch.ones(3), torch.ones(2, 3, dtype=torch.bfloat16), torch.ones(4, 4)[:, 1], torch.tensor(3)]
        tensors += [nn.Parameter(torch.ones(2)).detach(), torch.zeros(0), torch.ones(2, dtype=torch.bool)]
        for tensor in [*tensors, torch.ones(2, dtype=torch.complex64), torch.ones(4, 2, dtype=torch.complex64)[:, 1]]:
            world.allreduce([tensor]).wait()
            ((given,),) = group.seen
            assert given is tensor, (given, tensor)
        parameter = nn.Parameter(torch.ones(2))
        world.broadcast([parameter]).wait()
        assert group.seen[0][0] is parameter
        odd = torch.ones(3).to(torch.float8_e5m2)  # a dtype that hookline does not support
        world.broadcast([odd]).wait()
        assert group.seen[0][0] is odd
        output, part = torch.zeros(3), torch.ones(3)
        world.allgather([[output]], [part]).wait()
        assert group.seen[0][0][0] is output
        assert group.seen[1][0] is part
        world._allgather_base(output, part).wait()
        assert group.seen[0] is output
        assert group.seen[1] is part
        world.allreduce_coalesced([output, part]).wait()
        assert group.seen[0][0] is output
        assert group.seen[0][1] is part
        world.barrier().wait()
    x = torch.ones(3)
    work = ht.group_to_torch_backend(group).allreduce([x], dist.AllreduceOptions())
    assert work.get_future().wait()[0] is x


run()
dist.destroy_process_group()
