"""hookline's errors under torch.distributed: of hookline's types, and of those that torch's own backends raise."""

from __future__ import annotations

import re

from torch.distributed import DistBackendError

import hookline


class Error(hookline.Error, DistBackendError):  # type: ignore[misc]
    """The base of the errors below that have no closer type."""


class Timeout(hookline.Timeout, DistBackendError):  # type: ignore[misc]
    """Something did not happen in time."""


class PeerLost(hookline.PeerLost, DistBackendError):  # type: ignore[misc]
    """A peer died or its connection broke."""


class Mismatch(hookline.Mismatch, DistBackendError):  # type: ignore[misc]
    """The ranks did not call the same operation; no data was changed."""


class Aborted(hookline.Aborted, DistBackendError):  # type: ignore[misc]
    """A rank aborted the group."""


class ResourceError(hookline.ResourceError, DistBackendError):  # type: ignore[misc]
    """The operating system refused memory, a file or a socket."""


# InvalidArgument is a ValueError and a RuntimeError, Unsupported a NotImplementedError: they stay as they are.
_TYPES: dict[type[BaseException], type[hookline.Error]] = {
    hookline.Error: Error,
    hookline.Timeout: Timeout,
    hookline.PeerLost: PeerLost,
    hookline.Mismatch: Mismatch,
    hookline.Aborted: Aborted,
    hookline.ResourceError: ResourceError,
}
# Code written for Gloo and NCCL searches the texts of their timeouts for these words.
_TIMEOUT_WORDS = re.compile(r" (timeout|timed out) ", re.IGNORECASE)


def for_torch(error: BaseException) -> BaseException:
    """Returns the exception that a caller of torch.distributed gets for `error`.

    An exception that Python code has raised, in a process group that is a Python class for example, stays that object.
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
