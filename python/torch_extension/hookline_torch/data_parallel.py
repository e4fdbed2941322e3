"""DistributedDataParallel on hookline's reducer: buckets, hooks and communication without torch.distributed."""

from __future__ import annotations

import dataclasses
import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_leaves

from hookline import (
    CommHook,
    InvalidArgument,
    ProcessGroup,
    Reducer,
    broadcast_coalesced,
    init_process_group,
    make_hook,
)
from hookline._data_parallel import DataParallelBase, names_of

from .groups import group_for_hooks, group_from_torch
from .mixed_precision import MixedPrecision

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SUPPORTED = {
    *_INTEGERS.values(),
    torch.int8,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
}


class DistributedDataParallel(DataParallelBase, nn.Module):  # type: ignore[misc]  # mypy skips torch
    """Averages the gradients of a module over the ranks during backward(). When it returns, they hold the means.

    The group is a torch.distributed or hookline group. The default is the default group of torch.distributed if it is
    initialized, else a new hookline group of all processes of the job.
    """

    def __init__(
        self,
        module: nn.Module,
        process_group: Any = None,
        hook: str | CommHook | Callable[[Any, Any], Any] | None = None,
        *,
        state: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        broadcast_buffers: bool = True,
        mixed_precision: Any = None,
        reduction: str = "mean",
        timeout: float | timedelta | None = None,
        ignored: Iterable[str] = (),
        reduce_last: Iterable[str] = (),
    ) -> None:
        """Takes PyTorch's arguments, and more; mixed_precision is a MixedPrecision.

        The hook is a hook spec, a CommHook, or a function hook(state, bucket), whose state is `state`, by default the
        hookline group. timeout limits each hook; the default is the group's timeout.

        ignored and reduce_last are names of parameters. Ignored parameters are not validated, broadcast or reduced.
        Parameters in reduce_last are reduced after all others. Frozen parameters (requires_grad is False) and buffers
        are validated, and replaced by rank 0's.

        While require_backward_grad_sync is False, gradients of forward passes accumulate locally, as in no_sync.
        """
        super().__init__()
        self._precision = MixedPrecision() if mixed_precision is None else MixedPrecision.of(mixed_precision)
        self._precision.cast_buffers(module)
        self._registered = hook is not None
        hook = self._precision.hook(hook)
        ignored = _find_parameters(module, "ignored", ignored)
        reduce_last = _find_parameters(module, "reduce_last", reduce_last)
        self.module = module
        self.process_group = _group(process_group)
        self.find_unused_parameters = find_unused_parameters
        self.broadcast_buffers = broadcast_buffers
        self._buffers_stale = True  # buffers may differ between ranks since the last broadcast
        self.require_backward_grad_sync = True
        self._static_graph = static_graph
        self._graph_known = False  # for a static graph, after its first step
        self._unused: list[int] = []  # parameters that a static graph does not use on this rank
        self._pass: weakref.ref[_BackwardPass] | None = None
        self._marked: set[int] = set()  # in the current backward pass, or in a failed one
        self._accumulated: set[int] = set()  # parameters used by passes that are not averaged
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad or p not in ignored]
        if not any(p.requires_grad for _, p in named):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self._names = [name for name, _ in named]
        self._params = [p for _, p in named]
        self._reduced = [i for i, p in enumerate(self._params) if p.requires_grad and p not in ignored]
        sparse = {
            parameter
            for child in module.modules()
            if isinstance(child, nn.Embedding | nn.EmbeddingBag) and child.sparse
            for parameter in child.parameters(recurse=False)
        }
        # Identified by object: a weight shared by two layers has the name of the first.
        self._sparse = {name for name, p in named if p in sparse and p.requires_grad and p not in ignored}
        with torch.no_grad():
            self._reducer = Reducer(
                [(name, (_real if p.requires_grad else _bits)(p.detach())) for name, p in named],
                self.process_group,
                hook,
                state,
                bucket_cap_mb=bucket_cap_mb,
                find_unused_parameters=find_unused_parameters,
                static_graph=static_graph,
                reduction=reduction,
                timeout=timeout,
                sparse=self._sparse,
                ignored={name for name, p in named if p in ignored},
                reduce_last={name for name, p in named if p in reduce_last},
                frozen={name for name, p in named if not p.requires_grad},
                buffers=[(name, _bits(buffer.detach())) for name, buffer in module.named_buffers()],
                for_torch=True,
            )
        for index in self._reduced:
            self._params[index].register_post_accumulate_grad_hook(self._make_grad_hook(index))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Runs the module. Broadcasts rank 0's buffers before it if the previous forward pass was to be averaged."""
        averages = bool(self.require_backward_grad_sync) and torch.is_grad_enabled()
        if averages and self._current_pass() is None:
            self._discard_failed_pass()
        if self.broadcast_buffers and self._buffers_stale:
            self._broadcast_buffers()
        outputs = self._precision.call(self.module, inputs, options)
        self._buffers_stale = averages
        if torch.is_grad_enabled():
            self._observe_backward(outputs, averages)
        return outputs

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """Returns the module. torch.distributed.checkpoint calls this before it creates parameter names."""
        _strip_prefix_in_checkpoints()
        return iter(super().named_children())

    def _observe_backward(self, outputs: Any, averages: bool) -> None:
        """Registers hooks on the outputs that detect the start of their backward pass.

        Activation checkpoints with use_reentrant=True run nested backward passes, which may produce the first gradient
        and end before the outer pass. So the outer pass must be detected at the outputs.
        """
        model = weakref.ref(self)

        def reached(_: torch.Tensor) -> None:
            ddp = model()
            if ddp is not None:
                ddp._begin_pass(averages)

        for output in _tensors(outputs):
            if output.requires_grad and not output.is_leaf:  # a leaf would keep the hook for later passes
                output.register_hook(reached)

    def _current_pass(self) -> _BackwardPass | None:
        return None if self._pass is None else self._pass()

    def _is_averaged(self) -> bool:
        """True if the current backward pass is averaged. Begins a pass at the first gradient if there is none."""
        # A local variable here and not in grad_hook: the traceback of a failed mark would keep the pass alive.
        current = self._current_pass()
        return self._begin_pass(bool(self.require_backward_grad_sync)) if current is None else current.averages

    def _begin_pass(self, averages: bool) -> bool:
        """Begins or extends a backward pass. The pass is averaged if one of its forward passes is."""
        current = self._current_pass()
        if averages and (current is None or not current.averages):
            self._discard_failed_pass()
        if current is None:
            current = _BackwardPass(averages)
            self._pass = weakref.ref(current)
            # Autograd calls this at the end of the backward pass, on its thread, so that errors propagate through
            # backward(). If the pass fails, autograd drops the callback, and with it the only reference to `current`.
            torch.autograd.Variable._execution_engine.queue_callback(functools.partial(self._finish_pass, current))
        current.averages |= averages
        return current.averages

    def _discard_failed_pass(self) -> None:
        """Discards the marks of a failed backward pass."""
        if self._marked:
            self._reducer.discard_step()
            self._marked.clear()

    def _broadcast_buffers(self) -> None:
        buffers = [_bits(buffer.detach()) for buffer in self.module.buffers()]
        if buffers:
            broadcast_coalesced(self.process_group, buffers)

    def _make_grad_hook(self, index: int) -> Any:
        # A weak reference: the parameters own this hook and may outlive the model.
        model = weakref.ref(self)

        def grad_hook(_: torch.Tensor) -> None:
            ddp = model()
            if ddp is None:
                return
            if ddp._is_averaged():
                ddp._mark_ready(index)
            else:
                ddp._accumulated.add(index)

        return grad_hook

    def _mark_ready(self, index: int) -> None:
        if not self._marked:
            for unused in self._unused:
                self._mark_unused(unused)
        self._marked.add(index)
        self._pass_gradient(index, self._reducer.mark_ready, self._reducer.mark_ready_sparse)

    def _mark_unused(self, index: int) -> None:
        """Marks a parameter that this pass does not use. A gradient from earlier passes takes part in the mean."""
        if self._params[index].grad is not None:
            self._pass_gradient(index, self._reducer.mark_unused, self._reducer.mark_unused_sparse)

    def _pass_gradient(self, index: int, dense: Callable[..., None], sparse: Callable[..., None]) -> None:
        gradient = _writable_gradient(self._params[index])
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            sparse(index, gradient.indices()[0], gradient.values())
        else:
            dense(index, _real(gradient))

    def _finish_pass(self, ended: _BackwardPass) -> None:
        self._pass = None
        # A pass without marks used no parameter of the model, such as one by torch.autograd.grad.
        if not ended.averages or not self._marked:
            return
        for index in sorted(self._accumulated - self._marked):
            if self._params[index].grad is not None:
                self._mark_ready(index)
        self._accumulated.clear()
        unmarked = [index for index in self._reduced if index not in self._marked]
        finds_unused = self.find_unused_parameters or self._static_graph
        if finds_unused and not self._graph_known:
            for index in unmarked:
                self._mark_unused(index)
        self._marked.clear()
        self._reducer.finalize()
        if unmarked or self._sparse:
            self._copy_means(unmarked, set(self._reducer.stats()["unused"]))
        if self._static_graph:
            self._graph_known, self._unused = True, unmarked

    def _copy_means(self, unmarked: list[int], unused: set[str]) -> None:
        """Sets gradients that the reducer did not write in place. `unused` parameters have no mean."""
        for index, name in enumerate(self._names):
            parameter = self._params[index]
            if name in unused:
                continue
            if name in self._sparse:
                rows, values = self._reducer.sparse_gradient(index)
                parameter.grad = torch.sparse_coo_tensor(
                    torch.from_dlpack(rows).clone()[None], torch.from_dlpack(values).clone(), parameter.shape
                )
            elif parameter.grad is None and index in unmarked:  # used on other ranks only
                gradient = torch.empty_like(parameter.detach())
                self._reducer.copy_gradient(index, _real(gradient))
                parameter.grad = gradient

    def _make_hook(self, spec: str, group: Any) -> CommHook:
        return make_hook(spec, group_for_hooks(group), for_torch=True)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients of forward passes inside the context locally; the next backward() reduces the sums."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True) -> Iterator[None]:
        """Supports uneven inputs: a rank that leaves the context takes part in the remaining steps with zeros.

        Buffers are not broadcast inside. At the end, every rank gets the parameters of a rank that did the most steps.
        """
        before, self.broadcast_buffers = self.broadcast_buffers, False
        try:
            with self._joined(self.process_group, divide_by_initial_world_size):
                yield
        finally:
            self.broadcast_buffers = before


