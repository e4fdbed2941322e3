"""DistributedDataParallel on hookline's own reducer: buckets, hooks and communication without torch.distributed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from hookline import CommHook, ProcessGroup, Reducer, broadcast_coalesced, init_process_group
from hookline._averaging import Averaging, bucket_limits, names_of

from .groups import as_group
from .mixed_precision import MixedPrecision


class DistributedDataParallel(Averaging, nn.Module):  # type: ignore[misc]  # torch is not looked into by the type checker
    """Averages the gradients of a module over the ranks while backward() runs; when it returns they hold the means.

    The group is one of torch.distributed's or hookline's; without one the default group of torch.distributed where it
    was initialised, else a new one of all processes of the job.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        hook: str | CommHook | Callable[[Any, Any], Any] | None = None,
        *,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        broadcast_buffers: bool = True,
        mixed_precision: Any = None,
        mean: str = "average",
        timeout: float | timedelta | None = None,
        ignored: Iterable[str] = (),
        delayed: Iterable[str] = (),
    ) -> None:
        """The arguments are PyTorch's where it has them; mixed_precision is a MixedPrecision.

        A hook that is a function gets the group as its state. timeout is that of a hook, the group's where not given.

        ignored and delayed are names of parameters: ignored ones are neither checked nor broadcast nor reduced, delayed
        ones are reduced behind all others.
        """
        super().__init__()
        self._precision = MixedPrecision() if mixed_precision is None else MixedPrecision.of(mixed_precision)
        self._precision.cast_buffers(module)
        self._registered = hook is not None
        hook = self._precision.hook(hook)
        ignored, delayed = set(names_of("ignored", ignored)), set(names_of("delayed", delayed))
        self.module = module
        self.group = _group(process_group)
        self.find_unused_parameters = find_unused_parameters
        self.broadcast_buffers = broadcast_buffers
        self._synchronised = True
        self._under_way = False  # a backward pass is, whose end will be the end of the step
        self._marked = False  # it has brought a gradient
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self._names = [name for name, _ in named]
        self._parameters_of = [p for _, p in named]
        self._sparse = {
            f"{prefix}.{name}" if prefix else name
            for prefix, part in module.named_modules()
            if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse
            for name, _ in part.named_parameters(recurse=False)
        }
        with torch.no_grad():
            self._reducer = Reducer(
                [(name, _real(p.detach())) for name, p in named],
                self.group,
                hook,
                self.group,
                find_unused_parameters=find_unused_parameters,
                static_graph=static_graph,
                mean=mean,
                timeout=timeout,
                sparse=self._sparse,
                ignored=ignored,
                delayed=delayed,
                for_torch=True,
                **bucket_limits(bucket_cap_mb),
            )
            self._broadcast_buffers()
        for index, (name, parameter) in enumerate(named):
            if name not in ignored:
                parameter.register_post_accumulate_grad_hook(self._marker(index))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The module's, behind a broadcast of rank 0's buffers where the gradients will be averaged."""
        if self.broadcast_buffers and self.training and self._synchronised and torch.is_grad_enabled():
            self._broadcast_buffers()
        outputs = self._precision.call(self.module, inputs, options)
        if self._synchronised and torch.is_grad_enabled():
            self._listen(outputs)
        return outputs

    def _listen(self, outputs: Any) -> None:
        """Has the end of the step belong to the pass that begins at the outputs.

        Checkpoints with use_reentrant=True have passes of their own inside of it, which may be the first to bring a
        gradient, and end before the others are there.
        """
        model = weakref.ref(self)

        def reached(_: torch.Tensor) -> None:
            own = model()
            if own is not None and own._synchronised:
                own._begin()

        for output in tree_leaves(outputs):
            if isinstance(output, torch.Tensor) and output.requires_grad:
                output.register_hook(reached)

    def _begin(self) -> None:
        if not self._under_way:
            self._under_way = True
            # Called when this backward pass is through, in its thread: its errors arrive at backward().
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)

    def _broadcast_buffers(self) -> None:
        buffers = [_real(buffer.detach()) for buffer in self.module.buffers()]
        if buffers:
            broadcast_coalesced(self.group, buffers)

    def _marker(self, index: int) -> Any:
        # The parameters, which keep this, may live longer than the model.
        model = weakref.ref(self)

        def ready(parameter: torch.Tensor) -> None:
            own = model()
            if own is not None and own._synchronised:
                own._mark(index, parameter.grad)

        return ready

    def _mark(self, index: int, gradient: torch.Tensor) -> None:
        self._begin()
        self._marked = True
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            self._reducer.mark_ready_sparse(index, gradient.indices()[0], gradient.values())
        else:
            self._reducer.mark_ready(index, _real(gradient))

    def _finish(self) -> None:
        self._under_way = False
        if not self._marked:  # a pass that came to no parameter, such as one of torch.autograd.grad
            return
        self._marked = False
        self._reducer.finalize()
        for name in self._sparse:
            parameter = self._parameters_of[self._names.index(name)]
            rows, values = self._reducer.sparse_gradient(name)
            parameter.grad = torch.sparse_coo_tensor(
                torch.from_dlpack(rows).clone()[None], torch.from_dlpack(values).clone(), parameter.shape
            )
        if self.find_unused_parameters:
            unused = set(self._reducer.stats()["unused"])
            for index, parameter in enumerate(self._parameters_of):
                if parameter.grad is None and self._names[index] not in unused:
                    gradient = torch.from_dlpack(self._reducer.gradient(index)).clone()
                    parameter.grad = torch.view_as_complex(gradient) if parameter.is_complex() else gradient

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on each rank; the first backward() outside reduces the sum."""
        before, self._synchronised = self._synchronised, False
        try:
            yield
        finally:
            self._synchronised = before

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True) -> Iterator[None]:
        """For uneven inputs: a rank whose block ends takes part in the others' steps with zeros until all are through.

        Buffers are not broadcast inside. Then every rank takes over the parameters of one that did the most steps.
        """
        before, self.broadcast_buffers = self.broadcast_buffers, False
        try:
            with self._joined(self.group, divide_by_initial_world_size):
                yield
        finally:
            self.broadcast_buffers = before


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones, in the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _group(group: Any) -> ProcessGroup:
    if group is None and not dist.is_initialized():
        return init_process_group()
    return as_group(group)
