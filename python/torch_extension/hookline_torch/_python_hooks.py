"""Hooks that are Python functions of the user's, on PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hookline import CommHook, Future
from hookline._hooks import check_hook, is_torch_future
from hookline._names import class_name
from hookline._native import is_native_hook


def is_users(hook: Any, state: Any) -> bool:
    """Whether a hook is neither a text nor one of hookline's."""
    return not isinstance(hook, str | CommHook) and not isinstance(state, CommHook) and not is_native_hook(hook)


def caller_of(hook: Any, state: Any) -> Callable[[Any], Any]:
    """The hook with its state, as a function of the bucket that returns a future of torch's."""
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

    def pass_on(done: Future[Any]) -> None:
        try:
            result.set_result(done.value())
        except BaseException as error:
            result.set_exception(error)

    future.then(pass_on)
    return result
