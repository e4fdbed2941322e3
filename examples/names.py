"""Every public name of the package once, by room, with what it is for: hookline run -n 2 examples/names.py."""

import tempfile

import numpy as np

import hookline as hl

print(hl.__version__)

# core: tensors are views of memory, futures are values that come later.
x = np.arange(6, dtype=np.float32).reshape(2, 3)
array: hl.ArrayLike = x  # whatever NumPy, torch, DLPack or a buffer has
tensor: hl.Tensor = hl.asarray(array)  # no copy
tensor.fill(1)
assert x[1, 2] == 1
assert hl.from_dlpack(x).shape == hl.zeros((2, 3), "float32").shape == hl.empty((2, 3)).shape
assert hl.full((2,), 7, "int64").numpy().sum() == 14
future: hl.Future[int] = hl.Future()
doubled = future.then(lambda f: 2 * f.value())
future.set_result(21)
assert hl.when_all([future, doubled]).value() == [21, 42]  # their values
assert hl.collect_all([future, doubled]).value()[1].value() == 42  # themselves, failed or not
try:
    hl.zeros((-1,), "float32")
except hl.InvalidArgument as error:  # like Unsupported, Timeout and the others an hl.Error
    print(error)
assert issubclass(hl.InvalidArgument, hl.Error)
assert issubclass(hl.InvalidArgument, ValueError)
assert issubclass(hl.Unsupported, NotImplementedError)
assert issubclass(hl.Timeout, TimeoutError)
assert issubclass(hl.ResourceError, OSError)
assert all(issubclass(kind, RuntimeError) for kind in (hl.PeerLost, hl.Mismatch, hl.Aborted))

# store: where the processes of a job find each other.
job: hl.Rendezvous = hl.rendezvous()  # finds store, rank, world_size and local_rank through env://
job.store.set(f"hello {job.rank}", "there")
store: hl.Store = hl.MemoryStore()  # also hl.HashStore; for ranks that are threads
assert hl.HashStore is hl.MemoryStore
hl.PrefixStore("mine", store).set("key", "value")
assert store.num_keys() == 1
with tempfile.TemporaryDirectory() as folder:
    hl.FileStore(f"{folder}/store", 1).set("key", "value")  # for processes of one host
served = hl.TCPStore("127.0.0.1", 0, is_master=True)  # for several hosts; speaks PyTorch's protocol
served.set("key", "value")

# codec: float32 values in fewer bytes.
codec: hl.Codec = hl.make_codec("int8(block=512)")
assert len(codec.encode(np.ones(4096, np.float32))) == codec.encoded_bytes(4096) < 4096 * 4 / 3

# group: ranks that communicate.
assert "shm" in hl.backend_names()
group: hl.ProcessGroup = hl.init_process_group(store=job.store, rank=job.rank, world_size=job.world_size)
assert hl.default_group() is group
can: hl.Capabilities = group.capabilities
assert can.lanes >= 1
seen: list[hl.WorkInfo] = []
group.register_on_completion_hook(seen.append)
work: hl.Work = group.allreduce([x], op=hl.ReduceOp.AVG)
work.wait()
group.wait_for_hooks()
assert seen[0].op_type == "allreduce"
ranks = group.size()
parts = [np.empty(2, np.float32) for _ in range(ranks)]
one, many = np.ones(2, np.float32), np.ones((ranks, 2), np.float32)
# Options are keywords, or objects as torch.distributed has them.
group.allreduce([one], hl.AllreduceOptions(reduceOp=hl.ReduceOp.MAX, timeout=20)).wait()
group.allreduce_coalesced([one, x], hl.AllreduceCoalescedOptions()).wait()
group.reduce([one], hl.ReduceOptions(rootRank=0)).wait()
group.broadcast([one], hl.BroadcastOptions(rootRank=0)).wait()
group.allgather([parts], [one], hl.AllgatherOptions(timeout=20)).wait()
group.gather([parts] if group.rank() == 0 else [], [one], hl.GatherOptions(rootRank=0)).wait()
group.scatter([one], [list(many)] if group.rank() == 0 else [], hl.ScatterOptions(rootRank=0)).wait()
group.reduce_scatter([one], [list(many)], hl.ReduceScatterOptions(reduceOp=hl.ReduceOp.SUM)).wait()
group.alltoall(parts, list(many), hl.AllToAllOptions()).wait()
group.barrier(hl.BarrierOptions(timeout=20)).wait()
assert hl.host_group(group).size() == ranks  # the ranks of this host
(alone,) = hl.threads_groups(1)  # groups of threads, for tests
# Groups around groups, which watch.
watched = hl.recorded(hl.nan_checked(hl.checked(alone, store)))
watched.allreduce([one]).wait()
assert hl.records(watched)["operations"]
with tempfile.TemporaryDirectory() as folder:
    hl.dump_records(watched, f"{folder}/dump.json")  # for `hookline debug`
