"""Post-local SGD around any optimizer, and optimizers out of pickles."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from ._core import Optimizer, PostLocalSGDState, make_optimizer, make_post_local_sgd_hook
from ._names import class_name
from ._native import stands_for

if TYPE_CHECKING:
    from ._core import CommHook, Future, GradBucket, ProcessGroup

__all__ = ["PostLocalSGDOptimizer", "post_localSGD_hook", "restore_optimizer"]


def restore_optimizer(text: str, state: bytes) -> Optimizer:
    """What unpickling an optimizer calls."""
    optimizer = make_optimizer(text)
    optimizer.load(state)
    return optimizer


def _make(state: Any, group: ProcessGroup | None) -> CommHook:
    if not isinstance(state, PostLocalSGDState):
        raise TypeError(f"post_localSGD_hook: its state is a hookline.PostLocalSGDState, not {class_name(state)}")
    return make_post_local_sgd_hook(state)


@stands_for(_make)
def post_localSGD_hook(state: PostLocalSGDState, bucket: GradBucket) -> Future[Any]:  # noqa: N802 - PyTorch's name
    """The mean over all ranks at first, later over the state's subgroup. Registered with a model it runs natively."""
    return _make(state, None)(None, bucket)


class PostLocalSGDOptimizer:
    """An optimizer, and a model averager that averages its parameters behind each step where it is due.

    The optimizer is one of ours, one of torch's, or anything with step() and state_dict(); step() passes its arguments
    on. What is averaged are the optimizer's param_groups, or the parameters that step() was given. DataParallel takes
    one as its optimizer, too, where the inner optimizer is one of ours.
    """

    def __init__(self, optim: Any, averager: Any) -> None:
        """Averager: anything with average_parameters(params) and a step, such as a PeriodicModelAverager."""
        if not callable(getattr(optim, "step", None)):
            raise TypeError(f"PostLocalSGDOptimizer: an optimizer with a step method is expected, not {optim!r}")
        if not callable(getattr(averager, "average_parameters", None)):
            raise TypeError(f"PostLocalSGDOptimizer: a model averager is expected, not {averager!r}")
        self.optim = optim
        self.averager = averager

    @property
    def param_groups(self) -> Any:
        """Those of the optimizer."""
        return self.optim.param_groups

    @property
    def state(self) -> Any:
        """That of the optimizer."""
        return self.optim.state

    def step(self, *arguments: Any, **options: Any) -> Any:
        """Steps, then averages where it is due; returns what the optimizer's step returned."""
        result = self.optim.step(*arguments, **options)
        groups = getattr(self.optim, "param_groups", None)
        if groups is None and not arguments and "params" not in options:
            raise TypeError(
                f"PostLocalSGDOptimizer: {type(self.optim).__qualname__} has no param_groups, so step() must be given "
                f"the parameters: step(params, grads)"
            )
        if groups is None:
            groups = arguments[0] if arguments else options["params"]
        self.averager.average_parameters(groups)
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the optimizer does it."""
        self.optim.zero_grad(set_to_none=set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the optimizer does it."""
        self.optim.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's, with the averager's counter as "step"."""
        state: dict[str, Any] = self.optim.state_dict()
        state["step"] = self.averager.step
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Both; without a "step" the averager begins again, with a warning."""
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
        """As the optimizer's."""
        return repr(self.optim)
