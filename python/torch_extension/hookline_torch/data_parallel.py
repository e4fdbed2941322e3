"""DistributedDataParallel on hookline's own reducer: buckets, hooks and communication without torch.distributed."""

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

from hookline import CommHook, InvalidArgument, ProcessGroup, Reducer, broadcast_coalesced, init_process_group
from hookline._averaging import Averaging, bucket_limits, names_of

from .groups import as_group
from .mixed_precision import MixedPrecision

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SENT = {
    *_INTEGERS.values(),
    torch.int8,
    torch.bool,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
}


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
        ones are reduced behind all others. Frozen parameters (requires_grad is False) and buffers are checked, and
        become rank 0's.

        require_backward_grad_sync may be set to False: as in no_sync, the gradients of forward passes from then on add
        up on each rank.
        """
        super().__init__()
        self._precision = MixedPrecision() if mixed_precision is None else MixedPrecision.of(mixed_precision)
        self._precision.cast_buffers(module)
        self._registered = hook is not None
        hook = self._precision.hook(hook)
        ignored, delayed = _named(module, "ignored", ignored), _named(module, "delayed", delayed)
        self.module = module
        self.group = _group(process_group)
        self.find_unused_parameters = find_unused_parameters
        self.broadcast_buffers = broadcast_buffers
        self._buffers_due = True  # as ranks may have others since the last time
        self.require_backward_grad_sync = True
        self._static_graph = static_graph
        self._learnt = False  # what a static graph comes to
        self._idle: list[int] = []  # what it does not come to on this rank
        self._pass: weakref.ref[_Pass] | None = None
        self._marks: set[int] = set()  # of the pass under way, or of one that failed
        self._added_up: set[int] = set()  # what passes that are not averaged came to
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad or p not in ignored]
        if not any(p.requires_grad for _, p in named):
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self._names = [name for name, _ in named]
        self._parameters_of = [p for _, p in named]
        self._reduced = [i for i, p in enumerate(self._parameters_of) if p.requires_grad and p not in ignored]
        rows = {
            parameter
            for part in module.modules()
            if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse
            for parameter in part.parameters(recurse=False)
        }
        # By what they are: a weight that two layers share has the name of the first.
        self._sparse = {name for name, p in named if p in rows and p.requires_grad and p not in ignored}
        with torch.no_grad():
            self._reducer = Reducer(
                [(name, (_real if p.requires_grad else _bits)(p.detach())) for name, p in named],
                self.group,
                hook,
                self.group,
                find_unused_parameters=find_unused_parameters,
                static_graph=static_graph,
                mean=mean,
                timeout=timeout,
                sparse=self._sparse,
                ignored={name for name, p in named if p in ignored},
                delayed={name for name, p in named if p in delayed},
                frozen={name for name, p in named if not p.requires_grad},
                buffers=[(name, _bits(buffer.detach())) for name, buffer in module.named_buffers()],
                for_torch=True,
                **bucket_limits(bucket_cap_mb),
            )
        for index in self._reduced:
            self._parameters_of[index].register_post_accumulate_grad_hook(self._marker(index))

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """The module's, behind a broadcast of rank 0's buffers where the forward pass before is one to average."""
        averages = bool(self.require_backward_grad_sync) and torch.is_grad_enabled()
        if averages and self._under_way() is None:
            self._drop_failed()
        if self.broadcast_buffers and self._buffers_due:
            self._broadcast_buffers()
        outputs = self._precision.call(self.module, inputs, options)
        self._buffers_due = averages
        if torch.is_grad_enabled():
            self._listen(outputs, averages)
        return outputs

    def named_children(self) -> Iterator[tuple[str, nn.Module]]:
        """The module. torch.distributed.checkpoint asks for it before it makes names of parameters."""
        _strip_prefix_in_checkpoints()
        return iter(super().named_children())

    def _listen(self, outputs: Any, averages: bool) -> None:
        """Has the pass that begins at the outputs be averaged or not, and the end of the step belong to it.

        Checkpoints with use_reentrant=True have passes of their own inside of it, which may be the first to bring a
        gradient, and end before the others are there.
        """
        model = weakref.ref(self)

        def reached(_: torch.Tensor) -> None:
            own = model()
            if own is not None:
                own._begin(averages)

        for output in _tensors(outputs):
            if output.requires_grad and not output.is_leaf:  # a leaf would keep this for later passes
                output.register_hook(reached)

    def _under_way(self) -> _Pass | None:
        return None if self._pass is None else self._pass()

    def _averages(self) -> bool:
        """Whether the pass under way, which a gradient may be the first to be seen of, is averaged."""
        under_way = self._under_way()  # in no frame that marks: an error of a mark keeps those, and so the pass
        return self._begin(bool(self.require_backward_grad_sync)) if under_way is None else under_way.averages

    def _begin(self, averages: bool) -> bool:
        """A pass comes to the model, or to a further part of it: it is averaged if one of its forward passes is."""
        under_way = self._under_way()
        if averages and (under_way is None or not under_way.averages):
            self._drop_failed()
        if under_way is None:
            under_way = _Pass(averages)
            self._pass = weakref.ref(under_way)
            # Called when this backward pass is through, in its thread: its errors arrive at backward(). Where the pass
            # fails autograd lets go of it, and so of what it holds.
            torch.autograd.Variable._execution_engine.queue_callback(functools.partial(self._finish, under_way))
        under_way.averages |= averages
        return under_way.averages

    def _drop_failed(self) -> None:
        """Forgets what a pass that failed has marked."""
        if self._marks:
            self._reducer.drop_step()
            self._marks.clear()

    def _broadcast_buffers(self) -> None:
        buffers = [_bits(buffer.detach()) for buffer in self.module.buffers()]
        if buffers:
            broadcast_coalesced(self.group, buffers)

    def _marker(self, index: int) -> Any:
        # The parameters, which keep this, may live longer than the model.
        model = weakref.ref(self)

        def ready(_: torch.Tensor) -> None:
            own = model()
            if own is None:
                return
            if own._averages():
                own._mark(index)
            else:
                own._added_up.add(index)

        return ready

    def _mark(self, index: int) -> None:
        if not self._marks:
            for idle in self._idle:
                self._mark_unused(idle)
        self._marks.add(index)
        self._hand_over(index, self._reducer.mark_ready, self._reducer.mark_ready_sparse)

    def _mark_unused(self, index: int) -> None:
        """This pass does not come to the parameter; what earlier ones left is part of the mean, if there is one."""
        if self._parameters_of[index].grad is not None:
            self._hand_over(index, self._reducer.mark_unused, self._reducer.mark_unused_sparse)

    def _hand_over(self, index: int, dense: Callable[..., None], sparse: Callable[..., None]) -> None:
        gradient = _gradient(self._parameters_of[index])
        if gradient.is_sparse:
            gradient = gradient.coalesce()
            sparse(index, gradient.indices()[0], gradient.values())
        else:
            dense(index, _real(gradient))

    def _finish(self, ended: _Pass) -> None:
        self._pass = None
        # One that came to no parameter is such as those of torch.autograd.grad.
        if not ended.averages or not self._marks:
            return
        for index in sorted(self._added_up - self._marks):
            if self._parameters_of[index].grad is not None:
                self._mark(index)
        self._added_up.clear()
        unmarked = [index for index in self._reduced if index not in self._marks]
        finds_unused = self.find_unused_parameters or self._static_graph
        if finds_unused and not self._learnt:
            for index in unmarked:
                self._mark_unused(index)
        self._marks.clear()
        self._reducer.finalize()
        if unmarked or self._sparse:
            self._take_over(unmarked, set(self._reducer.stats()["unused"]))
        if self._static_graph:
            self._learnt, self._idle = True, unmarked

    def _take_over(self, unmarked: list[int], unused: set[str]) -> None:
        """The means that the reducer did not write into the gradients; `unused` parameters have none."""
        for index, name in enumerate(self._names):
            parameter = self._parameters_of[index]
            if name in unused:
                continue
            if name in self._sparse:
                rows, values = self._reducer.sparse_gradient(index)
                parameter.grad = torch.sparse_coo_tensor(
                    torch.from_dlpack(rows).clone()[None], torch.from_dlpack(values).clone(), parameter.shape
                )
            elif parameter.grad is None and index in unmarked:  # other ranks came to it
                gradient = torch.empty_like(parameter.detach())
                self._reducer.copy_gradient(index, _real(gradient))
                parameter.grad = gradient

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of forward passes inside add up on each rank; the first backward() of another reduces the sum."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

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


def _strip_prefix_in_checkpoints() -> None:
    """Has torch.distributed.checkpoint leave `module.` out of names, as it does for PyTorch's model.

    It recognises a model by isinstance() and a name of its own module, for which a tuple will do. That module takes
    half a second to import, so only one that the program has imported is changed.
    """
    checkpoints = sys.modules.get("torch.distributed.checkpoint.state_dict")
    known = getattr(checkpoints, "DDP", None)
    if isinstance(known, type):
        setattr(checkpoints, "DDP", (known, DistributedDataParallel))  # noqa: B010


class _Pass:
    """A backward pass. It lives until that ends or fails."""

    def __init__(self, averages: bool) -> None:
        self.averages = averages


def _named(module: nn.Module, argument: str, names: Iterable[str]) -> set[nn.Parameter]:
    """The parameters of these names: frozen ones, too, and a shared one by any of its names."""
    known = dict(module.named_parameters(remove_duplicate=False))
    given = names_of(argument, names)
    for name in given:
        if name not in known:
            raise InvalidArgument(f"{argument}: there is no parameter called {name!r}")
    return {known[name] for name in given}


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, field.name) for field in dataclasses.fields(leaf)])


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    """Its gradient, as memory that the mean can be written to: of a view that conjugates that is a copy."""
    if parameter.grad.is_conj() or parameter.grad.is_neg():
        parameter.grad = parameter.grad.resolve_conj().resolve_neg()
    return parameter.grad


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs of real ones, in the same memory."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory in a dtype that can be sent: float8 and unsigned numbers as integers of their size."""
    tensor = _real(tensor)
    return tensor if tensor.dtype in _SENT else tensor.view(_INTEGERS[tensor.element_size()])


def _group(group: Any) -> ProcessGroup:
    if group is None and not dist.is_initialized():
        return init_process_group()
    return as_group(group)
