"""Hookline errors under torch.distributed, which also derive from the errors that torch's own backends raise."""

from __future__ import annotations

import re

from torch.distributed import DistBackendError

import hookline


class Error(hookline.Error, DistBackendError):  # type: ignore[misc]
    """The base class of the errors below."""


class Timeout(hookline.Timeout, DistBackendError):  # type: ignore[misc]
    """An operation did not complete within its timeout."""


class PeerLost(hookline.PeerLost, DistBackendError):  # type: ignore[misc]
    """A peer died or its connection was lost."""


class Mismatch(hookline.Mismatch, DistBackendError):  # type: ignore[misc]
    """The ranks called different operations; no data was changed."""


class Aborted(hookline.Aborted, DistBackendError):  # type: ignore[misc]
    """A rank aborted the group."""


class ResourceError(hookline.ResourceError, DistBackendError):  # type: ignore[misc]
    """The operating system refused memory, a file or a socket."""


# InvalidArgument (a ValueError and RuntimeError) and Unsupported (a NotImplementedError) need no torch type.
_TYPES: dict[type[BaseException], type[hookline.Error]] = {
    hookline.Error: Error,
    hookline.Timeout: Timeout,
    hookline.PeerLost: PeerLost,
    hookline.Mismatch: Mismatch,
    hookline.Aborted: Aborted,
    hookline.ResourceError: ResourceError,
}
# Code written for Gloo and NCCL searches error messages for these words.
_TIMEOUT_WORDS = re.compile(r" (timeout|timed out) ", re.IGNORECASE)


def for_torch(error: BaseException) -> BaseException:
    """Returns the exception that callers of torch.distributed get for `error`.

    An exception raised by Python code, for example in a process group written in Python, is returned unchanged.
    """
    kind = _TYPES.get(type(error))
    if kind is None or error.__traceback__ is not None:
        return error
    text = f"{kind.__name__}: {error}"
    if kind is Timeout and not _TIMEOUT_WORDS.search(text):
        text += ". The timeout expired."
    raised = kind(text)
    raised.__dict__.update(error.__dict__)
    raised.__cause__ = error.__cause__
    return raised
