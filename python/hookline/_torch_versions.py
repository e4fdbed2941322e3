"""Checks that hookline.torch is compatible with the installed PyTorch."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from types import ModuleType

TESTED = "2.13"
REBUILD = (
    "pip install 'scikit-build-core>=1.1', and in hookline's sources: "
    "pip install --force-reinstall --no-deps --no-build-isolation ./python/torch_extension"
)


def incompatibility(torch: str | None, built_with: str | None, allow_untested: bool = False) -> str | None:
    """Returns the reason why hookline.torch cannot work with these versions, or None.

    `torch` is the installed version, `built_with` the one that hookline_torch was built against; None if not installed.
    """
    if torch is None:
        return f"hookline.torch requires PyTorch, which is not installed. Run: pip install torch=={TESTED}.0"
    if not torch.startswith(f"{TESTED}.") and not allow_untested:
        return (
            f"hookline.torch is tested with PyTorch {TESTED}, but {torch} is installed. Run: pip install "
            f"torch=={TESTED}.0, or set HOOKLINE_TORCH_UNTESTED=1 to use this version"
        )
    if built_with is None:
        return (
            "hookline.torch requires the package hookline_torch, built against the installed PyTorch. "
            f"To build it, run: {REBUILD}"
        )
    if built_with != torch:
        return (
            f"hookline_torch was built against PyTorch {built_with}, but {torch} is installed. "
            f"To rebuild it, run: {REBUILD}"
        )
    return None


def installed(package: str) -> str | None:
    """Returns the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def built_with() -> str | None:
    """Returns the torch version that hookline_torch was built against, or None if it is not installed."""
    try:
        return str(importlib.import_module("hookline_torch._built_with").TORCH_VERSION)
    except ModuleNotFoundError:
        return None


def check() -> None:
    """Raises ImportError if hookline.torch cannot work with the installed packages."""
    reason = incompatibility(installed("torch"), built_with(), os.environ.get("HOOKLINE_TORCH_UNTESTED") == "1")
    if reason:
        raise ImportError(reason, name="hookline.torch")


def load() -> ModuleType:
    """Imports hookline_torch; ImportError with instructions if it is missing or incompatible."""
    check()
    return importlib.import_module("hookline_torch")
