"""Hooks of hookline on PyTorch's own DistributedDataParallel, under PyTorch's names."""

from __future__ import annotations

import enum
import functools
import socket
import weakref
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
from hookline._names import class_name, name_of
from hookline._native import native_hook

from . import _native
from ._python_hooks import caller_of, is_users
from .data_parallel import DistributedDataParallel as OwnDistributedDataParallel
from .groups import as_group, torch_group
from .groups import native_group as hookline_group

# The hook of each model; PyTorch's reducer has the native half of it.
_registered: weakref.WeakKeyDictionary[Any, _native.BucketHook] = weakref.WeakKeyDictionary()


def group_for_hooks(group: Any) -> ProcessGroup:
    """A group for the collectives of hooks: a hookline one has lanes for them, of another one a second is made.

    DistributedDataParallel has collectives of its own on its group, and most backends match them in the order in which
    they come. A group that is a Python class is taken as it is, since only its user knows how to make another.
    """
    if isinstance(group, ProcessGroup):
        return group
    group = torch_group(
        group,
        "the state of a hook is a process group of torch.distributed or hookline, a state made for this hook, a "
        "hookline.CommHook, or None",
    )
    native = hookline_group(group)
    if native is not None:
        return native
    if type(group) is not dist.ProcessGroup:
        return as_group(group)
    return as_group(_new_group(group, dist.get_process_group_ranks(group), group_desc="hookline hooks"))


def _new_group(group: Any, ranks: list[int], **options: Any) -> Any:
    """One of some ranks of `group`, with its backend and its timeout; they alone call this."""
    backend, timeout = dist.get_backend_config(group), as_group(group).timeout
    return dist.new_group(ranks, timeout, backend, use_local_synchronization=True, **options)


class PowerSGDState(hookline.PowerSGDState):
    """hookline's state of PowerSGD, for a group of torch.distributed's or hookline's; None: that of the model."""

    def __init__(self, process_group: Any = None, *arguments: Any, **options: Any) -> None:
        """The arguments are PyTorch's, and `wire`, which is how the factors travel: fp32, fp16 or bf16."""
        group = None if process_group is None else group_for_hooks(process_group)
        super().__init__(group, *arguments, **options)
        self._process_group = process_group

    @property
    def process_group(self) -> Any:
        """The group as it was given: one of torch.distributed's or hookline's, or None."""
        return self._process_group

    @process_group.setter
    def process_group(self, group: Any) -> None:
        native: Any = hookline.PowerSGDState.process_group
        native.__set__(self, None if group is None else group_for_hooks(group))
        self._process_group = group

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The default group of torch.distributed; hooks communicate through the group of their model."""
        if not dist.is_initialized():
            super().__setstate__(state)
            self._process_group = hookline.PowerSGDState.process_group.__get__(self)
            return
        super().__setstate__({**state, "process_group": None})
        self._process_group = dist.distributed_c10d._get_default_group()


def _of_this_host(group: Any) -> Any:
    """A group of the ranks of `group` that are on this host; every rank of it calls this."""
    hosts: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(hosts, socket.gethostname(), group)
    ranks = [
        r for r, host in zip(dist.get_process_group_ranks(group), hosts, strict=True) if host == socket.gethostname()
    ]
    return _new_group(group, ranks)


class PostLocalSGDState(hookline.PostLocalSGDState):
    """hookline's state of post-local SGD, for groups of torch.distributed's or hookline's.

    Without a process_group it is the default one, without a subgroup the ranks of this host; every rank makes a state.
    """

    def __init__(
        self,
        process_group: Any,
        subgroup: Any,
        start_localSGD_iter: int,  # noqa: N803 - PyTorch's name
        post_local_gradient_allreduce: bool = True,
    ) -> None:
        """The arguments are PyTorch's."""
        whole = group_for_hooks(process_group)
        if subgroup is None and not isinstance(process_group, ProcessGroup):
            subgroup = _of_this_host(process_group)
        part = None if subgroup is None else group_for_hooks(subgroup)
        super().__init__(whole, part, start_localSGD_iter, post_local_gradient_allreduce)
        self._process_group = process_group
        self._subgroup = hookline.PostLocalSGDState.subgroup.__get__(self) if subgroup is None else subgroup

    @property
    def process_group(self) -> Any:
        """The group as it was given: one of torch.distributed's or hookline's, or None."""
        return self._process_group

    @property
    def subgroup(self) -> Any:
        """The subgroup as it was given, or the one that was made of the ranks of this host."""
        return self._subgroup


def group_of_state(state: Any) -> ProcessGroup | None:
    """The hookline group of a state, through which its hook communicates."""
    for kind in (hookline.PowerSGDState, hookline.PostLocalSGDState):
        if isinstance(state, kind):
            group: ProcessGroup | None = kind.process_group.__get__(state)
            return group
    return getattr(state, "process_group", None)


def hook_of(hook: Any, state: Any, group: Any) -> tuple[CommHook, ProcessGroup]:
    """The hook and the group that it communicates through.

    The hook is a text, a hook, or a function of hookline's that stands for one, such as powerSGD_hook.
    """
    if isinstance(hook, CommHook):
        return hook, _core.group_of_hook(hook)
    if isinstance(state, CommHook):
        return state, _core.group_of_hook(state)
    if callable(hook):
        own = group_of_state(state)
        made = native_hook(state, hook, group_for_hooks(group) if own is None else own)
        if made is None:
            raise TypeError(f"{name_of(hook)} is no hook of hookline's: register_comm_hook takes it")
        return made, _core.group_of_hook(made)
    chosen = group_for_hooks(group if state is None else state)
    return hookline.make_hook(hook, chosen, for_torch=True), chosen


