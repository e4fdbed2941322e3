"""PyTorch integration: re-exports the distribution hookline_torch, which is built against the installed torch."""

from ._torch_versions import load as _load

_load()

from hookline_torch import *  # noqa: E402, F403
from hookline_torch import __all__ as __all__  # noqa: E402
