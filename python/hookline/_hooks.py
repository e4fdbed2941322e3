"""Communication hooks in Python: validation, conversion of torch futures, registration, and DDPCommHookType."""

from __future__ import annotations

import enum
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import NoneType, TracebackType, UnionType
from typing import Any, Literal, NamedTuple, Protocol, Union, get_args, get_origin

from ._core import (
    CommHook,
    Future,
    GradBucket,
    InvalidArgument,
    PowerSGDState,
    ProcessGroup,
    make_hook,
    register_factory,
    unregister_factory,
)
from ._names import class_name, name_of
from ._native_hooks import native_hook as native_hook
from ._powersgd import batched_powerSGD_hook, powerSGD_hook


class SupportsCommHook(Protocol):
    """A model that accepts a communication hook: DataParallel or DistributedDataParallel."""

    def register_comm_hook(self, state: Any, hook: Any) -> None:
        """Sets the communication hook."""


def check_hook(hook: object) -> str:
    """Validates a hook with PyTorch's error messages and returns its name."""
    if not callable(hook):
        raise TypeError(f"Communication hook must be callable. Got {hook!r}.")
    name = name_of(hook)
    try:
        signature = inspect.signature(hook)
    except (TypeError, ValueError):  # a builtin without a signature
        return name
    try:
        bound = signature.bind(None, None)
    except TypeError as error:
        raise TypeError(
            f"Communication hook must take two arguments, state and bucket, but {name}{signature} does not: {error}"
        ) from None
    parameters = [signature.parameters[key] for key in bound.arguments]
    bucket = parameters[-1].annotation
    if parameters[-1].kind is not inspect.Parameter.VAR_POSITIONAL and not annotates(bucket, "GradBucket", GradBucket):
        raise ValueError(
            "Communication hook: bucket annotation should be dist.GradBucket. "
            f"{name} has {bucket!r}: expected dist.GradBucket, hookline.GradBucket or no annotation."
        )
    if not annotates(signature.return_annotation, "Future", Future):
        raise ValueError(
            "Communication hook: return annotation should be torch.futures.Future[torch.Tensor]. "
            f"{name} has {signature.return_annotation!r}: expected a torch or hookline Future, or no annotation."
        )
    return name


def annotates(annotation: Any, name: str, kind: type) -> bool:
    """True if an annotation, possibly a string, is missing or names a class of this name."""
    if annotation in (inspect.Signature.empty, Any, object, None if name == "GradBucket" else inspect.Signature.empty):
        return True
    if isinstance(annotation, str):
        return annotation.split("[")[0].strip().split(".")[-1] in {name, "Any", "object"}
    origin = getattr(annotation, "__origin__", annotation)
    return origin is kind or getattr(origin, "__name__", "") == name


def is_torch_future(value: object) -> bool:
    """True for a torch.futures.Future and for the result of its `then`. Does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch._C.Future)


def from_torch(future: Any) -> Future[Any]:
    """Returns a hookline.Future with the outcome of a torch future."""
    result: Future[Any] = Future()

    def forward(done: Any) -> None:
        try:
            value = done.value()
        except BaseException as error:
            result.set_exception(error.with_traceback(_without_future_frames(error.__traceback__)))
        else:
            result.set_result(value)

    future.add_done_callback(forward)
    return result


def _without_future_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Removes the frames of future.value() from a traceback: they keep a reference to that future."""
    forwarding_files = {__file__, sys.modules["torch"].futures.__file__}
    while traceback is not None and traceback.tb_frame.f_code.co_filename in forwarding_files:
        traceback = traceback.tb_next
    return traceback


class Option(NamedTuple):
    """An option of a registered hook, which is a parameter of its factory."""

    name: str
    kind: str
    default: Any
    choices: list[str]


KINDS: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "text"}


def option_of(parameter: inspect.Parameter, where: str) -> Option:
    """Returns the option for a factory parameter, typed by its annotation or else by its default."""
    if parameter.default is inspect.Parameter.empty or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
        inspect.Parameter.POSITIONAL_ONLY,
    ):
        raise InvalidArgument(
            f"{where}: parameter {parameter} cannot be an option of the hook: expected a keyword parameter with a "
            "default, as in factory(group, k=0.01)"
        )
    kind, choices = parameter.annotation, []
    if get_origin(kind) in (Union, UnionType):  # int | None
        kind = next((one for one in get_args(kind) if one is not NoneType), kind)
    if get_origin(kind) is Literal:
        choices, kind = [str(choice) for choice in get_args(kind)], "choice"
    else:
        kind = KINDS.get(kind, KINDS.get(type(parameter.default)))
    if kind is None:
        raise InvalidArgument(
            f"{where}: the type of option {parameter} is not supported in hook specs: expected bool, int, float, str "
            "or a Literal of strings, as its annotation or as the type of its default"
        )
    return Option(parameter.name, kind, parameter.default, choices)


class HookFactory:
    """A hook factory with its options."""

    def __init__(self, name: str, factory: Callable[..., Any], reports_contribution: bool) -> None:
        self.name = name
        self.factory = factory
        self.reports_contribution = reports_contribution
        where = f"register_hook({name!r}, {name_of(factory)})"
        try:
            signature = inspect.signature(factory, eval_str=True)
        except NameError:  # an annotation that is imported only for type checkers
            signature = inspect.signature(factory)
        parameters = list(signature.parameters.values())
        if not parameters or parameters[0].kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD):
            raise InvalidArgument(
                f"{where}: expected the group as the first parameter, as in factory(group, k=0.01), got {signature}"
            )
        self.options = [option_of(parameter, where) for parameter in parameters[1:]]

    def make(self, group: ProcessGroup, options: dict[str, Any]) -> Any:
        """Calls the factory. Returns a CommHook or a validated hook function."""
        hook = self.factory(group, **options)
        if isinstance(hook, CommHook):
            return hook
        if isinstance(hook, str):
            return make_hook(hook, group)
        if not callable(hook):
            raise InvalidArgument(
                f"hook {self.name}: its factory {name_of(self.factory)} returned {class_name(hook)}: expected a "
                "function hook(state, bucket), a callable object, a hookline.CommHook, or a hook spec"
            )
        check_hook(hook)
        return hook


