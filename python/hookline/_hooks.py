"""Communication hooks in Python: what counts as one, torch's futures, and PyTorch's names for the built-in ones."""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

from ._core import CommHook, Future, GradBucket, PowerSGDState, ProcessGroup, default_group, make_hook
from ._names import class_name, name_of
from ._native import native_hook as native_hook
from ._powersgd import batched_powerSGD_hook, powerSGD_hook


class Registers(Protocol):
    """What takes a hook: DataParallel, or a DistributedDataParallel."""

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Has the hook run for every bucket."""


def check_hook(hook: object) -> str:
    """Raises what PyTorch raises where something cannot be a hook, and returns its name."""
    if not callable(hook):
        raise TypeError(f"Communication hook must be callable. It is {hook!r}")
    name = name_of(hook)
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # a builtin that does not tell
        return name
    try:
        bound = signature.bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"Communication hook must take two arguments, state and bucket, but {name}{signature} cannot be "
            f"called with two: {error}"
        ) from None
    parameters = [signature.parameters[key] for key in bound.arguments]
    bucket = parameters[-1].annotation
    if parameters[-1].kind is not inspect.Parameter.VAR_POSITIONAL and not annotates(bucket, "GradBucket", GradBucket):
        raise ValueError(
            "Communication hook: bucket annotation should be dist.GradBucket. "
            f"In {name} it is {bucket!r}; hookline.GradBucket is meant, or nothing"
        )
    if not annotates(signature.return_annotation, "Future", Future):
        raise ValueError(
            "Communication hook: return annotation should be torch.futures.Future[torch.Tensor]. "
            f"In {name} it is {signature.return_annotation!r}; hookline.Future is taken, too, or nothing"
        )
    return name


def annotates(annotation: Any, name: str, kind: type) -> bool:
    """Whether an annotation, which may be text, is missing or means a class of this name."""
    if annotation in (inspect.Signature.empty, Any, object, None if name == "GradBucket" else inspect.Signature.empty):
        return True
    if isinstance(annotation, str):
        return annotation.split("[")[0].strip().split(".")[-1] in {name, "Any", "object"}
    origin = getattr(annotation, "__origin__", annotation)
    return origin is kind or getattr(origin, "__name__", "") == name


def is_torch_future(value: object) -> bool:
    """Whether it is a torch.futures.Future, or what its `then` gives; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch._C.Future)


def from_torch(future: Any) -> Future[Any]:
    """A future of ours that is completed with what one of torch's is."""
    result: Future[Any] = Future()

    def pass_on(done: Any) -> None:
        try:
            value = done.value()
        except BaseException as error:
            result.set_exception(error.with_traceback(_before_futures(error.__traceback__)))
        else:
            result.set_result(value)

    future.add_done_callback(pass_on)
    return result


def _before_futures(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames in which a future was asked for its value: they hold on to that very future."""
    passed_through = {__file__, sys.modules["torch"].futures.__file__}
    while traceback is not None and traceback.tb_frame.f_code.co_filename in passed_through:
        traceback = traceback.tb_next
    return traceback


def restore_hook(text: str, state: bytes) -> CommHook:
    """What unpickling a hook calls: the hook of the text on this process's group, with the state that it had."""
    hook = make_hook(text, default_group())
    hook.load(state)
    return hook


def _register(hook: Any, model: Registers, state: Any = None) -> None:
    if not callable(getattr(model, "register_comm_hook", None)):
        raise TypeError(
            f"register_ddp_comm_hook: a model with a register_comm_hook method is expected, such as "
            f"hookline.numpy.DataParallel, but got {class_name(model)}"
        )
    model.register_comm_hook(state, hook)


def _register_named(text: str, model: Registers, state: Any = None) -> None:
    if state is not None and not isinstance(state, ProcessGroup):
        raise TypeError(
            f"register_ddp_comm_hook: the state of the hook {text} is the process group to reduce over, or None for "
            f"that of the model, not {class_name(state)}"
        )
    _register(text if state is None else make_hook(text, state), model, state)


def _register_powersgd(hook: Any, rank: int, model: Registers, state: Any = None) -> None:
    if state is None or isinstance(state, ProcessGroup):
        state = PowerSGDState(state, matrix_approximation_rank=rank)
    _register(hook, model, state)


class DDPCommHookType(enum.Enum):
    """PyTorch's names of the built-in hooks. A value, called with model and state, registers the hook."""

    # Not plain functions, which would become methods.
    ALLREDUCE = functools.partial(_register_named, "allreduce")
    FP16_COMPRESS = functools.partial(_register_named, "fp16")
    BF16_COMPRESS = functools.partial(_register_named, "bf16")
    QUANTIZE_PER_TENSOR = functools.partial(_register_named, "quantize_per_tensor")
    QUANTIZE_PER_CHANNEL = functools.partial(_register_named, "quantize_per_channel")
    POWER_SGD = functools.partial(_register_powersgd, powerSGD_hook, 1)
    POWER_SGD_RANK2 = functools.partial(_register_powersgd, powerSGD_hook, 2)
    BATCHED_POWER_SGD = functools.partial(_register_powersgd, batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = functools.partial(_register_powersgd, batched_powerSGD_hook, 2)
    NOOP = functools.partial(_register_named, "noop")


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType | str, model: Registers, state: Any = None) -> None:
    """Registers one of the built-in hooks with a model. The type may also be given as its name.

    The state is the process group to reduce over, or nothing: that of the model. For a PowerSGD type it may also be a
    PowerSGDState; one is made of a group.
    """
    if isinstance(comm_hook_type, str):
        if comm_hook_type not in DDPCommHookType.__members__:
            raise TypeError(
                f"register_ddp_comm_hook: no hook is called {comm_hook_type!r}; there are "
                f"{', '.join(DDPCommHookType.__members__)}; the text of a hook goes to "
                "model.register_comm_hook(group, text)"
            )
        comm_hook_type = DDPCommHookType[comm_hook_type]
    if not isinstance(comm_hook_type, DDPCommHookType):
        raise TypeError(
            f"register_ddp_comm_hook: the first argument is a DDPCommHookType or its name, not "
            f"{class_name(comm_hook_type)}"
        )
    register: Callable[..., None] = comm_hook_type.value
    register(model=model, state=state)
