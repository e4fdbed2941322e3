"""Communication hooks in Python: what counts as one, torch's futures, and PyTorch's names for the built-in ones."""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Callable
from types import NoneType, TracebackType, UnionType
from typing import Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin

from ._core import (
    CommHook,
    Future,
    GradBucket,
    InvalidArgument,
    PowerSGDState,
    ProcessGroup,
    default_group,
    make_hook,
    register_factory,
    unregister_factory,
)
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


class Option(NamedTuple):
    """An option of a registered hook: a parameter of its factory."""

    name: str
    kind: str
    default: Any
    words: list[str]


KINDS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "text"}


def option_of(parameter: inspect.Parameter, where: str) -> Option:
    """The option of a factory's parameter, by its annotation or else by its default."""
    if parameter.default is inspect.Parameter.empty or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    ):
        raise InvalidArgument(
            f"{where}: the parameter {parameter} cannot be an option of the hook: expected a name with a default, as "
            "in factory(group, k=0.01)"
        )
    kind, words = parameter.annotation, []
    if get_origin(kind) in (Union, UnionType):  # int | None
        kind = next((one for one in get_args(kind) if one is not NoneType), kind)
    if get_origin(kind) is Literal:
        words, kind = [str(word) for word in get_args(kind)], "word"
    else:
        kind = KINDS.get(kind, KINDS.get(type(parameter.default)))
    if kind is None:
        raise InvalidArgument(
            f"{where}: the option {parameter} has no type that a text can give: expected bool, int, float, str or a "
            "Literal of strings, as its annotation or as the type of its default"
        )
    return Option(parameter.name, kind, parameter.default, words)


class Registered:
    """A factory of hooks with its options."""

    def __init__(self, name: str, factory: Callable[..., Any], reports_contribution: bool) -> None:
        self.name = name
        self.factory = factory
        self.reports_contribution = reports_contribution
        where = f"register_hook({name!r}, {name_of(factory)})"
        try:
            signature = inspect.signature(factory, eval_str=True)
        except NameError:  # an annotation of what is imported for type checkers alone
            signature = inspect.signature(factory)
        parameters = list(signature.parameters.values())
        if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
            raise InvalidArgument(
                f"{where}: the factory takes {signature}: expected the group first, as in factory(group, k=0.01)"
            )
        self.options = [option_of(parameter, where) for parameter in parameters[1:]]

    def make(self, group: ProcessGroup, options: dict[str, Any]) -> Any:
        """What the factory returns: a CommHook, or a function that was checked to be one."""
        made = self.factory(group, **options)
        if isinstance(made, CommHook):
            return made
        if isinstance(made, str):
            return make_hook(made, group)
        if not callable(made):
            raise InvalidArgument(
                f"the hook {self.name}: its factory {name_of(self.factory)} returned {class_name(made)}: expected a "
                "function hook(state, bucket), an object that can be called so, a hookline.CommHook, or the text of a "
                "hook"
            )
        check_hook(made)
        return made


_registered: dict[str, Registered] = {}


def registered(name: str) -> Registered:
    """The factory that was registered under a name."""
    return _registered[name]


def register_hook(
    name: str, factory: Callable[..., Any], *, description: str | None = None, reports_contribution: bool = False
) -> None:
    """Adds a hook to those that make_hook knows by name, for texts such as "mine(k=0.01) | compare".

    factory(group, k=0.01, …) makes one of it: a function hook(state, bucket), whose state is the group, an object that
    can be called so, a CommHook, or the text of one. Its other parameters are the options of the hook, with their
    defaults, and the types of their annotations or defaults: bool, int, float, str, or a Literal of strings. An object
    with save() -> bytes and load(state) is saved with the hook. The description is the first line of the factory's
    docstring unless it is given. A hook that calls bucket.set_contribution in every run, as error_feedback requires,
    declares reports_contribution. InvalidArgument for a name that is taken or is no identifier.
    """
    if not callable(factory):
        raise TypeError(f"register_hook({name!r}): expected a factory that can be called, got {class_name(factory)}")
    made = Registered(name, factory, reports_contribution)
    if description is None:
        description = (inspect.getdoc(factory) or "").partition("\n")[0]
    register_factory(name, description)
    _registered[name] = made


def unregister_hook(name: str) -> None:
    """Removes a hook that register_hook added, so that the name can be used again; hooks made of it live on."""
    unregister_factory(name)
    _registered.pop(name, None)


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
