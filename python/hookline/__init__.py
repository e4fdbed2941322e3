"""Gradients, buckets and communication hooks: the layer between a model and the network."""

from importlib import import_module as _import_module

from ._arrays import ArrayLike
from ._core import (
    SGD,
    Aborted,
    Adam,
    AdamW,
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    Capabilities,
    Codec,
    CommHook,
    Error,
    FileStore,
    Future,
    GatherOptions,
    GradBucket,
    HierarchicalModelAverager,
    InvalidArgument,
    MemoryStore,
    Mismatch,
    ModelAverager,
    Optimizer,
    PeerLost,
    PeriodicModelAverager,
    PostLocalSGDState,
    PowerSGDState,
    PrefixStore,
    ProcessGroup,
    ReduceOp,
    ReduceOptions,
    Reducer,
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
    backend_names,
    broadcast_coalesced,
    default_group,
    dump_flight_records,
    empty,
    flight_records,
    from_dlpack,
    full,
    hook_options,
    init_process_group,
    local_group,
    make_codec,
    make_hook,
    make_optimizer,
    make_thread_groups,
    overlap,
    registered_hooks,
    rendezvous,
    with_collective_checks,
    with_cross_check,
    with_flight_recorder,
    with_nan_checks,
    zeros,
)
from ._core import version as __version__
from ._futures import collect_all, when_all
from ._hooks import DDPCommHookType, register_ddp_comm_hook, register_hook, unregister_hook
from ._optimizers import PostLocalSGDOptimizer, post_localSGD_hook
from ._powersgd import batched_powerSGD_hook, powerSGD_hook
from ._subclassing import require_init

# Names from torch.distributed.
HashStore = MemoryStore
AllreduceCoalescedOptions = AllreduceOptions

require_init(ProcessGroup, "rank, size")
require_init(Work, "")
require_init(Store, "")

__all__ = [
    "SGD",
    "Aborted",
    "Adam",
    "AdamW",
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "ArrayLike",
    "BarrierOptions",
    "BroadcastOptions",
    "Capabilities",
    "Codec",
    "CommHook",
    "DDPCommHookType",
    "Error",
    "FileStore",
    "Future",
    "GatherOptions",
    "GradBucket",
    "HashStore",
    "HierarchicalModelAverager",
    "InvalidArgument",
    "MemoryStore",
    "Mismatch",
    "ModelAverager",
    "Optimizer",
    "PeerLost",
    "PeriodicModelAverager",
    "PostLocalSGDOptimizer",
    "PostLocalSGDState",
    "PowerSGDState",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "Reducer",
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
    "backend_names",
    "batched_powerSGD_hook",
    "broadcast_coalesced",
    "collect_all",
    "default_group",
    "dump_flight_records",
    "empty",
    "flight_records",
    "from_dlpack",
    "full",
    "hook_options",
    "init_process_group",
    "local_group",
    "make_codec",
    "make_hook",
    "make_optimizer",
    "make_thread_groups",
    "overlap",
    "post_localSGD_hook",
    "powerSGD_hook",
    "register_ddp_comm_hook",
    "register_hook",
    "registered_hooks",
    "rendezvous",
    "unregister_hook",
    "when_all",
    "with_collective_checks",
    "with_cross_check",
    "with_flight_recorder",
    "with_nan_checks",
    "zeros",
]

# Error messages and pickles refer to the types by their public module.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
del _name


def __getattr__(name: str) -> object:
    """Loads hookline.numpy and hookline.torch on first use."""
    if name not in {"numpy", "torch"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _import_module(f"{__name__}.{name}")
