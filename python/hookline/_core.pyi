from collections.abc import Callable, Generator, Sequence
import datetime
from typing import Any, Generic, TypeVar

import numpy.typing


version: str = '0.1.0'

class Error(Exception):
    """The base of every error of hookline."""

class InvalidArgument(Error, ValueError):
    """The caller's own mistake."""

class Unsupported(Error, NotImplementedError):
    """An operation, device or engine that is not to be had here."""

class Timeout(Error, TimeoutError):
    """Something did not happen in time."""

class PeerLost(Error, RuntimeError):
    """A peer died or its connection broke."""

class Mismatch(Error, RuntimeError):
    """The ranks did not call the same operation; no data was changed."""

class Aborted(Error, RuntimeError):
    """
    A rank gave up, the group was aborted, or a future was dropped unfulfilled.
    """

class ResourceError(Error, OSError):
    """What the operating system refused: memory, files, sockets."""

T = TypeVar("T")

S = TypeVar("S")

class Future(Generic[T]):
    """
    A value that comes later. May be used from any thread, and awaited in asyncio.
    """

    def __init__(self) -> None:
        """A future that is completed by set_result or set_exception."""

    def done(self) -> bool:
        """Whether there is an outcome, be it a value or an error."""

    def wait(self, timeout: float | datetime.timedelta | None = None) -> T:
        """
        Waits for the outcome and returns the value or raises the error. Raises Timeout where neither is there in time: seconds or a timedelta, 30 minutes where not given.
        """

    def value(self) -> T:
        """The value of a completed future, or its error raised."""

    def exception(self) -> BaseException | None:
        """The error of a completed future, or None."""

    def set_result(self, result: T) -> None:
        """Completes the future. InvalidArgument where it has an outcome already."""

    def set_exception(self, result: BaseException) -> None:
        """
        Fails the future with an exception, which wait() and value() raise as it is, with its traceback.
        """

    def then(self, callback: Callable[[Future[T]], Future[S] | S]) -> Future[S]:
        """
        Calls callback(future) once this is done, failed or not, and returns a future of what that returns (a Future is taken over, not nested) or raises. Runs in the thread that completes this future, or at once.
        """

    def add_done_callback(self, callback: Callable[[Future[T]], object]) -> None:
        """
        Calls callback(future) once this is done. What it raises goes to sys.unraisablehook.
        """

    def __await__(self) -> Generator[Any, None, T]: ...

    def __repr__(self) -> str: ...

class Tensor:
    """
    A strided view of memory on the CPU that keeps whoever owns the memory alive.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def dtype(self) -> str:
        """
        The name that NumPy and torch know it by, as in "float32" or "bfloat16".
        """

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int:
        """The number of elements."""

    @property
    def itemsize(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    @property
    def storage_offset(self) -> int:
        """In elements."""

    @property
    def read_only(self) -> bool: ...

    def numel(self) -> int: ...

    def data_ptr(self) -> int:
        """The address of the first element."""

    def is_contiguous(self) -> bool: ...

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """
        The same elements under another shape; one extent may be -1. InvalidArgument where that takes a copy.
        """

    def flatten(self) -> Tensor:
        """A view of one dimension. InvalidArgument where that takes a copy."""

    def as_read_only(self) -> Tensor: ...

    def contiguous(self) -> Tensor:
        """This tensor where it is contiguous, else a copy that is."""

    def clone(self) -> Tensor: ...

    def copy_from(self, source: Any) -> None:
        """Copies from an array or tensor of the same shape and dtype."""

    def fill(self, value: float) -> None: ...

    def item(self) -> float | int | bool:
        """The one element of a tensor that has just one."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.typing.NDArray[Any]: ...

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def __getitem__(self, index: Any) -> Tensor:
        """A view: by numbers, slices with a positive step, and an ellipsis."""

    def __len__(self) -> int: ...

    def numpy(self) -> numpy.typing.NDArray[Any]:
        """
        A NumPy array of the same memory. bfloat16 comes as that of ml_dtypes where it is installed, else as uint16.
        """

    def __repr__(self) -> str: ...

def empty(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor:
    """A new tensor, aligned to 64 bytes, with whatever the memory holds."""

def zeros(shape: int | Sequence[int], dtype: Any = 'float32') -> Tensor: ...

def full(shape: int | Sequence[int], fill_value: float, dtype: Any = 'float32') -> Tensor: ...

def asarray(source: Any) -> Tensor:
    """
    A view, without a copy, of a NumPy array, a torch tensor, a DLPack capsule, or whatever exports DLPack or a buffer. A torch tensor that requires a gradient is taken as if detached.
    """

def from_dlpack(source: Any) -> Tensor:
    """The same for capsules and objects with a __dlpack__ method."""
