"""Hookline hooks on PyTorch's own DistributedDataParallel, under PyTorch's names."""

from __future__ import annotations

import enum
import functools
import socket
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hookline
from hookline import (
    CommHook,
    InvalidArgument,
    ProcessGroup,
    _core,
    batched_powerSGD_hook,
    powerSGD_hook,
)
from hookline._hooks import check_hook, check_hook_type, naming_types
from hookline._names import class_name
from hookline._native_hooks import has_native_equivalent, native_hook

from . import _native
from ._python_hooks import bind_state, is_user_hook
from .data_parallel import DistributedDataParallel as OwnDistributedDataParallel
from .groups import group_for_hooks, new_group_of

# The hook of each model. PyTorch's reducer owns the native part.
_registered: weakref.WeakKeyDictionary[Any, _native.BucketHook] = weakref.WeakKeyDictionary()


class PowerSGDState(hookline.PowerSGDState):
    """The PowerSGD state for a torch.distributed or hookline group; None means the group of the model."""

    def __init__(self, process_group: Any = None, *arguments: Any, **options: Any) -> None:
        """Takes PyTorch's arguments, and `wire`, the dtype in which the factors are sent: fp32, fp16 or bf16."""
        group = None if process_group is None else group_for_hooks(process_group)
        super().__init__(group, *arguments, **options)
        self._process_group = process_group

    @property
    def process_group(self) -> Any:
        """The group as passed to the constructor."""
        return self._process_group

    @process_group.setter
    def process_group(self, group: Any) -> None:
        native: Any = hookline.PowerSGDState.process_group
        native.__set__(self, None if group is None else group_for_hooks(group))
        self._process_group = group

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Sets process_group to the default group of torch.distributed; hooks use the group of their model."""
        if not dist.is_initialized():
            super().__setstate__(state)
            self._process_group = hookline.PowerSGDState.process_group.__get__(self)
            return
        super().__setstate__({**state, "process_group": None})
        self._process_group = dist.distributed_c10d._get_default_group()


def _host_subgroup(group: Any) -> Any:
    """Creates a group of the ranks of `group` on this host. Collective over `group`."""
    hosts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(hosts, socket.gethostname(), group)
    ranks = [
        r for r, host in zip(dist.get_process_group_ranks(group), hosts, strict=True) if host == socket.gethostname()
    ]
    return new_group_of(group, ranks)


class PostLocalSGDState(hookline.PostLocalSGDState):
    """The post-local SGD state for torch.distributed or hookline groups.

    The default process_group is the default group, the default subgroup the ranks of this host. Collective.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,  # noqa: N803 - PyTorch's name
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        """Takes PyTorch's arguments."""
        native_group = group_for_hooks(process_group)
        if subgroup is None and not isinstance(process_group, ProcessGroup):
            subgroup = _host_subgroup(process_group)
        native_subgroup = None if subgroup is None else group_for_hooks(subgroup)
        super().__init__(native_group, native_subgroup, start_localSGD_iter, post_local_gradient_allreduce)
        self._process_group = process_group
        self._subgroup = hookline.PostLocalSGDState.subgroup.__get__(self) if subgroup is None else subgroup

    @property
    def process_group(self) -> Any:
        """The group as passed to the constructor."""
        return self._process_group

    @property
    def subgroup(self) -> Any:
        """The subgroup as passed to the constructor, or the group of the ranks of this host."""
        return self._subgroup


def group_of_state(state: Any) -> ProcessGroup | None:
    """Returns the hookline group through which the hook of a state communicates."""
    for kind in (hookline.PowerSGDState, hookline.PostLocalSGDState):
        if isinstance(state, kind):
            group: ProcessGroup | None = kind.process_group.__get__(state)
            return group
    return getattr(state, "process_group", None)