hl.compared(alone, hl.threads_groups(1)[0]).allreduce([one]).wait()

# hook: what is sent of a bucket of gradients.
assert "int8" in hl.registered_hooks()
assert hl.hook_options("int8")["block"] == ("512", "a whole number, or tensor")
hook: hl.CommHook = hl.make_hook("int8(block=512) | error_feedback", group)
bucket = hl.GradBucket(np.ones(8, np.float32), sizes=[(2, 3), (2,)])
assert abs(hook(None, bucket).wait()[0] - 1) < 0.01


def completed(value: object) -> hl.Future[object]:
    """A future that is done."""
    future: hl.Future[object] = hl.Future()
    future.set_result(value)
    return future


hl.register_hook("doubled", lambda group, by=2: lambda state, bucket: completed(bucket.buffer() * by))
assert hl.make_hook("doubled(by=3) | log", group)(None, hl.GradBucket(np.ones(2, np.float32))).wait().tolist() == [3, 3]
hl.unregister_hook("doubled")

# reducer: gradients in buckets, hooks while the backward pass goes on. hl.numpy.DataParallel is built on hl.Reducer.
params = {"w": np.ones((4, 4), np.float32), "b": np.ones(4, np.float32)}
grads = {name: np.ones_like(p) for name, p in params.items()}
hl.broadcast_coalesced(group, list(params.values()))
reducer = hl.Reducer(list(params.items()), group)
for name in grads:
    reducer.mark_ready(name, grads[name])
reducer.finalize()
for kind, state in {
    hl.powerSGD_hook: hl.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2),
    hl.batched_powerSGD_hook: hl.PowerSGDState(group, matrix_approximation_rank=1, start_powerSGD_iter=2),
    hl.post_localSGD_hook: hl.PostLocalSGDState(group, None, start_localSGD_iter=100),
}.items():
    ddp = hl.numpy.DataParallel(params, group)
    ddp.register_comm_hook(state, kind)  # PyTorch's names
ddp = hl.numpy.DataParallel(params, group)
hl.register_ddp_comm_hook(hl.DDPCommHookType.BF16_COMPRESS, ddp, group)

# optimizer: torch's optimizers without torch, and models that are averaged now and then.
for optimizer in (hl.SGD(lr=0.1, momentum=0.9), hl.Adam(lr=1e-3), hl.AdamW(lr=1e-3), hl.make_optimizer("sgd(lr=0.1)")):
    assert isinstance(optimizer, hl.Optimizer)
    optimizer.step(params, grads)
stepping = hl.overlap(hl.make_hook("allreduce", group), "sgd(lr=0.1)")  # steps a bucket while others are under way
hl.Reducer(list(params.items()), group, stepping)
for averager in (
    hl.PeriodicModelAverager(period=4, process_group=group),
    hl.HierarchicalModelAverager({4: ranks}, 0, group),
):
    assert isinstance(averager, hl.ModelAverager)
    hl.PostLocalSGDOptimizer(hl.SGD(lr=0.1), averager).step(params, grads)
