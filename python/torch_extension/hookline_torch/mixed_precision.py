"""Mixed precision: forward and backward passes in a smaller dtype than that of the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_map

from hookline import InvalidArgument
from hookline._names import class_name

_WIRES = {torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class MixedPrecision:
    """The dtypes for mixed precision; None keeps a dtype. Interchangeable with PyTorch's class of the same fields."""

    param_dtype: torch.dtype | None = None  # for computation; inputs are cast to it
    reduce_dtype: torch.dtype | None = None  # for communication of gradients; default: param_dtype
    buffer_dtype: torch.dtype | None = None

    @classmethod
    def of(cls, value: Any) -> MixedPrecision:
        """Converts any object with these attributes."""
        try:
            return cls(value.param_dtype, value.reduce_dtype, value.buffer_dtype)
        except AttributeError:
            raise TypeError(
                f"mixed_precision: expected a hookline.torch.MixedPrecision, got {class_name(value)}"
            ) from None

    def hook(self, hook: Any) -> Any:
        """Wraps a hook spec so that it sends gradients in reduce_dtype. Returns hook objects unchanged."""
        dtype = self.reduce_dtype or self.param_dtype
        if dtype in (None, torch.float32, torch.float64) or not (hook is None or isinstance(hook, str)):
            return hook
        if dtype not in _WIRES:
            raise InvalidArgument(
                f"mixed_precision: reduce_dtype: expected torch.float32, torch.float16 or torch.bfloat16, got {dtype}"
            )
        return _WIRES[dtype] if hook is None else f"{hook} | {_WIRES[dtype]}"

    def cast_buffers(self, module: nn.Module) -> None:
        """Casts the buffers once at construction, so that values written by forward passes persist."""
        for buffer in module.buffers():
            if self.buffer_dtype is not None and buffer.is_floating_point():
                buffer.data = buffer.to(self.buffer_dtype)

    def call(self, module: nn.Module, inputs: Any, options: Any) -> Any:
        """Runs the module's forward pass with parameters and inputs cast to param_dtype."""
        if self.param_dtype is None:
            return module(*inputs, **options)
        # Batch norm requires weights of the dtype of its statistics.
        norm_dtypes = {
            parameter: child.running_mean.dtype
            for child in module.modules()
            if isinstance(child, _NormBase) and child.running_mean is not None
            for parameter in child.parameters(recurse=False)
        }
        parameters = {
            name: p.to(norm_dtypes[p]) if p in norm_dtypes else self._cast(p) for name, p in module.named_parameters()
        }
        return torch.func.functional_call(
            module, parameters, tree_map(self._cast, inputs), tree_map(self._cast, options)
        )

    def _cast(self, value: Any) -> Any:
        return value.to(self.param_dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
