"""Data-parallel training of NumPy arrays, without a framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._averaging import Averaging, bucket_limits, names_of
from ._core import InvalidArgument, Reducer, Unsupported, make_optimizer
from ._names import class_name
from ._optimizers import PostLocalSGDOptimizer

if TYPE_CHECKING:
    import datetime

    import numpy.typing

    from ._core import CommHook, ProcessGroup

    Array = numpy.typing.NDArray[Any]

__all__ = ["DataParallel"]


class DataParallel(Averaging):
    """Averages gradients over the ranks of a group while they are being computed.

    Every rank makes one with parameters of the same names, shapes and dtypes; rank 0's values are broadcast. A step is
    ready() for each parameter, in the order in which the gradients come, then finish().
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        group: ProcessGroup,
        hook: str | CommHook | Callable[[Any, Any], Any] | None = None,
        *,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        mean: str = "average",
        broadcast_parameters: bool = True,
        timeout: float | datetime.timedelta | None = None,
        sparse: Iterable[str] = (),
        ignored: Iterable[str] = (),
        delayed: Iterable[str] = (),
        frozen: Iterable[str] = (),
        buckets: Iterable[Iterable[str]] | None = None,
        optimizer: Any = None,
        clip_norm: float | None = None,
    ) -> None:
        """Without bucket_cap_mb the first bucket has 1 MiB and the others 25 MiB. mean="sum" adds up instead.

        A hook that is a function gets the group as its state. timeout is that of a hook, the group's where not given.

        sparse, ignored, delayed and frozen are names of parameters: sparse ones have gradients of row numbers and rows,
        ignored ones are neither checked nor broadcast nor reduced, delayed ones are reduced behind all others, frozen
        ones are checked and broadcast but have no gradients.

        With buckets, such as buckets() of a run that is resumed, these are the buckets from the first step on.

        With an optimizer, finish() also steps the parameters, those of a bucket while later ones still communicate: an
        Optimizer or its text, a PostLocalSGDOptimizer, a function of a bucket, or an object with step_param(param,
        grad). clip_norm scales all gradients together to that norm where it is larger, as the optimizer sees them.
        """
        if not hasattr(params, "items"):
            raise TypeError(f"params is a mapping of names to arrays, not {class_name(params)}")
        sparse, ignored = set(names_of("sparse", sparse)), set(names_of("ignored", ignored))
        delayed, frozen = set(names_of("delayed", delayed)), set(names_of("frozen", frozen))
        self._names = list(params)
        self._group = group
        self._registered = hook is not None
        self.optimizer: Any = make_optimizer(optimizer) if isinstance(optimizer, str) else optimizer
        self._averager = optimizer.averager if isinstance(optimizer, PostLocalSGDOptimizer) else None
        self._averaged = [params[name] for name in self._names if name not in ignored | frozen]
        self._accumulating = False
        self._reducer = Reducer(
            list(params.items()),
            group,
            hook,
            group,
            find_unused_parameters=find_unused_parameters,
            static_graph=static_graph,
            mean=mean,
            broadcast_parameters=broadcast_parameters,
            timeout=timeout,
            sparse=sparse,
            ignored=ignored,
            delayed=delayed,
            frozen=frozen,
            buckets=None if buckets is None else self._positions(buckets),
            optimizer=optimizer.optim if isinstance(optimizer, PostLocalSGDOptimizer) else self.optimizer,
            clip_norm=clip_norm,
            **bucket_limits(bucket_cap_mb),
        )

    def _positions(self, buckets: Iterable[Iterable[str]]) -> list[list[int]]:
        positions = {name: position for position, name in enumerate(self._names)}
        buckets = [names_of("a bucket", bucket) for bucket in buckets]
        for name in {name for bucket in buckets for name in bucket} - {*positions}:
            raise InvalidArgument(f"the buckets have {name!r}, and there is no parameter called that")
        return [[positions[name] for name in bucket] for bucket in buckets]

    def ready(self, name: str, gradient: Any = None) -> None:
        """The gradient of a parameter is there: in gradient(name), or in an array, which finish() overwrites.

        A sparse parameter's gradient is a pair: row numbers (int64) and those rows.
        """
        if isinstance(gradient, tuple):
            self._reducer.mark_ready_sparse(name, *gradient)
        else:
            self._reducer.mark_ready(name, gradient)

    def finish(self) -> None:
        """Waits until all gradients hold the means over the ranks; with an optimizer, parameters are stepped then."""
        self._reducer.finalize()
        if self._averager is not None and not self._accumulating:
            self._averager.average_parameters(self._averaged)

    def gradient(self, name: str) -> Array:
        """The place of a gradient in its bucket, in shared memory where the group has it: written to, it needs no copy.

        It stays there; arrays that are asked for before the second step keep the buckets from being rebuilt.
        """
        return self._reducer.gradient(name).numpy()

    def buckets(self) -> list[list[str]]:
        """The names of the parameters in each bucket; from the second step on they stay as they are."""
        return [[self._names[position] for position in bucket] for bucket in self._reducer.buckets()]

    def sparse_gradient(self, name: str) -> tuple[Array, Array]:
        """The reduced rows of a sparse parameter: their numbers, ascending, and their values."""
        indices, values = self._reducer.sparse_gradient(name)
        return indices.numpy(), values.numpy()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, gradients add up on each rank and nothing is sent; the first step after it reduces the sum."""
        self._reducer.begin_no_sync()
        self._accumulating = True
        try:
            yield
        finally:
            self._accumulating = False
            self._reducer.end_no_sync()

    @contextmanager
    def join(self, divide_by_initial_world_size: bool = True) -> Iterator[None]:
        """For uneven inputs: a rank whose block ends takes part in the others' steps with zeros until all are through.

        Then every rank takes over the parameters of one that did the most steps. Where the block raises, the group is
        aborted.
        """
        if self._averager is not None:
            raise Unsupported("join: ranks without inputs take no part in averaging models; average behind it instead")
        with self._joined(self._group, divide_by_initial_world_size):
            yield
