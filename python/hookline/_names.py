"""Names of objects in error messages."""

from __future__ import annotations

import functools


def class_name(value: object) -> str:
    """Returns the module and qualified name of an object's class."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def name_of(hook: object) -> str:
    """Returns the module and qualified name of a function, or of the class of a callable object."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return f"{hook.__module__}.{hook.__qualname__}" if hasattr(hook, "__qualname__") else class_name(hook)
