"""Gradients, buckets and communication hooks: the layer between a model and the network."""

from ._arrays import ArrayLike
from ._core import (
    Aborted,
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    Capabilities,
    Error,
    FileStore,
    Future,
    GatherOptions,
    InvalidArgument,
    MemoryStore,
    Mismatch,
    PeerLost,
    PrefixStore,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    Rendezvous,
    ResourceError,
    ScatterOptions,
    Store,
    TCPStore,
    Tensor,
    Timeout,
    Unsupported,
    Work,
    WorkInfo,
    asarray,
    checked,
    compared,
    dump_records,
    empty,
    from_dlpack,
    full,
    init_process_group,
    nan_checked,
    recorded,
    records,
    rendezvous,
    threads_groups,
    zeros,
)
from ._core import version as __version__
from ._futures import collect_all, when_all
from ._subclassing import require_init

HashStore = MemoryStore  # the name that torch.distributed has for it
AllreduceCoalescedOptions = AllreduceOptions  # here too

require_init(ProcessGroup, "rank, size")
require_init(Work, "")
require_init(Store, "")

__all__ = [
    "Aborted",
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "ArrayLike",
    "BarrierOptions",
    "BroadcastOptions",
    "Capabilities",
    "Error",
    "FileStore",
    "Future",
    "GatherOptions",
    "HashStore",
    "InvalidArgument",
    "MemoryStore",
    "Mismatch",
    "PeerLost",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "Rendezvous",
    "ResourceError",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "Tensor",
    "Timeout",
    "Unsupported",
    "Work",
    "WorkInfo",
    "__version__",
    "asarray",
    "checked",
    "collect_all",
    "compared",
    "dump_records",
    "empty",
    "from_dlpack",
    "full",
    "init_process_group",
    "nan_checked",
    "recorded",
    "records",
    "rendezvous",
    "threads_groups",
    "when_all",
    "zeros",
]

# Messages and pickles name the types where users find them.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name