_factories: dict[str, HookFactory] = {}


def factory_of(name: str) -> HookFactory:
    """Returns the factory registered under a name."""
    return _factories[name]


def register_hook(
    name: str, factory: Callable[..., Any], *, description: str | None = None, reports_contribution: bool = False
) -> None:
    """Registers a hook by name for hook specs such as "mine(k=0.01) | compare".

    factory(group, k=0.01, …) returns a function hook(state, bucket) whose state is the group, a callable object with
    this signature, a CommHook, or a hook spec. The further parameters of the factory are the options of the hook. Their
    types come from the annotations or defaults: bool, int, float, str, or a Literal of strings. If the hook is an
    object with state_dict() and load_state_dict(state_dict), its state is saved with the hook: a dict of numbers,
    strings, bytes, arrays, torch tensors, and lists, tuples and dicts of these. The description defaults to the first
    line of the factory's docstring. Pass reports_contribution if the hook calls bucket.set_contribution in every run,
    as error_feedback requires. Raises InvalidArgument if the name is taken or not an identifier.
    """
    if not callable(factory):
        raise TypeError(f"register_hook({name!r}): expected a callable factory, got {class_name(factory)}")
    hook_factory = HookFactory(name, factory, reports_contribution)
    if description is None:
        description = (inspect.getdoc(factory) or "").partition("\n")[0]
    register_factory(name, description)
    _factories[name] = hook_factory


def unregister_hook(name: str) -> None:
    """Removes a hook that register_hook added, so that the name is free again. Existing hooks stay valid."""
    unregister_factory(name)
    _factories.pop(name, None)


def _register(hook: Any, model: SupportsCommHook, state: Any = None) -> None:
    if not callable(getattr(model, "register_comm_hook", None)):
        raise TypeError(
            "register_ddp_comm_hook: model: expected an object with a register_comm_hook method, such as "
            f"hookline.numpy.DataParallel, got {class_name(model)}"
        )
    model.register_comm_hook(state, hook)


def _register_powersgd(hook: Any, rank: int, model: SupportsCommHook, state: Any = None) -> None:
    if state is None or isinstance(state, ProcessGroup):
        state = PowerSGDState(state, matrix_approximation_rank=rank)
    _register(hook, model, state)


class DDPCommHookType(enum.Enum):
    """PyTorch's names of the built-in hooks. A member's value, called with model and state, registers the hook."""

    # functools.partial, because plain functions would become methods of the enum.
    ALLREDUCE = functools.partial(_register, "allreduce")
    FP16_COMPRESS = functools.partial(_register, "fp16")
    BF16_COMPRESS = functools.partial(_register, "bf16")
    QUANTIZE_PER_TENSOR = functools.partial(_register, "quantize_per_tensor")
    QUANTIZE_PER_CHANNEL = functools.partial(_register, "quantize_per_channel")
    POWER_SGD = functools.partial(_register_powersgd, powerSGD_hook, 1)
    POWER_SGD_RANK2 = functools.partial(_register_powersgd, powerSGD_hook, 2)
    BATCHED_POWER_SGD = functools.partial(_register_powersgd, batched_powerSGD_hook, 1)
    BATCHED_POWER_SGD_RANK2 = functools.partial(_register_powersgd, batched_powerSGD_hook, 2)
    NOOP = functools.partial(_register, "noop")


def register_ddp_comm_hook(
    comm_hook_type: DDPCommHookType | str | CommHook | Callable[[Any, Any], Any],
    model: SupportsCommHook,
    state: Any = None,
) -> None:
    """Registers a hook with a model: a DDPCommHookType or its name, or any hook that register_comm_hook takes.

    The state is the process group to reduce over, or None for the group of the model. PowerSGD types also take a
    PowerSGDState.
    """
    if isinstance(comm_hook_type, str) and comm_hook_type in DDPCommHookType.__members__:
        comm_hook_type = DDPCommHookType[comm_hook_type]
    if isinstance(comm_hook_type, DDPCommHookType):
        register: Callable[..., None] = comm_hook_type.value
        register(model=model, state=state)
        return
    check_hook_type(comm_hook_type, DDPCommHookType)
    with naming_types(comm_hook_type, DDPCommHookType):
        _register(comm_hook_type, model, state)


def check_hook_type(hook: object, types: type[enum.Enum]) -> None:
    """Raises TypeError unless the first argument of register_ddp_comm_hook is a hook."""
    if not isinstance(hook, str) and not callable(hook):
        raise TypeError(
            f"register_ddp_comm_hook: comm_hook_type: expected a {types.__name__} or its name, a hook spec such as "
            f"'int8 | error_feedback', a CommHook, or a function hook(state, bucket), got {class_name(hook)}"
        )


@contextmanager
def naming_types(hook: object, types: type[enum.Enum]) -> Iterator[None]:
    """Turns the error of an unknown hook spec into one that also lists the DDPCommHookTypes."""
    try:
        yield
    except InvalidArgument as error:
        if not isinstance(hook, str) or "no hook is called" not in str(error):
            raise
        raise TypeError(
            f"register_ddp_comm_hook: unknown hook {hook!r}: expected one of {', '.join(types.__members__)}, or a hook "
            f"spec: {error}"
        ) from None
