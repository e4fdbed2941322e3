"""Whether hookline.torch can work here, and if not, what to do about it."""

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


def why_not(torch: str | None, built_with: str | None, untested_is_fine: bool = False) -> str | None:
    """What to tell the user, given the version of torch and that which hookline_torch was built against; None if fine.

    None as a version means that the package is not installed.
    """
    if torch is None:
        return f"hookline.torch needs PyTorch, which is not installed: pip install torch=={TESTED}.0"
    if not torch.startswith(f"{TESTED}.") and not untested_is_fine:
        return (
            f"hookline.torch was tested with PyTorch {TESTED}, and {torch} is installed: pip install "
            f"torch=={TESTED}.0, or set HOOKLINE_TORCH_UNTESTED=1 to try it with this one"
        )
    if built_with is None:
        return (
            f"hookline.torch needs the package hookline_torch, which is built against the installed PyTorch: {REBUILD}"
        )
    if built_with != torch:
        return f"hookline_torch was built against PyTorch {built_with}, and {torch} is installed. Build it: {REBUILD}"
    return None


def installed(package: str) -> str | None:
    """The version of a package; None where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def built_with() -> str | None:
    """The version of torch that hookline_torch was built against; None where there is no such package."""
    try:
        return str(importlib.import_module("hookline_torch._built_with").TORCH_VERSION)
    except ModuleNotFoundError:
        return None


def check() -> None:
    """Raises ImportError where hookline.torch cannot work here."""
    reason = why_not(installed("torch"), built_with(), os.environ.get("HOOKLINE_TORCH_UNTESTED") == "1")
    if reason:
        raise ImportError(reason, name="hookline.torch")


def load() -> ModuleType:
    """hookline_torch, or an ImportError that says what to do."""
    check()
    return importlib.import_module("hookline_torch")
