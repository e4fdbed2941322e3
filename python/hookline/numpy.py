"""Data-parallel training of NumPy arrays, without a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._core import InvalidArgument, Reducer, Unsupported, make_optimizer
from ._data_parallel import DataParallelBase, names_of
from ._names import class_name
from ._optimizers import PostLocalSGDOptimizer

if TYPE_CHECKING:
    import datetime

    import numpy.typing

    from ._core import CommHook, ProcessGroup

    Array = numpy.typing.NDArray[Any]

__all__ = ["DataParallel"]


class DataParallel(DataParallelBase):
    """Averages gradients over the ranks of a group while the backward pass computes them.

    Every rank creates one with parameters of the same names, shapes and dtypes; rank 0's values are broadcast. A step
    consists of ready() for each parameter, in the order in which gradients become ready, and a final finish().
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        process_group: ProcessGroup,
        hook: str | CommHook | Callable[[Any, Any], Any] | None = None,
        *,
        state: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        reduction: str = "mean",
        broadcast_parameters: bool = True,
        timeout: float | datetime.timedelta | None = None,
        sparse: Iterable[str] = (),
        ignored: Iterable[str] = (),
        reduce_last: Iterable[str] = (),
        frozen: Iterable[str] = (),
        buckets: Iterable[Iterable[str]] | None = None,
        optimizer: Any = None,
        clip_norm: float | None = None,
    ) -> None:
        """Without bucket_cap_mb, the first bucket has 1 MiB and the others 25 MiB. reduction="sum" sums gradients.

        The hook is a hook spec, a CommHook, or a function hook(state, bucket), whose state is `state`, by default the
        group. timeout limits each hook; the default is the group's timeout.

        sparse, ignored, reduce_last and frozen are names of parameters. The gradients of sparse parameters consist of
        row indices and rows. Ignored parameters are not validated, broadcast or reduced. Parameters in reduce_last are
        reduced after all others. Frozen parameters are validated and broadcast, but have no gradients.

        buckets fixes the buckets from the first step on, for example to buckets() of a resumed run.

        With an optimizer, finish() also updates the parameters; those of a bucket are updated while later
        buckets are still communicating. The optimizer is an Optimizer or its spec, a PostLocalSGDOptimizer, a function
        of a bucket, or an object with step_param(param, grad). clip_norm limits the norm of all gradients together.
        """
        if not hasattr(params, "items"):
            raise TypeError(f"params: expected a mapping of names to arrays, got {class_name(params)}")
        sparse, ignored = set(names_of("sparse", sparse)), set(names_of("ignored", ignored))
        reduce_last, frozen = set(names_of("reduce_last", reduce_last)), set(names_of("frozen", frozen))
        self._names = list(params)
        self._group = process_group
        self._registered = hook is not None
        self.optimizer: Any = make_optimizer(optimizer) if isinstance(optimizer, str) else optimizer
        self._averager = optimizer.averager if isinstance(optimizer, PostLocalSGDOptimizer) else None
        self._averaged = [params[name] for name in self._names if name not in ignored | frozen]
        self._accumulating = False
        self._reducer = Reducer(
            list(params.items()),
            process_group,
            hook,
            state,
            bucket_cap_mb=bucket_cap_mb,
            find_unused_parameters=find_unused_parameters,
            static_graph=static_graph,
            reduction=reduction,
            broadcast_parameters=broadcast_parameters,
            timeout=timeout,
            sparse=sparse,
            ignored=ignored,
            reduce_last=reduce_last,
            frozen=frozen,
            buckets=None if buckets is None else self._positions(buckets),
            optimizer=optimizer.optim if isinstance(optimizer, PostLocalSGDOptimizer) else self.optimizer,
            clip_norm=clip_norm,
        )

    def _positions(self, buckets: Iterable[Iterable[str]]) -> list[list[int]]:
        positions = {name: position for position, name in enumerate(self._names)}
        buckets = [names_of("a bucket", bucket) for bucket in buckets]
        for name in {name for bucket in buckets for name in bucket} - {*positions}:
            raise InvalidArgument(f"buckets: unknown parameter {name!r}")
        return [[positions[name] for name in bucket] for bucket in buckets]

    def ready(self, name: str, gradient: Any = None) -> None:
        """Marks the gradient of a parameter as ready.

        The gradient is in gradient(name), or in an array, which finish() overwrites. The gradient of a sparse parameter
        is a pair: row indices (int64) and the rows.
        """
        if isinstance(gradient, tuple):
            self._reducer.mark_ready_sparse(name, *gradient)
        else:
            self._reducer.mark_ready(name, gradient)

    def finish(self) -> None:
        """Blocks until all gradients hold the means over the ranks and the optimizer, if any, has stepped."""
        self._reducer.finalize()
        if self._averager is not None and not self._accumulating:
            self._averager.average_parameters(self._averaged)

    def gradient(self, name: str) -> Array:
        """Returns a view of the gradient in its bucket, in the group's shared memory if it has any.

        Writing gradients there avoids a copy. The view stays valid: calling this before the second step prevents the
        buckets from being rebuilt.
        """
        return self._reducer.gradient(name).numpy()

    def buckets(self) -> list[list[str]]:
        """Returns the parameter names of each bucket; final from the second step on."""
        return [[self._names[position] for position in bucket] for bucket in self._reducer.buckets()]

    def sparse_gradient(self, name: str) -> tuple[Array, Array]:
        """Returns the reduced rows of a sparse parameter: row indices, ascending, and values."""
        indices, values = self._reducer.sparse_gradient(name)
        return indices.numpy(), values.numpy()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients locally inside the context; the first step after it reduces the sums."""
        self._reducer.begin_no_sync()
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False
            self._reducer.end_no_sync()

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True) -> Iterator[None]:
        """Supports uneven inputs: a rank that leaves the context takes part in the remaining steps with zeros.

        At the end, every rank gets the parameters of a rank that did the most steps. An exception in the context aborts
        the group.
        """
        if self._averager is not None:
            raise Unsupported("join with model averaging is not supported. Average the model after the join context.")
        with self._joined(self._group, divide_by_initial_world_size):
            yield
