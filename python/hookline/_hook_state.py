"""Serializes the state of Python hooks as bytes, which can be loaded without executing code."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ._core import InvalidArgument, asarray, empty
from ._names import class_name

_SCALARS = (bool, int, float, str)


def encode(state: Any) -> bytes:
    """Encodes a dict of numbers, strings, bytes, arrays, torch tensors, and lists, tuples and dicts of these."""
    if not isinstance(state, Mapping):
        raise InvalidArgument(f"state_dict(): expected a dict, got {class_name(state)}")
    payloads: list[bytes] = []
    header = json.dumps(_describe(state, payloads)).encode()
    return b"".join([len(header).to_bytes(8, "little"), header, *payloads])


def decode(data: bytes) -> Any:
    """Returns the state that encode() encoded."""
    begin = 8 + int.from_bytes(data[:8], "little")
    try:
        header = json.loads(data[8:begin])
    except ValueError as error:
        raise InvalidArgument(f"the state of this hook is corrupt: {error}") from None
    return _restore(header, _Payloads(data, begin))


class _Payloads:
    """The raw bytes behind the header, in order."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position

    def take(self, count: int) -> bytes:
        begin, self.position = self.position, self.position + count
        if count < 0 or self.position > len(self.data):
            raise InvalidArgument("the state of this hook is corrupt: it ends too early")
        return self.data[begin : self.position]


def _describe(value: Any, payloads: list[bytes]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, _SCALARS):
        return value
    if isinstance(value, bytes):
        payloads.append(value)
        return {"kind": "bytes", "count": len(value)}
    if isinstance(value, list | tuple):
        return {"kind": type(value).__name__, "items": [_describe(item, payloads) for item in value]}
    if isinstance(value, Mapping):
        items = [[_describe(key, payloads), _describe(item, payloads)] for key, item in value.items()]
        return {"kind": "dict", "items": items}
    try:
        tensor = asarray(value).contiguous()
    except TypeError:
        raise InvalidArgument(
            "state_dict(): expected numbers, strings, bytes, arrays, torch tensors, and lists, tuples and dicts of "
            f"these, got {class_name(value)}"
        ) from None
    payloads.append(tensor.numpy().tobytes())
    torch = sys.modules.get("torch")
    kind = "torch" if torch is not None and isinstance(value, torch.Tensor) else "array"
    return {"kind": kind, "dtype": tensor.dtype, "shape": tensor.shape}


def _restore(value: Any, payloads: _Payloads) -> Any:
    if not isinstance(value, dict):
        return value
    kind = value["kind"]
    if kind == "bytes":
        return payloads.take(value["count"])
    if kind == "dict":
        return {_restore(key, payloads): _restore(item, payloads) for key, item in value["items"]}
    if kind in {"list", "tuple"}:
        items = [_restore(item, payloads) for item in value["items"]]
        return items if kind == "list" else tuple(items)
    tensor = empty(value["shape"], value["dtype"])
    raw = np.frombuffer(payloads.take(tensor.nbytes), np.uint8)
    tensor.flatten().numpy().view(np.uint8)[...] = raw
    if kind == "array":
        return tensor.numpy()
    import torch

    return torch.from_dlpack(tensor)
