"""Hooks of hookline as plain functions, for model.register_comm_hook(state, hook)."""

# No annotations as texts here: torch compares those of a hook with the classes themselves.
import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hookline
from hookline import _core

from . import _native
from .comm_hooks import hook_of

Future: TypeAlias = torch.futures.Future[torch.Tensor]
Hook: TypeAlias = Callable[[Any, dist.GradBucket], Future]

# By what they were made for: a process group, or a state.
_running: weakref.WeakKeyDictionary[Any, dict[Any, _native.BucketHook]] = weakref.WeakKeyDictionary()
_specs: dict[Any, Any] = {}


def run(spec: Any, state: Any, bucket: dist.GradBucket) -> Future:
    """Runs a hook on a bucket, given as its text or the function that stands for it; made when it is first used."""
    key = dist.distributed_c10d._get_default_group() if state is None else state
    hooks = _running.setdefault(key, {})
    if spec not in hooks:
        made, group = hook_of(spec, state, None)
        hooks[spec] = _native.BucketHook(_core.group_to_capsule(group), _core.hook_to_capsule(made), [], [])
    # torch wants the result of a Python hook to be an object of Python's, which only one of Python's callbacks gives.
    future: Future = hooks[spec].run(bucket).then(_value)
    return future


def _value(done: Any) -> Any:
    return done.value()


def _plain(name: str, spec: Any, doc: str) -> Hook:
    def hook(state: Any, bucket: dist.GradBucket) -> Future:
        return run(spec, state, bucket)

    # torch looks at the signature of a hook, and refuses one called bf16_compress_hook where there is no CUDA.
    hook.__name__ = hook.__qualname__ = f"hookline_{name}"
    hook.__doc__ = doc
    _specs[hook] = spec
    return hook


allreduce_hook = _plain("allreduce_hook", "allreduce", "The mean over all ranks. The state is a process group or None.")
fp16_compress_hook = _plain("fp16_compress_hook", "fp16", "The mean of gradients that travel as float16.")
bf16_compress_hook = _plain("bf16_compress_hook", "bf16", "The mean of gradients that travel as bfloat16.")
quantization_pertensor_hook = _plain(
    "quantization_pertensor_hook", "quantize_per_tensor", "8-bit integers, with one scale for a bucket."
)
quantization_perchannel_hook = _plain(
    "quantization_perchannel_hook", "quantize_per_channel", "8-bit integers, with a scale for each 512 values."
)
powerSGD_hook = _plain(  # noqa: N816 - PyTorch's name
    "powerSGD_hook",
    hookline.powerSGD_hook,
    "Each matrix as two factors of a few columns. The state is a PowerSGDState.",
)
batched_powerSGD_hook = _plain(  # noqa: N816
    "batched_powerSGD_hook", hookline.batched_powerSGD_hook, "The same for the whole bucket as one square matrix."
)
post_localSGD_hook = _plain(  # noqa: N816
    "post_localSGD_hook",
    hookline.post_localSGD_hook,
    "The mean over all ranks at first, later over a subgroup. The state is a PostLocalSGDState.",
)
noop_hook = _plain("noop_hook", "noop", "The buffer as it is, neither reduced nor divided.")


def _wrapper(hook: Hook, wire: str, foreign: Callable[[Any], Hook]) -> Hook:
    text = _specs.get(hook)
    if isinstance(text, str):
        return _plain(f"{wire}_wrapper({hook.__name__})", f"{text} | {wire}", f"{text}, on a bucket cast to {wire}.")
    wrapped = foreign(hook)

    @functools.wraps(hook)
    def around(state: Any, bucket: dist.GradBucket) -> Future:
        return wrapped(state, bucket)

    del around.__wrapped__
    around.__name__ = around.__qualname__ = f"hookline_{wire}_wrapper"
    return around


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, on a bucket that is cast to float16 and back."""
    return _wrapper(hook, "fp16", default_hooks.fp16_compress_wrapper)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """The hook, on a bucket that is cast to bfloat16 and back."""
    return _wrapper(hook, "bf16", default_hooks.bf16_compress_wrapper)
