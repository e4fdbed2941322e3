"""Python hook functions with a native equivalent in C++, which reducers run instead, without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from ._core import CommHook, ProcessGroup

Hook = TypeVar("Hook", bound=Callable[..., Any])

_makers: dict[Callable[..., Any], Callable[[Any, ProcessGroup | None], CommHook]] = {}


def native_equivalent(make: Callable[[Any, ProcessGroup | None], CommHook]) -> Callable[[Hook], Hook]:
    """Decorates a function hook(state, bucket): make(state, group) returns the equivalent native hook."""

    def decorate(hook: Hook) -> Hook:
        _makers[hook] = make
        return hook

    return decorate


def native_hook(state: Any, hook: Any, group: ProcessGroup | None) -> CommHook | None:
    """Returns the native hook for a function, or None if it has none."""
    make = _maker_of(hook)
    return None if make is None else make(state, group)


def has_native_equivalent(hook: Any) -> bool:
    """True if a function has a native hook."""
    return _maker_of(hook) is not None


def _maker_of(hook: Any) -> Callable[[Any, ProcessGroup | None], CommHook] | None:
    try:
        return _makers.get(hook)
    except TypeError:  # an unhashable object
        return None
