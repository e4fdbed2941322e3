"""Conversion of process groups and stores between torch.distributed and hookline."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as C10dBackend

from hookline import ProcessGroup, Store, _core
from hookline._names import class_name

from . import _native
from ._native import Options

CPU = torch.device("cpu")
DEFAULT_TIMEOUT = Options().timeout


def make_backend(options: Any, pg_options: Any) -> Any:
    """Creates the backend of a torch.distributed group; its rendezvous uses torch's store."""
    return _native.make_backend(
        options.store, options.group_rank, options.group_size, _options(pg_options, options.timeout)
    )


def _options(pg_options: Any, timeout: timedelta) -> Options:
    """Returns the options of a group. `timeout`, which torch always passes, applies if pg_options has the default."""
    if pg_options is not None and not isinstance(pg_options, C10dBackend.Options):
        raise TypeError(
            f"pg_options for the hookline backend: expected hookline.torch.Options, got {class_name(pg_options)}. "
            "Pass hookline.torch.Options(backend=…, backend_options=…, timeout=…)."
        )
    options = copy.copy(pg_options) if isinstance(pg_options, Options) else Options()
    # torch passes the options of one backend of a group to all backends; options of other backends are ignored.
    applies = type(pg_options) in (Options, C10dBackend.Options)
    own_timeout = pg_options._timeout if pg_options is not None and applies else DEFAULT_TIMEOUT
    if own_timeout != DEFAULT_TIMEOUT:
        timeout = own_timeout
    if timeout > timedelta(0):
        options.timeout = timeout
    return options


def group_to_torch_backend(group: ProcessGroup) -> Any:
    """Returns a backend for torch.distributed that runs on a hookline group.

    The group may be a debug wrapper or a Python subclass. Pass the backend to
    torch.distributed.ProcessGroup._register_backend.
    """
    return _native.backend_of_group(_core.group_to_capsule(group), _core.calls_python(group))


def group_from_torch(group: Any = None) -> ProcessGroup:
    """Returns a torch.distributed group, also a Python subclass, as a hookline group; None means the default group.

    For a group on the hookline backend this is the same group, with its lanes and shared memory. Returns a hookline
    group unchanged.
    """
    if isinstance(group, ProcessGroup):
        return group
    group = _torch_group(group, "group: expected a torch.distributed.ProcessGroup or a hookline.ProcessGroup")
    return _own_group(group) or _core.group_from_capsule(_native.group_of_torch(group))


def group_for_hooks(group: Any) -> ProcessGroup:
    """Returns the group for the collectives of hooks: a hookline group itself, a new group for other backends.

    DistributedDataParallel runs its own collectives on its group, and most backends match collectives in call order. A
    hookline group has lanes for hooks. A group implemented in Python is used as it is, since only the user can create
    another one.
    """
    if isinstance(group, ProcessGroup):
        return group
    group = _torch_group(
        group,
        "state of a hook: expected a process group of torch.distributed or hookline, a state for this hook, a "
        "hookline.CommHook, or None",
    )
    if type(group) is dist.ProcessGroup and _own_group(group) is None:
        group = new_group_of(group, dist.get_process_group_ranks(group), group_desc="hookline hooks")
    return group_from_torch(group)


def new_group_of(group: Any, ranks: list[int], **options: Any) -> Any:
    """Creates a torch group of some ranks of `group` with its backend and timeout. Only these ranks call this."""
    backend, timeout = dist.get_backend_config(group), group_from_torch(group).timeout
    return dist.new_group(ranks, timeout, backend, use_local_synchronization=True, **options)


def _own_group(group: Any) -> ProcessGroup | None:
    """Returns the hookline group that a torch.distributed group uses for CPU tensors, or None."""
    try:
        backend = group._get_backend(CPU)
    except RuntimeError:  # no backend for the CPU, or a group implemented in Python
        return None
    capsule = _native.group_of_backend(backend)
    return None if capsule is None else _core.group_from_capsule(capsule)


def _torch_group(group: Any, expected: str) -> dist.ProcessGroup:
    """Returns the group, or the default group for None; TypeError with the text `expected` for other types."""
    if group is None:
        return dist.distributed_c10d._get_default_group()
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{expected}, got {class_name(group)}")
    return group


def store_from_torch(store: Any) -> Store:
    """Returns a torch.distributed store, also a Python subclass, as a hookline store."""
    if isinstance(store, Store):
        return store
    if not isinstance(store, dist.Store):
        raise TypeError(f"store: expected a torch.distributed.Store or a hookline.Store, got {class_name(store)}")
    return _core.store_from_capsule(_native.store_of_torch(store))


def monitored_barrier(
    group: Any = None, timeout: float | timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error names the missing ranks. torch.distributed.monitored_barrier supports only Gloo."""
    if isinstance(group, ProcessGroup):
        group.monitored_barrier(timeout=timeout, wait_all_ranks=wait_all_ranks)
        return
    if timeout is None:
        timeout = timedelta(milliseconds=-1)  # the group's own
    elif not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    group = group or dist.distributed_c10d._get_default_group()
    group.monitored_barrier(timeout, wait_all_ranks)