def make_native_hook(hook: Any, state: Any, group: Any) -> tuple[CommHook, ProcessGroup]:
    """Returns the native hook and the group through which it communicates.

    The hook is a hook spec, a CommHook, or a function. Functions without a native equivalent get torch tensors.
    """
    if isinstance(hook, CommHook):
        return hook, _core.group_of_hook(hook)
    if isinstance(state, CommHook):
        return state, _core.group_of_hook(state)
    if callable(hook):
        if not has_native_equivalent(hook):
            made = hookline.make_hook(_with_bound_state(hook, state), group_for_hooks(group), for_torch=True)
            return made, _core.group_of_hook(made)
        if isinstance(state, ProcessGroup | dist.ProcessGroup):
            own = None  # the hook communicates through a group made from its state
        else:
            own = group_of_state(state) or group_for_hooks(group)
        native = native_hook(state, hook, own)
        assert native is not None
        return native, _core.group_of_hook(native)
    chosen = group_for_hooks(group if state is None else state)
    return hookline.make_hook(hook, chosen, for_torch=True), chosen


def _with_bound_state(hook: Any, state: Any) -> Any:
    """Returns a hook that ignores its state and calls `hook` with `state`, which may be None."""

    @functools.wraps(hook)
    def call(_: Any, bucket: Any) -> Any:
        return hook(state, bucket)

    return call


def make_hook(hook: Any, group: Any = None, state: Any = None, *, reports_contribution: bool = False) -> CommHook:
    """Creates a hook as hookline.make_hook does, for a torch.distributed or hookline group.

    Python hooks get buckets of torch tensors. The state of a function defaults to the hookline group through which it
    communicates.
    """
    return hookline.make_hook(
        hook, group_for_hooks(group), state, reports_contribution=reports_contribution, for_torch=True
    )


def register_comm_hook(model: Any, state: Any, hook: Any) -> None:
    """Runs a hook on the buckets of a torch.nn.parallel.DistributedDataParallel model.

    The hook is a hook spec, a CommHook, or a function hook(state, bucket), whose results are validated. With a spec,
    the state is None or the process group to reduce over: any group of the same ranks. Hookline hooks run without
    Python, in the memory of the bucket.
    """
    if isinstance(model, OwnDistributedDataParallel):
        model.register_comm_hook(state, hook)
        return
    check_model(model)
    if torch._C._current_graph_task_id() != -1:
        raise InvalidArgument("register_comm_hook inside a step: register the hook before the forward pass")
    if is_user_hook(hook, state):
        _native.register_python_hook(model.reducer, bind_state(hook, state))
        return
    native_hook, group = make_native_hook(hook, state, model.process_group)
    names, parameters = zip(*model.module.named_parameters(), strict=True)
    bucket_hook = _native.BucketHook(
        _core.group_to_capsule(group), _core.hook_to_capsule(native_hook), list(parameters), list(names)
    )
    bucket_hook.register(model.reducer)
    _registered[model] = bucket_hook


def replace_comm_hook(model: Any, state: Any, hook: Any) -> None:
    """Replaces the hook of a model from the next step on. Call it between steps.

    Takes the arguments of register_comm_hook, or a DDPCommHookType as the hook. A function gets a hookline.GradBucket
    of torch tensors. A function that was registered with PyTorch's DistributedDataParallel cannot be replaced.
    """
    hook, state = resolve_hook(hook, state)
    if isinstance(model, OwnDistributedDataParallel):
        model.replace_comm_hook(state, hook)
        return
    check_model(model)
    bucket_hook = _registered.get(model)
    if bucket_hook is None:
        register_comm_hook(model, state, hook)
        return
    group = _core.group_from_capsule(bucket_hook.group())
    if hook is None:
        raise TypeError("Communication hook must be callable. Got None.")
    if is_user_hook(hook, state):
        check_hook(hook)
    new_hook, new_group = make_native_hook(hook, state, group)
    if new_group is not group and new_group.size() != group.size():
        raise InvalidArgument(
            "replace_comm_hook: the group of the new hook has another size: "
            f"expected {group.size()}, got {new_group.size()}"
        )
    if new_group.capabilities.lanes < group.capabilities.lanes:  # the number of buckets that communicate concurrently
        raise InvalidArgument(
            "replace_comm_hook: the group of the new hook has too few lanes for concurrent buckets: "
            f"expected {group.capabilities.lanes}, got {new_group.capabilities.lanes}. "
            "Create the hook for the group of the current hook."
        )
    bucket_hook.replace(_core.hook_to_capsule(new_hook))


