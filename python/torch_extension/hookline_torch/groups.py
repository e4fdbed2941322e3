"""Process groups and stores that cross between torch.distributed and hookline, both ways."""

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
    """The backend of a group that torch.distributed makes; it meets the other ranks in torch's store."""
    return _native.make_backend(
        options.store, options.group_rank, options.group_size, _options(pg_options, options.timeout)
    )


def _options(pg_options: Any, timeout: timedelta) -> Options:
    """The options of a group: `timeout`, which torch passes in any case, counts where pg_options has the default."""
    if pg_options is not None and not isinstance(pg_options, C10dBackend.Options):
        raise TypeError(
            f"pg_options of a group with the hookline backend: expected hookline.torch.Options, "
            f"got {class_name(pg_options)}. Pass hookline.torch.Options(backend=…, backend_options=…, timeout=…)."
        )
    own = copy.copy(pg_options) if isinstance(pg_options, Options) else Options()
    # torch passes the options of any backend of a group to all of them: only ours and the plain ones are meant.
    meant = type(pg_options) in (Options, C10dBackend.Options)
    given = pg_options._timeout if pg_options is not None and meant else DEFAULT_TIMEOUT
    if given != DEFAULT_TIMEOUT:
        timeout = given
    if timeout > timedelta(0):
        own.timeout = timeout
    return own


def backend_of(group: ProcessGroup) -> Any:
    """Any group of hookline's as a backend for torch.distributed.ProcessGroup, decorated or Python classes too."""
    return _native.backend_of_group(_core.group_to_capsule(group), _core.calls_python(group))


def native_group(group: Any) -> ProcessGroup | None:
    """The hookline group under a group of torch.distributed whose CPU tensors go through it; None for others."""
    try:
        backend = group._get_backend(CPU)
    except RuntimeError:  # no backend for the CPU, or a group that is a Python class
        return None
    capsule = _native.group_of_backend(backend)
    return None if capsule is None else _core.group_from_capsule(capsule)


def torch_group(group: Any, expected: str) -> dist.ProcessGroup:
    """The default group where none is given; a TypeError that says what is expected for anything but a group."""
    if group is None:
        return dist.distributed_c10d._get_default_group()
    if not isinstance(group, dist.ProcessGroup):
        raise TypeError(f"{expected}, not {class_name(group)}")
    return group


def as_group(group: Any = None) -> ProcessGroup:
    """A group of torch.distributed, a Python class too, as a hookline group; None means the default group.

    One that runs on the hookline backend is that very group, with its lanes and shared memory.
    """
    if isinstance(group, ProcessGroup):
        return group
    group = torch_group(group, "a torch.distributed.ProcessGroup or a hookline.ProcessGroup is expected")
    return native_group(group) or _core.group_from_capsule(_native.group_of_torch(group))


def as_store(store: Any) -> Store:
    """Any store of torch.distributed, a Python class too, as a hookline store."""
    if isinstance(store, Store):
        return store
    if not isinstance(store, dist.Store):
        raise TypeError(f"a torch.distributed.Store or a hookline.Store is expected, not {class_name(store)}")
    return _core.store_from_capsule(_native.store_of_torch(store))


def monitored_barrier(
    group: Any = None, timeout: float | timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """A barrier whose error names who did not come. torch.distributed.monitored_barrier itself takes Gloo alone."""
    if isinstance(group, ProcessGroup):
        group.monitored_barrier(timeout=timeout, wait_all_ranks=wait_all_ranks)
        return
    if timeout is None:
        timeout = timedelta(milliseconds=-1)  # the group's own
    elif not isinstance(timeout, timedelta):
        timeout = timedelta(seconds=timeout)
    group = group or dist.distributed_c10d._get_default_group()
    group.monitored_barrier(timeout, wait_all_ranks)
