"""Hookline hooks on PyTorch's DistributedDataParallel, on Gloo and hookline, with many buckets."""

import ctypes
import datetime
import gc
import io
import pickle
import threading
import weakref

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, raises, run
from hook_training import GROUPS, PLAIN, alike, batches, ddp, distance, gloo, network, train
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

import hookline as hl
import hookline.torch as ht
from hookline_torch.comm_hooks import group_of_state

EXACT = ["ALLREDUCE"]
NEAR = ["FP16_COMPRESS", "BF16_COMPRESS", "QUANTIZE_PER_TENSOR", "QUANTIZE_PER_CHANNEL"]


@check
def every_type_on_every_group():
    for group in GROUPS.values():
        for name in [*EXACT, *NEAR]:
            model = ddp(group)
            ht.register_ddp_comm_hook(ht.DDPCommHookType[name], model, None)
            weights = train(model)
            assert len(ht.stats(model)["buckets"]) > 4
            alike(weights)
            assert distance(weights, PLAIN) < (1e-6 if name in EXACT else 5e-3), name


@check
def powersgd_on_every_group():
    names = ["POWER_SGD", "POWER_SGD_RANK2", "BATCHED_POWER_SGD", "BATCHED_POWER_SGD_RANK2"]
    for group in GROUPS.values():
        for name in names:
            model = ddp(group)
            state = ht.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
            ht.register_ddp_comm_hook(ht.DDPCommHookType[name], model, state)
            weights = train(model)
            alike(weights)
            assert distance(weights, PLAIN) < 5e-2, name
            assert len(ht.stats(model)["buckets"]) > 4
            assert state.compression_stats()[0] > 1
            assert state.iter == 4
            model = ddp(group)
            ht.register_ddp_comm_hook(name, model, group)  # compresses after 1000 steps
            assert distance(train(model, 3), train(ddp(gloo), 3)) < 1e-6
        model = ddp(group)
        state = ht.PowerSGDState(group, start_powerSGD_iter=2)
        model.register_comm_hook(state, ht.powerSGD_hook)
        alike(train(model))
        assert state.compression_stats()[0] > 1


@check
def states_of_plain_functions_are_released_with_their_models():
    def made(state, hook):
        model = ddp(dist.group.WORLD)
        model.register_comm_hook(state, hook)
        train(model, 3)
        return [weakref.ref(thing) for thing in (state, model, model.module[0].weight)]

    left = made(ht.PowerSGDState(start_powerSGD_iter=2), ht.powerSGD_hook)
    left += made(ht.PostLocalSGDState(None, None, 1), ht.post_localSGD_hook)
    gc.collect()
    assert not any(one() for one in left)


@check
def post_local_sgd_on_every_group():
    for group in GROUPS.values():
        for subgroup in (None, group):
            model = ddp(group)
            model.register_comm_hook(ht.PostLocalSGDState(group, subgroup, 2), ht.post_localSGD_hook)
            # All ranks are on one host, so the subgroup has all ranks.
            assert distance(train(model), PLAIN) < 1e-6
        model = ddp(group)
        model.register_comm_hook(hl.PostLocalSGDState(ht.group_from_torch(group), None, 2), ht.post_localSGD_hook)
        assert distance(train(model), PLAIN) < 1e-6
        model = ddp(group)
        state = ht.PostLocalSGDState(group, group, 2, post_local_gradient_allreduce=False)
        model.register_comm_hook(state, ht.post_localSGD_hook)
        train(model, 2)
        alike([p.detach() for p in model.parameters()])
        train(model, 2)
        gathered = [None] * SIZE
        dist.all_gather_object(gathered, float(model.module[0].weight.sum()))
        assert len(set(gathered)) == SIZE
        assert state.iter == 4


@check
def groups_made_for_hooks_have_the_timeout_of_theirs():
    group = dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=50))
    state = ht.PostLocalSGDState(group, None, 10)
    for made in (group_of_state(state), ht.group_from_torch(state.subgroup), group_of_state(ht.PowerSGDState(group))):
        assert made.timeout.total_seconds() == 50, made.timeout


