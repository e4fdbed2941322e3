"""Forward and backward passes in a smaller dtype, with parameters and their gradients as they are."""

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
    """Which dtypes to use; PyTorch's own class of the same three is taken, too. None leaves a dtype as it is."""

    param_dtype: torch.dtype | None = None  # what is computed in; inputs are cast to it
    reduce_dtype: torch.dtype | None = None  # what gradients travel in; param_dtype where not given
    buffer_dtype: torch.dtype | None = None

    @classmethod
    def of(cls, given: Any) -> MixedPrecision:
        """The same of any object with these attributes."""
        try:
            return cls(given.param_dtype, given.reduce_dtype, given.buffer_dtype)
        except AttributeError:
            raise TypeError(
                f"mixed_precision: a hookline.torch.MixedPrecision is expected, not {class_name(given)}"
            ) from None

    def hook(self, hook: Any) -> Any:
        """The hook that has gradients travel as told: given texts are wrapped; a hook that was made stays."""
        dtype = self.reduce_dtype or self.param_dtype
        if dtype in (None, torch.float32, torch.float64) or not (hook is None or isinstance(hook, str)):
            return hook
        if dtype not in _WIRES:
            raise InvalidArgument(f"mixed_precision: gradients travel as float32, float16 or bfloat16, not {dtype}")
        return _WIRES[dtype] if hook is None else f"{hook} | {_WIRES[dtype]}"

    def cast_buffers(self, module: nn.Module) -> None:
        """Once, at the start: what a forward pass writes into buffers must stay there."""
        for buffer in module.buffers():
            if self.buffer_dtype is not None and buffer.is_floating_point():
                buffer.data = buffer.to(self.buffer_dtype)

    def call(self, module: nn.Module, inputs: Any, options: Any) -> Any:
        """The module's forward pass, in which parameters and inputs have the small dtype."""
        if self.param_dtype is None:
            return module(*inputs, **options)
        # Batch norm takes only weights of the dtype of its statistics.
        of_norms = {
            parameter: part.running_mean.dtype
            for part in module.modules()
            if isinstance(part, _NormBase) and part.running_mean is not None
            for parameter in part.parameters(recurse=False)
        }
        parameters = {
            name: p.to(of_norms[p]) if p in of_norms else self._cast(p) for name, p in module.named_parameters()
        }
        return torch.func.functional_call(
            module, parameters, tree_map(self._cast, inputs), tree_map(self._cast, options)
        )

    def _cast(self, value: Any) -> Any:
        return value.to(self.param_dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
