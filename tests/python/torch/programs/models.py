"""Validation and broadcast of a model's parameters, synchronized passes, and checkpoint names."""

import warnings

import torch
import torch.distributed as dist
from checks import RANK, SIZE, check, init_group, raises, run
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

import hookline as hl
import hookline.torch as ht

warnings.simplefilter("ignore")
init_group("hookline")
KINDS = [DistributedDataParallel, ht.DistributedDataParallel]


@check
def frozen_parameters_are_broadcast():
    for kind in KINDS:
        net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(RANK + 1)
        net[0].requires_grad_(False)
        model = kind(net)
        assert all((parameter == 1).all() for parameter in net.parameters())
        model(torch.ones(1, 3)).sum().backward()
        assert net[0].weight.grad is None
        assert net[1].weight.grad is not None
    net = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).requires_grad_(False)
    with torch.no_grad():
        net[0].weight.fill_(RANK)
    net[1].requires_grad_(True)
    ht.DistributedDataParallel(net, ignored=["0.weight"])
    assert (net[0].weight == RANK).all()


@check
def frozen_parameters_of_any_dtype_are_broadcast():
    for dtype in (torch.float8_e4m3fn, torch.uint16, torch.complex64, torch.bool):
        net = nn.Linear(2, 2)
        net.odd = nn.Parameter(torch.full((3,), float(RANK == 0)).to(dtype), requires_grad=False)
        net.register_buffer("buffer", net.odd.detach().clone())
        net.left = nn.Parameter(torch.empty(2, device="meta"), requires_grad=False)
        model = ht.DistributedDataParallel(net, ignored=["left"])
        assert (net.odd.to(torch.float32) == 1).all(), dtype
        assert (net.buffer.to(torch.float32) == 1).all(), dtype
        model(torch.ones(1, 2)).sum().backward()


@check
def frozen_parameters_and_buffers_that_differ_are_named():
    net = nn.Sequential(nn.Linear(3, 3 + RANK), nn.Linear(3 + RANK, 2))
    net[0].requires_grad_(False)
    raises(hl.Mismatch, "parameter '0.weight' float32[3, 3] frozen", lambda: ht.DistributedDataParallel(net))
    net = nn.Sequential(nn.Linear(3, 2))
    net[0].weight.requires_grad_(RANK > 0)
    raises(
        hl.Mismatch,
        "rank 0 has parameter '0.weight' float32[2, 3] frozen, rank 1 has parameter '0.weight' float32[2, 3]",
        lambda: ht.DistributedDataParallel(net),
    )
    net = nn.Module()
    net.weight = nn.Parameter(torch.ones(2))
    net.bn = nn.BatchNorm1d(10 + 10 * RANK, affine=False)
    raises(
        hl.Mismatch,
        "rank 0 has buffer 'bn.running_mean' float32[10], rank 1 has buffer 'bn.running_mean' float32[20]",
        lambda: ht.DistributedDataParallel(net),
    )


def micro_batches(model, syncs):
    """Runs passes with and without synchronization. The attribute already has its next value in each backward pass."""
    gradients = []
    for sync, after in zip(syncs, [*syncs[1:], True], strict=True):
        model.require_backward_grad_sync = sync
        loss = (model(torch.ones(1, 1)) * (RANK + 1)).sum()
        model.require_backward_grad_sync = after
        loss.backward()
        gradients.append(model.module.weight.grad.item())
    return gradients


@check
def require_backward_grad_sync_applies_to_the_forward_pass():
    seen = []
    for kind in KINDS:
        net = nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            net.weight.fill_(1)
        model = kind(net)
        assert model.require_backward_grad_sync is True
        seen.append(micro_batches(model, [True, False, False, True, True, False]))
        with model.no_sync():
            assert model.require_backward_grad_sync is False
        assert model.require_backward_grad_sync is True
    mean, own = (SIZE + 1) / 2, RANK + 1.0
    assert seen[1][:3] == [mean, mean + own, mean + 2 * own], seen
    assert seen[0] == seen[1], seen


@check
def state_dicts_of_checkpoints_have_the_names_of_the_module():
    seen = []
    for kind in KINDS:
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        model = kind(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
        saved = {name: tensor.clone() for name, tensor in get_model_state_dict(model).items()}
        assert saved.keys() == net.state_dict().keys(), saved.keys()
        with torch.no_grad():
            net[0].weight.zero_()
        set_model_state_dict(model, {name: tensor.clone() for name, tensor in saved.items()})
        assert torch.equal(net[0].weight, saved["0.weight"])
        seen.append((sorted(model.state_dict()), sorted(get_optimizer_state_dict(model, optimizer)["state"])))
        whole = nn.Module()
        whole.inner = model
        assert "inner.0.weight" in get_model_state_dict(whole)
    assert seen[0] == seen[1], seen


@check
def batches_that_differ_are_named():
    net = nn.Linear(2, 2)
    model = ht.DistributedDataParallel(net)
    assert model.step_id is None
    for batch in range(3):
        model.step_id = batch
        model(torch.ones(1, 2)).sum().backward()
    model.step_id = 3 + RANK
    net.zero_grad()
    raises(hl.Mismatch, "step_id 4", lambda: model(torch.ones(1, 2)).sum().backward())
    raises(hl.InvalidArgument, "step_id", lambda: setattr(model, "step_id", -1))


run()
dist.destroy_process_group()
