"""Hookline hooks as plain functions, for model.register_comm_hook(state, hook)."""

# No `from __future__ import annotations`: torch compares the annotations of a hook with classes.
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hookline
from hookline import CommHook, _core
from hookline._native_hooks import native_equivalent

from . import _native
from .comm_hooks import make_native_hook

Future: TypeAlias = torch.futures.Future[torch.Tensor]
Hook: TypeAlias = Callable[[Any, dist.GradBucket], Future]

# Bucket hooks by their process group or state.
_bucket_hooks: weakref.WeakKeyDictionary[Any, dict[Any, _native.BucketHook]] = weakref.WeakKeyDictionary()
_specs: dict[Any, Any] = {}


def run(spec: Any, state: Any, bucket: dist.GradBucket) -> Future:
    """Runs a hook, given by its spec or a function with a native equivalent, on a bucket. Creates it on first use."""
    key = dist.distributed_c10d._get_default_group() if state is None else state
    hooks = _bucket_hooks.setdefault(key, {})
    if spec not in hooks:
        native_hook, group = make_native_hook(spec, state, None)
        hooks[spec] = _native.BucketHook(_core.group_to_capsule(group), _core.hook_to_capsule(native_hook), [], [])
    # torch requires the result of a Python hook to be a Python object, which only a Python callback produces.
    future: Future = hooks[spec].run(bucket).then(_value)
    return future


def _value(done: Any) -> Any:
    return done.value()


def _plain(name: str, spec: Any, doc: str) -> Hook:
    def hook(state: Any, bucket: dist.GradBucket) -> Future:
        return run(spec, state, bucket)

    # torch inspects the name of a hook, and refuses one called bf16_compress_hook without CUDA.
    hook.__name__ = hook.__qualname__ = f"hookline_{name}"
    hook.__doc__ = doc
    _specs[hook] = spec

    def make(state: Any, group: Any) -> CommHook:
        return make_native_hook(spec, state, group)[0]

    return native_equivalent(make)(hook)


allreduce_hook = _plain("allreduce_hook", "allreduce", "Averages over all ranks. The state is a process group or None.")
fp16_compress_hook = _plain("fp16_compress_hook", "fp16", "Averages gradients that are sent as float16.")
bf16_compress_hook = _plain("bf16_compress_hook", "bf16", "Averages gradients that are sent as bfloat16.")
quantization_pertensor_hook = _plain(
    "quantization_pertensor_hook", "quantize_per_tensor", "Sends 8-bit integers with one scale per bucket."
)
quantization_perchannel_hook = _plain(
    "quantization_perchannel_hook", "quantize_per_channel", "Sends 8-bit integers with one scale per 512 values."
)
powerSGD_hook = _plain(  # noqa: N816 - PyTorch's name
    "powerSGD_hook",
    hookline.powerSGD_hook,
    "Reduces each matrix as two low-rank factors. The state is a PowerSGDState.",
)
batched_powerSGD_hook = _plain(  # noqa: N816
    "batched_powerSGD_hook",
    hookline.batched_powerSGD_hook,
    "Reduces the whole bucket as one low-rank matrix.",
)
post_localSGD_hook = _plain(  # noqa: N816
    "post_localSGD_hook",
    hookline.post_localSGD_hook,
    "Averages over all ranks at first, later over a subgroup. The state is a PostLocalSGDState.",
)
noop_hook = _plain("noop_hook", "noop", "Returns the buffer unchanged, neither reduced nor divided.")


def _wrapper(hook: Hook, wire: str, torch_wrapper: Callable[[Any], Hook]) -> Hook:
    spec = _specs.get(hook)
    if isinstance(spec, str):
        return _plain(
            f"{wire}_wrapper({hook.__name__})", f"{spec} | {wire}", f"Runs {spec} on a bucket cast to {wire}."
        )
    wrapped = torch_wrapper(hook)

    @functools.wraps(hook)
    def wrapper(state: Any, bucket: dist.GradBucket) -> Future:
        return wrapped(state, bucket)

    del wrapper.__wrapped__
    wrapper.__name__ = wrapper.__qualname__ = f"hookline_{wire}_wrapper"
    return wrapper


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Wraps a hook: casts the bucket to float16 before it and back after it."""
    return _wrapper(hook, "fp16", default_hooks.fp16_compress_wrapper)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Wraps a hook: casts the bucket to bfloat16 before it and back after it."""
    return _wrapper(hook, "bf16", default_hooks.bf16_compress_wrapper)
