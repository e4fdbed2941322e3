"""Functions of Python's that stand for hooks of C++'s, which a reducer runs in their place, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ._core import CommHook, ProcessGroup

Hook = TypeVar("Hook", bound=Callable[..., Any])

_makers: dict[Callable[..., Any], Callable[[Any, ProcessGroup | None], CommHook]] = {}


def stands_for(make: Callable[[Any, ProcessGroup | None], CommHook]) -> Callable[[Hook], Hook]:
    """Says of a function hook(state, bucket) that make(state, group) makes the hook that it stands for."""

    def say(hook: Hook) -> Hook:
        _makers[hook] = make
        return hook

    return say


def native_hook(state: Any, hook: Any, group: ProcessGroup | None) -> CommHook | None:
    """The hook of C++'s that a function stands for; None where it stands for itself."""
    make = _maker_of(hook)
    return None if make is None else make(state, group)


def is_native_hook(hook: Any) -> bool:
    """Whether a function stands for a hook of C++'s."""
    return _maker_of(hook) is not None


def _maker_of(hook: Any) -> Callable[[Any, ProcessGroup | None], CommHook] | None:
    try:
        return _makers.get(hook)
    except TypeError:  # an object that cannot be a key
        return None