def make_hook(hook: Any, group: Any = None, state: Any = None, *, reports_contribution: bool = False) -> CommHook:
    """A hook as hookline.make_hook makes it, of a text or a function, for a group of torch.distributed's or hookline's.

    Buckets that a Python hook gets have torch tensors. The state of a function is the hookline group that it
    communicates through unless another one is given.
    """
    return hookline.make_hook(
        hook, group_for_hooks(group), state, reports_contribution=reports_contribution, for_torch=True
    )


def register_comm_hook(model: Any, state: Any, hook: Any) -> None:
    """Has a hook of hookline, given as its text or made by hookline.make_hook, run on the model's buckets.

    The model is a torch.nn.parallel.DistributedDataParallel on any process group; for collectives `state` may name
    another one of the same ranks. The hook runs without Python, in the bucket's memory. A function hook(state, bucket)
    of the user's is taken, too: anything that can be called, with what it returns looked at.
    """
    if isinstance(model, OwnDistributedDataParallel):
        model.register_comm_hook(state, hook)
        return
    check_model(model)
    if torch._C._current_graph_task_id() != -1:
        raise InvalidArgument("a hook cannot be registered inside a step: do it before the forward pass")
    if is_users(hook, state):
        _native.register_python_hook(model.reducer, caller_of(hook, state))
        return
    made, group = hook_of(hook, state, model.process_group)
    names, parameters = zip(*model.module.named_parameters(), strict=True)
    native = _native.BucketHook(
        _core.group_to_capsule(group), _core.hook_to_capsule(made), list(parameters), list(names)
    )
    native.register(model.reducer)
    _registered[model] = native


def replace_ddp_comm_hook(comm_hook_type: Any, model: Any, state: Any = None) -> None:
    """Another hook from the next step on, for a model that has one of hookline's, or none yet. Between steps."""
    if isinstance(model, OwnDistributedDataParallel):
        hook, state = hook_named(comm_hook_type, state)
        model.replace_comm_hook(state, hook)
        return
    check_model(model)
    native = _registered.get(model)
    if native is None:
        register_ddp_comm_hook(comm_hook_type, model, state)
        return
    group = _core.group_from_capsule(native.group())
    hook, state = hook_named(comm_hook_type, group if state is None else state)
    made, own = hook_of(hook, state, group)
    if own is not group and own.size() != group.size():
        raise InvalidArgument("replace_ddp_comm_hook: the new hook is for a group of another size")
    if own.capabilities.lanes < group.capabilities.lanes:  # for which hooks are under way side by side
        raise InvalidArgument(
            "replace_ddp_comm_hook: the new hook's group has fewer lanes than that of the hook in its place, so that "
            "ranks would mix up the collectives of its buckets; make it for the same group"
        )
    native.replace(_core.hook_to_capsule(made))


def comm_hook(model: Any) -> CommHook:
    """The hook that was registered with a model: its costs(), and what it keeps, by save() and load()."""
    native = _of(model)
    return _core.hook_from_capsule(native.hook(), _core.group_from_capsule(native.group()))


def stats(model: Any) -> dict[str, Any]:
    """What was measured of the last step's hooks: times in seconds from the first bucket, and bytes sent."""
    return _of(model).stats()


def _of(model: Any) -> _native.BucketHook:
    check_model(model)
    native = _registered.get(model)
    if native is None:
        raise InvalidArgument("no hook of hookline is registered with this model; see register_ddp_comm_hook")
    return native


def check_model(model: Any) -> None:
    """Raises TypeError for what is no DistributedDataParallel."""
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            f"a torch.nn.parallel.DistributedDataParallel is expected as the model, not {class_name(model)}"
        )


def _register(spec: Any, model: Any, state: Any = None) -> None:
    hook, state = _with_state(spec, state)
    register_comm_hook(model, state, hook)


def _with_state(spec: Any, state: Any) -> tuple[Any, Any]:
    """A text and its state; of a PowerSGD type its function, and a state that is made where only a group is given."""
    if not isinstance(spec, tuple):
        return spec, state
    hook, rank = spec
    if state is None or isinstance(state, ProcessGroup | dist.ProcessGroup):
        state = PowerSGDState(state, matrix_approximation_rank=rank)
    return hook, state


class DDPCommHookType(enum.Enum):
    """PyTorch's names of the hooks. A value, called with model and state, registers the hook."""

    # Not plain functions, which would become methods.
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


def hook_named(hook: Any, state: Any) -> tuple[Any, Any]:
    """The hook that a user named, and its state: a type or its name, the text of a hook, or a hook."""
    if isinstance(hook, CommHook):
        return hook, state
    if isinstance(hook, str):
        if hook not in DDPCommHookType.__members__:
            return hook, state
        hook = DDPCommHookType[hook]
    if not isinstance(hook, DDPCommHookType):
        raise TypeError(
            "a hookline.torch.DDPCommHookType is expected as the type of the hook, or the name of one, or the text of "
            f"a hook such as 'int8 | error_feedback', not {class_name(hook)}"
        )
    return _with_state(hook.value.args[0], state)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType | str | CommHook, model: Any, state: Any = None) -> None:
    """Registers a hook with a DistributedDataParallel model: a type or its name, or the text of any hook.

    The state is None or a process group: for PowerSGD also a PowerSGDState.
    """
    hook, state = hook_named(comm_hook_type, state)
    try:
        register_comm_hook(model, state, hook)
    except InvalidArgument as error:
        if not isinstance(comm_hook_type, str) or "no hook is called" not in str(error):
            raise
        raise TypeError(
            f"register_ddp_comm_hook: no hook is called {comm_hook_type!r}; there are "
            f"{', '.join(DDPCommHookType.__members__)}, and hooks as texts: {error}"
        ) from None
