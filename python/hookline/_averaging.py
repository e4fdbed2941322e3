"""What models that average their gradients have in common, whatever framework they are of."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypedDict

from ._core import InvalidArgument

if TYPE_CHECKING:
    from ._core import ProcessGroup, Reducer

MIB = 1 << 20


class BucketLimits(TypedDict, total=False):
    """Arguments of a Reducer; what is not there is what the Reducer has it."""

    first_bucket_bytes: int
    bucket_bytes: int


def bucket_limits(bucket_cap_mb: float | None) -> BucketLimits:
    """The cap for all buckets; nothing without one."""
    if bucket_cap_mb is None:
        return {}
    if not 0 < bucket_cap_mb < math.inf:
        raise InvalidArgument(f"bucket_cap_mb must be a number larger than 0, and is {bucket_cap_mb}")
    cap = int(bucket_cap_mb * MIB)
    return {"first_bucket_bytes": cap, "bucket_bytes": cap}


def names_of(argument: str, names: Iterable[str]) -> list[str]:
    """The names that were given; TypeError for a text, whose letters would be taken for names."""
    if isinstance(names, str):
        raise TypeError(f"{argument} is a list of names, not a text: say [{names!r}]")
    return list(names)


class Averaging:
    """What is asked of the reducer, which those who derive from this make."""

    _reducer: Reducer
    _registered: bool

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Has hook(state, bucket) run for every bucket: a function, a text, or what make_hook returned. Once."""
        if self._registered:
            raise InvalidArgument(
                "register_comm_hook or register_builtin_comm_hook can only be called once. "
                f"The hook here is {self._reducer.hook_name}; replace_comm_hook takes its place between steps"
            )
        self.replace_comm_hook(state, hook)

    def replace_comm_hook(self, state: Any, hook: Any) -> None:
        """The same in the place of the hook that there is, from the next step on."""
        if hook is None:
            raise TypeError("Communication hook must be callable. It is None")
        self._reducer.replace_hook(state, hook)
        self._registered = True

    @contextmanager
    def _joined(self, group: ProcessGroup, divide_by_initial_world_size: bool) -> Iterator[None]:
        """The block of a join; where it raises, the group is aborted."""
        self._reducer.begin_join(divide_by_initial_world_size)
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # a group that cannot tell the others leaves them to their timeouts
                group.abort(f"a rank failed inside join: {error!r}")
            raise
        self._reducer.end_join()

    def set_weight(self, weight: float) -> None:
        """The weight of this rank's gradients in the means to come, such as its batch size. Every rank calls it."""
        self._reducer.set_weight(weight)

    @property
    def step_id(self) -> int | None:
        """A number of one's own for the steps that begin from now on, such as that of the batch; None: no number.

        It is compared with the first bucket of a step: where it differs, all ranks raise a Mismatch that names ranks
        and numbers, and the gradients stay as they are. From 0 to 2**32 - 1.
        """
        return self._reducer.step_id

    @step_id.setter
    def step_id(self, number: int | None) -> None:
        self._reducer.step_id = None if number is None else operator.index(number)

    def stats(self) -> dict[str, Any]:
        """What was measured of the last step: times in seconds from its first gradient, and bytes sent."""
        return self._reducer.stats()
