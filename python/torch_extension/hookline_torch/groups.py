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


def backend_of(group: ProcessGroup) -> Any:
    """Wraps a hookline group, also a debug wrapper or a Python class, as a torch.distributed backend."""
    return _native.backend_of_group(_core.group_to_capsule(group), _core.calls_python(group))


def native_group(group: Any) -> ProcessGroup | None:
    """Returns the hookline group that a torch.distributed group uses for CPU tensors, or None."""
    try:
        backend = group._get_backend(CPU)
    except RuntimeError:  # no backend for the CPU, or a group that is a Python class
        return None
    capsule = _native.group_of_backend(backend)
    return None if capsule is None else _core.group_from_capsule(capsule)


def torch_group(group: Any, expected: str) -> dist.ProcessGroup:
    """Returns the group, or the default group for None; TypeError with the text `expected` for other types."""
    if group is None:
        return dist.distributed_c10d._get_default_group()
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{expected}, got {class_name(group)}")
    return group


def as_group(group: Any = None) -> ProcessGroup:
    """Returns a torch.distributed group, also a Python class, as a hookline group; None means the default group.

    For a group on the hookline backend this is the same group, with its lanes and shared memory.
    """
    if isinstance(group, ProcessGroup):
        return group
    group = torch_group(group, "group: expected a torch.distributed.ProcessGroup or a hookline.ProcessGroup")
    return native_group(group) or _core.group_from_capsule(_native.group_of_torch(group))


def as_store(store: Any) -> Store:
    """Returns a torch.distributed store, also a Python class, as a hookline store."""
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
