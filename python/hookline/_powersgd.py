"""PowerSGD hooks as functions, and log messages of PowerSGDState."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from ._core import PowerSGDState, default_group, powersgd_hook
from ._names import class_name
from ._native_hooks import native_equivalent

if TYPE_CHECKING:
    from ._core import CommHook, Future, GradBucket, ProcessGroup

logger = logging.getLogger("hookline")


def _check(state: object, hook: str) -> PowerSGDState:
    if not isinstance(state, PowerSGDState):
        raise TypeError(
            f"{hook}: state: expected a hookline.PowerSGDState, got {class_name(state)}. Pass PowerSGDState(group), or "
            "register the hook by its DDPCommHookType."
        )
    return state


def _make(state: Any, group: ProcessGroup | None) -> CommHook:
    return powersgd_hook(_check(state, "powerSGD_hook"), False, group)


def _make_batched(state: Any, group: ProcessGroup | None) -> CommHook:
    return powersgd_hook(_check(state, "batched_powerSGD_hook"), True, group)


def _group_of(state: PowerSGDState) -> ProcessGroup:
    group: ProcessGroup | None = PowerSGDState.process_group.__get__(
        state
    )  # hookline.torch overrides it with a torch group
    return default_group() if group is None else group


@native_equivalent(_make)
def powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """Reduces each matrix of a bucket as two factors of a few columns, for register_comm_hook(state, powerSGD_hook)."""
    return _make(state, _group_of(_check(state, "powerSGD_hook")))(None, bucket)


@native_equivalent(_make_batched)
def batched_powerSGD_hook(state: PowerSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """Reduces the whole bucket as one square matrix: faster and less accurate than powerSGD_hook."""
    return _make_batched(state, _group_of(_check(state, "batched_powerSGD_hook")))(None, bucket)


def log_stats(step: int, before: int, after: int, rate: float) -> None:
    """Logs the compression statistics of a state."""
    logger.info("PowerSGD step %d: compressed %d elements to %d, rate %.4g", step, before, after, rate)


def warn_of_pickling() -> None:
    """Logs that a pickle does not include the process group."""
    logger.warning("PowerSGDState was pickled without its process group, which cannot be saved.")


def warn_of_unpickling() -> None:
    """Logs that an unpickled state uses the default process group."""
    logger.warning(
        "PowerSGDState was unpickled with the default process group. Set its process_group to use another one."
    )