def comm_hook(model: Any) -> CommHook:
    """Returns the hook of a model, for its stats(), state_dict() and load_state_dict()."""
    if isinstance(model, OwnDistributedDataParallel):
        return model.comm_hook
    bucket_hook = _bucket_hook(model)
    return _core.hook_from_capsule(bucket_hook.hook(), _core.group_from_capsule(bucket_hook.group()))


def stats(model: Any) -> dict[str, Any]:
    """Returns statistics of the last step of a model: times in seconds since the first bucket, and bytes sent."""
    if isinstance(model, OwnDistributedDataParallel):
        return model.stats()
    return _bucket_hook(model).stats()


def _bucket_hook(model: Any) -> _native.BucketHook:
    check_model(model)
    bucket_hook = _registered.get(model)
    if bucket_hook is None:
        raise InvalidArgument("no hookline hook is registered with this model. Call register_ddp_comm_hook.")
    return bucket_hook


def check_model(model: Any) -> None:
    """Raises TypeError unless the model is a torch DistributedDataParallel."""
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(f"model: expected a torch.nn.parallel.DistributedDataParallel, got {class_name(model)}")


def _register(spec: Any, model: Any, state: Any = None) -> None:
    hook, state = _with_state(spec, state)
    register_comm_hook(model, state, hook)


def _with_state(spec: Any, state: Any) -> tuple[Any, Any]:
    """Returns a hook and its state. For PowerSGD types, creates the state if only a group is given."""
    if not isinstance(spec, tuple):
        return spec, state
    hook, rank = spec
    if state is None or isinstance(state, ProcessGroup | dist.ProcessGroup):
        state = PowerSGDState(state, matrix_approximation_rank=rank)
    return hook, state


class DDPCommHookType(enum.Enum):
    """PyTorch's names of the hooks. A member's value, called with model and state, registers the hook."""

    # functools.partial, because plain functions would become methods of the enum.
    ALLREDUCE = functools.partial(_register, "allreduce")
    FP16_COMPRESS = functools.partial(_register, "fp16")
    BF16_COMPRESS = functools.partial(_register, "bf16")
    QUANTIZE_PER_TENSOR = functools.partial(_register, "quantize_per_tensor")
    QUANTIZE_PER_CHANNEL = functools.partial(_register, "quantize_per_channel")
    POWER_SGD = functools.partial(_register, (powerSGD_hook, 1))
    POWER_SGD_RANK2 = functools.partial(_register, (powerSGD_hook, 2))
    BATCHED_POWER_SGD = functools.partial(_register, (batched_powerSGD_hook, 1))
    BATCHED_POWER_SGD_RANK2 = functools.partial(_register, (batched_powerSGD_hook, 2))
    NOOP = functools.partial(_register, "noop")


def resolve_hook(hook: Any, state: Any) -> tuple[Any, Any]:
    """Returns a hook and its state. Resolves a DDPCommHookType or its name."""
    if isinstance(hook, str) and hook in DDPCommHookType.__members__:
        hook = DDPCommHookType[hook]
    return _with_state(hook.value.args[0], state) if isinstance(hook, DDPCommHookType) else (hook, state)


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType | str | CommHook | Callable[[Any, Any], Any], model: Any, state: Any = None
) -> None:
    """Registers a hook with a DistributedDataParallel model: a DDPCommHookType or its name, or any hook.

    The state is None or a process group; PowerSGD also takes a PowerSGDState.
    """
    hook, state = resolve_hook(comm_hook_type, state)
    check_hook_type(hook, DDPCommHookType)
    with naming_types(hook, DDPCommHookType):
        register_comm_hook(model, state, hook)
