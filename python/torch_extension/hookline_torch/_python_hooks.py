"""User-defined Python hooks on PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hookline import CommHook, Future
from hookline._hooks import check_hook, is_torch_future
from hookline._names import class_name
from hookline._native_hooks import has_native_equivalent


def is_user_hook(hook: Any, state: Any) -> bool:
    """True for a user's function: no hook spec, no CommHook (also as state), and no function with a native hook."""
    return not isinstance(hook, str | CommHook) and not isinstance(state, CommHook) and not has_native_equivalent(hook)


def bind_state(hook: Any, state: Any) -> Callable[[Any], Any]:
    """Returns a function of the bucket that calls the hook with its state and returns a torch future."""
    name = check_hook(hook)

    def call(bucket: Any) -> Any:
        future = hook(state, bucket)
        if isinstance(future, Future):
            return _as_torch(future)
        if not is_torch_future(future):
            raise RuntimeError(
                f"{name}: DDP communication hook's callback must return a torch.futures.Future object, but got "
                f"{class_name(future)}"
            )
        return future

    return call


def _as_torch(future: Future[Any]) -> Any:
    result: Any = torch.futures.Future()

    def forward(done: Future[Any]) -> None:
        try:
            result.set_result(done.value())
        except BaseException as error:
            result.set_exception(error)

    future.then(forward)
    return result
