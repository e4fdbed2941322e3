"""PowerSGD's hooks as functions, and what its state says in Python's log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ._core import PowerSGDState, default_group, powersgd_hook
from ._names import class_name
from ._native import stands_for

if TYPE_CHECKING:
    from ._core import CommHook, Future, GradBucket, ProcessGroup

logger = logging.getLogger("hookline")


def _check(state: object, hook: str) -> PowerSGDState:
    if not isinstance(state, PowerSGDState):
        raise TypeError(
            f"{hook} takes a hookline.PowerSGDState as its state, not {class_name(state)}; pass "
            "PowerSGDState(group), or register it by DDPCommHookType"
        )
    return state


def _make(state: Any, group: ProcessGroup | None) -> CommHook:
    return powersgd_hook(_check(state, "powerSGD_hook"), False, group)


def _make_batched(state: Any, group: ProcessGroup | None) -> CommHook:
    return powersgd_hook(_check(state, "batched_powerSGD_hook"), True, group)


def _group_of(state: PowerSGDState) -> ProcessGroup:
    group: ProcessGroup | None = PowerSGDState.process_group.__get__(state)  # hookline.torch's is one of torch
    return default_group() if group is None else group


@stands_for(_make)
def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """Reduces each matrix of a bucket as two factors of a few columns, for register_comm_hook(state, powerSGD_hook)."""
    return _make(state, _group_of(_check(state, "powerSGD_hook")))(None, bucket)


@stands_for(_make_batched)
def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """The same for the whole bucket as one square matrix: faster, and less accurate."""
    return _make_batched(state, _group_of(_check(state, "batched_powerSGD_hook")))(None, bucket)


def log_stats(step: int, before: int, after: int, rate: float) -> None:
    """What a state has saved up to now, as a line of the log."""
    logger.info("PowerSGD, step %d: %d elements became %d, a rate of %.4g", step, before, after, rate)


def warn_of_pickling() -> None:
    """A pickle of a state has all but the group."""
    logger.warning("A PowerSGDState was pickled without its process group, which cannot be saved.")


def warn_of_unpickling() -> None:
    """A state out of a pickle works on the default group."""
    logger.warning(
        "A PowerSGDState was unpickled with the default process group; set its process_group where it is for another."
    )
