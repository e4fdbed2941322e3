"""The PyTorch integration, built against the installed PyTorch; users import it as hookline.torch."""

from hookline._torch_versions import check as _check

_check()  # before importing the extension, which cannot be loaded with another PyTorch version

import atexit as _atexit  # noqa: E402

import torch as _torch  # noqa: E402, F401  (loads libraries that the extension requires)

import hookline_torch_autoload as _autoload  # noqa: E402

from . import _native, errors  # noqa: E402
from ._native import Options  # noqa: E402
from .comm_hooks import (  # noqa: E402
    DDPCommHookType,
    PostLocalSGDState,
    PowerSGDState,
    comm_hook,
    make_hook,
    register_comm_hook,
    register_ddp_comm_hook,
    replace_comm_hook,
    stats,
)
from .data_parallel import DistributedDataParallel  # noqa: E402
from .groups import group_from_torch, group_to_torch_backend, monitored_barrier, store_from_torch  # noqa: E402
from .mixed_precision import MixedPrecision  # noqa: E402
from .plain_hooks import (  # noqa: E402
    allreduce_hook,
    batched_powerSGD_hook,
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
    noop_hook,
    post_localSGD_hook,
    powerSGD_hook,
    quantization_perchannel_hook,
    quantization_pertensor_hook,
)

__all__ = [
    "DDPCommHookType",
    "DistributedDataParallel",
    "MixedPrecision",
    "Options",
    "PostLocalSGDState",
    "PowerSGDState",
    "allreduce_hook",
    "batched_powerSGD_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "comm_hook",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
    "group_from_torch",
    "group_to_torch_backend",
    "make_hook",
    "monitored_barrier",
    "noop_hook",
    "post_localSGD_hook",
    "powerSGD_hook",
    "quantization_perchannel_hook",
    "quantization_pertensor_hook",
    "register_comm_hook",
    "register_ddp_comm_hook",
    "replace_comm_hook",
    "stats",
    "store_from_torch",
]

_native.connect_to_core(errors.for_torch)
_autoload.register()
_atexit.register(_native.end)