@check
def states_return_their_groups():
    for group in (dist.group.WORLD, gloo, hl.make_thread_groups(1)[0]):
        state = ht.PostLocalSGDState(group, group, 10)
        assert state.process_group is group
        assert state.subgroup is group
        assert ht.PowerSGDState(group).process_group is group
        state = ht.PowerSGDState()
        assert state.process_group is None
        state.process_group = group
        assert state.process_group is group
    # As in PyTorch: None for the default group stays None.
    assert PowerSGDState(None).process_group is None
    assert ht.PostLocalSGDState(None, gloo, 10).process_group is None
    for group in GROUPS.values():
        state = ht.PostLocalSGDState(group, None, 10)
        assert dist.get_world_size(state.subgroup) == SIZE  # all ranks are on one host
        model = DistributedDataParallel(network(), process_group=state.process_group)
        model.register_comm_hook(state, ht.post_localSGD_hook)
        train(model, 2)
        state = ht.PowerSGDState(group, start_powerSGD_iter=2)
        model = DistributedDataParallel(network(), process_group=state.process_group)
        model.register_comm_hook(state, ht.powerSGD_hook)
        train(model, 3)
        assert state.iter == 3


@check
def unpickled_states_use_the_default_group():
    for group in GROUPS.values():
        state = ht.PowerSGDState(group, start_powerSGD_iter=2)
        model = ddp(group)
        ht.register_comm_hook(model, state, ht.powerSGD_hook)
        train(model, 3)
        again = pickle.loads(pickle.dumps(state))
        assert again.process_group is dist.group.WORLD
        assert again.iter == 3
        again.process_group = group
        model = ddp(group)
        ht.register_comm_hook(model, again, ht.powerSGD_hook)
        train(model, 3)
        assert again.iter == 6


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.table, self.layer = nn.EmbeddingBag(20, 4, sparse=True, mode="sum"), nn.Linear(4, 3)

    def forward(self, rows):
        return self.layer(self.table(rows))


@check
def sparse_gradients():
    def gradients(model):
        for _ in range(3):  # until PowerSGD starts
            model.zero_grad()
            model(torch.tensor([[RANK, 3, 7 + RANK, 3]])).square().sum().backward()
        table = model.module.table.weight.grad
        assert table.is_sparse
        return [table.coalesce(), *(p.grad for p in model.module.layer.parameters())]

    for group in GROUPS.values():
        expected = gradients(DistributedDataParallel(Embedding(), process_group=group))
        for hook in ["ALLREDUCE", "FP16_COMPRESS", "int8 | error_feedback", "powersgd(rank=2, start_iter=2)"]:
            model = DistributedDataParallel(Embedding(), process_group=group)
            ht.register_ddp_comm_hook(hook, model)
            ours = gradients(model)
            assert ours[0].indices().tolist() == expected[0].indices().tolist()
            near = 1e-6 if hook == "ALLREDUCE" else 0.02
            for mine, theirs in zip(ours, expected, strict=True):
                scale = float(theirs.to_dense().abs().max())
                if hook.startswith("powersgd") and mine.dim() == 2 and not mine.is_sparse:
                    continue  # PowerSGD approximates matrices
                assert float((mine.to_dense() - theirs.to_dense()).abs().max()) <= near * scale, hook
        model = DistributedDataParallel(Embedding(), process_group=group)
        ht.register_ddp_comm_hook("NOOP", model)
        alone = Embedding()
        model(torch.tensor([[RANK, 3]])).sum().backward()
        alone(torch.tensor([[RANK, 3]])).sum().backward()
        torch.testing.assert_close(model.module.table.weight.grad.to_dense(), alone.table.weight.grad.to_dense())
        model = DistributedDataParallel(Embedding(), process_group=group)
        model.register_comm_hook(group, ht.allreduce_hook)
        assert torch.equal(gradients(model)[0].indices(), expected[0].indices())


@check
def noop_sends_nothing():
    model = ddp(dist.group.WORLD)
    ht.register_ddp_comm_hook(ht.DDPCommHookType.NOOP, model)
    weights = train(model)
    alone = network(0)
    assert distance(train(alone), weights) < 1e-6
    assert ht.stats(model)["bytes_sent"] == 0


@check
def bytes_are_counted_on_every_backend():
    for text in ["allreduce", "int8", "int8 | compare"]:
        sent = set()
        for model in map(ddp, GROUPS.values()):
            ht.register_ddp_comm_hook(text, model)
            train(model, 3)
            sent.add(ht.stats(model)["bytes_sent"])
            if text != "allreduce":
                sent.add(sum(cost["bytes_sent"] for cost in ht.comm_hook(model).stats()))
        assert len(sent - {0}) == len(sent) == 1, (text, sent)


