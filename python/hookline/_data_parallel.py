"""The base class of data-parallel models, independent of the framework."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ._core import InvalidArgument, ProcessGroup, make_hook
from ._names import class_name

if TYPE_CHECKING:
    from ._core import CommHook, Reducer


def names_of(argument: str, names: Iterable[str]) -> list[str]:
    """Returns the names as a list; TypeError for a single string, which would iterate over its characters."""
    if isinstance(names, str):
        raise TypeError(f"{argument}: expected a list of names, got a string. Pass [{names!r}].")
    return list(names)


class DataParallelBase:
    """Forwards to a reducer that derived classes create."""

    _reducer: Reducer
    _registered: bool

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Sets the communication hook: a hook spec, a CommHook, or a function hook(state, bucket). Call it once.

        With a hook spec, the state is the process group to reduce over, or None for that of the model.
        """
        if self._registered:
            raise InvalidArgument(
                "register_comm_hook or register_builtin_comm_hook can only be called once. "
                f"The current hook is {self.comm_hook.name}; call replace_comm_hook between steps to replace it"
            )
        self.replace_comm_hook(state, hook)

    def replace_comm_hook(self, state: Any, hook: Any) -> None:
        """Replaces the current hook from the next step on. Takes the same arguments as register_comm_hook."""
        if hook is None:
            raise TypeError("Communication hook must be callable. Got None.")
        if isinstance(hook, str) and state is not None:
            hook = self._make_hook(hook, state)
        self._reducer.replace_comm_hook(state, hook)
        self._registered = True

    @property
    def comm_hook(self) -> CommHook:
        """The current hook, for its stats(), state_dict() and load_state_dict()."""
        return self._reducer.comm_hook

    def _make_hook(self, spec: str, group: Any) -> CommHook:
        """Creates the hook of a spec on another group than the model's."""
        if not isinstance(group, ProcessGroup):
            raise TypeError(
                f"state of hook {spec}: expected the process group to reduce over, or None for the group of the model, "
                f"got {class_name(group)}"
            )
        return make_hook(spec, group)

    @contextmanager
    def _joined(self, group: ProcessGroup, divide_by_initial_world_size: bool) -> Iterator[None]:
        """Runs the body of join(). Aborts the group if the body raises."""
        self._reducer.begin_join(divide_by_initial_world_size)
        try:
            yield
        except BaseException as error:
            with suppress(Exception):  # if the abort cannot reach the other ranks, they time out
                group.abort(f"a rank failed inside join: {error!r}")
            raise
        self._reducer.end_join()

    def set_weight(self, weight: float) -> None:
        """Sets the weight of this rank's gradients in subsequent means, such as its batch size. Collective."""
        self._reducer.set_weight(weight)

    @property
    def step_id(self) -> int | None:
        """A user-defined number for subsequent steps, such as the batch index, from 0 to 2**32 - 1; None for none.

        The ranks compare it with the first bucket of each step. If it differs, all ranks raise a Mismatch that names
        ranks and numbers, and the gradients stay unchanged.
        """
        return self._reducer.step_id

    @step_id.setter
    def step_id(self, number: int | None) -> None:
        self._reducer.step_id = None if number is None else operator.index(number)

    def stats(self) -> dict[str, Any]:
        """Returns statistics of the last step: times in seconds since its first gradient, and bytes sent."""
        return self._reducer.stats()