def _strip_prefix_in_checkpoints() -> None:
    """Makes torch.distributed.checkpoint omit `module.` from parameter names, as for PyTorch's model.

    It detects models by isinstance() with a module-level name, which may be a tuple of classes. The patch applies only
    if the program has imported that module, because the import takes half a second.
    """
    checkpoints = sys.modules.get("torch.distributed.checkpoint.state_dict")
    known = getattr(checkpoints, "DDP", None)
    if isinstance(known, type):
        setattr(checkpoints, "DDP", (known, DistributedDataParallel))  # noqa: B010


class _BackwardPass:
    """A backward pass. Autograd owns it until the pass ends or fails."""

    def __init__(self, averages: bool) -> None:
        self.averages = averages


def _find_parameters(module: nn.Module, argument: str, names: Iterable[str]) -> set[nn.Parameter]:
    """Returns the parameters with these names, including frozen ones. A shared parameter has several names."""
    by_name = dict(module.named_parameters(remove_duplicate=False))
    requested = names_of(argument, names)
    for name in requested:
        if name not in by_name:
            raise InvalidArgument(f"{argument}: unknown parameter {name!r}")
    return {by_name[name] for name in requested}


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])


def _writable_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Returns the gradient as writable memory. A lazily conjugated gradient is first resolved into a copy."""
    if parameter.grad.is_conj() or parameter.grad.is_neg():
        parameter.grad = parameter.grad.resolve_conj().resolve_neg()
    return parameter.grad


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Views complex numbers as pairs of real numbers."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Views a tensor in a supported dtype: float8 and unsigned integers as integers of the same size."""
    tensor = _real(tensor)
    return tensor if tensor.dtype in _SUPPORTED else tensor.view(_INTEGERS[tensor.element_size()])


def _group(group: Any) -> ProcessGroup:
    if group is None and not dist.is_initialized():
        return init_process_group()
    return group_from_torch(group)
