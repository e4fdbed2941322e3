"""Detects a missing super().__init__() in classes that derive from native ones, at construction."""

import functools
from typing import Any

from . import _core


def require_init(base: Any, arguments: str) -> None:
    """Makes classes derived from `base` verify that their __init__ called super().__init__(arguments)."""

    def init_subclass(cls: Any, /, **options: Any) -> None:
        super(base, cls).__init_subclass__(**options)
        init: Any = cls.__init__
        if init is base.__init__ or getattr(init, "_checks_init_of", None) is cls:
            return

        @functools.wraps(init)
        def checked(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            if type(self) is cls and not _core.is_initialized(self):
                name = f"{cls.__qualname__}.__init__()"
                raise TypeError(f"{name} must call super().__init__({arguments}) before the object can be used")

        checked._checks_init_of = cls  # type: ignore[attr-defined]
        cls.__init__ = checked

    base.__init_subclass__ = classmethod(init_subclass)
