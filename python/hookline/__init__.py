"""Gradients, buckets and communication hooks: the layer between a model and the network."""

from ._core import (
    Aborted,
    Error,
    FileStore,
    Future,
    InvalidArgument,
    MemoryStore,
    Mismatch,
    PeerLost,
    PrefixStore,
    Rendezvous,
    ResourceError,
    Store,
    TCPStore,
    Tensor,
    Timeout,
    Unsupported,
    asarray,
    empty,
    from_dlpack,
    full,
    rendezvous,
    zeros,
)
from ._core import version as __version__
from ._futures import collect_all, when_all

HashStore = MemoryStore  # the name that torch.distributed has for it

__all__ = [
    "Aborted",
    "Error",
    "FileStore",
    "Future",
    "HashStore",
    "InvalidArgument",
    "MemoryStore",
    "Mismatch",
    "PeerLost",
    "PrefixStore",
    "Rendezvous",
    "ResourceError",
    "Store",
    "TCPStore",
    "Tensor",
    "Timeout",
    "Unsupported",
    "__version__",
    "asarray",
    "collect_all",
    "empty",
    "from_dlpack",
    "full",
    "rendezvous",
    "when_all",
    "zeros",
]

# Messages and pickles name the types where users find them.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
