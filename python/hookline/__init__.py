"""Gradients, buckets and communication hooks: the layer between a model and the network."""

from ._core import (
    Aborted,
    Error,
    Future,
    InvalidArgument,
    Mismatch,
    PeerLost,
    ResourceError,
    Tensor,
    Timeout,
    Unsupported,
    asarray,
    empty,
    from_dlpack,
    full,
    zeros,
)
from ._core import version as __version__
from ._futures import collect_all, when_all

__all__ = [
    "Aborted",
    "Error",
    "Future",
    "InvalidArgument",
    "Mismatch",
    "PeerLost",
    "ResourceError",
    "Tensor",
    "Timeout",
    "Unsupported",
    "__version__",
    "asarray",
    "collect_all",
    "empty",
    "from_dlpack",
    "full",
    "when_all",
    "zeros",
]

# Messages and pickles name the types where users find them.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