@check
def results_match_the_core_bitwise():
    # With one parameter both have the same buckets from the first step on.
    def layer():
        torch.manual_seed(RANK)
        return nn.Linear(12, 5, bias=False)

    for text in ["allreduce", "fp16", "bf16", "int8(block=16) | error_feedback", "quantize_per_tensor", "int4"]:
        model = DistributedDataParallel(layer())
        ht.register_ddp_comm_hook(text, model)
        own = ht.DistributedDataParallel(layer(), hook=text)
        for a, b in zip(train(model), train(own), strict=True):
            assert torch.equal(a, b), text


@check
def pytorch_register_comm_hook():
    model = ddp(dist.group.WORLD)
    ht.DDPCommHookType.FP16_COMPRESS.value(model=model, state=dist.group.WORLD)
    assert distance(train(model), PLAIN) < 5e-3
    for hook in (ht.fp16_compress_hook, ht.bf16_compress_hook, ht.allreduce_hook, ht.quantization_perchannel_hook):
        for state in (None, gloo):
            model = ddp(dist.group.WORLD)
            model.register_comm_hook(state, hook)
            weights = train(model)
            alike(weights)
            assert distance(weights, PLAIN) < 5e-3
    model = ddp(dist.group.WORLD)
    model.register_comm_hook(None, ht.fp16_compress_wrapper(ht.allreduce_hook))
    assert distance(train(model), PLAIN) < 5e-3

    def mine(state, bucket):
        return state.allreduce([bucket.buffer().div_(SIZE)]).get_future().then(lambda f: f.value()[0])

    for wrapper in (ht.fp16_compress_wrapper, ht.bf16_compress_wrapper):
        model = ddp(dist.group.WORLD)
        model.register_comm_hook(dist.group.WORLD, wrapper(mine))
        assert distance(train(model), PLAIN) < 5e-3


@check
def state_in_checkpoints():
    text = "int4 | error_feedback"
    whole = ddp(dist.group.WORLD, cap=25)
    ht.register_ddp_comm_hook(text, whole)
    train(whole, 3)
    file = io.BytesIO()
    torch.save({"hook": ht.comm_hook(whole).state_dict(), "weights": whole.module.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = ddp(dist.group.WORLD, cap=25)
    resumed.module.load_state_dict(saved["weights"])
    ht.register_ddp_comm_hook(text, resumed)
    ht.comm_hook(resumed).load_state_dict(saved["hook"])
    assert ht.comm_hook(whole).stats()[0]["residual_norm"] > 0
    assert distance(train(whole, 1), train(resumed, 1)) < 1e-3


@check
def errors_of_hooks_arrive_at_backward():
    # One rank lacks a bucket that the other ranks have. They must get an error when it leaves.
    group = dist.new_group()
    model = DistributedDataParallel(network(), process_group=group, bucket_cap_mb=0.002)
    ht.register_ddp_comm_hook("POWER_SGD", model)
    data, target = next(batches(1))
    loss = nn.functional.cross_entropy(model(data), target)
    if RANK == 0:
        raises(dist.DistBackendError, "Aborted", loss.backward)
    else:
        group.abort()
    dist.barrier()


class Signal(torch.autograd.Function):
    """Sets an event when the backward pass starts."""

    @staticmethod
    def forward(context, x, event):
        context.event = event
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        context.event.set()
        return gradient, None


@check
def no_gil_between_bucket_and_future():
    model, begun, held = ddp(dist.group.WORLD), threading.Event(), 3
    ht.register_ddp_comm_hook("ALLREDUCE", model)
    train(model, 2)

    def hold():
        begun.wait()
        ctypes.PyDLL(None).usleep(held * 1_000_000)  # holds the GIL

    thread = threading.Thread(target=hold)
    thread.start()
    slow = torch.ones(5, 1 << 20)  # a long backward pass, so that the thread gets the GIL during it
    Signal.apply(model(torch.ones(2, 12)) @ slow, begun).sum().backward()
    thread.join()
    assert max(bucket["done"] for bucket in ht.stats(model)["buckets"]) < held


@check
def models_are_released():
    for _ in range(3):
        model = ddp(dist.group.WORLD)
        ht.register_ddp_comm_hook("FP16_COMPRESS", model)
        train(model, 1)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None
    hook = hl.make_hook("fp16", ht.group_from_torch())
    model = ddp(dist.group.WORLD)
    ht.register_ddp_comm_hook(hook, model)
    assert distance(train(model), PLAIN) < 5e-3


run()
dist.destroy_process_group()
