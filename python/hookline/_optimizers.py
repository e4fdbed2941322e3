"""Post-local SGD around any optimizer."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ._core import PostLocalSGDState, make_post_local_sgd_hook
from ._names import class_name
from ._native_hooks import native_equivalent

if TYPE_CHECKING:
    from ._core import CommHook, Future, GradBucket, ProcessGroup

__all__ = ["PostLocalSGDOptimizer", "post_localSGD_hook"]


def _make(state: Any, group: ProcessGroup | None) -> CommHook:
    if not isinstance(state, PostLocalSGDState):
        raise TypeError(f"post_localSGD_hook: state: expected a hookline.PostLocalSGDState, got {class_name(state)}")
    return make_post_local_sgd_hook(state)


@native_equivalent(_make)
def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """Averages over all ranks at first, later over the state's subgroup. Runs natively if registered with a model."""
    return _make(state, None)(None, bucket)


class PostLocalSGDOptimizer:
    """An optimizer combined with a model averager, which runs after each step.

    The optimizer is a hookline or torch optimizer, or any object with step() and state_dict(); step() forwards its
    arguments. The averager averages the optimizer's param_groups, or the parameters passed to step(). DataParallel
    accepts this class as its optimizer if the inner optimizer is a hookline.Optimizer.
    """

    def __init__(self, optim: Any, averager: Any) -> None:
        """The averager needs average_parameters(params) and a step attribute, as PeriodicModelAverager has."""
        if not callable(getattr(optim, "step", None)):
            raise TypeError(f"PostLocalSGDOptimizer: optim: expected an object with a step method, got {optim!r}")
        if not callable(getattr(averager, "average_parameters", None)):
            raise TypeError(f"PostLocalSGDOptimizer: averager: expected a model averager, got {averager!r}")
        self.optim = optim
        self.averager = averager

    @property
    def param_groups(self) -> Any:
        """The param_groups of the optimizer."""
        return self.optim.param_groups

    @property
    def state(self) -> Any:
        """The state of the optimizer."""
        return self.optim.state

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Steps the optimizer, then averages if due. Returns the result of the optimizer's step."""
        result = self.optim.step(*arguments, **options)
        groups = getattr(self.optim, "param_groups", None)
        if groups is None and not arguments and "params" not in options:
            raise TypeError(
                f"PostLocalSGDOptimizer: {type(self.optim).__qualname__} has no param_groups. Pass the parameters to "
                "step: step(params, grads)."
            )
        if groups is None:
            groups = arguments[0] if arguments else options["params"]
        self.averager.average_parameters(groups)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forwards to the optimizer."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Forwards to the optimizer."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Returns the optimizer's state with the averager's step counter as "step"."""
        state: dict[str, Any] = self.optim.state_dict()
        state["step"] = self.averager.step
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the optimizer and the averager. Without a "step", warns and resets the averager's counter."""
        self.optim.load_state_dict(state_dict)
        if "step" in state_dict:
            self.averager.step = state_dict["step"]
        else:
            warnings.warn(
                "Loaded state dict does not contain a step counter for an averager. Setting step counter to 0.",
                stacklevel=2,
            )
            self.averager.step = 0

    def __repr__(self) -> str:
        """Forwards to the optimizer."""
        return repr(self.optim)
